/*
 * moe_pad_map: the worked examples of its page, then seeded cases against the oracle on every kernel table and several
 * thread counts, in place and not, maps that cannot be padded among them.
 */
#include "support.h"

#include "oracle/moe_pad_map.h"

static const DLDataType byte_types[] = {{6, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 8, 1}};

static sy_ctx *contexts[16];
static int n_contexts;
static struct {
    int exact, empty_expert, all_tokens, many_experts, odd_bytes, refused, ok;
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

static void examples(void **state)
{
    static const struct {
        int64_t alignment;
        uint8_t want[5][3];
        int64_t counts[3];
    } cases[] = {
        {1, {{1, 0, 0}, {1, 0, 2}, {1, 0, 0}, {0, 0, 1}, {0, 0, 0}}, {3, 0, 2}},
        {2, {{1, 0, 0}, {1, 0, 2}, {1, 0, 0}, {1, 0, 1}, {0, 0, 0}}, {4, 0, 2}},
        {4, {{1, 0, 1}, {1, 0, 2}, {1, 0, 1}, {1, 0, 1}, {0, 0, 0}}, {4, 0, 4}},
        {5, {{1, 0, 1}, {1, 0, 2}, {1, 0, 1}, {1, 0, 1}, {1, 0, 1}}, {5, 0, 5}},
    };
    (void)state;
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        uint8_t map[5][3] = {{1, 0, 0}, {1, 0, 2}, {1, 0, 0}, {0, 0, 1}, {0, 0, 0}}, padded[5][3];
        int64_t counts[3];
        DLTensor m = sy_tensor(map, SY_U8, 2, (int64_t[]){5, 3}),
                 p = sy_tensor(padded, SY_U8, 2, (int64_t[]){5, 3}),
                 n = sy_tensor(counts, SY_I64, 1, (int64_t[]){3});
        sy_moe_pad_map_args args = {.routing_map = &m, .alignment = cases[c].alignment};
        sy_query query;
        expect_status(contexts[0], sy_moe_pad_map_query(contexts[0], &args, &query), SY_OK);
        assert_int_equal(query.rows, 5);
        args.padded_map = &p;
        args.expert_counts = &n;
        expect_status(contexts[0], sy_moe_pad_map(contexts[0], &args), SY_OK);
        expect_bytes(padded, cases[c].want, sizeof padded);
        expect_bytes(counts, cases[c].counts, sizeof counts);
        args.padded_map = &m;
        args.expert_counts = NULL;
        expect_status(contexts[0], sy_moe_pad_map(contexts[0], &args), SY_OK);
        expect_bytes(map, cases[c].want, sizeof map);
    }
}

static void too_few_tokens(void **state)
{
    static const int64_t alignments[] = {8, INT64_MAX};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(alignments); i++) {
        uint8_t map[5][2] = {{0, 1}, {0, 1}, {0, 0}, {0, 1}, {0, 0}}, before[5][2];
        DLTensor m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){5, 2});
        memcpy(before, map, sizeof map);
        expect_status(contexts[0],
                      sy_moe_pad_map(contexts[0], &(sy_moe_pad_map_args){.routing_map = &m,
                                                                         .alignment = alignments[i],
                                                                         .padded_map = &m}),
                      SY_ERR_ROUTING);
        expect_fault(contexts[0], SY_FAULT_LENGTH_RANGE, -1, 1, 3, 5);
        expect_bytes(map, before, sizeof map);
    }
}

