/*
 * Log-probabilities of a row of sample beyond that of the picked token, by a block: it cuts the distribution
 * that is asked for, weighs it, and writes all that is of it. Kernels that pick tokens do so of rows of which
 * they do not know enough.
 */
#pragma once

#include "cuda/sample/sample_launch.cuh"
#include "cuda/sample/sample_short.cuh"

/* ---- One row ---- */

struct logprob_shared {
    rows_shared rows;
    u64 first[FIRST_MOST];
    syc_sample_row row;
};

/* What is asked of a row. */
struct asked {
    int64_t picked, token; /* token: picked or given; -1: none */
    bool final, cold;
    u64 last,
        total; /* the last of the order in the distribution, 0: all are; and its weight, 0: it has no token */
    const u64 *first; /* of the order, in shared memory */
    u32 n_first;      /* 0: they are not known, else n_top or all of the distribution */
};

/* The first n of the order, or more, go to `first`; returns how many they are, 0 where ties or -inf are among
 * them. */
template <sy_type T> SYC_COLD u32 list_first(listed_shared *s, syc_logits l, uint4 tiles, u32 n, u64 *first)
{
    const u32 tile[SYC_OWN_TILES] = {tiles.x, tiles.y, tiles.z, tiles.w},
              own = max(max(tile[0], tile[1]), max(tile[2], tile[3]));
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        s->n_items = s->n_candidate_tiles = 0;
    const u32 key = warps_max(own, s->warp_key);
    if (key <= SYI_KEY_MINUS_INF)
        return 0;
    const u32 least = threshold_by_count(s, tile, own, key, n);
    if (least <= SYI_KEY_MINUS_INF || !list_tokens<T>(s, l, tile, least))
        return 0;
    rank_list(s, {syi_key_value(key), 1.0f, true}, s->n_items);
    if (threadIdx.x < n)
        first[threadIdx.x] = s->sorted[threadIdx.x];
    return n;
}

template <sy_type T> SYC_INLINE void read_largest(syc_sample_row &r)
{
    u32 tile[SYC_OWN_TILES];
    const u32 flags = get_tiles<T>(*r.p, r.split, r.logits, r.b, tile);
    scan_row<T>(r, tile, flags);
}

/* The same, and what a few first ones of the order are. */
template <sy_type T> SYC_INLINE void read_first(syc_sample_row &r, rows_shared *s, u64 *first, asked &a)
{
    const u32 n = (u32)min(r.p->n_top, (int64_t)FIRST_MOST + 1);
    u32 tile[SYC_OWN_TILES];
    const u32 flags = get_tiles<T>(*r.p, r.split, r.logits, r.b, tile);
    if (n > 0 && n <= FIRST_MOST) {
        a.n_first =
            list_first<T>(&s->listed, r.logits, make_uint4(tile[0], tile[1], tile[2], tile[3]), n, first);
        a.first = first;
        __syncthreads();
    }
    scan_row<T>(r, tile, flags);
}

/* The distribution: its logits, and what the filters leave of them. */
template <sy_type T>
SYC_COLD void open_row(syc_sample_row &r, const syi_sample_plan &p, u8 *own, size_t lists,
                       syc_sample_shared *s, int64_t b)
{
    const bool raw = p.logprob_mode == SY_LOGPROB_RAW;
    __syncthreads();
    if (threadIdx.x == 0) {
        r = {};
        r.p = &p;
        r.s = s;
        r.b = b;
        r.vocab = r.n = (u32)p.vocab;
        r.logits = {syc_row(p.logits, b), !raw && p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL,
                    r.vocab};
        r.scale = {0.0f, 1.0f, p.args.probs_in};
        r.list = (u64 *)(own + lists);
        r.top_p = 1.0f;
        if (!raw)
            read_parameters(r);
        r.greedy = false; /* the first of the order is known */
    }
    __syncthreads();
    if (!raw && p.overrides.indptr != NULL) {
        stage_row(r, (u32 *)own);
        syc_change([&] { r.logits = {own, NULL, (u32)p.vocab}; });
    }
}

