/*
 * Draws from whole rows, without any filter: blocks share a row to find its largest key, then to weigh it in segments; a block
 * for each row then looks for the token in the segment that has it. The rows are weighed last first, since those are still in
 * the cache.
 */
#ifndef SYC_SAMPLE_DRAW_CUH
#define SYC_SAMPLE_DRAW_CUH

#include "cuda/sample_stream.cuh"

enum { DRAW_SEGMENTS = SPLIT_THREADS / 32 }; /* of a part: one for each warp */

/* Whether every row of a call is such a draw, or cold. */
static bool draws_from_rows(const struct syi_sample_plan *p)
{
    return may_be_quick(p) && p->noise == SY_NOISE_CDF && !p->probs_in && p->kept == NULL && p->top_k.rows.data == NULL &&
           p->top_p.rows.data == NULL && p->min_p.rows.data == NULL && p->vocab >= SYC_FEW;
}

/* What find_cells leaves, without cells, and what the segments weigh. */
static size_t draw_bytes(int64_t batch, int parts) { return (size_t)batch * (size_t)parts * (1 + DRAW_SEGMENTS) * sizeof(u64); }

static struct syc_parts draw_parts(int64_t batch, int parts, u8 *memory)
{
    u64 *const most = (u64 *)memory;
    return {NULL, most, most + batch * parts, parts};
}

/* The largest key of a row, and its flags. */
template <sy_type T> static __device__ __forceinline__ u64 most_of_row(const struct syc_logits &l, const struct syc_parts &split, int64_t b, u64 *part)
{
    u64 most = (int)threadIdx.x < split.parts ? __ldcg(split.most + b * split.parts + threadIdx.x) : 0;
    u32 flags = (u32)most, key = (u32)(most >> 32);
    syc_each_rest<T>(l, [&](u32, u32 bits) {
        key = max(key, syi_key(bits));
        flags |= syi_key_flags(bits);
    });
    key = (u32)syc_block_max(key, part);
    const bool nan = __syncthreads_or((flags & SY_ROW_NAN) != 0), inf = __syncthreads_or((flags & SY_ROW_INF) != 0);
    return (u64)key << 32 | (nan ? SY_ROW_NAN : 0u) | (inf ? SY_ROW_INF : 0u);
}

template <sy_type T>
static __global__ void __launch_bounds__(SPLIT_THREADS)
    weigh_segments(const __grid_constant__ struct syi_sample_plan p, const __grid_constant__ struct syc_parts split)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const u32 turned = (u32)p.batch - 1 - blockIdx.x / (u32)split.parts, own = blockIdx.x % (u32)split.parts;
    const int64_t b = turned;
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const int segments = split.parts * DRAW_SEGMENTS, segment = (int)own * DRAW_SEGMENTS + syc_warp();
    syc_start_next();
    const struct syc_params a = load_params(p, b);
    syc_wait_for_previous();
    const struct syc_scale scale = {syi_key_value((u32)(most_of_row<T>(l, split, b, part) >> 32)), a.inv_t, false};
    const u64 sum = syc_warp_sum(weigh_share<T>(l, scale, syc_part_of<T>(l, segment, segments), (u32)syc_lane(), 32));
    if (syc_lane() == 0)
        split.weight[b * segments + segment] = sum;
}

/* The first token that has a key. */
template <sy_type T> SYC_COLD u32 token_with(struct syc_logits l, u32 key, u64 *part)
{
    constexpr u32 n = T == SY_TYPE_F32 ? 4 : 8;
    const struct syc_vectors v = syc_vectors_of<T>(l);
    u32 token = ~0u;
    const auto look = [&](u32 i, u32 bits) {
        if (syi_key(bits) == key)
            token = min(token, i);
    };
#pragma unroll 1
    for (u32 at = threadIdx.x; at < v.n; at += blockDim.x)
        syc_each_of<T>(v.head + at * n, syc_vector_at<T>(l, v.head + at * n), look);
    syc_each_rest<T>(l, look);
    return ~(u32)syc_block_max((u32)~token, part);
}

template <sy_type T>
static __global__ void __launch_bounds__(SPLIT_THREADS)
    draw_rows(const __grid_constant__ struct syi_sample_plan p, const __grid_constant__ struct syc_parts split,
              const __grid_constant__ struct syc_gate gate)
{
    static_assert((int)MOST_PARTS * (int)DRAW_SEGMENTS <= 2 * (int)SPLIT_THREADS, "two for each thread");
    __shared__ u64 part[SYC_BLOCK_WARPS], answer[3];
    const int64_t b = blockIdx.x;
    const struct syc_logits l = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab};
    const struct syc_params a = load_params(p, b);
    uint32_t word[4];
    syi_noise_words(&a.noise, UINT32_MAX, word);
    syc_wait_for_previous();
    const bool fault = syc_sees_fault(gate);
    const int segments = split.parts * DRAW_SEGMENTS, one = 2 * (int)threadIdx.x;
    const u64 first = one < segments ? __ldcg(split.weight + b * segments + one) : 0,
              second = one < segments ? __ldcg(split.weight + b * segments + one + 1) : 0;
    if (!syc_all_clear(gate, fault))
        return;
    const u64 most = most_of_row<T>(l, split, b, part);
    const u32 key = (u32)(most >> 32);
    const struct syc_scale scale = {syi_key_value(key), a.inv_t, false};
    const bool empty = key == SYI_KEY_MINUS_INF;
    int64_t token = p.empty_token;
    float lp = empty ? __uint_as_float(SYC_MINUS_INF_BITS) : 0.0f;
    if (!empty && a.greedy)
        token = token_with<T>(l, key, part);
    else if (!empty) {
        u64 total;
        const u64 before = syc_block_before(first + second, part, &total), target = syi_share_of(word[0] | (u64)word[1] << 32, total);
        if (before <= target && target < before + first + second) {
            const bool in_first = target < before + first;
            answer[0] = (u64)(in_first ? one : one + 1);
            answer[1] = target - before - (in_first ? 0 : first);
        }
        __syncthreads();
        const struct syc_share share = syc_part_of<T>(l, (int)answer[0], segments);
        const u64 rest = answer[1];
        __syncthreads();
        token = find_in_share(part, answer, share.first, share.end, rest, [&](u32 i) { return syc_weight_of_bits(scale, syc_bits_at<T>(l, i)); });
        if (p.logprob != NULL && threadIdx.x == 0)
            lp = log_share(scale, syc_key_at<T>(l, (u32)token), total);
    }
    if (threadIdx.x == 0)
        put_results(p, b, token, (u32)most | (empty ? SY_ROW_EMPTY : 0u), 0, lp);
}

#endif
