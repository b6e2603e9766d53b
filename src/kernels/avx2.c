/*
 * x86-64 with AVX2, FMA and F16C. The same bits as scalar.c: the same operation per element in the same
 * order, fused only where scalar.c calls fmaf.
 */
#include "kernels/avx2.h"

/* ---- Copies ---- */

/* Stores are in ascending order: only then does a core combine and stream whole lines. */
#define KEEP_ORDER() __asm__ volatile("" : : : "memory")

struct bytes_128 {
    __m256i part[4];
};

static inline struct bytes_128 load_128(const char *from)
{
    const __m256i *x = (const __m256i *)(const void *)from;
    return (struct bytes_128){{_mm256_loadu_si256(x), _mm256_loadu_si256(x + 1), _mm256_loadu_si256(x + 2),
                               _mm256_loadu_si256(x + 3)}};
}

static inline void store_128(char *to, struct bytes_128 v)
{
    __m256i *y = (__m256i *)(void *)to; /* in a loop, -O2 would keep the four in memory */
    _mm256_storeu_si256(y, v.part[0]);
    _mm256_storeu_si256(y + 1, v.part[1]);
    _mm256_storeu_si256(y + 2, v.part[2]);
    _mm256_storeu_si256(y + 3, v.part[3]);
    KEEP_ORDER();
}

static void copy_fan(void *const *dst, size_t n, const void *row, size_t bytes)
{
    const char *src = row;
    size_t at = 0;
    for (; at + 128 <= bytes; at += 128) {
        const struct bytes_128 v = load_128(src + at);
        for (size_t i = 0; i < n; i++)
            store_128((char *)dst[i] + at, v);
    }
    if (at < bytes)
        for (size_t i = 0; i < n; i++)
            memcpy((char *)dst[i] + at, src + at, bytes - at);
}

static void copy_abreast(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    size_t at = 0;
    for (; at + 128 <= bytes; at += 128)
        for (size_t i = 0; i < n; i++)
            store_128((char *)dst[i] + at, load_128((const char *)src[i] + at));
    if (at < bytes)
        for (size_t i = 0; i < n; i++)
            memcpy((char *)dst[i] + at, (const char *)src[i] + at, bytes - at);
}

static void copy_rows(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    syi_copy_groups(dst, src, n, bytes, copy_abreast);
}

/* ---- Scaling ---- */

SYI_INLINE void scale(char *y, const char *x, float w, size_t n, const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    const __m256 weight = _mm256_set1_ps(w);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store(y + i * bytes, canonical(_mm256_mul_ps(load(x + i * bytes, type), weight)), type);
    syi_kernels_scalar.scale[type](y + i * bytes, x + i * bytes, w, n - i);
}

SYI_EACH_FLOAT(SYI_DEFINE_SCALE)

/* ---- Sums of rows and dot products ---- */

enum { STRIP = 32 }; /* columns whose sums are in registers during the loop over rows */

static __m256 plus_product(__m256 sum, __m256 x, __m256 y)
{
    return _mm256_add_ps(sum, _mm256_mul_ps(x, y));
}

struct sums {
    __m256 a, b, c, d;
};

SYI_INLINE struct sums plus_row(struct sums s, const char *x, __m256 w, const enum syi_float type)
{
    const size_t step = 8 * syi_float_size(type);
    return (struct sums){plus_product(s.a, load(x, type), w), plus_product(s.b, load(x + step, type), w),
                         plus_product(s.c, load(x + 2 * step, type), w),
                         plus_product(s.d, load(x + 3 * step, type), w)};
}

SYI_INLINE void put(char *y, struct sums s, const enum syi_float type)
{
    const size_t step = 8 * syi_float_size(type);
    store(y, canonical(s.a), type);
    store(y + step, canonical(s.b), type);
    store(y + 2 * step, canonical(s.c), type);
    store(y + 3 * step, canonical(s.d), type);
}