SYC_INLINE float logprob_of(const syc_sample_row &r, const asked &a, u32 key, u32 token)
{
    if (a.cold)
        return token == (u32)a.picked ? 0.0f : __uint_as_float(SYC_MINUS_INF_BITS);
    return a.total == 0 || syc_rank_of(key, token) < a.last ? __uint_as_float(SYC_MINUS_INF_BITS)
                                                            : log_share(r.scale, key, a.total);
}

/* Tokens of the distribution before one that is in it; those are all before it in the order. */
template <sy_type T> SYC_COLD u32 count_before(const syc_sample_row &row, u64 rank)
{
    const syc_sample_row r = row;
    u32 n = 0;
    const auto count = [&](u32 i, u32 bits) { n += syc_rank_of(syi_key(bits), i) > rank; };
    __syncthreads();
    if (r.few)
        for (u32 j = threadIdx.x; j < r.n; j += blockDim.x)
            n += r.s->few[j] > rank;
    else if (r.spent)
        syc_each<T>(r.logits, count);
    else /* the tiles with a token that is not after it are mostly few */
        syc_each_candidate_tile<T>(r.logits, r.s, syc_key_of(rank), count);
    return (u32)syc_block_sum(n, r.s->part);
}

template <sy_type T> SYC_COLD u32 rank_of(const syc_sample_row &r, const asked &a)
{
    const u32 none = r.vocab + 1, token = (u32)a.token;
    if (a.picked < 0)
        return 0;
    if (a.cold)
        return a.token == a.picked ? 1 : none;
    const u64 rank = syc_rank_of(syc_key_at<T>(r.logits, token), token);
    const bool in = a.total != 0 && syc_key_of(rank) != SYI_KEY_MINUS_INF && rank >= a.last;
    return in ? 1 + count_before<T>(r, rank) : none;
}

/* Changes the candidates of the row to the first n_top of the order, and perhaps more. */
template <sy_type T> SYC_COLD void write_top(syc_sample_row &r, const asked &a)
{
    const syi_sample_plan &p = *r.p;
    const u32 n = (u32)p.n_top;
    if (a.total == 0 || a.cold) {
        for (u32 j = threadIdx.x; j < n; j += blockDim.x)
            put_top(p, r.b, j, j == 0 && a.cold ? a.picked : -1,
                    j == 0 && a.cold ? 0.0f : __uint_as_float(SYC_MINUS_INF_BITS));
        return;
    }
    if (a.n_first > 0) {
        for (u32 j = threadIdx.x; j < n; j += blockDim.x) {
            const u64 rank = j < a.n_first ? a.first[j] : 0;
            const bool in = syc_key_of(rank) > SYI_KEY_MINUS_INF && rank >= a.last;
            put_top(p, r.b, j, in ? (int64_t)syc_token_of(rank) : -1,
                    in ? logprob_of(r, a, syc_key_of(rank), syc_token_of(rank))
                       : __uint_as_float(SYC_MINUS_INF_BITS));
        }
        return;
    }
    if (!r.few) {
        const bool spent = r.spent;
        syc_change([&] {
            r.last = 0;
            r.n = r.vocab;
            r.shares = r.spent = r.all_ties = false;
        });
        if (spent)
            read_largest<T>(r);
        __syncthreads();
        keep_top_k<T>(r, n);
    }
    syc_change([&] { r.ranked = true; });
    make_list<T>(r);
    for (u32 j = threadIdx.x; j < n; j += blockDim.x) {
        syc_item item = {SYI_KEY_MINUS_INF, 0};
        if (j < r.n)
            item = listed_at<T>(r, j);
        const bool in = item.key != SYI_KEY_MINUS_INF && syc_rank_of(item.key, item.token) >= a.last;
        put_top(p, r.b, j, in ? (int64_t)item.token : -1,
                in ? logprob_of(r, a, item.key, item.token) : __uint_as_float(SYC_MINUS_INF_BITS));
    }
}

