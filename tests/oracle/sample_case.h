/*
 * One call of `sample` as a test sees it: tensors by slot, the oracle's answer read from the same argument
 * struct, and a comparison of every byte of every output. Also the row generators of the random tests.
 */
#ifndef SWITCHYARD_TESTS_ORACLE_SAMPLE_CASE_H
#define SWITCHYARD_TESTS_ORACLE_SAMPLE_CASE_H

#include "oracle/sample.h"
#include "support.h"

enum sample_slot {
    SLOT_LOGITS,
    SLOT_TOP_K,
    SLOT_TOP_P,
    SLOT_MIN_P,
    SLOT_TEMPERATURE,
    SLOT_Q,
    SLOT_SEED,
    SLOT_OFFSET,
    SLOT_STREAM,
    SLOT_ALLOW_BITS,
    SLOT_OVERRIDE_INDPTR,
    SLOT_OVERRIDE_TOKEN,
    SLOT_OVERRIDE_LOGIT,
    SLOT_GIVEN_TOKEN,
    SLOT_SCORE_TOKEN,
    SLOT_TOKEN,
    SLOT_KEPT,
    SLOT_ROW_FLAGS,
    SLOT_MASKED,
    SLOT_LIST_TOKEN,
    SLOT_LIST_PROB,
    SLOT_LOGPROB,
    SLOT_RANK, /* the outputs from here on are added by sample_add_logprobs */
    SLOT_TOP_TOKEN,
    SLOT_TOP_LOGPROB,
    SLOT_SCORE_LOGPROB,
    SLOT_COUNT,
    SLOT_FIRST_OUTPUT = SLOT_TOKEN
};
#define SLOT_BIT(slot) (1u << (slot))
#define SLOTS_ALL_OUTPUTS (SLOT_BIT(SLOT_RANK) - SLOT_BIT(SLOT_FIRST_OUTPUT))
#define SLOTS_NO_LOGPROB (SLOTS_ALL_OUTPUTS - SLOT_BIT(SLOT_LOGPROB))

/* The struct must not be copied: args points into the slots. */
struct sample_case {
    sy_sample_args args;
    int64_t batch, vocab;
    struct tensor slot[SLOT_COUNT];
};

/* The shapes and strides a per-row input may have. */
enum sample_rows {
    ROWS_B,          /* [B]                              */
    ROWS_ONE,        /* [1], one value for all           */
    ROWS_B1,         /* [B,1]                            */
    ROWS_STRIDED,    /* [B], stride 3                    */
    ROWS_B1_STRIDED, /* [B,1], row stride 2              */
    ROWS_STRIDE_0,   /* [B], stride 0: one value for all */
    ROWS_KINDS
};

const char *sample_slot_name(enum sample_slot slot);
const DLTensor **sample_slot_field(sy_sample_args *args, enum sample_slot slot);

void sample_open(struct sample_case *c, DLDataType type, int64_t batch, int64_t vocab,
                 const struct layout *layout);
void sample_close(struct sample_case *c);
void sample_add_rows(struct sample_case *c, enum sample_slot slot, DLDataType type, enum sample_rows kind);
void sample_add_q(struct sample_case *c, const struct layout *layout);
/* A row of words for each row of logits, or one for all; nothing is allowed yet. */
void sample_add_allow(struct sample_case *c, DLDataType type, bool for_all, const struct layout *layout);
void sample_allow(struct sample_case *c, int64_t b, int64_t token, bool allowed);
/* count[b] overrides for each row, with `spare` more elements at both ends of the lists that belong to none. */
void sample_add_overrides(struct sample_case *c, DLDataType indptr_type, DLDataType token_type,
                          const int64_t *count, int64_t spare);
void sample_override(struct sample_case *c, int64_t element, int64_t token, float logit);
/* Outputs by SLOT_BIT; `layout` is that of the [B,V] ones. */
void sample_add_outputs(struct sample_case *c, unsigned bits, const struct layout *layout);
/* The rank, n_top most likely tokens and n_score tokens to score, none of them yet; 0: no such tensors. */
void sample_add_logprobs(struct sample_case *c, int64_t n_top, DLDataType top_type, int64_t n_score,
                         DLDataType score_type, const struct layout *layout);

