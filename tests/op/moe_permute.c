/*
 * moe_permute: the worked examples of the specification, small enough to check by eye, then the rules that one case
 * can show: what num_out_tokens means, empty dimensions, counts and offsets, map bytes, types, padding.
 */
#include "support.h"

/* One call with dense arrays and everything it must leave behind. NULL wants are not asked for. */
struct example {
    int64_t tokens, experts, hidden, out_tokens, rows, slots;
    bool capacity, zero_pad;
    DLDataType type, prob_type, map_type;
    const void *x, *map, *probs;
    const void *want_x, *want_probs;
    const int32_t *want_indices;
    const int64_t *want_counts, *want_offsets;
};

struct call {
    struct tensor x, map, probs, out_x, out_probs, indices, counts, offsets;
    sy_moe_permute_args args;
};

static void call_make(struct call *c, const struct example *ex)
{
    memset(c, 0, sizeof *c);
    tensor_make(&c->x, ex->type, 2, (int64_t[]){ex->tokens, ex->hidden}, NULL);
    tensor_make(&c->map, ex->map_type.bits ? ex->map_type : SY_BOOL, 2, (int64_t[]){ex->tokens, ex->experts},
                NULL);
    tensor_make(&c->out_x, ex->type, 2, (int64_t[]){ex->rows, ex->hidden}, NULL);
    tensor_make(&c->indices, SY_I32, 1, (int64_t[]){ex->rows}, NULL);
    tensor_make(&c->counts, SY_I64, 1, (int64_t[]){ex->experts}, NULL);
    tensor_make(&c->offsets, SY_I64, 1, (int64_t[]){ex->experts + 1}, NULL);
    tensor_put(&c->x, ex->x);
    tensor_put(&c->map, ex->map);
    c->args = (sy_moe_permute_args){.tokens = &c->x.t,
                                    .routing_map = &c->map.t,
                                    .num_out_tokens = ex->out_tokens,
                                    .drop_and_pad = ex->capacity,
                                    .zero_pad = ex->zero_pad,
                                    .permuted_tokens = &c->out_x.t,
                                    .sorted_indices = &c->indices.t};
    if (ex->want_counts)
        c->args.expert_counts = &c->counts.t;
    if (ex->want_offsets)
        c->args.expert_offsets = &c->offsets.t;
    if (ex->probs == NULL)
        return;
    tensor_make(&c->probs, ex->prob_type, 2, (int64_t[]){ex->tokens, ex->experts}, NULL);
    tensor_make(&c->out_probs, ex->prob_type, 1, (int64_t[]){ex->rows}, NULL);
    tensor_put(&c->probs, ex->probs);
    c->args.probs = &c->probs.t;
    c->args.permuted_probs = &c->out_probs.t;
}

static void call_free(struct call *c)
{
    struct tensor *all[] = {&c->x,         &c->map,     &c->probs,  &c->out_x,
                            &c->out_probs, &c->indices, &c->counts, &c->offsets};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
}

static void check(const struct example *ex)
{
    struct call c;
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    call_make(&c, ex);
    expect_status(ctx, sy_moe_permute_query(ctx, &c.args, &query), SY_OK);
    assert_int_equal(query.rows, ex->rows);
    assert_int_equal(query.slots, ex->slots);
    expect_status(ctx, sy_moe_permute(ctx, &c.args), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    if (ex->want_x)
        expect_bytes(c.out_x.mem, ex->want_x, c.out_x.bytes);
    if (ex->want_indices)
        expect_bytes(c.indices.mem, ex->want_indices, c.indices.bytes);
    if (ex->want_probs)
        expect_bytes(c.out_probs.mem, ex->want_probs, c.out_probs.bytes);
    if (ex->want_counts)
        expect_bytes(c.counts.mem, ex->want_counts, c.counts.bytes);
    if (ex->want_offsets)
        expect_bytes(c.offsets.mem, ex->want_offsets, c.offsets.bytes);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

#define F(...) ((const float[]){__VA_ARGS__})
#define I(...) ((const int32_t[]){__VA_ARGS__})
#define L(...) ((const int64_t[]){__VA_ARGS__})
#define U8(...) ((const uint8_t[]){__VA_ARGS__})
#define U16(...) ((const uint16_t[]){__VA_ARGS__})

static const float x4[] = {10, 11, 20, 21, 30, 31, 40, 41};

static void w1_one_expert_each(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .experts = 3,
                            .hidden = 2,
                            .out_tokens = 4,
                            .rows = 4,
                            .slots = 1,
                            .type = SY_F32,
                            .x = x4,
                            .map = U8(0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0),
                            .want_indices = I(2, 0, 3, 1),
                            .want_x = F(20, 21, 40, 41, 10, 11, 30, 31)});
}

