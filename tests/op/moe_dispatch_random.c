/*
 * moe_dispatch against its oracle: seeded shapes for every pair of row and gate type, apart and in place, with skips of
 * all four kinds, repeated slots, special values, strides and gaps; then sizes large enough to be split over threads.
 * What the generator must have produced is counted and asserted at the end.
 */
#include "support_random.h"

#include "oracle/moe_dispatch.h"

#include <math.h>

enum gate_kind { GATES_NONE, GATES_F32, GATES_SAME, GATE_KINDS };

static struct {
    int idx_low, idx_high, loc_low, loc_high, int_min, int_max, repeated, unwritten, crowded, nan, minus_zero,
        subnormal, overflow, zeroed, unique, in_place, in_place_longer, in_place_shorter;
} seen;

struct fixture {
    struct dispatch_case in;
    DLDataType type, gate_type;
    bool in_place, unique;
    struct tensor *gates, *indices, *locations, *input;
    struct tensor *memory; /* of dispatch; in place it has the rows of input as well */
    DLTensor dispatch_view, input_view;
    int64_t dispatch_shape[2], input_shape[2];
    unsigned char *dense_gates, *dense_input, *want;
    int32_t *dense_indices, *dense_locations;
    sy_moe_dispatch_args args;
};

/* Slots, repeated ones welcome, or a random set of distinct ones; a sixth of the samples is invalid. */
static void fill_slots(uint64_t *rng, struct fixture *f)
{
    const struct dispatch_case *in = &f->in;
    const int64_t slots = in->experts * in->capacity;
    int64_t *order = need(slots, sizeof *order);
    for (int64_t i = 0; i < slots; i++) {
        const int64_t j = rng_below(rng, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int64_t i = 0; i < in->samples; i++) {
        const bool spent = f->unique && i >= slots;
        const int64_t slot = f->unique ? order[spent ? 0 : i] : rng_below(rng, slots);
        int32_t e = (int32_t)(slot / in->capacity), c = (int32_t)(slot % in->capacity);
        const int64_t spoil = rng_below(rng, 12);
        if (spoil == 0 || spent)
            e = any_outside(rng, in->experts);
        if (spoil == 1)
            c = any_outside(rng, in->capacity);
        f->dense_indices[i] = e;
        f->dense_locations[i] = c;
        seen.idx_low += e < 0;
        seen.idx_high += e >= in->experts;
        seen.loc_low += c < 0;
        seen.loc_high += c >= in->capacity;
        seen.int_min += e == INT32_MIN || c == INT32_MIN;
        seen.int_max += e == INT32_MAX || c == INT32_MAX;
    }
}

/* Which slots are met more than once or never, and what the products came to. */
static void note_case(const struct fixture *f)
{
    const struct dispatch_case *in = &f->in;
    const int64_t slots = in->experts * in->capacity;
    int *times = need(slots, sizeof *times);
    for (int64_t i = 0; i < in->samples; i++) {
        const int64_t e = f->dense_indices[i], c = f->dense_locations[i];
        if (e < 0 || e >= in->experts || c < 0 || c >= in->capacity)
            continue;
        times[e * in->capacity + c]++;
        for (int64_t h = 0; in->samples <= 100 && !f->in_place && h < in->hidden; h++) {
            uint32_t x = 0, g = 0;
            memcpy(&x, f->dense_input + (size_t)(i * in->hidden + h) * type_bytes(f->type),
                   type_bytes(f->type));
            if (in->gates)
                memcpy(&g, f->dense_gates + (size_t)i * type_bytes(f->gate_type), type_bytes(f->gate_type));
            const double gate = in->gates ? oracle_dispatch_value(in->gate_type, g) : 1;
            const double a = oracle_dispatch_value(in->type, x), exact = a * gate;
            const uint32_t bits = oracle_dispatch_product(in->type, gate, x);
            const double r = oracle_dispatch_value(in->type, bits);
            seen.nan += isnan(r);
            seen.minus_zero += r == 0 && signbit(r);
            seen.subnormal += r != 0 && fabs(r) < (in->type == DISPATCH_F16 ? 0x1p-14 : 0x1p-126);
            seen.overflow += isinf(r) && isfinite(exact);
        }
    }
    for (int64_t i = 0; i < slots; i++) {
        seen.repeated += times[i] > 1;
        seen.unwritten += times[i] == 0;
    }
    seen.crowded += in->samples > slots;
    seen.zeroed += in->zero_unwritten;
    seen.unique += f->unique;
    seen.in_place += f->in_place;
    seen.in_place_longer += f->in_place && in->samples > slots;
    seen.in_place_shorter += f->in_place && in->samples < slots;
}

static const enum dispatch_type kinds[] = {DISPATCH_F32, DISPATCH_F16, DISPATCH_BF16};
static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};

