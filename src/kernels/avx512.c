/*
 * x86-64 with AVX-512 F, BW, DQ and VL. The same bits as scalar.c: the same operation per element in the same
 * order, fused only where scalar.c calls fmaf. Tails are masked: a masked-off lane is neither read nor
 * written.
 */
#include "kernels/avx512.h"

static __mmask32 first_32(size_t left)
{
    return left < 32 ? (1u << left) - 1 : 0xffffffffu;
}

static __mmask64 first_64(size_t left)
{
    return left < 64 ? (UINT64_C(1) << left) - 1 : ~UINT64_C(0);
}

/* ---- Copies ---- */

/* Stores are in ascending order: only then does a core combine and stream whole lines. */
#define KEEP_ORDER() __asm__ volatile("" : : : "memory")

static inline void put(char *to, __m512i v)
{
    _mm512_storeu_si512(to, v);
    KEEP_ORDER();
}

static void copy_fan(void *const *dst, size_t n, const void *row, size_t bytes)
{
    const char *src = row;
    size_t at = 0;
    for (; at + 256 <= bytes; at += 256) {
        const __m512i a = _mm512_loadu_si512(src + at), b = _mm512_loadu_si512(src + at + 64);
        const __m512i c = _mm512_loadu_si512(src + at + 128), d = _mm512_loadu_si512(src + at + 192);
        for (size_t i = 0; i < n; i++) {
            char *to = (char *)dst[i] + at;
            put(to, a);
            put(to + 64, b);
            put(to + 128, c);
            put(to + 192, d);
        }
    }
    for (; at < bytes; at += 64) {
        const __mmask64 live = first_64(bytes - at);
        const __m512i v = _mm512_maskz_loadu_epi8(live, src + at);
        for (size_t i = 0; i < n; i++)
            _mm512_mask_storeu_epi8((char *)dst[i] + at, live, v);
    }
}

static void copy_abreast(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    size_t at = 0;
    for (; at + 128 <= bytes; at += 128)
        for (size_t i = 0; i < n; i++) {
            const char *from = (const char *)src[i] + at;
            const __m512i low = _mm512_loadu_si512(from), high = _mm512_loadu_si512(from + 64);
            put((char *)dst[i] + at, low);
            put((char *)dst[i] + at + 64, high);
        }
    for (; at < bytes; at += 64) {
        const __mmask64 live = first_64(bytes - at);
        for (size_t i = 0; i < n; i++)
            _mm512_mask_storeu_epi8((char *)dst[i] + at, live,
                                    _mm512_maskz_loadu_epi8(live, (const char *)src[i] + at));
    }
}

static void copy_rows(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    syi_copy_groups(dst, src, n, bytes, copy_abreast);
}

/* ---- Scaling ---- */

SYI_INLINE void scale(char *y, const char *x, float w, size_t n, const enum syi_float type)
{
    const size_t bytes = syi_float_size(type), whole = n - n % 16;
    const __m512 weight = _mm512_set1_ps(w);
    for (size_t i = 0; i < whole; i += 16)
        store(y + i * bytes, 0xffff, canonical(_mm512_mul_ps(load(x + i * bytes, 0xffff, type), weight)),
              type);
    if (whole < n) {
        const __mmask16 live = first_16(n - whole);
        store(y + whole * bytes, live, canonical(_mm512_mul_ps(load(x + whole * bytes, live, type), weight)),
              type);
    }
}

SYI_EACH_FLOAT(SYI_DEFINE_SCALE)

/* ---- Sums of rows and dot products ---- */

enum { STRIP = 64 }; /* columns whose sums are in registers during the loop over rows */

static __m512 plus_product(__m512 sum, __m512 x, __m512 y)
{
    return _mm512_add_ps(sum, _mm512_mul_ps(x, y));
}

/* One whole strip of all rows. */
SYI_INLINE void sum_strip(char *y, const void *const *rows, const float *w, size_t n_rows, size_t from_byte,
                          const enum syi_float type)
{
    const size_t step = 16 * syi_float_size(type);
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    for (size_t j = 0; j < n_rows; j++) {
        const char *x = (const char *)rows[j] + from_byte;
        const __m512 weight = _mm512_set1_ps(w != NULL ? w[j] : 1.0f);
        a = plus_product(a, load(x, 0xffff, type), weight);
        b = plus_product(b, load(x + step, 0xffff, type), weight);
        c = plus_product(c, load(x + 2 * step, 0xffff, type), weight);
        d = plus_product(d, load(x + 3 * step, 0xffff, type), weight);
    }
    store(y, 0xffff, canonical(a), type);
    store(y + step, 0xffff, canonical(b), type);
    store(y + 2 * step, 0xffff, canonical(c), type);
    store(y + 3 * step, 0xffff, canonical(d), type);
}

