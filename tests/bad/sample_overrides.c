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

/* A second call: rows of drafts, sequences and min_tokens. */
enum {
    ROWS = 3,
    N = BATCH * ROWS,
    SEQS = 2,
    STOPS = 1,
    MOST_OF_DRAFTS = ROWS * OUTPUT + N * (ROWS + STOPS + SEQS)
};

static void make_drafts(struct test_call *c)
{
    sy_sample_overrides_args *a = &c->args.overrides;
    static const int64_t ends[] = {BATCH + 1}, out[] = {OUTPUT}, n_rows[] = {N}, row_ends[] = {N + 1},
                         seq_ends[] = {SEQS + 1}, seqs[] = {SEQS}, tokens[] = {3}, one[] = {1},
                         room[] = {MOST_OF_DRAFTS};
    *c = (struct test_call){.op = "sample_overrides", .first_output = 13};
    struct tensor *logits = test_call_add(c, "logits", &a->logits, SY_F32, 2, (int64_t[]){N, VOCAB});
    memset(logits->mem, 0, logits->bytes);
    put(test_call_add(c, "output_indptr", &a->output_indptr, SY_I32, 1, ends), (int32_t[]){0, 4, OUTPUT});
    put(test_call_add(c, "output_token", &a->output_token, SY_I64, 1, out), (int64_t[]){7, 7, 3, 2});
    put(test_call_add(c, "cu_lens", &a->cu_lens, SY_I64, 1, ends), (int64_t[]){0, ROWS, N});
    put(test_call_add(c, "draft_token", &a->draft_token, SY_I32, 1, n_rows), (int32_t[]){0, 1, 2, 0, 3, -1});
    put(test_call_add(c, "parent", &a->parent, SY_I32, 1, n_rows), (int32_t[]){0, 0, 1, 0, 0, 0});
    put(test_call_add(c, "seq_indptr", &a->seq_indptr, SY_I32, 1, seq_ends), (int32_t[]){0, 2, 3});
    put(test_call_add(c, "seq_token", &a->seq_token, SY_I32, 1, tokens), (int32_t[]){2, 5, 6});
    put(test_call_add(c, "seq_row_indptr", &a->seq_row_indptr, SY_I64, 1, ends), (int64_t[]){0, 2, 2});
    put(test_call_add(c, "seq_bias", &a->seq_bias, SY_F32, 1, seqs), (float[]){1, 2});
    put(test_call_add(c, "min_tokens", &a->min_tokens, SY_I64, 1, one), (int64_t[]){5});
    put(test_call_add(c, "stop_token", &a->stop_token, SY_I32, 1, one), (int32_t[]){0});
    put(test_call_add(c, "stop_indptr", &a->stop_indptr, SY_I32, 1, ends), (int32_t[]){0, 1, 1});
    test_call_add(c, "override_indptr", &a->override_indptr, SY_I64, 1, row_ends);
    test_call_add(c, "override_token", &a->override_token, SY_I32, 1, room);
    test_call_add(c, "override_logit", &a->override_logit, SY_F32, 1, room);
    a->max_rows = ROWS;
}

static void no_drafts(struct test_call *c)
{
    c->args.overrides.draft_token = NULL;
}

static void no_cu_lens(struct test_call *c)
{
    c->args.overrides.cu_lens = NULL;
}

static void no_sequences(struct test_call *c)
{
    c->args.overrides.seq_indptr = c->args.overrides.seq_token = NULL;
}

static void part_of_sequences(struct test_call *c)
{
    c->args.overrides.seq_indptr = NULL;
}

static void no_stop_token(struct test_call *c)
{
    c->args.overrides.stop_token = NULL;
}

static void only_ends_of_stops(struct test_call *c)
{
    c->args.overrides.stop_token = c->args.overrides.min_tokens = NULL;
}

static void only_parents(struct test_call *c)
{
    c->args.overrides.draft_token = c->args.overrides.cu_lens = NULL;
}

static void no_output(struct test_call *c)
{
    c->args.overrides.output_indptr = c->args.overrides.output_token = NULL;
}

static void a_batch_without_drafts(struct test_call *c)
{
    struct tensor *logits = &c->tensors[0];
    c->args.overrides.draft_token = c->args.overrides.cu_lens = c->args.overrides.parent = NULL;
    logits->t.ndim = 3;
    logits->shape[0] = BATCH;
    logits->shape[1] = ROWS;
    logits->shape[2] = VOCAB;
}

static void too_many_tokens(struct test_call *c, const char *name)
{
    test_call_tensor(c, name)->shape[0] = (INT64_C(1) << 30) + 1;
}

static void sequences_too_long(struct test_call *c)
{
    too_many_tokens(c, "seq_token");
}

static void too_many_stops(struct test_call *c)
{
    too_many_tokens(c, "stop_token");
}

