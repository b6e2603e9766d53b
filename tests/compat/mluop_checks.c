/*
 * The argument checks: every row of the check tables, and every two of them at once, so that their order shows. The
 * expected status comes from a second, slow list of the rows, one operator after the other, as the documentation has
 * them. After anything but SUCCESS the output is what it was.
 */
#include "mluop.h"

enum {
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

/* What is wrong with a call: for each kind the tensor it concerns, or -1; and which way. */
struct faults {
    int of[KINDS];
    int way;
};
enum { WAYS = 6 }; /* types; each of two dimensions more and less */

/* ---- The model ---- */

static int64_t elements(enum mlu_op op, int i, const struct mlu_sizes *sizes)
{
    int64_t shape[2];
    mlu_shape(op, i, sizes, shape);
    return mlu_rank(op, i) == 2 ? shape[0] * shape[1] : shape[0];
}

/* The dimension that a fault of tensor i changes. */
static int changed(enum mlu_op op, int i, const struct faults *f)
{
    return mlu_rank(op, i) - 1 - f->way / 2 % mlu_rank(op, i);
}

/* The stride of a dimension of size 1 has no meaning. */
static bool strides_matter(enum mlu_op op, int i, const struct mlu_sizes *sizes, const struct faults *f)
{
    int64_t shape[2];
    mlu_shape(op, i, sizes, shape);
    return elements(op, i, sizes) > 0 && shape[changed(op, i, f)] != 1;
}

static bool any_elements(enum mlu_op op, const struct mlu_sizes *sizes, int64_t least, int64_t most)
{
    for (int i = 0; i < MLU_TENSORS; i++)
        if (elements(op, i, sizes) >= least && elements(op, i, sizes) <= most)
            return true;
    return false;
}

/* Everything up to strides, where the operators are alike from outside. */
static mluOpStatus_t validate_descriptors(enum mlu_op op, const struct mlu_sizes *sizes,
                                          const struct faults *faults)
{
    const int *const f = faults->of;
    if (f[NO_HANDLE] >= 0 || f[NO_DESC] >= 0 || f[RANK] >= 0 || f[DTYPE] >= 0 || f[LAYOUT] >= 0)
        return MLUOP_STATUS_BAD_PARAM;
    if (sizes->samples < 0 || sizes->capacity < 0 || sizes->hidden < 0 || sizes->num_experts < 0)
        return MLUOP_STATUS_BAD_PARAM;
    if (f[SHAPE] >= 0)
        return MLUOP_STATUS_BAD_PARAM;
    if (f[STRIDES] >= 0 && strides_matter(op, f[STRIDES], sizes, faults))
        return MLUOP_STATUS_NOT_SUPPORTED;
    return MLUOP_STATUS_SUCCESS;
}

static mluOpStatus_t validate(enum mlu_op op, const struct mlu_sizes *sizes, const struct faults *faults)
{
    const int *const f = faults->of;
    const int64_t slots = (int64_t)sizes->num_experts * sizes->capacity;
    const mluOpStatus_t st = validate_descriptors(op, sizes, faults);
    if (st != MLUOP_STATUS_SUCCESS)
        return st;
    if (op == MLU_FORWARD && slots > 0 && sizes->samples > slots)
        return MLUOP_STATUS_BAD_PARAM;
    if (any_elements(op, sizes, INT64_C(1) << 31, INT64_MAX))
        return MLUOP_STATUS_NOT_SUPPORTED;
    if (op == MLU_FORWARD && any_elements(op, sizes, 0, 0))
        return MLUOP_STATUS_SUCCESS;
    if (op != MLU_FORWARD && elements(op, MLU_OUTPUT, sizes) == 0)
        return MLUOP_STATUS_SUCCESS;
    if (op != MLU_FORWARD && f[NO_DATA] == MLU_OUTPUT)
        return MLUOP_STATUS_BAD_PARAM;
    if (op != MLU_FORWARD && any_elements(op, sizes, 0, 0))
        return MLUOP_STATUS_SUCCESS; /* the output is cleared */
    if (op == MLU_GATE && f[NO_WORKSPACE] >= 0)
        return MLUOP_STATUS_BAD_PARAM;
    const bool overlap =
        f[OVERLAP] >= 0 && elements(op, f[OVERLAP], sizes) > 1; /* it begins with the second */
    return f[NO_DATA] >= 0 || overlap ? MLUOP_STATUS_BAD_PARAM : MLUOP_STATUS_SUCCESS;
}

/* ---- The call ---- */

/* One memory for all tensors, large enough for the small sizes; calls with large ones must not reach their
   data. */
enum { PLACE_BYTES = 4096 };

static void set_desc(mluOpTensorDescriptor_t desc, enum mlu_op op, int i, const struct mlu_sizes *sizes,
                     const struct faults *faults)
{
    const mluOpDataType_t types[WAYS] = {
        MLUOP_DTYPE_HALF,   MLUOP_DTYPE_BFLOAT16,
        MLUOP_DTYPE_DOUBLE, MLUOP_DTYPE_INT16,
        MLUOP_DTYPE_INT64,  mlu_dtype(op, i) == MLUOP_DTYPE_FLOAT ? MLUOP_DTYPE_INT32 : MLUOP_DTYPE_FLOAT};
    const int *const f = faults->of;
    int64_t shape[3], strides[3];
    mlu_shape(op, i, sizes, shape);
    int rank = mlu_rank(op, i);
    if (f[SHAPE] == i)
        shape[changed(op, i, faults)] += faults->way % 2 == 0 ? 1 : -1;
    if (f[RANK] == i && rank == 2 && faults->way % 2 == 1)
        rank--;
    else if (f[RANK] == i)
        shape[rank++] = 1;
    int64_t dense = 1;
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = dense;
        dense *= shape[d];
    }
    if (f[STRIDES] == i)
        strides[f[RANK] == i ? 0 : changed(op, i, faults)]++;
    ok(mluOpSetTensorDescriptorEx_v2(desc, f[LAYOUT] == i ? MLUOP_LAYOUT_NHWC : MLUOP_LAYOUT_ARRAY,
                                     f[DTYPE] == i ? types[faults->way] : mlu_dtype(op, i), rank, shape,
                                     strides));
}

