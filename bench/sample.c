/*
 * sample: must move the logits, read once. The limit is a read of the same bytes. The plain loop does what
 * the words say in double precision: the best k by insertion or all by sorting, softmax, running sum, one
 * draw inverted in index order. Its sums are not the operator's integers, so where a cut or a draw falls
 * within 1e-4 of a boundary both sides count as right; the operator's own tests check the last bit.
 */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/number.h"

struct shape {
    int64_t batch, vocab;
    bool wide, flat; /* f32 instead of bf16; N(0,1) logits instead of language-model-like ones */
    int64_t top_k;   /* 0: off */
    float top_p;     /* 1: off */
    bool draw;       /* false: greedy */
};

static const struct shape full[] = {
    {48, 131072, false, false, 0, 1, false},    {48, 131072, false, false, 50, 1, true},
    {48, 131072, false, false, 50, 0.9f, true}, {48, 131072, false, false, 0, 0.9f, true},
    {48, 131072, false, true, 0, 0.9f, true},   {1, 128256, false, false, 50, 0.9f, true},
    {64, 32000, false, false, 50, 0.9f, true},  {48, 131072, true, false, 0, 1, false},
    {48, 131072, true, false, 50, 1, true},     {48, 131072, true, false, 50, 0.9f, true},
    {48, 131072, true, false, 0, 0.9f, true},
};
static const struct shape quick[] = {
    {8, 32000, false, false, 0, 1, false},
    {8, 32000, false, false, 50, 0.9f, true},
    {4, 32000, true, true, 0, 0.9f, true},
};

static const double margin = 1e-4;
static const uint64_t seed_value = 42;

struct candidate {
    float logit;
    int32_t token;
};

/* What the plain loop finds right: a range, one wide except beside a boundary. */
struct answer {
    int64_t token_low, token_high;
    int64_t kept_low, kept_high;
};

struct state {
    struct shape shape;
    int64_t n_sets;
    void **sets;        /* [B,V] each */
    const void *logits; /* the set the plain loop reads */
    DLTensor *views;
    struct answer *answers;
    struct candidate *list; /* [V] */
    double *weights;        /* [V], by token; 0 for tokens that are no candidates */
    int64_t *token, *alone; /* with and without the count of the kept */
    int32_t *kept;
    int64_t top_k[1], one_shape[1], logits_shape[2], flat_shape[1];
    uint64_t seed[1];
    float top_p[1];
    DLTensor top_k_view, top_p_view, seed_view, token_view, kept_view;
};

static sy_status pick(sy_ctx *ctx, const struct state *state, int64_t set, const DLTensor *kept)
{
    const struct shape *const s = &state->shape;
    return sy_sample(ctx, &(sy_sample_args){.logits = &state->views[set],
                                            .top_k = s->top_k > 0 ? &state->top_k_view : NULL,
                                            .top_p = s->top_p < 1 ? &state->top_p_view : NULL,
                                            .seed = s->draw ? &state->seed_view : NULL,
                                            .token = &state->token_view,
                                            .kept = kept});
}

/* What is timed asks for the token alone, as an engine does. The call that is checked also asks how many
   were kept, which may take another way through the library: both must name the same tokens. */
static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    sy_status status = pick(ctx, state, turn % state->n_sets, NULL);
    if (status != SY_OK || turn != 0)
        return status;
    memcpy(state->alone, state->token, (size_t)state->shape.batch * sizeof *state->token);
    return pick(ctx, state, 0, &state->kept_view);
}

/* ---- The plain loop ---------------------------------------------------------------------------------- */

static float logit(const struct state *state, int64_t row, int64_t token)
{
    const int64_t at = row * state->shape.vocab + token;
    if (state->shape.wide)
        return ((const float *)state->logits)[at];
    return bf16_to_float(((const uint16_t *)state->logits)[at]);
}

