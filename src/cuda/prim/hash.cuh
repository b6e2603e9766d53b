/*
 * The first position of every key: a hash table of positions, filled by atomic minima, so that what is found
 * does not depend on the order of threads. A place holds a position, whose key says what the place is for.
 * Open addressing, at least twice as many places as keys. For few positions one block has the table in shared
 * memory and validates, too; for more it is in scratch memory, and the kernels that fill it start early, each
 * behind the one before.
 */
#pragma once

#include "cuda/runtime/context.cuh"

#define SYC_NO_POSITION (~0ull)

/* W: of a place; all ones: free. */
template <typename W> struct syc_hash_of {
    W *first; /* [kinds][places]: a table for each kind of keys */
    u64 mask; /* places - 1 */

    SYC_INLINE u64 start(u64 key)
    {
        key ^= key >> 32;
        key *= 0x9e3779b97f4a7c15ull;
        return key ^ key >> 29;
    }
    /* Keys: a struct with `int64_t key(int kind, int64_t i)`, negative where position i has none. */
    template <class Keys>
    __device__ __forceinline__ void put(const Keys &keys, int kind, int64_t key, int64_t i) const
    {
        W *const places = first + (u64)kind * (mask + 1);
        for (u64 at = start((u64)key) & mask;; at = (at + 1) & mask) {
            const W old = atomicCAS(&places[at], (W) ~(W)0, (W)i);
            if (old == (W) ~(W)0)
                return;
            if (keys.key(kind, (int64_t)old) == key) {
                atomicMin(&places[at], (W)i);
                return;
            }
        }
    }
    /* The first position with this key; ~0: none. `own` has the key, or is -1. */
    template <class Keys>
    __device__ __forceinline__ u64 get(const Keys &keys, int kind, int64_t key, int64_t own) const
    {
        const W *const places = first + (u64)kind * (mask + 1);
        for (u64 at = start((u64)key) & mask;; at = (at + 1) & mask) {
            /* in scratch, in shared memory */
            const W found = sizeof(W) == 8 ? __ldcg(&places[at]) : places[at];
            if (found == (W) ~(W)0)
                return SYC_NO_POSITION;
            if (found == (W)own || keys.key(kind, (int64_t)found) == key)
                return found;
        }
    }
};

/*
 * A check of keys is a struct with `int64_t n`, `key` as above and `template <class Firsts> bool
 * fault(int64_t i, const Firsts &, struct syi_found *)`, which calls `u64 of(int kind, int64_t key, int64_t
 * own)`.
 */

/* ---- Few: one block ---- */

enum { SYC_HASH_FEW = 1024, SYC_HASH_KINDS = 2 };

struct syc_few_keys {
    int64_t keys[SYC_HASH_KINDS][SYC_HASH_FEW];
    u32 places[SYC_HASH_KINDS * 2 * SYC_HASH_FEW]; /* 2 * blockDim.x of each kind are used */

    __device__ int64_t key(int kind, int64_t i) const { return keys[kind][i]; }
    __device__ syc_hash_of<u32> hash() { return {places, 2 * blockDim.x - 1}; }
    __device__ u64 of(int kind, int64_t key, int64_t own) { return hash().get(*this, kind, key, own); }
};

/* As syc_validate, by a thread for each position; threads are a power of two. */
template <class Check>
static __global__ void __launch_bounds__(SYC_HASH_FEW)
    syc_check_few(const __grid_constant__ Check check, int kinds, const syc_gate gate)
{
    __shared__ syc_few_keys few;
    __shared__ u64 first;
    const int i = (int)threadIdx.x;
    syi_found f;
    syc_start_next();
    if (i == 0)
        first = SYC_NO_FAULT;
    for (int kind = 0; kind < kinds; kind++) {
        few.keys[kind][i] = i < check.n ? check.key(kind, i) : -1;
        few.places[2 * kind * (int)blockDim.x + i] = few.places[(2 * kind + 1) * (int)blockDim.x + i] = ~0u;
    }
    __syncthreads();
    for (int kind = 0; kind < kinds; kind++)
        if (few.keys[kind][i] >= 0)
            few.hash().put(few, kind, few.keys[kind][i], i);
    __syncthreads();
    if (i < check.n && check.fault(i, few, &f))
        atomicMin(&first, (u64)i);
    __syncthreads();
    if (first == (u64)i)
        gate.found[0] = f;
    if (i == 0)
        gate.order[0] = first;
}

/* ---- Many: tables in scratch memory ---- */

typedef syc_hash_of<u64> syc_hash;

static inline u64 syc_hash_places(int64_t n)
{
    u64 places = 64;
    while (places < 2 * (u64)n)
        places *= 2;
    return places;
}

/* None for few positions. */
static inline size_t syc_hash_bytes(int64_t n, int kinds)
{
    return n > SYC_HASH_FEW ? (size_t)syc_hash_places(n) * sizeof(u64) * (size_t)kinds : 0;
}

static __global__ void __launch_bounds__(256) syc_hash_clear(u64 *words, int64_t n)
{
    syc_start_next();
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        words[i] = SYC_NO_POSITION;
}

template <class Check>
static __global__ void __launch_bounds__(256)
    syc_hash_fill(const __grid_constant__ Check check, const syc_hash hash, int kinds)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    syc_start_next();
    const int64_t key = i < check.n ? check.key(0, i) : -1,
                  other = i < check.n && kinds > 1 ? check.key(1, i) : -1;
    syc_wait_for_previous();
    if (key >= 0)
        hash.put(check, 0, key, i);
    if (other >= 0)
        hash.put(check, 1, other, i);
}

/* For syc_check. */
template <class Check> struct syc_hashed {
    int64_t n;
    syc_hash hash;
    Check check;

    __device__ u64 of(int kind, int64_t key, int64_t own) const { return hash.get(check, kind, key, own); }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        syc_wait_for_previous(); /* the tables */
        return check.fault(i, *this, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { check.fault(i, *this, f); }
};

/* Validates positions with one or two kinds of keys. */
template <class Check> static void syc_check_keys(syc_call *call, const Check &check, int kinds)
{
    if (check.n <= SYC_HASH_FEW) {
        int threads = 64;
        while (threads < check.n)
            threads *= 2;
        call->gate.n = 1;
        syc_launch(&call->queue, syc_check_few<Check>, SYC_AFTER, 1, threads, 0, check, kinds, call->gate);
        return;
    }
    const syc_hash hash = {(u64 *)call->scratch, syc_hash_places(check.n) - 1};
    const int64_t words = (int64_t)(hash.mask + 1) * kinds;
    syc_launch(&call->queue, syc_hash_clear, SYC_AFTER,
               syc_grid(call, syc_ceil(words, 1024), grid_policy::COUNT), 256, 0, hash.first, words);
    syc_launch(&call->queue, syc_hash_fill<Check>, SYC_EARLY, (check.n + 255) / 256, 256, 0, check, hash,
               kinds);
    syc_check(call, syc_hashed<Check>{check.n, hash, check}, SYC_EARLY);
}
