/*
 * moe_unpermute, packed, bf16 rows and f32 probs. Must move: the K rows of each token read, the token written,
 * the map read twice, indices and weights read. The limit is a copy that moves as many row bytes. A format: rows are codes.
 */
#include "described.h"

static const char *const shapes[] = {
    "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=64 K=8 H=2048 plain",
    "bf16 T=4096 E=256 K=8 H=7168",
    "bf16 T=4096 E=8 K=2 H=4096",
    "bf16 T=128 E=64 K=8 H=2048",
    "bf16 T=1 E=64 K=8 H=2048",
    "bf16 T=4096 E=256 K=8 H=7168 fp8_128",
    "bf16 T=4096 E=256 K=8 H=7168 int8_token",
    /* Quick. */
    "bf16 T=512 E=64 K=8 H=1024",
    "bf16 T=1 E=64 K=8 H=2048",
    "bf16 T=32 E=64 K=8 H=1024 mxfp8",
};

static const char *const there[] = {
    "bf16 T=4096 E=256 K=8 H=7168",
    "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=64 K=8 H=2048 plain",
    "bf16 T=8192 E=8 K=2 H=4096",
    "bf16 T=64 E=256 K=8 H=7168",
    "bf16 T=1 E=256 K=8 H=7168",
    "bf16 T=4096 E=256 K=8 H=7168 fp8_128",
    "bf16 T=64 E=256 K=8 H=7168 fp8_128",
    "bf16 T=4096 E=64 K=8 H=2880",
    "bf16 T=4096 E=64 K=8 H=2879",
    "bf16 T=4096 E=64 K=8 H=2884",
    "bf16 T=4096 E=256 K=8 H=7169",
    "bf16 T=4096 E=256 K=8 H=7168 offset=2",
    "bf16 T=131072 E=64 K=8 H=256",
};

static void make(struct bench_call *c)
{
    sy_moe_unpermute_args *const a = c->args;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E="), k = bench_size(c, "K=");
    const int64_t hidden = bench_size(c, "H=");
    a->row_format = c->format;
    rows_make(c, &a->routing_map, &a->sorted_indices, NULL);
    bench_rows(c, &a->permuted_tokens, &a->permuted_scales, tokens * k, hidden);
    if (!bench_says(c->shape, "plain"))
        bench_in(c, &a->probs, SY_F32, DIMS(tokens, experts), BENCH_ONCE, fill_unit, 100);
    bench_room(c, &a->tokens, SY_BF16, DIMS(tokens, hidden), BENCH_COPIES);
    const size_t rows =
        bench_bytes(a->permuted_tokens) + bench_bytes(a->tokens) + bench_bytes(a->permuted_scales);
    c->limit.copy_bytes = rows / 2;
    c->bytes = (double)rows + (double)(tokens * (2 * experts + 8 * k));
}

static void plain(const struct bench_call *c)
{
    const sy_moe_unpermute_args *const a = c->args;
    rows_plain_sum(c, a->permuted_tokens, a->permuted_scales, a->probs, a->tokens);
}

BENCH_OP(moe_unpermute, shapes, 3, make, .plain = plain, BENCH_THERE);
