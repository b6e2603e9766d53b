/*
 * moe_route on a device. Up to four thousand experts: a warp per token, or four, some neighbouring experts in
 * each lane, and for each slot the largest key of the warp. Given experts: a warp per token, a slot in each
 * lane. More of them, or many slots: moe_route.cuh. A capacity sorts the pairs of tokens and experts; then
 * the surplus of each is removed from the map.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/moe/moe_route.cuh"

enum {
    WARPS = 4,             /* of a block, a token each */
    MOST_SLOTS = 32,       /* a lane each */
    MOST_EACH = 32,        /* experts of a lane */
    ALONE = 512,           /* most experts of a warp that has a token alone, but for groups */
    MOST_SCRATCH = 1 << 28 /* bytes for all blocks of the general kernel, if one needs less */
};

/* ---- Few experts ---- */

/* What code costs is fetching it once: loops over a lane's experts are unrolled, since these are in
   registers, and everything that can be is done once for all kinds of scores and types. */

template <int N> static __device__ __forceinline__ void load_words(const void *from, u32 word[N])
{
    if constexpr (N == 1) {
        word[0] = *(const u32 *)from;
    } else if constexpr (N == 2) {
        const uint2 v = *(const uint2 *)from;
        word[0] = v.x, word[1] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < N; i += 4) {
            const uint4 v = ((const uint4 *)from)[i / 4];
            word[i] = v.x, word[i + 1] = v.y, word[i + 2] = v.z, word[i + 3] = v.w;
        }
    }
}

/* The floats of a lane in a row of 32 * N that are f32 or bf16, by vectors. */
template <int N> static __device__ __forceinline__ void load_wide(const u8 *row, sy_type type, float x[N])
{
    if (type == SY_TYPE_F32) {
        u32 word[N];
        load_words<N>(row + syc_lane() * N * 4, word);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = __uint_as_float(word[i]);
    } else {
        u32 word[N / 2];
        load_words<N / 2>(row + syc_lane() * N * 2, word);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = __uint_as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xffff0000u);
    }
}

/* Those of a lane by the way of shared memory: any type and alignment, n in all, `each` of a lane. Beyond
   them -inf. */
template <int N>
static __device__ __forceinline__ void load_any(const u8 *row, sy_type type, int n, int each, float *shared,
                                                float x[N])
{
#pragma unroll 1
    for (int i = syc_lane(); i < n; i += 32)
        shared[i] = syc_load_float(row + i * syc_float_bytes(type), type);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = i < each && syc_lane() * each + i < n ? shared[syc_lane() * each + i] : -INFINITY;
    __syncwarp();
}

template <int N>
static __device__ __forceinline__ void load(const u8 *row, bool wide, int n, int each, sy_type type,
                                            float *shared, float x[N])
{
    if (wide)
        load_wide<N>(row, type, x);
    else
        load_any<N>(row, type, n, each, shared, x);
}

/* Stores all scores the same way. */
template <int N>
static __device__ __forceinline__ void store_scores(u8 *row, int n, int each, float *shared, const float s[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i < each && syc_lane() * each + i < n)
            shared[syc_lane() * each + i] = s[i];
    __syncwarp();
#pragma unroll 1
    for (int i = syc_lane(); i < n; i += 32)
        syc_store<u32>(row + i * 4, __float_as_uint(shared[i]));
    __syncwarp();
}

/* The sum over a warp of the weights of exponentials, e*2^40 rounded to whole numbers, in two parts:
   multiples of 2^-19 are the upper one, and what is left of e is below 2^-20. Sums of 1024 of either fit 32
   bits. */
template <int N> static __device__ __forceinline__ u64 sum_weights(const float e[N])
{
    u32 high = 0, low = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float above = e[i] + 24.0f, rest = e[i] - (above - 24.0f);
        high += __float_as_uint(above);
        low += __float_as_uint(fmaf(rest, 0x1p40f, 12582912.0f));
    }
    high -= N * __float_as_uint(24.0f);
    low -= N * __float_as_uint(12582912.0f);
    return ((u64)__reduce_add_sync(SYC_ALL_LANES, high) << 21) +
           (u64)(int64_t)__reduce_add_sync(SYC_ALL_LANES, (int)low);
}

