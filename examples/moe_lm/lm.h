/*
 * A mixture-of-experts language model in C: what its files share. Read in this order:
 *   main.c        the command line
 *   engine.c      several requests at once, each with its own parameters; drafts
 *   model.c       the decoder: attention over a paged cache, experts between moe_permute and moe_unpermute
 *   mesh.c        experts on several devices or processes, between all_to_all_dispatch and all_to_all_combine
 *   math.c        matrix products, normalisation
 *   load.c        a checkpoint: its configuration and tensors
 *   tokenizer.c   text to tokens and back
 *   files.c       files, JSON, errors
 *   page.c        what the routers and the sampler chose, as a page for a browser
 */
#ifndef LM_H
#define LM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <switchyard.h>

/* ---- files.c ------------------------------------------------------------------------------------------- */

/* Prints "moe_lm: ..." and exits with 2; abort is not reached, but known to checkers. */
_Noreturn void say_and_exit(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define die(...) (say_and_exit(__VA_ARGS__), abort())

void *new_array(size_t n, size_t bytes); /* zeros; ends the program when there is no memory */
#define NEW(type, n) ((type *)new_array((size_t)(n), sizeof(type)))

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

/* ---- tokenizer.c --------------------------------------------------------------------------------------- */

struct tokenizer;
struct tokenizer *tokenizer_open(const char *folder); /* NULL: the folder has no tokenizer.json */
/* The tokens of a text, and how many. */
int32_t *tokenizer_encode(const struct tokenizer *t, const char *text, int64_t *n);
/* The bytes of a token: a text is those of its tokens. NULL: a token that is no text. */
const char *tokenizer_decode(const struct tokenizer *t, int32_t token, size_t *bytes);

/* ---- math.c -------------------------------------------------------------------------------------------- */

/* A tensor in a file: rows of outputs, columns of inputs. */
struct weight {
    const char *data; /* of any alignment */
    enum { F32, F16, BF16 } type;
    int64_t rows, cols;
};

/* A matrix in panels of 16 outputs, see math.c. */
struct matrix {
    uint32_t *panel;
    bool bf16;
    int64_t rows, cols;
};

extern bool use_blas; /* for products of many rows */
extern const bool have_blas;
struct matrix pack(struct weight w);
void read_row(float *to, const struct weight *w, int64_t row);
float *vector(struct weight w);
void multiply(float *y, const float *x, int64_t rows, const struct matrix *m); /* y[rows, m.rows] = x * m^T */
/* The same for groups of rows, [first[g], first[g + 1]) with m[g]; all m have one shape. */
void multiply_groups(float *y, const float *x, const int64_t *first, const struct matrix *m, int64_t groups);
void normalise(float *y, const float *x, int64_t rows, int64_t width, const float *scale, float eps);
void gated(float *gate, const float *up, int64_t n); /* gate[i] = silu(gate[i]) * up[i] */
float dot(const float *a, const float *b, int64_t n);
void softmax(float *x, int64_t n);

/* ---- model.c ------------------------------------------------------------------------------------------- */

enum { BLOCK = 16, MOST_EOS = 16 }; /* tokens of a block of the cache; tokens that end a text */

/* Tensors for the fields of an operator's arguments. */
#define VEC(data, type, n) sy_vec(&(sy_view){0}, data, type, n)
#define MAT(data, type, rows, cols) sy_mat(&(sy_view){0}, data, type, rows, cols)

struct layer {
    float *attention_norm, *q_norm, *k_norm, *mlp_norm;
    struct matrix q, k, v, o;
    struct matrix router;            /* panel NULL: a dense layer */
    struct matrix *gate, *up, *down; /* [experts], or [1] of a dense layer */
    int64_t width;                   /* of an expert */
    float *keys, *values;            /* the cache: [blocks * BLOCK, kv_heads * head_size] */
};

/* Of queries and keys: none, all heads as one vector, each head. */
enum norm { NORM_NONE, NORM_HEADS, NORM_EACH_HEAD };

struct model {
    int64_t vocabulary, hidden, layers, heads, kv_heads, head_size, experts, top_k, positions;
    enum norm head_norm;
    bool renormalise;
    float eps, clip;
    double theta;
    int64_t eos[MOST_EOS];
    int n_eos;
    struct weight embedding;
    float *norm;
    struct matrix head;
    struct layer *layer;
    int64_t blocks;       /* of the cache */
    float *keys, *values; /* of a layer and all sequences of a step, read from it */
    sy_ctx *ctx;
    struct mesh *mesh;    /* NULL: one device */
    uint64_t operator_ns; /* time in calls of Switchyard */
};

/* Tokens of one step: of several sequences, those of one sequence together and ascending. */
struct batch {
    int64_t n, sequences, n_wanted, table_width;
    int32_t *token, *position, *slot; /* [n]; slot: row of the cache */
    int32_t *sequence;                /* [n] */
    int32_t *length;                  /* [sequences], with the tokens of this step */
    int32_t *table;                   /* [sequences, table_width] blocks */
    int32_t *wanted;                  /* [n_wanted] tokens whose logits are computed */
    float *logits;                    /* [n_wanted, vocabulary] out */
    int32_t *chosen; /* [layers, n, top_k] out: experts of each token, ascending; -1 in a dense layer */
    float *weight;   /* the same: their weights */
};

void model_cache(struct model *m, int64_t blocks);
void model_step(struct model *m, const struct batch *b);
/* Ends the program with the sentence of a failed call. */
void model_must(const struct model *m, sy_status status);
/* Experts [e, e + n) of a layer for rows grouped by expert; out may be x. */
void run_experts(const struct layer *l, int64_t e, int64_t n, const int64_t *first, float *out,
                 const float *x);

/* ---- load.c -------------------------------------------------------------------------------------------- */

struct model *model_open(const char *folder, struct mesh *mesh, int threads);

/* ---- mesh.c -------------------------------------------------------------------------------------------- */

/*
 * Expert parallelism: the experts of every layer are divided among the devices of a mesh, which is inside this process,
 * or, built with MPI, one process per device. Request i belongs to process i % processes, which does everything but the
 * experts for it.
 */
struct mesh;
enum { MOST_DEVICES = 64 };
extern int process, processes; /* of MPI; 0 and 1 without it. The first process prints */
void mesh_start(int *argc, char ***argv);
struct mesh *mesh_open(int rows, int cols); /* rows 0: NULL, or with several processes 1 x processes */
void mesh_prepare(struct model *m, int64_t most_tokens /* of a step and a device */);
/* Whether an expert is in this process; true for NULL. */
bool mesh_hosts(const struct mesh *mesh, int64_t expert, int64_t experts);
bool mesh_any(bool here); /* whether it is so in any process */
/* From the process of a request to all; data may be NULL. */
void mesh_collect(int request, void *data, int64_t n, size_t bytes);
void mesh_experts(struct model *m, const struct layer *l, const struct batch *b, const int32_t *ids,
                  const float *weights, float *out, const float *x);
void mesh_abort(void);
void mesh_end(struct mesh *mesh);

/* ---- engine.c ------------------------------------------------------------------------------------------ */

struct request {
    const char *text, *ids;          /* the prompt, one of both */
    int64_t most;                    /* tokens to write, at most */
    float temperature, top_p, min_p; /* 0: the largest logit; 1: off; 0: off */
    int64_t top_k, seed;
    int32_t *token; /* [n_prompt + most]: the prompt, then what is written */
    int64_t n_prompt, n_written;
    bool stopped; /* by an end-of-text token, which is not among those written */
    /* What is kept for --page and --logits; NULL: it is not. */
    int32_t *chosen; /* [n_prompt + most, layers, top_k] experts of each token */
    float *weight;
    float *logits; /* [n_written + stopped, vocabulary] */
    /* While it runs. */
    int32_t *table;           /* blocks of the cache; NULL: it does not run */
    int64_t seen, begin, end; /* tokens in the cache; its tokens in the batch */
};

struct engine_options {
    int64_t most_requests; /* at once */
    int64_t chunk;         /* tokens of prompts in a step */
    int64_t drafts;        /* of a request in a step */
    bool ignore_eos;
};

struct engine_times {
    struct phase { /* steps with and without tokens of a prompt */
        double seconds, processor_seconds;
        int64_t tokens;
    } prefill, decode;
    int64_t drafts, accepted;
};

/* Runs all requests of this process to their ends. */
void engine_run(struct model *m, struct request *request, int n, const struct engine_options *options,
                struct engine_times *times);

/* ---- page.c -------------------------------------------------------------------------------------------- */

extern const bool have_page;
void write_page(const char *path, const struct model *m, const struct tokenizer *t,
                const struct request *request, int n);

#endif
