/*
 * sample_verify, and sample_overrides for the same rows: chains and trees, ragged and dense, greedy requests and drawn ones.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_verify(sy_ctx *ctx, const void *args)
{
    return sy_sample_verify(ctx, args);
}

static sy_status call_overrides(sy_ctx *ctx, const void *args)
{
    return sy_sample_overrides(ctx, args);
}

/* Rows of drafts, in the fields of both operators. */
struct rows {
    int64_t requests, each, n, vocab; /* each 0: ragged */
    const DLTensor *logits, *cu_lens, *draft, *parent;
};

static const DLTensor *numbers_of_rows(const struct rows *s, bool parents)
{
    struct box *b = s->each > 0 ? box_new(index_type(), 2, (int64_t[]){s->requests, s->each})
                                : box_new(index_type(), 1, &s->n);
    for (int64_t i = 0, local = 0; i < s->n; i++) {
        local = s->each > 0 ? i % s->each : i;
        put(b, i,
            parents ? (uint64_t)(local > 0 ? below(local) : 0)
                    : (uint64_t)(one_in(9) ? -1 : below(s->vocab)));
    }
    return &b->t;
}

/* A ragged tree would need parents inside each request: those are chains. */
static struct rows make_rows(DLDataType type)
{
    static const int64_t vocabs[] = {1, 2, 5, 64, 1031};
    struct rows s = {
        .requests = below(5), .each = one_in(2) ? 1 + below(6) : 0, .vocab = vocabs[below(COUNT(vocabs))]};
    int64_t ends[6] = {0};
    for (int64_t b = 0; b < s.requests; b++)
        ends[b + 1] = ends[b] + (s.each > 0 ? s.each : below(7));
    s.n = ends[s.requests];
    struct box *logits = s.each > 0 ? box_new(type, 3, (int64_t[]){s.requests, s.each, s.vocab})
                                    : box_new(type, 2, (int64_t[]){s.n, s.vocab});
    for (int64_t i = 0; i < box_elems(logits); i++) {
        const enum flavour flavour = one_in(4) ? (enum flavour)below(N_FLAVOURS) : FINE;
        put(logits, i, flavoured(type, flavour));
    }
    s.logits = &logits->t;
    s.draft = numbers_of_rows(&s, false);
    if (s.each > 0) {
        if (one_in(2))
            s.parent = numbers_of_rows(&s, true);
        return s;
    }
    struct box *lens = box_new(index_type(), 1, &(int64_t){s.requests + 1});
    for (int64_t b = 0; b <= s.requests; b++)
        put(lens, b, (uint64_t)(ends[b] + (one_in(60) ? 1 : 0)));
    s.cu_lens = &lens->t;
    return s;
}

static const DLTensor *per_request(DLDataType type, int64_t n, const uint64_t *values, int count)
{
    struct box *b = box_new(type, 1, &(int64_t){one_in(3) ? 1 : n});
    for (int64_t i = 0; i < box_elems(b); i++)
        put(b, i, count > 0 ? values[below(count)] : (uint64_t)below(1 << 20));
    return &b->t;
}

static struct box *slots(const struct rows *s, DLDataType type)
{
    return output(s->each > 0 ? box_new(type, 2, (int64_t[]){s->requests, s->each})
                              : box_new(type, 1, &s->n));
}

