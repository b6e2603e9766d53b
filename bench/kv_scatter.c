/*
 * kv_scatter of rows of 1152 bytes (the latent rows of multi-head latent attention in bf16) or other lengths. Must move: every row read
 * and written, 4 bytes of slot each. The limit is a copy of the rows; "rows" to random slots, one step of many
 * sequences, cannot reach it; a prompt that fills whole "blocks" can.
 */
#include "described.h"

#include <string.h>

enum { BLOCK = 64 };

static const char *const shapes[] = {
    "1152 B n=128 of 128k S=64 rows",
    "1152 B n=8192 of 128k S=64 rows",
    "1152 B n=8192 of 128k S=64 rows unique",
    "1152 B n=8192 of 128k S=64 blocks",
    "1152 B n=65536 of 128k S=64 blocks",
    /* Quick. */
    "1152 B n=512 of 8k S=64 rows unique",
    "1152 B n=2048 of 8k S=64 blocks",
};

static const char *const there[] = {
    "1152 B n=2048 of 512k S=64 rows",         "1152 B n=32768 of 512k S=64 rows",
    "1152 B n=32768 of 512k S=64 rows unique", "1152 B n=262144 of 1024k S=64 rows",
    "1152 B n=65536 of 512k S=64 blocks",      "1150 B n=32768 of 512k S=64 rows",
    "1154 B n=32768 of 512k S=64 rows",        "1152 B n=32768 of 512k S=64 rows offset=2",
};

/* Distinct slots by whole blocks; the order goes on from turn to turn. */
static int64_t slot_of(int64_t at, int64_t n)
{
    return bench_distinct(at / BLOCK, n / BLOCK) * BLOCK + at % BLOCK;
}

BENCH_OWN(fill_next_blocks, bench_store_integer, slot_of(bench_turn(seed) * bench_count(x) + i, n))

static void make(struct bench_call *c)
{
    sy_kv_scatter_args *const a = c->args;
    const int64_t n = bench_size(c, "n="), rows = bench_size(c, "of "), width = bench_size(c, "") / 2;
    a->check_unique = bench_says(c->shape, "rows unique");
    bench_inout(c, &a->cache, SY_BF16, DIMS(rows / BLOCK, BLOCK, width), BENCH_ONCE, fill_bits, 0);
    bench_in(c, &a->src, SY_BF16, DIMS(n, width), BENCH_COPIES, fill_bits, 0);
    bench_in(c, &a->slots, SY_I32, DIMS(n), BENCH_TURNS,
             bench_says(c->shape, "blocks") ? fill_next_blocks : fill_next, rows);
    c->limit.copy_bytes = (size_t)(2 * n * width);
    c->bytes = bench_work_bytes(&c->limit) + 4.0 * (double)n;
}

static void plain(const struct bench_call *c)
{
    const sy_kv_scatter_args *const a = c->args;
    const int32_t *const slots = a->slots->data;
    const int64_t width = a->src->shape[1];
    const uint16_t *const src = a->src->data;
    uint16_t *const cache = a->cache->data;
    for (int64_t i = 0; i < a->slots->shape[0]; i++)
        memcpy(cache + slots[i] * width, src + i * width, (size_t)width * 2);
}

BENCH_OP(kv_scatter, shapes, 2, make, .plain = plain, BENCH_THERE);
