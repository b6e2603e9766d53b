/*
 * A description, executed: the shapes of tensors and the ranges of scalars are texts of a small language, which these steps
 * evaluate for each call.
 *
 *     shape  = form { " | " form }         by rank; the first tensor with forms decides for the others
 *     form   = extent { " " extent }
 *     extent = term [ ("+" | "-" | "*" | "/") term ]
 *     term   = letter | number [letter] | "ceil(" letter "/" number ")"
 *     range  = [ letter ": " ] extent ".." [ extent | "i32" | "finite" ] | "finite"
 *
 * A letter is an extent. It is bound by the first that states it: the operator itself, a scalar "E: 0..", an input; upper and
 * lower case are the same one. An output with an extent that nothing has bound is an error. What the language cannot say is written in C, as steps of the operator.
 */
#include "ops/row_codes.h"

#include <math.h>

enum { UNKNOWN = -1 };

/* ---- Extents ---- */

static inline bool is_letter(char c)
{
    return (unsigned char)((c | 32) - 'a') < 26;
}

static inline int64_t known(const struct syi_call *call, char letter)
{
    return call->bound >> (letter & 31) & 1u ? call->extent[letter & 31] : UNKNOWN;
}

static inline void bind(struct syi_call *call, char letter, int64_t n)
{
    call->extent[letter & 31] = n;
    call->bound |= 1u << (letter & 31);
}

void syi_bind(struct syi_call *call, char letter, int64_t n)
{
    bind(call, letter, n);
}

int64_t syi_bound(const struct syi_call *call, char letter)
{
    return call->bound >> (letter & 31) & 1u ? call->extent[letter & 31] : 0;
}

/* A number that was read, and what follows it. */
struct reading {
    int64_t n;
    const char *rest;
};

static inline struct reading read_number(const char *s)
{
    int64_t n = 0;
    for (; *s >= '0' && *s <= '9'; s++)
        n = n * 10 + (*s - '0');
    return (struct reading){n, s};
}

static inline struct reading read_term(const struct syi_call *call, const char *s)
{
    if (is_letter(*s) && s[1] != 'e')
        return (struct reading){known(call, *s), s + 1};
    if (*s == 'c') { /* ceil(V/32) */
        const int64_t n = known(call, s[5]);
        const struct reading by = read_number(s + 7);
        return (struct reading){n == UNKNOWN ? UNKNOWN : n / by.n + (n % by.n != 0), by.rest + 1};
    }
    struct reading number = read_number(s);
    if (is_letter(*number.rest)) { /* 2E */
        const int64_t n = known(call, *number.rest++);
        if (n == UNKNOWN || !syi_mul(number.n, n, &number.n))
            number.n = n == UNKNOWN ? UNKNOWN : INT64_MAX;
    }
    return number;
}

/* Saturating. */
static struct reading read_extent(const struct syi_call *call, const char *s)
{
    if (s[1] == '\0' && !is_letter(*s)) /* "1" */
        return (struct reading){*s - '0', s + 1};
    const struct reading a = read_term(call, s);
    const char op = *a.rest;
    if (op != '+' && op != '-' && op != '*' && op != '/')
        return a;
    struct reading b = read_term(call, a.rest + 1);
    if (a.n == UNKNOWN || b.n == UNKNOWN)
        b.n = UNKNOWN;
    else if (op == '*' || op == '+')
        b.n = (op == '*' ? syi_mul(a.n, b.n, &b.n) : syi_add(a.n, b.n, &b.n)) ? b.n : INT64_MAX;
    else if (op == '/')
        b.n = b.n > 0 ? a.n / b.n : 0;
    else
        b.n = a.n > b.n ? a.n - b.n : 0;
    return b;
}

/* ---- Shapes ---- */

/* The form of a text that holds in this call. Where none is decided yet, the one of t's rank. */
static const char *choose_form(struct syi_call *call, const char *s, const DLTensor *t)
{
    for (int number = 1;; number++) {
        const char *end = s;
        int spaces = 0;
        for (; *end != '\0' && *end != '|'; end++)
            spaces += *end == ' ';
        const int rank = *end == '|' ? spaces : spaces + 1;
        if (*end == '\0' || (call->form != 0 ? call->form == number : t != NULL && rank == t->ndim)) {
            if (call->form == 0 && t != NULL)
                call->form = number;
            return s;
        }
        s = end + 2;
    }
}

