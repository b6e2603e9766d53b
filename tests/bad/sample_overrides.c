/*
 * sample_overrides rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Wrong
 * contents and most shapes stand in tests/examples/sample_overrides.txt.
 */
#include "support.h"

enum { BATCH = 2, VOCAB = 8, PROMPT = 3, OUTPUT = 4, BIASES = 2, MOST = PROMPT + OUTPUT + BIASES };

static void put(struct tensor *x, const void *data)
{
    memcpy(x->mem, data, x->bytes);
}

static void make(struct test_call *c)
{
    sy_sample_overrides_args *a = &c->args.overrides;
    static const int64_t ends[] = {BATCH + 1}, prompt[] = {PROMPT}, out[] = {OUTPUT}, biases[] = {BIASES},
                         rows[] = {BATCH}, room[] = {MOST};
    static const float penalties[] = {1.5f, .5f};
    *c = (struct test_call){.op = "sample_overrides", .first_output = 11};
    struct tensor *logits = test_call_add(c, "logits", &a->logits, SY_F32, 2, (int64_t[]){BATCH, VOCAB});
    for (int i = 0; i < BATCH * VOCAB; i++)
        memcpy(logits->mem + 4 * i, &(float){(float)(i % 5) - 2}, 4);
    put(test_call_add(c, "prompt_indptr", &a->prompt_indptr, SY_I64, 1, ends), (int64_t[]){0, 2, PROMPT});
    put(test_call_add(c, "prompt_token", &a->prompt_token, SY_I32, 1, prompt), (int32_t[]){7, 1, 0});
    put(test_call_add(c, "output_indptr", &a->output_indptr, SY_I32, 1, ends), (int32_t[]){0, 4, OUTPUT});
    put(test_call_add(c, "output_token", &a->output_token, SY_I64, 1, out), (int64_t[]){7, 7, 3, 2});
    put(test_call_add(c, "bias_indptr", &a->bias_indptr, SY_I64, 1, ends), (int64_t[]){0, 1, BIASES});
    put(test_call_add(c, "bias_token", &a->bias_token, SY_I32, 1, biases), (int32_t[]){4, 4});
    put(test_call_add(c, "bias", &a->bias, SY_F32, 1, biases), (float[]){-1, 2});
    put(test_call_add(c, "repetition_penalty", &a->repetition_penalty, SY_F32, 1, rows), penalties);
    put(test_call_add(c, "frequency_penalty", &a->frequency_penalty, SY_F32, 1, rows), penalties);
    put(test_call_add(c, "presence_penalty", &a->presence_penalty, SY_F32, 1, rows), penalties);
    test_call_add(c, "override_indptr", &a->override_indptr, SY_I64, 1, ends);
    test_call_add(c, "override_token", &a->override_token, SY_I32, 1, room);
    test_call_add(c, "override_logit", &a->override_logit, SY_F32, 1, room);
}

static void put_at(struct test_call *c, const char *name, int64_t i, int64_t value)
{
    struct tensor *x = test_call_tensor(c, name);
    memcpy(x->mem + (size_t)i * type_bytes(x->t.dtype), &value, type_bytes(x->t.dtype));
}

static void bias_token_v(struct test_call *c)
{
    put_at(c, "bias_token", 0, VOCAB);
}

/* The largest V is 2^23. */
static void vocabulary_too_large(struct test_call *c)
{
    c->tensors[0].shape[1] = (INT64_C(1) << 23) + 1;
}

static void output_too_long(struct test_call *c)
{
    test_call_tensor(c, "output_token")->shape[0] = (INT64_C(1) << 30) + 1;
}

/* More bytes than 63 bits can count, and every list as long. */
static void prompt_too_long(struct test_call *c)
{
    test_call_tensor(c, "prompt_token")->shape[0] = INT64_C(1) << 62;
}

static const struct rejection rows[] = {
    {"bias_indptr [1]", BAD_EXTENT("bias_indptr", 0, 1, "[1]", "[3]"), .query = true},

    {"V = 2^23 + 1", BAD_CALL(vocabulary_too_large, SY_ERR_OVERFLOW, "logits", "8388609", "8388608"),
     .query = true},
    {"an output too long to count",
     BAD_CALL(output_too_long, SY_ERR_OVERFLOW, "output_token", "1073741825", "1073741824"), .query = true},
    {"a list too long to count", BAD_CALL(prompt_too_long, SY_ERR_OVERFLOW, "prompt_token", NULL, NULL),
     .query = true},

    {"override_indptr too short", BAD_EXTENT("override_indptr", 0, BATCH, "[2]", "[3]")},
    {"override_logit too short", BAD_EXTENT("override_logit", 0, MOST - 1, "[8]", "[9]")},

    {"logits with element stride 2", BAD_STRIDE("logits", 1, 2, "2", NULL), .query = true},
    {"output_token with stride 2", BAD_STRIDE("output_token", 0, 2, "2", "contiguous"), .query = true},
    {"presence_penalty with stride -1", BAD_STRIDE("presence_penalty", 0, -1, "-1", NULL), .query = true},
    {"override_logit with stride 0", BAD_STRIDE("override_logit", 0, 0, "0", "contiguous")},
};

/* In the documented order. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("bias")},
    {"dtype", BAD_TYPE("prompt_token", kDLFloat, 16, 1)},
    {"rank", BAD_RANK("frequency_penalty", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("output_indptr", 0, BATCH, NULL, NULL)},
    {"overflow", BAD_CALL(vocabulary_too_large, SY_ERR_OVERFLOW, "logits", NULL, NULL)},
    {"output shape", BAD_EXTENT("override_indptr", 0, BATCH, NULL, NULL)},
    {"stride", BAD_STRIDE("output_token", 0, 3, NULL, NULL)},
    {"device", BAD_DEVICE("presence_penalty", kDLCUDA)},
    {"alias", BAD_OVER("override_token", "override_logit", 0)},
    {"contents", BAD_CALL(bias_token_v, SY_ERR_INDEX, "bias_token", NULL, NULL)},
};

static void missing_context_arguments_or_query(void **state)
{
    (void)state;
    struct test_call c;
    sy_query q;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&c);
    assert_int_equal(sy_sample_overrides(NULL, &c.args.overrides), SY_ERR_NULL);
    assert_int_equal(sy_sample_overrides(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_sample_overrides_query(NULL, &c.args.overrides, &q), SY_ERR_NULL);
    assert_int_equal(sy_sample_overrides_query(ctx, NULL, &q), SY_ERR_NULL);
    assert_int_equal(sy_sample_overrides_query(ctx, &c.args.overrides, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_sample_overrides(ctx, &c.args.overrides), SY_OK);
    test_call_free(&c);
    sy_ctx_destroy(ctx);
}

/* Lists that are given and empty need no data, and neither do results that can hold nothing. */
static void empty_lists(struct test_call *c)
{
    static const char *const names[] = {"prompt_token", "output_token",   "bias_token",
                                        "bias",         "override_token", "override_logit"};
    static const char *const ends[] = {"prompt_indptr", "output_indptr", "bias_indptr"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        test_call_tensor(c, names[i])->shape[0] = 0;
        test_call_tensor(c, names[i])->t.data = NULL;
    }
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        for (int64_t b = 0; b <= BATCH; b++)
            put_at(c, ends[i], b, 0);
}

static void empty_lists_need_no_data(void **state)
{
    (void)state;
    test_accepts(make, empty_lists);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "empty_lists_need_no_data", empty_lists_need_no_data, NULL);
    return test_run(&list, "bad_sample_overrides");
}
