/*
 * local_reduce: must read one row for each choice of an expert of the device and write one for each token that has any.
 * The limit is a copy that moves as much.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t tokens, experts, devices, k, hidden; /* bf16 rows, by expert; f32 weights */
};

static const struct shape full[] = {{4096, 256, 8, 8, 7168}, {4096, 64, 8, 8, 2048}, {256, 256, 8, 8, 7168}};
static const struct shape quick[] = {{512, 64, 4, 8, 512}};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct set {
    uint16_t *rows, *sums;
};

struct state {
    struct shape shape;
    int64_t n_sets, n_rows, n_sums; /* rows by expert, tokens that have any */
    struct set *sets;
    uint16_t *choices, *mapping, *plain_sums;
    float *weights;
    int32_t *row; /* [T,K] row of each choice; -1: none on this device */
    int64_t rows_shape[2], slots_shape[2], mapping_shape[2], sums_shape[2];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    const DLTensor rows = sy_tensor(set->rows, SY_BF16, 2, state->rows_shape),
                   choices = sy_tensor(state->choices, SY_U16, 2, state->slots_shape),
                   mapping = sy_tensor(state->mapping, SY_U16, 2, state->mapping_shape),
                   weights = sy_tensor(state->weights, SY_F32, 2, state->slots_shape),
                   sums = sy_tensor(set->sums, SY_BF16, 2, state->sums_shape);
    return sy_local_reduce(ctx, &(sy_local_reduce_args){.input = &rows,
                                                        .expert_metadata = &choices,
                                                        .expert_mapping = &mapping,
                                                        .weights = &weights,
                                                        .layout = SY_LAYOUT_EXPERT,
                                                        .output = &sums});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    uint16_t *sum = turn == 0 ? state->plain_sums : set->sums;
    for (int64_t t = 0; t < s->tokens; t++) {
        const int32_t *const row = state->row + t * s->k;
        int64_t n = 0;
        for (int64_t j = 0; j < s->k; j++)
            n += row[j] >= 0;
        for (int64_t h = 0; n > 0 && h < s->hidden; h++) {
            float acc = 0;
            for (int64_t j = 0; j < s->k; j++)
                if (row[j] >= 0)
                    acc += state->weights[t * s->k + j] * bench_bf16_value(set->rows[row[j] * s->hidden + h]);
            *sum++ = bench_bf16_round(acc);
        }
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)(state->n_sums * state->shape.hidden) * sizeof(uint16_t);
    return memcmp(state->sets[0].sums, state->plain_sums, bytes) == 0 ? NULL
                                                                      : "sums differ from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].rows);
        free(state->sets[i].sums);
    }
    free(state->sets);
    free(state->choices);
    free(state->mapping);
    free(state->weights);
    free(state->row);
    free(state->plain_sums);
}

/* K distinct experts per token; the first E/D are on the device. */
static void choose(struct state *state)
{
    const struct shape *const s = &state->shape;
    const int64_t n_local = s->experts / s->devices;
    uint64_t seed = 31;
    for (int64_t i = 0; i < s->tokens * s->k; i++) {
        const int64_t first = i / s->k * s->k;
        int64_t before = first;
        state->choices[i] = (uint16_t)(bench_random(&seed) % (uint64_t)s->experts);
        while (before < i && state->choices[before] != state->choices[i])
            before++;
        if (before < i) { /* drawn twice: draw again */
            i--;
            continue;
        }
        state->weights[i] = (float)bench_unit(&seed) + 0.01f;
        state->row[i] = -1;
    }
    for (int64_t e = 0; e < s->experts; e++)
        state->mapping[e * s->devices + e / n_local] = 1;
    for (int64_t e = 0; e < n_local; e++)
        for (int64_t i = 0; i < s->tokens * s->k; i++)
            if (state->choices[i] == e)
                state->row[i] = (int32_t)state->n_rows++;
    for (int64_t t = 0; t < s->tokens; t++) {
        bool any = false;
        for (int64_t j = 0; j < s->k; j++)
            any = any || state->row[t * s->k + j] >= 0;
        state->n_sums += any;
    }
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t slots = (size_t)(s->tokens * s->k), hidden = (size_t)s->hidden;
    state->choices = bench_alloc(slots, sizeof *state->choices);
    state->weights = bench_alloc(slots, sizeof *state->weights);
    state->row = bench_alloc(slots, sizeof *state->row);
    state->mapping = bench_alloc((size_t)(s->experts * s->devices), sizeof *state->mapping);
    if (!state->choices || !state->weights || !state->row || !state->mapping)
        return false;
    choose(state);
    const size_t rows = (size_t)state->n_rows * hidden, sums = (size_t)state->n_sums * hidden;
    state->n_sets = bench_sets((rows + sums) * sizeof(uint16_t));
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    state->plain_sums = bench_alloc(sums, sizeof *state->plain_sums);
    if (!state->sets || !state->plain_sums)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++) {
        struct set *const set = &state->sets[i];
        set->rows = bench_alloc(rows, sizeof *set->rows);
        set->sums = bench_alloc(sums, sizeof *set->sums);
        if (!set->rows || !set->sums)
            return false;
        bench_fill_bf16(set->rows, rows, (uint64_t)i);
    }
    memcpy(state->rows_shape, (int64_t[]){state->n_rows, s->hidden}, sizeof state->rows_shape);
    memcpy(state->slots_shape, (int64_t[]){s->tokens, s->k}, sizeof state->slots_shape);
    memcpy(state->mapping_shape, (int64_t[]){s->experts, s->devices}, sizeof state->mapping_shape);
    memcpy(state->sums_shape, (int64_t[]){state->n_sums, s->hidden}, sizeof state->sums_shape);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "bf16 T=%d E=%d D=%d K=%d H=%d", (int)s->tokens, (int)s->experts, (int)s->devices,
             (int)s->k, (int)s->hidden);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    if (prepare(&state)) {
        const size_t bytes = (size_t)((state.n_rows + state.n_sums) * state.shape.hidden) * sizeof(uint16_t);
        bench_measure(bench, &(struct bench_case){
                                 .op = "local_reduce",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)bytes,
                                 .limit = {.copy_bytes = bytes / 2},
                             });
    } else {
        bench_no_memory(bench, "local_reduce", name);
    }
    release(&state);
}

const struct bench_op bench_local_reduce = {"local_reduce", N_FULL, N_QUICK, describe, run_case};
