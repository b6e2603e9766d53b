/*
 * Numbers of eight bits: the OCP formats e4m3 (no infinity; 7f and ff are NaN; largest 448) and e5m2 (a short f16),
 * the scale format e8m0 (a power of two, ff is NaN), and int8. Like the 16-bit floats they are converted by integer
 * operations and exact f32 ones. There are no branches, so that compilers make vector code of loops over them.
 */
#pragma once

#include "base/base.h"

/* The 8-bit types that stand for numbers of a row. */
enum syi_code { SYI_CODE_E4M3, SYI_CODE_E5M2, SYI_CODE_I8, SYI_N_CODES };

/* The types of rows that are computed with. */
enum syi_float { SYI_FLOAT_F32, SYI_FLOAT_F16, SYI_FLOAT_BF16, SYI_N_FLOATS };

SYI_BOTH static inline enum syi_float syi_float_of(sy_type type)
{
    return type == SY_TYPE_F16 ? SYI_FLOAT_F16 : type == SY_TYPE_BF16 ? SYI_FLOAT_BF16 : SYI_FLOAT_F32;
}

/* ---- To f32, exactly ---- */

/* Sign, exponent and mantissa in the places of an f32 make a number 2^120 times too small, subnormal where the code
   is; the product puts that right without rounding. */
SYI_BOTH static inline float syi_e4m3_to_f32(uint8_t code)
{
    const uint32_t magnitude = code & 0x7fu, sign = (uint32_t)(code & 0x80u) << 24;
    const float value = syi_f32_from_bits(sign | magnitude << 20) * 0x1p120f;
    return magnitude == 0x7fu ? syi_f32_from_bits(0x7fc00000u) : value;
}

SYI_BOTH static inline float syi_e5m2_to_f32(uint8_t code)
{
    return syi_f16_to_f32((uint16_t)(code << 8));
}

SYI_BOTH static inline float syi_i8_to_f32(uint8_t code)
{
    return (float)(int8_t)code;
}

SYI_BOTH static inline float syi_e8m0_to_f32(uint8_t code)
{
    const uint32_t bits = code == 0 ? 0x00400000u : (uint32_t)code << 23; /* 2^-127 is subnormal */
    return syi_f32_from_bits(code == 255 ? 0x7fc00000u : bits);
}

/* Of four bits: 0 .5 1 1.5 2 3 4 6, and a sign. */
SYI_BOTH static inline float syi_e2m1_to_f32(uint32_t code)
{
    return syi_f32_from_bits((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
}

SYI_BOTH static inline float syi_code_to_f32(enum syi_code code, uint8_t bits)
{
    return code == SYI_CODE_E4M3   ? syi_e4m3_to_f32(bits)
           : code == SYI_CODE_E5M2 ? syi_e5m2_to_f32(bits)
                                   : syi_i8_to_f32(bits);
}

/* ---- From f32, to nearest even, saturating ---- */

/*
 * A number added to a power of two 2^(23 - mantissa bits) times its own is rounded to its last place, and stands as
 * an integer in the lower bits of the sum. `least` is the exponent, as f32 counts it, of the smallest normal number:
 * below it the last place does not get any finer. A carry into the next exponent is the right code by itself.
 */
SYI_BOTH static inline uint32_t syi_round_code(uint32_t magnitude, uint32_t least, uint32_t mantissa_bits)
{
    const uint32_t own = magnitude >> 23, exponent = own > least ? own : least;
    const uint32_t shifter = (exponent + 23u - mantissa_bits) << 23;
    const float sum = syi_f32_from_bits(magnitude) + syi_f32_from_bits(shifter);
    return syi_f32_bits(sum) - shifter + ((exponent - least) << mantissa_bits);
}

/* Beyond the largest number, infinity included: that number. NaN: 7f. */
SYI_BOTH static inline uint8_t syi_f32_to_e4m3(float value)
{
    const uint32_t bits = syi_f32_bits(value), magnitude = bits & 0x7fffffffu;
    const uint32_t code =
        syi_round_code(magnitude < 0x43e00000u ? magnitude : 0x43e00000u, 121, 3) | (bits >> 24 & 0x80u);
    return (uint8_t)(magnitude > 0x7f800000u ? 0x7fu : code);
}

/* Beyond 57344, infinity included: 57344. NaN: 7e. */
SYI_BOTH static inline uint8_t syi_f32_to_e5m2(float value)
{
    const uint32_t bits = syi_f32_bits(value), magnitude = bits & 0x7fffffffu;
    const uint32_t code =
        syi_round_code(magnitude < 0x47600000u ? magnitude : 0x47600000u, 113, 2) | (bits >> 24 & 0x80u);
    return (uint8_t)(magnitude > 0x7f800000u ? 0x7eu : code);
}

/* Of four bits. Beyond 6, infinity included: 6. NaN: 0. */
SYI_BOTH static inline uint8_t syi_f32_to_e2m1(float value)
{
    const uint32_t bits = syi_f32_bits(value), magnitude = bits & 0x7fffffffu;
    const uint32_t code =
        syi_round_code(magnitude < 0x40c00000u ? magnitude : 0x40c00000u, 127, 1) | (bits >> 28 & 8u);
    return (uint8_t)(magnitude > 0x7f800000u ? 0u : code);
}

/* From 1.5 * 2^23 on an f32 has no bits below one. NaN: 0. */
SYI_BOTH static inline uint8_t syi_f32_to_i8(float value)
{
    const float high = value < 127.0f ? value : 127.0f, clamped = high > -128.0f ? high : -128.0f;
    const uint32_t code = syi_f32_bits(clamped + 0x1.8p23f);
    return (uint8_t)(value == value ? code : 0u);
}

/* The largest number of a type. */
SYI_BOTH static inline float syi_code_most(enum syi_code code)
{
    return code == SYI_CODE_E4M3 ? 448.0f : code == SYI_CODE_E5M2 ? 57344.0f : 127.0f;
}

/* Of the bits of a magnitude; infinity counts as FLT_MAX. */
SYI_BOTH static inline float syi_finite_magnitude(uint32_t bits)
{
    return syi_f32_from_bits(bits < 0x7f800000u ? bits : 0x7f7fffffu);
}

SYI_BOTH static inline uint8_t syi_f32_to_code(enum syi_code code, float value)
{
    return code == SYI_CODE_E4M3   ? syi_f32_to_e4m3(value)
           : code == SYI_CODE_E5M2 ? syi_f32_to_e5m2(value)
                                   : syi_f32_to_i8(value);
}
