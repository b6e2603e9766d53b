/* The acl runtime and the descriptors of the aclnn layer: devices, streams, events, memory, arrays, lists, numbers. */
#include "aclnn.h"

#include <math.h>

#include "aclnn/aclnn_base.h"

#define INVALID 100000
#define invalid(call) assert_int_equal((call), INVALID)

TEST(init_and_devices)
{
    int32_t device = 7, version[3] = {-1, -1, -1};
    uint32_t count = 0;
    aclrtRunMode mode = ACL_DEVICE;
    ok(aclInit(NULL));
    ok(aclInit("acl.json"));
    ok(aclnnInit(NULL));
    ok(aclrtGetDeviceCount(&count));
    assert_int_equal(count, 1);
    ok(aclrtSetDevice(3));
    ok(aclrtGetDevice(&device));
    assert_int_equal(device, 3);
    assert_int_equal(aclrtSetDevice(-1), 107001);
    ok(aclrtGetDevice(&device));
    assert_int_equal(device, 3);
    invalid(aclrtGetDevice(NULL));
    invalid(aclrtGetDeviceCount(NULL));
    ok(aclrtGetRunMode(&mode));
    assert_int_equal(mode, ACL_HOST);
    ok(aclrtSynchronizeDevice());
    assert_true(aclrtGetSocName()[0] != '\0');
    ok(aclrtGetVersion(&version[0], &version[1], &version[2]));
    assert_int_equal(version[1], SY_VERSION_MINOR);
    invalid(aclrtGetVersion(&version[0], NULL, &version[2]));
    ok(aclrtResetDevice(3));
    assert_int_equal(aclrtResetDeviceForce(-2), 107001);
    ok(aclnnFinalize());
    ok(aclFinalize());
}

TEST(contexts)
{
    aclrtContext a = NULL, b = NULL, now = &a;
    ok(aclrtGetCurrentContext(&now));
    assert_null(now);
    ok(aclrtCreateContext(&a, 0));
    ok(aclrtCreateContext(&b, 0));
    assert_ptr_not_equal(a, b);
    assert_int_equal(aclrtCreateContext(&now, -1), 107001);
    ok(aclrtSetCurrentContext(b));
    ok(aclrtGetCurrentContext(&now));
    assert_ptr_equal(now, b);
    ok(aclrtDestroyContext(b));
    ok(aclrtGetCurrentContext(&now));
    assert_null(now);
    ok(aclrtDestroyContext(a));
    invalid(aclrtSetCurrentContext(NULL));
}

TEST(streams_and_events)
{
    aclrtStream a = NULL, b = NULL;
    aclrtEvent begin = NULL, end = NULL;
    aclrtStreamStatus stream_status = ACL_STREAM_STATUS_NOT_READY;
    aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_COMPLETE;
    float ms = -1;
    ok(aclrtCreateStream(&a));
    ok(aclrtCreateStreamWithConfig(&b, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));
    assert_ptr_not_equal(a, b);
    invalid(aclrtCreateStream(NULL));
    ok(aclrtCreateEvent(&begin));
    ok(aclrtCreateEventWithFlag(&end, ACL_EVENT_TIME_LINE));
    ok(aclrtQueryEventStatus(begin, &recorded));
    assert_int_equal(recorded, ACL_EVENT_RECORDED_STATUS_NOT_READY);
    ok(aclrtRecordEvent(begin, a));
    invalid(aclrtEventElapsedTime(&ms, begin, end)); /* the second was not recorded */
    ok(aclrtRecordEvent(end, a));
    ok(aclrtQueryEventStatus(end, &recorded));
    assert_int_equal(recorded, ACL_EVENT_RECORDED_STATUS_COMPLETE);
    ok(aclrtStreamWaitEvent(b, end));
    ok(aclrtSynchronizeEvent(end));
    ok(aclrtEventElapsedTime(&ms, begin, end));
    assert_true(ms >= 0);
    ok(aclrtSynchronizeStream(a));
    ok(aclrtSynchronizeStream(NULL));
    ok(aclrtSynchronizeStreamWithTimeout(a, 100));
    ok(aclrtStreamQuery(a, &stream_status));
    assert_int_equal(stream_status, ACL_STREAM_STATUS_COMPLETE);
    ok(aclrtDestroyEvent(end));
    ok(aclrtDestroyEvent(begin));
    invalid(aclrtDestroyEvent(NULL));
    ok(aclrtDestroyStream(b));
    ok(aclrtDestroyStreamForce(a));
    invalid(aclrtDestroyStream(NULL));
}

