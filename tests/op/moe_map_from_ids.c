/*
 * moe_map_from_ids: seeded cases against the oracle on every kernel table and several thread counts, half of them faulty,
 * and the round trip through moe_ids_from_map.
 */
#include "support_random.h"

#include "oracle/moe_map_from_ids.h"

static const DLDataType float_types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
static const DLDataType byte_types[] = {{6, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 8, 1}};

static struct {
    int outside, repeated, missing, far, later_task, ok;
} seen;

/* Distinct experts in random order; some missing when that is allowed. */
static void fill_ids(uint64_t *rng, const struct map_case *in, int64_t *ids)
{
    int64_t *order = need(in->experts, sizeof *order);
    for (int64_t t = 0; t < in->tokens; t++) {
        for (int64_t i = 0; i < in->experts; i++) {
            const int64_t j = rng_below(rng, i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        for (int64_t j = 0; j < in->slots; j++) {
            int64_t *id = &ids[t * in->slots + j];
            *id = j < in->experts ? order[j] : in->experts;
            if (in->allow_missing && rng_below(rng, 4) == 0)
                *id = rng_below(rng, 2) ? -1 : in->experts;
            seen.missing += *id == -1 || *id == in->experts;
        }
    }
}

static void spoil_ids(uint64_t *rng, const struct map_case *in, int64_t *ids, bool wide)
{
    static const int64_t far[] = {INT32_MIN, INT32_MAX, -2, 1000};
    for (int64_t n = 1 + rng_below(rng, 3); n > 0 && in->tokens * in->slots > 0; n--) {
        const int64_t at = rng_below(rng, in->tokens * in->slots), row = at / in->slots * in->slots;
        const int64_t kind = rng_below(rng, 4);
        if (kind == 0)
            ids[at] = wide && rng_below(rng, 2) ? INT64_C(1) << 32 : far[rng_below(rng, COUNT_OF(far))];
        else if (kind == 1)
            ids[at] = in->experts + (in->allow_missing ? 1 : 0);
        else
            ids[at] = ids[row + rng_below(rng, in->slots)];
        seen.far += kind == 0;
    }
}

static void check_case(uint64_t *rng, struct map_case *in, bool faulty)
{
    const int64_t slots = in->tokens * in->slots, cells = in->tokens * in->experts;
    const DLDataType type = float_types[rng_below(rng, 3)];
    const bool wide = rng_below(rng, 2), weighted = rng_below(rng, 2);
    int64_t *dense = need(slots, sizeof *dense);
    unsigned char *values = need(slots, 4), *want_map = need(cells, 1), *want_probs = need(cells, 4);
    fill_ids(rng, in, dense);
    if (faulty)
        spoil_ids(rng, in, dense, wide);
    rng_fill(rng, values, (size_t)slots * 4);
    struct tensor *ids = any_tensor(rng, wide ? SY_I64 : SY_I32, 2, in->tokens, in->slots),
                  *weights = any_tensor(rng, type, 2, in->tokens, in->slots),
                  *map = any_tensor(rng, byte_types[rng_below(rng, 3)], 2, in->tokens, in->experts),
                  *probs = any_tensor(rng, type, 2, in->tokens, in->experts);
    put_numbers(ids, dense);
    tensor_put(weights, values);
    in->ids = dense;
    in->weights = values;
    in->weight_bytes = weighted ? type_bytes(type) : 0;
    const sy_fault fault = oracle_moe_map_from_ids(in, want_map, want_probs);
    seen.outside += fault.status == SY_ERR_INDEX;
    seen.repeated += fault.status == SY_ERR_ROUTING;
    seen.ok += fault.status == SY_OK;
    seen.later_task += fault.status != SY_OK && fault.batch > in->tokens / 2;
    const sy_moe_map_from_ids_args args = {.ids = &ids->t,
                                           .weights = weighted ? &weights->t : NULL,
                                           .num_experts = in->experts,
                                           .allow_missing = in->allow_missing,
                                           .routing_map = &map->t,
                                           .probs = weighted ? &probs->t : NULL};
    const struct output out[] = {{"routing_map", map, want_map, true},
                                 {"probs", probs, want_probs, weighted}};
    for (int c = 0; c < n_contexts; c++) {
        fill_outputs(out, COUNT_OF(out));
        expect_outputs(contexts[c], sy_moe_map_from_ids(contexts[c], &args), &fault, out, COUNT_OF(out));
    }
    free_all();
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t rng = seed;
        struct map_case in = {.tokens = rng_below(&rng, 20), .experts = rng_below(&rng, 40)};
        in.allow_missing = rng_below(&rng, 2);
        in.slots = rng_below(&rng, in.experts < 6 ? in.experts + 1 : 7);
        check_case(&rng, &in, seed % 2 == 0);
    }
    expect_hard(seen, 20);
}

static void large_cases(void **state)
{
    uint64_t rng = 5;
    (void)state;
    for (int i = 0; i < 12; i++) {
        struct map_case in = {.tokens = 4001, .experts = 130, .slots = i % 2 ? 8 : 5};
        in.allow_missing = i >= 6;
        check_case(&rng, &in, i % 6 > 1);
    }
}

/* Many experts and slots. */
static void wide_cases(void **state)
{
    static const int64_t experts[] = {100, 5000, 16384, 40000};
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed++) {
        uint64_t rng = seed;
        struct map_case in = {.tokens = 1 + rng_below(&rng, 5), .experts = experts[seed % 4]};
        in.allow_missing = rng_below(&rng, 2);
        in.slots = 1 + rng_below(&rng, 40);
        check_case(&rng, &in, seed % 3 == 0);
    }
}

/* ids -> map -> ids gives the ids sorted, and map -> ids -> map the map. */
static void round_trip(void **state)
{
    enum { T = 40, E = 9, K = 4 };
    uint8_t map[T][E], again[T][E];
    int32_t ids[T][K];
    uint64_t rng = 11;
    (void)state;
    DLTensor m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){T, E}),
             a = sy_tensor(again, SY_BOOL, 2, (int64_t[]){T, E}),
             i = sy_tensor(ids, SY_I32, 2, (int64_t[]){T, K});
    for (int t = 0; t < T; t++)
        for (int e = 0, n = 0; e < E; e++)
            n += map[t][e] = n < K && rng_below(&rng, 3) == 0;
    const sy_moe_ids_from_map_args there = {.routing_map = &m, .k = K, .ids = &i};
    const sy_moe_map_from_ids_args back = {
        .ids = &i, .num_experts = E, .allow_missing = true, .routing_map = &a};
    expect_status(contexts[0], sy_moe_ids_from_map(contexts[0], &there), SY_OK);
    expect_status(contexts[0], sy_moe_map_from_ids(contexts[0], &back), SY_OK);
    expect_bytes(again, map, sizeof map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases),
        cmocka_unit_test(large_cases),
        cmocka_unit_test(wide_cases),
        cmocka_unit_test(round_trip),
    };
    return cmocka_run_group_tests_name("op_moe_map_from_ids", tests, open_contexts, close_contexts);
}
