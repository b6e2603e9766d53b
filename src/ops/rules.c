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
 * A letter is an extent. It is bound by the first that states it: the operator itself, a scalar "E: 0..", a tensor; upper and
 * lower case are the same one. What the language cannot say is written in C, as steps of the operator.
 */
#include "ops/row_codes.h"

#include <math.h>

enum { UNKNOWN = -1 };

/* ---- Extents ------------------------------------------------------------------------------------------- */

static bool is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static int64_t known(const struct syi_call *call, char letter)
{
    return call->bound >> (letter & 31) & 1u ? call->extent[letter & 31] : UNKNOWN;
}

void syi_bind(struct syi_call *call, char letter, int64_t n)
{
    call->extent[letter & 31] = n;
    call->bound |= 1u << (letter & 31);
}

int64_t syi_bound(const struct syi_call *call, char letter)
{
    return call->extent[letter & 31];
}

static int64_t read_number(const char **s)
{
    int64_t n = 0;
    for (; **s >= '0' && **s <= '9'; ++*s)
        n = n * 10 + (**s - '0');
    return n;
}

static int64_t read_term(const struct syi_call *call, const char **s)
{
    if (strncmp(*s, "ceil(", 5) == 0) {
        const int64_t n = known(call, (*s)[5]);
        *s += 7;
        const int64_t by = read_number(s);
        ++*s;
        return n == UNKNOWN ? UNKNOWN : n / by + (n % by != 0);
    }
    int64_t n = 1, product;
    if (!is_letter(**s))
        n = read_number(s);
    if (!is_letter(**s))
        return n;
    const int64_t extent = known(call, *(*s)++);
    return extent == UNKNOWN ? UNKNOWN : syi_mul(n, extent, &product) ? product : INT64_MAX;
}

/* Saturating. */
static int64_t read_extent(const struct syi_call *call, const char **s)
{
    const int64_t a = read_term(call, s);
    const char op = **s;
    int64_t result;
    if (op == '\0' || strchr("+-*/", op) == NULL)
        return a;
    ++*s;
    const int64_t b = read_term(call, s);
    if (a == UNKNOWN || b == UNKNOWN)
        return UNKNOWN;
    if (op == '*')
        return syi_mul(a, b, &result) ? result : INT64_MAX;
    if (op == '+')
        return syi_add(a, b, &result) ? result : INT64_MAX;
    if (op == '/')
        return b > 0 ? a / b : 0;
    return a > b ? a - b : 0;
}

/* ---- Shapes -------------------------------------------------------------------------------------------- */

static int form_rank(const char *s)
{
    int rank = 1;
    for (; *s != '\0' && s[1] != '|'; s++)
        rank += *s == ' ';
    return rank;
}

/* The form of a text that holds in this call. Where none is decided yet, the one of t's rank. */
static const char *choose_form(struct syi_call *call, const char *s, const DLTensor *t)
{
    int number = 1;
    for (const char *next = s; (next = strchr(next, '|')) != NULL; number++, s = next) {
        const bool here = call->form != 0 ? call->form == number : t != NULL && form_rank(s) == t->ndim;
        if (here)
            break;
        next += 2;
    }
    if (call->form == 0 && t != NULL)
        call->form = number;
    return s;
}

/* Most calls are right: every extent is the one that is known, or the first of its name. */
static bool as_described(struct syi_call *call, const char *s, const DLTensor *t)
{
    for (int d = 0; d < t->ndim; d++, s += *s == ' ') {
        if (*s == '\0' || *s == '|')
            return false;
        if (!is_letter(*s) || (s[1] != ' ' && s[1] != '\0')) {
            if (read_extent(call, &s) != t->shape[d])
                return false;
        } else {
            const unsigned letter = *s++ & 31u;
            if (!(call->bound >> letter & 1u))
                syi_bind(call, (char)letter, t->shape[d]);
            else if (call->extent[letter] != t->shape[d])
                return false;
        }
    }
    return *s == '\0' || *s == '|';
}

/* What tensor i must be, and the sentence if it is not; for sy_infer a tensor that is not there. */
static sy_status check_closely(struct syi_call *call, int i, const char *s)
{
    const DLTensor *t = call->tensor[i];
    int64_t want[SY_MAX_RANK];
    int rank = 0;
    for (; *s != '\0' && *s != '|'; s += *s == ' ') {
        const char *const at = s;
        want[rank] = read_extent(call, &s);
        if (want[rank] == UNKNOWN && t == NULL)
            return SY_OK; /* the call cannot have it */
        if (want[rank] == UNKNOWN && (s != at + 1 || rank >= t->ndim))
            return syi_fail(call->ctx, SY_ERR_STATE, call->op->info.fields[i].name,
                            "has extents %s, which nothing in the call states", at);
        if (want[rank] == UNKNOWN)
            want[rank] = t->shape[rank];
        rank++;
    }
    return syi_check_shape(call, i, rank, want);
}

sy_status syi_check_shapes(struct syi_call *call, int first, int end)
{
    sy_status st = SY_OK;
    for (int i = first; st == SY_OK && i < end; i++) {
        const DLTensor *t = call->tensor[i];
        const sy_field_info *field = &call->op->info.fields[i];
        if ((t == NULL && call->shapes == NULL) || (call->without >> i & 1u))
            continue;
        if (field->flags & SY_FIELD_PER_ROW) {
            st = syi_check_per_row(call, i, syi_bound(call, 'B'));
            continue;
        }
        const char *s = field->shape;
        if (field->min_rank != field->max_rank)
            s = choose_form(call, s, t);
        if (t == NULL || !as_described(call, s, t))
            st = check_closely(call, i, s);
    }
    return st;
}

