/* aclnnMoeTokenPermuteWithRoutingMapGrad: sy_moe_permute_grad. */
#include "internal.h"

enum { GRAD_PERMUTED, GRAD_PERMUTED_PROBS, INDICES, MAP, GRAD_TOKENS, GRAD_PROBS, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(moe_permute_grad, field)

/* Rows without elements: the vendor returns before it computes anything, the gradient of probs included. */
static bool is_empty(const aclOpExecutor *e)
{
    return e->view[GRAD_PERMUTED].shape[1] == 0 && e->view[GRAD_TOKENS].shape[1] == 0;
}

static aclnnStatus run(aclOpExecutor *e)
{
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

SYI_ACLNN_OPERATOR(aclnnMoeTokenPermuteWithRoutingMapGrad, op, const aclTensor *permutedTokenOutputGrad,
                   const aclTensor *permutedProbsOutputGradOptional, const aclTensor *sortedIndices,
                   const aclTensor *routingMapOptional, int64_t numExperts, int64_t tokensNum,
                   bool dropAndPad, aclTensor *tokensGradOut, aclTensor *probsGradOutOptional)
{
    const unsigned out = SYI_ACLNN_OUTPUT, optional = SYI_ACLNN_OPTIONAL, wide = optional | SYI_ACLNN_WIDENS;
    const unsigned probs_out = out | optional | SYI_ACLNN_BESIDE;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [GRAD_PERMUTED] = {SYI_NAMED(permutedTokenOutputGrad), 0, SYI_ACLNN_FLOATS, 0, 2,
                           TO(grad_permuted_tokens)},
        [GRAD_PERMUTED_PROBS] = {SYI_NAMED(permutedProbsOutputGradOptional), wide, 0, GRAD_PERMUTED + 1, 1,
                                 TO(grad_permuted_probs)},
        [INDICES] = {SYI_NAMED(sortedIndices), 0, SYI_ACLNN_I32, 0, 1, TO(sorted_indices)},
        [MAP] = {SYI_NAMED(routingMapOptional), optional, SYI_ACLNN_BYTES, 0, 2, TO(routing_map)},
        [GRAD_TOKENS] = {SYI_NAMED(tokensGradOut), out, 0, GRAD_PERMUTED + 1, 2, TO(grad_tokens)},
        [GRAD_PROBS] = {SYI_NAMED(probsGradOutOptional), probs_out, 0, GRAD_PERMUTED_PROBS + 1, 2,
                        TO(grad_probs)},
    };
    if (numExperts <= 0 || tokensNum <= 0) /* the vendor checks these first */
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                              "%s: numExperts is %lld and tokensNum is %lld, want 1 or more", op.name,
                              (long long)numExperts, (long long)tokensNum);
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    if (permutedProbsOutputGradOptional != NULL && routingMapOptional == NULL)
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR,
                         "routingMapOptional is null beside permutedProbsOutputGradOptional, want the "
                         "experts of each token");
    if (!syi_aclnn_check_tensors(e, rules))
        return syi_aclnn_end(e);
    if (is_empty(e)) {
        e->view[GRAD_PROBS].taken = false;
        return syi_aclnn_end(e);
    }
    e->n_tokens = tokensNum;
    e->n_experts = numExperts;
    e->n_rows = e->view[GRAD_PERMUTED].shape[0];
    e->args.permute_grad.num_experts = numExperts;
    e->args.permute_grad.num_tokens = tokensNum;
    e->args.permute_grad.drop_and_pad = dropAndPad;
    (void)syi_aclnn_query(e);
    syi_aclnn_check_limits(e, dropAndPad);
    check_output(e, GRAD_TOKENS, e->view[GRAD_PERMUTED].shape[1]);
    check_output(e, GRAD_PROBS, numExperts);
    return syi_aclnn_end(e);
}
