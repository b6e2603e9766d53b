/*
 * moe_route: must move the logits, read once; ids and weights are small. The limit is a read of the logits.
 * The plain loop scores a row with the exponential of libm in double precision and inserts every expert into
 * a list of the best k. Its rounding is not the operator's, so an expert whose value is within 1e-6 of the
 * one it finds counts as correct; the operator's own tests check the last bit.
 */
#include "described.h"

#include <math.h>

enum { MOST_EXPERTS = 2048, MOST_K = 16 };

static const char *const shapes[] = {
    "f32 T=4096 E=8 K=2 softmax after",
    "bf16 T=4096 E=64 K=6 softmax",
    "bf16 T=4096 E=64 K=8 softmax",
    "f32 T=4096 E=64 K=8 softmax",
    "bf16 T=4096 E=128 K=8 softmax",
    "f32 T=4096 E=128 K=8 softmax",
    "f32 T=4096 E=128 K=8 softmax given",
    "f32 T=4096 E=256 K=6 sqrtsoftplus bias shared",
    "f32 T=4096 E=256 K=8 sigmoid bias groups",
    "bf16 T=4096 E=256 K=8 sigmoid bias groups",
    "f32 T=64 E=256 K=8 sigmoid bias groups",
    "f32 T=1 E=256 K=8 sigmoid bias groups",
    /* Quick. */
    "bf16 T=512 E=64 K=6 softmax",
    "f32 T=512 E=256 K=8 sigmoid bias groups",
};

static const char *const there[] = {
    "f32 T=4096 E=256 K=8 sigmoid bias groups",
    "f32 T=4096 E=256 K=8 softmax",
    "bf16 T=4096 E=64 K=8 softmax",
    "f32 T=64 E=256 K=8 sigmoid bias groups",
    "f32 T=1 E=256 K=8 sigmoid bias groups",
    "f32 T=4096 E=384 K=8 softmax",
    "f32 T=4096 E=1000 K=8 softmax",
    "f32 T=4096 E=2048 K=16 softmax",
};

static const double margin = 1e-6;

/* A row of the plain loop. */
struct plain_row {
    double x[MOST_EXPERTS], score[MOST_EXPERTS], value[MOST_EXPERTS];
    int64_t best[MOST_K];
    double weight[MOST_K];
};

static void make(struct bench_call *c)
{
    sy_moe_route_args *const a = c->args;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E=");
    a->k = bench_size(c, "K=");
    a->softmax_after = bench_says(c->shape, "softmax after");
    a->score = a->softmax_after                       ? SY_SCORE_NONE
               : bench_says(c->shape, "sqrtsoftplus") ? SY_SCORE_SQRTSOFTPLUS
               : bench_says(c->shape, "sigmoid")      ? SY_SCORE_SIGMOID
                                                      : SY_SCORE_SOFTMAX;
    a->n_shared = bench_says(c->shape, "shared") ? 1 : 0;
    a->groups = bench_says(c->shape, "groups") ? 8 : 0;
    a->top_groups = a->groups / 2;
    a->group_score = SY_GROUP_SUM2;
    a->renormalize = !a->softmax_after;
    bench_in(c, &a->logits, bench_type(c), DIMS(tokens, experts), BENCH_TURNS, fill_normal, 15);
    if (bench_says(c->shape, "bias"))
        bench_in(c, &a->bias, SY_F32, DIMS(experts), BENCH_ONCE, fill_unit, 10);
    if (bench_says(c->shape, "given"))
        bench_in(c, &a->ids_in, SY_I32, DIMS(tokens, a->k), BENCH_ONCE, fill_different, experts);
    bench_room(c, &a->ids, SY_I32, DIMS(tokens, a->k + a->n_shared), BENCH_ONCE);
    bench_room(c, &a->weights, SY_F32, DIMS(tokens, a->k + a->n_shared), BENCH_ONCE);
    bench_scratch(c, sizeof(struct plain_row));
    c->limit.read_bytes = bench_bytes(a->logits);
}

/* ---- The plain loop ---- */

