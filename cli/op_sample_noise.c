/*
 * sample_noise on the command line: numbers in, one tensor out.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.sample_noise.name)

static const struct op_tensor tensors[] = {
    {"q", FIELD(q), OP_OUTPUT, "[n]", "F32", "noise of the tokens 0 to n-1"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "n", .kind = OP_INT64, .offset = FIELD(n), .required = true, .text = "tokens"},
    {.name = "seed", .kind = OP_UINT64, .offset = FIELD(seed), .preset = "0", .text = "as in sample"},
    {.name = "offset",
     .kind = OP_UINT64,
     .offset = FIELD(offset),
     .preset = "0",
     .text = "step of the sequence"},
    {.name = "stream",
     .kind = OP_UINT32,
     .offset = FIELD(stream),
     .preset = "0",
     .text = "request number; sample's default: 0, or the row"},
    {0},
};

static const struct op_example example[] = {{0}};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_query query = {0};
    const sy_status status = sy_sample_noise_query(ctx, &call->args.sample_noise, &query);
    if (status == SY_OK)
        call->args.sample_noise.q = op_output(outputs, "q", SY_F32, 1, &query.rows);
    return status;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_sample_noise(ctx, &call->args.sample_noise);
}

const struct op op_sample_noise = {
    .name = "sample_noise",
    .summary = "make the exponential noise of sample's races, to draw again or to look at",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--n 8 --seed 1 --offset 5 --stream 2",
    .example_text = "no tensor at all, noise for eight tokens",
    .size = size_outputs,
    .call = call_operator,
};
