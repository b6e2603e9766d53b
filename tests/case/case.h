/*
 * One case per operator, tests/case/<op>.c: `make` builds a call from a reader, `oracle` states what must come out. The
 * engine does everything else with it: random calls on every kernel table and thread count, on CUDA devices, with strides,
 * offsets and guards; rejections; failing allocations; recorded bits; fuzzing; lines that are timed.
 *
 *     static void make(struct call *c)
 *     {
 *         sy_moe_pad_map_args *const a = case_args(c);
 *         case_size(c, "T", 0, 60, 900);          // an extent of the description
 *         case_size(c, "E", 0, 30, 600);
 *         a->alignment = case_size(c, "a", 1, 9, 40);
 *         case_route(c, case_in(c, "routing_map"), "K");
 *     }
 *
 * A reader is a seed, the bytes of a fuzzer, or a line of text ("T=4096 E=64 K=8 bf16"). Every choice has a name and is drawn
 * from (seed, name, how often it was drawn), so that a line can state it, and a new choice moves no other.
 *
 * Operators between devices run on a mesh inside this process: every field has an operand on each device (`device`), and
 * call_bind makes arrays of them just before a call.
 *
 * Terms. operand: a tensor of the call, at first a dense array. `dense` has the contents of an input, `want` what the oracle
 * expects in an output; parts that the call must not write keep POISON. layout: where the operands lie for one run, with
 * strides, gaps and guards. change: one that makes a valid call invalid.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <switchyard_describe.h>

#include "call_args.h"
#include "oracle/numbers.h"

enum {
    CASE_RANK = 8,
    CASE_NAMES = 144,
    CASE_HARD = 40,
    CASE_LINES = 16,
    CASE_PLANES = SY_KV_MAX_PLANES,
    CASE_OPERANDS = SY_MAX_FIELDS + 4 * CASE_PLANES,
    CASE_DEVICES = 4 /* of a mesh */
};
enum { CASE_GUARD = 64, CASE_POISON = 0xA5 };

struct reader {
    enum { READ_SEED, READ_BYTES, READ_TEXT } kind;
    uint64_t seed;
    const uint8_t *data;
    size_t left;
    const char *text;
};

/* The random numbers of one name. */
struct stream {
    char name[40];
    struct reader *in;
    uint64_t state;
};

struct operand {
    const sy_field_info *field;
    const DLTensor **at; /* the pointer in the arguments; of a mesh `slot` */
    const DLTensor *slot;
    int device;      /* of a mesh */
    const void *old; /* contents of an output before the call, which it keeps; NULL: random ones */
    int loose; /* of a mesh: this extent, from 1, is stated by the call's tensors, which may have any; 0: none */
    bool given, needed, left_out, in, out;
    bool compact;                                        /* its rows must lie directly behind each other */
    enum { PLACE_ANY, PLACE_APART, PLACE_SHARED } place; /* of an output that may be an input's rows */
    uint32_t
        accepts; /* where other types are accepted in this call than the description says: bits 1 << sy_type */
    int upper;   /* dimensions before those of a row; 0: all but the last, or all of one number per row */
    bool free;   /* its extents follow from no other tensor's */
    bool spare;  /* more rows than are needed are accepted, fewer are a matter of contents */
    int plane;   /* of which further plane; 0: of the call */
    DLDataType type;
    int rank;
    int64_t shape[CASE_RANK];
    size_t element, bytes; /* of one element; of `dense` and `want` */
    unsigned char *dense,
        *want; /* contents before the call, of an input and of an output that keeps some; after it */
    /* Of the present layout. */
    DLTensor t;
    int64_t now_shape[SY_MAX_RANK + 2], now_strides[SY_MAX_RANK + 2];
    unsigned char *block, *before,
        *after; /* with guards and gaps: now, before the call, as it must be after it */
    size_t block_bytes, first;
    struct operand *over; /* in place: it lies in the memory of this one */
};

