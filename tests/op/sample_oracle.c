/*
 * Is the exact oracle itself right? Its pieces against the printed numbers of the specification and against
 * libm, and whole rows against the float64 oracle, which knows nothing of 40-bit weights. The library is not
 * called here.
 */
#include "support.h"

#include <float.h>
#include <math.h>

#include "oracle/sample.h"

/* ---- Pieces ---- */

static void exp_spot_values(void **state)
{
    (void)state;
    static const struct {
        float t;
        uint32_t bits;
    } spot[] = {{0, 0x3f800000},   {-0.0f, 0x3f800000}, {-0.5f, 0x3f1b4598}, {-1, 0x3ebc5ab2},
                {-2, 0x3e0a9555},  {-3, 0x3d4bed86},    {-10, 0x383e6bce},   {-28, 0x2b429f81},
                {-86, 0x01739362}, {-86.00001f, 0},     {-INFINITY, 0},      {NAN, 0}};
    for (size_t i = 0; i < COUNT_OF(spot); i++)
        assert_int_equal(f32_bits(oracle_sample_exp(spot[i].t)), spot[i].bits);
}

/* 1.012 ulp is the bound the specification states for this sequence over all arguments. */
static void exp_error_and_monotony(void **state)
{
    (void)state;
    float last = 0;
    for (uint32_t bits = 0xc2ac0000u; bits >= 0x80000000u; bits -= 1009) {
        float t = f32_from_bits(bits), e = oracle_sample_exp(t);
        double exact = exp((double)t), ulp = (double)nextafterf(e, 2) - (double)e;
        assert_true(fabs((double)e - exact) <= 1.012 * ulp);
        assert_true(e >= last);
        last = e;
        if (bits < 0x80000000u + 1009)
            break;
    }
    assert_true(last == 1);
}

static void weights(void **state)
{
    (void)state;
    assert_int_equal(oracle_sample_weight(1), (uint64_t)1 << 40);
    assert_int_equal(oracle_sample_weight(oracle_sample_exp(-1)), 404487733248);
    assert_int_equal(oracle_sample_weight(oracle_sample_exp(-2)), 148802715648);
    assert_int_equal(oracle_sample_weight(oracle_sample_exp(-3)), 54741458944);
    assert_int_equal(oracle_sample_weight(oracle_sample_exp(-28)), 1);
    assert_int_equal(oracle_sample_weight(oracle_sample_exp(-29)), 0);
    assert_int_equal(oracle_sample_weight(0x1p-41f), 0);   /* half: to even */
    assert_int_equal(oracle_sample_weight(0x1.8p-40f), 2); /* one and a half: to even */
    assert_int_equal(oracle_sample_weight(0x1.4p-39f), 2); /* two and a half: to even */
    assert_int_equal(oracle_sample_weight(0x1.000002p-41f), 1);
}

static void thresholds(void **state)
{
    (void)state;
    const uint64_t w = 1707543535616u;
    assert_int_equal(oracle_sample_theta(0.9f, w), 1536789141344);
    assert_int_equal(oracle_sample_theta(0.5f, w), 853771767808);
    assert_int_equal(oracle_sample_theta(0.5f, 3), 2);
    assert_int_equal(oracle_sample_theta(0.5f, 4), 2);
    assert_int_equal(oracle_sample_theta(1e-45f, (uint64_t)1 << 63), 1);
    assert_int_equal(oracle_sample_theta(0x1p-64f, (uint64_t)1 << 63), 1);
    assert_int_equal(oracle_sample_theta(0x1p-62f, (uint64_t)1 << 63), 2);
    assert_int_equal(oracle_sample_theta(0.99999994f, (uint64_t)1 << 40), ((uint64_t)1 << 40) - 65536);
}

static void keys(void **state)
{
    (void)state;
    assert_int_equal(oracle_sample_key(2), 0xc0000000u);
    assert_int_equal(oracle_sample_key(1), 0xbf800000u);
    assert_int_equal(oracle_sample_key(0), 0x80000000u);
    assert_int_equal(oracle_sample_key(-0.0f), 0x80000000u);
    assert_int_equal(oracle_sample_key(-1), 0x407fffffu);
    assert_int_equal(oracle_sample_key(-INFINITY), 0x007fffffu);
    assert_int_equal(oracle_sample_key(NAN), 0x007fffffu);
    assert_int_equal(oracle_sample_key(INFINITY), oracle_sample_key(FLT_MAX));
}

