/*
 * Shared by the parts of the demo: the shapes, the state of the step, and the data of the page.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "bench.h"

/* OLMoE's layer and vocabulary, a paged cache of latent attention rows as DeepSeek's, one token per sequence. */
enum {
    DEMO_TOKENS = 64,
    DEMO_EXPERTS = 64,
    DEMO_K = 8,
    DEMO_HIDDEN = 2048,
    DEMO_WIDTH = 1024, /* of an expert, inside */
    DEMO_ROWS = DEMO_TOKENS * DEMO_K,
    DEMO_KV_ROW = 576, /* bf16 elements of a cache row: 1152 bytes */
    DEMO_BLOCK = 16,   /* cache rows in a page */
    DEMO_SHORT = 128,  /* tokens a sequence has at least, and fewer than ... */
    DEMO_LONG = 1536,
    DEMO_PAGES = DEMO_LONG / DEMO_BLOCK, /* of one sequence at most */
    DEMO_WINDOW = 64,                    /* newest tokens the attention always reads */
    DEMO_SELECTED = 256,                 /* tokens it reads in all */
    DEMO_VOCAB = 50304,
    DEMO_FEATURES = 16, /* of a token that the vocabulary head reads */
    DEMO_TOP_K = 50,
    DEMO_SHOWN = 64,  /* most likely tokens on the page */
    DEMO_DEVICES = 4, /* of the mesh, 2 x 2 */
    DEMO_STEPS = 9,
    DEMO_BUFFERS = 40,
};

/* Of the sampler; floats, as it takes them. */
#define DEMO_TOP_P 0.9f
#define DEMO_TEMPERATURE 0.8f

struct demo_step {
    const char *op;
    char what[160], detail[160], check[160]; /* detail may be empty */
    char sketch[96];                         /* a line for the terminal only; may be empty */
    double seconds, bytes; /* shortest time; bytes that must move, or for arithmetic its operations */
    double bound;          /* shortest time of the limit */
    double share;          /* the rate as a share of the limit's */
    bool there;            /* it ran on the device */
    const char *limit;     /* "copy", "copy and fill", "read"; NULL: plain C, which has none */
    bool good;
};

struct demo {
    sy_ctx *ctx;
    int threads;
    struct bench_arena arena;
    struct bench_machine machine;
    double others; /* share of the CPUs that other programs used meanwhile */
    struct bench_device device;
    void *there[2]; /* its arena */
    struct demo_step steps[DEMO_STEPS];
    int n_steps;
    void *buffers[DEMO_BUFFERS]; /* everything below, freed together */
    int n_buffers;
    bool no_memory;

    /* The layer. Matrices are packed as demo_matmul reads them. */
    float *gate, *up, *down; /* one set for all experts, which differ in `inner_scale` [E,W] */
    float *inner_scale;
    uint16_t *hidden;            /* [T,H] bf16: the input, to which the experts' results are added */
    float *logits, *probs;       /* [T,E] of the router; its weights, 0 off the map */
    uint8_t *map;                /* [T,E] routing map */
    int64_t load[DEMO_EXPERTS];  /* tokens of each expert */
    int64_t first[DEMO_EXPERTS]; /* the first row of each, counted by hand */
    uint16_t *rows, *answers;    /* [R,H] bf16, grouped by expert: input and output of the experts */
    int32_t *index;              /* [R] the row of each visit */
    uint16_t *mixed;             /* [T,H] bf16: the weighted sums of results */

    /* The same on a mesh. */
    sy_comm *comm;
    sy_routing *routing;
    uint16_t *chosen;      /* [T,K] experts of each token, ascending */
    float *chosen_weights; /* [T,K] */
    uint16_t *hosts;       /* [E,DEMO_DEVICES] */
    uint16_t *travelled;   /* [R,H] rows of all devices, one after the other */
    int64_t *traffic;      /* [DEMO_DEVICES,DEMO_DEVICES] tokens from one to the other */

