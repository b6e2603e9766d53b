/*
 * The CPU backend: operators over the kernel table, rows split over threads; and what every operator here is made of.
 */
#pragma once

#include "plan/plan.h"
#include "cpu/load.h"
#include "cpu/pool.h"

extern const struct syi_backend syi_cpu_backend;

#define SYI_CPU_RUN(ID, op) \
    size_t syi_cpu_##op##_workspace(const sy_ctx *ctx, const union syi_plan *plan); \
    sy_status syi_cpu_##op(sy_ctx *ctx, const union syi_plan *plan, void *workspace);
SYI_BACKEND_OPERATORS(SYI_CPU_RUN)
#undef SYI_CPU_RUN

/* The scratch of an operator that cuts it by `lay_out(ctx, plan, arena)`, and of one that needs none. */
#define SYI_CPU_WORKSPACE(op) \
    size_t syi_cpu_##op##_workspace(const sy_ctx *ctx, const union syi_plan *plan) \
    { \
        struct syi_arena arena = {NULL, 0}; \
        lay_out(ctx, &plan->op, &arena); \
        return arena.used; \
    }
#define SYI_CPU_NO_WORKSPACE(op) \
    size_t syi_cpu_##op##_workspace(const sy_ctx *ctx, const union syi_plan *plan) \
    { \
        (void)ctx; \
        (void)plan; \
        return 0; \
    }
