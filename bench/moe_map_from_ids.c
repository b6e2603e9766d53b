/*
 * moe_map_from_ids: must move the ids and fill the map. The limit fills as many bytes.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "T=4096 E=64 K=8",
    "T=4096 E=256 K=8",
    "T=65536 E=256 K=8",
    "T=64 E=256 K=8",
    /* Quick. */
    "T=1024 E=64 K=8",
};

static void make(struct bench_call *c)
{
    sy_moe_map_from_ids_args *const a = c->args;
    const int64_t tokens = bench_size(c, "T="), k = bench_size(c, "K=");
    a->num_experts = bench_size(c, "E=");
    bench_in(c, &a->ids, SY_I32, DIMS(tokens, k), BENCH_ONCE, fill_different, a->num_experts);
    bench_out(c, &a->routing_map, BENCH_COPIES);
    c->limit.fill_bytes = (size_t)(tokens * a->num_experts);
    c->bytes = (double)(c->limit.fill_bytes + bench_bytes(a->ids));
}

static void plain(const struct bench_call *c)
{
    const sy_moe_map_from_ids_args *const a = c->args;
    const int64_t tokens = a->ids->shape[0], k = a->ids->shape[1];
    const int32_t *const ids = a->ids->data;
    uint8_t *const map = a->routing_map->data;
    memset(map, 0, bench_bytes(a->routing_map));
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t j = 0; j < k; j++)
            map[t * a->num_experts + ids[t * k + j]] = 1;
}

BENCH_OP(moe_map_from_ids, shapes, 1, make, .plain = plain);
