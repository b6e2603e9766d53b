/*
 * Rows of quantised caches: their codes to dense rows of numbers, and back. Rows that are aligned are
 * unpacked eight and packed sixteen numbers at a time; block_codes.cuh has q8_0, q4_0 and nvfp4,
 * kv_code_rows.cuh the general way.
 */
#include "cuda/codes/block_codes.cuh"

/* Reports the first global scale that is no positive number, before the validation of the call. */
static __global__ void __launch_bounds__(256)
    find_bad_global(const syc_gate gate, const syi_global global, int64_t plane)
{
    __shared__ unsigned long long first;
    if (threadIdx.x == 0)
        first = (unsigned long long)global.n;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < global.n; i += 256)
        if (syi_global_is_bad(&global, i)) {
            atomicMin(&first, (unsigned long long)i);
            break;
        }
    __syncthreads();
    if (threadIdx.x != 0 || (int64_t)first >= global.n || *gate.closed != 0 || gate.report == NULL)
        return;
    gate.report->found =
        syi_bad_at(plane < 0 ? SYI_BAD_GLOBAL_SCALE : SYI_BAD_KV_GLOBAL_SCALE, (int64_t)first, plane, 0, 0);
    syc_close(gate);
}

void syc_check_global(syc_call *call, const syi_kv_codec &codec, int64_t plane)
{
    if (codec.fp4)
        syc_launch(&call->queue, find_bad_global, SYC_AFTER, 1, 256, 0, call->gate, codec.global, plane);
}

/* The units of a row. */
struct syc_units {
    syc_divisor head, scale; /* units of a head, with one scale */
    u32 codes, rope;         /* units of codes; eights of the rope part */
    /* packing: lanes with one scale, a power of two; 0: scales are there before codes */
    u32 span;
    bool wide; /* codes of a unit are aligned to their size */
};

/* Whether a format and the places of its rows allow units. */
static inline bool syc_units_of(syc_units *units, const syi_kv_plane &p, int unit)
{
    const syi_kv_codec &c = p.codec;
    const u64 cached = (u64)(uintptr_t)p.cache | (u64)p.block_stride | (u64)p.row_stride,
              dense = (u64)(uintptr_t)p.dense.data | (u64)p.dense.stride;
    const u64 scales =
        (u64)(uintptr_t)c.scale | (u64)c.scale_off | (u64)c.scale_block_stride | (u64)c.scale_row_stride;
    const u64 codes = (u64)c.n_groups * c.group, head = (u64)c.per_head * c.group,
              scale = (u64)c.group * c.share;
    const u64 places = cached | c.q_off | (head < codes ? (u64)c.head_stride : 0), span = scale / (u64)unit;
    const bool by_lanes = !c.given && span <= 32 && (span & (span - 1)) == 0;
    if (c.inlined || c.fp4 || (places | c.rope) % 8 != 0 || (codes | head | scale) % (u64)unit != 0 ||
        dense % 16 != 0 || (c.rope > 0 && (cached | c.rope_off) % 16 != 0) || (!c.e8m0 && scales % 4 != 0) ||
        codes == 0 || codes + c.rope > 1 << 24 || codes % scale != 0)
        return false;
    *units = {syc_divisor_of((u32)(head / (u64)unit)),
              syc_divisor_of((u32)span),
              (u32)(codes / (u64)unit),
              (u32)(c.rope / 8),
              by_lanes ? (u32)span : 0,
              places % (u64)unit == 0};
    return true;
}

/* Where the codes of unit v are in a row. */
template <int UNIT> SYC_INLINE int64_t syc_unit_offset(const syi_kv_codec &c, const syc_units &units, u32 v)
{
    const u32 head = syc_divide(v, units.head);
    return (int64_t)c.q_off + head * c.head_stride + (v - head * units.head.d) * UNIT;
}

SYC_INLINE u32 syc_unit_scale(const syi_kv_codec &c, const u8 *record, u32 at)
{
    const u8 *const scales = record + c.scale_off;
    return c.e8m0 ? scales[at] : ((const u32 *)scales)[at];
}

/* ---- Unpacking ---- */

/* Numbers of the rope part, of bf16. */
template <sy_type T> SYC_INLINE syc_eight<T> syc_unpack_rope(const uint4 &q)
{
    syc_eight<SY_TYPE_BF16> from = {{q}};
    if constexpr (T == SY_TYPE_BF16)
        return from;
    float x[SYC_UNIT];
    from.widen(x);
    return syc_eight<T>::narrow(x);
}

