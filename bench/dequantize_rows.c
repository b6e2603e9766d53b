/*
 * dequantize_rows: must read codes and scales and write the numbers. The limit is a copy of the codes and a fill of what
 * the numbers have beyond them.
 */
#include "described.h"

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

static void make(struct bench_call *c)
{
    sy_dequantize_rows_args *const a = c->args;
    a->format = c->format;
    bench_rows(c, &a->codes, &a->scales, bench_size(c, "T="), bench_size(c, "H="));
    bench_out(c, &a->out, BENCH_COPIES);
    const size_t codes = bench_bytes(a->codes) + bench_bytes(a->scales);
    c->limit = (struct bench_work){.copy_bytes = codes, .fill_bytes = bench_bytes(a->out) - codes};
}

static void plain(const struct bench_call *c)
{
    const sy_dequantize_rows_args *const a = c->args;
    for (int64_t i = 0; i < bench_count(a->codes); i++)
        bench_store(a->out, i, bench_decoded(a->format, a->codes, a->scales, i));
}

BENCH_OP(dequantize_rows, shapes, 2, make, .plain = plain, BENCH_THERE);
