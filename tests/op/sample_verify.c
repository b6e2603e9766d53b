/*
 * sample_verify: random calls against the oracle, with overrides of draft rows against theirs; and the guarantee that no
 * draft changes a token, with models that are functions of the tokens before.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample.h"
#include "oracle/sample_overrides.h"
#include "oracle/sample_verify.h"

enum { REQUESTS = 4, ROWS = 7, ALL = REQUESTS * ROWS, VOCAB = 40, LIST = 8, SEQS = 4, LENGTH = 20, TOP = 3 };

static sy_ctx *contexts[3];

static int open_contexts(void **state)
{
    (void)state;
    contexts[0] = test_ctx(1, NULL);
    contexts[1] = test_ctx(3, NULL);
    contexts[2] = test_ctx(2, test_on_device() ? NULL : "scalar");
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        sy_ctx_destroy(contexts[i]);
    return 0;
}

/* ---- Requests ------------------------------------------------------------------------------------------------ */

/* What requests share, and what each of them has. */
struct rules {
    DLDataType type;
    int64_t vocab;
    sy_noise noise;
    sy_logprob logprob;
    sy_history_scope scope;
    bool edits, strict_seq; /* with overrides; sequences without a bias */
    int64_t n_seqs, n_stop, n_seq[SEQS], seq[SEQS][3], stop[2];
    float seq_bias[SEQS];
};

struct request {
    uint64_t model, seed, offset;
    uint32_t stream;
    int64_t k, min_tokens, n_prompt, n_bias, n_out;
    float p, min_p, temperature, repetition, frequency, presence, bias[LIST];
    int64_t prompt[LIST], bias_token[LIST], out[LENGTH + ROWS];
};

static float of_type(DLDataType type, double x)
{
    return type.bits == 32 ? (float)x
                           : (float)(type.code == 4 ? bf16_value(bf16_round(x)) : f16_value(f16_round(x)));
}

static void put_number(DLDataType type, unsigned char *to, int64_t i, float x)
{
    const uint16_t half = type.code == 4 ? bf16_round((double)x) : f16_round((double)x);
    memcpy(to + (size_t)i * type_bytes(type), type.bits == 32 ? (const void *)&x : (const void *)&half,
           type_bytes(type));
}

static void random_rules(struct rules *r, uint64_t *rng)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const sy_noise noises[] = {SY_NOISE_NONE, SY_NOISE_RACE, SY_NOISE_CDF, SY_NOISE_CDF};
    memset(r, 0, sizeof *r);
    r->type = types[rng_below(rng, 3)];
    r->vocab = 2 + rng_below(rng, VOCAB - 1);
    r->noise = noises[rng_below(rng, 4)];
    r->logprob = (sy_logprob)rng_below(rng, 3);
    r->scope = (sy_history_scope)rng_below(rng, 2);
    r->edits = rng_below(rng, 4) != 0;
    r->strict_seq = rng_below(rng, 2) != 0;
    r->n_seqs = rng_below(rng, SEQS + 1);
    r->n_stop = rng_below(rng, 3);
    for (int s = 0; s < SEQS; s++) {
        r->n_seq[s] = 1 + rng_below(rng, 3);
        r->seq_bias[s] = rng_below(rng, 3) ? (float)(rng_below(rng, 9) - 4) : -INFINITY;
        for (int i = 0; i < 3; i++)
            r->seq[s][i] = rng_below(rng, r->vocab < 4 ? r->vocab : 4);
    }
    for (int i = 0; i < 2; i++)
        r->stop[i] = rng_below(rng, r->vocab);
}

static void random_request(const struct rules *r, struct request *q, uint64_t *rng)
{
    memset(q, 0, sizeof *q);
    q->model = rng_u64(rng);
    q->seed = rng_u64(rng);
    q->offset = rng_below(rng, 9) ? rng_u64(rng) >> 40 : UINT64_MAX - 2; /* it may wrap */
    q->stream = (uint32_t)rng_u64(rng);
    q->k = rng_below(rng, 2) ? 0 : 1 + rng_below(rng, 6);
    q->p = rng_below(rng, 2) ? 1 : (float)rng_unit(rng);
    q->min_p = rng_below(rng, 3) ? 0 : .05f;
    q->temperature = rng_below(rng, 3) ? .75f : rng_below(rng, 2) ? 0 : 1.5f;
    q->repetition = rng_below(rng, 2) ? 1 : 1.25f;
    q->frequency = rng_below(rng, 2) ? 0 : .375f;
    q->presence = rng_below(rng, 2) ? 0 : .5f;
    q->min_tokens = rng_below(rng, 9);
    q->n_prompt = rng_below(rng, LIST + 1);
    q->n_bias = rng_below(rng, 4);
    for (int i = 0; i < LIST; i++) {
        q->prompt[i] = rng_below(rng, r->vocab < 5 ? r->vocab : 5);
        q->bias_token[i] = rng_below(rng, r->vocab);
        q->bias[i] = rng_below(rng, 5) ? (float)(rng_below(rng, 9) - 4) : -INFINITY;
    }
}

