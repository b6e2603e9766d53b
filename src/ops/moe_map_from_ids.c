/*
 * moe_map_from_ids: check and plan.
 */
#include "ops/call.h"

enum { IDS, WEIGHTS, MAP, PROBS, N_TENSORS };

#define OPERATOR moe_map_from_ids

static const sy_field_info fields[] = {
    [IDS] = SYI_INPUT(ids, SYI_INDEX_TYPES, 0, 2, 2, "T K", "experts of each token"),
    [WEIGHTS] = SYI_OPTIONAL(weights, SYI_FLOAT_TYPES, 0, 2, 2, "T K", "weight of each id"),
    [MAP] = SYI_OUTPUT(routing_map, SYI_BYTE_TYPES, 0, 2, 2, "T E", "1: token t goes to expert e",
                       .preset = "bool"),
    [PROBS] = SYI_OPTIONAL_OUTPUT(probs, 0, WEIGHTS + 1, 2, 2, "T E",
                                  "when weights is given; 0 where not routed", .with = WEIGHTS + 1),
    SYI_SCALAR(num_experts, I64, SY_FIELD_REQUIRED, .range = "E: 0..i32", .help = "E: experts"),
    SYI_SCALAR(allow_missing, BOOL, .help = "ids -1 and E mean no expert"),
};

/* The output must be countable even when the tensor itself is not there yet. */
static sy_status check_sizes(struct syi_call *call)
{
    const int64_t n_tokens = syi_bound(call, 'T'), n_experts = syi_bound(call, 'E');
    const size_t elem_bytes = syi_bytes_at(call, WEIGHTS);
    int64_t cells, bytes;
    if (syi_mul(n_tokens, n_experts, &cells) &&
        syi_mul(cells, elem_bytes > 0 ? (int64_t)elem_bytes : 1, &bytes))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_OVERFLOW, "num_experts",
                    "is %lld for %lld tokens, want fewer than 2^63 bytes", (long long)n_experts,
                    (long long)n_tokens);
}

static void plan(struct syi_call *call)
{
    struct syi_moe_map_from_ids_plan *p = syi_bind_plan(call, "TEK");
    p->prob_bytes = syi_bytes_at(call, WEIGHTS);
    call->rows = p->n_tokens;
}

static const struct syi_steps own = {.sizes = check_sizes, .plan = plan};

SYI_DEFINE_PLANNED(moe_map_from_ids, MOE_MAP_FROM_IDS,
                   "the routing map of expert ids, and the probs of their weights", probs, 0)
