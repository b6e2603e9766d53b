/*
 * Shared by the NEON files. Both tables are in neon.c; neon_rows.c has their sums of rows and dot products,
 * neon_scan.c the scan over raw logits, and neon_bf16.c the functions that are built with their own flags.
 */
#pragma once

#include "kernels/typed.h"

#include <arm_neon.h>

/*
 * 128 bytes in eight registers, loaded and stored in order. The instructions are written out because the core
 * streams whole lines only when stores are in ascending order; a compiler that interleaved the stores of a
 * fan-out made it 1.7 times slower.
 */
struct bytes_128 {
    uint8x16_t a, b, c, d, e, f, g, h;
};

SYI_INLINE struct bytes_128 load_128(const void *from)
{
    struct bytes_128 v;
    __asm__ volatile("ldp %q0, %q1, [%8]\n\tldp %q2, %q3, [%8, #32]\n\t"
                     "ldp %q4, %q5, [%8, #64]\n\tldp %q6, %q7, [%8, #96]"
                     : "=&w"(v.a), "=&w"(v.b), "=&w"(v.c), "=&w"(v.d), "=&w"(v.e), "=&w"(v.f), "=&w"(v.g),
                       "=&w"(v.h)
                     : "r"(from)
                     : "memory");
    return v;
}

SYI_INLINE void store_128(void *to, struct bytes_128 v)
{
    __asm__ volatile("stp %q0, %q1, [%8]\n\tstp %q2, %q3, [%8, #32]\n\t"
                     "stp %q4, %q5, [%8, #64]\n\tstp %q6, %q7, [%8, #96]"
                     :
                     : "w"(v.a), "w"(v.b), "w"(v.c), "w"(v.d), "w"(v.e), "w"(v.f), "w"(v.g), "w"(v.h), "r"(to)
                     : "memory");
}

/* Scales whole vectors; returns how many bytes that were. */
SYI_INLINE size_t scale_bytes(uint8_t *y, const uint8_t *x, float w, size_t bytes,
                              uint8x16_t (*times)(uint8x16_t, float))
{
    size_t at = 0;
    for (; at + 128 <= bytes; at += 128) {
        const struct bytes_128 v = load_128(x + at);
        store_128(y + at, (struct bytes_128){times(v.a, w), times(v.b, w), times(v.c, w), times(v.d, w),
                                             times(v.e, w), times(v.f, w), times(v.g, w), times(v.h, w)});
    }
    for (; at + 16 <= bytes; at += 16)
        vst1q_u8(y + at, times(vld1q_u8(x + at), w));
    return at;
}

/*
 * Sums of rows: 32 columns are in registers during the loop over rows. add_8 adds eight columns of row j, put_8 rounds
 * and stores them; the two functions define the layout of the pair of registers.
 */
struct sums {
    float32x4_t a, b, c, d, e, f, g, h;
};
typedef void add_8_fn(float32x4_t *p, float32x4_t *q, const uint8_t *x, const float *w, size_t j);
typedef void put_8_fn(uint8_t *y, float32x4_t p, float32x4_t q);

SYI_INLINE void add_32(struct sums *s, const uint8_t *x, const float *w, size_t j, const size_t step,
                       add_8_fn *add_8)
{
    add_8(&s->a, &s->b, x, w, j);
    add_8(&s->c, &s->d, x + step, w, j);
    add_8(&s->e, &s->f, x + 2 * step, w, j);
    add_8(&s->g, &s->h, x + 3 * step, w, j);
}

SYI_INLINE void put_32(uint8_t *y, const struct sums *s, const size_t step, put_8_fn *put_8)
{
    put_8(y, s->a, s->b);
    put_8(y + step, s->c, s->d);
    put_8(y + 2 * step, s->e, s->f);
    put_8(y + 3 * step, s->g, s->h);
}

/*
 * One or two rows are prefetched AHEAD bytes before they are read: for so few streams the core's own prefetch is too
 * late. For four rows and more this costs more than it gains.
 */
enum { AHEAD = 1024, LINE = 64 };

SYI_INLINE void fetch_ahead(const void *row, size_t at, size_t n_bytes, size_t row_bytes)
{
    for (size_t line = AHEAD; line < AHEAD + n_bytes && at + line < row_bytes; line += LINE)
        __builtin_prefetch((const char *)row + at + line, 0, 3);
}

/* The last columns are copied row by row to a buffer of zeros, so that nothing past them is read. */
SYI_INLINE void sum_any(uint8_t *y, const void *const *rows, const float *w, size_t n_rows, size_t n,
                        const size_t elem_bytes, add_8_fn *add_8, put_8_fn *put_8, const bool few)
{
    const float32x4_t zero = vdupq_n_f32(0.0f);
    const struct sums none = {zero, zero, zero, zero, zero, zero, zero, zero};
    const size_t bytes = n * elem_bytes, step = 8 * elem_bytes;
    size_t at = 0;
    for (; at + 4 * step <= bytes; at += 4 * step) {
        struct sums s = none;
        for (size_t j = 0; few && j < n_rows; j++)
            fetch_ahead(rows[j], at, 4 * step, bytes);
        for (size_t j = 0; j < n_rows; j++)
            add_32(&s, (const uint8_t *)rows[j] + at, w, j, step, add_8);
        put_32(y + at, &s, step, put_8);
    }
    if (at < bytes) {
        uint8_t part[32 * 4] = {0};
        struct sums s = none;
        for (size_t j = 0; j < n_rows; j++) {
            memcpy(part, (const uint8_t *)rows[j] + at, bytes - at);
            add_32(&s, part, w, j, step, add_8);
        }
        put_32(part, &s, step, put_8);
        memcpy(y + at, part, bytes - at);
    }
}

