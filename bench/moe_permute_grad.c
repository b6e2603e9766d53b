/*
 * moe_permute_grad, packed, bf16 rows and f32 probs. Must move: the K rows of each token read, the token written, the
 * map read twice, indices and the gradients of row probs read, those of all probs written. The limit is a copy that
 * moves as many row bytes.
 */
#include "moe_rows.h"

#include <stdlib.h>
#include <string.h>

static const struct rows_shape full[] = {{4096, 64, 8, 2048, false},
                                         {4096, 256, 8, 7168, false},
                                         {4096, 8, 2, 4096, false},
                                         {128, 64, 8, 2048, false}};
static const struct rows_shape quick[] = {{512, 64, 8, 1024, false}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct rows rows;
    float *row_probs, *grad_probs, *plain_probs; /* [M], [T,E], [T,E] */
    DLTensor row_probs_view, grad_probs_view;
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct rows *const r = &state->rows;
    const struct rows_set *const set = rows_of_turn(r, turn);
    return sy_moe_permute_grad(ctx, &(sy_moe_permute_grad_args){.grad_permuted_tokens = &set->permuted_view,
                                                                .sorted_indices = &r->index_view,
                                                                .grad_permuted_probs = &state->row_probs_view,
                                                                .routing_map = &r->map_view,
                                                                .num_experts = r->shape.experts,
                                                                .num_tokens = r->shape.tokens,
                                                                .grad_tokens = &set->tokens_view,
                                                                .grad_probs = &state->grad_probs_view});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct rows *const r = &state->rows;
    const struct rows_set *const set = rows_of_turn(r, turn);
    const int64_t cells = r->shape.tokens * r->shape.experts;
    rows_plain_sum(r, set, turn == 0 ? r->plain_tokens : set->tokens);
    for (int64_t i = 0, slot = 0; i < cells; i++) /* every token has all its slots */
        state->plain_probs[i] = r->map[i] != 0 ? state->row_probs[r->index[slot++]] : 0.0f;
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const struct rows *const r = &state->rows;
    const size_t bytes = (size_t)(r->shape.tokens * r->shape.hidden) * sizeof(uint16_t);
    const size_t cells = (size_t)(r->shape.tokens * r->shape.experts);
    if (memcmp(r->sets[0].tokens, r->plain_tokens, bytes) != 0)
        return "grad_tokens differ from the plain loop";
    if (memcmp(state->grad_probs, state->plain_probs, cells * sizeof(float)) != 0)
        return "grad_probs differ from the plain loop";
    return NULL;
}

static bool prepare(struct state *state, const struct rows_shape *shape)
{
    const size_t cells = (size_t)(shape->tokens * shape->experts);
    if (!rows_make(&state->rows, shape))
        return false;
    struct rows *const r = &state->rows;
    state->row_probs = bench_alloc((size_t)r->n_rows, sizeof(float));
    state->grad_probs = bench_alloc(cells, sizeof(float));
    state->plain_probs = bench_alloc(cells, sizeof(float));
    if (!state->row_probs || !state->grad_probs || !state->plain_probs)
        return false;
    uint64_t seed = 3;
    for (int64_t i = 0; i < r->n_rows; i++)
        state->row_probs[i] = (float)bench_normal(&seed);
    state->row_probs_view = sy_tensor(state->row_probs, SY_F32, 1, r->permuted_shape);
    state->grad_probs_view = sy_tensor(state->grad_probs, SY_F32, 2, r->map_shape);
    return true;
}

static const struct rows_shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    rows_describe(&(struct rows_shape){shape_at(index)->tokens, shape_at(index)->experts, shape_at(index)->k,
                                       shape_at(index)->hidden, true},
                  text, bytes);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {0};
    const bool made = prepare(&state, shape_at(index));
    const struct rows *const r = &state.rows;
    const double small = 6.0 * (double)(r->shape.tokens * r->shape.experts) + 8.0 * (double)r->n_rows;
    if (made)
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_permute_grad",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)rows_bytes(r) + small,
                                 .limit = {.copy_bytes = rows_bytes(r) / 2},
                             });
    else
        bench_no_memory(bench, "moe_permute_grad", name);
    rows_free(&state.rows);
    free(state.row_probs);
    free(state.grad_probs);
    free(state.plain_probs);
}

const struct bench_op bench_moe_permute_grad = {"moe_permute_grad", N_FULL, N_QUICK, describe, run_case};
