/*
 * moe_combine: worked examples, one test per rule: skips, shared slots, sign of zero, canonical NaN, rounding that a fused
 * or reordered step would not give, empty dimensions.
 */
#include "support.h"

#include "oracle/moe_combine.h"

#include <math.h>

/* One call on dense arrays; choices 0 is arrays of rank 1. */
struct example {
    int64_t choices, samples, experts, capacity, hidden;
    DLDataType type, gate_type; /* zero: f32, as type */
    const void *gates, *slots, *want;
    const int32_t *indices, *locations;
};

#define F(...) ((const float[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})
#define U16(...) ((const uint16_t[]){__VA_ARGS__})
#define U32(...) ((const uint32_t[]){__VA_ARGS__})

static void check(const struct example *ex)
{
    const DLDataType type = ex->type.bits ? ex->type : SY_F32;
    const int64_t both[2] = {ex->choices, ex->samples};
    const int rank = ex->choices ? 2 : 1;
    const int64_t *shape = ex->choices ? both : both + 1;
    struct tensor gates, indices, locations, slots, output;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    tensor_make(&gates, ex->gate_type.bits ? ex->gate_type : type, rank, shape, NULL);
    tensor_make(&indices, SY_I32, rank, shape, NULL);
    tensor_make(&locations, SY_I32, rank, shape, NULL);
    tensor_make(&slots, type, 2, (int64_t[]){ex->experts * ex->capacity, ex->hidden}, NULL);
    tensor_make(&output, type, 2, (int64_t[]){ex->samples, ex->hidden}, NULL);
    if (ex->gates)
        tensor_put(&gates, ex->gates);
    tensor_put(&indices, ex->indices);
    tensor_put(&locations, ex->locations);
    if (ex->slots)
        tensor_put(&slots, ex->slots);
    const sy_moe_combine_args args = {.gates = ex->gates ? &gates.t : NULL,
                                      .indices = &indices.t,
                                      .locations = &locations.t,
                                      .expert_out = &slots.t,
                                      .num_experts = ex->experts,
                                      .capacity = ex->capacity,
                                      .output = &output.t};
    expect_status(ctx, sy_moe_combine_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, ex->samples);
    assert_int_equal(query.slots, 0);
    expect_status(ctx, sy_moe_combine(ctx, &args), SY_OK);
    expect_bytes(output.mem, ex->want, output.bytes);
    tensor_free(&gates);
    tensor_free(&indices);
    tensor_free(&locations);
    tensor_free(&slots);
    tensor_free(&output);
    sy_ctx_destroy(ctx);
}

/* ---- Worked examples ---------------------------------------------------------------------------------------- */

static void two_choices(void **state)
{
    (void)state;
    check(&(struct example){.choices = 2,
                            .samples = 5,
                            .experts = 3,
                            .capacity = 2,
                            .hidden = 1,
                            .gates = F(.5f, .75f, .25f, .5f, 1, .5f, .25f, .75f, .5f, 0),
                            .indices = I(0, 0, 2, 1, 0, 1, 2, 1, 0, 1),
                            .locations = I(0, 1, 0, 0, 2, 1, 1, 2, 3, 3),
                            .slots = F(10, 20, 30, 40, 50, 60),
                            .want = F(25, 30, 12.5f, 15, 0)});
}

/* The data gradient of a dispatch in which samples met in a slot: each receives the gradient of the slot. */
static const struct example gradient = {.samples = 5,
                                        .experts = 1,
                                        .capacity = 2,
                                        .hidden = 2,
                                        .gates = (const float[]){1, 2, 4, .5f, 1},
                                        .indices = (const int32_t[]){0, 0, 0, 0, 0},
                                        .locations = (const int32_t[]){1, 1, 0, 1, -1},
                                        .slots = (const float[]){1, -1, 2, .5f},
                                        .want = (const float[]){2, .5f, 4, 1, 4, -4, 1, .25f, 0, 0}};

