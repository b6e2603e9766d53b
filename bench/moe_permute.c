/*
 * moe_permute, packed, bf16 rows and f32 probs. Must move: each token row read once, its K copies written, the map read
 * twice, indices and probs written. The limit is a copy of the output's size.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "bf16 T=4096 E=64 K=8 H=2048",
    "bf16 T=4096 E=256 K=8 H=7168",
    "bf16 T=4096 E=8 K=2 H=4096",
    "bf16 T=128 E=64 K=8 H=2048",
    "bf16 T=64 E=64 K=8 H=2048",
    "bf16 T=16 E=64 K=8 H=2048",
    "bf16 T=1 E=64 K=8 H=2048",
    "bf16 T=4096 E=256 K=8 H=7168 fp8_128",
    "bf16 T=4096 E=256 K=8 H=7168 int8_token",
    /* Quick. */
    "bf16 T=512 E=64 K=8 H=1024",
    "bf16 T=1 E=64 K=8 H=2048",
    "bf16 T=32 E=64 K=8 H=1024 mxfp8",
};

static const char *const there[] = {
    "bf16 T=32768 E=256 K=8 H=7168",        "bf16 T=4096 E=256 K=8 H=7168",
    "bf16 T=4096 E=64 K=8 H=2048",          "bf16 T=8192 E=8 K=2 H=4096",
    "bf16 T=64 E=256 K=8 H=7168",           "bf16 T=1 E=256 K=8 H=7168",
    "bf16 T=4096 E=256 K=8 H=7168 fp8_128", "bf16 T=4096 E=64 K=8 H=2880",
    "bf16 T=4096 E=64 K=8 H=2879",          "bf16 T=4096 E=256 K=8 H=7168 offset=2",
    "bf16 T=131072 E=64 K=8 H=256",         "bf16 T=4096 E=64 K=8 H=2048 drop",
};

/* "drop": drop_and_pad, each expert with its share of the rows. With a format the codes and scales of all tokens are made in scratch, then moved like rows. */
static void make(struct bench_call *c)
{
    sy_moe_permute_args *const a = c->args;
    const bool coded = c->format != NULL;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E="), k = bench_size(c, "K=");
    a->row_format = c->format;
    a->num_out_tokens = tokens * k;
    a->drop_and_pad = bench_says(c->shape, "drop");
    bench_in(c, &a->tokens, SY_BF16, DIMS(tokens, bench_size(c, "H=")), BENCH_COPIES,
             coded ? fill_normal : fill_bits, coded ? 10 : 0);
    bench_in(c, &a->routing_map, SY_BOOL, DIMS(tokens, experts), BENCH_ONCE, fill_route, k);
    bench_in(c, &a->probs, SY_F32, DIMS(tokens, experts), BENCH_ONCE, fill_unit, 100);
    bench_out(c, &a->permuted_tokens, BENCH_COPIES);
    bench_out(c, &a->sorted_indices, BENCH_ONCE);
    bench_out(c, &a->permuted_probs, BENCH_ONCE);
    if (coded)
        bench_out(c, &a->permuted_scales, BENCH_COPIES);
    const size_t rows = bench_bytes(a->permuted_tokens) + bench_bytes(a->permuted_scales);
    c->limit.copy_bytes = rows;
    c->bytes = (double)rows + (double)bench_bytes(a->tokens) + (double)(tokens * (2 * experts + 12 * k));
    bench_scratch(c, (size_t)tokens * sizeof(int32_t) + (coded ? rows / (size_t)k : 0));
}

/* Expert by expert, token by token: the definition, written down. */
static void plain(const struct bench_call *c)
{
    const sy_moe_permute_args *const a = c->args;
    const int64_t tokens = a->routing_map->shape[0], experts = a->routing_map->shape[1];
    const int64_t k = a->num_out_tokens / tokens, most = a->drop_and_pad ? tokens * k / experts : tokens;
    const uint8_t *const map = a->routing_map->data;
    const float *const probs = a->probs->data;
    float *const row_probs = a->permuted_probs->data;
    int32_t *const index = a->sorted_indices->data, *const slot = c->scratch, row = 0;
    const struct bench_moved from = bench_moved(c, a->tokens, slot + tokens);
    memset(slot, 0, (size_t)tokens * sizeof *slot);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t i = 0, taken = 0; i < (1 + a->drop_and_pad) * tokens && taken < most; i++) {
            const int64_t t = i % tokens; /* dropped and padded: those of the expert, then the others */
            if ((map[t * experts + e] == 0) != (i >= tokens))
                continue;
            bench_move(&from, t, a->permuted_tokens, a->permuted_scales, row);
            row_probs[row] = probs[t * experts + e];
            if (a->drop_and_pad)
                index[row++] = (int32_t)t;
            else
                index[t * k + slot[t]++] = row++;
            taken++;
        }
}

BENCH_OP(moe_permute, shapes, 3, make, .plain = plain, BENCH_THERE, .peers = true);
