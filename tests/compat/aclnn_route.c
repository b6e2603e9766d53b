/* From logits to the rows of experts through the aclnn layer: gating and init-routing, by hand, and the rejections. */
#include "aclnn.h"

#include "aclnnop/aclnn_moe_compute_expert_tokens.h"
#include "aclnnop/aclnn_moe_finalize_routing_v2.h"
#include "aclnnop/aclnn_moe_gating_top_k.h"
#include "aclnnop/aclnn_moe_gating_top_k_softmax_v2.h"
#include "aclnnop/aclnn_moe_init_routing_v2.h"

enum { LOGITS, BESIDE, WEIGHTS, IDS, SCORES, N_GATING };
enum { X, EXPERTS, EXPANDED, ROWS, COUNTS, BEFORE, N_INIT };

/* What the calls take besides tensors. */
static struct {
    int64_t k, k_group, groups, select, renorm, norm;
    double scale, eps;
    bool all;
} gate;
static struct {
    int64_t active, capacity, experts, drop_pad, flag;
    bool before;
} init;

static aclnnStatus ask_gating(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeGatingTopKGetWorkspaceSize(a[LOGITS].tensor, a[BESIDE].tensor, gate.k, gate.k_group,
                                              gate.groups, gate.select, gate.renorm, gate.norm, gate.all,
                                              gate.scale, gate.eps, a[WEIGHTS].tensor, a[IDS].tensor,
                                              a[SCORES].tensor, size, e);
}

static aclnnStatus ask_softmax(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize(a[LOGITS].tensor, a[BESIDE].tensor, gate.k,
                                                       gate.renorm, gate.all, a[WEIGHTS].tensor,
                                                       a[IDS].tensor, a[SCORES].tensor, size, e);
}

static aclnnStatus ask_init(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeInitRoutingV2GetWorkspaceSize(
        a[X].tensor, a[EXPERTS].tensor, init.active, init.capacity, init.experts, init.drop_pad, init.flag,
        init.before, a[EXPANDED].tensor, a[ROWS].tensor, a[COUNTS].tensor, a[BEFORE].tensor, size, e);
}

/* ---- Gating ------------------------------------------------------------------------------------------ */

static const float logits[2][4], bias[4] = {.1f, .3f, .2f, .4f}; /* all scores are equal */
static const uint16_t half_bias[4] = {0x2e66, 0x34cd, 0x3266, 0x3666};

static struct call gating(bool sigmoid)
{
    struct call c = {.op = "aclnnMoeGatingTopK",
                     .count = N_GATING,
                     .first_output = WEIGHTS,
                     .ask = ask_gating,
                     .execute = aclnnMoeGatingTopK};
    gate.k = 2;
    gate.k_group = gate.groups = 1;
    gate.select = gate.renorm = 0;
    gate.norm = sigmoid;
    gate.scale = 2;
    gate.eps = 0;
    gate.all = true;
    c.args[LOGITS] = (struct arg)ARG2(ACL_FLOAT, 2, 4, logits);
    c.args[BESIDE] = (struct arg)ARG1(ACL_FLOAT, 4, bias);
    c.args[WEIGHTS] = (struct arg)ARG2(ACL_FLOAT, 2, 2, NULL);
    c.args[IDS] = (struct arg)ARG2(ACL_INT32, 2, 2, NULL);
    c.args[SCORES] = (struct arg)ARG2(ACL_FLOAT, 2, 4, NULL);
    return c;
}

