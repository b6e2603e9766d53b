/*
 * The life of executors and descriptors: what the second phase rejects, what may be destroyed when, what may be used
 * again; sentences and threads; devices. Leaks are found by the sanitizer build. All calls are of the case "two tokens".
 */
#include "aclnn.h"

#include <pthread.h>

/* A call that needs a workspace whatever the library needs: its output goes through one. */
static void load(struct call *c, bool with_workspace)
{
    acl_call_named(c, "two tokens");
    if (with_workspace)
        acl_call_change(c, "out strides 1,2");
    acl_call_make(c);
}

static aclOpExecutor *ask(struct call *c, uint64_t *size)
{
    aclOpExecutor *executor = NULL;
    expect_aclnn(acl_call_ask(c, size, &executor), ACLNN_SUCCESS);
    return executor;
}

static void *memory_of(uint64_t size)
{
    void *memory = NULL;
    if (size > 0)
        ok(aclrtMalloc(&memory, (size_t)size, ACL_MEM_MALLOC_HUGE_FIRST));
    return memory;
}

static void give(void *memory)
{
    if (memory != NULL)
        ok(aclrtFree(memory));
}

static void expect_permuted(struct call *c)
{
    float got[2][2];
    arg_get(acl_call_arg(c, "out"), got);
    expect_bytes(got, acl_call_arg(c, "out")->want, sizeof got);
}

TEST(no_executor)
{
    assert_int_equal(aclDestroyAclOpExecutor(NULL), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclSetAclOpExecutorRepeatable(NULL), ACLNN_ERR_PARAM_NULLPTR);
}

TEST(used_up)
{
    struct call c;
    uint64_t size = 0;
    load(&c, false);
    aclOpExecutor *executor = ask(&c, &size);
    void *memory = memory_of(size);
    struct arg *const out = acl_call_arg(&c, "out");
    expect_aclnn(c.op->execute(memory, size, executor, NULL), ACLNN_SUCCESS);
    memset(out->mem, 7, out->bytes);
    expect_aclnn(c.op->execute(memory, size, executor, NULL), ACLNN_ERR_PARAM_INVALID);
    assert_int_equal(out->mem[0], 7);
    assert_int_equal(aclDestroyAclOpExecutor(executor), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclSetAclOpExecutorRepeatable(executor), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclSetInputTensorAddr(executor, 0, NULL, out->mem), ACLNN_ERR_PARAM_NULLPTR);
    /* New ones are valid, also where they have the same address. */
    for (int i = 0; i < 100; i++) {
        executor = ask(&c, &size);
        expect_aclnn(c.op->execute(memory, size, executor, NULL), ACLNN_SUCCESS);
        expect_aclnn(c.op->execute(memory, size, executor, NULL), ACLNN_ERR_PARAM_INVALID);
    }
    expect_permuted(&c);
    give(memory);
    acl_call_free(&c);
}

TEST(wrong_workspace)
{
    struct call c;
    uint64_t size = 0;
    load(&c, true);
    for (int fault = 0; fault < 3; fault++) {
        aclOpExecutor *executor = ask(&c, &size);
        assert_true(size > 0);
        char *memory = memory_of(size + 64);
        const aclnnStatus st =
            c.op->execute(fault == 0 ? NULL : memory + (fault == 2), size - (fault == 1), executor, NULL);
        expect_aclnn(st, fault == 0 ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID);
        expect_aclnn(c.op->execute(memory, size, executor, NULL), ACLNN_ERR_PARAM_INVALID); /* used up */
        give(memory);
    }
    call_expect_untouched(&c, "workspace");
    acl_call_free(&c);
}

/* Descriptors may be destroyed between the phases, in any order; and executors that never run. */
TEST(destroyed_between)
{
    struct call c;
    uint64_t size = 0;
    for (int first = 0; first < 6; first++) {
        load(&c, true);
        aclOpExecutor *executor = ask(&c, &size);
        void *memory = memory_of(size);
        for (int i = 0; i < c.count; i++) {
            struct arg *a = &c.args[(first + i) % c.count];
            ok(aclDestroyTensor(a->tensor));
            a->tensor = NULL;
        }
        expect_aclnn(c.op->execute(memory, size, executor, NULL), ACLNN_SUCCESS);
        expect_permuted(&c);
        give(memory);
        acl_call_free(&c);
    }
    load(&c, false);
    ok(aclDestroyAclOpExecutor(ask(&c, &size)));
    acl_call_free(&c);
}

