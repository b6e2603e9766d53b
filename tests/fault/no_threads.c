/*
 * Threads that cannot be started: pthread_create is replaced by one that fails after some successes. Calls and
 * sy_ctx_parallel run on the threads there are, with the same results.
 */
#include "case/case.h"
#include "support.h"
#include "wrapped.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4 };

static int allowed, attempts;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
WRAPPED(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
        void *data)
{
    attempts++;
    return allowed-- > 0 ? __real_pthread_create(thread, attributes, run, data) : EAGAIN;
}
/* NOLINTEND(bugprone-reserved-identifier) */

struct ran {
    pthread_t by[THREADS];
    atomic_int times[THREADS];
};

static void note(void *data, int index)
{
    struct ran *ran = data;
    ran->by[index] = pthread_self();
    atomic_fetch_add(&ran->times[index], 1);
}

static int different(const struct ran *ran)
{
    int n = 0;
    for (int i = 0; i < THREADS; i++) {
        bool seen = false;
        for (int before = 0; before < i; before++)
            seen = seen || pthread_equal(ran->by[before], ran->by[i]) != 0;
        n += seen ? 0 : 1;
    }
    return n;
}

TEST(tasks_run_on_the_threads_there_are)
{
    for (int started = 0; started < THREADS; started++) {
        sy_ctx *const ctx = test_ctx(THREADS, NULL);
        struct ran ran = {0};
        allowed = started;
        attempts = 0;
        for (int round = 1; round <= 3; round++) {
            assert_int_equal(sy_ctx_parallel(ctx, THREADS, note, &ran), SY_OK);
            for (int i = 0; i < THREADS; i++)
                assert_int_equal(ran.times[i], round);
            assert_int_equal(different(&ran), started + 1);
        }
        assert_int_equal(attempts, started < THREADS - 1 ? started + 1 : started); /* one refusal is enough */
        sy_ctx_destroy(ctx);
    }
    allowed = INT_MAX;
}

TEST(calls_return_the_same)
{
    struct call *const call = case_new(0, true);
    for (int started = 0; started < THREADS; started++) {
        sy_ctx *const ctx = test_ctx(THREADS, NULL);
        allowed = started;
        call_lay_out(call, 0, false);
        call_check(call, ctx, call_run(call, ctx));
        sy_ctx_destroy(ctx);
    }
    allowed = INT_MAX;
    case_delete(call);
}

TEST(wrong_arguments)
{
    sy_ctx *const ctx = test_ctx(THREADS, NULL);
    struct ran ran = {0};
    assert_int_equal(sy_ctx_parallel(NULL, 1, note, &ran), SY_ERR_NULL);
    assert_int_equal(sy_ctx_parallel(ctx, 1, NULL, &ran), SY_ERR_NULL);
    assert_string_equal(sy_ctx_error(ctx), "sy_ctx_parallel: task is NULL, want a function");
    assert_int_equal(sy_ctx_parallel(ctx, THREADS + 1, note, &ran), SY_ERR_VALUE);
    assert_string_equal(sy_ctx_error(ctx),
                        "sy_ctx_parallel: n_tasks is 5, want 0 to 4, the threads of the context");
    assert_int_equal(sy_ctx_parallel(ctx, -1, note, &ran), SY_ERR_VALUE);
    assert_int_equal(sy_ctx_parallel(ctx, 0, note, &ran), SY_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(ran.times[i], 0);
    sy_ctx_destroy(ctx);
}

TESTS(no_threads, "fault_no_threads")
