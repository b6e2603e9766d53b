/*
 * sample reads only the head of a row where it can, draws by counting where it need not collect, and which way it
 * goes depends on the outputs. All ways must end at what the exact oracle says, for every output that comes with them.
 */
#include "oracle/sample.h"
#include "support.h"

#include <math.h>

enum { ROWS = 6, MAX_VOCAB = 20000, MAX_LOGITS = 2 * 200000 }; /* up to six rows, or two long ones */

enum shape {
    PEAKED,
    FLAT,
    TIED,
    NEGATIVE,
    ZEROS,
    TINY,
    HIGH,
    SPECIAL,
    EQUAL,
    TWO,
    NEARLY,
    BARRED,
    SIGNED_NAN,
    N_SHAPES
};

struct call {
    DLDataType type;
    int64_t rows, vocab;
    float logits[MAX_LOGITS];
    uint16_t narrow[MAX_LOGITS];
    int64_t k;
    float top_p, min_p, temperature[ROWS];
    uint64_t seed, offset;
    sy_noise noise;
    sy_ties ties;
    float q[MAX_LOGITS];
    bool barred;
    uint32_t allow[MAX_LOGITS / 32 + ROWS];
    int64_t override_indptr[ROWS + 1], n_overrides;
    int32_t override_token[MAX_LOGITS];
    float override_logit[MAX_LOGITS];
};

struct result {
    int64_t token[ROWS];
    int32_t kept[ROWS];
    uint32_t flags[ROWS];
    float logprob[ROWS];
    int64_t list[MAX_LOGITS];
};

/* Outputs asked for beside the token. */
enum { KEPT = 1, FLAGS = 2, LIST = 4, FINAL = 8, RAW = 16 };

static float draw_logit(uint64_t *rng, enum shape shape)
{
    const double normal = (rng_unit(rng) + rng_unit(rng) + rng_unit(rng) + rng_unit(rng) - 2.0) * 1.7;
    switch (shape) {
    case PEAKED:
        return (float)(rng_below(rng, 200) == 0 ? 14.0 + 3.0 * normal : 2.0 * normal);
    case FLAT:
        return (float)normal;
    case TIED:
        return (float)rng_below(rng, 5) - 2.0f;
    case NEGATIVE:
        return (float)(-40.0 - 3.0 * fabs(normal));
    case ZEROS:
        return rng_below(rng, 3) == 0 ? -0.0f : rng_below(rng, 40) == 0 ? -1e-30f : 0.0f;
    case TINY: /* a few peaks over values so small that a row sees them as one */
        return (float)(rng_below(rng, 500) == 0 ? 9.0 + normal
                                                : normal * pow(10.0, -1.0 - 8.0 * rng_unit(rng)));
    case HIGH: /* zero is far below everything that weighs */
        return (float)(rng_below(rng, 100) == 0 ? 0.0 : 900.0 + 10.0 * normal);
    case EQUAL:
        return 1.25f;
    case TWO:
        return rng_below(rng, 2) == 0 ? 0.5f : -3.0f;
    case NEARLY: /* the upper half of the bits does not tell them apart */
        return f32_from_bits(0x41200000u + (uint32_t)rng_below(rng, 300));
    case BARRED:
        return rng_below(rng, 50) == 0 ? (float)normal : -INFINITY;
    case SIGNED_NAN: /* which no maximum shows, next to -inf and alone */
        return rng_below(rng, 9000) == 0   ? f32_from_bits(0xff800001u)
               : rng_below(rng, 9000) == 0 ? -INFINITY
                                           : (float)(3.0 + fabs(normal));
    default:
        break;
    }
    static const uint32_t special[] = {0x7fc00000, 0xffc00000, 0x7f800000,
                                       0xff800000, 0x00000001, 0x80000001};
    return rng_below(rng, 50) == 0 ? f32_from_bits(special[rng_below(rng, 6)]) : (float)normal;
}

