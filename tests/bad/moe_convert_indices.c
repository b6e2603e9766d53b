/*
 * moe_convert_indices rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs.
 * Then pairs of faults, of which the one that comes first in the documented order must win.
 */
#include "support.h"

enum { TOKENS = 4, EXPERTS = 3, ROWS = 8, COLUMNS = 7 };

static void make(struct test_call *c)
{
    static const int32_t slots[ROWS] = {0, 5, 3, 6, 1, 4, 2, 7};
    static const int64_t offsets[EXPERTS + 1] = {0, 3, 5, 8};
    sy_moe_convert_indices_args *a = &c->args.convert_indices;
    *c = (struct test_call){.op = "moe_convert_indices", .first_output = 2};
    memcpy(test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){ROWS})->mem, slots,
           sizeof slots);
    memcpy(test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){EXPERTS + 1})->mem,
           offsets, sizeof offsets);
    test_call_add(c, "converted_indices", &a->converted_indices, SY_I32, 2, (int64_t[]){TOKENS, COLUMNS});
    a->from = SY_INDEX_SLOT;
    a->to = SY_INDEX_TE;
    a->num_tokens = TOKENS;
}

static void slot_output_past_2_to_the_63(struct test_call *c)
{
    sy_moe_convert_indices_args *a = &c->args.convert_indices;
    a->from = SY_INDEX_ROW;
    a->to = SY_INDEX_SLOT;
    a->num_tokens = INT32_MAX;
    a->k = INT32_MAX;
}

static const struct rejection rows[] = {
    {"unknown from", BAD_FIELD("from", 3, SY_ERR_VALUE, NULL, "is 3", "TE"), .query = true},
    {"unknown to", BAD_FIELD("to", -1, SY_ERR_VALUE, NULL, "is -1", "TE"), .query = true},

    {"converted_indices of rank 1", BAD_RANK("converted_indices", 1, "[4]", "[4,7]")},
    {"converted_indices one column short", BAD_EXTENT("converted_indices", 1, 6, "[4,6]", "[4,7]")},
    {"converted_indices one token long", BAD_EXTENT("converted_indices", 0, 5, "[5,7]", "[4,7]")},

    {"sorted_indices with stride 2", BAD_STRIDE("sorted_indices", 0, 2, "2", "contiguous"), .query = true},
    {"converted_indices with overlapping rows", BAD_STRIDE("converted_indices", 0, 6, "6", "7")},
};

static const struct rejection paper_rows[] = {
    {"slots of 2^64 bytes",
     BAD_CALL(slot_output_past_2_to_the_63, SY_ERR_OVERFLOW, "num_tokens", "2147483647", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("expert_offsets")},
    {"dtype", BAD_TYPE("converted_indices", kDLFloat, 32, 1)},
    {"value", BAD_FIELD("k", -1, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("converted_indices", 0, 5, NULL, NULL)},
    {"stride", BAD_STRIDE("sorted_indices", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("expert_offsets", kDLCUDA)},
    {"alias", BAD_OVER("converted_indices", "sorted_indices", 0)},
    {"contents", BAD_NUMBER("sorted_indices", 3, 9, SY_ERR_ROUTING, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_convert_indices");
}
