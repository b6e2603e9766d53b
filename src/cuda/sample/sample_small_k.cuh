/*
 * Rows of sample of which top-k leaves few tokens, where the rows are few, too: k is at most
 * sample_policy::SMALL_K. A row is read whole; the largest key of each thread gives a threshold that k tokens
 * reach for certain. Of the tiles that reach it, a few of each hundred, the tokens are listed, and decide. A
 * row may have a cluster of blocks: each has a threshold that its share of k tokens reaches, and the lowest
 * counts.
 */
#pragma once

#include "cuda/prim/cluster.cuh"
#include "cuda/sample/sample_stream.cuh"

enum { OWN_LISTED = sample_policy::LIST / SYC_SAMPLE_THREADS }; /* listed tokens of a thread */

struct top_shared {
    listed_shared listed;
    u64 list[sample_policy::LIST];
    u32 hit[sample_policy::LIST]; /* first tokens of vectors that were kept: listed.hit, or listed.many, as
                                     far as they fit */
    u32 n_many;                   /* tokens of finish_many */
    u32 n_left;                   /* tokens that bins do not rule out */
    u32 top;                      /* the largest key that is listed */
    u64 thresholds_gate, counts_gate, items_gate; /* the last two of the first block of a cluster */
    /* Of each block: its threshold; tokens listed, flags << 32; the largest key. */
    u64 threshold[sample_policy::TOP_K_CLUSTER], count[sample_policy::TOP_K_CLUSTER],
        largest[sample_policy::TOP_K_CLUSTER];
};

/* ---- Reading ---- */

/* The step between the vectors of a thread's group, and the groups, of a row with a small k. */
SYC_INLINE u32 stream_step(u32 vectors)
{
    return (vectors + SYC_TILES - 1) / SYC_TILES * SYC_SAMPLE_THREADS;
}

/* The first two groups of a thread. */
template <sy_type T>
SYC_INLINE void load_two(const syc_logits &l, const syc_vectors &v, u32 at, u32 apart, uint4 *y)
{
    const u32 step = stream_step(v.n);
    load_group<T>(l, v, at, step, y);
    if (at - threadIdx.x + apart < step)
        load_group<T>(l, v, at + apart, step, y + SYC_OWN_TILES);
}

/* The vectors of a block: groups of SYC_OWN_TILES for each thread. */
struct block_groups {
    u32 first, apart,
        step; /* the first group; from a group to the next; from a vector of a thread's group to the next */
};

SYC_INLINE block_groups groups_of(u32 vectors, u32 rank, u32 blocks)
{
    return {rank * SYC_SAMPLE_THREADS, blocks * SYC_SAMPLE_THREADS, stream_step(vectors)};
}

/* The largest words of a thread's tiles, y being its first two groups, which are masked; returns SY_ROW_NAN
   and SY_ROW_INF * where they are wanted. */
template <sy_type T>
SYC_INLINE u32 stream_tiles(const syc_logits &l, const syc_vectors &v, uint4 *y, const block_groups &groups,
                            bool wanted, u32 *tile)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 step = groups.step, apart = groups.apart;
    u32 flags = 0, at = groups.first + threadIdx.x;
    const auto see = [&](uint4 *x, u32 first) {
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            x[c] = syc_masked<T>(l, v.head + (first + c * step) * n, x[c]);
            tile[c] = fold<T>(tile[c], x[c]);
            if (wanted)
                flags |= flags_of<T>(x[c]);
        }
    };
    const uint4 *next = vectors_at<T>(l, v, at + 2 * apart);
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        tile[c] = syc_minus_inf_word<T>();
#pragma unroll 1
    for (; at - threadIdx.x + 3 * apart < step && is_whole(v, at + 3 * apart, step);
         at += 2 * apart, next += 2 * apart) /* one group is on its way while another is looked at */
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            see(y + i * SYC_OWN_TILES, at + i * apart);
#pragma unroll
            for (u32 c = 0; c < SYC_OWN_TILES; c++)
                y[i * SYC_OWN_TILES + c] = __ldcg(next + i * apart + c * step);
        }
    see(y, at);
    if (at - threadIdx.x + apart < step)
        see(y + SYC_OWN_TILES, at + apart);