/* The model: a number for each token after a text. Some of them are equal, and now and then one is no number. */
static float model(const struct rules *r, const struct request *q, int64_t n, int64_t token)
{
    uint64_t state = q->model + (uint64_t)q->n_prompt;
    for (int64_t i = 0; i < n; i++)
        state = rng_u64(&state) ^ (uint64_t)q->out[i];
    state += (uint64_t)token * 0x9e3779b97f4a7c15u;
    const uint64_t h = rng_u64(&state) >> 20;
    return h % 200 == 0   ? NAN
           : h % 200 == 1 ? INFINITY
           : h % 200 < 5  ? -INFINITY
                          : of_type(r->type, (double)(h % 129) / 8 - 8);
}

static void put_row(const struct rules *r, const struct request *q, int64_t n, unsigned char *logits,
                    float *x, int64_t row)
{
    for (int64_t t = 0; t < r->vocab; t++) {
        const float value = model(r, q, n, t);
        put_number(r->type, logits, row * r->vocab + t, value);
        if (x != NULL)
            x[row * r->vocab + t] = value;
    }
}

/* ---- Calls --------------------------------------------------------------------------------------------------- */

/* Rows of some requests, as a call has them. */
struct batch {
    int64_t n, rows, most, each; /* each: rows of every request; 0: not the same */
    int64_t first[REQUESTS + 1], parent[ALL], draft[ALL];
    bool tree, short_form, wide;
    unsigned char logits[ALL * VOCAB * 4];
};

/* Overrides of a batch. */
struct edits {
    int64_t room, indptr[ALL + 1];
    int32_t token[4096];
    float logit[4096];
};

/* A tensor and its numbers, for as long as a call needs them. */
struct held {
    DLTensor t;
    int64_t shape[3];
    unsigned char data[2048];
};

static const DLTensor *hold_ints(struct held *h, bool wide, int rank, int64_t d0, int64_t d1,
                                 const int64_t *values)
{
    h->shape[0] = d0;
    h->shape[1] = d1;
    h->t = sy_tensor(h->data, wide ? SY_I64 : SY_I32, rank, h->shape);
    for (int64_t i = 0; i < d0 * (rank > 1 ? d1 : 1); i++)
        memcpy(h->data + i * (wide ? 8 : 4), &values[i], wide ? 8 : 4);
    return &h->t;
}

static const DLTensor *hold_floats(struct held *h, int64_t n, const float *values)
{
    h->shape[0] = n;
    h->t = sy_tensor(h->data, SY_F32, 1, h->shape);
    memcpy(h->data, values, (size_t)n * 4);
    return &h->t;
}

struct drafts_held {
    struct held logits, lens, draft, parent;
};

/* The rows of a batch, ragged or dense, in the fields of either operator. */
static void hold_rows(struct drafts_held *h, const struct rules *r, const struct batch *b,
                      const DLTensor **logits, const DLTensor **lens, const DLTensor **draft,
                      const DLTensor **parent)
{
    const int64_t dense[] = {b->n, b->each, r->vocab}, ragged[] = {b->rows, r->vocab};
    int64_t without[ALL];
    memcpy(h->logits.shape, b->each > 0 ? dense : ragged, b->each > 0 ? sizeof dense : sizeof ragged);
    h->logits.t = sy_tensor((void *)(uintptr_t)b->logits, r->type, b->each > 0 ? 3 : 2, h->logits.shape);
    *logits = &h->logits.t;
    if (b->each == 0)
        *lens = hold_ints(&h->lens, b->wide, 1, b->n + 1, 0, b->first);
    for (int64_t i = 0, at = 0; i < b->rows; i++)
        if (b->each > 0 && i % b->each != 0)
            without[at++] = b->draft[i];
    if (b->each > 0 && b->short_form)
        *draft = hold_ints(&h->draft, b->wide, 2, b->n, b->each - 1, without);
    else
        *draft = hold_ints(&h->draft, !b->wide, b->each > 0 ? 2 : 1, b->each > 0 ? b->n : b->rows, b->each,
                           b->draft);
    if (b->tree)
        *parent = hold_ints(&h->parent, b->wide, b->each > 0 ? 2 : 1, b->each > 0 ? b->n : b->rows, b->each,
                            b->parent);
}

/* Tokens of a request; an empty row, which is the last, gave none. */
static int64_t texts(const struct request *q)
{
    return q->n_out - (q->n_out > 0 && q->out[q->n_out - 1] < 0);
}

