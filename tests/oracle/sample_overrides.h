/*
 * The truth about sample_overrides for one row: every token of the vocabulary is asked how often it stands in each list,
 * and each step is made in double and rounded to f32, which is the f32 result because a double has more than twice
 * the bits.
 */
#ifndef SWITCHYARD_TESTS_ORACLE_SAMPLE_OVERRIDES_H
#define SWITCHYARD_TESTS_ORACLE_SAMPLE_OVERRIDES_H

#include <stdbool.h>
#include <stdint.h>

struct overrides_row {
    int64_t vocab, n_prompt, n_output, n_bias;
    const float *logits;
    const int64_t *prompt, *output, *bias_token;
    const float *bias;
    float repetition, frequency, presence; /* as given, NaN too */
    /* Zeros: none. Sequence s is n_seq[s] tokens; their bias -inf where seq_bias is NULL. */
    int64_t n_seqs, n_stop, min_tokens;
    const int64_t *const *seq;
    const int64_t *n_seq, *stop;
    const float *seq_bias;
    bool output_only;
};

/* The row's overrides into token and logit, which have room for the vocabulary; returns how many. `x`, where it is not
   NULL, becomes the row with its overrides in place. */
int64_t oracle_sample_overrides(const struct overrides_row *row, int32_t *token, float *logit, float *x);

#endif
