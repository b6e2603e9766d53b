/*
 * Copies token rows to one row for each expert they name, in the stable order of the experts: sy_moe_permute_ids. T tokens of
 * H elements and K experts; M rows: all T*K if numOutTokens is 0, the first ones if it is positive, all but the last ones if
 * it is negative.
 *     tokens   [T,H]         FLOAT, FLOAT16, BF16      permuteTokensOut  [M,H]  type of tokens
 *     indices  [T,K] or [T]  INT32, INT64              sortedIndicesOut  [T*K]  INT32
 * paddedMode must be false.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, values, limits, overlap; 561103 more than 512 experts
 * per token. Second phase: 161001, 161002 executor or workspace.
 */
#ifndef SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_H
#define SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeTokenPermuteGetWorkspaceSize(const aclTensor *tokens, const aclTensor *indices,
                                                           int64_t numOutTokens, bool paddedMode,
                                                           const aclTensor *permuteTokensOut,
                                                           const aclTensor *sortedIndicesOut,
                                                           uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeTokenPermute(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                           aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_H */
