/*
 * kv_slots: check and plan.
 */
#include "ops/kv.h"

enum { BATCH, POSITION, TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN, SLOTS, N_TENSORS };

#define OPERATOR kv_slots

static const sy_field_info fields[] = {
    [BATCH] = SYI_OPTIONAL(batch, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "...",
                           "table row of each token; missing: the only one"),
    [POSITION] = SYI_INPUT(position, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "...",
                           "number of each token in its sequence"),
    SYI_KV_TABLE_FIELDS,
    [SLOTS] = SYI_OUTPUT(slots, SYI_INDEX_TYPES, POSITION + 1, 1, SYI_MAX_RANK, "...",
                         "cache row of each token; -1: padding"),
    SYI_SCALAR(block_size, I64, SY_FIELD_REQUIRED, .help = "S: rows per block"),
    SYI_SCALAR(num_rows, I64, .help = "rows of the cache; 0: unknown"),
    SYI_SCALAR(pad, ENUM, .words = "error zero skip",
               .help = "a position of -1: rejected, or slot -1 (zero and skip)"),
};

static const struct syi_kv_page_rules page_rules = {
    POSITION, -1, -1, -1, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

static sy_status check_inputs(struct syi_call *call)
{
    int64_t rows = 0;
    SYI_TRY(syi_kv_check_given(call, &page_rules.tables));
    SYI_TRY(syi_check_tensors(call, false));
    const DLTensor *position = call->tensor[POSITION];
    const bool lists = call->tensor[PAGE_INDICES] != NULL;
    SYI_TRY(syi_check_shape(call, BATCH, position->ndim, position->shape));
    SYI_TRY(syi_kv_check_lists(call, &page_rules.tables, &rows));
    if (call->tensor[BATCH] == NULL && rows != 1)
        return syi_fail(call->ctx, SY_ERR_SHAPE, lists ? "indptr" : "block_table",
                        "has %lld %s, want 1 (or give batch)", (long long)rows, lists ? "lists" : "rows");
    return SY_OK;
}

static sy_status check(struct syi_call *call)
{
    const sy_kv_slots_args *a = &call->args.kv_slots;
    struct syi_kv_slots_plan *plan = &call->plan.kv_slots;
    struct syi_kv_pages *pages = &plan->pages;
    const struct syi_kv_slot_args slots = {SLOTS, a->block_size, a->num_rows, a->pad};
    SYI_TRY(check_inputs(call));
    SYI_TRY(syi_kv_check_slots(call, &page_rules, &slots));
    SYI_TRY(syi_kv_number_slots(call, &page_rules, &slots, pages));
    SYI_TRY(syi_check_shape(call, SLOTS, call->tensor[POSITION]->ndim, call->tensor[POSITION]->shape));
    SYI_TRY(syi_check_layout(call));
    syi_kv_view_pages(call, &page_rules, a->pad, pages);
    plan->batch = syi_tensor_of(call, BATCH);
    plan->slots = syi_tensor_of(call, SLOTS);
    call->rows = pages->batch * pages->k;
    call->bytes = (uint64_t)call->rows *
                  (syi_bytes_at(call, BATCH) + syi_bytes_at(call, POSITION) + syi_bytes_at(call, SLOTS));
    return SY_OK;
}

SYI_DEFINE_OP(kv_slots, KV_SLOTS, "compute the row of a paged KV cache for every new token")
