/*
 * The checks of the first phase, in the vendor's order: null (executor.c), types, ranks; then, after the library's query,
 * limits, shapes of outputs, overlap. Each function has one table of its tensors.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

static const char *type_name(aclDataType type)
{
    static const char *const names[] = {
        [ACL_FLOAT] = "FLOAT", [ACL_FLOAT16] = "FLOAT16", [ACL_BF16] = "BF16",     [ACL_INT8] = "INT8",
        [ACL_UINT8] = "UINT8", [ACL_BOOL] = "BOOL",       [ACL_INT32] = "INT32",   [ACL_INT64] = "INT64",
        [ACL_INT16] = "INT16", [ACL_UINT16] = "UINT16",   [ACL_UINT32] = "UINT32", [ACL_DOUBLE] = "DOUBLE",
    };
    const bool named = type >= 0 && (size_t)type < sizeof names / sizeof *names && names[type] != NULL;
    return named ? names[type] : "of a type not taken here";
}

/* Other formats have an order of elements that strides do not describe. */
static bool is_strided(aclFormat format)
{
    return format == ACL_FORMAT_ND || format == ACL_FORMAT_NCHW || format == ACL_FORMAT_NHWC ||
           format == ACL_FORMAT_HWCN || format == ACL_FORMAT_NDHWC || format == ACL_FORMAT_NCDHW ||
           format == ACL_FORMAT_NC || format == ACL_FORMAT_NCL;
}

/* "FLOAT, FLOAT16 or BF16". */
static void list_types(unsigned types, char *text, size_t bytes)
{
    size_t used = 0;
    for (int type = 0; type < 32; type++)
        if (types >> type & 1) {
            const char *const join = used == 0 ? "" : types >> type >> 1 != 0 ? ", " : " or ";
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", join, type_name((aclDataType)type));
        }
}

static void check_type(aclOpExecutor *e, const struct syi_aclnn_rule *rule, const struct syi_aclnn_view *view)
{
    if (!is_strided(view->format)) {
        SYI_ACLNN_INVALID(e, "%s has format %d, want ACL_FORMAT_ND", rule->name, (int)view->format);
        return;
    }
    if (rule->types != 0 && (view->type < 0 || view->type > 31 || (rule->types >> view->type & 1) == 0)) {
        char types[128];
        list_types(rule->types, types, sizeof types);
        SYI_ACLNN_INVALID(e, "%s is %s (%d), want %s", rule->name, type_name(view->type), (int)view->type,
                          types);
        return;
    }
    if (rule->like == 0)
        return;
    const struct syi_aclnn_view *other = &e->view[rule->like - 1];
    const bool wide =
        (rule->flags & SYI_ACLNN_WIDENS) != 0 && view->type == ACL_FLOAT && other->type == ACL_BF16;
    if (view->type != other->type && !wide)
        SYI_ACLNN_INVALID(e, "%s is %s (%d), want %s as %s is", rule->name, type_name(view->type),
                          (int)view->type, type_name(other->type), other->name);
}

void syi_aclnn_check_types(aclOpExecutor *e, const struct syi_aclnn_rule *rules)
{
    for (int i = 0; e != NULL && e->status == ACLNN_SUCCESS && i < e->n_views; i++)
        if (e->view[i].taken)
            check_type(e, &rules[i], &e->view[i]);
}

/* a*b + c of numbers >= 0; false if it is more than `most`. */
static bool mul_add(int64_t a, int64_t b, int64_t c, int64_t most, int64_t *result)
{
    if (c > most || (b != 0 && a > (most - c) / b))
        return false;
    *result = a * b + c;
    return true;
}

/* Whether the byte counts of the view, in place and packed, do not overflow. */
static bool is_countable(const struct syi_aclnn_view *view)
{
    const int64_t most = INT64_MAX / 16; /* of elements */
    int64_t reach = view->offset, count = 1;
    for (int d = 0; d < 2; d++) {
        if (view->shape[d] == 0)
            return true;
        if (!mul_add(view->shape[d] - 1, view->strides[d], reach, most, &reach) ||
            !mul_add(count, view->shape[d], 0, most, &count))
            return false;
    }
    return true;
}

/* A compact tensor as a matrix: one row for each step of the first dimension. Its argument keeps the rank, and has a
   type of as many bytes. */
static void check_dense(aclOpExecutor *e, const struct syi_aclnn_rule *rule, struct syi_aclnn_view *view)
{
    static const DLDataType types[] = {{1, 8, 1}, {1, 16, 1}, {1, 32, 1}, {1, 64, 1}};
    const uint64_t rank = view->rank;
    int64_t step = 1;
    bool empty = false; /* then strides have no meaning */
    for (uint64_t d = 0; d < rank; d++)
        empty = empty || view->dims[d] == 0;
    for (uint64_t d = rank; d-- > 0;) {
        const bool apart = !empty && view->dims[d] > 1 && view->steps[d] != step;
        if (view->dims[d] < 0 || view->offset < 0 || apart) {
            SYI_ACLNN_INVALID(e, "%s has extent %lld and stride %lld in dimension %d, want a compact tensor",
                              rule->name, (long long)view->dims[d], (long long)view->steps[d], (int)d);
            return;
        }
        if (view->dims[d] > 0 && !mul_add(step, view->dims[d], 0, INT64_MAX / 16, &step)) {
            SYI_ACLNN_INVALID(e, "%s has too many elements", rule->name);
            return;
        }
    }
    view->shape[1] = 1;
    for (uint64_t d = 1; d < rank; d++)
        view->shape[1] *= view->dims[d];
    view->strides[0] = view->shape[1];
    view->strides[1] = 1;
    view->rank = 2;
    view->packed = false;
    const int size = view->elem_bytes == 1 ? 0 : view->elem_bytes == 2 ? 1 : view->elem_bytes == 4 ? 2 : 3;
    view->dl = sy_tensor(NULL, types[size], (int)rank, view->dims);
}

