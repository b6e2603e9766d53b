/*
 * Moves rows between slots of a paged cache and dense rows, a batch of slots through all planes. A plane's batch is a
 * list of pieces of equal length: the kernel copies one group of them after the other without other work in between,
 * which would keep the core from prefetching the next rows.
 */
#include "cpu/kv_rows.h"
#include "cpu/kv_codec.h"

enum {
    RUN_ROWS = 16,           /* consecutive rows are copied as one if they are at least so many rows */
    RUN_BYTES = 8 * 1024,    /* or so many bytes; shorter runs are random neighbours of different lengths */
    MOST_BYTES = 256 * 1024, /* a longer run is split, so that two are copied at the same time */
};

struct pieces {
    const struct syi_kernels *kernels;
    enum syi_kv_direction direction;
    size_t n, bytes;   /* pieces, bytes of each */
    void **to;         /* [SYI_KV_CHUNK] */
    const void **from; /* [SYI_KV_CHUNK] */
};

static struct pieces begin_pieces(struct syi_kv_mover *m)
{
    return (struct pieces){m->kernels, m->direction, 0, 0, m->to, m->from};
}

static void copy_pieces(struct pieces *p)
{
    p->kernels->copy_rows(p->to, p->from, p->n, p->bytes);
    p->n = 0;
}

static void add_piece(struct pieces *p, unsigned char *dense, unsigned char *cached, size_t bytes)
{
    if (p->n == SYI_KV_CHUNK || p->bytes != bytes)
        copy_pieces(p);
    p->bytes = bytes;
    p->to[p->n] = p->direction == SYI_KV_FROM_CACHE ? dense : cached;
    p->from[p->n++] = p->direction == SYI_KV_FROM_CACHE ? cached : dense;
}

/* The rows of a batch's slots, NULL for -1. */
static void locate(const struct syi_kv_mover *m, unsigned char *base, int64_t block_stride,
                   int64_t row_stride, void **row)
{
    const struct syi_kv_pool *pool = &m->planes->pool;
    for (int64_t i = 0; i < m->n; i++) {
        const int64_t s = m->slot[i] < 0 ? 0 : m->slot[i], block = syi_kv_block(pool, s);
        const int64_t within = s - block * pool->block_size;
        const size_t offset = (size_t)block * (size_t)block_stride + (size_t)within * (size_t)row_stride;
        row[i] = m->slot[i] < 0 ? NULL : base + offset;
    }
}

/* Rows from i on that are `step` bytes apart, at most `most`. */
static int64_t run_length(void *const *row, int64_t i, int64_t most, size_t step)
{
    const unsigned char *const first = row[i];
    int64_t n = 1;
    while (n < most && row[i + n] == first + (size_t)n * step)
        n++;
    return n;
}

/* Rows in one piece. */
static void copy_rows(struct syi_kv_mover *m, const struct syi_kv_plane *plane)
{
    const size_t row_bytes = plane->row_bytes;
    const bool dense = plane->dense.stride == (int64_t)row_bytes;
    const int64_t most = dense && row_bytes < MOST_BYTES ? (int64_t)(MOST_BYTES / row_bytes) : 1;
    struct pieces pieces = begin_pieces(m);
    void **const row = m->row;
    locate(m, plane->cache, plane->block_stride, plane->row_stride, row);
    for (int64_t i = 0, run; i < m->n; i += run) {
        run = 1;
        if (row[i] == NULL) {
            if (m->clear)
                memset(syi_row_at(plane->dense, m->first + i), 0, row_bytes);
            continue;
        }
        run = run_length(row, i, m->n - i < most ? m->n - i : most, row_bytes);
        if (run >= RUN_ROWS || (size_t)run * row_bytes >= RUN_BYTES)
            add_piece(&pieces, syi_row_at(plane->dense, m->first + i), row[i], (size_t)run * row_bytes);
        else
            for (int64_t r = i; r < i + run; r++)
                add_piece(&pieces, syi_row_at(plane->dense, m->first + r), row[r], row_bytes);
    }
    copy_pieces(&pieces);
}

/* Head after head. That is faster than several heads at once for a run of rows, whose heads are streams that the core
   prefetches itself, and for writing to the cache, where the lines of one head are consecutive. */
static void copy_in_order(const struct syi_kv_mover *m, const struct syi_kv_plane *plane, void *const *row,
                          int64_t first, int64_t run)
{
    const size_t bytes = plane->head_bytes;
    for (int64_t i = 0; i < run; i++)
        for (int64_t h = 0; h < plane->n_heads; h++) {
            unsigned char *dense = syi_row_at(plane->dense, first + i) + (size_t)h * bytes;
            unsigned char *cached = (unsigned char *)row[i] + h * plane->head_stride;
            memcpy(m->direction == SYI_KV_FROM_CACHE ? dense : cached,
                   m->direction == SYI_KV_FROM_CACHE ? cached : dense, bytes);
        }
}