/* A partial last strip is copied row by row to a buffer of zeros, so that nothing past it is read. */
SYI_INLINE void sum_rows(char *y, const void *const *rows, const float *w, size_t n_rows, size_t n,
                         const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    const __m256 zero = _mm256_setzero_ps();
    const struct sums none = {zero, zero, zero, zero};
    size_t at = 0;
    for (; at + STRIP <= n; at += STRIP) {
        struct sums s = none;
        for (size_t j = 0; j < n_rows; j++) {
            const __m256 weight = _mm256_set1_ps(w != NULL ? w[j] : 1.0f);
            s = plus_row(s, (const char *)rows[j] + at * bytes, weight, type);
        }
        put(y + at * bytes, s, type);
    }
    if (at < n) {
        char part[STRIP * 4] = {0};
        struct sums s = none;
        for (size_t j = 0; j < n_rows; j++) {
            memcpy(part, (const char *)rows[j] + at * bytes, (n - at) * bytes);
            s = plus_row(s, part, _mm256_set1_ps(w != NULL ? w[j] : 1.0f), type);
        }
        put(part, s, type);
        memcpy(y + at * bytes, part, (n - at) * bytes);
    }
}

SYI_EACH_FLOAT(SYI_DEFINE_SUM_ROWS)

struct lanes {
    __m256 low, high;
};

SYI_INLINE struct lanes plus_sixteen(struct lanes sum, const char *x, const char *y,
                                     const enum syi_float type)
{
    const size_t upper = 8 * syi_float_size(type);
    return (struct lanes){plus_product(sum.low, load(x, type), load(y, type)),
                          plus_product(sum.high, load(x + upper, type), load(y + upper, type))};
}

/* One block of a constant number of rows, at most 4: whole sixteens, then the rest padded with zeros. */
SYI_INLINE void add_few(float *sum, const char *a, const char *const *rows, const size_t n_rows, size_t n,
                        const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    struct lanes s[4];
    size_t i = 0;
    for (size_t j = 0; j < n_rows; j++)
        s[j] = (struct lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (; i + SYI_DOT_LANES <= n; i += SYI_DOT_LANES)
        for (size_t j = 0; j < n_rows; j++)
            s[j] = plus_sixteen(s[j], a + i * bytes, rows[j] + i * bytes, type);
    for (size_t j = 0; j < n_rows; j++) {
        char p[SYI_DOT_LANES * 4] = {0}, q[SYI_DOT_LANES * 4] = {0};
        float lane[SYI_DOT_LANES];
        if (i < n) {
            memcpy(p, a + i * bytes, (n - i) * bytes);
            memcpy(q, rows[j] + i * bytes, (n - i) * bytes);
            s[j] = plus_sixteen(s[j], p, q, type);
        }
        _mm256_storeu_ps(lane, s[j].low);
        _mm256_storeu_ps(lane + 8, s[j].high);
        sum[j] += syi_fold_lanes(lane);
    }
}

SYI_INLINE void add_dots(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n,
                         const enum syi_float type)
{
    syi_add_dots(sum, a, rows, n_rows, n, type, add_few);
}

SYI_EACH_FLOAT(SYI_DEFINE_DOT_ROWS)

/* ---- Positions ---- */

static size_t nonzero_u8(int32_t *pos, const void *bytes, size_t n)
{
    const char *b = bytes;
    size_t found = 0, i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i zero = _mm256_cmpeq_epi8(load_words(b + i), _mm256_setzero_si256());
        found = syi_push_bits(pos, found, ~(uint32_t)_mm256_movemask_epi8(zero), i);
    }
    for (; i < n; i++)
        if (b[i] != 0)
            pos[found++] = (int32_t)i;
    return found;
}

/* `good` where words are below a limit of 1 to 2^31, as numbers without a sign. */
static __m256i and_below(__m256i good, __m256i v, uint32_t limit)
{
    return _mm256_and_si256(good, _mm256_cmpeq_epi32(_mm256_min_epu32(v, words(limit - 1)), v));
}

