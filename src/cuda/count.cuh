/*
 * Stable ranks by counting, for keys below an E that fits shared memory. Two launches: every block counts the keys of its
 * chunk, then adds what comes before the chunk to the ranks inside it.
 */
#ifndef SYC_COUNT_CUH
#define SYC_COUNT_CUH

#include "cuda/context.cuh"

#include <type_traits>

enum { SYC_RANK_THREADS = 512, SYC_RANK_WARPS = SYC_RANK_THREADS / 32 };

/*
 * Keys: a check (see syc_validate) with `int n_keys` (E) and `int key(int64_t i)`, -1 for an element without a key or a
 * wrong one.
 */
struct syc_ranks {
    int chunks;
    int64_t per_chunk; /* elements */
    u32 *counts;       /* scratch [chunks][E] */
};

static inline int64_t syc_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Chunks of at least one round of a block, at most two per multiprocessor. */
static inline struct syc_ranks syc_ranks_of(int64_t n, int processors)
{
    const int64_t rounds = syc_ceil(n, SYC_RANK_THREADS), most = processors < 1 ? 1 : processors;
    const int64_t each = syc_ceil(rounds, most < SYC_MAX_CHECK_BLOCKS ? most : SYC_MAX_CHECK_BLOCKS);
    const int64_t per = (each > 0 ? each : 1) * SYC_RANK_THREADS;
    const int64_t chunks = syc_ceil(n, per);
    return {(int)(chunks > 0 ? chunks : 1), per, NULL}; /* one even of nothing: counts are written all the same */
}

static inline size_t syc_ranks_bytes(const struct syc_ranks *r, int n_keys)
{
    return (size_t)r->chunks * (size_t)n_keys * sizeof(u32);
}

template <class Keys>
static __global__ void __launch_bounds__(SYC_RANK_THREADS)
    syc_rank_count(const Keys keys, const struct syc_ranks ranks, const struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, hist); /* [E] */
    __shared__ u64 first;
    const int64_t begin = blockIdx.x * ranks.per_chunk, end = min(begin + ranks.per_chunk, keys.n);
    syc_start_next();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    for (int e = (int)threadIdx.x; e < keys.n_keys; e += SYC_RANK_THREADS)
        hist[e] = 0;
    __syncthreads();
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += SYC_RANK_THREADS) {
        const int key = keys.key(i);
        if (key >= 0)
            atomicAdd(&hist[key], 1u);
        else if (keys.wrong(i))
            atomicMin(&first, (u64)i);
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < keys.n_keys; e += SYC_RANK_THREADS)
        ranks.counts[(int64_t)blockIdx.x * keys.n_keys + e] = hist[e];
    if (threadIdx.x == 0 && gate.order != NULL) {
        gate.order[blockIdx.x] = first;
        if (first != SYC_NO_FAULT)
            keys.explain((int64_t)first, &gate.found[blockIdx.x]);
    }
}

/* Exclusive sums of value[0..n) in place by the whole block; returns the sum of all. */
[[maybe_unused]] static __device__ u32 syc_scan_block(u32 *value, int n)
{
    __shared__ u32 part[SYC_RANK_WARPS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    u32 before = 0;
    for (int first = 0; first < n; first += SYC_RANK_THREADS) {
        const int i = first + (int)threadIdx.x;
        const u32 own = i < n ? value[i] : 0;
        u32 sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const u32 up = __shfl_up_sync(SYC_ALL_LANES, sum, (unsigned)d);
            sum += lane >= d ? up : 0;
        }
        if (lane == 31)
            part[warp] = sum;
        __syncthreads();
        const u32 x = lane < SYC_RANK_WARPS ? part[lane] : 0;
        const u32 below = __reduce_add_sync(SYC_ALL_LANES, lane < warp ? x : 0u);
        const u32 all = __reduce_add_sync(SYC_ALL_LANES, x);
        if (i < n)
            value[i] = before + below + sum - own;
        before += all;
        __syncthreads();
    }
    return before;
}

