/*
 * Changes that make a valid call invalid, and the words that state them.
 */
#include "case.h"

#include <ctype.h>
#include <stdio.h>

const sy_field_info *case_format_field(const struct call *c)
{
    for (int i = c->info->n_tensors; i < c->info->n_fields; i++)
        if (sy_op_field(c->info, i)->kind == SY_KIND_FORMAT)
            return sy_op_field(c->info, i);
    return NULL;
}

/* ---- Words ---- */

/* "12", "-3", "2^31", "2^62+1" */
static int64_t number_of(const char *text)
{
    char *at;
    const bool negative = *text == '-';
    uint64_t value = strtoull(text + negative, &at, 10);
    if (*at == '^')
        value = UINT64_C(1) << strtol(at + 1, &at, 10);
    return (int64_t)((negative ? 0 - value : value) + (uint64_t)strtoll(at, NULL, 10));
}

static DLDataType type_of(const struct call *c, const char *name)
{
    for (int i = 1; i < SY_N_TYPES; i++)
        if (strcmp(sy_type_name((sy_type)i), name) == 0)
            return sy_dtype((sy_type)i);
    if (strcmp(name, "none") != 0)
        case_fail(c, NULL, "there is no type %s", name);
    return (DLDataType){0};
}

static bool is_tensor(const struct call *c, const char *field)
{
    const size_t n = strcspn(field, ",.");
    for (int i = 0; i < c->info->n_tensors; i++)
        if (strlen(sy_op_field(c->info, i)->name) == n &&
            strncmp(sy_op_field(c->info, i)->name, field, n) == 0)
            return true;
    return *field == '*' || strcmp(field, "outputs") == 0;
}

static void read_scalar(struct call *c, const char *value, struct change *s)
{
    const sy_kind kind = case_scalar(c, s->field)->kind;
    s->kind = CHANGE_SCALAR;
    if (kind == SY_KIND_F32 || kind == SY_KIND_F64) {
        s->kind = CHANGE_REAL;
        s->real = strtod(value, NULL);
    } else if (isalpha((unsigned char)*value))
        s->other = value;
    else
        s->value = number_of(value);
}

static void read_format(struct call *c, const char *member, const char *value, struct change *s)
{
    static const char *const words[] = {
        "bytes",   "",      "q_type",     "scale_type",  "scales",   "row_bytes",  "q_off",
        "q_count", "group", "scale_off",  "scale_bytes", "rope_off", "rope_bytes", "",
        "a_min",   "",      "scale_math", "code_math",   "global_is"}; /* of four bytes each */
    enum { WORDS = sizeof words / sizeof *words };
    _Static_assert(offsetof(sy_row_format, global_is) == 4 * (WORDS - 1), "a member for each word");
    for (s->d = 0; s->d < 4 * WORDS && strcmp(words[s->d / 4], member) != 0;)
        s->d += 4;
    if (s->d == 4 * WORDS)
        case_fail(c, NULL, "a format has no %s", member);
    s->kind = CHANGE_FORMAT;
    if (strstr(member, "_type") != NULL)
        s->type = type_of(c, value);
    s->real = strtod(value, NULL);
    s->value = number_of(value);
}

