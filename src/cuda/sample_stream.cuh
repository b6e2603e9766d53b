/*
 * Rows of sample that are read once, by a block: greedy ones, and those of which top-k leaves few tokens. Half of such a row,
 * from all over it, gives a floor that k of its tokens reach; what reaches it in the rest is listed while it is read.
 */
#ifndef SYC_SAMPLE_STREAM_CUH
#define SYC_SAMPLE_STREAM_CUH

#include "cuda/cluster.cuh"
#include "cuda/sample_short.cuh"

enum { STREAM_MOST = SYC_SAMPLE_THREADS / 2 }; /* k, at most: then few threads have two of the first k of their part */

/* The larger value of a word's; NaN where there is no other. */
template <sy_type T> static __device__ __forceinline__ float word_value(u32 w)
{
    if (T == SY_TYPE_F32)
        return __uint_as_float(w);
    const float low = __uint_as_float(syc_wide<T>(w & 0xffffu)), high = __uint_as_float(syc_wide<T>(w >> 16));
#ifdef SWITCHYARD_CUDA_EMULATED
    return low >= high || high != high ? low : high; /* fmaxf of a CPU passes a signalling NaN */
#else
    return fmaxf(low, high);
#endif
}

/* Bits of token j of a vector. */
template <sy_type T> static __device__ __forceinline__ u32 bits_of(uint4 x, u32 j)
{
    const u32 k = T == SY_TYPE_F32 ? j : j / 2, w = k == 0 ? x.x : k == 1 ? x.y : k == 2 ? x.z : x.w;
    return T == SY_TYPE_F32 ? w : syc_wide<T>(j % 2 == 0 ? w & 0xffffu : w >> 16);
}

/* The largest of a vector's words. */
template <sy_type T> static __device__ __forceinline__ u32 vector_max(uint4 x)
{
    return syc_max_word<T>(syc_max_word<T>(x.x, x.y), syc_max_word<T>(x.z, x.w));
}

/* A row in groups of SYC_CELLS vectors for each thread: those at `at`, at + step, ... */
template <sy_type T> static __device__ __forceinline__ const uint4 *vectors_at(const struct syc_logits &l, const struct syc_vectors &v, u32 at)
{
    return (const uint4 *)(l.x + (int64_t)v.head * (T == SY_TYPE_F32 ? 4 : 2)) + at;
}

/* All of a group's vectors are in the row, for all threads, and all tokens count. */
static __device__ __forceinline__ bool is_whole(const struct syc_logits &l, const struct syc_vectors &v, u32 at, u32 step)
{
    return l.allow == NULL && at - threadIdx.x + (SYC_CELLS - 1) * step + SYC_SAMPLE_THREADS <= v.n;
}

template <sy_type T> static __device__ __forceinline__ void load_group(const struct syc_logits &l, const struct syc_vectors &v, u32 at, u32 step, uint4 *y)
{
    if (is_whole(l, v, at, step)) {
        const uint4 *const x = vectors_at<T>(l, v, at);
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++)
            y[c] = __ldcg(x + c * step);
        return;
    }
    const u32 nothing = syc_minus_inf_word<T>();
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        y[c] = at + c * step < v.n ? syc_vector_at<T>(l, v.head + (at + c * step) * (T == SY_TYPE_F32 ? 4 : 8)) : make_uint4(nothing, nothing, nothing, nothing);
}

static __device__ __forceinline__ void put_results(const struct syi_sample_plan &p, int64_t b, int64_t token, u32 flags, u32 kept, float lp)
{
    if (p.token != NULL)
        syc_store<u64>(p.token + b * 8, (u64)token);
    if (p.row_flags != NULL)
        syc_store<u32>(p.row_flags + b * 4, flags);
    if (p.kept != NULL)
        syc_store<u32>(p.kept + b * 4, kept);
    if (p.logprob != NULL)
        syc_store<u32>(p.logprob + b * 4, __float_as_uint(lp));
}

