/*
 * A mixture-of-experts language model in C: the structures and functions of its files, which README.md lists in the order to read them.
 *
 * support/support.h has what these files take from that folder.
 *
 * Conventions: [a, b] in a comment is the shape of an array, row after row. `most` is an upper limit. Group g of some rows is
 * [first[g], first[g + 1]). Names that begin with a file's name (mesh_open) are in that file, but model_open is in load.c.
 */
#pragma once

#include <switchyard.h>

#include "support/support.h"

/* ---- Requests: engine.c ---- */

struct request {
    const char *text, *ids;          /* the prompt, one of both */
    int64_t max_new;                 /* tokens to write, at most */
    float temperature, top_p, min_p; /* temperature 0: the largest logit; top_p 1 and min_p 0: off */
    int64_t top_k, seed;             /* top_k 0: off */
    int32_t *token;                  /* [n_prompt + max_new]: the prompt, what is written, drafts */
    int64_t n_prompt, n_written;
    int64_t cached; /* tokens in the cache, during a step with those of the step */
    bool running;   /* it has blocks of the cache */
    bool stopped;   /* by an end-of-text token, which is not among those written */
    /* Kept for --page and --logits, otherwise NULL. */
    int32_t *chosen; /* [n_prompt + max_new, layers, k] the k experts of each token; -1 in a dense layer */
    float *weight;   /* the same: their weights */
    float *logits;   /* [max_new, vocabulary], of which n_written + stopped rows are set */
};

struct times {
    struct phase {
        double seconds, processor_seconds;
        int64_t tokens;
    } phase[2]; /* steps that write, for last tokens and drafts alone; steps that read more of prompts */
    int64_t drafts, accepted;
};

/* Tokens of one step, those of one request together and ascending. Requests are all that were given: those that wait or are
   done have no tokens in it. The first comment of engine.c has an example. */
struct batch {
    struct request *request;
    int64_t requests, n, n_wanted;
    int32_t *token, *position, *owner; /* [n]; owner: the number of its request */
    int32_t *slot;                     /* [n] row of the cache */
    int32_t *table;                    /* [requests, table_width] blocks of the cache */
    int64_t table_width;
    int32_t *first_row; /* [requests + 1] rows of requests in all_keys and all_values */
    /* Rows of the batch whose logits are computed: the last token of a text, then its drafts. */
    int32_t *wanted, *wanted_token; /* [n_wanted] rows, and their tokens */
    int32_t *first_wanted;          /* [requests + 1] */
    float *logits;                  /* [n_wanted, vocabulary] out */
    int32_t *count;                 /* [requests] out: tokens that follow; 0 where none is wanted */
    int64_t *next; /* [n_wanted] out: these tokens, those of request i from first_wanted[i] on */
};

/* ---- The model: model.c, load.c ---- */

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
    float eps;                                                         /* of rms_norm */
    double theta;                                                      /* of rotary positions */
    int64_t eos[MOST_EOS];
    int n_eos;
    struct matrix embedding, head;
    float *norm;
    struct layer *layer;
    int64_t blocks; /* of the cache */
    float *all_keys,
        *all_values; /* of one layer: what kv_ragged copies from the cache, request after request */
    sy_ctx *ctx;
    struct mesh *mesh;    /* NULL: one device */
    uint64_t operator_ns; /* time in calls of Switchyard */
};

/* ---- Functions ---- */

/* Runs all requests of this process to their ends. */
struct times engine_run(struct model *m, const struct settings *s);

struct model *model_open(const char *folder, struct mesh *mesh); /* load.c; without the cache */
void model_cache(struct model *m, int64_t blocks);
void model_step(struct model *m, const struct batch *b);
/* Experts [e, e + n) of a layer for rows grouped by expert; out may be x. */
void run_experts(const struct layer *l, int64_t e, int64_t n, const int64_t *first, float *out,
                 const float *x);

/* "1x4"; NULL: a device for each process, no mesh if there is one */
struct mesh *mesh_open(const char *shape);
bool mesh_hosts(const struct model *m, int64_t expert); /* in this process? */
void mesh_prepare(struct model *m, int64_t most_tokens /* of a step and a device */);
void mesh_experts(struct model *m, const struct layer *l, int64_t n, const int32_t *ids, const float *weights,
                  float *out, const float *x);
void mesh_close(struct mesh *mesh);

/* Ends the program if a call of Switchyard failed. */
#define MUST(m, call) require((call) == SY_OK, "%s", sy_ctx_error((m)->ctx))
/* Tensors for the fields of an operator's arguments. */
#define VEC(data, type, n) sy_vec(&(sy_view){0}, data, type, n)
#define MAT(data, type, rows, cols) sy_mat(&(sy_view){0}, data, type, rows, cols)
