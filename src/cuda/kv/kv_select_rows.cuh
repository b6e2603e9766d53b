/*
 * Which places of a row kv_select takes on a device. A cluster of blocks reads a row once, a slice each:
 *
 *   guess    a threshold a little below the cut, from a sample of the row, the same in every block
 *   stream   the slice in tiles of 128 scores: of each tile the bits score > threshold and score ==
 *            threshold, and a list of the keys above
 *   cut      the threshold itself, where it has the ties; or a key of the lists of all blocks, whose bits
 *            then replace those of the threshold
 *   emit     the places whose bits are set, in order, from counts of the tiles before
 *
 * Where the guess was too high or the lists are too short, histograms of the whole row give the cut, which is
 * read again for each digit of the keys and then streamed in segments of a slice for each block. So the guess
 * decides on the time alone.
 */
#pragma once

#include "plan/select_math.h"
#include "cuda/prim/block.cuh"
#include "cuda/prim/cluster.cuh"

enum {
    SELECT_THREADS = 512,
    SELECT_WARPS = SELECT_THREADS / 32,
    SELECT_TILE = 128,   /* scores: 4 of each lane */
    SELECT_TILES = 1024, /* of a slice */
    SELECT_AHEAD = 4,
    SELECT_DIGIT = 11,
    SELECT_BINS = 1 << SELECT_DIGIT,
    SELECT_VECTORS = 4, /* of the sample, for each thread; 4 scores each */
    SELECT_SAMPLE = SELECT_VECTORS * SELECT_THREADS * 4,
    SELECT_FEW = 4096, /* fewest entries of a list */
    SELECT_MANY = 8192
};
static_assert((int)SELECT_WARPS <= (int)SYC_BLOCK_WARPS, "room for words of warps");

/* What of a row is selected by score: the places from head to tail, `want` of them. */
struct select_range {
    int64_t n, head, tail, want;
};

struct select_memory {
    int32_t *chosen;     /* [B][room]: places in the row, or with `position` in its order */
    int32_t *n;          /* [B] */
    u64 *x, *y;          /* what is sorted, of each row */
    u8 *sorted;          /* with `position`, [B][N]: scores in its order */
    int32_t *column;     /* the same: where they are */
    select_range *range; /* the same: n, head, tail */
};

/* Sizes of a launch. */
struct select_shape {
    u32 blocks, tiles, list; /* of a cluster; tiles of a slice; entries of a list */
    bool late;               /* the kernel before has made the rows */
};

struct select_shared {
    u64 part[SYC_BLOCK_WARPS];
    select_range range;
    const u8 *from;
    u32 digit, above;
    u32 total[2]; /* scores above the threshold, and equal to it */
    u32 n_list;
    u32 bin[SELECT_BINS];
    /* then gt[4 * tiles], eq[4 * tiles], key[list], place[list], all[list] */
};

struct select_block {
    select_shared *s;
    select_shape shape;
    u32 rank;
    u32 *gt, *eq, *key, *place, *all;
};

static inline size_t select_shared_bytes(const select_shape &shape)
{
    return sizeof(select_shared) +
           ((size_t)shape.tiles * 8 + (size_t)shape.list * (shape.blocks > 1 ? 3 : 2)) * 4;
}

SYC_INLINE select_block select_block_of(const select_shape &shape, u8 *shared)
{
    u32 *const gt = (u32 *)(shared + sizeof(select_shared)), *const key = gt + 8 * shape.tiles;
    return {(select_shared *)shared,   shape,
            blockIdx.x % shape.blocks, gt,
            gt + 4 * shape.tiles,      key,
            key + shape.list,          shape.blocks > 1 ? key + 2 * shape.list : key};
}

SYC_INLINE void select_sync(const select_block &b)
{
    if (b.shape.blocks > 1)
        syc_cluster_sync();
    else
        __syncthreads();
}

/* ---- Scores ---- */

