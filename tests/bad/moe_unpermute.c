/*
 * moe_unpermute rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then pairs
 * of faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

enum { TOKENS = 6, EXPERTS = 5, HIDDEN = 7, ROWS = 12 };

static void make(struct test_call *c)
{
    sy_moe_unpermute_args *a = &c->args.unpermute;
    *c = (struct test_call){.op = "moe_unpermute", .first_output = 4};
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F32, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){ROWS});
    test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "probs", &a->probs, SY_F32, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "tokens", &a->tokens, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
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

static void the_number_of_tokens_is_unknown(struct test_call *c)
{
    drop(c, "probs");
    drop(c, "routing_map");
}

static void minus_one_token(struct test_call *c)
{
    c->args.unpermute.num_tokens = -1;
}

static void minus_one_token_alone(struct test_call *c)
{
    the_number_of_tokens_is_unknown(c);
    minus_one_token(c);
}

static void other_number_of_tokens(struct test_call *c)
{
    c->args.unpermute.num_tokens = TOKENS + 1;
}

static void other_number_than_the_map(struct test_call *c)
{
    drop(c, "probs");
    other_number_of_tokens(c);
}

static void five_tokens(struct test_call *c)
{
    the_number_of_tokens_is_unknown(c);
    c->args.unpermute.num_tokens = 5;
}

static void capacity_mode(struct test_call *c)
{
    c->args.unpermute.drop_and_pad = true;
}

static void seven_tokens_capacity(struct test_call *c)
{
    the_number_of_tokens_is_unknown(c);
    capacity_mode(c);
    c->args.unpermute.num_tokens = 7;
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

static void one_expert_too_many(struct test_call *c)
{
    test_call_tensor(c, "routing_map")->mem[4 * EXPERTS] = 1;
}

/* Sizes that exist only on paper; validated by the query, which has no data. */
static void paper(struct test_call *c, int64_t tokens, int64_t experts, int64_t rows, int64_t hidden)
{
    memcpy(test_call_tensor(c, "permuted_tokens")->shape, (int64_t[]){rows, hidden}, 16);
    test_call_tensor(c, "sorted_indices")->shape[0] = rows;
    memcpy(test_call_tensor(c, "routing_map")->shape, (int64_t[]){tokens, experts}, 16);
    memcpy(test_call_tensor(c, "probs")->shape, (int64_t[]){tokens, experts}, 16);
}

static void too_many_tokens(struct test_call *c)
{
    paper(c, 2147483648, 1, 0, 1);
}

static void too_many_tokens_by_number(struct test_call *c)
{
    paper(c, 0, 0, 0, 1);
    the_number_of_tokens_is_unknown(c);
    c->args.unpermute.num_tokens = INT64_MAX;
}

static void too_many_experts(struct test_call *c)
{
    paper(c, 1, 2147483648, 0, 1);
}

static void too_many_rows(struct test_call *c)
{
    paper(c, 1, 1, 2147483648, 1);
}

static void too_many_elements(struct test_call *c)
{
    paper(c, 1, 1, 0, 2147483648);
}

static void index_bytes_overflow(struct test_call *c)
{
    static int64_t strides[] = {INT64_MAX / 4, 1};
    test_call_tensor(c, "permuted_tokens")->t.strides = strides;
}

static void output_bytes_overflow(struct test_call *c)
{
    paper(c, 2147483647, 0, 0, 2147483647);
}

