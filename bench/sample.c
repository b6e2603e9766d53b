/*
 * sample: must move the logits, read once. The limit is a read of the same bytes.
 *
 * Logits: 200 peaks over N(0, 2.5), as models are when they know what to say: a nucleus of about 60. A long tail, as
 * they are when they do not: hundreds. Flat, N(0,1): most of the vocabulary. Zipf's law with Gumbel noise, normal N(0,2),
 * and the ties of constrained decoding: all equal, two values, and one finite. Filters mean a draw unless something else is
 * said; "some off": every fourth row has no top-k.
 * top=20: with the 20 most likely tokens and the rank of the picked one.
 */
#include "described.h"

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

#define EVERY_OVERRIDES(n) \
    "bf16 [256,131072] greedy " n " overridden", "bf16 [256,131072] k=50 p=0.9 " n " overridden"

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
    EVERY_OVERRIDES("1"),
    EVERY_OVERRIDES("16"),
    EVERY_OVERRIDES("512"),
    "bf16 [1,131072] greedy 512 overridden",
    "bf16 [1,131072] k=50 p=0.9 512 overridden",
    "bf16 [1,131072] p=0.9 512 overridden",
    EVERY_LOGITS("bf16 [256,131072] p=0.9", ""),
    "bf16 [256,131072] p=0.999",
    "bf16 [256,131072] k=50 equal",
    "bf16 [1,131072] k=50 equal",
    "f16 [64,50257] k=50 equal",
    "f16 [64,50257] k=50",
    "bf16 [256,131072] k=1024 one finite",
    "bf16 [256,131072] k=50 Zipf",
    "bf16 [256,131072] k=128 Zipf",
    "bf16 [256,131072] k=200 Zipf",
    "bf16 [256,131072] k=256 Zipf",
    "bf16 [256,131072] k=257 Zipf",
    "bf16 [256,131072] k=1024 Zipf",
    "bf16 [256,131072] k=2048 Zipf",
    "bf16 [256,131072] k=4096 Zipf",
    "bf16 [1,131072] min_p=0.05",
    "bf16 [256,131072] min_p=0.05",
    "bf16 [256,131072] min_p=0.05 Zipf",
    "bf16 [256,131072] k=50 raw",
    "bf16 [256,131072] p=0.9 raw",
    "bf16 [256,131072] k=50 some off",
    "bf16 [256,131072] draw race",
    "bf16 [256,131072] draw masked",
};

enum { SEED = 42 };

struct candidate {
    float logit;
    int32_t token;
};

/* The results that the plain loop accepts: a range, of length one except near a boundary. */
struct answer {
    int64_t token_low, token_high;
    int64_t kept_low, kept_high;
};

/* The arguments, and beside them what the plain loop and the check need. */
struct block {
    sy_sample_args args;
    const DLTensor *kept, *flags; /* [B] of the call that is checked */
    const DLTensor *instead;      /* [B,V] overrides by token, NaN where there is none; or NULL */
    int64_t batch, vocab, top_k;  /* 0: off, as the next two; of most rows */
    double top_p, min_p;
    struct answer *answers;
    struct candidate *list;   /* [V] */
    double *ranked, *weights; /* [V], by place in the list, and by token: 0 where it is no candidate */
    int64_t *alone;           /* [B] tokens of the call without the count of the kept */
};

