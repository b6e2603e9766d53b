/*
 * moe_dispatch_grad_gate: worked examples, the order of additions by hand, skips, empty dimensions, random runs bit by bit
 * against the oracle on every table and thread count, and the error against a dot product in double.
 */
#include "support.h"

#include "oracle/moe_dispatch_grad_gate.h"

#include <math.h>

/* One call on dense arrays; choices 0 is arrays of rank 1. */
struct example {
    int64_t choices, samples, experts, capacity, hidden;
    DLDataType type, gate_type; /* zero: f32, as type */
    const void *input, *slots, *want;
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
    struct tensor indices, locations, input, slots, gates;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    tensor_make(&indices, SY_I32, rank, shape, NULL);
    tensor_make(&locations, SY_I32, rank, shape, NULL);
    tensor_make(&input, type, 2, (int64_t[]){ex->samples, ex->hidden}, NULL);
    tensor_make(&slots, type, 2, (int64_t[]){ex->experts * ex->capacity, ex->hidden}, NULL);
    tensor_make(&gates, ex->gate_type.bits ? ex->gate_type : type, rank, shape, NULL);
    memset(gates.mem, 0xff, gates.bytes); /* NaN: the old contents are gone */
    tensor_put(&indices, ex->indices);
    tensor_put(&locations, ex->locations);
    if (ex->input)
        tensor_put(&input, ex->input);
    if (ex->slots)
        tensor_put(&slots, ex->slots);
    const sy_moe_dispatch_grad_gate_args args = {.indices = &indices.t,
                                                 .locations = &locations.t,
                                                 .input = &input.t,
                                                 .dispatch = &slots.t,
                                                 .num_experts = ex->experts,
                                                 .capacity = ex->capacity,
                                                 .grad_gates = &gates.t};
    expect_status(ctx, sy_moe_dispatch_grad_gate_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, (ex->choices ? ex->choices : 1) * ex->samples);
    expect_status(ctx, sy_moe_dispatch_grad_gate(ctx, &args), SY_OK);
    expect_bytes(gates.mem, ex->want, gates.bytes);
    tensor_free(&indices);
    tensor_free(&locations);
    tensor_free(&input);
    tensor_free(&slots);
    tensor_free(&gates);
    sy_ctx_destroy(ctx);
}

/* ---- Worked examples ---------------------------------------------------------------------------------------- */

static const struct example gradient = {.samples = 5,
                                        .experts = 1,
                                        .capacity = 2,
                                        .hidden = 2,
                                        .indices = (const int32_t[]){0, 0, 0, 0, 0},
                                        .locations = (const int32_t[]){1, 1, 0, 1, -1},
                                        .input = (const float[]){1, 2, 3, 4, 5, 6, 8, 10, 7, 7},
                                        .slots = (const float[]){1, -1, 2, .5f},
                                        .want = (const float[]){3, 8, -1, 21, 0}};

static void gates_of_a_dispatch(void **state)
{
    (void)state;
    check(&gradient);
    struct example ex = gradient;
    ex.choices = 1;
    check(&ex);
}

/* dy is one everywhere: the gradient of a gate is the expert's output. */
static void gates_of_a_combine(void **state)
{
    (void)state;
    check(&(struct example){.choices = 2,
                            .samples = 5,
                            .experts = 3,
                            .capacity = 2,
                            .hidden = 1,
                            .indices = I(0, 0, 2, 1, 0, 1, 2, 1, 0, 1),
                            .locations = I(0, 1, 0, 0, 2, 1, 1, 2, 3, 3),
                            .input = F(1, 1, 1, 1, 1),
                            .slots = F(10, 20, 30, 40, 50, 60),
                            .want = F(10, 20, 50, 30, 0, 40, 60, 0, 0, 0)});
}

/* ---- Rules -------------------------------------------------------------------------------------------------- */

static void every_int32_is_a_legal_index(void **state)
{
    (void)state;
    const int32_t bad[] = {INT32_MIN, INT32_MIN + 1, -2, -1, 2, 3, 0x40000000, INT32_MAX - 1, INT32_MAX};
    enum { N = 2 * COUNT_OF(bad) };
    int32_t indices[2 * N], locations[2 * N];
    float want[2 * N] = {0}, input[N];
    for (size_t i = 0; i < N; i++) {
        indices[i] = i % 2 ? bad[i / 2] : (int32_t)(i % 4 / 2);
        locations[i] = i % 2 ? (int32_t)(i % 4 / 2) : bad[i / 2];
        indices[N + i] = locations[N + i] = 1;
        input[i] = (float)i;
        want[N + i] = 7 * (float)i;
    }
    check(&(struct example){.choices = 2,
                            .samples = N,
                            .experts = 2,
                            .capacity = 2,
                            .hidden = 1,
                            .indices = indices,
                            .locations = locations,
                            .input = input,
                            .slots = F(NAN, NAN, NAN, 7),
                            .want = want});
}

