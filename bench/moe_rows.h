/*
 * Permuted bf16 rows, f32 probs and the routing they belong to, for the inverse of moe_permute and the gradients.
 */
#ifndef SWITCHYARD_BENCH_MOE_ROWS_H
#define SWITCHYARD_BENCH_MOE_ROWS_H

#include "described.h"

/* The routing of T tokens, K of E experts each, and [T*K,H] rows. */
void rows_make(struct bench_call *c, const DLTensor **map, const DLTensor **index, const DLTensor **permuted);
size_t rows_bytes(const struct bench_call *c); /* of all permuted rows and tokens */

/* Token by token, row by row, element by element: the definition, written down. The scratch holds H floats. scales NULL: rows are
   numbers, else codes of the case's format. */
void rows_plain_sum(const struct bench_call *c, const DLTensor *permuted, const DLTensor *scales,
                    const DLTensor *probs, const DLTensor *tokens);

#endif
