/* The program of the MLU-OPS layer: worked examples, and the same calls beside the native ones on random data. */
#include "mluop.h"

#include "examples/read.h"

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

/* ---- Calls ------------------------------------------------------------------------------------------- */

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
        assert_int_equal(cnrtMalloc(&block[i], mlu_bytes(call, i) + 4), cnrtSuccess);
        p[i] = (char *)block[i] + 4;
        assert_int_equal(cnrtMemcpy(p[i], call->data[i], mlu_bytes(call, i), cnrtMemcpyHostToDev),
                         cnrtSuccess);
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

/* ---- Worked examples --------------------------------------------------------------------------------- */

static struct examples table;

static const char *scalar_of(const struct example *ex, const char *name)
{
    const struct entry *const e = example_entry(ex, name, false);
    return e != NULL ? e->values + strspn(e->values, " ") : "";
}

static int find(const char *const *names, int n, const char *name)
{
    int i = 0;
    while (i < n && strcmp(names[i], name) != 0)
        i++;
    return i;
}

static void run_case(void **state)
{
    const struct example *const ex = *state;
    const enum mlu_op op = (enum mlu_op)find(mlu_op_names, MLU_OPS, scalar_of(ex, "op"));
    const char *const *const names = mlu_tensor_names[op];
    const int over = find(names, MLU_OUTPUT, scalar_of(ex, "over"));
    struct mlu_call call;
    mlu_make(&call, op, mlu_read_sizes(scalar_of(ex, "sizes")));
    memset(call.data[MLU_OUTPUT], 0xA5, mlu_bytes(&call, MLU_OUTPUT));
    int found = 0;
    for (int i = 0; i < MLU_TENSORS; i++)
        if (example_entry(ex, names[i], false) != NULL) {
            entry_values(&table, example_entry(ex, names[i], false), 0, call.data[i]);
            found++;
        }
    assert_true(found >= MLU_OUTPUT);
    unsigned char *const want = malloc(mlu_bytes(&call, MLU_OUTPUT));
    assert_non_null(want);
    entry_values(&table, example_entry(ex, names[MLU_OUTPUT], true), 0, want);
    void *const apart = call.data[MLU_OUTPUT];
    if (over < MLU_OUTPUT)
        call.data[MLU_OUTPUT] = call.data[over];
    ok(mlu_run(&call));
    expect_bytes(call.data[MLU_OUTPUT], want, mlu_bytes(&call, MLU_OUTPUT));
    call.data[MLU_OUTPUT] = apart;
    free(want);
    mlu_free(&call);
}

/* ---- Beside the native calls ------------------------------------------------------------------------- */

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
    if (call->op == MLU_FORWARD) {
        const sy_moe_dispatch_args args = {.gates = t,
                                           .indices = t + 1,
                                           .locations = t + 2,
                                           .input = t + 3,
                                           .num_experts = e,
                                           .capacity = c,
                                           .dispatch = t + 4};
        return sy_moe_dispatch(ctx, &args);
    }
    if (call->op == MLU_DATA) {
        const sy_moe_combine_args args = {.gates = t,
                                          .indices = t + 1,
                                          .locations = t + 2,
                                          .expert_out = t + 3,
                                          .num_experts = e,
                                          .capacity = c,
                                          .output = t + 4};
        return sy_moe_combine(ctx, &args);
    }
    const sy_moe_dispatch_grad_gate_args args = {.indices = t,
                                                 .locations = t + 1,
                                                 .input = t + 2,
                                                 .dispatch = t + 3,
                                                 .num_experts = e,
                                                 .capacity = c,
                                                 .grad_gates = t + 4};
    return sy_moe_dispatch_grad_gate(ctx, &args);
}

/* Bits of all kinds, NaN and infinities among them; indices and locations in and around their range. */
static void fill(struct mlu_call *call, uint64_t *rng)
{
    for (int i = 0; i < MLU_TENSORS; i++) {
        const bool index = first_letter(call->op, i) == 'i';
        const int64_t limit = index ? call->sizes.num_experts : call->sizes.capacity;
        rng_fill(rng, call->data[i], mlu_bytes(call, i));
        for (int64_t s = 0; mlu_dtype(call->op, i) == MLUOP_DTYPE_INT32 && s < call->sizes.samples; s++)
            ((int32_t *)call->data[i])[s] = (int32_t)(rng_below(rng, limit + 2) - 1);
    }
}

/* The last is longer than the vendor's kernel holds at once. */
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
            ok(mlu_run(&call));
            expect_bytes(call.data[MLU_OUTPUT], want, bytes);
            buf_free(want);
            mlu_free(&call);
        }
    sy_ctx_destroy(ctx);
}

int main(int argc, char **argv)
{
    struct test_list list = {0};
    if (argc < 2)
        return fprintf(stderr, "usage: compat_mluop tests/compat/mluop.txt [PATTERN]\n"), 2;
    table = examples_read(argv[1]);
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    for (int i = 0; i < table.count; i++) {
        const char *const op = scalar_of(&table.list[i], "op");
        if (find(mlu_op_names, MLU_OPS, op) == MLU_OPS)
            bad_line(&table, table.list[i].line, "no operator");
        test_add(&list, test_name("%s: %s", op, table.list[i].name), run_case, &table.list[i]);
    }
    test_add(&list, "equals the native call", equals_the_native_call, NULL);
    if (!on_device()) {
        add_checks(&list);
        add_descriptors(&list);
        add_runtime(&list);
    }
    return test_run(&list, "compat_mluop");
}
