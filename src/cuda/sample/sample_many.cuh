/*
 * The end of a row of which top-k leaves more tokens than are compared with each other: some thousand listed
 * ones at most, OWN_LISTED by each thread.
 */
#pragma once

#include "cuda/sample/sample_small_k.cuh"

/* ---- The list ---- */

/* The bin of a key: how far its upper half is below that of the first group's largest key, and some bins
   more, as far as there are bins. */
enum { BINS_ABOVE = 64 };

SYC_INLINE u32 listed_bin(u32 key, u32 first_top)
{
    return min((u32)max((int)(first_top >> 16) + BINS_ABOVE - (int)(key >> 16), 0), (u32)NEAR - 1);
}

/* The listed tokens of a row. */
struct row_list {
    u32 n, blocks;       /* tokens, of each block in its part of the list */
    u32 first_top, last; /* where bins begin; tokens of later bins than `last` are ruled out */
    u32 top;             /* the largest key */
};

SYC_INLINE u64 listed_item(const top_shared *s, u32 blocks, u32 i)
{
    u32 r = 0;
    for (; r + 1 < blocks && i >= (u32)s->count[r]; r++)
        i -= (u32)s->count[r];
    return s->list[r * (sample_policy::LIST / blocks) + i];
}

/* A draw from items by their weights, in index order: bins of tokens, then those of one bin, until that is
 * one token. */
template <class In>
SYC_INLINE void draw_by_bins(listed_shared *s, const syc_scale &scale, u32 vocab, const u64 *own, In in)
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
        for (u32 c = 0; c < OWN_LISTED; c++) {
            const u32 past = syc_token_of(own[c]) - base;
            if (in(c) && (u64)past >> span == 0)
                syc_shared_add(&s->near.low[past >> shift], &s->near.high[past >> shift],
                               syc_weight_of(scale, syc_key_of(own[c])));
        }
        __syncthreads();
        const u64 here = (u64)s->near.high[threadIdx.x] << 32 | s->near.low[threadIdx.x];
        u64 total;
        const u64 before = syc_block_before(here, s->sum[0], &total);
        if (first) {
            target = syi_share_of(s->uniform, total);
            if (threadIdx.x == 0)
                s->total = total;
            if (total == 0)
                break; /* the first of the order, which the caller has put */
        }
        if (before <= target && target < before + here) {
            s->bin = threadIdx.x;
            s->rest = target - before;
        }
        __syncthreads();
        base += s->bin << shift;
        target = s->rest;
        span = shift;
        first = false;
    } while (span > 0);
    __syncthreads();
    if (first)
        return;
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++)
        if (in(c) && syc_token_of(own[c]) == base) {
            s->token = base;
            s->token_key = syc_key_of(own[c]);
        }
}

/* Listed tokens of a thread, OWN_LISTED at most: token c is in place threadIdx.x + c * SYC_SAMPLE_THREADS. */
struct many_tokens {
    u64 own[OWN_LISTED];
    u32 place[OWN_LISTED]; /* in the order */
    u32 n, kept;           /* of the block: tokens; the first that stay */

    __device__ __forceinline__ bool is(u32 c) const { return threadIdx.x + c * SYC_SAMPLE_THREADS < n; }
    __device__ __forceinline__ bool stays(u32 c) const { return is(c) && place[c] < kept; }
    __device__ __forceinline__ u32 key(u32 c) const { return syc_key_of(own[c]); }

    /* How many of those that stay pass. */
    template <class Passes> __device__ __forceinline__ u32 count(u64 *sum, Passes passes) const
    {
        u32 count = 0;
#pragma unroll
        for (u32 c = 0; c < OWN_LISTED; c++)
            count += stays(c) && passes(c) ? 1u : 0u;
        return (u32)syc_block_sum(count, sum);
    }
};

