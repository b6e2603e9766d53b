/*
 * What the threads of a block do together: sums, maxima, prefix sums, sorting. A block has at most
 * SYC_BLOCK_WARPS whole warps; all of its threads call these functions. `part` is shared memory of
 * SYC_BLOCK_WARPS words.
 */
#pragma once

#include "cuda/runtime/device.cuh"

enum { SYC_BLOCK_WARPS = 16, SYC_DIGITS = 256 };

SYC_INLINE int syc_lane()
{
    return (int)threadIdx.x % 32;
}
SYC_INLINE int syc_warp()
{
    return (int)threadIdx.x / 32;
}
SYC_INLINE int syc_warps()
{
    return (int)blockDim.x / 32;
}

/* ---- Sums ---- */

/* In pieces of 22 bits, so that 32 of them fit a word. */
SYC_INLINE u64 syc_warp_sum(u64 v)
{
    const u32 low = __reduce_add_sync(SYC_ALL_LANES, (u32)v & 0x3fffffu),
              middle = __reduce_add_sync(SYC_ALL_LANES, (u32)(v >> 22) & 0x3fffffu);
    return low + ((u64)middle << 22) + ((u64)__reduce_add_sync(SYC_ALL_LANES, (u32)(v >> 44)) << 44);
}

/* The sum of the lanes up to this one. */
template <typename N> SYC_INLINE N syc_warp_prefix(N v)
{
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const N up = __shfl_up_sync(SYC_ALL_LANES, v, (unsigned)d);
        v += syc_lane() >= d ? up : 0;
    }
    return v;
}

[[maybe_unused]] SYC_COLD u64 syc_block_sum(u64 v, u64 *part)
{
    v = syc_warp_sum(v);
    __syncthreads(); /* part may still be read */
    if (syc_lane() == 0)
        part[syc_warp()] = v;
    __syncthreads();
    return syc_warp_sum(syc_lane() < syc_warps() ? part[syc_lane()] : 0);
}

[[maybe_unused]] SYC_COLD u64 syc_block_max(u64 v, u64 *part)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        v = max(v, __shfl_xor_sync(SYC_ALL_LANES, v, d));
    __syncthreads();
    if (syc_lane() == 0)
        part[syc_warp()] = v;
    __syncthreads();
#pragma unroll
    for (int w = 0; w < SYC_BLOCK_WARPS; w++)
        v = w < syc_warps() ? max(v, part[w]) : v;
    return v;
}

/* The same of 32 bits, with one barrier: `part` has two halves, and turns alternate between them. */
SYC_INLINE u32 syc_block_most(u32 v, u32 (*part)[SYC_BLOCK_WARPS], int turn)
{
    v = __reduce_max_sync(SYC_ALL_LANES, v);
    if (syc_lane() == 0)
        part[turn & 1][syc_warp()] = v;
    __syncthreads();
    return __reduce_max_sync(SYC_ALL_LANES, syc_lane() < syc_warps() ? part[turn & 1][syc_lane()] : 0);
}

/* The sum of the threads before this one, and of all in *total. */
[[maybe_unused]] SYC_COLD u64 syc_block_before(u64 own, u64 *part, u64 *total)
{
    const u64 prefix = syc_warp_prefix(own);
    __syncthreads();
    if (syc_lane() == 31)
        part[syc_warp()] = prefix;
    __syncthreads();
    const u64 of_warp = syc_lane() < syc_warps() ? part[syc_lane()] : 0;
    *total = syc_warp_sum(of_warp);
    return syc_warp_sum(syc_lane() < syc_warp() ? of_warp : 0) + prefix - own;
}

/* ---- Sorting ---- */

/* Sorts n distinct numbers other than 0 in shared memory, the largest first; the array has room for the next
   power of two. */
