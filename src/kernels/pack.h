/*
 * Groups of numbers to packed rows and back, each group with a scale of its own: q8_0 and q4_0, whose rows have the scales between
 * the codes, and nvfp4. Like encode.h these are loops that compilers make vector code of, compiled by every kernel table for its own
 * instructions: some groups at a time, first all their largest magnitudes, then all scales, then all codes, so that no group
 * waits for the division of its own scale. Numbers may be anything, NaN and infinity included.
 */
#pragma once

#include "kernels/encode.h"
#include "plan/kv_math.h"

enum { SYI_STRIP = 16 }; /* groups at a time */

SYI_INLINE void syi_widen(float *restrict x, const char *restrict from, size_t n, const enum syi_float type)
{
    for (size_t i = 0; i < n; i++)
        x[i] = type == SYI_FLOAT_F32   ? syi_f32_from_bits(syi_bits_32(from, i))
               : type == SYI_FLOAT_F16 ? syi_f16_to_f32(syi_bits_16(from, i))
                                       : syi_f32_from_bits((uint32_t)syi_bits_16(from, i) << 16);
}

/* NOLINTBEGIN(clang-analyzer-core.*): it follows a few rounds of a loop, and takes the rest of an array for uninitialised */

/* The magnitudes of numbers, NaN as 0 and infinity as FLT_MAX, and the largest of a group of them. */
SYI_INLINE void syi_magnitudes(uint32_t *restrict size, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        size[i] = syi_inline_magnitude(x[i]);
}

SYI_INLINE uint32_t syi_most(const uint32_t *size, const size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = size[i] > most ? size[i] : most;
    return most;
}

/* Whether the first number of the largest magnitude is negative; NONE is even, and above twice every place. */
SYI_INLINE uint32_t syi_sign_of_first(const float *x, const uint32_t *size, uint32_t most)
{
    enum { NONE = 2 * SYI_INLINE_GROUP };
    uint32_t at[SYI_INLINE_GROUP], first = NONE;
    for (uint32_t i = 0; i < SYI_INLINE_GROUP; i++)
        at[i] = size[i] == most ? 2 * i + (syi_f32_bits(x[i]) >> 31) : NONE;
    for (size_t i = 0; i < SYI_INLINE_GROUP; i++)
        first = at[i] < first ? at[i] : first;
    return most > 0 ? first & 1 : 0;
}

SYI_INLINE void syi_multiply(float *x, const float *factor, size_t n_groups, const size_t group)
{
    for (size_t g = 0; g < n_groups; g++, x += group) {
        __asm__("" : "+r"(x)); /* vectors of one group, not of one number of each */
        for (size_t i = 0; i < group; i++)
            x[i] *= factor[g];
    }
}

SYI_INLINE void syi_pack_inline(uint8_t *row, const char *dense, size_t n_groups, const bool four,
                                const enum syi_float type)
{
    enum { GROUP = SYI_INLINE_GROUP };
    const size_t n_codes = four ? GROUP / 2 : GROUP;
    float x[SYI_STRIP * GROUP], scale[SYI_STRIP], factor[SYI_STRIP];
    uint32_t size[SYI_STRIP * GROUP];
    uint8_t codes[SYI_STRIP * GROUP];
    for (size_t first = 0, n; first < n_groups; first += n) {
        n = n_groups - first < SYI_STRIP ? n_groups - first : SYI_STRIP;
        syi_widen(x, dense, n * GROUP, type);
        syi_magnitudes(size, x, n * GROUP);
        for (size_t g = 0; g < n; g++) {
            const uint32_t most = syi_most(size + g * GROUP, GROUP),
                           sign = four ? syi_sign_of_first(x + g * GROUP, size + g * GROUP, most) : 0;
            scale[g] = syi_inline_scale(four, syi_f32_from_bits(most | sign << 31));
        }
        for (size_t g = 0; g < n; g++)
            factor[g] = syi_inline_factor(scale[g]);
        syi_multiply(x, factor, n, GROUP);
        for (size_t i = 0; i < n * GROUP; i++)
            codes[i] = syi_inline_code(four, x[i]);
        for (size_t g = 0; g < n; g++, row += SYI_INLINE_SCALE + n_codes) {
            uint8_t *const own = codes + g * GROUP;
            const uint16_t bits = syi_f32_to_f16(scale[g]);
            for (size_t i = 0; i < GROUP / 2 && four; i++)
                own[i] = (uint8_t)(own[i] | own[i + GROUP / 2] << 4);
            memcpy(row, &bits, sizeof bits);
            memcpy(row + SYI_INLINE_SCALE, own, n_codes);
        }
        dense += n * GROUP * (type == SYI_FLOAT_F32 ? 4 : 2);
    }
}

