/*
 * Cuts of the order by histograms of integers, and candidates in shared memory, which are in no order unless
 * one is needed.
 */
#pragma once

#include "cuda/sample/sample_row.cuh"

/* ---- Sums by bins ---- */

/* Lanes with the same place count as one: rows of ties are as fast as others. */
SYC_INLINE void syc_shared_count(u32 *p)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    atomicAdd(p, 1u);
#else
    asm volatile("red.shared.add.u32 [%0], 1;" ::"r"((u32)__cvta_generic_to_shared(p)) : "memory");
#endif
}

SYC_INLINE void syc_shared_add(u32 *low, u32 *high, u64 v)
{
    const u32 l = (u32)v, old = syc_shared_add(low, l), h = (u32)(v >> 32) + (old + l < old ? 1u : 0u);
    if (h != 0)
        syc_shared_add(high, h);
}

SYC_INLINE void syc_add_to_bin(syc_sample_shared *s, u32 bin, u64 measure)
{
    syc_shared_add(&s->bin.low[bin], &s->bin.high[bin], measure);
}

SYC_INLINE u64 syc_bin_at(const syc_sample_shared *s, u32 bin)
{
    return (u64)s->bin.high[bin] << 32 | s->bin.low[bin];
}

/* What follows for the same bin is added up before it goes there: rows of ties have one bin, and sorted ones
 * few. */
struct syc_run {
    u32 bin;
    u64 sum;
};

SYC_INLINE void syc_add_to_run(syc_sample_shared *s, syc_run &run, u32 bin, u64 measure)
{
    if (bin != run.bin) {
        if (run.sum != 0)
            syc_add_to_bin(s, run.bin, run.sum);
        run = {bin, 0};
    }
    run.sum += measure;
}

SYC_INLINE void syc_clear_bins(syc_sample_shared *s)
{
    __syncthreads();
    for (u32 i = threadIdx.x; i < SYC_BINS; i += blockDim.x)
        s->bin.low[i] = s->bin.high[i] = 0;
    __syncthreads();
}

/* The first bin at which the sum of at(bin) over all up to it reaches want(sum of all): answer is the bin,
   what it must contribute, and its sum. False when all together do not reach it. */
template <class At, class Want> SYC_INLINE bool syc_find_bin(syc_sample_shared *s, At at, Want want)
{
    const u32 each = SYC_BINS / blockDim.x, first = threadIdx.x * each;
    u64 own = 0, total;
    __syncthreads();
    for (u32 i = first; i < first + each; i++)
        own += at(i);
    u64 sum = syc_block_before(own, s->part, &total);
    const u64 left = want(total);
    if (sum < left && left <= sum + own)
        for (u32 i = first; i < first + each; i++) {
            const u64 here = at(i);
            if (left <= sum + here) {
                s->answer[0] = i;
                s->answer[1] = left - sum;
                s->answer[2] = here;
                break;
            }
            sum += here;
        }
    __syncthreads();
    return left <= total;
}

struct syc_cut {
    u32 value;
    u64 rest, at; /* measure still wanted from the items of this value, and what they have */
};

/*
 * The largest value in [low, high] at which the measure of all values >= it reaches a target >= 1; false when
 * all do not. visit(f) calls f(value, measure) for every item, shared by the threads of the block, and
 * perhaps for others outside the range. A pass leaves one bin of the last one; passes end when a bin has no
 * more than `slack`: then its least value is found.
 */
template <class Visit>
SYC_INLINE bool syc_select(syc_sample_shared *s, u32 low, u32 high, u64 target, u64 slack, syc_cut *cut,
                           Visit visit)
{
#pragma unroll 1
    for (;;) {
        const u32 range = high - low;
        const int bits = 32 - __clz((int)range), shift = bits > 11 ? bits - 11 : 0;
        static_assert((int)SYC_BINS == 1 << 11, "bits of a bin's number");
        syc_run run = {0, 0};
        syc_clear_bins(s);
        visit([&](u32 value, u64 measure) {
            if (high - value <= range)
                syc_add_to_run(s, run, (high - value) >> shift, measure);
        });
        syc_add_to_bin(s, run.bin, run.sum);
        if (!syc_find_bin(
                s, [&](u32 i) { return syc_bin_at(s, i); }, [&](u64) { return target; }))
            return false;
        high -= (u32)s->answer[0] << shift;
        low = (high - low) >> shift == 0 ? low : high - ((1u << shift) - 1);
        target = s->answer[1];
        if (shift == 0 || s->answer[2] <= slack) {
            *cut = {low, target, s->answer[2]};
            return true;
        }
    }
}

