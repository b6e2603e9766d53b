/*
 * moe_permute_grad on the command line. The gradient of probs is written when that of permuted_probs is there.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_permute_grad.name)

static const struct op_tensor tensors[] = {
    {"grad_permuted_tokens", FIELD(grad_permuted_tokens), OP_INPUT, "[M,H]", "F32 F16 BF16",
     "gradient of permuted_tokens"},
    {"sorted_indices", FIELD(sorted_indices), OP_INPUT, "[M]", "I32", "as moe_permute made them"},
    {"grad_permuted_probs", FIELD(grad_permuted_probs), OP_OPTIONAL, "[M]", "F32 F16 BF16",
     "gradient of permuted_probs"},
    {"routing_map", FIELD(routing_map), OP_OPTIONAL, "[T,E]", "BOOL I8 U8",
     "experts of each token; packed probs need it"},
    {"grad_tokens", FIELD(grad_tokens), OP_OUTPUT, "[T,H]", "as grad_permuted_tokens", "gradient of tokens"},
    {"grad_probs", FIELD(grad_probs), OP_OUTPUT, "[T,E]", "as grad_permuted_probs",
     "gradient of probs, when grad_permuted_probs is given"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "num_experts", .kind = OP_INT64, .offset = FIELD(num_experts), .text = "E: experts, 1 or more"},
    {.name = "num_tokens", .kind = OP_INT64, .offset = FIELD(num_tokens), .text = "T: tokens, 1 or more"},
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
static const float example_row_probs[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static const uint8_t example_map[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}};
static const struct op_example example[] = {
    {"grad_permuted_tokens", "F32", 2, {8, 2}, example_rows},
    {"sorted_indices", "I32", 1, {8}, example_indices},
    {"grad_permuted_probs", "F32", 1, {8}, example_row_probs},
    {"routing_map", "BOOL", 2, {4, 3}, example_map},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_permute_grad_args *const args = &call->args.moe_permute_grad;
    sy_query query = {0};
    const sy_status status = sy_moe_permute_grad_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->grad_tokens = op_output(outputs, "grad_tokens", args->grad_permuted_tokens->dtype, 2,
                                  (int64_t[]){query.rows, args->grad_permuted_tokens->shape[1]});
    if (args->grad_permuted_probs)
        args->grad_probs = op_output(outputs, "grad_probs", args->grad_permuted_probs->dtype, 2,
                                     (int64_t[]){query.rows, args->num_experts});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_permute_grad(ctx, &call->args.moe_permute_grad);
}

const struct op op_moe_permute_grad = {
    .name = "moe_permute_grad",
    .summary = "gradients of tokens and probs from those of moe_permute's outputs",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--num-experts 3 --num-tokens 4",
    .example_text = "eight rows of three experts, four tokens",
    .size = size_outputs,
    .call = call_operator,
};
