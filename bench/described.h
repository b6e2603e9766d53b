/*
 * A benchmark as a description. The text of a case holds its sizes; `make` sets the fields of the argument struct, names
 * how each input is filled, and states the bytes that must move; outputs follow from the operator's own description.
 * Allocation, rotation through memory, calls, the comparison with the plain loop and timing are here, once.
 *
 *     static void make(struct bench_call *c)
 *     {
 *         sy_moe_pad_map_args *const a = c->args;
 *         const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E=");
 *         a->alignment = bench_size(c, "a=");
 *         bench_in(c, &a->routing_map, SY_BOOL, DIMS(tokens, experts), BENCH_TURNS, fill_route, bench_size(c, "K="));
 *         bench_out(c, &a->padded_map, BENCH_TURNS);
 *         ...
 *     }
 */
#pragma once

#include "bench.h"

#include <switchyard_describe.h>

/* A number after `name` where a word of the shape begins so: 4096 of "T=4096", 131072 of "of 128k", 48 and 32000 of
   "[48,32000]" by "[" and ",". 0: it has none. */
double bench_number(const char *shape, const char *name);
bool bench_says(const char *shape, const char *words);

/* The memory of a tensor: the same in every turn; a copy for each turn, filled anew or equal to the first; or as many
   equal copies as leave the caches, where a turn uses a small part of a large tensor. */
enum bench_turns { BENCH_ONCE, BENCH_TURNS, BENCH_COPIES, BENCH_POOL };

/* Fills x, a compact tensor. `n` is that of bench_in. Tensors of earlier bench_in are those of the same turn. */
typedef void bench_filler(const struct bench_call *c, const DLTensor *x, int64_t n, uint64_t seed);
#define BENCH_UNUSED __attribute__((unused))
#define BENCH_FILLER(name) \
    void name(const struct bench_call *c BENCH_UNUSED, const DLTensor *x, int64_t n BENCH_UNUSED, \
              uint64_t seed BENCH_UNUSED)

/* A filler of each element by itself: i is its number, c, x, n and seed are those of the filler. */
#define BENCH_EACH(name, store, value) \
    BENCH_FILLER(name) \
    { \
        for (int64_t i = 0; i < bench_count(x); i++) \
            store(x, i, value); \
    }

/* The same for one file. */
#define BENCH_OWN(name, store, value) static BENCH_EACH(name, store, value)

enum { BENCH_ARGS_BYTES = 1024, BENCH_TENSORS = 24 };

struct bench_tensor {
    DLTensor view; /* that of the present turn, to which its field of the argument struct points */
    int64_t shape[4], strides[4];
    size_t offset;             /* of its pointer in the argument struct */
    unsigned char *data;       /* copies, `step` bytes apart */
    unsigned char *plain;      /* outputs: of the plain loop, or of the device, in turn 0 */
    unsigned char *there;      /* the copies on the device */
    size_t bytes, step, shift; /* shift: from the memory on the device to `there` */
    int64_t copies;
    enum bench_turns turns;
    bench_filler *fill; /* NULL: an output */
    int64_t n;
    bool owned, shared; /* shared: others are columns of it */
};

/* One operator at one shape. */
struct bench_call {
    sy_ctx *ctx;
    const struct bench_op *bench;
    const char *shape;
    DLDevice device;      /* CUDA: beside the copies in CPU memory there are the same on this device */
    bool quick, unfilled; /* unfilled: contents of large tensors do not matter */
    const sy_op_info *op; /* a benchmark with another name than its operator sets it in `make` */
    void *args;     /* zero at first; what a case needs beside the struct may follow it in BENCH_ARGS_BYTES */
    int64_t offset; /* "offset=" of the shape: bytes by which 16-bit rows on a device begin later */
    const sy_row_format *format; /* that a word of the shape names; NULL: none */
    sy_row_format named;         /* it */
    /* Set by `make`: bytes that must move, where that is more or less than the work of the limit, and the limit; bytes that
       a turn touches, when those are not all that turn. */
    double bytes;
    struct bench_work limit;
    size_t touched;
    void *scratch; /* of the plain loop, from bench_scratch */
    struct bench_tensor tensors[BENCH_TENSORS];
    int n_tensors;
    int64_t sets;    /* turns after which the first copy is used again */
    char fault[192]; /* not empty: the case cannot be measured, and why */
};

/* ---- For `make` ---- */

#define DIMS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) \
    { \
        __VA_ARGS__ \
    }

int64_t bench_size(const struct bench_call *c, const char *name); /* bench_number of the shape */
DLDataType bench_type(const struct bench_call *c);                /* "f32", "f16" or "bf16" of the shape */

/* Each sets *field and fills the first copy at once; false after a fault. An inout is changed by the call, a room is an
   output whose type and shape the description does not determine. */
bool bench_in(struct bench_call *c, const DLTensor **field, DLDataType type, int rank, const int64_t *shape,
              enum bench_turns turns, bench_filler *fill, int64_t n);
bool bench_inout(struct bench_call *c, const DLTensor **field, DLDataType type, int rank,
                 const int64_t *shape, enum bench_turns turns, bench_filler *fill, int64_t n);
bool bench_out(struct bench_call *c, const DLTensor **field, enum bench_turns turns);
bool bench_room(struct bench_call *c, const DLTensor **field, DLDataType type, int rank, const int64_t *shape,
                enum bench_turns turns);

/* A part of the rows of `of`, which was made before with BENCH_ONCE: columns [begin, begin + width). */
bool bench_columns(struct bench_call *c, const DLTensor **field, const DLTensor *of, int64_t begin,
                   int64_t width);
bool bench_fault(struct bench_call *c, const char *reason); /* the case is reported as failed; false */
void *bench_scratch(struct bench_call *c, size_t bytes);    /* zero; NULL after a fault */

