/*
 * Rows of sample that few tokens decide, from registers, without the lists and sorts of the general steps.
 * Which rows these are depends on their parameters and contents alone.
 */
#pragma once

#include "cuda/sample/sample_general.cuh"

/*
 * Rows of which top-k or top-p leave no more tokens than a block has threads: these are listed, and every
 * thread then compares one of them with the others.
 */
enum {
    NEAR = 512,                         /* bins */
    MOST_LISTED = SYC_SAMPLE_THREADS,   /* tokens */
    MOST_VECTORS = 2 * MOST_LISTED,     /* that are kept until their tokens are listed */
    FIRST_MOST = SYC_SAMPLE_THREADS / 2 /* tokens of the order that are found by their tiles, or threads */
};
#define UNDECIDED (~0u)

/* What a block knows of a row while it lists tokens. The lists are in the same memory one after the other. */
struct listed_shared {
    syc_params params;
    alignas(16) struct {
        u32 low[NEAR], high[NEAR];
    } near; /* measures of tiles, or tokens, by the distance of their upper halves from the largest */
    union {
        struct {
            u16 candidate_tile[SYC_TILES]; /* tiles that are read again */
            u64 item[MOST_LISTED];         /* listed tokens, in no order */
            union {
                struct {
                    u64 sorted[MOST_LISTED],
                        weight[MOST_LISTED]; /* the same in the order, and their weights */
                };
                uint4 hit[MOST_LISTED]; /* vectors with tokens to list */
            };
        };
        uint4 many[MOST_VECTORS]; /* the same where none of those is used */
    };
    u32 n_items, n_candidate_tiles, n_vectors;

    /* Of each warp. */
    u32 warp_key[SYC_BLOCK_WARPS],
        warp_flags[SYC_BLOCK_WARPS];  /* the largest key, SY_ROW_NAN and SY_ROW_INF */
    u32 exchange[3][SYC_BLOCK_WARPS]; /* numbers of one comparison */
    u64 sum[2][SYC_BLOCK_WARPS];      /* block sums; in a nucleus exact and rough weights */

    /* Where a measure is reached. */
    u32 bin, reached; /* the bin, and the count up to it */
    u32 n_kept;       /* tokens up to the one that reaches it */
    u32 last_key;     /* of the last that stays */
    u64 last;         /* that token */
    u64 kept_weight;  /* of the tokens up to it */
    u64 rest;         /* what is left of the measure in the bin */
    u32 ends[2]; /* ranks at which a nucleus ends by the lower and by the upper bound of the row's weight */
    u32 edge[2], n_heavy; /* of sample_edge: bins between which it ends; tiles with heavy tokens */

    /* The draw. */
    u64 uniform; /* the number it depends on */
    u64 total;   /* weight of the tokens that stay */
    u32 token_key, token;
    const syc_more *more; /* what else is asked; NULL: nothing */
    bool wrote;           /* that is written */
};

/* The steps by a list, then the general ones. */
union rows_shared {
    syc_sample_shared general;
    listed_shared listed;
};

SYC_INLINE void put_results(const syi_sample_plan &p, int64_t b, int64_t token, u32 flags, u32 kept, float lp)
{
    if (p.token.data != NULL)
        syc_store<u64>(p.token.data + b * 8, (u64)token);
    if (p.row_flags.data != NULL)
        syc_store<u32>(p.row_flags.data + b * 4, flags);
    if (p.kept.data != NULL)
        syc_store<u32>(p.kept.data + b * 4, kept);
    if (p.logprob.data != NULL)
        syc_store<u32>(p.logprob.data + b * 4, __float_as_uint(lp));
}

SYC_INLINE void put_top(const syi_sample_plan &p, int64_t b, u32 j, int64_t token, float logprob)
{
    syc_store_index(syc_out_row(p.top_token, b), j, token, p.top_token.type);
    syc_store<u32>(syc_out_row(p.top_logprob, b) + (int64_t)j * 4, __float_as_uint(logprob));
}

/* What else is asked of a row, from the first n of its candidates, in s->sorted; those after `last` do not
   count. Rows that are certain, or without weight, are left to logprob_row, which has the same for all
   others. */
