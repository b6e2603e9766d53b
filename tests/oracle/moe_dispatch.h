/*
 * Truth for moe_dispatch: the sequential loop of the definition on dense arrays, with exact products.
 */
#ifndef SWITCHYARD_ORACLE_MOE_DISPATCH_H
#define SWITCHYARD_ORACLE_MOE_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dispatch_type { DISPATCH_F32, DISPATCH_F16, DISPATCH_BF16 };

struct dispatch_case {
    int64_t samples, experts, capacity, hidden; /* S, E, C, H                                           */
    enum dispatch_type type, gate_type;
    bool zero_unwritten;
    const void *gates;                  /* [S]; NULL: all ones                                  */
    const int32_t *indices, *locations; /* [S]                                                  */
    const void *input;                  /* [S,H]; NULL: the rows of `dispatch` itself           */
};

/* `dispatch` [E*C,H] holds the old contents and receives the new. In place it must have at least S rows. */
void oracle_moe_dispatch(const struct dispatch_case *in, void *dispatch);

/* One product, as the definition rounds it; x and the result are bits of `type`. */
uint32_t oracle_dispatch_product(enum dispatch_type type, double gate, uint32_t x);

/* The exact value of bits of `type`. */
double oracle_dispatch_value(enum dispatch_type type, uint32_t bits);

#endif
