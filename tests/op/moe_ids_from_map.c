/*
 * moe_ids_from_map: the worked examples of its page, then seeded cases against the oracle on every kernel table and
 * several thread counts, overfull rows among them.
 */
#include "support.h"

#include "oracle/moe_ids_from_map.h"

static const DLDataType float_types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
static const DLDataType byte_types[] = {{6, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 8, 1}};

static sy_ctx *contexts[16];
static int n_contexts;
static struct {
    int overfull, later_task, short_rows, full_rows, ok;
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

static void example(void **state)
{
    uint8_t map[3][4] = {{1, 0, 255, 0}, {0, 2, 0, 0}, {0, 0, 1, 1}};
    float probs[3][4] = {{.25f, 9, .75f, 9}, {9, .5f, 9, 9}, {9, 9, .375f, -0.0f}}, weights[3][2];
    int32_t ids[3][2];
    const int32_t want[3][2] = {{0, 2}, {1, -1}, {2, 3}};
    const float want_weights[3][2] = {{.25f, .75f}, {.5f, 0}, {.375f, -0.0f}};
    DLTensor m = sy_tensor(map, SY_U8, 2, (int64_t[]){3, 4}),
             p = sy_tensor(probs, SY_F32, 2, (int64_t[]){3, 4}),
             i = sy_tensor(ids, SY_I32, 2, (int64_t[]){3, 2}),
             w = sy_tensor(weights, SY_F32, 2, (int64_t[]){3, 2});
    sy_moe_ids_from_map_args args = {.routing_map = &m, .k = 2, .ids = &i};
    sy_query query;
    (void)state;
    expect_status(contexts[0], sy_moe_ids_from_map(contexts[0], &args), SY_OK);
    expect_bytes(ids, want, sizeof ids);
    memset(ids, 0xA5, sizeof ids);
    args.probs = &p;
    args.weights = &w;
    expect_status(contexts[0], sy_moe_ids_from_map_query(contexts[0], &args, &query), SY_OK);
    assert_int_equal(query.rows, 3);
    expect_status(contexts[0], sy_moe_ids_from_map(contexts[0], &args), SY_OK);
    expect_bytes(ids, want, sizeof ids);
    expect_bytes(weights, want_weights, sizeof weights);
}

static void overfull_row(void **state)
{
    uint8_t map[3][3] = {{1, 0, 0}, {1, 1, 1}, {1, 1, 1}};
    int32_t ids[3][2], untouched[3][2];
    DLTensor m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){3, 3}),
             i = sy_tensor(ids, SY_I32, 2, (int64_t[]){3, 2});
    (void)state;
    memset(ids, 0xA5, sizeof ids);
    memset(untouched, 0xA5, sizeof untouched);
    expect_status(
        contexts[0],
        sy_moe_ids_from_map(contexts[0], &(sy_moe_ids_from_map_args){.routing_map = &m, .k = 2, .ids = &i}),
        SY_ERR_ROUTING);
    expect_fault(contexts[0], SY_FAULT_ROW_OVERFULL, -1, 1, 3, 2);
    expect_bytes(ids, untouched, sizeof ids);
}

/* More slots than experts, no slots, no experts, no tokens. */
static void odd_shapes(void **state)
{
    uint8_t map[2][2] = {{0, 1}, {0, 0}};
    int64_t ids[2][3];
    const int64_t want[2][3] = {{1, -1, -1}, {-1, -1, -1}}, none[2][3] = {{-1, -1, -1}, {-1, -1, -1}};
    DLTensor m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){2, 2}),
             i = sy_tensor(ids, SY_I64, 2, (int64_t[]){2, 3});
    sy_moe_ids_from_map_args args = {.routing_map = &m, .k = 3, .ids = &i};
    (void)state;
    expect_status(contexts[0], sy_moe_ids_from_map(contexts[0], &args), SY_OK);
    expect_bytes(ids, want, sizeof ids);
    m.shape = (int64_t[]){2, 0};
    expect_status(contexts[0], sy_moe_ids_from_map(contexts[0], &args), SY_OK);
    expect_bytes(ids, none, sizeof ids);
    m.shape = (int64_t[]){2, 2};
    i.shape = (int64_t[]){2, 0};
    args.k = 0;
    expect_status(contexts[0], sy_moe_ids_from_map(contexts[0], &args), SY_ERR_ROUTING);
    expect_fault(contexts[0], SY_FAULT_ROW_OVERFULL, -1, 0, 1, 0);
    map[0][1] = 0;
    expect_status(contexts[0], sy_moe_ids_from_map(contexts[0], &args), SY_OK);
    m.shape = i.shape = (int64_t[]){0, 0};
    expect_status(contexts[0], sy_moe_ids_from_map(contexts[0], &args), SY_OK);
}

