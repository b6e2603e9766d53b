/*
 * sample: must move the logits, read once. The limit is a read of the same bytes.
 */
#include "sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/number.h"
#include "peers.h"

/* A case with each kind of logits that the cases above do not have. */
#define EVERY_LOGITS(batch, vocab, ...) \
    {batch, vocab, .logits = SAMPLE_ZIPF, __VA_ARGS__}, \
        {batch, vocab, .logits = SAMPLE_NORMAL, __VA_ARGS__}, \
        {batch, vocab, .logits = SAMPLE_EQUAL, __VA_ARGS__}, \
    { \
        batch, vocab, .logits = SAMPLE_TWO, __VA_ARGS__ \
    }

/* Every filter, for one type. */
#define EVERY_FILTER(batch, vocab, type) \
    EVERY_LOGITS(batch, vocab, .wide = (type), .noise = SAMPLE_GREEDY), \
        EVERY_LOGITS(batch, vocab, .wide = (type), .top_k = 50, .noise = SAMPLE_DRAW), \
        EVERY_LOGITS(batch, vocab, .wide = (type), .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW), \
        EVERY_LOGITS(batch, vocab, .wide = (type), .top_p = 0.9f, .noise = SAMPLE_DRAW), \
        EVERY_LOGITS(batch, vocab, .wide = (type), .min_p = 0.05f, .noise = SAMPLE_DRAW), \
        EVERY_LOGITS(batch, vocab, .wide = (type), .noise = SAMPLE_DRAW)

/* Every output, for one filter. */
#define EVERY_OUTPUT(batch, vocab, ...) \
    {batch, vocab, .logits = SAMPLE_ZIPF, .outputs = SAMPLE_TOKEN, __VA_ARGS__}, \
        {batch, vocab, .logits = SAMPLE_ZIPF, .outputs = SAMPLE_FLAGS_KEPT, __VA_ARGS__}, \
        {batch, vocab, .logits = SAMPLE_ZIPF, .outputs = SAMPLE_FINAL, __VA_ARGS__}, \
    { \
        batch, vocab, .logits = SAMPLE_ZIPF, .outputs = SAMPLE_RAW, __VA_ARGS__ \
    }