static void w2_two_experts_with_probs(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .experts = 3,
                            .hidden = 2,
                            .out_tokens = 8,
                            .rows = 8,
                            .slots = 2,
                            .type = SY_F32,
                            .x = x4,
                            .map = U8(1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1),
                            .prob_type = SY_F32,
                            .probs = F(.5f, 0, .5f, 0, .25f, .75f, .125f, .875f, 0, .625f, 0, .375f),
                            .want_indices = I(0, 5, 3, 6, 1, 4, 2, 7),
                            .want_x = F(10, 11, 30, 31, 40, 41, 20, 21, 30, 31, 10, 11, 20, 21, 40, 41),
                            .want_probs = F(.5f, .125f, .625f, .25f, .875f, .5f, .75f, .375f),
                            .want_counts = L(3, 2, 3),
                            .want_offsets = L(0, 3, 5, 8)});
}

static void w3_bf16_bits_and_remainder(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 3,
                            .experts = 4,
                            .hidden = 2,
                            .out_tokens = 7,
                            .rows = 6,
                            .slots = 2,
                            .type = SY_BF16,
                            .x = U16(0x3f80, 0xc000, 0x3f00, 0x4040, 0x8000, 0x42c8),
                            .map = U8(1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0),
                            .want_indices = I(0, 5, 2, 3, 1, 4),
                            .want_x = U16(0x3f80, 0xc000, 0x8000, 0x42c8, 0x3f00, 0x4040, 0x3f00, 0x4040,
                                          0x8000, 0x42c8, 0x3f80, 0xc000)});
}

static void w4_ragged_rows(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 3,
                            .experts = 2,
                            .hidden = 2,
                            .out_tokens = 6,
                            .rows = 6,
                            .slots = 2,
                            .type = SY_F32,
                            .x = F(1, 2, 3, 4, 5, 6),
                            .map = U8(1, 0, 0, 0, 1, 0),
                            .prob_type = SY_F32,
                            .probs = F(.5f, .9f, .8f, .7f, .25f, .1f),
                            .want_indices = I(0, -1, -1, -1, 1, -1),
                            .want_x = F(1, 2, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0),
                            .want_probs = F(.5f, .25f, 0, 0, 0, 0),
                            .want_counts = L(2, 0),
                            .want_offsets = L(0, 2, 2)});
}

static const struct example w5 = {
    .tokens = 5,
    .experts = 3,
    .hidden = 1,
    .out_tokens = 8,
    .rows = 6,
    .slots = 2,
    .capacity = true,
    .type = {kDLFloat, 32, 1},
    .prob_type = {kDLFloat, 32, 1},
    .x = (const float[]){10, 20, 30, 40, 50},
    .map = (const uint8_t[]){1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 1},
    .probs = (const float[]){.9f, .1f, .01f, .8f, .2f, .02f, .7f, .3f, .03f, .6f, .4f, .04f, .5f, .5f, .05f},
    .want_indices = (const int32_t[]){0, 1, 0, 1, 3, 4},
    .want_x = (const float[]){10, 20, 10, 20, 40, 50},
    .want_probs = (const float[]){.9f, .8f, .1f, .2f, .04f, .05f},
    .want_counts = (const int64_t[]){4, 0, 2},
    .want_offsets = (const int64_t[]){0, 2, 4, 6}};

static void w5_capacity_overflow_and_empty_expert(void **state)
{
    (void)state;
    check(&w5);
}

static void w5_with_zero_pad(void **state)
{
    (void)state;
    struct example ex = w5;
    ex.zero_pad = true;
    ex.want_indices = I(0, 1, -1, -1, 3, 4);
    ex.want_x = F(10, 20, 0, 0, 40, 50);
    ex.want_probs = F(.9f, .8f, 0, 0, .04f, .05f);
    check(&ex);
}

