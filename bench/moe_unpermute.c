/*
 * moe_unpermute, packed, bf16 rows and f32 probs. Must move: the K rows of each token read, the token written,
 * the map read twice, indices and weights read. The limit is a copy that moves as many row bytes. A format: rows are codes.
 */
#include "moe_rows.h"

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
    "bf16 T=4096 E=256 K=8 H=7168",         "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=64 K=8 H=2048 plain",    "bf16 T=8192 E=8 K=2 H=4096",
    "bf16 T=64 E=256 K=8 H=7168",           "bf16 T=1 E=256 K=8 H=7168",
    "bf16 T=4096 E=256 K=8 H=7168 fp8_128", "bf16 T=64 E=256 K=8 H=7168 fp8_128",
};

struct block {
    sy_moe_unpermute_args args;
    sy_row_format format;
};

static void make(struct bench_call *c)
{
    struct block *const b = c->args;
    sy_moe_unpermute_args *const a = &b->args;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E="), k = bench_size(c, "K=");
    const int64_t hidden = bench_size(c, "H=");
    a->row_format = bench_row_format(c, &b->format);
    rows_make(c, &a->routing_map, &a->sorted_indices, a->row_format == NULL ? &a->permuted_tokens : NULL);
    if (a->row_format != NULL) {
        bench_in(c, &a->permuted_tokens, SY_U8, DIMS(tokens * k, hidden), BENCH_COPIES, fill_codes, 0);
        bench_in(c, &a->permuted_scales, bench_scale_type(&b->format),
                 DIMS(tokens * k, bench_groups(&b->format, hidden)), BENCH_COPIES, fill_scales, 0);
    }
    if (!bench_says(c->shape, "plain"))
        bench_in(c, &a->probs, SY_F32, DIMS(tokens, experts), BENCH_ONCE, fill_unit, 100);
    if (!bench_room(c, &a->tokens, SY_BF16, DIMS(tokens, hidden), BENCH_COPIES))
        return;
    const size_t rows = bench_bytes(a->permuted_tokens) + bench_bytes(a->tokens) +
                        (a->row_format != NULL ? bench_bytes(a->permuted_scales) : 0);
    c->limit.copy_bytes = rows / 2;
    c->bytes = (double)rows + (double)(tokens * (2 * experts + 8 * k));
}

static void plain(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const sy_moe_unpermute_args *const a = &b->args;
    rows_plain_sum(c, a->permuted_tokens, a->row_format != NULL ? a->permuted_scales : NULL, &b->format,
                   a->probs, a->tokens);
}

const struct bench_op bench_moe_unpermute = {BENCH_CASES("moe_unpermute", 3), BENCH_THERE, .make = make,
                                             .plain = plain};
