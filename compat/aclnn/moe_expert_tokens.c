/* aclnnMoeComputeExpertTokens: the offsets of sy_moe_permute_ids, of rows without elements. */
#include "internal.h"

#include "aclnnop/operators.h"

enum { SORTED, OUT, N_TENSORS };

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    int64_t *offsets = (int64_t *)(void *)extra;
    e->list[0].data = offsets;
    e->list[1].data = offsets + e->n_experts + 1; /* the places, which are not needed */
    const aclnnStatus st = syi_aclnn_call(e);
    for (int64_t i = 0; st == ACLNN_SUCCESS && i < e->n_experts; i++)
        syi_aclnn_set_integer(e, OUT, i, offsets[i + 1]);
    return st;
}

static const struct syi_aclnn_op op = {"aclnnMoeComputeExpertTokens", SYI_ACLNN_CALLS(moe_permute_ids), run,
                                       false};

static void plan(aclOpExecutor *e, int64_t experts)
{
    if (e->status != ACLNN_SUCCESS)
        return;
    const int64_t n = e->view[SORTED].shape[0];
    const DLTensor *no_elements = syi_aclnn_list(e, 2, SY_I32, n, 0);
    e->n_experts = experts;
    e->extra_bytes = ((size_t)experts + 1) * sizeof(int64_t) + (size_t)n * sizeof(int32_t);
    e->args.permute_ids =
        (sy_moe_permute_ids_args){.tokens = no_elements,
                                  .ids = syi_aclnn_arg(e, SORTED),
                                  .num_experts = experts,
                                  .permuted_tokens = no_elements,
                                  .sorted_indices = syi_aclnn_list(e, 1, SY_I32, n, -1),
                                  .expert_offsets = syi_aclnn_list(e, 0, SY_I64, experts + 1, -1),
                                  .allow_missing = true};
    (void)syi_aclnn_query(e);
    syi_aclnn_check_shape(e, OUT, experts, -1);
    syi_aclnn_check_alias(e, -1, -1);
}

aclnnStatus aclnnMoeComputeExpertTokensGetWorkspaceSize(const aclTensor *sortedExperts, int64_t numExperts,
                                                        const aclTensor *out, uint64_t *workspaceSize,
                                                        aclOpExecutor **executor)
{
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [SORTED] = {"sortedExperts", sortedExperts, SYI_ACLNN_COLUMN, SYI_ACLNN_I32, 0, 2, 0},
        [OUT] = {"out", out, SYI_ACLNN_OUTPUT, SYI_ACLNN_I32, 0, 1, 0},
    };
    aclOpExecutor *e;
    const aclnnStatus st = syi_aclnn_begin(&op, workspaceSize, executor, rules, N_TENSORS, &e);
    if (st != ACLNN_SUCCESS)
        return st;
    syi_aclnn_check_tensors(e, rules);
    syi_aclnn_want(e, numExperts >= 1 && numExperts < 16777215, ACLNN_ERR_PARAM_INVALID, "numExperts",
                   numExperts, "1 to 16777214");
    plan(e, numExperts);
    return syi_aclnn_end(e, workspaceSize, executor);
}

SYI_ACLNN_SECOND_PHASE(aclnnMoeComputeExpertTokens, op)