/* Whether a fault was reported, as thread 0 sees it; these calls validate no contents of their own. A word, compared when the
   row was read, so that no warp waits for it before. */
static __device__ __forceinline__ u32 load_closed(const struct syc_gate *gate)
{
    return gate != NULL && threadIdx.x == 0 ? __ldcg(gate->closed) : 0;
}

/* ---- Top-k ---------------------------------------------------------------------------------------------------------- */

/* Keeps a vector, from token `first` on, if one of its tokens reaches a value. */
template <sy_type T> static __device__ __forceinline__ void keep_reaching(struct quick_shared *s, uint4 x, u32 first, float least)
{
    if (word_value<T>(vector_max<T>(x)) >= least) {
        const u32 place = syc_shared_add(&s->n_hits, 1u);
        if (place < QUICK) {
            s->hit[place] = x;
            s->first[place] = first;
        }
    }
}

/* Lists the tokens of the vectors that were kept, and the largest key in s->top. */
template <sy_type T> static __device__ __forceinline__ void list_reaching(struct quick_shared *s, float least)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 all = s->n_hits * n;
    u32 top = 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < all; i += SYC_SAMPLE_THREADS) {
        const u32 bits = T == SY_TYPE_F32 ? ((const u32 *)s->hit)[i] : syc_wide<T>(((const u16 *)s->hit)[i]);
        if (__uint_as_float(bits) >= least) {
            const u32 place = syc_shared_add(&s->n_items, 1u), key = syi_key(bits);
            top = max(top, key);
            if (place < QUICK)
                s->item[place] = syc_rank_of(key, s->first[i / n] + i % n);
        }
    }
    if (top != 0)
        atomicMax(&s->top, top);
}

/* The first bin from the top at which the counts reach a target; ~0: none does. As near_bin, of 32 bits and in registers. */
static __device__ __forceinline__ u32 count_bin(struct quick_shared *s, u32 target)
{
    constexpr u32 each = NEAR / 32;
    static_assert(each % 4 == 0, "vectors");
    __syncthreads();
    if (syc_warp() == 0) {
        const uint4 *const own = (const uint4 *)&s->near.low[(u32)syc_lane() * each];
        u32 n[each], sum = 0, upto;
#pragma unroll
        for (u32 i = 0; i < each / 4; i++) {
            const uint4 four = own[i];
            n[4 * i] = sum += four.x;
            n[4 * i + 1] = sum += four.y;
            n[4 * i + 2] = sum += four.z;
            n[4 * i + 3] = sum += four.w;
        }
        upto = sum;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const u32 up = __shfl_up_sync(SYC_ALL_LANES, upto, (unsigned)d);
            upto += syc_lane() >= d ? up : 0;
        }
        const u32 before = upto - sum;
        if (before < target && target <= upto) {
            u32 at = 0;
#pragma unroll
            for (u32 i = 0; i < each; i++)
                at += before + n[i] < target ? 1u : 0u;
            s->bin = (u32)syc_lane() * each + at;
        } else if (syc_lane() == 31 && upto < target)
            s->bin = ~0u;
    }
    __syncthreads();
    return s->bin;
}

/* A key that k threads reach with the largest of what they read, and not many more; all tokens above -inf do where there is
   none. */
static __device__ __forceinline__ u32 stream_floor(struct quick_shared *s, u32 own, u32 key, u32 k)
{
    const u32 top = key >> 16, lowest = (SYI_KEY_MINUS_INF >> 16) + 1;
    if (top - (own >> 16) < NEAR)
        syc_shared_add(&s->near.low[top - (own >> 16)], 1u);
    const u32 bin = count_bin(s, k);
    if (bin != ~0u)
        return max(top - bin, lowest) << 16;
    u32 low = lowest, high = max(top, lowest) + 1; /* enough reach low, or all are taken; not enough reach high */
#pragma unroll 1
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if ((u32)__syncthreads_count(own >> 16 >= middle) >= k)
            low = middle;
        else
            high = middle;
    }
    return low << 16;
}