TEST(memory)
{
    void *device = NULL, *host = NULL, *none = &device;
    ok(aclrtMalloc(&device, 1000, ACL_MEM_MALLOC_HUGE_FIRST));
    assert_int_equal((uintptr_t)device % 512, 0);
    ok(aclrtMallocHost(&host, 1000));
    invalid(aclrtMalloc(&none, 0, ACL_MEM_MALLOC_NORMAL_ONLY));
    assert_null(none);
    invalid(aclrtMalloc(NULL, 1, ACL_MEM_MALLOC_NORMAL_ONLY));
    assert_int_equal(aclrtMalloc(&none, SIZE_MAX, ACL_MEM_MALLOC_NORMAL_ONLY), 200000);
    ok(aclrtMemset(device, 1000, 0xab, 1000));
    invalid(aclrtMemset(device, 999, 0, 1000));
    ok(aclrtMemsetAsync(host, 1000, 0, 1000, NULL));
    ok(aclrtMemcpy(host, 1000, device, 500, ACL_MEMCPY_DEVICE_TO_HOST));
    for (int i = 0; i < 1000; i++)
        assert_int_equal(((unsigned char *)host)[i], i < 500 ? 0xab : 0);
    invalid(aclrtMemcpy(host, 10, device, 11, ACL_MEMCPY_DEVICE_TO_HOST));
    invalid(aclrtMemcpy(NULL, 10, device, 1, ACL_MEMCPY_DEVICE_TO_HOST));
    invalid(aclrtMemcpy(host, 10, NULL, 1, ACL_MEMCPY_HOST_TO_HOST));
    invalid(aclrtMemcpy(host, 10, device, 1, (aclrtMemcpyKind)9));
    assert_int_equal(((unsigned char *)host)[600], 0);
    ok(aclrtMemcpyAsync((char *)host + 600, 1, device, 1, ACL_MEMCPY_DEVICE_TO_DEVICE, NULL));
    assert_int_equal(((unsigned char *)host)[600], 0xab);
    ok(aclrtFreeHost(host));
    ok(aclrtFree(device));
    invalid(aclrtFree(NULL));
    ok(aclrtMallocAlign32(&device, 1, ACL_MEM_MALLOC_HUGE_ONLY));
    ok(aclrtFree(device));
    ok(aclrtMallocCached(&device, 1, ACL_MEM_MALLOC_HUGE_ONLY));
    ok(aclrtFree(device));
}

