/*
 * moe_map_from_ids: the worked examples of its page, then seeded cases against the oracle on every kernel table and
 * several thread counts, half of them faulty, and the round trip through moe_ids_from_map.
 */
#include "support.h"

#include "oracle/moe_map_from_ids.h"

static const DLDataType float_types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
static const DLDataType byte_types[] = {{6, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 8, 1}};

static sy_ctx *contexts[16];
static int n_contexts;
static struct {
    int outside, repeated, missing, far, later_task, ok;
} seen;

static int open_contexts(void **state)
{
    static const int threads[] = {1, 2, 3, 8};
    const char *isa;
    (void)state;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (size_t j = 0; j < COUNT_OF(threads) && n_contexts < (int)COUNT_OF(contexts); j++)
            contexts[n_contexts++] = test_ctx(threads[j], isa);
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    while (n_contexts > 0)
        sy_ctx_destroy(contexts[--n_contexts]);
    return 0;
}

/* ---- Examples ------------------------------------------------------------------------------------------------ */

static void example(void **state)
{
    int32_t ids[3][2] = {{2, 0}, {1, 2}, {3, 0}};
    float weights[3][2] = {{.75f, .25f}, {.5f, -0.0f}, {.625f, .375f}}, probs[3][4];
    uint8_t map[3][4];
    const uint8_t want[3][4] = {{1, 0, 1, 0}, {0, 1, 1, 0}, {1, 0, 0, 1}};
    const float want_probs[3][4] = {{.25f, 0, .75f, 0}, {0, .5f, -0.0f, 0}, {.375f, 0, 0, .625f}};
    DLTensor i = sy_tensor(ids, SY_I32, 2, (int64_t[]){3, 2}),
             w = sy_tensor(weights, SY_F32, 2, (int64_t[]){3, 2}),
             m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){3, 4}),
             p = sy_tensor(probs, SY_F32, 2, (int64_t[]){3, 4});
    sy_moe_map_from_ids_args args = {.ids = &i, .num_experts = 4, .routing_map = &m};
    sy_query query;
    (void)state;
    expect_status(contexts[0], sy_moe_map_from_ids(contexts[0], &args), SY_OK);
    expect_bytes(map, want, sizeof map);
    args.weights = &w;
    args.probs = &p;
    memset(map, 0xA5, sizeof map);
    expect_status(contexts[0], sy_moe_map_from_ids_query(contexts[0], &args, &query), SY_OK);
    assert_int_equal(query.rows, 3);
    expect_status(contexts[0], sy_moe_map_from_ids(contexts[0], &args), SY_OK);
    expect_bytes(map, want, sizeof map);
    expect_bytes(probs, want_probs, sizeof probs);
}

static sy_status call_ids(const int64_t *ids, int64_t slots, bool allow_missing, uint8_t map[2][3])
{
    DLTensor i = sy_tensor((void *)(uintptr_t)ids, SY_I64, 2, (int64_t[]){2, slots}),
             m = sy_tensor(map, SY_I8, 2, (int64_t[]){2, 3});
    memset(map, 0xA5, 6);
    return sy_moe_map_from_ids(
        contexts[0], &(sy_moe_map_from_ids_args){
                         .ids = &i, .num_experts = 3, .allow_missing = allow_missing, .routing_map = &m});
}

static void missing_experts(void **state)
{
    uint8_t map[2][3];
    const int64_t ids[] = {-1, 1, -1, 3, 3, 0};
    const uint8_t want[2][3] = {{0, 1, 0}, {1, 0, 0}};
    (void)state;
    expect_status(contexts[0], call_ids(ids, 3, true, map), SY_OK);
    expect_bytes(map, want, sizeof map);
    expect_status(contexts[0], call_ids(ids, 3, false, map), SY_ERR_INDEX);
    expect_fault(contexts[0], SY_FAULT_INDEX_RANGE, 0, 0, -1, 3);
    const int64_t beyond[] = {0, -2, 1, 2};
    expect_status(contexts[0], call_ids(beyond, 2, true, map), SY_ERR_INDEX);
    expect_fault(contexts[0], SY_FAULT_INDEX_RANGE, 0, 1, -2, 3);
}

