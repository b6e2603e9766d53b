/*
 * moe_ids_from_map on the command line.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_ids_from_map.name)

static const struct op_tensor tensors[] = {
    {"routing_map", FIELD(routing_map), OP_INPUT, "[T,E]", "BOOL I8 U8", "not 0: token t goes to expert e"},
    {"probs", FIELD(probs), OP_OPTIONAL, "[T,E]", "F32 F16 BF16", "weight of each expert"},
    {"ids", FIELD(ids), OP_OUTPUT, "[T,K]", "I32", "experts of each token, ascending; -1: none"},
    {"weights", FIELD(weights), OP_OUTPUT, "[T,K]", "as probs", "when probs is given; 0: none"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "k", .kind = OP_INT64, .offset = FIELD(k), .required = true, .text = "K: slots per token"},
    {0},
};

static const uint8_t example_map[3][4] = {{1, 0, 1, 0}, {0, 1, 0, 0}, {0, 0, 1, 1}};
static const struct op_example example[] = {
    {"routing_map", "BOOL", 2, {3, 4}, example_map},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_ids_from_map_args *const args = &call->args.moe_ids_from_map;
    sy_query query = {0};
    const sy_status status = sy_moe_ids_from_map_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const int64_t shape[2] = {query.rows, args->k};
    args->ids = op_output(outputs, "ids", SY_I32, 2, shape);
    if (args->probs)
        args->weights = op_output(outputs, "weights", args->probs->dtype, 2, shape);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_ids_from_map(ctx, &call->args.moe_ids_from_map);
}

const struct op op_moe_ids_from_map = {
    .name = "moe_ids_from_map",
    .summary = "the expert ids of a routing map, ascending, and the weights of its probs",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--k 2",
    .example_text = "three tokens, four experts, at most two experts per token",
    .size = size_outputs,
    .call = call_operator,
};
