/* aclnnMoeTokenPermuteWithRoutingMapGrad: sy_moe_permute_grad. */
#include "internal.h"

#include "aclnnop/operators.h"

enum { GRAD_PERMUTED, GRAD_PERMUTED_PROBS, INDICES, MAP, GRAD_TOKENS, GRAD_PROBS, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(moe_permute_grad, field)

/* Rows without elements: the vendor returns before it computes anything, the gradient of probs included. */
static bool is_empty(const aclOpExecutor *e)
{
    return e->view[GRAD_PERMUTED].shape[1] == 0 && e->view[GRAD_TOKENS].shape[1] == 0;
}

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    (void)extra;
    return is_empty(e) ? ACLNN_SUCCESS : syi_aclnn_call(e);
}

static const struct syi_aclnn_op op = {"aclnnMoeTokenPermuteWithRoutingMapGrad",
                                       SYI_ACLNN_CALLS(moe_permute_grad), run, true};

/* The vendor finds an output of another shape when it copies the result there, which is an error inside the operator. */
static void check_output(aclOpExecutor *e, int i, int64_t columns)
{
    const bool good = e->status == ACLNN_SUCCESS;
    syi_aclnn_check_shape(e, i, e->n_tokens, columns);
    if (good && e->status != ACLNN_SUCCESS)
        e->status = ACLNN_ERR_INNER_NULLPTR;
}

static void plan(aclOpExecutor *e, bool drop_and_pad)
{
    if (e->status != ACLNN_SUCCESS)
        return;
    if (is_empty(e)) {
        e->view[GRAD_PROBS].taken = false;
        return;
    }
    e->args.permute_grad.num_experts = e->n_experts;
    e->args.permute_grad.num_tokens = e->n_tokens;
    e->args.permute_grad.drop_and_pad = drop_and_pad;
    (void)syi_aclnn_query(e);
    e->n_rows = e->view[GRAD_PERMUTED].shape[0];
    syi_aclnn_check_limits(e, drop_and_pad);
    check_output(e, GRAD_TOKENS, e->view[GRAD_PERMUTED].shape[1]);
    check_output(e, GRAD_PROBS, e->n_experts);
    syi_aclnn_check_alias(e, -1, -1);
}

aclnnStatus aclnnMoeTokenPermuteWithRoutingMapGradGetWorkspaceSize(
    const aclTensor *permutedTokenOutputGrad, const aclTensor *permutedProbsOutputGradOptional,
    const aclTensor *sortedIndices, const aclTensor *routingMapOptional, int64_t numExperts,
    int64_t tokensNum, bool dropAndPad, aclTensor *tokensGradOut, aclTensor *probsGradOutOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const unsigned out = SYI_ACLNN_OUTPUT, optional = SYI_ACLNN_OPTIONAL, wide = optional | SYI_ACLNN_WIDENS;
    /* Without the gradient of the permuted probs, that of probs is not written. */
    const unsigned probs_out =
        out | optional | (permutedProbsOutputGradOptional == NULL ? SYI_ACLNN_IGNORED : 0u);
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [GRAD_PERMUTED] = {"permutedTokenOutputGrad", permutedTokenOutputGrad, 0, SYI_ACLNN_FLOATS, 0, 2,
                           TO(grad_permuted_tokens)},
        [GRAD_PERMUTED_PROBS] = {"permutedProbsOutputGradOptional", permutedProbsOutputGradOptional, wide, 0,
                                 GRAD_PERMUTED + 1, 1, TO(grad_permuted_probs)},
        [INDICES] = {"sortedIndices", sortedIndices, 0, SYI_ACLNN_I32, 0, 1, TO(sorted_indices)},
        [MAP] = {"routingMapOptional", routingMapOptional, optional, SYI_ACLNN_BYTES, 0, 2, TO(routing_map)},
        [GRAD_TOKENS] = {"tokensGradOut", tokensGradOut, out, 0, GRAD_PERMUTED + 1, 2, TO(grad_tokens)},
        [GRAD_PROBS] = {"probsGradOutOptional", probsGradOutOptional, probs_out, 0, GRAD_PERMUTED_PROBS + 1,
                        2, TO(grad_probs)},
    };
    aclOpExecutor *e;
    if (numExperts <= 0 || tokensNum <= 0) /* the vendor checks these first */
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                              "%s: numExperts is %lld and tokensNum is %lld, want 1 or more", op.name,
                              (long long)numExperts, (long long)tokensNum);
    const aclnnStatus st = syi_aclnn_begin(&op, workspaceSize, executor, rules, N_TENSORS, &e);
    if (st != ACLNN_SUCCESS)
        return st;
    e->n_tokens = tokensNum;
    e->n_experts = numExperts;
    if (e->view[GRAD_PERMUTED_PROBS].taken && !e->view[MAP].taken)
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR,
                         "routingMapOptional is null beside permutedProbsOutputGradOptional, want the "
                         "experts of each token");
    syi_aclnn_check_tensors(e, rules);
    plan(e, dropAndPad);
    return syi_aclnn_end(e, workspaceSize, executor);
}

SYI_ACLNN_SECOND_PHASE(aclnnMoeTokenPermuteWithRoutingMapGrad, op)
