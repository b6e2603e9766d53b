/*
 * Every slot of every kernel table this CPU can run, against definitions written here: exact arithmetic in
 * double, plain loops, and the published spot values of exp. Lengths 0..4*width+1, every misalignment, guard
 * bytes.
 */
#include "kernels/kernels.h"
#include "oracle/sum.h"
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
    return *state;
}

/* Guarded memory full of random bytes, off alignment by chance unless told to lie straight. */
static unsigned char *random_buf(uint64_t *rng, size_t bytes, bool straight)
{
    unsigned char *data = buf_new(bytes, straight ? 0 : (size_t)rng_below(rng, 64));
    rng_fill(rng, data, bytes);
    return data;
}

/* n rows of `bytes` copied together, beside guards; `spare` bytes of the sources go on, since a guard copied
   on a guard shows nothing. */
static void copy_some(const struct syi_kernels *kernels, uint64_t *rng, size_t n, size_t bytes, size_t spare)
{
    enum { MOST = 48 };
    void *dst[MOST] = {NULL}, *src[MOST] = {NULL};
    for (size_t i = 0; i < n; i++) {
        dst[i] = random_buf(rng, bytes, bytes % 3 == 0);
        src[i] = random_buf(rng, bytes + spare, bytes % 5 == 0);
    }
    if (n <= SYI_FAN) {
        kernels->copy_fan(dst, n, src[n - 1], bytes);
        for (size_t i = 0; i < n; i++)
            expect_bytes(dst[i], src[n - 1], bytes);
    }
    kernels->copy_rows(dst, (const void *const *)src, n, bytes);
    for (size_t i = 0; i < n; i++) {
        expect_bytes(dst[i], src[i], bytes);
        buf_free(dst[i]);
        buf_free(src[i]);
    }
}

/* Lengths around every chunk size, all aligned now and then; more rows than go side by side; long rows. */
static void copies_groups_of_rows(void **state)
{
    static const size_t many[] = {15, 16, 17, 31, 32, 33, 48}, lengths[] = {8191, 8192, 65535, 65536, 70001};
    uint64_t rng = 8;
    for (size_t n = 1; n <= SYI_FAN; n++)
        for (size_t bytes = 0; bytes <= 600; bytes++)
            copy_some(table(state), &rng, n, bytes, n % 2 * 64);
    for (size_t i = 0; i < COUNT_OF(many); i++)
        for (size_t bytes = 1; bytes <= 600; bytes += 37)
            copy_some(table(state), &rng, many[i], bytes, i % 2 * 64);
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        for (size_t n = 1; n <= 17; n += 1 + n / 4)
            copy_some(table(state), &rng, n, lengths[i], 64);
}

/* ---- Rows of numbers ---- */

/* A guarded row off alignment: mostly tame numbers whose sums round, some hard ones, all of them with `wild`
   of 8. */
static unsigned char *number_row(uint64_t *rng, enum number_type type, size_t n, int64_t wild)
{
    unsigned char *row = buf_new(n * number_bytes(type), (size_t)rng_below(rng, 64));
    for (size_t i = 0; i < n; i++) {
        float hard;
        fill_f32(rng, &hard, 1);
        uint32_t bits =
            number_round(type, rng_below(rng, 8) < wild ? (double)hard : rng_unit(rng) * 4.0 - 2.0);
        if (wild == 8 && number_bytes(type) == 2 && rng_below(rng, 2))
            bits = (uint32_t)rng_below(rng, 65536); /* subnormals of the type, NaNs with payloads */
        memcpy(row + i * number_bytes(type), &bits, number_bytes(type));
    }
    return row;
}

/* The product of two f32 is exact in double, so rounding it once is the definition. */
static void scales_rows(void **state)
{
    uint64_t rng = 2;
    for (size_t round = 0; round < 40 * NUMBER_TYPES; round++) {
        const enum number_type type = (enum number_type)(round / 40);
        for (size_t n = 0; n < MAX_N; n += 1 + n / 40) {
            unsigned char *x = number_row(&rng, type, n, 8),
                          *dst = buf_new(n * number_bytes(type), n % MISALIGN);
            float weight;
            fill_f32(&rng, &weight, 1);
            table(state)->scale[round / 40](dst, x, weight, n);
            for (size_t i = 0; i < n; i++) {
                const float product = (float)((double)weight * number_get(type, x, (int64_t)i));
                assert_int_equal(number_bits(type, dst, (int64_t)i), number_round(type, (double)product));
            }
            buf_free(dst);
            buf_free(x);
        }
    }
}

