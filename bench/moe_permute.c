/*
 * moe_permute, packed, bf16 rows and f32 probs. Must move: each token row read once, its K copies written,
 * the map read twice, indices and probs written. The limit is a copy of the output's size.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

struct shape {
    int64_t tokens, experts, k, hidden;
};

static const struct shape full[] = {
    {4096, 64, 8, 2048}, {4096, 256, 8, 7168}, {4096, 8, 2, 4096}, {128, 64, 8, 2048},
    {64, 64, 8, 2048},   {16, 64, 8, 2048},    {1, 64, 8, 2048},
};
static const struct shape quick[] = {{512, 64, 8, 1024}, {1, 64, 8, 2048}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

/* Inputs and outputs of one call; a case has several sets, more than fit in the caches. */
struct set {
    uint16_t *tokens, *rows; /* [T,H], [M,H] */
    int64_t tokens_shape[2], rows_shape[2];
    DLTensor tokens_view, rows_view;
};

struct state {
    struct shape shape;
    int64_t rows, n_sets;
    struct set *sets;
    uint8_t *map;                /* [T,E] */
    float *probs;                /* [T,E] */
    int32_t *index;              /* [M]   */
    float *row_probs;            /* [M]   */
    uint16_t *plain_rows;        /* results of the plain loop for the first set */
    int32_t *plain_index, *slot; /* [M], [T] */
    float *plain_probs;
    int64_t map_shape[2], flat_shape[1];
    DLTensor map_view, probs_view, index_view, row_probs_view;
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    return sy_moe_permute(ctx, &(sy_moe_permute_args){.tokens = &set->tokens_view,
                                                      .routing_map = &state->map_view,
                                                      .probs = &state->probs_view,
                                                      .num_out_tokens = state->rows,
                                                      .permuted_tokens = &set->rows_view,
                                                      .sorted_indices = &state->index_view,
                                                      .permuted_probs = &state->row_probs_view});
}

/* Expert by expert, token by token: the definition, written down. */
static void plain(void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    uint16_t *const rows = turn == 0 ? state->plain_rows : set->rows;
    const size_t row_bytes = (size_t)s->hidden * sizeof(uint16_t);
    memset(state->slot, 0, (size_t)s->tokens * sizeof *state->slot);
    int32_t row = 0;
    for (int64_t e = 0; e < s->experts; e++)
        for (int64_t t = 0; t < s->tokens; t++) {
            if (state->map[t * s->experts + e] == 0)
                continue;
            memcpy(rows + row * s->hidden, set->tokens + t * s->hidden, row_bytes);
            state->plain_probs[row] = state->probs[t * s->experts + e];
            state->plain_index[t * s->k + state->slot[t]++] = row++;
        }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const size_t rows = (size_t)state->rows;
    if (memcmp(state->index, state->plain_index, rows * sizeof *state->index) != 0)
        return "sorted_indices differ from the plain loop";
    if (memcmp(state->row_probs, state->plain_probs, rows * sizeof *state->row_probs) != 0)
        return "permuted_probs differ from the plain loop";
    if (memcmp(state->sets[0].rows, state->plain_rows, rows * (size_t)state->shape.hidden * 2) != 0)
        return "permuted_tokens differ from the plain loop";
    return NULL;
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].tokens);
        free(state->sets[i].rows);
    }
    free(state->sets);
    free(state->map);
    free(state->probs);
    free(state->index);
    free(state->row_probs);
    free(state->plain_rows);
    free(state->plain_index);
    free(state->plain_probs);
    free(state->slot);
}

static bool prepare_sets(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t token_bytes = (size_t)(s->tokens * s->hidden) * 2,
                 row_bytes = (size_t)(state->rows * s->hidden) * 2;
    state->n_sets = bench_sets(token_bytes + row_bytes);
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        struct set *const set = &state->sets[i];
        set->tokens = bench_alloc(token_bytes, 1);
        set->rows = bench_alloc(row_bytes, 1);
        if (!set->tokens || !set->rows)
            return false;
        if (i == 0)
            bench_fill_random(set->tokens, token_bytes, 11);
        else
            memcpy(set->tokens, state->sets[0].tokens, token_bytes);
        memset(set->rows, 0xa5, row_bytes);
        memcpy(set->tokens_shape, (int64_t[]){s->tokens, s->hidden}, sizeof set->tokens_shape);
        memcpy(set->rows_shape, (int64_t[]){state->rows, s->hidden}, sizeof set->rows_shape);
        set->tokens_view = sy_tensor(set->tokens, SY_BF16, 2, set->tokens_shape);
        set->rows_view = sy_tensor(set->rows, SY_BF16, 2, set->rows_shape);
    }
    return state->sets != NULL;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t cells = (size_t)(s->tokens * s->experts), rows = (size_t)state->rows;
    state->map = bench_alloc(cells, 1);
    state->probs = bench_alloc(cells, sizeof *state->probs);
    state->index = bench_alloc(rows, sizeof *state->index);
    state->row_probs = bench_alloc(rows, sizeof *state->row_probs);
    state->plain_rows = bench_alloc(rows * (size_t)s->hidden, 2);
    state->plain_index = bench_alloc(rows, sizeof *state->plain_index);
    state->plain_probs = bench_alloc(rows, sizeof *state->plain_probs);
    state->slot = bench_alloc((size_t)s->tokens, sizeof *state->slot);
    if (!state->map || !state->probs || !state->index || !state->row_probs || !state->plain_rows ||
        !state->plain_index || !state->plain_probs || !state->slot || !prepare_sets(state))
        return false;
    uint64_t seed = 7;
    bench_route(state->map, s->tokens, s->experts, s->k, seed);
    for (size_t i = 0; i < cells; i++)
        state->probs[i] = (float)bench_unit(&seed);
    memcpy(state->map_shape, (int64_t[]){s->tokens, s->experts}, sizeof state->map_shape);
    state->flat_shape[0] = state->rows;
    state->map_view = sy_tensor(state->map, SY_BOOL, 2, state->map_shape);
    state->probs_view = sy_tensor(state->probs, SY_F32, 2, state->map_shape);
    state->index_view = sy_tensor(state->index, SY_I32, 1, state->flat_shape);
    state->row_probs_view = sy_tensor(state->row_probs, SY_F32, 1, state->flat_shape);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "bf16 T=%d E=%d K=%d H=%d", (int)shape->tokens, (int)shape->experts, (int)shape->k,
             (int)shape->hidden);
}

void peers_moe_permute(int index, struct emit *json)
{
    const struct shape *const shape = shape_at(index);
    emit_string(json, "dtype", "bf16");
    emit_integer(json, "tokens", shape->tokens);
    emit_integer(json, "experts", shape->experts);
    emit_integer(json, "k", shape->k);
    emit_integer(json, "hidden", shape->hidden);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    const struct shape *const shape = shape_at(index);
    struct state state = {.shape = *shape, .rows = shape->tokens * shape->k};
    const size_t out_bytes = (size_t)(state.rows * shape->hidden) * 2;
    const double small = 2.0 * (double)(shape->tokens * shape->experts) + 12.0 * (double)state.rows;
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_permute",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)out_bytes * (1 + 1.0 / (double)shape->k) + small,
                                 .limit = {.copy_bytes = out_bytes},
                             });
    else
        bench_no_memory(bench, "moe_permute", name);
    release(&state);
}

const struct bench_op bench_moe_permute = {"moe_permute", N_FULL, N_QUICK, describe, run_case};
