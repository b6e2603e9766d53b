/*
 * moe_unpermute, packed, bf16 rows and f32 probs. Must move: the K rows of each token read, the token written,
 * the map read twice, indices and weights read. The limit is a copy that moves as many row bytes.
 */
#include "moe_rows.h"

static const char *const shapes[] = {
    "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=64 K=8 H=2048 plain",
    "bf16 T=4096 E=256 K=8 H=7168",
    "bf16 T=4096 E=8 K=2 H=4096",
    "bf16 T=128 E=64 K=8 H=2048",
    "bf16 T=1 E=64 K=8 H=2048",
    /* Quick. */
    "bf16 T=512 E=64 K=8 H=1024",
    "bf16 T=1 E=64 K=8 H=2048",
};

static const char *const there[] = {
    "bf16 T=4096 E=256 K=8 H=7168", "bf16 T=4096 E=64 K=8 H=2048", "bf16 T=4096 E=64 K=8 H=2048 plain",
    "bf16 T=8192 E=8 K=2 H=4096",   "bf16 T=64 E=256 K=8 H=7168",  "bf16 T=1 E=256 K=8 H=7168",
};

static void make(struct bench_call *c)
{
    sy_moe_unpermute_args *const a = c->args;
    rows_make(c, &a->routing_map, &a->sorted_indices, &a->permuted_tokens);
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E=");
    if (!bench_says(c->shape, "plain"))
        bench_in(c, &a->probs, SY_F32, DIMS(tokens, experts), BENCH_ONCE, fill_unit, 100);
    bench_out(c, &a->tokens, BENCH_COPIES);
    c->limit.copy_bytes = rows_bytes(c) / 2;
    c->bytes = (double)rows_bytes(c) + (double)(tokens * (2 * experts + 8 * bench_size(c, "K=")));
}

static void plain(const struct bench_call *c)
{
    const sy_moe_unpermute_args *const a = c->args;
    rows_plain_sum(c, a->permuted_tokens, a->probs, a->tokens);
}

const struct bench_op bench_moe_unpermute = {BENCH_CASES("moe_unpermute", 2), BENCH_THERE, .make = make,
                                             .plain = plain};
