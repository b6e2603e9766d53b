/*
 * kv_gather: the worked examples of the specification with their exact faults, then one test per rule: cache shapes,
 * padding policies, ranks of the indices, which table entries are read, first fault in order.
 */
#include "support.h"

#define MAX_VALUES 64

/*
 * One call. Index arrays are written as int64 and stored as `index_type`, `table_type` (default int32). The cache is
 * int32 rows [10r, 10r+1, ...] unless given. `want` is the output, or NULL when a refusal is expected.
 */
struct example {
    int64_t rows, width, block_size;
    int64_t batch, k, table_rows, table_len; /* batch 0: indices of rank 1, table of rank 1 */
    sy_kv_pad pad;
    DLDataType index_type, table_type;
    const int64_t *indices, *table, *req_id, *counts, *seq_lens;
    const int32_t *want, *before;
};

struct call {
    struct tensor cache, indices, table, req_id, counts, seq_lens, out;
    sy_kv_gather_args args;
};

static void put_ints(struct tensor *x, const int64_t *values)
{
    const size_t bytes = type_bytes(x->t.dtype);
    int64_t count = 1;
    for (int d = 0; d < x->t.ndim; d++)
        count *= x->shape[d];
    assert_true(count <= MAX_VALUES);
    int64_t dense[MAX_VALUES];
    for (int64_t i = 0; i < count; i++)
        memcpy((unsigned char *)dense + (size_t)i * bytes, &values[i], bytes);
    tensor_put(x, dense);
}

static const DLTensor *optional(struct tensor *x, DLDataType type, int64_t batch, const int64_t *values)
{
    if (values == NULL)
        return NULL;
    tensor_make(x, type, 1, (int64_t[]){batch}, NULL);
    put_ints(x, values);
    return &x->t;
}

static void call_make(struct call *c, const struct example *ex)
{
    memset(c, 0, sizeof *c);
    const DLDataType index_type = ex->index_type.bits ? ex->index_type : SY_I32;
    const DLDataType table_type = ex->table_type.bits ? ex->table_type : SY_I32;
    const int flat = ex->batch == 0;
    const int64_t b = flat ? 1 : ex->batch;
    int64_t index_shape[] = {b, ex->k}, table_shape[] = {ex->table_rows ? ex->table_rows : b, ex->table_len},
            out_shape[] = {b, ex->k, ex->width};
    tensor_make(&c->cache, SY_I32, 2, (int64_t[]){ex->rows, ex->width}, NULL);
    tensor_make(&c->indices, index_type, 2 - flat, index_shape + flat, NULL);
    tensor_make(&c->table, table_type, 2 - flat, table_shape + flat, NULL);
    tensor_make(&c->out, SY_I32, 3 - flat, out_shape + flat, NULL);
    for (int64_t i = 0; i < ex->rows * ex->width; i++) {
        const int32_t value = (int32_t)(10 * (i / ex->width) + i % ex->width);
        memcpy(c->cache.mem + i * 4, &value, 4);
    }
    put_ints(&c->indices, ex->indices);
    put_ints(&c->table, ex->table);
    if (ex->before)
        tensor_put(&c->out, ex->before);
    c->args = (sy_kv_gather_args){.cache = &c->cache.t,
                                  .indices = &c->indices.t,
                                  .block_table = &c->table.t,
                                  .req_id = optional(&c->req_id, index_type, b, ex->req_id),
                                  .counts = optional(&c->counts, table_type, b, ex->counts),
                                  .seq_lens = optional(&c->seq_lens, index_type, b, ex->seq_lens),
                                  .block_size = ex->block_size,
                                  .pad = ex->pad,
                                  .out = &c->out.t};
}

static void call_free(struct call *c)
{
    struct tensor *all[] = {&c->cache, &c->indices, &c->table, &c->req_id, &c->counts, &c->seq_lens, &c->out};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
}

