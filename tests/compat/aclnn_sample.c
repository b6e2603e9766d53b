/*
 * aclnnTopKTopPSample and its second version: the worked examples of docs/ops/sample.md, in every type that can hold
 * them; lists bit for bit; batches that mix scenarios; hints that change nothing; the data of the vendor's programs.
 */
#include "aclnn.h"

#include <math.h>

#define OFF_P 1.0f
#define MOST 6

/* One row, and what comes of it. */
struct row {
    const char *name;
    int v;
    float logits[MOST];
    int32_t k; /* 0: off */
    float p, min_p;
    const float *q; /* NULL: no sampling */
    bool probs_in;
    int64_t token;
    float masked[MOST];
};

#define X (-INFINITY)
static const float q5[] = {.05f, .9f, .3f, 1.2f, 2}, q7[] = {1.2f, .35f, .3f, .9f, .05f};
static const float q8[] = {.7f, .2f, .9f, .1f, .5f, .3f}, q9[] = {.9f, .2f, .7f, .1f, .5f};
static const float q11[] = {1, .5f, 2, 1, 1}, q12[] = {.1f, .9f, .1f, .5f};

static const struct row rows[] = {
    {"nothing on", 5, {1, 3, 3, -2, 0}, 0, OFF_P, 0, NULL, false, 1, {1, 3, 3, -2, 0}},
    {"top-k with ties", 6, {2, 5, 3, 3, 1, 3}, 3, OFF_P, 0, NULL, false, 1, {X, 5, 3, 3, X, X}},
    {"top-p .5", 5, {2, 1, 0, -1, 1}, 0, .5f, 0, NULL, false, 0, {2, X, X, X, X}},
    {"top-p .6", 5, {2, 1, 0, -1, 1}, 0, .6f, 0, NULL, false, 0, {2, 1, X, X, X}},
    {"top-p .75", 5, {2, 1, 0, -1, 1}, 0, .75f, 0, NULL, false, 0, {2, 1, X, X, 1}},
    {"top-p .9", 5, {2, 1, 0, -1, 1}, 0, .9f, 0, NULL, false, 0, {2, 1, X, X, 1}},
    {"p is reached", 4, {0, 0, 0, 0}, 0, .5f, 0, NULL, false, 0, {0, 0, X, X}},
    {"p is passed", 4, {0, 0, 0, 0}, 0, .51f, 0, NULL, false, 0, {0, 0, 0, X}},
    {"k then p", 4, {0, 0, 0, 0}, 3, .5f, 0, NULL, false, 0, {0, 0, X, X}},
    {"p 0", 4, {0, 0, 0, 0}, 0, 0, 0, NULL, false, 0, {0, X, X, X}},
    {"p below 0", 4, {0, 0, 0, 0}, 3, -1, 0, NULL, false, 0, {0, X, X, X}},
    {"q by position", 5, {0, 1, 2, 3, 2.5f}, 0, OFF_P, 0, q5, false, 2, {0, 1, 2, 3, 2.5f}},
    {"q by rank", 5, {0, 1, 2, 3, 2.5f}, 3, OFF_P, 0, q5, false, 3, {X, X, 2, 3, 2.5f}},
    {"one softmax", 5, {0, 1, 2, 3, 2.5f}, 0, .9f, 0, q7, false, 4, {X, X, 2, 3, 2.5f}},
    {"k, p and q", 6, {0, 1, 2, 3, 2.5f, -1}, 4, .75f, 0, q8, false, 4, {X, X, X, 3, 2.5f, X}},
    {"ties, k, p and q", 6, {4, 4, 4, 4, 1, 1}, 3, .5f, 0, q8, false, 1, {4, 4, X, X, X, X}},
    {"k too large", 6, {1, 2, 3, 4, 5, 6}, 2000, .9f, 0, q8, false, 4, {X, X, X, 4, 5, 6}},
    {"k negative", 6, {1, 2, 3, 4, 5, 6}, -7, .9f, 0, q8, false, 4, {X, X, X, 4, 5, 6}},
    {"only q",
     6,
     {.5f, .25f, .125f, 0, -.125f, -.25f},
     0,
     OFF_P,
     0,
     q8,
     false,
     3,
     {.5f, .25f, .125f, 0, -.125f, -.25f}},
    {"min-p alone", 5, {0, 2, -1, 3, 2.5f}, 0, OFF_P, .3f, q9, false, 3, {X, 2, X, 3, 2.5f}},
    {"probabilities", 5, {.05f, .4f, .1f, .3f, .15f}, 0, .6f, 0, q11, true, 3, {0, .4f, 0, .3f, 0}},
    {"probabilities below p", 5, {.05f, .4f, .1f, .3f, .15f}, 2, .9f, 0, NULL, true, 1, {0, .4f, 0, .3f, 0}},
    {"NaN", 4, {1, NAN, 2, X}, 2, OFF_P, 0, NULL, false, 2, {1, X, 2, X}},
    {"infinities share",
     4,
     {1, INFINITY, 2, INFINITY},
     0,
     OFF_P,
     0,
     q12,
     false,
     3,
     {1, INFINITY, 2, INFINITY}},
    {"infinities and p", 4, {1, INFINITY, 2, INFINITY}, 0, .4f, 0, q12, false, 1, {X, INFINITY, X, X}},
    {"empty", 4, {X, X, X, X}, 0, OFF_P, 0, q12, false, 0, {X, X, X, X}},
    {"signed zeros", 4, {-0.0f, 0, -0.0f, 0}, 3, OFF_P, 0, NULL, false, 0, {-0.0f, 0, -0.0f, X}},
    {"far below 0", 4, {-300, -301, -302, -400}, 0, .9f, 0, NULL, false, 0, {-300, -301, X, X}},
    {"k equal to V", 5, {0, 1, 2, 3, 2.5f}, 5, OFF_P, 0, q5, false, 3, {0, 1, 2, 3, 2.5f}},
};

