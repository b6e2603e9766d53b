/*
 * Rows of sample that top-p cuts to many tokens, drawn from by their weights. It is known between which two
 * values the nucleus ends, most likely. The row is read once more, by a block or a cluster: all tokens are
 * weighed exactly, those above by segments, and those between the two values are listed. The cut is then
 * among the listed ones, by integers only. Where too many are equal to list them, another read counts these.
 * What is not found so takes the general steps.
 */
#pragma once

#include "cuda/sample/sample_launch.cuh"
#include "cuda/sample/sample_segments.cuh"

enum { WIDE_BINS = 1024 };

/* Of a cluster; begun before a block sends. */
struct wide_gates {
    u64 counts[sample_policy::EDGE_READS], items[sample_policy::EDGE_READS],
        verdict[sample_policy::EDGE_READS];
};

struct wide_shared {
    u64 found[sample_policy::CLUSTER]; /* tokens between the two values, and above << 32; of all blocks */
    u64 total[sample_policy::CLUSTER]; /* weight of all tokens; here and below, what the first block gets of
                                          all */
    u64 segment[sample_policy::CLUSTER * SYC_BLOCK_WARPS]; /* of each the weight above, then what is kept */
    u64 between[sample_policy::CLUSTER * SYC_BLOCK_WARPS]; /* of each the tokens between the two values */
    alignas(16)
        u64 list[sample_policy::EDGE_LIST + sample_policy::CLUSTER]; /* of all blocks: each has an even number
                                                                        of them, the last of which may be 0 */
    u32 low[WIDE_BINS], high[WIDE_BINS];        /* weights of the list by distance from the upper value */
    u64 item[MOST_LISTED], weight[MOST_LISTED]; /* of one bin */
    u64 part[SYC_BLOCK_WARPS], answer[3], last;
    u64 verdict[2]; /* whether to read again; the values */
    u32 n_list, n_above, n_between, n_item;
};

/* What is looked for in a read. */
struct wide_look {
    float certain, least;
    bool ties; /* tokens between are equal, and only counted */
};

/* Gates of one turn. */
SYC_INLINE void expect_wide(wide_gates *g, u32 turn, u32 rank, u32 parts)
{
    syc_expect(&g->counts[turn], 8 * (parts - 1));
    syc_expect_later(&g->items[turn]);
    syc_expect(&g->verdict[turn], rank == 0 ? 0 : 16);
}

/* Adds the tokens of a mask, from group g of a segment, to the list. */
template <sy_type T> SYC_INLINE void list_group(wide_shared *s, const syc_share &own, u32 g, u32 here)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 all = (u32)__popc(here);
    const u32 upto = syc_warp_prefix(all);
    u32 place = 0;
    if (syc_lane() == 31)
        place = syc_shared_add(&s->n_list, upto);
    place = __shfl_sync(SYC_ALL_LANES, place, 31) + upto - all;
#pragma unroll 1
    for (; here != 0 && place < sample_policy::EDGE_LIST; here &= here - 1, place++) {
        const u32 j = (u32)__ffs((int)here) - 1;
        s->list[place] = own.whole + (g * GROUP + j / n * 32 + (u32)syc_lane()) * n + j % n;
    }
}

/* Keys join the listed tokens, several on their way at once. */
template <sy_type T> SYC_INLINE void rank_listed(wide_shared *s, const syc_logits &l, u32 listed)
{
    constexpr u32 ahead = 4;
    if (l.allow != NULL || syc_vectors_of<T>(l).n == 0) {
#pragma unroll 1
        for (u32 i = threadIdx.x; i < listed; i += SYC_SAMPLE_THREADS)
            s->list[i] = syc_rank_of(syc_key_at<T>(l, (u32)s->list[i]), (u32)s->list[i]);
        return;
    }
#pragma unroll 1
    for (u32 first = threadIdx.x; first < listed; first += ahead * SYC_SAMPLE_THREADS) {
        u32 token[ahead], bits[ahead];
#pragma unroll
        for (u32 k = 0; k < ahead; k++)
            token[k] =
                first + k * SYC_SAMPLE_THREADS < listed ? (u32)s->list[first + k * SYC_SAMPLE_THREADS] : 0;
#pragma unroll
        for (u32 k = 0; k < ahead; k++) /* aligned, as there are vectors */
            bits[k] = T == SY_TYPE_F32 ? ((const u32 *)l.x)[token[k]] : ((const u16 *)l.x)[token[k]];
#pragma unroll
        for (u32 k = 0; k < ahead; k++)
            if (first + k * SYC_SAMPLE_THREADS < listed)
                s->list[first + k * SYC_SAMPLE_THREADS] =
                    syc_rank_of(syi_key(T == SY_TYPE_F32 ? bits[k] : syc_wide<T>(bits[k])), token[k]);
    }
}

