/* Tensor descriptors and handles: every way to set and read them, NULL everywhere, failures without effect, lifetimes. */
#include "mluop.h"

static mluOpTensorDescriptor_t fresh(void)
{
    mluOpTensorDescriptor_t desc = NULL;
    ok(mluOpCreateTensorDescriptor(&desc));
    assert_non_null(desc);
    return desc;
}

/* Fails unless the descriptor is exactly this. */
static void expect_desc(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout, mluOpDataType_t dtype,
                        int rank, const int64_t *dims, const int64_t *strides, uint64_t elements)
{
    mluOpTensorLayout_t got_layout;
    mluOpDataType_t got_dtype;
    int got_rank = -1;
    int64_t got_dims[16], got_strides[16];
    ok(mluOpGetTensorDescriptorEx_v2(desc, &got_layout, &got_dtype, &got_rank, got_dims, got_strides));
    assert_int_equal(got_layout, layout);
    assert_int_equal(got_dtype, dtype);
    assert_int_equal(got_rank, rank);
    if (rank > 0) {
        expect_bytes(got_dims, dims, (size_t)rank * sizeof *dims);
        expect_bytes(got_strides, strides, (size_t)rank * sizeof *strides);
    }
    assert_true(mluOpGetTensorElementNum(desc) == elements);
}

#define D(...) ((const int64_t[]){__VA_ARGS__})
#define N(...) ((const int[]){__VA_ARGS__})

TEST(a_fresh_descriptor)
{
    mluOpTensorDescriptor_t desc = fresh();
    mluOpPointerMode_t mode;
    mluOpDataType_t onchip;
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 0, NULL, NULL, 0);
    ok(mluOpGetTensorDescriptorPointerMode(desc, &mode));
    assert_int_equal(mode, MLUOP_POINTER_MODE_DEVICE);
    ok(mluOpGetTensorDescriptorOnchipDataType(desc, &onchip));
    assert_int_equal(onchip, MLUOP_DTYPE_INVALID);
    ok(mluOpDestroyTensorDescriptor(desc));
}

TEST(all_setters)
{
    mluOpTensorDescriptor_t desc = fresh();
    ok(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_NCHW, MLUOP_DTYPE_HALF, 4, N(2, 3, 5, 7)));
    expect_desc(desc, MLUOP_LAYOUT_NCHW, MLUOP_DTYPE_HALF, 4, D(2, 3, 5, 7), D(105, 35, 7, 1), 210);
    ok(mluOpSetTensorDescriptorDim(desc, 2, N(6, 4)));
    expect_desc(desc, MLUOP_LAYOUT_NCHW, MLUOP_DTYPE_HALF, 2, D(6, 4), D(4, 1), 24);
    ok(mluOpSetTensorDescriptorDim_v2(desc, 1, D(INT64_C(1) << 40)));
    expect_desc(desc, MLUOP_LAYOUT_NCHW, MLUOP_DTYPE_HALF, 1, D(INT64_C(1) << 40), D(1), UINT64_C(1) << 40);
    ok(mluOpSetTensorDescriptor_v2(desc, MLUOP_LAYOUT_NCL, MLUOP_DTYPE_BFLOAT16, 2, D(3000000000, 2)));
    expect_desc(desc, MLUOP_LAYOUT_NCL, MLUOP_DTYPE_BFLOAT16, 2, D(3000000000, 2), D(2, 1), 6000000000);
    ok(mluOpSetTensorDescriptorEx(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_INT32, 2, N(3, 4), N(8, 2)));
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_INT32, 2, D(3, 4), D(8, 2), 12);
    ok(mluOpSetTensorDescriptorEx_v2(desc, MLUOP_LAYOUT_TNC, MLUOP_DTYPE_INT64, 2, D(3, 4),
                                     D(INT64_C(1) << 33, -1)));
    expect_desc(desc, MLUOP_LAYOUT_TNC, MLUOP_DTYPE_INT64, 2, D(3, 4), D(INT64_C(1) << 33, -1), 12);
    ok(mluOpSetTensorDescriptorOnchipDataType(desc, MLUOP_DTYPE_INT8));
    mluOpDataType_t onchip;
    ok(mluOpGetTensorDescriptorOnchipDataType(desc, &onchip));
    assert_int_equal(onchip, MLUOP_DTYPE_INT8);
    ok(mluOpResetTensorDescriptor(desc));
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 0, NULL, NULL, 0);
    ok(mluOpDestroyTensorDescriptor(desc));
}

