/*
 * quantize_rows and dequantize_rows: seeded cases against the oracle on every kernel table and several thread counts, named
 * formats and others, rows of any layout and rank, scales in every layout; every number of 16 bits through every format.
 */
#include "support_random.h"

#include "oracle/kv_format.h"
#include "oracle/quantize_rows.h"

#include <float.h>
#include <math.h>

static const char *const names[] = {"fp8_128", "fp8_128_deepep", "fp8_128_deepgemm", "fp8_128_ue8m0",
                                    "mxfp8",   "mxfp8_floor",    "int8_token",       "q8_0",
                                    "q4_0",    "nvfp4",          "nvfp4_amax"};
static const DLDataType float_types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
static const DLDataType code_types[] = {{10, 8, 1}, {12, 8, 1}, {0, 8, 1}};

static struct {
    int nan, infinite, zero_group, subnormal_scale, saturated, own_format, odd_group, whole_row, bytes, large;
    int packed, global_rows, by_column, swizzled, padded_row, padded_group, tiles, rank_1, rank_3;
} seen;

struct fixture {
    sy_row_format format;
    int64_t rows, hidden, group, n_groups, width; /* width: of a row of codes */
    sy_scale_layout layout;
    int type;    /* of float_types */
    bool simple; /* numbers of normal size and no others */
    struct tensor *input, *codes, *scales, *out, *global;
    float globals[300];
    float *x;
    void *dense, *want_out;
    uint8_t *want_codes;
    unsigned char *want_scales, *placed; /* by rows, and as the layout has them */
};

static size_t float_bytes(const struct fixture *f)
{
    return float_types[f->type].bits / 8;
}

static void store(const struct fixture *f, void *to, int64_t i, float value)
{
    const uint32_t word = isnan(value) ? 0x7fc00000u : f32_bits(value);
    const uint16_t half = f->type == 1 ? f16_round((double)value) : bf16_round((double)value);
    memcpy((char *)to + (size_t)i * float_bytes(f), f->type == 0 ? (const void *)&word : &half,
           float_bytes(f));
}

static float load(const struct fixture *f, const void *from, int64_t i)
{
    float value;
    uint16_t half;
    memcpy(&value, (const char *)from + (f->type == 0 ? 4 * i : 0), sizeof value);
    memcpy(&half, (const char *)from + 2 * i, sizeof half);
    return f->type == 0 ? value : (float)(f->type == 1 ? f16_value(half) : bf16_value(half));
}

/* A size for each group; halves of integers, so that quotients are near the middle of two codes. */
static void fill(struct fixture *f, uint64_t *rng)
{
    static const float hard[] = {0,        -0.0f,   INFINITY, -INFINITY, NAN,   FLT_MAX,
                                 -FLT_MAX, FLT_MIN, 1e-42f,   448,       127.5f};
    for (int64_t g = 0; g < f->rows * f->n_groups; g++) {
        const int64_t kind = rng_below(rng, 8), odds = f->simple ? 0 : rng_below(rng, 60);
        const int exponent = f->simple  ? (int)rng_below(rng, 20) - 10
                             : kind < 4 ? (int)rng_below(rng, 30) - 149
                                        : (int)rng_below(rng, 276) - 149;
        for (int64_t i = 0; i < f->group; i++) {
            float x = kind == 0 && !f->simple ? 0.0f
                      : kind == 1
                          ? ldexpf((float)(rng_below(rng, 1025) - 512) / 2, exponent > 100 ? 100 : exponent)
                          : ldexpf((float)rng_unit(rng) - 0.5f, exponent);
            if (odds > 40 && rng_below(rng, 100) == 0)
                x = hard[rng_below(rng, COUNT_OF(hard))];
            if (kind == 0 && rng_below(rng, 2))
                x = -x;
            store(f, f->dense, g * f->group + i, x);
        }
    }
}

