/*
 * sample rejects: one valid call of all tensors, one spoiler per row, the status, the sentence and untouched outputs. Wrong
 * contents and most shapes and values stand in tests/examples/sample.txt.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample_case.h"

enum { BATCH = 3, VOCAB = 8, ELEMENTS = BATCH * VOCAB, OVERRIDES = 3, TOP = 4, SCORES = 2 };

static void make(struct test_call *c)
{
    sy_sample_args *a = &c->args.sample;
    static const int64_t table[] = {BATCH, VOCAB}, rows[] = {BATCH}, words[] = {BATCH, 1},
                         ends[] = {BATCH + 1}, overrides[] = {OVERRIDES}, top[] = {BATCH, TOP},
                         scores[] = {BATCH, SCORES};
    const struct {
        const char *name;
        const DLTensor **field;
    } numbers[] = {{"top_p", &a->top_p}, {"min_p", &a->min_p}, {"temperature", &a->temperature}},
      draws[] = {{"seed", &a->seed}, {"offset", &a->offset}, {"stream", &a->stream}};
    *c = (struct test_call){.op = "sample", .first_output = 15};
    struct tensor *logits = test_call_add(c, "logits", &a->logits, SY_F32, 2, table);
    struct tensor *q = test_call_add(c, "q", &a->q, SY_F32, 2, table);
    for (int i = 0; i < ELEMENTS; i++) {
        memcpy(logits->mem + 4 * i, &(float){(float)(i * 5 % 7)}, 4);
        memcpy(q->mem + 4 * i, &(float){1}, 4);
    }
    memcpy(test_call_add(c, "top_k", &a->top_k, SY_I32, 1, rows)->mem, (int32_t[]){5, 5, 5}, 12);
    for (int i = 0; i < 3; i++)
        memcpy(test_call_add(c, numbers[i].name, numbers[i].field, SY_F32, 1, rows)->mem,
               (float[]){.9f, .9f, .9f}, 12);
    for (int i = 0; i < 3; i++)
        memcpy(test_call_add(c, draws[i].name, draws[i].field, SY_I64, 1, rows)->mem, (int64_t[]){i, 1, 2},
               24);
    memcpy(test_call_add(c, "allow_bits", &a->allow_bits, SY_I32, 2, words)->mem, (int32_t[]){-1, -1, -9},
           12);
    memcpy(test_call_add(c, "override_indptr", &a->override_indptr, SY_I64, 1, ends)->mem,
           (int64_t[]){0, 2, 2, OVERRIDES}, 32);
    memcpy(test_call_add(c, "override_token", &a->override_token, SY_I32, 1, overrides)->mem,
           (int32_t[]){1, VOCAB - 1, 0}, 12);
    memcpy(test_call_add(c, "override_logit", &a->override_logit, SY_F32, 1, overrides)->mem,
           (float[]){2.5f, -1, -INFINITY}, 12);
    memcpy(test_call_add(c, "given_token", &a->given_token, SY_I32, 1, rows)->mem, (int32_t[]){-1, 3, -1},
           12);
    memcpy(test_call_add(c, "score_token", &a->score_token, SY_I64, 2, scores)->mem,
           (int64_t[]){-1, 7, 0, 1, 2, -1}, 48);
    test_call_add(c, "token", &a->token, SY_I64, 1, rows);
    test_call_add(c, "kept", &a->kept, SY_I32, 1, rows);
    test_call_add(c, "row_flags", &a->row_flags, SY_U32, 1, rows);
    test_call_add(c, "masked_logits", &a->masked_logits, SY_F32, 2, table);
    test_call_add(c, "list_token", &a->list_token, SY_I64, 2, table);
    test_call_add(c, "list_prob", &a->list_prob, SY_F32, 2, table);
    test_call_add(c, "logprob", &a->logprob, SY_F32, 1, rows);
    test_call_add(c, "rank", &a->rank, SY_I32, 1, rows);
    test_call_add(c, "top_token", &a->top_token, SY_I64, 2, top);
    test_call_add(c, "top_logprob", &a->top_logprob, SY_F32, 2, top);
    test_call_add(c, "score_logprob", &a->score_logprob, SY_F32, 2, scores);
    a->logprob_mode = SY_LOGPROB_FINAL;
    a->top_logprobs = TOP;
    a->eps = 1e-8f;
}

/* ---- Spoilers ---- */

