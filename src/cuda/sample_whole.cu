/*
 * Rows of sample without any filter, of which every token is weighed: draws from whole rows, and FINAL log-probabilities of greedy
 * ones. A block, or a cluster where rows are few, reads a row twice: for its largest key, then from its end on, which is still in
 * the cache, to weigh it in segments, one for each warp. The first block looks for the token in the segment that has it.
 */
#include "cuda/sample_launch.cuh"
#include "cuda/sample_segments.cuh"

struct whole_shared {
    u64 gate[2];                                     /* for `best` and `seen`, for `segment` */
    u64 best[MOST_CLUSTER];                          /* of all blocks */
    u64 seen[MOST_CLUSTER];                          /* the same, in the first: flags, and tokens above -inf << 32 */
    u64 segment[MOST_CLUSTER * SYC_BLOCK_WARPS];     /* weights, in the first */
    u64 part[SYC_BLOCK_WARPS], answer[3], uniform;
    u32 flags[SYC_BLOCK_WARPS], above[SYC_BLOCK_WARPS];
    struct syc_params params;
};

/* What a lane has of the weight of its segment; the last group is in y. */
template <sy_type T>
static __device__ __forceinline__ u64 weigh_segment(const struct syc_logits &l, const struct syc_scale &scale, const struct syc_share &own, u32 groups, uint4 *y)
{
    const float largest = 3.402823466e38f;
    if (!(scale.max < largest)) /* +inf counts as FLT_MAX */
        return weigh_share<T>(l, scale, own, (u32)syc_lane(), 32);
    u64 sum = 0;
    const auto add = [&](u32, u32 bits) { sum += syc_weight_at(__fmul_rn(__fsub_rn(__uint_as_float(bits), scale.max), scale.inv_t)); };
#pragma unroll 1
    for (u32 g = groups - 1;; g--) {
        uint4 next[SYC_CELLS];
        if (g > 0)
            load_from<T>(l, own, g - 1, next);
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++)
            syc_each_of<T>(0, y[c], add);
        if (g == 0)
            break;
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++)
            y[c] = next[c];
    }
    each_beside(own, [&](u32 i) { sum += syc_weight_of_bits(scale, syc_bits_at<T>(l, i)); });
    return sum;
}

template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    whole_rows(const __grid_constant__ struct syi_sample_plan p, u32 parts, const __grid_constant__ struct syc_gate gate)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    SYC_DYNAMIC_SHARED(struct whole_shared, s);
    const u32 b = blockIdx.x / parts, rank = blockIdx.x - b * parts, segments = parts * SYC_BLOCK_WARPS, lane = (u32)syc_lane(), warp = (u32)syc_warp();
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const struct syc_share own = segment_of<T>(l, rank * SYC_BLOCK_WARPS + warp, segments);
    const u32 groups = max(((own.rest - own.whole) / n + GROUP - 1) / GROUP, 1u);
    const bool fault = syc_sees_fault(gate);
    const bool extra = p.row_flags != NULL || p.kept != NULL;
    struct seen_tokens<T> seen;
    uint4 y[SYC_CELLS];
    if (parts > 1) {
        if (threadIdx.x == 0) {
            syc_expect(&s->gate[0], (rank == 0 ? 16 : 8) * parts);
            syc_expect(&s->gate[1], rank == 0 ? 8 * segments : 0);
        }
        syc_cluster_begin();
    }
    load_from<T>(l, own, 0, y); /* on its way together with the parameters */
    if (warp == 0) {
        const struct syc_params a = load_params(p, b);
        if (lane == 0) {
            s->params = a;
            if (parts == 1)
                s->uniform = uniform_of(a.noise);
        }
    }
    seen.begin();
