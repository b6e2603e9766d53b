/*
 * The limits of the machine: copy, fill and read on all threads, through memory that is not in the caches.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

/* ---- Threads ---- */

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

/* NOLINTBEGIN(clang-analyzer-unix.Malloc): taken for the arena that bench_arena_reserve has freed */
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

/* Two words at a time, loaded separately, so that every compiler keeps them in registers. */
typedef uint64_t pair __attribute__((vector_size(16)));

static inline pair load(const unsigned char *from)
{
    pair words;
    memcpy(&words, from, sizeof words);
    return words;
}

static inline pair read_line(const unsigned char *from)
{
    return (load(from) ^ load(from + 16)) ^ (load(from + 32) ^ load(from + 48));
}

/* A store that the compiler cannot remove keeps the loads. */
static inline void keep(const struct span *span, pair sum)
{
    *(volatile unsigned char *)span->to = (unsigned char)(sum[0] ^ sum[1]);
}
/* NOLINTEND(clang-analyzer-unix.Malloc) */

/* Each stream reads its own part of the span. The best number differs between processors: some prefetch one stream
   better, some keep more loads in flight with several. */
static void read_1(const struct span *span)
{
    pair a = {0};
    for (size_t at = 0; at + 64 <= span->bytes; at += 64)
        a ^= read_line(span->from + at);
    keep(span, a);
}

static void read_2(const struct span *span)
{
    const size_t step = span->bytes / 2 / 64 * 64;
    pair a = {0}, b = {0};
    for (size_t at = 0; at < step; at += 64) {
        a ^= read_line(span->from + at);
        b ^= read_line(span->from + step + at);
    }
    keep(span, a ^ b);
}

static void read_4(const struct span *span)
{
    const size_t step = span->bytes / 4 / 64 * 64;
    pair a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t at = 0; at < step; at += 64) {
        a ^= read_line(span->from + at);
        b ^= read_line(span->from + step + at);
        c ^= read_line(span->from + 2 * step + at);
        d ^= read_line(span->from + 3 * step + at);
    }
    keep(span, (a ^ b) ^ (c ^ d));
}

static void (*const readers[BENCH_READERS])(const struct span *span) = {read_1, read_2, read_4};
const int bench_streams[BENCH_READERS] = {1, 2, 4};

struct job {
    void (*work)(const struct span *);
    struct span whole;
    int n;
};

static void run_part(void *data, int index)
{
    const struct job *job = data;
    const struct span part = part_of(&job->whole, index, job->n);
    job->work(&part);
}

/* On the threads that the operators use: those of a second pool would compete for the cores. */
static void in_parallel(void (*work)(const struct span *), struct span whole, sy_ctx *ctx)
{
    struct job job = {work, whole, ctx != NULL ? sy_ctx_threads(ctx) : 1};
    if (job.n == 1 || sy_ctx_parallel(ctx, job.n, run_part, &job) != SY_OK)
        work(&whole);
}

/* ---- Limits ---- */

bool bench_arena_reserve(struct bench_arena *arena, size_t bytes, sy_ctx *ctx, bool quick)
{
    const size_t cold = bench_cold_bytes(quick), most = bytes + 4096 > cold ? bytes + 4096 : cold;
    struct bench_arena made = {.bytes = (most + 4095) / 4096 * 4096, .reader = arena->reader};
    if (arena->bytes >= made.bytes)
        return true;
    bench_arena_free(arena);
    made.from = aligned_alloc(4096, made.bytes);
    made.to = aligned_alloc(4096, made.bytes);
    if (made.from == NULL || made.to == NULL) {
        bench_arena_free(&made);
        return false;
    }
    *arena = made;
    /* First touch by the threads that will use the pages. */
    in_parallel(fill_span, (struct span){made.from, made.from, made.bytes}, ctx);
    in_parallel(fill_span, (struct span){made.to, made.to, made.bytes}, ctx);
    return true;
}

void bench_arena_free(struct bench_arena *arena)
{
    free(arena->from);
    free(arena->to);
    *arena = (struct bench_arena){0};
}

static double timed(void (*work)(const struct span *), struct bench_arena *arena, size_t bytes, sy_ctx *ctx)
{
    if (bytes == 0)
        return 0;
    if (arena->at + bytes > arena->bytes)
        arena->at = 0;
    /* For little work, starting threads costs more than it saves; operators use fewer threads then, too. */
    if (bytes < (size_t)128 << 10)
        ctx = NULL;
    const struct span span = {arena->from + arena->at, arena->to + arena->at, bytes};
    arena->at += (bytes + 4095) / 4096 * 4096;
    const double begin = bench_now();
    in_parallel(work, span, ctx);
    return bench_now() - begin;
}

double bench_limit_seconds(struct bench_arena *arena, const struct bench_work *work, sy_ctx *ctx)
{
    if (arena->stay)
        arena->at = 0;
    return timed(copy_span, arena, work->copy_bytes, ctx) + timed(fill_span, arena, work->fill_bytes, ctx) +
           timed(readers[arena->reader], arena, work->read_bytes, ctx);
}

double bench_work_bytes(const struct bench_work *work)
{
    return 2 * (double)work->copy_bytes + (double)work->fill_bytes + (double)work->read_bytes;
}

bool bench_limits(struct bench_arena *arena, sy_ctx *ctx, bool quick, struct bench_limits *limits)
{
    enum { TURNS = 15, KINDS = 2 + BENCH_READERS };
    void (*const kinds[KINDS])(const struct span *span) = {copy_span, fill_span, read_1, read_2, read_4};
    double seconds[KINDS][TURNS], rate[KINDS];
    if (!bench_arena_reserve(arena, 0, ctx, quick))
        return false;
    const size_t bytes = arena->bytes / (quick ? 16 : 4) / 4096 * 4096;
    const int n = quick ? 3 : TURNS;
    for (int i = 0; i < n; i++)
        for (int kind = 0; kind < KINDS; kind++)
            seconds[kind][i] = timed(kinds[kind], arena, bytes, ctx);
    for (int kind = 0; kind < KINDS; kind++)
        rate[kind] = (kind == 0 ? 2 : 1) * (double)bytes / bench_median(seconds[kind], n);
    *limits = (struct bench_limits){.copy = rate[0], .fill = rate[1]};
    for (int i = 0; i < BENCH_READERS; i++) {
        limits->read[i] = rate[2 + i];
        if (limits->read[i] > limits->read[limits->best])
            limits->best = i;
    }
    arena->reader = limits->best;
    return true;
}
