/*
 * Executors, which connect the first phase of a call to its second. An executor has copies of all it needs, so that
 * descriptors may be destroyed in between, and its own context, so that calls on several threads are independent.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

/*
 * The second phase frees the executor, and a freed pointer cannot be recognised. The addresses of the last few that
 * this thread has freed are kept, so that the usual mistake, executing twice, is rejected and does not read freed
 * memory. Thread-local, because the API has no handle to hold the list; an address that is reused leaves it.
 */
#define N_SPENT 16
static _Thread_local uintptr_t spent[N_SPENT];
static _Thread_local unsigned next_spent;

static bool is_spent(const aclOpExecutor *e)
{
    for (int i = 0; i < N_SPENT; i++)
        if (spent[i] == (uintptr_t)e)
            return true;
    return false;
}

static void destroy(aclOpExecutor *e)
{
    sy_ctx_destroy(e->ctx);
    free(e);
}

static void spend(aclOpExecutor *e)
{
    spent[next_spent++ % N_SPENT] = (uintptr_t)e;
    destroy(e);
}

static bool lacks_data(const aclTensor *tensor)
{
    for (uint64_t d = 0; d < tensor->rank; d++)
        if (tensor->dims[d] <= 0)
            return false;
    return tensor->data == NULL;
}

/* Copies the descriptors; no tensor that the call needs is null. */
static void take_tensors(aclOpExecutor *e, const struct syi_aclnn_rule *rules, int n)
{
    e->n_views = n;
    for (int i = 0; i < n; i++) {
        const struct syi_aclnn_rule *rule = &rules[i];
        const bool alone = (rule->flags & SYI_ACLNN_BESIDE) != 0 && rules[rule->like - 1].tensor == NULL;
        const bool ignored = alone || (rule->flags & SYI_ACLNN_IGNORED) != 0;
        syi_aclnn_view_set(&e->view[i], rule->name, ignored ? NULL : rule->tensor);
        e->view[i].output = (rule->flags & SYI_ACLNN_OUTPUT) != 0;
        if (ignored || (rule->tensor == NULL && (rule->flags & SYI_ACLNN_OPTIONAL) != 0))
            continue;
        if (rule->tensor == NULL)
            syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR, "%s is null, want a tensor", rule->name);
        else if (lacks_data(rule->tensor))
            syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR, "%s has no data, want the address of it",
                             rule->name);
    }
}

aclOpExecutor *syi_aclnn_begin(const struct syi_aclnn_op *op, const struct syi_aclnn_rule *rules, int n,
                               uint64_t *workspace_size, aclOpExecutor **executor)
{
    if (workspace_size == NULL || executor == NULL) {
        (void)syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: %s is null, want a place for it", op->name,
                             workspace_size == NULL ? "workspaceSize" : "executor");
        return NULL;
    }
    aclOpExecutor *e = calloc(1, sizeof *e);
    if (e == NULL || sy_ctx_create(&e->ctx, NULL) != SY_OK) {
        free(e);
        (void)syi_aclnn_fail(ACLNN_ERR_INNER_CREATE_EXECUTOR, "%s: no memory for an executor", op->name);
        return NULL;
    }
    e->op = op;
    e->size_result = workspace_size;
    e->executor_result = executor;
    take_tensors(e, rules, n);
    return e;
}

sy_query syi_aclnn_query_of(aclOpExecutor *e, const char *op, const void *args, size_t bytes)
{
    sy_query query = {0};
    if (e->status != ACLNN_SUCCESS)
        return query;
    e->status = syi_aclnn_status(e, sy_call_query(e->ctx, sy_op_find(op), args, bytes, &query));
    if (e->scratch_bytes < query.workspace_bytes)
        e->scratch_bytes = query.workspace_bytes;
    return query;
}

sy_query syi_aclnn_query(aclOpExecutor *e)
{
    return syi_aclnn_query_of(e, e->op->calls, &e->args, e->op->args_bytes);
}

