/*
 * moe_locations: check and plan.
 */
#include "ops/call.h"

enum { INDICES, IMPORTANCE, LOCATIONS, COUNTS, N_TENSORS };

static const sy_field_info fields[] = {
    [INDICES] = SYI_TENSOR(moe_locations, indices, 0, SYI_BIT(SY_TYPE_I32), 0, 1, 2, "k S | S",
                           "expert of each choice"),
    [IMPORTANCE] = SYI_TENSOR(moe_locations, importance, SY_FIELD_OPTIONAL, SYI_FLOAT_TYPES, 0, 1, 1, "S",
                              "largest first; missing: sample order"),
    [LOCATIONS] = SYI_TENSOR(moe_locations, locations, SY_FIELD_OUT, SYI_BIT(SY_TYPE_I32), 0, 1, 2, "k S | S",
                             "slot inside the expert; -1: no such expert"),
    [COUNTS] = SYI_TENSOR(moe_locations, counts, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I64), 0, 1,
                          1, "E", "choices that name each expert"),
    SYI_SCALAR(moe_locations, num_experts, I64, SY_FIELD_REQUIRED, .help = "E: experts"),
};

/* k and S; an array of rank 1 is one choice. */
static void choices_of(const struct syi_call *call, int64_t *n_choices, int64_t *n_samples)
{
    const DLTensor *indices = call->tensor[INDICES];
    *n_choices = indices->ndim == 2 ? indices->shape[0] : 1;
    *n_samples = indices->shape[indices->ndim - 1];
}

static sy_status check_overflow(struct syi_call *call, int64_t n_choices, int64_t n_samples)
{
    const sy_status st = syi_check_sizes(call);
    if (st != SY_OK || n_choices * n_samples <= INT32_MAX)
        return st;
    const sy_fault fault =
        syi_value_fault(SY_ERR_OVERFLOW, SY_FAULT_NONE, "indices", n_choices * n_samples, INT32_MAX);
    return syi_fail_at(call->ctx, &fault, "has %lld entries, want at most %lld: a location is an int32",
                       (long long)fault.value, (long long)fault.limit);
}

static sy_status check(struct syi_call *call)
{
    const sy_moe_locations_args *a = &call->args.moe_locations;
    int64_t n_choices = 0, n_samples = 0;
    sy_status st = syi_check_tensors(call, false);
    if (st == SY_OK) {
        choices_of(call, &n_choices, &n_samples);
        st = syi_check_vector(call, IMPORTANCE, n_samples);
    }
    if (st == SY_OK)
        st = syi_check_value(call, "num_experts", a->num_experts, 0, INT64_MAX);
    if (st == SY_OK)
        st = check_overflow(call, n_choices, n_samples);
    if (st == SY_OK)
        st = syi_check_shape(call, LOCATIONS, call->tensor[INDICES]->ndim, call->tensor[INDICES]->shape);
    if (st == SY_OK)
        st = syi_check_vector(call, COUNTS, a->num_experts);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    struct syi_moe_locations_plan *plan = &call->plan.moe_locations;
    *plan = (struct syi_moe_locations_plan){
        .args = *a,
        .n_choices = n_choices,
        .n_samples = n_samples,
        .n_experts = a->num_experts,
        .type = syi_type_at(call, IMPORTANCE),
        .importance = syi_data(call, IMPORTANCE),
        .indices = syi_rows_of(call, INDICES),
        .locations = syi_rows_of(call, LOCATIONS),
        .counts = syi_data(call, COUNTS),
    };
    call->rows = n_choices * n_samples;
    call->bytes = 8 * (uint64_t)call->rows + (plan->counts != NULL ? 8 * (uint64_t)plan->n_experts : 0);
    if (plan->importance != NULL)
        call->bytes += (uint64_t)n_samples * syi_float_bytes(plan->type);
    return SY_OK;
}

SYI_DEFINE_OP(moe_locations, MOE_LOCATIONS,
              "give every choice of a token its slot inside the expert it names")
