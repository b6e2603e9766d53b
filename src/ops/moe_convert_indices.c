/*
 * moe_convert_indices: check and plan.
 */
#include "ops/call.h"

enum { INDICES, OFFSETS, CONVERTED, N_TENSORS };

#define OPERATOR moe_convert_indices

static const sy_field_info fields[] = {
    [INDICES] =
        SYI_INPUT(sorted_indices, SYI_I32, 0, 1, 2, "T*K | M | T 2E+1", "slot [T*K], row [M], te [T,2E+1]"),
    [OFFSETS] =
        SYI_OPTIONAL(expert_offsets, SYI_I64, 0, 1, 1, "E+1", "first row of each expert; required for to te"),
    [CONVERTED] = SYI_OUTPUT(converted_indices, SYI_I32, 0, 1, 2, "T*K | M | T 2E+1",
                             "the same permutation in the other form"),
    SYI_SCALAR(from, ENUM, SY_FIELD_REQUIRED, .words = "slot row te", .help = "the form of sorted_indices"),
    SYI_SCALAR(to, ENUM, SY_FIELD_REQUIRED, .words = "slot row te", .help = "the form of converted_indices"),
    SYI_SCALAR(num_tokens, I64, SY_FIELD_REQUIRED, .help = "T: tokens"),
    SYI_SCALAR(num_rows, I64, .help = "M: rows; 0: as many as sorted_indices has, for slot and row"),
    SYI_SCALAR(k, I64, .help = "slots per token, for to slot; 0: M / T"),
};

static const char form_names[] = "SLOT, ROW, TE";

static sy_status check_tensors(struct syi_call *call)
{
    const sy_moe_convert_indices_args *a = &call->args.moe_convert_indices;
    if (a->to == SY_INDEX_TE && a->expert_offsets == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "expert_offsets",
                        "is missing, want where the rows of each expert begin: a TE map names experts");
    SYI_TRY(syi_check_tensors(call, false));
    const int rank = a->from == SY_INDEX_TE ? 2 : 1;
    if (call->tensor[INDICES]->ndim != rank)
        return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, "sorted_indices",
                             call->tensor[INDICES]->ndim, rank, "has rank %lld, want %lld");
    if (a->to == SY_INDEX_TE && syi_extent(call, OFFSETS, 0) == 0)
        return syi_fail(call->ctx, SY_ERR_SHAPE, "expert_offsets", "has shape [0], want at least the end");
    return SY_OK;
}

/* The shape of sorted_indices, which a SLOT form shares with the number of tokens. */
static sy_status check_form(struct syi_call *call, struct syi_moe_convert_indices_plan *plan)
{
    const sy_moe_convert_indices_args *a = &call->args.moe_convert_indices;
    const int64_t length = syi_extent(call, INDICES, 0), columns = syi_extent(call, INDICES, 1);
    if (a->from == SY_INDEX_TE) {
        plan->n_experts = columns / 2;
        if (columns % 2 == 1)
            return syi_check_matrix(call, INDICES, a->num_tokens, columns);
        return syi_fail(call->ctx, SY_ERR_SHAPE, "sorted_indices",
                        "has %lld columns, want 2E+1: rows, experts and how many", (long long)columns);
    }
    if (a->from == SY_INDEX_ROW)
        return SY_OK;
    plan->n_slots = a->num_tokens > 0 ? length / a->num_tokens : 0;
    if (plan->n_slots * a->num_tokens == length)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_SHAPE, "sorted_indices", length, a->num_tokens,
                          "has %lld slots, want a multiple of %lld tokens");
}

static sy_status check_enums(struct syi_call *call)
{
    const sy_moe_convert_indices_args *a = &call->args.moe_convert_indices;
    SYI_TRY(syi_check_enum(call, "from", (int)a->from));
    return syi_check_enum(call, "to", (int)a->to);
}

static sy_status check_values(struct syi_call *call, struct syi_moe_convert_indices_plan *plan)
{
    const sy_moe_convert_indices_args *a = &call->args.moe_convert_indices;
    const int64_t length = syi_extent(call, INDICES, 0);
    SYI_TRY(check_enums(call));
    SYI_TRY(syi_check_value(call, "num_tokens", a->num_tokens, 0, INT32_MAX));
    SYI_TRY(check_form(call, plan));
    if (a->from == a->to)
        return syi_fail(call->ctx, SY_ERR_VALUE, "to", "is the same form as from, want another: %s",
                        form_names);
    SYI_TRY(syi_check_value(call, "num_rows", a->num_rows, 0, INT32_MAX));
    SYI_TRY(syi_check_value(call, "k", a->k, 0, INT32_MAX));
    plan->n_rows = a->num_rows > 0 || a->from == SY_INDEX_TE ? a->num_rows : length;
    if (a->from == SY_INDEX_ROW && plan->n_rows != length)
        return syi_fail_value(call, SY_ERR_VALUE, "num_rows", a->num_rows, length,
                              "is %lld, want 0 or the %lld rows of sorted_indices");
    return syi_check_value(call, "num_rows", plan->n_rows, 0, INT32_MAX);
}

/* Extents of the output, countable even when it is not there yet. */
static sy_status shape_output(struct syi_call *call, struct syi_moe_convert_indices_plan *plan,
                              int64_t shape[2])
{
    const sy_moe_convert_indices_args *a = &call->args.moe_convert_indices;
    int64_t bytes = 0;
    bool fits = true;
    shape[0] = plan->n_rows;
    shape[1] = 1;
    if (a->to == SY_INDEX_SLOT) {
        plan->n_slots = a->k > 0 ? a->k : a->num_tokens > 0 ? plan->n_rows / a->num_tokens : 0;
        fits = syi_mul(a->num_tokens, plan->n_slots, &shape[0]);
    } else if (a->to == SY_INDEX_TE) {
        plan->n_experts = syi_extent(call, OFFSETS, 0) - 1;
        shape[0] = a->num_tokens;
        fits = syi_mul(plan->n_experts, 2, &shape[1]) && syi_add(shape[1], 1, &shape[1]);
    }
    if (fits && syi_mul(shape[0], shape[1], &bytes) && syi_mul(bytes, (int64_t)sizeof(int32_t), &bytes))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_OVERFLOW, "num_tokens",
                    "is %lld, want an output of fewer than 2^63 bytes", (long long)a->num_tokens);
}

static sy_status check(struct syi_call *call)
{
    struct syi_moe_convert_indices_plan *plan = &call->plan.moe_convert_indices;
    const sy_moe_convert_indices_args *a = &call->args.moe_convert_indices;
    int64_t shape[2];
    plan->n_tokens = a->num_tokens;
    SYI_TRY(check_tensors(call));
    SYI_TRY(check_values(call, plan));
    SYI_TRY(syi_check_sizes(call));
    SYI_TRY(shape_output(call, plan, shape));
    SYI_TRY(syi_check_shape(call, CONVERTED, a->to == SY_INDEX_TE ? 2 : 1, shape));
    SYI_TRY(syi_check_layout(call));
    syi_bind_plan(call, "");
    call->rows = shape[0];
    return SY_OK;
}

SYI_ASSERT_PLANNED(moe_convert_indices, out, 0);
SYI_DEFINE_OP(moe_convert_indices, MOE_CONVERT_INDICES,
              "write sorted_indices in another form: row of each slot, token of each row, row_id_map")
