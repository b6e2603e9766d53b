/*
 * moe_unpermute_grad, packed, bf16 rows and f32 probs. Must move: each token's gradient read, the K rows that were
 * unpermuted read, the gradients of K rows written, the map read twice, indices and weights read, gradients of probs
 * written. Plain, without probs: only the rows written. The limit is a copy that moves as many row bytes.
 */
#include "described.h"

static const char *const shapes[] = {
    "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=64 K=8 H=2048 plain",
    "bf16 T=4096 E=256 K=8 H=7168",
    "bf16 T=4096 E=8 K=2 H=4096",
    "bf16 T=128 E=64 K=8 H=2048",
    /* Quick. */
    "bf16 T=512 E=64 K=8 H=1024",
};

static void make(struct bench_call *c)
{
    sy_moe_unpermute_grad_args *const a = c->args;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E="), hidden = bench_size(c, "H=");
    const int64_t rows = tokens * bench_size(c, "K=");
    const bool weighted = !bench_says(c->shape, "plain");
    rows_make(c, &a->routing_map, &a->sorted_indices, weighted ? &a->permuted_tokens : NULL);
    bench_in(c, &a->grad_tokens, SY_BF16, DIMS(tokens, hidden), BENCH_COPIES, fill_numbers, 0);
    if (weighted)
        bench_in(c, &a->probs, SY_F32, DIMS(tokens, experts), BENCH_ONCE, fill_unit, 100);
    bench_out(c, &a->grad_permuted_tokens, BENCH_ONCE);
    if (weighted)
        bench_out(c, &a->grad_probs, BENCH_ONCE);
    const size_t moved = rows_bytes(c) + (weighted ? (size_t)(rows * hidden) * sizeof(uint16_t) : 0);
    c->limit.copy_bytes = moved / 2;
    c->bytes = (double)moved + (double)(6 * tokens * experts + 8 * rows);
}

/* Sixteen partial sums, then added by halves: the documented order, for rows of up to 8192. */
static float plain_dot(const uint16_t *a, const uint16_t *b, int64_t n)
{
    float lane[16] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i % 16] += bf16_to_float(a[i]) * bf16_to_float(b[i]);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* Expert by expert of each token: a row to scale or copy, a product to add up. */
static void plain(const struct bench_call *c)
{
    const sy_moe_unpermute_grad_args *const a = c->args;
    const int64_t experts = a->routing_map->shape[1], hidden = a->grad_tokens->shape[1];
    const uint8_t *const map = a->routing_map->data;
    const int32_t *slot = a->sorted_indices->data;
    uint16_t *const rows = a->grad_permuted_tokens->data;
    const float *const probs = a->probs ? a->probs->data : NULL;
    for (int64_t i = 0; i < bench_count(a->routing_map); i++) {
        if (probs)
            ((float *)a->grad_probs->data)[i] = 0;
        if (map[i] == 0)
            continue;
        const uint16_t *const token = (const uint16_t *)a->grad_tokens->data + i / experts * hidden;
        const int64_t row = *slot++ * hidden;
        for (int64_t h = 0; h < hidden; h++)
            rows[row + h] = probs ? bf16_from_float(probs[i] * bf16_to_float(token[h])) : token[h];
        if (probs)
            ((float *)a->grad_probs->data)[i] =
                plain_dot(token, (const uint16_t *)a->permuted_tokens->data + row, hidden);
    }
}

BENCH_OP(moe_unpermute_grad, shapes, 1, make, .plain = plain);
