/*
 * moe_ids_from_map on a device. A first kernel reads the map once, counts each row and keeps the map as bits in scratch
 * memory, 16 experts in a word; a second one makes the ids of the bits. Some lanes of a warp share a row.
 */
#include "cuda/backend.cuh"
#include "cuda/block.cuh"
#include "cuda/load.cuh"

enum { THREADS = 512, AHEAD = 4 };

struct ids {
    struct syi_moe_ids_from_map_plan p;
    u16 *bits;    /* [T][words] */
    int64_t words; /* of a row */
    int lanes;    /* of a row, a power of two */
    bool wide;    /* 16 experts are aligned and complete */
};

/* A bit for each byte of a word that is not 0. */
static __device__ __forceinline__ u32 nonzero(u32 word)
{
    const u32 high = (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u;
    return (high >> 7) * 0x01020408u >> 24 & 15u;
}

static __device__ __forceinline__ u32 nonzero16(uint4 v)
{
    return nonzero(v.x) | nonzero(v.y) << 4 | nonzero(v.z) << 8 | nonzero(v.w) << 12;
}

SYC_COLD u32 nonzero_bytes(const u8 *from, int n)
{
    u32 bits = 0;
    for (int i = 0; i < n; i++)
        bits |= (from[i] != 0 ? 1u : 0u) << i;
    return bits;
}

/* ---- Counting ----------------------------------------------------------------------------------------------------- */

/* The first fault of a block is stored as syc_validate does. */
static __device__ void conclude(const struct ids &m, u64 first, u64 *part, const struct syc_gate &gate)
{
    u64 routed = 0;
    if (first != SYC_NO_FAULT) {
        for (int64_t w = threadIdx.x; w < m.words; w += THREADS)
            routed += (u64)__popc(m.bits[(int64_t)first * m.words + w]);
        routed = syc_block_sum(routed, part);
    }
    if (threadIdx.x != 0)
        return;
    gate.order[blockIdx.x] = first;
    if (first != SYC_NO_FAULT)
        gate.found[blockIdx.x] = {SYI_BAD_MAP_OVER_K, 0, -1, (int64_t)first, (int64_t)routed, m.p.n_slots, 0};
}

static __global__ void __launch_bounds__(THREADS) count_rows(const struct ids m, const struct syc_gate gate)
{
    __shared__ u64 first, part[SYC_BLOCK_WARPS];
    const struct syi_moe_ids_from_map_plan &p = m.p;
    const int lane = (int)threadIdx.x % m.lanes, row = (int)threadIdx.x / m.lanes, rows = THREADS / m.lanes;
    syc_start_next();
    if (threadIdx.x == 0)
        first = SYC_NO_FAULT;
    __syncthreads();
#pragma unroll 1
    for (int64_t t0 = (int64_t)blockIdx.x * rows * AHEAD; t0 < p.n_tokens; t0 += (int64_t)gridDim.x * rows * AHEAD) {
        u64 routed[AHEAD] = {0, 0, 0, 0};
#pragma unroll 1
        for (int64_t w = lane; w < m.words; w += m.lanes) {
            uint4 v[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const int64_t t = t0 + a * rows + row;
                v[a] = make_uint4(0, 0, 0, 0);
                if (m.wide && t < p.n_tokens)
                    v[a] = __ldcs((const uint4 *)syc_row(p.map, t) + w);
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                const int64_t t = t0 + a * rows + row;
                if (t >= p.n_tokens)
                    continue;
                const u32 bits = m.wide ? nonzero16(v[a]) :
                                          nonzero_bytes(syc_row(p.map, t) + w * 16, (int)min((int64_t)16, p.n_experts - w * 16));
                m.bits[t * m.words + w] = (u16)bits;
                routed[a] += (u64)__popc(bits);
            }
        }
#pragma unroll
        for (int a = 0; a < AHEAD; a++) {
            for (int d = 1; d < m.lanes; d *= 2)
                routed[a] += __shfl_xor_sync(SYC_ALL_LANES, routed[a], d);
            if (routed[a] > (u64)p.n_slots)
                atomicMin(&first, (u64)(t0 + a * rows + row));
        }
    }
    __syncthreads();
    conclude(m, first, part, gate);
}

/* ---- Writing ------------------------------------------------------------------------------------------------------ */

static __device__ __forceinline__ void put(const struct syi_moe_ids_from_map_plan &p, int64_t t, int64_t slot, int64_t e)
{
    syc_store_index(syc_out_row(p.ids, t), slot, e, p.id_type);
    if (p.prob_bytes == 4)
        syc_store<u32>(syc_out_row(p.weights, t) + slot * 4, e < 0 ? 0u : syc_load<u32>(syc_row(p.probs, t) + e * 4));
    else if (p.prob_bytes == 2)
        syc_store<u16>(syc_out_row(p.weights, t) + slot * 2, e < 0 ? (u16)0 : syc_load<u16>(syc_row(p.probs, t) + e * 2));
}

static __global__ void __launch_bounds__(THREADS) write_ids(const struct ids m, int64_t first, const struct syc_gate gate)
{
    const struct syi_moe_ids_from_map_plan &p = m.p;
    const int lane = (int)threadIdx.x % m.lanes, rows = THREADS / m.lanes;
    const int last = (syc_lane() & ~(m.lanes - 1)) + m.lanes - 1; /* lane of the row in the warp */
    const int64_t t = first + (int64_t)blockIdx.x * rows + (int)threadIdx.x / m.lanes;
    const bool in = t < p.n_tokens;
    int64_t slot = 0;
    if (!syc_may_write(gate))
        return;
#pragma unroll 1
    for (int64_t w0 = 0; w0 < m.words; w0 += m.lanes) {
        u32 bits = in && w0 + lane < m.words ? m.bits[t * m.words + w0 + lane] : 0;
        const u32 own = (u32)__popc(bits);
        u32 sum = own;
        for (int d = 1; d < m.lanes; d *= 2) {
            const u32 up = __shfl_up_sync(SYC_ALL_LANES, sum, (unsigned)d);
            sum += lane >= d ? up : 0;
        }
        int64_t at = slot + (int64_t)(sum - own);
        for (; bits != 0; bits &= bits - 1)
            put(p, t, at++, (w0 + lane) * 16 + __ffs((int)bits) - 1);
        slot += (int64_t)__shfl_sync(SYC_ALL_LANES, sum, last);
    }
    for (int64_t j = slot + lane; in && j < p.n_slots; j += m.lanes)
        put(p, t, j, -1);
}

/* ---- Launches ----------------------------------------------------------------------------------------------------- */

static int64_t words_of(const struct syi_moe_ids_from_map_plan *p) { return (p->n_experts + 15) / 16; }

size_t syc_moe_ids_from_map_workspace(const struct syc_device *, const union syi_plan *plan)
{
    const struct syi_moe_ids_from_map_plan *const p = &plan->moe_ids_from_map;
    return (size_t)(p->n_tokens * words_of(p)) * sizeof(u16);
}

void syc_moe_ids_from_map(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_ids_from_map_plan *const p = &plan->moe_ids_from_map;
    struct ids m = {*p, (u16 *)call->scratch, words_of(p), 1, false};
    while (m.lanes < 32 && m.lanes < m.words)
        m.lanes *= 2;
    m.wide = ((u64)(uintptr_t)p->map.data | (u64)p->map.stride | (u64)p->n_experts) % 16 == 0;
    const int64_t rows = THREADS / m.lanes, wanted = (p->n_tokens + rows * AHEAD - 1) / (rows * AHEAD);
    const int64_t most = 2 * (int64_t)call->device->processors, blocks = wanted < most ? wanted : most;
    call->gate.n = (int)(blocks < SYC_MAX_CHECK_BLOCKS ? blocks : SYC_MAX_CHECK_BLOCKS);
    syc_launch(&call->queue, count_rows, SYC_AFTER, call->gate.n, THREADS, 0, m, call->gate);
    if (p->n_slots == 0) {
        syc_only_report(call);
        return;
    }
    const int64_t each = (int64_t)INT32_MAX * rows;
    for (int64_t first = 0; first < p->n_tokens; first += each) {
        const int64_t n = p->n_tokens - first < each ? p->n_tokens - first : each;
        syc_launch(&call->queue, write_ids, SYC_EARLY, (n + rows - 1) / rows, THREADS, 0, m, first, call->gate);
    }
}