static void w6_capacity_shortage(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .experts = 2,
                            .hidden = 2,
                            .out_tokens = 6,
                            .rows = 6,
                            .slots = 3,
                            .capacity = true,
                            .type = SY_F32,
                            .x = x4,
                            .map = U8(0, 0, 0, 0, 1, 0, 0, 0),
                            .prob_type = SY_F32,
                            .probs = F(0, 0, 0, 0, 1, 0, 0, 0),
                            .want_indices = I(2, 0, 1, 0, 1, 2),
                            .want_x = F(30, 31, 10, 11, 20, 21, 10, 11, 20, 21, 30, 31),
                            .want_probs = F(1, 0, 0, 0, 0, 0)});
}

static void w7_all_experts(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 3,
                            .experts = 2,
                            .hidden = 1,
                            .out_tokens = 6,
                            .rows = 6,
                            .slots = 2,
                            .type = SY_F32,
                            .x = F(.1f, .2f, .3f),
                            .map = U8(1, 1, 1, 1, 1, 1),
                            .want_indices = I(0, 3, 1, 4, 2, 5),
                            .want_x = F(.1f, .2f, .3f, .1f, .2f, .3f)});
}

static void w8_f16_three_of_four(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 2,
                            .experts = 4,
                            .hidden = 2,
                            .out_tokens = 6,
                            .rows = 6,
                            .slots = 3,
                            .type = SY_F16,
                            .x = U16(0x3e00, 0x4100, 0x4300, 0x4480),
                            .map = U8(1, 1, 0, 1, 0, 1, 1, 1),
                            .prob_type = SY_F16,
                            .probs = U16(0x3800, 0x3400, 0x3000, 0x3000, 0x3800, 0x3400, 0x3000, 0x2c00),
                            .want_indices = I(0, 1, 4, 2, 3, 5),
                            .want_x = U16(0x3e00, 0x4100, 0x3e00, 0x4100, 0x4300, 0x4480, 0x4300, 0x4480,
                                          0x3e00, 0x4100, 0x4300, 0x4480),
                            .want_probs = U16(0x3800, 0x3400, 0x3400, 0x3000, 0x3000, 0x2c00)});
}

/* ---- num_out_tokens ----------------------------------------------------------------------------------------- */

static const uint8_t two_each[] = {1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0}; /* T = 4, E = 3 */

static void n_zero_gives_no_rows(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .experts = 3,
                            .hidden = 2,
                            .out_tokens = 0,
                            .type = SY_F32,
                            .x = x4,
                            .map = two_each,
                            .want_counts = L(3, 3, 2),
                            .want_offsets = L(0, 3, 6, 8)});
}

static void n_below_tokens_gives_no_rows_and_no_routing_error(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .experts = 3,
                            .hidden = 2,
                            .out_tokens = 3,
                            .type = SY_F32,
                            .x = x4,
                            .map = two_each,
                            .want_counts = L(3, 3, 2),
                            .want_offsets = L(0, 3, 6, 8)});
}

static void n_below_experts_gives_no_rows_in_capacity_mode(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .experts = 3,
                            .hidden = 2,
                            .out_tokens = 2,
                            .capacity = true,
                            .type = SY_F32,
                            .x = x4,
                            .map = two_each,
                            .want_counts = L(3, 3, 2),
                            .want_offsets = L(0, 0, 0, 0)});
}

static void n_of_all_pairs_pads_with_zero_rows(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 2,
                            .experts = 2,
                            .hidden = 1,
                            .out_tokens = 4,
                            .rows = 4,
                            .slots = 2,
                            .type = SY_F32,
                            .x = F(7, 8),
                            .map = U8(0, 1, 1, 0),
                            .want_indices = I(1, -1, 0, -1),
                            .want_x = F(8, 7, 0, 0)});
}

static void n_of_all_pairs_in_capacity_mode_holds_every_token_per_expert(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 3,
                            .experts = 2,
                            .hidden = 1,
                            .out_tokens = 6,
                            .rows = 6,
                            .slots = 3,
                            .capacity = true,
                            .type = SY_F32,
                            .x = F(1, 2, 3),
                            .map = U8(0, 1, 0, 0, 1, 1),
                            .want_indices = I(2, 0, 1, 0, 2, 1),
                            .want_x = F(3, 1, 2, 1, 3, 2)});
}

static void one_token_one_expert(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 1,
                            .experts = 1,
                            .hidden = 1,
                            .out_tokens = 1,
                            .rows = 1,
                            .slots = 1,
                            .type = SY_F32,
                            .x = F(5),
                            .map = U8(1),
                            .want_indices = I(0),
                            .want_x = F(5)});
}