static void data_gradient_of_a_dispatch(void **state)
{
    (void)state;
    check(&gradient);
    struct example ex = gradient;
    ex.choices = 1;
    check(&ex);
    ex.gates = NULL;
    ex.want = F(2, .5f, 2, .5f, 1, -1, 2, .5f, 0, 0);
    check(&ex);
}

static void another_name_for_the_gradient(void **state)
{
    (void)state;
    int32_t indices[] = {0}, locations[] = {0};
    float slots[] = {3, 4}, output[2];
    int64_t one[] = {1}, row[] = {1, 2};
    const DLTensor i = sy_tensor(indices, SY_I32, 1, one), l = sy_tensor(locations, SY_I32, 1, one),
                   z = sy_tensor(slots, SY_F32, 2, row), y = sy_tensor(output, SY_F32, 2, row);
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_moe_combine_args args = {
        .indices = &i, .locations = &l, .expert_out = &z, .num_experts = 1, .capacity = 1, .output = &y};
    expect_status(ctx, sy_moe_dispatch_grad_data(ctx, &args), SY_OK);
    expect_bytes(output, slots, sizeof output);
    sy_ctx_destroy(ctx);
}

static void one_choice_of_16_bits(void **state)
{
    (void)state;
    struct example ex = {.samples = 1,
                         .experts = 1,
                         .capacity = 1,
                         .hidden = 1,
                         .type = SY_F16,
                         .gates = U16(0x4200),
                         .indices = I(0),
                         .locations = I(0),
                         .slots = U16(0x2e66),
                         .want = U16(0x34cc)};
    check(&ex);
    ex.gate_type = SY_F32;
    ex.gates = F(3);
    check(&ex);
    ex.type = SY_BF16;
    ex.slots = U16(0x3dcd);
    ex.want = U16(0x3e9a);
    check(&ex);
}

/* ---- Rules -------------------------------------------------------------------------------------------------- */

static void every_int32_is_a_legal_index(void **state)
{
    (void)state;
    const int32_t bad[] = {INT32_MIN, INT32_MIN + 1, -2, -1, 2, 3, 0x40000000, INT32_MAX - 1, INT32_MAX};
    enum { N = 2 * COUNT_OF(bad) };
    int32_t indices[2 * N], locations[2 * N];
    float want[N] = {0}, one[N];
    for (size_t i = 0; i < N; i++) {
        indices[i] = i % 2 ? bad[i / 2] : (int32_t)(i % 4 / 2);
        locations[i] = i % 2 ? (int32_t)(i % 4 / 2) : bad[i / 2];
        indices[N + i] = locations[N + i] = 1; /* the second choice is fine */
        one[i] = 7;
    }
    struct example ex = {.samples = N,
                         .experts = 2,
                         .capacity = 2,
                         .hidden = 1,
                         .indices = indices,
                         .locations = locations,
                         .slots = F(NAN, NAN, NAN, 7),
                         .want = want};
    check(&ex);
    ex.choices = 2;
    ex.want = one;
    check(&ex);
}

/* A product keeps the sign of zero. A sum begins with +0, even if one choice is all it has. */
static void sign_of_zero(void **state)
{
    (void)state;
    check(&(struct example){.samples = 3,
                            .experts = 1,
                            .capacity = 1,
                            .hidden = 2,
                            .gates = F(1, -0.0f, 1),
                            .indices = I(0, 0, -1),
                            .locations = I(0, 0, 0),
                            .slots = F(-0.0f, 5),
                            .want = F(-0.0f, 5, 0, -0.0f, 0, 0)});
    check(&(struct example){.choices = 2,
                            .samples = 2,
                            .experts = 1,
                            .capacity = 1,
                            .hidden = 1,
                            .indices = I(0, 0, 0, -1),
                            .locations = I(0, 0, 0, 0),
                            .slots = F(-0.0f),
                            .want = F(0, 0)});
}

