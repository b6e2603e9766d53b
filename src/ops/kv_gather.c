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

static const sy_field_info fields[] = {
    [CACHE] = SYI_TENSOR(kv_gather, cache, SY_FIELD_ANY_BYTES | SY_FIELD_OWN_STRIDES, 0, 0, 2, SYI_MAX_RANK,
                         "rows D | blocks S D...", "rows, or blocks; layout hnd: [blocks,H,S,D...]"),
    [INDICES] = SYI_TENSOR(kv_gather, indices, 0, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "... k",
                           "logical tokens to gather"),
    SYI_KV_TABLE_FIELDS(kv_gather),
    [REQ_ID] = SYI_TENSOR(kv_gather, req_id, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                          "table row of each index row; missing: 0, 1, ..."),
    [COUNTS] = SYI_TENSOR(kv_gather, counts, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                          "indices of each row, then padding; missing: k"),
    [SEQ_LENS] = SYI_TENSOR(kv_gather, seq_lens, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                            "tokens of each sequence; missing: all blocks"),
    [SCALE] = SYI_TENSOR(kv_gather, scale, SY_FIELD_OPTIONAL, SYI_KV_SCALE_TYPES, 0, 1, 3,
                         "G | rows G | blocks S G", "G, or G per row; of e4m3, e5m2, int8, nvfp4"),
    [GLOBAL] = SYI_KV_GLOBAL_FIELD(kv_gather),
    [OUT] = SYI_TENSOR(kv_gather, out, SY_FIELD_OUT | SY_FIELD_KEEPS, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK,
                       "... k D...", "gathered rows; old contents for pad skip"),
    SYI_SCALAR(kv_gather, block_size, I64, SY_FIELD_REQUIRED, .help = "S: rows per block"),
    SYI_SCALAR(kv_gather, pad, ENUM, .words = "error zero skip",
               .help = "index -1: rejected, a zero row, or the row keeps its contents"),
    SYI_SCALAR(kv_gather, planes, PLANES, .words = "cache out scale global_scale",
               .help = "further planes with the same slots"),
    SYI_SCALAR(kv_gather, num_planes, I64, .help = "number of further planes"),
    SYI_SCALAR(kv_gather, plane_bytes, SIZE, .help = "size of the struct of a plane"),
    SYI_SCALAR(kv_gather, layout, ENUM, .words = "nhd hnd",
               .help = "blocks of [S,H,D] (and caches without heads), or of [H,S,D]"),
    SYI_SCALAR(kv_gather, format, FORMAT, .words = SYI_KV_FORMATS,
               .help = "how rows are packed; e4m3, e5m2, int8, nvfp4 use scale"),
};

static const struct syi_kv_page_rules page_rules = {
    INDICES, REQ_ID, COUNTS, SEQ_LENS, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

static sy_status check_inputs(struct syi_call *call, struct syi_kv_subject *subject)
{
    const sy_kv_gather_args *a = &call->args.kv_gather;
    sy_status st =
        syi_kv_begin(call, subject, (struct syi_kv_more){a->planes, a->num_planes, a->plane_bytes});
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
        st = syi_check_enum(call, "pad", (int)a->pad);
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
                                     .global = GLOBAL,
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

SYI_DEFINE_OP(kv_gather, KV_GATHER, "copy the rows of selected tokens out of a paged KV cache")
