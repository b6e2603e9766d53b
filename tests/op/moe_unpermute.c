/*
 * moe_unpermute: worked examples small enough to check by eye, then the rules that one case can show: where the number
 * of tokens comes from, weights of zero, NaN and signed zeros, slots that hold no row, empty dimensions, faults.
 */
#include "support.h"

#include <math.h>

/* One call with dense arrays and what it must leave behind. */
struct example {
    int64_t tokens, experts, rows, hidden, num_tokens;
    bool capacity, zero_pad;
    DLDataType type, prob_type;
    const void *y, *map, *probs;
    const int32_t *indices;
    const void *want;
};

struct call {
    struct tensor y, indices, map, probs, out;
    sy_moe_unpermute_args args;
};

static void call_make(struct call *c, const struct example *ex)
{
    memset(c, 0, sizeof *c);
    tensor_make(&c->y, ex->type, 2, (int64_t[]){ex->rows, ex->hidden}, NULL);
    tensor_make(&c->indices, SY_I32, 1, (int64_t[]){ex->rows}, NULL);
    tensor_make(&c->out, ex->type, 2, (int64_t[]){ex->tokens, ex->hidden}, NULL);
    tensor_put(&c->y, ex->y);
    tensor_put(&c->indices, ex->indices);
    c->args = (sy_moe_unpermute_args){.permuted_tokens = &c->y.t,
                                      .sorted_indices = &c->indices.t,
                                      .num_tokens = ex->num_tokens,
                                      .drop_and_pad = ex->capacity,
                                      .zero_pad = ex->zero_pad,
                                      .tokens = &c->out.t};
    if (ex->map) {
        tensor_make(&c->map, SY_BOOL, 2, (int64_t[]){ex->tokens, ex->experts}, NULL);
        tensor_put(&c->map, ex->map);
        c->args.routing_map = &c->map.t;
    }
    if (ex->probs) {
        tensor_make(&c->probs, ex->prob_type, 2, (int64_t[]){ex->tokens, ex->experts}, NULL);
        tensor_put(&c->probs, ex->probs);
        c->args.probs = &c->probs.t;
    }
}

static void call_free(struct call *c)
{
    struct tensor *all[] = {&c->y, &c->indices, &c->map, &c->probs, &c->out};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
}

