/*
 * Scaling, sums of rows and dot products for Arm processors with BF16, and with half-precision arithmetic and its
 * widening products (FP16, FHM), which is nearly all since Armv8.6. Under the control of syi_fp_enter BFCVTN rounds
 * every f32 to the same bits as the integer code of dtype.c, NaNs and subnormals included; all 2^32 were compared.
 */
#include "kernels/neon.h"

/* The other conversion from f16 has half the throughput of a widening product with one; -0 + -0 keeps the sign of
   a zero. */
static uint8x16_t times_f16(uint8x16_t x, float w)
{
    const float16x8_t v = vreinterpretq_f16_u8(x), one = vreinterpretq_f16_u16(vdupq_n_u16(0x3c00));
    const float32x4_t zero = vdupq_n_f32(-0.0f);
    const float32x4_t low = vfmlalq_low_f16(zero, v, one), high = vfmlalq_high_f16(zero, v, one);
    const float16x4_t rounded = vcvt_f16_f32(vmulq_n_f32(low, w));
    return vreinterpretq_u8_f16(vcvt_high_f16_f32(rounded, vmulq_n_f32(high, w)));
}

/* For w that is an f16: then the product is exact in f32, and rounding it once is rounding it in f16. */
static uint8x16_t times_f16_by_f16(uint8x16_t x, float w)
{
    return vreinterpretq_u8_f16(vmulq_n_f16(vreinterpretq_f16_u8(x), (float16_t)w));
}

static uint8x16_t times_bf16(uint8x16_t x, float w)
{
    const uint16x8_t v = vreinterpretq_u16_u8(x);
    const float32x4_t low = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16));
    const float32x4_t high = vreinterpretq_f32_u32(vshll_high_n_u16(v, 16));
    const bfloat16x8_t rounded = vcvtq_low_bf16_f32(vmulq_n_f32(low, w));
    return vreinterpretq_u8_bf16(vcvtq_high_bf16_f32(rounded, vmulq_n_f32(high, w)));
}

void syi_scale_f16_neon_bf16(void *dst, const void *src, float w, size_t n)
{
    const bool short_w = (float)(float16_t)w == w;
    const size_t done = short_w ? scale_bytes(dst, src, w, n * 2, times_f16_by_f16)
                                : scale_bytes(dst, src, w, n * 2, times_f16);
    syi_kernels_scalar.scale[SYI_FLOAT_F16]((char *)dst + done, (const char *)src + done, w, n - done / 2);
}

void syi_scale_bf16_neon_bf16(void *dst, const void *src, float w, size_t n)
{
    const size_t done = scale_bytes(dst, src, w, n * 2, times_bf16);
    syi_kernels_scalar.scale[SYI_FLOAT_BF16]((char *)dst + done, (const char *)src + done, w, n - done / 2);
}

/* ---- Sums of rows ---- */

/*
 * Where every product is exact, rounding it changes nothing, and a fused widening multiply-add gives the bits of
 * the two steps. Without weights the products are the elements themselves.
 */

/* f16 times f16 has 22 bits and no extreme exponents: always exact. */
static bool are_f16(const float *w, size_t n)
{
    bool all = true;
    for (size_t j = 0; w != NULL && j < n; j++)
        all = all && (float)(float16_t)w[j] == w[j];
    return all;
}

/* bf16 times bf16 has 16 bits. A weight of at most 1 cannot overflow, and a multiple of 2^-16 leaves no bit below
   the least f32, 2^-149, even of the least bf16, 2^-133. */
static bool are_moderate_bf16(const float *w, size_t n)
{
    bool all = true;
    for (size_t j = 0; w != NULL && j < n; j++) {
        const bool moderate = w[j] >= -1.0f && w[j] <= 1.0f && (syi_f32_bits(w[j]) & 0xffffu) == 0;
        const float steps = moderate ? w[j] * 0x1p16f : 0.5f;
        all = all && (float)(int32_t)steps == steps;
    }
    return all;
}

static void add_8_f16(float32x4_t *low, float32x4_t *high, const uint8_t *x, const float *w, size_t j)
{
    const float16x8_t v = vreinterpretq_f16_u8(vld1q_u8(x)), one = vreinterpretq_f16_u16(vdupq_n_u16(0x3c00));
    const float32x4_t zero = vdupq_n_f32(-0.0f); /* as in times_f16 */
    *low = plus(*low, vfmlalq_low_f16(zero, v, one), w, j);
    *high = plus(*high, vfmlalq_high_f16(zero, v, one), w, j);
}