[[maybe_unused]] SYC_COLD u32 select_load(const u8 *p, bool wide)
{
    return wide ? syi_load_u32(p) : (u32)syi_load_u16(p);
}

/* Scores in vectors of four: place i is number i + lead from `base` on, which is aligned where `aligned`. */
template <bool WIDE> struct select_scores {
    const u8 *base;
    u32 lead, end; /* numbers of the row */
    u32 inf;       /* of 16 bits */
    bool aligned;

    __device__ __forceinline__ u32 key(u32 raw) const
    {
        return WIDE ? syi_select_key32(raw) : syi_select_key16(raw, inf);
    }
    /* The four of a vector; those that are not of the row are NaN. */
    __device__ __forceinline__ uint4 load(u32 vector) const
    {
        const u32 first = vector * 4;
        if (aligned && first >= lead && end - first >= 4 && first < end) {
            if (WIDE)
                return __ldg((const uint4 *)base + vector);
            const uint2 v = __ldg((const uint2 *)base + vector);
            return make_uint4(v.x & 0xffffu, v.x >> 16, v.y & 0xffffu, v.y >> 16);
        }
        return make_uint4(one(first), one(first + 1), one(first + 2), one(first + 3));
    }
    __device__ __forceinline__ bool has(u32 i) const { return i >= lead && i < end; }
    __device__ __forceinline__ u32 one(u32 i) const
    {
        return has(i) ? select_load(base + (int64_t)i * (WIDE ? 4 : 2), WIDE) : WIDE ? 0x7fffffffu : 0x7fffu;
    }
    __device__ __forceinline__ u32 tiles() const { return (end - 1) / SELECT_TILE + 1; }
};

template <bool WIDE> SYC_INLINE select_scores<WIDE> select_scores_of(const u8 *from, int64_t n, sy_type type)
{
    const u32 bytes = WIDE ? 4 : 2, off = (u32)((uintptr_t)from % (4 * bytes));
    const u32 lead = off % bytes == 0 ? off / bytes : 0;
    return {from - lead * bytes, lead, lead + (u32)n, syi_select_inf16(type), off % bytes == 0};
}

/* A threshold as scores are compared with it: f32 as they are, others by their keys. `dead`: it is below all
   live scores, and the dead ones are equal to it. */
template <bool WIDE> struct select_threshold {
    float value;
    u32 key;
    bool dead;

    __device__ __forceinline__ bool above(u32 raw, u32 raw_key) const
    {
        return WIDE ? __uint_as_float(raw) > value : raw_key > key;
    }
    __device__ __forceinline__ bool equal(u32 raw, u32 raw_key) const
    {
        return WIDE ? __uint_as_float(raw) == value : raw_key == key;
    }
};

template <bool WIDE> SYC_INLINE select_threshold<WIDE> select_threshold_of(u32 key)
{
    const u32 bits = key == 0 ? 0xff800000u : key >> 31 ? key ^ 0x80000000u : ~key;
    return {__uint_as_float(bits), key, key == 0};
}

/* The least key of a live score. */
template <bool WIDE> SYC_INLINE u32 select_least(u32 inf)
{
    return WIDE ? 0x00800000u : 0x8000u - inf;
}

/* ---- Cuts ---- */

/* The key of place `rank`, from 1 and from the largest on, among those that `each` calls a function with; in
   s->above how many are larger. blocks: whose keys count. All threads. */