/* ---- Scalars ------------------------------------------------------------------------------------------- */

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

/* A letter is bound by a scalar that is in its range, as far as numbers state the range. */
static void bind_scalars(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    for (int i = info->n_tensors; i < info->n_fields; i++) {
        const char *s = info->fields[i].range;
        if (s == NULL || s[1] != ':' || (call->bound >> (*s & 31) & 1u))
            continue;
        const int64_t value = *(const int64_t *)field_at(call, i);
        const char letter = *s;
        s += 3;
        if (value >= read_number(&s))
            syi_bind(call, letter, value);
    }
}

static sy_status check_scalar(struct syi_call *call, int i)
{
    const sy_field_info *field = &call->op->info.fields[i];
    const char *s = field->range;
    if (field->kind == SY_KIND_ENUM)
        return syi_check_word(call, i, *(const int *)field_at(call, i));
    if (s == NULL)
        return SY_OK;
    if (field->kind == SY_KIND_F32)
        return check_float(call, field, (double)*(const float *)field_at(call, i), *s == '0');
    if (field->kind == SY_KIND_F64)
        return check_float(call, field, *(const double *)field_at(call, i), *s == '0');
    if (s[1] == ':')
        s += 3;
    const int64_t low = read_extent(call, &s);
    s += 2;
    const int64_t high = *s == '\0' ? INT64_MAX : *s == 'i' ? INT32_MAX : read_extent(call, &s);
    return syi_check_value(call, field->name, *(const int64_t *)field_at(call, i), low, high);
}

sy_status syi_check_scalars(struct syi_call *call, int first, int end)
{
    sy_status st = SY_OK;
    for (int i = first; st == SY_OK && i < end; i++)
        st = check_scalar(call, i);
    return st;
}

sy_status syi_check_words(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    sy_status st = SY_OK;
    for (int i = info->n_tensors; st == SY_OK && i < info->n_fields; i++)
        if (info->fields[i].kind == SY_KIND_ENUM)
            st = check_scalar(call, i);
    return st;
}

/* ---- All checks, in the documented order ---------------------------------------------------------------- */

static int first_output(const sy_op_info *info)
{
    int i = 0;
    while (i < info->n_tensors && !(info->fields[i].flags & SY_FIELD_OUT))
        i++;
    return i;
}

/* Tensors that come together, and the pair that may be one. A query sees no outputs. */
static sy_status check_pairs(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    sy_status st = SY_OK;
    for (int i = 0; st == SY_OK && i < info->n_tensors; i++) {
        const int first = info->fields[i].with - 1;
        if (first >= 0)
            st = syi_check_both(call, info->fields[first].name, call->tensor[first], info->fields[i].name,
                                call->tensor[i]);
        if (info->fields[i].alias > 0 && call->coded_rows.given == NULL) {
            call->may_alias[0] = info->fields[i].alias - 1;
            call->may_alias[1] = i;
        }
    }
    return st;
}

static sy_status check_tensors(struct syi_call *call, const struct syi_steps *own)
{
    struct syi_coded *coded = &call->coded_rows;
    if (own->rows.format > 0) {
        memcpy(&coded->given, (const unsigned char *)&call->args + own->rows.format, sizeof coded->given);
        coded->dense = own->rows.dense;
        coded->codes = own->rows.codes;
        coded->scales = own->rows.scales;
    }
    sy_status st = own->given != NULL ? own->given(call) : SY_OK;
    if (st == SY_OK)
        st = check_pairs(call);
    if (st == SY_OK && own->rows.format > 0)
        st = syi_coded_begin(call, coded);
    if (st == SY_OK)
        st = syi_check_tensors(call, own->untouched != NULL && own->untouched(call));
    if (st == SY_OK && own->rows.format > 0)
        st = syi_coded_check(call, coded);
    if (st == SY_OK && coded->given != NULL)
        syi_bind(call, 'G', coded->n_groups);
    return st;
}

static sy_status check_inputs(struct syi_call *call, const struct syi_steps *own)
{
    sy_status st = check_tensors(call, own);
    if (st == SY_OK && own->bind != NULL)
        st = own->bind(call);
    if (st != SY_OK)
        return st;
    bind_scalars(call);
    call->without |= own->late;
    st = syi_check_shapes(call, 0, first_output(&call->op->info));
    call->without &= ~own->late;
    return st;
}

sy_status syi_check_described(struct syi_call *call)
{
    const sy_op_info *info = &call->op->info;
    const struct syi_steps *own = call->op->own;
    sy_status st = check_inputs(call, own);
    if (st == SY_OK)
        st = own->values != NULL ? own->values(call)
                                 : syi_check_scalars(call, info->n_tensors, info->n_fields);
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st == SY_OK && own->sizes != NULL)
        st = own->sizes(call);
    if (st == SY_OK)
        st = own->outputs != NULL ? own->outputs(call)
                                  : syi_check_shapes(call, first_output(info), info->n_tensors);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st == SY_OK)
        own->plan(call);
    return st;
}
