/*
 * What makes a gradient one. moe_permute and moe_permute_grad, and moe_unpermute and moe_unpermute_grad, are adjoint:
 * <forward(x), g> = <x, backward(g)> for every x and g. And the gradients of moe_unpermute are the slopes of its exact
 * result, by differences in double. Indices come from moe_permute itself, in both modes.
 */
#include "oracle/moe_rows.h"
#include "support.h"

#include <math.h>

enum {
    TOKENS = 19,
    EXPERTS = 7,
    HIDDEN = 23,
    SLOTS = 3,
    ROWS = 7 * 9
}; /* 57 rows packed, 63 with capacity */

/* One network layer's worth of tensors, f32, owned here. */
struct layer {
    float x[TOKENS * HIDDEN], grad_x[TOKENS * HIDDEN], z[TOKENS * HIDDEN], grad_z[TOKENS * HIDDEN];
    float y[ROWS * HIDDEN], grad_y[ROWS * HIDDEN];
    float probs[TOKENS * EXPERTS], grad_probs[TOKENS * EXPERTS], row_probs[ROWS], grad_row_probs[ROWS];
    uint8_t map[TOKENS * EXPERTS];
    int32_t indices[ROWS];
    int64_t token_shape[2], row_shape[2], map_shape[2];
    DLTensor x_t, grad_x_t, z_t, grad_z_t, y_t, grad_y_t, probs_t, grad_probs_t, row_probs_t,
        grad_row_probs_t, map_t, indices_t;
    bool capacity, zero_pad;
};

static void fill(uint64_t *rng, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(rng_unit(rng) * 2 - 1);
}

static void layer_make(struct layer *l, bool capacity, bool zero_pad, uint64_t seed)
{
    uint64_t rng = seed;
    const int64_t rows = capacity ? ROWS : SLOTS * TOKENS;
    memset(l, 0, sizeof *l);
    l->capacity = capacity;
    l->zero_pad = zero_pad;
    fill(&rng, l->x, COUNT_OF(l->x));
    fill(&rng, l->grad_z, COUNT_OF(l->grad_z));
    fill(&rng, l->grad_y, COUNT_OF(l->grad_y));
    fill(&rng, l->probs, COUNT_OF(l->probs));
    fill(&rng, l->grad_row_probs, COUNT_OF(l->grad_row_probs));
    for (int t = 0; t < TOKENS; t++)
        for (int64_t left = 1 + rng_below(&rng, SLOTS); left > 0;) {
            uint8_t *cell = &l->map[t * EXPERTS + rng_below(&rng, EXPERTS)];
            left -= *cell == 0;
            *cell = 1;
        }
    memcpy(l->token_shape, (int64_t[]){TOKENS, HIDDEN}, sizeof l->token_shape);
    memcpy(l->row_shape, (int64_t[]){rows, HIDDEN}, sizeof l->row_shape);
    memcpy(l->map_shape, (int64_t[]){TOKENS, EXPERTS}, sizeof l->map_shape);
    l->x_t = sy_tensor(l->x, SY_F32, 2, l->token_shape);
    l->grad_x_t = sy_tensor(l->grad_x, SY_F32, 2, l->token_shape);
    l->z_t = sy_tensor(l->z, SY_F32, 2, l->token_shape);
    l->grad_z_t = sy_tensor(l->grad_z, SY_F32, 2, l->token_shape);
    l->y_t = sy_tensor(l->y, SY_F32, 2, l->row_shape);
    l->grad_y_t = sy_tensor(l->grad_y, SY_F32, 2, l->row_shape);
    l->probs_t = sy_tensor(l->probs, SY_F32, 2, l->map_shape);
    l->grad_probs_t = sy_tensor(l->grad_probs, SY_F32, 2, l->map_shape);
    l->row_probs_t = sy_tensor(l->row_probs, SY_F32, 1, l->row_shape);
    l->grad_row_probs_t = sy_tensor(l->grad_row_probs, SY_F32, 1, l->row_shape);
    l->map_t = sy_tensor(l->map, SY_BOOL, 2, l->map_shape);
    l->indices_t = sy_tensor(l->indices, SY_I32, 1, l->row_shape);
}

