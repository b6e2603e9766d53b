/*
 * Positions of sequences to slots of a paged cache, and rows between slots and dense rows: what the kv_* operators share on
 * a device.
 */
#ifndef SYC_KV_CUH
#define SYC_KV_CUH

#include "base/kv_math.h"
#include "cuda/load.cuh"
#include "cuda/rows.cuh"

static __device__ __forceinline__ void syc_kv_set(struct syi_found *f, enum syi_bad bad, int64_t value, int64_t limit)
{
    f->bad = (int32_t)bad;
    f->field = 0;
    f->value = value;
    f->limit = limit;
    f->extra = 0;
}

/* Position j of sequence b. */
static __device__ __forceinline__ int64_t syc_kv_slot_at(const struct syi_kv_pages &p, int64_t b, int64_t j, struct syi_found *f)
{
    const struct syi_kv_sequence s = syi_kv_sequence_of(&p, b);
    f->bad = SYI_GOOD;
    const int64_t slot = j < s.live ? syi_kv_slot_of(&p, &s, syi_load_index(syi_row(p.indices, b), j, p.index_type), f) : -1;
    f->batch = b;
    f->position = j;
    return slot;
}

/* Lists, then sequences, then positions: a check for syc_validate. */
struct syc_kv_positions {
    int64_t n;
    int64_t lists, batch;
    struct syi_kv_pages pages;
    struct syc_split by_k;

    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        const int64_t r = i - lists, flat = r - batch;
        if (i < lists || r < batch)
            *f = i < lists ? syi_kv_list_fault(&pages, i) : syi_kv_sequence_fault(&pages, r);
        else
            syc_kv_slot_at(pages, syc_quotient(flat, by_k), flat - syc_quotient(flat, by_k) * pages.k, f);
        return f->bad != SYI_GOOD;
    }
    __device__ bool wrong(int64_t i) const
    {
        struct syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, struct syi_found *f) const { fault(i, f); }
};

static inline struct syc_kv_positions syc_kv_positions_of(const struct syi_kv_pages *p)
{
    const int64_t lists = p->table.indptr.rows.data != NULL ? p->table.rows + 1 : 0;
    const int64_t n = lists + p->batch + p->batch * p->k;
    return {n, lists, p->batch, *p, syc_split_by(p->k, n)};
}

/* ---- Rows ----------------------------------------------------------------------------------------------------------- */

/* Where slot s of a plane is in the cache. */
static __device__ __forceinline__ u8 *syc_kv_cached(const struct syi_kv_pool &pool, u8 *base, int64_t block_stride,
                                                    int64_t row_stride, int64_t slot)
{
    const int64_t block = syi_kv_block(&pool, slot);
    return base + block * block_stride + (slot - block * pool.block_size) * row_stride;
}

#endif
