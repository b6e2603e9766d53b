/*
 * moe_route on a device: what both of its kernels share, and the general one, a block per token, for any
 * number of experts and slots. Scores and values of a token are kept in scratch memory; a radix select finds
 * the K-th value, and the winners are sorted.
 */
#pragma once

#include "base/floats.h"

/*
 * above / below, rounded once, for a divisor from 1 to 4 and a dividend of 0 to 1 whose quotient is not
 * subnormal. The dividend is scaled so that no remainder is subnormal either: then the steps of a division
 * without its special cases are exact. The approximate reciprocal is where Newton's method begins; the last
 * step rounds.
 */
SYI_BOTH static inline float syc_quotient_of(float above, float below)
{
#ifndef __CUDA_ARCH__
    return above / below;
#else
    float near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(below));
    near = fmaf(near, fmaf(-below, near, 1.0f), near);
    const float scaled = above * 0x1p60f;
    float share = scaled * near;
    share = fmaf(fmaf(-below, share, scaled), near, share);
    share = fmaf(fmaf(-below, share, scaled), near, share);
    return share * 0x1p-60f;
#endif
}
#define SYI_SCORE_QUOTIENT(above, below) syc_quotient_of(above, below)

#include "plan/route_math.h"
#include "cuda/prim/block.cuh"
#include "cuda/prim/sort.cuh"
#include "cuda/runtime/context.cuh"
#include "cuda/prim/load.cuh"

struct syc_route {
    syi_moe_route_plan p;
    u64 *counts; /* [E+S], cleared; NULL: not asked for */
    /* [T*K] the pairs, if there is a capacity; -1: of a finished token, or of an unused slot */
    int32_t *expert;
    u32 *key;      /* [T*K] order of their weights */
    int64_t first; /* token of the launch */

    /* Few experts: a warp per token. */
    int each;        /* experts of a lane */
    int group_lanes; /* of a group, a power of two */
    bool direct;     /* shares order like logits but for rounding, and only those of winners are needed */
    bool wide_logits, wide_bias; /* vectors are aligned, every lane has as many experts */
    bool early;                  /* the kernel before may still run */

    /* Many: scratch of each block. */
    u8 *blocks;
    size_t block_bytes;
};

/* The canonical value of a float: NaN becomes -inf, +inf the largest number, -0 becomes +0. Adding 0 quiets a
   NaN that signals, which a maximum might return. */
SYC_INLINE float syc_canonical_number(float x)
{
    return fminf(fmaxf(x + 0.0f, -INFINITY), 0x1.fffffep127f);
}

/* What the scores of a softmax need besides the logits. */
struct syc_softmax {
    float max;
    double divisor;
};

SYC_INLINE float syc_route_score(sy_route_score score, u32 key, const syc_softmax &softmax)
{
    if (score == SY_SCORE_SOFTMAX)
        return syi_share(syi_exp(syi_key_value(key) - softmax.max), softmax.divisor);
    return syi_lone_score(score, key);
}

SYC_INLINE int64_t syc_float_bytes(sy_type type)
{
    return type == SY_TYPE_F32 ? 4 : 2;
}

SYC_INLINE u32 syc_logit_key(const syi_moe_route_plan &p, int64_t t, int64_t e)
{
    return syi_key(__float_as_uint(
        syc_load_float(syc_row(p.logits, t) + e * syc_float_bytes(p.logits.type), p.logits.type)));
}

SYC_INLINE bool syc_is_finished(const syi_moe_route_plan &p, int64_t t)
{
    return p.finished.data != NULL && p.finished.data[t] != 0;
}

/* The key of the value that decides about an expert of this score and key. */
SYC_INLINE u32 syc_route_value(const syi_moe_route_plan &p, int64_t e, float score, u32 key)
{
    const float bias = p.bias.data != NULL ? __uint_as_float(syc_load<u32>(p.bias.data + e * 4)) : 0.0f;
    return syi_key(__float_as_uint((p.args.select == SY_SELECT_LOGIT ? syi_key_value(key) : score) + bias));
}

SYC_INLINE u32 syc_shared_key(const syi_moe_route_plan &p, int64_t t, int64_t i)
{
    return syi_key(__float_as_uint(syc_load_float(
        syc_row(p.shared_logits, t) + i * syc_float_bytes(p.shared_logits.type), p.shared_logits.type)));
}

