/*
 * moe_route: the worked examples of its page, then one test per rule: canonical logits, ties, bias, groups, slots,
 * weights, types, finished tokens, capacity, empty shapes.
 */
#include "support.h"

#include <float.h>
#include <math.h>

enum { MOST = 64 };

/* One call on dense f32 logits with every output in its plainest type. */
struct route {
    int64_t tokens, experts;
    const float *logits, *bias;
    const uint8_t *finished;
    sy_moe_route_args args; /* fields; tensors are filled by `run` */
    int32_t ids[MOST];
    float weights[MOST], probs[MOST], scores[MOST];
    uint8_t map[MOST];
    int64_t counts[MOST];
};

static void run(struct route *r)
{
    struct tensor x = {0}, b = {0}, f = {0}, out[6];
    const int64_t slots[] = {r->tokens, r->args.k}, cells[] = {r->tokens, r->experts};
    void *const to[] = {r->ids, r->weights, r->map, r->probs, r->counts, r->scores};
    const DLTensor **fields[] = {&r->args.ids,   &r->args.weights, &r->args.routing_map,
                                 &r->args.probs, &r->args.counts,  &r->args.scores};
    const DLDataType types[] = {SY_I32, SY_F32, SY_BOOL, SY_F32, SY_I64, SY_F32};
    sy_query query;
    sy_ctx *ctx = test_ctx(2, NULL);
    tensor_make(&x, SY_F32, 2, cells, NULL);
    tensor_put(&x, r->logits);
    r->args.logits = &x.t;
    if (r->bias) {
        tensor_make(&b, SY_F32, 1, &r->experts, NULL);
        tensor_put(&b, r->bias);
        r->args.bias = &b.t;
    }
    if (r->finished) {
        tensor_make(&f, SY_BOOL, 1, &r->tokens, NULL);
        tensor_put(&f, r->finished);
        r->args.finished = &f.t;
    }
    expect_status(ctx, sy_moe_route_query(ctx, &r->args, &query), SY_OK);
    assert_int_equal(query.rows, r->tokens);
    for (int i = 0; i < 6; i++) {
        if (i == 4)
            tensor_make(&out[i], types[i], 1, &r->experts, NULL);
        else
            tensor_make(&out[i], types[i], 2, i < 2 ? slots : cells, NULL);
        *fields[i] = &out[i].t;
    }
    expect_status(ctx, sy_moe_route(ctx, &r->args), SY_OK);
    for (int i = 0; i < 6; i++) {
        memcpy(to[i], out[i].mem, out[i].bytes);
        tensor_free(&out[i]);
    }
    tensor_free(&x);
    tensor_free(&b);
    tensor_free(&f);
    sy_ctx_destroy(ctx);
}

#define F(...) ((const float[]){__VA_ARGS__})
#define U8(...) ((const uint8_t[]){__VA_ARGS__})
#define expect_ids(r, ...) \
    expect_bytes((r).ids, ((const int32_t[]){__VA_ARGS__}), sizeof((const int32_t[]){__VA_ARGS__}))
#define expect_map(r, ...) expect_bytes((r).map, U8(__VA_ARGS__), sizeof U8(__VA_ARGS__))
#define expect_counts(r, ...) \
    expect_bytes((r).counts, ((const int64_t[]){__VA_ARGS__}), sizeof((const int64_t[]){__VA_ARGS__}))
#define expect_weights(r, ...) expect_bytes((r).weights, F(__VA_ARGS__), sizeof F(__VA_ARGS__))
#define expect_probs(r, ...) expect_bytes((r).probs, F(__VA_ARGS__), sizeof F(__VA_ARGS__))
#define expect_scores(r, ...) expect_bytes((r).scores, F(__VA_ARGS__), sizeof F(__VA_ARGS__))

/* ---- Worked examples ----------------------------------------------------------------------------------------- */

static void softmax_of_four(void **state)
{
    (void)state;
    struct route r = {.tokens = 1, .experts = 4, .logits = F(2, 1, 0, -1), .args = {.k = 2}};
    run(&r);
    expect_ids(r, 0, 1);
    expect_scores(r, .643914282f, .236882821f, .0871443152f, .0320586003f);
    expect_weights(r, .643914282f, .236882821f);
    expect_probs(r, .643914282f, .236882821f, 0, 0);
    expect_map(r, 1, 1, 0, 0);
    expect_counts(r, 1, 1, 0, 0);
    r.args.renormalize = true;
    run(&r);
    expect_weights(r, .731058598f, .268941432f);
}

