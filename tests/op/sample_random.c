/*
 * Random calls against the exact oracle, every output bit for bit: all logit types and noises, rows from
 * ordinary to hostile, edited rows, parameters of every kind, shape and stride, any subset of outputs. Each test proves
 * that its rows contained what its name promises. A failure prints the row; the seed is fixed by the test's
 * place in the table.
 */
#include "support.h"

#include <float.h>
#include <math.h>

#include "oracle/sample_case.h"

struct plan {
    DLDataType type;
    enum sample_kind kind; /* KIND_COUNT: any, row by row */
    sy_noise noise;        /* AUTO: any                   */
    int64_t vocab;         /* 0: 1 to 5000                */
    bool edited;           /* tokens are barred, overridden or both */
    bool logprobs;         /* given tokens, ranks, lists and scores */
    int calls;
    uint64_t seed;
    char name[64];
};

/* ---- Parameters ---- */

#define PICK(rng, array) ((array)[rng_below((rng), (int64_t)COUNT_OF(array))])

static int64_t random_k(int64_t vocab, bool wide, uint64_t *rng)
{
    const int64_t fixed[] = {wide ? INT64_MIN : INT32_MIN, -1, 0, 1, 2, vocab - 1, vocab, vocab + 1,
                             wide ? INT64_MAX : INT32_MAX};
    switch (rng_below(rng, 3)) {
    case 0:
        return PICK(rng, fixed);
    case 1:
        return 1 + rng_below(rng, vocab);
    default:
        return 1 + rng_below(rng, vocab < 64 ? vocab : 64);
    }
}

static double random_p(uint64_t *rng)
{
    static const double fixed[] = {NAN, -1, -0.0,       0, 1e-45, 1e-30,    0x1p-65,
                                   .5,  .9, 0.99999994, 1, 1.5,   INFINITY, -INFINITY};
    return rng_below(rng, 2) ? PICK(rng, fixed) : rng_unit(rng);
}

static double random_min_p(uint64_t *rng)
{
    static const double fixed[] = {NAN, -1, 0, 1e-45, 1e-30, .05, .3, .5, 0.99999994, 1, 2, INFINITY};
    return rng_below(rng, 2) ? PICK(rng, fixed) : 0.2 * rng_unit(rng);
}

static double random_temperature(uint64_t *rng)
{
    static const double fixed[] = {NAN, 0, -1, 1e-6, 9e-6, 1.1e-5,   .5,
                                   .7,  1, 1,  2,    1e30, INFINITY, -INFINITY};
    return rng_below(rng, 2) ? PICK(rng, fixed) : 0.1 + 3 * rng_unit(rng);
}

static double random_q(uint64_t *rng, int style)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 0, -0.0, 1e-45, -1.5, 1e-38, 3e38, 1e-31, 1e30};
    if (style == 0)
        return 1;
    if (style == 1 && !rng_below(rng, 4))
        return PICK(rng, odd);
    return -log(1 - rng_unit(rng));
}

/* Any bits, or a signalling NaN of f32 whose low half is one of f16 or of bf16. */
static uint64_t odd_bits(uint64_t *rng)
{
    static const uint32_t signalling[] = {0x7f817c01, 0x7f817f81};
    return rng_below(rng, 2) ? rng_u64(rng) : PICK(rng, signalling);
}

static enum sample_rows random_rows(uint64_t *rng)
{
    return (enum sample_rows)rng_below(rng, ROWS_KINDS);
}

static struct layout random_layout(uint64_t *rng)
{
    static const size_t misaligns[] = {0, 0, 0, 1, 2, 4, 6};
    static const uint64_t offsets[] = {0, 0, 0, 4, 13};
    struct layout at = {.row_gap = rng_below(rng, 2) ? 0 : rng_below(rng, 20),
                        .strided = rng_below(rng, 2) != 0};
    at.misalign = PICK(rng, misaligns);
    at.byte_offset = PICK(rng, offsets);
    return at;
}