SYI_INLINE void sum_rows(char *y, const void *const *rows, const float *w, size_t n_rows, size_t n,
                         const enum syi_float type)
{
    const size_t bytes = syi_float_size(type);
    size_t at = 0;
    for (; at + STRIP <= n; at += STRIP)
        sum_strip(y + at * bytes, rows, w, n_rows, at * bytes, type);
    for (; at < n; at += 16) { /* masked-off lanes are undefined and not stored */
        const __mmask16 live = first_16(n - at);
        __m512 sum = _mm512_setzero_ps();
        for (size_t j = 0; j < n_rows; j++)
            sum = plus_product(sum, load((const char *)rows[j] + at * bytes, live, type),
                               _mm512_set1_ps(w != NULL ? w[j] : 1.0f));
        store(y + at * bytes, live, canonical(sum), type);
    }
}

SYI_EACH_FLOAT(SYI_DEFINE_SUM_ROWS)

/* One block of a constant number of rows, at most 4. In the last sixteen a masked-off lane keeps its sum. */
SYI_INLINE void add_few(float *sum, const char *a, const char *const *rows, const size_t n_rows, size_t n,
                        const enum syi_float type)
{
    const size_t bytes = syi_float_size(type), whole = n - n % SYI_DOT_LANES;
    __m512 s[4];
    for (size_t j = 0; j < n_rows; j++)
        s[j] = _mm512_setzero_ps();
    for (size_t i = 0; i < whole; i += SYI_DOT_LANES)
        for (size_t j = 0; j < n_rows; j++)
            s[j] = plus_product(s[j], load(a + i * bytes, 0xffff, type),
                                load(rows[j] + i * bytes, 0xffff, type));
    for (size_t j = 0; j < n_rows; j++) {
        float lane[SYI_DOT_LANES];
        if (whole < n) {
            const __mmask16 live = first_16(n - whole);
            const __m512 p = load(a + whole * bytes, live, type),
                         q = load(rows[j] + whole * bytes, live, type);
            s[j] = _mm512_mask_add_ps(s[j], live, s[j], _mm512_mul_ps(p, q));
        }
        _mm512_storeu_ps(lane, s[j]);
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
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    size_t found = 0, i = 0;
    for (; i + 64 <= n; i += 64) {
        const __m512i v = _mm512_loadu_si512(b + i);
        uint64_t mask = _mm512_test_epi8_mask(v, v);
        for (size_t at = i; mask != 0; at += 16, mask >>= 16) { /* found <= at, so sixteen still fit in pos */
            const __m512i here = _mm512_add_epi32(lane, _mm512_set1_epi32((int)at));
            _mm512_storeu_si512(pos + found, _mm512_maskz_compress_epi32((__mmask16)mask, here));
            found += (size_t)__builtin_popcount((uint32_t)mask & 0xffffu);
        }
    }
    const __m512i v = _mm512_maskz_loadu_epi8(first_64(n - i), b + i);
    return syi_push_bits(pos, found, _mm512_test_epi8_mask(v, v), i);
}

static bool find_slots(void *slot, const void *token, const void *row, const struct syi_slot_table *table,
                       size_t n)
{
    const struct syi_slot_table l = *table;
    const __m128i shift = _mm_cvtsi32_si128(l.shift);
    const __m512i magic = words(l.magic);
    __mmask16 missed = 0;
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 live = first_16(n - i);
        const __m512i t = _mm512_maskz_loadu_epi32(live, (const char *)token + i * 4);
        const __m512i even = _mm512_srl_epi64(_mm512_mul_epu32(t, magic), shift),
                      odd = _mm512_srl_epi64(_mm512_mul_epu32(_mm512_srli_epi64(t, 32), magic), shift),
                      column = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
        __mmask16 good = _mm512_mask_cmplt_epu32_mask(live, t, words(l.length));
        __m512i at = column;
        if (row != NULL) {
            const __m512i r = _mm512_maskz_loadu_epi32(live, (const char *)row + i * 4);
            good = _mm512_mask_cmplt_epu32_mask(good, r, words(l.rows));
            at = _mm512_add_epi32(column, _mm512_mullo_epi32(r, words(l.columns)));
        }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion" /* in gcc's macro, without optimisation */
        const __m512i block = _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), good, at, l.block, 4);
