/* aclnnMoeGatingTopK and aclnnMoeGatingTopKSoftmaxV2: sy_moe_route. */
#include "internal.h"

#include <string.h>

#include "aclnnop/aclnn_moe_gating_top_k.h"
#include "aclnnop/aclnn_moe_gating_top_k_softmax_v2.h"

enum { LOGITS, BESIDE, WEIGHTS, IDS, SCORES, N_TENSORS }; /* beside: the bias, or the finished rows */

/* `number[0]` is whether every weight is 0, for a factor of 0, which is 1 in the operator. */
static aclnnStatus run_gating(aclOpExecutor *e, char *extra)
{
    const struct syi_aclnn_view *bias = &e->view[BESIDE], *weights = &e->view[WEIGHTS];
    for (int64_t i = 0; bias->taken && i < bias->shape[0]; i++)
        ((float *)(void *)extra)[i] =
            syi_aclnn_float((const char *)bias->dl.data + (size_t)i * bias->elem_bytes, bias->type);
    e->list[0].data = extra;
    const aclnnStatus st = syi_aclnn_status(e, sy_moe_route(e->ctx, &e->args.route));
    for (int64_t t = 0; st == ACLNN_SUCCESS && e->number[0] != 0 && t < weights->shape[0]; t++)
        memset((char *)weights->dl.data + (syi_aclnn_row(weights, t) - (const char *)weights->dl.data), 0,
               (size_t)weights->shape[1] * weights->elem_bytes);
    return st;
}

/* Finished rows name expert E. */
static aclnnStatus run_softmax(aclOpExecutor *e, char *extra)
{
    (void)extra;
    const struct syi_aclnn_view *finished = &e->view[BESIDE], *ids = &e->view[IDS];
    const aclnnStatus st = syi_aclnn_status(e, sy_moe_route(e->ctx, &e->args.route));
    const int32_t none = (int32_t)e->view[LOGITS].shape[1];
    for (int64_t t = 0; st == ACLNN_SUCCESS && finished->taken && t < finished->shape[0]; t++)
        for (int64_t k = 0; ((const uint8_t *)finished->dl.data)[t] != 0 && k < ids->shape[1]; k++)
            memcpy((char *)ids->dl.data + (syi_aclnn_row(ids, t) - (const char *)ids->dl.data) +
                       (size_t)k * sizeof none,
                   &none, sizeof none);
    return st;
}

static const struct syi_aclnn_op gating = {"aclnnMoeGatingTopK", run_gating, false};
static const struct syi_aclnn_op softmax = {"aclnnMoeGatingTopKSoftmaxV2", run_softmax, false};

/* The vendor finds wrong shapes and values when it divides the work. */
static aclnnStatus tiling(aclnnStatus status)
{
    return status == ACLNN_ERR_PARAM_INVALID ? ACLNN_ERR_INNER_TILING_ERROR : status;
}

static aclnnStatus check_tensors(aclOpExecutor *e, const struct syi_aclnn_rule *rules)
{
    aclnnStatus st = syi_aclnn_check_null(e, rules, N_TENSORS);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(e, rules);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_ranks(e, rules) : st;
}

