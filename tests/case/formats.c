/*
 * Row formats: rows of codes with a scale for each group of numbers.
 */
#include "case.h"

#include <math.h>
#include <stdio.h>

#include "oracle/quantize_rows.h"

/* Every pair of arithmetics, code types, and groups of any length. */
static sy_row_format own_format(struct stream *s)
{
    static const int32_t groups[] = {1, 3, 8, 16, 24, 40, 64, 200, 256};
    static const DLDataType codes[] = {{10, 8, 1}, {12, 8, 1}, {0, 8, 1}};
    const bool power = stream_chance(s, 2);
    sy_row_format f = {.bytes = sizeof f, .scale_type = power ? SY_F8_E8M0 : SY_F32};
    f.q_type = codes[stream_below(s, power ? 2 : 3)];
    f.group = groups[stream_below(s, 9)];
    f.scale_math = (sy_scale_math)((power ? SY_SCALE_MATH_UP : SY_SCALE_MATH_DIV) + stream_below(s, 2));
    f.code_math = (sy_code_math)(power ? 0 : stream_below(s, 3));
    f.a_min = stream_chance(s, 3) ? 1e-3 : 0;
    return f;
}

sy_row_format *case_format(struct call *c, const char *field)
{
    const sy_field_info *f = NULL;
    char name[40], text[40];
    int n = 1;
    for (int i = c->info->n_tensors; i < c->info->n_fields; i++)
        if (strcmp(sy_op_field(c->info, i)->name, field) == 0)
            f = sy_op_field(c->info, i);
    sy_row_format *const format = case_memory(c, sizeof *format);
    for (const char *at = f->words; strchr(at, ' ') != NULL; at = strchr(at, ' ') + 1)
        n++;
    snprintf(name, sizeof name, "format:%s", field);
    if (c->in->kind == READ_TEXT && !case_line_word(c, field, text, sizeof text))
        return NULL;
    c->format = c->in->kind == READ_TEXT ? n : 1 + (int)case_pick(c, name, n + 1); /* the first is "-" */
    if (c->in->kind != READ_TEXT && c->format < n) {
        const char *at = f->words;
        for (int i = 0; i < c->format; i++)
            at = strchr(at, ' ') + 1;
        snprintf(text, sizeof text, "%.*s", (int)strcspn(at, " "), at);
    }
    if (c->in->kind != READ_TEXT && c->format >= n)
        *format = own_format(case_stream(c, name));
    else if (sy_row_format_named(text, format) != SY_OK)
        case_fail(c, NULL, "there is no format %s", text);
    memcpy((char *)&c->args + f->offset, &format, sizeof format);
    return format;
}

/* The type of the format, or bytes. */
static DLDataType code_type(struct call *c, const char *field, DLDataType type)
{
    struct operand *const x = case_field(c, field);
    char name[40];
    snprintf(name, sizeof name, "bytes:%s", field);
    x->accepts = 1u << sy_type_of(type) | (type.bits <= 8 ? 1u << SY_TYPE_U8 : 0);
    x->accepts &= ~(1u << SY_TYPE_OTHER);
    return type.bits < 8 || (type.bits == 8 && case_flag(c, name)) ? SY_U8 : type;
}

struct operand *case_out_codes(struct call *c, const char *field, DLDataType type, int rank,
                               const int64_t *shape)
{
    return case_out_as(c, field, code_type(c, field, type), rank, shape);
}

void case_in_codes(struct call *c, const char *codes, const char *scales, const sy_row_format *f)
{
    case_fill(c, case_in_as(c, codes, code_type(c, codes, f->q_type), -1, NULL));
    struct operand *const x = case_in_as(c, scales, code_type(c, scales, f->scale_type), -1, NULL);
    struct stream *const s = case_stream(c, scales);
    for (int64_t i = 0; i < case_count(x); i++)
        if (x->element == 1)
            case_put(x, i, stream_chance(s, 9) ? stream_below(s, 256) : 120 + stream_below(s, 12));
        else
            case_put(x, i, (int64_t)case_float(s, SY_F32, stream_chance(s, 9) ? SPECIAL : FINE));
}

