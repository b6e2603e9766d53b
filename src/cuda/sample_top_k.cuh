/*
 * Rows of sample of which top-k leaves some tokens, each read once. A first group of vectors, from all over the row, gives a floor
 * that a little more than k tokens of the row reach, most likely; these are listed while the rest is read. If there are fewer than
 * k, or more than there is room for, the general steps do the row again. So the guess decides on the time only. Small batches have
 * a cluster of blocks for each row: all of them read the first group and find the same floor, and divide the rest. Where a block has all of
 * its part in registers at once, its largest tokens give a floor that k reach for certain.
 */
#ifndef SYC_SAMPLE_TOP_K_CUH
#define SYC_SAMPLE_TOP_K_CUH

#include "cuda/sample_small_k.cuh"

/* ---- The floor ------------------------------------------------------------------------------------------------------ */

/* How many of the first group of a piece of `groups` reach the floor, so that k of the row do with near certainty. */
static __device__ __forceinline__ u32 sample_target(u32 k, float part)
{
    const float mean = (float)k * part;
    return min(k, (u32)(mean + 4.0f * sqrtf(mean) + 4.0f));
}

/* ---- Reading -------------------------------------------------------------------------------------------------------- */

/* The vectors of a warp: lane `lane` of group g of its piece c is vector at(g, c). Of a piece all blocks of a cluster have group 0,
   and the others by turns. */
struct top_pieces {
    u32 period, first; /* vectors of a piece; the warp's first one */
};

static __device__ __forceinline__ u32 piece_at(const struct top_pieces &pieces, u32 g, u32 c)
{
    return pieces.first + c * pieces.period + g * 32 + (u32)syc_lane();
}

template <sy_type T> static __device__ __forceinline__ void load_pieces(const struct syc_logits &l, const struct syc_vectors &v, const struct top_pieces &pieces, u32 g, uint4 *y)
{
    const u32 nothing = syc_minus_inf_word<T>();
    if (l.allow == NULL && (g + 1) * 32 <= pieces.period && piece_at(pieces, g, SYC_CELLS - 1) - (u32)syc_lane() + 32 <= v.n) {
        const uint4 *const x = vectors_at<T>(l, v, piece_at(pieces, g, 0));
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++)
            y[c] = __ldcg(x + c * pieces.period);
        return;
    }
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++) {
        const u32 at = piece_at(pieces, g, c);
        y[c] = g * 32 + (u32)syc_lane() < pieces.period && at < v.n ? syc_vector_at<T>(l, v.head + at * (T == SY_TYPE_F32 ? 4 : 8)) : make_uint4(nothing, nothing, nothing, nothing);
    }
}

/* The bin of a key: how far its upper half is below that of the first group's largest key, and some bins more, as far as there are
   bins. */
enum { BINS_ABOVE = 64 };

static __device__ __forceinline__ u32 listed_bin(u32 key, u32 first_top)
{
    return min((u32)max((int)(first_top >> 16) + BINS_ABOVE - (int)(key >> 16), 0), (u32)NEAR - 1);
}

/* Keeps a vector, from token `first` on, if one of its tokens reaches a value; `vector` has room for `most`. */
template <sy_type T> static __device__ __forceinline__ void keep_vector(struct top_shared *s, uint4 *vector, u32 most, u32 *n_kept, uint4 x, u32 first, float least)
{
    if (!(word_value<T>(vector_max<T>(x)) >= least))
        return;
    const u32 place = syc_shared_add(n_kept, 1u);
    if (place < most)
        vector[place] = x;
    if (place < TOP_LIST)
        s->hit[place] = first;
}

/* Lists the tokens of the vectors that were kept, and counts them by bins; returns the largest key of a thread's. */
template <sy_type T>
static __device__ __forceinline__ u32 list_kept(struct top_shared *s, const struct syc_logits &l, u32 room, float least, u32 first_top)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    static_assert((int)MANY * 8 <= 32 * (int)SYC_SAMPLE_THREADS, "a bit for each token of a thread");
    const u32 hits = min(s->quick.n_heads, (u32)TOP_LIST), all = min(hits, (u32)MANY) * n;
    const auto bits_at = [&](u32 i) { return T == SY_TYPE_F32 ? ((const u32 *)s->quick.many)[i] : syc_wide<T>(((const u16 *)s->quick.many)[i]); };
    u32 which = 0, top = 0, place = 0;
    const auto put = [&](u32 token, u32 bits) {
        const u32 key = syi_key(bits);
        top = max(top, key);
        if (place < room)
            s->list[place] = syc_rank_of(key, token);
        place++;
        syc_shared_count(&s->quick.near.high[listed_bin(key, first_top)]);
    };
#pragma unroll 4
    for (u32 j = 0; j * SYC_SAMPLE_THREADS < all; j++) {
        const u32 i = j * SYC_SAMPLE_THREADS + threadIdx.x;
        which |= i < all && __uint_as_float(bits_at(i)) >= least ? 1u << j : 0;
    }
    const u32 upto = syc_warp_prefix((u32)__popc(which));
    if (syc_lane() == 31)
        place = syc_shared_add(&s->quick.n_items, upto);
    place = __shfl_sync(SYC_ALL_LANES, place, 31) + upto - (u32)__popc(which);
#pragma unroll 1
    for (; which != 0; which &= which - 1) {
        const u32 i = ((u32)__ffs((int)which) - 1) * SYC_SAMPLE_THREADS + threadIdx.x;
        put(s->hit[i / n] + i % n, bits_at(i));
    }
