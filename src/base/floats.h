/*
 * Conversions between float types, for every backend: exact widening, rounding to nearest even, and a NaN narrows to the
 * canonical quiet one. Integers and exact operations only, so neither a compiler flag nor the state of the floating-point
 * unit can change a bit of them.
 */
#pragma once

#include <stdint.h>
#include <string.h>

/* Functions that run on a CUDA device, too. */
#ifdef __CUDACC__
#define SYI_BOTH __host__ __device__
#else
#define SYI_BOTH
#endif

SYI_BOTH static inline uint32_t syi_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

SYI_BOTH static inline float syi_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Ascending keys are descending values: distance from zero added to or taken from the middle, so that both zeros are one
   key. NaN comes last. `sign` and `infinity` are those bits of the type. */
SYI_BOTH static inline uint32_t syi_descending_key(uint32_t bits, uint32_t sign, uint32_t infinity)
{
    const uint32_t size = bits & (sign - 1), last = sign + (sign - 1);
    if (size > infinity)
        return last;
    return last - (bits & sign ? sign - size : sign + size);
}

/* A result of arithmetic: any NaN becomes the canonical one. */
SYI_BOTH static inline float syi_canonical(float value)
{
    return value == value ? value : syi_f32_from_bits(0x7fc00000u);
}

SYI_BOTH static inline float syi_bf16_to_f32(uint16_t bits)
{
    return syi_f32_from_bits((uint32_t)bits << 16);
}

SYI_BOTH static inline uint16_t syi_f32_to_bf16(float value)
{
    const uint32_t bits = syi_f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

SYI_BOTH static inline float syi_f16_to_f32(uint16_t bits)
{
    const uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    if (magnitude < 0x400u) /* subnormal: a count of 2^-24, normal in f32 */
        return syi_f32_from_bits(sign | syi_f32_bits((float)(int32_t)magnitude * 0x1p-24f));
    const uint32_t rebias = magnitude < 0x7c00u ? 112u << 23 : 224u << 23;
    return syi_f32_from_bits(sign | ((magnitude << 13) + rebias));
}

SYI_BOTH static inline uint16_t syi_f32_to_f16(float value)
{
    const uint32_t bits = syi_f32_bits(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u)
        return 0x7e00;
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000001u) /* 2^-25 and below round to zero */
        return sign;
    if (magnitude >= 0x38800000u) { /* normal in f16: drop 13 bits, the carry may reach the exponent */
        const uint32_t rebased = magnitude - (112u << 23);
        return (uint16_t)(sign | (rebased + 0xfffu + (rebased >> 13 & 1u)) >> 13);
    }
    const uint32_t shift = 126u - (magnitude >> 23); /* 14..24 */
    const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    const uint32_t kept = mantissa >> shift;
    const uint32_t rest = mantissa & ((1u << shift) - 1u);
    const uint32_t half = 1u << (shift - 1);
    return (uint16_t)(sign | (kept + (rest > half || (rest == half && (kept & 1u)))));
}

/* The order of additions in a dot product. */
enum {
    SYI_DOT_LANES = 16,  /* partial sums of one dot product */
    SYI_DOT_BLOCK = 8192 /* elements whose partial sums are folded into one */
};
