/*
 * Cuts of the total order without sorting the vocabulary: a radix select over the bits of the keys, counting
 * either tokens or weights, and a stable radix sort for the few cases whose result depends on rank.
 */
#include "cpu/sample.h"

/* Digits of a key from the top: 11 + 11 + 10 bits. */
static const struct {
    int shift, bits;
} digits[] = {{21, 11}, {10, 11}, {0, 10}};

/* By counting those with a larger key, and of equals those that came before. No step depends on a comparison, so
   it is vectorised and has no mispredicted branch; up to SYI_FEW it is faster than clearing histograms. */
void syi_rank_few(const struct syi_candidates *c, uint32_t *place)
{
    enum { WIDE = 16 };
    uint32_t key[SYI_FEW], equals[SYI_FEW] = {0};
    const size_t n = (size_t)c->n, wide = (n + WIDE - 1) / WIDE * WIDE;
    memset(key + (wide > WIDE ? wide - WIDE : 0), 0, WIDE * sizeof *key); /* not larger than any */
    memcpy(key, c->key, n * sizeof *key);
    for (size_t i = 0; i < n; i++) {
        uint32_t larger = 0;
        for (size_t j = 0; j < wide; j++)
            larger += key[j] > key[i];
        place[larger + equals[larger]++] = (uint32_t)i;
    }
}

static bool select_few(const struct syi_candidates *c, const float *e, uint64_t target, struct syi_cut *cut)
{
    uint32_t place[SYI_FEW];
    uint64_t sum = 0, equal = 0; /* measures so far, and of the last ones that have the same key */
    syi_rank_few(c, place);
    for (int64_t i = 0; i < c->n; i++) {
        const uint64_t measure = e != NULL ? syi_weight(e[place[i]]) : 1;
        const bool same = i > 0 && c->key[place[i]] == c->key[place[i - 1]];
        equal = same ? equal + measure : measure;
        sum += measure;
        if (sum >= target) {
            *cut = (struct syi_cut){c->key[place[i]], target - (sum - equal)};
            return true;
        }
    }
    return false;
}

/* The candidates whose key is in [high - range, high] into `few`; false when they are more than SYI_FEW. */
static bool gather(const struct syi_candidates *c, const float *e, uint32_t high, uint32_t range,
                   struct syi_candidates *few, float *few_e)
{
    for (int64_t i = 0; i < c->n; i++) {
        if (high - c->key[i] > range)
            continue;
        if (few->n == SYI_FEW)
            return false;
        few->key[few->n] = c->key[i];
        few_e[few->n++] = e != NULL ? e[i] : 0.0f;
    }
    return true;
}

/* By digits of the distance from the largest key, as wide as the range of keys requires. */
bool syi_select(const struct syi_candidates *c, const float *e, uint64_t target, uint64_t *hist,
                struct syi_cut *cut)
{
    uint32_t high = 0, low = UINT32_MAX, few_key[SYI_FEW];
    float few_e[SYI_FEW];
    uint64_t rest = target;
    if (c->n <= SYI_FEW)
        return select_few(c, e, target, cut);
    for (int64_t i = 0; i < c->n; i++) {
        high = c->key[i] > high ? c->key[i] : high;
        low = c->key[i] < low ? c->key[i] : low;
    }
    uint32_t range = high - low;
    const int digit = c->n < 65536 ? 8 : 11; /* bits, so that most bins are used */
    *cut = (struct syi_cut){high, target};
    if (range == 0)
        return (e != NULL ? syi_weight_sum(e, c->n) : (uint64_t)c->n) >= target;
    for (;;) {
        const int bits = 32 - __builtin_clz(range), shift = bits > digit ? bits - digit : 0;
        memset(hist, 0, ((size_t)(range >> shift) + 1) * sizeof *hist);
        for (int64_t i = 0; i < c->n; i++)
            if (high - c->key[i] <= range)
                hist[(high - c->key[i]) >> shift] += e != NULL ? syi_weight(e[i]) : 1;
        uint32_t bin = 0;
        while (hist[bin] < rest) {
            rest -= hist[bin];
            if (bin++ == range >> shift)
                return false;
        }
        const uint32_t rest_range = range - (bin << shift), width = (1u << shift) - 1u;
        high -= bin << shift;
        range = rest_range < width ? rest_range : width;
        *cut = (struct syi_cut){high, rest};
        struct syi_candidates few = {few_key, NULL, 0};
        if (range == 0)
            return true;
        if (gather(c, e, high, range, &few, few_e))
            return select_few(&few, e != NULL ? few_e : NULL, rest, cut);
    }
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
    struct syi_candidates a = {key[0], idx[0], c->n}, b = {key[1], idx[1], c->n};
    if (c->n <= SYI_FEW) {
        uint32_t place[SYI_FEW];
        syi_rank_few(c, place);
        for (int64_t i = 0; i < c->n; i++) {
            a.key[i] = c->key[place[i]];
            a.idx[i] = c->idx != NULL ? c->idx[place[i]] : (int32_t)place[i];
        }
        return a;
    }
    radix_pass(c, &a, digits[2].shift, digits[2].bits, hist);
    radix_pass(&a, &b, digits[1].shift, digits[1].bits, hist);
    radix_pass(&b, &a, digits[0].shift, digits[0].bits, hist);
    return a;
}
