#include "kv_ragged.h"

#include <string.h>

/* clang's overflow check of 128-bit products needs a function that libgcc lacks; none of them can overflow here. */
#define WIDE_ARITHMETIC __attribute__((no_sanitize("signed-integer-overflow")))
__extension__ typedef __int128 wide;

static struct ragged_fault fault(enum ragged_code code, int64_t b, int64_t u, wide value, wide limit)
{
    return (struct ragged_fault){code, b, u, (int64_t)value, (int64_t)limit};
}

static struct ragged_fault validate_arrays(const struct ragged_case *in)
{
    if (in->cu_lens[0] != 0)
        return fault(RAGGED_LENGTH, 0, -1, in->cu_lens[0], 0);
    for (int64_t b = 1; b <= in->batch; b++) {
        if (in->cu_lens[b] < in->cu_lens[b - 1])
            return fault(RAGGED_LENGTH, b, -1, in->cu_lens[b], in->cu_lens[b - 1]);
        if (in->cu_lens[b] > in->out_rows)
            return fault(RAGGED_LENGTH, b, -1, in->cu_lens[b], in->out_rows);
    }
    for (int64_t b = 0; b < in->batch; b++) {
        if (in->seq_lens && in->seq_lens[b] < 0)
            return fault(RAGGED_LENGTH, b, -1, in->seq_lens[b], 0);
        if (in->req_id && (in->req_id[b] < 0 || in->req_id[b] >= in->table_rows))
            return fault(RAGGED_REQ, b, -1, in->req_id[b], in->table_rows);
    }
    return (struct ragged_fault){0};
}

/* The physical row of token u of run b, or its fault. */
WIDE_ARITHMETIC static struct ragged_fault translate(const struct ragged_case *in, int64_t b, int64_t u,
                                                     wide *row)
{
    const wide s = in->block_size, t = (wide)(in->starts ? in->starts[b] : 0) + u;
    const wide length = in->seq_lens ? in->seq_lens[b] : in->table_len * s,
               blocks = ((wide)in->rows + s - 1) / s;
    if (t < 0 || t >= length)
        return fault(RAGGED_INDEX, b, u, t, length);
    if (t / s >= in->table_len)
        return fault(RAGGED_SHORT, b, u, t / s, in->table_len);
    const wide r = in->req_id ? in->req_id[b] : b, block = in->table[r * in->table_len + t / s];
    if (block < 0 || block >= blocks)
        return fault(RAGGED_BLOCK, b, u, block, blocks);
    *row = block * s + t % s;
    if (*row >= in->rows)
        return fault(RAGGED_ROW, b, u, *row, in->rows);
    return (struct ragged_fault){0};
}

struct ragged_fault oracle_kv_ragged(const struct ragged_case *in, unsigned char *out)
{
    const struct ragged_fault first = validate_arrays(in);
    if (first.code != RAGGED_FINE)
        return first;
    for (int64_t b = 0; b < in->batch; b++)
        for (int64_t to = in->cu_lens[b]; to < in->cu_lens[b + 1]; to++) {
            wide row = 0;
            const struct ragged_fault f = translate(in, b, to - in->cu_lens[b], &row);
            if (f.code != RAGGED_FINE)
                return f;
            memcpy(out + (size_t)to * in->row_bytes, in->cache + (size_t)row * in->row_bytes, in->row_bytes);
        }
    return (struct ragged_fault){0};
}
