/*
 * 8-bit codes to numbers with NEON, and numbers to codes for both NEON tables.
 */
#include "kernels/neon_codes.h"
#include "kernels/pack.h"

SYI_DEFINE_DECODERS(neon, decode_groups)

/* ---- Numbers to codes of e4m3 ---- */

/* The bytes with the signs of sixteen numbers. */
SYI_INLINE uint8x16_t signs_of(const char *x, const enum syi_float type)
{
    const uint8_t *const at = (const uint8_t *)x;
    const uint8x16_t p = vld1q_u8(at), q = vld1q_u8(at + 16);
    if (type != SYI_FLOAT_F32)
        return vuzp2q_u8(p, q);
    const uint16x8_t r = vreinterpretq_u16_u8(vld1q_u8(at + 32)), s = vreinterpretq_u16_u8(vld1q_u8(at + 48));
    return vuzp2q_u8(vreinterpretq_u8_u16(vuzp2q_u16(vreinterpretq_u16_u8(p), vreinterpretq_u16_u8(q))),
                     vreinterpretq_u8_u16(vuzp2q_u16(r, s)));
}

SYI_INLINE struct eight load_8(const char *x, const enum syi_float type)
{
    const uint16x8_t v = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)x)), none = vdupq_n_u16(0);
    if (type == SYI_FLOAT_F32)
        return (struct eight){vreinterpretq_f32_u16(v),
                              vreinterpretq_f32_u8(vld1q_u8((const uint8_t *)x + 16))};
    if (type == SYI_FLOAT_F16)
        return (struct eight){vcvt_f32_f16(vget_low_f16(vreinterpretq_f16_u16(v))),
                              vcvt_high_f32_f16(vreinterpretq_f16_u16(v))};
    return (struct eight){vreinterpretq_f32_u16(vzip1q_u16(none, v)),
                          vreinterpretq_f32_u16(vzip2q_u16(none, v))};
}

/* As syi_quotient, or the product. */
SYI_INLINE float32x4_t scale_4(float32x4_t x, struct syi_inverse inverse, const bool divide)
{
    return divide ? vfmaq_n_f32(vmulq_n_f32(x, inverse.rest), x, inverse.first) : vmulq_n_f32(x, inverse.by);
}

/* Upper halves of eight numbers without their signs, and 1 more where the last bit of a code or any bit of the lower
   half is set: then 7 more round to the nearest, or to even. */
SYI_INLINE uint16x8_t upper_8(struct eight y)
{
    const uint32x4_t p = vreinterpretq_u32_f32(y.low), q = vreinterpretq_u32_f32(y.high),
                     rest = vdupq_n_u32(0x10ffff);
    const uint16x8_t up =
        vuzp1q_u16(vreinterpretq_u16_u32(vtstq_u32(p, rest)), vreinterpretq_u16_u32(vtstq_u32(q, rest)));
    const uint16x8_t upper = vuzp2q_u16(vreinterpretq_u16_u32(p), vreinterpretq_u16_u32(q));
    return vsubq_u16(vbicq_u16(upper, vdupq_n_u16(0x8000)), up);
}

/* A power of two, added to the exponents, by which no number that is 0 or subnormal gets a code. */
static bool is_plain_power(float by)
{
    const uint32_t bits = syi_f32_bits(by);
    return (bits & 0x807fffffu) == 0 && bits >= 27u << 23 && bits <= 227u << 23;
}

/* The same of bf16 by such a power; its exponent comes later. */
SYI_INLINE uint16x8_t upper_8_power(const char *x)
{
    const uint16x8_t bits = vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)x));
    return vsubq_u16(vbicq_u16(bits, vdupq_n_u16(0x8000)), vtstq_u16(bits, vdupq_n_u16(0x10)));
}

/* By what the halves of a block are scaled. */
struct halves {
    struct syi_inverse by[2];
};

/* Codes of a block. Steps of the code are counted from 32 below its 0, at 2^-7; v has them 16 times, from `first` on. From
   2^-10 up to 2^-6 codes are subnormal: false. */
SYI_INLINE bool put_block(uint8_t *codes, const char *x, uint16x8_t *v, const uint32_t first[2],
                          const enum syi_float type, const size_t eights)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    const uint16x8_t from[2] = {vdupq_n_u16((uint16_t)(first[0] - 7)), vdupq_n_u16((uint16_t)(first[1] - 7))};
    uint8x16_t size[EIGHTS / 2], least = vdupq_n_u8(0xff);
    for (size_t k = 0; k < eights; k++)
        v[k] = vqsubq_u16(v[k], from[2 * k / eights]);
    for (size_t k = 0; k < eights / 2; k++)
        size[k] = vqshrn_high_n_u16(vqshrn_n_u16(v[2 * k], 4), v[2 * k + 1], 4);
    for (size_t k = 0; k < eights / 2; k++)
        least = vminq_u8(least, vsubq_u8(size[k], vdupq_n_u8(8)));
    for (size_t k = 0; k < eights / 2; k++) {
        const uint8x16_t code = vminq_u8(vqsubq_u8(size[k], vdupq_n_u8(32)), vdupq_n_u8(0x7e));
        vst1q_u8(codes + 16 * k, vbslq_u8(vdupq_n_u8(0x80), signs_of(x + 16 * k * bytes, type), code));
    }
    return vminvq_u8(least) >= 32;
}