/* The value in a type; false where the type cannot hold it. */
static bool put(aclDataType type, float value, void *data, int i)
{
    if (type == ACL_FLOAT) {
        ((float *)data)[i] = value;
        return true;
    }
    const uint16_t bits = type == ACL_FLOAT16 ? f16_round(value) : bf16_round(value);
    ((uint16_t *)data)[i] = bits;
    const double back = type == ACL_FLOAT16 ? f16_value(bits) : bf16_value(bits);
    return isnan(value) || back == value;
}

static struct call call_of_row(const struct row *r, bool v2, aclDataType type, void *logits, void *p,
                               void *min_p)
{
    struct call c = v2 ? call_sample_v2() : call_sample();
    c.args[SAMPLE_LOGITS] = (struct arg)ARG2(type, 1, r->v, logits);
    c.args[SAMPLE_K] = (struct arg)ARG1(ACL_INT32, 1, &r->k);
    c.args[SAMPLE_P] = (struct arg)ARG1(type, 1, p);
    if (r->q != NULL)
        c.args[SAMPLE_Q] = (struct arg)ARG2(ACL_FLOAT, 1, r->v, r->q);
    if (v2 && r->min_p > 0)
        c.args[SAMPLE_MINP] = (struct arg)ARG2(type, 1, 1, min_p);
    c.args[SAMPLE_TOKEN] = (struct arg)ARG1(ACL_INT64, 1, NULL);
    c.args[SAMPLE_MASKED] = (struct arg)ARG2(ACL_FLOAT, 1, r->v, NULL);
    c.flag[0] = true;
    c.flag[1] = !r->probs_in;
    return c;
}

