/*
 * kv_slots: int32 pairs of sequence and position to int32 slots. Must move: 8 bytes read and 4 written for every token.
 * The limit is a copy of half of them.
 */
#include "described.h"

enum { SEQUENCES = 128, TOKENS = 131072, BLOCK = 64, COLUMNS = TOKENS / BLOCK };

static const char *const shapes[] = {
    "i32 n=128 of 128 x 128k S=64",
    "i32 n=8192 of 128 x 128k S=64",
    "i32 n=262144 of 128 x 128k S=64",
    /* Quick. */
    "i32 n=1024 of 128 x 128k S=64",
};

/* The tokens of one sequence after the other, n of each ... */
BENCH_OWN(fill_sequences, bench_store_integer, i / n)

/* ... from anywhere in it. */
static BENCH_FILLER(fill_positions)
{
    int32_t *const position = x->data;
    for (int64_t i = 0; i < x->shape[0]; i++)
        position[i] = i % n > 0 ? (position[i - 1] + 1) % TOKENS : (int32_t)(random_bits(&seed) % TOKENS);
}

static void make(struct bench_call *c)
{
    sy_kv_slots_args *const a = c->args;
    const int64_t n = bench_size(c, "n="), each = (n + SEQUENCES - 1) / SEQUENCES;
    a->block_size = BLOCK;
    bench_in(c, &a->batch, SY_I32, DIMS(n), BENCH_COPIES, fill_sequences, each);
    bench_in(c, &a->position, SY_I32, DIMS(n), BENCH_TURNS, fill_positions, each);
    bench_in(c, &a->block_table, SY_I32, DIMS(SEQUENCES, COLUMNS), BENCH_ONCE, fill_shuffle, 0);
    bench_out(c, &a->slots, BENCH_COPIES);
    c->limit.copy_bytes = (size_t)n * 3 * sizeof(int32_t) / 2;
}

static void plain(const struct bench_call *c)
{
    const sy_kv_slots_args *const a = c->args;
    const int32_t *const batch = a->batch->data, *const position = a->position->data;
    const int32_t *const table = a->block_table->data;
    int32_t *const slots = a->slots->data;
    for (int64_t i = 0; i < a->slots->shape[0]; i++) {
        const int64_t t = position[i], block = table[(int64_t)batch[i] * COLUMNS + t / BLOCK];
        slots[i] = (int32_t)(block * BLOCK + t % BLOCK);
    }
}

BENCH_OP(kv_slots, shapes, 1, make, .plain = plain);
