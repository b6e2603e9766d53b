/*
 * sample_overrides: must read 4 bytes per token of the lists, which is also the limit. The plain loop is the usual
 * method: counts for the whole vocabulary, and a pass over all logits of the row.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    int64_t batch, vocab, prompt, output; /* tokens per row */
};

static const struct shape full[] = {
    {48, 131072, 1000, 500}, {48, 131072, 8000, 2000}, {1, 131072, 1000, 500}};
static const struct shape quick[] = {{4, 32000, 200, 100}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

static const float repetition = 1.1f, frequency = 0.3f, presence = 0.2f;

struct result {
    int64_t *indptr; /* [B+1] */
    int32_t *token;  /* [B*(prompt+output)] */
    float *logit;
};

struct state {
    struct shape shape;
    uint16_t *logits;                        /* [B,V] bf16 */
    int64_t *prompt_indptr, *output_indptr;  /* [B+1] */
    int32_t *prompt, *output, *count, *seen; /* lists; [V] for the plain loop */
    struct result got, plain;
};

static int64_t most(const struct shape *s)
{
    return s->batch * (s->prompt + s->output);
}

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    (void)turn;
    int64_t both[] = {s->batch, s->vocab}, ends[] = {s->batch + 1}, prompts[] = {s->batch * s->prompt},
            outputs[] = {s->batch * s->output}, room[] = {most(s)}, one[] = {1};
    float r[] = {repetition}, f[] = {frequency}, p[] = {presence};
    const DLTensor logits = sy_tensor(state->logits, SY_BF16, 2, both),
                   prompt_indptr = sy_tensor(state->prompt_indptr, SY_I64, 1, ends),
                   prompt_token = sy_tensor(state->prompt, SY_I32, 1, prompts),
                   output_indptr = sy_tensor(state->output_indptr, SY_I64, 1, ends),
                   output_token = sy_tensor(state->output, SY_I32, 1, outputs),
                   repetition_penalty = sy_tensor(r, SY_F32, 1, one),
                   frequency_penalty = sy_tensor(f, SY_F32, 1, one),
                   presence_penalty = sy_tensor(p, SY_F32, 1, one),
                   indptr = sy_tensor(state->got.indptr, SY_I64, 1, ends),
                   token = sy_tensor(state->got.token, SY_I32, 1, room),
                   logit = sy_tensor(state->got.logit, SY_F32, 1, room);
    return sy_sample_overrides(ctx, &(sy_sample_overrides_args){.logits = &logits,
                                                                .prompt_indptr = &prompt_indptr,
                                                                .prompt_token = &prompt_token,
                                                                .output_indptr = &output_indptr,
                                                                .output_token = &output_token,
                                                                .repetition_penalty = &repetition_penalty,
                                                                .frequency_penalty = &frequency_penalty,
                                                                .presence_penalty = &presence_penalty,
                                                                .override_indptr = &indptr,
                                                                .override_token = &token,
                                                                .override_logit = &logit});
}

