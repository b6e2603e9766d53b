/*
 * Numbers. Text is parsed strictly, since a partly read number would silently become a wrong result; whether
 * a number is valid for an operator is checked by the operator.
 */
#include "number.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool parse_int64(const char *text, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    const long long parsed = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || isspace((unsigned char)text[0]))
        return false;
    *value = parsed;
    return true;
}

bool parse_uint64(const char *text, uint64_t *value)
{
    int64_t negative = 0;
    if (text[0] == '-') {
        if (!parse_int64(text, &negative))
            return false;
        *value = (uint64_t)negative;
        return true;
    }
    char *end = NULL;
    errno = 0;
    const unsigned long long parsed = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || isspace((unsigned char)text[0]))
        return false;
    *value = parsed;
    return true;
}

bool parse_double(const char *text, double *value)
{
    char *end = NULL;
    const double parsed = strtod(text, &end);
    /* Too large becomes infinite and too small 0: both are values that the operator validates. */
    if (end == text || *end != '\0' || isspace((unsigned char)text[0]))
        return false;
    *value = parsed;
    return true;
}

bool parse_bool(const char *text, bool *value)
{
    *value = strcmp(text, "true") == 0;
    return *value || strcmp(text, "false") == 0;
}

/* ---- Elements ---- */

bool type_is_float(DLDataType type)
{
    return type.code != 0 && type.code != 1 && type.code != 6;
}

/*
 * A float of 1 sign bit, `exponent_bits`, `mantissa_bits` with subnormals; the top exponent is the caller's.
 */
static double small_float(unsigned bits, int exponent_bits, int mantissa_bits)
{
    const unsigned mantissa = bits & ((1u << mantissa_bits) - 1u);
    const int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1u));
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const unsigned whole = exponent > 0 ? mantissa | 1u << mantissa_bits : mantissa;
    const double size = ldexp((double)whole, (exponent > 0 ? exponent : 1) - bias - mantissa_bits);
    return bits >> (exponent_bits + mantissa_bits) & 1u ? -size : size;
}

/* The same with infinities and NaN in the top exponent, as IEEE 754 has them. */
static double ieee_float(unsigned bits, int exponent_bits, int mantissa_bits)
{
    const unsigned top = (1u << exponent_bits) - 1u;
    if ((bits >> mantissa_bits & top) != top)
        return small_float(bits, exponent_bits, mantissa_bits);
    if ((bits & ((1u << mantissa_bits) - 1u)) != 0)
        return NAN;
    return bits >> (exponent_bits + mantissa_bits) & 1u ? -INFINITY : INFINITY;
}

static double fp8_value(DLDataType type, unsigned bits)
{
    if (type.code == SY_F8_E5M2.code)
        return ieee_float(bits, 5, 2);
    if (type.code == SY_F8_E8M0.code)
        return bits == 0xff ? NAN : ldexp(1.0, (int)bits - 127);
    /* e4m3: no infinities, one NaN per sign. */
    return (bits & 0x7fu) == 0x7fu ? NAN : small_float(bits, 4, 3);
}

static double integer_value(DLDataType type, const void *element)
{
    uint64_t bits = 0;
    memcpy(&bits, element, type.bits / 8u); /* little-endian, as the file is */
    const uint64_t sign = (uint64_t)1 << (type.bits - 1);
    if (type.code != 0 || (bits & sign) == 0)
        return (double)bits;
    /* Two's complement: -(sign - rest), and the magnitude fits even for the most negative number. */
    return -(double)(sign - (bits & (sign - 1)));
}

double element_value(DLDataType type, const void *element)
{
    if (!type_is_float(type))
        return integer_value(type, element);
    if (type.bits == 8) {
        uint8_t bits;
        memcpy(&bits, element, sizeof bits);
        return fp8_value(type, bits);
    }
    if (type.bits == 16) {
        uint16_t bits;
        memcpy(&bits, element, sizeof bits);
        return type.code == SY_BF16.code ? (double)bf16_to_float(bits) : ieee_float(bits, 5, 10);
    }
    if (type.bits == 32) {
        float value;
        memcpy(&value, element, sizeof value);
        return (double)value;
    }
    double value;
    memcpy(&value, element, sizeof value);
    return value;
}

uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double random_unit(uint64_t *state)
{
    return (double)(random_bits(state) >> 11) * 0x1p-53;
}

float bf16_to_float(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
