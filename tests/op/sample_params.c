/*
 * Shapes and strides of the tensors of a number per row, signalling NaN, and properties of the cuts: the nucleus is minimal,
 * hints have no effect, large vocabularies are counted exactly.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample_case.h"

/* ---- Types, shapes and strides of the per-row tensors ---- */

/* The same numbers through every shape and stride a per-row tensor may have. */
static void row_shapes(void **state)
{
    const enum sample_rows kind = *(const enum sample_rows *)*state;
    const bool one = kind == ROWS_ONE || kind == ROWS_STRIDE_0;
    enum { BATCH = 5, VOCAB = 60 };
    unsigned char *reference[2];
    uint64_t rng = 99;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (int pass = 0; pass < 2; pass++) {
        rng = 99;
        sample_open(&c, SY_F16, BATCH, VOCAB, NULL);
        for (int64_t b = 0; b < BATCH; b++)
            sample_fill_row(&c, b, KIND_TIES, &rng);
        enum sample_rows shape = pass ? kind : ROWS_B;
        sample_add_rows(&c, SLOT_TOP_K, SY_I32, shape);
        sample_add_rows(&c, SLOT_TOP_P, SY_F16, shape);
        sample_add_rows(&c, SLOT_MIN_P, SY_F32, shape);
        sample_add_rows(&c, SLOT_TEMPERATURE, SY_F16, shape);
        sample_add_rows(&c, SLOT_SEED, SY_I32, shape);
        sample_add_rows(&c, SLOT_OFFSET, SY_U64, shape);
        sample_add_rows(&c, SLOT_STREAM, SY_I64, shape);
        for (int64_t b = 0; b < BATCH; b++) {
            int64_t v = one ? 3 : b + 1;
            sample_put_int(&c, SLOT_TOP_K, b, 10 * v);
            sample_put(&c, SLOT_TOP_P, b, 0, .5 + .1 * (double)v);
            sample_put(&c, SLOT_MIN_P, b, 0, .01 * (double)v);
            sample_put(&c, SLOT_TEMPERATURE, b, 0, .5 * (double)v);
            for (int s = SLOT_SEED; s <= SLOT_STREAM; s++)
                sample_put_int(&c, (enum sample_slot)s, b, 7 * v + s);
        }
        c.args.logprob_mode = SY_LOGPROB_FINAL;
        sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
        sample_check(&c, ctx, NULL, "shape");
        reference[pass] = tensor_snapshot(&c.slot[SLOT_LIST_PROB]);
        if (pass)
            expect_bytes(reference[1], reference[0], c.slot[SLOT_LIST_PROB].bytes);
        sample_close(&c);
    }
    free(reference[0]);
    free(reference[1]);
    sy_ctx_destroy(ctx);
}

/*
 * A signalling NaN is a NaN: p and min_p off, temperature 1, a logit -inf, q as far away as can be. Compilers
 * may turn comparisons into minimum and maximum instructions, which treat it differently from a quiet one.
 */