SYC_COLD void write_more(const syi_sample_plan &p, listed_shared *s, syc_scale scale, u32 n, u64 last,
                         int64_t b)
{
    const u64 total = s->total;
    const int64_t given = int_or(p.given_token, b, -1);
    const int bytes = p.logits.type == SY_TYPE_F32 ? 4 : 2;
    const float none = __uint_as_float(SYC_MINUS_INF_BITS);
    if (s->params.cold || total == 0)
        return;
    const auto rank_of = [&](u32 i) {
        const bool allowed = syc_allowed(p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, i);
        return syc_rank_of(allowed ? syi_key(__float_as_uint(syc_load_float(
                                         syc_row(p.logits, b) + (int64_t)i * bytes, p.logits.type)))
                                   : SYI_KEY_MINUS_INF,
                           i);
    };
    const auto is_in = [&](u64 rank) { return syc_key_of(rank) != SYI_KEY_MINUS_INF && rank >= last; };
    const auto share = [&](u64 rank) {
        return is_in(rank) ? log_share(scale, syc_key_of(rank), total) : none;
    };
    const u64 own = given >= 0 ? rank_of((u32)given) : syc_rank_of(s->token_key, s->token);
    for (u32 j = threadIdx.x; j < (u32)p.n_top; j += SYC_SAMPLE_THREADS) {
        const u64 rank = j < n ? s->sorted[j] : 0;
        put_top(p, b, j, rank != 0 && is_in(rank) ? (int64_t)syc_token_of(rank) : -1,
                rank != 0 ? share(rank) : none);
    }
    for (u32 j = threadIdx.x; j < (u32)p.n_score; j += SYC_SAMPLE_THREADS) {
        const int64_t token = syc_index(syc_row(p.score_token, b), j, p.score_token.type);
        syc_store<u32>(syc_out_row(p.score_logprob, b) + (int64_t)j * 4,
                       __float_as_uint(token >= 0 ? share(rank_of((u32)token)) : none));
    }
    if (p.rank.data != NULL && threadIdx.x < n && is_in(own) && s->sorted[threadIdx.x] == own)
        syc_store<u32>(p.rank.data + b * 4, threadIdx.x + 1);
    if (threadIdx.x != SYC_SAMPLE_THREADS - 1) /* one that has none of the first tokens */
        return;
    if (p.rank.data != NULL && !is_in(own))
        syc_store<u32>(p.rank.data + b * 4, (u32)p.vocab + 1);
    if (s->more->token != NULL)
        syc_store<u64>(s->more->token + b * 8, syc_token_of(own));
    if (s->more->logprob != NULL)
        syc_store<u32>(s->more->logprob + b * 4, __float_as_uint(share(own)));
    s->wrote = true;
}

SYC_INLINE u32 any_flags(u32 flags)
{
    return (__any_sync(SYC_ALL_LANES, (flags & SY_ROW_NAN) != 0) ? SY_ROW_NAN : 0u) |
           (__any_sync(SYC_ALL_LANES, (flags & SY_ROW_INF) != 0) ? SY_ROW_INF : 0u);
}

/* Larger of all lanes, or of what warps have left in `part`. */
SYC_INLINE u32 of_warps(const u32 *part)
{
    return __reduce_max_sync(SYC_ALL_LANES, part[syc_lane() % SYC_BLOCK_WARPS]);
}

SYC_INLINE u32 warps_max(u32 v, u32 *part)
{
    v = __reduce_max_sync(SYC_ALL_LANES, v);
    if (syc_lane() == 0)
        part[syc_warp()] = v;
    __syncthreads();
    return of_warps(part);
}

/* The first token that has the largest key: one of each warp's, or ~0. */
template <sy_type T> SYC_INLINE u32 first_token(const syc_logits &row, const u32 *tile, u32 key)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_logits l = row;
    const syc_vectors v = syc_vectors_of<T>(l);
    u32 token = ~0u;
    const auto look = [&](u32 i, u32 bits) {
        if (syi_key(bits) == key)
            token = min(token, i);
    };
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
#pragma unroll 1
        for (u32 hot = __ballot_sync(SYC_ALL_LANES, tile[c] == key); hot != 0; hot &= hot - 1) {
            const u32 of = c * SYC_SAMPLE_THREADS + threadIdx.x - (u32)syc_lane() + (u32)__ffs((int)hot) - 1;
            if (v.head + of * n > token)
                continue; /* so is all of this tile */
#pragma unroll 1
            for (u32 at = of + (u32)syc_lane() * SYC_TILES; at < v.n; at += 32 * SYC_TILES)
                syc_each_of<T>(v.head + at * n, syc_vector_at<T>(l, v.head + at * n), look);
            token = __reduce_min_sync(SYC_ALL_LANES, token);
        }
    syc_each_rest<T>(l, look);
    return token;
}

