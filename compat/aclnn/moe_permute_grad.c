/* aclnnMoeTokenPermuteWithRoutingMapGrad: sy_moe_permute_grad. */
#include "internal.h"

#include "aclnnop/aclnn_moe_token_permute_with_routing_map_grad.h"

enum { GRAD_PERMUTED, GRAD_PERMUTED_PROBS, INDICES, MAP, GRAD_TOKENS, GRAD_PROBS, N_TENSORS };

/* Rows without elements: the vendor returns before it computes anything, the gradient of probs included. */
static bool is_empty(const aclOpExecutor *e)
{
    return e->view[GRAD_PERMUTED].shape[1] == 0 && e->view[GRAD_TOKENS].shape[1] == 0;
}

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    (void)extra;
    if (is_empty(e))
        return ACLNN_SUCCESS;
    return syi_aclnn_status(e, sy_moe_permute_grad(e->ctx, &e->args.permute_grad));
}

static const struct syi_aclnn_op op = {"aclnnMoeTokenPermuteWithRoutingMapGrad", run, true};

/* The vendor finds an output of another shape when it copies the result there, which is an error inside the operator. */
static aclnnStatus check_output(const aclOpExecutor *e, int i, int64_t columns)
{
    const aclnnStatus st = syi_aclnn_check_shape(e, i, e->n_tokens, columns);
    return st == ACLNN_SUCCESS ? st : ACLNN_ERR_INNER_NULLPTR;
}

static aclnnStatus check(aclOpExecutor *e, const struct syi_aclnn_rule *rules, bool drop_and_pad)
{
    sy_query query = {0};
    aclnnStatus st = syi_aclnn_check_null(e, rules, N_TENSORS);
    if (st == ACLNN_SUCCESS && e->view[GRAD_PERMUTED_PROBS].taken && !e->view[MAP].taken)
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR,
                            "%s: routingMapOptional is null beside permutedProbsOutputGradOptional, want the "
                            "experts of each token",
                            op.name);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(e, rules);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_ranks(e, rules);
    if (st == ACLNN_SUCCESS && is_empty(e))
        e->view[GRAD_PROBS].taken = false;
    if (st != ACLNN_SUCCESS || is_empty(e))
        return st;
    e->args.permute_grad =
        (sy_moe_permute_grad_args){.grad_permuted_tokens = syi_aclnn_arg(e, GRAD_PERMUTED),
                                   .sorted_indices = syi_aclnn_arg(e, INDICES),
                                   .grad_permuted_probs = syi_aclnn_arg(e, GRAD_PERMUTED_PROBS),
                                   .routing_map = syi_aclnn_arg(e, MAP),
                                   .num_experts = e->n_experts,
                                   .num_tokens = e->n_tokens,
                                   .drop_and_pad = drop_and_pad,
                                   .grad_tokens = syi_aclnn_arg(e, GRAD_TOKENS),
                                   .grad_probs = syi_aclnn_arg(e, GRAD_PROBS)};
    st = syi_aclnn_status(e, sy_moe_permute_grad_query(e->ctx, &e->args.permute_grad, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    e->n_rows = e->view[GRAD_PERMUTED].shape[0];
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_limits(e, drop_and_pad);
    if (st == ACLNN_SUCCESS)
        st = check_output(e, GRAD_TOKENS, e->view[GRAD_PERMUTED].shape[1]);
    if (st == ACLNN_SUCCESS)
        st = check_output(e, GRAD_PROBS, e->n_experts);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

aclnnStatus aclnnMoeTokenPermuteWithRoutingMapGradGetWorkspaceSize(
    const aclTensor *permutedTokenOutputGrad, const aclTensor *permutedProbsOutputGradOptional,
    const aclTensor *sortedIndices, const aclTensor *routingMapOptional, int64_t numExperts,
    int64_t tokensNum, bool dropAndPad, aclTensor *tokensGradOut, aclTensor *probsGradOutOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const unsigned optional = SYI_ACLNN_OPTIONAL, out = SYI_ACLNN_OUTPUT;
    /* Without the gradient of the permuted probs, that of probs is not written. */
    const unsigned probs_out =
        out | optional | (permutedProbsOutputGradOptional == NULL ? SYI_ACLNN_IGNORED : 0u);
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [GRAD_PERMUTED] = {"permutedTokenOutputGrad", permutedTokenOutputGrad, 0, SYI_ACLNN_FLOATS, 0, 2},
        [GRAD_PERMUTED_PROBS] = {"permutedProbsOutputGradOptional", permutedProbsOutputGradOptional,
                                 optional | SYI_ACLNN_WIDENS, 0, GRAD_PERMUTED + 1, 1},
        [INDICES] = {"sortedIndices", sortedIndices, 0, SYI_ACLNN_BIT(ACL_INT32), 0, 1},
        [MAP] = {"routingMapOptional", routingMapOptional, optional, SYI_ACLNN_BYTES, 0, 2},
        [GRAD_TOKENS] = {"tokensGradOut", tokensGradOut, out, 0, GRAD_PERMUTED + 1, 2},
        [GRAD_PROBS] = {"probsGradOutOptional", probsGradOutOptional, probs_out, 0, GRAD_PERMUTED_PROBS + 1,
                        2},
    };
    aclOpExecutor *e = NULL;
    if (numExperts <= 0 || tokensNum <= 0) /* the vendor checks these first */
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                              "%s: numExperts is %lld and tokensNum is %lld, want 1 or more", op.name,
                              (long long)numExperts, (long long)tokensNum);
    aclnnStatus st = syi_aclnn_begin(&op, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS) {
        e->n_tokens = tokensNum;
        e->n_experts = numExperts;
        st = check(e, rules, dropAndPad);
    }
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeTokenPermuteWithRoutingMapGrad(void *workspace, uint64_t workspaceSize,
                                                   aclOpExecutor *executor, aclrtStream stream)
{
    return syi_aclnn_execute(&op, workspace, workspaceSize, executor, stream);
}
