/* aclnnMoeComputeExpertTokens: the offsets of sy_moe_permute_ids, of rows without elements. */
#include "internal.h"

enum { SORTED, OUT, N_TENSORS };

enum { OFFSETS, PLACES, NO_ELEMENTS }; /* of `list`; the places are not needed */

static aclnnStatus run(aclOpExecutor *e)
{
    const int64_t *offsets = e->list[OFFSETS].data;
    const aclnnStatus st = syi_aclnn_call(e);
    for (int64_t i = 0; st == ACLNN_SUCCESS && i < e->n_experts; i++)
        syi_aclnn_set_integer(e, OUT, i, offsets[i + 1]);
    return st;
}

static const struct syi_aclnn_op op = {"aclnnMoeComputeExpertTokens", SYI_ACLNN_CALLS(moe_permute_ids), run,
                                       false};

SYI_ACLNN_OPERATOR(aclnnMoeComputeExpertTokens, op, const aclTensor *sortedExperts, int64_t numExperts,
                   const aclTensor *out)
{
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [SORTED] = {SYI_NAMED(sortedExperts), SYI_ACLNN_COLUMN, SYI_ACLNN_I32, 0, 2, 0},
        [OUT] = {SYI_NAMED(out), SYI_ACLNN_OUTPUT, SYI_ACLNN_I32, 0, 1, 0},
    };
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    const bool good = syi_aclnn_check_tensors(e, rules), countable = numExperts >= 1 && numExperts < 16777215;
    syi_aclnn_want(e, countable, ACLNN_ERR_PARAM_INVALID, "numExperts", numExperts, "1 to 16777214");
    if (!good || !countable)
        return syi_aclnn_end(e);
    const int64_t n = e->view[SORTED].shape[0];
    const DLTensor *no_elements = syi_aclnn_list(e, NO_ELEMENTS, SY_I32, n, 0);
    e->n_experts = numExperts;
    e->args.permute_ids =
        (sy_moe_permute_ids_args){.tokens = no_elements,
                                  .ids = syi_aclnn_arg(e, SORTED),
                                  .num_experts = numExperts,
                                  .permuted_tokens = no_elements,
                                  .sorted_indices = syi_aclnn_list(e, PLACES, SY_I32, n, -1),
                                  .expert_offsets = syi_aclnn_list(e, OFFSETS, SY_I64, numExperts + 1, -1),
                                  .allow_missing = true};
    (void)syi_aclnn_query(e);
    syi_aclnn_check_shape(e, OUT, numExperts, -1);
    return syi_aclnn_end(e);
}
