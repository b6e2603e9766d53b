/*
 * local_reduce: check and plan.
 */
#include "ops/row_codes.h"

enum { INPUT, METADATA, MAPPING, WEIGHTS, SCALES, OUTPUT, N_TENSORS };
enum { MOST_DEVICES = 65536 };

#define OPERATOR local_reduce

static const sy_field_info fields[] = {
    [INPUT] = SYI_INPUT(input, SYI_FLOAT_TYPES, 0, 2, 4, "L T H | L Bt St H",
                        "rows of its experts; layout expert: [R,H]"),
    [METADATA] = SYI_INPUT(expert_metadata, SYI_U16 | SYI_INDEX_TYPES, 0, 2, 4, "T K | 1 Bt St K",
                           "experts of every token; 65535 or -1: none"),
    [MAPPING] = SYI_INPUT(expert_mapping, SYI_U16, 0, 2, 4, "E D | 1 1 E D | D 1 E D",
                          "1 where device d hosts expert e"),
    [WEIGHTS] =
        SYI_OPTIONAL(weights, SYI_FLOAT_TYPES, 0, 2, 4, "T K | 1 Bt St K", "weight of each slot; missing: 1"),
    [SCALES] = SYI_OPTIONAL(input_scales, SYI_SCALE_TYPES, 0, 2, 4, "L T G | L Bt St G",
                            "with row_format: scales of the rows"),
    [OUTPUT] = SYI_TENSOR(output, SY_FIELD_OUT | SY_FIELD_KEEPS, 0, INPUT + 1, 2, 4, "T H | 1 Bt St H",
                          "the sum of each token; fill keep: old rows"),
    SYI_SCALAR(device, I64, .help = "the device whose rows these are"),
    SYI_SCALAR(fill, ENUM, .words = "zero keep", .help = "rows of tokens that choose none of its experts"),
    SYI_SCALAR(layout, ENUM, .words = "padded - expert",
               .help = "rows of all tokens, or only of those sent (output packed)"),
    SYI_SCALAR(align, I64, .preset = "1", .help = "rows of an expert are padded to a multiple"),
    SYI_SCALAR(output_concat_dim, INT, .help = "as in the dispatch; with layout expert, 0: 1, or replica"),
    SYI_SCALAR(order, ENUM, .words = "concat flat", .help = "as in the dispatch; with output_concat_dim 2"),
    SYI_SCALAR(group_size, I64, .help = "devices of the group; with output_concat_dim 2, or replica: 0: all"),
    SYI_SCALAR(replica, ENUM, .words = "all first round_robin hash balanced local",
               .help = "as in the dispatch: which hosts of an expert serve a choice"),
    SYI_SCALAR(node_size, I64, .help = "replica local: positions of a node; 0: nodes do not matter"),
    SYI_SCALAR(group_stride, I64, .preset = "1",
               .help = "with replica: from one device of a group to the next"),
    SYI_CODED_INPUT_FIELD,
    SYI_EXPERT_ROWS_FIELD,
};

static int64_t last_extent(const struct syi_call *call, int i)
{
    return syi_extent(call, i, call->tensor[i]->ndim - 1);
}

static sy_status check_rank(struct syi_call *call, int i, int one, int other)
{
    const int rank = call->tensor[i]->ndim;
    if (rank == one || rank == other)
        return SY_OK;
    if (one == other)
        return syi_fail_rank(call, i, one);
    return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, fields[i].name, rank, one,
                         "has rank %d, want %d or %d", rank, one, other);
}

/* Rows of n elements for every token: [T,n] or [1,Bt,St,n], or [L,T,n] or [L,Bt,St,n]. */
static sy_status check_tokens(struct syi_call *call, int i, bool by_expert, int64_t n_tokens, int64_t n)
{
    const DLTensor *t = call->tensor[i], *metadata = call->tensor[METADATA];
    int64_t product;
    if (t == NULL)
        return SY_OK;
    SYI_TRY(check_rank(call, i, by_expert ? 3 : 2, 4));
    if (t->ndim == 2)
        return syi_check_matrix(call, i, n_tokens, n);
    const int64_t first = by_expert ? t->shape[0] : 1;
    if (t->ndim == 3)
        return syi_check_shape(call, i, 3, (int64_t[]){first, n_tokens, n});
    int64_t want[4] = {first, 1, n_tokens, n};
    if (metadata->ndim == 4 || (syi_mul(t->shape[1], t->shape[2], &product) && product == n_tokens))
        memcpy(want + 1, (metadata->ndim == 4 ? metadata : t)->shape + 1, 2 * sizeof *want);
    return syi_check_shape(call, i, 4, want);
}

