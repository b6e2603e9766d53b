/*
 * Packed rows of quantised caches to dense rows of numbers, and back. The arithmetic is that of src/base/codes.h and
 * src/base/kv_math.h. Rows that are aligned are unpacked eight and packed sixteen numbers at a time; the general way, for any
 * format, is a warp per row and a number per lane. kv_codes.cuh has the kernels that pack, and the launches;
 * block_codes.cuh has q8_0, q4_0 and nvfp4.
 */
#ifndef SYC_CODES_CUH
#define SYC_CODES_CUH

#include "base/kv_math.h"
#include "cuda/bulk.cuh"
#include "cuda/kv.cuh"
#include "cuda/slots.cuh"

/* ---- Any format -------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ sy_type syc_dense_type(const struct syi_kv_codec &c)
{
    return c.dense == SYI_FLOAT_F32 ? SY_TYPE_F32 : c.dense == SYI_FLOAT_F16 ? SY_TYPE_F16 : SY_TYPE_BF16;
}

/* All functions are called by the 32 lanes of a warp with the same row. */
static __device__ void syc_unpack_inline(const struct syi_kv_codec &c, u8 *dense, const u8 *row)
{
    const int lane = (int)threadIdx.x % 32;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, bytes = (int64_t)syi_inline_bytes(&c);
    for (int64_t g = 0; g < (int64_t)c.n_groups; g++) {
        const u8 *const from = row + g * bytes;
        const u8 byte = from[SYI_INLINE_SCALE + (c.four ? lane % 16 : lane)];
        const int code = c.four ? (lane < 16 ? byte & 15 : byte >> 4) - 8 : (int)(signed char)byte;
        const float x = __fmul_rn((float)code, syi_f16_to_f32(syc_load<u16>(from)));
        syc_store_float(dense + (g * SYI_INLINE_GROUP + lane) * size, type, syc_canonical(x));
    }
}

static __device__ void syc_pack_inline(const struct syi_kv_codec &c, u8 *row, const u8 *dense)
{
    const int lane = (int)threadIdx.x % 32;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, bytes = (int64_t)syi_inline_bytes(&c);
    for (int64_t g = 0; g < (int64_t)c.n_groups; g++) {
        u8 *const to = row + g * bytes;
        const float x = syc_load_float(dense + (g * SYI_INLINE_GROUP + lane) * size, type);
        const u32 own = syi_inline_magnitude(x), most = __reduce_max_sync(SYC_ALL_LANES, own);
        const u32 same = __ballot_sync(SYC_ALL_LANES, own == most), negative = __ballot_sync(SYC_ALL_LANES, (syi_f32_bits(x) >> 31) != 0);
        const u32 first = same & (0u - same), sign = c.four && most > 0 && (negative & first) != 0 ? 0x80000000u : 0;
        const float scale = syi_inline_scale(c.four, syi_f32_from_bits(most | sign));
        const u32 code = syi_inline_code(c.four, __fmul_rn(x, syi_inline_factor(scale))), above = __shfl_down_sync(SYC_ALL_LANES, code, 16);
        if (lane == 0)
            syc_store<u16>(to, syi_f32_to_f16(scale));
        if (!c.four || lane < 16)
            to[SYI_INLINE_SCALE + lane] = (u8)(c.four ? code | above << 4 : code);
    }
}

/* nvfp4: two groups at a time, a number per lane. */
static __device__ void syc_unpack_fp4(const struct syi_kv_codec &c, u8 *dense, const u8 *row, const u8 *record, int64_t i)
{
    const int lane = (int)threadIdx.x % 32, j = lane % SYI_FP4_GROUP;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2;
    const struct syi_fp4_scale scale = syi_fp4_scale_of(&c.global, i);
    for (int64_t g = lane / SYI_FP4_GROUP; g < (int64_t)c.n_groups; g += 2) {
        const u32 code = (u32)row[syi_fp4_offset(&c, (size_t)g) + j / 2] >> (j % 2 * 4) & 15u;
        const float x = __fmul_rn(__fmul_rn(syi_e2m1_to_f32(code), syi_e4m3_to_f32(record[g])), scale.decode);
        syc_store_float(dense + (g * SYI_FP4_GROUP + j) * size, type, syc_canonical(x));
    }
}

