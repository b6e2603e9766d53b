/*
 * moe_ids_from_map on a device. A first kernel reads the map once, counts each row and keeps the map as bits
 * in scratch memory; a second one makes the ids of the bits. Some lanes of a warp share a row: 16 experts
 * each in the first kernel, 64 in the second.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/block.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/one_block.cuh"

enum { THREADS = 512, AHEAD = 4, WRITERS = 256, FEW = 1 << 15 }; /* FEW: of the map, for one block */

struct ids {
    syi_moe_ids_from_map_plan p;
    u64 *bits;     /* [T][words] */
    int64_t words; /* of a row; its last bits are 0 */
    int readers;   /* lanes of a row in the first kernel, a power of two */
    int writers;   /* the same in the second */
    bool wide;     /* 16 experts are aligned and complete */
};

/* Bytes that are not 0, as bytes of 1. */
SYC_INLINE u32 nonzero(u32 word)
{
    return ((((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u) >> 7;
}

SYC_INLINE u32 nonzero16(uint4 v)
{
    const u32 low = __dp4a(nonzero(v.y), 0x80402010u, __dp4a(nonzero(v.x), 0x08040201u, 0u));
    const u32 high = __dp4a(nonzero(v.w), 0x80402010u, __dp4a(nonzero(v.z), 0x08040201u, 0u));
    return low | high << 8;
}

SYC_COLD u32 nonzero_bytes(const u8 *from, int n)
{
    u32 bits = 0;
    for (int i = 0; i < n; i++)
        bits |= (from[i] != 0 ? 1u : 0u) << i;
    return bits;
}

/* ---- Counting ---- */

/* The first fault of a block is stored as syc_validate does. */
static __device__ void conclude(const struct ids &m, u64 first, u64 *part, const syc_gate &gate)
{
    u64 routed = 0;
    if (first != SYC_NO_FAULT) {
        for (int64_t w = threadIdx.x; w < m.words; w += THREADS)
            routed += (u64)__popcll(m.bits[(int64_t)first * m.words + w]);
        routed = syc_block_sum(routed, part);
    }
    if (threadIdx.x != 0)
        return;
    gate.order[blockIdx.x] = first;
    if (first != SYC_NO_FAULT)
        gate.found[blockIdx.x] = {SYI_BAD_MAP_OVER_K, 0, -1, (int64_t)first, (int64_t)routed, m.p.n_slots, 0};
}

/* Counts the rows and keeps their bits; *first is the first with too many. */
SYC_INLINE void count(const struct ids &m, u64 *first)
{
    const syi_moe_ids_from_map_plan &p = m.p;
    const int lane = (int)threadIdx.x % m.readers, row = (int)threadIdx.x / m.readers,
              rows = THREADS / m.readers;
    const int pieces = 4 * (int)m.words; /* of 16 experts */
    const int64_t step = rows * p.map.stride;
    if (threadIdx.x == 0)
        *first = SYC_NO_FAULT;
    __syncthreads();
#pragma unroll 1
    for (int64_t t0 = (int64_t)blockIdx.x * rows * AHEAD; t0 < p.n_tokens;
         t0 += (int64_t)gridDim.x * rows * AHEAD) {
        const u8 *const from = syc_row(p.map, t0 + row);
        u16 *const to = (u16 *)m.bits + (t0 + row) * pieces;
        const int64_t left = p.n_tokens - t0 - row;
        u32 routed[AHEAD] = {0, 0, 0, 0};
#pragma unroll 1
        for (int w = lane; w < pieces; w += m.readers) {
            const int n = max(0, min(16, (int)p.n_experts - w * 16));
            uint4 v[AHEAD];
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                v[a] = make_uint4(0, 0, 0, 0);
                if (m.wide && a * rows < left && n > 0)
                    v[a] = __ldcs((const uint4 *)(from + a * step) + w);
            }
#pragma unroll
            for (int a = 0; a < AHEAD; a++) {
                if (a * rows >= left)
                    continue;
                const u32 bits = m.wide ? nonzero16(v[a]) : nonzero_bytes(from + a * step + w * 16, n);
                to[(int64_t)a * rows * pieces + w] = (u16)bits;
                routed[a] += (u32)__popc(bits);
            }
        }
        u64 two[AHEAD / 2]; /* counts of two rows */
#pragma unroll
        for (int a = 0; a < AHEAD / 2; a++)
            two[a] = (u64)routed[2 * a] << 32 | routed[2 * a + 1];
        for (int d = 1; d < m.readers; d *= 2)
#pragma unroll
            for (int a = 0; a < AHEAD / 2; a++)
                two[a] += __shfl_xor_sync(SYC_ALL_LANES, two[a], d);
#pragma unroll
        for (int a = 0; a < AHEAD; a++)
            if ((int64_t)(two[a / 2] >> (a % 2 == 0 ? 32 : 0) & UINT32_MAX) > p.n_slots)
                atomicMin(first, (u64)(t0 + a * rows + row));
    }
    __syncthreads();
}

static __global__ void __launch_bounds__(THREADS, 2) count_rows(const struct ids m, const syc_gate gate)
{
    __shared__ u64 first, part[SYC_BLOCK_WARPS];
    syc_start_next();
    count(m, &first);
    conclude(m, first, part, gate);
}

/* ---- Writing ---- */

/* The rows of a token. */
struct token_rows {
    u8 *ids, *weights;
    const u8 *probs;
};

SYC_INLINE void put(const syi_moe_ids_from_map_plan &p, const token_rows &row, int64_t slot, int64_t e)
{
    syc_store_index(row.ids, slot, e, p.ids.type);
    if (p.prob_bytes == 4)
        syc_store<u32>(row.weights + slot * 4, e < 0 ? 0u : syc_load<u32>(row.probs + e * 4));
    else if (p.prob_bytes == 2)
        syc_store<u16>(row.weights + slot * 2, e < 0 ? (u16)0 : syc_load<u16>(row.probs + e * 2));
}

/* The ids of token t by `writers` lanes; whole warps call it. */
SYC_INLINE void write_token(const struct ids &m, int64_t t)
{
    const syi_moe_ids_from_map_plan &p = m.p;
    const int lane = (int)threadIdx.x % m.writers;
    const int last = syc_lane() | (m.writers - 1); /* lane of the row in the warp */
    const bool in = t < p.n_tokens;
    const token_rows row = {syc_out_row(p.ids, t), syc_out_row(p.weights, t), syc_row(p.probs, t)};
    int64_t slot = 0;
#pragma unroll 1
    for (int64_t w0 = 0; w0 < m.words; w0 += m.writers) {
        u64 bits = in && w0 + lane < m.words ? __ldcg(m.bits + t * m.words + w0 + lane) : 0;
        const u32 own = (u32)__popcll(bits);
        u32 sum = own;
        for (int d = 1; d < m.writers; d *= 2) {
            const u32 up = __shfl_up_sync(SYC_ALL_LANES, sum, (unsigned)d);
            sum += lane >= d ? up : 0;
        }
        int64_t at = slot + (int64_t)(sum - own);
#pragma unroll 1
        for (; bits != 0; bits &= bits - 1)
            put(p, row, at++, (w0 + lane) * 64 + __popcll(~bits & (bits - 1)));
        slot += (int64_t)__shfl_sync(SYC_ALL_LANES, sum, last);
    }
#pragma unroll 1
    for (int64_t j = slot + lane; in && j < p.n_slots; j += m.writers)
        put(p, row, j, -1);
}

static __global__ void __launch_bounds__(WRITERS)
    write_ids(const struct ids m, int64_t first, const syc_gate gate)
{
    const int rows = WRITERS / m.writers;
    if (syc_may_write(gate))
        write_token(m, first + (int64_t)blockIdx.x * rows + (int)threadIdx.x / m.writers);
}

/* Few tokens by one block. */
static __global__ void __launch_bounds__(THREADS)
    count_and_write(const struct ids m, const __grid_constant__ syc_gate gate)
{
    __shared__ u64 first, part[SYC_BLOCK_WARPS];
    const bool closed = threadIdx.x == 0 && __ldcg(gate.closed) != 0;
    const int rows = THREADS / m.writers;
    count(m, &first);
    syc_next_step();
    conclude(m, first, part, gate);
    if (!syc_all_clear(gate, closed || first != SYC_NO_FAULT))
        return;
#pragma unroll 1
    for (int64_t t = 0; t < m.p.n_tokens; t += rows)
        write_token(m, t + (int)threadIdx.x / m.writers);
}

/* ---- Launches ---- */

static int64_t words_of(const syi_moe_ids_from_map_plan *p)
{
    return (p->n_experts + 63) / 64;
}

static int lanes_for(int64_t n)
{
    int lanes = 1;
    while (lanes < 32 && lanes < n)
        lanes *= 2;
    return lanes;
}

size_t syc_moe_ids_from_map_workspace(const syc_device *, const syi_plan *plan)
{
    const syi_moe_ids_from_map_plan *const p = &plan->moe_ids_from_map;
    return (size_t)(p->n_tokens * words_of(p)) * sizeof(u64);
}

void syc_moe_ids_from_map(syc_call *call, const syi_plan *plan)
{
    const syi_moe_ids_from_map_plan *const p = &plan->moe_ids_from_map;
    struct ids m = {*p, (u64 *)call->scratch, words_of(p), 1, 1, false};
    m.readers = lanes_for(4 * m.words);
    m.writers = lanes_for(m.words);
    m.wide = ((u64)(uintptr_t)p->map.data | (u64)p->map.stride | (u64)p->n_experts) % 16 == 0;
    const int64_t group = THREADS / m.readers * AHEAD,
                  blocks = syc_grid(call, syc_ceil(p->n_tokens, group), grid_policy::CHECK);
    if (syc_takes(call, "one_block",
                  p->n_slots > 0 && p->n_tokens <= FEW && p->n_tokens * (p->n_experts + p->n_slots) <= FEW
                      ? NULL
                      : "the map is large")) {
        call->gate.n = 1;
        syc_launch(&call->queue, count_and_write, SYC_AFTER, 1, THREADS, 0, m, call->gate);
        return;
    }
    syc_takes(call, "many_blocks");
    call->gate.n = (int)(blocks < SYC_MAX_CHECK_BLOCKS ? blocks : SYC_MAX_CHECK_BLOCKS);
    syc_launch(&call->queue, count_rows, SYC_AFTER, call->gate.n, THREADS, 0, m, call->gate);
    if (p->n_slots == 0) {
        syc_only_report(call);
        return;
    }
    const int64_t rows = WRITERS / m.writers, each = (int64_t)INT32_MAX * rows;
    for (int64_t first = 0; first < p->n_tokens; first += each) {
        const int64_t n = p->n_tokens - first < each ? p->n_tokens - first : each;
        syc_launch(&call->queue, write_ids, SYC_EARLY, (n + rows - 1) / rows, WRITERS, 0, m, first,
                   call->gate);
    }
}
