/*
 * Rows of sample of which top-k leaves some tokens, each read once. A first group of vectors, from all over
 * the row, gives a threshold that a little more than k tokens of the row reach, most likely; these are listed
 * while the rest is read. If there are fewer than k, or more than there is room for, the general steps do the
 * row again. So the guess decides on the time only. Small batches have a cluster of blocks for each row: all
 * of them read the first group and find the same threshold, and divide the rest. Where a block has all of its
 * part in registers at once, its largest tokens give a threshold that k reach for certain.
 */
#pragma once

#include "cuda/sample/sample_many.cuh"

/* ---- The threshold ---- */

/* How many of the first group of a piece of `groups` reach the threshold, so that k of the row do with near
 * certainty. */
SYC_INLINE u32 sample_target(u32 k, float part)
{
    const float mean = (float)k * part;
    return min(k, (u32)(mean + 4.0f * sqrtf(mean) + 4.0f));
}

/* ---- Reading ---- */

/* The vectors of a warp: lane `lane` of group g of its piece c is vector at(g, c). Of a piece all blocks of a
   cluster have group 0, and the others by turns. */
struct top_pieces {
    u32 period, first; /* vectors of a piece; the warp's first one */
};

SYC_INLINE u32 piece_at(const top_pieces &pieces, u32 g, u32 c)
{
    return pieces.first + c * pieces.period + g * 32 + (u32)syc_lane();
}

/* All of a warp's vectors of a group are in the row. */
SYC_INLINE bool are_whole(const syc_vectors &v, const top_pieces &pieces, u32 g)
{
    return (g + 1) * 32 <= pieces.period &&
           piece_at(pieces, g, SYC_OWN_TILES - 1) - (u32)syc_lane() + 32 <= v.n;
}

/* As they are in memory. */
template <sy_type T>
SYC_INLINE void load_pieces(const syc_logits &l, const syc_vectors &v, const top_pieces &pieces, u32 g,
                            uint4 *y)
{
    const u32 nothing = syc_minus_inf_word<T>();
    if (are_whole(v, pieces, g)) {
        const uint4 *const x = vectors_at<T>(l, v, piece_at(pieces, g, 0));
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++)
            y[c] = __ldcg(x + c * pieces.period);
        return;
    }
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        const u32 at = piece_at(pieces, g, c);
        y[c] = g * 32 + (u32)syc_lane() < pieces.period && at < v.n
                   ? __ldcg(vectors_at<T>(l, v, at))
                   : make_uint4(nothing, nothing, nothing, nothing);
    }
}

/* Keeps a vector, from token `first` on, if one of its tokens reaches a value; `vector` has room for `most`.
 */
template <sy_type T>
SYC_INLINE void keep_vector(top_shared *s, uint4 *vector, u32 most, uint4 x, u32 first, float least)
{
    if (!(word_value<T>(vector_max<T>(x)) >= least))
        return;
    const u32 place = syc_shared_add(&s->listed.n_vectors, 1u);
    if (place < most)
        vector[place] = x;
    if (place < sample_policy::LIST)
        s->hit[place] = first;
}

/* Lists the tokens of the vectors that were kept, and counts them by bins; returns the largest key of a
 * thread's. */
template <sy_type T>
SYC_INLINE u32 list_kept(top_shared *s, const syc_logits &l, u32 capacity, float least, u32 first_top)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    static_assert((int)MOST_VECTORS * 8 <= 32 * (int)SYC_SAMPLE_THREADS, "a bit for each token of a thread");
    const u32 hits = min(s->listed.n_vectors, (u32)sample_policy::LIST),
              all = min(hits, (u32)MOST_VECTORS) * n;
    const auto bits_at = [&](u32 i) {
        return T == SY_TYPE_F32 ? ((const u32 *)s->listed.many)[i]
                                : syc_wide<T>(((const u16 *)s->listed.many)[i]);
    };
    u32 which = 0, top = 0, place = 0;
    const auto put = [&](u32 token, u32 bits) {
        const u32 key = syi_key(bits);
        top = max(top, key);
        if (place < capacity)
            s->list[place] = syc_rank_of(key, token);
        place++;
        syc_shared_count(&s->listed.near.high[listed_bin(key, first_top)]);
    };