void case_groups(struct call *c, const sy_row_format *f)
{
    if (f->group == 0) {
        case_size(c, "H", 0, 200, 200);
        case_extent(c, "G", 1);
        return;
    }
    const bool many = f->group <= 40 && case_chance(c, "many_groups", 8);
    const int64_t n = c->in->kind == READ_TEXT ? case_size(c, "H", 0, f->group, f->group) / f->group
                      : many                   ? 140
                                               : case_pick(c, "groups", 4);
    case_extent(c, "G", n);
    case_extent(c, "H", n * f->group);
}

DLDataType case_number_type(struct call *c, const char *field)
{
    static const sy_type types[] = {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16};
    char name[40], word[8];
    snprintf(name, sizeof name, "number:%s", field);
    case_field(c, field)->accepts = 1u << SY_TYPE_F32 | 1u << SY_TYPE_F16 | 1u << SY_TYPE_BF16;
    for (int i = 0; i < 3 && case_line_word(c, field, word, sizeof word); i++)
        if (strcmp(word, sy_type_name(types[i])) == 0)
            return sy_dtype(types[i]);
    return sy_dtype(types[case_pick(c, name, 3)]);
}

void case_fill_groups(struct call *c, struct operand *x, int64_t group)
{
    static const float hard[] = {0,         -0.0f,  INFINITY, -INFINITY, NAN, 0x1.fffffep127f,
                                 0x1p-126f, 1e-42f, 448,      127.5f};
    struct stream *const s = case_stream(c, x->field->name);
    const bool plain = c->in->kind == READ_TEXT || stream_chance(s, 3); /* of normal size and no others */
    int64_t kind = 0, odds = 0;
    int exponent = 0;
    for (int64_t i = 0; i < case_count(x); i++) {
        if (i % group == 0) {
            kind = stream_below(s, 8);
            odds = plain ? 0 : stream_below(s, 60);
            exponent =
                plain ? (int)stream_below(s, 20) - 10 : (int)stream_below(s, kind < 4 ? 30 : 276) - 149;
        }
        const float unit = (float)(stream_bits(s) >> 40) * 0x1p-24f - 0.5f;
        const float half = (float)(stream_below(s, 1025) - 512) / 2;
        float y = kind == 0 && !plain ? (stream_chance(s, 2) ? -0.0f : 0.0f)
                  : kind == 1         ? ldexpf(half, exponent > 100 ? 100 : exponent)
                                      : ldexpf(unit, exponent);
        if (odds > 40 && stream_chance(s, 100))
            y = hard[stream_below(s, 10)];
        case_put_real(x, x->dense, i, (double)y);
    }
}

static int64_t group_of(const sy_row_format *f, int64_t n)
{
    return f->group > 0 ? f->group : n;
}

void case_quantize(const sy_row_format *f, const float *x, int64_t n, uint8_t *codes, void *scales)
{
    const int64_t group = group_of(f, n), groups = f->group > 0 ? n / f->group : 1;
    const size_t size = f->scale_type.bits / 8;
    for (int64_t g = 0; g < groups; g++) {
        const uint32_t scale = oracle_quantize_group(f, x + g * group, group, codes + g * group);
        memcpy((char *)scales + (size_t)g * size, &scale, size);
    }
}

void case_dequantize(const sy_row_format *f, const uint8_t *codes, const void *scales, int64_t n, float *x)
{
    const int64_t group = group_of(f, n);
    const size_t size = f->scale_type.bits / 8;
    for (int64_t i = 0; i < n; i++) {
        uint32_t scale = 0;
        memcpy(&scale, (const char *)scales + (size_t)(i / group) * size, size);
        x[i] = oracle_dequantize(f, codes[i], scale);
    }
}

/* ---- quantize_rows, dequantize_rows ---- */

static void shape_scales(struct coded_rows *r)
{
    const int64_t parts = 32 / r->format->scale_type.bits, words = (r->groups + parts - 1) / parts;
    const int64_t columns[] = {words, (r->rows + 3) / 4 * 4, parts},
                  tiles[] = {(r->rows + 127) / 128, words, 512};
    r->scale_rank = r->layout == SY_SCALE_ROW ? r->rank : 3;
    memcpy(r->scale_shape, r->shape, sizeof r->shape);
    r->scale_shape[r->rank - 1] = r->groups;
    if (r->layout != SY_SCALE_ROW)
        memcpy(r->scale_shape, r->layout == SY_SCALE_COL ? columns : tiles, sizeof columns);
}