/* What a lane has of a segment: weights of all tokens and of those that reach `certain`, how many these are,
   and how many are below them and reach `least`. */
struct segment_weights {
    u64 total, above;
    u32 n_above, n_between;
};

/* A segment, from its end on, which is still in the cache. Tokens between the two values are listed, where
 * they differ. */
template <sy_type T>
SYC_INLINE segment_weights weigh_between(wide_shared *s, const syc_logits &l, const syc_scale &scale,
                                         const syc_share &own, const wide_look &look)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const float certain = look.certain, least = look.least;
    const u32 groups = ((own.rest - own.whole) / n + GROUP - 1) / GROUP, nothing = syc_minus_inf_word<T>();
    segment_weights w = {0, 0, 0, 0};
    uint4 y[SYC_OWN_TILES];
    if (groups > 0)
        load_from<T>(l, own, groups - 1, y);
    __syncthreads(); /* what is counted is 0 */
#pragma unroll 1
    for (u32 g = groups; g-- > 0;) {
        u32 here = 0;
        /* Not unrolled: a segment may have one group only, and code has to be read, too. */
#pragma unroll 1
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            const uint4 now = y[0];
            const u32 next = own.whole + ((g - 1) * GROUP + c * 32 + (u32)syc_lane()) * n;
            y[0] = y[1];
            y[1] = y[2];
            y[2] = y[3];
            if (g > 0)
                y[3] = next < own.rest ? syc_vector_at<T>(l, next)
                                       : make_uint4(nothing, nothing, nothing, nothing);
            u32 sure = 0,
                likely = 0; /* bits of a vector: without branches, tokens are weighed side by side */
            const auto one = [&](u32 i, u32 bits) {
                const float value = __uint_as_float(bits);
                const u64 weight = syc_weight_of_value(scale, value);
                w.total += weight;
                w.above += value >= certain ? weight : 0;
                sure |= value >= certain ? 1u << i : 0;
                likely |= value >= least ? 1u << i : 0;
            };
            syc_each_of<T>(0, now, one);
            w.n_above += (u32)__popc(sure);
            here |= (likely & ~sure) << (c * n);
        }
        w.n_between += (u32)__popc(here);
        if (!look.ties && __any_sync(SYC_ALL_LANES, here != 0))
            list_group<T>(s, own, g, here);
    }
    return w;
}

/* The same of the tokens that are in no vector. */
template <sy_type T>
SYC_INLINE void weigh_beside(wide_shared *s, const syc_logits &l, const syc_scale &scale,
                             const syc_share &own, const wide_look &look, segment_weights &w)
{
    each_beside(own, [&](u32 i) {
        const u32 bits = syc_bits_at<T>(l, i);
        const float value = __uint_as_float(bits);
        const u64 weight = syc_weight_of_bits(scale, bits);
        w.total += weight;
        if (value >= look.certain) {
            w.above += weight;
            w.n_above++;
        } else if (value >= look.least) {
            const u32 place = look.ties ? (u32)sample_policy::EDGE_LIST : syc_shared_add(&s->n_list, 1u);
            w.n_between++;
            if (place < sample_policy::EDGE_LIST)
                s->list[place] = i;
        }
    });
}

/* Weighs the segment of a warp, and lists its tokens from `least` on that do not reach `certain`. All blocks
 * get how many they are. */
