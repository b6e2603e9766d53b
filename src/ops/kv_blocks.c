/*
 * kv_blocks: check and plan. A block is contiguous bytes, whatever its rows and heads are, so caches are validated as
 * rows of whole blocks.
 */
#include "ops/kv.h"

enum { CACHE, SRC, DST, PAIRS, N_TENSORS };

#define OPERATOR kv_blocks

static const sy_field_info fields[] = {
    [CACHE] = SYI_TENSOR(cache, SY_FIELD_OUT | SY_FIELD_INOUT | SY_FIELD_OPTIONAL | SY_FIELD_ANY_BYTES, 0, 0,
                         2, SYI_MAX_RANK, "blocks ... | rows D", "blocks, or rows with block_size"),
    [SRC] = SYI_TENSOR(src, SY_FIELD_OPTIONAL | SY_FIELD_ANY_BYTES, 0, 0, 2, SYI_MAX_RANK,
                       "blocks ... | rows D", "in place of cache: where blocks come from"),
    [DST] = SYI_TENSOR(dst, SY_FIELD_OUT | SY_FIELD_INOUT | SY_FIELD_OPTIONAL | SY_FIELD_ANY_BYTES, 0, 0, 2,
                       SYI_MAX_RANK, "blocks ... | rows D", "with src: where blocks go"),
    [PAIRS] = SYI_INPUT(pairs, SYI_INDEX_TYPES, 0, 2, 2, "N 2", "source and destination of each copy"),
    SYI_SCALAR(block_size, I64, .help = "rows per block of flat caches"),
    SYI_SCALAR(planes, PLANES, .words = "cache|src dst", .help = "further caches with the same pairs"),
    SYI_SCALAR(num_planes, I64, .help = "number of further planes"),
    SYI_SCALAR(plane_bytes, SIZE, .help = "size of the struct of a plane"),
};

/* ---- The caches of a plane ---- */

/* Dimensions that lie in one piece: those of a block, and all of a flat cache. */
static int tail_of(const DLTensor *cache)
{
    return cache == NULL || cache->ndim <= 2 ? 2 : cache->ndim - 1;
}

/* A plane is a cache, or a source and a destination. */
static void take_plane(struct syi_call *call)
{
    const struct syi_plane_sets *sets = &call->sets;
    const sy_kv_blocks_args *a = &call->args.kv_blocks;
    const int from = sets->rules[0];
    sy_kv_plane plane = {.cache = from == CACHE ? a->cache : a->src, .rows = a->dst};
    if (sets->now > 0)
        plane = syi_kv_further(sets);
    call->tensor[from] = plane.cache;
    call->tensor[DST] = plane.rows;
    call->tail[from] = (uint8_t)tail_of(plane.cache);
    call->tail[DST] = (uint8_t)tail_of(plane.rows);
}

static sy_status check_given(struct syi_call *call, void *data)
{
    const int from = call->sets.rules[0];
    (void)data;
    if (call->tensor[from] == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, fields[from].name, "is missing, want a tensor");
    if (from == SRC && call->tensor[DST] == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "dst", "is missing, want a tensor");
    return SY_OK;
}

/* Null: one cache, or source and destination, of the call and of every plane. */
static sy_status check_null(struct syi_call *call)
{
    const sy_kv_blocks_args *a = &call->args.kv_blocks;
    const bool two = a->cache == NULL && (a->src != NULL || a->dst != NULL);
    if (a->cache == NULL && !two)
        return syi_fail(call->ctx, SY_ERR_NULL, "cache", "is missing, want a tensor, or src and dst");
    call->sets = (struct syi_plane_sets){.rules = {two ? SRC : CACHE, DST}, .take = take_plane};
    take_plane(call);
    SYI_TRY(syi_kv_take_more(call, (struct syi_kv_more){a->planes, a->num_planes, a->plane_bytes}));
    return syi_for_every_plane(call, check_given, NULL);
}

/* ---- Blocks ---- */

static sy_status check_block(struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    for (int d = 1; d < t->ndim; d++)
        if (t->shape[d] == 0) {
            return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_EMPTY, fields[i].name, 0, 1,
                                 "has extent 0 in dimension %d, want blocks of at least one element", d);
        }
    return SY_OK;
}

static sy_status check_blocks(struct syi_call *call, void *data)
{
    const int from = call->sets.rules[0];
    (void)data;
    SYI_TRY(check_block(call, from));
    return call->tensor[DST] != NULL ? check_block(call, DST) : SY_OK;
}

static sy_status check_form(struct syi_call *call, void *data)
{
    const bool two = call->sets.rules[0] == SRC;
    (void)data;
    if (!two && (call->tensor[DST] != NULL || call->tensor[SRC] != NULL))
        return syi_fail(call->ctx, SY_ERR_VALUE, call->tensor[DST] != NULL ? "dst" : "src",
                        "is given beside cache, want one cache, or src and dst");
    if (two && !syi_same_type(call->tensor[SRC]->dtype, call->tensor[DST]->dtype))
        return syi_fail(call->ctx, SY_ERR_DTYPE, "dst", "is of another type than src, want the same");
    return SY_OK;
}

