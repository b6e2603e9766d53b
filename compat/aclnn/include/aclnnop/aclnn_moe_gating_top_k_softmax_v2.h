/*
 * Chooses the k experts of the largest logits of each row: sy_moe_route. T rows, E experts.
 *     x                 [T,E]  FLOAT, FLOAT16, BF16      yOut          [T,k]  type of x
 *     finishedOptional  [T]    BOOL                      expertIdxOut  [T,k]  INT32; E for a finished row
 *     softmaxResultOutOptional  [T,E]  FLOAT: all scores; ignored unless outputSoftmaxResultFlag and renorm 0
 * renorm 0: weights are those of the softmax over all experts; 1: the softmax of the chosen logits. A finished row has the
 * weights of its logits.
 *
 * First phase: 161001 something required is null; 161002 types, ranks, overlap; 561002 shapes and values. Second phase: 161001,
 * 161002 executor or workspace. Every content of the tensors is accepted.
 */
#ifndef SWITCHYARD_ACLNN_MOE_GATING_TOP_K_SOFTMAX_V2_H
#define SWITCHYARD_ACLNN_MOE_GATING_TOP_K_SOFTMAX_V2_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize(
    const aclTensor *x, const aclTensor *finishedOptional, int64_t k, int64_t renorm,
    bool outputSoftmaxResultFlag, const aclTensor *yOut, const aclTensor *expertIdxOut,
    const aclTensor *softmaxResultOutOptional, uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeGatingTopKSoftmaxV2(void *workspace, uint64_t workspaceSize,
                                                  aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_GATING_TOP_K_SOFTMAX_V2_H */
