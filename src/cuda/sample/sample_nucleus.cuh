/*
 * Rows of sample that top-p alone cuts to a few hundred tokens, read once. While a row is read, each tile is
 * weighed roughly. The tiles that have a large token, the candidate_tiles, are read again and weighed
 * exactly. What the others weigh is then known within a bound, so the weight of the row is between two
 * numbers, and the nucleus is that of the row if both lead to the same one. It is exact where it is used at
 * all; docs/design.md has the proof of the bound. All other rows take the general steps, which weigh every
 * token exactly.
 */
#pragma once

#include "cuda/sample/sample_rough.cuh"

/* ---- Where the nucleus ends, about ---- */

/*
 * A histogram of weights by octave, eight bins each: the largest token of each tile, and the rest of the tile
 * as if a few tokens shared it. All of this only steers; what is found is verified exactly.
 */
SYC_INLINE u32 octave_of(float weight)
{
    const u32 bits = __float_as_uint(fminf(weight, 1.0f)), bin = (0x3f800000u - bits) >> 20;
    return min(bin, (u32)NEAR - 1);
}

/* Where a bin is, so that the lanes of a warp read a run of them each without waiting for one another. */
SYC_INLINE u32 octave_place(u32 bin)
{
    return bin % (NEAR / 32) * 32 + bin / (NEAR / 32);
}

/* Weights become relative to the largest logit; tiles without weight have no key then. `spread`: tiles are
 * relative to their own largest logit. */
SYC_INLINE void settle_tiles(listed_shared *s, rough_tiles &tiles, const rough_top &top, const rough_scale &r,
                             bool spread, const syc_scale &scale, float top_p)
{
    const float least = (1.0f - top_p) * (0.25f / SYC_TILES), few = 0.125f, bin_unit = 0x1p24f;
    float rest = 0.0f, tops = 0.0f, whole = 0.0f, from = top.from(r.base);
    const auto add = [&](float weight, float by) {
        if (weight >= least)
            syc_shared_add(&s->near.low[octave_place(octave_of(weight * by))],
                           (u32)(fminf(weight, 64.0f) * bin_unit));
        else
            rest += weight;
    };
#pragma unroll 2
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        u32 key = tiles.key[0];
        if (spread)
            from = top.from(nearest(syi_key_value(key), r.unit));
        const float weight = __fmul_rn(tiles.weight[0], from);
        if (has_weight(key, scale)) {
            const float largest = rough_power(__fmul_rn(__fsub_rn(syi_key_value(key), scale.max), r.unit)),
                        others = is_known(weight) ? fmaxf(weight - largest, 0.0f) : 0.0f;
            tops += largest;
            whole += largest + others;
            add(largest, 1.0f);
            add(others, few);
        } else
            key = 0;
        tiles.turn(key, weight);
    }
    const u32 all = __reduce_add_sync(SYC_ALL_LANES, (u32)(fminf(rest, 4.0f) * bin_unit)),
              all_tops = __reduce_add_sync(SYC_ALL_LANES, (u32)(tops * 0x1p18f)),
              of_all = __reduce_add_sync(SYC_ALL_LANES, (u32)(fminf(whole, 0x1p12f) * 0x1p10f));
    if (syc_lane() == 0) {
        syc_shared_add(&s->near.high[0], all);
        syc_shared_add(&s->near.high[1], all_tops >> 8);
        syc_shared_add(&s->near.high[2], of_all);
    }
}

/* The same of overrides. */
SYC_INLINE void settle_overrides(const syi_sample_plan &p, listed_shared *s, const rough_scale &r,
                                 const syc_scale &scale, int64_t b)
{
    each_override(p, b, [&](u32, u32 bits) {
        const float weight = rough_power(__fmul_rn(__fsub_rn(__uint_as_float(bits), scale.max), r.unit));
        if (weight > 0x1p-10f) { /* also false of NaN */
            syc_shared_add(&s->near.low[octave_place(octave_of(weight))], (u32)(weight * 0x1p24f));
            syc_shared_add(&s->near.high[1], (u32)(weight * 0x1p10f));
            syc_shared_add(&s->near.high[2], (u32)(weight * 0x1p10f));
        }
    });
}

