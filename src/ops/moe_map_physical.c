/*
 * moe_map_physical: check and plan.
 */
#include "ops/call.h"

enum { IDS, TABLE, REPLICAS, BEFORE, PHYSICAL, LOAD, LOGICAL, N_TENSORS };

#define ID_TYPES (SYI_INDEX_TYPES | SYI_U16)

#define OPERATOR moe_map_physical

static const sy_field_info fields[] = {
    [IDS] = SYI_INPUT(ids, ID_TYPES, 0, 2, 2, "T K", "logical experts of each token"),
    [TABLE] = SYI_INPUT(logical_to_physical, SYI_I32, 0, 2, 2, "E R", "replicas of each expert, then -1"),
    [REPLICAS] = SYI_OPTIONAL(replica_count, SYI_I32, 0, 1, 1, "E",
                              "how many replicas; missing: entries before the first negative one"),
    [BEFORE] =
        SYI_OPTIONAL(counts_before, SYI_I64, 0, 1, 1, "E", "balanced: slots of earlier tokens; missing: 0"),
    [PHYSICAL] = SYI_OPTIONAL_OUTPUT(physical_ids, ID_TYPES, 0, 2, 2, "T K",
                                     "physical expert of each slot; -1: none", .preset = "i32"),
    [LOAD] = SYI_TENSOR(load, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_KEEPS, SYI_I64, 0, 1, 1, "P",
                        "slots of each physical expert are added to it"),
    [LOGICAL] = SYI_TENSOR(logical_load, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_KEEPS, SYI_I64, 0, 1, 1,
                           "E", "slots of each logical expert are added to it"),
    SYI_SCALAR(num_physical, I64, SY_FIELD_REQUIRED, .range = "P: 0..i32", .help = "P: physical experts"),
    SYI_SCALAR(rule, ENUM, .words = "first round_robin hash balanced local",
               .help = "which replica of an expert"),
    SYI_SCALAR(token_base, I64, .range = "0..", .help = "number of the first token"),
    SYI_SCALAR(device, I64, .help = "local: the device of the tokens"),
    SYI_SCALAR(devices, I64, .help = "local: how many there are"),
    SYI_SCALAR(node_size, I64, .range = "0..", .help = "local: devices of a node; 0: nodes do not matter"),
    SYI_SCALAR(allow_missing, BOOL, .help = "ids -1 and E mean no expert"),
};

static sy_status check_local(struct syi_call *call)
{
    const sy_moe_map_physical_args *a = &call->args.moe_map_physical;
    SYI_TRY(syi_check_value(call, "devices", a->devices, 1, INT64_MAX));
    SYI_TRY(syi_check_value(call, "device", a->device, 0, a->devices - 1));
    if (a->num_physical % a->devices == 0)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_VALUE, "devices", a->devices, a->num_physical,
                          "is %lld, want a divisor of num_physical, which is %lld");
}

static sy_status check_values(struct syi_call *call)
{
    const sy_moe_map_physical_args *a = &call->args.moe_map_physical;
    const bool narrow = call->tensor[PHYSICAL] != NULL && syi_type_at(call, PHYSICAL) == SY_TYPE_U16;
    SYI_TRY(syi_check_scalars(call, N_TENSORS, N_TENSORS + 1));
    if (narrow && a->num_physical > UINT16_MAX)
        return syi_fail(call->ctx, SY_ERR_DTYPE, "physical_ids",
                        "is u16, want i32 or i64 for a num_physical above 65535");
    SYI_TRY(syi_check_scalars(call, N_TENSORS + 1, call->op->info.n_fields));
    if (a->counts_before != NULL && a->rule != SY_REPLICA_BALANCED)
        return syi_fail(call->ctx, SY_ERR_VALUE, "counts_before",
                        "is given with another rule, want rule BALANCED");
    return a->rule == SY_REPLICA_LOCAL ? check_local(call) : SY_OK;
}

static void plan(struct syi_call *call)
{
    struct syi_moe_map_physical_plan *p = syi_bind_plan(call, "TKERP");
    p->per_device = p->args.rule == SY_REPLICA_LOCAL ? p->n_physical / p->args.devices : 0;
    call->rows = p->n_tokens * p->n_slots;
}

static const struct syi_steps own = {.together = syi_check_some_output, .values = check_values, .plan = plan};

SYI_DEFINE_PLANNED(moe_map_physical, MOE_MAP_PHYSICAL, "choose a replica of the expert of every slot",
                   logical_load, 0)
