/*
 * moe_unpermute_ids rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win, and calls that are fine.
 */
#include "support.h"

enum { TOKENS = 5, SLOTS = 2, HIDDEN = 3, TOTAL = 10, ROWS = 6 };

static void make(struct test_call *c)
{
    sy_moe_unpermute_ids_args *a = &c->args.unpermute_ids;
    *c = (struct test_call){.op = "moe_unpermute_ids", .first_output = 3};
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F32, 2, (int64_t[]){ROWS, HIDDEN});
    struct tensor *indices =
        test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){TOTAL});
    test_call_add(c, "probs", &a->probs, SY_F16, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "tokens", &a->tokens, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    for (int i = 0; i < TOTAL; i++)
        memcpy(indices->mem + 4 * i, &(int32_t){i * 3 % TOTAL}, 4);
    a->num_tokens = TOKENS;
    a->row_begin = 2;
}

static void tokens_negative(struct test_call *c)
{
    c->args.unpermute_ids.num_tokens = -5;
}

static void other_tokens(struct test_call *c)
{
    c->args.unpermute_ids.num_tokens = 2;
}

static void tokens_that_do_not_divide(struct test_call *c)
{
    *c->fields[2] = NULL;
    c->args.unpermute_ids.num_tokens = 4;
}

static void begin_negative(struct test_call *c)
{
    c->args.unpermute_ids.row_begin = -1;
}

static void begin_past_int32(struct test_call *c)
{
    c->args.unpermute_ids.row_begin = INT64_C(1) << 31;
}

static void slots_past_int32(struct test_call *c)
{
    test_call_tensor(c, "sorted_indices")->shape[0] = INT64_C(5) << 30;
    test_call_tensor(c, "probs")->shape[1] = INT64_C(1) << 30;
}

static void index_of_ten(struct test_call *c)
{
    memcpy(test_call_tensor(c, "sorted_indices")->mem + 12, &(int32_t){TOTAL}, 4);
}

static void index_of_minus_two(struct test_call *c)
{
    memcpy(test_call_tensor(c, "sorted_indices")->mem + 12, &(int32_t){-2}, 4);
}

static const struct rejection rows[] = {
    {"probs one slot long", BAD_EXTENT("probs", 1, 3, "[5,3]", "[5,2]"), .query = true},
    {"indices that tokens do not divide", BAD_EXTENT("sorted_indices", 0, 9, "9 slots", "5 tokens"),
     .query = true},
    {"num_tokens that does not divide",
     BAD_CALL(tokens_that_do_not_divide, SY_ERR_SHAPE, "sorted_indices", "10 slots", "4 tokens"),
     .query = true},

    {"num_tokens -5", BAD_CALL(tokens_negative, SY_ERR_VALUE, "num_tokens", "-5", "0"), .query = true},
    {"num_tokens against probs", BAD_CALL(other_tokens, SY_ERR_VALUE, "num_tokens", "is 2", "want 5"),
     .query = true},
    {"row_begin -1", BAD_CALL(begin_negative, SY_ERR_VALUE, "row_begin", "-1", "0"), .query = true},
    {"row_begin 2^31", BAD_CALL(begin_past_int32, SY_ERR_VALUE, "row_begin", "2147483648", "2147483647"),
     .query = true},

    {"tokens one row long", BAD_EXTENT("tokens", 0, 6, "[6,3]", "[5,3]")},
    {"tokens one column short", BAD_EXTENT("tokens", 1, 2, "[5,2]", "[5,3]")},
    {"probs with inner stride 2", BAD_STRIDE("probs", 1, 2, "2", "contiguous"), .query = true},
    {"tokens with overlapping rows", BAD_STRIDE("tokens", 0, 2, "2", "3")},

    {"an index past all rows",
     BAD_CALL(index_of_ten, SY_ERR_ROUTING, "sorted_indices", "has 10 at 3", "-1 to 9")},
    {"an index of -2",
     BAD_CALL(index_of_minus_two, SY_ERR_ROUTING, "sorted_indices", "has -2 at 3", "-1 to 9")},
};

static const struct rejection paper_rows[] = {
    {"slots past 2^31",
     BAD_CALL(slots_past_int32, SY_ERR_VALUE, "sorted_indices", "5368709120 slots", "2147483647")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("probs")},
    {"dtype", BAD_TYPE("tokens", kDLInt, 32, 1)},
    {"value", BAD_CALL(begin_negative, SY_ERR_VALUE, "row_begin", NULL, NULL)},
    {"output shape", BAD_EXTENT("tokens", 0, 6, NULL, NULL)},
    {"stride", BAD_STRIDE("permuted_tokens", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("sorted_indices", kDLCUDA)},
    {"alias", BAD_OVER("tokens", "probs", 0)},
    {"contents", BAD_CALL(index_of_ten, SY_ERR_ROUTING, "sorted_indices", NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_unpermute_ids");
}
