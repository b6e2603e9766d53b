/*
 * moe_locations: check and plan.
 */
#include "ops/call.h"

enum { INDICES, IMPORTANCE, LOCATIONS, COUNTS, N_TENSORS };

#define OPERATOR moe_locations

static const sy_field_info fields[] = {
    [INDICES] = SYI_INPUT(indices, SYI_I32, 0, 1, 2, "k S | S", "expert of each choice"),
    [IMPORTANCE] =
        SYI_OPTIONAL(importance, SYI_FLOAT_TYPES, 0, 1, 1, "S", "largest first; missing: sample order"),
    [LOCATIONS] =
        SYI_OUTPUT(locations, SYI_I32, 0, 1, 2, "k S | S", "slot inside the expert; -1: no such expert"),
    [COUNTS] = SYI_OPTIONAL_OUTPUT(counts, SYI_I64, 0, 1, 1, "E", "choices that name each expert"),
    SYI_SCALAR(num_experts, I64, SY_FIELD_REQUIRED, .range = "E: 0..", .help = "E: experts"),
};

/* An array of rank 1 is one choice. */
static int64_t count_choices(const struct syi_call *call)
{
    return call->tensor[INDICES]->ndim == 2 ? syi_bound(call, 'k') : 1;
}

static sy_status check_sizes(struct syi_call *call)
{
    const int64_t n = count_choices(call) * syi_bound(call, 'S');
    if (n <= INT32_MAX)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_OVERFLOW, "indices", n, INT32_MAX,
                          "has %lld entries, want at most %lld: a location is an int32");
}

static void plan_locations(struct syi_call *call)
{
    struct syi_moe_locations_plan *p = syi_bind_plan(call, "SE");
    p->n_choices = count_choices(call);
    call->rows = p->n_choices * p->n_samples;
}

static const struct syi_steps own = {.sizes = check_sizes, .plan = plan_locations};

SYI_DEFINE_PLANNED(moe_locations, MOE_LOCATIONS,
                   "give every choice of a token its slot inside the expert it names", counts, 0)