static void ties_go_to_the_lower_expert(void **state)
{
    (void)state;
    struct route r = {.tokens = 1, .experts = 4, .logits = F(1, 1, 1, 1), .args = {.k = 2}};
    run(&r);
    expect_ids(r, 0, 1);
    expect_weights(r, .25f, .25f);
}

static void bias_decides_and_does_not_weigh(void **state)
{
    (void)state;
    struct route r = {.tokens = 1,
                      .experts = 3,
                      .logits = F(0, 0, 0),
                      .bias = F(0, .1f, 0),
                      .args = {.k = 1, .score = SY_SCORE_SIGMOID}};
    run(&r);
    expect_ids(r, 1);
    expect_weights(r, .5f);
    expect_scores(r, .5f, .5f, .5f);
}

static void groups_by_best_or_by_two(void **state)
{
    (void)state;
    struct route r = {.tokens = 1,
                      .experts = 6,
                      .logits = F(5, 1, 4, 4, 3, 3),
                      .args = {.k = 2, .score = SY_SCORE_NONE, .groups = 3, .top_groups = 1}};
    run(&r);
    expect_ids(r, 0, 1);
    r.args.group_score = SY_GROUP_SUM2;
    run(&r);
    expect_ids(r, 2, 3);
    expect_weights(r, 4, 4);
}

static void capacity_by_prob_and_by_position(void **state)
{
    (void)state;
    struct route r = {.tokens = 4,
                      .experts = 3,
                      .logits = F(1, 0, -9, 3, 0, -9, 2, 0, -9, 3, 0, -9),
                      .args = {.k = 1, .score = SY_SCORE_NONE, .capacity = 2}};
    run(&r); /* weights 1, 3, 2, 3 for expert 0 */
    expect_map(r, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0);
    expect_probs(r, 0, 0, 0, 3, 0, 0, 0, 0, 0, 3, 0, 0);
    expect_ids(r, 0, 0, 0, 0);
    expect_weights(r, 1, 3, 2, 3);
    expect_counts(r, 4, 0, 0);
    r.args.drop = SY_DROP_POSITION;
    run(&r);
    expect_map(r, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0);
    expect_probs(r, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0);
    expect_weights(r, 1, 3, 2, 3);
}

/* ---- Rules --------------------------------------------------------------------------------------------------- */

static void logits_are_made_canonical(void **state)
{
    (void)state;
    const float x[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f, -NAN, 1, FLT_MAX};
    struct route r = {.tokens = 1, .experts = 8, .logits = x, .args = {.k = 8, .score = SY_SCORE_NONE}};
    run(&r);
    expect_ids(r, 1, 7, 6, 3, 4, 0, 2, 5);
    expect_scores(r, -INFINITY, FLT_MAX, -INFINITY, 0, 0, -INFINITY, 1, FLT_MAX);
    expect_weights(r, FLT_MAX, FLT_MAX, 1, 0, 0, 0, 0, 0);
}

/* Weights of 2^-40: logits further than 28 below the largest have none, and then the lower expert wins. */
static void scores_tie_where_logits_do_not(void **state)
{
    (void)state;
    struct route r = {.tokens = 1, .experts = 4, .logits = F(0, -60, -50, -40), .args = {.k = 2}};
    run(&r);
    expect_ids(r, 0, 1);
    expect_weights(r, 1, 0);
    r.args.score = SY_SCORE_NONE;
    run(&r);
    expect_ids(r, 0, 3);
    struct route s = {
        .tokens = 1, .experts = 3, .logits = F(20, 30, 40), .args = {.k = 1, .score = SY_SCORE_SIGMOID}};
    run(&s);
    expect_ids(s, 0);
    expect_weights(s, 1);
}

