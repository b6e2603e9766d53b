/*
 * The life of executors and descriptors of the aclnn door: what the second phase rejects, what may be destroyed when,
 * what may be used again. Leaks are found by the sanitizer build.
 */
#include "aclnn.h"

#include <pthread.h>

static const float x[2][2] = {{1, 2}, {3, 4}}, permuted[2][2] = {{3, 4}, {1, 2}};
static const uint8_t map[2][2] = {{0, 1}, {1, 0}};

static struct call small(void)
{
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(ACL_FLOAT, 2, 2, x);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 2, 2, map);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(ACL_FLOAT, 2, 2, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(ACL_INT32, 2, NULL);
    c.number[0] = 2;
    return c;
}

static aclOpExecutor *ask(struct call *c, uint64_t *size)
{
    aclOpExecutor *executor = NULL;
    expect_aclnn(c->ask(c, size, &executor), ACLNN_SUCCESS);
    return executor;
}

static void *memory_of(uint64_t size)
{
    void *memory = NULL;
    if (size > 0)
        assert_int_equal(aclrtMalloc(&memory, (size_t)size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    return memory;
}

static void give(void *memory)
{
    if (memory != NULL)
        assert_int_equal(aclrtFree(memory), 0);
}

/* A call that needs a workspace whatever the library needs: its output goes through one. */
static struct call with_workspace(void)
{
    struct call c = small();
    c.args[PERMUTE_OUT].strided = true;
    c.args[PERMUTE_OUT].strides[0] = 1;
    c.args[PERMUTE_OUT].strides[1] = 2;
    return c;
}

static void no_executor(void **state)
{
    (void)state;
    struct call c = small();
    expect_aclnn(c.execute(NULL, 0, NULL, NULL), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclDestroyAclOpExecutor(NULL), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclSetAclOpExecutorRepeatable(NULL), ACLNN_ERR_PARAM_NULLPTR);
}

static void used_up(void **state)
{
    (void)state;
    struct call c = small();
    call_make(&c);
    uint64_t size = 0;
    aclOpExecutor *executor = ask(&c, &size);
    void *memory = memory_of(size);
    expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_SUCCESS);
    memset(c.args[PERMUTE_OUT].mem, 7, c.args[PERMUTE_OUT].bytes);
    expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_ERR_PARAM_INVALID);
    assert_int_equal(c.args[PERMUTE_OUT].mem[0], 7);
    assert_int_equal(aclDestroyAclOpExecutor(executor), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclSetAclOpExecutorRepeatable(executor), ACLNN_ERR_PARAM_NULLPTR);
    assert_int_equal(aclSetInputTensorAddr(executor, 0, NULL, memory), ACLNN_ERR_PARAM_NULLPTR);
    /* New ones are good, also where they lie at the same address. */
    for (int i = 0; i < 100; i++) {
        executor = ask(&c, &size);
        expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_SUCCESS);
        expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_ERR_PARAM_INVALID);
    }
    give(memory);
    call_free(&c);
}

static void of_another_operator(void **state)
{
    (void)state;
    struct call c = small(), other = call_sample();
    call_make(&c);
    uint64_t size = 0;
    aclOpExecutor *executor = ask(&c, &size);
    void *memory = memory_of(size);
    expect_aclnn(other.execute(memory, size, executor, NULL), ACLNN_ERR_PARAM_INVALID);
    expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_SUCCESS); /* still good for its own */
    expect_bytes(c.args[PERMUTE_OUT].mem, permuted, sizeof permuted);
    give(memory);
    call_free(&c);
}

static void wrong_workspace(void **state)
{
    (void)state;
    struct call c = with_workspace();
    call_make(&c);
    uint64_t size = 0;
    for (int fault = 0; fault < 3; fault++) {
        aclOpExecutor *executor = ask(&c, &size);
        assert_true(size > 0);
        char *memory = memory_of(size + 64);
        const aclnnStatus st = fault == 0   ? c.execute(NULL, size, executor, NULL)
                               : fault == 1 ? c.execute(memory, size - 1, executor, NULL)
                                            : c.execute(memory + 1, size, executor, NULL);
        expect_aclnn(st, fault == 0 ? ACLNN_ERR_PARAM_NULLPTR : ACLNN_ERR_PARAM_INVALID);
        expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_ERR_PARAM_INVALID); /* it is used up */
        give(memory);
    }
    for (int i = 0; i < c.count; i++)
        arg_expect_untouched(&c.args[i], true, c.op);
    call_free(&c);
}

/* Descriptors may go between the phases, in any order; and executors that never run. */
static void destroyed_between(void **state)
{
    (void)state;
    for (int first = 0; first < 6; first++) {
        struct call c = with_workspace();
        call_make(&c);
        uint64_t size = 0;
        aclOpExecutor *executor = ask(&c, &size);
        void *memory = memory_of(size);
        for (int i = 0; i < c.count; i++) {
            struct arg *a = &c.args[(first + i) % c.count];
            assert_int_equal(aclDestroyTensor(a->tensor), 0);
            a->tensor = NULL;
        }
        expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_SUCCESS);
        float got[2][2];
        arg_get(&c.args[PERMUTE_OUT], got);
        expect_bytes(got, permuted, sizeof got);
        give(memory);
        call_free(&c);
    }
    struct call c = small();
    call_make(&c);
    uint64_t size = 0;
    assert_int_equal(aclDestroyAclOpExecutor(ask(&c, &size)), 0);
    call_free(&c);
}

