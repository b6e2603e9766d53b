/*
 * One row of sample as a block sees it: its logits, and the candidates that are left of them. All filters
 * keep a prefix of one total order (larger key first, then lower token), so the candidates are those up to
 * the last one. They are read from the row each time, until they are few enough to be kept in shared memory
 * in order.
 */
#pragma once

#include "plan/sample_math.h"
#include "cuda/prim/block.cuh"
#include "cuda/prim/load.cuh"

#define LARGEST 3.402823466e38f /* FLT_MAX, which +inf counts as */

enum {
    SYC_SAMPLE_THREADS = 512,
    SYC_TILES = 2048,  /* of a row */
    SYC_OWN_TILES = 4, /* of each thread */
    SYC_FEW = 2048,    /* candidates in shared memory, at most */
    SYC_EDGE = 3072,
    SYC_BINS = 2048
};

struct syc_sample_shared {
    union {
        struct {
            u32 low[SYC_BINS], high[SYC_BINS]; /* measures of keys by digit */
        } bin;
        u32 digits[SYC_BLOCK_WARPS * SYC_DIGITS];
        u16 candidate_tile[SYC_TILES]; /* tiles that are read again */
    };
    union {
        struct {
            u64 few[SYC_FEW];    /* candidates */
            u32 tile[SYC_TILES]; /* largest key of each tile; 0: no token is in it */
        };
        u64 edge[SYC_EDGE]; /* tokens among which a wide row is cut; tiles are not needed then */
    };
    u64 part[SYC_BLOCK_WARPS],
        share[SYC_BLOCK_WARPS]; /* share: what the candidates of each warp's share of the row weigh */
    u64 answer[3];
    u32 n_few, n_candidate_tiles;
};

struct syc_logits {
    const u8 *x;     /* logits, or what replaces them */
    const u8 *allow; /* bit i % 8 of byte i / 8: token i counts, else it is -inf; NULL: all do */
    u32 vocab;
};

/* Row b of a call without overrides; `masks`: it may have allow_bits. */
SYC_INLINE syc_logits row_logits(const syi_sample_plan &p, int64_t b, bool masks = true)
{
    return {syc_row(p.logits, b), masks && p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL,
            (u32)p.vocab};
}

/* What the weight of a key depends on. */
struct syc_scale {
    float max, inv_t; /* largest logit, 1 / temperature */
    bool probs_in;
};

/* What kernels with many blocks for a row have found. */
struct syc_parts {
    u32 *tile;   /* [batch][SYC_TILES] */
    u64 *most;   /* [batch][parts]: largest key of the vectors, then SY_ROW_NAN and SY_ROW_INF */
    u64 *weight; /* [batch][parts]; of rows that are weighed as a whole */
    int parts;   /* 0: they did not run */
};

/* Parameters of a row, as they act. */
struct syc_params {
    float inv_t;        /* 1 / temperature */
    float top_p, min_p; /* 1 and 0: off */
    int64_t k;          /* 0: off */
    bool cold, greedy;  /* cold: the first of the order is certain; greedy: it is taken */
    bool one;           /* top-p is 0 or less: keep one token, unless the row is empty */
    syi_noise noise;
};

/* Whether a kernel that picks tokens writes all else that is asked of its rows, too, and where what depends
 * on given tokens goes. */
struct syc_more {
    bool asked;
    u8 *token, *logprob; /* of the caller, or NULL */
    int64_t empty_token;
};

enum { SPLIT_THREADS = 256, LEAST_PARTS = SYC_TILES / SPLIT_THREADS };

/* In shared memory: the copies of all threads would not fit the cache. Functions that loop copy what they
   need of it first. What changes is stored by one thread, with a barrier before and after (syc_change). */
struct syc_sample_row {
    const syi_sample_plan *p;
    syc_sample_shared *s;
    int64_t b;
    u32 vocab;
    syc_logits logits;
    u64 *list; /* device memory of two times vocab */
    syc_parts split;