/* of a warp; units of codes that a lane loads of each of them */
enum { SYC_UNPACK_ROWS = 2, SYC_UNPACK_AHEAD = 2 };

/* Two rows for each warp. */
template <sy_type T>
static __global__ void __launch_bounds__(SYC_UNIT_THREADS)
    syc_unpack_units(const __grid_constant__ syc_packed_rows rows, const __grid_constant__ syc_units units,
                     const __grid_constant__ syc_gate gate)
{
    enum { ROWS = SYC_UNPACK_ROWS, AHEAD = SYC_UNPACK_AHEAD };
    const syi_kv_codec &c = rows.plane.codec;
    const u32 lane = threadIdx.x % 32, rope = units.rope;
    const int64_t i = ((int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * ROWS + lane % ROWS;
    syc_wait_for_previous();
    const bool bad = syc_sees_fault(gate);
    const syc_packed_row own = rows.packed(i);
    u8 *const own_dense = i < rows.n && (own.codes != NULL || rows.clears) ? rows.dense(i) : NULL;
    syc_packed_row packed[ROWS]; /* codes NULL: zeros */
    u8 *to[ROWS];                /* NULL: nothing to do */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        packed[r] = {syc_pointer_of_lane(own.codes, r), syc_pointer_of_lane(own.scales, r)};
        to[r] = syc_pointer_of_lane(own_dense, r);
    }
    /* the same turns for all lanes */
    for (u32 first = lane; first < units.codes + lane || first < ROWS * rope + lane; first += AHEAD * 32) {
        uint2 held[ROWS][AHEAD];
        u32 scale[ROWS][AHEAD];
        uint4 whole[AHEAD]; /* of the rope parts of all rows, one after the other */
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 v = first + u * 32, at = syc_divide(v, units.scale);
            const int64_t offset = syc_unit_offset<SYC_UNIT>(c, units, v);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const bool there = v < units.codes && packed[r].codes != NULL;
                held[r][u] = there ? __ldcs((const uint2 *)(packed[r].codes + offset)) : make_uint2(0, 0);
                scale[r][u] = there ? syc_unit_scale(c, packed[r].scales, at) : 0;
            }
            const bool second = v >= rope;
            const u8 *const row = second ? packed[1].codes : packed[0].codes;
            whole[u] = v < ROWS * rope && row != NULL
                           ? __ldcs((const uint4 *)(row + c.rope_off) + (second ? v - rope : v))
                           : make_uint4(0, 0, 0, 0);
        }
        if (first == lane && !syc_all_clear(gate, bad))
            return;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 v = first + u * 32;
            if (v < units.codes) {
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    if (to[r] != NULL)
                        syc_unpack_unit<T>(c.code, held[r][u], syi_kv_scale_from(&c, scale[r][u]))
                            .store(to[r], v);
            }
            const bool second = v >= rope;
            u8 *const dense = second ? to[1] : to[0];
            if (v < ROWS * rope && dense != NULL)
                syc_unpack_rope<T>(whole[u]).store(dense, units.codes + (second ? v - rope : v));
        }
    }
}

/* ---- Packing: units ---- */

/* Any numbers and scales. */
SYC_COLD u32 syc_pack_any_four(syi_code code, float a, float b, float c, float d, float w)
{
    return syi_f32_to_code(code, __fdiv_rn(a, w)) | (u32)syi_f32_to_code(code, __fdiv_rn(b, w)) << 8 |
           (u32)syi_f32_to_code(code, __fdiv_rn(c, w)) << 16 |
           (u32)syi_f32_to_code(code, __fdiv_rn(d, w)) << 24;
}

/* The largest magnitude that is not NaN. */
SYC_INLINE u32 syc_most(const float (&x)[SYC_PACK_UNIT])
{
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < SYC_PACK_UNIT; j++)
        most = max(most, (u32)syi_kv_magnitude(x[j]));
    return most;
}

/* Scales of more units than lanes, or of a number of them that is no power of two; the 32 lanes of a warp
   call it. */