/* Overlap: the output begins inside that tensor, or of forward one element after its own input. */
static void *place(unsigned char *memory, int i, const int f[KINDS])
{
    if (f[NO_DATA] == i)
        return NULL;
    if (i == MLU_OUTPUT && f[OVERLAP] >= 0)
        return memory + (size_t)f[OVERLAP] * PLACE_BYTES + sizeof(float);
    return memory + (size_t)i * PLACE_BYTES;
}

static void check(mluOpHandle_t handle, unsigned char *memory, mluOpTensorDescriptor_t desc[MLU_TENSORS],
                  enum mlu_op op, const struct mlu_sizes *sizes, const struct faults *faults)
{
    const int *const f = faults->of;
    struct mlu_call call = {.op = op, .handle = f[NO_HANDLE] >= 0 ? NULL : handle, .sizes = *sizes};
    float workspace[1];
    call.workspace = f[NO_WORKSPACE] >= 0 ? NULL : workspace;
    call.workspace_size = sizeof workspace;
    memset(memory, 0x5a, (size_t)MLU_TENSORS * PLACE_BYTES);
    for (int i = 0; i < MLU_TENSORS; i++) {
        set_desc(desc[i], op, i, sizes, faults);
        call.desc[i] = f[NO_DESC] == i ? NULL : desc[i];
        call.data[i] = place(memory, i, f);
    }
    const mluOpStatus_t want = validate(op, sizes, faults);
    const mluOpStatus_t got = mlu_run(&call);
    for (int kind = 0; got != want && kind < KINDS; kind++)
        if (f[kind] >= 0)
            print_error("%s, sizes %d %d %d %d: %s of %s, way %d\n", mlu_op_names[op], sizes->samples,
                        sizes->capacity, sizes->hidden, sizes->num_experts, kind_names[kind],
                        mlu_tensor_names[op][f[kind]], faults->way);
    mlu_expect(got, want, __FILE__, __LINE__);
    bool untouched = true;
    for (size_t b = 0; b < (size_t)MLU_TENSORS * PLACE_BYTES; b++)
        untouched = untouched && memory[b] == 0x5a;
    if (want != MLUOP_STATUS_SUCCESS && !untouched)
        fail_msg("%s: the output changed", mlu_op_names[op]);
}

