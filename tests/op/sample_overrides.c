/*
 * sample_overrides: random calls against the oracle on every thread count; and both operators together: what is built is what
 * sample takes.
 */
#include "support.h"

#include <math.h>

#include "oracle/sample_overrides.h"

#define NO (-INFINITY)

static sy_ctx *contexts[4];
static const int thread_counts[4] = {1, 2, 3, 8};

static int open_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        contexts[i] = test_ctx(thread_counts[i], NULL);
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        sy_ctx_destroy(contexts[i]);
    return 0;
}

/* ---- A call ------------------------------------------------------------------------------------------------- */

enum { ROWS = 9, VOCAB = 3000, ELEMENTS = 20000, PROMPT = 0, OUTPUT, BIAS, LISTS };

/* What a call reads, as plain numbers; the tensors are made from it. */
struct input {
    DLDataType type;
    int64_t rows, vocab, spare; /* spare elements at both ends of each list belong to no row */
    float logits[ROWS * VOCAB]; /* values the type has */
    int64_t begin[LISTS][ROWS + 1];
    int64_t token[LISTS][ELEMENTS];
    float bias[ELEMENTS];
    float penalty[3][ROWS]; /* repetition, frequency, presence */
    bool given[LISTS], set[3], one_for_all, wide_indptr, wide_token, strided;
    int64_t room; /* more than the overrides there can be */
};

struct truth {
    int64_t indptr[ROWS + 1];
    int32_t token[ROWS * VOCAB];
    float logit[ROWS * VOCAB], x[ROWS * VOCAB];
};

static int64_t length(const struct input *in, int list)
{
    return in->given[list] ? in->begin[list][in->rows] + in->spare : 0;
}

static int64_t most(const struct input *in)
{
    return length(in, PROMPT) + length(in, OUTPUT) + length(in, BIAS);
}

static void find_truth(const struct input *in, struct truth *out)
{
    int64_t at = 0;
    for (int64_t b = 0; b < in->rows; b++) {
        const int64_t p = in->one_for_all ? 0 : b;
        int64_t first[LISTS], n[LISTS];
        for (int l = 0; l < LISTS; l++) {
            first[l] = in->begin[l][b];
            n[l] = in->given[l] ? in->begin[l][b + 1] - first[l] : 0;
        }
        const struct overrides_row row = {.vocab = in->vocab,
                                          .n_prompt = n[PROMPT],
                                          .n_output = n[OUTPUT],
                                          .n_bias = n[BIAS],
                                          .logits = in->logits + b * in->vocab,
                                          .prompt = in->token[PROMPT] + first[PROMPT],
                                          .output = in->token[OUTPUT] + first[OUTPUT],
                                          .bias_token = in->token[BIAS] + first[BIAS],
                                          .bias = in->bias + first[BIAS],
                                          .repetition = in->set[0] ? in->penalty[0][p] : 1,
                                          .frequency = in->set[1] ? in->penalty[1][p] : 0,
                                          .presence = in->set[2] ? in->penalty[2][p] : 0};
        out->indptr[b] = at;
        at += oracle_sample_overrides(&row, out->token + at, out->logit + at, out->x + b * in->vocab);
    }
    out->indptr[in->rows] = at;
}

static void put_ints(struct tensor *x, bool wide, int64_t n, const int64_t *values)
{
    tensor_make(x, wide ? SY_I64 : SY_I32, 1, &n, NULL);
    for (int64_t i = 0; i < n; i++)
        memcpy(x->mem + (size_t)i * type_bytes(x->t.dtype), &values[i], type_bytes(x->t.dtype));
}

static void put_logits(struct tensor *x, const struct input *in)
{
    tensor_make(x, in->type, 2, (int64_t[]){in->rows, in->vocab},
                &(struct layout){.row_gap = in->strided ? 5 : 0});
    for (int64_t i = 0; i < in->rows * in->vocab; i++) {
        const double value = (double)in->logits[i];
        const uint16_t half = in->type.code == 4 ? bf16_round(value) : f16_round(value);
        memcpy((unsigned char *)tensor_row(x, i / in->vocab) + (size_t)(i % in->vocab) * type_bytes(in->type),
               in->type.bits == 32 ? (const void *)&in->logits[i] : (const void *)&half,
               type_bytes(in->type));
    }
}

enum {
    LOGITS,
    INDPTR,
    TOKEN = INDPTR + LISTS,
    BIAS_VALUE = TOKEN + LISTS,
    PENALTY,
    RESULT = PENALTY + 3,
    N_TENSORS = RESULT + 3
};

struct call {
    struct tensor t[N_TENSORS];
    sy_sample_overrides_args args;
};

