/*
 * sample: scenes of every kind of noise and output.
 */
#include "bits.h"

#include <stdio.h>
#include <string.h>

static sy_status call_sample(sy_ctx *ctx, const void *args)
{
    return sy_sample(ctx, args);
}

/* Parameter values as f32 bits: ordinary ones, both ends of every rule, NaN and infinity. */
static const uint32_t top_p_values[] = {0x3f666666, 0x3f000000, 0x3f7fffff, 0x3dcccccd, 0x00000001,
                                        0,          0xbf800000, 0x3f800000, 0x40000000, 0x7fc00000};
static const uint32_t min_p_values[] = {0x3dcccccd, 0x3e99999a, 0x3f7fff58, 0x358637bd,
                                        0,          0xbf800000, 0x3f800000, 0x7fc00000};
static const uint32_t temperature_values[] = {0x3f800000, 0x3f000000, 0x40000000, 0x3fb33333,
                                              0x358637bd, 0x3727c5ac, 0,          0xbf800000,
                                              0x7fc00000, 0x7f800000, 0x42c80000, 0x7149f2ca};

/* A per-row tensor of shape [B], [B,1] or [1]. */
static struct box *per_row(DLDataType type, int64_t batch)
{
    if (one_in(3))
        return box_new(type, 2, (int64_t[]){batch, 1});
    return box_new(type, 1, &(int64_t){one_in(3) ? 1 : batch});
}

/* f32 values, or their upper halves where the logits are bf16; f16 gets values of its own. */
static const DLTensor *row_floats(DLDataType type, int64_t batch, const uint32_t *values, int n)
{
    bool own_type = !same_type(type, SY_F32) && one_in(2);
    struct box *b = per_row(own_type ? type : SY_F32, batch);
    for (int64_t i = 0; i < box_elems(b); i++) {
        if (!own_type)
            put(b, i, values[below(n)]);
        else if (same_type(type, SY_BF16))
            put(b, i, values[below(n)] >> 16);
        else
            put(b, i, one_in(8) ? 0x7e00 : random_float(type, 8, -3, 4, 1));
    }
    return &b->t;
}

static const DLTensor *row_top_k(int64_t batch, int64_t vocab)
{
    struct box *b = per_row(index_type(), batch);
    for (int64_t i = 0; i < box_elems(b); i++) {
        int64_t any = 1 + below(vocab);
        int64_t choices[] = {1, 2, any, any, any, vocab - 1, vocab, vocab + 5, 0, -1};
        put(b, i, (uint64_t)choices[below(COUNT(choices))]);
    }
    return &b->t;
}

static const DLTensor *row_integers(int64_t batch, bool any_width)
{
    static const DLDataType types[] = {{0, 64, 1}, {1, 64, 1}, {0, 32, 1}, {1, 32, 1}};
    return &fill_random(per_row(types[below(any_width ? 4 : 3)], batch))->t;
}

enum want { WANT_ALL, WANT_TOKEN, WANT_MASKED, WANT_LIST, WANT_IN_PLACE };

static void want_outputs(sy_sample_args *args, enum want want, struct box *logits)
{
    int64_t batch = logits->shape[0];
    const int64_t *shape = logits->shape;
    if (want != WANT_MASKED)
        args->token = &output(box_new(SY_I64, 1, &batch))->t;
    if (want == WANT_ALL) {
        args->kept = &output(box_new(SY_I32, 1, &batch))->t;
        args->row_flags = &output(box_new(SY_U32, 1, &batch))->t;
    }
    if (want == WANT_ALL || want == WANT_MASKED)
        args->masked_logits = &output(box_strided(SY_F32, 2, shape, one_in(3) ? 2 : 0))->t;
    if (want == WANT_IN_PLACE)
        args->masked_logits = &output(logits)->t;
    if (want == WANT_ALL || want == WANT_LIST) {
        args->list_token = &output(box_new(SY_I64, 2, shape))->t;
        args->list_prob = &output(box_new(SY_F32, 2, shape))->t;
    }
    if (want == WANT_ALL || (want == WANT_TOKEN && one_in(2))) {
        args->logprob_mode = one_in(2) ? SY_LOGPROB_RAW : SY_LOGPROB_FINAL;
        args->logprob = &output(box_new(SY_F32, 1, &batch))->t;
    }
}

static struct box *make_logits(DLDataType type, int64_t batch, int64_t vocab, bool probs_in)
{
    struct box *logits = box_strided(type, 2, (int64_t[]){batch, vocab}, one_in(3) ? 5 : 0);
    int64_t pitch = box_elems(logits) / batch;
    for (int64_t b = 0; b < batch; b++) {
        enum flavour flavour = (enum flavour)below(N_FLAVOURS);
        if (probs_in && flavour != SPECIAL && flavour != WILD)
            flavour = PROBS;
        for (int64_t i = 0; i < pitch; i++)
            put(logits, b * pitch + i, flavoured(type, flavour));
    }
    return logits;
}