struct call {
    const struct op_case *op;
    const sy_op_info *info;
    struct reader *in;
    union test_args args;
    struct operand operand
        [CASE_OPERANDS]; /* one for each tensor of the description, device by device, then those of further planes */
    int n_operands, n_described; /* all, and those that are no further planes */
    sy_comm *comm;               /* NULL: the operator runs on one device */
    int n_devices, device;       /* of the mesh; the one that fields are looked up on */
    DLTensor bound[SY_MAX_FIELDS][CASE_DEVICES];
    sy_kv_plane planes[CASE_PLANES];
    struct stream stream[CASE_NAMES];
    int n_streams;
    struct {
        char name[8];
        int64_t value;
    } extent[CASE_NAMES];
    int n_extents;
    bool typed;     /* the bare type of a line has been used */
    int form;       /* of shapes with several, from 1: the first tensor that has them decides for all */
    int format;     /* word of a row format; beyond them: a format of its own */
    sy_fault want;  /* all zero: success */
    sy_query query; /* rows and slots that the query returns; -1: not compared */
    void *user;     /* blocks of case_memory; freed with the call */
    void *own;      /* of the case: from make to oracle */
    void *problem;  /* of the case, with what frees it */
    void (*done)(struct call *c);
};

/* One change to a call that is laid out. */
enum change_kind {
    CHANGE_NOTHING,
    CHANGE_MISSING,  /* the tensor is NULL */
    CHANGE_LIKE,     /* it is given, as tensor `other` */
    CHANGE_NO_SHAPE, /* its shape is NULL */
    CHANGE_NO_DATA,  /* its data is NULL */
    CHANGE_TYPE,     /* its type is `type` */
    CHANGE_RANK,     /* its rank is `value`, new extents are 1 */
    CHANGE_EXTENT,   /* extent d is `value` */
    CHANGE_SHAPE,    /* rank and extents are `other`, without strides */
    CHANGE_STRIDE,   /* stride d is `value` */
    CHANGE_STRIDES,  /* the strides are `other` */
    CHANGE_DEVICE,   /* its device type is `value` */
    CHANGE_OVER,     /* it begins `value` bytes into tensor `other` */
    CHANGE_NUMBER,   /* number d of its contents is `value` */
    CHANGE_SCALAR,   /* the scalar is `value`, or the word `other` */
    CHANGE_REAL,     /* the float scalar is `real` */
    CHANGE_FORMAT,   /* the format has `value` at byte d; or `type`, or `real` as its a_min */
    CHANGE_ONLY      /* no other tensors than `other`, and no scalars */
};
enum { EVERY_DEVICE = -1 };
struct change {
    enum change_kind kind;
    const char *field, *other;
    int d;
    int64_t value;
    double real;
    DLDataType type;
    int device, other_device; /* of a mesh: whose field, and whose `other` */
};

/* What the call `line` (NULL: the case's `small`) must be rejected with after a change; SY_OK: it is accepted, with the result
   of the oracle. A change is words, one after the other:

       k=7  factor=1e18  rule=hash  row_format=-  format.q_off=-1      a scalar, none, a member of the format
       out=-  cache.1=-  src=cache                                    a tensor is missing, that of plane 1, is another one
       x.shape[0]=2^31  x.shape=[2^62+1,5]  x.shape=-                  extents, without strides; no shape
       x.strides[1]=2  x.strides=[7,1]  x.ndim=3  x.dtype=f16  x.device=8
       x.data[7]=24  x.data=y+4  x.data=-                              contents, memory of y from byte 4 on, none
       a,b.shape[1]=3  *.data=-  outputs=-                             two tensors, all, all outputs
       x@1.shape[0]=3  x@*.ndim=2                                      of a mesh: on device 1, on every device
       only=x,y                                                        nothing else is given */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers" /* rows end with what is not zero */
struct rejection {
    const char *change;
    sy_status want;
    const char *found, *wanted; /* parts of the sentence; NULL: not compared */
    const char *
        blame; /* arguments that the fault may name, separated by '|'; NULL: the first that is changed; "": not compared */
    void (*with)(struct call *c); /* another change, after the words */
    sy_fault_code code;           /* 0: any */
    int64_t numbers[2];           /* value and limit of the fault; both 0: not compared */
    bool
        late; /* the query accepts it; otherwise, if the first word changes an input or a scalar, the query must reject it too */
    const char *line;
};

