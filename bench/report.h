/*
 * What the measuring hands to the printing.
 */
#ifndef SWITCHYARD_BENCH_REPORT_H
#define SWITCHYARD_BENCH_REPORT_H

#include "bench.h"

/* Seconds, medians; spread is the distance of the quartiles as a share of the median. */
struct bench_times {
    double run, spread, limit, plain;
};

/* One line on stderr, when that is a terminal, until the next row takes its place. */
void report_progress(struct bench *bench, const char *op, const char *shape);

void report_head(struct bench *bench);
void report_row(struct bench *bench, const struct bench_case *subject, const struct bench_times *times);
void report_failure(struct bench *bench, const char *op, const char *shape, const char *reason);
void report_end(struct bench *bench);

#endif