/* The dot product of one row with ones: what the order of additions makes of it. */
static void check_sum(const float *row, int64_t n, float want)
{
    float *ones = malloc((size_t)n * sizeof *ones);
    assert_non_null(ones);
    for (int64_t i = 0; i < n; i++)
        ones[i] = 1;
    check(&(struct example){.samples = 1,
                            .experts = 1,
                            .capacity = 1,
                            .hidden = n,
                            .indices = I(0),
                            .locations = I(0),
                            .input = ones,
                            .slots = row,
                            .want = &want});
    free(ones);
}

/*
 * 2^24 swallows a 1 that is added to it alone. Neighbours are in different lanes and meet only when the lanes are folded:
 * lane 8 first, then lane 4 (with lane 12), 2, and lane 1 last. Sixteen apart they are in the same lane. And from 8192 on
 * they are in another block.
 */
static void order_of_additions_by_hand(void **state)
{
    (void)state;
    static float row[8192 + 17];
    memset(row, 0, sizeof row);
    row[0] = 0x1p24f;
    row[8] = 1;
    check_sum(row, 16, 0x1p24f); /* folded into lane 0 alone */
    row[4] = row[12] = 1;
    check_sum(row, 16, 0x1p24f + 2); /* lanes 4 and 12 meet before they meet lane 0 */
    row[4] = row[12] = row[8] = 0;
    row[16] = row[32] = 1;
    check_sum(row, 33, 0x1p24f); /* one lane: one after the other */
    row[16] = row[32] = 0;
    row[1] = row[17] = 1;
    check_sum(row, 33, 0x1p24f + 2); /* lane 1 has two */
    row[1] = row[17] = 0;
    row[8192] = row[8193] = 1;
    check_sum(row, 8192 + 17, 0x1p24f + 2); /* a block of their own */
    row[8192] = row[8193] = 0;
    row[8191] = row[8192] = 1;
    check_sum(row, 8192 + 17, 0x1p24f); /* one on each side of the border */
}

/* Products are rounded before they are added: fused, this would leave 2^-24. */
static void products_are_rounded(void **state)
{
    (void)state;
    float x[32] = {0}, z[32] = {0};
    x[0] = -(1 + 0x1p-11f);
    z[0] = 1;
    x[16] = z[16] = 1 + 0x1p-12f;
    check(&(struct example){.samples = 1,
                            .experts = 1,
                            .capacity = 1,
                            .hidden = 32,
                            .indices = I(0),
                            .locations = I(0),
                            .input = x,
                            .slots = z,
                            .want = F(0)});
}

/* A sum begins with +0, a NaN is canonical, infinities of both signs make one. */
static void special_values(void **state)
{
    (void)state;
    check(&(struct example){
        .samples = 4,
        .experts = 4,
        .capacity = 1,
        .hidden = 2,
        .indices = I(0, 1, 2, 3),
        .locations = I(0, 0, 0, 0),
        .input = U32(0x80000000, 0x80000000, 0xff800001, 0, 0x7f800000, 0x7f800000, 0, 0x3f800000),
        .slots = F(1, 1, 1, 1, 1, -1, INFINITY, 1),
        .want = U32(0, 0x7fc00000, 0x7fc00000, 0x7fc00000)});
}

/* Gates of the row type or of f32; f16 sums stay in f32 until the end. */
static void types_of_gates(void **state)
{
    (void)state;
    struct example ex = {.samples = 1,
                         .experts = 1,
                         .capacity = 1,
                         .hidden = 3,
                         .type = SY_F16,
                         .indices = I(0),
                         .locations = I(0),
                         .input = U16(0x6800, 0x3c00, 0x3c00), /* 2048 1 1 */
                         .slots = U16(0x3c00, 0x3c00, 0x3c00),
                         .want = U16(0x6801)};
    check(&ex);
    ex.gate_type = SY_F32;
    ex.want = F(2050);
    check(&ex);
    ex.type = SY_BF16;
    ex.input = U16(0x4380, 0x3f80, 0x3f80); /* 256 1 1 */
    ex.slots = U16(0x3f80, 0x3f80, 0x3f80);
    ex.want = F(258);
    check(&ex);
    ex.gate_type = SY_BF16;
    ex.want = U16(0x4381);
    check(&ex);
    ex.type = ex.gate_type = SY_F16;
    ex.input = U16(0x7bff, 0x7bff, 0x3c00); /* 65504 * 2 is past the largest half */
    ex.slots = U16(0x3c00, 0x3c00, 0x3c00);
    ex.want = U16(0x7c00);
    check(&ex);
}