template <sy_type T>
SYC_INLINE void syc_make_scales(const syi_kv_codec &c, const syc_units &units, u8 *record, const u8 *dense)
{
    const u32 lane = threadIdx.x % 32;
#pragma unroll 1
    for (u32 at = 0, begin = 0; begin < units.codes; at++, begin += units.scale.d) {
        u32 most = 0;
#pragma unroll 1
        for (u32 v = begin + lane; v < begin + units.scale.d; v += 32) {
            float x[SYC_PACK_UNIT];
            syc_sixteen<T>::load(dense, v).widen(x);
            most = max(most, syc_most(x));
        }
        most = __reduce_max_sync(SYC_ALL_LANES, most);
        if (lane == 0)
            syi_kv_store_scale(&c, syi_kv_scale_bits(&c, most), record, at);
    }
    __syncwarp();
}

/* `wide`: `to` is aligned to 16 bytes, else to 8. */
SYC_INLINE void syc_store_codes(u8 *to, bool wide, const u32 (&q)[4])
{
    if (wide) {
        __stcs((uint4 *)to, make_uint4(q[0], q[1], q[2], q[3]));
    } else {
        __stcs((uint2 *)to, make_uint2(q[0], q[1]));
        __stcs((uint2 *)to + 1, make_uint2(q[2], q[3]));
    }
}

/* Unit v of a row, whose codes go to `to`; the 32 lanes of a warp call it. */
template <sy_type T, syi_code C>
SYC_INLINE void syc_pack_unit(const syi_kv_codec &c, const syc_units &units, u8 *to, u8 *record, u32 v,
                              const float (&x)[SYC_PACK_UNIT])
{
    const u32 infinity = 0x7f800000u;
    syi_kv_codec known = {}; /* what scales depend on */
    float larger = fabsf(x[0]);
#pragma unroll
    for (int j = 1; j < SYC_PACK_UNIT; j++)
        larger = syc_larger(larger, x[j]);
    u32 most = syc_most_of_span(__float_as_uint(larger) & 0x7fffffffu, units.span);
    const bool finite = most < infinity;
    if (units.span > 0 && __any_sync(SYC_ALL_LANES, most > infinity))
        most = syc_most_of_span(syc_most(x), units.span);
    if (v >= units.codes)
        return;
    known.code = C;
    known.e8m0 = c.e8m0;
    const u32 at = syc_divide(v, units.scale),
              bits = units.span > 0 ? syi_kv_scale_bits(&known, most) : syc_unit_scale(c, record, at);
    const float w = syi_kv_scale_from(&known, bits);
    if (units.span > 0 && v == at * units.scale.d) {
        u8 *const scales = record + c.scale_off;
        if (c.e8m0)
            scales[at] = (u8)bits;
        else
            ((u32 *)scales)[at] = bits;
    }
    u32 q[4];
    if (finite && !c.given && __float_as_uint(w) - (87u << 23) <= 80u << 23) {
        const float r = __frcp_rn(w), largest = __uint_as_float(most);
        /* the scale is that of the largest */
        if (T == SY_TYPE_BF16 && C == SYI_CODE_I8 && units.span > 0 && (c.e8m0 || largest > 1e-8f)) {
            const float next = syc_near_reciprocal(largest, w, r);
#pragma unroll
            for (int j = 0; j < 4; j++)
                q[j] = syc_pack_near(x + 4 * j, next);
        } else {
#pragma unroll
            for (int j = 0; j < 4; j++)
                q[j] = syc_pack_four<T, C>(x + 4 * j, w, r);
        }
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            q[j] = syc_pack_any_four(C, x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3], w);
    }
    syc_store_codes(to, units.wide, q);
}

/* ---- Packing: rows one after the other ---- */

template <sy_type T> SYC_INLINE void syc_store_rope(u8 *to, const syc_eight<T> &rope)
{
    float x[SYC_UNIT];
    rope.widen(x);
    if constexpr (T == SY_TYPE_BF16)
        __stcs((uint4 *)to, rope.v[0]);
    else
        __stcs((uint4 *)to, syc_numbers<SY_TYPE_BF16, true>::narrow(x));
}

/* Clears what has no codes, scales or rope numbers, and more; the 32 lanes of a warp call it. */
SYC_INLINE void syc_clear_packed(const syi_kv_codec &c, u8 *row, u8 *record)
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
    syc_sixteen<T> numbers;
    syc_eight<T> rope;

    __device__ __forceinline__ void load(const u8 *dense, const syc_units &units, u32 v)
    {
        numbers = v < units.codes ? syc_sixteen<T>::load(dense, v) : syc_zero<syc_sixteen<T>>();
        rope = v < units.rope ? syc_eight<T>::load(dense, 2 * units.codes + v) : syc_eight<T>::zero();
    }
};

