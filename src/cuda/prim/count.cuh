/*
 * Stable ranks by counting, for keys below an E that fits shared memory. Two launches: every block counts the
 * keys of its chunk, then adds what comes before the chunk to the ranks inside it.
 */
#pragma once

#include "cuda/runtime/context.cuh"

#include <type_traits>

enum { SYC_RANK_THREADS = 512, SYC_RANK_WARPS = SYC_RANK_THREADS / 32 };

/*
 * Keys: a check (see syc_validate) with `int n_keys` (E) and `int key(int64_t i)`, -1 for an element without
 * a key or a wrong one.
 */
struct syc_ranks {
    int chunks;
    int64_t per_chunk; /* elements */
    u32 *counts;       /* scratch [chunks][E, a multiple of 4] */
};

static inline __device__ __host__ int syc_padded_keys(int n_keys)
{
    return (n_keys + 3) & ~3;
}

/* Chunks of at least one round of a block, at most two per multiprocessor. */
static inline syc_ranks syc_ranks_of(int64_t n, int processors)
{
    const int64_t rounds = syc_ceil(n, SYC_RANK_THREADS), most = processors < 1 ? 1 : processors;
    const int64_t each = syc_ceil(rounds, most < SYC_MAX_CHECK_BLOCKS ? most : SYC_MAX_CHECK_BLOCKS);
    const int64_t per = (each > 0 ? each : 1) * SYC_RANK_THREADS;
    const int64_t chunks = syc_ceil(n, per);
    /* one even of nothing: counts are written all the same */
    return {(int)(chunks > 0 ? chunks : 1), per, NULL};
}

static inline size_t syc_ranks_bytes(const syc_ranks *r, int n_keys)
{
    return (size_t)r->chunks * (size_t)syc_padded_keys(n_keys) * sizeof(u32);
}

/* Elements of a thread in a round, at most. Keys whose code is long have a member EACH: it is not
   repeated. */
enum { SYC_RANK_EACH = 4 };

template <class Keys, class = void> struct syc_key_each {
    enum { N = SYC_RANK_EACH };
};
template <class Keys> struct syc_key_each<Keys, std::void_t<decltype(Keys::EACH)>> {
    enum { N = Keys::EACH };
};

template <class Keys>
static __global__ void __launch_bounds__(SYC_RANK_THREADS, 2)
    syc_rank_count(const __grid_constant__ Keys keys, const syc_ranks ranks,
                   const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, hist); /* [E, padded] */
    __shared__ u64 first;
    const int64_t begin = blockIdx.x * ranks.per_chunk, end = min(begin + ranks.per_chunk, keys.n);
    syc_start_next();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    for (int e = (int)threadIdx.x; e < syc_padded_keys(keys.n_keys); e += SYC_RANK_THREADS)
        hist[e] = 0;
    __syncthreads();
#pragma unroll(syc_key_each <Keys>::N)
    for (int64_t i = begin + threadIdx.x; i < end; i += SYC_RANK_THREADS) {
        const int key = keys.key(i);
        if (key >= 0)
            atomicAdd(&hist[key], 1u);
        else if (keys.wrong(i))
            atomicMin(&first, (u64)i);
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e < syc_padded_keys(keys.n_keys); e += SYC_RANK_THREADS)
        ranks.counts[(int64_t)blockIdx.x * syc_padded_keys(keys.n_keys) + e] = hist[e];
    if (threadIdx.x == 0 && gate.order != NULL) {
        gate.order[blockIdx.x] = first;
        if (first != SYC_NO_FAULT)
            keys.explain((int64_t)first, &gate.found[blockIdx.x]);
    }
}

/* Exclusive sums of value[0..n) in place by the whole block; returns the sum of all. n < 2^31, which a step
   may pass. */
