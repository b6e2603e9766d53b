/*
 * The random choice: where its words come from, which token they may reach, how often. Philox words are
 * observed through the tokens they select; frequencies are chi-square sums over fixed seeds with a stated
 * bound.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample_case.h"

static int64_t token_of(const struct sample_case *c, int64_t b)
{
    int64_t token;
    memcpy(&token, c->slot[SLOT_TOKEN].mem + 8 * b, sizeof token);
    return token;
}

/* One seed, offset and stream per call, as tensors of one value. */
static void add_draw(struct sample_case *c, sy_noise noise, uint64_t seed, uint64_t offset, uint32_t stream)
{
    sample_add_rows(c, SLOT_SEED, SY_U64, ROWS_ONE);
    sample_add_rows(c, SLOT_OFFSET, SY_U64, ROWS_ONE);
    sample_add_rows(c, SLOT_STREAM, SY_U32, ROWS_ONE);
    sample_put_int(c, SLOT_SEED, 0, (int64_t)seed);
    sample_put_int(c, SLOT_OFFSET, 0, (int64_t)offset);
    sample_put_int(c, SLOT_STREAM, 0, stream);
    c->args.noise = noise;
}

static void run_token(struct sample_case *c, sy_ctx *ctx)
{
    expect_status(ctx, sy_sample(ctx, &c->args), SY_OK);
}

/* ---- Words ---- */

/*
 * All ones is the counter of a CDF draw with offset 2^64-1 and stream 2^32-1: its known answer is U. Over
 * 2^20 equal logits the token is the top twenty bits of U.
 */