template <class Each>
static __device__ u32 select_key(const select_block &b, u32 blocks, int bits, u32 rank, const Each &each)
{
    select_shared *const s = b.s;
    u32 prefix = 0, above = 0;
    for (int high = bits; high > 0;) {
        const int low = high > SELECT_DIGIT ? high - SELECT_DIGIT : 0;
        const u32 mask = (1u << (high - low)) - 1u;
        __syncthreads();
        for (u32 i = threadIdx.x; i < SELECT_BINS; i += SELECT_THREADS)
            s->bin[i] = 0;
        __syncthreads();
        each([&](u32 key) {
            if ((u32)((u64)key >> high) == prefix)
                atomicAdd(&s->bin[key >> low & mask], 1u);
        });
        if (blocks > 1)
            syc_cluster_sync();
        else
            __syncthreads();
        enum { EACH = SELECT_BINS / SELECT_THREADS };
        const u32 first = SELECT_BINS - 1 - threadIdx.x * EACH;
        u32 n[EACH];
        u64 own = 0, all;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            n[i] = 0;
            for (u32 r = 0; r < blocks; r++)
                n[i] += blocks > 1 ? syc_peek(&s->bin[first - i], r) : s->bin[first - i];
            own += n[i];
        }
        u32 before = above + (u32)syc_block_before(own, s->part, &all);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            if (before < rank && rank <= before + n[i]) {
                s->digit = first - i;
                s->above = before;
            }
            before += n[i];
        }
        if (blocks > 1)
            syc_cluster_sync();
        else
            __syncthreads();
        prefix = prefix << (high - low) | s->digit;
        above = s->above;
        high = low;
    }
    return prefix;
}

/* A key that about `want` scores of n, and a few more, exceed; 0: they would not fit the list. */
template <bool WIDE>
static __device__ u32 select_guess(const select_block &b, const select_scores<WIDE> &x, u32 want)
{
    const u32 n = x.end - x.lead, vectors = (x.end - 1) / 4 + 1, step = vectors / (SELECT_SAMPLE / 4);
    const float expected = (float)want * SELECT_SAMPLE / (float)n;
    const u32 rank = (u32)(expected + 4 * sqrtf(expected)) + 2;
    u32 key[4 * SELECT_VECTORS];
    if (rank > SELECT_SAMPLE || (float)rank / SELECT_SAMPLE * (float)n > 0.8f * (float)b.shape.list)
        return 0;
#pragma unroll
    for (int i = 0; i < SELECT_VECTORS; i++) {
        const u32 v = (u32)i * SELECT_THREADS + threadIdx.x, noise = (v + 1) * 0x9e3779b9u;
        const uint4 raw = x.load(v * step + __umulhi(noise ^ noise >> 15, step));
        key[4 * i] = x.key(raw.x), key[4 * i + 1] = x.key(raw.y);
        key[4 * i + 2] = x.key(raw.z), key[4 * i + 3] = x.key(raw.w);
    }
    const u32 found = select_key(b, 1, WIDE ? 32 : 16, rank, [&](const auto &f) {
#pragma unroll
        for (int i = 0; i < 4 * SELECT_VECTORS; i++)
            f(key[i]);
    });
    const u32 least = select_least<WIDE>(x.inf);
    return found > least ? found : least;
}