/* Too many tokens share what top-p keeps: the largest of all tiles together have less than half of it. */
SYC_INLINE bool is_wide(const listed_shared *s, float top_p)
{
    return 2.0f * (float)s->near.high[1] < top_p * (float)s->near.high[2];
}

/* The bin at which the sum from the top reaches a share of all, to s->bin; ~0: not known. By one warp. */
SYC_INLINE void find_octave(listed_shared *s, float share)
{
    constexpr u32 each = NEAR / 32;
    const u32 lane = (u32)syc_lane();
    u32 own = 0;
#pragma unroll
    for (u32 i = 0; i < each; i++)
        own += s->near.low[i * 32 + lane];
    const u32 upto = syc_warp_prefix(own), total = __shfl_sync(SYC_ALL_LANES, upto, 31) + s->near.high[0];
    const u32 target = (u32)min((u64)(share * (float)total), (u64)0xffffff00u) + 1;
    const u32 reached = __ballot_sync(SYC_ALL_LANES, upto >= target);
    const u32 who = reached != 0 ? (u32)__ffs((int)reached) - 1 : 0,
              before = __shfl_sync(SYC_ALL_LANES, upto - own, (int)who);
    const u32 fine = __ballot_sync(
        SYC_ALL_LANES, before + syc_warp_prefix(lane < each ? s->near.low[lane * 32 + who] : 0u) >= target);
    if (lane == 0)
        s->bin = reached != 0 && fine != 0 ? who * each + (u32)__ffs((int)fine) - 1 : ~0u;
}

/* A key that tokens of that bin and above reach, with so many bins below it. The logarithm is taken by its
   linear pieces, which are below it. */
SYC_INLINE u32 octave_key(const syc_scale &scale, u32 key, u32 bin)
{
    const float t = (float)(bin + 1) * (-0.693147f / 8);
    const float value = __fadd_rn(scale.max, __fdiv_rn(t, scale.inv_t));
    return value == value ? min(key, max(syi_value_key(value), SYI_KEY_MINUS_INF)) : SYI_KEY_MINUS_INF;
}

/* ---- The row ---- */

/* What the candidate_tiles weigh, as far as this thread reads them; lists their tokens that reach a key, with
   weights. Those in no vector count. Threads take words in turns, so that all have something to do where
   candidate_tiles are few. */
template <sy_type T>
SYC_INLINE u64 weigh_candidate_tiles(const syi_sample_plan &p, listed_shared *s, const syc_logits &row,
                                     const syc_scale &scale, u32 least, int64_t b)
{
    constexpr u32 each = T == SY_TYPE_F32 ? 1 : 2, words = 4,
                  ahead = 4; /* tokens of a word, words of a vector, and those on their way at once */
    const syc_logits l = row;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 turns = (v.n + SYC_TILES - 1) / SYC_TILES,
              bits = turns > 1 ? 32 - (u32)__clz((int)turns - 1) : 0; /* a head has 1 << bits vectors */
    const u32 all = s->n_candidate_tiles * words << bits;
    const float threshold = syi_key_value(least);
    u64 sum = 0;
    const auto look = [&](u32 i, u32 token_bits) {
        const u64 weight = syc_weight_of_value(scale, __uint_as_float(token_bits));
        sum += weight;
        if (!(__uint_as_float(token_bits) >= threshold))
            return;
        const u32 place = syc_shared_add(&s->n_items, 1u);
        if (place < MOST_LISTED) {
            s->item[place] = syc_rank_of(syi_key(token_bits), i);
            s->weight[place] = weight;
        }
    };
#pragma unroll 1
    for (u32 item = threadIdx.x; item < all; item += ahead * SYC_SAMPLE_THREADS) {
        u32 x[ahead], first[ahead];
#pragma unroll
        for (u32 k = 0; k < ahead; k++) {
            const u32 one = item + k * SYC_SAMPLE_THREADS, vector = one / words,
                      at = (vector & ((1u << bits) - 1)) * SYC_TILES +
                           (one < all ? s->candidate_tile[vector >> bits] : v.n);
            first[k] = v.head + (at * words + one % words) * each;
            x[k] = at < v.n ? syc_word_at<T>(l, first[k]) : syc_minus_inf_word<T>();
        }
#pragma unroll
        for (u32 k = 0; k < ahead && item + k * SYC_SAMPLE_THREADS < all; k++)
#pragma unroll
            for (u32 j = 0; j < each; j++)
                look(first[k] + j, T == SY_TYPE_F32 ? x[k] : syc_wide<T>(x[k] >> 16 * j & 0xffffu));
    }
    each_rest_of<T>(p, l, b, look);
    return sum;
}

