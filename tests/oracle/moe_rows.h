/*
 * Truth for moe_unpermute and the gradients around it: dense arrays in, dense arrays out. Everything is first
 * written down as a list of pairs (token, row, expert, weight) in the order that fixes the results; then the list is
 * walked once and each pair adds its part to where it belongs. No library header, no library type.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "oracle/numbers.h"

struct rows_case {
    int64_t tokens, experts, rows, hidden; /* T, E, M, H                                    */
    bool capacity, zero_pad;
    enum number_type type, prob_type;
    const int32_t *indices;     /* [M]                                                      */
    const uint8_t *map;         /* [T,E] or NULL                                            */
    const unsigned char *probs; /* [T,E] or NULL: every weight is 1                         */
    bool by_expert;             /* pairs need their expert: weights, or gradients of probs  */
};

struct rows_pair {
    int64_t token, row, expert; /* expert -1: not asked for                                 */
    float weight;
};

/* What is wrong with the indices, in order of tokens (packed) or rows (capacity); position -1: nothing. */
struct rows_fault {
    int64_t position, value, limit;
    bool count; /* experts and live slots of a token differ; else an index is out of range */
};

struct rows_pairs {
    struct rows_pair *pair;
    size_t count;
    struct rows_fault fault;
};
struct rows_pairs oracle_pairs(const struct rows_case *in);
void oracle_pairs_free(struct rows_pairs *pairs);

/* Bits. The outputs must be there in full size; everything in them is set. */
void oracle_unpermute(const struct rows_case *in, const struct rows_pairs *pairs, const void *permuted,
                      unsigned char *tokens);

/* `values` [M] of the type of probs go to grad_probs [T,E], the last of a pair stays; zero elsewhere. */
void oracle_grad_probs(const struct rows_case *in, const struct rows_pairs *pairs, const void *values,
                       unsigned char *grad_probs);

/* Rows and values of moe_unpermute_grad; `saved` and grad_probs are NULL or both there. */
void oracle_unpermute_grad(const struct rows_case *in, const struct rows_pairs *pairs,
                           const void *grad_tokens, const void *saved, unsigned char *grad_permuted,
                           unsigned char *grad_probs);
