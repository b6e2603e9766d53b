/*
 * The formula of the specification as it is written, twice: once to find the first fault, once to copy. Every number is
 * 128 bits wide, so nothing can wrap.
 */
#include "kv_gather.h"

#include <string.h>

/* clang's overflow check of 128-bit products needs a function that libgcc lacks; none of them can overflow here. */
#define WIDE_ARITHMETIC __attribute__((no_sanitize("signed-integer-overflow")))
__extension__ typedef __int128 wide;

static struct gather_fault fault(enum gather_code code, int64_t b, int64_t j, wide value, wide limit)
{
    return (struct gather_fault){code, b, j, (int64_t)value, (int64_t)limit};
}

static struct gather_fault check_row(const struct gather_case *in, int64_t b)
{
    if (in->counts && (in->counts[b] < 0 || in->counts[b] > in->k))
        return fault(GATHER_LENGTH, b, -1, in->counts[b], in->k);
    if (in->seq_lens && in->seq_lens[b] < 0)
        return fault(GATHER_LENGTH, b, -1, in->seq_lens[b], 0);
    if (in->req_id && (in->req_id[b] < 0 || in->req_id[b] >= in->table_rows))
        return fault(GATHER_REQ, b, -1, in->req_id[b], in->table_rows);
    return (struct gather_fault){0};
}

static struct gather_fault check_lists(const struct gather_case *in)
{
    for (int64_t r = 0; in->indptr && r <= in->table_rows; r++) {
        const int64_t at = in->indptr[r], before = r > 0 ? in->indptr[r - 1] : 0;
        if (at < before)
            return fault(GATHER_LENGTH, r, -1, at, before);
        if (at > in->table_len)
            return fault(GATHER_LENGTH, r, -1, at, in->table_len);
        if (at == before || r == 0 || !in->last_page_len)
            continue;
        const int64_t last = in->last_page_len[r - 1];
        if (last < 1)
            return fault(GATHER_LENGTH, r - 1, -1, last, 1);
        if (last > in->block_size)
            return fault(GATHER_LENGTH, r - 1, -1, last, in->block_size);
    }
    return (struct gather_fault){0};
}

/* Pages of sequence r, the number of its first among all, and its tokens. */
WIDE_ARITHMETIC static void find_pages(const struct gather_case *in, wide r, wide *pages, wide *first,
                                       wide *tokens)
{
    *pages = in->table_len;
    *first = r * in->table_len;
    if (in->indptr) {
        *first = in->indptr[r];
        *pages = in->indptr[r + 1] - *first;
    }
    *tokens = *pages * in->block_size;
    if (in->indptr && in->last_page_len && *pages > 0)
        *tokens = (*pages - 1) * in->block_size + in->last_page_len[r];
}

static bool is_padding(const struct gather_case *in, int64_t b, int64_t j)
{
    if (in->counts && j >= in->counts[b])
        return true;
    return in->pad != GATHER_ERROR && in->indices[b * in->k + j] == -1;
}

/* The physical row of a live position, or its fault. */
WIDE_ARITHMETIC static struct gather_fault translate(const struct gather_case *in, int64_t b, int64_t j,
                                                     wide *row)
{
    const wide s = in->block_size, t = in->indices[b * in->k + j], r = in->req_id ? in->req_id[b] : b;
    wide n, first, length;
    find_pages(in, r, &n, &first, &length);
    if (in->seq_lens)
        length = in->seq_lens[b];
    if (t < 0 || t >= length)
        return fault(GATHER_INDEX, b, j, t, length);
    if (t / s >= n)
        return fault(GATHER_TABLE, b, j, t / s, n);
    const wide block = in->table[first + t / s], blocks = ((wide)in->rows + s - 1) / s;
    if (block < 0 || block >= blocks)
        return fault(GATHER_BLOCK, b, j, block, blocks);
    *row = block * s + t % s;
    if (*row >= in->rows)
        return fault(GATHER_ROW, b, j, *row, in->rows);
    return (struct gather_fault){0};
}

struct gather_fault oracle_kv_gather(const struct gather_case *in, unsigned char *out)
{
    if (in->batch == 0 || in->k == 0)
        return (struct gather_fault){0};
    const struct gather_fault list = check_lists(in);
    if (list.code != GATHER_FINE)
        return list;
    for (int64_t b = 0; b < in->batch; b++) {
        const struct gather_fault f = check_row(in, b);
        if (f.code != GATHER_FINE)
            return f;
    }
    for (int pass = 0; pass < 2; pass++)
        for (int64_t b = 0; b < in->batch; b++)
            for (int64_t j = 0; j < in->k; j++) {
                unsigned char *to = out + (size_t)(b * in->k + j) * in->row_bytes;
                wide row = 0;
                if (is_padding(in, b, j)) {
                    if (pass == 1 && in->pad != GATHER_SKIP)
                        memset(to, 0, in->row_bytes);
                    continue;
                }
                const struct gather_fault f = translate(in, b, j, &row);
                if (f.code != GATHER_FINE)
                    return f;
                if (pass == 1)
                    memcpy(to, in->cache + (size_t)row * in->row_bytes, in->row_bytes);
            }
    return (struct gather_fault){0};
}
