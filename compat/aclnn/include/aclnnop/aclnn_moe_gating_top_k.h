/*
 * Chooses k experts for each row by score and bias, in groups, and computes their weights: sy_moe_route. T rows, E experts.
 *     x             [T,E]  FLOAT, FLOAT16, BF16      yOut          [T,k]  type of x
 *     biasOptional  [E]    FLOAT, FLOAT16, BF16      expertIdxOut  [T,k]  INT32
 *                                                    outOut        [T,E]  FLOAT: all scores; ignored without outFlag
 * normType 0 is the softmax; 1 the sigmoid, with weights divided by their sum + eps. groupSelectMode 0 is the largest score
 * of a group, 1 the sum of its two largest. renorm must be 0.
 *
 * First phase: 161001 something required is null; 161002 types, ranks, overlap; 561002 shapes and values. Second phase: 161001,
 * 161002 executor or workspace. Every content of the tensors is accepted.
 */
#ifndef SWITCHYARD_ACLNN_MOE_GATING_TOP_K_H
#define SWITCHYARD_ACLNN_MOE_GATING_TOP_K_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeGatingTopKGetWorkspaceSize(
    const aclTensor *x, const aclTensor *biasOptional, int64_t k, int64_t kGroup, int64_t groupCount,
    int64_t groupSelectMode, int64_t renorm, int64_t normType, bool outFlag, double routedScalingFactor,
    double eps, const aclTensor *yOut, const aclTensor *expertIdxOut, const aclTensor *outOut,
    uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeGatingTopK(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                         aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_GATING_TOP_K_H */
