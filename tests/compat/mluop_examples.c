/*
 * The worked examples of the dispatch family through the vendor's calls, bit for bit, and the same calls
 * beside the native ones on random data.
 */
#include "mluop.h"

#include <math.h>

#define F(...) ((const float[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})

static void put(struct mlu_call *call, const char *name, const void *values)
{
    const int i = mlu_find(call->op, name);
    memcpy(call->data[i], values, mlu_bytes(call, i));
}

/* Runs a call whose output must become `want`. */
static void check(struct mlu_call *call, const void *want)
{
    expect_mlu(mlu_run(call), MLUOP_STATUS_SUCCESS);
    expect_bytes(call->data[MLU_OUTPUT], want, mlu_bytes(call, MLU_OUTPUT));
    mlu_free(call);
}

static void a_two_rows_unwritten(void **state)
{
    (void)state;
    struct mlu_call call;
    mlu_make(&call, MLU_FORWARD, (struct mlu_sizes){4, 3, 2, 2});
    put(&call, "gates", F(.5f, 2, 1, -1));
    put(&call, "indices", I(1, 0, 1, 0));
    put(&call, "locations", I(0, 0, 1, 2));
    put(&call, "input", F(1, 2, 3, 4, 5, 6, 7, 8));
    put(&call, "dispatch", F(9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9));
    check(&call, F(6, 8, 9, 9, -7, -8, .5f, 1, 5, 6, 9, 9));
}

/* Runs a call that has more samples than slots, which the vendor's forward rejects, and leaves everything
   as it was. */
static void reject(struct mlu_call *call)
{
    const size_t bytes = mlu_bytes(call, MLU_OUTPUT);
    void *const before = buf_new(bytes, 0);
    memcpy(before, call->data[MLU_OUTPUT], bytes);
    expect_mlu(mlu_run(call), MLUOP_STATUS_BAD_PARAM);
    expect_bytes(call->data[MLU_OUTPUT], before, bytes);
    buf_free(before);
    mlu_free(call);
}