/*
 * The nucleus of the listed tokens, and its results, where nothing but top-p cuts them and the token is the
 * first or drawn by weight. Returns false when the two bounds of the mass do not lead to the same tokens.
 */
SYC_INLINE bool finish_nucleus(const syi_sample_plan &p, listed_shared *s, const syc_scale &scale,
                               const u64 *mass, u32 flags, int64_t b)
{
    const float top_p = s->params.top_p;
    const team_token t = compare_listed(s);
    const u64 least = syi_mass_target(top_p, mass[0]), enough = syi_mass_target(top_p, mass[1]);
    if (t.speaks && t.before < least && least <= t.before + t.weight)
        s->ends[0] = t.rank;
    if (t.speaks && t.before < enough && enough <= t.before + t.weight) {
        s->ends[1] = t.rank;
        s->total = t.before + t.weight;
    }
    __syncthreads();
    const u32 last = s->ends[1];
    if (s->ends[0] != last)
        return false;
    const bool chosen =
        s->params.greedy ? t.speaks && t.rank == 0 : draw_listed(s, t, t.rank <= last, &s->total);
    if (chosen)
        put_results(
            p, b, (int64_t)syc_token_of(t.item), flags, last + 1,
            p.logprob.data == NULL || s->params.cold ? 0.0f : log_share(scale, syc_key_of(t.item), s->total));
    return true;
}

/* Whether a row is one of those. */
SYC_INLINE bool is_nucleus(const syi_sample_plan &p, const syc_params &a)
{
    const bool first = a.greedy && (p.logprob.data == NULL || a.cold) &&
                       p.kept.data == NULL; /* nothing but the first token is wanted */
    return a.k == 0 && !a.one && a.top_p < 1.0f && !first;
}

/* The tokens that a nucleus may have are listed, and the weight of the row is known to be from mass[0] to
   mass[1]. False: they are too many. `margin` is how far below its end tokens are listed. */
template <sy_type T>
SYC_INLINE bool list_nucleus(const syi_sample_plan &p, listed_shared *s, const syc_logits &l,
                             const syc_scale &scale, rough_tiles &tiles, u32 key, u32 margin, int64_t b,
                             u64 *mass)
{
    const u32 least = octave_key(scale, key, s->bin + margin);
    u32 mask = 0;
    u64 rough = 0;
#pragma unroll 1
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        const u32 own = tiles.key[0];
        const float weight = tiles.weight[0];
        const bool head = own != 0 && (own >= least || !is_known(weight));
        mask |= head ? 1u << c : 0;
        rough += own != 0 && !head ? __float2ull_rn(weight * 0x1p40f) + 1 : 0;
        tiles.turn(own, weight);
    }
    put_candidate_tiles(s, mask);
    __syncthreads();
    if (s->n_candidate_tiles > MOST_LISTED)
        return false;
    const u64 exact = syc_warp_sum(weigh_candidate_tiles<T>(p, s, l, scale, least, b));
    rough = syc_warp_sum(rough);
    if (syc_lane() == 0) {
        s->sum[0][syc_warp()] = exact;
        s->sum[1][syc_warp()] = rough;
    }
    __syncthreads();
    const u32 w = (u32)syc_lane() % SYC_BLOCK_WARPS;
    const u64 all_exact = syc_warp_sum(syc_lane() < SYC_BLOCK_WARPS ? s->sum[0][w] : 0),
              all_rough = syc_warp_sum(syc_lane() < SYC_BLOCK_WARPS ? s->sum[1][w] : 0),
              error = rough_error(all_rough, l.vocab);
    mass[0] = all_exact + (all_rough > error ? all_rough - error : 0);
    mass[1] = all_exact + all_rough + error;
    return s->n_items <= MOST_LISTED;
}

