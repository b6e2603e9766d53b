/*
 * moe_permute_grad: random cases against the oracle, byte for byte, on every kernel table and several thread counts.
 * Worked examples are in tests/examples; derivatives themselves are tested in moe_grads.c.
 */
#include "oracle/moe_rows_case.h"
#include "support.h"

/* ---- Random cases --------------------------------------------------------------------------------------------- */

struct fixture {
    struct rows_fixture rows;
    unsigned char *dense_rows, *values; /* dense [M,H], [M] */
    struct tensor grad_rows, indices, grad_row_probs, map, grad_tokens, grad_probs;
    sy_moe_permute_grad_args args;
};

static void fixture_tensors(struct fixture *f, uint64_t *rng)
{
    const struct rows_case *in = &f->rows.in;
    const DLDataType type = rows_dl_type(in->type), prob_type = rows_dl_type(in->prob_type);
    const int64_t rows[] = {in->rows, in->hidden}, tokens[] = {in->tokens, in->hidden},
                  map[] = {in->tokens, in->experts};
    rows_place(&f->grad_rows, rng, type, 2, rows, f->dense_rows);
    rows_place(&f->indices, rng, SY_I32, 1, rows, f->rows.indices);
    rows_place(&f->grad_row_probs, rng, prob_type, 1, rows, f->values);
    rows_place(&f->map, rng, SY_I8, 2, map, f->rows.map);
    rows_place(&f->grad_tokens, rng, type, 2, tokens, NULL);
    rows_place(&f->grad_probs, rng, prob_type, 2, map, NULL);
    f->args = (sy_moe_permute_grad_args){.grad_permuted_tokens = &f->grad_rows.t,
                                         .sorted_indices = &f->indices.t,
                                         .grad_permuted_probs = in->by_expert ? &f->grad_row_probs.t : NULL,
                                         .routing_map = in->map ? &f->map.t : NULL,
                                         .num_experts = in->experts,
                                         .num_tokens = in->tokens,
                                         .drop_and_pad = in->capacity,
                                         .zero_pad = in->zero_pad,
                                         .grad_tokens = &f->grad_tokens.t,
                                         .grad_probs = in->by_expert ? &f->grad_probs.t : NULL};
}

static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    const struct rows_case *in = &f->rows.in;
    const struct rows_fault *fault = &f->rows.pairs.fault;
    unsigned char *before = tensor_snapshot(&f->grad_tokens), *probs_before = tensor_snapshot(&f->grad_probs);
    if (fault->position >= 0) {
        expect_status(ctx, sy_moe_permute_grad(ctx, &f->args), SY_ERR_ROUTING);
        expect_fault(ctx, fault->count ? SY_FAULT_SLOT_COUNT : SY_FAULT_SLOT_RANGE, -1, fault->position,
                     fault->value, fault->limit);
        tensor_expect_unchanged(&f->grad_tokens, before, "grad_tokens");
        tensor_expect_unchanged(&f->grad_probs, probs_before, "grad_probs");
    } else {
        unsigned char *want = malloc((size_t)(in->tokens * in->hidden) * rows_bytes(in->type) + 1);
        unsigned char *want_probs =
            malloc((size_t)(in->tokens * in->experts) * rows_bytes(in->prob_type) + 1);
        assert_true(want && want_probs);
        oracle_unpermute(in, &f->rows.pairs, f->dense_rows, want);
        expect_status(ctx, sy_moe_permute_grad(ctx, &f->args), SY_OK);
        tensor_expect(&f->grad_tokens, want, before, "grad_tokens");
        if (in->by_expert) {
            oracle_grad_probs(in, &f->rows.pairs, f->values, want_probs);
            tensor_expect(&f->grad_probs, want_probs, probs_before, "grad_probs");
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
    f->dense_rows = rows_numbers(rng, in->type, in->rows * in->hidden, true);
    f->values = malloc((size_t)in->rows * 4 + 1);
    assert_non_null(f->values);
    rng_fill(rng, f->values, (size_t)in->rows * 4);
    fixture_tensors(f, any_layout ? rng : NULL);
}

static void fixture_free(struct fixture *f)
{
    struct tensor *all[] = {&f->grad_rows, &f->indices,     &f->grad_row_probs,
                            &f->map,       &f->grad_tokens, &f->grad_probs};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(f->dense_rows);
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

/* Rows of whole vectors, for more tokens than a device has multiprocessors. */
static void long_rows(void **state)
{
    (void)state;
    static const int64_t hidden[] = {256, 1040, 2048, 5136}, slots[] = {1, 2, 3, 4, 8, 16, 33};
    for (uint64_t seed = 1; seed <= 42; seed++) {
        uint64_t rng = rows_seed = seed;
        const int64_t k = slots[seed % COUNT_OF(slots)], h = hidden[seed % COUNT_OF(hidden)];
        struct fixture f = {
            .rows = {.in = {.tokens = 77, .experts = seed % 5 == 0 ? 300 : 37, .rows = 77 * k, .hidden = h}}};
        fixture_make(
            &f, &rng,
            &(struct rows_choice){.style = (enum rows_style)(seed % ROWS_STYLES), .by_expert = seed % 11 > 0},
            false);
        fixture_check(&f, rows_contexts[seed % rows_n_contexts]);
        fixture_free(&f);
    }
    rows_seed = 0;
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
            memset(f.grad_tokens.mem, 0x11 * (int)i + 1, f.grad_tokens.bytes);
            memset(f.grad_probs.mem, 0x11 * (int)i + 1, f.grad_probs.bytes);
            fixture_check(&f, rows_contexts[i]);
        }
        fixture_free(&f);
    }
}