static void empty_dimensions(void **state)
{
    (void)state;
    const int32_t zeros[4] = {0};
    struct example ex = {.choices = 2, .samples = 2, .hidden = 3, .indices = zeros, .locations = zeros};
    ex.want = F(0, 0, 0, 0);
    ex.input = F(1, 2, 3, 4, 5, 6);
    ex.capacity = 5;
    check(&ex); /* no experts */
    ex.experts = 5;
    ex.capacity = 0;
    check(&ex); /* no slots */
    ex.capacity = 1;
    ex.hidden = 0;
    check(&ex); /* no columns */
    int64_t none[] = {2, 0}, x[] = {0, 3}, z[] = {12, 3};
    const DLTensor c = sy_tensor(NULL, SY_I32, 2, none), xt = sy_tensor(NULL, SY_F32, 2, x),
                   zt = sy_tensor(NULL, SY_F32, 2, z), gt = sy_tensor(NULL, SY_F32, 2, none);
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_moe_dispatch_grad_gate_args args = {.indices = &c,
                                                 .locations = &c,
                                                 .input = &xt,
                                                 .dispatch = &zt,
                                                 .num_experts = 3,
                                                 .capacity = 4,
                                                 .grad_gates = &gt};
    expect_status(ctx, sy_moe_dispatch_grad_gate(ctx, &args), SY_OK); /* no output: no data is looked at */
    sy_ctx_destroy(ctx);
}

/* ---- Random runs -------------------------------------------------------------------------------------------- */

static struct {
    int skipped, nan, cancelled, gap, misaligned, blocks, cut;
} seen;

struct fixture {
    struct grad_gate_case in;
    struct tensor indices, locations, input, slots, gates;
    int32_t *dense_indices, *dense_locations;
    unsigned char *dense_input, *dense_slots, *want;
    DLDataType type, gate_type;
};

static const enum dispatch_type kinds[] = {DISPATCH_F32, DISPATCH_F16, DISPATCH_BF16};
static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};

static void fill_values(uint64_t *rng, enum dispatch_type type, unsigned char *to, int64_t count, bool wild)
{
    for (int64_t i = 0; i < count; i++) {
        double value = ldexp(2 * rng_unit(rng) - 1, (int)rng_below(rng, 9) - 4);
        if (wild && rng_below(rng, 40) == 0)
            value = rng_below(rng, 2) ? -0.0 : ldexp(value, type == DISPATCH_F16 ? -14 : -100);
        uint32_t wide = f32_round(value);
        uint16_t narrow = type == DISPATCH_F16 ? f16_round(value) : bf16_round(value);
        if (wild && rng_below(rng, 150) == 0) {
            wide = (uint32_t)rng_u64(rng);
            narrow = (uint16_t)wide;
        }
        if (type == DISPATCH_F32)
            memcpy(to + i * 4, &wide, 4);
        else
            memcpy(to + i * 2, &narrow, 2);
    }
}

static struct layout any_layout(uint64_t *rng)
{
    const struct layout at = {.row_gap = rng_below(rng, 2) ? rng_below(rng, 5) : 0,
                              .misalign = rng_below(rng, 2) ? (size_t)rng_below(rng, 8) : 0};
    seen.gap += at.row_gap > 0;
    seen.misaligned += at.misalign > 0;
    return at;
}

static void note_case(const struct fixture *f)
{
    const struct grad_gate_case *in = &f->in;
    for (int64_t i = 0; i < in->choices * in->samples; i++) {
        uint32_t bits = 0;
        double size;
        memcpy(&bits, f->want + (size_t)i * type_bytes(f->gate_type), type_bytes(f->gate_type));
        const double r = oracle_dispatch_value(in->gate_type, bits);
        const double exact = oracle_gate_f64(in, i / in->samples, i % in->samples, &size);
        const int64_t e = in->indices[i], c = in->locations[i];
        seen.skipped += e < 0 || e >= in->experts || c < 0 || c >= in->capacity;
        seen.nan += isnan(r);
        seen.cancelled += isfinite(r) && fabs(exact) * 20 < size;
    }
    seen.blocks += in->hidden > 8192;
}

