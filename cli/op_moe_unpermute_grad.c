/*
 * moe_unpermute_grad on the command line. The gradient of probs is written when probs are there.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_unpermute_grad.name)

static const struct op_tensor tensors[] = {
    {"grad_tokens", FIELD(grad_tokens), OP_INPUT, "[T,H]", "F32 F16 BF16",
     "gradient of the tokens moe_unpermute made"},
    {"sorted_indices", FIELD(sorted_indices), OP_INPUT, "[M]", "I32", "those of the forward call"},
    {"permuted_tokens", FIELD(permuted_tokens), OP_OPTIONAL, "[M,H]", "as grad_tokens",
     "rows of the forward call; probs need them"},
    {"routing_map", FIELD(routing_map), OP_OPTIONAL, "[T,E]", "BOOL I8 U8",
     "experts of each token; probs need it"},
    {"probs", FIELD(probs), OP_OPTIONAL, "[T,E]", "F32 F16 BF16", "weights; missing: 1"},
    {"grad_permuted_tokens", FIELD(grad_permuted_tokens), OP_OUTPUT, "[M,H]", "as grad_tokens",
     "gradient of permuted_tokens"},
    {"grad_probs", FIELD(grad_probs), OP_OUTPUT, "[T,E]", "as probs",
     "gradient of probs, when probs is given"},
    {0},
};

static const struct op_field fields[] = {
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

static const float example_grads[4][2] = {{1, 0}, {0, 1}, {1, 1}, {2, -1}};
static const int32_t example_indices[8] = {0, 5, 3, 6, 1, 4, 2, 7};
static const float example_rows[8][2] = {{1, 1},  {2, -1}, {3, -3},  {4, -5},
                                         {5, -7}, {6, -9}, {7, -11}, {8, -13}};
static const uint8_t example_map[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}};
static const float example_probs[4][3] = {
    {.5f, 0, .5f}, {0, .25f, .75f}, {.125f, .875f, 0}, {.625f, 0, .375f}};
static const struct op_example example[] = {
    {"grad_tokens", "F32", 2, {4, 2}, example_grads},    {"sorted_indices", "I32", 1, {8}, example_indices},
    {"permuted_tokens", "F32", 2, {8, 2}, example_rows}, {"routing_map", "BOOL", 2, {4, 3}, example_map},
    {"probs", "F32", 2, {4, 3}, example_probs},          {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_unpermute_grad_args *const args = &call->args.moe_unpermute_grad;
    sy_query query = {0};
    const sy_status status = sy_moe_unpermute_grad_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->grad_permuted_tokens = op_output(outputs, "grad_permuted_tokens", args->grad_tokens->dtype, 2,
                                           (int64_t[]){query.rows, args->grad_tokens->shape[1]});
    if (args->probs)
        args->grad_probs = op_output(outputs, "grad_probs", args->probs->dtype, 2, args->probs->shape);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_unpermute_grad(ctx, &call->args.moe_unpermute_grad);
}

const struct op op_moe_unpermute_grad = {
    .name = "moe_unpermute_grad",
    .summary = "gradients of permuted rows and probs from that of moe_unpermute's tokens",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "",
    .example_text = "four tokens, eight rows of three experts",
    .size = size_outputs,
    .call = call_operator,
};
