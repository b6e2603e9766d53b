/*
 * What a run prints: a table for people, or one JSON object.
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
    if (!isatty(STDERR_FILENO) || (bench->as_json && isatty(STDOUT_FILENO)))
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

/* ---- Rows ---------------------------------------------------------------------------------------------- */

static const char *limit_name(const struct bench_work *limit)
{
    if (limit->read_bytes > 0)
        return "read";
    return limit->fill_bytes > 0 ? "copy+fill" : "copy";
}

static void print_row(const struct bench *bench, const struct bench_case *subject,
                      const struct bench_times *times)
{
    char share[24], bytes[24];
    const double rate = subject->bytes / times->run;
    const double limit_rate = bench_work_bytes(&subject->limit) / times->limit;
    const double percent = 100 * rate / limit_rate;
    snprintf(share, sizeof share, "%.*f%% of %s", percent < 10 ? 1 : 0, percent, limit_name(&subject->limit));
    snprintf(bytes, sizeof bytes, "%.4g MB", subject->bytes * 1e-6);
    printf("%-*s  %-*s %9s %4.0f%%  %9s %7.1f GB/s  %-17s %6.2f x  %9s (%.1f x)\n", bench->op_width,
           subject->op, bench->shape_width, subject->shape, bench_time(times->run).text, 100 * times->spread,
           bytes, rate * 1e-9, share, times->run / times->limit, bench_time(times->plain).text,
           times->plain / times->run);
    fflush(stdout);
}

static void json_row(struct bench *bench, const struct bench_case *subject, const struct bench_times *times)
{
    struct emit *const json = &bench->json;
    const double rate = subject->bytes / times->run;
    const double limit_rate = bench_work_bytes(&subject->limit) / times->limit;
    emit_begin(json, NULL, '{');
    emit_string(json, "op", subject->op);
    emit_string(json, "shape", subject->shape);
    emit_bool(json, "checked", true);
    emit_number(json, "seconds", times->run);
    emit_number(json, "spread", times->spread);
    emit_number(json, "bytes", subject->bytes);
    emit_number(json, "gb_per_s", rate * 1e-9);
    emit_string(json, "limit", limit_name(&subject->limit));
    emit_number(json, "limit_seconds", times->limit);
    emit_number(json, "limit_gb_per_s", limit_rate * 1e-9);
    emit_number(json, "share_of_limit", rate / limit_rate);
    emit_number(json, "times_limit", times->run / times->limit);
    emit_number(json, "plain_seconds", times->plain);
    emit_number(json, "times_faster_than_plain", times->plain / times->run);
    emit_end(json, '}');
}

void report_row(struct bench *bench, const struct bench_case *subject, const struct bench_times *times)
{
    clear_progress(bench);
    if (bench->as_json)
        json_row(bench, subject, times);
    else
        print_row(bench, subject, times);
}

void report_failure(struct bench *bench, const char *op, const char *shape, const char *reason)
{
    bench->failures++;
    clear_progress(bench);
    fprintf(stderr, "switchyard: bench: %s %s: %s\n", op, shape, reason);
    if (!bench->as_json)
        return;
    emit_begin(&bench->json, NULL, '{');
    emit_string(&bench->json, "op", op);
    emit_string(&bench->json, "shape", shape);
    emit_bool(&bench->json, "checked", false);
    emit_string(&bench->json, "reason", reason);
    emit_end(&bench->json, '}');
}

/* ---- Head and end -------------------------------------------------------------------------------------- */

/* "Arm Neoverse-V1, 2 CPUs, last-level cache 32 MiB", as far as it is known. */
static void print_machine(const struct bench_machine *machine)
{
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

static void print_limits(const struct bench *bench)
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

static void print_head(const struct bench *bench)
{
    printf("switchyard %s, kernels %s, %d thread%s, cold buffers%s\n", sy_version(), sy_ctx_isa(bench->ctx),
           bench->threads, bench->threads == 1 ? "" : "s", bench->quick ? ", quick" : "");
    print_machine(&bench->machine);
    printf("\nlimits, cold: ");
    print_limits(bench);
    printf("\n");
    printf("\n%-*s  %-*s %9s %5s  %9s %12s  %-17s %8s  %s\n", bench->op_width, "operator", bench->shape_width,
           "shape", "time", "+-", "bytes", "rate", "share of limit", "x limit", "plain loop");
}

static void json_machine(struct emit *json, const struct bench_machine *machine)
{
    emit_begin(json, "machine", '{');
    emit_string(json, "cpu", machine->cpu[0] != '\0' ? machine->cpu : NULL);
    emit_integer(json, "cpus", machine->cpus);
    emit_integer(json, "last_level_cache_bytes", (int64_t)machine->cache_bytes);
    emit_integer(json, "last_level_caches", machine->caches);
    emit_end(json, '}');
}

static void json_limits(struct emit *json, const struct bench_limits *limits)
{
    emit_begin(json, "limits", '{');
    emit_number(json, "copy_gb_per_s", limits->copy * 1e-9);
    emit_number(json, "fill_gb_per_s", limits->fill * 1e-9);
    emit_number(json, "read_gb_per_s", limits->read[limits->best] * 1e-9);
    emit_integer(json, "read_streams", bench_streams[limits->best]);
    emit_begin(json, "read_gb_per_s_by_streams", '{');
    for (int i = 0; i < BENCH_READERS; i++) {
        char streams[12];
        snprintf(streams, sizeof streams, "%d", bench_streams[i]);
        emit_number(json, streams, limits->read[i] * 1e-9);
    }
    emit_end(json, '}');
    emit_end(json, '}');
}

static void json_head(struct bench *bench)
{
    struct emit *const json = &bench->json;
    emit_begin(json, NULL, '{');
    emit_string(json, "version", sy_version());
    emit_integer(json, "results_version", sy_results_version());
    emit_string(json, "isa", sy_ctx_isa(bench->ctx));
    emit_integer(json, "threads", bench->threads);
    emit_integer(json, "limit_threads", bench_limit_threads(bench->threads));
    emit_bool(json, "quick", bench->quick);
    emit_string(json, "date", bench->machine.date);
    json_machine(json, &bench->machine);
    json_limits(json, &bench->limits);
    emit_begin(json, "cases", '[');
}

void report_head(struct bench *bench)
{
    bench->json = (struct emit){.out = stdout};
    if (bench->as_json)
        json_head(bench);
    else
        print_head(bench);
}

void report_end(struct bench *bench)
{
    if (bench->as_json) {
        emit_end(&bench->json, ']');
        emit_bool(&bench->json, "pass", bench->failures == 0);
        emit_end(&bench->json, '}');
    } else {
        printf("\n%d case%s checked against a plain loop, %d wrong\n", bench->cases,
               bench->cases == 1 ? "" : "s", bench->failures);
    }
}