static void check(const struct example *ex)
{
    struct call c;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    call_make(&c, ex);
    expect_status(ctx, sy_moe_unpermute_query(ctx, &c.args, &query), SY_OK);
    assert_int_equal(query.rows, ex->tokens);
    expect_status(ctx, sy_moe_unpermute(ctx, &c.args), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    expect_bytes(c.out.mem, ex->want, c.out.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

/* Refused with this fault, whatever the number of threads, and nothing is written. */
static void check_fault(const struct example *ex, sy_fault_code code, int64_t position, int64_t value,
                        int64_t limit, const char *sentence)
{
    const int threads[] = {1, 2, 3, 8};
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        struct call c;
        sy_ctx *ctx = test_ctx(threads[i], NULL);
        call_make(&c, ex);
        unsigned char *before = tensor_snapshot(&c.out);
        expect_status(ctx, sy_moe_unpermute(ctx, &c.args), SY_ERR_ROUTING);
        expect_fault(ctx, code, -1, position, value, limit);
        assert_string_equal(sy_ctx_error(ctx), sentence);
        tensor_expect_unchanged(&c.out, before, "tokens");
        free(before);
        call_free(&c);
        sy_ctx_destroy(ctx);
    }
}

#define F(...) ((const float[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})
#define U8(...) ((const uint8_t[]){__VA_ARGS__})
#define U16(...) ((const uint16_t[]){__VA_ARGS__})
#define U32(...) ((const uint32_t[]){__VA_ARGS__})
#define TYPE_F32 \
    { \
        kDLFloat, 32, 1 \
    }

/* ---- Worked examples ------------------------------------------------------------------------------------------ */

static const struct example two_each = {
    .tokens = 4,
    .experts = 3,
    .rows = 8,
    .hidden = 2,
    .num_tokens = 4,
    .type = TYPE_F32,
    .prob_type = TYPE_F32,
    .y = (const float[]){1, 1, 2, -1, 3, -3, 4, -5, 5, -7, 6, -9, 7, -11, 8, -13},
    .indices = (const int32_t[]){0, 5, 3, 6, 1, 4, 2, 7},
    .want = (const float[]){7, -8, 11, -16, 7, -8, 11, -16}};

static const uint8_t two_each_map[] = {1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1};
static const float two_each_probs[] = {.5f, 0, .5f, 0, .25f, .75f, .125f, .875f, 0, .625f, 0, .375f};

static void plain_rows_are_added(void **state)
{
    (void)state;
    check(&two_each);
}

static void weighted_rows_are_added(void **state)
{
    (void)state;
    struct example ex = two_each;
    ex.map = two_each_map;
    ex.probs = two_each_probs;
    ex.want = F(3.5f, -4, 6.25f, -9.5f, 4.625f, -6.25f, 4.875f, -6.75f);
    check(&ex);
}

static const struct example capacity_example = {.tokens = 5,
                                                .experts = 3,
                                                .rows = 6,
                                                .hidden = 1,
                                                .num_tokens = 5,
                                                .capacity = true,
                                                .type = TYPE_F32,
                                                .prob_type = TYPE_F32,
                                                .y = (const float[]){1, 2, 3, 4, 5, 6},
                                                .indices = (const int32_t[]){0, 1, 0, 1, 3, 4},
                                                .want = (const float[]){4, 6, 0, 5, 6}};

static const float capacity_probs[] = {.9f,  .1f, .01f, .8f,  .2f, .02f, .7f, .3f,
                                       .03f, .6f, .4f,  .04f, .5f, .5f,  .05f};

static void capacity_plain_adds_padding_too(void **state)
{
    (void)state;
    check(&capacity_example);
}

static void capacity_weighted(void **state)
{
    (void)state;
    struct example ex = capacity_example;
    ex.probs = capacity_probs;
    ex.want = F(.9f * 1 + .1f * 3, .8f * 2 + .2f * 4, 0, .04f * 5, .05f * 6);
    check(&ex);
}

static void capacity_with_zero_pad_leaves_minus_one_rows_out(void **state)
{
    (void)state;
    struct example ex = capacity_example;
    ex.zero_pad = true;
    ex.indices = I(0, 1, -1, -1, 3, 4);
    ex.want = F(1, 2, 0, 5, 6);
    check(&ex);
    ex.probs = capacity_probs;
    ex.want = F(.9f * 1, .8f * 2, 0, .04f * 5, .05f * 6);
    check(&ex);
}

/* All rows on one token, as in Ascend's sample program. */
static void capacity_index_may_repeat_a_token(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 2,
                            .experts = 2,
                            .rows = 2,
                            .hidden = 2,
                            .capacity = true,
                            .type = SY_F32,
                            .prob_type = SY_F32,
                            .y = F(1, 1, 1, 1),
                            .indices = I(1, 1),
                            .probs = F(1, 1, 1, 1),
                            .want = F(0, 0, 2, 2)});
}

static void unused_slots_hold_no_row(void **state)
{
    (void)state;
    struct example ex = {.tokens = 3,
                         .experts = 2,
                         .rows = 6,
                         .hidden = 2,
                         .num_tokens = 3,
                         .type = SY_F32,
                         .prob_type = SY_F32,
                         .y = F(1, 2, 5, 6, 100, 100, 100, 100, 100, 100, 100, 100),
                         .indices = I(0, -1, -1, -1, 1, -1),
                         .want = F(1, 2, 0, 0, 5, 6)};
    check(&ex);
    ex.map = U8(1, 0, 0, 0, 1, 0);
    ex.probs = F(.5f, 9, 8, 7, .25f, 1);
    ex.want = F(.5f, 1, 0, 0, 1.25f, 1.5f);
    check(&ex);
}

