/*
 * The worked examples W1-W14 of the specification, small enough to check by eye: lists, probabilities to the
 * printed digits, masked logits and tokens. Every one is also compared bit for bit with the exact oracle, and
 * runs with k_limit 0 (native rule) and 1024 (facade rule), which must not matter to any of them.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample_case.h"

#define NO (-INFINITY)
#define P_ZERO 1e-300 /* 0 in an example row means "not given"; this becomes 0 in f32 */

struct example {
    const char *name;
    int vocab;
    double x[6];
    int64_t k;
    double p, min_p, temperature; /* 0: not given */
    bool probs_in;
    sy_noise noise; /* RACE and CDF take seed, offset 5, stream 2 */
    uint64_t seed;
    double q[6]; /* used when q[0] != 0 */
    int n;
    int64_t list[6];
    const char *probs;  /* printed digits; NULL: not printed */
    const char *scores; /* prob / (|q| + eps) of the list, within one unit of the last printed digit */
    double masked[6];
    int64_t token;
};

static const struct example examples[] = {
    {.name = "W1 nothing on",
     .vocab = 5,
     .x = {1, 3, 3, -2, 0},
     .n = 5,
     .list = {0, 1, 2, 3, 4},
     .masked = {1, 3, 3, -2, 0},
     .token = 1},
    {.name = "W2 top-k with ties",
     .vocab = 6,
     .x = {2, 5, 3, 3, 1, 3},
     .k = 3,
     .n = 3,
     .list = {1, 2, 3},
     .probs = ".7869861 .1065070 .1065070",
     .masked = {NO, 5, 3, 3, NO, NO},
     .token = 1},
    {.name = "W3 probabilities by index",
     .vocab = 5,
     .x = {2, 1, 0, -1, 1},
     .n = 5,
     .list = {0, 1, 2, 3, 4},
     .probs = ".5205944 .1915160 .0704548 .0259189 .1915160",
     .masked = {2, 1, 0, -1, 1}},
    {.name = "W3 p = .5",
     .vocab = 5,
     .x = {2, 1, 0, -1, 1},
     .p = .5,
     .n = 1,
     .list = {0},
     .probs = ".5205944",
     .masked = {2, NO, NO, NO, NO}},
    {.name = "W3 p = .6",
     .vocab = 5,
     .x = {2, 1, 0, -1, 1},
     .p = .6,
     .n = 2,
     .list = {0, 1},
     .probs = ".5205944 .1915160",
     .masked = {2, 1, NO, NO, NO}},
    {.name = "W3 p = .75",
     .vocab = 5,
     .x = {2, 1, 0, -1, 1},
     .p = .75,
     .n = 3,
     .list = {0, 1, 4},
     .masked = {2, 1, NO, NO, 1}},
    {.name = "W3 p = .9",
     .vocab = 5,
     .x = {2, 1, 0, -1, 1},
     .p = .9,
     .n = 3,
     .list = {0, 1, 4},
     .masked = {2, 1, NO, NO, 1}},
    {.name = "W4 p = .5 reached exactly",
     .vocab = 4,
     .p = .5,
     .n = 2,
     .list = {0, 1},
     .masked = {0, 0, NO, NO}},
    {.name = "W4 p = .51", .vocab = 4, .p = .51, .n = 3, .list = {0, 1, 2}, .masked = {0, 0, 0, NO}},
    {.name = "W4 k = 3, p = .5",
     .vocab = 4,
     .k = 3,
     .p = .5,
     .n = 2,
     .list = {0, 1},
     .masked = {0, 0, NO, NO}},
    {.name = "W4 p = 0",
     .vocab = 4,
     .p = P_ZERO,
     .n = 1,
     .list = {0},
     .probs = "1.0000000",
     .masked = {0, NO, NO, NO}},
    {.name = "W4 k = 3, p = -1",
     .vocab = 4,
     .k = 3,
     .p = -1,
     .n = 1,
     .list = {0},
     .probs = "1.0000000",
     .masked = {0, NO, NO, NO}},
    {.name = "W5 sample, q by position",
     .vocab = 5,
     .x = {0, 1, 2, 3, 2.5},
     .q = {.05, .9, .3, 1.2, 2},
     .n = 5,
     .list = {0, 1, 2, 3, 4},
     .probs = ".0230546 .0626688 .1703514 .4630632 .2808620",
     .scores = ".4610911 .0696320 .5678381 .3858860 .1404310",
     .masked = {0, 1, 2, 3, 2.5},
     .token = 2},
    {.name = "W6 k = 3, q by rank",
     .vocab = 5,
     .x = {0, 1, 2, 3, 2.5},
     .k = 3,
     .q = {.05, .9, .3, 1.2, 2},
     .n = 3,
     .list = {3, 4, 2},
     .probs = ".5064804 .3071959 .1863237",
     .scores = "10.12961 .3413288 .6210790",
     .masked = {NO, NO, 2, 3, 2.5},
     .token = 3},
    {.name = "W7 p = .9, one softmax",
     .vocab = 5,
     .x = {0, 1, 2, 3, 2.5},
     .p = .9,
     .q = {1.2, .35, .3, .9, .05},
     .n = 3,
     .list = {3, 4, 2},
     .probs = ".4630632 .2808620 .1703514",
     .scores = ".3858860 .8024629 .5678380",
     .masked = {NO, NO, 2, 3, 2.5},
     .token = 4},
    {.name = "W9 min-p alone, q by kept position",
     .vocab = 5,
     .x = {0, 2, -1, 3, 2.5},
     .min_p = .3,
     .q = {.9, .2, .7, .1, .5},
     .n = 3,
     .list = {1, 3, 4},
     .probs = ".1801112 .4895930 .2969532",
     .scores = ".2001236 2.447965 .4242189",
     .masked = {NO, 2, NO, 3, 2.5},
     .token = 3},
    {.name = "W10 k = 4, p = .9",
     .vocab = 5,
     .x = {0, 2, -1, 3, 2.5},
     .k = 4,
     .p = .9,
     .n = 3,
     .list = {3, 4, 1},
     .probs = ".4940230 .2996401 .1817409",
     .masked = {NO, 2, NO, 3, 2.5},
     .token = 3},
    {.name = "W10 k = 4, p = .9, min-p .5",
     .vocab = 5,
     .x = {0, 2, -1, 3, 2.5},
     .k = 4,
     .p = .9,
     .min_p = .5,
     .n = 2,
     .list = {3, 4},
     .probs = ".4940230 .2996401",
     .masked = {NO, NO, NO, 3, 2.5},
     .token = 3},
    {.name = "W10 k = 4, p = -1",
     .vocab = 5,
     .x = {0, 2, -1, 3, 2.5},
     .k = 4,
     .p = -1,
     .n = 1,
     .list = {3},
     .probs = "1.0000000",
     .masked = {NO, NO, NO, 3, NO},
     .token = 3},
    {.name = "W10 nothing on",
     .vocab = 5,
     .x = {0, 2, -1, 3, 2.5},
     .n = 5,
     .list = {0, 1, 2, 3, 4},
     .probs = ".0243754 .1801112 .0089672 .4895930 .2969532",
     .masked = {0, 2, -1, 3, 2.5},
     .token = 3},
    {.name = "W11 probabilities, p = .6",
     .vocab = 5,
     .x = {.05, .4, .1, .3, .15},
     .p = .6,
     .probs_in = true,
     .q = {1, .5, 2, 1, 1},
     .n = 2,
     .list = {1, 3},
     .probs = ".4000000 .3000000",
     .scores = ".4000000 .6000000",
     .masked = {0, .4, 0, .3, 0},
     .token = 3},
    {.name = "W11 probabilities, k = 2, p = .9 not reached",
     .vocab = 5,
     .x = {.05, .4, .1, .3, .15},
     .k = 2,
     .p = .9,
     .probs_in = true,
     .n = 2,
     .list = {1, 3},
     .probs = ".4000000 .3000000",
     .masked = {0, .4, 0, .3, 0},
     .token = 1},
    {.name = "W12 NaN and -inf",
     .vocab = 4,
     .x = {1, NAN, 2, -INFINITY},
     .n = 4,
     .list = {0, 1, 2, 3},
     .probs = ".2689414 .0000000 .7310586 .0000000",
     .masked = {1, NO, 2, NO},
     .token = 2},
    {.name = "W12 two +inf share the mass",
     .vocab = 4,
     .x = {1, INFINITY, 2, INFINITY},
     .q = {.1, .9, .1, .5},
     .n = 4,
     .list = {0, 1, 2, 3},
     .probs = ".0000000 .5000000 .0000000 .5000000",
     .masked = {1, INFINITY, 2, INFINITY},
     .token = 3},
    {.name = "W12 two +inf, p = .4",
     .vocab = 4,
     .x = {1, INFINITY, 2, INFINITY},
     .p = .4,
     .n = 1,
     .list = {1},
     .probs = ".5000000",
     .masked = {NO, INFINITY, NO, NO},
     .token = 1},
    {.name = "W12 empty row, native -1",
     .vocab = 4,
     .x = {NO, NO, NO, NO},
     .n = 4,
     .list = {0, 1, 2, 3},
     .probs = ".0000000 .0000000 .0000000 .0000000",
     .masked = {NO, NO, NO, NO},
     .token = -1},
    {.name = "W12 signed zeros, k = 3",
     .vocab = 4,
     .x = {-0.0, 0, -0.0, 0},
     .k = 3,
     .n = 3,
     .list = {0, 1, 2},
     .masked = {-0.0, 0, -0.0, NO}},
    {.name = "W12 very negative, p = .9",
     .vocab = 4,
     .x = {-300, -301, -302, -400},
     .p = .9,
     .n = 2,
     .list = {0, 1},
     .masked = {-300, -301, NO, NO}},
    {.name = "W13 list probabilities",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .n = 4,
     .list = {0, 1, 2, 3},
     .probs = ".643914273 .236882829 .0871443194 .032058603",
     .masked = {2, 1, 0, -1}},
    {.name = "W13 p = .9",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .p = .9,
     .n = 3,
     .list = {0, 1, 2},
     .masked = {2, 1, 0, NO}},
    {.name = "W13 p = .5",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .p = .5,
     .n = 1,
     .list = {0},
     .masked = {2, NO, NO, NO}},
    {.name = "W13 T = .5, p = .9",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .p = .9,
     .temperature = .5,
     .n = 2,
     .list = {0, 1},
     .masked = {2, 1, NO, NO}},
    {.name = "W13 T = 2, p = .9",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .p = .9,
     .temperature = 2,
     .n = 4,
     .list = {0, 1, 2, 3},
     .masked = {2, 1, 0, -1}},
    {.name = "W14 CDF, seed 1",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .noise = SY_NOISE_CDF,
     .seed = 1,
     .n = 4,
     .list = {0, 1, 2, 3},
     .masked = {2, 1, 0, -1},
     .token = 2},
    {.name = "W14 RACE, seed 1",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .noise = SY_NOISE_RACE,
     .seed = 1,
     .n = 4,
     .list = {0, 1, 2, 3},
     .masked = {2, 1, 0, -1},
     .token = 0},
    {.name = "W14 RACE, seed 12",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .noise = SY_NOISE_RACE,
     .seed = 12,
     .n = 4,
     .list = {0, 1, 2, 3},
     .masked = {2, 1, 0, -1},
     .token = 2},
    {.name = "W14 CDF, seed 12",
     .vocab = 4,
     .x = {2, 1, 0, -1},
     .noise = SY_NOISE_CDF,
     .seed = 12,
     .n = 4,
     .list = {0, 1, 2, 3},
     .masked = {2, 1, 0, -1},
     .token = 0},
};

