/*
 * Sums of rows and dot products for both NEON tables.
 */
#include "kernels/neon.h"

static float32x4_t widen_f16(uint16x4_t x)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(x));
}

static float32x4_t widen_bf16(uint16x4_t x)
{
    return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
}

static float32x4_t words_at(const uint8_t *x, size_t i)
{
    return vreinterpretq_f32_u8(vld1q_u8(x + i * 4));
}

/* ---- Sums of rows ------------------------------------------------------------------------------------ */

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

/* A NaN sum is the canonical one: syi_fp_enter has asked the processor for that. */
static void put_8_f32(uint8_t *y, float32x4_t low, float32x4_t high)
{
    vst1q_u8(y, vreinterpretq_u8_f32(low));
    vst1q_u8(y + 16, vreinterpretq_u8_f32(high));
}

static void put_8_f16(uint8_t *y, float32x4_t low, float32x4_t high)
{
    vst1q_u8(y, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high)));
}

/* Upper halves side by side again; one more where the lower half is above the middle, or on it beside an odd
   upper half. */
static void put_8_bf16(uint8_t *y, float32x4_t even, float32x4_t odd)
{
    const uint16x8_t p = vreinterpretq_u16_f32(even), q = vreinterpretq_u16_f32(odd);
    const uint16x8_t upper = vtrn2q_u16(p, q), lower = vtrn1q_u16(p, q);
    const uint16x8_t tie_up = vandq_u16(upper, vdupq_n_u16(1));
    const uint16x8_t up = vcgtq_u16(vqaddq_u16(lower, tie_up), vdupq_n_u16(0x8000));
    vst1q_u8(y, vreinterpretq_u8_u16(vsubq_u16(upper, up)));
}

void syi_sum_rows_f32_neon(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 4, add_8_f32, put_8_f32);
}

void syi_sum_rows_f16_neon(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 2, add_8_f16, put_8_f16);
}

void syi_sum_rows_bf16_neon(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    sum_rows(dst, rows, w, n_rows, n, 2, add_8_bf16, put_8_bf16);
}

/* ---- Dot products ------------------------------------------------------------------------------------ */

struct lanes {
    float32x4_t a, b, c, d;
};

static struct lanes sixteen_f32(const uint8_t *x)
{
    return (struct lanes){words_at(x, 0), words_at(x, 4), words_at(x, 8), words_at(x, 12)};
}

static struct lanes sixteen_f16(const uint8_t *x)
{
    const uint16x8_t p = vreinterpretq_u16_u8(vld1q_u8(x)), q = vreinterpretq_u16_u8(vld1q_u8(x + 16));
    return (struct lanes){widen_f16(vget_low_u16(p)), widen_f16(vget_high_u16(p)), widen_f16(vget_low_u16(q)),
                          widen_f16(vget_high_u16(q))};
}

static struct lanes sixteen_bf16(const uint8_t *x)
{
    const uint16x8_t p = vreinterpretq_u16_u8(vld1q_u8(x)), q = vreinterpretq_u16_u8(vld1q_u8(x + 16));
    return (struct lanes){widen_bf16(vget_low_u16(p)), widen_bf16(vget_high_u16(p)),
                          widen_bf16(vget_low_u16(q)), widen_bf16(vget_high_u16(q))};
}

static struct lanes plus_products(struct lanes sum, struct lanes x, struct lanes y)
{
    return (struct lanes){vaddq_f32(sum.a, vmulq_f32(x.a, y.a)), vaddq_f32(sum.b, vmulq_f32(x.b, y.b)),
                          vaddq_f32(sum.c, vmulq_f32(x.c, y.c)), vaddq_f32(sum.d, vmulq_f32(x.d, y.d))};
}

/* One block: whole sixteens, then the rest behind zeros. */
static inline __attribute__((always_inline)) float dot_block(const uint8_t *x, const uint8_t *y, size_t n,
                                                             const size_t elem_bytes,
                                                             struct lanes (*load)(const uint8_t *))
{
    const float32x4_t zero = vdupq_n_f32(0.0f);
    struct lanes sum = {zero, zero, zero, zero};
    size_t i = 0;
    for (; i + SYI_DOT_LANES <= n; i += SYI_DOT_LANES)
        sum = plus_products(sum, load(x + i * elem_bytes), load(y + i * elem_bytes));
    if (i < n) {
        uint8_t p[SYI_DOT_LANES * 4] = {0}, q[SYI_DOT_LANES * 4] = {0};
        memcpy(p, x + i * elem_bytes, (n - i) * elem_bytes);
        memcpy(q, y + i * elem_bytes, (n - i) * elem_bytes);
        sum = plus_products(sum, load(p), load(q));
    }
    float lane[SYI_DOT_LANES];
    vst1q_f32(lane, sum.a);
    vst1q_f32(lane + 4, sum.b);
    vst1q_f32(lane + 8, sum.c);
    vst1q_f32(lane + 12, sum.d);
    return syi_fold_lanes(lane);
}

static float dot_block_f32(const void *a, const void *b, size_t n)
{
    return dot_block(a, b, n, 4, sixteen_f32);
}

float syi_dot_f32_neon(const void *a, const void *b, size_t n)
{
    return syi_dot_blocks(a, b, n, 4, dot_block_f32);
}

static float dot_block_f16(const void *a, const void *b, size_t n)
{
    return dot_block(a, b, n, 2, sixteen_f16);
}

float syi_dot_f16_neon(const void *a, const void *b, size_t n)
{
    return syi_dot_blocks(a, b, n, 2, dot_block_f16);
}

static float dot_block_bf16(const void *a, const void *b, size_t n)
{
    return dot_block(a, b, n, 2, sixteen_bf16);
}

float syi_dot_bf16_neon(const void *a, const void *b, size_t n)
{
    return syi_dot_blocks(a, b, n, 2, dot_block_bf16);
}
