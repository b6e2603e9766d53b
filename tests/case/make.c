/*
 * Operands from the description: types, extents, contents.
 */
#include "case.h"

#include <stdarg.h>
#include <stdio.h>

void *case_args(struct call *c)
{
    return &c->args;
}

/* ---- Extents ---- */

void case_extent(struct call *c, const char *name, int64_t value)
{
    int i = 0;
    while (i < c->n_extents && strncmp(c->extent[i].name, name, sizeof c->extent[i].name - 1) != 0)
        i++;
    if (i == CASE_NAMES)
        case_fail(c, NULL, "more extents than CASE_NAMES");
    c->n_extents = i < c->n_extents ? c->n_extents : i + 1;
    snprintf(c->extent[i].name, sizeof c->extent[i].name, "%s", name);
    c->extent[i].value = value;
}

static bool named_extent(const struct call *c, const char *name, size_t n, int64_t *value)
{
    for (int i = 0; i < c->n_extents; i++)
        if (strlen(c->extent[i].name) == n && memcmp(c->extent[i].name, name, n) == 0) {
            *value = c->extent[i].value;
            return true;
        }
    return false;
}

int64_t case_get_extent(struct call *c, const char *name)
{
    int64_t value;
    if (!named_extent(c, name, strlen(name), &value))
        case_fail(c, NULL, "has no extent %s", name);
    return value;
}

/* A factor: a number, a name, a number before a name, or ceil(name/number). */
static bool factor(const struct call *c, const char **text, int64_t *value)
{
    int64_t by = 1;
    char *end;
    if (strncmp(*text, "ceil(", 5) == 0) {
        const char *const bar = strchr(*text, '/');
        if (bar == NULL || !named_extent(c, *text + 5, (size_t)(bar - *text - 5), value))
            return false;
        const int64_t d = strtoll(bar + 1, &end, 10);
        *value = (*value + d - 1) / d;
        *text = end + 1;
        return true;
    }
    if (**text >= '0' && **text <= '9') {
        by = *value = strtoll(*text, &end, 10);
        *text = end;
    }
    const size_t n = strcspn(*text, " +-*/|");
    if (n == 0)
        return by == *value;
    if (!named_extent(c, *text, n, value))
        return false;
    *value *= by;
    *text += n;
    return true;
}

bool extent_of(const struct call *c, const char **text, int64_t *value)
{
    const char *at = *text;
    int64_t next = 0;
    bool known = factor(c, &at, value);
    while (known && strchr("+-*/", *at) != NULL && *at != '\0') {
        const char sign = *at++;
        known = factor(c, &at, &next);
        *value = !known        ? 0
                 : sign == '+' ? *value + next
                 : sign == '-' ? *value - next
                 : sign == '*' ? *value * next
                 : next > 0    ? *value / next
                               : 0;
    }
    *text += strcspn(*text, " |");
    *text += **text == ' ' && (*text)[1] != '|';
    return known;
}

static int words_of_form(const char *text)
{
    int n = 0;
    for (; *text != '\0' && *text != '|'; text += *text == ' ') {
        n += *text != ' ';
        text += strcspn(text, " |");
    }
    return n;
}

/* Form number i of "k S | S". */
static const char *form_of(const char *text, int64_t i)
{
    for (; i > 0 && strchr(text, '|') != NULL; i--)
        text = strchr(text, '|') + 2;
    return text;
}

static int count_forms(const char *text)
{
    int n = 1;
    while ((text = strchr(text, '|')) != NULL) {
        text++;
        n++;
    }
    return n;
}

const char *shape_form(const struct operand *x)
{
    for (int i = 0; i < count_forms(x->field->shape); i++)
        if (words_of_form(form_of(x->field->shape, i)) == x->rank)
            return form_of(x->field->shape, i);
    return "";
}

static void shape_of_text(struct call *c, struct operand *x)
{
    char name[40];
    const int n = count_forms(x->field->shape);
    snprintf(name, sizeof name, "form:%s", x->field->name);
    if (n > 1 && c->form == 0)
        c->form = 1 + (int)case_pick(c, name, n);
    const char *text = form_of(x->field->shape, n > 1 ? c->form - 1 : 0);
    const char *const begin = text;
    x->rank = words_of_form(text);
    for (int d = 0; d < x->rank; d++)
        if (!extent_of(c, &text, &x->shape[d]))
            case_fail(c, NULL, "%s has extents %s, and nothing states one of them", x->field->name, begin);
    if ((x->field->flags & SY_FIELD_ONE_ROW) && x->rank > 0 && case_chance(c, "one_row", 4))
        x->shape[0] = 1;
}

