/*
 * moe_route on a device. Up to a thousand experts: a warp per token, some neighbouring experts in each lane, and for each
 * slot the largest key of the warp. More of them, or many slots: moe_route.cuh. A capacity sorts the pairs of tokens and
 * experts by expert; then the surplus of each is removed from the map.
 */
#include "cuda/backend.cuh"
#include "cuda/moe_route.cuh"
#include "cuda/sort.cuh"

enum {
    WARPS = 4,           /* of a block, a token each */
    MOST_SLOTS = 32,     /* a lane each */
    MOST_EACH = 32,      /* experts of a lane */
    MOST_SCRATCH = 1 << 28 /* bytes for all blocks of the general kernel, if one needs less */
};

/* ---- Few experts -------------------------------------------------------------------------------------------------- */

/* What code costs is fetching it once: loops over a lane's experts are unrolled, since these are in registers, and
   everything that can be is done once for all kinds of scores and types. */

/* Bits of n of N floats; `wide`: aligned to 16 bytes, if all are there. */
template <int N> static __device__ __forceinline__ void load_bits(const u8 *from, bool half, bool wide, int n, u32 x[N])
{
    const int bytes = half ? 2 : 4;
    if (wide && n == N) {
        uint4 v[(N + 3) / 4];
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            if (i < N / 8 || !half)
                v[i] = ((const uint4 *)from)[i];
#pragma unroll
        for (int i = 0; i < N / 4 * 4; i++) {
            const u32 word[4] = {v[i / 4].x, v[i / 4].y, v[i / 4].z, v[i / 4].w};
            const u32 two[4] = {v[i / 8].x, v[i / 8].y, v[i / 8].z, v[i / 8].w};
            x[i] = half ? two[i / 2 % 4] >> (i % 2 * 16) & 0xffffu : word[i % 4];
        }
    } else if ((uintptr_t)from % bytes == 0) {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = i >= n ? 0 : half ? ((const u16 *)from)[i] : ((const u32 *)from)[i];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = i >= n ? 0 : half ? syc_load<u16>(from + i * 2) : syc_load<u32>(from + i * 4);
    }
}

template <int N> static __device__ __forceinline__ void widen(sy_type type, u32 x[N])
{
    if (type == SY_TYPE_F16)
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] = __float_as_uint(syc_from_f16((u16)x[i]));
    else if (type == SY_TYPE_BF16)
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] <<= 16;
}

template <int N> static __device__ __forceinline__ void store_scores(u8 *to, bool wide, int n, const float s[N])
{
    if (wide && n == N) {
#pragma unroll
        for (int i = 0; i + 4 <= N; i += 4)
            *(uint4 *)(to + i * 4) = make_uint4(__float_as_uint(s[i]), __float_as_uint(s[(i + 1) % N]),
                                                __float_as_uint(s[(i + 2) % N]), __float_as_uint(s[(i + 3) % N]));
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < n)
                syc_store<u32>(to + i * 4, __float_as_uint(s[i]));
    }
}

/* The exponential that the score of a logit is made of. */
static __device__ __forceinline__ float exponential(sy_route_score score, u32 key, float max)
{
    return syi_exp(syi_key_value(score == SY_SCORE_SIGMOID ? syi_negative_key(key) : key) - max);
}

/* The score of a logit and its exponential. The score is the same for all: branches around loops, not in them. */
template <int N>
static __device__ __forceinline__ void score_all(sy_route_score score, const u32 key[N], double divisor, float e[N])
{
    if (score == SY_SCORE_SIGMOID) {
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = syi_sigmoid(key[i], e[i]);
    } else if (score == SY_SCORE_SOFTMAX) {
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = syi_share(e[i], divisor);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = syi_key_value(key[i]);
    }
}

template <int N> static __device__ __forceinline__ u32 largest(const u32 v[N])
{
    u32 best = v[0];
#pragma unroll
    for (int i = 1; i < N; i++)
        best = max(best, v[i]);
    return best;
}