/* Noise that decides: exponential-looking magnitudes of both signs, zeros, NaN and infinity. */
static const DLTensor *make_q(int64_t batch, int64_t vocab)
{
    struct box *q = box_new(SY_F32, 2, (int64_t[]){batch, vocab});
    for (int64_t i = 0; i < box_elems(q); i++)
        put(q, i, flavoured(SY_F32, one_in(30) ? SPECIAL : FINE));
    return &q->t;
}

/* Words of any density. */
static const DLTensor *make_allow(int64_t batch, int64_t vocab)
{
    const DLDataType type = one_in(2) ? SY_I32 : SY_U32; /* one draw per statement: arguments have no order */
    const int64_t rows = one_in(3) ? 1 : batch;
    struct box *b = box_strided(type, 2, (int64_t[]){rows, (vocab + 31) / 32}, one_in(3) ? 2 : 0);
    for (int64_t i = 0; i < box_elems(b); i++)
        put(b, i, one_in(3) ? 0 : one_in(3) ? UINT32_MAX : rng());
    return &b->t;
}

/* A few tokens of each row, or nearly all, with values of any kind. */
static void make_overrides(sy_sample_args *args, int64_t batch, int64_t vocab)
{
    const DLDataType token_type = one_in(2) ? SY_I32 : SY_I64;
    const int64_t step = one_in(3) ? 2 : 1 + vocab / 3;
    struct box *indptr = box_new(index_type(), 1, &(int64_t){batch + 1});
    struct box *token = box_new(token_type, 1, &(int64_t){batch * vocab});
    struct box *logit = box_new(SY_F32, 1, &(int64_t){batch * vocab});
    int64_t n = 0;
    for (int64_t b = 0; b < batch; b++) {
        const enum flavour flavour = (enum flavour)below(N_FLAVOURS);
        put(indptr, b, (uint64_t)n);
        for (int64_t i = below(step); i < vocab; i += 1 + below(step)) {
            put(token, n, (uint64_t)i);
            put(logit, n++, one_in(6) ? 0xff800000u : flavoured(SY_F32, flavour));
        }
    }
    put(indptr, batch, (uint64_t)n);
    args->override_indptr = &indptr->t;
    args->override_token = &token->t;
    args->override_logit = &logit->t;
}

/* -1 or a token for each of n elements. */
static const DLTensor *make_tokens(int rank, const int64_t *shape, int64_t vocab)
{
    struct box *b = box_new(index_type(), rank, shape);
    for (int64_t i = 0; i < box_elems(b); i++)
        put(b, i, one_in(4) ? UINT64_MAX : (uint64_t)below(vocab));
    return &b->t;
}

/* The rank, and most of the time the most likely tokens, tokens to score and given tokens. */
static void make_more(sy_sample_args *args, int64_t batch, int64_t vocab)
{
    const int64_t n = 1 + below(one_in(4) ? vocab : 20), top[] = {batch, n < vocab ? n : vocab};
    const int64_t scores[] = {batch, 1 + below(4)};
    if (args->logprob_mode == SY_LOGPROB_NONE)
        args->logprob_mode = one_in(2) ? SY_LOGPROB_RAW : SY_LOGPROB_FINAL;
    args->rank = &output(box_new(SY_I32, 1, &batch))->t;
    if (!one_in(4)) {
        args->top_token = &output(box_new(index_type(), 2, top))->t;
        args->top_logprob = &output(box_new(SY_F32, 2, top))->t;
    }
    if (one_in(2)) {
        args->score_token = make_tokens(2, scores, vocab);
        args->score_logprob = &output(box_new(SY_F32, 2, scores))->t;
    }
    if (one_in(2))
        args->given_token = make_tokens(1, &batch, vocab);
}

enum edits { BARRED = 1, OVERRIDDEN = 2, MORE_LOGPROBS = 4 };