static void nothing_routed_gives_only_padding(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 2,
                            .experts = 2,
                            .hidden = 2,
                            .out_tokens = 2,
                            .rows = 2,
                            .slots = 1,
                            .type = SY_F32,
                            .x = x4,
                            .map = U8(0, 0, 0, 0),
                            .want_indices = I(-1, -1),
                            .want_x = F(0, 0, 0, 0),
                            .want_counts = L(0, 0),
                            .want_offsets = L(0, 0, 0)});
}

/* ---- Empty dimensions --------------------------------------------------------------------------------------- */

static void no_tokens(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 0,
                            .experts = 3,
                            .hidden = 2,
                            .type = SY_F32,
                            .x = x4,
                            .map = two_each,
                            .want_counts = L(0, 0, 0),
                            .want_offsets = L(0, 0, 0, 0)});
}

static void no_tokens_in_capacity_mode(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 0,
                            .experts = 3,
                            .hidden = 2,
                            .capacity = true,
                            .type = SY_F32,
                            .x = x4,
                            .map = two_each,
                            .want_counts = L(0, 0, 0),
                            .want_offsets = L(0, 0, 0, 0)});
}

static void no_experts(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .experts = 0,
                            .hidden = 2,
                            .type = SY_F32,
                            .x = x4,
                            .map = two_each,
                            .want_counts = L(0),
                            .want_offsets = L(0)});
}

static void no_experts_in_capacity_mode(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 4,
                            .experts = 0,
                            .hidden = 2,
                            .capacity = true,
                            .type = SY_F32,
                            .x = x4,
                            .map = two_each,
                            .want_counts = L(0),
                            .want_offsets = L(0)});
}

static void no_elements_still_give_indices_and_probs(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 2,
                            .experts = 2,
                            .hidden = 0,
                            .out_tokens = 4,
                            .rows = 4,
                            .slots = 2,
                            .type = SY_F32,
                            .x = x4,
                            .map = U8(0, 1, 1, 1),
                            .prob_type = SY_BF16,
                            .probs = U16(1, 2, 3, 4),
                            .want_indices = I(1, -1, 0, 2),
                            .want_probs = U16(3, 2, 4, 0),
                            .want_counts = L(1, 2),
                            .want_offsets = L(0, 1, 3)});
}

