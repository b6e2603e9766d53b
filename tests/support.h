/*
 * What the C tests share: a context that fails the test when it cannot be made, seeded random numbers,
 * guarded output buffers, tensors, exact conversions, tables of tests. Nothing here includes or
 * repeats library code.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <switchyard_describe.h>

#include "call_args.h"
#include "groups.h"
#include "oracle/numbers.h"
#include "oracle/random.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Ends the test as skipped; scripts/run_tests.py reports the reason. */
#define skip_because(reason) \
    do { \
        print_message("# because: " reason "\n"); \
        skip(); \
    } while (0)

/* Whether this is `make test-all`; how often a random test repeats: `full` times there, a tenth of that under `make test`. */
bool test_full(void);
/* Whether part i of a long list is run: every third under `make test`, the others in what `make test-all` adds. */
bool test_third(size_t i);
int test_rounds(int full);

/* A context with `threads` threads (0: default) and the named kernel table (NULL: best). */
sy_ctx *test_ctx(int threads, const char *isa);

bool test_on_device(void);            /* whether calls go to a CUDA device (device.c) */
sy_ctx *device_ctx(int ordinal);      /* on a CUDA device, wherever calls go; or the test is skipped */
void *emulated(const char *function); /* a function of the emulator; NULL: the device is a real one */
unsigned long emulator_count(const char *what); /* a counter of the emulator; 0 */
void test_lend_what_is_asked(void); /* there, from now on: no more workspace than the query of a call says */

/* Fails the test with the context's sentence when `status` is not `want`. */
#define expect_status(ctx, status, want) test_expect_status((ctx), (status), (want), __FILE__, __LINE__)
void test_expect_status(sy_ctx *ctx, sy_status status, sy_status want, const char *file, int line);

/* Fails unless the context's fault has this code, batch, position, value and limit. */
#define expect_fault(ctx, code, batch, position, value, limit) \
    test_expect_fault((ctx), (code), (batch), (position), (value), (limit), __FILE__, __LINE__)
void test_expect_fault(sy_ctx *ctx, sy_fault_code code, int64_t batch, int64_t position, int64_t value,
                       int64_t limit, const char *file, int line);

/*
 * `bytes` of memory filled with 0xA5 between two guard zones; buf_check fails the test when a guard byte
 * changed, buf_free checks and frees. The pointer is aligned to 64 bytes plus `misalign`. Under
 * AddressSanitizer the guard zones are poisoned, so that even a read outside is found.
 */
void *buf_new(size_t bytes, size_t misalign);
void buf_check(const void *data);
void buf_free(void *data);

/* Fails with the first differing byte. */
#define expect_bytes(got, want, n) test_expect_bytes((got), (want), (n), __FILE__, __LINE__)
void test_expect_bytes(const void *got, const void *want, size_t n, const char *file, int line);

/* Tests made from tables: append to a list, then run it as one group, or with the contexts of the cases. */
struct test_list {
    struct CMUnitTest *tests;
    size_t count, room;
};
void test_add(struct test_list *list, const char *name, CMUnitTestFunction run, void *state);
#define TEST_ADD(list, test) test_add((list), #test, (test), NULL) /* under its own name, without a state */
int test_run(struct test_list *list, const char *group);
int test_run_in_contexts(struct test_list *list, const char *group);

/* TEST(name) begins a test without a state, which is in this list before the group of its file begins. */
static struct test_list own_tests __attribute__((unused));
#define TEST(name) \
    static void name(void **state); \
    __attribute__((constructor)) static void add_##name(void) \
    { \
        TEST_ADD(&own_tests, name); \
    } \
    static void name(__attribute__((unused)) void **state)

/* The group of a file whose tests are all in it. */
#define TESTS(name, title) \
    TEST_GROUP(name) \
    { \
        return test_run(&own_tests, title); \
    }
#define TESTS_IN_CONTEXTS(name, title) \
    TEST_GROUP(name) \
    { \
        return test_run_in_contexts(&own_tests, title); \
    }

/* A heap string for test names; kept until the process ends. */
char *test_name(const char *format, ...) __attribute__((format(printf, 1, 2)));