[[maybe_unused]] static __device__ u32 syc_scan_block(u32 *value, u32 n)
{
    __shared__ u32 part[SYC_RANK_WARPS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    u32 before = 0;
#pragma unroll 1
    for (u32 first = 0; first < n; first += SYC_RANK_THREADS) {
        const u32 i = first + threadIdx.x;
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

/* Adds four counts to those of all chunks, and to those of chunks before this one. */
SYC_INLINE void syc_add_counts(uint4 &all, uint4 &before, uint4 n, int chunk)
{
    const u32 keep = chunk < (int)blockIdx.x ? ~0u : 0u;
    all.x += n.x, all.y += n.y, all.z += n.z, all.w += n.w;
    before.x += n.x & keep, before.y += n.y & keep, before.z += n.z & keep, before.w += n.w & keep;
}

/* Adds to total[e] the elements of key e, to base[e] those of chunks before this one. */
[[maybe_unused]] static __device__ void syc_rank_sums(const syc_ranks &ranks, int n_keys, u32 *total,
                                                      u32 *base)
{
    const int vectors = syc_padded_keys(n_keys) / 4; /* four keys each */
    if (vectors == 0)
        return;
    const int groups = vectors < SYC_RANK_THREADS ? SYC_RANK_THREADS / vectors : 1,
              g = (int)threadIdx.x / vectors;
    if (groups > 1 && g >= groups)
        return;
    const int first = groups > 1 ? g : 0;
#pragma unroll 1
    for (int v = groups > 1 ? (int)threadIdx.x - g * vectors : (int)threadIdx.x; v < vectors;
         v += SYC_RANK_THREADS) {
        uint4 all = make_uint4(0, 0, 0, 0), low = all;
#pragma unroll 8
        for (int q = first; q < ranks.chunks; q += groups)
            syc_add_counts(all, low, __ldcg((const uint4 *)ranks.counts + (int64_t)q * vectors + v), q);
        const u32 sums[8] = {all.x, all.y, all.z, all.w, low.x, low.y, low.z, low.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            atomicAdd(&total[4 * v + i], sums[i]);
            atomicAdd(&base[4 * v + i], sums[4 + i]);
        }
    }
}

/* Keys whose elements every warp of a block counts for itself in a round. */
static inline __device__ __host__ bool syc_counts_by_warp(int n_keys)
{
    return n_keys <= 1024;
}

static inline size_t syc_rank_place_bytes(int n_keys)
{
    return (size_t)syc_padded_keys(n_keys) *
           (3 * sizeof(u32) + (syc_counts_by_warp(n_keys) ? SYC_RANK_WARPS : 0));
}

/* Elements of a warp in a round follow each other: thread `lane` has every 32nd of them. */
SYC_INLINE int64_t syc_rank_element(int64_t first, int each, int u)
{
    return first + (int)threadIdx.x / 32 * (32 * each) + u * 32 + (int)threadIdx.x % 32;
}

/* Adds the elements of a warp to counts[key] and finds how many of their keys came before. By the whole
   warp. */
template <typename V, int MOST>
SYC_INLINE void syc_rank_warp(const int (&key)[MOST], u32 (&rank)[MOST], int each, V *counts, int stride)
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < MOST; u++) {
        if (u >= each)
            break;
        const u32 same = __match_any_sync(SYC_ALL_LANES, key[u]),
                  before = (u32)__popc(same & ((1u << lane) - 1u));
        V *const count = counts + (key[u] < 0 ? 0 : key[u]) * stride;
        if (key[u] >= 0)
            rank[u] = *count + before;
        __syncwarp();
        if (key[u] >= 0 && before == 0)
            *count = (V)(*count + __popc(same));
        __syncwarp();
    }
}

/*
 * The ranks of this thread's elements among those with their keys, run[key] of which came before; adds all of
 * the block. `of_warp` is [E, padded][warp] of zeros, or NULL: then warps take turns.
 */
template <int MOST>
static __device__ void syc_rank_round(const int (&key)[MOST], u32 (&rank)[MOST], int each, int n_keys,
                                      u32 *run, u8 *of_warp)
{
    const int warp = (int)threadIdx.x / 32;
    if (of_warp == NULL) {
#pragma unroll 1
        for (int w = 0; w < SYC_RANK_WARPS; w++) { /* in order, so that ranks follow positions */
            if (w == warp)
                syc_rank_warp(key, rank, each, run, 1);
            __syncthreads();
        }
        return;
    }
    syc_rank_warp(key, rank, each, of_warp + warp, SYC_RANK_WARPS);
    __syncthreads();
#pragma unroll
    for (int u = 0; u < MOST; u++) {
        if (key[u] < 0)
            continue;
        const uint4 all = *(const uint4 *)(of_warp + key[u] * SYC_RANK_WARPS); /* a byte for each warp */
        const u32 word[4] = {all.x, all.y, all.z, all.w};
        rank[u] += run[key[u]];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int below = min(4, max(0, warp - 4 * i));
            rank[u] = __dp4a(word[i] & (below == 4 ? ~0u : (1u << (8 * below)) - 1u), 0x01010101u, rank[u]);
        }
    }
    __syncthreads();
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < n_keys; e += SYC_RANK_THREADS) {
        uint4 *const counts = (uint4 *)(of_warp + e * SYC_RANK_WARPS);
        const uint4 all = *counts;
        run[e] = __dp4a(
            all.x, 0x01010101u,
            __dp4a(all.y, 0x01010101u, __dp4a(all.z, 0x01010101u, __dp4a(all.w, 0x01010101u, run[e]))));
        *counts = make_uint4(0, 0, 0, 0);
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

/* Keys with a member STORED are stored by the counting kernel; all others are complete when it starts. */
template <class Keys, class = void> struct syc_keys_stored {
    enum { YES = 0 };
};
template <class Keys> struct syc_keys_stored<Keys, std::void_t<decltype(Keys::STORED)>> {
    enum { YES = 1 };
};

/*
 * Out: `void put(int64_t i, int key, int64_t row)` for every element with a key, `void skip(int64_t i)` for
 * the others, and, once for each key, `void begin(int key, u32 first, u32 count)`; `void end(u32 all)` once.
 * The first keys of a chunk are ranked before the counts are there.
 */
/* NOLINT(readability-function-size): steps between barriers, which share counters in registers */
template <class Keys, class Out>
SYC_INLINE void syc_place_chunk(const Keys &keys, const syc_ranks &ranks, const Out &out,
                                const syc_gate &gate)
{
    SYC_DYNAMIC_SHARED(u32, total);                         /* [E, padded], where the rows of a key begin */
    u32 *const base = total + syc_padded_keys(keys.n_keys); /* where those of this chunk do */
    /* elements of a key that came before in this chunk */
    u32 *const run = base + syc_padded_keys(keys.n_keys);
    u8 *const of_warp = syc_counts_by_warp(keys.n_keys) ? (u8 *)(run + syc_padded_keys(keys.n_keys)) : NULL;
    const int64_t begin = blockIdx.x * ranks.per_chunk, end = min(begin + ranks.per_chunk, keys.n);
    enum { MOST = syc_key_each<Keys>::N };
    const int each = (int)min((int64_t)MOST, ranks.per_chunk / SYC_RANK_THREADS);
    int key[MOST], next[MOST];
    u32 rank[MOST];
    const auto load_keys = [&](int64_t first, int(&to)[MOST]) {
#pragma unroll
        for (int u = 0; u < MOST; u++) {
            const int64_t i = syc_rank_element(first, each, u);
            to[u] = u < each && i < end ? keys.key(i) : -1;
        }
    };
    syc_start_next();
#pragma unroll 1
    for (int e = (int)threadIdx.x;
         e < syc_padded_keys(keys.n_keys) * (of_warp != NULL ? 3 + SYC_RANK_WARPS / 4 : 3);
         e += SYC_RANK_THREADS)
        total[e] = 0;
    __syncthreads();
    if (syc_keys_stored<Keys>::YES)
        syc_wait_for_previous();
    const int64_t step = each * SYC_RANK_THREADS;
#pragma unroll 1
    for (int64_t first = begin; first < end || first == begin; first += step) {
        if (MOST == 1 || first == begin)
            load_keys(first, key);
        else
            memcpy(key, next, sizeof key);
        if (MOST > 1)
            load_keys(first + step, next);
        syc_rank_round(key, rank, each, keys.n_keys, run, of_warp);
        if (first == begin) {
            syc_wait_for_previous();
            const bool bad = syc_sees_fault(gate);
            syc_rank_sums(ranks, keys.n_keys, total, base);
            if (!syc_all_clear(gate, bad))
                return;
            const u32 all = syc_scan_block(total, (u32)keys.n_keys);
            if (blockIdx.x == 0)
#pragma unroll 1
                for (int e = (int)threadIdx.x; e < keys.n_keys; e += SYC_RANK_THREADS)
                    out.begin(e, total[e], (e + 1 < keys.n_keys ? total[e + 1] : all) - total[e]);
            if (blockIdx.x == 0 && threadIdx.x == 0)
                out.end(all);
#pragma unroll 1
            for (int e = (int)threadIdx.x; e < keys.n_keys && !syc_counts_from_first<Out>::YES;
                 e += SYC_RANK_THREADS)
                base[e] += total[e];
            __syncthreads();
        }
#pragma unroll
        for (int u = 0; u < MOST; u++) {
            const int64_t i = syc_rank_element(first, each, u);
            if (key[u] >= 0)
                out.put(i, key[u], (int64_t)base[key[u]] + rank[u]);
            else if (u < each && i < end)
                out.skip(i);
        }
    }
}

template <class Keys, class Out>
static __global__ void __launch_bounds__(SYC_RANK_THREADS, 2)
    syc_rank_place(const __grid_constant__ Keys keys, const syc_ranks ranks, const __grid_constant__ Out out,
                   const __grid_constant__ syc_gate gate)
{
    syc_place_chunk(keys, ranks, out, gate);
}

/* ---- Few elements ---- */

/* elements, and shared memory of one block: 48 KiB with static variables */
enum { SYC_RANK_FEW = 2048, SYC_RANK_FEW_BYTES = 47 * 1024 };

static inline size_t syc_rank_few_bytes(int64_t n, int n_keys)
{
    return (size_t)syc_padded_keys(n_keys) * (sizeof(u32) + SYC_RANK_WARPS * sizeof(u16)) +
           (size_t)n * sizeof(u32);
}

/*
 * Few elements in one launch of one block. A warp takes elements that follow each other and has its own
 * counters; the elements of a key in the warps before it come before its own. Out as in syc_rank_place. False
 * after a fault.
 */
/* NOLINT(readability-function-size): steps between barriers, which share counters in registers */
template <class Keys, class Out>
SYC_INLINE bool syc_rank_all(const Keys &keys, const Out &out, const syc_gate &gate)
{
    SYC_DYNAMIC_SHARED(u32, total); /* [E, padded], where the rows of a key begin */
    const int padded = syc_padded_keys(keys.n_keys), n = (int)keys.n, lane = (int)threadIdx.x % 32,
              warp = (int)threadIdx.x / 32;
    /* [n] key + 1 and, above it, the rank within a warp */
    u32 *const held = total + padded;
    u16 *const before = (u16 *)(held + n); /* [warp][E, padded], elements of a key */
    const int each = (n + SYC_RANK_THREADS - 1) / SYC_RANK_THREADS * 32;
    __shared__ u64 first;
    const bool closed = threadIdx.x == 0 && __ldcg(gate.closed) != 0;
    syc_start_next();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < padded * SYC_RANK_WARPS / 2; e += SYC_RANK_THREADS)
        ((u32 *)before)[e] = 0;
    __syncthreads();
#pragma unroll(syc_key_each <Keys>::N)
    for (int i = (int)threadIdx.x; i < n; i += SYC_RANK_THREADS) {
        const int key = keys.key(i);
        held[i] = (u32)(key + 1);
        if (key < 0 && keys.wrong(i))
            atomicMin(&first, (u64)i);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = warp * each + lane; i - lane < min(n, (warp + 1) * each); i += 32) {
        const int key = i < n ? (int)held[i] - 1 : -1;
        const u32 same = __match_any_sync(SYC_ALL_LANES, key);
        u16 *const own = before + warp * padded + (key < 0 ? 0 : key);
        if (key >= 0)
            held[i] |= (u32)(*own + __popc(same & ((1u << lane) - 1u))) << 16;
        __syncwarp();
        if (key >= 0 && lane == __ffs((int)same) - 1)
            *own = (u16)(*own + __popc(same));
        __syncwarp();
    }
    if (threadIdx.x == 0 && gate.order != NULL) {
        gate.order[0] = first;
        if (first != SYC_NO_FAULT)
            keys.explain((int64_t)first, &gate.found[0]);
    }
    if (!syc_all_clear(gate, closed || (gate.order != NULL && first != SYC_NO_FAULT)))
        return false;
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < keys.n_keys; e += SYC_RANK_THREADS) {
        u32 sum = 0;
#pragma unroll
        for (int w = 0; w < SYC_RANK_WARPS; w++) {
            const u32 own = before[w * padded + e];
            before[w * padded + e] = (u16)sum;
            sum += own;
        }
        total[e] = sum;
    }
    __syncthreads();
    const u32 all = syc_scan_block(total, (u32)keys.n_keys);
