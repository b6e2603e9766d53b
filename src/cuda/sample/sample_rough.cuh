/*
 * Rough weights of the tiles of a row, by one approximate exponential for each token, with a bound of their
 * error. docs/design.md has the proof of the bound.
 */
#pragma once

#include "cuda/prim/cluster.cuh"
#include "cuda/sample/sample_launch.cuh"
#include "cuda/sample/sample_stream.cuh"

/* ---- Rough weights ---- */

/*
 * The rough weight of a logit x is 2^(x * unit - base), where unit is log2(e) / T and base is an integer near
 * what one of the first tokens of a thread has. It comes from the one approximate instruction of the library,
 * whose error is documented and tested; the distance of a sum of them from the weights of
 * src/plan/sample_math.h has a bound: docs/design.md. It holds for logits up to MOST_OCTAVES above the base.
 */
enum {
    MOST_OCTAVES = 100,
    LEAST_OCTAVES = -99
}; /* of a logit above its base; of a base below the largest logit */
#define FARTHEST_BASE 4.0e6f
#define FARTHEST_TOP 3.9e6f /* of a row that is weighed roughly */

struct rough_scale {
    float unit, base; /* base: of the logits of a thread; NaN: there is none that will do */
};

SYC_INLINE rough_scale rough_scale_of(float inv_t)
{
    return {__fmul_rn(inv_t, __uint_as_float(0x3fb8aa3b)), 0.0f};
}

/* The integer nearest to a * b, where that is below 2^22. */
SYC_INLINE float nearest(float a, float b)
{
    return __fsub_rn(__fmaf_rn(a, b, 12582912.0f), 12582912.0f);
}

/* Puts the base near the larger logit of a word; false where that is too far from 0, as -inf is: what was
   summed so far is nothing beside a row that is weighed roughly at all. */
template <sy_type T> SYC_INLINE bool put_base(rough_scale &r, u32 word)
{
    const float largest = syi_key_value(syc_word_key<T>(word)), at = __fmul_rn(largest, r.unit);
    const bool near = at > -FARTHEST_BASE && at < FARTHEST_BASE;
    r.base = near ? nearest(largest, r.unit) : 0.0f;
    return near;
}

/* 2^a with a relative error of at most 2^-22, 0 where that is below 2^-126. */
SYC_INLINE float rough_power(float a)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return emulator::rough_power(a);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(a));
    return y;
#endif
}

/* The sum of a vector; of a NaN it is NaN. */
template <sy_type T> SYC_INLINE float rough_sum(const rough_scale &r, uint4 x)
{
    float sum[2] = {0.0f, 0.0f};
    const auto add = [&](u32 i, u32 bits) {
        const float e = rough_power(__fmaf_rn(__uint_as_float(bits), r.unit, -r.base));
        sum[i % 2] = i < 2 ? e : __fadd_rn(sum[i % 2], e);
    };
    syc_each_of<T>(0, x, add);
    return __fadd_rn(sum[0], sum[1]);
}

/* 2^(from - to), to move a sum to another base; infinite where those are farther apart than `up` or
 * LEAST_OCTAVES. */
SYC_INLINE float octaves_between(float from, float to, int up)
{
    const float octaves = __fsub_rn(from, to);
    return octaves >= (float)LEAST_OCTAVES && octaves <= (float)up
               ? __uint_as_float((u32)(127 + (int)octaves) << 23)
               : __uint_as_float(0x7f800000);
}

/* The weight of a tile relative to the base that its own largest logit has; infinite where that is too far
   from the base that its logits were weighed with. */
SYC_INLINE float tile_weight(const rough_scale &r, float sum, u32 key)
{
    const float most = syi_key_value(key);
    return __fmul_rn(sum, octaves_between(r.base, nearest(most, r.unit), MOST_OCTAVES));
}

/* What a thread knows of its tiles: the largest keys, 0 where there is no token, and rough weights. */
struct rough_tiles {
    u32 key[SYC_OWN_TILES];
    float weight[SYC_OWN_TILES];

    /* The next tile is the first one, which comes last as it is now: loops need not be unrolled. */
    __device__ __forceinline__ void turn(u32 key_now, float weight_now)
    {
#pragma unroll
        for (u32 c = 0; c + 1 < SYC_OWN_TILES; c++) {
            key[c] = key[c + 1];
            weight[c] = weight[c + 1];
        }
        key[SYC_OWN_TILES - 1] = key_now;
        weight[SYC_OWN_TILES - 1] = weight_now;
    }
};

