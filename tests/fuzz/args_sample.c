/*
 * Valid calls of sample, sample_overrides and sample_noise, made from the bytes.
 */
#include "args.h"

#include <string.h>

static const DLDataType f32 = {2, 32, 1}, i32 = {0, 32, 1}, i64 = {0, 64, 1};

static DLDataType row_type(struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    return types[pick(r, 3)];
}

static void make_sample_outputs(struct call *c, struct reader *r, int64_t rows, int64_t vocabulary)
{
    sy_sample_args *a = &c->args.sample;
    add(c, "token", &a->token, i64, 1, rows, 0, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "kept", &a->kept, i32, 1, rows, 0, 0);
        output(c);
        add(c, "row_flags", &a->row_flags, (DLDataType){1, 32, 1}, 1, rows, 0, 0);
        output(c);
        add(c, "masked_logits", &a->masked_logits, f32, 2, rows, vocabulary, 0);
        output(c);
        add(c, "list_token", &a->list_token, i64, 2, rows, vocabulary, 0);
        output(c);
        add(c, "list_prob", &a->list_prob, f32, 2, rows, vocabulary, 0);
        output(c);
    }
    if (pick(r, 2)) {
        a->logprob_mode = SY_LOGPROB_RAW;
        add(c, "logprob", &a->logprob, f32, 1, rows, 0, 0);
        output(c);
    }
}

void make_sample(struct call *c, struct reader *r)
{
    sy_sample_args *a = &c->args.sample;
    const int64_t rows = extent(r, 5), vocabulary = 1 + extent(r, 90);
    static const float eps[] = {0, 1e-8f, -1, 1e30f};
    a->noise = (sy_noise)pick(r, 5);
    const bool drawn = a->noise == SY_NOISE_RACE || a->noise == SY_NOISE_CDF;
    add(c, "logits", &a->logits, row_type(r), 2, rows, vocabulary, 0);
    make_sample_outputs(c, r, rows, vocabulary);
    if (pick(r, 2))
        add(c, "top_k", &a->top_k, pick(r, 2) ? i64 : i32, 1, pick(r, 2) ? rows : 1, 0, 0);
    if (pick(r, 2))
        add(c, "top_p", &a->top_p, f32, 1, 1, 0, 0);
    if (pick(r, 2))
        add(c, "min_p", &a->min_p, f32, 1, 1, 0, 0);
    if (pick(r, 2))
        add(c, "temperature", &a->temperature, f32, 2, rows, 1, 0);
    if (pick(r, a->noise == SY_NOISE_Q ? 9 : 2))
        add(c, "q", &a->q, f32, 2, rows, vocabulary, 0);
    if (pick(r, drawn ? 9 : 2))
        add(c, "seed", &a->seed, i64, 1, 1, 0, 0);
    if (pick(r, 2))
        add(c, "offset", &a->offset, i64, 1, rows, 0, 0);
    if (pick(r, 2))
        add(c, "stream", &a->stream, i32, 1, 1, 0, 0);
    if (pick(r, 2))
        add(c, "allow_bits", &a->allow_bits, i32, 2, pick(r, 2) ? rows : 1, (vocabulary + 31) / 32, 0);
    if (pick(r, 2)) {
        const int64_t n = extent(r, 12);
        add(c, "override_indptr", &a->override_indptr, pick(r, 2) ? i64 : i32, 1, rows + 1, 0, 0);
        add(c, "override_token", &a->override_token, pick(r, 2) ? i64 : i32, 1, n, 0, 0);
        add(c, "override_logit", &a->override_logit, f32, 1, n, 0, 0);
    }
    a->eps = eps[pick(r, pick(r, 4) ? 2 : 4)];
    a->probs_in = pick(r, 2);
    a->q_order = (sy_q_order)pick(r, 2);
    a->ties = (sy_ties)pick(r, 2);
    a->empty_token = (sy_empty_token)pick(r, 2);
}

void make_overrides(struct call *c, struct reader *r)
{
    sy_sample_overrides_args *a = &c->args.overrides;
    const int64_t rows = extent(r, 5), vocabulary = 1 + extent(r, 90), prompt = extent(r, 12),
                  out = extent(r, 12), n = extent(r, 12);
    const int lists = pick(r, 8), penalties = pick(r, 8);
    const DLDataType type = row_type(r), index = pick(r, 2) ? i64 : i32;
    const int64_t room = (lists & 1 ? prompt : 0) + (lists & 2 ? out : 0) + (lists & 4 ? n : 0) + pick(r, 3);
    add(c, "logits", &a->logits, type, 2, rows, vocabulary, 0);
    if (lists & 1) {
        add(c, "prompt_indptr", &a->prompt_indptr, index, 1, rows + 1, 0, 0);
        add(c, "prompt_token", &a->prompt_token, index, 1, prompt, 0, 0);
    }
    if (lists & 2) {
        add(c, "output_indptr", &a->output_indptr, i32, 1, rows + 1, 0, 0);
        add(c, "output_token", &a->output_token, index, 1, out, 0, 0);
    }
    if (lists & 4) {
        add(c, "bias_indptr", &a->bias_indptr, index, 1, rows + 1, 0, 0);
        add(c, "bias_token", &a->bias_token, i32, 1, n, 0, 0);
        add(c, "bias", &a->bias, f32, 1, n, 0, 0);
    }
    if (penalties & 1)
        add(c, "repetition_penalty", &a->repetition_penalty, f32, 1, rows, 0, 0);
    if (penalties & 2)
        add(c, "frequency_penalty", &a->frequency_penalty, type, 1, 1, 0, 0);
    if (penalties & 4)
        add(c, "presence_penalty", &a->presence_penalty, f32, 2, rows, 1, 0);
    add(c, "override_indptr", &a->override_indptr, i64, 1, rows + 1, 0, 0);
    output(c);
    add(c, "override_token", &a->override_token, i32, 1, room, 0, 0);
    output(c);
    add(c, "override_logit", &a->override_logit, f32, 1, room, 0, 0);
    output(c);
}

void make_noise(struct call *c, struct reader *r)
{
    sy_sample_noise_args *a = &c->args.noise;
    a->seed = (uint64_t)hostile(r);
    a->offset = (uint64_t)hostile(r);
    a->stream = (uint32_t)hostile(r);
    a->n = extent(r, 200);
    add(c, "q", &a->q, f32, 1, a->n, 0, 0);
    output(c);
}