/* Samples, capacity, hidden, experts: valid, as many samples as slots and more, large in each tensor, empty in each way,
   negative. */
static const char size_cases[] =
    "1 1 1 1, 1 1 3 1, 4 3 2 2, 2 2 2 1, 7 3 2 2, 16 8 4 2, 17 8 4 2, 5 1 2 1, 18 8 0 2, 18 0 4 2, 0 3 2 2, "
    "4 0 2 2, 4 3 0 2, "
    "4 3 2 0,"
    "0 0 0 0, -1 3 2 2, 4 -1 2 2, 4 3 -1 2, 4 3 2 -1, 12 -8 4 -2, 1073741824 1 2 2, 1073741825 536870913 4 2,"
    "4 1073741824 1 2, 4 4 1073741824 1, 4 65536 32768 1, 4 65536 32769 1, 65536 65536 32768 1, 1 1024 1025 "
    "2048,"
    "1 25 2097152 41, 4 2147483647 1 2147483647";

/* Each fault alone, every way, and with each other, on each tensor: whichever comes first in the table must decide. */
static void all_pairs(void **state)
{
    const enum mlu_op op = *(const enum mlu_op *)*state;
    unsigned char *const memory = buf_new((size_t)MLU_TENSORS * PLACE_BYTES, 0);
    mluOpTensorDescriptor_t desc[MLU_TENSORS];
    mluOpHandle_t handle;
    ok(mluOpCreate(&handle));
    for (int i = 0; i < MLU_TENSORS; i++)
        ok(mluOpCreateTensorDescriptor(&desc[i]));
    for (const char *text = size_cases - 1; text != NULL; text = strchr(text + 1, ',')) {
        const struct mlu_sizes sizes = mlu_read_sizes(text + 1);
        for (int a = 0; a < KINDS * MLU_TENSORS; a++)
            for (int b = a; b < KINDS * MLU_TENSORS; b++)
                for (int way = 0; way < (a == b ? WAYS : 1); way++) {
                    struct faults faults = {{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}, way};
                    int *const f = faults.of;
                    f[a / MLU_TENSORS] = a % MLU_TENSORS;
                    f[b / MLU_TENSORS] = b % MLU_TENSORS;
                    if (f[OVERLAP] == MLU_OUTPUT)
                        continue; /* it always overlaps itself */
                    if (f[OVERLAP] == f[NO_DATA] && f[OVERLAP] >= 0)
                        f[OVERLAP] = -1; /* there is nothing to lie in */
                    check(handle, memory, desc, op, &sizes, &faults);
                }
    }
    for (int i = 0; i < MLU_TENSORS; i++)
        ok(mluOpDestroyTensorDescriptor(desc[i]));
    ok(mluOpDestroy(handle));
    buf_free(memory);
}

/* ---- Single rules ---- */

/* All tensors of numbers have another type. */
static void only_floats(void **state)
{
    static const mluOpDataType_t types[] = {MLUOP_DTYPE_HALF, MLUOP_DTYPE_BFLOAT16, MLUOP_DTYPE_DOUBLE,
                                            MLUOP_DTYPE_INT32};
    const enum mlu_op op = *(const enum mlu_op *)*state;
    for (size_t k = 0; k < COUNT_OF(types); k++) {
        struct mlu_call call;
        mlu_make(&call, op, (struct mlu_sizes){2, 2, 2, 1});
        for (int i = 0; i < MLU_TENSORS; i++) {
            int64_t shape[2];
            mlu_shape(op, i, &call.sizes, shape);
            if (mlu_dtype(op, i) == MLUOP_DTYPE_FLOAT)
                ok(mluOpSetTensorDescriptor_v2(call.desc[i], MLUOP_LAYOUT_ARRAY, types[k], mlu_rank(op, i),
                                               shape));
        }
        bad(mlu_run(&call));
        mlu_free(&call);
    }
}

/* Calls without any memory. The first three are of the vendor's document; the last count that is accepted is validated
   further, here to the missing data; slots that do not fit an int size. */
