/*
 * moe_permute_ids: check and plan.
 */
#include "ops/row_codes.h"

enum { TOKENS, IDS, PROBS, OUT_TOKENS, INDICES, OUT_PROBS, COUNTS, OFFSETS, SCALES, N_TENSORS };

#define OPERATOR moe_permute_ids

static const sy_field_info fields[] = {
    [TOKENS] = SYI_TENSOR(tokens, SY_FIELD_ANY_WORD, 0, 0, 2, 2, "T H", "one row per token"),
    [IDS] = SYI_INPUT(ids, SYI_INDEX_TYPES, 0, 2, 2, "T K", "experts of each token"),
    [PROBS] = SYI_OPTIONAL(probs, SYI_FLOAT_TYPES, 0, 2, 2, "T K", "weight of each slot"),
    [OUT_TOKENS] = SYI_OUTPUT(permuted_tokens, 0, TOKENS + 1, 2, 2, "M H", "rows grouped by expert"),
    [INDICES] =
        SYI_OUTPUT(sorted_indices, SYI_I32, 0, 1, 1, "T*K", "row of each slot, kept or not; -1: missing"),
    [OUT_PROBS] = SYI_OPTIONAL_OUTPUT(permuted_probs, 0, PROBS + 1, 1, 1, "M", "when probs is given",
                                      .with = PROBS + 1),
    [COUNTS] =
        SYI_OPTIONAL_OUTPUT(expert_counts, SYI_I64, 0, 1, 1, "E", "with num_experts: slots of each expert"),
    [OFFSETS] = SYI_OPTIONAL_OUTPUT(expert_offsets, SYI_I64, 0, 1, 1, "E+1",
                                    "with num_experts: first row of each expert"),
    [SCALES] = SYI_OPTIONAL_OUTPUT(permuted_scales, SYI_SCALE_TYPES, 0, 2, 2, "M G",
                                   "with row_format: scales of the rows"),
    SYI_SCALAR(num_out_tokens, I64, .help = "N: rows kept; 0: all; negative: all but the last -N"),
    SYI_SCALAR(num_experts, I64, .range = "E: 0..i32",
               .help = "E: ids must be below it; 0: ids may be any numbers"),
    SYI_SCALAR(window, BOOL, .help = "write rows from row_begin to row_end only"),
    SYI_SCALAR(row_begin, I64, .help = "first row that is written"),
    SYI_SCALAR(row_end, I64, .help = "row after the last that is written"),
    SYI_SCALAR(allow_missing, BOOL, .help = "ids -1 and E mean no expert"),
    SYI_ROW_FORMAT_FIELD,
};

/* The rows that are kept, and the window of those that are written. */
static sy_status check_window(struct syi_call *call, struct syi_moe_permute_ids_plan *plan, int64_t total)
{
    const sy_moe_permute_ids_args *a = &call->args.moe_permute_ids;
    const int64_t n = a->num_out_tokens;
    SYI_TRY(syi_check_value(call, "num_out_tokens", n, -total, INT64_MAX));
    const int64_t kept = n < 0 ? total + n : n == 0 || n > total ? total : n;
    if (!a->window) {
        const bool begin = a->row_begin != 0;
        if (begin || a->row_end != 0)
            return syi_fail(call->ctx, SY_ERR_VALUE, begin ? "row_begin" : "row_end",
                            "is %lld without window, want 0", (long long)(begin ? a->row_begin : a->row_end));
        plan->n_rows = kept;
        return SY_OK;
    }
    SYI_TRY(syi_check_value(call, "row_begin", a->row_begin, 0, kept));
    SYI_TRY(syi_check_value(call, "row_end", a->row_end, a->row_begin, kept));
    plan->row_begin = a->row_begin;
    plan->n_rows = a->row_end - a->row_begin;
    return SY_OK;
}

static sy_status check_values(struct syi_call *call)
{
    const sy_moe_permute_ids_args *a = &call->args.moe_permute_ids;
    struct syi_moe_permute_ids_plan *plan = &call->plan.moe_permute_ids;
    int64_t total;
    plan->n_tokens = syi_bound(call, 'T');
    plan->n_slots = syi_bound(call, 'K');
    plan->n_experts = a->num_experts;
    if (!syi_mul(plan->n_tokens, plan->n_slots, &total))
        total = INT64_MAX;
    SYI_TRY(syi_check_count(call, "ids", "slots", total));
    SYI_TRY(syi_check_count(call, "tokens", "tokens", plan->n_tokens));
    SYI_TRY(syi_check_count(call, "tokens", "elements per row", syi_bound(call, 'H')));
    SYI_TRY(syi_check_value(call, "num_experts", a->num_experts, 0, INT32_MAX));
    const char *needs = call->tensor[COUNTS] != NULL    ? "expert_counts is given"
                        : call->tensor[OFFSETS] != NULL ? "expert_offsets is given"
                        : a->allow_missing              ? "allow_missing is set"
                                                        : NULL;
    if (a->num_experts == 0 && needs != NULL)
        return syi_fail(call->ctx, SY_ERR_VALUE, "num_experts", "is 0 while %s, want the number of experts",
                        needs);
    if (a->num_experts == 0)
        call->without = 1u << COUNTS | 1u << OFFSETS;
    return check_window(call, plan, total);
}

static sy_status check_sizes(struct syi_call *call)
{
    const int64_t rows = call->plan.moe_permute_ids.n_rows;
    syi_bind(call, 'M', rows);
    return syi_check_output(call, "ids", rows, syi_coded_bytes(call, &call->coded_rows));
}

static void plan_permute(struct syi_call *call)
{
    struct syi_moe_permute_ids_plan *plan = syi_bind_plan(call, "");
    const struct syi_coded *coded = &call->coded_rows;
    const int64_t row_bytes = syi_coded_bytes(call, coded);
    const size_t token_bytes = (size_t)coded->hidden * syi_bytes_at(call, TOKENS);
    plan->row_bytes = coded->given != NULL ? (size_t)coded->hidden : token_bytes;
    plan->codes = syi_coded_plan(call, coded, plan->n_tokens);
    plan->prob_bytes = syi_bytes_at(call, PROBS);
    call->rows = plan->n_rows;
    call->bytes = (uint64_t)plan->n_tokens * token_bytes + (uint64_t)plan->n_rows * (uint64_t)row_bytes +
                  (uint64_t)(plan->n_tokens * plan->n_slots) * (4 + syi_bytes_at(call, IDS)) +
                  (uint64_t)plan->n_rows * 2 * plan->prob_bytes;
}

static const struct syi_steps own = {
    .values = check_values,
    .sizes = check_sizes,
    .plan = plan_permute,
    .rows = {offsetof(sy_moe_permute_ids_args, row_format), TOKENS, OUT_TOKENS, SCALES},
};

SYI_DEFINE_PLANNED(moe_permute_ids, MOE_PERMUTE_IDS,
                   "copy each token row to one row per expert it names, grouped by expert", scales, 0)
