/*
 * kv_scatter rejects values without a word, strides and sizes that overflow. Then pairs of faults, of which the one that
 * comes first in the documented order is reported, and calls that look wrong but are not. Other rejections are in
 * tests/examples.
 */
#include "support.h"

enum { BLOCKS = 6, BLOCK_SIZE = 4, CACHE_ROWS = 24, WIDTH = 7, BATCH = 2, COUNT = 5 };

/* The cache is an input too, so that none of the tensors is an output alone. */
static void make_with(struct test_call *c, int cache_rank)
{
    sy_kv_scatter_args *a = &c->args.scatter;
    *c = (struct test_call){.op = "kv_scatter", .first_output = 3};
    if (cache_rank == 2)
        test_call_add(c, "cache", &a->cache, SY_F32, 2, (int64_t[]){CACHE_ROWS, WIDTH});
    else
        test_call_add(c, "cache", &a->cache, SY_F32, 3, (int64_t[]){BLOCKS, BLOCK_SIZE, WIDTH});
    struct tensor *src = test_call_add(c, "src", &a->src, SY_F32, 3, (int64_t[]){BATCH, COUNT, WIDTH});
    struct tensor *slots = test_call_add(c, "slots", &a->slots, SY_I32, 2, (int64_t[]){BATCH, COUNT});
    memset(src->mem, 0x3C, src->bytes);
    for (int i = 0; i < BATCH * COUNT; i++)
        slots->mem[4 * i] = (unsigned char)(2 * i);
    a->check_unique = true;
}

static void make(struct test_call *c)
{
    make_with(c, 2);
}

static void make_paged(struct test_call *c)
{
    make_with(c, 3);
}

static void put(struct test_call *c, int64_t at, int32_t value)
{
    memcpy(test_call_tensor(c, "slots")->mem + 4 * at, &value, 4);
}

static void cache_bytes(struct test_call *c)
{
    test_call_tensor(c, "cache")->shape[0] = INT64_C(1) << 60;
}

/* 2^62 blocks of 4 rows of no bytes to speak of: their number wraps. */
static void blocks_times_block_size(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    memcpy(cache->strides, (int64_t[]){0, 7, 1}, 24);
    cache->t.strides = cache->strides;
    cache->shape[0] = INT64_C(1) << 62;
}

static void positions_of_32_bits(struct test_call *c)
{
    struct tensor *src = test_call_tensor(c, "src"), *slots = test_call_tensor(c, "slots");
    src->shape[0] = src->shape[1] = slots->shape[0] = slots->shape[1] = 65536;
}

/* Leading dimensions [2,2] whose rows are not one even sequence: 2, 5 and 2 elements apart. */
static void uneven_slots(struct test_call *c)
{
    struct tensor *slots = test_call_tensor(c, "slots"), *src = test_call_tensor(c, "src");
    memcpy(slots->shape, (int64_t[]){2, 2, 2}, 24);
    memcpy(slots->strides, (int64_t[]){7, 2, 1}, 24);
    slots->t.ndim = 3;
    slots->t.strides = slots->strides;
    memcpy(src->shape, (int64_t[]){2, 2, 2, WIDTH}, 32);
    src->t.ndim = 4;
}

static void slot_past_the_cache(struct test_call *c)
{
    put(c, 7, CACHE_ROWS);
}

