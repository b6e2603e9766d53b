/*
 * sample_overrides: must read 4 bytes per token of the lists, which is also the limit. The plain loop is the usual
 * method: counts for the whole vocabulary, and a pass over all logits of the row.
 */
#include "described.h"

#include <math.h>
#include <string.h>

static const char *const shapes[] = {
    "bf16 [48,131072] prompt 1000 output 500",
    "bf16 [48,131072] prompt 8000 output 2000",
    "bf16 [1,131072] prompt 1000 output 500",
    "bf16 [16,131072] prompt 1000 output 500 drafts 4", /* 16 requests of 4 rows */
    /* Quick. */
    "bf16 [4,32000] prompt 200 output 100",
    "bf16 [4,32000] prompt 200 output 100 drafts 3",
};

enum { STOP_TOKEN = 2 };

/* Tokens below n as texts have them: some often, most seldom. */
BENCH_OWN(fill_text, bench_store_integer, (int64_t)(pow(random_unit(&seed), 3) * (double)n))

/* Rows of each request; stop tokens are banned in all but its last. */
static void make_rows(struct bench_call *c, int64_t batch, int64_t vocab)
{
    sy_sample_overrides_args *const a = c->args;
    const int64_t each = bench_size(c, "drafts ");
    if (each == 0) {
        bench_in(c, &a->logits, SY_BF16, DIMS(batch, vocab), BENCH_ONCE, fill_numbers, 0);
        return;
    }
    bench_in(c, &a->logits, SY_BF16, DIMS(batch, each, vocab), BENCH_ONCE, fill_numbers, 0);
    bench_in(c, &a->draft_token, SY_I32, DIMS(batch, each), BENCH_ONCE, fill_ids, vocab);
    bench_in(c, &a->min_tokens, SY_I64, DIMS(1), BENCH_ONCE, fill_integer,
             bench_size(c, "output ") + each - 1);
    bench_in(c, &a->stop_token, SY_I32, DIMS(1), BENCH_ONCE, fill_integer, STOP_TOKEN);
}

static void make(struct bench_call *c)
{
    sy_sample_overrides_args *const a = c->args;
    const int64_t batch = bench_size(c, "["), vocab = bench_size(c, ","), each = bench_size(c, "drafts ");
    const int64_t prompt = bench_size(c, "prompt "), output = bench_size(c, "output ");
    const int64_t rows = batch * (each > 0 ? each : 1);
    const int64_t most = rows * (prompt + output + (each > 0 ? each + 1 : 0));
    make_rows(c, batch, vocab);
    bench_in(c, &a->prompt_indptr, SY_I64, DIMS(batch + 1), BENCH_ONCE, fill_steps, prompt);
    bench_in(c, &a->prompt_token, SY_I32, DIMS(batch * prompt), BENCH_ONCE, fill_text, vocab);
    bench_in(c, &a->output_indptr, SY_I64, DIMS(batch + 1), BENCH_ONCE, fill_steps, output);
    bench_in(c, &a->output_token, SY_I32, DIMS(batch * output), BENCH_ONCE, fill_text, vocab);
    bench_in(c, &a->repetition_penalty, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, 110);
    bench_in(c, &a->frequency_penalty, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, 30);
    bench_in(c, &a->presence_penalty, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, 20);
    bench_room(c, &a->override_indptr, SY_I64, DIMS(rows + 1), BENCH_ONCE);
    bench_room(c, &a->override_token, SY_I32, DIMS(most), BENCH_ONCE);
    bench_room(c, &a->override_logit, SY_F32, DIMS(most), BENCH_ONCE);
    bench_scratch(c, 2 * (size_t)vocab * sizeof(int32_t));
    c->limit.read_bytes = (size_t)(batch * (prompt + output)) * sizeof(int32_t);
}

/* A row of request b after so many of its drafts. */
static int64_t plain_row(const struct bench_call *c, int64_t b, int64_t depth, const uint16_t *logits,
                         int32_t *token, float *logit)
{
    const sy_sample_overrides_args *const a = c->args;
    const int64_t vocab = bench_size(c, ","), prompts = bench_size(c, "prompt "),
                  outputs = bench_size(c, "output "), each = bench_size(c, "drafts ");
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
    for (int64_t i = 1; i <= depth; i++)
        count[((const int32_t *)a->draft_token->data)[b * each + i]]++;
    for (int64_t t = 0; t < vocab; t++) {
        const float before = bf16_to_float(logits[t]);
        float x = before;
        if (seen[t] || count[t])
            x = x > 0 ? x / repetition : x * repetition;
        if (count[t]) {
            const float often = frequency * (float)count[t];
            x = x - often;
            x = x - presence;
        }
        if (t == STOP_TOKEN && depth < each - 1)
            x = -INFINITY;
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
    const int64_t vocab = bench_size(c, ","), each = bench_size(c, "drafts "),
                  of_request = each > 0 ? each : 1;
    int64_t *const indptr = a->override_indptr->data;
    indptr[0] = 0;
    for (int64_t row = 0; row < bench_count(a->logits) / vocab; row++) {
        const int64_t at = indptr[row];
        indptr[row + 1] =
            at + plain_row(c, row / of_request, row % of_request,
                           (const uint16_t *)a->logits->data + row * vocab,
                           (int32_t *)a->override_token->data + at, (float *)a->override_logit->data + at);
    }
}

/* Only what the lists hold: the rest of the room is the operator's. */
static const char *check(const struct bench_call *c)
{
    const sy_sample_overrides_args *const a = c->args;
    const int64_t *const ends = bench_want(a->override_indptr);
    const size_t n = (size_t)ends[a->override_indptr->shape[0] - 1] * sizeof(int32_t);
    if (memcmp(bench_got(a->override_indptr), ends, bench_bytes(a->override_indptr)) != 0)
        return "override_indptr differs from the plain loop";
    if (memcmp(bench_got(a->override_token), bench_want(a->override_token), n) != 0)
        return "override_token differs from the plain loop";
    if (memcmp(bench_got(a->override_logit), bench_want(a->override_logit), n) != 0)
        return "override_logit differs from the plain loop";
    return NULL;
}

BENCH_OP(sample_overrides, shapes, 2, make, .plain = plain, .check = check);