/* Winners whose scores are equal after rounding stand by number, though the later logit is larger. */
static void equal_scores_stand_by_number(void **state)
{
    (void)state;
    const float x[] = {3, 0.1f, nextafterf(0.1f, 1), -3};
    struct route r = {.tokens = 1, .experts = 4, .logits = x, .args = {.k = 3}};
    run(&r);
    assert_true(r.scores[1] == r.scores[2]);
    expect_ids(r, 0, 1, 2);
    sy_ctx *ctx = test_ctx(1, NULL);
    r.args.scores = r.args.probs = r.args.routing_map = r.args.counts = NULL; /* the short way */
    DLTensor logits = sy_tensor((void *)(uintptr_t)x, SY_F32, 2, (int64_t[]){1, 4}),
             ids = sy_tensor(r.ids, SY_I32, 2, (int64_t[]){1, 3}),
             weights = sy_tensor(r.weights, SY_F32, 2, (int64_t[]){1, 3});
    memset(r.ids, 0, sizeof r.ids);
    r.args.logits = &logits;
    r.args.ids = &ids;
    r.args.weights = &weights;
    expect_status(ctx, sy_moe_route(ctx, &r.args), SY_OK);
    expect_ids(r, 0, 1, 2);
    sy_ctx_destroy(ctx);
}

static void sigmoid_values(void **state)
{
    (void)state;
    const float x[] = {0, INFINITY, -INFINITY, NAN, 100, -100};
    struct route r = {.tokens = 1, .experts = 6, .logits = x, .args = {.k = 1, .score = SY_SCORE_SIGMOID}};
    run(&r);
    expect_scores(r, .5f, 1, 0, 0, 1, 0);
    expect_ids(r, 1);
}

static void empty_rows_still_choose(void **state)
{
    (void)state;
    const float x[] = {-INFINITY, NAN, -INFINITY};
    static const sy_route_score all[] = {SY_SCORE_SOFTMAX, SY_SCORE_SIGMOID, SY_SCORE_NONE};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        for (int after = 0; after < 2; after++) {
            struct route r = {.tokens = 1,
                              .experts = 3,
                              .logits = x,
                              .args = {.k = 2, .score = all[i], .softmax_after = after, .renormalize = true}};
            run(&r);
            expect_ids(r, 0, 1);
            expect_weights(r, 0, 0);
            expect_map(r, 1, 1, 0);
        }
}

static void bias_that_is_no_number(void **state)
{
    (void)state;
    const float bias[] = {NAN, INFINITY, -INFINITY, 0};
    struct route r = {.tokens = 1,
                      .experts = 4,
                      .logits = F(9, 1, 9, 2),
                      .bias = bias,
                      .args = {.k = 4, .score = SY_SCORE_NONE}};
    run(&r);
    expect_ids(r, 1, 3, 0, 2);
    expect_weights(r, 1, 2, 9, 9);
}

static void softmax_after_selection(void **state)
{
    (void)state;
    struct route r = {.tokens = 1,
                      .experts = 4,
                      .logits = F(2, 7, 1, -1),
                      .bias = F(0, -9, 0, 0),
                      .args = {.k = 2, .score = SY_SCORE_NONE, .softmax_after = true}};
    run(&r); /* softmax of 2 and 1 */
    expect_ids(r, 0, 2);
    expect_weights(r, .731058598f, .268941432f);
    expect_scores(r, 2, 7, 1, -1);
}

static void expert_order_keeps_pairs_together(void **state)
{
    (void)state;
    struct route r = {.tokens = 1,
                      .experts = 4,
                      .logits = F(1, 4, 2, 3),
                      .args = {.k = 3, .score = SY_SCORE_NONE, .slot_order = SY_SLOT_EXPERT}};
    run(&r);
    expect_ids(r, 1, 2, 3);
    expect_weights(r, 4, 2, 3);
}

/* The sum runs from the best down in either order of slots: 2^24 + 1 + 1 is 2^24, 1 + 1 + 2^24 is not. */
static void sums_run_by_descending_value(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        struct route r = {
            .tokens = 1,
            .experts = 3,
            .logits = F(1, 1, 0x1p24f),
            .args = {
                .k = 3, .score = SY_SCORE_NONE, .renormalize = true, .slot_order = (sy_slot_order)order}};
        run(&r);
        assert_true(r.probs[2] == 1.0f);
        assert_true(r.probs[0] == 0x1p-24f);
    }
}

static void eps_and_scale(void **state)
{
    (void)state;
    struct route r = {.tokens = 1,
                      .experts = 2,
                      .logits = F(1, 3),
                      .args = {.k = 2, .score = SY_SCORE_NONE, .renormalize = true, .eps = 4, .scale = -2}};
    run(&r);
    expect_weights(r, -.75f, -.25f);
    struct route zero = {.tokens = 1,
                         .experts = 2,
                         .logits = F(1, -1),
                         .args = {.k = 2, .score = SY_SCORE_NONE, .renormalize = true, .scale = -2}};
    run(&zero); /* a sum of 0 divides nothing */
    expect_weights(zero, -0.0f, -0.0f);
    struct route alone = {.tokens = 1,
                          .experts = 2,
                          .logits = F(1, 3),
                          .args = {.k = 1, .score = SY_SCORE_NONE, .renormalize = true}};
    run(&alone);
    expect_weights(alone, 1);
}

