/*
 * moe_pad_map: must read the map and write it. The limit is a copy of it.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t tokens, experts, k, alignment;
};

static const struct shape full[] = {{16384, 256, 8, 128}, {4096, 64, 8, 16}, {128, 64, 8, 16}};
static const struct shape quick[] = {{512, 64, 8, 16}};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct shape shape;
    int64_t n_sets;
    uint8_t **maps, **padded, *plain_map;
    int64_t map_shape[2];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const DLTensor map = sy_tensor(state->maps[turn % state->n_sets], SY_BOOL, 2, state->map_shape),
                   padded = sy_tensor(state->padded[turn % state->n_sets], SY_BOOL, 2, state->map_shape);
    return sy_moe_pad_map(ctx, &(sy_moe_pad_map_args){.routing_map = &map,
                                                      .alignment = state->shape.alignment,
                                                      .padded_map = &padded});
}

/* Expert by expert, as the definition reads. */
static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    uint8_t *const map = turn == 0 ? state->plain_map : state->padded[turn % state->n_sets];
    memcpy(map, state->maps[turn % state->n_sets], (size_t)(s->tokens * s->experts));
    for (int64_t e = 0; e < s->experts; e++) {
        int64_t count = 0;
        for (int64_t t = 0; t < s->tokens; t++)
            count += map[t * s->experts + e];
        for (int64_t t = 0; count % s->alignment != 0 && t < s->tokens; t++)
            if (!map[t * s->experts + e]) {
                map[t * s->experts + e] = 1;
                count++;
            }
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t cells = (size_t)(state->shape.tokens * state->shape.experts);
    return memcmp(state->padded[0], state->plain_map, cells) == 0 ? NULL
                                                                  : "the map differs from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; i < state->n_sets; i++) {
        if (state->maps)
            free(state->maps[i]);
        if (state->padded)
            free(state->padded[i]);
    }
    free(state->maps);
    free(state->padded);
    free(state->plain_map);
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t cells = (size_t)(s->tokens * s->experts);
    state->n_sets = bench_sets(2 * cells);
    state->maps = bench_alloc((size_t)state->n_sets, sizeof *state->maps);
    state->padded = bench_alloc((size_t)state->n_sets, sizeof *state->padded);
    state->plain_map = bench_alloc(cells, 1);
    if (!state->maps || !state->padded || !state->plain_map)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++) {
        if (!(state->maps[i] = bench_alloc(cells, 1)) || !(state->padded[i] = bench_alloc(cells, 1)))
            return false;
        bench_route(state->maps[i], s->tokens, s->experts, s->k, 7 + (uint64_t)i);
    }
    memcpy(state->map_shape, (int64_t[]){s->tokens, s->experts}, sizeof state->map_shape);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "T=%d E=%d K=%d a=%d", (int)s->tokens, (int)s->experts, (int)s->k,
             (int)s->alignment);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const size_t cells = (size_t)(state.shape.tokens * state.shape.experts);
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_pad_map",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2.0 * (double)cells,
                                 .limit = {.copy_bytes = cells},
                             });
    else
        bench_no_memory(bench, "moe_pad_map", name);
    release(&state);
}

const struct bench_op bench_moe_pad_map = {"moe_pad_map", N_FULL, N_QUICK, describe, run_case};
