/*
 * kv_gather: check and plan. The cache is the one tensor whose first two dimensions may both be strided.
 */
#include "ops/call.h"

enum { CACHE, INDICES, TABLE, REQ_ID, COUNTS, SEQ_LENS, OUT, N_TENSORS };

#define FIELD(name) #name, offsetof(sy_kv_gather_args, name)

static const struct syi_rule rules[N_TENSORS] = {
    [CACHE] = {FIELD(cache), SYI_RAW_BYTES | SYI_OWN_STRIDES, 0, 0, 2, SYI_MAX_RANK},
    [INDICES] = {FIELD(indices), 0, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK},
    [TABLE] = {FIELD(block_table), 0, SYI_INDEX_TYPES, 0, 1, 2},
    [REQ_ID] = {FIELD(req_id), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [COUNTS] = {FIELD(counts), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [SEQ_LENS] = {FIELD(seq_lens), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [OUT] = {FIELD(out), SYI_OUT, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK},
};

/* Dimensions before a cache row: [rows] or [blocks, block_size]. */
static int cache_lead(const struct syi_call *call)
{
    return call->tensor[CACHE]->ndim == 2 ? 1 : 2;
}

static bool product(const DLTensor *t, int first, int end, int64_t *n)
{
    *n = 1;
    for (int d = first; d < end; d++)
        if (!syi_mul(*n, t->shape[d], n))
            return false;
    return true;
}

static sy_status check_inputs(struct syi_call *call)
{
    sy_status st = syi_check_tensors(call, false);
    if (st != SY_OK)
        return st;
    const DLTensor *indices = call->tensor[INDICES], *table = call->tensor[TABLE],
                   *cache = call->tensor[CACHE];
    for (int d = cache_lead(call); d < cache->ndim; d++)
        if (cache->shape[d] == 0) {
            const sy_fault fault = syi_value_fault(SY_ERR_SHAPE, SY_FAULT_EMPTY, "cache", 0, 1);
            return syi_fail_at(call->ctx, &fault,
                               "has extent 0 in dimension %d, want rows of at least one element", d);
        }
    int64_t batch;
    if (!product(indices, 0, indices->ndim - 1, &batch))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "indices", "has more than 2^63-1 rows");
    for (int i = REQ_ID; st == SY_OK && i <= SEQ_LENS; i++)
        st = syi_check_vector(call, i, batch);
    const int64_t table_rows = table->ndim == 2 ? table->shape[0] : 1;
    if (st == SY_OK && call->tensor[REQ_ID] == NULL && table_rows != batch)
        return syi_fail(call->ctx, SY_ERR_SHAPE, "block_table",
                        "has %lld rows, want %lld, one for each row of indices (or give req_id)",
                        (long long)table_rows, (long long)batch);
    return st;
}

static sy_status check_values(struct syi_call *call)
{
    const sy_kv_gather_args *a = &call->args.kv_gather;
    const DLTensor *cache = call->tensor[CACHE];
    if (a->block_size < 1) {
        const sy_fault fault =
            syi_value_fault(SY_ERR_VALUE, SY_FAULT_BAD_BLOCK_SIZE, "block_size", a->block_size, 1);
        return syi_fail_at(call->ctx, &fault, "is %lld, want 1 or more", (long long)a->block_size);
    }
    if (cache_lead(call) == 2 && cache->shape[1] != a->block_size)
        return syi_fail(call->ctx, SY_ERR_SHAPE, "cache",
                        "has blocks of %lld rows, want block_size %lld (a flat cache has rank 2)",
                        (long long)cache->shape[1], (long long)a->block_size);
    return syi_check_enum(call, "pad", (int)a->pad, SY_PAD_SKIP + 1, "ERROR, ZERO, SKIP");
}

/* Sizes of the logical side, the physical side and the output. */
static sy_status check_overflow(struct syi_call *call, struct syi_kv_gather_plan *plan)
{
    const DLTensor *indices = call->tensor[INDICES], *table = call->tensor[TABLE],
                   *cache = call->tensor[CACHE];
    const int64_t size = call->args.kv_gather.block_size;
    int64_t unused, row_elems, n;
    plan->k = indices->shape[indices->ndim - 1];
    product(indices, 0, indices->ndim - 1, &plan->batch);
    plan->table_rows = table->ndim == 2 ? table->shape[0] : 1;
    plan->table_len = table->shape[table->ndim - 1];
    plan->block_size = size;
    if (!syi_mul(plan->table_len, size, &unused))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "block_table",
                        "has %lld columns of %lld tokens, want fewer than 2^63 tokens",
                        (long long)plan->table_len, (long long)size);
    const bool flat = cache_lead(call) == 1;
    plan->n_blocks = flat ? cache->shape[0] / size + (cache->shape[0] % size != 0) : cache->shape[0];
    if (!syi_mul(plan->n_blocks, size, &plan->n_cache_rows))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "block_size",
                        "is %lld for %lld blocks, want fewer than 2^63 rows", (long long)size,
                        (long long)plan->n_blocks);
    if (flat)
        plan->n_cache_rows = cache->shape[0];
    if (!syi_mul(plan->batch, plan->k, &n) || n >= INT64_C(1) << 32)
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "indices",
                        "has %lld rows of %lld, want fewer than 2^32 positions", (long long)plan->batch,
                        (long long)plan->k);
    if (!product(cache, cache_lead(call), cache->ndim, &row_elems) ||
        !syi_mul(row_elems, (int64_t)syi_elem_bytes(cache->dtype), &row_elems) ||
        !syi_mul(n, row_elems, &unused))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "out", "would have more than 2^63-1 bytes");
    plan->row_bytes = (size_t)row_elems;
    return SY_OK;
}

