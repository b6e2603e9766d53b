/*
 * x86-64 with AVX-512 F, BW, DQ and VL. The same bits as scalar.c: the same operation per element in the same
 * order, fused only where scalar.c calls fmaf. Tails are masked: a masked-off lane is neither read nor
 * written.
 */
#include "kernels/kernels.h"

#include <immintrin.h>

/* The first `left` lanes; all of them when there are more elements than lanes. */
static __mmask16 first_16(size_t left)
{
    return (__mmask16)(left < 16 ? (1u << left) - 1 : 0xffffu);
}

static __mmask32 first_32(size_t left)
{
    return left < 32 ? (1u << left) - 1 : 0xffffffffu;
}

static __mmask64 first_64(size_t left)
{
    return left < 64 ? (UINT64_C(1) << left) - 1 : ~UINT64_C(0);
}

/* ---- Copies ------------------------------------------------------------------------------------------ */

/* Stores are in ascending order: only then does a core combine and stream whole lines. */
#define KEEP_ORDER() __asm__ volatile("" : : : "memory")

static inline void put(char *to, __m512i v)
{
    _mm512_storeu_si512(to, v);
    KEEP_ORDER();
}

static void copy_fan_avx512(void *const *dst, size_t n, const void *row, size_t bytes)
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

static void copy_rows_avx512(void *const *dst, const void *const *src, size_t n, size_t bytes)
{
    const size_t most = syi_abreast(bytes);
    for (size_t done = 0; done < n; done += most) {
        const size_t left = n - done, group = left < most ? left : most;
        syi_fetch_rows(src + done, left, group, bytes);
        copy_abreast(dst + done, src + done, group, bytes);
    }
}

/* ---- Sixteen elements, widened to words -------------------------------------------------------------- */

static __m512i words(uint32_t bits)
{
    return _mm512_set1_epi32((int)bits);
}

static __m512 constant(uint32_t bits)
{
    return _mm512_castsi512_ps(words(bits));
}

/* Masked-off lanes are minus infinity, which changes no maximum, sets no flag and has the weight 0. */
static __m512i load_f32(const void *x, __mmask16 live)
{
    return _mm512_mask_loadu_epi32(words(0xff800000u), live, x);
}

static __m512i load_f16(const void *x, __mmask16 live)
{
    const __m256i half = _mm256_mask_loadu_epi16(_mm256_set1_epi16((short)0xfc00u), live, x);
    return _mm512_castps_si512(_mm512_cvtph_ps(half));
}

static __m512i load_bf16(const void *x, __mmask16 live)
{
    const __m256i half = _mm256_mask_loadu_epi16(_mm256_set1_epi16((short)0xff80u), live, x);
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

static void store_f32(void *y, __mmask16 live, __m512 v)
{
    _mm512_mask_storeu_ps(y, live, v);
}

static void store_f16(void *y, __mmask16 live, __m512 v)
{
    const __m256i half = _mm512_maskz_cvtps_ph(live, v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(y, live, half);
}

static void store_bf16(void *y, __mmask16 live, __m512 v)
{
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), words(1));
    const __m512i upper = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, words(0x7fff)), odd), 16);
    _mm256_mask_storeu_epi16(y, live, _mm512_cvtepi32_epi16(upper));
}

/* ---- Scaling ----------------------------------------------------------------------------------------- */

/* A canonical f32 NaN narrows to the canonical NaN of either 16-bit type, so only this place tests for
   one. */
static __m512 times(__m512 x, __m512 w)
{
    const __m512 product = _mm512_mul_ps(x, w);
    return _mm512_mask_mov_ps(product, _mm512_cmp_ps_mask(product, product, _CMP_UNORD_Q),
                              constant(0x7fc00000u));
}

