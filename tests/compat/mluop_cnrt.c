/*
 * The runtime subset: values of the enumerators, memory, queues, notifiers, devices, errors, and NULL
 * everywhere.
 */
#include "support.h"

#include "cn_api.h"
#include "cnrt.h"

#include <unistd.h>

#define expect_cnrt(call, want) assert_string_equal(cnrtGetErrorStr(call), cnrtGetErrorStr(want))

static void values(void **state)
{
    (void)state;
    assert_true(cnrtSuccess == 0 && cnrtErrorArgsInvalid == 100006 && cnrtErrorNoMem == 100100);
    assert_true(cnrtErrorDeviceInvalid == 100005 && cnrtErrorMemcpyDirectionInvalid == 632013);
    assert_true(cnrtMemcpyHostToDev == 0 && cnrtMemcpyDevToDev == 1 && cnrtMemcpyDevToHost == 2);
    assert_true(cnrtMemcpyHostToHost == 3 && cnrtMemcpyPeerToPeer == 4 && cnrtMemcpyNoDirection == 5);
    assert_true(CNRT_MEM_TRANS_DIR_HOST2DEV == 0 && CNRT_MEM_TRANS_DIR_DEV2HOST == 2);
}

static void memory(void **state)
{
    (void)state;
    void *device = NULL, *host = NULL;
    expect_cnrt(cnrtMalloc(NULL, 4), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtHostMalloc(NULL, 4), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtMalloc(&device, 1000), cnrtSuccess);
    expect_cnrt(cnrtHostMalloc(&host, 1000), cnrtSuccess);
    assert_true(device != NULL && host != NULL && (uintptr_t)device % 64 == 0);
    expect_cnrt(cnrtMemset(device, 0x1ab, 1000), cnrtSuccess);
    expect_cnrt(cnrtMemcpy(host, device, 1000, cnrtMemcpyDevToHost), cnrtSuccess);
    assert_true(((unsigned char *)host)[0] == 0xab && ((unsigned char *)host)[999] == 0xab);
    expect_cnrt(cnrtMemsetAsync(host, 7, 10, NULL), cnrtSuccess);
    expect_cnrt(cnrtMemcpyAsync_V3(device, host, 10, NULL, cnrtMemcpyHostToDev), cnrtSuccess);
    assert_true(((unsigned char *)device)[9] == 7 && ((unsigned char *)device)[10] == 0xab);
    expect_cnrt(cnrtFree(device), cnrtSuccess);
    expect_cnrt(cnrtFreeHost(host), cnrtSuccess);
    expect_cnrt(cnrtFree(NULL), cnrtSuccess);
    expect_cnrt(cnrtFreeHost(NULL), cnrtSuccess);
}

/* Nothing is there to be touched, and nothing to be lost by a program that forgets it. */
static void no_bytes(void **state)
{
    (void)state;
    void *ptr = &ptr;
    expect_cnrt(cnrtMalloc(&ptr, 0), cnrtSuccess);
    assert_null(ptr);
    expect_cnrt(cnrtMemcpy(NULL, NULL, 0, cnrtMemcpyNoDirection), cnrtSuccess);
    expect_cnrt(cnrtMemset(NULL, 0, 0), cnrtSuccess);
    expect_cnrt(cnrtFree(ptr), cnrtSuccess);
}

/* Sizes that a program asks for only to have them rejected: the pages are not touched. */
static void three_large_tensors(void **state)
{
    (void)state;
    const size_t bytes = (size_t)1073741825 * 4;
    void *ptr[3];
    if ((size_t)sysconf(_SC_PHYS_PAGES) < bytes / (size_t)sysconf(_SC_PAGESIZE))
        skip_because("this machine has less than 4 GiB of memory");
    for (int i = 0; i < 3; i++)
        expect_cnrt(cnrtMalloc(&ptr[i], bytes), cnrtSuccess);
    for (int i = 0; i < 3; i++)
        expect_cnrt(cnrtFree(ptr[i]), cnrtSuccess);
}

static void too_much_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("the sanitizers' own allocators end the process");
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    skip_because("the sanitizers' own allocators end the process");
#endif
#endif
    void *ptr = &ptr;
    expect_cnrt(cnrtMalloc(&ptr, SIZE_MAX / 2), cnrtErrorNoMem);
    assert_null(ptr);
    expect_cnrt(cnrtHostMalloc(&ptr, SIZE_MAX / 2), cnrtErrorSysNoMem);
    assert_null(ptr);
}

