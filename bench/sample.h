/*
 * Shared by the cases of sample and their plain loop.
 */
#ifndef SWITCHYARD_BENCH_SAMPLE_H
#define SWITCHYARD_BENCH_SAMPLE_H

#include "bench.h"

enum { SAMPLE_SEED = 42 };

/* Every token, half of them at random, or one in 64. */
enum sample_allow { SAMPLE_ALL, SAMPLE_HALF, SAMPLE_FEW };

/* Greedy, one seeded draw, or noise from the caller, by place in the list or by token. */
enum sample_noise { SAMPLE_GREEDY, SAMPLE_DRAW, SAMPLE_Q_LIST, SAMPLE_Q_VOCAB };

/* 200 peaks over N(0, 2.5), as of a confident model: a nucleus of about 60. A long tail, as of an uncertain one:
   hundreds. N(0,1): most of the vocabulary. Zipf's law with Gumbel noise, N(0,2), and the
   ties of constrained decoding: all equal, and two values. */
enum sample_logits {
    SAMPLE_PEAKS,
    SAMPLE_TAIL,
    SAMPLE_FLAT,
    SAMPLE_ZIPF,
    SAMPLE_NORMAL,
    SAMPLE_EQUAL,
    SAMPLE_TWO
};

/* Outputs besides the token: none, row_flags and kept as in Python, or a log-probability. */
enum sample_outputs { SAMPLE_TOKEN, SAMPLE_FLAGS_KEPT, SAMPLE_FINAL, SAMPLE_RAW };

struct sample_shape {
    int64_t batch, vocab;
    bool wide; /* f32 instead of bf16 */
    enum sample_logits logits;
    int64_t top_k; /* 0: off */
    float top_p;   /* 0: off */
    float min_p;   /* 0: off */
    enum sample_outputs outputs;
    enum sample_noise noise;
    enum sample_allow allow;
    int64_t overrides; /* tokens of each row */
};

struct sample_candidate {
    float logit;
    int32_t token;
};

/* The results that the plain loop accepts: a range, of length one except near a boundary. */
struct sample_answer {
    int64_t token_low, token_high;
    int64_t kept_low, kept_high;
};

struct sample_state {
    struct sample_shape shape;
    int64_t n_sets;
    void **sets;        /* [B,V] each */
    const void *logits; /* the set the plain loop reads */
    DLTensor *views;
    struct sample_answer *answers;
    struct sample_candidate *list; /* [V] */
    double *ranked, *weights;      /* [V], by place in the list, and by token: 0 where it is no candidate */
    int64_t *token, *alone;        /* with and without the count of the kept */
    int32_t *kept;
    uint32_t *flags;
    float *logprob;
    int64_t top_k[1], one_shape[1], logits_shape[2], flat_shape[1];
    uint64_t seed[1];
    float top_p[1], min_p[1];
    float *q;        /* [B,V], or NULL */
    uint32_t *allow; /* [B,ceil(V/32)], or NULL */
    int64_t allow_shape[2];
    int64_t *override_indptr, override_shape[2]; /* [B+1] and [B*overrides] */
    int32_t *override_token;
    float *override_logit;
    float *instead; /* [B,V] the same for the plain loop: NaN where nothing is overridden; or NULL */
    DLTensor q_view, allow_view, override_indptr_view, override_token_view, override_logit_view;
    DLTensor top_k_view, top_p_view, min_p_view, seed_view, token_view, kept_view, flags_view, logprob_view;
};

/* The callbacks `plain` and `check` of a case. */
void sample_plain(void *opaque, int64_t turn);
const char *sample_check(void *opaque);

#endif
