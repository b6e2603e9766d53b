/*
 * Rows of quantised caches: kernels that pack, and the launches both ways.
 */
#ifndef SYC_KV_CODES_CUH
#define SYC_KV_CODES_CUH

#include "cuda/block_codes.cuh"

/* ---- Packing: rows one after the other ------------------------------------------------------------------------------- */

template <sy_type T> static __device__ __forceinline__ void syc_store_rope(u8 *to, const struct syc_eight<T> &rope)
{
    float x[SYC_UNIT];
    rope.widen(x);
    if constexpr (T == SY_TYPE_BF16)
        __stcs((uint4 *)to, rope.v[0]);
    else
        __stcs((uint4 *)to, syc_numbers<SY_TYPE_BF16, true>::narrow(x));
}

/* Clears what has no codes, scales or rope numbers, and more; the 32 lanes of a warp call it. */
static __device__ __forceinline__ void syc_clear_packed(const struct syi_kv_codec &c, u8 *row, u8 *record)
{
#pragma unroll 1
    for (int64_t k = threadIdx.x % 32; k < (int64_t)c.clear_row; k += 32)
        row[k] = 0;
#pragma unroll 1
    for (int64_t k = threadIdx.x % 32; k < (int64_t)c.clear_scale; k += 32)
        record[k] = 0;
    __syncwarp();
}

/* What a lane has loaded of a row: a unit, and eight numbers of the rope part. */
template <sy_type T> struct syc_ahead {
    struct syc_sixteen<T> numbers;
    struct syc_eight<T> rope;

    __device__ __forceinline__ void load(const u8 *dense, const struct syc_units &units, u32 v)
    {
        numbers = v < units.codes ? syc_sixteen<T>::load(dense, v) : syc_zero<struct syc_sixteen<T>>();
        rope = v < units.rope ? syc_eight<T>::load(dense, 2 * units.codes + v) : syc_eight<T>::zero();
    }
};

/* Of a multiprocessor at a time. */
#define SYC_PACK_BLOCKS(T) ((T) == SY_TYPE_F32 ? 2 : 3)

/* Rows for each warp, one after the other; the next one is loaded meanwhile, and the one after it goes to the second cache. Each lane looks
   up where one of 32 rows goes. */
template <sy_type T, enum syi_code C, class Slots>
static __global__ void __launch_bounds__(SYC_UNIT_THREADS, SYC_PACK_BLOCKS(T))
    syc_pack_units(const __grid_constant__ Slots slots, const __grid_constant__ struct syi_kv_plane plane, const __grid_constant__ struct syi_kv_pool pool, int64_t n,
                   const __grid_constant__ struct syc_units units, const __grid_constant__ struct syc_gate gate)
{
    const struct syi_kv_codec &c = plane.codec;
    const u32 lane = threadIdx.x % 32, turns = max(units.codes, units.rope);
    const bool clears = c.clear_row > 0 || c.clear_scale > 0;
    const int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32), offset = syc_unit_offset<SYC_PACK_UNIT>(c, units, lane);
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    struct syc_ahead<T> held;
    struct syc_own_row own;
    const auto look_up = [&] { own = syc_own_row_at(slots, plane, pool, i + lane * warps, n); };
    const auto load_early = [&](int64_t row) {
        if (lane == 0 && row < n)
            syc_bulk_prefetch(syc_out_row(plane.dense, row), (units.codes * SYC_PACK_UNIT + units.rope * SYC_UNIT) * syc_numbers<T, true>::SIZE);
    };
    if (i < n)
        held.load(syc_out_row(plane.dense, i), units, lane);
    load_early(i + warps);
    look_up();
    syc_wait_for_previous();
    if (!syc_all_clear(gate, syc_sees_fault(gate)))
        return;
