/*
 * moe_unpermute_grad on a device. In packed mode a group of threads reads the gradient of a token once and
 * writes it to all rows of the token; a table holds the owning slot of each row, so that a row that two slots
 * name has one writer, and rows without an owner are cleared. In capacity mode every row has one token, and
 * groups take rows. Gradients of probs are dot products by another kernel, which only reads rows; where there
 * is much to move, one kernel does both (moe_spread_ring.cu).
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/dots.cuh"
#include "cuda/moe/moe_grads.cuh"
#include "cuda/moe/moe_spread.cuh"

/* A block looks at 256 rows. */
template <class Numbers> SYC_INLINE void clear_rows(const syc_spread &s, int64_t block, int64_t pieces)
{
    __shared__ bool without[256];
    const int64_t first = block * 256, end = min(first + 256, s.lists.n_rows);
    without[threadIdx.x] = first + threadIdx.x < end &&
                           !syc_names(s.lists, syc_owner(s.lists, first + threadIdx.x), first + threadIdx.x);
    if (__syncthreads_or(without[threadIdx.x]) == 0)
        return;
    for (int64_t row = first; row < end; row++)
        for (int64_t at = threadIdx.x; without[row - first] && at < pieces; at += 256)
            Numbers::store(syc_out_row(s.rows, row), at, syc_zero<typename Numbers::V>());
}

/* NOLINT(readability-function-size): loads of what comes next are between the steps of this one */
/* Entries of an item: the rows it is written to, with their weights. Chunks of 32 are in shared memory. */
template <class Numbers>
static __global__ void __launch_bounds__(SYC_GROUP_THREADS)
    spread_groups(const syc_spread s, const syc_groups groups, const syc_gate gate)
{
    enum { U = 4 };
    __shared__ int32_t rows[SYC_GROUP_THREADS / 32][32];
    __shared__ float weights[SYC_GROUP_THREADS / 32][32];
    const syc_moe_lists &l = s.lists;
    const struct syc_place p = syc_place_of(groups, min((u32)s.item_blocks - 1, blockIdx.x));
    const int width = 1 << groups.shift, g = p.group;
    syc_start_next();
    const bool copies = l.probs.data == NULL, in = p.item < s.items && (int64_t)blockIdx.x < s.item_blocks;
    int64_t token = in ? p.item : -1;
    if (in && l.capacity) {
        token = (int32_t)syc_load<u32>(l.indices + p.item * 4);
        token = token < l.n_tokens ? token : -1; /* rejected below */
    }
    typename Numbers::V y[U];
    const auto load = [&](int64_t at) {
#pragma unroll
        for (int u = 0; u < U; u++)
            if (token >= 0 && at + u * width < p.end)
                y[u] = Numbers::load(syc_row(s.tokens, token), at + u * width);
    };
    load(p.begin + p.offset);
    if (!syc_may_write(gate))
        return;
    if ((int64_t)blockIdx.x >= s.item_blocks) {
        clear_rows<Numbers>(s, blockIdx.x - s.item_blocks, groups.pieces);
        return;
    }
    const int64_t n = l.capacity ? 1 : l.n_slots;
    int64_t live = 0;
    /* Weight 0 gives zeros. The warp that leads the group. */
    const auto put_entries = [&](int64_t first) {
        int32_t row = -1;
        float w = 0.0f;
        if (l.capacity) {
            if (syc_lane() == 0 && in) {
                row = (int32_t)p.item;
                w = token < 0 ? 0.0f : copies ? 1.0f : syc_prob(l, token, syc_quotient(row, l.by_slots));
            }
        } else if (in) {
            const int64_t slot = token * n + first + syc_lane();
            row = first + syc_lane() < n ? syc_entry_row(l, token, first + syc_lane()) : -1;
            const u32 all = __ballot_sync(SYC_ALL_LANES, row >= 0);
            const int64_t rank = live + __popc(all & syc_lanes_below());
            live += __popc(all);
            if (row >= 0)
                w = copies ? 1.0f : syc_prob(l, token, __ldcg(l.experts + token * n + rank));
            if (row >= 0 && syc_owner(l, row) != slot)
                row = -1;
        }
        rows[g][syc_lane()] = row;
        weights[g][syc_lane()] = w;
    };
    for (int64_t round = p.begin; round < p.end; round += U * width) {
        const int64_t at = round + p.offset;
        if (round > p.begin)
            load(at);
        for (int64_t first = 0; first < n; first += 32) {
            if (round == p.begin || n > 32) {
                __syncthreads();
                live = first == 0 ? 0 : live;
                if (p.offset < 32)
                    put_entries(first);
                __syncthreads();
            }
            for (int k = 0; k < 32 && first + k < n; k++) {
                const int32_t row = rows[g][k];
                const float w = weights[g][k];
                if (row < 0)
                    continue;
#pragma unroll
                for (int u = 0; u < U; u++)
                    if (at + u * width < p.end)
                        Numbers::store(syc_out_row(s.rows, row), at + u * width,
                                       w == 0.0f ? syc_zero<typename Numbers::V>()
                                       : copies  ? y[u]
                                                 : Numbers::scale(y[u], w));
            }
        }
    }
}

