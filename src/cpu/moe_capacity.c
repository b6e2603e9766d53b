/*
 * moe_capacity on the CPU: the largest of the counts, limited by the factor.
 */
#include "cpu/backend.h"

SYI_CPU_NO_WORKSPACE(moe_capacity)

enum { LANES = 8 }; /* counts that are compared at a time */

/* The largest count, and the bits of all counts together, whose sign is that of the smallest. */
struct extremes {
    int64_t largest[LANES], bits[LANES];
};

static inline void add_count(struct extremes *x, int lane, int64_t count)
{
    x->largest[lane] = count > x->largest[lane] ? count : x->largest[lane];
    x->bits[lane] |= count;
}

static inline struct extremes extremes_of(const unsigned char *counts, int64_t n, sy_type type)
{
    struct extremes x = {{0}, {0}};
    int64_t e = 0;
    for (; e + LANES <= n; e += LANES)
        for (int lane = 0; lane < LANES; lane++)
            add_count(&x, lane, syi_load_index(counts, e + lane, type));
    for (; e < n; e++)
        add_count(&x, 0, syi_load_index(counts, e, type));
    for (int lane = 1; lane < LANES; lane++) {
        add_count(&x, 0, x.largest[lane]);
        x.bits[0] |= x.bits[lane];
    }
    return x;
}

static struct syi_found find_negative(const struct syi_moe_capacity_plan *p)
{
    int64_t e = 0;
    while (syi_load_index(p->counts.data, e, p->counts.type) >= 0)
        e++;
    return syi_bad_at(SYI_BAD_COUNT_NEGATIVE, -1, e, syi_load_index(p->counts.data, e, p->counts.type), 0);
}

sy_status syi_cpu_moe_capacity(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_capacity_plan *p = &plan->moe_capacity;
    int64_t slots = p->bound, rounded;
    (void)workspace;
    if (p->n_experts > 0) {
        const struct extremes x = p->counts.type == SY_TYPE_I64
                                      ? extremes_of(p->counts.data, p->n_experts, SY_TYPE_I64)
                                      : extremes_of(p->counts.data, p->n_experts, SY_TYPE_I32);
        if (x.bits[0] < 0)
            return syi_report(ctx, find_negative(p));
        slots = x.largest[0] < slots ? x.largest[0] : slots;
    }
    if (!syi_round_up(slots, p->alignment, &rounded))
        return syi_reject(ctx, SYI_BAD_CAPACITY_ALIGNMENT, -1, -1, p->alignment, slots);
    syi_store_i64(p->capacity.data, 0, rounded);
    return SY_OK;
}
