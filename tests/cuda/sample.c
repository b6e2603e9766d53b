/*
 * Rows of sample whose vocabulary is as large as it is in models, on the CPU and on a device: every byte is compared. The device has
 * other kernels for them than for short rows, by what they keep and how much of that is equal, so the rows are of many kinds. On
 * the device of SWITCHYARD_TEST_CUDA_LIBRARY, or of the library that is found.
 */
#include "support.h"

#include <math.h>

enum kind {
    PEAKED, /* a nucleus of some tokens */
    MIDDLE, /* of some hundred */
    FLAT,   /* of most */
    LEVELS, /* sixteen values */
    TWO,
    EQUAL,
    RISING,
    FALLING,
    ONE,  /* is above -inf */
    HALF, /* are */
    EMPTY,
    SOME_NAN,
    SOME_INF,
    FAR, /* from 0 */
    KINDS
};

static double normal(uint64_t *rng)
{
    const double radius = sqrt(-2 * log(rng_unit(rng) + 0x1p-60));
    return radius * cos(6.283185307179586 * rng_unit(rng));
}

static float logit(enum kind kind, uint64_t *rng, int64_t i, int64_t vocab)
{
    const double noise = normal(rng), at = (double)i / (double)vocab;
    const int64_t rank = rng_below(rng, vocab);
    switch (kind) {
    case PEAKED:
        return (float)(rank < 150 ? 20 - 1.5 * log(1 + (double)rank) : 2.5 * noise);
    case MIDDLE:
        return (float)(3 * noise + (rank < 40 ? 9 : 0));
    case LEVELS:
        return (float)(rank % 16) * 0.25f;
    case TWO:
        return noise < 0 ? -3.0f : 0.5f;
    case EQUAL:
        return 1.25f;
    case RISING:
        return (float)(8 * at);
    case FALLING:
        return (float)(8 - 8 * at);
    case ONE:
        return i == vocab / 2 ? 10.0f : -INFINITY;
    case HALF:
        return rank % 2 ? (float)noise : -INFINITY;
    case EMPTY:
        return i % 3 ? -INFINITY : NAN;
    case SOME_NAN:
        return i % 977 == 5 ? NAN : (float)noise;
    case SOME_INF:
        return i % 1501 == 7 ? INFINITY : (float)noise;
    case FAR:
        return (float)(3e6 + 4 * noise);
    default:
        return (float)noise;
    }
}

/* The upper bits of a number, as one of a type. */
static void put_float(uint8_t *to, DLDataType type, float value)
{
    const uint32_t bits = f32_bits(value);
    uint16_t half = (uint16_t)(bits >> 16);
    if (type.code == kDLFloat && type.bits == 16) {
        const double size = fabs((double)value);
        int exponent;
        const double rest = frexp(size, &exponent);
        const uint32_t magnitude =
            value != value   ? 0x7e00
            : size >= 65536  ? 0x7c00
            : size < 0x1p-14 ? (uint32_t)(size * 0x1p24)
                             : ((uint32_t)(exponent + 14) << 10) + (uint32_t)((rest * 2 - 1) * 1024);
        half = (uint16_t)((half & 0x8000u) | magnitude);
    }
    if (type.bits == 32)
        memcpy(to, &bits, 4);
    else
        memcpy(to, &half, 2);
}

/* ---- Calls ------------------------------------------------------------------------------------------------ */

/* OUTPUTS: the log-probability and what else is one number of a row; MORE: ranks, first tokens of the order, tokens to score. */
enum {
    ROWS = 2,
    TOP = 20,
    SCORED = 3,
    P = 1,
    MIN_P = 2,
    TIES = 4,
    RACE = 8,
    GREEDY = 16,
    ALLOWED = 32,
    OUTPUTS = 64,
    K = 128,
    MORE = 256,
    RAW = 512,
    GIVEN = 1024,
    MANY = 2048,    /* K is 700 instead of 50 */
    NO_FLAGS = 4096 /* clusters of blocks read no flags */
};

static const struct {
    int what;
    float p, temperature;
} modes[] = {{P, .9f, 1},
             {P | OUTPUTS | MORE, .5f, 1},
             {P, .99f, .7f},
             {P | MIN_P | OUTPUTS, .9f, 1},
             {P | TIES | OUTPUTS, .9f, 1},
             {K | MORE, 1, 1},
             {K | P | OUTPUTS | MORE | GIVEN, .9f, .7f},
             {K | TIES | RACE | MORE, 1, 1},
             {K | GREEDY | MORE, 1, 1},
             {K | MANY, 1, 1},
             {K | MANY | ALLOWED | OUTPUTS, 1, .7f},
             {K | MANY | P | OUTPUTS, .9f, 1},
             {GREEDY | OUTPUTS | MORE | RAW, 1, 1},
             {K | ALLOWED | MORE | RAW | GIVEN, 1, .7f},
             {P | ALLOWED, .8f, 1},
             {P | RACE, .9f, 1},
             {P | GREEDY | OUTPUTS, .9f, 1},
             {0, 1, 1},
             {OUTPUTS, 1, .7f},
             {ALLOWED | OUTPUTS, 1, 1},
             {0, 1, 0},
             {GREEDY, 1, 1},
             {GREEDY | OUTPUTS, 1, 1},
             {GREEDY | OUTPUTS | MORE, 1, .7f},
             {P | OUTPUTS | NO_FLAGS, .8f, 1},
             {P | OUTPUTS | NO_FLAGS, .95f, .7f}};