TEST(narrow_getters)
{
    mluOpTensorDescriptor_t desc = fresh();
    mluOpTensorLayout_t layout;
    mluOpDataType_t dtype;
    int rank, dims[2], strides[2];
    int64_t wide[2];
    ok(mluOpSetTensorDescriptorEx(desc, MLUOP_LAYOUT_NC, MLUOP_DTYPE_UINT8, 2, N(3, 4), N(9, 2)));
    ok(mluOpGetTensorDescriptor(desc, &layout, &dtype, &rank, dims));
    assert_true(layout == MLUOP_LAYOUT_NC && dtype == MLUOP_DTYPE_UINT8 && rank == 2);
    assert_true(dims[0] == 3 && dims[1] == 4);
    ok(mluOpGetTensorDescriptor_v2(desc, NULL, NULL, NULL, wide));
    assert_true(wide[0] == 3 && wide[1] == 4);
    ok(mluOpGetTensorDescriptorEx(desc, &layout, &dtype, &rank, dims, strides));
    assert_true(strides[0] == 9 && strides[1] == 2);
    ok(mluOpGetTensorDescriptor(desc, NULL, NULL, NULL, NULL));
    ok(mluOpGetTensorDescriptor_v2(desc, NULL, NULL, NULL, NULL));
    for (int missing = 0; missing < 5; missing++) {
        bad(mluOpGetTensorDescriptorEx(desc, missing == 0 ? NULL : &layout, missing == 1 ? NULL : &dtype,
                                       missing == 2 ? NULL : &rank, missing == 3 ? NULL : dims,
                                       missing == 4 ? NULL : strides));
        bad(mluOpGetTensorDescriptorEx_v2(desc, missing == 0 ? NULL : &layout, missing == 1 ? NULL : &dtype,
                                          missing == 2 ? NULL : &rank, missing == 3 ? NULL : wide,
                                          missing == 4 ? NULL : wide));
    }
    ok(mluOpDestroyTensorDescriptor(desc));
}

/* Up to eight dimensions fit inside; more have memory of their own, which comes and goes. */
TEST(many_dimensions)
{
    static const int64_t dims[12] = {2, 1, 3, 1, 2, 1, 1, 2, 1, 5, 1, 2};
    static const int64_t strides[12] = {120, 120, 40, 40, 20, 20, 20, 10, 10, 2, 2, 1};
    mluOpTensorDescriptor_t desc = fresh();
    for (int round = 0; round < 2; round++)
        for (int rank = 7; rank <= 12; rank++) {
            uint64_t elements = 1;
            for (int i = 12 - rank; i < 12; i++)
                elements *= (uint64_t)dims[i];
            ok(mluOpSetTensorDescriptor_v2(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, rank,
                                           dims + 12 - rank));
            expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, rank, dims + 12 - rank,
                        strides + 12 - rank, elements);
        }
    ok(mluOpResetTensorDescriptor(desc));
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 0, NULL, NULL, 0);
    ok(mluOpSetTensorDescriptor_v2(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 12, dims));
    ok(mluOpDestroyTensorDescriptor(desc));
}

/* Element counts are products modulo 2^64. */
TEST(odd_sizes)
{
    mluOpTensorDescriptor_t desc = fresh();
    ok(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_INT32, 1, N(-1)));
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_INT32, 1, D(-1), D(1), UINT64_MAX);
    ok(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_INT32, 3, N(4, 0, -5)));
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_INT32, 3, D(4, 0, -5), D(0, -5, 1), 0);
    ok(mluOpSetTensorDescriptor_v2(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_INT32, 2,
                                   D(INT64_C(1) << 40, (INT64_C(1) << 24) + 1)));
    assert_true(mluOpGetTensorElementNum(desc) == UINT64_C(1) << 40);
    ok(mluOpDestroyTensorDescriptor(desc));
}

