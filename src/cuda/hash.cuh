/*
 * The first position of every key: a hash table in scratch memory, filled by atomic minima, so that its contents do not
 * depend on the order of threads. Open addressing, at least twice as many places as keys.
 */
#ifndef SYC_HASH_CUH
#define SYC_HASH_CUH

#include "cuda/context.cuh"

#define SYC_NO_KEY (~0ull)

struct syc_hash {
    u64 *key;      /* [places], SYC_NO_KEY: free */
    u64 *first[2]; /* [places]: the least position of a key, of two kinds; ~0: none */
    u64 mask;      /* places - 1 */
};

static inline u64 syc_hash_places(int64_t n)
{
    u64 places = 64;
    while (places < 2 * (u64)n)
        places *= 2;
    return places;
}

static inline size_t syc_hash_bytes(int64_t n, int kinds) { return (size_t)syc_hash_places(n) * sizeof(u64) * (size_t)(1 + kinds); }

/* Takes the memory and clears it in stream order. */
static inline struct syc_hash syc_hash_make(struct syc_call *call, void *memory, int64_t n, int kinds)
{
    const u64 places = syc_hash_places(n);
    u64 *const words = (u64 *)memory;
    if (call->queue.error == cudaSuccess)
        call->queue.error = cudaMemsetAsync(memory, 0xff, syc_hash_bytes(n, kinds), call->queue.stream);
    return {words, {words + places, kinds > 1 ? words + 2 * places : NULL}, places - 1};
}

static __device__ __forceinline__ u64 syc_hash_start(u64 key)
{
    key ^= key >> 32;
    key *= 0x9e3779b97f4a7c15ull;
    return key ^ key >> 29;
}

static __device__ void syc_hash_put(const struct syc_hash &h, int kind, u64 key, u64 position)
{
    for (u64 at = syc_hash_start(key) & h.mask;; at = (at + 1) & h.mask) {
        const u64 old = atomicCAS(&h.key[at], (u64)SYC_NO_KEY, key);
        if (old != SYC_NO_KEY && old != key)
            continue;
        atomicMin(&h.first[kind][at], position);
        return;
    }
}

/* ~0: no position of this kind has the key. */
static __device__ u64 syc_hash_get(const struct syc_hash &h, int kind, u64 key)
{
    for (u64 at = syc_hash_start(key) & h.mask;; at = (at + 1) & h.mask) {
        const u64 found = __ldcg(&h.key[at]);
        if (found == key)
            return __ldcg(&h.first[kind][at]);
        if (found == SYC_NO_KEY)
            return ~0ull;
    }
}

#endif
