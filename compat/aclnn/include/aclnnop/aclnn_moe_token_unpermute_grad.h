/*
 * Gradients of the rows and weights of aclnnMoeTokenUnpermute: sy_moe_dispatch for every choice, and sy_moe_dispatch_grad_gate.
 * Letters as there; a row that no index names, and one of weight 0, is +0.
 *     permutedTokens        [M,H]  FLOAT, FLOAT16, BF16; may be null without probs: then M = T*K
 *     unpermutedTokensGrad  [T,H]  the same type      permutedTokensGradOut  [M,H]  the same type
 *     sortedIndices         [T*K]  INT32              probsGradOut           [T,K]  type of probs; ignored without probs
 *     probsOptional         [T,K]  the same type, or FLOAT with BF16
 * paddedMode must be false; restoreShapeOptional is ignored.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, limits, overlap; 561103 more than 512 choices. Second
 * phase: 161001, 161002 executor or workspace. An index that names no row is left out.
 */
#ifndef SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_GRAD_H
#define SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_GRAD_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeTokenUnpermuteGradGetWorkspaceSize(
    const aclTensor *permutedTokens, const aclTensor *unpermutedTokensGrad, const aclTensor *sortedIndices,
    const aclTensor *probsOptional, bool paddedMode, const aclIntArray *restoreShapeOptional,
    aclTensor *permutedTokensGradOut, aclTensor *probsGradOut, uint64_t *workspaceSize,
    aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeTokenUnpermuteGrad(void *workspace, uint64_t workspaceSize,
                                                 aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_GRAD_H */
