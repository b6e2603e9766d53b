/*
 * Truth for kv_scatter: one row at a time into a dense cache; every slot is compared with every earlier one.
 */
#ifndef SWITCHYARD_ORACLE_KV_SCATTER_H
#define SWITCHYARD_ORACLE_KV_SCATTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum scatter_code { SCATTER_FINE, SCATTER_SLOT, SCATTER_DUPLICATE };

struct scatter_case {
    int64_t n, rows; /* slots, rows of the cache */
    size_t row_bytes;
    bool skip, unique; /* -1 is dropped; equal slots are a fault */
    const unsigned char *src;
    const int64_t *slots;
};

struct scatter_fault {
    enum scatter_code code;
    int64_t position, value, limit;
};

/* Changes `cache` [rows] of row_bytes, unless a fault is returned. */
struct scatter_fault oracle_kv_scatter(const struct scatter_case *in, unsigned char *cache);

#endif