    u64 first; /* of the order; its token only where it may be taken */
    syc_scale scale;
    bool empty, cold, greedy;   /* cold: the first of the order is certain; greedy: it is taken */
    int64_t k;                  /* 0: off */
    bool one;                   /* top-p is 0 or less: keep one token, unless the row is empty */
    float top_p, min_p;         /* 1 and 0: off */
    bool ranked;                /* top-k or top-p acted: the list is in rank order, else in index order */
    bool all_ties;              /* all tokens equal to the last one stay */
    bool few, by_token, listed; /* candidates are in shared memory, there in index order; in r->list */
    bool shares, spent;         /* s->share is known; tiles are not any more */
    u64 last;                   /* candidate of the order; 0: all tokens are */
    u32 n;                      /* candidates, where they are in shared memory or listed */
    u64 mass;                   /* of what top-k left, where it is known */
};

/* What a block has of its row changes: f stores, in one thread, what all threads have computed before. */
template <class F> SYC_INLINE void syc_change(F f)
{
    __syncthreads(); /* the others have read what it was */
    if (threadIdx.x == 0)
        f();
    __syncthreads();
}

/* ---- The order ---- */

/* A token and its key as one number, larger for what is earlier in the order. */
SYC_INLINE u64 syc_rank_of(u32 key, u32 token)
{
    return (u64)key << 32 | (u32)~token;
}
SYC_INLINE u32 syc_key_of(u64 rank)
{
    return (u32)(rank >> 32);
}
SYC_INLINE u32 syc_token_of(u64 rank)
{
    return ~(u32)rank;
}
SYC_INLINE u64 syc_swapped(u64 v)
{
    return v << 32 | v >> 32;
}

/* The exponential of a key, or the probability it is. */
SYC_INLINE float syc_e_of(const syc_scale &scale, u32 key)
{
    const float value = syi_key_value(key);
    if (scale.probs_in)
        return value > 0.0f ? value : 0.0f;
    return syi_exp(__fmul_rn(__fsub_rn(value, scale.max), scale.inv_t));
}

SYC_INLINE u64 syc_weight_of(const syc_scale &scale, u32 key)
{
    return syi_weight(syc_e_of(scale, key));
}

/*
 * syi_weight(syi_exp(t)) in fewer steps, for t <= 0, -inf or NaN. 40 joins n in the number that rounds, so
 * that adding n to the exponent scales by 2^40 too; it is even, so that ties round as before. Below -60 the
 * weight is 0 anyway.
 */
SYC_INLINE u64 syc_weight_above(float t) /* -60 or more */
{
    const float shifted = __fmaf_rn(t, __uint_as_float(0x3fb8aa3b), 12582952.0f),
                n = __fsub_rn(shifted, 12582952.0f);
    const float y = syi_exp_rest(t, n);
    return __float2ull_rn(__uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23)));
}

SYC_INLINE u64 syc_weight_at(float t)
{
    return syc_weight_above(fmaxf(t, -60.0f));
}

/* Of a logit at or below the largest, or NaN; no +inf, which would have to be FLT_MAX. */
SYC_INLINE u64 syc_weight_of_value(const syc_scale &scale, float value)
{
    return syc_weight_at(__fmul_rn(__fsub_rn(value, scale.max), scale.inv_t));
}

/* The same of bits that an f32 has, which need not be canonical: e of NaN is 0. */
SYC_INLINE u64 syc_weight_of_bits(const syc_scale &scale, u32 bits)
{
    const float value = __uint_as_float(bits), canonical = value > LARGEST ? LARGEST : value;
    if (scale.probs_in)
        return syi_weight(canonical > 0.0f ? canonical : 0.0f);
    return syi_weight(syi_exp(__fmul_rn(__fsub_rn(canonical, scale.max), scale.inv_t)));
}

/* ---- Logits ---- */

#define SYC_MINUS_INF_BITS 0xff800000u

SYC_INLINE bool syc_allowed(const u8 *allow, u32 i)
{
    return allow == NULL || (allow[i / 8] >> (i % 8) & 1) != 0;
}