static void add_parameters(struct sample_case *c, uint64_t *rng)
{
    DLDataType type = c->args.logits->dtype;
    if (rng_below(rng, 3)) {
        bool wide = rng_below(rng, 2) != 0;
        sample_add_rows(c, SLOT_TOP_K, wide ? SY_I64 : SY_I32, random_rows(rng));
        for (int64_t b = 0; b < c->batch; b++)
            sample_put_int(c, SLOT_TOP_K, b, random_k(c->vocab, wide, rng));
    }
    static double (*const draw[])(uint64_t *) = {random_p, random_min_p, random_temperature};
    for (int i = 0; i < 3; i++) {
        enum sample_slot slot = (enum sample_slot)(SLOT_TOP_P + i);
        if (rng_below(rng, 5) < 2)
            continue;
        sample_add_rows(c, slot, rng_below(rng, 2) ? SY_F32 : type, random_rows(rng));
        for (int64_t b = 0; b < c->batch; b++)
            if (rng_below(rng, 8))
                sample_put(c, slot, b, 0, draw[i](rng));
            else
                sample_put_bits(c, slot, b, 0, odd_bits(rng));
    }
}

static void add_noise(struct sample_case *c, sy_noise noise, uint64_t *rng)
{
    static const DLDataType numbers[] = {{0, 64, 1}, {1, 64, 1}, {0, 32, 1}, {1, 32, 1}};
    if (noise == SY_NOISE_AUTO)
        noise = (sy_noise)(SY_NOISE_NONE + rng_below(rng, 4));
    if (noise == SY_NOISE_Q) {
        struct layout at = random_layout(rng);
        sample_add_q(c, &at);
        for (int64_t b = 0; b < c->batch; b++) {
            int style = (int)rng_below(rng, 4);
            for (int64_t i = 0; i < c->vocab; i++)
                if (style == 2 && !rng_below(rng, 4))
                    sample_put_bits(c, SLOT_Q, b, i, odd_bits(rng));
                else
                    sample_put(c, SLOT_Q, b, i, random_q(rng, style));
        }
    }
    bool seeded = noise == SY_NOISE_RACE || noise == SY_NOISE_CDF;
    for (int s = SLOT_SEED; seeded && s <= SLOT_STREAM; s++) {
        if (s != SLOT_SEED && rng_below(rng, 2))
            continue;
        sample_add_rows(c, (enum sample_slot)s, numbers[rng_below(rng, s == SLOT_STREAM ? 4 : 3)],
                        random_rows(rng));
        for (int64_t b = 0; b < c->batch; b++)
            sample_put_int(c, (enum sample_slot)s, b, (int64_t)rng_u64(rng));
    }
    /* What AUTO would choose is sometimes left to AUTO. */
    bool automatic = noise != SY_NOISE_RACE && rng_below(rng, 2);
    c->args.noise = automatic ? SY_NOISE_AUTO : noise;
}

static void add_outputs(struct sample_case *c, uint64_t *rng)
{
    struct layout at = random_layout(rng);
    unsigned bits = 0;
    while (!bits)
        bits = (rng_below(rng, 2) ? SLOTS_ALL_OUTPUTS : (unsigned)rng_u64(rng)) & SLOTS_ALL_OUTPUTS;
    bool in_place = c->args.logits->dtype.bits == 32 && !rng_below(rng, 5);
    if (in_place)
        bits &= ~SLOT_BIT(SLOT_MASKED);
    sample_add_outputs(c, bits, &at);
    if (in_place)
        c->args.masked_logits = &c->slot[SLOT_LOGITS].t;
    if (bits & SLOT_BIT(SLOT_LOGPROB))
        c->args.logprob_mode = rng_below(rng, 2) ? SY_LOGPROB_RAW : SY_LOGPROB_FINAL;
}

