/*
 * The CPU backend: operators over the kernel table, rows split over threads.
 */
#ifndef SYI_CPU_BACKEND_H
#define SYI_CPU_BACKEND_H

#include "base/plan.h"

extern const struct syi_backend syi_cpu_backend;

#define SYI_CPU_RUN(ID, op) \
    size_t syi_cpu_##op##_workspace(const sy_ctx *ctx, const union syi_plan *plan); \
    sy_status syi_cpu_##op(sy_ctx *ctx, const union syi_plan *plan, void *workspace);
SYI_BACKEND_OPERATORS(SYI_CPU_RUN)
#undef SYI_CPU_RUN

#endif