static void gates(void **state)
{
    (void)state;
    const int32_t chosen[4] = {3, 1, 3, 1}, in_group[4] = {3, 2, 3, 2}, first[4] = {0, 1, 0, 1};
    const float quarters[8] = {.25f, .25f, .25f, .25f, .25f, .25f, .25f, .25f},
                halves[8] = {.5f, .5f, .5f, .5f, .5f, .5f, .5f, .5f};
    struct call c = gating(false);
    call_expect(&c, halves, chosen, quarters); /* 0.25 times the factor */
    c = gating(true);
    call_expect(&c, ((float[]){1, 1, 1, 1}), chosen, halves); /* divided by their sum, times the factor */
    c = gating(false);
    gate.groups = 2;
    gate.select = 1;
    c.args[BESIDE] = (struct arg)ARG1(ACL_FLOAT16, 4, half_bias);
    call_expect(&c, halves, in_group, quarters);
    for (int i = 0; i < 2;
         i++) { /* no bias, and nothing but the choice; the factor is 0, or as a float it is */
        c = gating(false);
        gate.scale = i ? 1e-60 : 0;
        gate.all = false;
        c.args[BESIDE] = c.args[SCORES] = (struct arg)NO_ARG;
        call_expect(&c, ((float[4]){0}), first, NULL);
    }
}

static struct call softmax(void)
{
    struct call c = gating(false);
    c.op = "aclnnMoeGatingTopKSoftmaxV2";
    c.ask = ask_softmax;
    c.execute = aclnnMoeGatingTopKSoftmaxV2;
    c.args[BESIDE] = (struct arg)ARG1(ACL_BOOL, 2, ((const uint8_t *)"\0\1"));
    return c;
}

static void gates_by_softmax(void **state)
{
    (void)state;
    const float quarters[8] = {.25f, .25f, .25f, .25f, .25f, .25f, .25f, .25f};
    struct call c = softmax();
    call_expect(&c, quarters, ((int32_t[]){0, 1, 4, 4}), quarters); /* the second row is finished */
    c = softmax();
    gate.renorm = 1; /* the softmax of two; scores are not written */
    c.args[BESIDE] = (struct arg)NO_ARG;
    call_expect(&c, ((float[]){.5f, .5f, .5f, .5f}), ((int32_t[]){0, 1, 0, 1}), NULL);
}

/* ---- Init-routing ------------------------------------------------------------------------------------ */

static const float x[3][2] = {{10, 11}, {20, 21}, {30, 31}};
static const int32_t experts[3][2] = {{1, 0}, {1, 2}, {1, 0}};

static struct call routing(bool padded)
{
    struct call c = {.op = "aclnnMoeInitRoutingV2",
                     .count = N_INIT,
                     .first_output = EXPANDED,
                     .ask = ask_init,
                     .execute = aclnnMoeInitRoutingV2};
    init.active = 0;
    init.capacity = padded ? 2 : 0;
    init.experts = 4;
    init.drop_pad = padded;
    init.flag = 2;
    init.before = true;
    c.args[X] = (struct arg)ARG2(ACL_FLOAT, 3, 2, x);
    c.args[EXPERTS] = (struct arg)ARG2(ACL_INT32, 3, 2, experts);
    c.args[EXPANDED] =
        padded ? (struct arg)ARG3(ACL_FLOAT, 4, 2, 2, NULL) : (struct arg)ARG2(ACL_FLOAT, 6, 2, NULL);
    c.args[ROWS] = (struct arg)ARG1(ACL_INT32, 6, NULL);
    if (padded)
        c.args[BEFORE] = (struct arg)ARG1(ACL_INT32, 4, NULL);
    else
        c.args[COUNTS] = (struct arg)ARG1(ACL_INT32, 4, NULL);
    return c;
}

static void routes(void **state)
{
    (void)state;
    const float rows[6][2] = {{10, 11}, {30, 31}, {10, 11}, {20, 21}, {30, 31}, {20, 21}};
    const int32_t at[6] = {2, 0, 3, 5, 4, 1};
    struct call c = routing(false);
    call_expect(&c, rows, at, ((int32_t[]){2, 3, 1, 0}), NULL);
    c = routing(false);
    init.flag = 1;
    init.active = 4;
    c.args[EXPANDED].dims[0] = 4;
    call_expect(&c, rows, at, ((int32_t[]){2, 5, 6, 6}), NULL);
    c = routing(false); /* experts of any number, no counts */
    const int32_t any[3][2] = {{7, -1}, {7, 90}, {7, -1}};
    init.flag = init.experts = 0;
    c.args[EXPERTS].data = any;
    c.args[COUNTS] = (struct arg)NO_ARG;
    call_expect(&c, rows, at, NULL, NULL);
    c = routing(true);
    const float places[8][2] = {{10, 11}, {30, 31}, {10, 11}, {20, 21}, {20, 21}, {0, 0}, {0, 0}, {0, 0}};
    call_expect(&c, places, ((int32_t[]){2, 0, 3, 4, -1, 1}), NULL, ((int32_t[]){2, 3, 1, 0}));
    c = routing(true); /* rows of no elements, for the places alone */
    c.args[X].dims[1] = c.args[EXPANDED].dims[2] = 0;
    c.args[X].no_data = c.args[EXPANDED].no_data = true;
    call_expect(&c, NULL, ((int32_t[]){2, 0, 3, 4, -1, 1}), NULL, ((int32_t[]){2, 3, 1, 0}));
}

