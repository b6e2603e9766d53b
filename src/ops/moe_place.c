/*
 * moe_place: check and plan.
 */
#include "ops/call.h"

enum { LOADS, PREVIOUS, LOGICAL, PHYSICAL, COUNT, LOAD, MAPPING, N_TENSORS };

#define OUT (SY_FIELD_OUT | SY_FIELD_OPTIONAL)

#define OPERATOR moe_place

static const sy_field_info fields[] = {
    [LOADS] = SYI_INPUT(loads, SYI_I64, 0, 2, 2, "L E", "load of each expert"),
    [PREVIOUS] =
        SYI_OPTIONAL(previous, SYI_I32, 0, 2, 2, "L P", "experts of an earlier call; they keep their places"),
    [LOGICAL] = SYI_TENSOR(physical_to_logical, OUT, SYI_INDEX_TYPES, 0, 2, 2, "L P",
                           "expert of each physical one", .preset = "i32"),
    [PHYSICAL] = SYI_TENSOR(logical_to_physical, OUT, SYI_INDEX_TYPES, 0, 3, 3, "L E R",
                            "replicas of each expert, then -1", .preset = "i32"),
    [COUNT] = SYI_TENSOR(replica_count, OUT, SYI_INDEX_TYPES, 0, 2, 2, "L E",
                         "how many replicas each expert has", .preset = "i32"),
    [LOAD] = SYI_TENSOR(device_load, OUT, SYI_I64, 0, 2, 2, "L D", "load of each device, in units of 2^-24"),
    [MAPPING] =
        SYI_TENSOR(expert_mapping, OUT, SYI_U16, 0, 2, 2, "P D", "1 where a device hosts a physical expert"),
    SYI_SCALAR(num_physical, I64, SY_FIELD_REQUIRED, .help = "P: physical experts"),
    SYI_SCALAR(devices, I64, SY_FIELD_REQUIRED, .help = "D: each has P/D of them"),
    SYI_SCALAR(nodes, I64, .preset = "1", .help = "each has D/nodes devices"),
    SYI_SCALAR(groups, I64, .help = "of neighbouring experts, each on one node; 0: none"),
    SYI_SCALAR(distinct, BOOL, .help = "no two replicas of an expert on one device"),
};

/* value divides n, which is named. */
static sy_status check_divisor(struct syi_call *call, const char *field, int64_t value, const char *name,
                               int64_t n)
{
    if (n % value == 0)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_NONE, field, value, n,
                         "is %lld, want a divisor of %s, %lld", (long long)value, name, (long long)n);
}

static sy_status check_distinct(struct syi_call *call, const struct syi_moe_place_plan *plan)
{
    int64_t most;
    if (!call->args.moe_place.distinct || !syi_mul(plan->n_experts, plan->n_devices / plan->n_nodes, &most) ||
        plan->n_physical <= most)
        return SY_OK;
    return syi_fail_value(
        call, SY_ERR_VALUE, "num_physical", plan->n_physical, most,
        "is %lld with distinct, want at most %lld: a replica of each expert on each device");
}

static sy_status check_options(struct syi_call *call, struct syi_moe_place_plan *plan)
{
    const sy_moe_place_args *a = &call->args.moe_place;
    const int64_t nodes = a->nodes > 0 ? a->nodes : 1;
    SYI_TRY(syi_check_value(call, "devices", a->devices, 1, INT64_MAX));
    SYI_TRY(syi_check_value(call, "num_physical", a->num_physical, plan->n_experts, INT64_MAX));
    SYI_TRY(check_divisor(call, "devices", a->devices, "num_physical", a->num_physical));
    SYI_TRY(syi_check_value(call, "nodes", a->nodes, 0, INT64_MAX));
    SYI_TRY(check_divisor(call, "nodes", nodes, "devices", a->devices));
    SYI_TRY(syi_check_value(call, "groups", a->groups, 0, INT64_MAX));
    if (a->groups > 0)
        SYI_TRY(check_divisor(call, "groups", a->groups, "the experts", plan->n_experts));
    const bool by_node = a->groups > 0 && a->groups % nodes == 0;
    plan->n_physical = a->num_physical;
    plan->n_devices = a->devices;
    plan->n_nodes = by_node ? nodes : 1;
    plan->n_groups = by_node ? a->groups : 0;
    SYI_TRY(check_distinct(call, plan));
    if (a->num_physical <= INT32_MAX)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_OVERFLOW, "num_physical", a->num_physical, INT32_MAX,
                          "is %lld, want at most %lld");
}

static sy_status bind(struct syi_call *call)
{
    struct syi_moe_place_plan *plan = &call->plan.moe_place;
    const int64_t physical = call->args.moe_place.num_physical;
    plan->n_layers = syi_extent(call, LOADS, 0);
    plan->n_experts = syi_extent(call, LOADS, 1);
    syi_bind(call, 'P', physical > 0 ? physical : 0);
    if (plan->n_experts > 0)
        return SY_OK;
    return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, "loads", 0, 1,
                         "has no experts, want at least 1");
}

/* No tensor of a query need have as many elements. */
static sy_status check_places(struct syi_call *call, const struct syi_moe_place_plan *plan)
{
    if (syi_mul(plan->n_layers, plan->n_physical, &call->rows))
        return SY_OK;
    return syi_fail_with(
        call->ctx, SY_ERR_OVERFLOW, SY_FAULT_NONE, "loads", plan->n_layers, INT64_MAX / plan->n_physical,
        "has %lld layers, want at most %lld with num_physical %lld", (long long)plan->n_layers,
        (long long)INT64_MAX / plan->n_physical, (long long)plan->n_physical);
}

static sy_status check_values(struct syi_call *call)
{
    struct syi_moe_place_plan *plan = &call->plan.moe_place;
    SYI_TRY(check_options(call, plan));
    const DLTensor *table = call->tensor[PHYSICAL];
    plan->n_replicas = table != NULL ? table->shape[2] : plan->n_physical - plan->n_experts + 1;
    syi_bind(call, 'R', plan->n_replicas);
    syi_bind(call, 'D', plan->n_devices);
    return check_places(call, plan);
}

static void plan_place(struct syi_call *call)
{
    struct syi_moe_place_plan *p = syi_bind_plan(call, "");
    call->slots = p->n_physical - p->n_experts + 1;
}

static const struct syi_steps own = {
    .together = syi_check_some_output, .bind = bind, .values = check_values, .plan = plan_place};

SYI_DEFINE_PLANNED(moe_place, MOE_PLACE, "give experts replicas by their loads and place them on devices",
                   mapping, 0)