/* Excludes the experts of a lane whose group is not among the best. A group is in neighbouring lanes. */
template <int N> static __device__ __forceinline__ void keep_groups(const struct syc_route &r, u32 v[N])
{
    const struct syi_moe_route_plan &p = r.p;
    const int lanes = r.group_lanes, own = syc_lane() / lanes;
    u32 first = 0, second = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        syi_keep_two(&first, &second, v[i]);
#pragma unroll 1
    for (int d = 1; d < lanes; d *= 2) {
        const u32 other = __shfl_xor_sync(SYC_ALL_LANES, first, d), next = __shfl_xor_sync(SYC_ALL_LANES, second, d);
        syi_keep_two(&first, &second, other);
        syi_keep_two(&first, &second, next);
    }
    const bool sum = p.group_score == SY_GROUP_SUM2 && r.each * lanes > 1;
    const u32 value = sum ? syi_key_sum(first, second) : first;
    int before = 0;
#pragma unroll 4
    for (int g = 0; g < (int)p.n_groups; g++) {
        const u32 other = __shfl_sync(SYC_ALL_LANES, value, g * lanes);
        before += other > value || (other == value && g < own);
    }
    if (before >= (int)p.top_groups)
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = 0;
}

/* The K first keys: the expert of slot j in lane j. Returns the largest key that is left, if `loser`. */
template <int N> static __device__ __forceinline__ u32 pick(const struct syc_route &r, u32 v[N], bool loser, u32 *expert)
{
    const int k = (int)r.p.k, rounds = loser ? k + 1 : k;
    u32 top = 0;
#pragma unroll 1
    for (int j = 0; j < rounds; j++) {
        const u32 best = largest<N>(v);
        top = __reduce_max_sync(SYC_ALL_LANES, best);
        if (j == k)
            break;
        const int who = __ffs((int)__ballot_sync(SYC_ALL_LANES, best == top)) - 1;
        const u32 taken = syc_lane() == who ? top : UINT32_MAX; /* which no key is */
        int at = -1;
#pragma unroll
        for (int i = N - 1; i >= 0; i--)
            at = v[i] == taken ? i : at;
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = i == at ? 0 : v[i];
        at = __shfl_sync(SYC_ALL_LANES, at, who);
        if (syc_lane() == j)
            *expert = (u32)(who * r.each + at);
    }
    return top;
}

/* Whether the order of logits may differ from that of shares, because two shares of different logits are equal. Lane K has
   the share of the first loser. */
static __device__ __forceinline__ bool shares_tie(int k, u32 expert, float share)
{
    const float before = __shfl_up_sync(SYC_ALL_LANES, share, 1);
    const u32 expert_before = __shfl_up_sync(SYC_ALL_LANES, expert, 1);
    const bool lost = syc_lane() == k, later = syc_lane() > 0 && syc_lane() < k && expert < expert_before;
    return __any_sync(SYC_ALL_LANES, share == before && (lost || later)) != 0;
}

/* The weight of slot j in lane j, from the logits and scores of the winners; other lanes have anything. */
static __device__ __forceinline__ float weigh(const struct syi_moe_route_plan &p, u32 key, float score)
{
    const bool in = syc_lane() < (int)p.k;
    float w = syi_score_weight(score);
    if (p.softmax_after) {
        const float max = syi_key_value(__reduce_max_sync(SYC_ALL_LANES, in ? key : 0u));
        const float e = syi_exp(syi_key_value(key) - max);
        w = syi_share(e, syi_share_divisor(syc_warp_sum(in ? syi_weight(e) : 0)));
    }
    if (p.renormalize) {
        float sum = 0.0f;
#pragma unroll 4
        for (int j = 0; j < (int)p.k; j++)
            sum += __shfl_sync(SYC_ALL_LANES, w, j);
        w = syi_renormalized(w, sum + p.eps);
    }
    return w * p.scale;
}