/* What moe_permute makes of a padded map has whole tiles, and what was added weighs nothing on the way back. */
static void tiles_and_back(void **state)
{
    enum { T = 40, E = 5, K = 2, A = 8, N = T * E };
    uint8_t map[T][E] = {{0}};
    float x[T], probs[T][E] = {{0}}, rows[N], back[T];
    int32_t slots[N];
    int64_t counts[E];
    uint64_t rng = 4;
    DLTensor m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){T, E}),
             w = sy_tensor(probs, SY_F32, 2, (int64_t[]){T, E}),
             t = sy_tensor(x, SY_F32, 2, (int64_t[]){T, 1}),
             y = sy_tensor(rows, SY_F32, 2, (int64_t[]){N, 1}),
             s = sy_tensor(slots, SY_I32, 1, (int64_t[]){N}),
             c = sy_tensor(counts, SY_I64, 1, (int64_t[]){E}),
             b = sy_tensor(back, SY_F32, 2, (int64_t[]){T, 1});
    (void)state;
    for (int i = 0; i < T; i++) {
        const int64_t first = rng_below(&rng, E);
        x[i] = (float)(i + 1);
        map[i][first] = map[i][(first + 2) % E] = 1;
        probs[i][first] = .75f;
        probs[i][(first + 2) % E] = .25f;
    }
    expect_status(contexts[0],
                  sy_moe_pad_map(contexts[0],
                                 &(sy_moe_pad_map_args){.routing_map = &m, .alignment = A, .padded_map = &m}),
                  SY_OK);
    expect_status(contexts[0],
                  sy_moe_permute(contexts[0], &(sy_moe_permute_args){.tokens = &t,
                                                                     .routing_map = &m,
                                                                     .num_out_tokens = N,
                                                                     .permuted_tokens = &y,
                                                                     .sorted_indices = &s,
                                                                     .expert_counts = &c}),
                  SY_OK);
    for (int e = 0; e < E; e++)
        assert_true(counts[e] > 0 && counts[e] % A == 0);
    expect_status(contexts[0],
                  sy_moe_unpermute(contexts[0], &(sy_moe_unpermute_args){.permuted_tokens = &y,
                                                                         .sorted_indices = &s,
                                                                         .routing_map = &m,
                                                                         .probs = &w,
                                                                         .tokens = &b}),
                  SY_OK);
    expect_bytes(back, x, sizeof x);
}

static void empty(void **state)
{
    static const int64_t shapes[][2] = {{0, 3}, {4, 0}, {0, 0}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        int64_t shape[2] = {shapes[i][0], shapes[i][1]}, counts[3] = {9, 9, 9};
        DLTensor m = sy_tensor(NULL, SY_BOOL, 2, shape), c = sy_tensor(counts, SY_I64, 1, &shape[1]);
        expect_status(contexts[0],
                      sy_moe_pad_map(contexts[0], &(sy_moe_pad_map_args){.routing_map = &m,
                                                                         .alignment = 7,
                                                                         .padded_map = &m,
                                                                         .expert_counts = &c}),
                      SY_OK);
        for (int64_t e = 0; e < 3; e++)
            assert_int_equal(counts[e], e < shape[1] ? 0 : 9);
    }
}

/* ---- Random cases against the oracle ------------------------------------------------------------------------- */

struct fixture {
    int64_t tokens, experts, alignment;
    struct tensor map, padded, counts;
    uint8_t *dense, *want;
    int64_t *want_counts;
};

static void make_tensor(struct tensor *x, uint64_t *rng, DLDataType type, int rank, int64_t d0, int64_t d1)
{
    const struct layout at = {.strided = rng_below(rng, 2),
                              .row_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 7),
                              .misalign = rng_below(rng, 3) ? 0 : (size_t)rng_below(rng, 64)};
    tensor_make(x, type, rank, (int64_t[]){d0, d1}, &at);
}

static void fixture_make(struct fixture *f, uint64_t *rng)
{
    const DLDataType type = byte_types[rng_below(rng, 3)];
    const size_t cells = (size_t)(f->tokens * f->experts);
    make_tensor(&f->map, rng, type, 2, f->tokens, f->experts);
    make_tensor(&f->padded, rng, type, 2, f->tokens, f->experts);
    make_tensor(&f->counts, rng, SY_I64, 1, f->experts, 0);
    f->dense = calloc(cells + 1, 1);
    f->want = calloc(cells + 1, 1);
    f->want_counts = calloc((size_t)f->experts + 1, 8);
    assert_true(f->dense && f->want && f->want_counts);
    for (int64_t e = 0; e < f->experts; e++) {
        const int64_t odds = rng_below(rng, 7); /* 0: none at all */
        for (int64_t t = 0; t < f->tokens; t++) {
            const bool on = odds > 0 && rng_below(rng, odds) == 0;
            f->dense[t * f->experts + e] = on ? (uint8_t)(1 + rng_below(rng, 255)) : 0;
            seen.odd_bytes += f->dense[t * f->experts + e] > 1;
        }
    }
    memcpy(f->want, f->dense, cells);
    seen.many_experts += f->experts > 256;
}

