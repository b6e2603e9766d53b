/*
 * moe_permute_ids: seeded cases against the oracle on every kernel table and several thread counts: any ids and counted
 * ones, kept rows and windows, strides and gaps. Worked examples are in tests/examples.
 */
#include "support.h"

#include "oracle/moe_permute_ids.h"
#include "oracle/moe_rows_case.h"

static struct {
    int repeated, unsorted, wild, cut, window, empty_expert, many_slots, huge, missing, huge_missing, cleared;
} seen;

/* ---- Properties ---------------------------------------------------------------------------------------------- */

/* With distinct ascending ids it is packed moe_permute of their map. */
static void equals_the_map_form(void **state)
{
    enum { T = 40, E = 9, K = 3, H = 5 };
    static uint8_t map[T][E];
    static int32_t named[T][K], slots[T * K], want_slots[T * K];
    static int16_t tokens[T][H], rows[T * K][H], want[T * K][H];
    static int64_t counts[E], offsets[E + 1], want_counts[E], want_offsets[E + 1];
    uint64_t rng = 3;
    (void)state;
    rng_fill(&rng, tokens, sizeof tokens);
    for (int t = 0; t < T; t++)
        for (int n = 0; n < K;) {
            uint8_t *cell = &map[t][rng_below(&rng, E)];
            n += !*cell;
            *cell = 1;
        }
    DLTensor m = sy_tensor(map, SY_BOOL, 2, (int64_t[]){T, E}),
             i = sy_tensor(named, SY_I32, 2, (int64_t[]){T, K}),
             x = sy_tensor(tokens, SY_I16, 2, (int64_t[]){T, H}),
             y = sy_tensor(rows, SY_I16, 2, (int64_t[]){T * K, H}),
             z = sy_tensor(want, SY_I16, 2, (int64_t[]){T * K, H}),
             s = sy_tensor(slots, SY_I32, 1, (int64_t[]){T * K}),
             w = sy_tensor(want_slots, SY_I32, 1, (int64_t[]){T * K}),
             c = sy_tensor(counts, SY_I64, 1, (int64_t[]){E}),
             o = sy_tensor(offsets, SY_I64, 1, (int64_t[]){E + 1}),
             wc = sy_tensor(want_counts, SY_I64, 1, (int64_t[]){E}),
             wo = sy_tensor(want_offsets, SY_I64, 1, (int64_t[]){E + 1});
    expect_status(rows_contexts[0],
                  sy_moe_ids_from_map(rows_contexts[0],
                                      &(sy_moe_ids_from_map_args){.routing_map = &m, .k = K, .ids = &i}),
                  SY_OK);
    expect_status(rows_contexts[0],
                  sy_moe_permute(rows_contexts[0], &(sy_moe_permute_args){.tokens = &x,
                                                                          .routing_map = &m,
                                                                          .num_out_tokens = T * K,
                                                                          .permuted_tokens = &z,
                                                                          .sorted_indices = &w,
                                                                          .expert_counts = &wc,
                                                                          .expert_offsets = &wo}),
                  SY_OK);
    expect_status(rows_contexts[0],
                  sy_moe_permute_ids(rows_contexts[0], &(sy_moe_permute_ids_args){.tokens = &x,
                                                                                  .ids = &i,
                                                                                  .num_experts = E,
                                                                                  .permuted_tokens = &y,
                                                                                  .sorted_indices = &s,
                                                                                  .expert_counts = &c,
                                                                                  .expert_offsets = &o}),
                  SY_OK);
    expect_bytes(rows, want, sizeof rows);
    expect_bytes(slots, want_slots, sizeof slots);
    expect_bytes(counts, want_counts, sizeof counts);
    expect_bytes(offsets, want_offsets, sizeof offsets);
}

/* ---- Random cases against the oracle ------------------------------------------------------------------------- */

struct fixture {
    int64_t tokens, slots, hidden, experts, rows;
    bool wide, compact;
    sy_moe_permute_ids_args args;
    struct tensor x, ids, probs, y, indices, out_probs, counts, offsets;
    int64_t *dense_ids;
    unsigned char *dense_x, *dense_probs, *want_y, *want_probs;
    int32_t *want;
    int64_t *want_counts, *want_offsets;
};