template <int N>
static __global__ void __launch_bounds__(32 * WARPS, N <= 8 ? 8 : 1) route_few(const __grid_constant__ struct syc_route r, const __grid_constant__ struct syc_gate gate)
{
    __shared__ float bias[32 * N]; /* of expert i of a lane at i*32 + lane */
    const struct syi_moe_route_plan &p = r.p;
    const int64_t t = r.first + (int64_t)blockIdx.x * WARPS + syc_warp();
    const bool in = t < p.n_tokens, finished = in && syc_is_finished(p, t);
    const int lane = syc_lane(), first = lane * r.each, own = max(0, min(r.each, (int)p.n_experts - first));
    u32 key[N] = {};
    if (in)
        load_bits<N>(syc_row(p.logits, t) + first * syc_float_bytes(p.type), p.type != SY_TYPE_F32, r.wide_logits, own, key);
#pragma unroll
    for (int i = syc_warp(); i < N; i += WARPS)
        bias[i * 32 + lane] = p.bias != NULL && i < own ? __uint_as_float(syc_load<u32>(p.bias + (first + i) * 4)) : 0.0f;
    widen<N>(p.type, key);
#pragma unroll
    for (int i = 0; i < N; i++)
        key[i] = i < own ? syi_key(key[i]) : 0;
    const bool softmax = p.score == SY_SCORE_SOFTMAX;
    const float max = softmax ? syi_key_value(__reduce_max_sync(SYC_ALL_LANES, largest<N>(key))) : 0.0f;
    double divisor = 1.0;
    float e[N];
    if (p.score != SY_SCORE_NONE)
#pragma unroll
        for (int i = 0; i < N; i++)
            e[i] = exponential(p.score, key[i], max);
    if (softmax) {
        u64 total = 0;
#pragma unroll
        for (int i = 0; i < N; i++)
            total += syi_weight(e[i]);
        divisor = syi_share_divisor(syc_warp_sum(total));
    }
    syc_wait_for_previous();
    if (!syc_all_clear(gate, syc_sees_fault(gate)) || !in) /* and the biases are there */
        return;
    syc_clear_rows(p, t, lane, 32);
    if (finished) {
        syc_put_finished(r, t, lane, 32);
        if (p.scores.data == NULL)
            return;
    }
    u32 expert = 0, winner = 0;
    float score[1];
#pragma unroll 1
    for (bool direct = r.direct;; direct = false) {
        u32 v[N];
        if (direct) {
#pragma unroll
            for (int i = 0; i < N; i++)
                v[i] = key[i];
        } else {
            score_all<N>(p.score, key, divisor, e);
#pragma unroll
            for (int i = 0; i < N; i++)
                v[i] = i < own ? syi_key(__float_as_uint(e[i] + bias[i * 32 + lane])) : 0;
            if (p.scores.data != NULL)
                store_scores<N>(syc_out_row(p.scores, t) + first * 4, r.wide_scores, own, e);
            if (finished)
                return;
            if (p.n_groups > 0)
                keep_groups<N>(r, v);
        }
        winner = pick<N>(r, v, direct, &expert);
        if (lane < (int)p.k)
            winner = syc_logit_key(p, t, expert);
        score[0] = exponential(p.score, winner, max);
        score_all<1>(p.score, &winner, divisor, score);
        if (!direct || !shares_tie((int)p.k, expert, score[0]))
            break;
    }
    const float w = weigh(p, winner, score[0]);
    int slot = lane;
    if (p.slot_order == SY_SLOT_EXPERT) {
        slot = 0;
#pragma unroll 4
        for (int j = 0; j < (int)p.k; j++)
            slot += __shfl_sync(SYC_ALL_LANES, expert, j) < expert;
    }
    __syncwarp(); /* rows are cleared */
    if (lane < (int)p.k)
        syc_put_winner(r, t, slot, expert, w);
}