/* The sum of weights with the scores of the shared experts. */
SYC_COLD float syc_add_shared(const syi_moe_route_plan &p, int64_t t, float sum)
{
#pragma unroll 1
    for (int64_t i = 0; i < p.args.n_shared; i++)
        sum += syi_lone_score(p.args.score, syc_shared_key(p, t, i));
    return sum;
}

/* ---- Given experts ---- */

/* The expert of a slot, or -1. */
SYC_INLINE int syc_given_expert(const syi_moe_route_plan &p, int64_t row, int64_t j)
{
    const int64_t id = syi_given_id(&p, row, j);
    return syi_is_expert(&p, id) ? (int)id : -1;
}

/* An item is a slot; the row of a token is that of its first. */
struct syc_given_check {
    syi_moe_route_plan p;
    syc_split slots;
    int64_t n; /* T*K */

    __device__ bool fault(int64_t i, syi_found *f) const
    {
        const int64_t t = syc_quotient(i, slots), j = i - t * p.k;
        if (syc_is_finished(p, t))
            return false;
        const int64_t row = syi_given_row(&p, t);
        *f = syi_bad_at(SYI_BAD_GIVEN_ROW, t, -1, row, p.given_rows);
        if (row < 0 || row >= p.given_rows)
            return j == 0;
        const int64_t id = syi_given_id(&p, row, j);
        int64_t first = 0;
        *f = syi_bad_at(SYI_BAD_GIVEN_ID, t, j, id, p.n_experts);
        if (!syi_is_expert(&p, id))
            return !syi_is_unused(&p, id);
        while (first < j && syi_given_id(&p, row, first) != id)
            first++;
        *f = syi_bad_at(SYI_BAD_GIVEN_TWICE, t, j, id, first);
        return first < j;
    }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }
};

/* ---- Outputs ---- */

/* Clears bytes by `step` threads, of which this is number `own`. */
SYC_COLD void syc_clear_bytes(u8 *to, int64_t bytes, int own, int step)
{
    const int64_t head = min(bytes, (int64_t)((16 - (uintptr_t)to % 16) % 16)), vectors = (bytes - head) / 16;
    const int64_t tail = head + vectors * 16;
#pragma unroll 1
    for (int64_t i = own; i < vectors; i += step)
        ((uint4 *)(to + head))[i] = make_uint4(0, 0, 0, 0);
#pragma unroll 1
    for (int64_t i = own; i < head + bytes - tail; i += step)
        to[i < head ? i : i - head + tail] = 0;
}

static __device__ void syc_clear_rows(const syi_moe_route_plan &p, int64_t t, int own, int step)
{
    if (p.map.data != NULL)
        syc_clear_bytes(syc_out_row(p.map, t), p.n_columns, own, step);
    if (p.probs.data != NULL)
        syc_clear_bytes(syc_out_row(p.probs, t), p.n_columns * syc_float_bytes(p.probs.type), own, step);
}

SYC_INLINE void syc_put_slot(const syi_moe_route_plan &p, int64_t t, int64_t slot, int64_t e, float w)
{
    if (p.ids.data != NULL)
        syc_store_index(syc_out_row(p.ids, t), slot, e, p.ids.type);
    if (p.weights.data != NULL)
        syc_store_float(syc_out_row(p.weights, t) + slot * syc_float_bytes(p.weights.type), p.weights.type,
                        w);
}

/* Everything about one slot; the rows of map and probs are cleared already. E+S is that of a finished token,
   -1 is unused. */
SYC_INLINE void syc_put_winner(const syc_route &r, int64_t t, int64_t slot, int e, float w)
{
    const syi_moe_route_plan &p = r.p;
    syc_put_slot(p, t, slot, e, w);
    if (r.expert != NULL && slot < p.k) {
        r.expert[t * p.k + slot] = e < (int)p.n_experts ? e : -1;
        r.key[t * p.k + slot] = syi_key(__float_as_uint(w));
    }
    if ((u32)e >= (u32)p.n_columns)
        return;
    if (p.map.data != NULL)
        syc_out_row(p.map, t)[e] = 1;
    if (p.probs.data != NULL)
        syc_store_float(syc_out_row(p.probs, t) + e * syc_float_bytes(p.probs.type), p.probs.type, w);
    if (r.counts != NULL)
        atomicAdd(&r.counts[e], 1ull);
}

