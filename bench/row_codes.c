/*
 * Rows that may be codes with scales: the format of a case, fillers, rows that are moved, and the numbers of codes.
 */
#include "described.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void bench_find_format(struct bench_call *c)
{
    char word[32];
    for (const char *at = c->shape; *at != '\0' && !c->format; at += *at == ' ') {
        const int n = (int)strcspn(at, " ");
        snprintf(word, sizeof word, "%.*s", n, at);
        c->format = sy_row_format_named(word, &c->named) == SY_OK ? &c->named : NULL;
        at += n;
    }
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
            ((uint8_t *)x->data)[i] = (uint8_t)(120 + random_bits(&seed) % 8);
        else
            ((float *)x->data)[i] = ldexpf(1 + (float)random_unit(&seed), -7);
}

bool bench_rows(struct bench_call *c, const DLTensor **rows, const DLTensor **scales, int64_t n,
                int64_t hidden)
{
    if (!c->format)
        return bench_in(c, rows, SY_BF16, DIMS(n, hidden), BENCH_COPIES, fill_numbers, 0);
    return bench_in(c, rows, SY_U8, DIMS(n, hidden), BENCH_COPIES, fill_codes, 0) &&
           bench_in(c, scales, bench_scale_type(c->format), DIMS(n, bench_groups(c->format, hidden)),
                    BENCH_COPIES, fill_scales, 0);
}

/* ---- Rows that are moved ------------------------------------------------------------------------------- */

static size_t scale_bytes(const struct bench_call *c, int64_t hidden)
{
    return c->format ? (size_t)bench_groups(c->format, hidden) * (bench_scale_type(c->format).bits / 8) : 0;
}

size_t bench_moved_bytes(const struct bench_call *c, int64_t hidden)
{
    return (size_t)hidden * (c->format ? 1 : sizeof(uint16_t)) + scale_bytes(c, hidden);
}

struct bench_moved bench_moved(const struct bench_call *c, const DLTensor *tokens, void *scratch)
{
    const int64_t n = tokens->shape[0], hidden = tokens->shape[1];
    struct bench_moved moved = {tokens->data, scratch, (size_t)hidden * sizeof(uint16_t),
                                scale_bytes(c, hidden)};
    if (c->format) {
        unsigned char *const codes = (unsigned char *)scratch + (size_t)n * moved.scale_bytes;
        bench_quantize(tokens, c->format, codes, scratch, n * bench_groups(c->format, hidden));
        moved.rows = codes;
        moved.row_bytes = (size_t)hidden;
    }
    return moved;
}

static void move(void *to, int64_t at, const unsigned char *from, int64_t t, size_t bytes)
{
    if (t < 0)
        memset((char *)to + (size_t)at * bytes, 0, bytes);
    else
        memcpy((char *)to + (size_t)at * bytes, from + (size_t)t * bytes, bytes);
}

void bench_move(const struct bench_moved *from, int64_t t, const DLTensor *rows, const DLTensor *scales,
                int64_t at)
{
    move(rows->data, at, from->rows, t, from->row_bytes);
    if (from->scale_bytes > 0)
        move(scales->data, at, from->scales, t, from->scale_bytes);
}

/* ---- Numbers of codes ---------------------------------------------------------------------------------- */

float bench_code_value(bool i8, unsigned char code)
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
    return bench_code_value(format->q_type.code == kDLInt, ((const unsigned char *)codes->data)[i]) * scale;
}
