/*
 * moe_combine on a device. One choice is a product, which keeps the sign of zero. Several are a sum that
 * begins with +0.
 */
#include "cuda/moe/slot_sums.cuh"
#include "cuda/runtime/backend.cuh"

struct combine {
    syi_moe_combine_plan p;
    int64_t n_choices;

    __device__ int64_t slot_of(int64_t choice, int64_t s) const
    {
        return syc_slot_of(syc_row(p.indices, choice), syc_row(p.locations, choice), s, p.n_experts,
                           p.args.capacity);
    }
    __device__ float gate_of(int64_t choice, int64_t s) const
    {
        return syc_gate_of(syc_row(p.gates, choice), s, p.gates.type);
    }
    /* For syc_sum_choices. */
    __device__ syc_added choice_at(int64_t choice, int64_t s) const
    {
        const int64_t slot = choice < n_choices ? slot_of(choice, s) : -1;
        const float gate = choice < n_choices ? gate_of(choice, s) : 0.0f;
        return {source(slot), slot >= 0 ? gate : 0.0f};
    }
    __device__ u8 *to(int64_t s) const { return syc_out_row(p.output, s); }
    /* One choice, for syc_scale_rows. */
    __device__ __forceinline__ syc_scaled_from find(int64_t s) const
    {
        return {slot_of(0, s), {}, gate_of(0, s)};
    }
    __device__ const u8 *source(int64_t slot) const { return slot < 0 ? NULL : syc_row(p.expert_out, slot); }
    __device__ __forceinline__ syc_scaled at(int64_t s, const syc_scaled_from &found) const
    {
        return {source(found.id), to(s), found.gate};
    }
};

SYC_NO_WORKSPACE(moe_combine)

void syc_moe_combine(syc_call *call, const syi_plan *plan)
{
    const syi_moe_combine_plan *const p = &plan->moe_combine;
    const u64 alignment =
        syc_alignment(p->expert_out) | syc_alignment(p->output) | (u64)p->hidden * p->elem_bytes;
    const struct combine combine = {*p, p->n_choices};
    if (p->n_samples == 0 || p->hidden == 0)
        return;
    if (p->n_choices == 1)
        syc_by_type(p->expert_out.type, alignment,
                    syc_launch_scaling<struct combine>{call, combine, p->n_samples, p->hidden, SYC_AFTER});
    else
        syc_by_type(p->expert_out.type, alignment,
                    syc_launch_sums<struct combine>{call, combine, p->n_samples, p->hidden});
}