/* The scores of logits x, or of their exponentials e. The score is the same for all: branches around loops,
   not in them. */
template <int N>
static __device__ __forceinline__ void score_all(sy_route_score score, const float x[N], double divisor,
                                                 float e[N])
{
#define SCORE_ALL(ID, function) \
    if (score == SY_SCORE_##ID) { \
        _Pragma("unroll") for (int i = 0; i < N; i++) e[i] = function(x[i], e[i]); \
        return; \
    }
    SYI_LONE_SCORES(SCORE_ALL)
#undef SCORE_ALL
    if (score == SY_SCORE_SOFTMAX) {
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = syi_share(e[i], divisor);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = x[i];
    }
}

template <int N> static __device__ __forceinline__ float largest(const float v[N])
{
    float best = v[0];
#pragma unroll
    for (int i = 1; i < N; i++)
        best = fmaxf(best, v[i]);
    return best;
}

static __device__ __forceinline__ void keep_two(float *first, float *second, float v)
{
    const float smaller = fminf(*first, v);
    *first = fmaxf(*first, v);
    *second = fmaxf(*second, smaller);
}

/* The sum of the n largest values of the group of this lane, added from the largest on: one value, and all
   equal to it, after the other. All lanes take n turns, the last of which may find nothing to add. */
template <int N> static __device__ __forceinline__ float sum_of_largest(const float v[N], int lanes, int n)
{
    float sum = 0.0f, below = INFINITY; /* larger ones are in the sum */
#pragma unroll 1
    for (int turn = n; turn > 0; turn--) {
        float top = -INFINITY;
        int equal = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            top = v[i] < below ? fmaxf(top, v[i]) : top;
#pragma unroll 1
        for (int d = 1; d < lanes; d *= 2)
            top = fmaxf(top, __shfl_xor_sync(SYC_ALL_LANES, top, d));
#pragma unroll
        for (int i = 0; i < N; i++)
            equal += v[i] == top && v[i] < below;
#pragma unroll 1
        for (int d = 1; d < lanes; d *= 2)
            equal += __shfl_xor_sync(SYC_ALL_LANES, equal, d);
#pragma unroll 1
        for (; equal > 0 && n > 0; equal--, n--)
            sum += top;
        below = top;
    }
    return sum == sum ? sum : -INFINITY;
}

/* Whether the group of this lane is among the best. A group is in neighbouring lanes. */
template <int N> static __device__ __forceinline__ bool keeps_group(const syc_route &r, const float v[N])
{
    const syi_moe_route_plan &p = r.p;
    const int lanes = r.group_lanes, own = syc_lane() / lanes, in_group = syc_lane() % lanes;
    float first = -INFINITY, second = -INFINITY;
#pragma unroll
    for (int i = 0; i < N; i++)
        keep_two(&first, &second, v[i]);
#pragma unroll 1
    for (int d = 1; d < lanes; d *= 2) {
        const float other = __shfl_xor_sync(SYC_ALL_LANES, first, d),
                    next = __shfl_xor_sync(SYC_ALL_LANES, second, d);
        keep_two(&first, &second, other);
        second = fmaxf(second, next);
    }
    float value = p.group_sum == 2 ? first + second : first;
    if (p.group_sum > 2)
        value = sum_of_largest<N>(v, lanes, (int)p.group_sum);
    const u32 own_group = (lanes == 32 ? SYC_ALL_LANES : (1u << lanes) - 1u) << (own * lanes);
    int before = 0;
#pragma unroll 1
    /* each lane of a group compares it with others */
    for (int g = in_group; g - in_group < (int)p.args.groups; g += lanes) {
        const float other = __shfl_sync(SYC_ALL_LANES, value, g * lanes);
        const bool is = g < (int)p.args.groups && (other > value || (other == value && g < own));
        before += __popc(__ballot_sync(SYC_ALL_LANES, is) & own_group);
    }
    return before < (int)p.args.top_groups;
}

