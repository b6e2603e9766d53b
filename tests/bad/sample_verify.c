/*
 * sample_verify rejects: one valid call, one spoiler per row, the status, the sentence and untouched outputs. Wrong contents
 * stand in tests/examples/sample_verify.txt.
 */
#include "support.h"

enum { REQUESTS = 2, ROWS = 3, VOCAB = 8, N = REQUESTS * ROWS, OVERRIDES = 2, STOPS = 1, TOP = 2 };

static void put(struct tensor *x, const void *data)
{
    memcpy(x->mem, data, x->bytes);
}

static void make_parameters(struct test_call *c)
{
    sy_sample_verify_args *a = &c->args.verify;
    static const int64_t per[] = {REQUESTS};
    put(test_call_add(c, "temperature", &a->temperature, SY_F32, 1, per), (float[]){1, 0});
    put(test_call_add(c, "top_k", &a->top_k, SY_I32, 1, per), (int32_t[]){3, 0});
    put(test_call_add(c, "top_p", &a->top_p, SY_F32, 1, per), (float[]){.5f, 1});
    put(test_call_add(c, "min_p", &a->min_p, SY_F32, 1, per), (float[]){0, .1f});
    put(test_call_add(c, "seed", &a->seed, SY_I64, 1, per), (int64_t[]){1, 2});
    put(test_call_add(c, "offset", &a->offset, SY_I64, 1, per), (int64_t[]){3, 4});
    put(test_call_add(c, "stream", &a->stream, SY_I64, 1, per), (int64_t[]){5, 6});
}

static void make_outputs(struct test_call *c)
{
    sy_sample_verify_args *a = &c->args.verify;
    static const int64_t per[] = {REQUESTS}, slots[] = {N}, top[] = {N, TOP};
    a->logprob_mode = SY_LOGPROB_RAW;
    a->top_logprobs = TOP;
    test_call_add(c, "accepted", &a->accepted, SY_I32, 1, per);
    test_call_add(c, "count", &a->count, SY_I32, 1, per);
    test_call_add(c, "token", &a->token, SY_I64, 1, slots);
    test_call_add(c, "next_token", &a->next_token, SY_I64, 1, per);
    test_call_add(c, "path", &a->path, SY_I32, 1, slots);
    test_call_add(c, "accept_mask", &a->accept_mask, SY_U8, 1, slots);
    test_call_add(c, "row_flags", &a->row_flags, SY_U32, 1, slots);
    test_call_add(c, "logprob", &a->logprob, SY_F32, 1, slots);
    test_call_add(c, "rank", &a->rank, SY_I32, 1, slots);
    test_call_add(c, "top_token", &a->top_token, SY_I64, 2, top);
    test_call_add(c, "top_logprob", &a->top_logprob, SY_F32, 2, top);
}

static void make(struct test_call *c)
{
    sy_sample_verify_args *a = &c->args.verify;
    static const int64_t ends[] = {REQUESTS + 1}, rows[] = {N}, row_ends[] = {N + 1}, stops[] = {STOPS},
                         n[] = {OVERRIDES};
    *c = (struct test_call){.op = "sample_verify", .first_output = 17};
    struct tensor *logits = test_call_add(c, "logits", &a->logits, SY_F32, 2, (int64_t[]){N, VOCAB});
    for (int i = 0; i < N * VOCAB; i++)
        memcpy(logits->mem + 4 * i, &(float){(float)(i * 7 % 5) - 2}, 4);
    put(test_call_add(c, "cu_lens", &a->cu_lens, SY_I32, 1, ends), (int32_t[]){0, ROWS, N});
    put(test_call_add(c, "draft_token", &a->draft_token, SY_I64, 1, rows), (int64_t[]){0, 1, 2, 0, 3, 4});
    put(test_call_add(c, "parent", &a->parent, SY_I32, 1, rows), (int32_t[]){0, 0, 1, 0, 0, 0});
    make_parameters(c);
    struct tensor *bits = test_call_add(c, "allow_bits", &a->allow_bits, SY_U32, 2, (int64_t[]){N, 1});
    memset(bits->mem, 255, bits->bytes);
    put(test_call_add(c, "override_indptr", &a->override_indptr, SY_I64, 1, row_ends),
        (int64_t[]){0, 1, 1, 2, 2, 2, 2});
    put(test_call_add(c, "override_token", &a->override_token, SY_I32, 1, n), (int32_t[]){3, 4});
    put(test_call_add(c, "override_logit", &a->override_logit, SY_F32, 1, n), (float[]){1, 2});
    put(test_call_add(c, "stop_token", &a->stop_token, SY_I32, 1, stops), (int32_t[]){7});
    put(test_call_add(c, "stop_indptr", &a->stop_indptr, SY_I64, 1, ends), (int64_t[]){0, 1, 1});
    make_outputs(c);
}

static void nothing_asked(struct test_call *c)
{
    for (int i = c->first_output; i < c->count; i++)
        *c->fields[i] = NULL;
}

