/*
 * moe_align_block: check and plan.
 */
#include "ops/call.h"

enum {
    IDS,
    EXPERT_MAP,
    SORTED,
    BLOCKS,
    PADDED,
    COUNTS,
    OFFSETS,
    N_TENSORS,
    NUM_EXPERTS = N_TENSORS,
    BLOCK_SIZE
};

#define OPERATOR moe_align_block

static const sy_field_info fields[] = {
    [IDS] = SYI_INPUT(ids, SYI_INDEX_TYPES, 0, 2, 2, "T K", "experts of each token"),
    [EXPERT_MAP] =
        SYI_OPTIONAL(expert_map, SYI_I32, 0, 1, 1, "E", "number of each expert on this rank; -1: on another"),
    [SORTED] = SYI_OUTPUT(sorted_slots, SYI_I32, 0, 1, 1, "P", "slots by expert; T*K: padding"),
    [BLOCKS] = SYI_OUTPUT(block_experts, SYI_I32, 0, 1, 1, "P/B", "expert of each block; -1: not in use"),
    [PADDED] = SYI_OUTPUT(num_padded, SYI_I32, 0, 1, 1, "1", "places in use, padding included"),
    [COUNTS] = SYI_OPTIONAL_OUTPUT(expert_counts, SYI_I64, 0, 1, 1, "E", "slots of each expert"),
    [OFFSETS] = SYI_OPTIONAL_OUTPUT(expert_offsets, SYI_I64, 0, 1, 1, "E+1", "first place of each expert"),
    [NUM_EXPERTS] =
        SYI_SCALAR(num_experts, I64, SY_FIELD_REQUIRED, .range = "E: 0..i32", .help = "E: experts"),
    [BLOCK_SIZE] = SYI_SCALAR(block_size, I64, SY_FIELD_REQUIRED, .range = "B: 1..i32",
                              .help = "B: every expert gets a multiple of it"),
    SYI_SCALAR(allow_missing, BOOL, .help = "ids -1 and E mean no expert"),
    SYI_SCALAR(skip_unmapped, BOOL, .help = "no places for experts of other ranks"),
};

static sy_status check_together(struct syi_call *call)
{
    const sy_moe_align_block_args *a = &call->args.moe_align_block;
    if (a->skip_unmapped && a->expert_map == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "expert_map",
                        "is missing while skip_unmapped is set, want a tensor");
    return SY_OK;
}

/* Ahead of the shape that it decides. */
static sy_status bind(struct syi_call *call)
{
    return syi_check_scalars(call, NUM_EXPERTS, NUM_EXPERTS + 1);
}

/* P: every slot has a place, every expert that can have a slot a block that is full but for one, and the whole is
   blocks. */
static sy_status check_values(struct syi_call *call)
{
    const sy_moe_align_block_args *a = &call->args.moe_align_block;
    int64_t total;
    if (!syi_mul(syi_bound(call, 'T'), syi_bound(call, 'K'), &total))
        total = INT64_MAX;
    SYI_TRY(syi_check_scalars(call, BLOCK_SIZE, BLOCK_SIZE + 1));
    SYI_TRY(syi_check_count(call, "ids", "slots", total));
    SYI_TRY(syi_check_count(call, "ids", "tokens", syi_bound(call, 'T')));
    const int64_t experts = a->num_experts < total ? a->num_experts : total;
    const int64_t most = (total + experts * (a->block_size - 1)) / a->block_size * a->block_size;
    syi_bind(call, 'P', most);
    return syi_check_count(call, "block_size", "places", most);
}

static sy_status check_length(struct syi_call *call, int i, int64_t least)
{
    const int64_t length = syi_extent(call, i, 0);
    if (call->tensor[i] == NULL)
        return syi_check_vector(call, i, least);
    if (length >= least)
        return SY_OK;
    const char *name = syi_name(call, i);
    return syi_fail_value(call, SY_ERR_SHAPE, name, length, least, "has %lld elements, want at least %lld");
}

static sy_status check_outputs(struct syi_call *call)
{
    const int64_t most = syi_bound(call, 'P');
    SYI_TRY(check_length(call, SORTED, most));
    SYI_TRY(check_length(call, BLOCKS, most / syi_bound(call, 'B')));
    return syi_check_shapes(call, PADDED, N_TENSORS);
}

static void plan(struct syi_call *call)
{
    struct syi_moe_align_block_plan *p = syi_bind_plan(call, "TKE");
    p->n_places = syi_extent(call, SORTED, 0);
    p->n_blocks = syi_extent(call, BLOCKS, 0);
    call->rows = syi_bound(call, 'P');
    call->slots = call->rows / p->args.block_size;
}

static const struct syi_steps own = {
    .together = check_together, .bind = bind, .values = check_values, .outputs = check_outputs, .plan = plan};

SYI_DEFINE_PLANNED(moe_align_block, MOE_ALIGN_BLOCK, "list the slots of each expert, padded to whole blocks",
                   offsets, 0)
