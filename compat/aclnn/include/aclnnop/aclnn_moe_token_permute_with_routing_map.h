/*
 * Token rows copied to their experts: sy_moe_permute. T tokens, E experts, H elements per row.
 *     tokens            [T,H]  FLOAT, FLOAT16, BF16         permuteTokensOut         [M,H]  type of tokens
 *     routingMap        [T,E]  INT8, BOOL                   permuteProbsOutOptional  [M]    type of probs
 *     probsOptional     [T,E]  type of tokens, or FLOAT     sortedIndicesOut         [M]    INT32
 *                              with BF16 tokens
 * dropAndPad false: K = numOutTokens / T slots per token, M = K*T; true: C = numOutTokens / E rows per expert, M = C*E.
 * T, E and K*T below 16777215, K at most 512.
 *
 * First phase: 161001 something required is null, or only one of the two probs; 161002 types, shapes, numOutTokens
 * outside 0..T*E, limits, overlap; 561103 K above 512. Second phase: 161001, 161002 executor or workspace; 161002 a
 * token routed to more than K experts. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_WITH_ROUTING_MAP_H
#define SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_WITH_ROUTING_MAP_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeTokenPermuteWithRoutingMapGetWorkspaceSize(
    const aclTensor *tokens, const aclTensor *routingMap, const aclTensor *probsOptional,
    int64_t numOutTokens, bool dropAndPad, aclTensor *permuteTokensOut, aclTensor *permuteProbsOutOptional,
    aclTensor *sortedIndicesOut, uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeTokenPermuteWithRoutingMap(void *workspace, uint64_t workspaceSize,
                                                         aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_TOKEN_PERMUTE_WITH_ROUTING_MAP_H */
