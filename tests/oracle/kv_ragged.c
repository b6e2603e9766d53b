#include "kv_ragged.h"

#include <stdlib.h>
#include <string.h>

static struct gather_fault check_lengths(const struct ragged_case *in)
{
    for (int64_t b = 0; b <= in->gather.batch; b++) {
        const int64_t at = in->cu_lens[b], least = b > 0 ? in->cu_lens[b - 1] : 0,
                      most = b > 0 ? in->out_rows : 0;
        if (at < least || at > most)
            return (struct gather_fault){GATHER_LENGTH, b, -1, at, at < least ? least : most};
    }
    return (struct gather_fault){0};
}

struct gather_fault oracle_kv_ragged(const struct ragged_case *in, unsigned char *out)
{
    struct gather_fault fault = check_lengths(in);
    if (fault.code != GATHER_FINE)
        return fault;
    struct gather_case all = in->gather;
    all.k = 1;
    for (int64_t b = 0; b < all.batch; b++)
        if (in->cu_lens[b + 1] - in->cu_lens[b] > all.k)
            all.k = in->cu_lens[b + 1] - in->cu_lens[b];
    const size_t n = (size_t)(all.batch * all.k) + 1;
    int64_t *tokens = calloc(n, sizeof *tokens), *counts = calloc(n, sizeof *counts);
    unsigned char *rows = calloc(n, all.row_bytes);
    if (tokens == NULL || counts == NULL || rows == NULL)
        abort();
    for (int64_t i = 0; i < all.batch * all.k; i++)
        tokens[i] = (in->starts ? in->starts[i / all.k] : 0) + i % all.k;
    for (int64_t b = 0; b < all.batch; b++)
        counts[b] = in->cu_lens[b + 1] - in->cu_lens[b];
    all.indices = tokens;
    all.counts = counts;
    fault = oracle_kv_gather(&all, rows);
    for (int64_t b = 0; b < all.batch && fault.code == GATHER_FINE; b++)
        memcpy(out + (size_t)in->cu_lens[b] * all.row_bytes, rows + (size_t)(b * all.k) * all.row_bytes,
               (size_t)counts[b] * all.row_bytes);
    free(tokens);
    free(counts);
    free(rows);
    return fault;
}
