/*
 * Every slot of every kernel table this CPU can run, against definitions written here: exact arithmetic in
 * double, plain loops, and the published spot values of exp. Lengths 0..4*width+1, every misalignment, guard
 * bytes.
 */
#include "kernels/kernels.h"
#include "support.h"

#include <math.h>

enum { MAX_N = 4 * 16 + 1 + 64, MISALIGN = 16 };

/* Values on which formulas break: signed zeros, subnormals, extremes, infinities, NaNs, ties of rounding. */
static const uint32_t hard_f32[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff,
                                    0x00800000, 0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff,
                                    0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001,
                                    0x3f808000, 0x3f818000, 0x38800000, 0x33000000, 0x33000001,
                                    0x477fefff, 0x477ff000, 0x387fffff, 0x3f801000, 0x3f803000};

static void fill_f32(uint64_t *rng, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = rng_u64(rng);
        x[i] = r % 4 == 0   ? f32_from_bits(hard_f32[(r >> 8) % (sizeof hard_f32 / sizeof *hard_f32)])
               : r % 4 == 1 ? f32_from_bits((uint32_t)(r >> 32))
                            : (float)(int32_t)(r >> 40) * 0x1p-20f;
    }
}

static const struct syi_kernels *table(void **state)
{
    return syi_kernels_at(*(int *)*state);
}

static void copies_every_length_and_alignment(void **state)
{
    uint64_t rng = 1;
    unsigned char src[300 + MISALIGN];
    rng_fill(&rng, src, sizeof src);
    for (size_t n = 0; n <= 300; n += n < 140 ? 1 : 37)
        for (size_t shift = 0; shift < MISALIGN; shift++) {
            unsigned char *dst = buf_new(n, shift);
            table(state)->copy_row(dst, src + MISALIGN - shift, n);
            expect_bytes(dst, src + MISALIGN - shift, n);
            buf_free(dst);
        }
}

/* The product of two f32 is exact in double, so rounding it once is the definition. */
static uint32_t product_f32(float w, float x)
{
    const float p = (float)((double)w * (double)x);
    return p != p ? 0x7fc00000u : f32_bits(p);
}

static void scales_f32(void **state)
{
    uint64_t rng = 2;
    float x[MAX_N], weight[8];
    for (int round = 0; round < 40; round++) {
        fill_f32(&rng, x, MAX_N);
        fill_f32(&rng, weight, 8);
        for (size_t n = 0; n < MAX_N; n += 1 + n / 40) {
            unsigned char *dst = buf_new(n * 4, n % MISALIGN);
            table(state)->scale_f32(dst, x, weight[n % 8], n);
            for (size_t i = 0; i < n; i++) {
                uint32_t got;
                memcpy(&got, dst + i * 4, 4);
                assert_int_equal(got, product_f32(weight[n % 8], x[i]));
            }
            buf_free(dst);
        }
    }
}

/* All 65536 values of a 16-bit type under many weights. */
static void scales_16(void (*scale)(void *, const void *, float, size_t), double (*value)(uint16_t),
                      uint16_t (*round_to)(double))
{
    static uint16_t x[65536], y[65536];
    uint64_t rng = 3;
    float weight[48];
    for (size_t i = 0; i < 65536; i++)
        x[i] = (uint16_t)i;
    fill_f32(&rng, weight, 48);
    weight[0] = 1.0f;
    weight[1] = 3.0f;
    for (size_t w = 0; w < 48; w++) {
        scale(y, x, weight[w], 65536);
        for (size_t i = 0; i < 65536; i++) {
            const float product = (float)((double)weight[w] * value(x[i]));
            assert_int_equal(y[i], round_to((double)product));
        }
    }
    for (size_t n = 0; n < MAX_N; n++) { /* tails and misalignment */
        unsigned char *dst = buf_new(n * 2, n % MISALIGN);
        scale(dst, x + 15000, 1.5f, n);
        scale(y, x + 15000, 1.5f, 65536 - 15000);
        expect_bytes(dst, y, n * 2);
        buf_free(dst);
    }
}

