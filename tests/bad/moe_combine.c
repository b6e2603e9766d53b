/*
 * moe_combine rejects: one valid call, one spoiler per row, the status, the sentence and an untouched output. Then pairs
 * of faults, of which the one that comes first in the documented order must win, and calls that look wrong but are not.
 */
#include "support.h"

enum { CHOICES = 2, SAMPLES = 9, EXPERTS = 4, CAPACITY = 3, SLOTS = 12, HIDDEN = 7 };

static void make(struct test_call *c)
{
    sy_moe_combine_args *a = &c->args.combine;
    *c = (struct test_call){.op = "moe_combine", .first_output = 4};
    test_call_add(c, "gates", &a->gates, SY_F32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "indices", &a->indices, SY_I32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "locations", &a->locations, SY_I32, 2, (int64_t[]){CHOICES, SAMPLES});
    test_call_add(c, "expert_out", &a->expert_out, SY_F32, 2, (int64_t[]){SLOTS, HIDDEN});
    test_call_add(c, "output", &a->output, SY_F32, 2, (int64_t[]){SAMPLES, HIDDEN});
    a->num_experts = EXPERTS;
    a->capacity = CAPACITY;
}

static void experts_minus_one(struct test_call *c)
{
    c->args.combine.num_experts = -1;
}

static void capacity_minus_three(struct test_call *c)
{
    c->args.combine.capacity = -3;
}

/* The product of two negative numbers would be the right number of rows. */
static void both_negative(struct test_call *c)
{
    c->args.combine.num_experts = -EXPERTS;
    c->args.combine.capacity = -CAPACITY;
}

static void product_past_int64(struct test_call *c)
{
    c->args.combine.num_experts = INT64_C(1) << 62;
    c->args.combine.capacity = 4;
}

/* 2^32 * 2^32 is 0 in 64 bits. */
static void product_wraps_to_zero(struct test_call *c)
{
    c->args.combine.num_experts = INT64_C(1) << 32;
    c->args.combine.capacity = INT64_C(1) << 32;
}

static void fewer_experts(struct test_call *c)
{
    c->args.combine.num_experts = EXPERTS - 1;
}

static void gates_f16_rows_bf16(struct test_call *c)
{
    test_call_tensor(c, "gates")->t.dtype = SY_F16;
    test_call_tensor(c, "expert_out")->t.dtype = SY_BF16;
    test_call_tensor(c, "output")->t.dtype = SY_BF16;
}

/* Every input can be counted, the output cannot. */
static void output_bytes(struct test_call *c)
{
    const char *const all[] = {"gates", "indices", "locations"};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        test_call_tensor(c, all[i])->shape[1] = INT64_C(1) << 40;
    test_call_tensor(c, "expert_out")->shape[0] = 0;
    test_call_tensor(c, "expert_out")->shape[1] = INT64_C(1) << 40;
    c->args.combine.capacity = 0;
}

static void slot_bytes(struct test_call *c)
{
    c->args.combine.num_experts = INT64_C(1) << 31;
    c->args.combine.capacity = INT64_C(1) << 29;
}

