/*
 * kv_gather rejects shapes, values without a word, strides and sizes that overflow. Then pairs of faults, of which the one
 * that comes first in the documented order is reported, and calls that look wrong but are not. Other rejections are in
 * tests/examples.
 */
#include "support.h"

enum {
    BLOCKS = 6,
    BLOCK_SIZE = 4,
    CACHE_ROWS = 24,
    WIDTH = 7,
    BATCH = 3,
    COUNT = 5,
    REQUESTS = 2,
    TABLE = 8
};

/* Everything but `out` is zero, apart from the lengths: a valid call that reads row 0 fifteen times. */
static void make_with(struct test_call *c, int cache_rank)
{
    sy_kv_gather_args *a = &c->args.gather;
    *c = (struct test_call){.op = "kv_gather", .first_output = 6};
    if (cache_rank == 2)
        test_call_add(c, "cache", &a->cache, SY_F32, 2, (int64_t[]){CACHE_ROWS, WIDTH});
    else
        test_call_add(c, "cache", &a->cache, SY_F32, 3, (int64_t[]){BLOCKS, BLOCK_SIZE, WIDTH});
    test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){BATCH, COUNT});
    test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){REQUESTS, TABLE});
    test_call_add(c, "req_id", &a->req_id, SY_I32, 1, (int64_t[]){BATCH});
    test_call_add(c, "counts", &a->counts, SY_I32, 1, (int64_t[]){BATCH});
    struct tensor *lens = test_call_add(c, "seq_lens", &a->seq_lens, SY_I32, 1, (int64_t[]){BATCH});
    struct tensor *out = test_call_add(c, "out", &a->out, SY_F32, 3, (int64_t[]){BATCH, COUNT, WIDTH});
    memset(out->mem, 0x3C, out->bytes);
    for (int b = 0; b < BATCH; b++)
        lens->mem[4 * b] = test_call_tensor(c, "counts")->mem[4 * b] = COUNT;
    a->block_size = BLOCK_SIZE;
}

static void make(struct test_call *c)
{
    make_with(c, 2);
}

static void make_paged(struct test_call *c)
{
    make_with(c, 3);
}

/* 2^62 + 1 rows of one byte are two blocks of 2^62 rows, and those end at 2^63. */
static void blocks_times_block_size(struct test_call *c)
{
    test_call_tensor(c, "block_table")->shape[1] = 0;
    test_call_tensor(c, "cache")->t.dtype = SY_I8;
    test_call_tensor(c, "cache")->shape[0] = (INT64_C(1) << 62) + 1;
    test_call_tensor(c, "cache")->shape[1] = 1;
    c->args.gather.block_size = INT64_C(1) << 62;
}

static void cache_bytes(struct test_call *c)
{
    test_call_tensor(c, "cache")->shape[0] = INT64_C(1) << 60;
    c->args.gather.block_size = 1;
}

static void positions_of_32_bits(struct test_call *c)
{
    const char *const per_row[] = {"req_id", "counts", "seq_lens", "indices"};
    for (size_t i = 0; i < COUNT_OF(per_row); i++)
        test_call_tensor(c, per_row[i])->shape[0] = 65536;
    test_call_tensor(c, "indices")->shape[1] = 65536;
}

/* Leading dimensions [2,2] whose rows are not one even sequence: 2, 5 and 2 elements apart. */
static void uneven_index_rows(struct test_call *c)
{
    struct tensor *x = test_call_tensor(c, "indices"), *out = test_call_tensor(c, "out");
    memcpy(x->shape, (int64_t[]){2, 2, 2}, 24);
    memcpy(x->strides, (int64_t[]){7, 2, 1}, 24);
    x->t.ndim = 3;
    x->t.strides = x->strides;
    memcpy(out->shape, (int64_t[]){2, 2, 2, 7}, 32);
    out->t.ndim = 4;
    c->args.gather.req_id = c->args.gather.counts = c->args.gather.seq_lens = NULL;
    test_call_tensor(c, "block_table")->shape[0] = 4;
    test_call_tensor(c, "block_table")->shape[1] = 4;
}

