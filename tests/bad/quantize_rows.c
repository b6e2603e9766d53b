/*
 * quantize_rows and dequantize_rows reject: one valid call of each, one spoiler per row, the status, the sentence and
 * untouched outputs. Then pairs of faults, of which the one that comes first in the documented order must win.
 */
#include "support.h"

#include <math.h>

enum { ROWS = 3, GROUP = 4, GROUPS = 2 };

static sy_row_format format; /* of the call, to be spoiled */

static const sy_row_format floats = {.bytes = sizeof floats,
                                     .q_type = {10, 8, 1},
                                     .scale_type = {2, 32, 1},
                                     .group = GROUP,
                                     .a_min = 1e-10,
                                     .scale_math = SY_SCALE_MATH_DIV};
static const sy_row_format powers = {.bytes = sizeof powers,
                                     .q_type = {10, 8, 1},
                                     .scale_type = {14, 8, 1},
                                     .group = GROUP,
                                     .scale_math = SY_SCALE_MATH_UP};

static void make_quantize(struct test_call *c)
{
    sy_quantize_rows_args *a = &c->args.quantize;
    *c = (struct test_call){.op = "quantize_rows", .first_output = 1};
    format = floats;
    a->format = &format;
    struct tensor *input = test_call_add(c, "input", &a->input, SY_F32, 2, (int64_t[]){ROWS, GROUP * GROUPS});
    test_call_add(c, "codes", &a->codes, SY_F8_E4M3, 2, (int64_t[]){ROWS, GROUP * GROUPS});
    test_call_add(c, "scales", &a->scales, SY_F32, 2, (int64_t[]){ROWS, GROUPS});
    for (int i = 0; i < ROWS * GROUP * GROUPS; i++)
        ((float *)(void *)input->mem)[i] = (float)i;
}

static void make_dequantize(struct test_call *c)
{
    sy_dequantize_rows_args *a = &c->args.dequantize;
    *c = (struct test_call){.op = "dequantize_rows", .first_output = 2};
    format = powers;
    a->format = &format;
    test_call_add(c, "codes", &a->codes, SY_U8, 2, (int64_t[]){ROWS, GROUP * GROUPS});
    test_call_add(c, "scales", &a->scales, SY_F8_E8M0, 2, (int64_t[]){ROWS, GROUPS});
    test_call_add(c, "out", &a->out, SY_BF16, 2, (int64_t[]){ROWS, GROUP * GROUPS});
}

SPOILER(no_format, c->args.quantize.format = NULL)
SPOILER(no_bytes, format.bytes = 0)
SPOILER(old_format, format.bytes = offsetof(sy_row_format, a_min))
SPOILER(q_f32, format.q_type = SY_F32)
SPOILER(q_e8m0, format.q_type = SY_F8_E8M0)
SPOILER(scale_f16, format.scale_type = SY_F16)
SPOILER(scale_e8m0, format.scale_type = SY_F8_E8M0)
SPOILER(math_0, format.scale_math = SY_SCALE_MATH_CACHE)
SPOILER(math_5, format.scale_math = (sy_scale_math)5)
SPOILER(math_less, format.scale_math = (sy_scale_math)-1)
SPOILER(math_up, format.scale_math = SY_SCALE_MATH_UP)
SPOILER(codes_3, format.code_math = (sy_code_math)3)
SPOILER(codes_less, format.code_math = (sy_code_math)-1)
SPOILER(group_less, format.group = -1)
SPOILER(group_3, format.group = 3)
SPOILER(least_less, format.a_min = -1)
SPOILER(least_nan, format.a_min = NAN)
SPOILER(least_infinite, format.a_min = 1e39)
SPOILER(in_rows, format.scales = SY_SCALES_ROW)
SPOILER(of_caches, format.q_count = 8)
SPOILER(with_rope, format.rope_bytes = 2)
SPOILER(layout_3, c->args.quantize.scale_layout = (sy_scale_layout)3)
SPOILER(layout_less, c->args.quantize.scale_layout = (sy_scale_layout)-1)
SPOILER(by_columns, c->args.quantize.scale_layout = SY_SCALE_COL)
SPOILER(swizzled, c->args.quantize.scale_layout = SY_SCALE_SWIZZLE)
SPOILER(columns_back, c->args.dequantize.scale_layout = SY_SCALE_COL)
SPOILER(swizzled_back, c->args.dequantize.scale_layout = SY_SCALE_SWIZZLE)
SPOILER(power_i8, format.q_type = SY_I8)
SPOILER(power_rcp, format.code_math = SY_CODE_MATH_RCP)
SPOILER(power_f32, format.scale_type = SY_F32)