static void sample_scene(DLDataType type, sy_noise noise, sy_q_order q_order, enum want want, unsigned edits)
{
    static const int64_t vocabs[] = {1, 2, 7, 33, 33, 64, 64, 257, 1031, 4099};
    static const int64_t k_limits[] = {0, 0, 3, 1024};
    int64_t vocab = vocabs[below(COUNT(vocabs))], batch = vocab > 300 ? 3 : 1 + below(9);
    bool probs_in = one_in(5);
    struct box *logits = make_logits(type, batch, vocab, probs_in);
    sy_sample_args args = {.logits = &logits->t, .noise = noise, .q_order = q_order, .probs_in = probs_in};
    args.ties = one_in(3) ? SY_TIES_ALL : SY_TIES_EXACT;
    args.empty_token = one_in(2) ? SY_EMPTY_ZERO : SY_EMPTY_MINUS_ONE;
    args.k_limit = k_limits[below(COUNT(k_limits))];
    args.top_k_guess = below(100) - 20;
    if (one_in(2))
        args.top_k = row_top_k(batch, vocab);
    if (one_in(2))
        args.top_p = row_floats(type, batch, top_p_values, COUNT(top_p_values));
    if (one_in(3))
        args.min_p = row_floats(type, batch, min_p_values, COUNT(min_p_values));
    if (one_in(2))
        args.temperature = row_floats(type, batch, temperature_values, COUNT(temperature_values));
    if (noise == SY_NOISE_Q) {
        uint32_t eps = one_in(2) ? 0x322bcc77 : 0; /* 1e-8 */
        memcpy(&args.eps, &eps, sizeof eps);
        args.q = make_q(batch, vocab);
    }
    if (noise == SY_NOISE_RACE || noise == SY_NOISE_CDF) {
        args.seed = row_integers(batch, false);
        if (one_in(2))
            args.offset = row_integers(batch, false);
        if (one_in(2))
            args.stream = row_integers(batch, true);
    }
    if (edits & BARRED)
        args.allow_bits = make_allow(batch, vocab);
    if (edits & OVERRIDDEN)
        make_overrides(&args, batch, vocab);
    want_outputs(&args, want, logits);
    if (edits & MORE_LOGPROBS)
        make_more(&args, batch, vocab);
    run_scene(call_sample, &args);
}

void sample_lines(void)
{
    static const struct {
        const char *name;
        sy_noise noise;
        sy_q_order order;
    } noises[] = {{"none", SY_NOISE_NONE, SY_Q_LIST},
                  {"q-list", SY_NOISE_Q, SY_Q_LIST},
                  {"q-vocab", SY_NOISE_Q, SY_Q_VOCAB},
                  {"race", SY_NOISE_RACE, SY_Q_LIST},
                  {"cdf", SY_NOISE_CDF, SY_Q_LIST}};
    static const char *const wants[] = {"all", "token", "masked", "list", "in-place"};
    char name[128];
    for (int t = 0; t < N_FLOATS; t++)
        for (int n = 0; n < COUNT(noises); n++)
            for (int w = 0; w < COUNT(wants); w++) {
                if (w == WANT_IN_PLACE && t != 0) /* only f32 logits can become masked logits */
                    continue;
                snprintf(name, sizeof name, "sample %s noise=%s out=%s", floats[t].name, noises[n].name,
                         wants[w]);
                begin_line(name);
                for (int i = 0; i < 60; i++)
                    sample_scene(floats[t].type, noises[n].noise, noises[n].order, (enum want)w, 0);
                end_line();
            }
    for (int t = 0; t < N_FLOATS; t++)
        for (int n = 0; n < COUNT(noises); n++) {
            snprintf(name, sizeof name, "sample %s noise=%s barred", floats[t].name, noises[n].name);
            begin_line(name);
            for (int i = 0; i < 60; i++)
                sample_scene(floats[t].type, noises[n].noise, noises[n].order, (enum want)(i % WANT_IN_PLACE),
                             BARRED);
            end_line();
        }
    for (int t = 0; t < N_FLOATS; t++)
        for (int n = 0; n < COUNT(noises); n++) {
            snprintf(name, sizeof name, "sample %s noise=%s overridden", floats[t].name, noises[n].name);
            begin_line(name);
            for (int i = 0; i < 60; i++)
                sample_scene(floats[t].type, noises[n].noise, noises[n].order, (enum want)(i % WANT_IN_PLACE),
                             i % 3 ? OVERRIDDEN : OVERRIDDEN | BARRED);
            end_line();
        }
    for (int t = 0; t < N_FLOATS; t++)
        for (int n = 0; n < COUNT(noises); n++) {
            snprintf(name, sizeof name, "sample %s noise=%s log-probabilities", floats[t].name,
                     noises[n].name);
            begin_line(name);
            for (int i = 0; i < 60; i++)
                sample_scene(floats[t].type, noises[n].noise, noises[n].order, (enum want)(i % WANT_IN_PLACE),
                             MORE_LOGPROBS | (unsigned)(i % 4 < 2    ? 0
                                                        : i % 4 == 2 ? BARRED
                                                                     : OVERRIDDEN));
            end_line();
        }
}
