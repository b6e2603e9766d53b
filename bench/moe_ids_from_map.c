/*
 * moe_ids_from_map: must read the map and write the ids. The limit reads as many bytes.
 */
#include "described.h"

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
    sy_moe_ids_from_map_args *const a = c->args;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E=");
    a->k = bench_size(c, "K=");
    bench_in(c, &a->routing_map, SY_BOOL, DIMS(tokens, experts), BENCH_TURNS, fill_route, a->k);
    bench_out(c, &a->ids, BENCH_ONCE);
    c->limit.read_bytes = (size_t)(tokens * experts);
    c->bytes = (double)(tokens * (experts + 4 * a->k));
}

static void plain(const struct bench_call *c)
{
    const sy_moe_ids_from_map_args *const a = c->args;
    const int64_t tokens = a->routing_map->shape[0], experts = a->routing_map->shape[1];
    const uint8_t *const map = a->routing_map->data;
    int32_t *const ids = a->ids->data;
    for (int64_t t = 0; t < tokens; t++) {
        int64_t slot = t * a->k;
        for (int64_t e = 0; e < experts; e++)
            if (map[t * experts + e])
                ids[slot++] = (int32_t)e;
    }
}

BENCH_OP(moe_ids_from_map, shapes, 1, make, .plain = plain);