/*
 * Compares `value` with the next printed number: the same digits, or within `slack` units of the last one.
 * Nine digits name one f32, and W13 prints its quotients before their last rounding: there that f32 must be
 * met exactly.
 */
static const char *expect_digits(const char *printed, double value, int slack)
{
    while (*printed == ' ')
        printed++;
    const char *end = printed;
    while (*end && *end != ' ')
        end++;
    const char *dot = strchr(printed, '.');
    double unit = pow(10, -(double)(end - dot - 1)), want = strtod(printed, NULL);
    bool same = end - dot > 9 ? (float)value == (float)want : fabs(value - want) <= (slack + 0.5001) * unit;
    if (!same)
        fail_msg("%.12g is not the printed %.*s", value, (int)(end - printed), printed);
    return end;
}

static void open_example(struct sample_case *c, const struct example *e)
{
    sample_open(c, SY_F32, 1, e->vocab, NULL);
    sample_put_row(c, SLOT_LOGITS, 0, e->x);
    if (e->k) {
        sample_add_rows(c, SLOT_TOP_K, SY_I32, ROWS_B);
        sample_put_int(c, SLOT_TOP_K, 0, e->k);
    }
    const double reals[] = {e->p, e->min_p, e->temperature};
    for (int i = 0; i < 3; i++) {
        if (reals[i] == 0)
            continue;
        sample_add_rows(c, (enum sample_slot)(SLOT_TOP_P + i), SY_F32, ROWS_B);
        sample_put(c, (enum sample_slot)(SLOT_TOP_P + i), 0, 0, reals[i]);
    }
    if (e->q[0] != 0) {
        sample_add_q(c, NULL);
        sample_put_row(c, SLOT_Q, 0, e->q);
    }
    if (e->noise != SY_NOISE_AUTO) {
        const int64_t draw[] = {(int64_t)e->seed, 5, 2};
        for (int i = 0; i < 3; i++) {
            sample_add_rows(c, (enum sample_slot)(SLOT_SEED + i), SY_I64, ROWS_B);
            sample_put_int(c, (enum sample_slot)(SLOT_SEED + i), 0, draw[i]);
        }
    }
    c->args.noise = e->noise;
    c->args.probs_in = e->probs_in;
    c->args.eps = 1e-8f;
    sample_add_outputs(c, SLOTS_NO_LOGPROB, NULL);
}