#pragma unroll 1
    for (int turn = 0; i < n; turn = (turn + 1) % 32, i += warps) {
        if (turn == 0 && i >= 32 * warps)
            look_up();
        load_early(i + 2 * warps);
        u8 *const row = syc_pointer_of_lane(own.row, turn), *const record = syc_pointer_of_lane(own.record, turn);
        if (row != NULL && clears)
            syc_clear_packed(c, row, record);
        if (row != NULL && units.span == 0 && !c.given)
            syc_make_scales<T>(c, units, record, syc_out_row(plane.dense, i));
#pragma unroll 1
        for (u32 v = lane; v < turns + lane; v += 32) { /* several times for long rows, the same for all lanes */
            float x[SYC_PACK_UNIT];
            if (v >= 32)
                held.load(syc_out_row(plane.dense, i), units, v);
            held.numbers.widen(x);
            if (row != NULL && v < units.rope)
                syc_store_rope(row + c.rope_off + 16 * v, held.rope);
            if (v + 32 >= turns + lane && i + warps < n)
                held.load(syc_out_row(plane.dense, i + warps), units, lane);
            if (row != NULL)
                syc_pack_unit<T, C>(c, units, row + (v < 32 ? offset : syc_unit_offset<SYC_PACK_UNIT>(c, units, v)), record, v, x);
        }
    }
}

/* ---- Packing: four rows at a time ------------------------------------------------------------------------------------ */

/*
 * Rows of two bytes for each number, of at most 32 units, whose scales are of four units or more: four rows for each warp, all loaded at
 * once. A lane makes the scale of one row, its number modulo four, and hands it to the three lanes around it. (Eights of consecutive lanes,
 * loaded without gaps but stored by eight bytes, take as long as rows one after the other.) Rows `ahead` of them, of blocks that start
 * later, go to the second cache meanwhile.
 */
enum { SYC_PACK_ROWS = 4, SYC_FOUR_THREADS = 128, SYC_FOUR_BLOCKS = 7, SYC_FOUR_AHEAD = 4 }; /* of a warp; of a block; of a multiprocessor, and how many later */

static inline bool syc_packs_fours(const struct syc_units &units)
{
    return units.codes <= 32 && units.span >= SYC_PACK_ROWS && units.rope <= 32 / SYC_PACK_ROWS;
}

/* Of four rows, each lane has its own largest; lane l gets that of row l % 4 of all lanes with its scale. */
static __device__ __forceinline__ u32 syc_largest_of_rows(const u32 (&most)[SYC_PACK_ROWS], u32 span)
{
    const u32 lane = threadIdx.x % 32;
    const bool odd = (lane & 1) != 0, high = (lane & 2) != 0;
    const u32 low = max(odd ? most[1] : most[0], __shfl_xor_sync(SYC_ALL_LANES, odd ? most[0] : most[1], 1));
    const u32 up = max(odd ? most[3] : most[2], __shfl_xor_sync(SYC_ALL_LANES, odd ? most[2] : most[3], 1));
    u32 all = max(high ? up : low, __shfl_xor_sync(SYC_ALL_LANES, high ? low : up, 2));
#pragma unroll
    for (u32 d = 4; d < 32; d *= 2)
        if (d < span)
            all = max(all, __shfl_xor_sync(SYC_ALL_LANES, all, (int)d));
    return all;
}

/* A row with any numbers; the 32 lanes of a warp call it. */
template <sy_type T, enum syi_code C>
SYC_COLD void syc_pack_row(const struct syi_kv_codec &c, const struct syc_units &units, u8 *row, u8 *record, const u8 *dense)
{
    const u32 lane = threadIdx.x % 32;
    float x[SYC_PACK_UNIT];
    (lane < units.codes ? syc_sixteen<T>::load(dense, lane) : syc_zero<struct syc_sixteen<T>>()).widen(x);
    syc_pack_unit<T, C>(c, units, row + syc_unit_offset<SYC_PACK_UNIT>(c, units, lane), record, lane, x);
}

