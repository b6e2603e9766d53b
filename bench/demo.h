/*
 * What the demo's steps leave for its page.
 */
#ifndef SWITCHYARD_BENCH_DEMO_H
#define SWITCHYARD_BENCH_DEMO_H

#include <stdbool.h>
#include <stdint.h>

#include "bench.h"

/* OLMoE's layer, a cache of latent attention rows, a vocabulary of today. */
enum {
    DEMO_TOKENS = 2048,
    DEMO_EXPERTS = 64,
    DEMO_K = 8,
    DEMO_HIDDEN = 2048,
    DEMO_CAPACITY =
        DEMO_TOKENS / DEMO_EXPERTS * 5 / 4, /* slots per expert, a quarter more than a fair share */
    DEMO_CONTEXT = 32768,
    DEMO_SELECTED = 2048,
    DEMO_BLOCK = 64,
    DEMO_ROW = 576, /* bf16 elements of a cache row: 1152 bytes */
    DEMO_BATCH = 8,
    DEMO_VOCAB = 131072,
    DEMO_TOP_K = 50,
    DEMO_SHOWN = 64, /* most likely tokens on the page */
    DEMO_STEPS = 4,
};

struct demo_step {
    const char *op;
    char what[160];
    double seconds, bytes,
        share;         /* median time; bytes that must move; their rate as a share of the limit's */
    const char *limit; /* "copy", "copy and fill", "read" */
    bool good;
};

struct demo {
    sy_ctx *ctx;
    int threads;
    struct bench_arena arena;
    uint8_t *map;   /* [T,E] who goes where       */
    float *weights; /* [T,E] router weights, 0 off the map */
    int32_t *first; /* [T] the best expert of each token   */
    int64_t load[DEMO_EXPERTS];
    struct demo_step steps[DEMO_STEPS];
    int n_steps;
    /* Row 0 of the sampler: its most likely tokens, how many survived each cut, which one was picked. */
    double likely[DEMO_SHOWN];
    int32_t likely_token[DEMO_SHOWN];
    int64_t kept, picked;
};

/* Each step runs, is timed, is checked and tells its lines. False: out of memory. */
bool demo_permute(struct demo *demo);
bool demo_dispatch(struct demo *demo);
bool demo_gather(struct demo *demo);
bool demo_sample(struct demo *demo);

/* Median seconds of `call`, beside its limit; fills the numbers of a new step and returns it. */
struct demo_step *demo_measure(struct demo *demo, const char *op,
                               sy_status (*call)(sy_ctx *ctx, const void *args), const void *args,
                               double bytes, const struct bench_work *limit);

/* Prints the step's line, its speed and the verdict of its check. */
void demo_tell(struct demo_step *step, const char *check, bool good);

/* Writes the page; false when it cannot be written. */
bool demo_page(const struct demo *demo, const char *path);

#endif
