/*
 * aclnnMoeTokenPermute, aclnnMoeTokenUnpermute and their gradients: sy_moe_permute_ids and sy_moe_unpermute_ids. The
 * gradient of unpermute is the dispatch of the tokens' gradient to one expert with a place for each row.
 */
#include "internal.h"

#include <string.h>

enum { TOKENS, IDS, PERMUTED, INDICES, N_PERMUTE };
enum { ROWS, SORTED, PROBS, OUT, N_UNPERMUTE };
enum { FORWARD, GRAD, PLACES, WEIGHTS, GRAD_ROWS, GRAD_PROBS, N_GRAD };

#define TO_PERMUTE(field) SYI_ACLNN_FIELD(moe_permute_ids, field)
#define TO_UNPERMUTE(field) SYI_ACLNN_FIELD(moe_unpermute_ids, field)

static const unsigned floats = SYI_ACLNN_FLOATS, i32 = SYI_ACLNN_I32, output = SYI_ACLNN_OUTPUT;

/* Types and ranks, and the mode, which has one value. */
static bool check_tensors(aclOpExecutor *e, const struct syi_aclnn_rule *rules, bool padded)
{
    const bool good = syi_aclnn_check_tensors(e, rules);
    if (padded)
        SYI_ACLNN_INVALID(e, "paddedMode is true, want false");
    return good && !padded;
}

/* ---- Permute ---- */

static const struct syi_aclnn_op permute = {"aclnnMoeTokenPermute", SYI_ACLNN_CALLS(moe_permute_ids),
                                            .on_device = true};

SYI_ACLNN_OPERATOR(aclnnMoeTokenPermute, permute, const aclTensor *tokens, const aclTensor *indices,
                   int64_t numOutTokens, bool paddedMode, const aclTensor *permuteTokensOut,
                   const aclTensor *sortedIndicesOut)
{
    const unsigned column = SYI_ACLNN_COLUMN, integers = SYI_ACLNN_INTEGERS;
    const struct syi_aclnn_rule rules[N_PERMUTE] = {
        [TOKENS] = {SYI_NAMED(tokens), 0, floats, 0, 2, TO_PERMUTE(tokens)},
        [IDS] = {SYI_NAMED(indices), column, integers, 0, 2, TO_PERMUTE(ids)},
        [PERMUTED] = {SYI_NAMED(permuteTokensOut), output, 0, TOKENS + 1, 2, TO_PERMUTE(permuted_tokens)},
        [INDICES] = {SYI_NAMED(sortedIndicesOut), output, i32, 0, 1, TO_PERMUTE(sorted_indices)},
    };
    aclOpExecutor *e = syi_aclnn_begin(&permute, rules, N_PERMUTE, workspaceSize, executor);
    if (!check_tensors(e, rules, paddedMode))
        return syi_aclnn_end(e);
    e->args.permute_ids.num_out_tokens = numOutTokens;
    const sy_query query = syi_aclnn_query(e);
    e->n_tokens = e->view[IDS].shape[0];
    e->n_rows = e->n_tokens * e->view[IDS].shape[1];
    syi_aclnn_check_limits(e, false);
    syi_aclnn_check_shape(e, PERMUTED, query.rows, e->view[TOKENS].shape[1]);
    syi_aclnn_check_shape(e, INDICES, e->n_rows, -1);
    return syi_aclnn_end(e);
}

/* ---- Unpermute, and the gradient of permute ---- */

static const struct syi_aclnn_op unpermute = {"aclnnMoeTokenUnpermute", SYI_ACLNN_CALLS(moe_unpermute_ids),
                                              .on_device = true};
static const struct syi_aclnn_op permute_grad = {"aclnnMoeTokenPermuteGrad",
                                                 SYI_ACLNN_CALLS(moe_unpermute_ids), .on_device = true};

static void plan_unpermute(aclOpExecutor *e, int64_t tokens)
{
    e->n_tokens = tokens;
    e->n_rows = e->view[SORTED].shape[0];
    e->args.unpermute_ids.num_tokens = e->n_tokens;
    (void)syi_aclnn_query(e);
    syi_aclnn_check_limits(e, false);
    syi_aclnn_check_shape(e, OUT, e->n_tokens, e->view[ROWS].shape[1]);
}