static const DLTensor **field_of(struct call *c, int i)
{
    sy_sample_overrides_args *const a = &c->args;
    const DLTensor **const fields[N_TENSORS] = {&a->logits,
                                                &a->prompt_indptr,
                                                &a->output_indptr,
                                                &a->bias_indptr,
                                                &a->prompt_token,
                                                &a->output_token,
                                                &a->bias_token,
                                                &a->bias,
                                                &a->repetition_penalty,
                                                &a->frequency_penalty,
                                                &a->presence_penalty,
                                                &a->override_indptr,
                                                &a->override_token,
                                                &a->override_logit};
    return fields[i];
}

static void open_call(struct call *c, const struct input *in)
{
    const int64_t rows = in->rows, one = in->one_for_all ? 1 : rows, room = most(in) + in->room;
    memset(c, 0, sizeof *c);
    put_logits(&c->t[LOGITS], in);
    for (int l = 0; l < LISTS; l++)
        if (in->given[l]) {
            put_ints(&c->t[INDPTR + l], in->wide_indptr, rows + 1, in->begin[l]);
            put_ints(&c->t[TOKEN + l], in->wide_token, length(in, l), in->token[l]);
        }
    if (in->given[BIAS]) {
        tensor_make(&c->t[BIAS_VALUE], SY_F32, 1, (int64_t[]){length(in, BIAS)}, NULL);
        memcpy(c->t[BIAS_VALUE].mem, in->bias, (size_t)length(in, BIAS) * 4);
    }
    for (int i = 0; i < 3; i++)
        if (in->set[i]) {
            tensor_make(&c->t[PENALTY + i], SY_F32, 1, &one, NULL);
            memcpy(c->t[PENALTY + i].mem, in->penalty[i], (size_t)one * 4);
        }
    tensor_make(&c->t[RESULT], SY_I64, 1, (int64_t[]){rows + 1}, NULL);
    tensor_make(&c->t[RESULT + 1], SY_I32, 1, &room, NULL);
    tensor_make(&c->t[RESULT + 2], SY_F32, 1, &room, NULL);
    for (int i = 0; i < N_TENSORS; i++)
        if (c->t[i].mem != NULL)
            *field_of(c, i) = &c->t[i].t;
}

static void close_call(struct call *c)
{
    for (int i = 0; i < N_TENSORS; i++)
        tensor_free(&c->t[i]);
}

/* Everything that was asked for, and not a byte after it. */
static void check_on(sy_ctx *ctx, const struct input *in, const struct truth *want)
{
    struct call c;
    sy_query query = {0};
    open_call(&c, in);
    expect_status(ctx, sy_sample_overrides_query(ctx, &c.args, &query), SY_OK);
    assert_int_equal(query.rows, most(in));
    expect_status(ctx, sy_sample_overrides(ctx, &c.args), SY_OK);
    const size_t n = (size_t)want->indptr[in->rows];
    expect_bytes(c.t[RESULT].mem, want->indptr, ((size_t)in->rows + 1) * sizeof *want->indptr);
    expect_bytes(c.t[RESULT + 1].mem, want->token, n * sizeof *want->token);
    expect_bytes(c.t[RESULT + 2].mem, want->logit, n * sizeof *want->logit);
    for (int i = 1; i <= 2; i++)
        for (size_t byte = n * 4; byte < c.t[RESULT + i].bytes; byte++)
            assert_int_equal(c.t[RESULT + i].mem[byte], 0xA5);
    close_call(&c);
}

static void check(const struct input *in)
{
    static struct truth want;
    find_truth(in, &want);
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        check_on(contexts[i], in, &want);
}

/* ---- Random calls ------------------------------------------------------------------------------------------- */

static float random_logit(DLDataType type, uint64_t *rng)
{
    static const float special[] = {0, -0.0f, INFINITY, NO, NAN, 1e-41f};
    const double x = rng_below(rng, 30) ? 20 * (rng_unit(rng) - .5) : (double)special[rng_below(rng, 6)];
    return type.bits == 32  ? (float)x
           : type.code == 4 ? (float)bf16_value(bf16_round(x))
                            : (float)f16_value(f16_round(x));
}

static void random_list(struct input *in, int list, uint64_t *rng)
{
    static const int64_t lengths[] = {0, 1, 5, 40, 400};
    const int64_t longest = lengths[rng_below(rng, 5)], few = 1 + rng_below(rng, in->vocab);
    int64_t at = in->spare;
    in->given[list] = rng_below(rng, 4) != 0;
    for (int64_t b = 0; b < in->rows; b++) {
        in->begin[list][b] = at;
        at += rng_below(rng, longest + 1);
    }
    in->begin[list][in->rows] = at;
    for (int64_t j = 0; j < at + in->spare; j++) {
        const bool inside = j >= in->spare && j < at;
        in->token[list][j] = inside ? rng_below(rng, few) : -9; /* outside anything may stand */
        if (list == BIAS)
            in->bias[j] = rng_below(rng, 9) ? random_logit(SY_F32, rng) : NO;
    }
}