template <sy_type T>
static __device__ __forceinline__ enum quick stream_row(const struct syi_sample_plan &p, struct quick_shared *s, int64_t b, const struct syc_gate *gate)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 nothing = syc_minus_inf_word<T>(), step = (v.n + SYC_FEW - 1) / SYC_FEW * SYC_SAMPLE_THREADS, groups = step / SYC_SAMPLE_THREADS, part = max(groups / 2, 1u);
    const bool wanted = p.row_flags != NULL;
    const u32 closed = load_closed(gate);
    u32 most = syc_minus_inf_word<T>(), flags = 0;
    uint4 y[SYC_CELLS];
    load_group<T>(l, v, threadIdx.x, step, y); /* on its way together with the parameters */
    if (syc_warp() == 0) {
        const struct syc_params a = load_params(p, b);
        if (syc_lane() == 0) {
            s->params = a;
            s->n_items = s->n_heads = s->n_hits = s->top = 0;
        }
    }
    s->near.low[threadIdx.x] = 0;
    if (__syncthreads_or(closed != 0) != 0)
        return QUICK_CLOSED;
    const bool first_only = s->params.one || (s->params.greedy && p.kept == NULL && (p.logprob == NULL || s->params.cold));
    const u32 k = first_only ? 1u : (u32)min(s->params.k, (int64_t)STREAM_MOST + 1);
    if (k == 0 || k > STREAM_MOST || v.n == 0)
        return QUICK_NO;
    if (threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
#pragma unroll 1
    for (u32 g = 0;;) {
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            most = fold<T>(most, y[c]);
            if (wanted)
                flags |= flags_of<T>(y[c]);
        }
        if (++g < groups) /* the last of these arrives while the floor is found */
            load_group<T>(l, v, g * SYC_SAMPLE_THREADS + threadIdx.x, step, y);
        if (g >= part)
            break;
    }
    const u32 own = syc_word_key<T>(most), warp_own = __reduce_max_sync(SYC_ALL_LANES, own);
    if (syc_lane() == 0)
        s->part[0][syc_warp()] = warp_own;
    __syncthreads();
    const u32 floor = stream_floor(s, own, of_warps(s->part[0]), k);
    const float least = syi_key_value(floor);
    if (own >= floor)
        s->head[syc_shared_add(&s->n_heads, 1u)] = (u16)threadIdx.x;
    __syncthreads();
    const u32 heads = s->n_heads;
#pragma unroll 1
    for (u32 item = threadIdx.x; item < heads * part * SYC_CELLS; item += 2 * SYC_SAMPLE_THREADS) {
        uint4 x[2];
        u32 first[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) { /* two on their way at once */
            const u32 one = item + i * SYC_SAMPLE_THREADS, turn = one / heads;
            const u32 at = turn / SYC_CELLS * SYC_SAMPLE_THREADS + turn % SYC_CELLS * step + s->head[one - turn * heads];
            const bool in = turn < part * SYC_CELLS && at < v.n;
            first[i] = v.head + at * n;
            x[i] = in ? syc_vector_at<T>(l, first[i]) : make_uint4(nothing, nothing, nothing, nothing);
        }
        keep_reaching<T>(s, x[0], first[0], least);
        keep_reaching<T>(s, x[1], first[1], least);
    }
    syc_each_rest<T>(l, [&](u32 i, u32 bits) {
        flags |= syi_key_flags(bits);
        if (__uint_as_float(bits) >= least) {
            const u32 place = syc_shared_add(&s->n_items, 1u);
            if (place < QUICK)
                s->item[place] = syc_rank_of(syi_key(bits), i);
            atomicMax(&s->top, syi_key(bits));
        }
    });
    u32 at = part * SYC_SAMPLE_THREADS + threadIdx.x;
    const auto look = [&](uint4 x, u32 c) {
        keep_reaching<T>(s, x, v.head + (at + c * step) * n, least);
        if (wanted)
            flags |= flags_of<T>(x);
    };
    const uint4 *next = vectors_at<T>(l, v, at + SYC_SAMPLE_THREADS);