/* Under many weights. */
static void scales_all_values_of_16_bits(void **state)
{
    static uint16_t x[65536], y[65536];
    uint64_t rng = 3;
    float weight[48];
    for (size_t i = 0; i < 65536; i++)
        x[i] = (uint16_t)i;
    for (size_t kind = SYI_FLOAT_F16; kind <= SYI_FLOAT_BF16; kind++) {
        const enum number_type type = (enum number_type)(kind);
        fill_f32(&rng, weight, 48);
        weight[0] = 1.0f;
        weight[1] = 3.0f;
        for (size_t w = 2; w < 12; w++) /* numbers of the type itself, subnormals among them */
            weight[w] =
                (float)number_value(type, (uint32_t)(w < 4 ? (int64_t)w - 1 : rng_below(&rng, 65536)));
        for (size_t w = 0; w < 48; w++) {
            table(state)->scale[kind](y, x, weight[w], 65536);
            for (uint32_t i = 0; i < 65536; i++) {
                const float product = (float)((double)weight[w] * number_value(type, i));
                assert_int_equal(y[i], number_round(type, (double)product));
            }
        }
    }
}

/* ---- Sums of rows and dot products ---- */

static void expect_sum_of_rows(syi_sum_rows_fn *sum_rows, enum number_type type, uint64_t *rng, size_t n_rows,
                               size_t n)
{
    enum { MOST = 20 };
    unsigned char *rows[MOST + 1];
    float w[MOST];
    const int64_t wild = (int64_t)(n_rows + n) % 3 * 4;
    for (size_t j = 0; j < n_rows; j++) {
        rows[j] = number_row(rng, type, n, wild);
        fill_f32(rng, &w[j], 1);
        w[j] = rng_below(rng, 8) < wild ? w[j] : (float)rng_unit(rng);
        if (n_rows % 2 == 1) /* short ones, with which products are exact unless the row is extreme */
            w[j] = ldexpf((float)(rng_below(rng, 511) - 255), -(int)rng_below(rng, n % 2 ? 8 : 24));
    }
    const float *weights = n % 4 == 3 ? NULL : w;
    unsigned char *dst = buf_new(n * number_bytes(type), (size_t)rng_below(rng, 64));
    sum_rows(dst, (const void *const *)rows, weights, n_rows, n);
    for (size_t i = 0; i < n; i++) {
        float sum = 0.0f;
        for (size_t j = 0; j < n_rows; j++)
            sum =
                oracle_plus_product(sum, weights ? (double)w[j] : 1.0, number_get(type, rows[j], (int64_t)i));
        assert_int_equal(number_bits(type, dst, (int64_t)i), number_round(type, (double)sum));
    }
    for (size_t j = 0; j < n_rows; j++)
        buf_free(rows[j]);
    buf_free(dst);
}

static void adds_rows(void **state)
{
    static const size_t counts[] = {0, 1, 2, 3, 4, 7, 8, 9, 20};
    const struct syi_kernels *k = table(state);
    syi_sum_rows_fn *const *const sum_rows = k->sum_rows;
    uint64_t rng = 14;
    for (size_t type = 0; type < NUMBER_TYPES; type++)
        for (size_t c = 0; c < COUNT_OF(counts); c++)
            for (size_t n = 0; n <= 4 * 64 + 1; n += n < 140 ? 1 : 29)
                expect_sum_of_rows(sum_rows[type], (enum number_type)(type), &rng, counts[c], n);
}