/* The n-th slot that holds a row belongs to the n-th expert, wherever the empty ones stand. */
static void live_slots_and_experts_are_taken_side_by_side(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 1,
                            .experts = 5,
                            .rows = 4,
                            .hidden = 1,
                            .type = SY_F32,
                            .prob_type = SY_F32,
                            .y = F(1, 10, 100, 1000),
                            .indices = I(-1, 3, -1, 0),
                            .map = U8(0, 1, 0, 0, 7),
                            .probs = F(50, 2, 60, 70, 3),
                            .want = F(2003)});
}

/* ---- The number of tokens -------------------------------------------------------------------------------------- */

static void tokens_are_counted_by_probs_map_or_number(void **state)
{
    (void)state;
    struct example ex = two_each;
    ex.num_tokens = 0;
    ex.map = two_each_map;
    check(&ex);
    ex.num_tokens = 4;
    check(&ex);
    ex = capacity_example;
    ex.num_tokens = 0;
    ex.probs = F(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1);
    check(&ex);
}

/* Without probs nobody asks which experts a token has. */
static void a_map_alone_is_not_read(void **state)
{
    (void)state;
    struct example ex = two_each;
    ex.map = U8(0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0);
    check(&ex);
}

/* ---- Arithmetic ------------------------------------------------------------------------------------------------ */

static const float many_probs[] = {0.0f, -0.0f, 1.0f};

/* Rows of infinities and NaNs with weight 0 or -0 leave no trace; the token is +0, or what the others say. */
static void a_weight_of_zero_contributes_nothing(void **state)
{
    (void)state;
    struct example ex = {.tokens = 1,
                         .experts = 3,
                         .rows = 3,
                         .hidden = 2,
                         .type = SY_F32,
                         .prob_type = SY_F32,
                         .y = U32(0x7f800000, 0x7fc00001, 0xff800000, 0xffc00000, 0x40000000, 0xc0400000),
                         .indices = I(0, 1, 2),
                         .map = U8(1, 1, 1),
                         .probs = many_probs,
                         .want = F(2, -3)};
    check(&ex);
    ex.capacity = true;
    ex.indices = I(0, 0, 0);
    check(&ex);
    ex.probs = F(0.0f, -0.0f, -0.0f);
    ex.want = F(0, 0);
    check(&ex);
}

static void nan_results_are_canonical_and_sums_begin_with_plus_zero(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .rows = 8,
                            .hidden = 1,
                            .num_tokens = 4,
                            .type = SY_F32,
                            .y = U32(0x80000000, 0x80000000, 0xffc12345, 0x3f800000, 0x7f800000, 0xff800000,
                                     0x00000001, 0x80000001),
                            .indices = I(0, 1, 2, 3, 4, 5, 6, 7),
                            .want = U32(0, 0x7fc00000, 0x7fc00000, 0)});
    check(&(struct example){.tokens = 2,
                            .rows = 4,
                            .hidden = 1,
                            .num_tokens = 2,
                            .type = SY_BF16,
                            .y = U16(0xffff, 0x3f80, 0x8000, 0x8000),
                            .indices = I(0, 1, 2, 3),
                            .want = U16(0x7fc0, 0)});
    check(&(struct example){.tokens = 2,
                            .rows = 4,
                            .hidden = 1,
                            .num_tokens = 2,
                            .type = SY_F16,
                            .y = U16(0xfc01, 0x3c00, 0x7c00, 0xfc00),
                            .indices = I(0, 1, 2, 3),
                            .want = U16(0x7e00, 0x7e00)});
}

/* 256 + 1 + 1 in bf16: 258 when the sum is rounded, 256 when every step is. */
static void sums_are_rounded_once(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 1,
                            .rows = 3,
                            .hidden = 1,
                            .num_tokens = 1,
                            .type = SY_BF16,
                            .y = U16(0x4380, 0x3f80, 0x3f80),
                            .indices = I(0, 1, 2),
                            .want = U16(0x4381)});
}

