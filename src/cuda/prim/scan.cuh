/*
 * Prefix sums by one block over any number of elements, 512 at a time.
 */
#pragma once

#include "cuda/prim/block.cuh"

enum { SYC_SCAN_THREADS = SYC_BLOCK_WARPS * 32 };

/* a + b, but not more than `most`; neither is. */
SYC_INLINE u64 syc_add_up_to(u64 a, u64 b, u64 most)
{
    return b > most - a ? most : a + b;
}

/*
 * The sum of *all and of the threads before this one, then adds all threads to *all, which is the same in
 * each of them. Sums stop at `most`. `part` is shared memory of SYC_BLOCK_WARPS words.
 */
static __device__ u64 syc_scan_up_to(u64 own, u64 most, u64 *part, u64 *all)
{
    u64 sum = own, before = 0;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const u64 up = __shfl_up_sync(SYC_ALL_LANES, sum, (unsigned)d);
        sum = syc_lane() >= d ? syc_add_up_to(sum, up, most) : sum;
    }
    const u64 left = __shfl_up_sync(SYC_ALL_LANES, sum, 1u);
    __syncthreads(); /* part may still be read */
    if (syc_lane() == 31)
        part[syc_warp()] = sum;
    __syncthreads();
    u64 run = *all;
    for (int w = 0; w < syc_warps(); w++) {
        before = w == syc_warp() ? run : before;
        run = syc_add_up_to(run, part[w], most);
    }
    *all = run;
    return syc_lane() == 0 ? before : syc_add_up_to(before, left, most);
}
