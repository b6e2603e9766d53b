/* aclnnMoeTokenUnpermuteWithRoutingMapGrad: sy_moe_unpermute_grad. */
#include "internal.h"

enum { GRAD_TOKENS, OUT_INDEX, TOKEN_ID, MAP, PERMUTED, PROBS, GRAD_PERMUTED, GRAD_PROBS, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(moe_unpermute_grad, field)

/* Padded: the forward call returned sorted indices and the place of each; this restores their order. */
static aclnnStatus restore_indices(const aclOpExecutor *e, int32_t *indices)
{
    for (int64_t i = 0; i < e->n_rows; i++)
        indices[i] = INT32_MIN;
    for (int64_t i = 0; i < e->n_rows; i++) {
        const int64_t from = syi_aclnn_integer(e, OUT_INDEX, i, 0);
        const int64_t token = syi_aclnn_integer(e, TOKEN_ID, i, 0);
        if (from < 0 || from >= e->n_rows || indices[from] != INT32_MIN)
            return syi_aclnn_fail(
                ACLNN_ERR_PARAM_INVALID,
                "%s: outIndex has %lld at position %lld, want every number from 0 to %lld once", e->op->name,
                (long long)from, (long long)i, (long long)e->n_rows - 1);
        if (token < 0 || token >= e->n_tokens)
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                                  "%s: permuteTokenId has %lld at position %lld, want 0 to %lld", e->op->name,
                                  (long long)token, (long long)i, (long long)e->n_tokens - 1);
        indices[from] = (int32_t)token;
    }
    return ACLNN_SUCCESS;
}

static aclnnStatus run(aclOpExecutor *e)
{
    if (e->args.unpermute_grad.drop_and_pad) {
        const aclnnStatus st = restore_indices(e, e->list[0].data);
        if (st != ACLNN_SUCCESS)
            return st;
    } else if (e->view[PROBS].taken) {
        const struct syi_aclnn_slots slots = {MAP, PROBS, OUT_INDEX};
        e->args.unpermute_grad.routing_map = syi_aclnn_live_map(e, slots, e->list[0].data);
    }
    return syi_aclnn_call(e);
}

static const struct syi_aclnn_op op = {"aclnnMoeTokenUnpermuteWithRoutingMapGrad",
                                       SYI_ACLNN_CALLS(moe_unpermute_grad), run, false};

static void plan(aclOpExecutor *e, bool drop_and_pad)
{
    e->n_tokens = e->view[GRAD_TOKENS].shape[0];
    e->n_experts = e->view[MAP].taken ? e->view[MAP].shape[1] : 0;
    e->n_rows = e->view[OUT_INDEX].shape[0];
    e->args.unpermute_grad.drop_and_pad = drop_and_pad;
    (void)syi_aclnn_query(e);
    if (drop_and_pad) { /* a list of its own, compact for any stride of outIndex */
        e->args.unpermute_grad.sorted_indices = syi_aclnn_list(e, 0, SY_I32, e->n_rows, -1);
    } else if (e->view[PROBS].taken) {
        (void)syi_aclnn_list(e, 0, SY_U8, e->n_tokens, e->n_experts); /* a map */
    }
    syi_aclnn_check_limits(e, drop_and_pad);
    syi_aclnn_check_shape(e, TOKEN_ID, e->n_rows, -1);
    syi_aclnn_check_shape(e, GRAD_PERMUTED, e->n_rows, e->view[GRAD_TOKENS].shape[1]);
    syi_aclnn_check_shape(e, GRAD_PROBS, e->n_tokens, e->n_experts);
}

SYI_ACLNN_OPERATOR(aclnnMoeTokenUnpermuteWithRoutingMapGrad, op, const aclTensor *unpermutedTokensGrad,
                   const aclTensor *outIndex, const aclTensor *permuteTokenId,
                   const aclTensor *routingMapOptional, const aclTensor *permutedTokensOptional,
                   const aclTensor *probsOptional, bool dropAndPad, const aclIntArray *restoreShapeOptional,
                   const aclTensor *permutedTokensGradOut, const aclTensor *probsGradOutOptional)
{
    const unsigned optional = SYI_ACLNN_OPTIONAL, out = SYI_ACLNN_OUTPUT, wide = optional | SYI_ACLNN_WIDENS;
    const unsigned probs_out = out | optional | SYI_ACLNN_BESIDE, i32 = SYI_ACLNN_I32;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [GRAD_TOKENS] = {SYI_NAMED(unpermutedTokensGrad), 0, SYI_ACLNN_FLOATS, 0, 2, TO(grad_tokens)},
        [OUT_INDEX] = {SYI_NAMED(outIndex), 0, i32, 0, 1, TO(sorted_indices)},
        [TOKEN_ID] = {SYI_NAMED(permuteTokenId), 0, i32, 0, 1, 0},
        [MAP] = {SYI_NAMED(routingMapOptional), optional, SYI_ACLNN_BYTES, 0, 2, TO(routing_map)},
        [PERMUTED] = {SYI_NAMED(permutedTokensOptional), optional, 0, GRAD_TOKENS + 1, 2,
                      TO(permuted_tokens)},
        [PROBS] = {SYI_NAMED(probsOptional), wide, 0, GRAD_TOKENS + 1, 2, TO(probs)},
        [GRAD_PERMUTED] = {SYI_NAMED(permutedTokensGradOut), out, 0, GRAD_TOKENS + 1, 2,
                           TO(grad_permuted_tokens)},
        [GRAD_PROBS] = {SYI_NAMED(probsGradOutOptional), probs_out, 0, PROBS + 1, 2, TO(grad_probs)},
    };
    (void)restoreShapeOptional; /* T and H are those of unpermutedTokensGrad */
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    if (probsOptional != NULL && (routingMapOptional == NULL || permutedTokensOptional == NULL))
        syi_aclnn_reject(e, ACLNN_ERR_INNER_TILING_ERROR, "%s is null beside probsOptional, want a tensor",
                         routingMapOptional != NULL ? "permutedTokensOptional" : "routingMapOptional");
    if (syi_aclnn_check_tensors(e, rules))
        plan(e, dropAndPad);
    return syi_aclnn_end(e);
}
