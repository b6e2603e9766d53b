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

#define OPERATOR kv_translate

static const sy_field_info fields[] = {
    [INDICES] = SYI_INPUT(indices, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "... k", "logical tokens"),
    SYI_KV_TABLE_FIELDS,
    [REQ_ID] = SYI_OPTIONAL(req_id, SYI_INDEX_TYPES, 0, 1, 1, "B",
                            "table row of each index row; missing: 0, 1, ..."),
    [COUNTS] = SYI_OPTIONAL(counts, SYI_INDEX_TYPES, 0, 1, 1, "B",
                            "valid indices of each row, then padding; missing: k"),
    [SEQ_LENS] = SYI_OPTIONAL(seq_lens, SYI_INDEX_TYPES, 0, 1, 1, "B",
                              "tokens of each sequence; missing: all its blocks hold"),
    [SLOTS] = SYI_OUTPUT(slots, SYI_INDEX_TYPES, INDICES + 1, 1, SYI_MAX_RANK, "... k",
                         "cache row of each index; -1: padding"),
    [VALID] = SYI_OPTIONAL_OUTPUT(valid, SYI_INDEX_TYPES, INDICES + 1, 1, 1, "B",
                                  "entries of each row that are not padding"),
    SYI_SCALAR(block_size, I64, SY_FIELD_REQUIRED, .help = "S: rows per block"),
    SYI_SCALAR(num_rows, I64, .help = "rows of the cache; 0: unknown"),
    SYI_SCALAR(pad, ENUM, .words = "error zero skip",
               .help = "an index of -1: rejected, or slot -1 (zero and skip)"),
    SYI_SCALAR(world, I64, .help = "ranks that share the tokens; 0: 1"),
    SYI_SCALAR(rank, I64, .help = "rank of this call; tokens of other ranks: slot -1"),
    SYI_SCALAR(interleave, I64, .help = "consecutive tokens of a rank; 0: 1"),
};

static const struct syi_kv_page_rules page_rules = {
    INDICES, REQ_ID, COUNTS, SEQ_LENS, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

static sy_status check_inputs(struct syi_call *call, const struct syi_kv_slot_args *slots)
{
    const sy_kv_translate_args *a = &call->args.kv_translate;
    SYI_TRY(syi_kv_check_given(call, &page_rules.tables));
    SYI_TRY(syi_check_tensors(call, false));
    SYI_TRY(syi_kv_check_pages(call, &page_rules));
    SYI_TRY(syi_kv_check_slots(call, &page_rules, slots));
    return syi_kv_check_share(call, a->world, a->rank, a->interleave);
}

static sy_status check(struct syi_call *call)
{
    const sy_kv_translate_args *a = &call->args.kv_translate;
    const struct syi_kv_slot_args slots = {SLOTS, a->block_size, a->num_rows, a->pad};
    struct syi_kv_translate_plan *plan = &call->plan.kv_translate;
    struct syi_kv_pages *pages = &plan->pages;
    SYI_TRY(check_inputs(call, &slots));
    SYI_TRY(syi_kv_number_slots(call, &page_rules, &slots, pages));
    if (syi_type_at(call, VALID) == SY_TYPE_I32 && pages->k > INT32_MAX)
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "valid", "is i32 for rows of %lld indices, want i64",
                        (long long)pages->k);
    SYI_TRY(syi_check_shape(call, SLOTS, call->tensor[INDICES]->ndim, call->tensor[INDICES]->shape));
    SYI_TRY(syi_check_vector(call, VALID, pages->batch));
    SYI_TRY(syi_check_layout(call));
    syi_kv_view_pages(call, &page_rules, a->pad, pages);
    pages->share = (struct syi_kv_share){a->world, a->rank, a->interleave > 0 ? a->interleave : 1};
    plan->slots = syi_tensor_of(call, SLOTS);
    plan->valid = syi_tensor_of(call, VALID);
    call->rows = pages->batch * pages->k;
    call->bytes = (uint64_t)call->rows * (syi_bytes_at(call, INDICES) + syi_bytes_at(call, SLOTS));
    return SY_OK;
}

SYI_DEFINE_OP(kv_translate, KV_TRANSLATE, "find the rows of selected tokens in a paged KV cache")