static void cdf_known_answer(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    sample_open(&c, SY_BF16, 1, 1 << 20, NULL);
    memset(c.slot[SLOT_LOGITS].mem, 0, c.slot[SLOT_LOGITS].bytes);
    add_draw(&c, SY_NOISE_CDF, UINT64_MAX, UINT64_MAX, UINT32_MAX);
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
    run_token(&c, ctx);
    assert_int_equal(token_of(&c, 0), 0x41c83b0eu >> 12);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* Counter 0 is token 0..3 of a race at offset 0, stream 0: of any two equal logits the smaller word wins. */
static void race_known_answer(void **state)
{
    (void)state;
    static const uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int a = 0; a < 4; a++)
        for (int b = a + 1; b < 4; b++) {
            struct sample_case c;
            double x[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
            x[a] = x[b] = 1;
            sample_open(&c, SY_F32, 1, 4, NULL);
            sample_put_row(&c, SLOT_LOGITS, 0, x);
            add_draw(&c, SY_NOISE_RACE, 0, 0, 0);
            sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
            run_token(&c, ctx);
            assert_int_equal(token_of(&c, 0), words[a] < words[b] ? a : b);
            sample_close(&c);
        }
    sy_ctx_destroy(ctx);
}

/* Seed, offset and stream each reach the draw in full: one more bit anywhere gives an unrelated token. */
static void cdf_uses_every_word(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, offset;
        uint32_t stream;
    } draws[] = {{0, 0, 0},
                 {1, 0, 0},
                 {(uint64_t)1 << 32, 0, 0},
                 {(uint64_t)1 << 63, 0, 0},
                 {0, 1, 0},
                 {0, (uint64_t)1 << 32, 0},
                 {0, (uint64_t)1 << 63, 0},
                 {0, 0, 1},
                 {0, 0, 1u << 31}};
    int64_t tokens[COUNT_OF(draws)];
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t d = 0; d < COUNT_OF(draws); d++) {
        struct sample_case c;
        uint32_t words[4];
        oracle_sample_philox(draws[d].seed,
                             (uint32_t[]){0xffffffffu, (uint32_t)draws[d].offset,
                                          (uint32_t)(draws[d].offset >> 32), draws[d].stream},
                             words);
        sample_open(&c, SY_F16, 1, 1 << 16, NULL);
        memset(c.slot[SLOT_LOGITS].mem, 0, c.slot[SLOT_LOGITS].bytes);
        add_draw(&c, SY_NOISE_CDF, draws[d].seed, draws[d].offset, draws[d].stream);
        sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
        run_token(&c, ctx);
        tokens[d] = token_of(&c, 0);
        assert_int_equal(tokens[d], words[1] >> 16);
        for (size_t e = 0; e < d; e++)
            assert_true(tokens[e] != tokens[d]);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Defaults and types ---- */

/* Tokens of `batch` equal rows drawn with the given seed types; all draws use seed -3. */
static void draw_rows(int64_t *tokens, int64_t batch, DLDataType seed_type, const DLDataType *stream_type,
                      sy_noise noise)
{
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    sample_open(&c, SY_F32, batch, 500, NULL);
    memset(c.slot[SLOT_LOGITS].mem, 0, c.slot[SLOT_LOGITS].bytes);
    sample_add_rows(&c, SLOT_SEED, seed_type, ROWS_ONE);
    sample_put_int(&c, SLOT_SEED, 0, -3);
    if (stream_type)
        sample_add_rows(&c, SLOT_STREAM, *stream_type, ROWS_B);
    for (int64_t b = 0; b < batch && stream_type; b++)
        sample_put_int(&c, SLOT_STREAM, b, stream_type->bits == 64 ? b + ((int64_t)77 << 32) : b);
    c.args.noise = noise;
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
    sample_check(&c, ctx, NULL, "draw");
    memcpy(tokens, c.slot[SLOT_TOKEN].mem, (size_t)batch * sizeof *tokens);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

static void stream_defaults_to_the_row(void **state)
{
    (void)state;
    static const DLDataType types[] = {{0, 32, 1}, {1, 32, 1}, {0, 64, 1}, {1, 64, 1}};
    int64_t plain[6], other[6];
    draw_rows(plain, 6, SY_I64, NULL, SY_NOISE_CDF);
    assert_true(plain[0] != plain[1] || plain[1] != plain[2]);
    for (size_t t = 0; t < COUNT_OF(types); t++) { /* of 64 bits the low 32 count */
        draw_rows(other, 6, SY_I64, &types[t], SY_NOISE_CDF);
        expect_bytes(other, plain, sizeof plain);
    }
}

/* Tokens of rows `first` on of a batch with a seed for each row and no stream. */
static void draw_seeded(int64_t *tokens, int64_t first, int64_t batch, bool rank_two, sy_noise noise)
{
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    sample_open(&c, SY_F32, batch, 500, NULL);
    memset(c.slot[SLOT_LOGITS].mem, 0, c.slot[SLOT_LOGITS].bytes);
    sample_add_rows(&c, SLOT_SEED, SY_I64, rank_two ? ROWS_B1 : ROWS_B);
    for (int64_t b = 0; b < batch; b++)
        sample_put_int(&c, SLOT_SEED, b, 40 + (first + b) / 2); /* two rows have one seed */
    c.args.noise = noise;
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
    sample_check(&c, ctx, NULL, "draw");
    memcpy(tokens, c.slot[SLOT_TOKEN].mem, (size_t)batch * sizeof *tokens);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* A row with a seed of its own draws the same token alone, in any batch and in any row. */
static void stream_of_own_seeds_is_zero(void **state)
{
    const sy_noise noise = (sy_noise)(uintptr_t)*state;
    int64_t all[6], other[6];
    draw_seeded(all, 0, 6, false, noise);
    draw_seeded(other, 0, 6, true, noise);
    expect_bytes(other, all, sizeof all);
    for (int64_t b = 0; b < 6; b++) {
        draw_seeded(other, b, 1, false, noise);
        assert_int_equal(other[0], all[b]);
    }
    for (int b = 0; b < 6; b += 2)
        assert_int_equal(all[b], all[b + 1]);
    assert_true(all[0] != all[2] || all[2] != all[4]);
}

static void seed_types_agree(void **state)
{
    (void)state;
    int64_t wide[6], other[6];
    draw_rows(wide, 6, SY_I64, NULL, SY_NOISE_RACE);
    draw_rows(other, 6, SY_U64, NULL, SY_NOISE_RACE);
    expect_bytes(other, wide, sizeof wide);
    draw_rows(other, 6, SY_I32, NULL, SY_NOISE_RACE);
    expect_bytes(other, wide, sizeof wide);
}

static void auto_noise(void **state)
{
    (void)state;
    int64_t automatic[6], cdf[6], none[6], zero[6] = {0};
    draw_rows(automatic, 6, SY_I64, NULL, SY_NOISE_AUTO);
    draw_rows(cdf, 6, SY_I64, NULL, SY_NOISE_CDF);
    draw_rows(none, 6, SY_I64, NULL, SY_NOISE_NONE);
    expect_bytes(automatic, cdf, sizeof cdf);
    expect_bytes(none, zero, sizeof none); /* NONE ignores the seed */
    assert_true(memcmp(cdf, none, sizeof cdf) != 0);
}

/* With both q and seed AUTO takes q; each mode by name ignores the other's input. */
static void q_before_seed(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    int64_t tokens[5];
    sample_open(&c, SY_F32, 1, 64, NULL);
    sample_add_q(&c, NULL);
    for (int i = 0; i < 64; i++) {
        sample_put(&c, SLOT_LOGITS, 0, i, 0);
        sample_put(&c, SLOT_Q, 0, i, i == 41 ? .001 : 1);
    }
    add_draw(&c, SY_NOISE_AUTO, 9, 2, 0);
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
    for (int noise = SY_NOISE_AUTO; noise <= SY_NOISE_CDF; noise++) {
        c.args.noise = (sy_noise)noise;
        sample_check(&c, ctx, NULL, "both");
        tokens[noise] = token_of(&c, 0);
    }
    assert_int_equal(tokens[SY_NOISE_AUTO], 41);
    assert_int_equal(tokens[SY_NOISE_NONE], 0);
    assert_int_equal(tokens[SY_NOISE_Q], 41);
    assert_true(tokens[SY_NOISE_RACE] != 41 && tokens[SY_NOISE_CDF] != 41);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- RACE is Q with the noise by token ---- */

/* eps stands at 0.5 in the race call to show that it is not used there. */
static void race_is_q(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    uint64_t rng = 5;
    sy_ctx *ctx = test_ctx(2, NULL);
    int sampled = 0;
    for (int i = 0; i < 60; i++) {
        struct sample_case c;
        int64_t batch = 1 + rng_below(&rng, 4), vocab = 1 + rng_below(&rng, 3000), tokens[4];
        uint64_t seed = rng_u64(&rng), offset = rng_u64(&rng);
        sample_open(&c, type, batch, vocab, NULL);
        for (int64_t b = 0; b < batch; b++)
            sample_fill_row(&c, b, i % 3 ? KIND_NORMAL : KIND_SPECIAL, &rng);
        sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_ONE);
        sample_put(&c, SLOT_TOP_P, 0, 0, i % 2 ? 1 : .9);
        add_draw(&c, SY_NOISE_RACE, seed, offset, 3);
        sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
        c.args.eps = .5f;
        run_token(&c, ctx);
        memcpy(tokens, c.slot[SLOT_TOKEN].mem, (size_t)batch * sizeof *tokens);

        sample_add_q(&c, NULL);
        for (int64_t b = 0; b < batch; b++)
            for (int64_t t = 0; t < vocab; t++)
                sample_put(&c, SLOT_Q, b, t,
                           oracle_sample_race_noise(oracle_sample_race_word(seed, offset, 3, t)));
        c.args.noise = SY_NOISE_Q;
        c.args.q_order = SY_Q_VOCAB;
        c.args.eps = 0;
        run_token(&c, ctx);
        expect_bytes(c.slot[SLOT_TOKEN].mem, tokens, (size_t)batch * sizeof *tokens);
        c.args.noise = SY_NOISE_NONE;
        run_token(&c, ctx);
        for (int64_t b = 0; b < batch; b++)
            sampled += token_of(&c, b) != tokens[b];
        sample_close(&c);
    }
    assert_true(sampled > 20);
    sy_ctx_destroy(ctx);
}

/* A filter that does not remove the winner of a race does not change it: the noise belongs to the token. */
static void race_survives_filters(void **state)
{
    (void)state;
    uint64_t rng = 8;
    sy_ctx *ctx = test_ctx(1, NULL);
    int compared = 0;
    for (int i = 0; i < 100; i++) {
        struct sample_case c;
        sample_open(&c, SY_F32, 1, 50, NULL);
        for (int t = 0; t < 50; t++)
            sample_put(&c, SLOT_LOGITS, 0, t, sample_normal(&rng));
        add_draw(&c, SY_NOISE_RACE, 100 + (uint64_t)i, 0, 0);
        sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN) | SLOT_BIT(SLOT_LIST_TOKEN) | SLOT_BIT(SLOT_KEPT), NULL);
        run_token(&c, ctx);
        int64_t free_choice = token_of(&c, 0), list[50];
        int32_t kept;
        sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_ONE);
        sample_put_int(&c, SLOT_TOP_K, 0, 20);
        run_token(&c, ctx);
        memcpy(list, c.slot[SLOT_LIST_TOKEN].mem, sizeof list);
        memcpy(&kept, c.slot[SLOT_KEPT].mem, sizeof kept);
        assert_int_equal(kept, 20);
        for (int j = 0; j < kept; j++)
            if (list[j] == free_choice) {
                assert_int_equal(token_of(&c, 0), free_choice);
                compared++;
            }
        sample_close(&c);
    }
    assert_in_range(compared, 30, 99);
    sy_ctx_destroy(ctx);
}

