/*
 * moe_locations rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Then pairs
 * of faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

enum { CHOICES = 2, SAMPLES = 9, EXPERTS = 4 };

static void make(struct test_call *c)
{
    sy_moe_locations_args *a = &c->args.locations;
    *c = (struct test_call){.op = "moe_locations", .first_output = 2};
    test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "importance", &a->importance, SY_F32, 1, (int64_t[]){SAMPLES});
    test_call_add(c, "locations", &a->locations, SY_I32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "counts", &a->counts, SY_I64, 1, (int64_t[]){EXPERTS});
    a->num_experts = EXPERTS;
}

static void experts_minus_one(struct test_call *c)
{
    c->args.locations.num_experts = -1;
}

static void one_expert_more(struct test_call *c)
{
    c->args.locations.num_experts = EXPERTS + 1;
}

static void samples_of(struct test_call *c, int64_t choices, int64_t samples)
{
    test_call_tensor(c, "indices")->shape[0] = choices;
    test_call_tensor(c, "indices")->shape[1] = samples;
    test_call_tensor(c, "importance")->shape[0] = samples;
}

/* Each dimension fits 31 bits, the product is 2^31. */
static void one_location_past_int32(struct test_call *c)
{
    samples_of(c, 1 << 15, 1 << 16);
}

static void bytes_past_int64(struct test_call *c)
{
    samples_of(c, INT64_C(1) << 31, INT64_C(1) << 31);
}

static const struct rejection rows[] = {
    {"locations of rank 1", BAD_RANK("locations", 1, "[2]", "[2,9]")},

    {"locations one choice short", BAD_EXTENT("locations", 0, 1, "[1,9]", "[2,9]")},
    {"counts of one expert less", BAD_CALL(one_expert_more, SY_ERR_SHAPE, "counts", "[4]", "[5]")},

    {"indices with inner stride 2", BAD_STRIDE("indices", 1, 2, "2", "contiguous"), .query = true},
    {"indices with overlapping rows", BAD_STRIDE("indices", 0, 8, "8", "9"), .query = true},
    {"importance with stride 0", BAD_STRIDE("importance", 0, 0, "0", "contiguous"), .query = true},
    {"locations with inner stride -1", BAD_STRIDE("locations", 1, -1, "-1", "contiguous")},
    {"locations with overlapping rows", BAD_STRIDE("locations", 0, 5, "5", "9")},
    {"counts with stride 2", BAD_STRIDE("counts", 0, 2, "2", "contiguous")},
};

static const struct rejection paper_rows[] = {
    {"2^31 locations",
     BAD_CALL(one_location_past_int32, SY_ERR_OVERFLOW, "indices", "2147483648", "2147483647")},
    {"indices of 2^64 bytes", BAD_CALL(bytes_past_int64, SY_ERR_OVERFLOW, "indices", "2147483648", NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("importance")},
    {"dtype", BAD_TYPE("locations", kDLFloat, 32, 1)},
    {"rank", BAD_RANK("counts", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("importance", 0, 8, NULL, NULL)},
    {"value", BAD_CALL(experts_minus_one, SY_ERR_VALUE, "num_experts", NULL, NULL)},
    {"output shape", BAD_EXTENT("locations", 1, 8, NULL, NULL)},
    {"stride", BAD_STRIDE("indices", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("importance", kDLCUDA)},
    {"alias", BAD_OVER("counts", "indices", 0)},
};

/* ---- Calls without a context or arguments, and calls that are fine ------------------------------------------ */

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_moe_locations(NULL, &c.args.locations), SY_ERR_NULL);
    assert_int_equal(sy_moe_locations(ctx, NULL), SY_ERR_NULL);
    assert_string_not_equal(sy_ctx_error(ctx), "");
    assert_int_equal(sy_moe_locations_query(NULL, &c.args.locations, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_locations_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_locations_query(ctx, &c.args.locations, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_moe_locations(ctx, &c.args.locations), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void one_array_for_both(struct test_call *c)
{
    test_call_tensor(c, "importance")->t.data = test_call_tensor(c, "indices")->mem;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, one_array_for_both);
}

/* The most a call may have: one entry less than the first that is rejected. */
static void query_answers_from_shapes(void **state)
{
    (void)state;
    int64_t shape[] = {1, INT32_MAX};
    const DLTensor indices = sy_tensor(NULL, SY_I32, 2, shape);
    sy_query q;
    sy_ctx *ctx = test_ctx(2, NULL);
    expect_status(
        ctx, sy_moe_locations_query(ctx, &(sy_moe_locations_args){.indices = &indices, .num_experts = 8}, &q),
        SY_OK);
    assert_true(q.rows == INT32_MAX);
    assert_int_equal(q.slots, 0);
    assert_in_range(q.workspace_bytes, 1, 4096);
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
    test_add(&list, "query_answers_from_shapes", query_answers_from_shapes, NULL);
    return test_run(&list, "bad_moe_locations");
}