static void random_input(struct input *in, uint64_t *rng)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    static const float penalties[3][6] = {
        {1, 1.1f, .5f, NAN, 0, -1}, {0, .3f, -.7f, NAN, INFINITY, 1e-8f}, {0, .4f, -2, NAN, INFINITY, 1e-8f}};
    in->type = types[rng_below(rng, 3)];
    in->rows = rng_below(rng, ROWS + 1);
    in->vocab = 1 + rng_below(rng, rng_below(rng, 2) ? 100 : VOCAB);
    in->spare = rng_below(rng, 3);
    in->room = rng_below(rng, 2) ? 0 : rng_below(rng, 20);
    for (int64_t i = 0; i < in->rows * in->vocab; i++)
        in->logits[i] = random_logit(in->type, rng);
    for (int l = 0; l < LISTS; l++)
        random_list(in, l, rng);
    in->one_for_all = rng_below(rng, 2) != 0;
    in->wide_indptr = rng_below(rng, 2) != 0;
    in->wide_token = rng_below(rng, 2) != 0;
    in->strided = rng_below(rng, 2) != 0;
    for (int i = 0; i < 3; i++) {
        in->set[i] = rng_below(rng, 3) != 0;
        for (int b = 0; b < ROWS; b++)
            in->penalty[i][b] = penalties[i][rng_below(rng, 6)];
    }
}

/* The calls were hard: overrides came, and tokens that stayed; rows without any; NaN and bans among them. */
static void random_calls(void **state)
{
    static struct input in;
    static struct truth want;
    int64_t overrides = 0, listed = 0, none = 0, nan = 0, banned = 0;
    uint64_t rng = *(const uint64_t *)*state;
    for (int call = 0; call < 60; call++) {
        random_input(&in, &rng);
        check(&in);
        find_truth(&in, &want);
        overrides += want.indptr[in.rows];
        listed += most(&in);
        for (int64_t b = 0; b < in.rows; b++)
            none += want.indptr[b] == want.indptr[b + 1];
        for (int64_t j = 0; j < want.indptr[in.rows]; j++) {
            nan += isnan(want.logit[j]);
            banned += want.logit[j] == NO;
        }
    }
    assert_true(overrides > 1000 && listed > 2 * overrides && none > 10 && nan > 10 && banned > 10);
}

/* ---- Both operators ----------------------------------------------------------------------------------------- */

/* Drawn from the logits with their overrides, and from f32 rows that hold them: the same tokens and masked logits. */
static void sample_takes_them(void **state)
{
    static struct input in;
    static struct truth want;
    uint64_t rng = 5 + *(const uint64_t *)*state;
    for (int call = 0; call < 30; call++) {
        random_input(&in, &rng);
        find_truth(&in, &want);
        struct call c;
        int64_t token[2][ROWS], shape[] = {in.rows, in.vocab}, one[] = {1};
        float *const masked = buf_new(2 * (size_t)(in.rows * in.vocab) * sizeof *masked, 0);
        uint64_t seed_value = rng_u64(&rng);
        open_call(&c, &in);
        expect_status(contexts[1], sy_sample_overrides(contexts[1], &c.args), SY_OK);
        const DLTensor x = sy_tensor(want.x, SY_F32, 2, shape), seed = sy_tensor(&seed_value, SY_U64, 1, one);
        for (int i = 0; i < 2; i++) {
            const DLTensor picked = sy_tensor(token[i], SY_I64, 1, shape);
            const DLTensor logits = sy_tensor(masked + i * in.rows * in.vocab, SY_F32, 2, shape);
            sy_sample_args args = {.logits = i ? &x : c.args.logits,
                                   .seed = &seed,
                                   .override_indptr = i ? NULL : c.args.override_indptr,
                                   .override_token = i ? NULL : c.args.override_token,
                                   .override_logit = i ? NULL : c.args.override_logit,
                                   .token = &picked,
                                   .masked_logits = &logits};
            expect_status(contexts[1], sy_sample(contexts[1], &args), SY_OK);
        }
        expect_bytes(token[0], token[1], (size_t)in.rows * sizeof **token);
        expect_bytes(masked, masked + in.rows * in.vocab, (size_t)(in.rows * in.vocab) * sizeof *masked);
        buf_free(masked);
        close_call(&c);
    }
}

int main(void)
{
    enum { SEEDS = 4 };
    static uint64_t seeds[SEEDS];
    struct test_list list = {0};
    for (size_t i = 0; i < SEEDS; i++) {
        seeds[i] = 100 + i;
        test_add(&list, test_name("random calls: seed %zu", 100 + i), random_calls, &seeds[i]);
        test_add(&list, test_name("sample takes them: seed %zu", 100 + i), sample_takes_them, &seeds[i]);
    }
    const int failed =
        _cmocka_run_group_tests("op_sample_overrides", list.tests, list.count, open_contexts, close_contexts);
    free(list.tests);
    return failed;
}
