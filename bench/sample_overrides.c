/*
 * sample_overrides: must read 4 bytes per token of the lists, which is also the limit. The plain loop is the usual
 * method: counts for the whole vocabulary, and a pass over all logits of the row.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "bf16 [48,131072] prompt 1000 output 500",
    "bf16 [48,131072] prompt 8000 output 2000",
    "bf16 [1,131072] prompt 1000 output 500",
    /* Quick. */
    "bf16 [4,32000] prompt 200 output 100",
};

/* Tokens below n as texts have them: some often, most seldom. */
static BENCH_FILLER(fill_text)
{
    for (int64_t i = 0; i < x->shape[0]; i++) {
        const double u = bench_unit(&seed);
        ((int32_t *)x->data)[i] = (int32_t)(u * u * u * (double)n);
    }
}

static void make(struct bench_call *c)
{
    sy_sample_overrides_args *const a = c->args;
    const int64_t batch = bench_size(c, "["), vocab = bench_size(c, ",");
    const int64_t prompt = bench_size(c, "prompt "), output = bench_size(c, "output ");
    const int64_t most = batch * (prompt + output);
    bench_in(c, &a->logits, SY_BF16, DIMS(batch, vocab), BENCH_ONCE, fill_numbers, 0);
    bench_in(c, &a->prompt_indptr, SY_I64, DIMS(batch + 1), BENCH_ONCE, fill_steps, prompt);
    bench_in(c, &a->prompt_token, SY_I32, DIMS(batch * prompt), BENCH_ONCE, fill_text, vocab);
    bench_in(c, &a->output_indptr, SY_I64, DIMS(batch + 1), BENCH_ONCE, fill_steps, output);
    bench_in(c, &a->output_token, SY_I32, DIMS(batch * output), BENCH_ONCE, fill_text, vocab);
    bench_in(c, &a->repetition_penalty, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, 110);
    bench_in(c, &a->frequency_penalty, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, 30);
    bench_in(c, &a->presence_penalty, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, 20);
    bench_room(c, &a->override_indptr, SY_I64, DIMS(batch + 1), BENCH_ONCE);
    bench_room(c, &a->override_token, SY_I32, DIMS(most), BENCH_ONCE);
    bench_room(c, &a->override_logit, SY_F32, DIMS(most), BENCH_ONCE);
    bench_scratch(c, 2 * (size_t)vocab * sizeof(int32_t));
    c->limit.read_bytes = (size_t)most * sizeof(int32_t);
    c->bytes = bench_work_bytes(&c->limit);
}

static int64_t plain_row(const struct bench_call *c, int64_t b, int32_t *token, float *logit)
{
    const sy_sample_overrides_args *const a = c->args;
    const int64_t vocab = a->logits->shape[1], prompts = bench_size(c, "prompt "),
                  outputs = bench_size(c, "output ");
    const float repetition = bench_load(a->repetition_penalty, 0),
                frequency = bench_load(a->frequency_penalty, 0),
                presence = bench_load(a->presence_penalty, 0);
    const int32_t *const prompt = a->prompt_token->data, *const output = a->output_token->data;
    int32_t *const count = c->scratch, *const seen = count + vocab;
    int64_t n = 0;
    memset(count, 0, 2 * (size_t)vocab * sizeof *count);
    for (int64_t i = 0; i < prompts; i++)
        seen[prompt[b * prompts + i]] = 1;
    for (int64_t i = 0; i < outputs; i++)
        count[output[b * outputs + i]]++;
    for (int64_t t = 0; t < vocab; t++) {
        const float before = bench_bf16_value(((const uint16_t *)a->logits->data)[b * vocab + t]);
        float x = before;
        if (seen[t] || count[t])
            x = x > 0 ? x / repetition : x * repetition;
        if (count[t]) {
            const float often = frequency * (float)count[t];
            x = x - often;
            x = x - presence;
        }
        if (x == before)
            continue;
        token[n] = (int32_t)t;
        logit[n++] = x;
    }
    return n;
}

static void plain(const struct bench_call *c)
{
    const sy_sample_overrides_args *const a = c->args;
    int64_t *const indptr = a->override_indptr->data;
    indptr[0] = 0;
    for (int64_t b = 0; b < a->logits->shape[0]; b++) {
        const int64_t at = indptr[b];
        indptr[b + 1] = at + plain_row(c, b, (int32_t *)a->override_token->data + at,
                                       (float *)a->override_logit->data + at);
    }
}

/* Only what the lists hold: the rest of the room is the operator's. */
static const char *check(const struct bench_call *c)
{
    const sy_sample_overrides_args *const a = c->args;
    const int64_t *const ends = bench_want(c, &a->override_indptr);
    const size_t n = (size_t)ends[a->logits->shape[0]] * sizeof(int32_t);
    if (memcmp(bench_got(c, &a->override_indptr), ends, bench_bytes(a->override_indptr)) != 0)
        return "override_indptr differs from the plain loop";
    if (memcmp(bench_got(c, &a->override_token), bench_want(c, &a->override_token), n) != 0)
        return "override_token differs from the plain loop";
    if (memcmp(bench_got(c, &a->override_logit), bench_want(c, &a->override_logit), n) != 0)
        return "override_logit differs from the plain loop";
    return NULL;
}

const struct bench_op bench_sample_overrides = {BENCH_CASES("sample_overrides", 1), .make = make,
                                                .plain = plain, .check = check};