static void again_and_again(void **state)
{
    (void)state;
    struct call c = with_workspace();
    call_make(&c);
    uint64_t size = 0;
    aclOpExecutor *executor = ask(&c, &size);
    void *memory = memory_of(size);
    assert_int_equal(aclSetAclOpExecutorRepeatable(executor), 0);
    for (int i = 0; i < 3; i++) {
        float got[2][2];
        memset(c.args[PERMUTE_OUT].mem, 7, c.args[PERMUTE_OUT].bytes);
        expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_SUCCESS);
        arg_get(&c.args[PERMUTE_OUT], got);
        expect_bytes(got, permuted, sizeof got);
    }
    /* Other data, in and out; the map is the second input, the indices are the third output. */
    float other[4] = {5, 6, 7, 8}, out[4] = {0};
    uint8_t straight[4] = {1, 0, 0, 1};
    int32_t index[2];
    assert_int_equal(aclSetInputTensorAddr(executor, 0, NULL, other), 0);
    assert_int_equal(aclSetInputTensorAddr(executor, 1, NULL, straight), 0);
    assert_int_equal(aclSetOutputTensorAddr(executor, 0, NULL, out), 0);
    assert_int_equal(aclSetOutputTensorAddr(executor, 2, NULL, index), 0);
    assert_int_equal(aclSetInputTensorAddr(executor, 2, NULL, other),
                     ACLNN_ERR_PARAM_INVALID); /* probs: none */
    assert_int_equal(aclSetInputTensorAddr(executor, 3, NULL, other), ACLNN_ERR_PARAM_INVALID);
    assert_int_equal(aclSetOutputTensorAddr(executor, 0, NULL, NULL), ACLNN_ERR_PARAM_NULLPTR);
    expect_aclnn(c.execute(memory, size, executor, NULL), ACLNN_SUCCESS);
    expect_bytes(out, ((float[]){5, 7, 6, 8}), sizeof out); /* by columns */
    expect_bytes(index, ((int32_t[]){0, 1}), sizeof index);
    assert_int_equal(aclDestroyAclOpExecutor(executor), 0);
    give(memory);
    call_free(&c);
}

/* The sentence is the thread's own, and told once. */
static void *reject_elsewhere(void *answer)
{
    struct call c = call_sample();
    const bool quiet = aclGetRecentErrMsg()[0] == '\0';
    const bool rejected = c.execute(NULL, 0, NULL, NULL) == ACLNN_ERR_PARAM_NULLPTR;
    *(bool *)answer = quiet && rejected && strstr(aclGetRecentErrMsg(), "aclnnTopKTopPSample:") != NULL;
    return NULL;
}

static void sentences(void **state)
{
    (void)state;
    struct call c = small();
    pthread_t thread;
    bool right = false;
    (void)aclGetRecentErrMsg();
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 3, 2, NULL);
    call_make(&c);
    assert_int_equal(call_run(&c), ACLNN_ERR_PARAM_INVALID);
    assert_int_equal(pthread_create(&thread, NULL, reject_elsewhere, &right), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(right);
    const char *sentence = aclGetRecentErrMsg();
    assert_non_null(strstr(sentence, "aclnnMoeTokenPermuteWithRoutingMap"));
    assert_non_null(strstr(sentence, "routing_map has shape [3,2]"));
    assert_string_equal(aclGetRecentErrMsg(), "");
    call_free(&c);
}

/* Calls of several threads do not meet. */
static void *many_calls(void *answer)
{
    bool right = true;
    for (int i = 0; i < 50; i++) {
        int32_t index[2];
        float out[2][2] = {{0}};
        const int64_t two[2] = {2, 2};
        aclTensor *t =
            aclCreateTensor(two, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, two, 2, (void *)(uintptr_t)x);
        aclTensor *m =
            aclCreateTensor(two, 2, ACL_BOOL, NULL, 0, ACL_FORMAT_ND, two, 2, (void *)(uintptr_t)map);
        aclTensor *y = aclCreateTensor(two, 2, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, two, 2, out);
        aclTensor *s = aclCreateTensor(two, 1, ACL_INT32, NULL, 0, ACL_FORMAT_ND, two, 1, index);
        struct call c = call_permute();
        uint64_t size = 0;
        aclOpExecutor *executor = NULL;
        void *memory = NULL;
        c.args[PERMUTE_TOKENS].tensor = t;
        c.args[PERMUTE_MAP].tensor = m;
        c.args[PERMUTE_OUT].tensor = y;
        c.args[PERMUTE_INDICES].tensor = s;
        c.number[0] = 2;
        right = right && c.ask(&c, &size, &executor) == 0;
        if (size > 0)
            right = right && aclrtMalloc(&memory, (size_t)size, ACL_MEM_MALLOC_NORMAL_ONLY) == 0;
        right = right && c.execute(memory, size, executor, NULL) == 0 && out[0][0] == 3 && out[0][1] == 4 &&
                out[1][0] == 1 && out[1][1] == 2;
        (void)aclDestroyTensor(s);
        (void)aclDestroyTensor(t);
        (void)aclDestroyTensor(y);
        (void)aclDestroyTensor(m);
        free(memory);
    }
    *(bool *)answer = right;
    return NULL;
}

static void several_threads(void **state)
{
    (void)state;
    pthread_t threads[4];
    bool right[4] = {false};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, many_calls, &right[i]), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(right[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_executor),         cmocka_unit_test(used_up),
        cmocka_unit_test(of_another_operator), cmocka_unit_test(wrong_workspace),
        cmocka_unit_test(destroyed_between),   cmocka_unit_test(again_and_again),
        cmocka_unit_test(sentences),           cmocka_unit_test(several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
