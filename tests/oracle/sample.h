/*
 * Truth for the operator `sample`: the arithmetic of section 7 of the specification with a full sort and 128-bit sums, so
 * results are compared bit for bit. bench/sample_plain.c knows nothing of that arithmetic: libm's exp, a sort and a running sum.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <switchyard.h>

/* One row with everything widened. NaN in p or min_p and k = 0 turn the stage off; NaN temperature is 1. */
struct oracle_sample_row {
    const float *x;      /* [V] the caller's values after overrides, not canonical */
    const float *raw;    /* [V] before them; NULL: the same */
    const bool *allowed; /* [V] NULL: every token is */
    int64_t vocab;
    int64_t k, k_limit;
    float p, min_p, temperature;
    const float *q; /* [V] with SY_NOISE_Q */
    float eps;
    uint64_t seed, offset;
    uint32_t stream;
    sy_noise noise; /* never AUTO */
    sy_q_order q_order;
    sy_ties ties;
    sy_logprob logprob_mode;
    sy_empty_token empty_token;
    bool probs_in;
    const int64_t *given; /* the row's token; NULL: none is given */
    const int64_t *score; /* [n_score] -1: none */
    int64_t n_top, n_score;
    bool staged; /* stages, in this order, with these numbers; NaN: none */
    sy_stages stages;
    float n_sigma, typical, xtc, likely, range, exponent;
};

struct oracle_sample_result {
    int64_t token;
    int32_t kept;
    uint32_t flags;
    float logprob; /* 0 when logprob_mode is NONE */
    int64_t n;     /* length of the list */
    int64_t *list; /* [V] caller's arrays, filled to the end */
    float *prob;   /* [V] */
    float *masked; /* [V] */
    int32_t rank;  /* these four: 0 when logprob_mode is NONE */
    int64_t *top;  /* [n_top] caller's arrays */
    float *top_logprob;
    float *score_logprob; /* [n_score] */

    /* What the row was made of, so that tests can show their input and prove it hard. */
    bool ranked;       /* list in rank order                                         */
    bool k_on, k_tied; /* top-k acted; the first token it dropped equals the last kept */
    bool p_on, p_tied; /* the same for 0 < p < 1                                     */
    bool p_short;      /* probabilities never reached p                              */
    bool mp_cut;       /* min-p removed something                                    */
    bool score_tied;   /* two list elements share the winning score                  */
    bool sigma_cut, typical_cut, typical_tied, xtc_cut, dynamic; /* stages that acted */
    uint64_t weight_sum;
};

void oracle_sample_row(const struct oracle_sample_row *row, struct oracle_sample_result *out);

/* The pieces of section 7. */
uint32_t oracle_sample_key(float x);
float oracle_sample_exp(float t);
uint64_t oracle_sample_weight(float e);
void oracle_sample_philox(uint64_t seed, const uint32_t counter[4], uint32_t words[4]);
uint32_t oracle_sample_race_word(uint64_t seed, uint64_t offset, uint32_t stream, int64_t token);
float oracle_sample_race_noise(uint32_t word);
double oracle_sample_ln(uint64_t fixed40); /* ln(fixed40 * 2^-40), fixed40 > 0 */
