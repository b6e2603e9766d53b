/*
 * Checks first, then times. A file bench/<op>.c describes seeded inputs at named shapes (described.h) and computes the
 * result once more with a plain loop; bench_measure does not time a wrong result. The loop is also what is timed beside
 * the operator, so it is short and fair: the references in tests/oracle are slow on purpose and could not take its
 * place. Times are medians of interleaved repetitions beside a limit measured in the same run: a parallel copy, fill or
 * read of the bytes the operator cannot avoid to move. Shares of such a limit compare across machines; times do not.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard.h>
#include <switchyard_describe.h>

#include "cli/emit.h"
#include "cli/number.h"

/* ---- The machine: machine.c ---- */

struct bench_machine {
    char cpu[96];       /* the processor's name; empty: not known                               */
    int cpus;           /* online, hardware threads included                                    */
    size_t cache_bytes; /* of the last level; 0: not known                                      */
    int caches;         /* of that level: processors of many dies have one per group of cores   */
    char date[16];      /* today, as 2026-11-15                                                 */
};

struct bench_machine bench_machine(void);

/* Seconds that the CPUs have worked, for all programs since the machine started, and for this one; and the time. */
struct bench_usage {
    double all, own, at;
};
struct bench_usage bench_usage(void);
/* Share of the CPUs that other programs used since then, 0 to 1; 0 where the system does not say. */
double bench_others(const struct bench_usage *since);

/* After a rotation through this many bytes none of them is in a cache; in a quick run 128 MiB, and larger caches keep some. */
size_t bench_cold_bytes(bool quick);

/* ---- Limits ---- */

/* The work that even a perfect operator must do. */
struct bench_work {
    size_t copy_bytes, fill_bytes, read_bytes;
};

/* A read may use 1, 2 or 4 streams per thread. */
enum { BENCH_READERS = 3 };
extern const int bench_streams[BENCH_READERS];

/* Two arenas, larger than the caches, through which the limits rotate. */
struct bench_arena {
    unsigned char *from, *to;
    size_t bytes, at;
    int reader; /* index of the number of streams of a read */
    bool stay;  /* always the same place: warm */
};

/* Bytes per second on all threads, through cold memory; a copy counts what it reads and what it writes. */
struct bench_limits {
    double copy, fill, read[BENCH_READERS];
    int best; /* of the reads */
};

bool bench_arena_reserve(struct bench_arena *arena, size_t bytes, sy_ctx *ctx, bool quick);
void bench_arena_free(struct bench_arena *arena);

/* Measures the machine and selects the best number of streams for the arena. False: no memory. */
bool bench_limits(struct bench_arena *arena, sy_ctx *ctx, bool quick, struct bench_limits *limits);

/* Does the work on the threads of a context, at the next place of the arena (the same one if warm). Seconds. */
double bench_limit_seconds(struct bench_arena *arena, const struct bench_work *work, sy_ctx *ctx);

/* Bytes the limit moves, reads and writes together. */
double bench_work_bytes(const struct bench_work *work);

/* ---- Small parts ---- */

/* "1.73 us", "151 ms": three digits and a suitable unit. */
struct bench_text {
    char text[24];
};
struct bench_text bench_time(double seconds);

double bench_now(void);                        /* seconds of a steady clock                     */
double bench_median(double *values, int n);    /* sorts the values                              */
double bench_normal(uint64_t *state);          /* mean 0, deviation 1                           */
void *bench_alloc(size_t count, size_t bytes); /* touched, zero, page-aligned; NULL: no memory  */
void bench_fill_random(void *data, size_t bytes, uint64_t seed);

/* Round to nearest even; for numbers a half can hold. */
float bench_f16_to_float(uint16_t bits);
uint16_t bench_f16_from_float(float value);

/* 0 .. n-1 in a random order. */
void bench_shuffle(int32_t *order, int64_t n, uint64_t seed);

/* k distinct experts per token, some more popular than others; map is [tokens, experts] and zeroed. */
void bench_route(uint8_t *map, int64_t tokens, int64_t experts, int64_t k, uint64_t seed);

void bench_fill_bf16(uint16_t *data, size_t n, uint64_t seed); /* of either sign, 2^-1 up to 2 */
void bench_fill_unit(float *data, size_t n, uint64_t seed);    /* [0, 1) */

/* Of at least n values the numbers of the best n, in order, by insertion; of equal ones the lower number first. */
void bench_best(const double *value, int64_t count, int64_t n, int64_t *best);

/* A group of four words of Philox4x32-10. */
void bench_philox(uint64_t seed, uint64_t offset, uint32_t stream, uint32_t group, uint32_t x[4]);

