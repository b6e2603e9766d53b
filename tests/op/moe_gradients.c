/*
 * Encode and decode, forward and backward, as a training step writes them: locations, dispatch, combine and their
 * gradients held against finite differences of the whole in double, and against each other.
 *
 * The loss is a weighted sum of the outputs. It is linear in every argument, so a difference quotient in double is exact
 * up to rounding, whatever the step; what is compared is f32 arithmetic against double, hence tolerances of 1e-5 of the
 * sum of absolute terms.
 */
#include "support.h"

#include <math.h>

enum { K = 2, S = 23, E = 5, C = 8, H = 19 };

/* A step: choices, their slots, and the rows that go out and come back. */
struct step {
    int32_t indices[K][S], locations[K][S];
    float gates[K][S], x[S][H], z[E * C][H], dy[S][H], dd[E * C][H];
};

static sy_ctx *ctx;

static int open_context(void **state)
{
    (void)state;
    ctx = test_ctx(3, NULL);
    return 0;
}

static int close_context(void **state)
{
    (void)state;
    sy_ctx_destroy(ctx);
    return 0;
}

static void fill(uint64_t *rng, float *to, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)(2 * rng_unit(rng) - 1);
}

static DLTensor choices(void *data, DLDataType type)
{
    static int64_t shape[] = {K, S};
    return sy_tensor(data, type, 2, shape);
}

static DLTensor samples(void *data)
{
    static int64_t shape[] = {S, H};
    return sy_tensor(data, SY_F32, 2, shape);
}

static DLTensor slots(void *data)
{
    static int64_t shape[] = {E * C, H};
    return sy_tensor(data, SY_F32, 2, shape);
}

/* Two different experts per sample; the slots are few enough that some choices find no room. */
static void make(struct step *s, uint64_t seed)
{
    uint64_t rng = seed;
    int dropped = 0;
    for (int i = 0; i < S; i++) {
        s->indices[0][i] = (int32_t)rng_below(&rng, E);
        s->indices[1][i] = (int32_t)((s->indices[0][i] + 1 + rng_below(&rng, E - 1)) % E);
    }
    fill(&rng, &s->gates[0][0], K * S);
    fill(&rng, &s->x[0][0], S * H);
    fill(&rng, &s->z[0][0], E * C * H);
    fill(&rng, &s->dy[0][0], S * H);
    fill(&rng, &s->dd[0][0], E * C * H);
    const DLTensor i = choices(s->indices, SY_I32), l = choices(s->locations, SY_I32);
    const sy_moe_locations_args args = {.indices = &i, .num_experts = E, .locations = &l};
    expect_status(ctx, sy_moe_locations(ctx, &args), SY_OK);
    for (int at = 0; at < K * S; at++)
        dropped += s->locations[at / S][at % S] >= C;
    assert_true(dropped > 0);
}

static int slot_of(const struct step *s, int t, int i)
{
    return s->locations[t][i] < C ? s->indices[t][i] * C + s->locations[t][i] : -1;
}

/* ---- The losses in double ----------------------------------------------------------------------------------- */

static double gates64[K][S], x64[S][H], z64[E * C][H];

static void widen(const struct step *s)
{
    for (int i = 0; i < K * S; i++)
        gates64[i / S][i % S] = s->gates[i / S][i % S];
    for (int i = 0; i < S * H; i++)
        x64[i / H][i % H] = s->x[i / H][i % H];
    for (int i = 0; i < E * C * H; i++)
        z64[i / H][i % H] = s->z[i / H][i % H];
}

/* <dd, encode(gates, x)>: no two choices share a slot, so every valid one adds its row. */
static double encode_loss(const struct step *s)
{
    double loss = 0;
    for (int t = 0; t < K; t++)
        for (int i = 0; i < S; i++)
            for (int j = 0; slot_of(s, t, i) >= 0 && j < H; j++)
                loss += (double)s->dd[slot_of(s, t, i)][j] * gates64[t][i] * x64[i][j];
    return loss;
}