/* A vector joins a tile. */
template <sy_type T> SYC_INLINE void add_vector(rough_scale &r, bool &based, u32 &most, float &sum, uint4 x)
{
    most = fold<T>(most, x);
    if (!based) /* until there is a logit near enough */
        based = put_base<T>(r, most);
    sum = __fadd_rn(sum, rough_sum<T>(r, x));
}

/* y: the first group, of SYC_OWN_TILES vectors; the next one is on its way while a group is weighed. All
 * weights have one base, r.base. */
template <sy_type T, bool wanted>
SYC_INLINE u32 read_rough(const syc_logits &l, const syc_vectors &v, rough_scale &r, uint4 *y,
                          rough_tiles &tiles)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 step = SYC_SAMPLE_THREADS;
    u32 flags = 0;
    bool based = false;
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        tiles.key[c] = syc_minus_inf_word<T>();
        tiles.weight[c] = 0.0f;
    }
    const auto begin = [&] {
        if (!based) /* until there is a logit near enough */
            based =
                put_base<T>(r, syc_max_word<T>(syc_max_word<T>(vector_max<T>(y[0]), vector_max<T>(y[1])),
                                               syc_max_word<T>(vector_max<T>(y[2]), vector_max<T>(y[3]))));
    };
    const auto add = [&](u32 c, u32 at, uint4 y) {
        const uint4 now = syc_masked<T>(l, v.head + (at - SYC_TILES + c * step) * n, y);
        tiles.key[c] = fold<T>(tiles.key[c], now);
        tiles.weight[c] = __fadd_rn(tiles.weight[c], rough_sum<T>(r, now));
        if (wanted)
            flags |= flags_of<T>(now);
    };
    u32 at = threadIdx.x + SYC_TILES;
    const uint4 *x = vectors_at<T>(l, v, at);
#pragma unroll 1
    for (; is_whole(v, at, step); at += SYC_TILES, x += SYC_TILES) {
        begin();
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            const uint4 now = y[c];
            y[c] = __ldcg(x + c * step);
            add(c, at, now);
        }
    }
#pragma unroll 1
    for (bool more = v.n > 0; more; at += SYC_TILES) {
        more = at - threadIdx.x < v.n;
        begin();
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            const uint4 now = y[c];
            if (more)
                y[c] = vector_or_nothing<T>(l, v, at + c * step);
            add(c, at, now);
        }
    }
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        tiles.key[c] = threadIdx.x + c * step < v.n ? syc_word_key<T>(tiles.key[c]) : 0;
    return flags;
}

/* A row that the blocks of a cluster read: each has as many tiles, and the first gets them all; then, of a
 * row that keeps many tokens, what each has sampled. */
union far_shared {
    u64 tile[SYC_TILES]; /* key and rough weight */
    u64 sampled[sample_policy::CLUSTER - 1]
               [SYC_SAMPLE_THREADS + 2]; /* weights of two bins each; two sums of sample_light */
};

/* What the first block tells the others: at once what comes of the row, or to sample it, and then that. */
enum { FAR_WORDS = 3 };
struct far_gates {
    u64 tiles, sampled, verdict[2];
    u64 word[2][FAR_WORDS];
    bool asked; /* in the first block: it verdict the others to sample */
};

/* Blocks of a cluster that do so, at most as many as a thread has tiles, and what the first gets. */
SYC_INLINE u32 far_parts(u32 blocks)
{
    return min(blocks, (u32)SYC_OWN_TILES);
}
SYC_INLINE u32 far_bytes(u32 blocks)
{
    return (SYC_TILES - SYC_TILES / far_parts(blocks)) * 8;
}

/* By one thread, ahead of syc_cluster_begin. */
SYC_INLINE void expect_far(far_gates *g, u32 rank, u32 blocks)
{
    syc_expect(&g->tiles, rank == 0 ? far_bytes(blocks) : 0);
    syc_expect(&g->sampled, rank == 0 ? (blocks - 1) * (SYC_SAMPLE_THREADS + 2) * 8 : 0);
    for (u32 i = 0; i < 2; i++)
        syc_expect(&g->verdict[i], rank == 0 ? 0 : FAR_WORDS * 8);
    g->asked = false;
}

