/*
 * moe_locations: scenes in sample order and by importance of every type, with indices outside and ties.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_locations(sy_ctx *ctx, const void *args)
{
    return sy_moe_locations(ctx, args);
}

static void locations_scene(const DLDataType *importance_type)
{
    static const int64_t sizes[] = {0, 1, 7, 40, 40, 300, 20011};
    int64_t experts = below(20), choices = 1 + below(4), samples = sizes[below(COUNT(sizes))];
    const int64_t both[2] = {choices, samples};
    bool flat = choices == 1 && one_in(2);
    const int64_t *shape = flat ? both + 1 : both;
    struct box *indices = box_strided(SY_I32, flat ? 1 : 2, shape, one_in(3) ? 3 : 0);
    for (int64_t i = 0; i < box_elems(indices); i++)
        put(indices, i, one_in(12) ? rng() : (uint64_t)below(experts + 1));
    sy_moe_locations_args args = {.indices = &indices->t, .num_experts = experts};
    if (importance_type)
        args.importance = &fill_flavour(box_new(*importance_type, 1, &samples), (enum flavour)below(4))->t;
    args.locations = &output(box_strided(SY_I32, flat ? 1 : 2, shape, one_in(3) ? 2 : 0))->t;
    if (one_in(2))
        args.counts = &output(box_new(SY_I64, 1, &experts))->t;
    run_scene(call_locations, &args);
}

void moe_locations_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"none", {0, 0, 0}}, {"f32", {2, 32, 1}}, {"f16", {2, 16, 1}}, {"bf16", {4, 16, 1}}};
    char name[128];
    for (int t = 0; t < COUNT(types); t++) {
        snprintf(name, sizeof name, "moe_locations importance=%s", types[t].name);
        begin_line(name);
        for (int i = 0; i < 40; i++)
            locations_scene(t ? &types[t].type : NULL);
        end_line();
    }
}