SYI_INLINE bool encode_power(uint8_t *codes, const char *x, const float by[2], const size_t eights)
{
    const uint32_t first[2] = {(243u << 7) - (syi_f32_bits(by[0]) >> 16),
                               (243u << 7) - (syi_f32_bits(by[1]) >> 16)};
    uint16x8_t v[EIGHTS];
    for (size_t k = 0; k < eights; k++)
        v[k] = upper_8_power(x + 16 * k);
    return put_block(codes, x, v, first, SYI_FLOAT_BF16, eights);
}

SYI_INLINE bool encode_scaled(uint8_t *codes, const char *x, struct halves h, const enum syi_float type,
                              const bool divide, const size_t eights)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    const uint32_t first[2] = {116u << 7, 116u << 7};
    uint16x8_t v[EIGHTS];
    for (size_t k = 0; k < eights; k++) {
        const struct eight y = load_8(x + 8 * k * bytes, type);
        const struct syi_inverse by = h.by[2 * k / eights];
        v[k] = upper_8((struct eight){scale_4(y.low, by, divide), scale_4(y.high, by, divide)});
    }
    return put_block(codes, x, v, first, type, eights);
}

/* Subnormal codes are rare, and a block with one of them is encoded as in encode.h. */
SYI_INLINE void encode_block(uint8_t *codes, const char *x, struct halves h, const enum syi_float type,
                             const bool divide, const size_t eights)
{
    const float by[2] = {h.by[0].by, h.by[1].by};
    const bool power = type == SYI_FLOAT_BF16 && !divide && is_plain_power(by[0]) && is_plain_power(by[1]);
    if (power ? encode_power(codes, x, by, eights) : encode_scaled(codes, x, h, type, divide, eights))
        return;
    (divide ? syi_encoders_scalar.over : syi_encoders_scalar.times)[SYI_CODE_E4M3][type](codes, x, by,
                                                                                         4 * eights, 2);
}

SYI_INLINE void encode_e4m3(uint8_t *restrict codes, const char *restrict x, struct syi_inverse inverse,
                            size_t n, const enum syi_code code, const enum syi_float type, const bool divide)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    const struct halves h = {{inverse, inverse}};
    size_t i = 0;
    for (; i + STRIP <= n; i += STRIP)
        encode_block(codes + i, x + i * bytes, h, type, divide, EIGHTS);
    for (; i + STRIP / 2 <= n; i += STRIP / 2)
        encode_block(codes + i, x + i * bytes, h, type, divide, EIGHTS / 2);
    if (i < n)
        syi_encode_group(codes + i, x + i * bytes, inverse, n - i, code, type, divide);
}

SYI_INLINE void encode_groups(uint8_t *codes, const char *x, const float *by, size_t group, size_t n_groups,
                              const enum syi_code code, const enum syi_float type, const bool divide)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    size_t g = 0;
    if (code != SYI_CODE_E4M3) {
        syi_encode_groups(codes, x, by, group, n_groups, code, type, divide);
        return;
    }
    for (; group == STRIP / 2 && g + 2 <= n_groups; g += 2) {
        const struct halves h = {{syi_inverse_of(by[g]), syi_inverse_of(by[g + 1])}};
        encode_block(codes + group * g, x + group * g * bytes, h, type, divide, EIGHTS);
    }
    syi_encode_groups_by(codes + group * g, x + group * g * bytes, by + g, group, n_groups - g, code, type,
                         divide, encode_e4m3);
}

/* ---- Largest magnitudes ---- */

SYI_INLINE uint8x16_t larger(uint8x16_t p, uint8x16_t q, const enum syi_float type)
{
    return type == SYI_FLOAT_F32
               ? vreinterpretq_u8_u32(vmaxq_u32(vreinterpretq_u32_u8(p), vreinterpretq_u32_u8(q)))
               : vreinterpretq_u8_u16(vmaxq_u16(vreinterpretq_u16_u8(p), vreinterpretq_u16_u8(q)));
}

/* Of 64 bytes; a maximum waits for one of the four before. */
SYI_INLINE void larger_64(uint8x16_t most[4], const uint8_t *x, const enum syi_float type)
{
    const uint8x16_t no_sign = type == SYI_FLOAT_F32 ? vreinterpretq_u8_u32(vdupq_n_u32(0x7fffffffu))
                                                     : vreinterpretq_u8_u16(vdupq_n_u16(0x7fffu));
    for (size_t k = 0; k < 4; k++)
        most[k] = larger(most[k], vandq_u8(vld1q_u8(x + 16 * k), no_sign), type);
}

SYI_INLINE uint32_t amax_group(const char *x, size_t n, const enum syi_float type)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    uint8x16_t most[4] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
    size_t i = 0;
    for (; i + 64 <= n * bytes; i += 64)
        larger_64(most, (const uint8_t *)x + i, type);
    const uint8x16_t all = larger(larger(most[0], most[1], type), larger(most[2], most[3], type), type);
    const uint32_t size =
        type == SYI_FLOAT_F32 ? vmaxvq_u32(vreinterpretq_u32_u8(all)) : vmaxvq_u16(vreinterpretq_u16_u8(all));
    const uint32_t rest = i < n * bytes ? syi_amax_group(x + i, n - i / bytes, type) : 0,
                   bits = syi_amax_bits(size, type);
    return rest > bits ? rest : bits;
}

SYI_INLINE void amax_groups(uint32_t *most, const char *x, size_t group, size_t n_groups,
                            const enum syi_float type)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    for (size_t g = 0; g < n_groups; g++, x += group * bytes)
        most[g] = group == 128  ? amax_group(x, 128, type)
                  : group == 32 ? syi_amax_group(x, 32, type)
                                : amax_group(x, group, type);
}

SYI_DEFINE_ENCODERS(neon, encode_groups, amax_groups)
SYI_DEFINE_PACKERS(neon)
