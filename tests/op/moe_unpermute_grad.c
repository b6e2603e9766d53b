/*
 * moe_unpermute_grad: worked examples, the rules one case can show, then random cases against the oracle, byte for
 * byte, on every kernel table and several thread counts. Derivatives themselves are tested in moe_grads.c.
 */
#include "oracle/moe_rows_case.h"
#include "support.h"

struct example {
    int64_t tokens, experts, rows, hidden;
    bool capacity, zero_pad;
    const void *grad_tokens, *y; /* [T,H], [M,H], f32 */
    const int32_t *indices;
    const uint8_t *map;
    const float *probs;
    const void *want_rows, *want_probs; /* [M,H], [T,E]; NULL: not asked for */
};

struct call {
    struct tensor grad_tokens, indices, y, map, probs, grad_rows, grad_probs;
    sy_moe_unpermute_grad_args args;
};

static void call_make(struct call *c, const struct example *ex)
{
    memset(c, 0, sizeof *c);
    const int64_t rows[] = {ex->rows, ex->hidden}, tokens[] = {ex->tokens, ex->hidden},
                  map[] = {ex->tokens, ex->experts};
    rows_place(&c->grad_tokens, NULL, SY_F32, 2, tokens, ex->grad_tokens);
    rows_place(&c->indices, NULL, SY_I32, 1, rows, ex->indices);
    rows_place(&c->y, NULL, SY_F32, 2, rows, ex->y);
    rows_place(&c->map, NULL, SY_BOOL, 2, map, ex->map);
    rows_place(&c->probs, NULL, SY_F32, 2, map, ex->probs);
    rows_place(&c->grad_rows, NULL, SY_F32, 2, rows, NULL);
    rows_place(&c->grad_probs, NULL, SY_F32, 2, map, NULL);
    c->args = (sy_moe_unpermute_grad_args){.grad_tokens = &c->grad_tokens.t,
                                           .sorted_indices = &c->indices.t,
                                           .permuted_tokens = ex->y ? &c->y.t : NULL,
                                           .routing_map = ex->map ? &c->map.t : NULL,
                                           .probs = ex->probs ? &c->probs.t : NULL,
                                           .drop_and_pad = ex->capacity,
                                           .zero_pad = ex->zero_pad,
                                           .grad_permuted_tokens = &c->grad_rows.t,
                                           .grad_probs = ex->want_probs ? &c->grad_probs.t : NULL};
}

static void call_free(struct call *c)
{
    struct tensor *all[] = {&c->grad_tokens, &c->indices,   &c->y,         &c->map,
                            &c->probs,       &c->grad_rows, &c->grad_probs};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
}

static void check(const struct example *ex)
{
    struct call c;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    call_make(&c, ex);
    expect_status(ctx, sy_moe_unpermute_grad_query(ctx, &c.args, &query), SY_OK);
    assert_int_equal(query.rows, ex->rows);
    expect_status(ctx, sy_moe_unpermute_grad(ctx, &c.args), SY_OK);
    expect_bytes(c.grad_rows.mem, ex->want_rows, c.grad_rows.bytes);
    if (ex->want_probs)
        expect_bytes(c.grad_probs.mem, ex->want_probs, c.grad_probs.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

#define F(...) ((const float[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})
#define U8(...) ((const uint8_t[]){__VA_ARGS__})
#define U32(...) ((const uint32_t[]){__VA_ARGS__})

static const struct example two_each = {
    .tokens = 4,
    .experts = 3,
    .rows = 8,
    .hidden = 2,
    .grad_tokens = (const float[]){1, 0, 0, 1, 1, 1, 2, -1},
    .y = (const float[]){1, 1, 2, -1, 3, -3, 4, -5, 5, -7, 6, -9, 7, -11, 8, -13},
    .indices = (const int32_t[]){0, 5, 3, 6, 1, 4, 2, 7},
    .map = (const uint8_t[]){1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1},
    .probs = (const float[]){.5f, 0, .5f, 0, .25f, .75f, .125f, .875f, 0, .625f, 0, .375f},
    .want_rows = (const float[]){.5f, 0, .125f, .125f, 1.25f, -.625f, 0, .25f, .875f, .875f, .5f, 0, 0, .75f,
                                 .75f, -.375f},
    .want_probs = (const float[]){1, 0, 6, 0, -5, -11, 1, -2, 0, 9, 0, 29}};

static void packed_rows_and_probs(void **state)
{
    (void)state;
    check(&two_each);
}

static void without_probs_rows_are_copies(void **state)
{
    (void)state;
    struct example ex = two_each;
    ex.map = NULL;
    ex.probs = NULL;
    ex.y = ex.want_probs = NULL;
    ex.grad_tokens = U32(0x7f800001, 0x80000000, 0, 1, 2, 3, 0xffc12345, 4); /* bits survive */
    ex.want_rows = U32(0x7f800001, 0x80000000, 2, 3, 0xffc12345, 4, 0, 1, 2, 3, 0x7f800001, 0x80000000, 0, 1,
                       0xffc12345, 4);
    check(&ex);
}

static void probs_need_not_be_asked_for(void **state)
{
    (void)state;
    struct example ex = two_each;
    ex.want_probs = NULL;
    check(&ex);
}

/* T = 1, K = E = 2, all ones: Ascend's sample program. */
static void all_ones(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 1,
                            .experts = 2,
                            .rows = 2,
                            .hidden = 2,
                            .grad_tokens = F(1, 1),
                            .y = F(1, 1, 1, 1),
                            .indices = I(0, 1),
                            .map = U8(1, 1),
                            .probs = F(1, 1),
                            .want_rows = F(1, 1, 1, 1),
                            .want_probs = F(2, 2)});
}

