/*
 * Packed rows of quantised caches to dense rows of numbers, and back: a warp per row. The arithmetic is that of
 * src/base/codes.h and src/cpu/kv_codec.c.
 */
#ifndef SYC_CODES_CUH
#define SYC_CODES_CUH

#include "cuda/context.cuh"
#include "cuda/load.cuh"

static __device__ __forceinline__ float syc_decode(enum syi_code code, u8 bits)
{
    const u32 magnitude = bits & 0x7fu;
    if (code == SYI_CODE_I8)
        return (float)(int8_t)bits;
    if (code == SYI_CODE_E5M2)
        return syc_from_f16((u16)(bits << 8));
    return magnitude == 0x7fu ? __uint_as_float(0x7fc00000u)
                              : __fmul_rn(__uint_as_float((u32)(bits & 0x80u) << 24 | magnitude << 20), 0x1p120f);
}

static __device__ __forceinline__ u32 syc_round_code(u32 magnitude, u32 least, u32 mantissa_bits)
{
    const u32 own = magnitude >> 23, exponent = own > least ? own : least;
    const u32 shifter = (exponent + 23u - mantissa_bits) << 23;
    const float sum = __fadd_rn(__uint_as_float(magnitude), __uint_as_float(shifter));
    return __float_as_uint(sum) - shifter + ((exponent - least) << mantissa_bits);
}

static __device__ __forceinline__ u8 syc_encode(enum syi_code code, float value)
{
    const u32 bits = __float_as_uint(value), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    if (code == SYI_CODE_E4M3)
        return (u8)(magnitude > 0x7f800000u ? 0x7fu : syc_round_code(magnitude < 0x43e00000u ? magnitude : 0x43e00000u, 121, 3) | sign);
    if (code == SYI_CODE_E5M2)
        return (u8)(magnitude > 0x7f800000u ? 0x7eu : syc_round_code(magnitude < 0x47600000u ? magnitude : 0x47600000u, 113, 2) | sign);
    const float high = value < 127.0f ? value : 127.0f, clamped = high > -128.0f ? high : -128.0f;
    return (u8)(value == value ? __float_as_uint(__fadd_rn(clamped, 0x1.8p23f)) : 0u);
}

static __device__ __forceinline__ float syc_scale(const struct syi_kv_codec &c, const u8 *record, int64_t g)
{
    const u8 *const scales = record + c.scale_off;
    const int64_t at = g / (int64_t)c.share;
    if (!c.e8m0)
        return __uint_as_float(syc_load<u32>(scales + at * 4));
    const u32 code = scales[at];
    return __uint_as_float(code == 255 ? 0x7fc00000u : code == 0 ? 0x00400000u : code << 23);
}

static __device__ __forceinline__ int64_t syc_code_offset(const struct syi_kv_codec &c, int64_t g)
{
    const int64_t head = g / (int64_t)c.per_head;
    return (int64_t)c.q_off + head * c.head_stride + (g - head * (int64_t)c.per_head) * (int64_t)c.group;
}

static __device__ __forceinline__ sy_type syc_dense_type(const struct syi_kv_codec &c)
{
    return c.dense == SYI_FLOAT_F32 ? SY_TYPE_F32 : c.dense == SYI_FLOAT_F16 ? SY_TYPE_F16 : SY_TYPE_BF16;
}

/* All functions are called by the 32 lanes of a warp with the same row. */
static __device__ void syc_unpack(const struct syi_kv_codec &c, u8 *dense, const u8 *row, const u8 *record)
{
    const int lane = (int)threadIdx.x % 32;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, codes = (int64_t)(c.n_groups * c.group);
    for (int64_t i = lane; i < codes; i += 32) {
        const int64_t g = i / (int64_t)c.group;
        const float w = syc_scale(c, record, g), x = syc_decode(c.code, row[syc_code_offset(c, g) + (i - g * (int64_t)c.group)]);
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

/* The scale of a group's largest magnitude, whose bits are `most`; NaN was counted as 0. */
static __device__ void syc_make_scale(const struct syi_kv_codec &c, u32 most, u8 *record, int64_t at)
{
    const float amax = most < 0x7f800000u ? __uint_as_float(most) : 3.402823466e38f;
    const float largest = c.code == SYI_CODE_E4M3 ? 448.0f : c.code == SYI_CODE_E5M2 ? 57344.0f : 127.0f;
    u8 *const scales = record + c.scale_off;
    if (c.e8m0) {
        const u32 bits = __float_as_uint(__fdiv_rn(amax > 1e-4f ? amax : 1e-4f, largest));
        scales[at] = (u8)((bits >> 23) + ((bits & 0x7fffffu) != 0));
        return;
    }
    const float scale = c.code == SYI_CODE_I8 ? __fdiv_rn(amax > 1e-8f ? amax : 1e-8f, 127.0f) : __fdiv_rn(amax, largest);
    syc_store<u32>(scales + at * 4, __float_as_uint(scale > 1.17549435e-38f ? scale : 1.17549435e-38f));
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
        for (int64_t i = begin + lane; i < begin + shared && i < codes; i += 32) {
            const u32 bits = __float_as_uint(syc_load_float(dense + i * size, type)) & 0x7fffffffu;
            most = max(most, bits > 0x7f800000u ? 0u : bits);
        }
        most = __reduce_max_sync(SYC_ALL_LANES, most);
        if (lane == 0)
            syc_make_scale(c, most, record, begin / shared);
    }
    __syncwarp();
    for (int64_t i = lane; i < codes; i += 32) {
        const int64_t g = i / (int64_t)c.group;
        const float x = syc_load_float(dense + i * size, type);
        row[syc_code_offset(c, g) + (i - g * (int64_t)c.group)] = syc_encode(c.code, __fdiv_rn(x, syc_scale(c, record, g)));
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
    const int64_t slot = i < n ? slots.slot(i) : -1;
    const struct syi_kv_codec &c = plane.codec;
    if (!syc_may_write(gate) || i >= n)
        return;
    u8 *const dense = syc_out_row(plane.dense, i);
    if (slot < 0) {
        for (int64_t k = threadIdx.x % 32; k < (int64_t)c.dense_bytes && !TO_CACHE && slots.clears; k += 32)
            dense[k] = 0;
        return;
    }
    u8 *const row = syc_kv_cached(pool, plane.cache, plane.block_stride, plane.row_stride, slot);
    u8 *const record = syc_kv_cached(pool, c.scale, c.scale_block_stride, c.scale_row_stride, slot);
    if (TO_CACHE)
        syc_pack(c, row, record, dense);
    else
        syc_unpack(c, dense, row, record);
}

template <class Slots>
static void syc_kv_code(struct syc_call *call, const Slots &slots, const struct syi_kv_plane &plane, const struct syi_kv_pool &pool,
                        int64_t n, bool to_cache)
{
    const int64_t blocks = (n + SYC_CODE_ROWS - 1) / SYC_CODE_ROWS;
    if (to_cache)
        syc_launch(&call->queue, syc_code_rows<Slots, true>, SYC_EARLY, blocks, 32 * SYC_CODE_ROWS, 0, slots, plane, pool, n, call->gate);
    else
        syc_launch(&call->queue, syc_code_rows<Slots, false>, SYC_EARLY, blocks, 32 * SYC_CODE_ROWS, 0, slots, plane, pool, n, call->gate);
}

#endif