struct op_case {
    const char *name;
    void (*make)(struct call *c);
    void (*oracle)(struct call *c);
    const char *hard[CASE_HARD];    /* what random calls must have contained, by case_note */
    const char *small;              /* the line of rejections; it succeeds */
    const char *shapes[CASE_LINES]; /* calls of particular sizes: compared with the oracle like random ones */
    const char *lines[CASE_LINES];  /* large ones, not on devices */
    const struct rejection *rejections,
        *ladder; /* both end with a row without change. A ladder is in the order of the checks: each row is made together with
                    every later one, and the earlier must be reported */
    const char *
        own_extents; /* tensors whose extents only the case's own rows change, so that none is generated: " field field " */
    const char *unchecked; /* fields of which no rejection follows from the description: " field field " */
    const char *rejected;  /* a word of an enum that no call accepts */
    void (*attach)(struct call *c, sy_comm *comm); /* makes the call one of this comm, whose mesh it has */
    void (*reroute)(struct call *c, int64_t how);  /* gives it another routing, or none */
    int recorded;                                  /* calls of recorded bits, in place of BITS_CALLS */
    int calls;                                     /* random calls, in place of CASE_CALLS */
    bool never_empty;                              /* no extent can be 0 */
};

/* ---- For `make` ---- */

void *case_args(struct call *c);
struct stream *case_stream(struct call *c, const char *name);
uint64_t stream_bits(struct stream *s);
int64_t stream_below(struct stream *s, int64_t n); /* 0 .. n-1 */
static inline bool stream_chance(struct stream *s, int64_t n)
{
    return stream_below(s, n) == 0;
}

/* A choice 0 .. n-1; "name=2" in a line, else 0. A flag is its name in a line. */
int64_t case_pick(struct call *c, const char *name, int64_t n);
bool case_flag(struct call *c, const char *name);
bool case_chance(struct call *c, const char *name, int64_t n); /* 1 of n, or its name in a line */
bool case_line_word(struct call *c, const char *name, char *word, size_t size); /* "name=word" in a line */

/* A size, mostly up to `usual`, which binds the extent of that name. */
int64_t case_size(struct call *c, const char *name, int64_t least, int64_t usual, int64_t most);
void case_extent(struct call *c, const char *name, int64_t value);
int64_t case_get_extent(struct call *c, const char *name);

void case_any_scalar(struct call *c, const char *field); /* a bool or enum: any of its values */
void case_set_word(struct call *c, const char *field, const char *want);

/* An input with zeros: a type of those accepted, and the extents that the description states. _as: of this type (bits 0: any)
   and shape (rank -1: as described). An inout is changed by the call. */
struct operand *case_in(struct call *c, const char *field);
struct operand *case_in_as(struct call *c, const char *field, DLDataType type, int rank,
                           const int64_t *shape);
struct operand *case_inout_as(struct call *c, const char *field, DLDataType type, int rank,
                              const int64_t *shape);
/* Of a further plane, whose pointer, in `planes`, is at `at`: an operand in the role of `like`. Its name is "cache.1". */
struct operand *case_plane_as(struct call *c, const struct operand *like, const DLTensor **at,
                              DLDataType type, int rank, const int64_t *shape);
/* An output: sy_infer gives shape and type unless they are stated here (rank -1, bits 0: they are not). */
struct operand *case_out_as(struct call *c, const char *field, DLDataType type, int rank,
                            const int64_t *shape);
/* A call between the devices of a mesh; operands are made for c->device, which `make` sets. */
void case_mesh(struct call *c, sy_mesh mesh);
void case_need(struct call *c, const char *field);  /* an optional output is given in this call */
void case_leave(struct call *c, const char *field); /* or is not */
/* Whether an output is the rows of the input that it may be. Else half of the runs decide so, for one result of both. */
void case_share(struct call *c, const char *field, bool shared);
DLDataType case_type(struct call *c, const char *field);

