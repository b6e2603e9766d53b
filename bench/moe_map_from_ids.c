/*
 * moe_map_from_ids: must move the ids and fill the map. The limit fills as many bytes.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t tokens, experts, k;
};

static const struct shape full[] = {{4096, 64, 8}, {4096, 256, 8}, {65536, 256, 8}, {64, 256, 8}};
static const struct shape quick[] = {{1024, 64, 8}};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct shape shape;
    int64_t n_sets;
    uint8_t **maps, *plain_map;
    int32_t *ids;
    int64_t ids_shape[2], map_shape[2];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const DLTensor ids = sy_tensor(state->ids, SY_I32, 2, state->ids_shape);
    const DLTensor map = sy_tensor(state->maps[turn % state->n_sets], SY_BOOL, 2, state->map_shape);
    return sy_moe_map_from_ids(
        ctx,
        &(sy_moe_map_from_ids_args){.ids = &ids, .num_experts = state->shape.experts, .routing_map = &map});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    uint8_t *const map = turn == 0 ? state->plain_map : state->maps[turn % state->n_sets];
    memset(map, 0, (size_t)(s->tokens * s->experts));
    for (int64_t t = 0; t < s->tokens; t++)
        for (int64_t j = 0; j < s->k; j++)
            map[t * s->experts + state->ids[t * s->k + j]] = 1;
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)(state->shape.tokens * state->shape.experts);
    return memcmp(state->maps[0], state->plain_map, bytes) == 0 ? NULL
                                                                : "the map differs from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->maps && i < state->n_sets; i++)
        free(state->maps[i]);
    free(state->maps);
    free(state->plain_map);
    free(state->ids);
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t cells = (size_t)(s->tokens * s->experts);
    state->n_sets = bench_sets(cells);
    state->maps = bench_alloc((size_t)state->n_sets, sizeof *state->maps);
    state->plain_map = bench_alloc(cells, 1);
    state->ids = bench_alloc((size_t)(s->tokens * s->k), sizeof *state->ids);
    if (!state->maps || !state->plain_map || !state->ids)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++)
        if (!(state->maps[i] = bench_alloc(cells, 1)))
            return false;
    bench_route(state->plain_map, s->tokens, s->experts, s->k, 7);
    for (int64_t i = 0, slot = 0; i < s->tokens * s->experts; i++)
        if (state->plain_map[i])
            state->ids[slot++] = (int32_t)(i % s->experts);
    memcpy(state->ids_shape, (int64_t[]){s->tokens, s->k}, sizeof state->ids_shape);
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
    snprintf(text, bytes, "T=%d E=%d K=%d", (int)s->tokens, (int)s->experts, (int)s->k);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const size_t cells = (size_t)(state.shape.tokens * state.shape.experts);
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_map_from_ids",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)cells + 4.0 * (double)(state.shape.tokens * state.shape.k),
                                 .limit = {.fill_bytes = cells},
                             });
    else
        bench_no_memory(bench, "moe_map_from_ids", name);
    release(&state);
}

const struct bench_op bench_moe_map_from_ids = {"moe_map_from_ids", N_FULL, N_QUICK, describe, run_case};
