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

static void the_number_of_tokens_is_unknown(struct test_call *c)
{
    c->args.unpermute.probs = NULL;
    c->args.unpermute.routing_map = NULL;
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
    {"permuted_tokens with an overflowing stride",
     BAD_CALL(index_bytes_overflow, SY_ERR_OVERFLOW, "permuted_tokens", NULL, "2^63"), .query = true},

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
    {"value", BAD_FIELD("num_tokens", -1, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("tokens", 0, 5, NULL, NULL)},
    {"stride", BAD_STRIDE("probs", 0, 4, NULL, NULL)},
    {"device", BAD_DEVICE("permuted_tokens", kDLCUDA)},
    {"alias", BAD_OVER("tokens", "permuted_tokens", 0)},
    {"contents", BAD_NUMBER("sorted_indices", 7, ROWS, SY_ERR_ROUTING, NULL, NULL)},
};

/* ---- Calls that are fine -------------------------------------------------------------------------------------- */

static void probs_over_rows(struct test_call *c)
{
    test_call_tensor(c, "probs")->t.data = test_call_tensor(c, "permuted_tokens")->mem + 4;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, probs_over_rows);
}

static void rows_without_elements(struct test_call *c)
{
    struct tensor *rows_in = test_call_tensor(c, "permuted_tokens"), *out = test_call_tensor(c, "tokens");
    rows_in->shape[1] = out->shape[1] = 0;
    rows_in->t.data = out->t.data = NULL;
}

static void empty_tensors_may_have_no_data(void **state)
{
    (void)state;
    test_accepts(make, rows_without_elements);
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
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    test_add(&list, "empty_tensors_may_have_no_data", empty_tensors_may_have_no_data, NULL);
    test_add(&list, "query_answers_from_shapes", query_answers_from_shapes, NULL);
    return test_run(&list, "bad_moe_unpermute");
}