static bool says_peaks(const char *shape)
{
    static const char *const others[] = {"flat",  "long tail",  "Zipf",      "normal",
                                         "equal", "two values", "one finite"};
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

/* ---- Data ---- */

static void make_row(const struct bench_call *c, const DLTensor *x, int64_t first, uint64_t *seed)
{
    enum { PEAKS = 200 };
    const bool flat = bench_says(c->shape, "flat"), tail = bench_says(c->shape, "long tail"),
               zipf = bench_says(c->shape, "Zipf"), equal = bench_says(c->shape, "equal"),
               two = bench_says(c->shape, "two values"), peaks = says_peaks(c->shape),
               one = bench_says(c->shape, "one finite");
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
        else if (one)
            value = i == vocab / 3 ? 1.25 : -INFINITY;
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
    const char *const made = bench_got(a->logits);
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
BENCH_OWN(fill_exponential, bench_store, (float)-log(1 - random_unit(&seed)))

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
BENCH_OWN(fill_tokens, bench_store_integer,
          (int64_t)(((double)(i % n) + random_unit(&seed)) * bench_number(c->shape, ",") / (double)n))

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

BENCH_OWN(fill_thousandths, bench_store, (float)n / 1000)

static int64_t top_k_of(const struct bench_call *c, int64_t row)
{
    return bench_says(c->shape, "some off") && row % 4 == 3 ? 0 : bench_size(c, "k=");
}

BENCH_OWN(fill_top_k, bench_store_integer, top_k_of(c, i))

/* ---- The call ---- */

static void add_filters(struct bench_call *c, struct block *b)
{
    sy_sample_args *const a = &b->args;
    b->top_k = bench_size(c, "k=");
    b->top_p = bench_number(c->shape, "p=");
    b->min_p = bench_number(c->shape, "min_p=");
    if (b->top_k > 0)
        bench_in(c, &a->top_k, SY_I64, DIMS(bench_says(c->shape, "some off") ? b->batch : 1), BENCH_ONCE,
                 fill_top_k, 0);
    if (b->top_p > 0)
        bench_in(c, &a->top_p, SY_F32, DIMS(1), BENCH_ONCE, fill_thousandths, lround(1000 * b->top_p));
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

static void add_noise(struct bench_call *c, struct block *b)
{
    sy_sample_args *const a = &b->args;
    a->q_order = bench_says(c->shape, "q by vocab") ? SY_Q_VOCAB : SY_Q_LIST;
    if (bench_says(c->shape, "q by list") || bench_says(c->shape, "q by vocab"))
        bench_in(c, &a->q, SY_F32, DIMS(b->batch, b->vocab), BENCH_ONCE, fill_exponential, 0);
    else if (!bench_says(c->shape, "greedy"))
        bench_in(c, &a->seed, SY_U64, DIMS(1), BENCH_ONCE, fill_integer, SEED);
    a->noise = bench_says(c->shape, "race") ? SY_NOISE_RACE : SY_NOISE_AUTO;
}

/* What is timed has the outputs that the shape names, mostly the token alone, as in an engine. */
static void add_outputs(struct bench_call *c, struct block *b)
{
    sy_sample_args *const a = &b->args;
    bench_out(c, &a->token, BENCH_ONCE);
    bench_room(c, &b->kept, SY_I32, DIMS(b->batch), BENCH_ONCE);
    bench_room(c, &b->flags, SY_U32, DIMS(b->batch), BENCH_ONCE);
    if (bench_says(c->shape, "flags kept")) {
        a->kept = b->kept;
        a->row_flags = b->flags;
    }
    if (bench_says(c->shape, "masked"))
        bench_room(c, &a->masked_logits, SY_F32, DIMS(b->batch, b->vocab), BENCH_ONCE);
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
    struct block *const b = c->args;
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
        b->list = (struct candidate *)(void *)(b->weights + vocab);
    }
}

/* ---- The plain loop ---- */

/*
 * The expected results of sample, by a plain loop in double precision: the best k by insertion or all by sorting,
 * softmax, running sum; then one draw inverted in index order, or the largest weight / noise. Its sums are not
 * the operator's integers, so where a cut or a draw is within 1e-4 of a boundary both sides count as correct;
 * the operator's own tests check the last bit.
 */
static const double margin = 1e-4;

static float logit(const struct block *b, int64_t row, int64_t token)
{
    const int64_t at = row * b->vocab + token;
    const DLTensor *const allow = b->args.allow_bits;
    if (allow && !(((const uint32_t *)allow->data)[row * allow->shape[1] + token / 32] >> token % 32 & 1))
        return -INFINITY;
    if (b->instead && !isnan(((const float *)b->instead->data)[at]))
        return ((const float *)b->instead->data)[at];
    return bench_load(b->args.logits, at);
}

static int by_rank(const void *left, const void *right)
{
    const struct candidate *const a = left, *const b = right;
    if (a->logit != b->logit)
        return a->logit > b->logit ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* The best k in rank order, by insertion; returns how many. */
static int64_t best_k(const struct block *b, int64_t row, int64_t k)
{
    struct candidate *const list = b->list;
    int64_t n = 0;
    for (int64_t i = 0; i < b->vocab; i++) {
        const float x = logit(b, row, i);
        if (x == -INFINITY || (n == k && x <= list[n - 1].logit))
            continue;
        int64_t at = n < k ? n++ : n - 1;
        for (; at > 0 && list[at - 1].logit < x; at--)
            list[at] = list[at - 1];
        list[at] = (struct candidate){x, (int32_t)i};
    }
    return n;
}

/* All tokens, in rank order where a cut needs it. */
static int64_t all(const struct block *b, int64_t row)
{
    for (int64_t i = 0; i < b->vocab; i++)
        b->list[i] = (struct candidate){logit(b, row, i), (int32_t)i};
    if (b->top_p > 0)
        qsort(b->list, (size_t)b->vocab, sizeof *b->list, by_rank);
    return b->vocab;
}

/* Stores the weights of the first n in the list, and returns their sum, smallest first. */
static double weigh(const struct block *b, int64_t n, double *weights)
{
    float top = b->list[0].logit;
    for (int64_t i = 1; i < n; i++)
        top = b->list[i].logit > top ? b->list[i].logit : top;
    double total = 0;
    for (int64_t i = n - 1; i >= 0; i--) {
        weights[i] = exp((double)b->list[i].logit - (double)top);
        total += weights[i];
    }
    return total;
}

/* Shortest prefix of the list with mass p of the whole. */
static int64_t prefix_of(const double *weights, int64_t n, double total, double p)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += weights[i];
        if (sum >= p * total)
            return i + 1;
    }
    return n;
}

/* The first 64 bits that the operator draws for a row, as a number in [0,1). */
static double draw_of(uint64_t seed, uint32_t stream)
{
    uint32_t word[4];
    bench_philox(seed, 0, stream, UINT32_MAX, word);
    return ((double)word[1] + (double)word[0] * 0x1p-32) * 0x1p-32;
}

/* First candidate in index order whose running sum passes u of the whole. */
static int64_t invert(const struct block *b, double total, double u)
{
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < b->vocab; i++)
        if (b->weights[i] > 0) {
            sum += b->weights[i];
            last = i;
            if (sum > u * total)
                return i;
        }
    return last;
}

