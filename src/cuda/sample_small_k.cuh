/*
 * Rows of sample of which top-k leaves few tokens, where the rows are few, too: k is at most STREAM_MOST. A row is read whole; the largest
 * key of each thread gives a floor that k tokens reach for certain. Of the cells that reach it, a few of each hundred, the tokens are listed,
 * and decide. A row may have a cluster of blocks: each has a floor that its share of k tokens reaches, and the lowest counts.
 */
#ifndef SYC_SAMPLE_SMALL_K_CUH
#define SYC_SAMPLE_SMALL_K_CUH

#include "cuda/cluster.cuh"
#include "cuda/sample_stream.cuh"

enum {
    TOP_LIST = 3072,     /* tokens that are listed, at most */
    TOP_EACH = TOP_LIST / SYC_SAMPLE_THREADS,
    TOP_PIECES = 64,     /* of a row; each warp has SYC_CELLS of them */
    STREAM_MOST = SYC_SAMPLE_THREADS / 2, /* k of rows that one block reads with a certain floor: then few threads have two of the first k */
    TOP_BY_THREADS = 96, /* tokens of the first group that are found among the largest of each thread */
    TOP_SHORT = 320,     /* tokens that are ranked by comparing each with all others, at most */
    TOP_CROWD = 96,      /* tokens of a bin that are compared with each other; if there are more, all are sorted, as far as */
    TOP_SORTED = 2048,   /* there is room */
    TOP_CLUSTER = 4
};

struct top_shared {
    struct quick_shared quick;
    u64 list[TOP_LIST];
    u32 hit[TOP_LIST]; /* first tokens of vectors with tokens to list; the vectors themselves are in quick.hit, or quick.many, as far as they fit */
    u32 n_left;                                   /* tokens that bins do not rule out; or vectors that were kept */
    u32 top;                                      /* the largest key that is listed */
    u64 floors_gate, counts_gate, items_gate;     /* the last two of the first block of a cluster */
    u64 floor[TOP_CLUSTER];                       /* of each block */
    u64 count[TOP_CLUSTER], largest[TOP_CLUSTER]; /* of each block: tokens listed, flags << 32; the largest key */
};

/* ---- Reading -------------------------------------------------------------------------------------------------------- */

/* The step between the vectors of a thread's group, and the groups, of a row with a small k. */
static __device__ __forceinline__ u32 stream_step(u32 vectors) { return (vectors + SYC_FEW - 1) / SYC_FEW * SYC_SAMPLE_THREADS; }

/* The first two groups of a thread. */
template <sy_type T> static __device__ __forceinline__ void load_two(const struct syc_logits &l, const struct syc_vectors &v, u32 at, u32 apart, uint4 *y)
{
    const u32 step = stream_step(v.n);
    load_group<T>(l, v, at, step, y);
    if (at - threadIdx.x + apart < step)
        load_group<T>(l, v, at + apart, step, y + SYC_CELLS);
}

/* The largest words of a thread's cells, y being its first two groups; returns SY_ROW_NAN and SY_ROW_INF where they are wanted. The block has the groups
   from first_at on, `apart` vectors from one to the next. */
template <sy_type T>
static __device__ __forceinline__ u32 stream_cells(const struct syc_logits &l, const struct syc_vectors &v, uint4 *y, u32 first_at, u32 apart, bool wanted, u32 *cell)
{
    const u32 step = stream_step(v.n);
    u32 flags = 0, at = first_at + threadIdx.x;
    const auto see = [&](const uint4 *x) {
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            cell[c] = fold<T>(cell[c], x[c]);
            if (wanted)
                flags |= flags_of<T>(x[c]);
        }
    };
    const uint4 *next = vectors_at<T>(l, v, at + 2 * apart);
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        cell[c] = syc_minus_inf_word<T>();
#pragma unroll 1
    for (; at - threadIdx.x + 3 * apart < step && is_whole(l, v, at + 3 * apart, step); at += 2 * apart, next += 2 * apart) /* one group is on its way while another is looked at */
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            see(y + i * SYC_CELLS);
#pragma unroll
            for (u32 c = 0; c < SYC_CELLS; c++)
                y[i * SYC_CELLS + c] = __ldcg(next + i * apart + c * step);
        }
    see(y);
    if (at - threadIdx.x + apart < step)
        see(y + SYC_CELLS);
