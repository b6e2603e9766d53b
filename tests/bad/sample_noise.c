/*
 * sample_noise rejects: one valid call, one spoiler per row, the status, the sentence and an untouched output. Wrong lengths
 * stand in tests/examples/sample_noise.txt.
 */
#include "support.h"

enum { TOKENS = 9 };

static void make(struct test_call *c)
{
    sy_sample_noise_args *a = &c->args.noise;
    *c = (struct test_call){.op = "sample_noise"};
    test_call_add(c, "q", &a->q, SY_F32, 1, (int64_t[]){TOKENS});
    a->seed = 5;
    a->n = TOKENS;
}

static void n_minus_one(struct test_call *c)
{
    c->args.noise.n = -1;
}

static const struct rejection rows[] = {
    {"q with stride 2", BAD_STRIDE("q", 0, 2, "2", "contiguous")},
    {"q with stride -1", BAD_STRIDE("q", 0, -1, "-1", "contiguous")},
};

/* In the documented order; n and q can be wrong at once. */
static const struct rejection ladder[] = {
    {"dtype", BAD_TYPE("q", kDLFloat, 16, 1)},
    {"value", BAD_CALL(n_minus_one, SY_ERR_VALUE, "n", NULL, NULL)},
    {"output shape", BAD_EXTENT("q", 0, TOKENS + 1, NULL, NULL)},
    {"stride", BAD_STRIDE("q", 0, 3, NULL, NULL)},
    {"device", BAD_DEVICE("q", kDLCUDA)},
};

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_sample_noise(NULL, &c.args.noise), SY_ERR_NULL);
    assert_int_equal(sy_sample_noise(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_sample_noise_query(NULL, &c.args.noise, &q), SY_ERR_NULL);
    assert_int_equal(sy_sample_noise_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_sample_noise_query(ctx, &c.args.noise, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_sample_noise(ctx, &c.args.noise), SY_OK);
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

static void no_data(struct test_call *c)
{
    c->args.noise.n = 0;
    c->tensors[0].shape[0] = 0;
    c->tensors[0].t.data = NULL;
}

static void no_tokens_need_no_data(void **state)
{
    (void)state;
    test_accepts(make, no_data);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "no_tokens_need_no_data", no_tokens_need_no_data, NULL);
    return test_run(&list, "bad_sample_noise");
}
