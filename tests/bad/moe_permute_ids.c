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

static const struct rejection rows[] = {
    {"probs without permuted_probs", NO_TENSOR("permuted_probs")},
    {"permuted_probs without probs", NO_TENSOR("probs")},

    {"counts of unknown experts",
     BAD_FIELD("num_experts", 0, SY_ERR_VALUE, NULL, "is 0", "number of experts")},

    {"ids with inner stride 2", BAD_STRIDE("ids", 1, 2, "2", "contiguous"), .query = true},
    {"permuted_tokens with overlapping rows", BAD_STRIDE("permuted_tokens", 0, 2, "2", "3")},
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
    {"value", BAD_FIELD("num_out_tokens", -11, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("expert_counts", 0, 3, NULL, NULL)},
    {"stride", BAD_STRIDE("tokens", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("ids", kDLCUDA)},
    {"alias", BAD_OVER("permuted_probs", "sorted_indices", 0)},
    {"contents", BAD_NUMBER("ids", 7, EXPERTS, SY_ERR_INDEX, NULL, NULL)},
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