static const struct rejection rows[] = {
    {"out of rank 2", BAD_RANK("out", 2, "[3,5]", "[3,5,7]")},
    {"out of rank 4", BAD_RANK("out", 4, "[3,5,7,1]", "[3,5,7]")},

    {"req_id one short", BAD_EXTENT("req_id", 0, 2, "2", "3"), .query = true},
    {"counts one long", BAD_EXTENT("counts", 0, 4, "4", "3"), .query = true},
    {"seq_lens one short", BAD_EXTENT("seq_lens", 0, 2, "2", "3"), .query = true},

    {"unknown pad 3", BAD_FIELD("pad", 3, SY_ERR_VALUE, NULL, "3", NULL), .query = true,
     .code = SY_FAULT_BAD_OPTION},
    {"unknown pad -1", BAD_FIELD("pad", -1, SY_ERR_VALUE, NULL, NULL, NULL), .query = true},

    {"out one position long", BAD_EXTENT("out", 1, 6, "[3,6,7]", "[3,5,7]")},
    {"out one column short", BAD_EXTENT("out", 2, 6, "[3,5,6]", "[3,5,7]")},

    {"cache with inner stride 2", BAD_STRIDE("cache", 1, 2, "2", "contiguous"), .query = true},
    {"cache with overlapping rows", BAD_STRIDE("cache", 0, 6, "6", "7"), .query = true},
    {"cache with a stride of -2^63", BAD_STRIDE("cache", 0, INT64_MIN, "-9223372036854775808", "7"),
     .query = true},
    {"indices with inner stride 2", BAD_STRIDE("indices", 1, 2, "2", "contiguous"), .query = true},
    {"indices with unevenly spaced rows",
     BAD_CALL(uneven_index_rows, SY_ERR_STRIDE, "indices", "[7,2,1]", NULL), .query = true},
    {"indices with overlapping rows", BAD_STRIDE("indices", 0, 4, "4", "5"), .query = true},
    {"block_table with inner stride 0", BAD_STRIDE("block_table", 1, 0, "0", "contiguous"), .query = true},
    {"block_table with overlapping rows", BAD_STRIDE("block_table", 0, 7, "7", "8"), .query = true},
    {"req_id with stride 2", BAD_STRIDE("req_id", 0, 2, "2", "contiguous"), .query = true},
    {"counts with stride 2", BAD_STRIDE("counts", 0, 2, "2", "contiguous"), .query = true},
    {"seq_lens with stride -1", BAD_STRIDE("seq_lens", 0, -1, "-1", "contiguous"), .query = true},
    {"out with inner stride 2", BAD_STRIDE("out", 2, 2, "2", "contiguous")},
    {"out with overlapping positions", BAD_STRIDE("out", 1, 6, "6", "7")},
    {"out with overlapping rows", BAD_STRIDE("out", 0, 34, "34", NULL)},
};

static const struct rejection paged_rows[] = {
    {"paged cache rows without bytes", BAD_EXTENT("cache", 2, 0, "0", NULL), .query = true},
    {"paged cache with overlapping blocks", BAD_STRIDE("cache", 0, 27, "27", "28"), .query = true},
    {"paged cache with overlapping rows", BAD_STRIDE("cache", 1, 6, "6", "7"), .query = true},
    {"paged cache with inner stride 2", BAD_STRIDE("cache", 2, 2, "2", "contiguous"), .query = true},
};

