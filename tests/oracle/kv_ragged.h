/*
 * Truth for kv_ragged: one row at a time in 128-bit arithmetic, where the library goes page by page.
 */
#ifndef SWITCHYARD_ORACLE_KV_RAGGED_H
#define SWITCHYARD_ORACLE_KV_RAGGED_H

#include <stddef.h>
#include <stdint.h>

enum ragged_code {
    RAGGED_FINE,
    RAGGED_LENGTH,
    RAGGED_REQ,
    RAGGED_INDEX,
    RAGGED_SHORT,
    RAGGED_BLOCK,
    RAGGED_ROW
};

struct ragged_case {
    int64_t batch, table_rows, table_len, block_size;
    int64_t rows, out_rows; /* of the cache, of out */
    size_t row_bytes;
    const int64_t *cu_lens;                    /* [batch + 1] */
    const int64_t *starts, *req_id, *seq_lens; /* [batch] or NULL */
    const int64_t *table;                      /* [table_rows, table_len] */
    const unsigned char *cache;                /* [rows] dense rows */
};

struct ragged_fault {
    enum ragged_code code;
    int64_t batch, position, value, limit;
};

/* Writes the rows of out [out_rows] that are asked for, up to the first fault, which it returns. */
struct ragged_fault oracle_kv_ragged(const struct ragged_case *in, unsigned char *out);

#endif