#pragma GCC diagnostic pop
        const __m512i s =
            _mm512_add_epi32(t, _mm512_mullo_epi32(_mm512_sub_epi32(block, column), words(l.size)));
        good = _mm512_mask_cmplt_epu32_mask(good, block, words(l.n_blocks));
        missed |= live ^ _mm512_mask_cmplt_epu32_mask(good, s, words(l.n_slots));
        _mm512_mask_storeu_epi32((char *)slot + i * 4, live, s);
    }
    return missed == 0;
}

/* ---- Keys ---- */

struct key_lanes {
    __m512i max;
    __mmask16 nan, inf;
};

static __m512i keys_of(__m512i bits, struct key_lanes *lanes)
{
    const __m512i magnitude = _mm512_and_si512(bits, words(0x7fffffffu));
    const __mmask16 nan = _mm512_cmpgt_epu32_mask(magnitude, words(0x7f800000u));
    const __mmask16 inf = _mm512_cmpeq_epi32_mask(bits, words(0x7f800000u));
    const __mmask16 minus_zero = _mm512_cmpeq_epi32_mask(bits, words(0x80000000u));
    const __m512i flip = _mm512_or_si512(_mm512_srai_epi32(bits, 31), words(0x80000000u));
    __m512i key = _mm512_xor_si512(bits, flip);
    key = _mm512_mask_mov_epi32(key, minus_zero, words(0x80000000u));
    key = _mm512_mask_mov_epi32(key, nan, words(SYI_KEY_MINUS_INF));
    key = _mm512_mask_mov_epi32(key, inf, words(0xff7fffffu));
    lanes->max = _mm512_max_epu32(lanes->max, key);
    lanes->nan = (__mmask16)(lanes->nan | nan);
    lanes->inf = (__mmask16)(lanes->inf | inf);
    return key;
}

static void add_lanes(struct syi_key_stats *stats, const struct key_lanes *lanes)
{
    const uint32_t max = _mm512_reduce_max_epu32(lanes->max);
    stats->max = max > stats->max ? max : stats->max;
    stats->flags |= lanes->nan != 0 ? SY_ROW_NAN : 0;
    stats->flags |= lanes->inf != 0 ? SY_ROW_INF : 0;
}

SYI_INLINE void keys(uint32_t *key, const char *x, size_t n, struct syi_key_stats *stats,
                     const enum syi_float type)
{
    const size_t bytes = syi_float_size(type), whole = n - n % 16;
    struct key_lanes lanes = {_mm512_setzero_si512(), 0, 0};
    for (size_t i = 0; i < whole; i += 16)
        _mm512_storeu_si512(key + i, keys_of(_mm512_castps_si512(load(x + i * bytes, 0xffff, type)), &lanes));
    if (whole < n) {
        const __mmask16 live = first_16(n - whole);
        const __m512i bits = _mm512_castps_si512(load(x + whole * bytes, live, type));
        _mm512_mask_storeu_epi32(key + whole, live, keys_of(bits, &lanes));
    }
    add_lanes(stats, &lanes);
}

SYI_EACH_FLOAT(SYI_DEFINE_KEYS)

/* ---- exp ---- */

/* Step for step syi_exp. */
static __m512 exp_avx512(__m512 t)
{
    const __m512 magic = _mm512_set1_ps(12582912.0f);
    const __mmask16 live = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-86.0f), _CMP_GE_OQ);
    const __m512 n = _mm512_sub_ps(_mm512_fmadd_ps(t, constant(0x3fb8aa3b), magic), magic);
    __m512 r = _mm512_fmadd_ps(n, constant(0xbf318000), t);
    r = _mm512_fmadd_ps(n, constant(0x395e8083), r);
    __m512 c = constant(0x3ab526b0);
    c = _mm512_fmadd_ps(c, r, constant(0x3c091cc7));
    c = _mm512_fmadd_ps(c, r, constant(0x3d2aac58));
    c = _mm512_fmadd_ps(c, r, constant(0x3e2aaa49));
    c = _mm512_fmadd_ps(c, r, constant(0x3efffffe));
    const __m512 y = _mm512_add_ps(_mm512_set1_ps(1.0f), _mm512_fmadd_ps(_mm512_mul_ps(r, r), c, r));
    const __m512i exponent = _mm512_slli_epi32(_mm512_cvttps_epi32(n), 23);
    return _mm512_castsi512_ps(_mm512_maskz_add_epi32(live, _mm512_castps_si512(y), exponent));
}