SYI_ACLNN_OPERATOR(aclnnMoeTokenUnpermute, unpermute, const aclTensor *permutedTokens,
                   const aclTensor *sortedIndices, const aclTensor *probsOptional, bool paddedMode,
                   const aclIntArray *restoreShapeOptional, const aclTensor *out)
{
    const struct syi_aclnn_rule rules[N_UNPERMUTE] = {
        [ROWS] = {SYI_NAMED(permutedTokens), 0, floats, 0, 2, TO_UNPERMUTE(permuted_tokens)},
        [SORTED] = {SYI_NAMED(sortedIndices), 0, i32, 0, 1, TO_UNPERMUTE(sorted_indices)},
        [PROBS] = {SYI_NAMED(probsOptional), SYI_ACLNN_OPTIONAL, floats, 0, 2, TO_UNPERMUTE(probs)},
        [OUT] = {SYI_NAMED(out), output, 0, ROWS + 1, 2, TO_UNPERMUTE(tokens)},
    };
    (void)restoreShapeOptional; /* of the padded mode */
    aclOpExecutor *e = syi_aclnn_begin(&unpermute, rules, N_UNPERMUTE, workspaceSize, executor);
    if (check_tensors(e, rules, paddedMode))
        plan_unpermute(e, e->view[probsOptional != NULL ? PROBS : SORTED].shape[0]);
    return syi_aclnn_end(e);
}

SYI_ACLNN_OPERATOR(aclnnMoeTokenPermuteGrad, permute_grad, const aclTensor *permutedOutputGrad,
                   const aclTensor *sortedIndices, int64_t numTopk, bool paddedMode, aclTensor *out)
{
    const struct syi_aclnn_rule rules[N_UNPERMUTE] = {
        [ROWS] = {SYI_NAMED(permutedOutputGrad), 0, floats, 0, 2, TO_UNPERMUTE(permuted_tokens)},
        [SORTED] = {SYI_NAMED(sortedIndices), 0, i32, 0, 1, TO_UNPERMUTE(sorted_indices)},
        [PROBS] = {"probs", NULL, SYI_ACLNN_IGNORED, 0, 0, 2, 0},
        [OUT] = {SYI_NAMED(out), output, 0, ROWS + 1, 2, TO_UNPERMUTE(tokens)},
    };
    aclOpExecutor *e = syi_aclnn_begin(&permute_grad, rules, N_UNPERMUTE, workspaceSize, executor);
    if (!check_tensors(e, rules, paddedMode))
        return syi_aclnn_end(e);
    const int64_t n = e->view[SORTED].shape[0];
    if (numTopk < 1 || n % numTopk != 0)
        SYI_ACLNN_INVALID(e, "numTopk is %lld, want a divisor of the %lld sortedIndices", (long long)numTopk,
                          (long long)n);
    else
        plan_unpermute(e, n / numTopk);
    return syi_aclnn_end(e);
}

/* ---- The gradient of unpermute ---- */

/* Of `list`, by choice and token: places of rows, experts of number 0, weights and their gradients; and the places for one
   choice. */
enum { BY_CHOICE, EXPERTS, CHOICE_WEIGHTS, CHOICE_GRADS, LIVE };

/* Rows of one choice: w * grad of its token, at its place. */
static sy_status dispatch_choice(aclOpExecutor *e, int64_t k)
{
    const size_t bytes = e->view[WEIGHTS].elem_bytes, begin = (size_t)k * (size_t)e->n_tokens;
    const bool weighted = e->view[WEIGHTS].taken;
    const int32_t *places = (const int32_t *)e->list[BY_CHOICE].data + begin;
    int32_t *live = e->list[LIVE].data;
    char *weights = weighted ? (char *)e->list[CHOICE_WEIGHTS].data + begin * bytes : NULL;
    for (int64_t t = 0; t < e->n_tokens; t++) {
        const char *w = weighted ? syi_aclnn_row(&e->view[WEIGHTS], t) + (size_t)k * bytes : NULL;
        live[t] = w != NULL && syi_aclnn_is_zero(w, bytes) ? -1 : places[t];
        if (w != NULL)
            memcpy(weights + (size_t)t * bytes, w, bytes);
    }
    const DLTensor gates = sy_tensor(weights, e->view[WEIGHTS].dl.dtype, 1, &e->n_tokens);
    const DLTensor experts = sy_tensor(e->list[EXPERTS].data, SY_I32, 1, &e->n_tokens);
    const sy_moe_dispatch_args args = {.gates = weighted ? &gates : NULL,
                                       .indices = &experts,
                                       .locations = &e->list[LIVE],
                                       .input = syi_aclnn_arg(e, GRAD),
                                       .num_experts = 1,
                                       .capacity = e->view[GRAD_ROWS].shape[0],
                                       .zero_unwritten = k == 0,
                                       .dispatch = syi_aclnn_arg(e, GRAD_ROWS)};
    return sy_moe_dispatch(e->ctx, &args);
}