#pragma unroll 1
    for (u32 i = MANY + threadIdx.x; i < hits; i += SYC_SAMPLE_THREADS) { /* there was no room for these */
        const u32 first = s->hit[i];
        const uint4 x = syc_vector_at<T>(l, first);
        const auto look = [&](u32 j, u32 bits) { which |= __uint_as_float(bits) >= least ? 1u << j : 0; };
        syc_each_of<T>(0, x, look);
        place = syc_shared_add(&s->quick.n_items, (u32)__popc(which));
#pragma unroll 1
        for (; which != 0; which &= which - 1)
            put(first + (u32)__ffs((int)which) - 1, bits_of<T>(x, (u32)__ffs((int)which) - 1));
    }
    return top;
}

/* ---- Ties ----------------------------------------------------------------------------------------------------------- */

/*
 * More tokens reach a floor than there is room for. Where those of the floor's upper half are all equal and k ends among them, the
 * k tokens to keep are listed: all above, and of the others the first by index. Each warp has a run of the row. Returns the largest
 * key; 0 where that is not so, or where tokens in no vector are among the equal ones.
 */
template <sy_type T> SYC_COLD u32 list_ties(struct top_shared *shared, struct syc_logits l, u32 floor, u32 k)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    struct quick_shared *const s = &shared->quick;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 period = (v.n + TOP_PIECES - 1) / TOP_PIECES, groups = (period + 31) / 32, half = floor >> 16;
    const struct top_pieces pieces = {period, (u32)syc_warp() * SYC_CELLS * period};
    u32 ties = 0, low = ~0u, high = 0, top = 0;
    bool alone = false;
    __syncthreads();
    if (threadIdx.x == 0)
        s->n_items = 0;
    __syncthreads();
    const auto look = [&](u32 i, u32 bits) {
        const u32 key = syi_key(bits);
        top = max(top, key);
        if (key >> 16 > half) {
            const u32 place = syc_shared_add(&s->n_items, 1u);
            if (place < TOP_LIST)
                shared->list[place] = syc_rank_of(key, i);
        } else if (key >> 16 == half) {
            ties++;
            low = min(low, key);
            high = max(high, key);
        }
    };
#pragma unroll 1
    for (u32 g = 0; g < groups; g++) {
        uint4 y[SYC_CELLS];
        load_pieces<T>(l, v, pieces, g, y);
#pragma unroll 1
        for (u32 c = 0; c < SYC_CELLS; c++) {
            const uint4 x = c == 0 ? y[0] : c == 1 ? y[1] : c == 2 ? y[2] : y[3];
            if (syc_word_key<T>(vector_max<T>(x)) >= floor)
                syc_each_of<T>(v.head + piece_at(pieces, g, c) * n, x, look);
        }
    }
    const u32 in_vectors = ties;
    syc_each_rest<T>(l, look);
    alone = ties != in_vectors;
    ties = __reduce_add_sync(SYC_ALL_LANES, in_vectors);
    low = __reduce_min_sync(SYC_ALL_LANES, low);
    high = __reduce_max_sync(SYC_ALL_LANES, high);
    if (syc_lane() == 0) {
        s->part[0][syc_warp()] = ties;
        s->part[1][syc_warp()] = ~low;
        s->part[2][syc_warp()] = high;
    }
    top = __reduce_max_sync(SYC_ALL_LANES, top);
    if (syc_lane() == 0)
        s->part[3][syc_warp()] = top;
    alone = __syncthreads_or(alone) != 0;
    const u32 above = s->n_items, wanted = k - above, key = of_warps(s->part[2]);
    u32 before = 0, all = 0;
    for (u32 w = 0; w < SYC_SAMPLE_THREADS / 32; w++) {
        before += w < (u32)syc_warp() ? s->part[0][w] : 0;
        all += s->part[0][w];
    }
    if (alone || above >= k || all < wanted || ~of_warps(s->part[1]) != key)
        return 0;
#pragma unroll 1
    for (u32 at = 0; at < SYC_CELLS * groups && before < wanted; at++) {
        const u32 c = at / groups, g = at - c * groups, place = piece_at(pieces, g, c), first = v.head + place * n;
        u32 which = 0;
        const auto tie = [&](u32 j, u32 bits) { which |= syi_key(bits) == key ? 1u << j : 0; };
        if (g * 32 + (u32)syc_lane() < period && place < v.n)
            syc_each_of<T>(0, syc_vector_at<T>(l, first), tie);
        const u32 upto = syc_warp_prefix((u32)__popc(which));
        for (u32 t = before + upto - (u32)__popc(which); which != 0 && t < wanted; which &= which - 1, t++)
            shared->list[above + t] = syc_rank_of(key, first + (u32)__ffs((int)which) - 1);
        before += __shfl_sync(SYC_ALL_LANES, upto, 31);
    }
    syc_change([&] { s->n_items = k; });
    return of_warps(s->part[3]);
}

/* More tokens reach a guessed floor than there is room for: counts by bins give the right one. Lists the tokens that reach it;
   returns the largest key, 0 where these are too many, too. */
template <sy_type T> SYC_COLD u32 list_again(struct top_shared *shared, struct syc_logits l, u32 floor, u32 first_top, u32 k, bool all_ties)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    struct quick_shared *const s = &shared->quick;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 period = (v.n + TOP_PIECES - 1) / TOP_PIECES, groups = (period + 31) / 32;
    const struct top_pieces pieces = {period, (u32)syc_warp() * SYC_CELLS * period};
    float least = syi_key_value(floor);
    u32 run = 0, in_run = 0, top = 0;
    bool lists = false;
    const auto one = [&](u32 i, u32 bits) {
        if (!(__uint_as_float(bits) >= least))
            return;
        const u32 key = syi_key(bits), bin = listed_bin(key, first_top);
        top = max(top, key);
        if (lists) {
            const u32 place = syc_shared_add(&s->n_items, 1u);
            if (place < TOP_LIST)
                shared->list[place] = syc_rank_of(key, i);
            return;
        }
        if (bin != run && in_run != 0)
            syc_shared_add(&s->near.high[run], in_run);
        in_run = bin == run ? in_run + 1 : 1;
        run = bin;
    };
