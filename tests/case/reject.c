/*
 * Rejections. Those that follow from the description: every tensor is missing, has no data or shape, has every type that
 * is not accepted, ranks outside its range, extents that are negative or off by one, strides, another device; every output
 * lies over every other tensor; every scalar is outside its range, every enum has no word; then pairs, of which the one that
 * comes first in the documented order is reported. And those of the case's own tables.
 */
#include "case.h"

#include <math.h>
#include <stdio.h>

/* The documented order. */
enum phase {
    AT_NULL,
    AT_TYPE,
    AT_RANK,
    AT_INPUT,
    AT_VALUE,
    AT_OUTPUT,
    AT_STRIDE,
    AT_DEVICE,
    AT_ALIAS,
    PHASES,
    ALONE = PHASES /* not paired with others */
};

struct trial {
    struct rejection row; /* what is expected; its change is that of `first`, `more` and `then` */
    struct change first, second;
    const char *more, *then;
    bool inputs; /* the query rejects it too, without outputs and data */
    enum phase phase;
    char name[48], other[48], found[64], wanted[64], blame[600];
};

static struct {
    struct trial trial[4000];
    int n;
} list;

static int n_rejections;

/* ---- One rejection ---- */

static bool names(const char *list_of_names, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list_of_names; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, name, n) == 0 && (at[n] == '|' || at[n] == '\0'))
            return true;
    }
    return false;
}

/* Whether the first change is the only one. */
static bool is_alone(const struct trial *t)
{
    return t->second.kind == CHANGE_NOTHING && t->more == NULL && t->then == NULL && t->row.with == NULL;
}

/* A fault of a mesh's tensor is of its device. */
static void check_device(struct call *c, sy_ctx *ctx, const struct trial *t, const char *argument)
{
    char want[80];
    const struct change *const s = &t->first;
    if (c->comm == NULL || s->kind >= CHANGE_NUMBER || s->device < 0 || !is_alone(t))
        return;
    const int device = case_field_on(c, s->field, s->device)->device;
    snprintf(want, sizeof want, "%s of device %d ", argument, device);
    if (strcmp(argument, s->field) == 0 && strstr(sy_ctx_error(ctx), want) == NULL)
        case_fail(c, ctx, "the sentence does not name device %d", device);
}

/* Whether the text has this number, or one that is `less` less. */
static bool has_number(const char *text, size_t length, int64_t number, int64_t less)
{
    for (size_t i = 0; i < length; i++) {
        char *end;
        const bool begins = i == 0 || ((text[i - 1] < '0' || text[i - 1] > '9') && text[i - 1] != '-');
        const int64_t found = begins ? strtoll(text + i, &end, 10) : 0;
        if (begins && end > text + i && (found == number || found == number - less))
            return true;
    }
    return false;
}

/* The value of a fault comes before "want", its limit after it; that of a scalar is the end of the range that it is past. */
static void check_numbers(struct call *c, sy_ctx *ctx, const sy_fault *f, bool scalar)
{
    const char *const sentence = sy_ctx_error(ctx), *const want = strstr(sentence, "want");
    const size_t before = want != NULL ? (size_t)(want - sentence) : 0;
    if (want != NULL && f->value != 0 && !has_number(sentence, before, f->value, 0))
        case_fail(c, ctx, "value %lld is not in the sentence", (long long)f->value);
    if (want != NULL && f->limit != 0 && !has_number(want, strlen(want), f->limit, 1))
        case_fail(c, ctx, "limit %lld is not in the sentence", (long long)f->limit);
    if (want == NULL || !scalar || (f->value == 0 && f->limit == 0))
        return;
    char *after = NULL; /* "want 0 to 7", "want 1 or more" */
    const long long low = strtoll(want + strlen("want"), &after, 10);
    const bool range = strncmp(after, " to ", 4) == 0, more = strncmp(after, " or more", 8) == 0;
    const long long high = range ? strtoll(after + 4, NULL, 10) : 0;
    if ((range || more) && f->limit != (more || f->value < low ? low : high))
        case_fail(c, ctx, "limit %lld is not that of the range", (long long)f->limit);
}