/* ---- Operands ---- */

static struct operand *find_field(struct call *c, const char *field, bool again)
{
    for (int i = 0; i < c->info->n_tensors; i++) {
        const bool shared = c->operand[i].field->flags & SY_FIELD_SHARED;
        struct operand *const x = &c->operand[(shared ? 0 : c->device * c->info->n_tensors) + i];
        if (strcmp(x->field->name, field) == 0 && (!again || (x->field->flags & SY_FIELD_INOUT)))
            return x;
    }
    case_fail(c, NULL, "has no tensor %s", field);
}

static struct operand *find_in_plane(struct call *c, const char *field, const char *dot)
{
    for (int i = c->info->n_tensors; i < c->n_operands; i++) {
        struct operand *const x = &c->operand[i];
        if (x->plane == (int)strtol(dot + 1, NULL, 10) && strlen(x->field->name) == (size_t)(dot - field) &&
            strncmp(x->field->name, field, (size_t)(dot - field)) == 0)
            return x;
    }
    case_fail(c, NULL, "has no tensor %s", field);
}

struct operand *case_field(struct call *c, const char *field)
{
    const char *const dot = strchr(field, '.');
    if (dot != NULL)
        return find_in_plane(c, field, dot);
    struct operand *const x = find_field(c, field, false);
    for (int i = 0; !x->given && c->comm == NULL && i < c->info->n_tensors; i++) /* in its other role */
        if (c->operand[i].given && strcmp(c->operand[i].field->name, field) == 0)
            return &c->operand[i];
    return x;
}

void *case_memory(struct call *c, size_t bytes)
{
    void **const block = calloc(1, sizeof(max_align_t) + bytes + 1);
    if (block == NULL)
        abort();
    *block = c->user;
    c->user = block;
    return (unsigned char *)block + sizeof(max_align_t);
}

static void allocate(struct call *c, struct operand *x)
{
    x->element = (size_t)x->type.bits * x->type.lanes / 8;
    x->bytes = (size_t)case_count(x) * x->element;
    if (x->in || (x->field->flags & SY_FIELD_KEEPS))
        x->dense = case_memory(c, x->bytes);
    if (x->out) {
        x->want = case_memory(c, x->bytes);
        memset(x->want, CASE_POISON, x->bytes);
    }
}

static struct operand *give(struct call *c, struct operand *x, DLDataType type, int rank,
                            const int64_t *shape)
{
    x->given = true;
    x->type = type.bits > 0 ? type : case_type(c, x->field->name);
    if (rank < 0)
        shape_of_text(c, x);
    else
        memcpy(x->shape, shape, (size_t)(x->rank = rank) * sizeof *shape);
    allocate(c, x);
    return x;
}

struct operand *case_in_as(struct call *c, const char *field, DLDataType type, int rank, const int64_t *shape)
{
    struct operand *const x = find_field(c, field, false);
    x->in = true;
    return give(c, x, type, rank, shape);
}

struct operand *case_in(struct call *c, const char *field)
{
    return case_in_as(c, field, (DLDataType){0}, -1, NULL);
}

struct operand *case_inout_as(struct call *c, const char *field, DLDataType type, int rank,
                              const int64_t *shape)
{
    struct operand *const x = find_field(c, field, true);
    x->in = x->out = true;
    return give(c, x, type, rank, shape);
}

struct operand *case_plane_as(struct call *c, const struct operand *like, const DLTensor **at,
                              DLDataType type, int rank, const int64_t *shape)
{
    const uint32_t flags = like->field->flags;
    const size_t offset = (size_t)((const char *)at - (const char *)c->planes);
    if (c->n_operands == CASE_OPERANDS)
        case_fail(c, NULL, "more tensors than CASE_OPERANDS");
    struct operand *const x = &c->operand[c->n_operands++];
    *x = (struct operand){.field = like->field,
                          .at = at,
                          .in = !(flags & SY_FIELD_OUT) || (flags & SY_FIELD_INOUT),
                          .out = flags & SY_FIELD_OUT,
                          .plane = 1 + (int)(offset / sizeof *c->planes)};
    return give(c, x, type, rank, shape);
}

