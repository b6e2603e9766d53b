/*
 * moe_locations: random runs against the oracle on every thread count, and the property its users live by: no two choices
 * share a slot. Worked examples and rules are in tests/examples.
 */
#include "support.h"

#include "oracle/moe_locations.h"

#include <math.h>

/* ---- Random runs against the oracle ------------------------------------------------------------------------- */

static struct {
    int outside, unnamed, tie, nan, zeros, skewed, gap, misaligned, order;
} seen;

struct fixture {
    struct locations_case in;
    struct tensor indices, importance, locations, counts;
    int32_t *dense, *want;
    double *values;
    int64_t *want_counts;
    DLDataType type;
};

static struct layout any_layout(uint64_t *rng, size_t elem_bytes)
{
    const struct layout at = {.row_gap = rng_below(rng, 2) ? rng_below(rng, 5) : 0,
                              .misalign = rng_below(rng, 2) ? (size_t)rng_below(rng, 8) : 0,
                              .byte_offset =
                                  rng_below(rng, 2) ? elem_bytes * (uint64_t)rng_below(rng, 4) : 0};
    seen.gap += at.row_gap > 0;
    seen.misaligned += at.misalign > 0;
    return at;
}

/* Few values, so that there are ties, and now and then something special. */
static double some_importance(uint64_t *rng)
{
    static const double special[] = {NAN, -0.0, 0.0, INFINITY, -INFINITY, 0x1p-24, -0x1p-20};
    if (rng_below(rng, 4) == 0)
        return special[rng_below(rng, (int64_t)COUNT_OF(special))];
    return (double)(rng_below(rng, 512) - 256) / 64;
}

static void put_importance(struct fixture *f, int64_t i, double value)
{
    unsigned char *to = tensor_row(&f->importance, 0);
    if (type_bytes(f->type) == 4) {
        memcpy(to + 4 * i, &(float){(float)value}, 4);
        f->values[i] = (float)value;
    } else {
        const bool half = f->type.code == kDLFloat;
        const uint16_t bits = half ? f16_round(value) : bf16_round(value);
        memcpy(to + 2 * i, &bits, 2);
        f->values[i] = half ? f16_value(bits) : bf16_value(bits);
    }
}

static void fixture_make(struct fixture *f, uint64_t *rng, bool ordered, bool plain)
{
    struct locations_case *in = &f->in;
    const int64_t n = in->choices * in->samples;
    struct layout at[3] = {{0}};
    for (int i = 0; i < 3 && !plain; i++)
        at[i] = any_layout(rng, i == 2 ? type_bytes(f->type) : 4);
    tensor_make(&f->indices, SY_I32, 2, (int64_t[]){in->choices, in->samples}, &at[0]);
    tensor_make(&f->locations, SY_I32, 2, (int64_t[]){in->choices, in->samples}, &at[1]);
    tensor_make(&f->importance, f->type, 1, &in->samples, &at[2]);
    tensor_make(&f->counts, SY_I64, 1, &in->experts, NULL);
    f->dense = malloc((size_t)n * 4 + 1);
    f->want = malloc((size_t)n * 4 + 1);
    f->values = calloc((size_t)in->samples + 1, sizeof *f->values);
    f->want_counts = malloc((size_t)in->experts * 8 + 1);
    assert_true(f->dense && f->want && f->values && f->want_counts);
    const bool skewed = rng_below(rng, 3) == 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t e = rng_below(rng, skewed ? in->experts / 8 + 1 : in->experts);
        if (rng_below(rng, 16) == 0)
            e = rng_below(rng, 2) ? in->experts + rng_below(rng, 3) : -1 - rng_below(rng, 3);
        seen.outside += e < 0 || e >= in->experts;
        f->dense[i] = (int32_t)e;
    }
    seen.skewed += skewed;
    seen.order += ordered;
    for (int64_t i = 0; i < in->samples; i++) {
        put_importance(f, i, some_importance(rng));
        seen.nan += isnan(f->values[i]);
        seen.zeros += f->values[i] == 0 && signbit(f->values[i]);
        seen.tie += i > 0 && f->values[i] == f->values[i - 1];
    }
    tensor_put(&f->indices, f->dense);
    in->indices = f->dense;
    in->importance = ordered ? f->values : NULL;
    oracle_moe_locations(in, f->want, f->want_counts);
    for (int64_t e = 0; e < in->experts; e++)
        seen.unnamed += f->want_counts[e] == 0;
}

static void fixture_check(struct fixture *f, sy_ctx *ctx)
{
    unsigned char *before = tensor_snapshot(&f->locations);
    expect_status(ctx,
                  sy_moe_locations(
                      ctx, &(sy_moe_locations_args){.indices = &f->indices.t,
                                                    .importance = f->in.importance ? &f->importance.t : NULL,
                                                    .num_experts = f->in.experts,
                                                    .locations = &f->locations.t,
                                                    .counts = &f->counts.t}),
                  SY_OK);
    tensor_expect(&f->locations, f->want, before, "locations");
    expect_bytes(f->counts.mem, f->want_counts, f->counts.bytes);
    free(before);
}