/*
 * The bits of the noise, observed: with probabilities equal to the two noises both scores are 1 and the first
 * token wins; with the first a step lower the second wins. Noise off by one ulp breaks one of the two.
 */
static void race_noise_bits(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    struct sample_case c;
    int small = 0, large = 0;
    sy_ctx *ctx = test_ctx(0, NULL);
    sample_open(&c, SY_F32, 2 * DRAWS, 2, NULL);
    sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_ONE);
    sample_put_int(&c, SLOT_SEED, 0, 77);
    sample_add_rows(&c, SLOT_STREAM, SY_I64, ROWS_ONE);
    sample_put_int(&c, SLOT_STREAM, 0, 0);
    sample_add_rows(&c, SLOT_OFFSET, SY_I64, ROWS_B);
    for (int64_t b = 0; b < 2 * DRAWS; b++) {
        uint32_t first = oracle_sample_race_word(77, (uint64_t)(b / 2), 0, 0);
        float q0 = oracle_sample_race_noise(first);
        float q1 = oracle_sample_race_noise(oracle_sample_race_word(77, (uint64_t)(b / 2), 0, 1));
        sample_put(&c, SLOT_LOGITS, b, 0, (double)(b % 2 ? nextafterf(q0, 0) : q0));
        sample_put(&c, SLOT_LOGITS, b, 1, (double)q1);
        sample_put_int(&c, SLOT_OFFSET, b, b / 2);
        small += first < 0x4afb16dau; /* both branches of the logarithm */
        large += first >= 0x4afb16dau;
    }
    c.args.noise = SY_NOISE_RACE;
    c.args.probs_in = true;
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
    run_token(&c, ctx);
    for (int64_t b = 0; b < 2 * DRAWS; b++)
        if (token_of(&c, b) != b % 2)
            fail_msg("offset %lld: token %lld, want %lld", (long long)(b / 2), (long long)token_of(&c, b),
                     (long long)(b % 2));
    assert_true(small > 1000 && large > 1000);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- What can be drawn ---- */

