/*
 * Rows of sample of which the first of the order is taken, read once.
 */
#include "cuda/prim/bulk.cuh"
#include "cuda/sample/sample_launch.cuh"
#include "cuda/sample/sample_stream.cuh"

/* The best of what a thread has of a row; where `extra`, its flags and how many tokens are above -inf. Part
 * `rank` of `parts`. */
template <sy_type T, bool extra>
SYC_INLINE u64 first_of_share(const syi_sample_plan &p, const syc_logits &l, int64_t b, u32 rank, u32 parts,
                              seen_tokens<T> &seen)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const syc_vectors v = syc_vectors_of<T>(l);
#pragma unroll 1
    for (u32 at = rank * SYC_TILES + threadIdx.x; at < v.n; at += parts * SYC_TILES) {
        uint4 y[SYC_OWN_TILES];
        load_group<T>(l, v, at, SYC_SAMPLE_THREADS, y);
#pragma unroll
        for (u32 c = 0; c < SYC_OWN_TILES; c++) {
            const u32 token = v.head + (at + c * SYC_SAMPLE_THREADS) * n;
            const uint4 x = syc_masked<T>(l, token, y[c]);
            seen.vector(x, token);
            if (extra)
                seen.count(x);
        }
    }
    u64 first = seen.first();
    if (rank == 0)
        each_rest_of<T>(p, l, b, [&](u32 i, u32 bits) { first = max(first, seen.token(i, bits)); });
    return first;
}

struct greedy_shared {
    u64 gate;
    u64 best[sample_policy::CLUSTER],
        seen[sample_policy::CLUSTER]; /* of all blocks, in the first; flags, and tokens above -inf << 32 */
    u64 part[SYC_BLOCK_WARPS];
    u32 flags[SYC_BLOCK_WARPS], above[SYC_BLOCK_WARPS];
};

/* A row by `parts` blocks: a cluster. */
template <sy_type T, bool extra>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    greedy_rows(const __grid_constant__ syi_sample_plan p, u32 parts, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(greedy_shared, s);
    syc_wait_for_previous();
    syc_start_next();
    const u32 b = blockIdx.x / parts, rank = blockIdx.x - b * parts;
    const syc_logits l = staged_logits(p, b, (u32 *)(s + 1));
    const bool fault = syc_sees_fault(gate);
    seen_tokens<T> tokens;
    tokens.begin();
    if (parts > 1) {
        if (threadIdx.x == 0)
            syc_expect(&s->gate, rank == 0 ? 16 * parts : 0);
        syc_cluster_begin();
    }
    if (l.allow != NULL)
        __syncthreads();
    const u64 own = warp_max(first_of_share<T, extra>(p, l, b, rank, parts, tokens));
    u32 flags = 0, above = 0;
    if (extra) {
        flags = any_flags(tokens.flags);
        above = __reduce_add_sync(SYC_ALL_LANES, tokens.above);
    }
    if (syc_lane() == 0) {
        s->part[syc_warp()] = own;
        s->flags[syc_warp()] = flags;
        s->above[syc_warp()] = above;
    }
    const bool clear = syc_all_clear(gate, fault);
    if (parts > 1)
        syc_cluster_ready();
    if (!clear || syc_warp() != 0)
        return;
    const u32 one = (u32)syc_lane() % SYC_BLOCK_WARPS;
    u64 best = warp_max(s->part[one]);
    flags = any_flags(s->flags[one]);
    above = __reduce_add_sync(SYC_ALL_LANES, syc_lane() < SYC_BLOCK_WARPS ? s->above[one] : 0);
    if (parts > 1) {
        if (syc_lane() == 0) {
            syc_send(&s->best[rank], 0, best, &s->gate);
            syc_send(&s->seen[rank], 0, flags | (u64)above << 32, &s->gate);
        }
        if (rank != 0)
            return;
        syc_wait_at(&s->gate);
        const u64 seen = (u32)syc_lane() < parts ? s->seen[syc_lane()] : 0;
        best = warp_max((u32)syc_lane() < parts ? s->best[syc_lane()] : 0);
        flags = any_flags((u32)seen);
        above = __reduce_add_sync(SYC_ALL_LANES, (u32)(seen >> 32));
    }
    const bool empty = syc_key_of(best) <= SYI_KEY_MINUS_INF;
    if (threadIdx.x == 0)
        put_results(p, b, empty ? p.empty_token : (int64_t)syc_token_of(best),
                    flags | (empty ? SY_ROW_EMPTY : 0u), above, 0.0f);
}

template <bool extra> static void launch(syc_call *call, const syi_sample_plan *p)
{
    const u32 parts = syc_sample_parts(call->device, p);
    const auto kernel = syc_sample_kernel(p, greedy_rows<SY_TYPE_F32, extra>, greedy_rows<SY_TYPE_F16, extra>,
                                          greedy_rows<SY_TYPE_BF16, extra>);
    const size_t shared = sizeof(greedy_shared) + syc_sample_mask_bytes(p);
    syc_allow_shared(&call->queue, kernel, shared);
    syc_launch_clusters(&call->queue, kernel, SYC_EARLY, p->batch * parts, (int)parts, SYC_SAMPLE_THREADS,
                        shared, *p, parts, call->gate);
}

void syc_sample_greedy(syc_call *call, const sample_job *job)
{
    if (job->p->row_flags.data != NULL || job->p->kept.data != NULL)
        launch<true>(call, job->p);
    else
        launch<false>(call, job->p);
}