TEST(tensors)
{
    const int64_t dims[3] = {2, 3, 4}, strides[3] = {20, 6, 1}, storage[2] = {5, 8};
    int64_t *got = NULL, offset = 0;
    uint64_t n = 0;
    aclDataType type = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_UNDEFINED;
    void *address = NULL;
    char data[4];
    aclTensor *t = aclCreateTensor(dims, 3, ACL_BF16, strides, 7, ACL_FORMAT_NCL, storage, 2, data);
    assert_non_null(t);
    ok(aclGetViewShape(t, &got, &n));
    assert_int_equal(n, 3);
    expect_bytes(got, dims, sizeof dims);
    free(got);
    ok(aclGetViewStrides(t, &got, &n));
    expect_bytes(got, strides, sizeof strides);
    free(got);
    ok(aclGetStorageShape(t, &got, &n));
    assert_int_equal(n, 2);
    expect_bytes(got, storage, sizeof storage);
    free(got);
    ok(aclGetViewOffset(t, &offset));
    assert_int_equal(offset, 7);
    ok(aclGetDataType(t, &type));
    assert_int_equal(type, ACL_BF16);
    ok(aclGetFormat(t, &format));
    assert_int_equal(format, ACL_FORMAT_NCL);
    ok(aclGetRawTensorAddr(t, &address));
    assert_ptr_equal(address, data);
    ok(aclSetRawTensorAddr(t, data + 1));
    ok(aclGetRawTensorAddr(t, &address));
    assert_ptr_equal(address, data + 1);
    assert_int_equal(aclGetViewShape(NULL, &got, &n), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclGetViewOffset(t, NULL), ACLNN_ERR_PARAM_NULLPTR);
    ok(aclDestroyTensor(t));
    t = aclCreateTensor(dims, 3, ACL_BF16, NULL, 0, ACL_FORMAT_ND, NULL, 0, NULL); /* compact */
    ok(aclGetViewStrides(t, &got, &n));
    expect_bytes(got, ((int64_t[]){12, 4, 1}), sizeof strides);
    free(got);
    ok(aclDestroyTensor(t));
    assert_null(aclCreateTensor(NULL, 2, ACL_BF16, NULL, 0, ACL_FORMAT_ND, dims, 3, data));
    assert_null(aclCreateTensor(dims, UINT64_MAX, ACL_BF16, NULL, 0, ACL_FORMAT_ND, dims, 3, data));
    ok(aclDestroyTensor(NULL));
}

TEST(arrays_and_lists)
{
    const int64_t ints[3] = {1, -2, 3};
    const float floats[2] = {1, 2};
    const bool bools[4] = {true, false, true, true};
    float value = 3;
    uint64_t n = 0;
    aclIntArray *i = aclCreateIntArray(ints, 3);
    aclFloatArray *f = aclCreateFloatArray(floats, 2);
    aclBoolArray *b = aclCreateBoolArray(bools, 4);
    ok(aclGetIntArraySize(i, &n));
    assert_int_equal(n, 3);
    ok(aclGetFloatArraySize(f, &n));
    assert_int_equal(n, 2);
    ok(aclGetBoolArraySize(b, &n));
    assert_int_equal(n, 4);
    assert_int_equal(aclGetIntArraySize(NULL, &n), ACLNN_ERR_PARAM_NULLPTR);
    assert_null(aclCreateIntArray(NULL, 1));
    assert_null(aclCreateIntArray(ints, UINT64_MAX));
    ok(aclDestroyIntArray(i));
    ok(aclDestroyFloatArray(f));
    ok(aclDestroyBoolArray(b));

    const aclTensor *members[2] = {
        aclCreateTensor(ints, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, ints, 1, &value),
        aclCreateTensor(ints, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, ints, 1, &value)};
    aclTensorList *tensor_list = aclCreateTensorList(members, 2);
    ok(aclGetTensorListSize(tensor_list, &n));
    assert_int_equal(n, 2);
    ok(aclDestroyTensorList(tensor_list)); /* and its members */
    const aclScalar *scalars[2] = {aclCreateScalar(&value, ACL_FLOAT), aclCreateScalar(&value, ACL_FLOAT)};
    aclScalarList *scalar_list = aclCreateScalarList(scalars, 2);
    ok(aclGetScalarListSize(scalar_list, &n));
    assert_int_equal(n, 2);
    ok(aclDestroyScalarList(scalar_list));
    aclScalar *scalar = aclCreateScalar(&value, ACL_FLOAT);
    assert_non_null(scalar);
    ok(aclDestroyScalar(scalar));
    assert_null(aclCreateScalar(NULL, ACL_FLOAT));
    assert_null(aclCreateScalar(&value, ACL_STRING));
    ok(aclDestroyTensorList(NULL));
    ok(aclDestroyScalarList(NULL));
}