/* No word, every word, or some of them, and in these every token but one, one, or half. */
static void bar_tokens(struct call *c, uint64_t *rng)
{
    const int64_t words = c->rows * ((c->vocab + 31) / 32), kind = rng_below(rng, 5);
    c->barred = rng_below(rng, 2) != 0;
    for (int64_t i = 0; i < words; i++) {
        const uint64_t r = rng_u64(rng);
        const uint32_t one = 1u << (r >> 59);
        c->allow[i] = kind == 0   ? (uint32_t)r
                      : kind == 1 ? ~one
                      : kind == 2 ? (r >> 32) % 8 ? 0 : one
                      : kind == 3 ? i / 40 % 3 ? 0 : UINT32_MAX
                                  : UINT32_MAX;
    }
}

/* None, one in 1000, or one in 20: ordinary logits, ones of the row's own kind, bans, or a few above everything. */
static void override_tokens(struct call *c, enum shape shape, uint64_t *rng)
{
    const int64_t every = rng_below(rng, 2) ? 20 : 1000, kind = rng_below(rng, 4);
    const bool any = rng_below(rng, 2) != 0;
    c->n_overrides = 0;
    for (int64_t b = 0; b < c->rows; b++) {
        c->override_indptr[b] = c->n_overrides;
        for (int64_t i = rng_below(rng, every); any && i < c->vocab; i += 1 + rng_below(rng, 2 * every)) {
            const float own = draw_logit(rng, shape), other = draw_logit(rng, FLAT);
            c->override_token[c->n_overrides] = (int32_t)i;
            c->override_logit[c->n_overrides++] = kind == 0   ? other
                                                  : kind == 1 ? own
                                                  : kind == 2 ? -INFINITY
                                                              : own + 20.0f * other;
        }
    }
    c->override_indptr[c->rows] = c->n_overrides;
}

static void make_call(struct call *c, uint64_t *rng)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const float top_p[] = {1.0f, 0.9f, 0.5f, 0.05f, 0.999f, 0.0f, 1e-30f};
    static const float min_p[] = {0.0f, 0.0f, 0.0f, 0.1f, 1e-6f, 1.0f};
    static const float temperature[] = {1.0f, 1.0f, 0.7f, 2.5f, 0.0f};
    const enum shape shape = (enum shape)rng_below(rng, N_SHAPES);
    c->type = types[rng_below(rng, 3)];
    const bool few = rng_below(rng, 8) == 0; /* fewer rows than threads: slices of a row */
    c->rows = few ? 1 + rng_below(rng, 2) : ROWS;
    c->vocab = few                      ? 100000 + rng_below(rng, 100000)
               : rng_below(rng, 4) == 0 ? 1 + rng_below(rng, 300)
                                        : 1 + rng_below(rng, MAX_VOCAB);
    for (int64_t i = 0; i < c->rows * c->vocab; i++) {
        c->logits[i] = draw_logit(rng, shape);
        c->q[i] = (float)(0.01 + rng_unit(rng));
        c->narrow[i] = c->type.code == 4 ? bf16_round((double)c->logits[i]) : f16_round((double)c->logits[i]);
    }
    c->k = rng_below(rng, 3) == 0 ? 1 + rng_below(rng, 400) : 0;
    c->top_p = top_p[rng_below(rng, COUNT_OF(top_p))];
    c->min_p = min_p[rng_below(rng, COUNT_OF(min_p))];
    const bool alike = rng_below(rng, 2) == 0; /* rows may share what was made for a temperature, or not */
    for (int b = 0; b < ROWS; b++)
        c->temperature[b] =
            alike && b > 0 ? c->temperature[0] : temperature[rng_below(rng, COUNT_OF(temperature))];
    c->seed = rng_u64(rng);
    c->offset = rng_u64(rng);
    c->ties = (sy_ties)rng_below(rng, 2);
    c->noise = (sy_noise)(SY_NOISE_NONE + rng_below(rng, 4));
    bar_tokens(c, rng);
    override_tokens(c, shape, rng);
}

static float row_logit(const struct call *c, int64_t at)
{
    return c->type.bits == 32  ? c->logits[at]
           : c->type.code == 4 ? (float)bf16_value(c->narrow[at])
                               : (float)f16_value(c->narrow[at]);
}

