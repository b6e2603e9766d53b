/*
 * moe_locations, experts drawn at random, some more popular than others. Must move: 4 bytes in and 4 bytes out
 * per choice, and the importance where there is one. The limit copies the choices.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t choices, samples, experts;
    bool ordered;
};

static const struct shape full[] = {
    {1, 18432, 2, false},
    {8, 4096, 256, false},
    {8, 131072, 256, false},
    {2, 18432, 64, true},
};
static const struct shape quick[] = {{2, 4096, 64, false}, {2, 4096, 64, true}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct shape shape;
    int64_t n_sets;
    int32_t *indices, *locations, *plain_locations; /* [n_sets,k,S], [n_sets,k,S], [k,S] */
    int64_t *counts, *plain_counts;                 /* [E] */
    float *importance;                              /* [S] */
    int64_t *order;                                 /* [S], for the plain loop */
};

static int32_t *of_turn(const struct state *state, int32_t *all, int64_t turn)
{
    return all + turn % state->n_sets * state->shape.choices * state->shape.samples;
}

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    int64_t both[] = {s->choices, s->samples}, experts[] = {s->experts}, samples[] = {s->samples};
    const DLTensor indices = sy_tensor(of_turn(state, state->indices, turn), SY_I32, 2, both),
                   locations = sy_tensor(of_turn(state, state->locations, turn), SY_I32, 2, both),
                   importance = sy_tensor(state->importance, SY_F32, 1, samples),
                   counts = sy_tensor(state->counts, SY_I64, 1, experts);
    return sy_moe_locations(ctx, &(sy_moe_locations_args){.indices = &indices,
                                                          .importance = s->ordered ? &importance : NULL,
                                                          .num_experts = s->experts,
                                                          .locations = &locations,
                                                          .counts = &counts});
}

struct ranked {
    float importance;
    int64_t sample;
};

static int descending(const void *left, const void *right)
{
    const struct ranked *const a = left, *const b = right;
    if (a->importance != b->importance)
        return a->importance > b->importance ? -1 : 1;
    return a->sample < b->sample ? -1 : 1;
}

static void plain_order(const struct state *state)
{
    const int64_t n = state->shape.samples;
    struct ranked *const ranks = bench_alloc((size_t)n, sizeof *ranks);
    for (int64_t i = 0; ranks && i < n; i++)
        ranks[i] = (struct ranked){state->importance[i], i};
    if (ranks && state->shape.ordered)
        qsort(ranks, (size_t)n, sizeof *ranks, descending);
    for (int64_t i = 0; i < n; i++)
        state->order[i] = ranks ? ranks[i].sample : 0;
    free(ranks);
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const int32_t *const indices = of_turn(state, state->indices, turn);
    int32_t *const locations = turn == 0 ? state->plain_locations : of_turn(state, state->locations, turn);
    plain_order(state);
    memset(state->plain_counts, 0, (size_t)s->experts * sizeof *state->plain_counts);
    for (int64_t t = 0; t < s->choices; t++)
        for (int64_t r = 0; r < s->samples; r++) {
            const int64_t at = t * s->samples + state->order[r], e = indices[at];
            locations[at] = e >= 0 && e < s->experts ? (int32_t)state->plain_counts[e]++ : -1;
        }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const size_t n = (size_t)(s->choices * s->samples);
    if (memcmp(state->locations, state->plain_locations, n * sizeof(int32_t)) != 0)
        return "locations differ from the plain loop";
    return memcmp(state->counts, state->plain_counts, (size_t)s->experts * sizeof(int64_t)) == 0
               ? NULL
               : "counts differ from the plain loop";
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t n = (size_t)(s->choices * s->samples);
    state->n_sets = bench_sets(2 * n * sizeof(int32_t));
    const size_t all = n * (size_t)state->n_sets;
    state->indices = bench_alloc(all, sizeof *state->indices);
    state->locations = bench_alloc(all, sizeof *state->locations);
    state->plain_locations = bench_alloc(n, sizeof *state->plain_locations);
    state->counts = bench_alloc((size_t)s->experts, sizeof *state->counts);
    state->plain_counts = bench_alloc((size_t)s->experts, sizeof *state->plain_counts);
    state->importance = bench_alloc((size_t)s->samples, sizeof *state->importance);
    state->order = bench_alloc((size_t)s->samples, sizeof *state->order);
    if (!state->indices || !state->locations || !state->plain_locations || !state->counts ||
        !state->plain_counts || !state->importance || !state->order)
        return false;
    uint64_t seed = 23;
    for (size_t i = 0; i < all; i++) {
        const double u = bench_unit(&seed);
        state->indices[i] = (int32_t)((u + u * u) / 2 * (double)s->experts);
    }
    for (int64_t i = 0; i < s->samples; i++)
        state->importance[i] = (float)bench_unit(&seed);
    return true;
}

static void release(struct state *state)
{
    free(state->indices);
    free(state->locations);
    free(state->plain_locations);
    free(state->counts);
    free(state->plain_counts);
    free(state->importance);
    free(state->order);
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "k=%d S=%d E=%d%s", (int)shape->choices, (int)shape->samples, (int)shape->experts,
             shape->ordered ? " by importance" : "");
}

static void run_case(struct bench *bench, int index, const char *name)
{
    const struct shape *const shape = shape_at(index);
    struct state state = {.shape = *shape};
    if (prepare(&state)) {
        const size_t moved = (size_t)(shape->choices * shape->samples) * sizeof(int32_t);
        const size_t read = shape->ordered ? (size_t)shape->samples * sizeof(float) : 0;
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_locations",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2.0 * (double)moved + (double)read,
                                 .limit = {.copy_bytes = moved},
                             });
    } else {
        bench_no_memory(bench, "moe_locations", name);
    }
    release(&state);
}

const struct bench_op bench_moe_locations = {"moe_locations", N_FULL, N_QUICK, describe, run_case};
