/*
 * moe_unpermute and the gradients with long, aligned rows, as models have them, against the oracle, byte for byte: few
 * and many slots, rows that are no multiple of anything round, indices that are wrong. Devices have kernels of their own
 * for such shapes; the random tests of each operator have short rows at odd addresses.
 */
#include "oracle/moe_rows_case.h"
#include "support.h"

struct fixture {
    struct rows_fixture rows;
    unsigned char *dense_y, *dense_x, *values; /* [M,H], [T,H], [M] */
    struct tensor y, x, indices, map, probs, row_probs, y_out, x_out, probs_out;
};

static void fixture_make(struct fixture *f, uint64_t *rng, const struct rows_choice *choice)
{
    rows_fixture_make(&f->rows, rng, choice);
    const struct rows_case *in = &f->rows.in;
    const DLDataType type = rows_dl_type(in->type), prob_type = rows_dl_type(in->prob_type);
    const int64_t y[] = {in->rows, in->hidden}, x[] = {in->tokens, in->hidden},
                  map[] = {in->tokens, in->experts};
    f->dense_y = rows_numbers(rng, in->type, in->rows * in->hidden, rng_below(rng, 2));
    f->dense_x = rows_numbers(rng, in->type, in->tokens * in->hidden, rng_below(rng, 2));
    f->values = rows_numbers(rng, in->prob_type, in->rows, true);
    rows_place(&f->y, NULL, type, 2, y, f->dense_y);
    rows_place(&f->x, NULL, type, 2, x, f->dense_x);
    rows_place(&f->indices, NULL, SY_I32, 1, y, f->rows.indices);
    rows_place(&f->map, NULL, SY_U8, 2, map, f->rows.map);
    rows_place(&f->probs, NULL, prob_type, 2, map, f->rows.probs);
    rows_place(&f->row_probs, NULL, prob_type, 1, y, f->values);
    rows_place(&f->y_out, NULL, type, 2, y, NULL);
    rows_place(&f->x_out, NULL, type, 2, x, NULL);
    rows_place(&f->probs_out, NULL, prob_type, 2, map, NULL);
}

static void fixture_free(struct fixture *f)
{
    struct tensor *all[] = {&f->y,         &f->x,     &f->indices, &f->map,      &f->probs,
                            &f->row_probs, &f->y_out, &f->x_out,   &f->probs_out};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(f->dense_y);
    free(f->dense_x);
    free(f->values);
    rows_fixture_free(&f->rows);
}

/* Runs a call with one or two outputs; they are as wanted, or as before when the indices are wrong. */
static void expect_outputs(struct fixture *f, sy_status (*run)(struct fixture *, sy_ctx *),
                           struct tensor *out, const void *want, const void *want_probs)
{
    sy_ctx *ctx = rows_contexts[0];
    const struct rows_fault *fault = &f->rows.pairs.fault;
    unsigned char *before = tensor_snapshot(out), *probs_before = tensor_snapshot(&f->probs_out);
    if (fault->position >= 0) {
        expect_status(ctx, run(f, ctx), SY_ERR_ROUTING);
        expect_fault(ctx, fault->count ? SY_FAULT_SLOT_COUNT : SY_FAULT_SLOT_RANGE, -1, fault->position,
                     fault->value, fault->limit);
        tensor_expect_unchanged(out, before, "rows");
        tensor_expect_unchanged(&f->probs_out, probs_before, "grad_probs");
    } else {
        expect_status(ctx, run(f, ctx), SY_OK);
        tensor_expect(out, want, before, "rows");
        if (want_probs != NULL)
            tensor_expect(&f->probs_out, want_probs, probs_before, "grad_probs");
    }
    free(before);
    free(probs_before);
}

static sy_status unpermute(struct fixture *f, sy_ctx *ctx)
{
    const struct rows_case *in = &f->rows.in;
    return sy_moe_unpermute(ctx, &(sy_moe_unpermute_args){.permuted_tokens = &f->y.t,
                                                          .sorted_indices = &f->indices.t,
                                                          .routing_map = in->map ? &f->map.t : NULL,
                                                          .probs = in->probs ? &f->probs.t : NULL,
                                                          .num_tokens = in->tokens,
                                                          .drop_and_pad = in->capacity,
                                                          .zero_pad = in->zero_pad,
                                                          .tokens = &f->x_out.t});
}

static sy_status unpermute_grad(struct fixture *f, sy_ctx *ctx)
{
    const struct rows_case *in = &f->rows.in;
    return sy_moe_unpermute_grad(
        ctx, &(sy_moe_unpermute_grad_args){.grad_tokens = &f->x.t,
                                           .sorted_indices = &f->indices.t,
                                           .permuted_tokens = in->probs ? &f->y.t : NULL,
                                           .routing_map = in->probs || in->map ? &f->map.t : NULL,
                                           .probs = in->probs ? &f->probs.t : NULL,
                                           .drop_and_pad = in->capacity,
                                           .zero_pad = in->zero_pad,
                                           .grad_permuted_tokens = &f->y_out.t,
                                           .grad_probs = in->probs ? &f->probs_out.t : NULL});
}

