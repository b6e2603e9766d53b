/*
 * The helpers of the header that make tensors: shapes that a view carries, const data. sample_largest.c has single numbers.
 */
#include "support.h"

TEST(vectors_and_matrices)
{
    static const float data[6] = {0};
    sy_view view;
    const DLTensor *t = sy_mat(&view, data, SY_F32, 2, 3);
    assert_ptr_equal(t, &view.tensor);
    assert_true(t->data == data && t->ndim == 2 && t->strides == NULL && t->byte_offset == 0);
    assert_true(t->device.device_type == kDLCPU && t->dtype.code == 2 && t->dtype.bits == 32);
    assert_true(t->shape[0] == 2 && t->shape[1] == 3);
    assert_ptr_equal(sy_vec(&view, data, SY_F64, 3), t); /* filled again: the same tensor, another shape */
    assert_true(t->ndim == 1 && t->shape[0] == 3 && t->dtype.bits == 64);
}

TEST(shapes_may_be_const)
{
    static const uint8_t map[2][2] = {{1, 0}, {1, 1}};
    static const int64_t shape[2] = {2, 2};
    const DLTensor t = sy_tensor(map, SY_BOOL, 2, shape);
    int32_t ids[2][2];
    sy_view out;
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_moe_ids_from_map_args args = {.routing_map = &t, .k = 2, .ids = sy_mat(&out, ids, SY_I32, 2, 2)};
    expect_status(ctx, sy_moe_ids_from_map(ctx, &args), SY_OK);
    assert_true(ids[0][0] == 0 && ids[0][1] == -1 && ids[1][0] == 0 && ids[1][1] == 1);
    sy_ctx_destroy(ctx);
}

TESTS(views, "op_views")