/* Overrides of the rows of a batch, or, without drafts, of one row of each request. */
static void call_overrides(sy_ctx *ctx, const struct rules *r, const struct request *const *q,
                           const struct batch *b, bool drafts, struct edits *to)
{
    static struct held h[16];
    static struct drafts_held rows;
    int64_t ends[4][REQUESTS + 1] = {{0}}, token[3][REQUESTS * (LENGTH + ROWS)], seq[SEQS * 3],
                               numbers[REQUESTS];
    float bias[REQUESTS * LIST], penalty[3][REQUESTS];
    const int64_t *lists[] = {ends[0], ends[1], ends[2]};
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t *from[] = {q[i]->prompt, q[i]->out, q[i]->bias_token},
                      n[] = {q[i]->n_prompt, texts(q[i]), q[i]->n_bias};
        memcpy(bias + ends[2][i], q[i]->bias, (size_t)n[2] * 4);
        for (int l = 0; l < 3; l++) {
            memcpy(token[l] + ends[l][i], from[l], (size_t)n[l] * 8);
            ends[l][i + 1] = ends[l][i] + n[l];
        }
        penalty[0][i] = q[i]->repetition;
        penalty[1][i] = q[i]->frequency;
        penalty[2][i] = q[i]->presence;
        numbers[i] = q[i]->min_tokens;
    }
    for (int64_t s = 0, at = 0; s < r->n_seqs; s++) {
        memcpy(seq + at, r->seq[s], (size_t)r->n_seq[s] * 8);
        at += r->n_seq[s];
        ends[3][s + 1] = at;
    }
    sy_sample_overrides_args a = {
        .prompt_indptr = hold_ints(&h[0], b->wide, 1, b->n + 1, 0, lists[0]),
        .prompt_token = hold_ints(&h[1], !b->wide, 1, ends[0][b->n], 0, token[0]),
        .output_indptr = hold_ints(&h[2], b->wide, 1, b->n + 1, 0, lists[1]),
        .output_token = hold_ints(&h[3], !b->wide, 1, ends[1][b->n], 0, token[1]),
        .bias_indptr = hold_ints(&h[4], b->wide, 1, b->n + 1, 0, lists[2]),
        .bias_token = hold_ints(&h[5], !b->wide, 1, ends[2][b->n], 0, token[2]),
        .bias = hold_floats(&h[6], ends[2][b->n], bias),
        .repetition_penalty = hold_floats(&h[7], b->n, penalty[0]),
        .frequency_penalty = hold_floats(&h[8], b->n, penalty[1]),
        .presence_penalty = hold_floats(&h[9], b->n, penalty[2]),
        .min_tokens = r->n_stop > 0 ? hold_ints(&h[10], b->wide, 1, b->n, 0, numbers) : NULL,
        .stop_token = r->n_stop > 0 ? hold_ints(&h[11], b->wide, 1, r->n_stop, 0, r->stop) : NULL,
        .seq_indptr = r->n_seqs > 0 ? hold_ints(&h[12], b->wide, 1, r->n_seqs + 1, 0, ends[3]) : NULL,
        .seq_token = r->n_seqs > 0 ? hold_ints(&h[13], b->wide, 1, ends[3][r->n_seqs], 0, seq) : NULL,
        .seq_bias = r->n_seqs > 0 && !r->strict_seq ? hold_floats(&h[14], r->n_seqs, r->seq_bias) : NULL,
        .history_scope = r->scope,
        .max_rows = b->most};
    sy_query query;
    if (drafts)
        hold_rows(&rows, r, b, &a.logits, &a.cu_lens, &a.draft_token, &a.parent);
    else {
        h[15].shape[0] = b->n;
        h[15].shape[1] = r->vocab;
        h[15].t = sy_tensor((void *)(uintptr_t)b->logits, r->type, 2, h[15].shape);
        a.logits = &h[15].t;
    }
    expect_status(ctx, sy_sample_overrides_query(ctx, &a, &query), SY_OK);
    assert_true(query.rows <= (int64_t)COUNT_OF(to->token));
    to->room = query.rows;
    const DLTensor indptr = sy_tensor(to->indptr, SY_I64, 1, (int64_t[]){drafts ? b->rows + 1 : b->n + 1}),
                   tokens = sy_tensor(to->token, SY_I32, 1, &to->room),
                   logits = sy_tensor(to->logit, SY_F32, 1, &to->room);
    a.override_indptr = &indptr;
    a.override_token = &tokens;
    a.override_logit = &logits;
    expect_status(ctx, sy_sample_overrides(ctx, &a), SY_OK);
}

/* Outputs, by row or slot, whatever the form of the call. */
struct outputs {
    int32_t accepted[REQUESTS], count[REQUESTS], path[ALL], rank[ALL];
    int64_t token[ALL], next[REQUESTS], top[ALL * TOP];
    uint8_t mask[ALL];
    uint32_t flags[ALL];
    float logprob[ALL], top_logprob[ALL * TOP];
};

