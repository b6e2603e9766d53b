/*
 * moe_align_block on a device: slots are ranked by expert, then every place of sorted_slots finds its expert
 * and takes a slot or padding.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/rank.cuh"
#include "cuda/runtime/scratch.cuh"
#include "cuda/prim/slots.cuh"

enum { IN_SHARED = 4096 }; /* experts whose first places every block computes for itself */

/*
 * Items: slots, then entries of expert_map. Only the first have keys. Loads and divisions are without calls,
 * since several items are in flight.
 */
struct align_keys {
    int64_t n;
    int n_keys;
    int64_t n_ids; /* less than 2^31 */
    syc_divisor by_k;
    syi_moe_align_block_plan p;

    __device__ int64_t id(int64_t i) const
    {
        const int64_t t = syc_divide((u32)i, by_k), k = i - t * by_k.d;
        const u8 *const row = syc_row(p.ids, t);
        return p.ids.type == SY_TYPE_I32 ? (int32_t)syc_load_here<u32>(row + k * 4)
                                         : (int64_t)syc_load_here<u64>(row + k * 8);
    }
    __device__ int32_t here(int64_t e) const
    {
        return (int32_t)syc_load_here<u32>(p.expert_map.data + e * 4);
    }
    __device__ int key(int64_t i) const
    {
        const int64_t e = i < n_ids ? id(i) : -1;
        return e < 0 || e >= n_keys || (p.args.skip_unmapped && here(e) == -1) ? -1 : (int)e;
    }
    __device__ bool wrong(int64_t i) const
    {
        if (i >= n_ids)
            return here(i - n_ids) < -1;
        const int64_t e = id(i);
        return (e < 0 || e >= n_keys) && !(p.args.allow_missing && (e == -1 || e == n_keys));
    }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        const int64_t t = i < n_ids ? syc_divide((u32)i, by_k) : 0;
        if (i < n_ids)
            *f = {SYI_BAD_ID_RANGE, 0, t, i - t * by_k.d, id(i), n_keys, 0};
        else
            *f = {SYI_BAD_EXPERT_MAP, 0, -1, i - n_ids, here(i - n_ids), -1, 0};
    }
};

/* Scratch: the slots by expert without padding. */
struct align_sorted {
    u32 *slot;          /* [T*K] */
    u32 *first, *count; /* [E] */
    u32 *place;         /* [E+1], first places; NULL: in shared memory */

    __device__ void put(int64_t i, int, int64_t row) const { slot[row] = (u32)i; }
    __device__ void skip(int64_t) const {}
    __device__ void begin(int e, u32 at, u32 n) const
    {
        first[e] = at;
        count[e] = n;
    }
    __device__ void end(u32) const {}
};

/* place[0..n]: where every expert begins, and the end of the last. By the whole block. */
static __device__ void find_places(u32 *place, const u32 *count, int n, syc_split block)
{
    for (u32 e = threadIdx.x; e < (u32)n; e += SYC_RANK_THREADS)
        place[e] = (u32)(syc_quotient((int64_t)__ldcg(count + e) + block.d - 1, block) * block.d);
    __syncthreads();
    const u32 all = syc_scan_block(place, (u32)n);
    if (threadIdx.x == 0)
        place[n] = all;
    __syncthreads();
}

static __global__ void __launch_bounds__(SYC_RANK_THREADS)
    align_places(const align_sorted s, int n, syc_split block)
{
    syc_start_next();
    syc_wait_for_previous();
    find_places(s.place, s.count, n, block);
}

