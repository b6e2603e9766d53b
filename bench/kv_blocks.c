/*
 * kv_blocks of 64 rows of 1152 bytes: random blocks to other random blocks of the same cache. Must move: every block
 * read and written. The limit is a copy of as many bytes.
 */
#include "described.h"

#include <string.h>

enum { BLOCK_ELEMENTS = 64 * 576, BLOCK_BYTES = 2 * BLOCK_ELEMENTS };

static const char *const shapes[] = {
    "72 KiB n=4 of 4096",
    "72 KiB n=64 of 4096",
    "72 KiB n=1024 of 4096",
    /* Quick. */
    "72 KiB n=64 of 4096",
};

static void make(struct bench_call *c)
{
    sy_kv_blocks_args *const a = c->args;
    const int64_t n = bench_size(c, "n="), blocks = bench_size(c, "of ");
    bench_inout(c, &a->cache, SY_BF16, DIMS(blocks, 64, 576), BENCH_ONCE, fill_bits, 0);
    bench_in(c, &a->pairs, SY_I32, DIMS(n, 2), BENCH_TURNS, fill_next, blocks);
    c->limit.copy_bytes = (size_t)n * BLOCK_BYTES;
    c->touched = 2 * c->limit.copy_bytes;
}

static void plain(const struct bench_call *c)
{
    const sy_kv_blocks_args *const a = c->args;
    const int32_t *const pairs = a->pairs->data;
    uint16_t *const cache = a->cache->data;
    for (int64_t i = 0; i < a->pairs->shape[0]; i++)
        memcpy(cache + (int64_t)pairs[2 * i + 1] * BLOCK_ELEMENTS,
               cache + (int64_t)pairs[2 * i] * BLOCK_ELEMENTS, BLOCK_BYTES);
}

BENCH_OP(kv_blocks, shapes, 1, make, .plain = plain);
