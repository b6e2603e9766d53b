/*
 * The four operators of the routing map through the aclnn door: the worked examples of docs/ops, bit for bit, with
 * everything the vendor's calls give besides; shapes without elements; and the data of the vendor's own programs.
 */
#include "aclnn.h"

#define F32 ACL_FLOAT
#define I32 ACL_INT32

static const float x4[4][2] = {{10, 11}, {20, 21}, {30, 31}, {40, 41}};

/* ---- Packed ------------------------------------------------------------------------------------------ */

static void one_expert_each(void **state)
{
    (void)state;
    const uint8_t map[4][3] = {{0, 0, 1}, {1, 0, 0}, {0, 0, 1}, {1, 0, 0}};
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(F32, 4, 2, x4);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 4, 3, map);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(F32, 4, 2, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 4, NULL);
    c.number[0] = 4;
    const float rows[4][2] = {{20, 21}, {40, 41}, {10, 11}, {30, 31}};
    call_expect(&c, rows, NULL, ((int32_t[]){2, 0, 3, 1}));
}

/* Two experts each: the map, weights and rows that the next four tests share. */
static const uint8_t map2[4][3] = {{1, 0, 1}, {0, 1, 1}, {1, 1, 0}, {1, 0, 1}};
static const float probs2[4][3] = {{.5f, 0, .5f}, {0, .25f, .75f}, {.125f, .875f, 0}, {.625f, 0, .375f}};
static const int32_t slots2[8] = {0, 5, 3, 6, 1, 4, 2, 7};
static const float rows2[8][2] = {{1, 1}, {2, -1}, {3, -3}, {4, -5}, {5, -7}, {6, -9}, {7, -11}, {8, -13}};
static const float kept2[8] = {.5f, .5f, .25f, .75f, .125f, .875f, .625f, .375f};
static const int32_t tokens_of_slots2[8] = {0, 0, 1, 1, 2, 2, 3, 3};
static const float plain2[4][2] = {{7, -8}, {11, -16}, {7, -8}, {11, -16}};

static void two_experts_with_probs(void **state)
{
    (void)state;
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(F32, 4, 2, x4);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_INT8, 4, 3, map2);
    c.args[PERMUTE_PROBS] = (struct arg)ARG2(F32, 4, 3, probs2);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(F32, 8, 2, NULL);
    c.args[PERMUTE_PROBS_OUT] = (struct arg)ARG1(F32, 8, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 8, NULL);
    c.number[0] = 8;
    const float rows[8][2] = {{10, 11}, {30, 31}, {40, 41}, {20, 21}, {30, 31}, {10, 11}, {20, 21}, {40, 41}};
    call_expect(&c, rows, ((float[]){.5f, .125f, .625f, .25f, .875f, .5f, .75f, .375f}), slots2);
}

static struct call unpermute2(bool weighted)
{
    struct call c = call_unpermute();
    c.args[UNPERMUTE_ROWS] = (struct arg)ARG2(F32, 8, 2, rows2);
    c.args[UNPERMUTE_INDICES] = (struct arg)ARG1(I32, 8, slots2);
    if (weighted) {
        c.args[UNPERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 4, 3, map2);
        c.args[UNPERMUTE_PROBS] = (struct arg)ARG2(F32, 4, 3, probs2);
    }
    c.args[UNPERMUTE_OUT] = (struct arg)ARG2(F32, 4, 2, NULL);
    c.args[UNPERMUTE_OUT_INDEX] = (struct arg)ARG1(I32, 8, NULL);
    c.args[UNPERMUTE_TOKEN_ID] = (struct arg)ARG1(I32, 8, NULL);
    c.args[UNPERMUTE_KEPT_PROBS] = (struct arg)ARG1(F32, 8, NULL);
    static const int64_t shape[] = {4, 2};
    c.restore = shape;
    c.restore_count = 2;
    return c;
}

