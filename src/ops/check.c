/*
 * The checks operators share. Each step walks the operator's tensor table, so every operator validates in the
 * same order and says the same thing in the same words.
 */
#include "plan/load.h"
#include "ops/call.h"

#include <limits.h>
#include <stdio.h>

/* ---- Text of shapes and types ---- */

struct text {
    char s[160];
};

static struct text shape_text(int rank, const int64_t *shape)
{
    struct text text = {"["};
    size_t used = 1;
    for (int d = 0; d < rank && used + 24 < sizeof text.s; d++)
        used += (size_t)snprintf(text.s + used, sizeof text.s - used, d == 0 ? "%lld" : ",%lld",
                                 (long long)shape[d]);
    snprintf(text.s + used, sizeof text.s - used, "]");
    return text;
}

static struct text type_text(DLDataType type)
{
    struct text text = {""};
    syi_describe_type(type, text.s, sizeof text.s);
    return text;
}

/* "f32, f16 or bf16" */
static struct text types_text(const struct syi_call *call, const sy_field_info *rule)
{
    struct text text = {""};
    uint32_t types = rule->types;
    const bool like = rule->like != 0 && call->tensor[rule->like - 1] != NULL;
    if (like)
        types |= SYI_BIT(syi_type_of(call->tensor[rule->like - 1]->dtype)) & ~SYI_BIT(SY_TYPE_OTHER);
    size_t used = 0;
    for (int t = SY_TYPE_OTHER + 1; t < SY_N_TYPES; t++) {
        if (!(types & SYI_BIT(t)))
            continue;
        types &= ~SYI_BIT(t);
        const char *join = used == 0 ? "" : types == 0 ? " or " : ", ";
        used += (size_t)snprintf(text.s + used, sizeof text.s - used, "%s%s", join, sy_type_name((sy_type)t));
    }
    if (used == 0 && like)
        return type_text(call->tensor[rule->like - 1]->dtype);
    return text;
}

/* ---- Sentences ---- */

sy_status syi_fail_code(struct syi_call *call, sy_status status, sy_fault_code code, const char *argument,
                        int64_t value, int64_t limit, const char *text)
{
    return syi_fail_with(call->ctx, status, code, argument, value, limit, text, (long long)value,
                         (long long)limit);
}

sy_status syi_fail_rank(struct syi_call *call, int i, int want)
{
    return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, syi_name(call, i), call->tensor[i]->ndim,
                         want, "has rank %lld, want %lld");
}

sy_status syi_fail_value(struct syi_call *call, sy_status status, const char *argument, int64_t value,
                         int64_t limit, const char *text)
{
    return syi_fail_code(call, status, SY_FAULT_NONE, argument, value, limit, text);
}

/* ---- Turns ---- */

void syi_take_plane(struct syi_call *call, int64_t plane)
{
    call->sets.now = call->ctx->plane = plane;
    call->sets.take(call);
}

sy_status syi_for_every_plane(struct syi_call *call, sy_status (*step)(struct syi_call *call, void *data),
                              void *data)
{
    sy_status st = step(call, data);
    for (int64_t plane = 1; st == SY_OK && plane <= call->sets.n; plane++) {
        syi_take_plane(call, plane);
        st = step(call, data);
    }
    if (call->sets.n > 0)
        syi_take_plane(call, 0);
    return st;
}

const DLTensor *syi_tensor_of_plane(const struct syi_call *call, int i)
{
    bool differs = call->sets.now == 0;
    for (size_t k = 0; k < sizeof call->sets.rules / sizeof *call->sets.rules; k++)
        differs = differs || i == call->sets.rules[k];
    return differs ? call->tensor[i] : NULL;
}

/* ---- Null, dtype, rank ---- */

/* Shape and strides have as many entries as the rule allows. Until it is known, none of them is read. */
static bool rank_fits(const sy_field_info *rule, const DLTensor *t)
{
    return t->ndim >= rule->min_rank && t->ndim <= rule->max_rank;
}