/* The slots of shared experts, by `step` threads, of which this is number `own`. */
SYC_COLD void syc_put_shared(const syc_route &r, int64_t t, bool finished, float divisor, int own, int step)
{
    const syi_moe_route_plan &p = r.p;
#pragma unroll 1
    for (int i = own; i < (int)p.args.n_shared; i += step) {
        const float w =
            finished
                ? 0.0f
                : syi_shared_weight(&p, p.shared_logits.data != NULL ? syc_shared_key(p, t, i) : 0, divisor);
        syc_put_winner(r, t, p.k + i, (int)(finished ? p.n_columns : p.n_experts + i), w);
    }
}

/* ---- Many experts ---- */

enum { SYC_ROUTE_THREADS = 512 };

struct syc_route_shared {
    u32 digits[SYC_BLOCK_WARPS * SYC_DIGITS];
    u64 part[SYC_BLOCK_WARPS];
    u32 digit, rest;
    float sum;
};

/* Scratch of a block. */
struct syc_route_block {
    float *score;  /* [E] */
    u32 *value;    /* [E] keys of the selection; 0: not selectable */
    u32 *group;    /* [groups] */
    u64 *list[2];  /* [K] */
    float *weight; /* [K] */
};

static inline size_t syc_route_block_bytes(const syi_moe_route_plan *p)
{
    return ((size_t)p->n_experts * 8 + (size_t)p->args.groups * 4 + (size_t)p->k * 20 + 255) / 256 * 256;
}

static __device__ syc_route_block syc_route_block_of(const syi_moe_route_plan &p, u8 *memory)
{
    syc_route_block b;
    b.list[0] = (u64 *)memory;
    b.list[1] = b.list[0] + p.k;
    b.score = (float *)(b.list[1] + p.k);
    b.value = (u32 *)(b.score + p.n_experts);
    b.weight = (float *)(b.value + p.n_experts);
    b.group = (u32 *)(b.weight + p.k);
    return b;
}

/* Scores and keys of all experts. */
SYC_COLD void syc_score_many(const syc_route &r, const syc_route_block &b, int64_t t, syc_route_shared *s)
{
    const syi_moe_route_plan &p = r.p;
    syc_softmax softmax = {0.0f, 1.0};
    if (p.args.score == SY_SCORE_SOFTMAX) {
        u64 top = 0, total = 0;
        for (int64_t e = threadIdx.x; e < p.n_experts; e += blockDim.x)
            top = max(top, (u64)syc_logit_key(p, t, e));
        softmax.max = syi_key_value((u32)syc_block_max(top, s->part));
        for (int64_t e = threadIdx.x; e < p.n_experts; e += blockDim.x)
            total += syi_weight(syi_exp(syi_key_value(syc_logit_key(p, t, e)) - softmax.max));
        softmax.divisor = syi_share_divisor(syc_block_sum(total, s->part));
    }
    for (int64_t e = threadIdx.x; e < p.n_experts; e += blockDim.x) {
        const u32 key = syc_logit_key(p, t, e);
        const float score = syc_route_score(p.args.score, key, softmax);
        b.score[e] = score;
        b.value[e] = syc_route_value(p, e, score, key);
        if (p.scores.data != NULL)
            syc_store<u32>(syc_out_row(p.scores, t) + e * 4, __float_as_uint(score));
    }
    __syncthreads();
}

/*
 * The k first of n keys, the largest first and equal ones by place: visit(i, j) for every place i, where j is
 * -1 for those that are not among them, and otherwise counts them in order of their places. A radix select
 * finds the k-th key.
 */