/* A gate of 0 is a factor: it does not hide an infinity. A skipped choice does. */
static void zero_times_infinity(void **state)
{
    (void)state;
    check(&(struct example){.choices = 2,
                            .samples = 2,
                            .experts = 2,
                            .capacity = 1,
                            .hidden = 1,
                            .gates = F(1, 1, 0, 0),
                            .indices = I(0, 0, 1, 9),
                            .locations = I(0, 0, 0, 0),
                            .slots = F(3, INFINITY),
                            .want = U32(0x7fc00000, 0x40400000)});
}

static void nan_is_canonical(void **state)
{
    const bool with_gates = *state != NULL;
    struct example ex = {.choices = 2,
                         .samples = 1,
                         .experts = 2,
                         .capacity = 1,
                         .hidden = 3,
                         .gates = with_gates ? F(1, 1) : NULL,
                         .indices = I(0, 1),
                         .locations = I(0, 0),
                         .slots = U32(0xff800001, 0x7f800000, 0xffc12345, 0x3f800000, 0xff800000, 0x7fffffff),
                         .want = U32(0x7fc00000, 0x7fc00000, 0x7fc00000)};
    check(&ex);
    ex.choices = 1;
    ex.want = U32(0x7fc00000, 0x7f800000, 0x7fc00000);
    check(&ex);
    ex.type = SY_F16;
    ex.gates = with_gates ? U16(0x3c00, 0x3c00) : NULL;
    ex.slots = U16(0xfc01, 0x7c00, 0xfe00, 0x3c00, 0xfc00, 0x7fff);
    ex.want = U16(0x7e00, 0x7c00, 0x7e00);
    check(&ex);
    ex.choices = 2;
    ex.want = U16(0x7e00, 0x7e00, 0x7e00);
    check(&ex);
    ex.type = SY_BF16;
    ex.gates = with_gates ? U16(0x3f80, 0x3f80) : NULL;
    ex.slots = U16(0xff81, 0x7f80, 0xffc0, 0x3f80, 0xff80, 0x7fff);
    ex.want = U16(0x7fc0, 0x7fc0, 0x7fc0);
    check(&ex);
}

/*
 * By hand. Fused, (1+2^-12)^2 - (1+2^-11) would leave 2^-24; with a rounded product it is 0. Left to right,
 * 2^24 + 1 + 1 stays 2^24; from the right it would be 2^24 + 2. In f16 the sum 2048 + 1 + 1 is rounded once, to 2050;
 * rounded after each term it would stay 2048.
 */
static void rounding_by_hand(void **state)
{
    (void)state;
    check(&(struct example){.choices = 2,
                            .samples = 1,
                            .experts = 2,
                            .capacity = 1,
                            .hidden = 1,
                            .gates = F(1, 1 + 0x1p-12f),
                            .indices = I(0, 1),
                            .locations = I(0, 0),
                            .slots = F(-(1 + 0x1p-11f), 1 + 0x1p-12f),
                            .want = F(0)});
    check(&(struct example){.choices = 3,
                            .samples = 1,
                            .experts = 1,
                            .capacity = 3,
                            .hidden = 1,
                            .indices = I(0, 0, 0),
                            .locations = I(0, 1, 2),
                            .slots = F(0x1p24f, 1, 1),
                            .want = F(0x1p24f)});
    check(&(struct example){.choices = 3,
                            .samples = 1,
                            .experts = 1,
                            .capacity = 3,
                            .hidden = 1,
                            .type = SY_F16,
                            .indices = I(0, 0, 0),
                            .locations = I(0, 1, 2),
                            .slots = U16(0x6800, 0x3c00, 0x3c00),
                            .want = U16(0x6801)});
}

/* 30000 + 40000 is more than an f16 can hold, but not more than the sum can: minus 30000 leaves 40000. */
static void choices_are_added_before_they_are_narrowed(void **state)
{
    (void)state;
    check(&(struct example){.choices = 3,
                            .samples = 1,
                            .experts = 1,
                            .capacity = 2,
                            .hidden = 1,
                            .type = SY_F16,
                            .gate_type = SY_F32,
                            .gates = F(1, 1, -1),
                            .indices = I(0, 0, 0),
                            .locations = I(0, 1, 0),
                            .slots = U16(0x7753, 0x78e2),
                            .want = U16(0x78e2)});
}