static void groups_tie_to_the_lower_and_may_be_single(void **state)
{
    (void)state;
    struct route r = {.tokens = 1,
                      .experts = 4,
                      .logits = F(1, 2, 2, 1),
                      .args = {.k = 2, .score = SY_SCORE_NONE, .groups = 2, .top_groups = 1}};
    for (int sum2 = 0; sum2 < 2; sum2++) {
        r.args.group_score = (sy_group_score)sum2;
        run(&r);
        expect_ids(r, 1, 0);
    }
    r.args.groups = 4; /* one expert each: its value is the group's, whatever is asked */
    r.args.top_groups = 2;
    run(&r);
    expect_ids(r, 1, 2);
}

/* Two numbers of one group may add up to infinity, which is more than the largest number of another. */
static void a_group_sum_may_overflow(void **state)
{
    (void)state;
    struct route r = {
        .tokens = 1,
        .experts = 4,
        .logits = F(FLT_MAX, 0, 3e38f, 3e38f),
        .args = {.k = 2, .score = SY_SCORE_NONE, .groups = 2, .top_groups = 1, .group_score = SY_GROUP_SUM2}};
    run(&r);
    expect_ids(r, 2, 3);
}

/* An expert of a losing group is out, even for -inf of a winning one. */
static void losing_groups_are_out(void **state)
{
    (void)state;
    const float x[] = {9, -INFINITY, 8, 8};
    struct route r = {.tokens = 1,
                      .experts = 4,
                      .logits = x,
                      .args = {.k = 2, .score = SY_SCORE_NONE, .groups = 2, .top_groups = 1}};
    run(&r);
    expect_ids(r, 0, 1);
    expect_weights(r, 9, 0);
}

static void finished_tokens_choose_nothing(void **state)
{
    (void)state;
    struct route r = {.tokens = 3,
                      .experts = 3,
                      .logits = F(3, 2, 1, 3, 2, 1, 1, 2, 3),
                      .finished = U8(0, 1, 0),
                      .args = {.k = 2, .score = SY_SCORE_NONE, .capacity = 2}};
    run(&r);
    expect_ids(r, 0, 1, 3, 3, 2, 1);
    expect_weights(r, 3, 2, 0, 0, 3, 2);
    expect_map(r, 1, 1, 0, 0, 0, 0, 0, 1, 1);
    expect_counts(r, 1, 2, 1);
    expect_scores(r, 3, 2, 1, 3, 2, 1, 1, 2, 3);
}

/* -0 and +0 weigh the same, so the lower token stays; a capacity of all tokens drops nothing. */
static void equal_weights_drop_the_later_token(void **state)
{
    (void)state;
    struct route r = {.tokens = 3,
                      .experts = 1,
                      .logits = F(-1, 0, 0),
                      .args = {.k = 1, .score = SY_SCORE_NONE, .scale = -1, .capacity = 2}};
    run(&r);
    expect_weights(r, 1, -0.0f, -0.0f);
    expect_map(r, 1, 1, 0);
    r.args.capacity = 3;
    run(&r);
    expect_map(r, 1, 1, 1);
}

static void no_tokens_clear_counts(void **state)
{
    (void)state;
    struct route r = {.tokens = 0, .experts = 4, .logits = F(0), .args = {.k = 2, .capacity = 1}};
    run(&r);
    expect_counts(r, 0, 0, 0, 0);
}

/* One rounding from f32 to the output: every weight of a sigmoid, in both 16-bit types. */
static void outputs_round_once(void **state)
{
    (void)state;
    enum { N = 4096 };
    static float x[N];
    static uint16_t f16[N], bf16[N];
    static float f32[N];
    for (int i = 0; i < N; i++)
        x[i] = ((float)i - 2048) / 97;
    sy_ctx *ctx = test_ctx(2, NULL);
    DLTensor logits = sy_tensor(x, SY_F32, 2, (int64_t[]){N, 1}),
             out[] = {sy_tensor(f32, SY_F32, 2, (int64_t[]){N, 1}),
                      sy_tensor(f16, SY_F16, 2, (int64_t[]){N, 1}),
                      sy_tensor(bf16, SY_BF16, 2, (int64_t[]){N, 1})};
    sy_moe_route_args args = {.logits = &logits, .k = 1, .score = SY_SCORE_SIGMOID, .weights = &out[0]};
    for (int i = 0; i < 3; i++) {
        args.weights = &out[i];
        args.probs = i == 0 ? NULL : &out[3 - i]; /* its own type, beside the other */
        expect_status(ctx, sy_moe_route(ctx, &args), SY_OK);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(f16[i], f16_round((double)f32[i]));
        assert_int_equal(bf16[i], bf16_round((double)f32[i]));
    }
    sy_ctx_destroy(ctx);
}