/* What the oracle says of every row; the log-probability is one of the outputs asked for. */
static void ask_oracle(const struct call *c, struct result *r, int outputs)
{
    static float raw[MAX_LOGITS], x[MAX_LOGITS], prob[MAX_LOGITS], masked[MAX_LOGITS];
    static bool allowed[MAX_LOGITS];
    for (int64_t b = 0; b < c->rows; b++) {
        const int64_t words = (c->vocab + 31) / 32;
        for (int64_t i = 0; i < c->vocab; i++) {
            raw[i] = x[i] = row_logit(c, b * c->vocab + i);
            allowed[i] = !c->barred || (c->allow[b * words + i / 32] >> i % 32 & 1) != 0;
        }
        for (int64_t j = c->override_indptr[b]; j < c->override_indptr[b + 1]; j++)
            x[c->override_token[j]] = c->override_logit[j];
        const struct oracle_sample_row row = {.x = x,
                                              .raw = raw,
                                              .allowed = allowed,
                                              .vocab = c->vocab,
                                              .k = c->k,
                                              .p = c->top_p,
                                              .min_p = c->min_p,
                                              .temperature = c->temperature[b],
                                              .q = c->q + b * c->vocab,
                                              .seed = c->seed,
                                              .offset = c->offset,
                                              .stream = (uint32_t)b,
                                              .noise = c->noise,
                                              .ties = c->ties,
                                              .logprob_mode = outputs & RAW     ? SY_LOGPROB_RAW
                                                              : outputs & FINAL ? SY_LOGPROB_FINAL
                                                                                : SY_LOGPROB_NONE};
        struct oracle_sample_result want = {.list = r->list + b * c->vocab, .prob = prob, .masked = masked};
        oracle_sample_row(&row, &want);
        r->token[b] = want.token;
        r->kept[b] = want.kept;
        r->flags[b] = want.flags;
        r->logprob[b] = want.logprob;
    }
}

static void run(sy_ctx *ctx, struct call *c, struct result *r, int outputs)
{
    int64_t shape[] = {c->rows, c->vocab}, words[] = {c->rows, (c->vocab + 31) / 32}, rows[] = {c->rows};
    int64_t one[] = {1}, ends[] = {c->rows + 1}, listed[] = {c->n_overrides};
    const bool overrides = c->n_overrides > 0;
    DLTensor logits =
        sy_tensor(c->type.bits == 32 ? (void *)c->logits : (void *)c->narrow, c->type, 2, shape);
    DLTensor allow = sy_tensor(c->allow, SY_U32, 2, words);
    DLTensor indptr = sy_tensor(c->override_indptr, SY_I64, 1, ends);
    DLTensor replaced = sy_tensor(c->override_token, SY_I32, 1, listed);
    DLTensor by = sy_tensor(c->override_logit, SY_F32, 1, listed);
    DLTensor q = sy_tensor(c->q, SY_F32, 2, shape), k = sy_tensor(&c->k, SY_I64, 1, one);
    DLTensor top_p = sy_tensor(&c->top_p, SY_F32, 1, one), min_p = sy_tensor(&c->min_p, SY_F32, 1, one);
    DLTensor temperature = sy_tensor(c->temperature, SY_F32, 1, rows);
    DLTensor seed = sy_tensor(&c->seed, SY_U64, 1, one), offset = sy_tensor(&c->offset, SY_U64, 1, one);
    DLTensor token = sy_tensor(r->token, SY_I64, 1, rows), kept = sy_tensor(r->kept, SY_I32, 1, rows);
    DLTensor list = sy_tensor(r->list, SY_I64, 2, shape), row_flags = sy_tensor(r->flags, SY_U32, 1, rows);
    DLTensor logprob = sy_tensor(r->logprob, SY_F32, 1, rows);
    const sy_sample_args args = {.logits = &logits,
                                 .top_k = &k,
                                 .top_p = &top_p,
                                 .min_p = &min_p,
                                 .temperature = &temperature,
                                 .q = &q,
                                 .allow_bits = c->barred ? &allow : NULL,
                                 .override_indptr = overrides ? &indptr : NULL,
                                 .override_token = overrides ? &replaced : NULL,
                                 .override_logit = overrides ? &by : NULL,
                                 .seed = &seed,
                                 .offset = &offset,
                                 .noise = c->noise,
                                 .ties = c->ties,
                                 .token = &token,
                                 .kept = outputs & KEPT ? &kept : NULL,
                                 .list_token = outputs & LIST ? &list : NULL,
                                 .row_flags = outputs & FLAGS ? &row_flags : NULL,
                                 .logprob = outputs & (FINAL | RAW) ? &logprob : NULL,
                                 .logprob_mode = outputs & RAW     ? SY_LOGPROB_RAW
                                                 : outputs & FINAL ? SY_LOGPROB_FINAL
                                                                   : SY_LOGPROB_NONE};
    expect_status(ctx, sy_sample(ctx, &args), SY_OK);
}

