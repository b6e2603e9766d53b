/*
 * The parts of sample: exact arithmetic (sample_math.c), cuts of the total order (sample_select.c), and the operator
 * that puts them together (sample.c). Everything that is summed is an integer, so no order of summation exists.
 */
#ifndef SYI_CPU_SAMPLE_H
#define SYI_CPU_SAMPLE_H

#include "kernels/kernels.h"

__extension__ typedef unsigned __int128 syi_u128;

/* ---- sample_math.c ------------------------------------------------------------------------------------------ */

#define SYI_WEIGHT_ONE (UINT64_C(1) << 40) /* fixed-point weight of e = 1 */

/* ceil(p * total) for 0 < p < 1, exactly; at least 1. */
uint64_t syi_mass_target(float p, uint64_t total);

/* e / (|q| + eps) with both sides kept in the range where division is normal. */
float syi_score(float e, float q, float eps);

/* Philox4x32-10 of a counter under a 64-bit key. */
void syi_philox(const uint32_t counter[4], uint64_t key, uint32_t word[4]);

/* The exponential variate -ln(1 - (word + 1/2) / 2^32). */
float syi_exponential(uint32_t word);

/* ln(weight_sum * 2^-40) in f64; weight_sum > 0. */
double syi_log_weight(uint64_t weight_sum);

/* ---- sample_select.c ---------------------------------------------------------------------------------------- */

enum { SYI_SELECT_BINS = 2048 };

/*
 * Tokens still in the race, in index order. idx is NULL while every token is: position i is then token i.
 */
struct syi_candidates {
    uint32_t *key;
    int32_t *idx;
    int64_t n;
};

/* A cut through the total order: everything above the key stays, and the first `ties` tokens equal to it. */
struct syi_cut {
    uint32_t key;
    uint64_t rest; /* measure still wanted from the tokens equal to the key, >= 1 */
};

/*
 * The largest key at which the measure of all keys >= it reaches `target` >= 1. The measure of a candidate is its
 * weight, or 1 when e is NULL. False when all together do not reach the target. hist has SYI_SELECT_BINS entries.
 */
bool syi_select(const struct syi_candidates *c, const float *e, uint64_t target, uint64_t *hist, struct syi_cut *cut);

/* Keeps what a cut keeps, in place except that the first call writes to `key` and `idx`. */
void syi_keep(struct syi_candidates *c, uint32_t cut_key, int64_t ties, uint32_t *key, int32_t *idx);

/* The candidates by key descending, index ascending, in a pair of the four arrays of n entries given. */
struct syi_candidates syi_rank_order(const struct syi_candidates *c, uint32_t *const key[2], int32_t *const idx[2],
                                     uint64_t *hist);

#endif
