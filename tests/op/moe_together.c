/*
 * Operators and their gradients, which oracles of each alone (tests/case) cannot show to belong together; and queries of sizes that no
 * test could hold.
 */
#include "support.h"

#include <math.h>

static sy_ctx *ctx;

static int open_context(void **state)
{
    (void)state;
    ctx = test_ctx(3, NULL);
    return 0;
}

static int close_context(void **state)
{
    (void)state;
    sy_ctx_destroy(ctx);
    return 0;
}

#define MAT(data, type, rows, columns) sy_mat(&(sy_view){.real = 0}, data, type, rows, columns)
#define VEC(data, type, n) sy_vec(&(sy_view){.real = 0}, data, type, n)

/* ---- Gradients ----------------------------------------------------------------------------------------- */

static void fill(uint64_t *rng, float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(rng_unit(rng) * 2 - 1);
}

static double inner(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* The sums of a few hundred products near 1, in f32 and in another order: they differ by rounding alone. */
static void expect_equal_sums(double a, double b)
{
    if (!(fabs(a - b) <= 1e-4))
        fail_msg("%.9g and %.9g should be one number", a, b);
    assert_true(fabs(a) > 1e-6); /* else both could be nothing */
}

enum { TOKENS = 19, EXPERTS = 7, HIDDEN = 23, ROWS = 63 };

struct layer {
    float x[TOKENS * HIDDEN], grad_x[TOKENS * HIDDEN], z[TOKENS * HIDDEN], grad_z[TOKENS * HIDDEN];
    float y[ROWS * HIDDEN], grad_y[ROWS * HIDDEN];
    float probs[TOKENS * EXPERTS], grad_probs[TOKENS * EXPERTS], row_probs[ROWS], grad_row_probs[ROWS];
    uint8_t map[TOKENS * EXPERTS];
    int32_t indices[ROWS];
};

static void permute_layer(struct layer *l, int64_t rows, bool capacity, bool zero_pad)
{
    const DLTensor *const map = MAT(l->map, SY_BOOL, TOKENS, EXPERTS), *const indices =
                                                                           VEC(l->indices, SY_I32, rows);
    const sy_moe_permute_args forward = {.tokens = MAT(l->x, SY_F32, TOKENS, HIDDEN),
                                         .routing_map = map,
                                         .probs = MAT(l->probs, SY_F32, TOKENS, EXPERTS),
                                         .num_out_tokens = rows,
                                         .drop_and_pad = capacity,
                                         .zero_pad = zero_pad,
                                         .permuted_tokens = MAT(l->y, SY_F32, rows, HIDDEN),
                                         .sorted_indices = indices,
                                         .permuted_probs = VEC(l->row_probs, SY_F32, rows)};
    const sy_moe_permute_grad_args backward = {.grad_permuted_tokens = MAT(l->grad_y, SY_F32, rows, HIDDEN),
                                               .sorted_indices = indices,
                                               .grad_permuted_probs = VEC(l->grad_row_probs, SY_F32, rows),
                                               .routing_map = map,
                                               .num_experts = EXPERTS,
                                               .num_tokens = TOKENS,
                                               .drop_and_pad = capacity,
                                               .zero_pad = zero_pad,
                                               .grad_tokens = MAT(l->grad_x, SY_F32, TOKENS, HIDDEN),
                                               .grad_probs = MAT(l->grad_probs, SY_F32, TOKENS, EXPERTS)};
    expect_status(ctx, sy_moe_permute(ctx, &forward), SY_OK);
    expect_status(ctx, sy_moe_permute_grad(ctx, &backward), SY_OK);
    expect_equal_sums(inner(l->y, l->grad_y, rows * HIDDEN), inner(l->x, l->grad_x, TOKENS * HIDDEN));
    expect_equal_sums(inner(l->row_probs, l->grad_row_probs, rows),
                      inner(l->probs, l->grad_probs, TOKENS * EXPERTS));
}

/* moe_unpermute is linear in its rows and in its probs. */
static void unpermute_layer(struct layer *l, int64_t rows, bool capacity, bool zero_pad)
{
    const DLTensor *const map = MAT(l->map, SY_BOOL, TOKENS, EXPERTS),
                          *const y = MAT(l->y, SY_F32, rows, HIDDEN),
                          *const indices = VEC(l->indices, SY_I32, rows),
                          *const probs = MAT(l->probs, SY_F32, TOKENS, EXPERTS);
    const sy_moe_unpermute_args forward = {.permuted_tokens = y,
                                           .sorted_indices = indices,
                                           .routing_map = map,
                                           .probs = probs,
                                           .drop_and_pad = capacity,
                                           .zero_pad = zero_pad,
                                           .tokens = MAT(l->z, SY_F32, TOKENS, HIDDEN)};
    const sy_moe_unpermute_grad_args backward = {.grad_tokens = MAT(l->grad_z, SY_F32, TOKENS, HIDDEN),
                                                 .sorted_indices = indices,
                                                 .permuted_tokens = y,
                                                 .routing_map = map,
                                                 .probs = probs,
                                                 .drop_and_pad = capacity,
                                                 .zero_pad = zero_pad,
                                                 .grad_permuted_tokens = MAT(l->grad_y, SY_F32, rows, HIDDEN),
                                                 .grad_probs = MAT(l->grad_probs, SY_F32, TOKENS, EXPERTS)};
    expect_status(ctx, sy_moe_unpermute(ctx, &forward), SY_OK);
    expect_status(ctx, sy_moe_unpermute_grad(ctx, &backward), SY_OK);
    const double sum = inner(l->z, l->grad_z, TOKENS * HIDDEN);
    expect_equal_sums(sum, inner(l->y, l->grad_y, rows * HIDDEN));
    expect_equal_sums(sum, inner(l->probs, l->grad_probs, TOKENS * EXPERTS));
}

/* <forward(x), g> = <x, backward(g)>, packed, with capacity, with padding that is zero. */
TEST(permute_and_unpermute_have_gradients)
{
    for (uint64_t i = 0; i < 12; i++) {
        uint64_t rng = 100 + i;
        struct layer *const l = calloc(1, sizeof *l);
        assert_non_null(l);
        fill(&rng, l->x, TOKENS * HIDDEN);
        fill(&rng, l->grad_z, TOKENS * HIDDEN);
        fill(&rng, l->grad_y, ROWS * HIDDEN);
        fill(&rng, l->probs, TOKENS * EXPERTS);
        fill(&rng, l->grad_row_probs, ROWS);
        for (int t = 0; t < TOKENS; t++)
            for (int64_t left = 1 + rng_below(&rng, 3); left > 0;) {
                uint8_t *cell = &l->map[t * EXPERTS + rng_below(&rng, EXPERTS)];
                left -= *cell == 0;
                *cell = 1;
            }
        const int64_t rows = i % 3 > 0 ? ROWS : 3 * TOKENS;
        permute_layer(l, rows, i % 3 > 0, i % 3 == 2);
        unpermute_layer(l, rows, i % 3 > 0, i % 3 == 2);
        free(l);
    }
}

/* Encode: dispatch of every choice; decode: combine. Both are linear in rows and in gates. Some choices find no place. */
TEST(dispatch_and_combine_have_gradients)
{
    enum { K = 2, S = 23, E = 5, C = 8, H = 19 };
    int32_t indices[K][S], locations[K][S];
    float gates[K][S], x[S * H], grad_x[S * H], y[S * H], grad_y[S * H], grad_gates[2][K * S],
        slots[E * C * H] = {0}, grad_slots[E * C * H], z[E * C * H], grad_z[E * C * H] = {0};
    uint64_t rng = 1;
    int dropped = 0;
    for (int i = 0; i < S; i++) {
        indices[0][i] = (int32_t)rng_below(&rng, E);
        indices[1][i] = (int32_t)((indices[0][i] + 1 + rng_below(&rng, E - 1)) % E);
    }
    fill(&rng, &gates[0][0], K * S);
    fill(&rng, x, S * H);
    fill(&rng, grad_y, S * H);
    fill(&rng, grad_slots, E * C * H);
    fill(&rng, z, E * C * H);
    const DLTensor *const i = MAT(indices, SY_I32, K, S), *const l = MAT(locations, SY_I32, K, S),
                          *const g = MAT(gates, SY_F32, K, S);
    const sy_moe_locations_args locate = {.indices = i, .num_experts = E, .locations = l};
    expect_status(ctx, sy_moe_locations(ctx, &locate), SY_OK);
    for (int at = 0; at < K * S; at++)
        dropped += locations[at / S][at % S] >= C;
    assert_true(dropped > 0);
    for (int t = 0; t < 2 * K; t++) { /* x to slots, the gradient of y to that of z */
        const sy_moe_dispatch_args dispatch = {.gates = VEC(gates[t % K], SY_F32, S),
                                               .indices = VEC(indices[t % K], SY_I32, S),
                                               .locations = VEC(locations[t % K], SY_I32, S),
                                               .input = MAT(t < K ? x : grad_y, SY_F32, S, H),
                                               .num_experts = E,
                                               .capacity = C,
                                               .unique_slots = true,
                                               .dispatch = MAT(t < K ? slots : grad_z, SY_F32, E * C, H)};
        expect_status(ctx, sy_moe_dispatch(ctx, &dispatch), SY_OK);
    }
    for (int decode = 0; decode < 2; decode++) {
        const DLTensor *const rows = MAT(decode ? z : grad_slots, SY_F32, E * C, H);
        const sy_moe_combine_args combine = {.gates = g,
                                             .indices = i,
                                             .locations = l,
                                             .expert_out = rows,
                                             .num_experts = E,
                                             .capacity = C,
                                             .output = MAT(decode ? y : grad_x, SY_F32, S, H)};
        const sy_moe_dispatch_grad_gate_args gate = {.indices = i,
                                                     .locations = l,
                                                     .input = MAT(decode ? grad_y : x, SY_F32, S, H),
                                                     .dispatch = rows,
                                                     .num_experts = E,
                                                     .capacity = C,
                                                     .grad_gates = MAT(grad_gates[decode], SY_F32, K, S)};
        expect_status(ctx, decode ? sy_moe_combine(ctx, &combine) : sy_moe_dispatch_grad_data(ctx, &combine),
                      SY_OK);
        expect_status(ctx, sy_moe_dispatch_grad_gate(ctx, &gate), SY_OK);
    }
    const double encoded = inner(slots, grad_slots, E * C * H), decoded = inner(y, grad_y, S * H);
    expect_equal_sums(encoded, inner(x, grad_x, S * H));
    expect_equal_sums(encoded, inner(&gates[0][0], grad_gates[0], K * S));
    expect_equal_sums(decoded, inner(z, grad_z, E * C * H));
    expect_equal_sums(decoded, inner(&gates[0][0], grad_gates[1], K * S));
}

/* ---- Queries ------------------------------------------------------------------------------------------- */

/* From shapes alone, at sizes no test could hold; scratch is never a share of the rows. */
TEST(queries_of_large_calls)
{
    enum { T = 1 << 20, E = 256, H = 7168 };
    const DLTensor *const map = MAT(NULL, SY_BOOL, T, E);
    sy_moe_permute_args permute = {
        .tokens = MAT(NULL, SY_BF16, T, H), .routing_map = map, .num_out_tokens = 8 * T + 5};
    sy_moe_unpermute_args unpermute = {.permuted_tokens = MAT(NULL, SY_BF16, 8 * T, H),
                                       .sorted_indices = VEC(NULL, SY_I32, 8 * T),
                                       .routing_map = map,
                                       .probs = MAT(NULL, SY_F32, T, E)};
    sy_query q;
    for (int capacity = 0; capacity < 2; capacity++) {
        permute.drop_and_pad = unpermute.drop_and_pad = capacity;
        expect_status(ctx, sy_moe_permute_query(ctx, &permute, &q), SY_OK);
        assert_true(q.rows == 8 * T && q.slots == (capacity ? 8 * T / E : 8));
        expect_status(ctx, sy_moe_unpermute_query(ctx, &unpermute, &q), SY_OK);
        assert_true(q.rows == T && q.workspace_bytes < (capacity ? 8 * T * 16 : 4096));
    }
}

TEST_GROUP(moe_together)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permute_and_unpermute_have_gradients),
        cmocka_unit_test(dispatch_and_combine_have_gradients),
        cmocka_unit_test(queries_of_large_calls),
    };
    return cmocka_run_group_tests_name("op_moe_together", tests, open_context, close_context);
}
