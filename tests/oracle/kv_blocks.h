/*
 * Truth for kv_blocks: every pair against every earlier one.
 */
#ifndef SWITCHYARD_ORACLE_KV_BLOCKS_H
#define SWITCHYARD_ORACLE_KV_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum blocks_code { BLOCKS_FINE, BLOCKS_RANGE, BLOCKS_DUPLICATE, BLOCKS_HAZARD };

struct blocks_fault {
    enum blocks_code code;
    int64_t position, value, limit;
};

/* pairs [n,2] of blocks of two caches, or of one. */
struct blocks_fault oracle_kv_blocks(int64_t n, const int64_t *pairs, int64_t n_src, int64_t n_dst,
                                     bool one_cache);

#endif