/* The key of place `want` of the whole row; 0: it is dead. */
template <bool WIDE>
static __device__ u32 select_slowly(const select_block &b, const select_scores<WIDE> &x, u32 want)
{
    const u32 tiles = x.tiles(), step = SELECT_WARPS * b.shape.blocks;
    return select_key(b, b.shape.blocks, WIDE ? 32 : 16, want, [&](const auto &f) {
        for (u32 t = b.rank * SELECT_WARPS + (u32)syc_warp(); t < tiles; t += step) {
            const u32 vector = t * 32 + (u32)syc_lane(), i = vector * 4;
            const uint4 raw = x.load(vector);
            const u32 r[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (x.has(i + j))
                    f(x.key(r[j]));
        }
    });
}

/* ---- Bits ---- */

SYC_INLINE u32 select_word(const u32 (&w)[4])
{
    const int j = syc_lane() & 3;
    return j == 0 ? w[0] : j == 1 ? w[1] : j == 2 ? w[2] : w[3];
}

/* Puts those of a lane's four, from place `first` of the slice on, whose bit is set into the list. */
template <bool WIDE>
SYC_INLINE void select_list(const select_block &b, const select_scores<WIDE> &x, uint4 raw,
                            const u32 (&gt)[4], u32 first)
{
    const u32 r[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (gt[j] >> syc_lane() & 1) {
            const u32 place = atomicAdd(&b.s->n_list, 1u);
            if (place >= b.shape.list)
                break;
            b.key[place] = x.key(r[j]);
            b.place[place] = first + (u32)j;
        }
}

/* The bits of tile t, number `at` of the slice; counts them. */
template <bool WIDE, bool LISTS>
SYC_INLINE void select_tile(const select_block &b, const select_scores<WIDE> &x,
                            const select_threshold<WIDE> &cut, u32 t, u32 at, uint4 raw, u32 *n_gt, u32 *n_eq)
{
    const u32 r[4] = {raw.x, raw.y, raw.z, raw.w}, first = (t * 32 + (u32)syc_lane()) * 4;
    u32 gt[4], eq[4];
    bool any = false;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const u32 key = WIDE ? 0 : x.key(r[j]);
        const bool above = cut.above(r[j], key);
        const bool equal = cut.dead ? !above && x.has(first + j) : cut.equal(r[j], key);
        any |= above;
        gt[j] = __ballot_sync(SYC_ALL_LANES, above);
        eq[j] = __ballot_sync(SYC_ALL_LANES, equal);
        *n_gt += (u32)__popc(gt[j]);
        *n_eq += (u32)__popc(eq[j]);
    }
    if (syc_lane() < 4)
        b.gt[4 * at + syc_lane()] = select_word(gt);
    else if (syc_lane() < 8)
        b.eq[4 * at + syc_lane() - 4] = select_word(eq);
    if constexpr (LISTS)
        if (any && *(volatile u32 *)&b.s->n_list <= b.shape.list)
            select_list(b, x, raw, gt, at * SELECT_TILE + (u32)syc_lane() * 4);
}

/* The bits of tiles first to end of the row, which are the slice; in s->total how many are set. */
template <bool WIDE, bool LISTS>
static __device__ void select_stream(const select_block &b, const select_scores<WIDE> &x, u32 key, u32 first,
                                     u32 end)
{
    const select_threshold<WIDE> cut = select_threshold_of<WIDE>(key);
    u32 n_gt = 0, n_eq = 0;
    __syncthreads();
    if (threadIdx.x == 0)
        b.s->n_list = 0;
    __syncthreads();
    for (u32 t = first + (u32)syc_warp(); t < end; t += SELECT_AHEAD * SELECT_WARPS) {
        uint4 raw[SELECT_AHEAD];
#pragma unroll
        for (int u = 0; u < SELECT_AHEAD; u++)
            if (t + u * SELECT_WARPS < end)
                raw[u] = x.load((t + u * SELECT_WARPS) * 32 + (u32)syc_lane());
#pragma unroll
        for (int u = 0; u < SELECT_AHEAD; u++)
            if (t + u * SELECT_WARPS < end)
                select_tile<WIDE, LISTS>(b, x, cut, t + u * SELECT_WARPS, t + u * SELECT_WARPS - first,
                                         raw[u], &n_gt, &n_eq);
    }
    const u64 sum = syc_block_sum(syc_lane() == 0 ? (u64)n_gt << 32 | n_eq : 0, b.s->part);
    if (threadIdx.x == 0) {
        b.s->total[0] = (u32)(sum >> 32);
        b.s->total[1] = (u32)sum;
    }
    select_sync(b);
}

/* Bits of blocks before this one, and of all. */
struct select_sums {
    u32 gt, eq, all_gt, all_eq;
};

SYC_INLINE select_sums select_add(const select_block &b)
{
    select_sums sums = {0, 0, 0, 0};
    for (u32 r = 0; r < b.shape.blocks; r++) {
        const u32 gt = b.shape.blocks > 1 ? syc_peek(&b.s->total[0], r) : b.s->total[0],
                  eq = b.shape.blocks > 1 ? syc_peek(&b.s->total[1], r) : b.s->total[1];
        sums.gt += r < b.rank ? gt : 0;
        sums.eq += r < b.rank ? eq : 0;
        sums.all_gt += gt;
        sums.all_eq += eq;
    }
    return sums;
}

/* The places of the bits of `tiles` tiles, from number `first` on: above the cut, and of those that equal it,
   of which sums->eq are before, the first `ties`. */
static __device__ void select_emit(const select_block &b, const select_sums &sums, u32 ties, u32 tiles,
                                   int64_t first, int32_t *to)
{
    u64 before = (u64)sums.gt << 32 | sums.eq;
    for (u32 begin = 0; begin < 4 * tiles;
         begin += SELECT_THREADS) { /* a quarter of a tile for each thread */
        const u32 i = begin + threadIdx.x, t = i / 4, shift = i % 4 * 8;
        u32 gt[4] = {0, 0, 0, 0}, eq[4] = {0, 0, 0, 0}, any = 0;
        u64 own = 0, all;
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (t < tiles) {
                gt[j] = b.gt[4 * t + j] >> shift & 255;
                eq[j] = b.eq[4 * t + j] >> shift & 255;
                own += (u64)__popc(gt[j]) << 32 | (u32)__popc(eq[j]);
            }
        const u64 at = before + syc_block_before(own, b.s->part, &all);
        u32 n_gt = (u32)(at >> 32), n_eq = (u32)at;
#pragma unroll
        for (int j = 0; j < 4; j++)
            any |= gt[j] | (n_eq < ties ? eq[j] : 0);
        for (; any != 0; any &= any - 1) {
            const int lane = __ffs((int)any) - 1;
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const bool above = gt[j] >> lane & 1, equal = eq[j] >> lane & 1;
                if (above || (equal && n_eq < ties))
                    to[n_gt + min(n_eq, ties)] =
                        (int32_t)(first + t * SELECT_TILE + (shift + (u32)lane) * 4 + (u32)j);
                n_gt += above;
                n_eq += equal;
            }
        }
        before += all;
    }
}