#pragma unroll 1
    for (;;) {
        __syncthreads();
        if (!lists)
            s->near.high[threadIdx.x] = 0;
        if (threadIdx.x == 0)
            s->n_items = 0;
        __syncthreads();
#pragma unroll 1
        for (u32 g = 0; g < groups; g++) {
            uint4 y[SYC_CELLS];
            load_pieces<T>(l, v, pieces, g, y);
#pragma unroll 1
            for (u32 c = 0; c < SYC_CELLS; c++) {
                const uint4 x = c == 0 ? y[0] : c == 1 ? y[1] : c == 2 ? y[2] : y[3];
                if (word_value<T>(vector_max<T>(x)) >= least)
                    syc_each_of<T>(v.head + piece_at(pieces, g, c) * n, x, one);
            }
        }
        syc_each_rest<T>(l, one);
        if (lists)
            return quick_max(top, s->part[0]);
        if (in_run != 0)
            syc_shared_add(&s->near.high[run], in_run);
        const u32 last = count_bin(s, s->near.high, k);
        if (last == ~0u)
            return 0;
        if (last < NEAR - 1)
            floor = max(floor, ((first_top >> 16) + BINS_ABOVE - last) << 16);
        if (s->rough[1] > TOP_LIST)
            return all_ties ? 0 : list_ties<T>(shared, l, floor, k);
        least = syi_key_value(floor);
        lists = true;
    }
}

/* ---- The end: many tokens ------------------------------------------------------------------------------------------- */

/* Item i of those that the blocks have listed, each in its part of the list. */
static __device__ __forceinline__ u64 listed_item(const struct top_shared *s, u32 blocks, u32 i)
{
    u32 r = 0;
    for (; r + 1 < blocks && i >= (u32)s->count[r]; r++)
        i -= (u32)s->count[r];
    return s->list[r * (TOP_LIST / blocks) + i];
}

/* A draw from items by their weights, in index order: bins of tokens, then those of one bin, until that is one token. */
template <class In>
static __device__ __forceinline__ void draw_by_bins(struct quick_shared *s, const struct syc_scale &scale, u32 vocab, const u64 *own, In in)
{
    u32 base = 0, span = 32 - (u32)__clz((int)(vocab - 1)); /* bits of a token that are not known */
    u64 target = 0;
    bool first = true;
#pragma unroll 1
    do {
        const u32 shift = span > 9 ? span - 9 : 0;
        static_assert((int)NEAR == 1 << 9 && (int)NEAR == (int)SYC_SAMPLE_THREADS, "a bin for each thread");
        s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
        __syncthreads();
#pragma unroll
        for (u32 c = 0; c < TOP_EACH; c++) {
            const u32 past = syc_token_of(own[c]) - base;
            if (in(c) && (u64)past >> span == 0)
                syc_shared_add(&s->near.low[past >> shift], &s->near.high[past >> shift], syc_weight_of(scale, syc_key_of(own[c])));
        }
        __syncthreads();
        const u64 here = (u64)s->near.high[threadIdx.x] << 32 | s->near.low[threadIdx.x];
        u64 total;
        const u64 before = syc_block_before(here, s->wide, &total);
        if (first) {
            target = syi_share_of(s->uniform, total);
            if (threadIdx.x == 0)
                s->total = total;
            if (total == 0)
                break; /* the first of the order, which the caller has put */
        }
        if (before <= target && target < before + here) {
            s->bin = threadIdx.x;
            s->rough[0] = target - before;
        }
        __syncthreads();
        base += s->bin << shift;
        target = s->rough[0];
        span = shift;
        first = false;
    } while (span > 0);
    __syncthreads();
    if (first)
        return;
#pragma unroll
    for (u32 c = 0; c < TOP_EACH; c++)
        if (in(c) && syc_token_of(own[c]) == base) {
            s->token = base;
            s->key = syc_key_of(own[c]);
        }
}

/* As finish_list, for as many items as TOP_LIST: those of n that are in bins up to `last`. Their ranks come from a histogram of
   keys, and from comparisons among those of a bin; where these would be many, the items are sorted. */