static void *need(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);
    assert_non_null(memory);
    return memory;
}

static void fill_ids(struct fixture *f, uint64_t *rng)
{
    const int64_t range = f->experts > 0 ? f->experts : 1 + rng_below(rng, 50);
    f->dense_ids = need((size_t)(f->tokens * f->slots) * 8);
    for (int64_t i = 0; i < f->tokens * f->slots; i++) {
        int64_t id = rng_below(rng, 1 + rng_below(rng, range)); /* low ids more often */
        if (f->experts == 0)
            id = f->wide && rng_below(rng, 4) == 0 ? (int64_t)rng_u64(rng) : id - 20;
        if (f->args.allow_missing && rng_below(rng, 4) == 0) {
            id = rng_below(rng, 2) ? -1 : f->experts;
            seen.missing++;
            seen.huge_missing += f->experts > 65536;
        }
        f->dense_ids[i] = id;
        seen.wild += id < INT32_MIN || id > INT32_MAX;
        seen.repeated += i % f->slots > 0 && id == f->dense_ids[i - 1];
        seen.unsorted += i % f->slots > 0 && id < f->dense_ids[i - 1];
        unsigned char *row = tensor_row(&f->ids, i / f->slots);
        if (f->wide)
            memcpy(row + i % f->slots * 8, &id, 8);
        else
            memcpy(row + i % f->slots * 4, &(int32_t){(int32_t)id}, 4);
    }
}

static void choose_rows(struct fixture *f, uint64_t *rng)
{
    const int64_t total = f->tokens * f->slots, kind = rng_below(rng, 4);
    int64_t kept = total;
    if (kind == 1 && total > 0)
        kept = f->args.num_out_tokens = 1 + rng_below(rng, total);
    if (kind == 2) {
        f->args.num_out_tokens = -rng_below(rng, total + 1);
        kept = total + f->args.num_out_tokens;
    }
    f->rows = kept;
    seen.cut += kept < total;
    f->args.window = rng_below(rng, 3) == 0;
    if (f->args.window) {
        f->args.row_begin = rng_below(rng, 4) ? rng_below(rng, kept + 1) : 0;
        f->args.row_end = f->args.row_begin + rng_below(rng, kept - f->args.row_begin + 1);
        f->rows = f->args.row_end - f->args.row_begin;
        seen.window += f->rows > 0;
    }
}

