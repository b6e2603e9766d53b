/* aclnnMoeReRouting: sy_moe_reorder_chunks, of the rows with their scales, and of the numbers of the rows. */
#include "internal.h"

enum { TOKENS, COUNTS, SCALES, PERMUTED, PERMUTED_SCALES, SOURCE, TOTALS, N_TENSORS };

/* All rows belong to an expert: the operator rejects too many, and leaves rows that are too few. */
static aclnnStatus check_sum(const aclOpExecutor *e)
{
    int64_t left = e->n_rows;
    for (int64_t r = 0; r < e->view[COUNTS].shape[0]; r++)
        for (int64_t i = 0; i < e->n_experts; i++) {
            const int64_t count = syi_aclnn_integer(e, COUNTS, r, i);
            if (count < 0 || count > left)
                return ACLNN_SUCCESS; /* the operator has a sentence for it */
            left -= count;
        }
    if (left == 0)
        return ACLNN_SUCCESS;
    return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                          "%s: expertTokenNumPerRank adds up to %lld, want the %lld rows of tokens",
                          e->op->name, (long long)(e->n_rows - left), (long long)e->n_rows);
}

static aclnnStatus run(aclOpExecutor *e)
{
    int32_t *numbers = e->list[0].data;
    aclnnStatus st = check_sum(e);
    for (int64_t i = 0; i < e->n_rows; i++)
        numbers[i] = (int32_t)i;
    const sy_moe_reorder_chunks_args rows = {.rows = syi_aclnn_arg(e, TOKENS),
                                             .counts = syi_aclnn_arg(e, COUNTS),
                                             .extra = syi_aclnn_arg(e, SCALES),
                                             .reordered_rows = syi_aclnn_arg(e, PERMUTED),
                                             .reordered_extra = syi_aclnn_arg(e, PERMUTED_SCALES)};
    const sy_moe_reorder_chunks_args sources = {
        .rows = &e->list[0], .counts = syi_aclnn_arg(e, COUNTS), .reordered_rows = syi_aclnn_arg(e, SOURCE)};
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_status(e, sy_moe_reorder_chunks(e->ctx, &rows));
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_status(e, sy_moe_reorder_chunks(e->ctx, &sources));
    for (int64_t i = 0; st == ACLNN_SUCCESS && i < e->n_experts; i++) {
        int64_t total = 0;
        for (int64_t r = 0; r < e->view[COUNTS].shape[0]; r++)
            total += syi_aclnn_integer(e, COUNTS, r, i);
        syi_aclnn_set_integer(e, TOTALS, i, total);
    }
    return st;
}

static const struct syi_aclnn_op op = {"aclnnMoeReRouting", .run = run};

static void plan(aclOpExecutor *e)
{
    e->n_rows = e->view[TOKENS].shape[0];
    e->n_experts = e->view[COUNTS].shape[1];
    if (e->n_rows > INT32_MAX)
        SYI_ACLNN_INVALID(e, "tokens has %lld rows, want less than 2^31", (long long)e->n_rows);
    const sy_moe_reorder_chunks_args rows = {.rows = syi_aclnn_arg(e, TOKENS),
                                             .counts = syi_aclnn_arg(e, COUNTS),
                                             .extra = syi_aclnn_arg(e, SCALES)};
    const sy_moe_reorder_chunks_args sources = {.rows = syi_aclnn_list(e, 0, SY_I32, e->n_rows, -1),
                                                .counts = syi_aclnn_arg(e, COUNTS)};
    syi_aclnn_check_shape(e, SCALES, e->n_rows, -1);
    (void)syi_aclnn_query_of(e, "moe_reorder_chunks", &rows, sizeof rows);
    (void)syi_aclnn_query_of(e, "moe_reorder_chunks", &sources, sizeof sources);
    syi_aclnn_check_shape(e, PERMUTED, e->n_rows, e->view[TOKENS].shape[1]);
    syi_aclnn_check_shape(e, PERMUTED_SCALES, e->n_rows, -1);
    syi_aclnn_check_shape(e, SOURCE, e->n_rows, -1);
    syi_aclnn_check_shape(e, TOTALS, e->n_experts, -1);
}

SYI_ACLNN_OPERATOR(aclnnMoeReRouting, op, const aclTensor *tokens, const aclTensor *expertTokenNumPerRank,
                   const aclTensor *perTokenScalesOptional, int64_t expertTokenNumType, int64_t idxType,
                   const aclTensor *permuteTokens, const aclTensor *permutePerTokenScales,
                   const aclTensor *permuteTokenIdx, const aclTensor *expertTokenNum)
{
    const unsigned out = SYI_ACLNN_OUTPUT, integers = SYI_ACLNN_INTEGERS, f32 = SYI_ACLNN_F32;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [TOKENS] = {SYI_NAMED(tokens), 0, SYI_ACLNN_FLOATS | SYI_ACLNN_BIT(ACL_INT8), 0, 2, 0},
        [COUNTS] = {SYI_NAMED(expertTokenNumPerRank), 0, integers, 0, 2, 0},
        [SCALES] = {SYI_NAMED(perTokenScalesOptional), SYI_ACLNN_OPTIONAL, f32, 0, 1, 0},
        [PERMUTED] = {SYI_NAMED(permuteTokens), out, 0, TOKENS + 1, 2, 0},
        [PERMUTED_SCALES] = {SYI_NAMED(permutePerTokenScales), out | SYI_ACLNN_BESIDE, 0, SCALES + 1, 1, 0},
        [SOURCE] = {SYI_NAMED(permuteTokenIdx), out, SYI_ACLNN_I32, 0, 1, 0},
        [TOTALS] = {SYI_NAMED(expertTokenNum), out, 0, COUNTS + 1, 1, 0},
    };
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    const bool good = syi_aclnn_check_tensors(e, rules);
    if (expertTokenNumType != 1 || idxType != 0)
        SYI_ACLNN_INVALID(e, "expertTokenNumType is %lld and idxType %lld, want 1 and 0",
                          (long long)expertTokenNumType, (long long)idxType);
    else if (good)
        plan(e);
    return syi_aclnn_end(e);
}
