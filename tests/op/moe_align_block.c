/*
 * moe_align_block: the worked examples of its page, then seeded cases against the oracle on every kernel table and
 * several thread counts: maps, missing ids, longer outputs than needed, faults.
 */
#include "support.h"

#include "oracle/moe_align_block.h"

static sy_ctx *contexts[16];
static int n_contexts;
static struct {
    int empty_expert, exact, repeated, missing, unmapped, skipped, longer, full, fault_ids, fault_map, ok;
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

struct small {
    int32_t sorted[10], blocks[5], padded;
    int64_t counts[4], offsets[5];
};

/* Three tokens, two slots each, four experts, blocks of two. */
static sy_status run(const int32_t *named, int32_t *expert_map, bool skip, struct small *out)
{
    DLTensor ids = sy_tensor((void *)(uintptr_t)named, SY_I32, 2, (int64_t[]){3, 2}),
             map = sy_tensor(expert_map, SY_I32, 1, (int64_t[]){4}),
             sorted = sy_tensor(out->sorted, SY_I32, 1, (int64_t[]){10}),
             blocks = sy_tensor(out->blocks, SY_I32, 1, (int64_t[]){5}),
             padded = sy_tensor(&out->padded, SY_I32, 1, (int64_t[]){1}),
             counts = sy_tensor(out->counts, SY_I64, 1, (int64_t[]){4}),
             offsets = sy_tensor(out->offsets, SY_I64, 1, (int64_t[]){5});
    sy_moe_align_block_args args = {.ids = &ids,
                                    .expert_map = expert_map ? &map : NULL,
                                    .num_experts = 4,
                                    .block_size = 2,
                                    .skip_unmapped = skip};
    sy_query query;
    memset(out, 0xA5, sizeof *out);
    expect_status(contexts[0], sy_moe_align_block_query(contexts[0], &args, &query), SY_OK);
    assert_int_equal(query.rows, 10);
    assert_int_equal(query.slots, 5);
    args.sorted_slots = &sorted;
    args.block_experts = &blocks;
    args.num_padded = &padded;
    args.expert_counts = &counts;
    args.expert_offsets = &offsets;
    return sy_moe_align_block(contexts[0], &args);
}

static void expect_small(const struct small *got, const struct small *want)
{
    expect_bytes(got->sorted, want->sorted, sizeof got->sorted);
    expect_bytes(got->blocks, want->blocks, sizeof got->blocks);
    assert_int_equal(got->padded, want->padded);
    expect_bytes(got->counts, want->counts, sizeof got->counts);
    expect_bytes(got->offsets, want->offsets, sizeof got->offsets);
}

static const int32_t named[6] = {2, 0, 1, 2, 0, 2};

static void example(void **state)
{
    struct small got;
    (void)state;
    expect_status(contexts[0], run(named, NULL, false, &got), SY_OK);
    expect_small(
        &got,
        &(struct small){{1, 4, 2, 6, 0, 3, 5, 6, 6, 6}, {0, 1, 2, 2, -1}, 8, {2, 1, 3, 0}, {0, 2, 4, 8, 8}});
}

static void experts_elsewhere(void **state)
{
    int32_t map[4] = {1, -1, 0, -1};
    struct small got;
    (void)state;
    expect_status(contexts[0], run(named, map, false, &got), SY_OK);
    expect_small(
        &got,
        &(struct small){{1, 4, 2, 6, 0, 3, 5, 6, 6, 6}, {1, -1, 0, 0, -1}, 8, {2, 1, 3, 0}, {0, 2, 4, 8, 8}});
    expect_status(contexts[0], run(named, map, true, &got), SY_OK);
    expect_small(
        &got,
        &(struct small){{1, 4, 0, 3, 5, 6, 6, 6, 6, 6}, {1, 0, 0, -1, -1}, 6, {2, 0, 3, 0}, {0, 2, 2, 6, 6}});
}

/* A matrix product that goes block by block, row by row, and skips padding, equals one that goes slot by slot. */
static void blocks_multiply_like_slots(void **state)
{
    enum { T = 29, K = 3, E = 7, B = 4, TOTAL = T * K, PLACES = (TOTAL + E * (B - 1)) / B * B };
    int32_t ids[TOTAL], sorted[PLACES], blocks[PLACES / B], padded;
    int64_t want[TOTAL], got[TOTAL];
    uint64_t rng = 5;
    DLTensor i = sy_tensor(ids, SY_I32, 2, (int64_t[]){T, K}),
             s = sy_tensor(sorted, SY_I32, 1, (int64_t[]){PLACES}),
             b = sy_tensor(blocks, SY_I32, 1, (int64_t[]){PLACES / B}),
             p = sy_tensor(&padded, SY_I32, 1, (int64_t[]){1});
    (void)state;
    for (int n = 0; n < TOTAL; n++) {
        ids[n] = (int32_t)rng_below(&rng, E);
        want[n] = (n / K + 1) * (100 + ids[n]); /* token times expert */
        got[n] = -1;
    }
    expect_status(contexts[0],
                  sy_moe_align_block(contexts[0], &(sy_moe_align_block_args){.ids = &i,
                                                                             .num_experts = E,
                                                                             .block_size = B,
                                                                             .sorted_slots = &s,
                                                                             .block_experts = &b,
                                                                             .num_padded = &p}),
                  SY_OK);
    for (int n = 0; n < padded; n++)
        if (sorted[n] < TOTAL)
            got[sorted[n]] = (sorted[n] / K + 1) * (100 + blocks[n / B]);
    expect_bytes(got, want, sizeof want);
}

/* No tokens, no slots, no experts: nothing has a place, and what is there is filler. */
static void empty(void **state)
{
    static const struct {
        int64_t tokens, slots, experts;
        bool missing;
    } cases[] = {{0, 2, 4, false}, {3, 0, 4, false}, {0, 0, 0, false}, {3, 2, 0, true}};
    (void)state;
    for (size_t c = 0; c < COUNT_OF(cases); c++) {
        int32_t ids[6] = {0, -1, 0, 0, -1, -1}, sorted[6], blocks[2], padded = 9; /* 0 is E */
        const int32_t none = (int32_t)(cases[c].tokens * cases[c].slots);
        DLTensor i = sy_tensor(none ? ids : NULL, SY_I32, 2, (int64_t[]){cases[c].tokens, cases[c].slots}),
                 s = sy_tensor(sorted, SY_I32, 1, (int64_t[]){6}),
                 b = sy_tensor(blocks, SY_I32, 1, (int64_t[]){2}),
                 p = sy_tensor(&padded, SY_I32, 1, (int64_t[]){1});
        const sy_moe_align_block_args args = {.ids = &i,
                                              .num_experts = cases[c].experts,
                                              .block_size = 3,
                                              .allow_missing = cases[c].missing,
                                              .sorted_slots = &s,
                                              .block_experts = &b,
                                              .num_padded = &p};
        expect_status(contexts[0], sy_moe_align_block(contexts[0], &args), SY_OK);
        assert_int_equal(padded, 0);
        for (int n = 0; n < 6; n++)
            assert_int_equal(sorted[n], none);
        expect_bytes(blocks, ((const int32_t[]){-1, -1}), sizeof blocks);
    }
}

/* ---- Random cases against the oracle ------------------------------------------------------------------------- */

struct fixture {
    struct align_case in;
    struct align_result want;
    struct tensor ids, map, sorted, blocks, padded, counts, offsets;
    int64_t *dense_ids;
    int32_t *dense_map;
};

static void *need(int64_t n, size_t bytes)
{
    void *memory = calloc((size_t)n + 1, bytes);
    assert_non_null(memory);
    return memory;
}

static void make_tensor(struct tensor *x, uint64_t *rng, DLDataType type, int rank, int64_t d0, int64_t d1)
{
    const struct layout at = {.strided = rng_below(rng, 2),
                              .row_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 7),
                              .misalign = rng_below(rng, 3) ? 0 : (size_t)rng_below(rng, 64)};
    tensor_make(x, type, rank, (int64_t[]){d0, d1}, &at);
}

