/*
 * The three operators as one kind of call.
 */
#include "mluop.h"

const char *const mlu_op_names[MLU_OPS] = {"forward", "backward_data", "backward_gate"};
const char *const mlu_tensor_names[MLU_OPS][MLU_TENSORS] = {
    {"gates", "indices", "locations", "input", "dispatch"},
    {"gates", "indices", "locations", "dispatch", "grad_input"},
    {"indices", "locations", "input", "dispatch", "grad_gates"},
};

static bool is_one_of(enum mlu_op op, int i, const char *a, const char *b, const char *c)
{
    const char *const name = mlu_tensor_names[op][i];
    return strcmp(name, a) == 0 || strcmp(name, b) == 0 || strcmp(name, c) == 0;
}

int mlu_rank(enum mlu_op op, int i)
{
    return is_one_of(op, i, "input", "dispatch", "grad_input") ? 2 : 1;
}

mluOpDataType_t mlu_dtype(enum mlu_op op, int i)
{
    return is_one_of(op, i, "indices", "locations", "") ? MLUOP_DTYPE_INT32 : MLUOP_DTYPE_FLOAT;
}

void mlu_shape(enum mlu_op op, int i, const struct mlu_sizes *sizes, int64_t shape[2])
{
    const bool slots = is_one_of(op, i, "dispatch", "", "");
    shape[0] = slots ? (int64_t)sizes->num_experts * sizes->capacity : sizes->samples;
    shape[1] = sizes->hidden;
}

int mlu_find(enum mlu_op op, const char *name)
{
    for (int i = 0; i < MLU_TENSORS; i++)
        if (strcmp(mlu_tensor_names[op][i], name) == 0)
            return i;
    return -1;
}

static mluOpStatus_t run(const struct mlu_call *call, void *const *p)
{
    const mluOpTensorDescriptor_t *const d = call->desc;
    const int s = call->sizes.samples, c = call->sizes.capacity;
    const int h = call->sizes.hidden, e = call->sizes.num_experts;
    switch (call->op) {
    case MLU_FORWARD:
        return mluOpMoeDispatchForward(call->handle, d[0], p[0], d[1], p[1], d[2], p[2], d[3], p[3], s, c, h,
                                       e, d[4], p[4]);
    case MLU_DATA:
        return mluOpMoeDispatchBackwardData(call->handle, d[0], p[0], d[1], p[1], d[2], p[2], d[3], p[3], s,
                                            c, h, e, d[4], p[4]);
    default:
        return mluOpMoeDispatchBackwardGate(call->handle, d[0], p[0], d[1], p[1], d[2], p[2], d[3], p[3], s,
                                            c, h, e, call->workspace, call->workspace_size, d[4], p[4]);
    }
}

/* With SWITCHYARD_COMPAT_DEVICE tensors are copied to memory of cnrtMalloc, four bytes after its begin, and back. */
mluOpStatus_t mlu_run(const struct mlu_call *call)
{
    void *block[MLU_TENSORS] = {0}, *p[MLU_TENSORS] = {0};
    if (getenv("SWITCHYARD_COMPAT_DEVICE") == NULL)
        return run(call, call->data);
    for (int i = 0; i < MLU_TENSORS; i++) {
        const size_t bytes = call->desc[i] != NULL && call->data[i] != NULL ? mlu_bytes(call, i) : 0;
        int same = 0;
        while (call->data[same] != call->data[i])
            same++;
        if (bytes == 0 || bytes > 1 << 24 ||
            same < i) { /* of a size that is rejected; the same memory again */
            p[i] = same < i ? p[same] : call->data[i];
            continue;
        }
        assert_int_equal(cnrtMalloc(&block[i], bytes + 4), cnrtSuccess);
        p[i] = (char *)block[i] + 4;
        assert_int_equal(cnrtMemcpy(p[i], call->data[i], bytes, cnrtMemcpyHostToDev), cnrtSuccess);
    }
    const mluOpStatus_t st = run(call, p);
    for (int i = 0; i < MLU_TENSORS; i++) {
        if (block[i] != NULL)
            assert_int_equal(cnrtMemcpy(call->data[i], p[i], mlu_bytes(call, i), cnrtMemcpyDevToHost),
                             cnrtSuccess);
        assert_int_equal(cnrtFree(block[i]), cnrtSuccess);
    }
    return st;
}

size_t mlu_bytes(const struct mlu_call *call, int i)
{
    return mluOpGetTensorElementNum(call->desc[i]) * 4;
}

void mlu_make(struct mlu_call *call, enum mlu_op op, struct mlu_sizes sizes)
{
    *call = (struct mlu_call){.op = op, .sizes = sizes};
    expect_mlu(mluOpCreate(&call->handle), MLUOP_STATUS_SUCCESS);
    for (int i = 0; i < MLU_TENSORS; i++) {
        int64_t shape[2];
        mlu_shape(op, i, &sizes, shape);
        expect_mlu(mluOpCreateTensorDescriptor(&call->desc[i]), MLUOP_STATUS_SUCCESS);
        expect_mlu(mluOpSetTensorDescriptor_v2(call->desc[i], MLUOP_LAYOUT_ARRAY, mlu_dtype(op, i),
                                               mlu_rank(op, i), shape),
                   MLUOP_STATUS_SUCCESS);
        call->data[i] = buf_new(mlu_bytes(call, i), 4);
    }
}

void mlu_free(struct mlu_call *call)
{
    for (int i = 0; i < MLU_TENSORS; i++) {
        buf_free(call->data[i]);
        expect_mlu(mluOpDestroyTensorDescriptor(call->desc[i]), MLUOP_STATUS_SUCCESS);
    }
    expect_mlu(mluOpDestroy(call->handle), MLUOP_STATUS_SUCCESS);
}

void mlu_expect(mluOpStatus_t status, mluOpStatus_t want, const char *file, int line)
{
    if (status != want) {
        print_error("%s, want %s\n", mluOpGetErrorString(status), mluOpGetErrorString(want));
        _fail(file, line);
    }
}
