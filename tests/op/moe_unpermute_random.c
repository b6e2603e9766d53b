/*
 * moe_unpermute against the oracle, byte for byte: random shapes, types, layouts and indices, both modes, every kernel
 * table, several thread counts. Then its accuracy against exact sums, and the way back from moe_permute. Worked examples
 * are in tests/examples.
 */
#include "oracle/moe_rows_case.h"
#include "support.h"

#include <math.h>

struct fixture {
    struct rows_fixture rows;
    unsigned char *dense; /* [M,H] */
    struct tensor y, indices, map, probs, out;
    sy_moe_unpermute_args args;
};

/* Tensors for all arguments, laid out at random, or compact without `rng`. */
static void fixture_tensors(struct fixture *f, uint64_t *rng)
{
    const struct rows_case *in = &f->rows.in;
    const DLDataType type = rows_dl_type(in->type);
    const int64_t y[] = {in->rows, in->hidden}, out[] = {in->tokens, in->hidden},
                  map[] = {in->tokens, in->experts};
    rows_place(&f->y, rng, type, 2, y, f->dense);
    rows_place(&f->indices, rng, SY_I32, 1, y, f->rows.indices);
    rows_place(&f->map, rng, SY_U8, 2, map, f->rows.map);
    rows_place(&f->probs, rng, rows_dl_type(in->prob_type), 2, map, f->rows.probs);
    rows_place(&f->out, rng, type, 2, out, NULL);
    f->args = (sy_moe_unpermute_args){.permuted_tokens = &f->y.t,
                                      .sorted_indices = &f->indices.t,
                                      .routing_map = in->map ? &f->map.t : NULL,
                                      .probs = in->probs ? &f->probs.t : NULL,
                                      .num_tokens = in->map || in->probs ? 0 : in->tokens,
                                      .drop_and_pad = in->capacity,
                                      .zero_pad = in->zero_pad,
                                      .tokens = &f->out.t};
}

static void fixture_free(struct fixture *f)
{
    struct tensor *all[] = {&f->y, &f->indices, &f->map, &f->probs, &f->out};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(f->dense);
    rows_fixture_free(&f->rows);
}

/* Runs the call; the output is the oracle's, or what it was when the indices are wrong. */
static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    const struct rows_case *in = &f->rows.in;
    const struct rows_fault *fault = &f->rows.pairs.fault;
    unsigned char *before = tensor_snapshot(&f->out);
    unsigned char *want = malloc((size_t)(in->tokens * in->hidden) * rows_bytes(in->type) + 1);
    assert_non_null(want);
    if (fault->position >= 0) {
        expect_status(ctx, sy_moe_unpermute(ctx, &f->args), SY_ERR_ROUTING);
        expect_fault(ctx, fault->count ? SY_FAULT_SLOT_COUNT : SY_FAULT_SLOT_RANGE, -1, fault->position,
                     fault->value, fault->limit);
        tensor_expect_unchanged(&f->out, before, "tokens");
    } else {
        oracle_unpermute(in, &f->rows.pairs, f->dense, want);
        for (int64_t i = 0; i < in->tokens * in->hidden; i++)
            rows_seen.nan_sum += isnan(rows_value(in->type, want, i));
        expect_status(ctx, sy_moe_unpermute(ctx, &f->args), SY_OK);
        tensor_expect(&f->out, want, before, "tokens");
    }
    free(want);
    free(before);
}

/* ---- Random shapes ------------------------------------------------------------------------------------------------ */

static void random_shapes(void **state)
{
    const uintptr_t which = (uintptr_t)*state;
    const struct rows_choice choice = {.style = (enum rows_style)(which % ROWS_STYLES),
                                       .capacity = which / ROWS_STYLES % 2,
                                       .weighted = which / ROWS_STYLES / 2};
    for (uint64_t seed = 1; seed <= 80; seed++) {
        uint64_t rng = rows_seed = seed * 1000 + which;
        struct fixture f = {0};
        rows_fixture_make(&f.rows, &rng, &choice);
        f.dense = rows_numbers(&rng, f.rows.in.type, f.rows.in.rows * f.rows.in.hidden, rng_below(&rng, 2));
        fixture_tensors(&f, &rng);
        fixture_check(&f, rows_contexts[seed % rows_n_contexts]);
        fixture_free(&f);
    }
    rows_seed = 0;
}

/* Rows of whole vectors, for more tokens than a device has multiprocessors. */
static void long_rows(void **state)
{
    (void)state;
    static const int64_t hidden[] = {256, 1040, 2048, 5136, 9216}, slots[] = {1, 2, 3, 4, 8, 16};
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t rng = rows_seed = seed;
        const int64_t k = slots[seed % COUNT_OF(slots)], h = hidden[seed % COUNT_OF(hidden)];
        struct fixture f = {
            .rows = {.in = {.tokens = 77, .experts = seed % 4 == 0 ? 300 : 19, .rows = 77 * k, .hidden = h}}};
        rows_fixture_make(
            &f.rows, &rng,
            &(struct rows_choice){.style = (enum rows_style)(seed % ROWS_STYLES), .weighted = seed % 11 > 0});
        f.dense = rows_numbers(&rng, f.rows.in.type, f.rows.in.rows * h, rng_below(&rng, 2));
        fixture_tensors(&f, NULL);
        fixture_check(&f, rows_contexts[seed % rows_n_contexts]);
        fixture_free(&f);
    }
    rows_seed = 0;
}

