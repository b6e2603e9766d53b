/*
 * sample_noise: check and plan. There is nothing to read.
 */
#include "ops/call.h"

enum { Q, N_TENSORS };

#define OPERATOR sample_noise

static const sy_field_info fields[] = {
    [Q] = SYI_OUTPUT(q, SYI_F32, 0, 1, 1, "n", "noise of the tokens 0 to n-1"),
    SYI_SCALAR(seed, U64, .help = "seed, as in sample"),
    SYI_SCALAR(offset, U64, .help = "step of the sequence"),
    SYI_SCALAR(stream, U32, .help = "request number; sample's default: 0, or the row"),
    /* 2^34 - 4: the last counter belongs to draws of CDF. */
    SYI_SCALAR(n, I64, SY_FIELD_REQUIRED, .range = "n: 0..17179869180", .help = "number of tokens"),
};

static bool nothing_to_do(const struct syi_call *call)
{
    return call->args.sample_noise.n == 0;
}

static void plan(struct syi_call *call)
{
    syi_bind_plan(call, "");
    call->rows = call->args.sample_noise.n;
    call->bytes = (uint64_t)call->rows * sizeof(float);
}

static const struct syi_steps own = {.untouched = nothing_to_do, .plan = plan};

SYI_DEFINE_PLANNED(sample_noise, SAMPLE_NOISE, "make the exponential noise that sample uses with noise race",
                   q, 0)
