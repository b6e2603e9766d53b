/*
 * What the checks of moe_permute, its inverse and their gradients share.
 */
#include "ops/call.h"

sy_status syi_check_count(struct syi_call *call, const char *argument, const char *what, int64_t value)
{
    if (value <= INT32_MAX)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_NONE, argument, value, INT32_MAX,
                         "means %lld %s, want at most 2147483647", (long long)value, what);
}

sy_status syi_check_share(struct syi_call *call, bool capacity, bool zero_pad, bool by_expert)
{
    struct syi_moe_rows_plan *plan = &call->plan.moe_rows;
    plan->capacity = capacity;
    plan->zero_pad = zero_pad;
    const int64_t n = plan->capacity ? plan->n_experts : plan->n_tokens;
    plan->n_slots = n > 0 ? plan->n_rows / n : 0;
    if (plan->n_slots * n == plan->n_rows || (plan->capacity && !by_expert))
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_NONE, "sorted_indices", plan->n_rows, n,
                         "has %lld elements, want a multiple of %lld, the number of %s",
                         (long long)plan->n_rows, (long long)n, plan->capacity ? "experts" : "tokens");
}

sy_status syi_check_output(struct syi_call *call, const char *argument, int64_t rows, int64_t row_bytes)
{
    int64_t bytes;
    if (syi_mul(rows, row_bytes, &bytes))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_OVERFLOW, argument,
                    "means %lld rows of %lld bytes, want fewer than 2^63 bytes", (long long)rows,
                    (long long)row_bytes);
}

uint64_t syi_moe_rows_bytes(const struct syi_moe_rows_plan *plan)
{
    const uint64_t row_bytes = (uint64_t)plan->hidden * syi_float_bytes(plan->type);
    const uint64_t map = plan->map.data != NULL ? (uint64_t)plan->n_tokens * (uint64_t)plan->n_experts : 0;
    const uint64_t prob_bytes = plan->prob_type != SY_TYPE_OTHER ? syi_float_bytes(plan->prob_type) : 0;
    const uint64_t grads =
        plan->wants_grad_probs ? (uint64_t)plan->n_tokens * (uint64_t)plan->n_experts * prob_bytes : 0;
    return (uint64_t)(plan->n_tokens + plan->n_rows) * row_bytes + map + grads +
           (uint64_t)plan->n_rows * (4 + prob_bytes);
}