template <class Key, class Visit>
SYC_INLINE void syc_choose(int64_t n, int64_t k, syc_route_shared *s, Key key, Visit visit)
{
    u32 prefix = 0, mask = 0, rest = (u32)k;
    for (int shift = 24; shift >= 0; shift -= 8) {
        u64 total;
        __syncthreads();
        for (int d = (int)threadIdx.x; d < SYC_DIGITS; d += (int)blockDim.x)
            s->digits[d] = 0;
        __syncthreads();
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            const u32 own = key(i);
            if ((own & mask) == prefix)
                atomicAdd(&s->digits[own >> shift & 255], 1u);
        }
        __syncthreads();
        const u64 own = threadIdx.x < SYC_DIGITS ? s->digits[SYC_DIGITS - 1 - threadIdx.x] : 0;
        const u64 above = syc_block_before(own, s->part, &total);
        if (above < rest && rest <= above + own) {
            s->digit = SYC_DIGITS - 1 - threadIdx.x;
            s->rest = rest - (u32)above;
        }
        __syncthreads();
        rest = s->rest;
        prefix |= s->digit << shift;
        mask |= 255u << shift;
    }
    u64 before = 0; /* larger ones in the upper half, equal ones in the lower */
    for (int64_t first = 0; first < n; first += blockDim.x) {
        const int64_t i = first + threadIdx.x;
        const u32 own = i < n ? key(i) : 0;
        const u64 counts = i >= n ? 0 : own > prefix ? 1ull << 32 : own == prefix ? 1 : 0;
        u64 total;
        const u64 here = before + syc_block_before(counts, s->part, &total);
        const u32 larger = (u32)(here >> 32), equal = (u32)here;
        if (i < n)
            visit(i, counts > 1 || (counts == 1 && equal < rest) ? (int64_t)larger + min(equal, rest) : -1);
        before += total;
    }
    __syncthreads();
}

/* The key of the sum of the largest values of a group, added from the largest on; a warp finds one after the
   other. */
SYC_COLD u32 syc_sum_of_largest(const u32 *value, u32 size, int64_t n)
{
    float sum = 0.0f;
    u32 below = UINT32_MAX; /* larger ones are in the sum */
    while (n > 0) {
        u32 top = 0, equal = 0;
        for (u32 i = (u32)syc_lane(); i < size; i += 32) {
            const u32 own = value[i];
            equal = own >= below || own < top ? equal : own == top ? equal + 1 : 1;
            top = own >= below || own < top ? top : own;
        }
        below = __reduce_max_sync(SYC_ALL_LANES, top);
        const u32 all = __reduce_add_sync(SYC_ALL_LANES, top == below ? equal : 0u);
        for (u32 i = 0; i < all && n > 0; i++, n--)
            sum += syi_key_value(below);
    }
    return syi_group_key(sum);
}

/* Excludes the experts of all groups but the best. A warp per group finds its value. */
SYC_COLD void syc_keep_groups(const syi_moe_route_plan &p, const syc_route_block &b, syc_route_shared *s)
{
    const u32 size = (u32)(p.n_experts / p.args.groups);
    for (int64_t g = syc_warp(); g < p.args.groups; g += syc_warps()) {
        u32 first = 0, second = 0;
        if (p.group_sum > 2) {
            const u32 sum = syc_sum_of_largest(b.value + g * size, size, p.group_sum);
            if (syc_lane() == 0)
                b.group[g] = sum;
            continue;
        }
        for (u32 i = (u32)syc_lane(); i < size; i += 32)
            syi_keep_two(&first, &second, b.value[g * size + i]);
        for (int d = 1; d < 32; d *= 2) {
            const u32 other = __shfl_xor_sync(SYC_ALL_LANES, first, d),
                      next = __shfl_xor_sync(SYC_ALL_LANES, second, d);
            syi_keep_two(&first, &second, other);
            syi_keep_two(&first, &second, next);
        }
        if (syc_lane() == 0)
            b.group[g] = p.group_sum > 1 ? syi_key_sum(first, second) : first;
    }
    __syncthreads();
    syc_choose(
        p.args.groups, p.args.top_groups, s, [&](int64_t g) { return b.group[g]; },
        [&](int64_t g, int64_t j) { b.group[g] = j < 0 ? b.group[g] : 0; });
    for (u32 e = threadIdx.x; e < (u32)p.n_experts; e += blockDim.x)
        if (b.group[e / size] != 0)
            b.value[e] = 0;
    __syncthreads();
}

