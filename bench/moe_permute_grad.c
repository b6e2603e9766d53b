/*
 * moe_permute_grad, packed, bf16 rows and f32 probs. Must move: the K rows of each token read, the token written, the
 * map read twice, indices and the gradients of row probs read, those of all probs written. The limit is a copy that
 * moves as many row bytes.
 */
#include "described.h"

static const char *const shapes[] = {
    "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=256 K=8 H=7168",
    "bf16 T=4096 E=8 K=2 H=4096",
    "bf16 T=128 E=64 K=8 H=2048",
    /* Quick. */
    "bf16 T=512 E=64 K=8 H=1024",
};

static void make(struct bench_call *c)
{
    sy_moe_permute_grad_args *const a = c->args;
    const int64_t rows = bench_size(c, "T=") * bench_size(c, "K=");
    a->num_tokens = bench_size(c, "T=");
    a->num_experts = bench_size(c, "E=");
    rows_make(c, &a->routing_map, &a->sorted_indices, &a->grad_permuted_tokens);
    bench_in(c, &a->grad_permuted_probs, SY_F32, DIMS(rows), BENCH_ONCE, fill_normal, 10);
    bench_out(c, &a->grad_tokens, BENCH_COPIES);
    bench_out(c, &a->grad_probs, BENCH_ONCE);
    c->limit.copy_bytes = rows_bytes(c) / 2;
    c->bytes = (double)rows_bytes(c) + (double)(6 * a->num_tokens * a->num_experts + 8 * rows);
}

static void plain(const struct bench_call *c)
{
    const sy_moe_permute_grad_args *const a = c->args;
    const uint8_t *const map = a->routing_map->data;
    const int32_t *slot = a->sorted_indices->data;
    const float *const row_probs = a->grad_permuted_probs->data;
    float *const probs = a->grad_probs->data;
    rows_plain_sum(c, a->grad_permuted_tokens, NULL, NULL, a->grad_tokens);
    for (int64_t i = 0; i < bench_count(a->routing_map); i++) /* every token has all its slots */
        probs[i] = map[i] != 0 ? row_probs[*slot++] : 0.0f;
}

BENCH_OP(moe_permute_grad, shapes, 1, make, .plain = plain);