static void unpermute_packed(void **state)
{
    (void)state;
    const float weighted[4][2] = {{3.5f, -4}, {6.25f, -9.5f}, {4.625f, -6.25f}, {4.875f, -6.75f}};
    struct call c = unpermute2(true);
    call_expect(&c, weighted, slots2, tokens_of_slots2, kept2);
    c = unpermute2(true);
    c.restore = NULL; /* probs tell the number of tokens */
    call_expect(&c, weighted, slots2, tokens_of_slots2, kept2);
    c = unpermute2(false); /* no weights to keep: that output is left alone */
    call_expect(&c, plain2, slots2, tokens_of_slots2, NULL);
    for (int i = UNPERMUTE_OUT_INDEX; i <= UNPERMUTE_KEPT_PROBS; i++) { /* each may be missing */
        c = unpermute2(true);
        c.args[i] = (struct arg)NO_ARG;
        call_expect(&c, weighted, slots2, tokens_of_slots2, kept2);
    }
}

static void permute_grad_packed(void **state)
{
    (void)state;
    const float dpp[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const float dp[4][3] = {{1, 0, 6}, {0, 4, 7}, {2, 5, 0}, {3, 0, 8}};
    struct call c = call_permute_grad();
    c.args[PGRAD_ROWS] = (struct arg)ARG2(F32, 8, 2, rows2);
    c.args[PGRAD_PROBS] = (struct arg)ARG1(F32, 8, dpp);
    c.args[PGRAD_INDICES] = (struct arg)ARG1(I32, 8, slots2);
    c.args[PGRAD_MAP] = (struct arg)ARG2(ACL_INT8, 4, 3, map2);
    c.args[PGRAD_OUT] = (struct arg)ARG2(F32, 4, 2, NULL);
    c.args[PGRAD_PROBS_OUT] = (struct arg)ARG2(F32, 4, 3, NULL);
    c.number[0] = 3;
    c.number[1] = 4;
    const struct call whole = c;
    call_expect(&c, plain2, dp);
    c = whole;
    c.args[PGRAD_PROBS] = (struct arg)NO_ARG; /* the gradient of probs is left alone then */
    call_expect(&c, plain2, NULL);
}

static void unpermute_grad_packed(void **state)
{
    (void)state;
    const float g[4][2] = {{1, 0}, {0, 1}, {1, 1}, {2, -1}};
    const float dy[8][2] = {{.5f, 0},       {.125f, .125f}, {1.25f, -.625f}, {0, .25f},
                            {.875f, .875f}, {.5f, 0},       {0, .75f},       {.75f, -.375f}};
    const float dp[4][3] = {{1, 0, 6}, {0, -5, -11}, {1, -2, 0}, {9, 0, 29}};
    const float copies[8][2] = {{1, 0}, {1, 1}, {2, -1}, {0, 1}, {1, 1}, {1, 0}, {0, 1}, {2, -1}};
    struct call c = call_unpermute_grad();
    c.args[UGRAD_TOKENS] = (struct arg)ARG2(F32, 4, 2, g);
    c.args[UGRAD_OUT_INDEX] = (struct arg)ARG1(I32, 8, slots2);
    c.args[UGRAD_TOKEN_ID] = (struct arg)ARG1(I32, 8, slots2); /* as frameworks pass it: not looked at */
    c.args[UGRAD_MAP] = (struct arg)ARG2(ACL_BOOL, 4, 3, map2);
    c.args[UGRAD_ROWS] = (struct arg)ARG2(F32, 8, 2, rows2);
    c.args[UGRAD_PROBS] = (struct arg)ARG2(F32, 4, 3, probs2);
    c.args[UGRAD_OUT] = (struct arg)ARG2(F32, 8, 2, NULL);
    c.args[UGRAD_PROBS_OUT] = (struct arg)ARG2(F32, 4, 3, NULL);
    const struct call whole = c;
    call_expect(&c, dy, dp);
    c = whole;
    c.args[UGRAD_PROBS] = (struct arg)NO_ARG;
    call_expect(&c, copies, NULL);
}

/* bf16, a number of rows that the tokens do not divide, and a zero that keeps its sign. */
static void bits_survive(void **state)
{
    (void)state;
    const uint16_t tokens[3][2] = {{0x3f80, 0xc000}, {0x3f00, 0x4040}, {0x8000, 0x42c8}};
    const uint8_t map[3][4] = {{1, 0, 0, 1}, {0, 1, 1, 0}, {1, 0, 1, 0}};
    const uint16_t rows[6][2] = {{0x3f80, 0xc000}, {0x8000, 0x42c8}, {0x3f00, 0x4040},
                                 {0x3f00, 0x4040}, {0x8000, 0x42c8}, {0x3f80, 0xc000}};
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(ACL_BF16, 3, 2, tokens);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 3, 4, map);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(ACL_BF16, 6, 2, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 6, NULL);
    c.number[0] = 7;
    call_expect(&c, rows, NULL, ((int32_t[]){0, 5, 2, 3, 1, 4}));
}