/* ---- Large ones, for every table and thread count ------------------------------------------------------------- */

static void large(const struct rows_case *sizes, const struct rows_choice *choice)
{
    uint64_t rng = 99;
    struct fixture f = {.rows = {.in = *sizes}};
    rows_fixture_make(&f.rows, &rng, choice);
    f.dense = rows_numbers(&rng, f.rows.in.type, f.rows.in.rows * f.rows.in.hidden, true);
    fixture_tensors(&f, NULL);
    assert_true(f.y.bytes > 1 << 20);
    for (size_t i = 0; i < rows_n_contexts; i++) {
        memset(f.out.mem, 0x11 * (int)i + 1, f.out.bytes);
        fixture_check(&f, rows_contexts[i]);
    }
    fixture_free(&f);
}

static void large_packed(void **state)
{
    (void)state;
    large(&(struct rows_case){.tokens = 2003, .experts = 37, .rows = 4 * 2003, .hidden = 131},
          &(struct rows_choice){.style = ROWS_PERMUTED, .weighted = true});
    large(&(struct rows_case){.tokens = 61, .experts = 700, .rows = 351 * 61, .hidden = 31},
          &(struct rows_choice){.style = ROWS_PERMUTED, .weighted = true});
    large(&(struct rows_case){.tokens = 3, .experts = 5, .rows = 3 * 3, .hidden = 100003},
          &(struct rows_choice){.style = ROWS_HAND});
}

static void large_capacity(void **state)
{
    (void)state;
    large(&(struct rows_case){.tokens = 1501, .experts = 30, .rows = 30 * 200, .hidden = 131},
          &(struct rows_choice){.style = ROWS_HAND, .capacity = true, .weighted = true});
    large(&(struct rows_case){.tokens = 1501, .experts = 30, .rows = 30 * 200, .hidden = 131},
          &(struct rows_choice){.style = ROWS_PERMUTED, .capacity = true});
}

static void large_rejected(void **state)
{
    (void)state;
    large(&(struct rows_case){.tokens = 20011, .experts = 37, .rows = 4 * 20011, .hidden = 11},
          &(struct rows_choice){.style = ROWS_BROKEN, .weighted = true});
    large(&(struct rows_case){.tokens = 20011, .experts = 37, .rows = 37 * 2000, .hidden = 11},
          &(struct rows_choice){.style = ROWS_BROKEN, .capacity = true});
}

/* ---- Accuracy --------------------------------------------------------------------------------------------------- */

/* f32 within (n+2) * 2^-24 of the sum of magnitudes; 16-bit types within that or one unit of the rounded sum. */
static void sums_are_accurate(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t rng = rows_seed = seed;
        struct fixture f = {0};
        rows_fixture_make(&f.rows, &rng, &(struct rows_choice){.style = ROWS_PERMUTED, .capacity = seed % 2});
        const struct rows_case *in = &f.rows.in;
        const int64_t n = in->tokens * in->hidden;
        f.dense = rows_numbers(&rng, in->type, in->rows * in->hidden, false);
        fixture_tensors(&f, NULL);
        double *sum = calloc((size_t)n + 1, sizeof *sum), *size = calloc((size_t)n + 1, sizeof *size);
        int64_t *terms = calloc((size_t)in->tokens, sizeof *terms);
        assert_true(sum && size && terms);
        oracle_unpermute_f64(in, &f.rows.pairs, f.dense, sum, size, terms);
        expect_status(rows_contexts[0], sy_moe_unpermute(rows_contexts[0], &f.args), SY_OK);
        for (int64_t i = 0; i < n; i++) {
            const int64_t added = terms[i / in->hidden];
            const double error = fabs(rows_value(in->type, f.out.mem, i) - sum[i]);
            const double bound = (double)(added + 2) * 0x1p-24 * size[i];
            const int digits = in->type == ROWS_F16 ? 10 : 7;
            const double unit = in->type == ROWS_F32 ? 0 : ldexp(1, ilogb(fabs(sum[i]) + 1e-30) - digits);
            assert_true(error <= fmax(bound, unit));
        }
        free(sum);
        free(size);
        free(terms);
        fixture_free(&f);
    }
    rows_seed = 0;
}

/* ---- With moe_permute ------------------------------------------------------------------------------------------ */

