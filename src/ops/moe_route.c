/*
 * moe_route: check and plan. Nothing in a tensor's contents can be wrong, so every rejection is here.
 */
#include "ops/call.h"

#include <math.h>

enum { LOGITS, BIAS, FINISHED, IDS, WEIGHTS, MAP, PROBS, COUNTS, SCORES, N_TENSORS };

static const sy_field_info fields[] = {
    [LOGITS] =
        SYI_TENSOR(moe_route, logits, 0, SYI_FLOAT_TYPES, 0, 2, 2, "T E", "router logits of each token"),
    [BIAS] = SYI_TENSOR(moe_route, bias, SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_F32), 0, 1, 1, "E",
                        "added to the scores for the choice only"),
    [FINISHED] = SYI_TENSOR(moe_route, finished, SY_FIELD_OPTIONAL, SYI_BYTE_TYPES, 0, 1, 1, "T",
                            "not 0: the token chooses nothing"),
    [IDS] = SYI_TENSOR(moe_route, ids, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_INDEX_TYPES, 0, 2, 2, "T K",
                       "chosen experts; E for a finished token", .preset = "i32"),
    [WEIGHTS] = SYI_TENSOR(moe_route, weights, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_FLOAT_TYPES, 0, 2, 2,
                           "T K", "weights of the chosen experts", .preset = "f32"),
    [MAP] = SYI_TENSOR(moe_route, routing_map, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BYTE_TYPES, 0, 2, 2,
                       "T E", "1: token t goes to expert e", .preset = "bool"),
    [PROBS] = SYI_TENSOR(moe_route, probs, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_FLOAT_TYPES, 0, 2, 2, "T E",
                         "weight of each expert, 0 where not routed", .preset = "f32"),
    [COUNTS] = SYI_TENSOR(moe_route, counts, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_I64), 0, 1, 1,
                          "E", "tokens that chose each expert"),
    [SCORES] = SYI_TENSOR(moe_route, scores, SY_FIELD_OUT | SY_FIELD_OPTIONAL, SYI_BIT(SY_TYPE_F32), 0, 2, 2,
                          "T E", "scores of all experts"),
    SYI_SCALAR(moe_route, k, I64, SY_FIELD_REQUIRED, .help = "K: experts per token"),
    SYI_SCALAR(moe_route, score, ENUM, .words = "softmax sigmoid none",
               .help = "score of a logit; none: the logit itself"),
    SYI_SCALAR(moe_route, softmax_after, BOOL, .help = "weights are the softmax of the chosen logits"),
    SYI_SCALAR(moe_route, groups, I64, .help = "groups of neighbouring experts; 0: none"),
    SYI_SCALAR(moe_route, top_groups, I64, .help = "groups whose experts may be chosen"),
    SYI_SCALAR(moe_route, group_score, ENUM, .words = "max sum2",
               .help = "score of a group: its largest value, or the sum of its two largest"),
    SYI_SCALAR(moe_route, slot_order, ENUM, .words = "value expert",
               .help = "order of a token's experts: largest value first, or by number"),
    SYI_SCALAR(moe_route, renormalize, BOOL, .help = "weights of a token sum to 1"),
    SYI_SCALAR(moe_route, eps, F32, .help = "added to the sum of renormalize"),
    SYI_SCALAR(moe_route, scale, F32, .preset = "1", .help = "factor of every weight; 0 means 1"),
    SYI_SCALAR(moe_route, capacity, I64,
               .help = "most tokens of an expert in routing_map and probs; 0: no limit"),
    SYI_SCALAR(moe_route, drop, ENUM, .words = "prob position",
               .help = "tokens an expert keeps: of largest weight, or the first"),
};

static sy_status check_inputs(struct syi_call *call)
{
    bool any_output = call->query;
    for (int i = IDS; i < N_TENSORS; i++)
        any_output = any_output || call->tensor[i] != NULL;
    if (call->tensor[LOGITS] != NULL && !any_output)
        return syi_fail(call->ctx, SY_ERR_NULL, "ids",
                        "is missing and so is every other output, want at least one");
    sy_status st = syi_check_tensors(call, false);
    if (st == SY_OK)
        st = syi_check_vector(call, BIAS, syi_extent(call, LOGITS, 1));
    return st == SY_OK ? syi_check_vector(call, FINISHED, syi_extent(call, LOGITS, 0)) : st;
}

static sy_status check_enums(struct syi_call *call)
{
    const sy_moe_route_args *a = &call->args.moe_route;
    sy_status st = syi_check_enum(call, "score", (int)a->score);
    if (st == SY_OK)
        st = syi_check_enum(call, "group_score", (int)a->group_score);
    if (st == SY_OK)
        st = syi_check_enum(call, "slot_order", (int)a->slot_order);
    return st == SY_OK ? syi_check_enum(call, "drop", (int)a->drop) : st;
}

static sy_status check_groups(struct syi_call *call)
{
    const sy_moe_route_args *a = &call->args.moe_route;
    const int64_t n_experts = syi_extent(call, LOGITS, 1);
    sy_status st = syi_check_value(call, "groups", a->groups, 0, INT64_MAX);
    if (st != SY_OK || a->groups == 0)
        return st;
    if (n_experts % a->groups != 0)
        return syi_fail(call->ctx, SY_ERR_VALUE, "groups", "is %lld, want a divisor of %lld experts",
                        (long long)a->groups, (long long)n_experts);
    st = syi_check_value(call, "top_groups", a->top_groups, 1, a->groups);
    if (st != SY_OK)
        return st;
    const int64_t competing = n_experts / a->groups * a->top_groups;
    if (competing >= a->k)
        return SY_OK;
    const sy_fault fault = syi_value_fault(SY_ERR_VALUE, SY_FAULT_NONE, "top_groups", competing, a->k);
    return syi_fail_at(call->ctx, &fault, "is %lld and leaves %lld experts, want at least k = %lld",
                       (long long)a->top_groups, (long long)competing, (long long)a->k);
}