template <sy_type T>
SYC_INLINE void list_segment(wide_shared *s, u64 *counts, const syc_logits &l, const syc_scale &scale,
                             u32 rank, u32 parts, wide_look look)
{
    const u32 segment = rank * SYC_BLOCK_WARPS + (u32)syc_warp();
    const syc_share own = segment_of<T>(l, segment, parts * SYC_BLOCK_WARPS);
    segment_weights w = weigh_between<T>(s, l, scale, own, look);
    weigh_beside<T>(s, l, scale, own, look, w);
    w = {syc_warp_sum(w.total), syc_warp_sum(w.above), __reduce_add_sync(SYC_ALL_LANES, w.n_above),
         __reduce_add_sync(SYC_ALL_LANES, w.n_between)};
    if (syc_lane() == 0) {
        s->part[syc_warp()] = w.total;
        s->segment[segment] = w.above;
        s->between[segment] = w.n_between;
        syc_shared_add(&s->n_above, w.n_above);
        syc_shared_add(&s->n_between, w.n_between);
    }
    __syncthreads();
    if (threadIdx.x < parts) { /* on its way while keys are read */
        const u64 found = s->n_between | (u64)s->n_above << 32;
        if (threadIdx.x == rank)
            s->found[rank] = found;
        else
            syc_send(&s->found[rank], threadIdx.x, found, counts);
    }
    const u32 listed = min(s->n_list, (u32)sample_policy::EDGE_LIST);
    rank_listed<T>(s, l, listed);
    /* Behind an even number the place is the next block's, which may have sent its tokens. */
    if (listed % 2 != 0 && threadIdx.x == listed % SYC_SAMPLE_THREADS)
        s->list[listed] = 0;
    syc_stored();
    if (syc_warp() == 0) {
        const u64 total = syc_warp_sum(syc_lane() < SYC_BLOCK_WARPS ? s->part[syc_lane()] : 0);
        if (syc_lane() == 0)
            s->total[rank] = total;
    }
    __syncthreads();
}

/* Tokens between the two values, of all blocks; or the places of blocks before one in the list. A lane for
 * each block. */
SYC_INLINE u32 all_between(const wide_shared *s, u32 parts)
{
    return __reduce_add_sync(SYC_ALL_LANES, (u32)syc_lane() < parts ? (u32)s->found[syc_lane()] : 0);
}
SYC_INLINE u32 even(u64 found)
{
    return ((u32)found + 1) & ~1u;
}
SYC_INLINE u32 places(const wide_shared *s, u32 parts)
{
    return __reduce_add_sync(SYC_ALL_LANES, (u32)syc_lane() < parts ? even(s->found[syc_lane()]) : 0);
}

/* The first block gets what the others have found; the list, if there is room for it. */
SYC_INLINE void gather_wide(wide_shared *s, wide_gates *g, u32 turn, u32 rank, u32 parts, bool ties)
{
    syc_wait_at(&g->counts[turn]);
    const bool listed = !ties && all_between(s, parts) <= sample_policy::EDGE_LIST;
    const u32 before = places(s, rank), own = listed ? even(s->found[rank]) : 0,
              others = listed ? places(s, parts) - own : 0;
    __syncthreads(); /* all have read the counts, which the next turn overwrites */
    if (rank == 0) {
        if (threadIdx.x == 0)
            syc_expect_now(&g->items[turn], (parts - 1) * (1 + 2 * SYC_BLOCK_WARPS) * 8 + others * 8);
        __syncthreads();
        syc_wait_at(&g->items[turn]);
        return;
    }
    if (threadIdx.x == 0 && own > 0)
        syc_send_run(&s->list[before], 0, s->list, own * 8, &g->items[turn]);
    if (threadIdx.x < SYC_BLOCK_WARPS) {
        const u32 segment = rank * SYC_BLOCK_WARPS + threadIdx.x;
        syc_send(&s->segment[segment], 0, s->segment[segment], &g->items[turn]);
        syc_send(&s->between[segment], 0, s->between[segment], &g->items[turn]);
    }
    if (threadIdx.x == 0)
        syc_send(&s->total[rank], 0, s->total[rank], &g->items[turn]);
}

