/*
 * The expected results of sample, by a plain loop in double precision: the best k by insertion or all by sorting,
 * softmax, running sum; then one draw inverted in index order, or the largest weight / noise. Its sums are not
 * the operator's integers, so where a cut or a draw is within 1e-4 of a boundary both sides count as correct;
 * the operator's own tests check the last bit.
 */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double margin = 1e-4;

static float logit(const struct sample_block *b, int64_t row, int64_t token)
{
    const int64_t at = row * b->vocab + token;
    const DLTensor *const allow = b->args.allow_bits;
    if (allow && !(((const uint32_t *)allow->data)[row * allow->shape[1] + token / 32] >> token % 32 & 1))
        return -INFINITY;
    if (b->instead && !isnan(((const float *)b->instead->data)[at]))
        return ((const float *)b->instead->data)[at];
    if (b->wide)
        return ((const float *)b->logits)[at];
    return bf16_to_float(((const uint16_t *)b->logits)[at]);
}

static int by_rank(const void *left, const void *right)
{
    const struct sample_candidate *const a = left, *const b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* The best k in rank order, by insertion; returns how many. */
static int64_t best_k(const struct sample_block *b, int64_t row, int64_t k)
{
    struct sample_candidate *const list = b->list;
    int64_t n = 0;
    for (int64_t i = 0; i < b->vocab; i++) {
        const float x = logit(b, row, i);
        if (n == k && x <= list[n - 1].logit)
            continue;
        int64_t at = n < k ? n++ : n - 1;
        for (; at > 0 && list[at - 1].logit < x; at--)
            list[at] = list[at - 1];
        list[at] = (struct sample_candidate){x, (int32_t)i};
    }
    return n;
}

/* All tokens, in rank order where a cut needs it. */
static int64_t all(const struct sample_block *b, int64_t row)
{
    for (int64_t i = 0; i < b->vocab; i++)
        b->list[i] = (struct sample_candidate){logit(b, row, i), (int32_t)i};
    if (b->top_p > 0)
        qsort(b->list, (size_t)b->vocab, sizeof *b->list, by_rank);
    return b->vocab;
}

/* Stores the weights of the first n in the list, and returns their sum, smallest first. */
static double weigh(const struct sample_block *b, int64_t n, double *weights)
{
    float top = b->list[0].logit;
    for (int64_t i = 1; i < n; i++)
        top = b->list[i].logit > top ? b->list[i].logit : top;
    double total = 0;
    for (int64_t i = n - 1; i >= 0; i--) {
        weights[i] = exp((double)b->list[i].logit - (double)top);
        total += weights[i];
    }
    return total;
}

/* Shortest prefix of the list with mass p of the whole. */
static int64_t prefix_of(const double *weights, int64_t n, double total, double p)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i];
        if (sum >= p * total)
            return i + 1;
    }
    return n;
}

/* The first 64 bits that the operator draws for a row, as a number in [0,1). */
static double draw_of(uint64_t seed, uint32_t stream)
{
    uint32_t word[4];
    bench_philox(seed, 0, stream, UINT32_MAX, word);
    return ((double)word[1] + (double)word[0] * 0x1p-32) * 0x1p-32;
}

/* First candidate in index order whose running sum passes u of the whole. */
static int64_t invert(const struct sample_block *b, double total, double u)
{
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < b->vocab; i++)
        if (b->weights[i] > 0) {
            sum += b->weights[i];
            last = i;
            if (sum > u * total)
                return i;
        }
    return last;
}

/* The token with the largest weight / noise. */
static int64_t race(const struct sample_block *b, int64_t row, int64_t kept)
{
    const float *const q = (const float *)b->args.q->data + row * b->vocab;
    int64_t best = -1;
    double best_score = -1;
    for (int64_t i = 0; i < kept; i++) {
        const int64_t token = b->list[i].token;
        const double noise = (double)q[b->args.q_order == SY_Q_VOCAB ? token : i];
        const double score = b->ranked[i] / noise;
        if (score > best_score) {
            best_score = score;
            best = token;
        }
    }
    return best;
}

/* How many of the first n reach a share of the largest weight, which is 1. */
static int64_t reach_of(const struct sample_block *b, int64_t n, double share)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += b->ranked[i] >= share;
    return count;
}