#pragma unroll 1
    for (at += 2 * apart; at < step; at += apart) {
        load_group<T>(l, v, at, step, y);
        see(y, at);
    }
    return flags;
}

/* Lists the tokens of a vector, from token `first` on, that reach a value. */
template <sy_type T> SYC_INLINE void list_vector_reaching(listed_shared *s, uint4 x, u32 first, float least)
{
    if (!(word_value<T>(vector_max<T>(x)) >= least))
        return;
    u32 which = 0;
    const auto look = [&](u32 j, u32 bits) { which |= __uint_as_float(bits) >= least ? 1u << j : 0; };
    syc_each_of<T>(0, x, look);
    u32 place = syc_shared_add(&s->n_items, (u32)__popc(which));
#pragma unroll 1
    for (; which != 0; which &= which - 1, place++) {
        const u32 j = (u32)__ffs((int)which) - 1;
        if (place < MOST_LISTED)
            s->item[place] = syc_rank_of(syi_key(bits_of<T>(x, j)), first + j);
    }
}

/* Lists token i if it reaches a value. */
SYC_INLINE void list_token(top_shared *shared, u32 i, u32 bits, float least)
{
    listed_shared *const s = &shared->listed;
    if (!(__uint_as_float(bits) >= least))
        return;
    const u32 place = syc_shared_add(&s->n_items, 1u);
    if (place < MOST_LISTED)
        s->item[place] = syc_rank_of(syi_key(bits), i);
    atomicMax(&shared->top, syi_key(bits));
}

/* f(vector, its first token) for vectors at(0) to at(all - 1) of a row, as far as they are in it; two are on
 * their way at once. */
template <sy_type T, class At, class F>
SYC_INLINE void each_vector_at(const syc_logits &l, const syc_vectors &v, u32 all, At at, F f)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const u32 nothing = syc_minus_inf_word<T>();
#pragma unroll 1
    for (u32 item = threadIdx.x; item < all; item += 2 * SYC_SAMPLE_THREADS) {
        uint4 x[2];
        u32 first[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            const u32 one = item + i * SYC_SAMPLE_THREADS, place = at(one);
            first[i] = v.head + place * n;
            x[i] = one < all && place < v.n ? syc_vector_at<T>(l, first[i])
                                            : make_uint4(nothing, nothing, nothing, nothing);
        }
        f(x[0], first[0]);
        if (item - threadIdx.x + SYC_SAMPLE_THREADS < all)
            f(x[1], first[1]);
    }
}

/* ---- Clusters ---- */

/* The lowest threshold of all blocks of a cluster; of min-p the highest. */
SYC_INLINE u32 common_threshold(top_shared *shared, u32 rank, u32 blocks, u32 threshold, bool highest)
{
    syc_cluster_ready();
    if (threadIdx.x < blocks && threadIdx.x != rank)
        syc_send(&shared->threshold[rank], threadIdx.x, threshold, &shared->thresholds_gate);
    syc_wait_at(&shared->thresholds_gate);
    for (u32 r = 0; r < blocks; r++) {
        const u32 other = r == rank ? threshold : (u32)shared->threshold[r];
        threshold = highest ? max(threshold, other) : min(threshold, other);
    }
    return threshold;
}

/* The blocks of a cluster send what they have listed, where `listed`, to the first, which has the list of all
   then; false: it does not fit, there. Of another block nothing is left to do. */
