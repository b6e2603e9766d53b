/*
 * moe_unpermute: check and plan.
 */
#include "ops/row_codes.h"

enum { PERMUTED, INDICES, MAP, PROBS, SCALES, TOKENS, N_TENSORS };

#define OPERATOR moe_unpermute

static const sy_field_info fields[] = {
    [PERMUTED] = SYI_INPUT(permuted_tokens, SYI_FLOAT_TYPES, 0, 2, 2, "M H", "rows grouped by expert"),
    [INDICES] = SYI_INPUT(sorted_indices, SYI_I32, 0, 1, 1, "M",
                          "row of each slot; capacity mode: token of each row"),
    [MAP] = SYI_OPTIONAL(routing_map, SYI_BYTE_TYPES, 0, 2, 2, "T E",
                         "experts of each token; required by packed probs"),
    [PROBS] = SYI_OPTIONAL(probs, SYI_FLOAT_TYPES, 0, 2, 2, "T E", "weights; missing: 1"),
    [SCALES] =
        SYI_OPTIONAL(permuted_scales, SYI_SCALE_TYPES, 0, 2, 2, "M G", "with row_format: scales of the rows"),
    [TOKENS] = SYI_OUTPUT(tokens, 0, PERMUTED + 1, 2, 2, "T H", "the weighted sum of each token's rows"),
    SYI_SCALAR(num_tokens, I64, .help = "T, when neither probs nor routing_map is given"),
    SYI_SCALAR(drop_and_pad, BOOL, .help = "capacity mode: sorted_indices holds the token of each row"),
    SYI_SCALAR(zero_pad, BOOL, .help = "capacity mode: index -1 marks a row that belongs to no token"),
    SYI_CODED_INPUT_FIELD,
};

/* Tensors that others make necessary. */
static sy_status check_together(struct syi_call *call)
{
    const sy_moe_unpermute_args *a = &call->args.moe_unpermute;
    if (a->probs != NULL && a->routing_map == NULL && !a->drop_and_pad)
        return syi_fail(call->ctx, SY_ERR_NULL, "routing_map",
                        "is missing while probs is given, want the experts of each token");
    if (a->probs == NULL && a->routing_map == NULL && a->num_tokens == 0 && syi_extent(call, PERMUTED, 0) > 0)
        return syi_fail(call->ctx, SY_ERR_NULL, "num_tokens",
                        "is 0 without probs and routing_map, want the number of tokens");
    return SY_OK;
}

static sy_status bind(struct syi_call *call)
{
    const int known = call->tensor[PROBS] != NULL ? PROBS : MAP; /* what tells T and E */
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    plan->n_rows = syi_extent(call, PERMUTED, 0);
    plan->hidden = syi_extent(call, PERMUTED, 1);
    plan->n_tokens =
        call->tensor[known] != NULL ? syi_extent(call, known, 0) : call->args.moe_unpermute.num_tokens;
    plan->n_experts = syi_extent(call, known, 1);
    syi_bind(call, 'T', plan->n_tokens);
    syi_bind(call, 'E', plan->n_experts);
    SYI_TRY(syi_check_shapes(call, PERMUTED, MAP));
    return syi_check_shapes(call, SCALES, SCALES + 1);
}

/* T is given once, or twice with the same value. */
static sy_status check_tokens(struct syi_call *call, int64_t n_tokens)
{
    const int64_t said = call->args.moe_unpermute.num_tokens;
    const char *source = call->tensor[PROBS] != NULL ? "probs"
                         : call->tensor[MAP] != NULL ? "routing_map"
                                                     : NULL;
    SYI_TRY(syi_check_value(call, "num_tokens", said, 0, INT64_MAX));
    if (source == NULL || said == 0 || said == n_tokens)
        return syi_check_count(call, source != NULL ? source : "num_tokens", "tokens", n_tokens);
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_NONE, "num_tokens", said, n_tokens,
                         "is %lld, want %lld, the rows of %s, or 0", (long long)said, (long long)n_tokens,
                         source);
}

/* Values, and the slots that follow from them. */
static sy_status check_values(struct syi_call *call)
{
    const sy_moe_unpermute_args *a = &call->args.moe_unpermute;
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    SYI_TRY(check_tokens(call, plan->n_tokens));
    SYI_TRY(syi_check_count(call, a->probs != NULL ? "probs" : "routing_map", "experts", plan->n_experts));
    SYI_TRY(syi_check_count(call, "permuted_tokens", "rows", plan->n_rows));
    SYI_TRY(syi_check_count(call, "permuted_tokens", "elements per row", plan->hidden));
    return syi_check_share(call, a->drop_and_pad, a->zero_pad, a->probs != NULL);
}

static sy_status check_sizes(struct syi_call *call)
{
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    const struct syi_coded *coded = &call->coded_rows;
    plan->type = coded->given == NULL ? syi_type_at(call, PERMUTED) : syi_coded_type(call, coded);
    return syi_check_output(call, "tokens", plan->n_tokens,
                            plan->hidden * (int64_t)syi_float_bytes(plan->type));
}

static void plan_unpermute(struct syi_call *call)
{
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    plan->prob_type = syi_type_at(call, PROBS);
    plan->codes = syi_coded_plan(call, &call->coded_rows, plan->n_rows);
    plan->permuted = syi_rows_of(call, PERMUTED);
    plan->tokens = syi_rows_of(call, TOKENS);
    plan->probs = syi_rows_of(call, PROBS);
    if (plan->probs.data != NULL && !plan->capacity)
        plan->map = syi_rows_of(call, MAP);
    plan->sorted_indices = syi_data(call, INDICES);
    call->rows = plan->n_tokens;
    call->bytes = syi_moe_rows_bytes(plan);
}

static const struct syi_steps own = {
    .together = check_together,
    .bind = bind,
    .values = check_values,
    .sizes = check_sizes,
    .plan = plan_unpermute,
    .rows = {offsetof(sy_moe_unpermute_args, row_format), TOKENS, PERMUTED, SCALES},
};

SYI_DEFINE_DESCRIBED(moe_unpermute, MOE_UNPERMUTE, "add up the permuted rows of each token, weighted")
