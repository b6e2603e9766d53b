/*
 * moe_permute against its oracle: seeded shapes in both modes with strides, gaps, offsets, misaligned data and maps
 * that are full, ragged, skewed, dense or hostile; then sizes large enough to be split over threads. What the
 * generator must have produced is counted and asserted at the end.
 */
#include "support.h"

#include "oracle/moe_permute.h"
#include "oracle/moe_rows_case.h"

enum style { FULL, RAGGED, SKEWED, DENSE, ANY_BYTES, STYLES };
static const char *const style_names[STYLES] = {"full", "ragged", "skewed", "dense", "any_bytes"};

/* How often each hard thing occurred. */
static struct {
    int empty_expert, overfull_expert, short_expert, ragged_row, all_full, rejected, odd_bytes, remainder,
        no_rows, all_pairs, misaligned, with_probs, mixed_types, zero_pad, tail, no_elements, many_experts,
        element[9];
} seen;

struct fixture {
    struct permute_case in;
    struct permute_truth truth;
    struct tensor x, map, probs, out_x, out_probs, indices, counts, offsets;
    unsigned char *dense_x, *dense_map, *dense_probs;
    sy_moe_permute_args args;
};

/* Marks `count` distinct experts of token t; 1, or any non-zero byte. */
static void route(uint64_t *rng, unsigned char *row, int64_t experts, int64_t count, bool any_byte)
{
    while (count > 0) {
        const int64_t e = rng_below(rng, experts);
        if (row[e] != 0)
            continue;
        row[e] = any_byte ? (unsigned char)(1 + rng_below(rng, 255)) : 1;
        count--;
    }
}

static void make_map(uint64_t *rng, struct fixture *f, enum style style, int64_t k)
{
    const int64_t experts = f->in.experts;
    for (int64_t t = 0; t < f->in.tokens; t++) {
        unsigned char *row = f->dense_map + t * experts;
        if (style == FULL)
            route(rng, row, experts, k, false);
        else if (style == RAGGED)
            route(rng, row, experts, rng_below(rng, k + 1), false);
        else if (style == SKEWED)
            row[rng_below(rng, 2) ? 0 : experts / 2] = 1;
        else if (style == DENSE)
            memset(row, 1, (size_t)experts);
        else
            route(rng, row, experts, rng_below(rng, (k < experts ? k + 1 : k) + (t % 16 == 15)), true);
    }
}

static void note_case(const struct fixture *f)
{
    const struct permute_case *in = &f->in;
    const struct permute_truth *out = &f->truth;
    const int64_t parts = in->capacity ? in->experts : in->tokens;
    seen.remainder += in->out_tokens % parts != 0;
    seen.no_rows += out->rows == 0;
    seen.all_pairs += in->out_tokens == in->tokens * in->experts;
    seen.no_elements += in->hidden == 0;
    seen.many_experts += in->experts > 256 && out->bad_token < 0 && out->rows > 0;
    seen.rejected += out->bad_token >= 0;
    seen.element[in->token_bytes]++;
    seen.zero_pad += in->capacity && in->zero_pad;
    seen.tail += !in->capacity && out->bad_token < 0 && out->pairs < out->rows;
    seen.all_full += !in->capacity && out->bad_token < 0 && out->pairs == out->rows && out->rows > 0;
    for (int64_t e = 0; e < in->experts; e++) {
        seen.empty_expert += out->counts[e] == 0;
        seen.overfull_expert += in->capacity && out->rows > 0 && out->counts[e] > out->slots;
        seen.short_expert += in->capacity && out->counts[e] < out->slots;
    }
    for (int64_t i = 0; i < in->tokens * in->experts; i++)
        seen.odd_bytes += in->map[i] > 1;
    for (int64_t i = 0; !in->capacity && out->indices && i < out->rows; i++)
        seen.ragged_row += out->indices[i] == -1;
}

static void choose_sizes(uint64_t *rng, struct fixture *f, enum style style, int64_t *k)
{
    struct permute_case *in = &f->in;
    in->tokens = 1 + rng_below(rng, 40);
    in->experts = 1 + rng_below(rng, rng_below(rng, 6) == 0 ? 600 : 12);
    in->hidden = rng_below(rng, 10) == 0 ? 0 : 1 + rng_below(rng, 70);
    *k = style == DENSE ? in->experts : 1 + rng_below(rng, in->experts);
    if (style == SKEWED)
        *k = 1;
    const int64_t pairs = in->tokens * in->experts;
    in->out_tokens = *k * in->tokens + (rng_below(rng, 2) ? rng_below(rng, in->tokens) : 0);
    if (in->capacity || rng_below(rng, 10) == 0)
        in->out_tokens = rng_below(rng, 4) == 0 ? pairs : rng_below(rng, pairs + 1);
    if (in->out_tokens > pairs)
        in->out_tokens = pairs;
}

