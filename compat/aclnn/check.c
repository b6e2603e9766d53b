/*
 * The checks of the first phase, in the vendor's order: null, types, ranks; then, after the library's query, limits,
 * shapes of outputs, overlap. Each operator has one table of its tensors.
 */
#include "internal.h"

#include <stdio.h>

static const char *type_name(aclDataType type)
{
    switch (type) {
    case ACL_FLOAT:
        return "FLOAT";
    case ACL_FLOAT16:
        return "FLOAT16";
    case ACL_BF16:
        return "BF16";
    case ACL_INT8:
        return "INT8";
    case ACL_UINT8:
        return "UINT8";
    case ACL_BOOL:
        return "BOOL";
    case ACL_INT32:
        return "INT32";
    case ACL_INT64:
        return "INT64";
    case ACL_INT16:
        return "INT16";
    case ACL_UINT16:
        return "UINT16";
    case ACL_UINT32:
        return "UINT32";
    case ACL_DOUBLE:
        return "DOUBLE";
    default:
        return "of a type not taken here";
    }
}

/* Whether a tensor without data would be read or written. */
static bool lacks_data(const aclTensor *tensor)
{
    for (uint64_t d = 0; d < tensor->rank; d++)
        if (tensor->dims[d] <= 0)
            return false;
    return tensor->data == NULL;
}

aclnnStatus syi_aclnn_check_null(aclOpExecutor *e, const struct syi_aclnn_rule *rules, int n)
{
    e->n_views = n;
    for (int i = 0; i < n; i++) {
        const bool ignored = (rules[i].flags & SYI_ACLNN_IGNORED) != 0;
        syi_aclnn_view_set(&e->view[i], rules[i].name, ignored ? NULL : rules[i].tensor);
        e->view[i].output = (rules[i].flags & SYI_ACLNN_OUTPUT) != 0;
        if (ignored || (rules[i].tensor == NULL && (rules[i].flags & SYI_ACLNN_OPTIONAL) != 0))
            continue;
        if (rules[i].tensor == NULL)
            return syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: %s is null, want a tensor", e->op->name,
                                  rules[i].name);
        if (lacks_data(rules[i].tensor))
            return syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: %s has no data, want the address of it",
                                  e->op->name, rules[i].name);
    }
    return ACLNN_SUCCESS;
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

static aclnnStatus check_type(const aclOpExecutor *e, const struct syi_aclnn_rule *rule,
                              const struct syi_aclnn_view *view)
{
    if (!is_strided(view->format))
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s has format %d, want ACL_FORMAT_ND",
                              e->op->name, rule->name, (int)view->format);
    if (rule->types != 0 && (view->type < 0 || view->type > 31 || (rule->types >> view->type & 1) == 0)) {
        char types[128];
        list_types(rule->types, types, sizeof types);
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s is %s (%d), want %s", e->op->name, rule->name,
                              type_name(view->type), (int)view->type, types);
    }
    if (rule->like == 0)
        return ACLNN_SUCCESS;
    const struct syi_aclnn_view *other = &e->view[rule->like - 1];
    const bool wide =
        (rule->flags & SYI_ACLNN_WIDENS) != 0 && view->type == ACL_FLOAT && other->type == ACL_BF16;
    if (view->type != other->type && !wide)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s is %s (%d), want %s as %s is", e->op->name,
                              rule->name, type_name(view->type), (int)view->type, type_name(other->type),
                              other->name);
    return ACLNN_SUCCESS;
}

aclnnStatus syi_aclnn_check_types(const aclOpExecutor *e, const struct syi_aclnn_rule *rules)
{
    aclnnStatus st = ACLNN_SUCCESS;
    for (int i = 0; st == ACLNN_SUCCESS && i < e->n_views; i++)
        if (e->view[i].taken)
            st = check_type(e, &rules[i], &e->view[i]);
    return st;
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
static aclnnStatus check_dense(const aclOpExecutor *e, const struct syi_aclnn_rule *rule,
                               struct syi_aclnn_view *view)
{
    static const DLDataType types[] = {{1, 8, 1}, {1, 16, 1}, {1, 32, 1}, {1, 64, 1}};
    const uint64_t rank = view->rank;
    int64_t step = 1;
    if (rank != rule->rank)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s has rank %llu, want %llu", e->op->name,
                              rule->name, (unsigned long long)rank, (unsigned long long)rule->rank);
    bool empty = false; /* then strides have no meaning */
    for (uint64_t d = 0; d < rank; d++)
        empty = empty || view->dims[d] == 0;
    for (uint64_t d = rank; d-- > 0;) {
        const bool apart = !empty && view->dims[d] > 1 && view->steps[d] != step;
        if (view->dims[d] < 0 || view->offset < 0 || apart)
            return syi_aclnn_fail(
                ACLNN_ERR_PARAM_INVALID,
                "%s: %s has extent %lld and stride %lld in dimension %d, want a compact tensor", e->op->name,
                rule->name, (long long)view->dims[d], (long long)view->steps[d], (int)d);
        if (view->dims[d] > 0 && !mul_add(step, view->dims[d], 0, INT64_MAX / 16, &step))
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s has too many elements", e->op->name,
                                  rule->name);
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
    return ACLNN_SUCCESS;
}

