/*
 * The exact arithmetic of sample, for every backend: keys, exponentials, fixed-point weights, scores, counter-based noise
 * and logarithms. Every step is one IEEE operation in the order written, or an integer; wherever a product is added to
 * something without fma, the product is exact, so that not even contraction could change a bit.
 */
#pragma once

#include "base/base.h"

#include <math.h>

/* ---- Keys ---- */

/* Key of a logit: an unsigned integer that orders like the canonical value (NaN = -inf, +inf = FLT_MAX, -0
   = +0). */
#define SYI_KEY_MINUS_INF 0x007fffffu
#define SYI_KEY_MOST 0xff7fffffu /* of FLT_MAX and +inf */

/* SY_ROW_NAN or SY_ROW_INF for the bits of an f32, else 0. */
SYI_BOTH static inline uint32_t syi_key_flags(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u ? SY_ROW_NAN : bits == 0x7f800000u ? SY_ROW_INF : 0u;
}

SYI_BOTH static inline uint32_t syi_key(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return SYI_KEY_MINUS_INF;
    if (bits == 0x7f800000u)
        return SYI_KEY_MOST;
    return bits >> 31 && bits != 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The canonical value of a key, and back. */
SYI_BOTH static inline float syi_key_value(uint32_t key)
{
    return syi_f32_from_bits(key >> 31 ? key & 0x7fffffffu : ~key);
}

SYI_BOTH static inline uint32_t syi_value_key(float canonical)
{
    const uint32_t bits = syi_f32_bits(canonical);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* ---- Weights ---- */

#define SYI_WEIGHT_ONE (UINT64_C(1) << 40) /* fixed-point weight of e = 1 */

/* exp(t - n ln2). */
SYI_BOTH static inline float syi_exp_rest(float t, float n)
{
    float r = fmaf(n, -syi_f32_from_bits(0x3f318000), t);
    r = fmaf(n, syi_f32_from_bits(0x395e8083), r);
    float c = syi_f32_from_bits(0x3ab526b0);
    c = fmaf(c, r, syi_f32_from_bits(0x3c091cc7));
    c = fmaf(c, r, syi_f32_from_bits(0x3d2aac58));
    c = fmaf(c, r, syi_f32_from_bits(0x3e2aaa49));
    c = fmaf(c, r, syi_f32_from_bits(0x3efffffe));
    return 1.0f + fmaf(r * r, c, r);
}

/*
 * exp(t) for t <= 0: n = nearest integer to t/ln2 by adding and taking away 1.5*2^23, r = t - n*ln2 with ln2
 * in two parts, a polynomial for exp(r), then n added to the exponent. At most 1.012 ulp off, monotone,
 * exp(0) = 1, and 0 below -86 so that no subnormal can appear. The constants are the contract and written as
 * bits.
 */
SYI_BOTH static inline float syi_exp(float t)
{
    if (!(t >= -86.0f))
        return 0.0f;
    const float n = fmaf(t, syi_f32_from_bits(0x3fb8aa3b), 12582912.0f) - 12582912.0f;
    return syi_f32_from_bits(syi_f32_bits(syi_exp_rest(t, n)) + ((uint32_t)(int32_t)n << 23));
}

/* e * 2^40 rounded to nearest even; e above 1 counts as 1. The product is exact, and after adding 2^52
   a double has no bits below one, so the integer is in its lower bits: no branch, and compilers vectorise it. */
SYI_BOTH static inline uint64_t syi_weight(float e)
{
    const float most_one = e < 1.0f ? e : 1.0f;
#ifdef __CUDA_ARCH__
    return __float2ull_rn(most_one * 0x1p40f);
#else
    const double shifted = (double)most_one * 0x1p40 + 0x1p52;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return bits - UINT64_C(0x4330000000000000);
#endif
}

/* ceil(p * total) for 0 < p < 1, exactly; at least 1. */
SYI_BOTH static inline uint64_t syi_mass_target(float p, uint64_t total)
{
    const uint32_t bits = syi_f32_bits(p);
    const uint32_t exponent = bits >> 23;
    const uint64_t mantissa = (bits & 0x7fffffu) | (exponent != 0 ? 0x800000u : 0u);
    const uint32_t shift = exponent != 0 ? 150u - exponent : 149u; /* p = mantissa * 2^-shift */
    if (shift >= 88)
        return 1;
    const syi_u128 one = 1;
    const syi_u128 product = (syi_u128)mantissa * total;
    return (uint64_t)((product + (one << shift) - 1) >> shift);
}

/* A uniform share of a weight: uniform * weight / 2^64. */
SYI_BOTH static inline uint64_t syi_share_of(uint64_t uniform, uint64_t weight)
{
    return (uint64_t)((syi_u128)uniform * weight >> 64);
}

/* Position of the highest bit of a number that is not 0. */
SYI_BOTH static inline int syi_top_bit(uint64_t value)
{
#ifdef __CUDA_ARCH__
    return 63 - __clzll((long long)value);
#else
    return 63 - __builtin_clzll(value);
#endif
}

/* ln(mantissa * 2^k) in f64; 1 <= mantissa < 2. */
SYI_BOTH static inline double syi_log_parts(double mantissa, int k)
{
    if (mantissa > 1.4142135623730951) {
        mantissa *= 0.5;
        k += 1;
    }
    const double s = (mantissa - 1.0) / (mantissa + 1.0);
    const double z = s * s;
    double g = 1.0 / 21;
    for (int d = 19; d >= 1; d -= 2)
        g = fma(g, z, 1.0 / d);
    return fma((double)k, 0.6931471805599453, (2.0 * s) * g);
}

/* ln(weight_sum * 2^-40) in f64; weight_sum > 0. */
SYI_BOTH static inline double syi_log_weight(uint64_t weight_sum)
{
    const int k = syi_top_bit(weight_sum);
    const uint64_t top = k > 52 ? weight_sum >> (k - 52) : weight_sum << (52 - k);
    return syi_log_parts((double)top * 0x1p-52, k - 40);
}

/* ---- Stages ---- */

/* ln of a normal f64 above 0. */
SYI_BOTH static inline double syi_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int k = (int)(bits >> 52) - 1023;
    bits = (bits & UINT64_C(0xfffffffffffff)) | UINT64_C(0x3ff0000000000000);
    memcpy(&x, &bits, sizeof x);
    return syi_log_parts(x, k);
}

/* The upper 53 bits of an integer, the others cut off. */
SYI_BOTH static inline double syi_upper_bits(syi_u128 v)
{
    const uint64_t high = (uint64_t)(v >> 64), low = (uint64_t)v;
    if (v == 0)
        return 0.0;
    const int k = high != 0 ? 64 + syi_top_bit(high) : syi_top_bit(low);
    const uint64_t top = k > 52 ? (uint64_t)(v >> (k - 52)) << (k < 64 ? k - 52 : 0) : low;
    return k < 64 ? (double)top : (double)top * (double)(UINT64_C(1) << (k - 64)) * 0x1p12;
}

/* Sums over tokens, all of them integers. `heat` is of e * -t * 2^40, the others of distances below the largest logit in
   units of 2^-11. */
struct syi_stage_sums {
    uint64_t weight, heat;
    uint64_t n, distance, square;
};

/* The mean of -t. */
SYI_BOTH static inline double syi_mean_heat(const struct syi_stage_sums *s)
{
    return syi_upper_bits(s->heat) / syi_upper_bits(s->weight);
}

/* Of 0 to 2^51, ties to even; see syi_weight. */
SYI_BOTH static inline uint64_t syi_round(double value)
{
#ifdef __CUDA_ARCH__
    return __double2ull_rn(value);
#else
    const double shifted = value + 0x1p52;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return bits - UINT64_C(0x4330000000000000);
#endif
}

SYI_BOTH static inline uint64_t syi_heat(float e, float t)
{
    return e > 0.0f ? syi_round((double)(e * -t) * 0x1p40) : 0;
}

/* Largest distance below the largest logit that top-n-sigma keeps; NaN: every one. */
SYI_BOTH static inline float syi_sigma_limit(const struct syi_stage_sums *s, float n)
{
    const syi_u128 spread = (syi_u128)s->n * s->square - (syi_u128)s->distance * s->distance;
    const double sigma = sqrt(syi_upper_bits(spread)) / (double)s->n * 0x1p-11;
    return (float)((double)n * sigma);
}

/* A distance below the largest logit in units of 2^-11; farther ones do not count. */
#define SYI_SIGMA_FAR 512.0f
SYI_BOTH static inline uint64_t syi_sigma_units(float distance)
{
    return syi_round((double)distance * 0x1p11);
}

/* The temperature that the entropy of n tokens, whose sums are at temperature 1, makes of one of 2^100 or less. */
SYI_BOTH static inline float syi_dynamic_temperature(const struct syi_stage_sums *s, int64_t n, float t,
                                                     float range, float exponent)
{
    const float low = t - range > 0.0f ? t - range : 0.0f, high = t + range;
    if (n < 2)
        return t;
    const double entropy = syi_log_weight(s->weight) + syi_mean_heat(s),
                 share = entropy / syi_log_weight((uint64_t)n << 40);
    const double x = share < 1.0 ? share : 1.0;
    double power = x;
    if (exponent <= 0.0f)
        power = 1.0;
    else if (exponent == exponent && exponent != 1.0f)
        power = x > 0.0 ? (double)syi_exp((float)((double)exponent * syi_log(x))) : 0.0;
    const float made = (float)fma((double)high - (double)low, power, (double)low);
    return made != made ? 1.0f : made < 0x1p100f ? made : 0x1p100f;
}

/* Whether a uniform number, in units of 2^-64, is below a probability. */
SYI_BOTH static inline bool syi_below(uint64_t uniform, float probability)
{
    const double limit = (double)probability * 0x1p64;
    if (!(limit > 0.0) || limit >= 0x1p64)
        return limit > 0.0;
    const uint64_t whole = (uint64_t)limit;
    return uniform < whole || (uniform == whole && (double)whole < limit);
}

/* How far a token is from what is typical: | -t - mean |. */
SYI_BOTH static inline float syi_surprise(float t, float mean)
{
    return fabsf(-t - mean);
}

/* ---- Noise ---- */

/* e / (|q| + eps) with both sides kept in the range where division is normal. */
SYI_BOTH static inline float syi_score(float e, float q, float eps)
{
    const float largest = 0x1p100f, smallest = 0x1p-100f;
    /* Compared as an integer: a compiler may turn a float clamp into a minimum that passes a signalling NaN. */
    const uint32_t magnitude = syi_f32_bits(q) & 0x7fffffffu;
    const float a = magnitude < syi_f32_bits(largest) ? syi_f32_from_bits(magnitude) : largest;
    float d = a + eps;
    if (!(d > smallest))
        d = smallest;
    return e / d;
}

/* Philox4x32-10 of a counter under a 64-bit key. */
SYI_BOTH static inline void syi_philox(const uint32_t counter[4], uint64_t key, uint32_t word[4])
{
    uint32_t x[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * x[0];
        const uint64_t b = (uint64_t)0xcd9e8d57u * x[2];
        const uint32_t x1 = x[1], x3 = x[3];
        x[0] = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x[1] = (uint32_t)b;
        x[2] = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x[3] = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    for (int i = 0; i < 4; i++)
        word[i] = x[i];
}

/* The inputs of a draw, and the words of its counter c0: i / 4 for the tokens of a race, UINT32_MAX for a
   CDF draw. */
struct syi_noise {
    uint64_t seed, offset;
    uint32_t stream;
};

SYI_BOTH static inline void syi_noise_words(const struct syi_noise *noise, uint32_t c0, uint32_t word[4])
{
    const uint32_t counter[4] = {c0, (uint32_t)noise->offset, (uint32_t)(noise->offset >> 32), noise->stream};
    syi_philox(counter, noise->seed, word);
}

/*
 * The exponential variate -ln(1 - v) with v = (word + 1/2) / 2^32: small v uses ln((1+s)/(1-s)) with s = v/(2-v); large v
 * takes 1-v apart into 2^-k * mantissa first. The series is 2s(1 + z/3 + ...), z = s^2. Non-decreasing in word over all
 * 2^32 of them.
 */
SYI_BOTH static inline float syi_exponential(uint32_t word)
{
    float s, k = 0.0f;
    if (word < 0x4afb16dau) {
        const float v = (float)(2 * (uint64_t)word + 1) * 0x1p-33f;
        s = v / (2.0f - v);
    } else {
        const float y = (float)(2 * (uint64_t)~word + 1) * 0x1p-33f;
        const uint32_t difference = syi_f32_bits(y) - 0x3f3504f3u;
        /* Arithmetic shift right by 23, spelled so that no negative number is shifted. */
        const uint32_t j = difference >> 31 ? ~(~difference >> 23) : difference >> 23;
        const float mantissa = syi_f32_from_bits(syi_f32_bits(y) - (j << 23));
        k = (float)(uint32_t)(0u - j);
        s = (1.0f - mantissa) / (1.0f + mantissa);
    }
    const float z = s * s;
    float g = syi_f32_from_bits(0x3e18f1fd);
    g = fmaf(g, z, syi_f32_from_bits(0x3e4caf61));
    g = fmaf(g, z, syi_f32_from_bits(0x3eaaaabd));
    g = fmaf(g, z, 1.0f);
    return fmaf(k, syi_f32_from_bits(0x3f317218), (2.0f * s) * g);
}