static void no_outputs(struct test_call *c)
{
    for (int i = c->first_output; i < c->count; i++)
        *c->fields[i] = NULL;
}

static void eps_negative(struct test_call *c)
{
    c->args.sample.eps = -1;
}

#define SET(function, field, number) \
    static void function(struct test_call *c) \
    { \
        memcpy(&c->args.sample.field, &(int){number}, sizeof(int)); \
    }

SET(bad_noise, noise, 5)
SET(bad_q_order, q_order, 2)
SET(bad_ties, ties, 2)
SET(ties_below_the_first, ties, -1)
SET(bad_logprob_mode, logprob_mode, 3)
SET(bad_empty_token, empty_token, 2)

static void logprob_without_mode(struct test_call *c)
{
    c->args.sample.logprob_mode = SY_LOGPROB_NONE;
    c->args.sample.top_logprobs = 0;
    c->args.sample.score_token = c->args.sample.score_logprob = NULL;
}

#define WITHOUT(function, ...) \
    static void function(struct test_call *c) \
    { \
        static const char *const names[] = {__VA_ARGS__}; \
        for (size_t i = 0; i < COUNT_OF(names); i++) \
            for (int j = 0; j < c->count; j++) \
                if (strcmp(c->names[j], names[i]) == 0) \
                    *c->fields[j] = NULL; \
    }

#define SCORES_OUT "score_token", "score_logprob"
#define TOP_OUT "top_token", "top_logprob"
WITHOUT(mode_without_logprob, "logprob", "rank", TOP_OUT, SCORES_OUT)
WITHOUT(no_top_token, "top_token")
WITHOUT(no_top_logprob, "top_logprob")
WITHOUT(no_score_token, "score_token")
WITHOUT(no_score_logprob, "score_logprob")
WITHOUT(alone, "logprob", TOP_OUT, SCORES_OUT)
WITHOUT(only_top, "logprob", "rank", SCORES_OUT)
WITHOUT(only_scores, "logprob", "rank", TOP_OUT)

static void rank_without_mode(struct test_call *c)
{
    alone(c);
    logprob_without_mode(c);
}

static void top_without_mode(struct test_call *c)
{
    only_top(c);
    logprob_without_mode(c);
}

static void scores_without_mode(struct test_call *c)
{
    only_scores(c);
    c->args.sample.logprob_mode = SY_LOGPROB_NONE;
}

static void top_of_none(struct test_call *c)
{
    c->args.sample.top_logprobs = 0;
    test_call_tensor(c, "top_token")->shape[1] = test_call_tensor(c, "top_logprob")->shape[1] = 0;
}

static void top_of_more(struct test_call *c)
{
    c->args.sample.top_logprobs = 0;
    test_call_tensor(c, "top_token")->shape[1] = test_call_tensor(c, "top_logprob")->shape[1] = VOCAB + 1;
}

static void stated_otherwise(struct test_call *c)
{
    c->args.sample.top_logprobs = TOP + 1;
}

static void top_logprobs_negative(struct test_call *c)
{
    c->args.sample.top_logprobs = -1;
}

static void given_token_too_large(struct test_call *c)
{
    memcpy(test_call_tensor(c, "given_token")->mem + 8, &(int32_t){VOCAB}, 4);
}

static void score_token_too_small(struct test_call *c)
{
    memcpy(test_call_tensor(c, "score_token")->mem + 24, &(int64_t){INT64_MIN}, 8);
}

