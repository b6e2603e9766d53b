/*
 * moe_reorder_chunks: scenes in both directions, some with counts that do not fit.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_reorder(sy_ctx *ctx, const void *args)
{
    return sy_moe_reorder_chunks(ctx, args);
}

static void reorder_scene(DLDataType type, bool inverse)
{
    static const int64_t sizes[] = {0, 1, 9, 60, 900};
    int64_t rows = sizes[below(COUNT(sizes))], ranks = below(7), experts = below(9), width = below(60),
            gap = below(4);
    const int64_t shape[2] = {rows, width};
    int64_t left = rows, cells = ranks * experts;
    struct box *counts = box_new(index_type(), 2, (int64_t[]){ranks, experts});
    for (int64_t i = 0; i < cells; i++) {
        int64_t n = below(1 + 2 * left / (cells - i));
        n = n < left ? n : left;
        left -= n;
        if (one_in(400))
            n = one_in(2) ? -1 : rows + 1;
        put(counts, i, (uint64_t)n);
    }
    sy_moe_reorder_chunks_args args = {.counts = &counts->t, .inverse = inverse};
    args.rows = &fill_random(box_strided(type, 2, shape, gap))->t;
    args.reordered_rows = &output(box_strided(type, 2, shape, one_in(3) ? 3 : 0))->t;
    if (one_in(2)) {
        args.extra = &fill_random(box_new(SY_F32, 1, &rows))->t;
        args.reordered_extra = &output(box_new(SY_F32, 1, &rows))->t;
    }
    args.expert_offsets = &output(box_new(SY_I64, 1, &(int64_t){experts + 1}))->t;
    run_scene(call_reorder, &args);
}

void moe_reorder_chunks_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"u8", {1, 8, 1}}, {"bf16", {4, 16, 1}}, {"f32", {2, 32, 1}}};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int inverse = 0; inverse < 2; inverse++) {
            snprintf(name, sizeof name, "moe_reorder_chunks %s %s", types[t].name,
                     inverse ? "back" : "there");
            begin_line(name);
            for (int i = 0; i < 40; i++)
                reorder_scene(types[t].type, inverse);
            end_line();
        }
}
