/*
 * Builds with the address sanitizer: whether memory that the library or a test allocated outlives the tests. Only then the
 * sanitizer searches for leaks: on aarch64 a search takes four seconds, however little memory there is. The linker sends the
 * calls of the programs here (--wrap); memory that other libraries allocate or free makes the sums differ, which costs a
 * search and hides nothing.
 */
#include "support.h"
#include "wrapped.h"

#include <sanitizer/lsan_interface.h>
#include <stdatomic.h>

static atomic_uintptr_t live; /* the sum of all addresses: one that is left makes it larger */
static atomic_bool left;

static void *begun(void *block)
{
    atomic_fetch_add(&live, (uintptr_t)block);
    return block;
}

WRAPPED(void *, malloc, size_t bytes)
{
    return begun(__real_malloc(bytes));
}

WRAPPED(void *, calloc, size_t n, size_t bytes)
{
    return begun(__real_calloc(n, bytes));
}

WRAPPED(void *, aligned_alloc, size_t boundary, size_t bytes)
{
    return begun(__real_aligned_alloc(boundary, bytes));
}

WRAPPED(int, posix_memalign, void **block, size_t boundary, size_t bytes)
{
    const int error = __real_posix_memalign(block, boundary, bytes);
    if (error == 0)
        begun(*block);
    return error;
}

WRAPPED(char *, strdup, const char *text)
{
    return begun(__real_strdup(text));
}

WRAPPED(void *, realloc, void *block, size_t bytes)
{
    const uintptr_t old = (uintptr_t)block;
    void *const moved = __real_realloc(block, bytes);
    if (moved != NULL)
        atomic_fetch_sub(&live, old);
    return begun(moved);
}

WRAPPED(void, free, void *block)
{
    atomic_fetch_sub(&live, (uintptr_t)block);
    __real_free(block);
}

/* Tables and names of tests are made before and live as long as the program. */
WRAPPED(int, _cmocka_run_group_tests, const char *group, const struct CMUnitTest *tests, size_t n,
        CMFixtureFunction setup, CMFixtureFunction teardown)
{
    const uintptr_t before = atomic_load(&live);
    const int failed = __real__cmocka_run_group_tests(group, tests, n, setup, teardown);
    if (atomic_load(&live) != before)
        atomic_store(&left, true);
    return failed;
}

static __attribute__((destructor)) void search(void)
{
    if (atomic_load(&left))
        __lsan_do_leak_check();
}
