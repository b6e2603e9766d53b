/*
 * moe_align_block on the command line. Outputs are as long as the query says.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_align_block.name)

static const struct op_tensor tensors[] = {
    {"ids", FIELD(ids), OP_INPUT, "[T,K]", "I32 I64", "experts of each token"},
    {"expert_map", FIELD(expert_map), OP_OPTIONAL, "[E]", "I32", "number of each expert here; -1: elsewhere"},
    {"sorted_slots", FIELD(sorted_slots), OP_OUTPUT, "[P]", "I32", "slots by expert; T*K: padding"},
    {"block_experts", FIELD(block_experts), OP_OUTPUT, "[P/B]", "I32", "expert of each block; -1: beyond"},
    {"num_padded", FIELD(num_padded), OP_OUTPUT, "[1]", "I32", "places in use, padding included"},
    {"expert_counts", FIELD(expert_counts), OP_OUTPUT, "[E]", "I64", "slots of each expert"},
    {"expert_offsets", FIELD(expert_offsets), OP_OUTPUT, "[E+1]", "I64", "first place of each expert"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "num_experts",
     .kind = OP_INT64,
     .offset = FIELD(num_experts),
     .required = true,
     .text = "E: experts"},
    {.name = "block_size",
     .kind = OP_INT64,
     .offset = FIELD(block_size),
     .required = true,
     .text = "B: every expert gets a multiple of it"},
    {.name = "allow_missing",
     .kind = OP_BOOL,
     .offset = FIELD(allow_missing),
     .text = "ids -1 and E stand for no expert"},
    {.name = "skip_unmapped",
     .kind = OP_BOOL,
     .offset = FIELD(skip_unmapped),
     .text = "no places for experts that are elsewhere"},
    {0},
};

static const int32_t example_ids[3][2] = {{2, 0}, {1, 2}, {0, 2}};
static const struct op_example example[] = {
    {"ids", "I32", 2, {3, 2}, example_ids},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_align_block_args *const args = &call->args.moe_align_block;
    sy_query query = {0};
    const sy_status status = sy_moe_align_block_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->sorted_slots = op_output(outputs, "sorted_slots", SY_I32, 1, &query.rows);
    args->block_experts = op_output(outputs, "block_experts", SY_I32, 1, &query.slots);
    args->num_padded = op_output(outputs, "num_padded", SY_I32, 1, (int64_t[]){1});
    args->expert_counts = op_output(outputs, "expert_counts", SY_I64, 1, &args->num_experts);
    args->expert_offsets =
        op_output(outputs, "expert_offsets", SY_I64, 1, (int64_t[]){args->num_experts + 1});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_align_block(ctx, &call->args.moe_align_block);
}

const struct op op_moe_align_block = {
    .name = "moe_align_block",
    .summary = "list the slots of each expert, padded to whole blocks",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--num-experts 4 --block-size 2",
    .example_text = "three tokens with two of four experts each",
    .size = size_outputs,
    .call = call_operator,
};
