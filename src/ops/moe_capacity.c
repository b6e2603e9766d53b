/*
 * moe_capacity: check and plan. What the factor allows is computed here, so that the query can answer it.
 */
#include "ops/call.h"
#include "cpu/pool.h"

#include <math.h>

enum { COUNTS, CAPACITY, N_TENSORS };

#define OPERATOR moe_capacity

static const sy_field_info fields[] = {
    [COUNTS] = SYI_OPTIONAL(counts, SYI_INDEX_TYPES, 0, 1, 1, "E",
                            "demand for each expert; required if factor <= 0"),
    [CAPACITY] = SYI_OUTPUT(capacity, SYI_I64, 0, 1, 1, "1", "slots per expert"),
    SYI_SCALAR(samples, I64, SY_FIELD_REQUIRED, .range = "0..", .help = "S: tokens"),
    SYI_SCALAR(num_experts, I64, SY_FIELD_REQUIRED, .range = "E: 1..", .help = "E: experts"),
    SYI_SCALAR(k, I64, .range = "0..", .preset = "1", .help = "choices per token"),
    SYI_SCALAR(factor, F64, .range = "finite",
               .help = "above 0: a share; 0: the largest count; below 0: the smaller of both"),
    SYI_SCALAR(alignment, I64, .range = "0..", .preset = "1", .help = "the capacity is a multiple of this"),
};

static sy_status check_together(struct syi_call *call)
{
    const double factor = call->args.moe_capacity.factor;
    if (call->tensor[COUNTS] == NULL && factor <= 0)
        return syi_fail(call->ctx, SY_ERR_NULL, "counts", "is missing, want a tensor: factor is %g", factor);
    return SY_OK;
}

struct product {
    double a, result;
    int64_t b;
};

/* A task like any other, so that it runs with standard floating-point control. */
static void multiply(void *data, int task)
{
    struct product *product = data;
    (void)task;
    product->result = product->a * (double)product->b;
}

/* k * trunc(|factor| * P); false when it does not fit. */
static bool share(const struct syi_call *call, int64_t *slots)
{
    const sy_moe_capacity_args *a = &call->args.moe_capacity;
    const int64_t per_expert = a->samples / a->num_experts + (a->samples % a->num_experts != 0);
    struct product product = {.a = fabs(a->factor), .b = per_expert};
    syi_parallel(call->ctx, 1, multiply, &product);
    return product.result < 0x1p63 && syi_mul((int64_t)product.result, a->k > 0 ? a->k : 1, slots);
}

static sy_status check_sizes(struct syi_call *call)
{
    const sy_moe_capacity_args *a = &call->args.moe_capacity;
    struct syi_moe_capacity_plan *plan = &call->plan.moe_capacity;
    int64_t rounded = 0;
    plan->alignment = a->alignment > 0 ? a->alignment : 1;
    const bool fits = a->factor != 0 && share(call, &plan->bound);
    if (!fits)
        plan->bound = INT64_MAX;
    if (a->factor > 0 && (!fits || !syi_round_up(plan->bound, plan->alignment, &rounded)))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "factor",
                        "is %g for %lld samples, %lld experts and k = %lld, want a capacity below 2^63",
                        a->factor, (long long)a->samples, (long long)a->num_experts, (long long)a->k);
    call->slots = rounded;
    return SY_OK;
}

static void plan_capacity(struct syi_call *call)
{
    struct syi_moe_capacity_plan *p = syi_bind_plan(call, "");
    p->n_experts = p->args.factor <= 0 ? syi_bound(call, 'E') : 0;
    call->rows = 1;
    call->bytes = 8;
    if (p->n_experts > 0)
        call->bytes += (uint64_t)p->n_experts * syi_bytes_at(call, COUNTS);
}

static const struct syi_steps own = {.together = check_together, .sizes = check_sizes, .plan = plan_capacity};

SYI_DEFINE_PLANNED(moe_capacity, MOE_CAPACITY, "compute how many slots each expert should have", capacity, 0)
