/* aclnnMoeGatingTopK and aclnnMoeGatingTopKSoftmaxV2: sy_moe_route. */
#include "internal.h"

#include <string.h>

enum { LOGITS, BESIDE, WEIGHTS, IDS, SCORES, N_TENSORS }; /* beside: the bias, or the finished rows */

#define TO(field) SYI_ACLNN_FIELD(moe_route, field)

/* `number[0]` is whether every weight is 0, for a factor of 0, which is 1 in the operator. */
static aclnnStatus run_gating(aclOpExecutor *e)
{
    float *wide = e->list[0].data;
    const struct syi_aclnn_view *bias = &e->view[BESIDE], *weights = &e->view[WEIGHTS];
    for (int64_t i = 0; bias->taken && i < bias->shape[0]; i++)
        wide[i] = syi_aclnn_float((const char *)bias->dl.data + (size_t)i * bias->elem_bytes, bias->type);
    const aclnnStatus st = syi_aclnn_call(e);
    for (int64_t t = 0; st == ACLNN_SUCCESS && e->number[0] != 0 && t < weights->shape[0]; t++)
        memset(syi_aclnn_row(weights, t), 0, (size_t)weights->shape[1] * weights->elem_bytes);
    return st;
}

/* Finished rows name expert E. */
static aclnnStatus run_softmax(aclOpExecutor *e)
{
    const struct syi_aclnn_view *finished = &e->view[BESIDE], *ids = &e->view[IDS];
    const aclnnStatus st = syi_aclnn_call(e);
    const int32_t none = (int32_t)e->view[LOGITS].shape[1];
    for (int64_t t = 0; st == ACLNN_SUCCESS && finished->taken && t < finished->shape[0]; t++)
        for (int64_t k = 0; ((const uint8_t *)finished->dl.data)[t] != 0 && k < ids->shape[1]; k++)
            memcpy(syi_aclnn_row(ids, t) + (size_t)k * sizeof none, &none, sizeof none);
    return st;
}

static const struct syi_aclnn_op gating = {"aclnnMoeGatingTopK", SYI_ACLNN_CALLS(moe_route), run_gating,
                                           false};
static const struct syi_aclnn_op softmax = {"aclnnMoeGatingTopKSoftmaxV2", SYI_ACLNN_CALLS(moe_route),
                                            run_softmax, false};

/* The vendor finds wrong shapes and values when it divides the work. */
static const aclnnStatus tiling = ACLNN_ERR_INNER_TILING_ERROR;

static void plan(aclOpExecutor *e, int64_t k, int64_t beside)
{
    if (e->status != ACLNN_SUCCESS)
        return;
    const int64_t rows = e->view[LOGITS].shape[0], experts = e->view[LOGITS].shape[1];
    e->args.route.k = k;
    (void)syi_aclnn_query(e);
    syi_aclnn_check_shape(e, BESIDE, beside, -1);
    syi_aclnn_check_shape(e, WEIGHTS, rows, k);
    syi_aclnn_check_shape(e, IDS, rows, k);
    syi_aclnn_check_shape(e, SCORES, rows, experts);
    if (e->status == ACLNN_ERR_PARAM_INVALID)
        e->status = tiling;
}