/* ---- Counts ------------------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(256) clear_counts(u64 *counts, int64_t n, const struct syc_gate gate)
{
    syc_start_next();
    if (!syc_may_write(gate))
        return;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < n; e += (int64_t)gridDim.x * 256)
        counts[e] = 0;
}

static __global__ void __launch_bounds__(256) copy_counts(u8 *to, const u64 *counts, int64_t n, const struct syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x; e < n; e += (int64_t)gridDim.x * 256)
        syc_store<u64>(to + e * 8, counts[e]);
}

/* ---- Capacity ----------------------------------------------------------------------------------------------------- */

struct pairs {
    const int32_t *expert;

    __device__ bool has(int64_t i) const { return expert[i] >= 0; }
    __device__ u64 sort_key(int64_t i) const { return (u64)(u32)expert[i]; }
};

static __device__ __forceinline__ void take_out(const struct syi_moe_route_plan &p, u32 pair, int64_t e)
{
    const int64_t t = pair / (u32)p.k;
    if (p.map.data != NULL)
        syc_out_row(p.map, t)[e] = 0;
    if (p.probs.data != NULL)
        syc_store_float(syc_out_row(p.probs, t) + e * syc_float_bytes(p.prob_type), p.prob_type, 0.0f);
}

/* A pair is too many when the one `capacity` places before it has the same expert. */
static __global__ void __launch_bounds__(256)
    drop_by_position(const struct syi_moe_route_plan p, const struct syc_sorted sorted, const struct syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t i = p.capacity + (int64_t)blockIdx.x * 256 + threadIdx.x; i < (int64_t)*sorted.n; i += (int64_t)gridDim.x * 256)
        if (sorted.key[i - p.capacity] == sorted.key[i])
            take_out(p, sorted.value[i], (int64_t)sorted.key[i]);
}

