/*
 * The few functions of cmocka that tests/examples/run.c needs, for targets without that library (musl, RISC-V): a test that fails ends
 * by longjmp, and the program with 1. The header is that of cmocka. musl has no functions of ucontext.h either, with which
 * tests/case/stack.c changes to a small stack: there the work is done on the usual one, and the stack is not measured.
 */
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifndef __GLIBC__
#include <ucontext.h>

static void (*work)(void);

int getcontext(ucontext_t *context)
{
    (void)context;
    return 0;
}

void makecontext(ucontext_t *context, void (*fn)(void), int n, ...)
{
    (void)context, (void)n;
    work = fn;
}

int swapcontext(ucontext_t *from, const ucontext_t *to)
{
    (void)from, (void)to;
    work();
    return 0;
}
#endif

static jmp_buf failed;
static const char *filter = "*";

void cmocka_set_test_filter(const char *pattern)
{
    filter = pattern;
}

void print_error(const char *const format, ...)
{
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
}

void _fail(const char *const file, const int line)
{
    print_error("%s:%d: failed\n", file, line);
    longjmp(failed, 1);
}

void _assert_true(const LargestIntegralType result, const char *const expression, const char *const file,
                  const int line)
{
    if (!result) {
        print_error("%s\n", expression);
        _fail(file, line);
    }
}

void _assert_int_equal(const LargestIntegralType a, const LargestIntegralType b, const char *const file,
                       const int line)
{
    _assert_true(a == b, "equal numbers", file, line);
}

void _assert_int_not_equal(const LargestIntegralType a, const LargestIntegralType b, const char *const file,
                           const int line)
{
    _assert_true(a != b, "different numbers", file, line);
}

void _assert_memory_equal(const void *const a, const void *const b, const size_t size, const char *const file,
                          const int line)
{
    _assert_true(memcmp(a, b, size) == 0, "equal bytes", file, line);
}

int _cmocka_run_group_tests(const char *group_name, const struct CMUnitTest *const tests,
                            const size_t num_tests, CMFixtureFunction group_setup,
                            CMFixtureFunction group_teardown)
{
    volatile int n_failed = 0, n_run = 0;
    void *group = NULL;
    if (group_setup != NULL && group_setup(&group) != 0)
        return 1;
    for (volatile size_t i = 0; i < num_tests; i++) {
        void *state = tests[i].initial_state != NULL ? tests[i].initial_state : group;
        if (fnmatch(filter, tests[i].name, 0) != 0)
            continue;
        n_run++;
        if (setjmp(failed) == 0) {
            if (tests[i].setup_func != NULL && tests[i].setup_func(&state) != 0)
                _fail(tests[i].name, 0);
            tests[i].test_func(&state);
            if (tests[i].teardown_func != NULL)
                tests[i].teardown_func(&state);
        } else {
            print_error("failed: %s\n", tests[i].name);
            n_failed++;
        }
    }
    if (group_teardown != NULL)
        group_teardown(&group);
    printf("%s: %d run, %d failed\n", group_name, n_run, n_failed);
    return n_run == 0 || n_failed != 0;
}