aclnnStatus syi_aclnn_call(aclOpExecutor *e)
{
    return syi_aclnn_status(e, sy_call(e->ctx, sy_op_find(e->op->calls), &e->args, e->op->args_bytes));
}

/* The next piece of the workspace, aligned as our contexts require. The size saturates. */
static size_t place(size_t *total, size_t bytes)
{
    const size_t at = *total;
    const size_t whole = bytes > SIZE_MAX - 63 ? SIZE_MAX : (bytes + 63) / 64 * 64;
    *total = whole > SIZE_MAX - at ? SIZE_MAX : at + whole;
    return at;
}

aclnnStatus syi_aclnn_end(aclOpExecutor *e)
{
    if (e == NULL)
        return syi_aclnn_last_status(); /* of the begin */
    syi_aclnn_check_alias(e);
    if (e->status == ACLNN_SUCCESS && e->op->prepare != NULL)
        e->op->prepare(e);
    if (e->status != ACLNN_SUCCESS) {
        const aclnnStatus status = e->status;
        destroy(e);
        return status;
    }
    size_t total = 0;
    for (int i = 0; i < e->n_views; i++)
        if (e->view[i].taken && e->view[i].packed)
            e->view[i].at = place(&total, syi_aclnn_view_bytes(&e->view[i]));
    e->lists_at = place(&total, e->lists_bytes);
    e->scratch_at = place(&total, e->scratch_bytes);
    e->workspace_bytes = total;
    for (int i = 0; i < N_SPENT; i++)
        if (spent[i] == (uintptr_t)e)
            spent[i] = 0;
    *e->size_result = total;
    *e->executor_result = e;
    return ACLNN_SUCCESS;
}

const DLTensor *syi_aclnn_arg(const aclOpExecutor *e, int i)
{
    return e->view[i].taken ? &e->view[i].dl : NULL;
}

DLTensor *syi_aclnn_list(aclOpExecutor *e, int i, DLDataType type, int64_t rows, int64_t columns)
{
    e->list_shape[i][0] = rows;
    e->list_shape[i][1] = columns;
    e->list[i] = sy_tensor(NULL, type, columns >= 0 ? 2 : 1, e->list_shape[i]);
    const size_t elements = (size_t)rows * (columns >= 0 ? (size_t)columns : 1);
    e->list_at[i] = e->lists_bytes;
    e->lists_bytes += (elements * type.bits / 8 + 7) / 8 * 8;
    return &e->list[i];
}

aclnnStatus syi_aclnn_status(const aclOpExecutor *e, sy_status status)
{
    if (status == SY_OK)
        return ACLNN_SUCCESS;
    const aclnnStatus number = status == SY_ERR_NULL    ? ACLNN_ERR_PARAM_NULLPTR
                               : status == SY_ERR_NOMEM ? ACLNN_ERR_RUNTIME_ERROR
                                                        : ACLNN_ERR_PARAM_INVALID;
    return syi_aclnn_fail(number, "%s: %s", e->op->name, sy_ctx_error(e->ctx));
}

static aclnnStatus check_workspace(const aclOpExecutor *e, const void *workspace, uint64_t workspace_size)
{
    if (e->workspace_bytes == 0)
        return ACLNN_SUCCESS;
    if (workspace == NULL)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: workspace is null, want %llu bytes", e->op->name,
                              (unsigned long long)e->workspace_bytes);
    if (workspace_size < e->workspace_bytes)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: workspaceSize is %llu, want at least %llu",
                              e->op->name, (unsigned long long)workspace_size,
                              (unsigned long long)e->workspace_bytes);
    if ((uintptr_t)workspace % 64 != 0)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                              "%s: workspace lies at an address modulo 64 of %d, want 0", e->op->name,
                              (int)((uintptr_t)workspace % 64));
    return ACLNN_SUCCESS;
}

aclnnStatus syi_aclnn_run(aclOpExecutor *e)
{
    return e->op->run != NULL ? e->op->run(e) : syi_aclnn_call(e);
}

