/*
 * 8-bit codes to numbers with NEON, and numbers to codes for both NEON tables.
 */
#include "kernels/neon_codes.h"

SYI_DEFINE_DECODERS(neon, decode_groups)

/* Two f32 from every pair of upper halves. */
static inline struct eight split(uint16x8_t upper)
{
    const uint32x4_t v = vreinterpretq_u32_u16(upper);
    return (struct eight){vreinterpretq_f32_u32(vshlq_n_u32(v, 16)),
                          vreinterpretq_f32_u32(vandq_u32(v, vdupq_n_u32(0xffff0000u)))};
}

/* ---- Numbers to codes of e4m3 ------------------------------------------------------------------------ */

/* Sixteen bits of each, with its sign; in order. */
SYI_INLINE uint16x8_t upper_8(const char *x, const enum syi_float type)
{
    const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)x));
    return type == SYI_FLOAT_F32 ? vuzp2q_u16(v, vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)x + 16))) : v;
}

/* Of other types than bf16 `even` is the first four, `odd` the others. */
SYI_INLINE struct eight load_8(const char *x, const enum syi_float type)
{
    const uint8x16_t v = vld1q_u8((const uint8_t *)x);
    if (type == SYI_FLOAT_F32)
        return (struct eight){vreinterpretq_f32_u8(v),
                              vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)x + 16))};
    if (type == SYI_FLOAT_F16)
        return (struct eight){vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u8(v))),
                              vcvt_high_f32_f16(vreinterpretq_f16_u8(v))};
    return split(vreinterpretq_u16_u8(v));
}

/* As syi_quotient. */
SYI_INLINE float32x4_t quotient(float32x4_t x, float32x4_t by, float32x4_t inverse)
{
    const float32x4_t first = vmulq_f32(x, inverse);
    const float32x4_t second = vfmaq_f32(first, vfmsq_f32(x, first, by), inverse);
    return vfmaq_f32(second, vfmsq_f32(x, second, by), inverse);
}

/* To four bits of significand, to nearest even: in the upper half of the bits. */
SYI_INLINE uint32x4_t round_4(float32x4_t y)
{
    const uint32x4_t bits = vreinterpretq_u32_f32(y);
    return vsubq_u32(vaddq_u32(bits, vdupq_n_u32(0x7ffff)), vtstq_u32(bits, vdupq_n_u32(0x100000)));
}

/* Upper halves of eight results, in order. */
SYI_INLINE uint16x8_t join_8(uint32x4_t p, uint32x4_t q, const enum syi_float type)
{
    return type == SYI_FLOAT_BF16 ? vreinterpretq_u16_u32(vsriq_n_u32(q, p, 16))
                                  : vuzp2q_u16(vreinterpretq_u16_u32(p), vreinterpretq_u16_u32(q));
}

/* These halves of eight rounded results, in order and without signs. */
SYI_INLINE uint16x8_t round_8(struct eight x, float32x4_t by, float32x4_t inverse, const enum syi_float type,
                              const bool divide)
{
    const uint32x4_t p = round_4(divide ? quotient(x.low, by, inverse) : vmulq_f32(x.low, by));
    const uint32x4_t q = round_4(divide ? quotient(x.high, by, inverse) : vmulq_f32(x.high, by));
    return vbicq_u16(join_8(p, q, type), vdupq_n_u16(0x8000));
}

/* Quotients as products with the inverse, which are at most three units of the last place off: the same codes, unless one of them
   is so near the middle of two codes that four units decide; then `near` has bits from 0x10 on. */
SYI_INLINE uint16x8_t round_near_8(struct eight x, float32x4_t inverse, const enum syi_float type,
                                   uint16x8_t *near)
{
    const uint32x4_t p = vreinterpretq_u32_f32(vmulq_f32(x.low, inverse)),
                     q = vreinterpretq_u32_f32(vmulq_f32(x.high, inverse));
    const uint32x4_t more = vdupq_n_u32(0x80004), less = vdupq_n_u32(0x7fffc);
    const uint16x8_t up = join_8(vaddq_u32(p, more), vaddq_u32(q, more), type);
    *near = vorrq_u16(*near, veorq_u16(up, join_8(vaddq_u32(p, less), vaddq_u32(q, less), type)));
    return vbicq_u16(up, vdupq_n_u16(0x8000));
}

/* From 2^-10 up to 2^-6 codes are subnormal; below they are 0. */
SYI_INLINE bool any_subnormal(const uint16x8_t v[4])
{
    const uint16x8_t least = vdupq_n_u16(0x3a80);
    const uint16x8_t p = vminq_u16(vsubq_u16(v[0], least), vsubq_u16(v[1], least));
    const uint16x8_t q = vminq_u16(vsubq_u16(v[2], least), vsubq_u16(v[3], least));
    return vminvq_u16(vminq_u16(p, q)) < 0x200;
}

