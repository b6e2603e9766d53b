#include "codes.h"

#include <math.h>
#include <stdbool.h>

static double short_float(unsigned code, int mantissa_bits, int bias)
{
    const int mantissa = (int)(code & ((1u << mantissa_bits) - 1));
    const int exponent = (int)((code & 0x7f) >> mantissa_bits);
    const double sign = code & 0x80 ? -1.0 : 1.0;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

double oracle_code_value(enum oracle_code type, unsigned code)
{
    switch (type) {
    case ORACLE_E4M3:
        return (code & 0x7f) == 0x7f ? NAN : short_float(code, 3, 7);
    case ORACLE_E5M2:
        if ((code & 0x7f) >= 0x7c)
            return (code & 0x7f) > 0x7c ? NAN : code & 0x80 ? -INFINITY : INFINITY;
        return short_float(code, 2, 15);
    case ORACLE_I8:
        return code < 128 ? (double)code : (double)code - 256;
    default:
        return code == 255 ? NAN : ldexp(1.0, (int)code - 127);
    }
}

double oracle_code_largest(enum oracle_code type)
{
    return type == ORACLE_E4M3 ? 448.0 : type == ORACLE_E5M2 ? 57344.0 : 127.0;
}

/* The values of all codes, which a thread computes once. */
static const double *values_of(enum oracle_code type)
{
    static _Thread_local double values[4][256];
    static _Thread_local bool known[4];
    for (unsigned code = 0; code < 256 && !known[type]; code++)
        values[type][code] = oracle_code_value(type, code);
    known[type] = true;
    return values[type];
}

unsigned oracle_code_nearest(enum oracle_code type, double value)
{
    const double *const values = values_of(type);
    if (isnan(value))
        return type == ORACLE_E4M3 ? 0x7f : type == ORACLE_E5M2 ? 0x7e : 0;
    if (fabs(value) > 1e6) /* so that differences stay exact */
        value = value > 0 ? 1e6 : -1e6;
    unsigned best = 0;
    double least = INFINITY;
    const unsigned first = type != ORACLE_I8 && signbit(value) ? 128 : 0; /* a sign is kept */
    for (unsigned code = first; code < (type == ORACLE_I8 ? 256 : first + 128); code++) {
        const double x = values[code];
        if (isnan(x) || isinf(x))
            continue;
        const double away = fabs(x - value);
        if (away < least || (away == least && code % 2 == 0)) {
            least = away;
            best = code;
        }
    }
    return best;
}
