/*
 * moe_place: seeded layers with many equal loads against the definition, and what must hold whatever the loads are: places
 * of all replicas, no repetition with `distinct`, the experts of a device with `previous`, a mapping that the exchange takes.
 */
#include "support_random.h"

#include "oracle/moe_place.h"

static struct {
    int nodes, global, distinct, one_each, kept, replicas, equal, zero, sparse, wide, repeated;
} seen;

struct fixture {
    struct place_case c;
    int layers;
    int64_t *loads;
    int32_t *previous;
};

static void fixture_make(struct fixture *f, uint64_t *rng)
{
    struct place_case *c = &f->c;
    const int nodes = 1 + (int)rng_below(rng, 3), per_node = 1 + (int)rng_below(rng, nodes > 1 ? 3 : 8);
    const int groups = nodes * (int)rng_below(rng, 3), each = 1 + (int)rng_below(rng, 3);
    c->nodes = nodes;
    c->devices = nodes * per_node;
    c->groups = groups;
    c->experts = groups > 0 ? groups * each : 1 + (int)rng_below(rng, 12);
    if (groups > 0 && rng_below(rng, 4) == 0)
        c->groups = 1; /* nodes may not divide it */
    c->distinct = rng_below(rng, 2);
    const int least = (c->experts + c->devices - 1) / c->devices;
    const bool by_node = c->groups > 0 && c->groups % nodes == 0;
    const int most = c->distinct ? c->experts / (by_node ? nodes : 1) : least + 4;
    c->physical = c->devices * (least + (int)rng_below(rng, most - least + 1 > 5 ? 5 : most - least + 1));
    f->layers = (int)rng_below(rng, 4);
    f->loads = need(f->layers * c->experts, 8);
    f->previous = need(f->layers * c->physical, 4);
    const int kind = (int)rng_below(rng, 6);
    for (int i = 0; i < f->layers * c->experts; i++)
        f->loads[i] = kind == 0   ? rng_below(rng, 3)
                      : kind == 1 ? rng_below(rng, 100)
                      : kind == 2 ? 7
                      : kind == 3 ? 0
                      : kind == 4 ? rng_below(rng, 50) * (rng_below(rng, 4) == 0)
                                  : rng_below(rng, INT64_C(1) << 33);
    for (int i = 0; i < f->layers * c->physical; i++)
        f->previous[i] = (int32_t)rng_below(rng, c->experts);
    seen.nodes += by_node && nodes > 1;
    seen.global += !by_node && nodes > 1;
    seen.distinct += c->distinct;
    seen.one_each += c->physical == c->devices;
    seen.replicas += c->physical > c->experts;
    seen.equal += kind == 2;
    seen.zero += kind == 3;
    seen.sparse += kind == 4;
}

static int64_t number_at(const struct tensor *x, int64_t row, int64_t i)
{
    int64_t wide;
    int32_t narrow;
    const unsigned char *at = tensor_row(x, row);
    if (type_bytes(x->t.dtype) == 8) {
        memcpy(&wide, at + 8 * i, 8);
        return wide;
    }
    memcpy(&narrow, at + 4 * i, 4);
    return narrow;
}

/* With `distinct` no device has an expert twice. */
static void expect_distinct(const struct place_case *c, const struct tensor *experts, int layer)
{
    const int size = c->physical / c->devices;
    for (int i = 0; i < c->physical; i++)
        for (int j = i / size * size; j < i; j++)
            if (number_at(experts, layer, i) == number_at(experts, layer, j)) {
                seen.repeated++;
                assert_false(c->distinct);
            }
}

static void expect_layer(const struct fixture *f, int layer, const struct place_truth *t,
                         struct tensor *const *out)
{
    const struct place_case *c = &f->c;
    const int64_t replicas = out[1]->shape[2];
    for (int i = 0; i < c->physical; i++)
        assert_int_equal(number_at(out[0], layer, i), t->expert[i]);
    for (int e = 0; e < c->experts; e++) {
        assert_int_equal(number_at(out[2], layer, e), t->count[e]);
        for (int64_t r = 0; r < replicas; r++) {
            const int64_t at = number_at(out[1], layer * c->experts + e, r);
            assert_true(r < t->count[e] ? t->expert[at] == e && t->replica[at] == r : at == -1);
        }
    }
    for (int d = 0; d < c->devices; d++)
        assert_int_equal(number_at(out[3], layer, d), t->load[d]);
}