static __m512 exp_of(__m512 value, float m, float inv_t)
{
    return exp_avx512(_mm512_mul_ps(_mm512_sub_ps(value, _mm512_set1_ps(m)), _mm512_set1_ps(inv_t)));
}

static __m512 value_of(__m512i key)
{
    const __m512i low = _mm512_andnot_si512(_mm512_srai_epi32(key, 31), words(0x7fffffffu));
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_xor_si512(key, words(0x80000000u)), low));
}

static void exp_keys(float *e, const uint32_t *key, size_t n, float m, float inv_t)
{
    const size_t whole = n - n % 16;
    for (size_t i = 0; i < whole; i += 16)
        _mm512_storeu_ps(e + i, exp_of(value_of(_mm512_loadu_si512(key + i)), m, inv_t));
    if (whole < n) {
        const __mmask16 live = first_16(n - whole);
        const __m512i tail = _mm512_maskz_loadu_epi32(live, key + whole);
        _mm512_mask_storeu_ps(e + whole, live, exp_of(value_of(tail), m, inv_t));
    }
}

/* e * 2^40 is exact in f32; the conversion rounds it to nearest even, eight at a time. */
static __m512i weights_of(__m512 e)
{
    const __m512 scaled = _mm512_mul_ps(e, _mm512_set1_ps(1099511627776.0f));
    return _mm512_add_epi64(_mm512_cvtps_epu64(_mm512_castps512_ps256(scaled)),
                            _mm512_cvtps_epu64(_mm512_extractf32x8_ps(scaled, 1)));
}

static uint64_t weigh_f32(const void *x, size_t n, float m, float inv_t)
{
    const char *in = x;
    const size_t whole = n - n % 16;
    __m512i sum = _mm512_setzero_si512();
    for (size_t i = 0; i < whole; i += 16)
        sum = _mm512_add_epi64(sum, weights_of(exp_of(_mm512_loadu_ps(in + i * 4), m, inv_t)));
    if (whole < n) {
        const __m512 tail = load(in + whole * 4, first_16(n - whole), SYI_FLOAT_F32);
        sum = _mm512_add_epi64(sum, weights_of(exp_of(tail, m, inv_t)));
    }
    uint64_t lane[8], total = 0;
    _mm512_storeu_si512(lane, sum);
    for (int i = 0; i < 8; i++)
        total += lane[i];
    return total;
}

static __m512d widen_sum(__m512 part)
{
    return _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(part)),
                         _mm512_cvtps_pd(_mm512_extractf32x8_ps(part, 1)));
}

SYI_INLINE double sum_exp(const char *x, size_t n, float m, float inv_t, const enum syi_float type)
{
    __m512d sum = _mm512_setzero_pd();
    for (size_t i = 0; i < n;) {
        const size_t stop = n - i < 256 ? n : i + 256; /* sixteen vectors in f32, the rest in f64 */
        __m512 part = _mm512_setzero_ps();
        for (; i < stop; i += 16) {
            const __mmask16 live = stop - i < 16 ? first_16(stop - i) : 0xffff;
            part = _mm512_add_ps(part, exp_of(load(x + i * syi_float_size(type), live, type), m, inv_t));
        }
        sum = _mm512_add_pd(sum, widen_sum(part));
    }
    return _mm512_reduce_add_pd(sum);
}

SYI_EACH_FLOAT(SYI_DEFINE_SUM_EXP)

SYI_INLINE double exp_row(float *e, const char *x, size_t n, float m, float inv_t, const enum syi_float type)
{
    __m512d sum = _mm512_setzero_pd();
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 live = n - i < 16 ? first_16(n - i) : 0xffff;
        const __m512 v = load(x + i * syi_float_size(type), live, type);
        const __m512 all = _mm512_maskz_mov_ps(live, exp_of(v, m, inv_t));
        _mm512_mask_storeu_ps(e + i, live, all);
        sum = _mm512_add_pd(sum, widen_sum(all));
    }
    return _mm512_reduce_add_pd(sum);
}