/* The first bin from the top at which the sum of measures reaches a target; ~0: none does. */
SYC_INLINE u32 near_bin(listed_shared *s, u64 target)
{
    constexpr int each = NEAR / 32;
    __syncthreads();
    if (syc_warp() == 0) {
        const int first = syc_lane() * each;
        u64 own = 0;
#pragma unroll 4
        for (int i = 0; i < each; i++)
            own += (u64)s->near.high[first + i] << 32 | s->near.low[first + i];
        const u64 upto = syc_warp_prefix(own);
        if (syc_lane() == 31 && upto < target)
            s->bin = ~0u;
        if (upto >= target && upto - own < target) {
            u64 sum = upto - own;
            int i = first - 1;
            do {
                i++;
                sum += (u64)s->near.high[i] << 32 | s->near.low[i];
            } while (sum < target);
            s->bin = (u32)i;
        }
    }
    __syncthreads();
    return s->bin;
}

/* A key that at least so many tiles reach, and not many more. */
SYC_INLINE u32 threshold_by_count(listed_shared *s, const u32 *tile, u32 own, u32 key, u32 target)
{
    const bool by_threads = 2 * target <= SYC_SAMPLE_THREADS; /* then a thread is one tile */
    const u32 top = key >> 16;
    if (by_threads) {
        if (own != 0 && top - (own >> 16) < NEAR)
            atomicAdd(&s->near.low[top - (own >> 16)], 1u);
    } else {
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++)
            if (tile[c] != 0 && top - (tile[c] >> 16) < NEAR)
                atomicAdd(&s->near.low[top - (tile[c] >> 16)], 1u);
    }
    const u32 bin = near_bin(s, target);
    if (bin != ~0u)
        return (top - bin) << 16;
    u32 low = 0, high = top + 1; /* enough reach low, or all are taken; not enough reach high */
#pragma unroll 1
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        u32 n = 0;
        if (by_threads)
            n = (u32)__syncthreads_count(own >> 16 >= middle);
        else
#pragma unroll 1
            for (u32 c = 0; c < SYC_OWN_TILES; c++)
                n += (u32)__syncthreads_count((c == 0   ? tile[0]
                                               : c == 1 ? tile[1]
                                               : c == 2 ? tile[2]
                                                        : tile[3]) >>
                                              16 >= middle);
        if (n >= target)
            low = middle;
        else
            high = middle;
    }
    return low << 16;
}

/* The same for tiles that weigh so much; ~0: not known. */
SYC_INLINE u32 threshold_by_weight(listed_shared *s, const syc_scale &scale, const u32 *tile, u32 key,
                                   u64 target)
{
    const u32 top = key >> 16;
#pragma unroll 1
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        const u32 own = c == 0   ? tile[0]
                        : c == 1 ? tile[1]
                        : c == 2 ? tile[2]
                                 : tile[3],
                  bin = top - (own >> 16);
        const u64 weight = own != 0 && bin < NEAR ? syc_weight_of(scale, own) : 0;
        if (weight == 0)
            continue;
        const u32 low = (u32)weight, old = atomicAdd(&s->near.low[bin], low);
        const u32 high = (u32)(weight >> 32) + (old + low < old ? 1u : 0u);
        if (high != 0)
            atomicAdd(&s->near.high[bin], high);
    }
    const u32 bin = near_bin(s, target);
    return bin != ~0u ? (top - bin) << 16 : ~0u;
}

/* The tiles of this thread whose bits are set are read again. */
SYC_INLINE void put_candidate_tiles(listed_shared *s, u32 mask)
{
    if (mask == 0)
        return;
    for (u32 slot = syc_shared_add(&s->n_candidate_tiles, (u32)__popc(mask)); mask != 0;
         mask &= mask - 1, slot++)
        s->candidate_tile[slot] = (u16)(((u32)__ffs((int)mask) - 1) * SYC_SAMPLE_THREADS + threadIdx.x);
}

