/*
 * Page lists of kv_gather: rejections that follow from the description, shapes and strides. Contents and what excludes
 * what are in tests/examples/kv_translate.txt: one place validates them for all operators.
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

static const struct rejection rows[] = {
    {"indptr without entries", BAD_EXTENT("indptr", 0, 0, "[0]", NULL), .query = true},
    {"last_page_len one short", BAD_EXTENT("last_page_len", 0, 2, "[2]", "[3]"), .query = true},
    {"page_indices with stride 2", BAD_STRIDE("page_indices", 0, 2, "2", "contiguous"), .query = true},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    return test_run(&list, "bad_kv_lists");
}
