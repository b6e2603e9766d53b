#include "kv_slots.h"

#include <stddef.h>

/* clang's overflow check of 128-bit products needs a function that libgcc lacks; none of them can overflow here. */
#define WIDE_ARITHMETIC __attribute__((no_sanitize("signed-integer-overflow")))
__extension__ typedef __int128 wide;

static struct slots_fault fault(enum slots_code code, int64_t i, wide value, wide limit)
{
    return (struct slots_fault){code, i, (int64_t)value, (int64_t)limit};
}

/* Rows that can be named, whole blocks of them where they are as many as 63 bits allow. */
WIDE_ARITHMETIC static wide rows_of(const struct slots_case *in)
{
    if (in->rows > 0)
        return in->rows;
    return in->slot_bits == 32 ? (wide)1 << 31 : (((wide)1 << 63) - 1) / in->block_size * in->block_size;
}

WIDE_ARITHMETIC static struct slots_fault one(const struct slots_case *in, int64_t i, int64_t *slot)
{
    const wide s = in->block_size, n = in->table_len, t = in->position[i], rows = rows_of(in);
    const wide blocks = (rows + s - 1) / s, r = in->batch != NULL ? in->batch[i] : 0;
    *slot = -1;
    if (r < 0 || r >= in->table_rows)
        return fault(SLOTS_BATCH, i, r, in->table_rows);
    if (t == -1 && in->padding)
        return fault(SLOTS_FINE, i, 0, 0);
    if (t < 0 || t >= n * s)
        return fault(SLOTS_POSITION, i, t, n * s);
    const wide block = in->table[(int64_t)(r * n + t / s)];
    if (block < 0 || block >= blocks)
        return fault(SLOTS_BLOCK, i, block, blocks);
    const wide row = block * s + t % s;
    if (row >= rows)
        return fault(SLOTS_ROW, i, row, rows);
    *slot = (int64_t)row;
    return fault(SLOTS_FINE, i, 0, 0);
}

struct slots_fault oracle_kv_slots(const struct slots_case *in, int64_t *slots)
{
    for (int64_t i = 0; i < in->n; i++) {
        const struct slots_fault f = one(in, i, &slots[i]);
        if (f.code != SLOTS_FINE)
            return f;
    }
    return (struct slots_fault){SLOTS_FINE, 0, 0, 0};
}