static void check_plane(struct call *c, sy_ctx *ctx, const struct trial *t)
{
    const char *const dot = t->first.field != NULL ? strchr(t->first.field, '.') : NULL;
    char plane[32];
    snprintf(plane, sizeof plane, "of plane %s", dot != NULL ? dot + 1 : "");
    if (dot != NULL && t->first.kind != CHANGE_OVER && strstr(sy_ctx_error(ctx), plane) == NULL)
        case_fail(c, ctx, "the sentence does not contain %s", plane);
}

/* Arguments that may be blamed: without a statement the tensor, as it is named in the description, or both that overlap. */
static bool may_blame(const struct trial *t, const char *argument)
{
    const struct change *const s = &t->first;
    if (t->row.blame != NULL)
        return *t->row.blame == '\0' || names(t->row.blame, argument);
    const size_t n = s->field != NULL ? strcspn(s->field, ".,") : 0;
    return s->field == NULL || (strlen(argument) == n && strncmp(s->field, argument, n) == 0) ||
           (s->kind == CHANGE_OVER && strcmp(s->other, argument) == 0);
}

static void check_sentence(struct call *c, sy_ctx *ctx, const struct trial *t, sy_status status)
{
    const struct rejection *const r = &t->row;
    const char *const sentence = sy_ctx_error(ctx);
    sy_fault f;
    sy_ctx_fault(ctx, &f);
    check_plane(c, ctx, t);
    if (status != r->want || f.status != status)
        case_fail(c, ctx, "%s, want %s", sy_status_name(status), sy_status_name(r->want));
    if (status == SY_OK) {
        call_check(c, ctx, status);
        return;
    }
    if (strstr(sentence, c->info->name) == NULL)
        case_fail(c, ctx, "the sentence does not name the operator");
    if (!may_blame(t, f.argument))
        case_fail(c, ctx, "the fault names %s, want %s", f.argument,
                  r->blame != NULL ? r->blame : t->first.field);
    if (f.argument[0] != '\0' && strstr(sentence, f.argument) == NULL)
        case_fail(c, ctx, "the sentence does not name %s", f.argument);
    if (r->found != NULL && strstr(sentence, r->found) == NULL)
        case_fail(c, ctx, "the sentence does not contain %s", r->found);
    if (r->wanted != NULL && strstr(sentence, r->wanted) == NULL)
        case_fail(c, ctx, "the sentence does not contain %s", r->wanted);
    check_device(c, ctx, t, f.argument);
    const bool scalar = t->first.kind == CHANGE_SCALAR && t->more == NULL && r->with == NULL,
               word = scalar && case_scalar(c, t->first.field)->kind == SY_KIND_ENUM;
    if ((status == SY_ERR_VALUE || status == SY_ERR_SHAPE) && f.code != SY_FAULT_EMPTY && !word)
        check_numbers(c, ctx, &f, scalar);
    if (r->code != SY_FAULT_NONE && f.code != r->code)
        case_fail(c, ctx, "fault %s, want %s", sy_fault_name(f.code), sy_fault_name(r->code));
    if ((r->numbers[0] != 0 || r->numbers[1] != 0) && (f.value != r->numbers[0] || f.limit != r->numbers[1]))
        case_fail(c, ctx, "value %lld, limit %lld", (long long)f.value, (long long)f.limit);
}

static void reject(struct call *c, const struct trial *t)
{
    sy_ctx *const ctx = case_ctx[n_rejections++ % n_case_ctx];
    const union test_args args = c->args;
    char before[sizeof case_where], sentence[600];
    sy_query query;
    memcpy(before, case_where, sizeof before);
    snprintf(case_where + strlen(before), sizeof case_where - strlen(before), "; %s", t->row.change);
    call_lay_out(c, 0, false);
    call_apply(c, &t->first);
    call_apply(c, &t->second);
    call_change(c, t->more);
    if (t->row.with != NULL)
        t->row.with(c);
    call_change(c, t->then);
    const sy_status status = call_run(c, ctx);
    check_sentence(c, ctx, t, status);
    if (status != SY_OK)
        call_untouched(c, ctx);
    if (t->inputs) {
        snprintf(sentence, sizeof sentence, "%s", sy_ctx_error(ctx));
        for (int i = 0; i < c->n_operands; i++) {
            c->operand[i].t.data = NULL;
            if (c->operand[i].out && !c->operand[i].in && c->operand[i].given)
                *c->operand[i].at = NULL;
        }
        if (op_query(c, ctx, call_bind(c), c->info->args_bytes, &query) != status)
            case_fail(c, ctx, "the query does not reject it so");
        if (strcmp(sentence, sy_ctx_error(ctx)) != 0)
            case_fail(c, ctx, "the call says \"%s\"", sentence);
    }
    c->args = args;
    memcpy(case_where, before, sizeof before);
}