static void signalling_nan(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    const uint32_t nan = type.bits == 32 ? 0x7f800001 : type.code == 2 ? 0x7c01 : 0x7f81;
    static const double x[] = {1, 3, 2, 3.5, 0}, q[] = {1, 1, 1, 1, 1};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int s = SLOT_LOGITS; s <= SLOT_Q; s++) {
        struct sample_case c;
        if (s == SLOT_TOP_K)
            continue;
        sample_open(&c, type, 1, 5, NULL);
        sample_put_row(&c, SLOT_LOGITS, 0, x);
        sample_add_q(&c, NULL);
        sample_put_row(&c, SLOT_Q, 0, q);
        if (s == SLOT_LOGITS || s == SLOT_Q) {
            sample_put_bits(&c, (enum sample_slot)s, 0, 3, s == SLOT_Q ? 0x7f800001 : nan);
        } else {
            sample_add_rows(&c, (enum sample_slot)s, type, ROWS_B);
            sample_put_bits(&c, (enum sample_slot)s, 0, 0, nan);
        }
        c.args.logprob_mode = SY_LOGPROB_FINAL;
        sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
        sample_check(&c, ctx, NULL, sample_slot_name((enum sample_slot)s));
        assert_int_equal(*(int64_t *)(void *)c.slot[SLOT_TOKEN].mem, s == SLOT_LOGITS || s == SLOT_Q ? 1 : 3);
        assert_int_equal(*(int32_t *)(void *)c.slot[SLOT_KEPT].mem, s == SLOT_LOGITS ? 4 : 5);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Properties ---- */

/* The library's own list is the shortest prefix that reaches p: without its last token it falls short. */
static void nucleus_is_minimal(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    uint64_t rng = 12;
    sy_ctx *ctx = test_ctx(2, NULL);
    int inside_ties = 0;
    for (int i = 0; i < 80; i++) {
        struct sample_case c;
        int64_t vocab = 2 + rng_below(&rng, 2000);
        float p = (float)rng_unit(&rng);
        sample_open(&c, type, 1, vocab, NULL);
        sample_fill_row(&c, 0, i % 2 ? KIND_TIES : KIND_NORMAL, &rng);
        sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_B);
        sample_put(&c, SLOT_TOP_P, 0, 0, (double)p);
        sample_add_outputs(&c, SLOT_BIT(SLOT_LIST_TOKEN) | SLOT_BIT(SLOT_KEPT), NULL);
        expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
        int64_t *list = (void *)c.slot[SLOT_LIST_TOKEN].mem;
        int32_t kept;
        memcpy(&kept, c.slot[SLOT_KEPT].mem, sizeof kept);
        struct oracle_sample_row row;
        struct sample_values values;
        float max = -INFINITY;
        sample_values_make(&values, vocab, 0);
        sample_read_row(&c, 0, &values, &row);
        const float *x = row.x;
        uint64_t all = 0, head = 0;
        for (int64_t t = 0; t < vocab; t++)
            max = x[t] > max ? x[t] : max;
        for (int64_t t = 0; t < vocab; t++)
            all += oracle_sample_weight(oracle_sample_exp(x[t] - max));
        for (int32_t j = 0; j < kept - 1; j++)
            head += oracle_sample_weight(oracle_sample_exp(x[list[j]] - max));
        uint64_t last = oracle_sample_weight(oracle_sample_exp(x[list[kept - 1]] - max));
        uint64_t theta = oracle_sample_theta(p, all);
        assert_true(head < theta);
        assert_true(head + last >= theta);
        for (int64_t t = 0; t < vocab; t++) /* an equal token that was left out has a higher index */
            inside_ties += x[t] == x[list[kept - 1]] && t > list[kept - 1];
        sample_values_free(&values);
        sample_close(&c);
    }
    assert_true(inside_ties > 20);
    sy_ctx_destroy(ctx);
}