static void verify_scene(DLDataType type)
{
    static const uint64_t temperatures[] = {0x3f800000, 0x3f000000, 0, 0x40000000},
                          nuclei[] = {0x3f666666, 0x3f000000, 0x3f800000}, ks[] = {0, 1, 2, 5, 40};
    const struct rows s = make_rows(type);
    static const sy_noise noises[] = {SY_NOISE_AUTO, SY_NOISE_NONE, SY_NOISE_RACE, SY_NOISE_CDF};
    sy_sample_verify_args args = {.logits = s.logits,
                                  .cu_lens = s.cu_lens,
                                  .draft_token = s.draft,
                                  .parent = s.parent,
                                  .seed = per_request(SY_I64, s.requests, NULL, 0),
                                  .offset = per_request(SY_I64, s.requests, NULL, 0),
                                  .noise = noises[below(4)],
                                  .logprob_mode = (sy_logprob)below(3),
                                  .empty_token = (sy_empty_token)below(2)};
    if (one_in(2))
        args.temperature = per_request(SY_F32, s.requests, temperatures, 4);
    if (one_in(2))
        args.top_p = per_request(SY_F32, s.requests, nuclei, 3);
    if (one_in(2))
        args.top_k = per_request(SY_I32, s.requests, ks, 5);
    if (one_in(2))
        args.stop_token = per_request(SY_I64, 2, (const uint64_t[]){0, (uint64_t)(s.vocab / 2)}, 2);
    args.accepted = &output(box_new(SY_I32, 1, &s.requests))->t;
    args.count = &output(box_new(SY_I32, 1, &s.requests))->t;
    args.token = &slots(&s, SY_I64)->t;
    args.path = &slots(&s, SY_I32)->t;
    if (args.logprob_mode != SY_LOGPROB_NONE) {
        args.logprob = &slots(&s, SY_F32)->t;
        args.rank = &slots(&s, SY_I32)->t;
    }
    run_scene(call_verify, &args);
}

static void overrides_scene(DLDataType type)
{
    static const uint64_t halves[] = {0x3f000000, 0x3f800000, 0}, lengths[] = {0, 2, 4};
    const struct rows s = make_rows(type);
    const int64_t out = 3 * s.requests, most = 7, room = most * out + s.n * (most + 1 + 2);
    struct box *indptr = box_new(SY_I64, 1, &(int64_t){s.requests + 1}), *token = box_new(SY_I32, 1, &out),
               *seq_indptr = box_new(SY_I32, 1, &(int64_t){3}), *seq = box_new(SY_I32, 1, &(int64_t){3});
    for (int64_t b = 0; b <= s.requests; b++)
        put(indptr, b, (uint64_t)(3 * b));
    for (int64_t i = 0; i < out; i++)
        put(token, i, (uint64_t)below(s.vocab));
    for (int64_t i = 0; i < 3; i++) {
        put(seq_indptr, i, (uint64_t)(i == 2 ? 3 : i));
        put(seq, i, (uint64_t)below(s.vocab < 3 ? s.vocab : 3));
    }
    sy_sample_overrides_args args = {.logits = s.logits,
                                     .cu_lens = s.cu_lens,
                                     .draft_token = s.draft,
                                     .parent = s.parent,
                                     .max_rows = most,
                                     .output_indptr = &indptr->t,
                                     .output_token = &token->t,
                                     .repetition_penalty = per_request(SY_F32, s.requests, halves, 2),
                                     .frequency_penalty = per_request(SY_F32, s.requests, halves, 3),
                                     .presence_penalty = per_request(SY_F32, s.requests, halves, 3),
                                     .seq_indptr = &seq_indptr->t,
                                     .seq_token = &seq->t,
                                     .min_tokens = per_request(SY_I32, s.requests, lengths, 3),
                                     .stop_token = per_request(SY_I32, 1, lengths, 1)};
    args.override_indptr = &output(box_new(SY_I64, 1, &(int64_t){s.n + 1}))->t;
    args.override_token = &output(box_new(SY_I32, 1, &room))->t;
    args.override_logit = &output(box_new(SY_F32, 1, &room))->t;
    run_scene(call_overrides, &args);
}

void sample_verify_lines(void)
{
    char name[64];
    for (int t = 0; t < N_FLOATS; t++) {
        snprintf(name, sizeof name, "sample_verify %s", floats[t].name);
        begin_line(name);
        for (int i = 0; i < 60; i++)
            verify_scene(floats[t].type);
        end_line();
        snprintf(name, sizeof name, "sample_overrides %s of drafts", floats[t].name);
        begin_line(name);
        for (int i = 0; i < 30; i++)
            overrides_scene(floats[t].type);
        end_line();
    }
}
