/*
 * moe_convert_indices on the command line.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_convert_indices.name)

static const struct op_tensor tensors[] = {
    {"sorted_indices", FIELD(sorted_indices), OP_INPUT, "by --from", "I32",
     "slot [T*K], row [M], te [T,2E+1]"},
    {"expert_offsets", FIELD(expert_offsets), OP_OPTIONAL, "[E+1]", "I64",
     "first row of each expert, for --to te"},
    {"converted_indices", FIELD(converted_indices), OP_OUTPUT, "by --to", "I32", "the same permutation"},
    {0},
};

#define FORMS .words = {"slot", "row", "te"}, .values = {SY_INDEX_SLOT, SY_INDEX_ROW, SY_INDEX_TE}

static const struct op_field fields[] = {
    {.name = "from",
     .kind = OP_WORD,
     .offset = FIELD(from),
     .required = true,
     FORMS,
     .text = "slot: row of each slot; row: token of each row; te: row_id_map"},
    {.name = "to", .kind = OP_WORD, .offset = FIELD(to), .required = true, FORMS, .text = "the form wanted"},
    {.name = "num_tokens",
     .kind = OP_INT64,
     .offset = FIELD(num_tokens),
     .required = true,
     .text = "T: tokens"},
    {.name = "num_rows",
     .kind = OP_INT64,
     .offset = FIELD(num_rows),
     .preset = "0",
     .text = "M: rows; 0: as many as sorted_indices has, for slot and row"},
    {.name = "k",
     .kind = OP_INT64,
     .offset = FIELD(k),
     .preset = "0",
     .text = "slots per token, for --to slot; 0: M / T"},
    {0},
};

static const int32_t example_indices[8] = {0, 5, 3, 6, 1, 4, 2, 7};
static const int64_t example_offsets[4] = {0, 3, 5, 8};
static const struct op_example example[] = {
    {"sorted_indices", "I32", 1, {8}, example_indices},
    {"expert_offsets", "I64", 1, {4}, example_offsets},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_convert_indices_args *const args = &call->args.moe_convert_indices;
    sy_query query = {0};
    const sy_status status = sy_moe_convert_indices_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const bool te = args->to == SY_INDEX_TE;
    const int64_t shape[2] = {query.rows, te ? 2 * args->expert_offsets->shape[0] - 1 : 1};
    args->converted_indices = op_output(outputs, "converted_indices", SY_I32, te ? 2 : 1, shape);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_convert_indices(ctx, &call->args.moe_convert_indices);
}

const struct op op_moe_convert_indices = {
    .name = "moe_convert_indices",
    .summary = "write sorted_indices in another form: row of each slot, token of each row, row_id_map",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--from slot --to te --num-tokens 4",
    .example_text = "the indices of moe_permute's example: four tokens, three experts, eight rows",
    .size = size_outputs,
    .call = call_operator,
};
