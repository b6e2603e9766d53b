/*
 * moe_unpermute_grad rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win, and calls that look wrong but
 * are not.
 */
#include "support.h"

enum { TOKENS = 6, EXPERTS = 5, HIDDEN = 7, ROWS = 12 };

static void make(struct test_call *c)
{
    sy_moe_unpermute_grad_args *a = &c->args.unpermute_grad;
    *c = (struct test_call){.op = "moe_unpermute_grad", .first_output = 5};
    test_call_add(c, "grad_tokens", &a->grad_tokens, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){ROWS});
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F32, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "probs", &a->probs, SY_BF16, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "grad_permuted_tokens", &a->grad_permuted_tokens, SY_F32, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "grad_probs", &a->grad_probs, SY_BF16, 2, (int64_t[]){TOKENS, EXPERTS});
    for (int t = 0; t < TOKENS; t++) {
        test_call_tensor(c, "routing_map")->mem[t * EXPERTS + t % EXPERTS] = 1;
        memcpy(test_call_tensor(c, "sorted_indices")->mem + 8 * t, (int32_t[]){t, -1}, 8);
    }
}

/* ---- Spoilers --------------------------------------------------------------------------------------------------- */

static void row_bytes_overflow(struct test_call *c)
{
    static int64_t strides[] = {INT64_MAX / 4, 1};
    test_call_tensor(c, "permuted_tokens")->t.strides = strides;
}

/* Sizes that exist only on paper; validated by the query, which has no data. */
static void paper(struct test_call *c, int64_t tokens, int64_t experts, int64_t rows, int64_t hidden)
{
    c->args.unpermute_grad.permuted_tokens = NULL;
    c->args.unpermute_grad.probs = NULL;
    memcpy(test_call_tensor(c, "grad_tokens")->shape, (int64_t[]){tokens, hidden}, 16);
    memcpy(test_call_tensor(c, "routing_map")->shape, (int64_t[]){tokens, experts}, 16);
    test_call_tensor(c, "sorted_indices")->shape[0] = rows;
}

static void too_many_tokens(struct test_call *c)
{
    paper(c, INT64_C(1) << 31, 1, 0, 1);
}

static void too_many_elements(struct test_call *c)
{
    paper(c, 1, 1, 0, INT64_C(1) << 31);
}

static void too_many_rows(struct test_call *c)
{
    paper(c, 1, 1, INT64_C(1) << 31, 1);
}

static void too_many_experts(struct test_call *c)
{
    paper(c, 1, INT64_C(1) << 31, 0, 1);
}

static void output_overflow(struct test_call *c)
{
    paper(c, 1, 1, INT32_MAX, INT32_MAX);
}

static const struct rejection rows[] = {
    {"grad_probs without probs", NO_TENSOR("probs")},

    {"permuted_tokens with an overflowing stride",
     BAD_CALL(row_bytes_overflow, SY_ERR_OVERFLOW, "permuted_tokens", NULL, "2^63"), .query = true},

    {"grad_tokens with overlapping rows", BAD_STRIDE("grad_tokens", 0, 6, "6", "7"), .query = true},
    {"sorted_indices with stride 0", BAD_STRIDE("sorted_indices", 0, 0, "0", "contiguous"), .query = true},
    {"probs with inner stride 2", BAD_STRIDE("probs", 1, 2, "2", "contiguous"), .query = true},
    {"grad_permuted_tokens with overlapping rows", BAD_STRIDE("grad_permuted_tokens", 0, 6, "6", "7")},
    {"grad_probs with overlapping rows", BAD_STRIDE("grad_probs", 0, 4, "4", "5")},
};

static const struct rejection paper_rows[] = {
    {"2^31 tokens", BAD_CALL(too_many_tokens, SY_ERR_VALUE, "grad_tokens", "2147483648", "2147483647")},
    {"2^31 elements in a row",
     BAD_CALL(too_many_elements, SY_ERR_VALUE, "grad_tokens", "2147483648", "2147483647")},
    {"2^31 rows", BAD_CALL(too_many_rows, SY_ERR_VALUE, "sorted_indices", "2147483648", "2147483647")},
    {"2^31 experts", BAD_CALL(too_many_experts, SY_ERR_VALUE, "routing_map", "2147483648", "2147483647")},
    {"output of 2^64 bytes",
     BAD_CALL(output_overflow, SY_ERR_OVERFLOW, "grad_permuted_tokens", NULL, "2^63")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("routing_map")},
    {"dtype", BAD_TYPE("grad_permuted_tokens", kDLInt, 32, 1)},
    {"rank", BAD_RANK("grad_tokens", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("probs", 1, 9, NULL, NULL)},
    {"output shape", BAD_EXTENT("grad_permuted_tokens", 0, 11, NULL, NULL)},
    {"stride", BAD_STRIDE("grad_probs", 0, 4, NULL, NULL)},
    {"device", BAD_DEVICE("permuted_tokens", kDLCUDA)},
    {"alias", BAD_OVER("grad_permuted_tokens", "permuted_tokens", 0)},
    {"contents", BAD_NUMBER("sorted_indices", 7, ROWS, SY_ERR_ROUTING, NULL, NULL)},
};

/* ---- Calls that are fine -------------------------------------------------------------------------------------- */

static void inputs_over_each_other(struct test_call *c)
{
    test_call_tensor(c, "probs")->t.data = test_call_tensor(c, "permuted_tokens")->mem + 2;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, inputs_over_each_other);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    return test_run(&list, "bad_moe_unpermute_grad");
}
