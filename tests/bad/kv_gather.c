/*
 * kv_gather rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then pairs of
 * faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
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

static void put(struct test_call *c, const char *name, int64_t at, int32_t value)
{
    memcpy(test_call_tensor(c, name)->mem + 4 * at, &value, 4);
}

static void block_size_zero(struct test_call *c)
{
    c->args.gather.block_size = 0;
}

static void block_size_minus_one(struct test_call *c)
{
    c->args.gather.block_size = -1;
}

static void block_size_lowest(struct test_call *c)
{
    c->args.gather.block_size = INT64_MIN;
}

static void pad_three(struct test_call *c)
{
    c->args.gather.pad = (sy_kv_pad)3;
}

static void pad_minus_one(struct test_call *c)
{
    memset(&c->args.gather.pad, 0xFF, sizeof c->args.gather.pad);
}

static void table_times_block_size(struct test_call *c)
{
    c->args.gather.block_size = INT64_C(1) << 61;
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

static void no_req_id(struct test_call *c)
{
    c->args.gather.req_id = NULL;
}

static void flat_table_without_req_id(struct test_call *c)
{
    c->args.gather.req_id = NULL;
    test_call_tensor(c, "block_table")->t.ndim = 1;
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

static void count_six(struct test_call *c)
{
    put(c, "counts", 1, 6);
}

static void count_minus_one(struct test_call *c)
{
    put(c, "counts", 0, -1);
}

static void length_minus_two(struct test_call *c)
{
    put(c, "seq_lens", 2, -2);
}

static void request_two(struct test_call *c)
{
    put(c, "req_id", 1, 2);
}

static void index_past_sequence(struct test_call *c)
{
    put(c, "indices", 2 * COUNT + 3, 5);
}

static void index_minus_one(struct test_call *c)
{
    put(c, "indices", 4, -1);
}

static void table_too_short(struct test_call *c)
{
    put(c, "seq_lens", 1, 1000);
    put(c, "indices", COUNT + 2, TABLE * BLOCK_SIZE + 1);
}

static void block_past_cache(struct test_call *c)
{
    put(c, "block_table", 0, BLOCKS);
}

static void row_past_cache(struct test_call *c)
{
    test_call_tensor(c, "cache")->shape[0] = CACHE_ROWS - 2; /* block 5 holds two rows */
    put(c, "block_table", 0, BLOCKS - 1);
    put(c, "indices", 1, 3);
}

static const struct rejection rows[] = {
    {"no block_table", NO_TENSOR("block_table"), .query = true},

    {"out of rank 2", BAD_RANK("out", 2, "[3,5]", "[3,5,7]")},
    {"out of rank 4", BAD_RANK("out", 4, "[3,5,7,1]", "[3,5,7]")},

    {"cache rows without bytes", BAD_EXTENT("cache", 1, 0, "0", NULL), .query = true},

    {"req_id one short", BAD_EXTENT("req_id", 0, 2, "2", "3"), .query = true},
    {"counts one long", BAD_EXTENT("counts", 0, 4, "4", "3"), .query = true},
    {"seq_lens one short", BAD_EXTENT("seq_lens", 0, 2, "2", "3"), .query = true},
    {"table rows without req_id", BAD_CALL(no_req_id, SY_ERR_SHAPE, "block_table", "2", "3"), .query = true},
    {"one table row for three index rows without req_id",
     BAD_CALL(flat_table_without_req_id, SY_ERR_SHAPE, "block_table", NULL, NULL), .query = true},

    {"block_size 0", BAD_CALL(block_size_zero, SY_ERR_VALUE, "block_size", "0", "1"), .query = true},
    {"block_size -1", BAD_CALL(block_size_minus_one, SY_ERR_VALUE, "block_size", "-1", "1"), .query = true},
    {"block_size lowest",
     BAD_CALL(block_size_lowest, SY_ERR_VALUE, "block_size", "-9223372036854775808", NULL), .query = true},
    {"unknown pad 3", BAD_CALL(pad_three, SY_ERR_VALUE, "pad", "3", NULL), .query = true},
    {"unknown pad -1", BAD_CALL(pad_minus_one, SY_ERR_VALUE, "pad", NULL, NULL), .query = true},
    {"table * block_size past 2^63",
     BAD_CALL(table_times_block_size, SY_ERR_OVERFLOW, "block_table|block_size", NULL, NULL), .query = true},

    {"out one row short", BAD_EXTENT("out", 0, 2, "[2,5,7]", "[3,5,7]")},
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

    {"counts past k", BAD_CALL(count_six, SY_ERR_INDEX, "counts", "6", "5")},
    {"counts negative", BAD_CALL(count_minus_one, SY_ERR_INDEX, "counts", "-1", "5")},
    {"seq_lens negative", BAD_CALL(length_minus_two, SY_ERR_INDEX, "seq_lens", "-2", "0")},
    {"req_id past the table", BAD_CALL(request_two, SY_ERR_INDEX, "req_id", "2", "2")},
    {"index past its sequence", BAD_CALL(index_past_sequence, SY_ERR_INDEX, "indices", "5", "5")},
    {"index -1 under pad error", BAD_CALL(index_minus_one, SY_ERR_INDEX, "indices", "-1", "5")},
    {"index past the table", BAD_CALL(table_too_short, SY_ERR_INDEX, "indices|block_table", "8", "8")},
    {"block past the cache", BAD_CALL(block_past_cache, SY_ERR_INDEX, "block_table", "6", "6")},
    {"row past the cache", BAD_CALL(row_past_cache, SY_ERR_INDEX, "indices|block_table|cache", "23", "22")},
};

