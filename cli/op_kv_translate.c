/*
 * kv_translate on the command line. Slots and counts of valid entries have the type of the indices.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.kv_translate.name)

static const struct op_tensor tensors[] = {
    {"indices", FIELD(indices), OP_INPUT, "[...,k]", "I32 I64", "logical tokens"},
    {"block_table", FIELD(block_table), OP_OPTIONAL, "[R,n] or [n]", "I32 I64",
     "physical block of each logical one"},
    {"req_id", FIELD(req_id), OP_OPTIONAL, "[B]", "I32 I64",
     "table row of each index row; missing: 0, 1, ..."},
    {"counts", FIELD(counts), OP_OPTIONAL, "[B]", "I32 I64", "live indices of each index row; missing: k"},
    {"seq_lens", FIELD(seq_lens), OP_OPTIONAL, "[B]", "I32 I64",
     "tokens of each sequence; missing: its table"},
    {"page_indices", FIELD(page_indices), OP_OPTIONAL, "[N]", "I32 I64",
     "lists of physical blocks, in place of block_table"},
    {"indptr", FIELD(indptr), OP_OPTIONAL, "[R+1]", "I32 I64", "where each list begins, and the end"},
    {"last_page_len", FIELD(last_page_len), OP_OPTIONAL, "[R]", "I32 I64",
     "tokens of each list's last page; missing: S"},
    {"slots", FIELD(slots), OP_OUTPUT, "[...,k]", "as indices", "cache row of each index; -1: padding"},
    {"valid", FIELD(valid), OP_OUTPUT, "[B]", "as indices", "entries of each row that are not padding"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "block_size",
     .kind = OP_INT64,
     .offset = FIELD(block_size),
     .required = true,
     .text = "S: rows per block"},
    {.name = "num_rows",
     .kind = OP_INT64,
     .offset = FIELD(num_rows),
     .text = "rows of the cache; 0 (default): not known"},
    {.name = "pad",
     .kind = OP_WORD,
     .offset = FIELD(pad),
     .preset = "error",
     .words = {"error", "zero", "skip"},
     .values = {SY_PAD_ERROR, SY_PAD_ZERO, SY_PAD_SKIP},
     .text = "an index of -1: refused, or slot -1 (zero and skip)"},
    {.name = "world",
     .kind = OP_INT64,
     .offset = FIELD(world),
     .preset = "0",
     .text = "ranks that share the tokens; 0: 1"},
    {.name = "rank",
     .kind = OP_INT64,
     .offset = FIELD(rank),
     .preset = "0",
     .text = "rank of the table; tokens of others: slot -1"},
    {.name = "interleave",
     .kind = OP_INT64,
     .offset = FIELD(interleave),
     .preset = "0",
     .text = "consecutive tokens of a rank; 0: 1"},
    {0},
};

static const int32_t example_indices[2][3] = {{4, 0, -1}, {2, 1, -1}};
static const int32_t example_table[2][3] = {{4, 1, 3}, {5, 0, -1}};
static const struct op_example example[] = {
    {"indices", "I32", 2, {2, 3}, example_indices},
    {"block_table", "I32", 2, {2, 3}, example_table},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_kv_translate_args *const args = &call->args.kv_translate;
    sy_query query = {0};
    const sy_status status = sy_kv_translate_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const DLTensor *const indices = args->indices;
    int64_t batch = 1;
    for (int i = 0; i + 1 < indices->ndim; i++)
        batch *= indices->shape[i];
    args->slots = op_output(outputs, "slots", indices->dtype, indices->ndim, indices->shape);
    args->valid = op_output(outputs, "valid", indices->dtype, 1, &batch);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_kv_translate(ctx, &call->args.kv_translate);
}

const struct op op_kv_translate = {
    .name = "kv_translate",
    .summary = "tell which rows of a paged KV cache selected tokens have",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--block-size 2 --pad skip",
    .example_text = "two sequences in blocks of two, three tokens asked of each, one of them none",
    .size = size_outputs,
    .call = call_operator,
};