/* Of a multiprocessor at a time. */
#define SYC_PACK_BLOCKS(T) ((T) == SY_TYPE_F32 ? 2 : 3)

/* Rows for each warp, one after the other; the next one is loaded meanwhile, and the one after it goes to the
   second cache. Each lane looks up where one of 32 rows goes. */
template <sy_type T, syi_code C>
static __global__ void __launch_bounds__(SYC_UNIT_THREADS, SYC_PACK_BLOCKS(T))
    syc_pack_units(const __grid_constant__ syc_packed_rows rows, const __grid_constant__ syc_units units,
                   const __grid_constant__ syc_gate gate)
{
    const syi_kv_codec &c = rows.plane.codec;
    const u32 lane = threadIdx.x % 32, turns = max(units.codes, units.rope);
    const bool clears = c.clear_row > 0 || c.clear_scale > 0;
    const int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32),
                  offset = syc_unit_offset<SYC_PACK_UNIT>(c, units, lane);
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    syc_ahead<T> held;
    syc_packed_row own;
    const auto look_up = [&] { own = rows.packed(i + lane * warps); };
    const auto load_early = [&](int64_t row) {
        if (lane == 0 && row < rows.n)
            syc_bulk_prefetch(rows.dense(row), (units.codes * SYC_PACK_UNIT + units.rope * SYC_UNIT) *
                                                   syc_numbers<T, true>::SIZE);
    };
    if (i < rows.n)
        held.load(rows.dense(i), units, lane);
    load_early(i + warps);
    syc_wait_for_previous();
    if (!syc_all_clear(gate, syc_sees_fault(gate)))
        return;
    look_up();
#pragma unroll 1
    for (int turn = 0; i < rows.n; turn = (turn + 1) % 32, i += warps) {
        if (turn == 0 && i >= 32 * warps)
            look_up();
        load_early(i + 2 * warps);
        u8 *const row = syc_pointer_of_lane(own.codes, turn), *const record =
                                                                  syc_pointer_of_lane(own.scales, turn);
        if (row != NULL && clears)
            syc_clear_packed(c, row, record);
        if (row != NULL && units.span == 0 && !c.given)
            syc_make_scales<T>(c, units, record, rows.dense(i));
#pragma unroll 1
        /* several times for long rows, the same for all lanes */
        for (u32 v = lane; v < turns + lane; v += 32) {
            float x[SYC_PACK_UNIT];
            if (v >= 32)
                held.load(rows.dense(i), units, v);
            held.numbers.widen(x);
            if (row != NULL && v < units.rope)
                syc_store_rope(row + c.rope_off + 16 * v, held.rope);
            if (v + 32 >= turns + lane && i + warps < rows.n)
                held.load(rows.dense(i + warps), units, lane);
            if (row != NULL)
                syc_pack_unit<T, C>(c, units,
                                    row + (v < 32 ? offset : syc_unit_offset<SYC_PACK_UNIT>(c, units, v)),
                                    record, v, x);
        }
    }
}

/* ---- Packing: four rows at a time ---- */

/*
 * Rows of two bytes for each number, of at most 32 units, whose scales are of four units or more: four rows
 * for each warp, all loaded at once. A lane makes the scale of one row, its number modulo four, and hands it
 * to the three lanes around it. (Eights of consecutive lanes, loaded without gaps but stored by eight bytes,
 * take as long as rows one after the other.) Rows `ahead` of them, of blocks that start later, go to the
 * second cache meanwhile.
 */
/* of a warp; of a block; of a multiprocessor, and how many later */
enum { SYC_PACK_ROWS = 4, SYC_FOUR_THREADS = 128, SYC_FOUR_BLOCKS = 7, SYC_FOUR_AHEAD = 4 };

static inline bool syc_packs_fours(const syc_units &units)
{
    return units.codes <= 32 && units.span >= SYC_PACK_ROWS && units.rope <= 32 / SYC_PACK_ROWS;
}

