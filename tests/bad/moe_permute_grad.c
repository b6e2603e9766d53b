/*
 * moe_permute_grad rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then
 * pairs of faults, of which the one that comes first in the documented order must win, and calls that look wrong but
 * are not.
 */
#include "support.h"

enum { TOKENS = 6, EXPERTS = 5, HIDDEN = 7, ROWS = 12 };

static void make(struct test_call *c)
{
    sy_moe_permute_grad_args *a = &c->args.permute_grad;
    *c = (struct test_call){.op = "moe_permute_grad", .first_output = 4};
    test_call_add(c, "grad_permuted_tokens", &a->grad_permuted_tokens, SY_F32, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){ROWS});
    test_call_add(c, "grad_permuted_probs", &a->grad_permuted_probs, SY_BF16, 1, (int64_t[]){ROWS});
    test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "grad_tokens", &a->grad_tokens, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    test_call_add(c, "grad_probs", &a->grad_probs, SY_BF16, 2, (int64_t[]){TOKENS, EXPERTS});
    a->num_experts = EXPERTS;
    a->num_tokens = TOKENS;
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

static void no_experts(struct test_call *c)
{
    c->args.permute_grad.num_experts = 0;
}

static void minus_five_experts(struct test_call *c)
{
    c->args.permute_grad.num_experts = -5;
}

static void too_many_experts(struct test_call *c)
{
    c->args.permute_grad.num_experts = INT64_MAX;
}

static void no_tokens(struct test_call *c)
{
    c->args.permute_grad.num_tokens = 0;
}

static void too_many_tokens(struct test_call *c)
{
    c->args.permute_grad.num_tokens = INT64_C(1) << 31;
}

static void four_tokens(struct test_call *c)
{
    c->args.permute_grad.num_tokens = 4;
}

static void five_tokens_without_map(struct test_call *c)
{
    drop(c, "routing_map");
    drop(c, "grad_permuted_probs");
    c->args.permute_grad.num_tokens = 5;
}

static void capacity_mode(struct test_call *c)
{
    c->args.permute_grad.drop_and_pad = true;
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
    test_call_tensor(c, "grad_permuted_tokens")->t.strides = strides;
}

/* Sizes that exist only on paper; validated by the query, which has no data. */
static void paper(struct test_call *c, int64_t tokens, int64_t experts, int64_t rows, int64_t hidden)
{
    memcpy(test_call_tensor(c, "grad_permuted_tokens")->shape, (int64_t[]){rows, hidden}, 16);
    test_call_tensor(c, "sorted_indices")->shape[0] = rows;
    test_call_tensor(c, "grad_permuted_probs")->shape[0] = rows;
    drop(c, "routing_map");
    c->args.permute_grad.num_tokens = tokens;
    c->args.permute_grad.num_experts = experts;
    c->args.permute_grad.drop_and_pad = true;
}

static void too_many_rows(struct test_call *c)
{
    paper(c, 1, 1, INT64_C(1) << 31, 1);
}

static void too_many_elements(struct test_call *c)
{
    paper(c, 1, 1, 0, INT64_C(1) << 31);
}

static void tokens_overflow(struct test_call *c)
{
    paper(c, INT32_MAX, 1, 0, INT32_MAX);
}

static void probs_overflow(struct test_call *c)
{
    paper(c, INT32_MAX, INT32_MAX, 0, 1);
    test_call_tensor(c, "grad_permuted_probs")->t.dtype = SY_F32;
}