static void score_clamps(void **state)
{
    (void)state;
    assert_true(oracle_sample_score(1, NAN, 0) == 0x1p-100f);
    assert_true(oracle_sample_score(1, INFINITY, 0) == 0x1p-100f);
    assert_true(oracle_sample_score(1, -INFINITY, 1) == 0x1p-100f);
    assert_true(oracle_sample_score(1, 0, 0) == 0x1p100f);
    assert_true(oracle_sample_score(1, -4, 0) == 0.25f);
    assert_true(oracle_sample_score(1, 1e-45f, 0) == 0x1p100f);
    assert_true(oracle_sample_score(1, 1, 1) == 0.5f);
}

static void philox_known_answers(void **state)
{
    (void)state;
    const uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    uint32_t w[4];
    oracle_sample_philox(0, zero, w);
    assert_memory_equal(w, ((uint32_t[]){0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}), sizeof w);
    oracle_sample_philox(~(uint64_t)0, ones, w);
    assert_memory_equal(w, ((uint32_t[]){0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}), sizeof w);
}

/* The relative error 3.2e-7 and the range are the specification's claims over all 2^32 words. */
static void race_noise_error_and_monotony(void **state)
{
    (void)state;
    float last = 0;
    for (uint64_t word = 0; word <= 0xffffffffu; word += 65521) {
        float q = oracle_sample_race_noise((uint32_t)word);
        double exact = -log1p(-ldexp((double)word + 0.5, -32));
        assert_true(fabs((double)q / exact - 1) < 3.2e-7);
        assert_true(q >= last);
        last = q;
    }
    for (uint32_t word = 0x4afb16da - 2000; word < 0x4afb16da + 2000; word++)
        assert_true(oracle_sample_race_noise(word + 1) >= oracle_sample_race_noise(word));
    assert_true(fabsf(oracle_sample_race_noise(0) - 1.164e-10f) < 1e-13f);
    assert_true(fabsf(oracle_sample_race_noise(0xffffffffu) - 22.874f) < 1e-3f);
}

/* 2e-15 is the specification's bound for L; libm's log is good to an ulp of its own. */
static void logarithm(void **state)
{
    (void)state;
    uint64_t rng = 7;
    assert_true(oracle_sample_ln((uint64_t)1 << 40) == 0);
    for (int i = 0; i < 20000; i++) {
        uint64_t f = (rng_u64(&rng) >> rng_below(&rng, 63)) | 1;
        double exact = (double)(logl((long double)f) - 40 * 0.693147180559945309417232121458L);
        assert_true(fabs(oracle_sample_ln(f) - exact) <= 2e-15 * fmax(1, fabs(exact)));
    }
}

/* A worked row: the sum of its weights, the thresholds, how many tokens reach them. */
static void integers_of_a_row(void **state)
{
    (void)state;
    int64_t list[4];
    float prob[4], masked[4];
    struct oracle_sample_result r = {.list = list, .prob = prob, .masked = masked};
    struct oracle_sample_row row = {
        .x = (float[]){2, 1, 0, -1}, .vocab = 4, .p = .9f, .temperature = 1, .noise = SY_NOISE_NONE};
    oracle_sample_row(&row, &r);
    assert_int_equal(r.weight_sum, 1707543535616);
    assert_int_equal(r.theta, 1536789141344);
    assert_int_equal(r.n, 3);
    row.p = .5f;
    oracle_sample_row(&row, &r);
    assert_int_equal(r.theta, 853771767808);
    assert_int_equal(r.n, 1);
}

