/*
 * sample: must move the logits, read once. The limit is a read of the same bytes.
 *
 * Logits: 200 peaks over N(0, 2.5), as models are when they know what to say: a nucleus of about 60. A long tail, as
 * they are when they do not: hundreds. Flat, N(0,1): most of the vocabulary. Zipf's law with Gumbel noise, normal N(0,2),
 * and the ties of constrained decoding: all equal, and two values. Filters mean a draw unless something else is said.
 * top=20: with the 20 most likely tokens and the rank of the picked one.
 */
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A case with each kind of logits that the cases above do not have. */
#define EVERY_LOGITS(head, tail) \
    head " Zipf" tail, head " normal" tail, head " equal" tail, head " two values" tail

#define EVERY_FILTER(head) \
    EVERY_LOGITS(head, " greedy"), EVERY_LOGITS(head " k=50", ""), EVERY_LOGITS(head " k=50 p=0.9", ""), \
        EVERY_LOGITS(head " p=0.9", ""), EVERY_LOGITS(head " min_p=0.05", ""), EVERY_LOGITS(head, " draw")

#define EVERY_OUTPUT(text) \
    text, text " flags kept", text " final", text " raw", text " final top=20", text " raw top=20"

static const char *const shapes[] = {
    "bf16 [48,131072] greedy",
    "bf16 [48,131072] k=50",
    "bf16 [48,131072] k=50 p=0.9",
    "bf16 [48,131072] k=50 p=0.9 q by list",
    "bf16 [48,131072] k=50 p=0.9 q by vocab",
    "bf16 [48,131072] k=50 p=0.9 half allowed",
    "bf16 [48,131072] k=50 p=0.9 few allowed",
    "bf16 [48,131072] k=50 p=0.9 16 overridden",
    "bf16 [48,131072] k=50 p=0.9 512 overridden",
    "bf16 [48,131072] p=0.9 512 overridden",
    "bf16 [48,131072] draw 512 overridden",
    "bf16 [48,131072] k=1024 p=0.9",
    "bf16 [48,131072] p=0.9",
    "bf16 [48,131072] p=0.9 long tail",
    "bf16 [48,131072] p=0.9 flat",
    "bf16 [48,131072] draw",
    "bf16 [1,128256] k=50 p=0.9",
    "bf16 [2,128256] k=50 p=0.9",
    "bf16 [8,151936] k=50 p=0.9",
    "bf16 [64,32000] k=50 p=0.9",
    "f32 [48,131072] greedy",
    "f32 [48,131072] k=50",
    "f32 [48,131072] k=50 p=0.9",
    "f32 [48,131072] p=0.9",
    EVERY_FILTER("f32 [256,32000]"),
    EVERY_FILTER("bf16 [256,32000]"),
    EVERY_FILTER("f32 [33,50257]"),
    EVERY_FILTER("f32 [1,256000]"),
    EVERY_LOGITS("f32 [512,1000]", " greedy"),
    EVERY_LOGITS("f32 [512,1000] k=50", ""),
    EVERY_LOGITS("bf16 [512,1000]", " greedy"),
    EVERY_LOGITS("bf16 [512,1000] k=50", ""),
    EVERY_OUTPUT("f32 [16,131072] Zipf greedy"),
    EVERY_OUTPUT("f32 [16,131072] k=50 p=0.9 Zipf"),
    EVERY_OUTPUT("bf16 [16,131072] Zipf greedy"),
    EVERY_OUTPUT("bf16 [16,131072] k=50 p=0.9 Zipf"),
    /* Quick. */
    "bf16 [8,32000] greedy",
    "bf16 [8,32000] k=50 p=0.9",
    "bf16 [8,32000] k=50 p=0.9 q by list",
    "bf16 [8,32000] k=50 p=0.9 q by vocab",
    "bf16 [8,32000] k=50 p=0.9 half allowed",
    "bf16 [8,32000] k=50 p=0.9 64 overridden",
    "bf16 [8,32000] draw",
    "f32 [4,32000] p=0.9 flat",
    EVERY_LOGITS("bf16 [4,32000] min_p=0.05", ""),
    EVERY_LOGITS("f32 [4,1000] k=50", ""),
    EVERY_OUTPUT("f32 [4,32000] k=50 p=0.9 Zipf"),
};

#define EVERY_BATCH(text) \
    "bf16 [1,131072] " text, "bf16 [48,131072] " text, "bf16 [256,131072] " text, \
        "bf16 [1024,131072] " text, "f32 [256,131072] " text, "bf16 [64,32000] " text

