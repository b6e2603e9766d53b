/*
 * Truth for moe_combine and moe_dispatch_grad_gate on dense arrays: products are exact in double, every rounding is
 * asked for by name, and sums are exact integers before they are rounded.
 */
#ifndef SWITCHYARD_ORACLE_MOE_COMBINE_H
#define SWITCHYARD_ORACLE_MOE_COMBINE_H

#include "moe_dispatch.h"

struct combine_case {
    int64_t choices, samples, experts, capacity, hidden; /* k, S, E, C, H */
    enum dispatch_type type, gate_type;
    const void *gates;                  /* [k,S]; NULL: all ones */
    const int32_t *indices, *locations; /* [k,S]                 */
    const void *slots;                  /* [E*C,H]               */
};

/* output [S,H]. */
void oracle_moe_combine(const struct combine_case *in, void *output);

/* a + b of two f32 values, rounded to f32. */
float oracle_sum(float a, float b);

#endif