static __device__ void syc_pack_fp4(const struct syi_kv_codec &c, u8 *row, u8 *record, const u8 *dense, int64_t i)
{
    const int lane = (int)threadIdx.x % 32, j = lane % SYI_FP4_GROUP;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, n = (int64_t)c.n_groups;
    const struct syi_fp4_scale scale = syi_fp4_scale_of(&c.global, i);
    for (int64_t first = 0; first < n; first += 2) { /* the same for a warp */
        const int64_t g = first + lane / SYI_FP4_GROUP;
        const float x = g < n ? syc_load_float(dense + (g * SYI_FP4_GROUP + j) * size, type) : 0.0f;
        u32 most = syi_inline_magnitude(x);
#pragma unroll
        for (int step = SYI_FP4_GROUP / 2; step > 0; step /= 2)
            most = max(most, __shfl_xor_sync(SYC_ALL_LANES, most, step));
        const u8 byte = syi_fp4_byte(scale, most);
        const u32 code = syi_f32_to_e2m1(__fmul_rn(x, syi_fp4_factor(scale, byte))), next = __shfl_down_sync(SYC_ALL_LANES, code, 1);
        if (g < n && j == 0)
            record[g] = byte;
        if (g < n && j % 2 == 0)
            row[syi_fp4_offset(&c, (size_t)g) + j / 2] = (u8)(code | next << 4);
    }
}

static __device__ void syc_unpack(const struct syi_kv_codec &c, u8 *dense, const u8 *row, const u8 *record)
{
    const int lane = (int)threadIdx.x % 32;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, codes = (int64_t)(c.n_groups * c.group);
    for (int64_t i = lane; i < codes; i += 32) {
        const int64_t g = i / (int64_t)c.group;
        const float w = syi_kv_scale(&c, record, (size_t)g), x = syi_code_to_f32(c.code, row[syi_kv_code_offset(&c, (size_t)g) + (i - g * (int64_t)c.group)]);
        syc_store_float(dense + i * size, type, syc_canonical(__fmul_rn(w, x)));
    }
    for (int64_t i = lane; i < (int64_t)c.rope; i += 32) {
        const u16 bits = syc_load<u16>(row + c.rope_off + 2 * i);
        u8 *const to = dense + (codes + i) * size;
        if (type == SY_TYPE_BF16)
            syc_store<u16>(to, bits);
        else
            syc_store_float(to, type, syc_canonical(syc_from_bf16(bits)));
    }
}

static __device__ void syc_pack(const struct syi_kv_codec &c, u8 *row, u8 *record, const u8 *dense)
{
    const int lane = (int)threadIdx.x % 32;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, codes = (int64_t)(c.n_groups * c.group), shared = (int64_t)(c.group * c.share);
    for (int64_t i = lane; i < (int64_t)c.clear_row; i += 32)
        row[i] = 0;
    for (int64_t i = lane; i < (int64_t)c.clear_scale; i += 32)
        record[i] = 0;
    __syncwarp();
    for (int64_t begin = 0; begin < codes && !c.given; begin += shared) {
        u32 most = 0;
        for (int64_t i = begin + lane; i < begin + shared && i < codes; i += 32)
            most = max(most, (u32)syi_kv_magnitude(syc_load_float(dense + i * size, type)));
        most = __reduce_max_sync(SYC_ALL_LANES, most);
        if (lane == 0)
            syi_kv_make_scale(&c, most, record, begin / shared);
    }
    __syncwarp();
    for (int64_t i = lane; i < codes; i += 32) {
        const int64_t g = i / (int64_t)c.group;
        const float x = syc_load_float(dense + i * size, type);
        row[syi_kv_code_offset(&c, (size_t)g) + (i - g * (int64_t)c.group)] = syi_f32_to_code(c.code, __fdiv_rn(x, syi_kv_scale(&c, record, (size_t)g)));
    }
    for (int64_t i = lane; i < (int64_t)c.rope; i += 32) {
        u8 *const to = row + c.rope_off + 2 * i;
        const u8 *const from = dense + (codes + i) * size;
        syc_store<u16>(to, type == SY_TYPE_BF16 ? syc_load<u16>(from) : syc_to_bf16(syc_load_float(from, type)));
    }
}

