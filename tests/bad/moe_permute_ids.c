/*
 * moe_permute_ids rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win, and calls that are fine.
 */
#include "support.h"

enum { TOKENS = 5, SLOTS = 2, HIDDEN = 3, EXPERTS = 4, TOTAL = 10, ROWS = 6 };

static void make(struct test_call *c)
{
    sy_moe_permute_ids_args *a = &c->args.permute_ids;
    *c = (struct test_call){.op = "moe_permute_ids", .first_output = 3};
    test_call_add(c, "tokens", &a->tokens, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    struct tensor *ids = test_call_add(c, "ids", &a->ids, SY_I32, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "probs", &a->probs, SY_F16, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F32, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){TOTAL});
    test_call_add(c, "permuted_probs", &a->permuted_probs, SY_F16, 1, (int64_t[]){ROWS});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){EXPERTS});
    test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){EXPERTS + 1});
    for (int i = 0; i < TOTAL; i++)
        memcpy(ids->mem + 4 * i, &(int32_t){i * 3 % EXPERTS}, 4);
    a->num_experts = EXPERTS;
    a->num_out_tokens = -1;
    a->window = true;
    a->row_begin = 2;
    a->row_end = 2 + ROWS;
}

static void cut_past_all(struct test_call *c)
{
    c->args.permute_ids.num_out_tokens = -11;
}

static void cut_of_int64_min(struct test_call *c)
{
    c->args.permute_ids.num_out_tokens = INT64_MIN;
}

static void begin_negative(struct test_call *c)
{
    c->args.permute_ids.row_begin = -1;
}

static void begin_least(struct test_call *c)
{
    c->args.permute_ids.row_begin = INT64_MIN;
}

static void begin_past_kept(struct test_call *c)
{
    c->args.permute_ids.row_begin = 10;
}

static void end_past_kept(struct test_call *c)
{
    c->args.permute_ids.row_end = 10;
}

static void end_before_begin(struct test_call *c)
{
    c->args.permute_ids.row_end = 1;
}

static void ends_without_window(struct test_call *c)
{
    c->args.permute_ids.window = false;
}

static void end_without_window(struct test_call *c)
{
    c->args.permute_ids.window = false;
    c->args.permute_ids.row_begin = 0;
}

static void experts_negative(struct test_call *c)
{
    c->args.permute_ids.num_experts = -4;
}

static void experts_past_int32(struct test_call *c)
{
    c->args.permute_ids.num_experts = INT64_C(1) << 31;
}

static void experts_unknown(struct test_call *c)
{
    c->args.permute_ids.num_experts = 0;
}

static void missing_of_unknown_experts(struct test_call *c)
{
    c->args.permute_ids.num_experts = 0;
    c->args.permute_ids.expert_counts = c->args.permute_ids.expert_offsets = NULL;
    c->args.permute_ids.allow_missing = true;
}

static void missing_allowed_but_five(struct test_call *c)
{
    c->args.permute_ids.allow_missing = true;
    memcpy(test_call_tensor(c, "ids")->mem, &(int32_t){-1}, 4);
    memcpy(test_call_tensor(c, "ids")->mem + 4, &(int32_t){EXPERTS}, 4);
    memcpy(test_call_tensor(c, "ids")->mem + 28, &(int32_t){EXPERTS + 1}, 4);
}

static void missing_allowed_but_minus_two(struct test_call *c)
{
    c->args.permute_ids.allow_missing = true;
    memcpy(test_call_tensor(c, "ids")->mem + 28, &(int32_t){-2}, 4);
}

static void slots_past_int32(struct test_call *c)
{
    test_call_tensor(c, "ids")->shape[1] = test_call_tensor(c, "probs")->shape[1] = INT64_C(1) << 30;
}

static void slots_past_int64(struct test_call *c)
{
    test_call_tensor(c, "ids")->shape[1] = test_call_tensor(c, "probs")->shape[1] = INT64_C(1) << 62;
}