static const struct sample_shape full[] = {
    {48, 131072, .noise = SAMPLE_GREEDY},
    {48, 131072, .top_k = 50, .noise = SAMPLE_DRAW},
    {48, 131072, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {48, 131072, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_Q_LIST},
    {48, 131072, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_Q_VOCAB},
    {48, 131072, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW, .allow = SAMPLE_HALF},
    {48, 131072, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW, .allow = SAMPLE_FEW},
    {48, 131072, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW, .overrides = 16},
    {48, 131072, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW, .overrides = 512},
    {48, 131072, .top_p = 0.9f, .noise = SAMPLE_DRAW, .overrides = 512},
    {48, 131072, .noise = SAMPLE_DRAW, .overrides = 512},
    {48, 131072, .top_k = 1024, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {48, 131072, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {48, 131072, .logits = SAMPLE_TAIL, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {48, 131072, .logits = SAMPLE_FLAT, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {48, 131072, .noise = SAMPLE_DRAW},
    {1, 128256, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {2, 128256, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {8, 151936, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {64, 32000, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {48, 131072, .wide = true, .noise = SAMPLE_GREEDY},
    {48, 131072, .wide = true, .top_k = 50, .noise = SAMPLE_DRAW},
    {48, 131072, .wide = true, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {48, 131072, .wide = true, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    EVERY_FILTER(256, 32000, true),
    EVERY_FILTER(256, 32000, false),
    EVERY_FILTER(33, 50257, true),
    EVERY_FILTER(1, 256000, true),
    EVERY_LOGITS(512, 1000, .wide = true, .noise = SAMPLE_GREEDY),
    EVERY_LOGITS(512, 1000, .wide = true, .top_k = 50, .noise = SAMPLE_DRAW),
    EVERY_LOGITS(512, 1000, .noise = SAMPLE_GREEDY),
    EVERY_LOGITS(512, 1000, .top_k = 50, .noise = SAMPLE_DRAW),
    EVERY_OUTPUT(16, 131072, .wide = true, .noise = SAMPLE_GREEDY),
    EVERY_OUTPUT(16, 131072, .wide = true, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW),
    EVERY_OUTPUT(16, 131072, .noise = SAMPLE_GREEDY),
    EVERY_OUTPUT(16, 131072, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW),
};
static const struct sample_shape quick[] = {
    {8, 32000, .noise = SAMPLE_GREEDY},
    {8, 32000, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    {8, 32000, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_Q_LIST},
    {8, 32000, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_Q_VOCAB},
    {8, 32000, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW, .allow = SAMPLE_HALF},
    {8, 32000, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW, .overrides = 64},
    {8, 32000, .noise = SAMPLE_DRAW},
    {4, 32000, .wide = true, .logits = SAMPLE_FLAT, .top_p = 0.9f, .noise = SAMPLE_DRAW},
    EVERY_LOGITS(4, 32000, .min_p = 0.05f, .noise = SAMPLE_DRAW),
    EVERY_LOGITS(4, 1000, .wide = true, .top_k = 50, .noise = SAMPLE_DRAW),
    EVERY_OUTPUT(4, 32000, .wide = true, .top_k = 50, .top_p = 0.9f, .noise = SAMPLE_DRAW),
};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

static sy_status pick(sy_ctx *ctx, const struct sample_state *state, int64_t set, enum sample_outputs outputs)
{
    const struct sample_shape *const s = &state->shape;
    static const sy_logprob modes[] = {SY_LOGPROB_NONE, SY_LOGPROB_NONE, SY_LOGPROB_FINAL, SY_LOGPROB_RAW};
    const bool counted = outputs == SAMPLE_FLAGS_KEPT;
    const bool overrides = state->instead != NULL;
    return sy_sample(ctx,
                     &(sy_sample_args){.logits = &state->views[set],
                                       .top_k = s->top_k > 0 ? &state->top_k_view : NULL,
                                       .top_p = s->top_p > 0 ? &state->top_p_view : NULL,
                                       .min_p = s->min_p > 0 ? &state->min_p_view : NULL,
                                       .q = state->q ? &state->q_view : NULL,
                                       .q_order = s->noise == SAMPLE_Q_VOCAB ? SY_Q_VOCAB : SY_Q_LIST,
                                       .allow_bits = state->allow ? &state->allow_view : NULL,
                                       .override_indptr = overrides ? &state->override_indptr_view : NULL,
                                       .override_token = overrides ? &state->override_token_view : NULL,
                                       .override_logit = overrides ? &state->override_logit_view : NULL,
                                       .seed = s->noise == SAMPLE_DRAW ? &state->seed_view : NULL,
                                       .token = &state->token_view,
                                       .kept = counted ? &state->kept_view : NULL,
                                       .row_flags = counted ? &state->flags_view : NULL,
                                       .logprob_mode = modes[outputs],
                                       .logprob = outputs >= SAMPLE_FINAL ? &state->logprob_view : NULL});
}

/* The timed call requests the outputs of the case, mostly the token only, as an engine does. The checked call also
   requests `kept`, which may use another code path: both must return the same tokens. */
static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct sample_state *const state = opaque;
    sy_status status = pick(ctx, state, turn % state->n_sets, state->shape.outputs);
    if (status != SY_OK || turn != 0)
        return status;
    memcpy(state->alone, state->token, (size_t)state->shape.batch * sizeof *state->token);
    return pick(ctx, state, 0, SAMPLE_FLAGS_KEPT);
}

/* ---- Data -------------------------------------------------------------------------------------------- */

static void release(struct sample_state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++)
        free(state->sets[i]);
    free(state->sets);
    free(state->views);
    free(state->answers);
    free(state->list);
    free(state->ranked);
    free(state->weights);
    free(state->token);
    free(state->alone);
    free(state->kept);
    free(state->flags);
    free(state->logprob);
    free(state->q);
    free(state->allow);
    free(state->override_indptr);
    free(state->override_token);
    free(state->override_logit);
    free(state->instead);
}

static void put_logit(const struct sample_shape *s, char *row, int64_t token, double value)
{
    const float wide = (float)value;
    const uint16_t narrow = bf16_from_float(wide);
    if (s->wide)
        memcpy(row + (size_t)token * sizeof wide, &wide, sizeof wide);
    else
        memcpy(row + (size_t)token * sizeof narrow, &narrow, sizeof narrow);
}

static double make_logit(const struct sample_shape *s, uint64_t *seed)
{
    const double rank = bench_unit(seed) * (double)s->vocab, noise = bench_normal(seed);
    switch (s->logits) {
    case SAMPLE_FLAT:
        return noise;
    case SAMPLE_TAIL:
        return 12 - 1.5 * log(1 + rank) + 0.5 * noise;
    case SAMPLE_ZIPF:
        return 10 - 1.1 * log(1 + rank) - log(-log(1 - bench_unit(seed) * 0.999999));
    case SAMPLE_NORMAL:
        return 2 * noise;
    case SAMPLE_EQUAL:
        return 1.25;
    case SAMPLE_TWO:
        return noise < 0 ? -3 : 0.5;
    default:
        return 2.5 * noise;
    }
}

static void make_row(const struct sample_shape *s, char *row, uint64_t *seed)
{
    enum { PEAKS = 200 };
    for (int64_t i = 0; i < s->vocab; i++)
        put_logit(s, row, i, make_logit(s, seed));
    for (int64_t r = 0; r < PEAKS && s->logits == SAMPLE_PEAKS; r++)
        put_logit(s, row, (int64_t)(bench_unit(seed) * (double)s->vocab), 20 - 1.5 * log(1 + (double)r));
}

/* A few rows are generated, the rest are rotated copies: generating numbers is slower than the calls. */
static void fill_logits(const struct sample_state *state, int64_t set)
{
    enum { MADE = 8 };
    const struct sample_shape *const s = &state->shape;
    const size_t element = s->wide ? sizeof(float) : sizeof(uint16_t), row_bytes = (size_t)s->vocab * element;
    char *const data = state->sets[set];
    const char *const made = state->sets[0];
    uint64_t seed = 31;
    for (int64_t b = 0; b < s->batch; b++) {
        char *const row = data + (size_t)b * row_bytes;
        const char *const source = made + (size_t)(b % MADE) * row_bytes;
        const size_t turn = (size_t)((b * 1315 + set * 977 + 1) % s->vocab) * element;
        if (set == 0 && b < MADE) {
            make_row(s, row, &seed);
        } else {
            memcpy(row, source + turn, row_bytes - turn);
            memcpy(row + row_bytes - turn, source, turn);
        }
    }
}

static bool prepare_sets(struct sample_state *state)
{
    const struct sample_shape *const s = &state->shape;
    const size_t bytes = (size_t)(s->batch * s->vocab) * (s->wide ? sizeof(float) : sizeof(uint16_t));
    state->n_sets = bench_sets(bytes);
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    state->views = bench_alloc((size_t)state->n_sets, sizeof *state->views);
    memcpy(state->logits_shape, (int64_t[]){s->batch, s->vocab}, sizeof state->logits_shape);
    if (!state->sets || !state->views)
        return false;
    for (int64_t i = 0; i < state->n_sets; i++) {
        state->sets[i] = bench_alloc(bytes, 1);
        if (!state->sets[i])
            return false;
        fill_logits(state, i);
        state->views[i] = sy_tensor(state->sets[i], s->wide ? SY_F32 : SY_BF16, 2, state->logits_shape);
    }
    return true;
}

/* Exponential noise: the token of the largest prob / noise is drawn with its probability. */
static bool prepare_q(struct sample_state *state)
{
    const struct sample_shape *const s = &state->shape;
    const size_t n = (size_t)(s->batch * s->vocab);
    uint64_t seed = 37;
    if (s->noise != SAMPLE_Q_LIST && s->noise != SAMPLE_Q_VOCAB)
        return true;
    state->q = bench_alloc(n, sizeof *state->q);
    for (size_t i = 0; state->q && i < n; i++)
        state->q[i] = (float)-log(1 - bench_unit(&seed));
    state->q_view = sy_tensor(state->q, SY_F32, 2, state->logits_shape);
    return state->q != NULL;
}

static bool prepare_allow(struct sample_state *state)
{
    const struct sample_shape *const s = &state->shape;
    const int64_t words = (s->vocab + 31) / 32;
    uint64_t seed = 41;
    if (s->allow == SAMPLE_ALL)
        return true;
    state->allow = bench_alloc((size_t)(s->batch * words), sizeof *state->allow);
    for (int64_t i = 0; state->allow && i < s->batch * words; i++) {
        const uint64_t random = bench_random(&seed);
        state->allow[i] = (uint32_t)random;
        if (s->allow == SAMPLE_FEW) /* one of two mask words, one of its tokens */
            state->allow[i] = random % 2 ? 1u << (random >> 59) : 0;
    }
    memcpy(state->allow_shape, (int64_t[]){s->batch, words}, sizeof state->allow_shape);
    state->allow_view = sy_tensor(state->allow, SY_U32, 2, state->allow_shape);
    return state->allow != NULL;
}

/* Random tokens, one in each of as many equal parts of the row, with logits large enough for some of them to win. */
static bool prepare_overrides(struct sample_state *state)
{
    const struct sample_shape *const s = &state->shape;
    const int64_t n = s->overrides, all = s->batch * n;
    uint64_t seed = 43;
    if (n == 0)
        return true;
    state->override_indptr = bench_alloc((size_t)s->batch + 1, sizeof *state->override_indptr);
    state->override_token = bench_alloc((size_t)all, sizeof *state->override_token);
    state->override_logit = bench_alloc((size_t)all, sizeof *state->override_logit);
    state->instead = bench_alloc((size_t)(s->batch * s->vocab), sizeof *state->instead);
    if (!state->override_indptr || !state->override_token || !state->override_logit || !state->instead)
        return false;
    for (int64_t i = 0; i < s->batch * s->vocab; i++)
        state->instead[i] = NAN;
    for (int64_t b = 0; b <= s->batch; b++)
        state->override_indptr[b] = b * n;
    for (int64_t i = 0; i < all; i++) {
        const double place = (double)(i % n) + bench_unit(&seed);
        state->override_token[i] = (int32_t)(place * (double)s->vocab / (double)n);
        state->override_logit[i] = (float)(5 * bench_normal(&seed));
        state->instead[i / n * s->vocab + state->override_token[i]] = state->override_logit[i];
    }
    memcpy(state->override_shape, (int64_t[]){s->batch + 1, all}, sizeof state->override_shape);
    state->override_indptr_view = sy_tensor(state->override_indptr, SY_I64, 1, &state->override_shape[0]);
    state->override_token_view = sy_tensor(state->override_token, SY_I32, 1, &state->override_shape[1]);
    state->override_logit_view = sy_tensor(state->override_logit, SY_F32, 1, &state->override_shape[1]);
    return true;
}

static bool prepare(struct sample_state *state)
{
    const struct sample_shape *const s = &state->shape;
    const size_t batch = (size_t)s->batch, vocab = (size_t)s->vocab;
    state->answers = bench_alloc(batch, sizeof *state->answers);
    state->list = bench_alloc(vocab, sizeof *state->list);
    state->ranked = bench_alloc(vocab, sizeof *state->ranked);
    state->weights = bench_alloc(vocab, sizeof *state->weights);
    state->token = bench_alloc(batch, sizeof *state->token);
    state->alone = bench_alloc(batch, sizeof *state->alone);
    state->kept = bench_alloc(batch, sizeof *state->kept);
    state->flags = bench_alloc(batch, sizeof *state->flags);
    state->logprob = bench_alloc(batch, sizeof *state->logprob);
    if (!state->answers || !state->list || !state->ranked || !state->weights || !state->token ||
        !state->alone || !state->kept || !state->flags || !state->logprob || !prepare_sets(state) ||
        !prepare_q(state) || !prepare_allow(state) || !prepare_overrides(state))
        return false;
    state->one_shape[0] = 1;
    state->flat_shape[0] = s->batch;
    state->top_k[0] = s->top_k;
    state->top_p[0] = s->top_p;
    state->min_p[0] = s->min_p;
    state->seed[0] = SAMPLE_SEED;
    state->top_k_view = sy_tensor(state->top_k, SY_I64, 1, state->one_shape);
    state->top_p_view = sy_tensor(state->top_p, SY_F32, 1, state->one_shape);
    state->min_p_view = sy_tensor(state->min_p, SY_F32, 1, state->one_shape);
    state->flags_view = sy_tensor(state->flags, SY_U32, 1, state->flat_shape);
    state->logprob_view = sy_tensor(state->logprob, SY_F32, 1, state->flat_shape);
    state->seed_view = sy_tensor(state->seed, SY_U64, 1, state->one_shape);
    state->token_view = sy_tensor(state->token, SY_I64, 1, state->flat_shape);
    state->kept_view = sy_tensor(state->kept, SY_I32, 1, state->flat_shape);
    return true;
}

static const struct sample_shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct sample_shape *const shape = shape_at(index);
    static const char *const noises[] = {" greedy", " draw", " q by list", " q by vocab"};
    static const char *const logits[] = {"",        " long tail", " flat",      " Zipf",
                                         " normal", " equal",     " two values"};
    static const char *const outputs[] = {"", " flags kept", " final", " raw"};
    static const char *const allows[] = {"", " half allowed", " few allowed"};
    char top_k[16] = "", top_p[16] = "", min_p[24] = "", overrides[32] = "";
    if (shape->top_k > 0)
        snprintf(top_k, sizeof top_k, " k=%d", (int)shape->top_k);
    if (shape->top_p > 0)
        snprintf(top_p, sizeof top_p, " p=%g", (double)shape->top_p);
    if (shape->min_p > 0)
        snprintf(min_p, sizeof min_p, " min_p=%g", (double)shape->min_p);
    if (shape->overrides > 0)
        snprintf(overrides, sizeof overrides, " %d overridden", (int)shape->overrides);
    /* Filters imply a draw unless the case sets another noise. */
    const bool filtered = shape->top_k > 0 || shape->top_p > 0 || shape->min_p > 0;
    snprintf(text, bytes, "%s [%d,%d]%s%s%s%s%s%s%s%s", shape->wide ? "f32" : "bf16", (int)shape->batch,
             (int)shape->vocab, top_k, top_p, min_p, logits[shape->logits],
             filtered && shape->noise == SAMPLE_DRAW ? "" : noises[shape->noise], allows[shape->allow],
             overrides, outputs[shape->outputs]);
}

void peers_sample(int index, struct emit *json)
{
    static const char *const noises[] = {"greedy", "draw", "q", "q"};
    const struct sample_shape *const shape = shape_at(index);
    emit_string(json, "dtype", shape->wide ? "f32" : "bf16");
    emit_integer(json, "batch", shape->batch);
    emit_integer(json, "vocab", shape->vocab);
    emit_integer(json, "top_k", shape->top_k);
    emit_number(json, "top_p", (double)shape->top_p);
    emit_bool(json, "flat", shape->logits == SAMPLE_FLAT);
    emit_string(json, "noise", noises[shape->noise]);
    emit_bool(json, "masked",
              shape->allow != SAMPLE_ALL || shape->overrides > 0 || shape->min_p > 0 ||
                  shape->outputs != SAMPLE_TOKEN || shape->logits > SAMPLE_FLAT);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    const struct sample_shape *const shape = shape_at(index);
    struct sample_state state = {.shape = *shape};
    const size_t bytes =
        (size_t)(shape->batch * shape->vocab) * (shape->wide ? sizeof(float) : sizeof(uint16_t));
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "sample",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = sample_plain,
                                 .check = sample_check,
                                 .bytes = (double)bytes,
                                 .limit = {.read_bytes = bytes},
                             });
    else
        bench_no_memory(bench, "sample", name);
    release(&state);
}

const struct bench_op bench_sample = {"sample", N_FULL, N_QUICK, describe, run_case};
