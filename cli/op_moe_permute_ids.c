/*
 * moe_permute_ids on the command line. Counts and offsets are written when the number of experts is given.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_permute_ids.name)

static const struct op_tensor tensors[] = {
    {"tokens", FIELD(tokens), OP_INPUT, "[T,H]", "1, 2, 4 or 8 bytes", "one row per token"},
    {"ids", FIELD(ids), OP_INPUT, "[T,K]", "I32 I64", "experts of each token"},
    {"probs", FIELD(probs), OP_OPTIONAL, "[T,K]", "F32 F16 BF16", "weight of each slot"},
    {"permuted_tokens", FIELD(permuted_tokens), OP_OUTPUT, "[M,H]", "as tokens", "rows grouped by expert"},
    {"sorted_indices", FIELD(sorted_indices), OP_OUTPUT, "[T*K]", "I32",
     "row of each slot, kept or not; -1: missing"},
    {"permuted_probs", FIELD(permuted_probs), OP_OUTPUT, "[M]", "as probs", "when probs is given"},
    {"expert_counts", FIELD(expert_counts), OP_OUTPUT, "[E]", "I64",
     "with --num-experts: slots of each expert"},
    {"expert_offsets", FIELD(expert_offsets), OP_OUTPUT, "[E+1]", "I64",
     "with --num-experts: first row of each"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "num_out_tokens",
     .kind = OP_INT64,
     .offset = FIELD(num_out_tokens),
     .preset = "0",
     .text = "N: rows kept; 0: all; negative: all but the last -N"},
    {.name = "num_experts",
     .kind = OP_INT64,
     .offset = FIELD(num_experts),
     .preset = "0",
     .text = "E: ids must be below; 0: any numbers"},
    {.name = "allow_missing",
     .kind = OP_BOOL,
     .offset = FIELD(allow_missing),
     .text = "ids -1 and E stand for no expert"},
    {.name = "window",
     .kind = OP_BOOL,
     .offset = FIELD(window),
     .text = "write rows from --row-begin to --row-end only"},
    {.name = "row_begin",
     .kind = OP_INT64,
     .offset = FIELD(row_begin),
     .preset = "0",
     .text = "first row that is written"},
    {.name = "row_end",
     .kind = OP_INT64,
     .offset = FIELD(row_end),
     .preset = "0",
     .text = "row behind the last that is written"},
    {0},
};

static const float example_tokens[3][2] = {{10, 11}, {20, 21}, {30, 31}};
static const int32_t example_ids[3][2] = {{2, 0}, {1, 2}, {0, 2}};
static const float example_probs[3][2] = {{.75f, .25f}, {.5f, .5f}, {.625f, .375f}};
static const struct op_example example[] = {
    {"tokens", "F32", 2, {3, 2}, example_tokens},
    {"ids", "I32", 2, {3, 2}, example_ids},
    {"probs", "F32", 2, {3, 2}, example_probs},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_permute_ids_args *const args = &call->args.moe_permute_ids;
    sy_query query = {0};
    const sy_status status = sy_moe_permute_ids_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const int64_t rows = query.rows, slots = args->ids->shape[0] * args->ids->shape[1];
    args->permuted_tokens = op_output(outputs, "permuted_tokens", args->tokens->dtype, 2,
                                      (int64_t[]){rows, args->tokens->shape[1]});
    args->sorted_indices = op_output(outputs, "sorted_indices", SY_I32, 1, &slots);
    if (args->probs)
        args->permuted_probs = op_output(outputs, "permuted_probs", args->probs->dtype, 1, &rows);
    if (args->num_experts > 0) {
        args->expert_counts = op_output(outputs, "expert_counts", SY_I64, 1, &args->num_experts);
        args->expert_offsets =
            op_output(outputs, "expert_offsets", SY_I64, 1, (int64_t[]){args->num_experts + 1});
    }
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_permute_ids(ctx, &call->args.moe_permute_ids);
}

const struct op op_moe_permute_ids = {
    .name = "moe_permute_ids",
    .summary = "copy each token row to one row per expert it names, grouped by expert",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--num-experts 3",
    .example_text = "three tokens with two of three experts each",
    .size = size_outputs,
    .call = call_operator,
};