static void fewer_experts_than_slots(void **state)
{
    (void)state;
    const float tokens[3][2] = {{1, 2}, {3, 4}, {5, 6}}, rows[6][2] = {{1, 2}, {5, 6}};
    const uint8_t map[3][2] = {{1, 0}, {0, 0}, {1, 0}};
    const float probs[3][2] = {{.5f, .9f}, {.8f, .7f}, {.25f, .1f}};
    const int32_t slots[6] = {0, -1, -1, -1, 1, -1};
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(F32, 3, 2, tokens);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 3, 2, map);
    c.args[PERMUTE_PROBS] = (struct arg)ARG2(F32, 3, 2, probs);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(F32, 6, 2, NULL);
    c.args[PERMUTE_PROBS_OUT] = (struct arg)ARG1(F32, 6, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 6, NULL);
    c.number[0] = 6;
    call_expect(&c, rows, ((float[6]){.5f, .25f}), slots);

    /* The way back, with the same slots and with the second of a token's two in use. */
    const float out[3][2] = {{.5f, 1}, {0, 0}, {1.25f, 1.5f}};
    for (int late = 0; late < 2; late++) {
        const int32_t index[6] = {late ? -1 : 0, late ? 0 : -1, -1, -1, 1, -1};
        const float kept[6] = {late ? 0 : .5f, late ? .5f : 0, 0, 0, .25f, 0};
        struct call u = call_unpermute();
        u.args[UNPERMUTE_ROWS] = (struct arg)ARG2(F32, 6, 2, rows);
        u.args[UNPERMUTE_INDICES] = (struct arg)ARG1(I32, 6, index);
        u.args[UNPERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 3, 2, map);
        u.args[UNPERMUTE_PROBS] = (struct arg)ARG2(F32, 3, 2, probs);
        u.args[UNPERMUTE_OUT] = (struct arg)ARG2(F32, 3, 2, NULL);
        u.args[UNPERMUTE_KEPT_PROBS] = (struct arg)ARG1(F32, 6, NULL);
        call_expect(&u, out, NULL, NULL, kept);
    }
}

static void all_experts(void **state)
{
    (void)state;
    const float tokens[3] = {.1f, .2f, .3f}, rows[6] = {.1f, .2f, .3f, .1f, .2f, .3f};
    const uint8_t map[3][2] = {{1, 1}, {1, 1}, {1, 1}};
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(F32, 3, 1, tokens);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_INT8, 3, 2, map);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(F32, 6, 1, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 6, NULL);
    c.number[0] = 6;
    call_expect(&c, rows, NULL, ((int32_t[]){0, 3, 1, 4, 2, 5}));
}

