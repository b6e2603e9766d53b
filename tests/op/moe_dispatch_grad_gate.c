/*
 * moe_dispatch_grad_gate: random runs bit by bit against the oracle on every table and thread count, the error against a
 * dot product in double, tensors without data.
 */
#include "support_random.h"

#include "oracle/moe_dispatch_grad_gate.h"

#include <math.h>

static struct {
    int skipped, nan, cancelled;
} seen;
static int blocks, cut; /* cases with long rows, and calls that cut them */

struct fixture {
    struct grad_gate_case in;
    struct tensor *indices, *locations, *input, *slots, *gates;
    int32_t *dense_indices, *dense_locations;
    unsigned char *dense_input, *dense_slots, *want;
    DLDataType type, gate_type;
    sy_moe_dispatch_grad_gate_args args;
};

static const enum dispatch_type kinds[] = {DISPATCH_F32, DISPATCH_F16, DISPATCH_BF16};
static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};

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
    blocks += in->hidden > 8192;
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
    f->dense_indices = need(n, 4);
    f->dense_locations = need(n, 4);
    f->dense_input = need(in->samples * in->hidden, type_bytes(f->type));
    f->dense_slots = need(rows * in->hidden, type_bytes(f->type));
    f->want = need(n, 4);
    for (int64_t i = 0; i < n; i++) {
        f->dense_indices[i] = (int32_t)(rng_below(rng, in->experts + 1) - (rng_below(rng, 9) == 0));
        f->dense_locations[i] = (int32_t)(rng_below(rng, in->capacity + 1) - (rng_below(rng, 9) == 0));
    }
    fill_floats(rng, f->type, f->dense_input, in->samples * in->hidden, plain ? 0 : 20);
    fill_floats(rng, f->type, f->dense_slots, rows * in->hidden, plain ? 0 : 20);
    in->indices = f->dense_indices;
    in->locations = f->dense_locations;
    in->input = f->dense_input;
    in->slots = f->dense_slots;
    uint64_t *layout = plain ? NULL : rng;
    f->indices = any_tensor(layout, SY_I32, 2, in->choices, in->samples);
    f->locations = any_tensor(layout, SY_I32, 2, in->choices, in->samples);
    f->input = any_tensor(layout, f->type, 2, in->samples, in->hidden);
    f->slots = any_tensor(layout, f->type, 2, rows, in->hidden);
    f->gates = any_tensor(layout, f->gate_type, 2, in->choices, in->samples);
    tensor_put(f->indices, f->dense_indices);
    tensor_put(f->locations, f->dense_locations);
    tensor_put(f->input, f->dense_input);
    tensor_put(f->slots, f->dense_slots);
    f->args = (sy_moe_dispatch_grad_gate_args){.indices = &f->indices->t,
                                               .locations = &f->locations->t,
                                               .input = &f->input->t,
                                               .dispatch = &f->slots->t,
                                               .num_experts = in->experts,
                                               .capacity = in->capacity,
                                               .grad_gates = &f->gates->t};
    oracle_moe_dispatch_grad_gate(in, f->want);
    note_case(f);
}

static void fixture_check(const struct fixture *f, sy_ctx *ctx)
{
    const struct output out = {"grad_gates", f->gates, f->want, true};
    const sy_fault none = {.status = SY_OK};
    fill_outputs(&out, 1);
    expect_outputs(ctx, sy_moe_dispatch_grad_gate(ctx, &f->args), &none, &out, 1);
}

static void random_shapes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        uint64_t rng = seed;
        struct fixture f = {0};
        f.in.choices = 1 + rng_below(&rng, 3);
        f.in.samples = 1 + rng_below(&rng, 20);
        f.in.experts = 1 + rng_below(&rng, 5);
        f.in.capacity = 1 + rng_below(&rng, 6);
        f.in.hidden = 1 + rng_below(&rng, 90);
        fixture_make(&f, &rng, seed % 3, seed % 2, false);
        for (int i = 0; i < n_contexts; i++)
            fixture_check(&f, contexts[i]);
        free_all();
    }
    expect_hard(seen, 8);
}

