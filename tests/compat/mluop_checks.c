/*
 * The argument checks: every row of the check tables, and every two rows broken at once, so that their
 * order shows. What the status has to be comes from a second, slow list of the rows, one operator after the
 * other, as the documentation has them. After anything but SUCCESS the output is what it was.
 */
#include "mluop.h"

/* What is wrong with a call: for each row the tensor it concerns, or -1. */
struct faults {
    bool no_handle, no_workspace;
    int no_desc, rank, dtype, layout, shape, strides, no_data, overlap;
};

enum kind {
    NOTHING,
    NO_HANDLE,
    NO_WORKSPACE,
    NO_DESC,
    RANK,
    DTYPE,
    LAYOUT,
    SHAPE,
    STRIDES,
    NO_DATA,
    OVERLAP,
    KINDS
};
static const char *const kind_names[KINDS] = {"nothing", "no handle", "no workspace", "no descriptor",
                                              "rank",    "type",      "layout",       "shape",
                                              "strides", "no data",   "overlap"};

static void add_fault(struct faults *f, enum kind kind, int tensor)
{
    int *const places[KINDS] = {
        [NO_DESC] = &f->no_desc, [RANK] = &f->rank,       [DTYPE] = &f->dtype,     [LAYOUT] = &f->layout,
        [SHAPE] = &f->shape,     [STRIDES] = &f->strides, [NO_DATA] = &f->no_data, [OVERLAP] = &f->overlap};
    if (kind == NO_HANDLE)
        f->no_handle = true;
    else if (kind == NO_WORKSPACE)
        f->no_workspace = true;
    else if (places[kind] != NULL)
        *places[kind] = tensor;
}

/* ---- The model
   ------------------------------------------------------------------------------------------- */

static int64_t elements(enum mlu_op op, int i, const struct mlu_sizes *sizes)
{
    int64_t shape[2];
    mlu_shape(op, i, sizes, shape);
    return mlu_rank(op, i) == 2 ? shape[0] * shape[1] : shape[0];
}

/* The spoiled stride is the last one, and nobody steps along a dimension of size 1. */
static bool strides_matter(enum mlu_op op, int i, const struct mlu_sizes *sizes)
{
    int64_t shape[2];
    mlu_shape(op, i, sizes, shape);
    return elements(op, i, sizes) > 0 && shape[mlu_rank(op, i) - 1] != 1;
}

static bool any_large(enum mlu_op op, const struct mlu_sizes *sizes)
{
    for (int i = 0; i < MLU_TENSORS; i++)
        if (elements(op, i, sizes) >= 2147483648)
            return true;
    return false;
}

static bool any_empty(enum mlu_op op, const struct mlu_sizes *sizes)
{
    for (int i = 0; i < MLU_TENSORS; i++)
        if (elements(op, i, sizes) == 0)
            return true;
    return false;
}

/* Everything up to strides, where the operators are alike from outside. */
static mluOpStatus_t validate_descriptors(enum mlu_op op, const struct mlu_sizes *sizes,
                                          const struct faults *f)
{
    if (f->no_handle || f->no_desc >= 0 || f->rank >= 0 || f->dtype >= 0 || f->layout >= 0)
        return MLUOP_STATUS_BAD_PARAM;
    if (sizes->samples < 0 || sizes->capacity < 0 || sizes->hidden < 0 || sizes->num_experts < 0)
        return MLUOP_STATUS_BAD_PARAM;
    if (f->shape >= 0)
        return MLUOP_STATUS_BAD_PARAM;
    if (f->strides >= 0 && strides_matter(op, f->strides, sizes))
        return MLUOP_STATUS_NOT_SUPPORTED;
    return MLUOP_STATUS_SUCCESS;
}

static mluOpStatus_t validate(enum mlu_op op, const struct mlu_sizes *sizes, const struct faults *f)
{
    const int64_t slots = (int64_t)sizes->num_experts * sizes->capacity;
    const mluOpStatus_t st = validate_descriptors(op, sizes, f);
    if (st != MLUOP_STATUS_SUCCESS)
        return st;
    if (op == MLU_FORWARD && slots > 0 && sizes->samples > slots)
        return MLUOP_STATUS_BAD_PARAM;
    if (any_large(op, sizes))
        return MLUOP_STATUS_NOT_SUPPORTED;
    if (op == MLU_FORWARD && any_empty(op, sizes))
        return MLUOP_STATUS_SUCCESS;
    if (op != MLU_FORWARD && elements(op, MLU_OUTPUT, sizes) == 0)
        return MLUOP_STATUS_SUCCESS;
    if (op != MLU_FORWARD && f->no_data == MLU_OUTPUT)
        return MLUOP_STATUS_BAD_PARAM;
    if (op != MLU_FORWARD && any_empty(op, sizes))
        return MLUOP_STATUS_SUCCESS; /* the output is cleared */
    if (op == MLU_GATE && f->no_workspace)
        return MLUOP_STATUS_BAD_PARAM;
    return f->no_data >= 0 || f->overlap >= 0 ? MLUOP_STATUS_BAD_PARAM : MLUOP_STATUS_SUCCESS;
}

