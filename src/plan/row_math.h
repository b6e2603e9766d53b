/*
 * Scales of quantised rows, for every backend: what is stored for the largest magnitude of a group, and by what its
 * numbers are divided or multiplied before they are rounded to codes.
 */
#pragma once

#include "plan/load.h"
#include "plan/plan.h"

struct syi_row_scale {
    uint32_t bits; /* as it is stored: of an f32, or a byte */
    float by;      /* the factor of numbers, or with syi_row_divides their divisor */
};

SYI_BOTH static inline bool syi_row_divides(const struct syi_row_codes_plan *p)
{
    return !p->e8m0 && p->code_math == SY_CODE_MATH_DIV;
}

/* The byte of a power of two, 2^-127 to 2^127. For the least one not below u, subnormal numbers up to 2^-127 are 0. */
SYI_BOTH static inline uint32_t syi_row_e8m0(const struct syi_row_codes_plan *p, float a, float most)
{
    const uint32_t bits = syi_f32_bits(a), exponent = bits >> 23, largest = (syi_f32_bits(most) >> 23) - 127u;
    if (p->scale_math != SY_SCALE_MATH_UP)
        return exponent > largest ? exponent - largest : 0;
    if (exponent >
        largest +
            1) /* the quotient is a normal number, and above a power of two where a is above most's significand */
        return exponent - largest + ((bits & 0x7fffffu) > (syi_f32_bits(most) & 0x7fffffu));
    const uint32_t u = syi_f32_bits(a / most);
    return u <= 0x00400000u ? 0 : (u >> 23) + ((u & 0x7fffffu) != 0);
}

/* For the bits of the largest magnitude of a group, an infinite one included. */
SYI_BOTH static inline struct syi_row_scale syi_row_scale_of(const struct syi_row_codes_plan *p,
                                                             uint32_t magnitude)
{
    const float amax = syi_finite_magnitude(magnitude);
    const float a = amax > p->a_min ? amax : p->a_min, most = syi_code_most(p->code);
    struct syi_row_scale scale;
    if (p->e8m0) {
        scale.bits = syi_row_e8m0(p, a, most);
        scale.by = syi_e8m0_to_f32((uint8_t)(254u - scale.bits));
        return scale;
    }
    const float s = p->scale_math == SY_SCALE_MATH_DIV ? a / most : a * (1.0f / most);
    scale.bits = syi_f32_bits(s);
    if (s == 0.0f) /* every number becomes a zero with its sign */
        scale.by = syi_row_divides(p) ? syi_f32_from_bits(0x7f800000u) : 0.0f;
    else
        scale.by = p->code_math == SY_CODE_MATH_DIV   ? s
                   : p->code_math == SY_CODE_MATH_RCP ? 1.0f / s
                                                      : most / a;
    return scale;
}

/* The code of a number. */
SYI_BOTH static inline uint8_t syi_row_code(const struct syi_row_codes_plan *p, float x, float by)
{
    return syi_f32_to_code(p->code, syi_row_divides(p) ? x / by : x * by);
}

/* Where the scale of a group is, from the first one on. Not of ROW: also of rows and groups that are not there. */
SYI_BOTH static inline int64_t syi_scale_offset(const struct syi_row_codes_plan *p, int64_t row, int64_t g)
{
    const int64_t at = p->e8m0 ? g : 4 * g; /* byte of its row */
    if (p->layout == SY_SCALE_ROW)
        return row * p->scales.stride + at;
    if (p->layout == SY_SCALE_COL)
        return (at / 4 * p->scale_rows + row) * p->scales.stride + at % 4;
    return (row / 128 * (p->scale_columns / 4) + g / 4) * p->scales.stride + row % 32 * 16 +
           row / 32 % 4 * 4 + g % 4;
}

SYI_BOTH static inline void syi_row_store_scale(const struct syi_row_codes_plan *p, unsigned char *scales,
                                                int64_t g, uint32_t bits)
{
    if (p->e8m0)
        scales[g] = (unsigned char)bits;
    else
        syi_store_u32(scales + g * 4, bits);
}

SYI_BOTH static inline float syi_row_load_scale(const struct syi_row_codes_plan *p,
                                                const unsigned char *scales, int64_t g)
{
    return p->e8m0 ? syi_e8m0_to_f32(scales[g]) : syi_f32_from_bits(syi_load_u32(scales + g * 4));
}