static void make_inline(struct test_call *c)
{
    sy_quantize_rows_args *a = &c->args.quantize;
    *c = (struct test_call){.op = "quantize_rows", .first_output = 1};
    (void)sy_row_format_named("q4_0", &format);
    a->format = &format;
    struct tensor *input = test_call_add(c, "input", &a->input, SY_F32, 2, (int64_t[]){ROWS, 64});
    test_call_add(c, "codes", &a->codes, SY_U8, 2, (int64_t[]){ROWS, 36});
    memset(input->mem, 0, sizeof(float) * ROWS * 64);
}

SPOILER(inline_group, format.group = 16)
SPOILER(inline_f32, format.scale_type = SY_F32)
SPOILER(inline_least, format.a_min = 1)
SPOILER(no_scales, c->args.quantize.scales = NULL)
SPOILER(no_scales_back, c->args.dequantize.scales = NULL)
SPOILER(more_scales, c->args.quantize.scales = c->args.quantize.codes)

#define BAD_FORMAT(f, text, right) BAD_CALL(f, SY_ERR_VALUE, "format", text, right), .query = true

static const struct rejection quantize_rows[] = {
    {"no format", BAD_CALL(no_format, SY_ERR_NULL, "format", "is missing", "the format of the rows"),
     .query = true},
    {"a format without its size", BAD_FORMAT(no_bytes, "bytes 0", "sizeof(sy_kv_format), 80")},
    {"a format of an old header", BAD_FORMAT(old_format, "scale_math 0", "1 to 4: DIV, MUL, UP, FLOOR")},
    {"codes of f32", BAD_FORMAT(q_f32, "q_type f32", "f8_e4m3, f8_e5m2 or i8")},
    {"codes of e8m0", BAD_FORMAT(q_e8m0, "q_type f8_e8m0", "f8_e4m3, f8_e5m2 or i8")},
    {"scales of f16", BAD_FORMAT(scale_f16, "scale_type f16", "f32 with scale_math DIV or MUL")},
    {"scales of e8m0 by DIV", BAD_FORMAT(scale_e8m0, "scale_type f8_e8m0", "f32 with scale_math DIV or MUL")},
    {"a format of caches", BAD_FORMAT(math_0, "scale_math 0", "other formats are of caches")},
    {"scale_math 5", BAD_FORMAT(math_5, "scale_math 5", "1 to 4")},
    {"scale_math -1", BAD_FORMAT(math_less, "scale_math -1", "1 to 4")},
    {"f32 by UP", BAD_FORMAT(math_up, "scale_type f32", "f8_e8m0 with scale_math UP or FLOOR")},
    {"code_math 3", BAD_FORMAT(codes_3, "code_math 3", "0 to 2: DIV, RCP, AMAX")},
    {"code_math -1", BAD_FORMAT(codes_less, "code_math -1", "0 to 2")},
    {"groups of less", BAD_FORMAT(group_less, "group -1", "1 or more, or 0: the row")},
    {"a_min -1", BAD_FORMAT(least_less, "a_min -1", "0 or more")},
    {"a_min nan", BAD_FORMAT(least_nan, "a_min", "0 or more")},
    {"a_min 1e39", BAD_FORMAT(least_infinite, "a_min 1e+39", "as f32")},
    {"scales in the row", BAD_FORMAT(in_rows, "scales 1", "0: it is for caches")},
    {"a number of codes", BAD_FORMAT(of_caches, "q_count 8", "0: it is for caches")},
    {"rope", BAD_FORMAT(with_rope, "rope_bytes 2", "0: it is for caches")},

    {"layout 3", BAD_CALL(layout_3, SY_ERR_VALUE, "scale_layout", "is 3", "0 to 2: ROW, COL, SWIZZLE"),
     .query = true},
    {"layout -1", BAD_CALL(layout_less, SY_ERR_VALUE, "scale_layout", "is -1", "0 to 2"), .query = true},
    {"f32 swizzled",
     BAD_CALL(swizzled, SY_ERR_VALUE, "scale_layout", "is SWIZZLE",
              "ROW or COL: the scales of the format are f32"),
     .query = true},
    {"scales by rows with COL", BAD_CALL(by_columns, SY_ERR_SHAPE, "scales", "[3,2]", "[2,4,1]")},

    {"groups of three", BAD_CALL(group_3, SY_ERR_SHAPE, "input", "rows of 8", "a multiple of 3"),
     .query = true},
    {"codes of another format", BAD_TYPE("codes", 12, 8, 1), .found = "f8_e5m2", .wanted = "f8_e4m3 or u8"},
    {"scales of e8m0", BAD_TYPE("scales", 14, 8, 1), .found = "f8_e8m0", .wanted = "f32"},
    {"scales of bytes", BAD_TYPE("scales", 1, 8, 1), .found = "u8", .wanted = "f32"},
    {"codes one row short", BAD_EXTENT("codes", 0, 2, "[2,8]", "[3,8]")},
    {"codes one long", BAD_EXTENT("codes", 1, 9, "[3,9]", "[3,8]")},
    {"scales one short", BAD_EXTENT("scales", 1, 1, "[3,1]", "[3,2]")},
    {"input with inner stride 2", BAD_STRIDE("input", 1, 2, "2", "contiguous"), .query = true},
    {"codes with overlapping rows", BAD_STRIDE("codes", 0, 7, "7", "8")},
    {"scales with overlapping rows", BAD_STRIDE("scales", 0, 1, "1", "2")},
    {"codes upon the input", BAD_OVER("codes", "input", 0)},
    {"no scales", BAD_CALL(no_scales, SY_ERR_NULL, "scales", "is missing", "a tensor")},
};

