/*
 * A mixture-of-experts language model in C: the structures and functions of its files. Read in this order:
 *   main.c        the program in short
 *   engine.c      several requests at once, each with its own parameters; drafts
 *   model.c       the decoder: attention over a paged cache, experts between moe_permute and moe_unpermute
 *   mesh.c        experts on several devices or processes, between all_to_all_dispatch and all_to_all_combine
 *   load.c        what config.json says, and which tensors three architectures have
 *   math.c        normalisation, softmax, the activation of experts
 * The folder support/ has what is needed around a model: options, safetensors, gemm, tokenizer, files, page.
 *
 * Conventions: [a, b] in a comment is the shape of an array, row after row. `most` is an upper limit. Group g of some rows is
 * [first[g], first[g + 1]). Names that begin with a file's name (mesh_open) are in that file.
 */
#ifndef LM_H
#define LM_H

#include <switchyard.h>

#include "support/support.h"

/* ---- Requests: engine.c -------------------------------------------------------------------------------- */

struct request {
    const char *text, *ids;          /* the prompt, one of both */
    int64_t max_new;                 /* tokens to write, at most */
    float temperature, top_p, min_p; /* 0: the largest logit; 1: off; 0: off */
    int64_t top_k, seed;
    int32_t *token; /* [n_prompt + max_new]: the prompt, then what is written */
    int64_t n_prompt, n_written;
    bool stopped; /* by an end-of-text token, which is not among those written */
    /* Kept for --page and --logits, otherwise NULL. */
    int32_t *chosen; /* [n_prompt + max_new, layers, top_k] experts of each token */
    float *weight;   /* the same: their weights */
    float *logits;   /* [max_new, vocabulary], of which n_written + stopped rows are set */
    /* While it runs. */
    int32_t *table;     /* its blocks of the cache; NULL: it does not run */
    int64_t cached;     /* tokens in the cache */
    int64_t begin, end; /* its tokens in the batch of this step */
};

/* The command line, read: support/options.c. */
struct settings {
    struct request *request;
    int64_t n;
    struct request next;   /* with the options for the prompts that follow */
    int64_t most_requests; /* at once */
    int64_t chunk;         /* tokens of prompts in a step */
    int64_t drafts;        /* of a request in a step */
    int64_t threads;
    bool ignore_eos, timed;
    const char *folder, *mesh, *logits, *page;
};

struct times {
    struct phase {
        double seconds, processor_seconds;
        int64_t tokens;
    } prompts, writing; /* steps with and without tokens of a prompt */
    int64_t drafts, accepted;
};

/* ---- The model: model.c, load.c ------------------------------------------------------------------------ */

enum { BLOCK = 16, MOST_EOS = 16 }; /* tokens of a block of the cache; tokens that end a text */

struct layer {
    float *attention_norm, *q_norm, *k_norm, *mlp_norm;
    struct matrix q, k, v, o;
    struct matrix router;            /* panel NULL: a dense layer */
    struct matrix *gate, *up, *down; /* [experts], or [1] of a dense layer */
    int64_t width;                   /* of an expert */
    float *keys, *values;            /* the cache: [blocks * BLOCK, kv_heads * head_size] */
};

struct model {
    int64_t vocabulary, hidden, layers, heads, kv_heads, head_size, experts, top_k, positions;
    enum norm { NORM_NONE, NORM_ALL_HEADS, NORM_EACH_HEAD } head_norm; /* of queries and keys */
    bool renormalise;                                                  /* the weights of chosen experts */
    float eps, clip; /* of rms_norm; of queries, keys and values (0: none) */
    double theta;    /* of rotary positions */
    int64_t eos[MOST_EOS];
    int n_eos;
    struct weight embedding;
    float *norm;
    struct matrix head;
    struct layer *layer;
    int64_t blocks;       /* of the cache */
    float *keys, *values; /* what kv_ragged reads from it, for one layer */
    sy_ctx *ctx;
    struct mesh *mesh;    /* NULL: one device */
    uint64_t operator_ns; /* time in calls of Switchyard */
};

/* Tokens of one step: of several sequences, those of one sequence together and ascending. */
struct batch {
    int64_t n, sequences, n_wanted, table_width;
    int32_t *token, *position, *sequence; /* [n] */
    int32_t *slot;                        /* [n] row of the cache */
    int32_t *length;                      /* [sequences], with the tokens of this step */
    int32_t *table;                       /* [sequences, table_width] blocks */
    int32_t *wanted;                      /* [n_wanted] tokens whose logits are computed */
    float *logits;                        /* [n_wanted, vocabulary] out */
    int32_t *chosen; /* [layers, n, top_k] out: experts of each token, ascending; -1 in a dense layer */
    float *weight;   /* the same: their weights */
};

/* ---- Functions ----------------------------------------------------------------------------------------- */

/* Runs all requests of this process to their ends. */
struct times engine_run(struct model *m, const struct settings *s);

struct model *model_open(const char *folder, struct mesh *mesh); /* load.c; without the cache */
void model_cache(struct model *m, int64_t blocks);
void model_step(struct model *m, const struct batch *b);
void model_must(const struct model *m, sy_status status); /* ends the program if a call failed */
/* Experts [e, e + n) of a layer for rows grouped by expert; out may be x. */
void run_experts(const struct layer *l, int64_t e, int64_t n, const int64_t *first, float *out,
                 const float *x);

/* Tensors for the fields of an operator's arguments. */
#define VEC(data, type, n) sy_vec(&(sy_view){0}, data, type, n)
#define MAT(data, type, rows, cols) sy_mat(&(sy_view){0}, data, type, rows, cols)

extern int process, processes; /* of MPI; 0 and 1 without it. Process 0 prints */
void mesh_start(int *argc, char ***argv);
struct mesh *mesh_open(const char *shape); /* "1x4"; NULL: no mesh, or with several processes one of them */
void mesh_prepare(struct model *m, int64_t most_tokens /* of a step and a device */);
bool mesh_hosts(const struct mesh *mesh, int64_t expert, int64_t experts); /* in this process? NULL: yes */
bool mesh_any(bool here); /* whether it is so in any process */
/* From the process of a request to all; data may be NULL. */
void mesh_collect(int64_t request, void *data, int64_t n, size_t bytes);
void mesh_experts(struct model *m, const struct layer *l, const struct batch *b, const int32_t *ids,
                  const float *weights, float *out, const float *x);
void mesh_abort(void);
void mesh_end(struct mesh *mesh);

/* math.c */
void rms_norm(float *y, const float *x, int64_t rows, int64_t width, const float *scale, float eps);
void silu_gate(float *gate, const float *up, int64_t n); /* gate[i] = silu(gate[i]) * up[i] */
float dot(const float *a, const float *b, int64_t n);
void softmax(float *x, int64_t n);

#endif