static sy_scale_layout any_layout(struct call *c, const struct coded_rows *r)
{
    const int64_t layout = case_pick(c, "layout", r->packed ? 1 : r->format->scale_type.bits == 8 ? 4 : 2);
    return layout == 3 ? SY_SCALE_SWIZZLE : (sy_scale_layout)layout;
}

struct coded_rows case_coded_rows(struct call *c, const char *field)
{
    struct coded_rows r = {.format = case_format(c, field), .rows = 1};
    const sy_row_format *const f = r.format;
    r.inlined = f->scales == SY_SCALES_INLINE;
    r.fp4 = f->q_type.code == 17;
    r.packed = r.inlined || r.fp4;
    r.layout = any_layout(c, &r);
    const bool tiles = r.layout == SY_SCALE_SWIZZLE && f->group < 40 && case_chance(c, "tiles", 2);
    r.group = f->group > 0 ? f->group : case_size(c, "H", 0, 300, 1000);
    r.groups = f->group == 0 ? 1 : case_size(c, "groups", 0, 3, f->group < 40 ? 9 : 4) + (tiles ? 3 : 0);
    r.hidden = r.group * r.groups;
    r.width = r.inlined ? r.groups * (f->q_type.bits == 4 ? 18 : 34) : r.fp4 ? r.hidden / 2 : r.hidden;
    r.rank = 1 + (int)(c->in->kind == READ_TEXT ? 1 : case_pick(c, "rank", 4));
    for (int d = 0; d < r.rank - 1; d++)
        r.rows *= r.shape[d] = case_size(c, "rows", 0, r.rank > 2 ? 4 : 7, 9) + (tiles && d == 0 ? 120 : 0);
    memcpy(r.code_shape, r.shape, sizeof r.shape);
    r.shape[r.rank - 1] = r.hidden;
    r.code_shape[r.rank - 1] = r.width;
    shape_scales(&r);
    for (int d = 0; d < 3 && r.scale_rank == 3; d++)
        case_extent(c, (const char *[]){"A", "B", "C"}[d], r.scale_shape[d]);
    return r;
}

void case_fill_global(struct call *c, const struct coded_rows *r)
{
    static const float far[] = {1e-45f, 1e-39f, 0x1p-126f, 0x1.fffffep127f, 1e38f},
                       bad[] = {0, -0.0f, -1, INFINITY, NAN};
    if (!r->fp4)
        return;
    struct stream *const s = case_stream(c, "global");
    struct operand *const x =
        case_in_as(c, "global_scale", SY_F32, 1, stream_chance(s, 2) ? &r->rows : &(int64_t){1});
    for (int64_t i = 0; i < case_count(x); i++) {
        const float mantissa = 1 + (float)(stream_bits(s) >> 40) * 0x1p-24f;
        const float usual = ldexpf(mantissa, (int)stream_below(s, 200) - 100);
        case_put_real(x, x->dense, i, (double)(stream_chance(s, 8) ? far[stream_below(s, 5)] : usual));
    }
    const int64_t n = case_count(x), at = stream_chance(s, 2) ? n - 1 : stream_below(s, n);
    if (n > 0 && case_chance(c, "bad global", 3))
        case_put_real(x, x->dense, at, (double)bad[stream_below(s, 5)]);
}

sy_fault case_global_fault(struct call *c, int64_t rows)
{
    const struct operand *const x = case_field(c, "global_scale");
    for (int64_t i = 0; rows > 0 && i < case_count(x); i++)
        if (!(case_real(x, i) > 0) || isinf(case_real(x, i)))
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "global_scale", i, -1, 0, 0};
    return (sy_fault){0};
}

float case_global(struct call *c, int64_t row)
{
    const struct operand *const x = case_field(c, "global_scale");
    return x->given ? (float)case_real(x, case_count(x) > 1 ? row : 0) : 0;
}
