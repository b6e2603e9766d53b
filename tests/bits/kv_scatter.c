/*
 * kv_scatter: flat and paged caches, both padding rules, with and without faults in the slots.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_scatter(sy_ctx *ctx, const void *args)
{
    return sy_kv_scatter(ctx, args);
}

/* Distinct slots: multiples of a number that has no factor in common with the rows, from anywhere. */
static void fill_slots(struct box *slots, int64_t rows, bool padded, bool faults)
{
    static const int64_t steps[] = {1, 3, 7, 11};
    int64_t step = steps[below(COUNT(steps))], at = below(rows);
    if (rows % step == 0)
        step = 1;
    for (int64_t i = 0; i < box_elems(slots); i++, at = (at + step) % rows) {
        int64_t slot = at;
        if (padded && one_in(6))
            slot = -1;
        else if (faults && one_in(30))
            slot = rows;
        else if (faults && one_in(20))
            slot = below(rows);
        put(slots, i, (uint64_t)slot);
    }
}

static void scatter_scene(DLDataType type, sy_kv_pad pad, bool faults)
{
    static const int64_t widths[] = {1, 3, 16, 37};
    int64_t width = widths[below(COUNT(widths))], size = 1 + below(6), blocks = 1 + below(20);
    int64_t rows = size * blocks, n = below(rows + 1);
    struct box *cache = one_in(2) ? box_new(type, 3, (int64_t[]){blocks, size, width})
                                  : box_strided(type, 2, (int64_t[]){rows, width}, one_in(3) ? 3 : 0);
    output(fill_random(cache));
    struct box *src = fill_random(box_strided(type, 2, (int64_t[]){n, width}, one_in(3) ? 2 : 0));
    struct box *slots = box_new(index_type(), 1, &n);
    fill_slots(slots, rows, pad == SY_PAD_SKIP, faults);
    sy_kv_scatter_args args = {.cache = &cache->t, .src = &src->t, .slots = &slots->t, .pad = pad};
    args.check_unique = faults || one_in(2); /* unspecified otherwise */
    run_scene(call_scatter, &args);
}

void kv_scatter_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"u8", {1, 8, 1}}, {"bf16", {4, 16, 1}}, {"f64", {2, 64, 1}}};
    static const sy_kv_pad pads[] = {SY_PAD_ERROR, SY_PAD_SKIP};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int p = 0; p < COUNT(pads); p++)
            for (int f = 0; f < 2; f++) {
                snprintf(name, sizeof name, "kv_scatter %s pad=%s %s", types[t].name, p ? "skip" : "error",
                         f ? "faulty" : "valid");
                begin_line(name);
                for (int i = 0; i < 40; i++)
                    scatter_scene(types[t].type, pads[p], f);
                end_line();
            }
}