/* The shape of Ascend's sample program, narrower: every row names token 0. */
static void everything_on_the_first_token(void **state)
{
    (void)state;
    enum { TOKENS = 4096, EXPERTS = 256, HIDDEN = 8, ROWS = EXPERTS * 16 };
    static float rows[ROWS * HIDDEN], row_probs[ROWS], tokens[TOKENS * HIDDEN], probs[TOKENS * EXPERTS];
    static float want_tokens[TOKENS * HIDDEN], want_probs[TOKENS * EXPERTS];
    static int32_t indices[ROWS];
    for (int i = 0; i < ROWS; i++)
        row_probs[i] = 0.1f;
    for (int e = 0; e < EXPERTS; e++)
        want_probs[e] = 0.1f;
    const DLTensor y = sy_tensor(rows, SY_F32, 2, (int64_t[]){ROWS, HIDDEN}),
                   i = sy_tensor(indices, SY_I32, 1, (int64_t[]){ROWS}),
                   p = sy_tensor(row_probs, SY_F32, 1, (int64_t[]){ROWS}),
                   x = sy_tensor(tokens, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN}),
                   g = sy_tensor(probs, SY_F32, 2, (int64_t[]){TOKENS, EXPERTS});
    const sy_moe_permute_grad_args args = {.grad_permuted_tokens = &y,
                                           .sorted_indices = &i,
                                           .grad_permuted_probs = &p,
                                           .num_experts = EXPERTS,
                                           .num_tokens = TOKENS,
                                           .drop_and_pad = true,
                                           .grad_tokens = &x,
                                           .grad_probs = &g};
    for (size_t c = 0; c < rows_n_contexts; c++) {
        memset(tokens, 0xA5, sizeof tokens);
        memset(probs, 0xA5, sizeof probs);
        expect_status(rows_contexts[c], sy_moe_permute_grad(rows_contexts[c], &args), SY_OK);
        expect_bytes(tokens, want_tokens, sizeof tokens);
        expect_bytes(probs, want_probs, sizeof probs);
    }
}

/* Without grad_permuted_probs the tensor is not even looked at: no shape, no type, no data. */
static void grad_probs_is_untouched_without_its_source(void **state)
{
    (void)state;
    uint64_t rng = 3;
    struct fixture f = {.rows = {.in = {.tokens = 9, .experts = 5, .rows = 18, .hidden = 4}}};
    fixture_make(&f, &rng, &(struct rows_choice){.style = ROWS_PERMUTED}, false);
    struct tensor *probs = &f.grad_probs;
    f.args.grad_probs = &probs->t;
    unsigned char *before = tensor_snapshot(probs);
    fixture_check(&f, rows_contexts[0]);
    tensor_expect_unchanged(probs, before, "grad_probs");
    free(before);
    const DLTensor whole = probs->t;
    probs->t = (DLTensor){.ndim = whole.ndim, .dtype = SY_BOOL, .device = whole.device};
    memset(f.grad_tokens.mem, 0xA5, f.grad_tokens.bytes);
    fixture_check(&f, rows_contexts[0]);
    probs->t = whole;
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_on_the_first_token),
        cmocka_unit_test(grad_probs_is_untouched_without_its_source),
        cmocka_unit_test_teardown(random_cases, rows_tell_seed),
        cmocka_unit_test_teardown(long_rows, rows_tell_seed),
        cmocka_unit_test(large_for_every_table_and_thread_count),
    };
    return cmocka_run_group_tests_name("op_moe_permute_grad", tests, rows_open_contexts, rows_close_contexts);
}
