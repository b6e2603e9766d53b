/*
 * aclnnMoeFinalizeRoutingV2: sy_moe_unpermute_ids, whose arguments it has in the same form.
 */
#include "internal.h"

enum { ROWS, PLACES, X1, X2, BIAS, SCALES, EXPERTS, OUT, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(moe_unpermute_ids, field)

static aclnnStatus run(aclOpExecutor *e)
{
    e->rows.data = e->view[ROWS].dl.data;
    e->rows.device = e->view[ROWS].dl.device;
    return syi_aclnn_call(e);
}

static const struct syi_aclnn_op op = {"aclnnMoeFinalizeRoutingV2", SYI_ACLNN_CALLS(moe_unpermute_ids), run,
                                       true};

static void check_shapes(aclOpExecutor *e)
{
    const int64_t width = e->view[OUT].shape[1], tokens = e->view[OUT].shape[0];
    const int64_t choices = e->view[SCALES].taken ? e->view[SCALES].shape[1] : 1;
    const int64_t elements = e->view[ROWS].dims[e->view[ROWS].dl.ndim - 1], n = e->view[PLACES].shape[0];
    if (elements != width)
        SYI_ACLNN_INVALID(e, "expandedX has rows of %lld elements, want %lld as out", (long long)elements,
                          (long long)width);
    syi_aclnn_check_shape(e, X1, tokens, width);
    syi_aclnn_check_shape(e, X2, tokens, width);
    syi_aclnn_check_shape(e, BIAS, e->view[BIAS].shape[0], width);
    syi_aclnn_check_shape(e, SCALES, tokens, choices);
    syi_aclnn_check_shape(e, EXPERTS, tokens, choices);
    if (choices < 1 || n / choices != tokens || n % choices != 0)
        SYI_ACLNN_INVALID(e, "expandedRowIdx has %lld rows, want %lld for each of the %lld tokens",
                          (long long)n, (long long)choices, (long long)tokens);
}

/* The rows of experts with a capacity are one after the other. */
static void plan(aclOpExecutor *e, int64_t drop_pad)
{
    const struct syi_aclnn_view *rows = &e->view[ROWS];
    syi_aclnn_want(e, drop_pad >= 0 && drop_pad <= 3, ACLNN_ERR_PARAM_INVALID, "dropPadMode", drop_pad,
                   "0 to 3");
    check_shapes(e);
    e->list_shape[0][0] = rows->dims[0] * (rows->dl.ndim == 3 ? rows->dims[1] : 1);
    e->list_shape[0][1] = e->view[OUT].shape[1];
    e->rows = rows->dl;
    if (rows->dl.ndim == 3)
        e->rows = sy_tensor(NULL, e->view[OUT].dl.dtype, 2, e->list_shape[0]);
    e->args.unpermute_ids.permuted_tokens = &e->rows;
    e->args.unpermute_ids.num_tokens = e->view[OUT].shape[0];
    e->args.unpermute_ids.num_rows = e->list_shape[0][0] > 0 ? e->list_shape[0][0] : 1;
    e->args.unpermute_ids.by_choice = drop_pad < 2;
    (void)syi_aclnn_query(e);
}

SYI_ACLNN_OPERATOR(aclnnMoeFinalizeRoutingV2, op, const aclTensor *expandedX, const aclTensor *expandedRowIdx,
                   const aclTensor *x1Optional, const aclTensor *x2Optional, const aclTensor *biasOptional,
                   const aclTensor *scalesOptional, const aclTensor *expertIdxOptional, int64_t dropPadMode,
                   const aclTensor *out)
{
    const bool padded = dropPadMode == 1 || dropPadMode == 3;
    const unsigned optional = SYI_ACLNN_OPTIONAL, i32 = SYI_ACLNN_I32;
    const unsigned experts = biasOptional != NULL ? 0u : (unsigned)SYI_ACLNN_IGNORED;
    const unsigned dense = padded ? (unsigned)SYI_ACLNN_DENSE : 0u;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [ROWS] = {SYI_NAMED(expandedX), dense, SYI_ACLNN_FLOATS, 0, padded ? 3 : 2, 0},
        [PLACES] = {SYI_NAMED(expandedRowIdx), 0, i32, 0, 1, TO(sorted_indices)},
        [X1] = {SYI_NAMED(x1Optional), optional, 0, ROWS + 1, 2, TO(residual)},
        [X2] = {SYI_NAMED(x2Optional), optional, 0, ROWS + 1, 2, TO(shared)},
        [BIAS] = {SYI_NAMED(biasOptional), optional, 0, ROWS + 1, 2, TO(bias)},
        [SCALES] = {SYI_NAMED(scalesOptional), optional, SYI_ACLNN_FLOATS, 0, 2, TO(probs)},
        [EXPERTS] = {SYI_NAMED(expertIdxOptional), experts, i32, 0, 2, TO(bias_ids)},
        [OUT] = {SYI_NAMED(out), SYI_ACLNN_OUTPUT, 0, ROWS + 1, 2, TO(tokens)},
    };
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    if (syi_aclnn_check_tensors(e, rules))
        plan(e, dropPadMode);
    return syi_aclnn_end(e);
}
