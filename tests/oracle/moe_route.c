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
#include "oracle/numbers.h"

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

/* A square root of a f32 in double is rounded once more without harm. */
static double sqrt_softplus(double x)
{
    static const uint32_t poly[] = {0x3e0f5e86, 0x3e4ce904, 0x3eaaaa81, 0x3f800000};
    const double e = isinf(x) ? 0 : (double)oracle_sample_exp((float)-fabs(x)),
                 q = rounded(e / rounded(2 + e));
    const float z = (float)rounded(q * q);
    float g = f32_from_bits(0x3e0f6be1);
    for (int i = 0; i < 4; i++)
        g = fmaf(g, z, f32_from_bits(poly[i]));
    const double l = rounded(2 * q * (double)g);
    return rounded(sqrt(x > 0 ? rounded(x + l) : l));
}

static double lone_score(sy_route_score score, double x)
{
    return score == SY_SCORE_SIGMOID ? sigmoid(x) : score == SY_SCORE_NONE ? x : sqrt_softplus(x);
}

static void scores(const struct route_case *in, const double *x, double *s)
{
    if (in->a->score == SY_SCORE_SOFTMAX)
        softmax(x, in->experts, s);
    for (int64_t e = 0; in->a->score != SY_SCORE_SOFTMAX && e < in->experts; e++)
        s[e] = lone_score(in->a->score, x[e]);
}

/* The score of a group out of all of its values, the best first. */
static double group_worth(const struct route_case *in, const struct entry *member, int64_t size)
{
    const int64_t share = in->a->groups > 0 ? in->a->k / in->a->top_groups : 1;
    int64_t n = in->a->group_score == SY_GROUP_MAX ? 1 : in->a->group_score == SY_GROUP_SUM2 ? 2 : share;
    double worth = member[0].value;
    for (int64_t i = 1; i < n && i < size; i++)
        worth = rounded(worth + member[i].value);
    return isnan(worth) ? -INFINITY : worth;
}

/* Which experts compete: those of the groups that come first when groups are sorted. */
static void competing(const struct route_case *in, const double *v, bool *in_race)
{
    const int64_t groups = in->a->groups > 0 ? in->a->groups : 1, size = in->experts / groups;
    struct entry *group = calloc((size_t)groups, sizeof *group),
                 *member = calloc((size_t)size, sizeof *member);
    if (!(group && member))
        abort();
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t i = 0; i < size; i++)
            member[i] = (struct entry){v[g * size + i], i};
        qsort(member, (size_t)size, sizeof *member, by_value);
        group[g] = (struct entry){group_worth(in, member, size), g};
    }
    qsort(group, (size_t)groups, sizeof *group, by_value);
    for (int64_t e = 0; e < in->experts; e++)
        in_race[e] = in->a->groups == 0;
    for (int64_t r = 0; in->a->groups > 0 && r < in->a->top_groups; r++)
        for (int64_t i = 0; i < size; i++)
            in_race[group[r].i * size + i] = true;
    free(group);
    free(member);
}

