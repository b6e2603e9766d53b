/*
 * Gradients of permuted rows and probs from that of the tokens: sy_moe_unpermute_grad. M rows, T tokens, E experts.
 *     unpermutedTokensGrad    [T,H]  FLOAT, FLOAT16, BF16     permutedTokensGradOut  [M,H]  the same type
 *     outIndex                [M]    INT32                    probsGradOutOptional   [T,E]  type of probs
 *     permuteTokenId          [M]    INT32
 *     routingMapOptional      [T,E]  INT8, BOOL
 *     permutedTokensOptional  [M,H]  type of unpermutedTokensGrad
 *     probsOptional           [T,E]  the same type, or FLOAT with BF16; needs the two before it
 * Packed, an expert of weight 0 needs no row: its slot may be -1.
 * outIndex and permuteTokenId are those of the forward call. In packed mode the values of permuteTokenId are
 * ignored. restoreShapeOptional is ignored: T and H are known. Without probs the last output is not written.
 *
 * First phase: 161001 something required is null; 561002 probs without map or permutedTokens; 161002 types, shapes,
 * limits, overlap; 561103 more than 512 slots per token. Second phase: 161001, 161002 executor or workspace; 161002
 * wrong indices, or a map that does not fit them. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_WITH_ROUTING_MAP_GRAD_H
#define SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_WITH_ROUTING_MAP_GRAD_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeTokenUnpermuteWithRoutingMapGradGetWorkspaceSize(
    const aclTensor *unpermutedTokensGrad, const aclTensor *outIndex, const aclTensor *permuteTokenId,
    const aclTensor *routingMapOptional, const aclTensor *permutedTokensOptional,
    const aclTensor *probsOptional, bool dropAndPad, const aclIntArray *restoreShapeOptional,
    const aclTensor *permutedTokensGradOut, const aclTensor *probsGradOutOptional, uint64_t *workspaceSize,
    aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeTokenUnpermuteWithRoutingMapGrad(void *workspace, uint64_t workspaceSize,
                                                               aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_TOKEN_UNPERMUTE_WITH_ROUTING_MAP_GRAD_H */