/* Heads that are separate in the cache and consecutive in a dense row. */
static void copy_heads(struct syi_kv_mover *m, const struct syi_kv_plane *plane)
{
    struct pieces pieces = begin_pieces(m);
    void **const row = m->row;
    locate(m, plane->cache, plane->block_stride, plane->row_stride, row);
    for (int64_t i = 0, run; i < m->n; i += run) {
        unsigned char *dense = syi_row_at(plane->dense, m->first + i);
        run = row[i] == NULL ? 1 : run_length(row, i, m->n - i, (size_t)plane->row_stride);
        if (row[i] == NULL) {
            if (m->clear)
                memset(dense, 0, plane->row_bytes);
        } else if (run >= RUN_ROWS || m->direction == SYI_KV_TO_CACHE) {
            copy_in_order(m, plane, row + i, m->first + i, run);
        } else {
            run = 1;
            for (int64_t h = 0; h < plane->n_heads; h++)
                add_piece(&pieces, dense + (size_t)h * plane->head_bytes,
                          (unsigned char *)row[i] + h * plane->head_stride, plane->head_bytes);
        }
    }
    copy_pieces(&pieces);
}

/* Prefetches the head of a row, or all of it if it is short. */
static void fetch_row(const unsigned char *row, size_t bytes)
{
    enum { LINE = 64, MOST = 2048 };
    for (size_t at = 0; at < bytes && at < MOST; at += LINE)
        __builtin_prefetch(row + at, 0, 3);
}

/* Packed rows: one by one, through their codec. */
static void code_rows(struct syi_kv_mover *m, const struct syi_kv_plane *plane)
{
    enum { AHEAD = 6 }; /* rows prefetched ahead */
    const struct syi_kv_codec *codec = &plane->codec;
    void **const row = m->row, **const record = m->to;
    locate(m, plane->cache, plane->block_stride, plane->row_stride, row);
    locate(m, codec->scale, codec->scale_block_stride, codec->scale_row_stride, record);
    for (int64_t i = 0; i < m->n; i++) {
        unsigned char *dense = syi_row_at(plane->dense, m->first + i);
        if (i + AHEAD < m->n && row[i + AHEAD] != NULL) {
            fetch_row(row[i + AHEAD], plane->head_bytes);
            __builtin_prefetch(record[i + AHEAD], 0, 3);
        }
        if (row[i] == NULL && m->clear)
            memset(dense, 0, codec->dense_bytes);
        else if (row[i] != NULL && m->direction == SYI_KV_FROM_CACHE)
            syi_kv_unpack(m->kernels, codec, dense, row[i], record[i], m->first + i);
        else if (row[i] != NULL)
            syi_kv_pack(m->kernels, codec, row[i], record[i], dense, m->first + i);
    }
}

static void move_batch(struct syi_kv_mover *m)
{
    for (int64_t i = 0; i < m->planes->n && m->n > 0; i++)
        if (m->planes->at[i].packed)
            code_rows(m, &m->planes->at[i]);
        else if (m->planes->at[i].n_heads == 1)
            copy_rows(m, &m->planes->at[i]);
        else
            copy_heads(m, &m->planes->at[i]);
    m->first += m->n;
    m->n = 0;
}

struct syi_found syi_kv_bad_global(const struct syi_kv_planes *planes)
{
    for (int64_t i = 0; i < planes->n; i++)
        if (planes->at[i].packed && syi_find_bad_global(&planes->at[i].codec).bad != SYI_GOOD)
            return syi_bad_at(SYI_BAD_KV_GLOBAL_SCALE, 0, i, 0, 0);
    return syi_good();
}

void syi_kv_move_begin(struct syi_kv_mover *m, const struct syi_kernels *kernels,
                       const struct syi_kv_planes *planes, enum syi_kv_direction direction, bool clear,
                       int64_t first)
{
    m->kernels = kernels;
    m->planes = planes;
    m->direction = direction;
    m->clear = clear;
    m->first = first;
    m->n = 0;
}

int64_t *syi_kv_move_capacity(struct syi_kv_mover *m, int64_t *capacity)
{
    *capacity = SYI_KV_CHUNK - m->n;
    return m->slot + m->n;
}

void syi_kv_move_slots(struct syi_kv_mover *m, int64_t n)
{
    m->n += n;
    if (m->n == SYI_KV_CHUNK)
        move_batch(m);
}

void syi_kv_move_run(struct syi_kv_mover *m, int64_t slot, int64_t n)
{
    while (n > 0) {
        int64_t capacity;
        int64_t *to = syi_kv_move_capacity(m, &capacity);
        const int64_t take = n < capacity ? n : capacity;
        for (int64_t i = 0; i < take; i++)
            to[i] = slot + i;
        syi_kv_move_slots(m, take);
        slot += take;
        n -= take;
    }
}

void syi_kv_move_end(struct syi_kv_mover *m)
{
    move_batch(m);
}
