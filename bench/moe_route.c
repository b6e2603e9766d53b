/*
 * moe_route: must move the logits, read once; ids and weights are small. The limit is a read of the logits.
 * The plain loop scores a row with the exponential of libm in double precision and inserts every expert into
 * a list of the best k. Its rounding is not the operator's, so an expert whose value is within 1e-6 of the
 * one it finds counts as correct; the operator's own tests check the last bit.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/number.h"
#include "peers.h"

enum { MOST_EXPERTS = 512, MOST_K = 16 };

struct shape {
    int64_t tokens, experts, k, groups, top_groups;
    sy_route_score score;
    bool softmax_after, bias, wide; /* wide: f32 instead of bf16 */
};

static const struct shape full[] = {
    {4096, 8, 2, 0, 0, SY_SCORE_NONE, true, false, true},
    {4096, 64, 6, 0, 0, SY_SCORE_SOFTMAX, false, false, false},
    {4096, 64, 8, 0, 0, SY_SCORE_SOFTMAX, false, false, false},
    {4096, 64, 8, 0, 0, SY_SCORE_SOFTMAX, false, false, true},
    {4096, 128, 8, 0, 0, SY_SCORE_SOFTMAX, false, false, false},
    {4096, 128, 8, 0, 0, SY_SCORE_SOFTMAX, false, false, true},
    {4096, 256, 8, 8, 4, SY_SCORE_SIGMOID, false, true, true},
    {4096, 256, 8, 8, 4, SY_SCORE_SIGMOID, false, true, false},
    {64, 256, 8, 8, 4, SY_SCORE_SIGMOID, false, true, true},
    {1, 256, 8, 8, 4, SY_SCORE_SIGMOID, false, true, true},
};
static const struct shape quick[] = {
    {512, 64, 6, 0, 0, SY_SCORE_SOFTMAX, false, false, false},
    {512, 256, 8, 8, 4, SY_SCORE_SIGMOID, false, true, true},
};

enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

static const char *const scores[] = {"softmax", "sigmoid", "none"};
static const double margin = 1e-6;

/* A row of the plain loop. */
struct plain_row {
    double x[MOST_EXPERTS], score[MOST_EXPERTS], value[MOST_EXPERTS];
    int64_t best[MOST_K];
    double weight[MOST_K];
};

struct state {
    struct shape shape;
    int64_t n_sets;
    void **sets; /* [T,E] each */
    DLTensor *views;
    float *bias, *weights;
    int32_t *ids;
    struct plain_row *rows; /* of set 0 */
    int64_t logits_shape[2], slots_shape[2], bias_shape[1];
    DLTensor bias_view, ids_view, weights_view;
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    return sy_moe_route(ctx, &(sy_moe_route_args){.logits = &state->views[turn % state->n_sets],
                                                  .bias = s->bias ? &state->bias_view : NULL,
                                                  .k = s->k,
                                                  .score = s->score,
                                                  .softmax_after = s->softmax_after,
                                                  .groups = s->groups,
                                                  .top_groups = s->top_groups,
                                                  .group_score = SY_GROUP_SUM2,
                                                  .renormalize = !s->softmax_after,
                                                  .ids = &state->ids_view,
                                                  .weights = &state->weights_view});
}

/* ---- The plain loop ------------------------------------------------------------------------------------ */