/* Those that may be among the first of a warp, in order of experts, and then the first. */
template <int N> struct __align__(16) candidates
{
    float value[32 * N + 4];
    float score[32 * N]; /* or exponential */
    u16 expert[32 * N];
    uint2 first[32]; /* expert and score of each slot */
    float top[32];   /* its value */
    int n;           /* slots that have one */
};

/* What the warps of a token share. */
struct team {
    u64 total[WARPS];
    u32 most[WARPS];
    uint2 first[32];
    bool again;
};

/*
 * The `n` experts of largest values, expert and score of slot j in lane j. A value that is NaN cannot be
 * chosen; there are at least n others, or all of them are wanted. The n-th largest of the values that are
 * largest of their lanes is a floor that n values reach, and few more: the place of each of these is the
 * number of those before it. `base`: the first expert of this warp.
 */
template <int N, bool TEAM>
static __device__ __forceinline__ void pick(const syc_route &r, int base, int n, const float v[N],
                                            const float score[N], candidates<N> *c, u32 *expert,
                                            float *expert_score)
{
    const int lane = syc_lane();
    const float best = largest<N>(v);
    u32 top = best == best ? syi_value_key(best) : 0, floor_key = 0;
#pragma unroll 4
    for (int j = 0; j < n; j++) {
        floor_key = __reduce_max_sync(SYC_ALL_LANES, top);
        top = top == floor_key ? 0 : top;
    }
    const float floor = floor_key == 0 ? -INFINITY : syi_key_value(floor_key);
    int own = 0, at = 0, all = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        own += v[i] >= floor;
#pragma unroll 1
    for (int i = 0;; i++) { /* lanes with more than i of them */
        const u32 have = __ballot_sync(SYC_ALL_LANES, own > i);
        if (have == 0)
            break;
        at += __popc(have & ((1u << lane) - 1u));
        all += __popc(have);
    }
    if (lane < 4)
        c->value[all + lane] = -INFINITY; /* so that the end is a multiple of four */
#pragma unroll
    for (int i = 0; i < N; i++)
        if (v[i] >= floor) {
            c->value[at] = v[i];
            c->score[at] = score[i];
            c->expert[at] = (u16)(base + lane * r.each + i);
            at++;
        }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < all; i += 32) {
        const float value = c->value[i];
        int place = 0;
#pragma unroll 1
        for (int j = 0; j < all; j += 4) {
            const float4 four = *(const float4 *)&c->value[j];
            place += four.x > value || (four.x == value && j < i);
            place += four.y > value || (four.y == value && j + 1 < i);
            place += four.z > value || (four.z == value && j + 2 < i);
            place += four.w > value || (four.w == value && j + 3 < i);
        }
        if (place < n) {
            c->first[place] = make_uint2(c->expert[i], __float_as_uint(c->score[i]));
            if (TEAM)
                c->top[place] = value;
        }
    }
    if (TEAM && lane == 0)
        c->n = min(n, all);
    __syncwarp();
    const uint2 own_first = c->first[lane];
    *expert = own_first.x;
    *expert_score = __uint_as_float(own_first.y);
}

/* The n first of all warps of a token, from the first of each, which are in order: by one warp. The experts
   of a warp come before those of the next. */
template <int N>
static __device__ __forceinline__ void merge(int n, const candidates<N> *c, struct team *team, u32 *expert,
                                             float *expert_score)
{
    const int lane = syc_lane();
#pragma unroll 1
    for (int w = 0; w < WARPS; w++) {
        const float value = c[w].top[lane];
        int place = lane;
#pragma unroll 1
        for (int other = 0; other < WARPS; other++)
#pragma unroll 1
            for (int j = 0; j < c[other].n && other != w; j++)
                place += c[other].top[j] > value || (c[other].top[j] == value && other < w);
        if (lane < c[w].n && place < n)
            team->first[place] = c[w].first[lane];
    }
    __syncwarp();
    *expert = team->first[lane].x;
    *expert_score = __uint_as_float(team->first[lane].y);
}

