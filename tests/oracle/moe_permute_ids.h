/*
 * Truth for moe_permute_ids and its way back. The slots are sorted as a whole by id and number; sums are formed in
 * double and rounded to f32 after every step, which gives the f32 operation.
 */
#ifndef SWITCHYARD_ORACLE_MOE_PERMUTE_IDS_H
#define SWITCHYARD_ORACLE_MOE_PERMUTE_IDS_H

#include <stddef.h>
#include <stdint.h>

/* The place of every slot in the stable ascending order of n ids; with experts >= 0 the ids -1 and `experts` take no
   part in the order and get -1. */
void oracle_id_places(int64_t n, const int64_t *ids, int64_t experts, int32_t *places);

/* One element of one token: sum over j of weights[j] * values[j], f32 operations in order; weights NULL: all 1. */
float oracle_slot_sum(int64_t k, const float *weights, const float *values);

#endif
