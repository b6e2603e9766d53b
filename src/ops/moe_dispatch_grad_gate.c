/*
 * moe_dispatch_grad_gate: check and plan.
 */
#include "ops/call.h"

enum { INDICES, LOCATIONS, INPUT, DISPATCH, GRAD_GATES, N_TENSORS };

#define OPERATOR moe_dispatch_grad_gate

static const sy_field_info fields[] = {
    [INDICES] = SYI_INPUT(indices, SYI_I32, 0, 1, 2, "k S | S", "expert of each choice"),
    [LOCATIONS] = SYI_INPUT(locations, SYI_I32, 0, 1, 2, "k S | S", "slot inside the expert"),
    [INPUT] = SYI_INPUT(input, SYI_FLOAT_TYPES, 0, 2, 2, "S H", "one row per sample"),
    [DISPATCH] =
        SYI_INPUT(dispatch, 0, INPUT + 1, 2, 2, "E*C H", "expert slots: their gradient, or expert_out"),
    [GRAD_GATES] = SYI_OUTPUT(grad_gates, SYI_F32, INPUT + 1, 1, 2, "k S | S", "gradient of each gate"),
    SYI_SCALAR(num_experts, I64, SY_FIELD_REQUIRED, .range = "E: 0..", .help = "E: experts"),
    SYI_SCALAR(capacity, I64, SY_FIELD_REQUIRED, .range = "C: 0..", .help = "C: slots per expert"),
};

/* No output element: no data pointer is examined. */
static bool nothing_to_do(const struct syi_call *call)
{
    return syi_no_extent(call, INDICES, 0) || syi_no_extent(call, INDICES, 1);
}

static sy_status check_sizes(struct syi_call *call)
{
    SYI_TRY(syi_check_slots(call, INPUT));
    return syi_check_shapes(call, DISPATCH, DISPATCH + 1);
}

static void plan_grad_gate(struct syi_call *call)
{
    struct syi_moe_dispatch_grad_gate_plan *plan = syi_bind_plan(call, "SEH");
    plan->n_choices = call->tensor[INDICES]->ndim == 2 ? syi_bound(call, 'k') : 1;
    const uint64_t row_bytes = (uint64_t)plan->hidden * syi_float_bytes(plan->input.type);
    call->rows = plan->n_choices * plan->n_samples;
    call->bytes = (uint64_t)call->rows * (row_bytes + 8 + syi_float_bytes(plan->grad_gates.type)) +
                  (uint64_t)plan->n_samples * row_bytes;
}

static const struct syi_steps own = {
    .untouched = nothing_to_do,
    .sizes = check_sizes,
    .plan = plan_grad_gate,
    .late = 1u << DISPATCH,
};

SYI_DEFINE_PLANNED(moe_dispatch_grad_gate, MOE_DISPATCH_GRAD_GATE,
                   "gradient of the gates: token rows times slot rows", grad_gates, 0)