static inline __attribute__((always_inline)) void scale(char *y, const char *x, float w, size_t n,
                                                        size_t elem_bytes,
                                                        __m512i (*load)(const void *, __mmask16),
                                                        void (*store)(void *, __mmask16, __m512))
{
    const __m512 weight = _mm512_set1_ps(w);
    const size_t whole = n - n % 16;
    for (size_t i = 0; i < whole; i += 16)
        store(y + i * elem_bytes, 0xffff,
              times(_mm512_castsi512_ps(load(x + i * elem_bytes, 0xffff)), weight));
    if (whole < n) {
        const __mmask16 live = first_16(n - whole);
        const __m512 v = _mm512_castsi512_ps(load(x + whole * elem_bytes, live));
        store(y + whole * elem_bytes, live, times(v, weight));
    }
}

static void scale_f32_avx512(void *dst, const void *src, float w, size_t n)
{
    scale(dst, src, w, n, 4, load_f32, store_f32);
}

static void scale_f16_avx512(void *dst, const void *src, float w, size_t n)
{
    scale(dst, src, w, n, 2, load_f16, store_f16);
}

static void scale_bf16_avx512(void *dst, const void *src, float w, size_t n)
{
    scale(dst, src, w, n, 2, load_bf16, store_bf16);
}

/* ---- Sums of rows and dot products ------------------------------------------------------------------- */

enum { STRIP = 64 }; /* columns whose sums are in registers during the loop over rows */

static __m512 plus_product(__m512 sum, __m512i x, __m512 y)
{
    return _mm512_add_ps(sum, _mm512_mul_ps(_mm512_castsi512_ps(x), y));
}

static __m512 canonical(__m512 v)
{
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), constant(0x7fc00000u));
}

/* One whole strip of all rows. */
static inline __attribute__((always_inline)) void sum_strip(char *y, const void *const *rows, const float *w,
                                                            size_t n_rows, size_t from_byte,
                                                            const size_t elem_bytes,
                                                            __m512i (*load)(const void *, __mmask16),
                                                            void (*store)(void *, __mmask16, __m512))
{
    const size_t step = 16 * elem_bytes;
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    for (size_t j = 0; j < n_rows; j++) {
        const char *x = (const char *)rows[j] + from_byte;
        const __m512 weight = _mm512_set1_ps(w != NULL ? w[j] : 1.0f);
        a = plus_product(a, load(x, 0xffff), weight);
        b = plus_product(b, load(x + step, 0xffff), weight);
        c = plus_product(c, load(x + 2 * step, 0xffff), weight);
        d = plus_product(d, load(x + 3 * step, 0xffff), weight);
    }
    store(y, 0xffff, canonical(a));
    store(y + step, 0xffff, canonical(b));
    store(y + 2 * step, 0xffff, canonical(c));
    store(y + 3 * step, 0xffff, canonical(d));
}

static inline __attribute__((always_inline)) void sum_rows(char *y, const void *const *rows, const float *w,
                                                           size_t n_rows, size_t n, const size_t elem_bytes,
                                                           __m512i (*load)(const void *, __mmask16),
                                                           void (*store)(void *, __mmask16, __m512))
{
    size_t at = 0;
    for (; at + STRIP <= n; at += STRIP)
        sum_strip(y + at * elem_bytes, rows, w, n_rows, at * elem_bytes, elem_bytes, load, store);
    for (; at < n; at += 16) { /* masked-off lanes are undefined and not stored */
        const __mmask16 live = first_16(n - at);
        __m512 sum = _mm512_setzero_ps();
        for (size_t j = 0; j < n_rows; j++)
            sum = plus_product(sum, load((const char *)rows[j] + at * elem_bytes, live),
                               _mm512_set1_ps(w != NULL ? w[j] : 1.0f));
        store(y + at * elem_bytes, live, canonical(sum));
    }
}

static void sum_rows_f32_avx512(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 4, load_f32, store_f32);
}

static void sum_rows_f16_avx512(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 2, load_f16, store_f16);
}

static void sum_rows_bf16_avx512(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 2, load_bf16, store_bf16);
}

