/*
 * moe_permute_ids: must read every token row once and write one row per slot, and move ids and indices. The limit
 * copies the rows that are written. "any ids": the call does not have the number of experts.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=64 K=8 H=2048 any ids",
    "bf16 T=4096 E=8 K=2 H=4096",
    "bf16 T=128 E=64 K=8 H=2048",
    /* Quick. */
    "bf16 T=512 E=64 K=8 H=512",
    "bf16 T=512 E=64 K=8 H=512 any ids",
};

static const char *const there[] = {
    "bf16 T=4096 E=256 K=8 H=7168", "bf16 T=4096 E=256 K=8 H=7168 any ids",
    "bf16 T=4096 E=64 K=8 H=2048",  "bf16 T=64 E=256 K=8 H=7168",
    "bf16 T=1 E=256 K=8 H=7168",
};

static void make(struct bench_call *c)
{
    sy_moe_permute_ids_args *const a = c->args;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E="), k = bench_size(c, "K=");
    a->num_experts = bench_says(c->shape, "any ids") ? 0 : experts;
    bench_in(c, &a->tokens, SY_BF16, DIMS(tokens, bench_size(c, "H=")), BENCH_COPIES, fill_bits, 0);
    bench_in(c, &a->ids, SY_I32, DIMS(tokens, k), BENCH_ONCE, fill_ids, experts);
    bench_out(c, &a->permuted_tokens, BENCH_COPIES);
    bench_out(c, &a->sorted_indices, BENCH_ONCE);
    c->limit.copy_bytes = (size_t)k * bench_bytes(a->tokens);
    c->bytes = (double)(k + 1) * (double)bench_bytes(a->tokens) + 8.0 * (double)(tokens * k);
}

/* One pass over the slots for every expert: the definition, not an efficient method. */
static void plain(const struct bench_call *c)
{
    const sy_moe_permute_ids_args *const a = c->args;
    const int64_t experts = bench_size(c, "E="), hidden = a->tokens->shape[1], k = a->ids->shape[1];
    const int32_t *const ids = a->ids->data;
    const uint16_t *const tokens = a->tokens->data;
    uint16_t *const rows = a->permuted_tokens->data;
    int32_t *const index = a->sorted_indices->data, row = 0;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t i = 0; i < a->ids->shape[0] * k; i++)
            if (ids[i] == e) {
                memcpy(rows + row * hidden, tokens + i / k * hidden, (size_t)hidden * sizeof *rows);
                index[i] = row++;
            }
}

const struct bench_op bench_moe_permute_ids = {BENCH_CASES("moe_permute_ids", 2), BENCH_THERE, .make = make,
                                               .plain = plain};
