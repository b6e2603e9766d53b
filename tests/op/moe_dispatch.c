/*
 * moe_dispatch: what examples cannot express. Dispatch over input, a broken promise, tensors without data, every 16-bit
 * value.
 */
#include "support_random.h"

#include "oracle/moe_dispatch.h"

#include <math.h>

/* ---- Four samples, four rows, in place or not, on 1 to 8 threads ---------------------------------------------- */

struct call {
    int32_t indices[4], locations[4];
    float gates[4], rows[4]; /* `rows` is input and dispatch */
    int64_t samples, experts, capacity;
    bool zero_unwritten, unique_slots;
};

static void run(const struct call *call, float *input, float *dispatch, sy_ctx *ctx)
{
    struct call c = *call;
    int64_t s[] = {c.samples}, x[] = {c.samples, 1}, d[] = {c.experts * c.capacity, 1};
    const DLTensor gates = sy_tensor(c.gates, SY_F32, 1, s), indices = sy_tensor(c.indices, SY_I32, 1, s),
                   locations = sy_tensor(c.locations, SY_I32, 1, s), in = sy_tensor(input, SY_F32, 2, x),
                   out = sy_tensor(dispatch, SY_F32, 2, d);
    const sy_moe_dispatch_args args = {.gates = &gates,
                                       .indices = &indices,
                                       .locations = &locations,
                                       .input = &in,
                                       .num_experts = c.experts,
                                       .capacity = c.capacity,
                                       .zero_unwritten = c.zero_unwritten,
                                       .unique_slots = c.unique_slots,
                                       .dispatch = &out};
    expect_status(ctx, sy_moe_dispatch(ctx, &args), SY_OK);
}

static void over_input(void **state)
{
    (void)state;
    const struct {
        struct call call;
        float want[4];
    } cases[] = {
        {{.indices = {0, 0, 0},
          .locations = {1, 0, 1},
          .gates = {2, 3, 1},
          .rows = {1, 10, 100},
          .samples = 3,
          .experts = 1,
          .capacity = 3},
         {6, 100, 100}},
        /* Rows that are not written are cleared after they have been read. */
        {{.indices = {-1, 0, 0},
          .locations = {0, 0, 1},
          .gates = {2, 3, 5},
          .rows = {1, 10, 100},
          .samples = 3,
          .experts = 1,
          .capacity = 3,
          .zero_unwritten = true},
         {30, 500, 0}},
        /* A promise of distinct slots does not remove the order that shared rows impose. */
        {{.indices = {0, 0, 0, 0},
          .locations = {1, 2, 3, 0},
          .gates = {2, 2, 2, 2},
          .rows = {1, 10, 100, 1000},
          .samples = 4,
          .experts = 1,
          .capacity = 4,
          .unique_slots = true},
         {16, 2, 4, 8}},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int c = 0; c < n_contexts; c++) {
            float rows[4];
            memcpy(rows, cases[i].call.rows, sizeof rows);
            run(&cases[i].call, rows, rows, contexts[c]);
            expect_bytes(rows, cases[i].want, sizeof rows);
        }
}

/* The row that several samples name is any of theirs, every other row is exact. */
static void broken_unique_promise_spoils_only_its_row(void **state)
{
    (void)state;
    const struct call call = {.indices = {0, 0, 1, 0},
                              .locations = {1, 1, 0, 1},
                              .gates = {1, 1, 1, 1},
                              .rows = {1, 2, 3, 4},
                              .samples = 4,
                              .experts = 2,
                              .capacity = 2,
                              .unique_slots = true};
    for (int c = 0; c < n_contexts; c++) {
        float input[4], rows[4] = {9, 9, 9, 9};
        memcpy(input, call.rows, sizeof input);
        run(&call, input, rows, contexts[c]);
        assert_true(rows[0] == 9 && rows[2] == 3 && rows[3] == 9);
    }
}

/* ---- Tensors without data ------------------------------------------------------------------------------------ */

static sy_status without_data(sy_ctx *ctx, int64_t samples, int64_t hidden, int64_t experts, int64_t capacity,
                              bool zero_unwritten)
{
    int64_t s[] = {samples}, x[] = {samples, hidden}, d[] = {experts * capacity, hidden};
    const DLTensor gates = sy_tensor(NULL, SY_F32, 1, s), indices = sy_tensor(NULL, SY_I32, 1, s),
                   input = sy_tensor(NULL, SY_F32, 2, x), dispatch = sy_tensor(NULL, SY_F32, 2, d);
    const sy_moe_dispatch_args args = {.gates = &gates,
                                       .indices = &indices,
                                       .locations = &indices,
                                       .input = &input,
                                       .num_experts = experts,
                                       .capacity = capacity,
                                       .zero_unwritten = zero_unwritten,
                                       .dispatch = &dispatch};
    sy_query query;
    expect_status(ctx, sy_moe_dispatch_query(ctx, &args, &query), SY_OK);
    assert_true(query.rows == experts * capacity);
    assert_true(query.workspace_bytes < 1 << 20); /* nothing to write needs no table of slots */
    return sy_moe_dispatch(ctx, &args);
}

