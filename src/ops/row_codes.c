/*
 * Rows of numbers and the same rows as codes: check and plan of quantize_rows and dequantize_rows, and the steps for
 * operators that make codes of the rows they move.
 */
#include "ops/row_codes.h"
#include "ops/kv.h"

#include <math.h>

static sy_status reject(struct syi_call *call, const struct syi_coded *c, const char *field, int64_t value,
                        const char *want)
{
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_NONE, c->name, value, 0, "has %s %lld, want %s",
                         field, (long long)value, want);
}

static sy_status reject_type(struct syi_call *call, sy_status status, const char *argument, const char *field,
                             DLDataType type, const char *want)
{
    char text[64];
    syi_describe_type(type, text, sizeof text);
    return syi_fail(call->ctx, status, argument, "%s %s, want %s", field, text, want);
}

/* ---- Formats that make sense ---- */

static bool in_bytes(const sy_row_format *f)
{
    return f->scale_math == SY_SCALE_MATH_UP || f->scale_math == SY_SCALE_MATH_FLOOR;
}

/* Fields that are about caches. */
static sy_status check_bare(struct syi_call *call, const struct syi_coded *c)
{
    const sy_row_format *f = &c->format;
    const struct {
        const char *name;
        int32_t value;
    } fields[] = {
        {"scales", (int32_t)f->scales},  {"row_bytes", f->row_bytes},   {"q_off", f->q_off},
        {"q_count", f->q_count},         {"scale_off", f->scale_off},   {"rope_off", f->rope_off},
        {"scale_bytes", f->scale_bytes}, {"rope_bytes", f->rope_bytes}, {"global_is", (int32_t)f->global_is}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value != 0)
            return reject(call, c, fields[i].name, fields[i].value, "0: it is for caches");
    return SY_OK;
}

static sy_status check_format(struct syi_call *call, const struct syi_coded *c)
{
    const sy_row_format *f = &c->format;
    const sy_type q = syi_type_of(f->q_type), scale = syi_type_of(f->scale_type);
    if (q != SY_TYPE_F8_E4M3 && q != SY_TYPE_F8_E5M2 && q != SY_TYPE_I8)
        return reject_type(call, SY_ERR_VALUE, c->name, "has q_type", f->q_type, "f8_e4m3, f8_e5m2 or i8");
    if ((int)f->scale_math < SY_SCALE_MATH_DIV || f->scale_math > SY_SCALE_MATH_FLOOR)
        return reject(call, c, "scale_math", (int)f->scale_math,
                      "1 to 4: DIV, MUL, UP, FLOOR; other formats are of caches");
    if ((int)f->code_math < 0 || f->code_math > (in_bytes(f) ? SY_CODE_MATH_DIV : SY_CODE_MATH_AMAX))
        return reject(call, c, "code_math", (int)f->code_math,
                      in_bytes(f) ? "0: scales are powers of two" : "0 to 2: DIV, RCP, AMAX");
    if (scale != (in_bytes(f) ? SY_TYPE_F8_E8M0 : SY_TYPE_F32))
        return reject_type(call, SY_ERR_VALUE, c->name, "has scale_type", f->scale_type,
                           in_bytes(f) ? "f8_e8m0 with scale_math UP or FLOOR"
                                       : "f32 with scale_math DIV or MUL");
    if (in_bytes(f) && q == SY_TYPE_I8)
        return reject_type(call, SY_ERR_VALUE, c->name, "has q_type", f->q_type,
                           "f8_e4m3 or f8_e5m2 with scales of f8_e8m0");
    if (f->group < 0)
        return reject(call, c, "group", f->group, "1 or more, or 0: the row");
    if (!(f->a_min >= 0) || !isfinite((float)f->a_min))
        return syi_fail(call->ctx, SY_ERR_VALUE, c->name, "has a_min %g, want 0 or more, as f32", f->a_min);
    return check_bare(call, c);
}

/* Rows are those of a cache, with the scales of every group before its codes; or of 4 bits, with a global scale. */
static bool is_inline(const struct syi_coded *c)
{
    return c->packs && c->format.scales == SY_SCALES_INLINE;
}

static bool is_fp4(const struct syi_coded *c)
{
    return c->packs && syi_is_fp4_format(&c->format);
}

static bool is_packed(const struct syi_coded *c)
{
    return is_inline(c) || is_fp4(c);
}

