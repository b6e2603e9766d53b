/*
 * Contexts with a device: what is missing is named in one sentence each, and without a device every call says so.
 */
#include "support.h"

struct row {
    const char *name, *library, *fake;
    DLDevice device;
    bool stream;
    sy_status status;
    const char *sentence; /* how it begins */
};

/* Without a device: CUDA device 0. */
static const struct row rows[] = {
    {"no library", .library = "/nowhere/libswitchyard_cuda.so", .status = SY_ERR_UNSUPPORTED,
     .sentence = "sy_ctx_create: libswitchyard_cuda.so.0 could not be loaded: "},
    {"a library of another kind", .library = "libm.so.6", .status = SY_ERR_UNSUPPORTED,
     .sentence = "sy_ctx_create: libswitchyard_cuda.so.0 is of another version, want 0.2.0"},
    {"another version", .fake = "other version", .status = SY_ERR_UNSUPPORTED,
     .sentence = "sy_ctx_create: libswitchyard_cuda.so.0 is of another version, want 0.2.0"},
    {"no driver", .fake = "no driver", .status = SY_ERR_DEVICE,
     .sentence = "sy_ctx_create: no CUDA device can be used: no driver"},
    {"no device", .device = {kDLCUDA, 3}, .status = SY_ERR_DEVICE,
     .sentence =
         "sy_ctx_create: device is cuda:3, want 0 or more and below 0, the CUDA devices of this machine"},
    {"a device of an unknown kind", .device = {(DLDeviceType)77, 0}, .status = SY_ERR_DEVICE,
     .sentence = "sy_ctx_create: device has type 77, want 1 (CPU) or 2 (CUDA)"},
    {"a stream without a device", .device = {kDLCPU, 0}, .stream = true, .status = SY_ERR_VALUE,
     .sentence = "sy_ctx_create: stream is given without a CUDA device, want both or neither"},
};

static void creation_fails(void **state)
{
    const struct row *const row = *state;
    char error[512] = "";
    int stream;
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {
        .device = row->device.device_type != 0 ? row->device : (DLDevice){kDLCUDA, 0},
        .stream = row->stream ? &stream : NULL,
        .error = error,
        .error_bytes = sizeof error,
        .device_library = row->library != NULL ? row->library : SWITCHYARD_FAKE_CUDA};
    setenv("FAKE_CUDA", row->fake != NULL ? row->fake : "", 1);
    assert_int_equal(sy_ctx_create(&ctx, &options), row->status);
    assert_null(ctx);
    if (strncmp(error, row->sentence, strlen(row->sentence)) != 0)
        fail_msg("\"%s\", want \"%s\"", error, row->sentence);
}

TEST(an_operator_that_the_device_does_not_have)
{
    sy_ctx *ctx = NULL;
    int64_t capacity = 7, one = 1;
    DLTensor out = sy_tensor(&capacity, SY_I64, 1, &one);
    const sy_ctx_options options = {.device = {kDLCUDA, 0}, .device_library = SWITCHYARD_FAKE_CUDA};
    const sy_moe_capacity_args args = {.samples = 4, .num_experts = 2, .factor = 1, .capacity = &out};
    setenv("FAKE_CUDA", "no operators", 1);
    assert_int_equal(sy_ctx_create(&ctx, &options), SY_OK);
    out.device = (DLDevice){kDLCUDA, 0};
    assert_int_equal(sy_moe_capacity(ctx, &args), SY_ERR_UNSUPPORTED);
    assert_string_equal(sy_ctx_error(ctx),
                        "moe_capacity: capacity is on cuda, where this operator is not available");
    assert_int_equal(capacity, 7);
    sy_ctx_destroy(ctx);
}

TEST(without_a_device)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    void *data = NULL;
    int byte = 0;
    expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
    expect_status(ctx, sy_ctx_set_stream(ctx, NULL), SY_ERR_DEVICE);
    assert_string_equal(sy_ctx_error(ctx),
                        "sy_ctx_set_stream: ctx has no device, want one that was created for a CUDA device");
    expect_status(ctx, sy_device_alloc(ctx, 1, &data), SY_ERR_DEVICE);
    expect_status(ctx, sy_device_copy(ctx, &byte, &byte, 1), SY_ERR_DEVICE);
    sy_device_free(ctx, NULL);
    sy_device_info info;
    expect_status(ctx, sy_ctx_device_info(ctx, &info), SY_ERR_DEVICE);
    assert_int_equal(sy_ctx_device_info(NULL, &info), SY_ERR_NULL);
    assert_int_equal(sy_ctx_device_info(ctx, NULL), SY_ERR_NULL);
    assert_int_equal(sy_ctx_sync(NULL), SY_ERR_NULL);
    assert_int_equal(sy_ctx_set_stream(NULL, NULL), SY_ERR_NULL);
    assert_int_equal(sy_device_alloc(NULL, 1, &data), SY_ERR_NULL);
    assert_int_equal(sy_device_copy(NULL, &byte, &byte, 1), SY_ERR_NULL);
    sy_ctx_destroy(ctx);
}

TEST_GROUP(ctx_device)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        test_add(&own_tests, rows[i].name, creation_fails, (void *)(uintptr_t)&rows[i]);
    return test_run(&own_tests, "op_ctx_device");
}
