/*
 * Valid calls of sample, sample_verify, sample_overrides and sample_noise, for the table of all operators.
 */
#include "support.h"

/* n tokens for each row, ascending or not. */
static void put_lists(struct tensor *indptr, struct tensor *token, int64_t rows, int64_t n,
                      int64_t vocabulary, bool ascending)
{
    for (int64_t b = 0; b <= rows; b++)
        memcpy(indptr->mem + 8 * b, &(int64_t){b * n}, 8);
    for (int64_t i = 0; i < rows * n; i++) {
        const int64_t value = ascending ? i % n * vocabulary / n : i * 7919 % vocabulary;
        memcpy(token->mem + 4 * i, &(int32_t){(int32_t)value}, 4);
    }
}

void test_make_sample(struct test_call *c, bool large, int variant)
{
    const int64_t rows = large ? 24 : 3, vocabulary = large ? 20000 : 50;
    static const int32_t k = 20;
    static const float p = 0.9f;
    static const int64_t seed = 42;
    sy_sample_args *a = &c->args.sample;
    *c = (struct test_call){.op = "sample", .first_output = 4};
    if (variant == 1) {
        const int64_t n = 20, all = rows * n, ends = rows + 1;
        c->first_output = 7;
        struct tensor *indptr = test_call_add(c, "override_indptr", &a->override_indptr, SY_I64, 1, &ends);
        struct tensor *token = test_call_add(c, "override_token", &a->override_token, SY_I32, 1, &all);
        put_lists(indptr, token, rows, n, vocabulary, true);
        test_call_add(c, "override_logit", &a->override_logit, SY_F32, 1, &all);
    }
    struct tensor *logits = test_call_add(c, "logits", &a->logits, SY_F32, 2, (int64_t[]){rows, vocabulary});
    memcpy(test_call_add(c, "top_k", &a->top_k, SY_I32, 1, (int64_t[]){1})->mem, &k, sizeof k);
    memcpy(test_call_add(c, "top_p", &a->top_p, SY_F32, 1, (int64_t[]){1})->mem, &p, sizeof p);
    memcpy(test_call_add(c, "seed", &a->seed, SY_I64, 1, (int64_t[]){1})->mem, &seed, sizeof seed);
    test_call_add(c, "token", &a->token, SY_I64, 1, (int64_t[]){rows});
    test_call_add(c, "masked_logits", &a->masked_logits, SY_F32, 2, (int64_t[]){rows, vocabulary});
    if (variant == 2) {
        a->logprob_mode = SY_LOGPROB_RAW;
        test_call_add(c, "rank", &a->rank, SY_I32, 1, (int64_t[]){rows});
        test_call_add(c, "top_token", &a->top_token, SY_I32, 2, (int64_t[]){rows, 20});
        test_call_add(c, "top_logprob", &a->top_logprob, SY_F32, 2, (int64_t[]){rows, 20});
    }
    for (int64_t i = 0; i < rows * vocabulary; i++) {
        const float x = (float)(i * 7919 % 1009) / 100;
        memcpy(logits->mem + 4 * i, &x, 4);
    }
}

/* Drafts of rows of logits, each a chain. */
static void put_drafts(struct tensor *draft, int64_t rows, int64_t each, int64_t vocabulary)
{
    for (int64_t i = 0; i < rows * each; i++)
        memcpy(draft->mem + 4 * i, &(int32_t){(int32_t)(i * 7919 % vocabulary)}, 4);
}

