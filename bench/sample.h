/*
 * Shared by the cases of sample and their plain loop.
 */
#ifndef SWITCHYARD_BENCH_SAMPLE_H
#define SWITCHYARD_BENCH_SAMPLE_H

#include "described.h"

enum { SAMPLE_SEED = 42 };

struct sample_candidate {
    float logit;
    int32_t token;
};

/* The results that the plain loop accepts: a range, of length one except near a boundary. */
struct sample_answer {
    int64_t token_low, token_high;
    int64_t kept_low, kept_high;
};

/* The arguments, and beside them what the plain loop and the check need. */
struct sample_block {
    sy_sample_args args;
    const DLTensor *kept, *flags; /* [B] of the call that is checked */
    const DLTensor *instead;      /* [B,V] overrides by token, NaN where there is none; or NULL */
    int64_t batch, vocab, top_k;  /* 0: off, as the next two */
    double top_p, min_p;
    const void *logits; /* those of the turn, f32 or bf16 */
    bool wide;
    struct sample_answer *answers;
    struct sample_candidate *list; /* [V] */
    double *ranked, *weights;      /* [V], by place in the list, and by token: 0 where it is no candidate */
    int64_t *alone;                /* [B] tokens of the call without the count of the kept */
};

void sample_plain(const struct bench_call *c);
const char *sample_check(const struct bench_call *c);

#endif