/*
 * Where a large nucleus ends, about: the weights of all heavy tokens, and of a sample of the others, by
 * distance from the largest. `slack` is how far the sample may mislead, and small enough that there is room
 * for the tokens within it. Only steers.
 */
enum { EDGE_BINS = 2 * NEAR, EDGE_PER_UNIT = 64 };

/* What is sampled of a row of weight `mass`, in 2^-20: `each` vectors by a thread of each block. Tokens from
 * `heavy` on are not. */
struct edge_sample {
    u32 each;
    float heavy, one, ratio; /* the second: a bin's unit; the last: vectors for each that is taken */
};

SYC_INLINE edge_sample edge_sample_of(u32 vectors, u64 mass, u32 parts)
{
    const u32 taken = max(min(vectors / (sample_policy::SAMPLE_SHARE * SYC_SAMPLE_THREADS),
                              (u32)sample_policy::SAMPLE_MOST),
                          (u32)sample_policy::SAMPLE_LEAST),
              each = (taken + parts - 1) / parts;
    const float about = fmaxf((float)mass * 0x1p-20f, 1.0f);
    return {each, about * (1.0f / 4096), 0x1p28f / about,
            (float)vectors / (float)max(min(vectors, each * parts * SYC_SAMPLE_THREADS), 1u)};
}

SYC_INLINE u64 in_fixed(float x, float one)
{
    return (u64)(fminf(x, 0x1p20f) * one);
}

/* A rough weight that only steers; of NaN it is 2^-100. */
SYC_INLINE float steering_weight(const syc_scale &scale, float unit, float x)
{
    return rough_power(fmaxf(__fmul_rn(__fsub_rn(x, scale.max), unit), -100.0f));
}

SYC_INLINE void add_to_bin(listed_shared *s, const syc_scale &scale, float x, float weight)
{
    const float t = fmaxf(__fmul_rn(__fsub_rn(x, scale.max), scale.inv_t), -(float)FARTHEST);
    syc_shared_add(&s->near.low[(u32)fminf(t * -(float)EDGE_PER_UNIT, (float)(EDGE_BINS - 1))], (u32)weight);
}

/* Four vectors of a sample, all over the row, from the i-th of each thread on. */
template <sy_type T>
SYC_INLINE void load_sample(const syc_logits &l, const edge_sample &sample, u32 rank, u32 parts, u32 i,
                            uint4 *x)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 apart = (u32)(sample.ratio * 256.0f), whole = apart >> 8,
              nothing = syc_minus_inf_word<T>(); /* vectors, and 8 bits of a fraction */
#pragma unroll
    for (u32 k = 0; k < 4; k++) {
        const u32 one = ((i + k) * parts + rank) * SYC_SAMPLE_THREADS + threadIdx.x,
                  at = (u32)((u64)one * apart >> 8) +
                       __umulhi(one * 0x9e3779b1u, whole); /* at no fixed distance */
        x[k] = i + k < sample.each && at < v.n ? syc_vector_at<T>(l, v.head + at * n)
                                               : make_uint4(nothing, nothing, nothing, nothing);
    }
}

/* Light tokens of a sample to the bins of this block; their sums in s->sum[0] and s->sum[1], by warps. x: the
 * first vectors. */
