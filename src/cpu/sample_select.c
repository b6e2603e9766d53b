/*
 * Cuts of the total order without sorting the vocabulary: a radix select over the bits of the keys, counting
 * either tokens or weights, and a stable radix sort for the few cases whose result depends on rank.
 */
#include "cpu/sample.h"

/* Digits of a key from the top: 11 + 11 + 10 bits. */
static const struct {
    int shift, bits;
} digits[] = {{21, 11}, {10, 11}, {0, 10}};

/* Measure of the candidates whose key is >= floor. */
static uint64_t measure_from(const struct syi_candidates *c, const uint64_t *weight, uint32_t floor)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < c->n; i++)
        sum += c->key[i] >= floor ? weight[i] : 0;
    return sum;
}

/* The same cut by halving the range of keys, for so few candidates that clearing histograms would cost
   more. */
static bool select_few(const struct syi_candidates *c, const float *e, uint64_t target, uint64_t *weight,
                       struct syi_cut *cut)
{
    uint32_t low = UINT32_MAX, high = 0;
    uint64_t total = 0;
    for (int64_t i = 0; i < c->n; i++) {
        weight[i] = e != NULL ? syi_weight(e[i]) : 1;
        total += weight[i];
        low = c->key[i] < low ? c->key[i] : low;
        high = c->key[i] > high ? c->key[i] : high;
    }
    if (total < target)
        return false;
    while (low < high) { /* from `low` on the target is reached */
        const uint32_t middle = low + (high - low + 1) / 2;
        if (measure_from(c, weight, middle) >= target)
            low = middle;
        else
            high = middle - 1;
    }
    *cut = (struct syi_cut){low, target - (low == UINT32_MAX ? 0 : measure_from(c, weight, low + 1))};
    return true;
}

bool syi_select(const struct syi_candidates *c, const float *e, uint64_t target, uint64_t *hist,
                struct syi_cut *cut)
{
    enum { FEW = 256 };
    uint64_t prefix = 0, rest = target;
    if (c->n <= FEW)
        return select_few(c, e, target, hist, cut);
    for (size_t d = 0; d < sizeof digits / sizeof *digits; d++) {
        const int shift = digits[d].shift, bits = digits[d].bits;
        const uint32_t mask = (1u << bits) - 1u;
        memset(hist, 0, SYI_SELECT_BINS * sizeof *hist);
        for (int64_t i = 0; i < c->n; i++)
            if ((uint64_t)c->key[i] >> (shift + bits) == prefix)
                hist[c->key[i] >> shift & mask] += e != NULL ? syi_weight(e[i]) : 1;
        uint32_t bin = mask;
        while (hist[bin] < rest) {
            rest -= hist[bin];
            if (bin-- == 0)
                return false;
        }
        prefix = prefix << bits | bin;
    }
    *cut = (struct syi_cut){(uint32_t)prefix, rest};
    return true;
}

void syi_keep(struct syi_candidates *c, uint32_t cut_key, int64_t ties, uint32_t *key, int32_t *idx)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const uint32_t k = c->key[i];
        if (k < cut_key || (k == cut_key && ties-- <= 0))
            continue;
        idx[n] = c->idx != NULL ? c->idx[i] : (int32_t)i;
        key[n++] = k;
    }
    *c = (struct syi_candidates){key, idx, n};
}

/* For a handful of candidates: shifting beats clearing three histograms. */
static void insertion_order(const struct syi_candidates *c, uint32_t *key, int32_t *idx)
{
    for (int64_t i = 0; i < c->n; i++) {
        int64_t at = i;
        for (; at > 0 && key[at - 1] < c->key[i]; at--) {
            key[at] = key[at - 1];
            idx[at] = idx[at - 1];
        }
        key[at] = c->key[i];
        idx[at] = c->idx != NULL ? c->idx[i] : (int32_t)i;
    }
}

/* One stable pass, largest digit first. A NULL source index is the identity. */
static void radix_pass(const struct syi_candidates *from, struct syi_candidates *to, int shift, int bits,
                       uint64_t *hist)
{
    const uint32_t mask = (1u << bits) - 1u;
    memset(hist, 0, SYI_SELECT_BINS * sizeof *hist);
    for (int64_t i = 0; i < from->n; i++)
        hist[from->key[i] >> shift & mask]++;
    uint64_t start = 0;
    for (uint32_t bin = mask + 1; bin-- > 0;) {
        const uint64_t count = hist[bin];
        hist[bin] = start;
        start += count;
    }
    for (int64_t i = 0; i < from->n; i++) {
        const uint64_t place = hist[from->key[i] >> shift & mask]++;
        to->key[place] = from->key[i];
        to->idx[place] = from->idx != NULL ? from->idx[i] : (int32_t)i;
    }
    to->n = from->n;
}

struct syi_candidates syi_rank_order(const struct syi_candidates *c, uint32_t *const key[2],
                                     int32_t *const idx[2], uint64_t *hist)
{
    enum { FEW = 64 };
    struct syi_candidates a = {key[0], idx[0], c->n}, b = {key[1], idx[1], c->n};
    if (c->n <= FEW) {
        insertion_order(c, a.key, a.idx);
        return a;
    }
    radix_pass(c, &a, digits[2].shift, digits[2].bits, hist);
    radix_pass(&a, &b, digits[1].shift, digits[1].bits, hist);
    radix_pass(&b, &a, digits[0].shift, digits[0].bits, hist);
    return a;
}
