/*
 * Truth for moe_locations: choices sorted by expert, then by the order in which they are visited; a location is
 * the place in the run of its expert.
 */
#ifndef SWITCHYARD_ORACLE_MOE_LOCATIONS_H
#define SWITCHYARD_ORACLE_MOE_LOCATIONS_H

#include <stdint.h>

struct locations_case {
    int64_t choices, samples, experts; /* k, S, E */
    const int32_t *indices;            /* [k,S] */
    const double *importance;          /* [S]; NULL: sample order */
};

/* locations [k,S], counts [E] or NULL. */
void oracle_moe_locations(const struct locations_case *in, int32_t *locations, int64_t *counts);

#endif
