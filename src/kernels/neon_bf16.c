/*
 * Scaling for Arm processors with BF16, and with half-precision arithmetic and its widening products (FP16, FHM),
 * which is nearly all since Armv8.6. Under the control of syi_fp_enter BFCVTN rounds every f32 to the same bits as the
 * integer code of dtype.c, NaNs and subnormals included; all 2^32 were compared.
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
    const size_t done =
        short_w ? scale(dst, src, w, n * 2, times_f16_by_f16) : scale(dst, src, w, n * 2, times_f16);
    syi_kernels_scalar.scale_f16((char *)dst + done, (const char *)src + done, w, n - done / 2);
}

void syi_scale_bf16_neon_bf16(void *dst, const void *src, float w, size_t n)
{
    const size_t done = scale(dst, src, w, n * 2, times_bf16);
    syi_kernels_scalar.scale_bf16((char *)dst + done, (const char *)src + done, w, n - done / 2);
}