static void fill_ids(struct fixture *f, uint64_t *rng, bool faulty)
{
    const struct align_case *in = &f->in;
    const bool wide = rng_below(rng, 2);
    const int64_t total = in->tokens * in->slots, fault = faulty && total > 0 ? rng_below(rng, total) : -1;
    make_tensor(&f->ids, rng, wide ? SY_I64 : SY_I32, 2, in->tokens, in->slots);
    for (int64_t i = 0; i < total; i++) {
        int64_t id =
            in->experts > 0 ? rng_below(rng, 1 + rng_below(rng, in->experts)) : -1; /* low ones more often */
        if (in->allow_missing && rng_below(rng, 6) == 0)
            id = rng_below(rng, 2) ? -1 : in->experts;
        if (i == fault)
            id = rng_below(rng, 2) ? -2 - rng_below(rng, 9) : in->experts + 1 + rng_below(rng, 9);
        if (i == fault && wide && rng_below(rng, 2))
            id = INT64_C(1) << 32; /* 0 when cut to 32 bits */
        f->dense_ids[i] = id;
        seen.missing += id == -1 || id == in->experts;
        seen.repeated += i % in->slots > 0 && id == f->dense_ids[i - 1];
        unsigned char *row = tensor_row(&f->ids, i / in->slots);
        if (wide)
            memcpy(row + i % in->slots * 8, &id, 8);
        else
            memcpy(row + i % in->slots * 4, &(int32_t){(int32_t)id}, 4);
    }
}

