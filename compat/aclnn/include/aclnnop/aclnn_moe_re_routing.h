/*
 * Rows by rank and expert to rows by expert and rank: sy_moe_reorder_chunks. A rows of H elements, R ranks, E experts.
 *     tokens                 [A,H]  FLOAT, FLOAT16, BF16, INT8   permuteTokens          [A,H]  type of tokens
 *     expertTokenNumPerRank  [R,E]  INT32, INT64                 permutePerTokenScales  [A]    type of the scales
 *     perTokenScalesOptional [A]    FLOAT                        permuteTokenIdx        [A]    INT32: where each row came from
 *                                                                expertTokenNum         [E]    type of expertTokenNumPerRank
 * The sum of expertTokenNumPerRank must be A. expertTokenNumType must be 1, counts, and idxType 0. permutePerTokenScales is
 * ignored without scales.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, values, overlap. Second phase: 161001, 161002 executor or
 * workspace; 161002 counts that are negative or not A together. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_MOE_RE_ROUTING_H
#define SWITCHYARD_ACLNN_MOE_RE_ROUTING_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeReRoutingGetWorkspaceSize(
    const aclTensor *tokens, const aclTensor *expertTokenNumPerRank, const aclTensor *perTokenScalesOptional,
    int64_t expertTokenNumType, int64_t idxType, const aclTensor *permuteTokens,
    const aclTensor *permutePerTokenScales, const aclTensor *permuteTokenIdx, const aclTensor *expertTokenNum,
    uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeReRouting(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                        aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_RE_ROUTING_H */
