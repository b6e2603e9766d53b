/*
 * local_reduce: scenes of every type of rows in both layouts, with and without weights, every rule of replicas, and wrong
 * choices.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_reduce(sy_ctx *ctx, const void *args)
{
    return sy_local_reduce(ctx, args);
}

struct sizes {
    int64_t tokens, slots, experts, devices, device, hidden, n_local;
};

static struct box *make_mapping(struct sizes *s)
{
    struct box *mapping = box_new((DLDataType){1, 16, 1}, 2, (int64_t[]){s->experts, s->devices});
    for (int64_t i = 0; i < s->experts * s->devices; i++) {
        const bool hosted = one_in(s->devices);
        put(mapping, i, hosted);
        s->n_local += hosted && i % s->devices == s->device;
    }
    return mapping;
}

static struct box *make_choices(const struct sizes *s, bool wrong)
{
    static const DLDataType types[] = {{1, 16, 1}, {0, 32, 1}, {0, 64, 1}};
    const DLDataType type = types[below(COUNT(types))];
    struct box *choices = box_strided(type, 2, (int64_t[]){s->tokens, s->slots}, 0);
    for (int64_t i = 0; i < s->tokens * s->slots; i++) {
        const int64_t e = below(s->experts + 1) - 1;
        const bool spoiled = wrong && one_in(60);
        put(choices, i, (uint64_t)(spoiled ? s->experts : e));
    }
    return choices;
}

static void reduce_scene(DLDataType type, const DLDataType *weights, bool by_expert, bool wrong,
                         sy_a2a_replica replica, bool fixed)
{
    static const int64_t counts[] = {1, 9, 30, 300};
    struct sizes s = {.tokens = counts[below(COUNT(counts))]};
    sy_local_reduce_args args = {.replica = replica};
    s.slots = 1 + below(9);
    s.experts = 1 + below(12);
    s.devices = 1 + below(3);
    s.device = below(s.devices);
    s.hidden = 1 + below(70);
    const enum flavour flavour = (enum flavour)below(4);
    if (replica != SY_A2A_REPLICA_ALL) { /* the group is all devices, each with as many tokens */
        s.tokens *= s.devices;
        args.node_size = s.devices == 2 ? below(3) : 0;
    }
    args.device = s.device;
    args.expert_mapping = &make_mapping(&s)->t;
    args.expert_metadata = &make_choices(&s, wrong)->t;
    args.fill = one_in(2) ? SY_FILL_KEEP : SY_FILL_ZERO;
    args.layout = by_expert ? SY_LAYOUT_EXPERT : SY_LAYOUT_PADDED;
    args.align = 1 + below(4);
    if (fixed)
        args.expert_rows = args.align * (1 + below(s.tokens + 1));
    const int64_t most = s.tokens * s.slots + s.experts * (fixed ? args.expert_rows : args.align);
    const int64_t gap = one_in(3) ? 3 : 0;
    struct box *input = by_expert ? box_strided(type, 2, (int64_t[]){most, s.hidden}, gap)
                                  : box_new(type, 3, (int64_t[]){s.n_local, s.tokens, s.hidden});
    args.input = &fill_flavour(input, flavour)->t;
    if (weights->bits) {
        const enum flavour kind = one_in(4) ? SPECIAL : TIES;
        args.weights = &fill_flavour(box_new(*weights, 2, (int64_t[]){s.tokens, s.slots}), kind)->t;
    }
    const int64_t out_gap = one_in(3) ? 2 : 0;
    args.output = &output(box_strided(type, 2, (int64_t[]){s.tokens, s.hidden}, out_gap))->t;
    run_scene(call_reduce, &args);
}

void local_reduce_lines(void)
{
    static const struct named_type weights[] = {
        {"none", {0, 0, 0}}, {"f32", {2, 32, 1}}, {"bf16", {4, 16, 1}}};
    static const char *const rules[] = {NULL, "first", "round_robin", "hash", "balanced", "local"};
    char name[128];
    for (int t = 0; t < N_FLOATS; t++)
        for (int w = 0; w < COUNT(weights); w++) {
            snprintf(name, sizeof name, "local_reduce %s weights=%s", floats[t].name, weights[w].name);
            begin_line(name);
            for (int i = 0; i < 40; i++)
                reduce_scene(floats[t].type, &weights[w].type, i % 2 == 1, i % 10 == 9, SY_A2A_REPLICA_ALL,
                             false);
            end_line();
        }
    for (int r = 1; r < COUNT(rules); r++) {
        snprintf(name, sizeof name, "local_reduce bf16 %s", rules[r]);
        begin_line(name);
        for (int i = 0; i < 30; i++)
            reduce_scene(floats[2].type, &weights[1].type, i % 2 == 1, i % 10 == 9, (sy_a2a_replica)r, false);
        end_line();
    }
    begin_line("local_reduce bf16 expert_rows");
    for (int i = 0; i < 30; i++)
        reduce_scene(floats[2].type, &weights[1].type, true, false, (sy_a2a_replica)(i % 6), true);
    end_line();
}