/* One block of a constant number of rows, at most 4. In the last sixteen a masked-off lane keeps its sum. */
static inline __attribute__((always_inline)) void add_few(float *sum, const char *a, const char *const *rows,
                                                          const size_t n_rows, size_t n,
                                                          const size_t elem_bytes,
                                                          __m512i (*load)(const void *, __mmask16))
{
    const size_t whole = n - n % SYI_DOT_LANES;
    __m512 s[4];
    for (size_t j = 0; j < n_rows; j++)
        s[j] = _mm512_setzero_ps();
    for (size_t i = 0; i < whole; i += SYI_DOT_LANES)
        for (size_t j = 0; j < n_rows; j++)
            s[j] = plus_product(s[j], load(a + i * elem_bytes, 0xffff),
                                _mm512_castsi512_ps(load(rows[j] + i * elem_bytes, 0xffff)));
    for (size_t j = 0; j < n_rows; j++) {
        float lane[SYI_DOT_LANES];
        if (whole < n) {
            const __mmask16 live = first_16(n - whole);
            const __m512i p = load(a + whole * elem_bytes, live),
                          q = load(rows[j] + whole * elem_bytes, live);
            s[j] = _mm512_mask_add_ps(s[j], live, s[j],
                                      _mm512_mul_ps(_mm512_castsi512_ps(p), _mm512_castsi512_ps(q)));
        }
        _mm512_storeu_ps(lane, s[j]);
        sum[j] += syi_fold_lanes(lane);
    }
}

static inline __attribute__((always_inline)) void add_dots(float *sum, const char *a, const char *const *rows,
                                                           size_t n_rows, size_t n, const size_t elem_bytes,
                                                           __m512i (*load)(const void *, __mmask16))
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
    add_dots(sum, a, rows, n_rows, n, 4, load_f32);
}

static void dot_rows_f32_avx512(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 4, add_dots_f32);
}

static void add_dots_f16(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n)
{
    add_dots(sum, a, rows, n_rows, n, 2, load_f16);
}

static void dot_rows_f16_avx512(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 2, add_dots_f16);
}

static void add_dots_bf16(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n)
{
    add_dots(sum, a, rows, n_rows, n, 2, load_bf16);
}

static void dot_rows_bf16_avx512(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n)
{
    syi_dot_blocks(dst, a, rows, n_rows, n, 2, add_dots_bf16);
}

/* ---- Positions --------------------------------------------------------------------------------------- */

static size_t nonzero_u8_avx512(int32_t *pos, const void *bytes, size_t n)
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

/* ---- Keys -------------------------------------------------------------------------------------------- */

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

static inline __attribute__((always_inline)) void keys(uint32_t *key, const char *x, size_t n,
                                                       size_t elem_bytes,
                                                       __m512i (*load)(const void *, __mmask16),
                                                       struct syi_key_stats *stats)
{
    struct key_lanes lanes = {_mm512_setzero_si512(), 0, 0};
    const size_t whole = n - n % 16;
    for (size_t i = 0; i < whole; i += 16)
        _mm512_storeu_si512(key + i, keys_of(load(x + i * elem_bytes, 0xffff), &lanes));
    if (whole < n) {
        const __mmask16 live = first_16(n - whole);
        _mm512_mask_storeu_epi32(key + whole, live, keys_of(load(x + whole * elem_bytes, live), &lanes));
    }
    add_lanes(stats, &lanes);
}

static void keys_f32_avx512(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    keys(key, x, n, 4, load_f32, stats);
}

static void keys_f16_avx512(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    keys(key, x, n, 2, load_f16, stats);
}

static void keys_bf16_avx512(uint32_t *key, const void *x, size_t n, struct syi_key_stats *stats)
{
    keys(key, x, n, 2, load_bf16, stats);
}

/* ---- exp --------------------------------------------------------------------------------------------- */

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

static void exp_keys_avx512(float *e, const uint32_t *key, size_t n, float m, float inv_t)
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

static uint64_t weigh_f32_avx512(const void *x, size_t n, float m, float inv_t)
{
    const char *in = x;
    const size_t whole = n - n % 16;
    __m512i sum = _mm512_setzero_si512();
    for (size_t i = 0; i < whole; i += 16)
        sum = _mm512_add_epi64(sum, weights_of(exp_of(_mm512_loadu_ps(in + i * 4), m, inv_t)));
    if (whole < n) {
        const __m512 tail = _mm512_castsi512_ps(load_f32(in + whole * 4, first_16(n - whole)));
        sum = _mm512_add_epi64(sum, weights_of(exp_of(tail, m, inv_t)));
    }
    uint64_t lane[8], total = 0;
    _mm512_storeu_si512(lane, sum);
    for (int i = 0; i < 8; i++)
        total += lane[i];
    return total;
}

