#include "kv_blocks.h"

#include <string.h>

static bool moves(const struct blocks_case *in, int64_t i)
{
    return !in->one_cache || in->pairs[2 * i] != in->pairs[2 * i + 1];
}

/* What pair i does to one before it. */
static struct blocks_fault validate(const struct blocks_case *in, int64_t i)
{
    const int64_t s = in->pairs[2 * i], d = in->pairs[2 * i + 1];
    if (s < 0 || s >= in->n_src)
        return (struct blocks_fault){BLOCKS_RANGE, i, s, in->n_src};
    if (d < 0 || d >= in->n_dst)
        return (struct blocks_fault){BLOCKS_RANGE, i, d, in->n_dst};
    for (int64_t j = 0; j < i && moves(in, i); j++)
        if (moves(in, j) && in->pairs[2 * j + 1] == d)
            return (struct blocks_fault){BLOCKS_DUPLICATE, i, d, j};
    for (int64_t j = 0; j < i && in->one_cache && moves(in, i); j++)
        if (moves(in, j) && (in->pairs[2 * j + 1] == s || in->pairs[2 * j] == d))
            return (struct blocks_fault){BLOCKS_HAZARD, i, in->pairs[2 * j + 1] == s ? s : d, j};
    return (struct blocks_fault){0};
}

struct blocks_fault oracle_kv_blocks(const struct blocks_case *in, unsigned char *dst)
{
    for (int64_t i = 0; i < in->n; i++) {
        const struct blocks_fault f = validate(in, i);
        if (f.code != BLOCKS_FINE)
            return f;
    }
    for (int64_t i = 0; i < in->n; i++)
        if (moves(in, i))
            memcpy(dst + (size_t)in->pairs[2 * i + 1] * in->block_bytes,
                   in->src + (size_t)in->pairs[2 * i] * in->block_bytes, in->block_bytes);
    return (struct blocks_fault){0};
}