static void worked_example(void **state)
{
    const struct row *r = *state;
    static const struct {
        bool v2;
        aclDataType type;
    } forms[] = {
        {true, ACL_FLOAT}, {true, ACL_FLOAT16}, {true, ACL_BF16}, {false, ACL_FLOAT16}, {false, ACL_BF16}};
    for (size_t f = 0; f < COUNT_OF(forms); f++) {
        if (!forms[f].v2 && (r->min_p > 0 || r->probs_in))
            continue;
        float logits[MOST], p[1], min_p[1]; /* room for any type */
        bool held = true;
        for (int i = 0; i < r->v; i++)
            held &= put(forms[f].type, r->logits[i], logits, i);
        (void)put(forms[f].type, r->p, p, 0);
        (void)put(forms[f].type, r->min_p, min_p, 0);
        if (!held)
            continue;
        struct call c = call_of_row(r, forms[f].v2, forms[f].type, logits, p, min_p);
        call_expect(&c, &r->token, r->masked, NULL, NULL);
        c = call_of_row(r, forms[f].v2, forms[f].type, logits, p, min_p);
        c.flag[0] = false; /* not asked for: left alone, or not there at all */
        call_expect(&c, &r->token, NULL, NULL, NULL);
        c = call_of_row(r, forms[f].v2, forms[f].type, logits, p, min_p);
        c.flag[0] = false;
        c.args[SAMPLE_MASKED] = (struct arg)NO_ARG;
        call_expect(&c, &r->token, NULL, NULL, NULL);
    }
}

/* ---- Lists ------------------------------------------------------------------------------------------- */

static struct call call_of_list(const float *logits, int v, const int32_t *k, const float *p,
                                const float *min_p)
{
    struct call c = call_sample_v2();
    c.args[SAMPLE_LOGITS] = (struct arg)ARG2(ACL_FLOAT, 1, v, logits);
    c.args[SAMPLE_K] = (struct arg)ARG2(ACL_INT32, 1, 1, k);
    c.args[SAMPLE_P] = (struct arg)ARG2(ACL_FLOAT, 1, 1, p);
    if (min_p != NULL)
        c.args[SAMPLE_MINP] = (struct arg)ARG1(ACL_FLOAT, 1, min_p);
    c.args[SAMPLE_TOKEN] = (struct arg)ARG1(ACL_INT64, 1, NULL); /* not written beside lists */
    c.args[SAMPLE_IDX] = (struct arg)ARG2(ACL_INT64, 1, v, NULL);
    c.args[SAMPLE_LIST] = (struct arg)ARG2(ACL_FLOAT, 1, v, NULL);
    c.flag[2] = true;
    return c;
}

static void lists_bit_for_bit(void **state)
{
    (void)state;
    const float logits[4] = {2, 1, 0, -1}, off = 1;
    const int32_t k = 0;
    struct call c = call_of_list(logits, 4, &k, &off, NULL);
    call_expect(&c, NULL, NULL, ((int64_t[]){0, 1, 2, 3}),
                ((float[]){.643914273f, .236882829f, .0871443194f, .032058603f}));
    const float p = .9f;
    c = call_of_list(logits, 4, &k, &p, NULL);
    call_expect(&c, NULL, NULL, ((int64_t[]){0, 1, 2, 0}),
                ((float[]){.643914273f, .236882829f, .0871443194f, 0}));
}