static sy_status check_layout(struct syi_call *call, const struct syi_coded *c)
{
    SYI_TRY(syi_check_enum(call, "scale_layout", (int)c->layout));
    if ((!is_packed(c) && (c->layout != SY_SCALE_SWIZZLE || in_bytes(&c->format))))
        return SY_OK;
    if (!is_packed(c))
        return syi_fail_value(call, SY_ERR_VALUE, "scale_layout", c->layout, SY_SCALE_COL,
                              "is SWIZZLE, want ROW or COL: the scales of the format are f32");
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_NONE, "scale_layout", c->layout, SY_SCALE_ROW,
                         "is %s, want ROW: the scales of the format are %s",
                         c->layout == SY_SCALE_COL ? "COL" : "SWIZZLE",
                         is_inline(c) ? "in the rows" : "by rows");
}

/* ---- Tensors that fit it ---- */

/* Bytes stand for any code and for a scale of one byte. */
static sy_status check_types(struct syi_call *call, const struct syi_coded *c)
{
    const struct {
        int i;
        DLDataType want;
    } tensors[] = {{c->codes, is_packed(c) ? SY_U8 : c->format.q_type}, {c->scales, c->format.scale_type}};
    for (size_t k = 0; k < 2; k++) {
        const int i = tensors[k].i;
        const bool bytes = tensors[k].want.bits == 8;
        char want[80];
        if (call->tensor[i] == NULL || syi_same_type(call->tensor[i]->dtype, tensors[k].want) ||
            (bytes && syi_type_at(call, i) == SY_TYPE_U8))
            continue;
        syi_describe_type(tensors[k].want, want, sizeof want);
        if (bytes && syi_type_of(tensors[k].want) != SY_TYPE_U8)
            memcpy(want + strlen(want), " or u8", sizeof " or u8");
        return reject_type(call, SY_ERR_DTYPE, syi_name(call, i), "is", call->tensor[i]->dtype, want);
    }
    return SY_OK;
}

/* Of the rows of tensor i: numbers, or codes. */
static sy_status check_groups(struct syi_call *call, struct syi_coded *c, int i)
{
    const int64_t extent = syi_extent(call, i, call->tensor[i]->ndim - 1), group = c->format.group;
    const int64_t codes = is_packed(c) ? syi_packed_group_bytes(&c->format) : group,
                  unit = i == c->codes ? codes : group;
    c->n_groups = group > 0 ? extent / unit : 1;
    c->hidden = c->width = extent;
    if (group > 0 && !syi_mul(c->n_groups, group, &c->hidden))
        c->hidden = INT64_MAX; /* no tensor has it */
    if (group > 0 && !syi_mul(c->n_groups, codes, &c->width))
        c->width = INT64_MAX;
    if (group == 0 || extent % unit == 0)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_NONE, syi_name(call, i), extent, unit,
                         "has rows of %lld, want a multiple of %lld as %s says", (long long)extent,
                         (long long)unit, c->name);
}

/* Tensors that the format has no use for. */
static sy_status check_spare(struct syi_call *call, const struct syi_coded *c)
{
    if (is_inline(c) && call->tensor[c->scales] != NULL)
        return syi_fail(call->ctx, SY_ERR_VALUE, syi_name(call, c->scales),
                        "is given, want none: the codes have the scales");
    return syi_check_no_global(call, c->global, is_fp4(c));
}

static sy_status check_coded(struct syi_call *call, struct syi_coded *c, int i)
{
    SYI_TRY(is_packed(c) ? syi_check_packed_format(call, c->name, &c->format) : check_format(call, c));
    if (c->packs)
        SYI_TRY(check_spare(call, c));
    if (c->layout != SY_SCALE_ROW)
        SYI_TRY(check_layout(call, c));
    SYI_TRY(check_types(call, c));
    return check_groups(call, c, i);
}

/* Whether the codes are an input. */
static bool reads_codes(const struct syi_call *call, const struct syi_coded *c)
{
    return (call->op->info.fields[c->codes].flags & SY_FIELD_OUT) == 0;
}

static size_t scale_size(const struct syi_coded *c)
{
    return in_bytes(&c->format) || is_fp4(c) ? 1 : 4;
}

/* A query may not know it: the widest, which needs most scratch. */
sy_type syi_coded_type(const struct syi_call *call, const struct syi_coded *c)
{
    return call->tensor[c->dense] != NULL ? syi_type_at(call, c->dense) : SY_TYPE_F32;
}

