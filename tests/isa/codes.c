/*
 * Numbers of eight bits: every code and every place where rounding changes its mind, against the definitions; then the
 * decoders and encoders of every kernel table, all codes under many weights, all lengths and alignments.
 */
#include "kernels/kernels.h"
#include "oracle/codes.h"
#include "support.h"

#include <math.h>

static const enum oracle_code oracle_of[SYI_N_CODES] = {ORACLE_E4M3, ORACLE_E5M2, ORACLE_I8};

static float widen(int type, unsigned code)
{
    const uint8_t c = (uint8_t)code;
    return type == SYI_CODE_E4M3   ? syi_e4m3_to_f32(c)
           : type == SYI_CODE_E5M2 ? syi_e5m2_to_f32(c)
                                   : syi_i8_to_f32(c);
}

static unsigned narrow(int type, float value)
{
    return type == SYI_CODE_E4M3   ? syi_f32_to_e4m3(value)
           : type == SYI_CODE_E5M2 ? syi_f32_to_e5m2(value)
                                   : syi_f32_to_i8(value);
}

TEST(every_code_has_its_value)
{
    for (int type = 0; type < SYI_N_CODES; type++)
        for (unsigned code = 0; code < 256; code++) {
            const double want = oracle_code_value(oracle_of[type], code);
            const float got = widen(type, code);
            assert_true(isnan(want) ? isnan(got) : (double)got == want && !signbit(got) == !signbit(want));
        }
    for (unsigned code = 0; code < 256; code++) {
        const double want = oracle_code_value(ORACLE_E8M0, code);
        const float got = syi_e8m0_to_f32((uint8_t)code);
        assert_true(code == 255 ? isnan(got) : (double)got == want);
    }
    assert_int_equal(f32_bits(syi_e4m3_to_f32(0x7e)), f32_bits(448.0f));
    assert_int_equal(f32_bits(syi_e4m3_to_f32(0x01)), f32_bits(0x1p-9f));
    assert_int_equal(f32_bits(syi_e5m2_to_f32(0x7b)), f32_bits(57344.0f));
    assert_int_equal(f32_bits(syi_e8m0_to_f32(0)), 0x00400000u);
}

static void expect_narrow(int type, float value)
{
    const unsigned got = narrow(type, value), want = oracle_code_nearest(oracle_of[type], (double)value);
    if (got != want)
        fail_msg("type %d: %a is %02x, want %02x", type, (double)value, got, want);
}

/* Codes themselves, the middle between neighbours, and the f32 on both sides of each. */
TEST(rounding_is_to_nearest_even)
{
    for (int type = 0; type < SYI_N_CODES; type++)
        for (unsigned code = 0; code < 256; code++)
            for (unsigned next = 0; next < 256; next++) {
                const float a = widen(type, code), b = widen(type, next), middle = (a + b) / 2;
                const bool near = next == code || next == code + 1 || (next ^ code) == 0x80;
                if (!near || isnan(middle) || isinf(middle))
                    continue;
                expect_narrow(type, middle);
                expect_narrow(type, nextafterf(middle, INFINITY));
                expect_narrow(type, nextafterf(middle, -INFINITY));
            }
}

TEST(everything_else_saturates_or_vanishes)
{
    static const float ends[] = {0.0f,     -0.0f,    0x1p-149f, -0x1p-149f, 0x1p-126f, 447.9f,
                                 448.0f,   464.0f,   480.0f,    -1e9f,      57344.0f,  61440.0f,
                                 65536.0f, -3.4e38f, INFINITY,  -INFINITY,  NAN,       126.500f,
                                 127.5f,   -127.5f,  -128.5f,   -129.0f,    0.5f,      1.5f};
    uint64_t rng = 5;
    for (int type = 0; type < SYI_N_CODES; type++) {
        for (size_t i = 0; i < COUNT_OF(ends); i++)
            expect_narrow(type, ends[i]);
        for (int i = 0; i < 20000; i++)
            expect_narrow(type, f32_from_bits((uint32_t)rng_u64(&rng)));
        for (int i = 0; i < 20000; i++)
            expect_narrow(type, ldexpf((float)rng_unit(&rng) - 0.5f, (int)rng_below(&rng, 40) - 22));
        assert_int_equal(narrow(type, f32_from_bits(0xff800001u)), narrow(type, NAN));
    }
    assert_int_equal(syi_f32_to_e4m3(-NAN), 0x7f);
    assert_int_equal(syi_f32_to_i8(-200.0f), 0x80);
}

