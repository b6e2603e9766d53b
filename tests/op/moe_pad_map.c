/*
 * moe_pad_map: seeded cases against the oracle on every kernel table and several thread counts, in place and not, maps
 * that cannot be padded among them; and the way through moe_permute and back.
 */
#include "support_random.h"

#include "oracle/moe_pad_map.h"

static const DLDataType byte_types[] = {{6, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 8, 1}};

static struct {
    int exact, empty_expert, all_tokens, many_experts, odd_bytes, rejected, ok;
} seen;

struct fixture {
    int64_t tokens, experts, alignment;
    struct tensor *map, *padded, *counts;
    uint8_t *dense, *want;
    int64_t *want_counts;
};

static void fixture_make(struct fixture *f, uint64_t *rng)
{
    const DLDataType type = byte_types[rng_below(rng, 3)];
    const int64_t cells = f->tokens * f->experts;
    f->map = any_tensor(rng, type, 2, f->tokens, f->experts);
    f->padded = any_tensor(rng, type, 2, f->tokens, f->experts);
    f->counts = any_tensor(rng, SY_I64, 1, f->experts, 0);
    f->dense = need(cells, 1);
    f->want = need(cells, 1);
    f->want_counts = need(f->experts, 8);
    for (int64_t e = 0; e < f->experts; e++) {
        const int64_t odds = rng_below(rng, 7); /* 0: none at all */
        for (int64_t t = 0; t < f->tokens; t++) {
            const bool on = odds > 0 && rng_below(rng, odds) == 0;
            f->dense[t * f->experts + e] = on ? (uint8_t)(1 + rng_below(rng, 255)) : 0;
            seen.odd_bytes += f->dense[t * f->experts + e] > 1;
        }
    }
    memcpy(f->want, f->dense, (size_t)cells);
    seen.many_experts += f->experts > 256;
}

/* In place or from one map to another. */
static void fixture_run(const struct fixture *f, sy_ctx *ctx, const sy_fault *fault, bool in_place,
                        bool counted)
{
    struct tensor *const to = in_place ? f->map : f->padded;
    const struct output out[] = {{"padded_map", to, f->want, true},
                                 {"expert_counts", f->counts, f->want_counts, counted}};
    const sy_moe_pad_map_args args = {.routing_map = &f->map->t,
                                      .alignment = f->alignment,
                                      .padded_map = &to->t,
                                      .expert_counts = counted ? &f->counts->t : NULL};
    fill_outputs(out, COUNT_OF(out));
    tensor_put(f->map, f->dense);
    snap_outputs(out, COUNT_OF(out));
    expect_outputs(ctx, sy_moe_pad_map(ctx, &args), fault, out, COUNT_OF(out));
}

static void check_case(struct fixture *f, uint64_t *rng)
{
    fixture_make(f, rng);
    const int64_t expert = oracle_moe_pad_map(f->tokens, f->experts, f->alignment, f->want, f->want_counts);
    sy_fault fault = {.status = SY_OK};
    if (expert >= 0) {
        fault = (sy_fault){SY_ERR_ROUTING, SY_FAULT_LENGTH_RANGE, "routing_map", -1, expert, 0, f->tokens};
        for (int64_t t = 0; t < f->tokens; t++)
            fault.value += f->dense[t * f->experts + expert] != 0;
    }
    seen.rejected += expert >= 0;
    seen.ok += expert < 0;
    for (int64_t e = 0; e < f->experts && expert < 0; e++) {
        seen.empty_expert += f->want_counts[e] == 0;
        seen.all_tokens += f->want_counts[e] == f->tokens;
        seen.exact += f->want_counts[e] > 0 && f->alignment > 1;
    }
    for (int c = 0; c < n_contexts; c++)
        fixture_run(f, contexts[c], &fault, (c / 2) % 2, c % 2);
    free_all();
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
    expect_hard(seen, 20);
}

/* Enough cells for several threads. */
static void large_cases(void **state)
{
    uint64_t rng = 8;
    (void)state;
    struct fixture f = {.tokens = 3001, .experts = 130, .alignment = 128};
    check_case(&f, &rng);
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
    const sy_moe_pad_map_args pad = {.routing_map = &m, .alignment = A, .padded_map = &m};
    const sy_moe_permute_args permute = {.tokens = &t,
                                         .routing_map = &m,
                                         .num_out_tokens = N,
                                         .permuted_tokens = &y,
                                         .sorted_indices = &s,
                                         .expert_counts = &c};
    const sy_moe_unpermute_args unpermute = {
        .permuted_tokens = &y, .sorted_indices = &s, .routing_map = &m, .probs = &w, .tokens = &b};
    expect_status(contexts[0], sy_moe_pad_map(contexts[0], &pad), SY_OK);
    expect_status(contexts[0], sy_moe_permute(contexts[0], &permute), SY_OK);
    for (int e = 0; e < E; e++)
        assert_true(counts[e] > 0 && counts[e] % A == 0);
    expect_status(contexts[0], sy_moe_unpermute(contexts[0], &unpermute), SY_OK);
    expect_bytes(back, x, sizeof x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases),
        cmocka_unit_test(large_cases),
        cmocka_unit_test(tiles_and_back),
    };
    return cmocka_run_group_tests_name("op_moe_pad_map", tests, open_contexts, close_contexts);
}