int64_t syi_coded_bytes(const struct syi_call *call, const struct syi_coded *c)
{
    int64_t scales;
    if (c->given == NULL)
        return c->hidden * (int64_t)syi_elem_bytes(call->tensor[c->dense]->dtype);
    const bool fits =
        syi_mul(c->n_groups, (int64_t)scale_size(c), &scales) && scales <= INT64_MAX - c->hidden;
    return fits ? c->hidden + scales : INT64_MAX;
}

struct syi_row_codes_plan syi_coded_plan(struct syi_call *call, const struct syi_coded *c, int64_t n_rows)
{
    if (c->given == NULL)
        return (struct syi_row_codes_plan){.n_rows = 0};
    /* What sy_infer answers: bytes for 8-bit floats, which not every array library has. */
    if (call->shapes != NULL && !reads_codes(call, c)) {
        const bool i8 = syi_type_of(c->format.q_type) == SY_TYPE_I8 && !is_packed(c);
        call->shapes[c->codes].type = sy_dtype(i8 ? SY_TYPE_I8 : SY_TYPE_U8);
        call->shapes[c->scales].type = sy_dtype(scale_size(c) == 1 ? SY_TYPE_U8 : SY_TYPE_F32);
    }
    return (struct syi_row_codes_plan){
        .given = true,
        .n_rows = n_rows,
        .n_groups = c->n_groups,
        .group = (size_t)(c->format.group > 0 ? c->format.group : c->hidden),
        .scale_bytes = (size_t)c->n_groups * scale_size(c),
        .code = syi_format_code(&c->format),
        .type = syi_float_of(syi_coded_type(call, c)),
        .e8m0 = in_bytes(&c->format),
        .scale_math = c->format.scale_math,
        .code_math = c->format.code_math,
        .a_min = (float)c->format.a_min,
        .dense = syi_rows_of(call, c->dense),
        .codes = syi_rows_of(call, c->codes),
        .scales = syi_rows_of(call, c->scales),
        .layout = c->layout,
        .scale_rows = c->scale_rows,
        .scale_columns = c->scale_columns,
    };
}

uint64_t syi_coded_hash(uint64_t hash, const struct syi_coded *c)
{
    const sy_row_format *f = &c->format;
    const uint64_t words[] = {syi_type_bits(f->q_type), syi_type_bits(f->scale_type),
                              (uint64_t)f->group,       (uint64_t)f->scale_math,
                              (uint64_t)f->code_math,   syi_f32_bits((float)f->a_min)};
    for (size_t i = 0; c->given != NULL && i < sizeof words / sizeof *words; i++)
        hash = syi_hash_with(hash, words[i]);
    return hash;
}

/* ---- Codes of rows that an operator moves ---- */

sy_status syi_coded_begin(struct syi_call *call, struct syi_coded *c)
{
    c->name = "row_format";
    if (c->given == NULL)
        return SY_OK;
    if (call->tensor[c->scales] == NULL && (!call->query || reads_codes(call, c)))
        return syi_fail(call->ctx, SY_ERR_NULL, syi_name(call, c->scales),
                        "is missing while row_format is given, want a tensor");
    call->floats = c->dense + 1;
    call->coded = c->codes + 1;
    return syi_check_format_bytes(call, c->name, c->given);
}

sy_status syi_coded_check(struct syi_call *call, struct syi_coded *c)
{
    const int rows = reads_codes(call, c) ? c->codes : c->dense;
    if (c->given != NULL) {
        c->format = syi_known_format(c->given);
        return check_coded(call, c, rows);
    }
    c->hidden = syi_extent(call, rows, call->tensor[rows]->ndim - 1);
    return call->tensor[c->scales] == NULL ? SY_OK
                                           : syi_fail(call->ctx, SY_ERR_VALUE, syi_name(call, c->scales),
                                                      "is given, want none: there is no row_format");
}

sy_status syi_coded_scales(struct syi_call *call, const struct syi_coded *c)
{
    const DLTensor *codes = call->tensor[c->codes];
    int64_t shape[SY_MAX_RANK];
    if (c->given == NULL)
        return SY_OK;
    memcpy(shape, codes->shape, (size_t)codes->ndim * sizeof *shape);
    shape[codes->ndim - 1] = c->n_groups;
    return syi_check_shape(call, c->scales, codes->ndim, shape);
}

/* ---- quantize_rows, dequantize_rows ---- */

