/*
 * kv_ragged refuses: one valid call, one spoiler per row, the status, the sentence and an untouched out. Then pairs of
 * faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

/* 5 full blocks of 4 rows and one of 2; three runs of 5, 0 and 7 tokens; one row of out more than they need. */
enum { BLOCK_SIZE = 4, ROWS = 22, BATCH = 3, TABLE = 3, WIDTH = 8, OUT = 13 };

static void put(struct test_call *c, const char *name, int64_t at, int32_t value)
{
    memcpy(test_call_tensor(c, name)->mem + 4 * at, &value, 4);
}

static void make(struct test_call *c)
{
    static const int32_t cu_lens[] = {0, 5, 5, 12}, starts[] = {2, 1, 0}, req_id[] = {0, 2, 1},
                         seq_lens[] = {12, 12, 12}, table[] = {1, 0, 5, 4, 3, -1, 2, 2, -1};
    sy_kv_ragged_args *a = &c->args.ragged;
    *c = (struct test_call){.op = "kv_ragged", .first_output = 6};
    test_call_add(c, "cache", &a->cache, SY_F16, 2, (int64_t[]){ROWS, WIDTH});
    memcpy(test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){BATCH, TABLE})->mem, table,
           sizeof table);
    memcpy(test_call_add(c, "cu_lens", &a->cu_lens, SY_I32, 1, (int64_t[]){BATCH + 1})->mem, cu_lens,
           sizeof cu_lens);
    memcpy(test_call_add(c, "starts", &a->starts, SY_I32, 1, (int64_t[]){BATCH})->mem, starts, sizeof starts);
    memcpy(test_call_add(c, "req_id", &a->req_id, SY_I32, 1, (int64_t[]){BATCH})->mem, req_id, sizeof req_id);
    memcpy(test_call_add(c, "seq_lens", &a->seq_lens, SY_I32, 1, (int64_t[]){BATCH})->mem, seq_lens,
           sizeof seq_lens);
    struct tensor *out = test_call_add(c, "out", &a->out, SY_F16, 2, (int64_t[]){OUT, WIDTH});
    memset(out->mem, 0x3C, out->bytes);
    a->block_size = BLOCK_SIZE;
}

static void block_size_zero(struct test_call *c)
{
    c->args.ragged.block_size = 0;
}

static void no_requests_for_two_rows(struct test_call *c)
{
    c->args.ragged.req_id = NULL;
    test_call_tensor(c, "block_table")->shape[0] = 2;
}

static void blocks_of_two(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    cache->t.ndim = 3;
    cache->shape[0] = ROWS / 2;
    cache->shape[1] = 2;
    cache->shape[2] = WIDTH;
}

static void rows_without_elements(struct test_call *c)
{
    test_call_tensor(c, "cache")->shape[1] = 0;
    test_call_tensor(c, "out")->shape[1] = 0;
}

static void table_times_block_size(struct test_call *c)
{
    c->args.ragged.block_size = INT64_C(1) << 62;
}

static void rows_of_32_bits(struct test_call *c)
{
    struct tensor *out = test_call_tensor(c, "out");
    out->shape[0] = INT64_C(1) << 32;
    out->strides[0] = WIDTH;
    out->strides[1] = 1;
}

static void cache_of_overlapping_rows(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    cache->strides[0] = WIDTH - 1;
    cache->strides[1] = 1;
    cache->t.strides = cache->strides;
}

static void begins_with_one(struct test_call *c)
{
    put(c, "cu_lens", 0, 1);
}

static void descends(struct test_call *c)
{
    put(c, "cu_lens", 2, 4);
}

static void ends_past_out(struct test_call *c)
{
    put(c, "cu_lens", 3, OUT + 1);
}

static void request_three(struct test_call *c)
{
    put(c, "req_id", 1, BATCH);
}

static void request_of_no_table(struct test_call *c)
{
    test_call_tensor(c, "block_table")->shape[0] = 0;
}

static void start_minus_one(struct test_call *c)
{
    put(c, "starts", 0, -1);
}

static void start_past_the_table(struct test_call *c)
{
    put(c, "starts", 2, 6);
    put(c, "block_table", 5, 0);
}

static void no_starts_and_too_long(struct test_call *c)
{
    c->args.ragged.starts = c->args.ragged.seq_lens = NULL;
    test_call_tensor(c, "block_table")->t.strides = test_call_tensor(c, "block_table")->strides;
    test_call_tensor(c, "block_table")->strides[0] = TABLE;
    test_call_tensor(c, "block_table")->strides[1] = 1;
    test_call_tensor(c, "block_table")->shape[1] = 1;
}

