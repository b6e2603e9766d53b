/*
 * moe_capacity: the cost of a call. Must read: 8 bytes per expert, which is also the limit.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

static const int64_t full[] = {256}, quick[] = {64};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

static const double factor = -1.25;
static const int64_t samples = 4096, k = 8, alignment = 8;

struct state {
    int64_t experts, n_sets;
    int64_t *counts; /* [n_sets,E] */
    int64_t result, plain_result;
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    int64_t shape[] = {state->experts}, one[] = {1};
    const DLTensor counts =
                       sy_tensor(state->counts + turn % state->n_sets * state->experts, SY_I64, 1, shape),
                   result = sy_tensor(&state->result, SY_I64, 1, one);
    return sy_moe_capacity(ctx, &(sy_moe_capacity_args){.counts = &counts,
                                                        .samples = samples,
                                                        .num_experts = state->experts,
                                                        .k = k,
                                                        .factor = factor,
                                                        .alignment = alignment,
                                                        .capacity = &result});
}

static void plain(void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const int64_t *const counts = state->counts + turn % state->n_sets * state->experts;
    const int64_t fair_share = (samples + state->experts - 1) / state->experts;
    int64_t slots = k * (int64_t)(-factor * (double)fair_share), most = 0;
    for (int64_t e = 0; e < state->experts; e++)
        most = counts[e] > most ? counts[e] : most;
    slots = most < slots ? most : slots;
    slots = (slots + alignment - 1) / alignment * alignment;
    *(turn == 0 ? &state->plain_result : &state->result) = slots;
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    return state->result == state->plain_result ? NULL : "capacity differs from the plain loop";
}

static int64_t experts_at(int index)
{
    return index < N_FULL ? full[index] : quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    snprintf(text, bytes, "E=%d", (int)experts_at(index));
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.experts = experts_at(index)};
    const size_t bytes = (size_t)state.experts * sizeof *state.counts;
    state.n_sets = bench_sets(bytes);
    state.counts = bench_alloc((size_t)(state.n_sets * state.experts), sizeof *state.counts);
    if (state.counts) {
        uint64_t seed = 3;
        for (int64_t i = 0; i < state.n_sets * state.experts; i++)
            state.counts[i] = (int64_t)(bench_random(&seed) % 300);
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_capacity",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)bytes,
                                 .limit = {.read_bytes = bytes},
                             });
    } else {
        bench_no_memory(bench, "moe_capacity", name);
    }
    free(state.counts);
}

const struct bench_op bench_moe_capacity = {"moe_capacity", N_FULL, N_QUICK, describe, run_case};