/* ---- Finalize ---------------------------------------------------------------------------------------- */

enum { EXPERT_ROWS, PLACES, X1, X2, BIAS, SCALES, CHOSEN, OUT, N_FINALIZE };
enum { T = 4, K = 3, H = 5, E = 3, C = 5 };

static float expert_rows[E * C * H], x1[T * H], x2[T * H], expert_bias[E * H], scales[T * K];
static int32_t places[T * K], chosen[T * K];

static aclnnStatus ask_finalize(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeFinalizeRoutingV2GetWorkspaceSize(a[EXPERT_ROWS].tensor, a[PLACES].tensor, a[X1].tensor,
                                                     a[X2].tensor, a[BIAS].tensor, a[SCALES].tensor,
                                                     a[CHOSEN].tensor, c->number[0], a[OUT].tensor, size, e);
}

/* `with`: bits for x1, x2, bias, scales. */
static struct call finalize(int mode, int with)
{
    struct call c = {.op = "aclnnMoeFinalizeRoutingV2",
                     .count = N_FINALIZE,
                     .first_output = OUT,
                     .number = {mode},
                     .ask = ask_finalize,
                     .execute = aclnnMoeFinalizeRoutingV2};
    const int64_t tokens = (with & 8) != 0 ? T : T * K, choices = (with & 8) != 0 ? K : 1;
    c.args[EXPERT_ROWS] = (mode & 1) != 0 ? (struct arg)ARG3(ACL_FLOAT, E, C, H, expert_rows)
                                          : (struct arg)ARG2(ACL_FLOAT, E * C, H, expert_rows);
    c.args[PLACES] = (struct arg)ARG1(ACL_INT32, T * K, places);
    if ((with & 1) != 0 && tokens == T)
        c.args[X1] = (struct arg)ARG2(ACL_FLOAT, T, H, x1);
    if ((with & 2) != 0 && tokens == T)
        c.args[X2] = (struct arg)ARG2(ACL_FLOAT, T, H, x2);
    if ((with & 4) != 0) {
        c.args[BIAS] = (struct arg)ARG2(ACL_FLOAT, E, H, expert_bias);
        c.args[CHOSEN] = (struct arg)ARG2(ACL_INT32, tokens, choices, chosen);
    }
    if ((with & 8) != 0)
        c.args[SCALES] = (struct arg)ARG2(ACL_FLOAT, T, K, scales);
    c.args[OUT] = (struct arg)ARG2(ACL_FLOAT, tokens, H, NULL);
    return c;
}

static void fill_finalize(void)
{
    unsigned seed = 7;
    float *const random[] = {expert_rows, x1, x2, expert_bias, scales};
    const size_t lengths[] = {E * C * H, T * H, T * H, E * H, T * K};
    for (size_t i = 0; i < COUNT_OF(random); i++)
        for (size_t j = 0; j < lengths[i]; j++) {
            seed = seed * 1103515245u + 12345u;
            random[i][j] = (float)(int)(seed >> 8) / 3e6f - 2.5f;
        }
    for (int i = 0; i < T * K; i++) {
        places[i] = i == 4 ? -1 : (i * 7 + 3) % (E * C);
        chosen[i] = (i * 2 + i / 4) % E;
    }
}