static int by_rank(const void *left, const void *right)
{
    const struct candidate *const a = left, *const b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* The best k in rank order, by insertion; returns how many. */
static int64_t best_k(const struct state *state, int64_t row)
{
    struct candidate *const list = state->list;
    int64_t n = 0;
    for (int64_t i = 0; i < state->shape.vocab; i++) {
        const float x = logit(state, row, i);
        if (n == state->shape.top_k && x <= list[n - 1].logit)
            continue;
        int64_t at = n < state->shape.top_k ? n++ : n - 1;
        for (; at > 0 && list[at - 1].logit < x; at--)
            list[at] = list[at - 1];
        list[at] = (struct candidate){x, (int32_t)i};
    }
    return n;
}

static int64_t all_sorted(const struct state *state, int64_t row)
{
    for (int64_t i = 0; i < state->shape.vocab; i++)
        state->list[i] = (struct candidate){logit(state, row, i), (int32_t)i};
    qsort(state->list, (size_t)state->shape.vocab, sizeof *state->list, by_rank);
    return state->shape.vocab;
}

/* Shortest prefix of the list with mass p of the whole. */
static int64_t prefix_of(const struct state *state, int64_t n, double total, double p)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)state->list[i].logit - (double)state->list[0].logit);
        if (sum >= p * total)
            return i + 1;
    }
    return n;
}

/*
 * The first 64 bits of Philox4x32-10 with key = seed and counter = (0xffffffff, 0, 0, stream), as a number in
 * [0,1).
 */
static double draw_of(uint64_t seed, uint32_t stream)
{
    uint32_t c[4] = {0xffffffffu, 0, 0, stream}, key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c[0], b = (uint64_t)0xcd9e8d57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
    return ((double)c[1] + (double)c[0] * 0x1p-32) * 0x1p-32;
}

/* First candidate in index order whose running sum passes u of the whole. */
static int64_t invert(const struct state *state, double total, double u)
{
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < state->shape.vocab; i++)
        if (state->weights[i] > 0) {
            sum += state->weights[i];
            last = i;
            if (sum > u * total)
                return i;
        }
    return last;
}

static struct answer plain_row(const struct state *state, int64_t row)
{
    const struct shape *const s = &state->shape;
    if (!s->draw) {
        int64_t best = 0;
        for (int64_t i = 1; i < s->vocab; i++)
            best = logit(state, row, i) > logit(state, row, best) ? i : best;
        return (struct answer){best, best, s->vocab, s->vocab};
    }
    const int64_t n = s->top_k > 0 ? best_k(state, row) : all_sorted(state, row);
    double total = 0;
    for (int64_t i = n - 1; i >= 0; i--)
        total += exp((double)state->list[i].logit - (double)state->list[0].logit);
    struct answer answer = {.kept_low = n, .kept_high = n};
    int64_t kept = n;
    if (s->top_p < 1) {
        kept = prefix_of(state, n, total, (double)s->top_p);
        answer.kept_low = prefix_of(state, n, total, (double)s->top_p - margin);
        answer.kept_high = prefix_of(state, n, total, (double)s->top_p + margin);
    }
    memset(state->weights, 0, (size_t)s->vocab * sizeof *state->weights);
    double mass = 0;
    for (int64_t i = 0; i < kept; i++) {
        const double weight = exp((double)state->list[i].logit - (double)state->list[0].logit);
        state->weights[state->list[i].token] = weight;
        mass += weight;
    }
    const double u = draw_of(seed_value, (uint32_t)row);
    answer.token_low = invert(state, mass, u - margin);
    answer.token_high = invert(state, mass, u + margin);
    return answer;
}

static void plain(void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    state->logits = state->sets[turn % state->n_sets];
    for (int64_t b = 0; b < state->shape.batch; b++)
        state->answers[b] = plain_row(state, b);
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    for (int64_t b = 0; b < state->shape.batch; b++) {
        const struct answer *const answer = &state->answers[b];
        if (state->token[b] < answer->token_low || state->token[b] > answer->token_high)
            return "token differs from the plain loop";
        if (state->alone[b] != state->token[b])
            return "the token asked for alone differs from the token beside its count";
        if (state->kept[b] < answer->kept_low || state->kept[b] > answer->kept_high)
            return "kept differs from the plain loop";
    }
    return NULL;
}