static void check_strided(aclOpExecutor *e, const struct syi_aclnn_rule *rule, struct syi_aclnn_view *view)
{
    for (uint64_t d = 0; d < view->rank; d++)
        if (view->shape[d] < 0 || view->strides[d] < 0 || view->offset < 0)
            SYI_ACLNN_INVALID(
                e, "%s has extent %lld and stride %lld in dimension %d and offset %lld, want none below 0",
                rule->name, (long long)view->shape[d], (long long)view->strides[d], (int)d,
                (long long)view->offset);
    if (e->status != ACLNN_SUCCESS)
        return;
    if (!is_countable(view)) {
        SYI_ACLNN_INVALID(e, "%s reaches beyond 2^63 bytes with its extents and strides, want less",
                          rule->name);
        return;
    }
    if (view->output && syi_aclnn_overlaps_itself(view))
        SYI_ACLNN_INVALID(e, "%s has strides that make its elements overlap, want each at its own address",
                          rule->name);
    syi_aclnn_view_ready(view, (rule->flags & SYI_ACLNN_ANY_STRIDE) != 0);
}

static void check_rank(aclOpExecutor *e, const struct syi_aclnn_rule *rule, struct syi_aclnn_view *view)
{
    if ((rule->flags & SYI_ACLNN_COLUMN) != 0 && view->rank == 1) {
        view->rank = 2; /* shape[1] is 1 */
        view->strides[1] = 1;
    }
    if ((rule->flags & SYI_ACLNN_VECTOR) != 0 && view->rank == 2 && view->shape[1] == 1)
        view->rank = 1;
    if (view->rank != rule->rank)
        SYI_ACLNN_INVALID(e, "%s has rank %llu, want %llu", rule->name, (unsigned long long)view->rank,
                          (unsigned long long)rule->rank);
    else if ((rule->flags & SYI_ACLNN_DENSE) != 0)
        check_dense(e, rule, view);
    else
        check_strided(e, rule, view);
}

/* Fields of argument structs that are tensors are pointers to const DLTensor. */
static void set_field(aclOpExecutor *e, size_t field, const DLTensor *tensor)
{
    memcpy((char *)&e->args + (field - 1), &tensor, sizeof tensor);
}

bool syi_aclnn_check_ranks(aclOpExecutor *e, const struct syi_aclnn_rule *rules)
{
    for (int i = 0; e != NULL && e->status == ACLNN_SUCCESS && i < e->n_views; i++) {
        if (!e->view[i].taken)
            continue;
        check_rank(e, &rules[i], &e->view[i]);
        if (rules[i].field > 0)
            set_field(e, rules[i].field, &e->view[i].dl);
    }
    return e != NULL && e->status == ACLNN_SUCCESS;
}

bool syi_aclnn_check_tensors(aclOpExecutor *e, const struct syi_aclnn_rule *rules)
{
    syi_aclnn_check_types(e, rules);
    return syi_aclnn_check_ranks(e, rules);
}

void syi_aclnn_check_limits(aclOpExecutor *e, bool drop_and_pad)
{
    const int64_t limit = 16777215, most_slots = 512;
    if (e->n_tokens >= limit || e->n_experts >= limit || (!drop_and_pad && e->n_rows >= limit))
        SYI_ACLNN_INVALID(e, "has %lld tokens, %lld experts and %lld rows, want less than %lld of each",
                          (long long)e->n_tokens, (long long)e->n_experts, (long long)e->n_rows,
                          (long long)limit);
    if (!drop_and_pad && e->n_tokens > 0 && e->n_rows / e->n_tokens > most_slots)
        syi_aclnn_reject(e, ACLNN_ERR_INNER_NULLPTR, "has %lld slots per token, want at most %lld",
                         (long long)(e->n_rows / e->n_tokens), (long long)most_slots);
}

void syi_aclnn_check_shape(aclOpExecutor *e, int i, int64_t rows, int64_t columns)
{
    const struct syi_aclnn_view *view = &e->view[i];
    if (!view->taken || (view->shape[0] == rows && (columns < 0 || view->shape[1] == columns)))
        return;
    if (columns < 0)
        SYI_ACLNN_INVALID(e, "%s has shape [%lld], want [%lld]", view->name, (long long)view->shape[0],
                          (long long)rows);
    else
        SYI_ACLNN_INVALID(e, "%s has shape [%lld,%lld], want [%lld,%lld]", view->name,
                          (long long)view->shape[0], (long long)view->shape[1], (long long)rows,
                          (long long)columns);
}

void syi_aclnn_check_alias(aclOpExecutor *e)
{
    const int *const in_place = e->op->in_place;
    for (int i = 0; e->status == ACLNN_SUCCESS && i < e->n_views; i++)
        for (int j = 0; e->view[i].taken && e->view[i].output && j < e->n_views; j++) {
            const struct syi_aclnn_view *out = &e->view[i], *other = &e->view[j];
            const bool allowed = i == in_place[0] && j == in_place[1] && syi_aclnn_same(out, other);
            if (i != j && other->taken && !allowed && syi_aclnn_overlap(out, other))
                SYI_ACLNN_INVALID(e, "%s shares memory with %s, want an output by itself", out->name,
                                  other->name);
        }
}
