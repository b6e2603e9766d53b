/*
 * Rows of any packed format: a warp for each, a number per lane. kv_codes.cu takes it for rows that are not
 * aligned, and for numbers that are not finite.
 */
#pragma once

#include "plan/kv_math.h"
#include "cuda/codes/kv_codes.cuh"
#include "cuda/prim/load.cuh"

SYC_INLINE sy_type syc_dense_type(const syi_kv_codec &c)
{
    return c.dense == SYI_FLOAT_F32 ? SY_TYPE_F32 : c.dense == SYI_FLOAT_F16 ? SY_TYPE_F16 : SY_TYPE_BF16;
}

/* All functions are called by the 32 lanes of a warp with the same row. */
static __device__ void syc_unpack_inline(const syi_kv_codec &c, u8 *dense, const u8 *row)
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

static __device__ void syc_pack_inline(const syi_kv_codec &c, u8 *row, const u8 *dense)
{
    const int lane = (int)threadIdx.x % 32;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, bytes = (int64_t)syi_inline_bytes(&c);
    for (int64_t g = 0; g < (int64_t)c.n_groups; g++) {
        u8 *const to = row + g * bytes;
        const float x = syc_load_float(dense + (g * SYI_INLINE_GROUP + lane) * size, type);
        const u32 own = syi_inline_magnitude(x), most = __reduce_max_sync(SYC_ALL_LANES, own);
        const u32 same = __ballot_sync(SYC_ALL_LANES, own == most),
                  negative = __ballot_sync(SYC_ALL_LANES, (syi_f32_bits(x) >> 31) != 0);
        const u32 first = same & (0u - same),
                  sign = c.four && most > 0 && (negative & first) != 0 ? 0x80000000u : 0;
        const float scale = syi_inline_scale(c.four, syi_f32_from_bits(most | sign));
        const u32 code = syi_inline_code(c.four, __fmul_rn(x, syi_inline_factor(scale))),
                  above = __shfl_down_sync(SYC_ALL_LANES, code, 16);
        if (lane == 0)
            syc_store<u16>(to, syi_f32_to_f16(scale));
        if (!c.four || lane < 16)
            to[SYI_INLINE_SCALE + lane] = (u8)(c.four ? code | above << 4 : code);
    }
}

/* nvfp4: two groups at a time, a number per lane. */
static __device__ void syc_unpack_fp4(const syi_kv_codec &c, u8 *dense, const u8 *row, const u8 *record,
                                      int64_t i)
{
    const int lane = (int)threadIdx.x % 32, j = lane % SYI_FP4_GROUP;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2;
    const syi_fp4_scale scale = syi_fp4_scale_of(&c.global, i);
    for (int64_t g = lane / SYI_FP4_GROUP; g < (int64_t)c.n_groups; g += 2) {
        const u32 code = (u32)row[syi_fp4_offset(&c, (size_t)g) + j / 2] >> (j % 2 * 4) & 15u;
        const float x = __fmul_rn(__fmul_rn(syi_e2m1_to_f32(code), syi_e4m3_to_f32(record[g])), scale.decode);
        syc_store_float(dense + (g * SYI_FP4_GROUP + j) * size, type, syc_canonical(x));
    }
}

static __device__ void syc_pack_fp4(const syi_kv_codec &c, u8 *row, u8 *record, const u8 *dense, int64_t i)
{
    const int lane = (int)threadIdx.x % 32, j = lane % SYI_FP4_GROUP;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, n = (int64_t)c.n_groups;
    const syi_fp4_scale scale = syi_fp4_scale_of(&c.global, i);
    for (int64_t first = 0; first < n; first += 2) { /* the same for a warp */
        const int64_t g = first + lane / SYI_FP4_GROUP;
        const float x = g < n ? syc_load_float(dense + (g * SYI_FP4_GROUP + j) * size, type) : 0.0f;
        u32 most = syi_inline_magnitude(x);
#pragma unroll
        for (int step = SYI_FP4_GROUP / 2; step > 0; step /= 2)
            most = max(most, __shfl_xor_sync(SYC_ALL_LANES, most, step));
        const u8 byte = syi_fp4_byte(scale, most);
        const u32 code = syi_f32_to_e2m1(__fmul_rn(x, syi_fp4_factor(scale, byte))),
                  next = __shfl_down_sync(SYC_ALL_LANES, code, 1);
        if (g < n && j == 0)
            record[g] = byte;
        if (g < n && j % 2 == 0)
            row[syi_fp4_offset(&c, (size_t)g) + j / 2] = (u8)(code | next << 4);
    }
}

