/*
 * aclnnMoeInitRoutingV2: sy_moe_permute_ids. With a capacity that operator finds the place of each choice among the rows of
 * its expert, of rows without elements, and this file copies the rows that have one.
 */
#include "internal.h"

#include <string.h>

enum { X, IDS, EXPANDED, ROWS, COUNTS, BEFORE, N_TENSORS };
enum { CAPACITY, KIND }; /* of `number`: rows of an expert, 0 for all; 1 for sums of counts */

/* Of `list`: the choices of each expert, and of those before it; rows without elements. */
enum { ALL, OFFSETS, NONE_IN, NONE_OUT };

static void write_counts(const aclOpExecutor *e)
{
    const int64_t *counts = e->list[ALL].data, *offsets = e->list[OFFSETS].data;
    for (int64_t i = 0; i < e->n_experts; i++) {
        if (e->view[COUNTS].taken)
            syi_aclnn_set_integer(e, COUNTS, i, e->number[KIND] == 1 ? offsets[i + 1] : counts[i]);
        if (e->view[BEFORE].taken)
            syi_aclnn_set_integer(e, BEFORE, i, counts[i]);
    }
}

/* Rows of choices with a place below the capacity; sorted_indices become their rows, or -1. */
static void place_rows(const aclOpExecutor *e)
{
    const int64_t *offsets = e->list[OFFSETS].data;
    const int64_t choices = e->view[IDS].shape[1], capacity = e->number[CAPACITY];
    const size_t bytes = (size_t)e->view[X].shape[1] * e->view[X].elem_bytes;
    char *out = e->view[EXPANDED].dl.data;
    if (bytes > 0) /* else there may be no memory */
        memset(out, 0, (size_t)(e->n_experts * capacity) * bytes);
    for (int64_t i = 0; i < e->n_tokens * choices; i++) {
        const int64_t id = syi_aclnn_integer(e, IDS, i / choices, i % choices);
        const int64_t place = syi_aclnn_integer(e, ROWS, i, 0) - offsets[id];
        const int64_t row = place < capacity ? id * capacity + place : -1;
        syi_aclnn_set_integer(e, ROWS, i, row);
        if (row >= 0 && bytes > 0)
            memcpy(out + (size_t)row * bytes, syi_aclnn_row(&e->view[X], i / choices), bytes);
    }
}

static aclnnStatus run(aclOpExecutor *e)
{
    const aclnnStatus st = syi_aclnn_call(e);
    if (st != ACLNN_SUCCESS)
        return st;
    if (e->number[CAPACITY] > 0)
        place_rows(e);
    write_counts(e);
    return ACLNN_SUCCESS;
}

static const struct syi_aclnn_op op = {"aclnnMoeInitRoutingV2", SYI_ACLNN_CALLS(moe_permute_ids), run, false};

static void check_values(aclOpExecutor *e, int64_t active, int64_t capacity, int64_t experts,
                         int64_t drop_pad, int64_t flag)
{
    const char *field = active < 0                     ? "activeNumOptional"
                        : drop_pad < 0 || drop_pad > 1 ? "dropPadModeOptional"
                        : flag < 0 || flag > 2         ? "expertTokensCountOrCumsumFlagOptional"
                        : experts < 0 || experts >= 16777215 || (experts == 0 && (flag != 0 || drop_pad == 1))
                            ? "expertNumOptional"
                        : drop_pad == 1 && (capacity < 1 || capacity > e->n_tokens) ? "expertCapacityOptional"
                                                                                    : NULL;
    if (field != NULL)
        SYI_ACLNN_INVALID(e,
                          "%s is out of its range: activeNum %lld, expertCapacity %lld for %lld tokens, "
                          "expertNum %lld, dropPadMode %lld, flag %lld",
                          field, (long long)active, (long long)capacity, (long long)e->n_tokens,
                          (long long)experts, (long long)drop_pad, (long long)flag);
}

