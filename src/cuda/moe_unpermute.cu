/*
 * moe_unpermute on a device, and what it shares with moe_unpermute_ids and the gradients: the validation of indices and
 * the sums of the rows of each token, which are added in the order of the entries.
 */
#include "cuda/backend.cuh"
#include "cuda/bulk.cuh"
#include "cuda/moe_sums.cuh"

/* ---- Validation: packed --------------------------------------------------------------------------------------------- */

/* Indices without a map: one item per slot. */
struct slot_check {
    int64_t n, limit;
    const u8 *indices;

    __device__ int64_t at(int64_t i) const { return (int32_t)syc_load<u32>(indices + i * 4); }
    __device__ bool wrong(int64_t i) const { return at(i) < -1 || at(i) >= limit; }
    __device__ void explain(int64_t i, struct syi_found *f) const
    {
        *f = {SYI_BAD_SORTED_RANGE, 0, -1, i, at(i), limit, 0};
    }
};

enum { JUDGE_THREADS = 512, JUDGE_WARPS = JUDGE_THREADS / 32 };

/* The fault of a token: the first index outside, or how many experts it has. One thread. */
SYC_COLD void explain_token(const struct syc_moe_lists &l, int64_t t, struct syi_found *f)
{
    int64_t live = 0, routed = 0;
    for (int64_t i = t * l.n_slots; i < (t + 1) * l.n_slots; i++) {
        const int64_t row = (int32_t)syc_load<u32>(l.indices + i * 4);
        live += row >= 0;
        if (row < -1 || row >= l.n_rows) {
            *f = {SYI_BAD_SORTED_RANGE, 0, -1, i, row, l.n_rows, 0};
            return;
        }
    }
    for (int64_t e = 0; e < l.n_experts; e++)
        routed += syc_row(l.map, t)[e] != 0;
    *f = {SYI_BAD_MAP_SLOTS, 0, -1, t, routed, live, 0};
}

