/*
 * kv_translate: check and plan.
 */
#include "ops/kv.h"

enum {
    INDICES,
    TABLE,
    REQ_ID,
    COUNTS,
    SEQ_LENS,
    PAGE_INDICES,
    INDPTR,
    LAST_PAGE_LEN,
    SLOTS,
    VALID,
    N_TENSORS
};

static const sy_field_info fields[] = {
    [INDICES] =
        SYI_TENSOR(kv_translate, indices, 0, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "... k", "logical tokens"),
    SYI_KV_TABLE_FIELDS(kv_translate),
    [REQ_ID] = SYI_TENSOR(kv_translate, req_id, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                          "table row of each index row; missing: 0, 1, ..."),
    [COUNTS] = SYI_TENSOR(kv_translate, counts, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                          "valid indices of each row, then padding; missing: k"),
    [SEQ_LENS] = SYI_TENSOR(kv_translate, seq_lens, SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 1, 1, "B",
                            "tokens of each sequence; missing: all its blocks hold"),
    [SLOTS] = SYI_TENSOR(kv_translate, slots, SY_FIELD_OUT, SYI_INDEX_TYPES, INDICES + 1, 1, SYI_MAX_RANK,
                         "... k", "cache row of each index; -1: padding"),
    [VALID] = SYI_TENSOR(kv_translate, valid, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, INDICES + 1,
                         1, 1, "B", "entries of each row that are not padding"),
    SYI_SCALAR(kv_translate, block_size, I64, SY_FIELD_REQUIRED, .help = "S: rows per block"),
    SYI_SCALAR(kv_translate, num_rows, I64, .help = "rows of the cache; 0: unknown"),
    SYI_SCALAR(kv_translate, pad, ENUM, .words = "error zero skip",
               .help = "an index of -1: rejected, or slot -1 (zero and skip)"),
    SYI_SCALAR(kv_translate, world, I64, .help = "ranks that share the tokens; 0: 1"),
    SYI_SCALAR(kv_translate, rank, I64, .help = "rank of this call; tokens of other ranks: slot -1"),
    SYI_SCALAR(kv_translate, interleave, I64, .help = "consecutive tokens of a rank; 0: 1"),
};

static const struct syi_kv_page_rules page_rules = {
    INDICES, REQ_ID, COUNTS, SEQ_LENS, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

static sy_status check_inputs(struct syi_call *call)
{
    const sy_kv_translate_args *a = &call->args.kv_translate;
    sy_status st = syi_kv_check_given(call, &page_rules.tables);
    if (st == SY_OK)
        st = syi_check_tensors(call, false);
    if (st == SY_OK)
        st = syi_kv_check_pages(call, &page_rules);
    if (st == SY_OK)
        st = syi_kv_check_page_form(call, &page_rules);
    if (st == SY_OK)
        st = syi_kv_check_block_size(call, a->block_size);
    if (st == SY_OK)
        st = syi_kv_check_num_rows(call, SLOTS, a->num_rows);
    if (st == SY_OK)
        st = syi_check_enum(call, "pad", (int)a->pad);
    if (st == SY_OK)
        st = syi_check_value(call, "world", a->world, 0, INT32_MAX);
    if (st == SY_OK)
        st = syi_check_value(call, "rank", a->rank, 0, a->world > 0 ? a->world - 1 : 0);
    return st == SY_OK ? syi_check_value(call, "interleave", a->interleave, 0, INT32_MAX) : st;
}

static sy_status check_overflow(struct syi_call *call, struct syi_kv_pages *pages)
{
    const sy_kv_translate_args *a = &call->args.kv_translate;
    sy_status st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_kv_check_positions(call, &page_rules, a->block_size, pages);
    if (st == SY_OK)
        st = syi_kv_number_slots(call, SLOTS, a->num_rows, a->block_size, &pages->pool);
    if (st == SY_OK && syi_type_at(call, VALID) == SY_TYPE_I32 && pages->k > INT32_MAX)
        st = syi_fail(call->ctx, SY_ERR_OVERFLOW, "valid", "is i32 for rows of %lld indices, want i64",
                      (long long)pages->k);
    return st;
}

static sy_status check(struct syi_call *call)
{
    struct syi_kv_translate_plan *plan = &call->plan.kv_translate;
    struct syi_kv_pages *pages = &plan->pages;
    sy_status st = check_inputs(call);
    if (st == SY_OK)
        st = check_overflow(call, pages);
    if (st == SY_OK)
        st = syi_check_shape(call, SLOTS, call->tensor[INDICES]->ndim, call->tensor[INDICES]->shape);
    if (st == SY_OK)
        st = syi_check_vector(call, VALID, pages->batch);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    const sy_kv_translate_args *a = &call->args.kv_translate;
    syi_kv_view_pages(call, &page_rules, a->pad, pages);
    pages->share = (struct syi_kv_share){a->world, a->rank, a->interleave > 0 ? a->interleave : 1};
    plan->slots = syi_rows_of(call, SLOTS);
    plan->slot_type = syi_type_at(call, SLOTS);
    plan->valid = syi_data(call, VALID);
    plan->valid_type = syi_type_at(call, VALID);
    call->rows = pages->batch * pages->k;
    if (!call->query)
        call->bytes = (uint64_t)call->rows * (syi_elem_bytes(call->tensor[INDICES]->dtype) +
                                              syi_elem_bytes(call->tensor[SLOTS]->dtype));
    return SY_OK;
}

SYI_DEFINE_OP(kv_translate, KV_TRANSLATE, "find the rows of selected tokens in a paged KV cache")
