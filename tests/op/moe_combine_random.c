/*
 * moe_combine in random shapes, types, strides and thread counts against the oracle.
 */
#include "support.h"

#include "oracle/moe_combine.h"

#include <math.h>

enum gate_kind { GATES_NONE, GATES_F32, GATES_SAME };

/* What the generator produced; checked at the end. */
static struct {
    int idx_low, idx_high, loc_low, loc_high, int_min, int_max, none, some, shared;
    int nan, minus_zero, subnormal, overflow, gap, offset, misaligned, strips;
} seen;

struct fixture {
    struct combine_case in;
    struct tensor gates, indices, locations, slots, output;
    unsigned char *dense_gates, *dense_slots, *want;
    int32_t *dense_indices, *dense_locations;
    DLDataType type, gate_type;
};

static const enum dispatch_type kinds[] = {DISPATCH_F32, DISPATCH_F16, DISPATCH_BF16};
static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};

/* Ordinary numbers of few exponents, so that sums cancel, tiny and huge ones, zeros, and any bits at all. */
static void fill_values(uint64_t *rng, enum dispatch_type type, unsigned char *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t kind = rng_below(rng, 16);
        double value = ldexp(2 * rng_unit(rng) - 1, (int)rng_below(rng, 5) - 2);
        if (kind == 0)
            value = ldexp(2 * rng_unit(rng) - 1, type == DISPATCH_F16 ? -14 : -126);
        else if (kind == 1)
            value = ldexp(2 * rng_unit(rng) - 1, type == DISPATCH_F16 ? 15 : 127);
        else if (kind == 2)
            value = -0.0;
        else if (kind <= 4)
            value = rng_below(rng, 2) ? 1 : -1;
        uint32_t wide = kind == 15 ? (uint32_t)rng_u64(rng) : f32_round(value);
        uint16_t narrow = type == DISPATCH_F16 ? f16_round(value) : bf16_round(value);
        if (kind == 15)
            narrow = (uint16_t)wide;
        if (type == DISPATCH_F32)
            memcpy(to + i * 4, &wide, 4);
        else
            memcpy(to + i * 2, &narrow, 2);
    }
}

static int32_t outside(uint64_t *rng, int64_t limit)
{
    const int32_t all[] = {INT32_MIN,
                           INT32_MAX,
                           -1,
                           (int32_t)limit,
                           (int32_t)(limit + rng_below(rng, 1000)),
                           (int32_t)(-1 - rng_below(rng, 1000))};
    return all[rng_below(rng, (int64_t)COUNT_OF(all))];
}

static void fill_slots(uint64_t *rng, struct fixture *f)
{
    const struct combine_case *in = &f->in;
    for (int64_t i = 0; i < in->choices * in->samples; i++) {
        const int64_t spoil = rng_below(rng, 6);
        const int32_t e = spoil == 0 ? outside(rng, in->experts) : (int32_t)rng_below(rng, in->experts);
        const int32_t c = spoil == 1 ? outside(rng, in->capacity) : (int32_t)rng_below(rng, in->capacity);
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

static struct layout any_layout(uint64_t *rng, size_t elem_bytes)
{
    const struct layout at = {.row_gap = rng_below(rng, 2) ? rng_below(rng, 5) : 0,
                              .misalign = rng_below(rng, 2) ? (size_t)rng_below(rng, 8) : 0,
                              .byte_offset =
                                  rng_below(rng, 2) ? elem_bytes * (uint64_t)rng_below(rng, 4) : 0};
    seen.gap += at.row_gap > 0;
    seen.misaligned += at.misalign > 0;
    seen.offset += at.byte_offset > 0;
    return at;
}

static void fixture_tensors(struct fixture *f, uint64_t *rng)
{
    const struct combine_case *in = &f->in;
    const struct {
        struct tensor *tensor;
        DLDataType type;
        int64_t shape[2];
        const void *content;
    } all[] = {
        {&f->gates, f->gate_type, {in->choices, in->samples}, f->dense_gates},
        {&f->indices, SY_I32, {in->choices, in->samples}, f->dense_indices},
        {&f->locations, SY_I32, {in->choices, in->samples}, f->dense_locations},
        {&f->slots, f->type, {in->experts * in->capacity, in->hidden}, f->dense_slots},
        {&f->output, f->type, {in->samples, in->hidden}, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        struct layout at = {0};
        if (rng)
            at = any_layout(rng, type_bytes(all[i].type));
        tensor_make(all[i].tensor, all[i].type, 2, all[i].shape, &at);
        if (all[i].content)
            tensor_put(all[i].tensor, all[i].content);
    }
}

/* The sizes are set by the caller; layouts are random with `rng_layout`. */
static void fixture_make(struct fixture *f, uint64_t *rng, size_t type, enum gate_kind gates, bool strides)
{
    struct combine_case *in = &f->in;
    const size_t gate = gates == GATES_SAME ? type : 0, n = (size_t)(in->choices * in->samples);
    const int64_t rows = in->experts * in->capacity;
    f->type = types[type];
    f->gate_type = types[gate];
    in->type = kinds[type];
    in->gate_type = kinds[gate];
    const size_t row_bytes = (size_t)in->hidden * type_bytes(f->type);
    f->dense_gates = malloc(n * 4 + 1);
    f->dense_indices = malloc(n * 4 + 1);
    f->dense_locations = malloc(n * 4 + 1);
    f->dense_slots = malloc((size_t)rows * row_bytes + 1);
    f->want = malloc((size_t)in->samples * row_bytes + 1);
    assert_true(f->dense_gates && f->dense_indices && f->dense_locations && f->dense_slots && f->want);
    fill_values(rng, in->gate_type, f->dense_gates, (int64_t)n);
    fill_values(rng, in->type, f->dense_slots, rows * in->hidden);
    fill_slots(rng, f);
    in->gates = gates == GATES_NONE ? NULL : f->dense_gates;
    in->indices = f->dense_indices;
    in->locations = f->dense_locations;
    in->slots = f->dense_slots;
    fixture_tensors(f, strides ? rng : NULL);
    oracle_moe_combine(in, f->want);
    note_case(f);
}

static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    unsigned char *before = tensor_snapshot(&f->output);
    const sy_moe_combine_args args = {.gates = f->in.gates ? &f->gates.t : NULL,
                                      .indices = &f->indices.t,
                                      .locations = &f->locations.t,
                                      .expert_out = &f->slots.t,
                                      .num_experts = f->in.experts,
                                      .capacity = f->in.capacity,
                                      .output = &f->output.t};
    expect_status(ctx, sy_moe_combine(ctx, &args), SY_OK);
    tensor_expect(&f->output, f->want, before, "output");
    free(before);
}

static void fixture_free(struct fixture *f)
{
    tensor_free(&f->gates);
    tensor_free(&f->indices);
    tensor_free(&f->locations);
    tensor_free(&f->slots);
    tensor_free(&f->output);
    free(f->dense_gates);
    free(f->dense_indices);
    free(f->dense_locations);
    free(f->dense_slots);
    free(f->want);
}

static sy_ctx *contexts[4];
static const int thread_counts[4] = {1, 2, 3, 8};

static int open_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        contexts[i] = test_ctx(thread_counts[i], NULL);
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        sy_ctx_destroy(contexts[i]);
    return 0;
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
        fixture_check(&f, contexts[seed % 4]);
        fixture_free(&f);
    }
}