static void add_options(struct sample_case *c, bool probs_in, uint64_t *rng)
{
    static const float epsilons[] = {0, 0, 1e-8f, 0.5f, 1e-45f, FLT_MAX};
    static const int64_t guesses[] = {0, 32, -76, 1, INT64_MAX, INT64_MIN};
    const int64_t limits[] = {0, 0, 0, 1, 13, 1024, c->vocab, c->vocab + 1, INT64_MAX};
    c->args.eps = PICK(rng, epsilons);
    c->args.top_k_guess = PICK(rng, guesses);
    c->args.k_limit = PICK(rng, limits);
    c->args.q_order = rng_below(rng, 2) ? SY_Q_LIST : SY_Q_VOCAB;
    c->args.ties = rng_below(rng, 3) ? SY_TIES_EXACT : SY_TIES_ALL;
    c->args.empty_token = rng_below(rng, 2) ? SY_EMPTY_MINUS_ONE : SY_EMPTY_ZERO;
    c->args.probs_in = probs_in;
}

static void add_edits(struct sample_case *c, uint64_t *rng)
{
    const int64_t which = 1 + rng_below(rng, 3);
    struct layout at = random_layout(rng);
    if (which & 1) {
        sample_add_allow(c, rng_below(rng, 2) ? SY_I32 : SY_U32, rng_below(rng, 4) == 0, &at);
        sample_fill_allow(c, rng);
    }
    if (which & 2)
        sample_fill_overrides(c, rng);
}

/* Tokens of a row, its first among them, or none. */
static int64_t random_token(const struct sample_case *c, uint64_t *rng)
{
    return rng_below(rng, 5) ? rng_below(rng, c->vocab) : -1;
}

static void add_logprobs(struct sample_case *c, uint64_t *rng)
{
    const int64_t tops[] = {0, 1, 5, 20, 20, 300, c->vocab}, scores[] = {0, 0, 1, 3, 40};
    const int64_t n_top = PICK(rng, tops), n_score = PICK(rng, scores);
    struct layout at = random_layout(rng);
    sample_add_logprobs(c, n_top < c->vocab ? n_top : c->vocab, rng_below(rng, 2) ? SY_I64 : SY_I32, n_score,
                        rng_below(rng, 2) ? SY_I64 : SY_I32, &at);
    c->args.logprob_mode = rng_below(rng, 2) ? SY_LOGPROB_RAW : SY_LOGPROB_FINAL;
    c->args.top_logprobs = n_top > 0 && rng_below(rng, 2) ? c->args.top_token->shape[1] : 0;
    if (rng_below(rng, 4) == 0)
        c->args.rank = NULL;
    for (int64_t i = 0; i < c->batch * n_score; i++)
        sample_put_bits(c, SLOT_SCORE_TOKEN, i / n_score, i % n_score, (uint64_t)random_token(c, rng));
    if (c->args.rank == NULL && n_top == 0 && n_score == 0 && c->args.logprob == NULL)
        c->args.rank = &c->slot[SLOT_RANK].t;
    if (rng_below(rng, 2))
        return;
    sample_add_rows(c, SLOT_GIVEN_TOKEN, rng_below(rng, 2) ? SY_I64 : SY_I32, random_rows(rng));
    for (int64_t b = 0; b < c->batch; b++)
        sample_put_int(c, SLOT_GIVEN_TOKEN, b, random_token(c, rng));
}

static void random_call(struct sample_case *c, const struct plan *plan, uint64_t *rng)
{
    static const int64_t bounds[] = {1, 2, 9, 9, 40, 40, 40, 300, 300, 300, 1000, 5000};
    struct layout at = random_layout(rng);
    int64_t vocab = plan->vocab ? plan->vocab : 1 + rng_below(rng, PICK(rng, bounds));
    sample_open(c, plan->type, plan->vocab ? 2 : 1 + rng_below(rng, 5), vocab, &at);
    bool probs_in = plan->kind == KIND_PROBS || !rng_below(rng, 8);
    for (int64_t b = 0; b < c->batch; b++) {
        enum sample_kind kind =
            plan->kind == KIND_COUNT ? (enum sample_kind)rng_below(rng, KIND_COUNT) : plan->kind;
        sample_fill_row(c, b, kind, rng);
    }
    if (plan->edited)
        add_edits(c, rng);
    add_parameters(c, rng);
    add_noise(c, plan->noise, rng);
    add_options(c, probs_in, rng);
    add_outputs(c, rng);
    if (plan->logprobs)
        add_logprobs(c, rng);
}

