/*
 * Operators of expert slots, beyond a call against the oracle: the caller's rounding mode, a broken promise, a second name, queries
 * of sizes that no test could hold.
 */
#include "case/case.h"
#include "support.h"

#include <fenv.h>

/* 0.7 * 10 is a tie between 7 and the number below it: nearest even makes 7, rounding down would make 6. */
TEST(capacity_ignores_the_rounding_mode)
{
    const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    int64_t got = 0, one[] = {1};
    const DLTensor out = sy_tensor(&got, SY_I64, 1, one);
    const sy_moe_capacity_args args = {.samples = 10, .num_experts = 1, .factor = .7, .capacity = &out};
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        const sy_status status = sy_moe_capacity(case_ctx[0], &args);
        const int mode = fegetround();
        fesetround(FE_TONEAREST);
        expect_status(case_ctx[0], status, SY_OK);
        assert_int_equal(got, 7);
        assert_int_equal(mode, modes[i]);
    }
}

/* The row that several samples name is any of theirs, every other row is exact. */
TEST(broken_unique_promise_changes_only_its_row)
{
    int32_t indices[] = {0, 0, 1, 0}, locations[] = {1, 1, 0, 1};
    float input[] = {1, 2, 3, 4}, rows[4];
    int64_t s[] = {4}, x[] = {4, 1};
    const DLTensor i = sy_tensor(indices, SY_I32, 1, s), l = sy_tensor(locations, SY_I32, 1, s),
                   in = sy_tensor(input, SY_F32, 2, x), out = sy_tensor(rows, SY_F32, 2, x);
    const sy_moe_dispatch_args args = {.indices = &i,
                                       .locations = &l,
                                       .input = &in,
                                       .num_experts = 2,
                                       .capacity = 2,
                                       .unique_slots = true,
                                       .dispatch = &out};
    for (int c = 0; c < n_case_ctx; c++) {
        for (int r = 0; r < 4; r++)
            rows[r] = 9;
        expect_status(case_ctx[c], sy_moe_dispatch(case_ctx[c], &args), SY_OK);
        assert_true(rows[0] == 9 && rows[2] == 3 && rows[3] == 9);
    }
}

TEST(another_name_for_the_gradient)
{
    int32_t zero[] = {0};
    float slots[] = {3, 4}, output[2];
    int64_t one[] = {1}, row[] = {1, 2};
    const DLTensor i = sy_tensor(zero, SY_I32, 1, one), z = sy_tensor(slots, SY_F32, 2, row),
                   y = sy_tensor(output, SY_F32, 2, row);
    const sy_moe_combine_args args = {
        .indices = &i, .locations = &i, .expert_out = &z, .num_experts = 1, .capacity = 1, .output = &y};
    expect_status(case_ctx[0], sy_moe_dispatch_grad_data(case_ctx[0], &args), SY_OK);
    expect_bytes(output, slots, sizeof output);
}

/* From shapes alone; scratch is never a share of the rows. */
TEST(queries_of_large_calls)
{
    enum { T = 1 << 20, E = 256, H = 7168 };
    sy_ctx *const ctx = case_ctx[0];
    sy_view view[5];
    const DLTensor *const map = sy_mat(&view[0], NULL, SY_BOOL, T, E);
    sy_moe_permute_args permute = {
        .tokens = sy_mat(&view[1], NULL, SY_BF16, T, H), .routing_map = map, .num_out_tokens = 8 * T + 5};
    sy_moe_unpermute_args unpermute = {.permuted_tokens = sy_mat(&view[2], NULL, SY_BF16, 8 * T, H),
                                       .sorted_indices = sy_vec(&view[3], NULL, SY_I32, 8 * T),
                                       .routing_map = map,
                                       .probs = sy_mat(&view[4], NULL, SY_F32, T, E)};
    sy_query q;
    for (int capacity = 0; capacity < 2; capacity++) {
        permute.drop_and_pad = unpermute.drop_and_pad = capacity;
        expect_status(ctx, sy_moe_permute_query(ctx, &permute, &q), SY_OK);
        assert_true(q.rows == 8 * T && q.slots == (capacity ? 8 * T / E : 8));
        expect_status(ctx, sy_moe_unpermute_query(ctx, &unpermute, &q), SY_OK);
        assert_true(q.rows == T && q.workspace_bytes < (capacity ? 8 * T * 16 : 4096));
    }
}

TESTS_IN_CONTEXTS(moe_slots, "op_moe_slots")