template <class Numbers> static void launch_spread(syc_call *call, syc_spread s, int64_t hidden)
{
    const syc_groups groups = syc_groups_of(s.items, hidden / Numbers::N, 4, call->device->processors);
    const int64_t clearing = s.lists.capacity ? 0 : (s.lists.n_rows + 255) / 256;
    s.item_blocks = syc_groups_blocks(&groups, s.items);
    syc_launch(&call->queue, spread_groups<Numbers>, SYC_EARLY, s.item_blocks + clearing, SYC_GROUP_THREADS,
               0, s, groups, call->gate);
}

/* ---- Dot products ---- */

template <sy_type type, bool WIDE> struct dots {
    syi_rows tokens, saved;
    int64_t hidden;
    sy_type prob_type;

    __device__ __forceinline__ float dot(int64_t t, int32_t row) const
    {
        return syc_dot<type, WIDE>(syc_row(tokens, t), row >= 0 ? syc_row(saved, row) : NULL, hidden);
    }
    __device__ __forceinline__ void store(u8 *to, int bytes, int64_t expert, float value) const
    {
        if (expert >= 0 && syc_lane() % 4 == 0)
            syc_store_float(to + expert * bytes, prob_type, value);
    }
    __device__ __forceinline__ void put(u8 *to, int bytes, int64_t t, int n, int32_t row,
                                        int64_t expert) const
    {
#pragma unroll 1
        for (int k = syc_lane() / 4; k - syc_lane() / 4 < n; k += 8) {
            const int32_t r = __shfl_sync(SYC_ALL_LANES, row, k);
            const int64_t e = __shfl_sync(SYC_ALL_LANES, expert, k);
            store(to, bytes, e, dot(t, e >= 0 ? r : -1));
        }
    }
};

/* of a block: small, so that few slots are on many multiprocessors */
enum { DOT_THREADS = 64, DOT_SLOTS = DOT_THREADS / 4 };

/*
 * Packed: four threads per slot. Experts that a token is not routed to get zeros, by the warp that has its
 * first slot; all others have a slot with a row.
 */
template <class Dots>
static __global__ void __launch_bounds__(DOT_THREADS, 8)
    fill_slots(const __grid_constant__ syc_grad_probs g, const __grid_constant__ Dots dots,
               syc_split by_token, const __grid_constant__ syc_gate gate)
{
    const syc_moe_lists &l = g.lists;
    const int64_t slot = (int64_t)blockIdx.x * DOT_SLOTS + threadIdx.x / 4, end = l.n_tokens * l.n_slots;
    const int64_t t = syc_quotient(min(slot, end - 1), by_token);
    const int32_t row = slot < end ? syc_entry_row(l, 0, slot) : -1;
    int before = 0; /* slots of the token with rows */
#pragma unroll 1
    for (int64_t i = t * l.n_slots + threadIdx.x % 4; i < min(slot, end); i += 4)
        before += syc_entry_row(l, 0, i) >= 0;
    before += __shfl_xor_sync(SYC_ALL_LANES, before, 1);
    before += __shfl_xor_sync(SYC_ALL_LANES, before, 2);
    const float value = dots.dot(t, row); /* of inputs alone, beside the kernels before */
    if (!syc_may_write(gate))
        return;
#pragma unroll 1
    for (int k = 0; k < 8; k++) {
        const int64_t first = __shfl_sync(SYC_ALL_LANES, slot, k * 4),
                      token = __shfl_sync(SYC_ALL_LANES, t, k * 4);
        if (first != token * l.n_slots)
            continue;
        u8 *const to = syc_out_row(g.grad_probs, token);
        for (int64_t e = syc_lane(); e < l.n_experts; e += 32) {
            if (syc_row(l.map, token)[e] != 0)
                continue;
            if (g.bytes == 4)
                syc_store<u32>(to + e * 4, 0u);
            else
                syc_store<u16>(to + e * 2, (u16)0);
        }
    }
    dots.store(syc_out_row(g.grad_probs, t), g.bytes,
               row >= 0 ? __ldcg(l.experts + t * l.n_slots + before) : -1, value);
}

