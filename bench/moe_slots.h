/*
 * Samples, their choices and expert slots, for the operators that bring rows back from slots: routed as moe_locations
 * would.
 */
#ifndef SWITCHYARD_BENCH_MOE_SLOTS_H
#define SWITCHYARD_BENCH_MOE_SLOTS_H

#include "described.h"

/* k choices of S samples, and the slots of E experts with C each: [k,S], [k,S], [E*C,H]. More than one choice: E is a
   power of two. Returns how many choices have a slot; 0 after a fault. */
int64_t slots_make(struct bench_call *c, const DLTensor **indices, const DLTensor **locations,
                   const DLTensor **slots);

/* The row of [E*C,H] that choice `at` of [k,S] has, or -1. */
int64_t slots_row(const DLTensor *indices, const DLTensor *locations, int64_t at, int64_t capacity);
size_t slots_row_bytes(const struct bench_call *c);

#endif
