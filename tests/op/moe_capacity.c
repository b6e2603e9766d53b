/*
 * moe_capacity: one rounding whatever the caller's rounding mode, and random runs against the oracle.
 */
#include "support.h"

#include "oracle/moe_capacity.h"

#include <fenv.h>

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
        cmocka_unit_test(the_callers_rounding_mode_is_not_used),
        cmocka_unit_test(the_oracle_itself),
        cmocka_unit_test(random_runs),
    };
    return cmocka_run_group_tests_name("op_moe_capacity", tests, NULL, NULL);
}