/* Tokens of weight 0 (-inf, NaN, far below the maximum, cut by a filter) beside five that can be drawn. */
static void zero_weight_is_never_drawn(void **state)
{
    const sy_noise noise = *(const sy_noise *)*state;
    enum { DRAWS = 4096, VOCAB = 12 };
    static const double x[VOCAB] = {-INFINITY, 1, NAN, 1.5, -400, .5, -1e30, 1, -INFINITY, 0, -90, NAN};
    static const bool possible[VOCAB] = {[1] = true, [3] = true, [5] = true, [7] = true, [9] = true};
    bool drawn[VOCAB] = {false};
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    uint64_t rng = 77;
    sample_open(&c, SY_F32, DRAWS, VOCAB, NULL);
    sample_add_rows(&c, SLOT_OFFSET, SY_I64, ROWS_B);
    if (noise == SY_NOISE_Q)
        sample_add_q(&c, NULL);
    for (int64_t b = 0; b < DRAWS; b++) {
        sample_put_row(&c, SLOT_LOGITS, b, x);
        sample_put_int(&c, SLOT_OFFSET, b, b);
        for (int i = 0; i < VOCAB && noise == SY_NOISE_Q;
             i++) /* the impossible ones get the luckiest noise */
            sample_put(&c, SLOT_Q, b, i, possible[i] ? -log(1 - rng_unit(&rng)) : 0);
    }
    sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_ONE);
    sample_put_int(&c, SLOT_SEED, 0, 2024);
    c.args.noise = noise;
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
    sample_check(&c, ctx, NULL, "zero weight");
    for (int64_t b = 0; b < DRAWS; b++)
        drawn[token_of(&c, b)] = true;
    expect_bytes(drawn, possible, sizeof drawn);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/*
 * Probabilities of 2^-40 weigh 1 and of 2^-42 nothing, so every target of a CDF draw is a prefix sum: the
 * token is the first whose sum exceeds it, not the one that equals it.
 */
