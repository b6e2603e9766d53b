/*
 * Contexts and threads: equal bytes for the caller's own pool, contexts in several threads at once, a forked child, no
 * allocation on a warm path, floating-point control of the caller. Small calls are split over all threads; tests/case has
 * every thread count and kernel table.
 */
#define _POSIX_C_SOURCE 200809L
#include "case/case.h"
#include "support.h"
#include "support_memory.h"

#include <fenv.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* A small call in the given context: with the result of the oracle. */
static void run_and_check(sy_ctx *ctx, int index)
{
    struct call *const c = case_new(index, false);
    call_check(c, ctx, call_run(c, ctx));
    case_delete(c);
}

/* ---- The caller's pool ---- */

struct pool {
    int runs, most_tasks;
};

static void backwards(void *user, int n_tasks, void (*task)(void *task_data, int index), void *task_data)
{
    struct pool *pool = user;
    pool->runs++;
    pool->most_tasks = n_tasks > pool->most_tasks ? n_tasks : pool->most_tasks;
    for (int i = n_tasks - 1; i >= 0; i--)
        task(task_data, i);
}

struct share {
    pthread_t thread;
    int first, step, n_tasks;
    void (*task)(void *task_data, int index);
    void *task_data;
};

static void *work(void *argument)
{
    const struct share *s = argument;
    for (int i = s->first; i < s->n_tasks; i += s->step)
        s->task(s->task_data, i);
    return NULL;
}

static void four_threads(void *user, int n_tasks, void (*task)(void *task_data, int index), void *task_data)
{
    struct pool *pool = user;
    struct share shares[4];
    pool->runs++;
    pool->most_tasks = n_tasks > pool->most_tasks ? n_tasks : pool->most_tasks;
    for (int i = 0; i < 4; i++) {
        shares[i] =
            (struct share){.first = i, .step = 4, .n_tasks = n_tasks, .task = task, .task_data = task_data};
        if (pthread_create(&shares[i].thread, NULL, work, &shares[i]) != 0)
            abort();
    }
    for (int i = 0; i < 4; i++)
        pthread_join(shares[i].thread, NULL);
}

static int n_pooled; /* calls that used the pool */

static void callers_pool(int index, sy_parallel_for_fn parallel_for)
{
    struct pool pool = {0};
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {.threads = 4, .parallel_for = parallel_for, .parallel_user = &pool};
    assert_int_equal(sy_ctx_create(&ctx, &options), SY_OK);
    run_and_check(ctx, index);
    assert_true(pool.runs == 0 || pool.most_tasks > 1);
    n_pooled += pool.runs > 0;
    sy_ctx_destroy(ctx);
}

static void pool_in_reverse_order(void **state)
{
    callers_pool((int)(uintptr_t)*state, backwards);
}

static void pool_of_four_threads(void **state)
{
    callers_pool((int)(uintptr_t)*state, four_threads);
}

/* ---- Several contexts at once ---- */

struct worker {
    pthread_t thread;
    sy_ctx *ctx;
    struct call *call;
    sy_status status;
};

static void *call_often(void *argument)
{
    struct worker *w = argument;
    for (int i = 0; i < 20 && w->status == SY_OK; i++) {
        call_lay_out(w->call, 0, false);
        w->status = call_run(w->call, w->ctx);
    }
    return NULL;
}

/* Two threads with a context each, both running the same operator on their own data. */
static void two_contexts_in_two_threads(void **state)
{
    struct worker workers[2] = {0};
    for (int i = 0; i < 2; i++) {
        workers[i].ctx = test_ctx(2 - i, NULL);
        workers[i].call = case_new((int)(uintptr_t)*state, false);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, call_often, &workers[i]), 0);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    for (int i = 0; i < 2; i++) {
        call_check(workers[i].call, workers[i].ctx, workers[i].status);
        case_delete(workers[i].call);
        sy_ctx_destroy(workers[i].ctx);
    }
}

/* ---- A forked child ---- */

/*
 * The parent has used its threads; the child has one and must not wait for the others, whether it goes on with the
 * parent's context or makes its own. The alarm ends a hang.
 */
static void expect_child_finishes(bool own_context)
{
    sy_ctx *ctx = test_ctx(4, NULL);
    for (int i = 0; i < TEST_CALLS; i++) {
        run_and_check(ctx, i);
        fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            case_end_test = NULL; /* a wrong result ends the child */
            run_and_check(own_context ? test_ctx(4, NULL) : ctx, i);
            _exit(0);
        }
        int status = -1;
        assert_true(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("%s in a forked child: %s %d", all_cases[i]->name,
                     WIFSIGNALED(status) ? "ended by signal" : "exit status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    sy_ctx_destroy(ctx);
}

TEST(forked_child_finishes_with_the_parents_context)
{
    expect_child_finishes(false);
}

TEST(forked_child_finishes_with_its_own_context)
{
    expect_child_finishes(true);
}

/* ---- Allocation ---- */

/* The first call of a shape may allocate; the second may not, queries neither. */
static void warm_calls_allocate_nothing(void **state)
{
    const int index = (int)(uintptr_t)*state;
    struct allocator counter = {0};
    struct call *const call = case_new(index, true), *const small = case_new(index, false);
    sy_query query;
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {
        .threads = 3, .alloc = limited_alloc, .dealloc = limited_free, .alloc_user = &counter};
    assert_int_equal(sy_ctx_create(&ctx, &options), SY_OK);
    assert_true(counter.live > 0);
    expect_status(ctx, call_run(call, ctx), SY_OK);
    expect_status(ctx, call_run(small, ctx), SY_OK); /* it may have other options */
    const int warm = counter.calls;
    for (int i = 0; i < 3; i++) {
        expect_status(ctx, call_run(call, ctx), SY_OK);
        expect_status(ctx, call_run(small, ctx), SY_OK);
        expect_status(ctx, op_query(call, ctx, &call->args, call->info->args_bytes, &query), SY_OK);
    }
    assert_int_equal(counter.calls, warm);
    case_delete(call);
    case_delete(small);
    sy_ctx_destroy(ctx);
    assert_int_equal(counter.live, 0);
}

/* ---- Floating-point control ---- */

#if defined(__aarch64__)
static uint64_t control_get(void)
{
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    return word;
}

static void control_set(uint64_t word)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(word));
}