static const struct rejection rows[] = {
    {"src of rank 2", BAD_RANK("src", 2, "[2,5]", "[2,5,7]"), .query = true},
    {"src of rank 4", BAD_RANK("src", 4, "[2,5,7,1]", "[2,5,7]"), .query = true},
    {"slots of rank 1", BAD_RANK("slots", 1, NULL, "[2,7]"), .query = true, .blame = "src"},
    {"src one row short", BAD_EXTENT("src", 0, 1, "[1,5,7]", "[2,5,7]"), .query = true},
    {"src one position long", BAD_EXTENT("src", 1, 6, "[2,6,7]", "[2,5,7]"), .query = true},
    {"src one column short", BAD_EXTENT("src", 2, 6, "[2,5,6]", "[2,5,7]"), .query = true},

    {"pad zero", BAD_FIELD("pad", SY_PAD_ZERO, SY_ERR_VALUE, NULL, "ZERO", "SKIP"), .query = true,
     .code = SY_FAULT_BAD_OPTION},
    {"unknown pad 3", BAD_FIELD("pad", 3, SY_ERR_VALUE, NULL, "3", NULL), .query = true,
     .code = SY_FAULT_BAD_OPTION},
    {"unknown pad -1", BAD_FIELD("pad", -1, SY_ERR_VALUE, NULL, "-1", NULL), .query = true},

    {"cache with inner stride 2", BAD_STRIDE("cache", 1, 2, "2", "contiguous"), .query = true},
    {"cache with overlapping rows", BAD_STRIDE("cache", 0, 6, "6", "7"), .query = true},
    {"src with inner stride 2", BAD_STRIDE("src", 2, 2, "2", "contiguous"), .query = true},
    {"src with overlapping rows", BAD_STRIDE("src", 1, 6, "6", "7"), .query = true},
    {"slots with inner stride 2", BAD_STRIDE("slots", 1, 2, "2", "contiguous"), .query = true},
    {"slots with overlapping rows", BAD_STRIDE("slots", 0, 4, "4", "5"), .query = true},
    {"slots with unevenly spaced rows", BAD_CALL(uneven_slots, SY_ERR_STRIDE, "slots", "[7,2,1]", NULL),
     .query = true},

};

static const struct rejection paged_rows[] = {
    {"paged cache rows without bytes", BAD_EXTENT("cache", 2, 0, "0", NULL), .query = true},
    {"paged cache with overlapping blocks", BAD_STRIDE("cache", 0, 27, "27", "28"), .query = true},
    {"paged cache with overlapping rows", BAD_STRIDE("cache", 1, 6, "6", "7"), .query = true},
    {"paged cache with inner stride 2", BAD_STRIDE("cache", 2, 2, "2", "contiguous"), .query = true},
    {"blocks * block size past 2^63",
     BAD_CALL(blocks_times_block_size, SY_ERR_OVERFLOW, "cache|block_size", NULL, NULL), .query = true},
};

static const struct rejection paper_rows[] = {
    {"cache of 2^64 bytes", BAD_CALL(cache_bytes, SY_ERR_OVERFLOW, "cache", NULL, NULL)},
    {"2^32 positions", BAD_CALL(positions_of_32_bits, SY_ERR_OVERFLOW, "slots", NULL, NULL)},
};

/* In the documented order; each acts on another argument or field, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("cache")},
    {"dtype", BAD_TYPE("slots", kDLUInt, 32, 1)},
    {"rank", BAD_RANK("cache", 1, NULL, NULL)},
    {"input shape", BAD_EXTENT("src", 2, 6, NULL, NULL)},
    {"value", BAD_FIELD("pad", SY_PAD_ZERO, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow", BAD_CALL(cache_bytes, SY_ERR_OVERFLOW, "cache", NULL, NULL)},
    {"stride", BAD_STRIDE("cache", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("slots", kDLCUDA)},
    {"alias", BAD_OVER("src", "cache", 0)},
    {"contents", BAD_CALL(slot_past_the_cache, SY_ERR_INDEX, "slots", NULL, NULL)},
};

/* ---- Calls that are fine ------------------------------------------------------------------------------------ */

static void slots_in_src(struct test_call *c)
{
    test_call_tensor(c, "slots")->t.data = test_call_tensor(c, "src")->mem;
    memset(test_call_tensor(c, "src")->mem, 0, test_call_tensor(c, "src")->bytes);
    c->args.scatter.check_unique = false; /* every slot is 0 now */
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, slots_in_src);
    test_accepts_adjacent(make_paged);
}

static void one_block_with_odd_stride(struct test_call *c)
{
    struct tensor *cache = test_call_tensor(c, "cache");
    memcpy(cache->shape, (int64_t[]){1, CACHE_ROWS, WIDTH}, 24);
    memcpy(cache->strides, (int64_t[]){INT64_MIN, WIDTH, 1}, 24);
    cache->t.strides = cache->strides;
}

static void strides_of_extent_one_mean_nothing(void **state)
{
    (void)state;
    test_accepts(make_paged, one_block_with_odd_stride);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_rejections(&list, make_paged, paged_rows, COUNT_OF(paged_rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    test_add(&list, "strides_of_extent_one_mean_nothing", strides_of_extent_one_mean_nothing, NULL);
    return test_run(&list, "bad_kv_scatter");
}
