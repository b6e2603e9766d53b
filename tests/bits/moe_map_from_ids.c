/*
 * moe_map_from_ids: scenes with and without weights, with missing experts, and with faults.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_map(sy_ctx *ctx, const void *args)
{
    return sy_moe_map_from_ids(ctx, args);
}

static void map_scene(const DLDataType *type, bool missing, bool faulty)
{
    static const int64_t sizes[] = {0, 1, 5, 30, 700};
    int64_t tokens = sizes[below(COUNT(sizes))], experts = 1 + below(60);
    int64_t slots = below(experts < 8 ? experts + 1 : 9);
    const int64_t shape[2] = {tokens, slots}, cells[2] = {tokens, experts};
    struct box *ids = box_new(index_type(), 2, shape);
    for (int64_t t = 0; t < tokens; t++) {
        int64_t start = below(experts);
        for (int64_t j = 0; j < slots; j++) {
            int64_t id = (start + experts - j) % experts;
            if (missing && one_in(5))
                id = one_in(2) ? -1 : experts;
            if (faulty && one_in(40))
                id = below(3 * experts) - experts;
            put(ids, t * slots + j, (uint64_t)id);
        }
    }
    sy_moe_map_from_ids_args args = {.ids = &ids->t, .num_experts = experts, .allow_missing = missing};
    args.routing_map = &output(box_strided(SY_BOOL, 2, cells, one_in(3) ? 3 : 0))->t;
    if (type->bits) {
        args.weights = &fill_random(box_new(*type, 2, shape))->t;
        args.probs = &output(box_new(*type, 2, cells))->t;
    }
    run_scene(call_map, &args);
}

void moe_map_from_ids_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"none", {0, 0, 0}}, {"f32", {2, 32, 1}}, {"bf16", {4, 16, 1}}};
    static const char *const modes[] = {"valid", "missing", "faulty"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int m = 0; m < COUNT(modes); m++) {
            snprintf(name, sizeof name, "moe_map_from_ids weights=%s %s", types[t].name, modes[m]);
            begin_line(name);
            for (int i = 0; i < (m == 2 ? 12 : 40); i++)
                map_scene(&types[t].type, m == 1, m == 2);
            end_line();
        }
}
