/*
 * Gradients of probs: a value for each row, at its token and expert; zero elsewhere.
 */
#pragma once

#include "cuda/moe/moe_sums.cuh"

struct syc_grad_probs {
    syc_moe_lists lists;
    syi_rows grad_probs; /* [T,E] */
    int bytes;           /* of a prob */
};

/* Zeros for all experts of a token; by a warp. */
SYC_INLINE void syc_clear_token(u8 *to, int64_t n_experts, int bytes)
{
    for (int64_t e = syc_lane(); e < n_experts; e += 32) {
        if (bytes == 4)
            syc_store<u32>(to + e * 4, 0u);
        else
            syc_store<u16>(to + e * 2, (u16)0);
    }
    __syncwarp();
}

/* The expert of the entry `first + lane` of a token, or -1: none, or a later entry of the token has the same
   one. The warp calls it as it calls syc_entry_weight. */
SYC_INLINE int64_t syc_entry_expert(const syc_moe_lists &l, int64_t t, int64_t entry, int64_t n, int32_t row,
                                    int64_t *live)
{
    const u32 rows = __ballot_sync(SYC_ALL_LANES, row >= 0);
    const int64_t rank = *live + __popc(rows & syc_lanes_below());
    *live += __popc(rows);
    if (row < 0)
        return -1;
    if (!l.capacity)
        return __ldcg(l.experts + t * l.n_slots + rank);
    const int64_t e = syc_quotient(row, l.by_slots);
    return entry + 1 < n && syc_quotient(syc_entry_row(l, t, entry + 1), l.by_slots) == e ? -1 : e;
}

/*
 * The gradients of a token's probs, by a warp. Values: `void put(to, bytes, t, n, row, expert)`, called by
 * the warp for up to 32 entries, with the row and the expert of its entry in each lane; -1 where there is
 * none.
 */
template <class Values>
SYC_INLINE void syc_fill_token(const syc_moe_lists &l, u8 *to, int bytes, int64_t t, const Values &values)
{
    syc_clear_token(to, l.n_experts, bytes);
    const int64_t n = l.n_rows > 0 ? syc_entries(l, t) : 0;
    int64_t live = 0;
    for (int64_t first = 0; first < n; first += 32) {
        const int64_t entry = first + syc_lane();
        const int32_t row = entry < n ? syc_entry_row(l, t, entry) : -1;
        const int64_t expert = syc_entry_expert(l, t, entry, n, row, &live);
        values.put(to, bytes, t, (int)min((int64_t)32, n - first), row, expert);
    }
}

/* The gradient of a permuted prob, bit for bit. */
struct syc_copied_probs {
    const u8 *values; /* [M] */

    __device__ __forceinline__ void put(u8 *to, int bytes, int64_t, int, int32_t row, int64_t expert) const
    {
        if (expert < 0)
            return;
        if (bytes == 4)
            syc_store<u32>(to + expert * 4, syc_load<u32>(values + (int64_t)row * 4));
        else
            syc_store<u16>(to + expert * 2, syc_load<u16>(values + (int64_t)row * 2));
    }
};

/* A warp per token. */
template <class Values>
static __global__ void __launch_bounds__(SYC_GROUP_THREADS, 2)
    syc_fill_grad_probs(const syc_grad_probs g, const Values values, const syc_gate gate)
{
    const syc_moe_lists &l = g.lists;
    const int64_t t = (int64_t)blockIdx.x * (SYC_GROUP_THREADS / 32) + syc_warp();
    syc_start_next();
    if (!syc_may_write(gate) || t >= l.n_tokens)
        return;
    syc_fill_token(l, syc_out_row(g.grad_probs, t), g.bytes, t, values);
}

template <class Values>
static void syc_moe_grad_probs(syc_call *call, const syi_moe_rows_plan *p, const syc_moe_lists *lists,
                               const Values &values)
{
    const syc_grad_probs g = {*lists, p->grad_probs, p->prob_type == SY_TYPE_F32 ? 4 : 2};
    const int64_t warps = SYC_GROUP_THREADS / 32;
    syc_launch(&call->queue, syc_fill_grad_probs<Values>, SYC_EARLY, (p->n_tokens + warps - 1) / warps,
               SYC_GROUP_THREADS, 0, g, values, call->gate);
}
