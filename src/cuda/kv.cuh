/*
 * Positions of sequences to slots of a paged cache, and rows between slots and dense rows: what the kv_* operators share on
 * a device. The numbers and the order of faults are those of src/cpu/kv_pages.c.
 */
#ifndef SYC_KV_CUH
#define SYC_KV_CUH

#include "cuda/load.cuh"
#include "cuda/rows.cuh"

static __device__ __forceinline__ bool syc_present(const struct syi_column &column) { return column.rows.data != NULL; }

static __device__ __forceinline__ bool syc_kv_lists(const struct syi_kv_table &table) { return syc_present(table.indptr); }

static __device__ __forceinline__ int64_t syc_kv_block(const struct syi_kv_pool &pool, int64_t t)
{
    if (pool.block_shift >= 0)
        return t >> pool.block_shift;
    if (pool.block_magic != 0 && t <= UINT32_MAX)
        return (int64_t)__umul64hi(pool.block_magic, (u64)t);
    return t / pool.block_size;
}

static __device__ __forceinline__ void syc_kv_set(struct syi_found *f, enum syi_bad bad, int64_t value, int64_t limit)
{
    f->bad = (int32_t)bad;
    f->field = 0;
    f->value = value;
    f->limit = limit;
    f->extra = 0;
}

/* What holds for all positions of a sequence. */
struct syc_kv_sequence {
    const u8 *table;
    int64_t columns; /* entries of `table` */
    int64_t live;    /* positions from here on are padding */
    int64_t length;  /* tokens */
};

/* Of row r of the table, or list r. Lists that are not valid are empty: they are reported by another item. */
static __device__ __forceinline__ struct syc_kv_sequence syc_kv_row_at(const struct syi_kv_pages &p, int64_t r)
{
    struct syc_kv_sequence s = {NULL, 0, 0, 0};
    if (r < 0 || r >= p.table.rows || p.table.len == 0)
        return s;
    if (!syc_kv_lists(p.table)) {
        s.table = syc_row(p.table.entries, r);
        s.columns = p.table.len;
        s.length = p.table.len * p.pool.block_size;
        return s;
    }
    const int64_t begin = syc_column_int(p.table.indptr, r), end = syc_column_int(p.table.indptr, r + 1);
    if (begin < 0 || end <= begin || end > p.table.len)
        return s;
    s.table = p.table.entries.data + begin * (p.table.type == SY_TYPE_I32 ? 4 : 8);
    s.columns = end - begin;
    s.length = s.columns * p.pool.block_size;
    if (syc_present(p.table.last_page_len))
        s.length -= p.pool.block_size - syc_column_int(p.table.last_page_len, r);
    return s;
}

static __device__ __forceinline__ struct syc_kv_sequence syc_kv_sequence_at(const struct syi_kv_pages &p, int64_t b)
{
    struct syc_kv_sequence s = syc_kv_row_at(p, syc_present(p.req_id) ? syc_column_int(p.req_id, b) : b);
    s.live = syc_present(p.counts) ? syc_column_int(p.counts, b) : p.k;
    if (syc_present(p.seq_lens))
        s.length = syc_column_int(p.seq_lens, b);
    return s;
}

/* ---- Items of a validation ---------------------------------------------------------------------------------------- */

static __device__ __forceinline__ int64_t syc_kv_list_items(const struct syi_kv_pages &p)
{
    return p.table.indptr.rows.data != NULL ? p.table.rows + 1 : 0;
}

/* Entry r of indptr, then the last page of list r - 1. */
static __device__ bool syc_kv_bad_list(const struct syi_kv_pages &p, int64_t r, struct syi_found *f)
{
    const int64_t at = syc_column_int(p.table.indptr, r), before = r > 0 ? syc_column_int(p.table.indptr, r - 1) : 0;
    f->batch = r;
    f->position = -1;
    if (at < before)
        syc_kv_set(f, SYI_BAD_KV_INDPTR_BACK, at, before);
    else if (at > p.table.len)
        syc_kv_set(f, SYI_BAD_KV_INDPTR_HIGH, at, p.table.len);
    else if (r > 0 && at > before && syc_present(p.table.last_page_len)) {
        const int64_t last = syc_column_int(p.table.last_page_len, r - 1);
        f->batch = r - 1;
        if (last < 1)
            syc_kv_set(f, SYI_BAD_KV_LAST_PAGE_LOW, last, 1);
        else if (last > p.pool.block_size)
            syc_kv_set(f, SYI_BAD_KV_LAST_PAGE_HIGH, last, p.pool.block_size);
        else
            return false;
    } else
        return false;
    return true;
}