/* Whether the order of logits may differ from that of shares, because two shares of different logits are
   equal. Lane K has the share of the first loser. */
static __device__ __forceinline__ bool shares_tie(int n, int k, u32 expert, float share)
{
    const float before = __shfl_up_sync(SYC_ALL_LANES, share, 1);
    const u32 expert_before = __shfl_up_sync(SYC_ALL_LANES, expert, 1);
    const bool lost =
        syc_lane() == k && k<n, later = syc_lane()> 0 && syc_lane() < k && expert < expert_before;
    return __any_sync(SYC_ALL_LANES, share == before && (lost || later)) != 0;
}

/* The weight of winner j in lane j, from the experts and scores of n winners in order of their values; other
   lanes have anything. *divisor is what weights are divided by. */
static __device__ __forceinline__ float weigh(const syi_moe_route_plan &p, int64_t t, int n, u32 expert,
                                              float score, float *divisor)
{
    const bool in = syc_lane() < n;
    float w = syi_score_weight(score);
    if (p.args.softmax_after) {
        const u32 key = in ? syc_logit_key(p, t, expert) : 0u;
        const float max = syi_key_value(__reduce_max_sync(SYC_ALL_LANES, key));
        const float e = in ? syi_exp(syi_key_value(key) - max) : 0.0f;
        w = syi_share(e, syi_share_divisor(sum_weights<1>(&e)));
    }
    if (p.args.renormalize) {
        float sum = 0.0f;
#pragma unroll 4
        for (int j = 0; j < n; j++)
            sum += __shfl_sync(SYC_ALL_LANES, w, j);
        *divisor = syi_route_divisor(&p, p.args.shared_in_sum ? syc_add_shared(p, t, sum) : sum);
        w = syi_renormalized(w, *divisor);
    }
    return in ? syi_scaled_weight(&p, expert, w) : 0.0f;
}

/* The exponentials of a softmax over all warps of a token, and their divisor. */
template <int N, bool TEAM>
static __device__ __forceinline__ double exponentials(const float x[N], float e[N], struct team *team)
{
    u32 most = __reduce_max_sync(SYC_ALL_LANES, syi_value_key(largest<N>(x)));
    if constexpr (TEAM) {
        team->most[syc_warp()] = most;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            most = max(most, team->most[w]);
    }
    const float max = syi_key_value(most);
#pragma unroll
    for (int i = 0; i < N; i++)
        e[i] = syi_exp_negative(x[i] - max);
    u64 total = sum_weights<N>(e);
    if constexpr (TEAM) {
        team->total[syc_warp()] = total;
        __syncthreads();
        total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            total += team->total[w];
    }
    return syi_share_divisor(total);
}

/* The winners of a token, from lane j that has slot j, by a warp. */
static __device__ __forceinline__ void put_winners(const syc_route &r, int64_t t, bool finished, u32 expert,
                                                   float score)
{
    const syi_moe_route_plan &p = r.p;
    const int lane = syc_lane();
    float divided_by = 0.0f;
    const float w = weigh(p, t, (int)p.k, expert, score, &divided_by);
    int slot = lane;
    if (p.args.slot_order == SY_SLOT_EXPERT && !finished) {
        slot = 0;
#pragma unroll 4
        for (int j = 0; j < (int)p.k; j++)
            slot += __shfl_sync(SYC_ALL_LANES, expert, j) < expert;
    }
    __syncwarp(); /* rows are cleared */
    if (lane < (int)p.k)
        syc_put_winner(r, t, slot, finished ? (int)p.n_columns : (int)expert, finished ? 0.0f : w);
    if (p.args.n_shared > 0)
        syc_put_shared(r, t, finished, divided_by, lane, 32);
}

/* What the first thread of a block knows. */
static __device__ __forceinline__ bool told(struct team *team, bool here)
{
    if (threadIdx.x == 0)
        team->again = here;
    __syncthreads();
    return team->again;
}