/* f16 tokens with f16 weights, and bf16 tokens with f32 ones. */
static void types_of_probs(void **state)
{
    (void)state;
    const uint8_t map[2][4] = {{1, 1, 0, 1}, {0, 1, 1, 1}};
    const double tokens[4] = {1.5, 2.5, 3.5, 4.5};
    const double probs[8] = {.5, .25, .125, .125, .5, .25, .125, .0625};
    const int source[6] = {0, 0, 1, 1, 0, 1};
    const double want_probs[6] = {.5, .25, .25, .125, .125, .0625};
    for (int wide = 0; wide < 2; wide++) {
        uint16_t x[4], y[12], p16[8], pp16[6];
        float p32[8], pp32[6];
        for (int i = 0; i < 4; i++)
            x[i] = wide ? bf16_round(tokens[i]) : f16_round(tokens[i]);
        for (int i = 0; i < 12; i++)
            y[i] = x[source[i / 2] * 2 + i % 2];
        for (int i = 0; i < 8; i++) {
            p16[i] = f16_round(probs[i]);
            p32[i] = (float)probs[i];
        }
        for (int i = 0; i < 6; i++) {
            pp16[i] = f16_round(want_probs[i]);
            pp32[i] = (float)want_probs[i];
        }
        const aclDataType token_type = wide ? ACL_BF16 : ACL_FLOAT16, prob_type = wide ? F32 : ACL_FLOAT16;
        struct call c = call_permute();
        c.args[PERMUTE_TOKENS] = (struct arg)ARG2(token_type, 2, 2, x);
        c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 2, 4, map);
        c.args[PERMUTE_PROBS] = (struct arg)ARG2(prob_type, 2, 4, wide ? (void *)p32 : (void *)p16);
        c.args[PERMUTE_OUT] = (struct arg)ARG2(token_type, 6, 2, NULL);
        c.args[PERMUTE_PROBS_OUT] = (struct arg)ARG1(prob_type, 6, NULL);
        c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 6, NULL);
        c.number[0] = 6;
        call_expect(&c, y, wide ? (void *)pp32 : (void *)pp16, ((int32_t[]){0, 1, 4, 2, 3, 5}));
    }
}

/* ---- Padded ------------------------------------------------------------------------------------------ */

static const uint8_t map5[5][3] = {{1, 0, 0}, {1, 0, 0}, {0, 0, 0}, {1, 0, 1}, {1, 0, 1}};
static const float probs5[5][3] = {
    {.9f, .1f, .01f}, {.8f, .2f, .02f}, {.7f, .3f, .03f}, {.6f, .4f, .04f}, {.5f, .5f, .05f}};
static const int32_t rows_of5[6] = {0, 1, 0, 1, 3, 4};
static const float up6[6] = {1, 2, 3, 4, 5, 6};

static void overfull_and_empty_experts(void **state)
{
    (void)state;
    const float tokens[5] = {10, 20, 30, 40, 50}, rows[6] = {10, 20, 10, 20, 40, 50};
    const float kept[6] = {.9f, .8f, .1f, .2f, .04f, .05f};
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(F32, 5, 1, tokens);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 5, 3, map5);
    c.args[PERMUTE_PROBS] = (struct arg)ARG2(F32, 5, 3, probs5);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(F32, 6, 1, NULL);
    c.args[PERMUTE_PROBS_OUT] = (struct arg)ARG1(F32, 6, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 6, NULL);
    c.number[0] = 8;
    c.flag[0] = true;
    call_expect(&c, rows, kept, rows_of5);
}

static struct call unpermute5(bool weighted)
{
    static const int64_t shape[] = {5, 1};
    struct call c = call_unpermute();
    c.args[UNPERMUTE_ROWS] = (struct arg)ARG2(F32, 6, 1, up6);
    c.args[UNPERMUTE_INDICES] = (struct arg)ARG1(I32, 6, rows_of5);
    if (weighted)
        c.args[UNPERMUTE_PROBS] = (struct arg)ARG2(F32, 5, 3, probs5);
    c.args[UNPERMUTE_OUT] = (struct arg)ARG2(F32, 5, 1, NULL);
    c.args[UNPERMUTE_OUT_INDEX] = (struct arg)ARG1(I32, 6, NULL);
    c.args[UNPERMUTE_TOKEN_ID] = (struct arg)ARG1(I32, 6, NULL);
    c.args[UNPERMUTE_KEPT_PROBS] = (struct arg)ARG1(F32, 6, NULL);
    c.restore = shape;
    c.restore_count = 2;
    c.flag[0] = true;
    return c;
}