static int64_t n_top(const struct rules *r)
{
    return r->vocab < TOP ? r->vocab : TOP;
}

static void call_verify(sy_ctx *ctx, const struct rules *r, const struct request *const *q,
                        const struct batch *b, struct edits *edits, struct outputs *out)
{
    static struct held h[8];
    static struct drafts_held rows;
    int64_t k[REQUESTS], offset[REQUESTS], seed[REQUESTS], stream[REQUESTS];
    float p[REQUESTS], min_p[REQUESTS], t[REQUESTS];
    for (int64_t i = 0; i < b->n; i++) {
        k[i] = q[i]->k;
        offset[i] = (int64_t)(q[i]->offset + (uint64_t)q[i]->n_out);
        seed[i] = (int64_t)q[i]->seed;
        stream[i] = q[i]->stream;
        p[i] = q[i]->p;
        min_p[i] = q[i]->min_p;
        t[i] = q[i]->temperature;
    }
    const int rank = b->each > 0 ? 2 : 1;
    int64_t slots[] = {b->each > 0 ? b->n : b->rows, b->each > 0 ? b->each : n_top(r), n_top(r)},
            ends = b->rows + 1, requests = b->n;
    const bool logprobs = r->logprob != SY_LOGPROB_NONE;
    memset(out, 0xA5, sizeof *out);
    const DLTensor override_indptr = sy_tensor(edits->indptr, SY_I64, 1, &ends),
                   override_token = sy_tensor(edits->token, SY_I32, 1, &edits->room),
                   override_logit = sy_tensor(edits->logit, SY_F32, 1, &edits->room),
                   accepted = sy_tensor(out->accepted, SY_I32, 1, &requests),
                   count = sy_tensor(out->count, SY_I32, 1, &requests),
                   next = sy_tensor(out->next, SY_I64, 1, &requests),
                   token = sy_tensor(out->token, SY_I64, rank, slots),
                   path = sy_tensor(out->path, SY_I32, rank, slots),
                   mask = sy_tensor(out->mask, SY_U8, rank, slots),
                   flags = sy_tensor(out->flags, SY_U32, rank, slots),
                   logprob = sy_tensor(out->logprob, SY_F32, rank, slots),
                   ranks = sy_tensor(out->rank, SY_I32, rank, slots),
                   top = sy_tensor(out->top, SY_I64, rank + 1, slots),
                   top_logprob = sy_tensor(out->top_logprob, SY_F32, rank + 1, slots);
    sy_sample_verify_args a = {.temperature = hold_floats(&h[0], b->n, t),
                               .top_k = hold_ints(&h[1], b->wide, 1, b->n, 0, k),
                               .top_p = hold_floats(&h[2], b->n, p),
                               .min_p = hold_floats(&h[3], b->n, min_p),
                               .seed = hold_ints(&h[4], true, 1, b->n, 0, seed),
                               .offset = hold_ints(&h[5], true, 1, b->n, 0, offset),
                               .stream = hold_ints(&h[6], true, 1, b->n, 0, stream),
                               .stop_token =
                                   r->n_stop > 0 ? hold_ints(&h[7], b->wide, 1, r->n_stop, 0, r->stop) : NULL,
                               .noise = r->noise,
                               .logprob_mode = r->logprob,
                               .accepted = &accepted,
                               .count = &count,
                               .token = &token,
                               .next_token = &next,
                               .path = &path,
                               .accept_mask = &mask,
                               .row_flags = &flags,
                               .logprob = logprobs ? &logprob : NULL,
                               .rank = logprobs ? &ranks : NULL,
                               .top_token = logprobs ? &top : NULL,
                               .top_logprob = logprobs ? &top_logprob : NULL};
    hold_rows(&rows, r, b, &a.logits, &a.cu_lens, &a.draft_token, &a.parent);
    if (r->edits) {
        a.override_indptr = &override_indptr;
        a.override_token = &override_token;
        a.override_logit = &override_logit;
    }
    expect_status(ctx, sy_sample_verify(ctx, &a), SY_OK);
}

/* ---- Against the oracle ---------------------------------------------------------------------------------------- */

/* What the rows of a batch would give, and the overrides they have. */
struct truth {
    struct edits edits;
    int64_t picked[ALL], top[ALL * TOP];
    bool empty[ALL];
    uint32_t flags[ALL];
    float logprob[ALL], top_logprob[ALL * TOP];
    int32_t rank[ALL];
};