#pragma unroll 4
    for (u32 j = 0; j * SYC_SAMPLE_THREADS < all; j++) {
        const u32 i = j * SYC_SAMPLE_THREADS + threadIdx.x;
        which |= i < all && __uint_as_float(bits_at(i)) >= least ? 1u << j : 0;
    }
    const u32 upto = syc_warp_prefix((u32)__popc(which));
    if (syc_lane() == 31)
        place = syc_shared_add(&s->listed.n_items, upto);
    place = __shfl_sync(SYC_ALL_LANES, place, 31) + upto - (u32)__popc(which);
#pragma unroll 1
    for (; which != 0; which &= which - 1) {
        const u32 i = ((u32)__ffs((int)which) - 1) * SYC_SAMPLE_THREADS + threadIdx.x;
        put(s->hit[i / n] + i % n, bits_at(i));
    }
#pragma unroll 1
    for (u32 i = MOST_VECTORS + threadIdx.x; i < hits;
         i += SYC_SAMPLE_THREADS) { /* there was no room for these */
        const u32 first = s->hit[i];
        const uint4 x = syc_vector_at<T>(l, first);
        const auto look = [&](u32 j, u32 bits) { which |= __uint_as_float(bits) >= least ? 1u << j : 0; };
        syc_each_of<T>(0, x, look);
        place = syc_shared_add(&s->listed.n_items, (u32)__popc(which));
#pragma unroll 1
        for (; which != 0; which &= which - 1)
            put(first + (u32)__ffs((int)which) - 1, bits_of<T>(x, (u32)__ffs((int)which) - 1));
    }
    return top;
}

/* ---- Ties ---- */

/*
 * More tokens reach a threshold than there is room for. Where those of the threshold's upper half are all
 * equal and k ends among them, the k tokens to keep are listed: all above, and of the others the first by
 * index. Each warp has a run of the row. Returns the largest key; 0 where that is not so, or where tokens in
 * no vector are among the equal ones.
 */
/* NOLINT(readability-function-size): two reads of a row, with what each warp counts between them */
template <sy_type T>
SYC_COLD u32 list_ties(const syi_sample_plan &p, top_shared *shared, syc_logits l, u32 threshold, u32 k,
                       int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    listed_shared *const s = &shared->listed;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 period = (v.n + sample_policy::PIECES - 1) / sample_policy::PIECES, groups = (period + 31) / 32,
              half = threshold >> 16;
    const top_pieces pieces = {period, (u32)syc_warp() * SYC_OWN_TILES * period};
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
            if (place < sample_policy::LIST)
                shared->list[place] = syc_rank_of(key, i);
        } else if (key >> 16 == half) {
            ties++;
            low = min(low, key);
            high = max(high, key);
        }
    };
#pragma unroll 1
    for (u32 g = 0; g < groups; g++) {
        uint4 y[SYC_OWN_TILES];
        load_pieces<T>(l, v, pieces, g, y);
#pragma unroll 1
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            const u32 first = v.head + piece_at(pieces, g, c) * n;
            const uint4 x = syc_masked<T>(l, first, c == 0 ? y[0] : c == 1 ? y[1] : c == 2 ? y[2] : y[3]);
            if (syc_word_key<T>(vector_max<T>(x)) >= threshold)
                syc_each_of<T>(first, x, look);
        }
    }
    const u32 in_vectors = ties;
    each_rest_of<T>(p, l, b, look);
    alone = ties != in_vectors;
    ties = __reduce_add_sync(SYC_ALL_LANES, in_vectors);
    low = __reduce_min_sync(SYC_ALL_LANES, low);
    high = __reduce_max_sync(SYC_ALL_LANES, high);
    if (syc_lane() == 0) {
        s->exchange[0][syc_warp()] = ties;
        s->exchange[1][syc_warp()] = ~low;
        s->exchange[2][syc_warp()] = high;
    }
    top = __reduce_max_sync(SYC_ALL_LANES, top);
    if (syc_lane() == 0)
        s->warp_key[syc_warp()] = top;
    alone = __syncthreads_or(alone) != 0;
    const u32 above = s->n_items, wanted = k - above, key = of_warps(s->exchange[2]);
    u32 before = 0, all = 0;
    for (u32 w = 0; w < SYC_SAMPLE_THREADS / 32; w++) {
        before += w < (u32)syc_warp() ? s->exchange[0][w] : 0;
        all += s->exchange[0][w];
    }
    if (alone || above >= k || all < wanted || ~of_warps(s->exchange[1]) != key)
        return 0;