static void scales_f16(void **state)
{
    scales_16(table(state)->scale_f16, f16_value, f16_round);
}

static void scales_bf16(void **state)
{
    scales_16(table(state)->scale_bf16, bf16_value, bf16_round);
}

static void finds_nonzero_bytes(void **state)
{
    uint64_t rng = 4;
    unsigned char b[256 + MISALIGN];
    for (int density = 0; density < 5; density++)
        for (size_t n = 0; n <= 256; n++) {
            const size_t shift = n % MISALIGN;
            for (size_t i = 0; i < sizeof b; i++)
                b[i] = rng_below(&rng, 4) < density ? (unsigned char)(1 + rng_below(&rng, 255)) : 0;
            int32_t want[256];
            size_t count = 0;
            for (size_t i = 0; i < n; i++)
                if (b[shift + i])
                    want[count++] = (int32_t)i;
            int32_t *pos = buf_new(n * sizeof *pos, 0);
            assert_int_equal(table(state)->nonzero_u8(pos, b + shift, n), count);
            expect_bytes(pos, want, count * sizeof *want);
            buf_free(pos);
        }
}

/* The order of section "keys": NaN as -inf, +inf as FLT_MAX, -0 as +0. */
static double canonical(double x)
{
    return x != x ? -INFINITY : x == INFINITY ? 0x1.fffffep127 : x;
}

static void expect_keys(const uint32_t *key, const double *value, size_t n, const struct syi_key_stats *stats)
{
    uint32_t flags = 0, max = 0;
    for (size_t i = 0; i < n; i++) {
        flags |= value[i] != value[i] ? SY_ROW_NAN : value[i] == INFINITY ? SY_ROW_INF : 0;
        max = key[i] > max ? key[i] : max;
        assert_true((double)syi_key_value(key[i]) == canonical(value[i]));
        assert_int_equal(f32_bits(syi_key_value(key[i])) == 0x80000000u, 0);
        assert_int_equal(syi_value_key(syi_key_value(key[i])), key[i]);
        for (size_t j = 0; j < i; j += 7)
            assert_int_equal(key[i] > key[j], canonical(value[i]) > canonical(value[j]));
    }
    assert_int_equal(stats->flags, flags);
    assert_int_equal(stats->max, max);
}

static void makes_keys_f32(void **state)
{
    uint64_t rng = 5;
    for (size_t n = 0; n < MAX_N; n++) {
        float x[MAX_N];
        double value[MAX_N];
        fill_f32(&rng, x, n);
        for (size_t i = 0; i < n; i++)
            value[i] = (double)x[i];
        unsigned char *raw = buf_new(n * 4, n % MISALIGN);
        memcpy(raw, x, n * 4);
        uint32_t *key = buf_new(n * 4, 0);
        struct syi_key_stats stats = {0, 0};
        table(state)->keys_f32(key, raw, n, &stats);
        expect_keys(key, value, n, &stats);
        buf_free(key);
        buf_free(raw);
    }
}

static void makes_keys_16(void (*keys)(uint32_t *, const void *, size_t, struct syi_key_stats *),
                          double (*value_of)(uint16_t))
{
    uint64_t rng = 6;
    for (size_t n = 0; n < 512; n += 1 + n / 70) {
        uint16_t x[512];
        double value[512];
        rng_fill(&rng, x, sizeof x);
        for (size_t i = 0; i < n; i++) {
            if (rng_below(&rng, 8) == 0)
                x[i] = (uint16_t)(rng_below(&rng, 2) << 15 | (rng_below(&rng, 2) ? 0x7fffu : 0u));
            value[i] = value_of(x[i]);
        }
        uint32_t *key = buf_new(n * 4, 0);
        struct syi_key_stats stats = {0, 0};
        keys(key, x, n, &stats);
        expect_keys(key, value, n, &stats);
        buf_free(key);
    }
}

static void makes_keys_f16(void **state)
{
    makes_keys_16(table(state)->keys_f16, f16_value);
}

static void makes_keys_bf16(void **state)
{
    makes_keys_16(table(state)->keys_bf16, bf16_value);
}