static void cdf_at_prefix_sums(void **state)
{
    (void)state;
    enum { DRAWS = 200, VOCAB = 9 };
    static const double x[VOCAB] = {0x1p-42, 0x1p-40, 0x1p-40, 0x1p-42, 0x1p-40,
                                    0x1p-42, 0x1p-42, 0x1p-40, 0x1p-42};
    static const int64_t heavy[4] = {1, 2, 4, 7};
    int seen[4] = {0};
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    sample_open(&c, SY_F32, DRAWS, VOCAB, NULL);
    sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_B);
    for (int64_t b = 0; b < DRAWS; b++) {
        sample_put_row(&c, SLOT_LOGITS, b, x);
        sample_put_int(&c, SLOT_SEED, b, b);
    }
    c.args.probs_in = true;
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
    sample_check(&c, ctx, NULL, "prefix sums");
    for (int64_t b = 0; b < DRAWS; b++) {
        uint32_t words[4];
        oracle_sample_philox((uint64_t)b, (uint32_t[]){0xffffffffu, 0, 0, 0}, words);
        assert_int_equal(token_of(&c, b), heavy[words[1] >> 30]); /* floor(4 U / 2^64) */
        seen[words[1] >> 30]++;
    }
    assert_true(seen[0] && seen[1] && seen[2] && seen[3]);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Frequencies ---- */

/*
 * 8 tokens, 2^18 draws of consecutive offsets. The sum of (seen - expected)^2 / expected has 7 degrees of
 * freedom: its mean is 7 and it exceeds 24.32 once in a thousand honest seeds. The seeds are fixed, so this
 * fails only for a cause.
 */
