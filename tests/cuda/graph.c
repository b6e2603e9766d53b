/*
 * Calls captured into CUDA graphs: nothing runs at the capture, every replay reads the contents of its time, and both results
 * and faults are those of the oracles. On the device of SWITCHYARD_TEST_CUDA_LIBRARY, or of the library that is found: a capture
 * itself rejects what allocates or waits, and the emulator counts it in other calls, too.
 */
#include "case/case.h"
#include "support.h"

#include "cuda/cuda.h"

#include <pthread.h>

static bool is_emulated(void)
{
    return emulated("emulator_slow_calls") != NULL;
}

/* ---- Calls in memory of the device ---- */

/* A call of a case, and what its tensors are in: a block of the device for each one that the case has in CPU memory. */
struct moved {
    struct call *c;
    void *block[CASE_OPERANDS];
};

/* The tensors of a call that is like this one are in its memory. */
static void point(const struct moved *m, struct call *c)
{
    for (int i = 0; i < c->n_operands; i++) {
        struct operand *const x = &c->operand[i];
        if (x->given)
            x->t.data = (unsigned char *)m->block[i] + ((unsigned char *)x->t.data - x->block);
        x->t.device = (DLDevice){kDLCUDA, 0};
    }
}

static void copy(sy_ctx *ctx, const struct moved *m, struct call *c, bool back)
{
    for (int i = 0; i < c->n_operands; i++) {
        void *const here = c->operand[i].block, *const there = m->block[i];
        if (c->operand[i].given)
            expect_status(
                ctx, sy_device_copy(ctx, back ? here : there, back ? there : here, c->operand[i].block_bytes),
                SY_OK);
    }
}

static void move(sy_ctx *ctx, struct moved *m, struct call *c)
{
    *m = (struct moved){.c = c};
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].given)
            expect_status(ctx, sy_device_alloc(ctx, c->operand[i].block_bytes, &m->block[i]), SY_OK);
    point(m, c);
    copy(ctx, m, c, false);
}

static void give_back(sy_ctx *ctx, struct moved *m)
{
    for (int i = 0; i < m->c->n_operands; i++)
        sy_device_free(ctx, m->block[i]);
    case_delete(m->c);
}

/* ---- A decode step ---- */

/* Route, permute and back, store rows in a cache, select some, gather from it, sample, verify drafts: lines of the cases, with contents
   of any seed. The words make some contents wrong. */
enum { STEP = 8 };
static const struct {
    const char *op, *line, *wrong; /* line: NULL, `small` of the case */
} step[STEP] = {
    {.op = "moe_route"},
    {.op = "moe_permute"},
    {.op = "moe_unpermute"},
    {.op = "kv_scatter", .wrong = " faults=3"},
    {"kv_select", "f32 i32 requests=3 Q=2 N=9 k=4 table S=4 blocks=6 n=4 lengths indices slots count",
     " faults=3"},
    {.op = "kv_gather", .wrong = " faults=3"},
    {"sample",
     "f32 B=2 V=40 M=4 overridden logprob_mode=final top token kept logprob top_token top_k "
     "form:top_k=1 top_p form:top_p=1 seed form:seed=1",
     " wrong"},
    {"sample_verify",
     "B=2 R=3 V=8 parent logprob_mode=raw token path count logprob rank temperature seed form:seed=1",
     " wrong"}};

/* Cases are made and compared by one thread at a time. */
static pthread_mutex_t cases;

/* A step on the device. */
struct mirror {
    sy_ctx *ctx;
    struct moved of[STEP];
    void *graph;
};

static struct call *case_of_step(int i, const char *words, uint64_t seed)
{
    const struct op_case *const op = all_cases[sy_op_find(step[i].op)->number];
    char line[1000];
    snprintf(line, sizeof line, "%s%s", step[i].line != NULL ? step[i].line : op->small, words);
    return case_of_line(op, line, seed);
}

static void mirror_open(struct mirror *w)
{
    *w = (struct mirror){.ctx = device_ctx(0)};
    pthread_mutex_init(&cases, NULL); /* a test that failed may have kept it */
    for (int i = 0; i < STEP; i++)
        move(w->ctx, &w->of[i], case_of_step(i, "", 0));
}