static sy_status check_values(struct syi_call *call)
{
    const sy_moe_route_args *a = &call->args.moe_route;
    sy_status st = check_enums(call);
    if (st == SY_OK)
        st = syi_check_value(call, "k", a->k, 1, syi_extent(call, LOGITS, 1));
    if (st == SY_OK)
        st = check_groups(call);
    if (st == SY_OK)
        st = syi_check_value(call, "capacity", a->capacity, 0, INT64_MAX);
    if (st != SY_OK)
        return st;
    if (!(a->eps >= 0.0f) || isinf(a->eps))
        return syi_fail(call->ctx, SY_ERR_VALUE, "eps", "is %g, want a finite number of 0 or more",
                        (double)a->eps);
    if (!isfinite(a->scale))
        return syi_fail(call->ctx, SY_ERR_VALUE, "scale", "is %g, want a finite number", (double)a->scale);
    return SY_OK;
}

/* Weight sums stay below 2^63 up to 2^23 experts; a row of ids must be countable even when it is not there
   yet. */
static sy_status check_overflow(struct syi_call *call)
{
    static const int64_t max_experts = INT64_C(1) << 23;
    const int64_t n_tokens = syi_extent(call, LOGITS, 0), n_experts = syi_extent(call, LOGITS, 1);
    int64_t bytes;
    if (n_experts > max_experts) {
        const sy_fault fault =
            syi_value_fault(SY_ERR_OVERFLOW, SY_FAULT_NONE, "logits", n_experts, max_experts);
        return syi_fail_at(call->ctx, &fault, "has %lld experts, want at most %lld", (long long)n_experts,
                           (long long)max_experts);
    }
    if (!syi_mul(n_tokens, n_experts * (int64_t)sizeof(float), &bytes))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "logits",
                        "has %lld tokens of %lld experts, want fewer than 2^63 bytes of scores",
                        (long long)n_tokens, (long long)n_experts);
    return syi_check_sizes(call);
}

static sy_status check_outputs(struct syi_call *call)
{
    const int64_t n_tokens = syi_extent(call, LOGITS, 0), n_experts = syi_extent(call, LOGITS, 1);
    const int64_t k = call->args.moe_route.k;
    sy_status st = SY_OK;
    for (int i = IDS; st == SY_OK && i < N_TENSORS; i++) {
        if (i == COUNTS)
            st = syi_check_vector(call, i, n_experts);
        else
            st = syi_check_matrix(call, i, n_tokens, i == IDS || i == WEIGHTS ? k : n_experts);
    }
    return st;
}

static void plan_route(struct syi_call *call)
{
    const sy_moe_route_args *a = &call->args.moe_route;
    struct syi_moe_route_plan *plan = &call->plan.moe_route;
    *plan = (struct syi_moe_route_plan){
        .n_tokens = syi_extent(call, LOGITS, 0),
        .n_experts = syi_extent(call, LOGITS, 1),
        .k = a->k,
        .type = syi_type_at(call, LOGITS),
        .logits = syi_rows_of(call, LOGITS),
        .bias = syi_data(call, BIAS),
        .finished = syi_data(call, FINISHED),
        .score = a->score,
        .softmax_after = a->softmax_after,
        .renormalize = a->renormalize,
        .n_groups = a->groups,
        .top_groups = a->top_groups,
        .group_score = a->group_score,
        .slot_order = a->slot_order,
        .eps = a->eps,
        .scale = a->scale == 0.0f ? 1.0f : a->scale,
        .drop = a->drop,
        .ids = syi_rows_of(call, IDS),
        .weights = syi_rows_of(call, WEIGHTS),
        .map = syi_rows_of(call, MAP),
        .probs = syi_rows_of(call, PROBS),
        .scores = syi_rows_of(call, SCORES),
        .id_type = syi_type_at(call, IDS),
        .weight_type = syi_type_at(call, WEIGHTS),
        .prob_type = syi_type_at(call, PROBS),
        .counts = syi_data(call, COUNTS),
    };
    if (call->query) /* room for every output the call may ask for */
        plan->map.data = plan->scores.data = plan->counts = (unsigned char *)call;
    const bool droppable = plan->map.data != NULL || plan->probs.data != NULL;
    plan->capacity = droppable && a->capacity < plan->n_tokens ? a->capacity : 0;
}

static sy_status check(struct syi_call *call)
{
    sy_status st = check_inputs(call);
    if (st == SY_OK)
        st = check_values(call);
    if (st == SY_OK)
        st = check_overflow(call);
    if (st == SY_OK)
        st = check_outputs(call);
    if (st == SY_OK)
        st = syi_check_layout(call);
    if (st != SY_OK)
        return st;
    plan_route(call);
    call->rows = call->plan.moe_route.n_tokens;
    call->bytes = syi_tensor_bytes(call);
    return SY_OK;
}

SYI_DEFINE_OP(moe_route, MOE_ROUTE, "choose the experts of each token from router logits, with their weights")