/* The exponential at 2^19 arguments from 0 to below -86, observed through the list of probabilities. */
static void exp_through_list_prob(void **state)
{
    (void)state;
    enum { VOCAB = 1 << 19 };
    struct sample_case c;
    uint64_t weight = 0, rng = 23;
    int64_t vanished = 0;
    sy_ctx *ctx = test_ctx(0, NULL);
    sample_open(&c, SY_F32, 1, VOCAB, NULL);
    float *x = (void *)c.slot[SLOT_LOGITS].mem;
    for (int64_t i = 0; i < VOCAB; i++) {
        x[i] = i ? (float)(-87 * rng_unit(&rng) / (i % 2 ? 1 : 40)) : 0;
        weight += oracle_sample_weight(oracle_sample_exp(x[i]));
    }
    sample_add_outputs(&c, SLOT_BIT(SLOT_LIST_PROB), NULL);
    expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
    const float *prob = (void *)c.slot[SLOT_LIST_PROB].mem;
    for (int64_t i = 0; i < VOCAB; i++) {
        float e = oracle_sample_exp(x[i]);
        vanished += e == 0;
        if (f32_bits(prob[i]) != f32_bits(e / ((float)weight * 0x1p-40f)))
            fail_msg("t = %.9g: probability %.9g", (double)x[i], (double)prob[i]);
    }
    assert_true(vanished > 1000);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* topKGuess is a hint: no value changes a byte. */
static void guess_without_effect(void **state)
{
    (void)state;
    static const int64_t guesses[] = {0, 1, 2, 31, 32, 1024, 100000, -1, -76, INT64_MAX, INT64_MIN};
    uint64_t rng = 4;
    struct sample_case c;
    struct sample_want want;
    sy_ctx *ctx = test_ctx(2, NULL);
    sample_open(&c, SY_BF16, 6, 3000, NULL);
    sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_B);
    sample_add_q(&c, NULL);
    for (int64_t b = 0; b < 6; b++) {
        sample_fill_row(&c, b, b % 2 ? KIND_TIES : KIND_NORMAL, &rng);
        sample_put(&c, SLOT_TOP_P, b, 0, .3 + .13 * (double)b);
        for (int64_t i = 0; i < 3000; i++)
            sample_put(&c, SLOT_Q, b, i, rng_unit(&rng));
    }
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    sample_want_make(&c, &want, NULL);
    for (size_t g = 0; g < COUNT_OF(guesses); g++) {
        c.args.top_k_guess = guesses[g];
        sample_run(&c, ctx, &want, "guess");
    }
    sample_want_free(&want);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* The largest vocabulary: equal logits sum to 2^63 exactly, and half of them reach p = .5 exactly. */
static void largest_vocabulary(void **state)
{
    (void)state;
    enum { VOCAB = 1 << 23 };
    static const float p[] = {.5f, 0.99999994f, 1};
    static const int32_t want[] = {VOCAB / 2, VOCAB, VOCAB};
    uint32_t words[4];
    struct sample_case c;
    sy_ctx *ctx = test_ctx(0, NULL);
    sample_open(&c, SY_F16, 1, VOCAB, NULL);
    memset(c.slot[SLOT_LOGITS].mem, 0, c.slot[SLOT_LOGITS].bytes);
    sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_B);
    sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_B);
    sample_put_int(&c, SLOT_SEED, 0, 6);
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN) | SLOT_BIT(SLOT_KEPT) | SLOT_BIT(SLOT_LOGPROB), NULL);
    c.args.logprob_mode = SY_LOGPROB_RAW;
    oracle_sample_philox(6, (uint32_t[]){0xffffffffu, 0, 0, 0}, words);
    for (size_t i = 0; i < COUNT_OF(p); i++) {
        sample_put(&c, SLOT_TOP_P, 0, 0, (double)p[i]);
        expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
        assert_int_equal(*(int32_t *)(void *)c.slot[SLOT_KEPT].mem, want[i]);
        assert_int_equal(*(int64_t *)(void *)c.slot[SLOT_TOKEN].mem, words[1] >> (want[i] == VOCAB ? 9 : 10));
        assert_true(*(float *)(void *)c.slot[SLOT_LOGPROB].mem ==
                    (float)-oracle_sample_ln((uint64_t)1 << 63));
    }
    sample_close(&c);
    sy_ctx_destroy(ctx);
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

int main(void)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const char *const type_names[] = {"f32", "f16", "bf16"};
    static const char *const shape_names[] = {"[B]",         "[1]",           "[B,1]",
                                              "[B] strided", "[B,1] strided", "[B] stride 0"};
    static const enum sample_rows kinds[] = {ROWS_B,       ROWS_ONE,        ROWS_B1,
                                             ROWS_STRIDED, ROWS_B1_STRIDED, ROWS_STRIDE_0};
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        test_add(&list, test_name("per-row tensors of shape %s", shape_names[i]), row_shapes,
                 (void *)(uintptr_t)&kinds[i]);
    for (size_t i = 0; i < COUNT_OF(types); i++)
        test_add(&list, test_name("signalling NaN: %s", type_names[i]), signalling_nan,
                 (void *)(uintptr_t)&types[i]);
    for (size_t i = 0; i < COUNT_OF(types); i++)
        test_add(&list, test_name("nucleus is minimal: %s", type_names[i]), nucleus_is_minimal,
                 (void *)(uintptr_t)&types[i]);
    test_add(&list, "exp observed through list_prob", exp_through_list_prob, NULL);
    test_add(&list, "top_k_guess without effect", guess_without_effect, NULL);
    test_add(&list, "V = 2^23: weights sum to 2^63", largest_vocabulary, NULL);
    test_add(&list, "vendor sample program: all tie", vendor_sample_program, NULL);
    return test_run(&list, "sample_params");
}