static bool is_empty(const DLTensor *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->shape[d] == 0)
            return true;
    return false;
}

static sy_status check_present(struct syi_call *call, void *data)
{
    (void)data;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const sy_field_info *rule = &call->op->info.fields[i];
        const DLTensor *t = call->tensor[i];
        const bool required = !(rule->flags & SY_FIELD_OPTIONAL) && !(call->spared >> i & 1u);
        if (t == NULL && required && syi_looked_at(call, i))
            return syi_fail(call->ctx, SY_ERR_NULL, rule->name, "is missing, want a tensor");
        if (t != NULL && t->ndim > 0 && t->shape == NULL)
            return syi_fail(call->ctx, SY_ERR_NULL, rule->name, "has rank %d and no shape, want a shape",
                            (int)t->ndim);
    }
    return SY_OK;
}

static sy_status check_data(struct syi_call *call, void *data)
{
    (void)data;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const sy_field_info *rule = &call->op->info.fields[i];
        const DLTensor *t = call->tensor[i];
        if (t == NULL || t->data != NULL)
            continue;
        if (!rank_fits(rule, t))
            return syi_fail(call->ctx, SY_ERR_NULL, rule->name,
                            "has rank %d and no data, want a data pointer", (int)t->ndim);
        if (!is_empty(t))
            return syi_fail(call->ctx, SY_ERR_NULL, rule->name,
                            "has shape %s and no data, want a data pointer", shape_text(t->ndim, t->shape).s);
    }
    return SY_OK;
}

sy_status syi_check_both(struct syi_call *call, const char *in_name, const DLTensor *in, const char *out_name,
                         const DLTensor *out)
{
    if (call->query || (in == NULL) == (out == NULL))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_NULL, in == NULL ? in_name : out_name,
                    "is missing while %s is given, want both or none", in == NULL ? out_name : in_name);
}

bool syi_same_type(DLDataType a, DLDataType b)
{
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/* The description of tensor i in this call. Where rows are packed, codes stand on one side and numbers on the other; a
   sum needs numbers too. */
static const sy_field_info *field_of_plane(const struct syi_call *call, int i, sy_field_info *narrowed)
{
    const sy_field_info *field = &call->op->info.fields[i];
    const bool codes = call->coded == i + 1 || (call->sets.format != NULL && i == call->sets.rules[0]);
    const bool numbers = call->sets.format != NULL && i == call->sets.rules[1];
    if (!codes && !numbers && call->floats != i + 1)
        return field;
    *narrowed = *field;
    narrowed->flags &= ~(uint32_t)(SY_FIELD_ANY_BYTES | SY_FIELD_ANY_WORD);
    narrowed->types = codes ? SYI_CODE_TYPES : SYI_FLOAT_TYPES;
    narrowed->preset = "bf16";
    narrowed->like = 0;
    return narrowed;
}

static sy_status check_dtype(struct syi_call *call, void *data)
{
    (void)data;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const DLTensor *t = syi_tensor_of_plane(call, i);
        if (t == NULL)
            continue;
        sy_field_info narrowed;
        const sy_field_info *rule = field_of_plane(call, i, &narrowed);
        const size_t bytes = syi_elem_bytes(t->dtype);
        const bool word = t->dtype.lanes == 1 && (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8);
        const sy_type type = syi_type_of(t->dtype);
        if (rule->flags & SY_FIELD_ANY_WORD) {
            if (!word)
                return syi_fail(call->ctx, SY_ERR_DTYPE, rule->name,
                                "is %s, want an element of 1, 2, 4 or 8 bytes", type_text(t->dtype).s);
        } else if (rule->flags & SY_FIELD_ANY_BYTES) {
            if (bytes == 0)
                return syi_fail(call->ctx, SY_ERR_DTYPE, rule->name, "is %s, want an element of whole bytes",
                                type_text(t->dtype).s);
        } else if (!(type != SY_TYPE_OTHER && (rule->types & SYI_BIT(type))) &&
                   !(rule->like != 0 && call->tensor[rule->like - 1] != NULL &&
                     syi_same_type(t->dtype, call->tensor[rule->like - 1]->dtype))) {
            return syi_fail(call->ctx, SY_ERR_DTYPE, rule->name, "is %s, want %s", type_text(t->dtype).s,
                            types_text(call, rule).s);
        }
    }
    return SY_OK;
}

