/*
 * Truth for moe_convert_indices: every element of the output searches the whole input. Only for permutations that are
 * right; what is rejected is in the tests.
 */
#ifndef SWITCHYARD_ORACLE_MOE_CONVERT_INDICES_H
#define SWITCHYARD_ORACLE_MOE_CONVERT_INDICES_H

#include <stdint.h>

#include <switchyard.h>

struct convert_case {
    sy_index_form from, to;
    int64_t tokens, rows, slots, experts; /* slots of a SLOT form, experts of a TE form */
    const int32_t *in;
    const int64_t *offsets; /* [E+1] when `to` is TE */
};

void oracle_moe_convert_indices(const struct convert_case *c, int32_t *out);

#endif