static void permute(struct layer *l, sy_ctx *ctx)
{
    const sy_moe_permute_args args = {.tokens = &l->x_t,
                                      .routing_map = &l->map_t,
                                      .probs = &l->probs_t,
                                      .num_out_tokens = l->row_shape[0],
                                      .drop_and_pad = l->capacity,
                                      .zero_pad = l->zero_pad,
                                      .permuted_tokens = &l->y_t,
                                      .sorted_indices = &l->indices_t,
                                      .permuted_probs = &l->row_probs_t};
    expect_status(ctx, sy_moe_permute(ctx, &args), SY_OK);
}

static void unpermute(struct layer *l, sy_ctx *ctx, bool weighted)
{
    const sy_moe_unpermute_args args = {.permuted_tokens = &l->y_t,
                                        .sorted_indices = &l->indices_t,
                                        .routing_map = &l->map_t,
                                        .probs = weighted ? &l->probs_t : NULL,
                                        .drop_and_pad = l->capacity,
                                        .zero_pad = l->zero_pad,
                                        .tokens = &l->z_t};
    expect_status(ctx, sy_moe_unpermute(ctx, &args), SY_OK);
}

static void unpermute_grad(struct layer *l, sy_ctx *ctx, bool weighted)
{
    const sy_moe_unpermute_grad_args args = {.grad_tokens = &l->grad_z_t,
                                             .sorted_indices = &l->indices_t,
                                             .permuted_tokens = weighted ? &l->y_t : NULL,
                                             .routing_map = &l->map_t,
                                             .probs = weighted ? &l->probs_t : NULL,
                                             .drop_and_pad = l->capacity,
                                             .zero_pad = l->zero_pad,
                                             .grad_permuted_tokens = &l->grad_y_t,
                                             .grad_probs = weighted ? &l->grad_probs_t : NULL};
    expect_status(ctx, sy_moe_unpermute_grad(ctx, &args), SY_OK);
}