static bool find_slots(void *slot, const void *token, const void *row, const struct syi_slot_table *table,
                       size_t n)
{
    const struct syi_slot_table l = *table;
    const char *const tokens = token, *const rows = row;
    const __m128i shift = _mm_cvtsi32_si128(l.shift);
    const __m256i magic = words(l.magic);
    __m256i all = words(~0u);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i t = load_words(tokens + i * 4);
        const __m256i even = _mm256_srl_epi64(_mm256_mul_epu32(t, magic), shift),
                      odd = _mm256_srl_epi64(_mm256_mul_epu32(_mm256_srli_epi64(t, 32), magic), shift),
                      column = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
        __m256i good = and_below(words(~0u), t, l.length), at = column;
        if (row != NULL) {
            const __m256i r = load_words(rows + i * 4);
            good = and_below(good, r, l.rows);
            at = _mm256_add_epi32(column, _mm256_mullo_epi32(r, words(l.columns)));
        }
        const __m256i block = _mm256_mask_i32gather_epi32(_mm256_setzero_si256(), l.block, at, good, 4);
        const __m256i s =
            _mm256_add_epi32(t, _mm256_mullo_epi32(_mm256_sub_epi32(block, column), words(l.size)));
        all = _mm256_and_si256(all, and_below(and_below(good, block, l.n_blocks), s, l.n_slots));
        _mm256_storeu_si256((void *)((char *)slot + i * 4), s);
    }
    const char *const rest = row != NULL ? rows + i * 4 : NULL;
    return syi_kernels_scalar.find_slots((char *)slot + i * 4, tokens + i * 4, rest, table, n - i) &&
           _mm256_movemask_epi8(all) == -1;
}

/* ---- Keys ---- */

struct key_lanes {
    __m256i max, nan, inf;
};

static __m256i keys_of(__m256i bits, struct key_lanes *lanes)
{
    const __m256i magnitude = _mm256_and_si256(bits, words(0x7fffffffu));
    const __m256i nan = _mm256_cmpgt_epi32(magnitude, words(0x7f800000u));
    const __m256i inf = _mm256_cmpeq_epi32(bits, words(0x7f800000u));
    const __m256i flip = _mm256_or_si256(_mm256_srai_epi32(bits, 31), words(0x80000000u));
    const __m256i minus_zero = _mm256_cmpeq_epi32(bits, words(0x80000000u));
    __m256i key = _mm256_xor_si256(bits, flip);
    key = _mm256_blendv_epi8(key, words(0x80000000u), minus_zero);
    key = _mm256_blendv_epi8(key, words(SYI_KEY_MINUS_INF), nan);
    key = _mm256_blendv_epi8(key, words(0xff7fffffu), inf);
    lanes->max = _mm256_max_epu32(lanes->max, key);
    lanes->nan = _mm256_or_si256(lanes->nan, nan);
    lanes->inf = _mm256_or_si256(lanes->inf, inf);
    return key;
}

static void add_lanes(struct syi_key_stats *stats, const struct key_lanes *lanes)
{
    uint32_t max[8];
    _mm256_storeu_si256((void *)max, lanes->max);
    for (int i = 0; i < 8; i++)
        stats->max = max[i] > stats->max ? max[i] : stats->max;
    stats->flags |= _mm256_movemask_epi8(lanes->nan) != 0 ? SY_ROW_NAN : 0;
    stats->flags |= _mm256_movemask_epi8(lanes->inf) != 0 ? SY_ROW_INF : 0;
}

SYI_INLINE void keys(uint32_t *key, const char *x, size_t n, struct syi_key_stats *stats,
                     const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    const __m256i none = _mm256_setzero_si256();
    struct key_lanes lanes = {none, none, none};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_si256((void *)(key + i),
                            keys_of(_mm256_castps_si256(load(x + i * bytes, type)), &lanes));
    add_lanes(stats, &lanes);
    syi_kernels_scalar.keys[type](key + i, x + i * bytes, n - i, stats);
}

SYI_EACH_FLOAT(SYI_DEFINE_KEYS)

/* ---- exp ---- */

/* Step for step syi_exp. */
static __m256 exp_avx2(__m256 t)
{
    const __m256 magic = _mm256_set1_ps(12582912.0f);
    const __m256 live = _mm256_cmp_ps(t, _mm256_set1_ps(-86.0f), _CMP_GE_OQ);
    const __m256 n = _mm256_sub_ps(_mm256_fmadd_ps(t, constant(0x3fb8aa3b), magic), magic);
    __m256 r = _mm256_fmadd_ps(n, constant(0xbf318000), t);
    r = _mm256_fmadd_ps(n, constant(0x395e8083), r);
    __m256 c = constant(0x3ab526b0);
    c = _mm256_fmadd_ps(c, r, constant(0x3c091cc7));
    c = _mm256_fmadd_ps(c, r, constant(0x3d2aac58));
    c = _mm256_fmadd_ps(c, r, constant(0x3e2aaa49));
    c = _mm256_fmadd_ps(c, r, constant(0x3efffffe));
    const __m256 y = _mm256_add_ps(_mm256_set1_ps(1.0f), _mm256_fmadd_ps(_mm256_mul_ps(r, r), c, r));
    const __m256i e = _mm256_add_epi32(_mm256_castps_si256(y), _mm256_slli_epi32(_mm256_cvttps_epi32(n), 23));
    return _mm256_and_ps(_mm256_castsi256_ps(e), live);
}

