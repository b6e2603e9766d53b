/*
 * moe_map_physical: scenes of every rule and type, loads that are added to, and ids, counts and entries that are refused.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_map(sy_ctx *ctx, const void *args)
{
    return sy_moe_map_physical(ctx, args);
}

/* Whole numbers below n, one of them wrong now and then (n itself is no expert, and allowed); -1 at one in `missing`. */
static struct box *numbers(struct box *b, int64_t n, int64_t missing)
{
    for (int64_t i = 0; i < box_elems(b); i++) {
        const int64_t value = below(n);
        const bool none = one_in(missing);
        put(b, i, none ? UINT64_MAX : (uint64_t)value);
    }
    if (box_elems(b) > 0 && one_in(15))
        put(b, below(box_elems(b)), (uint64_t)n + 1);
    return b;
}

static void map_scene(sy_replica_rule rule)
{
    static const DLDataType types[] = {{0, 32, 1}, {0, 64, 1}, {1, 16, 1}};
    static const int64_t sizes[] = {0, 1, 9, 60, 400};
    const int64_t tokens = sizes[below(COUNT(sizes))];
    const int64_t slots = 1 + below(8);
    const int64_t experts = one_in(20) ? 5000 : 1 + below(40);
    const int64_t replicas = 1 + below(5);
    const DLDataType type = types[below(COUNT(types))];
    sy_moe_map_physical_args args = {.rule = rule, .allow_missing = true};
    args.devices = 1 + below(6);
    args.device = below(args.devices);
    args.node_size = below(4);
    args.num_physical = args.devices * (1 + below(9));
    args.token_base = one_in(2) ? below(100) : INT64_C(1) << 40;
    struct box *table = box_new(SY_I32, 2, (int64_t[]){experts, replicas});
    struct box *count = box_new(SY_I32, 1, &experts), *before = box_new(SY_I64, 1, &experts);
    struct box *load = output(box_new(SY_I64, 1, &args.num_physical));
    for (int64_t e = 0; e < experts; e++) {
        const int64_t n = 1 + below(replicas);
        for (int64_t r = 0; r < replicas; r++) {
            const int64_t at = below(args.num_physical);
            put(table, e * replicas + r, r < n ? (uint64_t)at : UINT64_MAX);
        }
        put(count, e, (uint64_t)n);
        put(before, e, (uint64_t)below(1000));
    }
    args.logical_to_physical = &table->t;
    args.replica_count = one_in(2) ? &count->t : NULL;
    args.counts_before = rule == SY_REPLICA_BALANCED && one_in(2) ? &before->t : NULL;
    const int64_t shape[] = {tokens, slots}, gap = one_in(3) ? 3 : 0;
    args.ids = &numbers(box_strided(type, 2, shape, gap), experts, 10)->t;
    args.physical_ids = &output(box_strided(type, 2, shape, gap))->t;
    args.load = &load->t;
    args.logical_load = &output(box_new(SY_I64, 1, &experts))->t;
    run_scene(call_map, &args);
}

void moe_map_physical_lines(void)
{
    static const char *const rules[] = {"first", "round_robin", "hash", "balanced", "local"};
    char name[128];
    for (int r = 0; r < COUNT(rules); r++) {
        snprintf(name, sizeof name, "moe_map_physical %s", rules[r]);
        begin_line(name);
        for (int i = 0; i < 30; i++)
            map_scene((sy_replica_rule)r);
        end_line();
    }
}
