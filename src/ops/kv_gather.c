/*
 * kv_gather: check and plan.
 */
#include "ops/kv.h"

enum {
    CACHE,
    INDICES,
    TABLE,
    REQ_ID,
    COUNTS,
    SEQ_LENS,
    PAGE_INDICES,
    INDPTR,
    LAST_PAGE_LEN,
    SCALE,
    OUT,
    N_TENSORS
};

#define FIELD(name) #name, offsetof(sy_kv_gather_args, name)

static const struct syi_rule rules[N_TENSORS] = {
    [CACHE] = {FIELD(cache), SYI_RAW_BYTES | SYI_OWN_STRIDES, 0, 0, 2, SYI_MAX_RANK},
    [INDICES] = {FIELD(indices), 0, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK},
    SYI_KV_TABLE_RULES,
    [REQ_ID] = {FIELD(req_id), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [COUNTS] = {FIELD(counts), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [SEQ_LENS] = {FIELD(seq_lens), SYI_OPTIONAL | SYI_VECTOR, SYI_INDEX_TYPES, 0, 1, 1},
    [SCALE] = {FIELD(scale), SYI_OPTIONAL, SYI_BIT(SYI_F32), 0, 1, 3},
    [OUT] = {FIELD(out), SYI_OUT, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK},
};

static const struct syi_kv_page_rules page_rules = {
    INDICES, REQ_ID, COUNTS, SEQ_LENS, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

static sy_status check_inputs(struct syi_call *call, struct syi_kv_subject *subject)
{
    const sy_kv_gather_args *a = &call->args.kv_gather;
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
        st = syi_kv_check_pages(call, &page_rules);
    if (st == SY_OK)
        st = syi_kv_check_page_form(call, &page_rules);
    if (st == SY_OK)
        st = syi_kv_check_layout(call, a->layout);
    if (st == SY_OK)
        st = syi_kv_check_num_planes(call, a->num_planes);
    if (st == SY_OK)
        st = syi_kv_check_block_size(call, a->block_size);
    if (st == SY_OK)
        st = syi_kv_check_blocks(call, subject);
    if (st == SY_OK)
        st = syi_check_enum(call, "pad", (int)a->pad, SY_PAD_SKIP + 1, "ERROR, ZERO, SKIP");
    return st;
}

static sy_status check_overflow(struct syi_call *call, struct syi_kv_subject *subject,
                                struct syi_kv_pages *pages)
{
    sy_status st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_kv_check_positions(call, &page_rules, subject->block_size, pages);
    if (st == SY_OK)
        st = syi_kv_check_pool(call, subject);
    subject->n = pages->batch * pages->k;
    return st == SY_OK ? syi_kv_check_volume(call, subject) : st;
}

static sy_status check(struct syi_call *call)
{
    const sy_kv_gather_args *a = &call->args.kv_gather;
    struct syi_kv_gather_plan *plan = &call->plan.kv_gather;
    struct syi_kv_subject subject = {CACHE,
                                     OUT,
                                     INDICES,
                                     a->block_size,
                                     0,
                                     &plan->planes,
                                     a->layout,
                                     .scale = SCALE,
                                     .format = offsetof(sy_kv_gather_args, format)};
    sy_status st = check_inputs(call, &subject);
    if (st == SY_OK)
        st = check_overflow(call, &subject, &plan->pages);
    if (st == SY_OK)
        st = syi_kv_check_dense(call, &subject);
    if (st == SY_OK)
        st = syi_kv_check_strides(call, &subject);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    syi_kv_view_pages(call, &page_rules, a->pad, &plan->pages);
    plan->pages.pool = plan->planes.pool;
    call->rows = subject.n;
    call->bytes =
        (uint64_t)call->rows * (plan->planes.slot_bytes + syi_elem_bytes(call->tensor[INDICES]->dtype));
    return syi_kv_view_planes(call, &subject);
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
