/*
 * Truth for moe_capacity: integers all the way; the product with the factor is formed exactly and rounded by hand.
 */
#ifndef SWITCHYARD_ORACLE_MOE_CAPACITY_H
#define SWITCHYARD_ORACLE_MOE_CAPACITY_H

#include <stdint.h>

/* trunc(RN(factor * n)) for factor >= 0 and 0 <= n < 2^53; -1 when it is 2^63 or more. */
int64_t oracle_share(double factor, int64_t n);

/* -1 when the capacity is 2^63 or more. */
int64_t oracle_moe_capacity(int64_t samples, int64_t experts, int64_t k, double factor, int64_t alignment,
                            const int64_t *counts);

#endif