static void every_way_ends_at_the_same_token(void **state)
{
    static const int ways[] = {0, FLAGS, KEPT, FLAGS | KEPT, FINAL, FLAGS | KEPT | LIST};
    static struct call c;
    static struct result want, raw, got;
    uint64_t rng = *(const uint64_t *)*state;
    sy_ctx *one = test_ctx(1, NULL), *three = test_ctx(3, NULL);
    for (int round = 0; round < test_rounds(40); round++) {
        make_call(&c, &rng);
        const size_t rows = (size_t)c.rows;
        sy_ctx *ctx = round % 2 ? one : three;
        ask_oracle(&c, &want, FINAL);
        for (size_t i = 0; i < COUNT_OF(ways); i++) {
            run(ctx, &c, &got, ways[i]);
            expect_bytes(got.token, want.token, rows * sizeof *want.token);
            if (ways[i] & KEPT)
                expect_bytes(got.kept, want.kept, rows * sizeof *want.kept);
            if (ways[i] & FLAGS)
                expect_bytes(got.flags, want.flags, rows * sizeof *want.flags);
            if (ways[i] & FINAL)
                expect_bytes(got.logprob, want.logprob, rows * sizeof *want.logprob);
            if (ways[i] & LIST)
                expect_bytes(got.list, want.list, (size_t)(c.rows * c.vocab) * sizeof *want.list);
        }
        ask_oracle(&c, &raw, RAW);
        run(ctx, &c, &got, RAW);
        expect_bytes(got.token, raw.token, rows * sizeof *raw.token);
        expect_bytes(got.logprob, raw.logprob, rows * sizeof *raw.logprob);
    }
    sy_ctx_destroy(one);
    sy_ctx_destroy(three);
}

/* The mass of the n first tokens, exactly, and of all. The weights are added up here as they are defined. */
static float share_of_first(const struct call *c, const struct result *r, int64_t n)
{
    uint64_t all = 0, first = 0;
    float top = -INFINITY;
    for (int64_t i = 0; i < c->vocab; i++)
        top = c->logits[i] > top ? c->logits[i] : top;
    for (int64_t i = 0; i < c->vocab; i++)
        all += oracle_sample_weight(oracle_sample_exp(c->logits[i] - top));
    for (int64_t i = 0; i < n; i++)
        first += oracle_sample_weight(oracle_sample_exp(c->logits[r->list[i]] - top));
    return (float)((double)first / (double)all);
}

/*
 * Cuts so close to p that no estimate of the mass can decide them: p is the share of the first n tokens, the
 * f32 below it and the one above. At least one of the three must keep another number of tokens, or the cut was
 * not close.
 */
static void cuts_on_the_edge_are_exact(void **state)
{
    static struct call c;
    static struct result want, got;
    const DLDataType type = *(const DLDataType *)*state;
    uint64_t rng = 77;
    sy_ctx *fast = test_ctx(1, NULL);
    for (int round = 0; round < test_rounds(12); round++) {
        c = (struct call){.type = type, .rows = 1, .temperature = {1.0f}, .noise = SY_NOISE_CDF, .seed = 5};
        c.vocab = round % 2 ? 5000 : 150000;
        for (int64_t i = 0; i < c.vocab; i++) {
            const float x = draw_logit(&rng, round % 3 ? PEAKED : TINY);
            const double wide = i == 3 ? 24.0 : (double)x;
            c.narrow[i] = type.code == 4 ? bf16_round(wide) : f16_round(wide);
            c.logits[i] = type.bits == 32  ? (float)wide
                          : type.code == 4 ? (float)bf16_value(c.narrow[i])
                                           : (float)f16_value(c.narrow[i]);
        }
        c.top_p = 0.9999f;
        ask_oracle(&c, &want, 0);
        const int64_t n = 1 + rng_below(&rng, want.kept[0] < 40 ? want.kept[0] : 40);
        const float edge = share_of_first(&c, &want, n);
        const float p[] = {nextafterf(edge, 0), edge, nextafterf(edge, 1)};
        int32_t kept[3];
        for (int i = 0; i < 3; i++) {
            c.top_p = p[i];
            ask_oracle(&c, &want, 0);
            run(fast, &c, &got, KEPT | LIST);
            assert_int_equal(got.token[0], want.token[0]);
            assert_int_equal(got.kept[0], want.kept[0]);
            expect_bytes(got.list, want.list, (size_t)c.vocab * sizeof *want.list);
            kept[i] = want.kept[0];
        }
        assert_true(kept[0] < kept[2]);
    }
    sy_ctx_destroy(fast);
}