/* The largest V is 2^23. q and allow_bits would have to follow; leaving them out keeps the inputs consistent. */
static void huge_vocab(struct test_call *c)
{
    test_call_tensor(c, "logits")->shape[1] = (INT64_C(1) << 23) + 1;
    c->args.sample.q = c->args.sample.allow_bits = NULL;
}

/* ceil(V/32) has no overflow of its own. */
static void widest_vocab(struct test_call *c)
{
    test_call_tensor(c, "logits")->shape[1] = INT64_MAX;
    c->args.sample.q = NULL;
}

/* Nothing but logits and token, and more rows than memory has addresses for. */
static void huge_batch(struct test_call *c)
{
    struct tensor *logits = test_call_tensor(c, "logits"), *token = test_call_tensor(c, "token");
    c->args.sample = (sy_sample_args){.logits = &logits->t, .token = &token->t};
    logits->shape[0] = token->shape[0] = INT64_C(1) << 61;
}

static void half_logits(struct test_call *c)
{
    test_call_tensor(c, "logits")->t.dtype = SY_BF16;
    test_call_tensor(c, "top_p")->t.dtype = SY_F16;
}

/* The same base, but not the same elements. */
static void masked_over_half_logits(struct test_call *c)
{
    struct tensor *logits = test_call_tensor(c, "logits");
    logits->t.dtype = SY_BF16;
    test_call_tensor(c, "masked_logits")->t.data = logits->t.data;
}

/* The same base and another row stride, inside memory that could hold both. */
static void masked_over_logits_other_stride(struct test_call *c)
{
    struct tensor *masked = test_call_tensor(c, "masked_logits");
    c->args.sample.list_token = NULL;
    masked->t.data = test_call_tensor(c, "logits")->t.data = test_call_tensor(c, "list_token")->mem;
    masked->strides[0] = VOCAB + 1;
    masked->strides[1] = 1;
    masked->t.strides = masked->strides;
}

static void token_minus_seven(struct test_call *c)
{
    memcpy(test_call_tensor(c, "override_token")->mem, &(int32_t){-7}, 4);
}

#define VALUE(f, x, text) BAD_CALL(f, SY_ERR_VALUE, x, text, NULL), .query = true
#define ROW_SHAPES "[1], [3] or [3,1]"

