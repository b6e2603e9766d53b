/*
 * moe_map_physical: check and plan.
 */
#include "ops/call.h"

enum { IDS, TABLE, REPLICAS, BEFORE, PHYSICAL, LOAD, LOGICAL, N_TENSORS };

#define ID_TYPES (SYI_INDEX_TYPES | SYI_BIT(SY_TYPE_U16))

static const sy_field_info fields[] = {
    [IDS] = SYI_TENSOR(moe_map_physical, ids, 0, ID_TYPES, 0, 2, 2, "T K", "logical experts of each token"),
    [TABLE] = SYI_TENSOR(moe_map_physical, logical_to_physical, 0, SYI_BIT(SY_TYPE_I32), 0, 2, 2, "E R",
                         "replicas of each expert, then -1"),
    [REPLICAS] = SYI_TENSOR(moe_map_physical, replica_count, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I32), 0, 1, 1,
                            "E", "how many replicas; missing: entries before the first negative one"),
    [BEFORE] = SYI_TENSOR(moe_map_physical, counts_before, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I64), 0, 1, 1,
                          "E", "balanced: slots of earlier tokens; missing: 0"),
    [PHYSICAL] = SYI_TENSOR(moe_map_physical, physical_ids, SY_FIELD_OUT | SY_FIELD_OPTIONAL, ID_TYPES, 0, 2,
                            2, "T K", "physical expert of each slot; -1: none", .preset = "i32"),
    [LOAD] = SYI_TENSOR(moe_map_physical, load, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_KEEPS,
                        SYI_BIT(SY_TYPE_I64), 0, 1, 1, "P", "slots of each physical expert are added to it"),
    [LOGICAL] =
        SYI_TENSOR(moe_map_physical, logical_load, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_KEEPS,
                   SYI_BIT(SY_TYPE_I64), 0, 1, 1, "E", "slots of each logical expert are added to it"),
    SYI_SCALAR(moe_map_physical, num_physical, I64, SY_FIELD_REQUIRED, .range = "P: 0..i32",
               .help = "P: physical experts"),
    SYI_SCALAR(moe_map_physical, rule, ENUM, .words = "first round_robin hash balanced local",
               .help = "which replica of an expert"),
    SYI_SCALAR(moe_map_physical, token_base, I64, .range = "0..", .help = "number of the first token"),
    SYI_SCALAR(moe_map_physical, device, I64, .help = "local: the device of the tokens"),
    SYI_SCALAR(moe_map_physical, devices, I64, .help = "local: how many there are"),
    SYI_SCALAR(moe_map_physical, node_size, I64, .range = "0..",
               .help = "local: devices of a node; 0: nodes do not matter"),
    SYI_SCALAR(moe_map_physical, allow_missing, BOOL, .help = "ids -1 and E mean no expert"),
};

static sy_status check_local(struct syi_call *call)
{
    const sy_moe_map_physical_args *a = &call->args.moe_map_physical;
    sy_status st = syi_check_value(call, "devices", a->devices, 1, INT64_MAX);
    if (st == SY_OK)
        st = syi_check_value(call, "device", a->device, 0, a->devices - 1);
    if (st != SY_OK || a->num_physical % a->devices == 0)
        return st;
    const sy_fault fault =
        syi_value_fault(SY_ERR_VALUE, SY_FAULT_NONE, "devices", a->devices, a->num_physical);
    return syi_fail_at(call->ctx, &fault, "is %lld, want a divisor of num_physical, which is %lld",
                       (long long)fault.value, (long long)fault.limit);
}

static sy_status check_values(struct syi_call *call)
{
    const sy_moe_map_physical_args *a = &call->args.moe_map_physical;
    const bool narrow = call->tensor[PHYSICAL] != NULL && syi_type_at(call, PHYSICAL) == SY_TYPE_U16;
    sy_status st = syi_check_scalars(call, N_TENSORS, N_TENSORS + 1);
    if (st == SY_OK && narrow && a->num_physical > UINT16_MAX)
        return syi_fail(call->ctx, SY_ERR_DTYPE, "physical_ids",
                        "is u16, want i32 or i64 for a num_physical above 65535");
    if (st == SY_OK)
        st = syi_check_scalars(call, N_TENSORS + 1, call->op->info.n_fields);
    if (st == SY_OK && a->counts_before != NULL && a->rule != SY_REPLICA_BALANCED)
        return syi_fail(call->ctx, SY_ERR_VALUE, "counts_before",
                        "is given with another rule, want rule BALANCED");
    return st == SY_OK && a->rule == SY_REPLICA_LOCAL ? check_local(call) : st;
}

static void plan(struct syi_call *call)
{
    struct syi_moe_map_physical_plan *p = syi_bind_plan(call);
    p->n_tokens = syi_bound(call, 'T');
    p->n_slots = syi_bound(call, 'K');
    p->n_experts = syi_bound(call, 'E');
    p->n_replicas = syi_bound(call, 'R');
    p->n_physical = p->args.num_physical;
    p->per_device = p->args.rule == SY_REPLICA_LOCAL ? p->n_physical / p->args.devices : 0;
    call->rows = p->n_tokens * p->n_slots;
    call->bytes = syi_tensor_bytes(call);
}

static const struct syi_steps own = {.given = syi_check_some_output, .values = check_values, .plan = plan};

SYI_DEFINE_BOUND(moe_map_physical, MOE_MAP_PHYSICAL, "choose a replica of the expert of every slot",
                 logical_load, 0)