[[maybe_unused]] SYC_COLD void syc_sort_few(u64 *x, int n)
{
    __syncthreads();
    if (n <= (int)blockDim.x) { /* the place of a number is how many are larger */
        const u64 own = (int)threadIdx.x < n ? x[threadIdx.x] : 0;
        int place = 0;
        if (own != 0)
            for (int i = 0; i < n; i++)
                place += x[i] > own;
        __syncthreads();
        if (own != 0)
            x[place] = own;
        __syncthreads();
        return;
    }
    int all = 1;
    while (all < n)
        all *= 2;
    for (int i = n + (int)threadIdx.x; i < all; i += (int)blockDim.x)
        x[i] = 0;
    __syncthreads();
    for (int width = 2; width <= all; width *= 2)
        for (int step = width / 2; step > 0; step /= 2) {
            for (int t = (int)threadIdx.x; t < all / 2; t += (int)blockDim.x) {
                const int i = 2 * t - (t & (step - 1)), j = i + step; /* step is a power of two */
                const u64 a = x[i], b = x[j];
                if ((a < b) == ((i & width) == 0)) {
                    x[i] = b;
                    x[j] = a;
                }
            }
            __syncthreads();
        }
}

/* The part of n elements that a warp takes; the parts of later warps follow it. */
SYC_INLINE int64_t syc_warp_part(int64_t n, int warp)
{
    const int64_t each = ((n + syc_warps() - 1) / syc_warps() + 31) / 32 * 32;
    return min(n, each * warp);
}

/* Where the elements with each digit go: counts of [warp][digit] become first places. One warp calls it. */
SYC_INLINE void syc_digit_places(u32 *counts)
{
    u64 own = 0;
    for (int d = syc_lane() * 8; d < syc_lane() * 8 + 8; d++)
        for (int w = 0; w < syc_warps(); w++)
            own += counts[w * SYC_DIGITS + d];
    u64 place = syc_warp_prefix(own) - own;
    for (int d = syc_lane() * 8; d < syc_lane() * 8 + 8; d++)
        for (int w = 0; w < syc_warps(); w++) {
            const u32 n = counts[w * SYC_DIGITS + d];
            counts[w * SYC_DIGITS + d] = (u32)place;
            place += n;
        }
}

/*
 * Sorts n < 2^32 numbers in device memory by their bits from 32 up to `high`, the smallest first; equal ones
 * keep their order. `counts` is shared memory of [SYC_BLOCK_WARPS][SYC_DIGITS]. Returns where the result is:
 * x or y, both of n.
 */
[[maybe_unused]] SYC_COLD u64 *syc_sort_many(u64 *x, u64 *y, int64_t n, int high, u32 *counts)
{
    const int64_t first = syc_warp_part(n, syc_warp()), end = syc_warp_part(n, syc_warp() + 1);
    u32 *const own = counts + syc_warp() * SYC_DIGITS;
    for (int shift = 32; shift < high; shift += 8) {
        __syncthreads();
        for (int d = syc_lane(); d < SYC_DIGITS; d += 32)
            own[d] = 0;
        __syncwarp();
        for (int64_t i = first + syc_lane(); i < end; i += 32)
            atomicAdd(&own[x[i] >> shift & 255], 1u);
        __syncthreads();
        bool all = false; /* some digit is that of all elements */
        for (int d = (int)threadIdx.x; d < SYC_DIGITS; d += (int)blockDim.x) {
            u32 sum = 0;
            for (int w = 0; w < syc_warps(); w++)
                sum += counts[w * SYC_DIGITS + d];
            all |= (int64_t)sum == n;
        }
        if (__syncthreads_or(all))
            continue;
        if (syc_warp() == 0)
            syc_digit_places(counts);
        __syncthreads();
        for (int64_t at = first; at < end; at += 32) {
            const bool in = at + syc_lane() < end;
            const u64 v = in ? x[at + syc_lane()] : 0;
            const int digit = in ? (int)(v >> shift & 255) : -1;
            const u32 same = __match_any_sync(SYC_ALL_LANES, digit);
            if (in)
                y[own[digit] + (u32)__popc(same & ((1u << syc_lane()) - 1u))] = v;
            __syncwarp();
            if (in && syc_lane() == __ffs((int)same) - 1)
                own[digit] += (u32)__popc(same);
            __syncwarp();
        }
        u64 *const sorted = y;
        y = x;
        x = sorted;
    }
    __syncthreads();
    return x;
}

/* To shared memory, for each lane by itself: what the compiler makes of atomicAdd gathers the warp first. */
SYC_INLINE u32 syc_shared_add(u32 *p, u32 v)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return atomicAdd(p, v);
#else
    u32 old;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;"
                 : "=r"(old)
                 : "r"((u32)__cvta_generic_to_shared(p)), "r"(v)
                 : "memory");
    return old;
#endif
}