SYI_EACH_FLOAT(SYI_DEFINE_EXP_ROW)

static size_t split(int32_t *pos, const float *e, size_t n, float low, float high, double *sum)
{
    const __m512 least = _mm512_set1_ps(low), above = _mm512_set1_ps(high);
    __m512d total = _mm512_setzero_pd();
    size_t i = 0, found = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t bits = 0;
        for (size_t j = 0; j < 64; j += 16) {
            const __m512 x = _mm512_loadu_ps(e + i + j);
            const __mmask16 top = _mm512_cmp_ps_mask(x, above, _CMP_GE_OQ);
            const __mmask16 in = _mm512_cmp_ps_mask(x, least, _CMP_GE_OQ);
            bits |= (uint64_t)(uint16_t)(in & ~top) << j;
            total = _mm512_add_pd(total, widen_sum(_mm512_maskz_mov_ps(top, x)));
        }
        found = syi_push_some(pos, found, bits, i);
    }
    return syi_split_rest(pos, found, e, i, n, low, high, _mm512_reduce_add_pd(total), sum);
}

static uint64_t weigh_e(const float *e, size_t n, float least)
{
    const __m512 from = _mm512_set1_ps(least);
    __m512i sum = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 live = n - i < 16 ? first_16(n - i) : 0xffff;
        const __m512 x = _mm512_maskz_loadu_ps(live, e + i);
        const __mmask16 in = _mm512_cmp_ps_mask(x, from, _CMP_GE_OQ);
        sum = _mm512_add_epi64(sum, weights_of(_mm512_maskz_mov_ps(in, x)));
    }
    return (uint64_t)_mm512_reduce_add_epi64(sum);
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
static uint16_t best_16(const char *x, __m512i *largest)
{
    const __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(x + 64);
    *largest = _mm512_max_epu16(*largest, _mm512_max_epu16(a, b));
    __m512i m = _mm512_max_epi16(a, b);
    __m256i half = _mm256_max_epi16(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    __m128i quarter = _mm_max_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const uint16_t best = best_of(_mm_xor_si128(quarter, _mm_set1_epi16(0x7fff)));
    if (best >= 0x8000u)
        return best;
    m = _mm512_min_epi16(a, b);
    half = _mm256_min_epi16(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    quarter = _mm_min_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return best_of(quarter);
}

/* The same for whole words, whose upper halves are compared. */
static uint16_t best_32(const char *x, __m512i *largest)
{
    const __m128i lower = _mm_set1_epi32(0xffff); /* an inverted order that is never the minimum */
    const __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(x + 64);
    const __m512i c = _mm512_loadu_si512(x + 128), d = _mm512_loadu_si512(x + 192);
    const __m512i pattern = _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d));
    *largest = _mm512_max_epu16(*largest, _mm512_srli_epi32(pattern, 16));
    __m512i m = _mm512_max_epi32(_mm512_max_epi32(a, b), _mm512_max_epi32(c, d));
    __m256i half = _mm256_max_epi32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    __m128i quarter = _mm_max_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const uint16_t best = best_of(_mm_or_si128(_mm_xor_si128(quarter, _mm_set1_epi32(0x7fff0000)), lower));
    if (best >= 0x8000u)
        return best;
    m = _mm512_min_epi32(_mm512_min_epi32(a, b), _mm512_min_epi32(c, d));
    half = _mm256_min_epi32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    quarter = _mm_min_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return best_of(_mm_or_si128(quarter, lower));
}