static void a_slot_for_all(void **state)
{
    (void)state;
    check(&(struct example){.choices = 3,
                            .samples = 2,
                            .experts = 1,
                            .capacity = 1,
                            .hidden = 2,
                            .gates = F(1, 2, 10, 20, 100, 200),
                            .indices = I(0, 0, 0, 0, 0, 0),
                            .locations = I(0, 0, 0, 0, 0, 0),
                            .slots = F(1, 3),
                            .want = F(111, 333, 222, 666)});
}

/* ---- Empty dimensions --------------------------------------------------------------------------------------- */

static void empty(int64_t choices, int64_t samples, int64_t hidden)
{
    sy_ctx *ctx = test_ctx(2, NULL);
    int64_t c[] = {choices, samples}, z[] = {12, hidden}, y[] = {samples, hidden};
    const DLTensor indices = sy_tensor(NULL, SY_I32, 2, c), gates = sy_tensor(NULL, SY_F32, 2, c),
                   slots = sy_tensor(NULL, SY_F32, 2, z), output = sy_tensor(NULL, SY_F32, 2, y);
    const sy_moe_combine_args args = {.gates = &gates,
                                      .indices = &indices,
                                      .locations = &indices,
                                      .expert_out = &slots,
                                      .num_experts = 3,
                                      .capacity = 4,
                                      .output = &output};
    expect_status(ctx, sy_moe_combine(ctx, &args), SY_OK);
    sy_ctx_destroy(ctx);
}

static void nothing_to_write_looks_at_no_data(void **state)
{
    (void)state;
    empty(2, 0, 8);
    empty(2, 8, 0);
    empty(0, 0, 0);
}

static void no_slots_or_no_choices_clear_the_output(void **state)
{
    (void)state;
    const struct example base = {.choices = 2,
                                 .samples = 2,
                                 .hidden = 2,
                                 .gates = F(1, 1, 1, 1),
                                 .indices = I(0, 0, 0, 0),
                                 .locations = I(0, 0, 0, 0),
                                 .want = F(0, 0, 0, 0)};
    struct example ex = base;
    ex.capacity = 5;
    check(&ex);
    ex = base;
    ex.experts = 5;
    check(&ex);
    ex.choices = 0;
    check(&ex);
    /* [0,S] is a tensor without elements, not one choice */
    float slots[] = {1, 2}, output[] = {5, 6, 7, 8};
    int64_t none[] = {0, 2}, z[] = {1, 2}, y[] = {2, 2};
    const DLTensor c = sy_tensor(NULL, SY_I32, 2, none), zt = sy_tensor(slots, SY_F32, 2, z),
                   yt = sy_tensor(output, SY_F32, 2, y);
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_moe_combine_args args = {
        .indices = &c, .locations = &c, .expert_out = &zt, .num_experts = 1, .capacity = 1, .output = &yt};
    expect_status(ctx, sy_moe_combine(ctx, &args), SY_OK);
    expect_bytes(output, F(0, 0, 0, 0), sizeof output);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static int yes;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_choices),
        cmocka_unit_test(data_gradient_of_a_dispatch),
        cmocka_unit_test(another_name_for_the_gradient),
        cmocka_unit_test(one_choice_of_16_bits),
        cmocka_unit_test(every_int32_is_a_legal_index),
        cmocka_unit_test(sign_of_zero),
        cmocka_unit_test(zero_times_infinity),
        {"nan_is_canonical_with_gates", nan_is_canonical, NULL, NULL, &yes},
        {"nan_is_canonical_without_gates", nan_is_canonical, NULL, NULL, NULL},
        cmocka_unit_test(rounding_by_hand),
        cmocka_unit_test(choices_are_added_before_they_are_narrowed),
        cmocka_unit_test(a_slot_for_all),
        cmocka_unit_test(nothing_to_write_looks_at_no_data),
        cmocka_unit_test(no_slots_or_no_choices_clear_the_output),
    };
    return cmocka_run_group_tests_name("op_moe_combine", tests, NULL, NULL);
}
