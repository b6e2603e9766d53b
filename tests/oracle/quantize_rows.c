#include "quantize_rows.h"

#include "codes.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

/* ---- One operation, exactly, then one rounding ---- */

/* A finite number as an integer and a power of two. */
static uint64_t integer_of(float x, int *exponent)
{
    const float m = frexpf(fabsf(x), exponent);
    *exponent -= 24;
    return (uint64_t)ldexpf(m, 24);
}

/* n * 2^exponent, and a little more with `more`, to the nearest f32, of two as near the even one. */
static float rounded(wide n, bool more, int exponent, bool negative)
{
    const uint64_t high = (uint64_t)(n >> 64), low = (uint64_t)n;
    const int length = high > 0 ? 128 - __builtin_clzll(high) : low > 0 ? 64 - __builtin_clzll(low) : 0;
    int drop = length > 24 ? length - 24 : 0;
    if (exponent + drop < -149)
        drop = -149 - exponent;
    double size = 0;
    if (drop <= length) { /* otherwise it is less than half of the least number */
        const wide kept = drop < 128 ? n >> drop : 0, rest = n - (drop < 128 ? kept << drop : 0);
        const wide half = drop > 0 ? (wide)1 << (drop - 1) : 0;
        const bool up = drop > 0 && (rest > half || (rest == half && (more || kept % 2 == 1)));
        size = ldexp((double)(uint64_t)kept + up, exponent + drop);
    }
    return size > (double)FLT_MAX ? (negative ? -INFINITY : INFINITY) : (float)(negative ? -size : size);
}

static float product(float a, float b)
{
    int p, q;
    if (!isfinite(a) || !isfinite(b))
        return a * b;
    const wide n = (wide)integer_of(a, &p) * integer_of(b, &q);
    return rounded(n, false, p + q, signbit(a) != signbit(b));
}

static float quotient(float a, float b)
{
    int p, q;
    if (!isfinite(a) || !isfinite(b))
        return a / b;
    const wide n = (wide)integer_of(a, &p) << 64, d = integer_of(b, &q);
    return rounded(n / d, n % d != 0, p - q - 64, signbit(a) != signbit(b));
}

/* ---- Groups ---- */

static enum oracle_code code_type(const sy_row_format *f)
{
    return f->q_type.code == 10 ? ORACLE_E4M3 : f->q_type.code == 12 ? ORACLE_E5M2 : ORACLE_I8;
}

static float largest(const sy_row_format *f, const float *x, int64_t n)
{
    float a = (float)f->a_min;
    for (int64_t i = 0; i < n; i++)
        if (!isnan(x[i]))
            a = fmaxf(a, fminf(fabsf(x[i]), FLT_MAX));
    return a;
}

static unsigned power_of(const sy_row_format *f, float a, float most)
{
    unsigned byte = 0;
    if (f->scale_math == SY_SCALE_MATH_UP) {
        while (ldexp(1.0, (int)byte - 127) < (double)quotient(a, most))
            byte++;
        return byte;
    }
    const double top =
        code_type(f) == ORACLE_E4M3 ? 256.0 : 32768.0; /* the largest power of two of the codes */
    while (ldexp(top, (int)byte + 1 - 127) <= (double)a)
        byte++;
    return byte;
}

uint32_t oracle_quantize_group(const sy_row_format *f, const float *x, int64_t n, uint8_t *codes)
{
    const enum oracle_code type = code_type(f);
    const float most = (float)oracle_code_largest(type), a = largest(f, x, n);
    if (f->scale_type.bits == 8) {
        const unsigned byte = power_of(f, a, most);
        for (int64_t i = 0; i < n; i++)
            codes[i] = (uint8_t)oracle_code_nearest(type, (double)x[i] / ldexp(1.0, (int)byte - 127));
        return byte;
    }
    const float s = f->scale_math == SY_SCALE_MATH_DIV ? quotient(a, most) : product(a, quotient(1, most));
    uint32_t bits;
    memcpy(&bits, &s, sizeof bits);
    for (int64_t i = 0; i < n; i++) {
        const float y = s == 0 || a == 0                   ? product(x[i], 0)
                        : f->code_math == SY_CODE_MATH_DIV ? quotient(x[i], s)
                        : f->code_math == SY_CODE_MATH_RCP ? product(x[i], quotient(1, s))
                                                           : product(x[i], quotient(most, a));
        codes[i] = (uint8_t)oracle_code_nearest(type, (double)y);
    }
    return bits;
}

/* Element after element of the layout: the scale it holds. */
int64_t oracle_place_scales(sy_scale_layout layout, size_t bytes, int64_t rows, int64_t groups,
                            const unsigned char *by_rows, unsigned char *to)
{
    const bool tiles = layout == SY_SCALE_SWIZZLE;
    const int64_t packs = bytes == 4 ? groups : (groups + 3) / 4, in_pack = bytes == 4 ? 1 : 4;
    const int64_t high = tiles ? 32 : (rows + 3) / 4 * 4, deep = tiles ? 4 : 1,
                  blocks = tiles ? (rows + 127) / 128 : 1;
    int64_t n = 0;
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t pack = 0; pack < packs; pack++)
            for (int64_t i = 0; i < high; i++)
                for (int64_t quarter = 0; quarter < deep; quarter++)
                    for (int64_t k = 0; k < in_pack; k++, n++) {
                        const int64_t row = block * 128 + quarter * 32 + i, g = pack * in_pack + k;
                        if (row < rows && g < groups)
                            memcpy(to + (size_t)n * bytes, by_rows + (size_t)(row * groups + g) * bytes,
                                   bytes);
                        else
                            memset(to + (size_t)n * bytes, 0, bytes);
                    }
    return n;
}

float oracle_dequantize(const sy_row_format *f, uint8_t code, uint32_t scale)
{
    const float number = (float)oracle_code_value(code_type(f), code);
    float s;
    memcpy(&s, &scale, sizeof s);
    return product(number, f->scale_type.bits == 8 ? (float)oracle_code_value(ORACLE_E8M0, scale) : s);
}