/* Lists the tokens that reach a key; false when they are too many. */
template <sy_type T>
SYC_INLINE bool list_tokens(listed_shared *s, const syc_logits &row, const u32 *tile, u32 least)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_logits l = row;
    const syc_vectors v = syc_vectors_of<T>(l);
    const auto put = [&](u32 key, u32 i) {
        const u32 place = atomicAdd(&s->n_items, 1u);
        if (place < MOST_LISTED)
            s->item[place] = syc_rank_of(key, i);
    };
    u32 mask = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_OWN_TILES; c++)
        mask |= tile[c] != 0 && tile[c] >= least ? 1u << c : 0;
    put_candidate_tiles(s, mask);
    __syncthreads();
    const u32 turns = (v.n + SYC_TILES - 1) / SYC_TILES, candidate_tiles = s->n_candidate_tiles;
    if (candidate_tiles > MOST_LISTED)
        return false; /* each has a token that does */
#pragma unroll 1
    for (u32 item = threadIdx.x; item < candidate_tiles * turns; item += SYC_SAMPLE_THREADS) {
        const u32 turn = item / candidate_tiles,
                  at = turn * SYC_TILES + s->candidate_tile[item - turn * candidate_tiles],
                  first = v.head + at * n;
        if (at >= v.n)
            continue;
        const uint4 x = syc_vector_at<T>(l, first);
        u32 which = 0;
        const auto look = [&](u32 i, u32 bits) { which |= syi_key(bits) >= least ? 1u << (i - first) : 0; };
        syc_each_of<T>(first, x, look);
#pragma unroll 1
        for (; which != 0; which &= which - 1) {
            const u32 i = first + (u32)__ffs((int)which) - 1;
            put(syc_key_at<T>(l, i), i);
        }
    }
    syc_each_rest<T>(l, [&](u32 i, u32 bits) {
        if (syi_key(bits) >= least)
            put(syi_key(bits), i);
    });
    __syncthreads();
    return s->n_items <= MOST_LISTED;
}

/* The best score of a block, equal ones by larger item: s->token and its key. */
SYC_INLINE void take_best(listed_shared *s, u32 score, u64 item)
{
    const u32 best = warps_max(score, s->exchange[0]);
    const u32 key = warps_max(score == best ? (u32)(item >> 32) : 0, s->exchange[1]);
    const bool in = score == best && (u32)(item >> 32) == key;
    const u32 low = warps_max(in ? (u32)item : 0, s->exchange[2]);
    if (best != 0 && in && (u32)item == low) {
        s->token = ~low;
        s->token_key = key;
    }
}

/* A score of a token in place `place` of the order, and 1, as take_best compares them; e is not 0. */
SYC_INLINE u32 noisy_score(const syi_sample_plan &p, noise_source &from, float e, u32 place, u32 token)
{
    const bool by_list = p.noise != SY_NOISE_RACE && p.args.q_order == SY_Q_LIST;
    return __float_as_uint(syi_score(e, noise_at(from, by_list ? place : token), from.eps)) + 1;
}

/* Whether a token passes min-p, which is not 0; the first of the order does. */
SYC_INLINE bool passes_min_p(const syc_scale &scale, float min_p, u32 top, u32 key, u32 place)
{
    const float least = scale.probs_in ? __fmul_rn(min_p, scale.max > 0.0f ? scale.max : 0.0f) : min_p;
    return min_p >= 1.0f ? place == 0 : key == top || syc_e_of(scale, key) >= least;
}

/* The results of a row of which s->token was chosen, by one thread. */
SYC_INLINE void put_chosen(const syi_sample_plan &p, const listed_shared *s, const syc_scale &scale,
                           u32 flags, u32 kept, int64_t b)
{
    const bool certain = p.logprob.data == NULL || s->params.cold;
    if (threadIdx.x == 0)
        put_results(p, b, (int64_t)s->token, flags, kept,
                    certain ? 0.0f : log_share(scale, s->token_key, s->total));
}

/* Teams of 1 << team_bits(n) lanes, as many as there are of n. */
SYC_INLINE u32 team_bits(u32 n)
{
    return min(5u, 9u - (32u - (u32)__clz((int)n - 1)));
}

