/*
 * The way back is the inverse of the list.
 */
#include "oracle/moe_reorder_chunks.h"

#include <stdlib.h>

struct name {
    int64_t expert, rank, row;
};

static int by_name(const void *left, const void *right)
{
    const struct name *a = left, *b = right;
    if (a->expert != b->expert)
        return a->expert < b->expert ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

sy_fault oracle_moe_reorder_chunks(const struct chunks_case *in, int64_t *live, int64_t *source)
{
    struct name *names = calloc((size_t)in->rows + 1, sizeof *names);
    sy_fault fault = {.status = SY_OK, .argument = ""};
    *live = 0;
    for (int64_t i = 0; i < in->ranks * in->experts && fault.status == SY_OK; i++) {
        const int64_t r = i / in->experts, e = i % in->experts, count = in->counts[i],
                      left = in->rows - *live;
        if (count < 0 || count > left)
            fault = (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "counts", r, e, count, left};
        else
            for (int64_t n = 0; n < count; n++, (*live)++)
                names[*live] = (struct name){e, r, *live};
    }
    qsort(names, (size_t)*live, sizeof *names, by_name);
    for (int64_t i = 0; i < *live; i++)
        source[i] = names[i].row;
    free(names);
    return fault;
}