    /* The cache. */
    uint16_t *cache, *fresh;     /* [pages * block, row]; [T,row] the rows of this step */
    int32_t *table;              /* [T,DEMO_PAGES] */
    int32_t length[DEMO_TOKENS]; /* tokens of each sequence before this step */
    int32_t *selected;           /* [T,DEMO_SELECTED] tokens that the attention reads */
    int32_t counts[DEMO_TOKENS]; /* how many of them are used */
    int64_t pages;               /* of all sequences */

    /* The head, and row 0 of the sampler: its most likely tokens, how many were kept, which one was picked. */
    float *features; /* [T,DEMO_FEATURES] */
    double likely[DEMO_SHOWN];
    int64_t likely_token[DEMO_SHOWN];
    int64_t kept, picked;
};

/* Tensors for the fields of an operator's arguments. */
#define VEC(data, type, n) sy_vec(&(sy_view){0}, data, type, n)
#define MAT(data, type, rows, cols) sy_mat(&(sy_view){0}, data, type, rows, cols)

/* The steps in their order. Each runs, is timed, is checked and prints its lines. */
void demo_route(struct demo *demo);
void demo_permute(struct demo *demo);
void demo_dispatch(struct demo *demo);
void demo_experts(struct demo *demo);
void demo_unpermute(struct demo *demo);
void demo_combine(struct demo *demo);
void demo_scatter(struct demo *demo);
void demo_gather(struct demo *demo);
void demo_sample(struct demo *demo);

/* Memory that is freed at the end of the demo; NULL and no_memory where there is none. */
void *demo_take(struct demo *demo, size_t count, size_t bytes);

/* The next step, without numbers. */
struct demo_step *demo_begin(struct demo *demo, const char *op);

/* Step and limit are timed in turns, and the shortest time of each counts: on a busy machine a turn may take a hundred
   times as long. A share above DEMO_MOST_SHARE means that the limit was disturbed in every turn: it is measured in further
   rounds, and not shown where demo_share_holds is still false after the last. */
enum { DEMO_TURNS = 9, DEMO_ROUNDS = 4 };
#define DEMO_MOST_SHARE 1.5

bool demo_share_holds(const struct demo_step *step);
struct bench_text demo_limit_time(const struct demo_step *step); /* of its bytes */

/* Other programs used so much of the CPUs that times are longer than they would be. */
bool demo_busy(const struct demo *demo);

/* Seconds of the call and of its limit; a new step with its numbers. */
struct demo_step *demo_measure(struct demo *demo, const char *op, const void *args, double bytes,
                               const struct bench_work *limit);

/* Prints the lines of the step and the result of its check. */
void demo_print(struct demo *demo, struct demo_step *step, const char *check, bool good);

/* The arguments after `demo`; *path is NULL before, and after it without --out. Returns an exit code. */
struct arg_list;
int demo_options(struct common *common, struct arg_list *list, const char **path);

bool demo_all_good(const struct demo *demo);

/* "37.4 KB", "6.44 MB" */
struct bench_text demo_size(double bytes);

/* out[i,c] = sum over k of x[i,k] w[k,c] for n rows: 16 columns for each of `tiles`, and weight w[k,c] at
   w[(c / 16 * inner + k) * 16 + c % 16]. Rows of x and out follow each other. */
enum { DEMO_TILE = 16 };
void demo_matmul(const float *x, int n, int inner, const float *w, int tiles, float *out);

/* n numbers between -size and size. */
void demo_fill(float *values, size_t n, float size, uint64_t seed);

/* The page, and its pictures; demo_style is bench/demo.css, embedded by the build. */
void demo_page(const struct demo *demo, FILE *out);
void demo_put_head(FILE *out, const char *title, const char *heading); /* up to the text of its header */
void demo_draw_traffic(const int64_t *traffic, int devices, double row_bytes, FILE *out);
extern const char demo_style[];