/* Of four rows, each lane has its own largest; lane l gets that of row l % 4 of all lanes with its scale. */
SYC_INLINE u32 syc_largest_of_rows(const u32 (&most)[SYC_PACK_ROWS], u32 span)
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
template <sy_type T, syi_code C>
SYC_COLD void syc_pack_row(const syi_kv_codec &c, const syc_units &units, u8 *row, u8 *record,
                           const u8 *dense)
{
    const u32 lane = threadIdx.x % 32;
    float x[SYC_PACK_UNIT];
    (lane < units.codes ? syc_sixteen<T>::load(dense, lane) : syc_zero<syc_sixteen<T>>()).widen(x);
    syc_pack_unit<T, C>(c, units, row + syc_unit_offset<SYC_PACK_UNIT>(c, units, lane), record, lane, x);
}

/* What a row has beside codes and scales, of the rows whose addresses the lanes have. */
SYC_INLINE void syc_clear_fours(const syi_kv_codec &c, u8 *own, u8 *record)
{
#pragma unroll 1
    for (int r = 0; r < SYC_PACK_ROWS; r++) {
        u8 *const row = syc_pointer_of_lane(own, r), *const scales = syc_pointer_of_lane(record, r);
        if (row != NULL)
            syc_clear_packed(c, row, scales);
    }
}

/* NOLINT(readability-function-size): the scales of four rows, one for each lane, are made between their loads
   and stores */
