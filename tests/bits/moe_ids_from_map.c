/*
 * moe_ids_from_map: scenes with and without probs, with short rows and overfull ones.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_ids(sy_ctx *ctx, const void *args)
{
    return sy_moe_ids_from_map(ctx, args);
}

static void ids_scene(const DLDataType *type, bool overfull)
{
    static const int64_t sizes[] = {0, 1, 5, 30, 700};
    int64_t tokens = sizes[below(COUNT(sizes))], experts = below(300), slots = below(9), odds = 1 + below(20);
    const int64_t shape[2] = {tokens, slots}, cells[2] = {tokens, experts};
    struct box *map = box_new(one_in(2) ? SY_BOOL : SY_U8, 2, cells);
    for (int64_t t = 0; t < tokens; t++) {
        int64_t left = overfull && one_in(20) ? experts : slots;
        for (int64_t e = 0; e < experts; e++) {
            bool on = left > 0 && one_in(odds);
            put(map, t * experts + e, on ? 1 : 0);
            left -= on;
        }
    }
    sy_moe_ids_from_map_args args = {.routing_map = &map->t, .k = slots};
    args.ids = &output(box_new(index_type(), 2, shape))->t;
    if (type->bits) {
        args.probs = &fill_random(box_new(*type, 2, cells))->t;
        args.weights = &output(box_strided(*type, 2, shape, one_in(3) ? 3 : 0))->t;
    }
    run_scene(call_ids, &args);
}

void moe_ids_from_map_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"none", {0, 0, 0}}, {"f32", {2, 32, 1}}, {"f16", {2, 16, 1}}};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int overfull = 0; overfull < 2; overfull++) {
            snprintf(name, sizeof name, "moe_ids_from_map probs=%s %s", types[t].name,
                     overfull ? "overfull" : "valid");
            begin_line(name);
            for (int i = 0; i < (overfull ? 12 : 40); i++)
                ids_scene(&types[t].type, overfull);
            end_line();
        }
}
