/*
 * moe_permute rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then pairs
 * of faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

enum { TOKENS = 6, EXPERTS = 5, HIDDEN = 7, OUT_TOKENS = 12, ROWS = 12 };

static void make(struct test_call *c)
{
    sy_moe_permute_args *a = &c->args.permute;
    *c = (struct test_call){.op = "moe_permute", .first_output = 3};
    test_call_add(c, "tokens", &a->tokens, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    test_call_add(c, "routing_map", &a->routing_map, SY_BOOL, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "probs", &a->probs, SY_F32, 2, (int64_t[]){TOKENS, EXPERTS});
    test_call_add(c, "permuted_tokens", &a->permuted_tokens, SY_F32, 2, (int64_t[]){ROWS, HIDDEN});
    test_call_add(c, "sorted_indices", &a->sorted_indices, SY_I32, 1, (int64_t[]){ROWS});
    test_call_add(c, "permuted_probs", &a->permuted_probs, SY_F32, 1, (int64_t[]){ROWS});
    test_call_add(c, "expert_counts", &a->expert_counts, SY_I64, 1, (int64_t[]){EXPERTS});
    test_call_add(c, "expert_offsets", &a->expert_offsets, SY_I64, 1, (int64_t[]){EXPERTS + 1});
    for (int t = 0; t < TOKENS; t++)
        test_call_tensor(c, "routing_map")->mem[t * EXPERTS + t % EXPERTS] = 1;
    a->num_out_tokens = OUT_TOKENS;
}

/* Sizes that exist only on paper; validated by the query, which has no data. */
static void paper(struct test_call *c, int64_t tokens, int64_t experts, int64_t hidden, int64_t n)
{
    memcpy(test_call_tensor(c, "tokens")->shape, (int64_t[]){tokens, hidden}, 16);
    memcpy(test_call_tensor(c, "routing_map")->shape, (int64_t[]){tokens, experts}, 16);
    memcpy(test_call_tensor(c, "probs")->shape, (int64_t[]){tokens, experts}, 16);
    c->args.permute.num_out_tokens = n;
}

static void too_many_tokens(struct test_call *c)
{
    paper(c, 2147483648, 1, 1, 0);
}

static void too_many_experts(struct test_call *c)
{
    paper(c, 1, 2147483648, 1, 0);
}

static void too_many_elements(struct test_call *c)
{
    paper(c, 1, 1, 2147483648, 0);
}

static void too_many_rows(struct test_call *c)
{
    paper(c, 65536, 65536, 1, 2147483648);
}

static void too_many_rows_capacity(struct test_call *c)
{
    paper(c, 65536, 65536, 1, 2147483648);
    c->args.permute.drop_and_pad = true;
}

static void bytes_overflow(struct test_call *c)
{
    paper(c, 2147483647, 1, 2147483647, 0);
    test_call_tensor(c, "tokens")->t.dtype = SY_F64;
}

static void out_bytes_overflow(struct test_call *c)
{
    paper(c, 1, 2147483647, 2147483647, 2147483647);
    test_call_tensor(c, "tokens")->t.dtype = SY_F64;
}

static void overfull(struct test_call *c)
{
    unsigned char *map = test_call_tensor(c, "routing_map")->mem;
    memset(map + 4 * EXPERTS, 1, 3);
    memset(map + 5 * EXPERTS, 1, EXPERTS);
}

