/*
 * Truth for kv_slots: one token at a time in 128-bit arithmetic.
 */
#ifndef SWITCHYARD_ORACLE_KV_SLOTS_H
#define SWITCHYARD_ORACLE_KV_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

enum slots_code { SLOTS_FINE, SLOTS_BATCH, SLOTS_POSITION, SLOTS_BLOCK, SLOTS_ROW };

struct slots_case {
    int64_t n, table_rows, table_len, block_size;
    int64_t rows; /* of the cache; 0: as many as `slot_bits` bits can name */
    int slot_bits;
    bool padding;         /* position -1 is slot -1 */
    const int64_t *batch; /* [n]; NULL: all 0 */
    const int64_t *position, *table;
};

struct slots_fault {
    enum slots_code code;
    int64_t position, value, limit;
};

/* Fills slots [n] up to the first fault, which it returns. */
struct slots_fault oracle_kv_slots(const struct slots_case *in, int64_t *slots);

#endif
