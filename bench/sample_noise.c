/*
 * sample_noise: must write 4 bytes per token, which is also the limit; most time is spent in ten rounds of Philox and a
 * logarithm.
 */
#include "described.h"

#include <math.h>

static const char *const shapes[] = {
    "n=131072",
    /* Quick. */
    "n=4096",
};

static const char *const there[] = {"n=131072", "n=33554432"};

static void make(struct bench_call *c)
{
    sy_sample_noise_args *const a = c->args;
    a->seed = 42;
    a->offset = 7;
    a->stream = 3;
    a->n = bench_size(c, "n=");
    bench_out(c, &a->q, BENCH_COPIES);
    c->limit.fill_bytes = (size_t)a->n * sizeof(float);
}

static void plain(const struct bench_call *c)
{
    const sy_sample_noise_args *const a = c->args;
    float *const q = a->q->data;
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < a->n; i++) {
        if (i % 4 == 0)
            bench_philox(a->seed, a->offset, a->stream, (uint32_t)(i / 4), word);
        q[i] = (float)-log1p(-((double)word[i % 4] + 0.5) * 0x1p-32);
    }
}

static const char *check(const struct bench_call *c)
{
    const sy_sample_noise_args *const a = c->args;
    const float *const q = bench_got(a->q), *const want = bench_want(a->q);
    for (int64_t i = 0; i < a->n; i++)
        if (!(fabsf(q[i] - want[i]) <= 4e-7f * want[i]))
            return "noise differs from the plain loop";
    return NULL;
}

BENCH_OP(sample_noise, shapes, 1, make, .plain = plain, BENCH_THERE, .check = check);