/* ---- Rows ---- */

/* The cut among the listed keys of all blocks, whose bits replace those of the threshold. False: a list is
   too short. */
static __device__ bool select_listed(const select_block &b, int bits, u32 want, select_sums *sums, u32 *ties)
{
    u32 n = 0, own = 0, longest = 0;
    for (u32 r = 0; r < b.shape.blocks; r++) {
        const u32 of = b.shape.blocks > 1 ? syc_peek(&b.s->n_list, r) : b.s->n_list;
        own = r == b.rank ? n : own;
        longest = max(longest, of);
        n += min(of, b.shape.list);
    }
    if (longest > b.shape.list || n > b.shape.list)
        return false;
    for (u32 r = 0, at = 0; r < b.shape.blocks && b.shape.blocks > 1; r++) {
        const u32 of = syc_peek(&b.s->n_list, r);
        for (u32 i = threadIdx.x; i < of; i += SELECT_THREADS)
            b.all[at + i] = syc_peek(&b.key[i], r);
        at += of;
    }
    const u32 cut = select_key(b, 1, bits, want, [&](const auto &f) {
        for (u32 i = threadIdx.x; i < n; i += SELECT_THREADS)
            f(b.all[i]);
    });
    u64 before = 0;
    for (u32 i = threadIdx.x; i < own; i += SELECT_THREADS)
        before += (u64)(b.all[i] > cut) << 32 | (u32)(b.all[i] == cut);
    before = syc_block_sum(before, b.s->part);
    for (u32 i = threadIdx.x; i < 4 * b.shape.tiles; i += SELECT_THREADS)
        b.eq[i] = 0;
    __syncthreads();
    for (u32 i = threadIdx.x; i < b.s->n_list; i += SELECT_THREADS) {
        const u32 place = b.place[i], word = place / SELECT_TILE * 4 + place % 4,
                  bit = 1u << (place / 4 % 32);
        if (b.key[i] <= cut)
            atomicAdd(&b.gt[word], 0u - bit);
        if (b.key[i] == cut)
            atomicOr(&b.eq[word], bit);
    }
    __syncthreads();
    *ties = want - b.s->above;
    *sums = {(u32)(before >> 32), (u32)before, b.s->above, *ties};
    return true;
}