static __device__ void syc_unpack(const syi_kv_codec &c, u8 *dense, const u8 *row, const u8 *record)
{
    const int lane = (int)threadIdx.x % 32;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, codes = (int64_t)(c.n_groups * c.group);
    for (int64_t i = lane; i < codes; i += 32) {
        const int64_t g = i / (int64_t)c.group;
        const float w = syi_kv_scale(&c, record, (size_t)g),
                    x = syi_code_to_f32(c.code,
                                        row[syi_kv_code_offset(&c, (size_t)g) + (i - g * (int64_t)c.group)]);
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

static __device__ void syc_pack(const syi_kv_codec &c, u8 *row, u8 *record, const u8 *dense)
{
    const int lane = (int)threadIdx.x % 32;
    const sy_type type = syc_dense_type(c);
    const int64_t size = type == SY_TYPE_F32 ? 4 : 2, codes = (int64_t)(c.n_groups * c.group),
                  shared = (int64_t)(c.group * c.share);
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
        row[syi_kv_code_offset(&c, (size_t)g) + (i - g * (int64_t)c.group)] =
            syi_f32_to_code(c.code, __fdiv_rn(x, syi_kv_scale(&c, record, (size_t)g)));
    }
    for (int64_t i = lane; i < (int64_t)c.rope; i += 32) {
        u8 *const to = row + c.rope_off + 2 * i;
        const u8 *const from = dense + (codes + i) * size;
        syc_store<u16>(to,
                       type == SY_TYPE_BF16 ? syc_load<u16>(from) : syc_to_bf16(syc_load_float(from, type)));
    }
}

template <bool TO_CACHE>
static __device__ void syc_code_row(const syi_kv_codec &c, const syc_packed_row &row, u8 *dense, int64_t i)
{
    if (c.fp4 && TO_CACHE)
        syc_pack_fp4(c, row.codes, row.scales, dense, i);
    else if (c.fp4)
        syc_unpack_fp4(c, dense, row.codes, row.scales, i);
    else if (c.inlined && TO_CACHE)
        syc_pack_inline(c, row.codes, dense);
    else if (c.inlined)
        syc_unpack_inline(c, dense, row.codes);
    else if (TO_CACHE)
        syc_pack(c, row.codes, row.scales, dense);
    else
        syc_unpack(c, dense, row.codes, row.scales);
}

/* Without a list of slots, which comes after the validation, a call has nothing but codes, and waits for its
   inputs. */
static inline syc_start syc_start_of(const syc_packed_rows &rows)
{
    return rows.slots != NULL ? SYC_EARLY : SYC_AFTER;
}

enum { SYC_CODE_ROWS = 8 }; /* of a block */

template <bool TO_CACHE>
static __global__ void __launch_bounds__(32 * SYC_CODE_ROWS)
    syc_code_rows(const syc_packed_rows rows, const syc_gate gate)
{
    const int64_t i = (int64_t)blockIdx.x * SYC_CODE_ROWS + threadIdx.x / 32;
    if (!syc_may_write(gate) || i >= rows.n)
        return;
    const syc_packed_row row = rows.packed(i);
    u8 *const dense = rows.dense(i);
    if (row.codes != NULL)
        syc_code_row<TO_CACHE>(rows.plane.codec, row, dense, i);
    else if (!TO_CACHE && rows.clears)
        for (int64_t k = threadIdx.x % 32; k < (int64_t)rows.plane.codec.dense_bytes; k += 32)
            dense[k] = 0;
}