struct operand *case_out_as(struct call *c, const char *field, DLDataType type, int rank,
                            const int64_t *shape)
{
    struct operand *const x = find_field(c, field, false);
    x->needed = true;
    x->type = type;
    x->rank = rank;
    if (rank > 0)
        memcpy(x->shape, shape, (size_t)rank * sizeof *shape);
    return x;
}

void case_need(struct call *c, const char *field)
{
    case_field(c, field)->needed = true;
}

void case_leave(struct call *c, const char *field)
{
    case_field(c, field)->left_out = true;
}

void case_share(struct call *c, const char *field, bool shared)
{
    case_field(c, field)->place = shared ? PLACE_SHARED : PLACE_APART;
}

bool call_accepts(const struct call *c, const struct operand *x, DLDataType type)
{
    const sy_field_info *const f = x->field;
    const int bits = type.bits * type.lanes;
    if (x->accepts != 0)
        return sy_type_of(type) != SY_TYPE_OTHER && (x->accepts >> sy_type_of(type) & 1u);
    if (f->flags & SY_FIELD_ANY_WORD)
        return type.lanes == 1 && (bits == 8 || bits == 16 || bits == 32 || bits == 64);
    if (f->flags & SY_FIELD_ANY_BYTES)
        return bits > 0 && bits % 8 == 0;
    if (sy_type_of(type) != SY_TYPE_OTHER && (f->types >> sy_type_of(type) & 1u))
        return true;
    const struct operand *like = f->like > 0 ? &c->operand[f->like - 1] : NULL;
    for (int i = c->info->n_tensors; like != NULL && x->plane > 0 && i < c->n_operands; i++)
        if (c->operand[i].plane == x->plane && c->operand[i].field == like->field)
            like = &c->operand[i];
    return like != NULL && like->given && memcmp(&like->type, &type, sizeof type) == 0;
}

/* ---- Contents ---- */

int64_t case_count(const struct operand *x)
{
    int64_t n = x->given || x->rank > 0 ? 1 : 0;
    for (int d = 0; d < x->rank; d++)
        n *= x->shape[d];
    return n;
}

const void *case_dense(struct call *c, const char *field)
{
    const struct operand *const x = case_field(c, field);
    return x->given ? x->dense : NULL;
}

void *case_want(struct call *c, const char *field)
{
    const struct operand *const x = case_field(c, field);
    return x->given ? x->want : NULL;
}

void case_expect(struct call *c, const char *field, const void *want)
{
    const struct operand *const x = case_field(c, field);
    if (x->given && x->bytes > 0)
        memcpy(x->want, want, x->bytes);
}

static int64_t load(const unsigned char *at, const struct operand *x)
{
    int64_t value = 0;
    memcpy(&value, at, x->element); /* little-endian, as the library is */
    const int unused = 64 - 8 * (int)x->element;
    return x->type.code == kDLInt ? (int64_t)((uint64_t)value << unused) >> unused : value;
}

int64_t case_get(const struct operand *x, int64_t i)
{
    return load(x->dense + (size_t)i * x->element, x);
}

void case_put(struct operand *x, int64_t i, int64_t value)
{
    memcpy(x->dense + (size_t)i * x->element, &value, x->element);
}

void case_put_want(struct operand *x, int64_t i, int64_t value)
{
    memcpy(x->want + (size_t)i * x->element, &value, x->element);
}

enum number_type case_number(const struct operand *x)
{
    return x->type.bits == 32 ? NUMBER_F32 : x->type.code == kDLBfloat ? NUMBER_BF16 : NUMBER_F16;
}

double case_real(const struct operand *x, int64_t i)
{
    return number_get(case_number(x), x->dense, i);
}

void case_put_real(const struct operand *x, void *array, int64_t i, double value)
{
    number_put(case_number(x), array, i, value);
}

int64_t *case_wide(struct call *c, const char *field)
{
    const struct operand *const x = case_field(c, field);
    if (!x->given)
        return NULL;
    int64_t *const wide = case_memory(c, (size_t)case_count(x) * sizeof *wide);
    for (int64_t i = 0; i < case_count(x); i++)
        wide[i] = case_get(x, i);
    return wide;
}