static sy_status run(struct mirror *w)
{
    sy_status st = SY_OK;
    for (int i = 0; i < STEP && st == SY_OK; i++)
        st = call_run(w->of[i].c, w->ctx);
    return st;
}

static void mirror_capture(struct mirror *w)
{
    expect_status(w->ctx, syi_capture_begin(w->ctx), SY_OK);
    const sy_status st = run(w);
    char sentence[300];
    snprintf(sentence, sizeof sentence, "%s", sy_ctx_error(w->ctx));
    expect_status(w->ctx, syi_capture_end(w->ctx, &w->graph), SY_OK);
    if (st != SY_OK)
        fail_msg("%s", sentence);
}

static void mirror_close(struct mirror *w)
{
    if (w->graph != NULL)
        syi_graph_free(w->ctx, w->graph);
    for (int i = 0; i < STEP; i++)
        give_back(w->ctx, &w->of[i]);
    sy_ctx_destroy(w->ctx);
}

static bool same_sizes(const struct call *a, const struct call *b)
{
    bool same = true;
    for (int i = 0; i < a->n_operands; i++)
        same = same && a->operand[i].block_bytes == b->operand[i].block_bytes;
    return same;
}

/* Call i with new contents, in memory of the device: the first that are as many, and wrong or not. */
static struct call *new_contents(struct mirror *w, int i, uint64_t seed, bool wrong)
{
    const char *const words = wrong ? step[i].wrong : "";
    struct call *c = case_of_step(i, words, seed);
    while ((c->want.status != SY_OK) != wrong || !same_sizes(c, w->of[i].c)) {
        case_delete(c);
        c = case_of_step(i, words, seed += 1000000);
    }
    point(&w->of[i], c);
    return c;
}

/* What the device said is what the CPU says of this call, as its oracle does. */
static void expect_sentence(const struct call *rejected, sy_status status, const char *sentence)
{
    sy_ctx *const cpu = test_ctx(1, NULL);
    struct call *const c = case_of_line(rejected->op, rejected->in->text, rejected->in->seed);
    call_check(c, cpu, call_run(c, cpu));
    expect_status(cpu, call_run(c, cpu), status);
    if (strcmp(sentence, sy_ctx_error(cpu)) != 0)
        fail_msg("'%s', on the CPU '%s'", sentence, sy_ctx_error(cpu));
    case_delete(c);
    sy_ctx_destroy(cpu);
}

/* A step with new contents has the results of the oracles; up to call `wrong`, whose contents are rejected (STEP: none). */
static void agree(struct mirror *w, uint64_t seed, int wrong)
{
    struct call *now[STEP];
    char sentence[512];
    pthread_mutex_lock(&cases);
    for (int i = 0; i < STEP; i++)
        now[i] = new_contents(w, i, seed, i == wrong);
    pthread_mutex_unlock(&cases);
    for (int i = 0; i < STEP; i++)
        copy(w->ctx, &w->of[i], now[i], false);
    sy_status st = w->graph != NULL ? syi_replay(w->ctx, w->graph, 1, NULL) : run(w);
    if (st == SY_OK)
        st = sy_ctx_sync(w->ctx);
    snprintf(sentence, sizeof sentence, "%s", sy_ctx_error(w->ctx));
    for (int i = 0; i < STEP; i++)
        copy(w->ctx, &w->of[i], now[i], true);
    pthread_mutex_lock(&cases);
    if (wrong < STEP)
        expect_sentence(now[wrong], st, sentence);
    else
        expect_status(w->ctx, st, SY_OK);
    for (int i = 0; i < STEP; i++) {
        if (i < wrong)
            call_check(now[i], w->ctx, SY_OK);
        else
            call_untouched(now[i], w->ctx);
        case_delete(now[i]);
    }
    pthread_mutex_unlock(&cases);
}

/* A fifth of them with bad contents, so that most faults are between good replays. */
static void many(struct mirror *w, uint64_t seed, int n)
{
    for (uint64_t i = 0; i < (uint64_t)n; i++)
        agree(w, seed * 1000 + i, i % 5 == 3 ? 3 + (int)(i / 5 % 4) : STEP);
}

static int replays(void)
{
    return is_emulated() ? 40 : 1000;
}