/* All 65536 values of a 16-bit type, weighted and added to others. */
static void adds_all_values_of_16_bits(void **state)
{
    enum { ALL = 65536 };
    syi_sum_rows_fn *const *const sum_rows = table(state)->sum_rows + SYI_FLOAT_F16;
    static uint16_t x[2][ALL], y[ALL];
    const void *const rows[2] = {x[0], x[1]};
    uint64_t rng = 15;
    for (size_t type = 0; type < 2; type++)
        for (int round = 0; round < 18; round++) {
            float w[2] = {1.0f, 0.0f};
            for (size_t i = 0; i < ALL; i++) {
                x[0][i] = (uint16_t)i;
                x[1][i] = (uint16_t)rng_below(&rng, ALL);
            }
            if (round > 1)
                fill_f32(&rng, w, 2);
            if (round > 6) /* short ones: 16 bits and less, at most 1 and more */
                for (size_t j = 0; j < 2; j++)
                    w[j] = ldexpf((float)(rng_below(&rng, 511) - 255), 4 * (round - 12) - (int)j);
            sum_rows[type](y, rows, w, round == 0 ? 1 : 2, ALL);
            const enum number_type exact = (enum number_type)(1 + type);
            for (size_t i = 0; i < ALL; i++) {
                float sum = oracle_plus_product(0.0f, (double)w[0], number_value(exact, x[0][i]));
                if (round > 0)
                    sum = oracle_plus_product(sum, (double)w[1], number_value(exact, x[1][i]));
                assert_int_equal(y[i], number_round(exact, (double)sum));
            }
        }
}

enum { MOST_DOTS = 11 }; /* two groups of rows side by side, two rows and one */

struct dots_seen {
    size_t finite, nan, ordered;
};

static void expect_dots(syi_dot_rows_fn *dot_rows, enum number_type type, uint64_t *rng, size_t n_rows,
                        size_t n, int64_t wild, struct dots_seen *seen)
{
    unsigned char *a = number_row(rng, type, n, wild), *rows[MOST_DOTS];
    float *dst = (float *)(void *)buf_new(n_rows * sizeof *dst, 0);
    for (size_t j = 0; j < n_rows; j++)
        rows[j] = number_row(rng, type, n, wild);
    dot_rows(dst, a, (const void *const *)rows, n_rows, n);
    for (size_t j = 0; j < n_rows; j++) {
        const float want = oracle_dot(type, a, 0, rows[j], 0, (int64_t)n);
        assert_int_equal(f32_bits(dst[j]), want != want ? 0x7fc00000u : f32_bits(want));
        float plain = 0.0f; /* from left to right: another number, or the test would show no order */
        for (size_t i = 0; i < n; i++)
            plain = oracle_plus_product(plain, number_get(type, a, (int64_t)i),
                                        number_get(type, rows[j], (int64_t)i));
        seen->finite += want == want && want != 0.0f;
        seen->nan += want != want;
        seen->ordered += want == want && want != plain;
        buf_free(rows[j]);
    }
    buf_free(a);
    buf_free((unsigned char *)dst);
}

static void multiplies_rows_with_rows(void **state)
{
    static const size_t long_rows[] = {1000, 8191, 8192, 8193, 16384, 16385, 24600};
    const struct syi_kernels *k = table(state);
    syi_dot_rows_fn *const *const dot_rows = k->dot_rows;
    uint64_t rng = 16;
    struct dots_seen seen = {0, 0, 0};
    for (size_t type = 0; type < NUMBER_TYPES; type++)
        for (size_t round = 0; round < 3 * MAX_N + COUNT_OF(long_rows); round++) {
            const size_t n = round < 3 * MAX_N ? round % MAX_N : long_rows[round - 3 * MAX_N];
            const int64_t wild = round < 2 * MAX_N ? (int64_t)(round / MAX_N) * 8 : 0;
            expect_dots(dot_rows[type], (enum number_type)(type), &rng, round % (MOST_DOTS + 1), n, wild,
                        &seen);
        }
    assert_true(seen.finite > 2500 && seen.nan > 500 && seen.ordered > 1500);
}

/* ---- Positions ---- */

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

