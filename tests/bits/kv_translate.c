/*
 * kv_translate and kv_slots: scenes of every padding rule, with and without faults in the contents.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_translate(sy_ctx *ctx, const void *args)
{
    return sy_kv_translate(ctx, args);
}

static sy_status call_slots(sy_ctx *ctx, const void *args)
{
    return sy_kv_slots(ctx, args);
}

/* A table of blocks that exist; with faults, one in twelve does not. */
static struct box *make_table(int64_t rows, int64_t columns, int64_t blocks, bool faults)
{
    const DLDataType type = index_type(); /* one draw per statement: arguments have no order */
    struct box *table = box_strided(type, 2, (int64_t[]){rows, columns}, one_in(3) ? 2 : 0);
    for (int64_t i = 0; i < box_elems(table); i++) {
        int64_t block = below(blocks);
        if (faults && one_in(12))
            block = one_in(2) ? -1 : blocks;
        put(table, i, (uint64_t)block);
    }
    return table;
}

static void fill_tokens(struct box *tokens, int64_t length, bool padded, bool faults)
{
    for (int64_t i = 0; i < box_elems(tokens); i++) {
        int64_t t = below(length);
        if (padded && one_in(5))
            t = -1;
        else if (faults && one_in(40))
            t = length;
        put(tokens, i, (uint64_t)t);
    }
}

static void translate_scene(sy_kv_pad pad, bool faults)
{
    int64_t size = 1 + below(6), blocks = 1 + below(9), columns = 1 + below(4), batch = 1 + below(5);
    int64_t k = one_in(8) ? 3000 : below(30);
    struct box *table = make_table(batch, columns, blocks, faults);
    struct box *indices = box_new(index_type(), 2, (int64_t[]){batch, k});
    fill_tokens(indices, size * columns, pad != SY_PAD_ERROR, faults);
    sy_kv_translate_args args = {.indices = &indices->t, .block_table = &table->t, .pad = pad};
    args.block_size = size;
    args.num_rows = one_in(2) ? blocks * size : 0;
    if (one_in(2)) {
        struct box *counts = box_new(index_type(), 1, &batch);
        for (int64_t b = 0; b < batch; b++)
            put(counts, b, (uint64_t)below(k + 1));
        args.counts = &counts->t;
    }
    const DLDataType type = index_type();
    args.slots = &output(box_strided(type, 2, (int64_t[]){batch, k}, one_in(3) ? 3 : 0))->t;
    if (!one_in(3))
        args.valid = &output(box_new(index_type(), 1, &batch))->t;
    run_scene(call_translate, &args);
}

static void slots_scene(sy_kv_pad pad, bool faults)
{
    int64_t size = 1 + below(6), blocks = 1 + below(9), columns = 1 + below(4), rows = 1 + below(4);
    int64_t n = one_in(8) ? 9000 : below(60);
    struct box *table = make_table(rows, columns, blocks, faults);
    struct box *batch = box_new(index_type(), 1, &n), *position = box_new(index_type(), 1, &n);
    fill_tokens(batch, rows, false, faults);
    fill_tokens(position, size * columns, pad != SY_PAD_ERROR, faults);
    sy_kv_slots_args args = {
        .batch = &batch->t, .position = &position->t, .block_table = &table->t, .pad = pad};
    args.block_size = size;
    args.num_rows = one_in(2) ? blocks * size : 0;
    args.slots = &output(box_new(index_type(), 1, &n))->t;
    run_scene(call_slots, &args);
}

static void lines(const char *op, void (*scene)(sy_kv_pad pad, bool faults))
{
    static const char *const pads[] = {"error", "zero", "skip"};
    char name[128];
    for (int p = 0; p < COUNT(pads); p++)
        for (int f = 0; f < 2; f++) {
            snprintf(name, sizeof name, "%s pad=%s %s", op, pads[p], f ? "faulty" : "valid");
            begin_line(name);
            for (int i = 0; i < 40; i++)
                scene((sy_kv_pad)p, f);
            end_line();
        }
}

void kv_translate_lines(void)
{
    lines("kv_translate", translate_scene);
    lines("kv_slots", slots_scene);
}