/* By a guess. Returns how many places there are; -1: it failed. */
template <bool WIDE>
static __device__ int64_t select_by_guess(const select_block &b, const select_scores<WIDE> &x, u32 want,
                                          bool keep, int64_t head, int32_t *to)
{
    const u32 tiles = x.tiles(), n = x.end - x.lead, each = (tiles - 1) / b.shape.blocks + 1;
    if (each > b.shape.tiles)
        return -1;
    const u32 least = select_least<WIDE>(x.inf);
    const u32 key = n <= SELECT_FEW || n < SELECT_SAMPLE + 4 ? least : select_guess(b, x, want);
    const u32 first = min(tiles, b.rank * each), end = min(tiles, first + each);
    if (key == 0)
        return -1;
    select_stream<WIDE, true>(b, x, key, first, end);
    select_sums sums = select_add(b);
    u32 ties = want - sums.all_gt;
    if (sums.all_gt > want) {
        if (!select_listed(b, WIDE ? 32 : 16, want, &sums, &ties))
            return -1;
    } else if (sums.all_gt + sums.all_eq < want) {
        if (key > least || keep)
            return -1;
    }
    select_emit(b, sums, ties, end - first, head + (int64_t)first * SELECT_TILE - x.lead, to);
    return sums.all_gt + min(sums.all_eq, ties);
}

/* What is above a cut, in segments. Returns how many places there are. */
template <bool WIDE>
static __device__ u32 select_segments(const select_block &b, const select_scores<WIDE> &x, u32 cut, u32 ties,
                                      int64_t head, int32_t *to)
{
    const u32 tiles = x.tiles();
    u32 gt = 0, eq = 0;
    for (u32 from = 0; from < tiles;) {
        const u32 rest = tiles - from, each = min(b.shape.tiles, (rest - 1) / b.shape.blocks + 1);
        const u32 first = min(tiles, from + b.rank * each), end = min(tiles, first + each);
        select_stream<WIDE, false>(b, x, cut, first, end);
        select_sums sums = select_add(b);
        sums.gt += gt;
        sums.eq += eq;
        select_emit(b, sums, ties, end - first, head + (int64_t)first * SELECT_TILE - x.lead, to);
        gt += sums.all_gt;
        eq += sums.all_eq;
        from = rest > each * b.shape.blocks ? from + each * b.shape.blocks : tiles;
        select_sync(b);
    }
    return gt + min(eq, ties);
}

/* Of those from head to tail; returns how many are selected. All threads of the cluster. */
template <bool WIDE>
static __device__ u32 select_live(const select_block &b, const syi_kv_select_plan &p, int32_t *to)
{
    const select_range range = b.s->range;
    const int64_t n = range.tail - range.head;
    const bool keep = p.args.dead == SY_KV_DEAD_KEEP;
    if (n <= 0 || range.want <= 0)
        return 0;
    const select_scores<WIDE> x =
        select_scores_of<WIDE>(b.s->from + range.head * (WIDE ? 4 : 2), n, p.scores.type);
    const u32 least = select_least<WIDE>(x.inf);
    if (range.want >= n)
        return select_segments(b, x, keep ? 0 : least, ~0u, range.head, to);
    const u32 want = (u32)range.want;
    const int64_t guessed = select_by_guess(b, x, want, keep, range.head, to);
    if (guessed >= 0)
        return (u32)guessed;
    select_sync(b); /* what others read is not written yet */
    const u32 cut = select_slowly(b, x, want), ties = want - b.s->above;
    select_sync(b);
    return select_segments(b, x, cut == 0 && !keep ? least : cut, cut == 0 && !keep ? ~0u : ties, range.head,
                           to);
}
