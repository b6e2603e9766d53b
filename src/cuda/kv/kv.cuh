/*
 * Positions of sequences to slots of a paged cache, and rows between slots and dense rows: what the kv_*
 * operators share on a device.
 */
#pragma once

#include "plan/kv_math.h"
#include "cuda/prim/load.cuh"
#include "cuda/prim/rows.cuh"

SYC_INLINE void syc_kv_set(syi_found *f, syi_bad bad, int64_t value, int64_t limit)
{
    f->bad = (int32_t)bad;
    f->field = 0;
    f->value = value;
    f->limit = limit;
    f->extra = 0;
    f->device = 0;
}

/* Position j of sequence b. */
SYC_INLINE int64_t syc_kv_slot_at(const syi_kv_pages &p, int64_t b, int64_t j, syi_found *f)
{
    const syi_kv_sequence s = syi_kv_sequence_of(&p, b);
    f->bad = SYI_GOOD;
    const int64_t slot =
        j < s.live ? syi_kv_slot_of(&p, &s, syi_load_index(syi_row_at(p.indices, b), j, p.index_type), f)
                   : -1;
    f->batch = b;
    f->position = j;
    return slot;
}

/* Lists, then sequences, then positions: a check for syc_validate. */
struct syc_kv_positions {
    int64_t n;
    int64_t lists, batch;
    syi_kv_pages pages;
    syc_split by_k;

    __device__ bool fault(int64_t i, syi_found *f) const
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
        syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }
};

static inline syc_kv_positions syc_kv_positions_of(const syi_kv_pages *p)
{
    const int64_t lists = p->table.indptr.rows.data != NULL ? p->table.rows + 1 : 0;
    const int64_t n = lists + p->batch + p->batch * p->k;
    return {n, lists, p->batch, *p, syc_split_by(p->k, n)};
}

/*
 * The usual table: of int32, without lists, lengths, requests and shares of ranks, tokens below 2^31 and
 * slots below 2^32, so that few numbers are looked at. A fault is described by the functions above.
 */
struct syc_kv_usual {
    const u8 *table;
    int64_t stride;
    syc_divisor by_size;
    u32 reach, n_blocks, n_rows; /* tokens of a sequence; of the cache */
    bool pads;

    /* Of token t in row r of the table; -1: padding; -2: a fault. Without branches, so that the loads of
       several tokens are on their way together. */
    __device__ __forceinline__ int64_t slot_of(u32 r, int32_t t) const
    {
        const bool in = (u32)t < reach;
        const u32 token = in ? (u32)t : 0, column = syc_divide(token, by_size),
                  block = ((const u32 *)(table + r * stride))[column];
        const u32 row = block * by_size.d + (token - column * by_size.d);
        return in && block < n_blocks && row < n_rows ? (int64_t)row : pads && t == -1 ? -1 : -2;
    }
};

static inline bool syc_kv_below(int64_t a, int64_t b)
{
    return a > 0 && b > 0 && a <= INT32_MAX / b;
}

static inline bool syc_kv_is_usual(const syi_kv_pages *p)
{
    const u64 bits = (u64)(uintptr_t)p->table.entries.data | (u64)p->table.entries.stride;
    return !syi_kv_lists(&p->table) && !syi_present(&p->req_id) && !syi_present(&p->counts) &&
           !syi_present(&p->seq_lens) && p->share.world <= 1 && p->table.type == SY_TYPE_I32 &&
           bits % 4 == 0 && syc_kv_below(p->table.len, p->pool.block_size) &&
           p->pool.n_blocks <= (int64_t)(UINT32_MAX / (u64)p->pool.block_size);
}

static inline syc_kv_usual syc_kv_usual_of(const syi_kv_pages *p)
{
    return {p->table.entries.data,
            p->table.entries.stride,
            syc_divisor_of((u32)p->pool.block_size),
            (u32)(p->table.len * p->pool.block_size),
            (u32)p->pool.n_blocks,
            (u32)p->pool.n_rows,
            p->pad != SY_PAD_ERROR};
}