/* An f32 with the value of half a word. */
template <sy_type T> SYC_INLINE u32 syc_wide(u32 half)
{
    return T == SY_TYPE_F16 ? __float_as_uint(syc_from_f16((u16)half)) : half << 16;
}

/* Bits of token i as an f32, -inf where it does not count. */
template <sy_type T> SYC_INLINE u32 syc_bits_at(const syc_logits &l, u32 i)
{
    if (!syc_allowed(l.allow, i))
        return SYC_MINUS_INF_BITS;
    if (T == SY_TYPE_F32)
        return syc_load<u32>(l.x + (int64_t)i * 4);
    return syc_wide<T>(syc_load<u16>(l.x + (int64_t)i * 2));
}

template <sy_type T> SYC_INLINE u32 syc_key_at(const syc_logits &l, u32 i)
{
    return syi_key(syc_bits_at<T>(l, i));
}

/* Words of a vector hold two tokens, or one of f32. The larger of each; a NaN only where both are. */
template <sy_type T> SYC_INLINE u32 syc_max_word(u32 a, u32 b)
{
    u32 c;
#ifdef SWITCHYARD_CUDA_EMULATED
    c = 0;
    for (int half = 0; half < (T == SY_TYPE_F32 ? 1 : 2); half++) {
        const int shift = half * 16;
        const auto key = [&](u32 w) {
            return syi_key(T == SY_TYPE_F32 ? w : syc_wide<T>(w >> shift & 0xffffu));
        };
        const u32 larger = key(a) >= key(b) ? a : b;
        c |= T == SY_TYPE_F32 ? larger : larger & 0xffffu << shift;
    }
#else
    if (T == SY_TYPE_F32)
        asm("max.f32 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    else if (T == SY_TYPE_F16)
        asm("max.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    else
        asm("max.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
#endif
    return c;
}

/* The largest key of a word. */
template <sy_type T> SYC_INLINE u32 syc_word_key(u32 w)
{
    return T == SY_TYPE_F32 ? syi_key(w)
                            : max(syi_key(syc_wide<T>(w & 0xffffu)), syi_key(syc_wide<T>(w >> 16)));
}

/* SY_ROW_NAN and SY_ROW_INF of a word. */
template <sy_type T> SYC_INLINE u32 syc_word_flags(u32 w)
{
    return T == SY_TYPE_F32 ? syi_key_flags(w)
                            : syi_key_flags(syc_wide<T>(w & 0xffffu)) | syi_key_flags(syc_wide<T>(w >> 16));
}

/* Both tokens of a word are -inf. */
template <sy_type T> SYC_INLINE u32 syc_minus_inf_word()
{
    return T == SY_TYPE_F32 ? SYC_MINUS_INF_BITS : T == SY_TYPE_F16 ? 0xfc00fc00u : 0xff80ff80u;
}

/* A row as vectors of 16 bytes, and tokens before and after them. */
struct syc_vectors {
    u32 head, n; /* tokens before them; vectors */
};

template <sy_type T> SYC_INLINE syc_vectors syc_vectors_of(const syc_logits &l)
{
    constexpr u32 bytes = T == SY_TYPE_F32 ? 4 : 2;
    const u32 past = (u32)((uintptr_t)l.x % 16);
    if (past % bytes != 0)
        return {l.vocab, 0}; /* no vector is aligned */
    const u32 head = min(l.vocab, (16 - past) % 16 / bytes);
    return {head, (l.vocab - head) / (16 / bytes)};
}

/* A vector whose first token is i, with -inf for a token that does not count. */
template <sy_type T> SYC_INLINE uint4 syc_masked(const syc_logits &l, u32 i, uint4 v)
{
    constexpr int n = T == SY_TYPE_F32 ? 4 : 8, per_word = n / 4;
    if (l.allow == NULL || i >= l.vocab)
        return v;
    const u32 on = (l.allow[i / 8] | (u32)l.allow[(i + n - 1) / 8] << 8) >> (i % 8);
    u32 word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const u32 own = on >> (j * per_word);
        const u32 keep =
            per_word == 1 ? 0u - (own & 1u) : (own & 1u) * 0xffffu | (own >> 1 & 1u) * 0xffff0000u;
        word[j] = (word[j] & keep) | (syc_minus_inf_word<T>() & ~keep);
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* The vector whose first token is i. */
template <sy_type T> SYC_INLINE uint4 syc_vector_at(const syc_logits &l, u32 i)
{
    return syc_masked<T>(l, i, *(const uint4 *)(l.x + (int64_t)i * (T == SY_TYPE_F32 ? 4 : 2)));
}

/* The word whose first token is i, as in its vector. */
template <sy_type T> SYC_INLINE u32 syc_word_at(const syc_logits &l, u32 i)
{
    const u32 word = *(const u32 *)(l.x + (int64_t)i * (T == SY_TYPE_F32 ? 4 : 2));
    if (l.allow == NULL)
        return word;
    const u32 first = l.allow[i / 8] >> (i % 8) & 1u,
              second = T == SY_TYPE_F32 ? first : l.allow[(i + 1) / 8] >> ((i + 1) % 8) & 1u;
    const u32 keep = first * 0xffffu | second * 0xffff0000u;
    return (word & keep) | (syc_minus_inf_word<T>() & ~keep);
}

/* f(token, bits as syc_bits_at) for the tokens of a vector. */
template <sy_type T, class F> SYC_INLINE void syc_each_of(u32 i, uint4 v, F &f)
{
    constexpr int n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < n; j++)
        f(i + j, T == SY_TYPE_F32 ? word[j % 4] : syc_wide<T>(word[j / 2] >> (j % 2 * 16) & 0xffffu));
}

/* The warp at whose part the sum exceeds a target, which becomes what is left of it. */
SYC_INLINE int syc_find_part(const u64 *part, u64 *target)
{
    int w = 0;
    for (; w + 1 < syc_warps() && part[w] <= *target; w++)
        *target -= part[w];
    return w;
}

/* The tokens of a warp: [first, end), of which [whole, rest) are vectors of 16 bytes. Those of later warps
 * follow. */
struct syc_share {
    u32 first, whole, rest, end;
};

template <sy_type T> SYC_INLINE syc_share syc_share_of(const syc_logits &l, int warp)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
    if (v.n == 0) {
        const u32 first = (u32)syc_warp_part(l.vocab, warp);
        return {first, first, first, (u32)syc_warp_part(l.vocab, warp + 1)};
    }
    const u32 whole = v.head + (u32)syc_warp_part(v.n, warp) * n,
              rest = v.head + (u32)syc_warp_part(v.n, warp + 1) * n;
    return {warp == 0 ? 0 : whole, whole, rest, warp + 1 == syc_warps() ? l.vocab : rest};
}

/* The same of one of `parts` parts. */
template <sy_type T> SYC_INLINE syc_share syc_part_of(const syc_logits &l, int part, int parts)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 each = (v.n + (u32)parts - 1) / (u32)parts;
    const u32 whole = v.head + min(v.n, each * (u32)part) * n,
              rest = v.head + min(v.n, each * (u32)(part + 1)) * n;
    return {part == 0 ? 0 : whole, whole, rest, part + 1 == parts ? l.vocab : rest};
}

/* all(first token, vector) for the vectors of this warp's share, one(token, bits as syc_bits_at) for the
 * tokens in none. */
template <sy_type T, class All, class One>
SYC_INLINE void syc_each_piece(const syc_logits &l, All all, One one)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_share own = syc_share_of<T>(l, syc_warp());
    const u32 lane = (u32)syc_lane(), step = 32 * n;
    uint4 ahead[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)}; /* loaded while others are processed */
    for (u32 i = 0; i < 2; i++)
        if (own.whole + lane * n + i * step < own.rest)
            ahead[i] = syc_vector_at<T>(l, own.whole + lane * n + i * step);
