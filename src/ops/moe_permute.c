/*
 * moe_permute: check and plan.
 */
#include "ops/row_codes.h"

enum { TOKENS, MAP, PROBS, OUT_TOKENS, INDICES, OUT_PROBS, COUNTS, OFFSETS, SCALES, N_TENSORS };

#define OPERATOR moe_permute

static const sy_field_info fields[] = {
    [TOKENS] = SYI_TENSOR(tokens, SY_FIELD_ANY_WORD, 0, 0, 2, 2, "T H", "one row per token"),
    [MAP] = SYI_INPUT(routing_map, SYI_BYTE_TYPES, 0, 2, 2, "T E", "not 0: token t goes to expert e"),
    [PROBS] = SYI_OPTIONAL(probs, SYI_FLOAT_TYPES, 0, 2, 2, "T E", "router probabilities"),
    [OUT_TOKENS] = SYI_OUTPUT(permuted_tokens, 0, TOKENS + 1, 2, 2, "M H", "rows grouped by expert"),
    [INDICES] = SYI_OUTPUT(sorted_indices, SYI_I32, 0, 1, 1, "M",
                           "row of each slot; capacity mode: token of each row"),
    [OUT_PROBS] = SYI_OPTIONAL_OUTPUT(permuted_probs, 0, PROBS + 1, 1, 1, "M", "when probs is given",
                                      .with = PROBS + 1),
    [COUNTS] = SYI_OPTIONAL_OUTPUT(expert_counts, SYI_I64, 0, 1, 1, "E", "tokens routed to each expert"),
    [OFFSETS] = SYI_OPTIONAL_OUTPUT(expert_offsets, SYI_I64, 0, 1, 1, "E+1", "first row of each expert"),
    [SCALES] = SYI_OPTIONAL_OUTPUT(permuted_scales, SYI_SCALE_TYPES, 0, 2, 2, "M G",
                                   "with row_format: scales of the rows"),
    SYI_SCALAR(num_out_tokens, I64, SY_FIELD_REQUIRED, .range = "0..T*E",
               .help = "N: N/T slots per token, in capacity mode N/E rows per expert"),
    SYI_SCALAR(drop_and_pad, BOOL, .help = "capacity mode: every expert gets exactly C rows"),
    SYI_SCALAR(zero_pad, BOOL, .help = "capacity mode: padding rows are zero, with index -1"),
    SYI_ROW_FORMAT_FIELD,
};

/* Values and what follows from them: K or C, and M. */
static sy_status check_values(struct syi_call *call)
{
    const sy_moe_permute_args *a = &call->args.moe_permute;
    struct syi_moe_permute_plan *plan = &call->plan.moe_permute;
    const int64_t n_tokens = syi_bound(call, 'T'), n_experts = syi_bound(call, 'E');
    SYI_TRY(syi_check_count(call, "tokens", "tokens", n_tokens));
    SYI_TRY(syi_check_count(call, "tokens", "elements per row", syi_bound(call, 'H')));
    SYI_TRY(syi_check_count(call, "routing_map", "experts", n_experts));
    SYI_TRY(syi_check_scalars(call, N_TENSORS, call->op->info.n_fields));
    const int64_t divisor = a->drop_and_pad ? n_experts : n_tokens;
    plan->n_tokens = n_tokens;
    plan->n_experts = n_experts;
    plan->n_slots = divisor > 0 ? a->num_out_tokens / divisor : 0;
    plan->n_rows = plan->n_slots * divisor;
    syi_bind(call, 'M', plan->n_rows);
    return syi_check_count(call, "num_out_tokens", "output rows", plan->n_rows);
}

static sy_status check_sizes(struct syi_call *call)
{
    return syi_check_output(call, "num_out_tokens", syi_bound(call, 'M'),
                            syi_coded_bytes(call, &call->coded_rows));
}

static void plan_permute(struct syi_call *call)
{
    struct syi_moe_permute_plan *plan = syi_bind_plan(call, "");
    const struct syi_coded *coded = &call->coded_rows;
    const size_t token_bytes = (size_t)coded->hidden * syi_bytes_at(call, TOKENS);
    plan->row_bytes = coded->given != NULL ? (size_t)coded->hidden : token_bytes;
    plan->codes = syi_coded_plan(call, coded, plan->n_tokens);
    plan->prob_bytes = syi_bytes_at(call, PROBS);
    plan->idle = plan->n_rows == 0 && !call->query && plan->counts.data == NULL && plan->offsets.data == NULL;
    call->rows = plan->n_rows;
    call->slots = plan->n_slots;
    call->bytes = (uint64_t)plan->n_tokens * token_bytes +
                  (uint64_t)plan->n_rows * (uint64_t)syi_coded_bytes(call, coded) +
                  (uint64_t)plan->n_tokens * (uint64_t)plan->n_experts +
                  (uint64_t)plan->n_rows * (4 + 2 * plan->prob_bytes);
}

static const struct syi_steps own = {
    .values = check_values,
    .sizes = check_sizes,
    .plan = plan_permute,
    .rows = {offsetof(sy_moe_permute_args, row_format), TOKENS, OUT_TOKENS, SCALES},
};

SYI_DEFINE_PLANNED(moe_permute, MOE_PERMUTE,
                   "copy each token row to one row per expert it is routed to, grouped by expert", scales, 0)
