/* aclnnMoeTokenPermuteWithRoutingMap: sy_moe_permute. */
#include "internal.h"

#include "aclnnop/aclnn_moe_token_permute_with_routing_map.h"

enum { TOKENS, MAP, PROBS, PERMUTED, PERMUTED_PROBS, INDICES, N_TENSORS };

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    (void)extra;
    return syi_aclnn_status(e, sy_moe_permute(e->ctx, &e->args.permute));
}

static const struct syi_aclnn_op op = {"aclnnMoeTokenPermuteWithRoutingMap", run, true};

static aclnnStatus check(aclOpExecutor *e, const struct syi_aclnn_rule *rules, int64_t num_out_tokens,
                         bool drop_and_pad)
{
    sy_query query = {0};
    aclnnStatus st = syi_aclnn_check_null(e, rules, N_TENSORS);
    if (st == ACLNN_SUCCESS && e->view[PROBS].taken != e->view[PERMUTED_PROBS].taken)
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR,
                            "%s: %s is null and the other is not, want both probsOptional and "
                            "permuteProbsOutOptional or none",
                            op.name, e->view[PROBS].taken ? "permuteProbsOutOptional" : "probsOptional");
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(e, rules);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_ranks(e, rules);
    if (st != ACLNN_SUCCESS)
        return st;
    e->args.permute = (sy_moe_permute_args){.tokens = syi_aclnn_arg(e, TOKENS),
                                            .routing_map = syi_aclnn_arg(e, MAP),
                                            .probs = syi_aclnn_arg(e, PROBS),
                                            .num_out_tokens = num_out_tokens,
                                            .drop_and_pad = drop_and_pad,
                                            .permuted_tokens = syi_aclnn_arg(e, PERMUTED),
                                            .sorted_indices = syi_aclnn_arg(e, INDICES),
                                            .permuted_probs = syi_aclnn_arg(e, PERMUTED_PROBS)};
    st = syi_aclnn_status(e, sy_moe_permute_query(e->ctx, &e->args.permute, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    e->n_tokens = e->view[TOKENS].shape[0];
    e->n_experts = e->view[MAP].shape[1];
    e->n_rows = query.rows;
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_limits(e, drop_and_pad);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, PERMUTED, query.rows, e->view[TOKENS].shape[1]);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, PERMUTED_PROBS, query.rows, -1);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, INDICES, query.rows, -1);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

aclnnStatus aclnnMoeTokenPermuteWithRoutingMapGetWorkspaceSize(
    const aclTensor *tokens, const aclTensor *routingMap, const aclTensor *probsOptional,
    int64_t numOutTokens, bool dropAndPad, aclTensor *permuteTokensOut, aclTensor *permuteProbsOutOptional,
    aclTensor *sortedIndicesOut, uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const unsigned out = SYI_ACLNN_OUTPUT, optional = SYI_ACLNN_OPTIONAL;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [TOKENS] = {"tokens", tokens, 0, SYI_ACLNN_FLOATS, 0, 2},
        [MAP] = {"routingMap", routingMap, 0, SYI_ACLNN_BYTES, 0, 2},
        [PROBS] = {"probsOptional", probsOptional, optional | SYI_ACLNN_WIDENS, 0, TOKENS + 1, 2},
        [PERMUTED] = {"permuteTokensOut", permuteTokensOut, out, 0, TOKENS + 1, 2},
        [PERMUTED_PROBS] = {"permuteProbsOutOptional", permuteProbsOutOptional, out | optional, 0, PROBS + 1,
                            1},
        [INDICES] = {"sortedIndicesOut", sortedIndicesOut, out, SYI_ACLNN_BIT(ACL_INT32), 0, 1},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&op, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check(e, rules, numOutTokens, dropAndPad);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeTokenPermuteWithRoutingMap(void *workspace, uint64_t workspaceSize,
                                               aclOpExecutor *executor, aclrtStream stream)
{
    return syi_aclnn_execute(&op, workspace, workspaceSize, executor, stream);
}