TEST(replays_have_the_results_of_the_oracles)
{
    struct mirror w;
    float milliseconds = -1;
    mirror_open(&w);
    for (int i = 0; i < 3; i++) /* not captured; scratch memory grows here */
        agree(&w, (uint64_t)i, i == 1 ? 5 : STEP);
    mirror_capture(&w);
    many(&w, 2, replays());
    expect_status(w.ctx, syi_replay(w.ctx, w.graph, 3, &milliseconds), SY_OK);
    assert_true(milliseconds > 0);
    expect_status(w.ctx, sy_ctx_sync(w.ctx), SY_OK);
    mirror_close(&w);
}

static void *work(void *data)
{
    struct mirror *const w = data;
    many(w, (uint64_t)(uintptr_t)w->graph, replays() / 2);
    return NULL;
}

/* Every thread has a context, a stream and a graph, and contents of its own. */
TEST(contexts_work_at_the_same_time)
{
    struct mirror w[2];
    pthread_t thread[2];
    void (*const end_test)(void) = case_end_test;
    for (int i = 0; i < 2; i++) {
        mirror_open(&w[i]);
        expect_status(w[i].ctx, syi_own_stream(w[i].ctx), SY_OK);
        agree(&w[i], 3, STEP);
        mirror_capture(&w[i]);
    }
    case_end_test = NULL; /* a wrong result in another thread ends the program */
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    case_end_test = end_test;
    for (int i = 0; i < 2; i++)
        mirror_close(&w[i]);
}

/* ---- Every operator ---- */

/* state: the index of a call. It runs once; later ones take no memory and wait for nothing, so they can be captured. */
static void an_operator_can_be_captured(void **state)
{
    sy_ctx *ctx = device_ctx(0);
    struct moved m;
    void *graph = NULL;
    move(ctx, &m, case_new((int)(uintptr_t)*state, false));
    expect_status(ctx, call_run(m.c, ctx), SY_OK);
    copy(ctx, &m, m.c, false);
    const unsigned long before = emulator_count("emulator_slow_calls");
    assert_true(before > 0 || !is_emulated());
    expect_status(ctx, call_run(m.c, ctx), SY_OK);
    assert_int_equal(emulator_count("emulator_slow_calls"), before);
    expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
    copy(ctx, &m, m.c, false);
    expect_status(ctx, syi_capture_begin(ctx), SY_OK);
    const sy_status st = call_run(m.c, ctx);
    expect_status(ctx, syi_capture_end(ctx, &graph), SY_OK);
    assert_int_equal(st, SY_OK);
    expect_status(ctx, syi_replay(ctx, graph, 1, NULL), SY_OK);
    expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
    copy(ctx, &m, m.c, true);
    call_check(m.c, ctx, SY_OK);
    syi_graph_free(ctx, graph);
    give_back(ctx, &m);
    sy_ctx_destroy(ctx);
}

/* After a fault in the same graph an operator writes nothing, whatever its scratch memory holds: its first kernels may have
   left it as it was. */
static void an_operator_is_skipped_after_a_fault(void **state)
{
    sy_ctx *ctx = device_ctx(0);
    struct moved m, wrong;
    sy_query query;
    void *graph = NULL, *scratch;
    struct call *const scatter = case_new(sy_op_find("kv_scatter")->number, false);
    call_change(scatter, "slots.data[0]=-1");
    move(ctx, &wrong, scatter);
    move(ctx, &m, case_new((int)(uintptr_t)*state, false));
    expect_status(ctx, op_query(m.c, ctx, call_bind(m.c), m.c->info->args_bytes, &query), SY_OK);
    const size_t bytes = query.workspace_bytes > 4096 ? query.workspace_bytes : 4096;
    unsigned char *const garbage = malloc(bytes);
    uint64_t rng = (uint64_t)(uintptr_t)*state;
    rng_fill(&rng, garbage, bytes);
    expect_status(ctx, sy_device_alloc(ctx, bytes, &scratch), SY_OK);
    expect_status(ctx, sy_device_copy(ctx, scratch, garbage, bytes), SY_OK);
    expect_status(ctx, sy_ctx_set_workspace(ctx, scratch, bytes), SY_OK);
    expect_status(ctx, syi_capture_begin(ctx), SY_OK);
    const sy_status bad = call_run(scatter, ctx), st = call_run(m.c, ctx);
    expect_status(ctx, syi_capture_end(ctx, &graph), SY_OK);
    assert_true(bad == SY_OK && st == SY_OK);
    for (int i = 0; i < 2; i++) {
        expect_status(ctx, syi_replay(ctx, graph, 1, NULL), SY_OK);
        expect_status(ctx, sy_ctx_sync(ctx), SY_ERR_INDEX);
        assert_int_equal(strncmp(sy_ctx_error(ctx), "kv_scatter: slots at position 0 is -1", 37), 0);
    }
    copy(ctx, &m, m.c, true);
    call_untouched(m.c, ctx);
    syi_graph_free(ctx, graph);
    give_back(ctx, &m);
    give_back(ctx, &wrong);
    sy_device_free(ctx, scratch);
    free(garbage);
    sy_ctx_destroy(ctx);
}

