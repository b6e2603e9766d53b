/*
 * kv_gather and kv_scatter with further planes reject: one valid call of three planes, one spoiler per row, the status,
 * the sentence with its plane, and untouched outputs.
 */
#include "support.h"

enum { BLOCKS = 6, BLOCK_SIZE = 4, ROWS = 24, BATCH = 2, COUNT = 5, TABLE = 3 };

/* BAD_OVER blames the tensors by name; those of planes share one. */
#define OVER(x, y, n) \
    .spoil = {.kind = SPOIL_OVER, .argument = x, .value = n, .other = y}, .want = SY_ERR_ALIAS

/* Planes of 7 f32 flat, 3 bf16 in blocks, 2 x 5 bytes in blocks. */
static void add_caches(struct test_call *c, const DLTensor **first)
{
    test_call_add(c, "cache", first, SY_F32, 2, (int64_t[]){ROWS, 7});
    test_call_add(c, "cache.1", &c->planes[0].cache, SY_BF16, 3, (int64_t[]){BLOCKS, BLOCK_SIZE, 3});
    test_call_add(c, "cache.2", &c->planes[1].cache, SY_U8, 4, (int64_t[]){BLOCKS, BLOCK_SIZE, 2, 5});
}

static void add_rows(struct test_call *c, const DLTensor **first, const char *const names[3])
{
    struct tensor *x[] = {
        test_call_add(c, names[0], first, SY_F32, 3, (int64_t[]){BATCH, COUNT, 7}),
        test_call_add(c, names[1], &c->planes[0].rows, SY_BF16, 3, (int64_t[]){BATCH, COUNT, 3}),
        test_call_add(c, names[2], &c->planes[1].rows, SY_U8, 4, (int64_t[]){BATCH, COUNT, 2, 5}),
    };
    for (int i = 0; i < 3; i++)
        memset(x[i]->mem, 0x3C, x[i]->bytes);
}

static void make_gather(struct test_call *c)
{
    sy_kv_gather_args *a = &c->args.gather;
    *c = (struct test_call){.op = "kv_gather", .first_output = 5};
    add_caches(c, &a->cache);
    test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){BATCH, COUNT});
    test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){BATCH, TABLE});
    add_rows(c, &a->out, (const char *const[]){"out", "out.1", "out.2"});
    a->block_size = BLOCK_SIZE;
    a->planes = c->planes;
    a->num_planes = 2;
    a->plane_bytes = sizeof(sy_kv_plane);
}

static void make_scatter(struct test_call *c)
{
    sy_kv_scatter_args *a = &c->args.scatter;
    *c = (struct test_call){.op = "kv_scatter", .first_output = 7};
    add_caches(c, &a->cache);
    add_rows(c, &a->src, (const char *const[]){"src", "src.1", "src.2"});
    struct tensor *slots = test_call_add(c, "slots", &a->slots, SY_I32, 2, (int64_t[]){BATCH, COUNT});
    for (int i = 0; i < BATCH * COUNT; i++)
        slots->mem[4 * i] = (unsigned char)(2 * i);
    a->planes = c->planes;
    a->num_planes = 2;
    a->plane_bytes = sizeof(sy_kv_plane);
}

static void no_planes(struct test_call *c)
{
    c->args.gather.planes = NULL;
}

static void planes_without_size(struct test_call *c)
{
    c->args.gather.plane_bytes = 0;
}

static void planes_of_garbage(struct test_call *c)
{
    c->args.gather.plane_bytes = SIZE_MAX;
}

static void cache_bytes(struct test_call *c)
{
    test_call_tensor(c, "cache.1")->shape[0] = INT64_C(1) << 62;
}