SYI_INLINE void syi_pack_fp4(uint8_t *codes, uint8_t *scales, const char *dense, struct syi_fp4_scale scale,
                             size_t n_groups, const enum syi_float type)
{
    enum { GROUP = SYI_FP4_GROUP };
    float x[SYI_STRIP * GROUP], factor[SYI_STRIP];
    uint32_t size[SYI_STRIP * GROUP], most[SYI_STRIP];
    uint8_t own[SYI_STRIP], code[SYI_STRIP * GROUP];
    for (size_t first = 0, n; first < n_groups; first += n) {
        n = n_groups - first < SYI_STRIP ? n_groups - first : SYI_STRIP;
        syi_widen(x, dense, n * GROUP, type);
        syi_magnitudes(size, x, n * GROUP);
        for (size_t g = 0; g < n; g++)
            most[g] = syi_most(size + g * GROUP, GROUP);
        for (size_t g = 0; g < n; g++)
            own[g] = syi_fp4_byte(scale, most[g]);
        for (size_t g = 0; g < n; g++)
            factor[g] = syi_fp4_factor(scale, own[g]);
        syi_multiply(x, factor, n, GROUP);
        for (size_t i = 0; i < n * GROUP; i++)
            code[i] = syi_f32_to_e2m1(x[i]);
        for (size_t i = 0; i < n * SYI_FP4_BYTES; i++)
            codes[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
        memcpy(scales + first, own, n);
        codes += n * SYI_FP4_BYTES;
        dense += n * GROUP * (type == SYI_FLOAT_F32 ? 4 : 2);
    }
}

/* Twice the magnitude of a code of e2m1: 0 1 2 3 4 6 8 12. */
SYI_INLINE int syi_twice_e2m1(int code)
{
    const int k = code & 7, above = 2 * k - 4, top = 4 * k - 16, most = above > k ? above : k;
    return top > most ? top : most;
}

/* The product of a code and the scale of its group is exact. */
SYI_INLINE void syi_unpack_fp4(char *dense, const uint8_t *codes, const uint8_t *scales, float decode,
                               size_t n_groups, const enum syi_float type)
{
    enum { GROUP = SYI_FP4_GROUP };
    uint8_t code[SYI_STRIP * GROUP];
    float half[SYI_STRIP], x[SYI_STRIP * GROUP];
    uint16_t narrow[SYI_STRIP * GROUP];
    for (size_t first = 0, n, bytes; first < n_groups; first += n, dense += bytes) {
        n = n_groups - first < SYI_STRIP ? n_groups - first : SYI_STRIP;
        bytes = n * GROUP * (type == SYI_FLOAT_F32 ? 4 : 2);
        for (size_t i = 0; i < n * SYI_FP4_BYTES; i++) {
            code[2 * i] = codes[i] & 15;
            code[2 * i + 1] = codes[i] >> 4;
        }
        codes += n * SYI_FP4_BYTES;
        for (size_t g = 0; g < n; g++)
            half[g] = syi_e4m3_to_f32(scales[first + g]) * 0.5f;
        for (size_t i = 0; i < n * GROUP; i++)
            x[i] = (float)syi_twice_e2m1(code[i]);
        syi_multiply(x, half, n, GROUP);
        for (size_t i = 0; i < n * GROUP; i++) {
            const uint32_t sign = (uint32_t)(code[i] & 8) << 28;
            x[i] = syi_canonical(syi_f32_from_bits(syi_f32_bits(x[i]) ^ sign) * decode);
        }
        for (size_t i = 0; i < n * GROUP && type != SYI_FLOAT_F32; i++)
            narrow[i] = type == SYI_FLOAT_F16 ? syi_f32_to_f16(x[i]) : syi_f32_to_bf16(x[i]);
        memcpy(dense, type == SYI_FLOAT_F32 ? (void *)x : (void *)narrow, bytes);
    }
}

/* NOLINTEND(clang-analyzer-core.*) */

/* The functions of a table, and their list. */
#define SYI_PACK_TYPE(name, type) \
    static void q8_0_##name(void *row, const void *x, size_t n_groups) \
    { \
        syi_pack_inline(row, x, n_groups, false, type); \
    } \
    static void q4_0_##name(void *row, const void *x, size_t n_groups) \
    { \
        syi_pack_inline(row, x, n_groups, true, type); \
    } \
    static void fp4_##name(void *codes, void *scales, const void *x, const struct syi_fp4_scale *scale, \
                           size_t n_groups) \
    { \
        syi_pack_fp4(codes, scales, x, *scale, n_groups, type); \
    } \
    static void fp4_to_##name(void *x, const void *codes, const void *scales, float decode, size_t n_groups) \
    { \
        syi_unpack_fp4(x, codes, scales, decode, n_groups, type); \
    }
#define SYI_DEFINE_PACKERS(isa) \
    SYI_PACK_TYPE(f32, SYI_FLOAT_F32) \
    SYI_PACK_TYPE(f16, SYI_FLOAT_F16) \
    SYI_PACK_TYPE(bf16, SYI_FLOAT_BF16) \
    const struct syi_packers syi_packers_##isa = { \
        .inlined = {{q8_0_f32, q8_0_f16, q8_0_bf16}, {q4_0_f32, q4_0_f16, q4_0_bf16}}, \
        .fp4 = {fp4_f32, fp4_f16, fp4_bf16}, \
        .from_fp4 = {fp4_to_f32, fp4_to_f16, fp4_to_bf16}, \
    };