static sy_status check_rank(struct syi_call *call, void *data)
{
    (void)data;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const sy_field_info *rule = &call->op->info.fields[i];
        const DLTensor *t = syi_tensor_of_plane(call, i);
        if (t == NULL)
            continue;
        if (!rank_fits(rule, t)) {
            if (rule->min_rank == rule->max_rank)
                return syi_fail_rank(call, i, rule->min_rank);
            return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, rule->name, t->ndim,
                                 t->ndim < rule->min_rank ? rule->min_rank : rule->max_rank,
                                 "has rank %d, want %d to %d", (int)t->ndim, rule->min_rank, rule->max_rank);
        }
        for (int d = 0; d < t->ndim; d++)
            if (t->shape[d] < 0)
                return syi_fail(call->ctx, SY_ERR_SHAPE, rule->name, "has shape %s, want no negative extent",
                                shape_text(t->ndim, t->shape).s);
    }
    return SY_OK;
}

/* The tensors of the call are all there are, and the rules of the table hold for them. */
static bool one_plane(const struct syi_call *call)
{
    return call->sets.n == 0 && call->sets.format == NULL;
}

/* The address after the last element exists. A tensor without elements may have any. */
static bool in_address_space(const DLTensor *t, int64_t span)
{
    uintptr_t start, end;
    return span == 0 || (!__builtin_add_overflow((uintptr_t)t->data, t->byte_offset, &start) &&
                         !__builtin_add_overflow(start, (uintptr_t)span, &end));
}

/*
 * Most calls are right, and small ones consist of little else than their checks: one pass finds that every tensor has
 * data, a type the rule lists, a rank that fits and positive extents, and whether all are compact, in ordinary memory and of
 * a size that can be counted. Otherwise the steps find out what is wrong, if anything is.
 */
static bool tensors_as_usual(struct syi_call *call)
{
    bool compact = true;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const sy_field_info *rule = &call->op->info.fields[i];
        const DLTensor *t = call->tensor[i];
        if (t == NULL && ((rule->flags & SY_FIELD_OPTIONAL) || !syi_looked_at(call, i)))
            continue;
        if (t == NULL || t->shape == NULL || t->data == NULL || !rank_fits(rule, t))
            return false;
        const sy_type type = syi_type_of(t->dtype);
        const DLTensor *like = rule->like != 0 ? call->tensor[rule->like - 1] : NULL;
        int64_t bytes = (int64_t)syi_elem_bytes(t->dtype);
        const bool word = bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
        if (type == SY_TYPE_OTHER ||
            (!(rule->types & SYI_BIT(type)) && (like == NULL || !syi_same_type(t->dtype, like->dtype)) &&
             !(word && (rule->flags & (SY_FIELD_ANY_WORD | SY_FIELD_ANY_BYTES)))))
            return false;
        for (int d = 0; d < t->ndim; d++) {
            if (t->shape[d] <= 0)
                return false;
            compact = syi_mul(bytes, t->shape[d], &bytes) && compact;
        }
        call->span[i] = bytes;
        compact =
            compact && t->strides == NULL && t->device.device_type == kDLCPU && in_address_space(t, bytes);
    }
    call->compact = compact && !call->op->info.mesh; /* tensors of other devices take their place */
    return true;
}

