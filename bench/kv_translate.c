/*
 * kv_translate: int32 indices to int32 slots. Must move: 4 bytes read and 4 written for every index; the table stays in
 * the caches. The limit is a copy of the indices: what is above it is the validation, done before anything is written,
 * and the look into the table.
 */
#include "described.h"

static const char *const shapes[] = {
    "i32 B=1 k=2048 of 128k S=64",
    "i32 B=128 k=2048 of 128k S=64",
    "i32 B=128 k=2048 of 128k S=48",
    "i32 B=1 k=131072 of 128k S=64",
    /* Quick. */
    "i32 B=4 k=512 of 32k S=64",
};

static void make(struct bench_call *c)
{
    sy_kv_translate_args *const a = c->args;
    const int64_t sequences = bench_size(c, "B="), tokens = bench_size(c, "of ");
    a->block_size = bench_size(c, "S=");
    const int64_t columns = (tokens + a->block_size - 1) / a->block_size;
    bench_in(c, &a->indices, SY_I32, DIMS(sequences, bench_size(c, "k=")), BENCH_TURNS, fill_ids, tokens);
    bench_in(c, &a->block_table, SY_I32, DIMS(sequences, columns), BENCH_ONCE, fill_shuffle, 0);
    bench_out(c, &a->slots, BENCH_COPIES);
    c->limit.copy_bytes = bench_bytes(a->indices);
}

static void plain(const struct bench_call *c)
{
    const sy_kv_translate_args *const a = c->args;
    const int64_t k = a->indices->shape[1], columns = a->block_table->shape[1], size = a->block_size;
    const int32_t *const indices = a->indices->data, *const table = a->block_table->data;
    int32_t *const slots = a->slots->data;
    for (int64_t b = 0; b < a->indices->shape[0]; b++)
        for (int64_t j = 0; j < k; j++) {
            const int64_t t = indices[b * k + j], block = table[b * columns + t / size];
            slots[b * k + j] = (int32_t)(block * size + t % size);
        }
}

BENCH_OP(kv_translate, shapes, 1, make, .plain = plain);