static void faults_in_order(void **state)
{
    uint8_t map[2][3], untouched[2][3];
    const int64_t repeated[] = {0, 2, 1, 2, 7, 0}, outside[] = {0, 1, 2, 2, 7, 2};
    (void)state;
    memset(untouched, 0xA5, sizeof untouched);
    expect_status(contexts[0], call_ids((const int64_t[]){0, 2, 2, 9, 9, 9}, 3, false, map), SY_ERR_ROUTING);
    expect_fault(contexts[0], SY_FAULT_DUPLICATE, 0, 2, 2, 1);
    assert_non_null(strstr(sy_ctx_error(contexts[0]), "token 0, slot 2 is 2, as slot 1 is"));
    expect_bytes(map, untouched, sizeof map);
    expect_status(contexts[0], call_ids(repeated, 3, false, map), SY_ERR_INDEX);
    expect_fault(contexts[0], SY_FAULT_INDEX_RANGE, 1, 1, 7, 3);
    expect_status(contexts[0], call_ids(outside, 3, false, map), SY_ERR_INDEX);
    expect_fault(contexts[0], SY_FAULT_INDEX_RANGE, 1, 1, 7, 3);
    /* 2^32 is 0 in 32 bits. */
    expect_status(contexts[0], call_ids((const int64_t[]){INT64_C(1) << 32, 0}, 1, false, map), SY_ERR_INDEX);
    expect_fault(contexts[0], SY_FAULT_INDEX_RANGE, 0, 0, INT64_C(1) << 32, 3);
    expect_bytes(map, untouched, sizeof map);
}

static void empty_shapes(void **state)
{
    uint8_t map[2][3];
    const uint8_t zero[6] = {0};
    int32_t ids[4] = {0};
    (void)state;
    DLTensor i = sy_tensor(ids, SY_I32, 2, (int64_t[]){2, 0}),
             m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){2, 3});
    memset(map, 0xA5, sizeof map);
    expect_status(
        contexts[0],
        sy_moe_map_from_ids(contexts[0],
                            &(sy_moe_map_from_ids_args){.ids = &i, .num_experts = 3, .routing_map = &m}),
        SY_OK);
    expect_bytes(map, zero, sizeof zero);
    i.shape = (int64_t[]){2, 1};
    m.shape = (int64_t[]){2, 0};
    const sy_moe_map_from_ids_args none = {.ids = &i, .num_experts = 0, .routing_map = &m};
    expect_status(contexts[0], sy_moe_map_from_ids(contexts[0], &none), SY_ERR_INDEX);
    expect_fault(contexts[0], SY_FAULT_INDEX_RANGE, 0, 0, 0, 0);
    i.shape = (int64_t[]){0, 1};
    m.shape = (int64_t[]){0, 0};
    expect_status(contexts[0], sy_moe_map_from_ids(contexts[0], &none), SY_OK);
}

/* ---- Random cases against the oracle ------------------------------------------------------------------------- */

/* Distinct experts in random order; some missing when that is allowed. */
static void fill_ids(uint64_t *rng, const struct map_case *in, int64_t *ids)
{
    int64_t *order = calloc((size_t)in->experts + 1, sizeof *order);
    assert_non_null(order);
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
    free(order);
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

static struct layout any_layout(uint64_t *rng)
{
    return (struct layout){.strided = rng_below(rng, 2),
                           .row_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 7),
                           .misalign = rng_below(rng, 3) ? 0 : (size_t)rng_below(rng, 64)};
}

static void make_tensor(struct tensor *x, uint64_t *rng, DLDataType type, int64_t rows, int64_t columns)
{
    const struct layout at = any_layout(rng);
    tensor_make(x, type, 2, (int64_t[]){rows, columns}, &at);
}

static void put_ids(struct tensor *x, const int64_t *ids)
{
    for (int64_t i = 0; i < x->shape[0] * x->shape[1]; i++) {
        unsigned char *row = tensor_row(x, i / x->shape[1]);
        if (x->t.dtype.bits == 64)
            memcpy(row + i % x->shape[1] * 8, &ids[i], 8);
        else
            memcpy(row + i % x->shape[1] * 4, &(int32_t){(int32_t)ids[i]}, 4);
    }
}