static inline __attribute__((always_inline)) double sum_exp(const char *x, size_t n, float m, float inv_t,
                                                            size_t elem_bytes,
                                                            __m512i (*load)(const void *, __mmask16))
{
    __m512d sum = _mm512_setzero_pd();
    for (size_t i = 0; i < n;) {
        const size_t stop = n - i < 256 ? n : i + 256; /* sixteen vectors in f32, the rest in f64 */
        __m512 part = _mm512_setzero_ps();
        for (; i < stop; i += 16) {
            const __m512i v = load(x + i * elem_bytes, stop - i < 16 ? first_16(stop - i) : 0xffff);
            part = _mm512_add_ps(part, exp_of(_mm512_castsi512_ps(v), m, inv_t));
        }
        sum = _mm512_add_pd(sum, _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(part)),
                                               _mm512_cvtps_pd(_mm512_extractf32x8_ps(part, 1))));
    }
    return _mm512_reduce_add_pd(sum);
}

static double sum_exp_f32_avx512(const void *x, size_t n, float m, float inv_t)
{
    return sum_exp(x, n, m, inv_t, 4, load_f32);
}

static double sum_exp_f16_avx512(const void *x, size_t n, float m, float inv_t)
{
    return sum_exp(x, n, m, inv_t, 2, load_f16);
}

static double sum_exp_bf16_avx512(const void *x, size_t n, float m, float inv_t)
{
    return sum_exp(x, n, m, inv_t, 2, load_bf16);
}

static __m512d widen_sum(__m512 part)
{
    return _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(part)),
                         _mm512_cvtps_pd(_mm512_extractf32x8_ps(part, 1)));
}

static inline __attribute__((always_inline)) double exp_row(float *e, const char *x, size_t n, float m,
                                                            float inv_t, size_t elem_bytes,
                                                            __m512i (*load)(const void *, __mmask16))
{
    __m512d sum = _mm512_setzero_pd();
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 live = n - i < 16 ? first_16(n - i) : 0xffff;
        const __m512 v = _mm512_castsi512_ps(load(x + i * elem_bytes, live));
        const __m512 all = _mm512_maskz_mov_ps(live, exp_of(v, m, inv_t));
        _mm512_mask_storeu_ps(e + i, live, all);
        sum = _mm512_add_pd(sum, widen_sum(all));
    }
    return _mm512_reduce_add_pd(sum);
}

static double exp_row_f32_avx512(float *e, const void *x, size_t n, float m, float inv_t)
{
    return exp_row(e, x, n, m, inv_t, 4, load_f32);
}

static double exp_row_f16_avx512(float *e, const void *x, size_t n, float m, float inv_t)
{
    return exp_row(e, x, n, m, inv_t, 2, load_f16);
}

static double exp_row_bf16_avx512(float *e, const void *x, size_t n, float m, float inv_t)
{
    return exp_row(e, x, n, m, inv_t, 2, load_bf16);
}

static size_t split_avx512(int32_t *pos, const float *e, size_t n, float low, float high, double *sum)
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
    double rest;
    const size_t more = syi_kernels_scalar.split(pos + found, e + i, n - i, low, high, &rest);
    for (size_t j = found; j < found + more; j++)
        pos[j] += (int32_t)i;
    *sum = _mm512_reduce_add_pd(total) + rest;
    return found + more;
}

static uint64_t weigh_e_avx512(const float *e, size_t n, float least)
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