sy_status syi_check_tensors(struct syi_call *call, bool untouched)
{
    if (one_plane(call) && call->floats == 0 && call->coded == 0 && tensors_as_usual(call))
        return SY_OK;
    SYI_TRY(syi_for_every_plane(call, check_present, NULL));
    if (!call->query && !untouched)
        SYI_TRY(syi_for_every_plane(call, check_data, NULL));
    SYI_TRY(syi_for_every_plane(call, check_dtype, NULL));
    return syi_for_every_plane(call, check_rank, NULL);
}

/* ---- Shapes and values ---- */

/* The type of an output that nothing in the call decides. */
static DLDataType default_type(const sy_field_info *field)
{
    for (int t = SY_TYPE_OTHER + 1; t < SY_N_TYPES; t++)
        if ((field->types & SYI_BIT(t)) &&
            (field->preset == NULL || strcmp(field->preset, sy_type_name((sy_type)t)) == 0))
            return sy_dtype((sy_type)t);
    return sy_dtype(SY_TYPE_OTHER);
}

/* For sy_infer: the shape this check requires of an output, in a type that it may have. */
static void record_shape(struct syi_call *call, int i, int rank, const int64_t *shape)
{
    sy_field_info narrowed;
    const sy_field_info *field = field_of_plane(call, i, &narrowed);
    const DLTensor *like = field->like != 0 ? call->tensor[field->like - 1] : NULL;
    if (!(field->flags & SY_FIELD_OUT) || call->sets.now > 0 || (field->types == 0 && like == NULL))
        return;
    sy_shape *to = &call->shapes[i];
    to->rank = rank;
    for (int d = 0; d < rank; d++)
        to->extent[d] = shape[d];
    to->type = like != NULL && field->preset == NULL ? like->dtype : default_type(field);
}

sy_status syi_check_shape(struct syi_call *call, int i, int rank, const int64_t *shape)
{
    const DLTensor *t = call->tensor[i];
    if (t == NULL) {
        if (call->shapes != NULL)
            record_shape(call, i, rank, shape);
        return SY_OK;
    }
    int wrong = 0; /* first dimension that differs */
    while (wrong < rank && wrong < t->ndim && t->shape[wrong] == shape[wrong])
        wrong++;
    if (wrong == rank && rank == t->ndim)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_NONE, syi_name(call, i),
                         wrong < t->ndim ? t->shape[wrong] : 0, wrong < rank ? shape[wrong] : 0,
                         "has shape %s, want %s", shape_text(t->ndim, t->shape).s, shape_text(rank, shape).s);
}

sy_status syi_check_vector(struct syi_call *call, int i, int64_t n)
{
    return syi_check_shape(call, i, 1, &n);
}

sy_status syi_check_matrix(struct syi_call *call, int i, int64_t rows, int64_t cols)
{
    const int64_t shape[2] = {rows, cols};
    return syi_check_shape(call, i, 2, shape);
}

sy_status syi_check_per_row(struct syi_call *call, int i, int64_t batch)
{
    const DLTensor *t = call->tensor[i];
    if (t == NULL)
        return SY_OK;
    const bool one = t->ndim == 1 && t->shape[0] == 1;
    const bool all = t->shape[0] == batch && (t->ndim == 1 || t->shape[1] == 1);
    return one || all ? SY_OK
                      : syi_fail(call->ctx, SY_ERR_SHAPE, syi_name(call, i),
                                 "has shape %s, want [1], [%lld] or [%lld,1]",
                                 shape_text(t->ndim, t->shape).s, (long long)batch, (long long)batch);
}

sy_status syi_check_value(struct syi_call *call, const char *field, int64_t value, int64_t low, int64_t high)
{
    if (value >= low && value <= high)
        return SY_OK;
    if (high == INT64_MAX)
        return syi_fail_value(call, SY_ERR_VALUE, field, value, low, "is %lld, want %lld or more");
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_NONE, field, value, value < low ? low : high,
                         "is %lld, want %lld to %lld", (long long)value, (long long)low, (long long)high);
}

/* How many values there are, with and without a word; counts no further than `most`. */
static int count_words(const char *words, int most)
{
    int n = 1;
    for (const char *c = words; *c != '\0' && n < most; c++)
        n += *c == ' ';
    return n;
}