static void no_elements_still_refuse_an_overfull_token(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(1, NULL);
    call_make(&c, &(struct example){.tokens = 2,
                                    .experts = 2,
                                    .hidden = 0,
                                    .out_tokens = 2,
                                    .rows = 2,
                                    .type = SY_F32,
                                    .x = x4,
                                    .map = U8(0, 1, 1, 1)});
    expect_status(ctx, sy_moe_permute(ctx, &c.args), SY_ERR_ROUTING);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

static void empty_tensors_may_have_no_data(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(1, NULL);
    call_make(&c, &(struct example){.tokens = 4,
                                    .experts = 3,
                                    .hidden = 0,
                                    .out_tokens = 8,
                                    .rows = 8,
                                    .type = SY_F32,
                                    .x = x4,
                                    .map = two_each});
    c.x.t.data = NULL;
    c.out_x.t.data = NULL;
    expect_status(ctx, sy_moe_permute(ctx, &c.args), SY_OK);
    expect_bytes(c.indices.mem, I(0, 3, 4, 6, 1, 7, 2, 5), c.indices.bytes);
    call_free(&c);
    call_make(&c, &(struct example){
                      .tokens = 0, .experts = 3, .hidden = 2, .type = SY_F32, .x = x4, .map = two_each});
    c.x.t.data = c.map.t.data = c.out_x.t.data = c.indices.t.data = NULL;
    expect_status(ctx, sy_moe_permute(ctx, &c.args), SY_OK);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

/* ---- Contents ----------------------------------------------------------------------------------------------- */

/* Every non-zero byte routes, in both modes and for the three map types, a negative int8 included. */
static void map_bytes_other_than_one_route(void **state)
{
    (void)state;
    const DLDataType types[] = {SY_BOOL, SY_I8, SY_U8};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct example ex = {.tokens = 3,
                             .experts = 2,
                             .hidden = 1,
                             .out_tokens = 6,
                             .rows = 6,
                             .slots = 2,
                             .type = SY_F32,
                             .map_type = types[i],
                             .x = F(1, 2, 3),
                             .map = U8(2, 0, 0x80, 255, 0, 7),
                             .want_indices = I(0, -1, 1, 2, 3, -1),
                             .want_x = F(1, 2, 2, 3, 0, 0),
                             .want_counts = L(2, 2),
                             .want_offsets = L(0, 2, 4)};
        check(&ex);
        ex.capacity = true;
        ex.slots = 3;
        ex.want_indices = I(0, 1, 2, 1, 2, 0);
        ex.want_x = F(1, 2, 3, 2, 3, 1);
        ex.want_offsets = L(0, 3, 6);
        check(&ex);
    }
}

static void zero_pad_means_nothing_in_packed_mode(void **state)
{
    (void)state;
    check(&(struct example){.tokens = 2,
                            .experts = 2,
                            .hidden = 1,
                            .out_tokens = 4,
                            .rows = 4,
                            .slots = 2,
                            .zero_pad = true,
                            .type = SY_F32,
                            .x = F(7, 8),
                            .map = U8(0, 1, 1, 0),
                            .want_indices = I(1, -1, 0, -1),
                            .want_x = F(8, 7, 0, 0)});
}

/* The rows are copied as bytes: signalling NaN payloads, -0, subnormals and infinities, in tokens and in probs. */
static void special_values_survive(void **state)
{
    (void)state;
    const uint32_t x[] = {0x7f800001, 0xffc12345, 0x80000000, 0x00000001, 0xff800000, 0x7fffffff};
    const uint32_t want[] = {0x80000000, 0x00000001, 0xff800000, 0x7fffffff, 0x7f800001, 0xffc12345};
    check(&(struct example){.tokens = 3,
                            .experts = 2,
                            .hidden = 2,
                            .out_tokens = 3,
                            .rows = 3,
                            .slots = 1,
                            .type = SY_F32,
                            .x = x,
                            .map = U8(0, 1, 1, 0, 1, 0),
                            .prob_type = SY_F16,
                            .probs = U16(1, 0x7c01, 0x8000, 1, 0xfe00, 2),
                            .want_indices = I(2, 0, 1),
                            .want_x = want,
                            .want_probs = U16(0x8000, 0xfe00, 0x7c01)});
}

/* Token types are known by size alone; probs have a type of their own. */
static void types_by_size(void **state)
{
    const DLDataType *type = *state;
    const size_t size = type_bytes(*type);
    uint8_t x[3 * 8], want[4 * 8];
    const DLDataType prob_types[] = {SY_F32, SY_F16, SY_BF16};
    for (size_t i = 0; i < 3 * size; i++)
        x[i] = (uint8_t)(0x81 + 7 * i);
    for (size_t p = 0; p < COUNT_OF(prob_types); p++) {
        uint8_t probs[6 * 4], want_probs[3 * 4];
        const size_t prob_size = type_bytes(prob_types[p]), order[] = {1, 2, 0}, pair[] = {2, 4, 1};
        for (size_t i = 0; i < 6 * prob_size; i++)
            probs[i] = (uint8_t)(3 + 11 * i);
        for (size_t i = 0; i < 3; i++) {
            memcpy(want + i * size, x + order[i] * size, size);
            memcpy(want_probs + i * prob_size, probs + pair[i] * prob_size, prob_size);
        }
        check(&(struct example){.tokens = 3,
                                .experts = 2,
                                .hidden = 1,
                                .out_tokens = 3,
                                .rows = 3,
                                .slots = 1,
                                .type = *type,
                                .x = x,
                                .map = U8(0, 1, 1, 0, 1, 0),
                                .prob_type = prob_types[p],
                                .probs = probs,
                                .want_indices = I(2, 0, 1),
                                .want_x = want,
                                .want_probs = want_probs});
    }
}

static void first_overfull_token_is_reported(void **state)
{
    (void)state;
    struct call c;
    const int threads[] = {1, 2, 3, 8};
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        sy_fault fault;
        sy_ctx *ctx = test_ctx(threads[i], NULL);
        call_make(&c, &(struct example){.tokens = 4,
                                        .experts = 3,
                                        .hidden = 2,
                                        .out_tokens = 4,
                                        .rows = 4,
                                        .type = SY_F32,
                                        .x = x4,
                                        .map = U8(0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1)});
        expect_status(ctx, sy_moe_permute(ctx, &c.args), SY_ERR_ROUTING);
        assert_int_equal(sy_ctx_fault(ctx, &fault), SY_OK);
        assert_int_equal(fault.code, SY_FAULT_ROW_OVERFULL);
        assert_int_equal(fault.position, 1);
        assert_int_equal(fault.value, 2);
        assert_int_equal(fault.limit, 1);
        call_free(&c);
        sy_ctx_destroy(ctx);
    }
}

