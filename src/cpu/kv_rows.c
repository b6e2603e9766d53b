/*
 * Copies between slots of a paged cache and dense rows.
 */
#include "cpu/kv_rows.h"

enum {
    RUN_ROWS = 16,           /* consecutive rows are copied as one from so many rows */
    RUN_BYTES = 8 * 1024,    /* or so many bytes on; fewer are neighbours by chance, of no common length */
    MOST_BYTES = 256 * 1024, /* a run longer than this is cut, so that there are two to copy side by side */
};

static void copy_pieces(struct syi_kv_copier *c)
{
    c->kernels->copy_rows(c->to, c->from, c->n, c->bytes);
    c->n = 0;
}

static void add_piece(struct syi_kv_copier *c, unsigned char *dense, unsigned char *cached, size_t bytes)
{
    if (c->n == SYI_KV_CHUNK || c->bytes != bytes)
        copy_pieces(c);
    c->bytes = bytes;
    c->to[c->n] = c->direction == SYI_KV_FROM_CACHE ? dense : cached;
    c->from[c->n++] = c->direction == SYI_KV_FROM_CACHE ? cached : dense;
}

static void end_run(struct syi_kv_copier *c)
{
    const struct syi_kv_plane *p = c->plane;
    const size_t bytes = (size_t)c->run_rows * p->row_bytes;
    if (c->run_rows >= RUN_ROWS || bytes >= RUN_BYTES)
        add_piece(c, syi_row(p->dense, c->run_first), c->run, bytes);
    else
        for (int64_t i = 0; i < c->run_rows; i++)
            add_piece(c, syi_row(p->dense, c->run_first + i), c->run + (size_t)i * p->row_bytes,
                      p->row_bytes);
    c->run_rows = 0;
}

void syi_kv_copy_begin(struct syi_kv_copier *c, const struct syi_kernels *kernels,
                       const struct syi_kv_pool *pool, const struct syi_kv_plane *plane,
                       enum syi_kv_direction direction, bool clear)
{
    const bool dense = plane->dense.stride == (int64_t)plane->row_bytes;
    c->kernels = kernels;
    c->pool = pool;
    c->plane = plane;
    c->direction = direction;
    c->clear = clear;
    c->run_rows = 0;
    c->most_rows = dense && plane->row_bytes < MOST_BYTES ? (int64_t)(MOST_BYTES / plane->row_bytes) : 1;
    c->n = c->bytes = 0;
}

/* The rows of slots, NULL for -1. */
static void locate(const struct syi_kv_copier *c, const int64_t *slot, int64_t n, unsigned char **row)
{
    const struct syi_kv_pool *pool = c->pool;
    const struct syi_kv_plane *p = c->plane;
    for (int64_t i = 0; i < n; i++) {
        const int64_t s = slot[i] < 0 ? 0 : slot[i], block = syi_kv_block(pool, s);
        const int64_t within = s - block * pool->block_size;
        const size_t offset =
            (size_t)block * (size_t)p->block_stride + (size_t)within * (size_t)p->row_stride;
        row[i] = slot[i] < 0 ? NULL : p->cache + offset;
    }
}

void syi_kv_copy_slots(struct syi_kv_copier *c, int64_t first, const int64_t *slot, int64_t n)
{
    const struct syi_kv_plane *p = c->plane;
    unsigned char *row[SYI_KV_CHUNK];
    locate(c, slot, n, row);
    for (int64_t i = 0; i < n; i++) {
        const bool goes_on = c->run_rows > 0 && c->run_rows < c->most_rows &&
                             row[i] == c->run + (size_t)c->run_rows * p->row_bytes;
        if (!goes_on) {
            end_run(c);
            c->run = row[i];
            c->run_first = first + i;
        }
        if (row[i] != NULL)
            c->run_rows++;
        else if (c->clear)
            memset(syi_row(p->dense, first + i), 0, p->row_bytes);
    }
}

void syi_kv_copy_end(struct syi_kv_copier *c)
{
    end_run(c);
    copy_pieces(c);
}