/* "SOFTMAX, SIGMOID, NONE" of "softmax sigmoid none". A word may have a second spelling: "zero|0". */
static struct text words_text(const char *words)
{
    struct text text = {""};
    size_t used = 0;
    for (const char *c = words; *c != '\0' && used + 2 < sizeof text.s; c++) {
        const bool starts = c == words || c[-1] == ' ';
        if (starts && *c == '-' && (c[1] == ' ' || c[1] == '\0'))
            continue;
        if (starts && used > 0) {
            text.s[used++] = ',';
            text.s[used++] = ' ';
        }
        if (*c == '|')
            c += strcspn(c, " ") - 1;
        else if (*c != ' ')
            text.s[used++] = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    }
    text.s[used] = '\0';
    return text;
}

sy_status syi_check_word(struct syi_call *call, int i, int value)
{
    const sy_field_info *field = &call->op->info.fields[i];
    if (value == 0)
        return SY_OK; /* the default is always a value */
    if (value > 0 && value < INT_MAX && count_words(field->words, value + 1) > value)
        return SY_OK;
    const int n = count_words(field->words, INT_MAX);
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_BAD_OPTION, field->name, value, n,
                         "is %d, want 0 to %d: %s", value, n - 1, words_text(field->words).s);
}

sy_status syi_check_enum(struct syi_call *call, const char *field, int value)
{
    int i = call->op->info.n_tensors;
    if (value == 0)
        return SY_OK;
    while (strcmp(syi_name(call, i), field) != 0)
        i++;
    return syi_check_word(call, i, value);
}

/* ---- Overflow, stride, device, alias ---- */

int64_t syi_stride(const DLTensor *t, int dim)
{
    if (t->strides != NULL)
        return t->strides[dim];
    int64_t stride = 1;
    for (int d = t->ndim - 1; d > dim; d--)
        stride *= t->shape[d];
    return stride;
}

bool syi_span_bytes(const DLTensor *t, int64_t *span)
{
    const int64_t elem_bytes = (int64_t)syi_elem_bytes(t->dtype);
    int64_t count = 1, last = 0, bytes;
    bool empty = false;
    for (int d = t->ndim - 1; d >= 0; d--) {
        const int64_t extent = t->shape[d] > 0 ? t->shape[d] : 1;
        empty |= t->shape[d] == 0;
        if (!syi_mul(extent, count, &count))
            return false;
        if (t->strides == NULL)
            continue; /* compact: the last element is number count - 1 */
        int64_t reach;
        if (!syi_mul(extent - 1, t->strides[d] < 0 ? 0 : t->strides[d], &reach) ||
            !syi_add(last, reach, &last))
            return false;
    }
    if (!syi_mul(count, elem_bytes, &bytes))
        return false;
    *span = bytes;
    if (t->strides != NULL && (!syi_add(last, 1, &last) || !syi_mul(last, elem_bytes, span)))
        return false;
    if (empty)
        *span = 0;
    return true;
}

static sy_status check_sizes(struct syi_call *call, void *data)
{
    (void)data;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const DLTensor *t = syi_tensor_of_plane(call, i);
        int64_t span;
        if (t == NULL)
            continue;
        const bool counted = syi_span_bytes(t, &span);
        if (counted && (call->query || in_address_space(t, span)))
            continue;
        if (counted)
            return syi_fail(call->ctx, SY_ERR_OVERFLOW, syi_name(call, i),
                            "has byte_offset %llu and %lld bytes, want an end inside the address space",
                            (unsigned long long)t->byte_offset, (long long)span);
        const struct text shape = shape_text(t->ndim, t->shape);
        if (t->strides == NULL)
            return syi_fail(call->ctx, SY_ERR_OVERFLOW, syi_name(call, i),
                            "has shape %s, want fewer than 2^63 bytes", shape.s);
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, syi_name(call, i),
                        "has shape %s and strides %s, want fewer than 2^63 bytes", shape.s,
                        shape_text(t->ndim, t->strides).s);
    }
    return SY_OK;
}