static const struct rejection paged_rows[] = {
    {"paged cache with another block size", BAD_EXTENT("cache", 1, 3, "3", "4"), .query = true},
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
    {"value", BAD_CALL(pad_three, SY_ERR_VALUE, "pad", NULL, NULL)},
    {"overflow", BAD_CALL(table_times_block_size, SY_ERR_OVERFLOW, "block_table|block_size", NULL, NULL)},
    {"output shape", BAD_EXTENT("out", 2, 6, NULL, NULL)},
    {"stride", BAD_STRIDE("cache", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("indices", kDLCUDA)},
    {"alias", BAD_OVER("req_id", "out", 0)},
    {"contents", BAD_CALL(index_past_sequence, SY_ERR_INDEX, "indices", NULL, NULL)},
};

static void paged_rejected(void **state)
{
    check_rejection(make_paged, *state);
}

static void paged_query_rejected(void **state)
{
    check_query_rejection(make_paged, *state);
}

/* The fine codes that share a status. */
static void fine_codes(void **state)
{
    (void)state;
    const struct {
        struct spoil spoil;
        sy_fault_code code;
    } all[] = {
        {{.kind = SPOIL_RANK, .argument = "counts", .value = 2}, SY_FAULT_BAD_RANK},
        {{.kind = SPOIL_EXTENT, .argument = "counts", .value = 4}, SY_FAULT_BAD_SHAPE},
        {{.kind = SPOIL_EXTENT, .argument = "cache", .dim = 1, .value = 0}, SY_FAULT_EMPTY},
        {{.kind = SPOIL_CALL, .with = block_size_zero}, SY_FAULT_BAD_BLOCK_SIZE},
        {{.kind = SPOIL_CALL, .with = pad_three}, SY_FAULT_BAD_OPTION},
        {{.kind = SPOIL_CALL, .with = table_too_short}, SY_FAULT_TABLE_SHORT},
        {{.kind = SPOIL_CALL, .with = row_past_cache}, SY_FAULT_ROW_RANGE},
    };
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        struct test_call c;
        sy_fault fault;
        make(&c);
        test_call_spoil(&c, &all[i].spoil);
        assert_int_not_equal(test_call_run(ctx, &c), SY_OK);
        assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
        assert_string_equal(sy_fault_name(fault.code), sy_fault_name(all[i].code));
        test_call_free(&c);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Calls without a context or arguments, and calls that are fine ------------------------------------------ */

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
    for (size_t i = 0; i < COUNT_OF(paged_rows); i++) {
        test_add(&list, paged_rows[i].name, paged_rejected, (void *)&paged_rows[i]);
        test_add(&list, test_name("query: %s", paged_rows[i].name), paged_query_rejected,
                 (void *)&paged_rows[i]);
    }
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "fine_codes", fine_codes, NULL);
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    test_add(&list, "strides_of_extent_one_mean_nothing", strides_of_extent_one_mean_nothing, NULL);
    return test_run(&list, "bad_kv_gather");
}
