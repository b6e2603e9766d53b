/*
 * Packed rows of quantised caches to dense rows of numbers, and back: a warp per row. The arithmetic is that of
 * src/base/codes.h and src/base/kv_math.h.
 */
#ifndef SYC_CODES_CUH
#define SYC_CODES_CUH

#include "base/kv_math.h"
#include "cuda/context.cuh"
#include "cuda/load.cuh"

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

template <bool TO_CACHE, class Slots>
static void syc_kv_code(struct syc_call *call, const Slots &slots, const struct syi_kv_plane &plane, const struct syi_kv_pool &pool, int64_t n)
{
    syc_launch(&call->queue, syc_code_rows<Slots, TO_CACHE>, SYC_EARLY, (n + SYC_CODE_ROWS - 1) / SYC_CODE_ROWS, 32 * SYC_CODE_ROWS, 0,
               slots, plane, pool, n, call->gate);
}

#endif
