/*
 * x86-64 with AVX2, FMA and F16C. The same bits as scalar.c: the same operation per element in the same
 * order, fused only where scalar.c calls fmaf.
 */
#include "kernels/kernels.h"

#include <immintrin.h>

/* ---- Copies ------------------------------------------------------------------------------------------ */

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

static void copy_fan_avx2(void *const *dst, size_t n, const void *row, size_t bytes)
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

static void copy_rows_avx2(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    const size_t most = syi_abreast(bytes);
    for (size_t done = 0; done < n; done += most) {
        const size_t left = n - done, group = left < most ? left : most;
        syi_fetch_rows(src + done, left, group, bytes);
        copy_abreast(dst + done, src + done, group, bytes);
    }
}

/* ---- Eight elements, widened to words ---------------------------------------------------------------- */

static __m256i load_words(const void *x)
{
    return _mm256_loadu_si256(x);
}

static __m256i load_f16(const void *x)
{
    return _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128(x)));
}

static __m256i load_bf16(const void *x)
{
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(x)), 16);
}

static __m256i words(uint32_t bits)
{
    return _mm256_set1_epi32((int)bits);
}

static __m256 constant(uint32_t bits)
{
    return _mm256_castsi256_ps(words(bits));
}

/* ---- Scaling ----------------------------------------------------------------------------------------- */

static void store_f32(void *y, __m256 v)
{
    _mm256_storeu_si256(y, _mm256_castps_si256(v));
}

static void store_f16(void *y, __m256 v)
{
    _mm_storeu_si128(y, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

static void store_bf16(void *y, __m256 v)
{
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), words(1));
    const __m256i upper = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, words(0x7fff)), odd), 16);
    _mm_storeu_si128(y, _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
}

/* A canonical f32 NaN narrows to the canonical NaN of either 16-bit type, so only this place tests for
   one. */
static __m256 times(__m256 x, __m256 w)
{
    const __m256 product = _mm256_mul_ps(x, w);
    return _mm256_blendv_ps(product, constant(0x7fc00000u), _mm256_cmp_ps(product, product, _CMP_UNORD_Q));
}

/* Eight at a time; returns how many are done. */
static inline __attribute__((always_inline)) size_t scale(char *y, const char *x, float w, size_t n,
                                                          size_t elem_bytes, __m256i (*load)(const void *),
                                                          void (*store)(void *, __m256))
{
    const __m256 weight = _mm256_set1_ps(w);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store(y + i * elem_bytes, times(_mm256_castsi256_ps(load(x + i * elem_bytes)), weight));
    return i;
}

static void scale_f32_avx2(void *dst, const void *src, float w, size_t n)
{
    const size_t done = scale(dst, src, w, n, 4, load_words, store_f32);
    syi_kernels_scalar.scale_f32((char *)dst + done * 4, (const char *)src + done * 4, w, n - done);
}

static void scale_f16_avx2(void *dst, const void *src, float w, size_t n)
{
    const size_t done = scale(dst, src, w, n, 2, load_f16, store_f16);
    syi_kernels_scalar.scale_f16((char *)dst + done * 2, (const char *)src + done * 2, w, n - done);
}

static void scale_bf16_avx2(void *dst, const void *src, float w, size_t n)
{
    const size_t done = scale(dst, src, w, n, 2, load_bf16, store_bf16);
    syi_kernels_scalar.scale_bf16((char *)dst + done * 2, (const char *)src + done * 2, w, n - done);
}

/* ---- Sums of rows and dot products ------------------------------------------------------------------- */

enum { STRIP = 32 }; /* columns whose sums are in registers during the loop over rows */

static __m256 plus_product(__m256 sum, __m256i x, __m256 y)
{
    return _mm256_add_ps(sum, _mm256_mul_ps(_mm256_castsi256_ps(x), y));
}

