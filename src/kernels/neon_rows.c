/*
 * Sums of rows and dot products for both NEON tables.
 */
#include "kernels/neon.h"

static float32x4_t widen_f16(uint16x4_t x)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(x));
}

static float32x4_t words_at(const uint8_t *x, size_t i)
{
    return vreinterpretq_f32_u8(vld1q_u8(x + i * 4));
}

/* ---- Sums of rows ---- */

static void add_8_f32(float32x4_t *low, float32x4_t *high, const uint8_t *x, const float *w, size_t j)
{
    *low = plus(*low, words_at(x, 0), w, j);
    *high = plus(*high, words_at(x, 4), w, j);
}

static void add_8_f16(float32x4_t *low, float32x4_t *high, const uint8_t *x, const float *w, size_t j)
{
    const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(x));
    *low = plus(*low, widen_f16(vget_low_u16(v)), w, j);
    *high = plus(*high, widen_f16(vget_high_u16(v)), w, j);
}

/* A NaN sum is the canonical one: syi_fp_enter has enabled default NaNs. */
static void put_8_f32(uint8_t *y, float32x4_t low, float32x4_t high)
{
    vst1q_u8(y, vreinterpretq_u8_f32(low));
    vst1q_u8(y + 16, vreinterpretq_u8_f32(high));
}

static void put_8_f16(uint8_t *y, float32x4_t low, float32x4_t high)
{
    vst1q_u8(y, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high)));
}

SUM_ROWS(, syi_sum_rows_f32_neon, 4, add_8_f32, put_8_f32)
SUM_ROWS(, syi_sum_rows_f16_neon, 2, add_8_f16, put_8_f16)
SUM_ROWS(, syi_sum_rows_bf16_neon, 2, add_8_bf16, round_8_bf16)

/* ---- Dot products ---- */

static struct lanes plus_products(struct lanes sum, struct lanes x, struct lanes y)
{
    return (struct lanes){vaddq_f32(sum.a, vmulq_f32(x.a, y.a)), vaddq_f32(sum.b, vmulq_f32(x.b, y.b)),
                          vaddq_f32(sum.c, vmulq_f32(x.c, y.c)), vaddq_f32(sum.d, vmulq_f32(x.d, y.d))};
}

static struct lanes sixteen_f32(const uint8_t *x)
{
    return (struct lanes){words_at(x, 0), words_at(x, 4), words_at(x, 8), words_at(x, 12)};
}

static struct lanes add_16_f32(struct lanes sum, const uint8_t *x, const uint8_t *y)
{
    return plus_products(sum, sixteen_f32(x), sixteen_f32(y));
}

static struct lanes sixteen_f16(const uint8_t *x)
{
    const uint16x8_t p = vreinterpretq_u16_u8(vld1q_u8(x)), q = vreinterpretq_u16_u8(vld1q_u8(x + 16));
    return (struct lanes){widen_f16(vget_low_u16(p)), widen_f16(vget_high_u16(p)), widen_f16(vget_low_u16(q)),
                          widen_f16(vget_high_u16(q))};
}

static struct lanes add_16_f16(struct lanes sum, const uint8_t *x, const uint8_t *y)
{
    return plus_products(sum, sixteen_f16(x), sixteen_f16(y));
}

/* Even and odd elements of each eight apart, as in add_8_bf16. */
static struct lanes sixteen_bf16(const uint8_t *x)
{
    const uint32x4_t p = vreinterpretq_u32_u8(vld1q_u8(x)), q = vreinterpretq_u32_u8(vld1q_u8(x + 16));
    const uint32x4_t upper = vdupq_n_u32(0xffff0000u);
    return (struct lanes){
        vreinterpretq_f32_u32(vshlq_n_u32(p, 16)), vreinterpretq_f32_u32(vandq_u32(p, upper)),
        vreinterpretq_f32_u32(vshlq_n_u32(q, 16)), vreinterpretq_f32_u32(vandq_u32(q, upper))};
}

static struct lanes add_16_bf16(struct lanes sum, const uint8_t *x, const uint8_t *y)
{
    return plus_products(sum, sixteen_bf16(x), sixteen_bf16(y));
}

static float fold_pairs(struct lanes s)
{
    return fold_lanes((struct lanes){vzip1q_f32(s.a, s.b), vzip2q_f32(s.a, s.b), vzip1q_f32(s.c, s.d),
                                     vzip2q_f32(s.c, s.d)});
}

DOT_ROWS(syi_dot_rows_f32_neon, 4, add_16_f32, fold_lanes)
DOT_ROWS(syi_dot_rows_f16_neon, 2, add_16_f16, fold_lanes)
DOT_ROWS(syi_dot_rows_bf16_neon, 2, add_16_bf16, fold_pairs)
