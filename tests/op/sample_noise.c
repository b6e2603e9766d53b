/*
 * sample_noise: every element against the oracle on every table and thread count, and what it is for: the
 * token a race picks is the token its noise picks when it comes back as q.
 */
#include "support.h"

#include <fenv.h>

#include "oracle/sample_case.h"

struct key {
    uint64_t seed, offset;
    uint32_t stream;
};

static void make_noise(sy_ctx *ctx, struct key key, float *q, int64_t n)
{
    const DLTensor view = sy_tensor(q, SY_F32, 1, &n);
    const sy_sample_noise_args args = {
        .seed = key.seed, .offset = key.offset, .stream = key.stream, .n = n, .q = &view};
    sy_query query;
    expect_status(ctx, sy_sample_noise_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, n);
    assert_true(query.workspace_bytes == 0);
    expect_status(ctx, sy_sample_noise(ctx, &args), SY_OK);
}

static void expect_oracle(const float *q, struct key key, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = oracle_sample_race_word(key.seed, key.offset, key.stream, i);
        assert_int_equal(f32_bits(q[i]), f32_bits(oracle_sample_race_noise(word)));
    }
}

static struct key random_key(uint64_t *rng)
{
    return (struct key){rng_u64(rng), rng_u64(rng) >> rng_below(rng, 64), (uint32_t)rng_u64(rng)};
}

/* Lengths around whole groups of four, in memory of any alignment, and nothing beside it is touched. */
static void every_length(void **state)
{
    (void)state;
    uint64_t rng = 11;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (int64_t n = 0; n < 70; n++) {
        const struct key key = random_key(&rng);
        unsigned char *memory = buf_new((size_t)n * 4, (size_t)(n % 8));
        float aligned[70];
        make_noise(ctx, key, (float *)(void *)memory, n);
        buf_check(memory);
        memcpy(aligned, memory, (size_t)n * 4);
        expect_oracle(aligned, key, n);
        buf_free(memory);
    }
    sy_ctx_destroy(ctx);
}

static void every_table_and_thread_count(void **state)
{
    (void)state;
    enum { N = 50003 };
    static float want[N], got[N];
    const struct key key = {0x123456789abcdef0, UINT64_MAX, UINT32_MAX};
    sy_ctx *plain = test_ctx(1, "scalar");
    make_noise(plain, key, want, N);
    sy_ctx_destroy(plain);
    expect_oracle(want, key, N);
    for (int t = 0; sy_isa_name(t) != NULL; t++)
        for (int threads = 1; threads <= 5; threads += 2) {
            sy_ctx *ctx = test_ctx(threads, sy_isa_name(t));
            memset(got, 0xA5, sizeof got);
            make_noise(ctx, key, got, N);
            expect_bytes(got, want, sizeof want);
            sy_ctx_destroy(ctx);
        }
}

static void the_callers_rounding_mode_is_not_used(void **state)
{
    (void)state;
    const int modes[] = {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    const struct key key = {9, 8, 7};
    float got[64];
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        make_noise(ctx, key, got, 64);
        const int mode = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(mode, modes[i]);
        expect_oracle(got, key, 64);
    }
    sy_ctx_destroy(ctx);
}

/* 64 GiB cannot be filled here, but asked for: one token more would use the counter of CDF draws. */
static void the_longest_noise(void **state)
{
    (void)state;
    sy_query query;
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_sample_noise_args args = {.n = (INT64_C(1) << 34) - 4};
    expect_status(ctx, sy_sample_noise_query(ctx, &args, &query), SY_OK);
    assert_true(query.rows == args.n);
    args.n++;
    expect_status(ctx, sy_sample_noise_query(ctx, &args, &query), SY_ERR_VALUE);
    sy_ctx_destroy(ctx);
}

/* ---- A race, and the same with its noise given ---- */

static void add_filters(struct sample_case *c, uint64_t *rng)
{
    if (rng_below(rng, 2)) {
        sample_add_rows(c, SLOT_TOP_K, SY_I32, ROWS_ONE);
        sample_put_int(c, SLOT_TOP_K, 0, 1 + rng_below(rng, c->vocab));
    }
    if (rng_below(rng, 2)) {
        sample_add_rows(c, SLOT_TOP_P, SY_F32, ROWS_ONE);
        sample_put(c, SLOT_TOP_P, 0, 0, rng_unit(rng));
    }
    if (rng_below(rng, 2)) {
        sample_add_rows(c, SLOT_TEMPERATURE, SY_F32, ROWS_ONE);
        sample_put(c, SLOT_TEMPERATURE, 0, 0, 0.2 + 3 * rng_unit(rng));
    }
}

static void tokens_of(struct sample_case *c, sy_ctx *ctx, int64_t *tokens)
{
    expect_status(ctx, sy_sample(ctx, &c->args), SY_OK);
    memcpy(tokens, c->slot[SLOT_TOKEN].mem, (size_t)c->batch * sizeof *tokens);
}

static void a_race_with_its_own_noise(void **state)
{
    enum { ROWS = 5 };
    const DLDataType type = *(const DLDataType *)*state;
    uint64_t rng = 70 + type.code;
    int others = 0; /* draws that were not the largest logit */
    sy_ctx *ctx = test_ctx(2, NULL);
    for (int call = 0; call < 120; call++) {
        struct sample_case c;
        int64_t race[ROWS], given[ROWS], greedy[ROWS];
        sample_open(&c, type, ROWS, 1 + rng_below(&rng, call % 10 ? 300 : 5000), NULL);
        sample_add_q(&c, NULL);
        add_filters(&c, &rng);
        for (int s = SLOT_SEED; s <= SLOT_STREAM; s++)
            sample_add_rows(&c, (enum sample_slot)s, s == SLOT_STREAM ? SY_U32 : SY_U64, ROWS_B);
        for (int64_t b = 0; b < ROWS; b++) {
            const struct key key = random_key(&rng);
            sample_fill_row(&c, b, (enum sample_kind)rng_below(&rng, KIND_COUNT), &rng);
            sample_put_int(&c, SLOT_SEED, b, (int64_t)key.seed);
            sample_put_int(&c, SLOT_OFFSET, b, (int64_t)key.offset);
            sample_put_int(&c, SLOT_STREAM, b, key.stream);
            make_noise(ctx, key, tensor_row(&c.slot[SLOT_Q], b), c.vocab);
        }
        sample_add_outputs(&c, SLOT_BIT(SLOT_TOKEN), NULL);
        c.args.noise = SY_NOISE_NONE;
        tokens_of(&c, ctx, greedy);
        c.args.noise = SY_NOISE_RACE;
        tokens_of(&c, ctx, race);
        c.args.noise = SY_NOISE_Q;
        c.args.q_order = SY_Q_VOCAB;
        tokens_of(&c, ctx, given);
        expect_bytes(given, race, sizeof race);
        for (int b = 0; b < ROWS; b++)
            others += race[b] != greedy[b];
        sample_close(&c);
    }
    assert_true(others > 100);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const char *const names[] = {"f32", "f16", "bf16"};
    struct test_list list = {0};
    test_add(&list, "every length", every_length, NULL);
    test_add(&list, "every table and thread count", every_table_and_thread_count, NULL);
    test_add(&list, "the caller's rounding mode is not used", the_callers_rounding_mode_is_not_used, NULL);
    test_add(&list, "the longest noise", the_longest_noise, NULL);
    for (size_t t = 0; t < COUNT_OF(types); t++)
        test_add(&list, test_name("a race with its own noise: %s", names[t]), a_race_with_its_own_noise,
                 &types[t]);
    return test_run(&list, "op_sample_noise");
}
