/*
 * kv_gather and kv_scatter reject caches with heads: one valid call with blocks of [H,S,D], one spoiler per row, the
 * status, the sentence, and untouched outputs.
 */
#include "support.h"

enum { BLOCKS = 6, HEADS = 3, SIZE = 4, WIDTH = 5, BATCH = 2, COUNT = 7, TABLE = 3 };

static void make_gather(struct test_call *c)
{
    sy_kv_gather_args *a = &c->args.gather;
    *c = (struct test_call){.op = "kv_gather", .first_output = 3};
    test_call_add(c, "cache", &a->cache, SY_BF16, 4, (int64_t[]){BLOCKS, HEADS, SIZE, WIDTH});
    test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){BATCH, COUNT});
    test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){BATCH, TABLE});
    test_call_add(c, "out", &a->out, SY_BF16, 4, (int64_t[]){BATCH, COUNT, HEADS, WIDTH});
    a->block_size = SIZE;
    a->layout = SY_KV_HND;
}

/* A cache is input as much as output. As many heads as rows: the shapes are right in either layout. */
static void make_scatter(struct test_call *c)
{
    sy_kv_scatter_args *a = &c->args.scatter;
    *c = (struct test_call){.op = "kv_scatter", .first_output = 3};
    test_call_add(c, "cache", &a->cache, SY_BF16, 4, (int64_t[]){BLOCKS, SIZE, SIZE, WIDTH});
    test_call_add(c, "src", &a->src, SY_BF16, 3, (int64_t[]){COUNT, SIZE, WIDTH});
    struct tensor *slots = test_call_add(c, "slots", &a->slots, SY_I32, 1, (int64_t[]){COUNT});
    for (int i = 0; i < COUNT; i++)
        slots->mem[4 * i] = (unsigned char)(3 * i);
    a->layout = SY_KV_HND;
}

/* Rows inside heads inside blocks as strides say it, and 3 elements between two rows: the next head begins there. */
static void heads_in_rows(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    memcpy(cache->strides, (int64_t[]){60, 7, 18, 1}, 4 * sizeof *cache->strides);
    cache->t.strides = cache->strides;
}

static const struct rejection gather_rows[] = {
    {"layout 2", BAD_FIELD("layout", 2, SY_ERR_VALUE, NULL, "2", "NHD, HND"), .query = true},
    {"no heads", BAD_EXTENT("cache", 1, 0, "extent 0 in dimension 1", NULL), .query = true},
    {"heads without elements", BAD_EXTENT("cache", 3, 0, "extent 0 in dimension 3", NULL), .query = true},
    {"blocks of another size", BAD_EXTENT("cache", 2, 3, "blocks of 3 rows", "4"), .query = true},
    {"a head less in out", BAD_EXTENT("out", 2, 2, "[2,7,2,5]", "[2,7,3,5]")},
    {"out without a dimension of heads", BAD_RANK("out", 3, "[2,7,3]", "[2,7,3,5]")},
    {"elements apart", BAD_STRIDE("cache", 3, 2, NULL, "contiguous"), .query = true},
    {"rows that overlap", BAD_STRIDE("cache", 2, 4, "row stride 4", "5"), .query = true},
    {"heads that overlap", BAD_STRIDE("cache", 1, 19, "head stride 19", "20"), .query = true},
    {"heads upon each other", BAD_STRIDE("cache", 1, 0, "head stride 0", "5"), .query = true},
    {"heads backwards", BAD_STRIDE("cache", 1, -20, "head stride -20", "5"), .query = true},
    {"blocks that overlap", BAD_STRIDE("cache", 0, 59, "block stride 59", "60"), .query = true},
    {"rows that begin in the last head",
     BAD_CALL(heads_in_rows, SY_ERR_STRIDE, "cache", "row stride 18", "19"), .query = true},
    {"heads of out apart", BAD_STRIDE("out", 2, 6, NULL, "contiguous")},
    {"out in the cache", BAD_OVER("out", "cache", 0)},
};

static const struct rejection scatter_rows[] = {
    {"layout 9", BAD_FIELD("layout", 9, SY_ERR_VALUE, NULL, "9", "NHD, HND"), .query = true},
    {"a cache of rank 2", BAD_RANK("cache", 2, "rank 2", "3 or more"), .query = true},
    {"a head less in src", BAD_EXTENT("src", 1, 3, "[7,3,5]", "[7,4,5]"), .query = true},
    {"heads that overlap in a cache", BAD_STRIDE("cache", 1, 19, "head stride 19", "20"), .query = true},
};

static void calls_that_are_fine(void **state)
{
    (void)state;
    test_accepts_pinned(make_gather);
    test_accepts_adjacent(make_gather);
    test_accepts_pinned(make_scatter);
    test_accepts_adjacent(make_scatter);
}

int main(void)
{
    struct test_list list = {0};
    test_add_rejections(&list, make_gather, gather_rows, COUNT_OF(gather_rows));
    test_add_rejections(&list, make_scatter, scatter_rows, COUNT_OF(scatter_rows));
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_layout");
}
