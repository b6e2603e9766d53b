/*
 * 8-bit codes to numbers, for both NEON tables, which differ in how they round to bf16. Every step is made for 64 codes before the
 * next, so that few steps wait in the queues of the core for the one before. NaN products are the canonical one: syi_fp_enter
 * has enabled default NaNs.
 */
#pragma once

#include "kernels/encode.h"
#include "kernels/neon.h"

enum { STRIP = 64, EIGHTS = STRIP / 8 };

/* Four numbers and the next four. */
struct eight {
    float32x4_t low, high;
};

SYI_INLINE void put_bf16(uint8_t *y, struct eight v)
{
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
    vst1q_u8(y, vreinterpretq_u8_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(v.low), v.high)));
#else
    const uint16x8_t p = vreinterpretq_u16_f32(v.low), q = vreinterpretq_u16_f32(v.high);
    vst1q_u8(y, vreinterpretq_u8_u16(round_halves_bf16(vuzp2q_u16(p, q), vuzp1q_u16(p, q))));
#endif
}

SYI_INLINE void put_eight(uint8_t *y, struct eight v, const enum syi_float type)
{
    if (type == SYI_FLOAT_BF16) {
        put_bf16(y, v);
    } else if (type == SYI_FLOAT_F16) {
        vst1q_u8(y, vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(v.low), v.high)));
    } else {
        vst1q_u8(y, vreinterpretq_u8_f32(v.low));
        vst1q_u8(y + 16, vreinterpretq_u8_f32(v.high));
    }
}

/* Upper halves of eight f32. As syi_e4m3_to_f32 numbers of e4m3 are 2^120 times too small, and of e5m2 2^112 times. Codes of
   infinity and NaN (7c on, of e4m3 7f) have the largest exponent, with `rare` false numbers as if they were finite. int8: the
   integer and 128. */
SYI_INLINE uint16x8_t place_eight(int8x16_t codes, size_t half, const enum syi_code code, const bool rare)
{
    if (code == SYI_CODE_I8) {
        const uint8x16_t above = vreinterpretq_u8_s8(codes), none = vdupq_n_u8(0);
        return vreinterpretq_u16_u8(half == 0 ? vzip1q_u8(above, none) : vzip2q_u8(above, none));
    }
    const bool e4m3 = code == SYI_CODE_E4M3;
    const int8x8_t some = half == 0 ? vget_low_s8(codes) : vget_high_s8(codes);
    const uint16x8_t wide = vreinterpretq_u16_s16(e4m3 ? vshll_n_s8(some, 4) : vshll_n_s8(some, 5));
    const uint16x8_t placed = vandq_u16(wide, vdupq_n_u16(e4m3 ? 0x87f0 : 0x8fe0));
    if (!rare)
        return placed;
    const uint16x8_t least = vdupq_n_u16(e4m3 ? 0x07f0 : 0x0f80);
    const uint16x8_t is_huge = vcgeq_u16(vandq_u16(placed, vdupq_n_u16(0x7fff)), least);
    return vorrq_u16(placed, vandq_u16(is_huge, vdupq_n_u16(e4m3 ? 0xffff : 0x7f80)));
}

/* 2^23 and an integer is 4b000000 and the integer. */
SYI_INLINE struct eight widen_eight(uint16x8_t placed, const enum syi_code code)
{
    const uint16x8_t none = vdupq_n_u16(0), top = vdupq_n_u16(0x4b00);
    if (code != SYI_CODE_I8)
        return (struct eight){vreinterpretq_f32_u16(vzip1q_u16(none, placed)),
                              vreinterpretq_f32_u16(vzip2q_u16(none, placed))};
    const float32x4_t base = vdupq_n_f32(0x1.0001p23f);
    return (struct eight){vsubq_f32(vreinterpretq_f32_u16(vzip1q_u16(placed, top)), base),
                          vsubq_f32(vreinterpretq_f32_u16(vzip2q_u16(placed, top)), base)};
}

SYI_INLINE int8x16_t load_codes(const int8_t *codes, const enum syi_code code)
{
    const int8x16_t v = vld1q_s8(codes);
    return code == SYI_CODE_I8 ? veorq_s8(v, vdupq_n_s8(-128)) : v;
}

SYI_INLINE struct eight times(struct eight x, float w)
{
    return (struct eight){vmulq_n_f32(x.low, w), vmulq_n_f32(x.high, w)};
}

