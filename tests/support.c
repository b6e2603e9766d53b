/*
 * The shared part of the C tests.
 */
#include "support.h"

#include "case/case.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region((p), (n))
#define UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

/* ---- Contexts and statuses ---- */

sy_ctx *test_ctx(int threads, const char *isa)
{
    char error[256] = "";
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {
        .isa = isa, .threads = threads, .error = error, .error_bytes = sizeof error};
    const sy_status status = sy_ctx_create(&ctx, &options);
    if (status != SY_OK || ctx == NULL)
        fail_msg("no context: %s: %s", sy_status_name(status), error);
    return ctx;
}

bool test_full(void)
{
    return tests_are("full") || tests_are("more");
}

bool test_third(size_t i)
{
    return tests_are("full") || (i % 3 == 0) != tests_are("more");
}

int test_rounds(int full)
{
    return test_full() ? full : (full + 9) / 10;
}

void test_expect_status(sy_ctx *ctx, sy_status status, sy_status want, const char *file, int line)
{
    if (status == want)
        return;
    print_error("%s, want %s: \"%s\"\n", sy_status_name(status), sy_status_name(want),
                ctx ? sy_ctx_error(ctx) : "");
    _fail(file, line);
}

void test_expect_fault(sy_ctx *ctx, sy_fault_code code, int64_t batch, int64_t position, int64_t value,
                       int64_t limit, const char *file, int line)
{
    sy_fault f;
    assert_int_equal(sy_ctx_fault(ctx, &f), SY_OK);
    if (f.code == code && f.batch == batch && f.position == position && f.value == value && f.limit == limit)
        return;
    print_error("fault %s batch %lld position %lld value %lld limit %lld, want %s %lld %lld %lld %lld\n",
                sy_fault_name(f.code), (long long)f.batch, (long long)f.position, (long long)f.value,
                (long long)f.limit, sy_fault_name(code), (long long)batch, (long long)position,
                (long long)value, (long long)limit);
    _fail(file, line);
}

/* ---- Guarded memory ---- */

enum { GUARD_BYTES = 128, GUARD_FILL = 0x5C, BUF_FILL = 0xA5 };

/* Stands before the front guard, found again from the data pointer. */
struct buf_head {
    void *base;
    size_t bytes;
};

static struct buf_head buf_head_of(const void *data)
{
    struct buf_head head;
    memcpy(&head, (const unsigned char *)data - GUARD_BYTES - sizeof head, sizeof head);
    return head;
}

void *buf_new(size_t bytes, size_t misalign)
{
    const size_t front = sizeof(struct buf_head) + GUARD_BYTES;
    unsigned char *base = malloc(front + 64 + misalign + bytes + GUARD_BYTES);
    if (base == NULL)
        fail_msg("the test has no memory for %zu bytes", bytes);
    unsigned char *data = base + front;
    data += (64 - (uintptr_t)data % 64) % 64 + misalign;
    const struct buf_head head = {base, bytes};
    memcpy(data - front, &head, sizeof head);
    memset(data - GUARD_BYTES, GUARD_FILL, GUARD_BYTES);
    memset(data, BUF_FILL, bytes);
    memset(data + bytes, GUARD_FILL, GUARD_BYTES);
    POISON(data - GUARD_BYTES, GUARD_BYTES);
    POISON(data + bytes, GUARD_BYTES);
    return data;
}

void buf_check(const void *data)
{
    const struct buf_head head = buf_head_of(data);
    const unsigned char *p = data;
    UNPOISON(p - GUARD_BYTES, GUARD_BYTES);
    UNPOISON(p + head.bytes, GUARD_BYTES);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (p[-1 - (ptrdiff_t)i] != GUARD_FILL)
            fail_msg("byte %zu before the buffer changed", i + 1);
        if (p[head.bytes + i] != GUARD_FILL)
            fail_msg("byte %zu after the buffer of %zu changed", i, head.bytes);
    }
    POISON(p - GUARD_BYTES, GUARD_BYTES);
    POISON(p + head.bytes, GUARD_BYTES);
}

void buf_free(void *data)
{
    if (data == NULL)
        return;
    buf_check(data);
    const struct buf_head head = buf_head_of(data);
    unsigned char *p = data;
    UNPOISON(p - GUARD_BYTES, GUARD_BYTES);
    UNPOISON(p + head.bytes, GUARD_BYTES);
    free(head.base);
}

void test_expect_bytes(const void *got, const void *want, size_t n, const char *file, int line)
{
    const unsigned char *a = got, *b = want;
    size_t bad = 0;
    if (n == 0 || memcmp(a, b, n) == 0)
        return;
    while (a[bad] == b[bad])
        bad++;
    print_error("byte %zu of %zu is %02x, want %02x\n", bad, n, a[bad], b[bad]);
    _fail(file, line);
}

/* ---- Cases ---- */

static void fail_of_case(void)
{
    _fail("tests/case", 0);
}

__attribute__((constructor)) static void end_tests_of_cases(void)
{
    case_end_test = fail_of_case;
}

/* ---- Tables of tests ---- */

void test_add(struct test_list *list, const char *name, CMUnitTestFunction run, void *state)
{
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        list->tests = realloc(list->tests, list->room * sizeof *list->tests);
        if (list->tests == NULL)
            abort();
    }
    list->tests[list->count++] = (struct CMUnitTest){name, run, NULL, NULL, state};
}

static int run_list(struct test_list *list, const char *group, CMFixtureFunction open,
                    CMFixtureFunction close)
{
    const int failed = _cmocka_run_group_tests(group, list->tests, list->count, open, close);
    free(list->tests);
    *list = (struct test_list){0};
    return failed;
}

int test_run(struct test_list *list, const char *group)
{
    return run_list(list, group, NULL, NULL);
}

static int open_contexts(__attribute__((unused)) void **state)
{
    case_open();
    return 0;
}

static int close_contexts(__attribute__((unused)) void **state)
{
    case_close();
    return 0;
}

int test_run_in_contexts(struct test_list *list, const char *group)
{
    return run_list(list, group, open_contexts, close_contexts);
}

/* The list keeps every name reachable, so that a leak checker stays quiet. */
char *test_name(const char *format, ...)
{
    static struct kept {
        struct kept *next;
        char text[160];
    } * names;
    struct kept *one = malloc(sizeof *one);
    if (one == NULL)
        abort();
    va_list list;
    va_start(list, format);
    vsnprintf(one->text, sizeof one->text, format, list);
    va_end(list);
    one->next = names;
    names = one;
    return one->text;
}
