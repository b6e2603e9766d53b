/*
 * moe_permute_grad: worked examples, the rules one case can show, then random cases against the oracle, byte for byte,
 * on every kernel table and several thread counts. Derivatives themselves are tested in moe_grads.c.
 */
#include "oracle/moe_rows_case.h"
#include "support.h"

struct example {
    int64_t tokens, experts, rows, hidden;
    bool capacity, zero_pad;
    const float *grad_rows, *grad_row_probs; /* [M,H], [M] or NULL */
    const int32_t *indices;
    const uint8_t *map;
    const float *want_tokens, *want_probs; /* [T,H], [T,E]; NULL: not asked for */
};

struct call {
    struct tensor grad_rows, indices, grad_row_probs, map, grad_tokens, grad_probs;
    sy_moe_permute_grad_args args;
};

static void call_make(struct call *c, const struct example *ex)
{
    memset(c, 0, sizeof *c);
    tensor_make(&c->grad_rows, SY_F32, 2, (int64_t[]){ex->rows, ex->hidden}, NULL);
    tensor_make(&c->indices, SY_I32, 1, &ex->rows, NULL);
    tensor_make(&c->grad_row_probs, SY_F32, 1, &ex->rows, NULL);
    tensor_make(&c->map, SY_BOOL, 2, (int64_t[]){ex->tokens, ex->experts}, NULL);
    tensor_make(&c->grad_tokens, SY_F32, 2, (int64_t[]){ex->tokens, ex->hidden}, NULL);
    tensor_make(&c->grad_probs, SY_F32, 2, (int64_t[]){ex->tokens, ex->experts}, NULL);
    tensor_put(&c->grad_rows, ex->grad_rows);
    tensor_put(&c->indices, ex->indices);
    c->args = (sy_moe_permute_grad_args){.grad_permuted_tokens = &c->grad_rows.t,
                                         .sorted_indices = &c->indices.t,
                                         .num_experts = ex->experts,
                                         .num_tokens = ex->tokens,
                                         .drop_and_pad = ex->capacity,
                                         .zero_pad = ex->zero_pad,
                                         .grad_tokens = &c->grad_tokens.t};
    if (ex->map) {
        tensor_put(&c->map, ex->map);
        c->args.routing_map = &c->map.t;
    }
    if (ex->grad_row_probs) {
        tensor_put(&c->grad_row_probs, ex->grad_row_probs);
        c->args.grad_permuted_probs = &c->grad_row_probs.t;
    }
    if (ex->want_probs)
        c->args.grad_probs = &c->grad_probs.t;
}

static void call_free(struct call *c)
{
    struct tensor *all[] = {&c->grad_rows, &c->indices,     &c->grad_row_probs,
                            &c->map,       &c->grad_tokens, &c->grad_probs};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
}

static void check(const struct example *ex)
{
    struct call c;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    call_make(&c, ex);
    expect_status(ctx, sy_moe_permute_grad_query(ctx, &c.args, &query), SY_OK);
    assert_int_equal(query.rows, ex->tokens);
    expect_status(ctx, sy_moe_permute_grad(ctx, &c.args), SY_OK);
    expect_bytes(c.grad_tokens.mem, ex->want_tokens, c.grad_tokens.bytes);
    if (ex->want_probs)
        expect_bytes(c.grad_probs.mem, ex->want_probs, c.grad_probs.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

#define F(...) ((const float[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})
#define U8(...) ((const uint8_t[]){__VA_ARGS__})

static const struct example two_each = {
    .tokens = 4,
    .experts = 3,
    .rows = 8,
    .hidden = 2,
    .grad_rows = (const float[]){1, 1, 2, -1, 3, -3, 4, -5, 5, -7, 6, -9, 7, -11, 8, -13},
    .grad_row_probs = (const float[]){1, 2, 3, 4, 5, 6, 7, 8},
    .indices = (const int32_t[]){0, 5, 3, 6, 1, 4, 2, 7},
    .map = (const uint8_t[]){1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1},
    .want_tokens = (const float[]){7, -8, 11, -16, 7, -8, 11, -16},
    .want_probs = (const float[]){1, 0, 6, 0, 4, 7, 2, 5, 0, 3, 0, 8}};

static void packed_rows_and_probs(void **state)
{
    (void)state;
    check(&two_each);
}

static void without_probs_no_map_is_needed(void **state)
{
    (void)state;
    struct example ex = two_each;
    ex.grad_row_probs = ex.want_probs = NULL;
    ex.map = NULL;
    check(&ex);
}

static const struct example capacity_example = {
    .tokens = 5,
    .experts = 3,
    .rows = 6,
    .hidden = 1,
    .capacity = true,
    .grad_rows = (const float[]){1, 2, 3, 4, 5, 6},
    .grad_row_probs = (const float[]){1, 2, 3, 4, 5, 6},
    .indices = (const int32_t[]){0, 1, 0, 1, 3, 4},
    .want_tokens = (const float[]){4, 6, 0, 5, 6},
    .want_probs = (const float[]){1, 3, 0, 2, 4, 0, 0, 0, 0, 0, 0, 5, 0, 0, 6}};

static void capacity_rows_and_probs(void **state)
{
    (void)state;
    check(&capacity_example);
}

static void capacity_with_zero_pad(void **state)
{
    (void)state;
    struct example ex = capacity_example;
    ex.zero_pad = true;
    ex.indices = I(0, 1, -1, -1, 3, 4);
    ex.want_tokens = F(1, 2, 0, 5, 6);
    ex.want_probs = F(1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 6);
    check(&ex);
}

/* Rows 0 and 1 are both token 2 at expert 0: the sum of tokens has both, the gradient of probs the later. */
static void the_highest_row_of_a_pair_counts(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 3,
                            .experts = 2,
                            .rows = 6,
                            .hidden = 1,
                            .capacity = true,
                            .grad_rows = F(1, 2, 4, 8, 16, 32),
                            .grad_row_probs = F(1, 2, 3, 4, 5, 6),
                            .indices = I(2, 2, 0, 1, 1, 1),
                            .want_tokens = F(4, 56, 3),
                            .want_probs = F(3, 0, 0, 6, 2, 0)});
}

