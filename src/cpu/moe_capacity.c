/*
 * moe_capacity on the CPU: the largest of the counts, held against what the factor allows.
 */
#include "cpu/backend.h"

size_t syi_cpu_moe_capacity_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    (void)ctx;
    (void)plan;
    return 0;
}

static sy_status largest_count(sy_ctx *ctx, const struct syi_moe_capacity_plan *p, int64_t *largest)
{
    const size_t count_bytes = p->type == SYI_I64 ? 8 : 4;
    *largest = 0;
    for (int64_t e = 0; e < p->n_experts; e++) {
        const int64_t count = syi_load_int(p->counts + (size_t)e * count_bytes, p->type);
        if (count < 0) {
            const sy_fault fault = {SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "counts", -1, e, count, 0};
            return syi_fail_at(ctx, &fault, "is %lld for expert %lld, want 0 or more", (long long)count,
                               (long long)e);
        }
        *largest = count > *largest ? count : *largest;
    }
    return SY_OK;
}

sy_status syi_cpu_moe_capacity(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_capacity_plan *p = &plan->moe_capacity;
    int64_t slots = p->bound, largest, rounded;
    (void)workspace;
    if (p->n_experts > 0) {
        const sy_status st = largest_count(ctx, p, &largest);
        if (st != SY_OK)
            return st;
        slots = largest < slots ? largest : slots;
    }
    if (!syi_round_up(slots, p->alignment, &rounded)) {
        const sy_fault fault =
            syi_value_fault(SY_ERR_OVERFLOW, SY_FAULT_NONE, "alignment", p->alignment, slots);
        return syi_fail_at(ctx, &fault, "is %lld for a capacity of %lld, want a multiple below 2^63",
                           (long long)p->alignment, (long long)slots);
    }
    syi_store_i64(p->out, 0, rounded);
    return SY_OK;
}
