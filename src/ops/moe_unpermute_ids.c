/*
 * moe_unpermute_ids: check and plan.
 */
#include "ops/call.h"

enum { PERMUTED, INDICES, PROBS, BIAS, BIAS_IDS, RESIDUAL, SHARED, TOKENS, N_TENSORS };

static const sy_field_info fields[] = {
    [PERMUTED] = SYI_TENSOR(moe_unpermute_ids, permuted_tokens, 0, SYI_FLOAT_TYPES, 0, 2, 2, "M H",
                            "rows grouped by expert"),
    [INDICES] = SYI_TENSOR(moe_unpermute_ids, sorted_indices, 0, SYI_BIT(SY_TYPE_I32), 0, 1, 1, "T*K",
                           "row of each slot"),
    [PROBS] = SYI_TENSOR(moe_unpermute_ids, probs, SY_FIELD_OPTIONAL, SYI_FLOAT_TYPES, 0, 2, 2, "T K",
                         "weight of each slot; missing: 1"),
    [BIAS] = SYI_TENSOR(moe_unpermute_ids, bias, SY_FIELD_OPTIONAL, 0, PERMUTED + 1, 2, 2, "B H",
                        "added to each row, by bias_ids"),
    [BIAS_IDS] = SYI_TENSOR(moe_unpermute_ids, bias_ids, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I32), 0, 2, 2,
                            "T K", "row of bias of each slot; -1: none"),
    [RESIDUAL] = SYI_TENSOR(moe_unpermute_ids, residual, SY_FIELD_OPTIONAL, 0, PERMUTED + 1, 2, 2, "T H",
                            "added to each token, first"),
    [SHARED] = SYI_TENSOR(moe_unpermute_ids, shared, SY_FIELD_OPTIONAL, 0, PERMUTED + 1, 2, 2, "T H",
                          "added to each token, second"),
    [TOKENS] = SYI_TENSOR(moe_unpermute_ids, tokens, SY_FIELD_OUT, 0, PERMUTED + 1, 2, 2, "T H",
                          "the weighted sum of each token's rows"),
    SYI_SCALAR(moe_unpermute_ids, num_tokens, I64, .help = "T, when probs is missing; 0: one slot per token"),
    SYI_SCALAR(moe_unpermute_ids, row_begin, I64, .help = "number of the first row of permuted_tokens"),
    SYI_SCALAR(moe_unpermute_ids, num_rows, I64, .help = "rows are numbered up to this; 0: T*K"),
    SYI_SCALAR(moe_unpermute_ids, by_choice, BOOL,
               .help = "sorted_indices has the first slot of all tokens, then the second"),
};

/* T is given by probs, by num_tokens, or by both with one value; otherwise it is the length: one slot per token. */
static sy_status check_tokens(struct syi_call *call, struct syi_moe_unpermute_ids_plan *plan)
{
    const int64_t said = call->args.moe_unpermute_ids.num_tokens, length = syi_extent(call, INDICES, 0);
    const sy_status st = syi_check_value(call, "num_tokens", said, 0, INT64_MAX);
    if (st != SY_OK)
        return st;
    const bool told = call->tensor[PROBS] != NULL;
    plan->n_tokens = told ? syi_extent(call, PROBS, 0) : said > 0 ? said : length;
    if (told && said > 0 && said != plan->n_tokens) {
        const sy_fault fault =
            syi_value_fault(SY_ERR_VALUE, SY_FAULT_NONE, "num_tokens", said, plan->n_tokens);
        return syi_fail_at(call->ctx, &fault, "is %lld, want %lld, the rows of probs, or 0", (long long)said,
                           (long long)plan->n_tokens);
    }
    /* No tokens tell no number of slots, so probs and bias_ids [0,K] of an empty batch may have any. */
    plan->n_slots =
        plan->n_tokens > 0 ? length / plan->n_tokens : syi_extent(call, told ? PROBS : BIAS_IDS, 1);
    if (plan->n_slots * plan->n_tokens != length) {
        const sy_fault fault =
            syi_value_fault(SY_ERR_SHAPE, SY_FAULT_NONE, "sorted_indices", length, plan->n_tokens);
        return syi_fail_at(call->ctx, &fault, "has %lld slots, want a multiple of %lld tokens",
                           (long long)length, (long long)plan->n_tokens);
    }
    return syi_check_matrix(call, PROBS, plan->n_tokens, plan->n_slots);
}