/* TEAM: all warps of a block have one token, and neighbouring experts each. */
/* NOLINT(readability-function-size): a token stays in registers from its logits to its weights */
template <int N, bool TEAM>
static __global__ void __launch_bounds__(32 * WARPS, N <= 8    ? 8
                                                     : N <= 16 ? 4
                                                               : 1)
    route_few(const __grid_constant__ syc_route r, const __grid_constant__ syc_gate gate)
{
    __shared__ candidates<N> of_warp[WARPS];
    __shared__ struct team team;
    const syi_moe_route_plan &p = r.p;
    const int64_t t = r.first + (TEAM ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * WARPS + syc_warp());
    if (t >= p.n_tokens)
        return;
    bool closed = __ldcg(gate.closed) != 0; /* nothing else can be wrong */
    const bool finished = syc_is_finished(p, t);
    const int base = TEAM ? 32 * r.each * syc_warp() : 0, lane = syc_lane(),
              here = max(0, min(32 * r.each, (int)p.n_experts - base)),
              own = max(0, min(r.each, here - lane * r.each));
    candidates<N> *const c = &of_warp[syc_warp()];
    float x[N], e[N], bias[N] = {};
    load<N>(syc_row(p.logits, t) + base * syc_float_bytes(p.logits.type), r.wide_logits, here, r.each,
            p.logits.type, c->value, x);
    if (p.bias.data != NULL)
        load<N>(p.bias.data + base * 4, r.wide_bias, here, r.each, SY_TYPE_F32, c->value, bias);
    if (TEAM)
        closed = __syncthreads_or(closed) != 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = syc_canonical_number(x[i]);
    double divisor = 1.0;
    if (syi_is_lone_score(p.args.score)) {
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = syi_exp_negative(-fabsf(x[i]));
    } else if (p.args.score == SY_SCORE_SOFTMAX) {
        divisor = exponentials<N, TEAM>(x, e, &team);
    }
    if (closed)
        return;
    if (r.early)
        syc_wait_for_previous();
    syc_clear_rows(p, t, TEAM ? (int)threadIdx.x : lane, TEAM ? 32 * WARPS : 32);
    if (TEAM)
        __syncthreads();
    u32 expert = 0;
    float score = 0.0f;
#pragma unroll 1
    for (bool direct = r.direct; !finished || p.scores.data != NULL; direct = false) {
        const int n = (int)p.k + (direct && p.k < p.n_experts);
        float v[N];
        if (direct) {
#pragma unroll
            for (int i = 0; i < N; i++)
                v[i] = x[i];
        } else {
            score_all<N>(p.args.score, x, divisor, e);
#pragma unroll
            for (int i = 0; i < N; i++)
                v[i] = syc_canonical_number((p.args.select == SY_SELECT_LOGIT ? x[i] : e[i]) + bias[i]);
            if (p.scores.data != NULL)
                store_scores<N>(syc_out_row(p.scores, t) + base * 4, here, r.each, c->value, e);
            if (finished)
                break;
        }
        const bool in = p.args.groups == 0 || keeps_group<N>(r, v);
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = in && i < own ? v[i] : __uint_as_float(0x7fffffffu);
        pick<N, TEAM>(r, base, n, v, e, c, &expert, &score);
        if (TEAM) {
            __syncthreads();
            if (syc_warp() == 0)
                merge<N>(n, of_warp, &team, &expert, &score);
        }
        if (!direct)
            break;
        score = syi_share(score, divisor);
        const bool again = p.args.select != SY_SELECT_LOGIT && shares_tie(n, (int)p.k, expert, score);
        if (!(TEAM ? told(&team, again) : again))
            break;
    }
    if (TEAM && syc_warp() > 0)
        return;
    put_winners(r, t, finished, expert, score);
}

/* ---- Given experts ---- */

