/*
 * moe_map_from_ids on the command line.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_map_from_ids.name)

static const struct op_tensor tensors[] = {
    {"ids", FIELD(ids), OP_INPUT, "[T,K]", "I32 I64", "experts of each token"},
    {"weights", FIELD(weights), OP_OPTIONAL, "[T,K]", "F32 F16 BF16", "their weights"},
    {"routing_map", FIELD(routing_map), OP_OUTPUT, "[T,E]", "BOOL", "1: token t goes to expert e"},
    {"probs", FIELD(probs), OP_OUTPUT, "[T,E]", "as weights", "when weights is given; 0 where not routed"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "num_experts",
     .kind = OP_INT64,
     .offset = FIELD(num_experts),
     .required = true,
     .text = "E: experts"},
    {.name = "allow_missing",
     .kind = OP_BOOL,
     .offset = FIELD(allow_missing),
     .text = "ids -1 and E stand for no expert"},
    {0},
};

static const int32_t example_ids[3][2] = {{2, 0}, {1, 2}, {3, 0}};
static const float example_weights[3][2] = {{.75f, .25f}, {.5f, .5f}, {.625f, .375f}};
static const struct op_example example[] = {
    {"ids", "I32", 2, {3, 2}, example_ids},
    {"weights", "F32", 2, {3, 2}, example_weights},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_map_from_ids_args *const args = &call->args.moe_map_from_ids;
    sy_query query = {0};
    const sy_status status = sy_moe_map_from_ids_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const int64_t shape[2] = {query.rows, args->num_experts};
    args->routing_map = op_output(outputs, "routing_map", SY_BOOL, 2, shape);
    if (args->weights)
        args->probs = op_output(outputs, "probs", args->weights->dtype, 2, shape);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_map_from_ids(ctx, &call->args.moe_map_from_ids);
}

const struct op op_moe_map_from_ids = {
    .name = "moe_map_from_ids",
    .summary = "the routing map of expert ids, and the probs of their weights",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--num-experts 4",
    .example_text = "three tokens with two of four experts each",
    .size = size_outputs,
    .call = call_operator,
};