static void fixture_make(struct fixture *f, uint64_t *rng, DLDataType type)
{
    static const DLDataType probs[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
    const DLDataType prob = probs[rng_below(rng, 3)];
    uint64_t *const at = f->compact ? NULL : rng;
    const int64_t total = f->tokens * f->slots;
    const size_t row = (size_t)f->hidden * type_bytes(type), element = type_bytes(prob);
    f->wide = rng_below(rng, 2);
    f->args.num_experts = f->experts;
    f->args.allow_missing = f->experts > 0 && rng_below(rng, 2);
    choose_rows(f, rng);
    rows_place(&f->x, at, type, 2, (int64_t[]){f->tokens, f->hidden}, NULL);
    rows_place(&f->ids, at, f->wide ? SY_I64 : SY_I32, 2, (int64_t[]){f->tokens, f->slots}, NULL);
    rows_place(&f->probs, at, prob, 2, (int64_t[]){f->tokens, f->slots}, NULL);
    rows_place(&f->y, at, type, 2, (int64_t[]){f->rows, f->hidden}, NULL);
    rows_place(&f->indices, at, SY_I32, 1, (int64_t[]){total, 0}, NULL);
    rows_place(&f->out_probs, at, prob, 1, (int64_t[]){f->rows, 0}, NULL);
    rows_place(&f->counts, at, SY_I64, 1, (int64_t[]){f->experts, 0}, NULL);
    rows_place(&f->offsets, at, SY_I64, 1, (int64_t[]){f->experts + 1, 0}, NULL);
    fill_ids(f, rng);
    f->dense_x = need((size_t)f->tokens * row);
    f->dense_probs = need((size_t)total * element);
    rng_fill(rng, f->dense_x, (size_t)f->tokens * row);
    rng_fill(rng, f->dense_probs, (size_t)total * element);
    tensor_put(&f->x, f->dense_x);
    tensor_put(&f->probs, f->dense_probs);
    f->want = need((size_t)total * 4);
    f->want_y = need((size_t)f->rows * row);
    f->want_probs = need((size_t)f->rows * element);
    f->want_counts = need((size_t)f->experts * 8);
    f->want_offsets = need((size_t)(f->experts + 1) * 8);
    oracle_id_places(total, f->dense_ids, f->args.allow_missing ? f->experts : -1, f->want);
    int64_t live = 0;
    for (int64_t i = 0; i < total; i++) {
        const int64_t to = f->want[i] - f->args.row_begin;
        live += f->want[i] >= 0;
        if (f->want[i] < 0)
            continue;
        if (to >= 0 && to < f->rows) {
            memcpy(f->want_y + (size_t)to * row, f->dense_x + (size_t)(i / f->slots) * row, row);
            memcpy(f->want_probs + (size_t)to * element, f->dense_probs + (size_t)i * element, element);
        }
        for (int64_t e = 0; e <= f->experts && f->experts > 0; e++) {
            if (e < f->experts)
                f->want_counts[e] += f->dense_ids[i] == e;
            f->want_offsets[e] += f->dense_ids[i] < e;
        }
    }
    seen.cleared += live < f->args.row_begin + f->rows;
    for (int64_t e = 0; e < f->experts; e++)
        seen.empty_expert += f->want_counts[e] == 0;
}

static void fixture_run(struct fixture *f, sy_ctx *ctx, bool weighted, bool counted)
{
    struct {
        struct tensor *t;
        const void *want;
        bool given;
        const char *name;
    } out[] = {{&f->y, f->want_y, true, "permuted_tokens"},
               {&f->indices, f->want, true, "sorted_indices"},
               {&f->out_probs, f->want_probs, weighted, "permuted_probs"},
               {&f->counts, f->want_counts, counted, "expert_counts"},
               {&f->offsets, f->want_offsets, counted, "expert_offsets"}};
    unsigned char *before[COUNT_OF(out)];
    f->args.tokens = &f->x.t;
    f->args.ids = &f->ids.t;
    f->args.probs = weighted ? &f->probs.t : NULL;
    f->args.permuted_tokens = &f->y.t;
    f->args.sorted_indices = &f->indices.t;
    f->args.permuted_probs = weighted ? &f->out_probs.t : NULL;
    f->args.expert_counts = counted ? &f->counts.t : NULL;
    f->args.expert_offsets = counted ? &f->offsets.t : NULL;
    for (size_t i = 0; i < COUNT_OF(out); i++) {
        memset(out[i].t->mem, 0xA5, out[i].t->bytes);
        before[i] = tensor_snapshot(out[i].t);
    }
    expect_status(ctx, sy_moe_permute_ids(ctx, &f->args), SY_OK);
    for (size_t i = 0; i < COUNT_OF(out); i++) {
        if (out[i].given)
            tensor_expect(out[i].t, out[i].want, before[i], out[i].name);
        else
            tensor_expect_unchanged(out[i].t, before[i], out[i].name);
        free(before[i]);
    }
}

static void fixture_free(struct fixture *f)
{
    struct tensor *const tensors[] = {&f->x,       &f->ids,       &f->probs,  &f->y,
                                      &f->indices, &f->out_probs, &f->counts, &f->offsets};
    void *const arrays[] = {f->dense_ids,  f->dense_x, f->dense_probs, f->want_y,
                            f->want_probs, f->want,    f->want_counts, f->want_offsets};
    for (size_t i = 0; i < COUNT_OF(tensors); i++)
        tensor_free(tensors[i]);
    for (size_t i = 0; i < COUNT_OF(arrays); i++)
        free(arrays[i]);
}

static void random_cases(void **state)
{
    static const DLDataType types[] = {
        {kDLUInt, 8, 1}, {kDLBfloat, 16, 1}, {kDLFloat, 32, 1}, {kDLInt, 64, 1}};
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        uint64_t rng = seed;
        struct fixture f = {
            .tokens = rng_below(&rng, 30), .slots = rng_below(&rng, 12), .hidden = rng_below(&rng, 40)};
        f.experts = rng_below(&rng, 3) ? 1 + rng_below(&rng, 20) : 0;
        if (seed % 20 == 0)
            f.experts = 70000; /* more than are counted */
        seen.many_slots += f.slots > 8;
        seen.huge += f.experts > 65536;
        fixture_make(&f, &rng, types[rng_below(&rng, 4)]);
        for (size_t c = 0; c < rows_n_contexts; c++)
            fixture_run(&f, rows_contexts[c], (c + seed) % 2, f.experts > 0 && (c / 2 + seed) % 2);
        fixture_free(&f);
    }
    const int all[] = {seen.repeated,   seen.unsorted, seen.wild,         seen.cut,
                       seen.window,     seen.missing,  seen.huge_missing, seen.cleared,
                       seen.many_slots, seen.huge * 2, seen.empty_expert};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 20)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