static const struct example capacity_example = {
    .tokens = 5,
    .experts = 3,
    .rows = 6,
    .hidden = 1,
    .capacity = true,
    .grad_tokens = (const float[]){1, 2, 4, 8, 16},
    .y = (const float[]){1, 2, 3, 4, 5, 6},
    .indices = (const int32_t[]){0, 1, 0, 1, 3, 4},
    .map = (const uint8_t[15]){0},
    .probs = (const float[]){.5f, .25f, 9, 2, 4, 9, 9, 9, 9, 9, 9, .125f, 9, 9, 8},
    .want_rows = (const float[]){.5f, 4, .25f, 8, 1, 128},
    .want_probs = (const float[]){1, 3, 0, 4, 8, 0, 0, 0, 0, 0, 0, 40, 0, 0, 96}};

static void capacity_rows_and_probs(void **state)
{
    (void)state;
    check(&capacity_example);
}

static void capacity_without_probs_with_zero_pad(void **state)
{
    (void)state;
    struct example ex = capacity_example;
    ex.map = NULL;
    ex.probs = NULL;
    ex.y = ex.want_probs = NULL;
    ex.zero_pad = true;
    ex.indices = I(4, -1, 0, 0, -1, 3);
    ex.want_rows = F(16, 0, 1, 1, 0, 8);
    check(&ex);
}

static void capacity_pair_keeps_its_highest_row(void **state)
{
    (void)state;
    struct example ex = capacity_example;
    ex.indices = I(0, 0, 1, 1, 1, 1);
    ex.want_rows = F(.5f, .5f, 8, 8, 18, 18);
    ex.want_probs = F(2, 0, 0, 0, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    check(&ex);
}

/* Row 1 is named by slots 1 and 2, of tokens 0 and 1: the later is its gradient. Rows 0 and 3 are named by none. */
static void packed_rows_named_twice_or_never(void **state)
{
    (void)state;
    struct example ex = {.tokens = 2,
                         .experts = 2,
                         .rows = 4,
                         .hidden = 1,
                         .grad_tokens = F(3, 5),
                         .y = F(10, 20, 30, 40),
                         .indices = I(2, 1, 1, -1),
                         .want_rows = F(0, 5, 3, 0)};
    check(&ex);
    ex.map = U8(1, 1, 0, 1);
    ex.probs = F(2, 4, 8, 16);
    ex.want_rows = F(0, 80, 6, 0);
    ex.want_probs = F(90, 60, 0, 100);
    check(&ex);
}

/* A row of weight 0 was not looked at, so its gradient is +0 even of an infinity; the weight still has one. */
static void a_weight_of_zero_leaves_zeros(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 1,
                            .experts = 3,
                            .rows = 3,
                            .hidden = 2,
                            .grad_tokens = U32(0xbf800000, 0x7f800000),
                            .y = F(1, 1, 2, 1, 3, 1),
                            .indices = I(0, 1, 2),
                            .map = U8(1, 1, 1),
                            .probs = F(0.0f, -0.0f, 2),
                            .want_rows = U32(0, 0, 0, 0, 0xc0000000, 0x7f800000),
                            .want_probs = U32(0x7f800000, 0x7f800000, 0x7f800000)});
}