#pragma unroll 1
    for (u32 i = own.whole + lane * n; i < own.rest; i += step) {
        const uint4 now = ahead[0];
        ahead[0] = ahead[1];
        if (i + 2 * step < own.rest)
            ahead[1] = syc_vector_at<T>(l, i + 2 * step);
        all(i, now);
    }
#pragma unroll 1
    for (u32 j = lane; j < own.whole - own.first + own.end - own.rest; j += 32) {
        const u32 i = own.first + j < own.whole ? own.first + j : own.first + j - own.whole + own.rest;
        one(i, syc_bits_at<T>(l, i));
    }
}

/* f(token, bits) for every token of this warp's share. */
template <sy_type T, class F> SYC_INLINE void syc_each(const syc_logits &l, F f)
{
    syc_each_piece<T>(
        l, [&](u32 i, uint4 x) { syc_each_of<T>(i, x, f); }, f);
}

/* The weight of the vectors at tokens i, i + step, ... up to end. */
template <sy_type T> SYC_COLD u64 syc_weigh(syc_logits l, syc_scale scale, u32 i, u32 end, u32 step)
{
    u64 sum = 0;
    if (l.allow == NULL && !scale.probs_in &&
        scale.max < LARGEST) { /* no +inf in the row, which would be FLT_MAX */
        const auto add = [&](u32, u32 bits) { sum += syc_weight_of_value(scale, __uint_as_float(bits)); };
        constexpr u32 bytes = T == SY_TYPE_F32 ? 4 : 2;
        const u8 *const x = l.x;
        uint4 next = i < end ? __ldcg((const uint4 *)(x + (int64_t)i * bytes)) : make_uint4(0, 0, 0, 0);
        uint4 after =
            i < end && step < end - i ? __ldcg((const uint4 *)(x + (int64_t)(i + step) * bytes)) : next;
#pragma unroll 1
        for (; i < end; i += step) {
            const uint4 now = next;
            next = after;
            if (2 * step < end - i)
                after = __ldcg((const uint4 *)(x + (int64_t)(i + 2 * step) * bytes));
            syc_each_of<T>(i, now, add);
        }
        return sum;
    }
    const auto add = [&](u32, u32 bits) { sum += syc_weight_of_bits(scale, bits); };
#pragma unroll 1
    for (; i < end; i += step)
        syc_each_of<T>(i, syc_vector_at<T>(l, i), add);
    return sum;
}

