#include "kv_blocks.h"

/* What pair i does to one before it. */
static struct blocks_fault validate(const int64_t *pairs, int64_t i, bool one_cache)
{
    const int64_t s = pairs[2 * i], d = pairs[2 * i + 1];
    if (one_cache && s == d) /* nothing moves */
        return (struct blocks_fault){0};
    for (int64_t j = 0; j < i; j++)
        if (pairs[2 * j + 1] == d && !(one_cache && pairs[2 * j] == d))
            return (struct blocks_fault){BLOCKS_DUPLICATE, i, d, j};
    for (int64_t j = 0; j < i && one_cache; j++)
        if (pairs[2 * j] != pairs[2 * j + 1] && (pairs[2 * j + 1] == s || pairs[2 * j] == d))
            return (struct blocks_fault){BLOCKS_HAZARD, i, pairs[2 * j + 1] == s ? s : d, j};
    return (struct blocks_fault){0};
}

struct blocks_fault oracle_kv_blocks(int64_t n, const int64_t *pairs, int64_t n_src, int64_t n_dst,
                                     bool one_cache)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t s = pairs[2 * i], d = pairs[2 * i + 1];
        if (s < 0 || s >= n_src)
            return (struct blocks_fault){BLOCKS_RANGE, i, s, n_src};
        if (d < 0 || d >= n_dst)
            return (struct blocks_fault){BLOCKS_RANGE, i, d, n_dst};
        const struct blocks_fault f = validate(pairs, i, one_cache);
        if (f.code != BLOCKS_FINE)
            return f;
    }
    return (struct blocks_fault){0};
}