static void plain_scores(const sy_moe_route_args *a, int64_t experts, struct plain_row *row)
{
    double max = row->x[0], sum = 0;
    for (int64_t e = 1; e < experts; e++)
        max = row->x[e] > max ? row->x[e] : max;
    for (int64_t e = 0; e < experts; e++) {
        if (a->score == SY_SCORE_SOFTMAX)
            row->score[e] = exp(row->x[e] - max);
        else
            row->score[e] = a->score == SY_SCORE_SIGMOID        ? 1 / (1 + exp(-row->x[e]))
                            : a->score == SY_SCORE_SQRTSOFTPLUS ? sqrt(log1p(exp(row->x[e])))
                                                                : row->x[e];
        sum += row->score[e];
    }
    for (int64_t e = 0; a->score == SY_SCORE_SOFTMAX && e < experts; e++)
        row->score[e] /= sum;
}

static void plain_groups(const sy_moe_route_args *a, int64_t size, double *value)
{
    double worth[MOST_EXPERTS] = {0};
    int64_t best[MOST_EXPERTS] = {0};
    bool stays[MOST_EXPERTS] = {false};
    for (int64_t g = 0; g < a->groups; g++) {
        bench_best(value + g * size, size, 2, best);
        worth[g] = value[g * size + best[0]] + value[g * size + best[1]];
    }
    bench_best(worth, a->groups, a->top_groups, best);
    for (int64_t i = 0; i < a->top_groups; i++)
        stays[best[i]] = true;
    for (int64_t g = 0; g < a->groups; g++)
        for (int64_t i = 0; i < size && !stays[g]; i++)
            value[g * size + i] = -INFINITY;
}

static struct plain_row *plain_token(const struct bench_call *c, int64_t t)
{
    const sy_moe_route_args *const a = c->args;
    const int64_t experts = a->logits->shape[1];
    struct plain_row *const row = c->scratch;
    double sum = 0;
    for (int64_t e = 0; e < experts; e++)
        row->x[e] = (double)bench_load(a->logits, t * experts + e);
    plain_scores(a, experts, row);
    for (int64_t e = 0; e < experts; e++)
        row->value[e] = row->score[e] + (a->bias ? (double)((const float *)a->bias->data)[e] : 0);
    if (a->groups > 0)
        plain_groups(a, experts / a->groups, row->value);
    if (a->ids_in == NULL)
        bench_best(row->value, experts, a->k, row->best);
    for (int64_t j = 0; a->ids_in != NULL && j < a->k; j++)
        row->best[j] = ((const int32_t *)a->ids_in->data)[t * a->k + j];
    for (int64_t j = 0; j < a->k; j++) {
        const int64_t e = row->best[j];
        row->weight[j] = a->softmax_after ? exp(row->x[e] - row->x[row->best[0]]) : row->score[e];
        sum += row->weight[j];
    }
    for (int64_t j = 0; j < a->k; j++)
        row->weight[j] /= sum;
    return row;
}

static void plain(const struct bench_call *c)
{
    const sy_moe_route_args *const a = c->args;
    const int64_t slots = a->k + a->n_shared;
    for (int64_t t = 0; t < a->logits->shape[0]; t++) {
        const struct plain_row *const row = plain_token(c, t);
        for (int64_t j = 0; j < slots; j++) {
            const int64_t shared = a->logits->shape[1] + j - a->k;
            ((int32_t *)a->ids->data)[t * slots + j] = (int32_t)(j < a->k ? row->best[j] : shared);
            ((float *)a->weights->data)[t * slots + j] = j < a->k ? (float)row->weight[j] : 1;
        }
    }
}

static const char *check(const struct bench_call *c)
{
    const sy_moe_route_args *const a = c->args;
    const int64_t slots = a->k + a->n_shared;
    for (int64_t t = 0; t < a->logits->shape[0]; t++) {
        const struct plain_row *const row = plain_token(c, t);
        for (int64_t j = 0; j < a->k; j++) {
            const int32_t found = ((const int32_t *)a->ids->data)[t * slots + j];
            if (found < 0 || found >= a->logits->shape[1] ||
                !(fabs(row->value[found] - row->value[row->best[j]]) <= margin))
                return "ids differ from the plain loop";
            if (!(fabs((double)bench_load(a->weights, t * slots + j) - row->weight[j]) <= margin))
                return "weights differ from the plain loop";
        }
    }
    return NULL;
}

BENCH_OP(moe_route, shapes, 2, make, .plain = plain, BENCH_THERE, .check = check, .peers = true);
