/*
 * What the NEON files share. Both tables are in neon.c; neon_rows.c has their sums of rows and dot products, and
 * neon_bf16.c the functions that are built with flags of their own.
 */
#ifndef SYI_NEON_H
#define SYI_NEON_H

#include "kernels/kernels.h"

#include <arm_neon.h>

/*
 * 128 bytes in eight registers, loaded and stored in order. The instructions are written out because the core
 * streams whole lines only when they leave in ascending order; a compiler that interleaved the stores of a
 * fan-out made it 1.7 times slower.
 */
struct bytes_128 {
    uint8x16_t a, b, c, d, e, f, g, h;
};

static inline __attribute__((always_inline)) struct bytes_128 load_128(const void *from)
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

static inline __attribute__((always_inline)) void store_128(void *to, struct bytes_128 v)
{
    __asm__ volatile("stp %q0, %q1, [%8]\n\tstp %q2, %q3, [%8, #32]\n\t"
                     "stp %q4, %q5, [%8, #64]\n\tstp %q6, %q7, [%8, #96]"
                     :
                     : "w"(v.a), "w"(v.b), "w"(v.c), "w"(v.d), "w"(v.e), "w"(v.f), "w"(v.g), "w"(v.h), "r"(to)
                     : "memory");
}

/* Scales whole vectors; returns how many bytes that were. */
static inline __attribute__((always_inline)) size_t scale(uint8_t *y, const uint8_t *x, float w, size_t bytes,
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
 * Sums of rows: 32 columns stay in registers while the rows go by. add_8 adds eight columns of row j, put_8 rounds
 * and stores them; how a pair of registers holds them is theirs to agree on.
 */
struct sums {
    float32x4_t a, b, c, d, e, f, g, h;
};
typedef void add_8_fn(float32x4_t *p, float32x4_t *q, const uint8_t *x, const float *w, size_t j);
typedef void put_8_fn(uint8_t *y, float32x4_t p, float32x4_t q);

static inline __attribute__((always_inline)) void add_32(struct sums *s, const uint8_t *x, const float *w,
                                                         size_t j, const size_t step, add_8_fn *add_8)
{
    add_8(&s->a, &s->b, x, w, j);
    add_8(&s->c, &s->d, x + step, w, j);
    add_8(&s->e, &s->f, x + 2 * step, w, j);
    add_8(&s->g, &s->h, x + 3 * step, w, j);
}

static inline __attribute__((always_inline)) void put_32(uint8_t *y, const struct sums *s, const size_t step,
                                                         put_8_fn *put_8)
{
    put_8(y, s->a, s->b);
    put_8(y + step, s->c, s->d);
    put_8(y + 2 * step, s->e, s->f);
    put_8(y + 3 * step, s->g, s->h);
}

/* The last columns are copied behind zeros row by row, so that nothing past them is read. */
static inline __attribute__((always_inline)) void sum_any(uint8_t *y, const void *const *rows, const float *w,
                                                          size_t n_rows, size_t n, const size_t elem_bytes,
                                                          add_8_fn *add_8, put_8_fn *put_8)
{
    const float32x4_t zero = vdupq_n_f32(0.0f);
    const struct sums none = {zero, zero, zero, zero, zero, zero, zero, zero};
    const size_t bytes = n * elem_bytes, step = 8 * elem_bytes;
    size_t at = 0;
    for (; at + 4 * step <= bytes; at += 4 * step) {
        struct sums s = none;
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

/* Upper halves side by side again; one more where the lower half is above the middle, or on it beside an odd
   upper half. */
static inline void round_8_bf16(uint8_t *y, float32x4_t even, float32x4_t odd)
{
    const uint16x8_t p = vreinterpretq_u16_f32(even), q = vreinterpretq_u16_f32(odd);
    const uint16x8_t upper = vtrn2q_u16(p, q), lower = vtrn1q_u16(p, q);
    const uint16x8_t tie_up = vandq_u16(upper, vdupq_n_u16(1));
    const uint16x8_t up = vcgtq_u16(vqaddq_u16(lower, tie_up), vdupq_n_u16(0x8000));
    vst1q_u8(y, vreinterpretq_u8_u16(vsubq_u16(upper, up)));
}

/* A constant number of rows whose addresses and weights no store can change: they stay in registers. */
static inline __attribute__((always_inline)) void sum_few(uint8_t *y, const void *const *rows, const float *w,
                                                          const size_t n_rows, size_t n,
                                                          const size_t elem_bytes, add_8_fn *add_8,
                                                          put_8_fn *put_8)
{
    const void *own[8] = {0};
    float weights[8] = {0};
    for (size_t j = 0; j < n_rows; j++) {
        own[j] = rows[j];
        weights[j] = w != NULL ? w[j] : 1.0f;
    }
    sum_any(y, own, weights, n_rows, n, elem_bytes, add_8, put_8);
}

static inline __attribute__((always_inline)) void sum_rows(uint8_t *y, const void *const *rows,
                                                           const float *w, size_t n_rows, size_t n,
                                                           const size_t elem_bytes, add_8_fn *add_8,
                                                           put_8_fn *put_8)
{
    switch (n_rows) { /* the usual numbers of experts per token */
    case 2:
        sum_few(y, rows, w, 2, n, elem_bytes, add_8, put_8);
        break;
    case 4:
        sum_few(y, rows, w, 4, n, elem_bytes, add_8, put_8);
        break;
    case 8:
        sum_few(y, rows, w, 8, n, elem_bytes, add_8, put_8);
        break;
    default:
        sum_any(y, rows, w, n_rows, n, elem_bytes, add_8, put_8);
        break;
    }
}

/* Sums of a dot product; add_16 adds sixteen products. */
struct lanes {
    float32x4_t a, b, c, d;
};
typedef struct lanes add_16_fn(struct lanes sum, const uint8_t *x, const uint8_t *y);

/* One block: whole sixteens, then the rest behind zeros. */
static inline __attribute__((always_inline)) struct lanes
dot_lanes(const uint8_t *x, const uint8_t *y, size_t n, const size_t elem_bytes, add_16_fn *add_16)
{
    const float32x4_t zero = vdupq_n_f32(0.0f);
    const size_t bytes = n * elem_bytes, step = SYI_DOT_LANES * elem_bytes;
    struct lanes sum = {zero, zero, zero, zero};
    size_t at = 0;
    for (; at + step <= bytes; at += step)
        sum = add_16(sum, x + at, y + at);
    if (at < bytes) {
        uint8_t p[SYI_DOT_LANES * 4] = {0}, q[SYI_DOT_LANES * 4] = {0};
        memcpy(p, x + at, bytes - at);
        memcpy(q, y + at, bytes - at);
        sum = add_16(sum, p, q);
    }
    return sum;
}

static inline float fold_lanes(struct lanes sum)
{
    float lane[SYI_DOT_LANES];
    vst1q_f32(lane, sum.a);
    vst1q_f32(lane + 4, sum.b);
    vst1q_f32(lane + 8, sum.c);
    vst1q_f32(lane + 12, sum.d);
    return syi_fold_lanes(lane);
}

void syi_sum_rows_f32_neon(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n);
void syi_sum_rows_f16_neon(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n);
void syi_sum_rows_bf16_neon(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n);
float syi_dot_f32_neon(const void *a, const void *b, size_t n);
float syi_dot_f16_neon(const void *a, const void *b, size_t n);
float syi_dot_bf16_neon(const void *a, const void *b, size_t n);

float syi_dot_f16_neon_bf16(const void *a, const void *b, size_t n);
void syi_sum_rows_f16_neon_bf16(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n);
void syi_sum_rows_bf16_neon_bf16(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n);
void syi_scale_f16_neon_bf16(void *dst, const void *src, float w, size_t n);
void syi_scale_bf16_neon_bf16(void *dst, const void *src, float w, size_t n);

#endif