static void look(const struct fixture *f)
{
    for (int64_t g = 0; g < f->rows * f->n_groups; g++) {
        float most = 0;
        bool nan = false;
        for (int64_t i = g * f->group; i < (g + 1) * f->group; i++) {
            nan = nan || isnan(f->x[i]);
            most = fmaxf(most, isnan(f->x[i]) ? 0 : fabsf(f->x[i]));
            seen.saturated += isfinite(f->x[i]) && (f->want_codes[i] & 0x7f) == 0x7e;
        }
        seen.nan += nan;
        seen.infinite += isinf(most);
        seen.zero_group += most == 0;
        uint32_t bits = UINT32_MAX;
        if (f->format.scale_type.bits == 32)
            memcpy(&bits, f->want_scales + 4 * g, 4);
        seen.subnormal_scale += bits > 0 && bits < 0x00800000u;
    }
}

static bool is_inline(const struct fixture *f)
{
    return f->format.scales == SY_SCALES_INLINE;
}

static bool is_fp4(const struct fixture *f)
{
    return f->format.q_type.code == 17;
}

static bool is_packed(const struct fixture *f)
{
    return is_inline(f) || is_fp4(f);
}

/* Rows of formats of caches, by the oracle of these. */
static void expect_packed(struct fixture *f)
{
    const size_t row = (size_t)f->hidden * float_bytes(f);
    struct packed_cache p = {.format = f->format,
                             .cache = f->want_codes,
                             .block_size = 1,
                             .block_stride = f->width,
                             .elems = f->hidden,
                             .heads = 1,
                             .scale = (float *)(void *)f->want_scales,
                             .scale_stride = f->n_groups};
    for (int64_t i = 0; i < f->rows; i++) {
        p.global = f->globals[is_fp4(f) && tensor_row_bytes(f->global) > 4 ? i : 0];
        oracle_pack(&p, i, (enum oracle_float)f->type, (const char *)f->dense + (size_t)i * row);
        oracle_unpack(&p, i, (enum oracle_float)f->type, (char *)f->want_out + (size_t)i * row);
    }
    seen.packed++;
}

static void expect_of_oracle(struct fixture *f)
{
    if (is_packed(f)) {
        expect_packed(f);
        return;
    }
    const size_t size = f->format.scale_type.bits / 8;
    for (int64_t i = 0; i < f->rows * f->hidden; i++)
        f->x[i] = load(f, f->dense, i);
    for (int64_t g = 0; g < f->rows * f->n_groups; g++) {
        const int64_t at = g * f->group;
        const uint32_t scale = oracle_quantize_group(&f->format, f->x + at, f->group, f->want_codes + at);
        const uint8_t byte = (uint8_t)scale;
        memcpy(f->want_scales + size * (size_t)g, size == 1 ? (const void *)&byte : &scale, size);
        for (int64_t i = at; i < at + f->group; i++)
            store(f, f->want_out, i, oracle_dequantize(&f->format, f->want_codes[i], scale));
    }
    look(f);
    if (f->layout != SY_SCALE_ROW)
        assert_int_equal(
            oracle_place_scales(f->layout, size, f->rows, f->n_groups, f->want_scales, f->placed),
            tensor_rows(f->scales) * (int64_t)tensor_row_bytes(f->scales) / (int64_t)size);
}

/* Rows of `width` elements: in one dimension, two or three. */
static struct tensor *rows_of(struct fixture *f, uint64_t *rng, int rank, DLDataType type, int64_t width)
{
    const int64_t shape[] = {rank == 3 ? 3 : f->rows, rank == 3 ? f->rows / 3 : width, width};
    return any_tensor_of(rng, type, rank, rank == 1 ? shape + 2 : shape);
}

static struct tensor *scales_of(struct fixture *f, uint64_t *rng, int rank, DLDataType type)
{
    const int64_t parts = 32 / f->format.scale_type.bits, words = (f->n_groups + parts - 1) / parts;
    const int64_t columns[] = {words, (f->rows + 3) / 4 * 4, parts},
                  tiles[] = {(f->rows + 127) / 128, words, 512};
    if (f->layout == SY_SCALE_ROW)
        return rows_of(f, rng, rank, type, f->n_groups);
    seen.by_column += f->layout == SY_SCALE_COL;
    seen.swizzled += f->layout == SY_SCALE_SWIZZLE;
    seen.padded_row += f->rows % 4 != 0;
    seen.padded_group += f->n_groups % parts != 0;
    seen.tiles += f->layout == SY_SCALE_SWIZZLE && f->rows > 128 && f->n_groups > 4;
    return any_tensor_of(rng, type, 3, f->layout == SY_SCALE_COL ? columns : tiles);
}

