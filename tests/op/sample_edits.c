/*
 * What a caller changes about a row before anything else: logits that are replaced, then tokens that are not allowed.
 * Worked examples, what each output says of such tokens, and the one property behind all of it: the row counts as if the
 * other logit, or -inf, stood there.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample_case.h"

#define NO (-INFINITY)

static void open_row(struct sample_case *c, int64_t vocab, const double *x)
{
    sample_open(c, SY_F32, 1, vocab, NULL);
    sample_put_row(c, SLOT_LOGITS, 0, x);
}

/* Allows the tokens whose bits are set. */
static void allow(struct sample_case *c, uint32_t bits)
{
    sample_add_allow(c, SY_U32, false, NULL);
    for (int64_t i = 0; i < c->vocab; i++)
        sample_allow(c, 0, i, bits >> i & 1);
}

/* Replaces the logits of n tokens of the only row. */
static void override(struct sample_case *c, int64_t n, const int64_t *token, const float *logit)
{
    sample_add_overrides(c, SY_I64, SY_I32, &n, 0);
    for (int64_t i = 0; i < n; i++)
        sample_override(c, i, token[i], logit[i]);
}

static void put_one(struct sample_case *c, enum sample_slot slot, double value)
{
    sample_add_rows(c, slot, SY_F32, ROWS_ONE);
    sample_put(c, slot, 0, 0, value);
}

static int64_t token_of(const struct sample_case *c)
{
    int64_t token;
    memcpy(&token, c->slot[SLOT_TOKEN].mem, sizeof token);
    return token;
}

static void expect_floats(const struct sample_case *c, enum sample_slot slot, const float *want)
{
    expect_bytes(c->slot[slot].mem, want, (size_t)c->vocab * sizeof *want);
}

/* ---- Worked examples ---- */

static void the_best_token_is_barred(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_row(&c, 5, (double[]){0, 1, 2, 3, 2.5});
    allow(&c, 0x17); /* all but token 3 */
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    sample_check(&c, ctx, NULL, "barred");
    assert_int_equal(token_of(&c), 4);
    expect_bytes(c.slot[SLOT_KEPT].mem, &(int32_t){4}, 4);
    expect_floats(&c, SLOT_MASKED, (float[]){0, 1, 2, NO, 2.5});
    /* It stands in the list, with probability 0. */
    expect_bytes(c.slot[SLOT_LIST_TOKEN].mem, ((int64_t[]){0, 1, 2, 3, 4}), 40);
    assert_true(((float *)(void *)c.slot[SLOT_LIST_PROB].mem)[3] == 0);
    sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_ONE);
    sample_put_int(&c, SLOT_TOP_K, 0, 2);
    sample_check(&c, ctx, NULL, "barred, k = 2");
    expect_floats(&c, SLOT_MASKED, (float[]){NO, NO, 2, NO, 2.5});
    expect_bytes(c.slot[SLOT_LIST_TOKEN].mem, ((int64_t[]){4, 2, 0, 0, 0}), 40);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* RAW speaks of the logits as they came, FINAL of what was drawn from: ln of .1703514 and of 1/(1 + e^-1 + e^-2). */