static const char *const there[] = {
    EVERY_BATCH("greedy"),
    EVERY_BATCH("k=50"),
    EVERY_BATCH("k=50 p=0.9"),
    EVERY_BATCH("p=0.9"),
    EVERY_BATCH("k=1024"),
    EVERY_BATCH("draw"),
    EVERY_BATCH("p=0.9 flat"),
    "bf16 [256,131072] greedy flags kept",
    "bf16 [256,131072] greedy final",
    "bf16 [256,131072] k=50 flags kept",
    "bf16 [256,131072] k=50 final",
    "bf16 [256,131072] greedy raw",
    "bf16 [256,131072] greedy raw top=20",
    "bf16 [256,131072] greedy final top=20",
    "bf16 [256,131072] k=50 final top=20",
};

static bool says_peaks(const char *shape)
{
    static const char *const others[] = {"flat", "long tail", "Zipf", "normal", "equal", "two values"};
    bool peaks = true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        peaks = peaks && !bench_says(shape, others[i]);
    return peaks;
}

/* Tokens of each row: the number before the word. */
static int64_t overridden(const char *shape)
{
    const char *at = strstr(shape, " overridden");
    while (at && at[-1] != ' ')
        at--;
    return at ? strtol(at, NULL, 10) : 0;
}

/* ---- Data ---------------------------------------------------------------------------------------------- */

static void make_row(const struct bench_call *c, const DLTensor *x, int64_t first, uint64_t *seed)
{
    enum { PEAKS = 200 };
    const bool flat = bench_says(c->shape, "flat"), tail = bench_says(c->shape, "long tail"),
               zipf = bench_says(c->shape, "Zipf"), equal = bench_says(c->shape, "equal"),
               two = bench_says(c->shape, "two values"), peaks = says_peaks(c->shape);
    const int64_t vocab = x->shape[1];
    for (int64_t i = 0; i < vocab; i++) {
        const double rank = random_unit(seed) * (double)vocab, noise = bench_normal(seed);
        double value = (peaks ? 2.5 : flat ? 1 : 2) * noise;
        if (tail)
            value = 12 - 1.5 * log(1 + rank) + 0.5 * noise;
        else if (zipf)
            value = 10 - 1.1 * log(1 + rank) - log(-log(1 - random_unit(seed) * 0.999999));
        else if (equal || two)
            value = equal ? 1.25 : noise < 0 ? -3 : 0.5;
        bench_store(x, first + i, (float)value);
    }
    for (int64_t r = 0; r < PEAKS && peaks; r++)
        bench_store(x, first + (int64_t)(random_unit(seed) * (double)vocab),
                    (float)(20 - 1.5 * log(1 + (double)r)));
}

/* A few rows are generated, the rest are rotated copies: generating numbers is slower than the calls. */
static BENCH_FILLER(fill_logits)
{
    enum { MADE = 8 };
    const sy_sample_args *const a = c->args;
    const int64_t batch = x->shape[0], vocab = x->shape[1];
    const size_t row_bytes = bench_bytes(x) / (size_t)batch;
    const char *const made = bench_got(c, &a->logits);
    uint64_t state = 31;
    for (int64_t b = 0; b < batch; b++) {
        char *const row = (char *)x->data + (size_t)b * row_bytes;
        const char *const source = made + (size_t)(b % MADE) * row_bytes;
        const size_t turn =
            (size_t)((b * 1315 + bench_turn(seed) * 977 + 1) % vocab) * (row_bytes / (size_t)vocab);
        if (bench_turn(seed) == 0 && b < MADE) {
            make_row(c, x, b * vocab, &state);
        } else {
            memcpy(row, source + turn, row_bytes - turn);
            memcpy(row + row_bytes - turn, source, turn);
        }
    }
}

/* Exponential noise: the token of the largest prob / noise is drawn with its probability. */
static BENCH_FILLER(fill_exponential)
{
    for (int64_t i = 0; i < bench_count(x); i++)
        bench_store(x, i, (float)-log(1 - random_unit(&seed)));
}

/* Half of the tokens, or of one of two words one of its tokens. */
static BENCH_FILLER(fill_allow)
{
    uint32_t *const allow = x->data;
    for (int64_t i = 0; i < bench_count(x); i++) {
        const uint64_t random = random_bits(&seed);
        allow[i] = (uint32_t)random;
        if (bench_says(c->shape, "few allowed"))
            allow[i] = random % 2 ? 1u << (random >> 59) : 0;
    }
}

/* Tokens at random, one in each of n equal parts of the row. */
static BENCH_FILLER(fill_tokens)
{
    const double vocab = (double)bench_size(c, ",");
    for (int64_t i = 0; i < x->shape[0]; i++)
        ((int32_t *)x->data)[i] = (int32_t)(((double)(i % n) + random_unit(&seed)) * vocab / (double)n);
}

/* The overrides by token, for the plain loop. */
static BENCH_FILLER(fill_instead)
{
    const sy_sample_args *const a = c->args;
    float *const instead = x->data;
    for (int64_t i = 0; i < bench_count(x); i++)
        instead[i] = NAN;
    for (int64_t i = 0; i < a->override_token->shape[0]; i++)
        instead[i / n * x->shape[1] + ((const int32_t *)a->override_token->data)[i]] =
            ((const float *)a->override_logit->data)[i];
}