enum { SYC_CODE_ROWS = 8 }; /* of a block */

template <class Slots, bool TO_CACHE>
static __global__ void __launch_bounds__(32 * SYC_CODE_ROWS)
    syc_code_rows(const Slots slots, const struct syi_kv_plane plane, const struct syi_kv_pool pool, int64_t n, const struct syc_gate gate)
{
    const int64_t i = (int64_t)blockIdx.x * SYC_CODE_ROWS + threadIdx.x / 32;
    const struct syi_kv_codec &c = plane.codec;
    u8 *const dense = i < n ? syc_out_row(plane.dense, i) : NULL;
    const int64_t slot = i < n ? slots.slot(i) : -1;
    if (!syc_may_write(gate) || i >= n)
        return;
    if (slot < 0) {
        for (int64_t k = threadIdx.x % 32; k < (int64_t)c.dense_bytes && !TO_CACHE && slots.clears; k += 32)
            dense[k] = 0;
        return;
    }
    u8 *const row = syc_kv_cached(pool, plane.cache, plane.block_stride, plane.row_stride, slot);
    u8 *const record = syc_kv_cached(pool, c.scale, c.scale_block_stride, c.scale_row_stride, slot);
    if (c.fp4 && TO_CACHE)
        syc_pack_fp4(c, row, record, dense, i);
    else if (c.fp4)
        syc_unpack_fp4(c, dense, row, record, i);
    else if (c.inlined && TO_CACHE)
        syc_pack_inline(c, row, dense);
    else if (c.inlined)
        syc_unpack_inline(c, dense, row);
    else if (TO_CACHE)
        syc_pack(c, row, record, dense);
    else
        syc_unpack(c, dense, row, record);
}

template <bool TO_CACHE, class Slots>
static void syc_kv_code_any(struct syc_call *call, enum syc_start start, const Slots &slots, const struct syi_kv_plane &plane, const struct syi_kv_pool &pool, int64_t n)
{
    syc_launch(&call->queue, syc_code_rows<Slots, TO_CACHE>, start, (n + SYC_CODE_ROWS - 1) / SYC_CODE_ROWS, 32 * SYC_CODE_ROWS, 0, slots, plane, pool, n, call->gate);
}

/* Rows that are no cache: quantize_rows, dequantize_rows. */
struct syc_every_row {
    enum { clears = 0 };
    __device__ int64_t slot(int64_t i) const { return i; }
};

/* Reports the first global scale that is no positive number, before the validation of the call. */
static __global__ void __launch_bounds__(256) syc_find_bad_global(const struct syc_gate gate, const struct syi_global global, int64_t plane)
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
    gate.report->found = syi_bad_at(plane < 0 ? SYI_BAD_GLOBAL_SCALE : SYI_BAD_KV_GLOBAL_SCALE, (int64_t)first, plane, 0, 0);
    syc_close(gate);
}

static inline void syc_check_global(struct syc_call *call, const struct syi_kv_codec &codec, int64_t plane)
{
    if (codec.fp4)
        syc_launch(&call->queue, syc_find_bad_global, SYC_AFTER, 1, 256, 0, call->gate, codec.global, plane);
}

/* ---- Units of numbers ---------------------------------------------------------------------------------------------- */

enum { SYC_UNIT = 8, SYC_PACK_UNIT = 16, SYC_UNIT_THREADS = 256 }; /* numbers that a lane unpacks and packs together */

/* The units of a row. */
struct syc_units {
    struct syc_divisor head, scale; /* units of a head, with one scale */
    u32 codes, rope;                /* units of codes; eights of the rope part */
    u32 span;                       /* packing: lanes with one scale, a power of two; 0: scales are there before codes */
    bool wide;                      /* codes of a unit are aligned to their size */
};

