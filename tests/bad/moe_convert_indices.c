/*
 * moe_convert_indices rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs.
 * Then pairs of faults, of which the one that comes first in the documented order must win, and calls that are fine.
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

static void set_form(void *form, int value)
{
    memcpy(form, &value, sizeof value);
}

static void from_three(struct test_call *c)
{
    set_form(&c->args.convert_indices.from, 3);
}

static void to_minus_one(struct test_call *c)
{
    set_form(&c->args.convert_indices.to, -1);
}

static void to_the_same(struct test_call *c)
{
    c->args.convert_indices.to = SY_INDEX_SLOT;
}

static void tokens_minus_one(struct test_call *c)
{
    c->args.convert_indices.num_tokens = -1;
}

static void tokens_past_int32(struct test_call *c)
{
    c->args.convert_indices.num_tokens = INT64_C(1) << 31;
}

static void three_tokens(struct test_call *c)
{
    c->args.convert_indices.num_tokens = 3;
}

static void no_tokens(struct test_call *c)
{
    c->args.convert_indices.num_tokens = 0;
}

static void rows_minus_one(struct test_call *c)
{
    c->args.convert_indices.num_rows = -1;
}

static void rows_past_int32(struct test_call *c)
{
    c->args.convert_indices.num_rows = INT64_C(1) << 31;
}

static void other_rows_for_row(struct test_call *c)
{
    c->args.convert_indices.from = SY_INDEX_ROW;
    c->args.convert_indices.num_rows = 7;
}

static void k_minus_one(struct test_call *c)
{
    c->args.convert_indices.k = -1;
}

static void te_of_even_columns(struct test_call *c)
{
    struct tensor *x = test_call_tensor(c, "sorted_indices");
    c->args.convert_indices.from = SY_INDEX_TE;
    c->args.convert_indices.to = SY_INDEX_ROW;
    x->t.ndim = 2;
    x->shape[0] = TOKENS;
    x->shape[1] = 2;
}

static void te_of_other_tokens(struct test_call *c)
{
    te_of_even_columns(c);
    test_call_tensor(c, "sorted_indices")->shape[0] = TOKENS + 1;
    test_call_tensor(c, "sorted_indices")->shape[1] = 1;
}

static void slot_output_past_2_to_the_63(struct test_call *c)
{
    sy_moe_convert_indices_args *a = &c->args.convert_indices;
    a->from = SY_INDEX_ROW;
    a->to = SY_INDEX_SLOT;
    a->num_tokens = INT32_MAX;
    a->k = INT32_MAX;
}

static void row_nine(struct test_call *c)
{
    memcpy(test_call_tensor(c, "sorted_indices")->mem + 12, &(int32_t){9}, 4);
}

static void row_five_again(struct test_call *c)
{
    memcpy(test_call_tensor(c, "sorted_indices")->mem + 12, &(int32_t){5}, 4);
}

static void offsets_descend(struct test_call *c)
{
    memcpy(test_call_tensor(c, "expert_offsets")->mem + 16, &(int64_t){2}, 8);
}

static void offsets_end_early(struct test_call *c)
{
    memcpy(test_call_tensor(c, "expert_offsets")->mem + 24, &(int64_t){6}, 8);
}

static void one_expert(struct test_call *c)
{
    test_call_tensor(c, "expert_offsets")->shape[0] = 2;
    memcpy(test_call_tensor(c, "expert_offsets")->mem + 8, &(int64_t){8}, 8);
    test_call_tensor(c, "converted_indices")->shape[1] = 3;
}

static const struct rejection rows[] = {
    {"no expert_offsets", NO_TENSOR("expert_offsets"), .query = true},

    {"sorted_indices of rank 2", BAD_RANK("sorted_indices", 2, "2", "1"), .query = true},

    {"expert_offsets without an end", BAD_EXTENT("expert_offsets", 0, 0, "[0]", "the end"), .query = true},

    {"slots that tokens do not divide",
     BAD_CALL(three_tokens, SY_ERR_SHAPE, "sorted_indices", "8 slots", "3 tokens"), .query = true},
    {"slots without tokens", BAD_CALL(no_tokens, SY_ERR_SHAPE, "sorted_indices", "8 slots", "0 tokens"),
     .query = true},
    {"a TE map of even columns",
     BAD_CALL(te_of_even_columns, SY_ERR_SHAPE, "sorted_indices", "2 columns", "2E+1"), .query = true},
    {"a TE map of other tokens",
     BAD_CALL(te_of_other_tokens, SY_ERR_SHAPE, "sorted_indices", "[5,1]", "[4,1]"), .query = true},

    {"unknown from", BAD_CALL(from_three, SY_ERR_VALUE, "from", "is 3", "TE"), .query = true},
    {"unknown to", BAD_CALL(to_minus_one, SY_ERR_VALUE, "to", "is -1", "TE"), .query = true},
    {"to the form it has", BAD_CALL(to_the_same, SY_ERR_VALUE, "to", "same form", "another"), .query = true},
    {"num_tokens -1", BAD_CALL(tokens_minus_one, SY_ERR_VALUE, "num_tokens", "-1", "0"), .query = true},
    {"num_tokens 2^31", BAD_CALL(tokens_past_int32, SY_ERR_VALUE, "num_tokens", "2147483648", "2147483647"),
     .query = true},
    {"num_rows -1", BAD_CALL(rows_minus_one, SY_ERR_VALUE, "num_rows", "-1", "0"), .query = true},
    {"num_rows 2^31", BAD_CALL(rows_past_int32, SY_ERR_VALUE, "num_rows", "2147483648", "2147483647"),
     .query = true},
    {"num_rows against the rows", BAD_CALL(other_rows_for_row, SY_ERR_VALUE, "num_rows", "is 7", "8 rows"),
     .query = true},
    {"k -1", BAD_CALL(k_minus_one, SY_ERR_VALUE, "k", "-1", "0"), .query = true},

    {"converted_indices of rank 1", BAD_RANK("converted_indices", 1, "[4]", "[4,7]")},
    {"converted_indices one column short", BAD_EXTENT("converted_indices", 1, 6, "[4,6]", "[4,7]")},
    {"converted_indices one token long", BAD_EXTENT("converted_indices", 0, 5, "[5,7]", "[4,7]")},

    {"sorted_indices with stride 2", BAD_STRIDE("sorted_indices", 0, 2, "2", "contiguous"), .query = true},
    {"converted_indices with overlapping rows", BAD_STRIDE("converted_indices", 0, 6, "6", "7")},

    {"a row that is not there",
     BAD_CALL(row_nine, SY_ERR_ROUTING, "sorted_indices", "has 9 at 3", "-1 to 7")},
    {"a row twice",
     BAD_CALL(row_five_again, SY_ERR_ROUTING, "sorted_indices", "row 5 at 3, as it has at 1", "distinct")},
    {"offsets that descend",
     BAD_CALL(offsets_descend, SY_ERR_INDEX, "expert_offsets", "has 2 at 2", "3 to 8")},
    {"offsets that end early",
     BAD_CALL(offsets_end_early, SY_ERR_ROUTING, "expert_offsets", "end at row 6", "expert")},
    {"more rows than experts",
     BAD_CALL(one_expert, SY_ERR_ROUTING, "sorted_indices", "token 0 2 rows", "E = 1")},
};

static const struct rejection paper_rows[] = {
    {"slots of 2^64 bytes",
     BAD_CALL(slot_output_past_2_to_the_63, SY_ERR_OVERFLOW, "num_tokens", "2147483647", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("expert_offsets")},
    {"dtype", BAD_TYPE("converted_indices", kDLFloat, 32, 1)},
    {"value", BAD_CALL(k_minus_one, SY_ERR_VALUE, "k", NULL, NULL)},
    {"output shape", BAD_EXTENT("converted_indices", 0, 5, NULL, NULL)},
    {"stride", BAD_STRIDE("sorted_indices", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("expert_offsets", kDLCUDA)},
    {"alias", BAD_OVER("converted_indices", "sorted_indices", 0)},
    {"contents", BAD_CALL(row_nine, SY_ERR_ROUTING, "sorted_indices", NULL, NULL)},
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
