/*
 * moe_permute on a device. Packed: the map becomes a list of experts per token, whose slots are ranked by expert; then every
 * token row is read once and written to the rows of its slots. Capacity: the map becomes a row of bits per expert, from
 * which each expert takes its tokens.
 */
#include "cuda/block.cuh"
#include "cuda/moe.cuh"
#include "cuda/backend.cuh"

/* ---- Packed --------------------------------------------------------------------------------------------------------- */

enum { NO_EXPERT = -1, OVERFULL = -2 }; /* in the list; OVERFULL in the first slot of a token with too many experts */

/* A warp per token. */
static __global__ void __launch_bounds__(256)
    list_experts(const struct syi_rows map, int64_t n_tokens, int64_t n_experts, int64_t k, int32_t *list)
{
    const int64_t t = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    if (t >= n_tokens)
        return;
    int32_t *const own = list + t * k;
    const int64_t found = syc_each_expert(syc_row(map, t), n_experts, [=](int64_t j, int64_t e) {
        if (j < k)
            own[j] = (int32_t)e;
    });
    __syncwarp();
    for (int64_t j = (found > k ? 0 : found) + threadIdx.x % 32; j < k; j += 32)
        own[j] = found > k && j == 0 ? OVERFULL : NO_EXPERT;
}

/* The list as keys. */
struct listed {
    int64_t n;
    int n_keys;
    struct syc_split by_k;
    struct syi_rows map;
    const int32_t *list;

    __device__ int key(int64_t i) const { return list[i] >= 0 ? list[i] : -1; }
    __device__ bool wrong(int64_t i) const { return list[i] == OVERFULL; }
    __device__ void explain(int64_t i, struct syi_found *f) const
    {
        const int64_t t = syc_quotient(i, by_k);
        int64_t routed = 0;
        for (int64_t e = 0; e < n_keys; e++)
            routed += syc_row(map, t)[e] != 0;
        *f = {SYI_BAD_MAP_OVERFULL, 0, -1, t, routed, by_k.d, 0};
    }
};

static size_t list_bytes(const struct syi_moe_permute_plan *p) { return syc_sort_align((size_t)p->n_rows * sizeof(int32_t)); }

static void permute_packed(struct syc_call *call, const struct syi_moe_permute_plan *p)
{
    const struct syc_split by_k = syc_split_by(p->n_slots, p->n_rows);
    int32_t *const list = (int32_t *)(call->scratch + 256);
    const struct listed keys = {p->n_rows, (int)p->n_experts, by_k, p->map, list};
    const struct syc_slot_rows rows = {by_k, 0, p->n_rows, p->sorted_indices, p->counts, p->offsets, p->out_probs,
                                       p->probs, (int)p->prob_bytes, true, p->n_experts, (int64_t *)call->scratch};
    const struct syc_fan_shape shape = {p->tokens, p->out_tokens, p->n_tokens, p->n_slots, p->n_rows, (int64_t)p->row_bytes};
    syc_launch(&call->queue, list_experts, SYC_AFTER, syc_ceil(p->n_tokens, 8), 256, 0, p->map, p->n_tokens, p->n_experts,
               p->n_slots, list);
    syc_rank(call, keys, rows, call->scratch + 256 + list_bytes(p));
    syc_fan(call, rows, &shape);
}

/* ---- Capacity, and counts alone --------------------------------------------------------------------------------------- */

struct capacity {
    struct syi_moe_permute_plan plan;
    int64_t n_words; /* of 32 tokens */
    u32 *bits;       /* scratch [E][n_words]: tokens of each expert */
    u32 *routed;     /* scratch [E]: their number */
};

/* A warp turns the experts of 32 tokens into the tokens of 32 experts. */
static __global__ void __launch_bounds__(256) transpose_map(const struct capacity c)
{
    const int64_t tile = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, across = (c.plan.n_experts + 31) / 32;
    const int64_t word = tile / across, first = (tile - word * across) * 32, t = word * 32 + threadIdx.x % 32;
    u32 experts = 0;
    if (t < c.plan.n_tokens)
        for (int b = 0; b < 32; b += 8)
            experts |= first + b < c.plan.n_experts ? syc_experts_at(syc_row(c.plan.map, t), first + b, c.plan.n_experts) << b : 0;
    const u32 tokens = syc_transpose_bits(experts);
    if (word < c.n_words && first + threadIdx.x % 32 < c.plan.n_experts)
        c.bits[(first + threadIdx.x % 32) * c.n_words + word] = tokens;
}

/* Token t gets place `place` of expert e, or none. */
static __device__ __forceinline__ void put_token(const struct syi_moe_permute_plan &p, int64_t e, int64_t place, int64_t t, bool routed)
{
    if (place >= p.n_slots)
        return;
    const int64_t row = e * p.n_slots + place;
    const bool zero = !routed && p.zero_pad;
    syc_store<u32>(p.sorted_indices + 4 * row, zero ? 0xffffffffu : (u32)t);
    if (p.prob_bytes == 0)
        return;
    u8 *const to = p.out_probs + row * (int64_t)p.prob_bytes;
    if (zero)
        for (size_t b = 0; b < p.prob_bytes; b++)
            to[b] = 0;
    else
        syc_copy_prob(to, syc_row(p.probs, t) + e * (int64_t)p.prob_bytes, (int)p.prob_bytes);
}

