/*
 * Gradients of tokens and probs from those of the permuted rows: sy_moe_permute_grad. T = tokensNum, E = numExperts.
 *     permutedTokenOutputGrad          [M,H]  FLOAT, FLOAT16, BF16     tokensGradOut         [T,H]  the same type
 *     permutedProbsOutputGradOptional  [M]    the same type, or        probsGradOutOptional  [T,E]  type of
 *                                             FLOAT with BF16                  permutedProbsOutputGradOptional
 *     sortedIndices                    [M]    INT32
 *     routingMapOptional               [T,E]  INT8, BOOL; needed by permutedProbsOutputGradOptional
 * Without permutedProbsOutputGradOptional the last output is not written, nor where H is 0; its shape is then not checked.
 *
 * First phase: 161002 numExperts or tokensNum below 1, checked first; then 161001 something required is null;
 * 161002 types, shapes of inputs, limits, overlap; 561103 more than 512 slots per token, an output of another shape. Second phase: 161001, 161002 executor or
 * workspace; 161002 wrong indices, or a map that does not fit them. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_WITH_ROUTING_MAP_GRAD_H
#define SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_WITH_ROUTING_MAP_GRAD_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeTokenPermuteWithRoutingMapGradGetWorkspaceSize(
    const aclTensor *permutedTokenOutputGrad, const aclTensor *permutedProbsOutputGradOptional,
    const aclTensor *sortedIndices, const aclTensor *routingMapOptional, int64_t numExperts,
    int64_t tokensNum, bool dropAndPad, aclTensor *tokensGradOut, aclTensor *probsGradOutOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeTokenPermuteWithRoutingMapGrad(void *workspace, uint64_t workspaceSize,
                                                             aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_WITH_ROUTING_MAP_GRAD_H */
