/*
 * Writes the keys and values of tokens to their slots of two paged caches: sy_kv_scatter. T tokens, N blocks of S
 * tokens, H heads; D and V elements of a key's and a value's head.
 *     key          [T,H,D]    FLOAT, FLOAT16, BF16, integers up to 32 bits     keyCacheRef    "Norm" [N,S,H,D]
 *     value        [T,H,V]    type of key                                                     "PA_NZ" [N,H*D/L,S,L]
 *     slotMapping  [T]        INT32, INT64; -1 leaves a token out              valueCacheRef  the same with V
 * cacheModeOptional is "Norm", also null or "", or "PA_NZ". Tensors are compact. Not supported, and rejected unless null or
 * the default: compressLensOptional, compressSeqOffsetOptional, seqLensOptional, scatterModeOptional other than "None",
 * strides other than 1, offsets other than 0.
 *
 * First phase: 161001 something required is null; 161002 types, shapes, values, what is not supported, overlap. Second
 * phase: 161001, 161002 executor or workspace; 161002 a slot that does not exist. A rejected call writes nothing.
 */
#ifndef SWITCHYARD_ACLNN_SCATTER_PA_KV_CACHE_H
#define SWITCHYARD_ACLNN_SCATTER_PA_KV_CACHE_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

ACLNN_API aclnnStatus aclnnScatterPaKvCacheGetWorkspaceSize(
    const aclTensor *key, aclTensor *keyCacheRef, const aclTensor *slotMapping, const aclTensor *value,
    aclTensor *valueCacheRef, const aclTensor *compressLensOptional,
    const aclTensor *compressSeqOffsetOptional, const aclTensor *seqLensOptional, char *cacheModeOptional,
    char *scatterModeOptional, const aclIntArray *stridesOptional, const aclIntArray *offsetsOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor);
ACLNN_API aclnnStatus aclnnScatterPaKvCache(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                            aclrtStream stream);

#endif /* SWITCHYARD_ACLNN_SCATTER_PA_KV_CACHE_H */
