/*
 * moe_dispatch: the worked examples of the specification, then one test per rule: skips, duplicates, unwritten rows,
 * empty dimensions, dispatch over input, canonical NaN, rounding of every 16-bit value.
 */
#include "support.h"

#include "oracle/moe_dispatch.h"

#include <math.h>

/* One call on dense arrays. `before` is the old content of dispatch (NULL: 0xA5 bytes), `want` the new one. */
struct example {
    int64_t samples, experts, capacity, hidden;
    DLDataType type, gate_type;
    bool zero_unwritten, unique_slots;
    const void *gates, *input, *before, *want;
    const int32_t *indices, *locations;
};

struct call {
    struct tensor gates, indices, locations, input, dispatch;
    sy_moe_dispatch_args args;
};

static void call_make(struct call *c, const struct example *ex)
{
    memset(c, 0, sizeof *c);
    const DLDataType gate_type = ex->gate_type.bits ? ex->gate_type : ex->type;
    tensor_make(&c->gates, gate_type, 1, (int64_t[]){ex->samples}, NULL);
    tensor_make(&c->indices, SY_I32, 1, (int64_t[]){ex->samples}, NULL);
    tensor_make(&c->locations, SY_I32, 1, (int64_t[]){ex->samples}, NULL);
    tensor_make(&c->input, ex->type, 2, (int64_t[]){ex->samples, ex->hidden}, NULL);
    tensor_make(&c->dispatch, ex->type, 2, (int64_t[]){ex->experts * ex->capacity, ex->hidden}, NULL);
    if (ex->gates)
        tensor_put(&c->gates, ex->gates);
    if (ex->indices)
        tensor_put(&c->indices, ex->indices);
    if (ex->locations)
        tensor_put(&c->locations, ex->locations);
    if (ex->input)
        tensor_put(&c->input, ex->input);
    if (ex->before)
        tensor_put(&c->dispatch, ex->before);
    c->args = (sy_moe_dispatch_args){.gates = ex->gates ? &c->gates.t : NULL,
                                     .indices = &c->indices.t,
                                     .locations = &c->locations.t,
                                     .input = &c->input.t,
                                     .num_experts = ex->experts,
                                     .capacity = ex->capacity,
                                     .zero_unwritten = ex->zero_unwritten,
                                     .unique_slots = ex->unique_slots,
                                     .dispatch = &c->dispatch.t};
}

static void call_free(struct call *c)
{
    tensor_free(&c->gates);
    tensor_free(&c->indices);
    tensor_free(&c->locations);
    tensor_free(&c->input);
    tensor_free(&c->dispatch);
}