static const struct rejection rows[] = {
    {"no output at all", BAD_CALL(no_outputs, SY_ERR_NULL, "token", "every other output", NULL)},
    {"top_p as f16 beside bf16 logits", BAD_CALL(half_logits, SY_ERR_DTYPE, "top_p", "f16", "f32 or bf16"),
     .query = true},

    {"top_k one too short", BAD_EXTENT("top_k", 0, 2, "[2]", ROW_SHAPES), .query = true},
    {"top_p empty", BAD_EXTENT("top_p", 0, 0, "[0]", ROW_SHAPES), .query = true},
    {"min_p too long", BAD_EXTENT("min_p", 0, 7, "[7]", ROW_SHAPES), .query = true},
    {"temperature too long", BAD_EXTENT("temperature", 0, 9, "[9]", ROW_SHAPES), .query = true},
    {"seed too short", BAD_EXTENT("seed", 0, 2, "[2]", ROW_SHAPES), .query = true},
    {"offset too short", BAD_EXTENT("offset", 0, 2, "[2]", ROW_SHAPES), .query = true},
    {"stream too long", BAD_EXTENT("stream", 0, 4, "[4]", ROW_SHAPES), .query = true},
    {"q one row short", BAD_EXTENT("q", 0, BATCH - 1, "[2,8]", "[3,8]"), .query = true},
    {"allow_bits of no word", BAD_EXTENT("allow_bits", 1, 0, "[3,0]", "[3,1]"), .query = true},
    {"allow_bits for the widest V",
     BAD_CALL(widest_vocab, SY_ERR_SHAPE, "allow_bits", "[3,1]", "[3,288230376151711744]"), .query = true},
    {"override_indptr [B+2]", BAD_EXTENT("override_indptr", 0, BATCH + 2, "[5]", "[4]"), .query = true},

    {"unknown noise", VALUE(bad_noise, "noise", "5")},
    {"unknown q_order", VALUE(bad_q_order, "q_order", "2")},
    {"unknown ties", VALUE(bad_ties, "ties", "2")},
    {"ties below the first", VALUE(ties_below_the_first, "ties", NULL)},
    {"unknown logprob_mode", VALUE(bad_logprob_mode, "logprob_mode", "3")},
    {"unknown empty_token", VALUE(bad_empty_token, "empty_token", "2")},
    {"logprob without its mode", BAD_CALL(logprob_without_mode, SY_ERR_VALUE, "logprob_mode",
                                          "the logprob output is given", "RAW or FINAL")},
    {"logprob_mode without its output", BAD_CALL(mode_without_logprob, SY_ERR_VALUE, "logprob_mode",
                                                 "the logprob output is missing", "or NONE")},

    {"rank without logprob_mode",
     BAD_CALL(rank_without_mode, SY_ERR_VALUE, "logprob_mode", "the rank output is given", "RAW or FINAL")},
    {"top_token without logprob_mode", BAD_CALL(top_without_mode, SY_ERR_VALUE, "logprob_mode",
                                                "the top_token output is given", "RAW or FINAL")},
    {"score_token without logprob_mode",
     BAD_CALL(scores_without_mode, SY_ERR_VALUE, "logprob_mode", "score_token is given", "RAW or FINAL")},
    {"top_logprobs negative", BAD_CALL(top_logprobs_negative, SY_ERR_VALUE, "top_logprobs", "-1", "0 to 8"),
     .query = true},

    {"top_logprob without top_token",
     BAD_CALL(no_top_token, SY_ERR_NULL, "top_token", "top_logprob is given", "both or none")},
    {"top_token without top_logprob",
     BAD_CALL(no_top_logprob, SY_ERR_NULL, "top_logprob", "top_token is given", "both or none")},
    {"score_logprob without score_token",
     BAD_CALL(no_score_token, SY_ERR_NULL, "score_token", "score_logprob is given", "both or none")},
    {"score_token without score_logprob",
     BAD_CALL(no_score_logprob, SY_ERR_NULL, "score_logprob", "score_token is given", "both or none")},

    {"given_token [B+1]", BAD_EXTENT("given_token", 0, BATCH + 1, "[4]", "[3,1]"), .query = true},
    {"score_token [B-1,S]", BAD_EXTENT("score_token", 0, BATCH - 1, "[2,2]", "[3,2]"), .query = true},
    {"top_token of no column", BAD_CALL(top_of_none, SY_ERR_SHAPE, "top_token", "0 columns", "1 to 8")},
    {"top_token of V + 1 columns", BAD_CALL(top_of_more, SY_ERR_SHAPE, "top_token", "9 columns", "1 to 8")},
    {"top_token of other columns than stated",
     BAD_CALL(stated_otherwise, SY_ERR_SHAPE, "top_token", "[3,4]", "[3,5]")},
    {"top_logprob of other columns", BAD_EXTENT("top_logprob", 1, TOP - 1, "[3,3]", "[3,4]")},
    {"score_logprob of other columns", BAD_EXTENT("score_logprob", 1, SCORES + 1, "[3,3]", "[3,2]")},
    {"rank [1]", BAD_EXTENT("rank", 0, 1, "[1]", "[3]")},
    {"top_logprob rows overlap", BAD_STRIDE("top_logprob", 0, TOP - 1, "3", NULL)},
    {"score_token with element stride 2", BAD_STRIDE("score_token", 1, 2, "2", NULL), .query = true},
    {"top_token over score_token", BAD_OVER("top_token", "score_token", 0)},
    {"rank over given_token", BAD_OVER("rank", "given_token", 0)},
    {"given_token too large", BAD_CALL(given_token_too_large, SY_ERR_INDEX, "given_token", "8", "below 8")},
    {"score_token too small",
     BAD_CALL(score_token_too_small, SY_ERR_INDEX, "score_token", "-9223372036854775808", "below 8")},

    {"V = 2^23 + 1", BAD_CALL(huge_vocab, SY_ERR_OVERFLOW, "logits", "8388609", "8388608"), .query = true},
    {"more bytes than addresses", BAD_CALL(huge_batch, SY_ERR_OVERFLOW, "logits|token", NULL, NULL),
     .query = true},

    {"kept one too short", BAD_EXTENT("kept", 0, BATCH - 1, "[2]", "[3]")},
    {"masked_logits [B,V+1]", BAD_EXTENT("masked_logits", 1, VOCAB + 1, "[3,9]", "[3,8]")},
    {"list_token [B,V-1]", BAD_EXTENT("list_token", 1, VOCAB - 1, "[3,7]", "[3,8]")},
    {"list_prob [B-1,V]", BAD_EXTENT("list_prob", 0, BATCH - 1, "[2,8]", "[3,8]")},
    {"logprob [1]", BAD_EXTENT("logprob", 0, 1, "[1]", "[3]")},

    {"logits with element stride 2", BAD_STRIDE("logits", 1, 2, "2", NULL), .query = true},
    {"logits rows overlap", BAD_STRIDE("logits", 0, VOCAB - 1, "7", NULL), .query = true},
    {"logits row stride 0", BAD_STRIDE("logits", 0, 0, "0", NULL), .query = true},
    {"q rows overlap", BAD_STRIDE("q", 0, VOCAB - 1, "7", NULL), .query = true},
    {"q with element stride 0", BAD_STRIDE("q", 1, 0, "0", NULL), .query = true},
    {"allow_bits rows overlap", BAD_STRIDE("allow_bits", 0, 0, "0", NULL), .query = true},
    {"override_indptr with stride 2", BAD_STRIDE("override_indptr", 0, 2, "2", NULL), .query = true},
    {"override_token with stride 0", BAD_STRIDE("override_token", 0, 0, "0", NULL), .query = true},
    {"override_logit with stride -1", BAD_STRIDE("override_logit", 0, -1, "-1", NULL), .query = true},
    {"top_k with stride -1", BAD_STRIDE("top_k", 0, -1, "-1", NULL), .query = true},
    {"token with stride 2", BAD_STRIDE("token", 0, 2, "2", NULL)},
    {"kept with stride 0", BAD_STRIDE("kept", 0, 0, "0", NULL)},
    {"masked_logits rows overlap", BAD_STRIDE("masked_logits", 0, VOCAB - 1, "7", NULL)},
    {"list_token with element stride 2", BAD_STRIDE("list_token", 1, 2, "2", NULL)},
    {"list_prob row stride 0", BAD_STRIDE("list_prob", 0, 0, "0", NULL)},

    {"token over logits", BAD_OVER("token", "logits", 0)},
    {"token over the end of q", BAD_OVER("token", "q", 4 * ELEMENTS - 1)},
    {"kept over row_flags", BAD_OVER("kept", "row_flags", 0)},
    {"list_prob over masked_logits", BAD_OVER("list_prob", "masked_logits", 0)},
    {"masked_logits over q", BAD_OVER("masked_logits", "q", 0)},
    {"masked_logits over logits, shifted", BAD_OVER("masked_logits", "logits", 4)},
    {"masked_logits over logits, one row on", BAD_OVER("masked_logits", "logits", VOCAB * 4)},
    {"masked_logits over bf16 logits",
     BAD_CALL(masked_over_half_logits, SY_ERR_ALIAS, "masked_logits", "logits", NULL)},
    {"masked_logits over logits, other stride",
     BAD_CALL(masked_over_logits_other_stride, SY_ERR_ALIAS, "masked_logits", "logits", NULL)},
};