/* ---- Tests ---- */

/* The rows were as hard as the plan's name says. */
static void prove_hard(const struct plan *plan, const struct sample_seen *seen)
{
    assert_true(seen->k_on > seen->rows / 10);
    if (plan->edited) {
        assert_true(seen->barred > seen->rows / 6);
        assert_true(seen->overridden > seen->rows / 8);
    }
    if (plan->logprobs) {
        assert_true(seen->given > seen->rows / 8);
        assert_true(seen->outside > seen->rows / 20);
    }
    if (plan->kind != KIND_EMPTY)
        assert_true(seen->p_on > seen->rows / 10);
    switch (plan->kind) {
    case KIND_TIES:
    case KIND_EQUAL:
    case KIND_ZEROS:
        assert_true(seen->k_tied > seen->rows / 10);
        assert_true(seen->p_tied > seen->rows / 20);
        break;
    case KIND_SPECIAL:
    case KIND_BITS:
        assert_true(seen->nan > seen->rows / 8);
        assert_true(seen->inf > 0 || plan->kind == KIND_BITS);
        assert_true(seen->subnormal > seen->rows / 8);
        break;
    case KIND_EMPTY:
        assert_int_equal(seen->empty, seen->rows);
        break;
    case KIND_INFINITE:
        assert_true(seen->inf > seen->rows / 2);
        break;
    case KIND_PROBS:
        assert_true(seen->p_short > 10);
        break;
    case KIND_NORMAL:
    case KIND_NEGATIVE:
    case KIND_SPREAD:
        assert_true(seen->mp_cut > seen->rows / 10);
        break;
    default:
        break;
    }
    if (plan->kind == KIND_ZEROS)
        assert_true(seen->minus_zero > 0 && seen->subnormal > 0);
    if (plan->noise == SY_NOISE_Q)
        assert_true(seen->score_tied > 10);
}

static void run_plan(void **state)
{
    const struct plan *plan = *state;
    static const int threads[] = {1, 2, 3};
    struct sample_seen seen = {0};
    uint64_t rng = plan->seed;
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int i = 0; i < plan->calls; i++) {
        struct sample_case c;
        random_call(&c, plan, &rng);
        assert_int_equal(sy_ctx_set_threads(ctx, threads[i % 3]), SY_OK);
        sample_check(&c, ctx, &seen, plan->name);
        sample_close(&c);
    }
    if (plan->calls >= 50)
        prove_hard(plan, &seen);
    sy_ctx_destroy(ctx);
}

/* Every kernel table this CPU can run gives the oracle's bytes. */
static void every_table(void **state)
{
    const struct plan *plan = *state;
    int tables = 0;
    for (const char *name; (name = sy_isa_name(tables)) != NULL; tables++) {
        struct sample_seen seen = {0};
        uint64_t rng = plan->seed;
        sy_ctx *ctx = test_ctx(2, name);
        assert_string_equal(sy_ctx_isa(ctx), name);
        for (int i = 0; i < plan->calls; i++) {
            struct sample_case c;
            random_call(&c, plan, &rng);
            sample_check(&c, ctx, &seen, name);
            sample_close(&c);
        }
        sy_ctx_destroy(ctx);
    }
    assert_true(tables >= 1);
}