/* Of the first half by w[0], of the other by w[1]. Stores of f32 stay in the order of their addresses: a core that sees whole lines
   written does not read them first. */
SYI_INLINE void decode_strip(uint8_t *y, const int8_t *codes, const float w[2], const enum syi_code code,
                             const enum syi_float type)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    int8x16_t c[EIGHTS / 2];
    uint16x8_t placed[EIGHTS];
    struct eight v[EIGHTS];
    for (size_t k = 0; k < EIGHTS / 2; k++)
        c[k] = load_codes(codes + 16 * k, code);
    for (size_t k = 0; k < EIGHTS; k++)
        placed[k] = place_eight(c[k / 2], k % 2, code, false);
    for (size_t k = 0; k < EIGHTS; k++)
        v[k] = widen_eight(placed[k], code);
    for (size_t k = 0; k < EIGHTS; k++)
        v[k] = times(v[k], w[k / (EIGHTS / 2)]);
    for (size_t k = 0; k < EIGHTS; k++) {
        put_eight(y + 8 * k * bytes, v[k], type);
        if (type == SYI_FLOAT_F32 && code != SYI_CODE_I8)
            __asm__("" ::: "memory");
    }
}

/* By which placed numbers are too small. */
SYI_INLINE float up_of(const enum syi_code code)
{
    return code == SYI_CODE_E4M3 ? 0x1p120f : code == SYI_CODE_E5M2 ? 0x1p112f : 1.0f;
}

/* Infinity or NaN among the codes of a strip; the integer units have nothing else to do. */
SYI_INLINE bool has_rare(const int8_t *codes, const enum syi_code code)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), next = code == SYI_CODE_E4M3 ? ones : 4 * ones;
    uint64_t found = 0;
    for (size_t k = 0; k < EIGHTS && code != SYI_CODE_I8; k++) {
        uint64_t bits;
        memcpy(&bits, codes + 8 * k, sizeof bits);
        found |= (bits & 127 * ones) + next;
        __asm__("" : "+r"(found)); /* not as vectors */
    }
    return (found & 128 * ones) != 0;
}

/* Any codes and scales. Returns how many codes that were. */
static __attribute__((noinline)) size_t decode_16s(uint8_t *y, const int8_t *codes, float w, size_t n,
                                                   const enum syi_code code, const enum syi_float type)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t k = 0; k < 2; k++) {
            const struct eight v = widen_eight(place_eight(load_codes(codes + i, code), k, code, true), code);
            put_eight(y + (i + 8 * k) * bytes, times(times(v, up_of(code)), w), type);
        }
    return i;
}

/* A strip with scales for its halves. Up to 2^7 a scale times `up` is exact, and one product replaces two. */
SYI_INLINE void decode_halves(uint8_t *y, const int8_t *codes, float first, float second,
                              const enum syi_code code, const enum syi_float type)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    const float up = up_of(code);
    const bool usual = first > -0x1p7f && first < 0x1p7f && second > -0x1p7f && second < 0x1p7f;
    if (usual && !has_rare(codes, code)) {
        decode_strip(y, codes, (const float[2]){first * up, second * up}, code, type);
    } else {
        decode_16s(y, codes, first, STRIP / 2, code, type);
        decode_16s(y + STRIP / 2 * bytes, codes + STRIP / 2, second, STRIP / 2, code, type);
    }
}

SYI_INLINE void decode_groups(uint8_t *y, const int8_t *codes, const float *w, size_t group, size_t n_groups,
                              const enum syi_code code, const enum syi_float type)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    size_t g = 0;
    for (; group == STRIP / 2 && g + 2 <= n_groups; g += 2)
        decode_halves(y + g * group * bytes, codes + g * group, w[g], w[g + 1], code, type);
    for (; g < n_groups; g++) {
        const int8_t *const from = codes + g * group;
        uint8_t *const to = y + g * group * bytes;
        size_t i = 0;
        for (; i + STRIP <= group; i += STRIP)
            decode_halves(to + i * bytes, from + i, w[g], w[g], code, type);
        i += decode_16s(to + i * bytes, from + i, w[g], group - i, code, type);
        if (i < group)
            syi_decode_scalar[code][type](to + i * bytes, from + i, w + g, group - i, 1);
    }
}