TEST(without_data)
{
    static const struct {
        enum mlu_op op;
        struct mlu_sizes sizes;
        mluOpStatus_t want;
    } rows[] = {{MLU_FORWARD, {0, 8192, 2048, 2}, MLUOP_STATUS_SUCCESS},
                {MLU_FORWARD, {8192, 8192, 0, 2}, MLUOP_STATUS_SUCCESS},
                {MLU_FORWARD, {8192, 0, 2048, 2}, MLUOP_STATUS_SUCCESS},
                {MLU_FORWARD, {1, 1, 2147483647, 1}, MLUOP_STATUS_BAD_PARAM},
                {MLU_FORWARD, {1, 65536, 32768, 1}, MLUOP_STATUS_NOT_SUPPORTED},
                {MLU_FORWARD, {2147483647, 1073741824, 1, 2}, MLUOP_STATUS_BAD_PARAM},
                {MLU_DATA, {1, 1, 2147483647, 1}, MLUOP_STATUS_BAD_PARAM},
                {MLU_DATA, {65536, 1, 32768, 1}, MLUOP_STATUS_NOT_SUPPORTED},
                {MLU_GATE, {1, 1, 2147483647, 1}, MLUOP_STATUS_BAD_PARAM},
                {MLU_GATE, {1, 32768, 65536, 1}, MLUOP_STATUS_NOT_SUPPORTED}};
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        struct mlu_call whole, call;
        mlu_make(&whole, rows[k].op, rows[k].sizes);
        call = whole;
        memset(call.data, 0, sizeof call.data);
        mlu_expect(mlu_run(&call), rows[k].want, __FILE__, __LINE__);
        mlu_free(&whole);
    }
}

/* Nothing to read: the gradients become +0, whatever they held, and no other pointer is read. */
TEST(empty_gradients_are_cleared)
{
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
        struct mlu_call whole, call;
        mlu_make(&whole, rows[k].op, rows[k].sizes);
        call = whole;
        memset(call.data, 0, MLU_OUTPUT * sizeof *call.data);
        memset(call.data[MLU_OUTPUT], 0xff, mlu_bytes(&call, MLU_OUTPUT));
        call.workspace_size = 64; /* not read either */
        ok(mlu_run(&call));
        expect_bytes(call.data[MLU_OUTPUT], zero, mlu_bytes(&call, MLU_OUTPUT));
        mlu_free(&whole);
    }
}

TEST(workspace)
{
    struct mlu_call call;
    size_t bytes = 99;
    char room[64];
    mlu_make(&call, MLU_GATE, (struct mlu_sizes){1, 1, 1, 1});
    mluOpTensorDescriptor_t input = call.desc[2];
    bad(mluOpGetMoeDispatchBackwardGateWorkspaceSize(NULL, input, &bytes));
    bad(mluOpGetMoeDispatchBackwardGateWorkspaceSize(call.handle, NULL, &bytes));
    bad(mluOpGetMoeDispatchBackwardGateWorkspaceSize(call.handle, input, NULL));
    assert_int_equal(bytes, 99);
    ok(mluOpGetMoeDispatchBackwardGateWorkspaceSize(call.handle, input, &bytes));
    assert_int_equal(bytes, 0);
    ok(mlu_run(&call));
    call.workspace = room;
    ok(mlu_run(&call));
    call.workspace_size = sizeof room;
    ok(mlu_run(&call));
    call.workspace = NULL;
    bad(mlu_run(&call));
    mlu_free(&call);
}

void add_checks(struct test_list *list)
{
    static enum mlu_op ops[MLU_OPS] = {MLU_FORWARD, MLU_DATA, MLU_GATE};
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } tests[] = {{"all pairs of faults", all_pairs}, {"only floats", only_floats}};
    for (int op = 0; op < MLU_OPS; op++)
        for (size_t i = 0; i < COUNT_OF(tests); i++)
            test_add(list, test_name("%s: %s", mlu_op_names[op], tests[i].name), tests[i].run, &ops[op]);
    test_add(list, "without data", without_data, NULL);
    test_add(list, "empty gradients are cleared", empty_gradients_are_cleared, NULL);
    test_add(list, "workspace", workspace, NULL);
}