static __m256 canonical(__m256 v)
{
    return _mm256_blendv_ps(v, constant(0x7fc00000u), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

struct sums {
    __m256 a, b, c, d;
};

static inline __attribute__((always_inline)) struct sums
plus_row(struct sums s, const char *x, __m256 w, const size_t elem_bytes, __m256i (*load)(const void *))
{
    return (struct sums){plus_product(s.a, load(x), w), plus_product(s.b, load(x + 8 * elem_bytes), w),
                         plus_product(s.c, load(x + 16 * elem_bytes), w),
                         plus_product(s.d, load(x + 24 * elem_bytes), w)};
}

static inline __attribute__((always_inline)) void put(char *y, struct sums s, const size_t elem_bytes,
                                                      void (*store)(void *, __m256))
{
    store(y, canonical(s.a));
    store(y + 8 * elem_bytes, canonical(s.b));
    store(y + 16 * elem_bytes, canonical(s.c));
    store(y + 24 * elem_bytes, canonical(s.d));
}

/* A partial last strip is copied row by row to a buffer of zeros, so that nothing past it is read. */
static inline __attribute__((always_inline)) void sum_rows(char *y, const void *const *rows, const float *w,
                                                           size_t n_rows, size_t n, const size_t elem_bytes,
                                                           __m256i (*load)(const void *),
                                                           void (*store)(void *, __m256))
{
    const __m256 zero = _mm256_setzero_ps();
    const struct sums none = {zero, zero, zero, zero};
    size_t at = 0;
    for (; at + STRIP <= n; at += STRIP) {
        struct sums s = none;
        for (size_t j = 0; j < n_rows; j++) {
            const __m256 weight = _mm256_set1_ps(w != NULL ? w[j] : 1.0f);
            s = plus_row(s, (const char *)rows[j] + at * elem_bytes, weight, elem_bytes, load);
        }
        put(y + at * elem_bytes, s, elem_bytes, store);
    }
    if (at < n) {
        char part[STRIP * 4] = {0};
        struct sums s = none;
        for (size_t j = 0; j < n_rows; j++) {
            memcpy(part, (const char *)rows[j] + at * elem_bytes, (n - at) * elem_bytes);
            s = plus_row(s, part, _mm256_set1_ps(w != NULL ? w[j] : 1.0f), elem_bytes, load);
        }
        put(part, s, elem_bytes, store);
        memcpy(y + at * elem_bytes, part, (n - at) * elem_bytes);
    }
}

static void sum_rows_f32_avx2(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 4, load_words, store_f32);
}

static void sum_rows_f16_avx2(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 2, load_f16, store_f16);
}

static void sum_rows_bf16_avx2(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 2, load_bf16, store_bf16);
}

struct lanes {
    __m256 low, high;
};

static inline __attribute__((always_inline)) struct lanes plus_sixteen(struct lanes sum, const char *x,
                                                                       const char *y, const size_t elem_bytes,
                                                                       __m256i (*load)(const void *))
{
    const size_t upper = 8 * elem_bytes;
    return (struct lanes){plus_product(sum.low, load(x), _mm256_castsi256_ps(load(y))),
                          plus_product(sum.high, load(x + upper), _mm256_castsi256_ps(load(y + upper)))};
}

/* One block of a constant number of rows, at most 4: whole sixteens, then the rest padded with zeros. */
static inline __attribute__((always_inline)) void add_few(float *sum, const char *a, const char *const *rows,
                                                          const size_t n_rows, size_t n,
                                                          const size_t elem_bytes,
                                                          __m256i (*load)(const void *))
{
    struct lanes s[4];
    size_t i = 0;
    for (size_t j = 0; j < n_rows; j++)
        s[j] = (struct lanes){_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (; i + SYI_DOT_LANES <= n; i += SYI_DOT_LANES)
        for (size_t j = 0; j < n_rows; j++)
            s[j] = plus_sixteen(s[j], a + i * elem_bytes, rows[j] + i * elem_bytes, elem_bytes, load);
    for (size_t j = 0; j < n_rows; j++) {
        char p[SYI_DOT_LANES * 4] = {0}, q[SYI_DOT_LANES * 4] = {0};
        float lane[SYI_DOT_LANES];
        if (i < n) {
            memcpy(p, a + i * elem_bytes, (n - i) * elem_bytes);
            memcpy(q, rows[j] + i * elem_bytes, (n - i) * elem_bytes);
            s[j] = plus_sixteen(s[j], p, q, elem_bytes, load);
        }
        _mm256_storeu_ps(lane, s[j].low);
        _mm256_storeu_ps(lane + 8, s[j].high);
        sum[j] += syi_fold_lanes(lane);
    }
}

static inline __attribute__((always_inline)) void add_dots(float *sum, const char *a, const char *const *rows,
                                                           size_t n_rows, size_t n, const size_t elem_bytes,
                                                           __m256i (*load)(const void *))
{
    size_t j = 0;
    for (; j + 4 <= n_rows; j += 4)
        add_few(sum + j, a, rows + j, 4, n, elem_bytes, load);
    for (; j + 2 <= n_rows; j += 2)
        add_few(sum + j, a, rows + j, 2, n, elem_bytes, load);
    if (j < n_rows)
        add_few(sum + j, a, rows + j, 1, n, elem_bytes, load);
}

static void add_dots_f32(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n)
{
    add_dots(sum, a, rows, n_rows, n, 4, load_words);
}

static void dot_rows_f32_avx2(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 4, add_dots_f32);
}