SYC_COLD u32 finish_many(const struct syi_sample_plan &p, struct top_shared *all_shared, u32 blocks, struct syc_scale scale, u32 first_top, u32 last, u32 top, u32 n, u32 k, int64_t b)
{
    struct quick_shared *const s = &all_shared->quick;
    u64 *const list = all_shared->list;
    const struct syc_params a = s->params;
    const bool draws = !a.greedy && p.noise == SY_NOISE_CDF;
    u64 own[TOP_EACH] = {}, total;
    u32 rank[TOP_EACH], low = ~0u;
    const auto is_item = [&](u32 c) { return threadIdx.x + c * SYC_SAMPLE_THREADS < n; };
    s->near.low[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        s->n_heads = 0;
#pragma unroll
    for (u32 c = 0; c < TOP_EACH; c++) {
        own[c] = is_item(c) ? listed_item(all_shared, blocks, threadIdx.x + c * SYC_SAMPLE_THREADS) : 0;
        if (is_item(c) && listed_bin(syc_key_of(own[c]), first_top) <= last)
            low = min(low, syc_key_of(own[c]));
        else
            own[c] = 0;
    }
    low = quick_max(~low, s->part[0]); /* and all have read the list */
    low = ~low;
#pragma unroll
    for (u32 c = 0; c < TOP_EACH; c++)
        if (own[c] != 0)
            list[syc_shared_add(&s->n_heads, 1u)] = own[c];
    __syncthreads();
    n = s->n_heads;
    const u32 bits = 32 - (u32)__clz((int)(top - low)), shift = bits > 9 ? bits - 9 : 0;
    const auto bin_at = [&](u32 c) { return (top - syc_key_of(own[c])) >> shift; };
#pragma unroll
    for (u32 c = 0; c < TOP_EACH; c++) {
        own[c] = is_item(c) ? list[threadIdx.x + c * SYC_SAMPLE_THREADS] : 0;
        rank[c] = is_item(c) ? syc_shared_add(&s->near.low[bin_at(c)], 1u) : 0;
    }
    __syncthreads();
    s->near.high[threadIdx.x] = (u32)syc_block_before(s->near.low[threadIdx.x], s->wide, &total);
    if (__syncthreads_or(s->near.low[threadIdx.x] > TOP_CROWD) != 0 && n <= TOP_SORTED) {
        syc_sort_few(list, (int)n);
#pragma unroll
        for (u32 c = 0; c < TOP_EACH; c++) {
            rank[c] = threadIdx.x + c * SYC_SAMPLE_THREADS;
            own[c] = is_item(c) ? list[rank[c]] : 0;
        }
        __syncthreads();
    } else {
#pragma unroll
        for (u32 c = 0; c < TOP_EACH; c++)
            if (is_item(c))
                list[s->near.high[bin_at(c)] + rank[c]] = own[c];
        __syncthreads();
#pragma unroll
        for (u32 c = 0; c < TOP_EACH; c++)
            if (is_item(c)) {
                const u32 begin = s->near.high[bin_at(c)], end = begin + s->near.low[bin_at(c)];
                rank[c] = begin;
#pragma unroll 4
                for (u32 j = begin; j < end; j++)
                    rank[c] += list[j] > own[c] ? 1u : 0u;
            }
    }
    u32 kept = min(k, n);
    const auto in = [&](u32 c) { return is_item(c) && rank[c] < kept; };
    const auto count_in = [&](auto passes) {
        u32 count = 0;
#pragma unroll
        for (u32 c = 0; c < TOP_EACH; c++)
            count += in(c) && passes(c) ? 1u : 0u;
        return (u32)syc_block_sum(count, s->wide);
    };
    const auto keep_ties = [&](u32 all) { /* what equals the last that stays */
        if (p.args.ties != SY_TIES_ALL || kept == all)
            return;
#pragma unroll
        for (u32 c = 0; c < TOP_EACH; c++)
            if (is_item(c) && rank[c] == kept - 1)
                s->bin = syc_key_of(own[c]);
        __syncthreads();
        kept = all;
        kept = count_in([&](u32 c) { return syc_key_of(own[c]) >= s->bin; });
    };
    keep_ties(n);
    if (a.top_p < 1.0f) {
        const u32 all = kept;
        __syncthreads();
#pragma unroll
        for (u32 c = 0; c < TOP_EACH; c++)
            if (in(c))
                list[rank[c]] = syc_weight_of(scale, syc_key_of(own[c]));
        __syncthreads();
        const u32 first = threadIdx.x * TOP_EACH, end = min(first + TOP_EACH, kept);
        u64 sum = 0;
        for (u32 j = first; j < end; j++)
            sum += list[j];
        u64 upto = syc_block_before(sum, s->wide, &total);
        const u64 target = syi_mass_target(a.top_p, scale.probs_in ? SYI_WEIGHT_ONE : total);
        if (upto < target && target <= upto + sum) {
            u32 j = first;
            while ((upto += list[j]) < target)
                j++;
            s->bin = j + 1;
        }
        __syncthreads();
        if (total >= target)
            kept = s->bin;
        __syncthreads();
        keep_ties(all);
    }
    if (a.min_p > 0.0f) {
        const float least = scale.probs_in ? __fmul_rn(a.min_p, scale.max > 0.0f ? scale.max : 0.0f) : a.min_p;
        kept = count_in([&](u32 c) {
            return a.min_p >= 1.0f ? rank[c] == 0 : syc_key_of(own[c]) == top || syc_e_of(scale, syc_key_of(own[c])) >= least;
        });
    }
#pragma unroll
    for (u32 c = 0; c < TOP_EACH; c++)
        if (is_item(c) && rank[c] == 0) {
            s->token = syc_token_of(own[c]);
            s->key = syc_key_of(own[c]);
        }
    __syncthreads();
    if (draws)
        draw_by_bins(s, scale, (u32)p.vocab, own, in);
    else if (p.logprob.data != NULL) {
        u64 sum = 0;
#pragma unroll
        for (u32 c = 0; c < TOP_EACH; c++)
            sum += in(c) ? syc_weight_of(scale, syc_key_of(own[c])) : 0;
        sum = syc_block_sum(sum, s->wide);
        if (threadIdx.x == 0)
            s->total = sum;
    }
    if (!a.greedy && !draws) {
        const bool race = p.noise == SY_NOISE_RACE;
        struct noise_source from = {race ? NULL : syc_row(p.q, b), race ? 0.0f : p.args.eps, a.noise, ~0u, {0, 0, 0, 0}};
        u32 best = 0;
        u64 item = 0;
#pragma unroll 1
        for (u32 c = 0; c < TOP_EACH; c++) {
            u64 one = own[0];
            u32 place = rank[0];
#pragma unroll
            for (u32 i = 1; i < TOP_EACH; i++) {
                one = c == i ? own[i] : one;
                place = c == i ? rank[i] : place;
            }
            const float e = is_item(c) && place < kept ? syc_e_of(scale, syc_key_of(one)) : 0.0f;
            if (!(e > 0.0f))
                continue;
            const float q = noise_at(from, !race && p.args.q_order == SY_Q_LIST ? place : syc_token_of(one));
            const u32 score = __float_as_uint(syi_score(e, q, from.eps)) + 1;
            if (score > best || (score == best && one > item)) {
                best = score;
                item = one;
            }
        }
        take_best(s, best, item);
    }
    __syncthreads();
    return kept;
}

/*
 * The same where nothing but k cuts the tokens, and one is drawn by weight: all in bins before `last` stay, and of that one, which has `there` tokens, the first `wanted`.
 * Weights are summed by bins of tokens, and those of one bin are compared. Writes the results; false: nothing is written, since a bin has too many, or there is no weight.
 */
SYC_COLD bool draw_many(const struct syi_sample_plan &p, struct top_shared *shared, u32 blocks, struct syc_scale scale, u32 first_top, u32 last, u32 n, u32 k, u32 flags, int64_t b)
{
    struct quick_shared *const s = &shared->quick;
    const u32 span = 32 - (u32)__clz((int)((u32)p.vocab - 1)), shift = span > 9 ? span - 9 : 0;
    const u32 kept = min(k, n), there = s->near.high[last], wanted = kept - ((u32)s->rough[1] - there);
    static_assert((int)NEAR == 1 << 9 && (int)NEAR == (int)SYC_SAMPLE_THREADS, "a bin for each thread");
    const auto add = [&](u64 item) {
        const u32 bin = syc_token_of(item) >> shift;
        syc_shared_add(&s->near.low[bin], &s->near.high[bin], syc_weight_of(scale, syc_key_of(item)));
    };
    __syncthreads();
    if (there > QUICK)
        return false;
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        s->n_items = shared->n_left = 0;
    __syncthreads();
#pragma unroll 2
    for (u32 i = threadIdx.x; i < n; i += SYC_SAMPLE_THREADS) {
        const u64 item = listed_item(shared, blocks, i);
        const u32 bin = listed_bin(syc_key_of(item), first_top);
        if (bin < last)
            add(item);
        else if (bin == last)
            s->item[syc_shared_add(&s->n_items, 1u)] = item;
    }
    __syncthreads();
    const u32 bits = team_bits(there), own = threadIdx.x >> bits, in_team = threadIdx.x & ((1u << bits) - 1);
    const u64 item = own < there ? s->item[own] : 0;
    const u32 rank = team_sum<u32>(there, bits, own, in_team, [&](u32 j) { return s->item[j] > item ? 1u : 0u; });
    if (own < there && in_team == 0 && rank < wanted) {
        add(item);
        if (rank + 1 == wanted)
            s->rough[0] = item;
    }
    __syncthreads();
    u64 total;
    const u64 here = (u64)s->near.high[threadIdx.x] << 32 | s->near.low[threadIdx.x], before = syc_block_before(here, s->wide, &total), target = syi_share_of(s->uniform, total);
    if (total == 0)
        return false;
    if (before <= target && target < before + here) {
        s->bin = threadIdx.x;
        s->total = target - before;
    }
    __syncthreads();
    const u64 rest = s->total, least = s->rough[0];
    const u32 chosen = s->bin;
#pragma unroll 2
    for (u32 i = threadIdx.x; i < n; i += SYC_SAMPLE_THREADS) {
        const u64 one = listed_item(shared, blocks, i);
        if (one < least || syc_token_of(one) >> shift != chosen)
            continue;
        const u32 place = syc_shared_add(&shared->n_left, 1u);
        if (place < QUICK) {
            s->sorted[place] = one;
            s->weight[place] = syc_weight_of(scale, syc_key_of(one));
        }
    }
    __syncthreads();
    const u32 left = shared->n_left;
    if (left > QUICK)
        return false;
    if (threadIdx.x < left) {
        const u64 one = s->sorted[threadIdx.x];
        u64 lower = 0;
#pragma unroll 4
        for (u32 j = 0; j < left; j++)
            lower += (u32)s->sorted[j] > (u32)one ? s->weight[j] : 0;
        if (lower <= rest && rest < lower + s->weight[threadIdx.x])
            put_results(p, b, (int64_t)syc_token_of(one), flags, kept, p.logprob.data == NULL ? 0.0f : log_share(scale, syc_key_of(one), total));
    }
    return true;
}

/* ---- Few tokens, by one block --------------------------------------------------------------------------------------- */

/* Lists the tokens of the vectors that were kept, and the largest key in shared->top. */
template <sy_type T> static __device__ __forceinline__ void list_reaching(struct top_shared *shared, float least)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    struct quick_shared *const s = &shared->quick;
    const u32 all = shared->n_left * n;
    u32 top = 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < all; i += SYC_SAMPLE_THREADS) {
        const u32 bits = T == SY_TYPE_F32 ? ((const u32 *)s->hit)[i] : syc_wide<T>(((const u16 *)s->hit)[i]);
        if (__uint_as_float(bits) >= least) {
            const u32 place = syc_shared_add(&s->n_items, 1u), key = syi_key(bits);
            top = max(top, key);
            if (place < QUICK)
                s->item[place] = syc_rank_of(key, shared->hit[i / n] + i % n);
        }
    }
    if (top != 0)
        atomicMax(&shared->top, top);
}

