/*
 * Truth for kv_blocks: every pair against every earlier one, then one copy after the other out of a snapshot.
 */
#ifndef SWITCHYARD_ORACLE_KV_BLOCKS_H
#define SWITCHYARD_ORACLE_KV_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum blocks_code { BLOCKS_FINE, BLOCKS_RANGE, BLOCKS_DUPLICATE, BLOCKS_HAZARD };

struct blocks_case {
    int64_t n, n_src, n_dst;
    bool one_cache;
    const int64_t *pairs; /* [n,2] */
    size_t block_bytes;
    const unsigned char *src; /* [n_src] blocks as they were */
};

struct blocks_fault {
    enum blocks_code code;
    int64_t position, value, limit;
};

/* Changes dst [n_dst], unless a fault is returned. */
struct blocks_fault oracle_kv_blocks(const struct blocks_case *in, unsigned char *dst);

#endif