static const struct rejection paper_rows[] = {
    {"blocks * block_size past 2^63",
     BAD_CALL(blocks_times_block_size, SY_ERR_OVERFLOW, "cache|block_size", NULL, NULL)},
    {"cache of 2^64 bytes", BAD_CALL(cache_bytes, SY_ERR_OVERFLOW, "cache", NULL, NULL)},
    {"2^32 positions", BAD_CALL(positions_of_32_bits, SY_ERR_OVERFLOW, "indices", NULL, NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("counts")},
    {"dtype", BAD_TYPE("out", kDLInt, 32, 1)},
    {"rank", BAD_RANK("seq_lens", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("req_id", 0, 2, NULL, NULL)},
    {"value", BAD_FIELD("pad", 3, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow",
     BAD_FIELD("block_size", INT64_C(1) << 61, SY_ERR_OVERFLOW, "block_table|block_size", NULL, NULL)},
    {"output shape", BAD_EXTENT("out", 2, 6, NULL, NULL)},
    {"stride", BAD_STRIDE("cache", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("indices", kDLCUDA)},
    {"alias", BAD_OVER("req_id", "out", 0)},
    {"contents", BAD_NUMBER("indices", 2 * COUNT + 3, 5, SY_ERR_INDEX, NULL, NULL)},
};

/* ---- Calls without a context or arguments, and calls that are fine ------------------------------------------ */

/* The functions with types: one operator for all, a macro defines them. */
static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_kv_gather(NULL, &c.args.gather), SY_ERR_NULL);
    assert_int_equal(sy_kv_gather(ctx, NULL), SY_ERR_NULL);
    assert_string_not_equal(sy_ctx_error(ctx), "");
    assert_int_equal(sy_kv_gather_query(NULL, &c.args.gather, &q), SY_ERR_NULL);
    assert_int_equal(sy_kv_gather_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_kv_gather_query(ctx, &c.args.gather, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_kv_gather(ctx, &c.args.gather), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void one_array_for_two(struct test_call *c)
{
    test_call_tensor(c, "counts")->t.data = test_call_tensor(c, "seq_lens")->mem;
    test_call_tensor(c, "req_id")->t.data = test_call_tensor(c, "indices")->mem;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, one_array_for_two);
}

/* Extents of one may have any stride, as slicing in other libraries leaves them behind. */
static void leading_one_with_odd_strides(struct test_call *c)
{
    struct tensor *x = test_call_tensor(c, "indices"), *out = test_call_tensor(c, "out");
    memcpy(x->shape, (int64_t[]){1, BATCH, COUNT}, 24);
    memcpy(x->strides, (int64_t[]){INT64_MAX, COUNT, 1}, 24);
    x->t.ndim = 3;
    x->t.strides = x->strides;
    memcpy(out->shape, (int64_t[]){1, BATCH, COUNT, WIDTH}, 32);
    memcpy(out->strides, (int64_t[]){INT64_MIN, COUNT * WIDTH, WIDTH, 1}, 32);
    out->t.ndim = 4;
    out->t.strides = out->strides;
}

static void cache_of_one_row_with_odd_stride(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    cache->shape[0] = 1;
    cache->strides[0] = INT64_MAX;
    cache->t.strides = cache->strides;
}

/* [1,4,7]: one block, whose stride says nothing. */
static void cache_of_one_block_with_odd_stride(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    memcpy(cache->shape, (int64_t[]){1, BLOCK_SIZE, WIDTH}, 24);
    memcpy(cache->strides, (int64_t[]){INT64_MIN, WIDTH, 1}, 24);
    cache->t.ndim = 3;
    cache->t.strides = cache->strides;
}

static void strides_of_extent_one_mean_nothing(void **state)
{
    (void)state;
    test_accepts(make, leading_one_with_odd_strides);
    test_accepts(make, cache_of_one_row_with_odd_stride);
    test_accepts(make, cache_of_one_block_with_odd_stride);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_rejections(&list, make_paged, paged_rows, COUNT_OF(paged_rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    test_add(&list, "strides_of_extent_one_mean_nothing", strides_of_extent_one_mean_nothing, NULL);
    return test_run(&list, "bad_kv_gather");
}
