/*
 * The operators of this library, which the headers of the vendor's names include. Each has two functions.
 * aclnn...GetWorkspaceSize, the first phase, validates the arguments without reading data, and returns an executor and
 * the bytes of the workspace. The second does the work and consumes the executor. A rejected call writes nothing.
 *
 * First phase:  161001 something required is null; 161002 types, ranks, shapes, values, limits, overlap.
 * Second phase: 161001, 161002 executor or workspace; 161002 contents, which are named below. Without that line every content is
 *               accepted.
 * Other statuses are named too. "floats" are FLOAT, FLOAT16 and BF16; "same" is the type of the first tensor, "same,
 * FLOAT" that or FLOAT beside BF16. T tokens of H elements, E experts, K slots or choices of a token, M rows. The
 * limits of the operators by a map or by expert numbers: T, E and packed rows below 16777215; K at most 512, else
 * 561103.
 */
#ifndef SWITCHYARD_ACLNN_OPERATORS_H
#define SWITCHYARD_ACLNN_OPERATORS_H

#include "aclnn/aclnn_base.h"
#include "aclnn_util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The declarations of both functions, of which the first has these parameters before the two results. */
#define SWITCHYARD_ACLNN_OPERATOR(name, ...) \
    aclnnStatus name##GetWorkspaceSize(__VA_ARGS__, uint64_t *workspaceSize, aclOpExecutor **executor); \
    aclnnStatus name(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream)

/* ---- By a routing map ---- */

/*
 * Token rows copied to their experts: sy_moe_permute.
 *     tokens         [T,H]  floats          permuteTokensOut         [M,H]  same
 *     routingMap     [T,E]  INT8, BOOL      permuteProbsOutOptional  [M]    type of probs; both or none
 *     probsOptional  [T,E]  same, FLOAT     sortedIndicesOut         [M]    INT32
 * dropAndPad false: K = numOutTokens / T slots per token, M = K*T; true: C = numOutTokens / E rows per expert, M = C*E.
 * numOutTokens is 0 to T*E. Contents: a token routed to more than K experts.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeTokenPermuteWithRoutingMap, const aclTensor *tokens,
                          const aclTensor *routingMap, const aclTensor *probsOptional, int64_t numOutTokens,
                          bool dropAndPad, aclTensor *permuteTokensOut, aclTensor *permuteProbsOutOptional,
                          aclTensor *sortedIndicesOut);

/*
 * Gradients of tokens and probs from those of the permuted rows: sy_moe_permute_grad. T = tokensNum, E = numExperts,
 * which are checked first: 161002 below 1.
 *     permutedTokenOutputGrad          [M,H]  floats          tokensGradOut         [T,H]  same
 *     permutedProbsOutputGradOptional  [M]    same, FLOAT     probsGradOutOptional  [T,E]  type of the gradient before it
 *     sortedIndices                    [M]    INT32
 *     routingMapOptional               [T,E]  INT8, BOOL; needed by permutedProbsOutputGradOptional
 * Without permutedProbsOutputGradOptional the last output is not written, nor where H is 0; its shape is then not
 * checked. 561103: an output of another shape. Contents: wrong indices, or a map that does not fit them.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeTokenPermuteWithRoutingMapGrad, const aclTensor *permutedTokenOutputGrad,
                          const aclTensor *permutedProbsOutputGradOptional, const aclTensor *sortedIndices,
                          const aclTensor *routingMapOptional, int64_t numExperts, int64_t tokensNum,
                          bool dropAndPad, aclTensor *tokensGradOut, aclTensor *probsGradOutOptional);

/*
 * Returns permuted rows to their tokens, weighted and added up: sy_moe_unpermute.
 *     permutedTokens      [M,H]  floats          unpermutedTokens  [T,H]  same
 *     sortedIndices       [M]    INT32           outIndex          [M]    INT32, may be null
 *     routingMapOptional  [T,E]  INT8, BOOL      permuteTokenId    [M]    INT32, may be null
 *     probsOptional       [T,E]  same, FLOAT     permuteProbs      [M]    type of probs, may be null; not written without probs
 * Packed probs need the map; an expert of weight 0 needs no row: its slot may be -1. T is that of probs, else the first
 * number of restoreShapeOptional, which is {T, H}; one of the two is required. The last three outputs hold:
 *     packed    outIndex = sortedIndices; permuteTokenId[i] = i / K; permuteProbs in the order of the slots
 *     padded    permuteTokenId = sortedIndices in stable ascending order, outIndex where each came from; permuteProbs in
 *               the order of the rows
 * Contents: wrong indices, or a map that does not fit them.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeTokenUnpermuteWithRoutingMap, const aclTensor *permutedTokens,
                          const aclTensor *sortedIndices, const aclTensor *routingMapOptional,
                          const aclTensor *probsOptional, bool paddedMode,
                          const aclIntArray *restoreShapeOptional, aclTensor *unpermutedTokens,
                          aclTensor *outIndex, aclTensor *permuteTokenId, aclTensor *permuteProbs);

/*
 * Gradients of permuted rows and probs from that of the tokens: sy_moe_unpermute_grad.
 *     unpermutedTokensGrad    [T,H]  floats                 permutedTokensGradOut  [M,H]  same
 *     outIndex                [M]    INT32                  probsGradOutOptional   [T,E]  type of probs; not written without
 *     permuteTokenId          [M]    INT32
 *     routingMapOptional      [T,E]  INT8, BOOL
 *     permutedTokensOptional  [M,H]  same
 *     probsOptional           [T,E]  same, FLOAT; needs the two before it, else 561002
 * Packed, an expert of weight 0 needs no row: its slot may be -1.
 * outIndex and permuteTokenId are those of the forward call; packed, the values of permuteTokenId are ignored.
 * restoreShapeOptional is ignored: T and H are known. Contents: wrong indices, or a map that does not fit them.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeTokenUnpermuteWithRoutingMapGrad, const aclTensor *unpermutedTokensGrad,
                          const aclTensor *outIndex, const aclTensor *permuteTokenId,
                          const aclTensor *routingMapOptional, const aclTensor *permutedTokensOptional,
                          const aclTensor *probsOptional, bool dropAndPad,
                          const aclIntArray *restoreShapeOptional, const aclTensor *permutedTokensGradOut,
                          const aclTensor *probsGradOutOptional);

/* ---- By the numbers of experts. paddedMode must be false, restoreShapeOptional is ignored ---- */