/* Dense arrays and the expected memory; the sizes, `in_place` and `unique` are set by the caller. */
static void fixture_fill(struct fixture *f, uint64_t *rng, size_t type, enum gate_kind gates)
{
    struct dispatch_case *in = &f->in;
    const size_t gate = gates == GATES_SAME ? type : 0;
    const int64_t slots = in->experts * in->capacity,
                  memory_rows = f->in_place && in->samples > slots ? in->samples : slots;
    f->type = types[type];
    f->gate_type = types[gate];
    in->type = kinds[type];
    in->gate_type = kinds[gate];
    f->dense_gates = need(in->samples, 4);
    f->dense_input = need(in->samples * in->hidden, type_bytes(f->type));
    f->dense_indices = need(in->samples, 4);
    f->dense_locations = need(in->samples, 4);
    f->want = need(memory_rows * in->hidden, type_bytes(f->type));
    fill_floats(rng, f->gate_type, f->dense_gates, in->samples, 2);
    fill_floats(rng, f->type, f->dense_input, in->samples * in->hidden, 2);
    fill_floats(rng, f->type, f->want, memory_rows * in->hidden, 2);
    fill_slots(rng, f);
    in->gates = gates == GATES_NONE ? NULL : f->dense_gates;
    in->indices = f->dense_indices;
    in->locations = f->dense_locations;
    in->input = f->in_place ? NULL : f->dense_input;
    note_case(f);
}

static void fixture_tensors(struct fixture *f, uint64_t *rng)
{
    const struct dispatch_case *in = &f->in;
    const int64_t slots = in->experts * in->capacity,
                  memory_rows = f->in_place && in->samples > slots ? in->samples : slots;
    f->gates = any_tensor(rng, f->gate_type, 1, in->samples, 0);
    f->indices = any_tensor(rng, SY_I32, 1, in->samples, 0);
    f->locations = any_tensor(rng, SY_I32, 1, in->samples, 0);
    f->input = any_tensor(rng, f->type, 2, in->samples, in->hidden);
    f->memory = any_tensor(rng, f->type, 2, memory_rows, in->hidden);
    tensor_put(f->gates, f->dense_gates);
    tensor_put(f->indices, f->dense_indices);
    tensor_put(f->locations, f->dense_locations);
    tensor_put(f->input, f->dense_input);
    tensor_put(f->memory, f->want);
    memcpy(f->dispatch_shape, (int64_t[]){slots, in->hidden}, sizeof f->dispatch_shape);
    memcpy(f->input_shape, (int64_t[]){in->samples, in->hidden}, sizeof f->input_shape);
    f->dispatch_view = f->memory->t;
    f->dispatch_view.shape = f->dispatch_shape;
    f->input_view = f->in_place ? f->memory->t : f->input->t;
    f->input_view.shape = f->input_shape;
    f->args = (sy_moe_dispatch_args){.gates = in->gates ? &f->gates->t : NULL,
                                     .indices = &f->indices->t,
                                     .locations = &f->locations->t,
                                     .input = &f->input_view,
                                     .num_experts = in->experts,
                                     .capacity = in->capacity,
                                     .zero_unwritten = in->zero_unwritten,
                                     .unique_slots = f->unique,
                                     .dispatch = &f->dispatch_view};
}

/* The oracle turns `want` from the old contents into the new ones; call once per fixture. */
static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    const struct output out[] = {{"dispatch", f->memory, f->want, true}, {"input", f->input, NULL, false}};
    const sy_fault none = {.status = SY_OK};
    snap_outputs(out, COUNT_OF(out));
    expect_outputs(ctx, sy_moe_dispatch(ctx, &f->args), &none, out, COUNT_OF(out));
}

static uint64_t running_seed;

static int tell_seed(void **state)
{
    (void)state;
    if (running_seed != 0)
        print_error("the failing case has seed %llu\n", (unsigned long long)running_seed);
    running_seed = 0;
    return 0;
}

