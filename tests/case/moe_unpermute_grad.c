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

/* Sizes that exist only on paper. */
static void paper(struct call *c, int64_t tokens, int64_t experts, int64_t rows, int64_t hidden)
{
    sy_moe_unpermute_grad_args *const a = case_args(c);
    a->permuted_tokens = a->probs = a->grad_probs = NULL;
    call_reshape(c, "grad_tokens", tokens, hidden);
    call_reshape(c, "routing_map", tokens, experts);
    call_reshape(c, "sorted_indices", rows, 0);
}

static void too_many_tokens(struct call *c)
{
    paper(c, INT64_C(1) << 31, 1, 0, 1);
}

static void too_many_elements(struct call *c)
{
    paper(c, 1, 1, 0, INT64_C(1) << 31);
}

static void too_many_rows(struct call *c)
{
    paper(c, 1, 1, INT64_C(1) << 31, 1);
}

static void too_many_experts(struct call *c)
{
    paper(c, 1, INT64_C(1) << 31, 0, 1);
}

static void too_many_bytes(struct call *c)
{
    paper(c, 1, 1, INT32_MAX, INT32_MAX);
}

static const struct rejection rejections[] = {
    {"grad_probs without probs", NO_TENSOR("probs"), .found = "is missing while grad_probs is given"},
    {"rows of another type", BAD_TYPE("permuted_tokens", kDLFloat, 16, 1), .found = "is f16",
     .wanted = "f32"},
    {"2^31 tokens", BAD_CALL(too_many_tokens, SY_ERR_VALUE, "grad_tokens", "2147483648", "2147483647"),
     .inputs = true},
    {"2^31 elements", BAD_CALL(too_many_elements, SY_ERR_VALUE, "grad_tokens", "2147483648", "2147483647"),
     .inputs = true},
    {"2^31 rows", BAD_CALL(too_many_rows, SY_ERR_VALUE, "sorted_indices", "2147483648", "2147483647"),
     .inputs = true},
    {"2^31 experts", BAD_CALL(too_many_experts, SY_ERR_VALUE, "routing_map", "2147483648", "2147483647"),
     .inputs = true},
    {"2^64 bytes", BAD_CALL(too_many_bytes, SY_ERR_OVERFLOW, "grad_permuted_tokens", NULL, "2^63"),
     .inputs = true},
    {.name = NULL},
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