/* Whether a format and the places of its rows allow units. */
static inline bool syc_units_of(struct syc_units *units, const struct syi_kv_plane &p, int unit)
{
    const struct syi_kv_codec &c = p.codec;
    const u64 cached = (u64)(uintptr_t)p.cache | (u64)p.block_stride | (u64)p.row_stride, dense = (u64)(uintptr_t)p.dense.data | (u64)p.dense.stride;
    const u64 scales = (u64)(uintptr_t)c.scale | (u64)c.scale_off | (u64)c.scale_block_stride | (u64)c.scale_row_stride;
    const u64 codes = (u64)c.n_groups * c.group, head = (u64)c.per_head * c.group, scale = (u64)c.group * c.share;
    const u64 places = cached | c.q_off | (head < codes ? (u64)c.head_stride : 0), span = scale / (u64)unit;
    const bool by_lanes = !c.given && span <= 32 && (span & (span - 1)) == 0;
    if (c.inlined || c.fp4 || (places | c.rope) % 8 != 0 || (codes | head | scale) % (u64)unit != 0 || dense % 16 != 0 || (c.rope > 0 && (cached | c.rope_off) % 16 != 0) ||
        (!c.e8m0 && scales % 4 != 0) || codes == 0 || codes + c.rope > 1 << 24 || codes % scale != 0)
        return false;
    *units = {syc_divisor_of((u32)(head / (u64)unit)), syc_divisor_of((u32)span), (u32)(codes / (u64)unit), (u32)(c.rope / 8), by_lanes ? (u32)span : 0,
              places % (u64)unit == 0};
    return true;
}

/* Threads of a block where a warp takes so many rows at a time: few where rows are few, for more processors. */
static inline int syc_unit_threads(const struct syc_call *call, int64_t n, int rows) { return n < (int64_t)16 * rows * call->device->processors ? 64 : (int)SYC_UNIT_THREADS; }

/* Where the codes of unit v are in a row. */
template <int UNIT> static __device__ __forceinline__ int64_t syc_unit_offset(const struct syi_kv_codec &c, const struct syc_units &units, u32 v)
{
    const u32 head = syc_divide(v, units.head);
    return (int64_t)c.q_off + head * c.head_stride + (v - head * units.head.d) * UNIT;
}

static __device__ __forceinline__ u32 syc_unit_scale(const struct syi_kv_codec &c, const u8 *record, u32 at)
{
    const u8 *const scales = record + c.scale_off;
    return c.e8m0 ? scales[at] : ((const u32 *)scales)[at];
}

/* Two numbers that are not NaN, rounded; the first in the lower half. */
template <sy_type T> static __device__ __forceinline__ u32 syc_two(float low, float high)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return T == SY_TYPE_F16 ? syc_to_f16(low) | (u32)syc_to_f16(high) << 16 : syc_to_bf16(low) | (u32)syc_to_bf16(high) << 16;
#else
    u32 bits;
    if (T == SY_TYPE_F16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
#endif
}

/* Eight numbers of a dense row. */
template <sy_type T> struct syc_eight {
    enum { VECTORS = T == SY_TYPE_F32 ? 2 : 1 };
    uint4 v[VECTORS];

    static __device__ __forceinline__ struct syc_eight load(const u8 *dense, u32 unit)
    {
        struct syc_eight e;
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            e.v[i] = __ldcs((const uint4 *)dense + unit * VECTORS + i);
        return e;
    }
    static __device__ __forceinline__ struct syc_eight zero() { return syc_zero<struct syc_eight>(); }
    __device__ __forceinline__ void store(u8 *dense, u32 unit) const
    {
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            __stcs((uint4 *)dense + unit * VECTORS + i, v[i]);
    }
    __device__ __forceinline__ void widen(float (&x)[SYC_UNIT]) const
    {
        typename syc_numbers<T, true>::Word bits[SYC_UNIT];
        memcpy(bits, v, sizeof bits);
#pragma unroll
        for (int j = 0; j < SYC_UNIT; j++)
            x[j] = T == SY_TYPE_F32 ? __uint_as_float(bits[j]) : T == SY_TYPE_F16 ? syc_widen_f16((u16)bits[j]) : syc_from_bf16((u16)bits[j]);
    }
    /* Any numbers; NaN becomes the canonical one. */
    static __device__ __forceinline__ struct syc_eight narrow(const float (&x)[SYC_UNIT])
    {
        struct syc_eight e;
        float part[syc_numbers<T, true>::N];
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            memcpy(part, x + i * syc_numbers<T, true>::N, sizeof part);
            e.v[i] = syc_numbers<T, true>::narrow(part);
        }
        return e;
    }
    /* None is NaN. */
    static __device__ __forceinline__ struct syc_eight narrow_numbers(const float (&x)[SYC_UNIT])
    {
        struct syc_eight e;
        u32 words[VECTORS * 4];
#pragma unroll
        for (int j = 0; j < VECTORS * 4; j++)
            words[j] = T == SY_TYPE_F32 ? __float_as_uint(x[j]) : syc_two<T>(x[2 * j % SYC_UNIT], x[(2 * j + 1) % SYC_UNIT]);
        memcpy(e.v, words, sizeof words);
        return e;
    }
};