static void sequence_minus_two(struct test_call *c)
{
    put(c, "seq_lens", 2, -2);
}

static void sequence_too_short(struct test_call *c)
{
    put(c, "seq_lens", 2, 6);
}

static void sequence_past_the_table(struct test_call *c)
{
    start_past_the_table(c);
    put(c, "seq_lens", 2, 13);
}

static void block_minus_one(struct test_call *c)
{
    put(c, "starts", 2, 3);
}

static void row_past_cache(struct test_call *c)
{
    put(c, "block_table", 1, 5);
}

static void too_many_planes(struct test_call *c)
{
    c->args.ragged.planes = c->planes;
    c->args.ragged.num_planes = 256;
}

static void planes_missing(struct test_call *c)
{
    c->args.ragged.num_planes = 1;
    c->args.ragged.plane_bytes = sizeof(sy_kv_plane);
}

/* A second plane with the cache of the first and its rows in place of `out`, less one. */
static void plane_of_fewer_rows(struct test_call *c)
{
    static int64_t shape[2] = {OUT - 1, WIDTH};
    static uint16_t data[(OUT - 1) * WIDTH];
    static DLTensor rows_of_plane;
    rows_of_plane = sy_tensor(data, SY_F16, 2, shape);
    c->planes[0] = (sy_kv_plane){.cache = c->args.ragged.cache, .rows = &rows_of_plane};
    c->args.ragged.planes = c->planes;
    c->args.ragged.num_planes = 1;
    c->args.ragged.plane_bytes = sizeof(sy_kv_plane);
}

static void plane_over_the_first(struct test_call *c)
{
    c->planes[0] = (sy_kv_plane){.cache = c->args.ragged.cache, .rows = c->args.ragged.out};
    c->args.ragged.planes = c->planes;
    c->args.ragged.num_planes = 1;
    c->args.ragged.plane_bytes = sizeof(sy_kv_plane);
}

static const struct refusal rows[] = {
    {"no block_table", NO_TENSOR("block_table"), .query = true},

    {"out of rank 3", BAD_RANK("out", 3, "[13,8,1]", "[13,8]")},

    {"cu_lens without entries", BAD_EXTENT("cu_lens", 0, 0, "[0]", NULL), .query = true},
    {"starts one short", BAD_EXTENT("starts", 0, 2, "[2]", "[3]"), .query = true},
    {"req_id one long", BAD_EXTENT("req_id", 0, 4, "[4]", "[3]"), .query = true},
    {"seq_lens one short", BAD_EXTENT("seq_lens", 0, 2, "[2]", "[3]"), .query = true},
    {"two table rows for three sequences",
     BAD_CALL(no_requests_for_two_rows, SY_ERR_SHAPE, "block_table", "2", "3"), .query = true},
    {"cache rows of no elements", BAD_CALL(rows_without_elements, SY_ERR_SHAPE, "cache", "0", NULL),
     .query = true},

    {"block_size 0", BAD_CALL(block_size_zero, SY_ERR_VALUE, "block_size", "0", "1"), .query = true},
    {"blocks of two rows", BAD_CALL(blocks_of_two, SY_ERR_SHAPE, "cache", "2", "4"), .query = true},
    {"table * block_size past 2^63",
     BAD_CALL(table_times_block_size, SY_ERR_OVERFLOW, "block_table|block_size", NULL, NULL), .query = true},
    {"2^32 rows of out", BAD_CALL(rows_of_32_bits, SY_ERR_OVERFLOW, "out", "4294967296", "2^32")},

    {"256 planes", BAD_CALL(too_many_planes, SY_ERR_VALUE, "num_planes", "256", "255"), .query = true},
    {"no array of planes", BAD_CALL(planes_missing, SY_ERR_NULL, "planes", NULL, "1"), .query = true},
    {"a plane with fewer rows of out",
     BAD_CALL(plane_of_fewer_rows, SY_ERR_SHAPE, "out", "plane 1 has shape [12,8]", "[13,8]")},
    {"a plane over out", BAD_CALL(plane_over_the_first, SY_ERR_ALIAS, "out", "overlaps", NULL)},

    {"out of other rows", BAD_EXTENT("out", 1, 7, "[13,7]", "[13,8]")},

    {"cache of overlapping rows", BAD_CALL(cache_of_overlapping_rows, SY_ERR_STRIDE, "cache", "7", "8"),
     .query = true},
    {"block_table of overlapping rows", BAD_STRIDE("block_table", 0, 2, "2", "3"), .query = true},
    {"cu_lens with stride 2", BAD_STRIDE("cu_lens", 0, 2, "2", "contiguous"), .query = true},
    {"seq_lens with stride -1", BAD_STRIDE("seq_lens", 0, -1, "-1", "contiguous"), .query = true},
    {"out of overlapping rows", BAD_STRIDE("out", 0, 7, "7", "8")},

    {"cu_lens that begins with 1", BAD_CALL(begins_with_one, SY_ERR_INDEX, "cu_lens", "entry 0 is 1", "0")},
    {"cu_lens that descends", BAD_CALL(descends, SY_ERR_INDEX, "cu_lens", "entry 2 is 4", "5")},
    {"cu_lens past out", BAD_CALL(ends_past_out, SY_ERR_INDEX, "cu_lens", "entry 3 is 14", "13")},
    {"req_id past the table", BAD_CALL(request_three, SY_ERR_INDEX, "req_id", "batch 1 is 3", "3")},
    {"a table without rows", BAD_CALL(request_of_no_table, SY_ERR_INDEX, "req_id", NULL, "0")},
    {"start -1", BAD_CALL(start_minus_one, SY_ERR_INDEX, "starts", "token -1 for batch 0, position 0", "12")},
    {"start too late",
     BAD_CALL(start_past_the_table, SY_ERR_INDEX, "starts", "token 12 for batch 2, position 6", "12")},
    {"a run longer than its table",
     BAD_CALL(no_starts_and_too_long, SY_ERR_INDEX, "cu_lens", "token 4 for batch 0, position 4", "4")},
    {"seq_lens negative", BAD_CALL(sequence_minus_two, SY_ERR_INDEX, "seq_lens", "batch 2 is -2", "0")},
    {"a run past the end of its sequence",
     BAD_CALL(sequence_too_short, SY_ERR_INDEX, "starts", "token 6 for batch 2, position 6", "6")},
    {"a sequence longer than its table", BAD_CALL(sequence_past_the_table, SY_ERR_INDEX, "block_table",
                                                  "3 columns", "4 for batch 2, position 6")},
    {"block -1 reached",
     BAD_CALL(block_minus_one, SY_ERR_INDEX, "block_table", "block -1 for batch 2, position 5", "6")},
    {"row past the cache",
     BAD_CALL(row_past_cache, SY_ERR_INDEX, "block_table", "row 22 for batch 0, position 4", "22")},
};

