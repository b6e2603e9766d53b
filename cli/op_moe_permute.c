/*
 * moe_permute on the command line. Counts and offsets are always written: they cost nothing beside the rows,
 * and whoever runs experts on the result needs them.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_permute.name)

static const struct op_tensor tensors[] = {
    {"tokens", FIELD(tokens), OP_INPUT, "[T,H]", "1, 2, 4 or 8 bytes", "one row per token"},
    {"routing_map", FIELD(routing_map), OP_INPUT, "[T,E]", "BOOL I8 U8", "not 0: token t goes to expert e"},
    {"probs", FIELD(probs), OP_OPTIONAL, "[T,E]", "F32 F16 BF16", "router probabilities"},
    {"permuted_tokens", FIELD(permuted_tokens), OP_OUTPUT, "[M,H]", "as tokens", "rows grouped by expert"},
    {"sorted_indices", FIELD(sorted_indices), OP_OUTPUT, "[M]", "I32",
     "row of each slot; capacity mode: token of each row"},
    {"permuted_probs", FIELD(permuted_probs), OP_OUTPUT, "[M]", "as probs", "when probs is given"},
    {"expert_counts", FIELD(expert_counts), OP_OUTPUT, "[E]", "I64", "tokens routed to each expert"},
    {"expert_offsets", FIELD(expert_offsets), OP_OUTPUT, "[E+1]", "I64", "first row of each expert"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "num_out_tokens",
     .kind = OP_INT64,
     .offset = FIELD(num_out_tokens),
     .required = true,
     .text = "N: N/T slots per token, in capacity mode N/E rows per expert"},
    {.name = "drop_and_pad",
     .kind = OP_BOOL,
     .offset = FIELD(drop_and_pad),
     .text = "capacity mode: every expert gets exactly C rows"},
    {.name = "zero_pad",
     .kind = OP_BOOL,
     .offset = FIELD(zero_pad),
     .text = "capacity mode: padding rows are zero, with index -1"},
    {0},
};

static const float example_tokens[4][2] = {{10, 11}, {20, 21}, {30, 31}, {40, 41}};
static const uint8_t example_map[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}};
static const float example_probs[4][3] = {
    {.5f, 0, .5f}, {0, .25f, .75f}, {.125f, .875f, 0}, {.625f, 0, .375f}};
static const struct op_example example[] = {
    {"tokens", "F32", 2, {4, 2}, example_tokens},
    {"routing_map", "BOOL", 2, {4, 3}, example_map},
    {"probs", "F32", 2, {4, 3}, example_probs},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_permute_args *const args = &call->args.moe_permute;
    sy_query query = {0};
    const sy_status status = sy_moe_permute_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const int64_t rows = query.rows;
    const int64_t hidden = args->tokens->shape[1];
    const int64_t experts = args->routing_map->shape[1];
    args->permuted_tokens =
        op_output(outputs, "permuted_tokens", args->tokens->dtype, 2, (int64_t[]){rows, hidden});
    args->sorted_indices = op_output(outputs, "sorted_indices", SY_I32, 1, (int64_t[]){rows});
    if (args->probs)
        args->permuted_probs = op_output(outputs, "permuted_probs", args->probs->dtype, 1, (int64_t[]){rows});
    args->expert_counts = op_output(outputs, "expert_counts", SY_I64, 1, (int64_t[]){experts});
    args->expert_offsets = op_output(outputs, "expert_offsets", SY_I64, 1, (int64_t[]){experts + 1});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_permute(ctx, &call->args.moe_permute);
}

const struct op op_moe_permute = {
    .name = "moe_permute",
    .summary = "copy each token row to one row per expert it is routed to, grouped by expert",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--num-out-tokens 8",
    .example_text = "four tokens, three experts, two experts per token",
    .size = size_outputs,
    .call = call_operator,
};