/* total[e]: elements of key e; base[e]: those of chunks before this one. */
[[maybe_unused]] static __device__ void syc_rank_sums(const struct syc_ranks &ranks, int n_keys, u32 *total, u32 *base)
{
    if (n_keys == 0)
        return;
    const int groups = n_keys < SYC_RANK_THREADS ? SYC_RANK_THREADS / n_keys : 1;
    for (int e = (int)threadIdx.x; e < n_keys; e += SYC_RANK_THREADS)
        total[e] = base[e] = 0;
    __syncthreads();
    const int g = (int)threadIdx.x / n_keys;
    for (int e = groups > 1 ? (int)threadIdx.x - g * n_keys : (int)threadIdx.x; e < n_keys; e += SYC_RANK_THREADS) {
        u32 all = 0, before = 0;
        if (groups > 1 && g >= groups)
            break;
#pragma unroll 8
        for (int q = groups > 1 ? g : 0; q < ranks.chunks; q += groups) {
            const u32 n = __ldcg(ranks.counts + (int64_t)q * n_keys + e);
            all += n;
            before += q < (int)blockIdx.x ? n : 0;
        }
        atomicAdd(&total[e], all);
        atomicAdd(&base[e], before);
    }
    __syncthreads();
}

/* An Out with a member COUNTS_FROM_FIRST gets rows counted from the first of their key. */
template <class Out, class = void> struct syc_counts_from_first {
    enum { YES = 0 };
};
template <class Out> struct syc_counts_from_first<Out, std::void_t<decltype(Out::COUNTS_FROM_FIRST)>> {
    enum { YES = 1 };
};

/*
 * Out: `void put(int64_t i, int key, int64_t row)` for every element with a key, `void skip(int64_t i)` for the others,
 * and, once for each key, `void begin(int key, u32 first, u32 count)`; `void end(u32 all)` once.
 */
template <class Keys, class Out>
static __global__ void __launch_bounds__(SYC_RANK_THREADS)
    syc_rank_place(const Keys keys, const struct syc_ranks ranks, const Out out, const struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, total);  /* [E], where the rows of a key begin */
    u32 *const base = total + keys.n_keys; /* [E], the next row of a key in this chunk */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t begin = blockIdx.x * ranks.per_chunk, end = min(begin + ranks.per_chunk, keys.n);
    syc_start_next();
    if (!syc_may_write(gate))
        return;
    syc_rank_sums(ranks, keys.n_keys, total, base);
    const u32 all = syc_scan_block(total, keys.n_keys);
    if (blockIdx.x == 0)
        for (int e = (int)threadIdx.x; e < keys.n_keys; e += SYC_RANK_THREADS)
            out.begin(e, total[e], (e + 1 < keys.n_keys ? total[e + 1] : all) - total[e]);
    if (blockIdx.x == 0 && threadIdx.x == 0)
        out.end(all);
    for (int e = (int)threadIdx.x; e < keys.n_keys && !syc_counts_from_first<Out>::YES; e += SYC_RANK_THREADS)
        base[e] += total[e];
    __syncthreads();
    for (int64_t first = begin; first < end; first += SYC_RANK_THREADS) {
        const int64_t i = first + threadIdx.x;
        const int key = i < end ? keys.key(i) : -1;
        const u32 same = __match_any_sync(SYC_ALL_LANES, key);
        u32 row = 0;
        for (int w = 0; w < SYC_RANK_WARPS; w++) { /* warps in order, so that ranks follow positions */
            if (w == warp) {
                if (key >= 0)
                    row = base[key] + (u32)__popc(same & ((1u << lane) - 1u));
                __syncwarp();
                if (key >= 0 && lane == __ffs((int)same) - 1)
                    base[key] += (u32)__popc(same);
            }
            __syncthreads();
        }
        if (key >= 0)
            out.put(i, key, (int64_t)row);
        else if (i < end)
            out.skip(i);
    }
}

template <class Keys, class Out>
static void syc_rank_counted(struct syc_call *call, const Keys &keys, const Out &out, unsigned char *scratch)
{
    struct syc_ranks ranks = syc_ranks_of(keys.n, call->device->processors);
    ranks.counts = (u32 *)scratch;
    call->gate.n = ranks.chunks;
    syc_launch(&call->queue, syc_rank_count<Keys>, SYC_AFTER, ranks.chunks, SYC_RANK_THREADS,
               (size_t)keys.n_keys * sizeof(u32), keys, ranks, call->gate);
    syc_launch(&call->queue, syc_rank_place<Keys, Out>, SYC_EARLY, ranks.chunks, SYC_RANK_THREADS,
               2 * (size_t)keys.n_keys * sizeof(u32), keys, ranks, out, call->gate);
}

#endif
