/*
 * Changes that make a valid call invalid.
 */
#include "case.h"

static const sy_field_info *any_field(const struct call *c, const char *name)
{
    for (int i = 0; i < c->info->n_fields; i++)
        if (strcmp(sy_op_field(c->info, i)->name, name) == 0)
            return sy_op_field(c->info, i);
    case_fail(c, NULL, "has no field %s", name);
}

const sy_field_info *case_format_field(const struct call *c)
{
    for (int i = c->info->n_tensors; i < c->info->n_fields; i++)
        if (sy_op_field(c->info, i)->kind == SY_KIND_FORMAT)
            return sy_op_field(c->info, i);
    return NULL;
}

sy_row_format *case_own_format(struct call *c)
{
    sy_row_format *const own = case_memory(c, sizeof *own), *given;
    char *const at = (char *)&c->args + case_format_field(c)->offset;
    memcpy(&given, at, sizeof given);
    *own = *given;
    memcpy(at, &own, sizeof own);
    return own;
}

static void set_scalar(struct call *c, const struct spoil *s)
{
    const sy_field_info *const f = any_field(c, s->field);
    char *const at = (char *)&c->args + f->offset;
    const float narrow = (float)s->real;
    if (f->kind == SY_KIND_F64)
        memcpy(at, &s->real, sizeof s->real);
    else if (f->kind == SY_KIND_F32)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &s->value,
               f->kind == SY_KIND_BOOL                            ? 1
               : f->kind == SY_KIND_I64 || f->kind == SY_KIND_U64 ? 8
                                                                  : 4);
}

static void set_rank(struct operand *x, int rank)
{
    x->t.strides = NULL;
    for (int d = x->rank; d < rank && d < CASE_RANK; d++)
        x->now_shape[d] = 1;
    x->t.ndim = rank;
}

void call_reshape(struct call *c, const char *field, int64_t d0, int64_t d1)
{
    struct operand *const x = case_field(c, field);
    x->now_shape[0] = d0;
    x->now_shape[1] = d1;
    x->t.strides = NULL;
}

void operand_over(struct operand *x, const struct operand *y, int64_t by)
{
    x->t.data = (char *)y->t.data + y->t.byte_offset + by;
    x->t.byte_offset = 0;
}

struct operand *case_field_on(struct call *c, const char *field, int device)
{
    const int was = c->device;
    c->device = device;
    struct operand *const x = case_field(c, field);
    c->device = was;
    return x;
}

void call_apply(struct call *c, const struct spoil *s)
{
    if (s->kind == SPOIL_CALL) {
        c->device = s->device;
        s->with(c);
        c->device = 0;
        return;
    }
    if (s->kind == SPOIL_FORMAT) {
        const int32_t number = (int32_t)s->value;
        char *const at = (char *)case_own_format(c) + s->d;
        if (s->type.bits > 0)
            memcpy(at, &s->type, sizeof s->type);
        else
            memcpy(at, s->field != NULL ? (const void *)&s->real : &number, s->field != NULL ? 8 : 4);
        return;
    }
    if (s->kind == SPOIL_SCALAR || s->kind == SPOIL_REAL) {
        set_scalar(c, s);
        return;
    }
    struct operand *const x = s->kind != SPOIL_NOTHING ? case_field_on(c, s->field, s->device) : NULL;
    switch (s->kind) {
    case SPOIL_MISSING:
        *x->at = NULL;
        break;
    case SPOIL_NO_SHAPE:
        x->t.shape = NULL;
        break;
    case SPOIL_NO_DATA:
        x->t.data = NULL;
        break;
    case SPOIL_TYPE:
        x->t.dtype = s->type;
        break;
    case SPOIL_RANK:
        set_rank(x, (int)s->value);
        break;
    case SPOIL_EXTENT:
        x->now_shape[s->d] = s->value;
        break;
    case SPOIL_STRIDE:
        x->now_strides[s->d] = s->value;
        x->t.strides = x->now_strides;
        break;
    case SPOIL_DEVICE:
        x->t.device.device_type = (DLDeviceType)s->value;
        break;
    case SPOIL_OVER:
        operand_over(x, case_field_on(c, s->other, s->other_device), s->value);
        break;
    case SPOIL_NUMBER: /* of a compact tensor; what the call found is what it must leave */
        memcpy(x->block + x->first + (size_t)s->d * x->element, &s->value, x->element);
        memcpy(x->before + x->first + (size_t)s->d * x->element, &s->value, x->element);
        break;
    default:
        break;
    }
}