/* Every kernel table; the scalar one defines the bits, but the oracle knows them too. */
static void every_table(void **state)
{
    (void)state;
    const char *isa;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++) {
        sy_ctx *ctx = test_ctx(2, isa);
        for (size_t type = 0; type < 3; type++) {
            uint64_t rng = 77 + type;
            struct fixture f = {
                .in = {.choices = 3, .samples = 40, .experts = 4, .capacity = 9, .hidden = 203}};
            fixture_make(&f, &rng, type, GATES_F32, true);
            fixture_check(&f, ctx);
            fixture_free(&f);
        }
        sy_ctx_destroy(ctx);
    }
}

static void large(const struct combine_case *sizes, size_t type)
{
    uint64_t rng = 99;
    struct fixture f = {.in = *sizes};
    fixture_make(&f, &rng, type, GATES_F32, false);
    for (size_t i = 0; i < COUNT_OF(contexts); i++) {
        memset(f.output.mem, 0xff, f.output.bytes);
        fixture_check(&f, contexts[i]);
    }
    seen.strips += sizes->samples < 8;
    fixture_free(&f);
}

static void many_samples(void **state)
{
    (void)state;
    large(&(struct combine_case){.choices = 1, .samples = 9001, .experts = 5, .capacity = 100, .hidden = 65},
          0);
    large(&(struct combine_case){.choices = 2, .samples = 4001, .experts = 8, .capacity = 300, .hidden = 129},
          2);
    large(&(struct combine_case){.choices = 8, .samples = 801, .experts = 16, .capacity = 200, .hidden = 257},
          1);
}

/* Fewer samples than threads: the columns are cut too. */
static void few_long_rows(void **state)
{
    (void)state;
    large(&(struct combine_case){.choices = 3, .samples = 1, .experts = 2, .capacity = 2, .hidden = 90001},
          0);
    large(&(struct combine_case){.choices = 1, .samples = 3, .experts = 2, .capacity = 2, .hidden = 100003},
          0);
    large(&(struct combine_case){.choices = 2, .samples = 5, .experts = 2, .capacity = 2, .hidden = 120011},
          2);
}

static void more_choices_than_fit_registers(void **state)
{
    (void)state;
    large(&(struct combine_case){.choices = 300, .samples = 40, .experts = 4, .capacity = 50, .hidden = 33},
          0);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.idx_low,  seen.idx_high, seen.loc_low,    seen.loc_high,
                       seen.int_min,  seen.int_max,  seen.none,       seen.some,
                       seen.shared,   seen.nan,      seen.minus_zero, seen.subnormal,
                       seen.overflow, seen.gap,      seen.offset,     seen.misaligned};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 8)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
    assert_int_equal(seen.strips, 3);
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
        cmocka_unit_test(many_samples),
        cmocka_unit_test(few_long_rows),
        cmocka_unit_test(more_choices_than_fit_registers),
        cmocka_unit_test(the_random_cases_were_hard),
        cmocka_unit_test(the_oracle_adds_like_the_processor),
    };
    struct CMUnitTest tests[9 + COUNT_OF(more)];
    for (uintptr_t i = 0; i < 9; i++)
        tests[i] = (struct CMUnitTest){test_name("random_%s_%s", type_names[i % 3], gate_names[i / 3]),
                                       random_shapes, NULL, NULL, (void *)i};
    memcpy(tests + 9, more, sizeof more);
    return cmocka_run_group_tests_name("op_moe_combine_random", tests, open_contexts, close_contexts);
}