static inline float32x4_t plus(float32x4_t sum, float32x4_t x, const float *w, size_t j)
{
    return vaddq_f32(sum, w != NULL ? vmulq_n_f32(x, w[j]) : x);
}

/* Even and odd columns apart: a shift and a mask widen them, on more pipes than two widening shifts. */
static inline void add_8_bf16(float32x4_t *even, float32x4_t *odd, const uint8_t *x, const float *w, size_t j)
{
    const uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(x));
    *even = plus(*even, vreinterpretq_f32_u32(vshlq_n_u32(v, 16)), w, j);
    *odd = plus(*odd, vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u))), w, j);
}

/* Adds one to an upper half where the lower half is above the middle, or equal to it with an odd upper half. */
static inline uint16x8_t round_halves_bf16(uint16x8_t upper, uint16x8_t lower)
{
    const uint16x8_t tie_up = vandq_u16(upper, vdupq_n_u16(1));
    return vsubq_u16(upper, vcgtq_u16(vqaddq_u16(lower, tie_up), vdupq_n_u16(0x8000)));
}

static inline void round_8_bf16(uint8_t *y, float32x4_t even, float32x4_t odd)
{
    const uint16x8_t p = vreinterpretq_u16_f32(even), q = vreinterpretq_u16_f32(odd);
    vst1q_u8(y, vreinterpretq_u8_u16(round_halves_bf16(vtrn2q_u16(p, q), vtrn1q_u16(p, q))));
}

/* A constant number of rows whose addresses and weights no store can change, so that they are kept in registers. */
SYI_INLINE void sum_few(uint8_t *y, const void *const *rows, const float *w, const size_t n_rows, size_t n,
                        const size_t elem_bytes, add_8_fn *add_8, put_8_fn *put_8)
{
    const void *own[8] = {0};
    float weights[8] = {0};
    for (size_t j = 0; j < n_rows; j++) {
        own[j] = rows[j];
        weights[j] = w != NULL ? w[j] : 1.0f;
    }
    sum_any(y, own, weights, n_rows, n, elem_bytes, add_8, put_8, n_rows <= 2);
}

/* Sums of rows, by a separate function for each usual number of them: gcc runs out of registers in one function with
   several loops. */
#define SUM_FEW(name, n_rows, elem_bytes, add_8, put_8) \
    static __attribute__((noinline)) void name##_##n_rows(uint8_t *y, const void *const *rows, \
                                                          const float *w, size_t n) \
    { \
        sum_few(y, rows, w, n_rows, n, elem_bytes, add_8, put_8); \
    }
