/*
 * moe_ids_from_map: check and plan.
 */
#include "ops/call.h"

enum { MAP, PROBS, IDS, WEIGHTS, N_TENSORS };

static const sy_field_info fields[] = {
    [MAP] = SYI_TENSOR(moe_ids_from_map, routing_map, 0, SYI_BYTE_TYPES, 0, 2, 2, "T E",
                       "not 0: token t goes to expert e"),
    [PROBS] = SYI_TENSOR(moe_ids_from_map, probs, SY_FIELD_OPTIONAL, SYI_FLOAT_TYPES, 0, 2, 2, "T E",
                         "weight of each expert"),
    [IDS] = SYI_TENSOR(moe_ids_from_map, ids, SY_FIELD_OUT, SYI_INDEX_TYPES, 0, 2, 2, "T K",
                       "experts of each token, ascending; -1: none", .preset = "i32"),
    [WEIGHTS] = SYI_TENSOR(moe_ids_from_map, weights, SY_FIELD_OUT | SY_FIELD_OPTIONAL, 0, PROBS + 1, 2, 2,
                           "T K", "when probs is given; 0: none"),
    SYI_SCALAR(moe_ids_from_map, k, I64, SY_FIELD_REQUIRED, .help = "K: slots per token"),
};

static sy_status check_inputs(struct syi_call *call)
{
    const sy_moe_ids_from_map_args *a = &call->args.moe_ids_from_map;
    sy_status st = syi_check_both(call, "probs", a->probs, "weights", a->weights);
    if (st == SY_OK)
        st = syi_check_tensors(call, false);
    const int64_t n_experts = syi_extent(call, MAP, 1);
    if (st == SY_OK)
        st = syi_check_matrix(call, PROBS, syi_extent(call, MAP, 0), n_experts);
    if (st == SY_OK)
        st = syi_check_value(call, "k", a->k, 0, INT64_MAX);
    if (st != SY_OK || n_experts <= INT32_MAX)
        return st;
    const sy_fault fault = syi_value_fault(SY_ERR_VALUE, SY_FAULT_NONE, "routing_map", n_experts, INT32_MAX);
    return syi_fail_at(call->ctx, &fault, "means %lld experts, want at most 2147483647",
                       (long long)n_experts);
}

/* The output must be countable even when the tensor itself is not there yet. */
static sy_status check_overflow(struct syi_call *call)
{
    const int64_t n_tokens = syi_extent(call, MAP, 0), k = call->args.moe_ids_from_map.k;
    int64_t slots, bytes;
    const sy_status st = syi_check_sizes(call);
    if (st != SY_OK)
        return st;
    if (!syi_mul(n_tokens, k, &slots) || !syi_mul(slots, (int64_t)sizeof(int64_t), &bytes))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "k",
                        "is %lld for %lld tokens, want fewer than 2^63 bytes", (long long)k,
                        (long long)n_tokens);
    return SY_OK;
}

static sy_status check(struct syi_call *call)
{
    const int64_t k = call->args.moe_ids_from_map.k;
    sy_status st = check_inputs(call);
    const int64_t n_tokens = syi_extent(call, MAP, 0);
    if (st == SY_OK)
        st = check_overflow(call);
    if (st == SY_OK)
        st = syi_check_matrix(call, IDS, n_tokens, k);
    if (st == SY_OK)
        st = syi_check_matrix(call, WEIGHTS, n_tokens, k);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    call->plan.moe_ids_from_map = (struct syi_moe_ids_from_map_plan){
        .n_tokens = n_tokens,
        .n_experts = syi_extent(call, MAP, 1),
        .n_slots = k,
        .prob_bytes = call->tensor[PROBS] != NULL ? syi_elem_bytes(call->tensor[PROBS]->dtype) : 0,
        .map = syi_rows_of(call, MAP),
        .probs = syi_rows_of(call, PROBS),
        .ids = syi_rows_of(call, IDS),
        .weights = syi_rows_of(call, WEIGHTS),
        .id_type = syi_type_at(call, IDS),
    };
    call->rows = n_tokens;
    call->bytes = syi_tensor_bytes(call);
    return SY_OK;
}

SYI_DEFINE_OP(moe_ids_from_map, MOE_IDS_FROM_MAP,
              "the expert ids of a routing map, ascending, and the weights of its probs")