/* ---- For fillers, plain loops and checks ---- */

int64_t bench_count(const DLTensor *x);
size_t bench_bytes(const DLTensor *x);          /* NULL: 0 */
float bench_load(const DLTensor *x, int64_t i); /* f32, f16, bf16 */

/* Rows in the case's format: codes with their scales, or bf16. */
bool bench_rows(struct bench_call *c, const DLTensor **rows, const DLTensor **scales, int64_t n,
                int64_t hidden);
int64_t bench_groups(const sy_row_format *format, int64_t hidden); /* scales of a row */
DLDataType bench_scale_type(const sy_row_format *format);

/* Rows of bf16 tokens as a plain loop moves them: with a format codes and scales, which it makes in scratch. */
struct bench_moved {
    const unsigned char *rows, *scales;
    size_t row_bytes, scale_bytes;
};
struct bench_moved bench_moved(const struct bench_call *c, const DLTensor *tokens, void *scratch);
size_t bench_moved_bytes(const struct bench_call *c, int64_t hidden); /* of a row and its scales */
/* Row t to row `at` of the others; t negative: zeros. */
void bench_move(const struct bench_moved *from, int64_t t, const DLTensor *rows, const DLTensor *scales,
                int64_t at);

float bench_code_value(bool i8, unsigned char code); /* of int8, or of e4m3 */

/* The number of code i. */
float bench_decoded(const sy_row_format *format, const DLTensor *codes, const DLTensor *scales, int64_t i);

/* To nearest even, of a magnitude up to 448. */
unsigned char bench_e4m3(float y);

/* The plain loop of quantize_rows. */
void bench_quantize(const DLTensor *input, const sy_row_format *f, unsigned char *codes, void *scales,
                    int64_t n_groups);
void bench_store(const DLTensor *x, int64_t i, float value);
void bench_store_integer(const DLTensor *x, int64_t i, int64_t value);

const DLTensor *bench_named(const struct bench_call *c, const char *name); /* a field of the operator */
int64_t bench_turn(uint64_t seed);                                         /* the turn a seed is of */
int64_t bench_distinct(int64_t i, int64_t n); /* 0 .. n-1 in an irregular order, number i; n a power of two */

/* Number j of the integers in [0,n) that a row has, all different where n is a power of two. */
int64_t bench_different(uint64_t seed, int64_t row, int64_t j, int64_t n);

/* After turn 0: what the operator and what the plain loop made of an output. */
const void *bench_got(const DLTensor *output);
const void *bench_want(const DLTensor *output);

bench_filler fill_bits, /* random */
    fill_numbers,       /* bf16 of either sign, 2^-1 up to 2 */
    fill_unit,          /* floats in [0,n/100) */
    fill_around_zero,   /* floats in [-0.5,0.5) */
    fill_normal,        /* floats, deviation n/10 */
    fill_ids,           /* integers in [0,n) */
    fill_different,     /* integers in [0,n), different ones in a row of the tensor; n a power of two */
    fill_skewed,        /* integers in [0,n), lower ones more often */
    fill_in_order,      /* 0, 1 .. n-1, 0, 1 .. */
    fill_steps,         /* 0, n, 2n .. */
    fill_integer,       /* n */
    fill_hundredths,    /* floats, n/100 */
    fill_shuffle,       /* 0 .. in a random order */
    fill_next,          /* of 0 .. n-1 in an irregular order the next ones, turn by turn; n a power of two */
    fill_route,         /* a map of n experts per token */
    fill_codes,         /* of e4m3 and int8 */
    fill_scales,        /* of codes, bytes or f32 */
    fill_slot_rows; /* the row that moe_permute gives each slot of the call's map, which was made before */

/* ---- Families of operators: moe_rows.c, moe_slots.c ---- */

/* The routing of T tokens, K of E experts each, and [T*K,H] rows. */
void rows_make(struct bench_call *c, const DLTensor **map, const DLTensor **index, const DLTensor **permuted);
size_t rows_bytes(const struct bench_call *c); /* of all permuted rows and tokens */

/* Token by token, row by row, element by element: the definition, written down. The scratch holds H floats. scales NULL: rows are
   numbers, else codes of the case's format. */
void rows_plain_sum(const struct bench_call *c, const DLTensor *permuted, const DLTensor *scales,
                    const DLTensor *probs, const DLTensor *tokens);

/* k choices of S samples, and the slots of E experts with C each: [k,S], [k,S], [E*C,H]. More than one choice: E is a
   power of two. Returns how many choices have a slot; 0 after a fault. */
int64_t slots_make(struct bench_call *c, const DLTensor **indices, const DLTensor **locations,
                   const DLTensor **slots);

/* The row of [E*C,H] that choice `at` of [k,S] has, or -1. */
int64_t slots_row(const DLTensor *indices, const DLTensor *locations, int64_t at, int64_t capacity);
size_t slots_row_bytes(const struct bench_call *c);

/* ---- For the measurement ---- */

/* `turn` counts the calls. In turn 0 the plain loop writes memory of its own. */
sy_status bench_run(struct bench_call *c, int64_t turn);
void bench_plain(struct bench_call *c, int64_t turn);
const char *bench_check(struct bench_call *c); /* after both, in turn 0: NULL, or what is wrong */

/* On a device: copies everything there; queues the call of a turn; compares its results of turn 0 with those of bench_run. */
bool bench_send(struct bench_call *c);
sy_status bench_run_there(struct bench_call *c, int64_t turn);
const char *bench_check_there(struct bench_call *c);

/* Makes and measures one case of a benchmark. */
void bench_described(struct bench *bench, const struct bench_op *op, const char *shape);
