/*
 * kv_select: must read the scores and write the indices. The limit is a plain read of the scores.
 */
#include "described.h"

#include <stdlib.h>
#include <string.h>

static const char *const shapes[] = {
    "f32 [64,131072] k=2048",
    "f32 [64,131072] k=2048 peaked",
    "f32 [64,131072] k=2048 tied",
    "f32 [64,131072] k=2048 relu",
    "f32 [64,131072] k=2048 equal",
    "bf16 [64,131072] k=2048",
    "bf16 [64,131072] k=2048 relu",
    "f32 [64,131072] k=2048 S=64",
    "f32 [64,131072] k=2048 by score",
    "f32 [1,131072] k=2048",
    "bf16 [1,131072] k=2048",
    "f32 [1,1048576] k=2048",
    "f32 [16,65536] k=2048",
    /* Quick. */
    "f32 [4,65536] k=2048",
};

struct score {
    float value;
    int32_t at;
};

/* Sums of four numbers are near enough to a normal distribution. */
static float normal_at(uint64_t seed, int64_t i)
{
    uint64_t x = (seed << 40) + (uint64_t)i * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    const float sum =
        (float)(x & 0xffff) + (float)(x >> 16 & 0xffff) + (float)(x >> 32 & 0xffff) + (float)(x >> 48);
    return (sum - 131070.0f) / 37837.0f;
}

static float score_at(const struct bench_call *c, uint64_t seed, int64_t i)
{
    const float x = normal_at(seed, i);
    if (bench_says(c->shape, "peaked"))
        return x * x * x * x;
    if (bench_says(c->shape, "tied"))
        return (float)(int)(x * 8) / 8;
    if (bench_says(c->shape, "relu"))
        return x > 2.5f ? x : 0;
    return bench_says(c->shape, "equal") ? 1.0f : x;
}

BENCH_OWN(fill_scores, bench_store, score_at(c, seed, i))

static void make(struct bench_call *c)
{
    sy_kv_select_args *const a = c->args;
    const int64_t rows = bench_size(c, "["), n = bench_size(c, ",");
    a->k = bench_size(c, "k=");
    a->order = bench_says(c->shape, "score") ? SY_KV_ORDER_SCORE : SY_KV_ORDER_POSITION;
    a->block_size = bench_size(c, "S=");
    bench_in(c, &a->scores, bench_type(c), DIMS(rows, n), BENCH_TURNS, fill_scores, 0);
    if (a->block_size > 0) {
        bench_in(c, &a->block_table, SY_I32, DIMS(rows, n / a->block_size), BENCH_ONCE, fill_shuffle, 0);
        bench_out(c, &a->slots, BENCH_COPIES);
    }
    bench_out(c, &a->indices, BENCH_COPIES);
    bench_scratch(c, (size_t)n * sizeof(struct score));
    c->limit.read_bytes = bench_bytes(a->scores);
}

static int by_score(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    return x->value != y->value ? (x->value > y->value ? -1 : 1) : x->at < y->at ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    return ((const struct score *)a)->at < ((const struct score *)b)->at ? -1 : 1;
}

/* Sorts every row. */
static void plain(const struct bench_call *c)
{
    const sy_kv_select_args *const a = c->args;
    const int64_t n = a->scores->shape[1];
    struct score *const all = c->scratch;
    for (int64_t b = 0; b < a->scores->shape[0]; b++) {
        for (int64_t i = 0; i < n; i++)
            all[i] = (struct score){bench_load(a->scores, b * n + i), (int32_t)i};
        qsort(all, (size_t)n, sizeof *all, by_score);
        if (a->order == SY_KV_ORDER_POSITION)
            qsort(all, (size_t)a->k, sizeof *all, by_place);
        for (int64_t j = 0; j < a->k; j++) {
            bench_store_integer(a->indices, b * a->k + j, all[j].at);
            if (a->slots != NULL) {
                const int64_t columns = a->block_table->shape[1], size = a->block_size;
                const int32_t *const table = a->block_table->data;
                bench_store_integer(a->slots, b * a->k + j,
                                    table[b * columns + all[j].at / size] * size + all[j].at % size);
            }
        }
    }
}

BENCH_OP(kv_select, shapes, 1, make, .plain = plain);
