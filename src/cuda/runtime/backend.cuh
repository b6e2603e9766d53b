/*
 * The operators of this backend: scratch bytes of a plan, and its launches.
 */
#pragma once

#include "cuda/runtime/context.cuh"

/* Those that are here. */
#define SYC_NOTHING(ID, op)
#define SYC_OPERATORS(X) SYI_BACKEND_LIST(X, SYC_NOTHING)

#define SYC_DECLARE(ID, op) \
    size_t syc_##op##_workspace(const syc_device *device, const syi_plan *plan); \
    void syc_##op(syc_call *call, const syi_plan *plan);
SYC_OPERATORS(SYC_DECLARE)
#undef SYC_DECLARE

/* The scratch of an operator that cuts it by `lay_out(device, plan, scratch)`, and of one that needs none. */
#define SYC_WORKSPACE(op, member) \
    size_t syc_##op##_workspace(const syc_device *device, const syi_plan *plan) \
    { \
        syc_scratch scratch = {NULL, 0}; \
        lay_out(device, &plan->member, &scratch); \
        return scratch.used; \
    }
#define SYC_NO_WORKSPACE(op) \
    size_t syc_##op##_workspace(const syc_device *, const syi_plan *) \
    { \
        return 0; \
    }