/* Most calls are right: every extent is the one that is known, or, of an input, the first of its name. */
static bool as_described(struct syi_call *call, const char *s, const DLTensor *t, bool input)
{
    for (int d = 0; d < t->ndim; d++, s += *s == ' ') {
        if (*s == '\0' || *s == '|')
            return false;
        if (!is_letter(*s) || (s[1] != ' ' && s[1] != '\0')) {
            const struct reading want = read_extent(call, s);
            if (want.n != t->shape[d])
                return false;
            s = want.rest;
        } else {
            const unsigned letter = (unsigned char)*s++ & 31u;
            if (!(call->bound >> letter & 1u) && input)
                bind(call, (char)letter, t->shape[d]);
            else if (known(call, (char)letter) != t->shape[d])
                return false;
        }
    }
    return *s == '\0' || *s == '|';
}

/* What tensor i must be, and the sentence if it is not; for sy_infer a tensor that is not there. */
static __attribute__((noinline)) sy_status check_closely(struct syi_call *call, int i, const char *s)
{
    const DLTensor *t = call->tensor[i];
    int64_t want[SY_MAX_RANK];
    int rank = 0;
    for (; *s != '\0' && *s != '|'; s += *s == ' ') {
        const char *const at = s;
        const struct reading extent = read_extent(call, s);
        want[rank] = extent.n;
        s = extent.rest;
        if (want[rank] == UNKNOWN && t == NULL)
            return SY_OK; /* the call cannot have it */
        if (want[rank] == UNKNOWN && (i >= call->n_inputs || s != at + 1 || rank >= t->ndim))
            return syi_fail(call->ctx, SY_ERR_STATE, syi_name(call, i),
                            "has extents %s, which nothing in the call states", at);
        if (want[rank] == UNKNOWN)
            want[rank] = t->shape[rank];
        if (rank == 0 && t != NULL && t->shape[0] == 1 && (call->op->info.fields[i].flags & SY_FIELD_ONE_ROW))
            want[0] = 1;
        rank++;
    }
    return syi_check_shape(call, i, rank, want);
}

sy_status syi_check_shapes(struct syi_call *call, int first, int end)
{
    for (int i = first; i < end; i++) {
        const DLTensor *t = call->tensor[i];
        const sy_field_info *field = &call->op->info.fields[i];
        if ((t == NULL && call->shapes == NULL) || (call->without >> i & 1u))
            continue;
        if (field->flags & SY_FIELD_PER_ROW) {
            SYI_TRY(syi_check_per_row(call, i, syi_bound(call, 'B')));
            continue;
        }
        const char *s = field->shape;
        if (field->min_rank != field->max_rank)
            s = choose_form(call, s, t);
        if (t == NULL || !as_described(call, s, t, i < call->n_inputs))
            SYI_TRY(check_closely(call, i, s));
    }
    return SY_OK;
}

/* ---- Scalars ---- */

static const void *field_at(const struct syi_call *call, int i)
{
    return (const unsigned char *)&call->args + call->op->info.fields[i].offset;
}

static sy_status check_float(struct syi_call *call, const sy_field_info *field, double value, bool from_0)
{
    if (isfinite(value) && (!from_0 || value >= 0))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_VALUE, field->name, "is %g, want a finite number%s", value,
                    from_0 ? " of 0 or more" : "");
}

/* A letter is bound by a scalar that is in its range, as far as numbers state the range. Also looks whether any enum has
   another value than its first. */
static void bind_scalars(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    for (int i = info->n_tensors; i < info->n_fields; i++) {
        const char *s = info->fields[i].range;
        if (info->fields[i].kind == SY_KIND_ENUM)
            call->chosen = call->chosen || *(const int *)field_at(call, i) != 0;
        if (s == NULL || s[1] != ':' || (call->bound >> (*s & 31) & 1u))
            continue;
        const int64_t value = *(const int64_t *)field_at(call, i);
        const char letter = *s;
        if (value >= read_number(s + 3).n)
            bind(call, letter, value);
    }
}

static sy_status check_number(struct syi_call *call, const sy_field_info *field, int64_t value)
{
    const char *const s = field->range[1] == ':' ? field->range + 3 : field->range;
    if (s[1] == '.' && value >= *s - '0' && (s[3] == '\0' || (s[3] == 'i' && value <= INT32_MAX)))
        return SY_OK; /* "0..", "0..i32" */
    const struct reading low = read_extent(call, s);
    const char *const rest = low.rest + 2;
    const int64_t high = *rest == '\0' ? INT64_MAX : *rest == 'i' ? INT32_MAX : read_extent(call, rest).n;
    return value >= low.n && value <= high ? SY_OK : syi_check_value(call, field->name, value, low.n, high);
}

