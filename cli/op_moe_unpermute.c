/*
 * moe_unpermute on the command line.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_unpermute.name)

static const struct op_tensor tensors[] = {
    {"permuted_tokens", FIELD(permuted_tokens), OP_INPUT, "[M,H]", "F32 F16 BF16", "rows grouped by expert"},
    {"sorted_indices", FIELD(sorted_indices), OP_INPUT, "[M]", "I32",
     "row of each slot; capacity mode: token of each row"},
    {"routing_map", FIELD(routing_map), OP_OPTIONAL, "[T,E]", "BOOL I8 U8",
     "experts of each token; packed probs need it"},
    {"probs", FIELD(probs), OP_OPTIONAL, "[T,E]", "F32 F16 BF16", "weights; missing: 1"},
    {"tokens", FIELD(tokens), OP_OUTPUT, "[T,H]", "as permuted_tokens",
     "the weighted rows of each token, added up"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "num_tokens",
     .kind = OP_INT64,
     .offset = FIELD(num_tokens),
     .text = "T, when neither probs nor routing_map tells it"},
    {.name = "drop_and_pad",
     .kind = OP_BOOL,
     .offset = FIELD(drop_and_pad),
     .text = "capacity mode: sorted_indices holds the token of each row"},
    {.name = "zero_pad",
     .kind = OP_BOOL,
     .offset = FIELD(zero_pad),
     .text = "capacity mode: index -1 marks a row that belongs to no token"},
    {0},
};

static const float example_rows[8][2] = {{1, 1},  {2, -1}, {3, -3},  {4, -5},
                                         {5, -7}, {6, -9}, {7, -11}, {8, -13}};
static const int32_t example_indices[8] = {0, 5, 3, 6, 1, 4, 2, 7};
static const uint8_t example_map[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}};
static const float example_probs[4][3] = {
    {.5f, 0, .5f}, {0, .25f, .75f}, {.125f, .875f, 0}, {.625f, 0, .375f}};
static const struct op_example example[] = {
    {"permuted_tokens", "F32", 2, {8, 2}, example_rows},
    {"sorted_indices", "I32", 1, {8}, example_indices},
    {"routing_map", "BOOL", 2, {4, 3}, example_map},
    {"probs", "F32", 2, {4, 3}, example_probs},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_unpermute_args *const args = &call->args.moe_unpermute;
    sy_query query = {0};
    const sy_status status = sy_moe_unpermute_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->tokens = op_output(outputs, "tokens", args->permuted_tokens->dtype, 2,
                             (int64_t[]){query.rows, args->permuted_tokens->shape[1]});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_unpermute(ctx, &call->args.moe_unpermute);
}

const struct op op_moe_unpermute = {
    .name = "moe_unpermute",
    .summary = "bring permuted rows back to their tokens, weighted and added up",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "",
    .example_text = "eight rows of three experts back to four tokens",
    .size = size_outputs,
    .call = call_operator,
};
