/*
 * moe_locations on a device. The k*S choices in the order they are visited, choice by choice, are ranked by
 * expert: the place of a choice is its rank among those of its expert. Few experts are ranked by counting,
 * many by sorting. With importance the samples are sorted first.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/block.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/rank.cuh"

enum {
    CHUNK = 2048,     /* samples that a block sorts */
    MOST_CHUNKS = 16, /* that are merged in one step */
    MERGE_THREADS = 128,
    MERGE_AHEAD = 8 /* chunks that are searched at a time */
};

/* Samples by descending importance. */
struct importance {
    const u8 *data;
    sy_type type;

    __device__ bool has(int64_t) const { return true; }
    __device__ u64 sort_key(int64_t s) const
    {
        if (type == SY_TYPE_F32)
            return syi_descending_key(syc_load<u32>(data + s * 4), 0x80000000u, 0x7f800000u);
        return syi_descending_key(syc_load<u16>(data + s * 2), 0x8000u,
                                  type == SY_TYPE_F16 ? 0x7c00u : 0x7f80u);
    }
};

/* A chunk for each block: the largest number belongs to the least key and, of equal ones, to the first
   sample. Zeros fill the last chunk. If there is only one, its order is the order of all. */
static __global__ void __launch_bounds__(CHUNK / 2)
    sort_chunks(const struct importance importance, int64_t n, u64 *sorted, u32 *order)
{
    __shared__ u64 x[CHUNK];
    const int64_t first = (int64_t)blockIdx.x * CHUNK;
    const int own = (int)min((int64_t)CHUNK, n - first);
    syc_start_next();
    for (int i = (int)threadIdx.x; i < CHUNK; i += CHUNK / 2)
        x[i] = i < own ? ~((u64)importance.sort_key(first + i) << 32 | (u32)(first + i)) : 0;
    syc_sort_few(x, own);
    for (int i = (int)threadIdx.x; i < CHUNK; i += CHUNK / 2)
        if (gridDim.x > 1)
            sorted[first + i] = x[i];
        else if (i < own)
            order[i] = ~(u32)x[i];
}

/* The place of a sample is the number of larger numbers in all chunks, by as many searches. */
static __global__ void __launch_bounds__(MERGE_THREADS)
    merge_chunks(const u64 *sorted, int chunks, u32 *order)
{
    syc_start_next();
    syc_wait_for_previous();
    const u64 own = sorted[(int64_t)blockIdx.x * MERGE_THREADS + threadIdx.x];
    u32 place = 0;
#pragma unroll 1
    for (int q = 0; q < chunks; q += MERGE_AHEAD) {
        u32 larger[MERGE_AHEAD] = {};
#pragma unroll 1
        for (u32 step = CHUNK; step > 0; step /= 2)
#pragma unroll
            for (int u = 0; u < MERGE_AHEAD; u++) {
                const u32 at = larger[u] + step - 1;
                larger[u] += q + u < chunks && at < CHUNK && sorted[(q + u) * CHUNK + at] > own ? step : 0;
            }
#pragma unroll
        for (int u = 0; u < MERGE_AHEAD; u++)
            place += larger[u];
    }
    if (own != 0)
        order[place] = ~(u32)own;
}

/* Choices as they are visited; an expert outside is none. */
struct location_choices {
    int64_t n;
    int n_keys; /* experts that are counted, at least one */
    syi_moe_locations_plan p;
    syc_split by_sample;
    const u32 *order; /* [S] or NULL */

    __device__ int64_t choice(int64_t i) const { return syc_quotient(i, by_sample); }
    __device__ int64_t sample(int64_t i) const
    {
        const int64_t at = i - choice(i) * p.n_samples;
        return order != NULL ? (int64_t)__ldcg(order + at) : at;
    }
    __device__ int key(int64_t i) const
    {
        const int32_t e = (int32_t)syc_load<u32>(syc_row(p.indices, choice(i)) + sample(i) * 4);
        return e >= 0 && e < p.n_experts ? e : -1;
    }
    __device__ bool wrong(int64_t) const { return false; }
    __device__ void explain(int64_t, syi_found *) const {}
    __device__ bool has(int64_t i) const { return key(i) >= 0; }
    __device__ u64 sort_key(int64_t i) const { return (u64)key(i); }
    __device__ u8 *place(int64_t i) const { return syc_out_row(p.locations, choice(i)) + sample(i) * 4; }
};

SYC_INLINE void store_count(const location_choices &c, int64_t e, u32 count)
{
    if (c.p.counts.data != NULL)
        syc_store<u64>(c.p.counts.data + e * 8, count);
}

/* ---- Few experts ---- */

struct counted {
    enum { COUNTS_FROM_FIRST };
    location_choices choices;