static void log_probabilities(void **state)
{
    (void)state;
    struct sample_case c;
    float raw, final;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_row(&c, 5, (double[]){0, 1, 2, 3, 2.5});
    allow(&c, 7);
    sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
    c.args.logprob_mode = SY_LOGPROB_RAW;
    sample_check(&c, ctx, NULL, "raw");
    memcpy(&raw, c.slot[SLOT_LOGPROB].mem, sizeof raw);
    c.args.logprob_mode = SY_LOGPROB_FINAL;
    sample_check(&c, ctx, NULL, "final");
    memcpy(&final, c.slot[SLOT_LOGPROB].mem, sizeof final);
    assert_int_equal(token_of(&c), 2);
    assert_true(fabs((double)raw - log(.1703514)) < 1e-6);
    assert_true(fabs((double) final + log(1 + exp(-1) + exp(-2))) < 1e-6);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* In place, the logits that RAW speaks of are the ones being overwritten. */
static void raw_log_probability_in_place(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_row(&c, 5, (double[]){0, 1, 2, 3, 2.5});
    allow(&c, 7);
    c.args.logprob_mode = SY_LOGPROB_RAW;
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN) | SLOT_BIT(SLOT_LOGPROB), NULL);
    c.args.masked_logits = c.args.logits;
    sample_check(&c, ctx, NULL, "in place");
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* What a barred token's logit is does not matter, not even for the flags. */
static void flags_look_at_allowed_tokens(void **state)
{
    (void)state;
    static const struct {
        uint32_t allowed, flags;
        int64_t token;
    } rows[] = {{0x01, 0, 0},
                {0x05, SY_ROW_NAN, 0},
                {0x0b, SY_ROW_INF, 3},
                {0x1f, SY_ROW_NAN | SY_ROW_INF, 3},
                {0x12, 0, 1},
                {0x04, SY_ROW_NAN | SY_ROW_EMPTY, -1},
                {0x10, SY_ROW_EMPTY, -1},
                {0x00, SY_ROW_EMPTY, -1}};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        struct sample_case c;
        open_row(&c, 5, (double[]){1, 0, NAN, INFINITY, -INFINITY});
        allow(&c, rows[r].allowed);
        sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
        sample_check(&c, ctx, NULL, "flags");
        expect_bytes(c.slot[SLOT_ROW_FLAGS].mem, &rows[r].flags, 4);
        assert_int_equal(token_of(&c), rows[r].token);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* A barred probability is written as the fill, 0, where a given -inf stays. */
static void probabilities(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_row(&c, 5, (double[]){.05, .4, -INFINITY, .3, .15});
    allow(&c, 0x1d);
    put_one(&c, SLOT_TOP_P, 1);
    c.args.probs_in = true;
    c.args.logprob_mode = SY_LOGPROB_RAW;
    sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
    sample_check(&c, ctx, NULL, "probabilities");
    assert_int_equal(token_of(&c), 3);
    expect_floats(&c, SLOT_MASKED, (float[]){.05f, 0, NO, .3f, .15f});
    expect_floats(&c, SLOT_LIST_PROB, (float[]){.05f, 0, 0, .3f, .15f});
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* The last word has bits for tokens there are not. */
static void bits_past_the_vocabulary_are_not_looked_at(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int64_t vocab = 1; vocab <= 130; vocab++)
        for (int rest = 0; rest < 2; rest++) {
            struct sample_case c;
            uint64_t rng = (uint64_t)vocab;
            sample_open(&c, SY_BF16, 2, vocab, NULL);
            for (int64_t b = 0; b < 2; b++)
                sample_fill_row(&c, b, KIND_NORMAL, &rng);
            sample_add_allow(&c, SY_I32, vocab % 3 == 0, &(struct layout){.misalign = (size_t)vocab % 4});
            sample_fill_allow(&c, &rng);
            for (int64_t i = vocab; i % 32 != 0; i++) {
                sample_allow(&c, 0, i, rest);
                sample_allow(&c, 1, i, rest);
            }
            sample_add_outputs(&c, vocab % 2 ? SLOTS_NO_LOGPROB : SLOT_BIT(SLOT_TOKEN), NULL);
            sample_check(&c, ctx, NULL, "past the vocabulary");
            sample_close(&c);
        }
    sy_ctx_destroy(ctx);
}

/* The best token is banned, and another is lifted above all. */
static void logits_are_replaced(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_row(&c, 5, (double[]){0, 1, 2, 3, 2.5});
    override(&c, 2, (int64_t[]){1, 3}, (float[]){4, NO});
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    sample_check(&c, ctx, NULL, "replaced");
    assert_int_equal(token_of(&c), 1);
    expect_bytes(c.slot[SLOT_KEPT].mem, &(int32_t){4}, 4);
    expect_floats(&c, SLOT_MASKED, (float[]){0, 4, 2, NO, 2.5});
    sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_ONE);
    sample_put_int(&c, SLOT_TOP_K, 0, 2);
    sample_check(&c, ctx, NULL, "replaced, k = 2");
    expect_floats(&c, SLOT_MASKED, (float[]){NO, 4, NO, NO, 2.5});
    expect_bytes(c.slot[SLOT_LIST_TOKEN].mem, ((int64_t[]){1, 4, 0, 0, 0}), 40);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* The value counts as it is, also where the logits could not hold it; equal to another it comes by its index. */
static void an_override_is_not_rounded(void **state)
{
    (void)state;
    static const struct {
        float logit;
        int64_t token;
    } rows[] = {{0x1.000002p0f, 2}, {1, 1}, {0x1.fffffep-1f, 1}};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        struct sample_case c;
        sample_open(&c, SY_BF16, 1, 4, NULL);
        sample_put_row(&c, SLOT_LOGITS, 0, (double[]){-1, 1, -1, 1});
        override(&c, 1, (int64_t[]){2}, &rows[r].logit);
        sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
        sample_check(&c, ctx, NULL, "not rounded");
        assert_int_equal(token_of(&c), rows[r].token);
        expect_floats(&c, SLOT_MASKED, (float[]){-1, 1, rows[r].logit, 1});
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* First the override, then the bits: a barred token stays barred, and what its override is does not matter. */
static void bits_come_after_overrides(void **state)
{
    (void)state;
    static const float logits[] = {9, INFINITY, NAN};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t i = 0; i < COUNT_OF(logits); i++) {
        struct sample_case c;
        open_row(&c, 5, (double[]){0, 1, 2, 3, 2.5});
        allow(&c, 0x17); /* all but token 3 */
        override(&c, 2, (int64_t[]){0, 3}, (float[]){2.75, logits[i]});
        sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
        sample_check(&c, ctx, NULL, "barred and replaced");
        assert_int_equal(token_of(&c), 0);
        expect_bytes(c.slot[SLOT_ROW_FLAGS].mem, &(uint32_t){0}, 4);
        expect_floats(&c, SLOT_MASKED, (float[]){2.75, 1, 2, NO, 2.5});
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

static void flags_look_at_overrides(void **state)
{
    (void)state;
    static const struct {
        float logit[4];
        uint32_t flags;
        int64_t token;
    } rows[] = {{{0, 1, 2, 0}, 0, 2},
                {{0, NAN, 2, 0}, SY_ROW_NAN, 2},
                {{INFINITY, 1, INFINITY, 0}, SY_ROW_INF, 0},
                {{NO, NO, NO, 0}, 0, 3},
                {{NO, NAN, NO, NO}, SY_ROW_NAN | SY_ROW_EMPTY, -1},
                {{-0.0f, NO, NO, 0}, 0, 0}};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        struct sample_case c;
        open_row(&c, 4, (double[]){NAN, INFINITY, 5, NO});
        override(&c, 4, (int64_t[]){0, 1, 2, 3}, rows[r].logit);
        sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
        sample_check(&c, ctx, NULL, "flags");
        expect_bytes(c.slot[SLOT_ROW_FLAGS].mem, &rows[r].flags, 4);
        assert_int_equal(token_of(&c), rows[r].token);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* RAW speaks of the logits as they came: ln .0230546 for token 0, -inf for one that was -inf. */
static void log_probabilities_of_overrides(void **state)
{
    (void)state;
    static const double x[2][5] = {{0, 1, 2, 3, 2.5}, {NO, 1, 2, 3, 2.5}};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int row = 0; row < 2; row++) {
        struct sample_case c;
        float raw, final;
        open_row(&c, 5, x[row]);
        override(&c, 3, (int64_t[]){0, 3, 4}, (float[]){4, NO, NO});
        sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
        c.args.logprob_mode = SY_LOGPROB_RAW;
        sample_check(&c, ctx, NULL, "raw");
        memcpy(&raw, c.slot[SLOT_LOGPROB].mem, sizeof raw);
        c.args.logprob_mode = SY_LOGPROB_FINAL;
        sample_check(&c, ctx, NULL, "final");
        memcpy(&final, c.slot[SLOT_LOGPROB].mem, sizeof final);
        assert_int_equal(token_of(&c), 0);
        assert_true(row == 0 ? fabs((double)raw - log(.0230546)) < 1e-5 : raw == NO);
        assert_true(fabs((double) final + log(1 + exp(-3) + exp(-2))) < 1e-6);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* ---- The row counts as if the other logit, or -inf, stood there ---- */

static void bar_by_hand(struct sample_case *c)
{
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < c->vocab; i++) {
            uint32_t word;
            memcpy(&word, (unsigned char *)tensor_row(&c->slot[SLOT_ALLOW_BITS], b) + i / 32 * 4, 4);
            if (!(word >> i % 32 & 1))
                sample_put(c, SLOT_LOGITS, b, i, NO);
        }
    c->args.allow_bits = NULL;
}

static void a_barred_token_is_minus_infinity(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    enum { ROWS = 4 };
    uint64_t rng = 90 + type.code + type.bits;
    sy_ctx *ctx = test_ctx(3, NULL);
    for (int call = 0; call < 60; call++) {
        struct sample_case c;
        int64_t masked[ROWS], by_hand[ROWS];
        sample_open(&c, type, ROWS, 1 + rng_below(&rng, call % 4 ? 3000 : 40000), NULL);
        for (int64_t b = 0; b < ROWS; b++)
            sample_fill_row(&c, b,
                            rng_below(&rng, 2) ? KIND_NORMAL : (enum sample_kind)rng_below(&rng, KIND_COUNT),
                            &rng);
        sample_add_allow(&c, SY_U32, false, NULL);
        sample_fill_allow(&c, &rng);
        if (rng_below(&rng, 2)) {
            sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_ONE);
            sample_put_int(&c, SLOT_TOP_K, 0, 1 + rng_below(&rng, 200));
        }
        if (rng_below(&rng, 2))
            put_one(&c, SLOT_TOP_P, .3 + .7 * rng_unit(&rng));
        if (rng_below(&rng, 3)) {
            sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_ONE);
            sample_put_int(&c, SLOT_SEED, 0, (int64_t)rng_u64(&rng));
        }
        sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
        expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
        memcpy(masked, c.slot[SLOT_TOKEN].mem, sizeof masked);
        bar_by_hand(&c);
        expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
        memcpy(by_hand, c.slot[SLOT_TOKEN].mem, sizeof by_hand);
        expect_bytes(masked, by_hand, sizeof by_hand);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* The same call on f32 rows that hold the overrides. */
static void override_by_hand(const struct sample_case *c, struct sample_case *by_hand)
{
    struct sample_values values;
    struct oracle_sample_row row;
    sample_values_make(&values, c->vocab);
    sample_open(by_hand, SY_F32, c->batch, c->vocab, NULL);
    by_hand->args = c->args;
    by_hand->args.logits = &by_hand->slot[SLOT_LOGITS].t;
    by_hand->args.override_indptr = by_hand->args.override_token = by_hand->args.override_logit = NULL;
    for (int64_t b = 0; b < c->batch; b++) {
        sample_read_row(c, b, &values, &row);
        for (int64_t i = 0; i < c->vocab; i++)
            sample_put(by_hand, SLOT_LOGITS, b, i, (double)values.x[i]);
    }
    sample_values_free(&values);
}

/* All outputs or the token alone, which takes the short ways. */
static void an_override_is_a_logit(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    enum { ROWS = 4 };
    uint64_t rng = 190 + type.code + type.bits;
    sy_ctx *ctx = test_ctx(3, NULL);
    for (int call = 0; call < 80; call++) {
        struct sample_case c, by_hand;
        sample_open(&c, type, ROWS, 1 + rng_below(&rng, call % 4 ? 3000 : 40000), NULL);
        for (int64_t b = 0; b < ROWS; b++)
            sample_fill_row(&c, b,
                            rng_below(&rng, 2) ? KIND_NORMAL : (enum sample_kind)rng_below(&rng, KIND_COUNT),
                            &rng);
        sample_fill_overrides(&c, &rng);
        if (rng_below(&rng, 2)) {
            sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_ONE);
            sample_put_int(&c, SLOT_TOP_K, 0, 1 + rng_below(&rng, 200));
        }
        if (rng_below(&rng, 2))
            put_one(&c, SLOT_TOP_P, .3 + .7 * rng_unit(&rng));
        if (rng_below(&rng, 3)) {
            sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_ONE);
            sample_put_int(&c, SLOT_SEED, 0, (int64_t)rng_u64(&rng));
        }
        const unsigned outputs = call % 2 ? SLOT_BIT(SLOT_TOKEN) : SLOTS_NO_LOGPROB;
        sample_add_outputs(&c, outputs, NULL);
        expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
        override_by_hand(&c, &by_hand);
        sample_add_outputs(&by_hand, outputs, NULL);
        expect_status(ctx, sy_sample(ctx, &by_hand.args), SY_OK);
        for (int s = SLOT_FIRST_OUTPUT; s < SLOT_COUNT; s++)
            if (outputs & SLOT_BIT(s))
                expect_bytes(c.slot[s].mem, by_hand.slot[s].mem, by_hand.slot[s].bytes);
        sample_close(&c);
        sample_close(&by_hand);
    }
    sy_ctx_destroy(ctx);
}

/* A bias that is meant to force a token is so far above the row that nothing in it weighs anything. */
static void a_forced_token(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    enum { VOCAB = 40000 };
    uint64_t rng = 7;
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int i = 0; i < 12; i++) {
        static const float above[] = {100, 29, 28.6f, 28.5f, 28.4f, 3e38f};
        struct sample_case c;
        sample_open(&c, type, 1, VOCAB, NULL);
        sample_fill_row(&c, 0, KIND_EQUAL, &rng);
        for (int64_t j = 0; j < VOCAB; j++)
            sample_put(&c, SLOT_LOGITS, 0, j, j % 7 - 6);
        override(&c, 2, (int64_t[]){5, 30000}, (float[]){-1.5f, above[i % 6]});
        put_one(&c, SLOT_TOP_P, i < 6 ? .9 : 0.99999994);
        sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_ONE);
        sample_put_int(&c, SLOT_SEED, 0, i);
        sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN) | SLOT_BIT(SLOT_KEPT), NULL);
        sample_check(&c, ctx, NULL, "forced");
        assert_int_equal(token_of(&c), 30000);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* One row of bits for all rows is the same as that row for each. */