static void finalizes(void **state)
{
    (void)state;
    for (int mode = 0; mode < 4; mode++)
        for (int with = 0; with < 16; with++) {
            struct call c = finalize(mode, with);
            const bool weighted = (with & 8) != 0;
            const int tokens = weighted ? T : T * K, choices = weighted ? K : 1;
            static float want[T * K * H];
            for (int t = 0; t < tokens; t++)
                for (int j = 0; j < H; j++) {
                    volatile float sum = 0, term;
                    if (c.args[X1].rank != 0)
                        sum = sum + x1[t * H + j];
                    if (c.args[X2].rank != 0)
                        sum = sum + x2[t * H + j];
                    for (int k = 0; k < choices; k++) {
                        const int at = places[mode >= 2 ? t * choices + k : k * tokens + t];
                        term = at >= 0 ? expert_rows[at * H + j] : 0;
                        if ((with & 4) != 0)
                            term = term + expert_bias[chosen[t * choices + k] * H + j];
                        term = term * (weighted ? scales[t * K + k] : 1);
                        if (at >= 0 || (with & 4) != 0)
                            sum = sum + term;
                    }
                    want[t * H + j] = sum;
                }
            call_expect(&c, want);
        }
}

/* 16 bits: sums in f32, one rounding; 1 + 2^-8 is half way between two numbers of BF16, 2^-9 more is not. */
static void finalize_rounds_once(void **state)
{
    (void)state;
    const uint16_t row[2] = {0x3f80, 0x3b00}, one[1] = {0x3b80}, zero[1] = {0}; /* 1, 2^-9; 2^-8; 0 */
    struct call c = finalize(2, 0);
    c.args[EXPERT_ROWS] = (struct arg)ARG2(ACL_BF16, 2, 1, row);
    c.args[PLACES] = (struct arg)ARG1(ACL_INT32, 2, ((const int32_t[]){0, 1}));
    c.args[X1] = (struct arg)ARG2(ACL_BF16, 1, 1, one);
    c.args[SCALES] = (struct arg)ARG2(ACL_FLOAT, 1, 2, ((const float[]){1, 1}));
    c.args[OUT] = (struct arg)ARG2(ACL_BF16, 1, 1, NULL);
    struct call with_bias = c;
    call_expect(&c, ((uint16_t[]){0x3f81}));
    with_bias.args[BIAS] = (struct arg)ARG2(ACL_BF16, 1, 1, zero);
    with_bias.args[CHOSEN] = (struct arg)ARG2(ACL_INT32, 1, 2, ((const int32_t[]){0, 0}));
    call_expect(&with_bias, ((uint16_t[]){0x3f81}));
}

/* ---- Counts of sorted experts ------------------------------------------------------------------------ */

static aclnnStatus ask_tokens(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    return aclnnMoeComputeExpertTokensGetWorkspaceSize(c->args[0].tensor, c->number[0], c->args[1].tensor,
                                                       size, e);
}

static struct call expert_tokens(const int32_t *sorted)
{
    struct call c = {.op = "aclnnMoeComputeExpertTokens",
                     .count = 2,
                     .first_output = 1,
                     .number = {5},
                     .ask = ask_tokens,
                     .execute = aclnnMoeComputeExpertTokens};
    c.args[0] = (struct arg)ARG1(ACL_INT32, 7, sorted);
    c.args[1] = (struct arg)ARG1(ACL_INT32, 5, NULL);
    return c;
}

static const int32_t in_order[7] = {0, 0, 2, 2, 2, 4, 5}, too_large[7] = {0, 0, 2, 2, 2, 4, 6};

static void counts(void **state)
{
    (void)state;
    struct call c = expert_tokens(in_order);
    call_expect(&c, ((int32_t[]){2, 2, 5, 5, 6})); /* 5 is no expert */
}

/* ---- Rejections -------------------------------------------------------------------------------------- */

static struct call make(int which)
{
    return which == 0   ? gating(false)
           : which == 1 ? softmax()
           : which < 4  ? routing(which == 3)
           : which < 6  ? finalize(which - 4, 15)
                        : expert_tokens(in_order);
}

