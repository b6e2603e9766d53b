/*
 * moe_capacity on the command line: one number, as a tensor of one element.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_capacity.name)

static const struct op_tensor tensors[] = {
    {"counts", FIELD(counts), OP_OPTIONAL, "[E]", "I64 I32", "demand for each expert; needed if factor <= 0"},
    {"capacity", FIELD(capacity), OP_OUTPUT, "[1]", "I64", "slots per expert"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "samples", .kind = OP_INT64, .offset = FIELD(samples), .required = true, .text = "S: tokens"},
    {.name = "num_experts",
     .kind = OP_INT64,
     .offset = FIELD(num_experts),
     .required = true,
     .text = "E: experts"},
    {.name = "k", .kind = OP_INT64, .offset = FIELD(k), .preset = "1", .text = "choices per token"},
    {.name = "factor",
     .kind = OP_DOUBLE,
     .offset = FIELD(factor),
     .preset = "0",
     .text = "above 0: a share; 0: the largest count; below 0: the smaller of both"},
    {.name = "alignment",
     .kind = OP_INT64,
     .offset = FIELD(alignment),
     .preset = "1",
     .text = "the capacity is a multiple of this"},
    {0},
};

static const int64_t example_counts[3] = {4, 4, 2};
static const struct op_example example[] = {
    {"counts", "I64", 1, {3}, example_counts},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    (void)ctx;
    call->args.moe_capacity.capacity = op_output(outputs, "capacity", SY_I64, 1, (int64_t[]){1});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_capacity(ctx, &call->args.moe_capacity);
}

const struct op op_moe_capacity = {
    .name = "moe_capacity",
    .summary = "say how many slots each expert should have",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--samples 5 --num-experts 3 --k 2 --factor -1",
    .example_text = "five tokens, three experts, two experts per token",
    .size = size_outputs,
    .call = call_operator,
};
