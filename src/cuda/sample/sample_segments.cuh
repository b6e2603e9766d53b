/*
 * Rows of sample in segments, one for each warp of the blocks that share a row: reading them, and the token
 * of a draw from what they weigh.
 */
#pragma once

#include "cuda/sample/sample_stream.cuh"

enum { GROUP = 32 * SYC_OWN_TILES }; /* vectors that a warp loads at once */

/* Vectors of a segment: whole pieces of what a warp loads. */
SYC_INLINE u32 segment_vectors(u32 vectors, u32 segments)
{
    return ((vectors + segments - 1) / segments + 31) / 32 * 32;
}

template <sy_type T> SYC_INLINE syc_share segment_of(const syc_logits &l, u32 segment, u32 segments)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 each = segment_vectors(v.n, segments);
    const u32 whole = v.head + min(v.n, each * segment) * n,
              rest = v.head + min(v.n, each * (segment + 1)) * n;
    return {segment == 0 ? 0 : whole, whole, rest, segment + 1 == segments ? l.vocab : rest};
}

/* Vectors of group g of a segment; -inf where there is none. */
template <sy_type T> SYC_INLINE void load_from(const syc_logits &l, const syc_share &own, u32 g, uint4 *y)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 first = own.whole + (g * GROUP + (u32)syc_lane()) * n;
    if (l.allow == NULL && own.whole + (g + 1) * GROUP * n <= own.rest) {
        const uint4 *const x = (const uint4 *)(l.x + (int64_t)first * (16 / n));
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++)
            y[c] = __ldcg(x + c * 32);
        return;
    }
    const u32 nothing = syc_minus_inf_word<T>();
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        y[c] = first + c * 32 * n < own.rest ? syc_vector_at<T>(l, first + c * 32 * n)
                                             : make_uint4(nothing, nothing, nothing, nothing);
}

/* f(token) for the tokens of a segment that are in none of its vectors. */
template <class F> SYC_INLINE void each_beside(const syc_share &own, F f)
{
#pragma unroll 1
    for (u32 j = (u32)syc_lane(); j < own.whole - own.first + own.end - own.rest; j += 32)
        f(own.first + j < own.whole ? own.first + j : own.first + j - own.whole + own.rest);
}

/* The segment at which the sum of their weights exceeds want(sum of all), and what is left of that; each
 * warp. */
struct segment_found {
    u32 segment;
    u64 rest, total;
};

template <class Want> SYC_INLINE segment_found find_segment(const u64 *weight, u32 segments, Want want)
{
    const u32 each = (segments + 31) / 32, first = (u32)syc_lane() * each;
    u64 own = 0;
#pragma unroll 1
    for (u32 i = first; i < first + each && i < segments; i++)
        own += weight[i];
    const u64 upto = syc_warp_prefix(own), total = __shfl_sync(SYC_ALL_LANES, upto, 31), target = want(total);
    const int who = max(__ffs((int)__ballot_sync(SYC_ALL_LANES, target < upto)) - 1, 0);
    u64 rest = target - (upto - own);
    u32 i = first;
    if (syc_lane() == who)
        for (; i + 1 < segments && weight[i] <= rest; i++)
            rest -= weight[i];
    return {__shfl_sync(SYC_ALL_LANES, i, who), __shfl_sync(SYC_ALL_LANES, rest, who), total};
}

/* The token of a segment at which the sum of weight(token, bits) exceeds `rest`: true in the lane that has
 * it. All threads. */
template <sy_type T, u32 threads = SYC_SAMPLE_THREADS, class F>
SYC_INLINE bool find_token(const syc_logits &l, const syc_share &share, u64 rest, u64 *part, u64 *answer,
                           u32 *token, F weight)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const auto weight_at = [&](u32 i) { return weight(i, syc_bits_at<T>(l, i)); };
    if (share.first != share.whole || share.rest != share.end) { /* an end of a row that is not all vectors */
        *token = find_in_share(part, answer, share.first, share.end, rest, weight_at);
        return threadIdx.x == 0;
    }
    const u32 vectors = (share.rest - share.whole) / n, each = (vectors + threads - 1) / threads;
    const u32 first = share.whole + min(vectors, threadIdx.x * each) * n,
              end = share.whole + min(vectors, (threadIdx.x + 1) * each) * n;
    u64 own = 0, all;
    const auto add = [&](u32 i, u32 bits) { own += weight(i, bits); };
#pragma unroll 1
    for (u32 i = first; i < end; i += n)
        syc_each_of<T>(i, syc_vector_at<T>(l, i), add);
    const u64 before = syc_block_before(own, part, &all);
    const u32 here = __ballot_sync(SYC_ALL_LANES, before <= rest && rest < before + own);
    if (here == 0)
        return false;
    const int who = __ffs((int)here) - 1;
    const u32 last = __shfl_sync(SYC_ALL_LANES, end, who);
    u64 sum = __shfl_sync(SYC_ALL_LANES, before, who);
#pragma unroll 1
    for (u32 i = __shfl_sync(SYC_ALL_LANES, first, who) + (u32)syc_lane();; i += 32) {
        const u64 upto = sum + syc_warp_prefix(i < last ? weight_at(i) : 0);
        const u32 over = __ballot_sync(SYC_ALL_LANES, rest < upto);
        *token = i;
        if (over != 0)
            return syc_lane() == __ffs((int)over) - 1;
        sum = __shfl_sync(SYC_ALL_LANES, upto, 31);
    }
}