SYC_INLINE bool gather_list(top_shared *shared, u32 rank, u32 blocks, u32 flags, bool listed)
{
    constexpr u32 capacity = sample_policy::LIST / sample_policy::TOP_K_CLUSTER;
    static_assert((int)MOST_LISTED <= (int)capacity, "what is sent is beside what the first block has kept");
    listed_shared *const s = &shared->listed;
    const auto fits = [](u32 n) { return n <= MOST_LISTED ? n : 0; };
    const u32 own = listed ? s->n_items : MOST_LISTED + 1;
    if (rank != 0) {
        if (threadIdx.x == 0) {
            syc_send(&shared->count[rank], 0, own | (u64)flags << 32, &shared->counts_gate);
            syc_send(&shared->largest[rank], 0, shared->top, &shared->counts_gate);
        }
        if (threadIdx.x < fits(own))
            syc_send(&shared->list[rank * capacity + threadIdx.x], 0, s->item[threadIdx.x],
                     &shared->items_gate);
        return false;
    }
    u32 all = own, far = 0, top = shared->top;
    syc_wait_at(&shared->counts_gate);
    for (u32 r = 1; r < blocks; r++) {
        all += (u32)shared->count[r];
        far += fits((u32)shared->count[r]);
        top = max(top, (u32)shared->largest[r]);
    }
    if (threadIdx.x == 0)
        syc_expect_now(&shared->items_gate, far * 8);
    __syncthreads();
    syc_wait_at(&shared->items_gate);
    if (all > MOST_LISTED)
        return false;
    for (u32 r = 1, at = own; r < blocks; at += (u32)shared->count[r], r++)
        if (threadIdx.x < (u32)shared->count[r])
            s->item[at + threadIdx.x] = shared->list[r * capacity + threadIdx.x];
    if (threadIdx.x == 0) {
        shared->top = top;
        s->n_items = all;
    }
    __syncthreads();
    return true;
}

/* ---- The end ---- */

/*
 * The first k of the listed tokens, what top-p leaves of them, and the results, where the token is the first
 * or drawn by weight. The last of a prefix has the sum of it.
 */
SYC_INLINE void finish_small(const syi_sample_plan &p, listed_shared *s, const syc_scale &scale, u32 k,
                             u32 flags, int64_t b)
{
    const u32 n = s->n_items;
    const float top_p = s->params.top_p;
    if (threadIdx.x < n)
        s->weight[threadIdx.x] = syc_weight_of(scale, syc_key_of(s->item[threadIdx.x]));
    __syncthreads();
    const team_token t = compare_listed(s);
    const u64 *total = &s->total; /* of what is kept */
    u32 kept = min(k, n);
    if (t.speaks && t.rank + 1 == kept)
        s->total = t.before + t.weight;
    if (top_p < 1.0f) {
        __syncthreads();
        const u64 all = s->total, target = syi_mass_target(top_p, scale.probs_in ? SYI_WEIGHT_ONE : all);
        if (all >= target) {
            if (t.speaks && t.rank < kept && t.before < target && target <= t.before + t.weight) {
                s->n_kept = t.rank + 1;
                s->kept_weight = t.before + t.weight;
            }
            __syncthreads();
            kept = s->n_kept;
            total = &s->kept_weight;
        }
    }
    bool chosen = t.speaks && t.rank == 0;
    if (!s->params.greedy)
        chosen = draw_listed(s, t, t.rank < kept, total);
    else if (p.logprob.data != NULL)
        __syncthreads();
    if (chosen)
        put_results(p, b, (int64_t)syc_token_of(t.item), flags, kept,
                    p.logprob.data == NULL || s->params.cold ? 0.0f
                                                             : log_share(scale, syc_key_of(t.item), *total));
}

/*
 * The row from its listed tokens; of a cluster, in the first block, from those of all. `flags`: of this
 * block; `listed`: there was room for its tokens; `by_teams`: by finish_small where it can.
 */
template <bool plain, bool by_teams>
SYC_INLINE enum outcome finish_listed(const syi_sample_plan &p, top_shared *shared, u32 k, u32 flags,
                                      bool listed, u32 rank, u32 blocks, int64_t b)
{
    listed_shared *const s = &shared->listed;
    if (blocks > 1 && !gather_list(shared, rank, blocks, flags, listed))
        return rank == 0 ? ROW_LEFT : ROW_DONE;
    const u32 top = shared->top;
    if (s->n_items > MOST_LISTED || s->n_items == 0)
        return ROW_LEFT;
    const syc_scale scale = {syi_key_value(top), s->params.inv_t, p.args.probs_in};
    for (u32 r = 1; r < blocks; r++)
        flags |= (u32)(shared->count[r] >> 32);
    if (by_teams && (plain || ((s->params.greedy || p.noise == SY_NOISE_CDF) && s->params.min_p == 0.0f &&
                               p.args.ties != SY_TIES_ALL && s->more == NULL)))
        finish_small(p, s, scale, k, flags, b);
    else if constexpr (!(by_teams && plain)) {
        const u32 kept = finish_list<plain>(p, s, scale, top, k, 0, 0, b, true);
        put_chosen(p, s, scale, flags, kept, b);
    }
    return ROW_DONE;
}

