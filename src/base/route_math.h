/*
 * The exact arithmetic of moe_route, for every backend: scores, values of groups and weights. Every step is one IEEE
 * operation in the order written, or an integer; wherever a product is added to something, the product is exact.
 */
#ifndef SYI_ROUTE_MATH_H
#define SYI_ROUTE_MATH_H

#include "base/sample_math.h"

/* The weight of an exponential, e*2^40 rounded to a whole number, plus 2^52: its lower bits are the integer,
   as in syi_weight, and taking 2^52 away leaves it as a double. */
SYI_BOTH static inline double syi_weight_above(float e)
{
    return (double)e * 0x1p40 + 0x1p52;
}

/* The weight of e over the total: one division, one rounding. */
SYI_BOTH static inline float syi_share(float e, double total)
{
    return (float)((syi_weight_above(e) - 0x1p52) / total);
}

/* What shares are divided by; all are 0 when nothing weighs anything. */
SYI_BOTH static inline double syi_share_divisor(uint64_t total)
{
    return total > 0 ? (double)total : 1.0;
}

/* syi_exp without a branch and without a conversion: the lower bits of t/ln2 + 1.5*2^23 are the integer. */
SYI_BOTH static inline float syi_exp_negative(float t)
{
    const float shifted = fmaf(t, syi_f32_from_bits(0x3fb8aa3b), 12582912.0f);
    const float e = syi_exp_rest(t, shifted - 12582912.0f);
    return t >= -86.0f ? syi_f32_from_bits(syi_f32_bits(e) + (syi_f32_bits(shifted) << 23)) : 0.0f;
}

/* The key of -|x| is that of x with all bits flipped when x is positive. */
SYI_BOTH static inline uint32_t syi_negative_key(uint32_t key)
{
    return key >> 31 ? ~key : key;
}

/* The sigmoid of x, of its key and e = exp(-|x|). */
SYI_BOTH static inline float syi_sigmoid(uint32_t key, float e)
{
    return (key >> 31 ? 1.0f : e) / (1.0f + e);
}

/* The key of the sum of two values; it may be +inf, which is larger than every number. */
SYI_BOTH static inline uint32_t syi_key_sum(uint32_t a, uint32_t b)
{
    return syi_value_key(syi_key_value(a) + syi_key_value(b));
}

/* Keeps the two largest of what was there and one more. */
SYI_BOTH static inline void syi_keep_two(uint32_t *first, uint32_t *second, uint32_t key)
{
    const uint32_t smaller = key < *first ? key : *first;
    *first = key > *first ? key : *first;
    *second = smaller > *second ? smaller : *second;
}

/* The weight of a score: that of -inf is 0. */
SYI_BOTH static inline float syi_score_weight(float score)
{
    return score >= -0x1.fffffep127f ? score : 0.0f;
}

SYI_BOTH static inline float syi_renormalized(float weight, float sum)
{
    return sum != 0.0f ? weight / sum : 0.0f;
}

#endif