#define AS_NAMED "as sy_kv_format_named sets q8_0 or q4_0"

static const struct rejection inlined[] = {
    {"groups of 16", BAD_FORMAT(inline_group, "scales inline", AS_NAMED)},
    {"scales of f32", BAD_FORMAT(inline_f32, "scales inline", AS_NAMED)},
    {"a least amax", BAD_FORMAT(inline_least, "scales inline", AS_NAMED)},
    {"scales", BAD_CALL(more_scales, SY_ERR_VALUE, "scales", "is given", "none: the codes have the scales")},
    {"swizzled",
     BAD_CALL(swizzled, SY_ERR_VALUE, "scale_layout", "is SWIZZLE",
              "ROW: the scales of the format are in the rows"),
     .query = true},
    {"layout 3", BAD_CALL(layout_3, SY_ERR_VALUE, "scale_layout", "is 3", "0 to 2"), .query = true},
    {"rows of 40", BAD_EXTENT("input", 1, 40, "rows of 40", "a multiple of 32"), .query = true},
    {"codes of int8", BAD_TYPE("codes", 0, 8, 1), .found = "i8", .wanted = "u8"},
    {"codes one long", BAD_EXTENT("codes", 1, 37, "[3,37]", "[3,36]")},
};

static const struct rejection dequantize_rows[] = {
    {"codes of int8 with powers", BAD_FORMAT(power_i8, "q_type i8", "f8_e4m3 or f8_e5m2")},
    {"powers by RCP", BAD_FORMAT(power_rcp, "code_math 1", "0: scales are powers of two")},
    {"powers of f32", BAD_FORMAT(power_f32, "scale_type f32", "f8_e8m0")},
    {"groups of three", BAD_CALL(group_3, SY_ERR_SHAPE, "codes", "rows of 8", "a multiple of 3"),
     .query = true},
    {"codes of int8", BAD_TYPE("codes", 0, 8, 1), .found = "i8", .wanted = "f8_e4m3 or u8", .query = true},
    {"scales of f32", BAD_TYPE("scales", 2, 32, 1), .found = "f32", .wanted = "f8_e8m0 or u8", .query = true},
    {"scales one row long", BAD_EXTENT("scales", 0, 4, "[4,2]", "[3,2]"), .query = true},
    {"scales by rows with COL", BAD_CALL(columns_back, SY_ERR_SHAPE, "scales", "[3,2]", "[1,4,4]"),
     .query = true},
    {"scales by rows with SWIZZLE", BAD_CALL(swizzled_back, SY_ERR_SHAPE, "scales", "[3,2]", "[1,1,512]"),
     .query = true},
    {"out one short", BAD_EXTENT("out", 1, 7, "[3,7]", "[3,8]")},
    {"no scales", BAD_CALL(no_scales_back, SY_ERR_NULL, "scales", "is missing", "a tensor"), .query = true},
};

/* In the documented order; each acts on another argument, so that any two can be present at once. */
static const struct rejection ladder[] = {
    {"null", NO_DATA("scales")},
    {"dtype", BAD_TYPE("input", kDLInt, 32, 1)},
    {"value", BAD_CALL(least_less, SY_ERR_VALUE, "format", NULL, NULL)},
    {"output shape", BAD_EXTENT("codes", 0, 2, NULL, NULL)},
    {"stride", BAD_STRIDE("input", 0, 2, NULL, NULL)},
    {"device", BAD_DEVICE("codes", kDLCUDA)},
};

int main(void)
{
    struct test_list list = {0};
    test_add_described(&list, make_quantize);
    test_add_described(&list, make_dequantize);
    test_add_rejections(&list, make_quantize, quantize_rows, COUNT_OF(quantize_rows));
    test_add_rejections(&list, make_dequantize, dequantize_rows, COUNT_OF(dequantize_rows));
    test_add_rejections(&list, make_inline, inlined, COUNT_OF(inlined));
    test_add_ladder(&list, make_quantize, ladder, COUNT_OF(ladder));
    return test_run(&list, "bad_quantize_rows");
}