TEST(numbers)
{
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float value = aclFloat16ToFloat((aclFloat16)bits);
        const double want = f16_value((uint16_t)bits);
        assert_true(isnan(want) ? isnan(value) : value == want && !signbit(value) == !signbit(want));
        if (!isnan(want))
            assert_int_equal(aclFloatToFloat16(value), bits);
    }
    uint64_t rng = 5;
    for (int i = 0; i < 400000; i++) { /* all exponents, and halfway cases */
        uint32_t bits = (uint32_t)rng_u64(&rng);
        if (i % 2 == 0)
            bits &= 0xfffff000;
        const float value = f32_from_bits(bits);
        assert_int_equal(aclFloatToFloat16(value) & (isnan(value) ? 0x7fff : 0xffff), f16_round(value));
    }
    static const int sizes[][2] = {{ACL_FLOAT, 4}, {ACL_BF16, 2},        {ACL_BOOL, 1},
                                   {ACL_INT64, 8}, {ACL_COMPLEX128, 16}, {ACL_STRING, 0}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        assert_int_equal(aclDataTypeSize((aclDataType)sizes[i][0]), sizes[i][1]);
}

/* Values that programs were compiled with elsewhere. */
TEST(the_vendors_numbers)
{
    static const int values[][2] = {{ACL_SUCCESS, 0},
                                    {ACL_FLOAT, 0},
                                    {ACL_FLOAT16, 1},
                                    {ACL_INT8, 2},
                                    {ACL_INT32, 3},
                                    {ACL_UINT8, 4},
                                    {ACL_INT64, 9},
                                    {ACL_BOOL, 12},
                                    {ACL_BF16, 27},
                                    {ACL_FORMAT_ND, 2},
                                    {ACL_MEMCPY_HOST_TO_HOST, 0},
                                    {ACL_MEMCPY_HOST_TO_DEVICE, 1},
                                    {ACL_MEMCPY_DEVICE_TO_HOST, 2},
                                    {ACL_MEMCPY_DEVICE_TO_DEVICE, 3},
                                    {ACL_MEM_MALLOC_HUGE_FIRST, 0},
                                    {ACL_MEM_MALLOC_HUGE_ONLY, 1},
                                    {ACL_MEM_MALLOC_NORMAL_ONLY, 2},
                                    {ACLNN_SUCCESS, 0},
                                    {ACLNN_ERR_PARAM_NULLPTR, 161001},
                                    {ACLNN_ERR_PARAM_INVALID, 161002},
                                    {ACLNN_ERR_RUNTIME_ERROR, 361001},
                                    {ACLNN_ERR_INNER, 561000},
                                    {ACLNN_ERR_INNER_INFERSHAPE_ERROR, 561001},
                                    {ACLNN_ERR_INNER_TILING_ERROR, 561002},
                                    {ACLNN_ERR_INNER_FIND_KERNEL_ERROR, 561003},
                                    {ACLNN_ERR_INNER_CREATE_EXECUTOR, 561101},
                                    {ACLNN_ERR_INNER_NULLPTR, 561103},
                                    {ACL_ERROR_INVALID_PARAM, 100000},
                                    {ACL_ERROR_BAD_ALLOC, 200000},
                                    {ACL_ERROR_FAILURE, 500001}};
    for (size_t i = 0; i < COUNT_OF(values); i++)
        assert_int_equal(values[i][0], values[i][1]);
    assert_int_equal(sizeof(aclError), sizeof(int));
    assert_int_equal(sizeof(aclnnStatus), 4);
    assert_int_equal(sizeof(aclrtStream), sizeof(void *));
}

void add_runtime(struct test_list *list)
{
    TEST_ADD(list, contexts);
    TEST_ADD(list, streams_and_events);
    TEST_ADD(list, tensors);
    TEST_ADD(list, arrays_and_lists);
    TEST_ADD(list, numbers);
    TEST_ADD(list, the_vendors_numbers);
    if (on_device())
        return;
    TEST_ADD(list, init_and_devices);
    TEST_ADD(list, memory);
}
