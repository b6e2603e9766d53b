/*
 * Groups of numbers to 8-bit codes, as loops that compilers make vector code of. Every kernel table compiles them for its
 * own instructions: they are integer operations, a product or a quotient, and an addition that rounds, so that all
 * tables give the same bits. Numbers are finite: of another group the codes are not defined, and codes.h makes them.
 */
#pragma once

#include "kernels/kernels.h"

SYI_INLINE uint16_t syi_bits_16(const char *x, size_t i)
{
    uint16_t bits;
    memcpy(&bits, x + 2 * i, sizeof bits);
    return bits;
}

SYI_INLINE uint32_t syi_bits_32(const char *x, size_t i)
{
    uint32_t bits;
    memcpy(&bits, x + 4 * i, sizeof bits);
    return bits;
}

/* In the places of an f32 a number of f16 is 2^112 times too small; the product is exact. */
SYI_INLINE float syi_number(const char *x, size_t i, const enum syi_float type)
{
    if (type == SYI_FLOAT_F32)
        return syi_f32_from_bits(syi_bits_32(x, i));
    const uint32_t bits = syi_bits_16(x, i);
    if (type == SYI_FLOAT_BF16)
        return syi_f32_from_bits(bits << 16);
#ifdef __aarch64__
    __fp16 number; /* an instruction widens it */
    memcpy(&number, x + 2 * i, sizeof number);
    return number;
#else
    return syi_f32_from_bits((bits & 0x8000u) << 16 | (bits & 0x7fffu) << 13) * 0x1p112f;
#endif
}

/* The exponent of the number, at least that of the smallest normal code, moved up so that a sum rounds to the last place
   of the code; see syi_round_code. */
SYI_INLINE uint32_t syi_short_float(float y, const uint32_t least, const uint32_t mantissa_bits,
                                    const uint32_t most)
{
    const uint32_t all = syi_f32_bits(y) & 0x7fffffffu, size = all < most ? all : most;
    const uint32_t own = size & 0x7f800000u, exponent = own > least << 23 ? own : least << 23;
    const uint32_t shifter = exponent + ((23u - mantissa_bits) << 23);
    const uint32_t sum = syi_f32_bits(syi_f32_from_bits(size) + syi_f32_from_bits(shifter));
    return sum - shifter + ((exponent - (least << 23)) >> (23u - mantissa_bits));
}

/* The code of y, with the sign of x. */
SYI_INLINE uint8_t syi_finite_code(float x, float y, const enum syi_code code)
{
    if (code == SYI_CODE_I8)
        return (uint8_t)syi_f32_bits(y + 0x1.8p23f);
    const uint32_t size = code == SYI_CODE_E4M3 ? syi_short_float(y, 121, 3, 0x43e00000u)
                                                : syi_short_float(y, 113, 2, 0x47600000u);
    return (uint8_t)(size | (syi_f32_bits(x) >> 24 & 0x80u));
}

/* 1 / by as a sum of two numbers; `rest` is some 2^-24 of it. */
struct syi_inverse {
    float by, first, rest;
};

SYI_INLINE struct syi_inverse syi_inverse_of(float by)
{
    const float first = 1.0f / by;
#if defined(__FMA__) || defined(__aarch64__)
    return (struct syi_inverse){by, first, __builtin_fmaf(-by, first, 1.0f) * first};
#else
    return (struct syi_inverse){by, first, 0.0f};
#endif
}

/*
 * x / by for codes: before the one rounding the sum is 3 / 2^48 of x / by off at most, for divisors from 2^-80 to 2^98. So the
 * result is another number only where x / by is so near the middle of two numbers, and the code only where one of these
 * two is the middle of two codes. The few pairs of significands that are so near are listed by tests/isa/codes.c: all have the
 * right result, except of divisors whose significand is all ones, which are not allowed. Where the code is 0 the sign of
 * the quotient may be wrong. Without the instruction a division is faster.
 */
