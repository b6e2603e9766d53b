/*
 * kv_blocks refuses: one valid call within a cache and one from src to dst, one spoiler per row, the status, the sentence
 * and untouched blocks. Then pairs of faults, of which the one that comes first in the documented order must win.
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

static void put(struct test_call *c, int64_t at, int32_t value)
{
    memcpy(test_call_tensor(c, "pairs")->mem + 4 * at, &value, 4);
}

static void source_six(struct test_call *c)
{
    put(c, 2, BLOCKS);
}

/* A block that src has, and dst has not. */
static void five_to_five(struct test_call *c)
{
    put(c, 4, 5);
    put(c, 5, 5);
}

static void destination_minus_one(struct test_call *c)
{
    put(c, 5, -1);
}

static void destination_twice(struct test_call *c)
{
    put(c, 5, 1);
}

static void source_was_written(struct test_call *c)
{
    put(c, 4, 1);
}

static void flatten(struct test_call *c, int64_t rows)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    cache->t.ndim = 2;
    cache->shape[0] = rows;
    cache->shape[1] = WIDTH;
}

static void flat_without_block_size(struct test_call *c)
{
    flatten(c, BLOCKS * SIZE);
}

static void flat_with_a_rest(struct test_call *c)
{
    flatten(c, BLOCKS * SIZE - 1);
    c->args.blocks.block_size = SIZE;
}

static void flat_with_gaps(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    flatten(c, BLOCKS);
    cache->strides[0] = WIDTH + 1;
    cache->strides[1] = 1;
    cache->t.strides = cache->strides;
    c->args.blocks.block_size = SIZE;
}

static void src_beside_cache(struct test_call *c)
{
    c->args.blocks.src = c->args.blocks.pairs;
}

static void too_many_planes(struct test_call *c)
{
    c->args.blocks.planes = c->planes;
    c->args.blocks.num_planes = 256;
}

static void planes_missing(struct test_call *c)
{
    c->args.blocks.num_planes = 1;
    c->args.blocks.plane_bytes = sizeof(sy_kv_plane);
}

static void plane_without_cache(struct test_call *c)
{
    c->args.blocks.planes = c->planes;
    c->args.blocks.num_planes = 1;
    c->args.blocks.plane_bytes = sizeof(sy_kv_plane);
}

static void plane_with_dst(struct test_call *c)
{
    static uint16_t data[BLOCKS];
    static DLTensor own;
    static int64_t shape[3] = {BLOCKS, 1, 1};
    own = sy_tensor(data, SY_F16, 3, shape);
    c->planes[0] = (sy_kv_plane){.cache = &own, .rows = &own};
    c->args.blocks.planes = c->planes;
    c->args.blocks.num_planes = 1;
    c->args.blocks.plane_bytes = sizeof(sy_kv_plane);
}

static void plane_of_fewer_blocks(struct test_call *c)
{
    static uint16_t data[BLOCKS];
    static DLTensor own;
    static int64_t shape[3] = {BLOCKS - 1, 1, 1};
    own = sy_tensor(data, SY_F16, 3, shape);
    c->planes[0] = (sy_kv_plane){.cache = &own};
    c->args.blocks.planes = c->planes;
    c->args.blocks.num_planes = 1;
    c->args.blocks.plane_bytes = sizeof(sy_kv_plane);
}

static void plane_over_the_first(struct test_call *c)
{
    c->planes[0] = (sy_kv_plane){.cache = c->args.blocks.cache};
    c->args.blocks.planes = c->planes;
    c->args.blocks.num_planes = 1;
    c->args.blocks.plane_bytes = sizeof(sy_kv_plane);
}

