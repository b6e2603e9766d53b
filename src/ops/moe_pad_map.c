/*
 * moe_pad_map: check and plan.
 */
#include "ops/call.h"

enum { MAP, PADDED, COUNTS, N_TENSORS };

static const sy_field_info fields[] = {
    [MAP] = SYI_TENSOR(moe_pad_map, routing_map, 0, SYI_BYTE_TYPES, 0, 2, 2, "T E",
                       "not 0: token t goes to expert e"),
    [PADDED] = SYI_TENSOR(moe_pad_map, padded_map, SY_FIELD_OUT, 0, MAP + 1, 2, 2, "T E",
                          "routing_map with the added tokens"),
    [COUNTS] = SYI_TENSOR(moe_pad_map, expert_counts, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I64),
                          0, 1, 1, "E", "tokens of each expert, padding included"),
    SYI_SCALAR(moe_pad_map, alignment, I64, SY_FIELD_REQUIRED,
               .help = "every expert gets a multiple of this many tokens"),
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

SYI_DEFINE_OP(moe_pad_map, MOE_PAD_MAP,
              "route further tokens so that every expert has a multiple of alignment")