/*
 * Copies token rows to one row for each expert they name, in the stable order of the experts: sy_moe_permute_ids. M is
 * T*K if numOutTokens is 0; only the first rows if it is positive, all but the last ones if it is negative.
 *     tokens   [T,H]         floats            permuteTokensOut  [M,H]  same
 *     indices  [T,K] or [T]  INT32, INT64      sortedIndicesOut  [T*K]  INT32
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeTokenPermute, const aclTensor *tokens, const aclTensor *indices,
                          int64_t numOutTokens, bool paddedMode, const aclTensor *permuteTokensOut,
                          const aclTensor *sortedIndicesOut);

/*
 * The gradient of the tokens of aclnnMoeTokenPermute, the sum of their rows: sy_moe_unpermute_ids. K = numTopk, 1 or
 * more.
 *     permutedOutputGrad  [M,H]  floats      out  [T,H]  same
 *     sortedIndices       [T*K]  INT32
 * Contents: an index outside -1..T*K-1.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeTokenPermuteGrad, const aclTensor *permutedOutputGrad,
                          const aclTensor *sortedIndices, int64_t numTopk, bool paddedMode, aclTensor *out);

/*
 * Returns rows to their tokens, weighted and added up: sy_moe_unpermute_ids. Without probs K is 1.
 *     permutedTokens  [M,H]  floats      out  [T,H]  same
 *     sortedIndices   [T*K]  INT32; an index of -1, or of M and more, has no row
 *     probsOptional   [T,K]  floats
 * Contents: an index outside -1..T*K-1.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeTokenUnpermute, const aclTensor *permutedTokens,
                          const aclTensor *sortedIndices, const aclTensor *probsOptional, bool paddedMode,
                          const aclIntArray *restoreShapeOptional, const aclTensor *out);

/*
 * Gradients of the rows and weights of aclnnMoeTokenUnpermute: sy_moe_dispatch for every choice, and
 * sy_moe_dispatch_grad_gate. A row that no index names, and one of weight 0, is +0.
 *     permutedTokens        [M,H]  floats; may be null without probs: then M = T*K
 *     unpermutedTokensGrad  [T,H]  same             permutedTokensGradOut  [M,H]  same
 *     sortedIndices         [T*K]  INT32            probsGradOut           [T,K]  type of probs; ignored without probs
 *     probsOptional         [T,K]  same, FLOAT
 * Contents: an index outside -1..T*K-1, or a second time. One that names no row is left out.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeTokenUnpermuteGrad, const aclTensor *permutedTokens,
                          const aclTensor *unpermutedTokensGrad, const aclTensor *sortedIndices,
                          const aclTensor *probsOptional, bool paddedMode,
                          const aclIntArray *restoreShapeOptional, aclTensor *permutedTokensGradOut,
                          aclTensor *probsGradOut);

/* ---- From logits to the rows of experts ---- */