static void lists_of_the_page(void **state)
{
    (void)state;
    static const float logits[5] = {0, 2, -1, 3, 2.5f};
    static const struct {
        int32_t k;
        float p, min_p;
        int64_t idx[5];
        double prob[5];
    } cases[] = {
        {4, .9f, 0, {3, 4, 1, 0, 0}, {.4940230, .2996401, .1817409, 0, 0}},
        {4, .9f, .5f, {3, 4, 0, 0, 0}, {.4940230, .2996401, 0, 0, 0}},
        {4, -1, 0, {3, 0, 0, 0, 0}, {1, 0, 0, 0, 0}},
        {0, 1, 0, {0, 1, 2, 3, 4}, {.0243754, .1801112, .0089672, .4895930, .2969532}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct call c =
            call_of_list(logits, 5, &cases[i].k, &cases[i].p, cases[i].min_p > 0 ? &cases[i].min_p : NULL);
        call_make(&c);
        expect_aclnn(call_run(&c), 0);
        int64_t idx[5];
        float prob[5];
        arg_get(&c.args[SAMPLE_IDX], idx);
        arg_get(&c.args[SAMPLE_LIST], prob);
        for (int j = 0; j < 5; j++) {
            assert_int_equal(idx[j], cases[i].idx[j]);
            assert_true(fabs(prob[j] - cases[i].prob[j]) < 1e-7); /* the page has seven digits */
        }
        arg_expect_untouched(&c.args[SAMPLE_TOKEN], true, "logitsSelectIdx");
        call_free(&c);
    }
}

/* ---- Whole batches ----------------------------------------------------------------------------------- */

enum { B = 37, V = 300 };

struct batch {
    uint16_t logits[B * V];
    float q[B * V];
    int32_t k[B];
    uint16_t p[B], min_p[B];
};

static void batch_fill(struct batch *b, uint64_t seed)
{
    print_message("seed %llu\n", (unsigned long long)seed);
    int kinds[3] = {0};
    for (int i = 0; i < B * V; i++) {
        b->logits[i] = bf16_round((double)rng_below(&seed, 64) / 8 - 4); /* many ties */
        b->q[i] = (float)(rng_unit(&seed) + 1e-3);
    }
    for (int i = 0; i < B; i++) {
        b->k[i] = rng_below(&seed, 3) == 0 ? 0 : (int32_t)rng_below(&seed, 2 * V);
        b->p[i] = bf16_round(rng_below(&seed, 3) == 0 ? 1 : rng_unit(&seed));
        b->min_p[i] = bf16_round(rng_below(&seed, 2) == 0 ? 0 : rng_unit(&seed) / 4);
        kinds[b->k[i] == 0 ? 0 : b->k[i] <= V ? 1 : 2]++;
    }
    assert_true(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0);
}

static struct call call_of_batch(const struct batch *b)
{
    struct call c = call_sample_v2();
    c.args[SAMPLE_LOGITS] = (struct arg)ARG2(ACL_BF16, B, V, b->logits);
    c.args[SAMPLE_K] = (struct arg)ARG1(ACL_INT32, B, b->k);
    c.args[SAMPLE_P] = (struct arg)ARG1(ACL_BF16, B, b->p);
    c.args[SAMPLE_Q] = (struct arg)ARG2(ACL_FLOAT, B, V, b->q);
    c.args[SAMPLE_MINP] = (struct arg)ARG1(ACL_BF16, B, b->min_p);
    c.args[SAMPLE_TOKEN] = (struct arg)ARG1(ACL_INT64, B, NULL);
    c.args[SAMPLE_MASKED] = (struct arg)ARG2(ACL_FLOAT, B, V, NULL);
    c.flag[0] = true;
    return c;
}

/* What the library itself says, with the limit of k that ksMax means. */
static void native(const struct batch *b, int64_t k_limit, int64_t *token, float *masked)
{
    int64_t matrix[2] = {B, V}, row[1] = {B};
    struct batch *w = (struct batch *)(uintptr_t)b; /* DLPack has no const */
    const DLTensor logits = sy_tensor(w->logits, SY_BF16, 2, matrix), q = sy_tensor(w->q, SY_F32, 2, matrix);
    const DLTensor k = sy_tensor(w->k, SY_I32, 1, row), p = sy_tensor(w->p, SY_BF16, 1, row);
    const DLTensor min_p = sy_tensor(w->min_p, SY_BF16, 1, row), t = sy_tensor(token, SY_I64, 1, row);
    const DLTensor m = sy_tensor(masked, SY_F32, 2, matrix);
    const sy_sample_args args = {.logits = &logits,
                                 .top_k = &k,
                                 .top_p = &p,
                                 .min_p = &min_p,
                                 .q = &q,
                                 .eps = 1e-8f,
                                 .k_limit = k_limit,
                                 .empty_token = SY_EMPTY_ZERO,
                                 .token = &t,
                                 .masked_logits = &m};
    sy_ctx *ctx = test_ctx(1, NULL);
    expect_status(ctx, sy_sample(ctx, &args), SY_OK);
    sy_ctx_destroy(ctx);
}

static void batches_equal_the_library(void **state)
{
    (void)state;
    static struct batch b;
    static int64_t token[B];
    static float masked[B * V];
    /* ksMax counts up to a multiple of 8, and at most 1024. */
    static const int64_t ks[][2] = {{1024, 1024}, {13, 16},     {16, 16},
                                    {1, 8},       {5000, 1024}, {INT64_MAX, 1024}};
    for (size_t i = 0; i < COUNT_OF(ks); i++) {
        batch_fill(&b, 7 + i);
        native(&b, ks[i][1], token, masked);
        struct call c = call_of_batch(&b);
        c.number[1] = ks[i][0];
        call_expect(&c, token, masked, NULL, NULL);
    }
}

static void hints_change_nothing(void **state)
{
    (void)state;
    static struct batch b;
    static int64_t token[B];
    static float masked[B * V];
    batch_fill(&b, 99);
    native(&b, 1024, token, masked);
    static const int64_t guesses[] = {INT64_MIN, -76, -1, 0, 1, 8, 1024, INT64_MAX};
    for (size_t i = 0; i < COUNT_OF(guesses); i++) {
        struct call c = call_of_batch(&b);
        c.number[0] = guesses[i];
        call_expect(&c, token, masked, NULL, NULL);
    }
}

/* f32 logits may be their own masked output. */
static void in_place(void **state)
{
    (void)state;
    const float logits[6] = {2, 5, 3, 3, 1, 3}, want[6] = {X, 5, 3, 3, X, X}, off = 1;
    const int32_t k = 3;
    struct call c = call_sample_v2();
    c.args[SAMPLE_LOGITS] = (struct arg)ARG2(ACL_FLOAT, 1, 6, logits);
    c.args[SAMPLE_K] = (struct arg)ARG1(ACL_INT32, 1, &k);
    c.args[SAMPLE_P] = (struct arg)ARG1(ACL_FLOAT, 1, &off);
    c.args[SAMPLE_TOKEN] = (struct arg)ARG1(ACL_INT64, 1, NULL);
    c.flag[0] = true;
    call_make(&c);
    c.args[SAMPLE_MASKED].tensor = c.args[SAMPLE_LOGITS].tensor;
    expect_aclnn(call_run(&c), 0);
    c.args[SAMPLE_MASKED].tensor = NULL;
    expect_bytes(c.args[SAMPLE_LOGITS].mem, want, sizeof want);
    call_free(&c);
}

/* Forty-eight rows of 131072 equal logits and a p of 9.2e-41. */
static void the_vendors_program(void **state)
{
    (void)state;
    enum { ROWS = 48, WORDS = 131072 };
    uint16_t *logits = malloc(ROWS * WORDS * sizeof *logits);
    float *q = malloc(ROWS * WORDS * sizeof *q);
    assert_non_null(logits);
    assert_non_null(q);
    for (int i = 0; i < ROWS * WORDS; i++) {
        logits[i] = 1;
        q[i] = 1;
    }
    int32_t k[ROWS];
    uint16_t p[ROWS];
    int64_t want[ROWS] = {0};
    for (int i = 0; i < ROWS; i++) {
        k[i] = 128;
        p[i] = 1;
    }
    for (int v2 = 0; v2 < 2; v2++) {
        struct call c = v2 ? call_sample_v2() : call_sample();
        c.args[SAMPLE_LOGITS] = (struct arg)ARG2(ACL_BF16, ROWS, WORDS, logits);
        c.args[SAMPLE_K] = (struct arg)ARG1(ACL_INT32, ROWS, k);
        c.args[SAMPLE_P] = (struct arg)ARG1(ACL_BF16, ROWS, p);
        c.args[SAMPLE_Q] = (struct arg)ARG2(ACL_FLOAT, ROWS, WORDS, q);
        if (v2)
            c.args[SAMPLE_MINP] = (struct arg)ARG1(ACL_BF16, ROWS, p);
        c.args[SAMPLE_TOKEN] = (struct arg)ARG1(ACL_INT64, ROWS, NULL);
        call_expect(&c, want, NULL, NULL, NULL);
    }
    free(logits);
    free(q);
}

int main(void)
{
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        test_add(&list, test_name("row: %s", rows[i].name), worked_example, (void *)(uintptr_t)&rows[i]);
    test_add(&list, "lists bit for bit", lists_bit_for_bit, NULL);
    test_add(&list, "lists of the page", lists_of_the_page, NULL);
    test_add(&list, "batches equal the library", batches_equal_the_library, NULL);
    test_add(&list, "hints change nothing", hints_change_nothing, NULL);
    test_add(&list, "in place", in_place, NULL);
    test_add(&list, "the vendor's program", the_vendors_program, NULL);
    return test_run(&list, "aclnn_sample");
}
