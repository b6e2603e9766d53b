/*
 * kv_gather of rows of 1152 bytes (the latent rows of multi-head latent attention in bf16) or other lengths. Must move: every selected row
 * read and written, 4 bytes of index each. The limit is a copy of the output; random rows cannot reach it, whole
 * sequences can.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "1152 B B=1 k=2048 of 128k S=64",
    "1152 B B=16 k=2048 of 128k S=64",
    "1152 B B=1 k=65536 of 64k S=128",
    "1152 B B=1 k=65536 of 64k S=16",
    /* Quick. */
    "1152 B B=1 k=1024 of 32k S=64",
    "1152 B B=1 k=8192 of 8k S=16",
};

static const char *const there[] = {
    "1152 B B=1 k=2048 of 512k S=64",          "1152 B B=16 k=2048 of 32k S=64",
    "1152 B B=128 k=2048 of 8k S=64",          "1152 B B=1 k=65536 of 64k S=16",
    "1150 B B=16 k=2048 of 32k S=64",          "1154 B B=16 k=2048 of 32k S=64",
    "1152 B B=16 k=2048 of 32k S=64 offset=2",
};

/* As many rows as a sequence has: all of them in order. The blocks of all sequences are shuffled in the pool, as they
   are after an engine has run for a while. */
static void make(struct bench_call *c)
{
    sy_kv_gather_args *const a = c->args;
    const int64_t sequences = bench_size(c, "B="), k = bench_size(c, "k="), tokens = bench_size(c, "of ");
    const int64_t bytes = bench_size(c, "");
    a->block_size = bench_size(c, "S=");
    bench_in(c, &a->cache, SY_BF16, DIMS(sequences * tokens, bytes / 2), BENCH_ONCE, fill_bits, 0);
    bench_in(c, &a->indices, SY_I32, DIMS(sequences, k), BENCH_TURNS, k == tokens ? fill_in_order : fill_ids,
             tokens);
    bench_in(c, &a->block_table, SY_I32, DIMS(sequences, tokens / a->block_size), BENCH_ONCE, fill_shuffle,
             0);
    bench_out(c, &a->out, BENCH_COPIES);
    c->limit.copy_bytes = (size_t)(sequences * k * bytes);
    c->bytes = bench_work_bytes(&c->limit) + 4.0 * (double)(sequences * k);
}

static void plain(const struct bench_call *c)
{
    const sy_kv_gather_args *const a = c->args;
    const int64_t k = a->indices->shape[1], blocks = a->block_table->shape[1], size = a->block_size;
    const int32_t *const indices = a->indices->data, *const table = a->block_table->data;
    const uint16_t *const cache = a->cache->data;
    uint16_t *const rows = a->out->data;
    const int64_t width = a->cache->shape[1];
    for (int64_t b = 0; b < a->indices->shape[0]; b++)
        for (int64_t j = 0; j < k; j++) {
            const int64_t t = indices[b * k + j], row = table[b * blocks + t / size] * size + t % size;
            memcpy(rows + (b * k + j) * width, cache + row * width, (size_t)width * 2);
        }
}

BENCH_OP(kv_gather, shapes, 2, make, .plain = plain, BENCH_THERE, .peers = true);
