/*
 * moe_combine: the rows of each sample's choices, added up.
 */
#include "case.h"

#include <math.h>

#include "oracle/sum.h"

static void make(struct call *c)
{
    sy_moe_combine_args *const a = case_args(c);
    case_size(c, "k", 0, 5, 20);
    case_size(c, "S", 0, 30, 90);
    a->num_experts = case_size(c, "E", 0, 6, 9);
    a->capacity = case_size(c, "C", 0, 12, 20);
    case_size(c, "H", 0, 70, 300);
    if (case_chance(c, "vectors", 4)) /* rows of whole vectors, which a device reads as such */
        case_extent(c, "H", 72);
    case_fill_floats(c, case_in(c, "expert_out"));
    case_fill_indices(c, case_in(c, "indices"), a->num_experts, 12);
    case_fill_indices(c, case_in(c, "locations"), a->capacity, 12);
    if (case_pick(c, "gated", 3) > 0)
        case_fill_floats(c, case_in(c, "gates"));
}

/* Products of sample i with their choices; how many there are. */
static int64_t products_of(struct call *c, int64_t i, int64_t h, float *products)
{
    const sy_moe_combine_args *const a = case_args(c);
    const struct operand *const indices = case_field(c, "indices"), *const rows = case_field(c, "expert_out");
    const struct operand *const gates = case_field(c, "gates"), *const locations = case_field(c, "locations");
    const int64_t samples = indices->shape[indices->rank - 1], hidden = rows->shape[1];
    int64_t n = 0;
    for (int64_t at = i; at < case_count(indices); at += samples) {
        const int64_t e = case_get(indices, at), l = case_get(locations, at);
        if (e < 0 || e >= a->num_experts || l < 0 || l >= a->capacity)
            continue;
        const double gate = gates->given ? case_real(gates, at) : 1;
        const double row = case_real(rows, (e * a->capacity + l) * hidden + h);
        products[n++] = (float)(gate * row);
    }
    return n;
}

static void oracle(struct call *c)
{
    const struct operand *const indices = case_field(c, "indices"), *const out = case_field(c, "output");
    const int64_t samples = out->shape[0], hidden = out->shape[1], n = case_count(indices);
    const int64_t choices = indices->rank == 2 ? indices->shape[0] : 1;
    float *const products = case_memory(c, (size_t)n * sizeof *products);
    const double least = out->element == 2 && out->type.code == kDLFloat ? 0x1p-14 : 0x1p-126;
    bool none = false, some = false, nan = false, minus_zero = false, subnormal = false, infinite = false;
    c->query.rows = samples;
    for (int64_t i = 0; i < samples; i++)
        for (int64_t h = 0; h < hidden; h++) {
            const int64_t valid = products_of(c, i, h, products);
            float sum = 0;
            for (int64_t j = 0; j < valid; j++) /* a single choice keeps the sign of zero */
                sum = choices == 1 ? products[j] : oracle_plus_product(sum, 1, (double)products[j]);
            case_put_real(out, out->want, i * hidden + h, (double)sum);
            none |= valid == 0;
            some |= valid > 0 && valid < choices;
            nan |= isnan(sum);
            minus_zero |= sum == 0 && signbit(sum);
            subnormal |= sum != 0 && fabs((double)sum) < least;
            infinite |= isinf(sum);
        }
    case_note(c, "no choice", none);
    case_note(c, "some choices", some);
    case_note(c, "NaN", nan);
    case_note(c, "-0", minus_zero);
    case_note(c, "subnormal", subnormal);
    case_note(c, "infinite", infinite);
}

static const struct rejection rejections[] = {
    {"gates.dtype=f16", SY_ERR_DTYPE, "f16", "want f32"},
    {"gates.dtype=f16 expert_out,output.dtype=bf16", SY_ERR_DTYPE, "f16", "want f32 or bf16"},
    {"gates.shape[1]=8", SY_ERR_SHAPE, "[2,8]", "[2,9]"},
    {"gates.ndim=1", SY_ERR_SHAPE, "[2]", "[2,9]"},
    {"gates.shape[0]=1", SY_ERR_SHAPE, "[1,9]", "[2,9]"},
    {"locations.shape[1]=10", SY_ERR_SHAPE, "[2,10]", "[2,9]"},
    {"locations.ndim=1", SY_ERR_SHAPE, "[2]", "[2,9]"},
    /* Every input can be counted, the output cannot. */
    {"indices,gates,locations.shape[1]=2^40 expert_out.shape=[0,2^40] capacity=0", SY_ERR_OVERFLOW,
     "1099511627776 samples", "2^63"},
    {"num_experts=2^31 capacity=2^29", SY_ERR_OVERFLOW, .blame = "num_experts|capacity"},
    {"*.data=-", SY_OK, .line = "k=2 S=0 E=3 C=4 H=8 gated=1"},
    {"*.data=-", SY_OK, .line = "k=2 S=8 E=3 C=4 H=0 gated=1"},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"capacity=-3", SY_ERR_VALUE},
    {"num_experts=2^62", SY_ERR_OVERFLOW, .blame = "num_experts|capacity"},
    {"output.shape[1]=8", SY_ERR_SHAPE},
    {.change = NULL},
};

const struct op_case case_moe_combine = {
    .name = "moe_combine",
    .make = make,
    .oracle = oracle,
    .hard = {"no choice", "some choices", "NaN", "-0", "subnormal", "infinite"},
    .small = "k=2 S=9 E=4 C=3 H=7 gated=1 f32",
    .shapes = {"k=4 S=50 E=4 C=20 H=1031 bf16 gated=1", "k=1 S=50 E=4 C=20 H=1031 f16 gated=1"},
    .lines = {"k=1 S=4001 E=5 C=100 H=65 f32 gated=1", "k=2 S=1001 E=8 C=150 H=129 bf16 gated=1",
              "k=8 S=201 E=16 C=60 H=257 f16 gated=1", "k=3 S=1 E=2 C=2 H=30001 f32 gated=1",
              "k=1 S=3 E=2 C=2 H=40003 f32 gated=1", "k=2 S=5 E=2 C=2 H=30011 bf16 gated=1",
              "k=300 S=40 E=4 C=50 H=33 f32 gated=1"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 300,
};