template <sy_type T>
SYC_INLINE void sample_light(listed_shared *s, const syc_logits &l, const syc_scale &scale,
                             const edge_sample &sample, u32 rank, u32 parts, uint4 *x)
{
    const float unit = rough_scale_of(scale.inv_t).unit, by = sample.ratio * sample.one;
    float light = 0.0f, squares = 0.0f;
    const auto look = [&](u32, u32 bits) {
        const float x = __uint_as_float(bits), weight = steering_weight(scale, unit, x);
        const bool is = weight < sample.heavy && weight > 0x1p-60f;
        if (is)
            add_to_bin(s, scale, x, weight * by);
        light += is ? weight : 0.0f;
        squares += is ? weight * weight : 0.0f;
    };
#pragma unroll 1
    for (u32 i = 0;;) {
#pragma unroll 1
        for (u32 k = 0; k < 4 && i + k < sample.each; k++) {
            syc_each_of<T>(0, x[0], look);
            x[0] = x[1];
            x[1] = x[2];
            x[2] = x[3];
        }
        i += 4;
        if (i >= sample.each)
            break;
        load_sample<T>(l, sample, rank, parts, i, x);
    }
    const u64 own_light = syc_warp_sum(in_fixed(light, 0x1p30f)),
              own_squares = syc_warp_sum(in_fixed(squares, 0x1p30f));
    if (syc_lane() == 0) {
        s->sum[0][syc_warp()] = own_light;
        s->sum[1][syc_warp()] = own_squares;
    }
    __syncthreads();
}

/* Of the warps of a block, known to all. */
SYC_INLINE u64 sum_of_warps(const u64 *part)
{
    return syc_warp_sum(syc_lane() < SYC_BLOCK_WARPS ? part[syc_lane()] : 0);
}

/* The part of another block than the first, once it was verdict to. */
template <sy_type T>
SYC_COLD void sample_far(const syi_sample_plan &p, listed_shared *s, far_shared *far, far_gates *g, u32 rank,
                         u32 parts, int64_t b)
{
    const syc_logits l = row_logits(p, b);
    const syc_scale scale = {syi_key_value((u32)g->word[0][0]), __uint_as_float((u32)(g->word[0][2] >> 32)),
                             false};
    const u64 mass = g->word[0][1];
    const edge_sample sample = edge_sample_of(syc_vectors_of<T>(l).n, mass, parts);
    u32 *const bin = s->near.low;
    uint4 x[4];
    load_sample<T>(l, sample, rank, parts, 0, x);
    bin[threadIdx.x] = bin[threadIdx.x + SYC_SAMPLE_THREADS] = 0;
    __syncthreads();
    sample_light<T>(s, l, scale, sample, rank, parts, x);
    u64 *const to = far->sampled[rank - 1];
    syc_send(&to[threadIdx.x], 0, bin[2 * threadIdx.x] | (u64)bin[2 * threadIdx.x + 1] << 32, &g->sampled);
    if (syc_warp() < 2) {
        const u64 sum = sum_of_warps(syc_warp() == 0 ? s->sum[0] : s->sum[1]);
        if (syc_lane() == 0)
            syc_send(&to[SYC_SAMPLE_THREADS + syc_warp()], 0, sum, &g->sampled);
    }
}

/* Tokens of tiles that have a heavy one to the bins; only the heavy ones count. */
template <sy_type T>
SYC_INLINE void sample_heavy(listed_shared *s, const syc_logits &l, const syc_scale &scale,
                             const edge_sample &sample, uint4 keys)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 turns = (v.n + SYC_TILES - 1) / SYC_TILES,
              key[SYC_OWN_TILES] = {keys.x, keys.y, keys.z, keys.w};
    const float unit = rough_scale_of(scale.inv_t).unit;
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        if (key[c] != 0 && steering_weight(scale, unit, syi_key_value(key[c])) >= sample.heavy)
            s->candidate_tile[syc_shared_add(&s->n_heavy, 1u)] = (u16)(c * SYC_SAMPLE_THREADS + threadIdx.x);
    __syncthreads();
    const u32 tiles = s->n_heavy;
