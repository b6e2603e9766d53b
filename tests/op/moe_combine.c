/*
 * moe_combine in random shapes, types, strides and thread counts against the oracle; its second name, tensors without data.
 */
#include "support_random.h"

#include "oracle/moe_combine.h"

#include <math.h>

enum gate_kind { GATES_NONE, GATES_F32, GATES_SAME };

/* What the generator produced; checked at the end. */
static struct {
    int idx_low, idx_high, loc_low, loc_high, int_min, int_max, none, some, shared;
    int nan, minus_zero, subnormal, overflow;
} seen;

struct fixture {
    struct combine_case in;
    struct tensor *gates, *indices, *locations, *slots, *output;
    unsigned char *dense_gates, *dense_slots, *want;
    int32_t *dense_indices, *dense_locations;
    DLDataType type, gate_type;
};

static const enum dispatch_type kinds[] = {DISPATCH_F32, DISPATCH_F16, DISPATCH_BF16};
static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};

static void fill_slots(uint64_t *rng, struct fixture *f)
{
    const struct combine_case *in = &f->in;
    for (int64_t i = 0; i < in->choices * in->samples; i++) {
        const int64_t spoil = rng_below(rng, 6);
        const int32_t e = spoil == 0 ? any_outside(rng, in->experts) : (int32_t)rng_below(rng, in->experts);
        const int32_t c = spoil == 1 ? any_outside(rng, in->capacity) : (int32_t)rng_below(rng, in->capacity);
        f->dense_indices[i] = e;
        f->dense_locations[i] = c;
        seen.idx_low += e < 0;
        seen.idx_high += e >= in->experts;
        seen.loc_low += c < 0;
        seen.loc_high += c >= in->capacity;
        seen.int_min += e == INT32_MIN || c == INT32_MIN;
        seen.int_max += e == INT32_MAX || c == INT32_MAX;
    }
    seen.shared += in->choices * in->samples > in->experts * in->capacity;
}

static void note_case(const struct fixture *f)
{
    const struct combine_case *in = &f->in;
    for (int64_t i = 0; i < in->samples; i++) {
        int64_t valid = 0;
        for (int64_t t = 0; t < in->choices; t++) {
            const int64_t e = in->indices[t * in->samples + i], c = in->locations[t * in->samples + i];
            valid += e >= 0 && e < in->experts && c >= 0 && c < in->capacity;
        }
        seen.none += valid == 0;
        seen.some += valid > 0 && valid < in->choices;
    }
    for (int64_t i = 0; i < in->samples * in->hidden; i++) {
        uint32_t bits = 0;
        memcpy(&bits, f->want + (size_t)i * type_bytes(f->type), type_bytes(f->type));
        const double r = oracle_dispatch_value(in->type, bits);
        seen.nan += isnan(r);
        seen.minus_zero += r == 0 && signbit(r);
        seen.subnormal += r != 0 && fabs(r) < (in->type == DISPATCH_F16 ? 0x1p-14 : 0x1p-126);
        seen.overflow += isinf(r) != 0;
    }
}

/* Layouts are compact without `rng`. */
static void fixture_tensors(struct fixture *f, uint64_t *rng)
{
    const struct combine_case *in = &f->in;
    f->gates = any_tensor(rng, f->gate_type, 2, in->choices, in->samples);
    f->indices = any_tensor(rng, SY_I32, 2, in->choices, in->samples);
    f->locations = any_tensor(rng, SY_I32, 2, in->choices, in->samples);
    f->slots = any_tensor(rng, f->type, 2, in->experts * in->capacity, in->hidden);
    f->output = any_tensor(rng, f->type, 2, in->samples, in->hidden);
    tensor_put(f->gates, f->dense_gates);
    tensor_put(f->indices, f->dense_indices);
    tensor_put(f->locations, f->dense_locations);
    tensor_put(f->slots, f->dense_slots);
}

/* The sizes are set by the caller. */
static void fixture_make(struct fixture *f, uint64_t *rng, size_t type, enum gate_kind gates, bool strides)
{
    struct combine_case *in = &f->in;
    const size_t gate = gates == GATES_SAME ? type : 0;
    const int64_t n = in->choices * in->samples, rows = in->experts * in->capacity;
    f->type = types[type];
    f->gate_type = types[gate];
    in->type = kinds[type];
    in->gate_type = kinds[gate];
    f->dense_gates = need(n, 4);
    f->dense_indices = need(n, 4);
    f->dense_locations = need(n, 4);
    f->dense_slots = need(rows * in->hidden, type_bytes(f->type));
    f->want = need(in->samples * in->hidden, type_bytes(f->type));
    fill_floats(rng, f->gate_type, f->dense_gates, n, 3);
    fill_floats(rng, f->type, f->dense_slots, rows * in->hidden, 3);
    fill_slots(rng, f);
    in->gates = gates == GATES_NONE ? NULL : f->dense_gates;
    in->indices = f->dense_indices;
    in->locations = f->dense_locations;
    in->slots = f->dense_slots;
    fixture_tensors(f, strides ? rng : NULL);
    oracle_moe_combine(in, f->want);
    note_case(f);
}

static void fixture_check(const struct fixture *f, sy_ctx *ctx)
{
    const sy_moe_combine_args args = {.gates = f->in.gates ? &f->gates->t : NULL,
                                      .indices = &f->indices->t,
                                      .locations = &f->locations->t,
                                      .expert_out = &f->slots->t,
                                      .num_experts = f->in.experts,
                                      .capacity = f->in.capacity,
                                      .output = &f->output->t};
    const struct output out = {"output", f->output, f->want, true};
    const sy_fault none = {.status = SY_OK};
    fill_outputs(&out, 1);
    expect_outputs(ctx, sy_moe_combine(ctx, &args), &none, &out, 1);
}

