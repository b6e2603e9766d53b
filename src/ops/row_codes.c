/*
 * Rows of numbers and the same rows as codes: check and plan of quantize_rows and dequantize_rows.
 */
#include "ops/row_codes.h"
#include "ops/kv.h"

#include <math.h>

struct rows {
    sy_row_format format;
    int dense, codes, scales;
    int64_t n_rows, hidden, n_groups;
};

static sy_status reject(struct syi_call *call, const char *field, int64_t value, const char *want)
{
    const sy_fault fault = syi_value_fault(SY_ERR_VALUE, SY_FAULT_NONE, "format", value, 0);
    return syi_fail_at(call->ctx, &fault, "has %s %lld, want %s", field, (long long)value, want);
}

static sy_status reject_type(struct syi_call *call, sy_status status, const char *argument, const char *field,
                             DLDataType type, const char *want)
{
    char text[64];
    syi_describe_type(type, text, sizeof text);
    return syi_fail(call->ctx, status, argument, "%s %s, want %s", field, text, want);
}

/* ---- Formats that make sense ------------------------------------------------------------------------- */

static bool in_bytes(const sy_row_format *f)
{
    return f->scale_math == SY_SCALE_MATH_UP || f->scale_math == SY_SCALE_MATH_FLOOR;
}

/* Fields that are about caches. */
static sy_status check_bare(struct syi_call *call, const sy_row_format *f)
{
    const struct {
        const char *name;
        int32_t value;
    } fields[] = {{"scales", (int32_t)f->scales},  {"row_bytes", f->row_bytes},  {"q_off", f->q_off},
                  {"q_count", f->q_count},         {"scale_off", f->scale_off},  {"rope_off", f->rope_off},
                  {"scale_bytes", f->scale_bytes}, {"rope_bytes", f->rope_bytes}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].value != 0)
            return reject(call, fields[i].name, fields[i].value, "0: it is for caches");
    return SY_OK;
}

static sy_status check_format(struct syi_call *call, const sy_row_format *f)
{
    const sy_type q = syi_type_of(f->q_type), scale = syi_type_of(f->scale_type);
    if (q != SY_TYPE_F8_E4M3 && q != SY_TYPE_F8_E5M2 && q != SY_TYPE_I8)
        return reject_type(call, SY_ERR_VALUE, "format", "has q_type", f->q_type, "f8_e4m3, f8_e5m2 or i8");
    if ((int)f->scale_math < SY_SCALE_MATH_DIV || f->scale_math > SY_SCALE_MATH_FLOOR)
        return reject(call, "scale_math", (int)f->scale_math,
                      "1 to 4: DIV, MUL, UP, FLOOR; other formats are of caches");
    if ((int)f->code_math < 0 || f->code_math > (in_bytes(f) ? SY_CODE_MATH_DIV : SY_CODE_MATH_AMAX))
        return reject(call, "code_math", (int)f->code_math,
                      in_bytes(f) ? "0: scales are powers of two" : "0 to 2: DIV, RCP, AMAX");
    if (scale != (in_bytes(f) ? SY_TYPE_F8_E8M0 : SY_TYPE_F32))
        return reject_type(call, SY_ERR_VALUE, "format", "has scale_type", f->scale_type,
                           in_bytes(f) ? "f8_e8m0 with scale_math UP or FLOOR"
                                       : "f32 with scale_math DIV or MUL");
    if (in_bytes(f) && q == SY_TYPE_I8)
        return reject_type(call, SY_ERR_VALUE, "format", "has q_type", f->q_type,
                           "f8_e4m3 or f8_e5m2 with scales of f8_e8m0");
    if (f->group < 0)
        return reject(call, "group", f->group, "1 or more, or 0: the row");
    if (!(f->a_min >= 0) || !isfinite((float)f->a_min))
        return syi_fail(call->ctx, SY_ERR_VALUE, "format", "has a_min %g, want 0 or more, as f32", f->a_min);
    return check_bare(call, f);
}

/* ---- Tensors that fit it ----------------------------------------------------------------------------- */

