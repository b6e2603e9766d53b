/*
 * Checks of paged caches. The cache is the one tensor whose first two dimensions may both be strided.
 */
#include "ops/kv.h"

bool syi_kv_product(const DLTensor *t, int first, int end, int64_t *n)
{
    *n = 1;
    for (int d = first; d < end; d++)
        if (!syi_mul(*n, t->shape[d], n))
            return false;
    return true;
}

/* ---- A cache ----------------------------------------------------------------------------------------- */

/* Dimensions before a cache row: [rows] or [blocks, block_size]. */
static int cache_lead(const DLTensor *cache)
{
    return cache->ndim == 2 ? 1 : 2;
}

sy_status syi_kv_check_row(struct syi_call *call, int cache)
{
    const DLTensor *t = call->tensor[cache];
    for (int d = cache_lead(t); d < t->ndim; d++)
        if (t->shape[d] == 0) {
            const sy_fault fault =
                syi_value_fault(SY_ERR_SHAPE, SY_FAULT_EMPTY, call->op->rules[cache].name, 0, 1);
            return syi_fail_at(call->ctx, &fault,
                               "has extent 0 in dimension %d, want rows of at least one element", d);
        }
    return SY_OK;
}

sy_status syi_kv_check_block_size(struct syi_call *call, int64_t block_size)
{
    if (block_size >= 1)
        return SY_OK;
    const sy_fault fault =
        syi_value_fault(SY_ERR_VALUE, SY_FAULT_BAD_BLOCK_SIZE, "block_size", block_size, 1);
    return syi_fail_at(call->ctx, &fault, "is %lld, want 1 or more", (long long)block_size);
}

sy_status syi_kv_check_blocks(struct syi_call *call, int cache, int64_t block_size)
{
    const DLTensor *t = call->tensor[cache];
    const sy_status st = syi_kv_check_block_size(call, block_size);
    if (st == SY_OK && cache_lead(t) == 2 && t->shape[1] != block_size)
        return syi_fail(call->ctx, SY_ERR_SHAPE, call->op->rules[cache].name,
                        "has blocks of %lld rows, want block_size %lld (a flat cache has rank 2)",
                        (long long)t->shape[1], (long long)block_size);
    return st;
}

static sy_status number_blocks(struct syi_call *call, int64_t n_blocks, int64_t block_size,
                               struct syi_kv_pool *pool)
{
    const uint64_t size = (uint64_t)block_size;
    pool->block_size = block_size;
    pool->block_shift = (size & (size - 1)) == 0 ? __builtin_ctzll(size) : -1;
    pool->block_magic = size > 1 && size <= UINT32_MAX ? UINT64_MAX / size + 1 : 0;
    pool->n_blocks = n_blocks;
    if (syi_mul(n_blocks, block_size, &pool->n_rows))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_OVERFLOW, "block_size",
                    "is %lld for %lld blocks, want fewer than 2^63 rows", (long long)block_size,
                    (long long)n_blocks);
}

sy_status syi_kv_number_rows(struct syi_call *call, int64_t n_rows, int64_t block_size,
                             struct syi_kv_pool *pool)
{
    const int64_t n_blocks = n_rows / block_size + (n_rows % block_size != 0);
    const sy_status st = number_blocks(call, n_blocks, block_size, pool);
    pool->n_rows = n_rows;
    return st;
}

sy_status syi_kv_check_pool(struct syi_call *call, int cache, int64_t block_size, struct syi_kv_pool *pool)
{
    const DLTensor *t = call->tensor[cache];
    if (cache_lead(t) == 1)
        return syi_kv_number_rows(call, t->shape[0], block_size, pool);
    return number_blocks(call, t->shape[1] > 0 ? t->shape[0] : 0, block_size, pool);
}

sy_status syi_kv_check_volume(struct syi_call *call, int cache, int many, int dense, int64_t n,
                              struct syi_kv_plane *plane)
{
    const DLTensor *t = call->tensor[cache];
    int64_t row_bytes, bytes;
    if (n >= INT64_C(1) << 32)
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, call->op->rules[many].name,
                        "has %lld positions, want fewer than 2^32", (long long)n);
    if (!syi_kv_product(t, cache_lead(t), t->ndim, &row_bytes) ||
        !syi_mul(row_bytes, (int64_t)syi_elem_bytes(t->dtype), &row_bytes) || !syi_mul(n, row_bytes, &bytes))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, call->op->rules[dense].name,
                        "would have more than 2^63-1 bytes");
    plane->row_bytes = (size_t)row_bytes;
    return SY_OK;
}

sy_status syi_kv_check_dense(struct syi_call *call, int cache, int many, int dense)
{
    const DLTensor *t = call->tensor[cache], *outer = call->tensor[many];
    const int lead = cache_lead(t), tail = t->ndim - lead;
    int64_t shape[2 * SYI_MAX_RANK];
    for (int d = 0; d < outer->ndim; d++)
        shape[d] = outer->shape[d];
    for (int d = 0; d < tail; d++)
        shape[outer->ndim + d] = t->shape[lead + d];
    call->tail[dense] = tail;
    return syi_check_shape(call, dense, outer->ndim + tail, shape);
}

