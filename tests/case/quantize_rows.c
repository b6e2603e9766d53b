/*
 * quantize_rows: codes of 4 or 8 bits of rows, with a scale for each group.
 */
#include "case.h"

#include "oracle/kv_format.h"
#include "oracle/quantize_rows.h"

static sy_quantize_rows_args *args_of(struct call *c)
{
    return case_args(c);
}

static void make(struct call *c)
{
    const struct coded_rows r = case_coded_rows(c, "format");
    struct operand *const input = case_in_as(c, "input", (DLDataType){0}, r.rank, r.shape);
    args_of(c)->scale_layout = r.layout;
    if (input->element == 2 && case_chance(c, "all_values", 30))
        for (int64_t i = 0; i < case_count(input); i++)
            case_put(input, i, i);
    else if (case_chance(c, "flavoured", 3))
        case_fill_floats(c, input);
    else
        case_fill_groups(c, input, r.group + (r.group == 0));
    if (case_chance(c, "all_ones", 30) &&
        input->element == 4) /* a scale of all ones, quotients near the middle */
        for (int64_t i = 0; i < case_count(input); i++)
            case_put_real(input, input->dense, i, r.group > 5 && i % r.group == 5 ? 0x1.bffffep9 : 0x1p-9);
    case_fill_global(c, &r);
    case_out_codes(c, "codes", r.packed ? SY_U8 : r.format->q_type, r.rank, r.code_shape);
    if (!r.inlined)
        case_out_codes(c, "scales", r.format->scale_type, r.scale_rank, r.scale_shape);
}

static void pack_rows(struct call *c, int64_t rows, int64_t hidden, uint8_t *scales)
{
    const struct operand *const input = case_field(c, "input");
    struct packed_cache p = {.format = *args_of(c)->format,
                             .cache = case_want(c, "codes"),
                             .block_size = 1,
                             .block_stride = rows > 0 ? case_count(case_field(c, "codes")) / rows : 0,
                             .elems = hidden,
                             .heads = 1,
                             .scale = (float *)(void *)scales,
                             .scale_stride = hidden / args_of(c)->format->group};
    for (int64_t i = 0; i < rows; i++) {
        p.global = case_global(c, i);
        oracle_pack(&p, i, case_number(input), input->dense + (size_t)(i * hidden) * input->element);
    }
}

static void oracle(struct call *c)
{
    const sy_row_format *const f = args_of(c)->format;
    const struct operand *const input = case_field(c, "input"), *const codes = case_field(c, "codes");
    const int64_t hidden = input->shape[input->rank - 1], groups = f->group > 0 ? hidden / f->group : 1;
    const size_t size = f->scale_type.bits / 8;
    int64_t rows = 1;
    for (int d = 0; d < input->rank - 1; d++)
        rows *= input->shape[d];
    uint8_t *const scales = case_memory(c, (size_t)(rows * groups) * size);
    uint8_t *const out = case_want(c, "scales");
    float *const x = case_memory(c, (size_t)hidden * sizeof *x);
    c->query = (sy_query){.rows = rows, .slots = groups};
    c->want = case_global_fault(c, rows);
    case_note(c, "bad global scale", c->want.status != SY_OK);
    case_note(c, "columns", args_of(c)->scale_layout == SY_SCALE_COL && rows % 4 != 0);
    case_note(c, "tiles", args_of(c)->scale_layout == SY_SCALE_SWIZZLE && rows > 128 && groups > 4);
    if (c->want.status != SY_OK)
        return;
    if (f->scale_math == SY_SCALE_MATH_CACHE) {
        pack_rows(c, rows, hidden, scales);
        if (out != NULL)
            case_expect(c, "scales", scales);
        return;
    }
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t h = 0; h < hidden; h++)
            x[h] = (float)case_real(input, i * hidden + h);
        case_quantize(f, x, hidden, codes->want + i * hidden, scales + (size_t)(i * groups) * size);
    }
    if (args_of(c)->scale_layout == SY_SCALE_ROW)
        case_expect(c, "scales", scales);
    else
        oracle_place_scales(args_of(c)->scale_layout, size, rows, groups, scales, out);
}