/* The arguments of the gradients of weights, by choice. */
static sy_moe_dispatch_grad_gate_args dots_of(const aclOpExecutor *e)
{
    return (sy_moe_dispatch_grad_gate_args){.indices = &e->list[EXPERTS],
                                            .locations = &e->list[BY_CHOICE],
                                            .input = syi_aclnn_arg(e, GRAD),
                                            .dispatch = syi_aclnn_arg(e, FORWARD),
                                            .num_experts = 1,
                                            .capacity = e->view[FORWARD].shape[0],
                                            .grad_gates = &e->list[CHOICE_GRADS]};
}

static sy_status weight_gradients(const aclOpExecutor *e, int64_t choices)
{
    const struct syi_aclnn_view *out = &e->view[GRAD_PROBS];
    const char *grads = e->list[CHOICE_GRADS].data;
    const sy_moe_dispatch_grad_gate_args args = dots_of(e);
    const sy_status status = sy_moe_dispatch_grad_gate(e->ctx, &args);
    for (int64_t t = 0; status == SY_OK && t < e->n_tokens; t++) {
        char *row = syi_aclnn_row(out, t);
        for (int64_t k = 0; k < choices; k++)
            memcpy(row + (size_t)k * out->elem_bytes, grads + (size_t)(k * e->n_tokens + t) * out->elem_bytes,
                   out->elem_bytes);
    }
    return status;
}

/* The range is that of unpermute; places of rows that are not there were dropped. A row that two choices have would
   have the gradient of the second alone. `seen` is [rows] zeros, and so again where this succeeds. */
static aclnnStatus check_places(const aclOpExecutor *e, int32_t *seen)
{
    for (int64_t i = 0; i < e->n_rows; i++) {
        const int64_t place = syi_aclnn_integer(e, PLACES, i, 0);
        if (place < -1 || place >= e->n_rows)
            return syi_aclnn_fail(
                ACLNN_ERR_PARAM_INVALID,
                "%s: sortedIndices at position %lld is %lld, want -1 or more and below %lld", e->op->name,
                (long long)i, (long long)place, (long long)e->n_rows);
        if (place >= 0 && seen[place]++ != 0)
            return syi_aclnn_fail(
                ACLNN_ERR_PARAM_INVALID,
                "%s: sortedIndices at position %lld is %lld a second time, want each row once", e->op->name,
                (long long)i, (long long)place);
    }
    if (e->n_rows > 0) /* else there may be no memory */
        memset(seen, 0, (size_t)e->n_rows * sizeof *seen);
    return ACLNN_SUCCESS;
}

static aclnnStatus run_grad(aclOpExecutor *e)
{
    int32_t *places = e->list[BY_CHOICE].data, *experts = e->list[EXPERTS].data;
    const int64_t choices = e->n_tokens > 0 ? e->n_rows / e->n_tokens : 0;
    const struct syi_aclnn_view *rows = &e->view[GRAD_ROWS];
    if (e->n_rows > 0)
        memset(experts, 0, (size_t)e->n_rows * sizeof *experts);
    const aclnnStatus st = check_places(e, experts);
    if (st != ACLNN_SUCCESS)
        return st;
    for (int64_t i = 0; choices == 0 && rows->shape[1] > 0 && i < rows->shape[0]; i++)
        memset(syi_aclnn_row(rows, i), 0, (size_t)rows->shape[1] * rows->elem_bytes); /* that no choice has */
    for (int64_t t = 0; t < e->n_tokens; t++)
        for (int64_t k = 0; k < choices; k++)
            places[k * e->n_tokens + t] = (int32_t)syi_aclnn_integer(e, PLACES, t * choices + k, 0);
    sy_status status = SY_OK;
    for (int64_t k = 0; status == SY_OK && k < choices; k++)
        status = dispatch_choice(e, k);
    if (status == SY_OK && e->view[GRAD_PROBS].taken && choices > 0)
        status = weight_gradients(e, choices);
    return syi_aclnn_status(e, status);
}

