/* aclnnTopKTopPSample and aclnnTopKTopPSampleV2: sy_sample, with q by list and the vendor's limit of k. */
#include "internal.h"

#include <float.h>

enum { LOGITS, TOP_K, TOP_P, Q, MIN_P, TOKEN, MASKED, LIST_TOKEN, LIST_PROB, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(sample, field)

/* The options of both versions, with the names of V2. */
struct request {
    bool v2;
    double eps;
    int64_t top_k_guess, ks_max;
    bool masked, input_is_logits, lists;
};

static const struct syi_aclnn_op op_v1 = {"aclnnTopKTopPSample", SYI_ACLNN_CALLS(sample), .on_device = true,
                                          .in_place = {MASKED, LOGITS}};
static const struct syi_aclnn_op op_v2 = {"aclnnTopKTopPSampleV2", SYI_ACLNN_CALLS(sample), .on_device = true,
                                          .in_place = {MASKED, LOGITS}};

static void check_shapes(aclOpExecutor *e)
{
    static const int vectors[] = {TOP_K, TOP_P, MIN_P, TOKEN};
    const int64_t batch = e->view[LOGITS].shape[0], vocab = e->view[LOGITS].shape[1], most = 1 << 20;
    if (batch == 0 || vocab == 0)
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_INVALID,
                         "logits has shape [%lld,%lld], want one row and one token at least",
                         (long long)batch, (long long)vocab);
    for (int i = TOP_K; i < N_TENSORS; i++) {
        bool vector = false;
        for (size_t j = 0; j < sizeof vectors / sizeof *vectors; j++)
            vector = vector || vectors[j] == i;
        syi_aclnn_check_shape(e, i, batch, vector ? -1 : vocab);
    }
    if (vocab > most)
        syi_aclnn_reject(e, ACLNN_ERR_INNER_TILING_ERROR, "logits has %lld tokens per row, want at most %lld",
                         (long long)vocab, (long long)most);
}

static void check_values(aclOpExecutor *e, const struct request *request)
{
    if (!(request->eps >= 0 && request->eps <= FLT_MAX)) /* NaN too */
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_INVALID, "eps is %g, want a float of 0 or more", request->eps);
    syi_aclnn_want(e, request->ks_max > 0, ACLNN_ERR_PARAM_INVALID, "ksMax", request->ks_max, "1 or more");
    if (request->lists && e->view[Q].taken)
        syi_aclnn_reject(e, ACLNN_ERR_INNER_TILING_ERROR,
                         "q is given beside isNeedSampleResult, want it to be null");
}

static void plan(aclOpExecutor *e, const struct request *request)
{
    const int64_t k_most = 1024;
    sy_sample_args *args = &e->args.sample;
    args->eps = (float)request->eps;
    args->noise = e->view[Q].taken ? SY_NOISE_Q : SY_NOISE_NONE;
    args->q_order = SY_Q_LIST;
    args->empty_token = SY_EMPTY_ZERO;
    args->k_limit = request->ks_max < k_most ? (request->ks_max + 7) / 8 * 8 : k_most;
    args->top_k_guess = request->top_k_guess;
    args->probs_in = !request->input_is_logits;
    (void)syi_aclnn_query(e);
}

/* The table both versions fill; V1 has no tensors for the last three and takes no FLOAT logits. */
struct tensors {
    const aclTensor *logits, *top_k, *top_p, *q, *min_p, *token, *masked, *list_token, *list_prob;
};