#pragma unroll 1
    for (u32 item = threadIdx.x; item < tiles * turns; item += SYC_SAMPLE_THREADS) {
        const u32 turn = item / tiles, at = turn * SYC_TILES + s->candidate_tile[item - turn * tiles];
        const auto look = [&](u32, u32 bits) {
            const float x = __uint_as_float(bits), weight = steering_weight(scale, unit, x);
            if (weight >= sample.heavy)
                add_to_bin(s, scale, x, weight * sample.one);
        };
        if (at < v.n)
            syc_each_of<T>(0, syc_vector_at<T>(l, v.head + at * n), look);
    }
}

/* Of the light tokens of all blocks: weights of a thread's two bins, their sum, and that of their squares. */
struct light_sample {
    u64 first, second, light, squares;
};

SYC_INLINE light_sample gather_light(const listed_shared *s, const far_shared *far, far_gates *g, u32 parts)
{
    const u32 *const bin = s->near.low;
    light_sample own = {bin[2 * threadIdx.x], bin[2 * threadIdx.x + 1], sum_of_warps(s->sum[0]),
                        sum_of_warps(s->sum[1])};
    if (parts == 1)
        return own;
    syc_wait_at(&g->sampled);
#pragma unroll 1
    for (u32 r = 0; r + 1 < parts; r++) {
        const u64 *const from = far->sampled[r];
        own.first += (u32)from[threadIdx.x];
        own.second += from[threadIdx.x] >> 32;
        own.light += from[SYC_SAMPLE_THREADS];
        own.squares += from[SYC_SAMPLE_THREADS + 1];
    }
    return own;
}

/* How far from top_p the share of the tokens before the end may be in the sample: `share` of its weight is
 * light. */
SYC_INLINE float edge_slack(float top_p, float share, float deviation)
{
    const float within = fminf(fmaxf((top_p - (1.0f - share)) / fmaxf(share, 1e-6f), 0.05f), 0.95f);
    return 0.001f +
           1.75f * deviation * (share * sqrtf(within * (1.0f - within)) + (1.0f - share) * (1.0f - top_p));
}

/* In the first block, or the only one. */
template <sy_type T>
SYC_COLD wide_edge sample_edge(listed_shared *s, far_shared *far, far_gates *g, u32 parts, syc_logits l,
                               syc_scale scale, u32 top, uint4 keys, float top_p)
{
    u32 *const bin = s->near.low, *const answer = s->edge;
    static_assert(sizeof s->near == EDGE_BINS * sizeof(u32), "one array");
    const u64 mass = (u64)s->near.high[2] << 10; /* of settle_tiles */
    if (parts > 1)
        send_verdict(g, 0, parts, top, mass, ROW_SAMPLE | (u64)__float_as_uint(scale.inv_t) << 32);
    const edge_sample sample = edge_sample_of(syc_vectors_of<T>(l).n, mass, parts);
    uint4 light_vectors[4]; /* on their way while heavy tokens are looked at */
    load_sample<T>(l, sample, 0, parts, 0, light_vectors);
    __syncthreads();
    bin[threadIdx.x] = bin[threadIdx.x + SYC_SAMPLE_THREADS] = 0;
    if (threadIdx.x == 0) {
        answer[0] = 0;
        answer[1] = EDGE_BINS - 1;
        if (parts > 1)
            g->asked = true;
    }
    sample_heavy<T>(s, l, scale, sample, keys);
    sample_light<T>(s, l, scale, sample, 0, parts, light_vectors);
    const light_sample own = gather_light(s, far, g, parts);
    u64 total;
    const u64 before = syc_block_before(own.first + own.second, s->sum[0], &total);
    const float all_light = (float)own.light * 0x1p-30f,
                deviation = all_light > 0.0f ? sqrtf((float)own.squares * 0x1p-30f) / all_light : 0.0f;
    const float share = fminf(sample.one * sample.ratio * all_light / (float)max(total, (u64)1), 1.0f),
                slack = edge_slack(top_p, share, deviation);
    const float from = (top_p - slack) * (float)total, to = (top_p + slack) * (float)total;
    const auto look = [&](u32 at, u64 low, u64 high) {
        if ((float)low < from && from <= (float)high)
            answer[0] = at;
        if ((float)low < to && to <= (float)high)
            answer[1] = at;
    };
    look(2 * threadIdx.x, before, before + own.first);
    look(2 * threadIdx.x + 1, before + own.first, before + own.first + own.second);
    __syncthreads();
    const float infinity = __uint_as_float(0x7f800000), bins = __fmul_rn((float)EDGE_PER_UNIT, scale.inv_t);
    const float certain = answer[0] == 0 ? infinity : scale.max - (float)answer[0] / bins;
    const float least = answer[1] == EDGE_BINS - 1 ? scale.max - (float)FARTHEST / scale.inv_t
                                                   : scale.max - (float)(answer[1] + 1) / bins;
    return {0, certain, least, 0, 0.0f, 0.0f, 0};
}