template <sy_type T, enum syi_code C, class Slots>
static __global__ void __launch_bounds__(SYC_FOUR_THREADS, SYC_FOUR_BLOCKS)
    syc_pack_fours(const __grid_constant__ Slots slots, const __grid_constant__ struct syi_kv_plane plane, const __grid_constant__ struct syi_kv_pool pool, int64_t n,
                   const __grid_constant__ struct syc_units units, const __grid_constant__ struct syc_gate gate, int64_t ahead)
{
    enum { ROWS = SYC_PACK_ROWS };
    const bool near = T == SY_TYPE_BF16 && C == SYI_CODE_I8; /* see syc_pack_near */
    const struct syi_kv_codec &c = plane.codec;
    const u32 lane = threadIdx.x % 32, rope_row = units.rope > 0 ? lane / units.rope : (u32)ROWS;
    const int64_t first = ((int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * ROWS, mine = first + lane % ROWS;
    struct syc_sixteen<T> held[ROWS];
    struct syc_eight<T> rope = syc_eight<T>::zero();
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        held[r] = first + r < n && lane < units.codes ? syc_sixteen<T>::load(syc_out_row(plane.dense, first + r), lane) : syc_zero<struct syc_sixteen<T>>();
    if (rope_row < ROWS && first + rope_row < n)
        rope = syc_eight<T>::load(syc_out_row(plane.dense, first + rope_row), 2 * units.codes + lane - rope_row * units.rope);
    if (lane < ROWS && mine + ahead < n)
        syc_bulk_prefetch(syc_out_row(plane.dense, mine + ahead), (units.codes * SYC_PACK_UNIT + units.rope * SYC_UNIT) * syc_numbers<T, true>::SIZE);
    const int64_t slot = mine < n ? slots.slot(mine) : -1;
    u8 *const own = slot < 0 ? NULL : syc_kv_cached(pool, plane.cache, plane.block_stride, plane.row_stride, slot);
    u8 *const record = slot < 0 ? NULL : syc_kv_cached(pool, c.scale, c.scale_block_stride, c.scale_row_stride, slot);
    syc_wait_for_previous();
    if (!syc_all_clear(gate, syc_sees_fault(gate)))
        return;
    if (c.clear_row > 0 || c.clear_scale > 0)
#pragma unroll 1
        for (int r = 0; r < ROWS; r++) {
            u8 *const row = syc_pointer_of_lane(own, r), *const scales = syc_pointer_of_lane(record, r);
            if (row != NULL)
                syc_clear_packed(c, row, scales);
        }
    u8 *const rope_to = syc_pointer_of_lane(own, (int)(rope_row % ROWS));
    if (rope_row < ROWS && rope_to != NULL)
        syc_store_rope(rope_to + c.rope_off + 16 * (lane - rope_row * units.rope), rope);
    u32 most[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        most[r] = syc_largest_word<T>(held[r]);
    const u32 bits16 = syc_largest_of_rows(most, units.span);
    const float largest = T == SY_TYPE_BF16 ? __uint_as_float(bits16 << 16) : syc_widen_f16((u16)bits16);
    struct syi_kv_codec known = {}; /* what scales depend on */
    known.code = C;
    known.e8m0 = c.e8m0;
    const u32 bits = syi_kv_scale_bits(&known, __float_as_uint(largest));
    const float made = syi_kv_scale_from(&known, bits), w = bits16 == 0 ? 1.0f : made; /* codes of zeros are zeros */
    const bool usual = bits16 < (T == SY_TYPE_BF16 ? 0x7f80u : 0x7c00u) && __float_as_uint(w) - (87u << 23) <= 80u << 23 &&
                       (!near || c.e8m0 || bits16 == 0 || largest > 1e-8f);
    if (__any_sync(SYC_ALL_LANES, own != NULL && !usual)) {
#pragma unroll 1
        for (int r = 0; r < ROWS; r++) {
            u8 *const to = syc_pointer_of_lane(own, r), *const scales = syc_pointer_of_lane(record, r);
            if (to != NULL)
                syc_pack_row<T, C>(c, units, to, scales, syc_out_row(plane.dense, first + r));
        }
        return;
    }
    float by = __frcp_rn(w);
    if (near)
        by = syc_near_reciprocal(largest, w, by);
    if (own != NULL && lane < units.codes && (lane & (units.span - 1)) < ROWS) {
        const u32 at = syc_divide(lane, units.scale);
        u8 *const scales = record + c.scale_off;
        if (c.e8m0)
            scales[at] = (u8)bits;
        else
            ((u32 *)scales)[at] = bits;
    }
    const int64_t offset = syc_unit_offset<SYC_PACK_UNIT>(c, units, lane);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        u8 *const to = syc_pointer_of_lane(own, r);
        const int from = (int)((lane & ~(u32)(ROWS - 1)) + r);
        const float row_by = __shfl_sync(SYC_ALL_LANES, by, from), row_w = near ? 0.0f : __shfl_sync(SYC_ALL_LANES, w, from);
        float x[SYC_PACK_UNIT];
        u32 q[4];
        held[r].widen(x);
#pragma unroll
        for (int j = 0; j < 4; j++)
            q[j] = near ? syc_pack_near(x + 4 * j, row_by) : syc_pack_four<T, C>(x + 4 * j, row_w, row_by);
        if (to != NULL && lane < units.codes)
            syc_store_codes(to + offset, units.wide, q);
    }
}

/* ---- Launching ------------------------------------------------------------------------------------------------------ */

template <sy_type T, enum syi_code C, class Slots>
static void syc_kv_pack(struct syc_call *call, const Slots &slots, const struct syi_kv_plane &plane, const struct syi_kv_pool &pool, int64_t n, const struct syc_units &units)
{
    if constexpr (T != SY_TYPE_F32) {
        if (syc_packs_fours(units)) {
            const int own = syc_unit_threads(call, n, SYC_PACK_ROWS), few = own < SYC_FOUR_THREADS ? own : (int)SYC_FOUR_THREADS;
            const int64_t rows = few / 32 * SYC_PACK_ROWS, ahead = SYC_FOUR_AHEAD * rows * call->device->processors;
            syc_launch(&call->queue, syc_pack_fours<T, C, Slots>, SYC_EARLY, (n + rows - 1) / rows, few, 0, slots, plane, pool, n, units, call->gate, ahead);
            return;
        }
    }
    const int threads = syc_unit_threads(call, n, 1);
    const int64_t blocks = (n + threads / 32 - 1) / (threads / 32), most = SYC_PACK_BLOCKS(T) * (int64_t)(SYC_UNIT_THREADS / threads) * call->device->processors;
    syc_launch(&call->queue, syc_pack_units<T, C, Slots>, SYC_EARLY, blocks < most ? blocks : most, threads, 0, slots, plane, pool, n, units, call->gate);
}

template <bool TO_CACHE, sy_type T, class Slots>
static void syc_kv_code_units(struct syc_call *call, const Slots &slots, const struct syi_kv_plane &plane, const struct syi_kv_pool &pool,
                              int64_t n, const struct syc_units &units)
{
    if constexpr (TO_CACHE) {
        if (plane.codec.code == SYI_CODE_I8)
            syc_kv_pack<T, SYI_CODE_I8>(call, slots, plane, pool, n, units);
        else if (plane.codec.code == SYI_CODE_E4M3)
            syc_kv_pack<T, SYI_CODE_E4M3>(call, slots, plane, pool, n, units);
        else
            syc_kv_pack<T, SYI_CODE_E5M2>(call, slots, plane, pool, n, units);
    } else {
        const int threads = syc_unit_threads(call, n, SYC_UNPACK_ROWS);
        const int64_t rows = threads / 32 * SYC_UNPACK_ROWS;
        syc_launch(&call->queue, syc_unpack_units<T, Slots>, SYC_EARLY, (n + rows - 1) / rows, threads, 0, slots, plane, pool, n, units, call->gate);
    }
}

template <bool TO_CACHE, class Slots>
static void syc_kv_code(struct syc_call *call, const Slots &slots, const struct syi_kv_plane &plane, const struct syi_kv_pool &pool, int64_t n)
{
    struct syc_units units;
    if (syc_code_blocks<TO_CACHE>(call, SYC_EARLY, slots, plane, pool, n))
        return;
    if (!syc_units_of(&units, plane, TO_CACHE ? SYC_PACK_UNIT : SYC_UNIT))
        syc_kv_code_any<TO_CACHE>(call, SYC_EARLY, slots, plane, pool, n);
    else if (plane.codec.dense == SYI_FLOAT_F32)
        syc_kv_code_units<TO_CACHE, SY_TYPE_F32>(call, slots, plane, pool, n, units);
    else if (plane.codec.dense == SYI_FLOAT_F16)
        syc_kv_code_units<TO_CACHE, SY_TYPE_F16>(call, slots, plane, pool, n, units);
    else
        syc_kv_code_units<TO_CACHE, SY_TYPE_BF16>(call, slots, plane, pool, n, units);
}

#endif
