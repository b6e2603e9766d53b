/*
 * Truth for moe_ids_from_map: every slot counts the experts before each cell of its row. A weight is any number of bytes.
 */
#ifndef SWITCHYARD_ORACLE_MOE_IDS_FROM_MAP_H
#define SWITCHYARD_ORACLE_MOE_IDS_FROM_MAP_H

#include <stddef.h>
#include <stdint.h>

#include <switchyard.h>

struct ids_case {
    int64_t tokens, experts, slots;
    size_t weight_bytes; /* 0: none */
    const uint8_t *map;  /* [T,E] */
    const unsigned char *probs;
};

/* The first fault in order, or SY_OK and the results; ids [T,K] and weights [T,K] are the caller's. */
sy_fault oracle_moe_ids_from_map(const struct ids_case *in, int64_t *ids, unsigned char *weights);

#endif