/* ---- Unpacking ------------------------------------------------------------------------------------------------------ */

/* What codes of this type count from differs by this from what an f32 counts from. */
static __device__ __forceinline__ float syc_code_unit(enum syi_code code)
{
    return code == SYI_CODE_I8 ? 1.0f : code == SYI_CODE_E4M3 ? 0x1p120f : 0x1p112f;
}

/* Four codes that are finite: as syi_code_to_f32, divided by syc_code_unit. */
static __device__ __forceinline__ void syc_four_codes(enum syi_code code, u32 q, float *x)
{
    if (code == SYI_CODE_I8) { /* 2^23 + 128 + code has the code, its sign bit inverted, as its last byte */
        q ^= 0x80808080u;
#pragma unroll
        for (int j = 0; j < 4; j++)
            x[j] = __fadd_rn(__uint_as_float(__byte_perm(q, 0x4b000000u, 0x7440 + j)), -8388736.0f);
        return;
    }
    const int shift = code == SYI_CODE_E4M3 ? 4 : 3;
    const u32 mask = code == SYI_CODE_E4M3 ? 0x87f00000u : 0x8fe00000u;
#pragma unroll
    for (int j = 0; j < 4; j++)
        x[j] = __uint_as_float((u32)((int32_t)(q << (24 - 8 * j)) >> shift) & mask);
}

/* Products of a scale and any codes. */
template <sy_type T> SYC_COLD struct syc_eight<T> syc_unpack_any(enum syi_code code, uint2 q, float w)
{
    float x[SYC_UNIT];
#pragma unroll
    for (int j = 0; j < SYC_UNIT; j++)
        x[j] = __fmul_rn(w, syi_code_to_f32(code, (u8)((j < 4 ? q.x : q.y) >> 8 * (j % 4))));
    return syc_eight<T>::narrow(x);
}

/* The same; usually codes and scale are finite, and no product is NaN. */
template <sy_type T> static __device__ __forceinline__ struct syc_eight<T> syc_unpack_unit(enum syi_code code, uint2 q, float w)
{
    const u32 above = code == SYI_CODE_I8 ? 0u : code == SYI_CODE_E4M3 ? 0x01010101u : 0x04040404u; /* carries into the signs */
    const u32 special = ((q.x & 0x7f7f7f7fu) + above) | ((q.y & 0x7f7f7f7fu) + above);
    const float scale = __fmul_rn(w, syc_code_unit(code)); /* exact, or not finite */
    float x[SYC_UNIT];
    if ((special & 0x80808080u) != 0 || (__float_as_uint(scale) & 0x7f800000u) == 0x7f800000u)
        return syc_unpack_any<T>(code, q, w);
    syc_four_codes(code, q.x, x);
    syc_four_codes(code, q.y, x + 4);
#pragma unroll
    for (int j = 0; j < SYC_UNIT; j++)
        x[j] = __fmul_rn(scale, x[j]);
    return syc_eight<T>::narrow_numbers(x);
}

