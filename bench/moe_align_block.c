/*
 * moe_align_block: must read every id and write every place. The limit copies the ids.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t tokens, experts, k, block; /* int32 ids */
};

static const struct shape full[] = {{16384, 256, 8, 64}, {4096, 64, 8, 128}, {128, 256, 8, 16}};
static const struct shape quick[] = {{512, 64, 8, 16}};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct answer {
    int32_t *sorted, *blocks, padded;
};

struct state {
    struct shape shape;
    int64_t n_sets;
    int32_t **ids;
    struct answer got, plain;
    int64_t ids_shape[2], places_shape[1], blocks_shape[1], one_shape[1];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const DLTensor ids = sy_tensor(state->ids[turn % state->n_sets], SY_I32, 2, state->ids_shape),
                   sorted = sy_tensor(state->got.sorted, SY_I32, 1, state->places_shape),
                   blocks = sy_tensor(state->got.blocks, SY_I32, 1, state->blocks_shape),
                   padded = sy_tensor(&state->got.padded, SY_I32, 1, state->one_shape);
    return sy_moe_align_block(ctx, &(sy_moe_align_block_args){.ids = &ids,
                                                              .num_experts = state->shape.experts,
                                                              .block_size = state->shape.block,
                                                              .sorted_slots = &sorted,
                                                              .block_experts = &blocks,
                                                              .num_padded = &padded});
}

/* One pass over the slots for every expert: the definition, not an efficient method. */
static void plain(void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const int32_t *const ids = state->ids[turn % state->n_sets], slots = (int32_t)(s->tokens * s->k);
    int64_t at = 0, block = 0;
    for (int64_t e = 0; e < s->experts; e++) {
        for (int32_t i = 0; i < slots; i++)
            if (ids[i] == e)
                state->plain.sorted[at++] = i;
        while (at % s->block != 0)
            state->plain.sorted[at++] = slots;
        while (block * s->block < at)
            state->plain.blocks[block++] = (int32_t)e;
    }
    state->plain.padded = (int32_t)at;
    while (at < state->places_shape[0])
        state->plain.sorted[at++] = slots;
    while (block < state->blocks_shape[0])
        state->plain.blocks[block++] = -1;
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t places = (size_t)state->places_shape[0], blocks = (size_t)state->blocks_shape[0];
    if (state->got.padded != state->plain.padded)
        return "num_padded differs from the plain loop";
    if (memcmp(state->got.sorted, state->plain.sorted, places * sizeof *state->got.sorted) != 0)
        return "sorted_slots differ from the plain loop";
    return memcmp(state->got.blocks, state->plain.blocks, blocks * sizeof *state->got.blocks) == 0
               ? NULL
               : "block_experts differ from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->ids && i < state->n_sets; i++)
        free(state->ids[i]);
    free(state->ids);
    free(state->got.sorted);
    free(state->got.blocks);
    free(state->plain.sorted);
    free(state->plain.blocks);
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const int64_t slots = s->tokens * s->k, used = s->experts < slots ? s->experts : slots;
    uint64_t seed = 21;
    state->blocks_shape[0] = (slots + used * (s->block - 1)) / s->block;
    state->places_shape[0] = state->blocks_shape[0] * s->block;
    state->one_shape[0] = 1;
    memcpy(state->ids_shape, (int64_t[]){s->tokens, s->k}, sizeof state->ids_shape);
    state->n_sets = bench_sets((size_t)slots * sizeof(int32_t));
    state->ids = bench_alloc((size_t)state->n_sets, sizeof *state->ids);
    struct answer *const answers[] = {&state->got, &state->plain};
    for (int i = 0; i < 2; i++) {
        answers[i]->sorted = bench_alloc((size_t)state->places_shape[0], sizeof(int32_t));
        answers[i]->blocks = bench_alloc((size_t)state->blocks_shape[0], sizeof(int32_t));
        if (!answers[i]->sorted || !answers[i]->blocks)
            return false;
    }
    for (int64_t i = 0; state->ids && i < state->n_sets; i++) {
        if (!(state->ids[i] = bench_alloc((size_t)slots, sizeof(int32_t))))
            return false;
        for (int64_t j = 0; j < slots; j++)
            state->ids[i][j] = (int32_t)(bench_random(&seed) % (uint64_t)s->experts);
    }
    return state->ids != NULL;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "T=%d E=%d K=%d B=%d", (int)s->tokens, (int)s->experts, (int)s->k, (int)s->block);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const size_t ids = (size_t)(state.shape.tokens * state.shape.k) * sizeof(int32_t);
    if (prepare(&state))
        bench_measure(
            bench, &(struct bench_case){
                       .op = "moe_align_block",
                       .shape = name,
                       .state = &state,
                       .run = run,
                       .plain = plain,
                       .check = check,
                       .bytes = (double)ids + 4.0 * (double)(state.places_shape[0] + state.blocks_shape[0]),
                       .limit = {.copy_bytes = ids},
                   });
    else
        bench_no_memory(bench, "moe_align_block", name);
    release(&state);
}

const struct bench_op bench_moe_align_block = {"moe_align_block", N_FULL, N_QUICK, describe, run_case};