/* indices' dimensions, then the dimensions of a cache row. */
static sy_status check_out(struct syi_call *call)
{
    const DLTensor *indices = call->tensor[INDICES], *cache = call->tensor[CACHE];
    const int lead = cache_lead(call), tail = cache->ndim - lead;
    int64_t shape[2 * SYI_MAX_RANK];
    for (int d = 0; d < indices->ndim; d++)
        shape[d] = indices->shape[d];
    for (int d = 0; d < tail; d++)
        shape[indices->ndim + d] = cache->shape[lead + d];
    call->tail[OUT] = tail;
    return syi_check_shape(call, OUT, indices->ndim + tail, shape);
}

static sy_status check_cache_strides(struct syi_call *call, struct syi_kv_gather_plan *plan)
{
    const DLTensor *cache = call->tensor[CACHE];
    const int64_t elem_bytes = (int64_t)syi_elem_bytes(cache->dtype);
    const int lead = cache_lead(call);
    int64_t row_elems = 0;
    if (cache->shape[0] == 0)
        return SY_OK; /* no row exists; every live index fails on its block */
    sy_status st = syi_check_row(call, CACHE, cache->ndim - lead, &row_elems);
    /* The stride of a dimension of one element means nothing and may be anything. */
    const int64_t row_stride = cache->shape[lead - 1] > 1 ? syi_stride(cache, lead - 1) : row_elems;
    if (st == SY_OK)
        st = syi_check_step(call, "cache", "row", row_stride, row_elems);
    if (st != SY_OK)
        return st;
    plan->row_stride = row_stride * elem_bytes;
    if (lead == 1) {
        /* When this product does not fit there is one block, and block 0 needs no stride. */
        if (!syi_mul(plan->block_size, plan->row_stride, &plan->block_stride))
            plan->block_stride = 0;
        return SY_OK;
    }
    const int64_t reach = (cache->shape[1] - 1) * row_stride + row_elems;
    const int64_t block_stride = cache->shape[0] > 1 ? syi_stride(cache, 0) : reach;
    plan->block_stride = block_stride < reach ? 0 : block_stride * elem_bytes;
    return syi_check_step(call, "cache", "block", block_stride, reach);
}

static sy_status check(struct syi_call *call)
{
    struct syi_kv_gather_plan *plan = &call->plan.kv_gather;
    sy_status st = check_inputs(call);
    if (st == SY_OK)
        st = check_values(call);
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st == SY_OK)
        st = check_overflow(call, plan);
    if (st == SY_OK)
        st = check_out(call);
    if (st == SY_OK)
        st = check_cache_strides(call, plan);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    const uint64_t size = (uint64_t)plan->block_size;
    plan->block_shift = (size & (size - 1)) == 0 ? __builtin_ctzll(size) : -1;
    plan->block_magic = size > 1 && size <= UINT32_MAX ? UINT64_MAX / size + 1 : 0;
    plan->cache = syi_data(call, CACHE);
    plan->indices = syi_rows_of(call, INDICES);
    plan->table = syi_rows_of(call, TABLE);
    plan->out = syi_rows_of(call, OUT);
    plan->index_type = syi_type_at(call, INDICES);
    plan->table_type = syi_type_at(call, TABLE);
    plan->req_id = syi_column_of(call, REQ_ID);
    plan->counts = syi_column_of(call, COUNTS);
    plan->seq_lens = syi_column_of(call, SEQ_LENS);
    plan->pad = call->args.kv_gather.pad;
    call->rows = plan->batch * plan->k;
    call->bytes = (uint64_t)call->rows * (2 * plan->row_bytes + syi_elem_bytes(call->tensor[INDICES]->dtype));
    return SY_OK;
}

static const struct syi_op op = {"kv_gather", SYI_KV_GATHER, sizeof(sy_kv_gather_args),
                                 N_TENSORS,   rules,         check};

sy_status sy_kv_gather_n(sy_ctx *ctx, const sy_kv_gather_args *args, size_t args_bytes)
{
    return syi_run(ctx, &op, args, args_bytes);
}

sy_status sy_kv_gather_query_n(sy_ctx *ctx, const sy_kv_gather_args *args, size_t args_bytes, sy_query *query,
                               size_t query_bytes)
{
    return syi_query(ctx, &op, args, args_bytes, query, query_bytes);
}
