/*
 * The operators of this backend: scratch bytes of a plan, and its launches.
 */
#ifndef SYC_BACKEND_H
#define SYC_BACKEND_H

#include "cuda/context.cuh"

/* Those that are here. */
#define SYC_NOTHING(ID, op)
#define SYC_OPERATORS(X) SYI_BACKEND_LIST(X, SYC_NOTHING)

#define SYC_DECLARE(ID, op) \
    size_t syc_##op##_workspace(const struct syc_device *device, const union syi_plan *plan); \
    void syc_##op(struct syc_call *call, const union syi_plan *plan);
SYC_OPERATORS(SYC_DECLARE)
#undef SYC_DECLARE

#endif
