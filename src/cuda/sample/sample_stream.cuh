/*
 * Rows of sample that are read once, in groups of vectors.
 */
#pragma once

#include "cuda/prim/cluster.cuh"
#include "cuda/sample/sample_launch.cuh"
#include "cuda/sample/sample_short.cuh"

/* The larger value of a word's; NaN where there is no other. */
template <sy_type T> SYC_INLINE float word_value(u32 w)
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
template <sy_type T> SYC_INLINE u32 bits_of(uint4 x, u32 j)
{
    const u32 k = T == SY_TYPE_F32 ? j : j / 2, w = k == 0 ? x.x : k == 1 ? x.y : k == 2 ? x.z : x.w;
    return T == SY_TYPE_F32 ? w : syc_wide<T>(j % 2 == 0 ? w & 0xffffu : w >> 16);
}

/* The largest of a vector's words. */
template <sy_type T> SYC_INLINE u32 vector_max(uint4 x)
{
    return syc_max_word<T>(syc_max_word<T>(x.x, x.y), syc_max_word<T>(x.z, x.w));
}

/* ---- Masks ---- */

/* f(token, place in the lists) for the overrides of a row, each by one thread. They may be wrong here,
   which is found beside: those that are in no list or no row are left out. */
template <class F> SYC_INLINE void each_listed_override(const syi_sample_plan &p, int64_t b, F f)
{
    const syc_span span = syc_list_span(p.overrides, b);
    const int64_t end = min(span.end, p.overrides.n);
#pragma unroll 1
    for (int64_t j = max(span.first, (int64_t)0) + threadIdx.x; j < end; j += SYC_SAMPLE_THREADS) {
        const u64 token = (u64)syc_list_token(p.overrides, j);
        if (token < (u64)p.vocab)
            f((u32)token, j);
    }
}

/* A row with a mask of its own, in `bits`, of the tokens that are read with it: those that are allowed
   and have no override. Of a row without either, none. Ahead of a barrier. */
SYC_INLINE syc_logits staged_logits(const syi_sample_plan &p, int64_t b, u32 *bits)
{
    const syc_logits l = row_logits(p, b);
    const u32 words = (l.vocab + 31) / 32;
    if (l.allow == NULL && p.overrides.indptr == NULL)
        return l;
    for (u32 i = threadIdx.x; i < words; i += SYC_SAMPLE_THREADS)
        bits[i] = l.allow != NULL ? syc_load<u32>(l.allow + 4 * i) : ~0u;
    __syncthreads();
    each_listed_override(p, b, [&](u32 token, int64_t) {
        if ((bits[token / 32] >> token % 32 & 1) != 0) /* none is twice in a row */
            atomicAdd(&bits[token / 32], 0u - (1u << token % 32));
    });
    return {l.x, (const u8 *)bits, l.vocab};
}

/* f(token, bits) for the overrides of a row that was staged. */
template <class F> SYC_INLINE void each_override(const syi_sample_plan &p, int64_t b, F f)
{
    const u8 *const allow = p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL;
    each_listed_override(p, b, [&](u32 token, int64_t j) {
        if (syc_allowed(allow, token))
            f(token, __float_as_uint(syc_list_value(p.overrides, j)));
    });
}

/* Of tokens in no vector, and of overrides. */
template <sy_type T, class F>
SYC_INLINE void each_rest_of(const syi_sample_plan &p, const syc_logits &l, int64_t b, F f)
{
    syc_each_rest<T>(l, f);
    if (l.allow != NULL)
        each_override(p, b, f);
}

/* A row in groups of SYC_OWN_TILES vectors for each thread: those at `at`, at + step, ... */
template <sy_type T> SYC_INLINE const uint4 *vectors_at(const syc_logits &l, const syc_vectors &v, u32 at)
{
    return (const uint4 *)(l.x + (int64_t)v.head * (T == SY_TYPE_F32 ? 4 : 2)) + at;
}

/* All of a group's vectors are in the row, for all threads. */
SYC_INLINE bool is_whole(const syc_vectors &v, u32 at, u32 step)
{
    return at - threadIdx.x + (SYC_OWN_TILES - 1) * step + SYC_SAMPLE_THREADS <= v.n;
}

/* As it is in memory; -inf after the end of the row. */
template <sy_type T> SYC_INLINE uint4 vector_or_nothing(const syc_logits &l, const syc_vectors &v, u32 at)
{
    const u32 nothing = syc_minus_inf_word<T>();
    return at < v.n ? __ldcg(vectors_at<T>(l, v, at)) : make_uint4(nothing, nothing, nothing, nothing);
}

