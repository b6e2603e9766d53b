/*
 * moe_combine on the command line, and under its other name, the data gradient of moe_dispatch.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_combine.name)

static const struct op_tensor tensors[] = {
    {"gates", FIELD(gates), OP_OPTIONAL, "[k,S] or [S]", "F32 or as expert_out",
     "factor of each choice; missing: 1"},
    {"indices", FIELD(indices), OP_INPUT, "[k,S] or [S]", "I32", "expert of each choice"},
    {"locations", FIELD(locations), OP_INPUT, "[k,S] or [S]", "I32", "slot inside the expert"},
    {"expert_out", FIELD(expert_out), OP_INPUT, "[E*C,H]", "F32 F16 BF16", "expert slots"},
    {"output", FIELD(output), OP_OUTPUT, "[S,H]", "as expert_out", "sum of each sample's rows"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "capacity",
     .kind = OP_INT64,
     .offset = FIELD(capacity),
     .required = true,
     .text = "C: slots per expert"},
    {.name = "num_experts",
     .kind = OP_INT64,
     .offset = FIELD(num_experts),
     .required = true,
     .text = "E: experts"},
    {0},
};

static const float example_gates[2][5] = {{.5f, .75f, .25f, .5f, 1}, {.5f, .25f, .75f, .5f, 0}};
static const int32_t example_indices[2][5] = {{0, 0, 2, 1, 0}, {1, 2, 1, 0, 1}};
static const int32_t example_locations[2][5] = {{0, 1, 0, 0, 2}, {1, 1, 2, 3, 3}};
static const float example_slots[6][1] = {{10}, {20}, {30}, {40}, {50}, {60}};
static const struct op_example example[] = {
    {"gates", "F32", 2, {2, 5}, example_gates},
    {"indices", "I32", 2, {2, 5}, example_indices},
    {"locations", "I32", 2, {2, 5}, example_locations},
    {"expert_out", "F32", 2, {6, 1}, example_slots},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_combine_args *const args = &call->args.moe_combine;
    sy_query query = {0};
    const sy_status status = sy_moe_combine_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->output = op_output(outputs, "output", args->expert_out->dtype, 2,
                             (int64_t[]){query.rows, args->expert_out->shape[1]});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_combine(ctx, &call->args.moe_combine);
}

const struct op op_moe_combine = {
    .name = "moe_combine",
    .alias = "moe_dispatch_grad_data",
    .summary = "sum each token's rows from expert slots, each times its gate",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--capacity 2 --num-experts 3",
    .example_text = "five tokens, three experts of two slots, two experts per token",
    .size = size_outputs,
    .call = call_operator,
};