/* ---- From the description ---- */

static void full_name(char *text, size_t size, const struct operand *x)
{
    if (x->plane > 0)
        snprintf(text, size, "%s.%d", x->field->name, x->plane);
    else
        snprintf(text, size, "%s", x->field->name);
}

static struct trial *add(const struct operand *x, enum change_kind kind, enum phase phase, sy_status want)
{
    static struct trial none;
    struct trial *const t = list.n < 4000 ? &list.trial[list.n++] : &none;
    *t = (struct trial){.row = {.change = x != NULL ? x->field->name : "", .want = want},
                        .first = {.kind = kind,
                                  .field = x != NULL ? x->field->name : NULL,
                                  .device = x != NULL ? x->device : 0},
                        .inputs = x != NULL && x->in,
                        .phase = phase};
    if (x != NULL && x->plane > 0) {
        full_name(t->name, sizeof t->name, x);
        t->row.blame = x->field->name;
        t->row.change = t->first.field = t->name;
    }
    return t;
}

static void expect_numbers(struct trial *t, sy_fault_code code, int64_t value, int64_t limit)
{
    t->row.code = code;
    t->row.numbers[0] = value;
    t->row.numbers[1] = limit;
}

/* One of two tensors that come together. */
static bool paired(const struct call *c, const struct operand *x)
{
    bool found = x->field->with > 0;
    for (int i = 0; i < c->info->n_tensors && !found; i++)
        found = c->operand[i].field->with > 0 && &c->operand[c->operand[i].field->with - 1] == x;
    return found;
}

static void list_nulls(const struct call *c, const struct operand *x)
{
    if (x->device > 0) /* missing on one, missing on all */
        ;
    else if (!(x->field->flags & SY_FIELD_OPTIONAL) || x->accepts != 0) /* a format requires it */
        add(x, CHANGE_MISSING, AT_NULL, SY_ERR_NULL)->row.found = "is missing";
    else if (paired(c, x)) {
        struct trial *const t = add(x, CHANGE_MISSING, AT_NULL, SY_ERR_NULL);
        t->row.found = "want both or none";
        t->inputs = false;
    }
    add(x, CHANGE_NO_SHAPE, AT_NULL, SY_ERR_NULL)->row.found = "no shape";
    if (x->bytes > 0) {
        struct trial *const t = add(x, CHANGE_NO_DATA, AT_NULL, SY_ERR_NULL);
        t->row.found = "no data";
        t->inputs = false;
    }
}

/* The tensor itself, or one that must have its type. */
static void list_types(const struct call *c, const struct operand *x)
{
    static const DLDataType odd[] = {{2, 32, 2}, {0, 4, 1}, {5, 128, 1}, {1, 1, 1}};
    for (int i = 1; i < SY_N_TYPES + 4; i++) {
        const DLDataType type = i < SY_N_TYPES ? sy_dtype((sy_type)i) : odd[i - SY_N_TYPES];
        if (call_accepts(c, x, type))
            continue;
        struct trial *const t = add(x, CHANGE_TYPE, x->accepts != 0 ? ALONE : AT_TYPE, SY_ERR_DTYPE);
        t->first.type = type;
        t->row.code = SY_FAULT_BAD_DTYPE;
        if (i < SY_N_TYPES)
            snprintf(t->found, sizeof t->found, "%s", sy_type_name((sy_type)i));
        t->row.found = t->found;
        t->inputs =
            x->in && (c->comm == NULL || x->accepts == 0); /* an output that is of its type comes first */
        size_t used = (size_t)snprintf(t->blame, sizeof t->blame, "%s", x->field->name);
        for (int j = 0; j < c->info->n_tensors; j++)
            if (c->operand[j].field->like > 0 && c->operand[c->operand[j].field->like - 1].field == x->field)
                used += (size_t)snprintf(t->blame + used, sizeof t->blame - used, "|%s",
                                         c->operand[j].field->name);
        t->row.blame = t->blame;
    }
}

