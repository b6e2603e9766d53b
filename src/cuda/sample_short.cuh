/*
 * Rows of sample that few tokens decide, from registers, without the lists and sorts of the general steps. Which rows these
 * are depends on their parameters and contents alone.
 */
#ifndef SYC_SAMPLE_SHORT_CUH
#define SYC_SAMPLE_SHORT_CUH

#include "cuda/sample_general.cuh"

/*
 * The usual rows, in few steps: greedy ones, and those of which top-k or top-p leave no more tokens than a block has
 * threads. Every thread then compares one of them with the others.
 */
enum { NEAR = 512, QUICK = SYC_SAMPLE_THREADS, MANY = 2 * QUICK, FIRST_MOST = SYC_SAMPLE_THREADS / 2 }; /* the last: tokens of the order that are found by their cells, or threads */
#define UNDECIDED (~0u)

struct quick_shared {
    struct syc_params params;
    alignas(16) struct {
        u32 low[NEAR], high[NEAR];
    } near;            /* measures of cells by the distance of their upper halves from the largest */
    union {
        struct {
            u16 head[SYC_FEW]; /* cells that are read again */
            u64 item[QUICK];   /* listed */
            union {
                struct {
                    u64 sorted[QUICK], weight[QUICK]; /* the same in rank order, and their weights */
                };
                uint4 hit[QUICK]; /* vectors with tokens to list */
            };
        };
        uint4 many[MANY]; /* the same where none of those is used */
    };
    u32 part[4][SYC_BLOCK_WARPS];
    u64 wide[SYC_BLOCK_WARPS], rough[SYC_BLOCK_WARPS];
    u64 uniform, total;
    u32 n_items, n_heads, bin, key, token;
    const struct syc_more *more; /* NULL: nothing else is asked */
    bool wrote;                  /* that is written */
};

/* The quick steps, then the general ones. */
union rows_shared {
    struct syc_sample_shared general;
    struct quick_shared quick;
};

static __device__ __forceinline__ void put_top(const struct syi_sample_plan &p, int64_t b, u32 j, int64_t token, float logprob)
{
    syc_store_index(syc_out_row(p.top_token, b), j, token, p.top_token.type);
    syc_store<u32>(syc_out_row(p.top_logprob, b) + (int64_t)j * 4, __float_as_uint(logprob));
}

/* What else is asked of a row, from the first n of its candidates, in s->sorted; those after `last` do not count. Rows that are certain, or without weight, are
   left to logprob_row, which has the same for all others. */
