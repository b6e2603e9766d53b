/*
 * moe_capacity: worked examples, the three meanings of the factor, the defaults of zeroed fields, one rounding whatever
 * the caller's rounding mode, and random runs against the oracle.
 */
#include "support.h"

#include "oracle/moe_capacity.h"

#include <fenv.h>

static const int64_t demand[3] = {4, 4, 2};

/* The capacity that `args` give with these counts (NULL: none), and what the query says before. */
static int64_t capacity_of(sy_moe_capacity_args args, const int64_t *counts, int64_t experts)
{
    int64_t shape[] = {experts}, one[] = {1}, result = -7;
    int64_t *own = malloc((size_t)experts * sizeof *own + 1);
    sy_query query;
    sy_ctx *ctx = test_ctx(1, NULL);
    assert_non_null(own);
    if (counts)
        memcpy(own, counts, (size_t)experts * sizeof *own);
    const DLTensor c = sy_tensor(own, SY_I64, 1, shape), out = sy_tensor(&result, SY_I64, 1, one);
    args.counts = counts ? &c : NULL;
    args.num_experts = experts;
    args.capacity = &out;
    expect_status(ctx, sy_moe_capacity_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, 1);
    assert_true(query.workspace_bytes == 0);
    expect_status(ctx, sy_moe_capacity(ctx, &args), SY_OK);
    assert_true(query.slots == (args.factor > 0 ? result : 0));
    sy_ctx_destroy(ctx);
    free(own);
    return result;
}

static void five_tokens_of_two_choices(void **state)
{
    (void)state;
    const struct {
        double factor;
        int64_t want;
    } rows[] = {{1, 4}, {.5, 2}, {0, 4}, {-.5, 2}, {-1, 4}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        sy_moe_capacity_args args = {.samples = 5, .k = 2, .factor = rows[i].factor};
        assert_int_equal(capacity_of(args, demand, 3), rows[i].want);
        args.alignment = 4;
        assert_int_equal(capacity_of(args, demand, 3), 4);
    }
}

static void the_usual_share_needs_no_counts(void **state)
{
    (void)state;
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 18432, .k = 1, .factor = 1.25}, NULL, 2),
                     11520);
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 4608, .k = 1, .factor = 1.25}, NULL, 2),
                     2880);
}

static void zeroed_fields(void **state)
{
    (void)state;
    /* factor 0 is "as many as needed", k 0 is one choice, alignment 0 is none */
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 5}, demand, 3), 4);
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 5, .factor = 3}, NULL, 3), 6);
}

/* The share is cut, not rounded: 2 * trunc(1.9 * 1) is 2, not 3; a share of nothing is nothing. */
static void the_share_is_cut_before_it_is_multiplied(void **state)
{
    (void)state;
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 3, .k = 2, .factor = 1.9}, NULL, 3), 2);
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 3, .k = 2, .factor = .9}, NULL, 3), 0);
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 0, .k = 2, .factor = 2}, NULL, 3), 0);
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 4, .factor = 0x1p-1074}, NULL, 3), 0);
}

static void a_negative_factor_is_a_ceiling(void **state)
{
    (void)state;
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 5, .k = 2, .factor = -1e300}, demand, 3),
                     4);
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 5, .k = 2, .factor = -0.0}, demand, 3), 4);
    assert_int_equal(capacity_of((sy_moe_capacity_args){.samples = 5, .k = 2, .factor = -.1}, demand, 3), 0);
}

static void counts_of_32_bits(void **state)
{
    (void)state;
    int32_t counts[] = {3, INT32_MAX, 9};
    int64_t shape[] = {3}, one[] = {1}, result = 0;
    const DLTensor c = sy_tensor(counts, SY_I32, 1, shape), out = sy_tensor(&result, SY_I64, 1, one);
    sy_ctx *ctx = test_ctx(1, NULL);
    const sy_moe_capacity_args args = {.counts = &c, .num_experts = 3, .alignment = 8, .capacity = &out};
    expect_status(ctx, sy_moe_capacity(ctx, &args), SY_OK);
    assert_true(result == INT64_C(2147483648));
    sy_ctx_destroy(ctx);
}

/* 0.7 * 10 is a tie between 7 and the number below it: nearest even makes 7, rounding down would make 6. */
static void the_callers_rounding_mode_is_not_used(void **state)
{
    (void)state;
    const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        assert_int_equal(fesetround(modes[i]), 0);
        const int64_t got = capacity_of((sy_moe_capacity_args){.samples = 10, .factor = .7}, NULL, 1);
        const int mode = fegetround();
        fesetround(FE_TONEAREST);
        assert_int_equal(got, 7);
        assert_int_equal(mode, modes[i]);
    }
}

/* ---- Sizes near 2^63 ---------------------------------------------------------------------------------------- */