static sy_status check_filled(struct syi_call *call, int i, const char *what, int64_t n, int64_t most)
{
    if (n >= 1 && n <= most)
        return SY_OK;
    if (n < 1)
        return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_EMPTY, fields[i].name, n, 1,
                             "has no %s, want at least 1", what);
    return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_NONE, fields[i].name, n, most,
                         "has %lld %s, want at most %lld", (long long)n, what, (long long)most);
}

/* [E,D], or copies of it. */
static sy_status check_mapping(struct syi_call *call, struct syi_local_reduce_plan *plan)
{
    const DLTensor *t = call->tensor[MAPPING];
    SYI_TRY(check_rank(call, MAPPING, 2, 4));
    const int64_t n_experts = t->shape[t->ndim - 2], n_devices = t->shape[t->ndim - 1];
    plan->n_experts = n_experts;
    plan->n_copies = t->ndim == 4 ? t->shape[0] : 1;
    if (t->ndim == 4)
        SYI_TRY(syi_check_shape(call, MAPPING, 4,
                                (int64_t[]){plan->n_copies == 1 ? 1 : n_devices, 1, n_experts, n_devices}));
    SYI_TRY(check_filled(call, MAPPING, "experts", n_experts, /* 65535 is no expert */
                         syi_type_at(call, METADATA) == SY_TYPE_U16 ? UINT16_MAX : INT32_MAX));
    SYI_TRY(check_filled(call, MAPPING, "devices", n_devices, MOST_DEVICES));
    plan->n_devices = (int)n_devices;
    return SY_OK;
}

static sy_status check_inputs(struct syi_call *call, struct syi_local_reduce_plan *plan,
                              struct syi_coded *coded)
{
    SYI_TRY(syi_coded_begin(call, coded));
    SYI_TRY(syi_check_tensors(call, false));
    SYI_TRY(syi_coded_check(call, coded));
    const DLTensor *metadata = call->tensor[METADATA];
    const bool by_expert = call->args.local_reduce.layout == SY_LAYOUT_EXPERT;
    plan->n_slots = last_extent(call, METADATA);
    plan->hidden = last_extent(call, INPUT);
    plan->n_tokens = metadata->shape[0];
    if (metadata->ndim == 4 && !syi_mul(metadata->shape[1], metadata->shape[2], &plan->n_tokens))
        plan->n_tokens = INT64_MAX;
    SYI_TRY(check_tokens(call, METADATA, false, plan->n_tokens, plan->n_slots));
    SYI_TRY(check_filled(call, METADATA, "slots", plan->n_slots, INT64_MAX));
    SYI_TRY(by_expert ? check_rank(call, INPUT, 2, 2)
                      : check_tokens(call, INPUT, true, plan->n_tokens, plan->hidden));
    SYI_TRY(syi_coded_scales(call, coded));
    SYI_TRY(check_filled(call, INPUT, "elements per row", plan->hidden, INT64_MAX));
    SYI_TRY(check_mapping(call, plan));
    return check_tokens(call, WEIGHTS, false, plan->n_tokens, plan->n_slots);
}

/* All rules but FIRST depend on the order in which the dispatch counted tokens. In a table of rank 4 only the caller knows it;
   rows by expert are stored in it, so that layout has a default. */
static sy_status check_concat_dim(struct syi_call *call)
{
    const sy_local_reduce_args *a = &call->args.local_reduce;
    if (a->output_concat_dim != 0 || a->layout != SY_LAYOUT_PADDED || call->tensor[METADATA]->ndim != 4 ||
        a->replica == SY_A2A_REPLICA_ALL || a->replica == SY_A2A_REPLICA_FIRST)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_VALUE, "output_concat_dim", 0, 1,
                          "is 0, want that of the dispatch, 1 or 2: it decides which host serves a choice");
}