TEST(no_dimension_needs_pointer_mode_host)
{
    mluOpTensorDescriptor_t desc = fresh();
    bad(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 0, N(1)));
    ok(mluOpSetTensorDescriptorPointerMode(desc, MLUOP_POINTER_MODE_HOST));
    ok(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_HALF, 0, NULL));
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_HALF, 0, NULL, NULL, 1);
    bad(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, -1, N(1)));
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_HALF, 0, NULL, NULL, 1);
    ok(mluOpSetTensorDescriptorEx_v2(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 0, NULL, NULL));
    expect_desc(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 0, NULL, NULL, 1);
    ok(mluOpDestroyTensorDescriptor(desc));
}

TEST(rejections_change_nothing)
{
    const mluOpTensorLayout_t no_layout = (mluOpTensorLayout_t)-1;
    const mluOpDataType_t no_type = (mluOpDataType_t)-1;
    mluOpTensorDescriptor_t desc = fresh();
    ok(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_NTC, MLUOP_DTYPE_INT8, 2, N(3, 4)));
    const mluOpStatus_t got[] = {
        mluOpSetTensorDescriptor(NULL, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, N(1)),
        mluOpSetTensorDescriptor(desc, no_layout, MLUOP_DTYPE_FLOAT, 1, N(1)),
        mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, no_type, 1, N(1)),
        mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, -1, N(1)),
        mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, NULL),
        mluOpSetTensorDescriptor_v2(NULL, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, D(1)),
        mluOpSetTensorDescriptor_v2(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 0, D(1)),
        mluOpSetTensorDescriptor_v2(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, NULL),
        mluOpSetTensorDescriptorEx(NULL, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, N(1), N(1)),
        mluOpSetTensorDescriptorEx(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, NULL, N(1)),
        mluOpSetTensorDescriptorEx(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, N(1), NULL),
        mluOpSetTensorDescriptorEx_v2(NULL, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, D(1), D(1)),
        mluOpSetTensorDescriptorEx_v2(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, -1, D(1), D(1)),
        mluOpSetTensorDescriptorEx_v2(desc, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, D(1), NULL),
        mluOpSetTensorDescriptorDim(NULL, 1, N(1)),
        mluOpSetTensorDescriptorDim(desc, 1, NULL),
        mluOpSetTensorDescriptorDim_v2(NULL, 1, D(1)),
        mluOpSetTensorDescriptorDim_v2(desc, -2, D(1)),
        mluOpSetTensorDescriptorOnchipDataType(NULL, MLUOP_DTYPE_FLOAT),
        mluOpSetTensorDescriptorPointerMode(NULL, MLUOP_POINTER_MODE_HOST),
        mluOpSetTensorDescriptorPointerMode(desc, (mluOpPointerMode_t)-1),
        mluOpGetTensorDescriptor(NULL, NULL, NULL, NULL, NULL),
        mluOpGetTensorDescriptor_v2(NULL, NULL, NULL, NULL, NULL),
        mluOpGetTensorDescriptorOnchipDataType(desc, NULL),
        mluOpGetTensorDescriptorPointerMode(desc, NULL),
        mluOpCreateTensorDescriptor(NULL),
        mluOpResetTensorDescriptor(NULL),
        mluOpDestroyTensorDescriptor(NULL),
    };
    for (size_t k = 0; k < COUNT_OF(got); k++)
        if (got[k] != MLUOP_STATUS_BAD_PARAM)
            fail_msg("row %zu: %s", k, mluOpGetErrorString(got[k]));
    expect_desc(desc, MLUOP_LAYOUT_NTC, MLUOP_DTYPE_INT8, 2, D(3, 4), D(4, 1), 12);
    assert_int_equal(mluOpGetTensorElementNum(NULL), 0);
    ok(mluOpDestroyTensorDescriptor(desc));
}