static void check(uint64_t seed, sy_ctx *ctx)
{
    uint64_t rng = seed;
    struct fixture f = {.layers = 0};
    fixture_make(&f, &rng);
    const struct place_case *c = &f.c;
    const DLDataType wide = seed % 3 == 0 ? SY_I64 : SY_I32;
    const bool keeps = seed % 2;
    struct tensor *loads = any_tensor(&rng, SY_I64, 2, f.layers, c->experts);
    struct tensor *previous = any_tensor(&rng, SY_I32, 2, f.layers, c->physical);
    tensor_put(loads, f.loads);
    tensor_put(previous, f.previous);
    const int64_t most = c->physical - c->experts + 1 + (int64_t)(seed % 2);
    struct tensor *table = calloc(1, sizeof *table);
    assert_non_null(table);
    tensor_make(table, wide, 3, (int64_t[]){f.layers, c->experts, most},
                &(struct layout){.row_gap = (int64_t)(seed % 4)});
    struct tensor *out[] = {any_tensor(&rng, wide, 2, f.layers, c->physical), table,
                            any_tensor(&rng, wide, 2, f.layers, c->experts),
                            any_tensor(&rng, SY_I64, 2, f.layers, c->devices),
                            any_tensor(&rng, SY_U16, 2, c->physical, c->devices)};
    const sy_moe_place_args args = {.loads = &loads->t,
                                    .previous = keeps ? &previous->t : NULL,
                                    .num_physical = c->physical,
                                    .devices = c->devices,
                                    .nodes = c->nodes,
                                    .groups = c->groups,
                                    .distinct = c->distinct,
                                    .physical_to_logical = &out[0]->t,
                                    .logical_to_physical = &table->t,
                                    .replica_count = &out[2]->t,
                                    .device_load = &out[3]->t,
                                    .expert_mapping = &out[4]->t};
    expect_status(ctx, sy_moe_place(ctx, &args), SY_OK);
    for (int l = 0; l < f.layers; l++) {
        struct place_case one = *c;
        struct place_truth t;
        one.loads = f.loads + (int64_t)l * c->experts;
        one.previous = keeps ? f.previous + (int64_t)l * c->physical : NULL;
        oracle_place(&one, &t);
        expect_distinct(c, out[0], l);
        expect_layer(&f, l, &t, out);
        seen.kept += keeps;
    }
    for (int64_t p = 0; p < c->physical; p++)
        for (int d = 0; d < c->devices; d++) {
            uint16_t here;
            memcpy(&here, (const unsigned char *)tensor_row(out[4], p) + 2 * d, 2);
            assert_int_equal(here, p / (c->physical / c->devices) == d);
        }
    seen.wide += wide.bits == 64;
    tensor_free(table);
    free(table);
    free_all();
}

static void random_layers(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++)
        check(seed, contexts[(int)(seed / 30) % n_contexts]);
    expect_hard(seen, 20);
}

/* Every way to place E experts of load 0 or 1 onto up to 6 devices without repetition: a layer for each choice of loads. */
static void every_small_call(void **state)
{
    (void)state;
    for (int experts = 1; experts <= 8; experts++)
        for (int devices = 1; devices <= 6; devices++)
            for (int size = (experts + devices - 1) / devices; size <= experts; size++) {
                struct place_case c = {.experts = experts,
                                       .physical = size * devices,
                                       .devices = devices,
                                       .nodes = 1,
                                       .distinct = true};
                const int layers = 1 << experts;
                int64_t *const loads = need(layers * experts, 8);
                for (int i = 0; i < layers * experts; i++)
                    loads[i] = i / experts >> i % experts & 1;
                struct tensor in = {0}, out = {0};
                tensor_make(&in, SY_I64, 2, (int64_t[]){layers, experts}, NULL);
                tensor_make(&out, SY_I32, 2, (int64_t[]){layers, c.physical}, NULL);
                tensor_put(&in, loads);
                const sy_moe_place_args args = {.loads = &in.t,
                                                .num_physical = c.physical,
                                                .devices = devices,
                                                .distinct = true,
                                                .physical_to_logical = &out.t};
                expect_status(contexts[0], sy_moe_place(contexts[0], &args), SY_OK);
                for (int l = 0; l < layers; l++) {
                    struct place_truth t;
                    c.loads = loads + (int64_t)l * experts;
                    oracle_place(&c, &t);
                    expect_distinct(&c, &out, l);
                    for (int i = 0; i < c.physical; i++)
                        assert_int_equal(number_at(&out, l, i), t.expert[i]);
                }
                tensor_free(&in);
                tensor_free(&out);
                free_all();
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_call),
        cmocka_unit_test(random_layers),
    };
    return cmocka_run_group_tests_name("op_moe_place", tests, open_contexts, close_contexts);
}