static void large_cases(void **state)
{
    uint64_t rng = 8;
    (void)state;
    for (int known = 0; known < 2; known++) {
        struct fixture f = {.tokens = 2001, .slots = 6, .hidden = 150, .experts = known ? 60 : 0};
        fixture_make(&f, &rng, SY_BF16);
        for (size_t c = 0; c < rows_n_contexts; c++)
            fixture_run(&f, rows_contexts[c], true, known);
        fixture_free(&f);
    }
}

/* The first of two ids outside is named, and nothing is written. */
static void fixture_reject(struct fixture *f, sy_ctx *ctx)
{
    struct tensor *const out[] = {&f->y, &f->indices, &f->out_probs};
    unsigned char *before[COUNT_OF(out)];
    const int64_t first = f->tokens * f->slots / 2;
    sy_fault fault;
    for (int64_t i = first; i < f->tokens * f->slots; i += f->slots) {
        unsigned char *const row = tensor_row(&f->ids, i / f->slots);
        memset(row + i % f->slots * (f->wide ? 8 : 4), 0x7f, f->wide ? 8 : 4);
    }
    for (size_t i = 0; i < COUNT_OF(out); i++)
        before[i] = tensor_snapshot(out[i]);
    expect_status(ctx, sy_moe_permute_ids(ctx, &f->args), SY_ERR_INDEX);
    sy_ctx_fault(ctx, &fault);
    assert_int_equal(fault.batch, first / f->slots);
    assert_int_equal(fault.position, first % f->slots);
    for (size_t i = 0; i < COUNT_OF(out); i++) {
        tensor_expect_unchanged(out[i], before[i], "output");
        free(before[i]);
    }
}

/* Aligned rows, which random layouts rarely have. */
static void aligned_rows(void **state)
{
    static const int64_t shapes[][4] = {/* T, K, E, H */
                                        {1, 8, 256, 64}, {50, 4, 30, 8},    {70, 5, 16, 8200},
                                        {90, 20, 0, 24}, {80, 70, 100, 16}, {61, 4, 5000, 16}};
    uint64_t rng = 9;
    (void)state;
    for (size_t i = 0; i < 8 * COUNT_OF(shapes); i++) {
        const int64_t *const s = shapes[i / 8];
        struct fixture f = {.tokens = s[0], .slots = s[1], .experts = s[2], .hidden = s[3], .compact = true};
        fixture_make(&f, &rng, SY_BF16);
        fixture_run(&f, rows_contexts[i % rows_n_contexts], i % 3 != 0, f.experts > 0 && i % 2 == 0);
        if (f.experts > 0)
            fixture_reject(&f, rows_contexts[i % rows_n_contexts]);
        fixture_free(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_map_form),
        cmocka_unit_test(random_cases),
        cmocka_unit_test(aligned_rows),
        cmocka_unit_test(large_cases),
    };
    return cmocka_run_group_tests_name("op_moe_permute_ids", tests, rows_open_contexts, rows_close_contexts);
}