TEST(again_and_again)
{
    struct call c;
    uint64_t size = 0;
    load(&c, true);
    aclOpExecutor *executor = ask(&c, &size);
    void *memory = memory_of(size);
    struct arg *const to = acl_call_arg(&c, "out");
    ok(aclSetAclOpExecutorRepeatable(executor));
    for (int i = 0; i < 3; i++) {
        memset(to->mem, 7, to->bytes);
        expect_aclnn(c.op->execute(memory, size, executor, NULL), ACLNN_SUCCESS);
        expect_permuted(&c);
    }
    /* Other data, in and out; the map is the second input, the indices are the third output. */
    float other[4] = {5, 6, 7, 8}, out[4] = {0};
    uint8_t straight[4] = {1, 0, 0, 1};
    int32_t index[2];
    ok(aclSetInputTensorAddr(executor, 0, NULL, other));
    ok(aclSetInputTensorAddr(executor, 1, NULL, straight));
    ok(aclSetOutputTensorAddr(executor, 0, NULL, out));
    ok(aclSetOutputTensorAddr(executor, 2, NULL, index));
    for (size_t i = 2; i < 4; i++) /* no probs, and no input after them */
        assert_int_equal(aclSetInputTensorAddr(executor, i, NULL, other), ACLNN_ERR_PARAM_INVALID);
    assert_int_equal(aclSetOutputTensorAddr(executor, 0, NULL, NULL), ACLNN_ERR_PARAM_NULLPTR);
    expect_aclnn(c.op->execute(memory, size, executor, NULL), ACLNN_SUCCESS);
    expect_bytes(out, ((float[]){5, 7, 6, 8}), sizeof out); /* by columns */
    expect_bytes(index, ((int32_t[]){0, 1}), sizeof index);
    ok(aclDestroyAclOpExecutor(executor));
    give(memory);
    acl_call_free(&c);
}

/* Input and output as parts of the rows of one wider tensor: columns 3 and 4, 2 and 3, and 1 and 2, which overlap. */
TEST(parts_of_one_tensor)
{
    const float want[3][2][5] = {{{1, 2, 9, 3, 4}, {3, 4, 9, 1, 2}},
                                 {{1, 2, 3, 4, 9}, {3, 4, 1, 2, 9}},
                                 {{1, 2, 9, 9, 9}, {3, 4, 9, 9, 9}}};
    const int64_t dims[2] = {2, 2}, strides[2] = {5, 1};
    for (int shift = 0; shift < 3; shift++) {
        float memory[2][5] = {{1, 2, 9, 9, 9}, {3, 4, 9, 9, 9}};
        struct call c;
        load(&c, false);
        struct arg *const parts[2] = {acl_call_arg(&c, "tokens"), acl_call_arg(&c, "out")};
        for (int i = 0; i < 2; i++) {
            ok(aclDestroyTensor(parts[i]->tensor));
            parts[i]->tensor =
                aclCreateTensor(dims, 2, ACL_FLOAT, strides, i * (3 - shift), ACL_FORMAT_ND, dims, 2, memory);
        }
        expect_aclnn(acl_call_run(&c), shift < 2 ? ACLNN_SUCCESS : ACLNN_ERR_PARAM_INVALID);
        expect_bytes(memory, want[shift], sizeof memory);
        acl_call_free(&c);
    }
}

/* ---- Sentences and threads ---- */

/* The sentence is the thread's own, and returned once. */
static void *reject_elsewhere(void *answer)
{
    const bool quiet = aclGetRecentErrMsg()[0] == '\0';
    const bool rejected = aclnn_ops[0]->execute(NULL, 0, NULL, NULL) == ACLNN_ERR_PARAM_NULLPTR;
    *(bool *)answer = quiet && rejected && strstr(aclGetRecentErrMsg(), "executor is null") != NULL;
    return NULL;
}

TEST(sentences)
{
    static const char *const rows[][2] = {
        {"map 3,2", "routing_map has shape [3,2]"},
        {"tokens f64", ": tokens is DOUBLE (11), want FLOAT, FLOAT16 or BF16"},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct call c;
        pthread_t thread;
        bool right = false;
        (void)aclGetRecentErrMsg();
        acl_call_named(&c, "two tokens");
        acl_call_change(&c, rows[i][0]);
        acl_call_make(&c);
        assert_int_equal(acl_call_run(&c), ACLNN_ERR_PARAM_INVALID);
        ok(pthread_create(&thread, NULL, reject_elsewhere, &right));
        ok(pthread_join(thread, NULL));
        assert_true(right);
        const char *const sentence = aclGetRecentErrMsg();
        assert_ptr_equal(strstr(sentence, "aclnnMoeTokenPermuteWithRoutingMap: "), sentence);
        assert_non_null(strstr(sentence, rows[i][1]));
        assert_string_equal(aclGetRecentErrMsg(), "");
        acl_call_free(&c);
    }
}

/* Calls of several threads are independent. Each thread has a call of its own; asserts are the main thread's. */
struct worker {
    struct call call;
    bool right;
};