sy_status syi_check_sizes(struct syi_call *call)
{
    if (call->compact && one_plane(call))
        return SY_OK;
    return syi_for_every_plane(call, check_sizes, NULL);
}

sy_status syi_check_slots(struct syi_call *call, int i)
{
    const int64_t n_experts = syi_bound(call, 'E'), capacity = syi_bound(call, 'C');
    const int64_t row_bytes = syi_extent(call, i, 1) * (int64_t)syi_bytes_at(call, i);
    int64_t slots, bytes;
    if (syi_mul(n_experts, capacity, &slots) && syi_mul(slots, row_bytes, &bytes))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_OVERFLOW, "capacity",
                    "is %lld for %lld experts and rows of %lld bytes, want fewer than 2^63 bytes",
                    (long long)capacity, (long long)n_experts, (long long)row_bytes);
}

sy_status syi_check_row(struct syi_call *call, int i, int tail, int64_t *row_elems)
{
    const DLTensor *t = call->tensor[i];
    *row_elems = 1;
    for (int d = t->ndim - 1; d >= t->ndim - tail; d--) {
        /* A dimension of one element has no stride to speak of. */
        if (t->shape[d] > 1 && syi_stride(t, d) != *row_elems)
            return syi_fail(
                call->ctx, SY_ERR_STRIDE, syi_name(call, i),
                "has strides %s for shape %s, want contiguous elements in a row: stride %lld in dimension "
                "%d",
                shape_text(t->ndim, t->strides).s, shape_text(t->ndim, t->shape).s, (long long)*row_elems, d);
        *row_elems *= t->shape[d];
    }
    return SY_OK;
}

/* The dimensions before the tail step by one stride: the elements from row to row, or 0 when there is at
   most one. */
static bool row_stride(const DLTensor *t, int tail, int64_t *stride)
{
    bool first = true, countable = true;
    int64_t want = 0; /* elements a step of the next outer dimension must take */
    *stride = 0;
    if (t->strides == NULL) { /* compact: rows follow each other */
        int64_t row = 1;
        for (int d = t->ndim - 1; d >= t->ndim - tail; d--)
            row *= t->shape[d];
        for (int d = t->ndim - tail - 1; d >= 0; d--)
            *stride = t->shape[d] > 1 ? row : *stride;
        return true;
    }
    for (int d = t->ndim - tail - 1; d >= 0; d--) {
        if (t->shape[d] <= 1)
            continue;
        const int64_t step = syi_stride(t, d);
        if (!first && (!countable || step != want))
            return false;
        if (first)
            *stride = step;
        first = false;
        countable = syi_mul(step, t->shape[d], &want);
    }
    return true;
}

sy_status syi_check_step(struct syi_call *call, const char *name, const char *what, int64_t stride,
                         int64_t least)
{
    if (stride >= least)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_STRIDE, SY_FAULT_NONE, name, stride, least,
                         "has %s stride %lld, want at least %lld", what, (long long)stride, (long long)least);
}

static sy_status check_stride(struct syi_call *call, int i)
{
    const sy_field_info *rule = &call->op->info.fields[i];
    const DLTensor *t = call->tensor[i];
    int64_t row_elems, stride;
    if (t->strides == NULL || is_empty(t) || (rule->flags & SY_FIELD_OWN_STRIDES))
        return SY_OK;
    if (rule->flags & SY_FIELD_PER_ROW) {
        if (t->shape[0] > 1 && t->strides[0] < 0)
            return syi_fail(call->ctx, SY_ERR_STRIDE, rule->name, "has stride %lld, want 0 or more",
                            (long long)t->strides[0]);
        return SY_OK;
    }
    SYI_TRY(syi_check_row(call, i, call->tail[i], &row_elems));
    if (!row_stride(t, call->tail[i], &stride))
        return syi_fail(call->ctx, SY_ERR_STRIDE, rule->name,
                        "has strides %s for shape %s, want evenly spaced rows",
                        shape_text(t->ndim, t->strides).s, shape_text(t->ndim, t->shape).s);
    bool several_rows = false;
    for (int d = 0; d < t->ndim - call->tail[i]; d++)
        several_rows = several_rows || t->shape[d] > 1;
    return several_rows ? syi_check_step(call, rule->name, "row", stride, row_elems) : SY_OK;
}