/* ---- The call
   -------------------------------------------------------------------------------------------- */

/* One memory for all tensors, large enough for the small sizes; calls with large ones must not reach their
   data. */
enum { PLACE_BYTES = 4096 };

static void set_desc(mluOpTensorDescriptor_t desc, enum mlu_op op, int i, const struct mlu_sizes *sizes,
                     const struct faults *f)
{
    int64_t shape[3], strides[3];
    mlu_shape(op, i, sizes, shape);
    int rank = mlu_rank(op, i);
    if (f->shape == i)
        shape[rank - 1]++;
    if (f->rank == i)
        shape[rank++] = 1;
    int64_t dense = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = dense;
        dense *= shape[d];
    }
    if (f->strides == i)
        strides[rank - 1]++;
    expect_mlu(mluOpSetTensorDescriptorEx_v2(desc, f->layout == i ? MLUOP_LAYOUT_NHWC : MLUOP_LAYOUT_ARRAY,
                                             f->dtype == i ? MLUOP_DTYPE_HALF : mlu_dtype(op, i), rank, shape,
                                             strides),
               MLUOP_STATUS_SUCCESS);
}

/* Overlap: the output begins inside that tensor, or of forward one element after its own input. */
static void *place(unsigned char *memory, int i, const struct faults *f)
{
    if (f->no_data == i)
        return NULL;
    if (i == MLU_OUTPUT && f->overlap >= 0)
        return memory + (size_t)f->overlap * PLACE_BYTES + sizeof(float);
    return memory + (size_t)i * PLACE_BYTES;
}

static void check(mluOpHandle_t handle, unsigned char *memory, mluOpTensorDescriptor_t desc[MLU_TENSORS],
                  enum mlu_op op, const struct mlu_sizes *sizes, const struct faults *f, const char *what)
{
    struct mlu_call call = {.op = op, .handle = f->no_handle ? NULL : handle, .sizes = *sizes};
    float workspace[1];
    call.workspace = f->no_workspace ? NULL : workspace;
    call.workspace_size = sizeof workspace;
    memset(memory, 0x5a, (size_t)MLU_TENSORS * PLACE_BYTES);
    for (int i = 0; i < MLU_TENSORS; i++) {
        set_desc(desc[i], op, i, sizes, f);
        call.desc[i] = f->no_desc == i ? NULL : desc[i];
        call.data[i] = place(memory, i, f);
    }
    const mluOpStatus_t want = validate(op, sizes, f);
    const mluOpStatus_t got = mlu_run(&call);
    if (got != want)
        print_error("%s, sizes %d %d %d %d, %s\n", mlu_op_names[op], sizes->samples, sizes->capacity,
                    sizes->hidden, sizes->num_experts, what);
    expect_mlu(got, want);
    bool changed = false;
    for (size_t b = 0; b < (size_t)MLU_TENSORS * PLACE_BYTES; b++)
        changed = changed || memory[b] != 0x5a;
    if (want != MLUOP_STATUS_SUCCESS && changed)
        fail_msg("%s: the output changed: %s", mlu_op_names[op], what);
}

/* Samples, capacity, hidden, experts: valid, more samples than slots, large in each tensor, empty in each
   way, negative. */
static const struct mlu_sizes size_cases[] = {{4, 3, 2, 2},
                                              {2, 2, 2, 1},
                                              {7, 3, 2, 2},
                                              {0, 3, 2, 2},
                                              {4, 0, 2, 2},
                                              {4, 3, 0, 2},
                                              {4, 3, 2, 0},
                                              {0, 0, 0, 0},
                                              {-1, 3, 2, 2},
                                              {4, -1, 2, 2},
                                              {4, 3, -1, 2},
                                              {4, 3, 2, -1},
                                              {1073741824, 1, 2, 2},
                                              {4, 1073741824, 1, 2},
                                              {4, 4, 1073741824, 1},
                                              {4, 65536, 32768, 1},
                                              {4, 65536, 32769, 1},
                                              {65536, 65536, 32768, 1},
                                              {4, 2147483647, 1, 2147483647}};

