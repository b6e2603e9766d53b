/* aclnnMoeTokenPermuteWithRoutingMap: sy_moe_permute. */
#include "internal.h"

enum { TOKENS, MAP, PROBS, PERMUTED, PERMUTED_PROBS, INDICES, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(moe_permute, field)

static const struct syi_aclnn_op op = {"aclnnMoeTokenPermuteWithRoutingMap", SYI_ACLNN_CALLS(moe_permute),
                                       .on_device = true};

SYI_ACLNN_OPERATOR(aclnnMoeTokenPermuteWithRoutingMap, op, const aclTensor *tokens,
                   const aclTensor *routingMap, const aclTensor *probsOptional, int64_t numOutTokens,
                   bool dropAndPad, aclTensor *permuteTokensOut, aclTensor *permuteProbsOutOptional,
                   aclTensor *sortedIndicesOut)
{
    const unsigned out = SYI_ACLNN_OUTPUT, optional = SYI_ACLNN_OPTIONAL, wide = optional | SYI_ACLNN_WIDENS;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [TOKENS] = {SYI_NAMED(tokens), 0, SYI_ACLNN_FLOATS, 0, 2, TO(tokens)},
        [MAP] = {SYI_NAMED(routingMap), 0, SYI_ACLNN_BYTES, 0, 2, TO(routing_map)},
        [PROBS] = {SYI_NAMED(probsOptional), wide, 0, TOKENS + 1, 2, TO(probs)},
        [PERMUTED] = {SYI_NAMED(permuteTokensOut), out, 0, TOKENS + 1, 2, TO(permuted_tokens)},
        [PERMUTED_PROBS] = {SYI_NAMED(permuteProbsOutOptional), out | optional, 0, PROBS + 1, 1,
                            TO(permuted_probs)},
        [INDICES] = {SYI_NAMED(sortedIndicesOut), out, SYI_ACLNN_I32, 0, 1, TO(sorted_indices)},
    };
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    if ((probsOptional != NULL) != (permuteProbsOutOptional != NULL))
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR,
                         "%s is null and the other is not, want both probsOptional and "
                         "permuteProbsOutOptional or none",
                         probsOptional != NULL ? "permuteProbsOutOptional" : "probsOptional");
    if (!syi_aclnn_check_tensors(e, rules))
        return syi_aclnn_end(e);
    e->args.permute.num_out_tokens = numOutTokens;
    e->args.permute.drop_and_pad = dropAndPad;
    e->n_rows = syi_aclnn_query(e).rows;
    e->n_tokens = e->view[TOKENS].shape[0];
    e->n_experts = e->view[MAP].shape[1];
    syi_aclnn_check_limits(e, dropAndPad);
    syi_aclnn_check_shape(e, PERMUTED, e->n_rows, e->view[TOKENS].shape[1]);
    syi_aclnn_check_shape(e, PERMUTED_PROBS, e->n_rows, -1);
    syi_aclnn_check_shape(e, INDICES, e->n_rows, -1);
    return syi_aclnn_end(e);
}