/* Weights of n winners, in order of their values; returns what they were divided by. */
SYC_COLD float syc_weigh_many(const syi_moe_route_plan &p, const syc_route_block &b, const u64 *winner,
                              int64_t n, int64_t t, syc_route_shared *s)
{
    syc_softmax softmax = {0.0f, 1.0};
    if (p.args.softmax_after) {
        u64 top = 0, total = 0;
        for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
            top = max(top, (u64)syc_logit_key(p, t, (u32)winner[j]));
        softmax.max = syi_key_value((u32)syc_block_max(top, s->part));
        for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
            total += syi_weight(syi_exp(syi_key_value(syc_logit_key(p, t, (u32)winner[j])) - softmax.max));
        softmax.divisor = syi_share_divisor(syc_block_sum(total, s->part));
    }
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
        b.weight[j] = p.args.softmax_after
                          ? syc_route_score(SY_SCORE_SOFTMAX, syc_logit_key(p, t, (u32)winner[j]), softmax)
                          : syi_score_weight(b.score[(u32)winner[j]]);
    __syncthreads();
    if (p.args.renormalize && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int64_t j = 0; j < n; j++)
            sum += b.weight[j];
        s->sum = syi_route_divisor(&p, p.args.shared_in_sum ? syc_add_shared(p, t, sum) : sum);
    }
    __syncthreads();
    const float divisor = s->sum;
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
        b.weight[j] = syi_scaled_weight(
            &p, (u32)winner[j], p.args.renormalize ? syi_renormalized(b.weight[j], divisor) : b.weight[j]);
    __syncthreads();
    return divisor;
}

/* The given experts of a token, weighed and put. */
SYC_COLD float syc_given_many(const syc_route &r, const syc_route_block &b, int64_t t, syc_route_shared *s)
{
    const syi_moe_route_plan &p = r.p;
    const int64_t row = syi_given_row(&p, t);
    u64 used = 0;
    for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x) { /* unused ones come last */
        const int e = syc_given_expert(p, row, j);
        b.list[0][j] = e >= 0 ? (u64)~b.value[e] << 32 | (u64)e : ~0ull;
        used += e >= 0;
    }
    const int64_t n = (int64_t)syc_block_sum(used, s->part);
    const u64 *const winner = syc_sort_many(b.list[0], b.list[1], p.k, 64, s->digits);
    const float divisor = syc_weigh_many(p, b, winner, n, t, s);
    for (int64_t j = threadIdx.x; j < n; j += blockDim.x)
        b.score[(u32)winner[j]] = b.weight[j];
    __syncthreads();
    for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x) {
        const int e = syc_given_expert(p, row, j);
        syc_put_winner(r, t, j, e, e >= 0 ? b.score[e] : 0.0f);
    }
    return divisor;
}

/* The best experts of a token, weighed and put. */
SYC_INLINE float syc_choose_many(const syc_route &r, const syc_route_block &b, int64_t t, syc_route_shared *s)
{
    const syi_moe_route_plan &p = r.p;
    if (p.args.groups > 0)
        syc_keep_groups(p, b, s);
    syc_choose(
        p.n_experts, p.k, s, [&](int64_t e) { return b.value[e]; },
        [&](int64_t e, int64_t j) {
            if (j >= 0)
                b.list[0][j] = (u64)~b.value[e] << 32 | (u64)e;
        });
    const u64 *winner = syc_sort_many(b.list[0], b.list[1], p.k, 64, s->digits);
    const float divisor = syc_weigh_many(p, b, winner, p.k, t, s);
    if (p.args.slot_order == SY_SLOT_EXPERT) { /* an expert and where its weight is */
        u64 *const other = winner == b.list[0] ? b.list[1] : b.list[0];
        for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x)
            other[j] = (u64)(u32)winner[j] << 32 | (u64)j;
        winner = syc_sort_many(other, winner == b.list[0] ? b.list[0] : b.list[1], p.k, 56, s->digits);
        for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x)
            syc_put_winner(r, t, j, (int)(winner[j] >> 32), b.weight[(u32)winner[j]]);
    } else {
        for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x)
            syc_put_winner(r, t, j, (int)(u32)winner[j], b.weight[j]);
    }
    return divisor;
}

