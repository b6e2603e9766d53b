/*
 * The end of each expert's rows in a sorted list of experts: sy_moe_permute_ids. E = numExperts.
 *     sortedExperts  [N]  INT32, 0 to E; E is no expert      out  [E]  INT32: entries of experts 0 to i
 *
 * First phase: 161001 something required is null; 161002 types, shapes, numExperts below 1, overlap. Second phase: 161001,
 * 161002 executor or workspace; 161002 an expert outside.
 */
#ifndef SWITCHYARD_ACLNN_MOE_COMPUTE_EXPERT_TOKENS_H
#define SWITCHYARD_ACLNN_MOE_COMPUTE_EXPERT_TOKENS_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeComputeExpertTokensGetWorkspaceSize(const aclTensor *sortedExperts,
                                                                  int64_t numExperts, const aclTensor *out,
                                                                  uint64_t *workspaceSize,
                                                                  aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeComputeExpertTokens(void *workspace, uint64_t workspaceSize,
                                                  aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_COMPUTE_EXPERT_TOKENS_H */