bool syi_layout_as_usual(const struct syi_call *call)
{
    for (int i = 0; !call->compact && i < call->op->info.n_tensors; i++) {
        const DLTensor *t = call->tensor[i];
        if (t != NULL && (t->strides != NULL || t->device.device_type != kDLCPU))
            return false;
    }
    return one_plane(call);
}

static sy_status check_strides(struct syi_call *call, void *data)
{
    (void)data;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        SYI_TRY(syi_tensor_of_plane(call, i) != NULL ? check_stride(call, i) : SY_OK);
    }
    return SY_OK;
}

sy_status syi_check_strides(struct syi_call *call)
{
    return syi_for_every_plane(call, check_strides, NULL);
}

/* ---- Views ---- */

int64_t syi_extent(const struct syi_call *call, int i, int dim)
{
    const DLTensor *t = call->tensor[i];
    const bool known = t != NULL && t->shape != NULL && rank_fits(&call->op->info.fields[i], t);
    return known && dim < t->ndim ? t->shape[dim] : 0;
}

bool syi_no_extent(const struct syi_call *call, int i, int dim)
{
    const DLTensor *t = call->tensor[i];
    return t != NULL && t->shape != NULL && rank_fits(&call->op->info.fields[i], t) && dim < t->ndim &&
           t->shape[dim] == 0;
}

unsigned char *syi_data(const struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    if (t == NULL)
        return NULL;
    /* A tensor without elements may come with any data and offset, but plans use NULL for "absent": stand on
       the descriptor, of which no byte will be touched. */
    if (t->data == NULL || is_empty(t))
        return (unsigned char *)(uintptr_t)t;
    /* Of a query they may lie anywhere: as numbers, whose sum may wrap. */
    return (unsigned char *)((uintptr_t)t->data + (uintptr_t)t->byte_offset);
}

/* Of a compact call, whose tensors all have elements and no strides. */
static inline struct syi_rows compact_rows(const struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    int64_t row_bytes = (int64_t)syi_elem_bytes(t->dtype);
    for (int d = t->ndim - call->tail[i]; d < t->ndim; d++)
        row_bytes *= t->shape[d];
    const int64_t stride = call->span[i] > row_bytes ? row_bytes : 0; /* 0: one row */
    return (struct syi_rows){(unsigned char *)t->data + t->byte_offset, stride};
}

struct syi_rows syi_rows_of(const struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    if (t != NULL && call->compact)
        return compact_rows(call, i);
    struct syi_rows rows = {syi_data(call, i), 0};
    if (t == NULL || is_empty(t))
        return rows;
    row_stride(t, call->tail[i], &rows.stride);
    rows.stride *= (int64_t)syi_elem_bytes(t->dtype);
    return rows;
}

struct syi_tensor syi_tensor_of(const struct syi_call *call, int i)
{
    const struct syi_rows rows = syi_rows_of(call, i);
    return (struct syi_tensor){rows.data, rows.stride, syi_type_at(call, i)};
}

/* The number goes into the column, whose address then only says that there is one: no kernel may read it. */
static void hold_number(struct syi_column *column)
{
    const unsigned char *const at = column->rows.data;
    if (column->type == SY_TYPE_F32)
        column->number = syi_load_u32(at);
    else if (column->type == SY_TYPE_F16)
        column->number = syi_f32_bits(syi_f16_to_f32(syi_load_u16(at)));
    else if (column->type == SY_TYPE_BF16)
        column->number = syi_f32_bits(syi_bf16_to_f32(syi_load_u16(at)));
    else
        column->number = (uint64_t)syi_load_int(at, column->type);
    column->held = true;
    column->rows.data = (unsigned char *)(uintptr_t)1;
}

