/*
 * kv_ragged: flat and paged caches, with and without starts, with and without faults in the contents.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call(sy_ctx *ctx, const void *args)
{
    return sy_kv_ragged(ctx, args);
}

static DLDataType row_type(void)
{
    static const DLDataType types[] = {{2, 32, 1}, {4, 16, 1}, {1, 8, 1}, {2, 64, 1}};
    return types[below(COUNT(types))];
}

static struct box *make_cache(DLDataType type, int64_t blocks, int64_t size, int64_t width, bool paged)
{
    const int64_t gap = one_in(3) ? 1 + below(4) : 0, missing = below(size);
    if (paged)
        return fill_random(box_new(type, 3, (int64_t[]){blocks, size, width}));
    return fill_random(box_strided(type, 2, (int64_t[]){(blocks + 1) * size - missing, width}, gap));
}

/* Blocks that are full; with faults, one in twelve is not, or does not exist. */
static struct box *make_table(int64_t rows, int64_t columns, int64_t blocks, bool faults)
{
    const DLDataType type = index_type(); /* one draw per statement: arguments have no order */
    struct box *table = box_new(type, 2, (int64_t[]){rows, columns});
    for (int64_t i = 0; i < box_elems(table); i++) {
        int64_t block = below(blocks);
        if (faults && one_in(12))
            block = one_in(3) ? -1 : blocks;
        put(table, i, (uint64_t)block);
    }
    return table;
}

/* Where the runs begin; their lengths go into `cu_lens`. Returns the rows they need. */
static int64_t fill_runs(struct box *starts, struct box *cu_lens, int64_t batch, int64_t length, bool faults)
{
    int64_t rows = 0;
    put(cu_lens, 0, faults && one_in(20) ? 1 : 0);
    for (int64_t b = 0; b < batch; b++) {
        const int64_t start = below(length);
        int64_t n = one_in(5) ? 0 : below(length - start + 1);
        if (faults && one_in(15))
            n = length + 1;
        put(starts, b, (uint64_t)start);
        rows += n;
        put(cu_lens, b + 1, (uint64_t)rows);
    }
    return rows;
}

static void scene(bool paged, bool faults)
{
    const int64_t size = one_in(4) ? 64 : 1 + below(6);
    const int64_t blocks = 1 + below(9);
    const int64_t columns = 1 + below(4);
    const int64_t batch = 1 + below(6);
    const int64_t width = one_in(6) ? 2000 : 1 + below(40);
    const DLDataType type = row_type();
    const int64_t requests = one_in(2) ? 1 + below(4) : batch;
    struct box *cache = make_cache(type, blocks, size, width, paged);
    struct box *table = make_table(requests, columns, blocks, faults);
    const DLDataType start_type = index_type();
    struct box *starts = box_new(start_type, 1, &batch);
    const int64_t ends = batch + 1;
    const DLDataType lens_type = index_type();
    struct box *cu_lens = box_new(lens_type, 1, &ends);
    const int64_t rows = fill_runs(starts, cu_lens, batch, columns * size, faults);
    sy_kv_ragged_args args = {
        .cache = &cache->t, .block_table = &table->t, .cu_lens = &cu_lens->t, .block_size = size};
    if (!one_in(4))
        args.starts = &starts->t;
    if (requests != batch || one_in(2)) {
        const DLDataType req_type = index_type();
        struct box *req_id = box_new(req_type, 1, &batch);
        for (int64_t b = 0; b < batch; b++)
            put(req_id, b, (uint64_t)below(faults && one_in(10) ? requests + 1 : requests));
        args.req_id = &req_id->t;
    }
    const int64_t rest = below(3);
    const int64_t gap = one_in(3) ? 3 : 0;
    args.out = &output(box_strided(type, 2, (int64_t[]){rows + rest, width}, gap))->t;
    sy_kv_plane plane = {.format = NULL};
    if (one_in(3)) {
        plane.cache = &fill_random(box_new(SY_U16, 3, (int64_t[]){blocks, size, 3}))->t;
        plane.rows = &output(box_new(SY_U16, 2, (int64_t[]){rows + rest, 3}))->t;
        args.planes = &plane;
        args.num_planes = paged ? 1 : 0; /* a flat cache has some rows more */
        args.plane_bytes = sizeof(sy_kv_plane);
    }
    run_scene(call, &args);
}

void kv_ragged_lines(void)
{
    char name[128];
    for (int paged = 0; paged < 2; paged++)
        for (int f = 0; f < 2; f++) {
            snprintf(name, sizeof name, "kv_ragged %s %s", paged ? "paged" : "flat", f ? "faulty" : "valid");
            begin_line(name);
            for (int i = 0; i < 60; i++)
                scene(paged, f);
            end_line();
        }
}