/* Element i of row b of a [B,V] slot (rounded to the slot's type), the value of a per-row slot. */
void sample_put(struct sample_case *c, enum sample_slot slot, int64_t b, int64_t i, double value);
void sample_put_row(struct sample_case *c, enum sample_slot slot, int64_t b, const double *values);
void sample_put_int(struct sample_case *c, enum sample_slot slot, int64_t b, int64_t value);
/* The element's bits as they are, for values that arithmetic would change: signalling NaN. */
void sample_put_bits(struct sample_case *c, enum sample_slot slot, int64_t b, int64_t i, uint64_t bits);

/* What the rows of a run contained. */
struct sample_seen {
    int64_t rows, nan, inf, empty, minus_zero, subnormal;
    int64_t k_on, k_tied, p_on, p_tied, p_short, mp_cut, score_tied, ranked, listed;
    int64_t barred;         /* the first token of the order was not allowed */
    int64_t overridden;     /* the first token of the order was made so */
    int64_t given, outside; /* the token was given; it is none of the distribution's */
};

/* The oracle's answer as dense arrays, and what the library must write. */
struct sample_want {
    int64_t *token, *list_token, *n;
    int32_t *kept;
    uint32_t *flags;
    float *masked, *list_prob, *logprob;
    int32_t *rank;
    unsigned char *top_token; /* of the type of the output */
    float *top_logprob, *score_logprob;
};

void sample_want_make(const struct sample_case *c, struct sample_want *want, struct sample_seen *seen);
void sample_want_free(struct sample_want *want);

/* What the oracle reads of a row, V of each. */
struct sample_values {
    float *x, *raw, *q;
    bool *allowed;
    int64_t given, *score;
};
void sample_values_make(struct sample_values *values, int64_t vocab, int64_t n_score);
void sample_values_free(struct sample_values *values);

/* Row b as the oracle reads it from the arguments. */
void sample_read_row(const struct sample_case *c, int64_t b, struct sample_values *values,
                     struct oracle_sample_row *row);

/*
 * Runs the library and compares every output's rows, the bytes between them, and that inputs are unchanged.
 * masked_logits may stand for the logits themselves; they are restored afterwards.
 */
void sample_run(struct sample_case *c, sy_ctx *ctx, const struct sample_want *want, const char *what);
/* sample_want_make, sample_run, free. */
void sample_check(struct sample_case *c, sy_ctx *ctx, struct sample_seen *seen, const char *what);

/* Rows for random tests. */
enum sample_kind {
    KIND_NORMAL,   /* bell curve of random width: peaked to flat            */
    KIND_TIES,     /* few distinct values                                   */
    KIND_EQUAL,    /* one value                                             */
    KIND_SPECIAL,  /* a bell curve with NaN, +-inf, -0, subnormals mixed in */
    KIND_NEGATIVE, /* all far below zero                                    */
    KIND_SINGLE,   /* one finite logit                                      */
    KIND_EMPTY,    /* NaN and -inf only                                     */
    KIND_INFINITE, /* several +inf                                          */
    KIND_SPREAD,   /* magnitudes from 1e-45 to the largest finite           */
    KIND_BITS,     /* any bit pattern                                       */
    KIND_ZEROS,    /* +0, -0 and subnormals only                            */
    KIND_PROBS,    /* probabilities, some outside [0,1]                     */
    KIND_COUNT
};
const char *sample_kind_name(enum sample_kind kind);
void sample_fill_row(struct sample_case *c, int64_t b, enum sample_kind kind, uint64_t *rng);

/* Bits of every density, from no token to all; few tokens, half of them, all but a few. */
void sample_fill_allow(struct sample_case *c, uint64_t *rng);

/* Overrides for no token of a row, a few, many or all: ordinary values, ties with the row, special ones. */
void sample_fill_overrides(struct sample_case *c, uint64_t *rng);

double sample_normal(uint64_t *rng); /* mean 0, deviation 1 */

#endif