static void check(const struct example *ex)
{
    struct call c;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    call_make(&c, ex);
    expect_status(ctx, sy_kv_gather_query(ctx, &c.args, &query), SY_OK);
    assert_int_equal(query.rows, (ex->batch ? ex->batch : 1) * ex->k);
    expect_status(ctx, sy_kv_gather(ctx, &c.args), SY_OK);
    expect_bytes(c.out.mem, ex->want, c.out.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

struct want {
    sy_fault_code code;
    int64_t batch, position, value, limit;
};

/* Refused with INDEX and exactly this fault at every thread count; the output keeps its bytes. */
static void check_refused(const struct example *ex, struct want want)
{
    const int threads[] = {1, 2, 3, 8};
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        struct call c;
        sy_ctx *ctx = test_ctx(threads[i], NULL);
        call_make(&c, ex);
        unsigned char *before = tensor_snapshot(&c.out);
        expect_status(ctx, sy_kv_gather(ctx, &c.args), SY_ERR_INDEX);
        expect_fault(ctx, want.code, want.batch, want.position, want.value, want.limit);
        assert_non_null(strstr(sy_ctx_error(ctx), "kv_gather: "));
        tensor_expect_unchanged(&c.out, before, "out");
        free(before);
        call_free(&c);
        sy_ctx_destroy(ctx);
    }
}

#define I(...) ((const int32_t[]){__VA_ARGS__})
#define L(...) ((const int64_t[]){__VA_ARGS__})

static void example_1_seed(void **state)
{
    (void)state;
    check(&(struct example){.rows = 6,
                            .width = 4,
                            .block_size = 2,
                            .k = 3,
                            .table_len = 3,
                            .table = L(0, 2, 1),
                            .indices = L(0, 4, 3),
                            .want = I(0, 1, 2, 3, 20, 21, 22, 23, 50, 51, 52, 53)});
}

static void example_1_as_one_batch_row(void **state)
{
    (void)state;
    check(&(struct example){.rows = 6,
                            .width = 4,
                            .block_size = 2,
                            .batch = 1,
                            .k = 3,
                            .table_len = 3,
                            .table = L(0, 2, 1),
                            .indices = L(0, 4, 3),
                            .index_type = SY_I64,
                            .table_type = SY_I64,
                            .want = I(0, 1, 2, 3, 20, 21, 22, 23, 50, 51, 52, 53)});
}

static void example_2_vendor_test(void **state)
{
    (void)state;
    check(&(struct example){.rows = 8,
                            .width = 4,
                            .block_size = 2,
                            .k = 4,
                            .table_len = 3,
                            .table = L(2, 0, 1),
                            .indices = L(0, 2, 5, 3),
                            .want = I(40, 41, 42, 43, 0, 1, 2, 3, 30, 31, 32, 33, 10, 11, 12, 13)});
}

static void example_3_partial_and_shared_block(void **state)
{
    (void)state;
    check(&(struct example){.rows = 7,
                            .width = 2,
                            .block_size = 3,
                            .k = 6,
                            .table_len = 4,
                            .table = L(2, 0, 1, 2),
                            .indices = L(3, 0, 8, 5, 9, 0),
                            .want = I(0, 1, 60, 61, 50, 51, 20, 21, 60, 61, 60, 61)});
}

static void example_3_missing_row(void **state)
{
    (void)state;
    check_refused(&(struct example){.rows = 7,
                                    .width = 2,
                                    .block_size = 3,
                                    .k = 4,
                                    .table_len = 4,
                                    .table = L(2, 0, 1, 2),
                                    .indices = L(3, 0, 1, -1)},
                  (struct want){SY_FAULT_ROW_RANGE, 0, 2, 7, 7});
}

static const struct example example_4 = {
    .rows = 12,
    .width = 2,
    .block_size = 2,
    .batch = 3,
    .k = 4,
    .table_rows = 2,
    .table_len = 3,
    .pad = SY_PAD_ZERO,
    .table = (const int64_t[]){4, 1, 3, 5, 0, -1},
    .req_id = (const int64_t[]){0, 1, 0},
    .seq_lens = (const int64_t[]){5, 3, 5},
    .counts = (const int64_t[]){4, 2, 4},
    .indices = (const int64_t[]){4, 0, -1, 3, 2, 1, 99, 99, 0, 3, -1, -1},
    .want = (const int32_t[]){60, 61, 80, 81, 0,  0,  30, 31, 0, 1, 110, 111,
                              0,  0,  0,  0,  80, 81, 30, 31, 0, 0, 0,   0}};

static void example_4_batched_with_padding(void **state)
{
    (void)state;
    struct example ex = example_4;
    const DLDataType both[] = {SY_I32, SY_I64};
    for (int i = 0; i < 4; i++) {
        ex.index_type = both[i / 2];
        ex.table_type = both[i % 2];
        check(&ex);
    }
}

static void example_4_pad_skip_keeps_rows(void **state)
{
    (void)state;
    int32_t before[24];
    for (int i = 0; i < 24; i++)
        before[i] = -7 - i;
    int32_t want[24];
    memcpy(want, example_4.want, sizeof want);
    const int padded[] = {2, 6, 7, 10, 11};
    for (size_t i = 0; i < COUNT_OF(padded); i++)
        memcpy(want + 2 * padded[i], before + 2 * padded[i], 8);
    struct example ex = example_4;
    ex.pad = SY_PAD_SKIP;
    ex.before = before;
    ex.want = want;
    check(&ex);
}

static void example_4_pad_error(void **state)
{
    (void)state;
    struct example ex = example_4;
    ex.pad = SY_PAD_ERROR;
    check_refused(&ex, (struct want){SY_FAULT_INDEX_RANGE, 0, 2, -1, 5});
}

static void example_4_past_the_sequence(void **state)
{
    (void)state;
    struct example ex = example_4;
    ex.indices = L(4, 0, -1, 3, 2, 3, 99, 99, 0, 3, -1, -1);
    check_refused(&ex, (struct want){SY_FAULT_INDEX_RANGE, 1, 1, 3, 3});
}

static void example_4_unmapped_block(void **state)
{
    (void)state;
    check_refused(&(struct example){.rows = 12,
                                    .width = 2,
                                    .block_size = 2,
                                    .k = 1,
                                    .table_len = 3,
                                    .table = L(5, 0, -1),
                                    .indices = L(4),
                                    .pad = SY_PAD_ZERO},
                  (struct want){SY_FAULT_BLOCK_RANGE, 0, 0, -1, 6});
}

static void example_5_block_that_wraps(void **state)
{
    (void)state;
    struct example ex = {.rows = 16,
                         .width = 1,
                         .block_size = 4,
                         .k = 2,
                         .table_len = 2,
                         .table = L(0, 1073741825),
                         .indices = L(0, 4)};
    check_refused(&ex, (struct want){SY_FAULT_BLOCK_RANGE, 0, 1, 1073741825, 4});
    ex.table_type = SY_I64;
    check_refused(&ex, (struct want){SY_FAULT_BLOCK_RANGE, 0, 1, 1073741825, 4});
    ex.table = L(0, 4611686018427387905); /* times 4 wraps to 4 in 64 bits */
    check_refused(&ex, (struct want){SY_FAULT_BLOCK_RANGE, 0, 1, 4611686018427387905, 4});
    ex.table = L(0, 4294967297); /* narrowed to 32 bits: 1 */
    check_refused(&ex, (struct want){SY_FAULT_BLOCK_RANGE, 0, 1, 4294967297, 4});
    ex.table = L(0, INT64_MIN);
    check_refused(&ex, (struct want){SY_FAULT_BLOCK_RANGE, 0, 1, INT64_MIN, 4});
}

static void example_5_index_that_wraps(void **state)
{
    (void)state;
    struct example ex = {.rows = 16,
                         .width = 1,
                         .block_size = 4,
                         .k = 2,
                         .table_len = 2,
                         .table = L(0, 1),
                         .index_type = SY_I64,
                         .indices = L(0, 4294967299)};
    check_refused(&ex, (struct want){SY_FAULT_INDEX_RANGE, 0, 1, 4294967299, 8});
    ex.indices = L(0, INT64_MAX);
    check_refused(&ex, (struct want){SY_FAULT_INDEX_RANGE, 0, 1, INT64_MAX, 8});
    ex.indices = L(0, INT64_MIN);
    check_refused(&ex, (struct want){SY_FAULT_INDEX_RANGE, 0, 1, INT64_MIN, 8});
}

static void example_5_minus_one(void **state)
{
    (void)state;
    check_refused(&(struct example){.rows = 6,
                                    .width = 1,
                                    .block_size = 2,
                                    .k = 1,
                                    .table_len = 3,
                                    .table = L(0, 2, 1),
                                    .indices = L(-1)},
                  (struct want){SY_FAULT_INDEX_RANGE, 0, 0, -1, 6});
}

/* ---- Content faults ----------------------------------------------------------------------------------------- */

static void minus_two_is_no_padding(void **state)
{
    (void)state;
    const sy_kv_pad pads[] = {SY_PAD_ERROR, SY_PAD_ZERO, SY_PAD_SKIP};
    for (size_t i = 0; i < COUNT_OF(pads); i++)
        check_refused(&(struct example){.rows = 6,
                                        .width = 1,
                                        .block_size = 2,
                                        .k = 2,
                                        .table_len = 3,
                                        .pad = pads[i],
                                        .table = L(0, 2, 1),
                                        .indices = L(0, -2)},
                      (struct want){SY_FAULT_INDEX_RANGE, 0, 1, -2, 6});
}

static void table_short_needs_seq_lens(void **state)
{
    (void)state;
    struct example ex = {.rows = 6,
                         .width = 1,
                         .block_size = 2,
                         .k = 2,
                         .table_len = 2,
                         .table = L(0, 2),
                         .indices = L(3, 5),
                         .seq_lens = L(100)};
    check_refused(&ex, (struct want){SY_FAULT_TABLE_SHORT, 0, 1, 2, 2});
    ex.seq_lens = NULL;
    check_refused(&ex, (struct want){SY_FAULT_INDEX_RANGE, 0, 1, 5, 4});
}

/* Lengths and requests are walked before any position; their faults have no position. */
static void row_fault(const struct example *ex, sy_fault_code code, const char *argument, int64_t batch,
                      int64_t value, int64_t limit)
{
    struct call c;
    sy_fault fault;
    sy_ctx *ctx = test_ctx(2, NULL);
    call_make(&c, ex);
    unsigned char *before = tensor_snapshot(&c.out);
    expect_status(ctx, sy_kv_gather(ctx, &c.args), SY_ERR_INDEX);
    assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
    assert_int_equal(fault.status, SY_ERR_INDEX);
    assert_int_equal(fault.code, code);
    assert_string_equal(fault.argument, argument);
    assert_int_equal(fault.batch, batch);
    assert_int_equal(fault.value, value);
    assert_int_equal(fault.limit, limit);
    tensor_expect_unchanged(&c.out, before, "out");
    free(before);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

static void lengths_outside_their_range(void **state)
{
    (void)state;
    struct example ex = example_4;
    ex.counts = L(4, 5, -1);
    row_fault(&ex, SY_FAULT_LENGTH_RANGE, "counts", 1, 5, 4);
    ex.counts = L(4, 4, -1);
    row_fault(&ex, SY_FAULT_LENGTH_RANGE, "counts", 2, -1, 4);
    ex.counts = L(4, 2, 4);
    ex.seq_lens = L(5, -3, 5);
    row_fault(&ex, SY_FAULT_LENGTH_RANGE, "seq_lens", 1, -3, 0);
}

static void requests_outside_the_table(void **state)
{
    (void)state;
    struct example ex = example_4;
    ex.req_id = L(0, 1, 2);
    row_fault(&ex, SY_FAULT_REQ_RANGE, "req_id", 2, 2, 2);
    ex.req_id = L(-1, 1, 2);
    row_fault(&ex, SY_FAULT_REQ_RANGE, "req_id", 0, -1, 2);
    ex.index_type = SY_I64;
    ex.req_id = L(0, 4294967296, 0);
    row_fault(&ex, SY_FAULT_REQ_RANGE, "req_id", 1, 4294967296, 2);
}

/* Of two bad rows the first wins whatever its fault; of one bad row counts, then seq_lens, then req_id. */
static void row_faults_in_order(void **state)
{
    (void)state;
    struct example ex = example_4;
    ex.req_id = L(9, 1, 0);
    ex.counts = L(4, 7, 4);
    row_fault(&ex, SY_FAULT_REQ_RANGE, "req_id", 0, 9, 2);
    ex.req_id = L(0, 9, 0);
    ex.seq_lens = L(5, -1, 5);
    row_fault(&ex, SY_FAULT_LENGTH_RANGE, "counts", 1, 7, 4);
    ex.counts = L(4, 2, 4);
    row_fault(&ex, SY_FAULT_LENGTH_RANGE, "seq_lens", 1, -1, 0);
    ex.seq_lens = L(5, 3, 5);
    row_fault(&ex, SY_FAULT_REQ_RANGE, "req_id", 1, 9, 2);
    ex.indices = L(99, 0, -1, 3, 2, 1, 99, 99, 0, 3, -1, -1); /* a bad position in row 0 comes later */
    row_fault(&ex, SY_FAULT_REQ_RANGE, "req_id", 1, 9, 2);
}

/* At one position: index, then table, then block, then row; each later fault is hidden by the earlier. */
static void position_faults_in_order(void **state)
{
    (void)state;
    struct example ex = {.rows = 7,
                         .width = 1,
                         .block_size = 3,
                         .batch = 2,
                         .k = 2,
                         .table_len = 2,
                         .table = L(0, 1, 2, 9),
                         .indices = L(0, 5, 1, 4),
                         .seq_lens = L(9, 9)};
    check_refused(&ex, (struct want){SY_FAULT_ROW_RANGE, 1, 0, 7, 7});
    ex.indices = L(0, 5, 0, 4);
    check_refused(&ex, (struct want){SY_FAULT_BLOCK_RANGE, 1, 1, 9, 3});
    ex.indices = L(0, 5, 0, 7);
    check_refused(&ex, (struct want){SY_FAULT_TABLE_SHORT, 1, 1, 2, 2});
    ex.indices = L(0, 5, 0, 9);
    check_refused(&ex, (struct want){SY_FAULT_INDEX_RANGE, 1, 1, 9, 9});
    ex.indices = L(0, 8, 0, 9);
    check_refused(&ex, (struct want){SY_FAULT_TABLE_SHORT, 0, 1, 2, 2});
}

static void no_cache_rows_fail_on_content(void **state)
{
    (void)state;
    check_refused(
        &(struct example){
            .rows = 0, .width = 2, .block_size = 2, .k = 1, .table_len = 1, .table = L(0), .indices = L(1)},
        (struct want){SY_FAULT_BLOCK_RANGE, 0, 0, 0, 0});
}

static void no_table_fails_on_content(void **state)
{
    (void)state;
    check_refused(
        &(struct example){
            .rows = 4, .width = 2, .block_size = 2, .k = 1, .table_len = 0, .table = L(0), .indices = L(0)},
        (struct want){SY_FAULT_INDEX_RANGE, 0, 0, 0, 0});
}

/* ---- Rules -------------------------------------------------------------------------------------------------- */

static void unreached_table_entries_are_not_judged(void **state)
{
    (void)state;
    check(&(struct example){.rows = 6,
                            .width = 1,
                            .block_size = 2,
                            .k = 2,
                            .table_len = 4,
                            .table = L(-1, 2, INT32_MAX, INT32_MIN),
                            .indices = L(2, 3),
                            .want = I(40, 50)});
}

static void padding_indices_are_not_judged(void **state)
{
    (void)state;
    check(&(struct example){.rows = 6,
                            .width = 1,
                            .block_size = 2,
                            .batch = 2,
                            .k = 3,
                            .table_len = 1,
                            .table = L(2, -1),
                            .indices = L(1, -9, INT32_MAX, INT32_MIN, 7, 7),
                            .counts = L(1, 0),
                            .want = I(50, 0, 0, 0, 0, 0)});
}

static void repeats_and_any_order(void **state)
{
    (void)state;
    check(&(struct example){.rows = 4,
                            .width = 1,
                            .block_size = 1,
                            .k = 7,
                            .table_len = 4,
                            .table = L(3, 3, 0, 1),
                            .indices = L(3, 0, 1, 0, 2, 2, 3),
                            .want = I(10, 30, 30, 30, 0, 0, 10)});
}

static void block_size_larger_than_the_cache(void **state)
{
    (void)state;
    check(&(struct example){.rows = 3,
                            .width = 1,
                            .block_size = 1000,
                            .k = 3,
                            .table_len = 1,
                            .table = L(0),
                            .indices = L(2, 0, 1),
                            .want = I(20, 0, 10)});
}

static void one_table_row_for_many_index_rows(void **state)
{
    (void)state;
    check(&(struct example){.rows = 4,
                            .width = 1,
                            .block_size = 2,
                            .batch = 3,
                            .k = 1,
                            .table_rows = 1,
                            .table_len = 2,
                            .table = L(1, 0),
                            .req_id = L(0, 0, 0),
                            .indices = L(0, 3, 2),
                            .want = I(20, 10, 0)});
}

static void zero_count_zeroes_or_keeps_the_row(void **state)
{
    (void)state;
    struct example ex = {.rows = 4,
                         .width = 1,
                         .block_size = 2,
                         .batch = 1,
                         .k = 2,
                         .table_len = 1,
                         .table = L(0),
                         .counts = L(0),
                         .indices = L(0, 0),
                         .before = I(5, 6),
                         .want = I(0, 0)};
    check(&ex);
    ex.pad = SY_PAD_ZERO;
    check(&ex);
    ex.pad = SY_PAD_SKIP;
    ex.want = I(5, 6);
    check(&ex);
}

/* k = 0 or B = 0 succeeds whatever the other arrays hold, and needs no data. */
static void nothing_asked(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (int i = 0; i < 2; i++) {
        const int64_t b = i ? 0 : 3, k = i ? 4 : 0;
        int64_t cache_shape[] = {4, 2}, index_shape[] = {b, k}, table_shape[] = {b, 2},
                out_shape[] = {b, k, 2};
        float cache_data[8] = {0};
        int32_t table_data[6] = {-1, -1, -1, -1, -1, -1};
        const DLTensor cache = sy_tensor(cache_data, SY_F32, 2, cache_shape),
                       indices = sy_tensor(NULL, SY_I32, 2, index_shape),
                       table = sy_tensor(i ? NULL : table_data, SY_I32, 2, table_shape),
                       out = sy_tensor(NULL, SY_F32, 3, out_shape);
        sy_query query;
        const sy_kv_gather_args args = {
            .cache = &cache, .indices = &indices, .block_table = &table, .block_size = 2, .out = &out};
        expect_status(ctx, sy_kv_gather_query(ctx, &args, &query), SY_OK);
        assert_int_equal(query.rows, 0);
        expect_status(ctx, sy_kv_gather(ctx, &args), SY_OK);
    }
    sy_ctx_destroy(ctx);
}

/* [blocks, S, D1, D2] with pages of another layer between ours, indices [2, 2, k], out [2, 2, k, D1, D2]. */
static void paged_cache_and_leading_dimensions(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    struct tensor cache, indices, table, req, out;
    int32_t rows[3 * 2 * 4], want[4 * 3 * 4];
    const int32_t index[] = {0, 1, 2, 3, 3, 0, 2, 2, 1, 1, 3, 0}, blocks[] = {2, 0, 1, 2},
                  ids[] = {1, 0, 1, 1};
    const int picked[] = {2, 3, 4, 1, 1, 4,
                          4, 4, 3, 3, 5, 2}; /* request 0 has blocks 2, 0, request 1 has 1, 2 */
    for (int i = 0; i < 24; i++)
        rows[i] = 1000 + i;
    for (int i = 0; i < 12; i++)
        memcpy(want + 4 * i, rows + 4 * picked[i], 16);
    tensor_make(&cache, SY_I32, 4, (int64_t[]){3, 2, 2, 2},
                &(struct layout){.inner = 2, .row_gap = 3, .outer_gap = 17, .byte_offset = 8, .misalign = 3});
    tensor_make(&indices, SY_I32, 3, (int64_t[]){2, 2, 3}, &(struct layout){.row_gap = 2});
    tensor_make(&table, SY_I32, 2, (int64_t[]){2, 2}, &(struct layout){.row_gap = 4});
    tensor_make(&req, SY_I32, 1, (int64_t[]){4}, NULL);
    tensor_make(&out, SY_I32, 5, (int64_t[]){2, 2, 3, 2, 2},
                &(struct layout){.inner = 2, .row_gap = 1, .byte_offset = 4});
    tensor_put(&cache, rows);
    tensor_put(&indices, index);
    tensor_put(&table, blocks);
    tensor_put(&req, ids);
    unsigned char *before = tensor_snapshot(&out);
    expect_status(ctx,
                  sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &cache.t,
                                                         .indices = &indices.t,
                                                         .block_table = &table.t,
                                                         .req_id = &req.t,
                                                         .block_size = 2,
                                                         .out = &out.t}),
                  SY_OK);
    tensor_expect(&out, want, before, "out");
    free(before);
    tensor_free(&cache);
    tensor_free(&indices);
    tensor_free(&table);
    tensor_free(&req);
    tensor_free(&out);
    sy_ctx_destroy(ctx);
}