/* state: type and gate kind as one number. */
static void random_shapes(void **state)
{
    const uintptr_t which = (uintptr_t)*state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t rng = seed * 1000 + which;
        struct fixture f = {0};
        f.in.choices = 1 + rng_below(&rng, 5);
        f.in.samples = 1 + rng_below(&rng, 30);
        f.in.experts = 1 + rng_below(&rng, 6);
        f.in.capacity = 1 + rng_below(&rng, 12);
        f.in.hidden = 1 + rng_below(&rng, 70);
        fixture_make(&f, &rng, which % 3, (enum gate_kind)(which / 3), true);
        fixture_check(&f, contexts[seed % (uint64_t)n_contexts]);
        free_all();
    }
}

/* Every context, with the sizes and the row type. */
static void check_all(const struct combine_case *sizes, uint64_t seed, size_t type, bool strides)
{
    struct fixture f = {.in = *sizes};
    fixture_make(&f, &seed, type, GATES_F32, strides);
    for (int i = 0; i < n_contexts; i++)
        fixture_check(&f, contexts[i]);
    free_all();
}

static void every_table(void **state)
{
    (void)state;
    const struct combine_case sizes = {
        .choices = 3, .samples = 40, .experts = 4, .capacity = 9, .hidden = 203};
    for (size_t type = 0; type < 3; type++)
        check_all(&sizes, 77 + type, type, true);
}

/* Rows of whole vectors, which a device reads as such: one choice, a few, more than it looks up at once. */
static void rows_of_whole_vectors(void **state)
{
    (void)state;
    static const int64_t choices[] = {1, 3, 20};
    for (size_t i = 0; i < 3 * COUNT_OF(choices); i++)
        check_all(
            &(struct combine_case){
                .choices = choices[i / 3], .samples = 40, .experts = 3, .capacity = 20, .hidden = 72},
            55 + i, i % 3, false);
}

/* Many samples; fewer samples than threads, so that columns are cut too; more choices than fit registers. */
static void large_cases(void **state)
{
    (void)state;
    static const struct {
        int64_t choices, samples, experts, capacity, hidden;
        size_t type;
    } sizes[] = {{1, 9001, 5, 100, 65, 0}, {2, 4001, 8, 300, 129, 2}, {8, 801, 16, 200, 257, 1},
                 {3, 1, 2, 2, 90001, 0},   {1, 3, 2, 2, 100003, 0},   {2, 5, 2, 2, 120011, 2},
                 {300, 40, 4, 50, 33, 0}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        check_all(&(struct combine_case){.choices = sizes[i].choices,
                                         .samples = sizes[i].samples,
                                         .experts = sizes[i].experts,
                                         .capacity = sizes[i].capacity,
                                         .hidden = sizes[i].hidden},
                  99, sizes[i].type, false);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    expect_hard(seen, 8);
}

/* ---- Without the oracle --------------------------------------------------------------------------------------- */

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

static void nothing_to_write_needs_no_data(void **state)
{
    (void)state;
    empty(2, 0, 8);
    empty(2, 8, 0);
    empty(0, 0, 0);
}

/* ---- The oracle's sum --------------------------------------------------------------------------------------- */

/* The processor's own f32 addition is one rounding too; a third opinion on what the oracle built. */
static void the_oracle_adds_like_the_processor(void **state)
{
    (void)state;
    uint64_t rng = 3;
    assert_int_equal(f32_bits(oracle_sum(1, 0x1p-24f)), f32_bits(1));                   /* tie to even */
    assert_int_equal(f32_bits(oracle_sum(1, 0x1.000002p-24f)), f32_bits(1 + 0x1p-23f)); /* just above it */
    for (int i = 0; i < 200000; i++) {
        const float a = f32_from_bits((uint32_t)rng_u64(&rng)), b = f32_from_bits((uint32_t)rng_u64(&rng));
        const volatile float sum = a + b;
        const uint32_t want = isnan(sum) ? 0x7fc00000 : f32_bits(sum);
        assert_int_equal(f32_bits(oracle_sum(a, b)), want);
    }
}

int main(void)
{
    static const char *const type_names[] = {"f32", "f16", "bf16"};
    static const char *const gate_names[] = {"without_gates", "with_f32_gates", "with_own_gates"};
    const struct CMUnitTest more[] = {
        cmocka_unit_test(every_table),
        cmocka_unit_test(rows_of_whole_vectors),
        cmocka_unit_test(large_cases),
        cmocka_unit_test(the_random_cases_were_hard),
        cmocka_unit_test(another_name_for_the_gradient),
        cmocka_unit_test(nothing_to_write_needs_no_data),
        cmocka_unit_test(the_oracle_adds_like_the_processor),
    };
    struct CMUnitTest tests[9 + COUNT_OF(more)];
    for (uintptr_t i = 0; i < 9; i++)
        tests[i] = (struct CMUnitTest){test_name("random_%s_%s", type_names[i % 3], gate_names[i / 3]),
                                       random_shapes, NULL, NULL, (void *)i};
    memcpy(tests + 9, more, sizeof more);
    return cmocka_run_group_tests_name("op_moe_combine", tests, open_contexts, close_contexts);
}