static void list_ranks(const struct operand *x)
{
    const int ranks[] = {x->field->min_rank - 1, x->field->max_rank + 1};
    for (int r = 0; r < 2; r++) {
        if (ranks[r] > CASE_RANK)
            continue;
        struct trial *const t = add(x, CHANGE_RANK, AT_RANK, SY_ERR_SHAPE);
        t->first.value = ranks[r];
        snprintf(t->found, sizeof t->found, "has rank %d", ranks[r]);
        t->row.found = t->found;
        expect_numbers(t, SY_FAULT_BAD_RANK, ranks[r], r == 0 ? x->field->min_rank : x->field->max_rank);
    }
    for (int d = 0; d < x->rank; d++) {
        struct trial *const t = add(x, CHANGE_EXTENT, AT_RANK, SY_ERR_SHAPE);
        t->first.d = d;
        t->first.value = -3;
        t->row.found = "no negative extent";
    }
}

static void print_shape(char *text, size_t size, const struct operand *x, int d, int64_t value)
{
    size_t used = 0;
    for (int i = 0; i < x->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%lld", i == 0 ? "[" : ",",
                                 (long long)(i == d ? value : x->shape[i]));
    snprintf(text + used, size - used, "]");
}

/* Whether an extent is stated before input i: by a scalar or an earlier input, or by an expression. */
static bool stated_before(const struct call *c, int i, const char *extent)
{
    const size_t n = strcspn(extent, " |");
    for (int s = c->info->n_tensors; s < c->info->n_fields && n == 1; s++) {
        const char *const range = sy_op_field(c->info, s)->range;
        if (range != NULL && range[1] == ':' && (*range | 32) == (*extent | 32))
            return true;
    }
    for (int j = 0; j < i && n == 1; j++)
        for (const char *at = c->operand[j].given ? c->operand[j].field->shape : ""; *at != '\0'; at++)
            if ((*at | 32) == (*extent | 32) && strcspn(at, " |") == 1)
                return true;
    return (n > 1 && strncmp(extent, "...", 3) != 0) || (*extent >= '0' && *extent <= '9');
}

/* The input, or another that states the extent too. */
static void blame_extent(const struct call *c, const struct operand *x, const char *extent, struct trial *t)
{
    size_t used = (size_t)snprintf(t->blame, sizeof t->blame, "%s", x->field->name);
    for (int j = 0; j < c->info->n_tensors; j++)
        for (const char *at = c->operand[j].given && c->operand[j].in ? c->operand[j].field->shape : "";
             *at != '\0'; at++)
            if ((*at | 32) == (*extent | 32) && strcspn(at, " |") == 1)
                used += (size_t)snprintf(t->blame + used, sizeof t->blame - used, "|%s",
                                         c->operand[j].field->name);
    t->row.blame = t->blame;
}

/* Inputs whose extents are stated by what comes before them. */
static void list_input_extents(const struct call *c, int i)
{
    const struct operand *const x = &c->operand[i];
    const char *text = shape_form(x);
    if (!x->in || x->out || x->free || x->plane > 0 ||
        (x->field->flags & (SY_FIELD_PER_ROW | SY_FIELD_ONE_ROW)))
        return;
    for (int d = 0; d < x->rank && *text != '\0'; d++) {
        for (int by = -1; by <= 1 && stated_before(c, i % c->info->n_tensors, text); by += 2) {
            if (x->shape[d] + by < 0)
                continue;
            struct trial *const t = add(x, CHANGE_EXTENT, AT_INPUT, SY_ERR_SHAPE);
            t->first.d = d;
            t->first.value = x->shape[d] + by;
            blame_extent(c, x, text, t);
            if (c->comm == NULL && strchr(t->blame, '|') == NULL)
                expect_numbers(t, SY_FAULT_NONE, t->first.value, x->shape[d]);
            if (c->comm != NULL) { /* the first tensor that does not fit to it, which may be an output */
                t->row.blame = "";
                t->inputs = false;
            }
        }
        text += strcspn(text, " ");
        text += *text == ' ';
    }
}

/* Outputs have exactly one shape, but for an extent that neither the call nor the case states. Those of which rows beyond
   the needed ones are accepted are listed as unchecked. */
static void list_extents(const struct call *c, const struct operand *x)
{
    const char *text = shape_form(x);
    int64_t value;
    for (int d = 0; x->out && !x->in && d < x->rank; d++) {
        const bool any = c->comm != NULL
                             ? d + 1 == x->loose
                             : (d == 0 && x->spare) || (*text != '\0' && strncmp(text, "...", 3) != 0 &&
                                                        !extent_of(c, &text, &value));
        for (int by = -1; by <= 1 && !any; by += 2) {
            if (x->shape[d] + by < 0 || (x->field->flags & SY_FIELD_PER_ROW))
                continue;
            struct trial *const t = add(x, CHANGE_EXTENT, AT_OUTPUT, SY_ERR_SHAPE);
            t->first.d = d;
            t->first.value = x->shape[d] + by;
            print_shape(t->found, sizeof t->found, x, d, x->shape[d] + by);
            print_shape(t->wanted, sizeof t->wanted, x, d, x->shape[d]);
            t->row.found = t->found;
            if (c->comm == NULL) /* else in words of the shape without dimensions of 1 */
                expect_numbers(t, SY_FAULT_BAD_SHAPE, t->first.value, x->shape[d]);
            t->row.wanted = c->comm != NULL && x->rank != c->operand[0].rank ? NULL : t->wanted;
        }
    }
}

static struct trial *add_stride(const struct operand *x, int d, int64_t value, sy_status want)
{
    struct trial *const t = add(x, CHANGE_STRIDE, AT_STRIDE, want);
    t->first.d = d;
    t->first.value = value;
    return t;
}

/* Columns that are apart, and rows that overlap, go backwards or are too far apart. */
static void list_strides(const struct operand *x)
{
    static const int64_t inner[] = {2, 0, -1};
    const int last = x->rank - 1;
    const int64_t columns = last >= 0 ? x->shape[last] : 1, outer[] = {columns - 1, -columns, INT64_MIN};
    if ((x->field->flags & (SY_FIELD_PER_ROW | SY_FIELD_OWN_STRIDES)) || x->bytes == 0 ||
        (x->upper > 0 && x->upper != last))
        return;
    for (int i = 0; i < 3 && columns > 1; i++)
        add_stride(x, last, inner[i], SY_ERR_STRIDE)->row.found = "contiguous";
    for (int i = 0; i < 3 && last >= 1 && x->shape[last - 1] > 1 && columns > 1; i++) {
        struct trial *const t = add_stride(x, last - 1, outer[i], SY_ERR_STRIDE);
        snprintf(t->found, sizeof t->found, "%lld", (long long)outer[i]);
        snprintf(t->wanted, sizeof t->wanted, "%lld", (long long)columns);
        t->row.found = t->found;
        t->row.wanted = t->wanted;
    }
    if (last == 1 && x->shape[0] > 1) {
        struct trial *const t = add_stride(x, 0, INT64_MAX, SY_ERR_OVERFLOW);
        t->phase = ALONE;
        t->row.found = "2^63";
    }
}

/* On the other tensor and a byte into it; it may reach into the tensors behind. */
static void list_overlaps(const struct call *c, const struct operand *x)
{
    for (int j = 0; x->out && x->bytes > 0 && j < c->n_operands; j++)
        for (int by = 0; by < 2; by++) {
            const struct operand *const y = &c->operand[j];
            const bool permitted = x->field->alias == j + 1 && by == 0 && x->accepts == 0;
            if (y == x || !y->given || y->bytes < 2 || permitted)
                continue;
            if (y->device != x->device && (by > 0 || y->device != (x->device + 1) % c->n_devices))
                continue; /* of another device: one, and on it */
            struct trial *const t = add(x, CHANGE_OVER, AT_ALIAS, SY_ERR_ALIAS);
            full_name(t->other, sizeof t->other, y);
            t->first.other = t->other;
            t->first.other_device = y->device;
            t->first.value = by;
            t->row.blame = "";
            t->inputs = false; /* a query has no data */
        }
}

static struct trial *add_scalar(const sy_field_info *f, int64_t value, sy_fault_code code)
{
    struct trial *const t = add(NULL, CHANGE_SCALAR, AT_VALUE, SY_ERR_VALUE);
    t->row.change = t->first.field = f->name;
    t->first.value = value;
    t->row.code = code;
    t->inputs = true;
    snprintf(t->found, sizeof t->found, "%lld", (long long)value);
    t->row.found = t->found;
    return t;
}

static void add_range(const sy_field_info *f, int64_t value, int64_t limit, const char *wanted)
{
    struct trial *const t = add_scalar(f, value, SY_FAULT_BAD_VALUE);
    t->row.numbers[0] = value;
    t->row.numbers[1] = limit;
    t->row.wanted = wanted;
}

/* Values of an enum that have no word: before the first, after the last, and "-". */
static void list_words(const sy_field_info *f)
{
    int n = 0;
    for (const char *word = f->words; word != NULL; n++) {
        if (*word == '-' && (word[1] == ' ' || word[1] == '\0'))
            add_scalar(f, n, SY_FAULT_BAD_OPTION)->row.found = NULL; /* a word of other operators */
        word = strchr(word, ' ');
        if (word != NULL)
            word++;
    }
    add_scalar(f, -1, SY_FAULT_BAD_OPTION);
    add_scalar(f, n, SY_FAULT_BAD_OPTION);
}

/* Whether the scalar is an extent of an input, which then has another one. */
static bool input_has(const struct call *c, const char *range)
{
    bool has = false;
    for (int i = 0; i < c->info->n_tensors && range[1] == ':'; i++)
        has |= c->operand[i].in && strchr(c->operand[i].field->shape, *range) != NULL;
    return has;
}

static void list_range(const struct call *c, const sy_field_info *f)
{
    const bool real = f->kind == SY_KIND_F32 || f->kind == SY_KIND_F64;
    const char *at = f->range[1] == ':' ? f->range + 3 : f->range;
    int64_t limit;
    const double odd[] = {(double)INFINITY, -(double)INFINITY, (double)NAN, -0.5};
    for (int k = 0; real && k < (*f->range == '0' ? 4 : 3); k++) {
        struct trial *const t = add(NULL, CHANGE_REAL, AT_VALUE, SY_ERR_VALUE);
        t->row.change = t->first.field = f->name;
        t->first.real = odd[k];
        t->row.found = k < 2 ? "inf" : k == 2 ? "nan" : "-0.5";
        t->row.wanted = *f->range == '0' ? "a finite number of 0 or more" : "a finite number";
        t->inputs = true;
    }
    if (real)
        return;
    const char *const high = strstr(at, "..") + 2;
    const int64_t least = strtoll(at, NULL, 10), below[] = {least - 1, INT64_MIN};
    for (int k = 0; k < 2; k++)
        add_range(f, below[k], least, *high == '\0' ? "or more" : " to ");
    at = high;
    if (*at == 'i')
        add_range(f, INT64_C(1) << 31, INT32_MAX, " to 2147483647");
    else if (*at != '\0' && extent_of(c, &at, &limit) && !input_has(c, f->range)) {
        add_range(f, limit + 1, limit, " to ");
        add_range(f, INT64_MAX, limit, " to ");
    }
}

/* ---- Row formats ---- */

/* Rows of codes of 8 bits, with their scales apart. */
static void list_formats(const struct call *c)
{
    static const struct {
        size_t at;
        int value;
        const char *found, *wanted;
    } changes[] = {{offsetof(sy_row_format, bytes), 0, "bytes 0", "sizeof(sy_kv_format)"},
                   {offsetof(sy_row_format, scale_math), 0, "scale_math 0", "other formats are of caches"},
                   {offsetof(sy_row_format, group), -1, "group -1", "1 or more"},
                   {offsetof(sy_row_format, group), 1000003, "rows of ", "a multiple of 1000003"}};
    const sy_field_info *const f = case_format_field(c);
    const sy_row_format *format = NULL;
    if (f != NULL)
        memcpy(&format, (const char *)&c->args + f->offset, sizeof format);
    for (int i = 0;
         i < 4 && c->format > 0 && format != NULL && format->scales == 0 && format->q_type.bits == 8; i++) {
        struct trial *const t = add(NULL, CHANGE_FORMAT, ALONE, i < 3 ? SY_ERR_VALUE : SY_ERR_SHAPE);
        t->row.change = changes[i].found;
        t->first.d = (int)changes[i].at;
        t->first.value = changes[i].value;
        t->row.blame = i < 3 ? f->name : "";
        t->row.found = changes[i].found;
        t->row.wanted = changes[i].wanted;
        t->inputs = true;
    }
}

static bool lists(const char *fields, const char *field)
{
    char word[48];
    snprintf(word, sizeof word, " %s ", field);
    return fields != NULL && strstr(fields, word) != NULL;
}

static bool unchecked(const struct call *c, const char *field)
{
    return lists(c->op->unchecked, field);
}

static void list_all(const struct call *c)
{
    list.n = 0;
    for (int i = 0; i < c->n_operands; i++) { /* of a mesh: on the first device and on the last */
        const struct operand *const x = &c->operand[i];
        if (!x->given || (x->device > 0 && x->device < c->n_devices - 1))
            continue;
        list_nulls(c, x);
        list_types(c, x);
        list_ranks(x);
        add(x, CHANGE_DEVICE, AT_DEVICE, SY_ERR_DEVICE)->first.value = 8; /* Metal */
        if (unchecked(c, x->field->name))
            continue;
        if (!lists(c->op->own_extents, x->field->name)) {
            list_input_extents(c, i);
            list_extents(c, x);
        }
        list_strides(x);
        list_overlaps(c, x);
    }
    list_formats(c);
    for (int i = c->info->n_tensors; i < c->info->n_fields; i++) {
        const sy_field_info *const f = sy_op_field(c->info, i);
        if (unchecked(c, f->name))
            continue;
        if (f->kind == SY_KIND_ENUM)
            list_words(f);
        else if (f->range != NULL)
            list_range(c, f);
    }
}

/* Every trial together with one of each later phase, of another field. */
static void reject_pairs(struct call *c)
{
    const struct trial *last[PHASES + 1] = {NULL};
    for (int i = 0; i < list.n; i++) /* of a mesh on one device: the faults of a lower one come first */
        if (list.trial[i].first.device == 0)
            last[list.trial[i].phase] = &list.trial[i];
    for (int i = 0; i < list.n; i++)
        for (int p = (int)list.trial[i].phase + 1; p < PHASES && list.trial[i].first.device == 0; p++) {
            struct trial both = list.trial[i];
            if (last[p] == NULL || strcmp(last[p]->row.change, both.row.change) == 0 ||
                (both.first.kind == CHANGE_EXTENT && both.first.value >= 0) ||
                (last[p]->first.kind == CHANGE_OVER && strcmp(last[p]->first.other, both.row.change) == 0))
                continue;
            both.second = last[p]->first;
            both.inputs = false;
            reject(c, &both);
        }
}

/* The number of a field; those of further planes come after those of the call. */
static int seen_at(const struct call *c, const struct operand *x)
{
    int i = 0;
    while (c->operand[i].field != x->field)
        i++;
    return x->plane > 0 ? SY_MAX_FIELDS + i : i;
}

/* Inputs may overlap: what such a call finds wrong is at most contents. */
static void overlap_inputs(struct call *c)
{
    const int n = c->comm == NULL ? c->n_operands : c->info->n_tensors;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            struct operand *const x = &c->operand[i], *const y = &c->operand[j];
            if (i == j || !x->given || !y->given || !x->in || !y->in || x->out || y->out ||
                x->bytes > y->bytes)
                continue;
            call_lay_out(c, 0, false);
            operand_over(x, y, 0);
            if (call_run(c, case_ctx[0]) == SY_ERR_ALIAS)
                case_fail(c, case_ctx[0], "%s may overlap %s", x->field->name, y->field->name);
        }
}

