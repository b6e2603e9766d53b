/*
 * moe_pad_map on the command line.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_pad_map.name)

static const struct op_tensor tensors[] = {
    {"routing_map", FIELD(routing_map), OP_INPUT, "[T,E]", "BOOL I8 U8", "not 0: token t goes to expert e"},
    {"padded_map", FIELD(padded_map), OP_OUTPUT, "[T,E]", "as routing_map", "with what each expert lacked"},
    {"expert_counts", FIELD(expert_counts), OP_OUTPUT, "[E]", "I64",
     "tokens of each expert, padding included"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "alignment",
     .kind = OP_INT64,
     .offset = FIELD(alignment),
     .required = true,
     .text = "every expert gets a multiple of this"},
    {0},
};

static const uint8_t example_map[5][3] = {{1, 0, 0}, {1, 0, 1}, {1, 0, 0}, {0, 0, 1}, {0, 0, 0}};
static const struct op_example example[] = {
    {"routing_map", "BOOL", 2, {5, 3}, example_map},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_pad_map_args *const args = &call->args.moe_pad_map;
    sy_query query = {0};
    const sy_status status = sy_moe_pad_map_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const DLTensor *const map = args->routing_map;
    args->padded_map = op_output(outputs, "padded_map", map->dtype, 2, map->shape);
    args->expert_counts = op_output(outputs, "expert_counts", SY_I64, 1, &map->shape[1]);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_pad_map(ctx, &call->args.moe_pad_map);
}

const struct op op_moe_pad_map = {
    .name = "moe_pad_map",
    .summary = "route further tokens so that every expert has a multiple of some number",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--alignment 4",
    .example_text = "five tokens, three experts, one of them without tokens",
    .size = size_outputs,
    .call = call_operator,
};
