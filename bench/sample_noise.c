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
    c->bytes = bench_work_bytes(&c->limit);
}

static void philox(const sy_sample_noise_args *a, uint32_t group, uint32_t x[4])
{
    uint32_t key[2] = {(uint32_t)a->seed, (uint32_t)(a->seed >> 32)};
    x[0] = group;
    x[1] = (uint32_t)a->offset;
    x[2] = (uint32_t)(a->offset >> 32);
    x[3] = a->stream;
    for (int round = 0; round < 10; round++) {
        const uint64_t low = (uint64_t)0xd2511f53u * x[0], high = (uint64_t)0xcd9e8d57u * x[2];
        x[0] = (uint32_t)(high >> 32) ^ x[1] ^ key[0];
        x[1] = (uint32_t)high;
        x[2] = (uint32_t)(low >> 32) ^ x[3] ^ key[1];
        x[3] = (uint32_t)low;
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
}

static void plain(const struct bench_call *c)
{
    const sy_sample_noise_args *const a = c->args;
    float *const q = a->q->data;
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < a->n; i++) {
        if (i % 4 == 0)
            philox(a, (uint32_t)(i / 4), word);
        q[i] = (float)-log1p(-((double)word[i % 4] + 0.5) * 0x1p-32);
    }
}

static const char *check(const struct bench_call *c)
{
    const sy_sample_noise_args *const a = c->args;
    const float *const q = bench_got(c, &a->q), *const want = bench_want(c, &a->q);
    for (int64_t i = 0; i < a->n; i++)
        if (!(fabsf(q[i] - want[i]) <= 4e-7f * want[i]))
            return "noise differs from the plain loop";
    return NULL;
}

const struct bench_op bench_sample_noise = {BENCH_CASES("sample_noise", 1), BENCH_THERE, .make = make,
                                            .plain = plain, .check = check};