static void bad_copies(void **state)
{
    (void)state;
    char a[4] = "abc", b[4] = "xyz";
    expect_cnrt(cnrtMemcpy(NULL, b, 4, cnrtMemcpyHostToDev), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtMemcpy(a, NULL, 4, cnrtMemcpyHostToDev), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtMemcpy(a, b, 4, (cnrtMemTransDir_t)6), cnrtErrorMemcpyDirectionInvalid);
    expect_cnrt(cnrtMemcpy(a, b, 4, (cnrtMemTransDir_t)-1), cnrtErrorMemcpyDirectionInvalid);
    expect_cnrt(cnrtMemcpyAsync_V3(a, NULL, 4, NULL, cnrtMemcpyHostToDev), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtMemset(NULL, 0, 1), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtMemsetAsync(NULL, 0, 1, NULL), cnrtErrorArgsInvalid);
    assert_string_equal(a, "abc");
}

static void queues(void **state)
{
    (void)state;
    cnrtQueue_t queue = NULL;
    expect_cnrt(cnrtQueueSync(NULL), cnrtSuccess);
    expect_cnrt(cnrtQueueCreate(NULL), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtQueueDestroy(NULL), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtQueueCreate(&queue), cnrtSuccess);
    assert_non_null(queue);
    expect_cnrt(cnrtQueueSync(queue), cnrtSuccess);
    expect_cnrt(cnrtQueueDestroy(queue), cnrtSuccess);
}

static void notifiers(void **state)
{
    (void)state;
    cnrtNotifier_t start = NULL, end = NULL;
    float us = -1, ms = -1;
    expect_cnrt(cnrtNotifierCreate(NULL), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtNotifierDestroy(NULL), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtPlaceNotifier(NULL, NULL), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtNotifierCreate(&start), cnrtSuccess);
    expect_cnrt(cnrtNotifierCreate(&end), cnrtSuccess);
    expect_cnrt(cnrtPlaceNotifier(start, NULL), cnrtSuccess);
    expect_cnrt(cnrtNotifierDuration(start, end, &us), cnrtErrorIllegalState);
    expect_cnrt(cnrtNotifierDuration(end, start, &us), cnrtErrorIllegalState);
    expect_cnrt(cnrtPlaceNotifier(end, NULL), cnrtSuccess);
    expect_cnrt(cnrtNotifierDuration(NULL, end, &us), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtNotifierDuration(start, NULL, &us), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtNotifierElapsedTime(start, end, NULL), cnrtErrorArgsInvalid);
    assert_true(us == -1);
    do { /* until the clock has moved on */
        expect_cnrt(cnrtPlaceNotifier(end, NULL), cnrtSuccess);
        expect_cnrt(cnrtNotifierDuration(start, end, &us), cnrtSuccess);
    } while (us == 0);
    expect_cnrt(cnrtNotifierElapsedTime(start, end, &ms), cnrtSuccess);
    /* One number in two units, each rounded by itself. */
    assert_true(us > 0 && 1000 * (double)ms > 0.99999 * us && 1000 * (double)ms < 1.00001 * us);
    expect_cnrt(cnrtNotifierDuration(end, start, &ms), cnrtSuccess);
    assert_true(ms == -us);
    expect_cnrt(cnrtNotifierDestroy(start), cnrtSuccess);
    expect_cnrt(cnrtNotifierDestroy(end), cnrtSuccess);
}

static void devices(void **state)
{
    (void)state;
    int device = -1;
    unsigned int count = 0;
    expect_cnrt(cnrtGetDevice(NULL), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtGetDeviceCount(NULL), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtGetDevice(&device), cnrtSuccess);
    expect_cnrt(cnrtGetDeviceCount(&count), cnrtSuccess);
    assert_true(device == 0 && count == 1);
    expect_cnrt(cnrtSetDevice(0), cnrtSuccess);
    expect_cnrt(cnrtSetDevice(1), cnrtErrorDeviceInvalid);
    expect_cnrt(cnrtSetDevice(-1), cnrtErrorDeviceInvalid);
    expect_cnrt(cnrtSyncDevice(), cnrtSuccess);
}