#pragma unroll 1
    for (u32 g = 0;;) {
#pragma unroll
        for (u32 c = 0; c < SYC_CELLS; c++) {
            seen.vector(y[c], own.whole + (g * GROUP + c * 32 + lane) * n);
            if (extra)
                seen.count(y[c]);
        }
        if (++g == groups)
            break;
        load_from<T>(l, own, g, y);
    }
    u64 first = seen.first();
    each_beside(own, [&](u32 i) { first = max(first, seen.token(i, syc_bits_at<T>(l, i))); });
    first = warp_max(first);
    u32 flags = any_flags(seen.flags), above = __reduce_add_sync(SYC_ALL_LANES, seen.above);
    if (lane == 0) {
        s->part[warp] = first;
        s->flags[warp] = flags;
        s->above[warp] = above;
    }
    const bool clear = syc_all_clear(gate, fault);
    if (parts > 1)
        syc_cluster_ready();
    if (!clear)
        return;
    first = warp_max(s->part[lane % SYC_BLOCK_WARPS]);
    flags = any_flags(s->flags[lane % SYC_BLOCK_WARPS]);
    above = __reduce_add_sync(SYC_ALL_LANES, lane < SYC_BLOCK_WARPS ? s->above[lane] : 0);
    if (parts > 1) {
        if (threadIdx.x < parts)
            syc_send(&s->best[rank], threadIdx.x, first, &s->gate[0]);
        if (threadIdx.x == 0)
            syc_send(&s->seen[rank], 0, flags | (u64)above << 32, &s->gate[0]);
        syc_wait_at(&s->gate[0]);
        first = warp_max(lane < parts ? s->best[lane] : 0);
    }
    const u32 key = syc_key_of(first);
    const bool empty = key <= SYI_KEY_MINUS_INF, greedy = s->params.greedy, weighs = !empty && (!greedy || (p.logprob != NULL && !s->params.cold));
    const struct syc_scale scale = {syi_key_value(key), s->params.inv_t, false};
    if (weighs) {
        const u64 sum = sum_of_warp(weigh_segment<T>(l, scale, own, groups, y));
        if (lane == 0 && parts > 1)
            syc_send(&s->segment[rank * SYC_BLOCK_WARPS + warp], 0, sum, &s->gate[1]);
        else if (lane == 0)
            s->segment[warp] = sum;
    }
    if (rank != 0)
        return;
    if (parts > 1) {
        const u64 other = lane < parts ? s->seen[lane] : 0;
        if (threadIdx.x == 0)
            s->uniform = uniform_of(s->params.noise); /* while sums are on their way */
        flags = any_flags((u32)other);
        above = __reduce_add_sync(SYC_ALL_LANES, (u32)(other >> 32));
        if (weighs)
            syc_wait_at(&s->gate[1]);
    }
    __syncthreads();
    struct segment_found found = {0, 0, 0};
    u32 token = syc_token_of(first);
    bool writes = threadIdx.x == 0;
    if (weighs)
        found = find_segment(s->segment, segments, [&](u64 total) { return syi_share_of(s->uniform, total); });
    if (weighs && !greedy)
        writes = find_token<T>(l, segment_of<T>(l, found.segment, segments), found.rest, s->part, s->answer, &token,
                               [&](u32, u32 bits) { return syc_weight_of_bits(scale, bits); });
    if (!writes)
        return;
    float lp = empty ? __uint_as_float(SYC_MINUS_INF_BITS) : 0.0f;
    if (p.logprob != NULL && weighs)
        lp = log_share(scale, syc_key_at<T>(l, token), found.total);
    put_results(p, b, empty ? p.empty_token : (int64_t)token, flags | (empty ? SY_ROW_EMPTY : 0u), above, lp);
}

void syc_sample_whole(struct syc_call *call, const struct syi_sample_plan *p)
{
    const u32 parts = syc_sample_parts(call->device, p);
    syc_launch_clusters(&call->queue, SYC_SAMPLE_KERNEL(p, whole_rows), SYC_AFTER, p->batch * parts, (int)parts, SYC_SAMPLE_THREADS, sizeof(struct whole_shared), *p, parts, call->gate);
}