/* <dy, decode(gates, z)> */
static double decode_loss(const struct step *s)
{
    double loss = 0;
    for (int t = 0; t < K; t++)
        for (int i = 0; i < S; i++)
            for (int j = 0; slot_of(s, t, i) >= 0 && j < H; j++)
                loss += (double)s->dy[i][j] * gates64[t][i] * z64[slot_of(s, t, i)][j];
    return loss;
}

enum loss { ENCODE, DECODE };

static double loss_of(const struct step *s, enum loss which)
{
    return which == ENCODE ? encode_loss(s) : decode_loss(s);
}

/* Central difference with a step of 1/2. */
static double slope(const struct step *s, enum loss which, double *at)
{
    const double old = *at;
    *at = old + 0.5;
    const double up = loss_of(s, which);
    *at = old - 0.5;
    const double down = loss_of(s, which);
    *at = old;
    return up - down;
}

static void expect_slopes(const struct step *s, enum loss which, double *arguments, const float *got, int n,
                          const char *what)
{
    int large = 0;
    for (int i = 0; i < n; i++) {
        const double want = slope(s, which, &arguments[i]);
        if (!(fabs((double)got[i] - want) <= 1e-5 * H))
            fail_msg("%s %d is %.9g, the difference quotient %.9g", what, i, (double)got[i], want);
        large += fabs(want) > 0.1;
    }
    assert_true(large > n / 4); /* a gradient of nothing would prove nothing */
}

/* ---- Encode ------------------------------------------------------------------------------------------------- */

static void encode_backward(void **state)
{
    (void)state;
    static struct step s;
    static float dx[S][H], dg[K][S];
    make(&s, 1);
    widen(&s);
    const DLTensor g = choices(s.gates, SY_F32), i = choices(s.indices, SY_I32),
                   l = choices(s.locations, SY_I32), d = slots(s.dd), x = samples(s.x), dxt = samples(dx),
                   dgt = choices(dg, SY_F32);
    const sy_moe_combine_args data = {.gates = &g,
                                      .indices = &i,
                                      .locations = &l,
                                      .expert_out = &d,
                                      .num_experts = E,
                                      .capacity = C,
                                      .output = &dxt};
    expect_status(ctx, sy_moe_dispatch_grad_data(ctx, &data), SY_OK);
    const sy_moe_dispatch_grad_gate_args gate = {.indices = &i,
                                                 .locations = &l,
                                                 .input = &x,
                                                 .dispatch = &d,
                                                 .num_experts = E,
                                                 .capacity = C,
                                                 .grad_gates = &dgt};
    expect_status(ctx, sy_moe_dispatch_grad_gate(ctx, &gate), SY_OK);
    expect_slopes(&s, ENCODE, &x64[0][0], &dx[0][0], S * H, "dx");
    expect_slopes(&s, ENCODE, &gates64[0][0], &dg[0][0], K * S, "dg");
}

/* ---- Decode ------------------------------------------------------------------------------------------------- */

static void dispatch_choice(struct step *s, int t, const DLTensor *rows, const DLTensor *buffer)
{
    int64_t shape[] = {S};
    const DLTensor g = sy_tensor(s->gates[t], SY_F32, 1, shape),
                   i = sy_tensor(s->indices[t], SY_I32, 1, shape),
                   l = sy_tensor(s->locations[t], SY_I32, 1, shape);
    const sy_moe_dispatch_args args = {.gates = &g,
                                       .indices = &i,
                                       .locations = &l,
                                       .input = rows,
                                       .num_experts = E,
                                       .capacity = C,
                                       .unique_slots = true,
                                       .dispatch = buffer};
    expect_status(ctx, sy_moe_dispatch(ctx, &args), SY_OK);
}

static void decode_backward(void **state)
{
    (void)state;
    static struct step s;
    static float dz[E * C][H], dg[K][S];
    make(&s, 2);
    widen(&s);
    const DLTensor i = choices(s.indices, SY_I32), l = choices(s.locations, SY_I32), dy = samples(s.dy),
                   z = slots(s.z), dzt = slots(dz), dgt = choices(dg, SY_F32);
    memset(dz, 0, sizeof dz);
    for (int t = 0; t < K; t++)
        dispatch_choice(&s, t, &dy, &dzt);
    const sy_moe_dispatch_grad_gate_args gate = {.indices = &i,
                                                 .locations = &l,
                                                 .input = &dy,
                                                 .dispatch = &z,
                                                 .num_experts = E,
                                                 .capacity = C,
                                                 .grad_gates = &dgt};
    expect_status(ctx, sy_moe_dispatch_grad_gate(ctx, &gate), SY_OK);
    expect_slopes(&s, DECODE, &z64[0][0], &dz[0][0], E * C * H, "dz");
    expect_slopes(&s, DECODE, &gates64[0][0], &dg[0][0], K * S, "dg");
}

