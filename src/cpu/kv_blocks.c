/*
 * kv_blocks on the CPU: all or nothing. Pairs are validated first, repeated and crossing blocks by sorting; then blocks
 * are copied in any order, because none that is written is read or written by another pair.
 */
#include "cpu/sort.h"
#include "kernels/kernels.h"
#include "cpu/backend.h"

enum {
    CHUNK = 256,            /* pieces of one kernel call */
    MOST_BYTES = 256 * 1024 /* longer blocks are cut, so that threads and the kernel have several pieces */
};

struct job {
    const struct syi_kv_blocks_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    struct syi_keyed *to, *from, *spare; /* [n] each: destinations and sources by block */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_kv_blocks_plan *p, struct syi_arena *arena)
{
    const size_t bytes = syi_size_mul((size_t)p->n, sizeof(struct syi_keyed));
    struct job job = {.plan = p, .kernels = ctx->kernels};
    job.to = syi_take(arena, bytes);
    job.from = syi_take(arena, p->one_cache ? bytes : 0);
    job.spare = syi_take(arena, syi_size_mul(bytes, p->one_cache ? 2 : 1));
    return job;
}

SYI_CPU_WORKSPACE(kv_blocks)

/* ---- Contents ---- */

static int64_t source(const struct syi_kv_blocks_plan *p, int64_t i)
{
    return syi_load_index(syi_at(p->pairs, i), 0, p->pairs.type);
}

static int64_t destination(const struct syi_kv_blocks_plan *p, int64_t i)
{
    return syi_load_index(syi_at(p->pairs, i), 1, p->pairs.type);
}

/* A pair that moves nothing cannot conflict. */
static bool idle(const struct syi_kv_blocks_plan *p, int64_t i)
{
    return p->one_cache && source(p, i) == destination(p, i);
}

static struct syi_found find_outside(const struct syi_kv_blocks_plan *p)
{
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t s = source(p, i), d = destination(p, i);
        if (s < 0 || s >= p->n_src)
            return syi_bad_at(SYI_BAD_KV_PAIR_READS, -1, i, s, p->n_src);
        if (d < 0 || d >= p->n_dst)
            return syi_bad_at(SYI_BAD_KV_PAIR_WRITES, -1, i, d, p->n_dst);
    }
    return (struct syi_found){.bad = SYI_GOOD, .position = p->n};
}

/* Keeps the earlier of two faults; of one position the first found. */
static void keep_first(struct syi_found *first, enum syi_bad bad, int64_t position, uint64_t block,
                       int64_t other)
{
    if (position < first->position)
        *first = syi_bad_at(bad, -1, position, (int64_t)block, other);
}

/* Conflicts among the `end` pairs before the first fault so far. Equal blocks are in order of position, so a block's
   first conflict is its second destination, or the later of its first destination and its first source. */
static void find_conflicts(const struct job *job, struct syi_found *first)
{
    const struct syi_kv_blocks_plan *p = job->plan;
    const int64_t end = first->position;
    size_t n = 0;
    for (int64_t i = 0; i < end; i++)
        if (!idle(p, i)) {
            job->to[n] = (struct syi_keyed){(uint64_t)destination(p, i), i};
            if (p->one_cache)
                job->from[n] = (struct syi_keyed){(uint64_t)source(p, i), i};
            n++;
        }
    const struct syi_keyed *to = syi_sort_keyed(job->to, job->spare, n, (uint64_t)p->n_dst);
    for (size_t i = 1; i < n; i++)
        if (to[i].key == to[i - 1].key)
            keep_first(first, SYI_BAD_KV_PAIR_TWICE, to[i].value, to[i].key, to[i - 1].value);
    if (!p->one_cache)
        return;
    const struct syi_keyed *from = syi_sort_keyed(job->from, job->spare + p->n, n, (uint64_t)p->n_src);
    for (size_t i = 0, j = 0; i < n; i++) {
        while (j < n && from[j].key < to[i].key)
            j++;
        if (j < n && from[j].key == to[i].key) {
            const bool later = to[i].value > from[j].value;
            keep_first(first, SYI_BAD_KV_PAIR_HAZARD, later ? to[i].value : from[j].value, to[i].key,
                       later ? from[j].value : to[i].value);
        }
    }
}

/* ---- The copy ---- */

static int64_t pieces_of(const struct syi_kv_plane *plane)
{
    return (int64_t)((plane->row_bytes - 1) / MOST_BYTES) + 1;
}

/* Piece k of every pair of a task, for one plane: all of equal length. */
static void copy_piece(const struct job *job, const struct syi_kv_plane *plane, int64_t k, int64_t begin,
                       int64_t end)
{
    const struct syi_kv_blocks_plan *p = job->plan;
    const size_t at = (size_t)k * MOST_BYTES, left = plane->row_bytes - at;
    const struct syi_rows src = {plane->cache, plane->block_stride};
    void *to[CHUNK];
    const void *from[CHUNK];
    size_t n = 0;
    for (int64_t i = begin; i < end; i++) {
        if (idle(p, i))
            continue;
        to[n] = syi_row_at(plane->dense, destination(p, i)) + at;
        from[n++] = syi_row_at(src, source(p, i)) + at;
        if (n == CHUNK) {
            job->kernels->copy_rows(to, from, n, left < MOST_BYTES ? left : MOST_BYTES);
            n = 0;
        }
    }
    job->kernels->copy_rows(to, from, n, left < MOST_BYTES ? left : MOST_BYTES);
}

/* Pieces of all pairs, then those of the next plane: a task has its part of each piece number. */
static void copy_blocks(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_blocks_plan *p = job->plan;
    for (int64_t i = 0; i < p->n_planes; i++) {
        const int64_t pieces = pieces_of(&p->planes[i]), n = pieces * p->n;
        const int64_t begin = syi_part(n, job->n_tasks, task), end = syi_part(n, job->n_tasks, task + 1);
        for (int64_t at = begin, k; at < end; at = (k + 1) * p->n < end ? (k + 1) * p->n : end) {
            k = at / p->n;
            const int64_t stop = (k + 1) * p->n < end ? (k + 1) * p->n : end;
            copy_piece(job, &p->planes[i], k, at - k * p->n, stop - k * p->n);
        }
    }
}

sy_status syi_cpu_kv_blocks(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_blocks_plan *p = &plan->kv_blocks;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    if (p->n == 0)
        return SY_OK;
    struct syi_found first = find_outside(p);
    find_conflicts(&job, &first);
    if (first.bad != SYI_GOOD)
        return syi_report(ctx, first);
    job.n_tasks = syi_tasks(ctx, INT64_MAX, (uint64_t)p->n * p->block_bytes);
    syi_parallel(ctx, job.n_tasks, copy_blocks, &job);
    return SY_OK;
}
