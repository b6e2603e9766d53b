/*
 * moe_pad_map: check and plan.
 */
#include "ops/call.h"

enum { MAP, PADDED, COUNTS, N_TENSORS };

#define FIELD(name) #name, offsetof(sy_moe_pad_map_args, name)

static const struct syi_rule rules[N_TENSORS] = {
    [MAP] = {FIELD(routing_map), 0, SYI_BYTE_TYPES, 0, 2, 2},
    [PADDED] = {FIELD(padded_map), SYI_OUT, 0, MAP + 1, 2, 2},
    [COUNTS] = {FIELD(expert_counts), SYI_OUT | SYI_OPTIONAL | SYI_VECTOR, SYI_BIT(SYI_I64), 0, 1, 1},
};

static sy_status check(struct syi_call *call)
{
    sy_status st = syi_check_tensors(call, false);
    const int64_t n_tokens = syi_extent(call, MAP, 0), n_experts = syi_extent(call, MAP, 1);
    const int64_t alignment = call->args.moe_pad_map.alignment;
    if (st == SY_OK)
        st = syi_check_value(call, "alignment", alignment, 1, INT64_MAX);
    if (st == SY_OK)
        st = syi_check_count(call, "routing_map", "tokens", n_tokens);
    if (st == SY_OK)
        st = syi_check_count(call, "routing_map", "experts", n_experts);
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_check_matrix(call, PADDED, n_tokens, n_experts);
    if (st == SY_OK)
        st = syi_check_vector(call, COUNTS, n_experts);
    if (st != SY_OK)
        return st;
    call->may_alias[0] = MAP;
    call->may_alias[1] = PADDED;
    st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    call->plan.moe_pad_map = (struct syi_moe_pad_map_plan){
        .n_tokens = n_tokens,
        .n_experts = n_experts,
        .alignment = alignment,
        .map = syi_rows_of(call, MAP),
        .padded = syi_rows_of(call, PADDED),
        .counts = syi_data(call, COUNTS),
    };
    call->rows = n_tokens;
    call->bytes = syi_tensor_bytes(call);
    return SY_OK;
}

static const struct syi_op op = {"moe_pad_map", SYI_MOE_PAD_MAP, sizeof(sy_moe_pad_map_args),
                                 N_TENSORS,     rules,           check};

sy_status sy_moe_pad_map_n(sy_ctx *ctx, const sy_moe_pad_map_args *args, size_t args_bytes)
{
    return syi_run(ctx, &op, args, args_bytes);
}

sy_status sy_moe_pad_map_query_n(sy_ctx *ctx, const sy_moe_pad_map_args *args, size_t args_bytes,
                                 sy_query *query, size_t query_bytes)
{
    return syi_query(ctx, &op, args, args_bytes, query, query_bytes);
}
