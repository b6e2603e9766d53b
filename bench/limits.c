/*
 * The limits of the machine: copy, fill and read on all threads, through memory the caches have forgotten.
 */
#define _XOPEN_SOURCE 700 /* posix_memalign */

#include "bench.h"

#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* Larger than the last-level cache of the machines this is meant for, twice over with both arenas. */
#define COLD_BYTES ((size_t)128 << 20)

int64_t bench_sets(size_t bytes_of_one)
{
    const size_t sets = COLD_BYTES / (bytes_of_one + 1) + 1;
    return sets > 64 ? 64 : (int64_t)sets;
}

/* ---- Threads ------------------------------------------------------------------------------------------- */

/* The same OpenMP threads that the library uses: two pools would fight for the cores. */
int bench_limit_threads(int threads)
{
#ifdef _OPENMP
    return threads;
#else
    (void)threads;
    return 1;
#endif
}

struct span {
    const unsigned char *from;
    unsigned char *to;
    size_t bytes;
};

/* Part `index` of `n`, cut at 4 KiB so that no two threads share a page. */
static struct span part_of(const struct span *whole, int index, int n)
{
    const size_t step = (whole->bytes / (size_t)n + 4095) / 4096 * 4096;
    const size_t begin = step * (size_t)index < whole->bytes ? step * (size_t)index : whole->bytes;
    const size_t left = whole->bytes - begin;
    return (struct span){whole->from + begin, whole->to + begin, left < step ? left : step};
}

static void copy_span(const struct span *span)
{
    if (span->bytes > 0)
        memcpy(span->to, span->from, span->bytes);
}

static void fill_span(const struct span *span)
{
    if (span->bytes > 0)
        memset(span->to, 0, span->bytes);
}

/* Four streams: more loads in flight than one, and the fastest or near it wherever it was tried. */
static void read_span(const struct span *span)
{
    enum { STREAMS = 4, LANES = 8 };
    uint64_t lane[STREAMS][LANES] = {{0}};
    const size_t stream_bytes = span->bytes / STREAMS / 64 * 64;
    for (size_t at = 0; at < stream_bytes; at += 64)
        for (int s = 0; s < STREAMS; s++) {
            uint64_t words[LANES];
            memcpy(words, span->from + (size_t)s * stream_bytes + at, sizeof words);
            for (int i = 0; i < LANES; i++)
                lane[s][i] ^= words[i];
        }
    uint64_t sum = 0;
    for (int s = 0; s < STREAMS; s++)
        for (int i = 0; i < LANES; i++)
            sum ^= lane[s][i];
    /* A store nobody can leave out keeps the loads. */
    *(volatile unsigned char *)span->to = (unsigned char)sum;
}

static void in_parallel(void (*work)(const struct span *), struct span whole, int threads)
{
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
    {
        const struct span part = part_of(&whole, omp_get_thread_num(), omp_get_num_threads());
        work(&part);
    }
#else
    (void)threads;
    const struct span part = part_of(&whole, 0, 1);
    work(&part);
#endif
}

/* ---- Limits -------------------------------------------------------------------------------------------- */

bool bench_arena_reserve(struct bench_arena *arena, size_t bytes, int threads)
{
    const size_t want = bytes + 4096 > COLD_BYTES ? bytes + 4096 : COLD_BYTES;
    if (arena->bytes >= want)
        return true;
    bench_arena_free(arena);
    void *from = NULL, *to = NULL;
    if (posix_memalign(&from, 4096, want) != 0 || posix_memalign(&to, 4096, want) != 0) {
        free(from);
        return false;
    }
    *arena = (struct bench_arena){.from = from, .to = to, .bytes = want};
    /* First touch by the threads that will use the pages. */
    in_parallel(fill_span, (struct span){from, from, want}, threads);
    in_parallel(fill_span, (struct span){to, to, want}, threads);
    return true;
}

void bench_arena_free(struct bench_arena *arena)
{
    free(arena->from);
    free(arena->to);
    *arena = (struct bench_arena){0};
}

static double timed(void (*work)(const struct span *), struct bench_arena *arena, size_t bytes, int threads)
{
    if (bytes == 0)
        return 0;
    if (arena->at + bytes > arena->bytes)
        arena->at = 0;
    /* Starting threads costs more than they save on little work; an operator may know that too. */
    if (bytes < (size_t)128 << 10)
        threads = 1;
    const struct span span = {arena->from + arena->at, arena->to + arena->at, bytes};
    arena->at += (bytes + 4095) / 4096 * 4096;
    const double begin = bench_now();
    in_parallel(work, span, threads);
    return bench_now() - begin;
}

double bench_limit_seconds(struct bench_arena *arena, const struct bench_work *work, int threads)
{
    return timed(copy_span, arena, work->copy_bytes, threads) +
           timed(fill_span, arena, work->fill_bytes, threads) +
           timed(read_span, arena, work->read_bytes, threads);
}

double bench_work_bytes(const struct bench_work *work)
{
    return 2 * (double)work->copy_bytes + (double)work->fill_bytes + (double)work->read_bytes;
}
