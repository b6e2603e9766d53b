/*
 * moe_ids_from_map: check and plan.
 */
#include "ops/call.h"

enum { MAP, PROBS, IDS, WEIGHTS, N_TENSORS };

#define OPERATOR moe_ids_from_map

static const sy_field_info fields[] = {
    [MAP] = SYI_INPUT(routing_map, SYI_BYTE_TYPES, 0, 2, 2, "T E", "not 0: token t goes to expert e"),
    [PROBS] = SYI_OPTIONAL(probs, SYI_FLOAT_TYPES, 0, 2, 2, "T E", "weight of each expert"),
    [IDS] = SYI_OUTPUT(ids, SYI_INDEX_TYPES, 0, 2, 2, "T K", "experts of each token, ascending; -1: none",
                       .preset = "i32"),
    [WEIGHTS] = SYI_OPTIONAL_OUTPUT(weights, 0, PROBS + 1, 2, 2, "T K", "when probs is given; 0: none",
                                    .with = PROBS + 1),
    SYI_SCALAR(k, I64, SY_FIELD_REQUIRED, .range = "K: 0..", .help = "K: slots per token"),
};

static sy_status check_values(struct syi_call *call)
{
    SYI_TRY(syi_check_scalars(call, N_TENSORS, N_TENSORS + 1));
    return syi_check_count(call, "routing_map", "experts", syi_bound(call, 'E'));
}

/* The output must be countable even when the tensor itself is not there yet. */
static sy_status check_sizes(struct syi_call *call)
{
    const int64_t n_tokens = syi_bound(call, 'T'), k = syi_bound(call, 'K');
    int64_t slots, bytes;
    if (syi_mul(n_tokens, k, &slots) && syi_mul(slots, (int64_t)sizeof(int64_t), &bytes))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_OVERFLOW, "k", "is %lld for %lld tokens, want fewer than 2^63 bytes",
                    (long long)k, (long long)n_tokens);
}

static void plan(struct syi_call *call)
{
    struct syi_moe_ids_from_map_plan *p = syi_bind_plan(call, "TEK");
    p->prob_bytes = syi_bytes_at(call, PROBS);
    call->rows = p->n_tokens;
}

static const struct syi_steps own = {.values = check_values, .sizes = check_sizes, .plan = plan};

SYI_DEFINE_PLANNED(moe_ids_from_map, MOE_IDS_FROM_MAP,
                   "the expert ids of a routing map, ascending, and the weights of its probs", weights, 0)