struct syi_column syi_column_of(const struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    struct syi_column column = {.rows = {syi_data(call, i), 0}, .type = SY_TYPE_OTHER};
    if (t == NULL)
        return column;
    column.type = syi_type_of(t->dtype);
    if (t->shape[0] > 1)
        column.rows.stride = syi_stride(t, 0) * (int64_t)syi_elem_bytes(t->dtype);
    if (column.rows.data != NULL && syi_is_held(call, i) && !call->query)
        hold_number(&column);
    return column;
}

void *syi_bind_plan(struct syi_call *call, const char *extents)
{
    const sy_op_info *info = &call->op->info;
    unsigned char *const plan = (unsigned char *)&call->plan;
    struct syi_column *column = (struct syi_column *)(plan + info->args_bytes);
    struct syi_tensor *tensor = (struct syi_tensor *)(column + call->op->n_columns);
    memcpy(plan, &call->args, info->args_bytes);
    for (int i = 0; i < info->n_tensors; i++) {
        const bool per_row = (info->fields[i].flags & SY_FIELD_PER_ROW) != 0;
        if (call->tensor[i] != NULL && per_row)
            *column = syi_column_of(call, i);
        else if (call->tensor[i] != NULL)
            *tensor = syi_tensor_of(call, i);
        column += per_row;
        tensor += !per_row;
    }
    for (int64_t *fact = (int64_t *)(void *)tensor; *extents != '\0'; extents++)
        *fact++ = syi_bound(call, *extents);
    if (call->ctx->trace != NULL)
        call->bytes = syi_tensor_bytes(call); /* the operator may know better */
    return plan;
}

struct syi_token_lists syi_token_lists_of(const struct syi_call *call, int indptr, int token, int value)
{
    return (struct syi_token_lists){.indptr_field = indptr,
                                    .token_field = token,
                                    .indptr = syi_data(call, indptr),
                                    .token = syi_data(call, token),
                                    .value = value >= 0 ? syi_data(call, value) : NULL,
                                    .indptr_type = syi_type_at(call, indptr),
                                    .token_type = syi_type_at(call, token),
                                    .n = syi_extent(call, token, 0)};
}

sy_type syi_type_at(const struct syi_call *call, int i)
{
    return call->tensor[i] != NULL ? syi_type_of(call->tensor[i]->dtype) : SY_TYPE_OTHER;
}

uint64_t syi_tensor_bytes(const struct syi_call *call)
{
    uint64_t bytes = 0;
    for (int i = 0; call->ctx->trace != NULL && i < call->op->info.n_tensors; i++) {
        const DLTensor *t = call->tensor[i];
        if (t == NULL)
            continue;
        uint64_t of_one = syi_elem_bytes(t->dtype);
        for (int d = 0; d < t->ndim; d++)
            of_one *= (uint64_t)t->shape[d];
        bytes += of_one;
    }
    return bytes;
}

sy_status syi_check_expert_rows(struct syi_call *call, int64_t rows, sy_a2a_layout layout, int64_t align)
{
    const bool by_expert = layout == SY_LAYOUT_EXPERT;
    const int64_t whole = by_expert && align > 0 ? align : 1;
    SYI_TRY(syi_check_value(call, "expert_rows", rows, 0, INT32_MAX));
    if (rows == 0 || (by_expert && rows % whole == 0))
        return SY_OK;
    if (!by_expert)
        return syi_fail_value(call, SY_ERR_VALUE, "expert_rows", rows, 0,
                              "is %lld, want 0: the layout is not expert");
    return syi_fail_value(call, SY_ERR_VALUE, "expert_rows", rows, whole,
                          "is %lld, want a multiple of align, %lld");
}