/* What the softmax of a row needs. */
SYC_COLD syc_softmax softmax_of_row(const syi_moe_route_plan &p, int64_t t)
{
    u32 top = 0;
    u64 total = 0;
    for (int64_t e = syc_lane(); e < p.n_experts; e += 32)
        top = max(top, syc_logit_key(p, t, e));
    const float max = syi_key_value(__reduce_max_sync(SYC_ALL_LANES, top));
    for (int64_t e = syc_lane(); e < p.n_experts; e += 32)
        total += syi_weight(syi_exp(syi_key_value(syc_logit_key(p, t, e)) - max));
    return {max, syi_share_divisor(syc_warp_sum(total))};
}

/* A warp per token, slot j in lane j. */
static __global__ void __launch_bounds__(32 * WARPS)
    route_given(const __grid_constant__ syc_route r, const __grid_constant__ syc_gate gate)
{
    const syi_moe_route_plan &p = r.p;
    const int64_t t = r.first + (int64_t)blockIdx.x * WARPS + syc_warp();
    const int lane = syc_lane();
    if (!syc_may_write(gate) || t >= p.n_tokens)
        return;
    const bool finished = syc_is_finished(p, t);
    syc_softmax softmax = {0.0f, 1.0};
    syc_clear_rows(p, t, lane, 32);
    if (p.args.score == SY_SCORE_SOFTMAX && (!finished || p.scores.data != NULL))
        softmax = softmax_of_row(p, t);
    for (int64_t e = lane; p.scores.data != NULL && e < p.n_experts; e += 32)
        syc_store<u32>(syc_out_row(p.scores, t) + e * 4,
                       __float_as_uint(syc_route_score(p.args.score, syc_logit_key(p, t, e), softmax)));
    const int own = finished || lane >= (int)p.k ? -1 : syc_given_expert(p, syi_given_row(&p, t), lane);
    const u32 used = __ballot_sync(SYC_ALL_LANES, own >= 0);
    float score = 0.0f;
    u32 value = 0;
    if (own >= 0) {
        const u32 key = syc_logit_key(p, t, own);
        score = syc_route_score(p.args.score, key, softmax);
        value = syc_route_value(p, own, score, key);
    }
    int place = 0, from = 0; /* of this slot in the order of values, and the slot in this place */
#pragma unroll 1
    for (int j = 0; j < (int)p.k; j++) {
        const u32 other = __shfl_sync(SYC_ALL_LANES, value, j);
        const int expert = __shfl_sync(SYC_ALL_LANES, own, j);
        place += other > value || (other == value && expert < own);
    }
#pragma unroll 1
    for (int j = 0; j < (int)p.k; j++)
        from = __shfl_sync(SYC_ALL_LANES, place, j) == lane && (used >> j & 1) ? j : from;
    const u32 expert = (u32)__shfl_sync(SYC_ALL_LANES, own, from);
    score = __shfl_sync(SYC_ALL_LANES, score, from);
    float divisor = 0.0f;
    const float w = __shfl_sync(SYC_ALL_LANES, weigh(p, t, __popc(used), expert, score, &divisor),
                                own >= 0 ? place : lane);
    __syncwarp(); /* rows are cleared */
    if (lane < (int)p.k)
        syc_put_winner(r, t, lane, finished ? (int)p.n_columns : own, own >= 0 ? w : 0.0f);
    if (p.args.n_shared > 0)
        syc_put_shared(r, t, finished, divisor, lane, 32);
}

/* ---- Launches ---- */

static int64_t few_blocks(const syc_device *device, int64_t n)
{
    const int64_t wanted = (n + 255) / 256, most = grid_policy::INDEX * (int64_t)device->processors;
    return wanted < most ? wanted : most;
}

/* Whether a token has all warps of a block. */
static bool has_team(const syi_moe_route_plan *p)
{
    return p->args.groups == 0 && p->n_experts > ALONE;
}

/* Experts of a lane so that every group is in whole lanes, a power of two; 0: the general kernel is
   needed. */
