/*
 * Device memory: a device that cannot be had, memory of both kinds, and one call that runs there. The other programs run
 * all their calls in device memory once more.
 */
#include "aclnn.h"

static void devices_that_are_not_there(void **state)
{
    (void)state;
    const char *const names[] = {"gpu", "cuda:", "cuda:x", "cuda:-1", "cudas"};
    const char *const before = getenv("SWITCHYARD_COMPAT_DEVICE");
    char *const kept = before != NULL ? strdup(before) : NULL;
    void *data = NULL;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        aclrtResetDevice(0);
        setenv("SWITCHYARD_COMPAT_DEVICE", names[i], 1);
        assert_int_equal(aclrtMalloc(&data, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_DEVICE);
        const char *const sentence = aclGetRecentErrMsg();
        assert_non_null(strstr(sentence, "aclrtMalloc: SWITCHYARD_COMPAT_DEVICE is"));
        assert_non_null(strstr(sentence, "want cuda or cuda:N"));
    }
    setenv("SWITCHYARD_COMPAT_DEVICE", "cuda:4096", 1); /* no library, or not so many devices */
    assert_int_equal(aclrtMalloc(&data, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_DEVICE);
    assert_true(aclGetRecentErrMsg()[0] != '\0');
    unsetenv("SWITCHYARD_COMPAT_DEVICE");
    assert_int_equal(aclrtMalloc(&data, 8, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    assert_int_equal(aclrtFree(data), 0);
    if (kept != NULL)
        setenv("SWITCHYARD_COMPAT_DEVICE", kept, 1);
    free(kept);
}

static void memory(void **state)
{
    (void)state;
    unsigned char here[10000], back[10000];
    void *there, *copy, *host;
    for (size_t i = 0; i < sizeof here; i++)
        here[i] = (unsigned char)(i * 7 + i / 256);
    assert_int_equal(aclrtMalloc(&there, sizeof here, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    assert_int_equal(aclrtMallocAlign32(&copy, sizeof here, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    assert_int_equal(aclrtMallocHost(&host, sizeof here), 0);
    memset(host, 1, sizeof here); /* the host's in any case */
    assert_int_equal(aclrtMemcpy(there, sizeof here, here, sizeof here, ACL_MEMCPY_HOST_TO_DEVICE), 0);
    assert_int_equal(aclrtMemset((char *)there + 50, sizeof here - 50, 0x5a, 9000), 0);
    assert_int_equal(
        aclrtMemcpyAsync(copy, sizeof here, there, sizeof here, ACL_MEMCPY_DEVICE_TO_DEVICE, NULL), 0);
    assert_int_equal(aclrtResetDevice(0), 0); /* memory stays */
    assert_int_equal(aclrtMemcpy(back, sizeof back, copy, sizeof here, ACL_MEMCPY_DEVICE_TO_HOST), 0);
    memset(here + 50, 0x5a, 9000);
    assert_memory_equal(here, back, sizeof here);
    assert_int_equal(aclrtFree(there), 0);
    assert_int_equal(aclrtFree(copy), 0);
    assert_int_equal(aclrtFreeHost(host), 0);
}

static struct call greedy(void)
{
    static const uint16_t logits[2][4] = {{0x3f80, 0x4080, 0x4000, 0x4040}, {0x4100, 0x40a0, 0x40c0, 0x40e0}};
    static const int32_t k[2] = {1, 1};
    static const uint16_t p[2] = {0x3f80, 0x3f80};
    struct call c = call_sample();
    c.args[SAMPLE_LOGITS] = (struct arg)ARG2(ACL_BF16, 2, 4, logits);
    c.args[SAMPLE_K] = (struct arg)ARG1(ACL_INT32, 2, k);
    c.args[SAMPLE_P] = (struct arg)ARG1(ACL_BF16, 2, p);
    c.args[SAMPLE_TOKEN] = (struct arg)ARG1(ACL_INT64, 2, NULL);
    c.args[SAMPLE_MASKED] = (struct arg)ARG2(ACL_FLOAT, 2, 4, NULL);
    return c;
}

static void a_call_there(void **state)
{
    (void)state;
    struct call c = greedy();
    call_expect(&c, ((int64_t[]){1, 0}), NULL);
}

static void memory_of_both_kinds(void **state)
{
    (void)state;
    struct call c = greedy();
    call_make(&c);
    uint64_t size;
    aclOpExecutor *executor;
    expect_aclnn(c.ask(&c, &size, &executor), 0);
    assert_int_equal(aclSetInputTensorAddr(executor, 1, NULL, c.args[SAMPLE_K].mem), 0);
    void *const workspace = buf_new((size_t)size + 1, 0);
    const aclnnStatus st = c.execute(workspace, size, executor, NULL);
    assert_int_equal(st, 161002);
    const char *const want =
        "aclnnTopKTopPSample: logits is in device memory, topK in host memory, want both in one";
    assert_string_equal(aclGetRecentErrMsg(), want);
    buf_free(workspace);
    call_free(&c);
}

static int reset(void **state)
{
    (void)state;
    return aclrtResetDevice(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_that_are_not_there),
        cmocka_unit_test(a_call_there),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(devices_that_are_not_there),
        cmocka_unit_test(a_call_there),
        cmocka_unit_test(memory),
        cmocka_unit_test(memory_of_both_kinds),
    };
    if (on_device())
        return cmocka_run_group_tests_name("compat_aclnn_device", all, NULL, reset);
    return cmocka_run_group_tests_name("compat_aclnn_device", tests, NULL, reset);
}