struct results {
    int64_t given[ROWS], score[ROWS][SCORED]; /* inputs */
    int64_t token[ROWS], top[ROWS][TOP];
    float logprob[ROWS], top_logprob[ROWS][TOP], score_logprob[ROWS][SCORED];
    int32_t kept[ROWS], rank[ROWS];
    uint32_t flags[ROWS];
};

static sy_status run(sy_ctx *ctx, DLDevice device, size_t m, void *logits, DLDataType type, int64_t vocab,
                     int64_t stride, void *allow, struct results *to)
{
    const int what = modes[m].what;
    int64_t shape[] = {ROWS, vocab}, strides[] = {stride, 1}, rows[] = {ROWS},
            words[] = {1, (vocab + 31) / 32}, tops[] = {ROWS, TOP}, scores[] = {ROWS, SCORED};
    DLTensor x = {logits, device, 2, type, shape, strides, 0},
             bits = {allow, device, 2, SY_I32, words, NULL, 0},
             token = {to->token, device, 1, SY_I64, rows, NULL, 0},
             lp = {to->logprob, device, 1, SY_F32, rows, NULL, 0},
             kept = {to->kept, device, 1, SY_I32, rows, NULL, 0},
             flags = {to->flags, device, 1, SY_U32, rows, NULL, 0},
             rank = {to->rank, device, 1, SY_I32, rows, NULL, 0},
             given = {to->given, device, 1, SY_I64, rows, NULL, 0},
             top = {to->top, device, 2, SY_I64, tops, NULL, 0},
             top_lp = {to->top_logprob, device, 2, SY_F32, tops, NULL, 0},
             score = {to->score, device, 2, SY_I64, scores, NULL, 0},
             score_lp = {to->score_logprob, device, 2, SY_F32, scores, NULL, 0};
    const bool more = (what & MORE) != 0;
    sy_view view[5];
    const sy_sample_args args = {.logits = &x,
                                 .token = &token,
                                 .temperature = sy_number_f32(&view[0], modes[m].temperature),
                                 .top_k = what & K ? sy_number_i64(&view[4], what & MANY ? 700 : 50) : NULL,
                                 .top_p = what & P ? sy_number_f32(&view[1], modes[m].p) : NULL,
                                 .min_p = what & MIN_P ? sy_number_f32(&view[2], 0.01f) : NULL,
                                 .seed = what & GREEDY ? NULL : sy_number_i64(&view[3], 7 + (int64_t)m),
                                 .noise = what & RACE ? SY_NOISE_RACE : SY_NOISE_AUTO,
                                 .ties = what & TIES ? SY_TIES_ALL : SY_TIES_EXACT,
                                 .allow_bits = what & ALLOWED ? &bits : NULL,
                                 .logprob = what & OUTPUTS ? &lp : NULL,
                                 .logprob_mode = what & RAW                ? SY_LOGPROB_RAW
                                                 : what & (OUTPUTS | MORE) ? SY_LOGPROB_FINAL
                                                                           : SY_LOGPROB_NONE,
                                 .rank = more ? &rank : NULL,
                                 .top_token = more ? &top : NULL,
                                 .top_logprob = more ? &top_lp : NULL,
                                 .score_token = more ? &score : NULL,
                                 .score_logprob = more ? &score_lp : NULL,
                                 .given_token = what & GIVEN ? &given : NULL,
                                 .kept = what & OUTPUTS ? &kept : NULL,
                                 .row_flags = (what & (OUTPUTS | NO_FLAGS)) == OUTPUTS ? &flags : NULL};
    const sy_status status = sy_sample(ctx, &args);
    return status == SY_OK ? sy_ctx_sync(ctx) : status;
}

