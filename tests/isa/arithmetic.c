/*
 * The exact arithmetic below the operators: 16-bit conversions over all values, fixed-point weights, mass targets, Philox, the
 * exponential variate and the logarithm of a weight sum, against published values and wide arithmetic.
 */
#include "cpu/sample.h"
#include "support.h"

#include <math.h>

TEST(widening_is_exact)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const double half = f16_value((uint16_t)i), brain = bf16_value((uint16_t)i);
        const float h = syi_f16_to_f32((uint16_t)i), b = syi_bf16_to_f32((uint16_t)i);
        assert_true(half != half ? h != h : (double)h == half && !signbit(h) == !signbit(half));
        assert_true(brain != brain ? b != b : (double)b == brain && !signbit(b) == !signbit(brain));
    }
}

/* Every f16 midpoint and its neighbours, every bf16 midpoint and its neighbours. */
TEST(narrowing_rounds_to_nearest_even)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const float h = syi_f16_to_f32((uint16_t)i);
        const uint32_t around = f32_bits(h) + (1u << 12);
        for (uint32_t d = 0; d < 3; d++) {
            const float x = f32_from_bits(around - 1 + d);
            assert_int_equal(syi_f32_to_f16(x), f16_round((double)x));
            const float y = f32_from_bits((i << 16) + 0x7fffu + d);
            assert_int_equal(syi_f32_to_bf16(y), bf16_round((double)y));
        }
    }
    for (uint32_t e = 80; e < 120; e++) /* subnormal f16 */
        for (uint32_t m = 0; m < 0x800000u; m += 0x1357u) {
            const float x = f32_from_bits(e << 23 | m);
            assert_int_equal(syi_f32_to_f16(x), f16_round((double)x));
        }
}

TEST(weights_are_rounded_fixed_point)
{
    assert_int_equal(syi_weight(1.0f), UINT64_C(1099511627776));
    assert_int_equal(syi_weight(f32_from_bits(0x3ebc5ab2)), UINT64_C(404487733248));
    assert_int_equal(syi_weight(f32_from_bits(0x3e0a9555)), UINT64_C(148802715648));
    assert_int_equal(syi_weight(f32_from_bits(0x3d4bed86)), UINT64_C(54741458944));
    assert_int_equal(syi_weight(f32_from_bits(0x2b429f81)), 1); /* exp(-28) */
    assert_int_equal(syi_weight(7.0f), UINT64_C(1099511627776));
    uint64_t rng = 1;
    for (int i = 0; i < 200000; i++) {
        const float e = ldexpf((float)rng_unit(&rng), -(int)rng_below(&rng, 48));
        assert_int_equal(syi_weight(e), (uint64_t)rint((double)e * 0x1p40));
    }
}

TEST(mass_targets_are_exact_ceilings)
{
    assert_int_equal(syi_mass_target(0.9f, UINT64_C(1707543535616)), UINT64_C(1536789141344));
    assert_int_equal(syi_mass_target(0.5f, UINT64_C(1707543535616)), UINT64_C(853771767808));
    assert_int_equal(syi_mass_target(0.5f, 3), 2);
    assert_int_equal(syi_mass_target(1e-40f, UINT64_C(1) << 63), 1);
    assert_int_equal(syi_mass_target(f32_from_bits(1), UINT64_C(1) << 63), 1);
    assert_int_equal(syi_mass_target(0x1p-64f, UINT64_C(1) << 63), 1);
    assert_int_equal(syi_mass_target(0x1p-62f, (UINT64_C(1) << 63) - 1), 2);
    assert_int_equal(syi_mass_target(f32_from_bits(0x3f7fffff), UINT64_C(1) << 40),
                     (UINT64_C(1) << 40) - (1 << 16));
}

TEST(scores_stay_in_range)
{
    assert_int_equal(f32_bits(syi_score(0.5f, -0.25f, 0.0f)), f32_bits(2.0f));
    assert_int_equal(f32_bits(syi_score(1.0f, NAN, 1e-8f)), f32_bits(0x1p-100f));
    assert_int_equal(f32_bits(syi_score(1.0f, -INFINITY, 0.0f)), f32_bits(0x1p-100f));
    assert_int_equal(f32_bits(syi_score(1.0f, 0.0f, 0.0f)), f32_bits(0x1p100f));
    assert_int_equal(f32_bits(syi_score(0x1p-20f, 0.0f, 0x1p-30f)), f32_bits(0x1p10f));
}

TEST(philox_gives_its_known_answers)
{
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t word[4];
    } known[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX},
         UINT64_MAX,
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0, 5, 0, 2}, 1, {0xc37a3f0b, 0xad648805, 0xa99b95f5, 0xd8db2243}},
        {{0, 5, 0, 2}, 12, {0xce1d9fe9, 0xfe80b171, 0x1c86cb0b, 0x7adb8721}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t word[4];
        syi_philox(known[i].counter, known[i].key, word);
        expect_bytes(word, known[i].word, sizeof word);
    }
    uint32_t word[4];
    syi_philox((const uint32_t[4]){UINT32_MAX, 5, 0, 2}, 1, word);
    assert_int_equal(word[0], 0xc306ac89);
    assert_int_equal(word[1], 0xf59f5688);
}

TEST(exponential_variates)
{
    static const struct {
        uint32_t word;
        float q;
    } known[] = {{0xc37a3f0b, 1.44216263f}, {0xad648805, 1.13107944f}, {0xa99b95f5, 1.08627951f},
                 {0xd8db2243, 1.87793005f}, {0xce1d9fe9, 1.63547158f}, {0xfe80b171, 5.14151907f},
                 {0x1c86cb0b, .118143849f}, {0x7adb8721, .653757691f}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(f32_bits(syi_exponential(known[i].word)), f32_bits(known[i].q));
    float before = 0.0f;
    for (uint64_t word = 0; word <= UINT32_MAX; word += 9973) { /* close to -ln(1-v), never falling */
        const double exact = -log1p(-((double)word + 0.5) * 0x1p-32);
        const float q = syi_exponential((uint32_t)word);
        assert_true(fabs((double)q - exact) <= 3.2e-7 * exact);
        assert_true(q >= before);
        before = q;
    }
    assert_true(fabs((double)syi_exponential(0) - 1.164e-10) < 1e-13);
    assert_true(fabs((double)syi_exponential(UINT32_MAX) - 22.874) < 1e-3);
}

TEST(logarithm_of_a_weight_sum)
{
    assert_true(syi_log_weight(UINT64_C(1) << 40) == 0.0);
    assert_int_equal(f32_bits((float)(0.0 - syi_log_weight(UINT64_C(1707543535616)))),
                     f32_bits(-0.440189689f));
    uint64_t rng = 2;
    for (int i = 0; i < 100000; i++) {
        const uint64_t f = (rng_u64(&rng) >> rng_below(&rng, 63)) | 1;
        assert_true(fabs(syi_log_weight(f) - (log((double)f) - 40 * log(2.0))) < 3e-14);
    }
}

TESTS(arithmetic, "isa_arithmetic")