/* 2^24 + 1 + 1 is 2^24 from the left and 2^24 + 2 from the right: slots ascend, rows ascend. */
static void sums_ascend(void **state)
{
    (void)state;
    struct example ex = {.tokens = 1,
                         .rows = 3,
                         .hidden = 1,
                         .num_tokens = 1,
                         .type = SY_F32,
                         .y = F(1, 1, 0x1p24f),
                         .indices = I(2, 0, 1),
                         .want = F(0x1p24f)};
    check(&ex);
    ex.indices = I(0, 1, 2);
    ex.want = F(0x1p24f + 2);
    check(&ex);
    ex.capacity = true;
    ex.indices = I(0, 0, 0);
    check(&ex);
    ex.y = F(0x1p24f, 1, 1);
    ex.want = F(0x1p24f);
    check(&ex);
}

/* 1.5 * 2 + 0.25 * 8 = 5 in every pair of types. */
static void types_of_rows_and_probs_are_free(void **state)
{
    (void)state;
    static const struct {
        DLDataType type;
        uint32_t two, eight, five, weight, quarter; /* bits */
    } types[] = {{{kDLFloat, 32, 1}, 0x40000000, 0x41000000, 0x40a00000, 0x3fc00000, 0x3e800000},
                 {{kDLFloat, 16, 1}, 0x4000, 0x4800, 0x4500, 0x3e00, 0x3400},
                 {{kDLBfloat, 16, 1}, 0x4000, 0x4100, 0x40a0, 0x3fc0, 0x3e80}};
    for (size_t r = 0; r < COUNT_OF(types); r++)
        for (size_t p = 0; p < COUNT_OF(types); p++) {
            const size_t row_bytes = types[r].type.bits / 8, prob_bytes = types[p].type.bits / 8;
            unsigned char y[8], probs[8], want[4];
            memcpy(y, &types[r].two, row_bytes);
            memcpy(y + row_bytes, &types[r].eight, row_bytes);
            memcpy(want, &types[r].five, row_bytes);
            memcpy(probs, &types[p].weight, prob_bytes);
            memcpy(probs + prob_bytes, &types[p].quarter, prob_bytes);
            check(&(struct example){.tokens = 1,
                                    .experts = 2,
                                    .rows = 2,
                                    .hidden = 1,
                                    .type = types[r].type,
                                    .prob_type = types[p].type,
                                    .y = y,
                                    .indices = I(0, 1),
                                    .map = U8(1, 1),
                                    .probs = probs,
                                    .want = want});
        }
}

/* More experts than are looked at in one step, and more slots. */
static void experts_beyond_a_block_keep_their_order(void **state)
{
    (void)state;
    enum { EXPERTS = 700 };
    uint8_t map[EXPERTS] = {0};
    float probs[EXPERTS] = {0}, y[EXPERTS], sum = 0;
    int32_t indices[EXPERTS];
    int n = 0;
    for (int e = 0; e < EXPERTS; e++) {
        map[e] = e % 2 == 0 || e == 255 || e == 699;
        probs[e] = (float)(e % 7) - 3;
        if (map[e]) {
            y[n] = (float)(1000 - e);
            sum += probs[e] * y[n];
            indices[n] = n;
            n++;
        }
    }
    check(&(struct example){.tokens = 1,
                            .experts = EXPERTS,
                            .rows = n,
                            .hidden = 1,
                            .type = SY_F32,
                            .prob_type = SY_F32,
                            .y = y,
                            .indices = indices,
                            .map = map,
                            .probs = probs,
                            .want = &sum});
}

/* ---- Empty dimensions ------------------------------------------------------------------------------------------ */

static void tokens_without_any_rows_are_zero(void **state)
{
    (void)state;
    struct example ex = {.tokens = 2,
                         .experts = 2,
                         .hidden = 2,
                         .num_tokens = 2,
                         .type = SY_F32,
                         .prob_type = SY_F32,
                         .y = F(0),
                         .indices = I(0),
                         .want = F(0, 0, 0, 0)};
    check(&ex);
    ex.map = U8(1, 1, 1, 1); /* with M = 0 the map is not examined */
    ex.probs = F(1, 1, 1, 1);
    check(&ex);
    ex.capacity = true;
    check(&ex);
}