static aclnnStatus first_phase(const struct syi_aclnn_op *op, const struct tensors *t,
                               const struct request *request, uint64_t *workspace_size,
                               aclOpExecutor **executor)
{
    const unsigned out = SYI_ACLNN_OUTPUT, optional = SYI_ACLNN_OPTIONAL, vector = SYI_ACLNN_VECTOR;
    const unsigned row = vector | SYI_ACLNN_ANY_STRIDE;
    const unsigned token = out | vector | (request->lists ? SYI_ACLNN_IGNORED : 0u);
    const unsigned masked = out | (request->masked ? 0u : SYI_ACLNN_IGNORED);
    const unsigned lists = out | (request->lists ? 0u : SYI_ACLNN_IGNORED);
    const unsigned f32 = SYI_ACLNN_F32, i64 = SYI_ACLNN_BIT(ACL_INT64);
    const unsigned logits = request->v2 ? SYI_ACLNN_FLOATS : SYI_ACLNN_FLOATS & ~f32;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {"logits", t->logits, 0, logits, 0, 2, TO(logits)},
        [TOP_K] = {"topK", t->top_k, row, SYI_ACLNN_I32, 0, 1, TO(top_k)},
        [TOP_P] = {"topP", t->top_p, row, 0, LOGITS + 1, 1, TO(top_p)},
        [Q] = {"q", t->q, optional, f32, 0, 2, TO(q)},
        [MIN_P] = {"minPs", t->min_p, row | optional, 0, LOGITS + 1, 1, TO(min_p)},
        [TOKEN] = {"logitsSelectIdx", t->token, token, i64, 0, 1, TO(token)},
        [MASKED] = {"logitsTopKPSelect", t->masked, masked, f32, 0, 2, TO(masked_logits)},
        [LIST_TOKEN] = {"logitsIdx", t->list_token, lists, i64, 0, 2, TO(list_token)},
        [LIST_PROB] = {"logitsSortMasked", t->list_prob, lists, f32, 0, 2, TO(list_prob)},
    };
    aclOpExecutor *e = syi_aclnn_begin(op, rules, N_TENSORS, workspace_size, executor);
    syi_aclnn_check_types(e, rules);
    if (request->v2 && t->q != NULL && t->q->rank != 2)
        syi_aclnn_reject(e, ACLNN_ERR_INNER_TILING_ERROR, "q has rank %llu, want 2",
                         (unsigned long long)t->q->rank);
    if (!syi_aclnn_check_ranks(e, rules))
        return syi_aclnn_end(e, workspace_size, executor);
    check_shapes(e);
    check_values(e, request);
    plan(e, request);
    return syi_aclnn_end(e, workspace_size, executor);
}

aclnnStatus aclnnTopKTopPSampleGetWorkspaceSize(const aclTensor *logits, const aclTensor *topK,
                                                const aclTensor *topP, const aclTensor *q, double eps,
                                                bool isNeedLogits, int64_t topKGuess,
                                                const aclTensor *logitsSelectIdx,
                                                const aclTensor *logitsTopKPSelect, uint64_t *workspaceSize,
                                                aclOpExecutor **executor)
{
    const struct tensors tensors = {.logits = logits,
                                    .top_k = topK,
                                    .top_p = topP,
                                    .q = q,
                                    .token = logitsSelectIdx,
                                    .masked = logitsTopKPSelect};
    const struct request request = {.eps = eps,
                                    .top_k_guess = topKGuess,
                                    .ks_max = 1024,
                                    .masked = isNeedLogits,
                                    .input_is_logits = true};
    return first_phase(&op_v1, &tensors, &request, workspaceSize, executor);
}

SYI_ACLNN_SECOND_PHASE(aclnnTopKTopPSample, op_v1)

aclnnStatus aclnnTopKTopPSampleV2GetWorkspaceSize(
    const aclTensor *logits, const aclTensor *topK, const aclTensor *topP, const aclTensor *q,
    const aclTensor *minPs, double eps, bool isNeedLogits, int64_t topKGuess, int64_t ksMax,
    bool inputIsLogits, bool isNeedSampleResult, const aclTensor *logitsSelectIdx,
    const aclTensor *logitsTopKPSelect, const aclTensor *logitsIdx, const aclTensor *logitsSortMasked,
    uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const struct tensors tensors = {
        logits, topK, topP, q, minPs, logitsSelectIdx, logitsTopKPSelect, logitsIdx, logitsSortMasked};
    const struct request request = {.v2 = true,
                                    .eps = eps,
                                    .top_k_guess = topKGuess,
                                    .ks_max = ksMax,
                                    .masked = isNeedLogits,
                                    .input_is_logits = inputIsLogits,
                                    .lists = isNeedSampleResult};
    return first_phase(&op_v2, &tensors, &request, workspaceSize, executor);
}

SYI_ACLNN_SECOND_PHASE(aclnnTopKTopPSampleV2, op_v2)
