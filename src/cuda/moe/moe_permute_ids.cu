/*
 * moe_permute_ids on a device: slots are ranked by expert, or sorted where ids may be any numbers; then every
 * token row is read once and written to the rows of its slots.
 */
#include "cuda/moe/moe.cuh"
#include "cuda/runtime/backend.cuh"
#include "cuda/codes/row_codes.cuh"

/* Ids of any value, in order. */
struct any_ids {
    syc_slot_keys slots;
    __device__ bool has(int64_t) const { return true; }
    __device__ u64 sort_key(int64_t i) const
    {
        const int64_t id = slots.id(i);
        return slots.ids.type == SY_TYPE_I32 ? (u64)((u32)id ^ 0x80000000u) : (u64)id ^ 0x8000000000000000ull;
    }
};

static int64_t slots_of(const syi_moe_permute_ids_plan *p)
{
    return p->n_tokens * p->n_slots;
}

size_t syc_moe_permute_ids_workspace(const syc_device *device, const syi_plan *plan)
{
    const syi_moe_permute_ids_plan *const p = &plan->moe_permute_ids;
    syc_sort_memory memory;
    return 256 + (p->n_experts > 0 ? syc_rank_bytes(slots_of(p), p->n_experts, device->processors)
                                   : syc_sort_lay_out(&memory, slots_of(p), device->processors, NULL));
}

void syc_moe_permute_ids(syc_call *call, const syi_plan *plan)
{
    const syi_moe_permute_ids_plan *const p = &plan->moe_permute_ids;
    const int64_t n = slots_of(p);
    const syc_split by_k = syc_split_by(p->n_slots, n);
    const syc_slot_keys keys = {n, (int)p->n_experts, by_k, p->ids, p->args.allow_missing};
    const syc_slot_rows rows = {by_k,
                                p->row_begin,
                                p->n_rows,
                                p->sorted_indices.data,
                                p->counts.data,
                                p->offsets.data,
                                p->out_probs.data,
                                p->probs,
                                (int)p->prob_bytes,
                                false,
                                p->n_experts,
                                (int64_t *)call->scratch};
    const syc_fan_shape shape = {p->tokens,  p->out_tokens, p->n_tokens,
                                 p->n_slots, p->n_rows,     (int64_t)p->row_bytes};
    unsigned char *const scratch = call->scratch + 256;
    if (!p->codes.given && syc_ring_stages(call->device, &shape) > 0) {
        syc_prefer_shared(&call->queue, syc_rank_count<syc_slot_keys>);
        syc_prefer_shared(&call->queue, syc_rank_place<syc_slot_keys, syc_slot_rows>);
    }
    if (p->n_experts == 0) {
        syc_sort_memory memory;
        const any_ids ids = {keys};
        syc_sort_lay_out(&memory, n, call->device->processors, scratch);
        const syc_sorted sorted = syc_sort(call, &memory, ids, n, p->ids.type == SY_TYPE_I32 ? 32 : 64);
        syc_place_sorted(call, ids, sorted, n, 0, rows);
    } else if (p->n_experts > SYC_MOST_COUNTED && p->counts.data == NULL && p->offsets.data == NULL) {
        syc_rank_sorted(call, keys, rows, scratch, false);
    } else {
        syc_rank(call, keys, rows, scratch);
    }
    if (p->n_rows > 0 && p->codes.given)
        syc_code_rows(call, &p->codes, syc_fanned_rows<syc_slot_rows>{rows, p->tokens, (int)p->n_slots},
                      p->n_tokens, p->n_rows);
    else if (p->n_rows > 0)
        syc_fan(call, rows, &shape);
}
