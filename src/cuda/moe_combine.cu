/*
 * moe_combine on a device. One choice is a product, which keeps the sign of zero. Several are a sum that begins with
 * +0.
 */
#include "cuda/slot_sums.cuh"
#include "cuda/backend.cuh"

struct combine {
    int64_t n_choices, n_experts, capacity;
    sy_type gate_type;
    struct syi_rows gates, indices, locations, expert_out, output;

    /* Row and gate of a choice; from NULL: none, or past the last choice. */
    __device__ struct syc_scaled choice_at(int64_t choice, int64_t s) const
    {
        if (choice >= n_choices)
            return {NULL, NULL, 0, 0};
        const float gate = syc_gate_of(gates.data != NULL ? syc_row(gates, choice) : NULL, s, gate_type);
        const int64_t slot = syc_slot_of(syc_row(indices, choice), syc_row(locations, choice), s, n_experts, capacity);
        return slot < 0 ? syc_scaled{NULL, NULL, 0, 0} : syc_scaled{syc_row(expert_out, slot), NULL, gate, 0};
    }
    __device__ u8 *to(int64_t s) const { return syc_out_row(output, s); }
    __device__ struct syc_scaled at(int64_t s) const
    {
        struct syc_scaled row = choice_at(0, s);
        row.to = to(s);
        return row;
    }
};

size_t syc_moe_combine_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_moe_combine(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_combine_plan *const p = &plan->moe_combine;
    const u64 alignment = syc_alignment(p->expert_out) | syc_alignment(p->output) | (u64)p->hidden * p->elem_bytes;
    const struct combine combine = {p->n_choices, p->n_experts, p->capacity, p->gate_type, p->gates, p->indices, p->locations,
                                    p->expert_out, p->output};
    if (p->n_samples == 0 || p->hidden == 0)
        return;
    if (p->n_choices == 1)
        syc_by_type(p->type, alignment, syc_launch_scaling<struct combine>{call, combine, p->n_samples, p->hidden, SYC_AFTER});
    else
        syc_by_type(p->type, alignment, syc_launch_sums<struct combine>{call, combine, p->n_samples, p->hidden});
}