/* state: type, gate kind and place as one number. */
static void random_shapes(void **state)
{
    const uintptr_t which = (uintptr_t)*state;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t rng = running_seed = seed * 1000 + which;
        struct fixture f = {0};
        f.in.samples = 1 + rng_below(&rng, 60);
        f.in.experts = 1 + rng_below(&rng, 6);
        f.in.capacity = 1 + rng_below(&rng, 12);
        f.in.hidden = 1 + rng_below(&rng, 40);
        f.in.zero_unwritten = rng_below(&rng, 3) == 0;
        f.unique = rng_below(&rng, 3) == 0;
        f.in_place = which / 9 != 0;
        fixture_fill(&f, &rng, which % 3, (enum gate_kind)(which / 3 % 3));
        fixture_tensors(&f, &rng);
        oracle_moe_dispatch(&f.in, f.want);
        fixture_check(&f, contexts[seed % (uint64_t)n_contexts]);
        free_all();
    }
    running_seed = 0;
}

static const struct large {
    const char *name;
    int64_t samples, experts, capacity, hidden;
    size_t type;
    enum gate_kind gates;
    bool in_place, unique, zero_unwritten;
} large_cases[] = {
    {"40009 samples on 500 slots", 40009, 5, 100, 65, 0, GATES_F32, false, false, false}, /* 10 MB of rows */
    {"40009 samples on as many slots", 40009, 7, 5800, 65, 2, GATES_F32, false, true, false},
    {"many repeated slots in f16", 9001, 3, 2000, 257, 1, GATES_SAME, false, false, false},
    {"few long rows", 5, 2, 2, 400003, 0, GATES_F32, false, false, false},
    {"huge dispatch cleared", 310, 2, 700, 1028, 0, GATES_F32, false, false, true},
    {"long rows in f16", 301, 3, 60, 2056, 1, GATES_SAME, false, false, false},
    {"slots of their own, the rest cleared", 4003, 3, 2000, 129, 0, GATES_F32, false, true, true},
    {"large over input", 2500, 5, 500, 401, 0, GATES_F32, true, false, false},
    {"large over input with clearing", 2500, 3, 500, 801, 1, GATES_F32, true, false, true},
    {"one column over input", 200000, 1, 300000, 1, 0, GATES_NONE, true, false, false},
};

/* One large case for every thread count; the old contents are restored before each. */
static void large(void **state)
{
    const struct large *of = *state;
    uint64_t rng = 99;
    struct fixture f = {.in = {.samples = of->samples,
                               .experts = of->experts,
                               .capacity = of->capacity,
                               .hidden = of->hidden,
                               .zero_unwritten = of->zero_unwritten},
                        .in_place = of->in_place,
                        .unique = of->unique};
    fixture_fill(&f, &rng, of->type, of->gates);
    fixture_tensors(&f, NULL);
    unsigned char *old = tensor_snapshot(f.memory);
    oracle_moe_dispatch(&f.in, f.want);
    for (int i = 0; i < 4 && i < n_contexts; i++) { /* the thread counts of the best table */
        memcpy(f.memory->mem, old, f.memory->bytes);
        fixture_check(&f, contexts[i]);
    }
    free(old);
    free_all();
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    expect_hard(seen, 8);
}

int main(void)
{
    static const char *const type_names[] = {"f32", "f16", "bf16"};
    static const char *const gate_names[] = {"without_gates", "with_f32_gates", "with_own_gates"};
    struct CMUnitTest tests[18 + COUNT_OF(large_cases) + 1];
    size_t n = 0;
    for (uintptr_t i = 0; i < 18; i++)
        tests[n++] = (struct CMUnitTest){
            test_name("random_%s_%s%s", type_names[i % 3], gate_names[i / 3 % 3], i / 9 ? "_over_input" : ""),
            random_shapes, NULL, tell_seed, (void *)i};
    for (size_t i = 0; i < COUNT_OF(large_cases); i++)
        tests[n++] =
            (struct CMUnitTest){large_cases[i].name, large, NULL, NULL, (void *)(uintptr_t)&large_cases[i]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(the_random_cases_were_hard);
    return cmocka_run_group_tests_name("op_moe_dispatch_random", tests, open_contexts, close_contexts);
}