/* In the documented order. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("kept")},
    {"dtype", BAD_TYPE("seed", kDLFloat, 32, 1)},
    {"rank", BAD_RANK("top_p", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("min_p", 0, 7, NULL, NULL)},
    {"value", BAD_CALL(eps_negative, SY_ERR_VALUE, "eps", NULL, NULL)},
    {"overflow", BAD_CALL(huge_vocab, SY_ERR_OVERFLOW, "logits", NULL, NULL)},
    {"output shape", BAD_EXTENT("row_flags", 0, BATCH + 1, NULL, NULL)},
    {"stride", BAD_STRIDE("list_token", 1, 2, NULL, NULL)},
    {"device", BAD_DEVICE("temperature", kDLCUDA)},
    {"alias", BAD_OVER("list_prob", "masked_logits", 0)},
    {"contents", BAD_CALL(token_minus_seven, SY_ERR_INDEX, "override_token", NULL, NULL)},
};

/* ---- Outside the table ---- */

static void null_pointers(void **state)
{
    (void)state;
    sy_query query;
    const sy_sample_args args = {0};
    sy_ctx *ctx = test_ctx(1, NULL);
    assert_int_equal(sy_sample(NULL, &args), SY_ERR_NULL);
    assert_int_equal(sy_sample(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_sample_query(NULL, &args, &query), SY_ERR_NULL);
    assert_int_equal(sy_sample_query(ctx, NULL, &query), SY_ERR_NULL);
    assert_int_equal(sy_sample_query(ctx, &args, NULL), SY_ERR_NULL);
    sy_ctx_destroy(ctx);
}

static void expect_rejected(struct sample_case *c, sy_ctx *ctx, sy_status want)
{
    unsigned char *old[SLOT_COUNT];
    for (int s = 0; s < SLOT_COUNT; s++)
        old[s] = tensor_snapshot(&c->slot[s]);
    expect_status(ctx, sy_sample(ctx, &c->args), want);
    for (int s = 0; s < SLOT_COUNT; s++) {
        tensor_expect_unchanged(&c->slot[s], old[s], sample_slot_name((enum sample_slot)s));
        free(old[s]);
    }
}

/* A lent workspace that is too small is a rejection like any other. */
static void workspace_too_small(void **state)
{
    (void)state;
    struct sample_case c;
    sy_query query = {0};
    if (test_on_device())
        skip_because("the memory that is lent is the CPU's");
    sy_ctx *ctx = test_ctx(1, NULL);
    uint64_t rng = 3;
    sample_open(&c, SY_F32, 1, 20000, NULL);
    sample_fill_row(&c, 0, KIND_NORMAL, &rng);
    sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_ONE);
    sample_put(&c, SLOT_TOP_P, 0, 0, .99);
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    expect_status(ctx, sy_sample_query(ctx, &c.args, &query), SY_OK);
    assert_true(query.workspace_bytes > 64);
    void *memory = buf_new(query.workspace_bytes, 0);
    assert_int_equal(sy_ctx_set_workspace(ctx, memory, query.workspace_bytes - 64), SY_OK);
    expect_rejected(&c, ctx, SY_ERR_NOMEM);
    assert_true(strncmp(sy_ctx_error(ctx), "sample: ", 8) == 0);
    assert_int_equal(sy_ctx_set_workspace(ctx, memory, query.workspace_bytes), SY_OK);
    sample_check(&c, ctx, NULL, "enough");
    sy_ctx_destroy(ctx);
    buf_free(memory);
    sample_close(&c);
}