/* One row after the drafts in q->out. */
static void find_row(const struct rules *r, const struct request *q, int64_t row, const float *x, bool dead,
                     int64_t before, struct truth *want)
{
    static float changed[VOCAB], prob[VOCAB], masked[VOCAB];
    static int64_t list[VOCAB];
    const int64_t *seq[SEQS];
    int64_t *const at = &want->edits.indptr[row];
    for (int s = 0; s < SEQS; s++)
        seq[s] = r->seq[s];
    const struct overrides_row edit = {r->vocab,
                                       q->n_prompt,
                                       q->n_out,
                                       q->n_bias,
                                       x,
                                       q->prompt,
                                       q->out,
                                       q->bias_token,
                                       q->bias,
                                       q->repetition,
                                       q->frequency,
                                       q->presence,
                                       r->n_seqs,
                                       r->n_stop,
                                       r->n_stop > 0 ? q->min_tokens : 0,
                                       seq,
                                       r->n_seq,
                                       r->stop,
                                       r->strict_seq ? NULL : r->seq_bias,
                                       r->scope == SY_HISTORY_OUTPUT};
    memcpy(changed, x, (size_t)r->vocab * 4);
    at[1] = at[0];
    if (!dead)
        at[1] +=
            oracle_sample_overrides(&edit, want->edits.token + at[0], want->edits.logit + at[0], changed);
    const struct oracle_sample_row of = {.x = r->edits ? changed : x,
                                         .raw = x,
                                         .vocab = r->vocab,
                                         .k = q->k,
                                         .p = q->p,
                                         .min_p = q->min_p,
                                         .temperature = q->temperature,
                                         .seed = q->seed,
                                         .offset =
                                             q->offset + (uint64_t)before + (uint64_t)(q->n_out - before),
                                         .stream = q->stream,
                                         .noise = r->noise,
                                         .logprob_mode = r->logprob,
                                         .n_top = r->logprob != SY_LOGPROB_NONE ? n_top(r) : 0};
    struct oracle_sample_result got = {.list = list,
                                       .prob = prob,
                                       .masked = masked,
                                       .top = want->top + row * n_top(r),
                                       .top_logprob = want->top_logprob + row * n_top(r)};
    oracle_sample_row(&of, &got);
    want->picked[row] = got.token;
    want->empty[row] = (got.flags & SY_ROW_EMPTY) != 0;
    want->flags[row] = got.flags;
    want->logprob[row] = got.logprob;
    want->rank[row] = got.rank;
}

/* Rows of requests whose drafts are, mostly, what the row before gives. */
static void random_batch(const struct rules *r, struct request *q, struct batch *b, struct truth *want,
                         uint64_t *rng)
{
    static float x[ALL * VOCAB];
    memset(b, 0, sizeof *b);
    b->n = rng_below(rng, REQUESTS + 1);
    b->each = rng_below(rng, 2) ? 1 + rng_below(rng, ROWS) : 0;
    b->tree = rng_below(rng, 2) != 0;
    b->short_form = rng_below(rng, 2) != 0;
    b->wide = rng_below(rng, 2) != 0;
    b->most = ROWS;
    for (int64_t i = 0; i < b->n; i++)
        b->first[i + 1] = b->first[i] + (b->each > 0 ? b->each : rng_below(rng, ROWS + 1));
    b->rows = b->first[b->n] + (b->each > 0 || b->n == REQUESTS ? 0 : rng_below(rng, 3));
    for (int64_t i = 0, row = 0; row < b->rows; row++) {
        while (i < b->n && row >= b->first[i + 1])
            i++;
        if (i == b->n) { /* of no request: anything */
            put_row(r, &q[0], 0, b->logits, x, row);
            b->draft[row] = b->parent[row] = -7;
            want->edits.indptr[row + 1] = want->edits.indptr[row];
            continue;
        }
        const int64_t local = row - b->first[i], before = q[i].n_out;
        const int64_t up = !b->tree ? local - 1 : local > 0 ? rng_below(rng, local) : 0;
        int64_t path[ROWS], n = 0;
        bool dead = false;
        b->parent[row] = local == 0 ? -3 : up;
        b->draft[row] = local == 0              ? 1000
                        : rng_below(rng, 8) > 1 ? want->picked[b->first[i] + up]
                        : rng_below(rng, 4)     ? rng_below(rng, r->vocab)
                                                : -1;
        for (int64_t at = local; at > 0; at = b->parent[b->first[i] + at])
            path[n++] = b->draft[b->first[i] + at];
        for (int64_t j = 0; j < n; j++) {
            q[i].out[before + j] = path[n - 1 - j];
            dead = dead || path[n - 1 - j] < 0;
        }
        q[i].n_out = before + n;
        put_row(r, &q[i], q[i].n_out, b->logits, x, row);
        find_row(r, &q[i], row, x + row * r->vocab, dead, before, want);
        q[i].n_out = before;
    }
}