static void no_stop_token(struct test_call *c)
{
    c->args.verify.stop_token = NULL;
}

static void part_of_overrides(struct test_call *c)
{
    c->args.verify.override_token = NULL;
}

static void no_seed(struct test_call *c)
{
    c->args.verify.seed = NULL;
    c->args.verify.noise = SY_NOISE_CDF;
}

static void top_without_logprobs(struct test_call *c)
{
    c->args.verify.top_logprobs = 0;
    c->args.verify.logprob_mode = SY_LOGPROB_NONE;
}

static void logprobs_without_outputs(struct test_call *c)
{
    sy_sample_verify_args *a = &c->args.verify;
    a->logprob = a->rank = a->top_token = a->top_logprob = NULL;
    a->top_logprobs = 0;
}

static void no_columns(struct test_call *c)
{
    c->args.verify.top_logprobs = 0;
    test_call_tensor(c, "top_token")->shape[1] = 0;
}

static void columns_past_v(struct test_call *c)
{
    c->args.verify.top_logprobs = 0;
    test_call_tensor(c, "top_token")->shape[1] = VOCAB + 1;
}

static void vocabulary_too_large(struct test_call *c)
{
    c->tensors[0].shape[1] = (INT64_C(1) << 23) + 1;
    test_call_tensor(c, "allow_bits")->shape[1] = (INT64_C(1) << 18) + 1;
}

static void too_many(struct test_call *c, int64_t each)
{
    sy_sample_verify_args *a = &c->args.verify;
    struct tensor *logits = &c->tensors[0], *draft = test_call_tensor(c, "draft_token");
    a->cu_lens = a->parent = a->allow_bits = a->override_indptr = a->override_token = a->override_logit =
        NULL;
    logits->t.ndim = 3;
    logits->shape[0] = draft->shape[0] = REQUESTS;
    logits->shape[1] = draft->shape[1] = each;
    logits->shape[2] = VOCAB;
    draft->t.ndim = 2;
}

/* [2,2^30,8] */
static void rows_past_int32(struct test_call *c)
{
    too_many(c, 1 << 30);
}

/* A batch whose rows cannot be counted: [2,2^62,8]. */
static void too_many_rows(struct test_call *c)
{
    too_many(c, INT64_C(1) << 62);
}

/* A batch of requests without a row: [2^40,0,8], of no memory. */
static void too_many_requests(struct test_call *c)
{
    too_many_rows(c);
    for (int i = 0; i < c->first_output; i++)
        if (c->fields[i] != &c->args.verify.logits && c->fields[i] != &c->args.verify.draft_token)
            *c->fields[i] = NULL;
    struct tensor *logits = &c->tensors[0], *draft = test_call_tensor(c, "draft_token");
    logits->shape[0] = draft->shape[0] = INT64_C(1) << 40;
    logits->shape[1] = draft->shape[1] = 0;
}

