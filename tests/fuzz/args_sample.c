/*
 * Valid calls of sample, sample_verify, sample_overrides and sample_noise, made from the bytes.
 */
#include "args.h"

#include <string.h>

static const DLDataType f32 = {2, 32, 1}, i32 = {0, 32, 1}, i64 = {0, 64, 1};

static DLDataType row_type(struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    return types[pick(r, 3)];
}

/* Ranks, lists and scores. */
static void make_more_logprobs(struct call *c, struct reader *r, int64_t rows, int64_t vocabulary)
{
    sy_sample_args *a = &c->args.sample;
    a->logprob_mode = pick(r, 2) ? SY_LOGPROB_RAW : SY_LOGPROB_FINAL;
    add(c, "rank", &a->rank, i32, 1, rows, 0, 0);
    output(c);
    if (pick(r, 2)) {
        const int64_t n = 1 + extent(r, 24), top = n < vocabulary ? n : vocabulary;
        add(c, "top_token", &a->top_token, pick(r, 2) ? i64 : i32, 2, rows, top, 0);
        output(c);
        add(c, "top_logprob", &a->top_logprob, f32, 2, rows, top, 0);
        output(c);
    }
    if (pick(r, 2)) {
        const int64_t n = 1 + extent(r, 5);
        add(c, "score_token", &a->score_token, pick(r, 2) ? i64 : i32, 2, rows, n, 0);
        add(c, "score_logprob", &a->score_logprob, f32, 2, rows, n, 0);
        output(c);
    }
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
        if (pick(r, 2))
            make_more_logprobs(c, r, rows, vocabulary);
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
    if (pick(r, 4) == 0)
        add(c, "given_token", &a->given_token, pick(r, 2) ? i64 : i32, 1, pick(r, 2) ? rows : 1, 0, 0);
    a->eps = eps[pick(r, pick(r, 4) ? 2 : 4)];
    a->probs_in = pick(r, 2);
    a->q_order = (sy_q_order)pick(r, 2);
    a->ties = (sy_ties)pick(r, 2);
    a->empty_token = (sy_empty_token)pick(r, 2);
}

/* Rows of drafts: requests, and rows of each; -1: ragged, with so many rows in all. */
struct drafts {
    int64_t requests, each, rows;
};

static struct drafts pick_drafts(struct reader *r)
{
    struct drafts d = {extent(r, 5), pick(r, 2) ? extent(r, 6) : -1, 0};
    d.rows = d.each >= 0 ? d.requests * d.each : extent(r, 16);
    return d;
}

static void add_drafts(struct call *c, struct reader *r, const struct drafts *d, DLDataType type,
                       int64_t vocabulary, const DLTensor **fields[4])
{
    const bool dense = d->each >= 0, narrow = dense && d->each > 0 && pick(r, 2);
    if (dense)
        add(c, "logits", fields[0], type, 3, d->requests, d->each, vocabulary);
    else {
        add(c, "logits", fields[0], type, 2, d->rows, vocabulary, 0);
        add(c, "cu_lens", fields[1], pick(r, 2) ? i64 : i32, 1, d->requests + 1, 0, 0);
    }
    if (pick(r, 2))
        add(c, "parent", fields[3], pick(r, 2) ? i64 : i32, dense ? 2 : 1, dense ? d->requests : d->rows,
            d->each, 0);
    add(c, "draft_token", fields[2], pick(r, 2) ? i64 : i32, dense ? 2 : 1, dense ? d->requests : d->rows,
        narrow ? d->each - 1 : d->each, 0);
}

static void add_slots(struct call *c, const char *name, const DLTensor **field, DLDataType type,
                      const struct drafts *d)
{
    add(c, name, field, type, d->each >= 0 ? 2 : 1, d->each >= 0 ? d->requests : d->rows, d->each, 0);
    output(c);
}

static void make_verify_outputs(struct call *c, struct reader *r, const struct drafts *d, int64_t vocabulary)
{
    sy_sample_verify_args *a = &c->args.verify;
    const DLDataType u32 = {1, 32, 1}, u8 = {1, 8, 1};
    add_slots(c, "token", &a->token, i64, d);
    add(c, "count", &a->count, i32, 1, d->requests, 0, 0);
    output(c);
    if (pick(r, 2)) {
        add(c, "accepted", &a->accepted, i32, 1, d->requests, 0, 0);
        output(c);
        add(c, "next_token", &a->next_token, i64, 1, d->requests, 0, 0);
        output(c);
        add_slots(c, "path", &a->path, i32, d);
        add_slots(c, "accept_mask", &a->accept_mask, u8, d);
        add_slots(c, "row_flags", &a->row_flags, u32, d);
    }
    if (pick(r, 2)) {
        const int64_t n = 1 + extent(r, 4), top = n < vocabulary ? n : vocabulary;
        const DLDataType index = pick(r, 2) ? i64 : i32;
        a->logprob_mode = pick(r, 2) ? SY_LOGPROB_RAW : SY_LOGPROB_FINAL;
        add_slots(c, "logprob", &a->logprob, f32, d);
        if (pick(r, 2))
            return;
        add_slots(c, "rank", &a->rank, i32, d);
        for (int i = 0; i < 2; i++) {
            const DLTensor **const field = i ? &a->top_logprob : &a->top_token;
            if (d->each >= 0)
                add(c, i ? "top_logprob" : "top_token", field, i ? f32 : index, 3, d->requests, d->each, top);
            else
                add(c, i ? "top_logprob" : "top_token", field, i ? f32 : index, 2, d->rows, top, 0);
            output(c);
        }
    }
}