static void add_dots_f16(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n)
{
    add_dots(sum, a, rows, n_rows, n, 2, load_f16);
}

static void dot_rows_f16_avx2(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 2, add_dots_f16);
}

static void add_dots_bf16(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n)
{
    add_dots(sum, a, rows, n_rows, n, 2, load_bf16);
}

static void dot_rows_bf16_avx2(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 2, add_dots_bf16);
}

/* ---- Positions --------------------------------------------------------------------------------------- */

static size_t nonzero_u8_avx2(int32_t *pos, const void *bytes, size_t n)
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

/* ---- Keys -------------------------------------------------------------------------------------------- */

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

/* Eight at a time; returns how many are done. */
static inline __attribute__((always_inline)) size_t keys(uint32_t *key, const char *x, size_t n,
                                                         size_t elem_bytes, __m256i (*load)(const void *),
                                                         struct syi_key_stats *stats)
{
    const __m256i none = _mm256_setzero_si256();
    struct key_lanes lanes = {none, none, none};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_si256((void *)(key + i), keys_of(load(x + i * elem_bytes), &lanes));
    add_lanes(stats, &lanes);
    return i;
}

static void keys_f32_avx2(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    const size_t done = keys(key, x, n, 4, load_words, stats);
    syi_kernels_scalar.keys_f32(key + done, (const char *)x + done * 4, n - done, stats);
}

static void keys_f16_avx2(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    const size_t done = keys(key, x, n, 2, load_f16, stats);
    syi_kernels_scalar.keys_f16(key + done, (const char *)x + done * 2, n - done, stats);
}

static void keys_bf16_avx2(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    const size_t done = keys(key, x, n, 2, load_bf16, stats);
    syi_kernels_scalar.keys_bf16(key + done, (const char *)x + done * 2, n - done, stats);
}

/* ---- exp --------------------------------------------------------------------------------------------- */

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

static void exp_keys_avx2(float *e, const uint32_t *key, size_t n, float m, float inv_t)
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

static uint64_t weigh_f32_avx2(const void *x, size_t n, float m, float inv_t)
{
    const char *in = x;
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 e = exp_of(_mm256_castsi256_ps(load_words(in + i * 4)), m, inv_t);
        low = _mm256_add_epi64(low, weights_over_2_52(_mm256_castps256_ps128(e)));
        high = _mm256_add_epi64(high, weights_over_2_52(_mm256_extractf128_ps(e, 1)));
    }
    return fold_weights(_mm256_add_epi64(low, high), i) +
           syi_kernels_scalar.weigh_f32(in + i * 4, n - i, m, inv_t);
}

