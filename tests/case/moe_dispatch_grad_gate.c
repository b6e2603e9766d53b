/*
 * moe_dispatch_grad_gate: the dot product of each sample's row with the slot of each choice.
 */
#include "case.h"

#include <math.h>

#include "oracle/sum.h"

static void make(struct call *c)
{
    sy_moe_dispatch_grad_gate_args *const a = case_args(c);
    case_size(c, "k", 0, 3, 20);
    case_size(c, "S", 0, 20, 60);
    a->num_experts = case_size(c, "E", 0, 5, 9);
    a->capacity = case_size(c, "C", 0, 6, 12);
    const int64_t hidden = case_size(c, "H", 0, 90, 600);
    if (case_chance(c, "vectors", 4)) /* rows of whole vectors, which a device reads as such */
        case_extent(c, "H", hidden / 8 * 8);
    if (case_chance(c, "long", 20)) { /* several blocks */
        case_extent(c, "S", 1 + case_pick(c, "few", 3));
        case_extent(c, "H", 8192 * (1 + case_pick(c, "blocks", 2)) + (hidden > 45 ? hidden : hidden % 2));
    }
    case_fill_indices(c, case_in(c, "indices"), a->num_experts, 9);
    case_fill_indices(c, case_in(c, "locations"), a->capacity, 9);
    case_fill_floats(c, case_in(c, "input"));
    case_fill_floats(c, case_in(c, "dispatch"));
}

static void oracle(struct call *c)
{
    enum { BLOCK = 8192 };
    const sy_moe_dispatch_grad_gate_args *const a = case_args(c);
    const struct operand *const input = case_field(c, "input"), *const slots = case_field(c, "dispatch");
    const struct operand *const gates = case_field(c, "grad_gates");
    const int64_t *const indices = case_wide(c, "indices"), *const locations = case_wide(c, "locations");
    const int64_t samples = input->shape[0], hidden = input->shape[1], n = case_count(gates);
    c->query.rows = n;
    for (int64_t at = 0; at < n; at++) {
        const int64_t e = indices[at], l = locations[at];
        const bool valid = e >= 0 && e < a->num_experts && l >= 0 && l < a->capacity;
        const float sum = !valid ? 0
                                 : oracle_dot(case_number(input), input->dense, at % samples * hidden,
                                              slots->dense, (e * a->capacity + l) * hidden, hidden);
        case_put_real(gates, gates->want, at, (double)sum);
        case_note(c, "skipped", !valid);
        case_note(c, "NaN", isnan(sum));
        case_note(c, "several blocks", valid && hidden > BLOCK);
    }
}

static const struct rejection rejections[] = {
    {"locations.ndim=1", SY_ERR_SHAPE, "[2]", "[2,9]"},
    {"locations.shape[1]=8", SY_ERR_SHAPE, "[2,8]", "[2,9]"},
    {"input.shape=[2^40,2^40] indices,locations.shape[1]=2^40", SY_ERR_OVERFLOW, "1099511627776", "2^63"},
    {"grad_gates.ndim=1", SY_ERR_SHAPE, "[2]", "[2,9]"},
    {"*.data=-", SY_OK, .line = "k=2 S=0 E=3 C=4 H=3"},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"capacity=-3", SY_ERR_VALUE},
    {"num_experts=2^62", SY_ERR_OVERFLOW, .blame = "num_experts|capacity"},
    {"grad_gates.shape[1]=8", SY_ERR_SHAPE},
    {.change = NULL},
};

const struct op_case case_moe_dispatch_grad_gate = {
    .name = "moe_dispatch_grad_gate",
    .make = make,
    .oracle = oracle,
    .hard = {"skipped", "NaN", "several blocks"},
    .small = "k=2 S=9 E=4 C=3 H=7 f32",
    .lines = {"k=1 S=3001 E=5 C=90 H=129 f32", "k=2 S=301 E=4 C=50 H=515 bf16",
              "k=2 S=1 E=1 C=2 H=130000 f32", "k=1 S=2 E=2 C=2 H=73728 f32", "k=1 S=3 E=1 C=2 H=98311 f16",
              "k=40 S=60 E=3 C=9 H=131 f16"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 240,
};