/* ---- Data -------------------------------------------------------------------------------------------- */

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++)
        free(state->sets[i]);
    free(state->sets);
    free(state->views);
    free(state->answers);
    free(state->list);
    free(state->weights);
    free(state->token);
    free(state->alone);
    free(state->kept);
}

static void make_row(const struct shape *s, char *row, uint64_t *seed)
{
    for (int64_t i = 0; i < s->vocab; i++) {
        const double rank = bench_unit(seed) * (double)s->vocab, noise = bench_normal(seed);
        const float wide = (float)(s->flat ? noise : 12 - 1.5 * log(1 + rank) + 0.5 * noise);
        const uint16_t narrow = bf16_from_float(wide);
        if (s->wide)
            memcpy(row + (size_t)i * sizeof wide, &wide, sizeof wide);
        else
            memcpy(row + (size_t)i * sizeof narrow, &narrow, sizeof narrow);
    }
}

/* A few rows are made, the rest are turned copies: making numbers is slower than all that is measured. */
static void fill_logits(const struct state *state, int64_t set)
{
    enum { MADE = 8 };
    const struct shape *const s = &state->shape;
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

static bool prepare_sets(struct state *state)
{
    const struct shape *const s = &state->shape;
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

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t batch = (size_t)s->batch, vocab = (size_t)s->vocab;
    state->answers = bench_alloc(batch, sizeof *state->answers);
    state->list = bench_alloc(vocab, sizeof *state->list);
    state->weights = bench_alloc(vocab, sizeof *state->weights);
    state->token = bench_alloc(batch, sizeof *state->token);
    state->alone = bench_alloc(batch, sizeof *state->alone);
    state->kept = bench_alloc(batch, sizeof *state->kept);
    if (!state->answers || !state->list || !state->weights || !state->token || !state->alone ||
        !state->kept || !prepare_sets(state))
        return false;
    state->one_shape[0] = 1;
    state->flat_shape[0] = s->batch;
    state->top_k[0] = s->top_k;
    state->top_p[0] = s->top_p;
    state->seed[0] = seed_value;
    state->top_k_view = sy_tensor(state->top_k, SY_I64, 1, state->one_shape);
    state->top_p_view = sy_tensor(state->top_p, SY_F32, 1, state->one_shape);
    state->seed_view = sy_tensor(state->seed, SY_U64, 1, state->one_shape);
    state->token_view = sy_tensor(state->token, SY_I64, 1, state->flat_shape);
    state->kept_view = sy_tensor(state->kept, SY_I32, 1, state->flat_shape);
    return true;
}

static void run_shape(struct bench *bench, const struct shape *shape)
{
    struct state state = {.shape = *shape};
    char name[96], cuts[48] = " greedy";
    if (shape->draw)
        snprintf(cuts, sizeof cuts, "%s%s%s", shape->top_k > 0 ? " k=50" : "",
                 shape->top_p < 1 ? " p=0.9" : "", shape->flat ? " flat" : "");
    snprintf(name, sizeof name, "%s [%d,%d]%s", shape->wide ? "f32" : "bf16", (int)shape->batch,
             (int)shape->vocab, cuts);
    const size_t bytes =
        (size_t)(shape->batch * shape->vocab) * (shape->wide ? sizeof(float) : sizeof(uint16_t));
    if (prepare(&state))
        bench_measure(bench, &(struct bench_case){
                                 .op = "sample",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)bytes,
                                 .limit = {.read_bytes = bytes},
                             });
    else
        bench_no_memory(bench, "sample", name);
    release(&state);
}

static void run_all(struct bench *bench)
{
    const struct shape *const shapes = bench->quick ? quick : full;
    const size_t n = bench->quick ? sizeof quick / sizeof *quick : sizeof full / sizeof *full;
    for (size_t i = 0; i < n; i++)
        run_shape(bench, &shapes[i]);
}

const struct bench_op bench_sample = {"sample", run_all};
