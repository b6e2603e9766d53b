/*
 * moe_route: check and plan. Of the contents only given ids can be wrong; every other rejection is here.
 */
#include "plan/route_math.h"
#include "ops/call.h"

enum {
    LOGITS,
    BIAS,
    FINISHED,
    IDS_IN,
    IDS_ROWS,
    EXPERT_SCALE,
    SHARED_LOGITS,
    IDS,
    WEIGHTS,
    MAP,
    PROBS,
    COUNTS,
    SCORES,
    N_TENSORS
};

/* Scalars that are validated apart from the others. */
enum {
    K = N_TENSORS,
    GROUPS = K + 4,
    EPS = K + 10,
    SCALE = K + 12,
    N_SHARED,
    SHARED_WEIGHT,
    CAPACITY = K + 16
};

#define GIVEN_TYPES (SYI_INDEX_TYPES | SYI_BIT(SY_TYPE_I16) | SYI_U16 | SYI_U8)

#define OPERATOR moe_route

static const sy_field_info fields[] = {
    [LOGITS] = SYI_INPUT(logits, SYI_FLOAT_TYPES, 0, 2, 2, "T E", "router logits of each token"),
    [BIAS] = SYI_OPTIONAL(bias, SYI_F32, 0, 1, 1, "E", "added to the scores for the choice only"),
    [FINISHED] = SYI_OPTIONAL(finished, SYI_BYTE_TYPES, 0, 1, 1, "T", "not 0: the token chooses nothing"),
    [IDS_IN] = SYI_OPTIONAL(ids_in, GIVEN_TYPES, 0, 2, 2, "V K", "given experts; V is T without ids_rows"),
    [IDS_ROWS] = SYI_OPTIONAL(ids_rows, SYI_INDEX_TYPES, 0, 1, 1, "T",
                              "row of ids_in of each token; missing: its own"),
    [EXPERT_SCALE] = SYI_OPTIONAL(expert_scale, SYI_F32, 0, 1, 1, "E", "factor of the weight of each expert"),
    [SHARED_LOGITS] =
        SYI_OPTIONAL(shared_logits, SYI_FLOAT_TYPES, 0, 2, 2, "T S", "gate of each shared expert"),
    [IDS] = SYI_OPTIONAL_OUTPUT(ids, SYI_INDEX_TYPES, 0, 2, 2, "T K+S",
                                "chosen experts; E+S for a finished token", .preset = "i32"),
    [WEIGHTS] = SYI_OPTIONAL_OUTPUT(weights, SYI_FLOAT_TYPES, 0, 2, 2, "T K+S",
                                    "weights of the chosen experts", .preset = "f32"),
    [MAP] = SYI_OPTIONAL_OUTPUT(routing_map, SYI_BYTE_TYPES, 0, 2, 2, "T E+S", "1: token t goes to expert e",
                                .preset = "bool"),
    [PROBS] = SYI_OPTIONAL_OUTPUT(probs, SYI_FLOAT_TYPES, 0, 2, 2, "T E+S",
                                  "weight of each expert, 0 where not routed", .preset = "f32"),
    [COUNTS] = SYI_OPTIONAL_OUTPUT(counts, SYI_I64, 0, 1, 1, "E+S", "tokens that chose each expert"),
    [SCORES] = SYI_OPTIONAL_OUTPUT(scores, SYI_F32, 0, 2, 2, "T E", "scores of all experts"),
    [K] = SYI_SCALAR(k, I64, SY_FIELD_REQUIRED, .range = "K: 1..E", .help = "K: experts per token"),
    SYI_SCALAR(score, ENUM, .words = "softmax sigmoid none sqrtsoftplus",
               .help = "score of a logit; none: the logit itself"),
    SYI_SCALAR(select, ENUM, .words = "score logit",
               .help = "what experts are chosen by, with the bias added"),
    SYI_SCALAR(softmax_after, BOOL, .help = "weights are the softmax of the chosen logits"),
    [GROUPS] = SYI_SCALAR(groups, I64, .range = "0..", .help = "groups of neighbouring experts; 0: none"),
    SYI_SCALAR(top_groups, I64, .help = "groups whose experts may be chosen"),
    SYI_SCALAR(group_score, ENUM, .words = "max sum2 sumk",
               .help = "score of a group: its best, or the sum of its 2 or K/top_groups best"),
    SYI_SCALAR(slot_order, ENUM, .words = "value expert",
               .help = "order of a token's experts: largest value first, or by number"),
    SYI_SCALAR(allow_missing, BOOL, .help = "ids_in: -1, E+S and all bits set mean no expert"),
    SYI_SCALAR(renormalize, BOOL, .help = "weights of a token sum to 1"),
    [EPS] = SYI_SCALAR(eps, F32, .range = "0..finite",
                       .help = "added to the sum of renormalize, or its least value"),
    SYI_SCALAR(eps_rule, ENUM, .words = "add max",
               .help = "weights are divided by sum + eps, or by the larger of both"),
    [SCALE] =
        SYI_SCALAR(scale, F32, .range = "finite", .preset = "1", .help = "factor of every weight; 0 means 1"),
    [N_SHARED] =
        SYI_SCALAR(n_shared, I64, .range = "S: 0..", .help = "S: shared experts, which every token has"),
    [SHARED_WEIGHT] = SYI_SCALAR(shared_weight, F32, .range = "finite", .preset = "1",
                                 .help = "factor of their weights; 0 means 1"),
    SYI_SCALAR(shared_in_sum, BOOL, .help = "scores of shared_logits take part in renormalize"),
    [CAPACITY] = SYI_SCALAR(capacity, I64, .range = "0..",
                            .help = "most tokens of an expert in routing_map and probs; 0: no limit"),
    SYI_SCALAR(drop, ENUM, .words = "prob position",
               .help = "tokens an expert keeps: of largest weight, or the first"),
};

