/*
 * The runtime subset: values of the enumerators, memory, queues, notifiers, devices, errors, and NULL
 * everywhere.
 */
#include "mluop.h"

#include "cn_api.h"
#include "cnrt.h"

#include <unistd.h>

#undef ok
#undef bad
#define ok(call) cnrt_ok(call)
#define bad(call) expect_cnrt(call, cnrtErrorArgsInvalid)

TEST(values)
{
    assert_true(cnrtSuccess == 0 && cnrtErrorArgsInvalid == 100006 && cnrtErrorNoMem == 100100);
    assert_true(cnrtErrorDeviceInvalid == 100005 && cnrtErrorMemcpyDirectionInvalid == 632013);
    assert_true(cnrtMemcpyHostToDev == 0 && cnrtMemcpyDevToDev == 1 && cnrtMemcpyDevToHost == 2);
    assert_true(cnrtMemcpyHostToHost == 3 && cnrtMemcpyPeerToPeer == 4 && cnrtMemcpyNoDirection == 5);
    assert_true(CNRT_MEM_TRANS_DIR_HOST2DEV == 0 && CNRT_MEM_TRANS_DIR_DEV2HOST == 2);
}

TEST(memory)
{
    void *device = NULL, *host = NULL;
    bad(cnrtMalloc(NULL, 4));
    bad(cnrtHostMalloc(NULL, 4));
    ok(cnrtMalloc(&device, 1000));
    ok(cnrtHostMalloc(&host, 1000));
    assert_true(device != NULL && host != NULL && (uintptr_t)device % 64 == 0);
    ok(cnrtMemset(device, 0x1ab, 1000));
    ok(cnrtMemcpy(host, device, 1000, cnrtMemcpyDevToHost));
    assert_true(((unsigned char *)host)[0] == 0xab && ((unsigned char *)host)[999] == 0xab);
    ok(cnrtMemsetAsync(host, 7, 10, NULL));
    ok(cnrtMemcpyAsync_V3(device, host, 10, NULL, cnrtMemcpyHostToDev));
    assert_true(((unsigned char *)device)[9] == 7 && ((unsigned char *)device)[10] == 0xab);
    ok(cnrtFree(device));
    ok(cnrtFreeHost(host));
    ok(cnrtFree(NULL));
    ok(cnrtFreeHost(NULL));
}

/* Nothing is there to be touched, and nothing to be lost by a program that forgets it. */
TEST(no_bytes)
{
    void *ptr = &ptr;
    ok(cnrtMalloc(&ptr, 0));
    assert_null(ptr);
    ok(cnrtMemcpy(NULL, NULL, 0, cnrtMemcpyNoDirection));
    ok(cnrtMemset(NULL, 0, 0));
    ok(cnrtFree(ptr));
}

/* Sizes that a program asks for only to have them rejected: the pages are not touched. */
TEST(three_large_tensors)
{
    const size_t bytes = (size_t)1073741825 * 4;
    void *ptr[3];
    if ((size_t)sysconf(_SC_PHYS_PAGES) < bytes / (size_t)sysconf(_SC_PAGESIZE))
        skip_because("this machine has less than 4 GiB of memory");
    for (int i = 0; i < 3; i++)
        ok(cnrtMalloc(&ptr[i], bytes));
    for (int i = 0; i < 3; i++)
        ok(cnrtFree(ptr[i]));
}