/*
 * Chooses k experts for each row by score and bias, in groups, and computes their weights: sy_moe_route. T rows.
 *     x             [T,E]  floats      yOut          [T,k]  same
 *     biasOptional  [E]    floats      expertIdxOut  [T,k]  INT32
 *                                      outOut        [T,E]  FLOAT: all scores; ignored without outFlag
 * normType 0 is the softmax; 1 the sigmoid, with weights divided by their sum + eps. groupSelectMode 0 is the largest
 * score of a group, 1 the sum of its two largest. renorm must be 0. 561002: shapes and values.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeGatingTopK, const aclTensor *x, const aclTensor *biasOptional, int64_t k,
                          int64_t kGroup, int64_t groupCount, int64_t groupSelectMode, int64_t renorm,
                          int64_t normType, bool outFlag, double routedScalingFactor, double eps,
                          const aclTensor *yOut, const aclTensor *expertIdxOut, const aclTensor *outOut);

/*
 * Chooses the k experts of the largest logits of each row: sy_moe_route. T rows.
 *     x                 [T,E]  floats      yOut          [T,k]  same
 *     finishedOptional  [T]    BOOL        expertIdxOut  [T,k]  INT32; E for a finished row, which has the weights of its logits
 *     softmaxResultOutOptional  [T,E]  FLOAT: all scores; ignored unless outputSoftmaxResultFlag and renorm 0
 * renorm 0: weights are those of the softmax over all experts; 1: the softmax of the chosen logits. 561002: shapes and
 * values.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeGatingTopKSoftmaxV2, const aclTensor *x, const aclTensor *finishedOptional,
                          int64_t k, int64_t renorm, bool outputSoftmaxResultFlag, const aclTensor *yOut,
                          const aclTensor *expertIdxOut, const aclTensor *softmaxResultOutOptional);

/*
 * Copies token rows to one row for each expert they choose, in the stable order of the experts: sy_moe_permute_ids.
 * E = expertNumOptional, below 16777215, C = expertCapacityOptional.
 *     x          [T,H]  floats, INT8      expandedXOut       [M,H]  same
 *     expertIdx  [T,K]  INT32             expandedRowIdxOut  [T*K]  INT32: the row of each choice
 * dropPadModeOptional 0: M = T*K, or activeNumOptional where that is positive and less. E of 0: experts may be any
 * numbers.
 *     expertTokensCountOrCumsumOutOptional  [E] INT32: with flag 1 the end of each expert's rows, with 2 their number
 * dropPadModeOptional 1: expandedXOut is [E,C,H], the first C choices of each expert and zero rows; the row of a choice
 * that is dropped is -1.
 *     expertTokensBeforeCapacityOutOptional [E] INT32, with its flag: choices of each expert
 * An output that is not requested is ignored. Contents: an expert outside 0..E-1.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeInitRoutingV2, const aclTensor *x, const aclTensor *expertIdx,
                          int64_t activeNumOptional, int64_t expertCapacityOptional,
                          int64_t expertNumOptional, int64_t dropPadModeOptional,
                          int64_t expertTokensCountOrCumsumFlagOptional,
                          bool expertTokensBeforeCapacityFlagOptional, const aclTensor *expandedXOut,
                          const aclTensor *expandedRowIdxOut,
                          const aclTensor *expertTokensCountOrCumsumOutOptional,
                          const aclTensor *expertTokensBeforeCapacityOutOptional);

/*
 * aclnnMoeInitRoutingV2 for a range of the experts, without quantisation: the rows of the choices with an expert in the
 * range come first, by expert; the rows after them are zero.
 *     x              [T,H]  floats, INT8              expandedXOut       [T*K,H]  same
 *     expertIdx      [T,K]  INT32, 0 to expertNum-1   expandedRowIdxOut  [T*K]    INT32
 *     scaleOptional  [T]    FLOAT                     expandedScaleOut   [T*K]    FLOAT; written with scaleOptional
 *     expertTokensCountOrCumsumOut  INT64: expertTokensNumType 1: [experts of the range], their choices; 2: [expertNum,2], pairs of
 *                          expert and choices for those that have any, then zeros
 *     activeExpertRangeOptional     first and end; null: all experts
 * rowIdxType 0: expandedRowIdxOut is the row of each choice, -1 for other experts; 1: the choice of each row, then -1.
 * activeNum is T*K, dropPadMode 0, expertTokensNumFlag true, quantMode -1; offsetOptional and expertCapacity are
 * ignored. 561002: other numbers, and quantMode 0 and 1, which are not supported. Contents: an expert that does not
 * exist.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeInitRoutingV3, const aclTensor *x, const aclTensor *expertIdx,
                          const aclTensor *scaleOptional, const aclTensor *offsetOptional, int64_t activeNum,
                          int64_t expertCapacity, int64_t expertNum, int64_t dropPadMode,
                          int64_t expertTokensNumType, bool expertTokensNumFlag, int64_t quantMode,
                          const aclIntArray *activeExpertRangeOptional, int64_t rowIdxType,
                          const aclTensor *expandedXOut, const aclTensor *expandedRowIdxOut,
                          const aclTensor *expertTokensCountOrCumsumOut, const aclTensor *expandedScaleOut);

/*
 * out = x1 + x2 + the sum over a token's choices of scale * (row + bias of its expert): sy_moe_unpermute_ids. The sums
 * are f32, in this order, and rounded once at the end; so is row + bias. A scale of exactly 0 adds nothing. K is 1
 * without scales.
 *     expandedX         [M,H], dropPadMode 1 and 3 [E,C,H]  floats     out  [T,H]  same
 *     expandedRowIdx    [T*K]  INT32: rows of the first choice of all tokens, then of the second; dropPadMode 2 and 3: of all
 *                       choices of the first token, then of the second. -1 is a row of zeros, to which the bias is added
 *     x1Optional, x2Optional  [T,H]  same
 *     biasOptional      [E,H]  same; needs expertIdxOptional
 *     scalesOptional    [T,K]  floats
 *     expertIdxOptional [T,K]  INT32, -1 for no bias; ignored without bias
 * Contents: a row or an expert that does not exist.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeFinalizeRoutingV2, const aclTensor *expandedX,
                          const aclTensor *expandedRowIdx, const aclTensor *x1Optional,
                          const aclTensor *x2Optional, const aclTensor *biasOptional,
                          const aclTensor *scalesOptional, const aclTensor *expertIdxOptional,
                          int64_t dropPadMode, const aclTensor *out);

/*
 * The end of each expert's rows in a sorted list of experts: sy_moe_permute_ids. E = numExperts, 1 to 16777214.
 *     sortedExperts  [N]  INT32, 0 to E; E is no expert      out  [E]  INT32: entries of experts 0 to i
 * Contents: an expert outside.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeComputeExpertTokens, const aclTensor *sortedExperts, int64_t numExperts,
                          const aclTensor *out);

/*
 * Rows by rank and expert to rows by expert and rank: sy_moe_reorder_chunks. A rows, R ranks.
 *     tokens                 [A,H]  floats, INT8     permuteTokens          [A,H]  same
 *     expertTokenNumPerRank  [R,E]  INT32, INT64     permutePerTokenScales  [A]    type of the scales; ignored without them
 *     perTokenScalesOptional [A]    FLOAT            permuteTokenIdx        [A]    INT32: where each row came from
 *                                                    expertTokenNum         [E]    type of expertTokenNumPerRank
 * expertTokenNumType must be 1, counts, and idxType 0. Contents: counts that are negative or not A together.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnMoeReRouting, const aclTensor *tokens, const aclTensor *expertTokenNumPerRank,
                          const aclTensor *perTokenScalesOptional, int64_t expertTokenNumType,
                          int64_t idxType, const aclTensor *permuteTokens,
                          const aclTensor *permutePerTokenScales, const aclTensor *permuteTokenIdx,
                          const aclTensor *expertTokenNum);

/* ---- Paged caches: N blocks of S tokens, H heads; D and V elements of a key's and a value's head. Compact tensors -- */