/* ---- The row ---- */

/* Parameters and counters of a row; false: a fault was reported. All threads. */
SYC_INLINE bool begin_row(const syi_sample_plan &p, top_shared *shared, int64_t b, u32 closed)
{
    listed_shared *const s = &shared->listed;
    if (syc_warp() == 0) {
        const syc_params a = load_params(p, b);
        if (syc_lane() == 0) {
            s->params = a;
            s->n_items = s->n_candidate_tiles = s->n_vectors = shared->n_left = shared->top = 0;
        }
    }
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    return __syncthreads_or(closed != 0) == 0;
}

/* k as it acts here, above sample_policy::LIST where it is larger; 0: off. */
SYC_INLINE u32 top_k_of(const syi_sample_plan &p, const syc_params &a)
{
    const bool first_only = a.one || (a.greedy && p.kept.data == NULL && (p.logprob.data == NULL || a.cold));
    return first_only ? 1u : (u32)min(a.k, (int64_t)sample_policy::LIST + 1);
}

/* A key that the block's share of k tokens reach for certain, as the largest of that many threads do; k of 0:
   all that pass min-p. */
template <bool plain>
SYC_INLINE u32 first_threshold(listed_shared *s, u32 own, u32 largest, u32 k, u32 blocks)
{
    return !plain && k == 0 ? min_p_threshold(s->params, largest)
                            : guess_threshold(s, &own, own, largest, (k + blocks - 1) / blocks, true);
}

/* Where many tokens are equal: a key that k of the threads' largest reach and fewer a larger one, if k reach
   the threshold; 0: they do not. */