/* All experts in the race, best first by these numbers and the bias; returns how many. */
static int64_t ranking(const struct route_case *in, const double *s, bool with_bias, struct entry *order)
{
    double *v = calloc((size_t)in->experts, sizeof *v);
    bool *in_race = calloc((size_t)in->experts, sizeof *in_race);
    int64_t n = 0;
    if (!(v && in_race))
        abort();
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

/* The experts that are given to token t, best first; returns how many. */
static int64_t rank_given(const struct route_case *in, int64_t t, const double *s, struct entry *order,
                          struct route_result *out)
{
    int64_t n = 0;
    for (int64_t j = 0; j < in->a->k; j++) {
        const int64_t e = in->given[t * in->a->k + j];
        if (e >= 0)
            order[n++] = (struct entry){canonical(in->bias ? rounded(s[e] + (double)in->bias[e]) : s[e]), e};
    }
    for (int64_t i = 1; i < n; i++)
        if (by_value(&order[i - 1], &order[i]) > 0) {
            out->reordered++;
            break;
        }
    out->unused += (int)(in->a->k - n);
    qsort(order, (size_t)n, sizeof *order, by_value);
    return n;
}

/* What the weights of token t are divided by: their sum by descending value, that of shared scores behind it. */
static double divisor_of(const struct route_case *in, int64_t t, const double *w, int64_t n,
                         struct route_result *out)
{
    double sum = 0;
    for (int64_t j = 0; j < n; j++)
        sum = rounded(sum + w[j]);
    for (int64_t i = 0; in->a->shared_in_sum && i < in->a->n_shared; i++)
        sum = rounded(
            sum + lone_score(in->a->score, canonical((double)in->shared_logits[t * in->a->n_shared + i])));
    if (in->a->eps_rule == SY_EPS_ADD)
        return rounded(sum + (double)in->a->eps);
    out->small_sums += in->a->renormalize && sum < (double)in->a->eps;
    return fmax(sum, (double)in->a->eps);
}

static double divided(double w, double divisor)
{
    return divisor != 0 ? rounded(w / divisor) : 0;
}

/* The weights of n experts of token t, best first, and of the shared ones behind k. */
static void weigh(const struct route_case *in, int64_t t, const double *x, const double *s,
                  const struct entry *order, int64_t n, double *w, struct route_result *out)
{
    const double scale = in->a->scale == 0 ? 1 : (double)in->a->scale;
    double *chosen = calloc((size_t)in->a->k, sizeof *chosen);
    if (chosen == NULL)
        abort();
    for (int64_t j = 0; j < n; j++) {
        chosen[j] = x[order[j].i];
        w[j] = isinf(s[order[j].i]) ? 0 : s[order[j].i];
    }
    if (in->a->softmax_after)
        softmax(chosen, n, w);
    const double divisor = divisor_of(in, t, w, n, out);
    out->zero_sums += in->a->renormalize && divisor == 0;
    for (int64_t j = 0; j < n; j++) {
        if (in->a->renormalize)
            w[j] = divided(w[j], divisor);
        if (in->expert_scale)
            w[j] = rounded(w[j] * (double)in->expert_scale[order[j].i]);
        w[j] = rounded(w[j] * scale);
    }
    for (int64_t i = 0; i < in->a->n_shared; i++) {
        const double factor = in->a->shared_weight == 0 ? 1 : (double)in->a->shared_weight;
        const double l =
            in->shared_logits ? canonical((double)in->shared_logits[t * in->a->n_shared + i]) : 0;
        w[in->a->k + i] =
            !in->shared_logits ? factor
            : !in->a->shared_in_sum
                ? rounded(sigmoid(l) * factor)
                : rounded(rounded(divided(lone_score(in->a->score, l), divisor) * scale) * factor);
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
    if (plain == NULL)
        abort();
    const double *base = in->a->select == SY_SELECT_LOGIT ? x : s;
    ranking(in, base, false, plain);
    out->bias_decided += in->bias && !same_winners(order, plain, in->a->k);
    ranking(in, s, true, plain);
    out->logit_decided += in->a->select == SY_SELECT_LOGIT && !same_winners(order, plain, in->a->k);
    if (n > in->a->k && order[in->a->k].value == order[in->a->k - 1].value) {
        out->cut_ties++;
        out->rounded_ties += x[order[in->a->k].i] != x[order[in->a->k - 1].i];
    }
    for (int64_t e = 0; e < in->experts; e++)
        max = x[e] > max ? x[e] : max;
    out->empty_rows += max == -INFINITY;
    free(plain);
}

/* One slot of a token in all outputs; e below 0: unused. */
static void put_slot(const struct route_case *in, int64_t t, int64_t slot, int64_t e, double w,
                     struct route_result *out)
{
    const int64_t columns = in->experts + in->a->n_shared, slots = in->a->k + in->a->n_shared;
    out->ids[t * slots + slot] = e;
    out->weight[t * slots + slot] = isnan(w) ? f32_from_bits(0x7fc00000) : (float)w;
    if (e < 0 || e == columns)
        return;
    out->map[t * columns + e] = 1;
    out->prob[t * columns + e] = out->weight[t * slots + slot];
    out->count[e]++;
}

/* The place of an expert in a list, or n. */
static int64_t place_of(const struct entry *order, int64_t n, int64_t e)
{
    int64_t i = 0;
    while (i < n && order[i].i != e)
        i++;
    return i;
}

static void put_slots(const struct route_case *in, int64_t t, const struct entry *order, int64_t n,
                      const double *w, struct route_result *out)
{
    struct entry *slot = calloc((size_t)in->a->k, sizeof *slot);
    if (slot == NULL)
        abort();
    for (int64_t j = 0; j < in->a->k; j++)
        slot[j] = in->given ? (struct entry){0, in->given[t * in->a->k + j]} : order[j];
    if (!in->given && in->a->slot_order == SY_SLOT_EXPERT)
        qsort(slot, (size_t)in->a->k, sizeof *slot, by_number);
    for (int64_t j = 0; j < in->a->k; j++)
        put_slot(in, t, j, slot[j].i, slot[j].i < 0 ? 0 : w[place_of(order, n, slot[j].i)], out);
    for (int64_t i = 0; i < in->a->n_shared; i++)
        put_slot(in, t, in->a->k + i, in->experts + i, w[in->a->k + i], out);
    free(slot);
}

static void route_row(const struct route_case *in, int64_t t, struct route_result *out)
{
    const int64_t n_experts = in->experts, k = in->a->k;
    double *x = calloc((size_t)n_experts, sizeof *x), *s = calloc((size_t)n_experts, sizeof *s);
    double *w = calloc((size_t)(k + in->a->n_shared), sizeof *w);
    struct entry *order = calloc((size_t)n_experts, sizeof *order);
    if (!(x && s && w && order))
        abort();
    for (int64_t e = 0; e < n_experts; e++)
        x[e] = canonical((double)in->logits[t * n_experts + e]);
    scores(in, x, s);
    for (int64_t e = 0; e < n_experts; e++)
        out->score[t * n_experts + e] = (float)s[e];
    const double *base = in->a->select == SY_SELECT_LOGIT ? x : s;
    if (in->finished && in->finished[t]) {
        for (int64_t j = 0; j < k + in->a->n_shared; j++)
            put_slot(in, t, j, n_experts + in->a->n_shared, 0, out);
    } else if (in->given) {
        const int64_t n = rank_given(in, t, base, order, out);
        weigh(in, t, x, s, order, n, w, out);
        put_slots(in, t, order, n, w, out);
    } else {
        note_row(in, x, s, order, ranking(in, base, true, order), out);
        weigh(in, t, x, s, order, k, w, out);
        put_slots(in, t, order, k, w, out);
    }
    free(x);
    free(s);
    free(w);
    free(order);
}

/* Sorts the tokens of every expert by what decides, and takes all but the first `capacity` away. */
static void drop(const struct route_case *in, struct route_result *out)
{
    const int64_t columns = in->experts + in->a->n_shared;
    struct entry *token = calloc((size_t)in->tokens + 1, sizeof *token);
    if (token == NULL)
        abort();
    for (int64_t e = 0; e < in->experts; e++) {
        int64_t n = 0;
        for (int64_t t = 0; t < in->tokens; t++)
            if (out->map[t * columns + e])
                token[n++] = (struct entry){canonical((double)out->prob[t * columns + e]), t};
        qsort(token, (size_t)n, sizeof *token, in->a->drop == SY_DROP_PROB ? by_value : by_number);
        out->drop_ties += n > in->a->capacity && in->a->drop == SY_DROP_PROB &&
                          token[in->a->capacity].value == token[in->a->capacity - 1].value;
        for (int64_t i = in->a->capacity; i < n; i++) {
            out->map[token[i].i * columns + e] = 0;
            out->prob[token[i].i * columns + e] = 0;
            out->dropped++;
        }
    }
    free(token);
}

void oracle_moe_route(const struct route_case *in, struct route_result *out)
{
    const size_t columns = (size_t)(in->experts + in->a->n_shared), cells = (size_t)in->tokens * columns;
    memset(out->map, 0, cells);
    memset(out->prob, 0, cells * sizeof *out->prob);
    memset(out->count, 0, columns * sizeof *out->count);
    for (int64_t t = 0; t < in->tokens; t++)
        route_row(in, t, out);
    if (in->a->capacity > 0)
        drop(in, out);
}