static int64_t plain_row(const struct state *state, int64_t b, int32_t *token, float *logit)
{
    const struct shape *const s = &state->shape;
    int64_t n = 0;
    memset(state->count, 0, (size_t)s->vocab * sizeof *state->count);
    memset(state->seen, 0, (size_t)s->vocab * sizeof *state->seen);
    for (int64_t i = 0; i < s->prompt; i++)
        state->seen[state->prompt[b * s->prompt + i]] = 1;
    for (int64_t i = 0; i < s->output; i++)
        state->count[state->output[b * s->output + i]]++;
    for (int64_t t = 0; t < s->vocab; t++) {
        const float before = bench_bf16_value(state->logits[b * s->vocab + t]);
        float x = before;
        if (state->seen[t] || state->count[t])
            x = x > 0 ? x / repetition : x * repetition;
        if (state->count[t]) {
            const float often = frequency * (float)state->count[t];
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

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct result *const to = turn == 0 ? &state->plain : &state->got;
    to->indptr[0] = 0;
    for (int64_t b = 0; b < state->shape.batch; b++) {
        const int64_t at = to->indptr[b];
        to->indptr[b + 1] = at + plain_row(state, b, to->token + at, to->logit + at);
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const int64_t batch = state->shape.batch, n = state->plain.indptr[batch];
    if (memcmp(state->got.indptr, state->plain.indptr, ((size_t)batch + 1) * sizeof n) != 0)
        return "override_indptr differs from the plain loop";
    if (memcmp(state->got.token, state->plain.token, (size_t)n * sizeof *state->got.token) != 0)
        return "override_token differs from the plain loop";
    if (memcmp(state->got.logit, state->plain.logit, (size_t)n * sizeof *state->got.logit) != 0)
        return "override_logit differs from the plain loop";
    return NULL;
}

/* Tokens with the frequencies of real text: some often, most rarely. */
static void fill_lists(int64_t *indptr, int32_t *token, const struct shape *s, int64_t n, uint64_t seed)
{
    for (int64_t b = 0; b <= s->batch; b++)
        indptr[b] = b * n;
    for (int64_t i = 0; i < s->batch * n; i++) {
        const double u = bench_unit(&seed);
        token[i] = (int32_t)(u * u * u * (double)s->vocab);
    }
}

static bool prepare_result(struct result *r, const struct shape *s)
{
    r->indptr = bench_alloc((size_t)s->batch + 1, sizeof *r->indptr);
    r->token = bench_alloc((size_t)most(s), sizeof *r->token);
    r->logit = bench_alloc((size_t)most(s), sizeof *r->logit);
    return r->indptr && r->token && r->logit;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t batch = (size_t)s->batch, vocab = (size_t)s->vocab;
    state->logits = bench_alloc(batch * vocab, sizeof *state->logits);
    state->prompt_indptr = bench_alloc(batch + 1, sizeof *state->prompt_indptr);
    state->output_indptr = bench_alloc(batch + 1, sizeof *state->output_indptr);
    state->prompt = bench_alloc(batch * (size_t)s->prompt, sizeof *state->prompt);
    state->output = bench_alloc(batch * (size_t)s->output, sizeof *state->output);
    state->count = bench_alloc(vocab, sizeof *state->count);
    state->seen = bench_alloc(vocab, sizeof *state->seen);
    if (!prepare_result(&state->got, s) || !prepare_result(&state->plain, s) || !state->logits ||
        !state->prompt_indptr || !state->output_indptr || !state->prompt || !state->output || !state->count ||
        !state->seen)
        return false;
    bench_fill_bf16(state->logits, batch * vocab, 51);
    fill_lists(state->prompt_indptr, state->prompt, s, s->prompt, 53);
    fill_lists(state->output_indptr, state->output, s, s->output, 59);
    return true;
}

static void release(struct state *state)
{
    struct result *const results[] = {&state->got, &state->plain};
    for (int i = 0; i < 2; i++) {
        free(results[i]->indptr);
        free(results[i]->token);
        free(results[i]->logit);
    }
    free(state->logits);
    free(state->prompt_indptr);
    free(state->output_indptr);
    free(state->prompt);
    free(state->output);
    free(state->count);
    free(state->seen);
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const s = shape_at(index);
    snprintf(text, bytes, "bf16 [%d,%d] prompt %d output %d", (int)s->batch, (int)s->vocab, (int)s->prompt,
             (int)s->output);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct state state = {.shape = *shape_at(index)};
    const size_t bytes = (size_t)most(&state.shape) * sizeof(int32_t);
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "sample_overrides",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)bytes,
                                 .limit = {.read_bytes = bytes},
                             });
    else
        bench_no_memory(bench, "sample_overrides", name);
    release(&state);
}

const struct bench_op bench_sample_overrides = {"sample_overrides", N_FULL, N_QUICK, describe, run_case};
