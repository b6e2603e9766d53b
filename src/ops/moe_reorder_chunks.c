/*
 * moe_reorder_chunks: check and plan.
 */
#include "ops/call.h"

enum { ROWS, COUNTS, EXTRA, OUT_ROWS, OUT_EXTRA, OFFSETS, N_TENSORS };

static const sy_field_info fields[] = {
    [ROWS] = SYI_TENSOR(moe_reorder_chunks, rows, SY_FIELD_ANY_BYTES, 0, 0, 1, SYI_MAX_RANK, "N ...",
                        "chunks of rows, rank by rank"),
    [COUNTS] = SYI_TENSOR(moe_reorder_chunks, counts, 0, SYI_INDEX_TYPES, 0, 2, 2, "R E",
                          "rows of each rank and expert"),
    [EXTRA] = SYI_TENSOR(moe_reorder_chunks, extra, SY_FIELD_OPTIONAL | SY_FIELD_ANY_BYTES, 0, 0, 1,
                         SYI_MAX_RANK, "N ...", "moved like the rows: probs, scales"),
    [OUT_ROWS] = SYI_TENSOR(moe_reorder_chunks, reordered_rows, SY_FIELD_OUT, 0, ROWS + 1, 1, SYI_MAX_RANK,
                            "N ...", "the chunks expert by expert"),
    [OUT_EXTRA] = SYI_TENSOR(moe_reorder_chunks, reordered_extra, SY_FIELD_OUT | SY_FIELD_OPTIONAL, 0,
                             EXTRA + 1, 1, SYI_MAX_RANK, "N ...", "when extra is given", .with = EXTRA + 1),
    [OFFSETS] = SYI_TENSOR(moe_reorder_chunks, expert_offsets, SY_FIELD_OUT | SY_FIELD_OPTIONAL,
                           SYI_BIT(SY_TYPE_I64), 0, 1, 1, "E+1", "first row of each expert"),
    SYI_SCALAR(moe_reorder_chunks, inverse, BOOL, .help = "from the order by expert to the order by rank"),
};

/* A tensor is as many rows as its first dimension says. */
static void set_tails(struct syi_call *call)
{
    static const int with_rows[] = {ROWS, EXTRA, OUT_ROWS, OUT_EXTRA};
    for (size_t i = 0; i < sizeof with_rows / sizeof *with_rows; i++)
        if (call->tensor[with_rows[i]] != NULL)
            call->tail[with_rows[i]] = call->tensor[with_rows[i]]->ndim - 1;
}

static sy_status check_extra(struct syi_call *call)
{
    if (call->tensor[EXTRA] == NULL)
        return SY_OK;
    const int64_t n = syi_extent(call, ROWS, 0), extra = syi_extent(call, EXTRA, 0);
    if (n == extra)
        return SY_OK;
    const sy_fault fault = syi_value_fault(SY_ERR_SHAPE, SY_FAULT_NONE, "extra", extra, n);
    return syi_fail_at(call->ctx, &fault, "has %lld rows, want %lld, as rows has", (long long)extra,
                       (long long)n);
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
    const sy_status st = syi_check_count(call, "counts", "ranks", syi_bound(call, 'R'));
    return st == SY_OK ? syi_check_count(call, "counts", "experts", syi_bound(call, 'E')) : st;
}

static sy_status check_outputs(struct syi_call *call)
{
    sy_status st = check_like(call, OUT_ROWS, ROWS);
    if (st == SY_OK)
        st = check_like(call, OUT_EXTRA, EXTRA);
    if (st == SY_OK)
        st = syi_check_shapes(call, OFFSETS, OFFSETS + 1);
    set_tails(call);
    return st;
}

static void plan(struct syi_call *call)
{
    call->plan.moe_reorder_chunks = (struct syi_moe_reorder_chunks_plan){
        .n_rows = syi_extent(call, ROWS, 0),
        .n_ranks = syi_extent(call, COUNTS, 0),
        .n_experts = syi_extent(call, COUNTS, 1),
        .inverse = call->args.moe_reorder_chunks.inverse,
        .counts = syi_rows_of(call, COUNTS),
        .count_type = syi_type_at(call, COUNTS),
        .part = {{syi_rows_of(call, ROWS), syi_rows_of(call, OUT_ROWS), row_bytes(call, ROWS)},
                 {syi_rows_of(call, EXTRA), syi_rows_of(call, OUT_EXTRA), row_bytes(call, EXTRA)}},
        .offsets = syi_data(call, OFFSETS),
    };
    call->rows = syi_extent(call, ROWS, 0);
    call->bytes = syi_tensor_bytes(call);
}

static const struct syi_steps own = {
    .bind = check_extra,
    .values = check_values,
    .outputs = check_outputs,
    .plan = plan,
    .late = 1u << ROWS | 1u << EXTRA,
};

SYI_DEFINE_DESCRIBED(moe_reorder_chunks, MOE_REORDER_CHUNKS,
                     "group rows by expert after an exchange between ranks, and back")