/* Each fault with each other, on each tensor: whichever comes first in the table must decide. */
static void all_pairs(enum mlu_op op)
{
    unsigned char *const memory = buf_new((size_t)MLU_TENSORS * PLACE_BYTES, 0);
    mluOpTensorDescriptor_t desc[MLU_TENSORS];
    mluOpHandle_t handle;
    expect_mlu(mluOpCreate(&handle), MLUOP_STATUS_SUCCESS);
    for (int i = 0; i < MLU_TENSORS; i++)
        expect_mlu(mluOpCreateTensorDescriptor(&desc[i]), MLUOP_STATUS_SUCCESS);
    for (size_t k = 0; k < COUNT_OF(size_cases); k++)
        for (int a = 0; a < KINDS * MLU_TENSORS; a++)
            for (int b = a; b < KINDS * MLU_TENSORS; b++) {
                struct faults f = {false, false, -1, -1, -1, -1, -1, -1, -1, -1};
                char what[96];
                add_fault(&f, (enum kind)(a / MLU_TENSORS), a % MLU_TENSORS);
                add_fault(&f, (enum kind)(b / MLU_TENSORS), b % MLU_TENSORS);
                if (f.overlap == MLU_OUTPUT)
                    continue; /* it always overlaps itself */
                if (f.overlap == f.no_data && f.overlap >= 0)
                    f.overlap = -1; /* there is nothing to lie in */
                snprintf(what, sizeof what, "%s of %s, %s of %s", kind_names[a / MLU_TENSORS],
                         mlu_tensor_names[op][a % MLU_TENSORS], kind_names[b / MLU_TENSORS],
                         mlu_tensor_names[op][b % MLU_TENSORS]);
                check(handle, memory, desc, op, &size_cases[k], &f, what);
            }
    for (int i = 0; i < MLU_TENSORS; i++)
        expect_mlu(mluOpDestroyTensorDescriptor(desc[i]), MLUOP_STATUS_SUCCESS);
    expect_mlu(mluOpDestroy(handle), MLUOP_STATUS_SUCCESS);
    buf_free(memory);
}

static void forward_order(void **state)
{
    (void)state;
    all_pairs(MLU_FORWARD);
}

static void backward_data_order(void **state)
{
    (void)state;
    all_pairs(MLU_DATA);
}

static void backward_gate_order(void **state)
{
    (void)state;
    all_pairs(MLU_GATE);
}

/* ---- Single rules
   ---------------------------------------------------------------------------------------- */

/* The three calls that the vendor's document wants to succeed, without any memory. */
static void empty_calls_look_at_no_pointer(void **state)
{
    (void)state;
    static const struct mlu_sizes sizes[] = {{0, 8192, 2048, 2}, {8192, 8192, 0, 2}, {8192, 0, 2048, 2}};
    for (size_t k = 0; k < COUNT_OF(sizes); k++) {
        struct mlu_call call;
        mlu_make(&call, MLU_FORWARD, (struct mlu_sizes){0, 0, 0, 0});
        call.sizes = sizes[k];
        void *data[MLU_TENSORS];
        for (int i = 0; i < MLU_TENSORS; i++) {
            int64_t shape[2];
            mlu_shape(MLU_FORWARD, i, &sizes[k], shape);
            mluOpSetTensorDescriptor_v2(call.desc[i], MLUOP_LAYOUT_ARRAY, mlu_dtype(MLU_FORWARD, i),
                                        mlu_rank(MLU_FORWARD, i), shape);
            data[i] = call.data[i];
            call.data[i] = NULL;
        }
        expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
        memcpy(call.data, data, sizeof data);
        mlu_free(&call);
    }
}

/* Nothing to read: the gradients become +0, whatever they held, and no other pointer is looked at. */
static void empty_gradients_are_cleared(void **state)
{
    (void)state;
    static const struct {
        enum mlu_op op;
        struct mlu_sizes sizes;
    } rows[] = {{MLU_DATA, {3, 0, 2, 2}},
                {MLU_DATA, {3, 2, 2, 0}},
                {MLU_GATE, {3, 0, 2, 2}},
                {MLU_GATE, {3, 2, 2, 0}},
                {MLU_GATE, {3, 2, 0, 2}}};
    static const char zero[24];
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        struct mlu_call call;
        mlu_make(&call, rows[k].op, rows[k].sizes);
        void *data[MLU_OUTPUT];
        memcpy(data, call.data, sizeof data);
        memset(call.data, 0, sizeof data);
        memset(call.data[MLU_OUTPUT], 0xff, mlu_bytes(&call, MLU_OUTPUT));
        call.workspace_size = 64; /* not looked at either */
        expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
        expect_bytes(call.data[MLU_OUTPUT], zero, mlu_bytes(&call, MLU_OUTPUT));
        memcpy(call.data, data, sizeof data);
        mlu_free(&call);
    }
}

