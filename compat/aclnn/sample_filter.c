/* aclnnApplyTopKTopP: the masked logits of sy_sample, which are FLOAT; 16-bit ones are converted back, exactly. */
#include "internal.h"

#include "aclnnop/aclnn_apply_top_k_top_p.h"

enum { LOGITS, TOP_P, TOP_K, OUT, N_TENSORS };

static bool is_narrow(const aclOpExecutor *e)
{
    return e->view[LOGITS].type != ACL_FLOAT;
}

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    const int64_t vocab = e->view[LOGITS].shape[1];
    int64_t *tokens = (int64_t *)(void *)extra; /* not needed, but the operator makes them */
    float *kept = (float *)(void *)(tokens + e->view[LOGITS].shape[0]);
    e->list[0].data = tokens;
    e->list[1].data = kept;
    const aclnnStatus st = syi_aclnn_status(e, sy_sample(e->ctx, &e->args.sample));
    struct syi_aclnn_view *out = &e->view[OUT];
    for (int64_t b = 0; st == ACLNN_SUCCESS && is_narrow(e) && b < out->shape[0]; b++) {
        char *row = (char *)out->dl.data + (syi_aclnn_row(out, b) - (const char *)out->dl.data);
        for (int64_t i = 0; i < vocab; i++)
            syi_aclnn_set_float(row + (size_t)i * out->elem_bytes, out->type, kept[b * vocab + i]);
    }
    return st;
}

static const struct syi_aclnn_op op = {"aclnnApplyTopKTopP", run, false};

static aclnnStatus plan(aclOpExecutor *e)
{
    const int64_t batch = e->view[LOGITS].shape[0], vocab = e->view[LOGITS].shape[1];
    sy_query query = {0};
    aclnnStatus st = syi_aclnn_check_shape(e, TOP_P, batch, -1);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, TOP_K, batch, -1);
    if (st != ACLNN_SUCCESS)
        return st;
    const DLTensor *tokens = syi_aclnn_list(e, 0, SY_I64, batch, 0);
    e->list_shape[1][0] = batch;
    e->list_shape[1][1] = vocab;
    e->list[1] = sy_tensor(NULL, SY_F32, 2, e->list_shape[1]);
    e->extra_bytes =
        (size_t)batch * sizeof(int64_t) + (is_narrow(e) ? (size_t)(batch * vocab) * sizeof(float) : 0);
    e->args.sample = (sy_sample_args){.logits = syi_aclnn_arg(e, LOGITS),
                                      .top_k = syi_aclnn_arg(e, TOP_K),
                                      .top_p = syi_aclnn_arg(e, TOP_P),
                                      .noise = SY_NOISE_NONE,
                                      .ties = SY_TIES_ALL,
                                      .token = tokens,
                                      .masked_logits = is_narrow(e) ? &e->list[1] : syi_aclnn_arg(e, OUT)};
    st = syi_aclnn_status(e, sy_sample_query(e->ctx, &e->args.sample, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, OUT, batch, vocab);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, OUT, LOGITS) : st;
}

aclnnStatus aclnnApplyTopKTopPGetWorkspaceSize(const aclTensor *logits, const aclTensor *p,
                                               const aclTensor *k, aclTensor *out, uint64_t *workspaceSize,
                                               aclOpExecutor **executor)
{
    const unsigned optional = SYI_ACLNN_OPTIONAL | SYI_ACLNN_ANY_STRIDE;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {"logits", logits, 0, SYI_ACLNN_FLOATS, 0, 2},
        [TOP_P] = {"p", p, optional, 0, LOGITS + 1, 1},
        [TOP_K] = {"k", k, optional, SYI_ACLNN_BIT(ACL_INT32), 0, 1},
        [OUT] = {"out", out, SYI_ACLNN_OUTPUT, 0, LOGITS + 1, 2},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&op, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_null(e, rules, N_TENSORS);
    if (st == ACLNN_SUCCESS && p == NULL && k == NULL)
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: p and k are null, want one of them", op.name);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(e, rules);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_ranks(e, rules);
    if (st == ACLNN_SUCCESS)
        st = plan(e);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnApplyTopKTopP(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                               aclrtStream stream)
{
    return syi_aclnn_execute(&op, workspace, workspaceSize, executor, stream);
}
