/*
 * Truth for moe_map_from_ids: every cell of the map asks all slots of its row. A weight is any number of bytes.
 */
#ifndef SWITCHYARD_ORACLE_MOE_MAP_FROM_IDS_H
#define SWITCHYARD_ORACLE_MOE_MAP_FROM_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard.h>

struct map_case {
    int64_t tokens, experts, slots;
    bool allow_missing;
    size_t weight_bytes; /* 0: none */
    const int64_t *ids;  /* [T,K] */
    const unsigned char *weights;
};

/* The first fault in order, or SY_OK and the results; map [T,E] and probs [T,E] are the caller's. */
sy_fault oracle_moe_map_from_ids(const struct map_case *in, uint8_t *map, unsigned char *probs);

#endif
