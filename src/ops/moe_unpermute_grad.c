/*
 * moe_unpermute_grad: check and plan.
 */
#include "ops/call.h"

enum { GRAD_TOKENS, INDICES, PERMUTED, MAP, PROBS, GRAD_PERMUTED, GRAD_PROBS, N_TENSORS };

#define OPERATOR moe_unpermute_grad

static const sy_field_info fields[] = {
    [GRAD_TOKENS] =
        SYI_INPUT(grad_tokens, SYI_FLOAT_TYPES, 0, 2, 2, "T H", "gradient of moe_unpermute's tokens"),
    [INDICES] = SYI_INPUT(sorted_indices, SYI_I32, 0, 1, 1, "M", "indices of the forward call"),
    [PERMUTED] = SYI_OPTIONAL(permuted_tokens, 0, GRAD_TOKENS + 1, 2, 2, "M H",
                              "rows of the forward call; required by probs"),
    [MAP] =
        SYI_OPTIONAL(routing_map, SYI_BYTE_TYPES, 0, 2, 2, "T E", "experts of each token; required by probs"),
    [PROBS] = SYI_OPTIONAL(probs, SYI_FLOAT_TYPES, 0, 2, 2, "T E", "weights; missing: 1"),
    [GRAD_PERMUTED] =
        SYI_OUTPUT(grad_permuted_tokens, 0, GRAD_TOKENS + 1, 2, 2, "M H", "gradient of permuted_tokens"),
    [GRAD_PROBS] =
        SYI_OPTIONAL_OUTPUT(grad_probs, 0, PROBS + 1, 2, 2, "T E", "gradient of probs, when probs is given"),
    SYI_SCALAR(drop_and_pad, BOOL, .help = "capacity mode: sorted_indices holds the token of each row"),
    SYI_SCALAR(zero_pad, BOOL, .help = "capacity mode: index -1 marks a row that belongs to no token"),
};

/* Tensors that others make necessary. */
static sy_status check_together(struct syi_call *call)
{
    const sy_moe_unpermute_grad_args *a = &call->args.moe_unpermute_grad;
    if (a->probs != NULL && a->permuted_tokens == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "permuted_tokens",
                        "is missing while probs is given, want the rows that were unpermuted");
    if (a->probs != NULL && a->routing_map == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "routing_map",
                        "is missing while probs is given, want the experts of each token");
    if (a->probs == NULL && call->tensor[GRAD_PROBS] != NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "probs", "is missing while grad_probs is given, want both");
    return SY_OK;
}

/* Limits, and the slots that follow from the sizes. */
static sy_status check_values(struct syi_call *call)
{
    const sy_moe_unpermute_grad_args *a = &call->args.moe_unpermute_grad;
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    plan->n_tokens = syi_bound(call, 'T');
    plan->hidden = syi_bound(call, 'H');
    plan->n_rows = syi_bound(call, 'M');
    plan->n_experts = syi_extent(call, MAP, 1);
    SYI_TRY(syi_check_count(call, "grad_tokens", "tokens", plan->n_tokens));
    SYI_TRY(syi_check_count(call, "grad_tokens", "elements per row", plan->hidden));
    SYI_TRY(syi_check_count(call, "sorted_indices", "rows", plan->n_rows));
    SYI_TRY(syi_check_count(call, "routing_map", "experts", plan->n_experts));
    return syi_check_share(call, a->drop_and_pad, a->zero_pad, a->probs != NULL);
}

static sy_status check_sizes(struct syi_call *call)
{
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    plan->type = syi_type_at(call, GRAD_TOKENS);
    syi_bind(call, 'E', plan->n_experts);
    return syi_check_output(call, "grad_permuted_tokens", plan->n_rows,
                            plan->hidden * (int64_t)syi_float_bytes(plan->type));
}

static void plan_unpermute_grad(struct syi_call *call)
{
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    plan->prob_type = syi_type_at(call, PROBS);
    plan->permuted = syi_rows_of(call, GRAD_PERMUTED);
    plan->tokens = syi_rows_of(call, GRAD_TOKENS);
    plan->saved = syi_rows_of(call, PERMUTED);
    plan->probs = syi_rows_of(call, PROBS);
    plan->grad_probs = syi_rows_of(call, GRAD_PROBS);
    plan->sorted_indices = syi_data(call, INDICES);
    /* A query knows no outputs: it sizes the scratch of a call that has all of them. */
    plan->wants_grad_probs = plan->probs.data != NULL && (call->query || plan->grad_probs.data != NULL);
    if (plan->probs.data != NULL && !plan->capacity)
        plan->map = syi_rows_of(call, MAP);
    call->rows = plan->n_rows;
    call->bytes = syi_moe_rows_bytes(plan);
    if (plan->wants_grad_probs)
        call->bytes += (uint64_t)plan->n_rows * (uint64_t)plan->hidden * syi_float_bytes(plan->type);
}

static const struct syi_steps own = {
    .together = check_together, .values = check_values, .sizes = check_sizes, .plan = plan_unpermute_grad};

SYI_DEFINE_DESCRIBED(moe_unpermute_grad, MOE_UNPERMUTE_GRAD,
                     "gradients of permuted rows and probs from that of moe_unpermute's tokens")
