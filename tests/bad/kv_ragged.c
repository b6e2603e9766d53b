/*
 * kv_ragged rejects shapes, planes, strides and sizes that overflow. Then pairs of faults, of which the one that comes
 * first in the documented order is reported. Other rejections are in tests/examples.
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
    a->plane_bytes = sizeof(sy_kv_plane); /* for rows with planes */
}

static void rows_of_32_bits(struct test_call *c)
{
    struct tensor *out = test_call_tensor(c, "out");
    out->shape[0] = INT64_C(1) << 32;
    out->strides[0] = WIDTH;
    out->strides[1] = 1;
}

static void too_many_planes(struct test_call *c)
{
    c->args.ragged.planes = c->planes;
    c->args.ragged.num_planes = 256;
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
}

static void plane_over_the_first(struct test_call *c)
{
    c->planes[0] = (sy_kv_plane){.cache = c->args.ragged.cache, .rows = c->args.ragged.out};
    c->args.ragged.planes = c->planes;
    c->args.ragged.num_planes = 1;
}

static const struct rejection rows[] = {
    {"out of rank 3", BAD_RANK("out", 3, "[13,8,1]", "[13,8]")},

    {"starts one short", BAD_EXTENT("starts", 0, 2, "[2]", "[3]"), .query = true},
    {"req_id one long", BAD_EXTENT("req_id", 0, 4, "[4]", "[3]"), .query = true},
    {"seq_lens one short", BAD_EXTENT("seq_lens", 0, 2, "[2]", "[3]"), .query = true},

    {"2^32 rows of out", BAD_CALL(rows_of_32_bits, SY_ERR_OVERFLOW, "out", "4294967296", "2^32")},

    {"256 planes", BAD_CALL(too_many_planes, SY_ERR_VALUE, "num_planes", "256", "255"), .query = true},
    {"no array of planes", BAD_FIELD("num_planes", 1, SY_ERR_NULL, "planes", NULL, "1"), .query = true},
    {"a plane with fewer rows of out",
     BAD_CALL(plane_of_fewer_rows, SY_ERR_SHAPE, "out", "plane 1 has shape [12,8]", "[13,8]")},
    {"a plane over out", BAD_CALL(plane_over_the_first, SY_ERR_ALIAS, "out", "overlaps", NULL)},

    {"out of other rows", BAD_EXTENT("out", 1, 7, "[13,7]", "[13,8]")},

    {"cache of overlapping rows", BAD_STRIDE("cache", 0, 7, "7", "8"), .query = true},
    {"block_table of overlapping rows", BAD_STRIDE("block_table", 0, 2, "2", "3"), .query = true},
    {"cu_lens with stride 2", BAD_STRIDE("cu_lens", 0, 2, "2", "contiguous"), .query = true},
    {"seq_lens with stride -1", BAD_STRIDE("seq_lens", 0, -1, "-1", "contiguous"), .query = true},
    {"out of overlapping rows", BAD_STRIDE("out", 0, 7, "7", "8")},
};

/* In the documented order; each acts on another argument or field, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("req_id")},
    {"dtype", BAD_TYPE("out", kDLFloat, 32, 1)},
    {"rank", BAD_RANK("block_table", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("starts", 0, 2, NULL, NULL)},
    {"value", BAD_FIELD("block_size", 0, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow", BAD_CALL(rows_of_32_bits, SY_ERR_OVERFLOW, "out", NULL, NULL)},
    {"output shape", BAD_EXTENT("out", 1, 7, NULL, NULL)},
    {"stride", BAD_STRIDE("cu_lens", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("cache", kDLCUDA)},
    {"alias", BAD_OVER("out", "starts", 0)},
    {"contents", BAD_NUMBER("cu_lens", 0, 1, SY_ERR_INDEX, NULL, NULL)},
};

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
    test_accepts(make, starts_as_their_own_requests);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_ragged");
}
