/*
 * moe_permute_ids: must read every token row once and write one row per slot, and move ids and indices. The limit
 * copies the rows that are written. "any ids": the call does not have the number of experts. A format: rows become codes.
 */
#include "described.h"

static const char *const shapes[] = {
    "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=64 K=8 H=2048 any ids",
    "bf16 T=4096 E=8 K=2 H=4096",
    "bf16 T=128 E=64 K=8 H=2048",
    "bf16 T=4096 E=64 K=8 H=2048 fp8_128",
    /* Quick. */
    "bf16 T=512 E=64 K=8 H=512",
    "bf16 T=512 E=64 K=8 H=512 any ids",
    "bf16 T=32 E=64 K=8 H=512 fp8_128",
};

static const char *const there[] = {
    "bf16 T=4096 E=256 K=8 H=7168", "bf16 T=4096 E=256 K=8 H=7168 any ids",
    "bf16 T=4096 E=64 K=8 H=2048",  "bf16 T=64 E=256 K=8 H=7168",
    "bf16 T=1 E=256 K=8 H=7168",    "bf16 T=4096 E=256 K=8 H=7168 fp8_128",
};

static void make(struct bench_call *c)
{
    sy_moe_permute_ids_args *const a = c->args;
    const bool coded = c->format != NULL;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E="), k = bench_size(c, "K=");
    a->num_experts = bench_says(c->shape, "any ids") ? 0 : experts;
    bench_in(c, &a->tokens, SY_BF16, DIMS(tokens, bench_size(c, "H=")), BENCH_COPIES,
             coded ? fill_normal : fill_bits, coded ? 10 : 0);
    a->row_format = c->format;
    bench_in(c, &a->ids, SY_I32, DIMS(tokens, k), BENCH_ONCE, fill_ids, experts);
    bench_out(c, &a->permuted_tokens, BENCH_COPIES);
    bench_out(c, &a->sorted_indices, BENCH_ONCE);
    if (coded)
        bench_out(c, &a->permuted_scales, BENCH_COPIES);
    const size_t rows = bench_bytes(a->permuted_tokens) + bench_bytes(a->permuted_scales);
    c->limit.copy_bytes = rows;
    c->bytes = (double)rows + (double)bench_bytes(a->tokens) + 8.0 * (double)(tokens * k);
    bench_scratch(c, coded ? rows / (size_t)k : 0);
}

/* One pass over the slots for every expert: the definition, not an efficient method. */
static void plain(const struct bench_call *c)
{
    const sy_moe_permute_ids_args *const a = c->args;
    const int64_t experts = bench_size(c, "E="), k = a->ids->shape[1];
    const int32_t *const ids = a->ids->data;
    const struct bench_moved from = bench_moved(c, a->tokens, c->scratch);
    int32_t *const index = a->sorted_indices->data, row = 0;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t i = 0; i < a->ids->shape[0] * k; i++)
            if (ids[i] == e) {
                bench_move(&from, i / k, a->permuted_tokens, a->permuted_scales, row);
                index[i] = row++;
            }
}

BENCH_OP(moe_permute_ids, shapes, 3, make, .plain = plain, BENCH_THERE);