/* Keeps these, in their order. */
static int64_t keep_reaching(const struct sample_block *b, int64_t n, double share)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (b->ranked[i] >= share) {
            b->list[kept] = b->list[i];
            b->ranked[kept++] = b->ranked[i];
        }
    return kept;
}

static struct sample_answer plain_row(const struct sample_block *b, int64_t row)
{
    if (!b->args.q && !b->args.seed) { /* greedy */
        best_k(b, row, 1);
        return (struct sample_answer){b->list->token, b->list->token, b->vocab, b->vocab};
    }
    const int64_t n = b->top_k > 0 ? best_k(b, row, b->top_k) : all(b, row);
    const double total = weigh(b, n, b->ranked), p = b->top_p;
    struct sample_answer answer = {.kept_low = n, .kept_high = n};
    int64_t kept = n;
    if (b->top_p > 0) {
        kept = prefix_of(b->ranked, n, total, p);
        answer.kept_low = prefix_of(b->ranked, n, total, p - margin);
        answer.kept_high = prefix_of(b->ranked, n, total, p + margin);
    }
    if (b->min_p > 0) {
        answer.kept_low = reach_of(b, kept, b->min_p + margin);
        answer.kept_high = reach_of(b, kept, b->min_p - margin);
        kept = keep_reaching(b, kept, b->min_p);
    }
    if (b->args.q) {
        answer.token_low = answer.token_high = race(b, row, kept);
        return answer;
    }
    memset(b->weights, 0, (size_t)b->vocab * sizeof *b->weights);
    double mass = 0;
    for (int64_t i = 0; i < kept; i++) {
        b->weights[b->list[i].token] = b->ranked[i];
        mass += b->ranked[i];
    }
    const double u = draw_of(SAMPLE_SEED, (uint32_t)row);
    answer.token_low = invert(b, mass, u - margin);
    answer.token_high = invert(b, mass, u + margin);
    return answer;
}

void sample_plain(const struct bench_call *c)
{
    struct sample_block *const b = c->args;
    b->logits = b->args.logits->data;
    b->wide = b->args.logits->dtype.bits == 32;
    for (int64_t row = 0; row < b->batch; row++)
        b->answers[row] = plain_row(b, row);
}

/* Each list descends, and where the token is in it, it is at its rank and has its log-probability. */
static const char *check_top(const struct sample_block *b)
{
    const sy_sample_args *const a = &b->args;
    const int64_t n = a->top_token != NULL ? a->top_token->shape[1] : 0;
    for (int64_t i = 0; i < b->batch * n; i++) {
        const int64_t row = i / n, place = i % n;
        const float *const logprob = (const float *)a->top_logprob->data + i;
        const int64_t token = ((const int64_t *)a->top_token->data)[i],
                      picked = ((const int64_t *)a->token->data)[row];
        const bool at_rank = ((const int32_t *)a->rank->data)[row] == place + 1;
        if (place > 0 && logprob[0] > logprob[-1])
            return "top_logprob ascends";
        if (at_rank != (token == picked))
            return "rank is not the place of the token in top_token";
        if (at_rank && ((const float *)a->logprob->data)[row] != *logprob)
            return "logprob differs from that in top_logprob";
    }
    return NULL;
}

/* Another call also counts the kept, which may take another way through the library: both must name the same tokens. */
const char *sample_check(const struct bench_call *c)
{
    const struct sample_block *const b = c->args;
    const int64_t *const token = b->args.token->data;
    const int32_t *const kept = b->kept->data;
    sy_sample_args counted = b->args;
    counted.kept = b->kept;
    counted.row_flags = b->flags;
    counted.logprob = counted.rank = counted.top_token = counted.top_logprob = NULL;
    counted.logprob_mode = SY_LOGPROB_NONE;
    const char *const top = check_top(b);
    if (top != NULL)
        return top;
    memcpy(b->alone, token, (size_t)b->batch * sizeof *token);
    if (sy_sample(c->ctx, &counted) != SY_OK)
        return sy_ctx_error(c->ctx);
    for (int64_t row = 0; row < b->batch; row++) {
        const struct sample_answer *const answer = &b->answers[row];
        if (token[row] < answer->token_low || token[row] > answer->token_high)
            return "token differs from the plain loop";
        if (b->alone[row] != token[row])
            return "the token asked for alone differs from the token beside its count";
        if (kept[row] < answer->kept_low || kept[row] > answer->kept_high)
            return "kept differs from the plain loop";
    }
    return NULL;
}
