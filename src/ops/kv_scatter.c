/*
 * kv_scatter: check and plan.
 */
#include "ops/kv.h"

enum { CACHE, SRC, SLOTS, SCALE, GLOBAL, SCALE_OUT, N_TENSORS };

#define OPERATOR kv_scatter

static const sy_field_info fields[] = {
    [CACHE] =
        SYI_TENSOR(cache, SY_FIELD_OUT | SY_FIELD_INOUT | SY_FIELD_ANY_BYTES | SY_FIELD_OWN_STRIDES, 0, 0, 2,
                   SYI_MAX_RANK, "rows D | blocks S D...", "rows, or blocks; layout hnd: [blocks,H,S,D...]"),
    [SRC] = SYI_INPUT(src, 0, CACHE + 1, 2, 2 * SYI_MAX_RANK, "... D...", "one row for each slot"),
    [SLOTS] = SYI_INPUT(slots, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "...", "where each row goes"),
    /* One for all rows is read, one for each is written. */
    [SCALE] = SYI_OPTIONAL(scale, SYI_KV_SCALE_TYPES, 0, 1, 3, "G | rows G | blocks S G",
                           "of e4m3 and the like: read as [G], else written"),
    [GLOBAL] = SYI_KV_GLOBAL_FIELD,
    [SCALE_OUT] = SYI_TENSOR(scale, SY_FIELD_OUT | SY_FIELD_INOUT | SY_FIELD_OPTIONAL | SY_FIELD_AGAIN,
                             SYI_KV_SCALE_TYPES, 0, 1, 3, "G | rows G | blocks S G",
                             "of e4m3 and the like: read as [G], else written"),
    SYI_SCALAR(pad, ENUM, .words = "error - skip", .help = "a slot of -1: rejected, or its row is dropped"),
    SYI_SCALAR(check_unique, BOOL, .help = "reject a slot that is named twice"),
    SYI_KV_PLANE_FIELDS("cache src scale global_scale"),
    SYI_SCALAR(block_size, I64, .help = "S: rows per block, with format ds4_fp8, indexer_fp8"),
};

/* Where block_size is not given: S of the first cache that is not flat. Slots of flat caches are their rows. */
static sy_status find_block_size(struct syi_call *call, void *data)
{
    struct syi_kv_subject *subject = data;
    if (subject->block_size == 0)
        subject->block_size = syi_kv_rows_of_block(call, call->tensor[CACHE], subject->layout);
    return SY_OK;
}

static sy_status check_pad(struct syi_call *call)
{
    const int pad = (int)call->args.kv_scatter.pad;
    if (pad != SY_PAD_ZERO)
        return syi_check_enum(call, "pad", pad);
    return syi_fail_code(call, SY_ERR_VALUE, SY_FAULT_BAD_OPTION, "pad", pad, SY_PAD_SKIP,
                         "is ZERO, want ERROR or SKIP: there is no row to clear");
}

static sy_status check_inputs(struct syi_call *call, struct syi_kv_subject *subject)
{
    const sy_kv_scatter_args *a = &call->args.kv_scatter;
    SYI_TRY(syi_kv_check_caches(call, subject, NULL));
    SYI_TRY(syi_kv_check_dense(call, subject));
    SYI_TRY(syi_kv_check_options(call, subject));
    SYI_TRY(syi_check_value(call, "block_size", a->block_size, 0, INT64_MAX));
    return check_pad(call);
}

static sy_status check_overflow(struct syi_call *call, struct syi_kv_subject *subject)
{
    const DLTensor *slots = call->tensor[SLOTS];
    SYI_TRY(syi_check_sizes(call));
    syi_kv_product(slots, 0, slots->ndim, &subject->n); /* fits: the elements were counted */
    return syi_kv_check_volume(call, subject);
}

static sy_status check(struct syi_call *call)
{
    const sy_kv_scatter_args *a = &call->args.kv_scatter;
    struct syi_kv_scatter_plan *plan = &call->plan.kv_scatter;
    struct syi_kv_subject subject = SYI_KV_SUBJECT(SRC, SLOTS, SCALE_OUT);
    SYI_TRY(check_inputs(call, &subject));
    SYI_TRY(syi_for_every_plane(call, find_block_size, &subject));
    SYI_TRY(syi_kv_check_blocks(call, &subject));
    if (subject.block_size == 0)
        subject.block_size = 1;
    SYI_TRY(check_overflow(call, &subject));
    SYI_TRY(syi_kv_check_strides(call, &subject));
    plan->n = subject.n;
    plan->k = syi_extent(call, SLOTS, call->tensor[SLOTS]->ndim - 1);
    plan->slots = syi_tensor_of(call, SLOTS);
    plan->pad = a->pad;
    plan->check_unique = a->check_unique;
    call->rows = plan->n;
    call->bytes = (uint64_t)call->rows * (plan->planes.slot_bytes + syi_bytes_at(call, SLOTS));
    return syi_kv_view_planes(call, &subject);
}

SYI_DEFINE_OP(kv_scatter, KV_SCATTER, "write rows into a paged KV cache by slot")
