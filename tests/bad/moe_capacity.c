/*
 * moe_capacity rejects: one valid call, one spoiler per row, the status, the sentence and an untouched output. Then pairs
 * of faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

#include <math.h>

enum { EXPERTS = 4 };

static void make(struct test_call *c)
{
    sy_moe_capacity_args *a = &c->args.capacity;
    *c = (struct test_call){.op = "moe_capacity", .first_output = 1};
    test_call_add(c, "counts", &a->counts, SY_I64, 1, (int64_t[]){EXPERTS});
    test_call_add(c, "capacity", &a->capacity, SY_I64, 1, (int64_t[]){1});
    a->samples = 100;
    a->num_experts = EXPERTS;
    a->k = 2;
    a->factor = -1.25;
    a->alignment = 4;
}

static void samples_minus_one(struct test_call *c)
{
    c->args.capacity.samples = -1;
}

static void no_experts(struct test_call *c)
{
    c->args.capacity.num_experts = 0;
}

static void experts_minus_four(struct test_call *c)
{
    c->args.capacity.num_experts = -4;
}

static void k_minus_two(struct test_call *c)
{
    c->args.capacity.k = -2;
}

static void factor_nan(struct test_call *c)
{
    c->args.capacity.factor = NAN;
}

static void factor_inf(struct test_call *c)
{
    c->args.capacity.factor = INFINITY;
}

static void factor_minus_inf(struct test_call *c)
{
    c->args.capacity.factor = -INFINITY;
}

static void alignment_minus_four(struct test_call *c)
{
    c->args.capacity.alignment = -4;
}

static void five_experts(struct test_call *c)
{
    c->args.capacity.num_experts = 5;
}

static void huge_share(struct test_call *c)
{
    c->args.capacity.factor = 1e18;
}

static void demand(struct test_call *c, int64_t value)
{
    memcpy(test_call_tensor(c, "counts")->mem + 16, &value, 8);
}

static void count_minus_one(struct test_call *c)
{
    demand(c, -1);
}

static void count_int64_min(struct test_call *c)
{
    demand(c, INT64_MIN);
}

static void count_past_alignment(struct test_call *c)
{
    c->args.capacity.factor = 0;
    demand(c, INT64_MAX);
}

static void positive_factor(struct test_call *c)
{
    c->args.capacity.factor = 1;
}

static const struct rejection rows[] = {
    {"no counts", NO_TENSOR("counts"), .query = true},

    {"counts one short", BAD_EXTENT("counts", 0, 3, "[3]", "[4]"), .query = true},
    {"counts for one expert less", BAD_CALL(five_experts, SY_ERR_SHAPE, "counts", "[4]", "[5]"),
     .query = true},

    {"samples -1", BAD_CALL(samples_minus_one, SY_ERR_VALUE, "samples", "-1", "0"), .query = true},
    {"num_experts 0", BAD_CALL(no_experts, SY_ERR_VALUE, "num_experts", "0", "1 or more"), .query = true},
    {"num_experts -4", BAD_CALL(experts_minus_four, SY_ERR_VALUE, "num_experts", "-4", "1 or more"),
     .query = true},
    {"k -2", BAD_CALL(k_minus_two, SY_ERR_VALUE, "k", "-2", "0 or more"), .query = true},
    {"factor NaN", BAD_CALL(factor_nan, SY_ERR_VALUE, "factor", "nan", "finite"), .query = true},
    {"factor inf", BAD_CALL(factor_inf, SY_ERR_VALUE, "factor", "inf", "finite"), .query = true},
    {"factor -inf", BAD_CALL(factor_minus_inf, SY_ERR_VALUE, "factor", "-inf", "finite"), .query = true},
    {"alignment -4", BAD_CALL(alignment_minus_four, SY_ERR_VALUE, "alignment", "-4", "0 or more"),
     .query = true},

    {"a share past 2^63", BAD_CALL(huge_share, SY_ERR_OVERFLOW, "factor", "1e+18", "2^63"), .query = true},

    {"capacity of two elements", BAD_EXTENT("capacity", 0, 2, "[2]", "[1]")},
    {"capacity of none", BAD_EXTENT("capacity", 0, 0, "[0]", "[1]")},

    {"counts with stride 2", BAD_STRIDE("counts", 0, 2, "2", "contiguous"), .query = true},

    {"a count of -1", BAD_CALL(count_minus_one, SY_ERR_INDEX, "counts", "-1 for expert 2", "0 or more")},
    {"a count of INT64_MIN", BAD_CALL(count_int64_min, SY_ERR_INDEX, "counts", "-9223372036854775808", NULL)},
    {"demand that cannot be aligned",
     BAD_CALL(count_past_alignment, SY_ERR_OVERFLOW, "alignment", "9223372036854775807", "2^63")},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_SHAPE("capacity")},
    {"dtype", BAD_TYPE("counts", kDLFloat, 32, 1)},
    {"rank", BAD_RANK("capacity", 2, NULL, NULL)},
    {"input shape", BAD_EXTENT("counts", 0, 3, NULL, NULL)},
    {"value", BAD_CALL(k_minus_two, SY_ERR_VALUE, "k", NULL, NULL)},
    {"overflow", BAD_CALL(huge_share, SY_ERR_OVERFLOW, "factor", NULL, NULL)},
    {"output shape", BAD_EXTENT("capacity", 0, 3, NULL, NULL)},
    {"stride", BAD_STRIDE("counts", 0, 3, NULL, NULL)},
    {"device", BAD_DEVICE("capacity", kDLCUDA)},
    {"alias", BAD_OVER("capacity", "counts", 0)},
};

static void the_first_negative_count_is_reported(void **state)
{
    (void)state;
    struct test_call c;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    memcpy(c.tensors[0].mem, (int64_t[]){5, 6, -3, -8}, 32);
    expect_status(ctx, sy_moe_capacity(ctx, &c.args.capacity), SY_ERR_INDEX);
    expect_fault(ctx, SY_FAULT_LENGTH_RANGE, -1, 2, -3, 0);
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_moe_capacity(NULL, &c.args.capacity), SY_ERR_NULL);
    assert_int_equal(sy_moe_capacity(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_moe_capacity_query(NULL, &c.args.capacity, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_capacity_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_capacity_query(ctx, &c.args.capacity, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_moe_capacity(ctx, &c.args.capacity), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

/* With a positive factor the counts are shape and type only. */
static void unread_counts(struct test_call *c)
{
    positive_factor(c);
    demand(c, -1);
}

static void counts_that_are_not_read_may_hold_anything(void **state)
{
    (void)state;
    test_accepts(make, unread_counts);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "the_first_negative_count_is_reported", the_first_negative_count_is_reported, NULL);
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "counts_that_are_not_read_may_hold_anything", counts_that_are_not_read_may_hold_anything,
             NULL);
    return test_run(&list, "bad_moe_capacity");
}