static void fixture_free(struct fixture *f)
{
    tensor_free(&f->indices);
    tensor_free(&f->importance);
    tensor_free(&f->locations);
    tensor_free(&f->counts);
    free(f->dense);
    free(f->want);
    free(f->values);
    free(f->want_counts);
}

static sy_ctx *contexts[5];
static const int thread_counts[5] = {1, 2, 3, 5, 8};

static int open_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        contexts[i] = test_ctx(thread_counts[i], NULL);
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        sy_ctx_destroy(contexts[i]);
    return 0;
}

static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};

static void random_shapes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 240; seed++) {
        uint64_t rng = seed;
        struct fixture f = {.type = types[seed % 3]};
        f.in.choices = 1 + rng_below(&rng, 4);
        f.in.samples = 1 + rng_below(&rng, 90);
        f.in.experts = 1 + rng_below(&rng, 20);
        fixture_make(&f, &rng, seed % 2, false);
        fixture_check(&f, contexts[seed % COUNT_OF(contexts)]);
        fixture_free(&f);
    }
}

/* Large enough for several parts, whose borders fall inside a choice. */
static void large(int64_t choices, int64_t samples, int64_t experts, DLDataType type, bool ordered)
{
    uint64_t rng = 7;
    struct fixture f = {.in = {.choices = choices, .samples = samples, .experts = experts}, .type = type};
    fixture_make(&f, &rng, ordered, true);
    for (size_t i = 0; i < COUNT_OF(contexts); i++)
        fixture_check(&f, contexts[i]);
    fixture_free(&f);
}

static void large_runs_on_any_number_of_threads(void **state)
{
    (void)state;
    large(1, 200003, 2, types[0], false);
    large(3, 70001, 64, types[0], false);
    large(8, 9001, 257, types[0], false);
    large(1, 65537, 40000, types[0], false); /* more counters than choices in a part */
    large(3, 2003, 70001, types[0], false);  /* many experts, few choices */
    large(3, 2003, 70001, types[1], true);
    large(2, 2049, 16, types[1], true);
    large(1, 20011, 16, types[0], true);
    large(2, 60013, 16, types[0], true);
    large(2, 60013, 16, types[1], true);
    large(3, 40009, 5, types[2], true);
}

/* As many experts as there are numbers: scratch depends on the choices. */
static void few_choices_of_any_number_of_experts(void **state)
{
    (void)state;
    int32_t indices[] = {5, -1, INT32_MAX, 5, 0, INT32_MAX}, locations[6] = {7, 7, 7, 7, 7, 7};
    const int32_t want[] = {0, -1, 0, 1, 0, 1};
    const DLTensor i = sy_tensor(indices, SY_I32, 1, (int64_t[]){6}),
                   l = sy_tensor(locations, SY_I32, 1, (int64_t[]){6});
    const sy_moe_locations_args args = {.indices = &i, .num_experts = INT64_MAX, .locations = &l};
    expect_status(contexts[1], sy_moe_locations(contexts[1], &args), SY_OK);
    assert_memory_equal(locations, want, sizeof want);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.outside, seen.unnamed, seen.tie,        seen.nan,  seen.zeros,
                       seen.skewed,  seen.gap,     seen.misaligned, seen.order};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 8)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

/* ---- Together with moe_dispatch ----------------------------------------------------------------------------- */

/* With room for all, every choice has a slot of its own: rows sent out come back. */
static void no_two_choices_share_a_slot(void **state)
{
    (void)state;
    enum { K = 3, S = 400, E = 7 };
    static int32_t indices[K * S], locations[K * S];
    static bool taken[E][K * S];
    int64_t counts[E], total = 0;
    uint64_t rng = 5;
    for (int i = 0; i < K * S; i++)
        indices[i] = (int32_t)rng_below(&rng, E);
    const DLTensor i = sy_tensor(indices, SY_I32, 2, (int64_t[]){K, S}),
                   c = sy_tensor(counts, SY_I64, 1, (int64_t[]){E}),
                   l = sy_tensor(locations, SY_I32, 2, (int64_t[]){K, S});
    expect_status(contexts[1],
                  sy_moe_locations(contexts[1],
                                   &(sy_moe_locations_args){
                                       .indices = &i, .num_experts = E, .locations = &l, .counts = &c}),
                  SY_OK);
    for (int at = 0; at < K * S; at++) {
        assert_in_range(locations[at], 0, counts[indices[at]] - 1);
        assert_false(taken[indices[at]][locations[at]]);
        taken[indices[at]][locations[at]] = true;
    }
    for (int e = 0; e < E; e++)
        total += counts[e];
    assert_int_equal(total, K * S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(large_runs_on_any_number_of_threads),
        cmocka_unit_test(few_choices_of_any_number_of_experts),
        cmocka_unit_test(the_random_cases_were_hard),
        cmocka_unit_test(no_two_choices_share_a_slot),
    };
    return cmocka_run_group_tests_name("op_moe_locations", tests, open_contexts, close_contexts);
}