static aclnnStatus check_rank(const aclOpExecutor *e, const struct syi_aclnn_rule *rule,
                              struct syi_aclnn_view *view)
{
    if ((rule->flags & SYI_ACLNN_COLUMN) != 0 && view->rank == 1) {
        view->rank = 2; /* shape[1] is 1 */
        view->strides[1] = 1;
    }
    if ((rule->flags & SYI_ACLNN_VECTOR) != 0 && view->rank == 2 && view->shape[1] == 1)
        view->rank = 1;
    if (view->rank != rule->rank)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s has rank %llu, want %llu", e->op->name,
                              rule->name, (unsigned long long)view->rank, (unsigned long long)rule->rank);
    for (uint64_t d = 0; d < view->rank; d++)
        if (view->shape[d] < 0 || view->strides[d] < 0 || view->offset < 0)
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                                  "%s: %s has extent %lld and stride %lld in dimension %d and offset %lld, "
                                  "want none below 0",
                                  e->op->name, rule->name, (long long)view->shape[d],
                                  (long long)view->strides[d], (int)d, (long long)view->offset);
    if (!is_countable(view))
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                              "%s: %s reaches beyond 2^63 bytes with its extents and strides, want less",
                              e->op->name, rule->name);
    if (view->output && syi_aclnn_overlaps_itself(view))
        return syi_aclnn_fail(
            ACLNN_ERR_PARAM_INVALID,
            "%s: %s has strides that make its elements overlap, want each at its own address", e->op->name,
            rule->name);
    return ACLNN_SUCCESS;
}

aclnnStatus syi_aclnn_check_ranks(aclOpExecutor *e, const struct syi_aclnn_rule *rules)
{
    for (int i = 0; i < e->n_views; i++) {
        if (!e->view[i].taken)
            continue;
        const bool dense = (rules[i].flags & SYI_ACLNN_DENSE) != 0;
        const aclnnStatus st =
            dense ? check_dense(e, &rules[i], &e->view[i]) : check_rank(e, &rules[i], &e->view[i]);
        if (st != ACLNN_SUCCESS)
            return st;
        if (dense)
            continue;
        syi_aclnn_view_ready(&e->view[i], (rules[i].flags & SYI_ACLNN_ANY_STRIDE) != 0);
    }
    return ACLNN_SUCCESS;
}

aclnnStatus syi_aclnn_check_limits(const aclOpExecutor *e, bool drop_and_pad)
{
    const int64_t limit = 16777215, most_slots = 512;
    if (e->n_tokens >= limit || e->n_experts >= limit || (!drop_and_pad && e->n_rows >= limit))
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                              "%s: has %lld tokens, %lld experts and %lld rows, want less than %lld of each",
                              e->op->name, (long long)e->n_tokens, (long long)e->n_experts,
                              (long long)e->n_rows, (long long)limit);
    if (!drop_and_pad && e->n_tokens > 0 && e->n_rows / e->n_tokens > most_slots)
        return syi_aclnn_fail(ACLNN_ERR_INNER_NULLPTR, "%s: has %lld slots per token, want at most %lld",
                              e->op->name, (long long)(e->n_rows / e->n_tokens), (long long)most_slots);
    return ACLNN_SUCCESS;
}

aclnnStatus syi_aclnn_check_shape(const aclOpExecutor *e, int i, int64_t rows, int64_t columns)
{
    const struct syi_aclnn_view *view = &e->view[i];
    if (!view->taken || (view->shape[0] == rows && (columns < 0 || view->shape[1] == columns)))
        return ACLNN_SUCCESS;
    if (columns < 0)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s has shape [%lld], want [%lld]", e->op->name,
                              view->name, (long long)view->shape[0], (long long)rows);
    return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s has shape [%lld,%lld], want [%lld,%lld]",
                          e->op->name, view->name, (long long)view->shape[0], (long long)view->shape[1],
                          (long long)rows, (long long)columns);
}

aclnnStatus syi_aclnn_check_alias(const aclOpExecutor *e, int output, int input)
{
    for (int i = 0; i < e->n_views; i++)
        for (int j = 0; e->view[i].taken && e->view[i].output && j < e->n_views; j++) {
            const struct syi_aclnn_view *out = &e->view[i], *other = &e->view[j];
            if (i == j || !other->taken || !syi_aclnn_overlap(out, other))
                continue;
            if (i == output && j == input && syi_aclnn_same(out, other))
                continue;
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                                  "%s: %s shares memory with %s, want an output by itself", e->op->name,
                                  out->name, other->name);
        }
    return ACLNN_SUCCESS;
}

aclnnStatus syi_aclnn_begin_checked(const struct syi_aclnn_op *op, uint64_t *workspace_size,
                                    aclOpExecutor **executor, const struct syi_aclnn_rule *rules, int n,
                                    aclOpExecutor **e)
{
    aclnnStatus st = syi_aclnn_begin(op, workspace_size, executor, e);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_null(*e, rules, n);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(*e, rules);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_ranks(*e, rules);
    return st;
}