static const struct rejection draft_rows[] = {
    {"cu_lens without drafts", BAD_CALL(no_drafts, SY_ERR_NULL, "draft_token", "cu_lens", "both"),
     .query = true},
    {"drafts without cu_lens", BAD_CALL(no_cu_lens, SY_ERR_NULL, "cu_lens", "rank 2", NULL), .query = true},
    {"rank 3 without drafts", BAD_CALL(a_batch_without_drafts, SY_ERR_NULL, "draft_token", "rank 3", NULL),
     .query = true},
    {"seq_bias without sequences", BAD_CALL(no_sequences, SY_ERR_NULL, "seq_token", "missing", "both"),
     .query = true},
    {"seq_token without seq_indptr",
     BAD_CALL(part_of_sequences, SY_ERR_NULL, "seq_indptr", "seq_token", NULL), .query = true},
    {"min_tokens without stop_token",
     BAD_CALL(no_stop_token, SY_ERR_NULL, "stop_token", "min_tokens", "both"), .query = true},
    {"stop_indptr without stop_token",
     BAD_CALL(only_ends_of_stops, SY_ERR_NULL, "stop_token", "stop_indptr", "both"), .query = true},
    {"parents without drafts", BAD_CALL(only_parents, SY_ERR_NULL, "draft_token", "parent", "both"),
     .query = true},
    {"min_tokens without output", BAD_CALL(no_output, SY_ERR_NULL, "output_token", "min_tokens", "both"),
     .query = true},

    {"cu_lens [0]", BAD_EXTENT("cu_lens", 0, 0, "[0]", "an entry for each request"), .query = true},
    {"draft_token [5]", BAD_EXTENT("draft_token", 0, N - 1, "[5]", "[6]"), .query = true},
    {"parent [5]", BAD_EXTENT("parent", 0, N - 1, "[5]", "[6]"), .query = true},
    {"seq_indptr [0]", BAD_EXTENT("seq_indptr", 0, 0, "[0]", "an entry for each sequence"), .query = true},
    {"seq_bias [3]", BAD_EXTENT("seq_bias", 0, 3, "[3]", "[2]"), .query = true},
    {"seq_row_indptr [2]", BAD_EXTENT("seq_row_indptr", 0, 2, "[2]", "[3]"), .query = true},
    {"stop_indptr [2]", BAD_EXTENT("stop_indptr", 0, 2, "[2]", "[3]"), .query = true},
    {"min_tokens [3]", BAD_EXTENT("min_tokens", 0, 3, "[3]", "[1], [2] or [2,1]"), .query = true},

    {"history_scope 2", BAD_FIELD("history_scope", 2, SY_ERR_VALUE, "history_scope", "2", "ALL, OUTPUT"),
     .query = true},
    {"max_rows -1", BAD_FIELD("max_rows", -1, SY_ERR_VALUE, "max_rows", "-1", "1 or more"), .query = true},

    {"max_rows 2^30 + 1",
     BAD_FIELD("max_rows", (INT64_C(1) << 30) + 1, SY_ERR_OVERFLOW, "max_rows", "1073741825", "1073741824"),
     .query = true},
    {"sequences too long",
     BAD_CALL(sequences_too_long, SY_ERR_OVERFLOW, "seq_token", "1073741825", "1073741824"), .query = true},
    {"too many stop tokens",
     BAD_CALL(too_many_stops, SY_ERR_OVERFLOW, "stop_token", "1073741825", "1073741824"), .query = true},

    {"override_indptr [6]", BAD_EXTENT("override_indptr", 0, N, "[6]", "[7]")},
    {"override_token too short", BAD_EXTENT("override_token", 0, MOST_OF_DRAFTS - 1, "[47]", "[48] or more")},
};

static const struct rejection draft_ladder[] = {
    {"null", NO_DATA("seq_bias")},
    {"dtype", BAD_TYPE("draft_token", kDLFloat, 16, 1)},
    {"input shape", BAD_EXTENT("seq_row_indptr", 0, BATCH, NULL, NULL)},
    {"values", BAD_FIELD("max_rows", 0, SY_ERR_VALUE, "max_rows", NULL, NULL)},
    {"overflow", BAD_CALL(vocabulary_too_large, SY_ERR_OVERFLOW, "logits", NULL, NULL)},
    {"output shape", BAD_EXTENT("override_indptr", 0, N, NULL, NULL)},
    {"sequences of requests", BAD_NUMBER("seq_row_indptr", 1, SEQS + 1, SY_ERR_INDEX, NULL, NULL)},
    {"ends of sequences", BAD_NUMBER("seq_indptr", 1, 0, SY_ERR_INDEX, NULL, NULL)},
    {"tokens of sequences", BAD_NUMBER("seq_token", 0, VOCAB, SY_ERR_INDEX, NULL, NULL)},
    {"ends of stop tokens", BAD_NUMBER("stop_indptr", 1, STOPS + 1, SY_ERR_INDEX, NULL, NULL)},
    {"stop tokens", BAD_NUMBER("stop_token", 0, VOCAB, SY_ERR_INDEX, NULL, NULL)},
    {"rows of requests", BAD_NUMBER("cu_lens", 1, N + 1, SY_ERR_INDEX, NULL, NULL)},
    {"parents", BAD_NUMBER("parent", 1, 1, SY_ERR_INDEX, NULL, NULL)},
    {"drafts", BAD_NUMBER("draft_token", 1, VOCAB, SY_ERR_INDEX, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add_described(&list, make_drafts);
    test_add_rejections(&list, make_drafts, draft_rows, COUNT_OF(draft_rows));
    test_add_ladder(&list, make_drafts, draft_ladder, COUNT_OF(draft_ladder));
    test_add(&list, "missing_context_arguments_or_query", missing_context_arguments_or_query, NULL);
    test_add(&list, "empty_lists_need_no_data", empty_lists_need_no_data, NULL);
    return test_run(&list, "bad_sample_overrides");
}