/* Whether rows by position are not rows by token, and then G and S. */
static sy_status check_order(struct syi_call *call, struct syi_local_reduce_plan *plan)
{
    const sy_local_reduce_args *a = &call->args.local_reduce;
    plan->n_positions = 1;
    const bool ordered = a->layout == SY_LAYOUT_EXPERT || a->replica != SY_A2A_REPLICA_ALL;
    if (!ordered || a->output_concat_dim != 2 || a->order != SY_ORDER_CONCAT)
        return SY_OK;
    if (call->tensor[METADATA]->ndim != 4)
        return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, fields[METADATA].name, 2, 4,
                             "has rank 2, want 4 with output_concat_dim 2");
    const int64_t n_sequence = syi_extent(call, METADATA, 2);
    SYI_TRY(syi_check_value(call, "group_size", a->group_size, 1, MOST_DEVICES));
    if (n_sequence % a->group_size != 0)
        return syi_fail_value(call, SY_ERR_VALUE, "group_size", a->group_size, n_sequence,
                              "is %lld, want a divisor of %lld, the tokens of a batch row");
    if (plan->n_tokens > 0) {
        plan->n_positions = a->group_size;
        plan->interleave = n_sequence / a->group_size;
    }
    return SY_OK;
}

/* The mesh and its groups, by which the dispatch chose one host for each choice. */
static sy_status check_replica(struct syi_call *call, struct syi_local_reduce_plan *plan)
{
    const sy_local_reduce_args *a = &call->args.local_reduce;
    SYI_TRY(syi_check_enum(call, "replica", (int)a->replica));
    SYI_TRY(syi_check_value(call, "node_size", a->node_size, 0, INT64_MAX));
    SYI_TRY(syi_check_value(call, "group_stride", a->group_stride, 0, INT64_MAX));
    if (a->replica == SY_A2A_REPLICA_ALL)
        return SY_OK;
    const int64_t size = a->group_size > 0 ? a->group_size : plan->n_devices;
    if (plan->n_devices % size != 0)
        return syi_fail_value(call, SY_ERR_VALUE, "group_size", size, plan->n_devices,
                              "is %lld, want a divisor of the %lld devices");
    const int64_t others = plan->n_devices / size;
    const bool rows = a->group_stride <= 1;
    if (!rows && a->group_stride != others)
        return syi_fail_value(call, SY_ERR_VALUE, "group_stride", a->group_stride, others,
                              "is %lld, want 1, or %lld for columns of this size");
    if (a->node_size > 0 && size % a->node_size != 0)
        return syi_fail_value(call, SY_ERR_VALUE, "node_size", a->node_size, size,
                              "is %lld, want a divisor of %lld, the devices of a group");
    if (a->replica == SY_A2A_REPLICA_LOCAL && plan->n_tokens % size != 0)
        return syi_fail_value(call, SY_ERR_SHAPE, fields[METADATA].name, plan->n_tokens, size,
                              "has %lld tokens, want a multiple of the %lld devices of a group");
    plan->rule = (struct syi_a2a_rule){a->replica, (int)a->node_size};
    plan->axis = rows ? SY_AXIS_1 : SY_AXIS_0;
    plan->mesh = rows ? (sy_mesh){(int)others, (int)size} : (sy_mesh){(int)size, (int)others};
    plan->per_position = a->replica == SY_A2A_REPLICA_LOCAL ? plan->n_tokens / size : plan->n_tokens;
    return SY_OK;
}

