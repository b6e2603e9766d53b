/*
 * What `sample` writes and where: outputs alone, rows with gaps, in place, any alignment; and what
 * must not matter: threads, the caller's pool, the rounding mode, earlier calls, lent workspace, overlapping
 * inputs.
 */
#include "support.h"

#include <fenv.h>
#include <math.h>

#include "oracle/sample_case.h"

/* A mixed batch: filters differ row by row, special rows among ordinary ones. */
static void open_mixed(struct sample_case *c, DLDataType type, int64_t batch, int64_t vocab,
                       const struct layout *at)
{
    static const enum sample_kind kinds[] = {KIND_NORMAL, KIND_TIES, KIND_SPECIAL, KIND_EMPTY, KIND_NORMAL};
    static const double p[] = {.9, 1, .5, .7, NAN, 0, .99};
    uint64_t rng = 21 + (uint64_t)vocab;
    sample_open(c, type, batch, vocab, at);
    sample_add_rows(c, SLOT_TOP_K, SY_I32, ROWS_B);
    sample_add_rows(c, SLOT_TOP_P, SY_F32, ROWS_B);
    sample_add_rows(c, SLOT_MIN_P, SY_F32, ROWS_B);
    for (int64_t b = 0; b < batch; b++) {
        sample_fill_row(c, b, kinds[b % 5], &rng);
        sample_put_int(c, SLOT_TOP_K, b, b % 3 ? 0 : 1 + rng_below(&rng, vocab));
        sample_put(c, SLOT_TOP_P, b, 0, p[b % 7]);
        sample_put(c, SLOT_MIN_P, b, 0, b % 4 ? 0 : .02);
    }
}

static void add_seed(struct sample_case *c, sy_noise noise)
{
    sample_add_rows(c, SLOT_SEED, SY_I64, ROWS_ONE);
    sample_put_int(c, SLOT_SEED, 0, 99);
    c->args.noise = noise;
}

static void add_random_q(struct sample_case *c, const struct layout *at)
{
    uint64_t rng = 1;
    sample_add_q(c, at);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t i = 0; i < c->vocab; i++)
            sample_put(c, SLOT_Q, b, i, -log(1 - rng_unit(&rng)));
}

/* ---- Outputs alone ---- */