static __global__ void __launch_bounds__(SYC_ROUTE_THREADS)
    syc_route_many(const __grid_constant__ syc_route r, const syc_gate gate)
{
    __shared__ syc_route_shared shared;
    const syi_moe_route_plan &p = r.p;
    const syc_route_block b = syc_route_block_of(p, r.blocks + blockIdx.x * r.block_bytes);
    if (!syc_may_write(gate))
        return;
#pragma unroll 1
    for (int64_t t = blockIdx.x; t < p.n_tokens; t += gridDim.x) {
        const bool finished = syc_is_finished(p, t);
        syc_clear_rows(p, t, (int)threadIdx.x, (int)blockDim.x);
        if (!finished || p.scores.data != NULL)
            syc_score_many(r, b, t, &shared);
        float divisor = 0.0f;
        if (finished)
            for (int64_t j = threadIdx.x; j < p.k; j += blockDim.x)
                syc_put_winner(r, t, j, (int)p.n_columns, 0.0f);
        else
            divisor =
                syi_experts_given(&p) ? syc_given_many(r, b, t, &shared) : syc_choose_many(r, b, t, &shared);
        if (p.args.n_shared > 0)
            syc_put_shared(r, t, finished, divisor, (int)threadIdx.x, (int)blockDim.x);
        __syncthreads();
    }
}

/* ---- Counts ---- */

static __global__ void __launch_bounds__(256) clear_counts(u64 *counts, int64_t n, const syc_gate gate)
{
    syc_start_next();
    if (!syc_may_write(gate))
        return;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < n; e += (int64_t)gridDim.x * 256)
        counts[e] = 0;
}

static __global__ void __launch_bounds__(256)
    copy_counts(u8 *to, const u64 *counts, int64_t n, const syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < n; e += (int64_t)gridDim.x * 256)
        syc_store<u64>(to + e * 8, counts[e]);
}

/* ---- Capacity ---- */

struct route_pairs {
    const int32_t *expert;

    __device__ bool has(int64_t i) const { return expert[i] >= 0; }
    __device__ u64 sort_key(int64_t i) const { return (u64)(u32)expert[i]; }
};

static __device__ __forceinline__ void take_out(const syi_moe_route_plan &p, u32 pair, int64_t e)
{
    const int64_t t = pair / (u32)p.k;
    if (p.map.data != NULL)
        syc_out_row(p.map, t)[e] = 0;
    if (p.probs.data != NULL)
        syc_store_float(syc_out_row(p.probs, t) + e * syc_float_bytes(p.probs.type), p.probs.type, 0.0f);
}

/* A pair is too many when the one `capacity` places before it has the same expert. */
static __global__ void __launch_bounds__(256)
    drop_by_position(const syi_moe_route_plan p, const syc_sorted sorted, const syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t i = p.capacity + (int64_t)blockIdx.x * 256 + threadIdx.x; i < (int64_t)*sorted.n;
         i += (int64_t)gridDim.x * 256)
        if (sorted.key[i - p.capacity] == sorted.key[i])
            take_out(p, sorted.value[i], (int64_t)sorted.key[i]);
}

/* The first pair whose expert is e or larger. */
static __device__ int64_t begin_of(const syc_sorted &sorted, int64_t e)
{
    int64_t low = 0, high = *sorted.n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((int64_t)sorted.key[middle] < e)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A block per expert. Its pairs are in order of their tokens, so equal weights go to the lower token. */
static __global__ void __launch_bounds__(SYC_ROUTE_THREADS)
    drop_by_weight(const syi_moe_route_plan p, const u32 *weight, const syc_sorted sorted,
                   const syc_gate gate)
{
    __shared__ syc_route_shared shared;
    if (!syc_may_write(gate))
        return;
#pragma unroll 1
    for (int64_t e = blockIdx.x; e < p.n_experts; e += gridDim.x) {
        const int64_t first = begin_of(sorted, e), n = begin_of(sorted, e + 1) - first;
        const u32 *const pair = sorted.value + first;
        if (n > p.capacity)
            syc_choose(
                n, p.capacity, &shared, [&](int64_t i) { return weight[pair[i]]; },
                [&](int64_t i, int64_t j) {
                    if (j < 0)
                        take_out(p, pair[i], e);
                });
    }
}
