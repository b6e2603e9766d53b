/*
 * Returns permuted rows to their tokens, weighted and added up: sy_moe_unpermute. M rows, T tokens, E experts.
 *     permutedTokens      [M,H]  FLOAT, FLOAT16, BF16       unpermutedTokens  [T,H]  type of permutedTokens
 *     sortedIndices       [M]    INT32                      outIndex          [M]    INT32, may be null
 *     routingMapOptional  [T,E]  INT8, BOOL                 permuteTokenId    [M]    INT32, may be null
 *     probsOptional       [T,E]  type of permutedTokens,    permuteProbs      [M]    type of probs, may be null
 *                                or FLOAT with BF16                                  (not written without probs)
 * Packed, an expert of weight 0 needs no row: its slot may be -1.
 * T is that of probs, else the first number of restoreShapeOptional, which is {T, H}. The last three outputs hold:
 *     packed    outIndex = sortedIndices; permuteTokenId[i] = i / K; permuteProbs in the order of the slots
 *     padded    permuteTokenId = sortedIndices in stable ascending order, outIndex where each came from; permuteProbs in
 *               the order of the rows
 *
 * First phase: 161001 something required is null, neither probs nor restoreShape, packed probs without map; 161002
 * types, shapes, limits, overlap; 561103 more than 512 slots per token. Second phase: 161001, 161002 executor or
 * workspace; 161002 wrong indices, or a map that does not fit them. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_WITH_ROUTING_MAP_H
#define SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_WITH_ROUTING_MAP_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeTokenUnpermuteWithRoutingMapGetWorkspaceSize(
    const aclTensor *permutedTokens, const aclTensor *sortedIndices, const aclTensor *routingMapOptional,
    const aclTensor *probsOptional, bool paddedMode, const aclIntArray *restoreShapeOptional,
    aclTensor *unpermutedTokens, aclTensor *outIndex, aclTensor *permuteTokenId, aclTensor *permuteProbs,
    uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeTokenUnpermuteWithRoutingMap(void *workspace, uint64_t workspaceSize,
                                                           aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_WITH_ROUTING_MAP_H */
