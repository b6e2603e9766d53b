/*
 * moe_unpermute_ids: must read one row per slot and write one per token. The limit is a copy that moves as much.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t tokens, k, hidden; /* f32 rows */
};

static const struct shape full[] = {{4096, 8, 2048}, {4096, 2, 4096}, {128, 8, 2048}};
static const struct shape quick[] = {{512, 8, 512}};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct set {
    float *rows, *tokens;
};

struct state {
    struct shape shape;
    int64_t n_sets;
    struct set *sets;
    int32_t *indices;
    float *probs, *plain_tokens;
    int64_t tokens_shape[2], probs_shape[2], rows_shape[2], slots_shape[1];
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    const DLTensor rows = sy_tensor(set->rows, SY_F32, 2, state->rows_shape),
                   indices = sy_tensor(state->indices, SY_I32, 1, state->slots_shape),
                   probs = sy_tensor(state->probs, SY_F32, 2, state->probs_shape),
                   tokens = sy_tensor(set->tokens, SY_F32, 2, state->tokens_shape);
    return sy_moe_unpermute_ids(
        ctx, &(sy_moe_unpermute_ids_args){
                 .permuted_tokens = &rows, .sorted_indices = &indices, .probs = &probs, .tokens = &tokens});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    float *const tokens = turn == 0 ? state->plain_tokens : set->tokens;
    memset(tokens, 0, (size_t)(s->tokens * s->hidden) * sizeof *tokens);
    for (int64_t i = 0; i < s->tokens * s->k; i++)
        for (int64_t h = 0; h < s->hidden; h++)
            tokens[i / s->k * s->hidden + h] +=
                state->probs[i] * set->rows[state->indices[i] * s->hidden + h];
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)(state->shape.tokens * state->shape.hidden) * sizeof(float);
    return memcmp(state->sets[0].tokens, state->plain_tokens, bytes) == 0
               ? NULL
               : "tokens differ from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].rows);
        free(state->sets[i].tokens);
    }
    free(state->sets);
    free(state->indices);
    free(state->probs);
    free(state->plain_tokens);
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t slots = (size_t)(s->tokens * s->k), tokens = (size_t)(s->tokens * s->hidden),
                 rows = slots * (size_t)s->hidden;
    uint64_t seed = 9;
    state->n_sets = bench_sets((tokens + rows) * sizeof(float));
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    state->indices = bench_alloc(slots, sizeof *state->indices);
    state->probs = bench_alloc(slots, sizeof *state->probs);
    state->plain_tokens = bench_alloc(tokens, sizeof *state->plain_tokens);
    if (!state->sets || !state->indices || !state->probs || !state->plain_tokens)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++) {
        struct set *const set = &state->sets[i];
        set->rows = bench_alloc(rows, sizeof *set->rows);
        set->tokens = bench_alloc(tokens, sizeof *set->tokens);
        if (!set->rows || !set->tokens)
            return false;
        for (size_t j = 0; j < rows; j++)
            set->rows[j] = (float)(j % 1021) - 500;
    }
    for (size_t i = 0; i < slots; i++) { /* a shuffle */
        const size_t j = (size_t)(bench_random(&seed) % (i + 1));
        state->indices[i] = state->indices[j];
        state->indices[j] = (int32_t)i;
        state->probs[i] = (float)bench_unit(&seed) + 0.01f;
    }
    memcpy(state->tokens_shape, (int64_t[]){s->tokens, s->hidden}, sizeof state->tokens_shape);
    memcpy(state->probs_shape, (int64_t[]){s->tokens, s->k}, sizeof state->probs_shape);
    memcpy(state->rows_shape, (int64_t[]){s->tokens * s->k, s->hidden}, sizeof state->rows_shape);
    state->slots_shape[0] = s->tokens * s->k;
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "f32 T=%d K=%d H=%d", (int)s->tokens, (int)s->k, (int)s->hidden);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const struct shape *const s = &state.shape;
    if (prepare(&state)) {
        const size_t token_bytes = (size_t)(s->tokens * s->hidden) * sizeof(float);
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_unpermute_ids",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)(s->k + 1) * (double)token_bytes,
                                 .limit = {.copy_bytes = (size_t)(s->k + 1) * token_bytes / 2},
                             });
    } else {
        bench_no_memory(bench, "moe_unpermute_ids", name);
    }
    release(&state);
}

const struct bench_op bench_moe_unpermute_ids = {"moe_unpermute_ids", N_FULL, N_QUICK, describe, run_case};
