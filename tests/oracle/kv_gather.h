/*
 * Truth for the slots of tokens in a paged cache: one position at a time in 128-bit arithmetic, faults in the order the
 * specification lists them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <switchyard.h>

struct gather_case {
    int64_t batch, k;                          /* B, k */
    int64_t table_rows, table_len;             /* R, n */
    int64_t rows, block_size;                  /* rows of the cache, S */
    bool padded;                               /* index -1 is padding */
    int64_t world, rank, interleave;           /* kv_translate; 0: one rank has all tokens */
    const int64_t *indices;                    /* [B,k] */
    const int64_t *table;                      /* [R,n] */
    const int64_t *req_id, *counts, *seq_lens; /* [B], NULL: absent */
    const int64_t *indptr, *last_page_len;     /* [R+1], [R]: `table` is lists of table_len pages in all */
};

/* Fills `slots` [B,k], -1 for padding and the tokens of other ranks, unless a fault is returned; its position is -1 where it is of a
   whole row, and it has an argument where it is of a length. */
sy_fault oracle_kv_gather(const struct gather_case *in, int64_t *slots);
