/*
 * What the calls of moe_unpermute and of both gradients have in common: T, E, M, the modes, indices and a map.
 */
#ifndef SWITCHYARD_TESTS_CASE_ROWS_H
#define SWITCHYARD_TESTS_CASE_ROWS_H

#include "case.h"

#include "oracle/moe_rows.h"

/* Sizes of at least `least` tokens and experts, flags, sorted_indices and routing_map, which is there where the call needs it or
   by chance. H is chosen unless rows are codes. */
void rows_make(struct call *c, int64_t least, bool by_expert);

enum rows_type rows_type_of(const struct operand *x);

/* The case of the oracle, whose rows have the type of x; its pairs, and from them what the call returns. */
struct rows_case rows_of(struct call *c, const struct operand *x, const char *probs, bool by_expert);
struct rows_pairs rows_pairs(struct call *c, const struct rows_case *in);

/* What rows_pairs notes; without weights the last two do not occur. */
#define ROWS_NO_WEIGHTS \
    "unused slot", "row twice", "padding", "token without rows", "token with many rows", "no rows", \
        "no elements", "many experts", "bad index", "bad count", "long rows"
#define ROWS_HARD ROWS_NO_WEIGHTS, "other type of probs", "zero weight"

#endif