static void expect_outputs(const struct rules *r, const struct batch *b, const struct truth *want,
                           const struct outputs *got)
{
    const bool logprobs = r->logprob != SY_LOGPROB_NONE;
    for (int64_t i = 0; i <= b->n; i++) {
        const int64_t first = b->first[i], rows = (i < b->n ? b->first[i + 1] : b->rows) - first;
        int64_t path[ALL];
        bool mask[ALL];
        const struct verify_request of = {i < b->n ? rows : 0,
                                          b->tree ? b->parent + first : NULL,
                                          b->draft + first,
                                          want->picked + first,
                                          want->empty + first,
                                          r->n_stop,
                                          r->stop};
        struct verify_result is = {0, 0, path, mask};
        oracle_sample_verify(&of, &is);
        for (int64_t s = 0; s < rows; s++) {
            const bool on = s < is.count;
            const int64_t row = on ? first + path[s] : 0, slot = first + s;
            assert_int_equal(got->token[slot], on ? want->picked[row] : -1);
            assert_int_equal(got->path[slot], on ? path[s] : -1);
            assert_int_equal(got->mask[slot], of.n > 0 && mask[s]);
            assert_int_equal(got->flags[slot], on ? want->flags[row] : 0);
            if (!logprobs)
                continue;
            const float nothing = 0;
            expect_bytes(&got->logprob[slot], on ? &want->logprob[row] : &nothing, 4);
            assert_int_equal(got->rank[slot], on ? want->rank[row] : 0);
            for (int64_t j = 0; j < n_top(r); j++) {
                assert_int_equal(got->top[slot * n_top(r) + j], on ? want->top[row * n_top(r) + j] : -1);
                const float least = -INFINITY;
                expect_bytes(&got->top_logprob[slot * n_top(r) + j],
                             on ? &want->top_logprob[row * n_top(r) + j] : &least, 4);
            }
        }
        if (i == b->n)
            break;
        assert_int_equal(got->accepted[i], is.accepted);
        assert_int_equal(got->count[i], is.count);
        assert_int_equal(got->next[i], is.count > 0 ? want->picked[first + path[is.count - 1]] : -1);
    }
}

/* The calls were hard: drafts that match and that do not, whole paths, requests without rows, rows without candidates. */
static void random_calls(void **state)
{
    static struct batch b;
    static struct truth want;
    static struct edits edits;
    static struct outputs got;
    static struct request q[REQUESTS];
    const struct request *of[REQUESTS] = {&q[0], &q[1], &q[2], &q[3]};
    uint64_t rng = *(const uint64_t *)*state;
    int64_t accepted = 0, whole = 0, inactive = 0, empty = 0, edited = 0;
    for (int call = 0; call < (test_on_device() ? 8 : 400); call++) {
        struct rules r;
        random_rules(&r, &rng);
        for (int i = 0; i < REQUESTS; i++) {
            random_request(&r, &q[i], &rng);
            q[i].n_out = rng_below(&rng, LENGTH);
            for (int64_t j = 0; j < q[i].n_out; j++)
                q[i].out[j] = rng_below(&rng, r.vocab < 5 ? r.vocab : 5);
        }
        memset(&want, 0, sizeof want);
        random_batch(&r, q, &b, &want, &rng);
        for (size_t c = 0; c < COUNT_OF(contexts); c++) {
            const size_t n = (size_t)want.edits.indptr[b.rows];
            call_overrides(contexts[c], &r, of, &b, true, &edits);
            expect_bytes(edits.indptr, want.edits.indptr, ((size_t)b.rows + 1) * 8);
            expect_bytes(edits.token, want.edits.token, n * 4);
            expect_bytes(edits.logit, want.edits.logit, n * 4);
            call_verify(contexts[c], &r, of, &b, &edits, &got);
            if (b.n > 0)
                expect_outputs(&r, &b, &want, &got);
        }
        edited += want.edits.indptr[b.rows];
        for (int64_t i = 0; i < b.n; i++) {
            accepted += got.accepted[i];
            whole += got.accepted[i] == ROWS - 1;
            inactive += got.count[i] == 0;
            empty += got.count[i] > 0 && got.next[i] < 0;
        }
    }
    if (!test_on_device())
        assert_true(accepted > 500 && whole > 2 && inactive > 5 && empty > 1 && edited > 5000);
}

/* ---- No draft changes a token ------------------------------------------------------------------------------------ */