/* The cut is among the tokens between the two values, or before or after them; or they are too many: about at
   bin s->answer[0] of them, or all equal to s->last; or it is not to be found here. */
enum wide { WIDE_FOUND, WIDE_ABOVE, WIDE_BELOW, WIDE_NARROW, WIDE_TIES, WIDE_NOT };

/* Whether some tokens, which there are, have one key: s->last. */
SYC_INLINE enum wide one_key(wide_shared *s, const u64 *item, u32 n)
{
    const u32 key = n > 0 ? syc_key_of(item[0]) : 0;
    bool differs = n == 0;
    for (u32 i = threadIdx.x; i < n; i += SYC_SAMPLE_THREADS)
        differs = differs || syc_key_of(item[i]) != key;
    if (threadIdx.x == 0)
        s->last = (u64)key << 32;
    return __syncthreads_or(differs) != 0 ? WIDE_NOT : WIDE_TIES;
}

/* The segment of a token. */
template <sy_type T> SYC_INLINE u32 segment_with(const syc_vectors &v, u32 each, u32 segments, u32 token)
{
    const u32 vector = (token - v.head) / (T == SY_TYPE_F32 ? 4 : 8);
    return token < v.head ? 0 : vector >= v.n ? segments - 1 : vector / each;
}

SYC_INLINE void add_to_segment(wide_shared *s, u32 segment, u64 weight)
{
    u32 *const own = (u32 *)&s->segment[segment];
    syc_shared_add(own, own + 1, weight);
}

/* Bins of the listed tokens by their distance from the upper value. */
struct wide_bins {
    float high, step;

    __device__ __forceinline__ u32 of(u32 key) const
    {
        return (u32)fminf(fmaxf(__fmul_rn(__fsub_rn(high, syi_key_value(key)), step), 0.0f),
                          (float)(WIDE_BINS - 1));
    }
};

SYC_INLINE wide_bins wide_bins_of(const wide_look &look, const syc_scale &scale)
{
    const float high = fminf(look.certain, scale.max), width = __fsub_rn(high, look.least);
    return {high, width > 0.0f && width < 0x1p100f ? __fdiv_rn((float)WIDE_BINS, width) : 0.0f};
}

SYC_INLINE u64 wide_weight(const syc_scale &scale, u32 key)
{
    return syc_weight_of_value(scale, syi_key_value(key));
}

/* The tokens that a read has listed. */
struct wide_list {
    u32 n;       /* places of the list */
    u64 all;     /* tokens between the two values */
    bool sample; /* there was no room for all: the list has some of them */
};

/* The bin at which the weight of the list reaches `wanted`: s->answer[0], and what it must contribute in
   s->answer[1]. Of a sample `wanted` is its share. */
SYC_INLINE enum wide find_wide_bin(wide_shared *s, const syc_scale &scale, const wide_bins &bins,
                                   const wide_list &list, u64 wanted)
{
    static_assert((int)WIDE_BINS == 2 * (int)SYC_SAMPLE_THREADS, "bins of a thread");
#pragma unroll 2
    for (u32 i = threadIdx.x; i < list.n; i += SYC_SAMPLE_THREADS) {
        const u32 key = syc_key_of(s->list[i]), bin = bins.of(key);
        if (key != 0)
            syc_shared_add(&s->low[bin], &s->high[bin], wide_weight(scale, key));
    }
    __syncthreads();
    u64 here[2], own = 0, listed;
#pragma unroll
    for (u32 j = 0; j < 2; j++)
        own += here[j] = (u64)s->high[2 * threadIdx.x + j] << 32 | s->low[2 * threadIdx.x + j];
    u64 sum = syc_block_before(own, s->part, &listed);
    if (list.sample)
        wanted = min(max((u64)((float)wanted * ((float)list.n / (float)list.all)), (u64)1), listed);
    if (wanted > listed)
        return WIDE_BELOW;
#pragma unroll
    for (u32 j = 0; j < 2; j++) {
        if (sum < wanted && wanted <= sum + here[j]) {
            s->answer[0] = 2 * threadIdx.x + j;
            s->answer[1] = wanted - sum;
        }
        sum += here[j];
    }
    __syncthreads();
    return !list.sample ? WIDE_FOUND : listed == 0 ? WIDE_NOT : WIDE_NARROW;
}