/* A warp per token. With a map, every routed expert must have a slot with a row. */
static __global__ void __launch_bounds__(JUDGE_THREADS) judge_tokens(const struct syc_moe_lists l, const struct syc_gate gate)
{
    __shared__ u64 first;
    syc_start_next();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    __syncthreads();
    if (l.clear != NULL)
        for (int64_t i = (int64_t)blockIdx.x * JUDGE_THREADS + threadIdx.x; i < l.n_rows; i += (int64_t)gridDim.x * JUDGE_THREADS)
            l.clear[i] = -1;
    for (int64_t t = (int64_t)blockIdx.x * JUDGE_WARPS + syc_warp(); t < l.n_tokens; t += (int64_t)gridDim.x * JUDGE_WARPS) {
        int64_t live = 0;
        bool bad = false;
        for (int64_t j = 0; j < l.n_slots; j += 32) {
            const int64_t at = t * l.n_slots + j + syc_lane();
            const int64_t row = j + syc_lane() < l.n_slots ? (int32_t)syc_load<u32>(l.indices + at * 4) : -1;
            bad |= row < -1 || row >= l.n_rows;
            live += __popc(__ballot_sync(SYC_ALL_LANES, row >= 0));
        }
        const int64_t routed = l.map.data == NULL ? live : syc_for_experts(l, t, [&](int64_t n, int64_t e) {
            if (n < l.n_slots && l.experts != NULL)
                l.experts[t * l.n_slots + n] = (int32_t)e;
            if (n < l.n_slots && l.weights != NULL)
                l.weights[t * l.n_slots + n] = syc_prob(l, t, e);
        });
        if (__any_sync(SYC_ALL_LANES, bad) || routed != live) {
            if (syc_lane() == 0)
                atomicMin(&first, (u64)t);
            break;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        gate.order[blockIdx.x] = first;
        if (first != SYC_NO_FAULT)
            explain_token(l, (int64_t)first, &gate.found[blockIdx.x]);
    }
}

/* ---- Validation: capacity ------------------------------------------------------------------------------------------- */

enum { INVERT_THREADS = 512, INVERT_WARPS = INVERT_THREADS / 32, INVERT_AHEAD = 4 };

/* What a warp of the kernel below goes through: the indices of its part, in order, several loads at a time. */
template <class Each> static __device__ __forceinline__ void for_indices(const struct syc_moe_lists &l, Each each)
{
    const int64_t end = syc_warp_part(l.n_rows, syc_warp() + 1);
    for (int64_t first = syc_warp_part(l.n_rows, syc_warp()); first < end; first += 32 * INVERT_AHEAD) {
        int32_t token[INVERT_AHEAD];
#pragma unroll
        for (int u = 0; u < INVERT_AHEAD; u++) {
            const int64_t i = first + u * 32 + syc_lane();
            token[u] = i < end ? (int32_t)syc_load<u32>(l.indices + i * 4) : -1;
        }
#pragma unroll
        for (int u = 0; u < INVERT_AHEAD; u++)
            each(first + u * 32 + syc_lane(), token[u], first + u * 32 + syc_lane() < end);
    }
}

/*
 * The rows of each token, ascending. A block has `per` tokens, at most INVERT_THREADS, and reads all indices: its warps
 * first count the rows of these tokens in their parts of the indices, then store them. Block 0 validates.
 */
static __global__ void __launch_bounds__(INVERT_THREADS)
    invert(const struct syc_moe_lists l, int per, const struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, places); /* [warp][per] */
    __shared__ u64 part[SYC_BLOCK_WARPS], wrong;
    const int64_t t0 = (int64_t)blockIdx.x * per, least = l.zero_pad ? -1 : 0;
    const int own = (int)max((int64_t)0, min((int64_t)per, l.n_tokens - t0));
    u32 *const mine = places + syc_warp() * per;
    syc_start_next();
    if (threadIdx.x == 0)
        wrong = SYC_NO_FAULT;
    for (int i = (int)threadIdx.x; i < INVERT_WARPS * per; i += INVERT_THREADS)
        places[i] = 0;
    __syncthreads();
    u64 before = 0;
    for_indices(l, [&](int64_t i, int32_t t, bool in) {
        if (in && (t < least || t >= l.n_tokens))
            atomicMin(&wrong, (u64)i);
        before += t >= 0 && t < t0;
        if (t >= t0 && t < t0 + own)
            atomicAdd(&mine[t - t0], 1u);
    });
    const u64 first = syc_block_sum(before, part);
    u64 rows = 0, all;
    for (int w = 0; w < INVERT_WARPS && (int)threadIdx.x < own; w++)
        rows += places[w * per + threadIdx.x];
    u64 place = first + syc_block_before(rows, part, &all);
    if ((int)threadIdx.x < own) {
        l.start[t0 + threadIdx.x] = (int32_t)place;
        for (int w = 0; w < INVERT_WARPS; w++) {
            const u32 n = places[w * per + threadIdx.x];
            places[w * per + threadIdx.x] = (u32)place;
            place += n;
        }
    }
    if (threadIdx.x == 0 && t0 + own == l.n_tokens)
        l.start[l.n_tokens] = (int32_t)(first + all);
    __syncthreads();
    for_indices(l, [&](int64_t i, int32_t t, bool) {
        const int own_token = t >= t0 && t < t0 + own ? (int)(t - t0) : -1;
        if (__ballot_sync(SYC_ALL_LANES, own_token >= 0) == 0)
            return;
        const u32 same = __match_any_sync(SYC_ALL_LANES, own_token);
        if (own_token >= 0)
            l.list[mine[own_token] + (u32)__popc(same & syc_lanes_below())] = (int32_t)i;
        __syncwarp();
        if (own_token >= 0 && syc_lane() == __ffs((int)same) - 1)
            mine[own_token] += (u32)__popc(same);
        __syncwarp();
    });
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        gate.order[0] = wrong;
        if (wrong != SYC_NO_FAULT)
            gate.found[0] = {l.zero_pad ? (int32_t)SYI_BAD_SORTED_RANGE : (int32_t)SYI_BAD_SORTED_TOKEN, 0, -1, (int64_t)wrong,
                             (int32_t)syc_load<u32>(l.indices + wrong * 4), l.n_tokens, 0};
    }
}

