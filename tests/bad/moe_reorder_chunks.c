/*
 * moe_reorder_chunks rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win.
 */
#include "support.h"

enum { ROWS = 7, HIDDEN = 4, RANKS = 2, EXPERTS = 3 };

static void make(struct test_call *c)
{
    static const int32_t numbers[] = {2, 0, 1, 1, 2, 1};
    sy_moe_reorder_chunks_args *a = &c->args.reorder_chunks;
    *c = (struct test_call){.op = "moe_reorder_chunks", .first_output = 3};
    test_call_add(c, "rows", &a->rows, SY_BF16, 2, (int64_t[]){ROWS, HIDDEN});
    struct tensor *counts = test_call_add(c, "counts", &a->counts, SY_I32, 2, (int64_t[]){RANKS, EXPERTS});
    test_call_add(c, "extra", &a->extra, SY_F32, 1, (int64_t[]){ROWS});
    test_call_add(c, "reordered_rows", &a->reordered_rows, SY_BF16, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "reordered_extra", &a->reordered_extra, SY_F32, 1, (int64_t[]){ROWS});
    test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){EXPERTS + 1});
    memcpy(counts->mem, numbers, sizeof numbers);
}

static void ranks_past_int32(struct test_call *c)
{
    test_call_tensor(c, "counts")->shape[0] = INT64_C(1) << 31;
}

static void experts_past_int32(struct test_call *c)
{
    test_call_tensor(c, "counts")->shape[0] = 0;
    test_call_tensor(c, "counts")->shape[1] = INT64_MAX;
}

static void rows_past_2_to_the_63(struct test_call *c)
{
    test_call_tensor(c, "rows")->shape[1] = INT64_C(1) << 61;
}

static const struct rejection rows[] = {
    {"extra without reordered_extra", NO_TENSOR("reordered_extra")},
    {"reordered_extra without extra", NO_TENSOR("extra")},

    {"reordered_rows one row short", BAD_EXTENT("reordered_rows", 0, 6, "[6,4]", "[7,4]")},
    {"reordered_rows one element short", BAD_EXTENT("reordered_rows", 1, 3, "[7,3]", "[7,4]")},
    {"reordered_rows of rank 1", BAD_RANK("reordered_rows", 1, "[7]", "[7,4]")},
    {"reordered_extra one row long", BAD_EXTENT("reordered_extra", 0, 8, "[8]", "[7]")},
    {"expert_offsets without the end", BAD_EXTENT("expert_offsets", 0, 3, "[3]", "[4]")},

    {"rows with inner stride 2", BAD_STRIDE("rows", 1, 2, "2", "contiguous"), .query = true},
    {"rows that overlap", BAD_STRIDE("rows", 0, 3, "3", "4"), .query = true},
    {"extra with stride 0", BAD_STRIDE("extra", 0, 0, "0", "1"), .query = true},
    {"reordered_rows that overlap", BAD_STRIDE("reordered_rows", 0, 3, "3", "4")},
};

static const struct rejection paper_rows[] = {
    {"ranks past 2^31", BAD_CALL(ranks_past_int32, SY_ERR_VALUE, "counts", "2147483648 ranks", "2147483647")},
    {"experts past 2^31", BAD_CALL(experts_past_int32, SY_ERR_VALUE, "counts", "experts", "2147483647")},
    {"rows past 2^63 bytes", BAD_CALL(rows_past_2_to_the_63, SY_ERR_OVERFLOW, "rows", NULL, NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("counts")},
    {"dtype", BAD_TYPE("expert_offsets", kDLInt, 32, 1)},
    {"input shape", BAD_EXTENT("extra", 0, 6, NULL, NULL)},
    {"output shape", BAD_EXTENT("reordered_extra", 0, 8, NULL, NULL)},
    {"stride", BAD_STRIDE("rows", 0, 3, NULL, NULL)},
    {"device", BAD_DEVICE("reordered_rows", kDLCUDA)},
    {"alias", BAD_OVER("expert_offsets", "reordered_rows", 0)},
    {"contents", BAD_NUMBER("counts", 1, -1, SY_ERR_INDEX, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_reorder_chunks");
}
