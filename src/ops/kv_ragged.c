/*
 * kv_ragged: check and plan.
 */
#include "ops/kv.h"

enum {
    CACHE,
    TABLE,
    CU_LENS,
    STARTS,
    REQ_ID,
    SEQ_LENS,
    PAGE_INDICES,
    INDPTR,
    LAST_PAGE_LEN,
    SCALE,
    OUT,
    N_TENSORS
};

#define FIELD(name) #name, offsetof(sy_kv_ragged_args, name)

static const struct syi_rule rules[N_TENSORS] = {
    [CACHE] = {FIELD(cache), SYI_RAW_BYTES | SYI_OWN_STRIDES, 0, 0, 2, SYI_MAX_RANK},
    SYI_KV_TABLE_RULES,
    [CU_LENS] = {FIELD(cu_lens), SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [STARTS] = {FIELD(starts), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [REQ_ID] = {FIELD(req_id), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [SEQ_LENS] = {FIELD(seq_lens), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [SCALE] = {FIELD(scale), SYI_OPTIONAL, SYI_BIT(SYI_F32), 0, 1, 3},
    [OUT] = {FIELD(out), SYI_OUT, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK},
};

static const struct syi_kv_page_rules page_rules = {
    -1, REQ_ID, -1, SEQ_LENS, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

/* cu_lens has one entry more than there are sequences. */
static sy_status check_batch(struct syi_call *call, int64_t *batch)
{
    *batch = syi_extent(call, CU_LENS, 0) - 1;
    if (*batch >= 0)
        return SY_OK;
    const sy_fault fault = syi_value_fault(SY_ERR_SHAPE, SY_FAULT_EMPTY, "cu_lens", 0, 1);
    return syi_fail_at(call->ctx, &fault,
                       "has shape [0], want an entry for each sequence and one for the end");
}

static sy_status check_inputs(struct syi_call *call, struct syi_kv_subject *subject,
                              struct syi_kv_pages *pages)
{
    const sy_kv_ragged_args *a = &call->args.kv_ragged;
    sy_status st = syi_kv_begin(call, subject, a->planes, a->num_planes);
    if (st == SY_OK)
        st = syi_kv_check_given(call, &page_rules.tables);
    if (st == SY_OK)
        st = syi_check_tensors(call, false);
    if (st == SY_OK)
        st = syi_kv_check_formats(call, subject);
    if (st == SY_OK)
        st = syi_kv_check_rows(call, subject);
    if (st == SY_OK)
        st = check_batch(call, &pages->batch);
    if (st == SY_OK)
        st = syi_kv_check_table(call, &page_rules.tables, REQ_ID, pages->batch, "sequence of cu_lens");
    if (st == SY_OK)
        st = syi_check_vector(call, STARTS, pages->batch);
    if (st == SY_OK)
        st = syi_check_vector(call, SEQ_LENS, pages->batch);
    if (st == SY_OK)
        st = syi_kv_check_page_form(call, &page_rules);
    if (st == SY_OK)
        st = syi_kv_check_layout(call, a->layout);
    if (st == SY_OK)
        st = syi_kv_check_num_planes(call, a->num_planes);
    if (st == SY_OK)
        st = syi_kv_check_block_size(call, a->block_size);
    return st == SY_OK ? syi_kv_check_blocks(call, subject) : st;
}

static sy_status check_overflow(struct syi_call *call, struct syi_kv_subject *subject,
                                struct syi_kv_pages *pages)
{
    sy_status st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_kv_count_table(call, &page_rules.tables, subject->block_size, &pages->table);
    if (st == SY_OK)
        st = syi_kv_check_pool(call, subject);
    subject->n = syi_extent(call, OUT, 0); /* any number, or 0 in a query */
    return st == SY_OK ? syi_kv_check_volume(call, subject) : st;
}

static sy_status check(struct syi_call *call)
{
    struct syi_kv_ragged_plan *plan = &call->plan.kv_ragged;
    struct syi_kv_pages *pages = &plan->pages;
    const sy_kv_ragged_args *a = &call->args.kv_ragged;
    struct syi_kv_subject subject = {CACHE,
                                     OUT,
                                     -1,
                                     a->block_size,
                                     0,
                                     &plan->planes,
                                     a->layout,
                                     .scale = SCALE,
                                     .format = offsetof(sy_kv_ragged_args, format)};
    sy_status st = check_inputs(call, &subject, pages);
    if (st == SY_OK)
        st = check_overflow(call, &subject, pages);
    if (st == SY_OK)
        st = syi_kv_check_dense(call, &subject);
    if (st == SY_OK)
        st = syi_kv_check_strides(call, &subject);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    syi_kv_view_table(call, &page_rules.tables, &pages->table);
    pages->pool = plan->planes.pool;
    pages->req_id = syi_column_of(call, REQ_ID);
    pages->seq_lens = syi_column_of(call, SEQ_LENS);
    plan->cu_lens = syi_column_of(call, CU_LENS);
    plan->starts = syi_column_of(call, STARTS);
    plan->n_rows = subject.n;
    call->bytes = (uint64_t)subject.n * plan->planes.slot_bytes; /* at most: cu_lens may end before out */
    return syi_kv_view_planes(call, &subject);
}

static const struct syi_op op = {"kv_ragged", SYI_KV_RAGGED, sizeof(sy_kv_ragged_args),
                                 N_TENSORS,   rules,         check};

sy_status sy_kv_ragged_n(sy_ctx *ctx, const sy_kv_ragged_args *args, size_t args_bytes)
{
    return syi_run(ctx, &op, args, args_bytes);
}

sy_status sy_kv_ragged_query_n(sy_ctx *ctx, const sy_kv_ragged_args *args, size_t args_bytes, sy_query *query,
                               size_t query_bytes)
{
    return syi_query(ctx, &op, args, args_bytes, query, query_bytes);
}
