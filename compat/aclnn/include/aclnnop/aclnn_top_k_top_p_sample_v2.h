/*
 * aclnnTopKTopPSample with FLOAT logits too, min-p after top-p, probabilities instead of logits, and the list of
 * candidates as a result: sy_sample with k_limit = the smaller of 1024 and ksMax rounded up to a multiple of 8.
 *     minPs  [B] or [B,1]  type of logits, may be null    logitsIdx         [B,V]  INT64  \ written if
 *                                                         logitsSortMasked  [B,V]  FLOAT  / isNeedSampleResult
 * With isNeedSampleResult q must be null, and logitsSelectIdx is ignored. inputIsLogits false: no softmax, and
 * filtered tokens are 0 in logitsTopKPSelect instead of -inf. FLOAT logits may be logitsTopKPSelect themselves.
 *
 * First phase: as aclnnTopKTopPSample; 161002 ksMax below 1; 561002 q that is no matrix, or with isNeedSampleResult.
 */
#ifndef SWITCHYARD_ACLNN_TOP_K_TOP_P_SAMPLE_V2_H
#define SWITCHYARD_ACLNN_TOP_K_TOP_P_SAMPLE_V2_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnTopKTopPSampleV2GetWorkspaceSize(
    const aclTensor *logits, const aclTensor *topK, const aclTensor *topP, const aclTensor *q,
    const aclTensor *minPs, double eps, bool isNeedLogits, int64_t topKGuess, int64_t ksMax,
    bool inputIsLogits, bool isNeedSampleResult, const aclTensor *logitsSelectIdx,
    const aclTensor *logitsTopKPSelect, const aclTensor *logitsIdx, const aclTensor *logitsSortMasked,
    uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnTopKTopPSampleV2(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                            aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_TOP_K_TOP_P_SAMPLE_V2_H */