SYC_COLD void write_more(const struct syi_sample_plan &p, struct quick_shared *s, struct syc_scale scale, u32 n, u64 last, int64_t b)
{
    const u64 total = s->total;
    const int64_t given = int_or(p.given_token, b, -1);
    const int bytes = p.logits.type == SY_TYPE_F32 ? 4 : 2;
    const float none = __uint_as_float(SYC_MINUS_INF_BITS);
    if (s->params.cold || total == 0)
        return;
    const auto rank_of = [&](u32 i) {
        const bool allowed = syc_allowed(p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, i);
        return syc_rank_of(allowed ? syi_key(__float_as_uint(syc_load_float(syc_row(p.logits, b) + (int64_t)i * bytes, p.logits.type))) : SYI_KEY_MINUS_INF, i);
    };
    const auto is_in = [&](u64 rank) { return syc_key_of(rank) != SYI_KEY_MINUS_INF && rank >= last; };
    const auto share = [&](u64 rank) { return is_in(rank) ? log_share(scale, syc_key_of(rank), total) : none; };
    const u64 own = given >= 0 ? rank_of((u32)given) : syc_rank_of(s->key, s->token);
    for (u32 j = threadIdx.x; j < (u32)p.n_top; j += SYC_SAMPLE_THREADS) {
        const u64 rank = j < n ? s->sorted[j] : 0;
        put_top(p, b, j, rank != 0 && is_in(rank) ? (int64_t)syc_token_of(rank) : -1, rank != 0 ? share(rank) : none);
    }
    for (u32 j = threadIdx.x; j < (u32)p.n_score; j += SYC_SAMPLE_THREADS) {
        const int64_t token = syc_index(syc_row(p.score_token, b), j, p.score_token.type);
        syc_store<u32>(syc_out_row(p.score_logprob, b) + (int64_t)j * 4, __float_as_uint(token >= 0 ? share(rank_of((u32)token)) : none));
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

static __device__ __forceinline__ u32 any_flags(u32 flags)
{
    return (__any_sync(SYC_ALL_LANES, (flags & SY_ROW_NAN) != 0) ? SY_ROW_NAN : 0u) |
           (__any_sync(SYC_ALL_LANES, (flags & SY_ROW_INF) != 0) ? SY_ROW_INF : 0u);
}

/* Larger of all lanes, or of what warps have left in `part`. */
static __device__ __forceinline__ u32 of_warps(const u32 *part)
{
    return __reduce_max_sync(SYC_ALL_LANES, part[syc_lane() % SYC_BLOCK_WARPS]);
}

static __device__ __forceinline__ u32 quick_max(u32 v, u32 *part)
{
    v = __reduce_max_sync(SYC_ALL_LANES, v);
    if (syc_lane() == 0)
        part[syc_warp()] = v;
    __syncthreads();
    return of_warps(part);
}

/* The first token that has the largest key: one of each warp's, or ~0. */
template <sy_type T> static __device__ __forceinline__ u32 first_token(const struct syc_logits &row, const u32 *cell, u32 key)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_logits l = row;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    u32 token = ~0u;
    const auto look = [&](u32 i, u32 bits) {
        if (syi_key(bits) == key)
            token = min(token, i);
    };
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
#pragma unroll 1
        for (u32 hot = __ballot_sync(SYC_ALL_LANES, cell[c] == key); hot != 0; hot &= hot - 1) {
            const u32 of = c * SYC_SAMPLE_THREADS + threadIdx.x - (u32)syc_lane() + (u32)__ffs((int)hot) - 1;
            if (v.head + of * n > token)
                continue; /* so is all of this cell */
#pragma unroll 1
            for (u32 at = of + (u32)syc_lane() * SYC_FEW; at < v.n; at += 32 * SYC_FEW)
                syc_each_of<T>(v.head + at * n, syc_vector_at<T>(l, v.head + at * n), look);
            token = __reduce_min_sync(SYC_ALL_LANES, token);
        }
    syc_each_rest<T>(l, look);
    return token;
}

/* The first bin from the top at which the sum of measures reaches a target; ~0: none does. */
static __device__ __forceinline__ u32 near_bin(struct quick_shared *s, u64 target)
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

/* A key that at least so many cells reach, and not many more. */
static __device__ __forceinline__ u32 count_floor(struct quick_shared *s, const u32 *cell, u32 own, u32 key, u32 target)
{
    const bool by_threads = 2 * target <= SYC_SAMPLE_THREADS; /* then a thread is one cell */
    const u32 top = key >> 16;
    if (by_threads) {
        if (own != 0 && top - (own >> 16) < NEAR)
            atomicAdd(&s->near.low[top - (own >> 16)], 1u);
    } else {
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++)
            if (cell[c] != 0 && top - (cell[c] >> 16) < NEAR)
                atomicAdd(&s->near.low[top - (cell[c] >> 16)], 1u);
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
            for (u32 c = 0; c < SYC_CELLS; c++)
                n += (u32)__syncthreads_count((c == 0 ? cell[0] : c == 1 ? cell[1] : c == 2 ? cell[2] : cell[3]) >> 16 >= middle);
        if (n >= target)
            low = middle;
        else
            high = middle;
    }
    return low << 16;
}

