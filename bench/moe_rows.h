/*
 * Permuted bf16 rows and the tokens they belong to, for the inverse of moe_permute and the gradients: seeded, routed as
 * moe_permute would, in enough sets that they are read from memory.
 */
#ifndef SWITCHYARD_BENCH_MOE_ROWS_H
#define SWITCHYARD_BENCH_MOE_ROWS_H

#include "bench.h"

struct rows_shape {
    int64_t tokens, experts, k, hidden;
    bool weighted;
};

/* Inputs and outputs of one call. */
struct rows_set {
    uint16_t *permuted, *tokens; /* [M,H], [T,H] */
    DLTensor permuted_view, tokens_view;
};

struct rows {
    struct rows_shape shape;
    int64_t n_rows, n_sets;
    struct rows_set *sets;
    uint8_t *map;           /* [T,E] */
    float *probs;           /* [T,E] */
    int32_t *index;         /* [M] */
    float *sum;             /* [H], of a plain loop */
    uint16_t *plain_tokens; /* [T,H]: result of the plain loop for the first set */
    int64_t permuted_shape[2], tokens_shape[2], map_shape[2];
    DLTensor map_view, probs_view, index_view;
};

/* False: no memory. Call rows_free in either case. */
bool rows_make(struct rows *r, const struct rows_shape *shape);
void rows_free(struct rows *r);

const struct rows_set *rows_of_turn(const struct rows *r, int64_t turn);
size_t rows_bytes(const struct rows *r); /* of all permuted rows and tokens */
void rows_describe(const struct rows_shape *shape, char *text, size_t bytes);

/* Token by token, row by row, element by element: the definition, written down. */
void rows_plain_sum(const struct rows *r, const struct rows_set *set, uint16_t *tokens);

#endif
