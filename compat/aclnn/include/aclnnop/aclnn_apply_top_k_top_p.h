/*
 * Logits outside of top-k and top-p become -inf: sy_sample. B rows of V logits.
 *     logits  [B,V]  FLOAT, FLOAT16, BF16                          out  [B,V]  type of logits; may be logits itself
 *     p       [B]    type of logits, may be null: no top-p
 *     k       [B]    INT32, may be null: no top-k; 0 and less, and V and more: all
 * All logits that are equal to the k-th stay, and all that are equal to the last of the shortest list that reaches p.
 *
 * First phase: 161001 something required is null, or p and k are; 161002 types, shapes, overlap. Second phase: 161001, 161002
 * executor or workspace. Every content of the tensors is accepted.
 */
#ifndef SWITCHYARD_ACLNN_APPLY_TOP_K_TOP_P_H
#define SWITCHYARD_ACLNN_APPLY_TOP_K_TOP_P_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnApplyTopKTopPGetWorkspaceSize(const aclTensor *logits, const aclTensor *p,
                                                         const aclTensor *k, aclTensor *out,
                                                         uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnApplyTopKTopP(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                         aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_APPLY_TOP_K_TOP_P_H */
