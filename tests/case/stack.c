/*
 * Random calls on a small stack, as a program with fibers or many threads makes them: of 32 KB with a page below it that
 * cannot be touched, painted, so that the deepest byte is known afterwards. A call may need 16 KB. Not with sanitizers, which make
 * frames larger.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS; NOLINT(bugprone-reserved-identifier) */
#include "case.h"

#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

enum { STACK_BYTES = 32 * 1024, MOST_BYTES = 16 * 1024, PAINT = 0xC3, LEAST_CALLS = 60 };

static struct {
    unsigned char *stack;
    ucontext_t caller, fiber;
    struct call *call;
    sy_ctx *ctx;
    sy_status status;
} small;

static void enter(void)
{
    small.status = call_run(small.call, small.ctx);
}

static size_t bytes_used(void)
{
    size_t untouched = 0;
    while (untouched < STACK_BYTES && small.stack[untouched] == PAINT)
        untouched++;
    return STACK_BYTES - untouched;
}

static void run_small(struct call *c, sy_ctx *ctx)
{
    memset(small.stack, PAINT, STACK_BYTES);
    small.call = c;
    small.ctx = ctx;
    if (getcontext(&small.fiber) != 0)
        abort();
    small.fiber.uc_stack.ss_sp = small.stack;
    small.fiber.uc_stack.ss_size = STACK_BYTES;
    small.fiber.uc_link = &small.caller;
    makecontext(&small.fiber, enter, 0);
    if (swapcontext(&small.caller, &small.fiber) != 0)
        abort();
    if (bytes_used() > MOST_BYTES)
        case_fail(c, ctx, "needs %zu bytes of stack, want at most %d", bytes_used(), MOST_BYTES);
    call_check(c, ctx, small.status);
}

int test_stack(const struct op_case *op)
{
    static struct call c;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (SANITIZED)
        return 0;
    unsigned char *const memory =
        mmap(NULL, page + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        abort();
    small.stack = memory + page;
    const int n = op->calls / 4 > LEAST_CALLS ? op->calls / 4 : LEAST_CALLS;
    for (int seed = 1; seed <= n; seed++) {
        struct reader in = reader_seed((uint64_t)seed);
        snprintf(case_where, sizeof case_where, "seed %d, stack", seed);
        call_make(&c, op, &in);
        for (int k = 0; k < n_case_ctx; k++)
            if (sy_ctx_threads(case_ctx[k]) == 1) {
                call_lay_out(&c, 0, false);
                run_small(&c, case_ctx[k]);
            }
        call_free(&c);
    }
    munmap(memory, page + STACK_BYTES);
    return n;
}
