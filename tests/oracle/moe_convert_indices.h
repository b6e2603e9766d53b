/*
 * Truth for moe_convert_indices: the token of each row, and every element of the output searches all rows.
 */
#ifndef SWITCHYARD_ORACLE_MOE_CONVERT_INDICES_H
#define SWITCHYARD_ORACLE_MOE_CONVERT_INDICES_H

#include <stdint.h>

#include <switchyard.h>

struct convert_case {
    sy_index_form from, to;
    int64_t tokens, rows, slots_in, slots_out, experts; /* slots of SLOT forms, experts of a TE form */
    const int32_t *in;
    const int64_t *offsets; /* [E+1] when `to` is TE */
    int32_t *owner;         /* [M]: set to the token of each row, or -1 */
};

/* The first fault, or SY_OK and the output. */
sy_fault oracle_moe_convert_indices(const struct convert_case *c, int32_t *out);

#endif
