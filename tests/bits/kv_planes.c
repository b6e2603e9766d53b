/*
 * kv_gather and kv_scatter of several planes of different types, widths and layouts, and of caches with heads.
 */
#include "bits.h"

#include <stdio.h>

enum { MOST_PLANES = 4 };

static sy_status call_gather(sy_ctx *ctx, const void *args)
{
    return sy_kv_gather(ctx, args);
}

static sy_status call_scatter(sy_ctx *ctx, const void *args)
{
    return sy_kv_scatter(ctx, args);
}

struct scene {
    int64_t blocks, size, n;
    int n_planes;
    struct box *cache[MOST_PLANES], *rows[MOST_PLANES];
    sy_kv_plane more[MOST_PLANES];
};

/* Every second cache is flat; of the others, every second has a gap behind each row. */
static void make_planes(struct scene *s, bool to_cache)
{
    static const DLDataType types[MOST_PLANES] = {{4, 16, 1}, {1, 8, 1}, {2, 32, 1}, {2, 64, 1}};
    for (int i = 0; i < s->n_planes; i++) {
        int64_t width = 1 + below(40);
        int64_t gap = i == 2 ? 3 : 0;
        s->cache[i] = i % 2 ? box_new(types[i], 2, (int64_t[]){s->blocks * s->size, width})
                            : box_strided(types[i], 3, (int64_t[]){s->blocks, s->size, width}, gap);
        s->rows[i] = box_strided(types[i], 2, (int64_t[]){s->n, width}, i == 1 ? 2 : 0);
        fill_random(s->cache[i]);
        fill_random(s->rows[i]);
        output(to_cache ? s->cache[i] : s->rows[i]);
        if (i > 0)
            s->more[i - 1] = (sy_kv_plane){.cache = &s->cache[i]->t, .rows = &s->rows[i]->t};
    }
}

static struct scene make_scene(bool to_cache)
{
    struct scene s = {0};
    s.blocks = 1 + below(30);
    s.size = 1 + below(9);
    s.n = below(s.blocks * s.size + 1);
    s.n_planes = 2 + (int)below(MOST_PLANES - 1);
    make_planes(&s, to_cache);
    return s;
}

static void gather_scene(struct scene s, sy_kv_layout layout)
{
    struct box *indices = box_new(index_type(), 1, &s.n), *table = box_new(index_type(), 1, &s.blocks);
    for (int64_t i = 0; i < s.blocks; i++)
        put(table, i, (uint64_t)below(s.blocks));
    for (int64_t i = 0; i < s.n; i++) {
        int64_t t = below(s.blocks * s.size);
        put(indices, i, (uint64_t)(one_in(9) ? -1 : t));
    }
    sy_kv_gather_args args = {.cache = &s.cache[0]->t, .indices = &indices->t, .block_table = &table->t};
    args.block_size = s.size;
    args.pad = one_in(2) ? SY_PAD_SKIP : SY_PAD_ZERO;
    args.out = &s.rows[0]->t;
    args.planes = s.more;
    args.num_planes = s.n_planes - 1;
    args.plane_bytes = sizeof(sy_kv_plane);
    args.layout = layout;
    run_scene(call_gather, &args);
}

static void scatter_scene(struct scene s, sy_kv_layout layout)
{
    struct box *slots = box_new(index_type(), 1, &s.n);
    for (int64_t i = 0; i < s.n; i++)
        put(slots, i, (uint64_t)(one_in(9) ? -1 : s.n - 1 - i));
    sy_kv_scatter_args args = {.cache = &s.cache[0]->t, .src = &s.rows[0]->t, .slots = &slots->t};
    args.pad = SY_PAD_SKIP;
    args.planes = s.more;
    args.num_planes = s.n_planes - 1;
    args.plane_bytes = sizeof(sy_kv_plane);
    args.layout = layout;
    run_scene(call_scatter, &args);
}

/* Head-major blocks of keys and values, with a gap behind every row of a head or none. */
static struct scene make_heads(bool to_cache)
{
    struct scene s = {.n_planes = 2};
    s.blocks = 1 + below(30);
    s.size = 1 + below(9);
    s.n = below(s.blocks * s.size + 1);
    int64_t heads = 1 + below(6);
    int64_t width = 1 + below(40);
    int64_t gap = below(2);
    for (int i = 0; i < 2; i++) {
        s.cache[i] = box_strided(SY_BF16, 4, (int64_t[]){s.blocks, heads, s.size, width}, gap);
        s.rows[i] = box_new(SY_BF16, 3, (int64_t[]){s.n, heads, width});
        fill_random(s.cache[i]);
        fill_random(s.rows[i]);
        output(to_cache ? s.cache[i] : s.rows[i]);
    }
    s.more[0] = (sy_kv_plane){.cache = &s.cache[1]->t, .rows = &s.rows[1]->t};
    return s;
}

void kv_planes_lines(void)
{
    begin_line("kv_gather planes");
    for (int i = 0; i < 60; i++)
        gather_scene(make_scene(false), SY_KV_NHD);
    end_line();
    begin_line("kv_scatter planes");
    for (int i = 0; i < 60; i++)
        scatter_scene(make_scene(true), SY_KV_NHD);
    end_line();
    begin_line("kv_gather heads");
    for (int i = 0; i < 40; i++)
        gather_scene(make_heads(false), SY_KV_HND);
    end_line();
    begin_line("kv_scatter heads");
    for (int i = 0; i < 40; i++)
        scatter_scene(make_heads(true), SY_KV_HND);
    end_line();
}
