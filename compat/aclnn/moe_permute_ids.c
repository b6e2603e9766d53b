/*
 * aclnnMoeTokenPermute, aclnnMoeTokenUnpermute and their gradients: sy_moe_permute_ids and sy_moe_unpermute_ids. The
 * gradient of unpermute is the dispatch of the tokens' gradient to one expert with a place for each row.
 */
#include "internal.h"

#include <string.h>

#include "aclnnop/aclnn_moe_token_permute.h"
#include "aclnnop/aclnn_moe_token_permute_grad.h"
#include "aclnnop/aclnn_moe_token_unpermute.h"
#include "aclnnop/aclnn_moe_token_unpermute_grad.h"

enum { TOKENS, IDS, PERMUTED, INDICES, N_PERMUTE };
enum { ROWS, SORTED, PROBS, OUT, N_UNPERMUTE };
enum { FORWARD, GRAD, PLACES, WEIGHTS, GRAD_ROWS, GRAD_PROBS, N_GRAD };

static const unsigned f32s = SYI_ACLNN_FLOATS, i32 = SYI_ACLNN_BIT(ACL_INT32);

/* Null, types and ranks, and the mode, which has one value. */
static aclnnStatus check_tensors(aclOpExecutor *e, const struct syi_aclnn_rule *rules, int n, bool padded)
{
    aclnnStatus st = syi_aclnn_check_null(e, rules, n);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(e, rules);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_ranks(e, rules);
    if (st == ACLNN_SUCCESS && padded)
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: paddedMode is true, want false", e->op->name);
    return st;
}

/* ---- Permute ----------------------------------------------------------------------------------------- */

static aclnnStatus run_permute(aclOpExecutor *e, char *extra)
{
    (void)extra;
    return syi_aclnn_status(e, sy_moe_permute_ids(e->ctx, &e->args.permute_ids));
}

static const struct syi_aclnn_op permute = {"aclnnMoeTokenPermute", run_permute, true};

