/*
 * aclnnMoeFinalizeRoutingV2: sy_moe_unpermute_ids, whose arguments it has in the same form.
 */
#include "internal.h"

#include "aclnnop/aclnn_moe_finalize_routing_v2.h"

enum { ROWS, PLACES, X1, X2, BIAS, SCALES, EXPERTS, OUT, N_TENSORS };

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    (void)extra;
    e->indices.data = e->view[ROWS].dl.data;
    e->indices.device = e->view[ROWS].dl.device;
    return syi_aclnn_status(e, sy_moe_unpermute_ids(e->ctx, &e->args.unpermute_ids));
}

static const struct syi_aclnn_op op = {"aclnnMoeFinalizeRoutingV2", run, true};

static aclnnStatus check_shapes(aclOpExecutor *e)
{
    const int64_t width = e->view[OUT].shape[1], tokens = e->view[OUT].shape[0];
    const int64_t choices = e->view[SCALES].taken ? e->view[SCALES].shape[1] : 1;
    const bool padded = e->view[ROWS].dl.ndim == 3;
    aclnnStatus st = ACLNN_SUCCESS;
    if (e->view[ROWS].dims[padded ? 2 : 1] != width)
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                            "%s: expandedX has rows of %lld elements, want %lld as out", op.name,
                            (long long)e->view[ROWS].dims[padded ? 2 : 1], (long long)width);
    for (int i = X1; st == ACLNN_SUCCESS && i <= X2; i++)
        st = syi_aclnn_check_shape(e, i, tokens, width);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, BIAS, e->view[BIAS].shape[0], width);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, SCALES, tokens, choices);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, EXPERTS, tokens, choices);
    if (st == ACLNN_SUCCESS && (choices < 1 || e->view[PLACES].shape[0] / choices != tokens ||
                                e->view[PLACES].shape[0] % choices != 0))
        st =
            syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                           "%s: expandedRowIdx has %lld rows, want %lld for each of the %lld tokens", op.name,
                           (long long)e->view[PLACES].shape[0], (long long)choices, (long long)tokens);
    return st;
}

/* The rows of experts with a capacity are one after the other. */
static aclnnStatus plan(aclOpExecutor *e, bool by_choice)
{
    const struct syi_aclnn_view *rows = &e->view[ROWS];
    sy_query query = {0};
    e->list_shape[0][0] = rows->dims[0] * (rows->dl.ndim == 3 ? rows->dims[1] : 1);
    e->list_shape[0][1] = e->view[OUT].shape[1];
    e->indices = rows->dl;
    if (rows->dl.ndim == 3)
        e->indices = sy_tensor(NULL, e->view[OUT].dl.dtype, 2, e->list_shape[0]);
    e->args.unpermute_ids =
        (sy_moe_unpermute_ids_args){.permuted_tokens = &e->indices,
                                    .sorted_indices = syi_aclnn_arg(e, PLACES),
                                    .probs = syi_aclnn_arg(e, SCALES),
                                    .num_tokens = e->view[OUT].shape[0],
                                    .tokens = syi_aclnn_arg(e, OUT),
                                    .bias = syi_aclnn_arg(e, BIAS),
                                    .bias_ids = syi_aclnn_arg(e, EXPERTS),
                                    .residual = syi_aclnn_arg(e, X1),
                                    .shared = syi_aclnn_arg(e, X2),
                                    .num_rows = e->list_shape[0][0] > 0 ? e->list_shape[0][0] : 1,
                                    .by_choice = by_choice};
    const aclnnStatus st =
        syi_aclnn_status(e, sy_moe_unpermute_ids_query(e->ctx, &e->args.unpermute_ids, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

aclnnStatus aclnnMoeFinalizeRoutingV2GetWorkspaceSize(
    const aclTensor *expandedX, const aclTensor *expandedRowIdx, const aclTensor *x1Optional,
    const aclTensor *x2Optional, const aclTensor *biasOptional, const aclTensor *scalesOptional,
    const aclTensor *expertIdxOptional, int64_t dropPadMode, const aclTensor *out, uint64_t *workspaceSize,
    aclOpExecutor **executor)
{
    const bool padded = dropPadMode == 1 || dropPadMode == 3;
    const unsigned optional = SYI_ACLNN_OPTIONAL, i32 = SYI_ACLNN_BIT(ACL_INT32);
    const unsigned experts = biasOptional != NULL ? 0u : (unsigned)SYI_ACLNN_IGNORED;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [ROWS] = {"expandedX", expandedX, padded ? (unsigned)SYI_ACLNN_DENSE : 0u, SYI_ACLNN_FLOATS, 0,
                  padded ? 3 : 2},
        [PLACES] = {"expandedRowIdx", expandedRowIdx, 0, i32, 0, 1},
        [X1] = {"x1Optional", x1Optional, optional, 0, ROWS + 1, 2},
        [X2] = {"x2Optional", x2Optional, optional, 0, ROWS + 1, 2},
        [BIAS] = {"biasOptional", biasOptional, optional, 0, ROWS + 1, 2},
        [SCALES] = {"scalesOptional", scalesOptional, optional, SYI_ACLNN_FLOATS, 0, 2},
        [EXPERTS] = {"expertIdxOptional", expertIdxOptional, experts, i32, 0, 2},
        [OUT] = {"out", out, SYI_ACLNN_OUTPUT, 0, ROWS + 1, 2},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin_checked(&op, workspaceSize, executor, rules, N_TENSORS, &e);
    if (st == ACLNN_SUCCESS && (dropPadMode < 0 || dropPadMode > 3))
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: dropPadMode is %lld, want 0 to 3", op.name,
                            (long long)dropPadMode);
    if (st == ACLNN_SUCCESS)
        st = check_shapes(e);
    if (st == ACLNN_SUCCESS)
        st = plan(e, dropPadMode < 2);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeFinalizeRoutingV2(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                      aclrtStream stream)
{
    return syi_aclnn_execute(&op, workspace, workspaceSize, executor, stream);
}
