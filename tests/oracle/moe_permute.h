/*
 * Truth for moe_permute: dense arrays in, dense arrays out, by sorting. No library header, no library type.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct permute_case {
    int64_t tokens, experts, hidden, out_tokens; /* T, E, H, N                                      */
    bool capacity, zero_pad;
    size_t token_bytes, prob_bytes; /* of one element; prob_bytes 0: no probs          */
    const unsigned char *x;         /* [T,H]                                           */
    const unsigned char *map;       /* [T,E]                                           */
    const unsigned char *probs;     /* [T,E]                                           */
};

struct permute_truth {
    int64_t rows, slots;          /* M; K or C                                       */
    int64_t bad_token, bad_count; /* first token routed to more than K experts or -1 */
    unsigned char *x;             /* [M,H]                                           */
    unsigned char *probs;         /* [M]                                             */
    int32_t *indices;             /* [M]                                             */
    int64_t *counts;              /* [E]                                             */
    int64_t *offsets;             /* [E+1]                                           */
    int64_t pairs;                /* routed pairs                                    */
};

/* Fills `truth`; nothing but the sizes, counts and bad_token is set when a token has too many experts. */
void oracle_moe_permute(const struct permute_case *in, struct permute_truth *truth);
void oracle_moe_permute_free(struct permute_truth *truth);
