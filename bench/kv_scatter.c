/*
 * kv_scatter of 1152-byte rows (the latent rows of multi-head latent attention in bf16). Must move: every row read
 * and written, 4 bytes of slot each. The limit is a copy of the rows; rows to random slots cannot reach it, a prompt
 * that fills whole blocks can.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_ELEMENTS = 576, ROW_BYTES = 2 * ROW_ELEMENTS, BLOCK = 64 };

struct shape {
    int64_t n, rows; /* rows written, rows of the cache */
    bool
        blocks; /* whole blocks one after the other: a prompt; else random rows: one step of many sequences */
    bool
        check_unique; /* sequences                                                                              */
};

static const struct shape full[] = {
    {128, 131072, false, false}, {8192, 131072, false, false}, {8192, 131072, false, true},
    {8192, 131072, true, false}, {65536, 131072, true, false},
};
static const struct shape quick[] = {{512, 8192, false, true}, {2048, 8192, true, false}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct set {
    int32_t *slots;
    uint16_t *src; /* [n,D] */
    int64_t slots_shape[1], src_shape[2];
    DLTensor slots_view, src_view;
};

struct state {
    struct shape shape;
    int64_t n_sets;
    struct set *sets;
    uint16_t *cache, *plain_cache; /* [rows/S,S,D] */
    int64_t cache_shape[3];
    DLTensor cache_view;
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    return sy_kv_scatter(ctx, &(sy_kv_scatter_args){.cache = &state->cache_view,
                                                    .src = &set->src_view,
                                                    .slots = &set->slots_view,
                                                    .check_unique = state->shape.check_unique});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    uint16_t *const cache = turn == 0 ? state->plain_cache : state->cache;
    for (int64_t i = 0; i < state->shape.n; i++)
        memcpy(cache + set->slots[i] * (int64_t)ROW_ELEMENTS, set->src + i * ROW_ELEMENTS, ROW_BYTES);
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)state->shape.rows * ROW_BYTES;
    return memcmp(state->cache, state->plain_cache, bytes) == 0 ? NULL : "cache differs from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].slots);
        free(state->sets[i].src);
    }
    free(state->sets);
    free(state->cache);
    free(state->plain_cache);
}

/* Distinct slots: the next n of all, in an order that is random by rows or by blocks and goes on from set to set. */
static void choose_slots(const struct state *state, const int32_t *order, int64_t set, int32_t *slots)
{
    const struct shape *const s = &state->shape;
    const int64_t step = s->blocks ? BLOCK : 1;
    for (int64_t i = 0; i < s->n; i++) {
        const int64_t at = (set * s->n + i) % s->rows;
        slots[i] = (int32_t)(order[at / step] * step + at % step);
    }
}

static bool prepare_sets(struct state *state, const int32_t *order)
{
    const struct shape *const s = &state->shape;
    state->n_sets = bench_sets((size_t)s->n * ROW_BYTES);
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        struct set *const set = &state->sets[i];
        set->slots = bench_alloc((size_t)s->n, sizeof *set->slots);
        set->src = bench_alloc((size_t)s->n, ROW_BYTES);
        if (!set->slots || !set->src)
            return false;
        choose_slots(state, order, i, set->slots);
        bench_fill_random(set->src, (size_t)s->n * ROW_BYTES, 41 + (uint64_t)i);
        memcpy(set->slots_shape, (int64_t[]){s->n}, sizeof set->slots_shape);
        memcpy(set->src_shape, (int64_t[]){s->n, ROW_ELEMENTS}, sizeof set->src_shape);
        set->slots_view = sy_tensor(set->slots, SY_I32, 1, set->slots_shape);
        set->src_view = sy_tensor(set->src, SY_BF16, 2, set->src_shape);
    }
    return state->sets != NULL;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const int64_t units = s->blocks ? s->rows / BLOCK : s->rows;
    int32_t *const order = bench_alloc((size_t)units, sizeof *order);
    state->cache = bench_alloc((size_t)s->rows, ROW_BYTES);
    state->plain_cache = bench_alloc((size_t)s->rows, ROW_BYTES);
    bool made = order && state->cache && state->plain_cache;
    if (made) {
        bench_shuffle(order, units, 5);
        made = prepare_sets(state, order);
    }
    free(order);
    memcpy(state->cache_shape, (int64_t[]){s->rows / BLOCK, BLOCK, ROW_ELEMENTS}, sizeof state->cache_shape);
    state->cache_view = sy_tensor(state->cache, SY_BF16, 3, state->cache_shape);
    return made;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "1152 B n=%d of %dk S=%d %s%s", (int)shape->n, (int)(shape->rows / 1024), BLOCK,
             shape->blocks ? "blocks" : "rows", shape->check_unique ? " unique" : "");
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const size_t src_bytes = (size_t)state.shape.n * ROW_BYTES;
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "kv_scatter",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2 * (double)src_bytes + 4.0 * (double)state.shape.n,
                                 .limit = {.copy_bytes = src_bytes},
                             });
    else
        bench_no_memory(bench, "kv_scatter", name);
    release(&state);
}

const struct bench_op bench_kv_scatter = {"kv_scatter", N_FULL, N_QUICK, describe, run_case};