/* Count, length and table row of sequence b. */
static __device__ bool syc_kv_bad_sequence(const struct syi_kv_pages &p, int64_t b, struct syi_found *f)
{
    const int64_t count = syc_present(p.counts) ? syc_column_int(p.counts, b) : 0;
    const int64_t length = syc_present(p.seq_lens) ? syc_column_int(p.seq_lens, b) : 0;
    const int64_t request = syc_present(p.req_id) ? syc_column_int(p.req_id, b) : 0;
    f->batch = b;
    f->position = -1;
    if (count < 0 || count > p.k)
        syc_kv_set(f, count < 0 && p.k == 0 ? SYI_BAD_KV_COUNT_NEGATIVE : SYI_BAD_KV_COUNT, count, p.k);
    else if (length < 0)
        syc_kv_set(f, SYI_BAD_KV_LENGTH, length, 0);
    else if (syc_present(p.req_id) && (request < 0 || request >= p.table.rows))
        syc_kv_set(f, syc_kv_lists(p.table) ? SYI_BAD_KV_P_REQUEST : SYI_BAD_KV_REQUEST, request, p.table.rows);
    else
        return false;
    return true;
}

/* Which token of this rank's share token t is; -1: another rank's. */
static __device__ int64_t syc_own_token(const struct syi_kv_share &share, int64_t t)
{
    const int64_t run = t / share.run;
    return run % share.world == share.rank ? run / share.world * share.run + t % share.run : -1;
}

/* The token of all ranks that is number `own` of this rank's share; saturates. */
static __device__ int64_t syc_shared_token(const struct syi_kv_share &share, int64_t own)
{
    const __int128 t = ((__int128)(own / share.run) * share.world + share.rank) * share.run + own % share.run;
    return t > INT64_MAX ? INT64_MAX : (int64_t)t;
}

/* The slot of token t of a sequence; -1: padding, another rank's, or, with f->bad set, a fault. */
static __device__ __forceinline__ int64_t syc_kv_slot(const struct syi_kv_pages &p, const struct syc_kv_sequence &s,
                                                      int64_t t, struct syi_found *f)
{
    f->bad = SYI_GOOD;
    if (t == -1 && p.pad != SY_PAD_ERROR)
        return -1;
    int64_t own = t, length = s.length, limit = s.length, compared = t;
    if (p.share.world > 1 && t >= 0) { /* seq_lens counts the tokens of all ranks, a table or a list those of this one */
        own = syc_own_token(p.share, t);
        compared = syc_present(p.seq_lens) ? t : own;
    }
    if (p.share.world > 1 && !syc_present(p.seq_lens))
        limit = syc_shared_token(p.share, s.length);
    if (t < 0 || compared >= length) {
        syc_kv_set(f, SYI_BAD_KV_INDEX, t, limit);
        return -1;
    }
    if (own < 0)
        return -1;
    const bool lists = syc_kv_lists(p.table);
    const int64_t column = syc_kv_block(p.pool, own);
    if (column >= s.columns) {
        syc_kv_set(f, lists ? SYI_BAD_KV_P_TABLE_SHORT : SYI_BAD_KV_TABLE_SHORT, column, s.columns);
        return -1;
    }
    const int64_t block = syc_index(s.table, column, p.table.type);
    if (block < 0 || block >= p.pool.n_blocks) {
        syc_kv_set(f, lists ? SYI_BAD_KV_P_BLOCK : SYI_BAD_KV_BLOCK, block, p.pool.n_blocks);
        return -1;
    }
    const int64_t row = block * p.pool.block_size + (own - column * p.pool.block_size);
    if (row < p.pool.n_rows)
        return row;
    syc_kv_set(f, lists ? SYI_BAD_KV_P_ROW : SYI_BAD_KV_ROW, row, p.pool.n_rows);
    return -1;
}

/* Position j of sequence b. */
static __device__ __forceinline__ int64_t syc_kv_slot_at(const struct syi_kv_pages &p, int64_t b, int64_t j, struct syi_found *f)
{
    const struct syc_kv_sequence s = syc_kv_sequence_at(p, b);
    f->bad = SYI_GOOD;
    f->batch = b;
    f->position = j;
    if (j >= s.live)
        return -1;
    return syc_kv_slot(p, s, syc_index(syc_row(p.indices, b), j, p.index_type), f);
}

/* Lists, then sequences, then positions: a check for syc_validate. */
struct syc_kv_positions {
    int64_t n;
    int64_t lists, batch;
    struct syi_kv_pages pages;
    struct syc_split by_k;

    __device__ bool fault(int64_t i, struct syi_found *f) const
    {
        if (i < lists)
            return syc_kv_bad_list(pages, i, f);
        if ((i -= lists) < batch)
            return syc_kv_bad_sequence(pages, i, f);
        i -= batch;
        const int64_t b = syc_quotient(i, by_k);
        syc_kv_slot_at(pages, b, i - b * pages.k, f);
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
    const int64_t block = syc_kv_block(pool, slot);
    return base + block * block_stride + (slot - block * pool.block_size) * row_stride;
}

#endif