static const uint64_t control_flush = UINT64_C(1) << 24, control_all = UINT64_MAX;
#elif defined(__x86_64__)
static uint64_t control_get(void)
{
    return __builtin_ia32_stmxcsr();
}

static void control_set(uint64_t word)
{
    __builtin_ia32_ldmxcsr((unsigned)word);
}

static const uint64_t control_flush = 0x8040, control_all = 0xffc0; /* FTZ and DAZ; all but the flags */
#else
static uint64_t control_get(void)
{
    return 0;
}

static void control_set(uint64_t word)
{
    (void)word;
}

static const uint64_t control_flush = 0, control_all = 0;
#endif

/* The result does not depend on the caller's rounding mode, and the mode is the caller's again afterwards; alone and in a team. */
static void rounding_mode_is_ours_during_and_the_callers_after(void **state)
{
    const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    struct call *const c = case_new((int)(uintptr_t)*state, false);
    for (size_t m = 0; m < COUNT_OF(modes); m++)
        for (int threads = 1; threads <= 3; threads += 2) {
            sy_ctx *ctx = test_ctx(threads, NULL);
            call_lay_out(c, 0, false);
            fesetround(modes[m]);
            const uint64_t before = control_get();
            const sy_status status = call_run(c, ctx);
            const uint64_t after = control_get();
            fesetround(FE_TONEAREST);
            call_check(c, ctx, status);
            assert_true(((after ^ before) & control_all) == 0);
            sy_ctx_destroy(ctx);
        }
    case_delete(c);
}

/* Flush-to-zero as engines set it: subnormal products survive, and the bit is back afterwards. */
TEST(flush_to_zero_is_off_during_and_back_after)
{
    uint32_t input[4] = {0x00000003, 0x80400000, 0x00ffffff, 0x00000001}, dispatch[4];
    const uint32_t want[4] = {0x00000002, 0x80200000, 0x00800000, 0x00000000}; /* halves, ties to even */
    float gate[1] = {.5f};
    int32_t zero[1] = {0};
    int64_t one[] = {1}, row[] = {1, 4};
    const DLTensor gates = sy_tensor(gate, SY_F32, 1, one), at = sy_tensor(zero, SY_I32, 1, one),
                   x = sy_tensor(input, SY_F32, 2, row), d = sy_tensor(dispatch, SY_F32, 2, row);
    const sy_moe_dispatch_args args = {.gates = &gates,
                                       .indices = &at,
                                       .locations = &at,
                                       .input = &x,
                                       .num_experts = 1,
                                       .capacity = 1,
                                       .dispatch = &d};
    sy_ctx *ctx = test_ctx(1, NULL);
    const uint64_t before = control_get();
    control_set(before | control_flush);
    const sy_status status = sy_moe_dispatch(ctx, &args);
    const uint64_t after = control_get();
    control_set(before);
    expect_status(ctx, status, SY_OK);
    assert_true(((after ^ (before | control_flush)) & control_all) == 0);
    expect_bytes(dispatch, want, sizeof want);
    sy_ctx_destroy(ctx);
}

/* Two tests of each operator have counted; a few operators are never split. */
static void most_operators_use_the_pool(__attribute__((unused)) void **state)
{
    assert_true(n_pooled >= 2 * (TEST_CALLS - 6));
}

TEST_GROUP(ctx_threads)
{
    case_split = true;
    for (uintptr_t i = 0; i < TEST_CALLS; i++) {
        const char *name = all_cases[i]->name;
        test_add(&own_tests, test_name("%s in a pool in reverse order", name), pool_in_reverse_order,
                 (void *)i);
        test_add(&own_tests, test_name("%s in a pool of four threads", name), pool_of_four_threads,
                 (void *)i);
        test_add(&own_tests, test_name("%s in two contexts at once", name), two_contexts_in_two_threads,
                 (void *)i);
        test_add(&own_tests, test_name("%s allocates nothing when warm", name), warm_calls_allocate_nothing,
                 (void *)i);
        test_add(&own_tests, test_name("%s under every rounding mode", name),
                 rounding_mode_is_ours_during_and_the_callers_after, (void *)i);
    }
    TEST_ADD(&own_tests, most_operators_use_the_pool); /* of the tests before it */
    return test_run(&own_tests, "op_ctx_threads");
}