/* The expert that has a place: the last that begins there or before. */
SYC_INLINE int expert_at(const u32 *place, int n, u32 at)
{
    int low = 0;
    for (int high = n; high - low > 1;) {
        const int middle = low + (high - low) / 2;
        if (place[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __global__ void __launch_bounds__(SYC_RANK_THREADS)
    align_write(const syi_moe_align_block_plan p, const align_sorted s, int n, syc_split block,
                const syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, shared);
    const int64_t first = (int64_t)blockIdx.x * SYC_RANK_THREADS + threadIdx.x,
                  step = (int64_t)gridDim.x * SYC_RANK_THREADS;
    const u32 *const place = s.place != NULL ? s.place : shared, none = (u32)(p.n_tokens * p.n_slots);
    if (!syc_may_write(gate))
        return;
    if (s.place == NULL)
        find_places(shared, s.count, n, block);
    const u32 all = place[n];
    for (int64_t i = first; i < p.n_places; i += step) {
        u32 slot = none;
        if (i < (int64_t)all) {
            const int e = expert_at(place, n, (u32)i);
            const u32 at = (u32)i - place[e];
            slot = at < __ldcg(s.count + e) ? __ldcg(s.slot + __ldcg(s.first + e) + at) : none;
        }
        syc_store<u32>(p.sorted_slots.data + i * 4, slot);
    }
    for (int64_t i = first; i < p.n_blocks; i += step) {
        const int e =
            i * p.args.block_size < (int64_t)all ? expert_at(place, n, (u32)(i * p.args.block_size)) : -1;
        const int64_t here =
            e >= 0 && p.expert_map.data != NULL ? syc_index(p.expert_map.data, e, SY_TYPE_I32) : e;
        syc_store<u32>(p.block_experts.data + i * 4, (u32)here);
    }
    for (int64_t e = first; e < p.n_experts && p.counts.data != NULL; e += step)
        syc_store<u64>(p.counts.data + e * 8, __ldcg(s.count + e));
    for (int64_t e = first; e <= p.n_experts && p.offsets.data != NULL; e += step)
        syc_store<u64>(p.offsets.data + e * 8, place[e]);
    if (first == 0)
        syc_store<u32>(p.num_padded.data, all);
}

static int64_t n_items(const syi_moe_align_block_plan *p)
{
    return p->n_tokens * p->n_slots + (p->expert_map.data != NULL ? p->n_experts : 0);
}

static align_sorted lay_out(const syi_moe_align_block_plan *p, syc_scratch *scratch)
{
    const int64_t n = p->n_experts;
    align_sorted s;
    s.slot = scratch->take<u32>(p->n_tokens * p->n_slots);
    s.first = scratch->take<u32>(n);
    s.count = scratch->take<u32>(n);
    s.place = n > IN_SHARED ? scratch->take<u32>(n + 1) : NULL;
    return s;
}

size_t syc_moe_align_block_workspace(const syc_device *device, const syi_plan *plan)
{
    const syi_moe_align_block_plan *const p = &plan->moe_align_block;
    syc_scratch scratch = {NULL, 0};
    lay_out(p, &scratch);
    return scratch.used + syc_rank_bytes(n_items(p), p->n_experts, device->processors);
}

void syc_moe_align_block(syc_call *call, const syi_plan *plan)
{
    const syi_moe_align_block_plan *const p = &plan->moe_align_block;
    const int64_t n_ids = p->n_tokens * p->n_slots;
    const int n = (int)p->n_experts;
    syc_scratch scratch = {call->scratch, 0};
    const align_sorted s = lay_out(p, &scratch);
    const syc_divisor by_k = syc_divisor_of(p->n_slots > 0 && n_ids > 0 ? (u32)p->n_slots : 1);
    const align_keys keys = {n_items(p), n, n_ids, by_k, *p};
    const syc_split block = syc_split_by(p->args.block_size, n_ids + p->args.block_size - 1);
    syc_rank(call, keys, s, scratch.rest());
    if (s.place != NULL)
        syc_launch(&call->queue, align_places, SYC_EARLY, 1, SYC_RANK_THREADS, 0, s, n, block);
    int64_t most = p->n_places > p->n_blocks ? p->n_places : p->n_blocks;
    most = most > p->n_experts ? most : p->n_experts + 1;
    syc_launch(&call->queue, align_write, SYC_EARLY,
               syc_grid(call, syc_ceil(most, SYC_RANK_THREADS), grid_policy::CHECK), SYC_RANK_THREADS,
               s.place == NULL ? ((size_t)n + 1) * sizeof(u32) : 0, *p, s, n, block, call->gate);
}
