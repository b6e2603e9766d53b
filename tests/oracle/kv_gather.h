/*
 * Truth for kv_gather: one position at a time in 128-bit arithmetic, faults in the order the specification lists them.
 */
#ifndef SWITCHYARD_ORACLE_KV_GATHER_H
#define SWITCHYARD_ORACLE_KV_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gather_pad { GATHER_ERROR, GATHER_ZERO, GATHER_SKIP };
enum gather_code {
    GATHER_FINE,
    GATHER_LENGTH,
    GATHER_REQ,
    GATHER_INDEX,
    GATHER_TABLE,
    GATHER_BLOCK,
    GATHER_ROW
};

struct gather_case {
    int64_t batch, k;              /* B, k                                            */
    int64_t table_rows, table_len; /* R, n                                            */
    int64_t rows, block_size;      /* rows of the cache, S                            */
    size_t row_bytes;
    enum gather_pad pad;
    const unsigned char *cache;                /* [rows] of row_bytes                             */
    const int64_t *indices;                    /* [B,k]                                           */
    const int64_t *table;                      /* [R,n]                                           */
    const int64_t *req_id, *counts, *seq_lens; /* [B], NULL: absent                          */
    const int64_t *indptr,
        *last_page_len; /* [R+1], [R] or NULL: `table` is lists of table_len pages in all  */
};

struct gather_fault {
    enum gather_code code;
    int64_t batch, position, value, limit; /* position -1 for faults of a whole row          */
};

/* Fills `out` [B,k] of row_bytes, which holds the old contents, unless a fault is returned. */
struct gather_fault oracle_kv_gather(const struct gather_case *in, unsigned char *out);

#endif
