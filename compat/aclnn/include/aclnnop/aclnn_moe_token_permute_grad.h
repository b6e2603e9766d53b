/*
 * The gradient of the tokens of aclnnMoeTokenPermute, the sum of their rows: sy_moe_unpermute_ids. K = numTopk, T tokens.
 *     permutedOutputGrad  [M,H]  FLOAT, FLOAT16, BF16      out  [T,H]  the same type
 *     sortedIndices       [T*K]  INT32
 * paddedMode must be false.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, numTopk below 1, limits, overlap; 561103 numTopk above
 * 512. Second phase: 161001, 161002 executor or workspace; 161002 an index outside -1..T*K-1.
 */
#ifndef SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_GRAD_H
#define SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_GRAD_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeTokenPermuteGradGetWorkspaceSize(const aclTensor *permutedOutputGrad,
                                                               const aclTensor *sortedIndices,
                                                               int64_t numTopk, bool paddedMode,
                                                               aclTensor *out, uint64_t *workspaceSize,
                                                               aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeTokenPermuteGrad(void *workspace, uint64_t workspaceSize,
                                               aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_GRAD_H */
