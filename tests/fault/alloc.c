/*
 * The allocator gives nothing at the n-th call, for every n until the call succeeds: context creation and each operator
 * must answer NOMEM, leave the outputs alone, and give back every block in the end. After the failure the same context
 * must still work.
 */
#include "case/case.h"
#include "support.h"
#include "support_memory.h"

static sy_ctx_options options_for(struct allocator *a)
{
    return (sy_ctx_options){.threads = 3, .alloc = limited_alloc, .dealloc = limited_free, .alloc_user = a};
}

TEST(creation)
{
    int failures = 0;
    for (int n = 1; n < 1000; n++) {
        struct allocator a = {.fail_at = n};
        char error[128] = "";
        int other = 0;
        sy_ctx *ctx = (sy_ctx *)(void *)&other;
        sy_ctx_options options = options_for(&a);
        options.error = error;
        options.error_bytes = sizeof error;
        const sy_status status = sy_ctx_create(&ctx, &options);
        if (status == SY_OK) {
            assert_true(a.calls < n); /* a success in spite of the failed call would have lost it */
            sy_ctx_destroy(ctx);
            assert_int_equal(a.live, 0);
            assert_true(failures > 0);
            return;
        }
        failures++;
        assert_int_equal(status, SY_ERR_NOMEM);
        assert_null(ctx);
        assert_string_not_equal(error, "");
        assert_int_equal(a.live, 0);
    }
    fail_msg("creation never succeeded");
}

/* A larger shape needs more: when that fails, the smaller one still runs in what the context has. */
TEST(growth_that_fails_keeps_what_was_there)
{
    for (int index = 0; index < TEST_CALLS; index++) {
        struct allocator a = {0};
        struct call *const small = case_new(index, false), *const large = case_new(index, true);
        sy_ctx *ctx = NULL;
        const sy_ctx_options options = options_for(&a);
        assert_int_equal(sy_ctx_create(&ctx, &options), SY_OK);
        call_check(small, ctx, call_run(small, ctx));
        a.calls = 0;
        a.fail_at = 1;
        a.fail_all_after = true;
        const sy_status status = call_run(large, ctx);
        if (status != SY_OK) {
            expect_status(ctx, status, SY_ERR_NOMEM);
            call_untouched(large, ctx);
        }
        call_lay_out(small, 0, false);
        call_check(small, ctx, call_run(small, ctx));
        case_delete(small);
        case_delete(large);
        sy_ctx_destroy(ctx);
        assert_int_equal(a.live, 0);
    }
}

TESTS(alloc, "fault_alloc")