/* n tokens, of which number `odd` (n: none) breaks limit 0 to 3: of tokens, rows, blocks, slots. */
static void expect_slots(const struct syi_kernels *k, uint64_t *rng, size_t n, size_t odd, int limit)
{
    enum { ROWS = 5, COLUMNS = 7, BLOCKS = 40 };
    const uint64_t bits = rng_u64(rng);
    const bool has_row = bits & 1 || limit == 1;
    const int size = 1 + (int)(bits >> 8 & 255) % 70;
    int shift = 31;
    while (size > 1 << (shift - 31))
        shift++;
    int32_t entry[ROWS * COLUMNS], token[MAX_N], row[MAX_N], want[MAX_N];
    unsigned char *const block = random_buf(rng, sizeof entry, false),
                         *const t = random_buf(rng, n * 4, false), *const r = random_buf(rng, n * 4, false),
                         *const slot = buf_new(n * 4, 0);
    const struct syi_slot_table l = {.block = block,
                                     .rows = has_row ? ROWS : 1,
                                     .columns = COLUMNS,
                                     .length = (uint32_t)(COLUMNS * size - size / 2),
                                     .n_blocks = BLOCKS,
                                     .n_slots = (uint32_t)(BLOCKS * size - (size + 1) / 2),
                                     .size = (uint32_t)size,
                                     .magic = (uint32_t)((UINT64_C(1) << shift) / (uint64_t)size + 1),
                                     .shift = shift};
    const int32_t far[] = {-1, INT32_MIN, INT32_MAX, limit == 0 ? (int32_t)l.length : ROWS};
    for (size_t i = 0; i < COUNT_OF(entry); i++)
        entry[i] = (int32_t)rng_below(rng, BLOCKS - 1);
    for (size_t i = 0; i < n; i++) {
        token[i] = i == odd && limit == 0 ? far[bits >> 20 & 3] : (int32_t)rng_below(rng, l.length);
        row[i] = i == odd && limit == 1 ? far[bits >> 20 & 3] : has_row ? (int32_t)rng_below(rng, ROWS) : 0;
    }
    if (odd < n && limit > 1) {
        entry[row[odd] * COLUMNS] = limit == 3 ? BLOCKS - 1 : far[bits >> 20 & 1];
        token[odd] = size - 1;
    }
    for (size_t i = 0; i < n && odd >= n; i++)
        want[i] = entry[row[i] * COLUMNS + token[i] / size] * size + token[i] % size;
    memcpy(block, entry, sizeof entry);
    memcpy(t, token, n * 4);
    memcpy(r, row, n * 4);
    assert_int_equal(k->find_slots(slot, t, has_row ? r : NULL, &l, n), odd >= n);
    if (odd >= n)
        expect_bytes(slot, want, n * 4);
    buf_free(block);
    buf_free(t);
    buf_free(r);
    buf_free(slot);
}