/*
 * Writes the keys and values of tokens to their slots of two paged caches: sy_kv_scatter.
 *     key          [T,H,D]  floats, integers up to 32 bits     keyCacheRef    "Norm" [N,S,H,D]
 *     value        [T,H,V]  same                                              "PA_NZ" [N,H*D/L,S,L]
 *     slotMapping  [T]      INT32, INT64; -1: no slot          valueCacheRef  the same with V
 * cacheModeOptional is "Norm", also null or "", or "PA_NZ". Not supported, and rejected unless null or the default:
 * compressLensOptional, compressSeqOffsetOptional, seqLensOptional, scatterModeOptional other than "None", strides
 * other than 1, offsets other than 0. Contents: a slot that does not exist.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnScatterPaKvCache, const aclTensor *key, aclTensor *keyCacheRef,
                          const aclTensor *slotMapping, const aclTensor *value, aclTensor *valueCacheRef,
                          const aclTensor *compressLensOptional, const aclTensor *compressSeqOffsetOptional,
                          const aclTensor *seqLensOptional, char *cacheModeOptional,
                          char *scatterModeOptional, const aclIntArray *stridesOptional,
                          const aclIntArray *offsetsOptional);

/*
 * Copies the keys and values of B sequences from two such caches to consecutive rows: sy_kv_ragged. T is the sum of the
 * lengths, or more: rows after the last keep their bytes.
 *     keyCache, valueCache  as above         keyRef    [T,H,D]  same
 *     blockTables  [B,n]  INT32, INT64       valueRef  [T,H,V]  same
 *     seqLens      [B], with isSeqLensCumsum [B+1]  INT32, INT64
 *     seqOffsetOptional  [B]  INT32, INT64: the sequence begins with the block of this token; null: 0
 * Contents: lengths, offsets or blocks that do not fit.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnGatherPaKvCache, const aclTensor *keyCache, const aclTensor *valueCache,
                          const aclTensor *blockTables, const aclTensor *seqLens, aclTensor *keyRef,
                          aclTensor *valueRef, const aclTensor *seqOffsetOptional, char *cacheMode,
                          bool isSeqLensCumsum);

/* ---- Filters and samples: B rows of V logits, by sy_sample ---- */