SYI_ACLNN_OPERATOR(aclnnMoeGatingTopK, gating, const aclTensor *x, const aclTensor *biasOptional, int64_t k,
                   int64_t kGroup, int64_t groupCount, int64_t groupSelectMode, int64_t renorm,
                   int64_t normType, bool outFlag, double routedScalingFactor, double eps,
                   const aclTensor *yOut, const aclTensor *expertIdxOut, const aclTensor *outOut)
{
    const unsigned out = SYI_ACLNN_OUTPUT, scores = out | (outFlag ? 0u : (unsigned)SYI_ACLNN_IGNORED);
    const unsigned floats = SYI_ACLNN_FLOATS, f32 = SYI_ACLNN_F32;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {SYI_NAMED(x), 0, floats, 0, 2, TO(logits)},
        [BESIDE] = {SYI_NAMED(biasOptional), SYI_ACLNN_OPTIONAL, floats, 0, 1, 0},
        [WEIGHTS] = {SYI_NAMED(yOut), out, 0, LOGITS + 1, 2, TO(weights)},
        [IDS] = {SYI_NAMED(expertIdxOut), out, SYI_ACLNN_I32, 0, 2, TO(ids)},
        [SCORES] = {SYI_NAMED(outOut), scores, f32, 0, 2, TO(scores)},
    };
    aclOpExecutor *e = syi_aclnn_begin(&gating, rules, N_TENSORS, workspaceSize, executor);
    if (!syi_aclnn_check_tensors(e, rules))
        return syi_aclnn_end(e);
    syi_aclnn_want(e, renorm == 0, tiling, "renorm", renorm, "0 to 0");
    syi_aclnn_want(e, normType == 0 || normType == 1, tiling, "normType", normType, "0 to 1");
    syi_aclnn_want(e, groupSelectMode == 0 || groupSelectMode == 1, tiling, "groupSelectMode",
                   groupSelectMode, "0 to 1");
    syi_aclnn_want(e, groupCount >= 1, tiling, "groupCount", groupCount, "1 or more");
    sy_moe_route_args *route = &e->args.route;
    const int64_t experts = e->view[LOGITS].shape[1];
    e->number[0] = (float)routedScalingFactor == 0;
    route->bias = e->view[BESIDE].taken ? syi_aclnn_list(e, 0, SY_F32, experts, -1) : NULL;
    route->score = normType == 1 ? SY_SCORE_SIGMOID : SY_SCORE_SOFTMAX;
    route->groups = groupCount > 1 ? groupCount : 0;
    route->top_groups = kGroup;
    route->group_score = groupSelectMode == 1 ? SY_GROUP_SUM2 : SY_GROUP_MAX;
    route->renormalize = normType == 1;
    route->eps = (float)eps;
    route->scale = (float)routedScalingFactor;
    plan(e, k, experts);
    return syi_aclnn_end(e);
}

SYI_ACLNN_OPERATOR(aclnnMoeGatingTopKSoftmaxV2, softmax, const aclTensor *x,
                   const aclTensor *finishedOptional, int64_t k, int64_t renorm, bool outputSoftmaxResultFlag,
                   const aclTensor *yOut, const aclTensor *expertIdxOut,
                   const aclTensor *softmaxResultOutOptional)
{
    const bool all = outputSoftmaxResultFlag && renorm == 0;
    const unsigned out = SYI_ACLNN_OUTPUT, scores = out | (all ? 0u : (unsigned)SYI_ACLNN_IGNORED);
    const unsigned flag = SYI_ACLNN_BIT(ACL_BOOL), f32 = SYI_ACLNN_F32;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {SYI_NAMED(x), 0, SYI_ACLNN_FLOATS, 0, 2, TO(logits)},
        [BESIDE] = {SYI_NAMED(finishedOptional), SYI_ACLNN_OPTIONAL, flag, 0, 1, 0},
        [WEIGHTS] = {SYI_NAMED(yOut), out, 0, LOGITS + 1, 2, TO(weights)},
        [IDS] = {SYI_NAMED(expertIdxOut), out, SYI_ACLNN_I32, 0, 2, TO(ids)},
        [SCORES] = {SYI_NAMED(softmaxResultOutOptional), scores, f32, 0, 2, TO(scores)},
    };
    aclOpExecutor *e = syi_aclnn_begin(&softmax, rules, N_TENSORS, workspaceSize, executor);
    if (!syi_aclnn_check_tensors(e, rules))
        return syi_aclnn_end(e);
    syi_aclnn_want(e, renorm == 0 || renorm == 1, tiling, "renorm", renorm, "0 or 1");
    e->args.route.softmax_after = renorm == 1;
    plan(e, k, e->view[LOGITS].shape[0]);
    return syi_aclnn_end(e);
}
