/*
 * Rows between a cache whose rows are codes and dense rows of numbers. Kernels read the slots of rows from a
 * list, so that they are compiled once for all operators, in kv_codes.cu.
 */
#pragma once

#include "plan/kv_math.h"
#include "cuda/runtime/context.cuh"
#include "cuda/prim/load.cuh"

/* Where slot s of a plane is in the cache. */
SYC_INLINE u8 *syc_kv_cached(const syi_kv_pool &pool, u8 *base, int64_t block_stride, int64_t row_stride,
                             int64_t slot)
{
    const int64_t block = syi_kv_block(&pool, slot);
    return base + block * block_stride + (slot - block * pool.block_size) * row_stride;
}

/* Where a row of codes and its scales are; NULL: nowhere. */
struct syc_packed_row {
    u8 *codes, *scales;
};

/* Dense rows and their rows in the cache. */
struct syc_packed_rows {
    const int64_t *slots; /* of each dense row, -1: none; NULL: row i has slot i */
    bool clears;          /* a dense row without a slot becomes zero */
    int64_t n;
    syi_kv_plane plane;
    syi_kv_pool pool;

    /* What a kernel before has listed: only after syc_wait_for_previous. */
    __device__ __forceinline__ syc_packed_row packed(int64_t i) const
    {
        const syi_kv_codec &c = plane.codec;
        const int64_t slot = i >= n ? -1 : slots != NULL ? __ldcg(slots + i) : i;
        if (slot < 0)
            return {NULL, NULL};
        return {syc_kv_cached(pool, plane.cache, plane.block_stride, plane.row_stride, slot),
                syc_kv_cached(pool, c.scale, c.scale_block_stride, c.scale_row_stride, slot)};
    }
    __device__ __forceinline__ u8 *dense(int64_t i) const { return syc_out_row(plane.dense, i); }
};

/* Packs all rows, or unpacks them, after the kernels before. */
void syc_kv_code(syc_call *call, const syc_packed_rows &rows, bool to_cache);

/* Reports the first global scale that is no positive number, ahead of the validation of the call. plane -1:
   the operator has no planes. */
void syc_check_global(syc_call *call, const syi_kv_codec &codec, int64_t plane);

static inline void syc_code_packed_rows(syc_call *call, const syi_quantize_rows_plan *p, bool to_cache)
{
    if (p->pool.n_rows > 0)
        syc_check_global(call, p->plane.codec, -1);
    syc_kv_code(call, {NULL, false, p->pool.n_rows, p->plane, p->pool}, to_cache);
}
