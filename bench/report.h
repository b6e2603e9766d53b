/*
 * Interface between measuring and printing. A format is a table of functions: a table for people, one JSON
 * object for programs.
 */
#pragma once

#include "described.h"

/* Seconds, medians; spread is the distance of the quartiles as a share of the median. On a device there is no plain loop;
   each turn replays a graph of `calls`. */
struct bench_times {
    double run, spread, limit, plain;
    int turns, calls;
    bool warm;
};

/* One form of a peer at one shape. */
struct peer_result {
    const char *op, *shape;
    char peer[24], version[32], form[64];
    bool warm;
    double seconds, spread, times_slower; /* the last: than the operator */
    int turns;
};

struct report_format {
    void (*head)(struct bench *bench);
    void (*row)(struct bench *bench, const struct bench_call *subject, const struct bench_times *times);
    void (*failure)(struct bench *bench, const char *op, const char *shape,
                    const char *reason);                                          /* may be NULL */
    void (*absent)(struct bench *bench, const sy_op_info *op, const char *shape); /* not on the device */
    void (*peers)(struct bench *bench); /* before the first, if there is one at all; may be NULL */
    void (*peer)(struct bench *bench, const struct peer_result *result);
    void (*end)(struct bench *bench);
};

extern const struct report_format report_text, report_json;

/* One line on stderr, if that is a terminal, until the next row replaces it. */
void report_progress(struct bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* In the format of the run, after the progress line is cleared. `times` is NULL with --check. */
void report_row(struct bench *bench, const struct bench_call *subject, const struct bench_times *times);
void report_failure(struct bench *bench, const char *op, const char *shape, const char *reason);
void report_absent(struct bench *bench, const sy_op_info *op, const char *shape);
void report_peer(struct bench *bench, const struct peer_result *result);

/* Kept for the end; the same note twice is one. */
void report_note(struct bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- Texts shared by several formats ---- */

const char *report_limit_name(const struct bench_work *limit); /* "read", "fill", "copy", "copy+fill" */
double report_rate(const struct bench_call *subject, const struct bench_times *times); /* bytes per second */
double report_share(const struct bench_call *subject,
                    const struct bench_times *times); /* of the limit's rate */

const char *report_buffers(const struct bench *bench); /* "cold", "warm", "cold and warm" */
bool report_names_buffers(const struct bench *bench);  /* in every row: only when both are measured */

/* "kernels neon, 2 threads", or "cuda:0" */
void report_print_where(const struct bench *bench);
void report_print_machine(const struct bench *bench); /* "Arm Neoverse-V1, 2 CPUs, last-level cache 32 MiB" */
void report_print_limits(const struct bench *bench);  /* "copy 90.5 GB/s (read and written), fill ..."      */
void report_print_peers(const struct bench *bench);   /* "peers, on 2 threads (numpy: one)" */
struct bench_text
report_ratio(double times_slower); /* of a peer: the operator is "3.1 x faster", "1.2 x slower" */
void report_print_count(const struct bench *bench); /* "24 cases checked against a plain loop, 0 wrong"   */

/* ---- The same work by PyTorch and NumPy, run by the machine's Python: peers.c ---- */

/* bench/peers.py, embedded by the build, so that it works from anywhere. */
extern const char bench_peers_py[];

/* The interpreter: SWITCHYARD_PYTHON, else PYTHON, else python3. */
const char *peers_interpreter(void);

/*
 * Runs the timed cases of an operator with the peers, and reports their times. An operator without peers is skipped; a
 * missing interpreter or library is a note in the report.
 */
void peers_run(struct bench *bench, const struct bench_op *op);
