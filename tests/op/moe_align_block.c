/*
 * moe_align_block: seeded cases against the oracle on every kernel table and several thread counts: maps, missing ids,
 * longer outputs than needed, faults; and what a matrix product makes of the blocks.
 */
#include "support_random.h"

#include "oracle/moe_align_block.h"

static struct {
    int empty_expert, exact, repeated, missing, unmapped, skipped, longer, fault_ids, fault_map, ok;
} seen;
static int seen_full;

struct fixture {
    struct align_case in;
    struct align_result want;
    struct tensor *ids, *map, *sorted, *blocks, *padded, *counts, *offsets;
    int64_t *dense_ids;
    int32_t *dense_map;
};

static void fill_ids(struct fixture *f, uint64_t *rng, bool faulty)
{
    const struct align_case *in = &f->in;
    const bool wide = rng_below(rng, 2);
    const int64_t total = in->tokens * in->slots, fault = faulty && total > 0 ? rng_below(rng, total) : -1;
    f->ids = any_tensor(rng, wide ? SY_I64 : SY_I32, 2, in->tokens, in->slots);
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
    }
    put_numbers(f->ids, f->dense_ids);
}

static void fill_map(struct fixture *f, uint64_t *rng, bool faulty)
{
    f->map = any_tensor(rng, SY_I32, 1, f->in.experts, 0);
    for (int64_t e = 0; e < f->in.experts; e++)
        f->dense_map[e] = rng_below(rng, 3) ? (int32_t)rng_below(rng, INT32_MAX) : -1;
    if (faulty && f->in.experts > 0)
        f->dense_map[rng_below(rng, f->in.experts)] = rng_below(rng, 2) ? -2 : INT32_MIN;
    tensor_put(f->map, f->dense_map);
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
    f->sorted = any_tensor(rng, SY_I32, 1, in->places, 0);
    f->blocks = any_tensor(rng, SY_I32, 1, in->blocks, 0);
    f->padded = any_tensor(rng, SY_I32, 1, 1, 0);
    f->counts = any_tensor(rng, SY_I64, 1, in->experts, 0);
    f->offsets = any_tensor(rng, SY_I64, 1, in->experts + 1, 0);
    seen.longer += longer > 0;
}

static void note(const struct fixture *f, const sy_fault *fault)
{
    const struct align_case *in = &f->in;
    seen.ok += fault->status == SY_OK;
    seen.fault_ids += fault->status != SY_OK && strcmp(fault->argument, "ids") == 0;
    seen.fault_map += fault->status != SY_OK && strcmp(fault->argument, "expert_map") == 0;
    seen_full += fault->status == SY_OK && f->want.padded == in->places && in->block > 1;
    for (int64_t e = 0; e < in->experts && fault->status == SY_OK; e++) {
        seen.empty_expert += f->want.counts[e] == 0;
        seen.exact += in->block > 1 && f->want.counts[e] > 0 && f->want.counts[e] % in->block == 0;
        seen.unmapped += in->map && in->map[e] == -1 && !in->skip_unmapped;
        seen.skipped += in->map && in->map[e] == -1 && in->skip_unmapped;
    }
}

static void fixture_run(const struct fixture *f, sy_ctx *ctx, const sy_fault *fault, bool counted)
{
    const struct output out[] = {{"sorted_slots", f->sorted, f->want.sorted, true},
                                 {"block_experts", f->blocks, f->want.block_experts, true},
                                 {"num_padded", f->padded, &f->want.padded, true},
                                 {"expert_counts", f->counts, f->want.counts, counted},
                                 {"expert_offsets", f->offsets, f->want.offsets, counted}};
    const sy_moe_align_block_args args = {.ids = &f->ids->t,
                                          .expert_map = f->in.map ? &f->map->t : NULL,
                                          .num_experts = f->in.experts,
                                          .block_size = f->in.block,
                                          .allow_missing = f->in.allow_missing,
                                          .skip_unmapped = f->in.skip_unmapped,
                                          .sorted_slots = &f->sorted->t,
                                          .block_experts = &f->blocks->t,
                                          .num_padded = &f->padded->t,
                                          .expert_counts = counted ? &f->counts->t : NULL,
                                          .expert_offsets = counted ? &f->offsets->t : NULL};
    fill_outputs(out, COUNT_OF(out));
    expect_outputs(ctx, sy_moe_align_block(ctx, &args), fault, out, COUNT_OF(out));
}

static void check_case(struct fixture *f, uint64_t *rng)
{
    fixture_make(f, rng);
    const sy_fault fault = oracle_moe_align_block(&f->in, &f->want);
    note(f, &fault);
    for (int c = 0; c < n_contexts; c++)
        fixture_run(f, contexts[c], &fault, c % 2);
    free_all();
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
    expect_hard(seen, 20);
    assert_true(seen_full >= 10);
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

/* A matrix product that goes block by block, row by row, and skips padding, equals one that goes slot by slot. */
static void blocks_multiply_like_slots(void **state)
{
    enum { T = 29, K = 3, E = 7, B = 4, TOTAL = T * K, PLACES = (TOTAL + E * (B - 1)) / B * B };
    int32_t ids[TOTAL], sorted[PLACES], blocks[PLACES / B], padded = 0;
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
    const sy_moe_align_block_args args = {.ids = &i,
                                          .num_experts = E,
                                          .block_size = B,
                                          .sorted_slots = &s,
                                          .block_experts = &b,
                                          .num_padded = &p};
    expect_status(contexts[0], sy_moe_align_block(contexts[0], &args), SY_OK);
    for (int n = 0; n < padded; n++)
        if (sorted[n] < TOTAL)
            got[sorted[n]] = (sorted[n] / K + 1) * (100 + blocks[n / B]);
    expect_bytes(got, want, sizeof want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_multiply_like_slots),
        cmocka_unit_test(random_cases),
        cmocka_unit_test(large_cases),
    };
    return cmocka_run_group_tests_name("op_moe_align_block", tests, open_contexts, close_contexts);
}
