/* aclnnMoeTokenPermuteWithRoutingMap: sy_moe_permute. */
#include "internal.h"

#include "aclnnop/operators.h"

enum { TOKENS, MAP, PROBS, PERMUTED, PERMUTED_PROBS, INDICES, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(moe_permute, field)

static const struct syi_aclnn_op op = {"aclnnMoeTokenPermuteWithRoutingMap", SYI_ACLNN_CALLS(moe_permute),
                                       .on_device = true};

static void plan(aclOpExecutor *e, int64_t num_out_tokens, bool drop_and_pad)
{
    if (e->status != ACLNN_SUCCESS)
        return;
    e->args.permute.num_out_tokens = num_out_tokens;
    e->args.permute.drop_and_pad = drop_and_pad;
    e->n_rows = syi_aclnn_query(e).rows;
    e->n_tokens = e->view[TOKENS].shape[0];
    e->n_experts = e->view[MAP].shape[1];
    syi_aclnn_check_limits(e, drop_and_pad);
    syi_aclnn_check_shape(e, PERMUTED, e->n_rows, e->view[TOKENS].shape[1]);
    syi_aclnn_check_shape(e, PERMUTED_PROBS, e->n_rows, -1);
    syi_aclnn_check_shape(e, INDICES, e->n_rows, -1);
    syi_aclnn_check_alias(e, -1, -1);
}

aclnnStatus aclnnMoeTokenPermuteWithRoutingMapGetWorkspaceSize(
    const aclTensor *tokens, const aclTensor *routingMap, const aclTensor *probsOptional,
    int64_t numOutTokens, bool dropAndPad, aclTensor *permuteTokensOut, aclTensor *permuteProbsOutOptional,
    aclTensor *sortedIndicesOut, uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const unsigned out = SYI_ACLNN_OUTPUT, optional = SYI_ACLNN_OPTIONAL, wide = optional | SYI_ACLNN_WIDENS;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [TOKENS] = {"tokens", tokens, 0, SYI_ACLNN_FLOATS, 0, 2, TO(tokens)},
        [MAP] = {"routingMap", routingMap, 0, SYI_ACLNN_BYTES, 0, 2, TO(routing_map)},
        [PROBS] = {"probsOptional", probsOptional, wide, 0, TOKENS + 1, 2, TO(probs)},
        [PERMUTED] = {"permuteTokensOut", permuteTokensOut, out, 0, TOKENS + 1, 2, TO(permuted_tokens)},
        [PERMUTED_PROBS] = {"permuteProbsOutOptional", permuteProbsOutOptional, out | optional, 0, PROBS + 1,
                            1, TO(permuted_probs)},
        [INDICES] = {"sortedIndicesOut", sortedIndicesOut, out, SYI_ACLNN_I32, 0, 1, TO(sorted_indices)},
    };
    aclOpExecutor *e;
    const aclnnStatus st = syi_aclnn_begin(&op, workspaceSize, executor, rules, N_TENSORS, &e);
    if (st != ACLNN_SUCCESS)
        return st;
    if (e->view[PROBS].taken != e->view[PERMUTED_PROBS].taken)
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR,
                         "%s is null and the other is not, want both probsOptional and "
                         "permuteProbsOutOptional or none",
                         e->view[PROBS].taken ? "permuteProbsOutOptional" : "probsOptional");
    syi_aclnn_check_tensors(e, rules);
    plan(e, numOutTokens, dropAndPad);
    return syi_aclnn_end(e, workspaceSize, executor);
}

SYI_ACLNN_SECOND_PHASE(aclnnMoeTokenPermuteWithRoutingMap, op)