/* The same. */
template <sy_type T>
SYC_INLINE void load_group(const syc_logits &l, const syc_vectors &v, u32 at, u32 step, uint4 *y)
{
    if (is_whole(v, at, step)) {
        const uint4 *const x = vectors_at<T>(l, v, at);
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++)
            y[c] = __ldcg(x + c * step);
        return;
    }
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        y[c] = vector_or_nothing<T>(l, v, at + c * step);
}

/* The largest of a warp. */
SYC_INLINE u64 warp_max(u64 v)
{
    const u32 high = __reduce_max_sync(SYC_ALL_LANES, (u32)(v >> 32));
    return (u64)high << 32 | __reduce_max_sync(SYC_ALL_LANES, (u32)(v >> 32) == high ? (u32)v : 0);
}

/* All tokens of a vector are finite: then the exponent of none is the largest, which is one below a carry to
 * the sign. */
template <sy_type T> SYC_INLINE bool is_finite(uint4 x)
{
    constexpr u32 signs = T == SY_TYPE_F32 ? 0x80000000u : 0x80008000u, one = T == SY_TYPE_F32 ? 0x00800000u
                                                                              : T == SY_TYPE_F16
                                                                                  ? 0x04000400u
                                                                                  : 0x00800080u;
    const auto carry = [](u32 w) { return (w & ~signs) + one; };
    return ((carry(x.x) | carry(x.y) | carry(x.z) | carry(x.w)) & signs) == 0;
}

/* What a thread has seen of a row, vectors by rising tokens: the first vector that has the largest value, and
   of the tokens that were counted, flags and how many are above -inf. */
template <sy_type T> struct seen_tokens {
    uint4 best;
    float top;
    u32 where, flags, above;

    __device__ __forceinline__ void begin()
    {
        best = make_uint4(0, 0, 0, 0);
        top = __uint_as_float(SYC_MINUS_INF_BITS);
        where = flags = above = 0;
    }
    __device__ __forceinline__ void vector(uint4 x, u32 first_token)
    {
        const float value = word_value<T>(vector_max<T>(x)), here = value > LARGEST ? LARGEST : value;
        if (here > top) {
            top = here;
            best = x;
            where = first_token;
        }
    }
    __device__ __forceinline__ void count(uint4 x)
    {
        if (is_finite<T>(x)) {
            above += T == SY_TYPE_F32 ? 4 : 8;
            return;
        }
        const auto one = [&](u32, u32 bits) {
            above += __uint_as_float(bits) > __uint_as_float(SYC_MINUS_INF_BITS) ? 1u : 0u;
        };
        flags |= flags_of<T>(x);
        syc_each_of<T>(0, x, one);
    }
    __device__ __forceinline__ u64 token(u32 i, u32 bits) /* one that is in no vector: its rank */
    {
        flags |= syi_key_flags(bits);
        above += __uint_as_float(bits) > __uint_as_float(SYC_MINUS_INF_BITS) ? 1u : 0u;
        return syc_rank_of(syi_key(bits), i);
    }
    __device__ __forceinline__ u64 first() const /* the rank of the best; 0: none is above -inf */
    {
        constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
        u32 at = 0, bits = 0;
        if (!(top > __uint_as_float(SYC_MINUS_INF_BITS)))
            return 0;
#pragma unroll
        for (u32 j = n; j-- > 0;)
            if (__uint_as_float(bits_of<T>(best, j)) >= top) {
                at = j;
                bits = bits_of<T>(best, j);
            }
        return syc_rank_of(syi_key(bits), where + at);
    }
};

/* Asks for the beginning of the row that comes `rows` after this one, and a block that follows this one
 * reads, most likely, while this one has nothing more to read; 0: none. */
struct read_ahead {
    u32 rows, bytes;
};

SYC_INLINE void ask_ahead([[maybe_unused]] const syi_sample_plan &p, [[maybe_unused]] int64_t b,
                          [[maybe_unused]] read_ahead ahead)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x != 0 || ahead.rows == 0 || b + ahead.rows >= p.batch)
        return;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                     (uintptr_t)syc_row(p.logits, b + ahead.rows) & ~(uintptr_t)15),
                 "r"(ahead.bytes)
                 : "memory");
#endif
}

SYC_INLINE void begin_late([[maybe_unused]] start_late late)
{
#ifdef __CUDA_ARCH__
    if (blockIdx.x - late.first >= late.n)
        return;
    if (threadIdx.x == 0)
        for (const long long begin = clock64(); clock64() - begin < late.cycles;)
            __nanosleep(100);
    __syncthreads();
#endif
}

