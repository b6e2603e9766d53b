/*
 * Copies the keys and values of B sequences from two paged caches to consecutive rows: sy_kv_ragged. Letters and caches
 * as in aclnnScatterPaKvCache; T is the sum of the lengths, or more.
 *     keyCache     [N,S,H,D], "PA_NZ" [N,H*D/L,S,L]      keyRef    [T,H,D]  type of keyCache
 *     valueCache   the same with V                       valueRef  [T,H,V]
 *     blockTables  [B,n]  INT32, INT64                   Rows after the last keep their bytes.
 *     seqLens      [B], with isSeqLensCumsum [B+1]  INT32, INT64
 *     seqOffsetOptional  [B]  INT32, INT64: the sequence begins with the block of this token; null: 0
 * cacheMode is "Norm" (also null or "") or "PA_NZ". Tensors are compact.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, values, overlap. Second phase: 161001, 161002
 * executor or workspace; 161002 lengths, offsets or blocks that do not fit. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_GATHER_PA_KV_CACHE_H
#define SWITCHYARD_ACLNN_GATHER_PA_KV_CACHE_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnGatherPaKvCacheGetWorkspaceSize(
    const aclTensor *keyCache, const aclTensor *valueCache, const aclTensor *blockTables,
    const aclTensor *seqLens, aclTensor *keyRef, aclTensor *valueRef, const aclTensor *seqOffsetOptional,
    char *cacheMode, bool isSeqLensCumsum, uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnGatherPaKvCache(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                           aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_GATHER_PA_KV_CACHE_H */