SYI_INLINE float syi_quotient(float x, struct syi_inverse inverse)
{
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_fmaf(x, inverse.first, x * inverse.rest);
#else
    return x / inverse.by;
#endif
}

SYI_INLINE void syi_encode_group(uint8_t *restrict codes, const char *restrict x, struct syi_inverse inverse,
                                 size_t n, const enum syi_code code, const enum syi_float type,
                                 const bool divide)
{
    for (size_t i = 0; i < n; i++) {
        const float number = syi_number(x, i, type);
        codes[i] =
            syi_finite_code(number, divide ? syi_quotient(number, inverse) : number * inverse.by, code);
    }
}

typedef void syi_encode_group_fn(uint8_t *restrict codes, const char *restrict x, struct syi_inverse inverse,
                                 size_t n, const enum syi_code code, const enum syi_float type,
                                 const bool divide);

/* The usual groups have loops of a constant length, and none waits for its own division. */
SYI_INLINE void syi_encode_groups_by(uint8_t *codes, const char *x, const float *by, size_t group,
                                     size_t n_groups, const enum syi_code code, const enum syi_float type,
                                     const bool divide, syi_encode_group_fn *encode)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    struct syi_inverse next = syi_inverse_of(n_groups > 0 ? by[0] : 1.0f);
    for (size_t g = 0; g < n_groups; g++, codes += group, x += group * bytes) {
        const struct syi_inverse inverse = next;
        next = syi_inverse_of(by[g + 1 < n_groups ? g + 1 : g]);
        if (group == 128)
            encode(codes, x, inverse, 128, code, type, divide);
        else if (group == 32)
            encode(codes, x, inverse, 32, code, type, divide);
        else
            encode(codes, x, inverse, group, code, type, divide);
    }
}

SYI_INLINE void syi_encode_groups(uint8_t *codes, const char *x, const float *by, size_t group,
                                  size_t n_groups, const enum syi_code code, const enum syi_float type,
                                  const bool divide)
{
    syi_encode_groups_by(codes, x, by, group, n_groups, code, type, divide, syi_encode_group);
}

SYI_INLINE uint32_t syi_amax_32(const char *x, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t size = syi_bits_32(x, i) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    return most;
}

SYI_INLINE uint32_t syi_amax_16(const char *x, size_t n)
{
    uint16_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint16_t size = syi_bits_16(x, i) & 0x7fffu;
        most = size > most ? size : most;
    }
    return most;
}

/* As the bits of an f32, in the same order: infinity is 7f800000, a NaN is above it. */
SYI_INLINE uint32_t syi_amax_bits(uint32_t most, const enum syi_float type)
{
    return type == SYI_FLOAT_F32    ? most
           : type == SYI_FLOAT_BF16 ? most << 16
                                    : syi_f32_bits(syi_f16_to_f32((uint16_t)most));
}

SYI_INLINE uint32_t syi_amax_group(const char *x, size_t n, const enum syi_float type)
{
    return syi_amax_bits(type == SYI_FLOAT_F32 ? syi_amax_32(x, n) : syi_amax_16(x, n), type);
}

/* In parts of a constant length, so that one does not wait for the other. */
SYI_INLINE uint32_t syi_amax_long(const char *x, size_t n, const enum syi_float type, const size_t bytes)
{
    uint32_t most = syi_amax_group(x, n % 128, type);
    for (size_t i = n % 128; i < n; i += 128) {
        const uint32_t part = syi_amax_group(x + i * bytes, 128, type);
        most = part > most ? part : most;
    }
    return most;
}

SYI_INLINE void syi_amax_groups(uint32_t *most, const char *x, size_t group, size_t n_groups,
                                const enum syi_float type)
{
    const size_t bytes = type == SYI_FLOAT_F32 ? 4 : 2;
    for (size_t g = 0; g < n_groups; g++, x += group * bytes)
        most[g] = group == 128  ? syi_amax_group(x, 128, type)
                  : group == 32 ? syi_amax_group(x, 32, type)
                                : syi_amax_long(x, group, type, bytes);
}