/* Many samples; and long rows of few samples, which are cut into blocks: the bits are those of whole rows. */
static void large_cases(void **state)
{
    (void)state;
    static const struct {
        int64_t choices, samples, experts, capacity, hidden;
        size_t type;
    } sizes[] = {{1, 3001, 5, 90, 129, 0},  {2, 701, 4, 50, 515, 2}, {2, 1, 1, 2, 130000, 0},
                 {1, 2, 2, 2, 8192 * 9, 0}, {1, 3, 1, 2, 98311, 1},  {2, 60, 3, 9, 131, 1}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        uint64_t rng = 5;
        struct fixture f = {.in = {.choices = sizes[i].choices,
                                   .samples = sizes[i].samples,
                                   .experts = sizes[i].experts,
                                   .capacity = sizes[i].capacity,
                                   .hidden = sizes[i].hidden}};
        fixture_make(&f, &rng, sizes[i].type, false, true);
        for (int c = 0; c < 4 && c < n_contexts; c++) { /* the thread counts of the best table */
            sy_query query;
            expect_status(contexts[c], sy_moe_dispatch_grad_gate_query(contexts[c], &f.args, &query), SY_OK);
            cut += query.workspace_bytes > 0;
            fixture_check(&f, contexts[c]);
        }
        free_all();
    }
    assert_int_equal(blocks, 3);
    assert_true(cut >= 6 || n_contexts < 4); /* the query is of the CPU */
}

/* Rows of whole vectors, which a device reads as such: few products and many, one block and several. */
static void rows_of_whole_vectors(void **state)
{
    (void)state;
    static const struct {
        int64_t samples, hidden;
    } sizes[] = {{3, 136}, {3, 1032}, {60, 136}, {60, 1032}, {2, 8192 + 1032}};
    for (size_t i = 0; i < 3 * COUNT_OF(sizes); i++) {
        uint64_t rng = 31 + i;
        struct fixture f = {.in = {.choices = 2,
                                   .samples = sizes[i / 3].samples,
                                   .experts = 3,
                                   .capacity = 5,
                                   .hidden = sizes[i / 3].hidden}};
        fixture_make(&f, &rng, i % 3, i % 2, true);
        fixture_check(&f, contexts[i % (size_t)n_contexts]);
        free_all();
    }
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
    fixture_make(&f, &rng, 0, true, true);
    for (int32_t i = 0; i < SAMPLES; i++) {
        memcpy(f.indices->mem + 4 * i, &(int32_t){0}, 4);
        memcpy(f.locations->mem + 4 * i, &i, 4);
        f.dense_indices[i] = 0;
        f.dense_locations[i] = i;
    }
    oracle_moe_dispatch_grad_gate(&f.in, f.want);
    fixture_check(&f, contexts[1]);
    double off = 0, all = 0, off2 = 0, all2 = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        float got;
        double size;
        memcpy(&got, f.gates->mem + 4 * i, 4);
        const double exact = oracle_gate_f64(&f.in, 0, i, &size);
        off += fabs((double)got - exact);
        all += fabs(exact);
        off2 += ((double)got - exact) * ((double)got - exact);
        all2 += exact * exact;
    }
    assert_true(all > 0 && off / all <= 1e-5);
    assert_true(sqrt(off2 / all2) <= 1e-5);
    free_all();
}

/* No output element: no data pointer is examined. */
static void nothing_to_write_needs_no_data(void **state)
{
    (void)state;
    int64_t none[] = {2, 0}, x[] = {0, 3}, z[] = {12, 3};
    const DLTensor c = sy_tensor(NULL, SY_I32, 2, none), xt = sy_tensor(NULL, SY_F32, 2, x),
                   zt = sy_tensor(NULL, SY_F32, 2, z), gt = sy_tensor(NULL, SY_F32, 2, none);
    const sy_moe_dispatch_grad_gate_args args = {.indices = &c,
                                                 .locations = &c,
                                                 .input = &xt,
                                                 .dispatch = &zt,
                                                 .num_experts = 3,
                                                 .capacity = 4,
                                                 .grad_gates = &gt};
    expect_status(contexts[0], sy_moe_dispatch_grad_gate(contexts[0], &args), SY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(large_cases),
        cmocka_unit_test(rows_of_whole_vectors),
        cmocka_unit_test(error_of_long_rows),
        cmocka_unit_test(nothing_to_write_needs_no_data),
    };
    return cmocka_run_group_tests_name("op_moe_dispatch_grad_gate", tests, open_contexts, close_contexts);
}