/* What a call must have for something else that it has. */
static sy_status check_present(struct syi_call *call)
{
    const sy_moe_route_args *a = &call->args.moe_route;
    if (a->logits == NULL)
        return SY_OK; /* is the first sentence */
    SYI_TRY(syi_check_some_output(call));
    if (a->ids_rows != NULL && a->ids_in == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "ids_in", "is missing, want it with ids_rows");
    if (a->shared_in_sum && a->shared_logits == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "shared_logits", "is missing, want it with shared_in_sum");
    return SY_OK;
}

/* Rows of ids_in are those of the tokens unless ids_rows names them. Extents that come from a number which is itself wrong are
   left to the check of that number. */
static sy_status bind(struct syi_call *call)
{
    const sy_moe_route_args *a = &call->args.moe_route;
    if (a->ids_rows == NULL)
        syi_bind(call, 'V', syi_extent(call, LOGITS, 0));
    call->without = (a->k < 1 ? 1u << IDS_IN : 0) | (a->n_shared < 1 ? 1u << SHARED_LOGITS : 0);
    return SY_OK;
}

static sy_status check_groups(struct syi_call *call)
{
    const sy_moe_route_args *a = &call->args.moe_route;
    const int64_t n_experts = syi_extent(call, LOGITS, 1);
    SYI_TRY(syi_check_scalars(call, GROUPS, GROUPS + 1));
    if (a->groups == 0)
        return SY_OK;
    if (n_experts % a->groups != 0)
        return syi_fail(call->ctx, SY_ERR_VALUE, "groups", "is %lld, want a divisor of %lld experts",
                        (long long)a->groups, (long long)n_experts);
    SYI_TRY(syi_check_value(call, "top_groups", a->top_groups, 1, a->groups));
    const int64_t competing = n_experts / a->groups * a->top_groups;
    if (competing >= a->k)
        return SY_OK;
    return syi_fail_with(call->ctx, SY_ERR_VALUE, SY_FAULT_NONE, "top_groups", competing, a->k,
                         "is %lld and leaves %lld experts, want at least k = %lld", (long long)a->top_groups,
                         (long long)competing, (long long)a->k);
}

