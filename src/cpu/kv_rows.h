/*
 * Rows of a paged cache by slot, and copies between them and dense rows: what the operators on KV caches have in
 * common once it is known which slots they mean.
 */
#ifndef SYI_CPU_KV_ROWS_H
#define SYI_CPU_KV_ROWS_H

#include "base/plan.h"
#include "kernels/kernels.h"

enum { SYI_KV_CHUNK = 1024 }; /* slots found, and pieces collected, before any are copied */

/* t / block_size without a division where that is exact: a shift, or a multiplication for 32-bit operands. */
static inline int64_t syi_kv_block(const struct syi_kv_pool *pool, int64_t t)
{
    if (pool->block_shift >= 0)
        return t >> pool->block_shift;
    if (pool->block_magic != 0 && t <= UINT32_MAX)
        return (int64_t)((syi_u128)pool->block_magic * (uint64_t)t >> 64);
    return t / pool->block_size;
}

enum syi_kv_direction { SYI_KV_FROM_CACHE, SYI_KV_TO_CACHE };

/*
 * Copies rows of one plane. Pieces of equal length are collected so that the kernel can go from one group of them
 * to the next without anything in between: what the core does there keeps it from asking for the next rows while
 * it waits. A run is consecutive rows on both sides. It grows until the next slot does not go on with it.
 */
struct syi_kv_copier {
    const struct syi_kernels *kernels;
    const struct syi_kv_pool *pool;
    const struct syi_kv_plane *plane;
    enum syi_kv_direction direction;
    bool clear; /* from the cache: a dense row without a slot becomes zero; else it keeps its bytes */
    unsigned char *run;
    int64_t run_first, run_rows, most_rows;
    size_t n, bytes; /* pieces, bytes of each */
    void *to[SYI_KV_CHUNK];
    const void *from[SYI_KV_CHUNK];
};

void syi_kv_copy_begin(struct syi_kv_copier *c, const struct syi_kernels *kernels,
                       const struct syi_kv_pool *pool, const struct syi_kv_plane *plane,
                       enum syi_kv_direction direction, bool clear);

/* Dense rows [first, first + n) and these slots, -1 for none; n is at most SYI_KV_CHUNK. */
void syi_kv_copy_slots(struct syi_kv_copier *c, int64_t first, const int64_t *slot, int64_t n);

/* What is still collected. */
void syi_kv_copy_end(struct syi_kv_copier *c);

#endif
