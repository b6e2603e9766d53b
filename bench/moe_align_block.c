/*
 * moe_align_block: must read every id and write every place. The limit copies the ids.
 */
#include "described.h"

static const char *const shapes[] = {
    "T=16384 E=256 K=8 B=64",
    "T=4096 E=64 K=8 B=128",
    "T=128 E=256 K=8 B=16",
    /* Quick. */
    "T=512 E=64 K=8 B=16",
};

static void make(struct bench_call *c)
{
    sy_moe_align_block_args *const a = c->args;
    a->num_experts = bench_size(c, "E=");
    a->block_size = bench_size(c, "B=");
    bench_in(c, &a->ids, SY_I32, DIMS(bench_size(c, "T="), bench_size(c, "K=")), BENCH_TURNS, fill_ids,
             a->num_experts);
    if (!bench_out(c, &a->sorted_slots, BENCH_ONCE) || !bench_out(c, &a->block_experts, BENCH_ONCE) ||
        !bench_out(c, &a->num_padded, BENCH_ONCE))
        return;
    c->limit.copy_bytes = bench_bytes(a->ids);
    c->bytes = (double)(bench_bytes(a->ids) + bench_bytes(a->sorted_slots) + bench_bytes(a->block_experts));
}

/* One pass over the slots for every expert: the definition, not an efficient method. */
static void plain(const struct bench_call *c)
{
    const sy_moe_align_block_args *const a = c->args;
    const int32_t *const ids = a->ids->data, slots = (int32_t)bench_count(a->ids);
    int32_t *const sorted = a->sorted_slots->data, *const blocks = a->block_experts->data;
    int64_t at = 0, block = 0;
    for (int64_t e = 0; e < a->num_experts; e++) {
        for (int32_t i = 0; i < slots; i++)
            if (ids[i] == e)
                sorted[at++] = i;
        while (at % a->block_size != 0)
            sorted[at++] = slots;
        while (block * a->block_size < at)
            blocks[block++] = (int32_t)e;
    }
    *(int32_t *)a->num_padded->data = (int32_t)at;
    while (at < a->sorted_slots->shape[0])
        sorted[at++] = slots;
    while (block < a->block_experts->shape[0])
        blocks[block++] = -1;
}

BENCH_OP(moe_align_block, shapes, 1, make, .plain = plain);
