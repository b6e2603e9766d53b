/*
 * Truth for moe_route: every row is sorted as a whole, groups are sorted, and an expert's tokens are sorted when there
 * is a capacity. Values are doubles; a step that the definition rounds to f32 is rounded explicitly.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <switchyard.h>

struct route_case {
    const sy_moe_route_args *a; /* of which its tensors are not read */
    int64_t tokens, experts;
    const float *logits;        /* [T,E] widened */
    const float *bias;          /* [E] or NULL */
    const uint8_t *finished;    /* [T] or NULL */
    const int64_t *given;       /* [T,K] or NULL; -1: unused */
    const float *expert_scale;  /* [E] or NULL */
    const float *shared_logits; /* [T,S] widened, or NULL */
};

/* Arrays of the caller; weights and probs before the rounding to the type of an output. */
struct route_result {
    int64_t *ids;   /* [T,K+S] */
    float *weight;  /* [T,K+S] */
    uint8_t *map;   /* [T,E+S] */
    float *prob;    /* [T,E+S] */
    int64_t *count; /* [E+S] */
    float *score;   /* [T,E] */

    /* What the case was made of. */
    int cut_ties;      /* rows whose first loser has the value of the last winner */
    int rounded_ties;  /* ... though their logits differ */
    int empty_rows;    /* rows of -inf only */
    int bias_decided;  /* rows whose winners would be others without bias */
    int zero_sums;     /* rows whose weights sum to 0 before they are divided */
    int dropped;       /* pairs */
    int logit_decided; /* rows whose winners would be others by score */
    int unused;        /* slots */
    int reordered;     /* rows whose given experts are not in the order of their values */
    int small_sums;    /* rows whose sum is below eps and replaced by it */
    int drop_ties;     /* experts whose first dropped token weighs what the last kept one does */
};

void oracle_moe_route(const struct route_case *in, struct route_result *out);