static const struct rejection rows[] = {
    {"probs without routing_map", NO_TENSOR("routing_map"), .query = true},

    {"nothing tells the number of tokens",
     BAD_CALL(the_number_of_tokens_is_unknown, SY_ERR_NULL, "num_tokens", "0", "number of tokens"),
     .query = true},

    {"sorted_indices one short", BAD_EXTENT("sorted_indices", 0, 11, "11", "12"), .query = true},
    {"routing_map with fewer tokens", BAD_EXTENT("routing_map", 0, 4, "[4,5]", "[6,5]"), .query = true},
    {"routing_map with more experts", BAD_EXTENT("routing_map", 1, 9, "[6,9]", "[6,5]"), .query = true},

    {"num_tokens -1", BAD_CALL(minus_one_token, SY_ERR_VALUE, "num_tokens", "-1", "0"), .query = true},
    {"num_tokens -1 alone", BAD_CALL(minus_one_token_alone, SY_ERR_VALUE, "num_tokens", "-1", "0"),
     .query = true},
    {"num_tokens unlike probs",
     BAD_CALL(other_number_of_tokens, SY_ERR_VALUE, "num_tokens", "7", "6, the rows of probs"),
     .query = true},
    {"num_tokens unlike routing_map",
     BAD_CALL(other_number_than_the_map, SY_ERR_VALUE, "num_tokens", "7", "6, the rows of routing_map"),
     .query = true},
    {"rows that do not divide by the tokens",
     BAD_CALL(five_tokens, SY_ERR_SHAPE, "sorted_indices", "12", "multiple of 5"), .query = true},
    {"rows that do not divide by the experts",
     BAD_CALL(capacity_mode, SY_ERR_SHAPE, "sorted_indices", "12", "multiple of 5"), .query = true},
    {"permuted_tokens with an overflowing stride",
     BAD_CALL(index_bytes_overflow, SY_ERR_OVERFLOW, "permuted_tokens", NULL, "2^63"), .query = true},

    {"tokens one row short", BAD_EXTENT("tokens", 0, 5, "[5,7]", "[6,7]")},
    {"tokens one row long", BAD_EXTENT("tokens", 0, 7, "[7,7]", "[6,7]")},
    {"tokens one column short", BAD_EXTENT("tokens", 1, 6, "[6,6]", "[6,7]")},
    {"tokens of another number", BAD_CALL(seven_tokens_capacity, SY_ERR_SHAPE, "tokens", "[6,7]", "[7,7]")},

    {"permuted_tokens with inner stride 2", BAD_STRIDE("permuted_tokens", 1, 2, "2", "contiguous"),
     .query = true},
    {"permuted_tokens with overlapping rows", BAD_STRIDE("permuted_tokens", 0, 6, "6", "7"), .query = true},
    {"permuted_tokens with rows going backwards", BAD_STRIDE("permuted_tokens", 0, -7, "-7", "7"),
     .query = true},
    {"sorted_indices with stride 2", BAD_STRIDE("sorted_indices", 0, 2, "2", "contiguous"), .query = true},
    {"routing_map with overlapping rows", BAD_STRIDE("routing_map", 0, 4, "4", "5"), .query = true},
    {"probs with inner stride 3", BAD_STRIDE("probs", 1, 3, "3", "contiguous"), .query = true},
    {"tokens with overlapping rows", BAD_STRIDE("tokens", 0, 6, "6", "7")},
    {"tokens with inner stride 0", BAD_STRIDE("tokens", 1, 0, "0", "contiguous")},

    {"an index past the rows", BAD_CALL(index_too_large, SY_ERR_ROUTING, "sorted_indices", "12 at 7", "11")},
    {"an index below -1", BAD_CALL(index_too_small, SY_ERR_ROUTING, "sorted_indices", "-2 at 7", "-1")},
    {"a token with a slot too many",
     BAD_CALL(one_slot_too_many, SY_ERR_ROUTING, "routing_map", "token 3 to 1 experts", "2")},
    {"a token with an expert too many",
     BAD_CALL(one_expert_too_many, SY_ERR_ROUTING, "routing_map", "token 4 to 2 experts", "1")},
};

