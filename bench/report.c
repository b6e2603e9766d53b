/*
 * Printing: progress on a terminal, and what the formats say alike.
 */
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Progress ------------------------------------------------------------------------------------------ */

/* Half a line of JSON on the same terminal leaves no line for progress. */
void report_progress(struct bench *bench, const char *op, const char *shape)
{
    char line[80];
    if (!isatty(STDERR_FILENO) || (bench->format == &report_json && isatty(STDOUT_FILENO)))
        return;
    snprintf(line, sizeof line, "[%d/%d] %s %s ...", bench->cases + 1, bench->total, op, shape);
    fflush(stdout);
    fputs(line, stderr);
    bench->progress_width = (int)strlen(line);
}

static void clear_progress(struct bench *bench)
{
    if (bench->progress_width > 0)
        fprintf(stderr, "\r%*s\r", bench->progress_width, "");
    bench->progress_width = 0;
}

void report_row(struct bench *bench, const struct bench_case *subject, const struct bench_times *times)
{
    clear_progress(bench);
    bench->format->row(bench, subject, times);
    fflush(stdout);
}

void report_failure(struct bench *bench, const char *op, const char *shape, const char *reason)
{
    bench->failures++;
    clear_progress(bench);
    fprintf(stderr, "switchyard: bench: %s %s: %s\n", op, shape, reason);
    bench->format->failure(bench, op, shape, reason);
}

/* ---- Said alike ---------------------------------------------------------------------------------------- */

const char *report_limit_name(const struct bench_work *limit)
{
    if (limit->read_bytes > 0)
        return "read";
    if (limit->copy_bytes == 0)
        return "fill";
    return limit->fill_bytes > 0 ? "copy+fill" : "copy";
}

double report_rate(const struct bench_case *subject, const struct bench_times *times)
{
    return subject->bytes / times->run;
}

double report_share(const struct bench_case *subject, const struct bench_times *times)
{
    return report_rate(subject, times) * times->limit / bench_work_bytes(&subject->limit);
}

bool report_names_buffers(const struct bench *bench)
{
    return bench->cold && bench->warm;
}

const char *report_buffers(const struct bench *bench)
{
    if (report_names_buffers(bench))
        return "cold and warm";
    return bench->warm ? "warm" : "cold";
}

/* As far as it is known. */
void report_print_machine(const struct bench *bench)
{
    const struct bench_machine *const machine = &bench->machine;
    if (machine->cpu[0] != '\0')
        printf("%s, ", machine->cpu);
    printf("%d CPU%s", machine->cpus, machine->cpus == 1 ? "" : "s");
    if (machine->cache_bytes > 0) {
        printf(", last-level cache ");
        if (machine->caches > 1)
            printf("%d x ", machine->caches);
        printf("%.4g MiB", (double)machine->cache_bytes / 0x1p20);
    }
}

void report_print_limits(const struct bench *bench)
{
    const struct bench_limits *const limits = &bench->limits;
    const int threads = bench_limit_threads(bench->threads);
    printf("copy %.1f GB/s (read and written), fill %.1f GB/s, read %.1f GB/s (", limits->copy * 1e-9,
           limits->fill * 1e-9, limits->read[limits->best] * 1e-9);
    for (int i = 0; i < BENCH_READERS; i++)
        printf("%s%.1f", i > 0 ? ", " : "", limits->read[i] * 1e-9);
    printf(" with ");
    for (int i = 0; i < BENCH_READERS; i++)
        printf("%s%d", i > 0 ? ", " : "", bench_streams[i]);
    printf(" streams per thread)");
    if (threads != bench->threads)
        printf("; built without OpenMP: the limits are those of one thread");
}

void report_print_count(const struct bench *bench)
{
    printf("%d case%s checked against a plain loop, %d wrong", bench->cases, bench->cases == 1 ? "" : "s",
           bench->failures);
}