/* The sum of f(j) over all j below n, for the team of each i below n; other teams get 0. */
template <typename N, class F> SYC_INLINE N team_sum(u32 n, u32 bits, u32 i, u32 in_team, F f)
{
    N sum = 0;
    if (i < n)
#pragma unroll 4
        for (u32 j = in_team; j < n; j += 1u << bits)
            sum += f(j);
    for (u32 d = 1u << bits >> 1; d > 0; d /= 2)
        sum += __shfl_xor_sync(SYC_ALL_LANES, sum, (int)d);
    return sum;
}

/* A listed token of a team of lanes, once it is compared with all others. */
struct team_token {
    u32 bits, i, in_team, rank;
    u64 item, weight, before; /* before: what weighs before it in the order */
    bool speaks;              /* this lane has a token to speak for */
};

/* s->weight is known. */
SYC_INLINE team_token compare_listed(const listed_shared *s)
{
    constexpr int above = 50; /* the rank, above MOST_LISTED weights of at most 2^40 */
    const u32 n = s->n_items, bits = team_bits(n), i = threadIdx.x >> bits,
              in_team = threadIdx.x & ((1u << bits) - 1);
    const u64 item = i < n ? s->item[i] : 0, weight = i < n ? s->weight[i] : 0;
    const u64 before = team_sum<u64>(n, bits, i, in_team, [&](u32 j) {
        return s->item[j] > item ? s->weight[j] + ((u64)1 << above) : (u64)0;
    });
    return {bits,
            i,
            in_team,
            (u32)(before >> above),
            item,
            weight,
            before & (((u64)1 << above) - 1),
            i < n && in_team == 0};
}

/* Whether this lane speaks for the token of a draw from those that stay, by their weights in index order;
   *total, in shared memory, is their sum, known to all behind a barrier. */
SYC_INLINE bool draw_listed(listed_shared *s, const team_token &t, bool stays, const u64 *total)
{
    if (t.speaks)
        s->sorted[t.i] = stays ? t.weight : 0;
    __syncthreads();
    const u64 all = *total, target = syi_share_of(s->uniform, all);
    const u64 lower = team_sum<u64>(s->n_items, t.bits, t.i, t.in_team, [&](u32 j) {
        return (u32)s->item[j] > (u32)t.item ? s->sorted[j] : (u64)0;
    });
    return all == 0 ? t.speaks && t.rank == 0
                    : t.speaks && stays && lower <= target && target < lower + t.weight;
}

/* Puts the listed tokens into rank order: s->sorted, and what each weighs in s->weight. */
SYC_INLINE void rank_list(listed_shared *s, const syc_scale &scale, u32 n)
{
    static_assert((int)MOST_LISTED == 1 << 9, "team_bits");
    const u32 bits = team_bits(n), i = threadIdx.x >> bits, in_team = threadIdx.x & ((1u << bits) - 1);
    const u64 item = i < n ? s->item[i] : 0;
    const u32 rank = team_sum<u32>(n, bits, i, in_team, [&](u32 j) { return s->item[j] > item ? 1u : 0u; });
    if (in_team == 0 && i < n) {
        s->sorted[rank] = item;
        s->weight[rank] = syc_weight_of(scale, syc_key_of(item));
    }
    __syncthreads();
}

/* How many of the first `kept` top-p leaves; the mass of the row is from `mass` to `most`. UNDECIDED when the
   two do not lead to the same tokens, or the listed ones do not have so much. Where mass is 0, it is that of
   the first `kept`. */
SYC_INLINE u32 keep_mass(listed_shared *s, const syc_scale &scale, float top_p, u32 n, u32 kept, u64 mass,
                         u64 most)
{
    const bool known = mass != 0;
    const u64 own = threadIdx.x < n ? s->weight[threadIdx.x] : 0, upto = syc_warp_prefix(own);
    u64 *const prefix = s->item; /* which is no longer needed */
    prefix[threadIdx.x] = upto;
    __syncthreads();
    u64 before = upto - own, all = prefix[kept - 1];
#pragma unroll 1
    for (u32 w = 0; w < (u32)syc_warp() || w < (kept - 1) / 32; w++) {
        const u64 warp = prefix[w * 32 + 31];
        before += w < (u32)syc_warp() ? warp : 0;
        all += w < (kept - 1) / 32 ? warp : 0;
    }
    if (!known)
        mass = most = all;
    const u64 least = syi_mass_target(top_p, scale.probs_in ? SYI_WEIGHT_ONE : mass),
              target = mass == most ? least : syi_mass_target(top_p, most);
    const u32 enough = (u32)__syncthreads_count(threadIdx.x < kept && before < target);
    if (all < target)
        return known ? UNDECIDED : kept;
    if (target != least && (u32)__syncthreads_count(threadIdx.x < kept && before < least) != enough)
        return UNDECIDED;
    return enough;
}

