/* Permute and unpermute by expert numbers through the aclnn layer, with their gradients: by hand, and the rejections. */
#include "aclnn.h"

#include "aclnnop/aclnn_moe_token_permute.h"
#include "aclnnop/aclnn_moe_token_permute_grad.h"
#include "aclnnop/aclnn_moe_token_unpermute.h"
#include "aclnnop/aclnn_moe_token_unpermute_grad.h"

enum { TOKENS, IDS, PERMUTED, INDICES, N_PERMUTE };
enum { ROWS, SORTED, PROBS, OUT, N_UNPERMUTE };
enum { GRAD_IN, GRAD_SORTED, GRAD_OUT, N_PERMUTE_GRAD };
enum { FORWARD, GRAD, PLACES, WEIGHTS, GRAD_ROWS, GRAD_PROBS, N_GRAD };

static bool padded;

static aclnnStatus ask_permute(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeTokenPermuteGetWorkspaceSize(a[TOKENS].tensor, a[IDS].tensor, c->number[0], padded,
                                                a[PERMUTED].tensor, a[INDICES].tensor, size, e);
}

static aclnnStatus ask_unpermute(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeTokenUnpermuteGetWorkspaceSize(a[ROWS].tensor, a[SORTED].tensor, a[PROBS].tensor, padded,
                                                  NULL, a[OUT].tensor, size, e);
}

static aclnnStatus ask_permute_grad(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeTokenPermuteGradGetWorkspaceSize(a[GRAD_IN].tensor, a[GRAD_SORTED].tensor, c->number[0],
                                                    padded, a[GRAD_OUT].tensor, size, e);
}

static aclnnStatus ask_grad(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeTokenUnpermuteGradGetWorkspaceSize(a[FORWARD].tensor, a[GRAD].tensor, a[PLACES].tensor,
                                                      a[WEIGHTS].tensor, padded, NULL, a[GRAD_ROWS].tensor,
                                                      a[GRAD_PROBS].tensor, size, e);
}

#define CALL(name, asked, executed, inputs, all) \
    { \
        .op = name, .count = (all), .first_output = (inputs), .ask = (asked), .execute = (executed) \
    }

/* Three tokens, two experts each: rows of experts 0, 0, 1, 2, 2, 2. */
static const float x[3][2] = {{10, 11}, {20, 21}, {30, 31}};
static const int32_t ids[3][2] = {{2, 0}, {1, 2}, {0, 2}}, sorted[6] = {3, 0, 2, 4, 1, 5};
static const float rows[6][2] = {{10, 11}, {30, 31}, {20, 21}, {10, 11}, {20, 21}, {30, 31}};

static struct call permute(void)
{
    struct call c = CALL("aclnnMoeTokenPermute", ask_permute, aclnnMoeTokenPermute, PERMUTED, N_PERMUTE);
    padded = false;
    c.args[TOKENS] = (struct arg)ARG2(ACL_FLOAT, 3, 2, x);
    c.args[IDS] = (struct arg)ARG2(ACL_INT32, 3, 2, ids);
    c.args[PERMUTED] = (struct arg)ARG2(ACL_FLOAT, 6, 2, NULL);
    c.args[INDICES] = (struct arg)ARG1(ACL_INT32, 6, NULL);
    return c;
}

static void permutes(void **state)
{
    (void)state;
    struct call c = permute();
    call_expect(&c, rows, sorted);
    const int64_t kept[3] = {4, -2, 9}, count[3] = {4, 4, 6};
    for (int i = 0; i < 3; i++) {
        c = permute();
        c.number[0] = kept[i];
        c.args[PERMUTED].dims[0] = count[i];
        call_expect(&c, rows, sorted);
    }
    const int64_t wide[3] = {7, -5, 7};
    c = permute(); /* one expert each, in a vector of any numbers */
    c.args[IDS] = (struct arg)ARG1(ACL_INT64, 3, wide);
    c.args[PERMUTED].dims[0] = 3;
    c.args[INDICES].dims[0] = 3;
    call_expect(&c, ((float[]){20, 21, 10, 11, 30, 31}), ((int32_t[]){1, 0, 2}));
    c = permute(); /* rows of every other element */
    float spaced[3][2] = {{10, 11}, {20, 21}, {30, 31}};
    c.args[TOKENS] = (struct arg){
        .type = ACL_FLOAT, .rank = 2, .dims = {3, 2}, .strides = {5, 2}, .strided = true, .data = spaced};
    call_expect(&c, rows, sorted);
}

static const float probs[3][2] = {{.5f, .25f}, {1, 0}, {-2, 4}};