TEST(too_much_memory)
{
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

TEST(bad_copies)
{
    char a[4] = "abc", b[4] = "xyz";
    bad(cnrtMemcpy(NULL, b, 4, cnrtMemcpyHostToDev));
    bad(cnrtMemcpy(a, NULL, 4, cnrtMemcpyHostToDev));
    expect_cnrt(cnrtMemcpy(a, b, 4, (cnrtMemTransDir_t)6), cnrtErrorMemcpyDirectionInvalid);
    expect_cnrt(cnrtMemcpy(a, b, 4, (cnrtMemTransDir_t)-1), cnrtErrorMemcpyDirectionInvalid);
    bad(cnrtMemcpyAsync_V3(a, NULL, 4, NULL, cnrtMemcpyHostToDev));
    bad(cnrtMemset(NULL, 0, 1));
    bad(cnrtMemsetAsync(NULL, 0, 1, NULL));
    assert_string_equal(a, "abc");
}

TEST(queues)
{
    cnrtQueue_t queue = NULL;
    ok(cnrtQueueSync(NULL));
    bad(cnrtQueueCreate(NULL));
    bad(cnrtQueueDestroy(NULL));
    ok(cnrtQueueCreate(&queue));
    assert_non_null(queue);
    ok(cnrtQueueSync(queue));
    ok(cnrtQueueDestroy(queue));
}

TEST(notifiers)
{
    cnrtNotifier_t start = NULL, end = NULL;
    float us = -1, ms = -1;
    bad(cnrtNotifierCreate(NULL));
    bad(cnrtNotifierDestroy(NULL));
    bad(cnrtPlaceNotifier(NULL, NULL));
    ok(cnrtNotifierCreate(&start));
    ok(cnrtNotifierCreate(&end));
    ok(cnrtPlaceNotifier(start, NULL));
    expect_cnrt(cnrtNotifierDuration(start, end, &us), cnrtErrorIllegalState);
    expect_cnrt(cnrtNotifierDuration(end, start, &us), cnrtErrorIllegalState);
    ok(cnrtPlaceNotifier(end, NULL));
    bad(cnrtNotifierDuration(NULL, end, &us));
    bad(cnrtNotifierDuration(start, NULL, &us));
    bad(cnrtNotifierElapsedTime(start, end, NULL));
    assert_true(us == -1);
    do { /* until the clock has moved on */
        ok(cnrtPlaceNotifier(end, NULL));
        ok(cnrtNotifierDuration(start, end, &us));
    } while (us == 0);
    ok(cnrtNotifierElapsedTime(start, end, &ms));
    /* One number in two units, each rounded by itself. */
    assert_true(us > 0 && 1000 * (double)ms > 0.99999 * us && 1000 * (double)ms < 1.00001 * us);
    ok(cnrtNotifierDuration(end, start, &ms));
    assert_true(ms == -us);
    ok(cnrtNotifierDestroy(start));
    ok(cnrtNotifierDestroy(end));
}

TEST(devices)
{
    int device = -1;
    unsigned int count = 0;
    bad(cnrtGetDevice(NULL));
    bad(cnrtGetDeviceCount(NULL));
    ok(cnrtGetDevice(&device));
    ok(cnrtGetDeviceCount(&count));
    assert_true(device == 0 && count == 1);
    ok(cnrtSetDevice(0));
    expect_cnrt(cnrtSetDevice(1), cnrtErrorDeviceInvalid);
    expect_cnrt(cnrtSetDevice(-1), cnrtErrorDeviceInvalid);
    ok(cnrtSyncDevice());
}

TEST(errors)
{
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
    ok(cnrtPeekAtLastError());
    ok(cnrtGetLastError());
    CNRT_CHECK(cnrtSyncDevice());
}

/* What programs around the operators use besides. */
TEST(around)
{
    int version[3] = {-1, -1, -1};
    size_t available = 0, total = 0;
    cnrtNotifier_t notifier = NULL;
    cnrtQueue_t queue = NULL;
    bad(cnrtGetLibVersion(&version[0], NULL, &version[2]));
    assert_true(version[0] == -1 && version[2] == -1);
    ok(cnrtGetLibVersion(&version[0], &version[1], &version[2]));
    assert_true(version[0] * 10000 + version[1] * 100 + version[2] == CNRT_VERSION);
    bad(cnrtMemGetInfo(&available, NULL));
    bad(cnrtMemGetInfo(NULL, &total));
    ok(cnrtMemGetInfo(&available, &total));
    assert_true(available > 0 && available <= total);
    assert_true(total == (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE));
    ok(cnrtQueueCreate(&queue));
    ok(cnrtNotifierCreate(&notifier));
    ok(cnrtPlaceNotifier(notifier, queue));
    ok(cnrtQueueWaitNotifier(notifier, NULL, 0));
    ok(cnrtQueueWaitNotifier(notifier, queue, 0));
    bad(cnrtQueueWaitNotifier(NULL, queue, 0));
    bad(cnrtQueueWaitNotifier(notifier, queue, 1));
    ok(cnrtDeviceReset());
    ok(cnrtNotifierDestroy(notifier)); /* a reset frees nothing */
    CNqueue same = queue;
    ok(cnrtQueueDestroy(same));
    const cnrtDim3_t dim = {4, 2, 1};
    const cnrtFunctionType_t kind = CNRT_FUNC_TYPE_UNION1;
    assert_true(dim.x * dim.y * dim.z == 8 && kind == cnrtFuncTypeUnion1);
    assert_true(cnrtFuncTypeBlock == 1 && cnrtFuncTypeBlock1 == 2 && cnrtFuncTypeUnion1 == 4);
    assert_true(cnrtFuncTypeUnion16 == 64 && cnrtFuncTypeMutable == -1);
    assert_true(CN_SUCCESS == 0 && CN_ERROR_UNKNOWN == 200000);
}

void add_runtime(struct test_list *list)
{
    for (size_t i = 0; i < own_tests.count; i++)
        test_add(list, own_tests.tests[i].name, own_tests.tests[i].test_func, NULL);
}