static void read_member(struct call *c, const char *member, char *value, struct change *s)
{
    static const struct {
        const char *name;
        enum change_kind one, list, none, number;
    } members[] = {{"shape", CHANGE_EXTENT, CHANGE_SHAPE, CHANGE_NO_SHAPE, CHANGE_NOTHING},
                   {"strides", CHANGE_STRIDE, CHANGE_STRIDES, CHANGE_NOTHING, CHANGE_NOTHING},
                   {"data", CHANGE_NUMBER, CHANGE_NOTHING, CHANGE_NO_DATA, CHANGE_OVER},
                   {"ndim", CHANGE_NOTHING, CHANGE_NOTHING, CHANGE_NOTHING, CHANGE_RANK},
                   {"dtype", CHANGE_NOTHING, CHANGE_NOTHING, CHANGE_NOTHING, CHANGE_TYPE},
                   {"device", CHANGE_NOTHING, CHANGE_NOTHING, CHANGE_NOTHING, CHANGE_DEVICE}};
    const size_t n = strcspn(member, "[");
    const bool indexed = member[n] == '[';
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (strlen(members[i].name) == n && strncmp(members[i].name, member, n) == 0)
            s->kind = indexed                   ? members[i].one
                      : *value == '['           ? members[i].list
                      : strcmp(value, "-") == 0 ? members[i].none
                                                : members[i].number;
    if (s->kind == CHANGE_NOTHING)
        case_fail(c, NULL, "%s.%s cannot be %s", s->field, member, value);
    s->d = indexed ? (int)number_of(member + n + 1) : 0;
    s->other = value;
    if (s->kind == CHANGE_TYPE)
        s->type = type_of(c, value);
    else if (s->kind != CHANGE_OVER)
        s->value = number_of(value);
    else if (strchr(value, '+') != NULL) {
        s->value = number_of(strchr(value, '+') + 1);
        *strchr(value, '+') = '\0';
    }
}

const char *call_read(struct call *c, const char *text, struct change *s)
{
    const size_t n = strcspn(text, " ");
    char *const field = memcpy(case_memory(c, n + 1), text, n), *value = strchr(field, '='), *member;
    *s = (struct change){.field = n > 0 ? field : NULL};
    if (n == 0)
        return NULL;
    if (value == NULL)
        case_fail(c, NULL, "what is changed by \"%s\"", field);
    *value++ = '\0';
    member = strrchr(field, '.');
    if (member != NULL && isalpha((unsigned char)member[1]))
        *member++ = '\0';
    else
        member = NULL;
    char *const device = strchr(field, '@');
    if (device != NULL) {
        *device = '\0';
        s->device = device[1] == '*' ? EVERY_DEVICE : (int)number_of(device + 1);
    }
    if (strcmp(field, "only") == 0 || (member == NULL && is_tensor(c, field))) {
        s->kind = strcmp(field, "only") == 0 ? CHANGE_ONLY : *value == '-' ? CHANGE_MISSING : CHANGE_LIKE;
        s->other = value;
    } else if (member == NULL)
        read_scalar(c, value, s);
    else if (!is_tensor(c, field))
        read_format(c, member, value, s);
    else
        read_member(c, member, value, s);
    return text[n] == ' ' ? text + n + 1 : NULL;
}

/* ---- Changes ---- */

static void set_scalar(struct call *c, const struct change *s)
{
    const sy_field_info *const f = case_scalar(c, s->field);
    char *const at = (char *)&c->args + f->offset;
    const float narrow = (float)s->real;
    if (s->other != NULL)
        case_set_word(c, s->field, s->other);
    else if (f->kind == SY_KIND_F64)
        memcpy(at, &s->real, sizeof s->real);
    else if (f->kind == SY_KIND_F32)
        memcpy(at, &narrow, sizeof narrow);
    else
        memcpy(at, &s->value,
               f->kind == SY_KIND_BOOL                                                       ? 1
               : f->kind == SY_KIND_ENUM || f->kind == SY_KIND_INT || f->kind == SY_KIND_U32 ? 4
                                                                                             : 8);
}

/* In a copy of the format. */
static void set_format(struct call *c, const struct change *s)
{
    const int32_t number = (int32_t)s->value;
    sy_row_format *const own = case_memory(c, sizeof *own), *given;
    char *const at = (char *)&c->args + case_format_field(c)->offset;
    memcpy(&given, at, sizeof given);
    *own = *given;
    memcpy(at, &own, sizeof own);
    if (s->d == offsetof(sy_row_format, a_min))
        own->a_min = s->real;
    else
        memcpy((char *)own + s->d, s->type.bits > 0 ? (const void *)&s->type : &number, sizeof number);
}