/* The example has seven samples for six slots; without one of those that are skipped it passes. */
static void b_skipped_samples(void **state)
{
    (void)state;
    struct mlu_call call;
    mlu_make(&call, MLU_FORWARD, (struct mlu_sizes){7, 2, 2, 3});
    put(&call, "gates", F(1, 1, 1, 1, 1, 1, 3));
    put(&call, "indices", I(-1, 3, 1, 0, 2, 0, 1));
    put(&call, "locations", I(0, 0, -1, 2, -2, -1, 1));
    put(&call, "input", F(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23));
    reject(&call);
    mlu_make(&call, MLU_FORWARD, (struct mlu_sizes){6, 2, 2, 3});
    put(&call, "gates", F(1, 1, 1, 1, 1, 3));
    put(&call, "indices", I(-1, 3, 1, 0, 2, 1));
    put(&call, "locations", I(0, 0, -1, 2, -2, 1));
    put(&call, "input", F(10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 22, 23));
    put(&call, "dispatch", F(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    check(&call, F(0, 0, 0, 0, 0, 0, 66, 69, 0, 0, 0, 0));
    mlu_make(&call, MLU_FORWARD, (struct mlu_sizes){2, 2, 1, 1});
    put(&call, "gates", F(1, 1));
    put(&call, "indices", I(INT32_MIN, INT32_MAX));
    put(&call, "locations", I(INT32_MAX, INT32_MIN));
    put(&call, "input", F(NAN, INFINITY));
    put(&call, "dispatch", F(7, 8));
    check(&call, F(7, 8));
}

/* Of samples that share a slot the last one wins. The example has five samples for two slots, so it passes
   with five. */
static void c_duplicates(void **state)
{
    (void)state;
    for (int capacity = 2; capacity <= 5; capacity += 3) {
        struct mlu_call call;
        mlu_make(&call, MLU_FORWARD, (struct mlu_sizes){5, capacity, 2, 1});
        put(&call, "gates", F(1, 2, 4, .5f, 1));
        put(&call, "indices", I(0, 0, 0, 0, 0));
        put(&call, "locations", I(1, 1, 0, 1, -1));
        put(&call, "input", F(1, 2, 3, 4, 5, 6, 8, 10, 7, 7));
        put(&call, "dispatch", F(100, 100, 100, 100, 100, 100, 100, 100, 100, 100));
        if (capacity == 2)
            reject(&call);
        else
            check(&call, F(20, 24, 4, 5, 100, 100, 100, 100, 100, 100));
    }
}

static void d_gradients(void **state)
{
    (void)state;
    const float nan10[10] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN};
    struct mlu_call call;
    mlu_make(&call, MLU_DATA, (struct mlu_sizes){5, 2, 2, 1});
    put(&call, "gates", F(1, 2, 4, .5f, 1));
    put(&call, "indices", I(0, 0, 0, 0, 0));
    put(&call, "locations", I(1, 1, 0, 1, -1));
    put(&call, "dispatch", F(1, -1, 2, .5f));
    put(&call, "grad_input", nan10);
    check(&call, F(2, .5f, 4, 1, 4, -4, 1, .25f, 0, 0));
    mlu_make(&call, MLU_GATE, (struct mlu_sizes){5, 2, 2, 1});
    put(&call, "indices", I(0, 0, 0, 0, 0));
    put(&call, "locations", I(1, 1, 0, 1, -1));
    put(&call, "input", F(1, 2, 3, 4, 5, 6, 8, 10, 7, 7));
    put(&call, "dispatch", F(1, -1, 2, .5f));
    put(&call, "grad_gates", nan10);
    check(&call, F(3, 8, -1, 21, 0));
}

/* Two choices are two calls on one buffer. Here they are the encoding of example E and the gradient of its
   decoding. */
static void e_two_choices(void **state)
{
    (void)state;
    const struct mlu_sizes sizes = {5, 2, 1, 3};
    const int32_t indices[2][5] = {{0, 0, 2, 1, 0}, {1, 2, 1, 0, 1}};
    const int32_t locations[2][5] = {{0, 1, 0, 0, 2}, {1, 1, 2, 3, 3}};
    const float gates[2][5] = {{.5f, .75f, .25f, .5f, 1}, {.5f, .25f, .75f, .5f, 0}};
    const float terms[2][5] = {{5, 15, 12.5f, 15, 0}, {20, 15, 0, 0, 0}};
    const float grad_gates[2][5] = {{10, 20, 50, 30, 0}, {40, 60, 0, 0, 0}};
    struct mlu_call encode, grad, call;
    mlu_make(&encode, MLU_FORWARD, sizes);
    mlu_make(&grad, MLU_FORWARD, sizes);
    memset(encode.data[MLU_OUTPUT], 0, mlu_bytes(&encode, MLU_OUTPUT));
    memset(grad.data[MLU_OUTPUT], 0, mlu_bytes(&grad, MLU_OUTPUT));
    for (int t = 0; t < 2; t++) {
        put(&encode, "gates", F(1, 1, 1, 1, 1));
        put(&encode, "indices", indices[t]);
        put(&encode, "locations", locations[t]);
        put(&encode, "input", F(1, 2, 3, 4, 5));
        expect_mlu(mlu_run(&encode), MLUOP_STATUS_SUCCESS);
        put(&grad, "gates", gates[t]);
        put(&grad, "indices", indices[t]);
        put(&grad, "locations", locations[t]);
        put(&grad, "input", F(1, 1, 1, 1, 1));
        expect_mlu(mlu_run(&grad), MLUOP_STATUS_SUCCESS);
        mlu_make(&call, MLU_DATA, sizes); /* the terms of the decoding, to be added up */
        put(&call, "gates", gates[t]);
        put(&call, "indices", indices[t]);
        put(&call, "locations", locations[t]);
        put(&call, "dispatch", F(10, 20, 30, 40, 50, 60));
        check(&call, terms[t]);
        mlu_make(&call, MLU_GATE, sizes);
        put(&call, "indices", indices[t]);
        put(&call, "locations", locations[t]);
        put(&call, "input", F(1, 1, 1, 1, 1));
        put(&call, "dispatch", F(10, 20, 30, 40, 50, 60));
        check(&call, grad_gates[t]);
    }
    expect_bytes(encode.data[MLU_OUTPUT], F(1, 2, 4, 1, 3, 2), 24);
    expect_bytes(grad.data[MLU_OUTPUT], F(.5f, .75f, .5f, .5f, .25f, .25f), 24);
    mlu_free(&encode);
    mlu_free(&grad);
}

static void f_dispatch_is_input(void **state)
{
    (void)state;
    struct mlu_call call;
    mlu_make(&call, MLU_FORWARD, (struct mlu_sizes){3, 3, 1, 1});
    put(&call, "gates", F(2, 3, 1));
    put(&call, "indices", I(0, 0, 0));
    put(&call, "locations", I(1, 0, 1));
    put(&call, "input", F(1, 10, 100));
    put(&call, "dispatch", F(1, 10, 100));
    expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
    expect_bytes(call.data[MLU_OUTPUT], F(30, 100, 100), 12);
    void *const apart = call.data[MLU_OUTPUT];
    call.data[MLU_OUTPUT] = call.data[mlu_find(MLU_FORWARD, "input")];
    expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
    expect_bytes(call.data[MLU_OUTPUT], F(6, 100, 100), 12);
    call.data[MLU_OUTPUT] = apart;
    mlu_free(&call);
}

static void g_special_values(void **state)
{
    (void)state;
    const float tiny = f32_from_bits(1);
    const uint32_t want[5] = {0x7fc00000, 0x80000000, 0x7fc00000, 0x00000001, 0x7f800000};
    for (int op = MLU_FORWARD; op <= MLU_DATA; op++) {
        struct mlu_call call;
        mlu_make(&call, (enum mlu_op)op, (struct mlu_sizes){5, 5, 1, 1});
        put(&call, "gates", F(0, -0.0f, 1, 1, 3e38f));
        put(&call, "indices", I(0, 0, 0, 0, 0));
        put(&call, "locations", I(0, 1, 2, 3, 4));
        put(&call, op == MLU_FORWARD ? "input" : "dispatch", F(INFINITY, 1, NAN, tiny, 10));
        check(&call, want);
    }
}

/* ---- Beside the native calls ----------------------------------------------------------------------- */

static sy_status run_native(sy_ctx *ctx, const struct mlu_call *call, void *output)
{
    int64_t shape[MLU_TENSORS][2];
    DLTensor t[MLU_TENSORS];
    for (int i = 0; i < MLU_TENSORS; i++) {
        mlu_shape(call->op, i, &call->sizes, shape[i]);
        t[i] = sy_tensor(i == MLU_OUTPUT ? output : call->data[i],
                         mlu_dtype(call->op, i) == MLUOP_DTYPE_INT32 ? SY_I32 : SY_F32, mlu_rank(call->op, i),
                         shape[i]);
    }
    const int64_t e = call->sizes.num_experts, c = call->sizes.capacity;
    switch (call->op) {
    case MLU_FORWARD:
        return sy_moe_dispatch(ctx, &(sy_moe_dispatch_args){.gates = &t[0],
                                                            .indices = &t[1],
                                                            .locations = &t[2],
                                                            .input = &t[3],
                                                            .num_experts = e,
                                                            .capacity = c,
                                                            .dispatch = &t[4]});
    case MLU_DATA:
        return sy_moe_combine(ctx, &(sy_moe_combine_args){.gates = &t[0],
                                                          .indices = &t[1],
                                                          .locations = &t[2],
                                                          .expert_out = &t[3],
                                                          .num_experts = e,
                                                          .capacity = c,
                                                          .output = &t[4]});
    default:
        return sy_moe_dispatch_grad_gate(ctx, &(sy_moe_dispatch_grad_gate_args){.indices = &t[0],
                                                                                .locations = &t[1],
                                                                                .input = &t[2],
                                                                                .dispatch = &t[3],
                                                                                .num_experts = e,
                                                                                .capacity = c,
                                                                                .grad_gates = &t[4]});
    }
}

/* Bits of all kinds, NaN and infinities among them; indices and locations in and around their range. */
static void fill(struct mlu_call *call, uint64_t *rng)
{
    for (int i = 0; i < MLU_TENSORS; i++) {
        const char *const name = mlu_tensor_names[call->op][i];
        const bool index = strcmp(name, "indices") == 0;
        if (!index && strcmp(name, "locations") != 0) {
            rng_fill(rng, call->data[i], mlu_bytes(call, i));
            continue;
        }
        const int64_t limit = index ? call->sizes.num_experts : call->sizes.capacity;
        for (int64_t s = 0; s < call->sizes.samples; s++)
            ((int32_t *)call->data[i])[s] = (int32_t)(rng_below(rng, limit + 2) - 1);
    }
}

static void equals_the_native_call(void **state)
{
    (void)state;
    uint64_t rng = 20260;
    sy_ctx *const ctx = test_ctx(0, NULL);
    static const struct mlu_sizes sizes[] = {{1, 1, 1, 1},    {3, 2, 5, 2},    {33, 40, 17, 3},
                                             {64, 64, 96, 2}, {7, 9, 8193, 1}, {40009, 20005, 2, 2}};
    for (int op = 0; op < MLU_OPS; op++)
        for (size_t k = 0; k < COUNT_OF(sizes); k++) {
            struct mlu_call call;
            mlu_make(&call, (enum mlu_op)op, sizes[k]);
            fill(&call, &rng);
            const size_t bytes = mlu_bytes(&call, MLU_OUTPUT);
            void *const want = buf_new(bytes, 0);
            memcpy(want, call.data[MLU_OUTPUT], bytes);
            expect_status(ctx, run_native(ctx, &call, want), SY_OK);
            expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
            expect_bytes(call.data[MLU_OUTPUT], want, bytes);
            buf_free(want);
            mlu_free(&call);
        }
    sy_ctx_destroy(ctx);
}

/* Longer than the vendor's kernel holds at once; its last batch would read earlier samples. */
static void a_long_list_reaches_its_end(void **state)
{
    (void)state;
    enum { S = 40009 };
    struct mlu_call call;
    mlu_make(&call, MLU_FORWARD, (struct mlu_sizes){S, S, 1, 1});
    for (int s = 0; s < S; s++) {
        ((float *)call.data[0])[s] = 2;
        ((int32_t *)call.data[1])[s] = 0;
        ((int32_t *)call.data[2])[s] = S - 1 - s;
        ((float *)call.data[3])[s] = (float)s;
    }
    expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
    for (int s = 0; s < S; s++)
        assert_true(((const float *)call.data[4])[s] == 2 * (float)(S - 1 - s));
    mlu_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_two_rows_unwritten),
        cmocka_unit_test(b_skipped_samples),
        cmocka_unit_test(c_duplicates),
        cmocka_unit_test(d_gradients),
        cmocka_unit_test(e_two_choices),
        cmocka_unit_test(f_dispatch_is_input),
        cmocka_unit_test(g_special_values),
        cmocka_unit_test(equals_the_native_call),
        cmocka_unit_test(a_long_list_reaches_its_end),
    };
    return cmocka_run_group_tests_name("compat mluop examples", tests, NULL, NULL);
}