static void finds_slots(void **state)
{
    uint64_t rng = 17;
    for (int limit = 0; limit < 4; limit++)
        for (size_t n = 0; n < MAX_N; n++)
            for (int round = 0; round < 8; round++)
                expect_slots(table(state), &rng, n,
                             round % 2 == 0 ? n : (size_t)rng_below(&rng, (int64_t)n + 1), limit);
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

static void makes_keys(void **state)
{
    uint64_t rng = 5;
    for (size_t kind = 0; kind < NUMBER_TYPES; kind++)
        for (size_t n = 0; n < 512; n += 1 + n / 70) {
            double value[512];
            unsigned char *x = number_row(&rng, (enum number_type)(kind), n, 8);
            uint32_t *key = buf_new(n * 4, 0);
            struct syi_key_stats stats = {0, 0};
            for (size_t i = 0; i < n; i++)
                value[i] = number_get((enum number_type)kind, x, (int64_t)i);
            table(state)->keys[kind](key, x, n, &stats);
            expect_keys(key, value, n, &stats);
            buf_free(key);
            buf_free(x);
        }
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

/* A logit not above m: hard values, far ones, and t around -12, where half of all weights lie on a
   rounding tie. */
static float logit_below(uint64_t *rng, float m, float inv_t)
{
    const uint64_t kind = rng_u64(rng) % 8;
    const float hard = f32_from_bits(hard_f32[rng_u64(rng) % COUNT_OF(hard_f32)]);
    const double t = kind < 5 ? -11.5 - rng_unit(rng) * 1.5 : rng_unit(rng) * -90.0;
    const float x = kind == 0 ? hard : kind == 1 ? m : (float)((double)m + t / (double)inv_t);
    return x > m ? m : x;
}

/* round(e * 2^40) in double, where the product is exact; e itself has its own tests above. */
static uint64_t exact_weight(float x, float m, float inv_t)
{
    float e;
    const uint32_t key = syi_value_key(x == 0.0f ? 0.0f : x);
    if (x != x)
        return 0;
    syi_kernels_scalar.exp_keys(&e, &key, 1, m, inv_t);
    return (uint64_t)nearbyint(ldexp((double)e, 40));
}

static void weighs_f32(void **state)
{
    static const float most[] = {0.0f, 5.5f, -3.0f, 88.0f, 1e-40f, -1e30f, 0x1.fffffep127f};
    uint64_t rng = 10;
    for (size_t round = 0; round < 8 * COUNT_OF(most); round++)
        for (size_t n = 0; n < MAX_N; n++) {
            const float m = most[round % COUNT_OF(most)],
                        inv_t = round % 2 ? 1.0f : (float)(0.25 + rng_unit(&rng) * 4);
            unsigned char *x = buf_new(n * 4, (size_t)rng_below(&rng, 64));
            uint64_t want = 0;
            for (size_t i = 0; i < n; i++) {
                const float value = logit_below(&rng, m, inv_t);
                memcpy(x + i * 4, &value, 4);
                want += exact_weight(value, m, inv_t);
            }
            assert_true(table(state)->weigh_f32(x, n, m, inv_t) == want);
            assert_true(syi_kernels_scalar.weigh_f32(x, n, m, inv_t) == want);
            buf_free(x);
        }
    static float equal[100003]; /* zeros: a long row of the largest weight */
    assert_true(table(state)->weigh_f32(equal, COUNT_OF(equal), 0.0f, 0.5f) == (uint64_t)COUNT_OF(equal)
                                                                                   << 40);
}

/* The sum of e to within its promised error, which is the contract of these slots: their callers need no
   more. With e itself: every one as exp_keys has it, or as little where that is next to nothing. */
static void sums_exponentials(void **state)
{
    const struct syi_kernels *k = table(state);
    uint64_t rng = 16;
    for (size_t round = 0; round < 3 * 600; round++) {
        const size_t n = round / 3 + (round % 50 == 0 ? 5000 : 0), bytes = round % 3 == 0 ? 4 : 2;
        const float m = 6.5f, inv_t = round % 2 ? 1.0f : 0.75f;
        const bool f16 = round % 3 == 1;
        unsigned char *x = buf_new(n * bytes, (size_t)rng_below(&rng, 64));
        float *want = buf_new(n * sizeof *want, 0), *e = buf_new(n * sizeof *e, 0);
        double sum = 0, row = 0;
        for (size_t i = 0; i < n; i++) {
            float value = logit_below(&rng, m, inv_t);
            const uint16_t half = f16 ? f16_round((double)value) : bf16_round((double)value);
            value = bytes == 4 ? value : (float)(f16 ? f16_value(half) : bf16_value(half));
            memcpy(x + i * bytes, bytes == 4 ? (const void *)&value : (const void *)&half, bytes);
            const uint32_t key = syi_value_key(value == 0.0f ? 0.0f : value);
            want[i] = 0;
            if (value == value)
                syi_kernels_scalar.exp_keys(&want[i], &key, 1, m, inv_t);
            sum += (double)want[i];
        }
        const double rough = k->sum_exp[round % 3](x, n, m, inv_t),
                     got = k->exp_row[round % 3](e, x, n, m, inv_t);
        for (size_t i = 0; i < n; i++) {
            assert_true(want[i] < 0x1p-100f ? e[i] >= 0.0f && e[i] < 0x1p-100f
                                            : f32_bits(e[i]) == f32_bits(want[i]));
            row += (double)e[i];
        }
        assert_true(fabs(rough - sum) <= sum * SYI_SUM_EXP_ERROR + (double)n * 0x1p-100);
        assert_true(fabs(got - row) <= row * SYI_ROW_SUM_ERROR);
        buf_free(e);
        buf_free(want);
        buf_free(x);
    }
}

/* ---- Order of raw logits ---- */

static uint16_t order_of(uint16_t upper)
{
    return (uint16_t)(upper < 0x8000 ? 0x8000 + upper : 0xffff - upper);
}

/* Upper halves, a kind per block: anything, one sign, specials of one or both signs, a lone non-negative. */
static void fill_upper(uint64_t *rng, uint16_t *upper, size_t n)
{
    static const uint16_t special[] = {0x0000, 0x0001, 0x7f7f, 0x7f80, 0x7f81,
                                       0x7fff, 0x7c00, 0x7bff, 0x7c01, 0x3f80};
    for (size_t b = 0; b < n; b += SYI_BLOCK) {
        const int64_t kind = rng_below(rng, 6), lone = rng_below(rng, SYI_BLOCK);
        for (size_t i = b; i < n && i < b + SYI_BLOCK; i++) {
            const uint16_t any = (uint16_t)rng_u64(rng), hard = special[rng_u64(rng) % COUNT_OF(special)];
            upper[i] = kind == 0               ? any
                       : kind == 1             ? any & 0x7fff
                       : kind == 2             ? any | 0x8000
                       : kind == 3             ? (uint16_t)(hard | (any & 0x8000))
                       : kind == 4             ? hard | 0x8000
                       : i == b + (size_t)lone ? any & 0x7fff
                                               : any | 0x8000;
        }
    }
}

/* The logits themselves, in guarded memory: 2 bytes each, or 4 with lower halves that are random, zeros or ones: with
   zeros a word equals the floor it is compared with. */
static unsigned char *raw_logits(uint64_t *rng, const uint16_t *upper, size_t n, size_t elem_bytes)
{
    unsigned char *x = random_buf(rng, n * elem_bytes, false);
    for (size_t i = 0; i < n; i++) {
        const int64_t kind = rng_below(rng, 3);
        if (kind > 0)
            memset(x + i * elem_bytes, kind == 1 ? 0 : 0xff, elem_bytes);
        for (size_t byte = 0; byte < 2; byte++) /* little-endian, as everywhere here */
            x[i * elem_bytes + elem_bytes - 2 + byte] = (unsigned char)(upper[i] >> 8 * byte);
    }
    return x;
}

static void expect_block_maxima(void (*block_max)(uint16_t *, uint16_t *, const void *, size_t),
                                size_t elem_bytes)
{
    static uint16_t upper[40 * SYI_BLOCK];
    uint64_t rng = 11;
    for (size_t round = 0; round < 20 * 41; round++) {
        const size_t n_blocks = round % 41;
        fill_upper(&rng, upper, n_blocks * SYI_BLOCK);
        unsigned char *x = raw_logits(&rng, upper, n_blocks * SYI_BLOCK, elem_bytes);
        uint16_t *max = buf_new(n_blocks * sizeof *max, 0);
        uint16_t low = 1, want_low = 0;
        block_max(max, round % 2 ? &low : NULL, x, n_blocks);
        for (size_t b = 0; b < n_blocks; b++) {
            uint16_t want = 0;
            for (size_t i = b * SYI_BLOCK; i < (b + 1) * SYI_BLOCK; i++) {
                want = order_of(upper[i]) > want ? order_of(upper[i]) : want;
                want_low = upper[i] > want_low ? upper[i] : want_low;
            }
            assert_int_equal(max[b], want);
        }
        assert_int_equal(low, round % 2 ? want_low : 1);
        buf_free(max);
        buf_free(x);
    }
}

static void finds_maxima_of_blocks(void **state)
{
    expect_block_maxima(table(state)->block_max_16, 2);
    expect_block_maxima(table(state)->block_max_32, 4);
}

static uint16_t some_floor(uint64_t *rng)
{
    static const uint16_t floors[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    const uint64_t r = rng_u64(rng);
    return r % 2 ? floors[(r >> 8) % COUNT_OF(floors)] : (uint16_t)(r >> 16);
}

static void counts_from_a_floor(void **state)
{
    uint64_t rng = 12;
    for (size_t round = 0; round < 20 * 71; round++) {
        const size_t n = round % 71;
        const uint16_t floor = some_floor(&rng);
        uint16_t *v = buf_new(n * sizeof *v, 2 * (size_t)rng_below(&rng, 32));
        size_t want = 0;
        for (size_t i = 0; i < n; i++) {
            v[i] = rng_below(&rng, 2) ? (uint16_t)rng_u64(&rng) : (uint16_t)(floor + rng_below(&rng, 3) - 1);
            want += v[i] >= floor;
        }
        assert_int_equal(table(state)->count_ge_u16(v, n, floor), want);
        buf_free(v);
    }
    static uint16_t same[300000]; /* longer than a counter of 16 bits per lane lasts */
    memset(same, 0xff, sizeof same);
    assert_int_equal(table(state)->count_ge_u16(same, COUNT_OF(same), 0xffff), COUNT_OF(same));
    memset(same, 0x7f, sizeof same);
    assert_int_equal(table(state)->count_ge_u16(same, COUNT_OF(same), 0x7f80), 0);
}

static void expect_reach(uint64_t (*reach)(const void *, uint16_t), size_t elem_bytes)
{
    uint64_t rng = 13;
    for (size_t round = 0; round < 3000; round++) {
        uint16_t upper[SYI_BLOCK];
        uint64_t want = 0;
        fill_upper(&rng, upper, SYI_BLOCK);
        const uint16_t floor =
            rng_below(&rng, 3) == 0 ? order_of(upper[rng_below(&rng, SYI_BLOCK)]) : some_floor(&rng);
        for (size_t i = 0; i < SYI_BLOCK; i++)
            want |= (uint64_t)(order_of(upper[i]) >= floor) << i;
        unsigned char *x = raw_logits(&rng, upper, SYI_BLOCK, elem_bytes);
        assert_true(reach(x, floor) == want);
        buf_free(x);
    }
}

static void finds_what_reaches_a_floor(void **state)
{
    expect_reach(table(state)->reach_16, 2);
    expect_reach(table(state)->reach_32, 4);
}

static const struct CMUnitTest slots[] = {
    cmocka_unit_test(copies_groups_of_rows),
    cmocka_unit_test(scales_rows),
    cmocka_unit_test(scales_all_values_of_16_bits),
    cmocka_unit_test(adds_rows),
    cmocka_unit_test(adds_all_values_of_16_bits),
    cmocka_unit_test(multiplies_rows_with_rows),
    cmocka_unit_test(finds_nonzero_bytes),
    cmocka_unit_test(finds_slots),
    cmocka_unit_test(makes_keys),
    cmocka_unit_test(exp_has_its_spot_values),
    cmocka_unit_test(exp_is_close_and_monotone),
    cmocka_unit_test(exp_does_not_depend_on_position),
    cmocka_unit_test(weighs_f32),
    cmocka_unit_test(sums_exponentials),
    cmocka_unit_test(finds_maxima_of_blocks),
    cmocka_unit_test(counts_from_a_floor),
    cmocka_unit_test(finds_what_reaches_a_floor),
};

/* A table this CPU or build does not have is named as skipped, so that nobody takes silence for equality. */
TEST(not_on_this_machine)
{
    skip_because("this processor has no such instructions");
}

static bool runs_here(const char *name)
{
    for (int i = 0; syi_kernels_at(i) != NULL; i++)
        if (strcmp(syi_kernels_at(i)->name, name) == 0)
            return true;
    return false;
}

TEST_GROUP(kernels)
{
    static const char *const known[] = {"neon", "neon_bf16", "avx2", "avx512"};
    struct test_list list = {NULL, 0, 0};
    for (int i = 0; syi_kernels_at(i) != NULL; i++)
        for (size_t s = 0; s < COUNT_OF(slots); s++)
            test_add(&list, test_name("%s: %s", syi_kernels_at(i)->name, slots[s].name), slots[s].test_func,
                     (void *)syi_kernels_at(i));
    for (size_t i = 0; i < COUNT_OF(known); i++)
        if (!runs_here(known[i]))
            test_add(&list, test_name("%s: not on this machine", known[i]), not_on_this_machine, NULL);
    const uint64_t control = syi_fp_enter(); /* kernels run with the floating-point control of a task */
    const int failed = test_run(&list, "kernels");
    syi_fp_leave(control);
    return failed;
}