#pragma unroll 1
    for (u32 at = 0; at < SYC_OWN_TILES * groups && before < wanted; at++) {
        const u32 c = at / groups, g = at - c * groups, place = piece_at(pieces, g, c),
                  first = v.head + place * n;
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
    return of_warps(s->warp_key);
}

/* More tokens reach a guessed threshold than there is room for: counts by bins give the right one. Lists the
   tokens that reach it; returns the largest key, 0 where these are too many, too. */
template <sy_type T>
SYC_COLD u32 list_again(const syi_sample_plan &p, top_shared *shared, syc_logits l, u32 threshold,
                        u32 first_top, u32 k, int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    listed_shared *const s = &shared->listed;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 period = (v.n + sample_policy::PIECES - 1) / sample_policy::PIECES, groups = (period + 31) / 32;
    const top_pieces pieces = {period, (u32)syc_warp() * SYC_OWN_TILES * period};
    float least = syi_key_value(threshold);
    u32 run = 0, in_run = 0, top = 0;
    bool lists = false;
    const auto one = [&](u32 i, u32 bits) {
        if (!(__uint_as_float(bits) >= least))
            return;
        const u32 key = syi_key(bits), bin = listed_bin(key, first_top);
        top = max(top, key);
        if (lists) {
            const u32 place = syc_shared_add(&s->n_items, 1u);
            if (place < sample_policy::LIST)
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
            uint4 y[SYC_OWN_TILES];
            load_pieces<T>(l, v, pieces, g, y);
#pragma unroll 1
            for (u32 c = 0; c < SYC_OWN_TILES; c++) {
                const u32 first = v.head + piece_at(pieces, g, c) * n;
                const uint4 x = syc_masked<T>(l, first, c == 0 ? y[0] : c == 1 ? y[1] : c == 2 ? y[2] : y[3]);
                if (word_value<T>(vector_max<T>(x)) >= least)
                    syc_each_of<T>(first, x, one);
            }
        }
        each_rest_of<T>(p, l, b, one);
        if (lists)
            return warps_max(top, s->warp_key);
        if (in_run != 0)
            syc_shared_add(&s->near.high[run], in_run);
        const u32 last = count_bin(s, s->near.high, k);
        if (last == ~0u)
            return 0;
        if (last < NEAR - 1)
            threshold = max(threshold, ((first_top >> 16) + BINS_ABOVE - last) << 16);
        if (s->reached > sample_policy::LIST)
            return p.args.ties == SY_TIES_ALL ? 0 : list_ties<T>(p, shared, l, threshold, k, b);
        least = syi_key_value(threshold);
        lists = true;
    }
}

/* ---- Few tokens, by one block ---- */

/* Lists the tokens of the vectors that were kept, and the largest key in shared->top. */
template <sy_type T> SYC_INLINE void list_reaching(top_shared *shared, float least)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    listed_shared *const s = &shared->listed;
    const u32 all = s->n_vectors * n;
    u32 top = 0;
#pragma unroll 1
    for (u32 i = threadIdx.x; i < all; i += SYC_SAMPLE_THREADS) {
        const u32 bits = T == SY_TYPE_F32 ? ((const u32 *)s->hit)[i] : syc_wide<T>(((const u16 *)s->hit)[i]);
        if (__uint_as_float(bits) >= least) {
            const u32 place = syc_shared_add(&s->n_items, 1u), key = syi_key(bits);
            top = max(top, key);
            if (place < MOST_LISTED)
                s->item[place] = syc_rank_of(key, shared->hit[i / n] + i % n);
        }
    }
    if (top != 0)
        atomicMax(&shared->top, top);
}

