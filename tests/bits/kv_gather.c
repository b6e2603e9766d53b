/*
 * kv_gather: scenes of every padding rule, with and without faults in the contents.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_gather(sy_ctx *ctx, const void *args)
{
    return sy_kv_gather(ctx, args);
}

/* A cache of whole blocks, or flat with a partial last block; *rows are the rows it holds. */
static struct box *make_cache(DLDataType type, int64_t block_size, int64_t blocks, int64_t width, bool flat,
                              int64_t *rows)
{
    *rows = blocks * block_size;
    if (!flat)
        return fill_random(box_new(type, 3, (int64_t[]){blocks, block_size, width}));
    *rows -= below(block_size);
    return fill_random(box_strided(type, 2, (int64_t[]){*rows, width}, one_in(3) ? 3 : 0));
}

/* A block table and, for each batch row, indices, req_id, counts and seq_lens that fit it; with faults, not. */
struct gather {
    struct box *table, *indices, *req, *counts, *lens;
    int64_t block_size, blocks, rows, batch, count, columns, table_rows;
    bool with_req, padded, faults;
};

static void fill_gather(struct gather *g)
{
    int64_t entry[64];
    for (int64_t i = 0; i < g->table_rows * g->columns; i++) {
        entry[i] = below(g->blocks);
        if (g->faults && one_in(12))
            entry[i] += g->blocks;
        put(g->table, i, (uint64_t)entry[i]);
    }
    for (int64_t b = 0; b < g->batch; b++) {
        int64_t row = g->with_req ? below(g->table_rows) : b, len = 1 + below(g->block_size * g->columns);
        put(g->req, b, (uint64_t)(g->faults && one_in(9) ? g->table_rows : row));
        put(g->counts, b, (uint64_t)below(g->count + 1));
        put(g->lens, b, (uint64_t)len);
        for (int64_t j = 0; j < g->count; j++) {
            int64_t t = below(len);
            int64_t at = entry[row * g->columns + t / g->block_size] * g->block_size + t % g->block_size;
            if (g->faults && one_in(20))
                t = len;
            else if (at >= g->rows) /* the missing end of the partial block; its first row always exists */
                t -= t % g->block_size;
            if (g->padded && one_in(5))
                t = -1;
            put(g->indices, b * g->count + j, (uint64_t)t);
        }
    }
}

static void gather_scene(DLDataType type, sy_kv_pad pad, bool faults)
{
    static const int64_t widths[] = {1, 3, 16, 37};
    struct gather g = {.padded = pad != SY_PAD_ERROR, .faults = faults};
    int64_t width = widths[below(COUNT(widths))];
    g.block_size = 1 + below(5);
    g.blocks = 1 + below(9);
    g.batch = 1 + below(5);
    g.count = 1 + below(12);
    g.columns = 1 + below(4);
    g.with_req = one_in(2);
    g.table_rows = g.with_req ? 1 + below(4) : g.batch;
    struct box *cache = make_cache(type, g.block_size, g.blocks, width, one_in(2), &g.rows);
    g.table = box_new(index_type(), 2, (int64_t[]){g.table_rows, g.columns});
    g.indices = box_new(index_type(), 2, (int64_t[]){g.batch, g.count});
    g.req = box_new(index_type(), 1, &g.batch);
    g.counts = box_new(index_type(), 1, &g.batch);
    g.lens = box_new(index_type(), 1, &g.batch);
    fill_gather(&g);

    sy_kv_gather_args args = {.cache = &cache->t, .indices = &g.indices->t, .block_table = &g.table->t};
    args.req_id = g.with_req ? &g.req->t : NULL;
    args.counts = one_in(2) ? &g.counts->t : NULL;
    args.seq_lens = one_in(2) ? &g.lens->t : NULL;
    args.block_size = g.block_size;
    args.pad = pad;
    args.out = &output(fill_random(box_new(type, 3, (int64_t[]){g.batch, g.count, width})))->t;
    run_scene(call_gather, &args);
}

void kv_gather_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"u8", {1, 8, 1}}, {"bf16", {4, 16, 1}}, {"f32", {2, 32, 1}}, {"f64", {2, 64, 1}}};
    static const char *const pads[] = {"error", "zero", "skip"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int p = 0; p < COUNT(pads); p++)
            for (int f = 0; f < 2; f++) {
                snprintf(name, sizeof name, "kv_gather %s pad=%s %s", types[t].name, pads[p],
                         f ? "faulty" : "valid");
                begin_line(name);
                for (int i = 0; i < 40; i++)
                    gather_scene(types[t].type, (sy_kv_pad)p, f);
                end_line();
            }
}