static const struct rejection rows[] = {
    {"permuted_probs without probs", NO_TENSOR("probs"), .blame = "probs|permuted_probs"},
    {"probs without permuted_probs", NO_TENSOR("permuted_probs"), .blame = "probs|permuted_probs"},

    {"tokens with inner stride 2", BAD_STRIDE("tokens", 1, 2, "2", "contiguous"), .query = true},
    {"tokens with inner stride -1", BAD_STRIDE("tokens", 1, -1, "-1", "contiguous"), .query = true},
    {"tokens with overlapping rows", BAD_STRIDE("tokens", 0, 6, "6", "7"), .query = true},
    {"tokens with rows going backwards", BAD_STRIDE("tokens", 0, -7, "-7", "7"), .query = true},
    {"tokens with the lowest row stride", BAD_STRIDE("tokens", 0, INT64_MIN, "-9223372036854775808", "7"),
     .query = true},
    {"tokens with row stride 0", BAD_STRIDE("tokens", 0, 0, "0", "7"), .query = true},
    {"routing_map with inner stride 2", BAD_STRIDE("routing_map", 1, 2, "2", "contiguous"), .query = true},
    {"routing_map with overlapping rows", BAD_STRIDE("routing_map", 0, 4, "4", "5"), .query = true},
    {"probs with inner stride 3", BAD_STRIDE("probs", 1, 3, "3", "contiguous"), .query = true},
    {"probs with overlapping rows", BAD_STRIDE("probs", 0, 4, "4", "5"), .query = true},
    {"permuted_tokens with inner stride 2", BAD_STRIDE("permuted_tokens", 1, 2, "2", "contiguous")},
    {"permuted_tokens with overlapping rows", BAD_STRIDE("permuted_tokens", 0, 6, "6", "7")},
    {"sorted_indices with stride 2", BAD_STRIDE("sorted_indices", 0, 2, "2", "contiguous")},
    {"permuted_probs with stride 2", BAD_STRIDE("permuted_probs", 0, 2, "2", "contiguous")},
    {"expert_counts with stride 2", BAD_STRIDE("expert_counts", 0, 2, "2", "contiguous")},
    {"expert_offsets with stride 0", BAD_STRIDE("expert_offsets", 0, 0, "0", "contiguous")},
};