/* Bytes stand for any code and for a scale of one byte. */
static sy_status check_types(struct syi_call *call, const struct rows *r)
{
    const struct {
        int i;
        DLDataType want;
    } tensors[] = {{r->codes, r->format.q_type}, {r->scales, r->format.scale_type}};
    for (size_t k = 0; k < 2; k++) {
        const int i = tensors[k].i;
        const bool bytes = tensors[k].want.bits == 8;
        char want[80];
        if (call->tensor[i] == NULL || syi_same_type(call->tensor[i]->dtype, tensors[k].want) ||
            (bytes && syi_type_at(call, i) == SY_TYPE_U8))
            continue;
        syi_describe_type(tensors[k].want, want, sizeof want);
        memcpy(want + strlen(want), bytes ? " or u8" : "", bytes ? sizeof " or u8" : 1);
        return reject_type(call, SY_ERR_DTYPE, call->op->info.fields[i].name, "is", call->tensor[i]->dtype,
                           want);
    }
    return SY_OK;
}

/* What sy_infer answers: bytes for 8-bit floats, which not every array library has. */
static void infer_types(struct syi_call *call, const struct rows *r)
{
    if (call->shapes == NULL)
        return;
    const bool i8 = syi_type_of(r->format.q_type) == SY_TYPE_I8;
    call->shapes[r->codes].type = sy_dtype(i8 ? SY_TYPE_I8 : SY_TYPE_U8);
    call->shapes[r->scales].type = sy_dtype(in_bytes(&r->format) ? SY_TYPE_U8 : SY_TYPE_F32);
}

static sy_status check_shapes(struct syi_call *call, const struct rows *r, bool outputs)
{
    const int tensors[] = {r->dense, r->codes, r->scales};
    sy_status st = SY_OK;
    for (int k = 0; st == SY_OK && k < 3; k++)
        if (((call->op->info.fields[tensors[k]].flags & SY_FIELD_OUT) != 0) == outputs)
            st = syi_check_matrix(call, tensors[k], r->n_rows, k < 2 ? r->hidden : r->n_groups);
    return st;
}

/* Of the first tensor: the numbers that come in, or the codes. */
static sy_status check_groups(struct syi_call *call, struct rows *r)
{
    r->n_rows = syi_extent(call, 0, 0);
    r->hidden = syi_extent(call, 0, 1);
    r->n_groups = r->format.group > 0 ? r->hidden / r->format.group : 1;
    if (r->format.group == 0 || r->hidden % r->format.group == 0)
        return SY_OK;
    const sy_fault fault = syi_value_fault(SY_ERR_SHAPE, SY_FAULT_NONE, call->op->info.fields[0].name,
                                           r->hidden, r->format.group);
    return syi_fail_at(call->ctx, &fault, "has rows of %lld, want a multiple of %lld as format says",
                       (long long)fault.value, (long long)fault.limit);
}

static struct syi_row_codes_plan plan_of(const struct syi_call *call, const struct rows *r)
{
    return (struct syi_row_codes_plan){
        .n_rows = r->n_rows,
        .n_groups = r->n_groups,
        .group = (size_t)(r->format.group > 0 ? r->format.group : r->hidden),
        .code = syi_format_code(&r->format),
        .type = syi_float_of(syi_type_at(call, r->dense)),
        .e8m0 = in_bytes(&r->format),
        .scale_math = r->format.scale_math,
        .code_math = r->format.code_math,
        .a_min = (float)r->format.a_min,
        .dense = syi_rows_of(call, r->dense),
        .codes = syi_rows_of(call, r->codes),
        .scales = syi_rows_of(call, r->scales),
    };
}

sy_status syi_check_row_codes(struct syi_call *call, const sy_row_format *format, int dense, int codes,
                              int scales)
{
    struct rows r = {.dense = dense, .codes = codes, .scales = scales};
    if (format == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "format", "is missing, want the format of the rows");
    sy_status st = syi_check_format_bytes(call, format);
    if (st == SY_OK)
        st = syi_check_tensors(call, false);
    if (st != SY_OK)
        return st;
    r.format = syi_known_format(format);
    st = check_format(call, &r.format);
    if (st == SY_OK)
        st = check_types(call, &r);
    if (st == SY_OK)
        st = check_groups(call, &r);
    if (st == SY_OK)
        st = check_shapes(call, &r, false);
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st == SY_OK)
        st = check_shapes(call, &r, true);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    infer_types(call, &r);
    call->plan.row_codes = plan_of(call, &r);
    call->rows = r.n_rows;
    call->slots = r.n_groups;
    call->bytes = syi_tensor_bytes(call);
    return SY_OK;
}
