/*
 * moe_unpermute_grad, packed, bf16 rows and f32 probs. Must move: each token's gradient read, the K rows that were
 * unpermuted read, the gradients of K rows written, the map read twice, indices and weights read, gradients of probs
 * written. Plain, without probs: only the rows written. The limit is a copy that moves as many row bytes.
 */
#include "moe_rows.h"

#include <stdlib.h>
#include <string.h>

static const struct rows_shape full[] = {{4096, 64, 8, 2048, true},
                                         {4096, 64, 8, 2048, false},
                                         {4096, 256, 8, 7168, true},
                                         {4096, 8, 2, 4096, true},
                                         {128, 64, 8, 2048, true}};
static const struct rows_shape quick[] = {{512, 64, 8, 1024, true}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct rows rows;
    uint16_t *grad_rows, *plain_rows; /* [M,H] */
    float *grad_probs, *plain_probs;  /* [T,E] */
    DLTensor grad_rows_view, grad_probs_view;
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct rows *const r = &state->rows;
    const struct rows_set *const set = rows_of_turn(r, turn);
    const bool weighted = r->shape.weighted;
    return sy_moe_unpermute_grad(
        ctx, &(sy_moe_unpermute_grad_args){.grad_tokens = &set->tokens_view,
                                           .sorted_indices = &r->index_view,
                                           .permuted_tokens = weighted ? &set->permuted_view : NULL,
                                           .routing_map = &r->map_view,
                                           .probs = weighted ? &r->probs_view : NULL,
                                           .grad_permuted_tokens = &state->grad_rows_view,
                                           .grad_probs = weighted ? &state->grad_probs_view : NULL});
}

/* Sixteen partial sums, then added by halves: the documented order, for rows of up to 8192. */
static float plain_dot(const uint16_t *a, const uint16_t *b, int64_t n)
{
    float lane[16] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % 16] += bench_bf16_value(a[i]) * bench_bf16_value(b[i]);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* Expert by expert of each token: a row to scale or copy, a product to add up. */
static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct rows *const r = &state->rows;
    const struct rows_shape *const s = &r->shape;
    const struct rows_set *const set = rows_of_turn(r, turn);
    int64_t slot = 0;
    for (int64_t i = 0; i < s->tokens * s->experts; i++) {
        state->plain_probs[i] = 0;
        if (r->map[i] == 0)
            continue;
        const uint16_t *const token = set->tokens + i / s->experts * s->hidden;
        const int64_t row = r->index[slot++] * s->hidden;
        for (int64_t h = 0; h < s->hidden; h++)
            state->plain_rows[row + h] =
                s->weighted ? bench_bf16_round(r->probs[i] * bench_bf16_value(token[h])) : token[h];
        if (s->weighted)
            state->plain_probs[i] = plain_dot(token, set->permuted + row, s->hidden);
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const struct rows *const r = &state->rows;
    const size_t row_bytes = (size_t)(r->n_rows * r->shape.hidden) * sizeof(uint16_t);
    const size_t cells = (size_t)(r->shape.tokens * r->shape.experts);
    if (memcmp(state->grad_rows, state->plain_rows, row_bytes) != 0)
        return "grad_permuted_tokens differ from the plain loop";
    if (r->shape.weighted && memcmp(state->grad_probs, state->plain_probs, cells * sizeof(float)) != 0)
        return "grad_probs differ from the plain loop";
    return NULL;
}

static bool prepare(struct state *state, const struct rows_shape *shape)
{
    const size_t cells = (size_t)(shape->tokens * shape->experts);
    const size_t row_elems = (size_t)(shape->tokens * shape->k * shape->hidden);
    if (!rows_make(&state->rows, shape))
        return false;
    state->grad_rows = bench_alloc(row_elems, sizeof(uint16_t));
    state->plain_rows = bench_alloc(row_elems, sizeof(uint16_t));
    state->grad_probs = bench_alloc(cells, sizeof(float));
    state->plain_probs = bench_alloc(cells, sizeof(float));
    state->grad_rows_view = sy_tensor(state->grad_rows, SY_BF16, 2, state->rows.permuted_shape);
    state->grad_probs_view = sy_tensor(state->grad_probs, SY_F32, 2, state->rows.map_shape);
    return state->grad_rows && state->plain_rows && state->grad_probs && state->plain_probs;
}

static const struct rows_shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    rows_describe(shape_at(index), text, bytes);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {0};
    const bool made = prepare(&state, shape_at(index));
    const struct rows *const r = &state.rows;
    const double small = 6.0 * (double)(r->shape.tokens * r->shape.experts) + 8.0 * (double)r->n_rows;
    const size_t saved = r->shape.weighted ? (size_t)(r->n_rows * r->shape.hidden) * sizeof(uint16_t) : 0;
    if (made)
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_unpermute_grad",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)(rows_bytes(r) + saved) + small,
                                 .limit = {.copy_bytes = (rows_bytes(r) + saved) / 2},
                             });
    else
        bench_no_memory(bench, "moe_unpermute_grad", name);
    rows_free(&state.rows);
    free(state.grad_rows);
    free(state.plain_rows);
    free(state.grad_probs);
    free(state.plain_probs);
}

const struct bench_op bench_moe_unpermute_grad = {"moe_unpermute_grad", N_FULL, N_QUICK, describe, run_case};