/* Two worked draws: words, noise, scores to the printed digits, targets. */
static void words_of_a_draw(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, target;
        uint32_t cdf[2], race[4];
        float q[4];
        double scores[4]; /* 0: not printed */
    } draws[] = {{1,
                  1638324083972,
                  {0xc306ac89, 0xf59f5688},
                  {0xc37a3f0b, 0xad648805, 0xa99b95f5, 0xd8db2243},
                  {1.44216263f, 1.13107944f, 1.08627951f, 1.87793005f},
                  {.6934031, .3252463, .1245861, .02651167}},
                 {12,
                  521460783745,
                  {0x43adf88b, 0x4e2dcfaa},
                  {0xce1d9fe9, 0xfe80b171, 0x1c86cb0b, 0x7adb8721},
                  {1.63547158f, 5.14151907f, .118143849f, .653757691f},
                  {0}}};
    static const float x[] = {2, 1, 0, -1};
    int64_t list[4];
    float prob[4], masked[4];
    for (size_t d = 0; d < COUNT_OF(draws); d++) {
        struct oracle_sample_result r = {.list = list, .prob = prob, .masked = masked};
        const struct oracle_sample_row row = {.x = x,
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
        for (int i = 0; i < 4; i++) {
            const uint32_t word = oracle_sample_race_word(draws[d].seed, 5, 2, i);
            const float noise = oracle_sample_race_noise(word);
            const double score = (double)oracle_sample_score(oracle_sample_exp(x[i] - 2), noise, 0);
            const double want = draws[d].scores[i], unit = want < .1 ? 1e-8 : 1e-7;
            assert_int_equal(word, draws[d].race[i]);
            assert_int_equal(f32_bits(noise), f32_bits(draws[d].q[i]));
            assert_true(want == 0 || fabs(score - want) <= .5001 * unit);
        }
    }
}

/* ---- Rows ---- */