static void fixture_make(struct fixture *f, uint64_t *rng, size_t type, bool f32_gates, bool plain)
{
    struct grad_gate_case *in = &f->in;
    const size_t gate = f32_gates ? 0 : type;
    const int64_t n = in->choices * in->samples, rows = in->experts * in->capacity;
    f->type = types[type];
    f->gate_type = types[gate];
    in->type = kinds[type];
    in->gate_type = kinds[gate];
    const size_t row_bytes = (size_t)in->hidden * type_bytes(f->type);
    f->dense_indices = malloc((size_t)n * 4 + 1);
    f->dense_locations = malloc((size_t)n * 4 + 1);
    f->dense_input = malloc((size_t)in->samples * row_bytes + 1);
    f->dense_slots = malloc((size_t)rows * row_bytes + 1);
    f->want = malloc((size_t)n * 4 + 1);
    assert_true(f->dense_indices && f->dense_locations && f->dense_input && f->dense_slots && f->want);
    for (int64_t i = 0; i < n; i++) {
        f->dense_indices[i] = (int32_t)(rng_below(rng, in->experts + 1) - (rng_below(rng, 9) == 0));
        f->dense_locations[i] = (int32_t)(rng_below(rng, in->capacity + 1) - (rng_below(rng, 9) == 0));
    }
    fill_values(rng, in->type, f->dense_input, in->samples * in->hidden, !plain);
    fill_values(rng, in->type, f->dense_slots, rows * in->hidden, !plain);
    in->indices = f->dense_indices;
    in->locations = f->dense_locations;
    in->input = f->dense_input;
    in->slots = f->dense_slots;
    const struct {
        struct tensor *tensor;
        DLDataType type;
        int64_t shape[2];
        const void *content;
    } all[] = {
        {&f->indices, SY_I32, {in->choices, in->samples}, f->dense_indices},
        {&f->locations, SY_I32, {in->choices, in->samples}, f->dense_locations},
        {&f->input, f->type, {in->samples, in->hidden}, f->dense_input},
        {&f->slots, f->type, {rows, in->hidden}, f->dense_slots},
        {&f->gates, f->gate_type, {in->choices, in->samples}, NULL},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        const struct layout at = plain ? (struct layout){0} : any_layout(rng);
        tensor_make(all[i].tensor, all[i].type, 2, all[i].shape, &at);
        if (all[i].content)
            tensor_put(all[i].tensor, all[i].content);
    }
    oracle_moe_dispatch_grad_gate(in, f->want);
    note_case(f);
}

static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    unsigned char *before = tensor_snapshot(&f->gates);
    const sy_moe_dispatch_grad_gate_args args = {.indices = &f->indices.t,
                                                 .locations = &f->locations.t,
                                                 .input = &f->input.t,
                                                 .dispatch = &f->slots.t,
                                                 .num_experts = f->in.experts,
                                                 .capacity = f->in.capacity,
                                                 .grad_gates = &f->gates.t};
    expect_status(ctx, sy_moe_dispatch_grad_gate(ctx, &args), SY_OK);
    tensor_expect(&f->gates, f->want, before, "grad_gates");
    free(before);
}

static void fixture_free(struct fixture *f)
{
    tensor_free(&f->indices);
    tensor_free(&f->locations);
    tensor_free(&f->input);
    tensor_free(&f->slots);
    tensor_free(&f->gates);
    free(f->dense_indices);
    free(f->dense_locations);
    free(f->dense_input);
    free(f->dense_slots);
    free(f->want);
}

static void random_shapes(void **state)
{
    (void)state;
    const int threads[] = {1, 2, 3, 8};
    const char *isa;
    for (int table = 0; (isa = sy_isa_name(table)) != NULL; table++)
        for (uint64_t seed = 1; seed <= 60; seed++) {
            uint64_t rng = seed;
            struct fixture f = {0};
            sy_ctx *ctx = test_ctx(threads[seed % 4], isa);
            f.in.choices = 1 + rng_below(&rng, 3);
            f.in.samples = 1 + rng_below(&rng, 20);
            f.in.experts = 1 + rng_below(&rng, 5);
            f.in.capacity = 1 + rng_below(&rng, 6);
            f.in.hidden = 1 + rng_below(&rng, 90);
            fixture_make(&f, &rng, seed % 3, seed % 2, false);
            fixture_check(&f, ctx);
            fixture_free(&f);
            sy_ctx_destroy(ctx);
        }
}

