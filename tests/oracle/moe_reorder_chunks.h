/*
 * Truth for moe_reorder_chunks: every row gets a name (expert, rank, number), and all of them are sorted.
 */
#ifndef SWITCHYARD_ORACLE_MOE_REORDER_CHUNKS_H
#define SWITCHYARD_ORACLE_MOE_REORDER_CHUNKS_H

#include <stdint.h>

#include <switchyard.h>

struct chunks_case {
    int64_t rows, ranks, experts;
    const int64_t *counts; /* [R,E] */
};

/* The first fault in order, or SY_OK, the rows of all chunks in *live, and the row that comes to stand at each of
   their places when experts are brought together: source [N]. */
sy_fault oracle_moe_reorder_chunks(const struct chunks_case *in, int64_t *live, int64_t *source);

#endif
