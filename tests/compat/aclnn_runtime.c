/* The acl runtime and the descriptors of the aclnn door: devices, streams, events, memory, arrays, lists, numbers. */
#include "aclnn.h"

#include <math.h>

#include "aclnn/aclnn_base.h"

#define INVALID 100000

static void init_and_devices(void **state)
{
    (void)state;
    int32_t device = 7, version[3] = {-1, -1, -1};
    uint32_t count = 0;
    aclrtRunMode mode = ACL_DEVICE;
    assert_int_equal(aclInit(NULL), 0);
    assert_int_equal(aclInit("acl.json"), 0);
    assert_int_equal(aclnnInit(NULL), 0);
    assert_int_equal(aclrtGetDeviceCount(&count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(aclrtSetDevice(3), 0);
    assert_int_equal(aclrtGetDevice(&device), 0);
    assert_int_equal(device, 3);
    assert_int_equal(aclrtSetDevice(-1), 107001);
    assert_int_equal(aclrtGetDevice(&device), 0);
    assert_int_equal(device, 3);
    assert_int_equal(aclrtGetDevice(NULL), INVALID);
    assert_int_equal(aclrtGetDeviceCount(NULL), INVALID);
    assert_int_equal(aclrtGetRunMode(&mode), 0);
    assert_int_equal(mode, ACL_HOST);
    assert_int_equal(aclrtSynchronizeDevice(), 0);
    assert_true(aclrtGetSocName()[0] != '\0');
    assert_int_equal(aclrtGetVersion(&version[0], &version[1], &version[2]), 0);
    assert_int_equal(version[1], SY_VERSION_MINOR);
    assert_int_equal(aclrtGetVersion(&version[0], NULL, &version[2]), INVALID);
    assert_int_equal(aclrtResetDevice(3), 0);
    assert_int_equal(aclrtResetDeviceForce(-2), 107001);
    assert_int_equal(aclnnFinalize(), 0);
    assert_int_equal(aclFinalize(), 0);
}

static void contexts(void **state)
{
    (void)state;
    aclrtContext a = NULL, b = NULL, now = &a;
    assert_int_equal(aclrtGetCurrentContext(&now), 0);
    assert_null(now);
    assert_int_equal(aclrtCreateContext(&a, 0), 0);
    assert_int_equal(aclrtCreateContext(&b, 0), 0);
    assert_ptr_not_equal(a, b);
    assert_int_equal(aclrtCreateContext(&now, -1), 107001);
    assert_int_equal(aclrtSetCurrentContext(b), 0);
    assert_int_equal(aclrtGetCurrentContext(&now), 0);
    assert_ptr_equal(now, b);
    assert_int_equal(aclrtDestroyContext(b), 0);
    assert_int_equal(aclrtGetCurrentContext(&now), 0);
    assert_null(now);
    assert_int_equal(aclrtDestroyContext(a), 0);
    assert_int_equal(aclrtSetCurrentContext(NULL), INVALID);
}

static void streams_and_events(void **state)
{
    (void)state;
    aclrtStream a = NULL, b = NULL;
    aclrtEvent begin = NULL, end = NULL;
    aclrtStreamStatus stream_status = ACL_STREAM_STATUS_NOT_READY;
    aclrtEventRecordedStatus recorded = ACL_EVENT_RECORDED_STATUS_COMPLETE;
    float ms = -1;
    assert_int_equal(aclrtCreateStream(&a), 0);
    assert_int_equal(aclrtCreateStreamWithConfig(&b, 0, ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC), 0);
    assert_ptr_not_equal(a, b);
    assert_int_equal(aclrtCreateStream(NULL), INVALID);
    assert_int_equal(aclrtCreateEvent(&begin), 0);
    assert_int_equal(aclrtCreateEventWithFlag(&end, ACL_EVENT_TIME_LINE), 0);
    assert_int_equal(aclrtQueryEventStatus(begin, &recorded), 0);
    assert_int_equal(recorded, ACL_EVENT_RECORDED_STATUS_NOT_READY);
    assert_int_equal(aclrtRecordEvent(begin, a), 0);
    assert_int_equal(aclrtEventElapsedTime(&ms, begin, end), INVALID); /* the second was not recorded */
    assert_int_equal(aclrtRecordEvent(end, a), 0);
    assert_int_equal(aclrtQueryEventStatus(end, &recorded), 0);
    assert_int_equal(recorded, ACL_EVENT_RECORDED_STATUS_COMPLETE);
    assert_int_equal(aclrtStreamWaitEvent(b, end), 0);
    assert_int_equal(aclrtSynchronizeEvent(end), 0);
    assert_int_equal(aclrtEventElapsedTime(&ms, begin, end), 0);
    assert_true(ms >= 0);
    assert_int_equal(aclrtSynchronizeStream(a), 0);
    assert_int_equal(aclrtSynchronizeStream(NULL), 0);
    assert_int_equal(aclrtSynchronizeStreamWithTimeout(a, 100), 0);
    assert_int_equal(aclrtStreamQuery(a, &stream_status), 0);
    assert_int_equal(stream_status, ACL_STREAM_STATUS_COMPLETE);
    assert_int_equal(aclrtDestroyEvent(end), 0);
    assert_int_equal(aclrtDestroyEvent(begin), 0);
    assert_int_equal(aclrtDestroyEvent(NULL), INVALID);
    assert_int_equal(aclrtDestroyStream(b), 0);
    assert_int_equal(aclrtDestroyStreamForce(a), 0);
    assert_int_equal(aclrtDestroyStream(NULL), INVALID);
}

static void memory(void **state)
{
    (void)state;
    void *device = NULL, *host = NULL, *none = &device;
    assert_int_equal(aclrtMalloc(&device, 1000, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    assert_int_equal((uintptr_t)device % 512, 0);
    assert_int_equal(aclrtMallocHost(&host, 1000), 0);
    assert_int_equal(aclrtMalloc(&none, 0, ACL_MEM_MALLOC_NORMAL_ONLY), INVALID);
    assert_null(none);
    assert_int_equal(aclrtMalloc(NULL, 1, ACL_MEM_MALLOC_NORMAL_ONLY), INVALID);
    assert_int_equal(aclrtMalloc(&none, SIZE_MAX, ACL_MEM_MALLOC_NORMAL_ONLY), 200000);
    assert_int_equal(aclrtMemset(device, 1000, 0xab, 1000), 0);
    assert_int_equal(aclrtMemset(device, 999, 0, 1000), INVALID);
    assert_int_equal(aclrtMemsetAsync(host, 1000, 0, 1000, NULL), 0);
    assert_int_equal(aclrtMemcpy(host, 1000, device, 500, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(((unsigned char *)host)[i], i < 500 ? 0xab : 0);
    assert_int_equal(aclrtMemcpy(host, 10, device, 11, ACL_MEMCPY_DEVICE_TO_HOST), INVALID);
    assert_int_equal(aclrtMemcpy(NULL, 10, device, 1, ACL_MEMCPY_DEVICE_TO_HOST), INVALID);
    assert_int_equal(aclrtMemcpy(host, 10, NULL, 1, ACL_MEMCPY_HOST_TO_HOST), INVALID);
    assert_int_equal(aclrtMemcpy(host, 10, device, 1, (aclrtMemcpyKind)9), INVALID);
    assert_int_equal(((unsigned char *)host)[600], 0);
    assert_int_equal(aclrtMemcpyAsync((char *)host + 600, 1, device, 1, ACL_MEMCPY_DEVICE_TO_DEVICE, NULL),
                     0);
    assert_int_equal(((unsigned char *)host)[600], 0xab);
    assert_int_equal(aclrtFreeHost(host), 0);
    assert_int_equal(aclrtFree(device), 0);
    assert_int_equal(aclrtFree(NULL), INVALID);
    assert_int_equal(aclrtMallocAlign32(&device, 1, ACL_MEM_MALLOC_HUGE_ONLY), 0);
    assert_int_equal(aclrtFree(device), 0);
    assert_int_equal(aclrtMallocCached(&device, 1, ACL_MEM_MALLOC_HUGE_ONLY), 0);
    assert_int_equal(aclrtFree(device), 0);
}

static void tensors(void **state)
{
    (void)state;
    const int64_t dims[3] = {2, 3, 4}, strides[3] = {20, 6, 1}, storage[2] = {5, 8};
    int64_t *got = NULL, offset = 0;
    uint64_t n = 0;
    aclDataType type = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_UNDEFINED;
    void *address = NULL;
    char data[4];
    aclTensor *t = aclCreateTensor(dims, 3, ACL_BF16, strides, 7, ACL_FORMAT_NCL, storage, 2, data);
    assert_non_null(t);
    assert_int_equal(aclGetViewShape(t, &got, &n), 0);
    assert_int_equal(n, 3);
    expect_bytes(got, dims, sizeof dims);
    free(got);
    assert_int_equal(aclGetViewStrides(t, &got, &n), 0);
    expect_bytes(got, strides, sizeof strides);
    free(got);
    assert_int_equal(aclGetStorageShape(t, &got, &n), 0);
    assert_int_equal(n, 2);
    expect_bytes(got, storage, sizeof storage);
    free(got);
    assert_int_equal(aclGetViewOffset(t, &offset), 0);
    assert_int_equal(offset, 7);
    assert_int_equal(aclGetDataType(t, &type), 0);
    assert_int_equal(type, ACL_BF16);
    assert_int_equal(aclGetFormat(t, &format), 0);
    assert_int_equal(format, ACL_FORMAT_NCL);
    assert_int_equal(aclGetRawTensorAddr(t, &address), 0);
    assert_ptr_equal(address, data);
    assert_int_equal(aclSetRawTensorAddr(t, data + 1), 0);
    assert_int_equal(aclGetRawTensorAddr(t, &address), 0);
    assert_ptr_equal(address, data + 1);
    assert_int_equal(aclGetViewShape(NULL, &got, &n), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclGetViewOffset(t, NULL), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclDestroyTensor(t), 0);
    t = aclCreateTensor(dims, 3, ACL_BF16, NULL, 0, ACL_FORMAT_ND, NULL, 0, NULL); /* compact */
    assert_int_equal(aclGetViewStrides(t, &got, &n), 0);
    expect_bytes(got, ((int64_t[]){12, 4, 1}), sizeof strides);
    free(got);
    assert_int_equal(aclDestroyTensor(t), 0);
    assert_null(aclCreateTensor(NULL, 2, ACL_BF16, NULL, 0, ACL_FORMAT_ND, dims, 3, data));
    assert_null(aclCreateTensor(dims, UINT64_MAX, ACL_BF16, NULL, 0, ACL_FORMAT_ND, dims, 3, data));
    assert_int_equal(aclDestroyTensor(NULL), 0);
}

static void arrays_and_lists(void **state)
{
    (void)state;
    const int64_t ints[3] = {1, -2, 3};
    const float floats[2] = {1, 2};
    const bool bools[4] = {true, false, true, true};
    float value = 3;
    uint64_t n = 0;
    aclIntArray *i = aclCreateIntArray(ints, 3);
    aclFloatArray *f = aclCreateFloatArray(floats, 2);
    aclBoolArray *b = aclCreateBoolArray(bools, 4);
    assert_int_equal(aclGetIntArraySize(i, &n), 0);
    assert_int_equal(n, 3);
    assert_int_equal(aclGetFloatArraySize(f, &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(aclGetBoolArraySize(b, &n), 0);
    assert_int_equal(n, 4);
    assert_int_equal(aclGetIntArraySize(NULL, &n), ACLNN_ERR_PARAM_NULLPTR);
    assert_null(aclCreateIntArray(NULL, 1));
    assert_null(aclCreateIntArray(ints, UINT64_MAX));
    assert_int_equal(aclDestroyIntArray(i), 0);
    assert_int_equal(aclDestroyFloatArray(f), 0);
    assert_int_equal(aclDestroyBoolArray(b), 0);

    const aclTensor *members[2] = {
        aclCreateTensor(ints, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, ints, 1, &value),
        aclCreateTensor(ints, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, ints, 1, &value)};
    aclTensorList *tensor_list = aclCreateTensorList(members, 2);
    assert_int_equal(aclGetTensorListSize(tensor_list, &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(aclDestroyTensorList(tensor_list), 0); /* and its members */
    const aclScalar *scalars[2] = {aclCreateScalar(&value, ACL_FLOAT), aclCreateScalar(&value, ACL_FLOAT)};
    aclScalarList *scalar_list = aclCreateScalarList(scalars, 2);
    assert_int_equal(aclGetScalarListSize(scalar_list, &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(aclDestroyScalarList(scalar_list), 0);
    aclScalar *scalar = aclCreateScalar(&value, ACL_FLOAT);
    assert_non_null(scalar);
    assert_int_equal(aclDestroyScalar(scalar), 0);
    assert_null(aclCreateScalar(NULL, ACL_FLOAT));
    assert_null(aclCreateScalar(&value, ACL_STRING));
    assert_int_equal(aclDestroyTensorList(NULL), 0);
    assert_int_equal(aclDestroyScalarList(NULL), 0);
}

static void numbers(void **state)
{
    (void)state;
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
    assert_int_equal(aclDataTypeSize(ACL_FLOAT), 4);
    assert_int_equal(aclDataTypeSize(ACL_BF16), 2);
    assert_int_equal(aclDataTypeSize(ACL_BOOL), 1);
    assert_int_equal(aclDataTypeSize(ACL_INT64), 8);
    assert_int_equal(aclDataTypeSize(ACL_COMPLEX128), 16);
    assert_int_equal(aclDataTypeSize(ACL_STRING), 0);
}

/* Values that programs were compiled with elsewhere. */
static void the_vendors_numbers(void **state)
{
    (void)state;
    const int got[] = {ACL_SUCCESS,
                       ACL_FLOAT,
                       ACL_FLOAT16,
                       ACL_INT8,
                       ACL_INT32,
                       ACL_UINT8,
                       ACL_INT64,
                       ACL_BOOL,
                       ACL_BF16,
                       ACL_FORMAT_ND,
                       ACL_MEMCPY_HOST_TO_HOST,
                       ACL_MEMCPY_HOST_TO_DEVICE,
                       ACL_MEMCPY_DEVICE_TO_HOST,
                       ACL_MEMCPY_DEVICE_TO_DEVICE,
                       ACL_MEM_MALLOC_HUGE_FIRST,
                       ACL_MEM_MALLOC_HUGE_ONLY,
                       ACL_MEM_MALLOC_NORMAL_ONLY,
                       ACLNN_SUCCESS,
                       ACLNN_ERR_PARAM_NULLPTR,
                       ACLNN_ERR_PARAM_INVALID,
                       ACLNN_ERR_RUNTIME_ERROR,
                       ACLNN_ERR_INNER,
                       ACLNN_ERR_INNER_INFERSHAPE_ERROR,
                       ACLNN_ERR_INNER_TILING_ERROR,
                       ACLNN_ERR_INNER_FIND_KERNEL_ERROR,
                       ACLNN_ERR_INNER_CREATE_EXECUTOR,
                       ACLNN_ERR_INNER_NULLPTR,
                       ACL_ERROR_INVALID_PARAM,
                       ACL_ERROR_BAD_ALLOC,
                       ACL_ERROR_FAILURE};
    const int want[] = {0,      0,      1,      2,      3,      4,      9,      12,     27,     2,
                        0,      1,      2,      3,      0,      1,      2,      0,      161001, 161002,
                        361001, 561000, 561001, 561002, 561003, 561101, 561103, 100000, 200000, 500001};
    assert_int_equal(COUNT_OF(got), COUNT_OF(want));
    expect_bytes(got, want, sizeof want);
    assert_int_equal(sizeof(aclError), sizeof(int));
    assert_int_equal(sizeof(aclnnStatus), 4);
    assert_int_equal(sizeof(aclrtStream), sizeof(void *));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_and_devices),
        cmocka_unit_test(contexts),
        cmocka_unit_test(streams_and_events),
        cmocka_unit_test(memory),
        cmocka_unit_test(tensors),
        cmocka_unit_test(arrays_and_lists),
        cmocka_unit_test(numbers),
        cmocka_unit_test(the_vendors_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
