/*
 * Returns rows to their tokens, weighted and added up: sy_moe_unpermute_ids. K choices of T tokens; without probs K is 1.
 *     permutedTokens  [M,H]  FLOAT, FLOAT16, BF16      out  [T,H]  type of permutedTokens
 *     sortedIndices   [T*K]  INT32; an index of -1, or of M and more, has no row
 *     probsOptional   [T,K]  FLOAT, FLOAT16, BF16
 * paddedMode must be false; restoreShapeOptional is ignored.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, limits, overlap; 561103 more than 512 choices. Second
 * phase: 161001, 161002 executor or workspace; 161002 an index outside -1..T*K-1.
 */
#ifndef SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_H
#define SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeTokenUnpermuteGetWorkspaceSize(const aclTensor *permutedTokens,
                                                             const aclTensor *sortedIndices,
                                                             const aclTensor *probsOptional, bool paddedMode,
                                                             const aclIntArray *restoreShapeOptional,
                                                             const aclTensor *out, uint64_t *workspaceSize,
                                                             aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeTokenUnpermute(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                             aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_H */
