/*
 * Truth for moe_dispatch_grad_gate on dense arrays: the definition lane by lane with exact products, and the same dot
 * product in double, whose error is far below that of any sum in f32.
 */
#ifndef SWITCHYARD_ORACLE_MOE_DISPATCH_GRAD_GATE_H
#define SWITCHYARD_ORACLE_MOE_DISPATCH_GRAD_GATE_H

#include "moe_dispatch.h"

struct grad_gate_case {
    int64_t choices, samples, experts, capacity, hidden; /* k, S, E, C, H */
    enum dispatch_type type, gate_type;
    const int32_t *indices, *locations; /* [k,S]          */
    const void *input, *slots;          /* [S,H], [E*C,H] */
};

/* grad_gates [k,S] in bits of gate_type, packed. */
void oracle_moe_dispatch_grad_gate(const struct grad_gate_case *in, void *grad_gates);

/* One of them in double; *size is the sum of the absolute products. */
double oracle_gate_f64(const struct grad_gate_case *in, int64_t choice, int64_t sample, double *size);

#endif