struct types {
    DLDataType token, prob, map;
};

/* Random bytes for tokens and probs; the map is still zero. */
static void fixture_fill(struct fixture *f, uint64_t *rng)
{
    struct permute_case *in = &f->in;
    const size_t x_bytes = (size_t)(in->tokens * in->hidden) * in->token_bytes;
    const size_t pairs = (size_t)(in->tokens * in->experts);
    f->dense_x = malloc(x_bytes + 1);
    f->dense_map = calloc(pairs + 1, 1);
    f->dense_probs = malloc(pairs * 4 + 1);
    assert_true(f->dense_x && f->dense_map && f->dense_probs);
    rng_fill(rng, f->dense_x, x_bytes);
    rng_fill(rng, f->dense_probs, pairs * 4);
    in->x = f->dense_x;
    in->map = f->dense_map;
    in->probs = f->dense_probs;
}

/* Tensors for all arguments, laid out at random, or compact without `rng`. */
static void fixture_tensors(struct fixture *f, uint64_t *rng, const struct types *types)
{
    const struct permute_case *in = &f->in;
    const int64_t rows = f->truth.rows;
    const struct {
        struct tensor *tensor;
        DLDataType type;
        int rank;
        int64_t shape[2];
    } all[] = {
        {&f->x, types->token, 2, {in->tokens, in->hidden}},
        {&f->map, types->map, 2, {in->tokens, in->experts}},
        {&f->probs, types->prob, 2, {in->tokens, in->experts}},
        {&f->out_x, types->token, 2, {rows, in->hidden}},
        {&f->out_probs, types->prob, 1, {rows}},
        {&f->indices, SY_I32, 1, {rows}},
        {&f->counts, SY_I64, 1, {in->experts}},
        {&f->offsets, SY_I64, 1, {in->experts + 1}},
    };
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        rows_place(all[i].tensor, rng, all[i].type, all[i].rank, all[i].shape, NULL);
        seen.misaligned += (uintptr_t)all[i].tensor->t.data % type_bytes(all[i].type) != 0;
    }
    tensor_put(&f->x, f->dense_x);
    tensor_put(&f->map, f->dense_map);
    tensor_put(&f->probs, f->dense_probs);
    f->args = (sy_moe_permute_args){.tokens = &f->x.t,
                                    .routing_map = &f->map.t,
                                    .probs = in->prob_bytes ? &f->probs.t : NULL,
                                    .num_out_tokens = in->out_tokens,
                                    .drop_and_pad = in->capacity,
                                    .zero_pad = in->zero_pad,
                                    .permuted_tokens = &f->out_x.t,
                                    .sorted_indices = &f->indices.t,
                                    .permuted_probs = in->prob_bytes ? &f->out_probs.t : NULL,
                                    .expert_counts = &f->counts.t,
                                    .expert_offsets = &f->offsets.t};
}