static void unpermute_padded(void **state)
{
    (void)state;
    const int32_t order[6] = {0, 2, 1, 3, 4, 5}, ids[6] = {0, 0, 1, 1, 3, 4};
    const float kept[6] = {.9f, .8f, .1f, .2f, .04f, .05f};
    const float plain[5] = {4, 6, 0, 5, 6};
    const float weighted[5] = {.9f * 1 + .1f * 3, .8f * 2 + .2f * 4, 0, .04f * 5, .05f * 6};
    struct call c = unpermute5(true);
    call_expect(&c, weighted, order, ids, kept);
    c = unpermute5(false);
    call_expect(&c, plain, order, ids, NULL);
    c = unpermute5(true);
    c.args[UNPERMUTE_OUT_INDEX] = (struct arg)NO_ARG; /* the other is still made */
    call_expect(&c, weighted, NULL, ids, kept);
    c = unpermute5(true);
    c.args[UNPERMUTE_TOKEN_ID] = (struct arg)NO_ARG;
    call_expect(&c, weighted, order, NULL, kept);
}

static void grads_padded(void **state)
{
    (void)state;
    const float dp[5][3] = {{1, 3, 0}, {2, 4, 0}, {0, 0, 0}, {0, 0, 5}, {0, 0, 6}},
                plain[5] = {4, 6, 0, 5, 6};
    struct call c = call_permute_grad();
    c.args[PGRAD_ROWS] = (struct arg)ARG2(F32, 6, 1, up6);
    c.args[PGRAD_PROBS] = (struct arg)ARG1(F32, 6, up6);
    c.args[PGRAD_INDICES] = (struct arg)ARG1(I32, 6, rows_of5);
    c.args[PGRAD_MAP] = (struct arg)ARG2(ACL_BOOL, 5, 3, map5);
    c.args[PGRAD_OUT] = (struct arg)ARG2(F32, 5, 1, NULL);
    c.args[PGRAD_PROBS_OUT] = (struct arg)ARG2(F32, 5, 3, NULL);
    c.number[0] = 3;
    c.number[1] = 5;
    c.flag[0] = true;
    call_expect(&c, plain, dp);

    /* What the forward call keeps leads back to the same rows. */
    const int32_t order[6] = {0, 2, 1, 3, 4, 5}, ids[6] = {0, 0, 1, 1, 3, 4};
    const float g[5] = {1, 2, 3, 4, 5}, ones[5][3] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    const float dy[6] = {1, 2, 1, 2, 4, 5};
    const float dots[5][3] = {{1 * 1, 1 * 3, 0}, {2 * 2, 2 * 4, 0}, {0, 0, 0}, {0, 0, 4 * 5}, {0, 0, 5 * 6}};
    struct call u = call_unpermute_grad();
    u.args[UGRAD_TOKENS] = (struct arg)ARG2(F32, 5, 1, g);
    u.args[UGRAD_OUT_INDEX] = (struct arg)ARG1(I32, 6, order);
    u.args[UGRAD_TOKEN_ID] = (struct arg)ARG1(I32, 6, ids);
    u.args[UGRAD_MAP] = (struct arg)ARG2(ACL_BOOL, 5, 3, map5);
    u.args[UGRAD_ROWS] = (struct arg)ARG2(F32, 6, 1, up6);
    u.args[UGRAD_PROBS] = (struct arg)ARG2(F32, 5, 3, ones);
    u.args[UGRAD_OUT] = (struct arg)ARG2(F32, 6, 1, NULL);
    u.args[UGRAD_PROBS_OUT] = (struct arg)ARG2(F32, 5, 3, NULL);
    u.flag[0] = true;
    call_expect(&u, dy, dots);
}

static void padding_rows_are_tokens(void **state)
{
    (void)state;
    const uint8_t map[4][2] = {{0, 0}, {0, 0}, {1, 0}, {0, 0}};
    const float probs[4][2] = {{0, 0}, {0, 0}, {1, 0}, {0, 0}};
    const float rows[6][2] = {{30, 31}, {10, 11}, {20, 21}, {10, 11}, {20, 21}, {30, 31}};
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(F32, 4, 2, x4);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_INT8, 4, 2, map);
    c.args[PERMUTE_PROBS] = (struct arg)ARG2(F32, 4, 2, probs);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(F32, 6, 2, NULL);
    c.args[PERMUTE_PROBS_OUT] = (struct arg)ARG1(F32, 6, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 6, NULL);
    c.number[0] = 6;
    c.flag[0] = true;
    call_expect(&c, rows, ((float[6]){1}), ((int32_t[]){2, 0, 1, 0, 1, 2}));
}

