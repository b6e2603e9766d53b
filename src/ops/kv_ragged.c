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
    PAGE_INDICES,
    INDPTR,
    LAST_PAGE_LEN,
    SEQ_LENS,
    SCALE,
    GLOBAL,
    OUT,
    N_TENSORS
};

static const sy_field_info fields[] = {
    [CACHE] = SYI_TENSOR(kv_ragged, cache, SY_FIELD_ANY_BYTES | SY_FIELD_OWN_STRIDES, 0, 0, 2, SYI_MAX_RANK,
                         "rows D | blocks S D...", "rows, or blocks; layout hnd: [blocks,H,S,D...]"),
    SYI_KV_TABLE_FIELDS(kv_ragged),
    [SEQ_LENS] = SYI_TENSOR(kv_ragged, seq_lens, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                            "tokens of each sequence; missing: all blocks"),
    [CU_LENS] = SYI_TENSOR(kv_ragged, cu_lens, 0, SYI_INDEX_TYPES, 0, 1, 1, "B+1",
                           "where each run begins in out, and the end"),
    [STARTS] = SYI_TENSOR(kv_ragged, starts, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                          "first token of each run; missing: 0"),
    [REQ_ID] = SYI_TENSOR(kv_ragged, req_id, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                          "table row of each run; missing: 0, 1, ..."),
    [SCALE] = SYI_TENSOR(kv_ragged, scale, SY_FIELD_OPTIONAL, SYI_KV_SCALE_TYPES, 0, 1, 3,
                         "G | rows G | blocks S G", "G, or G per row; of e4m3, e5m2, int8, nvfp4"),
    [GLOBAL] = SYI_KV_GLOBAL_FIELD(kv_ragged),
    [OUT] = SYI_TENSOR(kv_ragged, out, SY_FIELD_OUT, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK, "cu_lens[B] D...",
                       "the rows of all runs"),
    SYI_SCALAR(kv_ragged, block_size, I64, SY_FIELD_REQUIRED, .help = "S: rows per block"),
    SYI_SCALAR(kv_ragged, planes, PLANES, .words = "cache out scale global_scale",
               .help = "further planes with the same slots"),
    SYI_SCALAR(kv_ragged, num_planes, I64, .help = "number of further planes"),
    SYI_SCALAR(kv_ragged, plane_bytes, SIZE, .help = "size of the struct of a plane"),
    SYI_SCALAR(kv_ragged, layout, ENUM, .words = "nhd hnd",
               .help = "blocks of [S,H,D] (and caches without heads), or of [H,S,D]"),
    SYI_SCALAR(kv_ragged, format, FORMAT, .words = SYI_KV_FORMATS,
               .help = "how rows are packed; e4m3, e5m2, int8, nvfp4 use scale"),
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

/* For sy_infer: the rows that cu_lens gives; -1 without its data. */
static int64_t wanted_rows(const struct syi_call *call)
{
    const struct syi_column lens = syi_column_of(call, CU_LENS);
    int64_t most = 0;
    if (call->tensor[CU_LENS]->data == NULL)
        return -1;
    for (int64_t i = 0; i < syi_extent(call, CU_LENS, 0); i++) {
        int64_t wide = 0;
        int32_t narrow = 0;
        if (lens.type == SY_TYPE_I32)
            memcpy(&narrow, syi_row(lens.rows, i), sizeof narrow);
        else
            memcpy(&wide, syi_row(lens.rows, i), sizeof wide);
        most = wide + narrow > most ? wide + narrow : most;
    }
    return most;
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
                                     .global = GLOBAL,
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
    if (call->shapes != NULL)
        call->shapes[OUT].extent[0] = wanted_rows(call);
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

SYI_DEFINE_OP(kv_ragged, KV_RAGGED, "copy a run of tokens of each sequence out of a paged KV cache")
