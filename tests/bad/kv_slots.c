/*
 * kv_slots rejects shapes, values that depend on the type of an output, strides and sizes that overflow. Then pairs of
 * faults, of which the one that comes first in the documented order is reported. Other rejections are in tests/examples.
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

static void positions_of_32_bits(struct test_call *c)
{
    test_call_tensor(c, "batch")->shape[0] = test_call_tensor(c, "position")->shape[0] = INT64_C(1) << 32;
}

static const struct rejection rows[] = {
    {"batch of rank 2", BAD_RANK("batch", 2, "[6,1]", "[6]"), .query = true},
    {"slots of rank 2", BAD_RANK("slots", 2, "[6,1]", "[6]")},

    {"batch one short", BAD_EXTENT("batch", 0, 5, "[5]", "[6]"), .query = true},

    {"num_rows past int32 slots",
     BAD_FIELD("num_rows", (INT64_C(1) << 31) + 1, SY_ERR_VALUE, NULL, "2147483649", "2147483648")},
    {"unknown pad 3", BAD_FIELD("pad", 3, SY_ERR_VALUE, NULL, "3", NULL), .query = true},

    {"slots one long", BAD_EXTENT("slots", 0, 7, "[7]", "[6]")},

    {"batch with stride 2", BAD_STRIDE("batch", 0, 2, "2", "contiguous"), .query = true},
    {"position with stride 0", BAD_STRIDE("position", 0, 0, "0", "contiguous"), .query = true},
    {"block_table with overlapping rows", BAD_STRIDE("block_table", 0, 7, "7", "8"), .query = true},
    {"slots with stride 2", BAD_STRIDE("slots", 0, 2, "2", "contiguous")},
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
    {"value", BAD_FIELD("pad", 3, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow",
     BAD_FIELD("block_size", INT64_C(1) << 61, SY_ERR_OVERFLOW, "block_table|block_size", NULL, NULL)},
    {"output shape", BAD_EXTENT("slots", 0, 7, NULL, NULL)},
    {"stride", BAD_STRIDE("position", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("batch", kDLCUDA)},
    {"alias", BAD_OVER("block_table", "slots", 0)},
    {"contents", BAD_NUMBER("position", 2, -1, SY_ERR_INDEX, NULL, NULL)},
};

static void positions_as_their_own_batch(struct test_call *c)
{
    c->args.slots.batch = c->args.slots.position;
}

static void calls_that_are_fine(void **state)
{
    (void)state;
    test_accepts(make, positions_as_their_own_batch);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "calls_that_are_fine", calls_that_are_fine, NULL);
    return test_run(&list, "bad_kv_slots");
}