static void *many_calls(void *state)
{
    struct worker *const w = state;
    w->right = true;
    for (int i = 0; i < 50; i++) {
        uint64_t size = 0;
        aclOpExecutor *executor = NULL;
        void *memory = NULL;
        struct arg *const out = &w->call.args[w->call.first_output];
        memset(out->mem, 0, out->bytes);
        w->right = w->right && w->call.op->ask(&w->call, &size, &executor) == 0;
        if (size > 0)
            w->right = w->right && aclrtMalloc(&memory, (size_t)size, ACL_MEM_MALLOC_NORMAL_ONLY) == 0;
        w->right = w->right && w->call.op->execute(memory, size, executor, NULL) == 0 &&
                   memcmp(out->mem, out->want, out->bytes) == 0;
        free(memory);
    }
    return NULL;
}

TEST(several_threads)
{
    static struct worker workers[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        load(&workers[i].call, false);
        ok(pthread_create(&threads[i], NULL, many_calls, &workers[i]));
    }
    for (int i = 0; i < 4; i++) {
        ok(pthread_join(threads[i], NULL));
        assert_true(workers[i].right);
        acl_call_free(&workers[i].call);
    }
}

/* ---- Devices ---- */

TEST(devices_that_are_not_there)
{
    /* The last has no library, or not so many devices. */
    const char *const names[] = {"gpu", "cuda:", "cuda:x", "cuda:-1", "cudas", "cuda:4096"};
    const char *const before = getenv("SWITCHYARD_COMPAT_DEVICE");
    char *const kept = before != NULL ? strdup(before) : NULL;
    void *data = NULL;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        aclrtResetDevice(0);
        setenv("SWITCHYARD_COMPAT_DEVICE", names[i], 1);
        assert_int_equal(aclrtMalloc(&data, 8, ACL_MEM_MALLOC_HUGE_FIRST), ACL_ERROR_INVALID_DEVICE);
        const char *const sentence = aclGetRecentErrMsg();
        assert_true(sentence[0] != '\0');
        if (i < COUNT_OF(names) - 1) {
            assert_non_null(strstr(sentence, "aclrtMalloc: SWITCHYARD_COMPAT_DEVICE is"));
            assert_non_null(strstr(sentence, "want cuda or cuda:N"));
        }
    }
    unsetenv("SWITCHYARD_COMPAT_DEVICE");
    give(memory_of(8));
    if (kept != NULL)
        setenv("SWITCHYARD_COMPAT_DEVICE", kept, 1);
    free(kept);
    ok(aclrtResetDevice(0));
}

TEST(memory_there)
{
    unsigned char here[10000], back[10000];
    void *there = memory_of(sizeof here), *copy, *host;
    for (size_t i = 0; i < sizeof here; i++)
        here[i] = (unsigned char)(i * 7 + i / 256);
    ok(aclrtMallocAlign32(&copy, sizeof here, ACL_MEM_MALLOC_HUGE_FIRST));
    ok(aclrtMallocHost(&host, sizeof here));
    memset(host, 1, sizeof here); /* the host's in any case */
    ok(aclrtMemcpy(there, sizeof here, here, sizeof here, ACL_MEMCPY_HOST_TO_DEVICE));
    ok(aclrtMemset((char *)there + 50, sizeof here - 50, 0x5a, 9000));
    ok(aclrtMemcpyAsync(copy, sizeof here, there, sizeof here, ACL_MEMCPY_DEVICE_TO_DEVICE, NULL));
    ok(aclrtResetDevice(0)); /* memory stays */
    ok(aclrtMemcpy(back, sizeof back, copy, sizeof here, ACL_MEMCPY_DEVICE_TO_HOST));
    memset(here + 50, 0x5a, 9000);
    assert_memory_equal(here, back, sizeof here);
    give(there);
    give(copy);
    ok(aclrtFreeHost(host));
}

TEST(memory_of_both_kinds)
{
    struct call c;
    uint64_t size;
    acl_call_named(&c, "v1: the token alone");
    acl_call_make(&c);
    aclOpExecutor *const executor = ask(&c, &size);
    ok(aclSetInputTensorAddr(executor, 1, NULL, acl_call_arg(&c, "k")->mem));
    void *const workspace = buf_new((size_t)size + 1, 0);
    assert_int_equal(c.op->execute(workspace, size, executor, NULL), ACLNN_ERR_PARAM_INVALID);
    assert_string_equal(
        aclGetRecentErrMsg(),
        "aclnnTopKTopPSample: logits is in device memory, topK in host memory, want both in one");
    buf_free(workspace);
    acl_call_free(&c);
}

void add_lifetimes(struct test_list *list)
{
    TEST_ADD(list, no_executor);
    TEST_ADD(list, sentences);
    TEST_ADD(list, devices_that_are_not_there);
    TEST_ADD(list, memory_there);
    if (on_device()) {
        TEST_ADD(list, memory_of_both_kinds);
        return;
    } /* the others use memory of the host */
    TEST_ADD(list, used_up);
    TEST_ADD(list, wrong_workspace);
    TEST_ADD(list, destroyed_between);
    TEST_ADD(list, again_and_again);
    TEST_ADD(list, parts_of_one_tensor);
    TEST_ADD(list, several_threads);
}
