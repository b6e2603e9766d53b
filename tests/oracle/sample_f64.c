/*
 * The float64 oracle of `sample`: softmax with libm's exp, one sort, one running sum. It shares only the
 * order and the Philox words with the exact oracle and reports how far each decision was from going the other
 * way.
 */
#include "oracle/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

struct entry {
    double x, prob;
    int64_t i;
};

static int descending(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    if (p->x != q->x)
        return p->x > q->x ? -1 : 1;
    return p->i < q->i ? -1 : 1;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* Sorted entries with probabilities over the first n; returns n, the number top-k (or p <= 0) leaves. */
static int64_t softmax_prefix(const struct oracle_sample_row *row, struct entry *by_rank)
{
    for (int64_t i = 0; i < row->vocab; i++) {
        bool barred = row->allowed && !row->allowed[i];
        double x = barred || isnan(row->x[i]) ? -INFINITY : row->x[i];
        by_rank[i] = (struct entry){isinf(x) && x > 0 ? (double)FLT_MAX : x, 0, i};
    }
    qsort(by_rank, (size_t)row->vocab, sizeof *by_rank, descending);
    int64_t n = row->vocab, limit = row->k_limit > 0 ? row->k_limit : row->vocab - 1;
    if (row->k >= 1 && row->k <= limit && row->k <= row->vocab)
        n = row->k;
    if (row->p <= 0)
        n = 1;
    double temperature = isnan(row->temperature) ? 1 : fmin(fmax(row->temperature, 1e-5f), 0x1p100), sum = 0;
    for (int64_t r = 0; r < n; r++) {
        double x = by_rank[r].x;
        by_rank[r].prob = row->probs_in ? fmax(x, 0) : exp((x - by_rank[0].x) / temperature);
        sum += by_rank[r].prob;
    }
    for (int64_t r = 0; r < n && !row->probs_in; r++)
        by_rank[r].prob /= sum;
    return n;
}

static int64_t nucleus(const struct oracle_sample_row *row, const struct entry *by_rank, int64_t n,
                       double *margin)
{
    *margin = INFINITY;
    if (!(row->p > 0 && row->p < 1))
        return n;
    double sum = 0;
    int64_t m = n;
    for (int64_t r = 0; r < n; r++) {
        sum += by_rank[r].prob;
        *margin = least(*margin, fabs(sum - (double)row->p));
        if (m == n && sum >= (double)row->p)
            m = r + 1;
    }
    return m;
}

static double noise_of(const struct oracle_sample_row *row, int64_t token, int64_t position)
{
    if (row->noise == SY_NOISE_Q)
        return fabs((double)row->q[row->q_order == SY_Q_VOCAB ? token : position]) + (double)row->eps;
    uint32_t word = oracle_sample_race_word(row->seed, row->offset, row->stream, token);
    return -log1p(-ldexp((double)word + 0.5, -32));
}

static void choose(const struct oracle_sample_row *row, const struct entry *by_rank, const struct entry *list,
                   struct oracle_sample_f64 *out)
{
    double best = -1, second = -1, total = 0, sum = 0;
    for (int64_t j = 0; j < out->n; j++)
        total += list[j].prob;
    out->choice_margin = INFINITY;
    out->token = by_rank[0].i;
    if (row->noise == SY_NOISE_CDF) {
        uint32_t words[4],
            counter[4] = {0xffffffffu, (uint32_t)row->offset, (uint32_t)(row->offset >> 32), row->stream};
        oracle_sample_philox(row->seed, counter, words);
        double u = ldexp((double)words[1], -32) + ldexp((double)words[0], -64);
        bool found = false;
        for (int64_t i = 0; i < row->vocab; i++) {
            sum += out->in[i] ? out->prob[i] / total : 0;
            out->choice_margin = least(out->choice_margin, fabs(sum - u));
            if (!found && sum > u) {
                out->token = i;
                found = true;
            }
        }
        return;
    }
    for (int64_t j = 0; j < out->n && row->noise != SY_NOISE_NONE; j++) {
        double score = list[j].prob / noise_of(row, list[j].i, j);
        if (score > best) {
            second = best;
            best = score;
            out->token = list[j].i;
        } else if (score > second) {
            second = score;
        }
    }
    if (best > 0)
        out->choice_margin = 1 - second / best;
}

/* RAW: over the whole row at temperature 1. FINAL: over the candidates at the row's temperature. */
static double logprob(const struct oracle_sample_row *row, const struct oracle_sample_f64 *out)
{
    double sum = 0, max = -INFINITY;
    if (row->logprob_mode == SY_LOGPROB_FINAL || row->probs_in) {
        for (int64_t i = 0; i < row->vocab; i++)
            sum += out->in[i] ? least(out->prob[i], 1) : 0; /* a given probability above 1 counts as 1 */
        return log(least(out->prob[out->token], 1) / sum);
    }
    const float *x = row->raw ? row->raw : row->x;
    for (int64_t i = 0; i < row->vocab; i++)
        max = (double)x[i] > max ? (double)x[i] : max;
    for (int64_t i = 0; i < row->vocab; i++)
        sum += isnan(x[i]) ? 0 : exp((double)x[i] - max);
    return (double)x[out->token] - max - log(sum);
}

void oracle_sample_f64(const struct oracle_sample_row *row, struct oracle_sample_f64 *out)
{
    struct entry *by_rank = malloc((size_t)row->vocab * sizeof *by_rank);
    struct entry *list = malloc((size_t)row->vocab * sizeof *list);
    if (!by_rank || !list)
        abort();
    bool k_on = row->k >= 1 && row->k <= (row->k_limit > 0 ? least((double)row->k_limit, (double)row->vocab)
                                                           : (double)(row->vocab - 1));
    int64_t n = softmax_prefix(row, by_rank);
    int64_t m = nucleus(row, by_rank, n, &out->p_margin);
    for (int64_t i = 0; i < row->vocab; i++) {
        out->in[i] = false;
        out->prob[i] = 0;
    }
    for (int64_t r = 0; r < n; r++)
        out->prob[by_rank[r].i] = by_rank[r].prob;
    out->mp_margin = INFINITY;
    for (int64_t r = 0; r < m; r++) {
        double ratio = by_rank[r].prob / by_rank[0].prob;
        bool on = row->min_p > 0;
        if (on && row->min_p < 1)
            out->mp_margin = least(out->mp_margin, fabs(ratio / (double)row->min_p - 1));
        out->in[by_rank[r].i] = !on || (row->min_p >= 1 ? r == 0 : ratio >= (double)row->min_p);
    }
    bool ranked = k_on || row->p < 1;
    out->n = 0;
    for (int64_t j = 0; j < row->vocab; j++) {
        struct entry c = ranked ? by_rank[j] : (struct entry){row->x[j], out->prob[j], j};
        if (out->in[c.i])
            list[out->n++] = c;
    }
    choose(row, by_rank, list, out);
    out->logprob = logprob(row, out);
    free(by_rank);
    free(list);
}
