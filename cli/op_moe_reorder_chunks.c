/*
 * moe_reorder_chunks on the command line. Rows beyond the sum of the counts come out as zero.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_reorder_chunks.name)

static const struct op_tensor tensors[] = {
    {"rows", FIELD(rows), OP_INPUT, "[N,...]", "any", "chunks of rows, rank by rank"},
    {"counts", FIELD(counts), OP_INPUT, "[R,E]", "I32 I64", "rows of each rank and expert"},
    {"extra", FIELD(extra), OP_OPTIONAL, "[N,...]", "any", "what goes with the rows: probs, scales"},
    {"reordered_rows", FIELD(reordered_rows), OP_OUTPUT, "as rows", "as rows", "the chunks expert by expert"},
    {"reordered_extra", FIELD(reordered_extra), OP_OUTPUT, "as extra", "as extra", "when extra is given"},
    {"expert_offsets", FIELD(expert_offsets), OP_OUTPUT, "[E+1]", "I64", "first row of each expert"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "inverse",
     .kind = OP_BOOL,
     .offset = FIELD(inverse),
     .text = "the way back: expert by expert to rank by rank"},
    {0},
};

static const float example_rows[7][2] = {{0, 1}, {10, 11}, {20, 21}, {30, 31}, {40, 41}, {50, 51}, {60, 61}};
static const int32_t example_counts[2][3] = {{2, 0, 1}, {1, 2, 1}};
static const struct op_example example[] = {
    {"rows", "F32", 2, {7, 2}, example_rows},
    {"counts", "I32", 2, {2, 3}, example_counts},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_reorder_chunks_args *const args = &call->args.moe_reorder_chunks;
    sy_query query = {0};
    const sy_status status = sy_moe_reorder_chunks_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const DLTensor *const rows = args->rows, *const extra = args->extra;
    args->reordered_rows = op_output(outputs, "reordered_rows", rows->dtype, rows->ndim, rows->shape);
    if (extra)
        args->reordered_extra =
            op_output(outputs, "reordered_extra", extra->dtype, extra->ndim, extra->shape);
    args->expert_offsets =
        op_output(outputs, "expert_offsets", SY_I64, 1, (int64_t[]){args->counts->shape[1] + 1});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_reorder_chunks(ctx, &call->args.moe_reorder_chunks);
}

const struct op op_moe_reorder_chunks = {
    .name = "moe_reorder_chunks",
    .summary = "bring the rows of each expert together after an exchange, and back",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "",
    .example_text = "seven rows from two ranks for three experts",
    .size = size_outputs,
    .call = call_operator,
};