/*
 * Logits outside of top-k and top-p become -inf.
 *     logits  [B,V]  floats                       out  [B,V]  same; may be logits itself
 *     p       [B]    same, may be null: no top-p
 *     k       [B]    INT32, may be null: no top-k; 0 and less, and V and more: all
 * p and k are not both null. All logits that are equal to the k-th stay, and all that are equal to the last of the
 * shortest list that reaches p.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnApplyTopKTopP, const aclTensor *logits, const aclTensor *p, const aclTensor *k,
                          aclTensor *out);

/*
 * One token per row of logits: top-k, top-p, then the largest probability, or the largest prob / (|q| + eps). k_limit
 * is 1024.
 *     logits  [B,V]           FLOAT16, BF16       logitsSelectIdx    [B]    INT64
 *     topK    [B] or [B,1]    INT32               logitsTopKPSelect  [B,V]  FLOAT, written if isNeedLogits, else ignored
 *     topP    [B] or [B,1]    same
 *     q       [B,V]           FLOAT, may be null: no sampling
 * topKGuess is a hint that changes no result; any value is accepted. eps is 0 or more and finite. B at least 1, V from
 * 1 to 2^20: 561002 above.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnTopKTopPSample, const aclTensor *logits, const aclTensor *topK,
                          const aclTensor *topP, const aclTensor *q, double eps, bool isNeedLogits,
                          int64_t topKGuess, const aclTensor *logitsSelectIdx,
                          const aclTensor *logitsTopKPSelect);

/*
 * aclnnTopKTopPSample with FLOAT logits too, min-p after top-p, probabilities instead of logits, and the list of
 * candidates as a result. k_limit is the smaller of 1024 and ksMax, 1 or more, rounded up to a multiple of 8.
 *     minPs  [B] or [B,1]  same, may be null      logitsIdx         [B,V]  INT64  \ written if
 *                                                 logitsSortMasked  [B,V]  FLOAT  / isNeedSampleResult
 * With isNeedSampleResult q must be null, and logitsSelectIdx is ignored. inputIsLogits false: no softmax, and
 * filtered tokens are 0 in logitsTopKPSelect instead of -inf. FLOAT logits may be logitsTopKPSelect themselves.
 * 561002: q that is no matrix, or with isNeedSampleResult.
 */
SWITCHYARD_ACLNN_OPERATOR(aclnnTopKTopPSampleV2, const aclTensor *logits, const aclTensor *topK,
                          const aclTensor *topP, const aclTensor *q, const aclTensor *minPs, double eps,
                          bool isNeedLogits, int64_t topKGuess, int64_t ksMax, bool inputIsLogits,
                          bool isNeedSampleResult, const aclTensor *logitsSelectIdx,
                          const aclTensor *logitsTopKPSelect, const aclTensor *logitsIdx,
                          const aclTensor *logitsSortMasked);

#ifdef __cplusplus
}
#endif

#endif /* SWITCHYARD_ACLNN_OPERATORS_H */
