/* Top-k and top-p as a filter, and rows by expert, through the aclnn layer: by hand, and the rejections. */
#include "aclnn.h"

#include <math.h>

#include "aclnnop/aclnn_apply_top_k_top_p.h"
#include "aclnnop/aclnn_moe_init_routing_v3.h"
#include "aclnnop/aclnn_moe_re_routing.h"

/* ---- Top-k and top-p --------------------------------------------------------------------------------- */

enum { LOGITS, TOP_P, TOP_K, OUT, N_FILTER };

static aclnnStatus ask_filter(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnApplyTopKTopPGetWorkspaceSize(a[LOGITS].tensor, a[TOP_P].tensor, a[TOP_K].tensor,
                                              a[OUT].tensor, size, e);
}

static const float logits[3][5] = {{1, 3, 2, 2, 0}, {0, 0, 8, 0, 0}, {4, 4, 4, 4, 4}}, p[3] = {1, .5f, 1};
static const int32_t k[3] = {2, 5, 0};
static const uint16_t half[3][5] = {
    {0x3c00, 0x4200, 0x4000, 0x4000, 0}, {0, 0, 0x4800, 0, 0}, {0x4400, 0x4400, 0x4400, 0x4400, 0x4400}};
static const uint16_t half_p[3] = {0x3c00, 0x3800, 0x3c00};

static struct call filter(bool narrow)
{
    struct call c = {.op = "aclnnApplyTopKTopP",
                     .count = N_FILTER,
                     .first_output = OUT,
                     .ask = ask_filter,
                     .execute = aclnnApplyTopKTopP};
    const aclDataType type = narrow ? ACL_FLOAT16 : ACL_FLOAT;
    c.args[LOGITS] = (struct arg)ARG2(type, 3, 5, narrow ? (const void *)half : logits);
    c.args[TOP_P] = (struct arg)ARG1(type, 3, narrow ? (const void *)half_p : p);
    c.args[TOP_K] = (struct arg)ARG1(ACL_INT32, 3, k);
    c.args[OUT] = (struct arg)ARG2(type, 3, 5, NULL);
    return c;
}

static void filters(void **state)
{
    (void)state;
    const float none = -INFINITY;
    /* Row 0: two at the place of the second stay. Row 1: one token has half. Row 2: no filter. */
    const float want[3][5] = {{none, 3, 2, 2, none}, {none, none, 8, none, none}, {4, 4, 4, 4, 4}};
    const uint16_t lost = 0xfc00, narrow[3][5] = {{lost, 0x4200, 0x4000, 0x4000, lost},
                                                  {lost, lost, 0x4800, lost, lost},
                                                  {0x4400, 0x4400, 0x4400, 0x4400, 0x4400}};
    struct call c = filter(false);
    call_expect(&c, want);
    c = filter(true);
    call_expect(&c, narrow);
    c = filter(false); /* top-k alone */
    c.args[TOP_P] = (struct arg)NO_ARG;
    call_expect(&c, ((float[]){none, 3, 2, 2, none, 0, 0, 8, 0, 0, 4, 4, 4, 4, 4}));
    c = filter(false); /* top-p alone */
    c.args[TOP_K] = (struct arg)NO_ARG;
    call_expect(&c, ((float[]){1, 3, 2, 2, 0, none, none, 8, none, none, 4, 4, 4, 4, 4}));
}

static void filter_rejects(void **state)
{
    (void)state;
    for (int i = 0; i < N_FILTER; i++) {
        struct call c = filter(false);
        c.args[i] = (struct arg)NO_ARG;
        if (i == LOGITS || i == OUT)
            call_rejected(&c, 161001, "null");
        c = filter(false);
        c.args[i].type = ACL_DOUBLE;
        c.args[i].data = NULL; /* it would be larger */
        call_rejected(&c, 161002, "type");
        c = filter(false);
        c.args[i].dims[0] -= 1;
        call_rejected(&c, 161002, "extent");
    }
    struct call c = filter(false);
    c.args[TOP_P] = c.args[TOP_K] = (struct arg)NO_ARG;
    call_rejected(&c, 161001, "no filter");
}

/* ---- Rows by expert ---------------------------------------------------------------------------------- */

enum { TOKENS, COUNTS, SCALES, PERMUTED, PERMUTED_SCALES, SOURCE, TOTALS, N_ROUTING };

static aclnnStatus ask_routing(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeReRoutingGetWorkspaceSize(
        a[TOKENS].tensor, a[COUNTS].tensor, a[SCALES].tensor, c->number[0], c->number[1], a[PERMUTED].tensor,
        a[PERMUTED_SCALES].tensor, a[SOURCE].tensor, a[TOTALS].tensor, size, e);
}

static const int8_t rows[7][2] = {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}};
static const float row_scales[7] = {0, 1, 2, 3, 4, 5, 6};
static const int32_t counts[2][3] = {{2, 0, 1}, {1, 2, 1}};