static void nan_results_are_canonical(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 1,
                            .experts = 1,
                            .rows = 1,
                            .hidden = 2,
                            .grad_tokens = U32(0xffc12345, 0x80000000),
                            .y = F(1, 1),
                            .indices = I(0),
                            .map = U8(1),
                            .probs = F(1),
                            .want_rows = U32(0x7fc00000, 0x80000000),
                            .want_probs = U32(0x7fc00000)});
}

static void no_tokens_rows_or_elements(void **state)
{
    (void)state;
    struct example ex = {.experts = 2,
                         .hidden = 1,
                         .grad_tokens = F(0),
                         .y = F(0),
                         .indices = I(0),
                         .map = U8(0),
                         .probs = F(0),
                         .want_rows = F(0),
                         .want_probs = F(0)};
    check(&ex);
    ex.tokens = 2;
    ex.grad_tokens = F(1, 2);
    ex.map = U8(1, 1, 1, 1); /* with M = 0 the map is not examined */
    ex.probs = F(1, 2, 3, 4);
    ex.want_probs = F(0, 0, 0, 0);
    check(&ex);
    ex.capacity = true;
    check(&ex);
    ex = two_each;
    ex.hidden = 0;
    ex.want_probs = F(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    check(&ex);
    ex = capacity_example;
    ex.hidden = 0;
    ex.want_probs = F(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
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
        ex.map = U8(1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0, 1);
        call_make(&c, &ex);
        unsigned char *rows = tensor_snapshot(&c.grad_rows), *probs = tensor_snapshot(&c.grad_probs);
        expect_status(ctx, sy_moe_unpermute_grad(ctx, &c.args), SY_ERR_ROUTING);
        expect_fault(ctx, SY_FAULT_SLOT_COUNT, -1, 3, 1, 2);
        assert_string_equal(
            sy_ctx_error(ctx),
            "moe_unpermute_grad: routing_map routes token 3 to 1 experts, want 2, its live slots");
        memcpy(c.indices.mem, &(int32_t){-7}, 4);
        expect_status(ctx, sy_moe_unpermute_grad(ctx, &c.args), SY_ERR_ROUTING);
        expect_fault(ctx, SY_FAULT_SLOT_RANGE, -1, 0, -7, 8);
        tensor_expect_unchanged(&c.grad_rows, rows, "grad_permuted_tokens");
        tensor_expect_unchanged(&c.grad_probs, probs, "grad_probs");
        free(rows);
        free(probs);
        call_free(&c);
        sy_ctx_destroy(ctx);
    }
}

/* ---- Random cases --------------------------------------------------------------------------------------------- */

struct fixture {
    struct rows_fixture rows;
    unsigned char *grad_tokens, *y; /* dense [T,H], [M,H] */
    struct call c;
};

static void fixture_make(struct fixture *f, uint64_t *rng, const struct rows_choice *choice, bool any_layout)
{
    rows_fixture_make(&f->rows, rng, choice);
    struct rows_case *in = &f->rows.in;
    uint64_t *at = any_layout ? rng : NULL;
    const DLDataType type = rows_dl_type(in->type), prob_type = rows_dl_type(in->prob_type);
    const int64_t rows[] = {in->rows, in->hidden}, tokens[] = {in->tokens, in->hidden},
                  map[] = {in->tokens, in->experts};
    struct call *c = &f->c;
    f->grad_tokens = rows_numbers(rng, in->type, in->tokens * in->hidden, rng_below(rng, 2));
    f->y = rows_numbers(rng, in->type, in->rows * in->hidden, rng_below(rng, 2));
    rows_place(&c->grad_tokens, at, type, 2, tokens, f->grad_tokens);
    rows_place(&c->indices, at, SY_I32, 1, rows, f->rows.indices);
    rows_place(&c->y, at, type, 2, rows, f->y);
    rows_place(&c->map, at, SY_U8, 2, map, f->rows.map);
    rows_place(&c->probs, at, prob_type, 2, map, f->rows.probs);
    rows_place(&c->grad_rows, at, type, 2, rows, NULL);
    rows_place(&c->grad_probs, at, prob_type, 2, map, NULL);
    c->args = (sy_moe_unpermute_grad_args){.grad_tokens = &c->grad_tokens.t,
                                           .sorted_indices = &c->indices.t,
                                           .permuted_tokens = in->probs ? &c->y.t : NULL,
                                           .routing_map = in->probs || in->map ? &c->map.t : NULL,
                                           .probs = in->probs ? &c->probs.t : NULL,
                                           .drop_and_pad = in->capacity,
                                           .zero_pad = in->zero_pad,
                                           .grad_permuted_tokens = &c->grad_rows.t,
                                           .grad_probs = in->probs ? &c->grad_probs.t : NULL};
}

static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    const struct rows_case *in = &f->rows.in;
    const struct rows_fault *fault = &f->rows.pairs.fault;
    struct call *c = &f->c;
    unsigned char *before = tensor_snapshot(&c->grad_rows), *probs_before = tensor_snapshot(&c->grad_probs);
    if (fault->position >= 0) {
        expect_status(ctx, sy_moe_unpermute_grad(ctx, &c->args), SY_ERR_ROUTING);
        expect_fault(ctx, fault->count ? SY_FAULT_SLOT_COUNT : SY_FAULT_SLOT_RANGE, -1, fault->position,
                     fault->value, fault->limit);
        tensor_expect_unchanged(&c->grad_rows, before, "grad_permuted_tokens");
        tensor_expect_unchanged(&c->grad_probs, probs_before, "grad_probs");
    } else {
        unsigned char *want = malloc((size_t)(in->rows * in->hidden) * rows_bytes(in->type) + 1);
        unsigned char *want_probs =
            malloc((size_t)(in->tokens * in->experts) * rows_bytes(in->prob_type) + 1);
        assert_true(want && want_probs);
        oracle_unpermute_grad(in, &f->rows.pairs, f->grad_tokens, f->y, want, in->probs ? want_probs : NULL);
        expect_status(ctx, sy_moe_unpermute_grad(ctx, &c->args), SY_OK);
        tensor_expect(&c->grad_rows, want, before, "grad_permuted_tokens");
        if (in->probs)
            tensor_expect(&c->grad_probs, want_probs, probs_before, "grad_probs");
        free(want);
        free(want_probs);
    }
    free(before);
    free(probs_before);
}