static void frequencies(void **state)
{
    const sy_noise noise = *(const sy_noise *)*state;
    enum { ROWS = 8192, CALLS = 32, VOCAB = 8 };
    static const double x[VOCAB] = {0.3, 2, -1, 1.1, 0, -2.5, 1.7, -0.4};
    double expected[VOCAB], sum = 0, chi = 0;
    int64_t seen[VOCAB] = {0};
    struct sample_case c;
    sy_ctx *ctx = test_ctx(0, NULL);
    for (int i = 0; i < VOCAB; i++)
        sum += expected[i] = exp(x[i] / .8);
    sample_open(&c, SY_F32, ROWS, VOCAB, NULL);
    for (int64_t b = 0; b < ROWS; b++)
        sample_put_row(&c, SLOT_LOGITS, b, x);
    sample_add_rows(&c, SLOT_TEMPERATURE, SY_F32, ROWS_ONE);
    sample_put(&c, SLOT_TEMPERATURE, 0, 0, .8);
    sample_add_rows(&c, SLOT_SEED, SY_I64, ROWS_ONE);
    sample_put_int(&c, SLOT_SEED, 0, 1);
    sample_add_rows(&c, SLOT_STREAM, SY_I64, ROWS_ONE);
    sample_put_int(&c, SLOT_STREAM, 0, 4);
    sample_add_rows(&c, SLOT_OFFSET, SY_I64, ROWS_B);
    sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
    c.args.noise = noise;
    for (int64_t call = 0; call < CALLS; call++) {
        for (int64_t b = 0; b < ROWS; b++)
            sample_put_int(&c, SLOT_OFFSET, b, call * ROWS + b);
        run_token(&c, ctx);
        for (int64_t b = 0; b < ROWS; b++)
            seen[token_of(&c, b)]++;
    }
    for (int i = 0; i < VOCAB; i++) {
        double want = (double)ROWS * CALLS * expected[i] / sum;
        chi += ((double)seen[i] - want) * ((double)seen[i] - want) / want;
    }
    print_message("chi-square %.2f\n", chi);
    assert_true(chi < 24.32);
    assert_true(chi > 0.598); /* as rare on the other side: a draw that copies the distribution is no draw */
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Greedy rows ---- */

/* T below 1e-5 makes a row greedy whatever the noise says; its neighbours draw as if it were not there. */
static void greedy_rows_ignore_noise(void **state)
{
    const sy_noise noise = *(const sy_noise *)*state;
    static const double cold[] = {0, -1, -INFINITY, 1e-6, 9.9e-6, -0.0};
    enum { ROWS = 12, VOCAB = 40 };
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    uint64_t rng = 3;
    sample_open(&c, SY_F32, ROWS, VOCAB, NULL);
    sample_add_rows(&c, SLOT_TEMPERATURE, SY_F32, ROWS_B);
    sample_add_rows(&c, SLOT_SEED, SY_I32, ROWS_ONE);
    sample_put_int(&c, SLOT_SEED, 0, 5);
    if (noise == SY_NOISE_Q)
        sample_add_q(&c, NULL);
    for (int64_t b = 0; b < ROWS; b++) {
        for (int i = 0; i < VOCAB; i++) {
            sample_put(&c, SLOT_LOGITS, b, i, i == 7 ? 0.25 : 0);
            if (noise == SY_NOISE_Q)
                sample_put(&c, SLOT_Q, b, i, i == 7 ? 1e6 : rng_unit(&rng));
        }
        sample_put(&c, SLOT_TEMPERATURE, b, 0, b % 2 ? cold[b / 2] : 1);
    }
    c.args.noise = noise;
    c.args.logprob_mode = SY_LOGPROB_FINAL;
    sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
    sample_check(&c, ctx, NULL, "greedy");
    int drawn = 0;
    for (int64_t b = 0; b < ROWS; b++) {
        uint32_t logprob;
        memcpy(&logprob, c.slot[SLOT_LOGPROB].mem + 4 * b, sizeof logprob);
        if (b % 2) {
            assert_int_equal(token_of(&c, b), 7);
            assert_int_equal(logprob, 0);
        } else {
            drawn += token_of(&c, b) != 7;
            assert_true(logprob != 0);
        }
    }
    assert_true(drawn >= 4);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- q ---- */

/*
 * Sign is ignored; NaN and infinities count as 2^100; 0 is clamped; equal scores go to the earlier of the
 * list.
 */
static void q_values(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double x[4], q[4];
        int64_t k;
        float eps;
        int64_t token;
    } rows[] = {
        {"sign ignored", {0, 0, 0, 0}, {1, -.5, 1, -1}, 0, 0, 1},
        {"NaN is far away", {0, 0, 0, 0}, {NAN, NAN, 7, NAN}, 0, 0, 2},
        {"infinity equals NaN: first wins", {0, 0, 0, 0}, {INFINITY, NAN, -INFINITY, 1e38}, 0, 0, 0},
        {"all infinite: largest weight wins",
         {0, 1, 3, 2},
         {INFINITY, INFINITY, INFINITY, INFINITY},
         0,
         0,
         2},
        {"zero beats all", {5, 0, 0, 0}, {1e-20, 1, 0, 1}, 0, 0, 2},
        {"zeros tie at the clamp: larger weight", {0, 0, 1, 0}, {0, 0, 1e-38, 1e-45}, 0, 0, 2},
        {"eps decides against a tiny q", {0, 1, 0, 0}, {1e-9, 1e-9, 1e-20, 1e-20}, 0, 1, 1},
        {"equal scores: vocabulary order", {0, 0, 0, 0}, {2, 1, 1, 1}, 0, 0, 1},
        {"equal scores: rank order", {0, 1, 1, 0}, {2, 2, 2, 2}, 3, 0, 1},
        {"by rank", {0, 1, 2, 3}, {9, 9, .001, 9}, 3, 0, 1},
    };
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t r = 0; r < COUNT_OF(rows); r++) {
        struct sample_case c;
        sample_open(&c, SY_F32, 1, 4, NULL);
        sample_put_row(&c, SLOT_LOGITS, 0, rows[r].x);
        sample_add_q(&c, NULL);
        sample_put_row(&c, SLOT_Q, 0, rows[r].q);
        sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_B);
        sample_put_int(&c, SLOT_TOP_K, 0, rows[r].k);
        c.args.eps = rows[r].eps;
        sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
        sample_check(&c, ctx, NULL, rows[r].name);
        if (token_of(&c, 0) != rows[r].token)
            fail_msg("%s: token %lld, want %lld", rows[r].name, (long long)token_of(&c, 0),
                     (long long)rows[r].token);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static const sy_noise noises[] = {SY_NOISE_Q, SY_NOISE_RACE, SY_NOISE_CDF};
    static const char *const noise_names[] = {"q", "race", "cdf"};
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const char *const type_names[] = {"f32", "f16", "bf16"};
    struct test_list list = {0};
    test_add(&list, "CDF: Philox known answer", cdf_known_answer, NULL);
    test_add(&list, "RACE: Philox known answer", race_known_answer, NULL);
    test_add(&list, "CDF: seed, offset and stream in full", cdf_uses_every_word, NULL);
    test_add(&list, "stream defaults to the row, low 32 bits", stream_defaults_to_the_row, NULL);
    test_add(&list, "stream of rows with their own seed: CDF", stream_of_own_seeds_is_zero,
             (void *)(uintptr_t)SY_NOISE_CDF);
    test_add(&list, "stream of rows with their own seed: RACE", stream_of_own_seeds_is_zero,
             (void *)(uintptr_t)SY_NOISE_RACE);
    test_add(&list, "seed types agree", seed_types_agree, NULL);
    test_add(&list, "AUTO: seed means CDF, NONE ignores it", auto_noise, NULL);
    test_add(&list, "AUTO: q before seed", q_before_seed, NULL);
    test_add(&list, "RACE: the bits of the noise", race_noise_bits, NULL);
    test_add(&list, "CDF at prefix sums", cdf_at_prefix_sums, NULL);
    test_add(&list, "RACE survives filters", race_survives_filters, NULL);
    test_add(&list, "special values of q", q_values, NULL);
    for (size_t t = 0; t < COUNT_OF(types); t++)
        test_add(&list, test_name("RACE is Q with its noise: %s", type_names[t]), race_is_q,
                 (void *)(uintptr_t)&types[t]);
    for (size_t n = 0; n < COUNT_OF(noises); n++) {
        void *noise = (void *)(uintptr_t)&noises[n];
        test_add(&list, test_name("zero weight is never drawn: %s", noise_names[n]),
                 zero_weight_is_never_drawn, noise);
        test_add(&list, test_name("greedy rows ignore noise: %s", noise_names[n]), greedy_rows_ignore_noise,
                 noise);
        if (noises[n] != SY_NOISE_Q)
            test_add(&list, test_name("frequencies: %s", noise_names[n]), frequencies, noise);
    }
    return test_run(&list, "sample_draws");
}
