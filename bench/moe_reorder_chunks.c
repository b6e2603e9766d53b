/*
 * moe_reorder_chunks: must read and write every row once. The limit is a copy of them.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "bf16 N=16384 R=8 E=32 H=2048",
    "bf16 N=16384 R=8 E=32 H=2048 back",
    "bf16 N=16384 R=64 E=4 H=7168",
    "bf16 N=1024 R=8 E=32 H=2048",
    /* Quick. */
    "bf16 N=1024 R=8 E=32 H=256",
    "bf16 N=1024 R=8 E=32 H=256 back",
};

/* n rows, each in a chunk at random. */
static BENCH_FILLER(fill_counts)
{
    int32_t *const counts = x->data;
    for (int64_t i = 0; i < n; i++)
        counts[random_bits(&seed) % (uint64_t)bench_count(x)]++;
}

static void make(struct bench_call *c)
{
    sy_moe_reorder_chunks_args *const a = c->args;
    const int64_t rows = bench_size(c, "N=");
    a->inverse = bench_says(c->shape, "back");
    bench_in(c, &a->rows, SY_BF16, DIMS(rows, bench_size(c, "H=")), BENCH_COPIES, fill_bits, 0);
    bench_in(c, &a->counts, SY_I32, DIMS(bench_size(c, "R="), bench_size(c, "E=")), BENCH_ONCE, fill_counts,
             rows);
    bench_out(c, &a->reordered_rows, BENCH_COPIES);
    c->limit.copy_bytes = bench_bytes(a->rows);
}

/* The place of every chunk is summed up from the start. */
static void plain(const struct bench_call *c)
{
    const sy_moe_reorder_chunks_args *const a = c->args;
    const int64_t ranks = a->counts->shape[0], experts = a->counts->shape[1], hidden = a->rows->shape[1];
    const int32_t *const counts = a->counts->data;
    const uint16_t *const in = a->rows->data;
    uint16_t *const out = a->reordered_rows->data;
    int64_t gathered = 0;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t r = 0; r < ranks; r++) {
            const int64_t cell = r * experts + e;
            int64_t ranked = 0;
            for (int64_t i = 0; i < cell; i++)
                ranked += counts[i];
            const int64_t from = a->inverse ? gathered : ranked, to = a->inverse ? ranked : gathered;
            memcpy(out + to * hidden, in + from * hidden, (size_t)(counts[cell] * hidden) * sizeof *out);
            gathered += counts[cell];
        }
}

BENCH_OP(moe_reorder_chunks, shapes, 2, make, .plain = plain);