#define AS_NAMED "as sy_kv_format_named sets q8_0 or q4_0"
#define NO_CACHE "0: it is for caches"
#define INLINED .line = "format=q4_0 rows=3 groups=2"
static const struct rejection rejections[] = {
    {"format=-", SY_ERR_NULL, "is missing", "the format of the rows"},
    {"format.bytes=56", SY_ERR_VALUE, "scale_math 0", "1 to 4: DIV, MUL, UP, FLOOR"},
    {"format.q_type=f32", SY_ERR_VALUE, "q_type f32", "f8_e4m3, f8_e5m2 or i8"},
    {"format.q_type=f8_e8m0", SY_ERR_VALUE, "q_type f8_e8m0", "f8_e4m3, f8_e5m2 or i8"},
    {"format.scale_type=f16", SY_ERR_VALUE, "scale_type f16", "f32 with scale_math DIV or MUL"},
    {"format.scale_type=f8_e8m0", SY_ERR_VALUE, "scale_type f8_e8m0", "f32 with scale_math DIV or MUL"},
    {"format.scale_math=5", SY_ERR_VALUE, "scale_math 5", "1 to 4"},
    {"format.scale_math=-1", SY_ERR_VALUE, "scale_math -1", "1 to 4"},
    {"format.scale_math=3", SY_ERR_VALUE, "scale_type f32", "f8_e8m0 with scale_math UP or FLOOR"},
    {"format.code_math=3", SY_ERR_VALUE, "code_math 3", "0 to 2: DIV, RCP, AMAX"},
    {"format.code_math=-1", SY_ERR_VALUE, "code_math -1", "0 to 2"},
    {"format.a_min=-1", SY_ERR_VALUE, "a_min -1", "0 or more"},
    {"format.a_min=nan", SY_ERR_VALUE, "a_min", "0 or more"},
    {"format.a_min=1e39", SY_ERR_VALUE, "a_min 1e+39", "as f32"},
    {"format.scales=1", SY_ERR_VALUE, "scales 1", NO_CACHE},
    {"format.q_count=8", SY_ERR_VALUE, "q_count 8", NO_CACHE},
    {"format.rope_bytes=2", SY_ERR_VALUE, "rope_bytes 2", NO_CACHE},
    {"format.global_is=1", SY_ERR_VALUE, "global_is 1", NO_CACHE},
    {"format.q_type=i8", SY_ERR_VALUE, "q_type i8", "f8_e4m3 or f8_e5m2", .line = "format=mxfp8 rows=3"},
    {"format.code_math=1", SY_ERR_VALUE, "code_math 1", "0: scales are powers of two",
     .line = "format=mxfp8 rows=3"},
    {"format.group=16", SY_ERR_VALUE, "scales inline", AS_NAMED, INLINED},
    {"format.scale_type=f32", SY_ERR_VALUE, "scales inline", AS_NAMED, INLINED},
    {"format.a_min=1", SY_ERR_VALUE, "scales inline", AS_NAMED, INLINED},
    {"scales=codes", SY_ERR_VALUE, "is given", "none: the codes have the scales", INLINED},
    {"input.shape[1]=40", SY_ERR_SHAPE, "rows of 40", "a multiple of 32", INLINED},
    {"scale_layout=3", SY_ERR_VALUE, "is 3", "0 to 2: ROW, COL, SWIZZLE"},
    {"scale_layout=-1", SY_ERR_VALUE, "is -1", "0 to 2"},
    {"scale_layout=3", SY_ERR_VALUE, "is 3", "0 to 2", INLINED},
    {"scale_layout=swizzle", SY_ERR_VALUE, "is SWIZZLE", "ROW or COL: the scales of the format are f32"},
    {"scale_layout=swizzle", SY_ERR_VALUE, "is SWIZZLE", "ROW: the scales of the format are in the rows",
     INLINED},
    {"scale_layout=col", SY_ERR_SHAPE, "[3,2]", "[2,4,1]", .blame = "scales", .late = true},
    {"global_scale.shape[0]=2", SY_ERR_SHAPE, "[2]", "[1] or [3]", .line = "format=nvfp4 rows=3 groups=2"},
    {"global_scale=-", SY_ERR_NULL, .line = "format=nvfp4 rows=3 groups=2"},
    {.change = NULL},
};

const struct op_case case_quantize_rows = {
    .name = "quantize_rows",
    .make = make,
    .oracle = oracle,
    .hard = {"bad global scale", "columns", "tiles"},
    .small = "format=fp8_128 rows=3 groups=2 f32",
    .lines = {"format=mxfp8 rows=6 groups=70 f32", "format=q8_0 rows=6 groups=70 f16",
              "format=q4_0 rows=6 groups=70 bf16", "format=nvfp4 rows=6 groups=70 f32",
              "format=int8_token rows=2 H=20000 f16 all_values",
              "format=fp8_128 rows=1 groups=512 f16 all_values",
              "format=mxfp8 rows=1 groups=2048 bf16 all_values",
              "format=nvfp4_amax rows=1 groups=4096 f16 all_values",
              "format=q8_0 rows=1 groups=2048 bf16 all_values",
              "format=fp8_128 rows=1 groups=1 f32 all_ones"},
    .rejections = rejections,
    .unchecked = " global_scale scale_layout ",
    .calls = 320,
};