/* Numbers of the rope part, of bf16. */
template <sy_type T> static __device__ __forceinline__ struct syc_eight<T> syc_unpack_rope(const uint4 &q)
{
    struct syc_eight<SY_TYPE_BF16> from = {{q}};
    if constexpr (T == SY_TYPE_BF16)
        return from;
    float x[SYC_UNIT];
    from.widen(x);
    return syc_eight<T>::narrow(x);
}

enum { SYC_UNPACK_ROWS = 2, SYC_UNPACK_AHEAD = 2 }; /* of a warp; units of codes that a lane loads of each of them */

struct syc_packed {
    const u8 *row, *record; /* row NULL: zeros */
    u8 *dense;              /* NULL: nothing to do */
};

template <class Slots>
static __device__ __forceinline__ struct syc_packed syc_packed_at(const Slots &slots, const struct syi_kv_plane &plane, const struct syi_kv_pool &pool, int64_t i)
{
    const struct syi_kv_codec &c = plane.codec;
    const int64_t slot = slots.slot(i);
    u8 *const dense = slot >= 0 || slots.clears ? syc_out_row(plane.dense, i) : NULL;
    if (slot < 0)
        return {NULL, NULL, dense};
    return {syc_kv_cached(pool, plane.cache, plane.block_stride, plane.row_stride, slot),
            syc_kv_cached(pool, c.scale, c.scale_block_stride, c.scale_row_stride, slot), dense};
}

template <typename P> static __device__ __forceinline__ P *syc_pointer_of_lane(P *p, int lane)
{
    return (P *)(uintptr_t)__shfl_sync(SYC_ALL_LANES, (u64)(uintptr_t)p, lane);
}

/* Where row i of `n` goes; NULL: nowhere. */
struct syc_own_row {
    u8 *row, *record;
};

template <class Slots>
static __device__ __forceinline__ struct syc_own_row syc_own_row_at(const Slots &slots, const struct syi_kv_plane &plane, const struct syi_kv_pool &pool, int64_t i, int64_t n)
{
    const int64_t slot = i < n ? slots.slot(i) : -1;
    if (slot < 0)
        return {NULL, NULL};
    return {syc_kv_cached(pool, plane.cache, plane.block_stride, plane.row_stride, slot),
            syc_kv_cached(pool, plane.codec.scale, plane.codec.scale_block_stride, plane.codec.scale_row_stride, slot)};
}

/* Two rows for each warp. */
template <sy_type T, class Slots>
static __global__ void __launch_bounds__(SYC_UNIT_THREADS)
    syc_unpack_units(const __grid_constant__ Slots slots, const __grid_constant__ struct syi_kv_plane plane, const __grid_constant__ struct syi_kv_pool pool, int64_t n,
                     const __grid_constant__ struct syc_units units, const __grid_constant__ struct syc_gate gate)
{
    enum { ROWS = SYC_UNPACK_ROWS, AHEAD = SYC_UNPACK_AHEAD };
    const struct syi_kv_codec &c = plane.codec;
    const u32 lane = threadIdx.x % 32, rope = units.rope;
    const int64_t i = ((int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * ROWS + lane % ROWS;
    struct syc_packed own = {NULL, NULL, NULL}, packed[ROWS];
    if (i < n)
        own = syc_packed_at(slots, plane, pool, i);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        packed[r] = {syc_pointer_of_lane(own.row, r), syc_pointer_of_lane(own.record, r), syc_pointer_of_lane(own.dense, r)};
    for (u32 first = lane; first < units.codes + lane || first < ROWS * rope + lane; first += AHEAD * 32) { /* the same turns for all lanes */
        uint2 held[ROWS][AHEAD];
        u32 scale[ROWS][AHEAD];
        uint4 whole[AHEAD]; /* of the rope parts of all rows, one after the other */
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 v = first + u * 32, at = syc_divide(v, units.scale);
            const int64_t offset = syc_unit_offset<SYC_UNIT>(c, units, v);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const bool there = v < units.codes && packed[r].row != NULL;
                held[r][u] = there ? __ldcs((const uint2 *)(packed[r].row + offset)) : make_uint2(0, 0);
                scale[r][u] = there ? syc_unit_scale(c, packed[r].record, at) : 0;
            }
            const bool second = v >= rope;
            const u8 *const row = second ? packed[1].row : packed[0].row;
            whole[u] = v < ROWS * rope && row != NULL ? __ldcs((const uint4 *)(row + c.rope_off) + (second ? v - rope : v)) : make_uint4(0, 0, 0, 0);
        }
        if (first == lane) {
            syc_wait_for_previous();
            if (!syc_all_clear(gate, syc_sees_fault(gate)))
                return;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 v = first + u * 32;
            if (v < units.codes) {
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    if (packed[r].dense != NULL)
                        syc_unpack_unit<T>(c.code, held[r][u], syi_kv_scale_from(&c, scale[r][u])).store(packed[r].dense, v);
            }
            const bool second = v >= rope;
            u8 *const dense = second ? packed[1].dense : packed[0].dense;
            if (v < ROWS * rope && dense != NULL)
                syc_unpack_rope<T>(whole[u]).store(dense, units.codes + (second ? v - rope : v));
        }
    }
}