/* A flat cache holds whole blocks of block_size rows. */
static sy_status check_flat(struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    const int64_t size = call->args.kv_blocks.block_size;
    if (t == NULL || t->ndim > 2)
        return SY_OK;
    SYI_TRY(syi_kv_check_block_size(call, size));
    if (t->shape[0] % size == 0)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_SHAPE, fields[i].name, t->shape[0], size,
                          "has %lld rows, want whole blocks of block_size %lld");
}

static sy_status check_sizes(struct syi_call *call, void *data)
{
    (void)data;
    SYI_TRY(check_flat(call, call->sets.rules[0]));
    return check_flat(call, DST);
}

static int64_t count_blocks(const struct syi_call *call, const DLTensor *t)
{
    return t->ndim == 2 ? t->shape[0] / call->args.kv_blocks.block_size : t->shape[0];
}

/* Elements of a block; false when they cannot be counted. */
static bool block_elems(const struct syi_call *call, const DLTensor *t, int64_t *n)
{
    return syi_kv_product(t, 1, t->ndim, n) &&
           (t->ndim > 2 || syi_mul(*n, call->args.kv_blocks.block_size, n));
}

/* All planes have as many blocks as the first, and both sides of one plane the same blocks. */
static sy_status check_planes(struct syi_call *call, void *data)
{
    struct syi_kv_blocks_plan *plan = data;
    const int from = call->sets.rules[0];
    const DLTensor *src = call->tensor[from], *dst = from == SRC ? call->tensor[DST] : src;
    const int64_t n_src = count_blocks(call, src), n_dst = count_blocks(call, dst);
    int64_t elems, dst_elems, bytes;
    if (!block_elems(call, src, &elems) || !block_elems(call, dst, &dst_elems) ||
        !syi_mul(elems, (int64_t)syi_elem_bytes(src->dtype), &bytes))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, fields[from].name,
                        "has blocks past 2^63-1 bytes, want fewer");
    if (elems != dst_elems)
        return syi_fail(call->ctx, SY_ERR_SHAPE, "dst", "has blocks of %lld elements, want %lld as in src",
                        (long long)dst_elems, (long long)elems);
    if (call->sets.now == 0) {
        plan->n_src = n_src;
        plan->n_dst = n_dst;
    }
    const bool wrong = n_src != plan->n_src;
    if (!wrong && n_dst == plan->n_dst)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_SHAPE, wrong ? fields[from].name : "dst",
                    "has %lld blocks, want %lld as in the first plane", (long long)(wrong ? n_src : n_dst),
                    (long long)(wrong ? plan->n_src : plan->n_dst));
}

/* ---- Views ---- */

static struct syi_rows blocks_of(const struct syi_call *call, int i, int64_t block_bytes)
{
    struct syi_rows blocks = syi_rows_of(call, i);
    if (call->tensor[i]->ndim == 2)
        blocks.stride = block_bytes;
    return blocks;
}

static sy_status view_plane(struct syi_call *call, void *data)
{
    struct syi_kv_blocks_plan *plan = data;
    const int from = call->sets.rules[0];
    int64_t elems = 0;
    block_elems(call, call->tensor[from], &elems);
    const int64_t bytes = elems * (int64_t)syi_bytes_at(call, from);
    const struct syi_rows src = blocks_of(call, from, bytes);
    call->planes[call->sets.now] =
        (struct syi_kv_plane){.cache = src.data,
                              .block_stride = src.stride,
                              .row_bytes = (size_t)bytes,
                              .dense = from == SRC ? blocks_of(call, DST, bytes) : src};
    plan->block_bytes = syi_size_add(plan->block_bytes, (size_t)bytes);
    return SY_OK;
}

static sy_status check_inputs(struct syi_call *call)
{
    const sy_kv_blocks_args *a = &call->args.kv_blocks;
    SYI_TRY(check_null(call));
    SYI_TRY(syi_check_tensors(call, false));
    SYI_TRY(syi_check_matrix(call, PAIRS, syi_extent(call, PAIRS, 0), 2));
    SYI_TRY(syi_for_every_plane(call, check_blocks, NULL));
    SYI_TRY(syi_kv_check_num_planes(call, a->num_planes));
    SYI_TRY(syi_for_every_plane(call, check_form, NULL));
    return syi_for_every_plane(call, check_sizes, NULL);
}

static sy_status check(struct syi_call *call)
{
    struct syi_kv_blocks_plan *plan = &call->plan.kv_blocks;
    SYI_TRY(check_inputs(call));
    SYI_TRY(syi_check_sizes(call));
    plan->n = syi_extent(call, PAIRS, 0);
    if (plan->n >= INT64_C(1) << 32)
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "pairs", "has %lld pairs, want fewer than 2^32",
                        (long long)plan->n);
    SYI_TRY(syi_for_every_plane(call, check_planes, plan));
    SYI_TRY(syi_check_layout(call));
    plan->one_cache = call->sets.rules[0] == CACHE;
    plan->pairs = syi_tensor_of(call, PAIRS);
    plan->n_planes = call->sets.n + 1;
    call->rows = plan->n;
    SYI_TRY(syi_take_scratch(call));
    if (call->query)
        return SY_OK;
    plan->planes = call->planes;
    syi_for_every_plane(call, view_plane, plan);
    call->bytes = (uint64_t)plan->n * (2 * plan->block_bytes + 2 * syi_bytes_at(call, PAIRS));
    return SY_OK;
}

SYI_DEFINE_OP(kv_blocks, KV_BLOCKS, "copy whole blocks of a paged KV cache, within it or to another")
