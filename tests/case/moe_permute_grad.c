/*
 * moe_permute_grad: the sum of the gradients of each token's rows, and the gradients of probs at their places.
 */
#include "rows.h"

static void make(struct call *c)
{
    sy_moe_permute_grad_args *const a = case_args(c);
    const bool probs = case_flag(c, "grad_permuted_probs");
    rows_make(c, 1, probs, false);
    case_fill_floats(c, case_in(c, "grad_permuted_tokens"));
    if (probs)
        case_fill(c, case_in(c, "grad_permuted_probs"));
    a->num_experts = case_get_extent(c, "E");
    a->num_tokens = case_get_extent(c, "T");
}

static void oracle(struct call *c)
{
    const struct operand *const rows = case_field(c, "grad_permuted_tokens");
    const struct operand *const values = case_field(c, "grad_permuted_probs");
    struct rows_case in = rows_of(c, rows, NULL, case_field(c, "grad_probs")->given);
    struct rows_pairs pairs = rows_pairs(c, &in);
    c->query.rows = in.tokens;
    if (c->want.status == SY_OK)
        oracle_unpermute(&in, &pairs, rows->dense, case_want(c, "grad_tokens"));
    if (c->want.status == SY_OK && in.by_expert) {
        in.prob_type = case_number(values);
        oracle_grad_probs(&in, &pairs, values->dense, case_want(c, "grad_probs"));
    }
    oracle_pairs_free(&pairs);
}

/* Without its source the tensor is not read: no shape, no type, no data. */
static void odd_grad_probs(struct call *c)
{
    static const DLTensor odd = {.ndim = 2, .dtype = {6, 8, 1}, .device = {kDLCPU, 0}};
    sy_moe_permute_grad_args *const a = case_args(c);
    a->grad_probs = &odd;
}

static const struct rejection rejections[] = {
    {"routing_map.shape[1]=6", SY_ERR_SHAPE, "[6,6]", "[6,5]",
     .line = "T=6 E=5 K=2 H=7 f32 grad_permuted_probs grad_permuted_probs=f32"},
    {"grad_permuted_tokens.shape=[2^31,1] sorted_indices,grad_permuted_probs.shape=[2^31] num_tokens=1 "
     "num_experts=1",
     SY_ERR_VALUE, "2147483648", "2147483647"},
    {"grad_permuted_tokens.shape=[0,2^31] sorted_indices,grad_permuted_probs.shape=[0] num_tokens=1 "
     "num_experts=1",
     SY_ERR_VALUE, "2147483648", "2147483647"},
    {"grad_permuted_tokens.shape=[0,2^31-1] sorted_indices,grad_permuted_probs.shape=[0] num_tokens=2^31-1 "
     "num_experts=1",
     SY_ERR_OVERFLOW, NULL, "2^63", .blame = "grad_tokens"},
    {"grad_permuted_tokens.shape=[0,1] sorted_indices,grad_permuted_probs.shape=[0] num_tokens=2^31-1 "
     "num_experts=2^31-1",
     SY_ERR_OVERFLOW, NULL, "2^63", .blame = "grad_probs"},
    {"", SY_OK, .with = odd_grad_probs, .line = "T=9 E=5 K=2 H=4"},
    {.change = NULL},
};

const struct op_case case_moe_permute_grad = {
    .name = "moe_permute_grad",
    .make = make,
    .oracle = oracle,
    .hard = {ROWS_NO_WEIGHTS},
    .small = "T=6 E=5 K=2 H=7 f32 grad_permuted_probs grad_permuted_probs=f32 drop_and_pad",
    .shapes = {"T=77 E=37 K=4 H=1040 bf16 style=1 grad_permuted_probs grad_probs",
               "T=77 E=300 K=8 H=520 grad_permuted_probs grad_probs",
               "T=77 E=37 K=33 H=256 f16 grad_permuted_probs grad_probs style=2",
               "T=33 E=20 K=16 H=3080 style=1",
               "T=41 E=6 K=30 H=2056 drop_and_pad zero_pad style=1 grad_permuted_probs grad_probs"},
    .lines = {"T=2003 E=301 K=3 H=131 style=1 grad_permuted_probs grad_probs",
              "T=2003 E=301 K=20 H=131 style=1 drop_and_pad grad_permuted_probs grad_probs",
              "T=4096 E=256 K=16 H=8 style=3 drop_and_pad grad_permuted_probs grad_probs"},
    .rejections = rejections,
    .calls = 240,
};