static void plan(aclOpExecutor *e, int64_t active)
{
    if (e->status != ACLNN_SUCCESS)
        return;
    const int64_t all = e->view[IDS].shape[0] * e->view[IDS].shape[1], width = e->view[X].shape[1];
    const int64_t experts = e->n_experts, capacity = e->number[CAPACITY];
    const bool padded = capacity > 0;
    const DLTensor *counts = syi_aclnn_list(e, ALL, SY_I64, experts, -1);
    const DLTensor *offsets = syi_aclnn_list(e, OFFSETS, SY_I64, experts + 1, -1);
    /* Padded: rows without elements, for their places alone. */
    const DLTensor *none_in = syi_aclnn_list(e, NONE_IN, SY_I32, e->n_tokens, 0);
    const DLTensor *none_out = syi_aclnn_list(e, NONE_OUT, SY_I32, all, 0);
    e->args.permute_ids =
        (sy_moe_permute_ids_args){.tokens = padded ? none_in : syi_aclnn_arg(e, X),
                                  .ids = syi_aclnn_arg(e, IDS),
                                  .num_out_tokens = padded ? 0 : active,
                                  .num_experts = experts,
                                  .permuted_tokens = padded ? none_out : syi_aclnn_arg(e, EXPANDED),
                                  .sorted_indices = syi_aclnn_arg(e, ROWS),
                                  .expert_counts = experts > 0 ? counts : NULL,
                                  .expert_offsets = experts > 0 ? offsets : NULL};
    const sy_query query = syi_aclnn_query(e);
    if (padded && e->view[EXPANDED].dims[1] != capacity)
        SYI_ACLNN_INVALID(e, "expandedXOut has %lld rows for an expert, want %lld",
                          (long long)e->view[EXPANDED].dims[1], (long long)capacity);
    syi_aclnn_check_shape(e, EXPANDED, padded ? experts : query.rows, padded ? capacity * width : width);
    syi_aclnn_check_shape(e, ROWS, all, -1);
    syi_aclnn_check_shape(e, COUNTS, experts, -1);
    syi_aclnn_check_shape(e, BEFORE, experts, -1);
}

SYI_ACLNN_OPERATOR(aclnnMoeInitRoutingV2, op, const aclTensor *x, const aclTensor *expertIdx,
                   int64_t activeNumOptional, int64_t expertCapacityOptional, int64_t expertNumOptional,
                   int64_t dropPadModeOptional, int64_t expertTokensCountOrCumsumFlagOptional,
                   bool expertTokensBeforeCapacityFlagOptional, const aclTensor *expandedXOut,
                   const aclTensor *expandedRowIdxOut, const aclTensor *expertTokensCountOrCumsumOutOptional,
                   const aclTensor *expertTokensBeforeCapacityOutOptional)
{
    const bool padded = dropPadModeOptional == 1, before = padded && expertTokensBeforeCapacityFlagOptional;
    const bool counted = !padded && expertTokensCountOrCumsumFlagOptional != 0;
    const unsigned out = SYI_ACLNN_OUTPUT, ignored = SYI_ACLNN_IGNORED, i32 = SYI_ACLNN_I32;
    const unsigned expanded = out | (padded ? (unsigned)SYI_ACLNN_DENSE : 0u);
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [X] = {SYI_NAMED(x), 0, SYI_ACLNN_FLOATS | SYI_ACLNN_BIT(ACL_INT8), 0, 2, 0},
        [IDS] = {SYI_NAMED(expertIdx), 0, i32, 0, 2, 0},
        [EXPANDED] = {SYI_NAMED(expandedXOut), expanded, 0, X + 1, padded ? 3 : 2, 0},
        [ROWS] = {SYI_NAMED(expandedRowIdxOut), out, i32, 0, 1, 0},
        [COUNTS] = {SYI_NAMED(expertTokensCountOrCumsumOutOptional), out | (counted ? 0u : ignored), i32, 0,
                    1, 0},
        [BEFORE] = {SYI_NAMED(expertTokensBeforeCapacityOutOptional), out | (before ? 0u : ignored), i32, 0,
                    1, 0},
    };
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    if (!syi_aclnn_check_tensors(e, rules))
        return syi_aclnn_end(e);
    e->n_tokens = e->view[X].shape[0];
    e->n_experts = expertNumOptional;
    e->number[CAPACITY] = padded ? expertCapacityOptional : 0;
    e->number[KIND] = expertTokensCountOrCumsumFlagOptional;
    check_values(e, activeNumOptional, expertCapacityOptional, expertNumOptional, dropPadModeOptional,
                 expertTokensCountOrCumsumFlagOptional);
    plan(e, activeNumOptional);
    return syi_aclnn_end(e);
}
