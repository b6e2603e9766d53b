/*
 * moe_reorder_chunks: check and plan.
 */
#include "ops/call.h"

enum { ROWS, COUNTS, EXTRA, OUT_ROWS, OUT_EXTRA, OFFSETS, N_TENSORS };

#define OPERATOR moe_reorder_chunks

static const sy_field_info fields[] = {
    [ROWS] =
        SYI_TENSOR(rows, SY_FIELD_ANY_BYTES, 0, 0, 1, SYI_MAX_RANK, "N ...", "chunks of rows, rank by rank"),
    [COUNTS] = SYI_INPUT(counts, SYI_INDEX_TYPES, 0, 2, 2, "R E", "rows of each rank and expert"),
    [EXTRA] = SYI_TENSOR(extra, SY_FIELD_OPTIONAL | SY_FIELD_ANY_BYTES, 0, 0, 1, SYI_MAX_RANK, "N ...",
                         "moved like the rows: probs, scales"),
    [OUT_ROWS] =
        SYI_OUTPUT(reordered_rows, 0, ROWS + 1, 1, SYI_MAX_RANK, "N ...", "the chunks expert by expert"),
    [OUT_EXTRA] = SYI_OPTIONAL_OUTPUT(reordered_extra, 0, EXTRA + 1, 1, SYI_MAX_RANK, "N ...",
                                      "when extra is given", .with = EXTRA + 1),
    [OFFSETS] = SYI_OPTIONAL_OUTPUT(expert_offsets, SYI_I64, 0, 1, 1, "E+1", "first row of each expert"),
    SYI_SCALAR(inverse, BOOL, .help = "from the order by expert to the order by rank"),
};

/* A tensor is as many rows as its first dimension says. */
static void set_tails(struct syi_call *call)
{
    static const int with_rows[] = {ROWS, EXTRA, OUT_ROWS, OUT_EXTRA};
    for (size_t i = 0; i < sizeof with_rows / sizeof *with_rows; i++)
        if (call->tensor[with_rows[i]] != NULL)
            call->tail[with_rows[i]] = (uint8_t)(call->tensor[with_rows[i]]->ndim - 1);
}

static sy_status bind(struct syi_call *call)
{
    const int64_t n = syi_extent(call, ROWS, 0), extra = syi_extent(call, EXTRA, 0);
    syi_bind(call, 'N', n);
    if (call->tensor[EXTRA] == NULL || n == extra)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_SHAPE, "extra", extra, n, "has %lld rows, want %lld, as rows has");
}

/* An output has the shape of its input. */
static sy_status check_like(struct syi_call *call, int out, int in)
{
    const DLTensor *t = call->tensor[in];
    return t != NULL ? syi_check_shape(call, out, t->ndim, t->shape) : SY_OK;
}

/* Bytes of a row; all tensors can be counted, so only an unused product may overflow. */
static size_t row_bytes(const struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    int64_t bytes = t != NULL ? (int64_t)syi_elem_bytes(t->dtype) : 0;
    for (int d = 1; t != NULL && d < t->ndim; d++)
        if (!syi_mul(bytes, t->shape[d], &bytes))
            return 0;
    return (size_t)bytes;
}

static sy_status check_values(struct syi_call *call)
{
    SYI_TRY(syi_check_count(call, "counts", "ranks", syi_bound(call, 'R')));
    return syi_check_count(call, "counts", "experts", syi_bound(call, 'E'));
}

static sy_status check_outputs(struct syi_call *call)
{
    SYI_TRY(check_like(call, OUT_ROWS, ROWS));
    SYI_TRY(check_like(call, OUT_EXTRA, EXTRA));
    SYI_TRY(syi_check_shapes(call, OFFSETS, OFFSETS + 1));
    set_tails(call);
    return SY_OK;
}

static void plan_reorder(struct syi_call *call)
{
    struct syi_moe_reorder_chunks_plan *plan = syi_bind_plan(call, "NRE");
    plan->row_bytes = row_bytes(call, ROWS);
    plan->extra_bytes = row_bytes(call, EXTRA);
    call->rows = plan->n_rows;
}

static const struct syi_steps own = {
    .bind = bind,
    .values = check_values,
    .outputs = check_outputs,
    .plan = plan_reorder,
    .late = 1u << ROWS | 1u << EXTRA,
};

SYI_DEFINE_PLANNED(moe_reorder_chunks, MOE_REORDER_CHUNKS,
                   "group rows by expert after an exchange between ranks, and back", offsets, 0)