/* ---- Decoders ---- */

static uint32_t product(int type, int to, unsigned code, float w)
{
    const double x = oracle_code_value(oracle_of[type], code);
    const double once = (double)(float)((double)w * x); /* exact in double, rounded once */
    return number_round((enum number_type)to, once);
}

static void decodes_all_codes(void **state)
{
    static const uint32_t hard[] = {0x00000000, 0x80000000, 0x00000001, 0x00400000, 0x007fffff, 0x00800000,
                                    0x3f800000, 0xbf800000, 0x3dcccccd, 0x3c000000, 0x7f7fffff, 0x7f800000,
                                    0xff800000, 0x7fc00000, 0xffc12345, 0x7f800001, 0x7b000000, 0x33000001};
    static const size_t begin[] = {0, 184, 190}, end[] = {256, 248, 254};
    const struct syi_kernels *k = *state;
    uint64_t rng = 6;
    uint8_t codes[256]; /* infinities and NaNs last, from 248 and from 254 on, where some calls end */
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)(i / 2 + i % 2 * 128);
    for (int type = 0; type < SYI_N_CODES; type++)
        for (int to = 0; to < SYI_N_FLOATS; to++)
            for (size_t round = 0; round < 3 * COUNT_OF(hard) + 200; round++) {
                const uint32_t any = (uint32_t)rng_u64(&rng);
                const float w = f32_from_bits(round / 3 < COUNT_OF(hard) ? hard[round / 3] : any);
                const size_t from = begin[round % 3], n = end[round % 3] - from;
                unsigned char *y = buf_new(n * number_bytes((enum number_type)to), round % 16);
                k->decode[type][to](y, codes + from, &w, n, 1);
                for (size_t i = 0; i < n; i++) {
                    const unsigned c = codes[from + i];
                    uint32_t got = 0;
                    memcpy(&got, y + i * number_bytes((enum number_type)to),
                           number_bytes((enum number_type)to));
                    if (got != product(type, to, c, w))
                        fail_msg("code %02x of type %d by %a: %x, want %x", c, type, (double)w, got,
                                 product(type, to, c, w));
                }
                buf_free(y);
            }
}

static void decodes_groups(void **state)
{
    static const float w[] = {0.7f, -0.013f, 0x1p100f};
    const struct syi_kernels *k = *state;
    uint64_t rng = 7;
    for (int type = 0; type < SYI_N_CODES; type++)
        for (int to = 0; to < SYI_N_FLOATS; to++)
            for (size_t group = 0; group <= 150; group++) {
                const size_t groups = 1 + group % COUNT_OF(w), n = group * groups;
                unsigned char *codes = buf_new(n, n % 7),
                              *y = buf_new(n * number_bytes((enum number_type)to), n % 5);
                unsigned char *want = buf_new(n * number_bytes((enum number_type)to), 0);
                rng_fill(&rng, codes, n);
                for (size_t i = 0; i < n && group % 2 == 0; i++)
                    codes[i] &= 0xbf; /* no infinity and no NaN */
                k->decode[type][to](y, codes, w, group, groups);
                for (size_t i = 0; i < n; i++) {
                    const uint32_t bits = product(type, to, codes[i], w[i / group]);
                    memcpy(want + i * number_bytes((enum number_type)to), &bits,
                           number_bytes((enum number_type)to));
                }
                expect_bytes(y, want, n * number_bytes((enum number_type)to));
                buf_free(codes);
                buf_free(y);
                buf_free(want);
            }
}

/* ---- Encoders ---- */

static float any_number(uint64_t *rng, int from, void *x, size_t i, int low, int high)
{
    const float value = ldexpf((float)rng_unit(rng) - 0.5f, low + (int)rng_below(rng, high - low));
    number_put((enum number_type)from, x, (int64_t)i, (double)value);
    return (float)number_get((enum number_type)from, x, (int64_t)i);
}

/* Groups of every length, divisors and factors of every size that is allowed, results that are codes of every kind; the
   largest magnitude of each group. The code is that of one operation in f32, which is exact in double before. */