static void errors(void **state)
{
    (void)state;
    static const cnrtRet_t codes[] = {cnrtSuccess,
                                      cnrtErrorNotReady,
                                      cnrtErrorInit,
                                      cnrtErrorNoDevice,
                                      cnrtErrorDeviceInvalid,
                                      cnrtErrorArgsInvalid,
                                      cnrtErrorSys,
                                      cnrtErrorSysNoMem,
                                      cnrtErrorInvalidResourceHandle,
                                      cnrtErrorIllegalState,
                                      cnrtErrorNotSupport,
                                      cnrtErrorQueue,
                                      cnrtErrorNoMem,
                                      cnrtErrorMemcpyDirectionInvalid,
                                      cnrtErrorUnknown};
    for (size_t a = 0; a < COUNT_OF(codes); a++)
        for (size_t b = 0; b < a; b++)
            assert_string_not_equal(cnrtGetErrorStr(codes[a]), cnrtGetErrorStr(codes[b]));
    assert_string_equal(cnrtGetErrorStr(cnrtErrorArgsInvalid), "cnrtErrorArgsInvalid");
    assert_string_equal(cnrtGetErrorStr((cnrtRet_t)12345), "cnrtErrorUnknown");
    expect_cnrt(cnrtSetDevice(5), cnrtErrorDeviceInvalid);
    expect_cnrt(cnrtPeekAtLastError(), cnrtSuccess);
    expect_cnrt(cnrtGetLastError(), cnrtSuccess);
    CNRT_CHECK(cnrtSyncDevice());
}

/* What programs around the operators use besides. */
static void around(void **state)
{
    (void)state;
    int version[3] = {-1, -1, -1};
    size_t available = 0, total = 0;
    cnrtNotifier_t notifier = NULL;
    cnrtQueue_t queue = NULL;
    expect_cnrt(cnrtGetLibVersion(&version[0], NULL, &version[2]), cnrtErrorArgsInvalid);
    assert_true(version[0] == -1 && version[2] == -1);
    expect_cnrt(cnrtGetLibVersion(&version[0], &version[1], &version[2]), cnrtSuccess);
    assert_true(version[0] * 10000 + version[1] * 100 + version[2] == CNRT_VERSION);
    expect_cnrt(cnrtMemGetInfo(&available, NULL), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtMemGetInfo(NULL, &total), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtMemGetInfo(&available, &total), cnrtSuccess);
    assert_true(available > 0 && available <= total);
    assert_true(total == (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE));
    expect_cnrt(cnrtQueueCreate(&queue), cnrtSuccess);
    expect_cnrt(cnrtNotifierCreate(&notifier), cnrtSuccess);
    expect_cnrt(cnrtPlaceNotifier(notifier, queue), cnrtSuccess);
    expect_cnrt(cnrtQueueWaitNotifier(notifier, NULL, 0), cnrtSuccess);
    expect_cnrt(cnrtQueueWaitNotifier(notifier, queue, 0), cnrtSuccess);
    expect_cnrt(cnrtQueueWaitNotifier(NULL, queue, 0), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtQueueWaitNotifier(notifier, queue, 1), cnrtErrorArgsInvalid);
    expect_cnrt(cnrtDeviceReset(), cnrtSuccess);
    expect_cnrt(cnrtNotifierDestroy(notifier), cnrtSuccess); /* a reset frees nothing */
    CNqueue same = queue;
    expect_cnrt(cnrtQueueDestroy(same), cnrtSuccess);
    const cnrtDim3_t dim = {4, 2, 1};
    const cnrtFunctionType_t kind = CNRT_FUNC_TYPE_UNION1;
    assert_true(dim.x * dim.y * dim.z == 8 && kind == cnrtFuncTypeUnion1);
    assert_true(cnrtFuncTypeBlock == 1 && cnrtFuncTypeBlock1 == 2 && cnrtFuncTypeUnion1 == 4);
    assert_true(cnrtFuncTypeUnion16 == 64 && cnrtFuncTypeMutable == -1);
    assert_true(CN_SUCCESS == 0 && CN_ERROR_UNKNOWN == 200000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),          cmocka_unit_test(memory),
        cmocka_unit_test(no_bytes),        cmocka_unit_test(three_large_tensors),
        cmocka_unit_test(too_much_memory), cmocka_unit_test(bad_copies),
        cmocka_unit_test(queues),          cmocka_unit_test(notifiers),
        cmocka_unit_test(devices),         cmocka_unit_test(errors),
        cmocka_unit_test(around),
    };
    return cmocka_run_group_tests_name("compat mluop runtime", tests, NULL, NULL);
}