static void rows_past_2_to_the_63(struct test_call *c)
{
    const char *const all[] = {"tokens", "ids", "probs"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        test_call_tensor(c, all[i])->shape[0] = INT32_MAX;
    test_call_tensor(c, "ids")->shape[1] = test_call_tensor(c, "probs")->shape[1] = 1;
    test_call_tensor(c, "tokens")->t.dtype = SY_I64;
    test_call_tensor(c, "tokens")->shape[1] = INT32_MAX;
}

static void id_of_four(struct test_call *c)
{
    memcpy(test_call_tensor(c, "ids")->mem + 28, &(int32_t){EXPERTS}, 4);
}

static void id_of_minus_one(struct test_call *c)
{
    memcpy(test_call_tensor(c, "ids")->mem, &(int32_t){-1}, 4);
}

static const struct rejection rows[] = {
    {"probs without permuted_probs", NO_TENSOR("permuted_probs")},
    {"permuted_probs without probs", NO_TENSOR("probs")},

    {"ids one token short", BAD_EXTENT("ids", 0, 4, "[4,2]", "[5,2]"), .query = true},
    {"probs one slot long", BAD_EXTENT("probs", 1, 3, "[5,3]", "[5,2]"), .query = true},

    {"a cut past all rows", BAD_CALL(cut_past_all, SY_ERR_VALUE, "num_out_tokens", "-11", "-10"),
     .query = true},
    {"a cut of INT64_MIN",
     BAD_CALL(cut_of_int64_min, SY_ERR_VALUE, "num_out_tokens", "-9223372036854775808", "-10"),
     .query = true},
    {"row_begin -1", BAD_CALL(begin_negative, SY_ERR_VALUE, "row_begin", "-1", "0"), .query = true},
    {"row_begin -2^63", BAD_CALL(begin_least, SY_ERR_VALUE, "row_begin", "-9223372036854775808", "0"),
     .query = true},
    {"row_begin past the kept rows", BAD_CALL(begin_past_kept, SY_ERR_VALUE, "row_begin", "is 10", "0 to 9"),
     .query = true},
    {"row_end past the kept rows", BAD_CALL(end_past_kept, SY_ERR_VALUE, "row_end", "is 10", "2 to 9"),
     .query = true},
    {"row_end before row_begin", BAD_CALL(end_before_begin, SY_ERR_VALUE, "row_end", "is 1", "2 to 9"),
     .query = true},
    {"row_begin without window",
     BAD_CALL(ends_without_window, SY_ERR_VALUE, "row_begin", "is 2 without window", "0"), .query = true},
    {"row_end without window",
     BAD_CALL(end_without_window, SY_ERR_VALUE, "row_end", "is 8 without window", "0"), .query = true},
    {"num_experts -4", BAD_CALL(experts_negative, SY_ERR_VALUE, "num_experts", "-4", "0"), .query = true},
    {"num_experts 2^31",
     BAD_CALL(experts_past_int32, SY_ERR_VALUE, "num_experts", "2147483648", "2147483647"), .query = true},
    {"counts of unknown experts",
     BAD_CALL(experts_unknown, SY_ERR_VALUE, "num_experts", "is 0", "number of experts")},

    {"permuted_tokens one row short", BAD_EXTENT("permuted_tokens", 0, 5, "[5,3]", "[6,3]")},
    {"sorted_indices of the window alone", BAD_EXTENT("sorted_indices", 0, 6, "[6]", "[10]")},
    {"permuted_probs one long", BAD_EXTENT("permuted_probs", 0, 7, "[7]", "[6]")},
    {"expert_counts one short", BAD_EXTENT("expert_counts", 0, 3, "[3]", "[4]")},
    {"expert_offsets one short", BAD_EXTENT("expert_offsets", 0, 4, "[4]", "[5]")},

    {"ids with inner stride 2", BAD_STRIDE("ids", 1, 2, "2", "contiguous"), .query = true},
    {"permuted_tokens with overlapping rows", BAD_STRIDE("permuted_tokens", 0, 2, "2", "3")},

    {"missing ones of unknown experts",
     BAD_CALL(missing_of_unknown_experts, SY_ERR_VALUE, "num_experts", "is 0", "number of experts"),
     .query = true},
    {"an id of E + 1, missing ones allowed",
     BAD_CALL(missing_allowed_but_five, SY_ERR_INDEX, "ids", "token 3, slot 1 is 5", "below 4")},
    {"an id of -2, missing ones allowed",
     BAD_CALL(missing_allowed_but_minus_two, SY_ERR_INDEX, "ids", "token 3, slot 1 is -2", "0 or more")},
    {"an id of E", BAD_CALL(id_of_four, SY_ERR_INDEX, "ids", "token 3, slot 1 is 4", "below 4")},
    {"an id of -1", BAD_CALL(id_of_minus_one, SY_ERR_INDEX, "ids", "token 0, slot 0 is -1", "0 or more")},
};

static const struct rejection paper_rows[] = {
    {"slots past 2^31", BAD_CALL(slots_past_int32, SY_ERR_VALUE, "ids", "5368709120 slots", "2147483647")},
    {"slots past 2^63", BAD_CALL(slots_past_int64, SY_ERR_VALUE, "ids", "slots", "2147483647")},
    {"rows past 2^63 bytes",
     BAD_CALL(rows_past_2_to_the_63, SY_ERR_OVERFLOW, "tokens|ids", "2147483647", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("probs")},
    {"dtype", BAD_TYPE("permuted_tokens", kDLInt, 16, 1)},
    {"value", BAD_CALL(cut_past_all, SY_ERR_VALUE, "num_out_tokens", NULL, NULL)},
    {"output shape", BAD_EXTENT("expert_counts", 0, 3, NULL, NULL)},
    {"stride", BAD_STRIDE("tokens", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("ids", kDLCUDA)},
    {"alias", BAD_OVER("permuted_probs", "sorted_indices", 0)},
    {"contents", BAD_CALL(id_of_four, SY_ERR_INDEX, "ids", NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_moe_permute_ids");
}
