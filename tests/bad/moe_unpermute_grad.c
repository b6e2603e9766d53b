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

static void set_index(struct test_call *c, int at, int32_t value)
{
    memcpy(test_call_tensor(c, "sorted_indices")->mem + 4 * (size_t)at, &value, 4);
}

static void drop(struct test_call *c, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->names[i], name) == 0)
            *c->fields[i] = NULL;
}

static void rows_eleven(struct test_call *c)
{
    test_call_tensor(c, "sorted_indices")->shape[0] = 11;
    test_call_tensor(c, "permuted_tokens")->shape[0] = 11;
}

static void capacity_mode(struct test_call *c)
{
    c->args.unpermute_grad.drop_and_pad = true;
}

static void no_map_in_capacity_mode(struct test_call *c)
{
    capacity_mode(c);
    drop(c, "routing_map");
}

static void index_too_large(struct test_call *c)
{
    set_index(c, 7, ROWS);
}

static void index_too_small(struct test_call *c)
{
    set_index(c, 7, -2);
}

static void one_slot_too_many(struct test_call *c)
{
    set_index(c, 7, 0);
}

static void row_bytes_overflow(struct test_call *c)
{
    static int64_t strides[] = {INT64_MAX / 4, 1};
    test_call_tensor(c, "permuted_tokens")->t.strides = strides;
}

/* Sizes that exist only on paper; validated by the query, which has no data. */
static void paper(struct test_call *c, int64_t tokens, int64_t experts, int64_t rows, int64_t hidden)
{
    drop(c, "permuted_tokens");
    drop(c, "probs");
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
    {"probs without permuted_tokens", NO_TENSOR("permuted_tokens"), .query = true},
    {"probs without routing_map", NO_TENSOR("routing_map"), .query = true},
    {"capacity probs without routing_map",
     BAD_CALL(no_map_in_capacity_mode, SY_ERR_NULL, "routing_map", NULL, NULL), .query = true},
    {"grad_probs without probs", NO_TENSOR("probs")},

    {"permuted_tokens one row short", BAD_EXTENT("permuted_tokens", 0, 11, "[11,7]", "[12,7]"),
     .query = true},
    {"permuted_tokens one column long", BAD_EXTENT("permuted_tokens", 1, 8, "[12,8]", "[12,7]"),
     .query = true},
    {"routing_map with fewer tokens", BAD_EXTENT("routing_map", 0, 5, "[5,5]", "[6,5]"), .query = true},
    {"probs with more experts", BAD_EXTENT("probs", 1, 9, "[6,9]", "[6,5]"), .query = true},

    {"rows that do not divide by the tokens",
     BAD_CALL(rows_eleven, SY_ERR_SHAPE, "sorted_indices", "11", "multiple of 6"), .query = true},
    {"rows that do not divide by the experts",
     BAD_CALL(capacity_mode, SY_ERR_SHAPE, "sorted_indices", "12", "multiple of 5"), .query = true},
    {"permuted_tokens with an overflowing stride",
     BAD_CALL(row_bytes_overflow, SY_ERR_OVERFLOW, "permuted_tokens", NULL, "2^63"), .query = true},

    {"grad_permuted_tokens one row short", BAD_EXTENT("grad_permuted_tokens", 0, 11, "[11,7]", "[12,7]")},
    {"grad_permuted_tokens one column short", BAD_EXTENT("grad_permuted_tokens", 1, 6, "[12,6]", "[12,7]")},
    {"grad_probs one row long", BAD_EXTENT("grad_probs", 0, 7, "[7,5]", "[6,5]")},

    {"grad_tokens with overlapping rows", BAD_STRIDE("grad_tokens", 0, 6, "6", "7"), .query = true},
    {"sorted_indices with stride 0", BAD_STRIDE("sorted_indices", 0, 0, "0", "contiguous"), .query = true},
    {"probs with inner stride 2", BAD_STRIDE("probs", 1, 2, "2", "contiguous"), .query = true},
    {"grad_permuted_tokens with overlapping rows", BAD_STRIDE("grad_permuted_tokens", 0, 6, "6", "7")},
    {"grad_probs with overlapping rows", BAD_STRIDE("grad_probs", 0, 4, "4", "5")},

    {"an index past the rows", BAD_CALL(index_too_large, SY_ERR_ROUTING, "sorted_indices", "12 at 7", "11")},
    {"an index below -1", BAD_CALL(index_too_small, SY_ERR_ROUTING, "sorted_indices", "-2 at 7", "-1")},
    {"a token with a slot too many",
     BAD_CALL(one_slot_too_many, SY_ERR_ROUTING, "routing_map", "token 3 to 1 experts", "2")},
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
    {"contents", BAD_CALL(index_too_large, SY_ERR_ROUTING, "sorted_indices", NULL, NULL)},
};

/* ---- Calls without a context or arguments, and calls that are fine ------------------------------------------ */

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_moe_unpermute_grad(NULL, &c.args.unpermute_grad), SY_ERR_NULL);
    assert_int_equal(sy_moe_unpermute_grad(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_moe_unpermute_grad_query(NULL, &c.args.unpermute_grad, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_unpermute_grad_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_unpermute_grad_query(ctx, &c.args.unpermute_grad, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_moe_unpermute_grad(ctx, &c.args.unpermute_grad), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void inputs_over_each_other(struct test_call *c)
{
    test_call_tensor(c, "probs")->t.data = test_call_tensor(c, "permuted_tokens")->mem + 2;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, inputs_over_each_other);
}

static void only_rows(struct test_call *c)
{
    drop(c, "probs");
    drop(c, "grad_probs");
    drop(c, "routing_map");
    drop(c, "permuted_tokens");
    one_slot_too_many(c); /* nobody asks for experts */
}

static void without_probs_indices_are_enough(void **state)
{
    (void)state;
    test_accepts(make, only_rows);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    test_add(&list, "without_probs_indices_are_enough", without_probs_indices_are_enough, NULL);
    return test_run(&list, "bad_moe_unpermute_grad");
}