/* ---- Thresholds ---- */

/* The first bin from the top at which the counts reach a target, and the count up to it in s->reached; ~0:
   none does. As near_bin, of 32 bits and in registers. */
SYC_INLINE u32 count_bin(listed_shared *s, const u32 *counts, u32 target)
{
    constexpr u32 each = NEAR / 32;
    static_assert(each % 4 == 0, "vectors");
    __syncthreads();
    if (syc_warp() == 0) {
        const uint4 *const own = (const uint4 *)&counts[(u32)syc_lane() * each];
        u32 n[each], sum = 0;
#pragma unroll
        for (u32 i = 0; i < each / 4; i++) {
            const uint4 four = own[i];
            n[4 * i] = sum += four.x;
            n[4 * i + 1] = sum += four.y;
            n[4 * i + 2] = sum += four.z;
            n[4 * i + 3] = sum += four.w;
        }
        const u32 upto = syc_warp_prefix(sum), before = upto - sum;
        if (before < target && target <= upto) {
            u32 at = 0, reached = upto;
#pragma unroll
            for (u32 i = each; i-- > 0;) {
                at += before + n[i] < target ? 1u : 0u;
                reached = before + n[i] >= target ? before + n[i] : reached;
            }
            s->bin = (u32)syc_lane() * each + at;
            s->reached = reached;
        } else if (syc_lane() == 31 && upto < target)
            s->bin = ~0u;
    }
    __syncthreads();
    return s->bin;
}

enum {
    LOWEST_HALF = (SYI_KEY_MINUS_INF >> 16) + 1
}; /* upper half of a key that all tokens above -inf reach */

/* A key that `target` tiles reach, or threads with the largest of their tiles, and not many more; what all
   tokens above -inf reach where there are not so many. */
SYC_INLINE u32 guess_threshold(listed_shared *s, const u32 *tile, u32 own, u32 key, u32 target,
                               bool by_threads)
{
    const u32 top = key >> 16;
    const auto count = [&](u32 of) {
        if (top - (of >> 16) < NEAR)
            syc_shared_add(&s->near.low[top - (of >> 16)], 1u);
    };
    if (by_threads)
        count(own);
    else
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++)
            count(tile[c]);
    const u32 bin = count_bin(s, s->near.low, target);
    if (bin != ~0u)
        return max(top - bin, (u32)LOWEST_HALF) << 16;
    u32 low = LOWEST_HALF,
        high = max(top, (u32)LOWEST_HALF) + 1; /* enough reach low, or all are taken; not enough reach high */
#pragma unroll 1
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        u32 n = (u32)__syncthreads_count((by_threads ? own : tile[0]) >> 16 >= middle);
        if (!by_threads)
            n += (u32)__syncthreads_count(tile[1] >> 16 >= middle) +
                 (u32)__syncthreads_count(tile[2] >> 16 >= middle) +
                 (u32)__syncthreads_count(tile[3] >> 16 >= middle);
        if (n >= target)
            low = middle;
        else
            high = middle;
    }
    return low << 16;
}

/* A key that all tokens reach which pass min-p, given the largest key of the row, or of some of it. The
   logarithm is taken by its linear pieces, which are below it. */
SYC_INLINE u32 min_p_threshold(const syc_params &a, u32 key)
{
    const u32 bits = __float_as_uint(fminf(a.min_p, 1.0f));
    const float log2 = (float)(int)(bits - 0x3f800000u) * 0x1p-23f, most = syi_key_value(key);
    const float value = __fadd_rn(most, __fdiv_rn(__fmul_rn(log2 - 0.01f, 0.693148f), a.inv_t));
    const u32 reaches = value == value && a.min_p >= 0x1p-126f ? min(key, syi_value_key(value)) : 0;
    return max(reaches, (u32)LOWEST_HALF << 16);
}

/* Where the nucleus of a wide row ends, most likely: tokens that reach `certain` are in it, those that do not
   reach `least` are not. Also the largest key, SY_ROW_*, and what a draw depends on: the last two are known
   to the first block alone. */
struct wide_edge {
    u32 key;
    float certain, least;
    u32 flags;
    float inv_t, top_p;
    u64 uniform;
};

/* Whether a fault was reported, as one thread sees it. A word, compared when the row was read, so that
   no warp waits for it before. */
SYC_INLINE u32 load_closed(const syc_gate *gate, u32 thread = 0)
{
    return gate != NULL && threadIdx.x == thread ? __ldcg(gate->closed) : 0;
}
