/*
 * Truth for kv_scatter: every slot is compared with every earlier one.
 */
#ifndef SWITCHYARD_ORACLE_KV_SCATTER_H
#define SWITCHYARD_ORACLE_KV_SCATTER_H

#include <stdbool.h>
#include <stdint.h>

enum scatter_code { SCATTER_FINE, SCATTER_SLOT, SCATTER_DUPLICATE };

struct scatter_fault {
    enum scatter_code code;
    int64_t position, value, limit;
};

/* skip: -1 is dropped; unique: equal slots are a fault. */
struct scatter_fault oracle_kv_scatter(int64_t n, const int64_t *slots, int64_t rows, bool skip, bool unique);

#endif
