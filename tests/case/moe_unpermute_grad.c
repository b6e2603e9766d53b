/*
 * moe_unpermute_grad: gradients of rows, and of probs as dot products.
 */
#include "rows.h"

static void make(struct call *c)
{
    const bool weighted = case_flag(c, "probs");
    rows_make(c, 0, weighted, false);
    case_fill_floats(c, case_in(c, "grad_tokens"));
    if (weighted || case_chance(c, "permuted_tokens", 4))
        case_fill_floats(c, case_in(c, "permuted_tokens"));
    case_field(c, "routing_map")->given |= weighted;
    if (weighted)
        case_fill_floats(c, case_in(c, "probs"));
}

static void oracle(struct call *c)
{
    const struct operand *const grad = case_field(c, "grad_tokens");
    const struct rows_case in = rows_of(c, grad, "probs", case_field(c, "probs")->given);
    struct rows_pairs pairs = rows_pairs(c, &in);
    c->query.rows = in.rows;
    if (c->want.status == SY_OK)
        oracle_unpermute_grad(&in, &pairs, grad->dense, case_dense(c, "permuted_tokens"),
                              case_want(c, "grad_permuted_tokens"), case_want(c, "grad_probs"));
    oracle_pairs_free(&pairs);
}

#define ROWS_ALONE " permuted_tokens,probs,grad_probs=-"
static const struct rejection rejections[] = {
    {"probs=-", SY_ERR_NULL, "is missing while grad_probs is given", .late = true},
    {"grad_tokens.shape=[2^31,1] routing_map.shape=[2^31,1] sorted_indices.shape=[0]" ROWS_ALONE,
     SY_ERR_VALUE, "2147483648", "2147483647"},
    {"grad_tokens.shape=[1,2^31] routing_map.shape=[1,1] sorted_indices.shape=[0]" ROWS_ALONE, SY_ERR_VALUE,
     "2147483648", "2147483647"},
    {"grad_tokens.shape=[1,1] routing_map.shape=[1,1] sorted_indices.shape=[2^31]" ROWS_ALONE, SY_ERR_VALUE,
     "2147483648", "2147483647", .blame = "sorted_indices"},
    {"grad_tokens.shape=[1,1] routing_map.shape=[1,2^31] sorted_indices.shape=[0]" ROWS_ALONE, SY_ERR_VALUE,
     "2147483648", "2147483647", .blame = "routing_map"},
    {"grad_tokens.shape=[1,2^31-1] routing_map.shape=[1,1] sorted_indices.shape=[2^31-1]" ROWS_ALONE,
     SY_ERR_OVERFLOW, NULL, "2^63", .blame = "grad_permuted_tokens"},
    {.change = NULL},
};

const struct op_case case_moe_unpermute_grad = {
    .name = "moe_unpermute_grad",
    .make = make,
    .oracle = oracle,
    .hard = {ROWS_HARD},
    .small = "T=6 E=5 K=2 H=7 f32 probs grad_probs",
    .shapes = {"T=77 E=19 K=3 H=1040 bf16 probs grad_probs style=1", "T=77 E=300 K=8 H=520 probs grad_probs",
               "T=77 E=19 K=2 H=2048 f16 probs grad_probs style=2", "T=33 E=20 K=16 H=256 style=1",
               "T=33 E=300 K=8 H=9216 probs grad_probs style=1 f32",
               "T=33 E=19 K=1 H=8192 bf16 probs grad_probs style=1",
               "T=41 E=6 K=30 H=2056 drop_and_pad probs grad_probs zero_pad style=1"},
    .lines = {"T=2003 E=301 K=3 H=131 probs grad_probs style=1",
              "T=2003 E=301 K=20 H=131 probs grad_probs style=1 drop_and_pad",
              "T=3 E=5 K=2 H=20000 probs grad_probs style=1"},
    .rejections = rejections,
    .calls = 180,
};
