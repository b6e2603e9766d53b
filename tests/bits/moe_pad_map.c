/*
 * moe_pad_map: scenes of several densities and alignments.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_pad(sy_ctx *ctx, const void *args)
{
    return sy_moe_pad_map(ctx, args);
}

static void pad_scene(int64_t most)
{
    static const int64_t sizes[] = {0, 40, 100, 900};
    int64_t tokens = sizes[below(COUNT(sizes))], experts = below(300), odds = 2 + below(20), gap = below(4);
    const int64_t shape[2] = {tokens, experts};
    DLDataType type = one_in(2) ? SY_BOOL : SY_U8;
    struct box *map = box_new(type, 2, shape);
    for (int64_t i = 0; i < tokens * experts; i++)
        put(map, i, one_in(odds) ? 1 : 0);
    sy_moe_pad_map_args args = {.routing_map = &map->t};
    args.alignment = 1 + below(most);
    args.padded_map = &output(box_strided(type, 2, shape, gap))->t;
    args.expert_counts = &output(box_new(SY_I64, 1, &experts))->t;
    run_scene(call_pad, &args);
}

void moe_pad_map_lines(void)
{
    static const int64_t most[] = {8, 40};
    char name[128];
    for (int m = 0; m < COUNT(most); m++) {
        snprintf(name, sizeof name, "moe_pad_map up to %d", (int)most[m]);
        begin_line(name);
        for (int i = 0; i < 40; i++)
            pad_scene(most[m]);
        end_line();
    }
}
