/*
 * Page lists that are rejected: one valid call of kv_gather with lists, one spoiler per row, the status, the sentence and an
 * untouched out. What all operators share is validated in one place, so one of them stands for all; kv_slots, whose tokens
 * bring their list, has rows of its own.
 */
#include "support.h"

/* Lists of 2, 0 and 1 pages of 4 rows; 3 pages of 5 are used. */
enum { BLOCK_SIZE = 4, ROWS = 22, BATCH = 3, PAGES = 5, K = 2, WIDTH = 8 };

static void put(struct test_call *c, const char *name, int64_t at, int32_t value)
{
    memcpy(test_call_tensor(c, name)->mem + 4 * at, &value, 4);
}

static void add_ints(struct test_call *c, const char *name, const DLTensor **field, int64_t n,
                     const int32_t *values)
{
    memcpy(test_call_add(c, name, field, SY_I32, 1, &n)->mem, values, (size_t)n * 4);
}

static const int32_t pages[PAGES] = {5, 1, 0, -1, -1}, indptr[] = {0, 2, 2, 3}, last[] = {1, -5, 4};

static void make(struct test_call *c)
{
    sy_kv_gather_args *a = &c->args.gather;
    *c = (struct test_call){.op = "kv_gather", .first_output = 6};
    test_call_add(c, "cache", &a->cache, SY_F16, 2, (int64_t[]){ROWS, WIDTH});
    struct tensor *indices = test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){BATCH, K});
    add_ints(c, "page_indices", &a->page_indices, PAGES, pages);
    add_ints(c, "indptr", &a->indptr, BATCH + 1, indptr);
    add_ints(c, "last_page_len", &a->last_page_len, BATCH, last);
    add_ints(c, "counts", &a->counts, BATCH, (const int32_t[]){2, 0, 2});
    struct tensor *out = test_call_add(c, "out", &a->out, SY_F16, 3, (int64_t[]){BATCH, K, WIDTH});
    memset(indices->mem, 0, indices->bytes);
    put(c, "indices", 1, 4);
    put(c, "indices", 5, 3);
    memset(out->mem, 0x3C, out->bytes);
    a->block_size = BLOCK_SIZE;
}

static void make_slots(struct test_call *c)
{
    sy_kv_slots_args *a = &c->args.slots;
    *c = (struct test_call){.op = "kv_slots", .first_output = 5};
    add_ints(c, "batch", &a->batch, 2, (const int32_t[]){0, 2});
    add_ints(c, "position", &a->position, 2, (const int32_t[]){4, 0});
    add_ints(c, "page_indices", &a->page_indices, PAGES, pages);
    add_ints(c, "indptr", &a->indptr, BATCH + 1, indptr);
    add_ints(c, "last_page_len", &a->last_page_len, BATCH, last);
    struct tensor *slots = test_call_add(c, "slots", &a->slots, SY_I32, 1, (int64_t[]){2});
    memset(slots->mem, 0x3C, slots->bytes);
    a->block_size = BLOCK_SIZE;
    a->num_rows = ROWS;
}

static void no_table_and_no_lists(struct test_call *c)
{
    c->args.gather.page_indices = c->args.gather.indptr = c->args.gather.last_page_len = NULL;
}

static void lists_without_pages(struct test_call *c)
{
    c->args.gather.page_indices = c->args.gather.indptr = NULL;
}

/* Any tensor will do: that there is one is wrong. */
static void table_beside_lists(struct test_call *c)
{
    c->args.gather.block_table = c->args.gather.page_indices;
}

static void lengths_beside_last_pages(struct test_call *c)
{
    c->args.gather.seq_lens = c->args.gather.counts;
}

static void pages_times_block_size(struct test_call *c)
{
    c->args.gather.block_size = INT64_C(1) << 61;
}

static void two_lists(struct test_call *c)
{
    test_call_tensor(c, "indptr")->shape[0] = BATCH;
    c->args.gather.last_page_len = NULL;
}

static void first_negative(struct test_call *c)
{
    put(c, "indptr", 0, -1);
}

static void descends(struct test_call *c)
{
    put(c, "indptr", 2, 1);
}

static void leaves_pages(struct test_call *c)
{
    put(c, "indptr", 3, PAGES + 1);
}

static void last_page_empty(struct test_call *c)
{
    put(c, "last_page_len", 2, 0);
}

static void last_page_too_full(struct test_call *c)
{
    put(c, "last_page_len", 0, BLOCK_SIZE + 1);
}

static void token_past_last_page(struct test_call *c)
{
    put(c, "indices", 1, 5);
}

static void token_of_empty_list(struct test_call *c)
{
    put(c, "counts", 1, 1);
}

static void page_that_is_none(struct test_call *c)
{
    put(c, "page_indices", 2, 6);
}

static void row_that_is_none(struct test_call *c)
{
    put(c, "indices", 0, 2);
}

