/*
 * Nothing is selected: whatever has an order is sorted as a whole. Sums, quotients and products of two f32 values are
 * formed in double and rounded once more, which gives the f32 operation, because a double has more than twice its bits.
 * Exponentials and fixed-point weights are those of the oracle of `sample`.
 */
#include "oracle/moe_route.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle/sample.h"
#include "support.h"

struct entry {
    double value;
    int64_t i;
};

/* Larger value first, then lower number. */
static int by_value(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    if (p->value != q->value)
        return p->value > q->value ? -1 : 1;
    return p->i < q->i ? -1 : 1;
}

static int by_number(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    return p->i < q->i ? -1 : p->i > q->i;
}

/* One rounding to f32. */
static double rounded(double x)
{
    return (double)f32_from_bits(f32_round(x));
}

static double canonical(double x)
{
    if (isnan(x))
        return -INFINITY;
    return isinf(x) && x > 0 ? (double)FLT_MAX : x == 0 ? 0.0 : x;
}

/* Softmax in fixed point: whole weights of 2^-40, their exact sum, one division. */
static void softmax(const double *x, int64_t n, double *share)
{
    double max = -INFINITY;
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++)
        sum += isinf(x[i]) ? 0 : oracle_sample_weight(oracle_sample_exp((float)rounded(x[i] - max)));
    for (int64_t i = 0; i < n; i++) {
        const float e = isinf(x[i]) ? 0 : oracle_sample_exp((float)rounded(x[i] - max));
        share[i] = sum ? rounded((double)oracle_sample_weight(e) / (double)sum) : 0;
    }
}

static double sigmoid(double x)
{
    const double e = isinf(x) ? 0 : (double)oracle_sample_exp((float)-fabs(x));
    return rounded((x >= 0 ? 1 : e) / rounded(1 + e));
}

static void scores(const struct route_case *in, const double *x, double *s)
{
    if (in->score == SY_SCORE_SOFTMAX)
        softmax(x, in->experts, s);
    for (int64_t e = 0; in->score != SY_SCORE_SOFTMAX && e < in->experts; e++)
        s[e] = in->score == SY_SCORE_SIGMOID ? sigmoid(x[e]) : x[e];
}

/* Which experts compete: those of the groups that come first when groups are sorted. */
static void competing(const struct route_case *in, const double *v, bool *in_race)
{
    const int64_t groups = in->groups > 0 ? in->groups : 1, size = in->experts / groups;
    struct entry *group = calloc((size_t)groups, sizeof *group),
                 *member = calloc((size_t)size, sizeof *member);
    assert_true(group && member);
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t i = 0; i < size; i++)
            member[i] = (struct entry){v[g * size + i], i};
        qsort(member, (size_t)size, sizeof *member, by_value);
        const bool two = in->group_score == SY_GROUP_SUM2 && size > 1;
        group[g] = (struct entry){two ? rounded(member[0].value + member[1].value) : member[0].value, g};
    }
    qsort(group, (size_t)groups, sizeof *group, by_value);
    for (int64_t e = 0; e < in->experts; e++)
        in_race[e] = in->groups == 0;
    for (int64_t r = 0; in->groups > 0 && r < in->top_groups; r++)
        for (int64_t i = 0; i < size; i++)
            in_race[group[r].i * size + i] = true;
    free(group);
    free(member);
}

/* All experts in the race, best first; returns how many. */
static int64_t ranking(const struct route_case *in, const double *s, bool with_bias, struct entry *order)
{
    double *v = calloc((size_t)in->experts, sizeof *v);
    bool *in_race = calloc((size_t)in->experts, sizeof *in_race);
    int64_t n = 0;
    assert_true(v && in_race);
    for (int64_t e = 0; e < in->experts; e++)
        v[e] = canonical(with_bias && in->bias ? rounded(s[e] + (double)in->bias[e]) : s[e]);
    competing(in, v, in_race);
    for (int64_t e = 0; e < in->experts; e++)
        if (in_race[e])
            order[n++] = (struct entry){v[e], e};
    qsort(order, (size_t)n, sizeof *order, by_value);
    free(v);
    free(in_race);
    return n;
}

