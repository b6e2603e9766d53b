/*
 * kv_slots rejects: one valid call, one spoiler per row, the status, the sentence and untouched slots. Then pairs of
 * faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

enum { BLOCK_SIZE = 4, ROWS = 22, N = 6, REQUESTS = 2, TABLE = 8 };

static void make(struct test_call *c)
{
    sy_kv_slots_args *a = &c->args.slots;
    *c = (struct test_call){.op = "kv_slots", .first_output = 3};
    test_call_add(c, "batch", &a->batch, SY_I32, 1, (int64_t[]){N});
    test_call_add(c, "position", &a->position, SY_I32, 1, (int64_t[]){N});
    test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){REQUESTS, TABLE});
    struct tensor *slots = test_call_add(c, "slots", &a->slots, SY_I32, 1, (int64_t[]){N});
    memset(slots->mem, 0x3C, slots->bytes);
    a->block_size = BLOCK_SIZE;
    a->num_rows = ROWS;
}

static void put(struct test_call *c, const char *name, int64_t at, int32_t value)
{
    memcpy(test_call_tensor(c, name)->mem + 4 * at, &value, 4);
}

static void block_size_minus_one(struct test_call *c)
{
    c->args.slots.block_size = -1;
}

static void rows_minus_one(struct test_call *c)
{
    c->args.slots.num_rows = -1;
}

static void rows_past_int32(struct test_call *c)
{
    c->args.slots.num_rows = (INT64_C(1) << 31) + 1;
}

static void pad_three(struct test_call *c)
{
    c->args.slots.pad = (sy_kv_pad)3;
}

static void no_batch(struct test_call *c)
{
    c->args.slots.batch = NULL;
}

static void table_times_block_size(struct test_call *c)
{
    c->args.slots.block_size = INT64_C(1) << 61;
}

static void positions_of_32_bits(struct test_call *c)
{
    test_call_tensor(c, "batch")->shape[0] = test_call_tensor(c, "position")->shape[0] = INT64_C(1) << 32;
}

static void batch_two(struct test_call *c)
{
    put(c, "batch", 3, REQUESTS);
}

/* Far positions of a table without rows: nothing may be looked up. */
static void table_without_rows(struct test_call *c)
{
    test_call_tensor(c, "block_table")->shape[0] = 0;
    put(c, "position", 0, 4 * BLOCK_SIZE - 1);
}

static void batch_minus_one(struct test_call *c)
{
    put(c, "batch", 3, -1);
}

static void position_minus_one(struct test_call *c)
{
    put(c, "position", 2, -1);
}

static void position_past_the_table(struct test_call *c)
{
    put(c, "position", 5, TABLE * BLOCK_SIZE);
}

static void block_past_cache(struct test_call *c)
{
    put(c, "block_table", 0, 6);
}

static void row_past_cache(struct test_call *c)
{
    put(c, "block_table", 0, 5);
    put(c, "position", 4, 3);
}

static const struct rejection rows[] = {
    {"no block_table", NO_TENSOR("block_table"), .query = true},

    {"batch of rank 2", BAD_RANK("batch", 2, "[6,1]", "[6]"), .query = true},
    {"slots of rank 2", BAD_RANK("slots", 2, "[6,1]", "[6]")},

    {"batch one short", BAD_EXTENT("batch", 0, 5, "[5]", "[6]"), .query = true},

    {"two table rows and no batch", BAD_CALL(no_batch, SY_ERR_SHAPE, "block_table", "2", "1"), .query = true},

    {"block_size -1", BAD_CALL(block_size_minus_one, SY_ERR_VALUE, "block_size", "-1", "1"), .query = true},
    {"num_rows -1", BAD_CALL(rows_minus_one, SY_ERR_VALUE, "num_rows", "-1", "0"), .query = true},
    {"num_rows past int32 slots",
     BAD_CALL(rows_past_int32, SY_ERR_VALUE, "num_rows", "2147483649", "2147483648")},
    {"unknown pad 3", BAD_CALL(pad_three, SY_ERR_VALUE, "pad", "3", NULL), .query = true},
    {"table * block_size past 2^63",
     BAD_CALL(table_times_block_size, SY_ERR_OVERFLOW, "block_table|block_size", NULL, NULL), .query = true},

    {"slots one long", BAD_EXTENT("slots", 0, 7, "[7]", "[6]")},

    {"batch with stride 2", BAD_STRIDE("batch", 0, 2, "2", "contiguous"), .query = true},
    {"position with stride 0", BAD_STRIDE("position", 0, 0, "0", "contiguous"), .query = true},
    {"block_table with overlapping rows", BAD_STRIDE("block_table", 0, 7, "7", "8"), .query = true},
    {"slots with stride 2", BAD_STRIDE("slots", 0, 2, "2", "contiguous")},

    {"batch past the table", BAD_CALL(batch_two, SY_ERR_INDEX, "batch", "token 3 is 2", "2")},
    {"a table without rows", BAD_CALL(table_without_rows, SY_ERR_INDEX, "batch", NULL, "0")},
    {"batch -1", BAD_CALL(batch_minus_one, SY_ERR_INDEX, "batch", "-1", "2")},
    {"position -1 under pad error", BAD_CALL(position_minus_one, SY_ERR_INDEX, "position", "-1", "32")},
    {"position past the table", BAD_CALL(position_past_the_table, SY_ERR_INDEX, "position", "32", "32")},
    {"block past the cache", BAD_CALL(block_past_cache, SY_ERR_INDEX, "block_table", "6", "6")},
    {"row past the cache", BAD_CALL(row_past_cache, SY_ERR_INDEX, "block_table", "23", "22")},
};

static const struct rejection paper_rows[] = {
    {"2^32 tokens", BAD_CALL(positions_of_32_bits, SY_ERR_OVERFLOW, "position", NULL, NULL)},
};

/* In the documented order; each acts on another argument or field, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("position")},
    {"dtype", BAD_TYPE("slots", kDLFloat, 32, 1)},
    {"rank", BAD_RANK("block_table", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("batch", 0, 5, NULL, NULL)},
    {"value", BAD_CALL(pad_three, SY_ERR_VALUE, "pad", NULL, NULL)},
    {"overflow", BAD_CALL(table_times_block_size, SY_ERR_OVERFLOW, "block_table|block_size", NULL, NULL)},
    {"output shape", BAD_EXTENT("slots", 0, 7, NULL, NULL)},
    {"stride", BAD_STRIDE("position", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("batch", kDLCUDA)},
    {"alias", BAD_OVER("block_table", "slots", 0)},
    {"contents", BAD_CALL(position_minus_one, SY_ERR_INDEX, "position", NULL, NULL)},
};

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_kv_slots(NULL, &c.args.slots), SY_ERR_NULL);
    assert_int_equal(sy_kv_slots(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_kv_slots_query(NULL, &c.args.slots, &q), SY_ERR_NULL);
    assert_int_equal(sy_kv_slots_query(ctx, &c.args.slots, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_kv_slots(ctx, &c.args.slots), SY_OK);
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void one_table_row_and_no_batch(struct test_call *c)
{
    c->args.slots.batch = NULL;
    test_call_tensor(c, "block_table")->shape[0] = 1;
}

static void positions_as_their_own_batch(struct test_call *c)
{
    c->args.slots.batch = c->args.slots.position;
}

static void calls_that_are_fine(void **state)
{
    (void)state;
    test_accepts_pinned(make);
    test_accepts_adjacent(make);
    test_accepts(make, one_table_row_and_no_batch);
    test_accepts(make, positions_as_their_own_batch);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_slots");
}