/* The best n of at least n, in order, by insertion. */
static void best_of(const double *value, int64_t count, int64_t n, int64_t *best)
{
    int64_t found = 0;
    memset(best, 0, (size_t)n * sizeof *best);
    for (int64_t i = 0; i < count; i++) {
        if (found == n && value[i] <= value[best[n - 1]])
            continue;
        int64_t at = found < n ? found++ : n - 1;
        for (; at > 0 && value[best[at - 1]] < value[i]; at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
}

static void plain_scores(const struct shape *s, struct plain_row *row)
{
    double max = row->x[0], sum = 0;
    for (int64_t e = 1; e < s->experts; e++)
        max = row->x[e] > max ? row->x[e] : max;
    for (int64_t e = 0; e < s->experts; e++) {
        if (s->score == SY_SCORE_SOFTMAX)
            row->score[e] = exp(row->x[e] - max);
        else
            row->score[e] = s->score == SY_SCORE_SIGMOID ? 1 / (1 + exp(-row->x[e])) : row->x[e];
        sum += row->score[e];
    }
    for (int64_t e = 0; s->score == SY_SCORE_SOFTMAX && e < s->experts; e++)
        row->score[e] /= sum;
}

static void plain_groups(const struct shape *s, double *value)
{
    double worth[MOST_EXPERTS] = {0};
    int64_t best[MOST_EXPERTS] = {0}, size = s->experts / s->groups;
    bool stays[MOST_EXPERTS] = {false};
    for (int64_t g = 0; g < s->groups; g++) {
        best_of(value + g * size, size, 2, best);
        worth[g] = value[g * size + best[0]] + value[g * size + best[1]];
    }
    best_of(worth, s->groups, s->top_groups, best);
    for (int64_t i = 0; i < s->top_groups; i++)
        stays[best[i]] = true;
    for (int64_t g = 0; g < s->groups; g++)
        for (int64_t i = 0; i < size && !stays[g]; i++)
            value[g * size + i] = -INFINITY;
}

static void plain_token(const struct state *state, struct plain_row *row)
{
    const struct shape *const s = &state->shape;
    double sum = 0;
    plain_scores(s, row);
    for (int64_t e = 0; e < s->experts; e++)
        row->value[e] = row->score[e] + (s->bias ? (double)state->bias[e] : 0);
    if (s->groups > 0)
        plain_groups(s, row->value);
    best_of(row->value, s->experts, s->k, row->best);
    for (int64_t j = 0; j < s->k; j++) {
        const int64_t e = row->best[j];
        row->weight[j] = s->softmax_after ? exp(row->x[e] - row->x[row->best[0]]) : row->score[e];
        sum += row->weight[j];
    }
    for (int64_t j = 0; j < s->k; j++)
        row->weight[j] /= sum;
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const void *const logits = state->sets[turn % state->n_sets];
    for (int64_t t = 0; t < s->tokens; t++) {
        struct plain_row *const row = &state->rows[turn == 0 ? t : 0];
        for (int64_t e = 0; e < s->experts; e++) {
            const int64_t at = t * s->experts + e;
            row->x[e] = (double)(s->wide ? ((const float *)logits)[at]
                                         : bf16_to_float(((const uint16_t *)logits)[at]));
        }
        plain_token(state, row);
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    for (int64_t t = 0; t < state->shape.tokens; t++)
        for (int64_t j = 0; j < state->shape.k; j++) {
            const struct plain_row *const row = &state->rows[t];
            const int64_t at = t * state->shape.k + j;
            const double found = row->value[state->ids[at]], want = row->value[row->best[j]];
            if (!(fabs(found - want) <= margin))
                return "ids differ from the plain loop";
            if (!(fabs((double)state->weights[at] - row->weight[j]) <= margin))
                return "weights differ from the plain loop";
        }
    return NULL;
}

/* ---- Data ---------------------------------------------------------------------------------------------- */

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++)
        free(state->sets[i]);
    free(state->sets);
    free(state->views);
    free(state->bias);
    free(state->weights);
    free(state->ids);
    free(state->rows);
}

static void fill_logits(const struct shape *s, void *data, uint64_t seed)
{
    for (int64_t i = 0; i < s->tokens * s->experts; i++) {
        const float wide = (float)(1.5 * bench_normal(&seed));
        if (s->wide)
            ((float *)data)[i] = wide;
        else
            ((uint16_t *)data)[i] = bf16_from_float(wide);
    }
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t cells = (size_t)(s->tokens * s->experts), slots = (size_t)(s->tokens * s->k);
    const size_t bytes = cells * (s->wide ? sizeof(float) : sizeof(uint16_t));
    uint64_t seed = 3;
    state->n_sets = bench_sets(bytes);
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    state->views = bench_alloc((size_t)state->n_sets, sizeof *state->views);
    state->bias = bench_alloc((size_t)s->experts, sizeof *state->bias);
    state->weights = bench_alloc(slots, sizeof *state->weights);
    state->ids = bench_alloc(slots, sizeof *state->ids);
    state->rows = bench_alloc((size_t)s->tokens, sizeof *state->rows);
    if (!state->sets || !state->views || !state->bias || !state->weights || !state->ids || !state->rows)
        return false;
    memcpy(state->logits_shape, (int64_t[]){s->tokens, s->experts}, sizeof state->logits_shape);
    memcpy(state->slots_shape, (int64_t[]){s->tokens, s->k}, sizeof state->slots_shape);
    state->bias_shape[0] = s->experts;
    for (int64_t i = 0; i < state->n_sets; i++) {
        state->sets[i] = bench_alloc(bytes, 1);
        if (!state->sets[i])
            return false;
        fill_logits(s, state->sets[i], 100 + (uint64_t)i);
        state->views[i] = sy_tensor(state->sets[i], s->wide ? SY_F32 : SY_BF16, 2, state->logits_shape);
    }
    for (int64_t e = 0; e < s->experts; e++)
        state->bias[e] = (float)(0.1 * bench_unit(&seed));
    state->bias_view = sy_tensor(state->bias, SY_F32, 1, state->bias_shape);
    state->ids_view = sy_tensor(state->ids, SY_I32, 2, state->slots_shape);
    state->weights_view = sy_tensor(state->weights, SY_F32, 2, state->slots_shape);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "%s T=%d E=%d K=%d %s%s%s", shape->wide ? "f32" : "bf16", (int)shape->tokens,
             (int)shape->experts, (int)shape->k,
             shape->softmax_after ? "softmax after" : scores[shape->score], shape->bias ? " bias" : "",
             shape->groups > 0 ? " groups" : "");
}

void peers_moe_route(int index, struct emit *json)
{
    const struct shape *const shape = shape_at(index);
    emit_string(json, "dtype", shape->wide ? "f32" : "bf16");
    emit_integer(json, "tokens", shape->tokens);
    emit_integer(json, "experts", shape->experts);
    emit_integer(json, "k", shape->k);
    emit_integer(json, "groups", shape->groups);
    emit_integer(json, "top_groups", shape->top_groups);
    emit_string(json, "score", scores[shape->score]);
    emit_bool(json, "softmax_after", shape->softmax_after);
    emit_bool(json, "bias", shape->bias);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    const struct shape *const shape = shape_at(index);
    struct state state = {.shape = *shape};
    const size_t cells = (size_t)(shape->tokens * shape->experts);
    const size_t bytes = cells * (shape->wide ? sizeof(float) : sizeof(uint16_t));
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_route",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)bytes,
                                 .limit = {.read_bytes = bytes},
                             });
    else
        bench_no_memory(bench, "moe_route", name);
    release(&state);
}

const struct bench_op bench_moe_route = {"moe_route", N_FULL, N_QUICK, describe, run_case};
