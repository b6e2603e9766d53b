/*
 * A sum of two f32 values rounded to f32: an exact sum in double needs up to 277 bits, so double alone would round twice.
 * TwoSum gives the double nearest to the sum and the exact rest; where the nearest double is a tie between two f32 or
 * lies so close that the rest decides, it is moved one step towards the rest before it is rounded (rounding to odd).
 */
#include "moe_combine.h"

#include <math.h>
#include <string.h>

#include "../support.h"

float oracle_sum(float a, float b)
{
    const volatile double x = a, y = b, sum = x + y;
    if (!isfinite(sum))
        return f32_from_bits(f32_round(sum));
    const volatile double part = sum - x, rest = (x - (sum - part)) + (y - part);
    uint64_t bits;
    double odd = sum;
    memcpy(&bits, &odd, sizeof bits);
    if (rest != 0 && bits % 2 == 0)
        odd = nextafter(sum, rest > 0 ? INFINITY : -INFINITY);
    return f32_from_bits(f32_round(odd));
}

static double value_at(enum dispatch_type type, const void *array, int64_t at)
{
    uint32_t wide = 0;
    uint16_t narrow = 0;
    if (type == DISPATCH_F32)
        memcpy(&wide, (const unsigned char *)array + at * 4, 4);
    else
        memcpy(&narrow, (const unsigned char *)array + at * 2, 2);
    return oracle_dispatch_value(type, type == DISPATCH_F32 ? wide : narrow);
}

static void put(enum dispatch_type type, void *array, int64_t at, float value)
{
    const uint32_t wide = f32_round(value);
    const uint16_t narrow = type == DISPATCH_F16 ? f16_round(value) : bf16_round(value);
    if (type == DISPATCH_F32)
        memcpy((unsigned char *)array + at * 4, &wide, 4);
    else
        memcpy((unsigned char *)array + at * 2, &narrow, 2);
}

static float product(const struct combine_case *in, int64_t t, int64_t i, int64_t h, bool *valid)
{
    const int64_t at = t * in->samples + i, e = in->indices[at], c = in->locations[at];
    *valid = e >= 0 && e < in->experts && c >= 0 && c < in->capacity;
    if (!*valid)
        return 0;
    const double gate = in->gates ? value_at(in->gate_type, in->gates, at) : 1;
    return f32_from_bits(
        f32_round(gate * value_at(in->type, in->slots, (e * in->capacity + c) * in->hidden + h)));
}

void oracle_moe_combine(const struct combine_case *in, void *output)
{
    for (int64_t i = 0; i < in->samples; i++)
        for (int64_t h = 0; h < in->hidden; h++) {
            float sum = 0;
            for (int64_t t = 0; t < in->choices; t++) {
                bool valid;
                const float p = product(in, t, i, h, &valid);
                if (valid)
                    sum = in->choices == 1 ? p : oracle_sum(sum, p);
            }
            put(in->type, output, i * in->hidden + h, sum);
        }
}
