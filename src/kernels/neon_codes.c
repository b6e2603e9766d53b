/*
 * 8-bit codes to numbers, for both NEON tables. Eight codes are widened to eight times sixteen bits and split into
 * even and odd elements, which a shift and a mask widen to f32 on more pipes than two widening shifts. NaN products
 * are the canonical one: syi_fp_enter has enabled default NaNs.
 */
#include "kernels/neon.h"

struct eight {
    float32x4_t even, odd;
};

/* Two f32 from every pair of upper halves. */
static inline struct eight split(uint16x8_t upper)
{
    const uint32x4_t v = vreinterpretq_u32_u16(upper);
    return (struct eight){vreinterpretq_f32_u32(vshlq_n_u32(v, 16)),
                          vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u)))};
}

static inline struct eight times(struct eight x, float w)
{
    return (struct eight){vmulq_n_f32(x.even, w), vmulq_n_f32(x.odd, w)};
}

/* As syi_e4m3_to_f32, and 2^120 times too small as well; 7f and ff become all ones. */
static struct eight widen_e4m3(int8x8_t codes)
{
    const uint16x8_t placed = vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(codes, 4)), vdupq_n_u16(0x87f0));
    const uint16x8_t is_nan = vceqq_u16(vorrq_u16(placed, vdupq_n_u16(0x8000)), vdupq_n_u16(0x87f0));
    return split(vorrq_u16(placed, is_nan));
}

/* The same with two bits of mantissa, 2^112 times too small; codes from 7c on have the exponent of infinity and NaN. */
static struct eight widen_e5m2(int8x8_t codes)
{
    const uint16x8_t placed = vandq_u16(vreinterpretq_u16_s16(vshll_n_s8(codes, 5)), vdupq_n_u16(0x8fe0));
    const uint16x8_t is_huge = vcgeq_u16(vandq_u16(placed, vdupq_n_u16(0x7fff)), vdupq_n_u16(0x0f80));
    return split(vorrq_u16(placed, vandq_u16(is_huge, vdupq_n_u16(0x7f80))));
}

/* Integers in the upper half of a word, converted as numbers with sixteen binary places. */
static struct eight widen_i8(int8x8_t codes)
{
    const struct eight upper = split(vreinterpretq_u16_s16(vmovl_s8(codes)));
    return (struct eight){vcvtq_n_f32_s32(vreinterpretq_s32_f32(upper.even), 16),
                          vcvtq_n_f32_s32(vreinterpretq_s32_f32(upper.odd), 16)};
}

static void put_f32(uint8_t *y, struct eight v)
{
    vst1q_u8(y, vreinterpretq_u8_f32(vzip1q_f32(v.even, v.odd)));
    vst1q_u8(y + 16, vreinterpretq_u8_f32(vzip2q_f32(v.even, v.odd)));
}

static void put_f16(uint8_t *y, struct eight v)
{
    const float16x4_t low = vcvt_f16_f32(vzip1q_f32(v.even, v.odd));
    vst1q_u8(y, vreinterpretq_u8_f16(vcvt_high_f16_f32(low, vzip2q_f32(v.even, v.odd))));
}

static void put_bf16(uint8_t *y, struct eight v)
{
    round_8_bf16(y, v.even, v.odd);
}

typedef struct eight widen_fn(int8x8_t codes);
typedef void put_fn(uint8_t *y, struct eight v);

/* Whole sixteens; returns how many codes that were. */
static inline __attribute__((always_inline)) size_t decode_by(uint8_t *y, const int8_t *codes, float up,
                                                              float w, size_t n, const size_t elem_bytes,
                                                              widen_fn *widen, put_fn *put)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const int8x16_t c = vld1q_s8(codes + i);
        struct eight low = widen(vget_low_s8(c)), high = widen(vget_high_s8(c));
        if (up != 1.0f) {
            low = times(low, up);
            high = times(high, up);
        }
        put(y + i * elem_bytes, times(low, w));
        put(y + (i + 8) * elem_bytes, times(high, w));
    }
    return i;
}

