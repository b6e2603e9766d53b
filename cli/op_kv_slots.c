/*
 * kv_slots on the command line. Slots have the type of the positions.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.kv_slots.name)

static const struct op_tensor tensors[] = {
    {"batch", FIELD(batch), OP_OPTIONAL, "[...]", "I32 I64",
     "table row of each token; missing: the only one"},
    {"position", FIELD(position), OP_INPUT, "[...]", "I32 I64", "number of each token in its sequence"},
    {"block_table", FIELD(block_table), OP_OPTIONAL, "[R,n] or [n]", "I32 I64",
     "physical block of each logical one"},
    {"page_indices", FIELD(page_indices), OP_OPTIONAL, "[N]", "I32 I64",
     "lists of physical blocks, in place of block_table"},
    {"indptr", FIELD(indptr), OP_OPTIONAL, "[R+1]", "I32 I64", "where each list begins, and the end"},
    {"last_page_len", FIELD(last_page_len), OP_OPTIONAL, "[R]", "I32 I64",
     "tokens of each list's last page; missing: S"},
    {"slots", FIELD(slots), OP_OUTPUT, "[...]", "as position", "cache row of each token; -1: padding"},
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
     .text = "a position of -1: refused, or slot -1 (zero and skip)"},
    {0},
};

static const int32_t example_batch[4] = {0, 0, 1, 1};
static const int32_t example_position[4] = {2, 3, 0, 1};
static const int32_t example_table[2][2] = {{2, 0}, {1, -1}};
static const struct op_example example[] = {
    {"batch", "I32", 1, {4}, example_batch},
    {"position", "I32", 1, {4}, example_position},
    {"block_table", "I32", 2, {2, 2}, example_table},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_kv_slots_args *const args = &call->args.kv_slots;
    sy_query query = {0};
    const sy_status status = sy_kv_slots_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->slots =
        op_output(outputs, "slots", args->position->dtype, args->position->ndim, args->position->shape);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_kv_slots(ctx, &call->args.kv_slots);
}

const struct op op_kv_slots = {
    .name = "kv_slots",
    .summary = "tell which row of a paged KV cache every new token gets",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--block-size 2",
    .example_text = "two new tokens of each of two sequences, in blocks of two",
    .size = size_outputs,
    .call = call_operator,
};