TEST(groups)
{
    mluOpTensorDescriptor_t a = NULL, b = NULL;
    mluOpTensorDescriptor_t *group[2] = {&a, &b}, *hole[2] = {&a, NULL};
    const mluOpTensorLayout_t layouts[2] = {MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_NC};
    const mluOpDataType_t types[2] = {MLUOP_DTYPE_FLOAT, MLUOP_DTYPE_INT32};
    bad(mluOpCreateGroupTensorDescriptors(NULL, 2));
    bad(mluOpCreateGroupTensorDescriptors(hole, 2));
    bad(mluOpCreateGroupTensorDescriptors(group, 0));
    bad(mluOpDestroyGroupTensorDescriptors(group, 2)); /* still NULL */
    assert_true(a == NULL && b == NULL);
    ok(mluOpCreateGroupTensorDescriptors(group, 2));
    ok(mluOpSetGroupTensorDescriptors(group, layouts, types, N(1, 2), N(7, 3, 4), 2));
    expect_desc(a, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 1, D(7), D(1), 7);
    expect_desc(b, MLUOP_LAYOUT_NC, MLUOP_DTYPE_INT32, 2, D(3, 4), D(4, 1), 12);
    ok(mluOpSetGroupTensorDescriptors_v2(group, layouts, types, N(2, 1), D(2, 3, 4000000000), 2));
    bad(mluOpSetGroupTensorDescriptors(group, layouts, types, N(1, 0), N(7, 3, 4), 2));
    bad(mluOpSetGroupTensorDescriptors(group, NULL, types, N(1, 1), N(7, 3), 2));
    bad(mluOpSetGroupTensorDescriptors(group, layouts, NULL, N(1, 1), N(7, 3), 2));
    bad(mluOpSetGroupTensorDescriptors(group, layouts, types, NULL, N(7, 3), 2));
    bad(mluOpSetGroupTensorDescriptors_v2(group, layouts, types, N(1, 1), NULL, 2));
    bad(mluOpSetGroupTensorDescriptors_v2(hole, layouts, types, N(1, 1), D(7, 3), 2));
    expect_desc(a, MLUOP_LAYOUT_ARRAY, MLUOP_DTYPE_FLOAT, 2, D(2, 3), D(3, 1), 6);
    expect_desc(b, MLUOP_LAYOUT_NC, MLUOP_DTYPE_INT32, 1, D(4000000000), D(1), 4000000000);
    ok(mluOpDestroyGroupTensorDescriptors(group, 2));
}

TEST(sizes_of_types)
{
    static const size_t want[] = {0, 2, 4, 1, 2, 4, 4, 1, 1, 8, 0, 4, 8, 2, 8, 4, 8, 2, 0};
    for (size_t type = 0; type < COUNT_OF(want); type++) {
        size_t bytes = 77;
        mlu_expect(mluOpGetSizeOfDataType((mluOpDataType_t)type, &bytes),
                   want[type] == 0 ? MLUOP_STATUS_BAD_PARAM : MLUOP_STATUS_SUCCESS, __FILE__, __LINE__);
        assert_int_equal(bytes, want[type] == 0 ? 77 : want[type]);
    }
    bad(mluOpGetSizeOfDataType(MLUOP_DTYPE_FLOAT, NULL));
}

/* ---- Handles ---- */

TEST(statuses_have_names)
{
    static const char *const names[] = {
        "SUCCESS",       "NOT_INITIALIZED",  "ALLOC_FAILED",  "BAD_PARAM",          "INTERNAL_ERROR",
        "ARCH_MISMATCH", "EXECUTION_FAILED", "NOT_SUPPORTED", "NUMERICAL_OVERFLOW", "UNKNOWN"};
    for (size_t k = 0; k < COUNT_OF(names); k++)
        assert_string_equal(mluOpGetErrorString((mluOpStatus_t)k), test_name("MLUOP_STATUS_%s", names[k]));
    assert_string_equal(mluOpGetErrorString((mluOpStatus_t)-1), "MLUOP_STATUS_UNKNOWN");
}

