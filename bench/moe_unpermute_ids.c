/*
 * moe_unpermute_ids: must read one row per slot and write one per token. The limit is a copy that moves as much.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "f32 T=4096 K=8 H=2048",
    "f32 T=4096 K=2 H=4096",
    "f32 T=128 K=8 H=2048",
    /* Quick. */
    "f32 T=512 K=8 H=512",
};

static void make(struct bench_call *c)
{
    sy_moe_unpermute_ids_args *const a = c->args;
    const int64_t tokens = bench_size(c, "T="), k = bench_size(c, "K="), hidden = bench_size(c, "H=");
    bench_in(c, &a->permuted_tokens, SY_F32, DIMS(tokens * k, hidden), BENCH_COPIES, fill_around_zero, 0);
    bench_in(c, &a->sorted_indices, SY_I32, DIMS(tokens * k), BENCH_ONCE, fill_shuffle, 0);
    bench_in(c, &a->probs, SY_F32, DIMS(tokens, k), BENCH_ONCE, fill_unit, 100);
    bench_out(c, &a->tokens, BENCH_COPIES);
    c->limit.copy_bytes = (size_t)((k + 1) * tokens * hidden) * sizeof(float) / 2;
}

static void plain(const struct bench_call *c)
{
    const sy_moe_unpermute_ids_args *const a = c->args;
    const int64_t hidden = a->tokens->shape[1], k = a->probs->shape[1];
    const float *const rows = a->permuted_tokens->data, *const probs = a->probs->data;
    const int32_t *const index = a->sorted_indices->data;
    float *const tokens = a->tokens->data;
    memset(tokens, 0, bench_bytes(a->tokens));
    for (int64_t i = 0; i < bench_count(a->probs); i++)
        for (int64_t h = 0; h < hidden; h++)
            tokens[i / k * hidden + h] += probs[i] * rows[index[i] * hidden + h];
}

BENCH_OP(moe_unpermute_ids, shapes, 1, make, .plain = plain);