/* ---- The call ------------------------------------------------------------------------------------------ */

static void add_filters(struct bench_call *c, struct sample_block *b)
{
    sy_sample_args *const a = &b->args;
    b->top_k = bench_size(c, "k=");
    b->top_p = bench_number(c->shape, "p=");
    b->min_p = bench_number(c->shape, "min_p=");
    if (b->top_k > 0)
        bench_in(c, &a->top_k, SY_I64, DIMS(1), BENCH_ONCE, fill_integer, b->top_k);
    if (b->top_p > 0)
        bench_in(c, &a->top_p, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, lround(100 * b->top_p));
    if (b->min_p > 0)
        bench_in(c, &a->min_p, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, lround(100 * b->min_p));
    if (bench_says(c->shape, "half allowed") || bench_says(c->shape, "few allowed"))
        bench_in(c, &a->allow_bits, SY_U32, DIMS(b->batch, (b->vocab + 31) / 32), BENCH_ONCE, fill_allow, 0);
    const int64_t n = overridden(c->shape);
    if (n > 0) {
        bench_in(c, &a->override_indptr, SY_I64, DIMS(b->batch + 1), BENCH_ONCE, fill_steps, n);
        bench_in(c, &a->override_token, SY_I32, DIMS(b->batch * n), BENCH_ONCE, fill_tokens, n);
        bench_in(c, &a->override_logit, SY_F32, DIMS(b->batch * n), BENCH_ONCE, fill_normal, 50);
        bench_in(c, &b->instead, SY_F32, DIMS(b->batch, b->vocab), BENCH_ONCE, fill_instead, n);
    }
}

static void add_noise(struct bench_call *c, struct sample_block *b)
{
    sy_sample_args *const a = &b->args;
    a->q_order = bench_says(c->shape, "q by vocab") ? SY_Q_VOCAB : SY_Q_LIST;
    if (bench_says(c->shape, "q by list") || bench_says(c->shape, "q by vocab"))
        bench_in(c, &a->q, SY_F32, DIMS(b->batch, b->vocab), BENCH_ONCE, fill_exponential, 0);
    else if (!bench_says(c->shape, "greedy"))
        bench_in(c, &a->seed, SY_U64, DIMS(1), BENCH_ONCE, fill_integer, SAMPLE_SEED);
}

/* What is timed has the outputs that the shape names, mostly the token alone, as in an engine. */
static void add_outputs(struct bench_call *c, struct sample_block *b)
{
    sy_sample_args *const a = &b->args;
    bench_out(c, &a->token, BENCH_ONCE);
    bench_room(c, &b->kept, SY_I32, DIMS(b->batch), BENCH_ONCE);
    bench_room(c, &b->flags, SY_U32, DIMS(b->batch), BENCH_ONCE);
    if (bench_says(c->shape, "flags kept")) {
        a->kept = b->kept;
        a->row_flags = b->flags;
    }
    a->logprob_mode = bench_says(c->shape, "final") ? SY_LOGPROB_FINAL
                      : bench_says(c->shape, "raw") ? SY_LOGPROB_RAW
                                                    : SY_LOGPROB_NONE;
    if (a->logprob_mode != SY_LOGPROB_NONE)
        bench_room(c, &a->logprob, SY_F32, DIMS(b->batch), BENCH_ONCE);
    const int64_t top = bench_size(c, "top=");
    if (top > 0) {
        bench_room(c, &a->top_token, SY_I64, DIMS(b->batch, top), BENCH_ONCE);
        bench_room(c, &a->top_logprob, SY_F32, DIMS(b->batch, top), BENCH_ONCE);
        bench_room(c, &a->rank, SY_I32, DIMS(b->batch), BENCH_ONCE);
    }
}

static void make(struct bench_call *c)
{
    struct sample_block *const b = c->args;
    b->batch = bench_size(c, "[");
    b->vocab = bench_size(c, ",");
    bench_in(c, &b->args.logits, bench_type(c), DIMS(b->batch, b->vocab), BENCH_TURNS, fill_logits, 0);
    add_filters(c, b);
    add_noise(c, b);
    add_outputs(c, b);
    c->limit.read_bytes = bench_bytes(b->args.logits);
    const size_t batch = (size_t)b->batch, vocab = (size_t)b->vocab;
    b->answers = bench_scratch(c, batch * (sizeof *b->answers + sizeof *b->alone) +
                                      vocab * (sizeof *b->ranked + sizeof *b->weights + sizeof *b->list));
    if (b->answers) {
        b->alone = (int64_t *)(b->answers + batch);
        b->ranked = (double *)(void *)(b->alone + batch);
        b->weights = b->ranked + vocab;
        b->list = (struct sample_candidate *)(void *)(b->weights + vocab);
    }
}

BENCH_OP(sample, shapes, 22, make, .plain = sample_plain, BENCH_THERE, .check = sample_check, .peers = true);
