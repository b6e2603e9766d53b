/*
 * moe_combine: check and plan.
 */
#include "ops/call.h"

enum { GATES, INDICES, LOCATIONS, EXPERT_OUT, OUTPUT, N_TENSORS };

#define OPERATOR moe_combine

static const sy_field_info fields[] = {
    [GATES] =
        SYI_OPTIONAL(gates, SYI_F32, EXPERT_OUT + 1, 1, 2, "k S | S", "factor of each choice; missing: 1"),
    [INDICES] = SYI_INPUT(indices, SYI_I32, 0, 1, 2, "k S | S", "expert of each choice"),
    [LOCATIONS] = SYI_INPUT(locations, SYI_I32, 0, 1, 2, "k S | S", "slot inside the expert"),
    [EXPERT_OUT] = SYI_INPUT(expert_out, SYI_FLOAT_TYPES, 0, 2, 2, "E*C H", "expert slots"),
    [OUTPUT] = SYI_OUTPUT(output, 0, EXPERT_OUT + 1, 2, 2, "S H", "sum of each sample's rows"),
    SYI_SCALAR(num_experts, I64, SY_FIELD_REQUIRED, .range = "E: 0..", .help = "E: experts"),
    SYI_SCALAR(capacity, I64, SY_FIELD_REQUIRED, .range = "C: 0..", .help = "C: slots per expert"),
};

/* No output element: no data pointer is examined. */
static bool nothing_to_do(const struct syi_call *call)
{
    const DLTensor *indices = call->tensor[INDICES];
    const int last = indices != NULL && indices->ndim == 2 ? 1 : 0;
    return syi_no_extent(call, INDICES, last) || syi_no_extent(call, EXPERT_OUT, 1);
}

static sy_status bind(struct syi_call *call)
{
    return syi_check_shapes(call, INDICES, INDICES + 1);
}

/* The rows of the output may not be there yet. */
static sy_status check_sizes(struct syi_call *call)
{
    const int64_t n_samples = syi_bound(call, 'S');
    SYI_TRY(syi_check_slots(call, EXPERT_OUT));
    const int64_t row_bytes = syi_extent(call, EXPERT_OUT, 1) * (int64_t)syi_bytes_at(call, EXPERT_OUT);
    int64_t bytes;
    if (!syi_mul(n_samples, row_bytes, &bytes))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "indices",
                        "has %lld samples for rows of %lld bytes, want fewer than 2^63 bytes",
                        (long long)n_samples, (long long)row_bytes);
    return syi_check_shapes(call, EXPERT_OUT, EXPERT_OUT + 1);
}

static void plan_combine(struct syi_call *call)
{
    struct syi_moe_combine_plan *plan = syi_bind_plan(call, "SEH");
    plan->n_choices = call->tensor[INDICES]->ndim == 2 ? syi_bound(call, 'k') : 1;
    plan->elem_bytes = syi_bytes_at(call, EXPERT_OUT);
    const uint64_t row_bytes = (uint64_t)plan->hidden * plan->elem_bytes;
    const uint64_t n = (uint64_t)plan->n_samples, gates = (uint64_t)plan->n_choices * n;
    call->rows = plan->n_samples;
    call->bytes = gates * (row_bytes + 8) + n * row_bytes;
    if (plan->gates.data != NULL)
        call->bytes += gates * syi_float_bytes(plan->gates.type);
}

static const struct syi_steps own = {
    .untouched = nothing_to_do,
    .bind = bind,
    .sizes = check_sizes,
    .plan = plan_combine,
    .late = 1u << EXPERT_OUT,
};

SYI_DEFINE_PLANNED(moe_combine, MOE_COMBINE, "sum each token's rows from expert slots, each times its gate",
                   output, 0)
