/*
 * A tensor that shares a byte with the workspace lent to the context, beyond what the call needs of it: tests/case has every
 * tensor at the end of what is needed.
 */
#include "support.h"

/* The workspace is the first bytes of an arena; tensors are moved behind it, or one byte into it. */
struct arena {
    unsigned char *bytes, *before;
    size_t lent, size;
};

static void arena_make(struct arena *a, size_t lent, size_t room)
{
    a->lent = lent;
    a->size = lent + room;
    a->bytes = buf_new(a->size, 0);
    a->before = malloc(a->size);
    assert_non_null(a->before);
}

static void arena_free(struct arena *a)
{
    buf_free(a->bytes);
    free(a->before);
}

/* Tensor i in the arena, from byte `at` on. */
static void place(struct test_call *call, int i, struct arena *a, size_t at)
{
    struct tensor *x = &call->tensors[i];
    memcpy(a->bytes + at, x->mem, x->bytes);
    x->t.data = a->bytes + at;
    memcpy(a->before, a->bytes, a->size);
}

static size_t scratch_of(sy_ctx *ctx, struct test_call *call)
{
    sy_query query;
    expect_status(ctx, test_call_query(ctx, call, &query), SY_OK);
    return query.workspace_bytes;
}

/* The first operator whose small call takes scratch. */
static int call_with_scratch(sy_ctx *ctx)
{
    for (int number = 0; number < TEST_CALLS; number++) {
        struct test_call call;
        test_call_make(&call, number, false);
        const size_t scratch = scratch_of(ctx, &call);
        test_call_free(&call);
        if (scratch > 0)
            return number;
    }
    fail_msg("no call takes scratch");
    return -1;
}

static void expect_overlap(sy_ctx *ctx, sy_status status, const char *op, const char *name)
{
    char want[160];
    sy_fault fault;
    expect_status(ctx, status, SY_ERR_ALIAS);
    snprintf(want, sizeof want, "%s: %s overlaps the workspace in memory, want separate memory", op, name);
    assert_string_equal(sy_ctx_error(ctx), want);
    assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
    assert_int_equal(fault.code, SY_FAULT_ALIAS);
}

/* All that was lent counts, also what the call does not need; and an overlap is told before a lack of memory. */
TEST(all_that_was_lent)
{
    struct test_call call;
    struct arena a;
    sy_ctx *ctx = test_ctx(1, NULL);
    test_call_make(&call, call_with_scratch(ctx), false);
    const size_t scratch = (scratch_of(ctx, &call) + 63) / 64 * 64;
    arena_make(&a, 4 * scratch, call.tensors[0].bytes);
    assert_int_equal(sy_ctx_set_workspace(ctx, a.bytes, 4 * scratch), SY_OK);
    place(&call, 0, &a, 2 * scratch);
    expect_overlap(ctx, test_call_run(ctx, &call), call.op, call.names[0]);
    assert_int_equal(sy_ctx_set_workspace(ctx, a.bytes, 1), SY_OK);
    place(&call, 0, &a, 0);
    expect_overlap(ctx, test_call_run(ctx, &call), call.op, call.names[0]);
    place(&call, 0, &a, scratch);
    expect_status(ctx, test_call_run(ctx, &call), SY_ERR_NOMEM);
    test_call_expect_untouched(&call);
    arena_free(&a);
    sy_ctx_destroy(ctx);
    test_call_free(&call);
}

TEST_GROUP(workspace)
{
    struct test_list list = {0};
    test_add(&list, "all_that_was_lent", all_that_was_lent, NULL);
    return test_run(&list, "bad_workspace");
}
