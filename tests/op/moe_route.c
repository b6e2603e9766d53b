/*
 * moe_route: how far a score is from the function that it is named after. All else is in its case.
 */
#include "case/case.h"
#include "support.h"

#include <math.h>

/* The score is the function it is meant to be: the documented distance, 2.2 units in the last place, beside that of the double. */
TEST(square_roots_of_softplus)
{
    enum { N = 8192 };
    static float x[N], s[N];
    double worst = 0;
    for (int i = 0; i < N; i++)
        x[i] = -86 + (float)i * 186 / N;
    DLTensor logits = sy_tensor(x, SY_F32, 2, (int64_t[]){1, N}),
             scores = sy_tensor(s, SY_F32, 2, (int64_t[]){1, N});
    const sy_moe_route_args args = {
        .logits = &logits, .k = 1, .score = SY_SCORE_SQRTSOFTPLUS, .scores = &scores};
    expect_status(case_ctx[1], sy_moe_route(case_ctx[1], &args), SY_OK);
    for (int i = 0; i < N; i++) {
        const double e = exp(-fabs((double)x[i])), want = sqrt(log1p(e) + (x[i] > 0 ? (double)x[i] : 0));
        const double unit = (double)(f32_from_bits(f32_bits(s[i]) + 1) - s[i]);
        worst = fmax(worst, fabs((double)s[i] - want) / unit);
    }
    assert_true(worst > 0.5 && worst < 2.2);
}

TESTS_IN_CONTEXTS(moe_route, "op_moe_route")
