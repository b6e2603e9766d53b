/*
 * moe_convert_indices on the indices of packed moe_permute: must read one form and write the other. The limit copies
 * what is read and fills the rest of what is written.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "slot to row T=4096 E=256 K=8",
    "slot to row T=65536 E=256 K=8",
    "slot to te T=4096 E=64 K=8",
    "slot to te T=4096 E=256 K=8",
    /* Quick. */
    "slot to row T=1024 E=64 K=8",
    "slot to te T=1024 E=64 K=8",
};

/* The map whose indices are converted is no field of the call. */
struct block {
    sy_moe_convert_indices_args args;
    const DLTensor *map;
};

static BENCH_FILLER(fill_offsets)
{
    const DLTensor *const map = ((const struct block *)c->args)->map;
    int64_t *const offsets = x->data;
    memset(offsets, 0, bench_bytes(x));
    for (int64_t i = 0; i < bench_count(map); i++)
        offsets[i % map->shape[1] + 1] += ((const uint8_t *)map->data)[i];
    for (int64_t e = 0; e < map->shape[1]; e++)
        offsets[e + 1] += offsets[e];
}

static void make(struct bench_call *c)
{
    struct block *const b = c->args;
    sy_moe_convert_indices_args *const a = &b->args;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E="), k = bench_size(c, "K=");
    a->to = bench_says(c->shape, "slot to te") ? SY_INDEX_TE : SY_INDEX_ROW;
    a->num_tokens = tokens;
    bench_in(c, &b->map, SY_BOOL, DIMS(tokens, experts), BENCH_ONCE, fill_route, k);
    bench_in(c, &a->sorted_indices, SY_I32, DIMS(tokens * k), BENCH_ONCE, fill_slot_rows, 0);
    bench_in(c, &a->expert_offsets, SY_I64, DIMS(experts + 1), BENCH_ONCE, fill_offsets, 0);
    if (!bench_out(c, &a->converted_indices, BENCH_COPIES))
        return;
    c->limit.copy_bytes = bench_bytes(a->sorted_indices);
    c->limit.fill_bytes = bench_bytes(a->converted_indices) - c->limit.copy_bytes;
}

static void plain(const struct bench_call *c)
{
    const sy_moe_convert_indices_args *const a = c->args;
    const int64_t tokens = a->num_tokens, k = a->sorted_indices->shape[0] / tokens,
                  experts = bench_size(c, "E=");
    const int64_t *const offsets = a->expert_offsets->data;
    const int32_t *const slots = a->sorted_indices->data;
    int32_t *const out = a->converted_indices->data;
    for (int64_t i = 0; a->to == SY_INDEX_ROW && i < tokens * k; i++)
        out[slots[i]] = (int32_t)(i / k);
    for (int64_t t = 0; a->to == SY_INDEX_TE && t < tokens; t++) {
        int32_t *const entries = out + t * (2 * experts + 1);
        memset(entries, 0xff, (size_t)(2 * experts + 1) * sizeof *entries);
        entries[2 * experts] = (int32_t)k;
        for (int64_t j = 0; j < k; j++) {
            const int32_t row = slots[t * k + k - 1 - j];
            int64_t e = 0;
            while (offsets[e + 1] <= row)
                e++;
            entries[j] = row;
            entries[experts + j] = (int32_t)e;
        }
    }
}

BENCH_OP(moe_convert_indices, shapes, 2, make, .plain = plain);