/* Listed tokens of bins before `bin` join their segments; returns how many a thread has. Those of the bin go
 * to s->item. */
template <sy_type T>
SYC_INLINE u32 keep_before_bin(wide_shared *s, const syc_vectors &v, u32 segments, const syc_scale &scale,
                               const wide_bins &bins, u32 n, u32 bin)
{
    const u32 each = segment_vectors(v.n, segments), lane = (u32)syc_lane();
    u32 kept = 0;
#pragma unroll 1
    for (u32 first = threadIdx.x - lane; first < n; first += SYC_SAMPLE_THREADS) {
        const u64 item = first + lane < n ? s->list[first + lane] : 0;
        const u32 at = bins.of(syc_key_of(item));
        const bool stays = item != 0 && at < bin, near = item != 0 && at == bin;
        const u64 weight = stays || near ? wide_weight(scale, syc_key_of(item)) : 0;
        const u32 segment = segment_with<T>(v, each, segments, syc_token_of(item));
        u64 sum = 0;
        if (near) {
            const u32 place = syc_shared_add(&s->n_item, 1u);
            if (place < MOST_LISTED) {
                s->item[place] = item;
                s->weight[place] = weight;
            }
        }
        kept += stays ? 1 : 0;
#pragma unroll 1
        for (u32 left = __ballot_sync(SYC_ALL_LANES, stays);
             left != 0;) { /* of one segment at a time: most have the same */
            const int who = __ffs((int)left) - 1;
            const u32 of_who = __shfl_sync(SYC_ALL_LANES, segment, who);
            const bool same = stays && segment == of_who;
            const u64 of_segment = syc_warp_sum(same ? weight : 0);
            sum = syc_lane() == who ? of_segment : sum;
            left &= ~__ballot_sync(SYC_ALL_LANES, same);
        }
        if (sum != 0)
            add_to_segment(s, segment, sum);
    }
    return kept;
}

/* The last of the nucleus is one of s->item, at which their weight reaches `rest`: s->last. Those that stay
   join their segments; returns whether a thread has one. */
template <sy_type T>
SYC_INLINE bool keep_in_bin(wide_shared *s, const syc_vectors &v, u32 segments, u64 rest, bool ties)
{
    const u32 items = s->n_item, bits = team_bits(items), i = threadIdx.x >> bits,
              in_team = threadIdx.x & ((1u << bits) - 1);
    const bool speaks = i < items && in_team == 0;
    const u64 item = i < items ? s->item[i] : 0;
    const u64 before = team_sum<u64>(items, bits, i, in_team,
                                     [&](u32 j) { return s->item[j] > item ? s->weight[j] : (u64)0; });
    if (speaks && before < rest && rest <= before + s->weight[i])
        s->last = item;
    __syncthreads();
    const bool stays = speaks && item >= (ties ? s->last >> 32 << 32 : s->last);
    if (stays)
        add_to_segment(s, segment_with<T>(v, segment_vectors(v.n, segments), segments, syc_token_of(item)),
                       s->weight[i]);
    return stays;
}

/* The last of the nucleus: s->last, and s->answer[0], how many of its key stay, where those were only
   counted. Else of the listed tokens, those that stay join their segments, and are counted in `kept`, by
   threads; `ties`: with all that are equal to the last. */