static aclnnStatus plan_permute(aclOpExecutor *e, int64_t num_out_tokens)
{
    sy_query query = {0};
    e->args.permute_ids = (sy_moe_permute_ids_args){.tokens = syi_aclnn_arg(e, TOKENS),
                                                    .ids = syi_aclnn_arg(e, IDS),
                                                    .num_out_tokens = num_out_tokens,
                                                    .permuted_tokens = syi_aclnn_arg(e, PERMUTED),
                                                    .sorted_indices = syi_aclnn_arg(e, INDICES)};
    aclnnStatus st = syi_aclnn_status(e, sy_moe_permute_ids_query(e->ctx, &e->args.permute_ids, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    e->n_tokens = e->view[IDS].shape[0];
    e->n_rows = e->n_tokens * e->view[IDS].shape[1];
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_limits(e, false);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, PERMUTED, query.rows, e->view[TOKENS].shape[1]);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, INDICES, e->n_rows, -1);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

aclnnStatus aclnnMoeTokenPermuteGetWorkspaceSize(const aclTensor *tokens, const aclTensor *indices,
                                                 int64_t numOutTokens, bool paddedMode,
                                                 const aclTensor *permuteTokensOut,
                                                 const aclTensor *sortedIndicesOut, uint64_t *workspaceSize,
                                                 aclOpExecutor **executor)
{
    const unsigned out = SYI_ACLNN_OUTPUT;
    const struct syi_aclnn_rule rules[N_PERMUTE] = {
        [TOKENS] = {"tokens", tokens, 0, f32s, 0, 2},
        [IDS] = {"indices", indices, SYI_ACLNN_COLUMN, i32 | SYI_ACLNN_BIT(ACL_INT64), 0, 2},
        [PERMUTED] = {"permuteTokensOut", permuteTokensOut, out, 0, TOKENS + 1, 2},
        [INDICES] = {"sortedIndicesOut", sortedIndicesOut, out, i32, 0, 1},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&permute, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check_tensors(e, rules, N_PERMUTE, paddedMode);
    if (st == ACLNN_SUCCESS)
        st = plan_permute(e, numOutTokens);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeTokenPermute(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                 aclrtStream stream)
{
    return syi_aclnn_execute(&permute, workspace, workspaceSize, executor, stream);
}

/* ---- Unpermute, and the gradient of permute ---------------------------------------------------------- */

static aclnnStatus run_unpermute(aclOpExecutor *e, char *extra)
{
    (void)extra;
    return syi_aclnn_status(e, sy_moe_unpermute_ids(e->ctx, &e->args.unpermute_ids));
}

static const struct syi_aclnn_op unpermute = {"aclnnMoeTokenUnpermute", run_unpermute, true};
static const struct syi_aclnn_op permute_grad = {"aclnnMoeTokenPermuteGrad", run_unpermute, true};

/* `tokens` is T where there are no probs to give it. */
static aclnnStatus plan_unpermute(aclOpExecutor *e, int64_t tokens)
{
    sy_query query = {0};
    e->n_tokens = e->view[PROBS].taken ? e->view[PROBS].shape[0] : tokens;
    e->n_rows = e->view[SORTED].shape[0];
    e->args.unpermute_ids = (sy_moe_unpermute_ids_args){.permuted_tokens = syi_aclnn_arg(e, ROWS),
                                                        .sorted_indices = syi_aclnn_arg(e, SORTED),
                                                        .probs = syi_aclnn_arg(e, PROBS),
                                                        .num_tokens = e->n_tokens,
                                                        .tokens = syi_aclnn_arg(e, OUT)};
    aclnnStatus st = syi_aclnn_status(e, sy_moe_unpermute_ids_query(e->ctx, &e->args.unpermute_ids, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_limits(e, false);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, OUT, e->n_tokens, e->view[ROWS].shape[1]);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

aclnnStatus aclnnMoeTokenUnpermuteGetWorkspaceSize(const aclTensor *permutedTokens,
                                                   const aclTensor *sortedIndices,
                                                   const aclTensor *probsOptional, bool paddedMode,
                                                   const aclIntArray *restoreShapeOptional,
                                                   const aclTensor *out, uint64_t *workspaceSize,
                                                   aclOpExecutor **executor)
{
    const struct syi_aclnn_rule rules[N_UNPERMUTE] = {
        [ROWS] = {"permutedTokens", permutedTokens, 0, f32s, 0, 2},
        [SORTED] = {"sortedIndices", sortedIndices, 0, i32, 0, 1},
        [PROBS] = {"probsOptional", probsOptional, SYI_ACLNN_OPTIONAL, f32s, 0, 2},
        [OUT] = {"out", out, SYI_ACLNN_OUTPUT, 0, ROWS + 1, 2},
    };
    (void)restoreShapeOptional; /* of the padded mode */
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&unpermute, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check_tensors(e, rules, N_UNPERMUTE, paddedMode);
    if (st == ACLNN_SUCCESS)
        st = plan_unpermute(e, e->view[SORTED].shape[0]);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeTokenUnpermute(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                   aclrtStream stream)
{
    return syi_aclnn_execute(&unpermute, workspace, workspaceSize, executor, stream);
}

aclnnStatus aclnnMoeTokenPermuteGradGetWorkspaceSize(const aclTensor *permutedOutputGrad,
                                                     const aclTensor *sortedIndices, int64_t numTopk,
                                                     bool paddedMode, aclTensor *out, uint64_t *workspaceSize,
                                                     aclOpExecutor **executor)
{
    const struct syi_aclnn_rule rules[N_UNPERMUTE] = {
        [ROWS] = {"permutedOutputGrad", permutedOutputGrad, 0, f32s, 0, 2},
        [SORTED] = {"sortedIndices", sortedIndices, 0, i32, 0, 1},
        [PROBS] = {"probs", NULL, SYI_ACLNN_IGNORED, 0, 0, 2},
        [OUT] = {"out", out, SYI_ACLNN_OUTPUT, 0, ROWS + 1, 2},
    };
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&permute_grad, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check_tensors(e, rules, N_UNPERMUTE, paddedMode);
    if (st == ACLNN_SUCCESS && (numTopk < 1 || e->view[SORTED].shape[0] % numTopk != 0))
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                            "%s: numTopk is %lld, want a divisor of the %lld sortedIndices",
                            permute_grad.name, (long long)numTopk, (long long)e->view[SORTED].shape[0]);
    if (st == ACLNN_SUCCESS)
        st = plan_unpermute(e, e->view[SORTED].shape[0] / numTopk);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeTokenPermuteGrad(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                     aclrtStream stream)
{
    return syi_aclnn_execute(&permute_grad, workspace, workspaceSize, executor, stream);
}

/* ---- The gradient of unpermute ----------------------------------------------------------------------- */

static bool is_zero(const char *value, size_t bytes)
{
    uint32_t wide = 0;
    uint16_t narrow = 0;
    if (bytes == sizeof narrow)
        memcpy(&narrow, value, sizeof narrow);
    else
        memcpy(&wide, value, sizeof wide);
    return (narrow & 0x7fff) == 0 && (wide & 0x7fffffff) == 0;
}

/* The extra memory: K lists of T places, T experts of number 0, T places for one choice, weights and their gradients by
   choice. */
struct kept {
    int32_t *places, *experts, *live;
    char *weights, *grads;
};

static struct kept kept_of(const aclOpExecutor *e, char *extra)
{
    const size_t tokens = (size_t)e->n_tokens, rows = (size_t)e->n_rows, bytes = e->view[WEIGHTS].elem_bytes;
    int32_t *numbers = (int32_t *)(void *)extra;
    char *rest = extra + (2 * rows + tokens) * sizeof *numbers;
    return (struct kept){numbers, numbers + rows, numbers + 2 * rows, rest, rest + rows * bytes};
}

/* Rows of one choice: w * grad of its token, at its place. */
static sy_status dispatch_choice(const aclOpExecutor *e, const struct kept *kept, int64_t k, bool first)
{
    const size_t bytes = e->view[WEIGHTS].elem_bytes, tokens = (size_t)e->n_tokens;
    const bool weighted = e->view[WEIGHTS].taken;
    for (size_t t = 0; t < tokens; t++) {
        const char *w = weighted ? syi_aclnn_row(&e->view[WEIGHTS], (int64_t)t) + (size_t)k * bytes : NULL;
        kept->live[t] = w != NULL && is_zero(w, bytes) ? -1 : kept->places[(size_t)k * tokens + t];
        if (w != NULL)
            memcpy(kept->weights + ((size_t)k * tokens + t) * bytes, w, bytes);
    }
    int64_t shape[1] = {e->n_tokens};
    const DLTensor gates =
        sy_tensor(kept->weights + (size_t)k * tokens * bytes, e->view[WEIGHTS].dl.dtype, 1, shape);
    const DLTensor experts = sy_tensor(kept->experts, SY_I32, 1, shape),
                   live = sy_tensor(kept->live, SY_I32, 1, shape);
    const sy_moe_dispatch_args args = {.gates = weighted ? &gates : NULL,
                                       .indices = &experts,
                                       .locations = &live,
                                       .input = syi_aclnn_arg(e, GRAD),
                                       .num_experts = 1,
                                       .capacity = e->view[GRAD_ROWS].shape[0],
                                       .zero_unwritten = first,
                                       .dispatch = syi_aclnn_arg(e, GRAD_ROWS)};
    return sy_moe_dispatch(e->ctx, &args);
}

static sy_status weight_gradients(const aclOpExecutor *e, const struct kept *kept, int64_t choices)
{
    const struct syi_aclnn_view *out = &e->view[GRAD_PROBS];
    int64_t shape[2] = {choices, e->n_tokens};
    const DLTensor experts = sy_tensor(kept->experts, SY_I32, 2, shape),
                   at = sy_tensor(kept->places, SY_I32, 2, shape);
    const DLTensor grads = sy_tensor(kept->grads, out->dl.dtype, 2, shape);
    const sy_moe_dispatch_grad_gate_args args = {.indices = &experts,
                                                 .locations = &at,
                                                 .input = syi_aclnn_arg(e, GRAD),
                                                 .dispatch = syi_aclnn_arg(e, FORWARD),
                                                 .num_experts = 1,
                                                 .capacity = e->view[FORWARD].shape[0],
                                                 .grad_gates = &grads};
    const sy_status status = sy_moe_dispatch_grad_gate(e->ctx, &args);
    for (int64_t t = 0; status == SY_OK && t < e->n_tokens; t++) {
        char *row = (char *)out->dl.data + (syi_aclnn_row(out, t) - (const char *)out->dl.data);
        for (int64_t k = 0; k < choices; k++)
            memcpy(row + (size_t)k * out->elem_bytes,
                   kept->grads + (size_t)(k * e->n_tokens + t) * out->elem_bytes, out->elem_bytes);
    }
    return status;
}

/* The range is that of unpermute; places of rows that are not there were dropped. A row that two choices have would
   have the gradient of the second alone. `seen` is [rows] zeros, and so again where this succeeds. */
static aclnnStatus check_places(const aclOpExecutor *e, int32_t *seen)
{
    for (int64_t i = 0; i < e->n_rows; i++) {
        const int32_t place = syi_aclnn_number(e, PLACES, i);
        if (place < -1 || place >= e->n_rows)
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                                  "%s: sortedIndices at position %lld is %d, want -1 or more and below %lld",
                                  e->op->name, (long long)i, (int)place, (long long)e->n_rows);
        if (place >= 0 && seen[place]++ != 0)
            return syi_aclnn_fail(
                ACLNN_ERR_PARAM_INVALID,
                "%s: sortedIndices at position %lld is %d a second time, want each row once", e->op->name,
                (long long)i, (int)place);
    }
    if (e->n_rows > 0) /* else there may be no memory */
        memset(seen, 0, (size_t)e->n_rows * sizeof *seen);
    return ACLNN_SUCCESS;
}

static aclnnStatus run_grad(aclOpExecutor *e, char *extra)
{
    const struct kept kept = kept_of(e, extra);
    const int64_t choices = e->n_tokens > 0 ? e->n_rows / e->n_tokens : 0;
    const struct syi_aclnn_view *rows = &e->view[GRAD_ROWS];
    if (e->n_rows > 0)
        memset(kept.experts, 0, (size_t)e->n_rows * sizeof *kept.experts);
    const aclnnStatus st = check_places(e, kept.experts);
    if (st != ACLNN_SUCCESS)
        return st;
    for (int64_t i = 0; choices == 0 && rows->shape[1] > 0 && i < rows->shape[0];
         i++) /* that no choice has */
        memset((char *)rows->dl.data + (syi_aclnn_row(rows, i) - (const char *)rows->dl.data), 0,
               (size_t)rows->shape[1] * rows->elem_bytes);
    for (int64_t t = 0; t < e->n_tokens; t++)
        for (int64_t k = 0; k < choices; k++)
            kept.places[k * e->n_tokens + t] = syi_aclnn_number(e, PLACES, t * choices + k);
    sy_status status = SY_OK;
    for (int64_t k = 0; status == SY_OK && k < choices; k++)
        status = dispatch_choice(e, &kept, k, k == 0);
    if (status == SY_OK && e->view[GRAD_PROBS].taken && choices > 0)
        status = weight_gradients(e, &kept, choices);
    return syi_aclnn_status(e, status);
}

static const struct syi_aclnn_op unpermute_grad = {"aclnnMoeTokenUnpermuteGrad", run_grad, false};

static aclnnStatus need_scratch(aclOpExecutor *e, int64_t choices)
{
    int64_t one[1] = {e->n_tokens}, all[2] = {choices, e->n_tokens};
    sy_query query = {0};
    const DLTensor list = sy_tensor(NULL, SY_I32, 1, one), lists = sy_tensor(NULL, SY_I32, 2, all);
    const sy_moe_dispatch_args rows = {.indices = &list,
                                       .locations = &list,
                                       .input = syi_aclnn_arg(e, GRAD),
                                       .num_experts = 1,
                                       .capacity = e->view[GRAD_ROWS].shape[0],
                                       .dispatch = syi_aclnn_arg(e, GRAD_ROWS)};
    aclnnStatus st = syi_aclnn_status(e, sy_moe_dispatch_query(e->ctx, &rows, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    if (st != ACLNN_SUCCESS || !e->view[GRAD_PROBS].taken)
        return st;
    const sy_moe_dispatch_grad_gate_args dots = {.indices = &lists,
                                                 .locations = &lists,
                                                 .input = syi_aclnn_arg(e, GRAD),
                                                 .dispatch = syi_aclnn_arg(e, FORWARD),
                                                 .num_experts = 1,
                                                 .capacity = e->view[FORWARD].shape[0]};
    st = syi_aclnn_status(e, sy_moe_dispatch_grad_gate_query(e->ctx, &dots, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    return st;
}

static aclnnStatus plan_grad(aclOpExecutor *e)
{
    e->n_tokens = e->view[GRAD].shape[0];
    e->n_rows = e->view[PLACES].shape[0];
    const bool weighted = e->view[WEIGHTS].taken;
    const int64_t choices = weighted ? e->view[WEIGHTS].shape[1] : 1, width = e->view[GRAD].shape[1];
    const int64_t rows = e->view[FORWARD].taken ? e->view[FORWARD].shape[0] : e->n_rows;
    aclnnStatus st = syi_aclnn_check_shape(e, WEIGHTS, e->n_tokens, choices);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, FORWARD, rows, width);
    if (st == ACLNN_SUCCESS && e->n_rows != e->n_tokens * choices) /* probs has as many elements */
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                            "%s: sortedIndices has %lld numbers, want %lld for each of %lld tokens",
                            e->op->name, (long long)e->n_rows, (long long)choices, (long long)e->n_tokens);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_limits(e, false);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, GRAD_ROWS, rows, width);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, GRAD_PROBS, e->n_tokens, choices);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_alias(e, -1, -1);
    e->extra_bytes = (2 * (size_t)e->n_rows + (size_t)e->n_tokens) * sizeof(int32_t) +
                     2 * (size_t)e->n_rows * e->view[WEIGHTS].elem_bytes;
    return st == ACLNN_SUCCESS ? need_scratch(e, choices) : st;
}

aclnnStatus aclnnMoeTokenUnpermuteGradGetWorkspaceSize(
    const aclTensor *permutedTokens, const aclTensor *unpermutedTokensGrad, const aclTensor *sortedIndices,
    const aclTensor *probsOptional, bool paddedMode, const aclIntArray *restoreShapeOptional,
    aclTensor *permutedTokensGradOut, aclTensor *probsGradOut, uint64_t *workspaceSize,
    aclOpExecutor **executor)
{
    const bool weighted = probsOptional != NULL;
    const unsigned out = SYI_ACLNN_OUTPUT, forward = weighted ? 0u : (unsigned)SYI_ACLNN_OPTIONAL;
    const unsigned probs_out = out | (weighted ? 0u : (unsigned)SYI_ACLNN_IGNORED);
    const struct syi_aclnn_rule rules[N_GRAD] = {
        [FORWARD] = {"permutedTokens", permutedTokens, forward, 0, GRAD + 1, 2},
        [GRAD] = {"unpermutedTokensGrad", unpermutedTokensGrad, 0, f32s, 0, 2},
        [PLACES] = {"sortedIndices", sortedIndices, 0, i32, 0, 1},
        [WEIGHTS] = {"probsOptional", probsOptional, SYI_ACLNN_OPTIONAL | SYI_ACLNN_WIDENS, 0, GRAD + 1, 2},
        [GRAD_ROWS] = {"permutedTokensGradOut", permutedTokensGradOut, out, 0, GRAD + 1, 2},
        [GRAD_PROBS] = {"probsGradOut", probsGradOut, probs_out, 0, WEIGHTS + 1, 2},
    };
    (void)restoreShapeOptional; /* of the padded mode */
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin(&unpermute_grad, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check_tensors(e, rules, N_GRAD, paddedMode);
    if (st == ACLNN_SUCCESS)
        st = plan_grad(e);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeTokenUnpermuteGrad(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                       aclrtStream stream)
{
    return syi_aclnn_execute(&unpermute_grad, workspace, workspaceSize, executor, stream);
}