/* The tokens that are not ruled out come together, and to their threads; returns the least key. */
SYC_INLINE u32 take_many(top_shared *shared, const row_list &of, many_tokens &t)
{
    u32 low = ~0u;
    t.n = of.n;
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++) {
        t.own[c] = t.is(c) ? listed_item(shared, of.blocks, threadIdx.x + c * SYC_SAMPLE_THREADS) : 0;
        if (t.is(c) && listed_bin(t.key(c), of.first_top) <= of.last)
            low = min(low, t.key(c));
        else
            t.own[c] = 0;
    }
    low = ~warps_max(~low, shared->listed.exchange[0]); /* and all have read the list */
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++)
        if (t.own[c] != 0)
            shared->list[syc_shared_add(&shared->n_many, 1u)] = t.own[c];
    __syncthreads();
    t.n = shared->n_many;
    return low;
}

/* Places in the order, from a histogram of keys down to `low`, and from comparisons among the tokens of a
   bin; where these would be many, the tokens are sorted. */
SYC_INLINE void place_many(top_shared *shared, u32 top, u32 low, many_tokens &t)
{
    listed_shared *const s = &shared->listed;
    u64 *const list = shared->list, total;
    const u32 bits = 32 - (u32)__clz((int)(top - low)), shift = bits > 9 ? bits - 9 : 0;
    const auto bin_at = [&](u32 c) { return (top - t.key(c)) >> shift; };
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++) {
        t.own[c] = t.is(c) ? list[threadIdx.x + c * SYC_SAMPLE_THREADS] : 0;
        t.place[c] = t.is(c) ? syc_shared_add(&s->near.low[bin_at(c)], 1u) : 0;
    }
    __syncthreads();
    s->near.high[threadIdx.x] = (u32)syc_block_before(s->near.low[threadIdx.x], s->sum[0], &total);
    if (__syncthreads_or(s->near.low[threadIdx.x] > sample_policy::CROWD) != 0 &&
        t.n <= sample_policy::SORTED) {
        syc_sort_few(list, (int)t.n);
#pragma unroll
        for (u32 c = 0; c < OWN_LISTED; c++) {
            t.place[c] = threadIdx.x + c * SYC_SAMPLE_THREADS;
            t.own[c] = t.is(c) ? list[t.place[c]] : 0;
        }
        __syncthreads();
        return;
    }
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++)
        if (t.is(c))
            list[s->near.high[bin_at(c)] + t.place[c]] = t.own[c];
    __syncthreads();
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++)
        if (t.is(c)) {
            const u32 begin = s->near.high[bin_at(c)], end = begin + s->near.low[bin_at(c)];
            t.place[c] = begin;
#pragma unroll 4
            for (u32 j = begin; j < end; j++)
                t.place[c] += list[j] > t.own[c] ? 1u : 0u;
        }
}

/* With all of the first `all` that are equal to the last that stays, where ties stay. */
SYC_INLINE void keep_many_ties(const syi_sample_plan &p, listed_shared *s, u32 all, many_tokens &t)
{
    if (p.args.ties != SY_TIES_ALL || t.kept == all)
        return;
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++)
        if (t.is(c) && t.place[c] == t.kept - 1)
            s->last_key = t.key(c);
    __syncthreads();
    t.kept = all;
    t.kept = t.count(s->sum[0], [&](u32 c) { return t.key(c) >= s->last_key; });
}

/* What top-p leaves of those that stay. */
SYC_INLINE void keep_many_mass(top_shared *shared, const syc_scale &scale, many_tokens &t)
{
    listed_shared *const s = &shared->listed;
    u64 *const weight = shared->list, total, sum = 0;
    __syncthreads();
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++)
        if (t.stays(c))
            weight[t.place[c]] = syc_weight_of(scale, t.key(c));
    __syncthreads();
    const u32 first = threadIdx.x * OWN_LISTED, end = min(first + OWN_LISTED, t.kept);
    for (u32 j = first; j < end; j++)
        sum += weight[j];
    u64 upto = syc_block_before(sum, s->sum[0], &total);
    const u64 target = syi_mass_target(s->params.top_p, scale.probs_in ? SYI_WEIGHT_ONE : total);
    if (upto < target && target <= upto + sum) {
        u32 j = first;
        while ((upto += weight[j]) < target)
            j++;
        s->n_kept = j + 1;
    }
    __syncthreads();
    if (total >= target)
        t.kept = s->n_kept;
    __syncthreads();
}