static const struct refusal rows[] = {
    {"no cache", NO_TENSOR("cache"), .query = true},

    {"no array of planes", BAD_CALL(planes_missing, SY_ERR_NULL, "planes", NULL, "1"), .query = true},
    {"a plane of nothing", BAD_CALL(plane_without_cache, SY_ERR_NULL, "cache", "plane 1 is missing", NULL),
     .query = true},

    {"pairs of three", BAD_EXTENT("pairs", 1, 3, "[3,3]", "[3,2]"), .query = true},
    {"blocks without elements", BAD_EXTENT("cache", 2, 0, "0", NULL), .query = true},

    {"a plane of fewer blocks",
     BAD_CALL(plane_of_fewer_blocks, SY_ERR_SHAPE, "cache", "plane 1 has 5 blocks", "6"), .query = true},

    {"src beside cache", BAD_CALL(src_beside_cache, SY_ERR_VALUE, "src", "beside cache", NULL),
     .query = true},
    {"dst in a plane of one cache", BAD_CALL(plane_with_dst, SY_ERR_VALUE, "dst", "plane 1", NULL),
     .query = true},
    {"256 planes", BAD_CALL(too_many_planes, SY_ERR_VALUE, "num_planes", "256", "255"), .query = true},
    {"flat without block_size", BAD_CALL(flat_without_block_size, SY_ERR_VALUE, "block_size", "0", "1"),
     .query = true},
    {"flat with half a block", BAD_CALL(flat_with_a_rest, SY_ERR_SHAPE, "cache", "11 rows", "2"),
     .query = true},

    {"blocks in pieces", BAD_STRIDE("cache", 1, 5, "5", "contiguous"), .query = true},
    {"overlapping blocks", BAD_STRIDE("cache", 0, 7, "7", "8"), .query = true},
    {"flat with gaps", BAD_CALL(flat_with_gaps, SY_ERR_STRIDE, "cache", "5", "contiguous"), .query = true},
    {"pairs with stride 2", BAD_STRIDE("pairs", 1, 2, "2", "contiguous"), .query = true},

    {"a plane over the cache", BAD_CALL(plane_over_the_first, SY_ERR_ALIAS, "cache", "overlaps", NULL)},

    {"source past the cache", BAD_CALL(source_six, SY_ERR_INDEX, "pairs", "position 1 reads block 6", "6")},
    {"destination -1",
     BAD_CALL(destination_minus_one, SY_ERR_INDEX, "pairs", "position 2 writes block -1", "6")},
    {"a destination twice",
     BAD_CALL(destination_twice, SY_ERR_INDEX, "pairs", "position 2 writes block 1", "position 0")},
    {"a source that is written",
     BAD_CALL(source_was_written, SY_ERR_INDEX, "pairs", "position 2 and 0 read and write block 1", NULL)},
};

static const struct refusal two_rows[] = {
    {"no src", NO_TENSOR("src"), .query = true},
    {"no dst", NO_TENSOR("dst"), .query = true},

    {"dst of other blocks", BAD_EXTENT("dst", 2, 3, "6 elements", "8"), .query = true},

    {"source past src", BAD_CALL(source_six, SY_ERR_INDEX, "pairs", "reads block 6", "6")},
    {"destination -1 of dst", BAD_CALL(destination_minus_one, SY_ERR_INDEX, "pairs", "writes block -1", "4")},
    {"a block that only src has", BAD_CALL(five_to_five, SY_ERR_INDEX, "pairs", "writes block 5", "4")},
    {"a destination of dst twice",
     BAD_CALL(destination_twice, SY_ERR_INDEX, "pairs", "writes block 1", NULL)},
};

/* In the documented order; each acts on another argument or field, so that any two can be present at once. */
static const struct refusal ladder[] = {
    {"null", NO_DATA("pairs")},
    {"dtype", BAD_TYPE("cache", kDLInt, 4, 1)},
    {"rank", BAD_RANK("pairs", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("cache", 2, 0, NULL, NULL)},
    {"value", BAD_CALL(too_many_planes, SY_ERR_VALUE, "num_planes", NULL, NULL)},
    {"stride", BAD_STRIDE("cache", 0, 7, NULL, NULL)},
    {"device", BAD_DEVICE("pairs", kDLCUDA)},
    {"contents", BAD_CALL(source_six, SY_ERR_INDEX, "pairs", NULL, NULL)},
};

static void two_refused(void **state)
{
    check_refusal(make_two, *state);
}

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_kv_blocks(NULL, &c.args.blocks), SY_ERR_NULL);
    assert_int_equal(sy_kv_blocks(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_kv_blocks_query(NULL, &c.args.blocks, &q), SY_ERR_NULL);
    assert_int_equal(sy_kv_blocks_query(ctx, &c.args.blocks, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_kv_blocks(ctx, &c.args.blocks), SY_OK);
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void a_flat_cache(struct test_call *c)
{
    flatten(c, BLOCKS * SIZE);
    c->args.blocks.block_size = SIZE;
}

static void calls_that_are_fine(void **state)
{
    (void)state;
    test_accepts_pinned(make);
    test_accepts_adjacent(make);
    test_accepts_pinned(make_two);
    test_accepts_adjacent(make_two);
    test_accepts(make, a_flat_cache);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_refusals(&list, make, rows, COUNT_OF(rows));
    for (size_t i = 0; i < COUNT_OF(two_rows); i++)
        test_add(&list, test_name("two caches: %s", two_rows[i].name), two_refused, (void *)&two_rows[i]);
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_blocks");
}
