#include "kv_scatter.h"

#include <string.h>

static struct scatter_fault validate(const struct scatter_case *in, int64_t i)
{
    const int64_t slot = in->slots[i];
    if (in->skip && slot == -1)
        return (struct scatter_fault){0};
    if (slot < 0 || slot >= in->rows)
        return (struct scatter_fault){SCATTER_SLOT, i, slot, in->rows};
    int64_t last = -1; /* the nearest earlier one is the one reported */
    for (int64_t j = 0; in->unique && j < i; j++)
        if (in->slots[j] == slot)
            last = j;
    if (last >= 0)
        return (struct scatter_fault){SCATTER_DUPLICATE, i, slot, last};
    return (struct scatter_fault){0};
}

struct scatter_fault oracle_kv_scatter(const struct scatter_case *in, unsigned char *cache)
{
    for (int64_t i = 0; i < in->n; i++) {
        const struct scatter_fault fault = validate(in, i);
        if (fault.code != SCATTER_FINE)
            return fault;
    }
    for (int64_t i = 0; i < in->n; i++)
        if (in->slots[i] >= 0)
            memcpy(cache + (size_t)in->slots[i] * in->row_bytes, in->src + (size_t)i * in->row_bytes,
                   in->row_bytes);
    return (struct scatter_fault){0};
}