/* Half of the groups of a block, of which y is the first; the one after them is on its way then. Returns the
 * largest word of a thread. */
template <sy_type T>
SYC_INLINE u32 read_half(const syc_logits &l, const syc_vectors &v, const block_groups &groups, u32 half,
                         uint4 *y, bool wanted, u32 &flags)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    u32 most = syc_minus_inf_word<T>();
#pragma unroll 1
    for (u32 g = 0;;) {
        const u32 at = groups.first + g * groups.apart + threadIdx.x;
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            const uint4 x = syc_masked<T>(l, v.head + (at + c * groups.step) * n, y[c]);
            most = fold<T>(most, x);
            if (wanted)
                flags |= flags_of<T>(x);
        }
        if (++g * groups.apart + groups.first <
            groups.step) /* the last of these arrives while the threshold is found */
            load_group<T>(l, v, groups.first + g * groups.apart + threadIdx.x, groups.step, y);
        if (g >= half)
            return most;
    }
}

/* Keeps the vectors of the other half that reach a value while they are read. */
template <sy_type T>
SYC_INLINE void keep_rest(top_shared *shared, const syc_logits &l, const syc_vectors &v,
                          const block_groups &groups, u32 half, uint4 *y, float least, bool wanted,
                          u32 &flags)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 apart = groups.apart, step = groups.step;
    u32 at = groups.first + half * apart + threadIdx.x;
    const auto look = [&](uint4 y, u32 c) {
        const u32 first = v.head + (at + c * step) * n;
        const uint4 x = syc_masked<T>(l, first, y);
        keep_vector<T>(shared, shared->listed.hit, MOST_LISTED, x, first, least);
        if (wanted)
            flags |= flags_of<T>(x);
    };
    const uint4 *next = vectors_at<T>(l, v, at + apart);
#pragma unroll 1
    for (; at - threadIdx.x + apart < step && is_whole(v, at + apart, step); at += apart, next += apart) {
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            const uint4 x = y[c];
            y[c] = __ldcg(next + c * step);
            look(x, c);
        }
    }
#pragma unroll 1
    while (at < step) {
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++)
            look(y[c], c);
        at += apart;
        if (at < step)
            load_group<T>(l, v, at, step, y);
    }
}

/*
 * The row where k is at most sample_policy::SMALL_K. Half of it, from all over it, gives a threshold that k
 * of its tokens reach for certain; what reaches it in the rest is kept while it is read. y: the first group.
 * Of several blocks each has every so many groups, and a threshold that its share of k tokens reaches; the
 * lowest counts.
 */
