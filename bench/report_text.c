/*
 * The table for people.
 */
#include "report.h"

#include <stdio.h>

enum { PEER_WIDTH = 46 };

static void head(struct bench *bench)
{
    printf("switchyard %s, %s", sy_version(), bench->device.tools ? "" : "kernels ");
    report_print_where(bench);
    if (!bench->check)
        printf(", %s buffers", report_buffers(bench));
    printf("%s\n", bench->quick ? ", quick" : "");
    report_print_machine(bench);
    if (bench->check) {
        printf("\n\n");
        return;
    }
    printf("\nlimits, cold: ");
    report_print_limits(bench);
    printf("\n\n%-*s  %-*s %s%9s %5s  %9s %12s  %-17s %8s  %s\n", bench->op_width, "operator",
           bench->shape_width, "shape", report_names_buffers(bench) ? "buffers " : "", "time", "+-", "bytes",
           "rate", "share of limit", "x limit", bench->device.tools ? "" : "plain loop");
}

static void row(struct bench *bench, const struct bench_call *subject, const struct bench_times *times)
{
    char share[24], bytes[24];
    if (!times) {
        printf("%-*s  %-*s  ok\n", bench->op_width, subject->op->name, bench->shape_width, subject->shape);
        return;
    }
    const double percent = 100 * report_share(subject, times);
    snprintf(share, sizeof share, "%.*f%% of %s", percent < 10 ? 1 : 0, percent,
             report_limit_name(&subject->limit));
    snprintf(bytes, sizeof bytes, "%.4g MB", subject->bytes * 1e-6);
    const char *const buffers = times->warm ? " warm   " : " cold   ";
    printf("%-*s  %-*s%s %9s %4.0f%%  %9s %7.1f GB/s  %-17s %6.2f x", bench->op_width, subject->op->name,
           bench->shape_width, subject->shape, report_names_buffers(bench) ? buffers : "",
           bench_time(times->run).text, 100 * times->spread, bytes, report_rate(subject, times) * 1e-9, share,
           times->run / times->limit);
    if (!bench->device.tools)
        printf("  %9s (%.1f x)", bench_time(times->plain).text, times->plain / times->run);
    printf("\n");
}

static void absent(struct bench *bench, const sy_op_info *op, const char *shape)
{
    printf("%-*s  %-*s  not on the device\n", bench->op_width, op->name, bench->shape_width, shape);
}

static void peer(struct bench *bench, const struct peer_result *result)
{
    const char *const buffers = result->warm ? " warm   " : " cold   ";
    char name[96];
    if (bench->n_peers == 0) {
        printf("\n");
        report_print_peers(bench);
        printf("\n\n%-*s  %-*s %s%-*s %9s %5s  %s\n", bench->op_width, "operator", bench->shape_width,
               "shape", report_names_buffers(bench) ? "buffers " : "", PEER_WIDTH, "peer", "time", "+-",
               "switchyard is");
    }
    snprintf(name, sizeof name, "%s %s", result->peer, result->form);
    printf("%-*s  %-*s%s %-*s %9s %4.0f%%  %s\n", bench->op_width, result->op, bench->shape_width,
           result->shape, report_names_buffers(bench) ? buffers : "", PEER_WIDTH, name,
           bench_time(result->seconds).text, 100 * result->spread, report_ratio(result->times_slower).text);
}

static void end(struct bench *bench)
{
    for (int i = 0; i < bench->n_notes; i++)
        printf("%s%s\n", i == 0 ? "\n" : "", bench->notes[i]);
    printf("\n");
    report_print_count(bench);
    printf("\n");
}

const struct report_format report_text = {
    .head = head, .row = row, .absent = absent, .peer = peer, .end = end};