void make_verify(struct call *c, struct reader *r)
{
    sy_sample_verify_args *a = &c->args.verify;
    const struct drafts d = pick_drafts(r);
    const int64_t vocabulary = 1 + extent(r, 40);
    static const sy_noise noises[] = {SY_NOISE_AUTO, SY_NOISE_NONE, SY_NOISE_RACE, SY_NOISE_CDF};
    a->noise = noises[pick(r, 4)];
    add_drafts(c, r, &d, row_type(r), vocabulary,
               (const DLTensor **[]){&a->logits, &a->cu_lens, &a->draft_token, &a->parent});
    make_verify_outputs(c, r, &d, vocabulary);
    if (pick(r, 2))
        add(c, "temperature", &a->temperature, f32, 2, d.requests, 1, 0);
    if (pick(r, 2))
        add(c, "top_k", &a->top_k, i32, 1, pick(r, 2) ? d.requests : 1, 0, 0);
    if (pick(r, 2))
        add(c, "top_p", &a->top_p, f32, 1, pick(r, 2) ? d.requests : 1, 0, 0);
    if (pick(r, 3) == 0)
        add(c, "min_p", &a->min_p, f32, 1, 1, 0, 0);
    if (a->noise > SY_NOISE_NONE || pick(r, 2))
        add(c, "seed", &a->seed, i64, 1, pick(r, 2) ? d.requests : 1, 0, 0);
    if (pick(r, 2))
        add(c, "offset", &a->offset, i64, 1, pick(r, 2) ? d.requests : 1, 0, 0);
    if (pick(r, 2))
        add(c, "stream", &a->stream, i32, 1, pick(r, 2) ? d.requests : 1, 0, 0);
    if (pick(r, 3) == 0)
        add(c, "allow_bits", &a->allow_bits, i32, 2, pick(r, 2) ? d.rows : 1, (vocabulary + 31) / 32, 0);
    if (pick(r, 3) == 0) {
        const int64_t n = extent(r, 12);
        add(c, "override_indptr", &a->override_indptr, pick(r, 2) ? i64 : i32, 1, d.rows + 1, 0, 0);
        add(c, "override_token", &a->override_token, pick(r, 2) ? i64 : i32, 1, n, 0, 0);
        add(c, "override_logit", &a->override_logit, f32, 1, n, 0, 0);
    }
    if (pick(r, 2)) {
        if (pick(r, 2))
            add(c, "stop_indptr", &a->stop_indptr, pick(r, 2) ? i64 : i32, 1, d.requests + 1, 0, 0);
        add(c, "stop_token", &a->stop_token, pick(r, 2) ? i64 : i32, 1, extent(r, 3), 0, 0);
    }
    a->ties = (sy_ties)pick(r, 2);
    a->empty_token = (sy_empty_token)pick(r, 2);
}

/* Sequences, min_tokens: returns overrides that each row can have more. */
static int64_t make_bans(struct call *c, struct reader *r, int64_t rows, bool output)
{
    sy_sample_overrides_args *a = &c->args.overrides;
    int64_t more = 0;
    if (pick(r, 2)) {
        const int64_t sequences = extent(r, 5), tokens = sequences + extent(r, 6);
        add(c, "seq_token", &a->seq_token, pick(r, 2) ? i64 : i32, 1, tokens, 0, 0);
        add(c, "seq_indptr", &a->seq_indptr, pick(r, 2) ? i64 : i32, 1, sequences + 1, 0, 0);
        if (pick(r, 2))
            add(c, "seq_row_indptr", &a->seq_row_indptr, pick(r, 2) ? i64 : i32, 1, rows + 1, 0, 0);
        if (pick(r, 2))
            add(c, "seq_bias", &a->seq_bias, f32, 1, sequences, 0, 0);
        more += sequences;
    }
    if (output && pick(r, 2)) {
        const int64_t stops = extent(r, 4);
        if (pick(r, 2))
            add(c, "stop_indptr", &a->stop_indptr, pick(r, 2) ? i64 : i32, 1, rows + 1, 0, 0);
        add(c, "stop_token", &a->stop_token, pick(r, 2) ? i64 : i32, 1, stops, 0, 0);
        add(c, "min_tokens", &a->min_tokens, pick(r, 2) ? i64 : i32, 1, pick(r, 2) ? rows : 1, 0, 0);
        more += stops;
    }
    a->history_scope = (sy_history_scope)pick(r, 2);
    return more;
}

void make_overrides(struct call *c, struct reader *r)
{
    sy_sample_overrides_args *a = &c->args.overrides;
    const bool drafts = pick(r, 3) == 1;
    const struct drafts d = drafts ? pick_drafts(r) : (struct drafts){0, 0, 0};
    const int64_t rows = drafts ? d.requests : extent(r, 5), vocabulary = 1 + extent(r, 90),
                  prompt = extent(r, 12), out = extent(r, 12), n = extent(r, 12);
    const int lists = pick(r, 8), penalties = pick(r, 8);
    const DLDataType type = row_type(r), index = pick(r, 2) ? i64 : i32;
    const int64_t most = !drafts ? 1 : d.each >= 0 ? d.each : 1 + extent(r, 6), all = drafts ? d.rows : rows;
    int64_t room =
        most * ((lists & 1 ? prompt : 0) + (lists & 2 ? out : 0) + (lists & 4 ? n : 0)) + pick(r, 3);
    if (drafts) {
        a->max_rows = most;
        add_drafts(c, r, &d, type, vocabulary,
                   (const DLTensor **[]){&a->logits, &a->cu_lens, &a->draft_token, &a->parent});
    } else
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
    room += all * ((drafts ? most : 0) + make_bans(c, r, rows, (lists & 2) != 0));
    add(c, "override_indptr", &a->override_indptr, i64, 1, all + 1, 0, 0);
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