static const struct rejection rows[] = {
    {"no output", BAD_CALL(nothing_asked, SY_ERR_NULL, "token", "missing", "at least one")},
    {"stop_indptr alone", BAD_CALL(no_stop_token, SY_ERR_NULL, "stop_token", "stop_indptr", "both"),
     .query = true},
    {"two of the overrides",
     BAD_CALL(part_of_overrides, SY_ERR_NULL, "override_token", "missing", "all three"), .query = true},

    {"no vocabulary", BAD_EXTENT("logits", 1, 0, "0 tokens", "at least 1"), .query = true},
    {"cu_lens [0]", BAD_EXTENT("cu_lens", 0, 0, "[0]", "an entry for each request"), .query = true},
    {"draft_token [5]", BAD_EXTENT("draft_token", 0, N - 1, "[5]", "[6]"), .query = true},
    {"parent [5]", BAD_EXTENT("parent", 0, N - 1, "[5]", "[6]"), .query = true},
    {"top_k [3]", BAD_EXTENT("top_k", 0, 3, "[3]", "[1], [2] or [2,1]"), .query = true},
    {"allow_bits [5,1]", BAD_EXTENT("allow_bits", 0, N - 1, "[5,1]", "[6,1]"), .query = true},
    {"override_indptr [6]", BAD_EXTENT("override_indptr", 0, N, "[6]", "[7]"), .query = true},
    {"stop_indptr [2]", BAD_EXTENT("stop_indptr", 0, REQUESTS, "[2]", "[3]"), .query = true},

    {"mode reject", BAD_FIELD("mode", SY_VERIFY_REJECT, SY_ERR_UNSUPPORTED, "mode", "REJECT", "MATCH"),
     .query = true},
    {"mode 2", BAD_FIELD("mode", 2, SY_ERR_VALUE, "mode", "2", "MATCH"), .query = true},
    {"noise q", BAD_FIELD("noise", SY_NOISE_Q, SY_ERR_VALUE, "noise", "Q", "AUTO, NONE, RACE or CDF"),
     .query = true},
    {"noise 5", BAD_FIELD("noise", 5, SY_ERR_VALUE, "noise", "5", NULL), .query = true},
    {"ties 2", BAD_FIELD("ties", 2, SY_ERR_VALUE, "ties", "2", NULL), .query = true},
    {"logprob_mode 3", BAD_FIELD("logprob_mode", 3, SY_ERR_VALUE, "logprob_mode", "3", NULL), .query = true},
    {"empty_token 2", BAD_FIELD("empty_token", 2, SY_ERR_VALUE, "empty_token", "2", NULL), .query = true},
    {"k_limit -1", BAD_FIELD("k_limit", -1, SY_ERR_VALUE, "k_limit", "-1", "0 or more"), .query = true},
    {"top_logprobs V + 1", BAD_FIELD("top_logprobs", VOCAB + 1, SY_ERR_VALUE, "top_logprobs", "9", "0 to 8"),
     .query = true},
    {"a draw without a seed", BAD_CALL(no_seed, SY_ERR_VALUE, "noise", "CDF", "seed"), .query = true},
    {"outputs without logprob_mode",
     BAD_CALL(top_without_logprobs, SY_ERR_VALUE, "logprob_mode", "NONE", "RAW or FINAL")},
    {"logprob_mode without outputs",
     BAD_CALL(logprobs_without_outputs, SY_ERR_VALUE, "logprob_mode", "RAW", "or NONE")},

    {"V = 2^23 + 1", BAD_CALL(vocabulary_too_large, SY_ERR_OVERFLOW, "logits", "8388609", "8388608"),
     .query = true},
    {"2^31 rows", BAD_CALL(rows_past_int32, SY_ERR_OVERFLOW, "logits", "2147483648 rows", "2147483647"),
     .query = true},
    {"2^63 rows", BAD_CALL(too_many_rows, SY_ERR_OVERFLOW, "logits", "rows", "2147483647"), .query = true},
    {"2^40 requests", BAD_CALL(too_many_requests, SY_ERR_OVERFLOW, "logits", "requests", "2147483647"),
     .query = true},

    {"accepted [3]", BAD_EXTENT("accepted", 0, 3, "[3]", "[2]")},
    {"path [5]", BAD_EXTENT("path", 0, N - 1, "[5]", "[6]")},
    {"top_token [6,1]", BAD_EXTENT("top_token", 1, 1, "[6,1]", "[6,2]")},
    {"top_token of no columns", BAD_CALL(no_columns, SY_ERR_SHAPE, "top_token", "0 columns", "1 to 8")},
    {"top_token of V + 1 columns",
     BAD_CALL(columns_past_v, SY_ERR_SHAPE, "top_token", "9 columns", "1 to 8")},
    {"top_logprob [6,1]", BAD_EXTENT("top_logprob", 1, 1, "[6,1]", "[6,2]")},

    {"logits with element stride 2", BAD_STRIDE("logits", 1, 2, "2", NULL), .query = true},
    {"draft_token with stride 2", BAD_STRIDE("draft_token", 0, 2, "2", "contiguous"), .query = true},
    {"seed with stride -1", BAD_STRIDE("seed", 0, -1, "-1", NULL), .query = true},
};

/* In the documented order. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("parent")},
    {"dtype", BAD_TYPE("draft_token", kDLFloat, 16, 1)},
    {"rank", BAD_RANK("top_p", 3, NULL, NULL)},
    {"input shape", BAD_EXTENT("override_indptr", 0, N, NULL, NULL)},
    {"values", BAD_FIELD("k_limit", -1, SY_ERR_VALUE, "k_limit", NULL, NULL)},
    {"overflow", BAD_CALL(vocabulary_too_large, SY_ERR_OVERFLOW, "logits", NULL, NULL)},
    {"output shape", BAD_EXTENT("count", 0, 3, NULL, NULL)},
    {"stride", BAD_STRIDE("parent", 0, 3, NULL, NULL)},
    {"device", BAD_DEVICE("stop_token", kDLCUDA)},
    {"alias", BAD_OVER("path", "token", 0)},
    {"rows of requests", BAD_NUMBER("cu_lens", 1, N + 1, SY_ERR_INDEX, NULL, NULL)},
    {"parents", BAD_NUMBER("parent", 1, 1, SY_ERR_INDEX, NULL, NULL)},
    {"drafts", BAD_NUMBER("draft_token", 1, VOCAB, SY_ERR_INDEX, NULL, NULL)},
    {"ends of stop tokens", BAD_NUMBER("stop_indptr", 1, STOPS + 1, SY_ERR_INDEX, NULL, NULL)},
    {"stop tokens", BAD_NUMBER("stop_token", 0, VOCAB, SY_ERR_INDEX, NULL, NULL)},
    {"overrides", BAD_NUMBER("override_token", 0, VOCAB, SY_ERR_INDEX, NULL, NULL)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make);
    test_add_rejections(&list, make, rows, COUNT_OF(rows));
    test_add_ladder(&list, make, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_sample_verify");
}