static const struct rejection paper_rows[] = {
    {"2^31 tokens", BAD_CALL(too_many_tokens, SY_ERR_VALUE, "probs", "2147483648", "2147483647")},
    {"2^63-1 tokens", BAD_CALL(too_many_tokens_by_number, SY_ERR_VALUE, "num_tokens", NULL, "2147483647")},
    {"2^31 experts", BAD_CALL(too_many_experts, SY_ERR_VALUE, "probs", "2147483648", "2147483647")},
    {"2^31 rows", BAD_CALL(too_many_rows, SY_ERR_VALUE, "permuted_tokens", "2147483648", "2147483647")},
    {"2^31 elements in a row",
     BAD_CALL(too_many_elements, SY_ERR_VALUE, "permuted_tokens", "2147483648", "2147483647")},
    {"output of 2^64 bytes", BAD_CALL(output_bytes_overflow, SY_ERR_OVERFLOW, "tokens", NULL, "2^63")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("sorted_indices")},
    {"dtype", BAD_TYPE("tokens", kDLInt, 32, 1)},
    {"rank", BAD_RANK("sorted_indices", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("routing_map", 1, 9, NULL, NULL)},
    {"value", BAD_CALL(minus_one_token, SY_ERR_VALUE, "num_tokens", NULL, NULL)},
    {"output shape", BAD_EXTENT("tokens", 0, 5, NULL, NULL)},
    {"stride", BAD_STRIDE("probs", 0, 4, NULL, NULL)},
    {"device", BAD_DEVICE("permuted_tokens", kDLCUDA)},
    {"alias", BAD_OVER("tokens", "permuted_tokens", 0)},
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
    assert_int_equal(sy_moe_unpermute(NULL, &c.args.unpermute), SY_ERR_NULL);
    assert_int_equal(sy_moe_unpermute(ctx, NULL), SY_ERR_NULL);
    assert_string_not_equal(sy_ctx_error(ctx), "");
    assert_int_equal(sy_moe_unpermute_query(NULL, &c.args.unpermute, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_unpermute_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_unpermute_query(ctx, &c.args.unpermute, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_moe_unpermute(ctx, &c.args.unpermute), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void probs_over_rows(struct test_call *c)
{
    test_call_tensor(c, "probs")->t.data = test_call_tensor(c, "permuted_tokens")->mem + 4;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, probs_over_rows);
}

/* In capacity mode the map is only looked at for its shape. */
static void no_map_in_capacity_mode(struct test_call *c)
{
    drop(c, "routing_map");
    capacity_mode(c);
    test_call_tensor(c, "permuted_tokens")->shape[0] = 10;
    test_call_tensor(c, "sorted_indices")->shape[0] = 10;
    for (int i = 0; i < 10; i++)
        set_index(c, i, i % TOKENS);
}

static void capacity_probs_need_no_map(void **state)
{
    (void)state;
    test_accepts(make, no_map_in_capacity_mode);
}

/* A query of a good call: from shapes alone, at sizes no test could hold. */
static void query_answers_from_shapes(void **state)
{
    (void)state;
    int64_t y[] = {8 << 20, 7168}, i[] = {8 << 20}, m[] = {1 << 20, 256};
    const DLTensor rows_t = sy_tensor(NULL, SY_BF16, 2, y), index = sy_tensor(NULL, SY_I32, 1, i),
                   map = sy_tensor(NULL, SY_BOOL, 2, m), probs = sy_tensor(NULL, SY_F32, 2, m);
    sy_moe_unpermute_args args = {
        .permuted_tokens = &rows_t, .sorted_indices = &index, .routing_map = &map, .probs = &probs};
    sy_query q;
    sy_ctx *ctx = test_ctx(2, NULL);
    expect_status(ctx, sy_moe_unpermute_query(ctx, &args, &q), SY_OK);
    assert_int_equal(q.rows, 1 << 20);
    assert_true(q.workspace_bytes < 4096); /* packed: a few words per thread and slot */
    args.drop_and_pad = true;
    expect_status(ctx, sy_moe_unpermute_query(ctx, &args, &q), SY_OK);
    assert_int_equal(q.rows, 1 << 20);
    assert_true(q.workspace_bytes < (8 << 20) * 16); /* capacity: three words per row, never a share of H */
    sy_ctx_destroy(ctx);
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
    test_add(&list, "capacity_probs_need_no_map", capacity_probs_need_no_map, NULL);
    test_add(&list, "query_answers_from_shapes", query_answers_from_shapes, NULL);
    return test_run(&list, "bad_moe_unpermute");
}