static void weigh(const struct route_case *in, const double *x, const double *s, const struct entry *order,
                  double *w, struct route_result *out)
{
    double *chosen = calloc((size_t)in->k, sizeof *chosen), sum = 0;
    assert_non_null(chosen);
    for (int64_t j = 0; j < in->k; j++) {
        chosen[j] = x[order[j].i];
        w[j] = isinf(s[order[j].i]) ? 0 : s[order[j].i];
    }
    if (in->softmax_after)
        softmax(chosen, in->k, w);
    for (int64_t j = 0; j < in->k; j++)
        sum = rounded(sum + w[j]);
    sum = rounded(sum + (double)in->eps);
    out->zero_sums += in->renormalize && sum == 0;
    for (int64_t j = 0; j < in->k; j++) {
        if (in->renormalize)
            w[j] = sum != 0 ? rounded(w[j] / sum) : 0;
        w[j] = rounded(w[j] * (in->scale == 0 ? 1 : (double)in->scale));
    }
    free(chosen);
}

static bool same_winners(const struct entry *a, const struct entry *b, int64_t k)
{
    for (int64_t j = 0; j < k; j++)
        if (a[j].i != b[j].i)
            return false;
    return true;
}

static void note_row(const struct route_case *in, const double *x, const double *s, const struct entry *order,
                     int64_t n, struct route_result *out)
{
    struct entry *plain = calloc((size_t)in->experts, sizeof *plain);
    double max = -INFINITY;
    assert_non_null(plain);
    ranking(in, s, false, plain);
    out->bias_decided += in->bias && !same_winners(order, plain, in->k);
    if (n > in->k && order[in->k].value == order[in->k - 1].value) {
        out->cut_ties++;
        out->rounded_ties += x[order[in->k].i] != x[order[in->k - 1].i];
    }
    for (int64_t e = 0; e < in->experts; e++)
        max = x[e] > max ? x[e] : max;
    out->empty_rows += max == -INFINITY;
    free(plain);
}

static void route_row(const struct route_case *in, int64_t t, struct route_result *out)
{
    const int64_t n_experts = in->experts, k = in->k;
    double *x = calloc((size_t)n_experts, sizeof *x), *s = calloc((size_t)n_experts, sizeof *s);
    double *w = calloc((size_t)k, sizeof *w);
    struct entry *order = calloc((size_t)n_experts, sizeof *order);
    assert_true(x && s && w && order);
    for (int64_t e = 0; e < n_experts; e++)
        x[e] = canonical((double)in->logits[t * n_experts + e]);
    scores(in, x, s);
    for (int64_t e = 0; e < n_experts; e++)
        out->score[t * n_experts + e] = (float)s[e];
    const bool finished = in->finished && in->finished[t];
    const int64_t n = finished ? 0 : ranking(in, s, true, order);
    if (!finished) {
        note_row(in, x, s, order, n, out);
        weigh(in, x, s, order, w, out);
    }
    for (int64_t j = 0; !finished && j < k; j++) {
        const int64_t e = order[j].i;
        out->map[t * n_experts + e] = 1;
        out->prob[t * n_experts + e] = (float)w[j];
        out->count[e]++;
    }
    if (in->slot_order == SY_SLOT_EXPERT)
        qsort(order, finished ? 0 : (size_t)k, sizeof *order, by_number);
    for (int64_t j = 0; j < k; j++) {
        out->ids[t * k + j] = finished ? n_experts : order[j].i;
        out->weight[t * k + j] = finished ? 0 : out->prob[t * n_experts + order[j].i];
    }
    free(x);
    free(s);
    free(w);
    free(order);
}

/* Sorts the tokens of every expert by what decides, and takes all but the first `capacity` away. */
static void drop(const struct route_case *in, struct route_result *out)
{
    struct entry *token = calloc((size_t)in->tokens + 1, sizeof *token);
    assert_non_null(token);
    for (int64_t e = 0; e < in->experts; e++) {
        int64_t n = 0;
        for (int64_t t = 0; t < in->tokens; t++)
            if (out->map[t * in->experts + e])
                token[n++] = (struct entry){canonical((double)out->prob[t * in->experts + e]), t};
        qsort(token, (size_t)n, sizeof *token, in->drop == SY_DROP_PROB ? by_value : by_number);
        out->drop_ties += n > in->capacity && in->drop == SY_DROP_PROB &&
                          token[in->capacity].value == token[in->capacity - 1].value;
        for (int64_t i = in->capacity; i < n; i++) {
            out->map[token[i].i * in->experts + e] = 0;
            out->prob[token[i].i * in->experts + e] = 0;
            out->dropped++;
        }
    }
    free(token);
}

void oracle_moe_route(const struct route_case *in, struct route_result *out)
{
    const size_t cells = (size_t)(in->tokens * in->experts);
    memset(out->map, 0, cells);
    memset(out->prob, 0, cells * sizeof *out->prob);
    memset(out->count, 0, (size_t)in->experts * sizeof *out->count);
    for (int64_t t = 0; t < in->tokens; t++)
        route_row(in, t, out);
    if (in->capacity > 0)
        drop(in, out);
}