static sy_status check_added(struct syi_call *call, struct syi_moe_unpermute_ids_plan *plan)
{
    plan->n_biases = syi_extent(call, BIAS, 0);
    sy_status st = syi_check_matrix(call, BIAS, plan->n_biases, plan->hidden);
    if (st == SY_OK)
        st = syi_check_matrix(call, BIAS_IDS, plan->n_tokens, plan->n_slots);
    if (st == SY_OK)
        st = syi_check_matrix(call, RESIDUAL, plan->n_tokens, plan->hidden);
    return st == SY_OK ? syi_check_matrix(call, SHARED, plan->n_tokens, plan->hidden) : st;
}

static sy_status check_values(struct syi_call *call, struct syi_moe_unpermute_ids_plan *plan)
{
    sy_status st = check_tokens(call, plan);
    plan->n_rows = syi_extent(call, PERMUTED, 0);
    plan->hidden = syi_extent(call, PERMUTED, 1);
    if (st == SY_OK)
        st = check_added(call, plan);
    if (st == SY_OK)
        st = syi_check_value(call, "row_begin", call->args.moe_unpermute_ids.row_begin, 0, INT32_MAX);
    if (st == SY_OK)
        st = syi_check_value(call, "num_rows", call->args.moe_unpermute_ids.num_rows, 0, INT32_MAX);
    if (st == SY_OK)
        st = syi_check_count(call, "sorted_indices", "slots", syi_extent(call, INDICES, 0));
    if (st == SY_OK)
        st = syi_check_count(call, "num_tokens", "tokens", plan->n_tokens);
    if (st == SY_OK)
        st = syi_check_count(call, "permuted_tokens", "rows", plan->n_rows);
    plan->limit = call->args.moe_unpermute_ids.num_rows;
    if (plan->limit == 0)
        plan->limit = plan->n_tokens * plan->n_slots;
    return st == SY_OK ? syi_check_count(call, "permuted_tokens", "elements per row", plan->hidden) : st;
}

static sy_status check(struct syi_call *call)
{
    struct syi_moe_unpermute_ids_plan *plan = &call->plan.moe_unpermute_ids;
    const sy_moe_unpermute_ids_args *a = &call->args.moe_unpermute_ids;
    if ((a->bias == NULL) != (a->bias_ids == NULL))
        return syi_fail(call->ctx, SY_ERR_NULL, a->bias == NULL ? "bias" : "bias_ids",
                        "is missing while %s is given, want both or none",
                        a->bias == NULL ? "bias_ids" : "bias");
    sy_status st = syi_check_tensors(call, false);
    if (st == SY_OK)
        st = check_values(call, plan);
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st != SY_OK)
        return st;
    st = syi_check_output(call, "tokens", plan->n_tokens,
                          plan->hidden * (int64_t)syi_float_bytes(syi_type_at(call, PERMUTED)));
    if (st == SY_OK)
        st = syi_check_matrix(call, TOKENS, plan->n_tokens, plan->hidden);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    syi_bind_plan(call);
    call->rows = plan->n_tokens;
    call->bytes = syi_tensor_bytes(call);
    return SY_OK;
}

SYI_ASSERT_BOUND(moe_unpermute_ids, tokens, 0);
SYI_DEFINE_OP(moe_unpermute_ids, MOE_UNPERMUTE_IDS,
              "add up the rows of moe_permute_ids for each token, weighted")