SYI_INLINE uint8x16_t join_codes(uint16x8_t p, uint16x8_t q, uint16x8_t sign_p, uint16x8_t sign_q)
{
    const uint16x8_t zero = vdupq_n_u16(0x3c00); /* exponents of e4m3 count from here */
    const uint8x16_t codes = vshrn_high_n_u16(vshrn_n_u16(vqsubq_u16(p, zero), 4), vqsubq_u16(q, zero), 4);
    const uint8x16_t signs = vuzp2q_u8(vreinterpretq_u8_u16(sign_p), vreinterpretq_u8_u16(sign_q));
    return vbslq_u8(vdupq_n_u8(0x80), signs, vminq_u8(codes, vdupq_n_u8(0x7e)));
}

/* ---- bf16 to e4m3 ------------------------------------------------------------------------------------ */

/* Codes of sixteen numbers, from their sizes in steps of the code. */
SYI_INLINE void put_codes(uint8_t *codes, const char *x, uint8x16_t size)
{
    const uint8x16_t p = vld1q_u8((const uint8_t *)x), q = vld1q_u8((const uint8_t *)x + 16);
    vst1q_u8(codes, vbslq_u8(vdupq_n_u8(0x80), vuzp2q_u8(p, q), size));
}

/* A power of two, added to the exponents, by which no number that is 0 or subnormal gets a code. */
static bool is_plain_power(float by)
{
    const uint32_t bits = syi_f32_bits(by);
    return (bits & 0x807fffffu) == 0 && bits >= 27u << 23 && bits <= 227u << 23;
}

/* Of 32 numbers by such a power. Steps of the code are counted from 32 below its 0, at 2^-7. From 2^-10 up to 2^-6 codes are
   subnormal: false. */
SYI_INLINE bool encode_power(uint8_t *codes, const char *x, float by)
{
    const uint16x8_t first = vdupq_n_u16((uint16_t)((243u << 7) - (syi_f32_bits(by) >> 16) - 7));
    uint16x8_t v[4];
    uint8x16_t size[2];
    for (size_t k = 0; k < 4; k++) {
        const uint16x8_t bits = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)x + 16 * k));
        v[k] = vsubq_u16(vbicq_u16(bits, vdupq_n_u16(0x8000)), vtstq_u16(bits, vdupq_n_u16(0x10)));
    }
    for (size_t k = 0; k < 4; k++)
        v[k] = vqsubq_u16(v[k], first);
    for (size_t k = 0; k < 2; k++)
        size[k] = vqshrn_high_n_u16(vqshrn_n_u16(v[2 * k], 4), v[2 * k + 1], 4);
    const uint8x16_t least = vdupq_n_u8(8), p = vsubq_u8(size[0], least), q = vsubq_u8(size[1], least);
    for (size_t k = 0; k < 2; k++)
        put_codes(codes + 16 * k, x + 32 * k, vminq_u8(vqsubq_u8(size[k], vdupq_n_u8(32)), vdupq_n_u8(0x7e)));
    return vminvq_u8(vminq_u8(p, q)) >= 32;
}

/* 32 at a time. Subnormal codes are rare, and 32 numbers with one of them are encoded as in encode.h. */
SYI_INLINE void encode_e4m3(uint8_t *restrict codes, const char *restrict x, float by, size_t n,
                            const enum syi_code code, const enum syi_float type, const bool divide)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    const float32x4_t factor = vdupq_n_f32(by), inverse = vdupq_n_f32(1.0f / by);
    const bool power = type == SYI_FLOAT_BF16 && !divide && is_plain_power(by);
    size_t i = 0;
    for (; power && i + 32 <= n; i += 32)
        if (!encode_power(codes + i, x + 2 * i, by))
            syi_encode_group(codes + i, x + 2 * i, by, 32, code, type, divide);
    for (; i + 32 <= n; i += 32) {
        const char *at = x + i * bytes;
        uint16x8_t v[4], sign[4], near = vdupq_n_u16(0);
        for (size_t k = 0; k < 4; k++) {
            sign[k] = upper_8(at + 8 * k * bytes, type);
            v[k] = divide ? round_near_8(load_8(at + 8 * k * bytes, type), inverse, type, &near)
                          : round_8(load_8(at + 8 * k * bytes, type), factor, inverse, type, false);
        }
        if (divide && vmaxvq_u16(near) >= 0x10)
            for (size_t k = 0; k < 4; k++)
                v[k] = round_8(load_8(at + 8 * k * bytes, type), factor, inverse, type, true);
        if (any_subnormal(v)) {
            syi_encode_group(codes + i, at, by, 32, code, type, divide);
            continue;
        }
        vst1q_u8(codes + i, join_codes(v[0], v[1], sign[0], sign[1]));
        vst1q_u8(codes + i + 16, join_codes(v[2], v[3], sign[2], sign[3]));
    }
    if (i < n)
        syi_encode_group(codes + i, x + i * bytes, by, n - i, code, type, divide);
}

SYI_DEFINE_ENCODERS(neon, encode_e4m3)
