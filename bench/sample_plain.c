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

#include "cli/number.h"

static const double margin = 1e-4;

static float logit(const struct sample_state *state, int64_t row, int64_t token)
{
    const int64_t at = row * state->shape.vocab + token;
    if (state->allow && !(state->allow[row * state->allow_shape[1] + token / 32] >> token % 32 & 1))
        return -INFINITY;
    if (state->instead && !isnan(state->instead[at]))
        return state->instead[at];
    if (state->shape.wide)
        return ((const float *)state->logits)[at];
    return bf16_to_float(((const uint16_t *)state->logits)[at]);
}

static int by_rank(const void *left, const void *right)
{
    const struct sample_candidate *const a = left, *const b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* The best k in rank order, by insertion; returns how many. */
static int64_t best_k(const struct sample_state *state, int64_t row)
{
    struct sample_candidate *const list = state->list;
    int64_t n = 0;
    for (int64_t i = 0; i < state->shape.vocab; i++) {
        const float x = logit(state, row, i);
        if (n == state->shape.top_k && x <= list[n - 1].logit)
            continue;
        int64_t at = n < state->shape.top_k ? n++ : n - 1;
        for (; at > 0 && list[at - 1].logit < x; at--)
            list[at] = list[at - 1];
        list[at] = (struct sample_candidate){x, (int32_t)i};
    }
    return n;
}

/* All tokens, in rank order where a cut needs it. */
static int64_t all(const struct sample_state *state, int64_t row)
{
    for (int64_t i = 0; i < state->shape.vocab; i++)
        state->list[i] = (struct sample_candidate){logit(state, row, i), (int32_t)i};
    if (state->shape.top_p > 0)
        qsort(state->list, (size_t)state->shape.vocab, sizeof *state->list, by_rank);
    return state->shape.vocab;
}

/* Stores the weights of the first n in the list, and returns their sum, smallest first. */
static double weigh(const struct sample_state *state, int64_t n, double *weights)
{
    float top = state->list[0].logit;
    for (int64_t i = 1; i < n; i++)
        top = state->list[i].logit > top ? state->list[i].logit : top;
    double total = 0;
    for (int64_t i = n - 1; i >= 0; i--) {
        weights[i] = exp((double)state->list[i].logit - (double)top);
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

/*
 * The first 64 bits of Philox4x32-10 with key = seed and counter = (0xffffffff, 0, 0, stream), as a number in
 * [0,1).
 */
static double draw_of(uint64_t seed, uint32_t stream)
{
    uint32_t c[4] = {0xffffffffu, 0, 0, stream}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    return ((double)c[1] + (double)c[0] * 0x1p-32) * 0x1p-32;
}

/* First candidate in index order whose running sum passes u of the whole. */
static int64_t invert(const struct sample_state *state, double total, double u)
{
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < state->shape.vocab; i++)
        if (state->weights[i] > 0) {
            sum += state->weights[i];
            last = i;
            if (sum > u * total)
                return i;
        }
    return last;
}

/* The token with the largest weight / noise. */
static int64_t race(const struct sample_state *state, int64_t row, int64_t kept)
{
    const float *const q = state->q + row * state->shape.vocab;
    int64_t best = -1;
    double best_score = -1;
    for (int64_t i = 0; i < kept; i++) {
        const int64_t token = state->list[i].token;
        const double noise = (double)q[state->shape.noise == SAMPLE_Q_VOCAB ? token : i];
        const double score = state->ranked[i] / noise;
        if (score > best_score) {
            best_score = score;
            best = token;
        }
    }
    return best;
}

static struct sample_answer greedy_row(const struct sample_state *state, int64_t row)
{
    int64_t best = 0;
    float top = logit(state, row, 0);
    for (int64_t i = 1; i < state->shape.vocab; i++) {
        const float x = logit(state, row, i);
        if (x > top) {
            top = x;
            best = i;
        }
    }
    return (struct sample_answer){best, best, state->shape.vocab, state->shape.vocab};
}

/* How many of the first n reach a share of the largest weight, which is 1. */
static int64_t reach_of(const struct sample_state *state, int64_t n, double share)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += state->ranked[i] >= share;
    return count;
}

/* Keeps these, in their order. */
static int64_t keep_reaching(const struct sample_state *state, int64_t n, double share)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (state->ranked[i] >= share) {
            state->list[kept] = state->list[i];
            state->ranked[kept++] = state->ranked[i];
        }
    return kept;
}

static struct sample_answer plain_row(const struct sample_state *state, int64_t row)
{
    const struct sample_shape *const s = &state->shape;
    if (s->noise == SAMPLE_GREEDY)
        return greedy_row(state, row);
    const int64_t n = s->top_k > 0 ? best_k(state, row) : all(state, row);
    const double total = weigh(state, n, state->ranked), p = (double)s->top_p;
    struct sample_answer answer = {.kept_low = n, .kept_high = n};
    int64_t kept = n;
    if (s->top_p > 0) {
        kept = prefix_of(state->ranked, n, total, p);
        answer.kept_low = prefix_of(state->ranked, n, total, p - margin);
        answer.kept_high = prefix_of(state->ranked, n, total, p + margin);
    }
    if (s->min_p > 0) {
        answer.kept_low = reach_of(state, kept, (double)s->min_p + margin);
        answer.kept_high = reach_of(state, kept, (double)s->min_p - margin);
        kept = keep_reaching(state, kept, (double)s->min_p);
    }
    if (s->noise != SAMPLE_DRAW) {
        answer.token_low = answer.token_high = race(state, row, kept);
        return answer;
    }
    memset(state->weights, 0, (size_t)s->vocab * sizeof *state->weights);
    double mass = 0;
    for (int64_t i = 0; i < kept; i++) {
        state->weights[state->list[i].token] = state->ranked[i];
        mass += state->ranked[i];
    }
    const double u = draw_of(SAMPLE_SEED, (uint32_t)row);
    answer.token_low = invert(state, mass, u - margin);
    answer.token_high = invert(state, mass, u + margin);
    return answer;
}

void sample_plain(void *opaque, int64_t turn)
{
    struct sample_state *const state = opaque;
    state->logits = state->sets[turn % state->n_sets];
    for (int64_t b = 0; b < state->shape.batch; b++)
        state->answers[b] = plain_row(state, b);
}

const char *sample_check(void *opaque)
{
    const struct sample_state *const state = opaque;
    for (int64_t b = 0; b < state->shape.batch; b++) {
        const struct sample_answer *const answer = &state->answers[b];
        if (state->token[b] < answer->token_low || state->token[b] > answer->token_high)
            return "token differs from the plain loop";
        if (state->alone[b] != state->token[b])
            return "the token asked for alone differs from the token beside its count";
        if (state->kept[b] < answer->kept_low || state->kept[b] > answer->kept_high)
            return "kept differs from the plain loop";
    }
    return NULL;
}
