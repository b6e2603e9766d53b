/*
 * moe_ids_from_map: must read the map and write the ids. The limit reads as many bytes.
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
    uint8_t **maps;
    int32_t *ids, *plain_ids;
    int64_t ids_shape[2], map_shape[2];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const DLTensor map = sy_tensor(state->maps[turn % state->n_sets], SY_BOOL, 2, state->map_shape);
    const DLTensor ids = sy_tensor(state->ids, SY_I32, 2, state->ids_shape);
    return sy_moe_ids_from_map(
        ctx, &(sy_moe_ids_from_map_args){.routing_map = &map, .k = state->shape.k, .ids = &ids});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const uint8_t *const map = state->maps[turn % state->n_sets];
    for (int64_t t = 0; t < s->tokens; t++) {
        int64_t slot = t * s->k;
        for (int64_t e = 0; e < s->experts; e++)
            if (map[t * s->experts + e])
                state->plain_ids[slot++] = (int32_t)e;
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)(state->shape.tokens * state->shape.k) * sizeof *state->ids;
    return memcmp(state->ids, state->plain_ids, bytes) == 0 ? NULL : "ids differ from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->maps && i < state->n_sets; i++)
        free(state->maps[i]);
    free(state->maps);
    free(state->ids);
    free(state->plain_ids);
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t cells = (size_t)(s->tokens * s->experts), slots = (size_t)(s->tokens * s->k);
    state->n_sets = bench_sets(cells);
    state->maps = bench_alloc((size_t)state->n_sets, sizeof *state->maps);
    state->ids = bench_alloc(slots, sizeof *state->ids);
    state->plain_ids = bench_alloc(slots, sizeof *state->plain_ids);
    if (!state->maps || !state->ids || !state->plain_ids)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++) {
        if (!(state->maps[i] = bench_alloc(cells, 1)))
            return false;
        bench_route(state->maps[i], s->tokens, s->experts, s->k, 7 + (uint64_t)i);
    }
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
                                 .op = "moe_ids_from_map",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)cells + 4.0 * (double)(state.shape.tokens * state.shape.k),
                                 .limit = {.read_bytes = cells},
                             });
    else
        bench_no_memory(bench, "moe_ids_from_map", name);
    release(&state);
}

const struct bench_op bench_moe_ids_from_map = {"moe_ids_from_map", N_FULL, N_QUICK, describe, run_case};