static void need_scratch(aclOpExecutor *e)
{
    const int64_t choices = e->view[WEIGHTS].taken ? e->view[WEIGHTS].shape[1] : 1;
    const DLDataType type = e->view[WEIGHTS].dl.dtype;
    const DLTensor *list = syi_aclnn_list(e, LIVE, SY_I32, e->n_tokens, -1);
    const sy_moe_dispatch_args rows = {.indices = list,
                                       .locations = list,
                                       .input = syi_aclnn_arg(e, GRAD),
                                       .num_experts = 1,
                                       .capacity = e->view[GRAD_ROWS].shape[0],
                                       .dispatch = syi_aclnn_arg(e, GRAD_ROWS)};
    (void)syi_aclnn_query_of(e, "moe_dispatch", &rows, sizeof rows);
    for (int i = BY_CHOICE; i <= (e->view[WEIGHTS].taken ? CHOICE_GRADS : EXPERTS); i++)
        (void)syi_aclnn_list(e, i, i <= EXPERTS ? SY_I32 : type, choices, e->n_tokens);
    const sy_moe_dispatch_grad_gate_args dots = dots_of(e);
    if (e->view[GRAD_PROBS].taken)
        (void)syi_aclnn_query_of(e, "moe_dispatch_grad_gate", &dots, sizeof dots);
}

/* It calls several operators, with arguments of their own. */
static const struct syi_aclnn_op unpermute_grad = {"aclnnMoeTokenUnpermuteGrad", .run = run_grad,
                                                   .prepare = need_scratch};

static void plan_grad(aclOpExecutor *e)
{
    e->n_tokens = e->view[GRAD].shape[0];
    e->n_rows = e->view[PLACES].shape[0];
    const bool weighted = e->view[WEIGHTS].taken;
    const int64_t choices = weighted ? e->view[WEIGHTS].shape[1] : 1, width = e->view[GRAD].shape[1];
    const int64_t rows = e->view[FORWARD].taken ? e->view[FORWARD].shape[0] : e->n_rows;
    syi_aclnn_check_shape(e, WEIGHTS, e->n_tokens, choices);
    syi_aclnn_check_shape(e, FORWARD, rows, width);
    if (e->status == ACLNN_SUCCESS && e->n_rows != e->n_tokens * choices) /* probs has as many elements */
        SYI_ACLNN_INVALID(e, "sortedIndices has %lld numbers, want %lld for each of %lld tokens",
                          (long long)e->n_rows, (long long)choices, (long long)e->n_tokens);
    syi_aclnn_check_limits(e, false);
    syi_aclnn_check_shape(e, GRAD_ROWS, rows, width);
    syi_aclnn_check_shape(e, GRAD_PROBS, e->n_tokens, choices);
}

SYI_ACLNN_OPERATOR(aclnnMoeTokenUnpermuteGrad, unpermute_grad, const aclTensor *permutedTokens,
                   const aclTensor *unpermutedTokensGrad, const aclTensor *sortedIndices,
                   const aclTensor *probsOptional, bool paddedMode, const aclIntArray *restoreShapeOptional,
                   aclTensor *permutedTokensGradOut, aclTensor *probsGradOut)
{
    const unsigned forward = probsOptional != NULL ? 0u : (unsigned)SYI_ACLNN_OPTIONAL;
    const unsigned probs_out = output | SYI_ACLNN_BESIDE;
    const struct syi_aclnn_rule rules[N_GRAD] = {
        [FORWARD] = {SYI_NAMED(permutedTokens), forward, 0, GRAD + 1, 2, 0},
        [GRAD] = {SYI_NAMED(unpermutedTokensGrad), 0, floats, 0, 2, 0},
        [PLACES] = {SYI_NAMED(sortedIndices), 0, i32, 0, 1, 0},
        [WEIGHTS] = {SYI_NAMED(probsOptional), SYI_ACLNN_OPTIONAL | SYI_ACLNN_WIDENS, 0, GRAD + 1, 2, 0},
        [GRAD_ROWS] = {SYI_NAMED(permutedTokensGradOut), output, 0, GRAD + 1, 2, 0},
        [GRAD_PROBS] = {SYI_NAMED(probsGradOut), probs_out, 0, WEIGHTS + 1, 2, 0},
    };
    (void)restoreShapeOptional; /* of the padded mode */
    aclOpExecutor *e = syi_aclnn_begin(&unpermute_grad, rules, N_GRAD, workspaceSize, executor);
    if (check_tensors(e, rules, paddedMode))
        plan_grad(e);
    return syi_aclnn_end(e);
}
