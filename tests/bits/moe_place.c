/*
 * moe_place: scenes with and without nodes and `distinct`, with equal loads, places of an earlier call, and wrong numbers.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_place(sy_ctx *ctx, const void *args)
{
    return sy_moe_place(ctx, args);
}

/* `n` numbers of a layer below `most`, one of them -1 now and then. */
static struct box *numbers(DLDataType type, int64_t layers, int64_t n, int64_t most)
{
    struct box *b = box_strided(type, 2, (int64_t[]){layers, n}, one_in(3) ? 2 : 0);
    for (int64_t i = 0; i < box_elems(b); i++)
        put(b, i, (uint64_t)below(most));
    if (box_elems(b) > 0 && one_in(25))
        put(b, 0, UINT64_MAX);
    return b;
}

static void place_scene(bool by_node, bool distinct)
{
    static const int64_t most[] = {1, 4, 1000, INT64_C(1) << 30};
    const int64_t layers = below(5);
    sy_moe_place_args args = {.nodes = by_node ? 1 + below(3) : 0, .distinct = distinct};
    const int64_t nodes = by_node ? args.nodes : 1;
    args.devices = nodes * (1 + below(8));
    args.groups = by_node ? nodes * (1 + below(3)) : 0;
    const int64_t experts = by_node ? args.groups * (1 + below(6)) : 1 + below(60);
    const int64_t least = (experts + args.devices - 1) / args.devices, room = experts / nodes - least;
    const int64_t more = distinct ? below((room < 4 ? room : 4) + 1) : below(5);
    args.num_physical = args.devices * (least + more);
    args.loads = &numbers(SY_I64, layers, experts, most[below(COUNT(most))])->t;
    if (one_in(2))
        args.previous = &numbers(SY_I32, layers, args.num_physical, experts)->t;
    const int64_t wide = args.num_physical - experts + 1;
    const DLDataType type = index_type();
    args.physical_to_logical = &output(box_new(type, 2, (int64_t[]){layers, args.num_physical}))->t;
    args.logical_to_physical = &output(box_new(type, 3, (int64_t[]){layers, experts, wide}))->t;
    args.replica_count = &output(box_new(type, 2, (int64_t[]){layers, experts}))->t;
    args.device_load = &output(box_new(SY_I64, 2, (int64_t[]){layers, args.devices}))->t;
    args.expert_mapping = &output(box_new(SY_U16, 2, (int64_t[]){args.num_physical, args.devices}))->t;
    run_scene(call_place, &args);
}

void moe_place_lines(void)
{
    char name[128];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "moe_place %s%s", i & 2 ? "nodes" : "devices", i & 1 ? " distinct" : "");
        begin_line(name);
        for (int j = 0; j < 60; j++)
            place_scene(i & 2, i & 1);
        end_line();
    }
}
