/*
 * moe_route on the command line. All outputs are written, weights and probs as F32.
 */
#include "ops.h"

#define FIELD(name) offsetof(struct op_call, args.moe_route.name)

static const struct op_tensor tensors[] = {
    {"logits", FIELD(logits), OP_INPUT, "[T,E]", "F32 F16 BF16", "router logits of each token"},
    {"bias", FIELD(bias), OP_OPTIONAL, "[E]", "F32", "added to the scores for the choice only"},
    {"finished", FIELD(finished), OP_OPTIONAL, "[T]", "BOOL I8 U8", "not 0: the token chooses nothing"},
    {"ids", FIELD(ids), OP_OUTPUT, "[T,K]", "I32", "chosen experts; E for a finished token"},
    {"weights", FIELD(weights), OP_OUTPUT, "[T,K]", "F32", "their weights"},
    {"routing_map", FIELD(routing_map), OP_OUTPUT, "[T,E]", "BOOL", "1: token t goes to expert e"},
    {"probs", FIELD(probs), OP_OUTPUT, "[T,E]", "F32", "weight of each expert, 0 where not routed"},
    {"counts", FIELD(counts), OP_OUTPUT, "[E]", "I64", "tokens that chose each expert"},
    {"scores", FIELD(scores), OP_OUTPUT, "[T,E]", "F32", "scores of all experts"},
    {0},
};

static const struct op_field fields[] = {
    {.name = "k", .kind = OP_INT64, .offset = FIELD(k), .required = true, .text = "K: experts per token"},
    {.name = "score",
     .kind = OP_WORD,
     .offset = FIELD(score),
     .preset = "softmax",
     .words = {"softmax", "sigmoid", "none"},
     .values = {SY_SCORE_SOFTMAX, SY_SCORE_SIGMOID, SY_SCORE_NONE},
     .text = "what a logit is worth; none: itself"},
    {.name = "softmax_after",
     .kind = OP_BOOL,
     .offset = FIELD(softmax_after),
     .text = "weights are the softmax of the chosen logits"},
    {.name = "groups",
     .kind = OP_INT64,
     .offset = FIELD(groups),
     .preset = "0",
     .text = "groups of neighbouring experts; 0: none"},
    {.name = "top_groups",
     .kind = OP_INT64,
     .offset = FIELD(top_groups),
     .preset = "0",
     .text = "groups whose experts compete"},
    {.name = "group_score",
     .kind = OP_WORD,
     .offset = FIELD(group_score),
     .preset = "max",
     .words = {"max", "sum2"},
     .values = {SY_GROUP_MAX, SY_GROUP_SUM2},
     .text = "worth of a group: its best expert, or the sum of its two best"},
    {.name = "slot_order",
     .kind = OP_WORD,
     .offset = FIELD(slot_order),
     .preset = "value",
     .words = {"value", "expert"},
     .values = {SY_SLOT_VALUE, SY_SLOT_EXPERT},
     .text = "order of a token's experts: best first, or by number"},
    {.name = "renormalize",
     .kind = OP_BOOL,
     .offset = FIELD(renormalize),
     .text = "weights of a token sum to 1"},
    {.name = "eps", .kind = OP_FLOAT, .offset = FIELD(eps), .preset = "0", .text = "added to that sum"},
    {.name = "scale",
     .kind = OP_FLOAT,
     .offset = FIELD(scale),
     .preset = "1",
     .text = "factor of every weight; 0 means 1"},
    {.name = "capacity",
     .kind = OP_INT64,
     .offset = FIELD(capacity),
     .preset = "0",
     .text = "most tokens of an expert in routing_map and probs; 0: no limit"},
    {.name = "drop",
     .kind = OP_WORD,
     .offset = FIELD(drop),
     .preset = "prob",
     .words = {"prob", "position"},
     .values = {SY_DROP_PROB, SY_DROP_POSITION},
     .text = "tokens an expert keeps: of largest weight, or the first"},
    {0},
};

static const float example_logits[3][4] = {{2, 1, 0, -1}, {1, 1, 1, 1}, {0, 0.5f, 3, 2.5f}};
static const struct op_example example[] = {
    {"logits", "F32", 2, {3, 4}, example_logits},
    {0},
};

static sy_status size_outputs(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs)
{
    sy_moe_route_args *const args = &call->args.moe_route;
    sy_query query = {0};
    const sy_status status = sy_moe_route_query(ctx, args, &query);
    if (status != SY_OK)
        return status;
    const int64_t *const all = args->logits->shape; /* [T,E] */
    const int64_t slots[2] = {all[0], args->k};
    args->ids = op_output(outputs, "ids", SY_I32, 2, slots);
    args->weights = op_output(outputs, "weights", SY_F32, 2, slots);
    args->routing_map = op_output(outputs, "routing_map", SY_BOOL, 2, all);
    args->probs = op_output(outputs, "probs", SY_F32, 2, all);
    args->counts = op_output(outputs, "counts", SY_I64, 1, &all[1]);
    args->scores = op_output(outputs, "scores", SY_F32, 2, all);
    return SY_OK;
}

static sy_status call_operator(sy_ctx *ctx, const struct op_call *call)
{
    return sy_moe_route(ctx, &call->args.moe_route);
}

const struct op op_moe_route = {
    .name = "moe_route",
    .summary = "pick the experts of each token from router logits, and weigh them",
    .tensors = tensors,
    .fields = fields,
    .example = example,
    .example_options = "--k 2 --renormalize",
    .example_text = "three tokens, four experts, two experts per token",
    .size = size_outputs,
    .call = call_operator,
};