/* Tensors that are neither empty nor large. */
static bool is_small(const struct call *c)
{
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].given && (case_count(&c->operand[i]) < 1 || case_count(&c->operand[i]) > 4096))
            return false;
    return true;
}

/* A call that gives a tensor that none before it gave. */
static bool is_new(const struct call *c, bool *given)
{
    bool fresh = false;
    for (int i = 0; i < c->n_operands; i++) {
        const int at = seen_at(c, &c->operand[i]);
        fresh |= c->operand[i].given && !given[at];
        given[at] |= c->operand[i].given;
    }
    return fresh;
}

static bool all_given(const struct op_case *op, const bool *given)
{
    const sy_op_info *const info = sy_op_find(op->name);
    bool all = true, planes = false;
    for (int i = 0; i < info->n_tensors; i++) {
        all = all && (given[i] || (sy_op_field(info, i)->flags & SY_FIELD_AGAIN));
        planes = planes || given[SY_MAX_FIELDS + i];
    }
    for (int i = info->n_tensors; i < info->n_fields; i++)
        all = all && (planes || sy_op_field(info, i)->kind != SY_KIND_PLANES);
    return all;
}

/* ---- The case's own ---- */

/* Whether a query without outputs and data has what is changed. */
static bool of_inputs(struct call *c, const struct change *s)
{
    const bool tensor = (s->kind >= CHANGE_MISSING && s->kind <= CHANGE_DEVICE) && *s->field != '*';
    if (s->kind == CHANGE_OVER || s->kind == CHANGE_NUMBER || s->kind == CHANGE_NO_DATA)
        return false;
    for (int i = 0; tensor && i < c->info->n_tensors; i++) {
        const sy_field_info *const f = sy_op_field(c->info, i);
        const size_t n = strcspn(s->field, ".,");
        if (strlen(f->name) == n && strncmp(f->name, s->field, n) == 0 &&
            (f->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) != SY_FIELD_OUT)
            return true;
    }
    return !tensor;
}