/* The row once its tiles are weighed, and where its nucleus ends is known about: s->bin. */
template <sy_type T, bool plain>
SYC_INLINE enum outcome finish_tiles(const syi_sample_plan &p, listed_shared *s, far_shared *far,
                                     far_gates *g, u32 parts, const syc_logits &l, const syc_scale &scale,
                                     rough_tiles &tiles, u32 key, u32 flags, bool finishes, int64_t b,
                                     wide_edge *edge)
{
    const syc_params &a = s->params;
    const bool draws = !a.greedy && p.noise == SY_NOISE_CDF && a.min_p == 0.0f &&
                       (plain || p.overrides.indptr == NULL) && edge != NULL; /* wide_row can */
    const auto tell = [&](wide_edge found) {
        if (threadIdx.x == 0)
            *edge = {key, found.certain, found.least, flags, a.inv_t, a.top_p, s->uniform};
        return ROW_EDGE;
    };
    u64 mass[2];
    const bool listed = s->bin != ~0u && !is_wide(s, a.top_p) &&
                        list_nucleus<T>(p, s, l, scale, tiles, key, sample_policy::EDGE_MARGIN, b, mass);
    if (listed && finishes && (plain || s->more == NULL)) {
        if (finish_nucleus(p, s, scale, mass, flags, b))
            return ROW_DONE;
    } else if (listed) {
        const u32 kept = finish_list(p, s, scale, key, 0, mass[0], mass[1], b, true);
        if (kept != UNDECIDED) {
            put_chosen(p, s, scale, flags, kept, b);
            return ROW_DONE;
        }
    }
    if (!draws)
        return ROW_WIDE;
    if (listed && s->ends[1] < MOST_LISTED) /* they are enough, but the bounds differ */
        return tell({0, __uint_as_float(0x7f800000),
                     syi_key_value(octave_key(scale, key, s->bin + sample_policy::EDGE_MARGIN)), 0, 0.0f,
                     0.0f, 0});
    return tell(sample_edge<T>(s, far, g, parts, l, scale, key,
                               make_uint4(tiles.key[0], tiles.key[1], tiles.key[2], tiles.key[3]), a.top_p));
}

/* As listed_row, for the rows that are a nucleus by their parameters. `plain`: see is_plain_call;
   finish_nucleus can finish all rows. `parts` blocks read a row, of which the first does the rest; the others
   are done. All have begun their cluster, and expect_far has run. Thread 0 stores the edge of a row that is
   ROW_EDGE. */