static void one_row_for_all(void **state)
{
    (void)state;
    uint64_t rng = 5;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    sample_open(&c, SY_F16, 6, 700, NULL);
    for (int64_t b = 0; b < 6; b++)
        sample_fill_row(&c, b, KIND_NORMAL, &rng);
    sample_add_allow(&c, SY_I32, true, NULL);
    for (int64_t i = 0; i < 700; i++)
        sample_allow(&c, 0, i, i % 7 == 2 || i > 650);
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    sample_check(&c, ctx, NULL, "one row");
    for (int64_t b = 0; b < 6; b++) {
        int64_t token;
        memcpy(&token, c.slot[SLOT_TOKEN].mem + 8 * b, sizeof token);
        assert_true(token % 7 == 2 || token > 650);
    }
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const char *const names[] = {"f32", "f16", "bf16"};
    struct test_list list = {0};
    test_add(&list, "the best token is barred", the_best_token_is_barred, NULL);
    test_add(&list, "log-probabilities", log_probabilities, NULL);
    test_add(&list, "raw log-probability in place", raw_log_probability_in_place, NULL);
    test_add(&list, "flags look at allowed tokens", flags_look_at_allowed_tokens, NULL);
    test_add(&list, "probabilities", probabilities, NULL);
    test_add(&list, "bits past the vocabulary are not looked at", bits_past_the_vocabulary_are_not_looked_at,
             NULL);
    test_add(&list, "one row for all", one_row_for_all, NULL);
    test_add(&list, "logits are replaced", logits_are_replaced, NULL);
    test_add(&list, "an override is not rounded", an_override_is_not_rounded, NULL);
    test_add(&list, "bits come after overrides", bits_come_after_overrides, NULL);
    test_add(&list, "flags look at overrides", flags_look_at_overrides, NULL);
    test_add(&list, "log-probabilities of overrides", log_probabilities_of_overrides, NULL);
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        test_add(&list, test_name("a barred token is minus infinity: %s", names[t]),
                 a_barred_token_is_minus_infinity, &types[t]);
        test_add(&list, test_name("an override is a logit: %s", names[t]), an_override_is_a_logit, &types[t]);
        test_add(&list, test_name("a forced token: %s", names[t]), a_forced_token, &types[t]);
    }
    return test_run(&list, "sample_edits");
}
