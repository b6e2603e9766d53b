/*
 * What the operators on routed tokens share on a device: experts of a token, token rows to several places, sums of rows.
 */
#ifndef SYC_MOE_CUH
#define SYC_MOE_CUH

#include "cuda/load.cuh"
#include "cuda/rank.cuh"
#include "cuda/rows.cuh"

/* ---- Routing maps --------------------------------------------------------------------------------------------------- */

/* Bit b: byte b is not 0. */
static __device__ __forceinline__ u32 syc_nonzero_bytes(u64 v)
{
    const u64 ones = ((((v & 0x7f7f7f7f7f7f7f7full) + 0x7f7f7f7f7f7f7f7full) | v) >> 7) & 0x0101010101010101ull;
    return (u32)(ones * 0x0102040810204080ull >> 56);
}

/* Experts e..e+7 of a map row as bits; those from E on are 0. */
static __device__ __forceinline__ u32 syc_experts_at(const u8 *row, int64_t e, int64_t n_experts)
{
    if (e + 8 <= n_experts)
        return syc_nonzero_bytes(syc_load<u64>(row + e));
    u32 bits = 0;
    for (int i = 0; i < 8 && e + i < n_experts; i++)
        bits |= row[e + i] != 0 ? 1u << i : 0u;
    return bits;
}

/*
 * Calls put(j, e) for the j-th expert e of a map row, in any order; returns how many there are. By a whole warp.
 */
template <class Put> static __device__ int64_t syc_each_expert(const u8 *row, int64_t n_experts, const Put &put)
{
    const int lane = (int)threadIdx.x % 32;
    int64_t found = 0;
    for (int64_t e0 = 0; e0 < n_experts; e0 += 256) {
        const int64_t e = e0 + 8 * lane;
        u32 bits = e < n_experts ? syc_experts_at(row, e, n_experts) : 0;
        const int own = __popc(bits);
        int sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const int up = __shfl_up_sync(SYC_ALL_LANES, sum, (unsigned)d);
            sum += lane >= d ? up : 0;
        }
        for (int64_t j = found + sum - own; bits != 0; bits &= bits - 1, j++)
            put(j, e + __ffs((int)bits) - 1);
        found += __shfl_sync(SYC_ALL_LANES, sum, 31);
    }
    return found;
}

/* ---- A token row to all its places ------------------------------------------------------------------------------------ */

/*
 * Places: `int n_slots`, `int64_t row(int64_t t, int j)`, the row of slot j, -1 for none, and `int64_t first_clear()`, from
 * which on rows are cleared. Both read what a kernel before wrote. A block per token, or per part of one.
 */
template <typename V, class Places>
static __global__ void __launch_bounds__(SYC_MOVE_THREADS)
    syc_fan(const Places places, const struct syi_rows tokens, const struct syi_rows out, int64_t n_tokens, int64_t n_rows,
            int parts, u32 width, const struct syc_gate gate)
{
    const int64_t t = blockIdx.x / parts, part = blockIdx.x - t * parts;
    const u32 begin = (u32)part * width, V_ALL = SYC_MOVE_AHEAD * SYC_MOVE_THREADS;
    const V *const from = (const V *)syc_row(tokens, t) + begin;
    V held[SYC_MOVE_AHEAD];
    for (u32 first = 0; first < width; first += V_ALL) {
#pragma unroll
        for (int u = 0; u < SYC_MOVE_AHEAD; u++) {
            const u32 v = first + (u32)u * SYC_MOVE_THREADS + threadIdx.x;
            held[u] = v < width ? __ldcs(from + v) : syc_zero<V>();
        }
        if (first == 0 && !syc_may_write(gate))
            return;
        for (int j = 0; j < places.n_slots; j++) {
            const int64_t row = places.row(t, j);
            V *const to = (V *)syc_out_row(out, row) + begin;
            if (row >= 0)
#pragma unroll
                for (int u = 0; u < SYC_MOVE_AHEAD; u++) {
                    const u32 v = first + (u32)u * SYC_MOVE_THREADS + threadIdx.x;
                    if (v < width)
                        __stcs(to + v, held[u]);
                }
        }
    }
    for (int64_t row = places.first_clear() + t; row < n_rows; row += n_tokens)
        for (u32 v = threadIdx.x; v < width; v += SYC_MOVE_THREADS)
            __stcs((V *)syc_out_row(out, row) + begin + v, syc_zero<V>());
}

template <typename V, class Places>
static void syc_fan_vectors(struct syc_call *call, const Places &places, struct syi_rows tokens, struct syi_rows out,
                            int64_t n_tokens, int64_t n_rows, int64_t bytes)
{
    const int64_t vectors = bytes / (int64_t)sizeof(V), wanted = 3 * call->device->processors;
    int64_t parts = 1;
    while (vectors % (2 * parts) == 0 && n_tokens * parts < wanted && vectors / parts > SYC_MOVE_THREADS / 4)
        parts *= 2;
    while (vectors % (2 * parts) == 0 && vectors / parts > ((int64_t)1 << 20))
        parts *= 2;
    syc_launch(&call->queue, syc_fan<V, Places>, SYC_EARLY, n_tokens * parts, SYC_MOVE_THREADS, 0, places, tokens, out,
               n_tokens, n_rows, (int)parts, (u32)(vectors / parts), call->gate);
}

template <class Places>
static void syc_fan_rows(struct syc_call *call, const Places &places, struct syi_rows tokens, struct syi_rows out,
                         int64_t n_tokens, int64_t n_rows, int64_t bytes)
{
    const u64 alignment = (u64)(uintptr_t)tokens.data | (u64)tokens.stride | (u64)(uintptr_t)out.data | (u64)out.stride | (u64)bytes;
    if (bytes == 0 || n_tokens == 0)
        return;
    switch (syc_vector_bytes(alignment)) {
    case 16:
        syc_fan_vectors<uint4>(call, places, tokens, out, n_tokens, n_rows, bytes);
        return;
    case 8:
        syc_fan_vectors<uint2>(call, places, tokens, out, n_tokens, n_rows, bytes);
        return;
    case 4:
        syc_fan_vectors<u32>(call, places, tokens, out, n_tokens, n_rows, bytes);
        return;
    case 2:
        syc_fan_vectors<u16>(call, places, tokens, out, n_tokens, n_rows, bytes);
        return;
    default:
        syc_fan_vectors<u8>(call, places, tokens, out, n_tokens, n_rows, bytes);
    }
}

#endif