#pragma unroll 1
    for (at += 2 * apart; at < step; at += apart) {
        load_group<T>(l, v, at, step, y);
        see(y);
    }
    return flags;
}

/* Lists the tokens of a vector, from token `first` on, that reach a value. */
template <sy_type T> static __device__ __forceinline__ void list_vector_reaching(struct quick_shared *s, uint4 x, u32 first, float least)
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
        if (place < QUICK)
            s->item[place] = syc_rank_of(syi_key(bits_of<T>(x, j)), first + j);
    }
}

/* ---- Clusters ------------------------------------------------------------------------------------------------------- */

/* The lowest floor of all blocks of a cluster. */
static __device__ __forceinline__ u32 lowest_floor(struct top_shared *shared, u32 rank, u32 blocks, u32 floor)
{
    syc_cluster_ready();
    if (threadIdx.x < blocks && threadIdx.x != rank)
        syc_send(&shared->floor[rank], threadIdx.x, floor, &shared->floors_gate);
    syc_wait_at(&shared->floors_gate);
    for (u32 r = 0; r < blocks; r++)
        floor = r == rank ? floor : min(floor, (u32)shared->floor[r]);
    return floor;
}

/* The blocks of a cluster send what they have listed, where `listed`, to the first, which has the list of all then; false: it does not fit,
   there. Of another block nothing is left to do. */