static sy_status permute_grad(struct fixture *f, sy_ctx *ctx)
{
    const struct rows_case *in = &f->rows.in;
    return sy_moe_permute_grad(
        ctx, &(sy_moe_permute_grad_args){.grad_permuted_tokens = &f->y.t,
                                         .sorted_indices = &f->indices.t,
                                         .grad_permuted_probs = in->by_expert ? &f->row_probs.t : NULL,
                                         .routing_map = in->map ? &f->map.t : NULL,
                                         .num_experts = in->experts,
                                         .num_tokens = in->tokens,
                                         .drop_and_pad = in->capacity,
                                         .zero_pad = in->zero_pad,
                                         .grad_tokens = &f->x_out.t,
                                         .grad_probs = in->by_expert ? &f->probs_out.t : NULL});
}

/* All operators that the case is one for. */
static void check_case(struct fixture *f)
{
    const struct rows_case *in = &f->rows.in;
    const struct rows_pairs *pairs = &f->rows.pairs;
    const size_t x = (size_t)(in->tokens * in->hidden), y = (size_t)(in->rows * in->hidden);
    unsigned char *want_x = malloc(x * 4 + 1), *want_y = malloc(y * 4 + 1),
                  *want_probs = malloc((size_t)(in->tokens * in->experts) * 4 + 1);
    assert_true(want_x && want_y && want_probs);
    if (pairs->fault.position < 0)
        oracle_unpermute(in, pairs, f->dense_y, want_x);
    if (in->probs != NULL || !in->by_expert) {
        expect_outputs(f, unpermute, &f->x_out, want_x, NULL);
        if (pairs->fault.position < 0)
            oracle_unpermute_grad(in, pairs, f->dense_x, f->dense_y, want_y, in->probs ? want_probs : NULL);
        expect_outputs(f, unpermute_grad, &f->y_out, want_y, in->probs ? want_probs : NULL);
    }
    if (in->probs == NULL) {
        if (pairs->fault.position < 0 && in->by_expert)
            oracle_grad_probs(in, pairs, f->values, want_probs);
        expect_outputs(f, permute_grad, &f->x_out, want_x, in->by_expert ? want_probs : NULL);
    }
    free(want_x);
    free(want_y);
    free(want_probs);
}

static void wide_rows(void **state)
{
    static const struct rows_case sizes[] = {
        {.tokens = 7, .experts = 9, .rows = 7, .hidden = 520},
        {.tokens = 70, .experts = 9, .rows = 70 * 2, .hidden = 1032},
        {.tokens = 5, .experts = 12, .rows = 5 * 8, .hidden = 4104},
        {.tokens = 37, .experts = 9, .rows = 37 * 3, .hidden = 264},
        {.tokens = 40, .experts = 16, .rows = 40 * 5, .hidden = 512},
        {.tokens = 33, .experts = 300, .rows = 33 * 8, .hidden = 3080},
        {.tokens = 35, .experts = 40, .rows = 35 * 16, .hidden = 264},
        {.tokens = 9, .experts = 50, .rows = 9 * 33, .hidden = 64},
        {.tokens = 41, .experts = 6, .rows = 6 * 30, .hidden = 2056, .capacity = true},
        {.tokens = 3, .experts = 70, .rows = 70 * 3, .hidden = 64, .capacity = true},
    };
    (void)state;
    int seen[ROWS_TYPES] = {0};
    for (uint64_t seed = 0; seed < 9 * COUNT_OF(sizes); seed++) {
        uint64_t rng = rows_seed = seed + 1;
        struct fixture f = {.rows = {.in = sizes[seed % COUNT_OF(sizes)]}};
        const uint64_t turn = seed / COUNT_OF(sizes);
        fixture_make(&f, &rng,
                     &(struct rows_choice){.style = (enum rows_style)(turn % ROWS_STYLES),
                                           .capacity = f.rows.in.capacity,
                                           .weighted = turn / 3 == 0,
                                           .by_expert = turn / 3 == 1});
        seen[f.rows.in.type]++;
        check_case(&f);
        fixture_free(&f);
    }
    rows_seed = 0;
    for (int type = 0; type < ROWS_TYPES; type++)
        assert_true(seen[type] > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(wide_rows, rows_tell_seed)};
    return cmocka_run_group_tests_name("op_moe_rows_wide", tests, rows_open_contexts, rows_close_contexts);
}