static __m256 exp_of(__m256 value, float m, float inv_t)
{
    return exp_avx2(_mm256_mul_ps(_mm256_sub_ps(value, _mm256_set1_ps(m)), _mm256_set1_ps(inv_t)));
}

static __m256 value_of(__m256i key)
{
    const __m256i low = _mm256_andnot_si256(_mm256_srai_epi32(key, 31), words(0x7fffffffu));
    return _mm256_castsi256_ps(_mm256_xor_si256(_mm256_xor_si256(key, words(0x80000000u)), low));
}

static void exp_keys(float *e, const uint32_t *key, size_t n, float m, float inv_t)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(e + i, exp_of(value_of(load_words(key + i)), m, inv_t));
    syi_kernels_scalar.exp_keys(e + i, key + i, n - i, m, inv_t);
}

/* e * 2^40 is exact, so the addition of 2^52 is the only rounding, to nearest even; the weight is then in
   the low bits. */
static __m256i weights_over_2_52(__m128 e)
{
    return _mm256_castpd_si256(_mm256_fmadd_pd(_mm256_cvtps_pd(e), _mm256_set1_pd(1099511627776.0),
                                               _mm256_set1_pd(4503599627370496.0)));
}

/* The sum of n such weights. */
static uint64_t fold_weights(__m256i over, size_t n)
{
    uint64_t sum[4];
    _mm256_storeu_si256((void *)sum, over);
    const uint64_t excess = (uint64_t)n * UINT64_C(0x4330000000000000); /* the bits of 2^52, modulo 2^64 */
    return sum[0] + sum[1] + sum[2] + sum[3] - excess;
}

static uint64_t weigh_f32(const void *x, size_t n, float m, float inv_t)
{
    const char *in = x;
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 e = exp_of(load(in + i * 4, SYI_FLOAT_F32), m, inv_t);
        low = _mm256_add_epi64(low, weights_over_2_52(_mm256_castps256_ps128(e)));
        high = _mm256_add_epi64(high, weights_over_2_52(_mm256_extractf128_ps(e, 1)));
    }
    return fold_weights(_mm256_add_epi64(low, high), i) +
           syi_kernels_scalar.weigh_f32(in + i * 4, n - i, m, inv_t);
}

static double fold_pd(__m256d sum)
{
    double lane[4];
    _mm256_storeu_pd(lane, sum);
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

static __m256d widen_sum(__m256 all)
{
    return _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(all)),
                         _mm256_cvtps_pd(_mm256_extractf128_ps(all, 1)));
}

/* Groups of 128 elements, of which sixteen vectors are added in f32. */
SYI_INLINE double sum_exp(const char *x, size_t n, float m, float inv_t, const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    __m256d sum = _mm256_setzero_pd();
    size_t i = 0;
    for (; i + 128 <= n; i += 128) {
        __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
        for (size_t j = 0; j < 128; j += 16) {
            const char *at = x + (i + j) * bytes;
            even = _mm256_add_ps(even, exp_of(load(at, type), m, inv_t));
            odd = _mm256_add_ps(odd, exp_of(load(at + 8 * bytes, type), m, inv_t));
        }
        sum = _mm256_add_pd(sum, widen_sum(_mm256_add_ps(even, odd)));
    }
    return fold_pd(sum) + syi_kernels_scalar.sum_exp[type](x + i * bytes, n - i, m, inv_t);
}

SYI_EACH_FLOAT(SYI_DEFINE_SUM_EXP)

/* Adds in f32 by halves, then in f64. */
static __m256d sum_of_four(const __m256 v[4])
{
    return widen_sum(_mm256_add_ps(_mm256_add_ps(v[0], v[1]), _mm256_add_ps(v[2], v[3])));
}

