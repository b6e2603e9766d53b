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

#define OPERATOR kv_ragged

static const sy_field_info fields[] = {
    [CACHE] = SYI_KV_CACHE_FIELD,
    SYI_KV_TABLE_FIELDS,
    [SEQ_LENS] =
        SYI_OPTIONAL(seq_lens, SYI_INDEX_TYPES, 0, 1, 1, "B", "tokens of each sequence; missing: all blocks"),
    [CU_LENS] =
        SYI_INPUT(cu_lens, SYI_INDEX_TYPES, 0, 1, 1, "B+1", "where each run begins in out, and the end"),
    [STARTS] = SYI_OPTIONAL(starts, SYI_INDEX_TYPES, 0, 1, 1, "B", "first token of each run; missing: 0"),
    [REQ_ID] =
        SYI_OPTIONAL(req_id, SYI_INDEX_TYPES, 0, 1, 1, "B", "table row of each run; missing: 0, 1, ..."),
    [SCALE] = SYI_KV_SCALE_FIELD,
    [GLOBAL] = SYI_KV_GLOBAL_FIELD,
    [OUT] = SYI_OUTPUT(out, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK, "cu_lens[B] D...", "the rows of all runs"),
    SYI_SCALAR(block_size, I64, SY_FIELD_REQUIRED, .help = "S: rows per block"),
    SYI_KV_PLANE_FIELDS("cache out scale global_scale"),
};

static const struct syi_kv_page_rules page_rules = {
    -1, REQ_ID, -1, SEQ_LENS, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

/* cu_lens has one entry more than there are sequences. */
static sy_status check_batch(struct syi_call *call, int64_t *batch)
{
    *batch = syi_extent(call, CU_LENS, 0) - 1;
    if (*batch >= 0)
        return SY_OK;
    return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, "cu_lens", 0, 1,
                         "has shape [0], want an entry for each sequence and one for the end");
}

static sy_status check_inputs(struct syi_call *call, struct syi_kv_subject *subject,
                              struct syi_kv_pages *pages)
{
    SYI_TRY(syi_kv_check_caches(call, subject, &page_rules.tables));
    SYI_TRY(check_batch(call, &pages->batch));
    SYI_TRY(syi_kv_check_table(call, &page_rules.tables, REQ_ID, pages->batch, "sequence of cu_lens"));
    SYI_TRY(syi_check_vector(call, STARTS, pages->batch));
    SYI_TRY(syi_check_vector(call, SEQ_LENS, pages->batch));
    SYI_TRY(syi_kv_check_page_form(call, &page_rules));
    SYI_TRY(syi_kv_check_options(call, subject));
    SYI_TRY(syi_kv_check_block_size(call, subject->block_size));
    return syi_kv_check_blocks(call, subject);
}

static sy_status check_overflow(struct syi_call *call, struct syi_kv_subject *subject,
                                struct syi_kv_pages *pages)
{
    SYI_TRY(syi_check_sizes(call));
    SYI_TRY(syi_kv_count_table(call, &page_rules.tables, subject->block_size, &pages->table));
    subject->n = syi_extent(call, OUT, 0); /* any number, or 0 in a query */
    return syi_kv_check_volume(call, subject);
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
            memcpy(&narrow, syi_row_at(lens.rows, i), sizeof narrow);
        else
            memcpy(&wide, syi_row_at(lens.rows, i), sizeof wide);
        most = wide + narrow > most ? wide + narrow : most;
    }
    return most;
}

static sy_status check(struct syi_call *call)
{
    struct syi_kv_ragged_plan *plan = &call->plan.kv_ragged;
    struct syi_kv_pages *pages = &plan->pages;
    const sy_kv_ragged_args *a = &call->args.kv_ragged;
    struct syi_kv_subject subject = SYI_KV_SUBJECT(OUT, -1, 0);
    SYI_TRY(check_inputs(call, &subject, pages));
    SYI_TRY(check_overflow(call, &subject, pages));
    SYI_TRY(syi_kv_check_dense(call, &subject));
    SYI_TRY(syi_kv_check_strides(call, &subject));
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