static void expect_example(const struct sample_case *c, const struct example *e)
{
    const int64_t *token = (void *)c->slot[SLOT_TOKEN].mem, *list = (void *)c->slot[SLOT_LIST_TOKEN].mem;
    const float *prob = (void *)c->slot[SLOT_LIST_PROB].mem, *masked = (void *)c->slot[SLOT_MASKED].mem;
    const char *digits = e->probs, *scores = e->scores;
    assert_int_equal(*token, e->token);
    for (int j = 0; j < e->vocab; j++) {
        assert_int_equal(list[j], e->list[j]);
        assert_int_equal(f32_bits(masked[j]), f32_bits((float)e->masked[j]));
        if (j >= e->n)
            assert_int_equal(f32_bits(prob[j]), 0);
        else if (digits)
            digits = expect_digits(digits, (double)prob[j], 0);
        /* One unit: the page prints the same score as .5678381 in W5 and .5678380 in W7. */
        if (j < e->n && scores)
            scores = expect_digits(scores, (double)prob[j] / (fabs(e->q[j]) + 1e-8), 1);
    }
}

static void run_example(void **state)
{
    const struct example *e = *state;
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int64_t limit = 0; limit <= 1024; limit += 1024) {
        struct sample_case c;
        open_example(&c, e);
        c.args.k_limit = limit;
        sample_check(&c, ctx, NULL, e->name);
        expect_example(&c, e);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

static void w8_mixed_batch(void **state)
{
    (void)state;
    static const double x[4][6] = {
        {0, 1, 2, 3, 2.5, -1}, {4, 4, 4, 4, 1, 1}, {1, 2, 3, 4, 5, 6}, {.5, .25, .125, 0, -.125, -.25}};
    static const double q[6] = {.7, .2, .9, .1, .5, .3}, p[4] = {.75, .5, .9, 1};
    static const int64_t k[4] = {4, 3, 2000, 0}, tokens[4] = {4, 1, 4, 3};
    static const int64_t lists[4][6] = {{3, 4}, {0, 1}, {5, 4, 3}, {0, 1, 2, 3, 4, 5}};
    static const float masked[4][6] = {{NO, NO, NO, 3, 2.5f, NO},
                                       {4, 4, NO, NO, NO, NO},
                                       {NO, NO, NO, 4, 5, 6},
                                       {.5f, .25f, .125f, 0, -.125f, -.25f}};
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    sample_open(&c, SY_F32, 4, 6, NULL);
    sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_B);
    sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_B);
    sample_add_q(&c, NULL);
    for (int b = 0; b < 4; b++) {
        sample_put_row(&c, SLOT_LOGITS, b, x[b]);
        sample_put_row(&c, SLOT_Q, b, q);
        sample_put_int(&c, SLOT_TOP_K, b, k[b]);
        sample_put(&c, SLOT_TOP_P, b, 0, p[b]);
    }
    c.args.eps = 1e-8f;
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    sample_check(&c, ctx, NULL, "W8");
    expect_bytes(c.slot[SLOT_TOKEN].mem, tokens, sizeof tokens);
    expect_bytes(c.slot[SLOT_LIST_TOKEN].mem, lists, sizeof lists);
    expect_bytes(c.slot[SLOT_MASKED].mem, masked, sizeof masked);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