static struct call unpermute(bool weighted)
{
    struct call c = CALL("aclnnMoeTokenUnpermute", ask_unpermute, aclnnMoeTokenUnpermute, OUT, N_UNPERMUTE);
    padded = false;
    c.args[ROWS] = (struct arg)ARG2(ACL_FLOAT, 6, 2, rows);
    c.args[SORTED] = (struct arg)ARG1(ACL_INT32, 6, sorted);
    if (weighted)
        c.args[PROBS] = (struct arg)ARG2(ACL_FLOAT, 3, 2, probs);
    c.args[OUT] = (struct arg)ARG2(ACL_FLOAT, weighted ? 3 : 6, 2, NULL);
    return c;
}

static void unpermutes(void **state)
{
    (void)state;
    struct call c = unpermute(true);
    call_expect(&c, ((float[]){7.5f, 8.25f, 20, 21, 60, 62}));
    c = unpermute(false);
    call_expect(&c, ((float[]){10, 11, 10, 11, 20, 21, 20, 21, 30, 31, 30, 31}));
    c = unpermute(true); /* dropped rows add nothing */
    c.args[ROWS].dims[0] = 4;
    call_expect(&c, ((float[]){7.5f, 8.25f, 20, 21, -60, -62}));
}

static struct call permute_grad(void)
{
    struct call c = CALL("aclnnMoeTokenPermuteGrad", ask_permute_grad, aclnnMoeTokenPermuteGrad, GRAD_OUT,
                         N_PERMUTE_GRAD);
    padded = false;
    c.args[GRAD_IN] = (struct arg)ARG2(ACL_FLOAT, 6, 2, rows);
    c.args[GRAD_SORTED] = (struct arg)ARG1(ACL_INT32, 6, sorted);
    c.args[GRAD_OUT] = (struct arg)ARG2(ACL_FLOAT, 3, 2, NULL);
    c.number[0] = 2;
    return c;
}

static void permute_grads(void **state)
{
    (void)state;
    struct call c = permute_grad();
    call_expect(&c, ((float[]){20, 22, 40, 42, 60, 62}));
    c = permute_grad();
    c.number[0] = 1;
    c.args[GRAD_OUT].dims[0] = 6;
    call_expect(&c, ((float[]){10, 11, 10, 11, 20, 21, 20, 21, 30, 31, 30, 31}));
}

static const int32_t one_each[3] = {2, 0, 1};
static const float g[3][2] = {{1, 2}, {3, 4}, {5, 6}};

static struct call unpermute_grad(bool weighted)
{
    struct call c =
        CALL("aclnnMoeTokenUnpermuteGrad", ask_grad, aclnnMoeTokenUnpermuteGrad, GRAD_ROWS, N_GRAD);
    padded = false;
    c.args[FORWARD] = (struct arg)ARG2(ACL_FLOAT, 6, 2, rows);
    c.args[GRAD] = (struct arg)ARG2(ACL_FLOAT, 3, 2, g);
    c.args[PLACES] = (struct arg)ARG1(ACL_INT32, 6, sorted);
    c.args[WEIGHTS] = (struct arg)ARG2(ACL_FLOAT, 3, 2, probs);
    c.args[GRAD_ROWS] = (struct arg)ARG2(ACL_FLOAT, 6, 2, NULL);
    c.args[GRAD_PROBS] = (struct arg)ARG2(ACL_FLOAT, 3, 2, NULL);
    if (!weighted) {
        c.args[FORWARD] = c.args[WEIGHTS] = c.args[GRAD_PROBS] = (struct arg)NO_ARG;
        c.args[PLACES] = (struct arg)ARG1(ACL_INT32, 3, one_each);
        c.args[GRAD_ROWS].dims[0] = 3;
    }
    return c;
}

