/*
 * moe_unpermute_ids: check and plan.
 */
#include "ops/call.h"

enum { PERMUTED, INDICES, PROBS, BIAS, BIAS_IDS, RESIDUAL, SHARED, TOKENS, N_TENSORS };

#define OPERATOR moe_unpermute_ids

static const sy_field_info fields[] = {
    [PERMUTED] = SYI_INPUT(permuted_tokens, SYI_FLOAT_TYPES, 0, 2, 2, "M H", "rows grouped by expert"),
    [INDICES] = SYI_INPUT(sorted_indices, SYI_I32, 0, 1, 1, "T*K", "row of each slot"),
    [PROBS] = SYI_OPTIONAL(probs, SYI_FLOAT_TYPES, 0, 2, 2, "T K", "weight of each slot; missing: 1"),
    [BIAS] = SYI_OPTIONAL(bias, 0, PERMUTED + 1, 2, 2, "B H", "added to each row, by bias_ids"),
    [BIAS_IDS] = SYI_OPTIONAL(bias_ids, SYI_I32, 0, 2, 2, "T K", "row of bias of each slot; -1: none"),
    [RESIDUAL] = SYI_OPTIONAL(residual, 0, PERMUTED + 1, 2, 2, "T H", "added to each token, first"),
    [SHARED] = SYI_OPTIONAL(shared, 0, PERMUTED + 1, 2, 2, "T H", "added to each token, second"),
    [TOKENS] = SYI_OUTPUT(tokens, 0, PERMUTED + 1, 2, 2, "T H", "the weighted sum of each token's rows"),
    SYI_SCALAR(num_tokens, I64, .range = "0..", .help = "T, when probs is missing; 0: one slot per token"),
    SYI_SCALAR(row_begin, I64, .range = "0..i32", .help = "number of the first row of permuted_tokens"),
    SYI_SCALAR(num_rows, I64, .range = "0..i32", .help = "rows are numbered up to this; 0: T*K"),
    SYI_SCALAR(by_choice, BOOL, .help = "sorted_indices has the first slot of all tokens, then the second"),
};

static sy_status check_together(struct syi_call *call)
{
    const bool bias = call->tensor[BIAS] != NULL;
    if (bias == (call->tensor[BIAS_IDS] != NULL))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_NULL, bias ? "bias_ids" : "bias",
                    "is missing while %s is given, want both or none", bias ? "bias" : "bias_ids");
}

/* T is given by probs, by num_tokens, or by both with one value; otherwise it is the length: one slot per token. */
static sy_status bind(struct syi_call *call)
{
    const int64_t said = call->args.moe_unpermute_ids.num_tokens, length = syi_extent(call, INDICES, 0);
    const bool told = call->tensor[PROBS] != NULL;
    const int64_t n_tokens = told ? syi_extent(call, PROBS, 0) : said > 0 ? said : length;
    SYI_TRY(syi_check_scalars(call, N_TENSORS, N_TENSORS + 1));
    if (told && said > 0 && said != n_tokens)
        return syi_fail_value(call, SY_ERR_VALUE, "num_tokens", said, n_tokens,
                              "is %lld, want %lld, the rows of probs, or 0");
    /* No tokens tell no number of slots, so probs and bias_ids [0,K] of an empty batch may have any. */
    const int64_t n_slots = n_tokens > 0 ? length / n_tokens : syi_extent(call, told ? PROBS : BIAS_IDS, 1);
    if (n_slots * n_tokens != length)
        return syi_fail_value(call, SY_ERR_SHAPE, "sorted_indices", length, n_tokens,
                              "has %lld slots, want a multiple of %lld tokens");
    syi_bind(call, 'T', n_tokens);
    syi_bind(call, 'K', n_slots);
    return SY_OK;
}

static sy_status check_values(struct syi_call *call)
{
    SYI_TRY(syi_check_scalars(call, N_TENSORS + 1, call->op->info.n_fields));
    SYI_TRY(syi_check_count(call, "sorted_indices", "slots", syi_extent(call, INDICES, 0)));
    SYI_TRY(syi_check_count(call, "num_tokens", "tokens", syi_bound(call, 'T')));
    SYI_TRY(syi_check_count(call, "permuted_tokens", "rows", syi_bound(call, 'M')));
    return syi_check_count(call, "permuted_tokens", "elements per row", syi_bound(call, 'H'));
}

static sy_status check_sizes(struct syi_call *call)
{
    return syi_check_output(call, "tokens", syi_bound(call, 'T'),
                            syi_bound(call, 'H') * (int64_t)syi_float_bytes(syi_type_at(call, PERMUTED)));
}

static void plan_unpermute(struct syi_call *call)
{
    struct syi_moe_unpermute_ids_plan *plan = syi_bind_plan(call, "TKMHB");
    plan->limit = plan->args.num_rows > 0 ? plan->args.num_rows : plan->n_tokens * plan->n_slots;
    call->rows = plan->n_tokens;
}

static const struct syi_steps own = {.together = check_together,
                                     .bind = bind,
                                     .values = check_values,
                                     .sizes = check_sizes,
                                     .plan = plan_unpermute,
                                     .late = 1u << INDICES}; /* T*K by construction */

SYI_DEFINE_PLANNED(moe_unpermute_ids, MOE_UNPERMUTE_IDS,
                   "add up the rows of moe_permute_ids for each token, weighted", tokens, 0)