/* The tokens of a request, one call of sample for each. */
static void decode(sy_ctx *ctx, const struct rules *r, struct request *q)
{
    static struct batch b;
    static struct edits edits;
    const struct request *of[] = {q};
    int64_t shape[] = {1, r->vocab}, one = 1, ends = 2, k = q->k, seed = (int64_t)q->seed, stream = q->stream,
            picked = 0;
    bool stopped = false;
    memset(&b, 0, sizeof b);
    b.n = b.most = 1;
    for (q->n_out = 0; q->n_out < LENGTH && !stopped && picked >= 0; q->out[q->n_out++] = picked) {
        int64_t offset = (int64_t)(q->offset + (uint64_t)q->n_out);
        put_row(r, q, q->n_out, b.logits, NULL, 0);
        if (r->edits)
            call_overrides(ctx, r, of, &b, false, &edits);
        const DLTensor logits = sy_tensor(b.logits, r->type, 2, shape),
                       indptr = sy_tensor(edits.indptr, SY_I64, 1, &ends),
                       token = sy_tensor(edits.token, SY_I32, 1, &edits.room),
                       logit = sy_tensor(edits.logit, SY_F32, 1, &edits.room),
                       top_k = sy_tensor(&k, SY_I64, 1, &one), top_p = sy_tensor(&q->p, SY_F32, 1, &one),
                       min_p = sy_tensor(&q->min_p, SY_F32, 1, &one),
                       t = sy_tensor(&q->temperature, SY_F32, 1, &one),
                       seeds = sy_tensor(&seed, SY_I64, 1, &one), step = sy_tensor(&offset, SY_I64, 1, &one),
                       streams = sy_tensor(&stream, SY_I64, 1, &one),
                       out = sy_tensor(&picked, SY_I64, 1, &one);
        const sy_sample_args a = {.logits = &logits,
                                  .top_k = &top_k,
                                  .top_p = &top_p,
                                  .min_p = &min_p,
                                  .temperature = &t,
                                  .seed = &seeds,
                                  .offset = &step,
                                  .stream = &streams,
                                  .override_indptr = r->edits ? &indptr : NULL,
                                  .override_token = r->edits ? &token : NULL,
                                  .override_logit = r->edits ? &logit : NULL,
                                  .noise = r->noise,
                                  .token = &out};
        expect_status(ctx, sy_sample(ctx, &a), SY_OK);
        for (int64_t i = 0; i < r->n_stop; i++)
            stopped = stopped || picked == r->stop[i];
    }
}

/* Whether more tokens follow: a stop token is the last, and so is that of an empty row. */
static bool goes_on(const struct rules *r, const struct request *q)
{
    const int64_t last = q->n_out > 0 ? q->out[q->n_out - 1] : 0;
    bool stopped = q->n_out > 0 && last < 0;
    for (int64_t i = 0; q->n_out > 0 && i < r->n_stop; i++)
        stopped = stopped || last == r->stop[i];
    return q->n_out < LENGTH && !stopped;
}

/* Rows of a request for the next call, with drafts from its plain tokens or from nowhere. */
static void draft(const struct rules *r, struct request *q, const struct request *plain, struct batch *b,
                  int64_t i, uint64_t *rng)
{
    const int64_t first = b->first[i], before = q->n_out, n = goes_on(r, q) ? 1 + rng_below(rng, ROWS) : 0;
    b->first[i + 1] = first + n;
    for (int64_t local = 0; local < n; local++) {
        const int64_t row = first + local, up = b->tree && local > 0 ? rng_below(rng, local) : local - 1;
        int64_t path[ROWS], depth = 0;
        b->parent[row] = up;
        for (int64_t at = up; at > 0; at = b->parent[first + at])
            depth++;
        const int64_t next = before + depth;
        b->draft[row] = local == 0                                 ? 0
                        : next < plain->n_out && rng_below(rng, 5) ? plain->out[next]
                                                                   : rng_below(rng, r->vocab);
        depth = 0;
        for (int64_t at = local; at > 0; at = b->parent[first + at])
            path[depth++] = b->draft[first + at];
        for (int64_t j = 0; j < depth; j++)
            q->out[before + j] = path[depth - 1 - j];
        put_row(r, q, before + depth, b->logits, NULL, row);
    }
}

static void drafts_change_nothing(void **state)
{
    static struct request plain[REQUESTS], q[REQUESTS];
    static struct batch b;
    static struct edits edits;
    static struct outputs got;
    const struct request *of[REQUESTS] = {&q[0], &q[1], &q[2], &q[3]};
    uint64_t rng = *(const uint64_t *)*state;
    int64_t tokens = 0, calls = 0;
    for (int round = 0; round < (test_on_device() ? 1 : 100); round++) {
        struct rules r;
        sy_ctx *const ctx = contexts[rng_below(&rng, COUNT_OF(contexts))];
        random_rules(&r, &rng);
        for (int i = 0; i < REQUESTS; i++) {
            random_request(&r, &plain[i], &rng);
            q[i] = plain[i];
            decode(contexts[0], &r, &plain[i]);
        }
        for (bool more = true; more; calls++) {
            memset(&b, 0, sizeof b);
            b.n = REQUESTS;
            b.most = ROWS;
            b.tree = rng_below(&rng, 2) != 0;
            for (int64_t i = 0; i < REQUESTS; i++)
                draft(&r, &q[i], &plain[i], &b, i, &rng);
            b.rows = b.first[REQUESTS];
            if (r.edits)
                call_overrides(ctx, &r, of, &b, true, &edits);
            call_verify(ctx, &r, of, &b, &edits, &got);
            more = false;
            for (int64_t i = 0; i < REQUESTS; i++) {
                memcpy(q[i].out + q[i].n_out, got.token + b.first[i],
                       (size_t)got.count[i] * sizeof *got.token);
                q[i].n_out += got.count[i];
                tokens += got.count[i];
                more = more || goes_on(&r, &q[i]);
            }
        }
        for (int i = 0; i < REQUESTS; i++) {
            assert_true(q[i].n_out >= plain[i].n_out);
            expect_bytes(q[i].out, plain[i].out, (size_t)plain[i].n_out * sizeof *plain[i].out);
        }
    }
    assert_true(tokens > 3 * calls); /* of four requests: more than without drafts */
}

