/*
 * moe_unpermute_grad: random cases against the oracle, byte for byte, on every kernel table and several thread counts.
 * Worked examples are in tests/examples; derivatives themselves are tested in moe_grads.c.
 */
#include "oracle/moe_rows_case.h"
#include "support.h"

/* ---- Random cases --------------------------------------------------------------------------------------------- */

struct fixture {
    struct rows_fixture rows;
    unsigned char *dense_tokens, *dense_y; /* dense [T,H], [M,H] */
    struct tensor grad_tokens, indices, y, map, probs, grad_rows, grad_probs;
    sy_moe_unpermute_grad_args args;
};

static void fixture_make(struct fixture *f, uint64_t *rng, const struct rows_choice *choice, bool any_layout)
{
    rows_fixture_make(&f->rows, rng, choice);
    struct rows_case *in = &f->rows.in;
    uint64_t *at = any_layout ? rng : NULL;
    const DLDataType type = rows_dl_type(in->type), prob_type = rows_dl_type(in->prob_type);
    const int64_t rows[] = {in->rows, in->hidden}, tokens[] = {in->tokens, in->hidden},
                  map[] = {in->tokens, in->experts};
    f->dense_tokens = rows_numbers(rng, in->type, in->tokens * in->hidden, rng_below(rng, 2));
    f->dense_y = rows_numbers(rng, in->type, in->rows * in->hidden, rng_below(rng, 2));
    rows_place(&f->grad_tokens, at, type, 2, tokens, f->dense_tokens);
    rows_place(&f->indices, at, SY_I32, 1, rows, f->rows.indices);
    rows_place(&f->y, at, type, 2, rows, f->dense_y);
    rows_place(&f->map, at, SY_U8, 2, map, f->rows.map);
    rows_place(&f->probs, at, prob_type, 2, map, f->rows.probs);
    rows_place(&f->grad_rows, at, type, 2, rows, NULL);
    rows_place(&f->grad_probs, at, prob_type, 2, map, NULL);
    f->args = (sy_moe_unpermute_grad_args){.grad_tokens = &f->grad_tokens.t,
                                           .sorted_indices = &f->indices.t,
                                           .permuted_tokens = in->probs ? &f->y.t : NULL,
                                           .routing_map = in->probs || in->map ? &f->map.t : NULL,
                                           .probs = in->probs ? &f->probs.t : NULL,
                                           .drop_and_pad = in->capacity,
                                           .zero_pad = in->zero_pad,
                                           .grad_permuted_tokens = &f->grad_rows.t,
                                           .grad_probs = in->probs ? &f->grad_probs.t : NULL};
}

static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    const struct rows_case *in = &f->rows.in;
    const struct rows_fault *fault = &f->rows.pairs.fault;
    unsigned char *before = tensor_snapshot(&f->grad_rows), *probs_before = tensor_snapshot(&f->grad_probs);
    if (fault->position >= 0) {
        expect_status(ctx, sy_moe_unpermute_grad(ctx, &f->args), SY_ERR_ROUTING);
        expect_fault(ctx, fault->count ? SY_FAULT_SLOT_COUNT : SY_FAULT_SLOT_RANGE, -1, fault->position,
                     fault->value, fault->limit);
        tensor_expect_unchanged(&f->grad_rows, before, "grad_permuted_tokens");
        tensor_expect_unchanged(&f->grad_probs, probs_before, "grad_probs");
    } else {
        unsigned char *want = malloc((size_t)(in->rows * in->hidden) * rows_bytes(in->type) + 1);
        unsigned char *want_probs =
            malloc((size_t)(in->tokens * in->experts) * rows_bytes(in->prob_type) + 1);
        assert_true(want && want_probs);
        oracle_unpermute_grad(in, &f->rows.pairs, f->dense_tokens, f->dense_y, want,
                              in->probs ? want_probs : NULL);
        expect_status(ctx, sy_moe_unpermute_grad(ctx, &f->args), SY_OK);
        tensor_expect(&f->grad_rows, want, before, "grad_permuted_tokens");
        if (in->probs)
            tensor_expect(&f->grad_probs, want_probs, probs_before, "grad_probs");
        free(want);
        free(want_probs);
    }
    free(before);
    free(probs_before);
}

static void fixture_free(struct fixture *f)
{
    struct tensor *all[] = {&f->grad_tokens, &f->indices,   &f->y,         &f->map,
                            &f->probs,       &f->grad_rows, &f->grad_probs};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(f->dense_tokens);
    free(f->dense_y);
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
            memset(f.grad_rows.mem, 0x11 * (int)i + 1, f.grad_rows.bytes);
            memset(f.grad_probs.mem, 0x11 * (int)i + 1, f.grad_probs.bytes);
            fixture_check(&f, rows_contexts[i]);
        }
        fixture_free(&f);
    }
}

/* Rows of whole vectors, in pieces of every kind, for more tokens than a device has multiprocessors. */
static void long_rows(void **state)
{
    (void)state;
    static const int64_t hidden[] = {256, 1040, 2048, 5136, 8192, 9216, 20000}, slots[] = {1, 2, 3, 8, 16};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t rng = rows_seed = seed;
        const int64_t k = slots[seed % COUNT_OF(slots)], h = hidden[seed % COUNT_OF(hidden)];
        struct rows_case sizes = {
            .tokens = h > 3000 ? 33 : 77, .experts = seed % 4 == 0 ? 300 : 19, .hidden = h};
        sizes.rows = sizes.tokens * k;
        struct fixture f = {.rows = {.in = sizes}};
        fixture_make(
            &f, &rng,
            &(struct rows_choice){.style = (enum rows_style)(seed % ROWS_STYLES), .weighted = seed % 11 > 0},
            false);
        fixture_check(&f, rows_contexts[seed % rows_n_contexts]);
        fixture_free(&f);
    }
    rows_seed = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_cases, rows_tell_seed),
        cmocka_unit_test_teardown(long_rows, rows_tell_seed),
        cmocka_unit_test(large_for_every_table_and_thread_count),
    };
    return cmocka_run_group_tests_name("op_moe_unpermute_grad", tests, rows_open_contexts,
                                       rows_close_contexts);
}
