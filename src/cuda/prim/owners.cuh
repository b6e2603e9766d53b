/*
 * Whether a key below a known number occurs twice: a word for each possible key, which is never cleared.
 * Every position stores itself at its key. Then a word that was not stored is never looked at, and a position
 * that finds another one there shares its key with it. Which of two is found depends on their order in time,
 * so that the first fault is looked for afterwards, where there is one.
 */
#pragma once

#include "cuda/runtime/context.cuh"

static inline bool syc_owners_fit(int64_t n)
{
    return n <= UINT32_MAX;
}
static inline size_t syc_owners_bytes(int64_t limit)
{
    return (size_t)limit * sizeof(u32);
}

/* Checks are as those of hash.cuh, with one kind of keys. This one has keys that may occur twice; for
   syc_check. */
template <class Check> struct syc_unowned {
    int64_t n;
    Check check;

    __device__ u64 of(int, int64_t, int64_t) const { return ~0ull; }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        return check.fault(i, *this, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { check.fault(i, *this, f); }
};

template <class Check> struct syc_owned {
    Check check;
    u32 *owner; /* [limit] */

    __device__ u64 of(int, int64_t key, int64_t) const { return __ldcg(&owner[key]); }
};

template <class Check>
static __global__ void __launch_bounds__(256) syc_owners_enter(const __grid_constant__ syc_owned<Check> owned)
{
    syc_start_next();
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < owned.check.n;
         i += (int64_t)gridDim.x * 256) {
        const int64_t key = owned.check.key(0, i);
        if (key >= 0)
            owned.owner[key] = (u32)i;
    }
}

/*
 * The first fault of all positions, by a block that knows of one: words become the first positions of their
 * keys, which other blocks may do at the same time. A block that sees a word before and one that sees it
 * afterwards both find a position with the key; where one misses a fault for that, there is a block that is
 * here.
 */
template <class Check>
SYC_COLD void syc_owners_explain(const syc_owned<Check> &owned, const syc_gate &gate, u64 *first)
{
    const Check &check = owned.check;
    syi_found f;
    if (threadIdx.x == 0)
        *first = SYC_NO_FAULT;
    for (int64_t i = threadIdx.x; i < check.n; i += 256) {
        const int64_t key = check.key(0, i);
        if (key >= 0 && owned.of(0, key, i) > (u64)i)
            atomicMin(&owned.owner[key], (u32)i);
    }
    __threadfence();
    __syncthreads();
    for (int64_t i = threadIdx.x; i < check.n; i += 256)
        if (check.fault(i, owned, &f)) {
            atomicMin(first, (u64)i);
            break;
        }
    __syncthreads();
    if (threadIdx.x == 0) {
        gate.order[blockIdx.x] = *first;
        check.fault((int64_t)*first, owned, &gate.found[blockIdx.x]);
    }
}

/* As syc_validate, but every block that finds a fault stores the first of all. */
template <class Check>
static __global__ void __launch_bounds__(256)
    syc_owners_validate(const __grid_constant__ syc_owned<Check> owned, const __grid_constant__ syc_gate gate)
{
    __shared__ u64 first;
    const Check &check = owned.check;
    const syc_unowned<Check> range = {check.n, check};
    bool bad = false;
    syc_start_next();
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < check.n; i += (int64_t)gridDim.x * 256) {
        const int64_t key = check.key(0, i);
        syc_wait_for_previous();
        bad |= key >= 0 ? owned.of(0, key, i) != (u64)i : range.wrong(i);
    }
    if (__syncthreads_or(bad) != 0)
        syc_owners_explain(owned, gate, &first);
    else if (threadIdx.x == 0)
        gate.order[blockIdx.x] = SYC_NO_FAULT;
}

template <class Check> static void syc_check_owners(syc_call *call, const Check &check)
{
    const syc_owned<Check> owned = {check, (u32 *)call->scratch};
    const int64_t wanted = (check.n + 255) / 256, blocks = syc_grid(call, wanted, grid_policy::CHECK);
    call->gate.n = (int)(blocks < SYC_MAX_CHECK_BLOCKS ? blocks : SYC_MAX_CHECK_BLOCKS);
    syc_launch(&call->queue, syc_owners_enter<Check>, SYC_AFTER, wanted < INT32_MAX ? wanted : INT32_MAX, 256,
               0, owned);
    syc_launch(&call->queue, syc_owners_validate<Check>, SYC_EARLY, call->gate.n, 256, 0, owned, call->gate);
}