/* By the first block, behind a barrier. */
SYC_INLINE void send_verdict(far_gates *g, u32 i, u32 blocks, u64 first, u64 second, u64 third)
{
    if (threadIdx.x == 0 || threadIdx.x >= blocks)
        return;
    syc_send(&g->word[i][0], threadIdx.x, first, &g->verdict[i]);
    syc_send(&g->word[i][1], threadIdx.x, second, &g->verdict[i]);
    syc_send(&g->word[i][2], threadIdx.x, third, &g->verdict[i]);
}

/* The first tile of a thread. */
SYC_INLINE u32 far_tile(u32 rank, u32 parts)
{
    return rank * (SYC_OWN_TILES / parts) * SYC_SAMPLE_THREADS + threadIdx.x;
}

/* y: the first vectors of that tile; the next ones are on their way while some are weighed. */
template <sy_type T>
SYC_INLINE void read_far(const syc_logits &l, const syc_vectors &v, rough_scale r, uint4 *y, far_shared *far,
                         u64 *far_gate, u32 rank, u32 parts)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 turns = (v.n + SYC_TILES - 1) / SYC_TILES, end = far_tile(rank + 1, parts);
    u32 most = syc_minus_inf_word<T>();
    float sum = 0.0f;
    bool based = false;
#pragma unroll 1
    for (u32 tile = far_tile(rank, parts), turn = 0; tile < end;) {
        const uint4 now[SYC_OWN_TILES] = {y[0], y[1], y[2], y[3]};
        const u32 own = tile, first = tile + turn * SYC_TILES;
        const bool last = turn + SYC_OWN_TILES >= turns;
        turn = last ? 0 : turn + SYC_OWN_TILES;
        tile += last ? SYC_SAMPLE_THREADS : 0;
        if (tile < end)
            load_group<T>(l, v, tile + turn * SYC_TILES, SYC_TILES, y);
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++)
            add_vector<T>(r, based, most, sum,
                          syc_masked<T>(l, v.head + (first + c * SYC_TILES) * n, now[c]));
        if (!last)
            continue;
        const u32 key = own < v.n ? syc_word_key<T>(most) : 0;
        const u64 both = (u64)__float_as_uint(tile_weight(r, sum, key)) << 32 | key;
        if (rank == 0)
            far->tile[own] = both;
        else
            syc_send(&far->tile[own], 0, both, far_gate);
        most = syc_minus_inf_word<T>();
        sum = 0.0f;
    }
}

SYC_INLINE void take_far(const far_shared *far, u64 *far_gate, rough_tiles &tiles)
{
    syc_wait_at(far_gate);
    __syncthreads();
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        const u64 both = far->tile[c * SYC_SAMPLE_THREADS + threadIdx.x];
        tiles.key[c] = (u32)both;
        tiles.weight[c] = __uint_as_float((u32)(both >> 32));
    }
}

/*
 * How far a sum of rough weights may be from that of the weights it stands for, in units of 2^-40: relative
 * errors in units of 2^-24, a unit for each token, and two for each tile. See docs/design.md.
 */
static __host__ __device__ __forceinline__ u64 rough_error(u64 sum, u32 vocab)
{
    return sum == 0 ? 0 : ((sum >> 24) + 1) * (320 + vocab / 4096) + vocab + 2 * SYC_TILES;
}

/* Where the largest logit of a row is: its weight is 2^(top + rest). Weights with a base, times `from`, are
 * relative to it. */
struct rough_top {
    float top, power; /* 2^-rest */

    __device__ __forceinline__ float from(float base) const
    {
        return __fmul_rn(octaves_between(base, top, 0), power);
    }
};

/* False where it is too far from 0. */
SYC_INLINE bool find_top(rough_top &t, float max, float unit)
{
    const float at = __fmul_rn(max, unit);
    t.top = nearest(max, unit);
    t.power = rough_power(-__fmaf_rn(max, unit, -t.top));
    return at > -FARTHEST_TOP && at < FARTHEST_TOP;
}

/* A weight that is known within the bound; else it is infinite or NaN. */
SYC_INLINE bool is_known(float weight)
{
    return weight < __uint_as_float(0x7f800000);
}

/* Whether a tile weighs anything. */
SYC_INLINE bool has_weight(u32 key, const syc_scale &scale)
{
    return key != 0 && __fmul_rn(__fsub_rn(syi_key_value(key), scale.max), scale.inv_t) >= -29.0f;
}