/* NOLINT(readability-function-size): a row from its parameters to its tiles, by barriers */
template <sy_type T, bool plain = false>
SYC_INLINE enum outcome nucleus_row(const syi_sample_plan &p, u32 *bits, listed_shared *s, far_shared *far,
                                    far_gates *g, u32 rank, u32 parts, int64_t b, const syc_gate *gate,
                                    wide_edge *edge)
{
    /* A thread without duties: the predicate of another would be kept, in local memory, which is read before
     * the row. */
    const u32 closed = load_closed(gate, 64);
    const syc_logits raw = row_logits(p, b, false);
    const syc_vectors v = syc_vectors_of<T>(raw);
    uint4 y[SYC_OWN_TILES];
    if (parts == 1) /* while parameters come */
        load_group<T>(raw, v, threadIdx.x, SYC_SAMPLE_THREADS, y);
    else if (rank < far_parts(parts))
        load_group<T>(raw, v, far_tile(rank, far_parts(parts)), SYC_TILES, y);
    const syc_logits l = plain ? raw : staged_logits(p, b, bits);
    if (!plain && l.allow != NULL)
        __syncthreads();
    const syc_params loaded = load_params(p, b);
    const bool finishes = plain || ((loaded.greedy || p.noise == SY_NOISE_CDF) && loaded.min_p == 0.0f &&
                                    p.args.ties != SY_TIES_ALL); /* by finish_nucleus */
    const bool is = is_nucleus(p, loaded); /* not in registers while the row is read: s->params has them */
    rough_scale rough = rough_scale_of(loaded.inv_t);
    rough_top top;
    rough_tiles tiles;
    u32 flags = 0;
    if (parts > 1)
        syc_cluster_ready();
    if (rank != 0) {
        if (is && rank < far_parts(parts))
            read_far<T>(l, v, rough, y, far, &g->tiles, rank, far_parts(parts));
        return ROW_DONE;
    }
    if (threadIdx.x == 0) {
        s->params = loaded;
        s->n_items = s->n_candidate_tiles = s->n_heavy = 0;
        s->ends[0] = UNDECIDED;
        s->ends[1] = UNDECIDED - 1; /* differ, until both are found */
    }
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    if (!is)
        return __syncthreads_or(closed != 0) != 0 ? ROW_CLOSED : ROW_LEFT;
    if (parts > 1) {
        read_far<T>(l, v, rough, y, far, &g->tiles, 0, far_parts(parts));
        take_far(far, &g->tiles, tiles);
    } else if (!plain && p.row_flags.data != NULL)
        flags = read_rough<T, true>(l, v, rough, y, tiles);
    else
        flags = read_rough<T, false>(l, v, rough, y, tiles);
    u32 key = max(max(tiles.key[0], tiles.key[1]), max(tiles.key[2], tiles.key[3]));
    each_rest_of<T>(p, l, b, [&](u32, u32 bits) {
        key = max(key, syi_key(bits));
        flags |= syi_key_flags(bits);
    });
    key = __reduce_max_sync(SYC_ALL_LANES, key);
    flags = any_flags(flags);
    if (syc_lane() == 0) {
        s->warp_key[syc_warp()] = key;
        s->warp_flags[syc_warp()] = flags;
    }
    if (__syncthreads_or(closed != 0) != 0)
        return ROW_CLOSED;
    key = of_warps(s->warp_key);
    flags = any_flags(s->warp_flags[syc_lane() % SYC_BLOCK_WARPS]);
    if (key == SYI_KEY_MINUS_INF || key == SYI_KEY_MOST)
        return ROW_WIDE;
    const syc_params &a = s->params;
    const syc_scale scale = {syi_key_value(key), a.inv_t, false};
    if (!find_top(top, scale.max, rough.unit))
        return ROW_LEFT;
    settle_tiles(s, tiles, top, rough, parts > 1, scale, a.top_p);
    if (l.allow != NULL)
        settle_overrides(p, s, rough, scale, b);
    __syncthreads();
    if (syc_warp() == 0)
        find_octave(s, a.top_p);
    else if (threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
    __syncthreads();
    return finish_tiles<T, plain>(p, s, far, g, parts, l, scale, tiles, key, flags, finishes, b, edge);
}
