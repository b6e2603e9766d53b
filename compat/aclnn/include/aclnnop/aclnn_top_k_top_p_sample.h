/*
 * One token per row of logits: top-k, top-p, then the largest probability, or the largest prob / (|q| + eps). B rows of V
 * logits: sy_sample with k_limit 1024.
 *     logits  [B,V]           FLOAT16, BF16       logitsSelectIdx    [B]    INT64
 *     topK    [B] or [B,1]    INT32               logitsTopKPSelect  [B,V]  FLOAT, written if isNeedLogits, else ignored
 *     topP    [B] or [B,1]    type of logits
 *     q       [B,V]           FLOAT, may be null: no sampling
 * topKGuess is a hint that changes no result; any value is accepted. B at least 1, V from 1 to 2^20.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, eps negative or not finite, overlap; 561002 V
 * above 2^20. Second phase: 161001, 161002 executor or workspace. Every content of the tensors is accepted.
 */
#ifndef SWITCHYARD_ACLNN_TOP_K_TOP_P_SAMPLE_H
#define SWITCHYARD_ACLNN_TOP_K_TOP_P_SAMPLE_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnTopKTopPSampleGetWorkspaceSize(const aclTensor *logits, const aclTensor *topK,
                                                          const aclTensor *topP, const aclTensor *q,
                                                          double eps, bool isNeedLogits, int64_t topKGuess,
                                                          const aclTensor *logitsSelectIdx,
                                                          const aclTensor *logitsTopKPSelect,
                                                          uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnTopKTopPSample(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                          aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_TOP_K_TOP_P_SAMPLE_H */
