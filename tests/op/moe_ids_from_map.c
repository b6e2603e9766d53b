/*
 * moe_ids_from_map: seeded cases against the oracle on every kernel table and several thread counts, overfull rows among
 * them.
 */
#include "support_random.h"

#include "oracle/moe_ids_from_map.h"

static const DLDataType float_types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
static const DLDataType byte_types[] = {{6, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 8, 1}};

static struct {
    int overfull, later_task, short_rows, full_rows, ok;
} seen;

static void fill_map(uint64_t *rng, const struct ids_case *in, uint8_t *map, bool faulty)
{
    const int64_t overfull = faulty && in->tokens > 0 ? rng_below(rng, in->tokens) : -1;
    for (int64_t t = 0; t < in->tokens; t++) {
        int64_t n = 0;
        const int64_t most = t == overfull ? in->experts : in->slots, odds = 1 + rng_below(rng, 6);
        for (int64_t e = 0; e < in->experts; e++) {
            const bool on = n < most && rng_below(rng, odds) == 0;
            map[t * in->experts + e] = on ? (uint8_t)(1 + rng_below(rng, 255)) : 0;
            n += on;
        }
        seen.short_rows += n < in->slots;
        seen.full_rows += n == in->slots;
    }
}

static void check_case(uint64_t *rng, struct ids_case *in, bool faulty)
{
    const int64_t slots = in->tokens * in->slots, cells = in->tokens * in->experts;
    const DLDataType type = float_types[rng_below(rng, 3)];
    const bool wide = rng_below(rng, 2), weighted = rng_below(rng, 2);
    uint8_t *dense = need(cells, 1), *values = need(cells, 4), *want_weights = need(slots, 4);
    int64_t *want = need(slots, sizeof *want);
    fill_map(rng, in, dense, faulty);
    rng_fill(rng, values, (size_t)cells * 4);
    struct tensor *map = any_tensor(rng, byte_types[rng_below(rng, 3)], 2, in->tokens, in->experts),
                  *probs = any_tensor(rng, type, 2, in->tokens, in->experts),
                  *ids = any_tensor(rng, wide ? SY_I64 : SY_I32, 2, in->tokens, in->slots),
                  *weights = any_tensor(rng, type, 2, in->tokens, in->slots);
    tensor_put(map, dense);
    tensor_put(probs, values);
    in->map = dense;
    in->probs = values;
    in->weight_bytes = weighted ? type_bytes(type) : 0;
    const sy_fault fault = oracle_moe_ids_from_map(in, want, want_weights);
    seen.overfull += fault.status != SY_OK;
    seen.later_task += fault.status != SY_OK && fault.position > in->tokens / 2;
    seen.ok += fault.status == SY_OK;
    for (int64_t i = 0; i < slots && !wide; i++) /* in place: a narrow id is before its wide one */
        memcpy((char *)want + i * 4, &(int32_t){(int32_t)want[i]}, 4);
    const sy_moe_ids_from_map_args args = {.routing_map = &map->t,
                                           .probs = weighted ? &probs->t : NULL,
                                           .k = in->slots,
                                           .ids = &ids->t,
                                           .weights = weighted ? &weights->t : NULL};
    const struct output out[] = {{"ids", ids, want, true}, {"weights", weights, want_weights, weighted}};
    for (int c = 0; c < n_contexts; c++) {
        fill_outputs(out, COUNT_OF(out));
        expect_outputs(contexts[c], sy_moe_ids_from_map(contexts[c], &args), &fault, out, COUNT_OF(out));
    }
    free_all();
}

static void random_cases(void **state)
{
    static const int64_t experts[] = {0, 1, 5, 16, 17, 40, 255, 256, 257, 600, 3000};
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t rng = seed;
        struct ids_case in = {.tokens = rng_below(&rng, 20),
                              .experts = experts[rng_below(&rng, COUNT_OF(experts))]};
        in.slots = rng_below(&rng, 9);
        check_case(&rng, &in, seed % 2 == 0);
    }
    expect_hard(seen, 20);
}

static void large_cases(void **state)
{
    uint64_t rng = 5;
    (void)state;
    for (int faulty = 0; faulty < 2; faulty++) {
        struct ids_case in = {.tokens = 2501, .experts = 130, .slots = 8};
        check_case(&rng, &in, faulty);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases),
        cmocka_unit_test(large_cases),
    };
    return cmocka_run_group_tests_name("op_moe_ids_from_map", tests, open_contexts, close_contexts);
}