/* ---- One parameter of requests ----------------------------------------------------------------------------------- */

/* Requests without drafts are rows of sample, whichever parameter is the only one that differs between them. */
static void without_drafts(void **state)
{
    (void)state;
    enum { N = 64, V = 40, MOST = 4 };
    static float logits[N * V], number[N], logprob[2][N * MOST];
    static int64_t k[N], top[2][N * MOST], first[N + 1], draft_token[N];
    int64_t shape[] = {N, V}, many = N, ends = N + 1, tops[] = {N, MOST};
    uint64_t rng = 5;
    sy_ctx *const ctx = test_ctx(2, NULL);
    for (int i = 0; i < N * V; i++)
        logits[i] = (float)rng_below(&rng, 100) / 8;
    for (int i = 0; i < N; i++) {
        k[i] = 1 + i % 9;
        draft_token[i] = -1;
        number[i] = (float)(1 + i % 9) / 10;
        first[i + 1] = i + 1;
    }
    const DLTensor x = sy_tensor(logits, SY_F32, 2, shape), numbers = sy_tensor(number, SY_F32, 1, &many),
                   ks = sy_tensor(k, SY_I64, 1, &many), ends_of = sy_tensor(first, SY_I64, 1, &ends),
                   drafts = sy_tensor(draft_token, SY_I64, 1, &many);
    for (int given = 0; given < 4; given++) {
        const DLTensor *const top_k = given == 0 ? &ks : NULL, *const top_p = given == 1 ? &numbers : NULL,
                              *const min_p = given == 2 ? &numbers : NULL,
                              *const t = given == 3 ? &numbers : NULL;
        DLTensor top_token[2], top_logprob[2];
        for (int i = 0; i < 2; i++) {
            top_token[i] = sy_tensor(top[i], SY_I64, 2, tops);
            top_logprob[i] = sy_tensor(logprob[i], SY_F32, 2, tops);
        }
        memset(top, 0xA5, sizeof top);
        expect_status(ctx,
                      sy_sample(ctx, &(sy_sample_args){.logits = &x,
                                                       .top_k = top_k,
                                                       .top_p = top_p,
                                                       .min_p = min_p,
                                                       .temperature = t,
                                                       .logprob_mode = SY_LOGPROB_FINAL,
                                                       .top_token = &top_token[0],
                                                       .top_logprob = &top_logprob[0]}),
                      SY_OK);
        expect_status(ctx,
                      sy_sample_verify(ctx, &(sy_sample_verify_args){.logits = &x,
                                                                     .top_k = top_k,
                                                                     .top_p = top_p,
                                                                     .min_p = min_p,
                                                                     .temperature = t,
                                                                     .cu_lens = &ends_of,
                                                                     .draft_token = &drafts,
                                                                     .logprob_mode = SY_LOGPROB_FINAL,
                                                                     .top_token = &top_token[1],
                                                                     .top_logprob = &top_logprob[1]}),
                      SY_OK);
        assert_memory_equal(top[1], top[0], sizeof top[0]);
        assert_memory_equal(logprob[1], logprob[0], sizeof logprob[0]);
    }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static uint64_t seeds[] = {11, 12};
    struct test_list list = {0};
    test_lend_what_is_asked();
    test_add(&list, "without drafts", without_drafts, NULL);
    for (size_t i = 0; i < (test_on_device() ? 1 : COUNT_OF(seeds)); i++) {
        test_add(&list, test_name("random calls: seed %zu", (size_t)seeds[i]), random_calls, &seeds[i]);
        test_add(&list, test_name("drafts change nothing: seed %zu", (size_t)seeds[i]), drafts_change_nothing,
                 &seeds[i]);
    }
    const int failed =
        _cmocka_run_group_tests("op_sample_verify", list.tests, list.count, open_contexts, close_contexts);
    free(list.tests);
    return failed;
}