/*
 * The same for a nucleus of thousands: tokens in a row that is nearly flat, that has few values, or whose values differ
 * in their last bits, so that many at the cut weigh the same. Every way to the token, drawn from all places.
 */
static void cuts_of_large_nuclei_are_exact(void **state)
{
    enum { DRAWS = 8 };
    static const enum shape shapes[] = {FLAT, TIED, EQUAL, TWO, NEARLY, BARRED, ZEROS};
    static const int ways[] = {0, KEPT, FINAL, KEPT | LIST};
    static struct call c;
    static struct result want, got;
    const DLDataType type = *(const DLDataType *)*state;
    uint64_t rng = 78;
    sy_ctx *fast = test_ctx(1, NULL);
    for (size_t round = 0; round < 2 * COUNT_OF(shapes); round++) {
        const enum shape shape = shapes[round % COUNT_OF(shapes)];
        c = (struct call){.type = type, .rows = 1, .temperature = {1.0f}, .noise = SY_NOISE_CDF};
        c.vocab = round < COUNT_OF(shapes) ? 5000 + rng_below(&rng, 200) : 70000 + rng_below(&rng, 2000);
        for (int64_t i = 0; i < c.vocab; i++) {
            const float x = draw_logit(&rng, shape);
            c.narrow[i] = type.code == 4 ? bf16_round((double)x) : f16_round((double)x);
            c.logits[i] = type.bits == 32 ? x : row_logit(&c, i);
        }
        c.top_p = 0.9f;
        ask_oracle(&c, &want, 0);
        const float edge = share_of_first(&c, &want, want.kept[0] / 2 + 1);
        const float p[] = {nextafterf(edge, 0), edge, nextafterf(edge, 1), 0.999f};
        for (size_t i = 0; i < COUNT_OF(p) * DRAWS; i++) {
            c.top_p = p[i / DRAWS];
            c.seed = i;
            c.ties = (sy_ties)(i % 2);
            ask_oracle(&c, &want, FINAL);
            run(fast, &c, &got, ways[i % COUNT_OF(ways)]);
            assert_int_equal(got.token[0], want.token[0]);
            if (ways[i % COUNT_OF(ways)] & KEPT)
                assert_int_equal(got.kept[0], want.kept[0]);
            if (ways[i % COUNT_OF(ways)] & FINAL)
                assert_int_equal(f32_bits(got.logprob[0]), f32_bits(want.logprob[0]));
        }
    }
    sy_ctx_destroy(fast);
}

/*
 * A probability in a list is divided by the mass of the row, so a mass that is off in its last places shows:
 * 200 peaks over a floor of values that are nearly, but not quite, too small for the peaks to notice.
 */
static void probabilities_use_the_exact_mass(void **state)
{
    enum { VOCAB = 150000, PEAKS = 200 };
    static uint16_t x[VOCAB];
    static float prob[VOCAB];
    (void)state;
    const uint16_t peak = bf16_round(9.0), rest = bf16_round(8e-6);
    uint64_t mass = 0;
    for (int64_t i = 0; i < VOCAB; i++) {
        x[i] = i % (VOCAB / PEAKS) == 0 ? peak : rest;
        mass += oracle_sample_weight(oracle_sample_exp((float)bf16_value(x[i]) - 9.0f));
    }
    float p = 0.9f;
    int64_t shape[] = {1, VOCAB}, one[] = {1};
    const DLTensor logits = sy_tensor(x, SY_BF16, 2, shape), top_p = sy_tensor(&p, SY_F32, 1, one);
    const DLTensor list_prob = sy_tensor(prob, SY_F32, 2, shape);
    sy_ctx *ctx = test_ctx(1, NULL);
    expect_status(
        ctx, sy_sample(ctx, &(sy_sample_args){.logits = &logits, .top_p = &top_p, .list_prob = &list_prob}),
        SY_OK);
    assert_int_equal(f32_bits(prob[0]), f32_bits(1.0f / ((float)mass * 0x1p-40f)));
    sy_ctx_destroy(ctx);
}