static void fixture_make(struct fixture *f, uint64_t *rng, enum style style, bool capacity)
{
    static const DLDataType tokens[] = {{kDLInt, 8, 1},    {kDLFloat, 16, 1}, {kDLBfloat, 16, 1},
                                        {kDLFloat, 32, 1}, {kDLInt, 32, 1},   {kDLFloat, 64, 1}};
    static const DLDataType probs[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
    static const DLDataType maps[] = {{6, 8, 1}, {kDLInt, 8, 1}, {kDLUInt, 8, 1}};
    const struct types types = {tokens[rng_below(rng, COUNT_OF(tokens))],
                                probs[rng_below(rng, COUNT_OF(probs))], maps[rng_below(rng, COUNT_OF(maps))]};
    const bool with_probs = rng_below(rng, 3) != 0;
    int64_t k = 0;
    memset(f, 0, sizeof *f);
    f->in.capacity = capacity;
    f->in.zero_pad = rng_below(rng, 3) == 0;
    f->in.token_bytes = type_bytes(types.token);
    f->in.prob_bytes = with_probs ? type_bytes(types.prob) : 0;
    seen.with_probs += with_probs;
    seen.mixed_types +=
        with_probs && (types.prob.code != types.token.code || types.prob.bits != types.token.bits);
    choose_sizes(rng, f, style, &k);
    fixture_fill(f, rng);
    make_map(rng, f, style, k);
    oracle_moe_permute(&f->in, &f->truth);
    note_case(f);
    fixture_tensors(f, rng, &types);
    if (rng_below(rng, 2))
        f->args.expert_counts = NULL;
    if (rng_below(rng, 2))
        f->args.expert_offsets = NULL;
}

static void fixture_free(struct fixture *f)
{
    struct tensor *all[] = {&f->x,         &f->map,     &f->probs,  &f->out_x,
                            &f->out_probs, &f->indices, &f->counts, &f->offsets};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(f->dense_x);
    free(f->dense_map);
    free(f->dense_probs);
    oracle_moe_permute_free(&f->truth);
}

/* Runs the call and compares every output with the oracle, every gap and every rejected output with what it was. */
static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    struct output {
        struct tensor *tensor;
        const void *want;
        bool asked;
        const char *name;
    } outputs[] = {
        {&f->out_x, f->truth.x, true, "permuted_tokens"},
        {&f->indices, f->truth.indices, true, "sorted_indices"},
        {&f->out_probs, f->truth.probs, f->args.permuted_probs != NULL, "permuted_probs"},
        {&f->counts, f->truth.counts, f->args.expert_counts != NULL, "expert_counts"},
        {&f->offsets, f->truth.offsets, f->args.expert_offsets != NULL, "expert_offsets"},
    };
    unsigned char *before[COUNT_OF(outputs)];
    sy_query query;
    for (size_t i = 0; i < COUNT_OF(outputs); i++)
        before[i] = tensor_snapshot(outputs[i].tensor);
    expect_status(ctx, sy_moe_permute_query(ctx, &f->args, &query), SY_OK);
    assert_int_equal(query.rows, f->truth.rows);
    assert_int_equal(query.slots, f->truth.slots);
    const bool rejected = f->truth.bad_token >= 0;
    expect_status(ctx, sy_moe_permute(ctx, &f->args), rejected ? SY_ERR_ROUTING : SY_OK);
    if (rejected) {
        sy_fault fault;
        sy_ctx_fault(ctx, &fault);
        assert_int_equal(fault.code, SY_FAULT_ROW_OVERFULL);
        assert_int_equal(fault.position, f->truth.bad_token);
        assert_int_equal(fault.value, f->truth.bad_count);
        assert_int_equal(fault.limit, f->truth.slots);
    }
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        if (rejected || !outputs[i].asked)
            tensor_expect_unchanged(outputs[i].tensor, before[i], outputs[i].name);
        else
            tensor_expect(outputs[i].tensor, outputs[i].want, before[i], outputs[i].name);
        free(before[i]);
    }
}

static void random_shapes(void **state)
{
    const uintptr_t which = (uintptr_t)*state;
    const enum style style = (enum style)(which % STYLES);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t rng = rows_seed = seed * 1000 + which;
        struct fixture f;
        fixture_make(&f, &rng, style, which >= STYLES);
        fixture_check(&f, rows_contexts[seed % rows_n_contexts]);
        fixture_free(&f);
    }
    rows_seed = 0;
}

/* Compact bf16 rows with f32 probs. Every kernel table and thread count must match the oracle byte for byte. */
static void compact(bool capacity, int64_t tokens, int64_t experts, int64_t hidden, int64_t k, bool overfull)
{
    uint64_t rng = 77;
    struct fixture f = {.in = {.tokens = tokens,
                               .experts = experts,
                               .hidden = hidden,
                               .capacity = capacity,
                               .out_tokens = k * tokens,
                               .token_bytes = 2,
                               .prob_bytes = 4}};
    fixture_fill(&f, &rng);
    make_map(&rng, &f, RAGGED, k);
    for (int64_t t = tokens - 1; overfull && t > tokens - 3; t--)
        memset(f.dense_map + t * experts, 1, (size_t)experts);
    oracle_moe_permute(&f.in, &f.truth);
    assert_int_equal(f.truth.bad_token, overfull ? tokens - 2 : -1);
    fixture_tensors(&f, NULL, &(struct types){SY_BF16, SY_F32, SY_U8});
    for (size_t i = 0; i < rows_n_contexts; i++) {
        memset(f.out_x.mem, 0x11 * (int)i + 1, f.out_x.bytes);
        memset(f.indices.mem, 0x11 * (int)i + 1, f.indices.bytes);
        fixture_check(&f, rows_contexts[i]);
    }
    fixture_free(&f);
}

