/*
 * kv_translate rejects shapes, values that depend on the type of an output, strides and sizes that overflow. Then pairs of
 * faults, of which the one that comes first in the documented order is reported. Other rejections are in tests/examples.
 */
#include "support.h"

enum { BLOCK_SIZE = 4, ROWS = 22, BATCH = 3, COUNT = 5, REQUESTS = 2, TABLE = 8 };

static void make(struct test_call *c)
{
    sy_kv_translate_args *a = &c->args.translate;
    *c = (struct test_call){.op = "kv_translate", .first_output = 5};
    test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){BATCH, COUNT});
    test_call_add(c, "block_table", &a->block_table, SY_I32, 2, (int64_t[]){REQUESTS, TABLE});
    test_call_add(c, "req_id", &a->req_id, SY_I32, 1, (int64_t[]){BATCH});
    struct tensor *counts = test_call_add(c, "counts", &a->counts, SY_I32, 1, (int64_t[]){BATCH});
    struct tensor *lens = test_call_add(c, "seq_lens", &a->seq_lens, SY_I32, 1, (int64_t[]){BATCH});
    struct tensor *slots = test_call_add(c, "slots", &a->slots, SY_I32, 2, (int64_t[]){BATCH, COUNT});
    struct tensor *valid = test_call_add(c, "valid", &a->valid, SY_I32, 1, (int64_t[]){BATCH});
    memset(slots->mem, 0x3C, slots->bytes);
    memset(valid->mem, 0x3C, valid->bytes);
    for (int b = 0; b < BATCH; b++)
        lens->mem[4 * b] = counts->mem[4 * b] = COUNT;
    a->block_size = BLOCK_SIZE;
    a->num_rows = ROWS;
}

static void rows_times_block_size(struct test_call *c)
{
    test_call_tensor(c, "block_table")->shape[1] = 0;
    c->args.translate.num_rows = (INT64_C(1) << 62) + 1;
    c->args.translate.block_size = INT64_C(1) << 62;
}

static void positions_of_32_bits(struct test_call *c)
{
    const char *const per_row[] = {"req_id", "counts", "seq_lens", "indices"};
    for (size_t i = 0; i < COUNT_OF(per_row); i++)
        test_call_tensor(c, per_row[i])->shape[0] = 65536;
    test_call_tensor(c, "indices")->shape[1] = 65536;
}

static const struct rejection rows[] = {
    {"slots of rank 1", BAD_RANK("slots", 1, "[3]", "[3,5]")},
    {"slots of rank 3", BAD_RANK("slots", 3, "[3,5,1]", "[3,5]")},

    {"req_id one short", BAD_EXTENT("req_id", 0, 2, "2", "3"), .query = true},
    {"counts one long", BAD_EXTENT("counts", 0, 4, "4", "3"), .query = true},
    {"seq_lens one short", BAD_EXTENT("seq_lens", 0, 2, "2", "3"), .query = true},

    {"num_rows past int32 slots",
     BAD_FIELD("num_rows", (INT64_C(1) << 31) + 1, SY_ERR_VALUE, NULL, "2147483649", "2147483648")},
    {"unknown pad 3", BAD_FIELD("pad", 3, SY_ERR_VALUE, NULL, "3", NULL), .query = true},

    {"slots one row short", BAD_EXTENT("slots", 0, 2, "[2,5]", "[3,5]")},
    {"slots one position long", BAD_EXTENT("slots", 1, 6, "[3,6]", "[3,5]")},
    {"valid one short", BAD_EXTENT("valid", 0, 2, "[2]", "[3]")},

    {"indices with inner stride 2", BAD_STRIDE("indices", 1, 2, "2", "contiguous"), .query = true},
    {"indices with overlapping rows", BAD_STRIDE("indices", 0, 4, "4", "5"), .query = true},
    {"block_table with overlapping rows", BAD_STRIDE("block_table", 0, 7, "7", "8"), .query = true},
    {"counts with stride 2", BAD_STRIDE("counts", 0, 2, "2", "contiguous"), .query = true},
    {"slots with inner stride 2", BAD_STRIDE("slots", 1, 2, "2", "contiguous")},
    {"slots with overlapping rows", BAD_STRIDE("slots", 0, 4, "4", "5")},
    {"valid with stride 2", BAD_STRIDE("valid", 0, 2, "2", "contiguous")},
};

static const struct rejection paper_rows[] = {
    {"num_rows * block_size past 2^63",
     BAD_CALL(rows_times_block_size, SY_ERR_OVERFLOW, "block_size", NULL, NULL)},
    {"2^32 positions", BAD_CALL(positions_of_32_bits, SY_ERR_OVERFLOW, "indices", NULL, NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("counts")},
    {"dtype", BAD_TYPE("valid", kDLFloat, 32, 1)},
    {"rank", BAD_RANK("seq_lens", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("req_id", 0, 2, NULL, NULL)},
    {"value", BAD_FIELD("pad", 3, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow",
     BAD_FIELD("block_size", INT64_C(1) << 61, SY_ERR_OVERFLOW, "block_table|block_size", NULL, NULL)},
    {"output shape", BAD_EXTENT("slots", 1, 6, NULL, NULL)},
    {"stride", BAD_STRIDE("block_table", 0, 7, NULL, NULL)},
    {"device", BAD_DEVICE("indices", kDLCUDA)},
    {"alias", BAD_OVER("req_id", "slots", 0)},
    {"contents", BAD_NUMBER("indices", 2 * COUNT + 3, 5, SY_ERR_INDEX, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_kv_translate");
}
