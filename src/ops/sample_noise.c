/*
 * sample_noise: check and plan. There is nothing to read.
 */
#include "ops/call.h"

enum { Q, N_TENSORS };

static const sy_field_info fields[] = {
    [Q] = SYI_TENSOR(sample_noise, q, SY_FIELD_OUT, SYI_BIT(SY_TYPE_F32), 0, 1, 1, "n",
                     "noise of the tokens 0 to n-1"),
    SYI_SCALAR(sample_noise, seed, U64, .help = "seed, as in sample"),
    SYI_SCALAR(sample_noise, offset, U64, .help = "step of the sequence"),
    SYI_SCALAR(sample_noise, stream, U32, .help = "request number; sample's default: 0, or the row"),
    SYI_SCALAR(sample_noise, n, I64, SY_FIELD_REQUIRED, .help = "number of tokens"),
};

static sy_status check(struct syi_call *call)
{
    static const int64_t most = (INT64_C(1) << 34) - 4; /* the last counter belongs to CDF draws */
    const sy_sample_noise_args *a = &call->args.sample_noise;
    sy_status st = syi_check_tensors(call, a->n == 0);
    if (st == SY_OK)
        st = syi_check_value(call, "n", a->n, 0, most);
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_check_vector(call, Q, a->n);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    call->plan.sample_noise = (struct syi_sample_noise_plan){
        .seed = a->seed, .offset = a->offset, .stream = a->stream, .n = a->n, .q = syi_data(call, Q)};
    call->rows = a->n;
    call->bytes = (uint64_t)a->n * sizeof(float);
    return SY_OK;
}

SYI_DEFINE_OP(sample_noise, SAMPLE_NOISE, "make the exponential noise that sample uses with noise race")
