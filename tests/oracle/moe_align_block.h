/*
 * Truth for moe_align_block: for every expert one walk over all slots, and one element appended at a time.
 */
#ifndef SWITCHYARD_ORACLE_MOE_ALIGN_BLOCK_H
#define SWITCHYARD_ORACLE_MOE_ALIGN_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include <switchyard.h>

struct align_case {
    int64_t tokens, slots, experts, block;
    bool allow_missing, skip_unmapped;
    const int64_t *ids;     /* [T,K] */
    const int32_t *map;     /* [E] or NULL */
    int64_t places, blocks; /* room in the outputs */
};

struct align_result {
    int32_t *sorted, *block_experts, padded;
    int64_t *counts, *offsets;
};

/* The first fault in order, or SY_OK and the result, whose arrays are the caller's. */
sy_fault oracle_moe_align_block(const struct align_case *in, struct align_result *out);

#endif
