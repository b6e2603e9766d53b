/*
 * Printing: progress on a terminal, and texts that the formats share.
 */
#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/device.h"

/* ---- Progress ---- */

static void clear_progress(struct bench *bench)
{
    if (bench->progress_width > 0)
        fprintf(stderr, "\r%*s\r", bench->progress_width, "");
    bench->progress_width = 0;
}

/* No progress line if JSON is printed to the same terminal. */
void report_progress(struct bench *bench, const char *format, ...)
{
    char line[80];
    if (!isatty(STDERR_FILENO) || (bench->format == &report_json && isatty(STDOUT_FILENO)))
        return;
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    clear_progress(bench);
    fflush(stdout);
    fputs(line, stderr);
    bench->progress_width = (int)strlen(line);
}

void report_row(struct bench *bench, const struct bench_call *subject, const struct bench_times *times)
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
    if (bench->format->failure)
        bench->format->failure(bench, op, shape, reason);
}

void report_absent(struct bench *bench, const sy_op_info *op, const char *shape)
{
    bench->absent++;
    clear_progress(bench);
    bench->format->absent(bench, op, shape);
}

void report_peer(struct bench *bench, const struct peer_result *result)
{
    clear_progress(bench);
    bench->format->peer(bench, result);
    bench->n_peers++;
    fflush(stdout);
}

void report_note(struct bench *bench, const char *format, ...)
{
    char raw[BENCH_NOTE_BYTES], text[BENCH_NOTE_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(raw, sizeof raw, format, list);
    va_end(list);
    printable(text, sizeof text, raw);
    clear_progress(bench);
    for (int i = 0; i < bench->n_notes; i++)
        if (strcmp(bench->notes[i], text) == 0)
            return;
    if (bench->n_notes < BENCH_NOTES)
        memcpy(bench->notes[bench->n_notes++], text, sizeof text);
}

/* ---- Shared texts ---- */

const char *report_limit_name(const struct bench_work *limit)
{
    if (limit->read_bytes > 0)
        return "read";
    if (limit->copy_bytes == 0)
        return "fill";
    return limit->fill_bytes > 0 ? "copy+fill" : "copy";
}

double report_rate(const struct bench_call *subject, const struct bench_times *times)
{
    return subject->bytes / times->run;
}

double report_share(const struct bench_call *subject, const struct bench_times *times)
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

void report_print_where(const struct bench *bench)
{
    if (bench->device.tools)
        printf("cuda:%d, CUDA graphs", bench->device.device.device_id);
    else
        printf("%s, %d thread%s", sy_ctx_isa(bench->ctx), bench->threads, bench->threads == 1 ? "" : "s");
}

/* As far as it is known. */
void report_print_machine(const struct bench *bench)
{
    const struct bench_machine *const machine = &bench->machine;
    if (bench->device.tools) {
        device_print(&bench->device.info);
        return;
    }
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
    printf("copy %.1f GB/s (read and written), fill %.1f GB/s, read %.1f GB/s", limits->copy * 1e-9,
           limits->fill * 1e-9, limits->read[limits->best] * 1e-9);
    if (bench->device.tools)
        return;
    printf(" (");
    for (int i = 0; i < BENCH_READERS; i++)
        printf("%s%.1f", i > 0 ? ", " : "", limits->read[i] * 1e-9);
    printf(" with ");
    for (int i = 0; i < BENCH_READERS; i++)
        printf("%s%d", i > 0 ? ", " : "", bench_streams[i]);
    printf(" streams per thread)");
}

void report_print_peers(const struct bench *bench)
{
    if (bench->device.tools)
        printf("peers, on cuda:%d, in CUDA graphs where they can be", bench->device.device.device_id);
    else
        printf("peers, on %d thread%s (numpy: one)", bench->threads, bench->threads == 1 ? "" : "s");
}

struct bench_text report_ratio(double times_slower)
{
    struct bench_text text;
    const bool faster = times_slower >= 1;
    snprintf(text.text, sizeof text.text, "%.1f x %s", faster ? times_slower : 1 / times_slower,
             faster ? "faster" : "slower");
    return text;
}

void report_print_count(const struct bench *bench)
{
    printf("%d case%s checked against %s, %d wrong", bench->cases, bench->cases == 1 ? "" : "s",
           bench->device.tools ? "the CPU" : "a plain loop", bench->failures);
    if (bench->absent > 0)
        printf(", %d not on the device", bench->absent);
}
