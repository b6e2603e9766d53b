/*
 * Rows between slots of a cache and dense rows, plane after plane: copied, or coded where a plane is packed.
 */
#ifndef SYC_KV_ROWS_CUH
#define SYC_KV_ROWS_CUH

#include "cuda/kv.cuh"
#include "cuda/codes.cuh"

/*
 * Slots: a struct with `int64_t slot(int64_t i)`, the slot of dense row i, -1 for none, and `bool clears`: a dense row
 * without a slot becomes zero. It runs before the verdict of the validation, so it returns only slots that exist.
 */
template <class Slots, bool TO_CACHE> struct syc_kv_pieces {
    Slots slots;
    struct syi_kv_plane plane;
    struct syi_kv_pool pool;
    struct syc_split by_heads;

    __device__ struct syc_piece at(int64_t i) const
    {
        const int64_t row = plane.n_heads == 1 ? i : syc_quotient(i, by_heads), head = i - row * plane.n_heads;
        const int64_t slot = slots.slot(row);
        u8 *const dense = syc_out_row(plane.dense, row) + head * (int64_t)plane.head_bytes;
        if (slot < 0)
            return {NULL, !TO_CACHE && slots.clears ? dense : NULL};
        u8 *const cached = syc_kv_cached(pool, plane.cache, plane.block_stride, plane.row_stride, slot) + head * plane.head_stride;
        return {TO_CACHE ? dense : cached, TO_CACHE ? cached : dense};
    }
};

template <class Slots> static void syc_kv_move(struct syc_call *call, const Slots &slots, const struct syi_kv_planes *planes,
                                               int64_t n, bool to_cache)
{
    for (int64_t i = 0; i < planes->n; i++) {
        const struct syi_kv_plane *const p = &planes->at[i];
        const u64 alignment = (u64)(uintptr_t)p->cache | (u64)p->block_stride | (u64)p->row_stride | (u64)p->head_bytes |
                              (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride | (p->n_heads > 1 ? (u64)p->head_stride : 0);
        const struct syc_split by_heads = syc_split_by(p->n_heads, n * p->n_heads);
        if (p->packed)
            syc_kv_code(call, slots, *p, planes->pool, n, to_cache);
        else if (to_cache)
            syc_move_rows(call, syc_kv_pieces<Slots, true>{slots, *p, planes->pool, by_heads}, n * p->n_heads, (int64_t)p->head_bytes, alignment);
        else
            syc_move_rows(call, syc_kv_pieces<Slots, false>{slots, *p, planes->pool, by_heads}, n * p->n_heads, (int64_t)p->head_bytes, alignment);
    }
}

#endif
