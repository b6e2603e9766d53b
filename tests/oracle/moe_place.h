/*
 * Truth for moe_place, by its definition: every decision is a search over all that could be chosen, and nothing is sorted or kept.
 */
#ifndef SWITCHYARD_ORACLE_MOE_PLACE_H
#define SWITCHYARD_ORACLE_MOE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

enum { PLACE_MOST = 64 }; /* experts, physical ones, devices, groups */

struct place_case {
    int experts, physical, devices, nodes, groups; /* nodes >= 1 */
    bool distinct;
    const int64_t *loads;    /* [E] */
    const int32_t *previous; /* [P], or NULL */
};

struct place_truth {
    int expert[PLACE_MOST], replica[PLACE_MOST]; /* [P] */
    int64_t load[PLACE_MOST];                    /* [devices] */
    int count[PLACE_MOST];                       /* [E] */
};

void oracle_place(const struct place_case *c, struct place_truth *t);

#endif
