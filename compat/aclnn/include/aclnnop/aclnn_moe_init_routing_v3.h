/*
 * aclnnMoeInitRoutingV2 for a range of the experts, without quantisation: sy_moe_permute_ids. T tokens of K choices, H elements; the
 * rows of the choices with an expert in the range come first, by expert; the rows after them are zero.
 *     x                    [T,H]    FLOAT, FLOAT16, BF16, INT8      expandedXOut       [T*K,H]  the same type
 *     expertIdx            [T,K]    INT32, 0 to expertNum-1         expandedRowIdxOut  [T*K]    INT32
 *     scaleOptional        [T]      FLOAT                           expandedScaleOut   [T*K]    FLOAT; written with scaleOptional
 *     expertTokensCountOrCumsumOut  INT64: expertTokensNumType 1: [experts of the range], their choices; 2: [expertNum,2], pairs of
 *                          expert and choices for those that have any, then zeros
 *     activeExpertRangeOptional     first and end; null: all experts
 * rowIdxType 0: expandedRowIdxOut is the row of each choice, -1 for other experts; 1: the choice of each row, then -1.
 * activeNum is T*K, dropPadMode 0, expertTokensNumFlag true, quantMode -1; offsetOptional and expertCapacity are ignored.
 *
 * First phase: 161001 something required is null; 161002 types, ranks, shapes, overlap; 561002 the numbers above, and quantMode 0 and 1,
 * which are not supported. Second phase: 161001, 161002 executor or workspace; 161002 an expert that does not exist. A rejected call
 * writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_MOE_INIT_ROUTING_V3_H
#define SWITCHYARD_ACLNN_MOE_INIT_ROUTING_V3_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnMoeInitRoutingV3GetWorkspaceSize(
    const aclTensor *x, const aclTensor *expertIdx, const aclTensor *scaleOptional,
    const aclTensor *offsetOptional, int64_t activeNum, int64_t expertCapacity, int64_t expertNum,
    int64_t dropPadMode, int64_t expertTokensNumType, bool expertTokensNumFlag, int64_t quantMode,
    const aclIntArray *activeExpertRangeOptional, int64_t rowIdxType, const aclTensor *expandedXOut,
    const aclTensor *expandedRowIdxOut, const aclTensor *expertTokensCountOrCumsumOut,
    const aclTensor *expandedScaleOut, uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnMoeInitRoutingV3(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                            aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_MOE_INIT_ROUTING_V3_H */
