/*
 * What the operators on paged KV caches judge alike: the shape and strides of a cache, the rows that go with it, and
 * the tensors that say which tokens are meant. Steps in the order an operator calls them; `i` is the number of a
 * tensor in the operator's table.
 */
#ifndef SYI_OPS_KV_H
#define SYI_OPS_KV_H

#include "ops/call.h"

/* The product of extents [first, end); false when it does not fit. */
bool syi_kv_product(const DLTensor *t, int first, int end, int64_t *n);

/* ---- A cache: [rows,D] flat, or [blocks,S,D...] ------------------------------------------------------ */

/* Input shape: a row has bytes. */
sy_status syi_kv_check_row(struct syi_call *call, int cache);

/* Values: at least 1; and what the cache says. */
sy_status syi_kv_check_block_size(struct syi_call *call, int64_t block_size);
sy_status syi_kv_check_blocks(struct syi_call *call, int cache, int64_t block_size);

/* Overflow: blocks and rows can be counted; those of a cache, or so many. */
sy_status syi_kv_check_pool(struct syi_call *call, int cache, int64_t block_size, struct syi_kv_pool *pool);
sy_status syi_kv_number_rows(struct syi_call *call, int64_t n_rows, int64_t block_size,
                             struct syi_kv_pool *pool);

/* Overflow: n dense rows can be counted in 32 bits, their bytes in 63; fills row_bytes. `many` has the rows. */
sy_status syi_kv_check_volume(struct syi_call *call, int cache, int many, int dense, int64_t n,
                              struct syi_kv_plane *plane);

/* Shape of the dense rows: the dimensions of tensor `many`, then those of a cache row. */
sy_status syi_kv_check_dense(struct syi_call *call, int cache, int many, int dense);

/* Stride: rows and blocks do not overlap; fills the strides. */
sy_status syi_kv_check_strides(struct syi_call *call, int cache, const struct syi_kv_pool *pool,
                               struct syi_kv_plane *plane);

/* ---- Positions --------------------------------------------------------------------------------------- */

/* Numbers of the tensors that say which tokens are meant; -1: the operator has no such tensor. */
struct syi_kv_page_rules {
    int indices, table, req_id, counts, seq_lens;
};

/* Rows of a block table of rank 1 or 2. */
int64_t syi_kv_table_rows(const DLTensor *table);

/* Input shape: one table row, count and length for every index row. */
sy_status syi_kv_check_pages(struct syi_call *call, const struct syi_kv_page_rules *rules);

/* Overflow: positions in 32 bits, tokens of a table row in 63; fills the extents. */
sy_status syi_kv_check_positions(struct syi_call *call, const struct syi_kv_page_rules *rules,
                                 int64_t block_size, struct syi_kv_pages *pages);

/* Fills the views, after all checks. */
void syi_kv_view_pages(const struct syi_call *call, const struct syi_kv_page_rules *rules, sy_kv_pad pad,
                       struct syi_kv_pages *pages);

/* ---- Slots as numbers -------------------------------------------------------------------------------- */

/* Values: the rows slots may name, 0 for unknown, fit the type of tensor `slots`. */
sy_status syi_kv_check_num_rows(struct syi_call *call, int slots, int64_t num_rows);

/* Overflow: as many rows as are known, or else as tensor `slots` can name. */
sy_status syi_kv_number_slots(struct syi_call *call, int slots, int64_t num_rows, int64_t block_size,
                              struct syi_kv_pool *pool);

#endif