/* One draw from the first `kept` by their weights, in index order. */
SYC_INLINE void draw_from_list(listed_shared *s, u32 kept)
{
    const u32 bits = team_bits(kept), i = threadIdx.x >> bits, in_team = threadIdx.x & ((1u << bits) - 1);
    const u64 item = i < kept ? s->sorted[i] : 0, weight = i < kept ? s->weight[i] : 0;
    u64 lower = 0, all = 0;
    if (i < kept)
#pragma unroll 4
        for (u32 j = in_team; j < kept; j += 1u << bits) {
            const u64 other = s->weight[j];
            all += other;
            lower += (u32)s->sorted[j] > (u32)item ? other : 0;
        }
    for (u32 d = 1u << bits >> 1; d > 0; d /= 2) {
        all += __shfl_xor_sync(SYC_ALL_LANES, all, (int)d);
        lower += __shfl_xor_sync(SYC_ALL_LANES, lower, (int)d);
    }
    const u64 target = syi_share_of(s->uniform, all);
    if (in_team == 0 && i < kept && (all == 0 ? i == 0 : lower <= target && target < lower + weight)) {
        s->token = syc_token_of(item);
        s->token_key = syc_key_of(item);
        s->total = all;
    }
}

SYC_INLINE u64 uniform_of(const syi_noise &noise)
{
    uint32_t word[4];
    syi_noise_words(&noise, UINT32_MAX, word);
    return word[0] | (u64)word[1] << 32;
}

/* The number that a draw depends on; by one thread, once the parameters are known. */
SYC_INLINE void make_uniform(const syi_sample_plan &p, listed_shared *s)
{
    if (p.noise != SY_NOISE_CDF)
        return;
    s->uniform = uniform_of(s->params.noise);
}

/* Which of the listed tokens stay, and which is chosen: s->token, s->token_key, and the weight of those that
   stay in s->total. Returns how many stay that are above -inf. The mass of the row is from `mass` to `most`,
   where it is known, else 0; UNDECIDED when the two do not lead to the same tokens. `made`: make_uniform has
   run; `plain`: see is_plain_call. */
template <bool plain = false>
SYC_INLINE u32 finish_list(const syi_sample_plan &p, listed_shared *s, const syc_scale &scale, u32 top, u32 k,
                           u64 mass, u64 most, int64_t b, bool made = false)
{
    const syc_params a = s->params;
    const u32 n = s->n_items, rank = threadIdx.x;
    const bool draws = !a.greedy && (plain || p.noise == SY_NOISE_CDF);
    if (!made && rank == SYC_SAMPLE_THREADS - 1) /* a warp that has least to do */
        make_uniform(p, s);
    rank_list(s, scale, n);
    const u64 item = rank < n ? s->sorted[rank] : 0;
    const u32 key = syc_key_of(item);
    u32 kept = k > 0 && k < n ? k : n;
    const auto keep_ties = [&](u32 all) { /* what equals the last that stays */
                                          if (!plain && p.args.ties == SY_TIES_ALL && kept != all)
                                              kept = (u32)__syncthreads_count(
                                                  rank < all && key >= syc_key_of(s->sorted[kept - 1]));
    };
    keep_ties(n);
    if (a.top_p < 1.0f) {
        const u32 all = kept;
        kept = keep_mass(s, scale, a.top_p, n, kept, mass, most);
        if (kept == UNDECIDED)
            return UNDECIDED;
        keep_ties(all);
    }
    if (!plain && a.min_p > 0.0f)
        kept = (u32)__syncthreads_count(rank < kept && passes_min_p(scale, a.min_p, top, key, rank));
    const bool in = rank < kept;
    if (draws)
        draw_from_list(s, kept);
    else {
        if (rank == 0) {
            s->token = syc_token_of(item);
            s->token_key = key;
        }
        if (p.logprob.data != NULL && syc_warp() == 0) {
            u64 all = 0;
            for (u32 j = rank; j < kept; j += 32)
                all += s->weight[j];
            all = syc_warp_sum(all);
            if (rank == 0)
                s->total = all;
        }
    }
    if (!a.greedy && !draws) {
        noise_source from = noise_source_of(p, a.noise, b);
        const float e = in ? syc_e_of(scale, key) : 0.0f;
        take_best(s, e > 0.0f ? noisy_score(p, from, e, rank, syc_token_of(item)) : 0, item);
    }
    u32 counted = kept;
    if (p.kept.data != NULL)
        counted = (u32)__syncthreads_count(in && key != SYI_KEY_MINUS_INF);
    __syncthreads();
    if (!plain && s->more != NULL)
        write_more(p, s, scale, kept, s->sorted[kept - 1], b);
    return counted;
}

