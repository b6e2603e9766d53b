/*
 * The formula of the specification as it is written. Every number is 128 bits wide, so nothing can wrap.
 */
#include "kv_gather.h"

#include <stddef.h>

/* clang's overflow check of 128-bit products needs a function that libgcc lacks; none of them can overflow here. */
#define WIDE_ARITHMETIC __attribute__((no_sanitize("signed-integer-overflow")))
__extension__ typedef __int128 wide;

static sy_fault fault(sy_fault_code code, int64_t b, int64_t j, wide value, wide limit)
{
    return (sy_fault){SY_ERR_INDEX, code, NULL, b, j, (int64_t)value, (int64_t)limit};
}

static sy_fault length_fault(const char *argument, int64_t b, int64_t value, int64_t limit)
{
    return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, argument, b, -1, value, limit};
}

static sy_fault check_row(const struct gather_case *in, int64_t b)
{
    if (in->counts && (in->counts[b] < 0 || in->counts[b] > in->k))
        return length_fault("counts", b, in->counts[b], in->k);
    if (in->seq_lens && in->seq_lens[b] < 0)
        return length_fault("seq_lens", b, in->seq_lens[b], 0);
    if (in->req_id && (in->req_id[b] < 0 || in->req_id[b] >= in->table_rows))
        return fault(SY_FAULT_REQ_RANGE, b, -1, in->req_id[b], in->table_rows);
    return (sy_fault){0};
}

static sy_fault check_lists(const struct gather_case *in)
{
    for (int64_t r = 0; in->indptr && r <= in->table_rows; r++) {
        const int64_t at = in->indptr[r], before = r > 0 ? in->indptr[r - 1] : 0;
        if (at < before)
            return length_fault("indptr", r, at, before);
        if (at > in->table_len)
            return length_fault("indptr", r, at, in->table_len);
        if (at == before || r == 0 || !in->last_page_len)
            continue;
        const int64_t last = in->last_page_len[r - 1];
        if (last < 1)
            return length_fault("last_page_len", r - 1, last, 1);
        if (last > in->block_size)
            return length_fault("last_page_len", r - 1, last, in->block_size);
    }
    return (sy_fault){0};
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
    return (in->counts && j >= in->counts[b]) || (in->padded && in->indices[b * in->k + j] == -1);
}

/* The first token that a rank with room for so many cannot hold, run by run. */
WIDE_ARITHMETIC static wide first_beyond(const struct gather_case *in, wide room)
{
    const wide run = in->interleave > 0 ? in->interleave : 1;
    wide t = in->rank * run;
    for (; room >= run; room -= run)
        t += in->world * run;
    return t + room > INT64_MAX ? INT64_MAX : t + room;
}

/* The physical row of a live position, -1 where another rank has it, or its fault. */
WIDE_ARITHMETIC static sy_fault translate(const struct gather_case *in, int64_t b, int64_t j, int64_t *slot)
{
    const wide s = in->block_size, t = in->indices[b * in->k + j], r = in->req_id ? in->req_id[b] : b;
    const wide run = in->interleave > 0 ? in->interleave : 1, ranks = in->world > 0 ? in->world : 1;
    wide n, first, length, own = t;
    find_pages(in, r, &n, &first, &length);
    if (t >= 0 && ranks > 1)
        own = t / run % ranks == in->rank ? t / (ranks * run) * run + t % run : -1;
    if (in->seq_lens ? t < 0 || t >= in->seq_lens[b] : t < 0 || own >= length)
        return fault(SY_FAULT_INDEX_RANGE, b, j, t,
                     in->seq_lens ? in->seq_lens[b]
                     : ranks > 1  ? first_beyond(in, length)
                                  : length);
    *slot = -1;
    if (own < 0)
        return (sy_fault){0};
    if (own / s >= n)
        return fault(SY_FAULT_TABLE_SHORT, b, j, own / s, n);
    const wide block = in->table[first + own / s], blocks = ((wide)in->rows + s - 1) / s;
    if (block < 0 || block >= blocks)
        return fault(SY_FAULT_BLOCK_RANGE, b, j, block, blocks);
    if (block * s + own % s >= in->rows)
        return fault(SY_FAULT_ROW_RANGE, b, j, block * s + own % s, in->rows);
    *slot = (int64_t)(block * s + own % s);
    return (sy_fault){0};
}

sy_fault oracle_kv_gather(const struct gather_case *in, int64_t *slots)
{
    if (in->batch == 0 || in->k == 0)
        return (sy_fault){0};
    sy_fault found = check_lists(in);
    for (int64_t b = 0; b < in->batch && found.status == SY_OK; b++)
        found = check_row(in, b);
    for (int64_t i = 0; i < in->batch * in->k && found.status == SY_OK; i++) {
        slots[i] = -1;
        if (!is_padding(in, i / in->k, i % in->k))
            found = translate(in, i / in->k, i % in->k, &slots[i]);
    }
    return found;
}
