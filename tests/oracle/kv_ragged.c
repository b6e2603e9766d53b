#include "kv_ragged.h"

#include <stdlib.h>
#include <string.h>

static struct gather_fault check_lengths(const struct ragged_case *in)
{
    for (int64_t b = 0; b <= in->gather.batch; b++) {
        const int64_t at = in->cu_lens[b], least = b > 0 ? in->cu_lens[b - 1] : 0,
                      most = b > 0 ? in->out_rows : 0;
        if (at < least || at > most)
            return (struct gather_fault){GATHER_LENGTH, b, -1, at, at < least ? least : most, "cu_lens"};
    }
    return (struct gather_fault){0};
}

struct gather_fault oracle_kv_ragged(const struct ragged_case *in, int64_t *slots)
{
    struct gather_fault fault = check_lengths(in);
    if (fault.code != GATHER_FINE)
        return fault;
    struct gather_case all = in->gather;
    all.k = 1;
    if (all.batch == 0) { /* lists are validated without a run too: as for one of no tokens */
        all.batch = 1;
        all.req_id = all.seq_lens = NULL;
    }
    for (int64_t b = 0; b < in->gather.batch; b++)
        if (in->cu_lens[b + 1] - in->cu_lens[b] > all.k)
            all.k = in->cu_lens[b + 1] - in->cu_lens[b];
    const size_t n = (size_t)(all.batch * all.k) + 1;
    int64_t *tokens = calloc(n, sizeof *tokens), *counts = calloc(n, sizeof *counts),
            *found = calloc(n, sizeof *found);
    if (tokens == NULL || counts == NULL || found == NULL)
        abort();
    for (int64_t i = 0; i < all.batch * all.k; i++)
        tokens[i] = (int64_t)((uint64_t)(in->starts && in->gather.batch > 0 ? in->starts[i / all.k] : 0) +
                              (uint64_t)(i % all.k));
    for (int64_t b = 0; b < in->gather.batch; b++)
        counts[b] = in->cu_lens[b + 1] - in->cu_lens[b];
    all.indices = tokens;
    all.counts = counts;
    fault = oracle_kv_gather(&all, found);
    for (int64_t b = 0; b < in->gather.batch && fault.code == GATHER_FINE; b++)
        memcpy(slots + in->cu_lens[b], found + b * all.k, (size_t)counts[b] * sizeof *slots);
    free(tokens);
    free(counts);
    free(found);
    return fault;
}