/* Aligned rows, which random layouts rarely have: few and many tokens, experts and slots, short and long rows. */
static void aligned_rows(void **state)
{
    static const int64_t shapes[][4] = {
        /* T, E, H, K */
        {2, 256, 64, 8},   {4, 112, 64, 8},  {3, 16, 20000, 2}, {2, 200, 64, 9},   {5, 12, 40, 3},
        {40, 12, 1000, 3}, {3, 5, 4004, 2},  {70, 16, 8200, 4}, {70, 16, 40, 3},   {70, 17, 38, 6},
        {1100, 6, 8, 2},   {600, 520, 8, 2}, {20, 5000, 16, 3}, {10, 100, 24, 70}, {90, 300, 264, 20}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        compact(false, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], false);
        compact(false, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], true);
        compact(true, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3], false);
    }
}

static void skip_on_emulated_device(void)
{
    if (getenv("SWITCHYARD_TEST_CUDA_LIBRARY") != NULL)
        skip_because("it would take minutes on the emulated device");
}

/* Several megabytes, so that rows are really split. */
static void large_cases(void **state)
{
    (void)state;
    skip_on_emulated_device();
    compact(false, 3001, 37, 257, 4, false);
    compact(true, 3001, 37, 257, 4, false);
    compact(false, 3, 5, 400001, 3, false); /* few long rows */
    compact(false, 250007, 4, 3, 4, false); /* short rows */
}

/* Overfull tokens near the end of a large map: the first one is named, whichever thread meets it. */
static void first_overfull_token_of_many(void **state)
{
    (void)state;
    skip_on_emulated_device();
    const int64_t tokens = 200003, experts = 16;
    uint64_t rng = 1;
    struct fixture f = {
        .in = {.tokens = tokens, .experts = experts, .hidden = 1, .out_tokens = tokens, .token_bytes = 1}};
    fixture_fill(&f, &rng);
    for (int64_t t = 0; t < tokens; t++)
        f.dense_map[t * experts + t % experts] = 1;
    for (int64_t t = 150001; t < tokens; t += 7)
        f.dense_map[t * experts + (t + 3) % experts] = 1;
    oracle_moe_permute(&f.in, &f.truth);
    assert_int_equal(f.truth.bad_token, 150001);
    fixture_tensors(&f, NULL, &(struct types){SY_U8, SY_F32, SY_BOOL});
    for (size_t i = 0; i < rows_n_contexts; i++)
        fixture_check(&f, rows_contexts[i]);
    fixture_free(&f);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.empty_expert, seen.overfull_expert, seen.short_expert, seen.ragged_row,
                       seen.all_full,     seen.rejected,        seen.odd_bytes,    seen.remainder,
                       seen.no_rows,      seen.all_pairs,       rows_seen.gap,     rows_seen.offset,
                       seen.misaligned,   seen.with_probs,      seen.mixed_types,  seen.zero_pad,
                       seen.tail,         seen.no_elements,     seen.many_experts, seen.element[1],
                       seen.element[2],   seen.element[4],      seen.element[8]};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 8)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

int main(void)
{
    struct CMUnitTest tests[2 * STYLES + 4];
    size_t n = 0;
    for (uintptr_t i = 0; i < 2 * STYLES; i++)
        tests[n++] = (struct CMUnitTest){
            test_name("random_%s_%s", i < STYLES ? "packed" : "capacity", style_names[i % STYLES]),
            random_shapes, NULL, rows_tell_seed, (void *)i};
    const struct CMUnitTest more[] = {
        cmocka_unit_test(aligned_rows),
        cmocka_unit_test(large_cases),
        cmocka_unit_test(first_overfull_token_of_many),
        cmocka_unit_test(the_random_cases_were_hard),
    };
    memcpy(tests + n, more, sizeof more);
    return cmocka_run_group_tests_name("op_moe_permute_random", tests, rows_open_contexts,
                                       rows_close_contexts);
}
