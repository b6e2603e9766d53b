/*
 * Calls every operator must accept, whatever its tensors are.
 */
#include "support.h"

static void run_made(struct test_call *call)
{
    sy_ctx *ctx = test_ctx(2, NULL);
    expect_status(ctx, test_call_run(ctx, call), SY_OK);
    sy_ctx_destroy(ctx);
}

void test_accepts(void (*make)(struct test_call *call), void (*change)(struct test_call *call))
{
    struct test_call call;
    make(&call);
    change(&call);
    run_made(&call);
    test_call_free(&call);
}

static void pin_all(struct test_call *call)
{
    for (int i = 0; i < call->count; i++)
        call->tensors[i].t.device.device_type = kDLCUDAHost;
}

static void pin_some(struct test_call *call)
{
    for (int i = 1; i < call->count; i += 2)
        call->tensors[i].t.device.device_type = kDLCUDAHost;
}

void test_accepts_pinned(void (*make)(struct test_call *call))
{
    if (test_on_device())
        return; /* where pinned memory is another one */
    test_accepts(make, pin_all);
    test_accepts(make, pin_some);
}

void test_accepts_adjacent(void (*make)(struct test_call *call))
{
    struct test_call call;
    size_t bytes = 0, at = 0;
    make(&call);
    for (int i = 0; i < call.count; i++)
        bytes += call.tensors[i].bytes;
    unsigned char *block = buf_new(bytes, 0);
    for (int i = 0; i < call.count; i++) {
        if (call.tensors[i].bytes > 0)
            memcpy(block + at, call.tensors[i].mem, call.tensors[i].bytes);
        call.tensors[i].t.data = block + at;
        at += call.tensors[i].bytes;
    }
    run_made(&call);
    buf_free(block);
    test_call_free(&call);
}
