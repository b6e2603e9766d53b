#define _DEFAULT_SOURCE /* MAP_ANONYMOUS; NOLINT(bugprone-reserved-identifier) */
#include "stack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK_BYTES = 32 * 1024, PAINT = 0xC3 };

static struct {
    unsigned char *stack;
    ucontext_t caller, fiber;
    void (*run)(void *data);
    void *data;
} small;

static void enter(void)
{
    small.run(small.data);
}

size_t stack_of(void (*run)(void *data), void *data)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *const memory =
        mmap(NULL, page + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        abort();
    small.stack = memory + page;
    memset(small.stack, PAINT, STACK_BYTES);
    small.run = run;
    small.data = data;
    if (getcontext(&small.fiber) != 0)
        abort();
    small.fiber.uc_stack.ss_sp = small.stack;
    small.fiber.uc_stack.ss_size = STACK_BYTES;
    small.fiber.uc_link = &small.caller;
    makecontext(&small.fiber, enter, 0);
    if (swapcontext(&small.caller, &small.fiber) != 0)
        abort();
    size_t untouched = 0;
    while (untouched < STACK_BYTES && small.stack[untouched] == PAINT)
        untouched++;
    munmap(memory, page + STACK_BYTES);
    return STACK_BYTES - untouched;
}
