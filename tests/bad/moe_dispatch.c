/*
 * moe_dispatch rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then pairs
 * of faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

enum { SAMPLES = 9, EXPERTS = 4, CAPACITY = 3, SLOTS = 12, HIDDEN = 7 };

static void make(struct test_call *c)
{
    sy_moe_dispatch_args *a = &c->args.dispatch;
    *c = (struct test_call){.op = "moe_dispatch", .first_output = 4};
    test_call_add(c, "gates", &a->gates, SY_F32, 1, (int64_t[]){SAMPLES});
    test_call_add(c, "indices", &a->indices, SY_I32, 1, (int64_t[]){SAMPLES});
    test_call_add(c, "locations", &a->locations, SY_I32, 1, (int64_t[]){SAMPLES});
    test_call_add(c, "input", &a->input, SY_F32, 2, (int64_t[]){SAMPLES, HIDDEN});
    struct tensor *d = test_call_add(c, "dispatch", &a->dispatch, SY_F32, 2, (int64_t[]){SLOTS, HIDDEN});
    memset(d->mem, 0x3C, d->bytes);
    a->num_experts = EXPERTS;
    a->capacity = CAPACITY;
}

static void dispatch_bytes(struct test_call *c)
{
    c->args.dispatch.num_experts = INT64_C(1) << 31;
    c->args.dispatch.capacity = INT64_C(1) << 29;
}

static void input_bytes(struct test_call *c)
{
    const char *const all[] = {"gates", "indices", "locations", "input"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        test_call_tensor(c, all[i])->shape[0] = INT64_C(1) << 40;
    test_call_tensor(c, "input")->shape[1] = INT64_C(1) << 40;
}

/* No rows, but rows whose size alone does not fit. */
static void rows_of_2_to_the_64_bytes(struct test_call *c)
{
    const char *const all[] = {"gates", "indices", "locations", "input"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        test_call_tensor(c, all[i])->shape[0] = 0;
    test_call_tensor(c, "input")->shape[1] = INT64_C(1) << 62;
}

/* Same first byte, other row stride: not the in-place form. */
static void in_place_with_other_stride(struct test_call *c)
{
    struct tensor *input = test_call_tensor(c, "input"), *dispatch = test_call_tensor(c, "dispatch");
    input->t.data = dispatch->t.data;
    input->t.strides = input->strides;
    input->strides[0] = HIDDEN + 1;
}

static void in_place_one_row_later(struct test_call *c)
{
    test_call_tensor(c, "input")->t.data = test_call_tensor(c, "dispatch")->mem + HIDDEN * 4;
}

static const struct rejection rows[] = {
    {"dispatch one row long", BAD_EXTENT("dispatch", 0, 13, "[13,7]", "[12,7]")},
    {"dispatch one column long", BAD_EXTENT("dispatch", 1, 8, "[12,8]", "[12,7]")},

    {"gates with stride 2", BAD_STRIDE("gates", 0, 2, "2", "contiguous"), .query = true},
    {"indices with stride 2", BAD_STRIDE("indices", 0, 2, "2", "contiguous"), .query = true},
    {"locations with stride 0", BAD_STRIDE("locations", 0, 0, "0", "contiguous"), .query = true},
    {"input with inner stride 2", BAD_STRIDE("input", 1, 2, "2", "contiguous"), .query = true},
    {"input with overlapping rows", BAD_STRIDE("input", 0, 6, "6", "7"), .query = true},
    {"dispatch with inner stride -1", BAD_STRIDE("dispatch", 1, -1, "-1", "contiguous")},
    {"dispatch with overlapping rows", BAD_STRIDE("dispatch", 0, 5, "5", "7")},

    {"dispatch over input, one row apart",
     BAD_CALL(in_place_one_row_later, SY_ERR_ALIAS, "dispatch|input", NULL, NULL)},
    {"dispatch over input with another stride",
     BAD_CALL(in_place_with_other_stride, SY_ERR_ALIAS, "dispatch|input", NULL, NULL)},
};

static const struct rejection paper_rows[] = {
    {"dispatch of 2^65 bytes",
     BAD_CALL(dispatch_bytes, SY_ERR_OVERFLOW, "num_experts|capacity|dispatch|input", NULL, NULL)},
    {"no samples of 2^64 bytes each",
     BAD_CALL(rows_of_2_to_the_64_bytes, SY_ERR_OVERFLOW, "num_experts|capacity|dispatch|input", NULL, NULL)},
    {"input of 2^82 bytes", BAD_CALL(input_bytes, SY_ERR_OVERFLOW, "input", "1099511627776", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("locations")},
    {"dtype", BAD_TYPE("dispatch", kDLInt, 32, 1)},
    {"rank", BAD_RANK("gates", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("indices", 0, 8, NULL, NULL), .blame = "indices|input"},
    {"value", BAD_FIELD("capacity", -3, SY_ERR_VALUE, NULL, NULL, NULL)},
    {"overflow",
     BAD_FIELD("num_experts", INT64_C(1) << 62, SY_ERR_OVERFLOW, "num_experts|capacity", NULL, NULL)},
    {"output shape", BAD_EXTENT("dispatch", 1, 8, NULL, NULL)},
    {"stride", BAD_STRIDE("input", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("locations", kDLCUDA)},
    {"alias", BAD_OVER("gates", "dispatch", 0)},
};

/* ---- Calls without a context or arguments, and calls that are fine ------------------------------------------ */

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_moe_dispatch(NULL, &c.args.dispatch), SY_ERR_NULL);
    assert_int_equal(sy_moe_dispatch(ctx, NULL), SY_ERR_NULL);
    assert_string_not_equal(sy_ctx_error(ctx), "");
    assert_int_equal(sy_moe_dispatch_query(NULL, &c.args.dispatch, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_dispatch_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_dispatch_query(ctx, &c.args.dispatch, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_moe_dispatch(ctx, &c.args.dispatch), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void one_array_for_three(struct test_call *c)
{
    void *data = test_call_tensor(c, "input")->mem;
    test_call_tensor(c, "gates")->t.data = data;
    test_call_tensor(c, "indices")->t.data = data;
    test_call_tensor(c, "locations")->t.data = data;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, one_array_for_three);
}

/* The same first byte reached through another data pointer and offset is the in-place form. */
static void in_place_by_offset(struct test_call *c)
{
    struct tensor *input = test_call_tensor(c, "input"), *dispatch = test_call_tensor(c, "dispatch");
    input->t.data = dispatch->mem - 64;
    input->t.byte_offset = 64;
}

static void in_place_is_validated_by_the_first_byte(void **state)
{
    (void)state;
    test_accepts(make, in_place_by_offset);
}

static void query_answers_from_shapes(void **state)
{
    (void)state;
    int64_t s[] = {1 << 20}, x[] = {1 << 20, 4096};
    const DLTensor indices = sy_tensor(NULL, SY_I32, 1, s), locations = sy_tensor(NULL, SY_I32, 1, s),
                   input = sy_tensor(NULL, SY_BF16, 2, x);
    const sy_moe_dispatch_args args = {.indices = &indices,
                                       .locations = &locations,
                                       .input = &input,
                                       .num_experts = 256,
                                       .capacity = 10000000};
    sy_query q;
    sy_ctx *ctx = test_ctx(2, NULL);
    expect_status(ctx, sy_moe_dispatch_query(ctx, &args, &q), SY_OK);
    assert_true(q.rows == INT64_C(2560000000));
    assert_int_equal(q.slots, 0);
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
    test_add(&list, "in_place_is_validated_by_the_first_byte", in_place_is_validated_by_the_first_byte, NULL);
    test_add(&list, "query_answers_from_shapes", query_answers_from_shapes, NULL);
    return test_run(&list, "bad_moe_dispatch");
}
