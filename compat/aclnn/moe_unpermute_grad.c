/* aclnnMoeTokenUnpermuteWithRoutingMapGrad: sy_moe_unpermute_grad. */
#include "internal.h"

#include "aclnnop/aclnn_moe_token_unpermute_with_routing_map_grad.h"

enum { GRAD_TOKENS, OUT_INDEX, TOKEN_ID, MAP, PERMUTED, PROBS, GRAD_PERMUTED, GRAD_PROBS, N_TENSORS };

static aclnnStatus run(aclOpExecutor *e, char *extra);
static const struct syi_aclnn_op op = {"aclnnMoeTokenUnpermuteWithRoutingMapGrad", run, false};

/* Padded: the forward call returned sorted indices and the place of each; this restores their order. */
static aclnnStatus restore_indices(const aclOpExecutor *e, int32_t *indices)
{
    for (int64_t i = 0; i < e->n_rows; i++)
        indices[i] = INT32_MIN;
    for (int64_t i = 0; i < e->n_rows; i++) {
        const int32_t from = syi_aclnn_number(e, OUT_INDEX, i), token = syi_aclnn_number(e, TOKEN_ID, i);
        if (from < 0 || from >= e->n_rows || indices[from] != INT32_MIN)
            return syi_aclnn_fail(
                ACLNN_ERR_PARAM_INVALID,
                "%s: outIndex has %d at position %lld, want every number from 0 to %lld once", op.name,
                (int)from, (long long)i, (long long)e->n_rows - 1);
        if (token < 0 || token >= e->n_tokens)
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                                  "%s: permuteTokenId has %d at position %lld, want 0 to %lld", op.name,
                                  (int)token, (long long)i, (long long)e->n_tokens - 1);
        indices[from] = token;
    }
    return ACLNN_SUCCESS;
}

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    if (e->args.unpermute_grad.drop_and_pad) {
        const aclnnStatus st = restore_indices(e, (int32_t *)(void *)extra);
        if (st != ACLNN_SUCCESS)
            return st;
        e->indices.data = extra;
    } else if (e->view[PROBS].taken) {
        const struct syi_aclnn_slots slots = {MAP, PROBS, OUT_INDEX};
        e->args.unpermute_grad.routing_map = syi_aclnn_live_map(e, slots, extra);
    }
    return syi_aclnn_status(e, sy_moe_unpermute_grad(e->ctx, &e->args.unpermute_grad));
}

static aclnnStatus check_shapes(aclOpExecutor *e, bool drop_and_pad)
{
    aclnnStatus st = syi_aclnn_check_limits(e, drop_and_pad);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, TOKEN_ID, e->n_rows, -1);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, GRAD_PERMUTED, e->n_rows, e->view[GRAD_TOKENS].shape[1]);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, GRAD_PROBS, e->n_tokens, e->n_experts);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

static aclnnStatus check(aclOpExecutor *e, const struct syi_aclnn_rule *rules, bool drop_and_pad)
{
    sy_query query = {0};
    aclnnStatus st = syi_aclnn_check_null(e, rules, N_TENSORS);
    if (st == ACLNN_SUCCESS && e->view[PROBS].taken && (!e->view[MAP].taken || !e->view[PERMUTED].taken))
        st =
            syi_aclnn_fail(ACLNN_ERR_INNER_TILING_ERROR, "%s: %s is null beside probsOptional, want a tensor",
                           op.name, e->view[MAP].taken ? "permutedTokensOptional" : "routingMapOptional");
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(e, rules);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_ranks(e, rules);
    if (st != ACLNN_SUCCESS)
        return st;
    e->n_tokens = e->view[GRAD_TOKENS].shape[0];
    e->n_experts = e->view[MAP].taken ? e->view[MAP].shape[1] : 0;
    e->n_rows = e->view[OUT_INDEX].shape[0];
    e->args.unpermute_grad =
        (sy_moe_unpermute_grad_args){.grad_tokens = syi_aclnn_arg(e, GRAD_TOKENS),
                                     .sorted_indices = syi_aclnn_arg(e, OUT_INDEX),
                                     .permuted_tokens = syi_aclnn_arg(e, PERMUTED),
                                     .routing_map = syi_aclnn_arg(e, MAP),
                                     .probs = syi_aclnn_arg(e, PROBS),
                                     .drop_and_pad = drop_and_pad,
                                     .grad_permuted_tokens = syi_aclnn_arg(e, GRAD_PERMUTED),
                                     .grad_probs = syi_aclnn_arg(e, GRAD_PROBS)};
    st = syi_aclnn_status(e, sy_moe_unpermute_grad_query(e->ctx, &e->args.unpermute_grad, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    if (drop_and_pad) { /* a list of its own, compact for any stride of outIndex */
        e->extra_bytes = (size_t)e->n_rows * sizeof(int32_t);
        e->indices = sy_tensor(NULL, SY_I32, 1, e->view[OUT_INDEX].shape);
        e->args.unpermute_grad.sorted_indices = &e->indices;
    } else if (e->view[PROBS].taken) {
        e->extra_bytes = syi_aclnn_view_bytes(&e->view[MAP]);
    }
    return st == ACLNN_SUCCESS ? check_shapes(e, drop_and_pad) : st;
}

aclnnStatus aclnnMoeTokenUnpermuteWithRoutingMapGradGetWorkspaceSize(
    const aclTensor *unpermutedTokensGrad, const aclTensor *outIndex, const aclTensor *permuteTokenId,
    const aclTensor *routingMapOptional, const aclTensor *permutedTokensOptional,
    const aclTensor *probsOptional, bool dropAndPad, const aclIntArray *restoreShapeOptional,
    const aclTensor *permutedTokensGradOut, const aclTensor *probsGradOutOptional, uint64_t *workspaceSize,
    aclOpExecutor **executor)
{
    const unsigned optional = SYI_ACLNN_OPTIONAL, out = SYI_ACLNN_OUTPUT;
    const unsigned probs_out = out | optional | (probsOptional == NULL ? SYI_ACLNN_IGNORED : 0u);
    const unsigned i32 = SYI_ACLNN_BIT(ACL_INT32);
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [GRAD_TOKENS] = {"unpermutedTokensGrad", unpermutedTokensGrad, 0, SYI_ACLNN_FLOATS, 0, 2},
        [OUT_INDEX] = {"outIndex", outIndex, 0, i32, 0, 1},
        [TOKEN_ID] = {"permuteTokenId", permuteTokenId, 0, i32, 0, 1},
        [MAP] = {"routingMapOptional", routingMapOptional, optional, SYI_ACLNN_BYTES, 0, 2},
        [PERMUTED] = {"permutedTokensOptional", permutedTokensOptional, optional, 0, GRAD_TOKENS + 1, 2},
        [PROBS] = {"probsOptional", probsOptional, optional | SYI_ACLNN_WIDENS, 0, GRAD_TOKENS + 1, 2},
        [GRAD_PERMUTED] = {"permutedTokensGradOut", permutedTokensGradOut, out, 0, GRAD_TOKENS + 1, 2},
        [GRAD_PROBS] = {"probsGradOutOptional", probsGradOutOptional, probs_out, 0, PROBS + 1, 2},
    };
    (void)restoreShapeOptional; /* T and H are those of unpermutedTokensGrad */
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&op, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check(e, rules, dropAndPad);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeTokenUnpermuteWithRoutingMapGrad(void *workspace, uint64_t workspaceSize,
                                                     aclOpExecutor *executor, aclrtStream stream)
{
    return syi_aclnn_execute(&op, workspace, workspaceSize, executor, stream);
}