template <sy_type T, bool plain>
SYC_INLINE enum outcome stream_row(const syi_sample_plan &p, top_shared *shared, const syc_logits &row,
                                   const syc_vectors &v, uint4 *y, u32 k, u32 rank, u32 blocks, int64_t b,
                                   read_ahead ahead)
{
    listed_shared *const s = &shared->listed;
    const syc_logits l = row;
    const block_groups groups = groups_of(v.n, rank, blocks);
    const u32 half = max(groups.step / SYC_SAMPLE_THREADS / (2 * blocks), 1u);
    const bool wanted = !plain && p.row_flags.data != NULL;
    u32 flags = 0;
    if (rank == 0 && threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
    const u32 own = syc_word_key<T>(read_half<T>(l, v, groups, half, y, wanted, flags));
    u32 threshold = first_threshold<plain>(s, own, warps_max(own, s->warp_key), k, blocks);
    if (blocks > 1)
        threshold = common_threshold(shared, rank, blocks, threshold, !plain && k == 0);
    const float least = syi_key_value(threshold);
    if (own >= threshold) /* the tiles of a thread together */
        s->candidate_tile[syc_shared_add(&s->n_candidate_tiles, 1u)] = (u16)threadIdx.x;
    __syncthreads();
    const u32 tiles = s->n_candidate_tiles;
    if (tiles > (k > 0 ? k : (u32)sample_policy::SMALL_K) + sample_policy::TIES_MARGIN) {
        if (!wanted)
            return tied_row<T>(p, shared, l, groups, {own, threshold, k, 0}, rank, blocks, b);
        if (blocks == 1)
            return ROW_LEFT;
    }
    const auto at = [&](u32 item) {
        const u32 turn = item / tiles;
        return groups.first + turn / SYC_OWN_TILES * groups.apart + turn % SYC_OWN_TILES * groups.step +
               s->candidate_tile[item - turn * tiles];
    };
    each_vector_at<T>(l, v, tiles * half * SYC_OWN_TILES, at, [&](uint4 x, u32 first) {
        keep_vector<T>(shared, s->hit, MOST_LISTED, x, first, least);
    });
    if (rank == 0)
        each_rest_of<T>(p, l, b, [&](u32 i, u32 bits) {
            flags |= syi_key_flags(bits);
            list_token(shared, i, bits, least);
        });
    keep_rest<T>(shared, l, v, groups, half, y, least, wanted, flags);
    ask_ahead(p, b, ahead);
    if (wanted) {
        flags = any_flags(flags);
        if (syc_lane() == 0)
            s->warp_flags[syc_warp()] = flags;
    }
    __syncthreads();
    if (wanted)
        flags = any_flags(s->warp_flags[syc_lane() % SYC_BLOCK_WARPS]); /* before others use it */
    const bool fits = s->n_vectors <= MOST_LISTED;
    if (fits)
        list_reaching<T>(shared, least);
    else if (blocks == 1)
        return ROW_LEFT;
    __syncthreads();
    return finish_listed<plain, false>(p, shared, k, flags, fits, rank, blocks, b);
}

/* ---- Many tokens, by vectors that were kept ---- */

/* What is known of a row once the vectors that reach a threshold are kept, by each block of a cluster. */
struct kept_row {
    u32 k, threshold, first_top; /* where bins begin */
    u32 flags;
    bool crowded; /* more tokens reach the threshold than can be listed, most likely, and none is kept */
};

/* Lists the tokens of this block's vectors, and finds its largest key and flags; false: they are more than
 * there is room for. */
template <sy_type T>
SYC_INLINE bool list_block(const syi_sample_plan &p, top_shared *shared, const syc_logits &l, kept_row &row,
                           u32 rank, int64_t b, row_list &of)
{
    listed_shared *const s = &shared->listed;
    const u32 capacity = sample_policy::LIST / of.blocks;
    const float least = syi_key_value(row.threshold);
    const bool wanted = p.row_flags.data != NULL;
    __syncthreads();
    const bool kept_all = s->n_vectors <= sample_policy::LIST;
    u32 top = list_kept<T>(shared, l, capacity, least, row.first_top), flags = row.flags;
    if (rank == 0)
        each_rest_of<T>(p, l, b, [&](u32 i, u32 bits) {
            flags |= syi_key_flags(bits);
            if (__uint_as_float(bits) >= least) {
                const u32 place = syc_shared_add(&s->n_items, 1u);
                top = max(top, syi_key(bits));
                if (place < capacity)
                    shared->list[place] = syc_rank_of(syi_key(bits), i);
                syc_shared_count(&s->near.high[listed_bin(syi_key(bits), row.first_top)]);
            }
        });
    top = __reduce_max_sync(SYC_ALL_LANES, top);
    flags = wanted ? any_flags(flags) : 0;
    if (syc_lane() == 0) {
        s->warp_key[syc_warp()] = top;
        s->warp_flags[syc_warp()] = flags;
    }
    __syncthreads();
    of.top = of_warps(s->warp_key);
    of.n = kept_all ? s->n_items : capacity + 1;
    row.flags = wanted ? any_flags(s->warp_flags[syc_lane() % SYC_BLOCK_WARPS]) : 0;
    return of.n <= capacity;
}

/* The first block gets what others have listed, and counts it by bins; false: it does not fit. */
SYC_INLINE bool gather_lists(top_shared *shared, kept_row &row, row_list &of, bool fits)
{
    const u32 capacity = sample_policy::LIST / of.blocks, own = of.n;
    u32 far = 0;
    syc_wait_at(&shared->counts_gate);
    for (u32 r = 1; r < of.blocks; r++) {
        const u32 there = (u32)shared->count[r];
        row.flags |= (u32)(shared->count[r] >> 32);
        of.top = max(of.top, (u32)shared->largest[r]);
        fits = fits && there <= capacity;
        far += min(there, capacity);
    }
    if (threadIdx.x == 0) {
        shared->count[0] = own;
        syc_expect_now(&shared->items_gate, far * 8);
    }
    __syncthreads();
    syc_wait_at(&shared->items_gate);
    for (u32 i = own + threadIdx.x; i < own + far && fits; i += SYC_SAMPLE_THREADS)
        syc_shared_count(&shared->listed.near.high[listed_bin(syc_key_of(listed_item(shared, of.blocks, i)),
                                                              row.first_top)]);
    of.n += far;
    return fits;
}

SYC_INLINE void send_list(top_shared *shared, const row_list &of, u32 flags, u32 rank)
{
    const u32 capacity = sample_policy::LIST / of.blocks;
    if (threadIdx.x == 0) {
        syc_send(&shared->count[rank], 0, of.n | (u64)flags << 32, &shared->counts_gate);
        syc_send(&shared->largest[rank], 0, of.top, &shared->counts_gate);
    }
    for (u32 i = threadIdx.x; i < min(of.n, capacity); i += SYC_SAMPLE_THREADS)
        syc_send(&shared->list[rank * capacity + i], 0, shared->list[i], &shared->items_gate);
}

/* Tokens that are not ruled out to s->item, if they are few enough to be compared with each other. */
SYC_INLINE bool take_few(top_shared *shared, const row_list &of)
{
    listed_shared *const s = &shared->listed;
    syc_change([&] { shared->n_left = 0; });
    for (u32 i = threadIdx.x; i < of.n; i += SYC_SAMPLE_THREADS) {
        const u64 item = listed_item(shared, of.blocks, i);
        if (listed_bin(syc_key_of(item), of.first_top) <= of.last) {
            const u32 place = syc_shared_add(&shared->n_left, 1u);
            if (place < sample_policy::COMPARED)
                s->item[place] = item;
        }
    }
    __syncthreads();
    if (shared->n_left > sample_policy::COMPARED)
        return false;
    syc_change([&] { s->n_items = shared->n_left; });
    return true;
}

/* The row, once its cluster is ready; of several blocks the first one finishes it. */
template <sy_type T>
SYC_COLD enum outcome finish_kept(const syi_sample_plan &p, top_shared *shared, syc_logits l, kept_row row,
                                  u32 rank, u32 blocks, int64_t b)
{
    listed_shared *const s = &shared->listed;
    const u32 k = row.k;
    row_list of = {k, blocks, row.first_top, NEAR - 1, 0};
    bool fits = false;
    if (!row.crowded) {
        fits = list_block<T>(p, shared, l, row, rank, b, of);
        if (rank != 0) {
            send_list(shared, of, row.flags, rank);
            return ROW_DONE;
        }
        if (blocks > 1)
            fits = gather_lists(shared, row, of, fits);
    }
    if (of.n == 0 || (of.n < k && row.threshold > (u32)LOWEST_HALF << 16))
        return ROW_LEFT;
    if (!fits) {
        of.top = list_again<T>(p, shared, l, row.threshold, row.first_top, k, b);
        of.n = s->n_items;
        of.blocks = 1; /* the list is in one part */
        if (of.top == 0)
            return ROW_LEFT;
    }
    const syc_params &a = s->params;
    const syc_scale scale = {syi_key_value(of.top), a.inv_t, p.args.probs_in};
    if (fits)
        of.last = count_bin(s, s->near.high, min(k, of.n));
    if (fits && !a.greedy && p.noise == SY_NOISE_CDF && a.top_p >= 1.0f && a.min_p == 0.0f &&
        p.args.ties != SY_TIES_ALL && s->more == NULL && draw_many(p, shared, of, scale, k, row.flags, b))
        return ROW_DONE;
    const u32 kept = k <= sample_policy::COMPARED && take_few(shared, of)
                         ? finish_list(p, s, scale, of.top, k, 0, 0, b, true)
                         : finish_many(p, shared, of, scale, k, b);
    put_chosen(p, s, scale, row.flags, kept, b);
    return ROW_DONE;
}

/* The largest keys of a thread's tiles become those of a block; returns the thread's own. */
SYC_INLINE u32 most_of(const u32 *tile)
{
    return max(max(tile[0], tile[1]), max(tile[2], tile[3]));
}

/* The row by a guessed threshold, once it is begun. */
template <sy_type T>
SYC_COLD enum outcome guessed_row(const syi_sample_plan &p, top_shared *shared, syc_logits row, u32 rank,
                                  u32 blocks, int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    listed_shared *const s = &shared->listed;
    const syc_logits l = row;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 period = (v.n + sample_policy::PIECES - 1) / sample_policy::PIECES, k = top_k_of(p, s->params);
    const top_pieces pieces = {period, (u32)syc_warp() * SYC_OWN_TILES * period};
    const bool wanted = p.row_flags.data != NULL;
    u32 tile[SYC_OWN_TILES], flags = 0;
    uint4 y[SYC_OWN_TILES];
    load_pieces<T>(l, v, pieces, 0, y);
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        tile[c] = syc_word_key<T>(vector_max<T>(syc_masked<T>(l, v.head + piece_at(pieces, 0, c) * n, y[c])));
    const u32 own = most_of(tile), first_top = warps_max(own, s->warp_key),
              target = sample_target(k, (float)min(period, 32u) / (float)period);
    const u32 threshold =
        guess_threshold(s, tile, own, first_top, target, target <= sample_policy::BY_THREADS);
    const float least = syi_key_value(threshold);
    const bool crowded = !wanted && s->bin != ~0u && threshold > (u32)LOWEST_HALF << 16 &&
                         s->reached > sample_policy::CROWDED_BY * target +
                                          sample_policy::CROWDED_MARGIN; /* ties, most likely */
    if (rank == 0 && threadIdx.x == SYC_SAMPLE_THREADS - 1)              /* while vectors are on their way */
        make_uniform(p, s);
    if (crowded && rank != 0)
        return ROW_DONE;
#pragma unroll 1
    for (u32 g = 0; !crowded;) {
        const u32 next = g == 0 ? 1 + rank : g + blocks,
                  turns = g == 0 && blocks > 1 ? blocks : 1; /* of group 0 the pieces by turns */
        const bool more = next * 32 < period, whole = more && are_whole(v, pieces, next);
        const uint4 *const x = vectors_at<T>(l, v, piece_at(pieces, next, 0));
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            const u32 first = v.head + piece_at(pieces, g, c) * n;
            const uint4 now = syc_masked<T>(l, first, y[c]);
            if (whole)
                y[c] = __ldcg(x + c * period);
            if (wanted)
                flags |= flags_of<T>(now);
            if (turns == 1 || c % turns == rank)
                keep_vector<T>(shared, s->many, MOST_VECTORS, now, first, least);
        }
        if (!more)
            break;
        if (!whole)
            load_pieces<T>(l, v, pieces, next, y);
        g = next;
    }
    if (blocks > 1 && !crowded)
        syc_cluster_ready();
    return finish_kept<T>(p, shared, l, {k, threshold, first_top, flags, crowded}, rank, blocks, b);
}