static void check(const struct example *ex)
{
    struct call c;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    call_make(&c, ex);
    expect_status(ctx, sy_moe_dispatch_query(ctx, &c.args, &query), SY_OK);
    assert_int_equal(query.rows, ex->experts * ex->capacity);
    assert_int_equal(query.slots, 0);
    expect_status(ctx, sy_moe_dispatch(ctx, &c.args), SY_OK);
    expect_bytes(c.dispatch.mem, ex->want, c.dispatch.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

#define F(...) ((const float[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})
#define U16(...) ((const uint16_t[]){__VA_ARGS__})
#define U32(...) ((const uint32_t[]){__VA_ARGS__})

static const struct example example_a = {.samples = 4,
                                         .experts = 2,
                                         .capacity = 3,
                                         .hidden = 2,
                                         .type = {kDLFloat, 32, 1},
                                         .gates = (const float[]){.5f, 2, 1, -1},
                                         .indices = (const int32_t[]){1, 0, 1, 0},
                                         .locations = (const int32_t[]){0, 0, 1, 2},
                                         .input = (const float[]){1, 2, 3, 4, 5, 6, 7, 8},
                                         .before = (const float[]){9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9},
                                         .want = (const float[]){6, 8, 9, 9, -7, -8, .5f, 1, 5, 6, 9, 9}};

static void a_two_rows_unwritten(void **state)
{
    (void)state;
    check(&example_a);
}

static void a_with_zero_unwritten(void **state)
{
    (void)state;
    struct example ex = example_a;
    ex.zero_unwritten = true;
    ex.want = F(6, 8, 0, 0, -7, -8, .5f, 1, 5, 6, 0, 0);
    check(&ex);
}

static void a_with_unique_slots(void **state)
{
    (void)state;
    struct example ex = example_a;
    ex.unique_slots = true;
    check(&ex);
    ex.zero_unwritten = true;
    ex.want = F(6, 8, 0, 0, -7, -8, .5f, 1, 5, 6, 0, 0);
    check(&ex);
}

static const struct example example_b = {
    .samples = 7,
    .experts = 3,
    .capacity = 2,
    .hidden = 2,
    .type = {kDLFloat, 32, 1},
    .gates = (const float[]){1, 1, 1, 1, 1, 1, 3},
    .indices = (const int32_t[]){-1, 3, 1, 0, 2, 0, 1},
    .locations = (const int32_t[]){0, 0, -1, 2, -2, -1, 1},
    .input = (const float[]){10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23},
    .before = (const float[12]){0},
    .want = (const float[]){0, 0, 0, 0, 0, 0, 66, 69, 0, 0, 0, 0}};

static void b_skipped_samples(void **state)
{
    (void)state;
    check(&example_b);
}

static void b_with_unique_slots(void **state)
{
    (void)state;
    struct example ex = example_b;
    ex.unique_slots = true;
    check(&ex);
}

static void c_last_sample_wins(void **state)
{
    (void)state;
    check(&(struct example){.samples = 5,
                            .experts = 1,
                            .capacity = 2,
                            .hidden = 2,
                            .type = SY_F32,
                            .gates = F(1, 2, 4, .5f, 1),
                            .indices = I(0, 0, 0, 0, 0),
                            .locations = I(1, 1, 0, 1, -1),
                            .input = F(1, 2, 3, 4, 5, 6, 8, 10, 7, 7),
                            .before = F(100, 100, 100, 100),
                            .want = F(20, 24, 4, 5)});
}

/* Two calls on one buffer zeroed once, gates one: sample 4 is dropped twice, samples 2 and 3 once. */
static void e_two_choices(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(2, NULL);
    struct example ex = {.samples = 5,
                         .experts = 3,
                         .capacity = 2,
                         .hidden = 1,
                         .type = SY_F32,
                         .indices = I(0, 0, 2, 1, 0),
                         .locations = I(0, 1, 0, 0, 2),
                         .input = F(1, 2, 3, 4, 5),
                         .before = F(0, 0, 0, 0, 0, 0)};
    call_make(&c, &ex);
    expect_status(ctx, sy_moe_dispatch(ctx, &c.args), SY_OK);
    expect_bytes(c.dispatch.mem, F(1, 2, 4, 0, 3, 0), c.dispatch.bytes);
    tensor_put(&c.indices, I(1, 2, 1, 0, 1));
    tensor_put(&c.locations, I(1, 1, 2, 3, 3));
    expect_status(ctx, sy_moe_dispatch(ctx, &c.args), SY_OK);
    expect_bytes(c.dispatch.mem, F(1, 2, 4, 1, 3, 2), c.dispatch.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

static const struct example example_f = {.samples = 3,
                                         .experts = 1,
                                         .capacity = 3,
                                         .hidden = 1,
                                         .type = {kDLFloat, 32, 1},
                                         .gates = (const float[]){2, 3, 1},
                                         .indices = (const int32_t[]){0, 0, 0},
                                         .locations = (const int32_t[]){1, 0, 1},
                                         .input = (const float[]){1, 10, 100},
                                         .before = (const float[]){1, 10, 100},
                                         .want = (const float[]){30, 100, 100}};

static void f_separate_buffers(void **state)
{
    (void)state;
    check(&example_f);
}

static void f_dispatch_over_input(void **state)
{
    (void)state;
    const int threads[] = {1, 2, 3, 8};
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        struct call c;
        sy_ctx *ctx = test_ctx(threads[i], NULL);
        call_make(&c, &example_f);
        c.args.input = &c.dispatch.t;
        expect_status(ctx, sy_moe_dispatch(ctx, &c.args), SY_OK);
        expect_bytes(c.dispatch.mem, F(6, 100, 100), c.dispatch.bytes);
        call_free(&c);
        sy_ctx_destroy(ctx);
    }
}

static void g_special_values(void **state)
{
    (void)state;
    check(&(struct example){.samples = 5,
                            .experts = 5,
                            .capacity = 1,
                            .hidden = 1,
                            .type = SY_F32,
                            .gates = F(0, -0.0f, 1, 1, 3e38f),
                            .indices = I(0, 1, 2, 3, 4),
                            .locations = I(0, 0, 0, 0, 0),
                            .input = F(INFINITY, 1, NAN, 0x1p-149f, 10),
                            .want = U32(0x7fc00000, 0x80000000, 0x7fc00000, 0x00000001, 0x7f800000)});
}

static void h_f16(void **state)
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
                         .input = U16(0x2e66),
                         .want = U16(0x34cc)};
    check(&ex);
    ex.gate_type = SY_F32;
    ex.gates = F(3);
    check(&ex);
}

static void h_bf16(void **state)
{
    (void)state;
    struct example ex = {.samples = 1,
                         .experts = 1,
                         .capacity = 1,
                         .hidden = 1,
                         .type = SY_BF16,
                         .gates = U16(0x4040),
                         .indices = I(0),
                         .locations = I(0),
                         .input = U16(0x3dcd),
                         .want = U16(0x3e9a)};
    check(&ex);
    ex.gate_type = SY_F32;
    ex.gates = F(3);
    check(&ex);
}

/* ---- Empty dimensions: success, no data pointer is looked at ------------------------------------------------ */

static void empty(int64_t samples, int64_t capacity, int64_t hidden, int64_t experts)
{
    sy_ctx *ctx = test_ctx(2, NULL);
    int64_t s[] = {samples}, x[] = {samples, hidden}, d[] = {experts * capacity, hidden};
    const DLTensor gates = sy_tensor(NULL, SY_F32, 1, s), indices = sy_tensor(NULL, SY_I32, 1, s),
                   locations = sy_tensor(NULL, SY_I32, 1, s), input = sy_tensor(NULL, SY_F32, 2, x),
                   dispatch = sy_tensor(NULL, SY_F32, 2, d);
    const sy_moe_dispatch_args args = {.gates = &gates,
                                       .indices = &indices,
                                       .locations = &locations,
                                       .input = &input,
                                       .num_experts = experts,
                                       .capacity = capacity,
                                       .dispatch = &dispatch};
    expect_status(ctx, sy_moe_dispatch(ctx, &args), SY_OK);
    sy_ctx_destroy(ctx);
}

static void no_samples(void **state)
{
    (void)state;
    empty(0, 8192, 2048, 2);
}

static void no_elements(void **state)
{
    (void)state;
    empty(8192, 8192, 0, 2);
}

static void no_capacity(void **state)
{
    (void)state;
    empty(8192, 0, 2048, 2);
}

static void no_experts(void **state)
{
    (void)state;
    empty(8192, 8192, 2048, 0);
}

/* Nothing to write needs no table of slots, however many there are. */
static void nothing_to_write_needs_no_memory(void **state)
{
    (void)state;
    const int64_t capacity = INT64_C(1) << 45;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (int i = 0; i < 2; i++) {
        const int64_t samples = i ? 0 : 7, hidden = i ? 2 : 0;
        int64_t s[] = {samples}, x[] = {samples, hidden}, d[] = {capacity, hidden};
        const DLTensor indices = sy_tensor(NULL, SY_I32, 1, s), input = sy_tensor(NULL, SY_F32, 2, x),
                       dispatch = sy_tensor(NULL, SY_F32, 2, d);
        const sy_moe_dispatch_args args = {.indices = &indices,
                                           .locations = &indices,
                                           .input = &input,
                                           .num_experts = 1,
                                           .capacity = capacity,
                                           .dispatch = &dispatch};
        sy_query query;
        expect_status(ctx, sy_moe_dispatch_query(ctx, &args, &query), SY_OK);
        assert_true(query.rows == capacity);
        assert_true(query.workspace_bytes < 1 << 20);
        expect_status(ctx, sy_moe_dispatch(ctx, &args), SY_OK);
    }
    sy_ctx_destroy(ctx);
}

static void no_samples_keep_dispatch(void **state)
{
    (void)state;
    check(&(struct example){.samples = 0,
                            .experts = 2,
                            .capacity = 1,
                            .hidden = 2,
                            .type = SY_F32,
                            .before = F(1, 2, 3, 4),
                            .want = F(1, 2, 3, 4)});
}

static void no_samples_with_zero_unwritten_clear_dispatch(void **state)
{
    (void)state;
    check(&(struct example){.samples = 0,
                            .experts = 2,
                            .capacity = 1,
                            .hidden = 2,
                            .type = SY_F32,
                            .zero_unwritten = true,
                            .before = F(1, 2, 3, 4),
                            .want = F(0, 0, 0, 0)});
}

/* Only a NULL with elements behind it is refused, and clearing needs memory to clear. */
static void zero_unwritten_needs_dispatch_data(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(1, NULL);
    call_make(
        &c,
        &(struct example){
            .samples = 0, .experts = 2, .capacity = 1, .hidden = 2, .type = SY_F32, .zero_unwritten = true});
    c.dispatch.t.data = NULL;
    expect_status(ctx, sy_moe_dispatch(ctx, &c.args), SY_ERR_NULL);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Rules -------------------------------------------------------------------------------------------------- */

static void every_int32_is_a_legal_index(void **state)
{
    (void)state;
    const int32_t bad[] = {INT32_MIN, INT32_MIN + 1, -2, -1, 2, 3, 0x40000000, INT32_MAX - 1, INT32_MAX};
    int32_t indices[2 * COUNT_OF(bad) + 1], locations[2 * COUNT_OF(bad) + 1];
    float input[2 * COUNT_OF(bad) + 1];
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        indices[2 * i] = bad[i];
        locations[2 * i] = (int32_t)(i % 2);
        indices[2 * i + 1] = (int32_t)(i % 2);
        locations[2 * i + 1] = bad[i];
    }
    for (size_t i = 0; i < COUNT_OF(input); i++)
        input[i] = NAN;
    indices[COUNT_OF(indices) - 1] = locations[COUNT_OF(locations) - 1] = 1;
    input[COUNT_OF(input) - 1] = 5;
    struct example ex = {.samples = COUNT_OF(input),
                         .experts = 2,
                         .capacity = 2,
                         .hidden = 1,
                         .type = SY_F32,
                         .indices = indices,
                         .locations = locations,
                         .input = input,
                         .before = F(1, 2, 3, 4),
                         .want = F(1, 2, 3, 5)};
    check(&ex);
    ex.unique_slots = true;
    check(&ex);
}

static void gates_absent_are_ones(void **state)
{
    (void)state;
    const float input[] = {1.5f, -0.0f, 0x1p-149f, -INFINITY};
    check(&(struct example){.samples = 1,
                            .experts = 1,
                            .capacity = 1,
                            .hidden = 4,
                            .type = SY_F32,
                            .indices = I(0),
                            .locations = I(0),
                            .input = input,
                            .want = input});
}

/* Signalling, negative and payload NaNs all become the canonical one, also when nothing is multiplied. */
static void nan_is_canonical(void **state)
{
    const bool with_gates = *state != NULL;
    const float one32[] = {1};
    const uint16_t one16[] = {0x3c00}, onebf[] = {0x3f80};
    struct example ex = {.samples = 1,
                         .experts = 1,
                         .capacity = 1,
                         .hidden = 4,
                         .type = SY_F32,
                         .indices = I(0),
                         .locations = I(0),
                         .input = U32(0x7f800001, 0xffc00000, 0x7fffffff, 0xff812345),
                         .want = U32(0x7fc00000, 0x7fc00000, 0x7fc00000, 0x7fc00000)};
    ex.gates = with_gates ? one32 : NULL;
    check(&ex);
    ex.type = SY_F16;
    ex.gates = with_gates ? one16 : NULL;
    ex.input = U16(0x7c01, 0xfe00, 0x7fff, 0xfd23);
    ex.want = U16(0x7e00, 0x7e00, 0x7e00, 0x7e00);
    check(&ex);
    ex.type = SY_BF16;
    ex.gates = with_gates ? onebf : NULL;
    ex.input = U16(0x7f81, 0xffc0, 0x7fff, 0xff92);
    ex.want = U16(0x7fc0, 0x7fc0, 0x7fc0, 0x7fc0);
    check(&ex);
}

static void nan_gate_is_canonical(void **state)
{
    (void)state;
    check(&(struct example){.samples = 2,
                            .experts = 2,
                            .capacity = 1,
                            .hidden = 2,
                            .type = SY_F16,
                            .gate_type = SY_F32,
                            .gates = U32(0xff800001, 0x7fc12345),
                            .indices = I(0, 1),
                            .locations = I(0, 0),
                            .input = U16(0x3c00, 0x7c01, 0, 0xfc00),
                            .want = U16(0x7e00, 0x7e00, 0x7e00, 0x7e00)});
}

/* Ties, overflow and the double rounding that the definition asks for: expected bits worked out by hand. */
static void rounding_by_hand(void **state)
{
    (void)state;
    /* (1 + 2^-23) * (1 + 2^-23) = 1 + 2^-22 + 2^-46 rounds down; 2^-149 * 0.5 ties to 0; 2^-149 * 0.75 rounds up. */
    check(&(struct example){.samples = 3,
                            .experts = 3,
                            .capacity = 1,
                            .hidden = 1,
                            .type = SY_F32,
                            .gates = F(1 + 0x1p-23f, .5f, .75f),
                            .indices = I(0, 1, 2),
                            .locations = I(0, 0, 0),
                            .input = F(1 + 0x1p-23f, 0x1p-149f, 0x1p-149f),
                            .want = U32(0x3f800002, 0, 1)});
    /* f16: 2047 * 0.5 exact; 65504 * 1.0002 stays, * 1.001 overflows; 2^-24 * 0.5 ties to 0; 3 * 2^-25 ties to 2^-23. */
    check(&(struct example){.samples = 5,
                            .experts = 5,
                            .capacity = 1,
                            .hidden = 1,
                            .type = SY_F16,
                            .gate_type = SY_F32,
                            .gates = F(.5f, 1.0002f, 1.001f, .5f, .5f),
                            .indices = I(0, 1, 2, 3, 4),
                            .locations = I(0, 0, 0, 0, 0),
                            .input = U16(0x67ff, 0x7bff, 0x7bff, 0x0001, 0x0003),
                            .want = U16(0x63ff, 0x7bff, 0x7c00, 0x0000, 0x0002)});
    /* bf16: the exact product 2^-133 * (1/2 + 2^-24) lies above the tie, but its f32 rounding is the tie, so 0. */
    check(&(struct example){.samples = 1,
                            .experts = 1,
                            .capacity = 1,
                            .hidden = 1,
                            .type = SY_BF16,
                            .gate_type = SY_F32,
                            .gates = U32(0x3f000001),
                            .indices = I(0),
                            .locations = I(0),
                            .input = U16(0x0001),
                            .want = U16(0x0000)});
}

/* Every 16-bit pattern under gates that reach ties, subnormals, overflow, NaN and results rounded twice. */
static void every_16_bit_value(void **state)
{
    const DLDataType type = *(const DLDataType *)*state;
    const enum dispatch_type kind = type.code == kDLBfloat ? DISPATCH_BF16 : DISPATCH_F16;
    const float gates[] = {1,         -1,      .5f,    3,       1.5f,     0.1f, 1.001f,         -0.3333333f,
                           0,         0x1p-9f, 0x1p9f, -0.0f,   INFINITY, NAN,  0x1.000002p-1f, 0x1p-20f,
                           0x1.8p-7f, 0x1p20f, 3e-39f, 3.3e38f, 0x1p-126f};
    enum { VALUES = 65536, GATES = COUNT_OF(gates) };
    uint16_t *want = malloc(GATES * VALUES * sizeof *want);
    uint16_t *input = malloc(GATES * VALUES * sizeof *input);
    int32_t zeros[GATES] = {0}, slots[GATES];
    int twice = 0;
    assert_true(want && input);
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
    check(&(struct example){.samples = GATES,
                            .experts = 1,
                            .capacity = GATES,
                            .hidden = VALUES,
                            .type = type,
                            .gate_type = SY_F32,
                            .gates = gates,
                            .indices = zeros,
                            .locations = slots,
                            .input = input,
                            .want = want});
    free(want);
    free(input);
}

/* A broken promise: the disputed row is anybody's, every other row is exact. */
static void broken_unique_promise_spoils_only_its_row(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(8, NULL);
    call_make(&c, &(struct example){.samples = 4,
                                    .experts = 2,
                                    .capacity = 2,
                                    .hidden = 1,
                                    .type = SY_F32,
                                    .unique_slots = true,
                                    .indices = I(0, 0, 1, 0),
                                    .locations = I(1, 1, 0, 1),
                                    .input = F(1, 2, 3, 4),
                                    .before = F(9, 9, 9, 9)});
    expect_status(ctx, sy_moe_dispatch(ctx, &c.args), SY_OK);
    expect_bytes(c.dispatch.mem, F(9), 4);
    expect_bytes(c.dispatch.mem + 8, F(3, 9), 8);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

static void more_samples_than_slots(void **state)
{
    (void)state;
    check(&(struct example){.samples = 6,
                            .experts = 1,
                            .capacity = 2,
                            .hidden = 1,
                            .type = SY_F32,
                            .indices = I(0, 0, 0, 0, 0, 0),
                            .locations = I(0, 1, 2, 1, 0, 5),
                            .input = F(1, 2, 3, 4, 5, 6),
                            .want = F(5, 4)});
}

/* In place the unwritten rows are cleared after the loop has read them. */
static void zero_unwritten_over_input(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(3, NULL);
    call_make(&c, &(struct example){.samples = 3,
                                    .experts = 1,
                                    .capacity = 3,
                                    .hidden = 1,
                                    .type = SY_F32,
                                    .zero_unwritten = true,
                                    .gates = F(2, 3, 5),
                                    .indices = I(-1, 0, 0),
                                    .locations = I(0, 0, 1),
                                    .before = F(1, 10, 100)});
    c.args.input = &c.dispatch.t;
    expect_status(ctx, sy_moe_dispatch(ctx, &c.args), SY_OK);
    expect_bytes(c.dispatch.mem, F(30, 500, 0), c.dispatch.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

/* A promise of distinct slots does not remove the order that shared rows impose. */
static void unique_slots_over_input(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(8, NULL);
    call_make(&c, &(struct example){.samples = 4,
                                    .experts = 1,
                                    .capacity = 4,
                                    .hidden = 1,
                                    .type = SY_F32,
                                    .unique_slots = true,
                                    .gates = F(2, 2, 2, 2),
                                    .indices = I(0, 0, 0, 0),
                                    .locations = I(1, 2, 3, 0),
                                    .before = F(1, 10, 100, 1000)});
    c.args.input = &c.dispatch.t;
    expect_status(ctx, sy_moe_dispatch(ctx, &c.args), SY_OK);
    expect_bytes(c.dispatch.mem, F(16, 2, 4, 8), c.dispatch.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static DLDataType f16 = {kDLFloat, 16, 1}, bf16 = {kDLBfloat, 16, 1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_two_rows_unwritten),
        cmocka_unit_test(a_with_zero_unwritten),
        cmocka_unit_test(a_with_unique_slots),
        cmocka_unit_test(b_skipped_samples),
        cmocka_unit_test(b_with_unique_slots),
        cmocka_unit_test(c_last_sample_wins),
        cmocka_unit_test(e_two_choices),
        cmocka_unit_test(f_separate_buffers),
        cmocka_unit_test(f_dispatch_over_input),
        cmocka_unit_test(g_special_values),
        cmocka_unit_test(h_f16),
        cmocka_unit_test(h_bf16),
        cmocka_unit_test(no_samples),
        cmocka_unit_test(no_elements),
        cmocka_unit_test(no_capacity),
        cmocka_unit_test(no_experts),
        cmocka_unit_test(nothing_to_write_needs_no_memory),
        cmocka_unit_test(no_samples_keep_dispatch),
        cmocka_unit_test(no_samples_with_zero_unwritten_clear_dispatch),
        cmocka_unit_test(zero_unwritten_needs_dispatch_data),
        cmocka_unit_test(every_int32_is_a_legal_index),
        cmocka_unit_test(gates_absent_are_ones),
        {"nan_is_canonical_with_gates", nan_is_canonical, NULL, NULL, &f16},
        {"nan_is_canonical_without_gates", nan_is_canonical, NULL, NULL, NULL},
        cmocka_unit_test(nan_gate_is_canonical),
        cmocka_unit_test(rounding_by_hand),
        {"every_f16_value", every_16_bit_value, NULL, NULL, &f16},
        {"every_bf16_value", every_16_bit_value, NULL, NULL, &bf16},
        cmocka_unit_test(broken_unique_promise_spoils_only_its_row),
        cmocka_unit_test(more_samples_than_slots),
        cmocka_unit_test(zero_unwritten_over_input),
        cmocka_unit_test(unique_slots_over_input),
    };
    return cmocka_run_group_tests_name("op_moe_dispatch", tests, NULL, NULL);
}