static void no_tokens_or_no_elements(void **state)
{
    (void)state;
    struct example ex = {.type = SY_F32, .hidden = 3, .y = F(0), .indices = I(0), .want = F(0)};
    check(&ex);
    ex.capacity = true;
    check(&ex);
    ex = two_each;
    ex.hidden = 0;
    check(&ex);
    ex = capacity_example;
    ex.hidden = 0;
    check(&ex);
}

static void empty_tensors_may_have_no_data(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(1, NULL);
    struct example ex = two_each;
    ex.hidden = 0;
    call_make(&c, &ex);
    c.y.t.data = c.out.t.data = NULL;
    expect_status(ctx, sy_moe_unpermute(ctx, &c.args), SY_OK);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Faults ---------------------------------------------------------------------------------------------------- */

static void indices_that_name_no_row(void **state)
{
    (void)state;
    struct example ex = two_each;
    ex.indices = I(0, 5, 3, 8, 1, -2, 2, 7);
    check_fault(&ex, SY_FAULT_SLOT_RANGE, 3, 8, 8, "moe_unpermute: sorted_indices has 8 at 3, want -1 to 7");
    ex.indices = I(0, 5, 3, 6, 1, INT32_MIN, 2, INT32_MAX);
    check_fault(&ex, SY_FAULT_SLOT_RANGE, 5, INT32_MIN, 8,
                "moe_unpermute: sorted_indices has -2147483648 at 5, want -1 to 7");
    ex.hidden = 0; /* nothing to move, but still wrong */
    check_fault(&ex, SY_FAULT_SLOT_RANGE, 5, INT32_MIN, 8,
                "moe_unpermute: sorted_indices has -2147483648 at 5, want -1 to 7");
}

static void indices_that_name_no_token(void **state)
{
    (void)state;
    struct example ex = capacity_example;
    ex.indices = I(0, 1, 0, 5, -1, 4);
    check_fault(&ex, SY_FAULT_SLOT_RANGE, 3, 5, 5, "moe_unpermute: sorted_indices has 5 at 3, want 0 to 4");
    ex.indices = I(0, 1, 0, 1, -1, 4);
    check_fault(&ex, SY_FAULT_SLOT_RANGE, 4, -1, 5, "moe_unpermute: sorted_indices has -1 at 4, want 0 to 4");
    ex.zero_pad = true;
    ex.indices = I(0, 1, -1, 1, -2, 4);
    check_fault(&ex, SY_FAULT_SLOT_RANGE, 4, -2, 5,
                "moe_unpermute: sorted_indices has -2 at 4, want -1 to 4");
}

static void experts_and_live_slots_must_agree(void **state)
{
    (void)state;
    struct example ex = two_each;
    ex.probs = two_each_probs;
    ex.map = U8(1, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0);
    check_fault(&ex, SY_FAULT_SLOT_COUNT, 2, 3, 2,
                "moe_unpermute: routing_map routes token 2 to 3 experts, want 2, its live slots");
    ex.map = two_each_map;
    ex.indices = I(0, 5, 3, 6, 1, 4, 2, -1);
    check_fault(&ex, SY_FAULT_SLOT_COUNT, 3, 2, 1,
                "moe_unpermute: routing_map routes token 3 to 2 experts, want 1, its live slots");
    ex.indices = I(0, 5, 3, 6, 1, 4, 2, 9); /* an index first: it decides how many slots are live */
    check_fault(&ex, SY_FAULT_SLOT_RANGE, 7, 9, 8, "moe_unpermute: sorted_indices has 9 at 7, want -1 to 7");
}

/* ---- With moe_permute ------------------------------------------------------------------------------------------ */

/* Probs that sum to one bring every token back, to the bit: the weights are powers of two. */
static void permute_then_unpermute_is_the_identity(void **state)
{
    (void)state;
    enum { TOKENS = 37, EXPERTS = 9, HIDDEN = 21 };
    float x[TOKENS * HIDDEN], probs[TOKENS * EXPERTS] = {0}, rows[4 * TOKENS * HIDDEN], back[TOKENS * HIDDEN];
    uint8_t map[TOKENS * EXPERTS] = {0};
    int32_t indices[4 * TOKENS];
    uint64_t rng = 3;
    for (int i = 0; i < TOKENS * HIDDEN; i++)
        x[i] = (float)(rng_unit(&rng) * 200 - 100);
    for (int t = 0; t < TOKENS; t++) {
        const int n = 1 << rng_below(&rng, 3); /* 1, 2 or 4 experts */
        for (int left = n; left > 0;) {
            const int e = (int)rng_below(&rng, EXPERTS);
            left -= map[t * EXPERTS + e] == 0;
            map[t * EXPERTS + e] = 1;
            probs[t * EXPERTS + e] = 1.0f / (float)n;
        }
    }
    DLTensor x_t = sy_tensor(x, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN}),
             map_t = sy_tensor(map, SY_BOOL, 2, (int64_t[]){TOKENS, EXPERTS}),
             probs_t = sy_tensor(probs, SY_F32, 2, (int64_t[]){TOKENS, EXPERTS}),
             rows_t = sy_tensor(rows, SY_F32, 2, (int64_t[]){4 * TOKENS, HIDDEN}),
             index_t = sy_tensor(indices, SY_I32, 1, (int64_t[]){4 * TOKENS}),
             back_t = sy_tensor(back, SY_F32, 2, (int64_t[]){TOKENS, HIDDEN});
    sy_ctx *ctx = test_ctx(2, NULL);
    const sy_moe_permute_args there = {.tokens = &x_t,
                                       .routing_map = &map_t,
                                       .num_out_tokens = 4 * TOKENS,
                                       .permuted_tokens = &rows_t,
                                       .sorted_indices = &index_t};
    const sy_moe_unpermute_args again = {.permuted_tokens = &rows_t,
                                         .sorted_indices = &index_t,
                                         .routing_map = &map_t,
                                         .probs = &probs_t,
                                         .tokens = &back_t};
    expect_status(ctx, sy_moe_permute(ctx, &there), SY_OK);
    expect_status(ctx, sy_moe_unpermute(ctx, &again), SY_OK);
    expect_bytes(back, x, sizeof x);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_rows_are_added),
        cmocka_unit_test(weighted_rows_are_added),
        cmocka_unit_test(capacity_plain_adds_padding_too),
        cmocka_unit_test(capacity_weighted),
        cmocka_unit_test(capacity_with_zero_pad_leaves_minus_one_rows_out),
        cmocka_unit_test(capacity_index_may_repeat_a_token),
        cmocka_unit_test(unused_slots_hold_no_row),
        cmocka_unit_test(live_slots_and_experts_are_taken_side_by_side),
        cmocka_unit_test(tokens_are_counted_by_probs_map_or_number),
        cmocka_unit_test(a_map_alone_is_not_read),
        cmocka_unit_test(a_weight_of_zero_contributes_nothing),
        cmocka_unit_test(nan_results_are_canonical_and_sums_begin_with_plus_zero),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(sums_ascend),
        cmocka_unit_test(types_of_rows_and_probs_are_free),
        cmocka_unit_test(experts_beyond_a_block_keep_their_order),
        cmocka_unit_test(tokens_without_any_rows_are_zero),
        cmocka_unit_test(no_tokens_or_no_elements),
        cmocka_unit_test(empty_tensors_may_have_no_data),
        cmocka_unit_test(indices_that_name_no_row),
        cmocka_unit_test(indices_that_name_no_token),
        cmocka_unit_test(experts_and_live_slots_must_agree),
        cmocka_unit_test(permute_then_unpermute_is_the_identity),
    };
    return cmocka_run_group_tests_name("op_moe_unpermute", tests, NULL, NULL);
}