#pragma unroll 1
    for (int e = (int)threadIdx.x; e < keys.n_keys; e += SYC_RANK_THREADS)
        out.begin(e, total[e], (e + 1 < keys.n_keys ? total[e + 1] : all) - total[e]);
    if (threadIdx.x == 0)
        out.end(all);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n; i += SYC_RANK_THREADS) {
        const int key = (int)(held[i] & 0xffffu) - 1;
        if (key < 0)
            out.skip(i);
        else
            out.put(i, key,
                    (int64_t)(syc_counts_from_first<Out>::YES ? 0 : total[key]) +
                        before[i / each * padded + key] + (held[i] >> 16));
    }
    return true;
}

template <class Keys, class Out>
static __global__ void __launch_bounds__(SYC_RANK_THREADS)
    syc_rank_few(const __grid_constant__ Keys keys, const __grid_constant__ Out out,
                 const __grid_constant__ syc_gate gate)
{
    syc_rank_all(keys, out, gate);
}

/* ---- Launches ---- */

static inline bool syc_ranks_few(int64_t n, int n_keys)
{
    return n <= SYC_RANK_FEW && syc_rank_few_bytes(n, n_keys) <= SYC_RANK_FEW_BYTES;
}

/*
 * Launches one kernel for few elements, or both; `counted` are the same keys as the counting kernel finds
 * them. The gate may be open, or of one block for few elements.
 */