/* The row where k is at most STREAM_MOST. Half of it, from all over it, gives a floor that k of its tokens reach for certain; what
   reaches it in the rest is kept while it is read. y: the first group. Of several blocks each has every so many groups, and a floor that its share of k tokens
   reaches; the lowest counts. */
template <sy_type T, bool plain>
static __device__ __forceinline__ enum quick stream_row(const struct syi_sample_plan &p, struct top_shared *shared, const struct syc_logits &row, const struct syc_vectors &v, uint4 *y, u32 k, u32 rank,
                                                        u32 blocks, int64_t b, struct read_ahead ahead)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    struct quick_shared *const s = &shared->quick;
    const struct syc_logits l = row;
    const u32 nothing = syc_minus_inf_word<T>(), step = stream_step(v.n), groups = step / SYC_SAMPLE_THREADS, part = max(groups / (2 * blocks), 1u);
    const u32 first_at = rank * SYC_SAMPLE_THREADS, apart = blocks * SYC_SAMPLE_THREADS; /* vectors: of this block, and from group to group */
    const bool wanted = !plain && p.row_flags.data != NULL;
    u32 most = syc_minus_inf_word<T>(), flags = 0;
    if (rank == 0 && threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
#pragma unroll 1
    for (u32 g = 0;;) {
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            most = fold<T>(most, y[c]);
            if (wanted)
                flags |= flags_of<T>(y[c]);
        }
        if (++g * apart + first_at < step) /* the last of these arrives while the floor is found */
            load_group<T>(l, v, first_at + g * apart + threadIdx.x, step, y);
        if (g >= part)
            break;
    }
    const u32 own = syc_word_key<T>(most), warp_own = __reduce_max_sync(SYC_ALL_LANES, own);
    if (syc_lane() == 0)
        s->part[0][syc_warp()] = warp_own;
    __syncthreads();
    u32 floor = guess_floor(s, &own, own, of_warps(s->part[0]), (k + blocks - 1) / blocks, true);
    if (blocks > 1)
        floor = lowest_floor(shared, rank, blocks, floor);
    const float least = syi_key_value(floor);
    if (own >= floor)
        s->head[syc_shared_add(&s->n_heads, 1u)] = (u16)threadIdx.x;
    __syncthreads();
    const u32 heads = s->n_heads;
    if (heads > k + 128 && blocks == 1)
        return QUICK_NO; /* ties */
