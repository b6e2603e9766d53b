/* aclnnTopKTopPSample and aclnnTopKTopPSampleV2: sy_sample, with q by list and the vendor's limit of k. */
#include "internal.h"

#include <float.h>

#include "aclnnop/aclnn_top_k_top_p_sample.h"
#include "aclnnop/aclnn_top_k_top_p_sample_v2.h"

enum { LOGITS, TOP_K, TOP_P, Q, MIN_P, TOKEN, MASKED, LIST_TOKEN, LIST_PROB, N_TENSORS };

/* The options of both versions, with the names of V2. */
struct request {
    bool v2;
    double eps;
    int64_t top_k_guess, ks_max;
    bool masked, input_is_logits, lists;
};

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    (void)extra;
    return syi_aclnn_status(e, sy_sample(e->ctx, &e->args.sample));
}

static const struct syi_aclnn_op op_v1 = {"aclnnTopKTopPSample", run, true};
static const struct syi_aclnn_op op_v2 = {"aclnnTopKTopPSampleV2", run, true};

static aclnnStatus check_shapes(const aclOpExecutor *e)
{
    const int64_t batch = e->view[LOGITS].shape[0], vocab = e->view[LOGITS].shape[1], most = 1 << 20;
    if (batch == 0 || vocab == 0)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                              "%s: logits has shape [%lld,%lld], want one row and one token at least",
                              e->op->name, (long long)batch, (long long)vocab);
    static const struct {
        int tensor;
        bool matrix;
    } shapes[] = {{TOP_K, false}, {TOP_P, false}, {Q, true},          {MIN_P, false},
                  {TOKEN, false}, {MASKED, true}, {LIST_TOKEN, true}, {LIST_PROB, true}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const aclnnStatus st =
            syi_aclnn_check_shape(e, shapes[i].tensor, batch, shapes[i].matrix ? vocab : -1);
        if (st != ACLNN_SUCCESS)
            return st;
    }
    if (vocab > most)
        return syi_aclnn_fail(ACLNN_ERR_INNER_TILING_ERROR,
                              "%s: logits has %lld tokens per row, want at most %lld", e->op->name,
                              (long long)vocab, (long long)most);
    return ACLNN_SUCCESS;
}

static aclnnStatus check_values(const aclOpExecutor *e, const struct request *request)
{
    if (!(request->eps >= 0 && request->eps <= FLT_MAX)) /* NaN too */
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: eps is %g, want a float of 0 or more",
                              e->op->name, request->eps);
    if (request->ks_max <= 0)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: ksMax is %lld, want 1 or more", e->op->name,
                              (long long)request->ks_max);
    if (request->lists && e->view[Q].taken)
        return syi_aclnn_fail(ACLNN_ERR_INNER_TILING_ERROR,
                              "%s: q is given beside isNeedSampleResult, want it to be null", e->op->name);
    return ACLNN_SUCCESS;
}

/* Fills our arguments, after the checks, and runs the query. */
static aclnnStatus fill_args(aclOpExecutor *e, const struct request *request)
{
    sy_query query = {0};
    const int64_t k_most = 1024, ks_max = request->ks_max < k_most ? (request->ks_max + 7) / 8 * 8 : k_most;
    e->args.sample = (sy_sample_args){.logits = syi_aclnn_arg(e, LOGITS),
                                      .top_k = syi_aclnn_arg(e, TOP_K),
                                      .top_p = syi_aclnn_arg(e, TOP_P),
                                      .min_p = syi_aclnn_arg(e, MIN_P),
                                      .q = syi_aclnn_arg(e, Q),
                                      .eps = (float)request->eps,
                                      .noise = e->view[Q].taken ? SY_NOISE_Q : SY_NOISE_NONE,
                                      .q_order = SY_Q_LIST,
                                      .empty_token = SY_EMPTY_ZERO,
                                      .k_limit = ks_max,
                                      .top_k_guess = request->top_k_guess,
                                      .probs_in = !request->input_is_logits,
                                      .token = syi_aclnn_arg(e, TOKEN),
                                      .masked_logits = syi_aclnn_arg(e, MASKED),
                                      .list_token = syi_aclnn_arg(e, LIST_TOKEN),
                                      .list_prob = syi_aclnn_arg(e, LIST_PROB)};
    const aclnnStatus st = syi_aclnn_status(e, sy_sample_query(e->ctx, &e->args.sample, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    return st;
}

static aclnnStatus check(aclOpExecutor *e, const struct syi_aclnn_rule *rules, const struct request *request)
{
    aclnnStatus st = syi_aclnn_check_null(e, rules, N_TENSORS);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(e, rules);
    if (st == ACLNN_SUCCESS && request->v2 && e->view[Q].taken && e->view[Q].rank != 2)
        st = syi_aclnn_fail(ACLNN_ERR_INNER_TILING_ERROR, "%s: q has rank %llu, want 2", e->op->name,
                            (unsigned long long)e->view[Q].rank);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_ranks(e, rules);
    if (st == ACLNN_SUCCESS)
        st = check_shapes(e);
    if (st == ACLNN_SUCCESS)
        st = check_values(e, request);
    if (st == ACLNN_SUCCESS)
        st = fill_args(e, request);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, MASKED, LOGITS) : st;
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
    const unsigned f32 = SYI_ACLNN_BIT(ACL_FLOAT), i32 = SYI_ACLNN_BIT(ACL_INT32),
                   i64 = SYI_ACLNN_BIT(ACL_INT64);
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {"logits", t->logits, 0, request->v2 ? SYI_ACLNN_FLOATS : SYI_ACLNN_FLOATS & ~f32, 0, 2},
        [TOP_K] = {"topK", t->top_k, row, i32, 0, 1},
        [TOP_P] = {"topP", t->top_p, row, 0, LOGITS + 1, 1},
        [Q] = {"q", t->q, optional, f32, 0, 2},
        [MIN_P] = {"minPs", t->min_p, row | optional, 0, LOGITS + 1, 1},
        [TOKEN] = {"logitsSelectIdx", t->token, token, i64, 0, 1},
        [MASKED] = {"logitsTopKPSelect", t->masked, masked, f32, 0, 2},
        [LIST_TOKEN] = {"logitsIdx", t->list_token, lists, i64, 0, 2},
        [LIST_PROB] = {"logitsSortMasked", t->list_prob, lists, f32, 0, 2},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(op, workspace_size, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check(e, rules, request);
    return syi_aclnn_end(e, st, workspace_size, executor);
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

aclnnStatus aclnnTopKTopPSample(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                aclrtStream stream)
{
    return syi_aclnn_execute(&op_v1, workspace, workspaceSize, executor, stream);
}

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

aclnnStatus aclnnTopKTopPSampleV2(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                  aclrtStream stream)
{
    return syi_aclnn_execute(&op_v2, workspace, workspaceSize, executor, stream);
}
