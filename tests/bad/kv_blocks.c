/*
 * kv_blocks rejects planes, shapes and strides. Then pairs of faults, of which the one that comes first in the documented
 * order is reported. Other rejections are in tests/examples.
 */
#include "support.h"

enum { BLOCKS = 6, SIZE = 2, WIDTH = 4, N = 3, DST = 4 };

static void add_pairs(struct test_call *c)
{
    static const int32_t pairs[2 * N] = {0, 1, 0, 2, 5, 3};
    memcpy(test_call_add(c, "pairs", &c->args.blocks.pairs, SY_I32, 2, (int64_t[]){N, 2})->mem, pairs,
           sizeof pairs);
}

static void make(struct test_call *c)
{
    *c = (struct test_call){.op = "kv_blocks", .first_output = 2};
    add_pairs(c);
    struct tensor *cache =
        test_call_add(c, "cache", &c->args.blocks.cache, SY_F16, 3, (int64_t[]){BLOCKS, SIZE, WIDTH});
    memset(cache->mem, 0x3C, cache->bytes);
    c->args.blocks.plane_bytes = sizeof(sy_kv_plane); /* for rows with planes */
}

static void make_two(struct test_call *c)
{
    sy_kv_blocks_args *a = &c->args.blocks;
    *c = (struct test_call){.op = "kv_blocks", .first_output = 3};
    add_pairs(c);
    test_call_add(c, "src", &a->src, SY_F16, 3, (int64_t[]){BLOCKS, SIZE, WIDTH});
    struct tensor *dst = test_call_add(c, "dst", &a->dst, SY_F16, 3, (int64_t[]){DST, SIZE, WIDTH});
    memset(dst->mem, 0x3C, dst->bytes);
}

static void flat_with_gaps(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    cache->t.ndim = 2;
    memcpy(cache->shape, (int64_t[]){BLOCKS, WIDTH}, 16);
    memcpy(cache->strides, (int64_t[]){WIDTH + 1, 1}, 16);
    cache->t.strides = cache->strides;
    c->args.blocks.block_size = SIZE;
}

static void too_many_planes(struct test_call *c)
{
    c->args.blocks.planes = c->planes;
    c->args.blocks.num_planes = 256;
}

static void plane_without_cache(struct test_call *c)
{
    c->args.blocks.planes = c->planes;
    c->args.blocks.num_planes = 1;
}

static void add_plane(struct test_call *c, int64_t blocks, bool dst)
{
    static uint16_t data[BLOCKS];
    static DLTensor own;
    static int64_t shape[3] = {0, 1, 1};
    shape[0] = blocks;
    own = sy_tensor(data, SY_F16, 3, shape);
    c->planes[0] = (sy_kv_plane){.cache = &own, .rows = dst ? &own : NULL};
    plane_without_cache(c);
}

static void plane_with_dst(struct test_call *c)
{
    add_plane(c, BLOCKS, true);
}

static void plane_of_fewer_blocks(struct test_call *c)
{
    add_plane(c, BLOCKS - 1, false);
}

static void plane_over_the_first(struct test_call *c)
{
    c->planes[0] = (sy_kv_plane){.cache = c->args.blocks.cache};
    c->args.blocks.planes = c->planes;
    c->args.blocks.num_planes = 1;
}

static const struct rejection rows[] = {
    {"no array of planes", BAD_FIELD("num_planes", 1, SY_ERR_NULL, "planes", NULL, "1"), .query = true},
    {"a plane of nothing", BAD_CALL(plane_without_cache, SY_ERR_NULL, "cache", "plane 1 is missing", NULL),
     .query = true},

    {"pairs of three", BAD_EXTENT("pairs", 1, 3, "[3,3]", "[3,2]"), .query = true},
    {"blocks without elements", BAD_EXTENT("cache", 2, 0, "0", NULL), .query = true},

    {"a plane of fewer blocks",
     BAD_CALL(plane_of_fewer_blocks, SY_ERR_SHAPE, "cache", "plane 1 has 5 blocks", "6"), .query = true},

    {"dst in a plane of one cache", BAD_CALL(plane_with_dst, SY_ERR_VALUE, "dst", "plane 1", NULL),
     .query = true},
    {"256 planes", BAD_CALL(too_many_planes, SY_ERR_VALUE, "num_planes", "256", "255"), .query = true},

    {"blocks in pieces", BAD_STRIDE("cache", 1, 5, "5", "contiguous"), .query = true},
    {"overlapping blocks", BAD_STRIDE("cache", 0, 7, "7", "8"), .query = true},
    {"flat with gaps", BAD_CALL(flat_with_gaps, SY_ERR_STRIDE, "cache", "5", "contiguous"), .query = true},
    {"pairs with stride 2", BAD_STRIDE("pairs", 1, 2, "2", "contiguous"), .query = true},

    {"a plane over the cache", BAD_CALL(plane_over_the_first, SY_ERR_ALIAS, "cache", "overlaps", NULL)},
};

/* In the documented order; each acts on another argument or field, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("pairs")},
    {"dtype", BAD_TYPE("cache", kDLInt, 4, 1)},
    {"rank", BAD_RANK("pairs", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("cache", 2, 0, NULL, NULL)},
    {"value", BAD_CALL(too_many_planes, SY_ERR_VALUE, "num_planes", NULL, NULL)},
    {"stride", BAD_STRIDE("cache", 0, 7, NULL, NULL)},
    {"device", BAD_DEVICE("pairs", kDLCUDA)},
    {"contents", BAD_NUMBER("pairs", 2, BLOCKS, SY_ERR_INDEX, NULL, NULL)},
};

static void calls_that_are_fine(void **state)
{
    (void)state;
    test_accepts_pinned(make_two);
    test_accepts_adjacent(make_two);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_blocks");
}