static __device__ __forceinline__ bool gather_list(struct top_shared *shared, u32 rank, u32 blocks, u32 flags, bool listed)
{
    constexpr u32 room = TOP_LIST / TOP_CLUSTER;
    static_assert((int)QUICK <= (int)room, "what is sent is beside what the first block has kept");
    struct quick_shared *const s = &shared->quick;
    const auto fits = [](u32 n) { return n <= QUICK ? n : 0; };
    const u32 own = listed ? s->n_items : QUICK + 1;
    if (rank != 0) {
        if (threadIdx.x == 0) {
            syc_send(&shared->count[rank], 0, own | (u64)flags << 32, &shared->counts_gate);
            syc_send(&shared->largest[rank], 0, shared->top, &shared->counts_gate);
        }
        if (threadIdx.x < fits(own))
            syc_send(&shared->list[rank * room + threadIdx.x], 0, s->item[threadIdx.x], &shared->items_gate);
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
    if (all > QUICK)
        return false;
    for (u32 r = 1, at = own; r < blocks; at += (u32)shared->count[r], r++)
        if (threadIdx.x < (u32)shared->count[r])
            s->item[at + threadIdx.x] = shared->list[r * room + threadIdx.x];
    if (threadIdx.x == 0) {
        shared->top = top;
        s->n_items = all;
    }
    __syncthreads();
    return true;
}

/* ---- The end -------------------------------------------------------------------------------------------------------- */

/*
 * The first k of the listed tokens, what top-p leaves of them, and the results, where the token is the first or drawn by weight: each token
 * is compared with all others, by a team of lanes, which gives its rank and what comes before it in the order, then, for a draw, what
 * comes before it by index. The last of a prefix has the sum of it.
 */
static __device__ __forceinline__ void finish_small(const struct syi_sample_plan &p, struct quick_shared *s, const struct syc_scale &scale, u32 k, u32 flags, int64_t b)
{
    constexpr int above = 50; /* the rank, above QUICK weights of at most 2^40 */
    const u32 n = s->n_items, bits = team_bits(n), i = threadIdx.x >> bits, in_team = threadIdx.x & ((1u << bits) - 1);
    const float top_p = s->params.top_p;
    if (threadIdx.x < n)
        s->weight[threadIdx.x] = syc_weight_of(scale, syc_key_of(s->item[threadIdx.x]));
    __syncthreads();
    const u64 item = i < n ? s->item[i] : 0, weight = i < n ? s->weight[i] : 0;
    const u64 before = team_sum<u64>(n, bits, i, in_team, [&](u32 j) { return s->item[j] > item ? s->weight[j] + ((u64)1 << above) : (u64)0; });
    const u64 sum = before & (((u64)1 << above) - 1);
    const u32 rank = (u32)(before >> above);
    const bool speaks = i < n && in_team == 0;
    const u64 *total = &s->total; /* of what is kept */
    u32 kept = min(k, n);
    if (speaks && rank + 1 == kept)
        s->total = sum + weight;
    if (top_p < 1.0f) {
        __syncthreads();
        const u64 all = s->total, target = syi_mass_target(top_p, scale.probs_in ? SYI_WEIGHT_ONE : all);
        if (all >= target) {
            if (speaks && rank < kept && sum < target && target <= sum + weight) {
                s->bin = rank + 1;
                s->rough[0] = sum + weight;
            }
            __syncthreads();
            kept = s->bin;
            total = &s->rough[0];
        }
    }
    bool chosen = speaks && rank == 0;
    if (!s->params.greedy) {
        if (speaks)
            s->sorted[i] = rank < kept ? weight : 0;
        __syncthreads();
        const u64 all = *total, target = syi_share_of(s->uniform, all);
        const u64 lower = team_sum<u64>(n, bits, i, in_team, [&](u32 j) { return (u32)s->item[j] > (u32)item ? s->sorted[j] : (u64)0; });
        if (all != 0)
            chosen = speaks && rank < kept && lower <= target && target < lower + weight;
    } else if (p.logprob.data != NULL)
        __syncthreads();
    if (chosen)
        put_results(p, b, (int64_t)syc_token_of(item), flags, kept, p.logprob.data == NULL || s->params.cold ? 0.0f : log_share(scale, syc_key_of(item), *total));
}

/* ---- The row -------------------------------------------------------------------------------------------------------- */

/* Parameters and counters of a row; false: a fault was reported. All threads. */
static __device__ __forceinline__ bool begin_row(const struct syi_sample_plan &p, struct top_shared *shared, int64_t b, u32 closed)
{
    struct quick_shared *const s = &shared->quick;
    if (syc_warp() == 0) {
        const struct syc_params a = load_params(p, b);
        if (syc_lane() == 0) {
            s->params = a;
            s->n_items = s->n_heads = shared->n_left = shared->top = 0;
        }
    }
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    return __syncthreads_or(closed != 0) == 0;
}

/* k as it acts here, above TOP_LIST where it is larger; 0: off. */
static __device__ __forceinline__ u32 top_k_of(const struct syi_sample_plan &p, const struct syc_params &a)
{
    const bool first_only = a.one || (a.greedy && p.kept.data == NULL && (p.logprob.data == NULL || a.cold));
    return first_only ? 1u : (u32)min(a.k, (int64_t)TOP_LIST + 1);
}

/* The row by block `rank` of `blocks`; y is its first two groups. `plain`: see is_plain_call. */
template <sy_type T, bool plain>
static __device__ __forceinline__ enum quick small_k_row(const struct syi_sample_plan &p, struct top_shared *shared, const struct syc_logits &row, const struct syc_vectors &v, uint4 *y, u32 k, u32 rank,
                                                         u32 blocks, int64_t b)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    struct quick_shared *const s = &shared->quick;
    const struct syc_logits l = row;
    const u32 nothing = syc_minus_inf_word<T>(), step = stream_step(v.n);
    const u32 first_at = rank * SYC_SAMPLE_THREADS, apart = blocks * SYC_SAMPLE_THREADS; /* vectors: of this block, and from group to group */
    const u32 groups = (step - first_at + apart - 1) / apart;
    const bool wanted = !plain && p.row_flags.data != NULL;
    u32 cell[SYC_CELLS];
    if (rank == 0 && threadIdx.x == SYC_SAMPLE_THREADS - 1)
        make_uniform(p, s);
    u32 flags = stream_cells<T>(l, v, y, first_at, apart, wanted, cell);
    if (wanted && rank == 0)
        syc_each_rest<T>(l, [&](u32, u32 bits) { flags |= syi_key_flags(bits); });
    const u32 own = syc_word_key<T>(syc_max_word<T>(syc_max_word<T>(cell[0], cell[1]), syc_max_word<T>(cell[2], cell[3])));
    const u32 warp_own = __reduce_max_sync(SYC_ALL_LANES, own);
    if (wanted)
        flags = any_flags(flags);
    if (syc_lane() == 0) {
        s->part[0][syc_warp()] = warp_own;
        s->part[1][syc_warp()] = flags;
    }
    __syncthreads();
    const u32 largest = of_warps(s->part[0]);
    if (wanted)
        flags = any_flags(s->part[1][syc_lane() % SYC_BLOCK_WARPS]);
    u32 floor = guess_floor(s, &own, own, largest, (k + blocks - 1) / blocks, true);
    if (blocks > 1)
        floor = lowest_floor(shared, rank, blocks, floor);
    const float least = syi_key_value(floor);
    u32 mask = 0;
#pragma unroll
    for (u32 c = 0; c < SYC_CELLS; c++)
        mask |= word_value<T>(cell[c]) >= least ? 1u << c : 0;
    if (mask != 0)
        for (u32 slot = syc_shared_add(&s->n_heads, (u32)__popc(mask)); mask != 0; mask &= mask - 1, slot++)
            s->head[slot] = (u16)(((u32)__ffs((int)mask) - 1) * SYC_SAMPLE_THREADS + threadIdx.x);
    if (threadIdx.x == 0)
        atomicMax(&shared->top, largest);
    __syncthreads();
    const u32 heads = s->n_heads, all = heads * groups;
    if (heads > QUICK && blocks == 1)
        return QUICK_NO; /* ties, most likely */
#pragma unroll 1
    for (u32 item = threadIdx.x; item < all && heads <= QUICK; item += 2 * SYC_SAMPLE_THREADS) {
        uint4 x[2];
        u32 first[2];
#pragma unroll
        for (u32 i = 0; i < 2; i++) { /* two on their way at once */
            const u32 one = item + i * SYC_SAMPLE_THREADS, turn = one / heads, head = s->head[one - turn * heads];
            const u32 at = first_at + turn * apart + head / SYC_SAMPLE_THREADS * step + head % SYC_SAMPLE_THREADS;
            first[i] = v.head + at * n;
            x[i] = one < all && at < v.n ? syc_vector_at<T>(l, first[i]) : make_uint4(nothing, nothing, nothing, nothing);
        }
        list_vector_reaching<T>(s, x[0], first[0], least);
        if (item - threadIdx.x + SYC_SAMPLE_THREADS < all)
            list_vector_reaching<T>(s, x[1], first[1], least);
    }
    if (rank == 0)
        syc_each_rest<T>(l, [&](u32 i, u32 bits) {
            if (__uint_as_float(bits) >= least) {
                const u32 place = syc_shared_add(&s->n_items, 1u);
                if (place < QUICK)
                    s->item[place] = syc_rank_of(syi_key(bits), i);
                atomicMax(&shared->top, syi_key(bits));
            }
        });
    __syncthreads();
    if (blocks > 1 && !gather_list(shared, rank, blocks, flags, heads <= QUICK))
        return rank == 0 ? QUICK_NO : QUICK_DONE;
    const u32 top = shared->top;
    if (s->n_items > QUICK || s->n_items == 0)
        return QUICK_NO;
    const struct syc_scale scale = {syi_key_value(top), s->params.inv_t, p.args.probs_in};
    for (u32 r = 1; r < blocks; r++)
        flags |= (u32)(shared->count[r] >> 32);
    if (plain || ((s->params.greedy || p.noise == SY_NOISE_CDF) && s->params.min_p == 0.0f && p.args.ties != SY_TIES_ALL && s->more == NULL)) {
        finish_small(p, s, scale, k, flags, b);
        return QUICK_DONE;
    }
    const u32 kept = finish_list(p, s, scale, top, k, 0, 0, b, true);
    if (threadIdx.x == 0)
        put_results(p, b, (int64_t)s->token, flags, kept, p.logprob.data == NULL ? 0.0f : s->params.cold ? 0.0f : log_share(scale, s->key, s->total));
    return QUICK_DONE;
}

#endif