SYI_INLINE void block_max(uint16_t *max, uint16_t *low, const char *x, size_t n_blocks, size_t block_bytes,
                          uint16_t (*best)(const char *, __m512i *))
{
    __m512i largest = _mm512_setzero_si512();
    for (size_t b = 0; b < n_blocks; b++, x += block_bytes) {
        for (size_t line = 0; line < block_bytes;
             line += 64) /* the core's own prefetch stops at every page */
            __builtin_prefetch(x + 8192 + line, 0, 2);
        max[b] = best(x, &largest);
    }
    const __m256i half =
        _mm256_max_epu16(_mm512_castsi512_si256(largest), _mm512_extracti64x4_epi64(largest, 1));
    const __m128i quarter = _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    if (low != NULL)
        *low = best_of(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
}

SYI_DEFINE_BLOCK_MAX

static size_t count_ge_u16(const uint16_t *v, size_t n, uint16_t threshold)
{
    const __m512i least = _mm512_set1_epi16((short)threshold);
    const size_t whole = n - n % 32;
    size_t count = 0;
    for (size_t i = 0; i < whole; i += 32)
        count += (size_t)__builtin_popcount(_mm512_cmpge_epu16_mask(_mm512_loadu_si512(v + i), least));
    const __mmask32 live = first_32(n - whole);
    const __m512i tail = _mm512_maskz_loadu_epi16(live, v + whole);
    return count + (size_t)__builtin_popcount(_mm512_mask_cmpge_epu16_mask(live, tail, least));
}

static uint64_t reach_16(const void *x, uint16_t threshold)
{
    const char *in = x;
    const __m512i least = _mm512_set1_epi16((short)threshold), top = _mm512_set1_epi16((short)0x8000u);
    uint64_t hits = 0;
    for (size_t i = 0; i < SYI_BLOCK; i += 32) {
        const __m512i bits = _mm512_loadu_si512(in + i * 2);
        const __m512i order = _mm512_xor_si512(bits, _mm512_or_si512(_mm512_srai_epi16(bits, 15), top));
        hits |= (uint64_t)_mm512_cmpge_epu16_mask(order, least) << i;
    }
    return hits;
}

/* A whole word is at least the threshold with zeros below it exactly when its upper half is at least the
   threshold. */
static uint64_t reach_32(const void *x, uint16_t threshold)
{
    const char *in = x;
    const __m512i least = words((uint32_t)threshold << 16), top = words(0x80000000u);
    uint64_t hits = 0;
    for (size_t i = 0; i < SYI_BLOCK; i += 16) {
        const __m512i bits = _mm512_loadu_si512(in + i * 4);
        const __m512i order = _mm512_xor_si512(bits, _mm512_or_si512(_mm512_srai_epi32(bits, 31), top));
        hits |= (uint64_t)_mm512_cmpge_epu32_mask(order, least) << i;
    }
    return hits;
}

static size_t mark_16(uint64_t *bits, const void *x, size_t n_blocks, uint16_t low, uint16_t span)
{
    const __m512i from = _mm512_set1_epi16((short)low), most = _mm512_set1_epi16((short)span);
    size_t count = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        uint64_t hits = 0;
        for (size_t i = 0; i < SYI_BLOCK; i += 32) {
            const __m512i number = _mm512_loadu_si512((const char *)x + (b * SYI_BLOCK + i) * 2);
            const __m512i flip = _mm512_srli_epi16(_mm512_srai_epi16(number, 15), 1);
            const __m512i above = _mm512_sub_epi16(_mm512_xor_si512(number, flip), from);
            hits |= (uint64_t)_mm512_cmple_epu16_mask(above, most) << i;
        }
        bits[b] = hits;
        count += (size_t)__builtin_popcountll(hits);
    }
    return count;
}

static size_t mark_32(uint64_t *bits, const void *x, size_t n_blocks, uint32_t low, uint32_t span)
{
    const __m512i from = words(low), most = words(span);
    size_t count = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        uint64_t hits = 0;
        for (size_t i = 0; i < SYI_BLOCK; i += 16) {
            const __m512i number = _mm512_loadu_si512((const char *)x + (b * SYI_BLOCK + i) * 4);
            const __m512i flip = _mm512_srli_epi32(_mm512_srai_epi32(number, 31), 1);
            const __m512i above = _mm512_sub_epi32(_mm512_xor_si512(number, flip), from);
            hits |= (uint64_t)_mm512_cmple_epu32_mask(above, most) << i;
        }
        bits[b] = hits;
        count += (size_t)__builtin_popcountll(hits);
    }
    return count;
}

const struct syi_kernels syi_kernels_avx512 = {
    .name = "avx512",
    .needs = SYI_CPU_AVX512 | SYI_CPU_AVX2,
    .scale = SYI_FLOATS(scale),
    .sum_rows = SYI_FLOATS(sum_rows),
    .dot_rows = SYI_FLOATS(dot_rows),
    .decode = syi_decode_avx512,
    .encoders = &syi_encoders_avx512,
    .packers = &syi_packers_avx512,
    .block_max_16 = block_max_16,
    .block_max_32 = block_max_32,
    .count_ge_u16 = count_ge_u16,
    .reach_16 = reach_16,
    .reach_32 = reach_32,
    SYI_SAME_ENTRIES,
};
