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
    u8 *cache;
    int64_t block_stride, row_stride, head_stride, n_heads, head_bytes;
    struct syi_rows dense;
    bool flat; /* blocks follow each other without a gap */
    Slots slots;
    struct syc_split by_heads;
    struct syi_kv_pool pool;

    __device__ struct syc_piece at(int64_t i) const
    {
        const int64_t row = n_heads == 1 ? i : syc_quotient(i, by_heads), head = i - row * n_heads;
        const int64_t slot = slots.slot(row);
        u8 *const to = syc_out_row(dense, row) + head * head_bytes;
        if (slot < 0)
            return {NULL, !TO_CACHE && slots.clears ? to : NULL};
        u8 *const cached = (flat ? cache + slot * row_stride : syc_kv_cached(pool, cache, block_stride, row_stride, slot)) + head * head_stride;
        return {TO_CACHE ? to : cached, TO_CACHE ? cached : to};
    }
};

template <bool TO_CACHE, class Slots>
static struct syc_kv_pieces<Slots, TO_CACHE> syc_kv_pieces_of(const Slots &slots, const struct syi_kv_plane &p, const struct syi_kv_pool &pool, int64_t n)
{
    return {p.cache, p.block_stride, p.row_stride, p.head_stride, p.n_heads, (int64_t)p.head_bytes, p.dense,
            p.block_stride == pool.block_size * p.row_stride, slots, syc_split_by(p.n_heads, n * p.n_heads), pool};
}

template <bool TO_CACHE, class Slots>
static void syc_kv_move(struct syc_call *call, const Slots &slots, const struct syi_kv_planes *planes, int64_t n)
{
    for (int64_t i = 0; i < planes->n; i++) {
        const struct syi_kv_plane *const p = &planes->at[i];
        const u64 alignment = (u64)(uintptr_t)p->cache | (u64)p->block_stride | (u64)p->row_stride | (u64)p->head_bytes |
                              (u64)(uintptr_t)p->dense.data | (u64)p->dense.stride | (p->n_heads > 1 ? (u64)p->head_stride : 0);
        if (p->packed)
            syc_kv_code<TO_CACHE>(call, slots, *p, planes->pool, n);
        else
            syc_move_rows(call, syc_kv_pieces_of<TO_CACHE>(slots, *p, planes->pool, n), n * p->n_heads, (int64_t)p->head_bytes, alignment);
    }
}

#endif