/* The weight of a row; all threads. */
template <sy_type T>
SYC_INLINE u64 row_weight(listed_shared *s, const syc_logits &l, const syc_scale &scale,
                          const syc_parts &split, int64_t b)
{
    u64 own = 0;
    if (split.weight == NULL)
        own = weigh_share<T>(l, scale, syc_share_of<T>(l, syc_warp()), (u32)syc_lane(), 32);
    else if ((int)threadIdx.x < split.parts)
        own = __ldcg(split.weight + b * split.parts + threadIdx.x);
    return syc_block_sum(own, s->sum[0]);
}

/* A draw from the whole row by its weights: s->token, s->token_key and, in s->total, what the row weighs.
 * False: not so. */
template <sy_type T>
SYC_INLINE bool draw_from_row(listed_shared *s, const syc_logits &l, const syc_scale &scale,
                              const syc_parts &split, int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    static_assert((int)sample_policy::MOST_PARTS <= 64 && (int)SYC_BLOCK_WARPS <= 64, "two for each lane");
    const bool alone = split.weight == NULL;
    const u32 all = alone ? SYC_SAMPLE_THREADS / 32 : (u32)split.parts, lane = (u32)syc_lane();
    if (alone) {
        const u64 sum = syc_warp_sum(weigh_share<T>(l, scale, syc_share_of<T>(l, syc_warp()), lane, 32));
        if (lane == 0)
            s->weight[syc_warp()] = sum;
    } else if (threadIdx.x < all)
        s->weight[threadIdx.x] = __ldcg(split.weight + b * split.parts + threadIdx.x);
    __syncthreads();
    const syi_noise noise = s->params.noise;
    uint32_t word[4];
    syi_noise_words(&noise, UINT32_MAX, word);
    const u64 one = 2 * lane < all ? s->weight[2 * lane] : 0,
              other = 2 * lane + 1 < all ? s->weight[2 * lane + 1] : 0;
    const u64 upto = syc_warp_prefix(one + other), total = __shfl_sync(SYC_ALL_LANES, upto, 31),
              before = upto - one - other;
    const u64 target = syi_share_of(word[0] | (u64)word[1] << 32, total);
    const bool in_one = target < before + one;
    const int who =
        __ffs((int)__ballot_sync(SYC_ALL_LANES, target < upto)) - 1; /* the first; total is not 0 */
    const u64 rest = __shfl_sync(SYC_ALL_LANES, target - before - (in_one ? 0 : one), who);
    const int which = __shfl_sync(SYC_ALL_LANES, 2 * (int)lane + (in_one ? 0 : 1), who);
    const syc_share share = alone ? syc_share_of<T>(l, which) : syc_part_of<T>(l, which, split.parts);
    if (share.first != share.whole || share.rest != share.end)
        return false;
    const u32 vectors = (share.end - share.first) / n,
              each = (vectors + SYC_SAMPLE_THREADS - 1) / SYC_SAMPLE_THREADS;
    const u32 first = share.first + min(vectors, threadIdx.x * each) * n,
              end = share.first + min(vectors, (threadIdx.x + 1) * each) * n;
    u64 here;
    const u64 own = syc_weigh<T>(l, scale, first, end, n);
    u64 sum = syc_block_before(own, s->sum[0], &here);
    if (sum <= rest && rest < sum + own) {
        u32 i = first, bits;
        while ((sum += syc_weight_of_bits(scale, bits = syc_bits_at<T>(l, i))) <= rest)
            i++;
        s->token = i;
        s->token_key = syi_key(bits);
        s->total = total;
    }
    __syncthreads();
    return true;
}