/* In place or from one map to another. */
static void fixture_run(struct fixture *f, sy_ctx *ctx, int64_t short_expert, bool in_place, bool counted)
{
    struct tensor *const out = in_place ? &f->map : &f->padded;
    tensor_put(&f->map, f->dense);
    if (!in_place)
        memset(out->mem, 0xA5, out->bytes);
    memset(f->counts.mem, 0xA5, f->counts.bytes);
    unsigned char *before = tensor_snapshot(out), *counts_before = tensor_snapshot(&f->counts);
    const sy_moe_pad_map_args args = {.routing_map = &f->map.t,
                                      .alignment = f->alignment,
                                      .padded_map = &out->t,
                                      .expert_counts = counted ? &f->counts.t : NULL};
    expect_status(ctx, sy_moe_pad_map(ctx, &args), short_expert < 0 ? SY_OK : SY_ERR_ROUTING);
    if (short_expert < 0) {
        tensor_expect(out, f->want, before, "padded_map");
    } else {
        int64_t count = 0;
        for (int64_t t = 0; t < f->tokens; t++)
            count += f->dense[t * f->experts + short_expert] != 0;
        expect_fault(ctx, SY_FAULT_LENGTH_RANGE, -1, short_expert, count, f->tokens);
        tensor_expect_unchanged(out, before, "padded_map");
    }
    if (counted && short_expert < 0)
        tensor_expect(&f->counts, f->want_counts, counts_before, "expert_counts");
    else
        tensor_expect_unchanged(&f->counts, counts_before, "expert_counts");
    free(before);
    free(counts_before);
}

static void check_case(struct fixture *f, uint64_t *rng)
{
    fixture_make(f, rng);
    const int64_t short_expert =
        oracle_moe_pad_map(f->tokens, f->experts, f->alignment, f->want, f->want_counts);
    seen.refused += short_expert >= 0;
    seen.ok += short_expert < 0;
    for (int64_t e = 0; e < f->experts && short_expert < 0; e++) {
        seen.empty_expert += f->want_counts[e] == 0;
        seen.all_tokens += f->want_counts[e] == f->tokens;
        seen.exact += f->want_counts[e] > 0 && f->alignment > 1;
    }
    for (int c = 0; c < n_contexts; c++)
        fixture_run(f, contexts[c], short_expert, (c / 2) % 2, c % 2);
    tensor_free(&f->map);
    tensor_free(&f->padded);
    tensor_free(&f->counts);
    free(f->dense);
    free(f->want);
    free(f->want_counts);
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t rng = seed;
        struct fixture f = {.tokens = rng_below(&rng, 60), .experts = rng_below(&rng, seed % 4 ? 30 : 600)};
        f.alignment = 1 + rng_below(&rng, seed % 3 ? 9 : 40);
        check_case(&f, &rng);
    }
    const int all[] = {seen.exact,     seen.empty_expert, seen.all_tokens, seen.many_experts,
                       seen.odd_bytes, seen.refused,      seen.ok};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 20)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

/* Enough cells for several threads. */
static void large_cases(void **state)
{
    uint64_t rng = 8;
    (void)state;
    struct fixture f = {.tokens = 3001, .experts = 130, .alignment = 128};
    check_case(&f, &rng);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(examples), cmocka_unit_test(too_few_tokens), cmocka_unit_test(tiles_and_back),
        cmocka_unit_test(empty),    cmocka_unit_test(random_cases),   cmocka_unit_test(large_cases),
    };
    return cmocka_run_group_tests_name("op_moe_pad_map", tests, open_contexts, close_contexts);
}