template <sy_type T>
SYC_INLINE enum wide cut_list(wide_shared *s, const syc_logits &l, const syc_scale &scale, float top_p,
                              u32 parts, wide_look look, bool ties, u32 &kept)
{
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 segments = parts * SYC_BLOCK_WARPS, lane = (u32)syc_lane();
    const wide_bins bins = wide_bins_of(look, scale);
    const u64 all = all_between(s, parts), mass = syc_warp_sum(lane < parts ? s->total[lane] : 0),
              target = syi_mass_target(top_p, mass);
    const bool sample = all > sample_policy::EDGE_LIST;
    const u32 n = sample ? min(s->n_list, (u32)sample_policy::EDGE_LIST) : places(s, parts);
    u64 sure = 0; /* weight above the two values */
#pragma unroll 1
    for (u32 i = lane; i < segments; i += 32)
        sure += s->segment[i];
    sure = syc_warp_sum(sure);
    if (sure >= target)
        return WIDE_ABOVE;
    if (look.ties) {
        const u64 weight = syc_weight_of(scale, syc_key_of(s->last)),
                  wanted = (target - sure + weight - 1) / max(weight, (u64)1);
        if (threadIdx.x == 0)
            s->answer[0] = wanted;
        __syncthreads();
        return weight == 0 ? WIDE_NOT : wanted <= all ? WIDE_FOUND : WIDE_BELOW;
    }
    if (sample && (n == 0 || one_key(s, s->list, n) == WIDE_TIES))
        return n == 0 ? WIDE_NOT : WIDE_TIES;
    const enum wide found = find_wide_bin(s, scale, bins, {n, all, sample}, target - sure);
    if (found != WIDE_FOUND)
        return found;
    const u64 rest = s->answer[1];
    kept = keep_before_bin<T>(s, v, segments, scale, bins, n, (u32)s->answer[0]);
    __syncthreads();
    if (s->n_item > MOST_LISTED)
        return one_key(s, s->item, MOST_LISTED);
    kept += keep_in_bin<T>(s, v, segments, rest, ties) ? 1 : 0;
    return WIDE_FOUND;
}

/* What to look for next; false: no more. */
SYC_INLINE bool look_again(enum wide where, u32 key, u32 bin, const syc_scale &scale, wide_look &look)
{
    const float width = look.ties ? 4.0f / scale.inv_t : 2.0f * (look.certain - look.least),
                high = fminf(look.certain, scale.max), step = (high - look.least) / (float)WIDE_BINS,
                near = (float)WIDE_BINS / 32;
    if (where == WIDE_NARROW)
        look = {high - ((float)bin - near) * step, high - ((float)bin + 1.0f + near) * step, false};
    else if (where == WIDE_TIES)
        look = {syi_key_value(key + 1), syi_key_value(key), true}; /* no number is between them */
    else if (where == WIDE_NOT || !(width > 0.0f && width < 0x1p100f))
        return false;
    else
        look = where == WIDE_ABOVE ? wide_look{look.certain + width, look.certain, false}
                                   : wide_look{look.least, look.least - width, false};
    return true;
}

/* Of the tokens that have the last key, the first `wanted` stay: s->last, and what they weigh in s->segment.
 */
template <sy_type T>
SYC_COLD void keep_ties(wide_shared *s, syc_logits l, syc_scale scale, u32 segments, u64 wanted)
{
    const u32 key = syc_key_of(s->last);
    const u64 weight = syc_weight_of(scale, key);
    const segment_found cut = find_segment(s->between, segments, [&](u64) { return wanted - 1; });
    u32 token;
    const bool has = find_token<T>(l, segment_of<T>(l, cut.segment, segments), cut.rest, s->part, s->answer,
                                   &token, [&](u32, u32 bits) { return (u64)(syi_key(bits) == key); });
    __syncthreads();
    if (has)
        s->last = syc_rank_of(key, token);
    if (threadIdx.x <= cut.segment)
        s->segment[threadIdx.x] +=
            (threadIdx.x < cut.segment ? s->between[threadIdx.x] : cut.rest + 1) * weight;
    __syncthreads();
}

/* The token of a draw from the tokens up to `last`, of which the segments have the weights, and the results;
   `kept`: of a thread's listed tokens. */