static const struct rejection rows[] = {
    {"packed grad_permuted_probs without routing_map", NO_TENSOR("routing_map"), .query = true},

    {"sorted_indices one short", BAD_EXTENT("sorted_indices", 0, 11, "11", "12"), .query = true},
    {"grad_permuted_probs one long", BAD_EXTENT("grad_permuted_probs", 0, 13, "13", "12"), .query = true},

    {"num_experts 0", BAD_CALL(no_experts, SY_ERR_VALUE, "num_experts", "0", "1"), .query = true},
    {"num_experts -5", BAD_CALL(minus_five_experts, SY_ERR_VALUE, "num_experts", "-5", "1"), .query = true},
    {"num_experts highest", BAD_CALL(too_many_experts, SY_ERR_VALUE, "num_experts", NULL, "2147483647"),
     .query = true},
    {"num_tokens 0", BAD_CALL(no_tokens, SY_ERR_VALUE, "num_tokens", "0", "1"), .query = true},
    {"num_tokens 2^31", BAD_CALL(too_many_tokens, SY_ERR_VALUE, "num_tokens", "2147483648", "2147483647"),
     .query = true},
    {"routing_map of another number of tokens",
     BAD_CALL(four_tokens, SY_ERR_SHAPE, "routing_map", "[6,5]", "[4,5]"), .query = true},
    {"routing_map with more experts", BAD_EXTENT("routing_map", 1, 9, "[6,9]", "[6,5]"), .query = true},
    {"rows that do not divide by the tokens",
     BAD_CALL(five_tokens_without_map, SY_ERR_SHAPE, "sorted_indices", "12", "multiple of 5"), .query = true},
    {"rows that do not divide by the experts",
     BAD_CALL(capacity_mode, SY_ERR_SHAPE, "sorted_indices", "12", "multiple of 5"), .query = true},
    {"grad_permuted_tokens with an overflowing stride",
     BAD_CALL(row_bytes_overflow, SY_ERR_OVERFLOW, "grad_permuted_tokens", NULL, "2^63"), .query = true},

    {"grad_tokens one row short", BAD_EXTENT("grad_tokens", 0, 5, "[5,7]", "[6,7]")},
    {"grad_tokens one column long", BAD_EXTENT("grad_tokens", 1, 8, "[6,8]", "[6,7]")},
    {"grad_probs one row long", BAD_EXTENT("grad_probs", 0, 7, "[7,5]", "[6,5]")},
    {"grad_probs one column short", BAD_EXTENT("grad_probs", 1, 4, "[6,4]", "[6,5]")},

    {"grad_permuted_tokens with overlapping rows", BAD_STRIDE("grad_permuted_tokens", 0, 6, "6", "7"),
     .query = true},
    {"sorted_indices with stride 2", BAD_STRIDE("sorted_indices", 0, 2, "2", "contiguous"), .query = true},
    {"grad_permuted_probs with stride 0", BAD_STRIDE("grad_permuted_probs", 0, 0, "0", "contiguous"),
     .query = true},
    {"routing_map with inner stride 2", BAD_STRIDE("routing_map", 1, 2, "2", "contiguous"), .query = true},
    {"grad_tokens with overlapping rows", BAD_STRIDE("grad_tokens", 0, 6, "6", "7")},
    {"grad_probs with inner stride -1", BAD_STRIDE("grad_probs", 1, -1, "-1", "contiguous")},

    {"an index past the rows", BAD_CALL(index_too_large, SY_ERR_ROUTING, "sorted_indices", "12 at 7", "11")},
    {"an index below -1", BAD_CALL(index_too_small, SY_ERR_ROUTING, "sorted_indices", "-2 at 7", "-1")},
    {"a token with a slot too many",
     BAD_CALL(one_slot_too_many, SY_ERR_ROUTING, "routing_map", "token 3 to 1 experts", "2")},
};

static const struct rejection paper_rows[] = {
    {"2^31 rows", BAD_CALL(too_many_rows, SY_ERR_VALUE, "grad_permuted_tokens", "2147483648", "2147483647")},
    {"2^31 elements in a row",
     BAD_CALL(too_many_elements, SY_ERR_VALUE, "grad_permuted_tokens", "2147483648", "2147483647")},
    {"grad_tokens of 2^64 bytes", BAD_CALL(tokens_overflow, SY_ERR_OVERFLOW, "grad_tokens", NULL, "2^63")},
    {"grad_probs of 2^64 bytes", BAD_CALL(probs_overflow, SY_ERR_OVERFLOW, "grad_probs", NULL, "2^63")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("routing_map")},
    {"dtype", BAD_TYPE("grad_tokens", kDLInt, 32, 1)},
    {"rank", BAD_RANK("sorted_indices", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("grad_permuted_probs", 0, 13, NULL, NULL)},
    {"value", BAD_CALL(no_experts, SY_ERR_VALUE, "num_experts", NULL, NULL)},
    {"output shape", BAD_EXTENT("grad_tokens", 0, 5, NULL, NULL)},
    {"stride", BAD_STRIDE("grad_probs", 0, 4, NULL, NULL)},
    {"device", BAD_DEVICE("grad_permuted_tokens", kDLCUDA)},
    {"alias", BAD_OVER("grad_tokens", "grad_permuted_tokens", 0)},
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
    assert_int_equal(sy_moe_permute_grad(NULL, &c.args.permute_grad), SY_ERR_NULL);
    assert_int_equal(sy_moe_permute_grad(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_moe_permute_grad_query(NULL, &c.args.permute_grad, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_permute_grad_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_permute_grad_query(ctx, &c.args.permute_grad, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_moe_permute_grad(ctx, &c.args.permute_grad), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void only_tokens(struct test_call *c)
{
    drop(c, "grad_probs");
    one_slot_too_many(c); /* nobody asks for experts */
}

static void probs_need_not_be_asked_for(void **state)
{
    (void)state;
    test_accepts(make, only_tokens);
}

static void without_map_in_capacity_mode(struct test_call *c)
{
    drop(c, "routing_map");
    capacity_mode(c);
    for (int i = 0; i < 3; i++)
        test_call_tensor(c,
                         (const char *[]){"grad_permuted_tokens", "sorted_indices", "grad_permuted_probs"}[i])
            ->shape[0] = 10;
    for (int i = 0; i < 10; i++)
        set_index(c, i, i % TOKENS);
}

static void capacity_mode_needs_no_map(void **state)
{
    (void)state;
    test_accepts(make, without_map_in_capacity_mode);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "probs_need_not_be_asked_for", probs_need_not_be_asked_for, NULL);
    test_add(&list, "capacity_mode_needs_no_map", capacity_mode_needs_no_map, NULL);
    return test_run(&list, "bad_moe_permute_grad");
}