static void add_plan(struct test_list *list, CMUnitTestFunction run, struct plan plan)
{
    static struct plan plans[160];
    static size_t n;
    static const char *const noises[] = {"any noise", "none", "q", "race", "cdf"};
    assert_true(n < COUNT_OF(plans));
    const char *type = plan.type.bits == 32 ? "f32" : plan.type.code == 2 ? "f16" : "bf16";
    const char *kind = plan.kind == KIND_COUNT ? "any row" : sample_kind_name(plan.kind);
    plan.seed = 1000 + 17 * n;
    plans[n] = plan;
    if (plan.vocab)
        snprintf(plans[n].name, sizeof plans[n].name, "%s, %s, V %lld%s", type, kind, (long long)plan.vocab,
                 plan.logprobs ? ", log-probabilities"
                 : plan.edited ? ", edited"
                               : "");
    else
        snprintf(plans[n].name, sizeof plans[n].name, "%s, %s, %s%s%s", type, kind, noises[plan.noise],
                 plan.logprobs ? ", log-probabilities"
                 : plan.edited ? ", edited"
                               : "",
                 run == every_table ? ", every table" : "");
    test_add(list, plans[n].name, run, &plans[n]);
    n++;
}

int main(void)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const enum sample_kind large[] = {KIND_NORMAL, KIND_TIES, KIND_SPECIAL};
    struct test_list list = {0};
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        for (int kind = 0; kind < KIND_COUNT; kind++)
            add_plan(&list, run_plan,
                     (struct plan){.type = types[t], .kind = (enum sample_kind)kind, .calls = 100});
        for (int noise = SY_NOISE_NONE; noise <= SY_NOISE_CDF; noise++)
            for (int edited = 0; edited < 2; edited++)
                add_plan(&list, run_plan,
                         (struct plan){.type = types[t],
                                       .kind = KIND_COUNT,
                                       .noise = (sy_noise)noise,
                                       .edited = edited,
                                       .calls = 150});
        for (size_t k = 0; k < COUNT_OF(large); k++) {
            add_plan(&list, run_plan,
                     (struct plan){.type = types[t], .kind = large[k], .vocab = 32000, .calls = 4});
            add_plan(&list, run_plan,
                     (struct plan){.type = types[t], .kind = large[k], .vocab = 131072, .calls = 2});
            add_plan(&list, run_plan,
                     (struct plan){
                         .type = types[t], .kind = large[k], .vocab = 32011, .edited = true, .calls = 4});
        }
        add_plan(&list, every_table, (struct plan){.type = types[t], .kind = KIND_COUNT, .calls = 40});
        add_plan(&list, every_table,
                 (struct plan){.type = types[t], .kind = KIND_COUNT, .edited = true, .calls = 40});
    }
    /* After the others, whose seeds follow from their places. */
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        for (int noise = SY_NOISE_NONE; noise <= SY_NOISE_CDF; noise++)
            add_plan(&list, run_plan,
                     (struct plan){.type = types[t],
                                   .kind = KIND_COUNT,
                                   .noise = (sy_noise)noise,
                                   .edited = noise % 2 == 0,
                                   .logprobs = true,
                                   .calls = 150});
        for (size_t k = 0; k < COUNT_OF(large); k++)
            add_plan(&list, run_plan,
                     (struct plan){
                         .type = types[t], .kind = large[k], .vocab = 32011, .logprobs = true, .calls = 8});
        for (int edited = 0; edited < 2; edited++) /* draws without a list of candidates */
            add_plan(&list, run_plan,
                     (struct plan){.type = types[t],
                                   .kind = KIND_NORMAL,
                                   .noise = SY_NOISE_CDF,
                                   .vocab = 20011 + edited,
                                   .edited = edited,
                                   .logprobs = true,
                                   .calls = 16});
        add_plan(&list, every_table,
                 (struct plan){
                     .type = types[t], .kind = KIND_COUNT, .edited = true, .logprobs = true, .calls = 40});
    }
    return test_run(&list, "sample_random");
}