static void add_8_exact_f16(float32x4_t *low, float32x4_t *high, const uint8_t *x, const float *w, size_t j)
{
    const float16x8_t v = vreinterpretq_f16_u8(vld1q_u8(x));
    const float16x8_t weight = vdupq_n_f16((float16_t)(w != NULL ? w[j] : 1.0f));
    *low = vfmlalq_low_f16(*low, v, weight);
    *high = vfmlalq_high_f16(*high, v, weight);
}

static void put_8_f16(uint8_t *y, float32x4_t low, float32x4_t high)
{
    vst1q_u8(y, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(low), high)));
}

static void add_8_exact_bf16(float32x4_t *even, float32x4_t *odd, const uint8_t *x, const float *w, size_t j)
{
    const bfloat16x8_t v = vreinterpretq_bf16_u8(vld1q_u8(x));
    uint32_t bits = w != NULL ? syi_f32_bits(w[j]) : 0x3f800000u;
    __asm__("" : "+r"(bits)); /* gcc 12 would build the vector of a visible constant as if it were f16 */
    const bfloat16x8_t weight = vreinterpretq_bf16_u16(vdupq_n_u16((uint16_t)(bits >> 16)));
    *even = vbfmlalbq_f32(*even, v, weight);
    *odd = vbfmlaltq_f32(*odd, v, weight);
}

static void put_8_bf16(uint8_t *y, float32x4_t even, float32x4_t odd)
{
    uint16x8_t p = vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(even));
    uint16x8_t q = vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(odd));
    __asm__("" : "+w"(p), "+w"(q)); /* clang 14 fails on a zip of bf16 vectors */
    vst1q_u8(y, vreinterpretq_u8_u16(vzip1q_u16(p, q)));
}

/* Columns in order: fewer instructions for one row, more of them on the same two pipes for several. */
static void add_8_in_order(float32x4_t *low, float32x4_t *high, const uint8_t *x, const float *w, size_t j)
{
    const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8(x));
    *low = plus(*low, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(v), 16)), w, j);
    *high = plus(*high, vreinterpretq_f32_u32(vshll_high_n_u16(v, 16)), w, j);
}

static void put_8_in_order(uint8_t *y, float32x4_t low, float32x4_t high)
{
    vst1q_u8(y, vreinterpretq_u8_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high)));
}

SUM_FEW(sum_bf16_in_order, 1, 2, add_8_in_order, put_8_in_order)
SUM_ROWS(static, sum_exact_f16, 2, add_8_exact_f16, put_8_f16)
SUM_ROWS(static, sum_f16, 2, add_8_f16, put_8_f16)
SUM_ROWS(static, sum_exact_bf16, 2, add_8_exact_bf16, put_8_bf16)
SUM_ROWS(static, sum_bf16, 2, add_8_bf16, put_8_bf16)

void syi_sum_rows_f16_neon_bf16(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    (are_f16(w, n_rows) ? sum_exact_f16 : sum_f16)(dst, rows, w, n_rows, n);
}

void syi_sum_rows_bf16_neon_bf16(void *dst, const void *const *rows, const float *w, size_t n_rows, size_t n)
{
    if (n_rows == 1)
        sum_bf16_in_order_1(dst, rows, w, n);
    else
        (are_moderate_bf16(w, n_rows) ? sum_exact_bf16 : sum_bf16)(dst, rows, w, n_rows, n);
}

/* ---- Dot products ---- */

/* Products of f16 are exact, see above. Those of bf16 are not when they are tiny or too large. */
static struct lanes add_16_f16(struct lanes sum, const uint8_t *x, const uint8_t *y)
{
    const float16x8_t p = vreinterpretq_f16_u8(vld1q_u8(x)), q = vreinterpretq_f16_u8(vld1q_u8(x + 16));
    const float16x8_t r = vreinterpretq_f16_u8(vld1q_u8(y)), t = vreinterpretq_f16_u8(vld1q_u8(y + 16));
    return (struct lanes){vfmlalq_low_f16(sum.a, p, r), vfmlalq_high_f16(sum.b, p, r),
                          vfmlalq_low_f16(sum.c, q, t), vfmlalq_high_f16(sum.d, q, t)};
}

DOT_ROWS(syi_dot_rows_f16_neon_bf16, 2, add_16_f16, fold_lanes)
