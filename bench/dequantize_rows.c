/*
 * dequantize_rows: must read codes and scales and write the numbers. The limit is a copy of the codes and a fill of what
 * the numbers have beyond them.
 */
#include "described.h"

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
    bench_in(c, &a->scales, bench_scale_type(&b->format), DIMS(rows, bench_groups(&b->format, hidden)),
             BENCH_COPIES, fill_scales, 0);
    if (!bench_out(c, &a->out, BENCH_COPIES))
        return;
    const size_t codes = bench_bytes(a->codes) + bench_bytes(a->scales);
    c->limit = (struct bench_work){.copy_bytes = codes, .fill_bytes = bench_bytes(a->out) - codes};
    c->bytes = bench_work_bytes(&c->limit);
}

static void plain(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const sy_dequantize_rows_args *const a = &b->args;
    for (int64_t i = 0; i < bench_count(a->codes); i++)
        bench_store(a->out, i, bench_decoded(&b->format, a->codes, a->scales, i));
}

const struct bench_op bench_dequantize_rows = {BENCH_CASES("dequantize_rows", 2), BENCH_THERE, .make = make,
                                               .plain = plain};
