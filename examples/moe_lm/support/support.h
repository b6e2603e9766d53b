/* What a program needs around a model. Each file does one thing, described in its first comment. */
#pragma once

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model;
struct request;
struct times;

/* options.c: the command line. Ends the program after --help, and when an argument is wrong. */
struct settings {
    struct request *request; /* [n] */
    int64_t n;
    int64_t most_requests; /* at once */
    int64_t chunk;         /* tokens of prompts in a step */
    int64_t drafts;        /* of a request in a step */
    int64_t threads;
    bool ignore_eos, timed;
    const char *folder, *mesh, *logits, *page;
};
struct settings read_options(int argc, char **argv);
int32_t *read_ids(const char *text, int64_t *n); /* the tokens of "1 2 3" */

/* safetensors.c: a matrix in a file that is mapped to memory, with rows of outputs and columns of inputs. */
struct matrix {
    const char *data; /* of any alignment */
    enum { F32, F16, BF16 } type;
    int64_t rows, cols;
    /* The same in the order of gemm.c, which pack sets. */
    uint32_t *panel;
    int64_t words; /* of a panel, for one output */
    bool pairs;    /* a word is two bfloat16 */
};
struct checkpoint;
struct checkpoint *checkpoint_open(const char *folder);
bool has_tensor(const struct checkpoint *c, const char *name); /* without ".weight" */
/* The tensor FORMAT ".weight", which must have this shape; rows 0: a vector, which becomes one row. */
struct matrix read_tensor(const struct checkpoint *c, int64_t rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* gemm.c */
extern bool use_blas; /* for products of many rows */
extern const bool have_blas;
struct matrix pack(struct matrix m);
float *widen(struct matrix m); /* all numbers as f32 */
void read_row(float *to, const struct matrix *m, int64_t row);
void multiply(float *y, const float *x, int64_t rows, const struct matrix *m); /* y[rows, m.rows] = x * m^T */
/* The same for groups of rows, group g by m[g]; all m have one shape. */
void multiply_groups(float *y, const float *x, const int64_t *first, const struct matrix *m, int64_t groups);

/* math.c */
void rms_norm(float *y, const float *x, int64_t rows, int64_t width, const float *scale, float eps);
void silu_gate(float *gate, const float *up, int64_t n); /* gate[i] = silu(gate[i]) * up[i] */
float dot(const float *a, const float *b, int64_t n);
void softmax(float *x, int64_t n);

/* A function is compiled for several processors, and the best is taken. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_CPU __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_CPU
#endif

/* tokenizer.c */
struct tokenizer;
struct tokenizer *tokenizer_open(const char *folder); /* NULL: the folder has no tokenizer.json */
int32_t *tokenizer_encode(const struct tokenizer *t, const char *text, int64_t *n);
/* The bytes of a token: a text is those of its tokens. NULL: a token that is no text. */
char *tokenizer_decode(const struct tokenizer *t, int32_t token, size_t *bytes);

/* output.c, page.c: what a run prints and writes. */
void write_results(const struct settings *s, const struct model *m, const struct tokenizer *t,
                   const struct times *times);
extern const bool have_page;
void write_page(const struct settings *s, const struct model *m, const struct tokenizer *t);

/* processes.c */
extern int process, processes; /* of MPI; 0 and 1 without it. Process 0 prints */
void processes_start(int *argc, char ***argv);
bool any_process(bool here); /* whether it is so in any process */
/* From the process of a request to all; data may be NULL. */
void share_result(int64_t request, void *data, int64_t n, size_t bytes);
_Noreturn void processes_end(int status); /* status not 0: ends the others too */

/* files.c */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2))); /* exits with 2 */
#define require(condition, ...) ((condition) ? (void)0 : die(__VA_ARGS__))

void *new_array(size_t n, size_t bytes); /* zeros; ends the program when there is no memory */
#define NEW(type, n) ((type *)new_array((size_t)(n), sizeof(type)))
#define COPY(to, from, n) memcpy(to, from, (size_t)(n) * sizeof *(to))

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

struct file {
    const char *name, *data; /* data NULL: there is no such file */
    size_t bytes;
};
struct file map_file(const char *folder, const char *name);
json_t *json_file(const char *folder, const char *name); /* NULL: there is no such file */
const char *json_shown(const json_t *value);             /* for messages */
/* Of an object: the value of a key, or `otherwise` where it is absent or null. `file` is for messages. */
json_t *json_get(const json_t *object, const char *key);
double json_real_at(const char *file, const json_t *object, const char *key, double otherwise);
bool json_flag(const char *file, const json_t *object, const char *key, bool otherwise);
const char *json_text(const char *file, const json_t *object, const char *key, const char *otherwise);
int64_t json_whole(const char *file, const json_t *value, int64_t least, int64_t most, const char *name);