/* Whole groups of 128 elements; *done is the number of elements. */
static inline __attribute__((always_inline)) double sum_exp(const char *x, size_t n, float m, float inv_t,
                                                            size_t elem_bytes, __m256i (*load)(const void *),
                                                            size_t *done)
{
    __m256d sum = _mm256_setzero_pd();
    size_t i = 0;
    for (; i + 128 <= n; i += 128) {
        __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
        for (size_t j = 0; j < 128; j += 16) {
            const char *at = x + (i + j) * elem_bytes;
            even = _mm256_add_ps(even, exp_of(_mm256_castsi256_ps(load(at)), m, inv_t));
            odd = _mm256_add_ps(odd, exp_of(_mm256_castsi256_ps(load(at + 8 * elem_bytes)), m, inv_t));
        }
        const __m256 all = _mm256_add_ps(even, odd);
        sum = _mm256_add_pd(sum, _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(all)),
                                               _mm256_cvtps_pd(_mm256_extractf128_ps(all, 1))));
    }
    double lane[4];
    _mm256_storeu_pd(lane, sum);
    *done = i;
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

static double sum_exp_f32_avx2(const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = sum_exp(x, n, m, inv_t, 4, load_words, &done);
    return sum + syi_kernels_scalar.sum_exp_f32((const char *)x + done * 4, n - done, m, inv_t);
}

static double sum_exp_f16_avx2(const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = sum_exp(x, n, m, inv_t, 2, load_f16, &done);
    return sum + syi_kernels_scalar.sum_exp_f16((const char *)x + done * 2, n - done, m, inv_t);
}

static double sum_exp_bf16_avx2(const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = sum_exp(x, n, m, inv_t, 2, load_bf16, &done);
    return sum + syi_kernels_scalar.sum_exp_bf16((const char *)x + done * 2, n - done, m, inv_t);
}

static double fold_pd(__m256d sum)
{
    double lane[4];
    _mm256_storeu_pd(lane, sum);
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

/* Adds in f32 by halves, then in f64. */
static __m256d sum_of_four(const __m256 v[4])
{
    const __m256 all = _mm256_add_ps(_mm256_add_ps(v[0], v[1]), _mm256_add_ps(v[2], v[3]));
    return _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(all)),
                         _mm256_cvtps_pd(_mm256_extractf128_ps(all, 1)));
}

/* e of a row, 32 at a time, and their sum: every 32 in f32, then on in f64. *done is the number of elements. */
static inline __attribute__((always_inline)) double exp_row(float *e, const char *x, size_t n, float m,
                                                            float inv_t, size_t elem_bytes,
                                                            __m256i (*load)(const void *), size_t *done)
{
    __m256d sum = _mm256_setzero_pd();
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m256 v[4];
        for (size_t j = 0; j < 4; j++) {
            v[j] = exp_of(_mm256_castsi256_ps(load(x + (i + 8 * j) * elem_bytes)), m, inv_t);
            _mm256_storeu_ps(e + i + 8 * j, v[j]);
        }
        sum = _mm256_add_pd(sum, sum_of_four(v));
    }
    *done = i;
    return fold_pd(sum);
}

static double exp_row_f32_avx2(float *e, const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = exp_row(e, x, n, m, inv_t, 4, load_words, &done);
    return sum + syi_kernels_scalar.exp_row_f32(e + done, (const char *)x + done * 4, n - done, m, inv_t);
}

static double exp_row_f16_avx2(float *e, const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = exp_row(e, x, n, m, inv_t, 2, load_f16, &done);
    return sum + syi_kernels_scalar.exp_row_f16(e + done, (const char *)x + done * 2, n - done, m, inv_t);
}

static double exp_row_bf16_avx2(float *e, const void *x, size_t n, float m, float inv_t)
{
    size_t done;
    const double sum = exp_row(e, x, n, m, inv_t, 2, load_bf16, &done);
    return sum + syi_kernels_scalar.exp_row_bf16(e + done, (const char *)x + done * 2, n - done, m, inv_t);
}

static size_t split_avx2(int32_t *pos, const float *e, size_t n, float low, float high, double *sum)
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
    double rest;
    const size_t more = syi_kernels_scalar.split(pos + found, e + i, n - i, low, high, &rest);
    for (size_t j = found; j < found + more; j++)
        pos[j] += (int32_t)i;
    *sum = fold_pd(total) + rest;
    return found + more;
}

static uint64_t weigh_e_avx2(const float *e, size_t n, float least)
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

/* ---- Order of raw logits ----------------------------------------------------------------------------- */

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

