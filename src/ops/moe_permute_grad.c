/*
 * moe_permute_grad: check and plan.
 */
#include "ops/call.h"

enum { GRAD_PERMUTED, INDICES, GRAD_PERMUTED_PROBS, MAP, GRAD_TOKENS, GRAD_PROBS, N_TENSORS };

#define OPERATOR moe_permute_grad

static const sy_field_info fields[] = {
    [GRAD_PERMUTED] =
        SYI_INPUT(grad_permuted_tokens, SYI_FLOAT_TYPES, 0, 2, 2, "M H", "gradient of permuted_tokens"),
    [INDICES] = SYI_INPUT(sorted_indices, SYI_I32, 0, 1, 1, "M", "as moe_permute wrote them"),
    [GRAD_PERMUTED_PROBS] =
        SYI_OPTIONAL(grad_permuted_probs, SYI_FLOAT_TYPES, 0, 1, 1, "M", "gradient of permuted_probs"),
    [MAP] = SYI_OPTIONAL(routing_map, SYI_BYTE_TYPES, 0, 2, 2, "T E",
                         "experts of each token; required by packed probs"),
    [GRAD_TOKENS] = SYI_OUTPUT(grad_tokens, 0, GRAD_PERMUTED + 1, 2, 2, "T H", "gradient of tokens"),
    [GRAD_PROBS] = SYI_OPTIONAL_OUTPUT(grad_probs, 0, GRAD_PERMUTED_PROBS + 1, 2, 2, "T E",
                                       "gradient of probs, when grad_permuted_probs is given"),
    SYI_SCALAR(num_experts, I64, .range = "1..i32", .help = "E: experts, 1 or more"),
    SYI_SCALAR(num_tokens, I64, .range = "1..i32", .help = "T: tokens, 1 or more"),
    SYI_SCALAR(drop_and_pad, BOOL, .help = "capacity mode: sorted_indices holds the token of each row"),
    SYI_SCALAR(zero_pad, BOOL, .help = "capacity mode: index -1 marks a row that belongs to no token"),
};

static sy_status check_together(struct syi_call *call)
{
    const sy_moe_permute_grad_args *a = &call->args.moe_permute_grad;
    if (a->grad_permuted_probs == NULL)
        call->tensor[GRAD_PROBS] = NULL; /* stays as it is, so it may be anything */
    if (a->grad_permuted_probs != NULL && a->routing_map == NULL && !a->drop_and_pad)
        return syi_fail(call->ctx, SY_ERR_NULL, "routing_map",
                        "is missing while grad_permuted_probs is given, want the experts of each token");
    return SY_OK;
}

/* Values, and the shapes that follow from them. */
static sy_status check_values(struct syi_call *call)
{
    const sy_moe_permute_grad_args *a = &call->args.moe_permute_grad;
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    plan->n_rows = syi_bound(call, 'M');
    plan->hidden = syi_bound(call, 'H');
    plan->n_tokens = a->num_tokens;
    plan->n_experts = a->num_experts;
    SYI_TRY(syi_check_value(call, "num_experts", a->num_experts, 1, INT32_MAX));
    SYI_TRY(syi_check_value(call, "num_tokens", a->num_tokens, 1, INT32_MAX));
    SYI_TRY(syi_check_count(call, "grad_permuted_tokens", "rows", plan->n_rows));
    SYI_TRY(syi_check_count(call, "grad_permuted_tokens", "elements per row", plan->hidden));
    SYI_TRY(syi_check_matrix(call, MAP, plan->n_tokens, plan->n_experts));
    syi_bind(call, 'T', plan->n_tokens);
    syi_bind(call, 'E', plan->n_experts);
    return syi_check_share(call, a->drop_and_pad, a->zero_pad, a->grad_permuted_probs != NULL);
}

static sy_status check_sizes(struct syi_call *call)
{
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    const int64_t prob_bytes = (int64_t)syi_float_bytes(syi_type_at(call, GRAD_PERMUTED_PROBS));
    plan->type = syi_type_at(call, GRAD_PERMUTED);
    SYI_TRY(syi_check_output(call, "grad_tokens", plan->n_tokens,
                             plan->hidden * (int64_t)syi_float_bytes(plan->type)));
    if (call->tensor[GRAD_PERMUTED_PROBS] != NULL)
        return syi_check_output(call, "grad_probs", plan->n_tokens, plan->n_experts * prob_bytes);
    return SY_OK;
}

static void plan_permute_grad(struct syi_call *call)
{
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    plan->prob_type = syi_type_at(call, GRAD_PERMUTED_PROBS);
    plan->permuted = syi_rows_of(call, GRAD_PERMUTED);
    plan->tokens = syi_rows_of(call, GRAD_TOKENS);
    plan->sorted_indices = syi_data(call, INDICES);
    plan->grad_permuted_probs = syi_data(call, GRAD_PERMUTED_PROBS);
    plan->grad_probs = syi_rows_of(call, GRAD_PROBS);
    /* A query knows no outputs: it sizes the scratch of a call that has all of them. */
    plan->wants_grad_probs =
        plan->grad_permuted_probs != NULL && (call->query || plan->grad_probs.data != NULL);
    if (plan->wants_grad_probs && !plan->capacity)
        plan->map = syi_rows_of(call, MAP);
    call->rows = plan->n_tokens;
    call->bytes = syi_moe_rows_bytes(plan);
}

static const struct syi_steps own = {
    .together = check_together,
    .values = check_values,
    .sizes = check_sizes,
    .plan = plan_permute_grad,
    .late = 1u << MAP,
};

SYI_DEFINE_DESCRIBED(moe_permute_grad, MOE_PERMUTE_GRAD,
                     "gradients of tokens and probs from those of moe_permute's outputs")