static void unpermute_grads(void **state)
{
    (void)state;
    /* rows 3, 0 of token 0; 2, 4 of token 1, the second of weight 0; 1, 5 of token 2 */
    const float d[6][2] = {{.25f, .5f}, {-10, -12}, {3, 4}, {.5f, 1}, {0, 0}, {20, 24}};
    const float dots[3][2] = {{10 + 22, 10 + 22}, {60 + 84, 60 + 84}, {150 + 186, 150 + 186}};
    struct call c = unpermute_grad(true);
    call_expect(&c, d, dots);
    c = unpermute_grad(false);
    call_expect(&c, ((float[]){3, 4, 5, 6, 1, 2}), NULL);
    c = unpermute_grad(true); /* dropped rows: their weights have no gradient */
    c.args[FORWARD].dims[0] = c.args[GRAD_ROWS].dims[0] = 4;
    call_expect(&c, d, ((float[]){32, 32, 144, 0, 336, 0}));
    c = unpermute_grad(true); /* gradients of weights in rows with a stride */
    c.args[GRAD_PROBS].strided = true;
    c.args[GRAD_PROBS].strides[0] = 5;
    c.args[GRAD_PROBS].strides[1] = 1;
    call_expect(&c, d, dots);
    for (int i = 0; i < 2; i++) { /* no tokens, or none of their choices: rows have no gradient */
        c = unpermute_grad(true);
        c.args[PLACES].dims[0] = 0;
        c.args[GRAD].dims[0] = c.args[WEIGHTS].dims[0] = c.args[GRAD_PROBS].dims[0] = i ? 3 : 0;
        c.args[WEIGHTS].dims[1] = c.args[GRAD_PROBS].dims[1] = i ? 0 : 2;
        call_expect(&c, ((float[12]){0}), NULL);
    }
    uint16_t wide[3][2]; /* rows of BF16 with weights of FLOAT */
    c = unpermute_grad(true);
    for (int i = 0; i < 6; i++) {
        uint32_t bits;
        memcpy(&bits, &g[i / 2][i % 2], sizeof bits);
        wide[i / 2][i % 2] = (uint16_t)(bits >> 16);
    }
    static uint16_t narrow[6][2], want[6][2];
    for (int i = 0; i < 12; i++) {
        uint32_t bits;
        memcpy(&bits, &rows[i / 2][i % 2], sizeof bits);
        narrow[i / 2][i % 2] = (uint16_t)(bits >> 16);
        memcpy(&bits, &d[i / 2][i % 2], sizeof bits);
        want[i / 2][i % 2] = (uint16_t)(bits >> 16); /* all of these are exact */
    }
    c.args[FORWARD] = (struct arg)ARG2(ACL_BF16, 6, 2, narrow);
    c.args[GRAD] = (struct arg)ARG2(ACL_BF16, 3, 2, wide);
    c.args[GRAD_ROWS] = (struct arg)ARG2(ACL_BF16, 6, 2, NULL);
    call_expect(&c, want, dots);
}

/* ---- Rejections -------------------------------------------------------------------------------------- */

static struct call make(int which)
{
    return which == 0   ? permute()
           : which == 1 ? unpermute(true)
           : which == 2 ? permute_grad()
                        : unpermute_grad(true);
}

static void rejects(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        struct call c = make(which);
        for (int i = 0; i < c.count; i++) {
            const bool optional = (which == 1 && i == PROBS) || (which == 3 && i == WEIGHTS);
            c = make(which);
            c.args[i] = (struct arg)NO_ARG;
            call_rejected(&c, optional ? 161002 : 161001, "null"); /* other shapes follow from no probs */
            c = make(which);
            c.args[i].type = ACL_DOUBLE;
            c.args[i].data = NULL; /* it would be larger */
            call_rejected(&c, 161002, "type");
            c = make(which);
            c.args[i].dims[0] -= 1;
            if (!(which == 1 && i == ROWS) && !(which == 2 && i == GRAD_IN)) /* fewer rows are dropped rows */
                call_rejected(&c, 161002, "extent");
        }
        c = make(which);
        padded = true;
        call_rejected(&c, 161002, "mode");
    }
    static const int32_t below[6] = {3, 0, 2, 4, -2, 5}, beyond[6] = {3, 0, 2, 4, 1, 6};
    for (int i = 0; i < 2; i++) {
        struct call c = unpermute(true);
        c.args[SORTED].data = i ? below : beyond;
        call_rejected(&c, 161002, "index");
        c = permute_grad();
        c.args[GRAD_SORTED].data = i ? below : beyond;
        call_rejected(&c, 161002, "index");
        c = unpermute_grad(true);
        c.args[PLACES].data = i ? below : beyond;
        call_rejected(&c, 161002, "index");
    }
    static const int32_t twice[6] = {3, 0, 2, 4, 1, 3};
    struct call both = unpermute_grad(true); /* the gradient of the row would be a sum */
    both.args[PLACES].data = twice;
    call_rejected(&both, 161002, "twice");
    for (int i = 0; i < 2; i++) { /* three places: for one token of two choices, for three tokens of none */
        struct call c = unpermute_grad(true);
        c.args[PLACES] = (struct arg)ARG1(ACL_INT32, 3, one_each);
        c.args[GRAD].dims[0] = c.args[WEIGHTS].dims[0] = c.args[GRAD_PROBS].dims[0] = i ? 3 : 1;
        c.args[WEIGHTS].dims[1] = c.args[GRAD_PROBS].dims[1] = i ? 0 : 2;
        call_rejected(&c, 161002, "places");
    }
    struct call c = permute_grad();
    c.number[0] = 0;
    call_rejected(&c, 161002, "numTopk");
    c = permute_grad();
    c.number[0] = 4;
    call_rejected(&c, 161002, "numTopk");
    c = permute();
    c.number[0] = -7;
    call_rejected(&c, 161002, "numOutTokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutes),        cmocka_unit_test(unpermutes), cmocka_unit_test(permute_grads),
        cmocka_unit_test(unpermute_grads), cmocka_unit_test(rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