/* The shape of DeepSeek-V3, as a property: the k best of the four best groups, weights that sum to the scale. */
static void grouped_gating_of_256_experts(void **state)
{
    (void)state;
    enum { T = 50, E = 256, K = 8 };
    static float x[T][E], bias[E], w[T][K], s[T][E];
    static int32_t ids[T][K];
    uint64_t rng = 4;
    for (int i = 0; i < T * E; i++)
        x[i / E][i % E] = (float)(6 * rng_unit(&rng) - 3);
    for (int e = 0; e < E; e++)
        bias[e] = (float)(rng_unit(&rng) / 10);
    sy_ctx *ctx = test_ctx(2, NULL);
    DLTensor lx = sy_tensor(x, SY_F32, 2, (int64_t[]){T, E}), lb = sy_tensor(bias, SY_F32, 1, (int64_t[]){E}),
             li = sy_tensor(ids, SY_I32, 2, (int64_t[]){T, K}),
             lw = sy_tensor(w, SY_F32, 2, (int64_t[]){T, K}), ls = sy_tensor(s, SY_F32, 2, (int64_t[]){T, E});
    const sy_moe_route_args args = {.logits = &lx,
                                    .bias = &lb,
                                    .k = K,
                                    .score = SY_SCORE_SIGMOID,
                                    .groups = 8,
                                    .top_groups = 4,
                                    .group_score = SY_GROUP_SUM2,
                                    .renormalize = true,
                                    .eps = 1e-20f,
                                    .scale = 2.5f,
                                    .ids = &li,
                                    .weights = &lw,
                                    .scores = &ls};
    expect_status(ctx, sy_moe_route(ctx, &args), SY_OK);
    for (int t = 0; t < T; t++) {
        double sum = 0;
        bool group[8] = {false};
        int groups = 0;
        for (int j = 0; j < K; j++) {
            sum += (double)w[t][j];
            groups += !group[ids[t][j] / 32];
            group[ids[t][j] / 32] = true;
        }
        assert_true(groups <= 4);
        assert_true(fabs(sum - 2.5) < 1e-5);
        for (int j = 1; j < K; j++)
            assert_true(s[t][ids[t][j]] + bias[ids[t][j]] <= s[t][ids[t][j - 1]] + bias[ids[t][j - 1]]);
    }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_of_four),
        cmocka_unit_test(ties_go_to_the_lower_expert),
        cmocka_unit_test(bias_decides_and_does_not_weigh),
        cmocka_unit_test(groups_by_best_or_by_two),
        cmocka_unit_test(capacity_by_prob_and_by_position),
        cmocka_unit_test(logits_are_made_canonical),
        cmocka_unit_test(scores_tie_where_logits_do_not),
        cmocka_unit_test(equal_scores_stand_by_number),
        cmocka_unit_test(sigmoid_values),
        cmocka_unit_test(empty_rows_still_choose),
        cmocka_unit_test(bias_that_is_no_number),
        cmocka_unit_test(softmax_after_selection),
        cmocka_unit_test(expert_order_keeps_pairs_together),
        cmocka_unit_test(sums_run_by_descending_value),
        cmocka_unit_test(eps_and_scale),
        cmocka_unit_test(groups_tie_to_the_lower_and_may_be_single),
        cmocka_unit_test(a_group_sum_may_overflow),
        cmocka_unit_test(losing_groups_are_out),
        cmocka_unit_test(finished_tokens_choose_nothing),
        cmocka_unit_test(equal_weights_drop_the_later_token),
        cmocka_unit_test(no_tokens_clear_counts),
        cmocka_unit_test(outputs_round_once),
        cmocka_unit_test(grouped_gating_of_256_experts),
    };
    return cmocka_run_group_tests_name("op_moe_route", tests, NULL, NULL);
}