SYC_INLINE u32 tied_key(u32 own, u32 threshold, u32 k)
{
    u32 low = threshold, high = threshold + 0x10000;
    if ((u32)__syncthreads_count(own >= low) < k || k == 0)
        return 0;
#pragma unroll 1
    while (high - low > 1) {
        const u32 middle = low + (high - low) / 2;
        if ((u32)__syncthreads_count(own >= middle) >= k)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Lists the first k tokens of a block that have a key, if there are so many. */
template <sy_type T>
SYC_COLD void list_equal(top_shared *shared, syc_logits l, block_groups groups, u32 key, u32 k)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    listed_shared *const s = &shared->listed;
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 turns = (groups.step - groups.first + groups.apart - 1) / groups.apart;
    if (threadIdx.x == 0)
        atomicMax(&shared->top, key);
#pragma unroll 1
    for (u32 turn = 0, found = 0; turn < SYC_OWN_TILES * turns && found < k; turn++) {
        const u32 at = groups.first + turn % turns * groups.apart + turn / turns * groups.step + threadIdx.x,
                  first = v.head + at * n;
        u32 which = 0;
        const auto look = [&](u32 j, u32 bits) { which |= syi_key(bits) == key ? 1u << j : 0; };
        if (at < v.n)
            syc_each_of<T>(0, syc_vector_at<T>(l, first), look);
        u64 all;
        u32 place = found + (u32)syc_block_before((u32)__popc(which), s->sum[0], &all);
#pragma unroll 1
        for (; which != 0 && place < k; which &= which - 1, place++) {
            const u32 to = syc_shared_add(&s->n_items, 1u);
            if (to < MOST_LISTED)
                s->item[to] = syc_rank_of(key, first + (u32)__ffs((int)which) - 1);
        }
        found += (u32)all;
    }
    __syncthreads();
}

/* What a block knows of a row when more tokens reach a threshold than are wanted. */
struct tied_tokens {
    u32 own, threshold, k, flags; /* own: the largest key of a thread */
};

/* The row then, where many tokens are equal: those above a key that k of the block reach, and the first
   k that have it. */
template <sy_type T>
SYC_COLD enum outcome tied_row(const syi_sample_plan &p, top_shared *shared, syc_logits l,
                               block_groups groups, tied_tokens of, u32 rank, u32 blocks, int64_t b)
{
    const syc_vectors v = syc_vectors_of<T>(l);
    const u32 tied = p.args.ties == SY_TIES_ALL ? 0 : tied_key(of.own, of.threshold, of.k),
              turns = (groups.step - groups.first + groups.apart - 1) / groups.apart;
    const float above = syi_key_value(tied + 1), least = syi_key_value(tied);
    const auto at = [&](u32 item) {
        const u32 turn = item / SYC_SAMPLE_THREADS;
        return groups.first + turn / SYC_OWN_TILES * groups.apart + turn % SYC_OWN_TILES * groups.step +
               item % SYC_SAMPLE_THREADS;
    };
    if (tied != 0) {
        each_vector_at<T>(l, v, turns * SYC_TILES, at, [&](uint4 x, u32 first) {
            list_vector_reaching<T>(&shared->listed, x, first, above);
            if (word_value<T>(vector_max<T>(x)) >= above)
                atomicMax(&shared->top, syc_word_key<T>(vector_max<T>(x)));
        });
        if (rank == 0)
            each_rest_of<T>(p, l, b, [&](u32 i, u32 bits) { list_token(shared, i, bits, least); });
        list_equal<T>(shared, l, groups, tied, of.k);
    }
    __syncthreads();
    return finish_listed<false, true>(p, shared, of.k, of.flags, tied != 0, rank, blocks, b);
}

/* The row by block `rank` of `blocks`; y is its first two groups. `plain`: see is_plain_call. */
template <sy_type T, bool plain>
SYC_INLINE enum outcome small_k_row(const syi_sample_plan &p, top_shared *shared, const syc_logits &row,
                                    const syc_vectors &v, uint4 *y, u32 k, u32 rank, u32 blocks, int64_t b)
{
    listed_shared *const s = &shared->listed;
    const syc_logits l = row;
    const block_groups groups = groups_of(v.n, rank, blocks);
    const bool wanted = !plain && p.row_flags.data != NULL;
    u32 tile[SYC_OWN_TILES];
    if (rank == 0 && threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
    u32 flags = stream_tiles<T>(l, v, y, groups, wanted, tile);
    if (wanted && rank == 0)
        each_rest_of<T>(p, l, b, [&](u32, u32 bits) { flags |= syi_key_flags(bits); });
    const u32 own = syc_word_key<T>(
        syc_max_word<T>(syc_max_word<T>(tile[0], tile[1]), syc_max_word<T>(tile[2], tile[3])));
    const u32 warp_own = __reduce_max_sync(SYC_ALL_LANES, own);
    if (wanted)
        flags = any_flags(flags);
    if (syc_lane() == 0) {
        s->warp_key[syc_warp()] = warp_own;
        s->warp_flags[syc_warp()] = flags;
    }
    __syncthreads();
    const u32 largest = of_warps(s->warp_key);
    if (wanted)
        flags = any_flags(s->warp_flags[syc_lane() % SYC_BLOCK_WARPS]);
    u32 threshold = first_threshold<plain>(s, own, largest, k, blocks);
    if (blocks > 1)
        threshold = common_threshold(shared, rank, blocks, threshold, !plain && k == 0);
    if (threadIdx.x == 0)
        atomicMax(&shared->top, largest);
    const float least = syi_key_value(threshold);
    u32 mask = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        mask |= word_value<T>(tile[c]) >= least ? 1u << c : 0;
    put_candidate_tiles(s, mask);
    __syncthreads();
    const u32 tiles = s->n_candidate_tiles,
              turns = (groups.step - groups.first + groups.apart - 1) / groups.apart;
    if (tiles > MOST_LISTED)
        return tied_row<T>(p, shared, l, groups, {own, threshold, k, flags}, rank, blocks, b);
    const auto at = [&](u32 item) {
        const u32 turn = item / tiles, place = s->candidate_tile[item - turn * tiles];
        return groups.first + turn * groups.apart + place / SYC_SAMPLE_THREADS * groups.step +
               place % SYC_SAMPLE_THREADS;
    };
    each_vector_at<T>(l, v, tiles * turns, at,
                      [&](uint4 x, u32 first) { list_vector_reaching<T>(s, x, first, least); });
    if (rank == 0)
        each_rest_of<T>(p, l, b, [&](u32 i, u32 bits) { list_token(shared, i, bits, least); });
    __syncthreads();
    return finish_listed<plain, true>(p, shared, k, flags, true, rank, blocks, b);
}