static void own_length_past_the_list(struct test_call *c)
{
    static int64_t shape = BATCH;
    static int32_t lens[BATCH] = {99, 99, 99};
    static DLTensor seq_lens;
    seq_lens = sy_tensor(lens, SY_I32, 1, &shape);
    c->args.gather.last_page_len = NULL;
    c->args.gather.seq_lens = &seq_lens;
    put(c, "indices", 4, 4);
}

static void batch_three(struct test_call *c)
{
    put(c, "batch", 1, BATCH);
}

static void no_batch(struct test_call *c)
{
    c->args.slots.batch = NULL;
}

static void position_of_no_token(struct test_call *c)
{
    put(c, "position", 0, 5);
}

static const struct rejection rows[] = {
    {"neither table nor lists",
     BAD_CALL(no_table_and_no_lists, SY_ERR_NULL, "block_table", "missing", "page_indices and indptr"),
     .query = true},
    {"no page_indices", NO_TENSOR("page_indices"), .query = true},
    {"no indptr", NO_TENSOR("indptr"), .query = true},
    {"last_page_len alone", BAD_CALL(lists_without_pages, SY_ERR_NULL, "page_indices", "last_page_len", NULL),
     .query = true},

    {"indptr without entries", BAD_EXTENT("indptr", 0, 0, "[0]", NULL), .query = true},
    {"last_page_len one short", BAD_EXTENT("last_page_len", 0, 2, "[2]", "[3]"), .query = true},
    {"two lists for three rows", BAD_CALL(two_lists, SY_ERR_SHAPE, "indptr", "2 lists", "3"), .query = true},
    {"a table beside lists", BAD_CALL(table_beside_lists, SY_ERR_VALUE, "page_indices", "block_table", NULL),
     .query = true},
    {"seq_lens beside last_page_len",
     BAD_CALL(lengths_beside_last_pages, SY_ERR_VALUE, "last_page_len", "seq_lens", NULL), .query = true},
    {"pages * block_size past 2^63",
     BAD_CALL(pages_times_block_size, SY_ERR_OVERFLOW, "page_indices", "5 pages", NULL), .query = true},
    {"page_indices with stride 2", BAD_STRIDE("page_indices", 0, 2, "2", "contiguous"), .query = true},

    {"indptr that begins with -1", BAD_CALL(first_negative, SY_ERR_INDEX, "indptr", "entry 0 is -1", "0")},
    {"indptr that descends", BAD_CALL(descends, SY_ERR_INDEX, "indptr", "entry 2 is 1", "2")},
    {"indptr past the pages", BAD_CALL(leaves_pages, SY_ERR_INDEX, "indptr", "entry 3 is 6", "5")},
    {"a last page of no tokens",
     BAD_CALL(last_page_empty, SY_ERR_INDEX, "last_page_len", "batch 2 is 0", "1")},
    {"a last page of 5 tokens",
     BAD_CALL(last_page_too_full, SY_ERR_INDEX, "last_page_len", "batch 0 is 5", "4")},
    {"a token past the last page",
     BAD_CALL(token_past_last_page, SY_ERR_INDEX, "indices", "position 1 is 5", "below 5")},
    {"a token of an empty list",
     BAD_CALL(token_of_empty_list, SY_ERR_INDEX, "indices", "batch 1, position 0 is 0", "below 0")},
    {"a page past the cache",
     BAD_CALL(page_that_is_none, SY_ERR_INDEX, "page_indices", "block 6 for batch 2, position 0", "6")},
    {"a row past the cache",
     BAD_CALL(row_that_is_none, SY_ERR_INDEX, "page_indices", "row 22 for batch 0, position 0", "22")},
    {"a length past the list",
     BAD_CALL(own_length_past_the_list, SY_ERR_INDEX, "page_indices", "1 pages", "at least 2")},
};

static const struct rejection slot_rows[] = {
    {"kv_slots: no indptr", NO_TENSOR("indptr"), .query = true},
    {"kv_slots: three lists and no batch", BAD_CALL(no_batch, SY_ERR_SHAPE, "indptr", "3 lists", "1"),
     .query = true},
    {"kv_slots: indptr that descends", BAD_CALL(descends, SY_ERR_INDEX, "indptr", "entry 2 is 1", "2")},
    {"kv_slots: batch past the lists",
     BAD_CALL(batch_three, SY_ERR_INDEX, "batch", "token 1 is 3", "lists of indptr")},
    {"kv_slots: past the last page",
     BAD_CALL(position_of_no_token, SY_ERR_INDEX, "position", "token 0 is 5", "below 5")},
};

static void slots_rejected(void **state)
{
    check_rejection(make_slots, *state);
}

static void unused_pages_are_not_read(struct test_call *c)
{
    put(c, "page_indices", 3, INT32_MIN);
    put(c, "page_indices", 4, INT32_MAX);
}

static void calls_that_are_fine(void **state)
{
    (void)state;
    test_accepts_pinned(make);
    test_accepts_adjacent(make);
    test_accepts_pinned(make_slots);
    test_accepts(make, unused_pages_are_not_read);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    for (size_t i = 0; i < COUNT_OF(slot_rows); i++)
        test_add(&list, slot_rows[i].name, slots_rejected, (void *)&slot_rows[i]);
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_lists");
}