static const struct rejection gather_rows[] = {
    {"planes missing", BAD_CALL(no_planes, SY_ERR_NULL, "planes", "2", NULL), .query = true},
    {"-1 planes", BAD_FIELD("num_planes", -1, SY_ERR_VALUE, NULL, "-1", "255"), .query = true},
    {"256 planes", BAD_FIELD("num_planes", SY_KV_MAX_PLANES + 1, SY_ERR_VALUE, NULL, "256", "255"),
     .query = true},
    {"planes without a size",
     BAD_CALL(planes_without_size, SY_ERR_VALUE, "plane_bytes", "0", "sizeof(sy_kv_plane), 40"),
     .query = true},
    {"planes of any size", BAD_CALL(planes_of_garbage, SY_ERR_VALUE, "plane_bytes", NULL, "40"),
     .query = true},

    {"no cache 2", NO_TENSOR("cache.2"), .query = true, .blame = "cache",
     .found = "cache of plane 2 is missing"},
    {"no out 1", NO_TENSOR("out.1"), .blame = "out", .found = "out of plane 1 is missing"},
    {"cache 1 without data", NO_DATA("cache.1"), .blame = "cache", .found = "cache of plane 1"},
    {"out 2 without data", NO_DATA("out.2"), .blame = "out", .found = "out of plane 2"},
    {"cache 1 without shape", NO_SHAPE("cache.1"), .query = true, .blame = "cache", .found = "plane 1"},
    {"cache 1 of 4 bits", BAD_TYPE("cache.1", kDLInt, 4, 1), .query = true, .blame = "cache",
     .found = "plane 1"},
    {"out 1 of the type of another plane", BAD_TYPE("out.1", kDLFloat, 32, 1), .blame = "out",
     .found = "out of plane 1 is f32", .wanted = "bf16"},
    {"cache 2 of rank 1", BAD_RANK("cache.2", 1, "cache of plane 2 has rank 1", NULL), .query = true,
     .blame = "cache"},
    {"out 2 of rank 3", BAD_RANK("out.2", 3, "out of plane 2 has shape [2,5,2]", "[2,5,2,5]"),
     .blame = "out"},
    {"cache 1 with negative extent", BAD_EXTENT("cache.1", 2, -3, "plane 1", NULL), .query = true,
     .blame = "cache"},
    {"cache 1 rows without bytes", BAD_EXTENT("cache.1", 2, 0, "plane 1", NULL), .query = true,
     .blame = "cache"},
    {"cache 1 with another block size", BAD_EXTENT("cache.1", 1, 3, "cache of plane 1 has blocks of 3", "4"),
     .query = true, .blame = "cache"},
    {"cache 2 with a block less", BAD_EXTENT("cache.2", 0, 5, "cache of plane 2 has 20 rows", "24"),
     .query = true, .blame = "cache"},
    {"cache 1 of 2^64 rows", BAD_CALL(cache_bytes, SY_ERR_OVERFLOW, "cache|block_size", NULL, NULL),
     .query = true},
    {"out 1 one column short", BAD_EXTENT("out.1", 2, 2, "out of plane 1 has shape [2,5,2]", "[2,5,3]"),
     .blame = "out"},
    {"cache 1 with overlapping rows", BAD_STRIDE("cache.1", 1, 2, "cache of plane 1 has row stride 2", "3"),
     .query = true, .blame = "cache"},
    {"cache 2 with overlapping blocks",
     BAD_STRIDE("cache.2", 0, 39, "cache of plane 2 has block stride 39", "40"), .query = true,
     .blame = "cache"},
    {"out 2 with inner stride 2", BAD_STRIDE("out.2", 3, 2, "out of plane 2", "contiguous"), .blame = "out"},
    {"out 1 with overlapping rows",
     BAD_STRIDE("out.1", 1, 2, "out of plane 1 has strides [15,2,1]", "evenly"), .blame = "out"},
    {"cache 2 on CUDA", BAD_DEVICE("cache.2", kDLCUDA), .query = true, .blame = "cache", .found = "plane 2"},
    {"out 1 on CUDA", BAD_DEVICE("out.1", kDLCUDA), .blame = "out", .found = "plane 1"},
    {"out 1 over out", OVER("out.1", "out", 8), .blame = "out", .found = "out of plane 1"},
    {"out 1 over out 2", OVER("out.1", "out.2", 0), .blame = "out",
     .found = "out of plane 1 overlaps out of plane 2"},
    {"out 2 over cache 1", OVER("out.2", "cache.1", 0), .blame = "out",
     .found = "out of plane 2 overlaps cache of plane 1"},
    {"indices in out 2", OVER("indices", "out.2", 40), .blame = "out",
     .found = "out of plane 2 overlaps indices"},
    {"index past the table",
     BAD_NUMBER("indices", 2, 12, SY_ERR_INDEX, "indices at batch 0, position 2 is 12", "12")},
};

static const struct rejection scatter_rows[] = {
    {"no cache 1", NO_TENSOR("cache.1"), .query = true, .blame = "cache",
     .found = "cache of plane 1 is missing"},
    {"no src 2", NO_TENSOR("src.2"), .query = true, .blame = "src", .found = "src of plane 2 is missing"},
    {"src 2 of another type", BAD_TYPE("src.2", kDLInt, 8, 1), .query = true, .blame = "src",
     .found = "plane 2"},
    {"src 1 one column long", BAD_EXTENT("src.1", 2, 4, "src of plane 1 has shape [2,5,4]", "[2,5,3]"),
     .query = true, .blame = "src"},
    {"blocks of another size in plane 2",
     BAD_EXTENT("cache.2", 1, 3, "cache of plane 2 has blocks of 3", "4"), .query = true, .blame = "cache"},
    {"cache 1 with a block more", BAD_EXTENT("cache.1", 0, 7, "cache of plane 1 has 28 rows", "24"),
     .query = true, .blame = "cache"},
    {"a slot past the caches", BAD_NUMBER("slots", 7, ROWS, SY_ERR_INDEX, "position 7 is 24", "24")},
    {"cache 1 over cache 2", OVER("cache.1", "cache.2", 0), .blame = "cache",
     .found = "cache of plane 1 overlaps cache of plane 2"},
    {"src 1 in cache", OVER("src.1", "cache", 100), .blame = "cache",
     .found = "cache overlaps src of plane 1"},
};