/* Nothing was written if the row is not one of those, or the gate is closed. A wide row, whose tiles are
   known, is for the general steps; where its nucleus ends, may be known about (ROW_EDGE). */
enum outcome { ROW_DONE, ROW_LEFT, ROW_WIDE, ROW_CLOSED, ROW_EDGE, ROW_SAMPLE };

/* If not, the tiles and flags are known. */
/* NOLINT(readability-function-size): a row from its parameters to its results, by barriers */
template <sy_type T>
SYC_INLINE enum outcome listed_row(const syi_sample_plan &p, const syc_parts &split, listed_shared *s,
                                   int64_t b, const syc_gate *gate, u32 *tile, u32 &flags)
{
    const syc_logits l = row_logits(p, b);
    if (syc_warp() == 0) {
        const syc_params a = load_params(p, b);
        if (syc_lane() == 0) {
            s->params = a;
            s->n_items = s->n_candidate_tiles = 0;
        }
    }
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    syc_wait_for_previous();
    const bool fault = gate != NULL && syc_sees_fault(*gate);
    flags = get_tiles<T>(p, split, l, b, tile);
    const u32 own = max(max(tile[0], tile[1]), max(tile[2], tile[3])),
              warp_own = __reduce_max_sync(SYC_ALL_LANES, own);
    flags = any_flags(flags);
    if (syc_lane() == 0) {
        s->warp_key[syc_warp()] = warp_own;
        s->warp_flags[syc_warp()] = flags;
    }
    if (__syncthreads_or(fault) != 0) {
        if (blockIdx.x == 0 && threadIdx.x == 0)
            syc_report_rarely(*gate);
        return ROW_CLOSED;
    }
    const u32 key = of_warps(s->warp_key);
    flags = any_flags(s->warp_flags[syc_lane() % SYC_BLOCK_WARPS]);
    const syc_scale scale = {syi_key_value(key), s->params.inv_t, p.args.probs_in};
    const bool empty = key == SYI_KEY_MINUS_INF, cold = s->params.cold,
               final = p.logprob.data != NULL && !cold;
    int64_t token = p.empty_token;
    float lp = __uint_as_float(SYC_MINUS_INF_BITS);
    u32 kept = 0;
    if (s->params.greedy && !final && p.kept.data == NULL) {
        const u32 found = ~warps_max(~first_token<T>(l, tile, key), s->exchange[1]);
        token = empty ? token : (int64_t)found;
        lp = empty ? lp : 0.0f;
    } else {
        const int64_t k = s->params.one ? 1 : s->params.k;
        u64 mass = 0;
        u32 least = 0;
        const bool whole = k == 0 && s->params.top_p == 1.0f && s->params.min_p == 0.0f;
        if (empty || k > MOST_LISTED)
            return ROW_LEFT;
        if (whole) {
            if (s->params.greedy || p.noise != SY_NOISE_CDF || p.args.probs_in || p.kept.data != NULL ||
                !draw_from_row<T>(s, l, scale, split, b))
                return ROW_LEFT;
        } else if (k > 0)
            least = threshold_by_count(s, tile, own, key, (u32)k);
        else if (s->params.top_p < 1.0f && !p.args.probs_in) {
            mass = row_weight<T>(s, l, scale, split, b);
            least = threshold_by_weight(s, scale, tile, key, syi_mass_target(s->params.top_p, mass));
        } else
            return ROW_LEFT;
        if (!whole) {
            if (least == ~0u || !list_tokens<T>(s, l, tile, least))
                return ROW_LEFT;
            kept = finish_list(p, s, scale, key, (u32)k, mass, mass, b);
        }
        token = (int64_t)s->token;
        if (p.logprob.data != NULL && threadIdx.x == 0)
            lp = cold ? 0.0f : log_share(scale, s->token_key, s->total);
    }
    if (threadIdx.x == 0)
        put_results(p, b, token, flags | (empty ? SY_ROW_EMPTY : 0u), kept, lp);
    return ROW_DONE;
}
