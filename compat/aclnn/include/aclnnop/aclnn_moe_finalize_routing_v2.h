/*
 * out = x1 + x2 + the sum over a token's choices of scale * (row + bias of its expert): sy_moe_unpermute_ids. The sums are f32, in
 * this order, and rounded once at the end; so is row + bias. A scale of exactly 0 adds nothing. T tokens of K choices, H elements,
 * E experts; K is 1 without scales.
 *     expandedX          [M,H], dropPadMode 1 and 3 [E,C,H]  FLOAT, FLOAT16, BF16     out  [T,H]  the same type
 *     expandedRowIdx     [T*K]  INT32: rows of the first choice of all tokens, then of the second; dropPadMode 2 and 3: of all
 *                        choices of the first token, then of the second. -1 is a row of zeros, to which the bias is added
 *     x1Optional, x2Optional  [T,H]  the same type
 *     biasOptional       [E,H]  the same type; needs expertIdxOptional
 *     scalesOptional     [T,K]  FLOAT, FLOAT16, BF16
 *     expertIdxOptional  [T,K]  INT32, -1 for no bias; ignored without bias
 *
 * First phase: 161001 something required is null; 161002 types, shapes, values, overlap. Second phase: 161001, 161002 executor or
 * workspace; 161002 a row or an expert that does not exist. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_MOE_FINALIZE_ROUTING_V2_H
#define SWITCHYARD_ACLNN_MOE_FINALIZE_ROUTING_V2_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeFinalizeRoutingV2GetWorkspaceSize(
    const aclTensor *expandedX, const aclTensor *expandedRowIdx, const aclTensor *x1Optional,
    const aclTensor *x2Optional, const aclTensor *biasOptional, const aclTensor *scalesOptional,
    const aclTensor *expertIdxOptional, int64_t dropPadMode, const aclTensor *out, uint64_t *workspaceSize,
    aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeFinalizeRoutingV2(void *workspace, uint64_t workspaceSize,
                                                aclOpExecutor *executor, aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_FINALIZE_ROUTING_V2_H */
