/*
 * Truth for local_reduce: every row is found by itself, by counting the rows that lie before it, and sums are formed in
 * double and rounded to f32 after every step, which gives the f32 operation.
 */
#ifndef SWITCHYARD_ORACLE_LOCAL_REDUCE_H
#define SWITCHYARD_ORACLE_LOCAL_REDUCE_H

#include <stdbool.h>
#include <stdint.h>

struct reduce_case {
    int64_t tokens, slots, experts;
    const int64_t *choice;       /* [T,K]; -1: none */
    const unsigned char *hosts;  /* [E] 1: the device hosts it */
    bool by_expert;              /* layout EXPERT; else PADDED */
    int64_t align, expert_rows;  /* 0: as many as there are */
    int64_t positions, sequence; /* G and St of tokens concatenated along dimension 2; 0: rows lie by token */
};

/* The expert of a slot that counts, -1: none. */
int64_t oracle_live(const struct reduce_case *c, int64_t t, int64_t k);

/* Row of the input for an expert that token t chose and the device hosts. */
int64_t oracle_input_row(const struct reduce_case *c, int64_t expert, int64_t t);

/* Row of the output; -1: the token chose none of the device's experts. */
int64_t oracle_output_row(const struct reduce_case *c, int64_t t);

/* Rows that all choices need. */
int64_t oracle_input_rows(const struct reduce_case *c);

/* weights[0]*values[0] + ..., from +0 on; weights NULL: all 1. */
float oracle_reduce(int64_t n, const float *weights, const float *values);

#endif