static void make(struct fixture *f, uint64_t *rng)
{
    const int rank = f->rows == 1 && rng != NULL                            ? 1
                     : f->rows % 3 == 0 && rng != NULL && rng_below(rng, 2) ? 3
                                                                            : 2;
    const bool bytes = rng == NULL || rng_below(rng, 2),
               scale_bytes = bytes && f->format.scale_type.bits == 8;
    f->hidden = f->group * f->n_groups;
    f->width = is_inline(f) ? f->n_groups * (f->format.q_type.bits == 4 ? 18 : 34)
               : is_fp4(f)  ? f->hidden / 2
                            : f->hidden;
    if (is_fp4(f)) {
        static const float far[] = {1e-45f, 1e-39f, FLT_MIN, FLT_MAX, 1e38f};
        const bool many = rng != NULL && rng_below(rng, 2);
        f->global = any_tensor_of(rng, SY_F32, 1, (int64_t[]){many ? f->rows : 1});
        for (int64_t i = 0; i < (many ? f->rows : 1); i++)
            f->globals[i] = rng == NULL ? 0.01f
                            : rng_below(rng, 8) == 0
                                ? far[rng_below(rng, COUNT_OF(far))]
                                : ldexpf(1 + (float)rng_unit(rng), (int)rng_below(rng, 200) - 100);
        seen.global_rows += many;
    }
    f->input = rows_of(f, rng, rank, float_types[f->type], f->hidden);
    f->out = rows_of(f, rng, rank, float_types[f->type], f->hidden);
    f->codes = rows_of(f, rng, rank, bytes || is_packed(f) ? SY_U8 : f->format.q_type, f->width);
    if (!is_inline(f))
        f->scales = scales_of(f, rng, rank, scale_bytes ? SY_U8 : f->format.scale_type);
    f->x = need(f->rows * f->hidden, 4);
    f->dense = need(f->rows * f->hidden, 4);
    f->want_out = need(f->rows * f->hidden, 4);
    f->want_codes = need(f->rows * (f->hidden + 2 * f->n_groups), 1);
    f->want_scales = need(f->rows * f->n_groups, 4);
    f->placed = need((f->rows + 127) * (f->n_groups + 3), 4);
    seen.bytes += bytes;
    seen.rank_1 += rank == 1;
    seen.rank_3 += rank == 3;
}

static void run(struct fixture *f, sy_ctx *ctx)
{
    const sy_fault none = {.status = SY_OK};
    const struct output quantized[] = {
        {"codes", f->codes, f->want_codes, true},
        {"scales", f->scales, f->layout == SY_SCALE_ROW ? f->want_scales : f->placed, true}};
    const struct output out[] = {{"out", f->out, f->want_out, true}};
    const size_t n = is_inline(f) ? 1 : COUNT_OF(quantized);
    const DLTensor *const scales = is_inline(f) ? NULL : &f->scales->t;
    const DLTensor *const global = is_fp4(f) ? &f->global->t : NULL;
    const sy_quantize_rows_args there = {&f->input->t, &f->format, &f->codes->t, scales, f->layout, global};
    const sy_dequantize_rows_args back = {&f->codes->t, scales, &f->format, &f->out->t, f->layout, global};
    if (is_fp4(f))
        tensor_put(f->global, f->globals);
    tensor_put(f->input, f->dense);
    fill_outputs(quantized, n);
    snap_outputs(quantized, n);
    expect_outputs(ctx, sy_quantize_rows(ctx, &there), &none, quantized, n);
    fill_outputs(out, COUNT_OF(out));
    snap_outputs(out, COUNT_OF(out));
    expect_outputs(ctx, sy_dequantize_rows(ctx, &back), &none, out, COUNT_OF(out));
}

static void check(struct fixture *f, uint64_t *rng)
{
    make(f, rng);
    fill(f, rng);
    expect_of_oracle(f);
    for (int c = 0; c < n_contexts; c++)
        run(f, contexts[c]);
    free_all();
}

static void take_named(struct fixture *f, const char *name)
{
    assert_int_equal(sy_row_format_named(name, &f->format), SY_OK);
    f->group = f->format.group;
}