/* A call that needs more scratch memory than a decode step. */
static void make_large(sy_ctx *ctx, struct moved *large)
{
    move(ctx, large, case_new(sy_op_find("kv_scatter")->number, true));
}

/* A larger call after a capture takes other memory than the graph uses, which stays. */
TEST(a_graph_keeps_its_scratch_memory)
{
    struct mirror w;
    struct moved large;
    mirror_open(&w);
    agree(&w, 6, STEP);
    mirror_capture(&w);
    make_large(w.ctx, &large);
    const unsigned long before = emulator_count("emulator_slow_calls");
    expect_status(w.ctx, call_run(large.c, w.ctx), SY_OK);
    assert_int_equal(
        emulator_count("emulator_slow_calls"),
        before + (is_emulated() ? 2 : 0)); /* memory is taken, with a note of the old, and none given back */
    many(&w, 7, 3);
    give_back(w.ctx, &large);
    mirror_close(&w);
}

/* The first call of a shape may be captured, and a context may be made during a capture. */
TEST(a_capture_may_take_memory)
{
    struct mirror w;
    struct moved large;
    mirror_open(&w);
    agree(&w, 8, STEP);
    make_large(w.ctx, &large);
    expect_status(w.ctx, syi_capture_begin(w.ctx), SY_OK);
    const sy_status first = call_run(large.c, w.ctx), st = run(&w);
    sy_ctx *const made = device_ctx(0);
    expect_status(w.ctx, syi_capture_end(w.ctx, &w.graph), SY_OK);
    assert_int_equal(first, SY_OK);
    assert_int_equal(st, SY_OK);
    sy_ctx_destroy(made);
    many(&w, 9, 3);
    expect_status(w.ctx, sy_ctx_sync(w.ctx), SY_OK);
    give_back(w.ctx, &large);
    mirror_close(&w);
}

/* Waiting or allocating fails, and the context works afterwards. */
TEST(a_capture_does_not_wait)
{
    struct mirror w;
    void *memory = &w;
    mirror_open(&w);
    agree(&w, 4, STEP);
    for (int i = 0; i < 2; i++) {
        expect_status(w.ctx, syi_capture_begin(w.ctx), SY_OK);
        expect_status(w.ctx, run(&w), SY_OK);
        assert_int_equal(i == 0 ? sy_ctx_sync(w.ctx) : sy_device_alloc(w.ctx, 64, &memory),
                         i == 0 ? SY_ERR_DEVICE : SY_ERR_NOMEM);
        assert_int_equal(syi_capture_end(w.ctx, &w.graph), SY_ERR_DEVICE);
        assert_null(w.graph);
        assert_int_equal(strncmp(sy_ctx_error(w.ctx), "capture: stream was not captured: ", 34), 0);
        agree(&w, 4, i == 0 ? 3 : STEP);
    }
    mirror_capture(&w);
    many(&w, 5, 3);
    mirror_close(&w);
}

TEST_GROUP(graph)
{
    unsetenv("SWITCHYARD_TEST_DEVICE"); /* contexts and tensors are made for the device here */
    for (uintptr_t i = 0; i < TEST_CALLS; i++) {
        const char *const name = all_cases[i]->name;
        if (strcmp(name, "moe_place") == 0 || strcmp(name, "kv_select") == 0) /* they have no kernels */
            continue;
        test_add(&own_tests, test_name("%s can be captured", name), an_operator_can_be_captured, (void *)i);
        test_add(&own_tests, test_name("%s is skipped after a fault", name),
                 an_operator_is_skipped_after_a_fault, (void *)i);
    }
    return test_run(&own_tests, "cuda_graph");
}