#pragma unroll 1
    for (u32 item = threadIdx.x; item < heads * part * SYC_CELLS; item += 2 * SYC_SAMPLE_THREADS) {
        uint4 x[2];
        u32 first[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) { /* two on their way at once */
            const u32 one = item + i * SYC_SAMPLE_THREADS, turn = one / heads;
            const u32 at = first_at + turn / SYC_CELLS * apart + turn % SYC_CELLS * step + s->head[one - turn * heads];
            const bool in = turn < part * SYC_CELLS && at < v.n;
            first[i] = v.head + at * n;
            x[i] = in ? syc_vector_at<T>(l, first[i]) : make_uint4(nothing, nothing, nothing, nothing);
        }
        keep_vector<T>(shared, s->hit, QUICK, &shared->n_left, x[0], first[0], least);
        keep_vector<T>(shared, s->hit, QUICK, &shared->n_left, x[1], first[1], least);
    }
    if (rank == 0)
        syc_each_rest<T>(l, [&](u32 i, u32 bits) {
            flags |= syi_key_flags(bits);
            if (__uint_as_float(bits) >= least) {
                const u32 place = syc_shared_add(&s->n_items, 1u);
                if (place < QUICK)
                    s->item[place] = syc_rank_of(syi_key(bits), i);
                atomicMax(&shared->top, syi_key(bits));
            }
        });
    u32 at = first_at + part * apart + threadIdx.x;
    const auto look = [&](uint4 x, u32 c) {
        keep_vector<T>(shared, s->hit, QUICK, &shared->n_left, x, v.head + (at + c * step) * n, least);
        if (wanted)
            flags |= flags_of<T>(x);
    };
    const uint4 *next = vectors_at<T>(l, v, at + apart);
#pragma unroll 1
    for (; at - threadIdx.x + apart < step && is_whole(l, v, at + apart, step); at += apart, next += apart) {
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
        at += apart;
        if (at < step)
            load_group<T>(l, v, at, step, y);
    }
    ask_ahead(p, b, ahead);
    if (wanted) {
        flags = any_flags(flags);
        if (syc_lane() == 0)
            s->part[1][syc_warp()] = flags;
    }
    __syncthreads();
    if (wanted)
        flags = any_flags(s->part[1][syc_lane() % SYC_BLOCK_WARPS]); /* before others use it */
    if (shared->n_left <= QUICK)
        list_reaching<T>(shared, least);
    else if (blocks == 1)
        return QUICK_NO;
    __syncthreads();
    if (blocks > 1 && !gather_list(shared, rank, blocks, flags, shared->n_left <= QUICK))
        return rank == 0 ? QUICK_NO : QUICK_DONE;
    const u32 top = shared->top;
    if (s->n_items > QUICK || s->n_items == 0)
        return QUICK_NO;
    const struct syc_scale scale = {syi_key_value(top), s->params.inv_t, p.args.probs_in};
    for (u32 r = 1; r < blocks; r++)
        flags |= (u32)(shared->count[r] >> 32);
    const u32 kept = finish_list<plain>(p, s, scale, top, k, 0, 0, b, true);
    if (threadIdx.x == 0)
        put_results(p, b, (int64_t)s->token, flags, kept, p.logprob.data == NULL ? 0.0f : s->params.cold ? 0.0f : log_share(scale, s->key, s->total));
    return QUICK_DONE;
}

/* ---- The row -------------------------------------------------------------------------------------------------------- */

/* The row once the vectors that reach a floor are kept, and the cluster is ready; of several blocks the first one finishes it. `first_top`: where bins begin; `crowded`: more tokens reach the
   floor than can be listed, most likely, and none is kept. */
