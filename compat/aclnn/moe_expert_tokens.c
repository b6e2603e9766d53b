/* aclnnMoeComputeExpertTokens: the offsets of sy_moe_permute_ids, of rows without elements. */
#include "internal.h"

#include "aclnnop/aclnn_moe_compute_expert_tokens.h"

enum { SORTED, OUT, N_TENSORS };

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    int64_t *offsets = (int64_t *)(void *)extra;
    e->list[0].data = offsets;
    e->list[1].data = offsets + e->n_experts + 1; /* the places, which are not needed */
    const aclnnStatus st = syi_aclnn_status(e, sy_moe_permute_ids(e->ctx, &e->args.permute_ids));
    for (int64_t i = 0; st == ACLNN_SUCCESS && i < e->n_experts; i++)
        syi_aclnn_set_number(e, OUT, i, offsets[i + 1]);
    return st;
}

static const struct syi_aclnn_op op = {"aclnnMoeComputeExpertTokens", run, false};

static aclnnStatus plan(aclOpExecutor *e)
{
    const int64_t n = e->view[SORTED].shape[0];
    sy_query query = {0};
    e->extra_bytes = ((size_t)e->n_experts + 1) * sizeof(int64_t) + (size_t)n * sizeof(int32_t);
    const DLTensor *offsets = syi_aclnn_list(e, 0, SY_I64, e->n_experts + 1, 0);
    const DLTensor *places = syi_aclnn_list(e, 1, SY_I32, n, 0);
    e->list_shape[2][0] = n;
    e->list_shape[2][1] = 0;
    e->list[2] = sy_tensor(NULL, SY_I32, 2, e->list_shape[2]);
    e->args.permute_ids = (sy_moe_permute_ids_args){.tokens = &e->list[2],
                                                    .ids = syi_aclnn_arg(e, SORTED),
                                                    .num_experts = e->n_experts,
                                                    .permuted_tokens = &e->list[2],
                                                    .sorted_indices = places,
                                                    .expert_offsets = offsets,
                                                    .allow_missing = true};
    aclnnStatus st = syi_aclnn_status(e, sy_moe_permute_ids_query(e->ctx, &e->args.permute_ids, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, OUT, e->n_experts, -1);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

aclnnStatus aclnnMoeComputeExpertTokensGetWorkspaceSize(const aclTensor *sortedExperts, int64_t numExperts,
                                                        const aclTensor *out, uint64_t *workspaceSize,
                                                        aclOpExecutor **executor)
{
    const unsigned i32 = SYI_ACLNN_BIT(ACL_INT32);
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [SORTED] = {"sortedExperts", sortedExperts, SYI_ACLNN_COLUMN, i32, 0, 2},
        [OUT] = {"out", out, SYI_ACLNN_OUTPUT, i32, 0, 1},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin_checked(&op, workspaceSize, executor, rules, N_TENSORS, &e);
    if (st == ACLNN_SUCCESS && (numExperts < 1 || numExperts >= 16777215))
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: numExperts is %lld, want 1 to 16777214", op.name,
                            (long long)numExperts);
    if (st == ACLNN_SUCCESS) {
        e->n_experts = numExperts;
        st = plan(e);
    }
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeComputeExpertTokens(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                        aclrtStream stream)
{
    return syi_aclnn_execute(&op, workspace, workspaceSize, executor, stream);
}
