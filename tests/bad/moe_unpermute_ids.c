/*
 * moe_unpermute_ids rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win, and calls that are fine.
 */
#include "support.h"

enum { TOKENS = 5, SLOTS = 2, HIDDEN = 3, TOTAL = 10, ROWS = 6, BIASES = 4 };

static void make(struct test_call *c)
{
    sy_moe_unpermute_ids_args *a = &c->args.unpermute_ids;
    *c = (struct test_call){.op = "moe_unpermute_ids", .first_output = 7};
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F32, 2, (int64_t[]){ROWS, HIDDEN});
    struct tensor *indices =
        test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){TOTAL});
    test_call_add(c, "probs", &a->probs, SY_F16, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "bias", &a->bias, SY_F32, 2, (int64_t[]){BIASES, HIDDEN});
    test_call_add(c, "bias_ids", &a->bias_ids, SY_I32, 2, (int64_t[]){TOKENS, SLOTS});
    test_call_add(c, "residual", &a->residual, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    test_call_add(c, "shared", &a->shared, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    test_call_add(c, "tokens", &a->tokens, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    for (int i = 0; i < TOTAL; i++)
        memcpy(indices->mem + 4 * i, &(int32_t){i * 3 % TOTAL}, 4);
    a->num_tokens = TOKENS;
    a->row_begin = 2;
}

static void slots_past_int32(struct test_call *c)
{
    test_call_tensor(c, "sorted_indices")->shape[0] = INT64_C(5) << 30;
    test_call_tensor(c, "probs")->shape[1] = INT64_C(1) << 30;
    test_call_tensor(c, "bias_ids")->shape[1] = INT64_C(1) << 30;
}

static const struct rejection rows[] = {
    {"probs with inner stride 2", BAD_STRIDE("probs", 1, 2, "2", "contiguous"), .query = true},
    {"tokens with overlapping rows", BAD_STRIDE("tokens", 0, 2, "2", "3")},
};

static const struct rejection paper_rows[] = {
    {"slots past 2^31",
     BAD_CALL(slots_past_int32, SY_ERR_VALUE, "sorted_indices", "5368709120 slots", "2147483647")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("probs")},
    {"dtype", BAD_TYPE("tokens", kDLInt, 32, 1)},
    {"value", BAD_FIELD("row_begin", -1, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("tokens", 0, 6, NULL, NULL)},
    {"stride", BAD_STRIDE("permuted_tokens", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("sorted_indices", kDLCUDA)},
    {"alias", BAD_OVER("tokens", "residual", 0)},
    {"contents", BAD_NUMBER("bias_ids", 3, BIASES, SY_ERR_ROUTING, NULL, NULL)},
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