/* The arguments of these names, and no others. */
static void keep_only(struct call *c, const char *names)
{
    const union test_args all = c->args;
    memset(&c->args, 0, sizeof c->args);
    for (int i = 0; i < c->info->n_tensors; i++) {
        const sy_field_info *const f = sy_op_field(c->info, i);
        const char *const at = strstr(names, f->name);
        if (at != NULL && (at == names || at[-1] == ',') && strcspn(at, ",") == strlen(f->name))
            memcpy((char *)&c->args + f->offset, (const char *)&all + f->offset, sizeof(void *));
    }
}

static void set_rank(struct operand *x, int rank)
{
    x->t.strides = NULL;
    for (int d = x->rank; d < rank && d < CASE_RANK; d++)
        x->now_shape[d] = 1;
    x->t.ndim = rank;
}

/* "[2,3]"; returns how many. */
static int put_list(int64_t *to, const char *list)
{
    int n = 0;
    for (const char *at = list; *at == '[' || *at == ','; at += strcspn(at, ",]"))
        to[n++] = number_of(++at);
    return n;
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

static void change_operand(struct call *c, struct operand *x, const struct change *s)
{
    const struct operand *y;
    switch (s->kind) {
    case CHANGE_MISSING:
        *x->at = NULL;
        break;
    case CHANGE_LIKE:
        y = case_field_on(c, s->other, x->device);
        x->t = y->t;
        x->t.shape = memcpy(x->now_shape, y->now_shape, sizeof x->now_shape);
        *x->at = &x->t;
        break;
    case CHANGE_NO_SHAPE:
        x->t.shape = NULL;
        break;
    case CHANGE_NO_DATA:
        x->t.data = NULL;
        break;
    case CHANGE_TYPE:
        x->t.dtype = s->type;
        break;
    case CHANGE_RANK:
        set_rank(x, (int)s->value);
        break;
    case CHANGE_EXTENT:
        x->now_shape[s->d] = s->value;
        break;
    case CHANGE_SHAPE:
        x->t.ndim = put_list(x->now_shape, s->other);
        x->t.strides = NULL;
        break;
    case CHANGE_STRIDE:
        x->now_strides[s->d] = s->value;
        x->t.strides = x->now_strides;
        break;
    case CHANGE_STRIDES:
        put_list(x->now_strides, s->other);
        x->t.strides = x->now_strides;
        break;
    case CHANGE_DEVICE:
        x->t.device.device_type = (DLDeviceType)s->value;
        break;
    case CHANGE_OVER:
        operand_over(x, case_field_on(c, s->other, s->other_device), s->value);
        break;
    case CHANGE_NUMBER: /* of a compact tensor; what the call found is what it must leave */
        memcpy(x->block + x->first + (size_t)s->d * x->element, &s->value, x->element);
        memcpy(x->before + x->first + (size_t)s->d * x->element, &s->value, x->element);
        break;
    default:
        break;
    }
}

void call_apply(struct call *c, const struct change *s)
{
    char field[48];
    if (s->kind == CHANGE_FORMAT)
        set_format(c, s);
    else if (s->kind == CHANGE_SCALAR || s->kind == CHANGE_REAL)
        set_scalar(c, s);
    else if (s->kind == CHANGE_ONLY)
        keep_only(c, s->other);
    else if (s->kind != CHANGE_NOTHING && (*s->field == '*' || strcmp(s->field, "outputs") == 0))
        for (int i = 0; i < c->n_operands; i++) {
            if (*s->field == '*' || c->operand[i].out)
                change_operand(c, &c->operand[i], s);
        }
    else if (s->kind != CHANGE_NOTHING)
        for (const char *at = s->field, *end; at != NULL; at = *end == ',' ? end + 1 : NULL) {
            end = at + strcspn(at, ",");
            snprintf(field, sizeof field, "%.*s", (int)(end - at), at);
            for (int d = 0; d < c->n_devices; d++)
                if (s->device == EVERY_DEVICE || s->device == d)
                    change_operand(c, case_field_on(c, field, d), s);
        }
}

void call_change(struct call *c, const char *words)
{
    struct change s;
    while (words != NULL) {
        words = call_read(c, words, &s);
        call_apply(c, &s);
    }
}
