/*
 * moe_dispatch: check and plan.
 */
#include "ops/row_codes.h"

enum { GATES, INDICES, LOCATIONS, INPUT, DISPATCH, SCALES, N_TENSORS };

#define OPERATOR moe_dispatch

static const sy_field_info fields[] = {
    [GATES] = SYI_OPTIONAL(gates, SYI_F32, INPUT + 1, 1, 1, "S", "scale of each sample; missing: 1"),
    [INDICES] = SYI_INPUT(indices, SYI_I32, 0, 1, 1, "S", "expert of each sample"),
    [LOCATIONS] = SYI_INPUT(locations, SYI_I32, 0, 1, 1, "S", "slot inside the expert"),
    [INPUT] = SYI_INPUT(input, SYI_FLOAT_TYPES, 0, 2, 2, "S H", "one row per sample"),
    [DISPATCH] = SYI_TENSOR(dispatch, SY_FIELD_OUT | SY_FIELD_KEEPS, 0, INPUT + 1, 2, 2, "E*C H",
                            "expert slots; old contents, missing: zero", .alias = INPUT + 1),
    [SCALES] = SYI_TENSOR(dispatch_scales, SY_FIELD_OUT | SY_FIELD_KEEPS | SY_FIELD_OPTIONAL, SYI_SCALE_TYPES,
                          0, 2, 2, "E*C G", "with row_format: scales of the rows"),
    SYI_SCALAR(num_experts, I64, SY_FIELD_REQUIRED, .range = "E: 0..", .help = "E: experts"),
    SYI_SCALAR(capacity, I64, SY_FIELD_REQUIRED, .range = "C: 0..", .help = "C: slots per expert"),
    SYI_SCALAR(zero_unwritten, BOOL,
               .help = "rows that are not written become 0 instead of keeping their contents"),
    SYI_SCALAR(unique_slots, BOOL, .help = "promise that no two valid samples share a slot (faster)"),
    SYI_ROW_FORMAT_FIELD,
};

/* True when an empty dimension leaves nothing to do, so that no data pointer is examined. */
static bool nothing_to_do(const struct syi_call *call)
{
    const sy_moe_dispatch_args *a = &call->args.moe_dispatch;
    const bool no_rows = a->capacity == 0 || a->num_experts == 0 || syi_no_extent(call, INPUT, 1);
    return no_rows || (syi_no_extent(call, INDICES, 0) && !a->zero_unwritten);
}

static sy_status bind(struct syi_call *call)
{
    return syi_check_shapes(call, INPUT, INPUT + 1);
}

static sy_status check_sizes(struct syi_call *call)
{
    SYI_TRY(syi_check_slots(call, INPUT));
    return syi_check_output(call, "capacity", syi_bound(call, 'E') * syi_bound(call, 'C'),
                            syi_coded_bytes(call, &call->coded_rows));
}

static void plan_dispatch(struct syi_call *call)
{
    struct syi_moe_dispatch_plan *plan = syi_bind_plan(call, "SE");
    const struct syi_coded *coded = &call->coded_rows;
    plan->n_slots = plan->args.num_experts * plan->args.capacity;
    plan->hidden = syi_bound(call, 'H');
    plan->elem_bytes = syi_bytes_at(call, INPUT);
    plan->codes = syi_coded_plan(call, coded, plan->n_samples);
    plan->in_place = coded->given == NULL && plan->dispatch.data == plan->input.data && plan->n_samples > 0;
    call->rows = plan->n_slots;
    call->bytes = (uint64_t)plan->n_samples *
                  ((uint64_t)plan->hidden * plan->elem_bytes + (uint64_t)syi_coded_bytes(call, coded) + 12);
}

static const struct syi_steps own = {
    .untouched = nothing_to_do,
    .bind = bind,
    .sizes = check_sizes,
    .plan = plan_dispatch,
    .rows = {offsetof(sy_moe_dispatch_args, row_format), INPUT, DISPATCH, SCALES},
};

SYI_DEFINE_PLANNED(moe_dispatch, MOE_DISPATCH, "scale token rows into expert slots of fixed capacity", scales,
                   0)
