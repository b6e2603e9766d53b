/*
 * Stable ranks: n keys below E; the row of an element is its place when all are sorted by key and, for equal
 * keys, by position. Few keys are counted, many are sorted.
 */
#pragma once

#include "cuda/prim/sort.cuh"

enum { SYC_MOST_COUNTED = 3072 }; /* keys of which every block has counters in shared memory */

/* Scratch bytes of syc_rank. */
static inline size_t syc_rank_bytes(int64_t n, int64_t n_keys, int processors)
{
    if (n_keys > SYC_MOST_COUNTED) {
        syc_sort_memory memory;
        return syc_sort_lay_out(&memory, n, processors, NULL);
    }
    const syc_ranks ranks = syc_ranks_of(n, processors);
    return syc_ranks_bytes(&ranks, (int)n_keys);
}

template <class Keys> struct syc_rank_elements {
    Keys keys;
    __device__ bool has(int64_t i) const { return keys.key(i) >= 0; }
    __device__ u64 sort_key(int64_t i) const { return (u64)keys.key(i); }
};

/* Bits of the keys below n. */
static inline int syc_key_bits(int64_t n)
{
    int bits = 1;
    while (bits < 32 && (u64)n > 1ull << bits)
        bits++;
    return bits;
}

/* The same ranks for any number of keys. Without `begins`, Out::begin is not called. */
template <class Keys, class Out>
static void syc_rank_sorted(syc_call *call, const Keys &keys, const Out &out, unsigned char *scratch,
                            bool begins)
{
    syc_sort_memory memory;
    syc_sort_lay_out(&memory, keys.n, call->device->processors, scratch);
    syc_check(call, keys);
    const syc_rank_elements<Keys> elements = {keys};
    const syc_sorted sorted = syc_sort(call, &memory, elements, keys.n, syc_key_bits(keys.n_keys));
    syc_place_sorted(call, elements, sorted, keys.n, begins ? keys.n_keys : 0, out);
}

/*
 * Validates and ranks: Out is called unless a key was wrong. The kernels that follow wait for it as for a
 * validation, and look at the same gate.
 */
template <class Keys, class Out>
static void syc_rank(syc_call *call, const Keys &keys, const Out &out, unsigned char *scratch)
{
    if (keys.n_keys <= SYC_MOST_COUNTED)
        syc_rank_counted(call, keys, out, scratch);
    else if (syc_takes(call, "rank_sorted"))
        syc_rank_sorted(call, keys, out, scratch, true);
}