/* In the documented order; each acts on another argument or field, so that any two can be present at once. */
static const struct refusal ladder[] = {
    {"null", NO_DATA("req_id")},
    {"dtype", BAD_TYPE("out", kDLFloat, 32, 1)},
    {"rank", BAD_RANK("block_table", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("starts", 0, 2, NULL, NULL)},
    {"value", BAD_CALL(block_size_zero, SY_ERR_VALUE, "block_size", NULL, NULL)},
    {"overflow", BAD_CALL(rows_of_32_bits, SY_ERR_OVERFLOW, "out", NULL, NULL)},
    {"output shape", BAD_EXTENT("out", 1, 7, NULL, NULL)},
    {"stride", BAD_STRIDE("cu_lens", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("cache", kDLCUDA)},
    {"alias", BAD_OVER("out", "starts", 0)},
    {"contents", BAD_CALL(begins_with_one, SY_ERR_INDEX, "cu_lens", NULL, NULL)},
};

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_kv_ragged(NULL, &c.args.ragged), SY_ERR_NULL);
    assert_int_equal(sy_kv_ragged(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_kv_ragged_query(NULL, &c.args.ragged, &q), SY_ERR_NULL);
    assert_int_equal(sy_kv_ragged_query(ctx, &c.args.ragged, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_kv_ragged(ctx, &c.args.ragged), SY_OK);
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

/* A run of no tokens has no start, and its table row is not read. */
static void empty_run_with_a_wild_start(struct test_call *c)
{
    put(c, "starts", 1, INT32_MIN);
    put(c, "block_table", 6, -5);
}

static void no_starts_and_no_requests(struct test_call *c)
{
    c->args.ragged.starts = c->args.ragged.req_id = c->args.ragged.seq_lens = NULL;
    put(c, "cu_lens", 3, 8);
    put(c, "block_table", 6, 0);
}

static void starts_as_their_own_requests(struct test_call *c)
{
    c->args.ragged.req_id = c->args.ragged.starts;
    put(c, "cu_lens", 1, 0);
    put(c, "cu_lens", 2, 0);
    put(c, "cu_lens", 3, 3);
}

static void calls_that_are_fine(void **state)
{
    (void)state;
    test_accepts_pinned(make);
    test_accepts_adjacent(make);
    test_accepts(make, empty_run_with_a_wild_start);
    test_accepts(make, no_starts_and_no_requests);
    test_accepts(make, starts_as_their_own_requests);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_refusals(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_ragged");
}