/* The order of -0 and +0 decides nothing: the lower index wins. */
static void zeros_of_both_signs_are_equal(void **state)
{
    (void)state;
    static struct call c;
    static struct result r;
    c = (struct call){.type = {4, 16, 1}, .rows = ROWS, .vocab = 1000, .k = 2, .top_p = 1.0f};
    c.noise = SY_NOISE_NONE;
    for (int64_t i = 0; i < ROWS * c.vocab; i++)
        c.narrow[i] = i % c.vocab == 500 ? 0x8000 : i % c.vocab == 700 ? 0x0000 : 0xbf80;
    sy_ctx *ctx = test_ctx(1, NULL);
    run(ctx, &c, &r, KEPT | LIST);
    for (int b = 0; b < ROWS; b++) {
        assert_int_equal(r.token[b], 500);
        assert_int_equal(r.kept[b], 2);
        assert_int_equal(r.list[b * c.vocab + 1], 700);
    }
    sy_ctx_destroy(ctx);
}

/* exp(-1.2035) > 0.3, and the next value of 16 bits below it has less: an override is an f32 and may lie between. */
static void min_p_keeps_overrides_between_16_bit_values(void **state)
{
    (void)state;
    static struct call c;
    static struct result r;
    c = (struct call){.type = {4, 16, 1}, .rows = 1, .vocab = 1000, .top_p = 1.0f, .min_p = 0.3f, .seed = 5};
    c.temperature[0] = 1.0f;
    for (int64_t i = 0; i < c.vocab; i++)
        c.narrow[i] = i == 500 ? 0x0000 : 0xc1a0; /* 0 and -20 */
    c.override_indptr[1] = c.n_overrides = 1;
    c.override_token[0] = 700;
    c.override_logit[0] = -1.2035f;
    sy_ctx *ctx = test_ctx(1, NULL);
    for (sy_noise noise = SY_NOISE_NONE; noise <= SY_NOISE_CDF; noise++) {
        c.noise = noise;
        run(ctx, &c, &r, KEPT);
        assert_int_equal(r.kept[0], 2);
    }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    enum { SEEDS = 16, EDGES = 3 };
    static const char *const type_names[EDGES] = {"f32", "f16", "bf16"};
    static DLDataType types[EDGES] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static uint64_t seeds[SEEDS];
    static char names[SEEDS + 2 * EDGES][48];
    struct CMUnitTest tests[3 + SEEDS + 2 * EDGES] = {
        cmocka_unit_test(zeros_of_both_signs_are_equal), cmocka_unit_test(probabilities_use_the_exact_mass),
        cmocka_unit_test(min_p_keeps_overrides_between_16_bit_values)};
    for (size_t i = 0; i < SEEDS; i++) {
        seeds[i] = 1000 + i;
        snprintf(names[i], sizeof names[i], "every_way_ends_at_the_same_token: seed %zu", 1000 + i);
        tests[i + 3] = (struct CMUnitTest){names[i], every_way_ends_at_the_same_token, NULL, NULL, &seeds[i]};
    }
    for (size_t i = SEEDS; i < SEEDS + EDGES; i++) {
        snprintf(names[i], sizeof names[i], "cuts_on_the_edge_are_exact: %s", type_names[i - SEEDS]);
        tests[i + 3] =
            (struct CMUnitTest){names[i], cuts_on_the_edge_are_exact, NULL, NULL, &types[i - SEEDS]};
    }
    for (size_t i = SEEDS + EDGES; i < SEEDS + 2 * EDGES; i++) {
        DLDataType *type = &types[i - SEEDS - EDGES];
        snprintf(names[i], sizeof names[i], "cuts_of_large_nuclei_are_exact: %s", type_names[type - types]);
        tests[i + 3] = (struct CMUnitTest){names[i], cuts_of_large_nuclei_are_exact, NULL, NULL, type};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