/* The exponential number of a token, as the operator draws it. */
static double drawn_noise(int64_t row, int64_t token)
{
    uint32_t word[4];
    bench_philox(SEED, 0, (uint32_t)row, (uint32_t)(token / 4), word);
    return -log1p(-((double)word[token % 4] + 0.5) * 0x1p-32);
}

/* The token with the largest weight / noise. */
static int64_t race(const struct block *b, int64_t row, int64_t kept)
{
    const float *const q = b->args.q ? (const float *)b->args.q->data + row * b->vocab : NULL;
    int64_t best = -1;
    double best_score = -1;
    for (int64_t i = 0; i < kept; i++) {
        const int64_t token = b->list[i].token;
        const double noise =
            !q ? drawn_noise(row, token) : (double)q[b->args.q_order == SY_Q_VOCAB ? token : i];
        const double score = b->ranked[i] / noise;
        if (score > best_score) {
            best_score = score;
            best = token;
        }
    }
    return best;
}

/* How many of the first n reach a share of the largest weight, which is 1. */
static int64_t reach_of(const struct block *b, int64_t n, double share)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += b->ranked[i] >= share;
    return count;
}

/* Keeps these, in their order. */
static int64_t keep_reaching(const struct block *b, int64_t n, double share)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++)
        if (b->ranked[i] >= share) {
            b->list[kept] = b->list[i];
            b->ranked[kept++] = b->ranked[i];
        }
    return kept;
}