/* ---- Devices ---- */

/* Copies of tensors on a device rotate through so many bytes. */
enum { BENCH_DEVICE_COLD = 300 << 20 };

/* The device of --device. */
struct bench_device {
    DLDevice device; /* {0}: none, as in the rest */
    const struct sy_cuda_tools *tools;
    struct sy_cuda_timer *timer;
    sy_device_info info;
};

/* ---- Measuring ---- */

struct bench_op;

/* A case that was timed, for comparison with peers. */
struct bench_record {
    const struct bench_op *op;
    int index;
    bool warm;
    double seconds, bytes;
};

enum { BENCH_NOTES = 16, BENCH_NOTE_BYTES = 256 };

struct bench {
    sy_ctx *ctx;
    int threads;
    bool quick, cold, warm; /* cold buffers, warm ones, or both */
    bool check;             /* --check: nothing is timed */
    int64_t neighbours;     /* --cliffs: as many are measured, beside the cases that they come from */
    uint64_t seed;
    int chosen, cliffs; /* the case whose neighbour is next; those found */
    bool why;           /* --why: calls are recorded on the device and not run */
    struct bench_device device;
    const struct report_format *format;
    char command[256]; /* as it was typed */
    struct bench_arena arena;
    struct bench_limits limits;
    struct bench_machine machine;
    struct emit json;
    int cases, failures, absent;      /* absent: not on the device */
    int total, op_width, shape_width; /* selected cases, and the width of their columns */
    int progress_width;               /* length of the progress line on the terminal; 0: none */
    const struct bench_op *op;        /* of the case that runs, and its number */
    int index;
    bool peers;  /* --peers */
    int n_peers; /* their rows so far */
    struct bench_record *records;
    int n_records;
    char notes[BENCH_NOTES][BENCH_NOTE_BYTES]; /* about the peers, at the end of the report */
    int n_notes;
};

struct bench_call;

/* Checks, times (not with --check), prints. Counts a wrong result as a failure. On a device a case is checked against the CPU
   and timed in CUDA graphs. */
void bench_measure(struct bench *bench, struct bench_call *c);
/* Measures a case and a random neighbour, says how their times per byte compare, and counts cliffs. cliffs.c */
void bench_cliff(struct bench *bench, const struct bench_op *op, const char *shape);
bool bench_can(const struct bench *bench, const sy_op_info *op); /* true without a device */

/* Records calls of the turns 1, 2 and so on; warm: of turn 1. NULL, or what is wrong. */
const char *bench_record(struct bench *bench, struct bench_call *c, bool warm, int calls, char *text,
                         size_t bytes);

/* The device of a context, if it has one, and the limits of that; print the error and return false where that fails. */
struct common;
bool bench_device_open(struct bench_device *device, sy_ctx *ctx, const struct common *common);
void bench_device_close(struct bench_device *device);
bool bench_device_limits(struct bench *bench);

/* A benchmark, see described.h. Its cases are texts: the shapes of a whole run, then the last `n_quick`, those of a quick
   run. On a device those of `there` take the place of the first, if there are any. */
struct bench_op {
    const char *name;
    const char *const *shapes;
    int n_full, n_quick;
    void (*make)(struct bench_call *c);
    void (*plain)(const struct bench_call *c); /* the straightforward loop, of the present turn */
    const char *const *there;
    int n_there;
    const char *(*check)(const struct bench_call *c); /* NULL: every byte of the outputs is compared */
    sy_status (*call)(const struct bench_call *c);    /* NULL: sy_call with the arguments that `make` set */
    void (*release)(const struct bench_call *c);      /* of what `make` created beside tensors; may be NULL */
    bool peers;                                       /* peers.py has some of it */
};

/* The text of a case of this run. */
const char *bench_shape(const struct bench *bench, const struct bench_op *op, int index);

/* The bench_op `op` with the cases of an array and its maker; then fields by name, `plain` first. The build lists them. */
#define BENCH_OP(op, texts, quick, make_call, ...) \
    const struct bench_op bench_##op = {.name = #op, \
                                        .shapes = texts, \
                                        .n_full = (int)(sizeof(texts) / sizeof *(texts)) - (quick), \
                                        .n_quick = quick, \
                                        .make = make_call, \
                                        __VA_ARGS__}

/* `there` of a bench_op, from the array `there`. */
#define BENCH_THERE .there = there, .n_there = (int)(sizeof there / sizeof *there)

struct common;
struct arg_list;

/* The commands `switchyard bench` and `switchyard demo`. */
int command_bench(struct common *common, struct arg_list *list);
int command_demo(struct common *common, struct arg_list *list);
