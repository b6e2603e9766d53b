/*
 * sample_noise: must write 4 bytes per token, which is also the limit; most time is spent in ten rounds of Philox and a
 * logarithm.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const int64_t full[] = {131072}, quick[] = {4096};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

static const uint64_t seed = 42, offset = 7;
static const uint32_t stream = 3;

struct state {
    int64_t n, n_sets;
    float *q;     /* [n_sets,n] */
    float *plain; /* [n] */
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    int64_t shape[] = {state->n};
    const DLTensor q = sy_tensor(state->q + turn % state->n_sets * state->n, SY_F32, 1, shape);
    return sy_sample_noise(
        ctx,
        &(sy_sample_noise_args){.seed = seed, .offset = offset, .stream = stream, .n = state->n, .q = &q});
}

static void philox(uint32_t group, uint32_t x[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    x[0] = group;
    x[1] = (uint32_t)offset;
    x[2] = (uint32_t)(offset >> 32);
    x[3] = stream;
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * x[0], b = (uint64_t)0xcd9e8d57u * x[2];
        x[0] = (uint32_t)(b >> 32) ^ x[1] ^ key[0];
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x[3] ^ key[1];
        x[3] = (uint32_t)a;
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
}

static void plain(void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    float *const q = turn == 0 ? state->plain : state->q + turn % state->n_sets * state->n;
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < state->n; i++) {
        if (i % 4 == 0)
            philox((uint32_t)(i / 4), word);
        q[i] = (float)-log1p(-((double)word[i % 4] + 0.5) * 0x1p-32);
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    for (int64_t i = 0; i < state->n; i++)
        if (fabsf(state->q[i] - state->plain[i]) > 4e-7f * state->plain[i])
            return "noise differs from the plain loop";
    return NULL;
}

static int64_t tokens_at(int index)
{
    return index < N_FULL ? full[index] : quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    snprintf(text, bytes, "n=%d", (int)tokens_at(index));
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.n = tokens_at(index)};
    const size_t bytes = (size_t)state.n * sizeof *state.q;
    state.n_sets = bench_sets(bytes);
    state.q = bench_alloc((size_t)(state.n_sets * state.n), sizeof *state.q);
    state.plain = bench_alloc((size_t)state.n, sizeof *state.plain);
    if (state.q && state.plain)
        bench_measure(bench, &(struct bench_case){
                                 .op = "sample_noise",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)bytes,
                                 .limit = {.fill_bytes = bytes},
                             });
    else
        bench_no_memory(bench, "sample_noise", name);
    free(state.q);
    free(state.plain);
}

const struct bench_op bench_sample_noise = {"sample_noise", N_FULL, N_QUICK, describe, run_case};