static void fixture_free(struct fixture *f)
{
    call_free(&f->c);
    free(f->grad_tokens);
    free(f->y);
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
                                           .weighted = seed / 6 % 3 > 0},
                     true);
        fixture_check(&f, rows_contexts[seed % rows_n_contexts]);
        fixture_free(&f);
    }
    rows_seed = 0;
    rows_seen.nan_sum = 8; /* no sums of rows here */
    rows_expect_seen(8);
}

static void large_for_every_table_and_thread_count(void **state)
{
    (void)state;
    static const struct rows_case sizes[] = {
        {.tokens = 2003, .experts = 301, .rows = 3 * 2003, .hidden = 131},
        {.tokens = 2003, .experts = 301, .rows = 301 * 20, .hidden = 131, .capacity = true},
        {.tokens = 3, .experts = 5, .rows = 6, .hidden = 20000}, /* dot products of several blocks */
    };
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        uint64_t rng = 5 + s;
        struct fixture f = {.rows = {.in = sizes[s]}};
        const struct rows_choice choice = {
            .style = ROWS_HAND, .capacity = sizes[s].capacity, .weighted = true, .by_expert = true};
        fixture_make(&f, &rng, &choice, false);
        for (size_t i = 0; i < rows_n_contexts; i++) {
            memset(f.c.grad_rows.mem, 0x11 * (int)i + 1, f.c.grad_rows.bytes);
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
        cmocka_unit_test(without_probs_rows_are_copies),
        cmocka_unit_test(probs_need_not_be_asked_for),
        cmocka_unit_test(all_ones),
        cmocka_unit_test(capacity_rows_and_probs),
        cmocka_unit_test(capacity_without_probs_with_zero_pad),
        cmocka_unit_test(capacity_pair_keeps_its_highest_row),
        cmocka_unit_test(packed_rows_named_twice_or_never),
        cmocka_unit_test(a_weight_of_zero_leaves_zeros),
        cmocka_unit_test(nan_results_are_canonical),
        cmocka_unit_test(no_tokens_rows_or_elements),
        cmocka_unit_test(faults_come_before_the_first_byte),
        cmocka_unit_test_teardown(random_cases, rows_tell_seed),
        cmocka_unit_test(large_for_every_table_and_thread_count),
    };
    return cmocka_run_group_tests_name("op_moe_unpermute_grad", tests, rows_open_contexts,
                                       rows_close_contexts);
}