static struct answer plain_row(const struct bench_call *c, int64_t row)
{
    const struct block *const b = c->args;
    if (!b->args.q && !b->args.seed) { /* greedy */
        best_k(b, row, 1);
        return (struct answer){b->list->token, b->list->token, b->vocab, b->vocab};
    }
    const int64_t k = top_k_of(c, row), n = k > 0 ? best_k(b, row, k) : all(b, row);
    const double total = weigh(b, n, b->ranked), p = b->top_p;
    struct answer answer = {.kept_low = n, .kept_high = n};
    int64_t kept = n;
    if (b->top_p > 0) {
        kept = prefix_of(b->ranked, n, total, p);
        answer.kept_low = prefix_of(b->ranked, n, total, p - margin);
        answer.kept_high = prefix_of(b->ranked, n, total, p + margin);
    }
    if (b->min_p > 0) {
        answer.kept_low = reach_of(b, kept, b->min_p + margin);
        answer.kept_high = reach_of(b, kept, b->min_p - margin);
        kept = keep_reaching(b, kept, b->min_p);
    }
    if (b->args.q || b->args.noise == SY_NOISE_RACE) {
        answer.token_low = answer.token_high = race(b, row, kept);
        return answer;
    }
    memset(b->weights, 0, (size_t)b->vocab * sizeof *b->weights);
    double mass = 0;
    for (int64_t i = 0; i < kept; i++) {
        b->weights[b->list[i].token] = b->ranked[i];
        mass += b->ranked[i];
    }
    const double u = draw_of(SEED, (uint32_t)row);
    answer.token_low = invert(b, mass, u - margin);
    answer.token_high = invert(b, mass, u + margin);
    return answer;
}

static void plain(const struct bench_call *c)
{
    struct block *const b = c->args;
    for (int64_t row = 0; row < b->batch; row++)
        b->answers[row] = plain_row(c, row);
}

/* Each list descends, and where the token is in it, it is at its rank and has its log-probability. */
static const char *check_top(const struct block *b)
{
    const sy_sample_args *const a = &b->args;
    const int64_t n = a->top_token != NULL ? a->top_token->shape[1] : 0;
    for (int64_t i = 0; i < b->batch * n; i++) {
        const int64_t row = i / n, place = i % n;
        const float *const logprob = (const float *)a->top_logprob->data + i;
        const int64_t token = ((const int64_t *)a->top_token->data)[i],
                      picked = ((const int64_t *)a->token->data)[row];
        const bool at_rank = ((const int32_t *)a->rank->data)[row] == place + 1;
        if (place > 0 && logprob[0] > logprob[-1])
            return "top_logprob ascends";
        if (at_rank != (token == picked))
            return "rank is not the place of the token in top_token";
        if (at_rank && ((const float *)a->logprob->data)[row] != *logprob)
            return "logprob differs from that in top_logprob";
    }
    return NULL;
}

/* Another call also counts the kept, which may take another way through the library: both must name the same tokens. */
static const char *check(const struct bench_call *c)
{
    const struct block *const b = c->args;
    const int64_t *const token = b->args.token->data;
    const int32_t *const kept = b->kept->data;
    sy_sample_args counted = b->args;
    counted.kept = b->kept;
    counted.row_flags = b->flags;
    counted.logprob = counted.rank = counted.top_token = counted.top_logprob = NULL;
    counted.logprob_mode = SY_LOGPROB_NONE;
    const char *const top = check_top(b);
    if (top != NULL)
        return top;
    memcpy(b->alone, token, (size_t)b->batch * sizeof *token);
    if (sy_sample(c->ctx, &counted) != SY_OK)
        return sy_ctx_error(c->ctx);
    for (int64_t row = 0; row < b->batch; row++) {
        const struct answer *const answer = &b->answers[row];
        if (token[row] < answer->token_low || token[row] > answer->token_high)
            return "token differs from the plain loop";
        if (b->alone[row] != token[row])
            return "the token asked for alone differs from the token beside its count";
        if (kept[row] < answer->kept_low || kept[row] > answer->kept_high)
            return "kept differs from the plain loop";
    }
    return NULL;
}

BENCH_OP(sample, shapes, 22, make, .plain = plain, BENCH_THERE, .check = check, .peers = true);