/* Long rows of few samples are cut into blocks; the bits are those of whole rows. */
static void large(const struct grad_gate_case *sizes, size_t type)
{
    const int threads[] = {1, 2, 3, 8};
    uint64_t rng = 5;
    struct fixture f = {.in = *sizes};
    fixture_make(&f, &rng, type, false, true);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        sy_ctx *ctx = test_ctx(threads[i], NULL);
        sy_query query;
        const sy_moe_dispatch_grad_gate_args args = {.indices = &f.indices.t,
                                                     .locations = &f.locations.t,
                                                     .input = &f.input.t,
                                                     .dispatch = &f.slots.t,
                                                     .num_experts = f.in.experts,
                                                     .capacity = f.in.capacity};
        expect_status(ctx, sy_moe_dispatch_grad_gate_query(ctx, &args, &query), SY_OK);
        seen.cut += query.workspace_bytes > 0;
        memset(f.gates.mem, 0xff, f.gates.bytes);
        fixture_check(&f, ctx);
        sy_ctx_destroy(ctx);
    }
    fixture_free(&f);
}

static void many_samples(void **state)
{
    (void)state;
    large(
        &(struct grad_gate_case){.choices = 1, .samples = 3001, .experts = 5, .capacity = 90, .hidden = 129},
        0);
    large(&(struct grad_gate_case){.choices = 2, .samples = 701, .experts = 4, .capacity = 50, .hidden = 515},
          2);
}

static void few_long_rows(void **state)
{
    (void)state;
    large(&(struct grad_gate_case){.choices = 2, .samples = 1, .experts = 1, .capacity = 2, .hidden = 130000},
          0);
    large(
        &(struct grad_gate_case){.choices = 1, .samples = 2, .experts = 2, .capacity = 2, .hidden = 8192 * 9},
        0);
    large(&(struct grad_gate_case){.choices = 1, .samples = 3, .experts = 1, .capacity = 2, .hidden = 98311},
          1);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.skipped, seen.nan, seen.cancelled, seen.gap, seen.misaligned};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 8)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
    assert_int_equal(seen.blocks, 3);
    assert_true(seen.cut >= 6);
}

/* ---- Accuracy ----------------------------------------------------------------------------------------------- */

/*
 * Sums in f32 have an error, so here is a tolerance: the usual metrics of accelerator vendors, sum |e-b| / sum |b| and its
 * square form, at 1e-5 for rows of half a million elements of any sign. One running sum would not reach it.
 */
static void error_of_long_rows(void **state)
{
    (void)state;
    enum { SAMPLES = 4, HIDDEN = 512012 };
    uint64_t rng = 11;
    struct fixture f = {
        .in = {.choices = 1, .samples = SAMPLES, .experts = 1, .capacity = SAMPLES, .hidden = HIDDEN}};
    sy_ctx *ctx = test_ctx(2, NULL);
    fixture_make(&f, &rng, 0, true, true);
    for (int32_t i = 0; i < SAMPLES; i++) {
        memcpy(f.indices.mem + 4 * i, &(int32_t){0}, 4);
        memcpy(f.locations.mem + 4 * i, &i, 4);
        f.dense_indices[i] = 0;
        f.dense_locations[i] = i;
    }
    oracle_moe_dispatch_grad_gate(&f.in, f.want);
    fixture_check(&f, ctx);
    double off = 0, all = 0, off2 = 0, all2 = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        float got;
        double size;
        memcpy(&got, f.gates.mem + 4 * i, 4);
        const double exact = oracle_gate_f64(&f.in, 0, i, &size);
        off += fabs((double)got - exact);
        all += fabs(exact);
        off2 += ((double)got - exact) * ((double)got - exact);
        all2 += exact * exact;
    }
    assert_true(all > 0 && off / all <= 1e-5);
    assert_true(sqrt(off2 / all2) <= 1e-5);
    fixture_free(&f);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gates_of_a_dispatch),
        cmocka_unit_test(gates_of_a_combine),
        cmocka_unit_test(every_int32_is_a_legal_index),
        cmocka_unit_test(order_of_additions_by_hand),
        cmocka_unit_test(products_are_rounded),
        cmocka_unit_test(special_values),
        cmocka_unit_test(types_of_gates),
        cmocka_unit_test(empty_dimensions),
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(many_samples),
        cmocka_unit_test(few_long_rows),
        cmocka_unit_test(the_random_cases_were_hard),
        cmocka_unit_test(error_of_long_rows),
    };
    return cmocka_run_group_tests_name("op_moe_dispatch_grad_gate", tests, NULL, NULL);
}