/* ---- Random cases against the oracle ------------------------------------------------------------------------- */

static void make_tensor(struct tensor *x, uint64_t *rng, DLDataType type, int64_t rows, int64_t columns)
{
    const struct layout at = {.strided = rng_below(rng, 2),
                              .row_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 7),
                              .misalign = rng_below(rng, 3) ? 0 : (size_t)rng_below(rng, 64)};
    tensor_make(x, type, 2, (int64_t[]){rows, columns}, &at);
}

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
    struct tensor map, probs, ids, weights;
    in->weight_bytes = weighted ? type_bytes(type) : 0;
    uint8_t *dense = calloc((size_t)cells + 1, 1), *values = calloc((size_t)cells + 1, 4),
            *want_weights = calloc((size_t)slots + 1, 4);
    int64_t *want = calloc((size_t)slots + 1, sizeof *want);
    assert_true(dense && values && want_weights && want);
    fill_map(rng, in, dense, faulty);
    rng_fill(rng, values, (size_t)cells * 4);
    make_tensor(&map, rng, byte_types[rng_below(rng, 3)], in->tokens, in->experts);
    make_tensor(&probs, rng, type, in->tokens, in->experts);
    make_tensor(&ids, rng, wide ? SY_I64 : SY_I32, in->tokens, in->slots);
    make_tensor(&weights, rng, type, in->tokens, in->slots);
    tensor_put(&map, dense);
    tensor_put(&probs, values);
    in->map = dense;
    in->probs = values;
    const sy_fault fault = oracle_moe_ids_from_map(in, want, want_weights);
    seen.overfull += fault.status != SY_OK;
    seen.later_task += fault.status != SY_OK && fault.position > in->tokens / 2;
    seen.ok += fault.status == SY_OK;
    for (int64_t i = 0; i < slots && !wide;
         i++) /* in place: a narrow id lies before the wide one it comes from */
        memcpy((char *)want + i * 4, &(int32_t){(int32_t)want[i]}, 4);
    const sy_moe_ids_from_map_args args = {.routing_map = &map.t,
                                           .probs = weighted ? &probs.t : NULL,
                                           .k = in->slots,
                                           .ids = &ids.t,
                                           .weights = weighted ? &weights.t : NULL};
    for (int c = 0; c < n_contexts; c++) {
        memset(ids.mem, 0xA5, ids.bytes);
        memset(weights.mem, 0xA5, weights.bytes);
        unsigned char *before = tensor_snapshot(&ids), *before_weights = tensor_snapshot(&weights);
        expect_status(contexts[c], sy_moe_ids_from_map(contexts[c], &args), fault.status);
        if (fault.status == SY_OK) {
            tensor_expect(&ids, want, before, "ids");
            if (weighted)
                tensor_expect(&weights, want_weights, before_weights, "weights");
        } else {
            expect_fault(contexts[c], fault.code, fault.batch, fault.position, fault.value, fault.limit);
            tensor_expect_unchanged(&ids, before, "ids");
            tensor_expect_unchanged(&weights, before_weights, "weights");
        }
        free(before);
        free(before_weights);
    }
    struct tensor *const all[] = {&map, &probs, &ids, &weights};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(dense);
    free(values);
    free(want_weights);
    free(want);
}

static void random_cases(void **state)
{
    static const int64_t experts[] = {0, 1, 5, 16, 17, 40, 255, 256, 257, 600};
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        uint64_t rng = seed;
        struct ids_case in = {.tokens = rng_below(&rng, 20),
                              .experts = experts[rng_below(&rng, COUNT_OF(experts))]};
        in.slots = rng_below(&rng, 9);
        check_case(&rng, &in, seed % 2 == 0);
    }
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

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.overfull, seen.later_task, seen.short_rows, seen.full_rows, seen.ok};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 20)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example),     cmocka_unit_test(overfull_row),
        cmocka_unit_test(odd_shapes),  cmocka_unit_test(random_cases),
        cmocka_unit_test(large_cases), cmocka_unit_test(the_random_cases_were_hard),
    };
    return cmocka_run_group_tests_name("op_moe_ids_from_map", tests, open_contexts, close_contexts);
}