/* No samples, no elements, no capacity, no experts; but clearing needs memory to clear. */
static void nothing_to_write_needs_no_data(void **state)
{
    (void)state;
    sy_ctx *ctx = contexts[1];
    expect_status(ctx, without_data(ctx, 0, 2048, 2, 8192, false), SY_OK);
    expect_status(ctx, without_data(ctx, 8192, 0, 2, 8192, false), SY_OK);
    expect_status(ctx, without_data(ctx, 8192, 2048, 2, 0, false), SY_OK);
    expect_status(ctx, without_data(ctx, 8192, 2048, 0, 8192, false), SY_OK);
    expect_status(ctx, without_data(ctx, 0, 2, 1, INT64_C(1) << 45, false), SY_OK);
    expect_status(ctx, without_data(ctx, 7, 0, 1, INT64_C(1) << 45, false), SY_OK);
    expect_status(ctx, without_data(ctx, 0, 2, 2, 1, true), SY_ERR_NULL);
}

/* ---- Rounding ------------------------------------------------------------------------------------------------ */

/* Every 16-bit pattern under gates that reach ties, subnormals, overflow, NaN and results rounded twice. */
static void every_16_bit_value(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    const enum dispatch_type kind = type.code == kDLBfloat ? DISPATCH_BF16 : DISPATCH_F16;
    const float gates[] = {1,         -1,      .5f,    3,       1.5f,     0.1f, 1.001f,         -0.3333333f,
                           0,         0x1p-9f, 0x1p9f, -0.0f,   INFINITY, NAN,  0x1.000002p-1f, 0x1p-20f,
                           0x1.8p-7f, 0x1p20f, 3e-39f, 3.3e38f, 0x1p-126f};
    enum { VALUES = 65536, GATES = COUNT_OF(gates) };
    uint16_t *want = need(GATES * VALUES, sizeof *want), *input = need(GATES * VALUES, sizeof *input);
    int32_t zeros[GATES] = {0}, slots[GATES];
    int twice = 0;
    for (int g = 0; g < GATES; g++) {
        slots[g] = g;
        for (uint32_t v = 0; v < VALUES; v++) {
            input[g * VALUES + (int)v] = (uint16_t)v;
            const uint16_t result = (uint16_t)oracle_dispatch_product(kind, (double)gates[g], v);
            const double exact = (double)gates[g] * oracle_dispatch_value(kind, v);
            want[g * VALUES + (int)v] = result;
            twice += result != (kind == DISPATCH_F16 ? f16_round(exact) : bf16_round(exact));
        }
    }
    assert_true(twice > 10);
    struct tensor *g = any_tensor(NULL, SY_F32, 1, GATES, 0), *e = any_tensor(NULL, SY_I32, 1, GATES, 0),
                  *c = any_tensor(NULL, SY_I32, 1, GATES, 0), *x = any_tensor(NULL, type, 2, GATES, VALUES),
                  *y = any_tensor(NULL, type, 2, GATES, VALUES);
    tensor_put(g, gates);
    tensor_put(e, zeros);
    tensor_put(c, slots);
    tensor_put(x, input);
    const sy_moe_dispatch_args args = {.gates = &g->t,
                                       .indices = &e->t,
                                       .locations = &c->t,
                                       .input = &x->t,
                                       .num_experts = 1,
                                       .capacity = GATES,
                                       .dispatch = &y->t};
    const struct output out = {"dispatch", y, want, true};
    const sy_fault none = {.status = SY_OK};
    for (int i = 0; i < n_contexts; i++) {
        fill_outputs(&out, 1);
        expect_outputs(contexts[i], sy_moe_dispatch(contexts[i], &args), &none, &out, 1);
    }
    free_all();
}

int main(void)
{
    static DLDataType f16 = {kDLFloat, 16, 1}, bf16 = {kDLBfloat, 16, 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_input),
        cmocka_unit_test(broken_unique_promise_spoils_only_its_row),
        cmocka_unit_test(nothing_to_write_needs_no_data),
        {"every_f16_value", every_16_bit_value, NULL, NULL, &f16},
        {"every_bf16_value", every_16_bit_value, NULL, NULL, &bf16},
    };
    return cmocka_run_group_tests_name("op_moe_dispatch", tests, open_contexts, close_contexts);
}