static aclnnStatus plan(aclOpExecutor *e, int64_t beside)
{
    sy_query query = {0};
    const int64_t rows = e->view[LOGITS].shape[0], experts = e->view[LOGITS].shape[1], k = e->args.route.k;
    aclnnStatus st = tiling(syi_aclnn_status(e, sy_moe_route_query(e->ctx, &e->args.route, &query)));
    syi_aclnn_need(e, query.workspace_bytes);
    if (st == ACLNN_SUCCESS)
        st = tiling(syi_aclnn_check_shape(e, BESIDE, beside, -1));
    if (st == ACLNN_SUCCESS)
        st = tiling(syi_aclnn_check_shape(e, WEIGHTS, rows, k));
    if (st == ACLNN_SUCCESS)
        st = tiling(syi_aclnn_check_shape(e, IDS, rows, k));
    if (st == ACLNN_SUCCESS)
        st = tiling(syi_aclnn_check_shape(e, SCORES, rows, experts));
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

static aclnnStatus only(const char *field, int64_t value, int64_t most)
{
    if (value >= 0 && value <= most)
        return ACLNN_SUCCESS;
    return syi_aclnn_fail(ACLNN_ERR_INNER_TILING_ERROR, "%s: %s is %lld, want 0 to %lld", gating.name, field,
                          (long long)value, (long long)most);
}

aclnnStatus aclnnMoeGatingTopKGetWorkspaceSize(const aclTensor *x, const aclTensor *biasOptional, int64_t k,
                                               int64_t kGroup, int64_t groupCount, int64_t groupSelectMode,
                                               int64_t renorm, int64_t normType, bool outFlag,
                                               double routedScalingFactor, double eps, const aclTensor *yOut,
                                               const aclTensor *expertIdxOut, const aclTensor *outOut,
                                               uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const unsigned out = SYI_ACLNN_OUTPUT, scores = out | (outFlag ? 0u : (unsigned)SYI_ACLNN_IGNORED);
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {"x", x, 0, SYI_ACLNN_FLOATS, 0, 2},
        [BESIDE] = {"biasOptional", biasOptional, SYI_ACLNN_OPTIONAL, SYI_ACLNN_FLOATS, 0, 1},
        [WEIGHTS] = {"yOut", yOut, out, 0, LOGITS + 1, 2},
        [IDS] = {"expertIdxOut", expertIdxOut, out, SYI_ACLNN_BIT(ACL_INT32), 0, 2},
        [SCORES] = {"outOut", outOut, scores, SYI_ACLNN_BIT(ACL_FLOAT), 0, 2},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&gating, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check_tensors(e, rules);
    if (st == ACLNN_SUCCESS)
        st = only("renorm", renorm, 0);
    if (st == ACLNN_SUCCESS)
        st = only("normType", normType, 1);
    if (st == ACLNN_SUCCESS)
        st = only("groupSelectMode", groupSelectMode, 1);
    if (st == ACLNN_SUCCESS && groupCount < 1)
        st = syi_aclnn_fail(ACLNN_ERR_INNER_TILING_ERROR, "%s: groupCount is %lld, want 1 or more",
                            gating.name, (long long)groupCount);
    if (st == ACLNN_SUCCESS) {
        const int64_t experts = e->view[LOGITS].shape[1];
        const DLTensor *bias = syi_aclnn_list(e, 0, SY_F32, experts, 0);
        e->extra_bytes = (size_t)experts * sizeof(float);
        e->number[0] = (float)routedScalingFactor == 0;
        e->args.route =
            (sy_moe_route_args){.logits = syi_aclnn_arg(e, LOGITS),
                                .bias = e->view[BESIDE].taken ? bias : NULL,
                                .k = k,
                                .score = normType == 1 ? SY_SCORE_SIGMOID : SY_SCORE_SOFTMAX,
                                .groups = groupCount > 1 ? groupCount : 0,
                                .top_groups = kGroup,
                                .group_score = groupSelectMode == 1 ? SY_GROUP_SUM2 : SY_GROUP_MAX,
                                .renormalize = normType == 1,
                                .eps = (float)eps,
                                .scale = (float)routedScalingFactor,
                                .ids = syi_aclnn_arg(e, IDS),
                                .weights = syi_aclnn_arg(e, WEIGHTS),
                                .scores = syi_aclnn_arg(e, SCORES)};
        st = plan(e, experts);
    }
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeGatingTopK(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                               aclrtStream stream)
{
    return syi_aclnn_execute(&gating, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize(const aclTensor *x, const aclTensor *finishedOptional,
                                                        int64_t k, int64_t renorm,
                                                        bool outputSoftmaxResultFlag, const aclTensor *yOut,
                                                        const aclTensor *expertIdxOut,
                                                        const aclTensor *softmaxResultOutOptional,
                                                        uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const bool all = outputSoftmaxResultFlag && renorm == 0;
    const unsigned out = SYI_ACLNN_OUTPUT, scores = out | (all ? 0u : (unsigned)SYI_ACLNN_IGNORED);
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {"x", x, 0, SYI_ACLNN_FLOATS, 0, 2},
        [BESIDE] = {"finishedOptional", finishedOptional, SYI_ACLNN_OPTIONAL, SYI_ACLNN_BIT(ACL_BOOL), 0, 1},
        [WEIGHTS] = {"yOut", yOut, out, 0, LOGITS + 1, 2},
        [IDS] = {"expertIdxOut", expertIdxOut, out, SYI_ACLNN_BIT(ACL_INT32), 0, 2},
        [SCORES] = {"softmaxResultOutOptional", softmaxResultOutOptional, scores, SYI_ACLNN_BIT(ACL_FLOAT), 0,
                    2},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&softmax, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check_tensors(e, rules);
    if (st == ACLNN_SUCCESS && renorm != 0 && renorm != 1)
        st = syi_aclnn_fail(ACLNN_ERR_INNER_TILING_ERROR, "%s: renorm is %lld, want 0 or 1", softmax.name,
                            (long long)renorm);
    if (st == ACLNN_SUCCESS) {
        e->args.route = (sy_moe_route_args){.logits = syi_aclnn_arg(e, LOGITS),
                                            .k = k,
                                            .softmax_after = renorm == 1,
                                            .ids = syi_aclnn_arg(e, IDS),
                                            .weights = syi_aclnn_arg(e, WEIGHTS),
                                            .scores = syi_aclnn_arg(e, SCORES)};
        st = plan(e, e->view[LOGITS].shape[0]);
    }
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeGatingTopKSoftmaxV2(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                        aclrtStream stream)
{
    return syi_aclnn_execute(&softmax, workspace, workspaceSize, executor, stream);
}