static void check_case(uint64_t *rng, struct map_case *in, bool faulty)
{
    const int64_t slots = in->tokens * in->slots, cells = in->tokens * in->experts;
    const DLDataType type = float_types[rng_below(rng, 3)];
    const bool wide = rng_below(rng, 2), weighted = rng_below(rng, 2);
    struct tensor ids, weights, map, probs;
    in->weight_bytes = weighted ? type_bytes(type) : 0;
    int64_t *dense = calloc((size_t)slots + 1, sizeof *dense);
    unsigned char *values = calloc((size_t)slots + 1, 4), *want_map = calloc((size_t)cells + 1, 1),
                  *want_probs = calloc((size_t)cells + 1, 4);
    assert_true(dense && values && want_map && want_probs);
    fill_ids(rng, in, dense);
    if (faulty)
        spoil_ids(rng, in, dense, wide);
    rng_fill(rng, values, (size_t)slots * 4);
    make_tensor(&ids, rng, wide ? SY_I64 : SY_I32, in->tokens, in->slots);
    make_tensor(&weights, rng, type, in->tokens, in->slots);
    make_tensor(&map, rng, byte_types[rng_below(rng, 3)], in->tokens, in->experts);
    make_tensor(&probs, rng, type, in->tokens, in->experts);
    put_ids(&ids, dense);
    tensor_put(&weights, values);
    in->ids = dense;
    in->weights = values;
    const sy_fault fault = oracle_moe_map_from_ids(in, want_map, want_probs);
    seen.outside += fault.status == SY_ERR_INDEX;
    seen.repeated += fault.status == SY_ERR_ROUTING;
    seen.ok += fault.status == SY_OK;
    seen.later_task += fault.status != SY_OK && fault.batch > in->tokens / 2;
    const sy_moe_map_from_ids_args args = {.ids = &ids.t,
                                           .weights = weighted ? &weights.t : NULL,
                                           .num_experts = in->experts,
                                           .allow_missing = in->allow_missing,
                                           .routing_map = &map.t,
                                           .probs = weighted ? &probs.t : NULL};
    for (int c = 0; c < n_contexts; c++) {
        memset(map.mem, 0xA5, map.bytes);
        memset(probs.mem, 0xA5, probs.bytes);
        unsigned char *before = tensor_snapshot(&map), *before_probs = tensor_snapshot(&probs);
        expect_status(contexts[c], sy_moe_map_from_ids(contexts[c], &args), fault.status);
        if (fault.status == SY_OK) {
            tensor_expect(&map, want_map, before, "routing_map");
            if (weighted)
                tensor_expect(&probs, want_probs, before_probs, "probs");
        } else {
            expect_fault(contexts[c], fault.code, fault.batch, fault.position, fault.value, fault.limit);
            tensor_expect_unchanged(&map, before, "routing_map");
            tensor_expect_unchanged(&probs, before_probs, "probs");
        }
        free(before);
        free(before_probs);
    }
    struct tensor *const all[] = {&ids, &weights, &map, &probs};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(dense);
    free(values);
    free(want_map);
    free(want_probs);
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

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.outside, seen.repeated, seen.missing, seen.far, seen.later_task, seen.ok};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 20)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
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
    expect_status(
        contexts[0],
        sy_moe_ids_from_map(contexts[0], &(sy_moe_ids_from_map_args){.routing_map = &m, .k = K, .ids = &i}),
        SY_OK);
    expect_status(contexts[0],
                  sy_moe_map_from_ids(contexts[0], &(sy_moe_map_from_ids_args){.ids = &i,
                                                                               .num_experts = E,
                                                                               .allow_missing = true,
                                                                               .routing_map = &a}),
                  SY_OK);
    expect_bytes(again, map, sizeof map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example),
        cmocka_unit_test(missing_experts),
        cmocka_unit_test(faults_in_order),
        cmocka_unit_test(empty_shapes),
        cmocka_unit_test(random_cases),
        cmocka_unit_test(large_cases),
        cmocka_unit_test(the_random_cases_were_hard),
        cmocka_unit_test(round_trip),
    };
    return cmocka_run_group_tests_name("op_moe_map_from_ids", tests, open_contexts, close_contexts);
}
