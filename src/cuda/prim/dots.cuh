/*
 * Dot products in the order of additions of src/kernels: product i is added to lane i % SYI_DOT_LANES, lanes
 * are folded by halves, every SYI_DOT_BLOCK elements by themselves, and the blocks added in order. Four
 * threads compute one, with four lanes each; a warp computes eight at a time.
 */
#pragma once

#include "cuda/prim/block.cuh"
#include "cuda/prim/slots.cuh"

/* Adds the products x * y of four vectors of 16 bytes, one in each thread. Numbers of two bytes are 32 in a
   row: lanes 0 to 7 are in threads 0 and then 2, lanes 8 to 15 in 1 and then 3; each of two such threads
   takes four lanes. */
template <class Numbers> SYC_INLINE void syc_add_products(uint4 x, uint4 y, float (&sum)[4])
{
    const bool first = syc_lane() % 4 < 2;
    float p[Numbers::N], q[Numbers::N];
    Numbers::widen(x, p);
    Numbers::widen(y, q);
#pragma unroll
    for (int k = 0; k < Numbers::N; k++)
        p[k] = __fmul_rn(p[k], q[k]);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if constexpr (Numbers::N == 4) {
            sum[k] = __fadd_rn(sum[k], p[k]);
        } else {
            const float own = first ? p[k] : p[k + 4];
            const float other = __shfl_xor_sync(SYC_ALL_LANES, first ? p[k + 4] : p[k], 2);
            sum[k] = __fadd_rn(__fadd_rn(sum[k], first ? own : other), first ? other : own);
        }
    }
}

/*
 * The dot product of n elements of a and b, for all of its four threads; n is the same for the whole warp,
 * which calls this together. b NULL: nothing is loaded. Missing elements are 0, which changes no lane: none
 * is ever -0.
 */
template <sy_type T, bool WIDE> SYC_INLINE float syc_dot(const u8 *a, const u8 *b, int64_t n)
{
    typedef syc_numbers<T, WIDE> Numbers;
    /* the thread whose lanes are eight further on */
    enum { N = Numbers::N, AHEAD = 8, AFTER = N == 8 ? 1 : 2 };
    const int thread = syc_lane() % 4;
    float total = 0.0f;
#pragma unroll 1
    for (int64_t begin = 0; begin < n; begin += SYI_DOT_BLOCK) {
        const int length = (int)min((int64_t)SYI_DOT_BLOCK, n - begin), vectors = b != NULL ? length / N : 0;
        const u8 *const from = a + begin * Numbers::SIZE, *const with =
                                                              (b != NULL ? b : a) + begin * Numbers::SIZE;
        float sum[4] = {};
        if constexpr (WIDE) {
#pragma unroll 1
            /* the same turns for all threads */
            for (int first = thread; first * N < length + thread * N; first += AHEAD * 4) {
                uint4 x[AHEAD], y[AHEAD];
#pragma unroll
                for (int u = 0; u < AHEAD; u++) {
                    const int i = first + u * 4;
                    x[u] = i < vectors ? __ldg((const uint4 *)from + i) : make_uint4(0, 0, 0, 0);
                    y[u] = i < vectors ? Numbers::load(with, i) : make_uint4(0, 0, 0, 0);
                }
#pragma unroll
                for (int u = 0; u < AHEAD; u++)
                    syc_add_products<Numbers>(x[u], y[u], sum);
            }
        } else {
#pragma unroll 1
            for (int first = thread * 4; first < vectors; first += SYI_DOT_LANES) {
                typename Numbers::V x[4] = {}, y[4] = {};
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (first + k < vectors) {
                        x[k] = Numbers::load(from, first + k);
                        y[k] = Numbers::load(with, first + k);
                    }
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    float p[1], q[1];
                    Numbers::widen(x[k], p);
                    Numbers::widen(y[k], q);
                    sum[k] = __fadd_rn(sum[k], __fmul_rn(p[0], q[0]));
                }
            }
            __syncwarp();
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            sum[k] = __fadd_rn(sum[k], __shfl_xor_sync(SYC_ALL_LANES, sum[k], AFTER));
            sum[k] = __fadd_rn(sum[k], __shfl_xor_sync(SYC_ALL_LANES, sum[k], 3 - AFTER));
        }
        total = __fadd_rn(total, __fadd_rn(__fadd_rn(sum[0], sum[2]), __fadd_rn(sum[1], sum[3])));
    }
    return syc_canonical(total);
}
