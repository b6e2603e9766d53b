/*
 * The parts of moe_route: rows of logits to experts and weights (moe_route.c), and the pairs that a capacity
 * removes from the map afterwards (moe_route_drop.c).
 */
#ifndef SYI_CPU_MOE_ROUTE_H
#define SYI_CPU_MOE_ROUTE_H

#include "base/plan.h"

/* The choices of the tokens, kept if there is a capacity. */
struct syi_route_pairs {
    int32_t *expert; /* [T*K]; -1: a finished token */
    uint32_t *key;   /* [T*K] order of the weights */
    int64_t *count;  /* [task][E]: pairs of each expert among the tokens of a task */
    int n_tasks;     /* parts the tokens were cut into by syi_part */
};

/* Scratch of syi_route_drop. */
size_t syi_route_drop_bytes(const struct syi_moe_route_plan *p, int n_tasks);

/* Removes the pairs beyond an expert's capacity from the map and the probs. The counts are overwritten. */
void syi_route_drop(sy_ctx *ctx, const struct syi_moe_route_plan *p, const struct syi_route_pairs *pairs,
                    void *scratch);

#endif
