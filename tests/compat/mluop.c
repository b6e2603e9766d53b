/* The program of the MLU-OPS layer: its calls beside the native ones, which tests/examples and tests/case define. */
#include "case/case.h"
#include "mluop.h"

const char *const mlu_op_names[MLU_OPS] = {"forward", "data", "gate"};
const char *const mlu_tensor_names[MLU_OPS][MLU_TENSORS] = {
    {"gates", "indices", "locations", "input", "dispatch"},
    {"gates", "indices", "locations", "dispatch", "grad_input"},
    {"indices", "locations", "input", "dispatch", "grad_gates"},
};

static char first_letter(enum mlu_op op, int i)
{
    const char *const name = mlu_tensor_names[op][i];
    return strcmp(name, "input") == 0 || strcmp(name, "grad_input") == 0 ? 'x' : name[0];
}

int mlu_rank(enum mlu_op op, int i)
{
    return first_letter(op, i) == 'x' || first_letter(op, i) == 'd' ? 2 : 1;
}

mluOpDataType_t mlu_dtype(enum mlu_op op, int i)
{
    return first_letter(op, i) == 'i' || first_letter(op, i) == 'l' ? MLUOP_DTYPE_INT32 : MLUOP_DTYPE_FLOAT;
}

void mlu_shape(enum mlu_op op, int i, const struct mlu_sizes *sizes, int64_t shape[2])
{
    const bool slots = first_letter(op, i) == 'd';
    shape[0] = slots ? (int64_t)sizes->num_experts * sizes->capacity : sizes->samples;
    shape[1] = sizes->hidden;
}

struct mlu_sizes mlu_read_sizes(const char *text)
{
    int sizes[4];
    for (int i = 0; i < 4; i++) {
        char *end;
        sizes[i] = (int)strtol(text, &end, 10);
        assert_true(end > text);
        text = end;
    }
    return (struct mlu_sizes){sizes[0], sizes[1], sizes[2], sizes[3]};
}

void mlu_expect(mluOpStatus_t status, mluOpStatus_t want, const char *file, int line)
{
    if (status != want) {
        print_error("%s, want %s\n", mluOpGetErrorString(status), mluOpGetErrorString(want));
        _fail(file, line);
    }
}

/* ---- Calls ---- */

size_t mlu_bytes(const struct mlu_call *call, int i)
{
    const uint64_t elements = mluOpGetTensorElementNum(call->desc[i]);
    return elements > 1 << 24 ? 64 : (size_t)elements * 4;
}

void mlu_make(struct mlu_call *call, enum mlu_op op, struct mlu_sizes sizes)
{
    *call = (struct mlu_call){.op = op, .sizes = sizes};
    ok(mluOpCreate(&call->handle));
    for (int i = 0; i < MLU_TENSORS; i++) {
        int64_t shape[2];
        mlu_shape(op, i, &sizes, shape);
        const int narrow[2] = {(int)shape[0], (int)shape[1]};
        ok(mluOpCreateTensorDescriptor(&call->desc[i]));
        ok(mluOpSetTensorDescriptor(call->desc[i], MLUOP_LAYOUT_ARRAY, mlu_dtype(op, i), mlu_rank(op, i),
                                    narrow));
        call->data[i] = buf_new(mlu_bytes(call, i), 4);
        memset(call->data[i], 0, mlu_bytes(call, i));
    }
}