/* e of a row, 32 at a time, and their sum: every 32 in f32, then on in f64. */
SYI_INLINE double exp_row(float *e, const char *x, size_t n, float m, float inv_t, const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    __m256d sum = _mm256_setzero_pd();
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256 v[4];
        for (size_t j = 0; j < 4; j++) {
            v[j] = exp_of(load(x + (i + 8 * j) * bytes, type), m, inv_t);
            _mm256_storeu_ps(e + i + 8 * j, v[j]);
        }
        sum = _mm256_add_pd(sum, sum_of_four(v));
    }
    return fold_pd(sum) + syi_kernels_scalar.exp_row[type](e + i, x + i * bytes, n - i, m, inv_t);
}

SYI_EACH_FLOAT(SYI_DEFINE_EXP_ROW)

static size_t split(int32_t *pos, const float *e, size_t n, float low, float high, double *sum)
{
    const __m256 least = _mm256_set1_ps(low), above = _mm256_set1_ps(high);
    __m256d total = _mm256_setzero_pd();
    size_t i = 0, found = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t bits = 0;
        for (size_t half = 0; half < 64; half += 32) {
            __m256 v[4];
            for (size_t j = 0; j < 4; j++) {
                const __m256 x = _mm256_loadu_ps(e + i + half + 8 * j);
                const __m256 top = _mm256_cmp_ps(x, above, _CMP_GE_OQ);
                const __m256 in = _mm256_andnot_ps(top, _mm256_cmp_ps(x, least, _CMP_GE_OQ));
                bits |= (uint64_t)(unsigned)_mm256_movemask_ps(in) << (half + 8 * j);
                v[j] = _mm256_and_ps(x, top);
            }
            total = _mm256_add_pd(total, sum_of_four(v));
        }
        found = syi_push_some(pos, found, bits, i);
    }
    return syi_split_rest(pos, found, e, i, n, low, high, fold_pd(total), sum);
}

static uint64_t weigh_e(const float *e, size_t n, float least)
{
    const __m256 from = _mm256_set1_ps(least);
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 all = _mm256_loadu_ps(e + i);
        const __m256 x = _mm256_and_ps(all, _mm256_cmp_ps(all, from, _CMP_GE_OQ));
        low = _mm256_add_epi64(low, weights_over_2_52(_mm256_castps256_ps128(x)));
        high = _mm256_add_epi64(high, weights_over_2_52(_mm256_extractf128_ps(x, 1)));
    }
    return fold_weights(_mm256_add_epi64(low, high), i) + syi_kernels_scalar.weigh_e(e + i, n - i, least);
}

/* ---- Order of raw logits ---- */

/* The largest order, given all orders inverted: the instruction set has only this horizontal minimum. */
static uint16_t best_of(__m128i inverted)
{
    return (uint16_t) ~(uint32_t)_mm_cvtsi128_si32(_mm_minpos_epu16(inverted));
}

/*
 * As signed integers, bit patterns order like the values while any of them is non-negative, so the maximum
 * needs no conversion per element; a block of negatives alone (an order below 0x8000) is done again with the
 * least pattern.
 */