/* Unequal rows whose total is T*K: the vendor formula would copy wrong tokens; here one row is overfull. */
static void equal_total_with_unequal_rows_is_refused(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(2, NULL);
    call_make(&c, &(struct example){.tokens = 2,
                                    .experts = 3,
                                    .hidden = 1,
                                    .out_tokens = 4,
                                    .rows = 4,
                                    .type = SY_F32,
                                    .x = F(1, 2),
                                    .map = U8(1, 0, 0, 1, 1, 1)});
    expect_status(ctx, sy_moe_permute(ctx, &c.args), SY_ERR_ROUTING);
    call_free(&c);
    sy_ctx_destroy(ctx);
}

/* Megatron's index (row to token) follows from ours: F[sorted_indices[t*K + j]] = t, for full rows. */
static void indices_are_slot_to_row(void **state)
{
    (void)state;
    struct call c;
    sy_ctx *ctx = test_ctx(1, NULL);
    const uint8_t map[] = {1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1};
    const int32_t source[] = {0, 2, 3, 1, 2, 0, 1, 3}; /* tokens of expert 0, 1, 2 */
    call_make(&c, &(struct example){.tokens = 4,
                                    .experts = 3,
                                    .hidden = 2,
                                    .out_tokens = 8,
                                    .rows = 8,
                                    .type = SY_F32,
                                    .x = x4,
                                    .map = map});
    expect_status(ctx, sy_moe_permute(ctx, &c.args), SY_OK);
    for (int i = 0; i < 8; i++) {
        int32_t row = -1;
        memcpy(&row, c.indices.mem + 4 * i, 4);
        assert_in_range(row, 0, 7);
        assert_int_equal(source[row], i / 2);
    }
    call_free(&c);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static DLDataType sizes[] = {{kDLInt, 8, 1},  {10, 8, 1},        {kDLUInt, 16, 1}, {kDLBfloat, 16, 1},
                                 {kDLInt, 32, 1}, {kDLFloat, 32, 1}, {kDLInt, 64, 1},  {kDLFloat, 64, 1}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(w1_one_expert_each),
        cmocka_unit_test(w2_two_experts_with_probs),
        cmocka_unit_test(w3_bf16_bits_and_remainder),
        cmocka_unit_test(w4_ragged_rows),
        cmocka_unit_test(w5_capacity_overflow_and_empty_expert),
        cmocka_unit_test(w5_with_zero_pad),
        cmocka_unit_test(w6_capacity_shortage),
        cmocka_unit_test(w7_all_experts),
        cmocka_unit_test(w8_f16_three_of_four),
        cmocka_unit_test(n_zero_gives_no_rows),
        cmocka_unit_test(n_below_tokens_gives_no_rows_and_no_routing_error),
        cmocka_unit_test(n_below_experts_gives_no_rows_in_capacity_mode),
        cmocka_unit_test(n_of_all_pairs_pads_with_zero_rows),
        cmocka_unit_test(n_of_all_pairs_in_capacity_mode_holds_every_token_per_expert),
        cmocka_unit_test(one_token_one_expert),
        cmocka_unit_test(nothing_routed_gives_only_padding),
        cmocka_unit_test(no_tokens),
        cmocka_unit_test(no_tokens_in_capacity_mode),
        cmocka_unit_test(no_experts),
        cmocka_unit_test(no_experts_in_capacity_mode),
        cmocka_unit_test(no_elements_still_give_indices_and_probs),
        cmocka_unit_test(no_elements_still_refuse_an_overfull_token),
        cmocka_unit_test(empty_tensors_may_have_no_data),
        cmocka_unit_test(map_bytes_other_than_one_route),
        cmocka_unit_test(zero_pad_means_nothing_in_packed_mode),
        cmocka_unit_test(special_values_survive),
        cmocka_unit_test(first_overfull_token_is_reported),
        cmocka_unit_test(equal_total_with_unequal_rows_is_refused),
        cmocka_unit_test(indices_are_slot_to_row),
    };
    struct test_list list = {0};
    for (size_t i = 0; i < COUNT_OF(tests); i++)
        test_add(&list, tests[i].name, tests[i].test_func, NULL);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        test_add(&list, test_name("tokens_of_type_code_%d_with_%d_bits", sizes[i].code, sizes[i].bits),
                 types_by_size, &sizes[i]);
    return test_run(&list, "op_moe_permute");
}