void case_fill(struct call *c, struct operand *x)
{
    struct stream *const s = case_stream(c, x->field->name);
    for (size_t i = 0; i < x->bytes; i += 8) {
        const uint64_t bits = stream_bits(s);
        memcpy(x->dense + i, &bits, x->bytes - i < 8 ? x->bytes - i : 8);
    }
}

static int mantissa_bits(DLDataType type)
{
    return type.bits == 64 ? 52 : type.bits == 32 ? 23 : type.code == kDLBfloat ? 7 : 10;
}

/* +-2^exponent * (1 + fraction / 128): exact in f32, f16 and bf16 for exponents in -14..15. */
static uint64_t float_bits(DLDataType type, bool negative, int exponent, uint32_t fraction)
{
    const int mantissa = mantissa_bits(type), bias = (1 << (type.bits - mantissa - 2)) - 1;
    return (uint64_t)negative << (type.bits - 1) | (uint64_t)(bias + exponent) << mantissa |
           (uint64_t)fraction << (mantissa - 7);
}

static uint64_t infinity(DLDataType type, bool negative)
{
    const int mantissa = mantissa_bits(type);
    return (uint64_t)negative << (type.bits - 1) | (((uint64_t)1 << (type.bits - mantissa - 1)) - 1)
                                                       << mantissa;
}

/* 2^low .. 2^(low+n-1), negative one time in `odds`, the fraction a multiple of `step` 128ths. */
static uint64_t any_float(struct stream *s, DLDataType type, int64_t odds, int low, int n, uint32_t step)
{
    const bool negative = stream_chance(s, odds);
    const int exponent = low + (int)stream_below(s, n);
    return float_bits(type, negative, exponent, (uint32_t)stream_below(s, 128 / step) * step);
}

/* NaN of any payload, infinities, subnormals among ties. */
static uint64_t special_float(struct stream *s, DLDataType type, uint64_t low)
{
    switch (stream_below(s, 8)) {
    case 0:
        return infinity(type, stream_chance(s, 2)) | low | 1;
    case 1:
        return infinity(type, !stream_chance(s, 6));
    case 2:
        return (uint64_t)stream_chance(s, 2) << (type.bits - 1) | low;
    default:
        return case_float(s, type, TIES);
    }
}

uint64_t case_float(struct stream *s, DLDataType type, enum flavour flavour)
{
    const uint64_t low = stream_bits(s) & (((uint64_t)1 << mantissa_bits(type)) - 1);
    switch (flavour) {
    case TIES: /* a handful of values, both zeros among them */
        return stream_chance(s, 12) ? (uint64_t)stream_chance(s, 2) << (type.bits - 1)
                                    : any_float(s, type, 2, -1, 3, 32);
    case FINE: /* every mantissa bit, magnitudes from 2^-8 to 2^3 */
        return any_float(s, type, 2, -8, 12, 128) | low;
    case SPECIAL:
        return special_float(s, type, low);
    case WILD:
        return stream_bits(s);
    case FLAT:
        return float_bits(type, false, 1, 64);
    case EMPTY:
        return stream_chance(s, 2) ? infinity(type, true) : infinity(type, stream_chance(s, 2)) | 1;
    case FAR: /* far from zero, close together */
        return float_bits(type, true, 8, 100 + (uint32_t)stream_below(s, 4));
    default: /* PROBS: 0 .. 1, seldom more or negative */
        return stream_chance(s, 10) ? 0 : any_float(s, type, 40, -8, 9, 1);
    }
}

void case_fill_numbers(struct call *c, struct operand *x, enum flavour flavour)
{
    struct stream *const s = case_stream(c, x->field->name);
    for (int64_t i = 0; i < case_count(x); i++)
        case_put(x, i, (int64_t)case_float(s, x->type, flavour));
}

void case_fill_floats(struct call *c, struct operand *x)
{
    char name[40];
    snprintf(name, sizeof name, "flavour:%s", x->field->name);
    const enum flavour flavour =
        c->in->kind == READ_TEXT ? FINE : (enum flavour)case_pick(c, name, N_FLAVOURS);
    case_fill_numbers(c, x, flavour);
}