template <sy_type T>
SYC_INLINE void draw_wide(const syi_sample_plan &p, wide_shared *s, const syc_logits &l,
                          const syc_scale &scale, const wide_edge &edge, u32 parts, u64 last, u32 kept,
                          int64_t b)
{
    const u32 segments = parts * SYC_BLOCK_WARPS, lane = (u32)syc_lane();
    kept = __reduce_add_sync(SYC_ALL_LANES, kept);
    if (lane == 0)
        s->part[syc_warp()] = kept;
    __syncthreads();
    const segment_found found =
        find_segment(s->segment, segments, [&](u64 total) { return syi_share_of(edge.uniform, total); });
    kept =
        (lane < SYC_BLOCK_WARPS ? (u32)s->part[lane] : 0) + (lane < parts ? (u32)(s->found[lane] >> 32) : 0);
    kept = __reduce_add_sync(SYC_ALL_LANES, kept);
    const float cut = syi_key_value(syc_key_of(last)); /* no token is +inf: values order like keys */
    u32 token;
    const auto weight_of = [&](u32 i, u32 bits) {
        const float value = __uint_as_float(bits);
        const u64 weight = syc_weight_of_value(scale, value);
        const bool is =
            (value > cut) |
            ((value == cut) & (i <= syc_token_of(last))); /* without branches, as in list_segment */
        return is ? weight : (u64)0;
    };
    if (find_token<T>(l, segment_of<T>(l, found.segment, segments), found.rest, s->part, s->answer, &token,
                      weight_of))
        put_results(p, b, (int64_t)token, edge.flags, kept,
                    p.logprob.data != NULL ? log_share(scale, syc_key_at<T>(l, token), found.total) : 0.0f);
}

/* Draws from the nucleus of a row, by `parts` blocks, and writes the results; false in the first block: it
   was not found, and nothing is written. Blocks other than the first are done. */
template <sy_type T>
SYC_COLD bool wide_row(const syi_sample_plan &p, wide_shared *s, wide_gates *g, wide_edge edge, u32 rank,
                       u32 parts, int64_t b)
{
    const syc_logits l = row_logits(p, b);
    const u32 segments = parts * SYC_BLOCK_WARPS;
    wide_look look = {edge.certain, edge.least, false};
    const syc_scale scale = {syi_key_value(edge.key), edge.inv_t, false};
    u32 kept = 0;
#pragma unroll 1
    for (u32 turn = 0;; turn++) {
        if (threadIdx.x == 0)
            s->n_list = s->n_above = s->n_between = s->n_item = 0;
#pragma unroll
        for (u32 i = threadIdx.x; i < WIDE_BINS; i += SYC_SAMPLE_THREADS)
            s->low[i] = s->high[i] = 0;
        list_segment<T>(s, &g->counts[turn], l, scale, rank, parts, look);
        if (parts > 1)
            gather_wide(s, g, turn, rank, parts, look.ties);
        enum wide where = WIDE_NOT;
        bool again = false;
        if (rank == 0) {
            where = cut_list<T>(s, l, scale, edge.top_p, parts, look, p.args.ties == SY_TIES_ALL, kept);
            again = where != WIDE_FOUND && turn + 1 < sample_policy::EDGE_READS &&
                    look_again(where, syc_key_of(s->last), (u32)s->answer[0], scale, look);
            __syncthreads();
        }
        if (parts > 1 && rank == 0 && threadIdx.x < parts && threadIdx.x > 0) {
            syc_send(&s->verdict[0], threadIdx.x, again ? (look.ties ? 2 : 1) : 0, &g->verdict[turn]);
            syc_send(&s->verdict[1], threadIdx.x,
                     __float_as_uint(look.certain) | (u64)__float_as_uint(look.least) << 32,
                     &g->verdict[turn]);
        } else if (rank != 0) {
            syc_wait_at(&g->verdict[turn]);
            again = s->verdict[0] != 0;
            look = {__uint_as_float((u32)s->verdict[1]), __uint_as_float((u32)(s->verdict[1] >> 32)),
                    s->verdict[0] == 2};
        }
        if (!again && rank != 0)
            return true;
        if (!again && where != WIDE_FOUND)
            return false;
        if (!again)
            break;
    }
    if (look.ties) {
        const u64 wanted = p.args.ties == SY_TIES_ALL ? all_between(s, parts) : s->answer[0];
        __syncthreads();
        keep_ties<T>(s, l, scale, segments, wanted);
        kept = threadIdx.x == 0 ? (u32)wanted : 0;
    }
    draw_wide<T>(p, s, l, scale, edge, parts, p.args.ties == SY_TIES_ALL ? s->last >> 32 << 32 : s->last,
                 kept, b);
    return true;
}