/* A block per expert: its tokens, then the others, both ascending, as far as it has places. */
static __global__ void __launch_bounds__(256) take_tokens(const struct capacity c, const struct syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const int64_t e = blockIdx.x;
    const u32 *const bits = c.bits + e * c.n_words;
    u64 sum = 0, before = 0;
    if (!syc_may_write(gate))
        return;
    for (int64_t w = threadIdx.x; w < c.n_words; w += 256)
        sum += (u64)__popc(__ldcg(bits + w));
    const u64 routed = syc_block_sum(sum, part);
    if (threadIdx.x == 0) {
        c.routed[e] = (u32)routed;
        if (c.plan.counts != NULL)
            syc_store<u64>(c.plan.counts + 8 * e, routed);
    }
    for (int64_t w0 = 0; w0 < c.n_words && c.plan.n_rows > 0; w0 += 256) {
        const int64_t w = w0 + threadIdx.x;
        const u32 own = w < c.n_words ? __ldcg(bits + w) : 0;
        u64 all, place = before + syc_block_before((u64)__popc(own), part, &all);
        before += all;
        int64_t other = (int64_t)routed + w * 32 - (int64_t)place;
        for (int64_t t = w * 32; t < min(w * 32 + 32, c.plan.n_tokens); t++)
            if ((own >> (t - w * 32) & 1) != 0)
                put_token(c.plan, e, (int64_t)place++, t, true);
            else
                put_token(c.plan, e, other++, t, false);
    }
}

/* One block. */
static __global__ void __launch_bounds__(256) put_offsets(const struct capacity c, const struct syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    u64 before = 0;
    if (!syc_may_write(gate))
        return;
    for (int64_t first = 0; first <= c.plan.n_experts; first += 256) {
        const int64_t e = first + threadIdx.x;
        u64 all, offset = before + syc_block_before(e < c.plan.n_experts ? (u64)__ldcg(c.routed + e) : 0, part, &all);
        before += all;
        if (e <= c.plan.n_experts)
            syc_store<u64>(c.plan.offsets + 8 * e, c.plan.capacity ? (u64)(e * c.plan.n_slots) : offset);
    }
}

struct taken_rows {
    struct syi_rows tokens, out;
    const u8 *sorted_indices;
    __device__ struct syc_piece at(int64_t row) const
    {
        syc_wait_for_previous();
        const int64_t t = (int32_t)syc_load<u32>(sorted_indices + 4 * row);
        return {t >= 0 ? syc_row(tokens, t) : NULL, syc_out_row(out, row)};
    }
};

static size_t bits_bytes(const struct syi_moe_permute_plan *p)
{
    return syc_sort_align((size_t)p->n_experts * (size_t)syc_ceil(p->n_tokens, 32) * sizeof(u32));
}

static void permute_capacity(struct syc_call *call, const struct syi_moe_permute_plan *p)
{
    const struct capacity c = {*p, syc_ceil(p->n_tokens, 32), (u32 *)(call->scratch + 256), (u32 *)(call->scratch + 256 + bits_bytes(p))};
    syc_launch(&call->queue, transpose_map, SYC_AFTER, syc_ceil(c.n_words * syc_ceil(p->n_experts, 32), 8), 256, 0, c);
    syc_launch(&call->queue, take_tokens, SYC_AFTER, p->n_experts, 256, 0, c, call->gate);
    if (p->offsets != NULL)
        syc_launch(&call->queue, put_offsets, SYC_AFTER, 1, 256, 0, c, call->gate);
    const struct taken_rows rows = {p->tokens, p->out_tokens, p->sorted_indices};
    if (p->n_rows > 0)
        syc_move_rows(call, rows, p->n_rows, (int64_t)p->row_bytes,
                      (u64)(uintptr_t)p->tokens.data | (u64)p->tokens.stride | (u64)(uintptr_t)p->out_tokens.data | (u64)p->out_tokens.stride);
}

/* ---- Both ----------------------------------------------------------------------------------------------------------- */

size_t syc_moe_permute_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    const struct syi_moe_permute_plan *const p = &plan->moe_permute;
    if (p->capacity || p->n_rows == 0)
        return 256 + bits_bytes(p) + (size_t)p->n_experts * sizeof(u32);
    return 256 + list_bytes(p) + syc_rank_bytes(p->n_rows, p->n_experts, device->processors);
}

void syc_moe_permute(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_permute_plan *const p = &plan->moe_permute;
    if (p->n_rows == 0 && p->counts == NULL && p->offsets == NULL)
        return; /* without any output the map is not examined */
    if (p->capacity || p->n_rows == 0)
        permute_capacity(call, p);
    else
        permute_packed(call, p);
}