/* ---- Shapes without elements ------------------------------------------------------------------------- */

static void no_elements(void **state)
{
    (void)state;
    const uint8_t map[2][2] = {{1, 0}, {0, 1}};
    const float x[2][1] = {{1}, {2}};
    for (int pad = 0; pad < 2; pad++) { /* fewer rows asked for than tokens or experts: none */
        struct call c = call_permute();
        c.args[PERMUTE_TOKENS] = (struct arg)ARG2(F32, 2, 1, x);
        c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 2, 2, map);
        c.args[PERMUTE_OUT] = (struct arg){.type = F32, .rank = 2, .dims = {0, 1}, .no_data = true};
        c.args[PERMUTE_INDICES] = (struct arg){.type = I32, .rank = 1, .dims = {0}, .no_data = true};
        c.number[0] = 1;
        c.flag[0] = pad;
        call_expect(&c, NULL, NULL, NULL);
    }
    struct call c = call_permute(); /* rows without elements have indices all the same */
    c.args[PERMUTE_TOKENS] = (struct arg){.type = F32, .rank = 2, .dims = {2, 0}, .no_data = true};
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 2, 2, map);
    c.args[PERMUTE_OUT] = (struct arg){.type = F32, .rank = 2, .dims = {2, 0}, .no_data = true};
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 2, NULL);
    c.number[0] = 2;
    call_expect(&c, NULL, NULL, ((int32_t[]){0, 1}));

    struct call u = call_unpermute(); /* tokens without rows are zero */
    static const int64_t shape[] = {2, 1};
    u.args[UNPERMUTE_ROWS] = (struct arg){.type = F32, .rank = 2, .dims = {0, 1}, .no_data = true};
    u.args[UNPERMUTE_INDICES] = (struct arg){.type = I32, .rank = 1, .dims = {0}, .no_data = true};
    u.args[UNPERMUTE_OUT] = (struct arg)ARG2(F32, 2, 1, NULL);
    u.restore = shape;
    u.restore_count = 2;
    call_expect(&u, ((float[2]){0, 0}), NULL, NULL, NULL);
}

/* ---- The vendor's own programs ----------------------------------------------------------------------- */

/* One of them calls f32 memory BF16 and int32 memory BOOL: the map that is seen then is ragged. */
static void mislabelled_memory(void **state)
{
    (void)state;
    float x[3][4], out[24] = {.1f, .1f, .2f, .2f};
    int32_t map[6] = {1, 1, 1, 1, 1, 1};
    for (int i = 0; i < 12; i++)
        x[i / 4][i % 4] = i < 4 ? .1f : i < 8 ? .2f : .3f;
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(ACL_BF16, 3, 4, x);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, 3, 2, map);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(ACL_BF16, 6, 4, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(I32, 6, NULL);
    c.number[0] = 6;
    call_expect(&c, out, NULL, ((int32_t[]){0, -1, -1, -1, 1, -1}));
}

