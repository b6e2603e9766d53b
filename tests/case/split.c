/*
 * Every other run splits small calls over all threads: the linker sends the library's question here (--wrap), so that random
 * calls reach the code of large ones.
 */
#include "case.h"

/* Names that the linker makes. NOLINTBEGIN(bugprone-reserved-identifier) */
int __real_syi_tasks(const sy_ctx *ctx, int64_t n_items, uint64_t work_bytes);
int __wrap_syi_tasks(const sy_ctx *ctx, int64_t n_items, uint64_t work_bytes);
int __wrap_syi_tasks(const sy_ctx *ctx, int64_t n_items, uint64_t work_bytes)
{
    const int threads = sy_ctx_threads(ctx);
    if (!case_split)
        return __real_syi_tasks(ctx, n_items, work_bytes);
    return n_items < 1 ? 1 : n_items < threads ? (int)n_items : threads;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* On a device every call gets exactly the workspace that its query states (tests/device.c). */
void test_lend_what_is_asked(void);
__attribute__((constructor)) static void lend_what_is_asked(void)
{
    test_lend_what_is_asked();
}