static inline sy_status check_scalar(struct syi_call *call, int i)
{
    const sy_field_info *field = &call->op->info.fields[i];
    if (field->kind == SY_KIND_ENUM) {
        const int value = *(const int *)field_at(call, i);
        return value == 0 ? SY_OK : syi_check_word(call, i, value);
    }
    if (field->range == NULL)
        return SY_OK;
    if (field->kind == SY_KIND_F32)
        return check_float(call, field, (double)*(const float *)field_at(call, i), *field->range == '0');
    if (field->kind == SY_KIND_F64)
        return check_float(call, field, *(const double *)field_at(call, i), *field->range == '0');
    return check_number(call, field, *(const int64_t *)field_at(call, i));
}

sy_status syi_check_scalars(struct syi_call *call, int first, int end)
{
    for (int i = first; i < end; i++)
        SYI_TRY(check_scalar(call, i));
    return SY_OK;
}

sy_status syi_check_words(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    for (int i = info->n_tensors; call->chosen && i < info->n_fields; i++)
        if (info->fields[i].kind == SY_KIND_ENUM)
            SYI_TRY(check_scalar(call, i));
    return SY_OK;
}

/* ---- All checks, in the documented order ---- */

sy_status syi_check_some_output(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    bool any = call->query;
    for (int i = call->n_inputs; i < info->n_tensors; i++)
        any = any || call->tensor[i] != NULL;
    return any ? SY_OK
               : syi_fail(call->ctx, SY_ERR_NULL, info->fields[call->n_inputs].name,
                          "is missing and so is every other output, want at least one");
}

/* Tensors that come together, and the pair that may be one. A query sees no outputs. */
static sy_status check_pairs(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    for (int i = call->n_inputs; i < info->n_tensors; i++) {
        const sy_field_info *field = &info->fields[i];
        const int first = field->with - 1;
        if (first >= 0)
            SYI_TRY(syi_check_both(call, info->fields[first].name, call->tensor[first], field->name,
                                   call->tensor[i]));
        if (field->alias > 0 && call->coded_rows.given == NULL) {
            call->may_alias[0] = field->alias - 1;
            call->may_alias[1] = i;
        }
    }
    return SY_OK;
}

static sy_status check_tensors(struct syi_call *call, const struct syi_steps *own)
{
    struct syi_coded *coded = &call->coded_rows;
    coded->given = NULL;
    if (own->rows.format > 0) {
        memset(coded, 0, sizeof *coded);
        memcpy(&coded->given, (const unsigned char *)&call->args + own->rows.format, sizeof coded->given);
        coded->dense = own->rows.dense;
        coded->codes = own->rows.codes;
        coded->scales = own->rows.scales;
    }
    SYI_TRY(own->together != NULL ? own->together(call) : SY_OK);
    SYI_TRY(check_pairs(call));
    if (own->rows.format > 0)
        SYI_TRY(syi_coded_begin(call, coded));
    SYI_TRY(syi_check_tensors(call, own->untouched != NULL && own->untouched(call)));
    if (own->rows.format > 0)
        SYI_TRY(syi_coded_check(call, coded));
    if (coded->given != NULL)
        syi_bind(call, 'G', coded->n_groups);
    return SY_OK;
}

static sy_status check_inputs(struct syi_call *call, const struct syi_steps *own)
{
    SYI_TRY(check_tensors(call, own));
    if (own->bind != NULL)
        SYI_TRY(own->bind(call));
    bind_scalars(call);
    call->without |= own->late;
    SYI_TRY(syi_check_shapes(call, 0, call->n_inputs));
    call->without &= ~own->late;
    return SY_OK;
}

/* Codes and their scales first, then all in their order. */
static sy_status check_outputs(struct syi_call *call, const struct syi_steps *own)
{
    if (own->outputs != NULL)
        return own->outputs(call);
    if (call->coded_rows.given != NULL && own->rows.codes >= call->n_inputs) {
        SYI_TRY(syi_check_shapes(call, own->rows.codes, own->rows.codes + 1));
        SYI_TRY(syi_check_shapes(call, own->rows.scales, own->rows.scales + 1));
    }
    return syi_check_shapes(call, call->n_inputs, call->op->info.n_tensors);
}

sy_status syi_check_described(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    const struct syi_steps *own = call->op->own;
    while (call->n_inputs < info->n_tensors && !(info->fields[call->n_inputs].flags & SY_FIELD_OUT))
        call->n_inputs++;
    SYI_TRY(check_inputs(call, own));
    SYI_TRY(own->values != NULL ? own->values(call)
                                : syi_check_scalars(call, info->n_tensors, info->n_fields));
    SYI_TRY(syi_check_sizes(call));
    if (own->sizes != NULL)
        SYI_TRY(own->sizes(call));
    SYI_TRY(check_outputs(call, own));
    SYI_TRY(syi_check_layout(call));
    own->plan(call);
    return SY_OK;
}