#pragma unroll 1
    for (; at - threadIdx.x + SYC_SAMPLE_THREADS < step && is_whole(l, v, at + SYC_SAMPLE_THREADS, step); at += SYC_SAMPLE_THREADS, next += SYC_SAMPLE_THREADS) {
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            const uint4 x = y[c];
            y[c] = __ldcg(next + c * step);
            look(x, c);
        }
    }
#pragma unroll 1
    while (at < step) {
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++)
            look(y[c], c);
        at += SYC_SAMPLE_THREADS;
        if (at < step)
            load_group<T>(l, v, at, step, y);
    }
    if (wanted) {
        flags = any_flags(flags);
        if (syc_lane() == 0)
            s->part[1][syc_warp()] = flags;
    }
    __syncthreads();
    if (s->n_hits > QUICK)
        return QUICK_NO;
    list_reaching<T>(s, least);
    __syncthreads();
    const u32 top = s->top;
    if (s->n_items > QUICK || s->n_items == 0)
        return QUICK_NO;
    const struct syc_scale scale = {syi_key_value(top), s->params.inv_t, p.probs_in};
    if (wanted)
        flags = any_flags(s->part[1][syc_lane() % SYC_BLOCK_WARPS]); /* before others use it */
    const u32 kept = finish_list(p, s, scale, top, k, 0, 0, b, true);
    if (threadIdx.x == 0)
        put_results(p, b, (int64_t)s->token, flags, kept, p.logprob == NULL ? 0.0f : s->params.cold ? 0.0f : log_share(scale, s->key, s->total));
    return QUICK_DONE;
}

/* ---- Greedy --------------------------------------------------------------------------------------------------------- */

/* The best of what a thread has of a row, by its first vector that has the largest value; where `extra`, its flags and how many
   tokens are above -inf. Part `rank` of `parts`. */
template <sy_type T, bool extra>
static __device__ __forceinline__ u64 first_of_share(const struct syc_logits &l, u32 rank, u32 parts, u32 *flags, u32 *n_above)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const float largest = 3.402823466e38f;
    const auto count = [&](u32, u32 bits) { *n_above += __uint_as_float(bits) > __uint_as_float(SYC_MINUS_INF_BITS) ? 1u : 0u; };
    uint4 best = make_uint4(0, 0, 0, 0);
    float top = __uint_as_float(SYC_MINUS_INF_BITS);
    u32 where = 0;
#pragma unroll 1
    for (u32 at = rank * SYC_FEW + threadIdx.x; at < v.n; at += parts * SYC_FEW) {
        uint4 y[SYC_CELLS];
        load_group<T>(l, v, at, SYC_SAMPLE_THREADS, y);
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            const float value = word_value<T>(vector_max<T>(y[c])), here = value > largest ? largest : value;
            if (here > top) {
                top = here;
                best = y[c];
                where = at + c * SYC_SAMPLE_THREADS;
            }
            if (extra) {
                *flags |= flags_of<T>(y[c]);
                syc_each_of<T>(0, y[c], count);
            }
        }
    }
    u64 first = 0;
    if (top > __uint_as_float(SYC_MINUS_INF_BITS)) {
        u32 token = 0, bits = 0;
#pragma unroll
        for (u32 j = n; j-- > 0;)
            if (__uint_as_float(bits_of<T>(best, j)) >= top) {
                token = j;
                bits = bits_of<T>(best, j);
            }
        first = syc_rank_of(syi_key(bits), v.head + where * n + token);
    }
    if (rank == 0)
        syc_each_rest<T>(l, [&](u32 i, u32 bits) {
            *flags |= syi_key_flags(bits);
            first = max(first, syc_rank_of(syi_key(bits), i));
            count(i, bits);
        });
    return first;
}

