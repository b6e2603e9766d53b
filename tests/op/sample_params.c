/*
 * One row, one parameter value, one expected list: the edges of k, p, min_p, temperature, ties, k_limit,
 * probabilities as input and special rows, each a named test with an answer written by hand and the oracle
 * beside it.
 */
#include "support.h"

#include <float.h>
#include <math.h>

#include "oracle/sample_case.h"

#define NO (-INFINITY)
#define ZERO 1e-300 /* 0 in a row means "not given"; this becomes 0 in f32 */

struct row {
    const char *name;
    int vocab;
    double x[8];
    bool has_k;
    int64_t k, k_limit;
    double p, min_p, temperature; /* 0: not given */
    sy_ties ties;
    bool probs_in;
    int n;
    int64_t list[8];
    int64_t token;
    int unkept;     /* candidates without a logit above -inf */
    uint32_t flags; /* SY_ROW_* */
};

#define X5 .vocab = 5, .x = {1, 3, 2, 5, 4} /* rank order 3 4 1 2 0 */
#define ALL5 .n = 5, .list = {0, 1, 2, 3, 4}, .token = 3
#define TIED .vocab = 7, .x = {2, 1, 2, 3, 1, 2, 3} /* rank order 3 6 0 2 5 1 4 */
#define FLAT .vocab = 8
#define PROBS \
    .vocab = 6, .probs_in = true, .x = {.1, .4, 0, .3, -2, .15} /* rank order 1 3 5 0 2 4, sum .95 */
#define EMPTY .vocab = 5, .x = {NO, NAN, NO, NO, NAN}, .flags = SY_ROW_EMPTY | SY_ROW_NAN, .token = -1