/* V = 2^23 is the largest that passes; only the query can be asked without 32 MiB per row. */
static void largest_vocab_passes(void **state)
{
    (void)state;
    int64_t shape[] = {1000, (int64_t)1 << 23};
    DLTensor logits = sy_tensor(NULL, SY_BF16, 2, shape);
    const sy_sample_args args = {.logits = &logits};
    sy_query query = {0};
    sy_ctx *ctx = test_ctx(1, NULL);
    expect_status(ctx, sy_sample_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, 1000);
    shape[1]++;
    expect_status(ctx, sy_sample_query(ctx, &args, &query), SY_ERR_OVERFLOW);
    sy_ctx_destroy(ctx);
}

/* The first fault in order, in numbers, on any number of threads. */
static void the_first_wrong_override_is_named(void **state)
{
    (void)state;
    enum { ROWS = 40, EACH = 30, LONG = 2000 };
    for (int threads = 1; threads <= 8; threads++) {
        struct sample_case c;
        sy_fault fault;
        int64_t count[ROWS];
        uint64_t rng = 5;
        sy_ctx *ctx = test_ctx(threads, NULL);
        sample_open(&c, SY_BF16, ROWS, LONG, NULL);
        for (int b = 0; b < ROWS; b++) {
            sample_fill_row(&c, b, KIND_NORMAL, &rng);
            count[b] = EACH;
        }
        sample_add_overrides(&c, SY_I32, SY_I64, count, 3);
        for (int i = 0; i < ROWS * EACH; i++)
            sample_override(&c, 3 + i, i % EACH * 60, 1);
        sample_override(&c, 3 + 35 * EACH + 1, -5, 1);
        sample_override(&c, 3 + 7 * EACH + 4, 180, 1); /* as the one before it */
        sample_override(&c, 3 + 7 * EACH + 9, LONG, 1);
        sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
        expect_rejected(&c, ctx, SY_ERR_INDEX);
        assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
        assert_int_equal(fault.code, SY_FAULT_INDEX_ORDER);
        assert_string_equal(fault.argument, "override_token");
        assert_int_equal(fault.batch, 7);
        assert_int_equal(fault.position, 3 + 7 * EACH + 4);
        assert_int_equal(fault.value, 180);
        assert_int_equal(fault.limit, 180);
        sample_close(&c);
        sy_ctx_destroy(ctx);
    }
}