/* ---- Forward against its transpose -------------------------------------------------------------------------- */

/* <encode(x), dd> = <x, encode backward(dd)>, and both are the loss. */
static void encode_and_its_gradient_are_transposed(void **state)
{
    (void)state;
    static struct step s;
    static float buffer[E * C][H], dx[S][H];
    double there = 0, back = 0;
    make(&s, 3);
    widen(&s);
    const DLTensor x = samples(s.x), b = slots(buffer), g = choices(s.gates, SY_F32),
                   i = choices(s.indices, SY_I32), l = choices(s.locations, SY_I32), d = slots(s.dd),
                   dxt = samples(dx);
    memset(buffer, 0, sizeof buffer);
    for (int t = 0; t < K; t++)
        dispatch_choice(&s, t, &x, &b);
    const sy_moe_combine_args data = {.gates = &g,
                                      .indices = &i,
                                      .locations = &l,
                                      .expert_out = &d,
                                      .num_experts = E,
                                      .capacity = C,
                                      .output = &dxt};
    expect_status(ctx, sy_moe_combine(ctx, &data), SY_OK);
    for (int at = 0; at < E * C * H; at++)
        there += (double)buffer[at / H][at % H] * (double)s.dd[at / H][at % H];
    for (int at = 0; at < S * H; at++)
        back += (double)dx[at / H][at % H] * (double)s.x[at / H][at % H];
    assert_true(fabs(there - back) <= 1e-5 * S && fabs(there - encode_loss(&s)) <= 1e-5 * S);
    assert_true(fabs(there) > 0.1);
}

/* With room for all, every row that went out comes back: once for each choice, times its gate. */
static void there_and_back(void **state)
{
    (void)state;
    enum { ROOM = 2 * S };
    static struct step s;
    static float buffer[E * ROOM][H], y[S][H];
    int64_t shape[] = {S}, wide[] = {E * ROOM, H};
    make(&s, 4);
    const DLTensor x = samples(s.x), b = sy_tensor(buffer, SY_F32, 2, wide), i = choices(s.indices, SY_I32),
                   l = choices(s.locations, SY_I32), yt = samples(y), g = choices(s.gates, SY_F32);
    memset(buffer, 0xff, sizeof buffer);
    for (int t = 0; t < K; t++) {
        const DLTensor it = sy_tensor(s.indices[t], SY_I32, 1, shape),
                       lt = sy_tensor(s.locations[t], SY_I32, 1, shape);
        const sy_moe_dispatch_args args = {.indices = &it,
                                           .locations = &lt,
                                           .input = &x,
                                           .num_experts = E,
                                           .capacity = ROOM,
                                           .dispatch = &b};
        expect_status(ctx, sy_moe_dispatch(ctx, &args), SY_OK);
        for (int at = 0; at < S; at++)
            s.gates[t][at] = t == 0 ? 0.25f : 0.75f;
    }
    const sy_moe_combine_args args = {.gates = &g,
                                      .indices = &i,
                                      .locations = &l,
                                      .expert_out = &b,
                                      .num_experts = E,
                                      .capacity = ROOM,
                                      .output = &yt};
    expect_status(ctx, sy_moe_combine(ctx, &args), SY_OK);
    for (int at = 0; at < S * H; at++) {
        const float part = 0.75f * s.x[at / H][at % H];
        assert_true(y[at / H][at % H] == 0.25f * s.x[at / H][at % H] + part);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encode_backward),
        cmocka_unit_test(decode_backward),
        cmocka_unit_test(encode_and_its_gradient_are_transposed),
        cmocka_unit_test(there_and_back),
    };
    return cmocka_run_group_tests_name("op_moe_gradients", tests, open_context, close_context);
}
