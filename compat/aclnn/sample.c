/* aclnnTopKTopPSample and aclnnTopKTopPSampleV2: sy_sample, with q by list and the vendor's limit of k. */
#include "internal.h"

#include <float.h>

enum { LOGITS, TOP_K, TOP_P, Q, MIN_P, TOKEN, MASKED, LIST_TOKEN, LIST_PROB, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(sample, field)

static const struct syi_aclnn_op op_v1 = {"aclnnTopKTopPSample", SYI_ACLNN_CALLS(sample), .on_device = true,
                                          .in_place = {MASKED, LOGITS}};
static const struct syi_aclnn_op op_v2 = {"aclnnTopKTopPSampleV2", SYI_ACLNN_CALLS(sample), .on_device = true,
                                          .in_place = {MASKED, LOGITS}};

static void check_shapes(aclOpExecutor *e)
{
    const int64_t batch = e->view[LOGITS].shape[0], vocab = e->view[LOGITS].shape[1], most = 1 << 20;
    if (batch == 0 || vocab == 0)
        SYI_ACLNN_INVALID(e, "logits has shape [%lld,%lld], want one row and one token at least",
                          (long long)batch, (long long)vocab);
    for (int i = TOP_K; i < N_TENSORS; i++)
        syi_aclnn_check_shape(e, i, batch, e->view[i].rank == 1 ? -1 : vocab);
    if (vocab > most)
        syi_aclnn_reject(e, ACLNN_ERR_INNER_TILING_ERROR, "logits has %lld tokens per row, want at most %lld",
                         (long long)vocab, (long long)most);
}

/* V1 has no tensors for minPs and the lists, and takes no FLOAT logits. */
static aclnnStatus first_phase(const struct syi_aclnn_op *op, const aclTensor *logits, const aclTensor *topK,
                               const aclTensor *topP, const aclTensor *q, const aclTensor *minPs, double eps,
                               bool isNeedLogits, int64_t topKGuess, int64_t ksMax, bool inputIsLogits,
                               bool isNeedSampleResult, const aclTensor *logitsSelectIdx,
                               const aclTensor *logitsTopKPSelect, const aclTensor *logitsIdx,
                               const aclTensor *logitsSortMasked, uint64_t *workspaceSize,
                               aclOpExecutor **executor)
{
    const int64_t k_most = 1024;
    const unsigned out = SYI_ACLNN_OUTPUT, optional = SYI_ACLNN_OPTIONAL, vector = SYI_ACLNN_VECTOR;
    const unsigned row = vector | SYI_ACLNN_ANY_STRIDE;
    const unsigned token = out | vector | (isNeedSampleResult ? SYI_ACLNN_IGNORED : 0u);
    const unsigned masked = out | (isNeedLogits ? 0u : SYI_ACLNN_IGNORED);
    const unsigned lists = out | (isNeedSampleResult ? 0u : SYI_ACLNN_IGNORED);
    const unsigned f32 = SYI_ACLNN_F32, i64 = SYI_ACLNN_BIT(ACL_INT64);
    const unsigned floats = op == &op_v2 ? SYI_ACLNN_FLOATS : SYI_ACLNN_FLOATS & ~f32;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {SYI_NAMED(logits), 0, floats, 0, 2, TO(logits)},
        [TOP_K] = {SYI_NAMED(topK), row, SYI_ACLNN_I32, 0, 1, TO(top_k)},
        [TOP_P] = {SYI_NAMED(topP), row, 0, LOGITS + 1, 1, TO(top_p)},
        [Q] = {SYI_NAMED(q), optional, f32, 0, 2, TO(q)},
        [MIN_P] = {SYI_NAMED(minPs), row | optional, 0, LOGITS + 1, 1, TO(min_p)},
        [TOKEN] = {SYI_NAMED(logitsSelectIdx), token, i64, 0, 1, TO(token)},
        [MASKED] = {SYI_NAMED(logitsTopKPSelect), masked, f32, 0, 2, TO(masked_logits)},
        [LIST_TOKEN] = {SYI_NAMED(logitsIdx), lists, i64, 0, 2, TO(list_token)},
        [LIST_PROB] = {SYI_NAMED(logitsSortMasked), lists, f32, 0, 2, TO(list_prob)},
    };
    aclOpExecutor *e = syi_aclnn_begin(op, rules, N_TENSORS, workspaceSize, executor);
    syi_aclnn_check_types(e, rules);
    if (op == &op_v2 && q != NULL && q->rank != 2)
        syi_aclnn_reject(e, ACLNN_ERR_INNER_TILING_ERROR, "q has rank %llu, want 2",
                         (unsigned long long)q->rank);
    if (!syi_aclnn_check_ranks(e, rules))
        return syi_aclnn_end(e);
    check_shapes(e);
    if (!(eps >= 0 && eps <= FLT_MAX)) /* NaN too */
        SYI_ACLNN_INVALID(e, "eps is %g, want a float of 0 or more", eps);
    syi_aclnn_want(e, ksMax > 0, ACLNN_ERR_PARAM_INVALID, "ksMax", ksMax, "1 or more");
    if (isNeedSampleResult && q != NULL)
        syi_aclnn_reject(e, ACLNN_ERR_INNER_TILING_ERROR,
                         "q is given beside isNeedSampleResult, want it to be null");
    sy_sample_args *args = &e->args.sample;
    args->eps = (float)eps;
    args->noise = q != NULL ? SY_NOISE_Q : SY_NOISE_NONE;
    args->q_order = SY_Q_LIST;
    args->empty_token = SY_EMPTY_ZERO;
    args->k_limit = ksMax < k_most ? (ksMax + 7) / 8 * 8 : k_most;
    args->top_k_guess = topKGuess;
    args->probs_in = !inputIsLogits;
    (void)syi_aclnn_query(e);
    return syi_aclnn_end(e);
}

SYI_ACLNN_OPERATOR(aclnnTopKTopPSample, op_v1, const aclTensor *logits, const aclTensor *topK,
                   const aclTensor *topP, const aclTensor *q, double eps, bool isNeedLogits,
                   int64_t topKGuess, const aclTensor *logitsSelectIdx, const aclTensor *logitsTopKPSelect)
{
    return first_phase(&op_v1, logits, topK, topP, q, NULL, eps, isNeedLogits, topKGuess, 1024, true, false,
                       logitsSelectIdx, logitsTopKPSelect, NULL, NULL, workspaceSize, executor);
}

SYI_ACLNN_OPERATOR(aclnnTopKTopPSampleV2, op_v2, const aclTensor *logits, const aclTensor *topK,
                   const aclTensor *topP, const aclTensor *q, const aclTensor *minPs, double eps,
                   bool isNeedLogits, int64_t topKGuess, int64_t ksMax, bool inputIsLogits,
                   bool isNeedSampleResult, const aclTensor *logitsSelectIdx,
                   const aclTensor *logitsTopKPSelect, const aclTensor *logitsIdx,
                   const aclTensor *logitsSortMasked)
{
    return first_phase(&op_v2, logits, topK, topP, q, minPs, eps, isNeedLogits, topKGuess, ksMax,
                       inputIsLogits, isNeedSampleResult, logitsSelectIdx, logitsTopKPSelect, logitsIdx,
                       logitsSortMasked, workspaceSize, executor);
}
