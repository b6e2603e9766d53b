/*
 * moe_unpermute_ids on the command line.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_unpermute_ids.name)

static const struct op_tensor tensors[] = {
    {"permuted_tokens", FIELD(permuted_tokens), OP_INPUT, "[M,H]", "F32 F16 BF16", "rows grouped by expert"},
    {"sorted_indices", FIELD(sorted_indices), OP_INPUT, "[T*K]", "I32", "row of each slot"},
    {"probs", FIELD(probs), OP_OPTIONAL, "[T,K]", "F32 F16 BF16", "weight of each slot; missing: 1"},
    {"tokens", FIELD(tokens), OP_OUTPUT, "[T,H]", "as permuted_tokens",
     "the weighted sum of each token's rows"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "num_tokens",
     .kind = OP_INT64,
     .offset = FIELD(num_tokens),
     .preset = "0",
     .text = "T, when probs is missing; 0: one slot per token"},
    {.name = "row_begin",
     .kind = OP_INT64,
     .offset = FIELD(row_begin),
     .preset = "0",
     .text = "which row the first of permuted_tokens is"},
    {0},
};

static const float example_rows[6][2] = {{10, 11}, {30, 31}, {20, 21}, {10, 11}, {20, 21}, {30, 31}};
static const int32_t example_indices[6] = {3, 0, 2, 4, 1, 5};
static const float example_probs[3][2] = {{.75f, .25f}, {.5f, .5f}, {.625f, .375f}};
static const struct op_example example[] = {
    {"permuted_tokens", "F32", 2, {6, 2}, example_rows},
    {"sorted_indices", "I32", 1, {6}, example_indices},
    {"probs", "F32", 2, {3, 2}, example_probs},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_unpermute_ids_args *const args = &call->args.moe_unpermute_ids;
    sy_query query = {0};
    const sy_status status = sy_moe_unpermute_ids_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->tokens = op_output(outputs, "tokens", args->permuted_tokens->dtype, 2,
                             (int64_t[]){query.rows, args->permuted_tokens->shape[1]});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_unpermute_ids(ctx, &call->args.moe_unpermute_ids);
}

const struct op op_moe_unpermute_ids = {
    .name = "moe_unpermute_ids",
    .summary = "add up the rows of each token, weighted, where moe_permute_ids put them",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "",
    .example_text = "the rows of moe_permute_ids' example, untouched by experts",
    .size = size_outputs,
    .call = call_operator,
};
