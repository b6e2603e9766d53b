/*
 * kv_slots: check and plan.
 */
#include "ops/kv.h"

enum { BATCH, POSITION, TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN, SLOTS, N_TENSORS };

#define FIELD(name) #name, offsetof(sy_kv_slots_args, name)

static const struct syi_rule rules[N_TENSORS] = {
    [BATCH] = {FIELD(batch), SYI_OPTIONAL, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK},
    [POSITION] = {FIELD(position), 0, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK},
    SYI_KV_TABLE_RULES,
    [SLOTS] = {FIELD(slots), SYI_OUT, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK},
};

static const struct syi_kv_page_rules page_rules = {
    POSITION, -1, -1, -1, {TABLE, PAGE_INDICES, INDPTR, LAST_PAGE_LEN}};

static sy_status check_inputs(struct syi_call *call)
{
    const sy_kv_slots_args *a = &call->args.kv_slots;
    int64_t rows = 0;
    sy_status st = syi_kv_check_given(call, &page_rules.tables);
    if (st == SY_OK)
        st = syi_check_tensors(call, false);
    if (st != SY_OK)
        return st;
    const DLTensor *position = call->tensor[POSITION];
    const bool lists = call->tensor[PAGE_INDICES] != NULL;
    st = syi_check_shape(call, BATCH, position->ndim, position->shape);
    if (st == SY_OK)
        st = syi_kv_check_lists(call, &page_rules.tables, &rows);
    if (st == SY_OK && call->tensor[BATCH] == NULL && rows != 1)
        return syi_fail(call->ctx, SY_ERR_SHAPE, lists ? "indptr" : "block_table",
                        "has %lld %s, want 1 (or give batch)", (long long)rows, lists ? "lists" : "rows");
    if (st == SY_OK)
        st = syi_kv_check_page_form(call, &page_rules);
    if (st == SY_OK)
        st = syi_kv_check_block_size(call, a->block_size);
    if (st == SY_OK)
        st = syi_kv_check_num_rows(call, SLOTS, a->num_rows);
    if (st == SY_OK)
        st = syi_check_enum(call, "pad", (int)a->pad, SY_PAD_SKIP + 1, "ERROR, ZERO, SKIP");
    return st;
}

static sy_status check(struct syi_call *call)
{
    const sy_kv_slots_args *a = &call->args.kv_slots;
    struct syi_kv_slots_plan *plan = &call->plan.kv_slots;
    struct syi_kv_pages *pages = &plan->pages;
    sy_status st = check_inputs(call);
    if (st == SY_OK)
        st = syi_check_sizes(call);
    if (st == SY_OK)
        st = syi_kv_check_positions(call, &page_rules, a->block_size, pages);
    if (st == SY_OK)
        st = syi_kv_number_slots(call, SLOTS, a->num_rows, a->block_size, &pages->pool);
    if (st == SY_OK)
        st = syi_check_shape(call, SLOTS, call->tensor[POSITION]->ndim, call->tensor[POSITION]->shape);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    syi_kv_view_pages(call, &page_rules, a->pad, pages);
    plan->batch = syi_rows_of(call, BATCH);
    plan->batch_type = syi_type_at(call, BATCH);
    plan->slots = syi_rows_of(call, SLOTS);
    plan->slot_type = syi_type_at(call, SLOTS);
    call->rows = pages->batch * pages->k;
    for (int i = 0; i < N_TENSORS; i++)
        if ((i == BATCH || i == POSITION || i == SLOTS) && call->tensor[i] != NULL)
            call->bytes += (uint64_t)call->rows * syi_elem_bytes(call->tensor[i]->dtype);
    return SY_OK;
}

static const struct syi_op op = {"kv_slots", SYI_KV_SLOTS, sizeof(sy_kv_slots_args), N_TENSORS, rules, check};

sy_status sy_kv_slots_n(sy_ctx *ctx, const sy_kv_slots_args *args, size_t args_bytes)
{
    return syi_run(ctx, &op, args, args_bytes);
}

sy_status sy_kv_slots_query_n(sy_ctx *ctx, const sy_kv_slots_args *args, size_t args_bytes, sy_query *query,
                              size_t query_bytes)
{
    return syi_query(ctx, &op, args, args_bytes, query, query_bytes);
}