/* The shape of Ascend's sample program, narrower: every row names token 0. */
static void everything_on_the_first_token(void **state)
{
    (void)state;
    enum { TOKENS = 4096, EXPERTS = 256, SLOTS = 16, HIDDEN = 8, ROWS = EXPERTS * SLOTS };
    float *rows = calloc(ROWS * HIDDEN, 4), *probs = calloc(ROWS, 4),
          *want_probs = calloc(TOKENS * EXPERTS, 4);
    int32_t *indices = calloc(ROWS, 4);
    assert_true(rows && probs && want_probs && indices);
    for (int i = 0; i < ROWS; i++)
        probs[i] = 0.1f;
    for (int e = 0; e < EXPERTS; e++)
        want_probs[e] = 0.1f;
    float *want_tokens = calloc(TOKENS * HIDDEN, 4);
    assert_non_null(want_tokens);
    check(&(struct example){TOKENS, EXPERTS, ROWS, HIDDEN, true, false, rows, probs, indices, NULL,
                            want_tokens, want_probs});
    free(rows);
    free(probs);
    free(want_probs);
    free(want_tokens);
    free(indices);
}

static void unused_slots_leave_zeros(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 3,
                            .experts = 3,
                            .rows = 6,
                            .hidden = 1,
                            .grad_rows = F(1, 2, 4, 8, 16, 32),
                            .grad_row_probs = F(10, 20, 30, 40, 50, 60),
                            .indices = I(-1, 5, -1, -1, 1, 0),
                            .map = U8(0, 9, 0, 0, 0, 0, 1, 0, 1),
                            .want_tokens = F(32, 0, 3),
                            .want_probs = F(0, 60, 0, 0, 0, 0, 20, 0, 10)});
}

/* Values are moved, not computed with: payloads and signs survive. */
static void values_of_probs_keep_their_bits(void **state)
{
    (void)state;
    const uint32_t odd[] = {0x7f800001, 0x80000000, 0xffc12345, 0x00000001};
    float values[4], want[4];
    memcpy(values, odd, sizeof odd);
    memcpy(want, (const uint32_t[]){odd[3], odd[0], odd[2], odd[1]}, sizeof want);
    check(&(struct example){.tokens = 2,
                            .experts = 2,
                            .rows = 4,
                            .hidden = 1,
                            .grad_rows = F(0, 0, 0, 0),
                            .grad_row_probs = values,
                            .indices = I(3, 0, 2, 1),
                            .map = U8(1, 1, 1, 1),
                            .want_tokens = F(0, 0),
                            .want_probs = want});
}

