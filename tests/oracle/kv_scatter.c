#include "kv_scatter.h"

struct scatter_fault oracle_kv_scatter(int64_t n, const int64_t *slots, int64_t rows, bool skip, bool unique)
{
    for (int64_t i = 0; i < n; i++) {
        if (skip && slots[i] == -1)
            continue;
        if (slots[i] < 0 || slots[i] >= rows)
            return (struct scatter_fault){SCATTER_SLOT, i, slots[i], rows};
        for (int64_t j = i - 1; unique && j >= 0; j--) /* the nearest earlier one is the one reported */
            if (slots[j] == slots[i])
                return (struct scatter_fault){SCATTER_DUPLICATE, i, slots[i], j};
    }
    return (struct scatter_fault){0};
}