/* Rows that begin `past` elements after an address of 16 bytes. */
static void compare(sy_ctx *cpu, sy_ctx *ctx, enum kind kind, DLDataType type, int64_t vocab, int64_t past,
                    uint64_t *rng)
{
    const DLDevice here = {kDLCPU, 0}, there = {kDLCUDA, 0};
    const size_t size = type.bits / 8u, stride = (size_t)(vocab + past), bytes = (ROWS * stride + 8) * size,
                 words = (size_t)(vocab + 31) / 32 * 4;
    uint8_t *const logits = calloc(1, bytes), *const allow = malloc(words);
    void *x = NULL, *bits = NULL, *out = NULL;
    assert_non_null(logits);
    assert_non_null(allow);
    for (size_t i = 0; i < words; i++)
        allow[i] = (uint8_t)rng_below(rng, 256);
    for (size_t i = 0; i < words; i++) /* three of four bits are set */
        allow[i] = (uint8_t)(allow[i] | rng_below(rng, 256));
    for (int64_t b = 0; b < ROWS; b++)
        for (int64_t i = 0; i < vocab; i++)
            put_float(logits + ((size_t)b * stride + (size_t)(past + i)) * size, type,
                      logit(kind, rng, i, vocab));
    assert_int_equal(sy_device_alloc(ctx, bytes, &x), SY_OK);
    assert_int_equal(sy_device_alloc(ctx, words, &bits), SY_OK);
    assert_int_equal(sy_device_alloc(ctx, sizeof(struct results), &out), SY_OK);
    assert_int_equal(sy_device_copy(ctx, x, logits, bytes), SY_OK);
    assert_int_equal(sy_device_copy(ctx, bits, allow, words), SY_OK);
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        struct results want, got;
        memset(&want, 0x55, sizeof want);
        for (int b = 0; b < ROWS; b++) {
            want.given[b] = b == 0 ? rng_below(rng, vocab) : -1;
            for (int j = 0; j < SCORED; j++)
                want.score[b][j] = rng_below(rng, vocab + 1) - 1;
        }
        assert_int_equal(sy_device_copy(ctx, out, &want, sizeof want), SY_OK);
        assert_int_equal(
            run(cpu, here, m, logits + (size_t)past * size, type, vocab, (int64_t)stride, allow, &want),
            SY_OK);
        assert_int_equal(
            run(ctx, there, m, (uint8_t *)x + (size_t)past * size, type, vocab, (int64_t)stride, bits, out),
            SY_OK);
        assert_int_equal(sy_device_copy(ctx, &got, out, sizeof got), SY_OK);
        if (memcmp(&want, &got, sizeof want) != 0) /* bits; NOLINT(bugprone-suspicious-memory-comparison) */
            fail_msg("rows of kind %d, %u bits, %lld tokens from %lld on, mode %zu: tokens %lld %lld, want "
                     "%lld %lld",
                     kind, type.bits, (long long)vocab, (long long)past, m, (long long)got.token[0],
                     (long long)got.token[1], (long long)want.token[0], (long long)want.token[1]);
    }
    sy_device_free(ctx, x);
    sy_device_free(ctx, bits);
    sy_device_free(ctx, out);
    free(logits);
    free(allow);
}

/* On a device that counts with so many multiprocessors, or all: 0. */
static void open_both(sy_ctx **cpu, sy_ctx **ctx, int processors)
{
    const sy_ctx_options options = {.threads = processors,
                                    .device = {kDLCUDA, 0},
                                    .device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY")};
    if (sy_ctx_create(ctx, &options) != SY_OK)
        skip_because("there is no CUDA device here");
    assert_int_equal(sy_ctx_create(cpu, NULL), SY_OK);
}

static void rows_of(int64_t vocab)
{
    const DLDataType types[] = {SY_F32, SY_BF16, SY_F16};
    sy_ctx *cpu = NULL, *ctx = NULL;
    uint64_t rng = (uint64_t)vocab;
    open_both(&cpu, &ctx, 0);
    for (int kind = 0; kind < KINDS; kind++)
        compare(cpu, ctx, (enum kind)kind, types[kind % 3], vocab, kind % 4 == 3 ? 3 : 0, &rng);
    for (int t = 0; t < 3; t++)
        compare(cpu, ctx, FLAT, types[t], vocab, t, &rng);
    sy_ctx_destroy(ctx);
    sy_ctx_destroy(cpu);
}

TEST(rows_that_a_block_reads)
{
    rows_of(2500);
}

TEST(rows_that_clusters_read)
{
    rows_of(40000);
}

/* Twice as many rows as multiprocessors. */
TEST(rows_that_clusters_hold_in_part)
{
    sy_ctx *cpu = NULL, *ctx = NULL;
    uint64_t rng = 7;
    open_both(&cpu, &ctx, ROWS / 2);
    compare(cpu, ctx, FLAT, SY_F32, 65544, 0, &rng);
    compare(cpu, ctx, SOME_NAN, SY_F32, 65552, 1, &rng);
    sy_ctx_destroy(ctx);
    sy_ctx_destroy(cpu);
}

TEST_GROUP(sample)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_that_a_block_reads),
                                       cmocka_unit_test(rows_that_clusters_read),
                                       cmocka_unit_test(rows_that_clusters_hold_in_part)};
    return cmocka_run_group_tests_name("cuda_sample", tests, NULL, NULL);
}