#define SUM_ROWS(linkage, name, elem_bytes, add_8, put_8) \
    SUM_FEW(name, 1, elem_bytes, add_8, put_8) \
    SUM_FEW(name, 2, elem_bytes, add_8, put_8) \
    SUM_FEW(name, 3, elem_bytes, add_8, put_8) \
    SUM_FEW(name, 4, elem_bytes, add_8, put_8) \
    SUM_FEW(name, 6, elem_bytes, add_8, put_8) \
    SUM_FEW(name, 8, elem_bytes, add_8, put_8) \
    linkage void name(void *y, const void *const *rows, const float *w, size_t n_rows, size_t n) \
    { \
        static void (*const few[])(uint8_t *, const void *const *, const float *, size_t) = { \
            NULL, name##_1, name##_2, name##_3, name##_4, NULL, name##_6, NULL, name##_8}; \
        if (n_rows < sizeof few / sizeof *few && few[n_rows] != NULL) \
            few[n_rows](y, rows, w, n); \
        else \
            sum_any(y, rows, w, n_rows, n, elem_bytes, add_8, put_8, false); \
    }

/* Sums of a dot product; add_16 adds sixteen products. */
struct lanes {
    float32x4_t a, b, c, d;
};
typedef struct lanes add_16_fn(struct lanes sum, const uint8_t *x, const uint8_t *y);

static inline float fold_lanes(struct lanes sum)
{
    float lane[SYI_DOT_LANES];
    vst1q_f32(lane, sum.a);
    vst1q_f32(lane + 4, sum.b);
    vst1q_f32(lane + 8, sum.c);
    vst1q_f32(lane + 12, sum.d);
    return syi_fold_lanes(lane);
}

/* Bytes [at, end) of a constant number of rows, at most 4, with prefetch if there are no others. */
SYI_INLINE void add_piece(struct lanes *sum, const char *a, const char *const *rows, const size_t n_rows,
                          size_t at, size_t end, const size_t step, add_16_fn *add_16, const bool few)
{
    const uint8_t *x = (const uint8_t *)a, *y[4];
    struct lanes s[4];
    for (size_t j = 0; j < n_rows; j++) {
        s[j] = sum[j];
        y[j] = (const uint8_t *)rows[j];
    }
    for (; at < end; at += step) {
        for (size_t j = 0; few && at % LINE == 0 && j < n_rows; j++)
            fetch_ahead(y[j], at, step, end);
        for (size_t j = 0; j < n_rows; j++) {
            const uint8_t *z = y[j] + at;
            if (j > 0) /* one row after the other: a compiler that loads all first runs out of registers */
                __asm__("" : "+r"(z) : "w"(s[j - 1].a));
            s[j] = add_16(s[j], x + at, z);
        }
    }
    for (size_t j = 0; j < n_rows; j++)
        sum[j] = s[j];
}

enum { PIECE = 256 };

/* One block: whole sixteens, then the rest padded with zeros. More than two rows advance together, PIECE bytes at a
   time, so that more of their misses overlap; the lanes of all do not fit into the registers. */
SYI_INLINE void add_dots(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n,
                         const size_t elem_bytes, add_16_fn *add_16, float (*fold)(struct lanes))
{
    const float32x4_t zero = vdupq_n_f32(0.0f);
    const size_t step = SYI_DOT_LANES * elem_bytes, rest = n % SYI_DOT_LANES * elem_bytes;
    const size_t whole = n * elem_bytes - rest;
    struct lanes s[SYI_DOT_ROWS];
    for (size_t j = 0; j < n_rows; j++)
        s[j] = (struct lanes){zero, zero, zero, zero};
    if (n_rows == 1)
        add_piece(s, a, rows, 1, 0, whole, step, add_16, true);
    else if (n_rows == 2)
        add_piece(s, a, rows, 2, 0, whole, step, add_16, true);
    for (size_t at = 0; at < whole && n_rows > 2; at += PIECE) {
        const size_t end = whole - at < PIECE ? whole : at + PIECE;
        size_t j = 0;
        for (; j + 4 <= n_rows; j += 4)
            add_piece(s + j, a, rows + j, 4, at, end, step, add_16, false);
        for (; j + 2 <= n_rows; j += 2)
            add_piece(s + j, a, rows + j, 2, at, end, step, add_16, false);
        if (j < n_rows)
            add_piece(s + j, a, rows + j, 1, at, end, step, add_16, false);
    }
    for (size_t j = 0; j < n_rows; j++) {
        uint8_t p[SYI_DOT_LANES * 4] = {0}, q[SYI_DOT_LANES * 4] = {0};
        if (rest > 0) {
            memcpy(p, a + whole, rest);
            memcpy(q, rows[j] + whole, rest);
            s[j] = add_16(s[j], p, q);
        }
        sum[j] += fold(s[j]);
    }
}

#define DOT_ROWS(name, elem_bytes, add_16, fold) \
    static void add_##name(float *sum, const char *a, const char *const *rows, size_t n_rows, size_t n) \
    { \
        add_dots(sum, a, rows, n_rows, n, elem_bytes, add_16, fold); \
    } \
    void name(float *dst, const void *a, const void *const *rows, size_t n_rows, size_t n) \
    { \
        syi_dot_blocks(dst, a, rows, n_rows, n, elem_bytes, add_##name); \
    }

/* One bit per byte of 64, set where the mask vectors are 0xff. */
static inline uint64_t bits_of(const uint8x16_t mask[4])
{
    static const uint8_t weight[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bit = vld1q_u8(weight);
    const uint8x16_t low = vpaddq_u8(vandq_u8(mask[0], bit), vandq_u8(mask[1], bit));
    const uint8x16_t high = vpaddq_u8(vandq_u8(mask[2], bit), vandq_u8(mask[3], bit));
    const uint8x16_t all = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(all, all)), 0);
}

syi_sum_rows_fn syi_sum_rows_f32_neon, syi_sum_rows_f16_neon, syi_sum_rows_bf16_neon;
syi_dot_rows_fn syi_dot_rows_f32_neon, syi_dot_rows_f16_neon, syi_dot_rows_bf16_neon;
syi_dot_rows_fn syi_dot_rows_f16_neon_bf16;
syi_sum_rows_fn syi_sum_rows_f16_neon_bf16, syi_sum_rows_bf16_neon_bf16;
syi_scale_fn syi_scale_f16_neon_bf16, syi_scale_bf16_neon_bf16;

/* Kernels of neon_scan.c. */
void syi_block_max_16_neon(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks);
void syi_block_max_32_neon(uint16_t *max, uint16_t *low, const void *x, size_t n_blocks);
size_t syi_count_ge_u16_neon(const uint16_t *v, size_t n, uint16_t threshold);
uint64_t syi_reach_16_neon(const void *x, uint16_t threshold);
uint64_t syi_reach_32_neon(const void *x, uint16_t threshold);