static float exp_of(const struct syi_kernels *k, float t)
{
    float e;
    const uint32_t key = syi_value_key(t);
    k->exp_keys(&e, &key, 1, 0.0f, 1.0f);
    return e;
}

static void exp_has_its_spot_values(void **state)
{
    static const struct {
        float t;
        uint32_t bits;
    } spot[] = {{0.0f, 0x3f800000},   {-0.5f, 0x3f1b4598},  {-1.0f, 0x3ebc5ab2}, {-10.0f, 0x383e6bce},
                {-28.0f, 0x2b429f81}, {-86.0f, 0x01739362}, {-86.5f, 0},         {-INFINITY, 0}};
    for (size_t i = 0; i < sizeof spot / sizeof *spot; i++)
        assert_int_equal(f32_bits(exp_of(table(state), spot[i].t)), spot[i].bits);
}

/* Within 1.012 ulp of libm's double exp and never growing, on a fine grid and at every power-of-two
   boundary. */
static void exp_is_close_and_monotone(void **state)
{
    float before = 1.0f;
    for (int i = 0; i <= 86 * 4096; i++) {
        const float t = -(float)i / 4096.0f;
        const float e = exp_of(table(state), t);
        const double exact = exp((double)t);
        const double ulp = ldexp(1.0, ilogb(exact) - 23);
        assert_true(fabs((double)e - exact) <= 1.02 * ulp);
        assert_true(e <= before);
        before = e;
    }
}

/* Eight-wide or one at a time, any length and temperature: element i depends on key i alone. */
static void exp_does_not_depend_on_position(void **state)
{
    uint64_t rng = 7;
    uint32_t key[MAX_N];
    for (size_t n = 0; n < MAX_N; n++) {
        const float m = (float)rng_below(&rng, 50), inv_t = (float)(0.25 + rng_unit(&rng) * 4.0);
        for (size_t i = 0; i < n; i++)
            key[i] = rng_below(&rng, 9) == 0 ? SYI_KEY_MINUS_INF
                                             : syi_value_key(m - (float)(rng_unit(&rng) * 90.0));
        float *all = buf_new(n * sizeof *all, 0);
        table(state)->exp_keys(all, key, n, m, inv_t);
        for (size_t i = 0; i < n; i++) {
            float one;
            syi_kernels_scalar.exp_keys(&one, &key[i], 1, m, inv_t);
            assert_int_equal(f32_bits(all[i]), f32_bits(one));
        }
        buf_free(all);
    }
}

static const struct CMUnitTest slots[] = {
    cmocka_unit_test(copies_every_length_and_alignment),
    cmocka_unit_test(scales_f32),
    cmocka_unit_test(scales_f16),
    cmocka_unit_test(scales_bf16),
    cmocka_unit_test(finds_nonzero_bytes),
    cmocka_unit_test(makes_keys_f32),
    cmocka_unit_test(makes_keys_f16),
    cmocka_unit_test(makes_keys_bf16),
    cmocka_unit_test(exp_has_its_spot_values),
    cmocka_unit_test(exp_is_close_and_monotone),
    cmocka_unit_test(exp_does_not_depend_on_position),
};

enum { N_SLOTS = sizeof slots / sizeof *slots, MAX_TABLES = 8 };

int main(void)
{
    static struct CMUnitTest tests[N_SLOTS * MAX_TABLES];
    static char names[N_SLOTS * MAX_TABLES][80];
    static int table_number[MAX_TABLES];
    size_t n = 0;
    for (int i = 0; i < MAX_TABLES && syi_kernels_at(i) != NULL; i++) {
        table_number[i] = i;
        for (size_t s = 0; s < N_SLOTS; s++, n++) {
            snprintf(names[n], sizeof names[n], "%s: %s", syi_kernels_at(i)->name, slots[s].name);
            tests[n] = slots[s];
            tests[n].name = names[n];
            tests[n].initial_state = &table_number[i];
        }
    }
    return _cmocka_run_group_tests("kernels", tests, n, NULL, NULL);
}