static struct call routing(void)
{
    struct call c = {.op = "aclnnMoeReRouting",
                     .count = N_ROUTING,
                     .first_output = PERMUTED,
                     .number = {1, 0},
                     .ask = ask_routing,
                     .execute = aclnnMoeReRouting};
    c.args[TOKENS] = (struct arg)ARG2(ACL_INT8, 7, 2, rows);
    c.args[COUNTS] = (struct arg)ARG2(ACL_INT32, 2, 3, counts);
    c.args[SCALES] = (struct arg)ARG1(ACL_FLOAT, 7, row_scales);
    c.args[PERMUTED] = (struct arg)ARG2(ACL_INT8, 7, 2, NULL);
    c.args[PERMUTED_SCALES] = (struct arg)ARG1(ACL_FLOAT, 7, NULL);
    c.args[SOURCE] = (struct arg)ARG1(ACL_INT32, 7, NULL);
    c.args[TOTALS] = (struct arg)ARG1(ACL_INT32, 3, NULL);
    return c;
}

static void reorders(void **state)
{
    (void)state;
    const int8_t want[7][2] = {{0, 1}, {2, 3}, {6, 7}, {8, 9}, {10, 11}, {4, 5}, {12, 13}};
    const int32_t from[7] = {0, 1, 3, 4, 5, 2, 6};
    struct call c = routing();
    call_expect(&c, want, ((float[]){0, 1, 3, 4, 5, 2, 6}), from, ((int32_t[]){3, 2, 2}));
    const int64_t wide[2][3] = {{2, 0, 1}, {1, 2, 1}};
    c = routing(); /* without scales, and counts of 64 bits */
    c.args[COUNTS] = (struct arg)ARG2(ACL_INT64, 2, 3, wide);
    c.args[TOTALS] = (struct arg)ARG1(ACL_INT64, 3, NULL);
    c.args[SCALES] = c.args[PERMUTED_SCALES] = (struct arg)NO_ARG;
    call_expect(&c, want, NULL, from, ((int64_t[]){3, 2, 2}));
}

static void reorder_rejects(void **state)
{
    (void)state;
    for (int i = 0; i < N_ROUTING; i++) {
        struct call c = routing();
        c.args[i] = (struct arg)NO_ARG;
        if (i != SCALES)
            call_rejected(&c, 161001, "null");
        c = routing();
        c.args[i].type = ACL_DOUBLE;
        c.args[i].data = NULL; /* it would be larger */
        call_rejected(&c, 161002, "type");
        c = routing();
        c.args[i].dims[0] -= 1;
        call_rejected(&c, 161002, "extent"); /* of the counts: they add up to less */
    }
    static const int32_t more[2][3] = {{2, 0, 1}, {1, 2, 2}}, less[2][3] = {{2, 0, 1}, {1, 2, 0}},
                         negative[2][3] = {{2, -1, 2}, {1, 2, 1}};
    const void *const wrong[] = {more, less, negative};
    for (int i = 0; i < 3; i++) {
        struct call c = routing();
        c.args[COUNTS].data = wrong[i];
        call_rejected(&c, 161002, "counts");
    }
    for (int i = 0; i < 2; i++) {
        struct call c = routing();
        c.number[i] = !c.number[i];
        call_rejected(&c, 161002, "type of result");
    }
}

/* ---- Rows of a range of experts ---------------------------------------------------------------------- */

enum { V3_X, V3_IDS, V3_SCALE, V3_ROWS, V3_AT, V3_COUNTS, V3_SCALES, N_V3 };

static struct {
    int64_t active, experts, drop_pad, kind, quant, range[2], row_type;
    uint64_t range_size;
    bool flag;
} v3;

static aclnnStatus ask_v3(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    aclIntArray *range = v3.range_size > 0 ? aclCreateIntArray(v3.range, v3.range_size) : NULL;
    const aclnnStatus st = aclnnMoeInitRoutingV3GetWorkspaceSize(
        a[V3_X].tensor, a[V3_IDS].tensor, a[V3_SCALE].tensor, NULL, v3.active, 0, v3.experts, v3.drop_pad,
        v3.kind, v3.flag, v3.quant, range, v3.row_type, a[V3_ROWS].tensor, a[V3_AT].tensor,
        a[V3_COUNTS].tensor, a[V3_SCALES].tensor, size, e);
    assert_int_equal(aclDestroyIntArray(range), 0);
    return st;
}