/* The functions of a table, and their lists. `decode` has the arguments of syi_decode_fn, a code and a type. */
#define SYI_DECODE(name, code, type, decode) \
    static void name(void *dst, const void *codes, const float *w, size_t group, size_t n_groups) \
    { \
        decode(dst, codes, w, group, n_groups, code, type); \
    }
#define SYI_DECODE_TYPES(name, code, decode) \
    SYI_DECODE(name##_to_f32, code, SYI_FLOAT_F32, decode) \
    SYI_DECODE(name##_to_f16, code, SYI_FLOAT_F16, decode) \
    SYI_DECODE(name##_to_bf16, code, SYI_FLOAT_BF16, decode)
#define SYI_DEFINE_DECODERS(isa, decode) \
    SYI_DECODE_TYPES(e4m3, SYI_CODE_E4M3, decode) \
    SYI_DECODE_TYPES(e5m2, SYI_CODE_E5M2, decode) \
    SYI_DECODE_TYPES(i8, SYI_CODE_I8, decode) \
    syi_decode_fn *const syi_decode_##isa[SYI_N_CODES][SYI_N_FLOATS] = { \
        {e4m3_to_f32, e4m3_to_f16, e4m3_to_bf16}, \
        {e5m2_to_f32, e5m2_to_f16, e5m2_to_bf16}, \
        {i8_to_f32, i8_to_f16, i8_to_bf16}, \
    };

/* `encode` has the arguments of syi_encode_groups, `largest` of syi_amax_groups. */
#define SYI_ENCODE(name, code, type, divide, encode) \
    static void name(void *codes, const void *x, const float *by, size_t group, size_t n_groups) \
    { \
        encode(codes, x, by, group, n_groups, code, type, divide); \
    }
#define SYI_ENCODE_TYPES(name, code, divide, encode) \
    SYI_ENCODE(name##_f32, code, SYI_FLOAT_F32, divide, encode) \
    SYI_ENCODE(name##_f16, code, SYI_FLOAT_F16, divide, encode) \
    SYI_ENCODE(name##_bf16, code, SYI_FLOAT_BF16, divide, encode)
#define SYI_AMAX(name, type, largest) \
    static void name(uint32_t *most, const void *x, size_t group, size_t n_groups) \
    { \
        largest(most, x, group, n_groups, type); \
    }
#define SYI_DEFINE_ENCODERS(isa, encode, largest) \
    SYI_ENCODE_TYPES(times_e4m3, SYI_CODE_E4M3, false, encode) \
    SYI_ENCODE_TYPES(times_e5m2, SYI_CODE_E5M2, false, encode) \
    SYI_ENCODE_TYPES(times_i8, SYI_CODE_I8, false, encode) \
    SYI_ENCODE_TYPES(over_e4m3, SYI_CODE_E4M3, true, encode) \
    SYI_ENCODE_TYPES(over_e5m2, SYI_CODE_E5M2, true, encode) \
    SYI_ENCODE_TYPES(over_i8, SYI_CODE_I8, true, encode) \
    SYI_AMAX(amax_f32, SYI_FLOAT_F32, largest) \
    SYI_AMAX(amax_f16, SYI_FLOAT_F16, largest) \
    SYI_AMAX(amax_bf16, SYI_FLOAT_BF16, largest) \
    const struct syi_encoders syi_encoders_##isa = { \
        .amax = {amax_f32, amax_f16, amax_bf16}, \
        .times = {{times_e4m3_f32, times_e4m3_f16, times_e4m3_bf16}, \
                  {times_e5m2_f32, times_e5m2_f16, times_e5m2_bf16}, \
                  {times_i8_f32, times_i8_f16, times_i8_bf16}}, \
        .over = {{over_e4m3_f32, over_e4m3_f16, over_e4m3_bf16}, \
                 {over_e5m2_f32, over_e5m2_f16, over_e5m2_bf16}, \
                 {over_i8_f32, over_i8_f16, over_i8_bf16}}, \
    };