/* Contents, by integer arithmetic alone. */
enum flavour { TIES, FINE, SPECIAL, WILD, FLAT, EMPTY, FAR, PROBS, N_FLAVOURS };
void case_fill(struct call *c, struct operand *x); /* any bits */
void case_fill_numbers(struct call *c, struct operand *x, enum flavour flavour);
void case_fill_floats(struct call *c, struct operand *x); /* of a flavour that is drawn */
uint64_t case_float(struct stream *s, DLDataType type, enum flavour flavour);
/* 0 .. limit-1; where `odds` > 0, one in odds of them is outside. */
void case_fill_indices(struct call *c, struct operand *x, int64_t limit, int64_t odds);
/* A map [T,E] of a style that is drawn: mostly K experts for each token. Returns the most experts that a token has. */
int64_t case_route(struct call *c, struct operand *map, int64_t k);
/* Different experts for each token of ids [T,K]. */
void case_fill_ids(struct call *c, struct operand *ids, int64_t experts);

/* A row format of the words of this scalar, or another: set in the arguments. In a line "field=mxfp8"; NULL: the line has
   none. */
sy_row_format *case_format(struct call *c, const char *field);
/* An output of codes, or of scales: in the type of the format or as bytes. NULL: as described. */
struct operand *case_out_codes(struct call *c, const char *field, DLDataType type, int rank,
                               const int64_t *shape);
/* Rows of codes with their scales as inputs: every code, mostly scales of moderate size. */
void case_in_codes(struct call *c, const char *codes, const char *scales, const sy_row_format *f);
/* Extents of a row: G groups, few, or so many that kernels copy their scales as vectors, and H numbers. */
void case_groups(struct call *c, const sy_row_format *f);
/* One of the types of the numbers: f32, f16, bf16, which are all that the field accepts in this call. */
DLDataType case_number_type(struct call *c, const char *field);
/* Numbers that differ in size from group to group, so that quotients are near the middle of two codes. */
void case_fill_groups(struct call *c, struct operand *x, int64_t group);

/* Rows that are quantized, or the codes of such rows: a format, scales of any layout, and a shape of any rank. */
struct coded_rows {
    const sy_row_format *format;
    bool packed, inlined, fp4;
    sy_scale_layout layout;
    int rank, scale_rank;
    int64_t rows, hidden, groups, group, width; /* width: of a row of codes */
    int64_t shape[4], code_shape[4], scale_shape[4];
};
struct coded_rows case_coded_rows(struct call *c, const char *field);
void case_fill_global(struct call *c, const struct coded_rows *r);
/* What is wrong with the global scales of these rows; and the scale of one. */
sy_fault case_global_fault(struct call *c, int64_t rows);
float case_global(struct call *c, int64_t row);

/* ---- For `oracle` ---- */

/* "cache"; "cache.1": of plane 1; of a mesh on c->device */
struct operand *case_field(struct call *c, const char *field);
const void *case_dense(struct call *c, const char *field);             /* NULL: not given */
void *case_want(struct call *c, const char *field);                    /* NULL: not given */
void case_expect(struct call *c, const char *field, const void *want); /* copies, where the field is given */
int64_t case_get(const struct operand *x, int64_t i);                  /* integers and bools */
void case_put(struct operand *x, int64_t i, int64_t value);
void case_put_want(struct operand *x, int64_t i, int64_t value);
enum number_type case_number(const struct operand *x);                             /* its type, of floats */
double case_real(const struct operand *x, int64_t i);                              /* floats */
void case_put_real(const struct operand *x, void *array, int64_t i, double value); /* rounded to its type */
/* A row of n numbers as codes and scales, and back. */
void case_quantize(const sy_row_format *f, const float *x, int64_t n, uint8_t *codes, void *scales);
void case_dequantize(const sy_row_format *f, const uint8_t *codes, const void *scales, int64_t n, float *x);
int64_t case_count(const struct operand *x);
int64_t *case_wide(struct call *c,
                   const char *field);           /* its integers; NULL: not given; freed with the call */
void *case_memory(struct call *c, size_t bytes); /* zero; freed with the call */
/* From make or oracle, counted once per call: after the random calls each text of `hard` needs five. It should be about what the call
   contains, not what was drawn: faults may have been planted since. */
void case_note(struct call *c, const char *hard, bool happened);

/* ---- For the engine ---- */

extern const struct op_case *const all_cases[];
extern const int n_all_cases;