static const struct rejection rows[] = {
    {"gates as f16 for bf16 rows", BAD_CALL(gates_f16_rows_bf16, SY_ERR_DTYPE, "gates", NULL, NULL),
     .query = true},

    {"gates of rank 1", BAD_RANK("gates", 1, "[2]", "[2,9]"), .query = true},

    {"locations of rank 1", BAD_RANK("locations", 1, "[2]", "[2,9]"), .query = true},

    {"gates one sample short", BAD_EXTENT("gates", 1, 8, "[2,8]", "[2,9]"), .query = true},
    {"gates of one choice", BAD_EXTENT("gates", 0, 1, "[1,9]", "[2,9]"), .query = true},
    {"locations one sample long", BAD_EXTENT("locations", 1, 10, "[2,10]", "[2,9]"), .query = true},

    {"num_experts -1", BAD_CALL(experts_minus_one, SY_ERR_VALUE, "num_experts", "-1", "0"), .query = true},
    {"capacity -3", BAD_CALL(capacity_minus_three, SY_ERR_VALUE, "capacity", "-3", "0"), .query = true},
    {"num_experts and capacity negative",
     BAD_CALL(both_negative, SY_ERR_VALUE, "num_experts|capacity", "-", "0"), .query = true},
    {"num_experts * capacity past 2^63",
     BAD_CALL(product_past_int64, SY_ERR_OVERFLOW, "num_experts|capacity", "4611686018427387904", NULL),
     .query = true},
    {"num_experts * capacity of 2^64",
     BAD_CALL(product_wraps_to_zero, SY_ERR_OVERFLOW, "num_experts|capacity", "4294967296", NULL),
     .query = true},

    {"expert_out one row short", BAD_EXTENT("expert_out", 0, 11, "[11,7]", "[12,7]"), .query = true},
    {"expert_out for one expert more", BAD_CALL(fewer_experts, SY_ERR_SHAPE, "expert_out", "[12,7]", "[9,7]"),
     .query = true},
    {"output one row long", BAD_EXTENT("output", 0, 10, "[10,7]", "[9,7]")},
    {"output one column short", BAD_EXTENT("output", 1, 6, "[9,6]", "[9,7]")},

    {"gates with inner stride 2", BAD_STRIDE("gates", 1, 2, "2", "contiguous"), .query = true},
    {"indices with overlapping rows", BAD_STRIDE("indices", 0, 8, "8", "9"), .query = true},
    {"locations with inner stride 0", BAD_STRIDE("locations", 1, 0, "0", "contiguous"), .query = true},
    {"expert_out with overlapping rows", BAD_STRIDE("expert_out", 0, 6, "6", "7"), .query = true},
    {"output with inner stride -1", BAD_STRIDE("output", 1, -1, "-1", "contiguous")},
    {"output with overlapping rows", BAD_STRIDE("output", 0, 5, "5", "7")},
};

static const struct rejection paper_rows[] = {
    {"output of 2^82 bytes",
     BAD_CALL(output_bytes, SY_ERR_OVERFLOW, "indices", "1099511627776 samples", "2^63")},
    {"slots of 2^65 bytes", BAD_CALL(slot_bytes, SY_ERR_OVERFLOW, "num_experts|capacity", NULL, NULL)},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("locations")},
    {"dtype", BAD_TYPE("output", kDLInt, 32, 1)},
    {"rank", BAD_RANK("indices", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("gates", 1, 8, NULL, NULL)},
    {"value", BAD_CALL(experts_minus_one, SY_ERR_VALUE, "num_experts", NULL, NULL)},
    {"overflow", BAD_CALL(product_past_int64, SY_ERR_OVERFLOW, "num_experts|capacity", NULL, NULL)},
    {"output shape", BAD_EXTENT("output", 1, 8, NULL, NULL)},
    {"stride", BAD_STRIDE("expert_out", 0, 6, NULL, NULL)},
    {"device", BAD_DEVICE("locations", kDLCUDA)},
    {"alias", BAD_OVER("gates", "output", 0)},
};

/* Together with every later fault, the earlier one is reported. */
static void wins(void **state)
{
    const struct rejection *first = *state;
    for (const struct rejection *later = first + 1; later < ladder + COUNT_OF(ladder); later++) {
        struct rejection both = *first;
        if (strcmp(first->name, "value") == 0 && strcmp(later->name, "overflow") == 0)
            continue; /* both spoil num_experts */
        both.second = later->spoil;
        check_rejection(make, &both);
    }
}

/* ---- Calls without a context or arguments, and calls that are fine ------------------------------------------ */

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_moe_combine(NULL, &c.args.combine), SY_ERR_NULL);
    assert_int_equal(sy_moe_combine(ctx, NULL), SY_ERR_NULL);
    assert_string_not_equal(sy_ctx_error(ctx), "");
    assert_int_equal(sy_moe_combine_query(NULL, &c.args.combine, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_combine_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_moe_combine_query(ctx, &c.args.combine, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_moe_combine(ctx, &c.args.combine), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void one_array_for_four(struct test_call *c)
{
    void *data = test_call_tensor(c, "expert_out")->mem;
    test_call_tensor(c, "gates")->t.data = data;
    test_call_tensor(c, "indices")->t.data = data;
    test_call_tensor(c, "locations")->t.data = data;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, one_array_for_four);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_query_rejections(&list, make, paper_rows, COUNT_OF(paper_rows));
    for (size_t i = 0; i + 1 < COUNT_OF(ladder); i++)
        test_add(&list, test_name("%s is told before all later faults", ladder[i].name), wins,
                 (void *)&ladder[i]);
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    return test_run(&list, "bad_moe_combine");
}