/* Of a ladder: `later` is changed too. */
static void own_rejection(const struct op_case *op, const struct rejection *r, const struct rejection *later)
{
    static struct call c;
    struct reader in = reader_text(r->line != NULL ? r->line : op->small);
    struct trial t = {.row = *r, .inputs = !r->late && later == NULL && r->want != SY_OK};
    snprintf(case_where, sizeof case_where, "\"%s\"", in.text);
    call_make(&c, op, &in);
    if (c.want.status != SY_OK)
        case_fail(&c, NULL, "the line is rejected");
    t.more = call_read(&c, r->change, &t.first);
    t.inputs = t.inputs && of_inputs(&c, &t.first);
    t.then = later != NULL ? later->change : NULL;
    reject(&c, &t);
    call_free(&c);
}

static void own_rejections(const struct op_case *op)
{
    for (const struct rejection *r = op->rejections; r != NULL && r->change != NULL; r++)
        own_rejection(op, r, NULL);
    for (const struct rejection *r = op->ladder; r != NULL && r->change != NULL; r++)
        for (const struct rejection *later = r + 1; later->change != NULL; later++)
            own_rejection(op, r, later);
}

int test_rejections(const struct op_case *op)
{
    static struct call c;
    bool given[2 * SY_MAX_FIELDS] = {false}, faulty = false;
    n_rejections = 0;
    own_rejections(op);
    const int own = n_rejections;
    for (uint64_t seed = 1; seed <= 400 && !all_given(op, given); seed++) {
        struct reader in = reader_seed(seed);
        snprintf(case_where, sizeof case_where, "seed %llu", (unsigned long long)seed);
        call_make(&c, op, &in);
        const bool ok = c.want.status == SY_OK;
        if (is_small(&c) &&
            (ok ? is_new(&c, given) : !faulty)) { /* what contents are wrong is reported last */
            list_all(&c);
            for (int i = 0; i < list.n; i++)
                if (ok || list.trial[i].first.device + list.trial[i].first.other_device ==
                              0) /* of a mesh: device by device */
                    reject(&c, &list.trial[i]);
            if (ok)
                reject_pairs(&c);
            if (ok)
                overlap_inputs(&c);
            faulty |= !ok;
        }
        call_free(&c);
    }
    if (n_rejections == own)
        case_fail(&c, NULL, "no call is fit for rejections");
    return n_rejections;
}
