/*
 * moe_locations on the command line. Counts are always written: moe_capacity asks for them.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_locations.name)

static const struct op_tensor tensors[] = {
    {"indices", FIELD(indices), OP_INPUT, "[k,S] or [S]", "I32", "expert of each choice"},
    {"importance", FIELD(importance), OP_OPTIONAL, "[S]", "F32 F16 BF16",
     "greatest first; missing: sample order"},
    {"locations", FIELD(locations), OP_OUTPUT, "as indices", "I32",
     "slot inside the expert; -1: no such expert"},
    {"counts", FIELD(counts), OP_OUTPUT, "[E]", "I64", "choices that name each expert"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "num_experts",
     .kind = OP_INT64,
     .offset = FIELD(num_experts),
     .required = true,
     .text = "E: experts"},
    {0},
};

static const int32_t example_indices[2][5] = {{0, 0, 2, 1, 0}, {1, 2, 1, 0, 1}};
static const struct op_example example[] = {
    {"indices", "I32", 2, {2, 5}, example_indices},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_locations_args *const args = &call->args.moe_locations;
    sy_query query = {0};
    const sy_status status = sy_moe_locations_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    args->locations = op_output(outputs, "locations", SY_I32, args->indices->ndim, args->indices->shape);
    args->counts = op_output(outputs, "counts", SY_I64, 1, (int64_t[]){args->num_experts});
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_locations(ctx, &call->args.moe_locations);
}

const struct op op_moe_locations = {
    .name = "moe_locations",
    .summary = "give every choice of a token its slot inside the expert it names",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--num-experts 3",
    .example_text = "five tokens, three experts, two experts per token",
    .size = size_outputs,
    .call = call_operator,
};
