/*
 * What random runs against an oracle share: a context for every kernel table and several thread counts, tensors of any
 * layout, outputs compared with what is expected, and a check that the generator produced its hard cases.
 */
#ifndef SWITCHYARD_TESTS_SUPPORT_RANDOM_H
#define SWITCHYARD_TESTS_SUPPORT_RANDOM_H

#include "support.h"

/* Every kernel table of this CPU, the best first, with 1, 2, 3 and 8 threads; setup and teardown of a group of tests. */
extern sy_ctx *contexts[16];
extern int n_contexts;
int open_contexts(void **state);
int close_contexts(void **state);

/* Zeroed memory of n elements and one more; a tensor of any layout, compact without `rng`. Both until free_all. */
void *need(int64_t n, size_t bytes);
struct tensor *any_tensor(uint64_t *rng, DLDataType type, int rank, int64_t d0, int64_t d1);
struct tensor *any_tensor_of(uint64_t *rng, DLDataType type, int rank, const int64_t *shape);
void free_all(void); /* checks the guards of the tensors */

/* Copies numbers into a tensor of 32 or 64 bits. */
void put_numbers(struct tensor *x, const int64_t *numbers);

/* Floats of few exponents, so that sums cancel; one in `odds` is tiny, huge, -0, 1, -1 or has any bits at all. 0: none. */
void fill_floats(uint64_t *rng, DLDataType type, void *to, int64_t n, int64_t odds);

/* A number outside 0 to limit - 1: the extremes, the neighbours, others. */
int32_t any_outside(uint64_t *rng, int64_t limit);

/* An output of a call, with its dense contents after a success; 8 at most. */
struct output {
    const char *name;
    struct tensor *t;
    const void *want;
    bool given; /* to the call; else it must not change */
};

/*
 * Before and after a call: fills the outputs with 0xA5; expects the status and the fault, the contents after a success,
 * and not a byte changed after an error. An argument of the fault is compared where `fault` has one.
 */
void fill_outputs(const struct output *out, size_t n);
void snap_outputs(const struct output *out,
                  size_t n); /* after further changes, for outputs that are inputs too */
#define expect_outputs(ctx, status, fault, out, n) \
    test_expect_outputs((ctx), (status), (fault), (out), (n), __FILE__, __LINE__)
void test_expect_outputs(sy_ctx *ctx, sy_status status, const sy_fault *fault, const struct output *out,
                         size_t n, const char *file, int line);

/* Fails unless every counter of a struct of ints, and of the kinds of layouts, is at least `least`. */
#define expect_hard(seen, least) test_expect_hard((const int *)&(seen), sizeof(seen) / sizeof(int), least)
void test_expect_hard(const int *counters, size_t n, int least);

#endif
