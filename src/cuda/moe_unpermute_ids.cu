/*
 * moe_unpermute_ids on a device: the sums of moe_unpermute, with the weights of slots.
 */
#include "cuda/backend.cuh"
#include "cuda/moe_sums.cuh"

static struct syc_moe_sums sums_of(const struct syi_moe_unpermute_ids_plan *p)
{
    struct syc_moe_sums s = {};
    s.lists.n_tokens = p->n_tokens;
    s.lists.n_slots = p->n_slots;
    s.lists.row_begin = p->row_begin;
    s.lists.n_rows = p->n_rows;
    s.lists.by_slot = true;
    s.lists.by_token = syc_split_by(p->n_slots, p->n_tokens * p->n_slots);
    s.lists.indices = p->sorted_indices;
    s.lists.probs = p->probs;
    s.lists.prob_type = p->prob_type;
    s.hidden = p->hidden;
    s.type = p->type;
    s.rows = p->permuted;
    s.out = p->tokens;
    return s;
}

size_t syc_moe_unpermute_ids_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    struct syc_scratch scratch = {NULL, 0};
    struct syc_moe_sums s = sums_of(&plan->moe_unpermute_ids);
    syc_moe_take_sums(device, &s, &scratch);
    return scratch.used;
}

void syc_moe_unpermute_ids(struct syc_call *call, const union syi_plan *plan)
{
    struct syc_scratch scratch = {call->scratch, 0};
    struct syc_moe_sums s = sums_of(&plan->moe_unpermute_ids);
    syc_moe_take_sums(call->device, &s, &scratch);
    syc_moe_validate(call, &s.lists);
    syc_moe_sum(call, &s);
}