/* A race, or the caller's noise: s->token. */
SYC_INLINE void race_many(const syi_sample_plan &p, listed_shared *s, const syc_scale &scale,
                          const many_tokens &t, int64_t b)
{
    noise_source from = noise_source_of(p, s->params.noise, b);
    u32 best = 0;
    u64 item = 0;
#pragma unroll 1
    for (u32 c = 0; c < OWN_LISTED; c++) {
        u64 one = t.own[0];
        u32 place = t.place[0];
#pragma unroll
        for (u32 i = 1; i < OWN_LISTED; i++) {
            one = c == i ? t.own[i] : one;
            place = c == i ? t.place[i] : place;
        }
        const float e = t.is(c) && place < t.kept ? syc_e_of(scale, syc_key_of(one)) : 0.0f;
        if (!(e > 0.0f))
            continue;
        const u32 score = noisy_score(p, from, e, place, syc_token_of(one));
        if (score > best || (score == best && one > item)) {
            best = score;
            item = one;
        }
    }
    take_best(s, best, item);
}

/* As finish_list, for as many tokens as sample_policy::LIST. */
SYC_COLD u32 finish_many(const syi_sample_plan &p, top_shared *shared, row_list of, syc_scale scale, u32 k,
                         int64_t b)
{
    listed_shared *const s = &shared->listed;
    const syc_params a = s->params;
    const bool draws = !a.greedy && p.noise == SY_NOISE_CDF;
    many_tokens t = {};
    s->near.low[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        shared->n_many = 0;
    const u32 low = take_many(shared, of, t);
    place_many(shared, of.top, low, t);
    t.kept = min(k, t.n);
    keep_many_ties(p, s, t.n, t);
    if (a.top_p < 1.0f) {
        const u32 all = t.kept;
        keep_many_mass(shared, scale, t);
        keep_many_ties(p, s, all, t);
    }
    if (a.min_p > 0.0f)
        t.kept = t.count(s->sum[0],
                         [&](u32 c) { return passes_min_p(scale, a.min_p, of.top, t.key(c), t.place[c]); });
#pragma unroll
    for (u32 c = 0; c < OWN_LISTED; c++)
        if (t.is(c) && t.place[c] == 0) {
            s->token = syc_token_of(t.own[c]);
            s->token_key = t.key(c);
        }
    __syncthreads();
    if (draws)
        draw_by_bins(s, scale, (u32)p.vocab, t.own, [&](u32 c) { return t.stays(c); });
    else if (p.logprob.data != NULL) {
        u64 sum = 0;
#pragma unroll
        for (u32 c = 0; c < OWN_LISTED; c++)
            sum += t.stays(c) ? syc_weight_of(scale, t.key(c)) : 0;
        sum = syc_block_sum(sum, s->sum[0]);
        if (threadIdx.x == 0)
            s->total = sum;
    }
    if (!a.greedy && !draws)
        race_many(p, s, scale, t, b);
    __syncthreads();
    return t.kept;
}

/* ---- The end: a draw from many tokens ---- */

/* Weights by bins of tokens: those of bins before the last, and of that one, which has `there` tokens, the
 * first `wanted`: the last of them is s->last. */
SYC_INLINE void weigh_by_tokens(top_shared *shared, const row_list &of, const syc_scale &scale, u32 shift,
                                u32 there, u32 wanted)
{
    listed_shared *const s = &shared->listed;
    const auto add = [&](u64 item) {
        const u32 bin = syc_token_of(item) >> shift;
        syc_shared_add(&s->near.low[bin], &s->near.high[bin], syc_weight_of(scale, syc_key_of(item)));
    };
#pragma unroll 2
    for (u32 i = threadIdx.x; i < of.n; i += SYC_SAMPLE_THREADS) {
        const u64 item = listed_item(shared, of.blocks, i);
        const u32 bin = listed_bin(syc_key_of(item), of.first_top);
        if (bin < of.last)
            add(item);
        else if (bin == of.last)
            s->item[syc_shared_add(&s->n_items, 1u)] = item;
    }
    __syncthreads();
    const u32 bits = team_bits(there), own = threadIdx.x >> bits, in_team = threadIdx.x & ((1u << bits) - 1);
    const u64 item = own < there ? s->item[own] : 0;
    const u32 rank =
        team_sum<u32>(there, bits, own, in_team, [&](u32 j) { return s->item[j] > item ? 1u : 0u; });
    if (own < there && in_team == 0 && rank < wanted) {
        add(item);
        if (rank + 1 == wanted)
            s->last = item;
    }
    __syncthreads();
}

/*
 * As finish_many where nothing but k cuts the tokens, and one is drawn by weight: no places are needed.
 * Weights are summed by bins of tokens, and those of one bin are compared. Writes the results; false: nothing
 * is written, since a bin has too many, or there is no weight.
 */
SYC_COLD bool draw_many(const syi_sample_plan &p, top_shared *shared, row_list of, syc_scale scale, u32 k,
                        u32 flags, int64_t b)
{
    listed_shared *const s = &shared->listed;
    const u32 span = 32 - (u32)__clz((int)((u32)p.vocab - 1)), shift = span > 9 ? span - 9 : 0;
    const u32 kept = min(k, of.n), there = s->near.high[of.last], wanted = kept - (s->reached - there);
    static_assert((int)NEAR == 1 << 9 && (int)NEAR == (int)SYC_SAMPLE_THREADS, "a bin for each thread");
    __syncthreads();
    if (there > MOST_LISTED)
        return false;
    s->near.low[threadIdx.x] = s->near.high[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        s->n_items = shared->n_left = 0;
    __syncthreads();
    weigh_by_tokens(shared, of, scale, shift, there, wanted);
    u64 total;
    const u64 here = (u64)s->near.high[threadIdx.x] << 32 | s->near.low[threadIdx.x],
              before = syc_block_before(here, s->sum[0], &total), target = syi_share_of(s->uniform, total);
    if (total == 0)
        return false;
    if (before <= target && target < before + here) {
        s->bin = threadIdx.x;
        s->rest = target - before;
    }
    __syncthreads();
    const u64 rest = s->rest, least = s->last;
    const u32 chosen = s->bin;
#pragma unroll 2
    for (u32 i = threadIdx.x; i < of.n; i += SYC_SAMPLE_THREADS) {
        const u64 one = listed_item(shared, of.blocks, i);
        if (one < least || syc_token_of(one) >> shift != chosen)
            continue;
        const u32 place = syc_shared_add(&shared->n_left, 1u);
        if (place < MOST_LISTED) {
            s->sorted[place] = one;
            s->weight[place] = syc_weight_of(scale, syc_key_of(one));
        }
    }
    __syncthreads();
    const u32 left = shared->n_left;
    if (left > MOST_LISTED)
        return false;
    if (threadIdx.x < left) {
        const u64 one = s->sorted[threadIdx.x];
        u64 lower = 0;
#pragma unroll 4
        for (u32 j = 0; j < left; j++)
            lower += (u32)s->sorted[j] > (u32)one ? s->weight[j] : 0;
        if (lower <= rest && rest < lower + s->weight[threadIdx.x])
            put_results(p, b, (int64_t)syc_token_of(one), flags, kept,
                        p.logprob.data == NULL ? 0.0f : log_share(scale, syc_key_of(one), total));
    }
    return true;
}