static void output_alone(void **state)
{
    const enum sample_slot only = *(const enum sample_slot *)*state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    open_mixed(&c, SY_F32, 8, 33, NULL);
    add_seed(&c, SY_NOISE_CDF);
    sample_add_outputs(&c, SLOT_BIT(only), NULL);
    if (only == SLOT_LOGPROB)
        c.args.logprob_mode = SY_LOGPROB_FINAL;
    sample_check(&c, ctx, NULL, "alone");
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Layout ---- */

static const struct {
    const char *name;
    struct layout logits, q, out;
} layouts[] = {
    {"strides given, compact", {.strided = true}, {.strided = true}, {.strided = true}},
    {"rows with gaps", {.row_gap = 5}, {.row_gap = 9}, {.row_gap = 3}},
    {"odd addresses", {.misalign = 1}, {.misalign = 3}, {.misalign = 5}},
    {"byte offsets", {.byte_offset = 8}, {.byte_offset = 20}, {.byte_offset = 36}},
    {"all of it",
     {.row_gap = 31, .misalign = 2, .byte_offset = 6},
     {.row_gap = 1, .misalign = 7, .byte_offset = 12},
     {.row_gap = 17, .misalign = 1, .byte_offset = 3}},
};

static void layout_of_rows(void **state)
{
    const size_t i = *(const size_t *)*state;
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t t = 0; t < COUNT_OF(types); t++) {
        struct sample_case c;
        open_mixed(&c, types[t], 9, 70, &layouts[i].logits);
        add_random_q(&c, &layouts[i].q);
        c.args.logprob_mode = SY_LOGPROB_RAW;
        sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, &layouts[i].out);
        sample_check(&c, ctx, NULL, layouts[i].name);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/*
 * Same data and stride as the logits, through the same or an equal tensor, with every other output beside it.
 */
static void in_place(void **state)
{
    const bool same_tensor = *(const bool *)*state;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (int64_t gap = 0; gap <= 6; gap += 6) {
        struct sample_case c;
        const struct layout at = {.row_gap = gap, .byte_offset = 16};
        open_mixed(&c, SY_F32, 11, 90, &at);
        add_random_q(&c, NULL);
        c.args.logprob_mode = SY_LOGPROB_RAW;
        sample_add_outputs(&c, SLOTS_ALL_OUTPUTS & ~SLOT_BIT(SLOT_MASKED), NULL);
        DLTensor copy = c.slot[SLOT_LOGITS].t;
        int64_t strides[] = {90 + gap, 1};
        copy.strides = strides;
        c.args.masked_logits = same_tensor ? c.args.logits : &copy;
        sample_check(&c, ctx, NULL, "in place");
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* One row may carry any row stride: there is no second row to meet. */
static void one_row_any_stride(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    const struct layout at = {.strided = true};
    open_mixed(&c, SY_F32, 1, 40, &at);
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, &at);
    c.slot[SLOT_LOGITS].strides[0] = 0;
    c.slot[SLOT_MASKED].strides[0] = 7;
    c.slot[SLOT_LIST_PROB].strides[0] = 1000;
    sample_check(&c, ctx, NULL, "one row");
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* Inputs may be the same memory: q is the logits, one tensor serves p, min_p and temperature. */
static void inputs_overlap(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    uint64_t rng = 2;
    sample_open(&c, SY_F32, 4, 50, NULL);
    for (int64_t b = 0; b < 4; b++)
        sample_fill_row(&c, b, KIND_NORMAL, &rng);
    sample_add_rows(&c, SLOT_TOP_P, SY_F32, ROWS_B);
    for (int64_t b = 0; b < 4; b++)
        sample_put(&c, SLOT_TOP_P, b, 0, .2 + .2 * (double)b);
    c.args.q = c.args.logits;
    c.args.min_p = c.args.temperature = c.args.top_p;
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    sample_check(&c, ctx, NULL, "overlap");
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Threads and the caller's pool ---- */

struct shape {
    const char *name;
    int64_t batch, vocab;
    DLDataType type;
    sy_noise noise;
};

static const struct shape shapes[] = {
    {"B 1, V 131072, f32, cdf", 1, 131072, {2, 32, 1}, SY_NOISE_CDF},
    {"B 1, V 131072, bf16, race", 1, 131072, {4, 16, 1}, SY_NOISE_RACE},
    {"B 1, V 131072, f16, q", 1, 131072, {2, 16, 1}, SY_NOISE_Q},
    {"B 3, V 32000, f32, race", 3, 32000, {2, 32, 1}, SY_NOISE_RACE},
    {"B 200, V 300, bf16, cdf", 200, 300, {4, 16, 1}, SY_NOISE_CDF},
    {"B 200, V 300, f32, q", 200, 300, {2, 32, 1}, SY_NOISE_Q},
    {"B 1000, V 1, f16, none", 1000, 1, {2, 16, 1}, SY_NOISE_NONE},
};

static void open_shape(struct sample_case *c, const struct shape *s)
{
    open_mixed(c, s->type, s->batch, s->vocab, NULL);
    if (s->noise == SY_NOISE_Q)
        add_random_q(c, NULL);
    else if (s->noise != SY_NOISE_NONE)
        add_seed(c, s->noise);
    c->args.logprob_mode = SY_LOGPROB_RAW;
    sample_add_outputs(c, SLOTS_ALL_OUTPUTS, NULL);
}

static void threads_agree(void **state)
{
    const struct shape *s = *state;
    static const int threads[] = {1, 2, 3, 8, 0};
    struct sample_case c;
    struct sample_want want;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_shape(&c, s);
    for (int filtered = 1; filtered >= 0; filtered--) {
        if (!filtered)
            c.args.top_k = c.args.top_p = c.args.min_p = NULL;
        sample_want_make(&c, &want, NULL);
        for (size_t t = 0; t < COUNT_OF(threads); t++) {
            assert_int_equal(sy_ctx_set_threads(ctx, threads[t]), SY_OK);
            sample_run(&c, ctx, &want, s->name);
        }
        sample_want_free(&want);
    }
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* Runs the tasks last first, on the calling thread. */
static void backwards(void *user, int n_tasks, void (*task)(void *, int), void *data)
{
    *(int *)user += n_tasks;
    for (int i = n_tasks - 1; i >= 0; i--)
        task(data, i);
}

static void callers_pool(void **state)
{
    (void)state;
    int tasks = 0;
    if (test_on_device())
        skip_because("a device has no threads of the caller");
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct sample_case c;
        sy_ctx *ctx = NULL;
        const sy_ctx_options options = {.threads = 4, .parallel_for = backwards, .parallel_user = &tasks};
        assert_int_equal(sy_ctx_create(&ctx, &options), SY_OK);
        open_shape(&c, &shapes[i]);
        sample_check(&c, ctx, NULL, shapes[i].name);
        sample_close(&c);
        sy_ctx_destroy(ctx);
    }
    assert_true(tasks > 0);
}

/* ---- What the caller's state must not change ---- */

static void rounding_mode(void **state)
{
    const int mode = *(const int *)*state;
    struct sample_case c;
    struct sample_want want;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 3; i < 6; i++) {
        open_shape(&c, &shapes[i]);
        sample_want_make(&c, &want, NULL);
        assert_int_equal(fesetround(mode), 0);
        sy_status status = sy_sample(ctx, &c.args);
        int after = fegetround();
        fesetround(FE_TONEAREST);
        expect_status(ctx, status, SY_OK);
        assert_int_equal(after, mode);
        expect_bytes(c.slot[SLOT_LIST_PROB].mem, want.list_prob, c.slot[SLOT_LIST_PROB].bytes);
        expect_bytes(c.slot[SLOT_LIST_TOKEN].mem, want.list_token, c.slot[SLOT_LIST_TOKEN].bytes);
        expect_bytes(c.slot[SLOT_TOKEN].mem, want.token, c.slot[SLOT_TOKEN].bytes);
        expect_bytes(c.slot[SLOT_LOGPROB].mem, want.logprob, c.slot[SLOT_LOGPROB].bytes);
        sample_want_free(&want);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* One context, shapes growing and shrinking: nothing of a call is left in the next. */
static void context_is_reused(void **state)
{
    (void)state;
    static const size_t order[] = {6, 4, 0, 6, 1, 5, 3, 2, 4};
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(order); i++) {
        struct sample_case c;
        open_shape(&c, &shapes[order[i]]);
        sample_check(&c, ctx, NULL, shapes[order[i]].name);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* The query's byte count is enough, to the byte, and what was lent is not exceeded. */
static void lent_workspace(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        struct sample_case c;
        sy_query query = {0};
        open_shape(&c, &shapes[i]);
        expect_status(ctx, sy_sample_query(ctx, &c.args, &query), SY_OK);
        assert_int_equal(query.rows, shapes[i].batch);
        void *memory = buf_new(query.workspace_bytes, 0);
        if (query.workspace_bytes)
            assert_int_equal(sy_ctx_set_workspace(ctx, memory, query.workspace_bytes), SY_OK);
        sample_check(&c, ctx, NULL, shapes[i].name);
        assert_int_equal(sy_ctx_set_workspace(ctx, NULL, 0), SY_OK);
        buf_free(memory);
        sample_close(&c);
    }
    sy_ctx_destroy(ctx);
}

/* A query wants neither data nor outputs, and writes nothing. */
static void query_without_data(void **state)
{
    (void)state;
    struct sample_case c;
    sy_query query = {0};
    sy_ctx *ctx = test_ctx(1, NULL);
    open_mixed(&c, SY_BF16, 7, 20, NULL);
    c.slot[SLOT_LOGITS].t.data = c.slot[SLOT_TOP_K].t.data = c.slot[SLOT_TOP_P].t.data = NULL;
    c.slot[SLOT_MIN_P].t.data = NULL;
    expect_status(ctx, sy_sample_query(ctx, &c.args, &query), SY_OK);
    assert_int_equal(query.rows, 7);
    assert_int_equal(query.slots, 0);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* No rows: success; the pointers of empty tensors may be NULL. */
static void no_rows(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(2, NULL);
    sample_open(&c, SY_F16, 0, 10, NULL);
    sample_add_rows(&c, SLOT_TOP_K, SY_I32, ROWS_B);
    sample_add_q(&c, NULL);
    c.args.logprob_mode = SY_LOGPROB_RAW;
    sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
    for (int s = 0; s < SLOT_COUNT; s++)
        c.slot[s].t.data = NULL;
    expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* A caller built when the struct ended before logprob: the missing field is its default. */
static void shorter_struct(void **state)
{
    (void)state;
    struct sample_case c;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_mixed(&c, SY_F32, 3, 20, NULL);
    sample_add_outputs(&c, SLOTS_ALL_OUTPUTS, NULL);
    unsigned char *before = tensor_snapshot(&c.slot[SLOT_LOGPROB]);
    expect_status(ctx, sy_sample_n(ctx, &c.args, offsetof(sy_sample_args, logprob)), SY_OK);
    tensor_expect_unchanged(&c.slot[SLOT_LOGPROB], before, "logprob");
    struct sample_want want;
    sample_want_make(&c, &want, NULL);
    expect_bytes(c.slot[SLOT_TOKEN].mem, want.token, c.slot[SLOT_TOKEN].bytes);
    sample_want_free(&want);
    free(before);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

/* A success clears the sentence and the fault of the rejection before it. */
static void success_clears_the_error(void **state)
{
    (void)state;
    struct sample_case c;
    sy_fault fault;
    sy_ctx *ctx = test_ctx(1, NULL);
    open_mixed(&c, SY_F32, 3, 20, NULL);
    sample_add_outputs(&c, SLOTS_NO_LOGPROB, NULL);
    c.args.eps = -1;
    expect_status(ctx, sy_sample(ctx, &c.args), SY_ERR_VALUE);
    assert_true(sy_ctx_error(ctx)[0] != 0);
    c.args.eps = 0;
    expect_status(ctx, sy_sample(ctx, &c.args), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
    assert_int_equal(fault.code, SY_FAULT_NONE);
    sample_close(&c);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static const bool off = false, on = true;
    static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    static const char *const mode_names[] = {"upward", "downward", "toward zero"};
    static enum sample_slot outputs[SLOT_COUNT];
    static size_t indices[COUNT_OF(layouts)];
    struct test_list list = {0};
    for (int s = SLOT_FIRST_OUTPUT; s <= SLOT_LOGPROB; s++) {
        outputs[s] = (enum sample_slot)s;
        test_add(&list, test_name("%s alone", sample_slot_name(outputs[s])), output_alone, &outputs[s]);
    }
    for (size_t i = 0; i < COUNT_OF(layouts); i++) {
        indices[i] = i;
        test_add(&list, test_name("layout: %s", layouts[i].name), layout_of_rows, &indices[i]);
    }
    test_add(&list, "in place, the same tensor", in_place, (void *)(uintptr_t)&on);
    test_add(&list, "in place, an equal tensor", in_place, (void *)(uintptr_t)&off);
    test_add(&list, "one row, any stride", one_row_any_stride, NULL);
    test_add(&list, "inputs overlap", inputs_overlap, NULL);
    for (size_t i = 0; i < COUNT_OF(shapes); i++)
        test_add(&list, test_name("threads agree: %s", shapes[i].name), threads_agree,
                 (void *)(uintptr_t)&shapes[i]);
    test_add(&list, "the caller's pool, backwards", callers_pool, NULL);
    for (size_t i = 0; i < COUNT_OF(modes); i++)
        test_add(&list, test_name("rounding mode %s", mode_names[i]), rounding_mode,
                 (void *)(uintptr_t)&modes[i]);
    test_add(&list, "context is reused", context_is_reused, NULL);
    test_add(&list, "lent workspace of the queried size", lent_workspace, NULL);
    test_add(&list, "query without data", query_without_data, NULL);
    test_add(&list, "B = 0, NULL data", no_rows, NULL);
    test_add(&list, "shorter argument struct", shorter_struct, NULL);
    test_add(&list, "success clears the error", success_clears_the_error, NULL);
    return test_run(&list, "sample_outputs");
}