enum { CASE_CONTEXTS = 32 };
extern sy_ctx *case_ctx[CASE_CONTEXTS];
extern int n_case_ctx;
extern bool case_split; /* small calls use all threads */
bool case_on_device(void);
/* SWITCHYARD_TESTS: unset; "full", for long runs; "more", what `make test-all` adds to a run where it is unset; "few", a third of
   the calls, under a sanitizer. */
bool tests_are(const char *length);
extern bool case_recording;              /* recorded calls are the same everywhere */
static inline bool case_for_device(void) /* calls may be such as suit a device */
{
    return case_on_device() && !case_recording;
}
void case_open(void);
void case_close(void);

struct reader reader_seed(uint64_t seed);
struct reader reader_bytes(const uint8_t *data, size_t size);
struct reader reader_text(const char *text);
const sy_field_info *case_scalar(struct call *c, const char *field);

void call_make(struct call *c, const struct op_case *op, struct reader *in);
void call_make_only(struct call *c, const struct op_case *op, struct reader *in); /* without the oracle */
void call_free(struct call *c);
void call_lay_out(struct call *c, uint64_t layout, bool in_place); /* layout 0: compact */
/* Calls that the tests of other folders use, compact: of a line, with the contents of a seed; and, of operator 0 .. TEST_CALLS - 1, a
   valid one, of a few kilobytes or so large that work is split over threads. */
enum { TEST_CALLS = 34 };
struct call *case_of_line(const struct op_case *op, const char *line, uint64_t seed);
struct call *case_new(int number, bool large);
void case_delete(struct call *c);
sy_comm *case_comm(sy_mesh mesh); /* one for each mesh */
void forget_comms(void);
/* sy_infer for the inputs there are; it may only fail where c->want is a rejection, and gives no output then. */
sy_status call_infer(struct call *c, sy_shape *shapes);
const void *call_bind(struct call *c); /* the arguments; of a mesh with arrays of the operands */
/* sy_call, sy_call_query and sy_infer, or those of a mesh; `args` are bound. */
sy_status op_call(const struct call *c, sy_ctx *ctx, const void *args, size_t bytes);
sy_status op_query(const struct call *c, sy_ctx *ctx, const void *args, size_t bytes, sy_query *query);
sy_status op_infer(const struct call *c, sy_ctx *ctx, const void *args, size_t bytes, sy_shape *shapes);
sy_status call_run(struct call *c, sy_ctx *ctx);
void call_check(struct call *c, sy_ctx *ctx, sy_status status); /* against the oracle */
void call_untouched(struct call *c, sy_ctx *ctx);               /* not a byte changed */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes);
uint64_t call_hash(struct call *c, sy_ctx *ctx, sy_status status);
bool call_accepts(const struct call *c, const struct operand *x, DLDataType type);
void call_apply(struct call *c, const struct change *s);
void call_change(struct call *c, const char *words); /* of struct rejection; NULL: none */
const char *call_read(struct call *c, const char *text,
                      struct change *s); /* the first word; returns those after it */
struct operand *case_field_on(struct call *c, const char *field, int device); /* of a mesh */
void operand_over(struct operand *x, const struct operand *y, int64_t by); /* lies on it, from this byte on */
const sy_field_info *case_format_field(const struct call *c);              /* NULL: it has none */
bool extent_of(const struct call *c, const char **text, int64_t *value); /* the next extent of a shape text */
const char *shape_form(const struct operand *x);                         /* its form of this rank; "": none */

void record_calls(const struct op_case *const *ops, int n, const char *path, uint64_t seed, int64_t first,
                  int64_t calls);
int test_rejections(const struct op_case *op); /* how many were made */
int test_allocations(const struct op_case *op);
int test_workspace(const struct op_case *op);
int test_descriptors(const struct op_case *op);
int test_stack(const struct op_case *op);
void note_call(const struct call *c);
void check_coverage(const struct op_case *op); /* of the calls noted since the last */

/* Prints the operator, where the call comes from and the context; ends this test, or the program where there is none. */
extern void (*case_end_test)(void);
extern char case_where[400];
_Noreturn void case_fail(const struct call *c, sy_ctx *ctx, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
