/* What a program needs around a model. Each file does one thing, described in its first comment. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct model;
struct request;
struct settings;

/* options.c: ends the program after --help, and when an argument is wrong. */
struct settings read_options(int argc, char **argv);
int32_t *read_ids(const char *text, int64_t *n); /* the tokens of "1 2 3" */

/* safetensors.c: a tensor in a file that is mapped to memory, with rows of outputs and columns of inputs. */
struct weight {
    const char *data; /* of any alignment */
    enum { F32, F16, BF16 } type;
    int64_t rows, cols;
};
struct checkpoint;
struct checkpoint *checkpoint_open(const char *folder);
/* The tensor FORMAT ".weight", which must have this shape; rows 0: a vector, which becomes one row. */
struct weight read_tensor(struct checkpoint *c, int64_t rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool has_tensor(struct checkpoint *c, const char *tensor); /* by its whole name */

/* gemm.c: a matrix in panels of 16 outputs. */
struct matrix {
    uint32_t *panel;
    bool bf16;
    int64_t rows, cols;
    struct weight from; /* the same, in its file */
};
extern bool use_blas; /* for products of many rows */
extern const bool have_blas;
struct matrix pack(struct weight w);
float *widen(struct weight w); /* all numbers as f32 */
void read_row(float *to, const struct weight *w, int64_t row);
void multiply(float *y, const float *x, int64_t rows, const struct matrix *m); /* y[rows, m.rows] = x * m^T */
/* The same for groups of rows, group g by m[g]; all m have one shape. */
void multiply_groups(float *y, const float *x, const int64_t *first, const struct matrix *m, int64_t groups);

/* A function is compiled for several processors, and the best is taken. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define VECTORS
#endif

/* tokenizer.c */
struct tokenizer;
struct tokenizer *tokenizer_open(const char *folder); /* NULL: the folder has no tokenizer.json */
int32_t *tokenizer_encode(const struct tokenizer *t, const char *text, int64_t *n);
/* The bytes of a token: a text is those of its tokens. NULL: a token that is no text. */
char *tokenizer_decode(const struct tokenizer *t, int32_t token, size_t *bytes);

/* page.c */
extern const bool have_page;
void write_page(const char *path, const struct model *m, const struct tokenizer *t,
                const struct request *request, int64_t n);

/* files.c */
_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2))); /* exits with 2 */
#define require(condition, ...) ((condition) ? (void)0 : die(__VA_ARGS__))

void *new_array(size_t n, size_t bytes); /* zeros; ends the program when there is no memory */
#define NEW(type, n) ((type *)new_array((size_t)(n), sizeof(type)))

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
/* Of an object: the value of a key, or `otherwise` where it is absent or null. */
const json_t *json_get(const json_t *object, const char *key);
double json_real_at(const json_t *object, const char *key, double otherwise);
bool json_flag(const json_t *object, const char *key, bool otherwise);
const char *json_text(const json_t *object, const char *key, const char *otherwise);
/* A whole number from 0 to `most`; `what` and `name` are for messages. */
int64_t json_whole(const json_t *value, double most, const char *what, const char *name);

#endif