static int experts_of_lane(const syi_moe_route_plan *p, int *group_lanes)
{
    const int64_t size = p->args.groups > 0 ? p->n_experts / p->args.groups : 1;
    *group_lanes = 1;
    const int64_t most = p->args.groups == 0 ? WARPS * 32 * MOST_EACH : 32 * MOST_EACH;
    if (p->k > MOST_SLOTS || p->args.groups > 32 || p->n_experts > most)
        return 0;
    if (p->args.groups == 0)
        return (int)syc_ceil(p->n_experts, has_team(p) ? 32 * WARPS : 32);
    while (p->args.groups * *group_lanes * 2 <= 32 && size % (*group_lanes * 2) == 0)
        *group_lanes *= 2;
    return size / *group_lanes <= MOST_EACH ? (int)(size / *group_lanes) : 0;
}

/* Whether the general kernel is needed. */
static bool has_many(const syi_moe_route_plan *p)
{
    int lanes;
    return syi_experts_given(p) ? p->k > MOST_SLOTS : experts_of_lane(p, &lanes) == 0;
}

/* Whether the `bytes` of each lane can be loaded as vectors. */
static bool is_wide(const unsigned char *data, int64_t stride, u64 bytes)
{
    return ((u64)(uintptr_t)data | (u64)stride) % (bytes < 16 ? bytes : 16) == 0;
}

/* Blocks of `each` tokens. */
static void launch_warps(syc_call *call, syc_route *r, void (*kernel)(syc_route, syc_gate), syc_start start,
                         int each = WARPS)
{
    const int64_t most = (int64_t)INT32_MAX * each;
    for (r->first = 0; r->first < r->p.n_tokens; r->first += most) {
        const int64_t n = r->p.n_tokens - r->first < most ? r->p.n_tokens - r->first : most;
        syc_launch(&call->queue, kernel, start, syc_ceil(n, each), 32 * WARPS, 0, *r, call->gate);
    }
}

template <int N, bool TEAM = false> static void launch_few(syc_call *call, syc_route *r, syc_start start)
{
    const syi_moe_route_plan *const p = &r->p;
    const bool full = p->n_experts == 32 * N * (TEAM ? WARPS : 1);
    r->wide_logits = full && p->logits.type != SY_TYPE_F16 &&
                     is_wide(p->logits.data, p->logits.stride, p->logits.type == SY_TYPE_F32 ? N * 4 : N * 2);
    r->wide_bias = full && is_wide(p->bias.data, 0, N * 4);
    r->early = start == SYC_EARLY;
    launch_warps(call, r, route_few<N, TEAM>, start, TEAM ? 1 : WARPS);
}

static int64_t many_blocks(const syc_device *device, const syi_moe_route_plan *p)
{
    const int64_t fit = MOST_SCRATCH / (int64_t)syc_route_block_bytes(p),
                  most = 2 * (int64_t)device->processors;
    const int64_t blocks = fit < 1 ? 1 : fit < most ? fit : most;
    return p->n_tokens < blocks ? p->n_tokens : blocks;
}

/* Scratch memory: cut, or only measured. */
struct memory {
    u64 *counts;
    u8 *blocks;
    int32_t *expert;
    u32 *key;
    syc_sort_memory sort;
};

static size_t lay_out(const syc_device *device, const syi_moe_route_plan *p, unsigned char *base,
                      struct memory *m)
{
    size_t used = 0;
    m->counts = (u64 *)(base + used);
    used += syc_sort_align((size_t)p->n_columns * sizeof(u64));
    m->blocks = base + used;
    used += has_many(p) ? (size_t)many_blocks(device, p) * syc_route_block_bytes(p) : 0;
    m->expert = NULL;
    if (p->capacity == 0)
        return used;
    if (p->n_tokens > (int64_t)UINT32_MAX / p->k) /* places of pairs have 32 bits */
        return SIZE_MAX;
    const int64_t n = p->n_tokens * p->k;
    m->expert = (int32_t *)(base + used);
    used += syc_sort_align((size_t)n * sizeof(int32_t));
    m->key = (u32 *)(base + used);
    used += syc_sort_align((size_t)n * sizeof(u32));
    return used + syc_sort_lay_out(&m->sort, n, device->processors, base + used);
}