/* `up` is the power of two by which the widened numbers are too small. With a scale of up to 2^7 their product is exact,
   so one multiplication replaces two. */
static inline __attribute__((always_inline)) size_t decode(uint8_t *y, const int8_t *codes, float w, size_t n,
                                                           const size_t elem_bytes, const float up,
                                                           widen_fn *widen, put_fn *put)
{
    if (w > -0x1p7f && w < 0x1p7f)
        return decode_by(y, codes, 1.0f, w * up, n, elem_bytes, widen, put);
    return decode_by(y, codes, up, w, n, elem_bytes, widen, put);
}

static void e4m3_to_f32(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 4, 0x1p120f, widen_e4m3, put_f32);
    if (done < n)
        syi_decode_scalar[SYI_CODE_E4M3][SYI_FLOAT_F32]((char *)dst + 4 * done, (const char *)codes + done, w,
                                                        n - done);
}

static void e4m3_to_f16(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 2, 0x1p120f, widen_e4m3, put_f16);
    if (done < n)
        syi_decode_scalar[SYI_CODE_E4M3][SYI_FLOAT_F16]((char *)dst + 2 * done, (const char *)codes + done, w,
                                                        n - done);
}

static void e4m3_to_bf16(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 2, 0x1p120f, widen_e4m3, put_bf16);
    if (done < n)
        syi_decode_scalar[SYI_CODE_E4M3][SYI_FLOAT_BF16]((char *)dst + 2 * done, (const char *)codes + done,
                                                         w, n - done);
}

static void e5m2_to_f32(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 4, 0x1p112f, widen_e5m2, put_f32);
    if (done < n)
        syi_decode_scalar[SYI_CODE_E5M2][SYI_FLOAT_F32]((char *)dst + 4 * done, (const char *)codes + done, w,
                                                        n - done);
}

static void e5m2_to_f16(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 2, 0x1p112f, widen_e5m2, put_f16);
    if (done < n)
        syi_decode_scalar[SYI_CODE_E5M2][SYI_FLOAT_F16]((char *)dst + 2 * done, (const char *)codes + done, w,
                                                        n - done);
}

static void e5m2_to_bf16(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 2, 0x1p112f, widen_e5m2, put_bf16);
    if (done < n)
        syi_decode_scalar[SYI_CODE_E5M2][SYI_FLOAT_BF16]((char *)dst + 2 * done, (const char *)codes + done,
                                                         w, n - done);
}

static void i8_to_f32(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 4, 1.0f, widen_i8, put_f32);
    if (done < n)
        syi_decode_scalar[SYI_CODE_I8][SYI_FLOAT_F32]((char *)dst + 4 * done, (const char *)codes + done, w,
                                                      n - done);
}

static void i8_to_f16(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 2, 1.0f, widen_i8, put_f16);
    if (done < n)
        syi_decode_scalar[SYI_CODE_I8][SYI_FLOAT_F16]((char *)dst + 2 * done, (const char *)codes + done, w,
                                                      n - done);
}

static void i8_to_bf16(void *dst, const void *codes, float w, size_t n)
{
    const size_t done = decode(dst, codes, w, n, 2, 1.0f, widen_i8, put_bf16);
    if (done < n)
        syi_decode_scalar[SYI_CODE_I8][SYI_FLOAT_BF16]((char *)dst + 2 * done, (const char *)codes + done, w,
                                                       n - done);
}

syi_decode_fn *const syi_decode_neon[SYI_N_CODES][SYI_N_FLOATS] = {
    [SYI_CODE_E4M3] = {e4m3_to_f32, e4m3_to_f16, e4m3_to_bf16},
    [SYI_CODE_E5M2] = {e5m2_to_f32, e5m2_to_f16, e5m2_to_bf16},
    [SYI_CODE_I8] = {i8_to_f32, i8_to_f16, i8_to_bf16},
};