void case_fill_indices(struct call *c, struct operand *x, int64_t limit, int64_t odds)
{
    struct stream *const s = case_stream(c, x->field->name);
    const int64_t outside[] = {-1, limit, INT32_MAX, INT32_MIN, limit + 1};
    for (int64_t i = 0; i < case_count(x); i++) {
        const bool wrong = odds > 0 && stream_chance(s, odds);
        case_put(x, i, wrong ? outside[stream_below(s, 5)] : stream_below(s, limit));
    }
}

int64_t case_route(struct call *c, struct operand *map, int64_t k)
{
    enum { EVEN, RAGGED, SKEWED, DENSE, ODDS, STYLES };
    struct stream *const s = case_stream(c, map->field->name);
    const int64_t style = case_pick(c, "route", STYLES), tokens = map->shape[0], experts = map->shape[1];
    const int64_t odds = 2 + stream_below(s, 9);
    int64_t most = 0;
    for (int64_t t = 0; t < tokens; t++) {
        int64_t n = 0, wanted = style == RAGGED ? stream_below(s, k + 1) : k;
        for (int64_t e = 0; e < experts && (style == DENSE || style == ODDS); e++)
            if (style == DENSE || stream_chance(s, odds)) {
                case_put(map, t * experts + e, 1 + stream_below(s, 255));
                n++;
            }
        for (; style < DENSE && experts > 0 && n < wanted && n < experts; n++) {
            int64_t e = stream_below(s, style == SKEWED && stream_chance(s, 2) ? (experts + 3) / 4 : experts);
            while (case_get(map, t * experts + e) != 0)
                e = (e + 1) % experts;
            case_put(map, t * experts + e, stream_chance(s, 4) ? 1 + stream_below(s, 255) : 1);
        }
        most = n > most ? n : most;
    }
    return most;
}

void case_fill_ids(struct call *c, struct operand *ids, int64_t experts)
{
    struct stream *const s = case_stream(c, ids->field->name);
    const int64_t k = ids->shape[ids->rank - 1];
    for (int64_t i = 0; i < case_count(ids); i++) {
        int64_t e = stream_below(s, experts);
        for (int64_t j = i / k * k; j < i; j++)
            if (case_get(ids, j) == e) {
                e = (e + 1) % experts;
                j = i / k * k - 1;
            }
        case_put(ids, i, e);
    }
}

/* ---- A call ---- */

/* The shape text again, by the extents that `make` has bound: sy_infer must agree wherever they state it. */
static void compare_with_text(struct call *c, const struct operand *x)
{
    const char *text = shape_form(x);
    if (strstr(text, "...") != NULL || *text == '\0' || c->comm != NULL)
        return;
    for (int d = 0; d < x->rank; d++) {
        int64_t want;
        if (extent_of(c, &text, &want) && want != x->shape[d])
            case_fail(c, NULL, "sy_infer gives %s extent %d as %lld; its text %s says %lld", x->field->name,
                      d, (long long)x->shape[d], x->field->shape, (long long)want);
    }
}

static void take_inferred(struct call *c, struct operand *x, const sy_shape *shape)
{
    char name[40];
    snprintf(name, sizeof name, "give:%s", x->field->name);
    const bool optional = x->field->flags & SY_FIELD_OPTIONAL;
    const bool wished = c->in->kind == READ_TEXT ? case_flag(c, x->field->name) : case_pick(c, name, 3) > 0;
    const bool paired = x->field->with > 0 && c->operand[x->field->with - 1].given;
    if (x->device > 0) { /* as on the first device */
        x->needed = x[-x->device * c->info->n_tensors].given;
        x->left_out = !x->needed;
    }
    const bool stated = x->rank > 0; /* where sy_infer cannot know it */
    x->given = (shape->rank >= 0 || stated) && !x->left_out && (x->needed || !optional || wished || paired) &&
               (x->field->with == 0 || paired);
    if (!x->given)
        return;
    x->out = true;
    if (x->rank <= 0) {
        x->rank = shape->rank;
        memcpy(x->shape, shape->extent, (size_t)shape->rank * sizeof *x->shape);
    }
    if (x->type.bits == 0) {
        const uint32_t types = x->field->types;
        const bool several = types != 0 && ((types & (types - 1)) != 0 || x->field->like > 0);
        const bool preset = x->field->preset != NULL && c->in->kind == READ_TEXT;
        x->type = several && !preset ? case_type(c, x->field->name) : shape->type;
    }
    compare_with_text(c, x);
    allocate(c, x);
    if (x->old != NULL && x->dense != NULL)
        memcpy(x->dense, x->old, x->bytes);
    else if (x->field->flags & SY_FIELD_KEEPS)
        case_fill(c, x);
}