static void w12_empty_row_facade(void **state)
{
    (void)state;
    static const struct example empty = {.vocab = 4, .x = {NO, NAN, NO, NO}, .k = 2, .p = .5, .min_p = .5};
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_example(&c, &empty);
    c.args.empty_token = SY_EMPTY_ZERO;
    sample_check(&c, ctx, NULL, "empty");
    assert_int_equal(*(int64_t *)(void *)c.slot[SLOT_TOKEN].mem, 0);
    assert_int_equal(*(int32_t *)(void *)c.slot[SLOT_KEPT].mem, 0);
    assert_int_equal(*(uint32_t *)(void *)c.slot[SLOT_ROW_FLAGS].mem, SY_ROW_NAN | SY_ROW_EMPTY);
    expect_bytes(c.slot[SLOT_LIST_TOKEN].mem, ((int64_t[]){0, 1, 0, 0}),
                 32); /* top-k acts, the rest does not */
    expect_bytes(c.slot[SLOT_LIST_PROB].mem, ((float[]){0, 0, 0, 0}), 16);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

static void w13_integers(void **state)
{
    (void)state;
    static const float x[] = {2, 1, 0, -1};
    static const uint32_t keys[] = {0xc0000000, 0xbf800000, 0x80000000, 0x407fffff};
    static const uint32_t e[] = {0x3f800000, 0x3ebc5ab2, 0x3e0a9555, 0x3d4bed86};
    static const uint64_t w[] = {1099511627776, 404487733248, 148802715648, 54741458944};
    int64_t list[4];
    float prob[4], masked[4];
    for (int i = 0; i < 4; i++) {
        assert_int_equal(oracle_sample_key(x[i]), keys[i]);
        assert_int_equal(f32_bits(oracle_sample_exp(x[i] - 2)), e[i]);
        assert_int_equal(oracle_sample_weight(f32_from_bits(e[i])), w[i]);
    }
    struct oracle_sample_result r = {.list = list, .prob = prob, .masked = masked};
    struct oracle_sample_row row = {.x = x, .vocab = 4, .p = .9f, .temperature = 1, .noise = SY_NOISE_NONE};
    oracle_sample_row(&row, &r);
    assert_int_equal(r.weight_sum, 1707543535616);
    assert_int_equal(r.theta, 1536789141344);
    assert_int_equal(r.n, 3);
    row.p = .5f;
    oracle_sample_row(&row, &r);
    assert_int_equal(r.theta, 853771767808);
    assert_int_equal(r.n, 1);
}

static void w13_logprob(void **state)
{
    (void)state;
    static const struct example row = {.vocab = 4, .x = {2, 1, 0, -1}, .temperature = 3, .k = 2};
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_example(&c, &row);
    c.args.logprob_mode = SY_LOGPROB_RAW; /* sees neither the temperature nor top-k */
    sample_add_outputs(&c, SLOT_BIT(SLOT_LOGPROB), NULL);
    sample_check(&c, ctx, NULL, "raw");
    expect_digits("-0.440189689", (double)*(float *)(void *)c.slot[SLOT_LOGPROB].mem, 0);
    c.args.logprob_mode = SY_LOGPROB_FINAL; /* sees both: -ln(1 + exp(-1/3)) */
    sample_check(&c, ctx, NULL, "final");
    expect_digits("-0.540305555", (double)*(float *)(void *)c.slot[SLOT_LOGPROB].mem, 0);
    sample_close(&c);
    static const struct example cold = {.vocab = 4, .x = {2, 1, 0, -1}, .temperature = 1e-6f};
    open_example(&c, &cold);
    c.args.logprob_mode = SY_LOGPROB_FINAL; /* the token is certain */
    sample_add_outputs(&c, SLOT_BIT(SLOT_LOGPROB), NULL);
    sample_check(&c, ctx, NULL, "cold");
    assert_int_equal(*(uint32_t *)(void *)c.slot[SLOT_LOGPROB].mem, 0);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* Words, noise, scores and targets are the oracle's; the tokens of the same rows are checked above. */
static void w14_words(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        uint32_t cdf[2], race[4];
        const char *q, *scores;
        uint64_t target;
    } draws[] = {{1,
                  {0xc306ac89, 0xf59f5688},
                  {0xc37a3f0b, 0xad648805, 0xa99b95f5, 0xd8db2243},
                  "1.44216263 1.13107944 1.08627951 1.87793005",
                  ".6934031 .3252463 .1245861 .02651167",
                  1638324083972},
                 {12,
                  {0x43adf88b, 0x4e2dcfaa},
                  {0xce1d9fe9, 0xfe80b171, 0x1c86cb0b, 0x7adb8721},
                  "1.63547158 5.14151907 .118143849 .653757691",
                  NULL,
                  521460783745}};
    static const float x[] = {2, 1, 0, -1};
    int64_t list[4];
    float prob[4], masked[4];
    for (size_t d = 0; d < COUNT_OF(draws); d++) {
        struct oracle_sample_result r = {.list = list, .prob = prob, .masked = masked};
        struct oracle_sample_row row = {.x = x,
                                        .vocab = 4,
                                        .p = 1,
                                        .temperature = 1,
                                        .noise = SY_NOISE_CDF,
                                        .seed = draws[d].seed,
                                        .offset = 5,
                                        .stream = 2};
        uint32_t words[4];
        oracle_sample_row(&row, &r);
        assert_int_equal(r.cdf_target, draws[d].target);
        oracle_sample_philox(draws[d].seed, (uint32_t[]){0xffffffffu, 5, 0, 2}, words);
        expect_bytes(words, draws[d].cdf, sizeof draws[d].cdf);
        const char *q = draws[d].q, *scores = draws[d].scores;
        for (int i = 0; i < 4; i++) {
            uint32_t word = oracle_sample_race_word(draws[d].seed, 5, 2, i);
            assert_int_equal(word, draws[d].race[i]);
            float noise = oracle_sample_race_noise(word);
            q = expect_digits(q, (double)noise, 0);
            if (scores)
                scores = expect_digits(scores,
                                       (double)oracle_sample_score(oracle_sample_exp(x[i] - 2), noise, 0), 0);
        }
    }
}

/*
 * Both vendor sample programs: every logit and p the smallest bf16 subnormal, k = 128, q = 1: everything
 * ties.
 */
static void vendor_sample_program(void **state)
{
    (void)state;
    enum { ROWS = 48, VOCAB = 131072 };
    struct sample_case c;
    sy_ctx *ctx = test_ctx(0, NULL);
    const uint16_t one = 1;
    sample_open(&c, SY_BF16, ROWS, VOCAB, NULL);
    sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_ONE);
    sample_add_rows(&c, SLOT_TOP_P, SY_BF16, ROWS_ONE);
    sample_add_q(&c, NULL);
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN) | SLOT_BIT(SLOT_KEPT), NULL);
    sample_put_int(&c, SLOT_TOP_K, 0, 128);
    memcpy(c.slot[SLOT_TOP_P].mem, &one, sizeof one);
    for (size_t i = 0; i < (size_t)ROWS * VOCAB; i++) {
        memcpy(c.slot[SLOT_LOGITS].mem + 2 * i, &one, sizeof one);
        memcpy(c.slot[SLOT_Q].mem + 4 * i, &(float){1}, sizeof(float));
    }
    c.args.eps = 1e-8f;
    c.args.k_limit = 1024;
    expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
    for (int b = 0; b < ROWS; b++) {
        assert_int_equal(((int64_t *)(void *)c.slot[SLOT_TOKEN].mem)[b], 0);
        assert_int_equal(((int32_t *)(void *)c.slot[SLOT_KEPT].mem)[b], 1);
    }
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/*
 * The table of section 1: four rows choose top-k and top-p by their values, q switches sampling for the call.
 */