static void one_token_twice(void **state)
{
    (void)state;
    const float ones[4] = {1, 1, 1, 1};
    const int8_t map[4] = {1, 1, 1, 1};
    static const int64_t shape[] = {2, 2};
    struct call c = call_unpermute();
    c.args[UNPERMUTE_ROWS] = (struct arg)ARG2(F32, 2, 2, ones);
    c.args[UNPERMUTE_INDICES] = (struct arg)ARG1(I32, 2, ((int32_t[]){1, 1}));
    c.args[UNPERMUTE_MAP] = (struct arg)ARG2(ACL_INT8, 2, 2, map);
    c.args[UNPERMUTE_PROBS] = (struct arg)ARG2(F32, 2, 2, ones);
    c.args[UNPERMUTE_OUT] = (struct arg)ARG2(F32, 2, 2, NULL);
    c.args[UNPERMUTE_OUT_INDEX] = (struct arg)ARG1(I32, 2, NULL);
    c.args[UNPERMUTE_TOKEN_ID] = (struct arg)ARG1(I32, 2, NULL);
    c.args[UNPERMUTE_KEPT_PROBS] = (struct arg)ARG1(F32, 2, NULL);
    c.restore = shape;
    c.restore_count = 2;
    c.flag[0] = true;
    call_expect(&c, ((float[]){0, 0, 2, 2}), ((int32_t[]){0, 1}), ((int32_t[]){1, 1}), ones);

    struct call g = call_unpermute_grad();
    g.args[UGRAD_TOKENS] = (struct arg)ARG2(F32, 1, 2, ones);
    g.args[UGRAD_OUT_INDEX] = (struct arg)ARG1(I32, 2, ((int32_t[]){0, 1}));
    g.args[UGRAD_TOKEN_ID] = (struct arg)ARG1(I32, 2, ((int32_t[]){0, 0}));
    g.args[UGRAD_MAP] = (struct arg)ARG2(ACL_BOOL, 1, 2, map);
    g.args[UGRAD_ROWS] = (struct arg)ARG2(F32, 2, 2, ones);
    g.args[UGRAD_PROBS] = (struct arg)ARG2(F32, 1, 2, ones);
    g.args[UGRAD_OUT] = (struct arg)ARG2(F32, 2, 2, NULL);
    g.args[UGRAD_PROBS_OUT] = (struct arg)ARG2(F32, 1, 2, NULL);
    call_expect(&g, ones, ((float[]){2, 2}));
}

/* An expert of weight 0 needs no row: the second slot of token 0 holds none, and the map names its expert all the same. */
static void no_row_for_no_weight(void **state)
{
    (void)state;
    const float rows[4][4] = {{2, 4, 6, 8}, {4, 8, 12, 16}, {8, 16, 24, 32}, {100, 200, 300, 400}};
    const float probs[4] = {.5f, 0, .25f, .75f}, negative[4] = {.5f, -0.0f, .25f, .75f};
    const float tokens[2][4] = {{1, 2, 3, 4}, {7, 14, 21, 28}};
    const int8_t map[4] = {1, 1, 1, 1};
    const int32_t slots[4] = {0, -1, 1, 2};
    static const int64_t shape[] = {2, 4};
    for (int sign = 0; sign < 2; sign++) {
        struct call c = call_unpermute();
        c.args[UNPERMUTE_ROWS] = (struct arg)ARG2(F32, 4, 4, rows);
        c.args[UNPERMUTE_INDICES] = (struct arg)ARG1(I32, 4, slots);
        c.args[UNPERMUTE_MAP] = (struct arg)ARG2(ACL_INT8, 2, 2, map);
        c.args[UNPERMUTE_PROBS] = (struct arg)ARG2(F32, 2, 2, sign ? negative : probs);
        c.args[UNPERMUTE_OUT] = (struct arg)ARG2(F32, 2, 4, NULL);
        c.args[UNPERMUTE_OUT_INDEX] = (struct arg)ARG1(I32, 4, NULL);
        c.args[UNPERMUTE_TOKEN_ID] = (struct arg)ARG1(I32, 4, NULL);
        c.args[UNPERMUTE_KEPT_PROBS] = (struct arg)ARG1(F32, 4, NULL);
        c.restore = shape;
        c.restore_count = 2;
        call_expect(&c, tokens, slots, ((int32_t[]){0, 0, 1, 1}), probs);
    }
    const float g[2][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}};
    const float dy[4][4] = {{.5f, 0, 0, 0}, {0, .25f, 0, 0}, {0, .75f, 0, 0}, {0, 0, 0, 0}};
    struct call u = call_unpermute_grad();
    u.args[UGRAD_TOKENS] = (struct arg)ARG2(F32, 2, 4, g);
    u.args[UGRAD_OUT_INDEX] = (struct arg)ARG1(I32, 4, slots);
    u.args[UGRAD_TOKEN_ID] = (struct arg)ARG1(I32, 4, slots);
    u.args[UGRAD_MAP] = (struct arg)ARG2(ACL_INT8, 2, 2, map);
    u.args[UGRAD_ROWS] = (struct arg)ARG2(F32, 4, 4, rows);
    u.args[UGRAD_PROBS] = (struct arg)ARG2(F32, 2, 2, probs);
    u.args[UGRAD_OUT] = (struct arg)ARG2(F32, 4, 4, NULL);
    u.args[UGRAD_PROBS_OUT] = (struct arg)ARG2(F32, 2, 2, NULL);
    call_expect(&u, dy, ((float[]){2, 0, 8, 16}));
}

