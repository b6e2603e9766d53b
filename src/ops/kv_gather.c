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
    GLOBAL,
    OUT,
    N_TENSORS
};

#define OPERATOR kv_gather

static const sy_field_info fields[] = {
    [CACHE] = SYI_KV_CACHE_FIELD,
    [INDICES] = SYI_INPUT(indices, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "... k", "logical tokens to gather"),
    SYI_KV_TABLE_FIELDS,
    [REQ_ID] = SYI_OPTIONAL(req_id, SYI_INDEX_TYPES, 0, 1, 1, "B",
                            "table row of each index row; missing: 0, 1, ..."),
    [COUNTS] =
        SYI_OPTIONAL(counts, SYI_INDEX_TYPES, 0, 1, 1, "B", "indices of each row, then padding; missing: k"),
    [SEQ_LENS] =
        SYI_OPTIONAL(seq_lens, SYI_INDEX_TYPES, 0, 1, 1, "B", "tokens of each sequence; missing: all blocks"),
    [SCALE] = SYI_KV_SCALE_FIELD,
    [GLOBAL] = SYI_KV_GLOBAL_FIELD,
    [OUT] = SYI_TENSOR(out, SY_FIELD_OUT | SY_FIELD_KEEPS, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK, "... k D...",
                       "gathered rows; old contents for pad skip"),
    SYI_SCALAR(block_size, I64, SY_FIELD_REQUIRED, .help = "S: rows per block"),
    SYI_SCALAR(pad, ENUM, .words = "error zero skip",
               .help = "index -1: rejected, a zero row, or the row keeps its contents"),
    SYI_KV_PLANE_FIELDS("cache out scale global_scale"),
};

static const struct syi_kv_page_rules page_rules = {
    INDICES, REQ_ID, COUNTS, SEQ_LENS, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

static sy_status check_inputs(struct syi_call *call, struct syi_kv_subject *subject)
{
    const sy_kv_gather_args *a = &call->args.kv_gather;
    SYI_TRY(syi_kv_check_caches(call, subject, &page_rules.tables));
    SYI_TRY(syi_kv_check_pages(call, &page_rules));
    SYI_TRY(syi_kv_check_page_form(call, &page_rules));
    SYI_TRY(syi_kv_check_options(call, subject));
    SYI_TRY(syi_kv_check_block_size(call, subject->block_size));
    SYI_TRY(syi_kv_check_blocks(call, subject));
    return syi_check_enum(call, "pad", (int)a->pad);
}

static sy_status check_overflow(struct syi_call *call, struct syi_kv_subject *subject,
                                struct syi_kv_pages *pages)
{
    SYI_TRY(syi_check_sizes(call));
    SYI_TRY(syi_kv_check_positions(call, &page_rules, subject->block_size, pages));
    subject->n = pages->batch * pages->k;
    return syi_kv_check_volume(call, subject);
}

static sy_status check(struct syi_call *call)
{
    const sy_kv_gather_args *a = &call->args.kv_gather;
    struct syi_kv_gather_plan *plan = &call->plan.kv_gather;
    struct syi_kv_subject subject = SYI_KV_SUBJECT(OUT, INDICES, 0);
    SYI_TRY(check_inputs(call, &subject));
    SYI_TRY(check_overflow(call, &subject, &plan->pages));
    SYI_TRY(syi_kv_check_dense(call, &subject));
    SYI_TRY(syi_kv_check_strides(call, &subject));
    syi_kv_view_pages(call, &page_rules, a->pad, &plan->pages);
    plan->pages.pool = plan->planes.pool;
    call->rows = subject.n;
    call->bytes = (uint64_t)call->rows * (plan->planes.slot_bytes + syi_bytes_at(call, INDICES));
    return syi_kv_view_planes(call, &subject);
}

SYI_DEFINE_OP(kv_gather, KV_GATHER, "copy the rows of selected tokens out of a paged KV cache")