void syc_moe_validate(struct syc_call *call, const struct syc_moe_lists *l)
{
    const int64_t processors = call->device->processors;
    if (l->capacity) {
        const int64_t even = (l->n_tokens + processors - 1) / processors;
        const int per = (int)(even < 1 ? 1 : even < INVERT_THREADS ? even : (int64_t)INVERT_THREADS);
        const int64_t blocks = (l->n_tokens + per - 1) / per;
        call->gate.n = 1;
        syc_launch(&call->queue, invert, SYC_AFTER, blocks > 0 ? blocks : 1, INVERT_THREADS,
                   (size_t)INVERT_WARPS * (size_t)per * sizeof(u32), *l, per, call->gate);
    } else if (l->n_rows > 0 && (l->map.data != NULL || l->clear != NULL)) {
        const int64_t wanted = (l->n_tokens + JUDGE_WARPS - 1) / JUDGE_WARPS;
        call->gate.n = (int)(wanted < processors ? wanted : processors < SYC_MAX_CHECK_BLOCKS ? processors : SYC_MAX_CHECK_BLOCKS);
        syc_prefer_shared(&call->queue, judge_tokens);
        syc_launch(&call->queue, judge_tokens, SYC_AFTER, call->gate.n, JUDGE_THREADS, 0, *l, call->gate);
    } else {
        const int64_t n = l->n_tokens * l->n_slots;
        syc_prefer_shared(&call->queue, syc_validate<slot_check>);
        syc_check(call, slot_check{n, l->by_slot ? n : l->n_rows, l->indices});
    }
}

/* ---- Sums: a group of threads per token ------------------------------------------------------------------------------- */

/*
 * Entries are processed in chunks of 32: rows and weights of a chunk are in shared memory. A thread loads KU rows of U
 * pieces at a time. The first of these loads are started before the validation has ended.
 */