/* The first pair whose expert is e or larger. */
static __device__ int64_t begin_of(const struct syc_sorted &sorted, int64_t e)
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
    drop_by_weight(const struct syi_moe_route_plan p, const u32 *weight, const struct syc_sorted sorted, const struct syc_gate gate)
{
    __shared__ struct syc_route_shared shared;
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

/* ---- Launches ----------------------------------------------------------------------------------------------------- */

static int64_t few_blocks(const struct syc_device *device, int64_t n)
{
    const int64_t wanted = (n + 255) / 256, most = 8 * (int64_t)device->processors;
    return wanted < most ? wanted : most;
}

/* Experts of a lane so that every group is in whole lanes, a power of two; 0: the general kernel is needed. */
static int experts_of_lane(const struct syi_moe_route_plan *p, int *group_lanes)
{
    const int64_t size = p->n_groups > 0 ? p->n_experts / p->n_groups : 1;
    *group_lanes = 1;
    if (p->k > MOST_SLOTS || p->n_groups > 32 || p->n_experts > 32 * MOST_EACH)
        return 0;
    if (p->n_groups == 0)
        return (int)((p->n_experts + 31) / 32);
    while (p->n_groups * *group_lanes * 2 <= 32 && size % (*group_lanes * 2) == 0)
        *group_lanes *= 2;
    return size / *group_lanes <= MOST_EACH ? (int)(size / *group_lanes) : 0;
}

static bool is_wide(const unsigned char *data, int64_t stride, int64_t bytes)
{
    return ((u64)(uintptr_t)data | (u64)stride | (u64)bytes) % 16 == 0;
}

template <int N> static void launch_few(struct syc_call *call, struct syc_route *r, enum syc_start start)
{
    const struct syi_moe_route_plan *const p = &r->p;
    const int64_t most = (int64_t)INT32_MAX * WARPS, bytes = p->type == SY_TYPE_F32 ? 4 : 2;
    const bool full = r->each == N && N % 4 == 0;
    r->wide_logits = full && is_wide(p->logits.data, p->logits.stride, N * bytes);
    r->wide_scores = full && is_wide(p->scores.data, p->scores.stride, N * 4);
    for (r->first = 0; r->first < p->n_tokens; r->first += most) {
        const int64_t n = p->n_tokens - r->first < most ? p->n_tokens - r->first : most;
        syc_launch(&call->queue, route_few<N>, start, (n + WARPS - 1) / WARPS, 32 * WARPS, 0, *r, call->gate);
    }
}

static int64_t many_blocks(const struct syc_device *device, const struct syi_moe_route_plan *p)
{
    const int64_t fit = MOST_SCRATCH / (int64_t)syc_route_block_bytes(p), most = 2 * (int64_t)device->processors;
    const int64_t blocks = fit < 1 ? 1 : fit < most ? fit : most;
    return p->n_tokens < blocks ? p->n_tokens : blocks;
}

/* Scratch memory: cut, or only measured. */
struct memory {
    u64 *counts;
    u8 *blocks;
    int32_t *expert;
    u32 *key;
    struct syc_sort_memory sort;
};

static size_t lay_out(const struct syc_device *device, const struct syi_moe_route_plan *p, unsigned char *base, struct memory *m)
{
    size_t used = 0;
    int lanes;
    m->counts = (u64 *)(base + used);
    used += p->counts != NULL ? syc_sort_align((size_t)p->n_experts * sizeof(u64)) : 0;
    m->blocks = base + used;
    used += experts_of_lane(p, &lanes) == 0 ? (size_t)many_blocks(device, p) * syc_route_block_bytes(p) : 0;
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

size_t syc_moe_route_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    struct memory m = {};
    return lay_out(device, &plan->moe_route, NULL, &m);
}

static void route(struct syc_call *call, struct syc_route *r, enum syc_start start)
{
    r->each = experts_of_lane(&r->p, &r->group_lanes);
    r->direct = r->p.score == SY_SCORE_SOFTMAX && r->p.bias == NULL && r->p.n_groups == 0 && r->p.scores.data == NULL &&
                r->p.k < MOST_SLOTS;
    r->block_bytes = syc_route_block_bytes(&r->p);
    if (r->each == 0)
        syc_launch(&call->queue, syc_route_many, start, many_blocks(call->device, &r->p), SYC_ROUTE_THREADS, 0, *r, call->gate);
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

static void drop(struct syc_call *call, const struct syc_route *r, struct syc_sort_memory *memory)
{
    const struct syi_moe_route_plan *const p = &r->p;
    const int64_t n = p->n_tokens * p->k, most = 4 * (int64_t)call->device->processors;
    int bits = 1;
    while ((int64_t)1 << bits < p->n_experts)
        bits++;
    const struct syc_sorted sorted = syc_sort(call, memory, pairs{r->expert}, n, bits);
    if (p->drop == SY_DROP_PROB)
        syc_launch(&call->queue, drop_by_weight, SYC_AFTER, p->n_experts < most ? p->n_experts : most, SYC_ROUTE_THREADS, 0, *p,
                   r->key, sorted, call->gate);
    else
        syc_launch(&call->queue, drop_by_position, SYC_AFTER, few_blocks(call->device, n), 256, 0, *p, sorted, call->gate);
}

void syc_moe_route(struct syc_call *call, const union syi_plan *plan)
{
    struct syc_route r = {};
    struct memory m = {};
    r.p = plan->moe_route;
    lay_out(call->device, &r.p, call->scratch, &m);
    const bool aligned = (uintptr_t)r.p.counts % sizeof(u64) == 0;
    const int64_t n = r.p.n_experts, blocks = few_blocks(call->device, n);
    if (r.p.counts != NULL) {
        r.counts = aligned ? (u64 *)r.p.counts : m.counts;
        syc_launch(&call->queue, clear_counts, SYC_AFTER, blocks, 256, 0, r.counts, n, call->gate);
    }
    r.blocks = m.blocks;
    r.expert = m.expert;
    r.key = m.key;
    route(call, &r, r.counts != NULL ? SYC_EARLY : SYC_AFTER);
    if (r.counts != NULL && !aligned)
        syc_launch(&call->queue, copy_counts, SYC_AFTER, blocks, 256, 0, r.p.counts, r.counts, n, call->gate);
    if (r.expert != NULL)
        drop(call, &r, &m.sort);
}
