/*
 * kv_gather: check and plan.
 */
#include "ops/kv.h"

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

static const struct syi_kv_page_rules page_rules = {INDICES, TABLE, REQ_ID, COUNTS, SEQ_LENS};

static sy_status check_inputs(struct syi_call *call)
{
    const sy_kv_gather_args *a = &call->args.kv_gather;
    sy_status st = syi_check_tensors(call, false);
    if (st == SY_OK)
        st = syi_kv_check_row(call, CACHE);
    if (st == SY_OK)
        st = syi_kv_check_pages(call, &page_rules);
    if (st == SY_OK)
        st = syi_kv_check_blocks(call, CACHE, a->block_size);
    if (st == SY_OK)
        st = syi_check_enum(call, "pad", (int)a->pad, SY_PAD_SKIP + 1, "ERROR, ZERO, SKIP");
    return st;
}

static sy_status check_overflow(struct syi_call *call, struct syi_kv_gather_plan *plan)
{
    const int64_t block_size = call->args.kv_gather.block_size;
    sy_status st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_kv_check_positions(call, &page_rules, block_size, &plan->pages);
    if (st == SY_OK)
        st = syi_kv_check_pool(call, CACHE, block_size, &plan->pages.pool);
    if (st == SY_OK)
        st = syi_kv_check_volume(call, CACHE, INDICES, OUT, plan->pages.batch * plan->pages.k, &plan->plane);
    return st;
}

static sy_status check(struct syi_call *call)
{
    struct syi_kv_gather_plan *plan = &call->plan.kv_gather;
    sy_status st = check_inputs(call);
    if (st == SY_OK)
        st = check_overflow(call, plan);
    if (st == SY_OK)
        st = syi_kv_check_dense(call, CACHE, INDICES, OUT);
    if (st == SY_OK)
        st = syi_kv_check_strides(call, CACHE, &plan->pages.pool, &plan->plane);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    syi_kv_view_pages(call, &page_rules, call->args.kv_gather.pad, &plan->pages);
    plan->plane.cache = syi_data(call, CACHE);
    plan->plane.dense = syi_rows_of(call, OUT);
    call->rows = plan->pages.batch * plan->pages.k;
    call->bytes =
        (uint64_t)call->rows * (2 * plan->plane.row_bytes + syi_elem_bytes(call->tensor[INDICES]->dtype));
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