/* The largest multiple there is for numbers that have none. */
static int64_t round_up(int64_t n, int64_t unit)
{
    return n > INT64_MAX - (unit - 1) ? INT64_MAX / unit * unit : (n + unit - 1) / unit * unit;
}

/* Rows of tensor 0; a product that is too large is found by syi_check_sizes. */
static int64_t count_rows(const struct syi_call *call)
{
    const DLTensor *t = call->tensor[0];
    int64_t n = 1;
    for (int d = 0; d < t->ndim - 1; d++)
        if (!syi_mul(n, t->shape[d], &n))
            return INT64_MAX;
    return n;
}

static void place_scales(struct syi_coded *c, int64_t n_rows)
{
    c->scale_rows = round_up(n_rows, c->layout == SY_SCALE_COL ? 4 : 128);
    c->scale_columns = round_up(c->n_groups, 4 / (int64_t)scale_size(c));
}

static sy_status check_scales(struct syi_call *call, const struct syi_coded *c)
{
    const int64_t part = 4 / (int64_t)scale_size(c), words = c->scale_columns / part;
    const int64_t by_column[] = {words, c->scale_rows, part}, tiles[] = {c->scale_rows / 128, words, 512};
    return syi_check_shape(call, c->scales, 3, c->layout == SY_SCALE_COL ? by_column : tiles);
}

/* All have the shape of tensor 0, scales by rows, but for its last dimension. */
static sy_status check_shapes(struct syi_call *call, const struct syi_coded *c, bool outputs)
{
    const int tensors[] = {c->dense, c->codes, c->scales}, rank = call->tensor[0]->ndim;
    int64_t shape[SYI_MAX_RANK];
    memcpy(shape, call->tensor[0]->shape, (size_t)rank * sizeof *shape);
    for (int k = 0; k < (is_inline(c) ? 2 : 3); k++) {
        if (((call->op->info.fields[tensors[k]].flags & SY_FIELD_OUT) != 0) != outputs)
            continue;
        shape[rank - 1] = k == 0 ? c->hidden : k == 1 ? c->width : c->n_groups;
        SYI_TRY(k == 2 && c->layout != SY_SCALE_ROW ? check_scales(call, c)
                                                    : syi_check_shape(call, tensors[k], rank, shape));
    }
    return SY_OK;
}

/* Where the format has them. */
static sy_status check_scales_given(struct syi_call *call, const struct syi_coded *c)
{
    if (call->tensor[c->scales] == NULL && !is_inline(c) && (!call->query || reads_codes(call, c)))
        return syi_fail(call->ctx, SY_ERR_NULL, syi_name(call, c->scales), "is missing, want a tensor");
    return syi_check_global_given(call, c->global, is_fp4(c));
}

/* One number, or one for each row. */
static sy_status check_global(struct syi_call *call, const struct syi_coded *c, int64_t n_rows)
{
    const int64_t n = syi_extent(call, c->global, 0);
    if (n == 1 || n == n_rows)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_SHAPE, "global_scale", n, n_rows,
                          "has shape [%lld], want [1] or [%lld], the rows");
}

sy_status syi_check_row_codes(struct syi_call *call, struct syi_coded *c)
{
    c->name = "format";
    c->packs = true;
    if (c->given == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "format", "is missing, want the format of the rows");
    SYI_TRY(syi_check_format_bytes(call, c->name, c->given));
    c->format = syi_known_format(c->given);
    SYI_TRY(check_scales_given(call, c));
    SYI_TRY(syi_check_tensors(call, false));
    SYI_TRY(check_coded(call, c, 0));
    const int64_t n_rows = count_rows(call);
    if (c->layout != SY_SCALE_ROW)
        place_scales(c, n_rows);
    SYI_TRY(check_shapes(call, c, false));
    if (is_fp4(c))
        SYI_TRY(check_global(call, c, n_rows));
    SYI_TRY(syi_check_sizes(call));
    SYI_TRY(check_shapes(call, c, true));
    SYI_TRY(syi_check_layout(call));
    call->plan.quantize_rows.codes = syi_coded_plan(call, c, n_rows);
    if (is_packed(c))
        syi_view_packed_rows(call, &c->format, (size_t)c->width, c->global, &call->plan.quantize_rows);
    call->rows = n_rows;
    call->slots = c->n_groups;
    call->bytes = syi_tensor_bytes(call);
    return SY_OK;
}