TEST(version)
{
    int major = 0, minor = 0, patch = 0;
    mluOpGetLibVersion(&major, &minor, &patch);
    assert_true(major == 1 && minor == 11 && patch == 1);
    mluOpGetLibVersion(NULL, NULL, NULL);
}

TEST(handles_and_queues)
{
    mluOpHandle_t handle = NULL;
    cnrtQueue_t queue = NULL, got = NULL;
    bad(mluOpCreate(NULL));
    bad(mluOpDestroy(NULL));
    ok(mluOpCreate(&handle));
    cnrt_ok(cnrtQueueCreate(&queue));
    got = queue;
    ok(mluOpGetQueue(handle, &got));
    assert_null(got);
    bad(mluOpSetQueue(NULL, queue));
    bad(mluOpGetQueue(NULL, &got));
    bad(mluOpGetQueue(handle, NULL));
    ok(mluOpSetQueue(handle, queue));
    ok(mluOpGetQueue(handle, &got));
    assert_ptr_equal(got, queue);
    ok(mluOpSetQueue(handle, NULL));
    ok(mluOpGetQueue(handle, &got));
    assert_null(got);
    cnrt_ok(cnrtQueueDestroy(queue));
    ok(mluOpDestroy(handle));
}

/* The vendor's tests look into a handle: at its queue and the generation of its device. */
TEST(a_handle_has_the_vendors_first_fields)
{
    struct vendor {
        int64_t device;
        cnrtQueue_t queue;
        int arch;
    } first;
    mluOpHandle_t handle = NULL;
    cnrtQueue_t queue = NULL;
    ok(mluOpCreate(&handle));
    memcpy(&first, handle, sizeof first);
    assert_true(first.device == 0 && first.queue == NULL && first.arch == 372);
    cnrt_ok(cnrtQueueCreate(&queue));
    ok(mluOpSetQueue(handle, queue));
    memcpy(&first, handle, sizeof first);
    assert_ptr_equal(first.queue, queue);
    cnrt_ok(cnrtQueueDestroy(queue));
    ok(mluOpDestroy(handle));
}

/* Handle, descriptors, memory and queue of a call in each order of taking them apart; the leak search looks
   on. */
TEST(destroyed_in_any_order)
{
    for (int order = 0; order < 24; order++) {
        struct mlu_call call;
        cnrtQueue_t queue;
        mlu_make(&call, MLU_GATE, (struct mlu_sizes){2, 2, 2, 1});
        cnrt_ok(cnrtQueueCreate(&queue));
        ok(mluOpSetQueue(call.handle, queue));
        ok(mlu_run(&call));
        int left[4] = {0, 1, 2, 3}, rest = order;
        for (int n = 4; n > 0; n--) {
            const int pick = rest % n;
            rest /= n;
            if (left[pick] == 0)
                ok(mluOpDestroy(call.handle));
            else if (left[pick] == 1)
                cnrt_ok(cnrtQueueDestroy(queue));
            for (int i = 0; left[pick] >= 2 && i < MLU_TENSORS; i++)
                if (left[pick] == 2)
                    ok(mluOpDestroyTensorDescriptor(call.desc[i]));
                else
                    buf_free(call.data[i]);
            left[pick] = left[n - 1];
        }
    }
}

/* Two handles do not know of each other. */
TEST(two_handles)
{
    struct mlu_call a, b;
    mlu_make(&a, MLU_FORWARD, (struct mlu_sizes){2, 2, 2, 1});
    mlu_make(&b, MLU_DATA, (struct mlu_sizes){2, 2, 2, 1});
    ok(mlu_run(&a));
    ok(mlu_run(&b));
    mlu_free(&a);
    ok(mlu_run(&b));
    mlu_free(&b);
}

void add_descriptors(struct test_list *list)
{
    for (size_t i = 0; i < own_tests.count; i++)
        test_add(list, own_tests.tests[i].name, own_tests.tests[i].test_func, NULL);
}