/* ---- Packing -------------------------------------------------------------------------------------------------------- */

/*
 * x / w for a scale w that was made for a group with x, between 2^-40 and 2^40; r is 1 / w, rounded. The first correction
 * leaves an error below one unit of the last place, then the remainder is exact, and the second gives the quotient as division
 * rounds it; for the 8 bits of a bf16 the first one does: all 2^7 significands of x and 2^23 of w were compared. Zeros keep their signs.
 * Where the remainder could underflow, x is below 2^-70, and any small number is right: its code is zero.
 */
template <sy_type T> static __device__ __forceinline__ float syc_quotient_of(float x, float w, float r)
{
    float q = __fmul_rn(x, r);
    if (T != SY_TYPE_BF16)
        q = __fmaf_rn(__fmaf_rn(q, w, -x), -r, q);
    return __fmaf_rn(__fmaf_rn(q, w, -x), -r, q);
}

/* The larger of a magnitude and that of b; NaN where one is. */
static __device__ __forceinline__ float syc_larger(float a, float b)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    b = fabsf(b);
    return a != a ? a : b > a || b != b ? b : a;
#else
    float larger;
    asm("{ .reg .f32 m; abs.f32 m, %2; max.NaN.f32 %0, %1, m; }" : "=f"(larger) : "f"(a), "f"(b)); /* one instruction */
    return larger;
#endif
}