/* The largest of a warp. */
static __device__ __forceinline__ u64 warp_max(u64 v)
{
    const u32 high = __reduce_max_sync(SYC_ALL_LANES, (u32)(v >> 32));
    return (u64)high << 32 | __reduce_max_sync(SYC_ALL_LANES, (u32)(v >> 32) == high ? (u32)v : 0);
}

enum { MOST_CLUSTER = 8 };

struct greedy_shared {
    u64 gate;
    u64 best[MOST_CLUSTER], seen[MOST_CLUSTER]; /* of all blocks, in the first; flags, and tokens above -inf << 32 */
    u64 part[SYC_BLOCK_WARPS];
    u32 flags[SYC_BLOCK_WARPS], above[SYC_BLOCK_WARPS];
};

/* A row by `parts` blocks: a cluster. */
template <sy_type T, bool extra>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    greedy_rows(const __grid_constant__ struct syi_sample_plan p, u32 parts, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(struct greedy_shared, s);
    const u32 b = blockIdx.x / parts, rank = blockIdx.x - b * parts;
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const bool fault = syc_sees_fault(gate);
    u32 flags = 0, above = 0;
    if (parts > 1) {
        if (threadIdx.x == 0)
            syc_expect(&s->gate, rank == 0 ? 16 * parts : 0);
        syc_cluster_begin();
    }
    const u64 own = warp_max(first_of_share<T, extra>(l, rank, parts, &flags, &above));
    if (extra) {
        flags = any_flags(flags);
        above = __reduce_add_sync(SYC_ALL_LANES, above);
    }
    if (syc_lane() == 0) {
        s->part[syc_warp()] = own;
        s->flags[syc_warp()] = flags;
        s->above[syc_warp()] = above;
    }
    const bool clear = syc_all_clear(gate, fault);
    if (parts > 1)
        syc_cluster_ready();
    if (!clear || syc_warp() != 0)
        return;
    const u32 one = (u32)syc_lane() % SYC_BLOCK_WARPS;
    u64 best = warp_max(s->part[one]);
    flags = any_flags(s->flags[one]);
    above = __reduce_add_sync(SYC_ALL_LANES, syc_lane() < SYC_BLOCK_WARPS ? s->above[one] : 0);
    if (parts > 1) {
        if (syc_lane() == 0) {
            syc_send(&s->best[rank], 0, best, &s->gate);
            syc_send(&s->seen[rank], 0, flags | (u64)above << 32, &s->gate);
        }
        if (rank != 0)
            return;
        syc_wait_at(&s->gate);
        const u64 seen = (u32)syc_lane() < parts ? s->seen[syc_lane()] : 0;
        best = warp_max((u32)syc_lane() < parts ? s->best[syc_lane()] : 0);
        flags = any_flags((u32)seen);
        above = __reduce_add_sync(SYC_ALL_LANES, (u32)(seen >> 32));
    }
    const bool empty = syc_key_of(best) <= SYI_KEY_MINUS_INF;
    if (threadIdx.x == 0)
        put_results(p, b, empty ? p.empty_token : (int64_t)syc_token_of(best), flags | (empty ? SY_ROW_EMPTY : 0u), above, 0.0f);
}

/* Blocks for a row: as many as keep the device busy, if each has a group to read. */
template <sy_type T> static u32 greedy_parts(const struct syc_device *device, const struct syi_sample_plan *p)
{
    const int64_t vectors = p->vocab / (T == SY_TYPE_F32 ? 4 : 8);
    u32 parts = 1;
    while (device->dependent && parts < MOST_CLUSTER && p->batch * parts <= device->processors && vectors > (int64_t)parts * SYC_FEW)
        parts *= 2;
    return parts;
}

#endif
