/*
 * moe_permute_grad: check and plan.
 */
#include "ops/call.h"

enum { GRAD_PERMUTED, INDICES, GRAD_PERMUTED_PROBS, MAP, GRAD_TOKENS, GRAD_PROBS, N_TENSORS };

#define FIELD(name) #name, offsetof(sy_moe_permute_grad_args, name)

static const struct syi_rule rules[N_TENSORS] = {
    [GRAD_PERMUTED] = {FIELD(grad_permuted_tokens), 0, SYI_FLOAT_TYPES, 0, 2, 2},
    [INDICES] = {FIELD(sorted_indices), SYI_VECTOR, SYI_BIT(SYI_I32), 0, 1, 1},
    [GRAD_PERMUTED_PROBS] = {FIELD(grad_permuted_probs), SYI_OPTIONAL | SYI_VECTOR, SYI_FLOAT_TYPES, 0, 1, 1},
    [MAP] = {FIELD(routing_map), SYI_OPTIONAL, SYI_BYTE_TYPES, 0, 2, 2},
    [GRAD_TOKENS] = {FIELD(grad_tokens), SYI_OUT, 0, GRAD_PERMUTED + 1, 2, 2},
    [GRAD_PROBS] = {FIELD(grad_probs), SYI_OUT | SYI_OPTIONAL, 0, GRAD_PERMUTED_PROBS + 1, 2, 2},
};

static sy_status check_inputs(struct syi_call *call, struct syi_moe_rows_plan *plan)
{
    const sy_moe_permute_grad_args *a = &call->args.moe_permute_grad;
    if (a->grad_permuted_probs == NULL)
        call->tensor[GRAD_PROBS] = NULL; /* stays as it is, so it may be anything */
    if (a->grad_permuted_probs != NULL && a->routing_map == NULL && !a->drop_and_pad)
        return syi_fail(call->ctx, SY_ERR_NULL, "routing_map",
                        "is missing while grad_permuted_probs is given, want the experts of each token");
    sy_status st = syi_check_tensors(call, false);
    if (st != SY_OK)
        return st;
    plan->n_rows = syi_extent(call, GRAD_PERMUTED, 0);
    plan->hidden = syi_extent(call, GRAD_PERMUTED, 1);
    plan->n_tokens = a->num_tokens;
    plan->n_experts = a->num_experts;
    st = syi_check_vector(call, INDICES, plan->n_rows);
    return st == SY_OK ? syi_check_vector(call, GRAD_PERMUTED_PROBS, plan->n_rows) : st;
}

/* Values, and the shapes that follow from them. */
static sy_status check_values(struct syi_call *call, struct syi_moe_rows_plan *plan)
{
    const sy_moe_permute_grad_args *a = &call->args.moe_permute_grad;
    sy_status st = syi_check_value(call, "num_experts", a->num_experts, 1, INT32_MAX);
    if (st == SY_OK)
        st = syi_check_value(call, "num_tokens", a->num_tokens, 1, INT32_MAX);
    if (st == SY_OK)
        st = syi_check_count(call, "grad_permuted_tokens", "rows", plan->n_rows);
    if (st == SY_OK)
        st = syi_check_count(call, "grad_permuted_tokens", "elements per row", plan->hidden);
    if (st == SY_OK)
        st = syi_check_matrix(call, MAP, plan->n_tokens, plan->n_experts);
    if (st != SY_OK)
        return st;
    plan->capacity = a->drop_and_pad;
    plan->zero_pad = a->zero_pad;
    return syi_check_share(call, plan, a->grad_permuted_probs != NULL);
}

/* Overflow and the outputs. */
static sy_status check_outputs(struct syi_call *call, struct syi_moe_rows_plan *plan)
{
    const int64_t prob_bytes = (int64_t)syi_float_bytes(syi_type_at(call, GRAD_PERMUTED_PROBS));
    plan->type = syi_type_at(call, GRAD_PERMUTED);
    sy_status st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_check_output(call, "grad_tokens", plan->n_tokens,
                              plan->hidden * (int64_t)syi_float_bytes(plan->type));
    if (st == SY_OK && call->tensor[GRAD_PERMUTED_PROBS] != NULL)
        st = syi_check_output(call, "grad_probs", plan->n_tokens, plan->n_experts * prob_bytes);
    if (st == SY_OK)
        st = syi_check_matrix(call, GRAD_TOKENS, plan->n_tokens, plan->hidden);
    return st == SY_OK ? syi_check_matrix(call, GRAD_PROBS, plan->n_tokens, plan->n_experts) : st;
}

static sy_status check(struct syi_call *call)
{
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    sy_status st = check_inputs(call, plan);
    if (st == SY_OK)
        st = check_values(call, plan);
    if (st == SY_OK)
        st = check_outputs(call, plan);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    plan->prob_type = syi_type_at(call, GRAD_PERMUTED_PROBS);
    plan->permuted = syi_rows_of(call, GRAD_PERMUTED);
    plan->tokens = syi_rows_of(call, GRAD_TOKENS);
    plan->sorted_indices = syi_data(call, INDICES);
    plan->grad_permuted_probs = syi_data(call, GRAD_PERMUTED_PROBS);
    plan->grad_probs = syi_rows_of(call, GRAD_PROBS);
    plan->wants_grad_probs = plan->grad_probs.data != NULL;
    if (plan->wants_grad_probs && !plan->capacity)
        plan->map = syi_rows_of(call, MAP);
    call->rows = plan->n_tokens;
    call->bytes = syi_moe_rows_bytes(plan);
    return SY_OK;
}

static const struct syi_op op = {
    "moe_permute_grad", SYI_MOE_PERMUTE_GRAD, sizeof(sy_moe_permute_grad_args), N_TENSORS, rules, check};

sy_status sy_moe_permute_grad_n(sy_ctx *ctx, const sy_moe_permute_grad_args *args, size_t args_bytes)
{
    return syi_run(ctx, &op, args, args_bytes);
}

sy_status sy_moe_permute_grad_query_n(sy_ctx *ctx, const sy_moe_permute_grad_args *args, size_t args_bytes,
                                      sy_query *query, size_t query_bytes)
{
    return syi_query(ctx, &op, args, args_bytes, query, query_bytes);
}