template <class Counted, class Keys, class Out>
static void syc_rank_launch(syc_call *call, const Counted &counted, const Keys &keys, const syc_ranks &ranks,
                            const Out &out, const syc_gate &gate)
{
    if constexpr (std::is_same<Counted, Keys>::value)
        if (syc_takes(call, "rank_few", syc_ranks_few(keys.n, keys.n_keys) ? NULL : "elements are many")) {
            syc_launch(&call->queue, syc_rank_few<Keys, Out>, SYC_AFTER, 1, SYC_RANK_THREADS,
                       syc_rank_few_bytes(keys.n, keys.n_keys), keys, out, gate);
            return;
        }
    syc_takes(call, "rank_counted");
    syc_launch(&call->queue, syc_rank_count<Counted>, SYC_AFTER, ranks.chunks, SYC_RANK_THREADS,
               (size_t)syc_padded_keys(keys.n_keys) * sizeof(u32), counted, ranks, gate);
    syc_launch(&call->queue, syc_rank_place<Keys, Out>, SYC_EARLY, ranks.chunks, SYC_RANK_THREADS,
               syc_rank_place_bytes(keys.n_keys), keys, ranks, out, gate);
}

template <class Keys, class Out>
static void syc_rank_counted(syc_call *call, const Keys &keys, const Out &out, unsigned char *scratch)
{
    syc_ranks ranks = syc_ranks_of(keys.n, call->device->processors);
    ranks.counts = (u32 *)scratch;
    call->gate.n = syc_ranks_few(keys.n, keys.n_keys) ? 1 : ranks.chunks;
    syc_rank_launch(call, keys, keys, ranks, out, call->gate);
}
