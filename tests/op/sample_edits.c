/*
 * What a caller changes about a row before anything else: tokens that are not allowed. Worked examples, what each output
 * says of a barred token, and the one property behind all of it: the row counts as if -inf stood there.
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

/* ---- The row counts as if -inf stood there ---- */

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
    for (size_t t = 0; t < COUNT_OF(types); t++)
        test_add(&list, test_name("a barred token is minus infinity: %s", names[t]),
                 a_barred_token_is_minus_infinity, &types[t]);
    return test_run(&list, "sample_edits");
}
