/*
 * The first position of every key: a hash table of positions in scratch memory, filled by atomic minima, so that what is found
 * does not depend on the order of threads. A place holds a position, whose key says what the place is for. Open addressing, at
 * least twice as many places as keys. The kernels that fill it start early, each behind the one before.
 */
#ifndef SYC_HASH_CUH
#define SYC_HASH_CUH

#include "cuda/context.cuh"

#define SYC_NO_POSITION (~0ull)

struct syc_hash {
    u64 *first; /* [kinds][places]: a table for each kind of keys */
    u64 mask;   /* places - 1 */
};

enum { SYC_HASH_FEW = 1024 }; /* positions that one block enters, a thread for each */

static inline u64 syc_hash_places(int64_t n)
{
    u64 places = 64;
    while (places < 2 * (u64)n)
        places *= 2;
    return places;
}

static inline size_t syc_hash_bytes(int64_t n, int kinds) { return (size_t)syc_hash_places(n) * sizeof(u64) * (size_t)kinds; }

static inline struct syc_hash syc_hash_at(void *memory, int64_t n) { return {(u64 *)memory, syc_hash_places(n) - 1}; }

static __device__ __forceinline__ u64 syc_hash_start(u64 key)
{
    key ^= key >> 32;
    key *= 0x9e3779b97f4a7c15ull;
    return key ^ key >> 29;
}

/* Keys: a struct with `int64_t n`, the positions, `int64_t key(int kind, int64_t i)`, negative where position i has none, and
   `struct syc_hash hash`. */
template <class Keys> static __device__ __forceinline__ void syc_hash_put(const Keys &keys, int kind, int64_t key, int64_t i)
{
    const u64 mask = keys.hash.mask;
    u64 *const first = keys.hash.first + (u64)kind * (mask + 1);
    for (u64 at = syc_hash_start((u64)key) & mask;; at = (at + 1) & mask) {
        const u64 old = atomicCAS(&first[at], (u64)SYC_NO_POSITION, (u64)i);
        if (old == SYC_NO_POSITION)
            return;
        if (keys.key(kind, (int64_t)old) == key) {
            atomicMin(&first[at], (u64)i);
            return;
        }
    }
}

/* The first position with this key; ~0: none. `own` has the key, or is -1. */
template <class Keys> static __device__ __forceinline__ u64 syc_hash_get(const Keys &keys, int kind, int64_t key, int64_t own)
{
    const u64 mask = keys.hash.mask;
    const u64 *const first = keys.hash.first + (u64)kind * (mask + 1);
    for (u64 at = syc_hash_start((u64)key) & mask;; at = (at + 1) & mask) {
        const u64 found = __ldcg(&first[at]);
        if (found == SYC_NO_POSITION || found == (u64)own || keys.key(kind, (int64_t)found) == key)
            return found;
    }
}

/* ---- Filling ------------------------------------------------------------------------------------------------------ */

static __global__ void __launch_bounds__(256) syc_hash_clear(u64 *words, int64_t n)
{
    syc_start_next();
    for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < n; i += (int64_t)gridDim.x * 256)
        words[i] = SYC_NO_POSITION;
}

/* FEW: one block, which clears the tables itself. */
template <class Keys, bool FEW> static __global__ void __launch_bounds__(SYC_HASH_FEW) syc_hash_fill(const Keys keys, int kinds)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    syc_start_next();
    const int64_t key = i < keys.n ? keys.key(0, i) : -1, other = i < keys.n && kinds > 1 ? keys.key(1, i) : -1;
    if (FEW) {
        for (u64 k = threadIdx.x; k < (keys.hash.mask + 1) * (u64)kinds; k += blockDim.x)
            keys.hash.first[k] = SYC_NO_POSITION;
        __threadfence();
        __syncthreads();
    } else {
        syc_wait_for_previous();
    }
    if (key >= 0)
        syc_hash_put(keys, 0, key, i);
    if (other >= 0)
        syc_hash_put(keys, 1, other, i);
}

/* Tables of one or two kinds of keys. What reads them starts early and waits. */
template <class Keys> static void syc_hash_make(struct syc_call *call, const Keys &keys, int kinds)
{
    const int64_t words = (int64_t)(keys.hash.mask + 1) * kinds, clear = (words + 1023) / 1024, most = 4 * call->device->processors;
    if (keys.n <= SYC_HASH_FEW) {
        syc_launch(&call->queue, syc_hash_fill<Keys, true>, SYC_AFTER, 1, SYC_HASH_FEW, 0, keys, kinds);
        return;
    }
    syc_launch(&call->queue, syc_hash_clear, SYC_AFTER, clear < most ? clear : most, 256, 0, keys.hash.first, words);
    syc_launch(&call->queue, syc_hash_fill<Keys, false>, SYC_EARLY, (keys.n + 255) / 256, 256, 0, keys, kinds);
}

#endif