static sy_status check_values(struct syi_call *call, struct syi_local_reduce_plan *plan)
{
    const sy_local_reduce_args *a = &call->args.local_reduce;
    SYI_TRY(syi_check_value(call, "device", a->device, 0, plan->n_devices - 1));
    SYI_TRY(syi_check_enum(call, "fill", (int)a->fill));
    SYI_TRY(syi_check_enum(call, "layout", (int)a->layout));
    if (a->layout == SY_LAYOUT_PACKED)
        return syi_fail(call->ctx, SY_ERR_VALUE, "layout",
                        "is PACKED, want PADDED or EXPERT: a packed row is a sum");
    SYI_TRY(syi_check_value(call, "align", a->align, 0, INT32_MAX));
    SYI_TRY(syi_check_expert_rows(call, a->expert_rows, a->layout, a->align));
    SYI_TRY(syi_check_value(call, "output_concat_dim", a->output_concat_dim, 0, 2));
    SYI_TRY(syi_check_enum(call, "order", (int)a->order));
    SYI_TRY(syi_check_value(call, "group_size", a->group_size, 0, MOST_DEVICES));
    SYI_TRY(check_replica(call, plan));
    SYI_TRY(check_concat_dim(call));
    SYI_TRY(check_order(call, plan));
    return syi_check_count(call, "expert_metadata", "tokens", plan->n_tokens);
}

/* Rows of the input have int32 numbers, and so have pairs of experts and hosts. */
static sy_status check_rows(struct syi_call *call, struct syi_local_reduce_plan *plan)
{
    int64_t n_rows = syi_extent(call, INPUT, 0);
    if (call->args.local_reduce.layout == SY_LAYOUT_PADDED && !syi_mul(n_rows, plan->n_tokens, &n_rows))
        n_rows = INT64_MAX;
    int64_t pairs = 0;
    if (plan->rule.replica != SY_A2A_REPLICA_ALL && !syi_mul(plan->n_experts, plan->n_devices, &pairs))
        pairs = INT64_MAX;
    SYI_TRY(syi_check_count(call, "input", "rows", n_rows));
    return syi_check_count(call, "expert_mapping", "entries", pairs);
}

static sy_status check_output(struct syi_call *call, const struct syi_local_reduce_plan *plan)
{
    const DLTensor *metadata = call->tensor[METADATA];
    const bool padded = call->args.local_reduce.layout == SY_LAYOUT_PADDED;
    if (call->tensor[OUTPUT] == NULL && padded && metadata->ndim == 4) {
        const int64_t like[4] = {1, metadata->shape[1], metadata->shape[2], plan->hidden};
        return syi_check_shape(call, OUTPUT, 4, like);
    }
    if (call->tensor[OUTPUT] == NULL)
        return syi_check_matrix(call, OUTPUT, plan->n_tokens, plan->hidden);
    if (padded)
        return check_tokens(call, OUTPUT, false, plan->n_tokens, plan->hidden);
    SYI_TRY(check_rank(call, OUTPUT, 2, 2));
    return syi_check_matrix(call, OUTPUT, syi_extent(call, OUTPUT, 0), plan->hidden);
}

static sy_status check(struct syi_call *call)
{
    const sy_local_reduce_args *a = &call->args.local_reduce;
    struct syi_local_reduce_plan *plan = &call->plan.local_reduce;
    struct syi_coded coded = {.given = a->row_format, .dense = OUTPUT, .codes = INPUT, .scales = SCALES};
    SYI_TRY(check_inputs(call, plan, &coded));
    SYI_TRY(check_values(call, plan));
    SYI_TRY(check_rows(call, plan));
    SYI_TRY(syi_check_sizes(call));
    SYI_TRY(check_output(call, plan));
    SYI_TRY(syi_check_layout(call));
    syi_bind_plan(call, "");
    plan->device = (int)a->device;
    plan->align = a->align > 0 ? a->align : 1;
    plan->in_rows = syi_extent(call, INPUT, 0);
    plan->out_rows = syi_extent(call, OUTPUT, 0);
    plan->type = coded.given == NULL ? plan->input.type : syi_coded_type(call, &coded);
    plan->codes = syi_coded_plan(call, &coded, 0);
    plan->metadata_field = METADATA;
    call->rows = plan->n_tokens;
    return SY_OK;
}

SYI_ASSERT_PLANNED(local_reduce, output, 0);
SYI_DEFINE_OP(local_reduce, LOCAL_REDUCE,
              "sum the expert rows of one device for each token, for all_to_all_combine")
