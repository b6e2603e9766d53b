/*
 * The table for documents, under a paragraph that tells all one needs to judge or repeat it.
 */
#include "report.h"

#include <stdio.h>

static void head(struct bench *bench)
{
    const bool both = report_names_buffers(bench);
    printf("switchyard %s, kernel table `%s`, %d thread%s, %s buffers%s. ", sy_version(),
           sy_ctx_isa(bench->ctx), bench->threads, bench->threads == 1 ? "" : "s", report_buffers(bench),
           bench->quick ? ", quick" : "");
    report_print_machine(bench);
    printf(". %s, `%s`.\n\nLimits, cold: ", bench->machine.date, bench->command);
    report_print_limits(bench);
    printf(".\n\n| operator | shape |%s time | spread | rate | x limit | plain loop |\n",
           both ? " buffers |" : "");
    printf("|%s---|---|---|---|---|---|---|\n", both ? "---|" : "");
}

static void row(struct bench *bench, const struct bench_case *subject, const struct bench_times *times)
{
    printf("| %s | %s |", subject->op, subject->shape);
    if (report_names_buffers(bench))
        printf(" %s |", times->warm ? "warm" : "cold");
    printf(" %s | %.0f%% | %.1f GB/s | %.2f %s | %s (%.1f x) |\n", bench_time(times->run).text,
           100 * times->spread, report_rate(subject, times) * 1e-9, times->run / times->limit,
           report_limit_name(&subject->limit), bench_time(times->plain).text, times->plain / times->run);
}

static void failure(struct bench *bench, const char *op, const char *shape, const char *reason)
{
    printf("| %s | %s |%s wrong: %s | | | | |\n", op, shape, report_names_buffers(bench) ? " |" : "", reason);
}

static void end(struct bench *bench)
{
    printf("\n");
    report_print_count(bench);
    printf(".\n");
}

const struct report_format report_markdown = {head, row, failure, end};