static const struct rejection paper_rows[] = {
    {"2^31 tokens",
     BAD_CALL(too_many_tokens, SY_ERR_VALUE, "tokens|routing_map", "2147483648", "2147483647")},
    {"2^31 experts", BAD_CALL(too_many_experts, SY_ERR_VALUE, "routing_map", "2147483648", "2147483647")},
    {"2^31 elements in a row",
     BAD_CALL(too_many_elements, SY_ERR_VALUE, "tokens", "2147483648", "2147483647")},
    {"2^31 rows", BAD_CALL(too_many_rows, SY_ERR_VALUE, "num_out_tokens", "2147483648", NULL)},
    {"2^31 rows in capacity mode",
     BAD_CALL(too_many_rows_capacity, SY_ERR_VALUE, "num_out_tokens", "2147483648", NULL)},
    {"tokens of 2^65 bytes", BAD_CALL(bytes_overflow, SY_ERR_OVERFLOW, "tokens", NULL, NULL)},
    {"output of 2^65 bytes",
     BAD_CALL(out_bytes_overflow, SY_ERR_OVERFLOW, "permuted_tokens|num_out_tokens|tokens", NULL, NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("expert_offsets")},
    {"dtype", BAD_TYPE("permuted_probs", kDLInt, 32, 1)},
    {"rank", BAD_RANK("sorted_indices", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("probs", 1, 9, NULL, NULL)},
    {"value", BAD_FIELD("num_out_tokens", TOKENS *EXPERTS + 1, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"output shape", BAD_EXTENT("expert_counts", 0, 4, NULL, NULL)},
    {"stride", BAD_STRIDE("permuted_tokens", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("tokens", kDLCUDA)},
    {"alias", BAD_OVER("permuted_probs", "probs", 0)},
    {"contents", BAD_CALL(overfull, SY_ERR_ROUTING, "routing_map", NULL, NULL)},
};

/* ---- Calls without a context or arguments, and calls that are fine ------------------------------------------ */

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_moe_permute(NULL, &c.args.permute), SY_ERR_NULL);
    assert_int_equal(sy_moe_permute(ctx, NULL), SY_ERR_NULL);
    assert_string_not_equal(sy_ctx_error(ctx), "");
    assert_int_equal(sy_moe_permute_query(NULL, &c.args.permute, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_permute_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_permute_query(ctx, &c.args.permute, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_moe_permute(ctx, &c.args.permute), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void probs_over_tokens(struct test_call *c)
{
    test_call_tensor(c, "probs")->t.data = test_call_tensor(c, "tokens")->mem + 4;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, probs_over_tokens);
}

/* T = 1: its row stride, and the stride of arrays of one element, mean nothing. */
static void single_row_with_odd_strides(struct test_call *c)
{
    static int64_t strides[] = {0, 1}, stride[] = {-5};
    const char *const matrices[] = {"tokens", "routing_map", "probs", "permuted_tokens"};
    const char *const vectors[] = {"sorted_indices", "permuted_probs"};
    for (size_t i = 0; i < COUNT_OF(matrices); i++) {
        test_call_tensor(c, matrices[i])->shape[0] = 1;
        test_call_tensor(c, matrices[i])->t.strides = strides;
    }
    for (size_t i = 0; i < COUNT_OF(vectors); i++) {
        test_call_tensor(c, vectors[i])->shape[0] = 1;
        test_call_tensor(c, vectors[i])->t.strides = stride;
    }
    c->args.permute.num_out_tokens = 1;
}

static void strides_of_extent_one_mean_nothing(void **state)
{
    (void)state;
    test_accepts(make, single_row_with_odd_strides);
}

/* H = 0: nothing stands at data + byte_offset. */
static void rows_without_elements_far_away(struct test_call *c)
{
    struct tensor *tokens = test_call_tensor(c, "tokens"), *out = test_call_tensor(c, "permuted_tokens");
    tokens->shape[1] = out->shape[1] = 0;
    tokens->t.byte_offset = UINT64_MAX;
    out->t.byte_offset = UINT64_MAX / 2;
}

static void offset_of_an_empty_tensor_means_nothing(void **state)
{
    (void)state;
    test_accepts(make, rows_without_elements_far_away);
}

static void empty_tensors_may_have_no_data(void **state)
{
    (void)state;
    const char *const by_token[] = {"tokens",          "routing_map",    "probs",
                                    "permuted_tokens", "sorted_indices", "permuted_probs"};
    struct test_call c;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    struct tensor *tokens = test_call_tensor(&c, "tokens"), *out = test_call_tensor(&c, "permuted_tokens");
    tokens->shape[1] = out->shape[1] = 0;
    tokens->t.data = out->t.data = NULL;
    expect_status(ctx, sy_moe_permute(ctx, &c.args.permute), SY_OK);
    expect_bytes(test_call_tensor(&c, "sorted_indices")->mem,
                 ((const int32_t[ROWS]){0, -1, 2, -1, 3, -1, 4, -1, 5, -1, 1, -1}), 4 * ROWS);
    for (size_t i = 0; i < COUNT_OF(by_token); i++) {
        test_call_tensor(&c, by_token[i])->shape[0] = 0;
        test_call_tensor(&c, by_token[i])->t.data = NULL;
    }
    c.args.permute.num_out_tokens = 0;
    expect_status(ctx, sy_moe_permute(ctx, &c.args.permute), SY_OK);
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

/* A query of a good call: rows and slots in both modes, from shapes alone, at sizes no test could hold. */
static void query_answers_from_shapes(void **state)
{
    (void)state;
    int64_t x[] = {1 << 20, 7168}, m[] = {1 << 20, 256};
    const DLTensor tokens = sy_tensor(NULL, SY_BF16, 2, x), map = sy_tensor(NULL, SY_BOOL, 2, m);
    sy_moe_permute_args args = {.tokens = &tokens, .routing_map = &map, .num_out_tokens = 8 * (1 << 20) + 5};
    sy_query q;
    sy_ctx *ctx = test_ctx(2, NULL);
    expect_status(ctx, sy_moe_permute_query(ctx, &args, &q), SY_OK);
    assert_int_equal(q.rows, 8 * (1 << 20));
    assert_int_equal(q.slots, 8);
    args.drop_and_pad = true;
    expect_status(ctx, sy_moe_permute_query(ctx, &args, &q), SY_OK);
    assert_int_equal(q.rows, 8 * (1 << 20));
    assert_int_equal(q.slots, 32768);
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
    test_add(&list, "strides_of_extent_one_mean_nothing", strides_of_extent_one_mean_nothing, NULL);
    test_add(&list, "offset_of_an_empty_tensor_means_nothing", offset_of_an_empty_tensor_means_nothing, NULL);
    test_add(&list, "empty_tensors_may_have_no_data", empty_tensors_may_have_no_data, NULL);
    test_add(&list, "query_answers_from_shapes", query_answers_from_shapes, NULL);
    return test_run(&list, "bad_moe_permute");
}