/* Mean 0, deviation 1. */
static double sample_normal(uint64_t *rng)
{
    const double u = 1 - rng_unit(rng), v = rng_unit(rng);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

struct sweep {
    DLDataType type;
    sy_noise noise;
    bool probs_in;
};

struct tally {
    int rows, ambiguous_set, ambiguous_choice, cuts, sampled;
};

/*
 * Margins of section 7.10: 1e-5 on sums against p and on the CDF draw, 1e-4 relative on scores. A min-p
 * threshold compares single exponentials, whose relative error is at most (2.1 + 3|t|)u with |t| < 86:
 * 1.6e-5, so 1e-4 too.
 */
static void compare_row(const struct oracle_sample_row *row, struct tally *tally)
{
    enum { MAX = 5000 };
    static int64_t list[MAX];
    static float prob[MAX], masked[MAX];
    static bool in[MAX];
    static double prob64[MAX];
    struct oracle_sample_result exact = {.list = list, .prob = prob, .masked = masked};
    struct oracle_sample_f64 f64 = {.in = in, .prob = prob64};
    oracle_sample_row(row, &exact);
    oracle_sample_f64(row, &f64);
    tally->rows++;
    if (f64.p_margin < 1e-5 || f64.mp_margin < 1e-4) {
        tally->ambiguous_set++;
        return;
    }
    assert_int_equal(exact.n, f64.n);
    tally->cuts += f64.n < row->vocab;
    for (int64_t j = 0; j < exact.n; j++) {
        assert_true(in[list[j]]);
        /*
         * e is good to (2.1 + 3|t|)u, W to the same share of ln V: 1e-5 covers |t| < 40, the rest is below
         * 1e-17.
         */
        assert_true(fabs((double)prob[j] - prob64[list[j]]) <= 1e-5 * prob64[list[j]] + 1e-17);
    }
    if (f64.choice_margin < (row->noise == SY_NOISE_CDF ? 1e-5 : 1e-4)) {
        tally->ambiguous_choice++;
        return;
    }
    tally->sampled += f64.token != exact.list[0];
    assert_int_equal(exact.token, f64.token);
    /* F carries 2e-6, t_sel 3u|t|, the result one rounding to f32. */
    if (row->noise != SY_NOISE_NONE || row->logprob_mode == SY_LOGPROB_RAW)
        assert_true(fabs((double)exact.logprob - f64.logprob) <= 4e-6 + 3e-7 * fabs(f64.logprob));
}

static void random_row(struct oracle_sample_row *row, float *x, float *q, bool *allowed,
                       const struct sweep *s, uint64_t *rng)
{
    static const double temperatures[] = {0.7, 1, 1, 1.3};
    static const float tops[] = {1, 0.5f, 0.8f, 0.9f, 0.95f, 0.99f, 0.3f, -1, NAN};
    double width = 0.5 + 4 * rng_unit(rng);
    row->vocab = 2 + rng_below(rng, rng_below(rng, 4) ? 300 : 4998);
    for (int64_t i = 0; i < row->vocab; i++) {
        double v = s->probs_in ? 3 * rng_unit(rng) / (double)row->vocab : width * sample_normal(rng);
        x[i] = s->type.bits == 32
                   ? (float)v
                   : (float)(s->type.code == 2 ? f16_value(f16_round(v)) : bf16_value(bf16_round(v)));
        q[i] = (float)-log(1 - rng_unit(rng));
        allowed[i] = i == 0 || rng_below(rng, 3);
    }
    row->allowed = rng_below(rng, 3) ? NULL : allowed;
    row->k = rng_below(rng, 2) ? 0 : 1 + rng_below(rng, row->vocab);
    row->p = tops[rng_below(rng, COUNT_OF(tops))];
    row->min_p = rng_below(rng, 2) ? 0 : 0.05f;
    row->temperature = s->probs_in ? 1 : (float)temperatures[rng_below(rng, 4)];
    row->q_order = rng_below(rng, 2) ? SY_Q_LIST : SY_Q_VOCAB;
    row->logprob_mode = s->probs_in || rng_below(rng, 2) ? SY_LOGPROB_FINAL : SY_LOGPROB_RAW;
    row->seed = rng_u64(rng);
    row->offset = rng_u64(rng);
    row->stream = (uint32_t)rng_u64(rng);
}

static void exact_equals_float64(void **state)
{
    const struct sweep *s = *state;
    static float x[5000], q[5000];
    static bool allowed[5000];
    struct tally tally = {0};
    uint64_t rng = 40 + (uint64_t)s->noise + 10u * s->type.code + s->type.bits;
    for (int i = 0; i < 400; i++) {
        struct oracle_sample_row row = {
            .x = x, .q = q, .eps = 1e-8f, .noise = s->noise, .probs_in = s->probs_in};
        random_row(&row, x, q, allowed, s, &rng);
        compare_row(&row, &tally);
    }
    assert_in_range(tally.ambiguous_set, 0, tally.rows / 20);
    assert_in_range(tally.ambiguous_choice, 0, tally.rows / 20);
    assert_true(tally.cuts > tally.rows / 2);
    if (s->noise != SY_NOISE_NONE)
        assert_true(tally.sampled > tally.rows / 5);
}

int main(void)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const char *const type_names[] = {"f32", "f16", "bf16"};
    static const char *const noise_names[] = {"auto", "none", "q", "race", "cdf"};
    static struct sweep sweeps[16];
    struct test_list list = {0};
    size_t n = 0;
    test_add(&list, "exp: spot values", exp_spot_values, NULL);
    test_add(&list, "exp: error and monotony", exp_error_and_monotony, NULL);
    test_add(&list, "weights round to even", weights, NULL);
    test_add(&list, "thresholds round up", thresholds, NULL);
    test_add(&list, "keys", keys, NULL);
    test_add(&list, "score clamps", score_clamps, NULL);
    test_add(&list, "Philox known answers", philox_known_answers, NULL);
    test_add(&list, "race noise: error and monotony", race_noise_error_and_monotony, NULL);
    test_add(&list, "logarithm", logarithm, NULL);
    test_add(&list, "integers of a row", integers_of_a_row, NULL);
    test_add(&list, "words of a draw", words_of_a_draw, NULL);
    for (int noise = SY_NOISE_NONE; noise <= SY_NOISE_CDF; noise++) {
        for (size_t t = 0; t < COUNT_OF(types); t++) {
            sweeps[n] = (struct sweep){types[t], (sy_noise)noise, false};
            test_add(&list, test_name("exact = float64: %s, %s", type_names[t], noise_names[noise]),
                     exact_equals_float64, &sweeps[n++]);
        }
        sweeps[n] = (struct sweep){types[0], (sy_noise)noise, true};
        test_add(&list, test_name("exact = float64: probabilities, %s", noise_names[noise]),
                 exact_equals_float64, &sweeps[n++]);
    }
    return test_run(&list, "sample_oracle");
}