template <sy_type T>
SYC_COLD enum quick finish_kept(const struct syi_sample_plan &p, struct top_shared *shared, struct syc_logits l, u32 k, u32 floor, u32 first_top, u32 flags, bool crowded, u32 rank, u32 blocks, int64_t b)
{
    struct quick_shared *const s = &shared->quick;
    const u32 room = TOP_LIST / blocks;
    const float least = syi_key_value(floor);
    const bool wanted = p.row_flags.data != NULL;
    u32 items = k, top = 0;
    bool fits = false;
    if (!crowded) {
        __syncthreads();
        const bool kept_all = s->n_heads <= TOP_LIST;
        top = list_kept<T>(shared, l, room, least, first_top);
        if (rank == 0)
            syc_each_rest<T>(l, [&](u32 i, u32 bits) {
                flags |= syi_key_flags(bits);
                if (__uint_as_float(bits) >= least) {
                    const u32 place = syc_shared_add(&s->n_items, 1u);
                    top = max(top, syi_key(bits));
                    if (place < room)
                        shared->list[place] = syc_rank_of(syi_key(bits), i);
                    syc_shared_count(&s->near.high[listed_bin(syi_key(bits), first_top)]);
                }
            });
        top = __reduce_max_sync(SYC_ALL_LANES, top);
        flags = wanted ? any_flags(flags) : 0;
        if (syc_lane() == 0) {
            s->part[0][syc_warp()] = top;
            s->part[1][syc_warp()] = flags;
        }
        __syncthreads();
        top = of_warps(s->part[0]);
        flags = wanted ? any_flags(s->part[1][syc_lane() % SYC_BLOCK_WARPS]) : 0;
        items = kept_all ? s->n_items : room + 1;
        fits = items <= room;
        if (blocks > 1) {
            if (rank != 0) {
                if (threadIdx.x == 0) {
                    syc_send(&shared->count[rank], 0, items | (u64)flags << 32, &shared->counts_gate);
                    syc_send(&shared->largest[rank], 0, top, &shared->counts_gate);
                }
                for (u32 i = threadIdx.x; i < min(items, room); i += SYC_SAMPLE_THREADS)
                    syc_send(&shared->list[rank * room + i], 0, shared->list[i], &shared->items_gate);
                return QUICK_DONE;
            }
            syc_wait_at(&shared->counts_gate);
            u32 far = 0;
            for (u32 r = 1; r < blocks; r++) {
                const u32 there = (u32)shared->count[r];
                flags |= (u32)(shared->count[r] >> 32);
                top = max(top, (u32)shared->largest[r]);
                fits = fits && there <= room;
                far += min(there, room);
            }
            if (threadIdx.x == 0) {
                shared->count[0] = items;
                syc_expect_now(&shared->items_gate, far * 8);
            }
            __syncthreads();
            syc_wait_at(&shared->items_gate);
            for (u32 i = items + threadIdx.x; i < items + far && fits; i += SYC_SAMPLE_THREADS)
                syc_shared_count(&s->near.high[listed_bin(syc_key_of(listed_item(shared, blocks, i)), first_top)]);
            items += far;
        }
    }
    if (items == 0 || (items < k && floor > (u32)LOWEST_HALF << 16))
        return QUICK_NO;
    if (!fits) {
        top = list_again<T>(shared, l, floor, first_top, k, p.args.ties == SY_TIES_ALL);
        items = s->n_items;
        blocks = 1; /* the list is in one part */
        if (top == 0)
            return QUICK_NO;
    }
    const struct syc_params &a = s->params;
    const struct syc_scale scale = {syi_key_value(top), a.inv_t, p.args.probs_in};
    u32 kept;
    const u32 last = fits ? count_bin(s, s->near.high, min(k, items)) : NEAR - 1; /* later bins are ruled out */
    if (fits && !a.greedy && p.noise == SY_NOISE_CDF && a.top_p >= 1.0f && a.min_p == 0.0f && p.args.ties != SY_TIES_ALL && s->more == NULL &&
        draw_many(p, shared, blocks, scale, first_top, last, items, k, flags, b))
        return QUICK_DONE;
    if (k <= TOP_SHORT) {
        syc_change([&] { shared->n_left = 0; });
        for (u32 i = threadIdx.x; i < items; i += SYC_SAMPLE_THREADS) {
            const u64 item = listed_item(shared, blocks, i);
            if (listed_bin(syc_key_of(item), first_top) <= last) {
                const u32 place = syc_shared_add(&shared->n_left, 1u);
                if (place < TOP_SHORT)
                    s->item[place] = item;
            }
        }
        __syncthreads();
    }
    if (k <= TOP_SHORT && shared->n_left <= TOP_SHORT) {
        syc_change([&] { s->n_items = shared->n_left; });
        kept = finish_list(p, s, scale, top, k, 0, 0, b, true);
    } else
        kept = finish_many(p, shared, blocks, scale, first_top, last, top, items, k, b);
    if (threadIdx.x == 0)
        put_results(p, b, (int64_t)s->token, flags, kept, p.logprob.data == NULL ? 0.0f : a.cold ? 0.0f : log_share(scale, s->key, s->total));
    return QUICK_DONE;
}

/* The row by a guessed floor, once it is begun. */
template <sy_type T> SYC_COLD enum quick guessed_row(const struct syi_sample_plan &p, struct top_shared *shared, u32 rank, u32 blocks, int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    struct quick_shared *const s = &shared->quick;
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const u32 period = (v.n + TOP_PIECES - 1) / TOP_PIECES;
    const struct top_pieces pieces = {period, (u32)syc_warp() * SYC_CELLS * period};
    const bool wanted = p.row_flags.data != NULL;
    const u32 k = top_k_of(p, s->params);
    u32 cell[SYC_CELLS], flags = 0;
    uint4 y[SYC_CELLS];
    load_pieces<T>(l, v, pieces, 0, y);
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        cell[c] = syc_word_key<T>(vector_max<T>(y[c]));
    const u32 own = max(max(cell[0], cell[1]), max(cell[2], cell[3])), warp_own = __reduce_max_sync(SYC_ALL_LANES, own);
    if (syc_lane() == 0)
        s->part[0][syc_warp()] = warp_own;
    __syncthreads();
    const u32 first_top = of_warps(s->part[0]), target = sample_target(k, (float)min(period, 32u) / (float)period), floor = guess_floor(s, cell, own, first_top, target, target <= TOP_BY_THREADS);
    const float least = syi_key_value(floor);
    const bool crowded = !wanted && s->bin != ~0u && s->rough[1] > 4 * target + 64; /* ties, most likely: more than can be listed */
    if (rank == 0 && threadIdx.x == SYC_SAMPLE_THREADS - 1) /* while vectors are on their way */
        make_uniform(p, s);
    if (crowded && rank != 0)
        return QUICK_DONE;
#pragma unroll 1
    for (u32 g = 0; !crowded;) {
        const u32 next = g == 0 ? 1 + rank : g + blocks, turns = g == 0 && blocks > 1 ? blocks : 1; /* of group 0 the pieces by turns */
        const bool more = next * 32 < period, whole = more && l.allow == NULL && (next + 1) * 32 <= period && piece_at(pieces, next, SYC_CELLS - 1) - (u32)syc_lane() + 32 <= v.n;
        const uint4 *const x = vectors_at<T>(l, v, piece_at(pieces, next, 0));
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            const uint4 now = y[c];
            if (whole)
                y[c] = __ldcg(x + c * period);
            if (wanted)
                flags |= flags_of<T>(now);
            if (turns == 1 || c % turns == rank)
                keep_vector<T>(shared, s->many, MANY, &s->n_heads, now, v.head + piece_at(pieces, g, c) * n, least);
        }
        if (!more)
            break;
        if (!whole)
            load_pieces<T>(l, v, pieces, next, y);
        g = next;
    }
    if (blocks > 1 && !crowded)
        syc_cluster_ready();
    return finish_kept<T>(p, shared, l, k, floor, first_top, flags, crowded, rank, blocks, b);
}

