/*
 * Calls so small that one block does all of it: it validates, and then writes, without a second launch.
 */
#pragma once

#include "cuda/runtime/context.cuh"

enum { SYC_ONE_BLOCK = 512 }; /* threads */

/* A barrier after which the block reads what any of its threads wrote, by way of the second cache too. */
SYC_INLINE void syc_next_step()
{
    __threadfence();
    __syncthreads();
}

/* Whether the block may write: validates all items of a check (see syc_validate) and reports the first fault.
   The gate is of one block; all threads call it, with the same result. */
template <class Check> static __device__ bool syc_validate_all(const Check &check, const syc_gate &gate)
{
    __shared__ u64 first;
    const bool closed = threadIdx.x == 0 && __ldcg(gate.closed) != 0;
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < check.n; i += blockDim.x)
        if (check.wrong(i)) {
            atomicMin(&first, (u64)i);
            break;
        }
    if (__syncthreads_or(closed) == 0 && first == SYC_NO_FAULT)
        return true;
    if (threadIdx.x == 0 && first != SYC_NO_FAULT) {
        gate.order[0] = first;
        check.explain((int64_t)first, &gate.found[0]);
        __threadfence();
        syc_report_rarely(gate);
    }
    return false;
}