sy_status syi_kv_check_strides(struct syi_call *call, int cache, const struct syi_kv_pool *pool,
                               struct syi_kv_plane *plane)
{
    const DLTensor *t = call->tensor[cache];
    const char *name = call->op->rules[cache].name;
    const int64_t elem_bytes = (int64_t)syi_elem_bytes(t->dtype);
    const int lead = cache_lead(t);
    int64_t row_elems = 0;
    if (pool->n_rows == 0)
        return SY_OK; /* no row exists; every live index fails on its block */
    sy_status st = syi_check_row(call, cache, t->ndim - lead, &row_elems);
    /* The stride of a dimension of one element means nothing and may be anything. */
    const int64_t row_stride = t->shape[lead - 1] > 1 ? syi_stride(t, lead - 1) : row_elems;
    if (st == SY_OK)
        st = syi_check_step(call, name, "row", row_stride, row_elems);
    if (st != SY_OK)
        return st;
    plane->row_stride = row_stride * elem_bytes;
    if (lead == 1) {
        /* When this product does not fit there is one block, and block 0 needs no stride. */
        if (!syi_mul(pool->block_size, plane->row_stride, &plane->block_stride))
            plane->block_stride = 0;
        return SY_OK;
    }
    const int64_t reach = (t->shape[1] - 1) * row_stride + row_elems;
    const int64_t block_stride = t->shape[0] > 1 ? syi_stride(t, 0) : reach;
    plane->block_stride = block_stride < reach ? 0 : block_stride * elem_bytes;
    return syi_check_step(call, name, "block", block_stride, reach);
}

/* ---- Positions --------------------------------------------------------------------------------------- */

int64_t syi_kv_table_rows(const DLTensor *table)
{
    return table->ndim == 2 ? table->shape[0] : 1;
}

sy_status syi_kv_check_pages(struct syi_call *call, const struct syi_kv_page_rules *rules)
{
    const DLTensor *indices = call->tensor[rules->indices], *table = call->tensor[rules->table];
    int64_t batch;
    if (!syi_kv_product(indices, 0, indices->ndim - 1, &batch))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "indices", "has more than 2^63-1 rows");
    sy_status st = syi_check_vector(call, rules->req_id, batch);
    if (st == SY_OK)
        st = syi_check_vector(call, rules->counts, batch);
    if (st == SY_OK)
        st = syi_check_vector(call, rules->seq_lens, batch);
    if (st == SY_OK && call->tensor[rules->req_id] == NULL && syi_kv_table_rows(table) != batch)
        return syi_fail(call->ctx, SY_ERR_SHAPE, "block_table",
                        "has %lld rows, want %lld, one for each row of indices (or give req_id)",
                        (long long)syi_kv_table_rows(table), (long long)batch);
    return st;
}

sy_status syi_kv_check_positions(struct syi_call *call, const struct syi_kv_page_rules *rules,
                                 int64_t block_size, struct syi_kv_pages *pages)
{
    const DLTensor *indices = call->tensor[rules->indices], *table = call->tensor[rules->table];
    int64_t n;
    if (!syi_kv_product(indices, 0, indices->ndim - 1, &pages->batch))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, call->op->rules[rules->indices].name,
                        "has more than 2^63-1 rows");
    pages->k = indices->shape[indices->ndim - 1];
    pages->table_rows = syi_kv_table_rows(table);
    pages->table_len = table->shape[table->ndim - 1];
    if (!syi_mul(pages->table_len, block_size, &n))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "block_table",
                        "has %lld columns of %lld tokens, want fewer than 2^63 tokens",
                        (long long)pages->table_len, (long long)block_size);
    if (!syi_mul(pages->batch, pages->k, &n) || n >= INT64_C(1) << 32)
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, call->op->rules[rules->indices].name,
                        "has %lld rows of %lld, want fewer than 2^32 positions", (long long)pages->batch,
                        (long long)pages->k);
    return SY_OK;
}

static struct syi_column column_at(const struct syi_call *call, int i)
{
    return i >= 0 ? syi_column_of(call, i) : (struct syi_column){{NULL, 0}, SYI_OTHER};
}

void syi_kv_view_pages(const struct syi_call *call, const struct syi_kv_page_rules *rules, sy_kv_pad pad,
                       struct syi_kv_pages *pages)
{
    pages->indices = syi_rows_of(call, rules->indices);
    pages->table = syi_rows_of(call, rules->table);
    pages->index_type = syi_type_at(call, rules->indices);
    pages->table_type = syi_type_at(call, rules->table);
    pages->req_id = column_at(call, rules->req_id);
    pages->counts = column_at(call, rules->counts);
    pages->seq_lens = column_at(call, rules->seq_lens);
    pages->pad = pad;
}

/* ---- Slots as numbers -------------------------------------------------------------------------------- */

/* Slots that int32 can name. */
static const int64_t narrow_slots = (int64_t)INT32_MAX + 1;

sy_status syi_kv_check_num_rows(struct syi_call *call, int slots, int64_t num_rows)
{
    if (syi_type_at(call, slots) != SYI_I32 || num_rows <= narrow_slots)
        return syi_check_value(call, "num_rows", num_rows, 0, INT64_MAX);
    const sy_fault fault = syi_value_fault(SY_ERR_VALUE, SY_FAULT_NONE, "num_rows", num_rows, narrow_slots);
    return syi_fail_at(call->ctx, &fault, "is %lld, want at most %lld: slots is i32", (long long)num_rows,
                       (long long)narrow_slots);
}

sy_status syi_kv_number_slots(struct syi_call *call, int slots, int64_t num_rows, int64_t block_size,
                              struct syi_kv_pool *pool)
{
    if (num_rows == 0)
        num_rows = syi_type_at(call, slots) == SYI_I32 ? narrow_slots : INT64_MAX / block_size * block_size;
    return syi_kv_number_rows(call, num_rows, block_size, pool);
}