/* In the documented order, each in another plane. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("cache.2"), .blame = "cache"},
    {"dtype", BAD_TYPE("out.1", kDLFloat, 32, 1), .blame = "out"},
    {"rank", BAD_RANK("block_table", 3, NULL, NULL)},
    {"value", BAD_EXTENT("cache.1", 1, 3, NULL, NULL), .blame = "cache"},
    {"output shape", BAD_EXTENT("out.2", 3, 6, NULL, NULL), .blame = "out"},
    {"stride", BAD_STRIDE("cache.2", 0, 39, NULL, NULL), .blame = "cache"},
    {"device", BAD_DEVICE("out", kDLCUDA)},
    {"alias", OVER("indices", "out.2", 0), .blame = "out"},
};

static void calls_that_are_fine(void **state)
{
    (void)state;
    test_accepts_pinned(make_gather);
    test_accepts_adjacent(make_gather);
    test_accepts_pinned(make_scatter);
    test_accepts_adjacent(make_scatter);
}

/* Of several overlaps that of the first output is told, and of those the one with the first tensor, however many planes
   are between them. */
static void first_overlap_of_many_planes(void **state)
{
    enum { PLANES = SY_KV_MAX_PLANES + 1, SLOTS = 6, WIDTH = 4 };
    static float cache[PLANES][SLOTS][WIDTH], rows[PLANES][1][WIDTH];
    static int64_t cache_shape[] = {SLOTS, WIDTH}, rows_shape[] = {1, 1, WIDTH};
    static const struct {
        int out[2],
            over[2]; /* the rows of these planes are those of these caches; above PLANES: of these rows */
        const char *want;
    } cases[] = {
        {{5, 200}, {250, 3}, "kv_gather: out of plane 5 overlaps cache of plane 250 in memory"},
        {{200, 30}, {3, PLANES + 40}, "kv_gather: out of plane 30 overlaps out of plane 40 in memory"},
        {{254, 255}, {0, 254}, "kv_gather: out of plane 254 overlaps cache in memory"},
        {{0, 1}, {PLANES + 255, 17}, "kv_gather: out overlaps out of plane 255 in memory"},
        {{17, 16}, {PLANES + 0, 100}, "kv_gather: out overlaps out of plane 17 in memory"},
    };
    sy_ctx *ctx = test_ctx(1, NULL);
    int32_t slot[] = {1}, page[] = {0};
    const DLTensor index = sy_tensor(slot, SY_I32, 2, (int64_t[]){1, 1}),
                   table = sy_tensor(page, SY_I32, 2, (int64_t[]){1, 1});
    (void)state;
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        DLTensor from[PLANES], to[PLANES];
        sy_kv_plane more[PLANES - 1];
        for (int i = 0; i < PLANES; i++) {
            from[i] = sy_tensor(cache[i], SY_F32, 2, cache_shape);
            to[i] = sy_tensor(rows[i], SY_F32, 3, rows_shape);
            if (i > 0)
                more[i - 1] = (sy_kv_plane){.cache = &from[i], .rows = &to[i]};
        }
        for (int k = 0; k < 2; k++) {
            const int over = cases[c].over[k];
            to[cases[c].out[k]].data = over < PLANES ? (void *)cache[over] : (void *)rows[over - PLANES];
        }
        const sy_kv_gather_args args = {.cache = &from[0],
                                        .indices = &index,
                                        .block_table = &table,
                                        .block_size = SLOTS,
                                        .planes = more,
                                        .plane_bytes = sizeof(sy_kv_plane),
                                        .num_planes = PLANES - 1,
                                        .out = &to[0]};
        expect_status(ctx, sy_kv_gather(ctx, &args), SY_ERR_ALIAS);
        if (strstr(sy_ctx_error(ctx), cases[c].want) != sy_ctx_error(ctx))
            fail_msg("\"%s\", want \"%s\"", sy_ctx_error(ctx), cases[c].want);
    }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    struct test_list list = {0};
    test_add_rejections(&list, make_gather, gather_rows, COUNT_OF(gather_rows));
    test_add_rejections(&list, make_scatter, scatter_rows, COUNT_OF(scatter_rows));
    test_add_ladder(&list, make_gather, ladder, COUNT_OF(ladder));
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    test_add(&list, "first_overlap_of_many_planes", first_overlap_of_many_planes, NULL);
    return test_run(&list, "bad_kv_planes");
}