/* Experts 2 to 4 of 6. */
static struct call range_routing(int64_t kind, bool scaled)
{
    static const float x[3][2] = {{10, 11}, {20, 21}, {30, 31}}, scale[3] = {.5f, .25f, 2};
    static const int32_t ids[3][2] = {{4, 0}, {2, 4}, {5, 2}};
    struct call c = {.op = "aclnnMoeInitRoutingV3",
                     .count = N_V3,
                     .first_output = V3_ROWS,
                     .ask = ask_v3,
                     .execute = aclnnMoeInitRoutingV3};
    v3.active = 6;
    v3.experts = 6;
    v3.drop_pad = 0;
    v3.kind = kind;
    v3.quant = -1;
    v3.range[0] = 2;
    v3.range[1] = 5;
    v3.range_size = 2;
    v3.row_type = 0;
    v3.flag = true;
    c.args[V3_X] = (struct arg)ARG2(ACL_FLOAT, 3, 2, x);
    c.args[V3_IDS] = (struct arg)ARG2(ACL_INT32, 3, 2, ids);
    if (scaled)
        c.args[V3_SCALE] = (struct arg)ARG1(ACL_FLOAT, 3, scale);
    c.args[V3_ROWS] = (struct arg)ARG2(ACL_FLOAT, 6, 2, NULL);
    c.args[V3_AT] = (struct arg)ARG1(ACL_INT32, 6, NULL);
    c.args[V3_COUNTS] =
        kind == 2 ? (struct arg)ARG2(ACL_INT64, 6, 2, NULL) : (struct arg)ARG1(ACL_INT64, 3, NULL);
    c.args[V3_SCALES] = (struct arg)ARG1(ACL_FLOAT, 6, NULL);
    return c;
}

static void routes_a_range(void **state)
{
    (void)state;
    const float moved[6][2] = {{20, 21}, {30, 31}, {10, 11}, {20, 21}}, scales[6] = {.25f, 2, .5f, .25f};
    const int32_t at[6] = {2, -1, 0, 3, -1, 1};
    struct call c = range_routing(1, true);
    call_expect(&c, moved, at, ((int64_t[]){2, 0, 2}), scales);
    c = range_routing(2, false); /* pairs; scales are not written */
    v3.row_type = 1;
    call_expect(&c, moved, ((int32_t[]){2, 5, 0, 3, -1, -1}), ((int64_t[6][2]){{2, 2}, {4, 2}}), NULL);
    c = range_routing(1, false); /* all experts */
    v3.range_size = 0;
    c.args[V3_COUNTS].dims[0] = 6;
    const float all[6][2] = {{10, 11}, {20, 21}, {30, 31}, {10, 11}, {20, 21}, {30, 31}};
    call_expect(&c, all, ((int32_t[]){3, 0, 1, 4, 5, 2}), ((int64_t[]){1, 0, 2, 0, 2, 1}), NULL);
    c = range_routing(1, false); /* none of them */
    v3.range[1] = 2;
    c.args[V3_COUNTS].dims[0] = 0;
    call_expect(&c, ((float[12]){0}), ((int32_t[]){-1, -1, -1, -1, -1, -1}), NULL, NULL);
}

static void range_rejects(void **state)
{
    (void)state;
    const struct {
        int64_t *number, value;
    } wrong[] = {{&v3.active, 5},
                 {&v3.experts, 0},
                 {&v3.experts, 10241},
                 {&v3.drop_pad, 1},
                 {&v3.kind, 0},
                 {&v3.quant, 0},
                 {&v3.quant, 1},
                 {&v3.range[0], -1},
                 {&v3.range[1], 7},
                 {&v3.range[0], 6},
                 {&v3.row_type, 2},
                 {&v3.row_type, -1},
                 {&v3.range[0], INT64_MIN},
                 {&v3.range[1], INT64_MIN}};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct call c = range_routing(1, true);
        *wrong[i].number = wrong[i].value;
        call_rejected(&c, 561002, "number");
    }
    struct call c = range_routing(1, true);
    v3.flag = false;
    call_rejected(&c, 561002, "flag");
    for (int i = 0; i < N_V3; i++) {
        c = range_routing(1, true);
        c.args[i] = (struct arg)NO_ARG;
        if (i != V3_SCALE)
            call_rejected(&c, 161001, "null");
        c = range_routing(1, true);
        c.args[i].type = ACL_DOUBLE;
        c.args[i].data = NULL; /* it has fewer bytes than a spoiled tensor */
        call_rejected(&c, 161002, "type");
        c = range_routing(1, true);
        c.args[i].dims[0]++;
        c.args[i].data = NULL;
        if (i == V3_X)
            continue; /* the first size that others are compared with */
        call_rejected(&c, 161002, "shape");
    }
    c = range_routing(1, true); /* choices that cannot be counted */
    c.args[V3_X].dims[0] = c.args[V3_IDS].dims[1] = INT64_C(1) << 40;
    c.args[V3_X].dims[1] = c.args[V3_IDS].dims[0] = 0;
    call_rejected(&c, 161002, "choices");
    const int32_t ids[3][2] = {{4, 0}, {2, 6}, {5, 2}};
    c = range_routing(1, true);
    c.args[V3_IDS].data = ids;
    call_rejected(&c, 161002, "an expert");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),         cmocka_unit_test(filter_rejects), cmocka_unit_test(reorders),
        cmocka_unit_test(reorder_rejects), cmocka_unit_test(routes_a_range), cmocka_unit_test(range_rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