/* The same for cells that weigh so much; ~0: not known. */
static __device__ __forceinline__ u32 weight_floor(struct quick_shared *s, const struct syc_scale &scale, const u32 *cell, u32 key, u64 target)
{
    const u32 top = key >> 16;
#pragma unroll 1
    for (u32 c = 0; c < SYC_CELLS; c++) {
        const u32 own = c == 0 ? cell[0] : c == 1 ? cell[1] : c == 2 ? cell[2] : cell[3], bin = top - (own >> 16);
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

/* Lists the tokens that reach a key; false when they are too many. */
template <sy_type T>
static __device__ __forceinline__ bool list_tokens(struct quick_shared *s, const struct syc_logits &row, const u32 *cell, u32 least)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_logits l = row;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    const auto put = [&](u32 key, u32 i) {
        const u32 place = atomicAdd(&s->n_items, 1u);
        if (place < QUICK)
            s->item[place] = syc_rank_of(key, i);
    };
    u32 mask = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        mask |= cell[c] != 0 && cell[c] >= least ? 1u << c : 0;
    if (mask != 0)
        for (u32 slot = atomicAdd(&s->n_heads, (u32)__popc(mask)); mask != 0; mask &= mask - 1, slot++)
            s->head[slot] = (u16)(((u32)__ffs((int)mask) - 1) * SYC_SAMPLE_THREADS + threadIdx.x);
    __syncthreads();
    const u32 turns = (v.n + SYC_FEW - 1) / SYC_FEW, heads = s->n_heads;
    if (heads > QUICK)
        return false; /* each has a token that does */
#pragma unroll 1
    for (u32 item = threadIdx.x; item < heads * turns; item += SYC_SAMPLE_THREADS) {
        const u32 turn = item / heads, at = turn * SYC_FEW + s->head[item - turn * heads], first = v.head + at * n;
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
    return s->n_items <= QUICK;
}

/* The best score of a block, equal ones by larger item: the thread that has it leaves its item in s->total. */
static __device__ __forceinline__ void take_best(struct quick_shared *s, u32 score, u64 item)
{
    const u32 best = quick_max(score, s->part[1]);
    const u32 key = quick_max(score == best ? (u32)(item >> 32) : 0, s->part[2]);
    const bool in = score == best && (u32)(item >> 32) == key;
    const u32 low = quick_max(in ? (u32)item : 0, s->part[3]);
    if (best != 0 && in && (u32)item == low) {
        s->token = ~low;
        s->key = key;
    }
}

/* Teams of 1 << team_bits(n) lanes, as many as there are of n. */
static __device__ __forceinline__ u32 team_bits(u32 n)
{
    return min(5u, 9u - (32u - (u32)__clz((int)n - 1)));
}

/* The sum of f(j) over all j below n, for the team of each i below n; other teams get 0. */
template <typename N, class F> static __device__ __forceinline__ N team_sum(u32 n, u32 bits, u32 i, u32 in_team, F f)
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

/* Puts the listed tokens into rank order: s->sorted, and what each weighs in s->weight. */
static __device__ __forceinline__ void rank_list(struct quick_shared *s, const struct syc_scale &scale, u32 n)
{
    static_assert((int)QUICK == 1 << 9, "team_bits");
    const u32 bits = team_bits(n), i = threadIdx.x >> bits, in_team = threadIdx.x & ((1u << bits) - 1);
    const u64 item = i < n ? s->item[i] : 0;
    const u32 rank = team_sum<u32>(n, bits, i, in_team, [&](u32 j) { return s->item[j] > item ? 1u : 0u; });
    if (in_team == 0 && i < n) {
        s->sorted[rank] = item;
        s->weight[rank] = syc_weight_of(scale, syc_key_of(item));
    }
    __syncthreads();
}

/* How many of the first `kept` top-p leaves; the mass of the row is from `mass` to `most`. UNDECIDED when the two do not lead to
   the same tokens, or the listed ones do not have so much. Where mass is 0, it is that of the first `kept`. */
static __device__ __forceinline__ u32 keep_mass(struct quick_shared *s, const struct syc_scale &scale, float top_p, u32 n, u32 kept, u64 mass, u64 most)
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
    const u64 least = syi_mass_target(top_p, scale.probs_in ? SYI_WEIGHT_ONE : mass), target = mass == most ? least : syi_mass_target(top_p, most);
    const u32 enough = (u32)__syncthreads_count(threadIdx.x < kept && before < target);
    if (all < target)
        return known ? UNDECIDED : kept;
    if (target != least && (u32)__syncthreads_count(threadIdx.x < kept && before < least) != enough)
        return UNDECIDED;
    return enough;
}

/* One draw from the first `kept` by their weights, in index order. */
static __device__ __forceinline__ void draw_from_list(struct quick_shared *s, u32 kept)
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
        s->key = syc_key_of(item);
        s->total = all;
    }
}

static __device__ __forceinline__ u64 uniform_of(const struct syi_noise &noise)
{
    uint32_t word[4];
    syi_noise_words(&noise, UINT32_MAX, word);
    return word[0] | (u64)word[1] << 32;
}

/* The number that a draw depends on; by one thread, once the parameters are known. */
static __device__ __forceinline__ void make_uniform(const struct syi_sample_plan &p, struct quick_shared *s)
{
    if (p.noise != SY_NOISE_CDF)
        return;
    s->uniform = uniform_of(s->params.noise);
}

/* Which of the listed tokens stay, and which is chosen: s->token, s->key, and the weight of those that stay in s->total.
   Returns how many stay that are above -inf. The mass of the row is from `mass` to `most`, where it is known, else 0; UNDECIDED
   when the two do not lead to the same tokens. `made`: make_uniform has run; `plain`: see is_plain_call. */