static aclnnStatus run_packed(aclOpExecutor *e, char *workspace)
{
    for (int i = 0; i < e->n_views; i++) {
        struct syi_aclnn_view *view = &e->view[i];
        if (!view->taken)
            continue;
        view->dl.data = view->packed ? workspace + view->at : syi_aclnn_view_data(view);
        if (view->packed && !view->output)
            syi_aclnn_pack(view, view->dl.data);
    }
    for (int i = 0; e->lists_bytes > 0 && i < SYI_ACLNN_MAX_LISTS; i++)
        e->list[i].data = workspace + e->lists_at + e->list_at[i];
    aclnnStatus st = ACLNN_SUCCESS;
    if (e->scratch_bytes > 0)
        st = syi_aclnn_status(e, sy_ctx_set_workspace(e->ctx, workspace + e->scratch_at, e->scratch_bytes));
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_run(e);
    for (int i = 0; st == ACLNN_SUCCESS && i < e->n_views; i++)
        if (e->view[i].taken && e->view[i].packed && e->view[i].output)
            syi_aclnn_unpack(&e->view[i], e->view[i].dl.data);
    return st;
}

aclnnStatus syi_aclnn_run_on_host(aclOpExecutor *e, char *workspace)
{
    char *own = NULL;
    if (workspace == NULL && e->workspace_bytes > 0) {
        own = aligned_alloc(64, e->workspace_bytes);
        if (own == NULL)
            return syi_aclnn_fail(ACLNN_ERR_RUNTIME_ERROR, "%s: no memory for a workspace of %llu bytes",
                                  e->op->name, (unsigned long long)e->workspace_bytes);
    }
    const aclnnStatus st = run_packed(e, own != NULL ? own : workspace);
    free(own);
    return st;
}

aclnnStatus syi_aclnn_execute(const struct syi_aclnn_op *op, void *workspace, uint64_t workspace_size,
                              aclOpExecutor *e, aclrtStream stream)
{
    (void)stream; /* streams run synchronously */
    if (e == NULL)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR,
                              "%s: executor is null, want that of %sGetWorkspaceSize", op->name, op->name);
    if (is_spent(e))
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                              "%s: executor was executed before, want a new one of %sGetWorkspaceSize",
                              op->name, op->name);
    if (e->op != op)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: executor is one of %s, want one of %s", op->name,
                              e->op->name, op->name);
    aclnnStatus st = check_workspace(e, workspace, workspace_size);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_run_anywhere(e, workspace);
    if (!e->repeatable)
        spend(e);
    return st;
}

static aclnnStatus check_unspent(const char *call, const aclOpExecutor *e)
{
    return e != NULL && !is_spent(e) ? ACLNN_SUCCESS
                                     : syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: executor is %s", call,
                                                      e == NULL ? "null" : "used up");
}

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor)
{
    const aclnnStatus st = check_unspent(__func__, executor);
    if (st == ACLNN_SUCCESS)
        executor->repeatable = true;
    return st;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor)
{
    const aclnnStatus st = check_unspent(__func__, executor);
    if (st == ACLNN_SUCCESS)
        spend(executor);
    return st;
}

/* Other data for the index-th of the inputs or outputs. */
static aclnnStatus set_address(const char *call, aclOpExecutor *e, bool output, size_t index, void *addr)
{
    if (e == NULL || is_spent(e) || addr == NULL)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: executor or address is null or used up", call);
    for (int i = 0; i < e->n_views; i++) {
        if (e->view[i].output != output || index-- > 0)
            continue;
        if (!e->view[i].taken)
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: %s takes no part in this call of %s", call,
                                  e->view[i].name, e->op->name);
        e->view[i].base = addr;
        return ACLNN_SUCCESS;
    }
    return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: index is beyond the %s of %s", call,
                          output ? "outputs" : "inputs", e->op->name);
}

aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr)
{
    (void)tensor;
    return set_address(__func__, executor, false, index, addr);
}

aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index, aclTensor *tensor, void *addr)
{
    (void)tensor;
    return set_address(__func__, executor, true, index, addr);
}
