/*
 * moe_capacity: scenes of every sign of the factor, some with counts or sizes that are refused.
 */
#include "bits.h"

#include <stdio.h>
#include <string.h>

static sy_status call_capacity(sy_ctx *ctx, const void *args)
{
    return sy_moe_capacity(ctx, args);
}

static void capacity_scene(int sign)
{
    int64_t experts = 1 + below(9), one = 1;
    struct box *counts = box_new(index_type(), 1, &experts);
    for (int64_t e = 0; e < experts; e++)
        put(counts, e, (uint64_t)(one_in(60) ? -1 : below(5000)));
    sy_moe_capacity_args args = {.counts = &counts->t, .samples = below(40000), .num_experts = experts};
    args.k = below(5);
    args.alignment = below(17);
    /* 2^-4 .. 2^3 with every mantissa bit, seldom 2^60 */
    uint64_t bits = (uint64_t)(1019 + (one_in(15) ? 64 : below(8))) << 52; /* one draw per statement */
    bits |= rng() >> 12;
    if (sign < 0)
        bits |= (uint64_t)1 << 63;
    if (sign != 0)
        memcpy(&args.factor, &bits, sizeof bits);
    args.capacity = &output(box_new(SY_I64, 1, &one))->t;
    run_scene(call_capacity, &args);
}

void moe_capacity_lines(void)
{
    static const struct {
        const char *name;
        int sign;
    } signs[] = {{"share", 1}, {"demand", 0}, {"ceiling", -1}};
    char name[128];
    for (int s = 0; s < COUNT(signs); s++) {
        snprintf(name, sizeof name, "moe_capacity %s", signs[s].name);
        begin_line(name);
        for (int i = 0; i < 60; i++)
            capacity_scene(signs[s].sign);
        end_line();
    }
}