static sy_status check_shared(struct syi_call *call)
{
    const sy_moe_route_args *a = &call->args.moe_route;
    const bool scored = syi_is_lone_score(a->score);
    SYI_TRY(syi_check_scalars(call, N_SHARED, N_SHARED + 1));
    if (a->shared_logits != NULL && a->n_shared == 0)
        return syi_fail(call->ctx, SY_ERR_VALUE, "n_shared", "is 0, want 1 or more with shared_logits");
    if (a->shared_in_sum && !a->renormalize)
        return syi_fail(call->ctx, SY_ERR_VALUE, "shared_in_sum", "is given, want renormalize with it");
    if (a->shared_in_sum && (!scored || a->softmax_after))
        return syi_fail(call->ctx, SY_ERR_VALUE, "shared_in_sum",
                        "is given with %s, want the score SIGMOID or SQRTSOFTPLUS",
                        a->softmax_after               ? "softmax_after"
                        : a->score == SY_SCORE_SOFTMAX ? "the score SOFTMAX"
                                                       : "the score NONE");
    return syi_check_scalars(call, SHARED_WEIGHT, SHARED_WEIGHT + 1);
}

static sy_status check_options(struct syi_call *call)
{
    SYI_TRY(syi_check_words(call));
    SYI_TRY(syi_check_scalars(call, K, K + 1));
    SYI_TRY(check_groups(call));
    SYI_TRY(syi_check_scalars(call, CAPACITY, CAPACITY + 1));
    SYI_TRY(syi_check_scalars(call, EPS, EPS + 1));
    SYI_TRY(syi_check_scalars(call, SCALE, SCALE + 1));
    return check_shared(call);
}

/* Weight sums stay below 2^63 up to 2^23 experts; a row of ids must be countable even when it is not there
   yet. */
static sy_status check_values(struct syi_call *call)
{
    static const int64_t max_experts = INT64_C(1) << 23;
    const int64_t n_tokens = syi_extent(call, LOGITS, 0), n_experts = syi_extent(call, LOGITS, 1);
    const int64_t n_shared = call->args.moe_route.n_shared;
    int64_t bytes;
    SYI_TRY(check_options(call));
    if (n_experts > max_experts)
        return syi_fail_value(call, SY_ERR_OVERFLOW, "logits", n_experts, max_experts,
                              "has %lld experts, want at most %lld");
    if (n_shared > max_experts - n_experts) {
        return syi_fail_with(call->ctx, SY_ERR_OVERFLOW, SY_FAULT_NONE, "n_shared", n_shared,
                             max_experts - n_experts,
                             "is %lld beside %lld experts, want at most %lld together", (long long)n_shared,
                             (long long)n_experts, (long long)max_experts);
    }
    const int64_t n_columns = n_experts + n_shared;
    if (!syi_mul(n_tokens, n_columns * (int64_t)sizeof(float), &bytes))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "logits",
                        "has %lld tokens of %lld experts, want fewer than 2^63 bytes of scores",
                        (long long)n_tokens, (long long)n_columns);
    return SY_OK;
}

/* How many of the largest values of a group are added; a group has as many. */
static int64_t group_sum(const sy_moe_route_args *a, int64_t n_experts)
{
    if (a->groups == 0 || a->group_score == SY_GROUP_MAX)
        return 1;
    if (a->group_score == SY_GROUP_SUM2)
        return n_experts / a->groups > 1 ? 2 : 1;
    return a->k / a->top_groups > 1 ? a->k / a->top_groups : 1;
}

static void plan_route(struct syi_call *call)
{
    struct syi_moe_route_plan *p = syi_bind_plan(call, "TEK");
    const sy_moe_route_args *a = &p->args;
    const bool droppable = call->query || p->map.data != NULL || p->probs.data != NULL;
    p->n_columns = p->n_experts + a->n_shared;
    p->n_slots = a->k + a->n_shared;
    p->given_rows = syi_extent(call, IDS_IN, 0);
    p->capacity = droppable && a->capacity < p->n_tokens ? a->capacity : 0;
    p->group_sum = group_sum(a, p->n_experts);
    p->scale = a->scale == 0.0f ? 1.0f : a->scale;
    p->shared_weight = a->shared_weight == 0.0f ? 1.0f : a->shared_weight;
    call->rows = p->n_tokens;
}

static const struct syi_steps own = {
    .together = check_present, .bind = bind, .values = check_values, .plan = plan_route};

SYI_DEFINE_PLANNED(moe_route, MOE_ROUTE,
                   "choose the experts of each token from router logits, with their weights", scores, 0)