static void rejects_tensors(void **state)
{
    (void)state;
    for (int which = 0; which < 7; which++) {
        struct call c = make(which);
        for (int i = 0; i < c.count; i++) {
            const bool absent = make(which).args[i].rank == 0;
            c = make(which);
            c.args[i] = (struct arg)NO_ARG;
            const bool given = which == 4 || which == 5;
            const bool shapes = given && (i == SCALES);          /* one choice a token without */
            const bool optional = given && i >= X1 && i <= BIAS; /* the result is another, and right */
            if (!absent && !optional && !(which < 2 && i == BESIDE))
                call_rejected(&c, shapes ? 161002 : 161001, "null");
            if (absent)
                continue;
            c = make(which);
            c.args[i].type = ACL_DOUBLE;
            c.args[i].data = NULL; /* it would be larger */
            call_rejected(&c, 161002, "type");
            c = make(which);
            c.args[i].dims[0] -= 1;
            if (!(given && (i == EXPERT_ROWS || i == BIAS)) &&
                !(which == 6 && i == 0)) /* a smaller call, or a wrong index */
                call_rejected(&c, which < 2 ? 561002 : 161002, "extent");
            c = make(which);
            if (c.args[i].rank > 1) {
                c.args[i].rank -= 1;
                call_rejected(&c, 161002, "rank");
            }
        }
    }
}

static void rejects_values(void **state)
{
    (void)state;
    static const struct {
        int64_t *number, value;
    } of_gate[] = {{&gate.k, 0},      {&gate.k, 5},      {&gate.groups, 0}, {&gate.groups, 3},
                   {&gate.select, 2}, {&gate.renorm, 1}, {&gate.norm, 2},   {&gate.select, -1}},
      of_init[] = {{&init.active, -1}, {&init.drop_pad, 2}, {&init.flag, 3},
                   {&init.experts, 0}, {&init.experts, -1}, {&init.experts, 2} /* expert 2 */};
    for (size_t i = 0; i < COUNT_OF(of_gate); i++) {
        struct call c = gating(false);
        *of_gate[i].number = of_gate[i].value;
        call_rejected(&c, 561002, "value");
    }
    for (size_t i = 0; i < COUNT_OF(of_init); i++) {
        struct call c = routing(false);
        *of_init[i].number = of_init[i].value;
        if (of_init[i].number == &init.experts && of_init[i].value == 2)
            c.args[COUNTS].dims[0] = 2;
        call_rejected(&c, 161002, "value");
    }
    for (int64_t capacity = 0; capacity < 5; capacity += 4) {
        struct call c = routing(true);
        init.capacity = capacity;
        call_rejected(&c, 161002, "capacity");
    }
    for (int which = 0; which < 5;
         which++) { /* a row, an expert, the mode, the number of experts, an expert in the list */
        struct call c = which < 3 ? finalize(0, 15) : expert_tokens(which == 3 ? in_order : too_large);
        static int32_t wrong[T * K];
        memcpy(wrong, which == 0 ? places : chosen, sizeof wrong);
        wrong[5] = which == 0 ? E * C : E;
        if (which < 2)
            c.args[which == 0 ? PLACES : CHOSEN].data = wrong;
        if (which == 2 || which == 3)
            c.number[0] = which == 2 ? 4 : 0;
        call_rejected(&c, 161002, "finalize");
    }
    struct call c = softmax();
    gate.renorm = 2;
    call_rejected(&c, 561002, "renorm");
    c = gating(false);
    gate.groups = 2;
    gate.k_group = 3;
    call_rejected(&c, 561002, "kGroup");
}

int main(void)
{
    fill_finalize();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finalizes),       cmocka_unit_test(finalize_rounds_once), cmocka_unit_test(counts),
        cmocka_unit_test(gates),           cmocka_unit_test(gates_by_softmax),     cmocka_unit_test(routes),
        cmocka_unit_test(rejects_tensors), cmocka_unit_test(rejects_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
