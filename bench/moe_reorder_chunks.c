/*
 * moe_reorder_chunks: must read and write every row once. The limit is a copy of them.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t rows, ranks, experts, hidden; /* bf16 rows */
    bool inverse;
};

static const struct shape full[] = {{16384, 8, 32, 2048, false},
                                    {16384, 8, 32, 2048, true},
                                    {16384, 64, 4, 7168, false},
                                    {1024, 8, 32, 2048, false}};
static const struct shape quick[] = {{1024, 8, 32, 256, false}, {1024, 8, 32, 256, true}};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct set {
    uint16_t *from, *to;
};

struct state {
    struct shape shape;
    int64_t n_sets;
    struct set *sets;
    int32_t *counts;
    uint16_t *plain_rows;
    int64_t rows_shape[2], counts_shape[2];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    const DLTensor from = sy_tensor(set->from, SY_BF16, 2, state->rows_shape),
                   to = sy_tensor(set->to, SY_BF16, 2, state->rows_shape),
                   counts = sy_tensor(state->counts, SY_I32, 2, state->counts_shape);
    return sy_moe_reorder_chunks(
        ctx, &(sy_moe_reorder_chunks_args){
                 .rows = &from, .counts = &counts, .inverse = state->shape.inverse, .reordered_rows = &to});
}

/* The place of every chunk is summed up from the start. */
static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    uint16_t *const out = turn == 0 ? state->plain_rows : set->to;
    int64_t gathered = 0;
    for (int64_t e = 0; e < s->experts; e++)
        for (int64_t r = 0; r < s->ranks; r++) {
            const int64_t cell = r * s->experts + e;
            int64_t ranked = 0;
            for (int64_t i = 0; i < cell; i++)
                ranked += state->counts[i];
            const int64_t from = s->inverse ? gathered : ranked, to = s->inverse ? ranked : gathered;
            memcpy(out + to * s->hidden, set->from + from * s->hidden,
                   (size_t)(state->counts[cell] * s->hidden) * sizeof *out);
            gathered += state->counts[cell];
        }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)(state->shape.rows * state->shape.hidden) * sizeof *state->plain_rows;
    return memcmp(state->sets[0].to, state->plain_rows, bytes) == 0 ? NULL
                                                                    : "rows differ from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].from);
        free(state->sets[i].to);
    }
    free(state->sets);
    free(state->counts);
    free(state->plain_rows);
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t elements = (size_t)(s->rows * s->hidden), cells = (size_t)(s->ranks * s->experts);
    uint64_t seed = 31;
    state->n_sets = bench_sets(2 * elements * sizeof(uint16_t));
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    state->counts = bench_alloc(cells, sizeof *state->counts);
    state->plain_rows = bench_alloc(elements, sizeof *state->plain_rows);
    if (!state->sets || !state->counts || !state->plain_rows)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++) {
        struct set *const set = &state->sets[i];
        set->from = bench_alloc(elements, sizeof *set->from);
        set->to = bench_alloc(elements, sizeof *set->to);
        if (!set->from || !set->to)
            return false;
        bench_fill_random(set->from, elements * sizeof *set->from, 50 + (uint64_t)i);
    }
    for (int64_t i = 0; i < s->rows; i++)
        state->counts[bench_random(&seed) % cells]++;
    memcpy(state->rows_shape, (int64_t[]){s->rows, s->hidden}, sizeof state->rows_shape);
    memcpy(state->counts_shape, (int64_t[]){s->ranks, s->experts}, sizeof state->counts_shape);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "bf16 N=%d R=%d E=%d H=%d%s", (int)s->rows, (int)s->ranks, (int)s->experts,
             (int)s->hidden, s->inverse ? " back" : "");
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const size_t bytes = (size_t)(state.shape.rows * state.shape.hidden) * sizeof(uint16_t);
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_reorder_chunks",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2.0 * (double)bytes,
                                 .limit = {.copy_bytes = bytes},
                             });
    else
        bench_no_memory(bench, "moe_reorder_chunks", name);
    release(&state);
}

const struct bench_op bench_moe_reorder_chunks = {"moe_reorder_chunks", N_FULL, N_QUICK, describe, run_case};