/* Every pair of arithmetics, code types, and groups of any length. */
static void take_own(struct fixture *f, uint64_t *rng)
{
    static const int32_t groups[] = {1, 3, 8, 16, 40, 64, 200, 256};
    const bool power = rng_below(rng, 2);
    f->format = (sy_row_format){.bytes = sizeof f->format,
                                .q_type = code_types[rng_below(rng, power ? 2 : 3)],
                                .scale_type = power ? SY_F8_E8M0 : SY_F32,
                                .group = groups[rng_below(rng, COUNT_OF(groups))]};
    f->format.scale_math =
        (sy_scale_math)(power ? SY_SCALE_MATH_UP + rng_below(rng, 2) : SY_SCALE_MATH_DIV + rng_below(rng, 2));
    f->format.code_math = (sy_code_math)(power ? 0 : rng_below(rng, 3));
    f->format.a_min = rng_below(rng, 3) ? 0 : 1e-3;
    f->group = f->format.group;
    seen.own_format++;
    seen.odd_group += f->group % 8 != 0;
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 360; seed++) {
        uint64_t rng = seed;
        struct fixture f = {.rows = rng_below(&rng, 7), .type = (int)rng_below(&rng, 3)};
        if (seed % 3 == 0)
            take_own(&f, &rng);
        else
            take_named(&f, names[(seed - seed / 3 - 1) % COUNT_OF(names)]);
        f.n_groups = f.format.group > 0 ? rng_below(&rng, 4) : 1;
        if (f.format.group == 0) {
            f.group = rng_below(&rng, 300);
            seen.whole_row++;
        }
        const bool powers = f.format.scale_type.bits == 8;
        f.layout = seed % 2 || is_packed(&f)      ? SY_SCALE_ROW
                   : powers && rng_below(&rng, 3) ? SY_SCALE_SWIZZLE
                                                  : SY_SCALE_COL;
        if (f.layout == SY_SCALE_SWIZZLE && f.group < 40 && rng_below(&rng, 2)) {
            f.rows = 100 + rng_below(&rng, 200);
            f.n_groups = 3 + rng_below(&rng, 6);
        }
        check(&f, &rng);
    }
    static const char *const large[] = {"mxfp8", "q8_0", "q4_0", "nvfp4"};
    for (int i = 0; i < 12; i++) { /* enough for several threads, and more than 64 groups */
        uint64_t rng = 300 + (uint64_t)i;
        struct fixture f = {.rows = 30, .type = i % 3, .n_groups = 70, .simple = true};
        take_named(&f, large[i / 3]);
        check(&f, &rng);
        seen.large++;
    }
    seen.large *= 2;
    seen.tiles *= 5;
    expect_hard(seen, 20);
}

/* One row of all bit patterns, for the formats with groups; a whole row of f16 is one group. */
static void every_number_of_16_bits(void **state)
{
    (void)state;
    for (size_t n = 0; n < COUNT_OF(names); n++)
        for (int type = 1; type < 3; type++) {
            struct fixture f = {.rows = 1, .type = type};
            take_named(&f, names[n]);
            f.group = f.group > 0 ? f.group : 65536;
            f.n_groups = 65536 / f.group;
            make(&f, NULL);
            for (int64_t i = 0; i < 65536; i++)
                memcpy((char *)f.dense + 2 * i, &(uint16_t){(uint16_t)i}, 2);
            expect_of_oracle(&f);
            for (int c = 0; c < n_contexts; c += 4) /* once for each kernel table */
                run(&f, contexts[c]);
            free_all();
        }
}

/* A scale whose significand is all ones, and quotients that round to the number after the middle of two codes. */
static void scale_of_all_ones(void **state)
{
    (void)state;
    struct fixture f = {.rows = 1, .type = 0, .n_groups = 1};
    take_named(&f, "fp8_128");
    make(&f, NULL);
    for (int64_t i = 0; i < f.group; i++)
        store(&f, f.dense, i, i == 5 ? 0x1.bffffep9f : 0x1p-9f);
    expect_of_oracle(&f);
    assert_int_equal(f.want_codes[0], 1);
    for (int c = 0; c < n_contexts; c += 4)
        run(&f, contexts[c]);
    free_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases),
        cmocka_unit_test(every_number_of_16_bits),
        cmocka_unit_test(scale_of_all_ones),
    };
    return cmocka_run_group_tests_name("op_quantize_rows", tests, open_contexts, close_contexts);
}