/* The row where y, two groups, is all that a block has of it: then k tokens reach the floor for certain, since as many cells do. */
template <sy_type T>
static __device__ __forceinline__ enum quick held_row(const struct syi_sample_plan &p, struct top_shared *shared, const struct syc_logits &l, const struct syc_vectors &v, uint4 *y, u32 k, u32 rank,
                                                      u32 blocks, int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    struct quick_shared *const s = &shared->quick;
    const u32 step = stream_step(v.n), first_at = rank * SYC_SAMPLE_THREADS, apart = blocks * SYC_SAMPLE_THREADS;
    u32 cell[SYC_CELLS];
    if (rank == 0 && threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
    const u32 flags = stream_cells<T>(l, v, y, first_at, apart, p.row_flags.data != NULL, cell), groups = first_at + apart < step ? 2 : 1;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        cell[c] = syc_word_key<T>(cell[c]);
    const u32 own = max(max(cell[0], cell[1]), max(cell[2], cell[3])), warp_own = __reduce_max_sync(SYC_ALL_LANES, own);
    if (syc_lane() == 0)
        s->part[0][syc_warp()] = warp_own;
    __syncthreads();
    const u32 first_top = of_warps(s->part[0]);
    u32 floor = guess_floor(s, cell, own, first_top, (k + blocks - 1) / blocks, false);
    if (blocks > 1)
        floor = lowest_floor(shared, rank, blocks, floor);
    const float least = syi_key_value(floor);
#pragma unroll
    for (u32 c = 0; c < 2 * SYC_CELLS; c++)
        if (c / SYC_CELLS < groups)
            keep_vector<T>(shared, s->many, MANY, &s->n_heads, y[c], v.head + (first_at + c / SYC_CELLS * apart + c % SYC_CELLS * step + threadIdx.x) * n, least);
    return finish_kept<T>(p, shared, l, k, floor, first_top, flags, false, rank, blocks, b);
}

/* As quick_row, by block `rank` of `blocks`; `few` rows; `plain`: see is_plain_call. */
template <sy_type T, bool few, bool plain>
static __device__ __forceinline__ enum quick top_k_row(const struct syi_sample_plan &p, struct top_shared *shared, u32 rank, u32 blocks, int64_t b, const struct syc_gate *gate, struct read_ahead ahead)
{
    struct quick_shared *const s = &shared->quick;
    const u32 closed = load_closed(gate);
    const struct syc_logits l = {syc_row(p.logits, b), !plain && p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const struct syc_vectors v = syc_vectors_of<T>(l);
    uint4 y[few ? 2 * SYC_CELLS : SYC_CELLS]; /* on their way together with the parameters */
    if constexpr (few)
        load_two<T>(l, v, rank * SYC_SAMPLE_THREADS + threadIdx.x, blocks * SYC_SAMPLE_THREADS, y);
    else
        load_group<T>(l, v, rank * SYC_SAMPLE_THREADS + threadIdx.x, stream_step(v.n), y);
    if (blocks > 1) {
        if (threadIdx.x == 0) {
            syc_expect(&shared->floors_gate, 8 * (blocks - 1));
            syc_expect(&shared->counts_gate, rank == 0 ? 16 * (blocks - 1) : 0);
            syc_expect_later(&shared->items_gate);
        }
        syc_cluster_begin();
    }
    if (!begin_row(p, shared, b, closed))
        return QUICK_CLOSED;
    const u32 k = top_k_of(p, s->params);
    if (k == 0 || k > TOP_LIST || v.n == 0)
        return rank == 0 ? QUICK_NO : QUICK_DONE;
    if (k <= STREAM_MOST) {
        enum quick quick;
        if constexpr (few)
            quick = small_k_row<T, plain>(p, shared, l, v, y, k, rank, blocks, b);
        else
            quick = stream_row<T, plain>(p, shared, l, v, y, k, rank, blocks, b, ahead);
        if (quick == QUICK_DONE)
            return QUICK_DONE;
        blocks = 1; /* the first is left */
        __syncthreads(); /* ties, most likely */
        s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
        if (threadIdx.x == 0)
            s->n_items = s->n_heads = shared->n_left = 0;
        __syncthreads();
    } else if constexpr (few)
        if (stream_step(v.n) <= 2 * blocks * SYC_SAMPLE_THREADS)
            return held_row<T>(p, shared, l, v, y, k, rank, blocks, b);
    return guessed_row<T>(p, shared, rank, blocks, b);
}

#endif
