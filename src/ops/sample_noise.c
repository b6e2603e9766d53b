/*
 * sample_noise: check and plan. There is nothing to read.
 */
#include "ops/call.h"

enum { Q, N_TENSORS };

static const struct syi_rule rules[N_TENSORS] = {
    [Q] = {"q", offsetof(sy_sample_noise_args, q), SYI_OUT | SYI_VECTOR, SYI_BIT(SYI_F32), 0, 1, 1},
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

static const struct syi_op op = {
    "sample_noise", SYI_SAMPLE_NOISE, sizeof(sy_sample_noise_args), N_TENSORS, rules, check};

sy_status sy_sample_noise_n(sy_ctx *ctx, const sy_sample_noise_args *args, size_t args_bytes)
{
    return syi_run(ctx, &op, args, args_bytes);
}

sy_status sy_sample_noise_query_n(sy_ctx *ctx, const sy_sample_noise_args *args, size_t args_bytes,
                                  sy_query *query, size_t query_bytes)
{
    return syi_query(ctx, &op, args, args_bytes, query, query_bytes);
}