/* Elements of any whole number of bytes are copied as bytes. */
static void element_sizes(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    sy_ctx *ctx = test_ctx(1, NULL);
    struct tensor cache, out;
    uint64_t rng = type.bits;
    int32_t index[] = {2, 0}, blocks[] = {1, 0};
    int64_t index_shape[] = {2};
    const DLTensor indices = sy_tensor(index, SY_I32, 1, index_shape),
                   table = sy_tensor(blocks, SY_I32, 1, index_shape);
    tensor_make(&cache, type, 2, (int64_t[]){4, 5}, NULL);
    tensor_make(&out, type, 2, (int64_t[]){2, 5}, NULL);
    rng_fill(&rng, cache.mem, cache.bytes);
    expect_status(ctx,
                  sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &cache.t,
                                                         .indices = &indices,
                                                         .block_table = &table,
                                                         .block_size = 2,
                                                         .out = &out.t}),
                  SY_OK);
    expect_bytes(out.mem, cache.mem, 5 * type_bytes(type));
    expect_bytes(out.mem + 5 * type_bytes(type), cache.mem + 10 * type_bytes(type), 5 * type_bytes(type));
    tensor_free(&cache);
    tensor_free(&out);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static DLDataType sizes[] = {{kDLInt, 8, 1},    {6, 8, 1},           {12, 8, 1},
                                 {kDLFloat, 16, 1}, {kDLUInt, 24, 1},    {kDLFloat, 32, 1},
                                 {kDLFloat, 64, 1}, {kDLComplex, 128, 1}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_1_seed),
        cmocka_unit_test(example_1_as_one_batch_row),
        cmocka_unit_test(example_2_vendor_test),
        cmocka_unit_test(example_3_partial_and_shared_block),
        cmocka_unit_test(example_3_missing_row),
        cmocka_unit_test(example_4_batched_with_padding),
        cmocka_unit_test(example_4_pad_skip_keeps_rows),
        cmocka_unit_test(example_4_pad_error),
        cmocka_unit_test(example_4_past_the_sequence),
        cmocka_unit_test(example_4_unmapped_block),
        cmocka_unit_test(example_5_block_that_wraps),
        cmocka_unit_test(example_5_index_that_wraps),
        cmocka_unit_test(example_5_minus_one),
        cmocka_unit_test(minus_two_is_no_padding),
        cmocka_unit_test(table_short_needs_seq_lens),
        cmocka_unit_test(lengths_outside_their_range),
        cmocka_unit_test(requests_outside_the_table),
        cmocka_unit_test(row_faults_in_order),
        cmocka_unit_test(position_faults_in_order),
        cmocka_unit_test(no_cache_rows_fail_on_content),
        cmocka_unit_test(no_table_fails_on_content),
        cmocka_unit_test(unreached_table_entries_are_not_judged),
        cmocka_unit_test(padding_indices_are_not_judged),
        cmocka_unit_test(repeats_and_any_order),
        cmocka_unit_test(block_size_larger_than_the_cache),
        cmocka_unit_test(one_table_row_for_many_index_rows),
        cmocka_unit_test(zero_count_zeroes_or_keeps_the_row),
        cmocka_unit_test(nothing_asked),
        cmocka_unit_test(paged_cache_and_leading_dimensions),
    };
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(tests); i++)
        test_add(&list, tests[i].name, tests[i].test_func, NULL);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        test_add(&list, test_name("elements_of_type_code_%d_with_%d_bits", sizes[i].code, sizes[i].bits),
                 element_sizes, &sizes[i]);
    return test_run(&list, "op_kv_gather");
}