static sy_status try(double factor, int64_t samples, int64_t k, int64_t alignment, int64_t count,
                     int64_t *result)
{
    int64_t one[] = {1};
    const DLTensor c = sy_tensor(&count, SY_I64, 1, one), out = sy_tensor(result, SY_I64, 1, one);
    sy_ctx *ctx = test_ctx(1, NULL);
    *result = -7;
    const sy_status status = sy_moe_capacity(ctx, &(sy_moe_capacity_args){.counts = &c,
                                                                          .samples = samples,
                                                                          .num_experts = 1,
                                                                          .k = k,
                                                                          .factor = factor,
                                                                          .alignment = alignment,
                                                                          .capacity = &out});
    assert_true((status == SY_OK) == (*result != -7));
    sy_ctx_destroy(ctx);
    return status;
}

static void capacities_near_2_to_the_63(void **state)
{
    (void)state;
    int64_t result;
    assert_int_equal(try(1, INT64_C(1) << 62, 1, 1, 0, &result), SY_OK);
    assert_true(result == INT64_C(1) << 62);
    assert_int_equal(try(1, INT64_MAX, 1, 1, 0, &result), SY_ERR_OVERFLOW); /* 2^63 as a double */
    assert_int_equal(try(1, INT64_C(1) << 62, 2, 1, 0, &result), SY_ERR_OVERFLOW);
    assert_int_equal(try(1e300, 5, 1, 1, 0, &result), SY_ERR_OVERFLOW);
    assert_int_equal(try(1, (INT64_C(1) << 62) + 1024, 1, INT64_C(1) << 62, 0, &result), SY_ERR_OVERFLOW);
    assert_int_equal(try(0, 0, 1, 1, INT64_MAX, &result), SY_OK);
    assert_true(result == INT64_MAX);
    assert_int_equal(try(0, 0, 1, 2, INT64_MAX, &result), SY_ERR_OVERFLOW);
    assert_int_equal(try(-1, 0, INT64_MAX, INT64_MAX, 1, &result), SY_OK);
    assert_int_equal(result, 0);
    assert_int_equal(try(0, 0, 1, INT64_MAX, 1, &result), SY_OK);
    assert_true(result == INT64_MAX);
}

/* ---- Random runs -------------------------------------------------------------------------------------------- */

static void the_oracle_itself(void **state)
{
    (void)state;
    assert_int_equal(oracle_share(.7, 10), 7);
    assert_int_equal(oracle_share(1.25, 9216), 11520);
    assert_int_equal(oracle_share(0, 10), 0);
    assert_int_equal(oracle_share(0x1p-1074, 10), 0);
    assert_true(oracle_share(0x1p62, 1) == INT64_C(1) << 62);
    assert_true(oracle_share(0x1p63, 1) == -1 && oracle_share(1e300, 7) == -1);
}

static void random_runs(void **state)
{
    (void)state;
    int shares = 0, ceilings = 0, demands = 0, ties = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint64_t rng = seed;
        int64_t counts[16];
        const int64_t experts = 1 + rng_below(&rng, 16), alignment = 1 + rng_below(&rng, 9);
        sy_moe_capacity_args args = {.samples = rng_below(&rng, 20000), .k = 1 + rng_below(&rng, 8)};
        args.alignment = alignment;
        args.factor = (double)(rng_below(&rng, 61) - 30) / 10;
        for (int64_t e = 0; e < experts; e++)
            counts[e] = rng_below(&rng, 2 * args.samples / experts + 2);
        const int64_t want =
            oracle_moe_capacity(args.samples, experts, args.k, args.factor, alignment, counts);
        const int64_t got = capacity_of(args, counts, experts);
        if (got != want)
            fail_msg("seed %llu: %lld, want %lld", (unsigned long long)seed, (long long)got, (long long)want);
        shares += args.factor > 0;
        demands += args.factor == 0;
        ceilings += args.factor < 0;
        ties += want % alignment == 0 && want > 0 && alignment > 1;
    }
    assert_true(shares > 100 && ceilings > 100 && demands > 20 && ties > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_tokens_of_two_choices),
        cmocka_unit_test(the_usual_share_needs_no_counts),
        cmocka_unit_test(zeroed_fields),
        cmocka_unit_test(the_share_is_cut_before_it_is_multiplied),
        cmocka_unit_test(a_negative_factor_is_a_ceiling),
        cmocka_unit_test(counts_of_32_bits),
        cmocka_unit_test(the_callers_rounding_mode_is_not_used),
        cmocka_unit_test(capacities_near_2_to_the_63),
        cmocka_unit_test(the_oracle_itself),
        cmocka_unit_test(random_runs),
    };
    return cmocka_run_group_tests_name("op_moe_capacity", tests, NULL, NULL);
}
