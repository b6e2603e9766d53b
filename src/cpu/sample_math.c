/*
 * The exact arithmetic of sample: fixed-point weights, scores, counter-based noise and logarithms. Every step
 * is one IEEE operation in the order written, or an integer.
 */
#include "cpu/sample.h"

#include <math.h>

uint64_t syi_mass_target(float p, uint64_t total)
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

float syi_score(float e, float q, float eps)
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

void syi_philox(const uint32_t counter[4], uint64_t key, uint32_t word[4])
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
    memcpy(word, x, sizeof x);
}

void syi_noise_words(const struct syi_noise *noise, uint32_t c0, uint32_t word[4])
{
    const uint32_t counter[4] = {c0, (uint32_t)noise->offset, (uint32_t)(noise->offset >> 32), noise->stream};
    syi_philox(counter, noise->seed, word);
}

/*
 * With v = (word + 1/2) / 2^32: small v uses ln((1+s)/(1-s)) with s = v/(2-v); large v takes 1-v apart into
 * 2^-k * mantissa first. The series is 2s(1 + z/3 + ...), z = s^2. Non-decreasing in word over all 2^32 of
 * them.
 */
float syi_exponential(uint32_t word)
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

double syi_log_weight(uint64_t weight_sum)
{
    static const double series[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                    1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
    int k = 63 - __builtin_clzll(weight_sum);
    const uint64_t top = k > 52 ? weight_sum >> (k - 52) : weight_sum << (52 - k);
    double mantissa = (double)top * 0x1p-52;
    if (mantissa > 1.4142135623730951) {
        mantissa *= 0.5;
        k += 1;
    }
    const double s = (mantissa - 1.0) / (mantissa + 1.0);
    const double z = s * s;
    double g = series[0];
    for (size_t i = 1; i < sizeof series / sizeof *series; i++)
        g = fma(g, z, series[i]);
    return fma((double)(k - 40), 0.6931471805599453, (2.0 * s) * g);
}