/* f(token, bits) for the tokens that are in no vector, each by one thread. */
template <sy_type T, class F> SYC_INLINE void syc_each_rest(const syc_logits &l, F f)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 all = l.vocab - v.n * n;
#pragma unroll 1
    for (u32 j = threadIdx.x; j < all; j += blockDim.x) {
        const u32 i = j < v.head ? j : j + v.n * n;
        f(i, syc_bits_at<T>(l, i));
    }
}

/* ---- Tiles ---- */

/*
 * Vector v of a row is in tile v % SYC_TILES. A row that is read once gives the largest key of each tile;
 * what reaches a key is then found by reading only the tiles that do. Tokens in no vector count for a tile of
 * the thread that read them, and are always read again.
 */
template <sy_type T, class F>
SYC_INLINE void syc_each_candidate_tile(const syc_logits &l, syc_sample_shared *s, u32 threshold, F f)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 tiles = SYC_TILES, turns = (v.n + tiles - 1) / tiles;
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_candidate_tiles = 0;
    __syncthreads();
    for (u32 c = threadIdx.x; c < tiles; c += blockDim.x)
        if (s->tile[c] >= threshold && s->tile[c] != 0)
            s->candidate_tile[atomicAdd(&s->n_candidate_tiles, 1u)] = (u16)c;
    __syncthreads();
    const u32 items = s->n_candidate_tiles * turns;
#pragma unroll 1
    for (u32 item = threadIdx.x; item < items; item += blockDim.x) {
        const u32 hot = item / turns, at = (item - hot * turns) * tiles + s->candidate_tile[hot];
        if (at < v.n)
            syc_each_of<T>(v.head + at * n, syc_vector_at<T>(l, v.head + at * n), f);
    }
    syc_each_rest<T>(l, f);
}