/* The row where y, two groups, is all that a block has of it: then k tokens reach the threshold for certain,
 * since as many tiles do. */
template <sy_type T>
SYC_INLINE enum outcome held_row(const syi_sample_plan &p, top_shared *shared, const syc_logits &l,
                                 const syc_vectors &v, uint4 *y, u32 k, u32 rank, u32 blocks, int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    listed_shared *const s = &shared->listed;
    const block_groups groups = groups_of(v.n, rank, blocks);
    u32 tile[SYC_OWN_TILES];
    if (rank == 0 && threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
    const u32 flags = stream_tiles<T>(l, v, y, groups, p.row_flags.data != NULL, tile);
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        tile[c] = syc_word_key<T>(tile[c]);
    const u32 own = most_of(tile), first_top = warps_max(own, s->warp_key);
    u32 threshold = guess_threshold(s, tile, own, first_top, (k + blocks - 1) / blocks, false);
    if (blocks > 1)
        threshold = common_threshold(shared, rank, blocks, threshold, false);
    const float least = syi_key_value(threshold);
    const u32 all = groups.first + groups.apart < groups.step ? 2 : 1;
#pragma unroll
    for (u32 c = 0; c < 2 * SYC_OWN_TILES; c++)
        if (c / SYC_OWN_TILES < all)
            keep_vector<T>(shared, s->many, MOST_VECTORS, y[c],
                           v.head + (groups.first + c / SYC_OWN_TILES * groups.apart +
                                     c % SYC_OWN_TILES * groups.step + threadIdx.x) *
                                        n,
                           least);
    return finish_kept<T>(p, shared, l, {k, threshold, first_top, flags, false}, rank, blocks, b);
}

/* ---- The row ---- */

/* A row of a call with top-k, by block `rank` of `blocks`; `few` rows; `plain`: see is_plain_call. */
template <sy_type T, bool few, bool plain>
SYC_INLINE enum outcome top_k_row(const syi_sample_plan &p, top_shared *shared, u32 *bits, u32 rank,
                                  u32 blocks, int64_t b, const syc_gate *gate, read_ahead ahead)
{
    listed_shared *const s = &shared->listed;
    const u32 closed = load_closed(gate);
    const syc_logits raw = row_logits(p, b, false);
    const syc_vectors v = syc_vectors_of<T>(raw);
    uint4 y[few ? 2 * SYC_OWN_TILES : SYC_OWN_TILES]; /* on their way together with the parameters */
    if constexpr (few)
        load_two<T>(raw, v, rank * SYC_SAMPLE_THREADS + threadIdx.x, blocks * SYC_SAMPLE_THREADS, y);
    else
        load_group<T>(raw, v, rank * SYC_SAMPLE_THREADS + threadIdx.x, stream_step(v.n), y);
    const syc_logits l = plain ? raw : staged_logits(p, b, bits);
    if (blocks > 1) {
        if (threadIdx.x == 0) {
            syc_expect(&shared->thresholds_gate, 8 * (blocks - 1));
            syc_expect(&shared->counts_gate, rank == 0 ? 16 * (blocks - 1) : 0);
            syc_expect_later(&shared->items_gate);
        }
        syc_cluster_begin();
    }
    if (!begin_row(p, shared, b, closed))
        return ROW_CLOSED;
    const u32 k = top_k_of(p, s->params);
    const bool by_list = p.noise == SY_NOISE_Q && p.args.q_order == SY_Q_LIST; /* of min-p alone by tokens */
    const bool by_min_p =
        !plain && k == 0 && s->params.min_p > 0.0f && s->params.top_p == 1.0f && !p.args.probs_in && !by_list;
    if ((k == 0 && !by_min_p) || k > sample_policy::LIST || v.n == 0)
        return rank == 0 ? ROW_LEFT : ROW_DONE;
    if (k <= (few ? sample_policy::SMALL_K : sample_policy::STREAM_K)) {
        enum outcome outcome;
        if constexpr (few)
            outcome = small_k_row<T, plain>(p, shared, l, v, y, k, rank, blocks, b);
        else
            outcome = stream_row<T, plain>(p, shared, l, v, y, k, rank, blocks, b, ahead);
        if (outcome == ROW_DONE || k == 0)
            return outcome;
        blocks = 1;      /* the first is left */
        __syncthreads(); /* ties, most likely */
        s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
        if (threadIdx.x == 0)
            s->n_items = s->n_candidate_tiles = s->n_vectors = shared->n_left = 0;
        __syncthreads();
    } else if constexpr (few)
        if (stream_step(v.n) <= 2 * blocks * SYC_SAMPLE_THREADS)
            return held_row<T>(p, shared, l, v, y, k, rank, blocks, b);
    return guessed_row<T>(p, shared, l, rank, blocks, b);
}