void test_make_verify(struct test_call *c, bool large, int variant)
{
    (void)variant;
    const int64_t requests = large ? 12 : 3, each = 3, vocabulary = large ? 20000 : 50;
    sy_sample_verify_args *a = &c->args.verify;
    *c = (struct test_call){.op = "sample_verify", .first_output = 4};
    struct tensor *logits =
        test_call_add(c, "logits", &a->logits, SY_F32, 3, (int64_t[]){requests, each, vocabulary});
    struct tensor *draft =
        test_call_add(c, "draft_token", &a->draft_token, SY_I32, 2, (int64_t[]){requests, each});
    struct tensor *t = test_call_add(c, "temperature", &a->temperature, SY_F32, 1, &requests);
    struct tensor *seed = test_call_add(c, "seed", &a->seed, SY_I64, 1, &requests);
    test_call_add(c, "accepted", &a->accepted, SY_I32, 1, &requests);
    test_call_add(c, "count", &a->count, SY_I32, 1, &requests);
    test_call_add(c, "token", &a->token, SY_I64, 2, (int64_t[]){requests, each});
    test_call_add(c, "path", &a->path, SY_I32, 2, (int64_t[]){requests, each});
    for (int64_t i = 0; i < requests * each * vocabulary; i++)
        memcpy(logits->mem + 4 * i, &(float){(float)(i * 7919 % 1009) / 100}, 4);
    put_drafts(draft, requests, each, vocabulary);
    for (int64_t b = 0; b < requests; b++) { /* every other request is greedy, and its first draft is right */
        memcpy(t->mem + 4 * b, &(float){b % 2 ? .75f : 0}, 4);
        memcpy(seed->mem + 8 * b, &(int64_t){42 + b}, 8);
        const float *const row = (const float *)(const void *)logits->mem + b * each * vocabulary;
        int32_t best = 0;
        for (int32_t i = 1; i < vocabulary; i++)
            best = row[i] > row[best] ? i : best;
        memcpy(draft->mem + 4 * (b * each + 1), &best, 4);
    }
}

/* Every row of logits is of one sequence, or, with drafts, three are. */
void test_make_overrides(struct test_call *c, bool large, int variant)
{
    const int64_t rows = large ? 24 : 3, vocabulary = large ? 20000 : 50, n = large ? 3000 : 7;
    const int64_t all = rows * n, each = variant ? 3 : 1, room = each * (3 * all + (variant ? rows * 3 : 0)),
                  ends = rows + 1, row_ends = rows * each + 1;
    static const float repetition = 1.25f, frequency = .5f, presence = .125f;
    sy_sample_overrides_args *a = &c->args.overrides;
    *c = (struct test_call){.op = "sample_overrides", .first_output = 11};
    const struct {
        const char *indptr_name, *token_name;
        const DLTensor **indptr, **token;
    } lists[] = {{"prompt_indptr", "prompt_token", &a->prompt_indptr, &a->prompt_token},
                 {"output_indptr", "output_token", &a->output_indptr, &a->output_token},
                 {"bias_indptr", "bias_token", &a->bias_indptr, &a->bias_token}};
    if (variant) {
        c->first_output = 12;
        test_call_add(c, "logits", &a->logits, SY_F32, 3, (int64_t[]){rows, each, vocabulary});
        put_drafts(test_call_add(c, "draft_token", &a->draft_token, SY_I32, 2, (int64_t[]){rows, each}), rows,
                   each, vocabulary);
    } else
        test_call_add(c, "logits", &a->logits, SY_F32, 2, (int64_t[]){rows, vocabulary});
    for (int i = 0; i < 3; i++) {
        struct tensor *indptr = test_call_add(c, lists[i].indptr_name, lists[i].indptr, SY_I64, 1, &ends);
        struct tensor *token = test_call_add(c, lists[i].token_name, lists[i].token, SY_I32, 1, &all);
        put_lists(indptr, token, rows, n, vocabulary - i, false);
    }
    test_call_add(c, "bias", &a->bias, SY_F32, 1, &all);
    memcpy(test_call_add(c, "repetition_penalty", &a->repetition_penalty, SY_F32, 1, (int64_t[]){1})->mem,
           &repetition, 4);
    memcpy(test_call_add(c, "frequency_penalty", &a->frequency_penalty, SY_F32, 1, (int64_t[]){1})->mem,
           &frequency, 4);
    memcpy(test_call_add(c, "presence_penalty", &a->presence_penalty, SY_F32, 1, (int64_t[]){1})->mem,
           &presence, 4);
    test_call_add(c, "override_indptr", &a->override_indptr, SY_I64, 1, &row_ends);
    test_call_add(c, "override_token", &a->override_token, SY_I32, 1, &room);
    test_call_add(c, "override_logit", &a->override_logit, SY_F32, 1, &room);
}

void test_make_noise(struct test_call *c, bool large, int variant)
{
    (void)variant;
    sy_sample_noise_args *a = &c->args.noise;
    *c = (struct test_call){.op = "sample_noise"};
    a->seed = 42;
    a->n = large ? 300001 : 19;
    test_call_add(c, "q", &a->q, SY_F32, 1, &a->n);
}