template <sy_type T, syi_code C>
static __global__ void __launch_bounds__(SYC_FOUR_THREADS, SYC_FOUR_BLOCKS)
    syc_pack_fours(const __grid_constant__ syc_packed_rows rows, const __grid_constant__ syc_units units,
                   const __grid_constant__ syc_gate gate, int64_t ahead)
{
    enum { ROWS = SYC_PACK_ROWS };
    const bool near = T == SY_TYPE_BF16 && C == SYI_CODE_I8; /* see syc_pack_near */
    const syi_kv_codec &c = rows.plane.codec;
    const u32 lane = threadIdx.x % 32, rope_row = units.rope > 0 ? lane / units.rope : (u32)ROWS;
    const int64_t first = ((int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * ROWS,
                  mine = first + lane % ROWS;
    syc_sixteen<T> held[ROWS];
    syc_eight<T> rope = syc_eight<T>::zero();
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        held[r] = first + r < rows.n && lane < units.codes ? syc_sixteen<T>::load(rows.dense(first + r), lane)
                                                           : syc_zero<syc_sixteen<T>>();
    if (rope_row < ROWS && first + rope_row < rows.n)
        rope =
            syc_eight<T>::load(rows.dense(first + rope_row), 2 * units.codes + lane - rope_row * units.rope);
    if (lane < ROWS && mine + ahead < rows.n)
        syc_bulk_prefetch(rows.dense(mine + ahead),
                          (units.codes * SYC_PACK_UNIT + units.rope * SYC_UNIT) * syc_numbers<T, true>::SIZE);
    syc_wait_for_previous();
    if (!syc_all_clear(gate, syc_sees_fault(gate)))
        return;
    const syc_packed_row own_row = rows.packed(mine);
    u8 *const own = own_row.codes, *const record = own_row.scales;
    if (c.clear_row > 0 || c.clear_scale > 0)
        syc_clear_fours(c, own, record);
    u8 *const rope_to = syc_pointer_of_lane(own, (int)(rope_row % ROWS));
    if (rope_row < ROWS && rope_to != NULL)
        syc_store_rope(rope_to + c.rope_off + 16 * (lane - rope_row * units.rope), rope);
    u32 most[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        most[r] = syc_largest_word<T>(held[r]);
    const u32 bits16 = syc_largest_of_rows(most, units.span);
    const float largest = T == SY_TYPE_BF16 ? __uint_as_float(bits16 << 16) : syc_widen_f16((u16)bits16);
    syi_kv_codec known = {}; /* what scales depend on */
    known.code = C;
    known.e8m0 = c.e8m0;
    const u32 bits = syi_kv_scale_bits(&known, __float_as_uint(largest));
    /* codes of zeros are zeros */
    const float made = syi_kv_scale_from(&known, bits), w = bits16 == 0 ? 1.0f : made;
    const bool usual = bits16 < (T == SY_TYPE_BF16 ? 0x7f80u : 0x7c00u) &&
                       __float_as_uint(w) - (87u << 23) <= 80u << 23 &&
                       (!near || c.e8m0 || bits16 == 0 || largest > 1e-8f);
    if (__any_sync(SYC_ALL_LANES, own != NULL && !usual)) {
#pragma unroll 1
        for (int r = 0; r < ROWS; r++) {
            u8 *const to = syc_pointer_of_lane(own, r), *const scales = syc_pointer_of_lane(record, r);
            if (to != NULL)
                syc_pack_row<T, C>(c, units, to, scales, rows.dense(first + r));
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
        const float row_by = __shfl_sync(SYC_ALL_LANES, by, from),
                    row_w = near ? 0.0f : __shfl_sync(SYC_ALL_LANES, w, from);
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

/* ---- Launching ---- */

template <sy_type T, syi_code C>
static void launch_packing(syc_call *call, const syc_packed_rows &rows, const syc_units &units)
{
    if constexpr (T != SY_TYPE_F32) {
        if (syc_packs_fours(units)) {
            const int own = syc_unit_threads(call, rows.n, SYC_PACK_ROWS),
                      few = own < SYC_FOUR_THREADS ? own : (int)SYC_FOUR_THREADS;
            const int64_t each = few / 32 * SYC_PACK_ROWS,
                          ahead = SYC_FOUR_AHEAD * each * call->device->processors;
            syc_launch(&call->queue, syc_pack_fours<T, C>, syc_start_of(rows), syc_ceil(rows.n, each), few, 0,
                       rows, units, call->gate, ahead);
            return;
        }
    }
    const int threads = syc_unit_threads(call, rows.n, 1);
    const int64_t blocks = syc_ceil(rows.n, threads / 32), at_once = SYC_UNIT_THREADS / threads,
                  most = SYC_PACK_BLOCKS(T) * at_once * call->device->processors;
    syc_launch(&call->queue, syc_pack_units<T, C>, syc_start_of(rows), blocks < most ? blocks : most, threads,
               0, rows, units, call->gate);
}

template <bool TO_CACHE, sy_type T>
static void launch_units(syc_call *call, const syc_packed_rows &rows, const syc_units &units)
{
    if constexpr (TO_CACHE) {
        if (rows.plane.codec.code == SYI_CODE_I8)
            launch_packing<T, SYI_CODE_I8>(call, rows, units);
        else if (rows.plane.codec.code == SYI_CODE_E4M3)
            launch_packing<T, SYI_CODE_E4M3>(call, rows, units);
        else
            launch_packing<T, SYI_CODE_E5M2>(call, rows, units);
    } else {
        const int threads = syc_unit_threads(call, rows.n, SYC_UNPACK_ROWS);
        syc_launch(&call->queue, syc_unpack_units<T>, syc_start_of(rows),
                   syc_ceil(rows.n, threads / 32 * SYC_UNPACK_ROWS), threads, 0, rows, units, call->gate);
    }
}

template <bool TO_CACHE, sy_type T> static void launch(syc_call *call, const syc_packed_rows &rows)
{
    syc_units units;
    const syi_kv_codec &c = rows.plane.codec;
    if (syc_takes(call, "kv_blocks",
                  syc_are_blocks(rows.plane) ? NULL
                  : c.fp4 || c.inlined       ? "rows are not aligned"
                                             : "the format has no blocks"))
        syc_code_blocks<TO_CACHE, T>(call, rows);
    else if (syc_takes(call, "kv_units",
                       c.fp4 || c.inlined ? "the format has blocks"
                       : syc_units_of(&units, rows.plane, TO_CACHE ? SYC_PACK_UNIT : SYC_UNIT)
                           ? NULL
                           : "rows are not aligned, or have odd groups"))
        launch_units<TO_CACHE, T>(call, rows, units);
    else if (syc_takes(call, "kv_numbers"))
        syc_launch(&call->queue, syc_code_rows<TO_CACHE>, syc_start_of(rows), syc_ceil(rows.n, SYC_CODE_ROWS),
                   32 * SYC_CODE_ROWS, 0, rows, call->gate);
}

template <bool TO_CACHE> static void launch_by_type(syc_call *call, const syc_packed_rows &rows)
{
    if (rows.plane.codec.dense == SYI_FLOAT_F32)
        launch<TO_CACHE, SY_TYPE_F32>(call, rows);
    else if (rows.plane.codec.dense == SYI_FLOAT_F16)
        launch<TO_CACHE, SY_TYPE_F16>(call, rows);
    else
        launch<TO_CACHE, SY_TYPE_BF16>(call, rows);
}

void syc_kv_code(syc_call *call, const syc_packed_rows &rows, bool to_cache)
{
    if (to_cache)
        launch_by_type<true>(call, rows);
    else
        launch_by_type<false>(call, rows);
}