    __device__ void put(int64_t i, int, int64_t place) const { syc_store<u32>(choices.place(i), (u32)place); }
    __device__ void skip(int64_t i) const { syc_store<u32>(choices.place(i), SYC_ALL_LANES); }
    __device__ void begin(int e, u32, u32 count) const
    {
        if (e < choices.p.n_experts)
            store_count(choices, e, count);
    }
    __device__ void end(u32) const {}
};

/* ---- Many experts ---- */

static __global__ void __launch_bounds__(256)
    place_sorted(const location_choices choices, const syc_sorted sorted, const syc_gate gate)
{
    const int64_t first = (int64_t)blockIdx.x * 256 + threadIdx.x, step = (int64_t)gridDim.x * 256;
    if (!syc_may_write(gate))
        return;
    for (int64_t i = first; i < choices.n; i += step) {
        if (!choices.has(i))
            syc_store<u32>(choices.place(i), SYC_ALL_LANES);
        if (i < (int64_t)__ldcg(sorted.n))
            syc_store<u32>(choices.place((int64_t)__ldcg(sorted.value + i)),
                           (u32)i - syc_lower_bound(sorted, __ldcg(sorted.key + i)));
    }
    for (int64_t e = first; e < choices.p.n_experts && choices.p.counts.data != NULL; e += step)
        store_count(choices, e, syc_lower_bound(sorted, (u64)e + 1) - syc_lower_bound(sorted, (u64)e));
}

/* ---- Launches ---- */

struct location_memory {
    syc_sort_memory order, sorted;
    u64 *chunks;
    u32 *merged;
    u8 *ranks;
};

static size_t lay_out(const syi_moe_locations_plan *p, int processors, location_memory *m, u8 *base)
{
    const int64_t n = p->n_choices * p->n_samples;
    size_t used = 0;
    if (p->importance.data != NULL && p->n_samples > CHUNK * MOST_CHUNKS) {
        used += syc_sort_lay_out(&m->order, p->n_samples, processors, base);
    } else if (p->importance.data != NULL) {
        m->chunks = (u64 *)(base + used);
        used += (size_t)syc_ceil(p->n_samples, CHUNK) * CHUNK * sizeof(u64);
        m->merged = (u32 *)(base + used);
        used += syc_sort_align((size_t)p->n_samples * sizeof(u32));
    }
    if (p->n_experts > SYC_MOST_COUNTED)
        return used + syc_sort_lay_out(&m->sorted, n, processors, base + used);
    m->ranks = base + used;
    return used + syc_rank_bytes(n, p->n_experts > 0 ? p->n_experts : 1, processors);
}

size_t syc_moe_locations_workspace(const syc_device *device, const syi_plan *plan)
{
    location_memory memory = {};
    return lay_out(&plan->moe_locations, device->processors, &memory, NULL);
}

static const u32 *sort_samples(syc_call *call, const syi_moe_locations_plan *p, location_memory *m)
{
    const struct importance importance = {p->importance.data, p->importance.type};
    const int64_t n = p->n_samples, chunks = syc_ceil(n, CHUNK);
    if (chunks > MOST_CHUNKS)
        return syc_sort(call, &m->order, importance, n, p->importance.type == SY_TYPE_F32 ? 32 : 16).value;
    syc_launch(&call->queue, sort_chunks, SYC_AFTER, chunks, CHUNK / 2, 0, importance, n, m->chunks,
               m->merged);
    if (chunks > 1)
        syc_launch(&call->queue, merge_chunks, SYC_EARLY, chunks * (CHUNK / MERGE_THREADS), MERGE_THREADS, 0,
                   m->chunks, (int)chunks, m->merged);
    return m->merged;
}

static int bits_of(u64 most)
{
    int bits = 1;
    while (most >> bits != 0)
        bits++;
    return bits;
}

void syc_moe_locations(syc_call *call, const syi_plan *plan)
{
    const syi_moe_locations_plan *const p = &plan->moe_locations;
    const int64_t n = p->n_choices * p->n_samples, most = p->n_experts < INT32_MAX ? p->n_experts : INT32_MAX;
    location_choices choices = {n, (int)(most > 0 ? most : 1), *p, syc_split_by(p->n_samples, n), NULL};
    location_memory memory = {};
    lay_out(p, call->device->processors, &memory, call->scratch);
    if (p->importance.data != NULL && n > 0)
        choices.order = sort_samples(call, p, &memory);
    if (p->n_experts > SYC_MOST_COUNTED) {
        const int64_t items = p->counts.data != NULL && p->n_experts > n ? p->n_experts : n;
        const syc_sorted sorted = syc_sort(call, &memory.sorted, choices, n, bits_of((u64)(most - 1)));
        syc_launch(&call->queue, place_sorted, SYC_AFTER,
                   syc_grid(call, syc_ceil(items, 256), grid_policy::INDEX), 256, 0, choices, sorted,
                   call->gate);
        return;
    }
    syc_rank_counted(call, choices, counted{choices}, memory.ranks);
}
