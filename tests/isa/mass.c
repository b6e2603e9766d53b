/*
 * The mass of a row within bounds: what the quick ways of sample claim about it must be true, on every kernel
 * table, for every type, temperature and size of the maximum, with and without tokens that do not count, and tight
 * enough to be of use. And the parts of a row that they take apart.
 */
#include "cpu/sample.h"
#include "support.h"

#include <math.h>

enum { VOCAB = 40000 };

struct scratch {
    float wide[VOCAB];
    uint16_t narrow[VOCAB];
    unsigned char allow[VOCAB / 8];
    uint16_t block_max[VOCAB / SYI_BLOCK + 1], group_max[VOCAB / SYI_BLOCK + 1];
    uint64_t strip[VOCAB], weight[SYI_PATTERNS];
    uint32_t count[2 * SYI_PATTERNS];
    uint16_t pattern[SYI_PATTERNS];
    float e[SYI_PATTERNS], exp[SYI_PATTERNS];
};

/* A row whose largest logit is m, with a tail that weighs as much as the peaks. Values as the type has them. */
static float make_row(struct scratch *s, uint64_t *rng, sy_type type, float m, float temperature)
{
    float max = -INFINITY;
    for (int64_t i = 0; i < VOCAB; i++) {
        const double t = i % 400 == 0 ? -2.0 * rng_unit(rng) : -6.0 - 20.0 * rng_unit(rng);
        double z = i == 7 ? (double)m : (double)m + t * (double)temperature;
        z = rng_below(rng, 50) == 0 && m > 0 ? 1e-4 * rng_unit(rng) : z;
        s->narrow[i] = type == SY_TYPE_F16 ? f16_round(z) : bf16_round(z);
        s->wide[i] = type == SY_TYPE_F32   ? (float)z
                     : type == SY_TYPE_F16 ? (float)f16_value(s->narrow[i])
                                           : (float)bf16_value(s->narrow[i]);
        max = s->wide[i] > max ? s->wide[i] : max;
    }
    return max;
}

/* Stretches of tokens that count, that do not, and mixed ones; token 7, the largest, counts. */
static void bar_tokens(struct scratch *s, uint64_t *rng)
{
    rng_fill(rng, s->allow, sizeof s->allow);
    memset(s->allow + 1000, 0, 1000);
    memset(s->allow + 3000, 0xff, 1000);
    s->allow[0] |= 1u << 7;
}

static void bounds_hold(void **state)
{
    static struct scratch s;
    static const float temperature[] = {1.0f, 0.7f, 1.3f, 0.11f, 6.0f};
    static const float most[] = {20.0f, 0.01f, -45.0f, 49.0f, 120.0f, 900.0f, 3.0f};
    const struct syi_kernels *kernels = *state;
    uint64_t rng = 5;
    for (size_t round = 0; round < 6 * COUNT_OF(most) * COUNT_OF(temperature); round++) {
        const sy_type type = round % 3 == 0 ? SY_TYPE_F32 : round % 3 == 1 ? SY_TYPE_F16 : SY_TYPE_BF16;
        const float t = temperature[round / 6 % COUNT_OF(temperature)];
        const float m = make_row(&s, &rng, type, most[round / 6 / COUNT_OF(temperature)], t);
        bar_tokens(&s, &rng);
        struct syi_exp_table exp_table = {.e = s.exp};
        struct syi_scan scan = {
            .row = {.x = type == SY_TYPE_F32 ? (const void *)s.wide : (const void *)s.narrow,
                    .type = type,
                    .n = VOCAB - (int64_t)(round % 70),
                    .allow = round / 3 % 2 ? s.allow : NULL},
            .max = s.block_max,
            .group = s.group_max};
        const struct syi_weigher w = {.kernels = kernels,
                                      .scan = &scan,
                                      .m = m,
                                      .inv_t = 1.0f / t,
                                      .n_rows = 8,
                                      .table = {s.strip, s.weight, s.count, s.pattern, s.e},
                                      .exp_table = &exp_table};
        double sum = 0;
        if (syi_weigh_by_table(&w))
            sum = syi_weigh_scan(&w);
        else
            syi_scan_part(kernels, &scan, 0, syi_scan_blocks(scan.row.n));
        assert_true(syi_scan_top(&scan));
        const struct syi_mass about = syi_weigh_about(&w);
        const struct syi_mass scanned = syi_weigh_by_table(&w) ? syi_weigh_scanned(&w, sum) : about;
        const uint64_t exact = syi_weigh(&w);
        assert_true(about.low <= exact && exact <= about.high);
        assert_true(scanned.low <= exact && exact <= scanned.high);
        assert_true((double)(about.high - about.low) < 4e-5 * (double)exact);
        assert_true((double)(scanned.high - scanned.low) < 4e-5 * (double)exact);
        uint64_t want = 0; /* what exact means, one logit after the other */
        for (int64_t i = 0; i < scan.row.n; i++)
            if (syi_allowed(&scan.row, i))
                want += syi_kernels_scalar.weigh_f32(&s.wide[i], 1, m, w.inv_t);
        assert_true(exact == want);
    }
}

/* Values on both edges of the range, next to them and far from them; none, some or all of a block. */
static void splits_and_weighs(void **state)
{
    const struct syi_kernels *k = *state;
    uint64_t rng = 18, weight = 0;
    for (size_t round = 0, found = 0; round < 1200; round++, found = 0, weight = 0) {
        const size_t n = round % 400;
        const float low = (float)exp(-40.0 * rng_unit(&rng)), high = round % 5 ? low * 1.01f : low;
        const int64_t kind = rng_below(&rng, 4);
        float *e = buf_new(n * sizeof *e, 0);
        int32_t *pos = buf_new(n * sizeof *pos, 0);
        double sum = 0, got;
        for (size_t i = 0; i < n; i++) {
            const float edge = rng_below(&rng, 2) ? low : high, near = nextafterf(edge, (float)(i % 3));
            const float far = rng_below(&rng, 9) == 0 ? 0.0f : (float)exp(-40.0 * rng_unit(&rng));
            const float any = kind == 0 ? far : kind == 1 ? edge : kind == 2 ? near : i % 2 ? edge : far;
            e[i] = any > 1.0f ? 1.0f : any;
        }
        const size_t n_found = k->split(pos, e, n, low, high, &got);
        for (size_t i = 0; i < n; i++)
            if (e[i] >= high) {
                sum += (double)e[i];
                weight += (uint64_t)nearbyint(ldexp((double)e[i], 40));
            } else if (e[i] >= low)
                assert_int_equal(found < n_found ? pos[found++] : -1, (int32_t)i);
        assert_int_equal(found, n_found);
        assert_true(fabs(got - sum) <= sum * SYI_ROW_SUM_ERROR);
        assert_true(k->weigh_e(e, n, high) == weight);
        buf_free(pos);
        buf_free(e);
    }
}

TEST_GROUP(mass)
{
    struct test_list list = {NULL, 0, 0};
    for (int i = 0; syi_kernels_at(i) != NULL; i++) {
        const char *const name = syi_kernels_at(i)->name;
        test_add(&list, test_name("%s: bounds_hold", name), bounds_hold, (void *)syi_kernels_at(i));
        test_add(&list, test_name("%s: splits_and_weighs", name), splits_and_weighs,
                 (void *)syi_kernels_at(i));
    }
    return test_run(&list, "mass");
}