static void fill_map(struct fixture *f, uint64_t *rng, bool faulty)
{
    make_tensor(&f->map, rng, SY_I32, 1, f->in.experts, 0);
    for (int64_t e = 0; e < f->in.experts; e++)
        f->dense_map[e] = rng_below(rng, 3) ? (int32_t)rng_below(rng, INT32_MAX) : -1;
    if (faulty && f->in.experts > 0)
        f->dense_map[rng_below(rng, f->in.experts)] = rng_below(rng, 2) ? -2 : INT32_MIN;
    tensor_put(&f->map, f->dense_map);
}

static void fixture_make(struct fixture *f, uint64_t *rng)
{
    struct align_case *in = &f->in;
    const int64_t total = in->tokens * in->slots, used = in->experts < total ? in->experts : total;
    const int64_t kind = rng_below(rng, 10), longer = rng_below(rng, 3) ? 0 : rng_below(rng, 40);
    const bool mapped = rng_below(rng, 2);
    in->block = 1 + rng_below(rng, rng_below(rng, 2) ? 4 : 70);
    in->allow_missing = in->experts == 0 || rng_below(rng, 3) == 0;
    in->skip_unmapped = mapped && rng_below(rng, 2);
    in->places = (total + used * (in->block - 1)) / in->block * in->block;
    in->blocks = in->places / in->block + longer / 3;
    in->places += longer;
    f->dense_ids = need(total, 8);
    f->dense_map = need(in->experts, 4);
    fill_ids(f, rng, kind == 0);
    fill_map(f, rng, kind < 3);
    in->ids = f->dense_ids;
    in->map = mapped ? f->dense_map : NULL;
    f->want = (struct align_result){need(in->places, 4), need(in->blocks, 4), 0, need(in->experts, 8),
                                    need(in->experts + 1, 8)};
    make_tensor(&f->sorted, rng, SY_I32, 1, in->places, 0);
    make_tensor(&f->blocks, rng, SY_I32, 1, in->blocks, 0);
    make_tensor(&f->padded, rng, SY_I32, 1, 1, 0);
    make_tensor(&f->counts, rng, SY_I64, 1, in->experts, 0);
    make_tensor(&f->offsets, rng, SY_I64, 1, in->experts + 1, 0);
    seen.longer += longer > 0;
}

static void note(const struct fixture *f, const sy_fault *fault)
{
    const struct align_case *in = &f->in;
    seen.ok += fault->status == SY_OK;
    seen.fault_ids += fault->status != SY_OK && strcmp(fault->argument, "ids") == 0;
    seen.fault_map += fault->status != SY_OK && strcmp(fault->argument, "expert_map") == 0;
    seen.full += fault->status == SY_OK && f->want.padded == in->places && in->block > 1;
    for (int64_t e = 0; e < in->experts && fault->status == SY_OK; e++) {
        seen.empty_expert += f->want.counts[e] == 0;
        seen.exact += in->block > 1 && f->want.counts[e] > 0 && f->want.counts[e] % in->block == 0;
        seen.unmapped += in->map && in->map[e] == -1 && !in->skip_unmapped;
        seen.skipped += in->map && in->map[e] == -1 && in->skip_unmapped;
    }
}