/* What the items of a selection are ordered by, and what they measure. */
enum syc_by { SYC_BY_TILE, SYC_BY_KEY, SYC_BY_WEIGHT, SYC_BY_TOKEN, SYC_BY_TOKEN_WEIGHT };

struct syc_select_list {
    const u64 *item; /* in shared memory: ranks; of tiles keys, as words */
    u32 n;
    enum syc_by by;
    int spare; /* bits of keys that are left out */
    u32 key;   /* by token: of those that count, with measure 1 */
};

/* f(value, measure) for one of them. */
template <class F>
SYC_INLINE void syc_visit(enum syc_by by, u32 key, u32 token, int spare, u32 wanted, const syc_scale &scale,
                          F f)
{
    const bool weighs = by == SYC_BY_WEIGHT || by == SYC_BY_TOKEN_WEIGHT;
    const u64 measure = weighs               ? syc_weight_of(scale, key)
                        : by == SYC_BY_TOKEN ? (u64)(key == wanted)
                                             : (u64)(key != 0);
    if (measure != 0)
        f(by >= SYC_BY_TOKEN ? (u32)~token : key >> spare, measure);
}

SYC_COLD bool syc_select_items(syc_sample_shared *s, syc_select_list of, syc_scale scale, u32 low, u32 high,
                               u64 target, u64 slack, syc_cut *cut)
{
    return syc_select(s, low, high, target, slack, cut, [&](auto f) {
#pragma unroll 1
        for (u32 j = threadIdx.x; j < of.n; j += blockDim.x) {
            const u64 v = of.by == SYC_BY_TILE ? (u64)((const u32 *)of.item)[j] << 32 : of.item[j];
            syc_visit(of.by, syc_key_of(v), syc_token_of(v), of.spare, of.key, scale, f);
        }
    });
}

/* Keys of 16-bit types without the bits that follow from the others, and back: those are ones below 0, and in
   the FLT_MAX that +inf became. */
template <sy_type T> SYC_INLINE constexpr int syc_spare_bits()
{
    return T == SY_TYPE_F32 ? 0 : T == SY_TYPE_F16 ? 13 : 15;
}

template <sy_type T> SYC_INLINE u32 syc_whole_key(u32 v)
{
    constexpr int spare = syc_spare_bits<T>();
    return v << spare | (v >> (31 - spare) == 0 || v == 0xff7fffffu >> spare ? (1u << spare) - 1 : 0);
}

/* The least key in [low, high] of which `is` is true; it is true of high, and of all above one of which it
 * is. */
template <class Is> SYC_INLINE u32 syc_least_key(u32 low, u32 high, Is is)
{
#pragma unroll 1
    while (low < high) {
        const u32 middle = low + (high - low) / 2;
        if (is(middle))
            high = middle;
        else
            low = middle + 1;
    }
    return high;
}

/* ---- Candidates in shared memory ---- */

struct syc_item {
    u32 key, token;
};

SYC_INLINE syc_item syc_few_at(const syc_sample_row &r, u32 j)
{
    const u64 v = r.by_token ? syc_swapped(r.s->few[j]) : r.s->few[j];
    return {syc_key_of(v), syc_token_of(v)};
}

/* Puts the candidates into rank order, or into index order. */
SYC_INLINE void syc_order_few(syc_sample_row &r, bool by_token)
{
    __syncthreads();
    for (u32 j = threadIdx.x; j < r.n && r.by_token != by_token; j += blockDim.x)
        r.s->few[j] = syc_swapped(r.s->few[j]);
    syc_sort_few(r.s->few, (int)r.n);
    syc_change([&] { r.by_token = by_token; });
}

/* Candidates before `last` in the order, and it, stay. */
SYC_COLD void syc_keep_few(syc_sample_row &r, u64 last)
{
    syc_sample_shared *const s = r.s;
    u64 own[SYC_FEW / SYC_SAMPLE_THREADS];
    __syncthreads();
#pragma unroll
    for (u32 c = 0; c < SYC_FEW / SYC_SAMPLE_THREADS; c++) {
        const u32 j = threadIdx.x + c * SYC_SAMPLE_THREADS;
        own[c] = j < r.n ? s->few[j] : 0;
    }
    if (threadIdx.x == 0)
        s->n_few = 0;
    __syncthreads();
#pragma unroll
    for (u32 c = 0; c < SYC_FEW / SYC_SAMPLE_THREADS; c++)
        if (own[c] != 0 && own[c] >= last)
            s->few[atomicAdd(&s->n_few, 1u)] = own[c];
    syc_change([&] {
        r.n = s->n_few;
        r.last = max(r.last, last);
    });
}