static uint16_t best_16(const char *x, __m256i *largest)
{
    const __m256i a = load_words(x), b = load_words(x + 32), c = load_words(x + 64), d = load_words(x + 96);
    *largest = _mm256_max_epu16(*largest, _mm256_max_epu16(_mm256_max_epu16(a, b), _mm256_max_epu16(c, d)));
    __m256i m = _mm256_max_epi16(_mm256_max_epi16(a, b), _mm256_max_epi16(c, d));
    __m128i half = _mm_max_epi16(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    const uint16_t best = best_of(_mm_xor_si128(half, _mm_set1_epi16(0x7fff)));
    if (best >= 0x8000u)
        return best;
    m = _mm256_min_epi16(_mm256_min_epi16(a, b), _mm256_min_epi16(c, d));
    half = _mm_min_epi16(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    return best_of(half);
}

/* The same for whole words, whose upper halves are compared. */
static uint16_t best_32(const char *x, __m256i *largest)
{
    const __m128i lower = _mm_set1_epi32(0xffff); /* an inverted order that is never the minimum */
    __m256i m = load_words(x), pattern = m;
    for (size_t i = 32; i < SYI_BLOCK_BYTES_32; i += 32) {
        m = _mm256_max_epi32(m, load_words(x + i));
        pattern = _mm256_max_epu32(pattern, load_words(x + i));
    }
    *largest = _mm256_max_epu16(*largest, _mm256_srli_epi32(pattern, 16));
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    const uint16_t best = best_of(_mm_or_si128(_mm_xor_si128(half, _mm_set1_epi32(0x7fff0000)), lower));
    if (best >= 0x8000u)
        return best;
    m = load_words(x);
    for (size_t i = 32; i < SYI_BLOCK_BYTES_32; i += 32)
        m = _mm256_min_epi32(m, load_words(x + i));
    half = _mm_min_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    return best_of(_mm_or_si128(half, lower));
}

SYI_INLINE void block_max(uint16_t *max, uint16_t *low, const char *x, size_t n_blocks, size_t block_bytes,
                          uint16_t (*best)(const char *, __m256i *))
{
    __m256i largest = _mm256_setzero_si256();
    for (size_t b = 0; b < n_blocks; b++, x += block_bytes) {
        for (size_t line = 0; line < block_bytes;
             line += 64) /* the core's own prefetch stops at every page */
            __builtin_prefetch(x + 8192 + line, 0, 2);
        max[b] = best(x, &largest);
    }
    const __m128i half = _mm_max_epu16(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    if (low != NULL)
        *low = best_of(_mm_xor_si128(half, _mm_set1_epi16(-1)));
}

SYI_DEFINE_BLOCK_MAX

static __m256i at_least_16(__m256i v, __m256i least)
{
    return _mm256_cmpeq_epi16(_mm256_max_epu16(v, least), v);
}

static size_t count_ge_u16(const uint16_t *v, size_t n, uint16_t threshold)
{
    const __m256i least = _mm256_set1_epi16((short)threshold);
    size_t count = 0, i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i low = at_least_16(load_words(v + i), least),
                      high = at_least_16(load_words(v + i + 16), least);
        count += (size_t)__builtin_popcount((uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(low, high)));
    }
    return count + syi_kernels_scalar.count_ge_u16(v + i, n - i, threshold);
}

static __m256i ge_16(const char *x, __m256i least)
{
    const __m256i bits = load_words(x);
    const __m256i flip = _mm256_or_si256(_mm256_srai_epi16(bits, 15), _mm256_set1_epi16((short)0x8000u));
    return at_least_16(_mm256_xor_si256(bits, flip), least);
}

/* One bit for each element of a block. Packing works within halves: 0xd8 swaps the middle quarters back. */
static uint64_t reach_16(const void *block, uint16_t threshold)
{
    const char *x = block;
    const __m256i least = _mm256_set1_epi16((short)threshold);
    const __m256i low = _mm256_packs_epi16(ge_16(x, least), ge_16(x + 32, least));
    const __m256i high = _mm256_packs_epi16(ge_16(x + 64, least), ge_16(x + 96, least));
    const uint32_t first = (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(low, 0xd8));
    const uint32_t second = (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(high, 0xd8));
    return first | (uint64_t)second << 32;
}

/* A whole word is at least the threshold with zeros below it exactly when its upper half is at least the
   threshold. */
static uint64_t reach_32(const void *block, uint16_t threshold)
{
    const char *x = block;
    const __m256i least = words((uint32_t)threshold << 16);
    uint64_t hits = 0;
    for (size_t i = 0; i < SYI_BLOCK; i += 8) {
        const __m256i bits = load_words(x + i * 4);
        const __m256i flip = _mm256_or_si256(_mm256_srai_epi32(bits, 31), words(0x80000000u));
        const __m256i order = _mm256_xor_si256(bits, flip);
        const __m256i ge = _mm256_cmpeq_epi32(_mm256_max_epu32(order, least), order);
        hits |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(ge)) << i;
    }
    return hits;
}

const struct syi_kernels syi_kernels_avx2 = {
    .name = "avx2",
    .needs = SYI_CPU_AVX2,
    .scale = SYI_FLOATS(scale),
    .sum_rows = SYI_FLOATS(sum_rows),
    .dot_rows = SYI_FLOATS(dot_rows),
    .decode = syi_decode_avx2,
    .encoders = &syi_encoders_avx2,
    .packers = &syi_packers_avx2,
    .block_max_16 = block_max_16,
    .block_max_32 = block_max_32,
    .count_ge_u16 = count_ge_u16,
    .reach_16 = reach_16,
    .reach_32 = reach_32,
    SYI_SAME_ENTRIES,
};