void mlu_free(struct mlu_call *call)
{
    for (int i = 0; i < MLU_TENSORS; i++) {
        buf_free(call->data[i]);
        ok(mluOpDestroyTensorDescriptor(call->desc[i]));
    }
    ok(mluOpDestroy(call->handle));
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

static bool on_device(void)
{
    return getenv("SWITCHYARD_COMPAT_DEVICE") != NULL;
}

/* With SWITCHYARD_COMPAT_DEVICE tensors are copied to memory of cnrtMalloc, four bytes after its begin, and back. */
mluOpStatus_t mlu_run(const struct mlu_call *call)
{
    void *block[MLU_TENSORS] = {0}, *p[MLU_TENSORS] = {0};
    if (!on_device())
        return run(call, call->data);
    for (int i = 0; i < MLU_TENSORS; i++) {
        int same = 0;
        while (call->data[same] != call->data[i])
            same++;
        p[i] = p[same];
        if (same < i)
            continue; /* the same memory again */
        cnrt_ok(cnrtMalloc(&block[i], mlu_bytes(call, i) + 4));
        p[i] = (char *)block[i] + 4;
        cnrt_ok(cnrtMemcpy(p[i], call->data[i], mlu_bytes(call, i), cnrtMemcpyHostToDev));
    }
    const mluOpStatus_t st = run(call, p);
    for (int i = 0; i < MLU_TENSORS; i++) {
        if (block[i] != NULL)
            cnrt_ok(cnrtMemcpy(call->data[i], p[i], mlu_bytes(call, i), cnrtMemcpyDevToHost));
        cnrt_ok(cnrtFree(block[i]));
    }
    return st;
}

/* ---- Beside the native calls ---- */

/* The case of the native operator that makes the contents, and its fields in the order of the layer's tensors. */
static const struct {
    const char *op, *words, *fields[MLU_TENSORS];
} native[MLU_OPS] = {
    {"moe_dispatch",
     "gated=1 gates=f32 input=f32 dispatch=f32",
     {"gates", "indices", "locations", "input", "dispatch"}},
    {"moe_combine",
     "gated=1 gates=f32 expert_out=f32 output=f32",
     {"gates", "indices", "locations", "expert_out", "output"}},
    {"moe_dispatch_grad_gate",
     "input=f32 dispatch=f32 grad_gates=f32",
     {"indices", "locations", "input", "dispatch", "grad_gates"}},
};

/* With `over` the output is the input, whose rows are written while others are read. */
static void expect_native(sy_ctx *ctx, enum mlu_op op, struct mlu_sizes sizes, bool over)
{
    char line[200];
    struct mlu_call whole, call;
    snprintf(line, sizeof line, "S=%d C=%d H=%d E=%d form:indices=1 %s%s", sizes.samples, sizes.capacity,
             sizes.hidden, sizes.num_experts, native[op].words, over ? " in_place" : "");
    struct call *const c = case_of_line(all_cases[sy_op_find(native[op].op)->number], line, 1);
    mlu_make(&whole, op, sizes);
    call = whole;
    for (int i = 0; i < MLU_TENSORS; i++)
        call.data[i] = (*case_field(c, native[op].fields[i])->at)->data;
    ok(mlu_run(&call));
    call_check(c, ctx, SY_OK);
    mlu_free(&whole);
    case_delete(c);
}

/* The last is longer than the vendor's kernel holds at once. */
static void equals_the_native_call(void **state)
{
    const enum mlu_op op = *(const enum mlu_op *)*state;
    sy_ctx *const ctx = test_ctx(0, NULL);
    static const struct mlu_sizes sizes[] = {{1, 1, 1, 1},    {3, 2, 5, 2},        {6, 3, 4, 2},
                                             {33, 40, 17, 3}, {64, 64, 96, 2},     {128, 64, 9, 2},
                                             {7, 9, 8193, 1}, {40009, 20005, 2, 2}};
    for (size_t k = 0; k < COUNT_OF(sizes); k++)
        for (int over = 0; over < 2; over++)
            if (!over || (op == MLU_FORWARD && sizes[k].samples == sizes[k].capacity * sizes[k].num_experts))
                expect_native(ctx, op, sizes[k], over);
    sy_ctx_destroy(ctx);
}

int main(int argc, char **argv)
{
    static enum mlu_op ops[MLU_OPS] = {MLU_FORWARD, MLU_DATA, MLU_GATE};
    struct test_list list = {0};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (int i = 0; i < MLU_OPS; i++)
        test_add(&list, test_name("%s: equals the native call", mlu_op_names[i]), equals_the_native_call,
                 &ops[i]);
    if (!on_device()) {
        add_checks(&list);
        add_descriptors(&list);
        add_runtime(&list);
    }
    return test_run(&list, "compat_mluop");
}