/* Probs that sum to one bring every token back, to the bit: the weights are powers of two. */
static void permute_then_unpermute_is_the_identity(void **state)
{
    (void)state;
    enum { TOKENS = 37, EXPERTS = 9, HIDDEN = 21 };
    float x[TOKENS * HIDDEN], probs[TOKENS * EXPERTS] = {0}, rows[4 * TOKENS * HIDDEN], back[TOKENS * HIDDEN];
    uint8_t map[TOKENS * EXPERTS] = {0};
    int32_t indices[4 * TOKENS];
    uint64_t rng = 3;
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        x[i] = (float)(rng_unit(&rng) * 200 - 100);
    for (int t = 0; t < TOKENS; t++) {
        const int n = 1 << rng_below(&rng, 3); /* 1, 2 or 4 experts */
        for (int left = n; left > 0;) {
            const int e = (int)rng_below(&rng, EXPERTS);
            left -= map[t * EXPERTS + e] == 0;
            map[t * EXPERTS + e] = 1;
            probs[t * EXPERTS + e] = 1.0f / (float)n;
        }
    }
    DLTensor x_t = sy_tensor(x, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN}),
             map_t = sy_tensor(map, SY_BOOL, 2, (int64_t[]){TOKENS, EXPERTS}),
             probs_t = sy_tensor(probs, SY_F32, 2, (int64_t[]){TOKENS, EXPERTS}),
             rows_t = sy_tensor(rows, SY_F32, 2, (int64_t[]){4 * TOKENS, HIDDEN}),
             index_t = sy_tensor(indices, SY_I32, 1, (int64_t[]){4 * TOKENS}),
             back_t = sy_tensor(back, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    sy_ctx *ctx = test_ctx(2, NULL);
    const sy_moe_permute_args there = {.tokens = &x_t,
                                       .routing_map = &map_t,
                                       .num_out_tokens = 4 * TOKENS,
                                       .permuted_tokens = &rows_t,
                                       .sorted_indices = &index_t};
    const sy_moe_unpermute_args again = {.permuted_tokens = &rows_t,
                                         .sorted_indices = &index_t,
                                         .routing_map = &map_t,
                                         .probs = &probs_t,
                                         .tokens = &back_t};
    expect_status(ctx, sy_moe_permute(ctx, &there), SY_OK);
    expect_status(ctx, sy_moe_unpermute(ctx, &again), SY_OK);
    expect_bytes(back, x, sizeof x);
    sy_ctx_destroy(ctx);
}

/* No expert, but slots with rows: there are no probs to read. A device starts its loads before it knows. */
static void slots_without_experts(void **state)
{
    (void)state;
    enum { TOKENS = 3, HIDDEN = 64, MOST = 40 };
    static const int64_t slots[] = {1, 2, 5, 8, 16, MOST};
    static uint16_t rows[TOKENS * MOST * HIDDEN], back[TOKENS * HIDDEN], before[TOKENS * HIDDEN];
    static int32_t indices[TOKENS * MOST];
    for (int i = 0; i < TOKENS * MOST; i++)
        indices[i] = i;
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(slots); i++) {
        const int64_t n = TOKENS * slots[i];
        DLTensor rows_t = sy_tensor(rows, SY_BF16, 2, (int64_t[]){n, HIDDEN}),
                 index_t = sy_tensor(indices, SY_I32, 1, &n),
                 map_t = sy_tensor((void *)0x1000, SY_BOOL, 2, (int64_t[]){TOKENS, 0}),
                 probs_t = sy_tensor((void *)0x1000, SY_F32, 2, (int64_t[]){TOKENS, 0}),
                 back_t = sy_tensor(back, SY_BF16, 2, (int64_t[]){TOKENS, HIDDEN});
        const sy_moe_unpermute_args args = {.permuted_tokens = &rows_t,
                                            .sorted_indices = &index_t,
                                            .routing_map = &map_t,
                                            .probs = &probs_t,
                                            .tokens = &back_t};
        expect_status(ctx, sy_moe_unpermute(ctx, &args), SY_ERR_ROUTING);
        expect_bytes(back, before, sizeof back);
    }
    sy_ctx_destroy(ctx);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    rows_expect_seen(8);
}

int main(void)
{
    enum { RANDOM = 4 * ROWS_STYLES };
    static const char *const styles[] = {"permuted", "by_hand", "broken"};
    struct CMUnitTest tests[RANDOM + 8];
    size_t n = 0;
    for (uintptr_t i = 0; i < RANDOM; i++)
        tests[n++] = (struct CMUnitTest){
            test_name("random_%s_%s_%s", i / ROWS_STYLES % 2 ? "capacity" : "packed",
                      i / ROWS_STYLES / 2 ? "weighted" : "plain", styles[i % ROWS_STYLES]),
            random_shapes, NULL, rows_tell_seed, (void *)i};
    const struct CMUnitTest more[] = {
        cmocka_unit_test_teardown(long_rows, rows_tell_seed),
        cmocka_unit_test(large_packed),
        cmocka_unit_test(large_capacity),
        cmocka_unit_test(large_rejected),
        cmocka_unit_test_teardown(sums_are_accurate, rows_tell_seed),
        cmocka_unit_test(permute_then_unpermute_is_the_identity),
        cmocka_unit_test(slots_without_experts),
        cmocka_unit_test(the_random_cases_were_hard),
    };
    memcpy(tests + n, more, sizeof more);
    return cmocka_run_group_tests_name("op_moe_unpermute_random", tests, rows_open_contexts,
                                       rows_close_contexts);
}