static inline __attribute__((always_inline)) void block_max(uint16_t *max, uint16_t *low, const char *x,
                                                            size_t n_blocks, size_t block_bytes,
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

static void block_max_16_avx2(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    block_max(max, low, x, n_blocks, SYI_BLOCK_BYTES_16, best_16);
}

static void block_max_32_avx2(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    block_max(max, low, x, n_blocks, SYI_BLOCK_BYTES_32, best_32);
}

static __m256i at_least_16(__m256i v, __m256i least)
{
    return _mm256_cmpeq_epi16(_mm256_max_epu16(v, least), v);
}

static size_t count_ge_u16_avx2(const uint16_t *v, size_t n, uint16_t floor)
{
    const __m256i least = _mm256_set1_epi16((short)floor);
    size_t count = 0, i = 0;
    for (; i + 32 <= n; i += 32) {
        const __m256i low = at_least_16(load_words(v + i), least),
                      high = at_least_16(load_words(v + i + 16), least);
        count += (size_t)__builtin_popcount((uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(low, high)));
    }
    return count + syi_kernels_scalar.count_ge_u16(v + i, n - i, floor);
}

static __m256i ge_16(const char *x, __m256i least)
{
    const __m256i bits = load_words(x);
    const __m256i flip = _mm256_or_si256(_mm256_srai_epi16(bits, 15), _mm256_set1_epi16((short)0x8000u));
    return at_least_16(_mm256_xor_si256(bits, flip), least);
}

/* One bit for each element of a block. Packing works within halves: 0xd8 swaps the middle quarters back. */
static uint64_t reach_16_avx2(const void *block, uint16_t floor)
{
    const char *x = block;
    const __m256i least = _mm256_set1_epi16((short)floor);
    const __m256i low = _mm256_packs_epi16(ge_16(x, least), ge_16(x + 32, least));
    const __m256i high = _mm256_packs_epi16(ge_16(x + 64, least), ge_16(x + 96, least));
    const uint32_t first = (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(low, 0xd8));
    const uint32_t second = (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(high, 0xd8));
    return first | (uint64_t)second << 32;
}

/* A whole word is at least the floor with zeros below it exactly when its upper half is at least the
   floor. */
static uint64_t reach_32_avx2(const void *block, uint16_t floor)
{
    const char *x = block;
    const __m256i least = words((uint32_t)floor << 16);
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
    .copy_fan = copy_fan_avx2,
    .copy_rows = copy_rows_avx2,
    .scale_f32 = scale_f32_avx2,
    .scale_f16 = scale_f16_avx2,
    .scale_bf16 = scale_bf16_avx2,
    .decode = syi_decode_avx2,
    .encoders = &syi_encoders_avx2,
    .sum_rows_f32 = sum_rows_f32_avx2,
    .sum_rows_f16 = sum_rows_f16_avx2,
    .sum_rows_bf16 = sum_rows_bf16_avx2,
    .dot_rows_f32 = dot_rows_f32_avx2,
    .dot_rows_f16 = dot_rows_f16_avx2,
    .dot_rows_bf16 = dot_rows_bf16_avx2,
    .nonzero_u8 = nonzero_u8_avx2,
    .keys_f32 = keys_f32_avx2,
    .keys_f16 = keys_f16_avx2,
    .keys_bf16 = keys_bf16_avx2,
    .exp_keys = exp_keys_avx2,
    .weigh_f32 = weigh_f32_avx2,
    .sum_exp_f32 = sum_exp_f32_avx2,
    .sum_exp_f16 = sum_exp_f16_avx2,
    .sum_exp_bf16 = sum_exp_bf16_avx2,
    .exp_row_f32 = exp_row_f32_avx2,
    .exp_row_f16 = exp_row_f16_avx2,
    .exp_row_bf16 = exp_row_bf16_avx2,
    .split = split_avx2,
    .weigh_e = weigh_e_avx2,
    .block_max_16 = block_max_16_avx2,
    .block_max_32 = block_max_32_avx2,
    .count_ge_u16 = count_ge_u16_avx2,
    .reach_16 = reach_16_avx2,
    .reach_32 = reach_32_avx2,
};
