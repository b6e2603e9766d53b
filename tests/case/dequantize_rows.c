/*
 * dequantize_rows: numbers of codes of 4 or 8 bits and their scales, which are any bits here.
 */
#include "case.h"

#include "oracle/kv_format.h"
#include "oracle/quantize_rows.h"

static sy_dequantize_rows_args *args_of(struct call *c)
{
    return case_args(c);
}

static struct operand *coded_in(struct call *c, const char *field, DLDataType type, int rank,
                                const int64_t *shape)
{
    const bool bytes = type.bits < 8 || (type.bits == 8 && case_flag(c, field));
    struct operand *const x = case_in_as(c, field, bytes ? SY_U8 : type, rank, shape);
    x->accepts = (1u << sy_type_of(type) | (type.bits <= 8 ? 1u << SY_TYPE_U8 : 0)) & ~1u;
    case_fill(c, x);
    return x;
}

static void make(struct call *c)
{
    const struct coded_rows r = case_coded_rows(c, "format");
    args_of(c)->scale_layout = r.layout;
    coded_in(c, "codes", r.packed ? SY_U8 : r.format->q_type, r.rank, r.code_shape);
    if (!r.inlined) {
        struct operand *const scales =
            coded_in(c, "scales", r.format->scale_type, r.scale_rank, r.scale_shape);
        if (scales->element == 4 && case_chance(c, "usual", 2))
            case_fill_numbers(c, scales, FINE);
    }
    case_fill_global(c, &r);
}

/* The scales row by row: where numbers come that are placed as scales are. */
static void *scales_by_rows(struct call *c, int64_t rows, int64_t groups)
{
    const struct operand *const x = case_field(c, "scales");
    const int64_t n = rows * groups, places = case_count(x);
    uint8_t *const by_rows = case_memory(c, (size_t)n * x->element);
    int64_t *const from = case_memory(c, (size_t)places * sizeof *from);
    uint8_t *const digits = case_memory(c, 4 * (size_t)n), *const placed = case_memory(c, 4 * (size_t)places);
    if (args_of(c)->scale_layout == SY_SCALE_ROW)
        return x->dense;
    for (int digit = 0; digit < 4; digit++) { /* of the numbers from 1 */
        for (int64_t i = 0; i < n; i++)
            digits[(size_t)i * x->element] = (uint8_t)((i + 1) >> 8 * digit);
        oracle_place_scales(args_of(c)->scale_layout, x->element, rows, groups, digits, placed);
        for (int64_t i = 0; i < places; i++)
            from[i] |= (int64_t)placed[(size_t)i * x->element] << 8 * digit;
    }
    for (int64_t i = 0; i < places; i++)
        if (from[i] > 0)
            memcpy(by_rows + (size_t)(from[i] - 1) * x->element, x->dense + (size_t)i * x->element,
                   x->element);
    return by_rows;
}

static void unpack_rows(struct call *c, int64_t rows, int64_t hidden)
{
    const struct operand *const out = case_field(c, "out"), *const codes = case_field(c, "codes");
    struct packed_cache p = {.format = *args_of(c)->format,
                             .cache = codes->dense,
                             .block_size = 1,
                             .block_stride = codes->shape[codes->rank - 1],
                             .elems = hidden,
                             .heads = 1,
                             .scale = (float *)(void *)case_field(c, "scales")->dense,
                             .scale_stride = hidden / args_of(c)->format->group};
    for (int64_t i = 0; i < rows; i++) {
        p.global = case_global(c, i);
        oracle_unpack(&p, i, case_number(out), out->want + (size_t)(i * hidden) * out->element);
    }
}

static void oracle(struct call *c)
{
    const sy_row_format *const f = args_of(c)->format;
    const struct operand *const out = case_field(c, "out"), *const codes = case_field(c, "codes");
    const int64_t hidden = out->shape[out->rank - 1], groups = f->group > 0 ? hidden / f->group : 1;
    int64_t rows = 1;
    for (int d = 0; d < out->rank - 1; d++)
        rows *= out->shape[d];
    c->query = (sy_query){.rows = rows, .slots = groups};
    c->want = case_global_fault(c, rows);
    case_note(c, "bad global scale", c->want.status != SY_OK);
    if (c->want.status != SY_OK)
        return;
    if (f->scale_math == SY_SCALE_MATH_CACHE) {
        unpack_rows(c, rows, hidden);
        return;
    }
    const uint8_t *const scales = scales_by_rows(c, rows, groups);
    float *const x = case_memory(c, (size_t)hidden * sizeof *x);
    for (int64_t i = 0; i < rows; i++) {
        case_dequantize(f, codes->dense + i * hidden,
                        scales + (size_t)(i * groups) * (f->scale_type.bits / 8), hidden, x);
        for (int64_t h = 0; h < hidden; h++)
            case_put_real(out, out->want, i * hidden + h, (double)x[h]);
    }
}

static const struct rejection rejections[] = {
    {"format.scale_type=f32", SY_ERR_VALUE, "scale_type f32", "f8_e8m0"},
    {"scales.shape[1]=1", SY_ERR_SHAPE, "[3,1]", "[3,2]"},
    {"scales.shape[0]=4", SY_ERR_SHAPE, "[4,2]", "[3,2]"},
    {"scale_layout=3", SY_ERR_VALUE, "is 3", "0 to 2: ROW, COL, SWIZZLE"},
    {"scale_layout=col", SY_ERR_SHAPE, "[3,2]", "[1,4,4]", .blame = "scales"},
    {"scale_layout=swizzle", SY_ERR_SHAPE, "[3,2]", "[1,1,512]", .blame = "scales"},
    {"global_scale=-", SY_ERR_NULL, .line = "format=nvfp4 rows=3 groups=2"},
    {.change = NULL},
};

const struct op_case case_dequantize_rows = {
    .name = "dequantize_rows",
    .make = make,
    .oracle = oracle,
    .hard = {"bad global scale"},
    .small = "format=mxfp8 rows=3 groups=2",
    .lines = {"format=mxfp8 rows=30 groups=70", "format=q8_0 rows=30 groups=70",
              "format=q4_0 rows=30 groups=70", "format=nvfp4 rows=30 groups=70",
              "format=fp8_128 rows=40 groups=40"},
    .rejections = rejections,
    .unchecked = " global_scale scale_layout ",
    .calls = 400,
};
