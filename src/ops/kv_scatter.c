/*
 * kv_scatter: check and plan.
 */
#include "ops/kv.h"

enum { CACHE, SRC, SLOTS, N_TENSORS };

#define FIELD(name) #name, offsetof(sy_kv_scatter_args, name)

static const struct syi_rule rules[N_TENSORS] = {
    [CACHE] = {FIELD(cache), SYI_OUT | SYI_INOUT | SYI_RAW_BYTES | SYI_OWN_STRIDES, 0, 0, 2, SYI_MAX_RANK},
    [SRC] = {FIELD(src), 0, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK},
    [SLOTS] = {FIELD(slots), 0, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK},
};

/* A flat cache has no blocks to speak of: its slots are its rows. */
static int64_t block_size_of(const DLTensor *cache)
{
    return cache->ndim > 2 && cache->shape[1] > 0 ? cache->shape[1] : 1;
}

static sy_status check_pad(struct syi_call *call)
{
    const int pad = (int)call->args.kv_scatter.pad;
    if (pad != SY_PAD_ZERO)
        return syi_check_enum(call, "pad", pad, SY_PAD_SKIP + 1, "ERROR, SKIP (ZERO has no meaning here)");
    const sy_fault fault = syi_value_fault(SY_ERR_VALUE, SY_FAULT_BAD_OPTION, "pad", pad, SY_PAD_SKIP);
    return syi_fail_at(call->ctx, &fault, "is ZERO, want ERROR or SKIP: there is no row to clear");
}

static sy_status check_inputs(struct syi_call *call)
{
    sy_status st = syi_check_tensors(call, false);
    if (st == SY_OK)
        st = syi_kv_check_row(call, CACHE);
    if (st == SY_OK)
        st = syi_kv_check_dense(call, CACHE, SLOTS, SRC);
    return st == SY_OK ? check_pad(call) : st;
}

static sy_status check_overflow(struct syi_call *call, struct syi_kv_scatter_plan *plan)
{
    const DLTensor *slots = call->tensor[SLOTS];
    sy_status st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_kv_check_pool(call, CACHE, block_size_of(call->tensor[CACHE]), &plan->pool);
    if (st == SY_OK && !syi_kv_product(slots, 0, slots->ndim, &plan->n))
        st = syi_fail(call->ctx, SY_ERR_OVERFLOW, "slots", "has more than 2^63-1 elements");
    return st == SY_OK ? syi_kv_check_volume(call, CACHE, SLOTS, SRC, plan->n, &plan->plane) : st;
}

static sy_status check(struct syi_call *call)
{
    struct syi_kv_scatter_plan *plan = &call->plan.kv_scatter;
    sy_status st = check_inputs(call);
    if (st == SY_OK)
        st = check_overflow(call, plan);
    if (st == SY_OK)
        st = syi_kv_check_strides(call, CACHE, &plan->pool, &plan->plane);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    plan->k = syi_extent(call, SLOTS, call->tensor[SLOTS]->ndim - 1);
    plan->slots = syi_rows_of(call, SLOTS);
    plan->slot_type = syi_type_at(call, SLOTS);
    plan->pad = call->args.kv_scatter.pad;
    plan->check_unique = call->args.kv_scatter.check_unique;
    plan->plane.cache = syi_data(call, CACHE);
    plan->plane.dense = syi_rows_of(call, SRC);
    call->rows = plan->n;
    call->bytes =
        (uint64_t)call->rows * (2 * plan->plane.row_bytes + syi_elem_bytes(call->tensor[SLOTS]->dtype));
    return SY_OK;
}

static const struct syi_op op = {"kv_scatter", SYI_KV_SCATTER, sizeof(sy_kv_scatter_args),
                                 N_TENSORS,    rules,          check};

sy_status sy_kv_scatter_n(sy_ctx *ctx, const sy_kv_scatter_args *args, size_t args_bytes)
{
    return syi_run(ctx, &op, args, args_bytes);
}

sy_status sy_kv_scatter_query_n(sy_ctx *ctx, const sy_kv_scatter_args *args, size_t args_bytes,
                                sy_query *query, size_t query_bytes)
{
    return syi_query(ctx, &op, args, args_bytes, query, query_bytes);
}