/* Without grad_permuted_probs the tensor is not even looked at: no shape, no type, no data. */
static void grad_probs_is_untouched_without_its_source(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(1, NULL);
    struct example ex = two_each;
    ex.grad_row_probs = NULL;
    call_make(&c, &ex);
    unsigned char *before = tensor_snapshot(&c.grad_probs);
    expect_status(ctx, sy_moe_permute_grad(ctx, &c.args), SY_OK);
    tensor_expect_unchanged(&c.grad_probs, before, "grad_probs");
    free(before);
    c.grad_probs.t.shape = NULL;
    c.grad_probs.t.data = NULL;
    c.grad_probs.t.dtype = SY_BOOL;
    expect_status(ctx, sy_moe_permute_grad(ctx, &c.args), SY_OK);
    expect_bytes(c.grad_tokens.mem, ex.want_tokens, c.grad_tokens.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

static void no_rows_and_no_elements(void **state)
{
    (void)state;
    struct example ex = {.tokens = 2,
                         .experts = 2,
                         .hidden = 1,
                         .grad_rows = F(0),
                         .grad_row_probs = F(0),
                         .indices = I(0),
                         .map = U8(1, 1, 1, 1),
                         .want_tokens = F(0, 0),
                         .want_probs = F(0, 0, 0, 0)};
    check(&ex);
    ex.capacity = true;
    check(&ex);
    ex = two_each;
    ex.hidden = 0;
    check(&ex);
    ex = capacity_example;
    ex.hidden = 0;
    check(&ex);
}

static void faults_come_before_the_first_byte(void **state)
{
    (void)state;
    const int threads[] = {1, 2, 3, 8};
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        struct call c;
        struct example ex = two_each;
        sy_ctx *ctx = test_ctx(threads[i], NULL);
        ex.map = U8(1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1);
        call_make(&c, &ex);
        unsigned char *tokens = tensor_snapshot(&c.grad_tokens), *probs = tensor_snapshot(&c.grad_probs);
        expect_status(ctx, sy_moe_permute_grad(ctx, &c.args), SY_ERR_ROUTING);
        expect_fault(ctx, SY_FAULT_SLOT_COUNT, -1, 3, 3, 2);
        assert_string_equal(
            sy_ctx_error(ctx),
            "moe_permute_grad: routing_map routes token 3 to 3 experts, want 2, its live slots");
        memcpy(c.indices.mem + 16, &(int32_t){8}, 4);
        expect_status(ctx, sy_moe_permute_grad(ctx, &c.args), SY_ERR_ROUTING);
        expect_fault(ctx, SY_FAULT_SLOT_RANGE, -1, 4, 8, 8);
        tensor_expect_unchanged(&c.grad_tokens, tokens, "grad_tokens");
        tensor_expect_unchanged(&c.grad_probs, probs, "grad_probs");
        free(tokens);
        free(probs);
        call_free(&c);
        sy_ctx_destroy(ctx);
    }
}

/* ---- Random cases --------------------------------------------------------------------------------------------- */

struct fixture {
    struct rows_fixture rows;
    unsigned char *grad_rows, *values; /* dense [M,H], [M] */
    struct call c;
};

static void fixture_tensors(struct fixture *f, uint64_t *rng)
{
    const struct rows_case *in = &f->rows.in;
    const DLDataType type = rows_dl_type(in->type), prob_type = rows_dl_type(in->prob_type);
    const int64_t rows[] = {in->rows, in->hidden}, tokens[] = {in->tokens, in->hidden},
                  map[] = {in->tokens, in->experts};
    struct call *c = &f->c;
    rows_place(&c->grad_rows, rng, type, 2, rows, f->grad_rows);
    rows_place(&c->indices, rng, SY_I32, 1, rows, f->rows.indices);
    rows_place(&c->grad_row_probs, rng, prob_type, 1, rows, f->values);
    rows_place(&c->map, rng, SY_I8, 2, map, f->rows.map);
    rows_place(&c->grad_tokens, rng, type, 2, tokens, NULL);
    rows_place(&c->grad_probs, rng, prob_type, 2, map, NULL);
    c->args = (sy_moe_permute_grad_args){.grad_permuted_tokens = &c->grad_rows.t,
                                         .sorted_indices = &c->indices.t,
                                         .grad_permuted_probs = in->by_expert ? &c->grad_row_probs.t : NULL,
                                         .routing_map = in->map ? &c->map.t : NULL,
                                         .num_experts = in->experts,
                                         .num_tokens = in->tokens,
                                         .drop_and_pad = in->capacity,
                                         .zero_pad = in->zero_pad,
                                         .grad_tokens = &c->grad_tokens.t,
                                         .grad_probs = in->by_expert ? &c->grad_probs.t : NULL};
}

static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    const struct rows_case *in = &f->rows.in;
    const struct rows_fault *fault = &f->rows.pairs.fault;
    struct call *c = &f->c;
    unsigned char *before = tensor_snapshot(&c->grad_tokens), *probs_before = tensor_snapshot(&c->grad_probs);
    if (fault->position >= 0) {
        expect_status(ctx, sy_moe_permute_grad(ctx, &c->args), SY_ERR_ROUTING);
        expect_fault(ctx, fault->count ? SY_FAULT_SLOT_COUNT : SY_FAULT_SLOT_RANGE, -1, fault->position,
                     fault->value, fault->limit);
        tensor_expect_unchanged(&c->grad_tokens, before, "grad_tokens");
        tensor_expect_unchanged(&c->grad_probs, probs_before, "grad_probs");
    } else {
        unsigned char *want = malloc((size_t)(in->tokens * in->hidden) * rows_bytes(in->type) + 1);
        unsigned char *want_probs =
            malloc((size_t)(in->tokens * in->experts) * rows_bytes(in->prob_type) + 1);
        assert_true(want && want_probs);
        oracle_unpermute(in, &f->rows.pairs, f->grad_rows, want);
        expect_status(ctx, sy_moe_permute_grad(ctx, &c->args), SY_OK);
        tensor_expect(&c->grad_tokens, want, before, "grad_tokens");
        if (in->by_expert) {
            oracle_grad_probs(in, &f->rows.pairs, f->values, want_probs);
            tensor_expect(&c->grad_probs, want_probs, probs_before, "grad_probs");
        }
        free(want);
        free(want_probs);
    }
    free(before);
    free(probs_before);
}