/* No other content ever causes an error, whatever the bits. */
static void other_contents_are_never_rejected(void **state)
{
    (void)state;
    uint64_t rng = 17;
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int i = 0; i < 300; i++) {
        struct sample_case c;
        sample_open(&c, SY_F32, BATCH, VOCAB, NULL);
        sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_B);
        for (int s = SLOT_TOP_P; s <= SLOT_TEMPERATURE; s++)
            sample_add_rows(&c, (enum sample_slot)s, SY_F32, ROWS_B);
        for (int s = SLOT_SEED; s <= SLOT_STREAM; s++)
            sample_add_rows(&c, (enum sample_slot)s, s == SLOT_STREAM ? SY_I32 : SY_I64, ROWS_B);
        sample_add_q(&c, NULL);
        sample_add_allow(&c, SY_I32, false, NULL);
        sample_add_overrides(&c, SY_I64, SY_I32, (int64_t[]){2, 0, 1}, 0);
        for (int64_t j = 0; j < OVERRIDES; j++)
            sample_override(&c, j, j == 1 ? VOCAB - 1 : 1 - j / 2, 0);
        for (int s = 0; s < SLOT_GIVEN_TOKEN; s++)
            if (s != SLOT_OVERRIDE_INDPTR && s != SLOT_OVERRIDE_TOKEN)
                rng_fill(&rng, c.slot[s].mem, c.slot[s].bytes);
        c.args.logprob_mode = SY_LOGPROB_FINAL;
        c.args.eps = 1e-8f;
        c.args.noise = (sy_noise)rng_below(&rng, 5);
        c.args.probs_in = rng_below(&rng, 2) != 0;
        sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
        sample_check(&c, ctx, NULL, "bits");
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    test_add(&list, "NULL context, arguments, query", null_pointers, NULL);
    test_add(&list, "lent workspace too small", workspace_too_small, NULL);
    test_add(&list, "V = 2^23 passes", largest_vocab_passes, NULL);
    test_add(&list, "the first wrong override is named", the_first_wrong_override_is_named, NULL);
    test_add(&list, "other contents are never rejected", other_contents_are_never_rejected, NULL);
    return test_run(&list, "bad_sample");
}
