/*
 * Rows that are codes with scales: the format of a case, fillers, and the numbers of codes.
 */
#include "described.h"

#include <math.h>
#include <string.h>

const sy_row_format *bench_row_format(const struct bench_call *c, sy_row_format *format)
{
    const char *const last = strrchr(c->shape, ' ');
    return last != NULL && sy_row_format_named(last + 1, format) == SY_OK ? format : NULL;
}

int64_t bench_groups(const sy_row_format *format, int64_t hidden)
{
    return format->group > 0 ? hidden / format->group : 1;
}

DLDataType bench_scale_type(const sy_row_format *format)
{
    return format->scale_type.bits == 8 ? SY_U8 : SY_F32;
}

/* All but NaN. */
BENCH_FILLER(fill_codes)
{
    unsigned char *const codes = x->data;
    bench_fill_random(codes, bench_bytes(x), seed);
    for (int64_t i = 0; i < bench_count(x); i++)
        codes[i] = (codes[i] & 127) == 127 ? 0 : codes[i];
}

/* Bytes of 2^-7 to 2^0, or numbers. */
BENCH_FILLER(fill_scales)
{
    for (int64_t i = 0; i < bench_count(x); i++)
        if (x->dtype.bits == 8)
            ((uint8_t *)x->data)[i] = (uint8_t)(120 + bench_random(&seed) % 8);
        else
            ((float *)x->data)[i] = ldexpf(1 + (float)bench_unit(&seed), -7);
}

static float value_of(bool i8, unsigned char code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float size =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    return i8 ? (float)(code < 128 ? code : code - 256) : code & 128 ? -size : size;
}

float bench_decoded(const sy_row_format *format, const DLTensor *codes, const DLTensor *scales, int64_t i)
{
    const int64_t group = codes->shape[codes->ndim - 1] / scales->shape[scales->ndim - 1];
    const float scale = scales->dtype.bits == 8 ? ldexpf(1, ((const uint8_t *)scales->data)[i / group] - 127)
                                                : ((const float *)scales->data)[i / group];
    return value_of(format->q_type.code == kDLInt, ((const unsigned char *)codes->data)[i]) * scale;
}