template <sy_type T> SYC_INLINE void write_row(syc_sample_row &r, const asked &a, u8 *logprob)
{
    const syi_sample_plan &p = *r.p;
    const u32 rank = p.rank.data != NULL ? rank_of<T>(r, a) : 0;
    if (threadIdx.x == 0 && p.rank.data != NULL)
        syc_store<u32>(p.rank.data + r.b * 4, rank);
    const bool scored = a.token >= 0;
    if (threadIdx.x == 0 && logprob != NULL)
        syc_store<u32>(
            logprob + r.b * 4,
            __float_as_uint(scored ? logprob_of(r, a, syc_key_at<T>(r.logits, (u32)a.token), (u32)a.token)
                                   : __uint_as_float(SYC_MINUS_INF_BITS)));
    for (u32 j = threadIdx.x; j < (u32)p.n_score; j += blockDim.x) {
        const int64_t token = syc_index(syc_row(p.score_token, r.b), j, p.score_token.type);
        const float logprob = token >= 0 ? logprob_of(r, a, syc_key_at<T>(r.logits, (u32)token), (u32)token)
                                         : __uint_as_float(SYC_MINUS_INF_BITS);
        syc_store<u32>(syc_out_row(p.score_logprob, r.b) + (int64_t)j * 4, __float_as_uint(logprob));
    }
    if (p.n_top > 0)
        write_top<T>(r, a);
}

/* All of a row of which a token was picked, -1 in an empty one. The block's scratch, and where its lists
   begin, are for overrides and for more than SYC_FEW first tokens. */
template <sy_type T>
SYC_INLINE void logprob_row(const syi_sample_plan &p, const syc_more &more, logprob_shared *s, int64_t picked,
                            u8 *own, size_t lists, int64_t b)
{
    syc_sample_row &row = s->row;
    const int64_t given = int_or(p.given_token, b, -1);
    asked a = {picked, given >= 0 ? given : picked, p.logprob_mode == SY_LOGPROB_FINAL, false, 0, 0, NULL, 0};
    if (threadIdx.x == 0 && more.token != NULL)
        syc_store<u64>(more.token + b * 8, (u64)(a.token >= 0 ? a.token : more.empty_token));
    if (p.logprob_mode == SY_LOGPROB_NONE)
        return;
    open_row<T>(row, p, own, lists, &s->rows.general, b);
    a.cold = a.final && row.cold && a.picked >= 0;
    if (!a.cold) {
        read_first<T>(row, &s->rows, s->first, a);
        __syncthreads();
        if (a.final && !row.empty)
            filter_row<T>(row);
        __syncthreads();
        a.last = row.last;
        a.total = row.empty ? 0 : measure<T>(row, true);
    }
    if (p.args.probs_in && !a.cold && !row.empty && a.total == 0)
        a.total = 1; /* tokens of no weight: all have -inf */
    __syncthreads();
    write_row<T>(row, a, more.logprob);
    __syncthreads();
}

/* ---- Kernels ---- */

/* By a kernel that has picked the token of a row and stored it: what else is asked. All threads. */
template <sy_type T>
SYC_COLD void finish_more(const syi_sample_plan &p, const syc_more &more, logprob_shared *s, int64_t b)
{
    __syncthreads();
    logprob_row<T>(p, more, s, (int64_t)syc_load<u64>(p.token.data + b * 8), NULL, 0, b);
}

template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    sample_logprobs(const __grid_constant__ syi_sample_plan p,
                    const __grid_constant__ logprob_scratch scratch, const __grid_constant__ syc_gate gate)
{
    __shared__ logprob_shared s;
    if (!syc_may_write(gate))
        return;
    const syc_more more = {true, p.token.data, p.logprob.data, p.empty_token};
#pragma unroll 1
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x)
        logprob_row<T>(p, more, &s, (int64_t)syc_load<u64>(scratch.token + b * 8),
                       scratch.data + blockIdx.x * scratch.of_block, scratch.lists, b);
}

template <sy_type T>
void syc_sample_logprobs(syc_call *call, const syi_sample_plan *p, const logprob_scratch *scratch,
                         int64_t blocks)
{
    syc_launch(&call->queue, sample_logprobs<T>, SYC_AFTER, blocks, SYC_SAMPLE_THREADS, 0, *p, *scratch,
               call->gate);
}
