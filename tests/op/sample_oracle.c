/*
 * Is the exact oracle itself right? Whole rows against the float64 oracle, which knows nothing of 40-bit weights. The library is not
 * called here; its exponential, weights, noise and logarithm are compared with printed numbers in tests/isa, and with those of
 * the oracle by the cases.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample.h"

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

TEST_GROUP(sample_oracle)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const char *const type_names[] = {"f32", "f16", "bf16"};
    static const char *const noise_names[] = {"auto", "none", "q", "race", "cdf"};
    static struct sweep sweeps[16];
    struct test_list list = {0};
    size_t n = 0;
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