static const struct row rows[] = {
    {.name = "k = 0 is off", X5, .has_k = true, .k = 0, ALL5},
    {.name = "k = -1 is off", X5, .has_k = true, .k = -1, ALL5},
    {.name = "k = INT64_MIN is off", X5, .has_k = true, .k = INT64_MIN, ALL5},
    {.name = "k = INT64_MAX is off", X5, .has_k = true, .k = INT64_MAX, ALL5},
    {.name = "k = 2^32 + 1 is off, not 1", X5, .has_k = true, .k = 4294967297, ALL5},
    {.name = "k = V is off natively", X5, .has_k = true, .k = 5, ALL5},
    {.name = "k = V + 1 is off", X5, .has_k = true, .k = 6, ALL5},
    {.name = "k = 1", X5, .has_k = true, .k = 1, .n = 1, .list = {3}, .token = 3},
    {.name = "k = V - 1", X5, .has_k = true, .k = 4, .n = 4, .list = {3, 4, 1, 2}, .token = 3},
    {.name = "k_limit: k = V is on, in rank order",
     X5,
     .has_k = true,
     .k = 5,
     .k_limit = 1024,
     .n = 5,
     .list = {3, 4, 1, 2, 0},
     .token = 3},
    {.name = "k_limit: k = V + 1 is off", X5, .has_k = true, .k = 6, .k_limit = 1024, ALL5},
    {.name = "k_limit: k = limit is on",
     X5,
     .has_k = true,
     .k = 2,
     .k_limit = 2,
     .n = 2,
     .list = {3, 4},
     .token = 3},
    {.name = "k_limit: k = limit + 1 is off", X5, .has_k = true, .k = 3, .k_limit = 2, ALL5},
    {.name = "k_limit: k = 0 is off", X5, .has_k = true, .k = 0, .k_limit = 2, ALL5},
    {.name = "V = 1, k = 1 is off natively", .vocab = 1, .x = {-7}, .has_k = true, .k = 1, .n = 1},
    {.name = "V = 1, k = 1 with k_limit", .vocab = 1, .x = {-7}, .has_k = true, .k = 1, .k_limit = 8, .n = 1},
    {.name = "V = 1, p = .5, min_p = .5", .vocab = 1, .x = {-7}, .p = .5, .min_p = .5, .n = 1},
    {.name = "k inside a tie: lower indices",
     TIED,
     .has_k = true,
     .k = 4,
     .n = 4,
     .list = {3, 6, 0, 2},
     .token = 3},
    {.name = "k inside a tie, ALL",
     TIED,
     .has_k = true,
     .k = 4,
     .ties = SY_TIES_ALL,
     .n = 5,
     .list = {3, 6, 0, 2, 5},
     .token = 3},
    {.name = "k at the end of a tie, ALL changes nothing",
     TIED,
     .has_k = true,
     .k = 5,
     .ties = SY_TIES_ALL,
     .n = 5,
     .list = {3, 6, 0, 2, 5},
     .token = 3},
    {.name = "k = 1 of equal maxima, ALL",
     TIED,
     .has_k = true,
     .k = 1,
     .ties = SY_TIES_ALL,
     .n = 2,
     .list = {3, 6},
     .token = 3},

    {.name = "p = NaN is off", X5, .p = NAN, ALL5},
    {.name = "p = 1 is off", X5, .p = 1, ALL5},
    {.name = "p = 1.5 is off", X5, .p = 1.5, ALL5},
    {.name = "p = inf is off", X5, .p = INFINITY, ALL5},
    {.name = "p = 0 keeps one", X5, .p = ZERO, .n = 1, .list = {3}, .token = 3},
    {.name = "p = -inf keeps one", X5, .p = -INFINITY, .n = 1, .list = {3}, .token = 3},
    {.name = "p subnormal keeps one", X5, .p = 1e-45, .n = 1, .list = {3}, .token = 3},
    {.name = "p = 2^-100 keeps one", X5, .p = 0x1p-100, .n = 1, .list = {3}, .token = 3},
    {.name = "p just below 1 keeps all, in rank order",
     X5,
     .p = 0.99999994,
     .n = 5,
     .list = {3, 4, 1, 2, 0},
     .token = 3},
    {.name = "p just below 1 drops weight 0",
     .vocab = 3,
     .x = {0, -40, 0},
     .p = 0.99999994,
     .n = 2,
     .list = {0, 2}},
    {.name = "p = 0 with ties ALL keeps the maxima",
     TIED,
     .p = ZERO,
     .ties = SY_TIES_ALL,
     .n = 2,
     .list = {3, 6},
     .token = 3},
    {.name = "p = -1 beats k = 5, ALL",
     TIED,
     .has_k = true,
     .k = 5,
     .p = -1,
     .ties = SY_TIES_ALL,
     .n = 2,
     .list = {3, 6},
     .token = 3},
    {.name = "p reached exactly, flat", FLAT, .p = .375, .n = 3, .list = {0, 1, 2}},
    {.name = "p above a step, flat", FLAT, .p = .3750001, .n = 4, .list = {0, 1, 2, 3}},
    {.name = "p below a step, flat", FLAT, .p = .3749999, .n = 3, .list = {0, 1, 2}},
    {.name = "p in a tie, ALL",
     FLAT,
     .p = .375,
     .ties = SY_TIES_ALL,
     .n = 8,
     .list = {0, 1, 2, 3, 4, 5, 6, 7}},
    {.name = "p over what k left: tie not widened past k",
     FLAT,
     .has_k = true,
     .k = 4,
     .p = .5,
     .n = 2,
     .list = {0, 1}},

    {.name = "min_p = NaN is off", X5, .min_p = NAN, ALL5},
    {.name = "min_p negative is off", X5, .min_p = -.5, ALL5},
    {.name = "min_p keeps equality, vocabulary order",
     .vocab = 4,
     .x = {0, 1, 1, -1},
     .min_p = 0x1.78b564p-2, /* exp(-1) as the library computes it */
     .n = 3,
     .list = {0, 1, 2},
     .token = 1},
    {.name = "min_p one step above equality",
     .vocab = 4,
     .x = {0, 1, 1, -1},
     .min_p = 0x1.78b566p-2,
     .n = 2,
     .list = {1, 2},
     .token = 1},
    {.name = "min_p = 1 keeps one of equals", TIED, .min_p = 1, .n = 1, .list = {3}, .token = 3},
    {.name = "min_p = 2 keeps one", X5, .min_p = 2, .n = 1, .list = {3}, .token = 3},
    {.name = "min_p = inf, ties ALL keeps one",
     TIED,
     .min_p = INFINITY,
     .ties = SY_TIES_ALL,
     .n = 1,
     .list = {3},
     .token = 3},
    {.name = "min_p subnormal drops probability 0",
     .vocab = 4,
     .x = {0, -80, -90, NO},
     .min_p = 1e-45,
     .n = 2,
     .list = {0, 1}},
    {.name = "min_p after top-p", X5, .p = .99, .min_p = .3, .n = 2, .list = {3, 4}, .token = 3},

    {.name = "T = .5 sharpens", X5, .temperature = .5, .p = .9, .n = 2, .list = {3, 4}, .token = 3},
    {.name = "T = NaN is 1", X5, .temperature = NAN, .p = .9, .n = 3, .list = {3, 4, 1}, .token = 3},
    {.name = "T = 1", X5, .temperature = 1, .p = .9, .n = 3, .list = {3, 4, 1}, .token = 3},
    {.name = "T = inf is flat", X5, .temperature = INFINITY, .p = .5, .n = 3, .list = {3, 4, 1}, .token = 3},
    {.name = "T = 1e30 is flat", X5, .temperature = 1e30, .p = .75, .n = 4, .list = {3, 4, 1, 2}, .token = 3},
    {.name = "T = 0 keeps the maximum's mass",
     X5,
     .temperature = ZERO,
     .p = .99,
     .n = 1,
     .list = {3},
     .token = 3},
    {.name = "T = 0, equal maxima share",
     TIED,
     .temperature = ZERO,
     .p = .99,
     .n = 2,
     .list = {3, 6},
     .token = 3},
    {.name = "T = -1 acts as 1e-5", TIED, .temperature = -1, .min_p = .5, .n = 2, .list = {3, 6}, .token = 3},
    {.name = "T = 1e-5 separates one ulp",
     .vocab = 2,
     .x = {1, 1.0000001},
     .temperature = 1e-5,
     .min_p = .99,
     .n = 1,
     .list = {1},
     .token = 1},

    {.name = "probabilities: sum as given, not normalised",
     PROBS,
     .p = .7,
     .n = 2,
     .list = {1, 3},
     .token = 1},
    {.name = "probabilities: p not reached keeps all in rank order",
     PROBS,
     .p = .97,
     .n = 6,
     .list = {1, 3, 5, 0, 2, 4},
     .token = 1},
    {.name = "probabilities: min_p on raw values", PROBS, .min_p = .3, .n = 3, .list = {1, 3, 5}, .token = 1},
    {.name = "probabilities: temperature without effect",
     PROBS,
     .temperature = 100,
     .p = .7,
     .n = 2,
     .list = {1, 3},
     .token = 1},
    {.name = "probabilities: a value above 1 reaches any p",
     .vocab = 4,
     .probs_in = true,
     .x = {.5, 3, 700, .2},
     .p = .99,
     .n = 1,
     .list = {2},
     .token = 2},
    {.name = "probabilities: all <= 0",
     .vocab = 4,
     .probs_in = true,
     .x = {-3, 0, -1, -0.0},
     .p = .5,
     .min_p = .5,
     .n = 4,
     .list = {1, 3, 2, 0},
     .token = 1},
    {.name = "probabilities: NaN and -inf at the end",
     .vocab = 4,
     .probs_in = true,
     .x = {NO, .2, NAN, .1},
     .p = .9,
     .n = 4,
     .list = {1, 3, 0, 2},
     .token = 1,
     .unkept = 2,
     .flags = SY_ROW_NAN},
    {.name = "probabilities: k in a tie",
     .vocab = 4,
     .probs_in = true,
     .x = {.25, .25, .25, .25},
     .has_k = true,
     .k = 2,
     .n = 2,
     .list = {0, 1}},
    {.name = "probabilities: p reached exactly",
     .vocab = 4,
     .probs_in = true,
     .x = {.25, .25, .25, .25},
     .p = .5,
     .n = 2,
     .list = {0, 1}},
    {.name = "probabilities: p = 2^-38 is four weights of 1",
     .vocab = 8,
     .probs_in = true,
     .x = {0x1p-40, 0x1p-40, 0x1p-40, 0x1p-40, 0x1p-40, 0x1p-40, 0x1p-40, 0x1p-40},
     .p = 0x1p-38,
     .n = 4,
     .list = {0, 1, 2, 3}},
    {.name = "probabilities: p = 2^-100 keeps the first of weight 1",
     .vocab = 3,
     .probs_in = true,
     .x = {0x1p-42, 0x1p-41, 0x1p-40},
     .p = 0x1p-100,
     .n = 1,
     .list = {2},
     .token = 2},
    {.name = "probabilities: p = 0 keeps one", PROBS, .p = ZERO, .n = 1, .list = {1}, .token = 1},

    {.name = "empty row", EMPTY, .n = 5, .list = {0, 1, 2, 3, 4}, .unkept = 5},
    {.name = "empty row: k acts", EMPTY, .has_k = true, .k = 2, .n = 2, .list = {0, 1}, .unkept = 2},
    {.name = "empty row: p and min_p do not",
     EMPTY,
     .p = .1,
     .min_p = 1,
     .n = 5,
     .list = {0, 1, 2, 3, 4},
     .unkept = 5},
    {.name = "empty row: p = 0 does not", EMPTY, .p = ZERO, .n = 5, .list = {0, 1, 2, 3, 4}, .unkept = 5},
    {.name = "empty row of probabilities",
     EMPTY,
     .probs_in = true,
     .p = .5,
     .n = 5,
     .list = {0, 1, 2, 3, 4},
     .unkept = 5},
    {.name = "k reaches into -inf",
     .vocab = 5,
     .x = {NO, 1, NO, NAN, 2},
     .has_k = true,
     .k = 4,
     .n = 4,
     .list = {4, 1, 0, 2},
     .token = 4,
     .unkept = 2,
     .flags = SY_ROW_NAN},
    {.name = "+inf equals FLT_MAX",
     .vocab = 4,
     .x = {1, (double)FLT_MAX, INFINITY, 2},
     .has_k = true,
     .k = 2,
     .n = 2,
     .list = {1, 2},
     .token = 1,
     .flags = SY_ROW_INF},
    {.name = "one finite logit",
     .vocab = 4,
     .x = {NO, NO, -1e30, NO},
     .p = .5,
     .n = 1,
     .list = {2},
     .token = 2},
    {.name = "subnormals are ordered",
     .vocab = 4,
     .x = {1e-45, 0, 3e-45, -1e-45},
     .has_k = true,
     .k = 3,
     .n = 3,
     .list = {2, 0, 1},
     .token = 2},
    {.name = "-FLT_MAX is above -inf",
     .vocab = 3,
     .x = {NO, -(double)FLT_MAX, NO},
     .has_k = true,
     .k = 2,
     .n = 2,
     .list = {1, 0},
     .token = 1,
     .unkept = 1},
};