template <bool plain = false>
static __device__ __forceinline__ u32 finish_list(const struct syi_sample_plan &p, struct quick_shared *s, const struct syc_scale &scale, u32 top, u32 k, u64 mass, u64 most, int64_t b, bool made = false)
{
    const struct syc_params a = s->params;
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
            kept = (u32)__syncthreads_count(rank < all && key >= syc_key_of(s->sorted[kept - 1]));
    };
    keep_ties(n);
    if (a.top_p < 1.0f) {
        const u32 all = kept;
        kept = keep_mass(s, scale, a.top_p, n, kept, mass, most);
        if (kept == UNDECIDED)
            return UNDECIDED;
        keep_ties(all);
    }
    if (!plain && a.min_p > 0.0f) {
        const float least = scale.probs_in ? __fmul_rn(a.min_p, scale.max > 0.0f ? scale.max : 0.0f) : a.min_p;
        const bool passes = a.min_p >= 1.0f ? rank == 0 : key == top || syc_e_of(scale, key) >= least;
        kept = (u32)__syncthreads_count(rank < kept && passes);
    }
    const bool in = rank < kept;
    if (draws)
        draw_from_list(s, kept);
    else {
        if (rank == 0) {
            s->token = syc_token_of(item);
            s->key = key;
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
        const bool race = p.noise == SY_NOISE_RACE;
        const float e = in ? syc_e_of(scale, key) : 0.0f;
        u32 score = 0;
        if (e > 0.0f) {
            const u32 token = syc_token_of(item);
            struct noise_source from = {race ? NULL : syc_row(p.q, b), race ? 0.0f : p.args.eps, a.noise, ~0u, {0, 0, 0, 0}};
            const float q = noise_at(from, !race && p.args.q_order == SY_Q_LIST ? rank : token);
            score = __float_as_uint(syi_score(e, q, from.eps)) + 1;
        }
        take_best(s, score, item);
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
static __device__ __forceinline__ u64 row_weight(struct quick_shared *s, const struct syc_logits &l, const struct syc_scale &scale, const struct syc_parts &split, int64_t b)
{
    u64 own = 0;
    if (split.weight == NULL)
        own = weigh_share<T>(l, scale, syc_share_of<T>(l, syc_warp()), (u32)syc_lane(), 32);
    else if ((int)threadIdx.x < split.parts)
        own = __ldcg(split.weight + b * split.parts + threadIdx.x);
    return syc_block_sum(own, s->wide);
}

/* A draw from the whole row by its weights: s->token, s->key and, in s->total, what the row weighs. False: not so. */
template <sy_type T>
static __device__ __forceinline__ bool draw_from_row(struct quick_shared *s, const struct syc_logits &l, const struct syc_scale &scale, const struct syc_parts &split, int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    static_assert((int)MOST_PARTS <= 64 && (int)SYC_BLOCK_WARPS <= 64, "two for each lane");
    const bool alone = split.weight == NULL;
    const u32 all = alone ? SYC_SAMPLE_THREADS / 32 : (u32)split.parts, lane = (u32)syc_lane();
    if (alone) {
        const u64 sum = syc_warp_sum(weigh_share<T>(l, scale, syc_share_of<T>(l, syc_warp()), lane, 32));
        if (lane == 0)
            s->weight[syc_warp()] = sum;
    } else if (threadIdx.x < all)
        s->weight[threadIdx.x] = __ldcg(split.weight + b * split.parts + threadIdx.x);
    __syncthreads();
    const struct syi_noise noise = s->params.noise;
    uint32_t word[4];
    syi_noise_words(&noise, UINT32_MAX, word);
    const u64 one = 2 * lane < all ? s->weight[2 * lane] : 0, other = 2 * lane + 1 < all ? s->weight[2 * lane + 1] : 0;
    const u64 upto = syc_warp_prefix(one + other), total = __shfl_sync(SYC_ALL_LANES, upto, 31), before = upto - one - other;
    const u64 target = syi_share_of(word[0] | (u64)word[1] << 32, total);
    const bool in_one = target < before + one;
    const int who = __ffs((int)__ballot_sync(SYC_ALL_LANES, target < upto)) - 1; /* the first; total is not 0 */
    const u64 rest = __shfl_sync(SYC_ALL_LANES, target - before - (in_one ? 0 : one), who);
    const int which = __shfl_sync(SYC_ALL_LANES, 2 * (int)lane + (in_one ? 0 : 1), who);
    const struct syc_share share = alone ? syc_share_of<T>(l, which) : syc_part_of<T>(l, which, split.parts);
    if (share.first != share.whole || share.rest != share.end)
        return false;
    const u32 vectors = (share.end - share.first) / n, each = (vectors + SYC_SAMPLE_THREADS - 1) / SYC_SAMPLE_THREADS;
    const u32 first = share.first + min(vectors, threadIdx.x * each) * n, end = share.first + min(vectors, (threadIdx.x + 1) * each) * n;
    u64 here;
    const u64 own = syc_weigh<T>(l, scale, first, end, n);
    u64 sum = syc_block_before(own, s->wide, &here);
    if (sum <= rest && rest < sum + own) {
        u32 i = first, bits;
        while ((sum += syc_weight_of_bits(scale, bits = syc_bits_at<T>(l, i))) <= rest)
            i++;
        s->token = i;
        s->key = syi_key(bits);
        s->total = total;
    }
    __syncthreads();
    return true;
}

/* Nothing was written if the row is not one of those, or the gate is closed. A wide row, whose cells are known, is for the
   general steps; where its nucleus ends, may be known about (QUICK_EDGE). */
enum quick { QUICK_DONE, QUICK_NO, QUICK_WIDE, QUICK_CLOSED, QUICK_EDGE, QUICK_SAMPLE };

/* If not, the cells and flags are known. */
template <sy_type T>
static __device__ __forceinline__ enum quick quick_row(const struct syi_sample_plan &p, const struct syc_parts &split, struct quick_shared *s, int64_t b,
                                                       const struct syc_gate *gate, u32 *cell, u32 &flags)
{
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    if (syc_warp() == 0) {
        const struct syc_params a = load_params(p, b);
        if (syc_lane() == 0) {
            s->params = a;
            s->n_items = s->n_heads = 0;
        }
    }
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    syc_wait_for_previous();
    const bool fault = gate != NULL && syc_sees_fault(*gate);
    flags = get_cells<T>(p, split, l, b, cell);
    const u32 own = max(max(cell[0], cell[1]), max(cell[2], cell[3])), warp_own = __reduce_max_sync(SYC_ALL_LANES, own);
    flags = any_flags(flags);
    if (syc_lane() == 0) {
        s->part[0][syc_warp()] = warp_own;
        s->part[1][syc_warp()] = flags;
    }
    if (__syncthreads_or(fault) != 0) {
        if (blockIdx.x == 0 && threadIdx.x == 0)
            syc_report_rarely(*gate);
        return QUICK_CLOSED;
    }
    const u32 key = of_warps(s->part[0]);
    flags = any_flags(s->part[1][syc_lane() % SYC_BLOCK_WARPS]);
    const struct syc_scale scale = {syi_key_value(key), s->params.inv_t, p.args.probs_in};
    const bool empty = key == SYI_KEY_MINUS_INF, cold = s->params.cold, final = p.logprob.data != NULL && !cold;
    int64_t token = p.empty_token;
    float lp = __uint_as_float(SYC_MINUS_INF_BITS);
    u32 kept = 0;
    if (s->params.greedy && !final && p.kept.data == NULL) {
        const u32 found = ~quick_max(~first_token<T>(l, cell, key), s->part[2]);
        token = empty ? token : (int64_t)found;
        lp = empty ? lp : 0.0f;
    } else {
        const int64_t k = s->params.one ? 1 : s->params.k;
        u64 mass = 0;
        u32 least = 0;
        const bool whole = k == 0 && s->params.top_p == 1.0f && s->params.min_p == 0.0f;
        if (empty || k > QUICK)
            return QUICK_NO;
        if (whole) {
            if (s->params.greedy || p.noise != SY_NOISE_CDF || p.args.probs_in || p.kept.data != NULL || !draw_from_row<T>(s, l, scale, split, b))
                return QUICK_NO;
        } else if (k > 0)
            least = count_floor(s, cell, own, key, (u32)k);
        else if (s->params.top_p < 1.0f && !p.args.probs_in) {
            mass = row_weight<T>(s, l, scale, split, b);
            least = weight_floor(s, scale, cell, key, syi_mass_target(s->params.top_p, mass));
        } else
            return QUICK_NO;
        if (!whole) {
            if (least == ~0u || !list_tokens<T>(s, l, cell, least))
                return QUICK_NO;
            kept = finish_list(p, s, scale, key, (u32)k, mass, mass, b);
        }
        token = (int64_t)s->token;
        if (p.logprob.data != NULL && threadIdx.x == 0)
            lp = cold ? 0.0f : log_share(scale, s->key, s->total);
    }
    if (threadIdx.x != 0)
        return QUICK_DONE;
    if (p.token.data != NULL)
        syc_store<u64>(p.token.data + b * 8, (u64)token);
    if (p.row_flags.data != NULL)
        syc_store<u32>(p.row_flags.data + b * 4, flags | (empty ? SY_ROW_EMPTY : 0u));
    if (p.kept.data != NULL)
        syc_store<u32>(p.kept.data + b * 4, kept);
    if (p.logprob.data != NULL)
        syc_store<u32>(p.logprob.data + b * 4, __float_as_uint(lp));
    return QUICK_DONE;
}

#endif