static double inner(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void expect_equal_sums(double a, double b)
{
    if (!(fabs(a - b) <= 1e-4))
        fail_msg("%.9g and %.9g should be one number", a, b);
    assert_true(fabs(a) > 1e-6); /* else both could be nothing */
}

typedef void layer_test(struct layer *l, sy_ctx *ctx);

/* Packed, capacity, capacity with zero_pad, several seeds. */
static void for_all_layers(void **state)
{
    layer_test *const test = *(layer_test *const *)*state;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (uint64_t i = 0; i < 12; i++) {
        struct layer *l = malloc(sizeof *l);
        assert_non_null(l);
        layer_make(l, i % 3 > 0, i % 3 == 2, 100 + i);
        permute(l, ctx);
        test(l, ctx);
        free(l);
    }
    sy_ctx_destroy(ctx);
}

static void permute_adjoint(struct layer *l, sy_ctx *ctx)
{
    const int64_t rows = l->row_shape[0];
    const sy_moe_permute_grad_args args = {.grad_permuted_tokens = &l->grad_y_t,
                                           .sorted_indices = &l->indices_t,
                                           .grad_permuted_probs = &l->grad_row_probs_t,
                                           .routing_map = &l->map_t,
                                           .num_experts = EXPERTS,
                                           .num_tokens = TOKENS,
                                           .drop_and_pad = l->capacity,
                                           .zero_pad = l->zero_pad,
                                           .grad_tokens = &l->grad_x_t,
                                           .grad_probs = &l->grad_probs_t};
    expect_status(ctx, sy_moe_permute_grad(ctx, &args), SY_OK);
    expect_equal_sums(inner(l->y, l->grad_y, rows * HIDDEN), inner(l->x, l->grad_x, TOKENS * HIDDEN));
    expect_equal_sums(inner(l->row_probs, l->grad_row_probs, rows),
                      inner(l->probs, l->grad_probs, TOKENS * EXPERTS));
}

/* moe_unpermute is linear in its rows and in its probs, so both gradients can be asked this way. */
static void unpermute_adjoint(struct layer *l, sy_ctx *ctx)
{
    const int64_t rows = l->row_shape[0];
    for (int weighted = 0; weighted < 2; weighted++) {
        unpermute(l, ctx, weighted);
        unpermute_grad(l, ctx, weighted);
        const double forward = inner(l->z, l->grad_z, TOKENS * HIDDEN);
        expect_equal_sums(forward, inner(l->y, l->grad_y, rows * HIDDEN));
        if (weighted)
            expect_equal_sums(forward, inner(l->probs, l->grad_probs, TOKENS * EXPERTS));
    }
}

/* permute's gradient is the plain inverse, to the bit. */
static void permute_grad_is_plain_unpermute(struct layer *l, sy_ctx *ctx)
{
    const sy_moe_permute_grad_args args = {.grad_permuted_tokens = &l->y_t,
                                           .sorted_indices = &l->indices_t,
                                           .num_experts = EXPERTS,
                                           .num_tokens = TOKENS,
                                           .drop_and_pad = l->capacity,
                                           .zero_pad = l->zero_pad,
                                           .grad_tokens = &l->grad_x_t};
    unpermute(l, ctx, false);
    expect_status(ctx, sy_moe_permute_grad(ctx, &args), SY_OK);
    expect_bytes(l->grad_x, l->z, sizeof l->z);
}

/* ---- Slopes ---------------------------------------------------------------------------------------------------- */

/* <unpermute(y, probs), grad_z>, without a rounding. */
static double loss(const struct layer *l, int32_t *indices)
{
    double sum[TOKENS * HIDDEN], size[TOKENS * HIDDEN], total = 0;
    int64_t terms[TOKENS];
    const struct rows_case in = {.tokens = TOKENS,
                                 .experts = EXPERTS,
                                 .rows = l->row_shape[0],
                                 .hidden = HIDDEN,
                                 .capacity = l->capacity,
                                 .zero_pad = l->zero_pad,
                                 .indices = indices,
                                 .map = l->map,
                                 .probs = (const unsigned char *)l->probs,
                                 .by_expert = true};
    struct rows_pairs pairs = oracle_pairs(&in);
    oracle_unpermute_f64(&in, &pairs, l->y, sum, size, terms);
    oracle_pairs_free(&pairs);
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        total += sum[i] * (double)l->grad_z[i];
    return total;
}

static double slope(struct layer *l, float *x)
{
    const float kept = *x, up = kept + 0.125f, down = kept - 0.125f; /* linear: any step is as good */
    *x = up;
    const double above = loss(l, l->indices);
    *x = down;
    const double below = loss(l, l->indices);
    *x = kept;
    return (above - below) / ((double)up - (double)down);
}

static void unpermute_slopes(struct layer *l, sy_ctx *ctx)
{
    uint64_t rng = 9;
    unpermute_grad(l, ctx, true);
    int live = 0;
    for (int i = 0; i < 60; i++) {
        const int64_t at = rng_below(&rng, l->row_shape[0] * HIDDEN);
        const double want = slope(l, &l->y[at]);
        assert_true(fabs((double)l->grad_y[at] - want) <= 1e-6);
        live += want != 0;
    }
    for (int i = 0; i < TOKENS * EXPERTS; i += 2) {
        const double want = slope(l, &l->probs[i]);
        assert_true(fabs((double)l->grad_probs[i] - want) <= 1e-5);
        live += want != 0;
    }
    assert_true(live > 40);
}

int main(void)
{
    static struct {
        const char *name;
        layer_test *test;
    } all[] = {
        {"permute_and_its_gradient_are_adjoint", permute_adjoint},
        {"unpermute_and_its_gradient_are_adjoint", unpermute_adjoint},
        {"gradient_of_permute_is_the_plain_inverse", permute_grad_is_plain_unpermute},
        {"gradients_of_unpermute_are_slopes", unpermute_slopes},
    };
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        test_add(&list, all[i].name, for_all_layers, &all[i].test);
    return test_run(&list, "op_moe_grads");
}
