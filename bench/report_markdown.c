/*
 * The table for documents, under a paragraph with all that is needed to assess or repeat it.
 */
#include "report.h"

#include <stdio.h>

#include "cli/text.h"

static void head(struct bench *bench)
{
    const bool both = report_names_buffers(bench);
    const bool there = bench->device.tools != NULL;
    printf("switchyard %s, %s", sy_version(), there ? "" : "kernel table ");
    report_print_where(bench, "`");
    printf(", %s buffers%s. ", report_buffers(bench), bench->quick ? ", quick" : "");
    report_print_machine(bench);
    printf(". %s, `", bench->machine.date);
    text_print(stdout, bench->command);
    printf("`.\n\nLimits, cold: ");
    report_print_limits(bench);
    printf(".\n\n| operator | shape |%s time | spread | rate | %s |\n", both ? " buffers |" : "",
           there ? "share of limit" : "x limit | plain loop");
    printf("|%s---|---|---|---|---|---|%s\n", both ? "---|" : "", there ? "" : "---|");
}

static void row(struct bench *bench, const struct bench_call *subject, const struct bench_times *times)
{
    printf("| %s | %s |", subject->op->name, subject->shape);
    if (report_names_buffers(bench))
        printf(" %s |", times->warm ? "warm" : "cold");
    const char *const limit = report_limit_name(&subject->limit);
    printf(" %s | %.0f%% | %.1f GB/s |", bench_time(times->run).text, 100 * times->spread,
           report_rate(subject, times) * 1e-9);
    if (bench->device.tools)
        printf(" %.0f%% %s |\n", 100 * report_share(subject, times), limit);
    else
        printf(" %.2f %s | %s (%.1f x) |\n", times->run / times->limit, limit, bench_time(times->plain).text,
               times->plain / times->run);
}

static void failure(struct bench *bench, const char *op, const char *shape, const char *reason)
{
    printf("| %s | %s |%s wrong: %s | | | | |\n", op, shape, report_names_buffers(bench) ? " |" : "", reason);
}

static void absent(struct bench *bench, const sy_op_info *op, const char *shape)
{
    printf("| %s | %s |%s not on the device | | | |\n", op->name, shape,
           report_names_buffers(bench) ? " |" : "");
}

static void peer(struct bench *bench, const struct peer_result *result)
{
    const bool both = report_names_buffers(bench);
    if (bench->n_peers == 0) {
        printf("\nP");
        report_print_peers(bench);
        printf(":\n\n");
        printf("| operator | shape |%s peer | time | spread | switchyard is |\n|%s---|---|---|---|---|---|\n",
               both ? " buffers |" : "", both ? "---|" : "");
    }
    printf("| %s | %s |%s", result->op, result->shape, both ? result->warm ? " warm |" : " cold |" : "");
    printf(" %s %s | %s | %.0f%% | %s |\n", result->peer, result->form, bench_time(result->seconds).text,
           100 * result->spread, report_ratio(result->times_slower).text);
}

static void end(struct bench *bench)
{
    for (int i = 0; i < bench->n_notes; i++)
        printf("%s- %s\n", i == 0 ? "\n" : "", bench->notes[i]);
    printf("\n");
    report_print_count(bench);
    printf(".\n");
}

const struct report_format report_markdown = {
    .head = head, .row = row, .failure = failure, .absent = absent, .peer = peer, .end = end};