static void fixture_run(struct fixture *f, sy_ctx *ctx, const sy_fault *fault, bool counted)
{
    struct {
        struct tensor *t;
        const void *want;
        bool given;
        const char *name;
    } out[] = {{&f->sorted, f->want.sorted, true, "sorted_slots"},
               {&f->blocks, f->want.block_experts, true, "block_experts"},
               {&f->padded, &f->want.padded, true, "num_padded"},
               {&f->counts, f->want.counts, counted, "expert_counts"},
               {&f->offsets, f->want.offsets, counted, "expert_offsets"}};
    const sy_moe_align_block_args args = {.ids = &f->ids.t,
                                          .expert_map = f->in.map ? &f->map.t : NULL,
                                          .num_experts = f->in.experts,
                                          .block_size = f->in.block,
                                          .allow_missing = f->in.allow_missing,
                                          .skip_unmapped = f->in.skip_unmapped,
                                          .sorted_slots = &f->sorted.t,
                                          .block_experts = &f->blocks.t,
                                          .num_padded = &f->padded.t,
                                          .expert_counts = counted ? &f->counts.t : NULL,
                                          .expert_offsets = counted ? &f->offsets.t : NULL};
    unsigned char *before[COUNT_OF(out)];
    for (size_t i = 0; i < COUNT_OF(out); i++) {
        memset(out[i].t->mem, 0xA5, out[i].t->bytes);
        before[i] = tensor_snapshot(out[i].t);
    }
    expect_status(ctx, sy_moe_align_block(ctx, &args), fault->status);
    if (fault->status != SY_OK) {
        sy_fault got;
        sy_ctx_fault(ctx, &got);
        assert_string_equal(got.argument, fault->argument);
        expect_fault(ctx, fault->code, fault->batch, fault->position, fault->value, fault->limit);
    }
    for (size_t i = 0; i < COUNT_OF(out); i++) {
        if (out[i].given && fault->status == SY_OK)
            tensor_expect(out[i].t, out[i].want, before[i], out[i].name);
        else
            tensor_expect_unchanged(out[i].t, before[i], out[i].name);
        free(before[i]);
    }
}

static void check_case(struct fixture *f, uint64_t *rng)
{
    fixture_make(f, rng);
    const sy_fault fault = oracle_moe_align_block(&f->in, &f->want);
    note(f, &fault);
    for (int c = 0; c < n_contexts; c++)
        fixture_run(f, contexts[c], &fault, c % 2);
    struct tensor *const tensors[] = {&f->ids,    &f->map,    &f->sorted, &f->blocks,
                                      &f->padded, &f->counts, &f->offsets};
    void *const arrays[] = {f->dense_ids,          f->dense_map,   f->want.sorted,
                            f->want.block_experts, f->want.counts, f->want.offsets};
    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        tensor_free(tensors[i]);
    for (size_t i = 0; i < COUNT_OF(arrays); i++)
        free(arrays[i]);
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        uint64_t rng = seed;
        struct fixture f = {.in = {.tokens = rng_below(&rng, 30), .slots = rng_below(&rng, 9)}};
        f.in.experts = rng_below(&rng, 20);
        if (seed % 10 == 0)
            f.in = (struct align_case){.tokens = 1, .slots = 1 + rng_below(&rng, 3), .experts = 2};
        check_case(&f, &rng);
    }
    const int all[] = {seen.empty_expert, seen.exact,     seen.repeated, seen.missing,
                       seen.unmapped,     seen.skipped,   seen.longer,   seen.ok,
                       seen.fault_ids,    seen.fault_map, seen.full * 2};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 20)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

/* Enough slots for several threads, faults in the later ones' part included. */
static void large_cases(void **state)
{
    uint64_t rng = 8;
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct fixture f = {.in = {.tokens = 30001, .slots = 5, .experts = 60}};
        check_case(&f, &rng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example),
        cmocka_unit_test(experts_elsewhere),
        cmocka_unit_test(blocks_multiply_like_slots),
        cmocka_unit_test(empty),
        cmocka_unit_test(random_cases),
        cmocka_unit_test(large_cases),
    };
    return cmocka_run_group_tests_name("op_moe_align_block", tests, open_contexts, close_contexts);
}