static void only_floats(void **state)
{
    (void)state;
    static const mluOpDataType_t types[] = {MLUOP_DTYPE_HALF, MLUOP_DTYPE_BFLOAT16, MLUOP_DTYPE_DOUBLE,
                                            MLUOP_DTYPE_INT32};
    for (int op = 0; op < MLU_OPS; op++)
        for (size_t k = 0; k < COUNT_OF(types); k++) {
            struct mlu_call call;
            mlu_make(&call, (enum mlu_op)op, (struct mlu_sizes){2, 2, 2, 1});
            for (int i = 0; i < MLU_TENSORS; i++)
                if (mlu_dtype((enum mlu_op)op, i) == MLUOP_DTYPE_FLOAT) {
                    int64_t shape[2];
                    mlu_shape((enum mlu_op)op, i, &call.sizes, shape);
                    mluOpSetTensorDescriptor_v2(call.desc[i], MLUOP_LAYOUT_ARRAY, types[k],
                                                mlu_rank((enum mlu_op)op, i), shape);
                }
            expect_mlu(mlu_run(&call), MLUOP_STATUS_BAD_PARAM);
            mlu_free(&call);
        }
}

/* A dimension of size 1 may have any stride. */
static void strides_of_single_rows_do_not_matter(void **state)
{
    (void)state;
    for (int op = 0; op < MLU_OPS; op++) {
        struct mlu_call call;
        mlu_make(&call, (enum mlu_op)op, (struct mlu_sizes){1, 1, 3, 1});
        for (int i = 0; i < MLU_TENSORS; i++) {
            const int rank = mlu_rank((enum mlu_op)op, i);
            int64_t shape[2];
            mlu_shape((enum mlu_op)op, i, &call.sizes, shape);
            expect_mlu(mluOpSetTensorDescriptorEx_v2(call.desc[i], MLUOP_LAYOUT_ARRAY,
                                                     mlu_dtype((enum mlu_op)op, i), rank, shape,
                                                     (const int64_t[]){77, 1}),
                       MLUOP_STATUS_SUCCESS);
            memset(call.data[i], 0, mlu_bytes(&call, i));
        }
        expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
        mlu_free(&call);
    }
}

static void workspace(void **state)
{
    (void)state;
    struct mlu_call call;
    size_t bytes = 99;
    mlu_make(&call, MLU_GATE, (struct mlu_sizes){1, 1, 1, 1});
    mluOpTensorDescriptor_t input = call.desc[mlu_find(MLU_GATE, "input")];
    expect_mlu(mluOpGetMoeDispatchBackwardGateWorkspaceSize(NULL, input, &bytes), MLUOP_STATUS_BAD_PARAM);
    expect_mlu(mluOpGetMoeDispatchBackwardGateWorkspaceSize(call.handle, NULL, &bytes),
               MLUOP_STATUS_BAD_PARAM);
    expect_mlu(mluOpGetMoeDispatchBackwardGateWorkspaceSize(call.handle, input, NULL),
               MLUOP_STATUS_BAD_PARAM);
    assert_int_equal(bytes, 99);
    expect_mlu(mluOpGetMoeDispatchBackwardGateWorkspaceSize(call.handle, input, &bytes),
               MLUOP_STATUS_SUCCESS);
    assert_int_equal(bytes, 0);
    for (int i = 0; i < MLU_TENSORS; i++)
        memset(call.data[i], 0, mlu_bytes(&call, i));
    char room[64];
    expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
    call.workspace = room;
    expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
    call.workspace_size = sizeof room;
    expect_mlu(mlu_run(&call), MLUOP_STATUS_SUCCESS);
    call.workspace = NULL;
    expect_mlu(mlu_run(&call), MLUOP_STATUS_BAD_PARAM);
    mlu_free(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_order),
        cmocka_unit_test(backward_data_order),
        cmocka_unit_test(backward_gate_order),
        cmocka_unit_test(empty_calls_look_at_no_pointer),
        cmocka_unit_test(empty_gradients_are_cleared),
        cmocka_unit_test(only_floats),
        cmocka_unit_test(strides_of_single_rows_do_not_matter),
        cmocka_unit_test(workspace),
    };
    return cmocka_run_group_tests_name("compat mluop checks", tests, NULL, NULL);
}
