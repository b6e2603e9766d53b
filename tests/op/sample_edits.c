/*
 * What a caller changes about a row before anything else: logits that are replaced, then tokens that are not allowed. The
 * one property behind it: the row counts as if the other logit, or -inf, stood there.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample_case.h"

#define NO (-INFINITY)

static void put_one(struct sample_case *c, enum sample_slot slot, double value)
{
    sample_add_rows(c, slot, SY_F32, ROWS_ONE);
    sample_put(c, slot, 0, 0, value);
}

/* In place, the logits that RAW speaks of are the ones being overwritten. */
static void raw_log_probability_in_place(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    sample_open(&c, SY_F32, 1, 5, NULL);
    sample_put_row(&c, SLOT_LOGITS, 0, (double[]){0, 1, 2, 3, 2.5});
    sample_add_allow(&c, SY_U32, false, NULL);
    for (int64_t i = 0; i < 5; i++)
        sample_allow(&c, 0, i, i < 3);
    c.args.logprob_mode = SY_LOGPROB_RAW;
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN) | SLOT_BIT(SLOT_LOGPROB), NULL);
    c.args.masked_logits = c.args.logits;
    sample_check(&c, ctx, NULL, "in place");
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
    sample_values_make(&values, c->vocab, 0);
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
        sample_add_overrides(&c, SY_I64, SY_I32, (int64_t[]){2}, 0);
        sample_override(&c, 0, 5, -1.5f);
        sample_override(&c, 1, 30000, above[i % 6]);
        put_one(&c, SLOT_TOP_P, i < 6 ? .9 : 0.99999994);
        sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_ONE);
        sample_put_int(&c, SLOT_SEED, 0, i);
        sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN) | SLOT_BIT(SLOT_KEPT), NULL);
        sample_check(&c, ctx, NULL, "forced");
        expect_bytes(c.slot[SLOT_TOKEN].mem, &(int64_t){30000}, 8);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const char *const names[] = {"f32", "f16", "bf16"};
    struct test_list list = {0};
    test_add(&list, "raw log-probability in place", raw_log_probability_in_place, NULL);
    test_add(&list, "bits past the vocabulary are not looked at", bits_past_the_vocabulary_are_not_looked_at,
             NULL);
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        test_add(&list, test_name("a barred token is minus infinity: %s", names[t]),
                 a_barred_token_is_minus_infinity, &types[t]);
        test_add(&list, test_name("an override is a logit: %s", names[t]), an_override_is_a_logit, &types[t]);
        test_add(&list, test_name("a forced token: %s", names[t]), a_forced_token, &types[t]);
    }
    return test_run(&list, "sample_edits");
}