/* ---- moe_unpermute_grad ---- */

static syc_spread lay_out(const syc_device *device, const syi_moe_rows_plan *p, syc_scratch *scratch)
{
    syc_spread s = {syc_moe_lists_of(p),
                    p->hidden,
                    p->type,
                    p->prob_type,
                    p->permuted,
                    p->tokens,
                    p->saved,
                    p->grad_probs,
                    p->capacity ? p->n_rows : p->n_tokens,
                    0};
    syc_moe_take_lists(&s.lists, p->probs.data != NULL, scratch);
    if (!p->capacity)
        s.lists.owner = scratch->take<int32_t>(p->n_rows);
    if (syc_moe_spread_ring_why_not(device, &s, p->wants_grad_probs) == NULL)
        s.lists.weights = scratch->take<float>(p->n_rows);
    return s;
}

SYC_WORKSPACE(moe_unpermute_grad, moe_rows)

struct spread_launch {
    syc_call *call;
    const syc_spread *s;
    int64_t hidden;
    template <sy_type T, bool WIDE> void run() const
    {
        launch_spread<syc_numbers<T, WIDE>>(call, *s, hidden);
    }
};

struct dots_launch {
    syc_call *call;
    const syi_moe_rows_plan *p;
    const syc_moe_lists *l;

    template <sy_type T, bool WIDE> void run() const
    {
        const struct dots<T, WIDE> values = {
            p->tokens, p->saved, p->hidden, p->prob_type
        };
        const int64_t slots = p->n_tokens * p->n_slots;
        const syc_grad_probs g = {*l, p->grad_probs, p->prob_type == SY_TYPE_F32 ? 4 : 2};
        if (p->capacity || p->n_rows == 0 || slots == 0)
            syc_moe_grad_probs(call, p, l, values);
        else
            syc_launch(&call->queue, fill_slots<struct dots<T, WIDE>>, SYC_EARLY,
                       (slots + DOT_SLOTS - 1) / DOT_SLOTS, DOT_THREADS, 0, g, values,
                       syc_split_by(p->n_slots, slots), call->gate);
    }
};

void syc_moe_unpermute_grad(syc_call *call, const syi_plan *plan)
{
    const syi_moe_rows_plan *const p = &plan->moe_rows;
    syc_scratch scratch = {call->scratch, 0};
    const syc_spread s = lay_out(call->device, p, &scratch);
    const u64 row_bytes = (u64)p->hidden * syi_float_bytes(p->type);
    const u64 alignment =
        syc_alignment(p->permuted) | syc_alignment(p->tokens) | syc_alignment(p->saved) | row_bytes;
    if (syc_takes(call, "spread_ring",
                  alignment % 16 != 0 ? "rows are not aligned to 16 bytes"
                                      : syc_moe_spread_ring_why_not(call->device, &s, p->wants_grad_probs))) {
        syc_moe_lists lists = s.lists; /* the ring lists experts and weights itself */
        lists.experts = NULL;
        lists.weights = NULL;
        syc_moe_validate(call, &lists);
        syc_moe_spread_ring(call, &s);
        return;
    }
    syc_takes(call, "groups");
    syc_moe_validate(call, &s.lists);
    if (p->hidden == 0 || p->n_rows == 0)
        syc_only_report(call);
    if (p->n_rows > 0 && p->hidden > 0)
        syc_by_type(p->type, syc_alignment(p->permuted) | syc_alignment(p->tokens) | row_bytes,
                    spread_launch{call, &s, p->hidden});
    if (!p->wants_grad_probs)
        return;
    syc_by_type(p->type, syc_alignment(p->saved) | syc_alignment(p->tokens) | row_bytes,
                dots_launch{call, p, &s.lists});
}