size_t syc_moe_route_workspace(const syc_device *device, const syi_plan *plan)
{
    struct memory m = {};
    return lay_out(device, &plan->moe_route, NULL, &m);
}

static void route(syc_call *call, syc_route *r, syc_start start)
{
    r->each = experts_of_lane(&r->p, &r->group_lanes);
    r->direct = r->p.args.score == SY_SCORE_SOFTMAX && r->p.bias.data == NULL && r->p.args.groups == 0 &&
                r->p.scores.data == NULL && r->p.k < MOST_SLOTS;
    r->block_bytes = syc_route_block_bytes(&r->p);
    if (!syc_takes(call, "warps",
                   has_many(&r->p) ? "experts, groups or choices are too many for a warp" : NULL)) {
        syc_takes(call, "blocks");
        syc_launch(&call->queue, syc_route_many, start, many_blocks(call->device, &r->p), SYC_ROUTE_THREADS,
                   0, *r, call->gate);
    } else if (syi_experts_given(&r->p))
        launch_warps(call, r, route_given, start);
    else if (has_team(&r->p) && r->each <= 8)
        launch_few<8, true>(call, r, start);
    else if (has_team(&r->p) && r->each <= 16)
        launch_few<16, true>(call, r, start);
    else if (has_team(&r->p))
        launch_few<32, true>(call, r, start);
    else if (r->each <= 2)
        launch_few<2>(call, r, start);
    else if (r->each <= 4)
        launch_few<4>(call, r, start);
    else if (r->each <= 8)
        launch_few<8>(call, r, start);
    else if (r->each <= 16)
        launch_few<16>(call, r, start);
    else
        launch_few<32>(call, r, start);
}

static void drop(syc_call *call, const syc_route *r, syc_sort_memory *memory)
{
    const syi_moe_route_plan *const p = &r->p;
    const int64_t n = p->n_tokens * p->k, most = 4 * (int64_t)call->device->processors;
    int bits = 1;
    while ((int64_t)1 << bits < p->n_experts)
        bits++;
    const syc_sorted sorted = syc_sort(call, memory, route_pairs{r->expert}, n, bits);
    if (p->args.drop == SY_DROP_PROB)
        syc_launch(&call->queue, drop_by_weight, SYC_AFTER, p->n_experts < most ? p->n_experts : most,
                   SYC_ROUTE_THREADS, 0, *p, r->key, sorted, call->gate);
    else
        syc_launch(&call->queue, drop_by_position, SYC_AFTER, few_blocks(call->device, n), 256, 0, *p, sorted,
                   call->gate);
}

void syc_moe_route(syc_call *call, const syi_plan *plan)
{
    syc_route r = {};
    struct memory m = {};
    r.p = plan->moe_route;
    lay_out(call->device, &r.p, call->scratch, &m);
    const bool aligned = (uintptr_t)r.p.counts.data % sizeof(u64) == 0;
    const int64_t n = r.p.n_columns, blocks = few_blocks(call->device, n);
    if (syi_experts_given(&r.p)) {
        const int64_t slots = r.p.n_tokens * r.p.k;
        syc_check(call, syc_given_check{r.p, syc_split_by(r.p.k, slots), slots});
    }
    if (r.p.counts.data != NULL) {
        r.counts = aligned ? (u64 *)r.p.counts.data : m.counts;
        syc_launch(&call->queue, clear_counts, SYC_AFTER, blocks, 256, 0, r.counts, n, call->gate);
    }
    r.blocks = m.blocks;
    r.expert = m.expert;
    r.key = m.key;
    route(call, &r, r.counts != NULL || call->gate.n > 0 ? SYC_EARLY : SYC_AFTER);
    if (r.counts != NULL && !aligned)
        syc_launch(&call->queue, copy_counts, SYC_AFTER, blocks, 256, 0, r.p.counts.data, r.counts, n,
                   call->gate);
    if (r.expert != NULL)
        drop(call, &r, &m.sort);
}
