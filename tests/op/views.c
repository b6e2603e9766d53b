/*
 * The helpers of the header that make tensors: shapes that a view carries, const data, single numbers for all rows.
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

/* One number for all rows is the same as a tensor that repeats it. */
TEST(one_number_for_all_rows)
{
    enum { ROWS = 3, VOCAB = 50 };
    float logits[ROWS][VOCAB], p[ROWS], heat[ROWS];
    int64_t k[ROWS], got[ROWS], want[ROWS], stream[ROWS];
    uint64_t rng = 7;
    for (int b = 0; b < ROWS; b++) {
        for (int v = 0; v < VOCAB; v++)
            logits[b][v] = (float)rng_below(&rng, 1000) / 100;
        k[b] = 20;
        p[b] = 0.75f;
        heat[b] = 1.5f;
        stream[b] = 40 + b;
    }
    sy_ctx *ctx = test_ctx(1, NULL);
    sy_view x, out, of[4];
    sy_sample_args args = {.logits = sy_mat(&x, logits, SY_F32, ROWS, VOCAB),
                           .top_k = sy_vec(&of[0], k, SY_I64, ROWS),
                           .top_p = sy_vec(&of[1], p, SY_F32, ROWS),
                           .temperature = sy_vec(&of[2], heat, SY_F32, ROWS),
                           .seed = sy_number_i64(&(sy_view){.real = 0}, 99),
                           .stream = sy_vec(&of[3], stream, SY_I64, ROWS),
                           .token = sy_vec(&out, want, SY_I64, ROWS)};
    expect_status(ctx, sy_sample(ctx, &args), SY_OK);
    sy_number_i64(&of[0], 20);
    sy_number_f32(&of[1], 0.75f);
    sy_number_f32(&of[2], 1.5f);
    sy_vec(&out, got, SY_I64, ROWS);
    assert_int_equal(args.top_k->shape[0], 1);
    expect_status(ctx, sy_sample(ctx, &args), SY_OK);
    expect_bytes(got, want, sizeof want);
    sy_number_i64(&of[0], 1); /* and it has an effect: the largest logit */
    expect_status(ctx, sy_sample(ctx, &args), SY_OK);
    for (int b = 0; b < ROWS; b++)
        for (int v = 0; v < VOCAB; v++)
            assert_true(logits[b][v] <= logits[b][got[b]]);
    sy_ctx_destroy(ctx);
}

TEST_GROUP(views)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_and_matrices),
        cmocka_unit_test(shapes_may_be_const),
        cmocka_unit_test(one_number_for_all_rows),
    };
    return cmocka_run_group_tests_name("op_views", tests, NULL, NULL);
}