static void encodes_groups(void **state)
{
    const struct syi_encoders *k = ((const struct syi_kernels *)*state)->encoders;
    uint64_t rng = 8;
    for (int round = 0; round < 18 * 300; round++) {
        const int type = round % 3, from = round / 3 % 3, divide = round / 9 % 2;
        const size_t group = (size_t)rng_below(&rng, round % 5 ? 140 : 40),
                     groups = 1 + (size_t)rng_below(&rng, 3);
        const int size = from == SYI_FLOAT_F16 ? (int)rng_below(&rng, 8) - 4 : (int)rng_below(&rng, 150) - 75;
        unsigned char *x = buf_new(group * groups * number_bytes((enum number_type)from), (size_t)round % 7);
        unsigned char *codes = buf_new(group * groups, (size_t)round % 5);
        unsigned char *want = buf_new(group * groups, 0);
        float by[3];
        uint32_t most[3], largest[3] = {0};
        for (size_t g = 0; g < groups; g++) {
            by[g] = ldexpf(round % 4 ? 0.5f + (float)rng_unit(&rng) / 2 : 0.5f, divide ? size : -size);
            for (size_t i = g * group; i < (g + 1) * group; i++) {
                const float v =
                    any_number(&rng, from, x, i, size - 12, size + (type == SYI_CODE_I8 ? 7 : 10));
                const double y = divide ? (double)v / (double)by[g] : (double)v * (double)by[g];
                want[i] = (unsigned char)oracle_code_nearest(oracle_of[type], (double)(float)y);
                largest[g] = f32_bits(fabsf(v)) > largest[g] ? f32_bits(fabsf(v)) : largest[g];
            }
        }
        (divide ? k->over : k->times)[type][from](codes, x, by, group, groups);
        k->amax[from](most, x, group, groups);
        expect_bytes(codes, want, group * groups);
        expect_bytes(most, largest, groups * sizeof *most);
        buf_free(x);
        buf_free(codes);
        buf_free(want);
    }
}

/* The number i of 65,536: all of f16 and bf16, and of f32 all upper halves. Infinities, NaN and what is beyond an i8 become
   0. */
static float number_at(int type, int from, void *x, uint32_t i, float by, int divide)
{
    const uint32_t bits = from == SYI_FLOAT_F32 ? i << 16 | (i * 40503u & 0xffffu) : i;
    const float value = (float)number_value((enum number_type)from, bits);
    const float y = divide ? value / by : value * by;
    const bool counts = isfinite(value) && (type != SYI_CODE_I8 || fabsf(y) <= 127.0f);
    memset((char *)x + i * number_bytes((enum number_type)from), 0, number_bytes((enum number_type)from));
    if (counts)
        memcpy((char *)x + i * number_bytes((enum number_type)from), &bits,
               number_bytes((enum number_type)from));
    return counts ? y : 0.0f;
}

/* In groups of two lengths, by scales of which many, few and no quotients are the middle of two codes, and by powers of two. */
static void encodes_every_number(void **state)
{
    static const float largest[] = {1.75f, 1.5f, 1.9921875f, 1.2345678f, 1.0f};
    const struct syi_encoders *k = ((const struct syi_kernels *)*state)->encoders;
    enum { ALL = 65536 };
    unsigned char *x = buf_new(ALL * 4, 0), *codes = buf_new(ALL, 0), *want = buf_new(ALL, 0);
    for (int round = 0; round < 5 * 18; round++) {
        const int type = round % 3, from = round / 3 % 3, divide = round / 9 % 2;
        const float most = round / 18 == 4 ? 512.0f : type == SYI_CODE_I8 ? 127.0f : 448.0f;
        const float a = largest[round / 18], scale = divide ? a / most : most / a;
        const size_t group = round % 2 == 0 ? 128 : 32;
        float by[ALL / 32];
        for (size_t g = 0; g < ALL / 32; g++)
            by[g] = g % 2 == 0 || group == 128 ? scale : scale * 2;
        for (uint32_t i = 0; i < ALL; i++)
            want[i] = (unsigned char)narrow(type, number_at(type, from, x, i, by[i / group], divide));
        (divide ? k->over : k->times)[type][from](codes, x, by, group, ALL / group);
        expect_bytes(codes, want, ALL);
    }
    buf_free(x);
    buf_free(codes);
    buf_free(want);
}

/* The significand b with b * odd = rest modulo 2^bits. */
static uint64_t solve(uint64_t odd, int64_t rest, int bits)
{
    uint64_t inverse = 1;
    for (int i = 0; i < 6; i++)
        inverse *= 2 - odd * inverse;
    return (uint64_t)rest * inverse & ((UINT64_C(1) << bits) - 1);
}