static void eight_scenarios(void **state)
{
    const bool sampling = *(const bool *)*state;
    static const double x[] = {1, 4, 2, 3, 0, 2.5}, q[] = {3, .2, .02, .01, .5, .4};
    static const int64_t k[4] = {0, 4, 0, 4},
                         lists[4][6] = {{0, 1, 2, 3, 4, 5}, {1, 3, 5, 2}, {1, 3}, {1, 3}};
    static const double p[4] = {1, 1, .7, .7};
    static const int64_t sampled[4] = {3, 2, 3, 3}; /* by position; by rank; by rank; by rank */
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    sample_open(&c, SY_F32, 4, 6, NULL);
    sample_add_rows(&c, SLOT_TOP_K, SY_I64, ROWS_B);
    sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_B1);
    if (sampling)
        sample_add_q(&c, NULL);
    for (int b = 0; b < 4; b++) {
        sample_put_row(&c, SLOT_LOGITS, b, x);
        sample_put_int(&c, SLOT_TOP_K, b, k[b]);
        sample_put(&c, SLOT_TOP_P, b, 0, p[b]);
        if (sampling)
            sample_put_row(&c, SLOT_Q, b, q);
    }
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    sample_check(&c, ctx, NULL, "scenarios");
    expect_bytes(c.slot[SLOT_LIST_TOKEN].mem, lists, sizeof lists);
    for (int b = 0; b < 4; b++)
        assert_int_equal(((int64_t *)(void *)c.slot[SLOT_TOKEN].mem)[b], sampling ? sampled[b] : 1);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static const bool off = false, on = true;
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(examples); i++)
        test_add(&list, examples[i].name, run_example, (void *)(uintptr_t)&examples[i]);
    test_add(&list, "W8 one batch", w8_mixed_batch, NULL);
    test_add(&list, "W12 empty row, facade 0", w12_empty_row_facade, NULL);
    test_add(&list, "W13 integers", w13_integers, NULL);
    test_add(&list, "W13 log-probability", w13_logprob, NULL);
    test_add(&list, "W14 words, noise, scores, targets", w14_words, NULL);
    test_add(&list, "vendor sample program: all tie", vendor_sample_program, NULL);
    test_add(&list, "four scenarios without sampling", eight_scenarios, (void *)(uintptr_t)&off);
    test_add(&list, "four scenarios with sampling", eight_scenarios, (void *)(uintptr_t)&on);
    return test_run(&list, "sample_examples");
}
