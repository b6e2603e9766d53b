/*
 * Conversions by frexp and ldexp on doubles: slow, obviously exact, and as far from the library's integer tricks as
 * possible.
 */
#include "numbers.h"

#include <math.h>
#include <string.h>

/* A binary format: bits of the significand with the leading one, exponent of the smallest subnormal, bits of inf. */
struct format {
    int precision, quantum;
    uint32_t infinity, sign;
};
static const struct format formats[] = {
    {24, -149, 0x7f800000, 0x80000000u}, {11, -24, 0x7c00, 0x8000}, {8, -133, 0x7f80, 0x8000}};

/*
 * |value| = n * 2^q with q chosen so that n < 2^precision; n is rounded to an integer, half to even, by comparing the
 * exact rest with 1/2. Consecutive encodings are consecutive integers, so a carry needs no care.
 */
uint32_t number_round(enum number_type type, double value)
{
    const struct format *const f = &formats[type];
    if (isnan(value))
        return f->infinity | 1u << (f->precision - 2);
    const uint32_t sign = signbit(value) ? f->sign : 0;
    const double a = fabs(value);
    if (a == 0)
        return sign;
    int e = 0;
    if (isinf(a) || (frexp(a, &e), e > 128))
        return sign | f->infinity;
    const int q = e - f->precision > f->quantum ? e - f->precision : f->quantum;
    const double n = ldexp(a, -q), whole = floor(n), rest = n - whole;
    uint32_t count = (uint32_t)whole;
    if (rest > 0.5 || (rest == 0.5 && count % 2 == 1))
        count++;
    const uint32_t bits = ((uint32_t)(q - f->quantum) << (f->precision - 1)) + count;
    return sign | (bits < f->infinity ? bits : f->infinity);
}

double number_value(enum number_type type, uint32_t bits)
{
    const struct format *const f = &formats[type];
    if (type == NUMBER_F32)
        return (double)f32_from_bits(bits);
    const uint32_t magnitude = bits & (f->sign - 1), step = 1u << (f->precision - 1);
    const double sign = bits & f->sign ? -1 : 1;
    if (magnitude > f->infinity)
        return NAN;
    if (magnitude == f->infinity)
        return sign * INFINITY;
    const uint32_t exponent = magnitude / step, fraction = magnitude % step;
    if (exponent == 0)
        return sign * ldexp(fraction, f->quantum);
    return sign * ldexp(step + fraction, f->quantum + (int)exponent - 1);
}

double f16_value(uint16_t bits)
{
    return number_value(NUMBER_F16, bits);
}

double bf16_value(uint16_t bits)
{
    return number_value(NUMBER_BF16, bits);
}

uint16_t f16_round(double value)
{
    return (uint16_t)number_round(NUMBER_F16, value);
}

uint16_t bf16_round(double value)
{
    return (uint16_t)number_round(NUMBER_BF16, value);
}

uint32_t f32_round(double value)
{
    return number_round(NUMBER_F32, value);
}

uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint32_t number_bits(enum number_type type, const void *array, int64_t i)
{
    uint32_t bits = 0;
    const size_t bytes = number_bytes(type);
    memcpy(&bits, (const char *)array + (size_t)i * bytes, bytes); /* little-endian, as everywhere here */
    return bits;
}

double number_get(enum number_type type, const void *array, int64_t i)
{
    return number_value(type, number_bits(type, array, i));
}

void number_put(enum number_type type, void *array, int64_t i, double value)
{
    const uint32_t bits = number_round(type, value);
    const size_t bytes = number_bytes(type);
    memcpy((char *)array + (size_t)i * bytes, &bits, bytes);
}