/* All a / b that are within 8 / (b * 2^24) of the middle of two f32 of which one is m, a number of a few bits; at every size
   that codes have. */
static void quotients_near(const struct syi_encoders *k, int type, uint64_t m, int place)
{
    for (int far = -8; far <= 8; far++)
        for (int way = 0; way < 4; way++) {
            const int shift = 24 + way / 2;
            const uint64_t middle = (m << place) + (way % 2 ? 1 : (uint64_t)-1);
            const uint64_t b = solve(middle, -far, shift), a = (b * middle + (uint64_t)far) >> shift;
            if (far == 0 || a >> 23 != 1 || b >> 23 != 1 || b == 0xffffff)
                continue;
            for (int size = type == SYI_CODE_E5M2   ? -18
                            : type == SYI_CODE_E4M3 ? -12
                                                    : -2;
                 size < 6; size++) {
                float x[64], by = (float)b;
                unsigned char codes[64], want[64];
                for (size_t i = 0; i < 64; i++)
                    x[i] = ldexpf(i % 2 ? -(float)a : (float)a, size + way / 2);
                for (size_t i = 0; i < 64; i++)
                    want[i] = (unsigned char)narrow(type, x[i] / by);
                k->over[type][SYI_FLOAT_F32](codes, x, &by, 64, 1);
                expect_bytes(codes, want, 64);
            }
        }
}

/* syi_quotient is not a division in all bits, but gives its code. Its error is smaller than this distance, and all other
   quotients are farther from the middles. */
static void divides_to_the_same_code(void **state)
{
    static const int bits[SYI_N_CODES] = {5, 4, 8}; /* of the middles of two codes */
    const struct syi_encoders *k = ((const struct syi_kernels *)*state)->encoders;
    for (int type = 0; type < SYI_N_CODES; type++)
        for (uint64_t m = UINT64_C(1) << (bits[type] - 1); m >> bits[type] == 0; m++)
            quotients_near(k, type, m, 25 - bits[type]);
}

static void amax_of_specials(void **state)
{
    const struct syi_encoders *k = ((const struct syi_kernels *)*state)->encoders;
    static const uint32_t bits[2][SYI_N_FLOATS] = {{0xff800000u, 0xfc00u, 0xff80u},
                                                   {0x7f800001u, 0x7c01u, 0xff81u}};
    for (int from = 0; from < SYI_N_FLOATS; from++)
        for (size_t at = 0; at < 70; at++)
            for (int nan = 0; nan < 2; nan++) {
                unsigned char *x = buf_new(70 * number_bytes((enum number_type)from), at % 3);
                uint32_t most;
                memset(x, 0, 70 * number_bytes((enum number_type)from));
                memcpy(x + at * number_bytes((enum number_type)from), &bits[nan][from],
                       number_bytes((enum number_type)from));
                k->amax[from](&most, x, 70, 1);
                assert_true(nan ? most > 0x7f800000u : most == 0x7f800000u);
                buf_free(x);
            }
}

static const struct CMUnitTest conversions[] = {
    cmocka_unit_test(every_code_has_its_value),
    cmocka_unit_test(rounding_is_to_nearest_even),
    cmocka_unit_test(everything_else_saturates_or_vanishes),
};

static const struct CMUnitTest of_tables[] = {
    cmocka_unit_test(decodes_all_codes),        cmocka_unit_test(decodes_groups),
    cmocka_unit_test(encodes_groups),           cmocka_unit_test(encodes_every_number),
    cmocka_unit_test(divides_to_the_same_code), cmocka_unit_test(amax_of_specials),
};

TEST_GROUP(codes)
{
    struct test_list list = {NULL, 0, 0};
    for (size_t t = 0; t < COUNT_OF(conversions); t++)
        test_add(&list, conversions[t].name, conversions[t].test_func, NULL);
    for (int i = 0; syi_kernels_at(i) != NULL; i++)
        for (size_t t = 0; t < COUNT_OF(of_tables); t++)
            test_add(&list, test_name("%s: %s", syi_kernels_at(i)->name, of_tables[t].name),
                     of_tables[t].test_func, (void *)syi_kernels_at(i));
    const uint64_t control = syi_fp_enter(); /* kernels run with the floating-point control of a task */
    const int failed = test_run(&list, "codes");
    syi_fp_leave(control);
    return failed;
}