sy_status call_infer(struct call *c, sy_shape *shapes)
{
    for (int i = 0; i < c->n_operands; i++) {
        struct operand *const x = &c->operand[i];
        shapes[i].rank = -1;
        if (!x->given)
            continue;
        x->t = sy_tensor(x->dense, x->type, x->rank, x->shape);
        *x->at = &x->t;
    }
    const bool device = case_on_device();
    sy_ctx *ctx = case_ctx[0];
    if (device && sy_ctx_create(&ctx, NULL) != SY_OK)
        abort();
    const sy_status status = op_infer(c, ctx, call_bind(c), c->info->args_bytes, shapes);
    if (status != SY_OK && c->want.status == SY_OK)
        case_fail(c, ctx, "the call that is made is not valid");
    if (device)
        sy_ctx_destroy(ctx);
    return status;
}

static void make_outputs(struct call *c)
{
    static sy_shape shapes[CASE_OPERANDS];
    call_infer(c, shapes);
    for (int i = 0; i < c->n_described; i++)
        if ((c->operand[i].field->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) == SY_FIELD_OUT)
            take_inferred(c, &c->operand[i], &shapes[i]);
}

void call_make_only(struct call *c, const struct op_case *op, struct reader *in)
{
    memset(c, 0, sizeof *c);
    c->op = op;
    c->info = sy_op_find(op->name);
    c->in = in;
    c->query = (sy_query){.rows = -1, .slots = -1};
    if (c->info == NULL)
        abort();
    c->n_devices = 1;
    c->n_operands = c->n_described = c->info->n_tensors;
    for (int i = 0; i < c->n_operands; i++) {
        c->operand[i].field = sy_op_field(c->info, i);
        c->operand[i].at = (const DLTensor **)(void *)((char *)&c->args + c->operand[i].field->offset);
        c->operand[i].rank = -1;
    }
    op->make(c);
    c->device = 0;
    make_outputs(c);
    for (int i = 0; i < c->n_operands;
         i++) /* what is read and changed keeps what the oracle does not change */
        if (c->operand[i].dense != NULL && c->operand[i].want != NULL)
            memcpy(c->operand[i].want, c->operand[i].dense, c->operand[i].bytes);
}

void case_mesh(struct call *c, sy_mesh mesh)
{
    const int n = c->info->n_tensors;
    c->n_devices = mesh.rows * mesh.cols;
    c->n_operands = c->n_described = n * c->n_devices;
    c->comm = case_comm(mesh);
    for (int i = 0; i < c->n_operands; i++)
        c->operand[i] = (struct operand){
            .field = sy_op_field(c->info, i % n), .at = &c->operand[i].slot, .device = i / n, .rank = -1};
}

const void *call_bind(struct call *c)
{
    const int n = c->info->n_tensors;
    for (int i = 0; i < n && c->comm != NULL; i++) {
        const sy_field_info *const f = sy_op_field(c->info, i);
        const DLTensor *all = c->bound[i];
        for (int d = 0; d < c->n_devices; d++) {
            const DLTensor *const t = *c->operand[f->flags & SY_FIELD_SHARED ? i : d * n + i].at;
            if (t == NULL) /* missing on one, missing on all */
                all = NULL;
            else
                c->bound[i][d] = *t;
        }
        memcpy((char *)&c->args + f->offset, &all, sizeof all);
    }
    return &c->args;
}

void call_make(struct call *c, const struct op_case *op, struct reader *in)
{
    call_make_only(c, op, in);
    op->oracle(c);
}

void call_free(struct call *c)
{
    if (c->done != NULL)
        c->done(c);
    for (int i = 0; i < c->n_operands; i++) {
        free(c->operand[i].block);
        free(c->operand[i].before);
        free(c->operand[i].after);
    }
    while (c->user != NULL) {
        void **const block = c->user;
        c->user = *block;
        free(block);
    }
}