/* Two codes of numbers that are not NaN; the first in the lower byte. */
static __device__ __forceinline__ u32 syc_two_codes(enum syi_code code, float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    u16 codes;
    if (code == SYI_CODE_E4M3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
#else
    return syi_f32_to_code(code, low) | (u32)syi_f32_to_code(code, high) << 8;
#endif
}

/* Four numbers divided by a scale that was made for them, all finite; r is 1 / w, rounded. */
template <sy_type T, enum syi_code C> static __device__ __forceinline__ u32 syc_pack_four(const float *x, float w, float r)
{
    float q[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        q[j] = syc_quotient_of<T>(x[j], w, r);
    if constexpr (C == SYI_CODE_I8) { /* none is past 127; from 1.5 * 2^23 on an f32 has no bits below one */
        u32 b[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            b[j] = __float_as_uint(__fadd_rn(q[j], 0x1.8p23f));
        return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
    } else {
        return __byte_perm(syc_two_codes(C, q[0], q[1]), syc_two_codes(C, q[2], q[3]), 0x5410);
    }
}

/*
 * Four codes of int8 of bf16 numbers: the integers next to x * r. A quotient of numbers of eight bits that is not itself in the middle
 * of two integers is farther from it than both roundings of the product are wide, by a factor of 64. In the middle are half of the
 * largest magnitude, for which syc_near_reciprocal makes r, and, where the largest is 127 times a power of two, quotients that
 * are exact, as r is.
 */
static __device__ __forceinline__ u32 syc_pack_near(const float *x, float r)
{
    u32 b[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        b[j] = __float_as_uint(__fmaf_rn(x[j], r, 0x1.8p23f)); /* no bits below one */
    return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
}

/* 1 / w, or the number next to it with which half of the largest magnitude becomes the integer that its quotient has. */
static __device__ __forceinline__ float syc_near_reciprocal(float largest, float w, float r)
{
    const float half = __fmul_rn(largest, 0.5f);
    const u32 right = __float_as_uint(__fadd_rn(syc_quotient_of<SY_TYPE_F32>(half, w, r), 0x1.8p23f));
    return __uint_as_float(__float_as_uint(r) + (right - __float_as_uint(__fmaf_rn(half, r, 0x1.8p23f))));
}

/* Any numbers and scales. */
SYC_COLD u32 syc_pack_any_four(enum syi_code code, float a, float b, float c, float d, float w)
{
    return syi_f32_to_code(code, __fdiv_rn(a, w)) | (u32)syi_f32_to_code(code, __fdiv_rn(b, w)) << 8 |
           (u32)syi_f32_to_code(code, __fdiv_rn(c, w)) << 16 | (u32)syi_f32_to_code(code, __fdiv_rn(d, w)) << 24;
}

/* The largest magnitude that is not NaN. */
static __device__ __forceinline__ u32 syc_most(const float (&x)[SYC_PACK_UNIT])
{
    u32 most = 0;
#pragma unroll
    for (int j = 0; j < SYC_PACK_UNIT; j++)
        most = max(most, (u32)syi_kv_magnitude(x[j]));
    return most;
}

/* Of lanes with one scale, a power of two. */
static __device__ __forceinline__ u32 syc_most_of_span(u32 most, u32 span)
{
#pragma unroll
    for (u32 d = 1; d < 32; d *= 2)
        if (d < span)
            most = max(most, __shfl_xor_sync(SYC_ALL_LANES, most, (int)d));
    return most;
}

/* Sixteen numbers of a dense row. */
template <sy_type T> struct syc_sixteen {
    struct syc_eight<T> half[2];

    static __device__ __forceinline__ struct syc_sixteen load(const u8 *dense, u32 unit)
    {
        return {{syc_eight<T>::load(dense, 2 * unit), syc_eight<T>::load(dense, 2 * unit + 1)}};
    }
    __device__ __forceinline__ void widen(float (&x)[SYC_PACK_UNIT]) const
    {
        float part[SYC_UNIT];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            half[h].widen(part);
            memcpy(x + h * SYC_UNIT, part, sizeof part);
        }
    }
};

/* Scales of more units than lanes, or of a number of them that is no power of two; the 32 lanes of a warp call it. */
template <sy_type T>
static __device__ __forceinline__ void syc_make_scales(const struct syi_kv_codec &c, const struct syc_units &units, u8 *record, const u8 *dense)
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
static __device__ __forceinline__ void syc_store_codes(u8 *to, bool wide, const u32 (&q)[4])
{
    if (wide) {
        __stcs((uint4 *)to, make_uint4(q[0], q[1], q[2], q[3]));
    } else {
        __stcs((uint2 *)to, make_uint2(q[0], q[1]));
        __stcs((uint2 *)to + 1, make_uint2(q[2], q[3]));
    }
}

/* Unit v of a row, whose codes go to `to`; the 32 lanes of a warp call it. */
template <sy_type T, enum syi_code C>
static __device__ __forceinline__ void syc_pack_unit(const struct syi_kv_codec &c, const struct syc_units &units, u8 *to, u8 *record, u32 v,
                                                     const float (&x)[SYC_PACK_UNIT])
{
    const u32 infinity = 0x7f800000u;
    struct syi_kv_codec known = {}; /* what scales depend on */
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
    const u32 at = syc_divide(v, units.scale), bits = units.span > 0 ? syi_kv_scale_bits(&known, most) : syc_unit_scale(c, record, at);
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
        if (T == SY_TYPE_BF16 && C == SYI_CODE_I8 && units.span > 0 && (c.e8m0 || largest > 1e-8f)) { /* the scale is that of the largest */
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

#endif