static void run_row(void **state)
{
    const struct row *r = *state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    sample_open(&c, SY_F32, 1, r->vocab, NULL);
    sample_put_row(&c, SLOT_LOGITS, 0, r->x);
    if (r->has_k) {
        sample_add_rows(&c, SLOT_TOP_K, SY_I64, ROWS_B);
        sample_put_int(&c, SLOT_TOP_K, 0, r->k);
    }
    const double reals[] = {r->p, r->min_p, r->temperature};
    for (int i = 0; i < 3; i++) {
        if (reals[i] == 0)
            continue;
        sample_add_rows(&c, (enum sample_slot)(SLOT_TOP_P + i), SY_F32, ROWS_B);
        sample_put(&c, (enum sample_slot)(SLOT_TOP_P + i), 0, 0, reals[i]);
    }
    c.args.k_limit = r->k_limit;
    c.args.ties = r->ties;
    c.args.probs_in = r->probs_in;
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    sample_check(&c, ctx, NULL, r->name);
    assert_int_equal(*(int64_t *)(void *)c.slot[SLOT_TOKEN].mem, r->token);
    assert_int_equal(*(int32_t *)(void *)c.slot[SLOT_KEPT].mem, r->n - r->unkept);
    assert_int_equal(*(uint32_t *)(void *)c.slot[SLOT_ROW_FLAGS].mem, r->flags);
    expect_bytes(c.slot[SLOT_LIST_TOKEN].mem, r->list, (size_t)r->vocab * sizeof *r->list);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Types, shapes and strides of the per-row tensors ---- */

/* The second prefix sum, .8714, lies between .8725 in bf16 (.87109375) and in f32: the type of p decides. */
static void p_is_widened_exactly(void **state)
{
    (void)state;
    static const double x[] = {5, 3.5, 3.25, 0};
    sy_ctx *ctx = test_ctx(1, NULL);
    int32_t kept[2];
    for (int wide = 0; wide < 2; wide++) {
        struct sample_case c;
        sample_open(&c, SY_BF16, 1, 4, NULL);
        sample_put_row(&c, SLOT_LOGITS, 0, x);
        sample_add_rows(&c, SLOT_TOP_P, wide ? SY_F32 : SY_BF16, ROWS_B);
        sample_put(&c, SLOT_TOP_P, 0, 0, .8725);
        sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
        sample_check(&c, ctx, NULL, "p");
        memcpy(&kept[wide], c.slot[SLOT_KEPT].mem, sizeof kept[wide]);
        sample_close(&c);
    }
    assert_int_equal(kept[0], 2);
    assert_int_equal(kept[1], 3);
    sy_ctx_destroy(ctx);
}

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
        sample_values_make(&values, vocab);
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

int main(void)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const char *const type_names[] = {"f32", "f16", "bf16"};
    static const char *const shape_names[] = {"[B]",         "[1]",           "[B,1]",
                                              "[B] strided", "[B,1] strided", "[B] stride 0"};
    static const enum sample_rows kinds[] = {ROWS_B,       ROWS_ONE,        ROWS_B1,
                                             ROWS_STRIDED, ROWS_B1_STRIDED, ROWS_STRIDE_0};
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        test_add(&list, rows[i].name, run_row, (void *)(uintptr_t)&rows[i]);
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        test_add(&list, test_name("per-row tensors of shape %s", shape_names[i]), row_shapes,
                 (void *)(uintptr_t)&kinds[i]);
    for (size_t i = 0; i < COUNT_OF(types); i++)
        test_add(&list, test_name("signalling NaN: %s", type_names[i]), signalling_nan,
                 (void *)(uintptr_t)&types[i]);
    for (size_t i = 0; i < COUNT_OF(types); i++)
        test_add(&list, test_name("nucleus is minimal: %s", type_names[i]), nucleus_is_minimal,
                 (void *)(uintptr_t)&types[i]);
    test_add(&list, "p in bf16 is widened exactly", p_is_widened_exactly, NULL);
    test_add(&list, "exp observed through list_prob", exp_through_list_prob, NULL);
    test_add(&list, "top_k_guess without effect", guess_without_effect, NULL);
    test_add(&list, "V = 2^23: weights sum to 2^63", largest_vocabulary, NULL);
    return test_run(&list, "sample_params");
}
