/*
 * kv_ragged of 1152-byte rows (the latent rows of multi-head latent attention in bf16): the last tokens of every
 * sequence, from the middle of a page on. Must move: every row read and written. The limit is a copy of the output.
 */
#include "described.h"

#include <string.h>

enum { ROW_ELEMENTS = 576, ROW_BYTES = 2 * ROW_ELEMENTS };

static const char *const shapes[] = {
    "1152 B B=1 n=65536 S=128",
    "1152 B B=1 n=65536 S=16",
    "1152 B B=16 n=4096 S=64",
    "1152 B B=128 n=512 S=64",
    "1152 B B=256 n=16 S=16",
    /* Quick. */
    "1152 B B=8 n=1024 S=64",
};

/* About the last n of 2*n tokens, at different places of a page. */
BENCH_OWN(fill_starts, bench_store_integer, n - 1 - i * 7 % bench_size(c, "S=") % n)

/* The blocks of all sequences are shuffled in the pool, as they are after an engine has run for a while. */
static void make(struct bench_call *c)
{
    sy_kv_ragged_args *const a = c->args;
    const int64_t sequences = bench_size(c, "B="), n = bench_size(c, "n=");
    a->block_size = bench_size(c, "S=");
    bench_in(c, &a->cache, SY_BF16, DIMS(2 * sequences * n, ROW_ELEMENTS), BENCH_ONCE, fill_bits, 0);
    bench_in(c, &a->block_table, SY_I32, DIMS(sequences, 2 * n / a->block_size), BENCH_ONCE, fill_shuffle, 0);
    bench_in(c, &a->starts, SY_I32, DIMS(sequences), BENCH_ONCE, fill_starts, n);
    bench_in(c, &a->cu_lens, SY_I32, DIMS(sequences + 1), BENCH_ONCE, fill_steps, n);
    bench_out(c, &a->out, BENCH_COPIES);
    c->limit.copy_bytes = (size_t)(sequences * n) * ROW_BYTES;
}

static void plain(const struct bench_call *c)
{
    const sy_kv_ragged_args *const a = c->args;
    const int64_t columns = a->block_table->shape[1], size = a->block_size;
    const int32_t *const table = a->block_table->data, *const starts = a->starts->data,
                         *const cu_lens = a->cu_lens->data;
    const uint16_t *const cache = a->cache->data;
    uint16_t *const rows = a->out->data;
    for (int64_t b = 0; b < a->starts->shape[0]; b++)
        for (int64_t u = cu_lens[b]; u < cu_lens[b + 1]; u++) {
            const int64_t t = starts[b] + u - cu_lens[b];
            const int64_t row = table[b * columns + t / size] * size + t % size;
            memcpy(rows + u * ROW_ELEMENTS, cache + row * ROW_ELEMENTS, ROW_BYTES);
        }
}

BENCH_OP(kv_ragged, shapes, 1, make, .plain = plain);
