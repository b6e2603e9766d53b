/*
 * Copies token rows to one row for each expert they choose, in the stable order of the experts: sy_moe_permute_ids. T tokens
 * of H elements and K choices; E = expertNumOptional, C = expertCapacityOptional.
 *     x          [T,H]  FLOAT, FLOAT16, BF16, INT8    expandedXOut       [M,H]  type of x
 *     expertIdx  [T,K]  INT32                         expandedRowIdxOut  [T*K]  INT32: the row of each choice
 * dropPadModeOptional 0: M = T*K, or activeNumOptional where that is positive and less. E of 0: experts may be any numbers.
 *     expertTokensCountOrCumsumOutOptional  [E] INT32: with flag 1 the end of each expert's rows, with 2 their number
 * dropPadModeOptional 1: expandedXOut is [E,C,H], the first C choices of each expert and zero rows; the row of a choice that
 * is dropped is -1.
 *     expertTokensBeforeCapacityOutOptional [E] INT32, with its flag: choices of each expert
 * An output that is not requested is ignored.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, values, limits, overlap. Second phase: 161001, 161002
 * executor or workspace; 161002 an expert outside 0..E-1. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_MOE_INIT_ROUTING_V2_H
#define SWITCHYARD_ACLNN_MOE_INIT_ROUTING_V2_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeInitRoutingV2GetWorkspaceSize(
    const aclTensor *x, const aclTensor *expertIdx, int64_t activeNumOptional, int64_t expertCapacityOptional,
    int64_t expertNumOptional, int64_t dropPadModeOptional, int64_t expertTokensCountOrCumsumFlagOptional,
    bool expertTokensBeforeCapacityFlagOptional, const aclTensor *expandedXOut,
    const aclTensor *expandedRowIdxOut, const aclTensor *expertTokensCountOrCumsumOutOptional,
    const aclTensor *expertTokensBeforeCapacityOutOptional, uint64_t *workspaceSize,
    aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeInitRoutingV2(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                            aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_INIT_ROUTING_V2_H */
