/*
 * moe_pad_map: must read the map and write it. The limit is a copy of it.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "T=16384 E=256 K=8 a=128",
    "T=4096 E=64 K=8 a=16",
    "T=128 E=64 K=8 a=16",
    /* Quick. */
    "T=512 E=64 K=8 a=16",
};

static void make(struct bench_call *c)
{
    sy_moe_pad_map_args *const a = c->args;
    a->alignment = bench_size(c, "a=");
    bench_in(c, &a->routing_map, SY_BOOL, DIMS(bench_size(c, "T="), bench_size(c, "E=")), BENCH_TURNS,
             fill_route, bench_size(c, "K="));
    bench_out(c, &a->padded_map, BENCH_COPIES);
    c->limit.copy_bytes = bench_bytes(a->routing_map);
}

/* Expert by expert, as the definition reads. */
static void plain(const struct bench_call *c)
{
    const sy_moe_pad_map_args *const a = c->args;
    const int64_t tokens = a->routing_map->shape[0], experts = a->routing_map->shape[1];
    uint8_t *const map = a->padded_map->data;
    memcpy(map, a->routing_map->data, (size_t)(tokens * experts));
    for (int64_t e = 0; e < experts; e++) {
        int64_t count = 0;
        for (int64_t t = 0; t < tokens; t++)
            count += map[t * experts + e];
        for (int64_t t = 0; count % a->alignment != 0 && t < tokens; t++)
            if (!map[t * experts + e]) {
                map[t * experts + e] = 1;
                count++;
            }
    }
}

BENCH_OP(moe_pad_map, shapes, 1, make, .plain = plain);
