/*
 * dequantize_rows: must read codes and scales and write the numbers. The limit is a copy of the codes and a fill of what
 * the numbers have beyond them.
 */
#include "described.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const shapes[] = {
    "fp8_128 T=4096 H=7168 bf16",
    "mxfp8 T=4096 H=7168 bf16",
    "int8_token T=4096 H=7168 bf16",
    /* Quick. */
    "fp8_128 T=16 H=1024 bf16",
    "int8_token T=16 H=1024 bf16",
};

static const char *const there[] = {
    "fp8_128 T=16384 H=7168 bf16",
    "mxfp8 T=16384 H=7168 bf16",
};

struct block {
    sy_dequantize_rows_args args;
    sy_row_format format;
};

/* All but NaN. */
static BENCH_FILLER(fill_codes)
{
    unsigned char *const codes = x->data;
    bench_fill_random(codes, bench_bytes(x), seed);
    for (int64_t i = 0; i < bench_count(x); i++)
        codes[i] = (codes[i] & 127) == 127 ? 0 : codes[i];
}

/* Bytes of 2^-7 to 2^0, or numbers. */
static BENCH_FILLER(fill_scales)
{
    for (int64_t i = 0; i < bench_count(x); i++)
        if (x->dtype.bits == 8)
            ((uint8_t *)x->data)[i] = (uint8_t)(120 + bench_random(&seed) % 8);
        else
            ((float *)x->data)[i] = ldexpf(1 + (float)bench_unit(&seed), -7);
}

static void make(struct bench_call *c)
{
    struct block *const b = c->args;
    sy_dequantize_rows_args *const a = &b->args;
    const int64_t rows = bench_size(c, "T="), hidden = bench_size(c, "H=");
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(c->shape, " "), c->shape);
    (void)sy_row_format_named(name, &b->format);
    a->format = &b->format;
    bench_in(c, &a->codes, SY_U8, DIMS(rows, hidden), BENCH_COPIES, fill_codes, 0);
    bench_in(c, &a->scales, b->format.scale_type.bits == 8 ? SY_U8 : SY_F32,
             DIMS(rows, b->format.group > 0 ? hidden / b->format.group : 1), BENCH_COPIES, fill_scales, 0);
    if (!bench_out(c, &a->out, BENCH_COPIES))
        return;
    const size_t codes = bench_bytes(a->codes) + bench_bytes(a->scales);
    c->limit = (struct bench_work){.copy_bytes = codes, .fill_bytes = bench_bytes(a->out) - codes};
    c->bytes = bench_work_bytes(&c->limit);
}

static float value_of(bool i8, unsigned char code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float size =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    return i8 ? (float)(code < 128 ? code : code - 256) : code & 128 ? -size : size;
}

static void plain(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const sy_dequantize_rows_args *const a = &b->args;
    const bool i8 = b->format.q_type.code == 0;
    const int64_t n = bench_count(a->codes), group = n / bench_count(a->scales);
    for (int64_t i = 0; i < n; i++) {
        const float scale = a->scales->dtype.bits == 8
                                ? ldexpf(1, ((const uint8_t *)a->scales->data)[i / group] - 127)
                                : ((const float *)a->scales->data)[i / group];
        bench_store(a->out, i, value_of(i8, ((const unsigned char *)a->codes->data)[i]) * scale);
    }
}

const struct bench_op bench_dequantize_rows = {BENCH_CASES("dequantize_rows", 2), BENCH_THERE, .make = make,
                                               .plain = plain};
