/*
 * moe_dispatch_grad_gate on the command line. The file does not say what type the gates had: that of the rows,
 * unless f32 is asked for.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_dispatch_grad_gate.name)

static const struct op_tensor tensors[] = {
    {"indices", FIELD(indices), OP_INPUT, "[k,S] or [S]", "I32", "expert of each choice"},
    {"locations", FIELD(locations), OP_INPUT, "[k,S] or [S]", "I32", "slot inside the expert"},
    {"input", FIELD(input), OP_INPUT, "[S,H]", "F32 F16 BF16", "one row per sample"},
    {"dispatch", FIELD(dispatch), OP_INPUT, "[E*C,H]", "as input", "expert slots: the gradient"},
    {"grad_gates", FIELD(grad_gates), OP_OUTPUT, "as indices", "as input or F32", "gradient of each gate"},
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
    {.name = "f32_gates",
     .kind = OP_BOOL,
     .offset = offsetof(struct op_call, f32_gates),
     .text = "write f32 gradients, whatever the rows are"},
    {0},
};

static const int32_t example_indices[5] = {0};
static const int32_t example_locations[5] = {1, 1, 0, 1, -1};
static const float example_input[5][2] = {{1, 2}, {3, 4}, {5, 6}, {8, 10}, {7, 7}};
static const float example_slots[2][2] = {{1, -1}, {2, .5f}};
static const struct op_example example[] = {
    {"indices", "I32", 1, {5}, example_indices},
    {"locations", "I32", 1, {5}, example_locations},
    {"input", "F32", 2, {5, 2}, example_input},
    {"dispatch", "F32", 2, {2, 2}, example_slots},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_dispatch_grad_gate_args *const args = &call->args.moe_dispatch_grad_gate;
    sy_query query = {0};
    const sy_status status = sy_moe_dispatch_grad_gate_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->grad_gates = op_output(outputs, "grad_gates", call->f32_gates ? SY_F32 : args->input->dtype,
                                 args->indices->ndim, args->indices->shape);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_dispatch_grad_gate(ctx, &call->args.moe_dispatch_grad_gate);
}

const struct op op_moe_dispatch_grad_gate = {
    .name = "moe_dispatch_grad_gate",
    .summary = "gradient of the gates: token rows times slot rows",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--capacity 2 --num-experts 1",
    .example_text = "five samples in two slots of one expert",
    .size = size_outputs,
    .call = call_operator,
};
