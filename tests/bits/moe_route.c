/*
 * moe_route: scenes of every score and type of logits, with bias, groups, finished tokens, capacities and any
 * subset of outputs.
 */
#include "bits.h"

#include <stdio.h>
#include <string.h>

static const DLDataType float_types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
static const DLDataType byte_types[] = {{6, 8, 1}, {0, 8, 1}, {1, 8, 1}};

static sy_status call_route(sy_ctx *ctx, const void *args)
{
    return sy_moe_route(ctx, args);
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rows of one flavour each, so that some are all ties, all special or empty. */
static struct box *route_logits(DLDataType type, int64_t tokens, int64_t experts)
{
    struct box *logits = box_strided(type, 2, (int64_t[]){tokens, experts}, one_in(3) ? 3 : 0);
    int64_t pitch = tokens > 0 ? box_elems(logits) / tokens : 0;
    for (int64_t t = 0; t < tokens; t++) {
        enum flavour flavour = (enum flavour)below(FAR + 1);
        for (int64_t e = 0; e < pitch; e++)
            put(logits, t * pitch + e, flavoured(type, flavour));
    }
    return logits;
}

/* A float tensor of any type, with a gap behind its rows at times. */
static const DLTensor *any_floats(const int64_t *shape)
{
    DLDataType type = float_types[below(3)];
    return &output(box_strided(type, 2, shape, one_in(3) ? 2 : 0))->t;
}

static void route_outputs(sy_moe_route_args *args, int64_t tokens, int64_t experts)
{
    const int64_t columns = experts + args->n_shared, cells[2] = {tokens, columns},
                  slots[2] = {tokens, args->k + args->n_shared}, scores[2] = {tokens, experts};
    if (!one_in(4))
        args->ids = &output(box_new(index_type(), 2, slots))->t;
    if (one_in(2))
        args->weights = any_floats(slots);
    if (one_in(2))
        args->routing_map = &output(box_new(byte_types[below(3)], 2, cells))->t;
    if (one_in(2))
        args->probs = any_floats(cells);
    if (one_in(3))
        args->scores = &output(box_new(SY_F32, 2, scores))->t;
    args->counts = &output(box_new(SY_I64, 1, &columns))->t;
}

static void route_scene(DLDataType type, sy_route_score score, bool grouped, bool dropping)
{
    static const int64_t sizes[] = {1, 3, 8, 16, 33, 64, 100, 256};
    static const uint32_t scales[] = {0, 0x40200000, 0xbf800000, 0x7149f2ca}, epsilons[] = {0, 0x1e3ce508};
    int64_t groups = grouped ? 1 + below(6) : 0, size = sizes[below(COUNT(sizes))];
    int64_t tokens = dropping ? 1 + below(200) : below(30),
            experts = grouped ? groups * (1 + below(20)) : size;
    sy_moe_route_args args = {.score = score, .groups = groups};
    args.top_groups = grouped ? 1 + below(groups) : 0;
    int64_t live = grouped ? experts / groups * args.top_groups : experts;
    args.k = 1 + (one_in(8) ? below(live) : below(live < 10 ? live : 10));
    args.softmax_after = one_in(5);
    args.group_score = one_in(2) ? SY_GROUP_SUM2 : SY_GROUP_MAX;
    args.slot_order = one_in(2) ? SY_SLOT_EXPERT : SY_SLOT_VALUE;
    args.renormalize = one_in(2);
    args.scale = float_of(scales[below(COUNT(scales))]);
    args.eps = float_of(epsilons[below(COUNT(epsilons))]);
    args.drop = one_in(2) ? SY_DROP_POSITION : SY_DROP_PROB;
    args.capacity = dropping ? 1 + below(tokens) : 0;
    if (one_in(20))
        args.k = experts + 1;
    args.logits = &route_logits(type, tokens, experts)->t;
    if (one_in(2))
        args.bias = &fill_flavour(box_new(SY_F32, 1, &experts), one_in(6) ? SPECIAL : FINE)->t;
    if (one_in(3)) {
        struct box *finished = box_new(SY_BOOL, 1, &tokens);
        for (int64_t t = 0; t < tokens; t++)
            put(finished, t, one_in(4));
        args.finished = &finished->t;
    }
    route_outputs(&args, tokens, experts);
    run_scene(call_route, &args);
}

/* Distinct experts of every row, or nearly so. */
static const DLTensor *given_ids(int64_t rows, int64_t k, int64_t experts, bool allow_missing)
{
    const DLDataType types[] = {{0, 32, 1}, {0, 64, 1}, {0, 16, 1}, {1, 16, 1}, {1, 8, 1}};
    struct box *ids = box_new(types[below(experts < 250 ? 5 : 4)], 2, (int64_t[]){rows, k});
    for (int64_t r = 0; r < rows; r++) {
        const int64_t first = below(experts);
        for (int64_t j = 0; j < k; j++)
            put(ids, r * k + j, allow_missing && one_in(5) ? UINT64_MAX : (uint64_t)((first + j) % experts));
    }
    if (rows * k > 0 && one_in(20))
        put(ids, below(rows * k), (uint64_t)experts + 1);
    return &ids->t;
}

/* What the first scenes do not have: given experts, the fourth score, choice by logit, shared experts. */
static void later_scene(DLDataType type, bool given)
{
    static const int64_t sizes[] = {1, 3, 8, 16, 33, 64, 100, 256, 1025};
    static const uint32_t scales[] = {0, 0x40200000, 0xbf800000, 0x7149f2ca},
                          epsilons[] = {0, 0x1e3ce508, 0x3f000000};
    const int64_t groups = one_in(2) ? 1 + below(4) : 0, tokens = below(30),
                  experts = sizes[below(COUNT(sizes))] * (groups > 0 ? groups : 1);
    sy_moe_route_args args = {.score = one_in(2) ? SY_SCORE_SQRTSOFTPLUS : (sy_route_score)below(3),
                              .groups = groups};
    args.top_groups = groups > 0 ? 1 + below(groups) : 0;
    const int64_t live = groups > 0 ? experts / groups * args.top_groups : experts;
    args.k = 1 + (one_in(8) ? below(live) : below(live < 10 ? live : 10));
    args.select = one_in(2) ? SY_SELECT_LOGIT : SY_SELECT_SCORE;
    args.softmax_after = one_in(5);
    args.group_score = (sy_group_score)below(3);
    args.slot_order = one_in(2) ? SY_SLOT_EXPERT : SY_SLOT_VALUE;
    args.renormalize = !one_in(3);
    args.eps_rule = one_in(2) ? SY_EPS_MAX : SY_EPS_ADD;
    args.scale = float_of(scales[below(COUNT(scales))]);
    args.eps = float_of(epsilons[below(COUNT(epsilons))]);
    args.capacity = one_in(3) ? 1 + below(4) : 0;
    args.logits = &route_logits(type, tokens, experts)->t;
    if (one_in(2))
        args.bias = &fill_flavour(box_new(SY_F32, 1, &experts), one_in(6) ? SPECIAL : FINE)->t;
    if (one_in(3))
        args.expert_scale = &fill_flavour(box_new(SY_F32, 1, &experts), one_in(6) ? SPECIAL : FINE)->t;
    if (one_in(2)) {
        args.n_shared = 1 + below(3);
        args.shared_weight = float_of(scales[below(COUNT(scales))]);
    }
    if (args.n_shared > 0 && one_in(2)) {
        args.shared_logits = &route_logits(float_types[below(3)], tokens, args.n_shared)->t;
        args.shared_in_sum = one_in(2);
    }
    if (given) {
        const int64_t rows = one_in(2) ? 1 + below(20) : tokens;
        args.allow_missing = one_in(2);
        args.ids_in = given_ids(rows, args.k, experts, args.allow_missing);
        if (rows != tokens || one_in(2)) {
            struct box *row_of = box_new(index_type(), 1, &tokens);
            for (int64_t t = 0; t < tokens; t++)
                put(row_of, t, (uint64_t)below(rows));
            args.ids_rows = &row_of->t;
        }
    }
    route_outputs(&args, tokens, experts);
    run_scene(call_route, &args);
}

void moe_route_lines(void)
{
    static const char *const types[] = {"f32", "f16", "bf16"},
                             *const scores[] = {"softmax", "sigmoid", "none"},
                             *const modes[] = {"plain", "groups", "capacity"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int s = 0; s < COUNT(scores); s++)
            for (int m = 0; m < COUNT(modes); m++) {
                snprintf(name, sizeof name, "moe_route %s %s %s", types[t], scores[s], modes[m]);
                begin_line(name);
                for (int i = 0; i < 40; i++)
                    route_scene(float_types[t], (sy_route_score)s, m == 1, m == 2);
                end_line();
            }
    for (int t = 0; t < COUNT(types); t++)
        for (int m = 0; m < 2; m++) {
            snprintf(name, sizeof name, "moe_route %s %s", types[t], m == 0 ? "chosen" : "given");
            begin_line(name);
            for (int i = 0; i < 60; i++)
                later_scene(float_types[t], m == 1);
            end_line();
        }
}