template <class Piece, int KU, int U>
static __global__ void __launch_bounds__(SYC_GROUP_THREADS)
    sum_groups(const struct syc_moe_sums s, const struct syc_groups groups, const struct syc_gate gate)
{
    __shared__ int32_t rows[SYC_GROUP_THREADS / 32][32];
    __shared__ float weights[SYC_GROUP_THREADS / 32][32], found[SYC_GROUP_THREADS / 32][32];
    const struct syc_place p = syc_place_of(groups, blockIdx.x);
    const struct syc_moe_lists &l = s.lists;
    const int width = 1 << groups.shift, g = p.group;
    const bool leads = p.offset < 32;
    typename Piece::raw y[KU][U];
    int64_t live = 0;
    if (l.capacity && !syc_may_write(gate)) /* the lists are made by the validation */
        return;
    const int64_t n = p.item < l.n_tokens ? syc_entries(l, p.item) : 0;
    const auto put_rows = [&](int64_t first) {
        if (leads)
            rows[g][syc_lane()] = first + syc_lane() < n ? syc_entry_row(l, p.item, first + syc_lane()) : -1;
    };
    const auto put_weights = [&](int64_t first) {
        if (leads) /* n is the same for the warp; where it is 0 there are no rows */
            weights[g][syc_lane()] = n > 0 ? syc_entry_weight(l, p.item, first, rows[g][syc_lane()], found[g], &live) : 0.0f;
    };
    const auto load = [&](int k0, int64_t at) {
#pragma unroll
        for (int k = 0; k < KU; k++) {
            const int32_t row = k0 + k < 32 ? rows[g][k0 + k] : -1;
#pragma unroll
            for (int u = 0; u < U; u++)
                if (row >= 0 && at + u * width < p.end)
                    y[k][u] = Piece::load(syc_row(s.rows, row), at + u * width);
        }
    };
    put_rows(0);
    __syncthreads();
    load(0, p.begin + p.offset);
    put_weights(0);
    if (l.capacity)
        __syncthreads();
    else if (!syc_may_write(gate))
        return;
    const bool one = !__syncthreads_or(n > 32); /* chunk, for all groups of the block */
    for (int64_t round = p.begin; round < p.end; round += U * width) {
        const int64_t at = round + p.offset;
        float sum[U][Piece::N] = {};
        for (int64_t first = 0; one ? first == 0 : __syncthreads_or(first == 0 || first < n) != 0; first += 32) {
            bool loaded = round == p.begin && first == 0;
            if (!one && !loaded) {
                live = first == 0 ? 0 : live;
                put_rows(first);
                put_weights(first);
                __syncthreads();
            }
            for (int k0 = 0; k0 < 32 && first + k0 < n; k0 += KU) {
                if (!loaded)
                    load(k0, at);
                loaded = false;
#pragma unroll
                for (int k = 0; k < KU; k++) {
                    const float w = k0 + k < 32 ? weights[g][k0 + k] : 0.0f;
#pragma unroll
                    for (int u = 0; u < U; u++)
                        if (at + u * width < p.end)
                            syc_add_row<Piece>(sum[u], w, y[k][u]);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < U; u++)
            if (p.item < l.n_tokens && at + u * width < p.end)
                Piece::store(syc_out_row(s.out, p.item), at + u * width, Piece::narrow(sum[u]));
    }
}

template <class Piece, int KU, int U> static void launch_groups(struct syc_call *call, const struct syc_moe_sums *s)
{
    const int64_t pieces = s->hidden / Piece::N;
    const struct syc_groups groups = syc_groups_of(s->lists.n_tokens, pieces, U, call->device->processors);
    syc_launch(&call->queue, sum_groups<Piece, KU, U>, SYC_EARLY, syc_groups_blocks(&groups, s->lists.n_tokens),
               SYC_GROUP_THREADS, 0, *s, groups, call->gate);
}

template <sy_type type> static void launch_sums(struct syc_call *call, const struct syc_moe_sums *s)
{
    const int64_t row_bytes = s->hidden * (type == SY_TYPE_F32 ? 4 : 2);
    if (!syc_aligned_rows(s->rows, row_bytes, 16) || !syc_aligned_rows(s->out, row_bytes, 16))
        launch_groups<syc_element<type>, 8, 1>(call, s);
    else if (syc_moe_ring_pays(call->device, s))
        syc_moe_sum_ring(call, s);
    else if (!s->lists.capacity && s->lists.n_slots <= 2)
        launch_groups<syc_vector<type>, 2, 4>(call, s);
    else
        launch_groups<syc_vector<type>, 8, 1>(call, s);
}

void syc_moe_take_sums(const struct syc_device *device, struct syc_moe_sums *s, struct syc_arena *arena)
{
    struct syc_moe_lists *const l = &s->lists;
    if (l->map.data != NULL && l->probs.data != NULL && (l->n_slots > 32 || syc_moe_ring_pays(device, s)))
        l->weights = (float *)arena->take(l->n_rows, sizeof *l->weights);
}

void syc_moe_sum(struct syc_call *call, const struct syc_moe_sums *s)
{
    if (s->hidden == 0 || s->lists.n_tokens == 0)
        syc_only_report(call);
    else if (s->type == SY_TYPE_F32)
        launch_sums<SY_TYPE_F32>(call, s);
    else if (s->type == SY_TYPE_F16)
        launch_sums<SY_TYPE_F16>(call, s);
    else
        launch_sums<SY_TYPE_BF16>(call, s);
}

/* ---- moe_unpermute --------------------------------------------------------------------------------------------------- */

static struct syc_moe_sums lay_out(const struct syc_device *device, const struct syi_moe_rows_plan *p, struct syc_arena *arena)
{
    struct syc_moe_sums s = {syc_moe_lists_of(p), p->hidden, p->type, p->permuted, p->tokens};
    syc_moe_take_lists(&s.lists, false, arena);
    syc_moe_take_sums(device, &s, arena);
    return s;
}

size_t syc_moe_unpermute_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    struct syc_arena arena = {NULL, 0};
    lay_out(device, &plan->moe_rows, &arena);
    return arena.used;
}

void syc_moe_unpermute(struct syc_call *call, const union syi_plan *plan)
{
    struct syc_arena arena = {call->scratch, 0};
    const struct syc_moe_sums s = lay_out(call->device, &plan->moe_rows, &arena);
    syc_moe_validate(call, &s.lists);
    syc_moe_sum(call, &s);
}
