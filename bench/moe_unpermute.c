/*
 * moe_unpermute, packed, bf16 rows and f32 probs. Must move: the K rows of each token read, the token written,
 * the map read twice, indices and weights read. The limit is a copy that moves as many row bytes.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t tokens, experts, k, hidden;
    bool weighted;
};

static const struct shape full[] = {
    {4096, 64, 8, 2048, true}, {4096, 64, 8, 2048, false}, {4096, 256, 8, 7168, true},
    {4096, 8, 2, 4096, true},  {128, 64, 8, 2048, true},   {1, 64, 8, 2048, true},
};
static const struct shape quick[] = {{512, 64, 8, 1024, true}, {1, 64, 8, 2048, true}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

/* What one call reads and writes; a case holds several, so that the caches cannot. */
struct set {
    uint16_t *rows, *tokens; /* [M,H], [T,H] */
    int64_t rows_shape[2], tokens_shape[2];
    DLTensor rows_view, tokens_view;
};

struct state {
    struct shape shape;
    int64_t rows, n_sets;
    struct set *sets;
    uint8_t *map;           /* [T,E] */
    float *probs;           /* [T,E] */
    int32_t *index;         /* [M]   */
    uint16_t *plain_tokens; /* what the plain loop makes of the first set */
    float *sum;             /* [H], of the plain loop */
    int64_t map_shape[2], flat_shape[1];
    DLTensor map_view, probs_view, index_view;
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    return sy_moe_unpermute(
        ctx, &(sy_moe_unpermute_args){.permuted_tokens = &set->rows_view,
                                      .sorted_indices = &state->index_view,
                                      .routing_map = &state->map_view,
                                      .probs = state->shape.weighted ? &state->probs_view : NULL,
                                      .tokens = &set->tokens_view});
}

/* Token by token, row by row, element by element: the definition, written down. */
static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    uint16_t *const tokens = turn == 0 ? state->plain_tokens : set->tokens;
    for (int64_t t = 0; t < s->tokens; t++) {
        int64_t slot = t * s->k;
        memset(state->sum, 0, (size_t)s->hidden * sizeof *state->sum);
        for (int64_t e = 0; e < s->experts; e++) {
            if (state->map[t * s->experts + e] == 0)
                continue;
            const float weight = s->weighted ? state->probs[t * s->experts + e] : 1.0f;
            const uint16_t *const row = set->rows + state->index[slot++] * s->hidden;
            for (int64_t h = 0; h < s->hidden; h++)
                state->sum[h] += weight * bench_bf16_value(row[h]);
        }
        for (int64_t h = 0; h < s->hidden; h++)
            tokens[t * s->hidden + h] = bench_bf16_round(state->sum[h]);
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)(state->shape.tokens * state->shape.hidden) * sizeof(uint16_t);
    return memcmp(state->sets[0].tokens, state->plain_tokens, bytes) != 0
               ? "tokens differ from the plain loop"
               : NULL;
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].rows);
        free(state->sets[i].tokens);
    }
    free(state->sets);
    free(state->map);
    free(state->probs);
    free(state->index);
    free(state->plain_tokens);
    free(state->sum);
}

static bool prepare_sets(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t row_elems = (size_t)(state->rows * s->hidden), token_elems = (size_t)(s->tokens * s->hidden);
    state->n_sets = bench_sets(row_elems * 2);
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        struct set *const set = &state->sets[i];
        set->rows = bench_alloc(row_elems, 2);
        set->tokens = bench_alloc(token_elems, 2);
        if (!set->rows || !set->tokens)
            return false;
        bench_fill_bf16(set->rows, row_elems, 11 + (uint64_t)i);
        memset(set->tokens, 0xa5, token_elems * 2);
        memcpy(set->rows_shape, (int64_t[]){state->rows, s->hidden}, sizeof set->rows_shape);
        memcpy(set->tokens_shape, (int64_t[]){s->tokens, s->hidden}, sizeof set->tokens_shape);
        set->rows_view = sy_tensor(set->rows, SY_BF16, 2, set->rows_shape);
        set->tokens_view = sy_tensor(set->tokens, SY_BF16, 2, set->tokens_shape);
    }
    return state->sets != NULL;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t cells = (size_t)(s->tokens * s->experts);
    state->map = bench_alloc(cells, 1);
    state->probs = bench_alloc(cells, sizeof *state->probs);
    state->index = bench_alloc((size_t)state->rows, sizeof *state->index);
    state->plain_tokens = bench_alloc((size_t)(s->tokens * s->hidden), 2);
    state->sum = bench_alloc((size_t)s->hidden, sizeof *state->sum);
    if (!state->map || !state->probs || !state->index || !state->plain_tokens || !state->sum ||
        !prepare_sets(state))
        return false;
    uint64_t seed = 7;
    bench_route(state->map, s->tokens, s->experts, s->k, seed);
    bench_slots(state->index, state->map, s->tokens, s->experts, s->k);
    for (size_t i = 0; i < cells; i++)
        state->probs[i] = (float)bench_unit(&seed);
    memcpy(state->map_shape, (int64_t[]){s->tokens, s->experts}, sizeof state->map_shape);
    state->flat_shape[0] = state->rows;
    state->map_view = sy_tensor(state->map, SY_BOOL, 2, state->map_shape);
    state->probs_view = sy_tensor(state->probs, SY_F32, 2, state->map_shape);
    state->index_view = sy_tensor(state->index, SY_I32, 1, state->flat_shape);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "bf16 T=%d E=%d K=%d H=%d%s", (int)shape->tokens, (int)shape->experts,
             (int)shape->k, (int)shape->hidden, shape->weighted ? "" : " plain");
}

static void run_case(struct bench *bench, int index, const char *name)
{
    const struct shape *const shape = shape_at(index);
    struct state state = {.shape = *shape, .rows = shape->tokens * shape->k};
    const size_t bytes = (size_t)((shape->tokens + state.rows) * shape->hidden) * 2;
    const double small = 2.0 * (double)(shape->tokens * shape->experts) + 8.0 * (double)state.rows;
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_unpermute",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)bytes + small,
                                 .limit = {.copy_bytes = bytes / 2},
                             });
    else
        bench_no_memory(bench, "moe_unpermute", name);
    release(&state);
}

const struct bench_op bench_moe_unpermute = {"moe_unpermute", N_FULL, N_QUICK, describe, run_case};
