/*
 * moe_map_physical: must read the ids and write as many. The limit is a copy of them.
 */
#include "described.h"

static const char *const shapes[] = {
    "T=16384 E=256 R=4 K=8",
    "T=128 E=256 R=4 K=8",
    /* Quick. */
    "T=512 E=64 R=4 K=8",
};

/* R replicas of every expert, those of one expert far apart. */
BENCH_OWN(fill_replicas, bench_store_integer, i % x->shape[1] * x->shape[0] + i / x->shape[1])

static void make(struct bench_call *c)
{
    sy_moe_map_physical_args *const a = c->args;
    const int64_t experts = bench_size(c, "E="), replicas = bench_size(c, "R=");
    a->num_physical = experts * replicas;
    a->rule = SY_REPLICA_BALANCED;
    bench_in(c, &a->ids, SY_I32, DIMS(bench_size(c, "T="), bench_size(c, "K=")), BENCH_TURNS, fill_skewed,
             experts);
    bench_in(c, &a->logical_to_physical, SY_I32, DIMS(experts, replicas), BENCH_ONCE, fill_replicas, 0);
    bench_out(c, &a->physical_ids, BENCH_COPIES);
    c->limit.copy_bytes = bench_bytes(a->ids);
}

static void plain(const struct bench_call *c)
{
    const sy_moe_map_physical_args *const a = c->args;
    const int64_t replicas = a->logical_to_physical->shape[1], slots = bench_count(a->ids);
    const int32_t *const ids = a->ids->data, *const table = a->logical_to_physical->data;
    int32_t *const out = a->physical_ids->data;
    int64_t turn[256] = {0};
    for (int64_t i = 0; i < slots; i++)
        out[i] = table[ids[i] * replicas + turn[ids[i]]++ % replicas];
}

BENCH_OP(moe_map_physical, shapes, 1, make, .plain = plain);