static void fixture_make(struct fixture *f, uint64_t *rng, const struct rows_choice *choice, bool any_layout)
{
    rows_fixture_make(&f->rows, rng, choice);
    const struct rows_case *in = &f->rows.in;
    f->grad_rows = rows_numbers(rng, in->type, in->rows * in->hidden, true);
    f->values = malloc((size_t)in->rows * 4 + 1);
    assert_non_null(f->values);
    rng_fill(rng, f->values, (size_t)in->rows * 4);
    fixture_tensors(f, any_layout ? rng : NULL);
}

static void fixture_free(struct fixture *f)
{
    call_free(&f->c);
    free(f->grad_rows);
    free(f->values);
    rows_fixture_free(&f->rows);
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++) {
        uint64_t rng = rows_seed = seed;
        struct fixture f = {0};
        fixture_make(&f, &rng,
                     &(struct rows_choice){.style = (enum rows_style)(seed % ROWS_STYLES),
                                           .capacity = seed / 3 % 2,
                                           .by_expert = seed / 6 % 3 > 0},
                     true);
        fixture_check(&f, rows_contexts[seed % rows_n_contexts]);
        fixture_free(&f);
    }
    rows_seed = 0;
    rows_seen.zero_weight = rows_seen.mixed_types = rows_seen.nan_sum = 8; /* there are no weights here */
    rows_expect_seen(8);
}

static void large_for_every_table_and_thread_count(void **state)
{
    (void)state;
    for (int capacity = 0; capacity < 2; capacity++) {
        uint64_t rng = 5;
        struct fixture f = {.rows = {.in = {.tokens = 2003,
                                            .experts = 301,
                                            .rows = capacity ? 301 * 20 : 3 * 2003,
                                            .hidden = 131}}};
        fixture_make(&f, &rng,
                     &(struct rows_choice){.style = ROWS_HAND, .capacity = capacity, .by_expert = true},
                     false);
        for (size_t i = 0; i < rows_n_contexts; i++) {
            memset(f.c.grad_tokens.mem, 0x11 * (int)i + 1, f.c.grad_tokens.bytes);
            memset(f.c.grad_probs.mem, 0x11 * (int)i + 1, f.c.grad_probs.bytes);
            fixture_check(&f, rows_contexts[i]);
        }
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_rows_and_probs),
        cmocka_unit_test(without_probs_no_map_is_needed),
        cmocka_unit_test(capacity_rows_and_probs),
        cmocka_unit_test(capacity_with_zero_pad),
        cmocka_unit_test(the_highest_row_of_a_pair_counts),
        cmocka_unit_test(everything_on_the_first_token),
        cmocka_unit_test(unused_slots_leave_zeros),
        cmocka_unit_test(values_of_probs_keep_their_bits),
        cmocka_unit_test(grad_probs_is_untouched_without_its_source),
        cmocka_unit_test(no_rows_and_no_elements),
        cmocka_unit_test(faults_come_before_the_first_byte),
        cmocka_unit_test_teardown(random_cases, rows_tell_seed),
        cmocka_unit_test(large_for_every_table_and_thread_count),
    };
    return cmocka_run_group_tests_name("op_moe_permute_grad", tests, rows_open_contexts, rows_close_contexts);
}
