/*
 * moe_dispatch on the command line. The output is in/out: a tensor `dispatch` in the input file is its old
 * contents.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_dispatch.name)

static const struct op_tensor tensors[] = {
    {"gates", FIELD(gates), OP_OPTIONAL, "[S]", "F32 or as input", "scale of each sample; missing: 1"},
    {"indices", FIELD(indices), OP_INPUT, "[S]", "I32", "expert of each sample"},
    {"locations", FIELD(locations), OP_INPUT, "[S]", "I32", "slot inside the expert"},
    {"input", FIELD(input), OP_INPUT, "[S,H]", "F32 F16 BF16", "one row per sample"},
    {"dispatch", FIELD(dispatch), OP_INOUT, "[E*C,H]", "as input",
     "expert slots; old contents, missing: zero"},
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
    {.name = "zero_unwritten",
     .kind = OP_BOOL,
     .offset = FIELD(zero_unwritten),
     .text = "rows nobody writes become 0 instead of keeping their contents"},
    {.name = "unique_slots",
     .kind = OP_BOOL,
     .offset = FIELD(unique_slots),
     .text = "promise that no two valid samples share a slot (faster)"},
    {0},
};

static const float example_gates[4] = {0.5f, 2, 1, -1};
static const int32_t example_indices[4] = {1, 0, 1, 0};
static const int32_t example_locations[4] = {0, 0, 1, 2};
static const float example_input[4][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
static const struct op_example example[] = {
    {"gates", "F32", 1, {4}, example_gates},
    {"indices", "I32", 1, {4}, example_indices},
    {"locations", "I32", 1, {4}, example_locations},
    {"input", "F32", 2, {4, 2}, example_input},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_dispatch_args *const args = &call->args.moe_dispatch;
    /* Old contents are used as they came: the call itself judges their shape and type, in its own order. */
    if (args->dispatch)
        return SY_OK;
    sy_query query = {0};
    const sy_status status = sy_moe_dispatch_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->dispatch =
        op_output(outputs, "dispatch", args->input->dtype, 2, (int64_t[]){query.rows, args->input->shape[1]});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_dispatch(ctx, &call->args.moe_dispatch);
}

const struct op op_moe_dispatch = {
    .name = "moe_dispatch",
    .summary = "scale token rows into expert slots of fixed capacity",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--capacity 3 --num-experts 2",
    .example_text = "four samples into two experts of three slots",
    .size = size_outputs,
    .call = call_operator,
};
