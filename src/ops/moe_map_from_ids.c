/*
 * moe_map_from_ids: check and plan.
 */
#include "ops/call.h"

enum { IDS, WEIGHTS, MAP, PROBS, N_TENSORS };

static const sy_field_info fields[] = {
    [IDS] = SYI_TENSOR(moe_map_from_ids, ids, 0, SYI_INDEX_TYPES, 0, 2, 2, "T K", "experts of each token"),
    [WEIGHTS] = SYI_TENSOR(moe_map_from_ids, weights, SY_FIELD_OPTIONAL, SYI_FLOAT_TYPES, 0, 2, 2, "T K",
                           "weight of each id"),
    [MAP] = SYI_TENSOR(moe_map_from_ids, routing_map, SY_FIELD_OUT, SYI_BYTE_TYPES, 0, 2, 2, "T E",
                       "1: token t goes to expert e", .preset = "bool"),
    [PROBS] = SYI_TENSOR(moe_map_from_ids, probs, SY_FIELD_OUT | SY_FIELD_OPTIONAL, 0, WEIGHTS + 1, 2, 2,
                         "T E", "when weights is given; 0 where not routed"),
    SYI_SCALAR(moe_map_from_ids, num_experts, I64, SY_FIELD_REQUIRED, .help = "E: experts"),
    SYI_SCALAR(moe_map_from_ids, allow_missing, BOOL, .help = "ids -1 and E mean no expert"),
};

static sy_status check_inputs(struct syi_call *call)
{
    const sy_moe_map_from_ids_args *a = &call->args.moe_map_from_ids;
    sy_status st = syi_check_both(call, "weights", a->weights, "probs", a->probs);
    if (st == SY_OK)
        st = syi_check_tensors(call, false);
    if (st == SY_OK)
        st = syi_check_matrix(call, WEIGHTS, syi_extent(call, IDS, 0), syi_extent(call, IDS, 1));
    return st == SY_OK ? syi_check_value(call, "num_experts", a->num_experts, 0, INT32_MAX) : st;
}

/* The output must be countable even when the tensor itself is not there yet. */
static sy_status check_overflow(struct syi_call *call, size_t prob_bytes)
{
    const int64_t n_tokens = syi_extent(call, IDS, 0), n_experts = call->args.moe_map_from_ids.num_experts;
    int64_t cells, bytes;
    const sy_status st = syi_check_sizes(call);
    if (st != SY_OK)
        return st;
    if (!syi_mul(n_tokens, n_experts, &cells) ||
        !syi_mul(cells, prob_bytes > 0 ? (int64_t)prob_bytes : 1, &bytes))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "num_experts",
                        "is %lld for %lld tokens, want fewer than 2^63 bytes", (long long)n_experts,
                        (long long)n_tokens);
    return SY_OK;
}

static sy_status check(struct syi_call *call)
{
    const sy_moe_map_from_ids_args *a = &call->args.moe_map_from_ids;
    sy_status st = check_inputs(call);
    if (st != SY_OK)
        return st;
    const int64_t n_tokens = syi_extent(call, IDS, 0);
    const size_t prob_bytes =
        call->tensor[WEIGHTS] != NULL ? syi_elem_bytes(call->tensor[WEIGHTS]->dtype) : 0;
    st = check_overflow(call, prob_bytes);
    if (st == SY_OK)
        st = syi_check_matrix(call, MAP, n_tokens, a->num_experts);
    if (st == SY_OK)
        st = syi_check_matrix(call, PROBS, n_tokens, a->num_experts);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    call->plan.moe_map_from_ids = (struct syi_moe_map_from_ids_plan){
        .n_tokens = n_tokens,
        .n_experts = a->num_experts,
        .n_slots = syi_extent(call, IDS, 1),
        .allow_missing = a->allow_missing,
        .prob_bytes = prob_bytes,
        .ids = syi_rows_of(call, IDS),
        .weights = syi_rows_of(call, WEIGHTS),
        .map = syi_rows_of(call, MAP),
        .probs = syi_rows_of(call, PROBS),
        .id_type = syi_type_at(call, IDS),
    };
    call->rows = n_tokens;
    call->bytes = syi_tensor_bytes(call);
    return SY_OK;
}

SYI_DEFINE_OP(moe_map_from_ids, MOE_MAP_FROM_IDS,
              "the routing map of expert ids, and the probs of their weights")