static inline __attribute__((always_inline)) void block_max(uint16_t *max, uint16_t *low, const char *x,
                                                            size_t n_blocks, size_t block_bytes,
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

static void block_max_16_avx512(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    block_max(max, low, x, n_blocks, SYI_BLOCK_BYTES_16, best_16);
}

static void block_max_32_avx512(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks)
{
    block_max(max, low, x, n_blocks, SYI_BLOCK_BYTES_32, best_32);
}

static size_t count_ge_u16_avx512(const uint16_t *v, size_t n, uint16_t floor)
{
    const __m512i least = _mm512_set1_epi16((short)floor);
    const size_t whole = n - n % 32;
    size_t count = 0;
    for (size_t i = 0; i < whole; i += 32)
        count += (size_t)__builtin_popcount(_mm512_cmpge_epu16_mask(_mm512_loadu_si512(v + i), least));
    const __mmask32 live = first_32(n - whole);
    const __m512i tail = _mm512_maskz_loadu_epi16(live, v + whole);
    return count + (size_t)__builtin_popcount(_mm512_mask_cmpge_epu16_mask(live, tail, least));
}

static uint64_t reach_16_avx512(const void *x, uint16_t floor)
{
    const char *in = x;
    const __m512i least = _mm512_set1_epi16((short)floor), top = _mm512_set1_epi16((short)0x8000u);
    uint64_t hits = 0;
    for (size_t i = 0; i < SYI_BLOCK; i += 32) {
        const __m512i bits = _mm512_loadu_si512(in + i * 2);
        const __m512i order = _mm512_xor_si512(bits, _mm512_or_si512(_mm512_srai_epi16(bits, 15), top));
        hits |= (uint64_t)_mm512_cmpge_epu16_mask(order, least) << i;
    }
    return hits;
}

/* A whole word is at least the floor with zeros below it exactly when its upper half is at least the
   floor. */
static uint64_t reach_32_avx512(const void *x, uint16_t floor)
{
    const char *in = x;
    const __m512i least = words((uint32_t)floor << 16), top = words(0x80000000u);
    uint64_t hits = 0;
    for (size_t i = 0; i < SYI_BLOCK; i += 16) {
        const __m512i bits = _mm512_loadu_si512(in + i * 4);
        const __m512i order = _mm512_xor_si512(bits, _mm512_or_si512(_mm512_srai_epi32(bits, 31), top));
        hits |= (uint64_t)_mm512_cmpge_epu32_mask(order, least) << i;
    }
    return hits;
}

const struct syi_kernels syi_kernels_avx512 = {
    .name = "avx512",
    .needs = SYI_CPU_AVX512 | SYI_CPU_AVX2,
    .copy_fan = copy_fan_avx512,
    .copy_rows = copy_rows_avx512,
    .scale_f32 = scale_f32_avx512,
    .scale_f16 = scale_f16_avx512,
    .scale_bf16 = scale_bf16_avx512,
    .decode = syi_decode_avx512,
    .encoders = &syi_encoders_avx512,
    .sum_rows_f32 = sum_rows_f32_avx512,
    .sum_rows_f16 = sum_rows_f16_avx512,
    .sum_rows_bf16 = sum_rows_bf16_avx512,
    .dot_rows_f32 = dot_rows_f32_avx512,
    .dot_rows_f16 = dot_rows_f16_avx512,
    .dot_rows_bf16 = dot_rows_bf16_avx512,
    .nonzero_u8 = nonzero_u8_avx512,
    .keys_f32 = keys_f32_avx512,
    .keys_f16 = keys_f16_avx512,
    .keys_bf16 = keys_bf16_avx512,
    .exp_keys = exp_keys_avx512,
    .weigh_f32 = weigh_f32_avx512,
    .sum_exp_f32 = sum_exp_f32_avx512,
    .sum_exp_f16 = sum_exp_f16_avx512,
    .sum_exp_bf16 = sum_exp_bf16_avx512,
    .exp_row_f32 = exp_row_f32_avx512,
    .exp_row_f16 = exp_row_f16_avx512,
    .exp_row_bf16 = exp_row_bf16_avx512,
    .split = split_avx512,
    .weigh_e = weigh_e_avx512,
    .block_max_16 = block_max_16_avx512,
    .block_max_32 = block_max_32_avx512,
    .count_ge_u16 = count_ge_u16_avx512,
    .reach_16 = reach_16_avx512,
    .reach_32 = reach_32_avx512,
};