/* No probs and none to keep: the place for them may be empty. */
static void no_weights_to_keep(void **state)
{
    (void)state;
    const float rows[4][2] = {{1, 2}, {10, 20}, {100, 200}, {1000, 2000}};
    static const int64_t shape[] = {2, 2};
    struct call c = call_unpermute();
    c.args[UNPERMUTE_ROWS] = (struct arg)ARG2(F32, 4, 2, rows);
    c.args[UNPERMUTE_INDICES] = (struct arg)ARG1(I32, 4, ((int32_t[]){0, 1, 2, 3}));
    c.args[UNPERMUTE_OUT] = (struct arg)ARG2(F32, 2, 2, NULL);
    c.args[UNPERMUTE_OUT_INDEX] = (struct arg)ARG1(I32, 4, NULL);
    c.args[UNPERMUTE_TOKEN_ID] = (struct arg)ARG1(I32, 4, NULL);
    c.args[UNPERMUTE_KEPT_PROBS] = (struct arg)ARG1(F32, 0, NULL);
    c.restore = shape;
    c.restore_count = 2;
    call_expect(&c, ((float[]){11, 22, 1100, 2200}), ((int32_t[]){0, 1, 2, 3}), ((int32_t[]){0, 0, 1, 1}),
                NULL);
}

/* All rows of all experts name token 0: of a token's several rows at an expert the last one counts. */
static void every_row_is_token_zero(void **state)
{
    (void)state;
    enum { T = 64, H = 16, E = 8, C = 4 };
    static float dy[E * C * H], dpp[E * C], dx[T * H], dp[T * E];
    static int32_t index[E * C];
    static int8_t map[T * E];
    memset(map, 1, sizeof map);
    for (int i = 0; i < E * C; i++)
        dpp[i] = .1f;
    for (int e = 0; e < E; e++)
        dp[e] = .1f;
    struct call c = call_permute_grad();
    c.args[PGRAD_ROWS] = (struct arg)ARG2(F32, E * C, H, dy);
    c.args[PGRAD_PROBS] = (struct arg)ARG1(F32, E * C, dpp);
    c.args[PGRAD_INDICES] = (struct arg)ARG1(I32, E * C, index);
    c.args[PGRAD_MAP] = (struct arg)ARG2(ACL_INT8, T, E, map);
    c.args[PGRAD_OUT] = (struct arg)ARG2(F32, T, H, NULL);
    c.args[PGRAD_PROBS_OUT] = (struct arg)ARG2(F32, T, E, NULL);
    c.number[0] = E;
    c.number[1] = T;
    c.flag[0] = true;
    call_expect(&c, dx, dp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_expert_each),          cmocka_unit_test(two_experts_with_probs),
        cmocka_unit_test(unpermute_packed),         cmocka_unit_test(permute_grad_packed),
        cmocka_unit_test(unpermute_grad_packed),    cmocka_unit_test(bits_survive),
        cmocka_unit_test(fewer_experts_than_slots), cmocka_unit_test(all_experts),
        cmocka_unit_test(types_of_probs),           cmocka_unit_test(overfull_and_empty_experts),
        cmocka_unit_test(unpermute_padded),         cmocka_unit_test(grads_padded),
        cmocka_unit_test(padding_rows_are_tokens),  cmocka_unit_test(no_elements),
        cmocka_unit_test(mislabelled_memory),       cmocka_unit_test(one_token_twice),
        cmocka_unit_test(no_row_for_no_weight),     cmocka_unit_test(no_weights_to_keep),
        cmocka_unit_test(every_row_is_token_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
